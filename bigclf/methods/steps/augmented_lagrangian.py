"""The hinge by sums over rows alone: an augmented Lagrangian, whose problems Newton's method solves (Hestenes, J.
Optimization Theory and Applications 1969; Rockafellar, Math. Operations Research 1976; Li, Sun, Toh, SIAM J.
Optimization 2018).

    min_w  P(w) = 1/2 ||w||^2 + sum_i C_i max(0, 1 - m_i),    m_i = y_i w.x_i
    L(w; b, r) = 1/2 ||w||^2 + sum_i max over 0 <= a <= C_i of  a (1 - m_i) - (a - b_i)^2 / (2 r C_i)
    a_i = clip(b_i + r C_i (1 - m_i), 0, C_i);    dL/dw = w - sum_i a_i y_i x_i
    H = I + r sum over 0 < a_i < C_i of C_i x_i x_i'

The a_i that L has at a point are the b_i of the next problem (multipliers: a proximal step on the dual), and one Newton
step is taken on each. Dual ascent in groups of rows needs more passes the more groups there are, or has a working set
that has to fit one machine; here a read is a sum, so the passes do not depend on the groups, and what a row keeps, its
last two multipliers, stays with its group.

A point is read once. The sums are made with what will be its multipliers if it is taken, b' = a, and their own

    a'_i = clip(b'_i + r' C_i (1 - m_i)) = clip(a_i + (r'/r) (a_i - b_i)),

so that two numbers of a row tell all there is to know of it, in products with H too. Where a whole step
brings L hardly down, the next read looks along it, from the multipliers of before, for the length that is best.

The a'_i lie in the box, so each read bounds all objectives: D = sum_i a'_i - 1/2 ||v||^2, v = sum_i a'_i y_i x_i; so
does the best mean of the last few of them (``planes.py``). With F = sum_i C_i max(0, 1 - m_i) - a'_i (1 - m_i) >= 0,

    P(w) - D(a') = F + 1/2 ||w - v||^2:

F is what the multipliers lack, and falls the faster the larger r is; the norm is what the Newton step lacks, and grows
with r. r is 1 at first, where a margin that is off by 1 moves its multiplier through its box. It is halved where a step
had to be shortened by much, or conjugate gradients had not done when they were stopped; doubled where the whole step
was taken and F is the larger part.

The first reads are passes of dual coordinate descent, as Newton's method has them (``newton.py``).
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.compiled.jit import axpy, dot_ahead, entry, inlined, kernel
from bigclf.maths.block import Counts
from bigclf.maths.losses import Loss, dual_terms
from bigclf.maths.mixing import totals
from bigclf.methods.common import COST
from bigclf.methods.dual.dual_coordinate_descent import pass_over, scaled
from bigclf.methods.method import KEPT, LEARN, SUM, Given, Param, Step, Way, steps
from bigclf.methods.steps import planes
from bigclf.methods.steps.planes import dot

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


POINT, PRODUCT, START, LINE = 0.0, 1.0, 2.0, 3.0
FORCING = 0.3  # of ||g||: what conjugate gradients may leave of it
MOST_PRODUCTS = 20  # of one Newton step
LENGTHS = 0.75, 0.5, 0.35, 0.25, 0.12, 0.06, 0.03, 0.01  # of a step that was too long, which are tried in one read
N_LENGTHS = len(LENGTHS)
ENOUGH = 0.25  # of the decrease that the slope promised: a whole step that keeps less of it is too long
HALF = 0.5  # a step that is best at that or less says that r is too large, which is then multiplied by it
LESSER = 0.3  # times F: a norm below is the lesser part of the gap
GREATER = 100.0  # ... above it is so much the greater that the multipliers stay
ROUNDING = 1e-13  # of an objective, relatively: differences below that say nothing
PATIENCE, GAIN = 60, 0.9  # the gap does not fall to so much of itself in so many points
LARGEST = float(np.finfo(np.float64).max)


class Shared(NamedTuple):
    """weights : [feature + 1], where the next sum is made; probe : [feature + 1], what H is multiplied with; float64
    [feature + 1] each: point, the last one that was taken; step, from there; residual, -g - H step; total, the sum over
    rows of the read; diagonal, sum of C_i x_ij^2 over rows between the ends of their box, then that of I + r times
    it; figures : float64 [5 + length], more sums, see ``LOSS``; scalars : float64 [entry], see ``KIND``; kept, book :
    see ``planes.py``."""

    weights: np.ndarray
    probe: np.ndarray
    point: np.ndarray
    step: np.ndarray
    residual: np.ndarray
    total: np.ndarray
    diagonal: np.ndarray
    figures: np.ndarray
    scalars: np.ndarray
    kept: np.ndarray
    book: np.ndarray


SUMS = ("total", "diagonal", "figures")


class Rows(NamedTuple):
    """one, other : float64 [row], the multipliers of the last point that was taken and those of the point that was read
    last; which is which ``OTHER`` says."""

    one: np.ndarray
    other: np.ndarray


class Params(NamedTuple):
    """C : price of a unit of loss, times the row's weight; bias : value of the constant feature (1.0 or 0.0); epsilon :
    0.0, of no use to the hinge; groups : their number."""

    C: float
    bias: float
    epsilon: float
    groups: float


# Places in ``figures``: the sums of losses, of a', of F's terms, of L's terms with the multipliers of the last point
# and with those of this one; of the terms of the last point at each of ``LENGTHS``.
LOSS, DUAL, LACK, TERMS, NEXT_TERMS, ALONG = range(6)
N_FIGURES = ALONG + N_LENGTHS
# Places in ``scalars``: what the next read is for; r of the problem that is solved, and of the one after it; the
# quotient of the last two, by which a' follows from the multipliers; 1 where ``other`` has those of the last point; L
# there; g.step; the length of the step that is taken (0: there is none); r.M^-1 r and ||g|| at the start; products so
# far; passes that are left of the start; the gap at which patience began anew, and points since then.
KIND, PENALTY, NEXT, QUOTIENT, OTHER, VALUE, SLOPE, LENGTH, SQUARE, STEEP, PRODUCTS, LEFT, MARK, IDLE, HOLD = range(15)
N_SCALARS = 15


def bind(settings: Numbers) -> Params:
    return Params(settings["C"], settings["bias"], 0.0, float(settings.get("groups", 1)))


def begin(n_features: int, dtype: DTypeLike, settings: Numbers) -> Shared:
    """A state at w = 0."""
    n = n_features + 1
    weights, probe = (np.zeros(n, dtype) for _ in range(2))
    point, step, residual, total, diagonal = (np.zeros(n) for _ in range(5))
    sums = total, diagonal, np.zeros(N_FIGURES)
    shared = Shared(weights, probe, point, step, residual, *sums, np.zeros(N_SCALARS), *planes.begin(n))
    start = settings.get("start", 0)
    shared.scalars[[KIND, LEFT, MARK]] = START if start else POINT, start, LARGEST
    shared.scalars[[PENALTY, NEXT, HOLD]] = 1.0
    return shared


@inlined
def term_at(a, b, m, c, penalty):  # type: ignore[no-untyped-def]
    """A row's term of L at a."""
    return a * (1.0 - m) - 0.5 * (a - b) * ((a - b) / (penalty * c))


@inlined
def term(b, m, c, penalty):  # type: ignore[no-untyped-def]
    """The a that a row's term of L has, and that term."""
    a = min(c, max(0.0, b + penalty * c * (1.0 - m)))
    return a, term_at(a, b, m, c, penalty)


@inlined
def ahead(before, at, quotient, c):  # type: ignore[no-untyped-def]
    """a' from b and a."""
    return min(c, max(0.0, at + quotient * (at - before)))


@kernel
def multiply(block, order, probe, before, at, quotient, params, total):  # type: ignore[no-untyped-def]
    """total += sum over rows between the ends of their box of C_i (x_i.probe) x_i"""
    last = total.size - 1
    for k in range(order.size):
        i = order[k]
        r, c = block.ids[i], params.C * block.weights[i]
        if 0.0 < ahead(before[r], at[r], quotient, c) < c:
            t = c * (dot_ahead(block, order, k, probe) + params.bias * probe[last])
            axpy(t, block, i, total)
            total[last] += params.bias * t


def sums(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel of a read: the sums of a point; a product with H; L along a step; or a pass of the start."""
    go_over, value_of, gap_of, lengths = pass_over(loss), loss.value, dual_terms(loss).gap, LENGTHS

    @kernel
    def along(block, order, shared, before, params):  # type: ignore[no-untyped-def]
        weights, probe, figures, penalty = shared.weights, shared.probe, shared.figures, shared.scalars[PENALTY]
        last = weights.size - 1
        for k in range(order.size):
            i = order[k]
            r, y, c = block.ids[i], block.labels[i], params.C * block.weights[i]
            m = y * (dot_ahead(block, order, k, weights) + params.bias * weights[last])
            z = y * (dot_ahead(block, order, k, probe) + params.bias * probe[last])
            for place in range(N_LENGTHS):
                figures[ALONG + place] += term(before[r], m + lengths[place] * z, c, penalty)[1]
        return Counts(order.size, 0, 0, 0.0, 0.0)

    @kernel
    def point(block, order, shared, before, at, params):  # type: ignore[no-untyped-def]
        weights, total, diagonal, figures = shared.weights, shared.total, shared.diagonal, shared.figures
        penalty, following = shared.scalars[PENALTY], shared.scalars[NEXT]
        quotient, hold = following / penalty, shared.scalars[HOLD] != 0
        last, mistakes, lost = weights.size - 1, 0, 0.0
        for k in range(order.size):
            i = order[k]
            r, y, c = block.ids[i], block.labels[i], params.C * block.weights[i]
            m = y * (dot_ahead(block, order, k, weights) + params.bias * weights[last])
            b = before[r]
            a, now = term(b, m, c, penalty)
            if hold:
                z, following_term = term(b, m, c, following)
                at[r] = z
            else:
                z = ahead(b, a, quotient, c)
                following_term = term_at(z, a, m, c, following)
                at[r] = a
            value = c * value_of(m, y, 0.0)
            mistakes += m <= 0
            lost += value
            figures[DUAL] += z
            figures[LACK] += gap_of(z, m, c, y, 0.0)
            figures[TERMS] += now
            figures[NEXT_TERMS] += following_term
            if z > 0.0:
                axpy(-z * y, block, i, total)
                total[last] -= z * y * params.bias
            if 0.0 < z < c:
                for p in range(block.indptr[i], block.indptr[i + 1]):
                    x = entry(block, i, p)
                    diagonal[block.indices[p]] += c * x * x
                diagonal[last] += c * params.bias * params.bias
        figures[LOSS] += lost
        return Counts(order.size, mistakes, order.size, lost, 0.0)

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        kind = shared.scalars[KIND]
        if kind == START:
            return go_over(block, order, shared.weights, rows.one, params, params.groups, scores)
        swapped = shared.scalars[OTHER] != 0
        before, at = (rows.other, rows.one) if swapped else (rows.one, rows.other)
        if kind == POINT:
            return point(block, order, shared, before, at, params)
        if kind == LINE:
            return along(block, order, shared, before, params)
        if shared.scalars[QUOTIENT] != 0:  # the multipliers of the point have been taken
            before, at = at, before
        multiply(block, order, shared.probe, before, at, shared.scalars[QUOTIENT], params, shared.total)
        return Counts(order.size, 0, 0, 0.0, 0.0)

    return update


def reading(shared: Shared) -> str:
    """What the next read is."""
    return LEARN if shared.scalars[KIND] == START else SUM


def way(shared: Shared) -> Way:
    """What travels for the next read: a vector down and one up, or two for a point; the multipliers stay."""
    kind = shared.scalars[KIND]
    if kind == START:
        return Way(("weights", "scalars"), ("total",), KEPT, ("weights",))
    if kind == PRODUCT:
        return Way(("probe", "scalars"), ("total",), KEPT)
    if kind == LINE:
        return Way(("weights", "probe", "scalars"), ("figures",), KEPT)
    return Way(("weights", "scalars"), SUMS, KEPT)


def finish(shared: Shared, params: Params) -> None:
    """A pass of the start ends: each group's steps counted as many times as there are groups, so that the mean of their
    weights has the sum of the steps at their true length."""
    if shared.scalars[KIND] == START:
        shared.total[:] = shared.weights / params.groups


def absorb(loss: Loss):  # type: ignore[no-untyped-def]
    """Function (shared, params, given) -> Step: from the sums of a read to the next one."""

    def step(shared: Shared, params: Params, given: Given | None = None) -> Step:
        kind = shared.scalars[KIND]
        if kind == START:
            return started(shared)
        if kind == LINE:
            return measured(shared)
        return multiplied(shared) if kind == PRODUCT else came(shared)

    return step


def started(shared: Shared) -> Step:
    """A pass of dual coordinate descent is over."""
    shared.weights[:] = shared.total
    shared.point[:] = shared.weights
    shared.scalars[LEFT] -= 1
    if shared.scalars[LEFT] <= 0:
        shared.scalars[KIND] = POINT
    clear(shared)
    return Step()


def came(shared: Shared) -> Step:
    """The sums of a point are known: take it, or look for one that is nearer."""
    scalars, figures = shared.scalars, shared.figures
    w = shared.weights.astype(np.float64)
    g, half = w + shared.total, 0.5 * dot(w, w)
    value, now = half + float(figures[LOSS]), half + float(figures[TERMS])
    is_whole = scalars[LENGTH] == 1.0
    if not (math.isfinite(value) and math.isfinite(now) and np.isfinite(g).all()):
        return seek(shared, Step()) if is_whole else Step(over="stalled")
    own = float(figures[DUAL]) - 0.5 * dot(shared.total, shared.total)
    bound = planes.largest(shared, value, max(0.0, own), float(figures[DUAL]))  # D(0) = 0
    told = Step(value, bound, shared.weights.copy())
    steep, lack = 0.5 * dot(g, g), float(figures[LACK])
    if steep == 0 and lack <= 0:
        return told._replace(over="done")
    if is_whole and not now <= scalars[VALUE] + ENOUGH * scalars[SLOPE] + ROUNDING * abs(scalars[VALUE]):
        return seek(shared, told)
    if is_idle(shared):
        return told._replace(over="stalled")
    follow(shared, steep, lack, half + float(figures[NEXT_TERMS]))
    begin_conjugate_gradients(shared, -g)
    return told


def is_idle(shared: Shared) -> bool:
    """Whether many points have brought the gap hardly down."""
    scalars, best = shared.scalars, shared.book[-1]
    gap = float(best[planes.PRIMAL] - best[planes.DUAL])
    scalars[IDLE] += 1
    if gap <= GAIN * scalars[MARK]:
        scalars[[MARK, IDLE]] = gap, 0
    return bool(scalars[IDLE] >= PATIENCE)


def follow(shared: Shared, steep: float, lack: float, value: float) -> None:
    """The point is taken, where 1/2 ||g||^2 is ``steep``, F ``lack`` and the next problem's L ``value``."""
    scalars = shared.scalars
    if scalars[HOLD]:
        scalars[QUOTIENT] = 0.0
    else:
        scalars[QUOTIENT] = scalars[NEXT] / scalars[PENALTY]
        scalars[OTHER] = 1 - scalars[OTHER]
    scalars[PENALTY] = scalars[NEXT]
    scalars[HOLD] = steep > GREATER * lack
    scalars[NEXT] = (2.0 if steep < LESSER * lack else 1.0) * scalars[PENALTY]
    scalars[VALUE] = value
    shared.point[:] = shared.weights


def seek(shared: Shared, told: Step) -> Step:
    """The whole step went too far: the next read looks along it."""
    shared.scalars[KIND] = LINE
    shared.weights[:] = shared.point
    shared.probe[:] = shared.step
    clear(shared)
    return told


def measured(shared: Shared) -> Step:
    """L along the step is known: go to where it is least. What of the step is left says whether r is too large."""
    scalars, lengths = shared.scalars, np.array(LENGTHS)
    w, s = shared.point, shared.step
    squares = 0.5 * dot(w, w) + lengths * dot(w, s) + 0.5 * lengths * lengths * dot(s, s)
    values = squares + shared.figures[ALONG : ALONG + N_LENGTHS]
    values[~np.isfinite(values)] = np.inf
    scalars[LENGTH] = t = lengths[np.argmin(values)] if np.isfinite(values).any() else lengths[-1]
    scalars[NEXT] = min(scalars[NEXT], (HALF if t <= HALF else 1.0) * scalars[PENALTY])
    shared.weights[:] = w + t * s
    scalars[KIND] = POINT
    clear(shared)
    return Step()


def begin_conjugate_gradients(shared: Shared, residual: np.ndarray) -> None:
    """The next read is the first product, of a step from 0; those before it have made the diagonal."""
    scalars = shared.scalars
    shared.residual[:] = residual
    shared.diagonal[:] = 1.0 + scalars[PENALTY] * shared.diagonal
    z = residual / shared.diagonal
    shared.probe[:] = z
    shared.step[:] = 0.0
    scalars[[KIND, PRODUCTS, SLOPE]] = PRODUCT, 0, 0.0
    scalars[[SQUARE, STEEP]] = dot(residual, z), math.sqrt(dot(residual, residual))
    clear_sums(shared)


def multiplied(shared: Shared) -> Step:
    """The sum of H d is known: a step of conjugate gradients."""
    scalars, step, residual = shared.scalars, shared.step, shared.residual
    direction = shared.probe.astype(np.float64)
    image = direction + scalars[PENALTY] * shared.total
    square, bend = float(scalars[SQUARE]), dot(direction, image)
    facts = {"products": 1.0}
    scalars[PRODUCTS] += 1
    if not 0 < bend < np.inf:
        return Step(facts=facts, over="stalled") if scalars[PRODUCTS] == 1 else tried(shared, facts)
    a = square / bend
    step += a * direction
    residual -= a * image
    scalars[SLOPE] -= a * square  # g.s: the residuals before are orthogonal to the steps
    left = math.sqrt(dot(residual, residual))
    z = residual / shared.diagonal
    scalars[SQUARE] = following = dot(residual, z)
    enough = left <= FORCING * scalars[STEEP]
    if not enough and scalars[PRODUCTS] >= MOST_PRODUCTS:
        scalars[NEXT] = HALF * scalars[PENALTY]
        enough = True
    if enough or not 0 < following < np.inf:
        return tried(shared, facts)
    shared.probe[:] = z + following / square * direction
    clear_sums(shared)
    return Step(facts=facts)


def tried(shared: Shared, facts: dict[str, float]) -> Step:
    """The next read is at the end of the step."""
    shared.scalars[[KIND, LENGTH]] = POINT, 1.0
    shared.weights[:] = shared.point + shared.step
    clear(shared)
    return Step(facts=facts)


def clear(shared: Shared) -> None:
    """The next read is no product."""
    shared.diagonal[:] = 0.0
    clear_sums(shared)


def clear_sums(shared: Shared) -> None:
    """All but the diagonal, which products leave alone."""
    shared.total[:] = 0.0
    shared.figures[:] = 0.0


def forget(shared: Shared) -> bool:
    """A read for sums has ended before its time: it is to be made anew. The multipliers that it made are made again
    from those of the last point; a pass of the start has learned what it has."""
    if shared.scalars[KIND] == START:
        return False
    (clear_sums if shared.scalars[KIND] == PRODUCT else clear)(shared)
    return True


def place(shared: Shared, weights: np.ndarray, params: Params) -> None:
    """Begin at such weights, without a start from nothing."""
    shared.weights[:] = weights
    shared.point[:] = shared.weights
    shared.scalars[KIND] = POINT


# Methods

PASSES = Param(
    "start",
    5,
    0,
    1000,
    "passes of dual coordinate descent at the start; by default two in several groups",
    integer=True,
    several=2,
)

METHODS = (
    steps(
        name="augmented_lagrangian",
        title="hinge by sums alone: an augmented Lagrangian, by Newton's method with conjugate gradients, certified",
        paper="Hestenes 1969; Rockafellar 1976; Li, Sun, Toh, SIAM J. Optimization 2018",
        formula="(I + r C X_F' X_F) s = v - w by conjugate gradients;  w <- w + t s;  a <- clip(a + r C (1 - m), 0, C)",
        params=(COST, PASSES),
        losses=("hinge",),
        penalties=("l2",),
        rows=Rows,
        shared=begin,
        bind=bind,
        place=place,
        finish=finish,
        update=functools.cache(sums),
        absorb=functools.cache(absorb),
        scaled=functools.cache(scaled),
        sums=SUMS,
        forget=forget,
        reading=reading,
        way=way,
        mixings={"sum": totals(*SUMS, sharing=True)},
        mixing="sums over all rows: the passes do not depend on the groups",
        weight_meaning="multiplies C",
        epochs=10_000,
        tol=1e-3,
        instead="algo='dcd' keeps one number of a row and no vectors beside the weights",
    ),
)
