"""Anonymous memory of this process: what the promise of ``memory=`` is held against."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from bigclf.machine import anonymous_bytes


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
