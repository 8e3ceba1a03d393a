"""Newton's method with conjugate gradients for the smooth losses (Lin, Weng, Keerthi, JMLR 2008; Hsia, Zhu, Lin, ACML
2017; preconditioned, with a line search: Galli and Lin, Optimization Methods and Software 2021).

    min_w  P(w) = 1/2 ||w||^2 + sum_i C_i loss(s_i w.x_i)
    g = w + sum_i C_i loss'(m_i) s_i x_i,    H d = d + sum_i C_i loss''(m_i) (d.x_i) x_i

Only sums over rows are needed: the gradient and the diagonal of H at a point, or H d for the direction d that conjugate
gradients ask about. A read is one of these; what lies between two reads is ``absorb``. So the answer depends neither on
the order of rows nor on who added up what, and the same groups give the same bits whatever workers there are. Products
may leave out rows (a sub-sampled Hessian: Byrd, Chin, Neveitt, Nocedal, SIAM J. Optimization 2011): the sum is then
scaled to all rows, and the line search and the certificate know of every row all the same.

The dual variables a_i = -C_i loss'(m_i) are feasible, and their w is w - g. So each gradient brings its certificate:
P(w) - D(a) = 1/2 ||g||^2, by the equality in Fenchel's inequality on each row, C_i loss(m_i) - phi_i(a_i) = -a_i m_i.
A bias that is not regularised asks of the a_i that sum_i s_i a_i = 0: see ``balanced``.

The first reads are passes of dual coordinate descent (``start``), which come near the optimum fast and slow down there;
of several groups each counts its steps as many times as there are groups, and the sum of the steps is safe (CoCoA+: Ma
et al., ICML 2015).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import axpy, dot_ahead, entry, kernel
from bigclf.maths.block import Counts
from bigclf.maths.losses import Loss, at_least, dual_terms, having, is_dual, is_smooth
from bigclf.maths.mixing import totals
from bigclf.methods.common import COST, EPSILON
from bigclf.methods.dual.dual_coordinate_descent import Params as Duals
from bigclf.methods.dual.dual_coordinate_descent import Rows as Alphas
from bigclf.methods.dual.dual_coordinate_descent import Shared as Weights
from bigclf.methods.dual.dual_coordinate_descent import descend, scaled
from bigclf.methods.method import AGAIN, AT_POINT, KEPT, LEARN, MADE, SUM, Given, Param, Step, Way, steps
from bigclf.methods.steps import planes
from bigclf.methods.steps.planes import dot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import DTypeLike

    from bigclf.maths.block import Block
    from bigclf.methods.method import Numbers


GRADIENT, PRODUCT, START = 0.0, 1.0, 2.0
FORCING = 0.5  # conjugate gradients go on while a step still adds this share of the mean gain of those before
ARMIJO = 0.01  # share of the decrease promised by the slope that a step must keep
HALVINGS = 40
SCALED = 0.01  # share of the Hessian's diagonal in the preconditioner, the rest the regulariser's
MOST_PRODUCTS = 1000  # of one Newton step
CHANGED = 0.01  # of P, promised by a step: then the Hessian's diagonal is made anew, which takes as long as a product
LARGEST = float(np.finfo(np.float64).max)
ROUNDING = 1e-13  # of an objective, relatively: differences below that say nothing
PATIENCE = 3  # points in a row that gain nothing, where all that is promised is rounding
POOR = 0.5  # a step that leaves more than this of ||g||^2 was by a poor Hessian: products are of all rows from there on


class Shared(NamedTuple):
    """weights : [feature + 1], where the next gradient is taken; probe : [feature + 1], what the Hessian is multiplied
    with; float64 [feature + 1] each: point, the last point that was taken; step, from there; residual, -g - H step;
    total, the sum over rows of the read; diagonal, sum_i C_i loss'' x_ij^2, then the preconditioner; side : of a free
    bias (else [0]) the part of ``total`` that pulls it up; figures : float64 [10], more sums, see ``ROWS``; scalars :
    float64 [entry], see ``KIND``; kept, book : of several groups, else empty: see ``planes.py``."""

    weights: np.ndarray
    probe: np.ndarray
    point: np.ndarray
    step: np.ndarray
    residual: np.ndarray
    total: np.ndarray
    diagonal: np.ndarray
    side: np.ndarray
    figures: np.ndarray
    scalars: np.ndarray
    kept: np.ndarray
    book: np.ndarray


SUMS = ("total", "diagonal", "side", "figures")


class Rows(NamedTuple):
    """curvature : float64 [row], C_i loss''(m_i) at the point; before the first point, the dual variables."""

    curvature: np.ndarray


class Params(NamedTuple):
    """C : price of a unit of loss, times the row's weight; bias : value of the constant feature (1.0 or 0.0);
    epsilon : half the width of the tube; free : 1.0 where the bias is not regularised; groups : their number."""

    C: float
    bias: float
    epsilon: float
    free: float
    groups: float


# Places in ``figures``: the sum of losses, rows, and of the rows that pull the bias up, then of the others: the sums of
# a_i, C_i loss, a_i m_i and C_i ``odds`` of the loss.
LOSS, ROWS, UP, DOWN = 0, 1, 2, 6
# Places in ``scalars``: what the next read is for; P at the point; the length of the step that is tried (0: none was);
# value of the quadratic model; r.M^-1 r; products so far; when conjugate gradients end; passes that are left of the
# start; rows that the gradient was of; ||g||^2 at the point and the least so far; points since then; 1 where products
# are of all rows; 1 where the read makes the diagonal.
KIND, VALUE, LENGTH, MODEL, SQUARE, PRODUCTS, GOAL, LEFT, SEEN, STEEP, LEAST, IDLE, WHOLE, FRESH = range(14)
N_SCALARS = 14


def bind(settings: Numbers) -> Params:
    return Params(
        settings["C"],
        settings["bias"],
        settings.get("epsilon", 0.0),
        settings["free_bias"],
        float(settings.get("groups", 1)),
    )


def begin(n_features: int, dtype: DTypeLike, settings: Numbers) -> Shared:
    """A state at w = 0."""
    n = n_features + 1
    point, step, residual, total, diagonal = (np.zeros(n) for _ in range(5))
    sums = total, diagonal, np.zeros(n if settings["free_bias"] else 0), np.zeros(10)
    weights, probe = (np.zeros(n, dtype) for _ in range(2))
    of_several = planes.begin(n if settings.get("groups", 1) > 1 else 0)
    shared = Shared(weights, probe, point, step, residual, *sums, np.zeros(N_SCALARS), *of_several)
    start = settings.get("start", 0)
    shared.scalars[[KIND, LEFT, LEAST, FRESH]] = START if start else GRADIENT, start, LARGEST, 1
    return shared


@kernel
def multiply(block, order, probe, curvature, total, bias):  # type: ignore[no-untyped-def]
    """total += sum of C loss''(m_i) (x_i.probe) x_i; a kernel for all losses."""
    last = total.size - 1
    for k in range(order.size):
        i = order[k]
        h = curvature[block.ids[i]]
        if h != 0:
            t = h * (dot_ahead(block, order, k, probe) + bias * probe[last])
            axpy(t, block, i, total)
            total[last] += bias * t


class AtPoint(NamedTuple):
    """What a gradient is taken of, and the sums that are added to: arrays of ``Shared``."""

    weights: np.ndarray
    total: np.ndarray
    diagonal: np.ndarray
    side: np.ndarray
    figures: np.ndarray


@functools.cache
def gradients(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel that adds gradient, curvatures and where it is ``fresh`` the Hessian's diagonal."""
    regression, value_of, slope, curvature = loss.regression, loss.value, loss.slope, loss.curvature
    odds = dual_terms(loss).odds

    @kernel
    def add(block, order, shared, curvatures, params, fresh):  # type: ignore[no-untyped-def]
        total, figures, last, e = shared.total, shared.figures, shared.total.size - 1, params.epsilon
        weights, diagonal, side = shared.weights, shared.diagonal, shared.side
        mistakes, loss_sum = 0, np.float64(0)
        for k in range(order.size):
            i = order[k]
            t, c = block.labels[i], params.C * block.weights[i]
            s = 1.0 if regression else t
            m = s * (dot_ahead(block, order, k, weights) + params.bias * weights[last])
            value = value_of(m, t, e)
            mistakes += value > 0 if regression else m <= 0
            loss_sum += c * value
            a = -c * slope(m, t, e)
            h = c * curvature(m, t, e)
            curvatures[block.ids[i]] = h
            g = -a * s
            if g != 0:
                axpy(g, block, i, total)
                total[last] += params.bias * g
            if h != 0 and fresh:
                for p in range(block.indptr[i], block.indptr[i + 1]):
                    x = entry(block, i, p)
                    diagonal[block.indices[p]] += h * x * x
                diagonal[last] += params.bias * params.bias * h
            if side.size > 0:
                at = UP if g < 0 else DOWN
                figures[at] += abs(a)
                figures[at + 1] += c * value
                figures[at + 2] += a * m
                figures[at + 3] += c * odds(m)
                if g < 0:
                    axpy(g, block, i, side)
        figures[LOSS] += loss_sum
        figures[ROWS] += order.size
        return Counts(order.size, mistakes, order.size, loss_sum, 0.0)

    return add


def sums(loss: Loss):  # type: ignore[no-untyped-def]
    """A read: gradient, diagonal and curvatures; a product with the Hessian; or a pass of the start. Each is a kernel
    of its own, the last one that of ``dcd``, so that several processes can compile them."""
    learn, add = descend(loss), gradients(loss)

    def update(
        block: Block, order: np.ndarray, shared: Shared, rows: Rows, params: Params, scores: np.ndarray
    ) -> Counts:
        kind = shared.scalars[KIND]
        if kind == START:
            duals = Duals(params.C, params.bias, params.epsilon, params.groups)
            done: Counts = learn(block, order, Weights(shared.weights), Alphas(rows.curvature), duals, scores)
            return done
        if kind == PRODUCT:
            multiply(block, order, shared.probe, rows.curvature, shared.total, params.bias)
            shared.figures[ROWS] += order.size
            return Counts(order.size, 0, 0, 0.0, 0.0)
        point = AtPoint(*(getattr(shared, name) for name in AtPoint._fields))
        done = add(block, order, point, rows.curvature, params, bool(shared.scalars[FRESH]))
        return done

    return update


def kinds(shared: Shared) -> list[Shared]:
    """The state, before it asks for a gradient, for each kind of read."""
    first = shared.scalars[KIND]
    asked = [PRODUCT, GRADIENT] if shared.probe.size else [GRADIENT]
    return [of_kind(shared, kind) for kind in (asked if first == GRADIENT else [*asked, first])]


def of_kind(shared: Shared, kind: float) -> Shared:
    scalars = shared.scalars.copy()
    scalars[KIND] = kind
    return shared._replace(scalars=scalars)


def reading(shared: Any) -> str:
    """What the next read is."""
    kind = shared.scalars[KIND]
    return LEARN if kind == START else SUM if kind == GRADIENT or shared.scalars[WHOLE] else AGAIN


def way(shared: Shared) -> Way:
    """What travels for the next read: a vector down and one up, or two for a gradient with a new diagonal."""
    kind = shared.scalars[KIND]
    if kind == START:
        return Way(("weights", "point", "scalars"), ("total",), KEPT, ("weights",))
    if kind == PRODUCT:
        return Way(("probe", "scalars"), ("total", "figures"), AT_POINT)
    fresh = ("diagonal",) if shared.scalars[FRESH] else ()
    return Way(("weights", "scalars"), ("total", "side", "figures", *fresh), MADE)


def again(shared: Shared) -> Shared:
    """A state of which a read makes the curvatures at the point once more."""
    scalars = shared.scalars.copy()
    scalars[[KIND, FRESH]] = GRADIENT, 0
    sums = {name: np.zeros_like(getattr(shared, name)) for name in SUMS}
    return shared._replace(weights=shared.point.astype(shared.weights.dtype), scalars=scalars, **sums)


def finish(shared: Shared, params: Params) -> None:
    """A pass of the start ends: its steps, at their true length, are what is summed over groups."""
    if shared.scalars[KIND] == START:
        shared.total[:] = (shared.weights - shared.point) / params.groups


def absorb(loss: Loss):  # type: ignore[no-untyped-def]
    """Function (shared, params, given) -> Step: from the sums of a read to the next one."""

    def step(shared: Shared, params: Params, given: Given | None = None) -> Step:
        kind = shared.scalars[KIND]
        if kind == START:
            return started(shared)
        if kind == PRODUCT:
            return multiplied(shared, params)
        return looked(loss, shared, params, 0.0 if given is None else given.tol)

    return step


def started(shared: Any) -> Step:
    """A pass of dual coordinate descent is over."""
    shared.weights[:] = shared.point + shared.total
    shared.point[:] = shared.weights
    shared.scalars[LEFT] -= 1
    if shared.scalars[LEFT] <= 0:
        clear(shared)
    shared.total[:] = 0.0
    return Step()


def gradient(shared: Shared, params: Params) -> tuple[np.ndarray, float]:
    """From the sums of a read, at ``weights``: g and P; a free bias has no part in the norm."""
    w = shared.weights.astype(np.float64)
    if params.free:
        w[-1] = 0.0
    return w + shared.total, 0.5 * dot(w, w) + float(shared.figures[LOSS])


def bound(loss: Loss, shared: Shared, params: Params, value: float, steep: float) -> float:
    """The dual objective at the dual variables of the point where P = ``value`` and ||g||^2 = ``steep``; of several
    groups the best that is known."""
    if params.free:
        return balanced(loss, shared)
    own = max(0.0, value - 0.5 * steep)  # D(0) = 0
    return planes.best(shared, value, own) if planes.has_any(shared) else own


def judged(loss: Loss, shared: Any, params: Params) -> tuple[np.ndarray, float, float, Step]:
    """g, P and ||g||^2 at ``weights``, and what is told of them: nothing where P is no number."""
    g, value = gradient(shared, params)
    steep = dot(g, g)
    if not math.isfinite(value):
        return g, value, steep, Step()
    return g, value, steep, Step(value, bound(loss, shared, params, value, steep), shared.weights.copy())


def looked(loss: Loss, shared: Shared, params: Params, tol: float = 0.0) -> Step:
    """The gradient at ``weights`` is known: take the point or a shorter step, and begin conjugate gradients."""
    scalars = shared.scalars
    g, value = gradient(shared, params)
    steep = dot(g, g)
    told = value, bound(loss, shared, params, value, steep), shared.weights.copy()
    length, promised = scalars[LENGTH], 2.0 * scalars[MODEL]
    floor = ROUNDING * abs(scalars[VALUE])
    if length > 0 and not value <= scalars[VALUE] + ARMIJO * length * promised + floor:
        if length < 0.5**HALVINGS:
            return Step(*told, over="stalled") if math.isfinite(value) else Step(over="stalled")
        scalars[LENGTH] = 0.5 * length
        shared.weights[:] = shared.point + 0.5 * length * shared.step
        clear(shared)
        return Step(*told) if math.isfinite(value) else Step()
    scalars[IDLE] = 0 if steep < scalars[LEAST] else scalars[IDLE] + 1
    scalars[LEAST] = min(scalars[LEAST], steep)
    if length > 0 and steep > POOR * scalars[STEEP]:
        scalars[WHOLE] = 1
    if steep == 0:
        return Step(*told, over="done")
    if length > 0 and -promised <= floor and scalars[IDLE] >= PATIENCE:
        return Step(*told, over="stalled")
    shared.point[:] = shared.weights
    scalars[[VALUE, STEEP, SEEN]] = value, steep, shared.figures[ROWS]
    begin_conjugate_gradients(shared, -g, params)
    if planes.has_any(shared):
        planes.begin_smoothing(shared, tol)
    return Step(*told)


def begin_conjugate_gradients(shared: Shared, residual: np.ndarray, params: Params) -> None:
    """The next read is the first product, of a step from 0."""
    shared.residual[:] = residual
    if shared.scalars[FRESH]:
        precondition(shared, params)
    z = residual / shared.diagonal
    square = dot(residual, z)
    shared.probe[:] = z
    shared.step[:] = 0.0
    clear_sums(shared)
    shared.scalars[[KIND, MODEL, SQUARE, PRODUCTS]] = PRODUCT, 0.0, square, 0
    shared.scalars[GOAL] = min(FORCING, math.sqrt(math.sqrt(square)))


def precondition(shared: Any, params: Params) -> None:
    """The sum in ``diagonal`` becomes M = (1 - s) I + s diag(H)."""
    hessian = 1.0 + shared.diagonal
    hessian[-1] -= params.free
    shared.diagonal[:] = 1.0 - SCALED + SCALED * hessian


def product(shared: Shared, params: Params) -> tuple[np.ndarray, np.ndarray]:
    """The direction d, and H d from the sum of a read, which may have left out rows; H d in the place of the sum."""
    direction = shared.probe.astype(np.float64, copy=False)
    rows = float(shared.figures[ROWS])
    scale = float(shared.scalars[SEEN]) / rows if rows > 0 else 1.0
    image = shared.total
    for s in parts(image.size):
        image[s] = direction[s] + scale * image[s]
    image[-1] -= params.free * direction[-1]
    return direction, image


def multiplied(shared: Shared, params: Params) -> Step:
    """H d is known: a step of preconditioned conjugate gradients."""
    direction, image = product(shared, params)
    scalars, residual = shared.scalars, shared.residual
    square, bend = float(scalars[SQUARE]), dot(direction, image)
    facts = {"products": 1.0}
    if not 0 < bend < np.inf:
        return Step(facts=facts, over="stalled") if scalars[PRODUCTS] == 0 else tried(shared, facts)
    a = square / bend
    gain = 0.5 * a * square
    scalars[MODEL] -= gain
    scalars[PRODUCTS] += 1
    z = image  # in its place
    for s in parts(z.size):
        shared.step[s] += a * direction[s]
        residual[s] -= a * image[s]
        np.divide(residual[s], shared.diagonal[s], out=z[s])
    scalars[SQUARE] = following = dot(residual, z)
    if _is_enough(shared, gain) or not 0 < following < np.inf or scalars[PRODUCTS] >= MOST_PRODUCTS:
        return tried(shared, facts)
    for s in parts(z.size):
        shared.probe[s] = z[s] + following / square * direction[s]
    clear_sums(shared)
    return Step(facts=facts)


def parts(n: int) -> Iterator[slice]:
    """Slices of a vector, small enough that what is made of them on the way stays in the processor's cache."""
    return (slice(first, first + 16384) for first in range(0, n, 16384))


def _is_enough(shared: Shared, gain: float) -> bool:
    """Whether the last product, which added ``gain`` to the model, was the last one of the step."""
    count, scalars = shared.scalars[PRODUCTS], shared.scalars
    if planes.has_any(shared) and planes.is_close(shared):
        return planes.smooth(shared, int(count))
    return bool(count * gain <= scalars[GOAL] * -scalars[MODEL])


def tried(shared: Shared, facts: dict[str, float]) -> Step:
    """The next read is the gradient at the end of the step."""
    scalars = shared.scalars
    scalars[LENGTH] = 1.0
    scalars[FRESH] = -scalars[MODEL] > (planes.CHANGED if planes.has_any(shared) else CHANGED) * scalars[VALUE]
    shared.weights[:] = shared.point + shared.step
    clear(shared)
    return Step(facts=facts)


def clear(shared: Any) -> None:
    """The next read is for a gradient."""
    shared.scalars[KIND] = GRADIENT
    if shared.scalars[FRESH]:
        shared.diagonal[:] = 0.0
    clear_sums(shared)


def forget(shared: Shared) -> bool:
    """A read for sums has ended before its time: it is to be made anew. A pass of the start has learned what it has."""
    if shared.scalars[KIND] == START:
        return False
    (clear_sums if shared.scalars[KIND] == PRODUCT else clear)(shared)
    return True


def clear_sums(shared: Shared) -> None:
    """All but the diagonal: once it is made, ``diagonal`` is the preconditioner."""
    for array in (shared.total, shared.side, shared.figures):
        array[:] = 0.0


def balanced(loss: Loss, shared: Shared) -> float:
    """A bound on all objectives where the bias is free: the dual variables must balance, sum_i s_i a_i = 0.

    Those of the side that pulls harder are multiplied by r < 1, the quotient of the two sums of a_i. The terms phi(r a)
    of that side are at least what ``shrunk`` of the loss makes of the sums, and r phi(a); and D(0) = 0.
    """
    sums = [shared.figures[at : at + 4] for at in (UP, DOWN)]
    pulls = [float(part[0]) for part in sums]
    if min(pulls) <= 0:
        return 0.0
    finite = math.isfinite(float(sums[0][3] + sums[1][3]))
    shares = [min(1.0, pulls[1] / pulls[0]), min(1.0, pulls[0] / pulls[1])]
    dual = 0.0
    for (_, lost, along, odds), r in zip(sums, shares, strict=True):
        least = at_least(lost, along, odds, r)
        dual += max(least, dual_terms(loss).shrunk(lost, along, odds, r)) if r < 1 and finite else least
    v = shares[0] * shared.side + shares[1] * (shared.total - shared.side)
    return max(0.0, dual - 0.5 * dot(v[:-1], v[:-1]))


def place(shared: Shared, weights: np.ndarray, params: Params) -> None:
    """Begin at such weights, without a start from nothing."""
    shared.weights[:] = weights
    shared.point[:] = shared.weights
    shared.scalars[KIND] = GRADIENT


# Methods

PASSES = Param("start", 5, 0, 1000, "passes of dual coordinate descent at the start", integer=True)
OWN_PASSES = dataclasses.replace(PASSES, several=0, doc=f"{PASSES.doc}; by default none in several groups")
SAMPLE = Param(
    "sample",
    None,
    0.0,
    1.0,
    "share of the rows used in products with the Hessian (none: all of them, out of core a fifth or what fits)",
    open_low=True,
)
# What methods share that take their steps from sums over all rows
BY_SUMS: dict[str, Any] = dict(
    losses=having(is_dual, is_smooth, first="logistic", last="squared"),
    penalties=("l2",),
    bias=("feature", "free", "none"),
    rows=Rows,
    bind=bind,
    update=functools.cache(sums),
    kinds=kinds,
    scaled=functools.cache(scaled),
    finish=finish,
    sums=SUMS,
    forget=forget,
    reading=reading,
    way=way,
    again=again,
    place=place,
    mixings={"sum": totals(*SUMS, sharing=True)},
    mixing="sums over all rows: the answer does not depend on the groups",
    weight_meaning="multiplies C",
    epochs=10_000,
    tol=1e-3,
)

METHODS = (
    steps(
        name="newton",
        title="Newton's method with preconditioned conjugate gradients and line search, certified",
        paper="Lin, Weng, Keerthi, JMLR 2008; Hsia, Zhu, Lin, ACML 2017; Galli and Lin 2021",
        formula="(I + C X' D X) d = -g by conjugate gradients;  w <- w + t d",
        params=(COST, EPSILON, OWN_PASSES, SAMPLE),
        shared=begin,
        absorb=functools.cache(absorb),
        aims=True,
        **BY_SUMS,
    ),
)
