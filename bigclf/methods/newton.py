"""Newton's method with conjugate gradients for the smooth losses (Lin, Weng, Keerthi, JMLR 2008; Hsia, Zhu, Lin, ACML
2017; preconditioned, with a line search: Galli and Lin, Optimization Methods and Software 2021).

    min_w  P(w) = 1/2 ||w||^2 + sum_i C_i loss(s_i w.x_i)
    g = w + sum_i C_i loss'(m_i) s_i x_i,    H d = d + sum_i C_i loss''(m_i) (d.x_i) x_i

Only sums over rows are needed: the gradient and the diagonal of H at a point, or H d for the direction d that conjugate
gradients ask about. A read is one of these; what lies between two reads is ``absorb``. So the answer depends neither on
the order of rows nor on who added up what, and the same groups give the same bits whatever workers there are.

The dual variables a_i = -C_i loss'(m_i) are feasible, and their w is w - g. So each gradient brings its certificate:
P(w) - D(a) = 1/2 ||g||^2, by the equality in Fenchel's inequality on each row.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from bigclf.block import Counts
from bigclf.jit import axpy, dot_ahead, entry, inner, kernel, prefetch_ahead
from bigclf.losses import curvature, is_regression, loss_value, slope
from bigclf.methods.method import Step

GRADIENT, PRODUCT = 0.0, 1.0
FORCING = 0.5  # conjugate gradients go on while a step still adds this share of the mean gain of those before
ARMIJO = 0.01  # share of the decrease promised by the slope that a step must keep
HALVINGS = 40
SCALED = 0.01  # share of the Hessian's diagonal in the preconditioner, the rest the regulariser's
MOST_PRODUCTS = 1000  # of one Newton step


class Shared(NamedTuple):
    """weights : [feature + 1], where the next gradient is taken; probe : [feature + 1], what the Hessian is multiplied
    with; float64 [feature + 1] each: point, the last point that was taken; step, from there; residual, -g - H step;
    total, the sum over rows of the read; diagonal, sum_i C_i loss'' x_ij^2; figures : float64 [1], the sum of losses;
    scalars : float64 [entry], see ``Scalars``."""

    weights: np.ndarray
    probe: np.ndarray
    point: np.ndarray
    step: np.ndarray
    residual: np.ndarray
    total: np.ndarray
    diagonal: np.ndarray
    figures: np.ndarray
    scalars: np.ndarray


SUMS = ("total", "diagonal", "figures")


class Rows(NamedTuple):
    """curvature : float64 [row], C_i loss''(m_i) at the point."""

    curvature: np.ndarray


class Params(NamedTuple):
    """C : price of a unit of loss, times the row's weight; bias : value of the constant feature (1.0 or 0.0);
    epsilon : half the width of the tube."""

    C: float
    bias: float
    epsilon: float


# Places in ``scalars``: what the next read is for; P at the point; the length of the step that is tried (0: none was);
# value of the quadratic model; r.M^-1 r; products so far; when conjugate gradients end.
KIND, VALUE, LENGTH, MODEL, SQUARE, PRODUCTS, GOAL = range(7)


def begin(n_features: int, dtype: Any, settings: dict[str, Any]) -> Shared:
    """A state at w = 0."""
    n = n_features + 1
    arrays = [np.zeros(n, dtype) for _ in range(2)] + [np.zeros(n) for _ in range(5)]
    return Shared(*arrays, np.zeros(1), np.zeros(7))


def sums(loss: int):  # type: ignore[no-untyped-def]
    """Kernel of a read: gradient, diagonal and curvatures, or a product with the Hessian."""
    regression = is_regression(loss)

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        total, last, e = shared.total, shared.total.size - 1, params.epsilon
        mistakes, loss_sum = 0, np.float64(0)
        if shared.scalars[KIND] == PRODUCT:
            probe = shared.probe
            for k in range(order.size):
                prefetch_ahead(block, order, k)
                i = order[k]
                h = rows.curvature[block.ids[i]]
                if h != 0:
                    t = h * (dot_ahead(block, order, k, probe) + params.bias * probe[last])
                    axpy(t, block, i, total)
                    total[last] += params.bias * t
            return Counts(order.size, 0, 0, 0.0, 0.0)
        weights, diagonal = shared.weights, shared.diagonal
        for k in range(order.size):
            prefetch_ahead(block, order, k)
            i = order[k]
            t, c = block.labels[i], params.C * block.weights[i]
            s = 1.0 if regression else t
            m = s * (dot_ahead(block, order, k, weights) + params.bias * weights[last])
            value = loss_value(loss, m, t, e)
            mistakes += value > 0 if regression else m <= 0
            loss_sum += c * value
            g = c * slope(loss, m, t, e) * s
            h = c * curvature(loss, m, t, e)
            rows.curvature[block.ids[i]] = h
            if g != 0:
                axpy(g, block, i, total)
                total[last] += params.bias * g
            if h != 0:
                for p in range(block.indptr[i], block.indptr[i + 1]):
                    x = entry(block, i, p)
                    diagonal[block.indices[p]] += h * x * x
                diagonal[last] += params.bias * params.bias * h
        shared.figures[0] += loss_sum
        return Counts(order.size, mistakes, order.size, loss_sum, 0.0)

    return update


def absorb(shared: Shared, params: Params) -> Step:
    """From the sums of a read to the next one."""
    return multiplied(shared) if shared.scalars[KIND] == PRODUCT else looked(shared)


def looked(shared: Shared) -> Step:
    """The gradient at ``weights`` is known: take the point or a shorter step, and begin conjugate gradients."""
    weights = shared.weights.astype(np.float64)
    shared.residual[:] = -(weights + shared.total)
    value = 0.5 * inner(weights, weights) + float(shared.figures[0])
    told = value, value - 0.5 * inner(shared.residual, shared.residual), shared.weights.copy()
    length, promised = shared.scalars[LENGTH], 2.0 * shared.scalars[MODEL]
    if length > 0 and value > shared.scalars[VALUE] + ARMIJO * length * promised:
        if length < 0.5**HALVINGS:
            return Step(*told, over="stalled")
        shared.scalars[LENGTH] = 0.5 * length
        shared.weights[:] = shared.point + 0.5 * length * shared.step
        clear(shared)
        return Step(*told)
    shared.point[:] = weights
    shared.scalars[VALUE] = value
    shared.diagonal[:] = 1.0 - SCALED + SCALED * (1.0 + shared.diagonal)
    z = shared.residual / shared.diagonal
    square = inner(shared.residual, z)
    if square == 0:
        return Step(*told, over="done")
    shared.probe[:] = z
    shared.step[:] = 0.0
    shared.total[:] = 0.0
    shared.scalars[[KIND, MODEL, SQUARE, PRODUCTS]] = PRODUCT, 0.0, square, 0
    shared.scalars[GOAL] = min(FORCING, math.sqrt(math.sqrt(square)))
    return Step(*told)


def multiplied(shared: Shared) -> Step:
    """H d is known: a step of preconditioned conjugate gradients."""
    direction, step, residual = shared.probe.astype(np.float64), shared.step, shared.residual
    image = direction + shared.total
    square = float(shared.scalars[SQUARE])
    a = square / inner(direction, image)
    step += a * direction
    residual -= a * image
    gain = 0.5 * a * square
    shared.scalars[MODEL] -= gain
    shared.scalars[PRODUCTS] += 1
    z = residual / shared.diagonal
    shared.scalars[SQUARE] = following = inner(residual, z)
    count, model = shared.scalars[PRODUCTS], -shared.scalars[MODEL]
    if count * gain <= shared.scalars[GOAL] * model or following == 0 or count >= MOST_PRODUCTS:
        shared.scalars[LENGTH] = 1.0
        shared.weights[:] = shared.point + step
        clear(shared)
    else:
        shared.probe[:] = z + following / square * direction
        shared.total[:] = 0.0
    return Step(facts={"products": 1})


def clear(shared: Shared) -> None:
    """The next read is for a gradient."""
    shared.scalars[KIND] = GRADIENT
    for name in SUMS:
        getattr(shared, name)[:] = 0.0


def place(shared: Shared, weights: np.ndarray, params: Params) -> None:
    """Begin at such weights."""
    shared.weights[:] = weights
