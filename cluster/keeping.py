"""Programs that are kept running: each is started again when it ends, at longer and longer intervals while it keeps
ending soon after its start. What the recipes share that have no other supervisor."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

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


def listening() -> list[int]:
    """Begin to collect the signals that ask this program to end: their numbers, as they come."""
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: signals.append(number))
    return signals


def keep(kept: list[Child], signals: list[int]) -> None:
    """Until a signal comes."""
    while not signals:
        for child in kept:
            child.look()
        time.sleep(0.1)


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
