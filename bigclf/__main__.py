"""``python -m bigclf`` and ``bigclf``: the command line."""

import atexit
import contextlib
import gc
import os
import sys
import threading
from types import FrameType

# What is imported and compiled stays, and to look through it again and again for garbage takes a seventh of the time of
# a short command. Few cycles are made later, and arrays are in none.
gc.set_threshold(100_000, 50, 100)

from bigclf.cli import main  # noqa: E402


def run() -> None:
    """The command, and the end of the process without the interpreter taking itself apart, which takes a third of the
    time of a short command: half a million objects of numba are looked through and freed one by one.

    Threads are waited for, what is registered for the end is done and streams are flushed, as ever. Whoever called the
    command (a profiler, a debugger) or stays after it (``PYTHONINSPECT``) sees the end as ever, too.
    """
    caller = sys._getframe(1)
    try:
        main(prog_name="bigclf")
    except SystemExit as end:
        watched = sys.gettrace() or sys.getprofile() or sys.flags.inspect or os.environ.get("PYTHONINSPECT")
        if watched or _is_called(caller) or not isinstance(end.code, int | None):
            raise
        with contextlib.suppress(KeyboardInterrupt):  # as ever: who does not want to wait ends the waiting
            threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        try:
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
        except (OSError, ValueError):  # nobody reads it: Python says so
            raise end from None
        _flush_c()
        os._exit(end.code or 0)


def _is_called(frame: FrameType) -> bool:
    """Whether the script in ``frame`` was started by another one, not by Python: profilers need not show otherwise."""
    while (above := frame.f_back) is not None and above.f_globals.get("__name__") == "runpy":
        frame = above
    return above is not None


def _flush_c() -> None:
    """What C wrote by ``printf``, as a reader of one's own may. It has come with numpy, which needs ctypes."""
    if (ctypes := sys.modules.get("ctypes")) is not None:
        with contextlib.suppress(OSError, TypeError, AttributeError):  # no such library by that name
            ctypes.CDLL(None).fflush(None)


if __name__ == "__main__":
    run()
