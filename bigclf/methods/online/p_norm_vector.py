"""A vector theta whose p-norm is kept along while a few of its entries change at a time, for p >= 2.

theta = scale * weights. ``powers`` has sign(a) |a/unit|^(p-1) of every entry a of ``weights``, so that the gradient of
1/2 ||theta||_p^2,

    w = g(theta),  g_j = sign(theta_j) |theta_j|^(p-1) / ||theta||_p^(p-2),

is ``powers`` times a factor: w.x is a plain dot product, a step costs powers of its own entries alone, and a smaller
scale costs nothing. Numbers stay near 1 whatever p is. What rounding adds to the sum of |a/unit|^p is measured away
each time as many entries have been touched as there are features.
"""

from __future__ import annotations

import math
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from bigclf.compiled.jit import inlined, kernel
from bigclf.maths.mixing import Rule, Weights, add_mean, join_mean

P, SCALE, UNIT, TOTAL, FACTOR, TOUCHED = range(6)  # of ``length``: p, scale, unit, sum of |a/unit|^p, g = factor *
# powers, entries touched since the sum was measured
LARGE = 1e25  # of the sum and of 1 / scale, until the unit is chosen anew; float32 ends at 3e38


class Vector(Weights, Protocol):
    """A state whose ``weights`` are such a vector."""

    @property
    def powers(self) -> np.ndarray: ...

    @property
    def length(self) -> np.ndarray: ...


V = TypeVar("V", bound=Vector)


def begin(n_features: int, dtype: DTypeLike, p: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """weights [feature + 1], powers float64 [feature + 1] and length float64 [6] of a vector of zeros."""
    n = n_features + 1
    return np.zeros(n, dtype), np.zeros(n), np.array([p, 1.0, 0.0, 0.0, 0.0, 0.0])


@inlined
def signed_power(a, exponent):  # type: ignore[no-untyped-def]
    """sign(a) |a|^exponent"""
    if exponent == 1:
        return a
    return math.copysign(abs(a) ** exponent, a)


@inlined
def norm_of(length):  # type: ignore[no-untyped-def]
    """||theta||_p"""
    return length[SCALE] * length[UNIT] * length[TOTAL] ** (1 / length[P])


@inlined
def find_factor(length):  # type: ignore[no-untyped-def]
    """g(theta) = factor * powers:  scale unit total^(1/p) * total^-((p-1)/p)"""
    length[FACTOR] = 0.0
    if length[TOTAL] > 0:
        length[FACTOR] = length[SCALE] * length[UNIT] * length[TOTAL] ** (2 / length[P] - 1)


@kernel
def measure(weights, powers, length):  # type: ignore[no-untyped-def]
    """The scale into the weights; unit (the largest |a|), powers and their sum anew."""
    most, total = np.float64(0), np.float64(0)
    for j in range(weights.size):
        weights[j] = length[SCALE] * weights[j]
        most = max(most, abs(np.float64(weights[j])))
    for j in range(weights.size):
        ratio = np.float64(weights[j]) / most if most > 0 else 0.0
        powers[j] = signed_power(ratio, length[P] - 1)
        total += powers[j] * ratio
    length[SCALE], length[UNIT], length[TOTAL], length[TOUCHED] = 1.0, most, total, 0.0
    find_factor(length)


@inlined
def move(weights, powers, length, j, to):  # type: ignore[no-untyped-def]
    """weights[j] = to, and what depends on it but the factor."""
    length[TOTAL] -= powers[j] * (np.float64(weights[j]) / length[UNIT])
    weights[j] = to
    ratio = np.float64(weights[j]) / length[UNIT]
    powers[j] = signed_power(ratio, length[P] - 1)
    length[TOTAL] += powers[j] * ratio
    length[TOUCHED] += 1


@inlined
def settle(weights, powers, length):  # type: ignore[no-untyped-def]
    """After some moves: the factor, and a measurement where one is due."""
    total, scale = length[TOTAL], length[SCALE]
    if 1 / LARGE < total < LARGE and 1 / LARGE < scale < LARGE and length[TOUCHED] <= weights.size:
        find_factor(length)
    else:
        measure(weights, powers, length)


def _join_measured(total: V, start: V, shares: float) -> V:
    state = join_mean(total, start, shares)
    state.length[SCALE] = 1.0
    if np.any(total.weights):
        measure(state.weights, state.powers, state.length)
    return state


# The mean of theta, for states (weights, powers, length, ...) that were measured at the end of the epoch.
MEAN_OF_VECTORS: Rule[Vector] = Rule(add_mean, _join_measured, by_place=False)
