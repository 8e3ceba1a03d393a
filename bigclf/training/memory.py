"""Anonymous memory of this process: what the promise of ``memory=`` is held against."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


def anonymous_bytes() -> int:
    """Anonymous resident memory in bytes (shared files and page cache not counted); all resident where Linux is not."""
    try:
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    import psutil

    return int(psutil.Process().memory_info().rss)


class PeakMemory:
    """The largest ``anonymous_bytes`` seen between ``with`` and its end, looked at fifty times a second."""

    def __init__(self) -> None:
        self.base = self.peak = anonymous_bytes()
        self._stop = threading.Event()

    def __enter__(self) -> PeakMemory:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            self.peak = max(self.peak, anonymous_bytes())

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.peak = max(self.peak, anonymous_bytes())

    @contextlib.contextmanager
    def leaving_out(self) -> Iterator[None]:
        """What is loaded inside counts as loaded before."""
        before, peak = anonymous_bytes(), self.peak
        yield
        now = anonymous_bytes()
        self.base, self.peak = self.base + now - before, peak + now - before
