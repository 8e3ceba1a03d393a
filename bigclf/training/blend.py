"""What groups came to, joined: the parts of a problem, one group after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bigclf.maths.deltas import Cut, Delta, Picked, filled
from bigclf.maths.mixing import SUM, Mixture, Node, Weights
from bigclf.training.problems import Problem
from bigclf.training.roles import gather_of
from bigclf.training.roles.conductor import Gathering
from bigclf.training.visit import DualSum, Figures, Outcome, Part, Sums


class Total(NamedTuple):
    """The total of a node's states: its arrays, the shares and the number of copies in it."""

    arrays: tuple[np.ndarray, ...]
    shares: float
    copies: int


class Joint:
    """The parts of one problem that a node of the tree joins, in a part of the feature axis.

    Parameters
    ----------
    start : the whole common state. cut : the part of the features.
    """

    def __init__(self, problem: Problem, start: Weights, cut: Cut) -> None:
        rule = problem.setting.rule
        assert rule is not None
        self.cut, self.length = cut, start.weights.shape[0]
        self._states = Node(rule, cut.state(start, self.length))
        self._figures: Node | None = None
        self._duals: Node | None = None

    def add(self, part: Part) -> None:
        """Take in the next part, which is cut."""
        if self._figures is None:
            self._figures = Node(SUM, Sums(np.zeros(part.figures.size)))
        self._states.add(part.state, Figures.of(part.figures).share)
        self._figures.add(Sums(part.figures), 1.0)
        if part.dual is not None:
            if self._duals is None:
                self._duals = Node(SUM, DualSum(np.zeros(self._states.start.weights.shape)))
            self._duals.add(DualSum(part.dual) if isinstance(part.dual, np.ndarray) else part.dual, 1.0)

    def part(self) -> Part:
        """All of them as one."""
        assert self._figures is not None
        dual = None if self._duals is None else self._duals.join().weights
        return Part(self._states.join(), dual, self._figures.join().values)

    @property
    def copies(self) -> int:
        """How many parts have been taken in."""
        return self._states.count

    def totals(self) -> list[Total | None]:
        """What has been taken in so far, for whoever goes on with it; views."""
        nodes = self._states, self._figures, self._duals
        return [None if node is None else Total(tuple(node.total), node.shares, node.count) for node in nodes]

    def go_on(self, totals: list[Total | None]) -> None:
        """Go on from what ``totals`` gave elsewhere."""
        states, figures, duals = totals
        assert states is not None and figures is not None
        self._states.go_on(*states)
        self._figures = Node(SUM, Sums(np.zeros(figures.arrays[0].size)))
        self._figures.go_on(*figures)
        if duals is not None:
            self._duals = Node(SUM, DualSum(np.zeros(self._states.start.weights.shape)))
            self._duals.go_on(*duals)


def cut_part(part: Part, cut: Cut, length: int) -> Part:
    """What a part says of some features, in views; ``length`` : of the feature axis."""
    state, dual = part.state, part.dual
    state = cut.delta(state, length) if isinstance(state, Delta) else cut.state(state, length)
    if isinstance(dual, Delta):
        dual = cut.delta(dual, length)
    elif dual is not None:
        dual = cut.state(DualSum(dual) if isinstance(dual, np.ndarray) else dual, length)
    return part._replace(state=state, dual=dual)


class Blend:
    """The parts of one problem, taken in in group order.

    Parameters
    ----------
    start : the common state. n_rows : where all groups come together, how many rows they have: what the method collects
        goes to its place; None: it is passed on. into : what takes it in, if not what the method makes for it.
    lasting : the parts' states stay as they are until all are there.
    """

    def __init__(
        self, problem: Problem, start: Weights, n_rows: int | None = None, into: Gathering | None = None,
        lasting: bool = False,
    ) -> None:  # fmt: skip
        rule = problem.setting.rule
        assert rule is not None
        self.start = start
        self._states = Mixture(rule, start, lasting)
        self._figures: Mixture | None = None
        self._duals: Mixture | None = None
        self._gather, self._n_rows = gather_of(problem), n_rows
        self._found: Any = into
        self._joined: Part | None = None

    def add(self, part: Part, height: int = 0) -> None:
        if part.found is not None:
            self._take(part.found)
        if part.state is None:  # it is joined elsewhere
            return
        if self._figures is None:
            self._figures = Mixture(SUM, Sums(np.zeros(part.figures.size)))
        share = Figures.of(part.figures).share
        state = filled(self.start, part.state) if isinstance(part.state, Picked) else part.state  # type: ignore[type-var]
        self._states.add(state, share, height)
        self._figures.add(Sums(part.figures), 1.0, height)
        if part.dual is not None:
            if self._duals is None:
                self._duals = Mixture(SUM, DualSum(np.zeros(self.start.weights.shape)))
            dual = DualSum(part.dual) if isinstance(part.dual, np.ndarray) else part.dual
            self._duals.add(dual, 1.0, height)

    def take_joined(self, part: Part) -> None:
        """What all of them were joined to elsewhere."""
        self._joined = part

    def part(self) -> Part:
        """All of them as one."""
        found, self._found = self._found, None
        if self._joined is not None:
            return self._joined._replace(found=found)
        assert self._figures is not None
        dual = None if self._duals is None else self._duals.result().weights
        return Part(self._states.result(), dual, self._figures.result().values, found=found)

    def _take(self, pieces: list[object]) -> None:
        if self._found is None:
            together = self._gather is not None and self._n_rows is not None
            self._found = self._gather(self.start, self._n_rows) if together else []  # type: ignore[misc, arg-type]
        while pieces:
            self._found.append(pieces.pop(0))


def take_in(blends: Sequence[Blend], outcome: Outcome) -> None:
    """Take in what came of a visit, of each problem; and what all groups came to, where it says that."""
    for blend, part in zip(blends, outcome.parts, strict=False):
        blend.add(part, outcome.last - outcome.first > 1)
    for blend, part in zip(blends, outcome.joined, strict=False):
        blend.take_joined(part)
