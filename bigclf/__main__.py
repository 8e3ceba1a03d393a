"""``python -m bigclf`` and ``bigclf``: the command line."""

import atexit
import gc
import os
import sys
import threading

# What is imported and compiled stays, and to look through it again and again for garbage takes a seventh of the time of
# a short command. Few cycles are made later, and arrays are in none.
gc.set_threshold(100_000, 50, 100)

from bigclf.cli import main  # noqa: E402


def run() -> None:
    """The command, and the end of the process without the interpreter taking itself apart, which takes a third of the
    time of a short command: half a million objects of numba are looked through and freed one by one.

    Threads are waited for, what is registered for the end is done and streams are flushed, as ever.
    """
    try:
        main(prog_name="bigclf")
    except SystemExit as end:
        watched = sys.gettrace() or sys.getprofile() or sys.flags.interactive  # who wants to see the end
        if watched or not isinstance(end.code, int | None):
            raise
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        try:
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
        except (OSError, ValueError):  # nobody reads it: Python says so
            raise end from None
        os._exit(end.code or 0)


if __name__ == "__main__":
    run()
