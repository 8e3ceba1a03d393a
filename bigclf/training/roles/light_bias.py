"""The bias while rows stream by: a feature of a small value, whose part of the dual is put right after the read.

The bias b is a feature that every row has, and of it the dual objective has -1/2 r^2, r = sum_i a_i y_i; at the optimum
b = r. Coordinate steps over a block keep r where it was, for 1 is much beside how little hundreds of rows give way:
they find the b at which the rows of this block alone balance and leave it to the next block, so that rows near the
margin go to and fro. And the step of a row is half as long as it could be, for the sake of r, which the next row of the
other class puts right.

So the bias is the multiplier of an augmented Lagrangian (Hestenes, J. Optimization Theory and Applications 1969):
margins have b + rho (r - b), with a penalty rho that is about one over what the rows of a block give way, and a larger
one in the rounds over the working set after the read, whose rows give way far more; b is what they have then. Only what
steps are taken depends on it: a certificate is of the weights and the dual variables as they are, and of the true
problem.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from bigclf.maths.block import Block, Counts
from bigclf.methods.dual.dual_coordinate_descent import Params, Shared

LIGHT, STEADY = 4.0, 20.0  # the penalty is so many times one over what a block gives way, or the working set, if more
FIRM, LEAST_FIRM = 100.0, 0.1  # ... and in the rounds over the set, where it is so much at least
HEAVIER = 10.0  # times, where a pass has gained nothing


class LightBias:
    """The kernel of one learner, whose weights have b + rho (r - b) in the bias's place.

    set_rows : room of the working set. state : float64 [3], r less that; how many times heavier than usual it is; the
    gap that the last pass saw. on : else the bias is what it is.
    """

    def __init__(self, kernel: Callable[..., Counts], C: float, set_rows: int) -> None:
        self.kernel, self.C, self.set_rows = kernel, C, set_rows
        self.penalty, self.on = 1.0, False
        self.state = np.array([0.0, 1.0, np.inf])

    def __call__(
        self, view: Block, order: np.ndarray, shared: Shared, rows: object, params: Params, scores: object
    ) -> Counts:
        """The feature has the value rho^1/2, its weight is the bias over that."""
        if not self.on:
            return self.kernel(view, order, shared, rows, params, scores)
        weights, value = shared.weights, self.penalty**0.5
        before = float(weights[-1])
        weights[-1] = before / value
        counts = self.kernel(view, order, shared, rows, params._replace(bias=value), scores)
        weights[-1] *= value
        moved = float(weights[-1]) - before
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

    def _share(self, view: Block, times: float) -> float:
        """Where b moves by 1, the dual variable of a row moves by C or 1 / ||x||^2 at most."""
        with np.errstate(divide="ignore"):
            gives = float(np.minimum(self.C * view.weights, 1.0 / view.norms).sum())
        return min(1.0, times * float(self.state[1]) / gives) if gives > 0 else 1.0
