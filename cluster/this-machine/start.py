"""A Dask cluster on this machine: a scheduler and workers, each a process that is started again when it ends.

Dask's workers leave, as if all were well, when their scheduler dies, and nobody starts either again. This program does:
a worker within a second of its end, the scheduler at the same address. So a run that lost the scheduler goes on.

    python cluster/this-machine/start.py --workers 2 --memory-limit 2GB

Ctrl-C or SIGTERM ends all of it; a second one at once.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

from dask.system import CPU_COUNT
from distributed.system import MEMORY_LIMIT

CONFIGURATION = Path(__file__).resolve().parent.parent / "dask.yaml"
SHORTEST, LONGEST = 0.5, 15.0  # seconds until something is started again; doubled when it ends soon after its start
SOON = 60.0
GRACE = 15.0  # seconds between being asked to end and being made to


class Child:
    """A program that is kept running, in a session of its own so that all it starts can be ended with it."""

    def __init__(self, name: str, words: list[str], log: Path, env: dict[str, str]) -> None:
        self.name, self.words, self.log, self.env = name, words, log, env
        self.process: subprocess.Popen[bytes] | None = None
        self.started = self.due = 0.0
        self.delay = SHORTEST

    def start(self) -> None:
        with open(self.log, "ab") as log:
            self.process = _spawn(self.words, log, self.env)
        self.started = time.monotonic()
        say(f"{self.name} is process {self.process.pid}")

    def look(self) -> None:
        """Start it if it is due; note if it has ended."""
        now = time.monotonic()
        if self.process is None:
            if now >= self.due:
                self.start()
        elif self.has_ended():
            self.delay = SHORTEST if now - self.started > SOON else min(2 * self.delay, LONGEST)
            self.due = now + self.delay
            say(f"{self.name} ended with code {self.clear()}; starting it again in {self.delay:g} s (see {self.log})")

    def has_ended(self) -> bool:
        """Without collecting it: as long as it is not collected its number belongs to nobody else."""
        assert self.process is not None
        return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def ask_to_end(self) -> None:
        if self.process is not None:
            self.process.terminate()

    def clear(self) -> int:
        """End what is left of it; its exit code."""
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        code, self.process = self.process.wait(), None
        return code


def _spawn(words: list[str], log: IO[bytes], env: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True,
        preexec_fn=_end_with_parent if sys.platform == "linux" else None,
    )  # fmt: skip


def _end_with_parent() -> None:
    """SIGTERM for the child when this program is killed (Linux: prctl PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


# What to start


def children(given: argparse.Namespace) -> list[Child]:
    """The scheduler, then the workers."""
    directory = Path(given.temporary).resolve()
    logs = directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "DASK_CONFIG": str(given.config), "TMPDIR": str(directory)}
    scheduler = ["scheduler", "--host", given.host, "--port", str(given.port)]
    worker = [
        "worker", address(given), "--host", given.host, "--nthreads", "1", "--memory-limit", given.memory_limit,
        "--local-directory", str(directory), "--preload", given.preload, "--death-timeout", "60", "--no-dashboard",
    ]  # fmt: skip
    if given.dashboard is None:
        scheduler += ["--no-dashboard", "--dashboard-address", f"{given.host}:0"]  # it serves its health all the same
    else:
        scheduler += ["--dashboard-address", given.dashboard]
    names = [f"worker-{k}" for k in range(given.workers)]
    commands = {"scheduler": scheduler, **{name: [*worker, "--name", name] for name in names}}
    return [
        Child(name, [sys.executable, "-m", f"distributed.cli.dask_{words[0]}", *words[1:]], logs / f"{name}.log", env)
        for name, words in commands.items()
    ]


def address(given: argparse.Namespace) -> str:
    return f"tcp://{given.host}:{given.port}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, default=CPU_COUNT, help="processes; each makes one visit at a time")
    parser.add_argument("--memory-limit", metavar="SIZE", help="of each worker  [default: their share of 9/10]")
    parser.add_argument("--host", default="127.0.0.1", help="address here; nothing is encrypted: keep it local")
    parser.add_argument("--port", type=int, default=8786, help="of the scheduler; 0: a free one")
    parser.add_argument("--dashboard", metavar=":8787", help="address of Dask's dashboard  [default: none]")
    parser.add_argument("--temporary", metavar="DIR", help="caches and logs, on a disk  [default: a new one, removed]")
    parser.add_argument(
        "--config", type=Path, default=CONFIGURATION, help="Dask's configuration  [default: ../dask.yaml]"
    )
    parser.add_argument("--preload", default="bigclf.preload", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.workers < 1:
        parser.error("--workers must be at least 1")
    given.memory_limit = given.memory_limit or str(int(0.9 * MEMORY_LIMIT / given.workers))
    given.config = given.config.resolve(strict=True)
    try:
        with socket.create_server((given.host, given.port)) as free:
            given.port = free.getsockname()[1]
    except OSError as error:
        parser.error(f"{given.host}:{given.port} cannot be used: {error.strerror}; is a cluster running already?")
    return given


# Keeping it running


def main() -> int:
    given = arguments()
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: signals.append(number))
    with contextlib.ExitStack() as stack:
        if given.temporary is None:
            given.temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="bigclf-cluster-"))
        kept = children(given)
        stack.callback(stop, kept, signals)
        say(f"scheduler at {address(given)}; train with: bigclf fit DATA -o MODEL --workers {address(given)}")
        while not signals:
            for child in kept:
                child.look()
            time.sleep(0.1)
        say("ending")
    return 0


def stop(kept: list[Child], signals: list[int]) -> None:
    """Workers first, so that they do not look for their scheduler; who does not end in time is made to."""
    heard = len(signals)
    for group in (kept[1:], kept[:1]):
        there = [child for child in group if child.process is not None]
        for child in there:
            child.ask_to_end()
        end = time.monotonic() + GRACE
        while len(signals) == heard and time.monotonic() < end and not all(child.has_ended() for child in there):
            time.sleep(0.05)
        for child in there:
            child.clear()


if __name__ == "__main__":
    sys.exit(main())
