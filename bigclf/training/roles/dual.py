"""Methods that ascend the dual over rows whose dual variables they keep; certificates by sums over rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bigclf.data import files
from bigclf.errors import DataError
from bigclf.mixing import agree, half_distance, line_search, next_penalty
from bigclf.training.bench import optimism
from bigclf.training.roles.conductor import Conductor, Ending, When
from bigclf.training.status import TRUTH_OF_SET
from bigclf.training.visit import Figures, Part, objectives

# A certificate costs about what an epoch's learning does: one is made when the estimate is this near the tolerance, or
# after so many epochs without one. Streaming, it is made beside the learning, since a read may be dearer than both;
# where the estimate is surely below the tolerance, it is made alone. With a working set that is the only way, for one
# problem (``status.TRUTH_OF_SET``).
NEAR, SELDOM = 2.0, 50
NEAR_STREAMED, SELDOM_STREAMED, SURE = 5.0, 8, 0.6
OVERFLOW = "the objective overflows: scale down the labels, the values, the rows' weights or C"


class DualConductor(Conductor):
    """A problem of such a method at the driver."""

    @property
    def searches(self) -> bool:
        """Whether groups go on from a point that they agree on, and their steps are searched along."""
        return self.problem.setting.settings.get("mixing") == "line_search"

    def begin(self, states: list[Any], others: Sequence[Conductor]) -> None:
        """The sum of the dual variables is kept beside the point where groups agree on one."""
        if self.searches:
            self.status.dual_weights = np.zeros(states[self.number].weights.shape)

    @property
    def sigma(self) -> float:
        """By the line search, what the method of multipliers says."""
        return 1 / self.status.penalty if self.searches else float(len(self.plan.groups))

    def takes_up(self, states: list[Any], others: Sequence[Conductor]) -> bool:
        """The weights that go with the dual variables of others."""
        start = self.problem.start
        if not start or self.status.epochs:
            return False
        weights = np.zeros(states[self.number].weights.shape)
        for other, factor in start:
            weights += factor * states[other].weights.astype(np.float64, copy=False)
        states[self.number].weights[:] = weights
        return True

    # Certificates

    def certifies(self, when: When) -> bool:
        """Groups always make one: it says how they are to go on; alone, a problem has it made when it may end, or in
        every read where nothing estimates the gap."""
        if self.limits.tol is None or when.epoch == 1 or self.limits.proves_apart:
            return False
        every = not self.alone or self.plan.schedule != "auto"
        return every and not self.plan.resident or self.status.certify_next

    def seems_done(self) -> bool:
        """By the estimate, or since nothing has been proved for long; blocks of fixed or cached rows have none."""
        status, tol = self.status, self.limits.tol
        if tol is None or self.plan.schedule != "auto":
            return False
        if not self.limits.proves_apart:
            return status.estimate <= SURE * tol
        seldom = tol > 0 and status.since_certificate >= SELDOM_STREAMED
        return seldom or status.estimate * status.truth <= tol

    def may_be_better(self) -> bool:
        """The last weights have no certificate yet."""
        return self.limits.tol is not None

    def accept(self, state: Any, part: Part, figures: Figures, reads: int, keep: str = "copy") -> None:
        """Take the certificate of the weights at the start of the read."""
        status, tol = self.status, self.limits.tol
        assert tol is not None
        weights = part.certified if part.certified is not None else state.weights
        primal, dual = objectives(figures.primal, figures.dual, weights, part.dual)
        if not (math.isfinite(primal) and math.isfinite(dual)):
            raise DataError(OVERFLOW)
        own = self.plan.resident and isinstance(part.certified, np.ndarray)  # a copy already, and nobody else's
        if keep == "if done" and self.limited and primal < status.primal:  # memory has no room for a copy
            weights, own = files.filed_copy(np.asarray(weights), files.scratch_directory()), True
        keep = "as they are" if own else keep
        status.accept(primal, max(0.0, dual), weights, reads, tol, keep)  # D(0) = 0 is always a bound
        if primal > 0 and 0 < status.estimate < np.inf:
            status.truth = max(TRUTH_OF_SET, (primal - dual) / primal / status.estimate)
        status.optimism = optimism(primal, dual, status.estimate)
        status.since_certificate = 0

    # After an epoch

    def take(self, start: Any, part: Part, figures: Figures, ending: Ending) -> tuple[Any, float]:
        """Groups go as far along their steps as the dual gains by it."""
        status = self.status
        if status.done:
            return start, 0.0  # the dual variables stay with the certificate
        t = 1.0 if self.alone else self._combine(start, part, figures, ending.whole)
        status.step = t
        status.since_certificate += 1
        if self.limits.tol is not None:
            self._estimate(part, figures, self.limits.tol)
        return part.state, t

    def _estimate(self, part: Part, figures: Figures, tol: float) -> None:
        """How far it seems from done, and whether the next epoch makes a certificate."""
        status = self.status
        if self.alone:
            before, status.seen = status.seen, figures.tally.gap
            if self.plan.resident:  # the rounds after the pass have seen every row that moves
                before = np.inf
            status.estimate = figures.estimated_gap(part.state.weights, before)
        near, seldom = (NEAR, SELDOM) if self.plan.resident else (NEAR_STREAMED, SELDOM_STREAMED)
        status.certify_next = status.estimate < near * tol or status.since_certificate >= seldom

    def _combine(self, start: Any, part: Part, figures: Figures, whole: bool) -> float:
        """Combine what groups came to, in ``part.state``; returns how far along their step it is."""
        status, groups, t = self.status, len(self.plan.groups), 1.0
        weights = status.dual_weights
        if weights is not None and part.dual is not None:
            weights[:] = part.dual  # made anew: its rounding errors do not gather
        primal, dual = objectives(
            figures.primal, figures.dual, start.weights, start.weights if weights is None else weights
        )
        if weights is not None:
            flat = weights.reshape(-1), start.weights.reshape(-1), part.state.weights.reshape(-1)
            lag = half_distance(*flat[:2])
            t = line_search(*flat, figures.gain + 0.5 * figures.bend, figures.bend)
            agree(*flat, t, groups * status.penalty)
        if whole:  # else those are sums over a part of the rows
            status.estimate = max(0.0, primal - dual) / primal if primal > 0 else 0.0
            if weights is not None:
                status.penalty = next_penalty(status.penalty, t, primal - dual, lag, groups)
        return t

    # What it tells

    def record(self, seen: dict[str, Any]) -> dict[str, Any]:
        """Rounds, steps of conjugate gradients and rows of the working set."""
        steps = {"conjugate_steps": int(seen["steps"])} if seen["steps"] else {}
        rows = {"working_set_rows": seen["set_rows"]}
        return {"rounds": seen["rounds"]} | steps | {"estimated_gap": self.status.estimate} | rows

    def mixing_record(self) -> dict[str, Any]:
        """How far its groups went along their step."""
        if self.limits.tol is None:
            return {}
        return {"steps": self.status.step} | ({"penalties": self.status.penalty} if self.searches else {})
