"""Stochastic Newton steps with a diagonal second derivative, on  lambda/2 ||w||^2 + (1/l) sum_i loss(s_i w.x_i).

What the rows so far say of w is kept as a quadratic with the diagonal D about w. Row t adds lambda/2 ||w||^2 and its
own loss to second order, c = loss''(m); the minimiser of that sum is the new w, of the new second derivative
D + c x x' only the diagonal is kept:

    D <- D + lambda;  w <- (1 - lambda / D) w                            D = 1/eta0 at first
    w <- w - (loss'(m) / (1 + c v)) D^-1 s x,   v = x' D^-1 x;           D_j <- D_j + c x_j^2

Second-order steps for online linear learners need a loss that bends: the hinge's second derivative is 0 wherever it
exists, so that its inverse has no meaning, and finite differences of its gradients (SGD-QN: Bordes, Bottou, Gallinari,
JMLR 2009, and its erratum, JMLR 2010) measure how often rows lie at the corner. For the losses here loss'' is known in
closed form, at no cost and without noise; 1 + c v keeps correlated features from overshooting together, which a plain
division by the diagonal (Becker and LeCun, 1989; LeCun, Bottou, Orr, Mueller, 1998) does not.

D_j = 1/eta0 + h_j + lambda t and z = D w are kept: regularising changes neither, so that a step costs its row's
entries. Copies are mixed by the mean of z, h and t: their sums, which would count each row once and are right where
D is the whole second derivative, go K times too far where features are correlated (measured: no convergence).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.compiled.jit import at, entry, kernel, prefetch_ahead, prefetch_weights
from bigclf.maths.block import Counts
from bigclf.maths.losses import Loss, having, is_gradient, is_smooth
from bigclf.maths.mixing import MEAN, OF_WEIGHTS
from bigclf.methods.common import LAM, MOMENTUM_FIRST, gradient
from bigclf.methods.method import Param, by_momentum, by_shares

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


MOST = 1e30  # that a row may add to D, or z = D w would leave float32: a longer row has a smaller weight


class Shared(NamedTuple):
    """weights : [feature + 1], z = D w, the bias last; bends : float64 [feature + 1], h; clock : float64 [1], t."""

    weights: np.ndarray
    bends: np.ndarray
    clock: np.ndarray


class Params(NamedTuple):
    """lam : lambda; start : 1 / eta0; bias : value of the constant feature (1.0 or 0.0); free : 1.0 where its weight is
    not regularised."""

    lam: float
    start: float
    bias: float
    free: float


def bind(settings: Numbers) -> Params:
    return Params(settings["lam"], 1.0 / settings["eta0"], settings["bias"], settings["free_bias"])


def shared(n_features: int, dtype: DTypeLike, settings: Mapping[str, object]) -> Shared:
    return Shared(np.zeros(n_features + 1, dtype), np.zeros(n_features + 1), np.zeros(1))


def newton(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order``."""
    regression, value_of, slope, curvature = loss.regression, loss.value, loss.slope, loss.curvature

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        z, h, clock = shared.weights, shared.bends, shared.clock
        last = z.size - 1
        mistakes, updates, total = 0, 0, np.float64(0)
        for k in range(order.size):
            prefetch_ahead(block, order, k)
            prefetch_weights(block, order, k, z)
            prefetch_weights(block, order, k, h)
            i = order[k]
            y, weight = block.labels[i], block.weights[i]
            sign = 1.0 if regression else y
            clock[0] += 1.0
            base = params.start + params.lam * clock[0]
            d = h[last] + (params.start if params.free else base)
            product, v = params.bias * z[last] / d, params.bias * params.bias / d
            for p in range(block.indptr[i], block.indptr[i + 1]):
                j = at(block.indices, p)
                x = entry(block, i, p)
                each = x / (base + h[j])
                product += each * z[j]
                v += each * x
            m = sign * product
            value = value_of(m, y, 0.0)
            mistakes += value > 0 if regression else m <= 0
            total += weight * value
            weight = min(weight, MOST / max(1.0, block.norms[i] + params.bias))
            g, c = weight * slope(m, y, 0.0) * sign, weight * curvature(m, y, 0.0)
            if g != 0:
                step = g / (1.0 + c * v)
                for p in range(block.indptr[i], block.indptr[i + 1]):
                    j = at(block.indices, p)
                    x = entry(block, i, p)
                    a = base + h[j]
                    z[j] = (z[j] - step * x) * (1.0 + c * x * x / a)  # w D: of the new w and the new D
                    h[j] += c * x * x
                z[last] = (z[last] - step * params.bias) * (1.0 + c * params.bias * params.bias / d)
                h[last] += c * params.bias * params.bias
                updates += 1
        return Counts(order.size, mistakes, updates, total, 0.0)

    return update


def diagonal(shared: Shared, params: Params) -> np.ndarray:
    """D, float64 [feature + 1]."""
    d = shared.bends + (params.start + params.lam * float(shared.clock[0]))
    if params.free:
        d[-1] = shared.bends[-1] + params.start
    return d


def weights(shared: Shared, params: Params) -> np.ndarray:
    """w = z / D, float64 [feature + 1]."""
    return shared.weights / diagonal(shared, params)  # type: ignore[no-any-return]


def place(shared: Shared, weights: np.ndarray, params: Params) -> None:
    """Begin with the weights [feature + 1] of a model."""
    shared.weights[:] = weights * diagonal(shared, params)


# Methods

METHODS = (
    gradient(
        "sgd_newton",
        "diagonal Newton steps (second-order stochastic gradient descent)",
        "Becker and LeCun, 1989; Bordes, Bottou, Gallinari, JMLR 2009",
        "D <- D + lam;  w <- (1 - lam / D) w;  w <- w - (loss'(m) / (1 + loss''(m) x'D^-1 x)) D^-1 y x;  "
        "D_j <- D_j + loss''(m) x_j^2",
        params=(LAM, Param("eta0", 1.0, 0.0, 1e30, "initial inverse of the second derivative", open_low=True)),
        losses=having(is_gradient, is_smooth, first="logistic"),
        shared=shared,
        bind=bind,
        update=functools.cache(newton),
        weights=weights,
        place=place,
        mixings=by_momentum(MEAN, OF_WEIGHTS) | by_shares(MEAN),
        mixing=MOMENTUM_FIRST,
    ),
)
