"""Methods that take a step after each read: from sums over all rows, or from rows that were collected."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bigclf.errors import DataError
from bigclf.methods.method import AGAIN, LEARN, Given, Step
from bigclf.training.roles.conductor import Conductor, Ending
from bigclf.training.roles.dual import OVERFLOW
from bigclf.training.team import beside
from bigclf.training.visit import Figures, Part


class StepsConductor(Conductor):
    """A problem of such a method at the driver."""

    def takes_up(self, states: list[Any], others: Sequence[Conductor]) -> bool:
        """A problem of a path begins with the answer of the one before it; nothing of the rows has a part in it."""
        start = self.problem.start
        if start and not self.status.epochs:
            self._follow(states, others[start[0][0]])
        return False

    def _follow(self, states: list[Any], other: Conductor) -> None:
        before = other.problem.setting
        held = other.status.weights
        weights = before.weights(states[other.number]) if held is None else held
        state, setting = states[self.number], self.problem.setting
        if self.method.follow is not None:
            self.method.follow(state, weights, setting.params(), before.params())
        elif self.method.place is not None:
            self.method.place(state, weights, setting.params())

    def passes(self, state: Any) -> bool:
        """Products with the Hessian may be of rows that are kept."""
        return not (self.plan.every > 1 and self.method.reading(state) == AGAIN)

    def may_be_better(self) -> bool:
        """The last weights were learned from rows: sums tell how good theirs are."""
        return self.limits.tol is not None and self.status.learned and self.method.scaled is not None

    def accept(self, state: Any, part: Part, figures: Figures, reads: int, keep: str = "copy") -> None:
        """Certificates come with the steps."""
        raise TypeError(f"{self.method.name} certifies by its steps")

    def take(self, start: Any, part: Part, figures: Figures, ending: Ending) -> tuple[Any, float]:
        """The method makes of the sums over all rows what the next read begins with."""
        self.facts = {}
        self.status.learned = self.method.reading(part.state) == LEARN
        cut_off = not ending.whole and self.method.forget is not None
        if cut_off and self.method.forget(start):  # type: ignore[misc]
            return start, 1.0
        step = self._step(part, ending)
        self._judge(step, ending.reads)
        self.facts = step.facts
        return part.state, 1.0

    def _step(self, part: Part, ending: Ending) -> Step:
        setting, tol = self.problem.setting, self.limits.tol
        assert self.method.absorb is not None
        absorb, params = self.method.absorb(self.method.loss_of(setting.loss)), setting.params()
        if self.method.collect is None:
            return absorb(part.state, params)
        assert tol is not None and self.method.gather is not None
        found = self.method.gather(part.state, 0) if part.found is None else part.found
        with beside(self.plan.learners) as both:
            given = Given(found, tol, self.plan.collected, ending.idle, ending.late, both)
            step = absorb(part.state, params, given)
        self.unproved = step.primal is None
        return step

    def _judge(self, step: Step, reads: int) -> None:
        """What the step says of its weights, and of how it goes on."""
        status = self.status
        if step.primal is not None and step.dual is not None and step.weights is not None:
            if not (math.isfinite(step.primal) and math.isfinite(step.dual)):
                raise DataError(OVERFLOW)
            assert self.limits.tol is not None
            best = status.primal
            status.accept(step.primal, step.dual, step.weights, reads, self.limits.tol, "as they are")
            if status.primal < best:
                status.violation = step.violation
        status.done = bool(status.done or step.over == "done")
        status.stalled = status.over = bool(step.over == "stalled" and not status.done)
