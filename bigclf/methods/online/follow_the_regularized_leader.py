"""FTRL-proximal, one rate a feature (McMahan et al., KDD 2013, Algorithm 1; McMahan, AISTATS 2011).

The weights minimise the sum of all gradients so far, a quadratic about each earlier w, and two penalties:

    w = argmin_w  sum_s g_s . w + 1/2 sum_s sigma_s ||w - w_s||^2 + l1 ||w||_1 + l2/2 ||w||^2

which place by place has the closed form, with z = sum_s g_s - sigma_s w_s and n = sum_s g_s^2,

    w = 0 where |z| <= l1, else  -(z - sign(z) l1) / ((beta + sqrt(n)) / alpha + l2)

A row with the gradient g = loss'(m) s x:  sigma = (sqrt(n + g^2) - sqrt(n)) / alpha;  z <- z + g - sigma w;
n <- n + g^2. The penalties are of the sum over rows, not of the mean: l1 and l2 do not grow with t. A free bias has
none. A row's weight multiplies its loss.

In each of K groups a row stands for K rows:  z <- z + K g - sigma w,  n <- n + K g^2,  so that the mean of the copies'
z and n is what one learner would have of all rows, but for where the gradients were taken.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.compiled.jit import at, entry, inlined, kernel, prefetch_ahead, prefetch_weights
from bigclf.maths.block import Counts
from bigclf.maths.losses import Loss, having, is_gradient, slope_within
from bigclf.maths.penalties import truncated
from bigclf.methods.common import EPSILON, gradient
from bigclf.methods.method import Param

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


class Shared(NamedTuple):
    """weights : [feature + 1], z, the bias last; squares : float64 [feature + 1], n."""

    weights: np.ndarray
    squares: np.ndarray


class Params(NamedTuple):
    """alpha, beta, l1, l2 : as above; epsilon : half the width of the tube; bias : value of the constant feature (1.0
    or 0.0); free : 1.0 where its weight has no penalty; copies : as how many rows a row counts."""

    alpha: float
    beta: float
    l1: float
    l2: float
    epsilon: float
    bias: float
    free: float
    copies: float = 1.0


def bind(settings: Numbers) -> Params:
    alpha, beta, l1, l2 = (settings[name] for name in ("alpha", "beta", "l1", "l2"))
    epsilon, bias, free = settings.get("epsilon", 0.0), settings["bias"], settings["free_bias"]
    return Params(alpha, beta, l1, l2, epsilon, bias, free, float(settings.get("groups", 1)))


def shared(n_features: int, dtype: DTypeLike, settings: Mapping[str, object]) -> Shared:
    return Shared(np.zeros(n_features + 1, dtype), np.zeros(n_features + 1))


@inlined
def made(z, root, alpha, beta, l1, l2):  # type: ignore[no-untyped-def]
    """w of z and sqrt(n)."""
    return -truncated(z, l1) / ((beta + root) / alpha + l2)


def ftrl(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order``."""
    regression, value_of, slope = loss.regression, loss.value, loss.slope

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        z, squares, e = shared.weights, shared.squares, params.epsilon
        alpha, beta, l1, l2 = params.alpha, params.beta, params.l1, params.l2
        own1, own2 = (0.0, 0.0) if params.free else (l1, l2)
        copies = params.copies
        last = z.size - 1
        mistakes, updates, total = 0, 0, np.float64(0)
        for k in range(order.size):
            prefetch_ahead(block, order, k)
            prefetch_weights(block, order, k, z)
            prefetch_weights(block, order, k, squares)
            i = order[k]
            y, c = block.labels[i], block.weights[i]
            sign = 1.0 if regression else y
            product = params.bias * made(np.float64(z[last]), math.sqrt(squares[last]), alpha, beta, own1, own2)
            for p in range(block.indptr[i], block.indptr[i + 1]):
                j = at(block.indices, p)
                product += made(np.float64(z[j]), math.sqrt(squares[j]), alpha, beta, l1, l2) * entry(block, i, p)
            m = sign * product
            value = value_of(m, y, e)
            mistakes += value > 0 if regression else m <= 0
            total += c * value
            slant = slope_within(c * slope(m, y, e) * sign, block.norms[i] + params.bias)
            if slant != 0:
                for p in range(block.indptr[i], block.indptr[i + 1]):
                    j = at(block.indices, p)
                    g = slant * entry(block, i, p)
                    before, after = math.sqrt(squares[j]), math.sqrt(squares[j] + copies * g * g)
                    w = made(np.float64(z[j]), before, alpha, beta, l1, l2)
                    z[j] += copies * g - (after - before) / alpha * w
                    squares[j] += copies * g * g
                g = slant * params.bias
                before, after = math.sqrt(squares[last]), math.sqrt(squares[last] + copies * g * g)
                w = made(np.float64(z[last]), before, alpha, beta, own1, own2)
                z[last] += copies * g - (after - before) / alpha * w
                squares[last] += copies * g * g
                updates += 1
        return Counts(order.size, mistakes, updates, total, 0.0)

    return update


def weights(shared: Shared, params: Params) -> np.ndarray:
    """w, float64 [feature + 1]."""
    l1, l2 = _penalties(shared.weights.size, params)
    z = shared.weights.astype(np.float64)
    curvature = (params.beta + np.sqrt(shared.squares)) / params.alpha + l2
    return -np.sign(z) * np.maximum(0.0, np.abs(z) - l1) / curvature  # type: ignore[no-any-return]


def place(shared: Shared, weights: np.ndarray, params: Params) -> None:
    """Begin with the weights [feature + 1] of a model: the z that makes them."""
    l1, l2 = _penalties(weights.size, params)
    shared.weights[:] = -weights * (params.beta / params.alpha + l2) - np.sign(weights) * l1


def _penalties(n: int, params: Params) -> tuple[np.ndarray, np.ndarray]:
    """l1 and l2 of every weight: none of a free bias."""
    of = np.ones(n)
    if params.free:
        of[-1] = 0
    return params.l1 * of, params.l2 * of


# Methods

METHODS = (
    gradient(
        "ftrl",
        "FTRL-proximal",
        "McMahan et al., KDD 2013",
        "n <- n + g^2;  z <- z + g - sigma w;  w = -(z - sign(z) l1) / ((beta + sqrt(n)) / alpha + l2), 0 at |z| <= l1",
        params=(
            Param("alpha", 0.1, 0.0, 1e30, "learning rate", open_low=True),
            Param("beta", 1.0, 0.0, 1e30, "number added to sqrt(n)", open_low=True),
            Param("l1", 0.0, 0.0, 1e30, "weight of ||w||_1 beside the sum of all losses"),
            Param("l2", 1.0, 0.0, 1e30, "weight of ||w||^2 / 2 beside the sum of all losses"),
            EPSILON,
        ),
        losses=having(is_gradient, first="logistic"),
        clocked=False,
        shared=shared,
        bind=bind,
        update=functools.cache(ftrl),
        weights=weights,
        place=place,
    ),
)
