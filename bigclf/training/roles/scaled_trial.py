"""Weights at the start of a read that are tried as they are and scaled, where a run may end before it is done."""

from __future__ import annotations

import math

import numpy as np

from bigclf.files import filed_copy
from bigclf.maths.block import Block
from bigclf.maths.mixing import Weights
from bigclf.methods.method import Online
from bigclf.training.plan import Plan
from bigclf.training.problems import Problem
from bigclf.training.visit import (
    HALF_IS_NO_BETTER,
    SCALES,
    Figures,
    Tried,
    copied_array,
    primals_of,
    regularised_square,
    square_of,
)


class ScaledTrial:
    """Of a problem in a group.

    Parameters
    ----------
    problem, plan : as of ``Learner``. aside : directory for a copy that memory has no room for; None: it has.
    """

    def __init__(self, problem: Problem, plan: Plan, aside: str | None = None) -> None:
        method = problem.setting.method
        scaled = None if isinstance(method.how, Online) else method.how.scaled
        self._add = scaled(method.loss_of(problem.setting.loss)) if scaled is not None else None
        self.alone, self.resident, self._aside = len(plan.groups) == 1, plan.resident, aside
        self.sees_all = self.alone and plan.resident
        self.losses: np.ndarray | None = None  # of the weights times each of ``SCALES``, where they are tried
        self.tried, self._beat = Tried(np.empty(0)), np.inf  # these weights; the primal objective to beat
        self._moves_on = False
        self._length: float | None = None  # of these weights, once something asks
        self.kept: np.ndarray | float | None = None  # the weights, copied since they are better than all before
        self._best = np.empty(0)  # where that copy lies

    def begin(self, state: Weights, start: np.ndarray, beat: float | None, holds: bool, still: bool) -> None:
        """A read begins; start : the weights as a certificate keeps them, or those of the state; beat : the primal
        objective that they times one of ``SCALES`` may beat, or None: they are not tried; holds : they are given back
        where the epoch is cut short; still : nothing is learned that would move them."""
        self.kept = self._length = self.losses = None
        if self._add is None:
            return
        if holds or beat is not None:
            moves = self.alone and not still and start is state.weights and not self.resident  # by the blocks
            self.tried = Tried(self._copy(start) if moves else start)
        if beat is not None:  # losses are added up in the read that begins, too
            self.losses, self._beat = np.zeros(SCALES.size), beat
            self._moves_on = self.sees_all and not still  # these very weights, once every row has been looked at

    def _copy(self, weights: np.ndarray) -> np.ndarray:
        return weights.copy() if self._aside is None else filed_copy(weights, self._aside)

    def length(self, weights: np.ndarray) -> float:
        """||w||, of the weights at the start of the read."""
        if self._length is None:
            self._length = math.sqrt(square_of(weights))
        return self._length

    def weigh(self, view: Block, params: object) -> None:
        """Add the block's losses of scaled weights; where it holds every row, keep weights that are better so."""
        if self.losses is None:
            return
        weights = self.tried.weights
        self.length(weights)
        if not (self.sees_all and self._best_whole(view, params)):
            self._add_scaled(view, params, slice(None))
        if self._moves_on and not isinstance(self.kept, np.ndarray):
            if primals_of(weights, params, self.losses)[1:].min() < self._beat:
                self.keep(weights)
            else:
                self.losses[1:] = np.inf  # what they were is not known at the end

    def keep(self, weights: np.ndarray) -> None:
        """Copy the weights, which learning is about to move, to where the best before them lay: they are better."""
        self._best = self.kept = copied_array(weights, self._best)

    def _best_whole(self, view: Block, params: object) -> bool:
        """Whether half of the weights is no better than they are: P(t w) bends up along t, so no smaller part is. By
        how much it bends at least, ||w||^2, the derivative at t = 1 mostly tells that."""
        assert self.losses is not None
        self.losses[:] = np.inf
        self.losses[1] = 0
        slope = self._add_scaled(view, params, slice(1, 2))
        square = regularised_square(self.tried.weights, params)
        if self.losses[1] < np.inf and slope + square <= HALF_IS_NO_BETTER * square:
            return True
        self.losses[2] = 0
        self._add_scaled(view, params, slice(2, 3))
        whole, half = primals_of(self.tried.weights, params, self.losses)[1:3]
        if whole <= half < np.inf:
            return True
        self.losses[:] = 0
        return False

    def _add_scaled(self, view: Block, params: object, which: slice) -> float:
        """Add the block's losses of the weights times some of ``SCALES``; their derivative at the first of these."""
        assert self.losses is not None and self._add is not None
        return self._add(view, self.tried, params, self._length, SCALES[which], self.losses[which])

    # An epoch ends

    def cut_short(self, now: np.ndarray) -> None:
        """The epoch ends before its last segment, at the weights ``now``: what it began with is given back."""
        if self.alone and self.tried.weights.size and self.tried.weights is not now:
            self.kept = self.tried.weights
        self.losses = None

    def end(self, common: np.ndarray) -> np.ndarray | float | None:
        """The weights at the start of the read, where the state has overwritten them."""
        kept, moved = self.kept, self.tried.weights is not common and not self.resident
        if self.losses is not None and moved:
            kept = self.tried.weights
        self.kept = self.losses = None
        self.tried = Tried(np.empty(0))
        return kept

    # To a file and back

    @property
    def scaled(self) -> tuple[float, ...]:
        """The losses, for the figures of an epoch."""
        return () if self.losses is None else tuple(self.losses)

    def carried(self) -> dict[str, np.ndarray]:
        """The weights, in the middle of an epoch that no certificate keeps them for."""
        return {"tried": self.tried.weights} if self.tried.weights.size and self.alone else {}

    def restore(self, held: dict[str, np.ndarray], figures: Figures, start: np.ndarray, certifying: bool) -> None:
        """Take up what ``carried`` gave; ``start`` : the weights at the start of the read, where it did not; they are
        also kept for a certificate where ``certifying``."""
        self._length = None
        self.losses = np.array(figures.scaled) if figures.scaled else None
        if "tried" in held:
            self.tried = Tried(held["tried"].copy())
        elif self.losses is not None or certifying:
            self.tried = Tried(start)
