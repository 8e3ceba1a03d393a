"""Whose turn it is: which problems of a run are learned now, and which of them a read is made for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bigclf.training.visit import Part

if TYPE_CHECKING:
    from bigclf.training.run import Run


def learned_now(run: Run) -> list[int]:
    """The problems that are neither ended nor waiting for others to end."""
    ended = [status.done or status.over for status in run.status]
    left = [n for n, over in enumerate(ended) if not over]
    waits = {n: not all(ended[other] for other, _ in run.problems[n].start) for n in left}
    return [n for n in left if not waits[n] or run.conductors[n].goes_ahead(run.states[n])]


def read_for(run: Run) -> list[int]:
    """Those that the next read is made for: of points of a path that share what it collects the first."""
    todo = run.todo()
    riding = [n for n in todo if run.conductors[n].rides(run.states[n])]
    return _in_turn(run, [n for n in todo if n not in riding[1:]])


def _in_turn(run: Run, todo: list[int]) -> list[int]:
    """Of chains of problems a multiple of ``Plan.in_turn``, where there are as many: those whose chain has come least
    far, then those of fewest epochs. Five folds would else keep two cores, or two workers, for three visits a round."""
    most = run.plan.in_turn
    if not most or len(todo) < most:
        return todo

    def so_far(number: int) -> tuple[int, int, int]:
        return _place_in_chain(run, number), run.status[number].epochs, number

    return sorted(sorted(todo, key=so_far)[: len(todo) // most * most])


def _place_in_chain(run: Run, number: int) -> int:
    """How many problems have to end before this one can begin."""
    place = 0
    while start := run.problems[number].start:
        place, number = place + 1, start[0][0]
    return place


def parts_of(run: Run, parts: Sequence[Part]) -> dict[int, Part]:
    """What came of each problem that is learned; ``parts`` : of those that the read was made for. Who shares what was
    collected has it with a state of its own."""
    came = dict(zip(read_for(run), parts, strict=False))
    for number in [n for n in came if run.conductors[n].rides(run.states[n])]:
        came |= {n: came[number]._replace(state=run.states[n]) for n in run.todo() if n not in came}
    return came
