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

Points of a path with the squared loss share reads: see ``choose_together``. Their bound is the lesser of this one and
scikit-learn's (``scaled_dual``), since a column that nobody collected may violate much and cost little.

With ``standardize`` w and x are those of the columns divided by their standard deviations s_j (``standard_columns``):
so are P and D, the gap and the violation. Of the weights that come out, those of the columns as they are, the penalty
is l1 sum_j s_j |w_j| + l2/2 sum_j s_j^2 w_j^2. The bias has no scale. No column is centred: a free bias does that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import axpy, dot_ahead, inner, kernel
from bigclf.maths.block import Block, Counts
from bigclf.maths.losses import SQUARED, Loss, dual_terms, having, is_dual, is_smooth, is_tubeless
from bigclf.maths.mixing import totals
from bigclf.methods.common import COST
from bigclf.methods.method import Batches, Given, Param, PathPoint, Step, steps
from bigclf.methods.steps.active_columns import (
    COLUMN,
    COLUMN_ENTRY,
    COLUMN_ROW,
    PIECE_ENTRY,
    Gathering,
    Piece,
    piece_of,
    rests,
)
from bigclf.methods.steps.columns import Found, Penalty, conjugate, loose, penalty_of, scaled_dual
from bigclf.methods.steps.path_batch import Batch
from bigclf.methods.steps.proximal_newton import newton_round, solve
from bigclf.methods.steps.standard_columns import (
    MOMENTS,
    add_moments,
    are_wanted,
    as_scaled,
    as_they_are,
    find_factors,
    moments,
    scaled,
)

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


GRADIENT, COLLECTION = 0.0, 1.0
TOGETHER, PROOF = 2.0, 3.0  # a collection for several points of a path, and the gradient at what they came to
ALONE, FOLLOWS = 4.0, 5.0  # a collection for one point of such a path, and the gradient where that point begins
WITHIN = 0.9  # of the tolerance: the gap over the columns at hand, where they may be all that matter
NEARLY = 0.8  # columns whose slope is this share of l1 are active beside those that violate
NARROW = 0.5  # ... in the first collection these alone, where they have at most this share of all entries
WORTH = 0.4  # ... and, of a point that has not begun, those of this share where there is room
OF_ROOM = 0.9  # ... in this part of it: the rest is for copies of the columns of one point
BALANCED = 1e-9  # a free bias: |sum_i t_i y_i| that is taken for rounding, in units of sum_i t_i


class Shared(NamedTuple):
    """weights : [feature + 1]; total : float64 [feature + 1], u; counts, int64 [feature + 1], entries of each column;
    places : int64 [feature + 1], of each active column among them, else -1; figures : float64 [3], sums of the losses,
    of the rows' terms of the dual, and of t; scalars : float64, see below; the others as in
    ``standard_columns.Moments``. The weights are those of the columns as they are; between reads ``total`` is of the
    columns with their scales."""

    weights: np.ndarray
    total: np.ndarray
    counts: np.ndarray
    places: np.ndarray
    figures: np.ndarray
    scalars: np.ndarray
    factors: np.ndarray
    present: np.ndarray
    deviations: np.ndarray
    squares: np.ndarray


SUMS = ("total", "counts", "figures", *MOMENTS)
# Places in ``scalars``: what the next read is for; the scale of the dual point and the factors of positive and negative
# rows; rounds so far; slope from which a column is active in the next one; whether the last solution could go no
# further, or was good enough as it began, or (``REACHED``) is so now; relative gap that was certified last; whether
# columns that may matter were left out.
KIND, SCALE, PLUS, MINUS, ROUNDS, CUT, STUCK, GAP, PARTIAL = range(9)
REACHED = -1.0


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
    return Shared(np.zeros(n, dtype), np.zeros(n), np.zeros(n, np.int64), np.full(n, -1), np.zeros(3), scalars,
                  *moments(n_features, bool(settings.get("standardize"))))  # fmt: skip


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
        scalars, still, measuring = shared.scalars, rests(weights, block), are_wanted(shared)
        counting = scalars[ROUNDS] == 0 and (measuring or shared.factors.size == 0)
        mistakes, loss_sum, dual_sum, slopes = 0, np.float64(0), np.float64(0), np.float64(0)
        for k in range(order.size):
            i = order[k]
            y, c = block.labels[i], params.C * block.weights[i]
            s = 1.0 if regression else y
            m = 0.0 if still else s * (dot_ahead(block, order, k, weights) + params.bias * weights[last])
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
            if measuring:
                add_moments(block, i, shared)
        shared.figures[0] += loss_sum
        shared.figures[1] += dual_sum
        shared.figures[2] += slopes
        return Counts(order.size, mistakes, order.size, loss_sum, 0.0)

    return update


def collect(loss: Loss) -> Callable[[Block, np.ndarray, Shared, Params], Piece | None]:
    """Function that gives what a block has in the active columns; None in a read for the gradient."""

    def taken(block: Block, order: np.ndarray, shared: Shared, params: Params) -> Piece | None:
        if sums_up(shared):
            return None
        return piece_of(block, order, shared.weights, shared.places, params.C, params.bias, loss.regression)

    return taken


def gather(loss: Loss) -> Callable[[Shared, int], Gathering]:
    """Function that makes the place where the columns come together."""
    return lambda shared, n_rows: Gathering(shared.counts[shared.places >= 0], n_rows, loss.regression)


def sums_up(shared: Shared) -> bool:
    """Whether the read is for the gradient."""
    return bool(shared.scalars[KIND] in (GRADIENT, PROOF, FOLLOWS))


def penalty(params: Params) -> Penalty:
    return Penalty(params.l1, params.l2, params.bias, bool(params.free))


@functools.cache
def absorb(round_of: Callable[..., tuple[int, int, bool]]) -> Callable[[Loss], Callable[[Shared, Params, Given], Step]]:
    """Loss -> function from a read to the next one; the problem on columns is solved by rounds of that form."""
    return functools.partial(_absorb, round_of)


def _absorb(round_of: Callable[..., tuple[int, int, bool]], loss: Loss) -> Callable[[Shared, Params, Given], Step]:

    def following(shared: Shared, params: Params, given: Given) -> Step:
        if sums_up(shared):
            return looked(loss, shared, params, given)
        return solved(round_of, loss, shared, params, given)

    return following


def looked(loss: Loss, shared: Shared, params: Params, given: Given) -> Step:
    """The gradient is known: certify, and choose the columns to collect."""
    if not find_factors(shared):
        clear(shared)
        return Step()
    weights = as_scaled(shared.weights, shared.factors)
    if shared.factors.size:
        np.multiply(shared.total, shared.factors, out=shared.total)  # u_j / s_j
    primal = penalty_of(weights, penalty(params)) + float(shared.figures[0])
    dual, most = bound(loss, shared, weights, params), worst(shared, weights, params)
    scalars = shared.scalars
    if of_path(shared):
        dual = min(dual, scaled_bound(shared, weights, params))
    gap = (primal - dual) / primal if primal > 0 else 0.0
    held = scalars[STUCK] > 0 and waiting(shared, params) <= most
    stuck = gap >= 0.5 * scalars[GAP] and (held or is_rounded(shared, params))
    step = Step(primal, dual, shared.weights.copy(), "stalled" if stuck else "", violation=most)
    scalars[GAP] = gap
    if given.resident and loss.regression and begins_narrow(shared, params):
        scalars[CUT] = NEARLY
    choose(shared, weights, params, given.entries)
    scalars[KIND] = ALONE if of_path(shared) else COLLECTION
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


def scaled_bound(shared: Shared, weights: np.ndarray, params: Params) -> float:
    """With l2 > 0, the dual objective by ``scaled_dual``: below that of ``bound`` as long as a column violates, so that
    an answer within the tolerance is so by scikit-learn's gap, too."""
    held = loose(weights, penalty(params))
    square = float(inner(weights[held], weights[held]))
    top = float(np.max(np.abs(shared.total - params.l2 * weights)[held], initial=0.0))
    rows, losses = float(shared.figures[1]), float(shared.figures[0])
    return scaled_dual(rows, losses, top, square, penalty(params)) if params.l2 > 0 else np.inf


def worst(shared: Shared, weights: np.ndarray, params: Params) -> float:
    """The largest violation of the optimality conditions: the distance of 0 from the subdifferential of P."""
    g = params.l2 * weights - shared.total
    held = np.flatnonzero(weights)
    each = np.abs(g)
    each -= params.l1
    np.maximum(each, 0.0, out=each)
    each[held] = np.abs(g[held] + params.l1 * np.sign(weights[held]))
    if params.free:
        each[-1] = abs(shared.total[-1])
    return float(np.max(each, initial=0.0))


def waiting(shared: Shared, params: Params) -> float:
    """The largest violation among columns at 0 that were not at hand."""
    outside = (shared.places[:-1] < 0) & (shared.weights[:-1] == 0)
    return float(np.max(np.abs(shared.total[:-1])[outside], initial=0.0)) - params.l1


def is_rounded(shared: Shared, params: Params) -> bool:
    """Whether only roundings can have made the gap of a read: the columns at hand were solved well enough, twice at
    least, and no other violates. So float32 weights of columns far from 0 leave one that nothing lessens."""
    scalars = shared.scalars
    return bool(scalars[STUCK] == REACHED and scalars[ROUNDS] > 1 and waiting(shared, params) <= 0)


def begins_narrow(shared: Shared, params: Params) -> bool:
    """Whether the first collection is to be of steep slopes alone: of rows that stay in memory a further read costs
    less than to solve the problem on all columns, unless few of these are left out."""
    if shared.scalars[ROUNDS] > 0 or of_path(shared):
        return False
    steep = np.abs(shared.total) >= NEARLY * params.l1
    return bool(int(np.sum(shared.counts, where=steep)) <= NARROW * int(np.sum(shared.counts)))


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
    if joined(shared):
        return solved_together(round_of, loss, shared, params, given)
    chosen, scalars = np.flatnonzero(shared.places >= 0), shared.scalars
    columns = scaled(given.found.columns(), shared.factors, chosen)
    w = held_at(shared, chosen)
    partial = bool(scalars[PARTIAL])
    found = solve(round_of, loss, columns, penalty(params), w, WITHIN * given.tol, int(scalars[ROUNDS]), partial,
                  given.idle, given.late, given.both, scaled=of_path(shared))  # fmt: skip
    return taken(shared, found, chosen, w, columns.rows.size, given.tol)


def solved_together(
    round_of: Callable[..., tuple[int, int, bool]], loss: Loss, shared: Shared, params: Params, given: Given
) -> Step:
    """The columns of several points are at hand: solve this one's problem. One that has not begun begins with the
    solution of the one before it."""
    chosen, scalars, gathering = np.flatnonzero(shared.places >= 0), shared.scalars, given.found
    collector = gathering.batch is None
    if collector:
        gathering.batch = Batch(scaled(gathering.columns(), shared.factors, chosen), params.C, given.entries)
    batch = gathering.batch
    begun = scalars[ROUNDS] > 0 or batch.weights is None
    w = held_at(shared, chosen) if begun else batch.weights.copy()
    found = batch.solve(round_of, loss, penalty(params), w, params.C, WITHIN * given.tol, int(scalars[ROUNDS]), given)
    return taken(shared, found, chosen, w, batch.columns.rows.size, given.tol, collector)


def held_at(shared: Shared, chosen: np.ndarray) -> np.ndarray:
    """float64 [column + 1]: the weights of the columns ``chosen``, with their scales, and of the bias."""
    places = np.append(chosen, shared.weights.size - 1)
    return as_scaled(shared.weights[places], shared.factors[places] if shared.factors.size else shared.factors)


def taken(
    shared: Shared, found: Found, chosen: np.ndarray, w: np.ndarray, entries: int, tol: float, collector: bool = True
) -> Step:
    """Take the solution on the columns ``chosen``; the next read certifies it. Columns are told of by who collected."""
    scalars = shared.scalars
    shared.weights[chosen] = as_they_are(w[:-1], shared.factors[chosen] if shared.factors.size else shared.factors)
    shared.weights[-1] = w[-1]
    stuck = found.stuck or (found.steps == 0 and scalars[PARTIAL] == 0)
    reached = REACHED if found.gap <= WITHIN * tol and scalars[PARTIAL] == 0 else 0.0
    scalars[[SCALE, PLUS, MINUS, STUCK]] = found.scale, *found.sides, 1.0 if stuck else reached
    scalars[ROUNDS] += 1
    scalars[CUT] = NEARLY
    scalars[KIND] = PROOF if of_path(shared) else GRADIENT
    clear(shared)
    told = {"columns": float(chosen.size), "entries": float(entries)} if collector else {}
    return Step(facts=told | {"newton_steps": float(found.steps), "cycles": float(found.cycles),
                              "face_steps": float(found.climbed)})  # fmt: skip


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
    if last is None or sums_up(last):
        return
    shared.total[:] = last.total * (params.C / before.C)
    shared.counts[:], shared.factors[:] = last.counts, last.factors
    choose(shared, as_scaled(weights, shared.factors), params, entries)
    shared.scalars[KIND] = ALONE if of_path(shared) else COLLECTION


# Several points of a path


def joined(shared: Shared) -> bool:
    """Whether the collection is one for several points."""
    return bool(shared.scalars[KIND] == TOGETHER)


def unproved(shared: Shared) -> bool:
    """Whether the next read is for the gradient at the solution of a point of such a path."""
    return bool(shared.scalars[KIND] == PROOF)


def of_path(shared: Shared) -> bool:
    """Whether the state is of a point of a path that ``choose_together`` knows: its gap is to be scikit-learn's, too,
    whether it is solved together with others or alone."""
    return bool(shared.scalars[KIND] in (TOGETHER, PROOF, ALONE, FOLLOWS))


def choose_together(points: Sequence[PathPoint], entries: int) -> None:
    """Let as many points, by ascending C, go on from one collection as it has room for the columns of.

    Of a point that has a gradient these are the columns that ``choose`` would take. Of one that has not begun they are
    guessed by the last point before it that has: |u_j| at the new C is C / C_before times what it was at the same
    weights. What is left of the room goes to those that the strong rule keeps beside them, or, where C is far from
    C_before, whose slope is ``WORTH`` of l1. Every point is certified by its own gradient over all columns, so a wrong
    guess costs reads and nothing else.
    """
    ahead = [point for point in points if not point.ended]
    for point in ahead:
        if not of_path(point.state):
            point.state.scalars[KIND] = FOLLOWS if sums_up(point.state) else ALONE
    if any(point.begun and sums_up(point.state) for point in ahead):
        return  # the next read is for them
    batch: list[PathPoint] = []
    known, wanted, useful, strongest = None, np.empty(0, np.bool_), np.empty(0, np.bool_), np.empty(0)
    for point in points:
        if point.begun and not sums_up(point.state):
            known = point
        if point.ended:
            continue
        if known is None:
            return
        state, l1, counts = known.state, point.params.l1, known.state.counts[:-1]
        ratio = point.params.C / known.params.C
        slopes = np.abs(state.total[:-1])
        slopes *= ratio / l1
        needed = ((state.weights[:-1] != 0) | (slopes >= NEARLY)) & (counts > 0)
        kept = (slopes >= min(NEARLY, max(WORTH, 2.0 - ratio))) & (counts > 0)
        if batch:
            needed, kept = needed | wanted, kept | useful
            np.maximum(slopes, strongest, out=slopes)
        if int(np.sum(counts, where=needed)) > entries:
            break
        wanted, useful, strongest = needed, kept, slopes
        batch.append(point)
        if not point.begun:
            state = point.state
            state.weights[:], state.counts[:] = known.state.weights, known.state.counts
            state.factors[:] = known.state.factors
    if not batch:
        return  # the first goes on with the columns that it has chosen
    counts = batch[0].state.counts[:-1]
    others = np.flatnonzero(useful & ~wanted)
    others = others[np.argsort(-strongest[others], kind="stable")]
    wanted[others[np.cumsum(counts[others]) <= OF_ROOM * entries - int(np.sum(counts, where=wanted))]] = True
    chosen = np.flatnonzero(wanted)
    for point in batch:
        point.state.places[:] = -1
        point.state.places[chosen] = np.arange(chosen.size)
        point.state.scalars[[KIND, PARTIAL]] = TOGETHER, 0.0


# Methods

L1_RATIO = Param(
    "l1_ratio", 0.5, 0.0, 1.0, "share of ||w||_1 in the penalty, the rest ||w||^2 / 2", penalties=("elastic_net",),
    open_low=True,
)  # fmt: skip
STANDARDIZE = Param(
    "standardize", None, 0, 1,
    "1: the penalty is that of columns divided by their standard deviations, as in glmnet (none, 0: as they are)",
    integer=True,
)  # fmt: skip
# What methods share that take their steps from sums over all rows and solve the problem on columns that they collect
BY_COLUMNS: dict[str, Any] = dict(
    params=(COST, L1_RATIO, STANDARDIZE),
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
    batches=Batches((SQUARED.name,), choose_together, joined, unproved),
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
