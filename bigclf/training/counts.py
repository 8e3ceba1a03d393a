"""What a run counts beside what it learns: its time, what its visits did, and its best epoch."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

log = logging.getLogger("bigclf")
GRACE_SECONDS = 20.0  # what a run that was told to stop may take to reach the end of its segment


class Clock:
    """Time of a run, and whether it was told to stop.

    Parameters
    ----------
    max_seconds : after which the run ends, or None.
    told_to_stop : says why the run is to stop, or None.
    place : what a run that is told to stop still finishes: "the epoch", say.
    """

    def __init__(self, max_seconds: float | None, told_to_stop: Callable[[], str | None], place: str) -> None:
        self.max_seconds, self.told_to_stop, self.place = max_seconds, told_to_stop, place
        self.before = 0.0  # seconds of earlier processes
        self._asked: float | None = None
        self.start()

    def start(self) -> None:
        """Count from now on."""
        self._begun = time.monotonic()

    @property
    def seconds(self) -> float:
        """Of the run, an earlier process's included."""
        return self.before + time.monotonic() - self._begun

    @property
    def left(self) -> float:
        """Seconds until the limit, or infinity."""
        return math.inf if self.max_seconds is None else self.max_seconds - self.seconds

    @property
    def late(self) -> bool:
        """Whether the time is over."""
        return self.max_seconds is not None and self.seconds > self.max_seconds

    def grace_is_over(self) -> bool:
        """Whether the run was told to stop so long ago that it is to stop at once."""
        reason = self.told_to_stop()
        if reason is None:
            return False
        now = time.monotonic()
        if self._asked is None:
            self._asked = now
            log.warning("%s: stopping at the end of %s, in %d s at most", reason, self.place, GRACE_SECONDS)
        return now - self._asked > GRACE_SECONDS


class Counts:
    """What the visits of a run did: ``visited`` (seconds, of all together), ``bytes_read``, ``decoded`` (bytes from the
    shards), ``rebuilt`` (records) and ``curve`` (rows, mistakes, losses so far in the first epoch) since the run's
    beginning, the rest since a read's."""

    def __init__(self) -> None:
        self.bytes_read = self.decoded = self.rebuilt = 0
        self.visited = 0.0
        self.curve: list[tuple[int, int, float]] = []
        self.begin_read()

    def begin_read(self) -> None:
        self.rounds = self.steps = self.set_rows = 0
        self.again = 0.0  # times the rows that rounds went over
        self.waited = 0.0  # seconds in which visits had nothing to learn from

    def add(self, facts: Mapping[str, Any]) -> None:
        """Those of an outcome."""
        self.visited += facts["seconds"]
        self.bytes_read += facts["bytes_read"]
        self.rebuilt += facts["rebuilt"]
        self.waited += facts["waited"]
        self.decoded += facts["decoded"]
        self.rounds = max(self.rounds, facts["rounds"])
        self.steps = max(self.steps, facts["steps"])
        self.again = max(self.again, facts["again"])
        self.set_rows += facts["set_rows"]
        self.curve += facts.get("curve", [])


class BestEpoch:
    """The epoch that did best on the validation rows; ``patience`` : epochs in a row without a better one after which
    the run ends, or None: nobody asks."""

    def __init__(self, patience: int | None) -> None:
        self.patience, self.score, self.since, self.epoch = patience, -np.inf, 0, 0

    def is_better(self, epoch: int, figures: Mapping[str, float] | None) -> bool:
        """Whether an epoch did better on the validation rows than all before."""
        assert figures is not None  # a run that stops early has rows to validate on
        names = [name for name in ("accuracy", "micro_f1") if name in figures]
        score = figures[names[0]] if names else -figures["mean_squared_error"]
        if score > self.score:
            self.score, self.since, self.epoch = score, 0, epoch
            return True
        self.since += 1
        return False

    @property
    def ends(self) -> bool:
        return self.patience is not None and self.since >= self.patience

    def facts(self) -> dict[str, object]:
        """What a checkpoint says of it."""
        if self.patience is None:
            return {}
        return {"best_score": float(self.score).hex(), "since_best": self.since, "best_epoch": self.epoch}

    def restore(self, score: str, since: int, epoch: int) -> None:
        """Take up what ``facts`` gave."""
        self.score, self.since, self.epoch = float.fromhex(score), since, epoch
