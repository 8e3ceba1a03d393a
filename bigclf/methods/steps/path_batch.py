"""Points of a path solved on one collection of columns, in memory, one after another.

From C_before to C the loss's gradient at the same weights is C / C_before times what it was, so that a point begins
with slopes that one before it ended with. Its own columns are those of weights that are not 0 and of slopes that the
strong rule keeps, |g_j| >= l1 (2 - C / C_before) (Tibshirani et al., JRSS B 2012); they are copied side by side and
solved. The rule may err: the read that certifies the points looks at every column.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from bigclf.compiled.jit import kernel
from bigclf.maths.losses import Loss
from bigclf.methods.method import Given
from bigclf.methods.steps.columns import NU, Columns, Found, Penalty, scale_at, value_at
from bigclf.methods.steps.proximal_newton import looked_at, solve, work_of

NEARLY = 0.8  # columns whose slope is this share of l1 are solved beside those that violate
WIDEST = 0.5  # ... and those of this share, however far apart two values of C are
APART = 2.1  # most ratio of C to that of the solution at which all columns were looked at: a look is a pass over them
MOST_ROUNDS = 20  # of adding columns that violate: then a read tells how good it is


class Batch:
    """Columns at hand, and the point that was solved on them last.

    Parameters
    ----------
    columns : their prices and margins change with the point. C : that of their prices. entries : how many these and
        those that are copied for a point may have together.
    """

    def __init__(self, columns: Columns, C: float, entries: int) -> None:
        self.columns, self._C, self._spare = columns, C, entries - columns.rows.size
        self.weights: np.ndarray | None = None  # float64 [column + 1], the bias last, that the margins are of
        self._work = work_of(columns, np.zeros(columns.starts.size))
        self._solved = self._looked = C  # that of the solution which was looked at last, and with what C it was
        self._known = False  # whether the margins are still those of that look

    def solve(
        self, round_of: Callable[..., tuple[int, int, bool]], loss: Loss, penalty: Penalty, w: np.ndarray, C: float,
        goal: float, salt: int, given: Given,
    ) -> Found:  # fmt: skip
        """Go on from ``w`` (float64 [column + 1], in place) until the duality gap over the columns that matter, as far
        as this is known, is at most ``goal`` times the objective. Near the solution of the point before it these are
        those that the strong rule keeps; else all are looked at in the end."""
        follows = self.weights is not None and np.array_equal(w, self.weights)
        before, found = self._C, None
        self.columns.prices[:] *= C / before
        self._C = C
        if not follows:
            margins_of(self.columns, penalty, w)
            self._known = False
        if not follows or C / self._solved > APART:
            found = self._look(loss, penalty, w, given)
            self._solved = before if follows else self._solved_by(penalty, w)
        near = follows and C / self._solved <= APART
        cut = max(WIDEST, min(NEARLY, 2.0 - C / self._solved))
        held, steps, cycles, climbed = np.zeros(w.size - 1, np.bool_), 0, 0, 0
        for _ in range(MOST_ROUNDS):
            if found is not None and (found.gap <= goal * found.primal or given.late()):
                break
            slopes = np.abs(self._work.losses[:-1]) * (C / self._looked)
            more = held | (w[:-1] != 0) | (slopes >= cut * penalty.l1)
            if steps and np.array_equal(more, held):
                break
            held = more
            found, whole = self._solve_some(round_of, loss, penalty, w, held, goal, salt, given)
            steps, cycles, climbed = steps + found.steps, cycles + found.cycles, climbed + found.climbed
            if near and not whole:
                break
            if not whole:
                found = self._look(loss, penalty, w, given)._replace(stuck=found.stuck)
            self._solved, cut = C, NEARLY
        assert found is not None
        self.weights = w.copy()
        return found._replace(steps=steps, cycles=cycles, climbed=climbed)

    def _look(self, loss: Loss, penalty: Penalty, w: np.ndarray, given: Given) -> Found:
        """How good ``w`` is, over all columns at hand."""
        self._looked, self._known = self._C, True
        return looked_at(loss, self.columns, penalty, w, self._work, math.inf, False, given.both, True)[0]

    def _solved_by(self, penalty: Penalty, w: np.ndarray) -> float:
        """The C at which ``w`` is a solution, as a look at it shows: 0 is one up to where the first column moves."""
        top = float(np.max(np.abs(self._work.losses[:-1]), initial=0.0))
        return self._C if w[:-1].any() or top <= penalty.l1 else self._C * penalty.l1 / top

    def _solve_some(
        self, round_of: Callable[..., tuple[int, int, bool]], loss: Loss, penalty: Penalty, w: np.ndarray,
        held: np.ndarray, goal: float, salt: int, given: Given,
    ) -> tuple[Found, bool]:  # fmt: skip
        """The problem on the columns that are ``held``; where a copy has no room, on all of them, the first step on
        those that nearly violate. Whether it was on all."""
        some = np.flatnonzero(held)
        columns, own, work, far = self.columns, np.arange(w.size), self._work, (1.0 - NEARLY) * penalty.l1
        whole = int(np.diff(columns.starts)[some].sum()) > self._spare
        known = whole and self._known
        if known:
            self._rescale(penalty, w)
        self._known = whole
        if whole:
            self._looked = self._C
        else:
            columns, own, far = picked(columns, some), np.append(some, w.size - 1), math.inf
            work = work_of(columns, w[own], work.pairs)
        part = w[own]
        found = solve(round_of, loss, columns, penalty, part, goal, salt, False, given.idle, given.late, given.both,
                      work, far, True, known)  # fmt: skip
        w[own] = part
        return found, whole

    def _rescale(self, penalty: Penalty, w: np.ndarray) -> None:
        """Make the gradient and the Hessian's diagonal of the last look those of C."""
        ratio, work, last = self._C / self._looked, self._work, w.size - (penalty.bias == 0)
        l2 = np.full(last, penalty.l2)
        if penalty.free and penalty.bias != 0:
            l2[-1] = 0.0
        work.losses[:last] *= ratio
        work.slopes[:last] = work.losses[:last] + l2 * w[:last]
        work.diagonal[:last] = (work.diagonal[:last] - l2 - NU) * ratio + l2 + NU


def picked(columns: Columns, some: np.ndarray) -> Columns:
    """The columns ``some`` (ascending) side by side; what is of the rows is shared."""
    starts = np.zeros(some.size + 1, np.int64)
    np.cumsum(np.diff(columns.starts)[some], out=starts[1:])
    rows = np.empty(starts[-1], np.uint32)
    values = np.empty(starts[-1] if columns.values.size else 0, np.float32)
    copy_columns(columns, some, starts, rows, values)
    scales = columns.scales[some] if columns.scales.size else columns.scales
    return columns._replace(starts=starts, rows=rows, values=values, largest=columns.largest[some], scales=scales)


@kernel
def copy_columns(columns, some, starts, rows, values):  # type: ignore[no-untyped-def]
    """rows and values of the columns ``some``, from ``starts`` on."""
    for k in range(some.size):
        at = columns.starts[some[k]] - starts[k]
        for p in range(starts[k], starts[k + 1]):
            rows[p] = columns.rows[at + p]
            if values.size > 0:
                values[p] = columns.values[at + p]


@kernel
def margins_of(columns, penalty, w):  # type: ignore[no-untyped-def]
    """m_i = y_i w.x_i, or for regression w.x_i"""
    scaled = columns.units.size > 0
    for i in range(columns.margins.size):
        unit = columns.units[i] if scaled else 1.0
        columns.margins[i] = w[w.size - 1] * penalty.bias * columns.signs[i] * unit
    for j in range(w.size - 1):
        if w[j] != 0:
            own = w[j] * scale_at(columns.scales, j)
            for p in range(columns.starts[j], columns.starts[j + 1]):
                i = columns.rows[p]
                columns.margins[i] += own * columns.signs[i] * value_at(columns.values, p)
