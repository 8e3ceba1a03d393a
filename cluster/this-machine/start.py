"""A Dask cluster on this machine: a scheduler and workers, each a process that is started again when it ends.

Dask's workers leave, as if all were well, when their scheduler dies, and nobody starts either again. This program does:
a worker within a second of its end, the scheduler at the same address. So a run that lost the scheduler goes on.

    python cluster/this-machine/start.py --workers 2 --memory-limit 2GB

Ctrl-C or SIGTERM ends all of it; a second one at once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys
import tempfile
from pathlib import Path

from dask.system import CPU_COUNT
from distributed.system import MEMORY_LIMIT

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from keeping import Child, keep, listening, say, stop

CONFIGURATION = Path(__file__).resolve().parent.parent / "dask.yaml"


# What to start


def children(given: argparse.Namespace) -> list[Child]:
    """The scheduler, then the workers."""
    directory = Path(given.temporary).resolve()
    logs = directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    safe = {"PYTHONSAFEPATH": "1"}  # the installed bigclf, not that of a checkout this is started in
    env = {**os.environ, **safe, "DASK_CONFIG": str(given.config), "TMPDIR": str(directory)}
    scheduler = ["scheduler", "--host", given.host, "--port", str(given.port)]
    worker = [
        "worker", address(given), "--host", given.host, "--nthreads", "1", "--memory-limit", given.memory_limit,
        "--local-directory", str(directory), "--preload", given.preload, "--death-timeout", "60", "--no-dashboard",
    ]  # fmt: skip
    if given.dashboard is None:
        scheduler += ["--no-dashboard", "--dashboard-address", f"{given.host}:0"]  # it serves its health all the same
    else:
        scheduler += ["--dashboard-address", f"{given.host}:{given.dashboard}"]
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
    parser.add_argument("--dashboard", metavar="8787", type=int, help="port of Dask's dashboard  [default: none]")
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
    signals = listening()
    with contextlib.ExitStack() as stack:
        if given.temporary is None:
            given.temporary = stack.enter_context(tempfile.TemporaryDirectory(prefix="bigclf-cluster-"))
        kept = children(given)
        stack.callback(stop, kept, signals)
        say(f"scheduler at {address(given)}; train with: bigclf fit DATA -o MODEL --workers {address(given)}")
        keep(kept, signals)
        say("ending")
    return 0


if __name__ == "__main__":
    sys.exit(main())
