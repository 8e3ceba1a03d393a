"""Anonymous memory of this process: what the promise of ``memory=`` is held against."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import threading
import time
from collections.abc import Iterator

from bigclf.data.shards import await_freed, release_freed
from bigclf.machine import anonymous_bytes

TRIMS = "MALLOC_TRIM_THRESHOLD_"  # in the environment of who is to give memory back at once
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as glibc's malloc.h has them


LOOK_SECONDS = 0.02


class PeakMemory:
    """The largest ``anonymous_bytes`` seen between ``with`` and its end, looked at fifty times a second; without
    ``with`` where ``look`` or ``look_between`` is called."""

    def __init__(self) -> None:
        self.base = self.peak = anonymous_bytes()
        self._looked = time.monotonic()
        self._stop = threading.Event()

    def begin(self, *, trim: bool = True) -> None:
        """Count from here on.

        With ``trim`` what allocators keep of freed memory goes back to the system before, as what a conversion in this
        process left behind: training takes its memory from there first, and nothing would be seen of it.
        """
        if trim:
            release_freed()
            await_freed()
        self.base = self.peak = anonymous_bytes()

    def __enter__(self) -> PeakMemory:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        self.peak = max(self.peak, anonymous_bytes())

    def look_between(self) -> None:
        """``look``, unless that was a moment ago: between two kernels, of which there may be thousands a second."""
        if (now := time.monotonic()) - self._looked >= LOOK_SECONDS:
            self._looked = now
            self.look()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.look()

    @contextlib.contextmanager
    def leaving_out(self) -> Iterator[None]:
        """What is loaded inside counts as loaded before."""
        before, peak = anonymous_bytes(), self.peak
        yield
        now = anonymous_bytes()
        self.base, self.peak = self.base + now - before, peak + now - before


def keep_freed() -> bool:
    """Let the C library keep up to 64 MB of freed memory, as it does where nobody says otherwise; whether it was told.

    Dask's nanny says otherwise, and then each array of some MB is given back at once: to copy 8 MB takes 5 ms and not
    0.2, since the system clears the pages of the next one.
    """
    if TRIMS not in os.environ:
        return False
    with contextlib.suppress(OSError, AttributeError):  # another C library
        tell = ctypes.CDLL(None).mallopt
        return bool(tell(M_MMAP_THRESHOLD, 32 << 20) and tell(M_TRIM_THRESHOLD, 64 << 20))
    return False


def reuse_freed() -> None:
    """Have the C library take arrays of some MB from memory that was freed, and keep up to 64 MB of it, as it does by
    itself from the first time on that it has freed 32 MB in one piece; where somebody has told it how, nothing changes.

    Who takes in weights of 12 MB from two workers, and joins them, would else give back, and have cleared, all of it
    each time.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        library = ctypes.CDLL(None)
        library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
        library.free(library.malloc(32 * 2**20 - 2 * mmap.PAGESIZE))  # no page of it is touched
