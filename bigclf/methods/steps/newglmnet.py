"""newGLMNET from sums over rows and collections of columns (Yuan, Ho, Lin, JMLR 2012; active columns by gradient
screening with a check afterwards: Tibshirani et al., JRSS B 2012).

    min_w  P(w) = l1 ||w||_1 + l2/2 ||w||^2 + sum_i C_i loss(y_i w.x_i),    l1 = rho, l2 = 1 - rho

Two kinds of reads take turns. One sums up the loss and u = sum_i t_i y_i x_i, t_i = -C_i loss'(m_i), which is minus the
loss's gradient: it tells how good w is and which columns may have to move. The other collects the entries of the most
promising columns, as many as the plan has room for; ``absorb`` solves the problem on these in memory
(``proximal_newton``; for CDN ``primal_coordinate_descent``). Nothing depends on who collected what.

The dual is  max_t  sum_i -C_i loss*(-t_i / C_i)  subject to  |u_j| <= l1,  or with l2 > 0 less
sum_j max(0, |u_j| - l1)^2 / (2 l2);  a free bias asks for sum_i t_i y_i = 0. A feasible point is s t with
s = min(1, l1 / max_j |u_j|); with a free bias the t_i of one side are first scaled down to the sum of the other. These
factors must be known before the read in which the rows' terms are summed up: they are those of the columns that were
solved. Where another column turns out to violate more, the point is scaled down further, by f, and since the sum is
concave in the scale and 0 at 0, f times it is a bound.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import axpy, dot_ahead, kernel
from bigclf.maths.block import Block, Counts
from bigclf.maths.losses import Loss, dual_terms, having, is_dual, is_smooth, is_tubeless
from bigclf.maths.mixing import totals
from bigclf.methods.common import COST
from bigclf.methods.method import Given, Param, Step, steps
from bigclf.methods.steps.active_columns import (
    COLUMN,
    COLUMN_ENTRY,
    COLUMN_ROW,
    PIECE_ENTRY,
    Gathering,
    Piece,
    piece_of,
)
from bigclf.methods.steps.columns import Penalty, conjugate, penalty_of
from bigclf.methods.steps.proximal_newton import newton_round, solve

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


GRADIENT, COLLECTION = 0.0, 1.0
WITHIN = 0.9  # of the tolerance: the gap over the columns at hand, where they may be all that matter
NEARLY = 0.8  # columns whose slope is this share of l1 are active beside those that violate
BALANCED = 1e-9  # a free bias: |sum_i t_i y_i| that is taken for rounding, in units of sum_i t_i


class Shared(NamedTuple):
    """weights : [feature + 1]; total : float64 [feature + 1], u; counts, int64 [feature + 1], entries of each column;
    places : int64 [feature + 1], of each active column among them, else -1; figures : float64 [3], sums of the losses,
    of the rows' terms of the dual, and of t; scalars : float64, see below."""

    weights: np.ndarray
    total: np.ndarray
    counts: np.ndarray
    places: np.ndarray
    figures: np.ndarray
    scalars: np.ndarray


SUMS = ("total", "counts", "figures")
# Places in ``scalars``: what the next read is for; the scale of the dual point and the factors of positive and negative
# rows; rounds so far; slope from which a column is active in the next one; whether the last solution could go no
# further; relative gap that was certified last; whether columns that may matter were left out.
KIND, SCALE, PLUS, MINUS, ROUNDS, CUT, STUCK, GAP, PARTIAL = range(9)


class Params(NamedTuple):
    """C : price of a unit of loss, times the row's weight; bias : value of the constant feature (1.0 or 0.0); free :
    whether its weight is not penalised; l1, l2 : of the penalty."""

    C: float
    bias: float
    free: float
    l1: float
    l2: float


def begin(n_features: int, dtype: DTypeLike, settings: Numbers) -> Shared:
    """A state at w = 0."""
    n = n_features + 1
    scalars = np.zeros(9)
    scalars[[SCALE, PLUS, MINUS, GAP]] = 1.0
    return Shared(np.zeros(n, dtype), np.zeros(n), np.zeros(n, np.int64), np.full(n, -1), np.zeros(3), scalars)


def bind(settings: Numbers) -> Params:
    l1 = settings.get("l1_ratio", 1.0)
    return Params(settings["C"], settings["bias"], settings["free_bias"], l1, 1.0 - l1)


@functools.cache
def sums(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel of a read for the gradient."""
    value, slope, dual_value, regression = loss.value, loss.slope, dual_terms(loss).value, loss.regression

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        weights, total, counts, last = shared.weights, shared.total, shared.counts, shared.total.size - 1
        scalars, counting = shared.scalars, shared.scalars[ROUNDS] == 0
        mistakes, loss_sum, dual_sum, slopes = 0, np.float64(0), np.float64(0), np.float64(0)
        for k in range(order.size):
            i = order[k]
            y, c = block.labels[i], params.C * block.weights[i]
            s = 1.0 if regression else y
            m = s * (dot_ahead(block, order, k, weights) + params.bias * weights[last])
            lost = value(m, y, 0.0)
            mistakes += lost > 0 if regression else m <= 0
            loss_sum += c * lost
            t = -c * slope(m, y, 0.0)
            up = t > 0 if regression else y > 0
            t *= scalars[PLUS] if up else scalars[MINUS]
            dual_sum += dual_value(scalars[SCALE] * t, c, y, 0.0)
            slopes += abs(t)
            if t != 0:
                axpy(s * t, block, i, total)
                total[last] += params.bias * s * t
            if counting:
                for p in range(block.indptr[i], block.indptr[i + 1]):
                    counts[block.indices[p]] += 1
        shared.figures[0] += loss_sum
        shared.figures[1] += dual_sum
        shared.figures[2] += slopes
        return Counts(order.size, mistakes, order.size, loss_sum, 0.0)

    return update


def collect(loss: Loss) -> Callable[[Block, np.ndarray, Shared, Params], Piece | None]:
    """Function that gives what a block has in the active columns; None in a read for the gradient."""

    def taken(block: Block, order: np.ndarray, shared: Shared, params: Params) -> Piece | None:
        if shared.scalars[KIND] == GRADIENT:
            return None
        return piece_of(block, order, shared.weights, shared.places, params.C, params.bias, loss.regression)

    return taken


def gather(loss: Loss) -> Callable[[Shared, int], Gathering]:
    """Function that makes the place where the columns come together."""
    return lambda shared, n_rows: Gathering(shared.counts[shared.places >= 0], n_rows, loss.regression)


def penalty(params: Params) -> Penalty:
    return Penalty(params.l1, params.l2, params.bias, bool(params.free))


@functools.cache
def absorb(round_of: Callable[..., tuple[int, int, bool]]) -> Callable[[Loss], Callable[[Shared, Params, Given], Step]]:
    """Loss -> function from a read to the next one; the problem on columns is solved by rounds of that form."""
    return functools.partial(_absorb, round_of)


def _absorb(round_of: Callable[..., tuple[int, int, bool]], loss: Loss) -> Callable[[Shared, Params, Given], Step]:

    def following(shared: Shared, params: Params, given: Given) -> Step:
        if shared.scalars[KIND] == GRADIENT:
            return looked(loss, shared, params, given)
        return solved(round_of, loss, shared, params, given)

    return following


def looked(loss: Loss, shared: Shared, params: Params, given: Given) -> Step:
    """The gradient is known: certify, and choose the columns to collect."""
    weights = shared.weights.astype(np.float64)
    primal = penalty_of(weights, penalty(params)) + float(shared.figures[0])
    dual, most = bound(loss, shared, weights, params), worst(shared, weights, params)
    scalars = shared.scalars
    gap = (primal - dual) / primal if primal > 0 else 0.0
    stuck = scalars[STUCK] > 0 and gap >= 0.5 * scalars[GAP] and waiting(shared, params) <= most
    step = Step(primal, dual, shared.weights.copy(), "stalled" if stuck else "", violation=most)
    scalars[GAP] = gap
    choose(shared, weights, params, given.entries)
    scalars[KIND] = COLLECTION
    return step


def bound(loss: Loss, shared: Shared, weights: np.ndarray, params: Params) -> float:
    """The dual objective of the feasible point; 0, that of t = 0, is always a bound. What rounding leaves of the sum
    that a free bias asks to be 0 costs as much as a bias of the size of its own, or of a margin, could make of it."""
    rows, slopes = float(shared.figures[1]), float(shared.figures[2])
    u, within = shared.total, shared.scalars[SCALE]
    if params.free:
        if abs(u[-1]) > BALANCED * slopes:
            return 0.0
        size = float(shared.figures[0]) / slopes if loss.regression and slopes > 0 else 1.0  # of what a row is off by
        rows -= float(abs(u[-1]) * max(size, abs(weights[-1])))
        u = u[:-1]
    if params.l2 > 0:
        return float(max(0.0, rows - conjugate(u, penalty(params))))
    top = float(np.max(np.abs(u), initial=0.0))
    return float(max(0.0, rows * min(1.0, params.l1 / (top * within)) if top > 0 else rows))


def worst(shared: Shared, weights: np.ndarray, params: Params) -> float:
    """The largest violation of the optimality conditions: the distance of 0 from the subdifferential of P."""
    g = params.l2 * weights - shared.total
    each = np.where(weights == 0, np.maximum(0.0, np.abs(g) - params.l1), np.abs(g + params.l1 * np.sign(weights)))
    if params.free:
        each[-1] = abs(shared.total[-1])
    return float(np.max(each, initial=0.0))


def waiting(shared: Shared, params: Params) -> float:
    """The largest violation among columns at 0 that were not at hand."""
    outside = (shared.places[:-1] < 0) & (shared.weights[:-1] == 0)
    return float(np.max(np.abs(shared.total[:-1])[outside], initial=0.0)) - params.l1


def choose(shared: Shared, weights: np.ndarray, params: Params, entries: int) -> None:
    """Give the columns to collect their places: those of weights that are not 0 and of steep slopes; where ``entries``
    have no room for all of them, those first that violate the optimality conditions most."""
    slopes, scalars = np.abs(shared.total[:-1]), shared.scalars
    support, counts = weights[:-1] != 0, shared.counts[:-1]
    wanted = (support | (slopes >= scalars[CUT] * params.l1)) & (counts > 0)
    scalars[PARTIAL] = 0.0
    if int(counts[wanted].sum()) > entries:
        found = np.flatnonzero(wanted)
        g = params.l2 * weights[:-1] - shared.total[:-1]
        far = np.where(support, np.abs(g + params.l1 * np.sign(weights[:-1])), slopes - params.l1)[found]
        found = found[np.argsort(-far, kind="stable")]
        kept = found[np.cumsum(counts[found]) <= entries]
        wanted[:] = False
        wanted[kept] = True
        scalars[PARTIAL] = 1.0
    shared.places[:] = -1
    chosen = np.flatnonzero(wanted)
    shared.places[chosen] = np.arange(chosen.size)


def solved(
    round_of: Callable[..., tuple[int, int, bool]], loss: Loss, shared: Shared, params: Params, given: Given
) -> Step:
    """The columns are at hand: solve the problem on them."""
    chosen, scalars = np.flatnonzero(shared.places >= 0), shared.scalars
    columns = given.found.columns()
    w = np.append(shared.weights[chosen], shared.weights[-1]).astype(np.float64)
    partial = bool(scalars[PARTIAL])
    found = solve(round_of, loss, columns, penalty(params), w, WITHIN * given.tol, int(scalars[ROUNDS]), partial,
                  given.idle, given.late, given.both)  # fmt: skip
    shared.weights[chosen], shared.weights[-1] = w[:-1], w[-1]
    scalars[[SCALE, PLUS, MINUS, STUCK]] = found.scale, *found.sides, float(found.stuck)
    scalars[ROUNDS] += 1
    scalars[CUT] = NEARLY
    clear(shared)
    scalars[KIND] = GRADIENT
    entries = float(columns.rows.size)
    return Step(facts={"columns": float(chosen.size), "entries": entries, "newton_steps": float(found.steps),
                       "cycles": float(found.cycles), "face_steps": float(found.climbed)})  # fmt: skip


def clear(shared: Shared) -> None:
    """The next read for the gradient begins at 0; columns are counted once."""
    shared.total[:] = 0.0
    shared.figures[:] = 0.0


def place(shared: Shared, weights: np.ndarray, params: Params) -> None:
    """Begin at such weights."""
    shared.weights[:] = weights


def follow(
    shared: Shared, weights: np.ndarray, params: Params, before: Params, last: Shared | None, entries: int
) -> None:
    """Begin with the solution of a problem with a smaller C: the strong rule keeps columns with |u_j| >= l1 (2 - C /
    C_before), u at the new C, which is C / C_before times that of the read that certified the solution. So the first
    read collects columns, as many as ``entries`` have room for."""
    place(shared, weights, params)
    shared.scalars[CUT] = max(0.0, 2.0 - params.C / before.C)
    if last is None or last.scalars[KIND] == GRADIENT:
        return
    shared.total[:] = last.total * (params.C / before.C)
    shared.counts[:] = last.counts
    choose(shared, weights.astype(np.float64), params, entries)
    shared.scalars[KIND] = COLLECTION


# Methods

L1_RATIO = Param(
    "l1_ratio", 0.5, 0.0, 1.0, "share of ||w||_1 in the penalty, the rest ||w||^2 / 2", penalties=("elastic_net",),
    open_low=True,
)  # fmt: skip
# What methods share that take their steps from sums over all rows and solve the problem on columns that they collect
BY_COLUMNS: dict[str, Any] = dict(
    params=(COST, L1_RATIO),
    losses=having(is_dual, is_smooth, is_tubeless, first="logistic"),
    penalties=("l1", "elastic_net"),
    bias=("feature", "free", "none"),
    shared=begin,
    bind=bind,
    update=lambda loss, penalty: sums(loss),
    collect=collect,
    gather=gather,
    entry_bytes=COLUMN_ENTRY,
    row_bytes=COLUMN_ROW,
    column_bytes=COLUMN,
    piece_bytes=PIECE_ENTRY,
    follow=follow,
    place=place,
    mixings={"sum": totals(*SUMS)},
    mixing="sums over all rows, and columns of all: the answer does not depend on the groups",
    weight_meaning="multiplies C",
    epochs=10_000,
    tol=1e-3,
)

METHODS = (
    steps(
        name="newglmnet",
        title="newGLMNET: Newton's method with coordinate descent on active columns, exact zeros, certified",
        paper="Yuan, Ho, Lin, JMLR 2012; strong rules: Tibshirani et al., JRSS B 2012",
        formula="min_d g.d + d'H d / 2 + ||w + d||_1, one coordinate after another;  w <- w + t d",
        absorb=absorb(newton_round),
        **BY_COLUMNS,
    ),
)
