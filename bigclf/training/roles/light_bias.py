"""The bias as a feature of a small value, whose part of the dual is put right from time to time.

The bias b is a feature that every row has, and of it the dual objective has -1/2 r^2, r = sum_i a_i y_i; at the optimum
b = r. Coordinate steps over a block keep r where it was, for 1 is much beside how little hundreds of rows give way:
they find the b at which the rows of this block alone balance and leave it to the next block, so that rows near the
margin go to and fro. And a row of length 1 takes half the step that it could, for the sake of r, which the next row of
the other class puts right.

So the bias is the multiplier of an augmented Lagrangian (Hestenes, J. Optimization Theory and Applications 1969):
margins have b + rho (r - b). While rows stream by, the penalty rho is about one over what the rows of a block give way,
and larger in the rounds over the working set after the read, whose rows give way far more; b is what they have then.
With every row at hand it is a small part of ||x||^2, and b is put right before each go over rows. Only what steps are
taken depends on it: a certificate is of the weights and the dual variables as they are, and of the true problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from bigclf.maths.block import Block, Counts
from bigclf.maths.losses import dual_terms, plain
from bigclf.methods.dual.dual_coordinate_descent import Params, Rows, Shared
from bigclf.training.plan import Plan
from bigclf.training.problems import Problem

LIGHT, STEADY = 4.0, 20.0  # the penalty is so many times one over what a block gives way, or the working set, if more
FIRM, LEAST_FIRM = 100.0, 0.1  # ... and in the rounds over the set, where it is so much at least
HEAVIER = 10.0  # times, where a pass has gained nothing
# With every row at hand the penalty is so much of the harmonic mean of ||x||^2 + D_ii; where it is more than the second
# number, steps are long enough as they are.
OF_SQUARE, HEAVY = 0.05, 0.5
LEAST_OF_ENTROPY = 4.0  # the least curvature of -C H(a / C), times C
ROUNDED = 1e-6  # of sum |a_i|: what a bias that is not light may be off r by rounding
PIECE = 1 << 16  # rows that are added up at a time: memory for no more


class LightBias:
    """What is done around each go of a learner over rows, whose weights have b + rho (r - b) in the bias's place.

    set_rows : room of the working set. state : float64 [3], r less that; how many times heavier than usual it is; the
    gap that the last pass saw. on : else the bias is what it is.
    """

    def __init__(self, C: float, set_rows: int) -> None:
        self.C, self.set_rows = C, set_rows
        self.penalty, self.on = 1.0, False
        self.state = np.array([0.0, 1.0, np.inf])
        self._before = 0.0  # the bias

    def enter(self, shared: Shared, rows: Rows, params: Params) -> Params:
        """Rows are gone over now, with these: the feature has the value rho^1/2, its weight is the bias over that."""
        if not self.on:
            return params
        weights, value = shared.weights, self.penalty**0.5
        self._before = float(weights[-1])
        weights[-1] = self._before / value
        return params._replace(bias=value)

    def leave(self, shared: Shared, counts: Counts) -> Counts:
        """They have been; what is to be counted."""
        if self.on:
            shared.weights[-1] *= self.penalty**0.5
            moved = float(shared.weights[-1]) - self._before
            self.state[0] += moved / self.penalty - moved
        return counts

    def restore(self, held: Mapping[str, np.ndarray]) -> bool:
        """Go on from what was carried; False where there is nothing: dual variables that come from elsewhere come with
        the bias that goes with them, and nothing is to be light then."""
        if "light" not in held:
            return False
        self.state = held["light"].copy()
        return True

    def weigh(self, view: Block) -> None:
        """Choose the penalty for a block."""
        self.penalty = self._share(view, max(LIGHT, STEADY * view.n_rows / self.set_rows))

    def firm(self, view: Block, weights: np.ndarray, gap: float) -> None:
        """A pass is over, and saw such a gap: rounds over the rows ``view`` come now. Where passes do not gain the
        penalty grows, up to that of the true problem, where they do."""
        if not gap < self.state[2]:
            self.state[1] *= HEAVIER
        self.state[2] = gap
        self.penalty = max(self._share(view, FIRM), min(1.0, LEAST_FIRM * float(self.state[1])))
        weights[-1] += self.penalty * self.state[0]
        self.state[0] *= 1.0 - self.penalty

    def lag(self, view: Block, rows: Rows, weights: np.ndarray) -> float:
        """What the gaps of all rows, at margins that have b, leave out of the gap of the weights."""
        return 0.0

    def settle(self, weights: np.ndarray) -> None:
        """The bias is to be what it is, r: where rows stream by, it is firm enough."""

    def _share(self, view: Block, times: float) -> float:
        """Where b moves by 1, the dual variable of a row moves by C or 1 / ||x||^2 at most."""
        with np.errstate(divide="ignore"):
            gives = float(np.minimum(self.C * view.weights, 1.0 / view.norms).sum())
        return min(1.0, times * float(self.state[1]) / gives) if gives > 0 else 1.0


class ResidentBias(LightBias):
    """The same with every row at hand, where r is added up anew in each visit: nothing of it is carried along.

    diagonal : D_ii C_i, what the loss adds to the curvature of a coordinate, at least.
    """

    def __init__(self, C: float, diagonal: float) -> None:
        super().__init__(C, 0)
        self.diagonal = diagonal
        self._all: Block | None = None  # all rows, until the first of them is learned from
        self._known = self._chosen = False  # whether r has been added up for this visit, and whether there is a penalty

    def enter(self, shared: Shared, rows: Rows, params: Params) -> Params:
        """First b <- b + rho (r - b)."""
        if self._all is not None:
            if not self._known:
                self.lag(self._all, rows, shared.weights)
            self.on = self.on and self.penalty <= HEAVY
            if not self.on:
                self.settle(shared.weights)
            self._all, self._known = None, False
        if self.on:
            shared.weights[-1] += self.penalty * self.state[0]
            self.state[0] *= 1.0 - self.penalty
        return super().enter(shared, rows, params)

    def leave(self, shared: Shared, counts: Counts) -> Counts:
        """The gap that is counted is that of the weights, whose bias is b."""
        counts = super().leave(shared, counts)
        return counts._replace(gap=counts.gap + self._lag)

    @property
    def _lag(self) -> float:
        off = float(self.state[0])
        return 0.5 * off * off  # a power that overflows would raise

    def restore(self, held: Mapping[str, np.ndarray]) -> bool:
        """The bias and the dual variables say everything."""
        return True

    def weigh(self, view: Block) -> None:
        """These are all rows; what is to be known of them is so at the first go."""
        self._all = view

    def firm(self, view: Block, weights: np.ndarray, gap: float) -> None:
        """The penalty is the same for every go."""

    def lag(self, view: Block, rows: Rows, weights: np.ndarray) -> float:
        """Half of (r - b)^2; with ``view`` of all rows."""
        if not self._chosen:
            self._choose(view)
        r = size = 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for piece in _pieces(view):
                mine = rows.alpha[view.ids[piece]]
                size += float(np.abs(mine).sum())
                mine *= view.labels[piece]
                r += float(mine.sum())
        off, self._known = r - float(weights[-1]), True
        plain = not self.on or self.penalty > HEAVY
        self.state[0] = 0.0 if plain and abs(off) <= ROUNDED * size else off
        return self._lag

    def settle(self, weights: np.ndarray) -> None:
        """The bias is r from here on."""
        weights[-1] += self.state[0]
        self.state[0] = 0.0

    def _choose(self, view: Block) -> None:
        """The penalty, by the harmonic mean of ||x||^2 + D_ii over the rows that take part and have any entry, or by
        what they give way together."""
        rows, inverse, gives = 0, 0.0, 0.0
        with np.errstate(all="ignore"):  # of numbers near the largest and the smallest ones
            for piece in _pieces(view):
                usable = (view.weights[piece] > 0) & (view.norms[piece] > 0)
                most = self.C * view.weights[piece][usable]
                each = 1.0 / (view.norms[piece][usable] + self.diagonal / most)
                rows, inverse = rows + each.size, inverse + float(each.sum())
                gives += float(np.minimum(most, each).sum())
        if gives > 0:
            self.penalty = min(1.0, max(OF_SQUARE * rows / inverse, FIRM / gives))
        self._chosen = True


def _pieces(view: Block) -> Iterator[slice]:
    return (slice(first, first + PIECE) for first in range(0, view.n_rows, PIECE))


def light_bias(problem: Problem, plan: Plan, number: int) -> LightBias | None:
    """That of a problem of this number, where the plan has the bias light."""
    if not plan.light_bias:
        return None
    C = float(problem.setting.settings["C"])
    if not plan.resident:
        return LightBias(C, plan.arena(number, grown=True)[0])
    loss = problem.setting.method.loss_of(problem.setting.loss)
    assert loss is not None
    terms = dual_terms(loss)
    return ResidentBias(C, float(plain(terms.diagonal)(1.0)) if terms.parabolic else LEAST_OF_ENTROPY)
