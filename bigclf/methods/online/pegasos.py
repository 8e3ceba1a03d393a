"""Pegasos: primal estimated sub-gradient solver (Shalev-Shwartz, Singer, Srebro, ICML 2007; with Cotter, Math. Program.
2011, Figures 1 and 2) of  lambda/2 ||w||^2 + (1/l) sum_i loss(s_i w.x_i).

Step t takes a mini-batch A of k rows, all judged by the same w:

    w <- (1 - 1/t) w - (1 / (lambda t k)) sum_{i in A} loss'(m_i) s_i x_i
    w <- min(1, 1 / (sqrt(lambda) ||w||)) w                                    (the projection, an option)

For a loss whose slope is at most 1, the average of w over t steps lies at most c (1 + ln t) / (2 lambda t) above the
optimum, c = (sqrt(lambda) + R)^2, R the largest norm of a row. Losses without such a bound are left out.

w = s v, so that shrinking costs nothing; ||w||^2 is kept along. A mini-batch that meets the end of its block is
shorter. The first step forgets what was there before it, so that a run cannot begin with a model's weights.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import axpy, dot, dot_ahead, inner, kernel
from bigclf.maths.block import Counts
from bigclf.maths.losses import Loss, having, is_flat, is_gradient
from bigclf.maths.mixing import MEASURED, OF_MEASURED
from bigclf.methods.common import EPSILON, WITH_MOMENTUM, gradient
from bigclf.methods.method import Param, by_momentum, by_shares, choice

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


SMALLEST = 1e-9  # scale below which v is multiplied out, so that neither over- nor underflows
LARGEST = 1e30  # step of v above which the scale takes it over, since float32 ends at 3e38


class Shared(NamedTuple):
    """weights : [feature + 1], v of w = s v, the bias last; scale : float64 [1], s; square : float64 [1], ||w||^2;
    clock : float64 [1], steps t."""

    weights: np.ndarray
    scale: np.ndarray
    square: np.ndarray
    clock: np.ndarray


class Params(NamedTuple):
    """lam : lambda; batch : k; projection : 1.0 or 0.0; epsilon : half the width of the tube; bias : value of the
    constant feature (1.0 or 0.0)."""

    lam: float
    batch: int
    projection: float
    epsilon: float
    bias: float


def bind(settings: dict[str, Any]) -> Params:
    projection = float(settings["projection"] == "on")
    return Params(settings["lam"], settings["batch"], projection, settings.get("epsilon", 0.0), settings["bias"])


def shared(n_features: int, dtype: DTypeLike, settings: Mapping[str, object]) -> Shared:
    return Shared(np.zeros(n_features + 1, dtype), np.ones(1), np.zeros(1), np.zeros(1))


def pegasos(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order``; ``scores`` holds the slopes of a mini-batch."""
    regression, value_of, slope = loss.regression, loss.value, loss.slope

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        weights, scale, square, clock, e = shared.weights, shared.scale, shared.square, shared.clock, params.epsilon
        last = weights.size - 1
        mistakes, updates, total = 0, 0, np.float64(0)
        first = 0
        while first < order.size:
            end = min(order.size, first + params.batch)
            for k in range(first, end):
                i = order[k]
                y, c = block.labels[i], block.weights[i]
                sign = 1.0 if regression else y
                m = sign * scale[0] * (dot_ahead(block, order, k, weights) + params.bias * weights[last])
                value = value_of(m, y, e)
                mistakes += value > 0 if regression else m <= 0
                total += c * value
                scores[i] = -c * slope(m, y, e) * sign / (end - first)
            clock[0] += 1.0
            if clock[0] > 1:
                scale[0] *= 1.0 - 1.0 / clock[0]
                square[0] *= (1.0 - 1.0 / clock[0]) * (1.0 - 1.0 / clock[0])
            rate = 1.0 / (params.lam * clock[0])
            for k in range(first, end):
                i = order[k]
                if scores[i] != 0:
                    step = rate * scores[i]
                    m = scale[0] * (dot(block, i, weights) + params.bias * weights[last])
                    # ||w + a x||^2 = ||w||^2 + 2 a w.x + a^2 ||x||^2
                    square[0] += step * (2.0 * m + step * (block.norms[i] + params.bias * params.bias))
                    reach = abs(step) * math.sqrt(block.norms[i] + params.bias)
                    if reach > LARGEST * scale[0]:
                        for j in range(weights.size):
                            weights[j] *= scale[0] / reach
                        scale[0] = reach
                    axpy(step / scale[0], block, i, weights)
                    weights[last] += params.bias * step / scale[0]
                    updates += 1
                scores[i] = 0.0
            if params.projection and params.lam * square[0] > 1:
                scale[0] /= math.sqrt(params.lam * square[0])
                square[0] = 1.0 / params.lam
            if scale[0] < SMALLEST:
                for j in range(weights.size):
                    weights[j] *= scale[0]
                scale[0] = 1.0
            first = end
        return Counts(order.size, mistakes, updates, total, 0.0)

    return update


def weights(shared: Shared, params: Params) -> np.ndarray:
    """w = s v, [feature + 1]."""
    return shared.weights * shared.scale[0].astype(shared.weights.dtype)  # type: ignore[no-any-return]


def finish(shared: Shared, params: Params) -> None:
    """Multiply the scale out, and make ||w||^2 anew."""
    shared.weights[:] *= shared.scale[0].astype(shared.weights.dtype)
    shared.scale[:] = 1
    shared.square[:] = inner(shared.weights, shared.weights)


# Methods

METHODS = (
    gradient(
        "pegasos",
        "Pegasos",
        "Shalev-Shwartz, Singer, Srebro, ICML 2007; with Cotter, Math. Program. 2011",
        "w <- (1 - 1/t) w - (1 / (lam t k)) sum over k rows of loss'(y w.x) y x;  w <- min(1, 1/(sqrt(lam) ||w||)) w",
        params=(
            Param(
                "lam",
                1e-5,
                0.0,
                1e30,
                "price of the penalty beside the mean loss of a row; the rate is 1/(lam t): with few rows times epochs "
                "take a larger one, about 50 over their number",
                open_low=True,
            ),
            Param("batch", 1, 1, 1e9, "rows per mini-batch; a mini-batch ends with its block", integer=True),
            choice("projection", ("on", "off"), "onto the ball of radius 1/sqrt(lam), where the optimum lies"),
            EPSILON,
        ),
        losses=having(is_gradient, is_flat),
        bias=("feature", "none"),
        shared=shared,
        bind=bind,
        update=functools.cache(pegasos),
        weights=weights,
        finish=finish,
        mixings=by_shares(MEASURED) | by_momentum(MEASURED, OF_MEASURED),
        mixing=WITH_MOMENTUM,
        in_pieces=False,
        place=None,
        bounded=False,
    ),
)
