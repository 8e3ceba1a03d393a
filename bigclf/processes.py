"""Processes that bigclf starts end with the one that started them.

Of a cluster that ``fit(workers=n)`` started, Dask loads this in each process before anything else. Such a process is
not hit by the terminal's Ctrl-C (the run that was told to stop still needs it), it ends soon after the process that
started it however that one ended, and it is silent: what there is to say reaches the run as events.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

GRACE_SECONDS = 10.0
PARENT = "BIGCLF_STARTED_BY"  # the number of the process that started this one: it may be gone before this one looks
LIBRARIES = 200_000_000  # bytes that interpreter and libraries of a process take, about


def dask_setup(server: object) -> None:
    """Called by Dask in the scheduler, each nanny and each worker."""
    logging.disable(logging.CRITICAL)  # nobody reads the scheduler's standard error: a full pipe would stop it
    if hasattr(server, "nanny"):  # a worker: in its nanny's group, and closed by it
        return
    parent = int(os.environ.get(PARENT) or os.getppid())
    sys.excepthook = lambda *_: None  # that it did not start the run tells
    os.setpgrp()
    try:
        threading.Thread(target=_follow, args=(parent,), name="bigclf-parent", daemon=True).start()
    except RuntimeError:  # the system starts no more threads: it looks between other things
        _look(parent, asyncio.get_running_loop())


def end_with(parent: int) -> None:
    """End this process at once when ``parent``, which started it, is gone, or where that cannot be watched; called in
    processes that only compute."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        threading.Thread(target=watch, name="bigclf-parent", daemon=True).start()
    except RuntimeError:  # the system starts no more threads
        os._exit(1)


@contextlib.contextmanager
def waiting(module: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of this program that waits for a line on its standard input; it is silent, and ends with this."""
    silent = subprocess.DEVNULL
    command = [sys.executable, "-m", module]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=silent, stderr=silent) as process:
        try:
            yield process
        finally:
            process.kill()  # what it has not written down yet nobody needs


def _follow(parent: int) -> None:
    """End this process when its parent is gone."""
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _look(parent: int, loop: asyncio.AbstractEventLoop) -> None:
    """As ``_follow``, without a thread."""
    if os.getppid() == parent:
        loop.call_later(1, _look, parent, loop)
        return
    loop.call_later(GRACE_SECONDS, os.kill, os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGTERM)
