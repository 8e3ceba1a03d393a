"""Winnow (Littlestone, MLJ 1988): weights that are multiplied, for rows most of whose features are irrelevant.

On a mistake, m = y w.x <= 0, with values divided by X, the largest there is (or 1):

    theta <- theta + eta y x / X,    w_j = exp(theta_j) / sum_k exp(theta_k)                           (normalised)
                                     w_j = sinh(theta_j) / sum_k cosh(theta_k)                         (balanced)

The balanced form is the normalised one on [x, -x]: the exponents of a feature and of its mirror image are each other's
negative, so that one number a feature is all there is. Rows that some u with ||u||_1 = 1 (u >= 0 in the first form)
separates by gamma cause at most 2 X^2 ln(n) / gamma^2 mistakes with eta = gamma / X, n counting mirror images too.

    theta <- theta + ln(alpha) y x / X,    w_j = exp(theta_j),    predicted is  w.x > threshold        (Winnow2)

Of the normalised forms a mistake is known by signs alone and those do not need the sum. Each row divides by the largest
exponential among its own features, so that nothing overflows, and a mistake costs the row's entries.

The constant feature of a bias is divided by X as every value is: it is a column of ones.

X is the largest value seen so far. When a larger one comes theta shrinks, as if it had been known from the start.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import axpy, entry, inlined, kernel, prefetch_ahead, prefetch_weights
from bigclf.maths.block import Counts
from bigclf.maths.mixing import Rule, accumulate, interpolate
from bigclf.methods.common import SIGNS
from bigclf.methods.method import Param, by_shares, online

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


class Shared(NamedTuple):
    """weights : theta [feature + 1], the last one the bias; largest : float64 [1], X."""

    weights: np.ndarray
    largest: np.ndarray


class Params(NamedTuple):
    """eta : the rate; mirror : 1.0 where each feature counts with both signs, 0.0 where weights are not negative;
    bias : value of the constant feature (1.0 or 0.0)."""

    eta: float
    mirror: float
    bias: float


class Threshold(NamedTuple):
    """alpha : factor of a weight; threshold : what w.x has to exceed (0: the number of features); bias : value of the
    constant feature (1.0 or 0.0)."""

    alpha: float
    threshold: float
    bias: float


def begin(n_features: int, dtype: DTypeLike, settings: Numbers) -> Shared:
    return Shared(np.zeros(n_features + 1, dtype), np.ones(1))


def bind(settings: Numbers) -> Params:
    return Params(settings["eta"], float(settings["signs"] == "both"), settings["bias"])


def bind_threshold(settings: Numbers) -> Threshold:
    return Threshold(settings["alpha"], settings["threshold"] or 0.0, settings["bias"])


@inlined
def largest_entry(block, i):  # type: ignore[no-untyped-def]
    """max_j |x_ij|"""
    most = np.float64(0)
    for p in range(block.indptr[i], block.indptr[i + 1]):
        most = max(most, abs(entry(block, i, p)))
    return most


@inlined
def grow(block, i, theta, largest):  # type: ignore[no-untyped-def]
    """Know of the row's largest value."""
    most = largest_entry(block, i)
    if most > largest[0]:
        for j in range(theta.size):
            theta[j] *= largest[0] / most
        largest[0] = most


@inlined
def most_of(block, i, theta, bias, least):  # type: ignore[no-untyped-def]
    """The largest of ``least`` and |theta_j| among the row's features."""
    most = least
    if bias > 0:
        most = max(most, abs(np.float64(theta[theta.size - 1])))
    for p in range(block.indptr[i], block.indptr[i + 1]):
        most = max(most, abs(np.float64(theta[block.indices[p]])))
    return most


@inlined
def balance(theta, most, mirror):  # type: ignore[no-untyped-def]
    """(e^theta - mirror e^-theta) e^-most, as exact where theta is tiny."""
    if mirror == 0:
        return math.exp(theta - most)
    return math.copysign(math.exp(abs(theta) - most) * -math.expm1(-2 * abs(theta)), theta)


@kernel
def winnow(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
    """One pass over the rows of ``order``; a row's weight multiplies its step, and a mistake's loss is 1."""
    theta, largest = shared.weights, shared.largest
    last = theta.size - 1
    mistakes = 0
    for k in range(order.size):
        prefetch_ahead(block, order, k)
        prefetch_weights(block, order, k, theta)
        i = order[k]
        y = block.labels[i]
        grow(block, i, theta, largest)
        most, m = most_of(block, i, theta, params.bias, 0.0), np.float64(0)
        for p in range(block.indptr[i], block.indptr[i + 1]):
            m += balance(np.float64(theta[block.indices[p]]), most, params.mirror) * entry(block, i, p)
        if params.bias > 0:
            m += balance(np.float64(theta[last]), most, params.mirror)
        if y * m <= 0:
            step = params.eta * block.weights[i] * y / largest[0]
            axpy(step, block, i, theta)
            theta[last] += params.bias * step
            mistakes += 1
    return Counts(order.size, mistakes, mistakes, np.float64(mistakes), 0.0)


@kernel
def winnow2(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
    """One pass over the rows of ``order``; a row's weight multiplies its step, and a mistake's loss is 1."""
    theta, largest, rate = shared.weights, shared.largest, math.log(params.alpha)
    last = theta.size - 1
    limit = math.log(params.threshold if params.threshold > 0 else max(1.0, np.float64(last)))
    mistakes = 0
    for k in range(order.size):
        prefetch_ahead(block, order, k)
        prefetch_weights(block, order, k, theta)
        i = order[k]
        y = block.labels[i]
        grow(block, i, theta, largest)
        most = most_of(block, i, theta, params.bias, limit)
        m = -math.exp(limit - most)  # (w.x / X - threshold) e^-most
        for p in range(block.indptr[i], block.indptr[i + 1]):
            m += math.exp(np.float64(theta[block.indices[p]]) - most) * entry(block, i, p) / largest[0]
        if params.bias > 0:
            m += math.exp(np.float64(theta[last]) - most) / largest[0]
        if y * m <= 0:
            step = rate * block.weights[i] * y / largest[0]
            axpy(step, block, i, theta)
            theta[last] += params.bias * step
            mistakes += 1
    return Counts(order.size, mistakes, mistakes, np.float64(mistakes), 0.0)


def weights(shared: Shared, params: Params) -> np.ndarray:
    """w [feature + 1], ||w||_1 <= 1."""
    theta = shared.weights.astype(np.float64)
    there = np.append(np.ones(theta.size - 1), params.bias)
    most = np.abs(theta).max()
    up, down = there * np.exp(theta - most), there * np.exp(-theta - most)
    if params.mirror:  # sinh is exact where theta is tiny
        up, total = np.copysign(np.exp(np.abs(theta) - most) * -np.expm1(-2 * np.abs(theta)), theta) * there, up + down
    else:
        total = up
    return np.asarray(up / total.sum(), shared.weights.dtype)


def threshold_weights(shared: Shared, params: Threshold) -> np.ndarray:
    """w / X and, last, minus the threshold (with the weight of the constant feature); in units of the largest."""
    theta = shared.weights.astype(np.float64)
    limit = math.log(params.threshold or max(1.0, theta.size - 1))
    most = max(limit, float(theta.max()))
    w = np.exp(theta - most) / shared.largest[0]
    w[-1] = params.bias * w[-1] - np.exp(limit - most)
    return np.asarray(w, shared.weights.dtype)


def told(shared: Shared, params: Params) -> dict[str, float]:
    return {"largest_value": float(shared.largest[0])}


def _add(total: Any, start: Any, copy: Any, share: float) -> None:
    accumulate(total.weights, start.weights, copy.weights, float(share))
    total.largest[0] = max(total.largest[0], copy.largest[0] - start.largest[0])


def _join(total: Any, start: Any, shares: float) -> Shared:
    weights = np.empty_like(start.weights)
    interpolate(start.weights, total.weights, 1.0 / shares if shares > 0 else 0.0, weights)
    return Shared(weights, start.largest + total.largest)


# The mean of theta (of w the geometric mean, normalised); X is the largest that any copy knows.
EXPONENTS = Rule(_add, _join)


# Methods

METHODS = (
    online(
        name="winnow",
        title="Winnow, normalised or balanced",
        paper="Littlestone, MLJ 1988; Grove, Littlestone, Schuurmans, MLJ 2001",
        formula="y w.x <= 0:  theta <- theta + eta y x / max |x|;  w = exp(theta) / sum (sinh(theta) / sum cosh)",
        params=(Param("eta", 0.1, 0.0, 1e30, "learning rate; margin / max |x| is best", open_low=True), SIGNS),
        shared=begin,
        bind=bind,
        update=lambda loss: winnow,
        weights=weights,
        told=told,
        place=None,
        mixings=by_shares(EXPONENTS),
        mixing="mean of theta by rows, uniform or by mistakes",
        weight_meaning="multiplies the step",
        bounded=False,
    ),
    online(
        name="winnow2",
        title="Winnow2: weights >= 0 against a threshold",
        paper="Littlestone, MLJ 1988",
        formula="w.x on the wrong side of the threshold:  w_j <- w_j alpha^(y x_j / max |x|)",
        params=(
            Param("alpha", 2.0, 1.0, 1e30, "factor of each update", open_low=True),
            Param("threshold", None, 1e-300, 1e300, "value that w.x must exceed (none: the number of features)"),
        ),
        shared=begin,
        bind=bind_threshold,
        update=lambda loss: winnow2,
        weights=threshold_weights,
        told=told,
        place=None,
        mixings=by_shares(EXPONENTS),
        mixing="mean of ln w by rows, uniform or by mistakes",
        weight_meaning="multiplies the step",
        threshold=True,
        separates=False,  # by weights of one sign
        bounded=False,
    ),
)
