"""Engines: who makes the visits of a round. Here the engine of this process; ``cluster/engine.py`` has Dask's.

An engine makes every visit of a round once and hands over the outcomes in group order, while later ones may still be
under way. It keeps what groups carry from round to round, and gives it out for a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from bigclf.maths.deltas import State
from bigclf.progress import Event, Status
from bigclf.training.executor import Bench, Job
from bigclf.training.validation import Candidate, Sums
from bigclf.training.visit import Carry, Lesson, Outcome, Ref, Visit


class Round(NamedTuple):
    """A segment of an epoch: a visit to every group. ``refs`` has a line a group, ``states`` the common state of each
    problem still learned; the other fields are those of ``Visit``. ``midway`` : the epoch goes on after it."""

    kind: str
    epoch: int
    segment: int
    lessons: tuple[Lesson, ...]
    version: int
    states: list[Any]
    refs: list[Ref | None]
    midway: bool

    @property
    def todo(self) -> tuple[int, ...]:
        """Numbers of the problems still learned."""
        return tuple(lesson.number for lesson in self.lessons)

    def visit(self, first: int, last: int) -> Visit:
        """The visit to the groups first:last."""
        refs = tuple(self.refs[first:last])
        lessons = tuple(lesson._replace(solved=lesson.solved[first:last]) for lesson in self.lessons)
        return Visit(self.kind, self.epoch, self.segment, first, last, lessons, self.version, refs)

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.epoch}-{self.segment}"


class Engine(Protocol):
    """What a run asks of an engine.

    Attributes
    ----------
    workers : processes at work now. bytes_moved : sent and received since the start. remembers : when a round is
    broken off, it can still tell what groups carried before it. deals : problems are dealt out, of one group.
    lasting : what outcomes hold stays as it is.
    worker_memory : bytes that the largest of other processes had at the peak, less interpreter and libraries; 0: there
    are none.
    """

    remembers: bool
    deals: bool
    lasting: bool
    worker_memory: int

    bytes_moved: int

    @property
    def workers(self) -> int: ...

    def perform(self, round: Round) -> Iterator[Outcome]:
        """Outcomes in group order, every group in exactly one."""
        ...

    def carry(self, group: int, ref: Ref, round: Round) -> Carry:
        """What the group carries after ``round``, at ``ref``, for a checkpoint."""
        ...

    def restore(self, group: int, ref: Ref, carry: Carry, common: dict[int, State]) -> None:
        """Take up what a checkpoint says of a group."""
        ...

    def judged(self, candidates: Sequence[Candidate], measure: str) -> list[Sums] | None:
        """The sums of each candidate over all rows (``validation.measure_all``); None: they are to be made here."""
        ...

    def take_events(self) -> list[Event]:
        """What happened to workers and visits since the last call."""
        ...

    def status(self) -> Status:
        """For whoever watches."""
        ...

    def close(self) -> None: ...


class LocalEngine:
    """Every visit in this process, in group order."""

    workers = 1
    bytes_moved = worker_memory = 0
    remembers = deals = lasting = False

    def __init__(self, job: Job, idle: Callable[[], None], advance: Callable[[int, int], None]) -> None:
        self.bench = Bench(job, idle, advance)

    def perform(self, round: Round) -> Iterator[Outcome]:
        for group in range(len(round.refs)):
            yield self.bench.visit(round.visit(group, group + 1), round.states, [None], round.name)
            if not round.midway:
                self.bench.recycle(group)

    def carry(self, group: int, ref: Ref, round: Round) -> Carry:
        self.bench.bring(group, ref, None)
        return self.bench.carry(group, round.midway, round.todo)

    def restore(self, group: int, ref: Ref, carry: Carry, common: dict[int, State]) -> None:
        self.bench.decode(range(len(self.bench.plan.groups)))  # of all, before working sets are filled
        self.bench.restore(group, ref, carry, common)

    def judged(self, candidates: Sequence[Candidate], measure: str) -> list[Sums] | None:
        return None

    def take_events(self) -> list[Event]:
        return []

    def status(self) -> Status:
        return {}

    def close(self) -> None:
        self.bench.close()
