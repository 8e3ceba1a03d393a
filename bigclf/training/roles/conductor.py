"""A problem at the driver of a run: what every kind of method has in common there."""

from __future__ import annotations

import abc
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from bigclf.maths.mixing import Rule, Weights
from bigclf.training.plan import Plan
from bigclf.training.problems import Problem
from bigclf.training.status import Status
from bigclf.training.visit import SCALES, STILL, Figures, Lesson, Part, primals_of


def is_fibonacci(n: int) -> bool:
    """Whether n is one of 1, 2, 3, 5, 8, 13 and so on: 5 n^2 + 4 or 5 n^2 - 4 is a square."""
    return any(math.isqrt(square) ** 2 == square for square in (5 * n * n - 4, 5 * n * n + 4))


class Limits(NamedTuple):
    """What may end a run.

    tol : certified relative gap at which a problem is done, or None: no certificate is asked for.
    epochs : most of a problem; max_seconds : of the run, or None.
    proves_apart : whether certificates are never made beside the learning: no copy of a read's start is kept.
    """

    tol: float | None
    epochs: int
    max_seconds: float | None
    proves_apart: bool


class When(NamedTuple):
    """Where in a run something is asked: kind of the round, epoch, segment."""

    kind: str
    epoch: int
    segment: int

    @property
    def begins(self) -> bool:
        """Whether the round learns, from the start of an epoch."""
        return self.kind == "update" and self.segment == 0


class Gathering(Protocol):
    """What takes in pieces one by one."""

    def append(self, piece: object) -> None: ...


class Ending(NamedTuple):
    """Of an epoch that ends: whether it went over every row, how many reads there were, and what the run answers
    while something takes long: ``idle`` may raise to break off, ``late`` says whether its time is over."""

    whole: bool
    reads: int
    idle: Callable[[], None]
    late: Callable[[], bool]


class Conductor(abc.ABC):
    """A problem at the driver. This one has no certificate; ``number`` : of the problem."""

    unproved = False  # the last step left weights without a certificate, and the next read makes one

    def __init__(self, number: int, problem: Problem, plan: Plan, limits: Limits) -> None:
        self.number, self.problem, self.plan, self.limits = number, problem, plan, limits
        self.method = problem.setting.method
        self.status = Status()
        self.facts: dict[str, float] = {}  # figures of its last step, for the history

    @property
    def alone(self) -> bool:
        """Whether there is one group of rows."""
        return len(self.plan.groups) == 1

    @property
    def rule(self) -> Rule | None:
        """How copies are combined."""
        return self.problem.setting.rule

    # Before a round

    def begin(self, states: list[Weights], others: Sequence[Conductor]) -> None:  # noqa: B027 most have nothing to do
        """Look at the common state before anything is learned."""

    def lesson(self, when: When, state: Weights, takes_up: bool, most: float = math.inf) -> Lesson:
        """What a visit is told; ``takes_up`` : it begins with the dual variables of others."""
        status, tol = self.status, self.limits.tol
        tries = when.kind == "last" or (when.begins and self.tries(state))
        return Lesson(
            self.number,
            certify=when.kind in STILL or self.certifies(when),
            aim=0.0 if tol is None else tol / status.optimism,
            known=(status.primal, status.dual),
            estimate=status.estimate,
            sigma=self.sigma,
            begins=takes_up,
            beat=status.primal if tries else None,
            holds=when.begins and self.holds(),
            most=most,
        )

    @property
    def sigma(self) -> float:
        """How many times each step of a group counts while it is away from the others."""
        return float(len(self.plan.groups))

    def takes_up(self, states: list[Weights], others: Sequence[Conductor]) -> bool:
        """Begin where others ended, whom the problem waited for, in ``states``; whether the groups are to go on from
        their dual variables too."""
        return False

    def certifies(self, when: When) -> bool:
        """Whether the visit certifies the weights that it begins with."""
        return False

    def seems_done(self) -> bool:
        """Whether a read for the certificate alone is likely to be the last one."""
        return False

    def goes_ahead(self, state: Weights) -> bool:
        """Whether it is learned already, though the problems that it waits for are not done."""
        return False

    def rides(self, state: Weights) -> bool:
        """Whether what the next read collects is for other problems of its path, too: one of them has it made."""
        return False

    def choose_batch(self, states: list[Weights], others: Sequence[Conductor]) -> None:  # noqa: B027 few have any
        """Of a path, after an epoch: which of all the problems go on from one collection, in ``states``."""

    def passes(self, state: Weights) -> bool:
        """Whether the next visits go over the data, and not only over rows that are kept."""
        return True

    # Weights that are tried where a run may end before it is done

    @property
    def limited(self) -> bool:
        """Whether the run may end before its tolerance is met: then the best answer that was certified is kept."""
        limits = self.limits
        return limits.tol is not None and (limits.epochs < self.method.epochs or limits.max_seconds is not None)

    def tries(self, state: Weights) -> bool:
        """Whether the weights at the start of an epoch are tried, as they are and scaled: where the run may end before
        it is done their objective is not lost, whatever follows. That costs part of an epoch, so it is seldom done.
        What sums are made at, they tell themselves."""
        status = self.status
        return self.limited and status.learned and status.epochs > 0 and is_fibonacci(status.epochs)

    def holds(self) -> bool:
        """Whether a copy of the weights at the start of an epoch is kept, to be tried where time is over in the midst
        of it."""
        limits = self.limits
        may_be_cut = limits.max_seconds is not None and self.plan.segments > 1
        return may_be_cut and limits.tol is not None and self.status.learned and self.status.epochs > 0

    def may_be_better(self) -> bool:
        """Whether nothing is known of the last weights, which a certificate could tell of."""
        return False

    def accept(self, state: Weights, part: Part, figures: Figures, reads: int, keep: str = "copy") -> None:
        """Take the certificate of the weights at the start of the read."""
        raise TypeError(f"{self.method.name} has no certificate by the dual")

    def take_scaled(
        self, state: Weights, losses: np.ndarray, reads: int, tol: float, own: np.ndarray | None = None
    ) -> None:
        """Where the weights at the start of the read times one of ``SCALES`` are better than all before, they are the
        answer so far; t = 0 bounds the primal objective of every answer.

        own : a copy of these weights that is nobody else's; tol : below 0, no problem is done by this, learning went
        on.
        """
        status = self.status
        weights = state.weights if own is None else own
        if status.done or not losses.size:
            return
        primals = primals_of(weights, self.problem.setting.params(), losses)
        best = int(np.argmin(primals))
        if not primals[best] < status.primal:
            return
        if own is None:
            weights = weights * weights.dtype.type(SCALES[best])
        else:
            weights *= weights.dtype.type(SCALES[best])
        status.accept(float(primals[best]), max(0.0, status.dual), weights, reads, tol, "as they are")
        status.scale = float(SCALES[best])

    @property
    def gathering(self) -> Gathering | None:
        """What takes in, in group order, what groups have found in an epoch; None: the method does."""
        return None

    # To a file and back

    def arrays(self) -> dict[str, np.ndarray]:
        """What a checkpoint has of it beside its state and status."""
        return {}

    def restore(self, held: dict[str, np.ndarray]) -> None:  # noqa: B027 most have nothing more
        """Take up what ``arrays`` gave; its status has been taken up before."""

    # After an epoch

    def end(self, start: Weights, part: Part, ending: Ending) -> tuple[Weights, float]:
        """Take what all groups came to; the common state of the next epoch, and how far along their step it is."""
        figures, status, began = Figures.of(part.figures), self.status, time.monotonic()
        status.epochs += 1
        for tally in (status.total,) + ((status.progressive,) if status.epochs == 1 else ()):
            tally.add(figures.tally)
        status.last_mistakes = figures.tally.mistakes
        if part.dual is not None:
            self.accept(start, part, figures, ending.reads)
        own = part.certified if isinstance(part.certified, np.ndarray) else None
        if ending.whole:
            self.take_scaled(start, np.array(figures.scaled), ending.reads, -1.0, own)
        elif self.holds() and status.epochs > 1:
            status.began = own if self.alone else start.weights
        taken = self.take(start, part, figures, ending)
        status.busy += time.monotonic() - began
        return taken

    @abc.abstractmethod
    def take(self, start: Weights, part: Part, figures: Figures, ending: Ending) -> tuple[Weights, float]:
        """As ``end``, of what is not counted."""

    # What it tells

    def record(self, seen: dict[str, int]) -> dict[str, float]:
        """What the history says of certificates of this kind; ``seen`` : counts of the epoch's visits."""
        return {}

    def mixing_record(self) -> dict[str, float]:
        """Likewise of how far groups went together: of each problem, by name."""
        return {}
