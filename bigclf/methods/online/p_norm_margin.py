"""PUMMA, the p-norm utilizing maximum margin algorithm (Ishibashi, Hatano, Takeda, COLT 2008), for p >= 2.

On a row with y (w.x + b) < 1 - delta, all that is kept of the rows before is one half space, w.f(w_t) >= ||w_t||_q^2
(f inverts g, the gradient of 1/2 ||.||_p^2, and 1/p + 1/q = 1), and of each class the last row learned from:

    min 1/2 ||w||_q^2   such that   w.x+ + b >= 1,   w.x- + b <= -1,   w.f(w_t) >= ||w_t||_q^2

Its dual has one dimension. With u_t = f(w_t) / ||f(w_t)||_p^2 and z = (x+ - x-) / 2,

    u <- the point of least p-norm between u and z,    w = g(u) / ||u||_p^2,    b = -w.(x+ + x-) / 2

so this is the search for the least p-norm in the hull of all (x_i+ - x_j-) / 2 that goes towards one point at a time,
and ||u||_p is never less than the largest margin gamma. Without a free bias z is y x, and the hull that of all y_i x_i.

Of rows that are separated by gamma in the p-norm, with R the largest ||x||_p, at most

    1 + 16 (p-1) R^2 / (delta^2 gamma^2)    (4 instead of 16 without a free bias)

are learned from: one of them has g(u).z <= (1 - delta/2) ||u||^2, ||z - u||_p <= 2 R, and 1/2 ||.||_p^2 is
(p-1)-smooth, so that 1 / ||u||^2 <= 1 / gamma^2 grows by delta^2 / (16 (p-1) R^2) at least (the paper has the order).
When a pass finds none the margin is at least (1-delta) gamma. For the infinity-norm margin, p = c ln(features) with
c = 1 / ln((1 - delta/2) / (1 - delta)) and delta/2 in place of delta make it at least (1-delta) of the largest.

The point between u and z is found by safeguarded Newton steps on the derivative of half the squared norm; features that
z lacks all shrink alike and count as one, so that it costs the entries of two rows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.compiled.jit import dot_ahead, inlined, kernel
from bigclf.maths.block import Counts
from bigclf.methods.common import BINARY, ONE_GROUP
from bigclf.methods.method import Param, online
from bigclf.methods.online import p_norm_vector
from bigclf.methods.online.held_rows import along, hold, make_point, narrowed, nothing_held
from bigclf.methods.online.p_norm_vector import FACTOR, SCALE, TOTAL, TOUCHED, UNIT, P, norm_of, settle, signed_power

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


DROWNED = 1e-4  # share of the sum of powers below which what is left of it, a difference, is summed anew
NOTHING = 1e-12  # a norm of u, in units of z's, that is rounding: the hull contains 0
SLOPE = 1e-14  # of half the squared norm, in units of that
SEARCHES = 60  # most steps of a search

BOUND, LEAST = range(2)  # of ``margin``


class Shared(NamedTuple):
    """weights [feature + 1], powers, length : u (``p_norm_vector``), a constant feature last; bias : float64 [1], b;
    margin : float64 [2], ||u||_p, which no margin exceeds, and the least y (w.x + b) since the last step (infinite
    where no row came after it); places, values, sizes : ``held_rows``."""

    weights: np.ndarray
    powers: np.ndarray
    length: np.ndarray
    bias: np.ndarray
    margin: np.ndarray
    places: np.ndarray
    values: np.ndarray
    sizes: np.ndarray


class Params(NamedTuple):
    """delta : part of the margin 1 that may lack; bias : value of the constant feature (1.0 or 0.0); free : 1.0 where
    b is free, then there is no constant feature."""

    delta: float
    bias: float
    free: float


def norm_for(delta: float, n_features: int) -> float:
    """p with which delta / 2 in the p-norm is delta in the infinity-norm."""
    return max(2.0, math.log(max(1, n_features)) / math.log((1 - delta / 2) / (1 - delta)))


def begin(n_features: int, dtype: DTypeLike, settings: Numbers) -> Shared:
    p = settings["p"] or norm_for(settings["delta"], n_features)
    vector = p_norm_vector.begin(n_features, dtype, p)
    return Shared(*vector, np.zeros(1), np.zeros(2), *nothing_held(n_features))


def bind(settings: Numbers) -> Params:
    delta, free = settings["delta"], settings["free_bias"]
    return Params(delta if settings["p"] else delta / 2, settings["bias"] * (1 - free), free)


@inlined
def slope(s, n, rest, weights, length, places, values):  # type: ignore[no-untyped-def]
    """Norm, first and second derivative of  1/2 ||(1-s) u + s z||_p^2  at s, in units of ``unit`` and scale; ``rest``
    is the norm of u where z is 0."""
    p, unit, each = length[P], length[UNIT], 1 / (length[SCALE] * length[UNIT])
    most = (1 - s) * rest
    for r in range(n):
        u, z = np.float64(weights[places[r, 2]]) / unit, values[r, 2] * each
        most = max(most, abs((1 - s) * u + s * z))
    if most == 0:
        return most, 0.0, 0.0
    ratio = (1 - s) * rest / most
    power = ratio ** (p - 2)
    total, first, second = power * ratio * ratio, -power * ratio * rest, power * rest * rest
    for r in range(n):
        u, z = np.float64(weights[places[r, 2]]) / unit, values[r, 2] * each
        ratio = ((1 - s) * u + s * z) / most
        power = abs(ratio) ** (p - 2)
        total += power * ratio * ratio
        first += power * ratio * (z - u)
        second += power * (z - u) * (z - u)
    first /= total ** (1 - 1 / p)  # sum of r^(p-1) d, r of norm 1
    norm = most * total ** (1 / p)
    return norm, norm * first, (p - 1) * second / total ** (1 - 2 / p) - (p - 2) * first * first


@inlined
def search(n, rest, weights, length, places, values):  # type: ignore[no-untyped-def]
    """The s in [0, 1] at which (1-s) u + s z has least norm, and that norm in units of ``unit`` and scale."""
    s, low, high = 0.0, 0.0, 1.0
    norm, first, second = slope(s, n, rest, weights, length, places, values)
    for _ in range(SEARCHES):
        if abs(first) <= SLOPE * norm * norm:
            break
        low, high, to = narrowed(low, high, s, first, second)
        if to == s or low == 1:
            break
        s = to
        norm, first, second = slope(s, n, rest, weights, length, places, values)
    return s, norm


@inlined
def rest_of(n, weights, powers, length, places):  # type: ignore[no-untyped-def]
    """sum of |a/unit|^p over the features that z has not."""
    here = np.float64(0)
    for r in range(n):
        j = places[r, 2]
        here += powers[j] * (np.float64(weights[j]) / length[UNIT])
    left = length[TOTAL] - here
    if left >= DROWNED * length[TOTAL]:
        return left
    left, r = np.float64(0), 0
    for j in range(weights.size):
        if r < n and places[r, 2] == j:
            r += 1
        else:
            left += powers[j] * (np.float64(weights[j]) / length[UNIT])
    return left


@kernel
def take_step(shared, params):  # type: ignore[no-untyped-def]
    """Go from u to the point of least norm on the way to z; whether there is such a point that is not 0."""
    weights, powers, length = shared.weights, shared.powers, shared.length
    places, values = shared.places, shared.values
    n = make_point(places, values, shared.sizes)
    most = np.float64(0)
    for r in range(n):
        most = max(most, abs(values[r, 2]))
    if most == 0:
        return False
    if length[UNIT] == 0:
        length[UNIT], s, left = most, 1.0, 0.0
    else:
        left = rest_of(n, weights, powers, length, places)
        s, norm = search(n, left ** (1 / length[P]), weights, length, places, values)
        if norm * length[UNIT] * length[SCALE] <= NOTHING * most or s == 0:
            return False
    if 1 - s < NOTHING:
        weights[:] = 0
        powers[:] = 0
        length[SCALE], length[UNIT], left, s = 1.0, most, 0.0, 1.0
    else:
        length[SCALE] *= 1 - s
    length[TOTAL] = left
    for r in range(n):
        j = places[r, 2]
        weights[j] += s * values[r, 2] / length[SCALE]
        ratio = np.float64(weights[j]) / length[UNIT]
        powers[j] = signed_power(ratio, length[P] - 1)
        length[TOTAL] += powers[j] * ratio
    length[TOUCHED] += n
    settle(weights, powers, length)
    size = norm_of(length)
    length[FACTOR] /= size * size  # w = g(u) / ||u||^2
    shared.margin[BOUND] = size
    shared.bias[0] = 0.0
    if params.free > 0:
        b = along(1, powers, places, values, shared.sizes) - along(0, powers, places, values, shared.sizes)
        shared.bias[0] = length[FACTOR] * b
    shared.margin[LEAST] = np.inf
    return True


@kernel
def pumma(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
    """One pass over the rows of ``order``."""
    powers, length, bias, margin = shared.powers, shared.length, shared.bias, shared.margin
    last = powers.size - 1
    mistakes, updates, loss = 0, 0, np.float64(0)
    for k in range(order.size):
        i = order[k]
        y = block.labels[i]
        m = y * (length[FACTOR] * (dot_ahead(block, order, k, powers) + params.bias * powers[last]) + bias[0])
        mistakes += m <= 0
        loss += max(0.0, 1 - m)
        margin[LEAST] = min(margin[LEAST], m)
        if m >= 1 - params.delta or block.norms[i] + params.bias + params.free == 0:
            continue
        if hold(block, i, y, params, shared.places, shared.values, shared.sizes) and take_step(shared, params):
            updates += 1
    return Counts(order.size, mistakes, updates, loss, 0.0)


def weights(shared: Shared, params: Params) -> np.ndarray:
    """w and b [feature + 1]"""
    w = shared.length[FACTOR] * shared.powers
    w[-1] += shared.bias[0]
    return np.asarray(w, shared.weights.dtype)


def told(shared: Shared, params: Params) -> dict[str, float]:
    """In the p-norm: no margin of these rows exceeds ``margin_bound``, which falls; ``least_margin`` is the least of
    the rows gone over since the last step and of those it was made of, where there were any to go over."""
    bound, least = float(shared.margin[BOUND]), float(shared.margin[LEAST])
    return {"margin_bound": bound} | ({"least_margin": min(1.0, least) * bound} if math.isfinite(least) else {})


# Methods

METHODS = (
    online(
        name="pumma",
        title="PUMMA, maximum margin in the p-norm, or nearly in the infinity-norm",
        paper="Ishibashi, Hatano, Takeda, COLT 2008",
        formula="y (w.x + b) < 1 - delta:  u <- least p-norm between u and z = (x+ - x-) / 2;  w = g(u) / ||u||_p^2",
        params=(
            Param("p", None, 2.0, 1e6, "the norm (none: c ln(features), with which delta is of the infinity-norm)"),
            Param(
                "delta",
                0.1,
                0.0,
                1.0,
                "allowed shortfall from the largest margin, a share",
                open_low=True,
                open_high=True,
            ),
        ),
        shared=begin,
        bind=bind,
        update=lambda loss: pumma,
        weights=weights,
        told=told,
        settles=True,
        place=None,
        bias=("feature", "free", "none"),
        **BINARY,
        **ONE_GROUP,
    ),
)
