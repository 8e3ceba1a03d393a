"""What groups came to, joined: the parts of a problem, one group after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigclf.maths.mixing import SUM, Mixture, Weights
from bigclf.training.problems import Problem
from bigclf.training.roles import gather_of
from bigclf.training.roles.conductor import Gathering
from bigclf.training.visit import DualSum, Figures, Part, Sums


class Blend:
    """The parts of one problem, taken in in group order.

    Parameters
    ----------
    start : the common state. n_rows : where all groups come together, how many rows they have: what the method collects
        goes to its place; None: it is passed on. into : what takes it in, if not what the method makes for it.
    """

    def __init__(
        self, problem: Problem, start: Weights, n_rows: int | None = None, into: Gathering | None = None
    ) -> None:
        rule = problem.setting.rule
        assert rule is not None
        self.start = start
        self._states = Mixture(rule, start)
        self._figures: Mixture | None = None
        self._duals: Mixture | None = None
        self._gather, self._n_rows = gather_of(problem), n_rows
        self._found: Any = into

    def add(self, part: Part, height: int = 0) -> None:
        if self._figures is None:
            self._figures = Mixture(SUM, Sums(np.zeros(part.figures.size)))
        share = Figures.of(part.figures).share
        if part.found is not None:
            self._take(part.found)
        self._states.add(part.state, share, height)
        self._figures.add(Sums(part.figures), 1.0, height)
        if part.dual is not None:
            if self._duals is None:
                self._duals = Mixture(SUM, DualSum(np.zeros(self.start.weights.shape)))
            dual = DualSum(part.dual) if isinstance(part.dual, np.ndarray) else part.dual
            self._duals.add(dual, 1.0, height)

    def part(self) -> Part:
        """All of them as one."""
        assert self._figures is not None
        dual = None if self._duals is None else self._duals.result().weights
        found, self._found = self._found, None
        return Part(self._states.result(), dual, self._figures.result().values, found=found)

    def _take(self, pieces: list[object]) -> None:
        if self._found is None:
            together = self._gather is not None and self._n_rows is not None
            self._found = self._gather(self.start, self._n_rows) if together else []  # type: ignore[misc, arg-type]
        while pieces:
            self._found.append(pieces.pop(0))
