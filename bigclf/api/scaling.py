"""What more workers are worth: predictions for several numbers of them, each beside that for one process."""

from __future__ import annotations

from typing import NamedTuple, TypedDict

import numpy as np

from bigclf.request.spreading import DEALT, DEALT_PAYS, ONE_PASSES, PAYS, SET_SHARE
from bigclf.units import speed_text


class Outlook(NamedTuple):
    """For so many workers: groups, and how they come together; passes (None: not known); seconds of the first pass and
    of a later one; bytes moved in a pass, and once; bytes of a worker and of the driver; seconds after all
    passes."""

    workers: int
    groups: int
    design: str
    passes: float | None
    first_seconds: float
    pass_seconds: float
    pass_bytes: int
    once_bytes: int
    memory: int
    driver: int
    after_seconds: float = 0.0

    @property
    def seconds(self) -> float | None:
        """In all."""
        if self.passes is None:
            return None
        return self.first_seconds + (self.passes - 1) * self.pass_seconds + self.after_seconds


class Line(TypedDict):
    """An ``Outlook`` as plain values, with ``seconds`` in all, the speed-up over one process and what follows."""

    workers: int
    groups: int
    design: str
    passes: float | None
    first_seconds: float
    pass_seconds: float
    pass_bytes: int
    once_bytes: int
    memory: int
    driver: int
    seconds: float | None
    speed_up: float | None
    advice: str


def worker_counts(given: object) -> list[int]:
    """Numbers of workers from one, a list, or a text like "1,2,8".

    Raises
    ------
    ValueError : some are no whole numbers of at least 1.
    """
    parts = [1] if given is None else given.split(",") if isinstance(given, str) else given
    counts = []
    for part in parts if isinstance(parts, list | tuple) else [parts]:
        try:
            count = int(part) if isinstance(part, str | int | float | np.integer) else 0
        except (ValueError, OverflowError):
            count = 0
        if isinstance(part, bool) or count < 1 or (not isinstance(part, str) and count != part):
            raise ValueError(f"workers must be a whole number of at least 1, or several like 1,2,8, not {given!r}")
        counts.append(count)
    if not counts:
        raise ValueError("workers must name at least one number")
    return counts


def as_gathered(told: Outlook, learned: float, passes: float | None) -> Outlook:
    """With the seconds of a pass in which most of the work is done in one place, to the gathered set; ``learned`` : of
    a pass in one process, which makes so many ``passes``."""
    if told.design != "gathered set" or told.passes is None:
        return told
    ratio = ((passes or ONE_PASSES) - 1) / max(1.0, told.passes - 1)
    exchanged = max(0.0, told.pass_seconds - learned / told.workers)
    seconds = ratio * learned * (SET_SHARE + (1 - SET_SHARE) / told.workers) + exchanged
    return told._replace(pass_seconds=seconds)


def lines_of(outlooks: list[Outlook]) -> list[Line]:
    """With the speed-up of each over the first, and what follows from it."""
    first = outlooks[0]
    return [
        Line(
            workers=each.workers, groups=each.groups, design=each.design, passes=each.passes,
            first_seconds=each.first_seconds, pass_seconds=each.pass_seconds, pass_bytes=each.pass_bytes,
            once_bytes=each.once_bytes, memory=each.memory, driver=each.driver, seconds=each.seconds,
            speed_up=_faster(first, each), advice=_advice(first, each),
        )
        for each in outlooks
    ]  # fmt: skip


def _faster(first: Outlook, each: Outlook) -> float | None:
    """None where groups stay apart: they need many more passes, nobody knows how many."""
    if first.seconds and each.seconds:
        return first.seconds / each.seconds
    return None if each.design == "groups apart" else first.pass_seconds / each.pass_seconds


def _advice(first: Outlook, each: Outlook) -> str:
    if each.workers == 1:
        return ""
    faster, said = _faster(first, each), f"{each.workers:,} workers: "
    few = (
        f" (the data have chunks for {each.groups:,} groups)"
        if each.groups < each.workers and each.design != DEALT
        else ""
    )
    if faster is None:
        return said + "one process is faster: groups that stay apart need many more passes" + few
    if faster < (DEALT_PAYS if each.design == DEALT else PAYS):
        return said + f"one process is enough: they are predicted to be {speed_text(faster)}" + few
    return said + f"they pay, with {faster:.2g} times the speed of one process" + few
