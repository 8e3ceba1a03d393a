"""MEMMA by the recursion of its paper (Ohta, Hatano, Takeda), to be compared with.

The problem, the test of a row and the letters are those of ``maximum_entropy_margin``. The recursion
keeps ln p of every feature and of its mirror image, and every step goes through them all:

    ln p_j = beta ln q_j + (alpha / eta) (x+_j - x-_j) - ln Z,    2 alpha + beta = 1, alpha = s / 2.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.compiled.jit import entry, inlined, kernel, prefetch_ahead
from bigclf.maths.block import Counts
from bigclf.methods.method import online
from bigclf.methods.online.held_rows import hold, make_point, nothing_held
from bigclf.methods.online.maximum_entropy_margin import (
    BIAS,
    BOUND,
    LARGEST,
    LEAST,
    MEMMA,
    SEARCHES,
    SLOPE,
    STEPS,
    Params,
    features,
    temperature,
)
from bigclf.methods.online.winnow import largest_entry

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


class Logarithms(NamedTuple):
    """weights : ln p [feature + 1, 2], of the features and of their mirror images, a constant feature last; numbers :
    float64 [5], (unused), gamma + eta H(p), b, X, the least y (p.x + b) since the last step; counts : int64 [1], steps;
    point : float64 [feature + 1], z while a step is taken; places, values, sizes : ``held_rows``."""

    weights: np.ndarray
    numbers: np.ndarray
    counts: np.ndarray
    point: np.ndarray
    places: np.ndarray
    values: np.ndarray
    sizes: np.ndarray


def begin(n_features: int, dtype: DTypeLike, settings: Numbers) -> Logarithms:
    n = n_features + 1
    return Logarithms(np.zeros((n, 2), dtype), np.array([1.0, 0, 0, 1, 0]), np.zeros(1, np.int64), np.zeros(n),
                      *nothing_held(n_features))  # fmt: skip


@kernel
def divergence(beta, weights, point, eta, n, params):  # type: ignore[no-untyped-def]
    """ln Z of  q^beta exp((1-beta) z / eta), and mean and variance of  d = ln q - z / eta  under it."""
    most = -np.inf
    for j in range(n):
        z = point[j] / eta
        most = max(most, beta * weights[j, 0] + (1 - beta) * z)
        if params.mirror > 0:
            most = max(most, beta * weights[j, 1] - (1 - beta) * z)
    total, first, second = np.float64(0), np.float64(0), np.float64(0)
    for j in range(n):
        for side in range(2 if params.mirror > 0 else 1):
            z = point[j] / eta if side == 0 else -point[j] / eta
            d = weights[j, side] - z
            p = math.exp(beta * weights[j, side] + (1 - beta) * z - most)
            total += p
            first += p * d
            second += p * d * d
    mean = first / total
    return most + math.log(total), mean, second / total - mean * mean


@inlined
def multiplier(shared, eta, n, params, flat):  # type: ignore[no-untyped-def]
    """beta of the dual  max -eta ln Z(beta) - beta c_q  on [0, 1], c_q = gamma_q + eta H(q), and ln Z there.

    h'(beta) = -eta E_p[d] - c_q,  h'' = -eta Var_p(d):  Newton from 1/2, bisection where it leaves the bracket."""
    weights, point, c = shared.weights, shared.point, shared.numbers[BOUND]
    log, mean, variance = divergence(0.0, weights, point, eta, n, params)
    if shared.counts[STEPS] == 0 or -eta * mean - c <= 0:
        return 0.0, log
    low, high, beta = 0.0, 1.0, 0.5
    for _ in range(SEARCHES):
        log, mean, variance = divergence(beta, weights, point, eta, n, params)
        slope = -eta * mean - c
        if abs(slope) <= flat:
            break
        if slope > 0:
            low = beta
        else:
            high = beta
        to = beta + slope / (eta * variance) if variance > 0 else low
        if not low < to < high:
            to = 0.5 * (low + high)
        if to == beta:
            break
        beta = to
    return beta, log


@kernel
def take_recursion(shared, params):  # type: ignore[no-untyped-def]
    """The solution of the paper's problem (3) for the rows held."""
    weights, numbers, point = shared.weights, shared.numbers, shared.point
    places, values, sizes = shared.places, shared.values, shared.sizes
    eta, n = temperature(point.size, numbers[LARGEST], params), features(point.size, params)
    for r in range(make_point(places, values, sizes)):
        point[places[r, 2]] = values[r, 2]
    beta, log = multiplier(shared, eta, n, params, SLOPE * numbers[LARGEST])
    gamma, entropy, b = np.float64(0), np.float64(0), np.float64(0)
    for j in range(n):
        for side in range(2 if params.mirror > 0 else 1):
            z = point[j] if side == 0 else -point[j]
            weights[j, side] = beta * weights[j, side] + (1 - beta) * z / eta - log
            p = math.exp(weights[j, side])
            gamma += p * z
            entropy -= p * weights[j, side]
    if params.free > 0:  # b = -p.(x+ + x-) / 2
        for column in range(2):
            for r in range(sizes[column] - 1):
                p = probability(weights, places[r, column], params.mirror)
                b += (p if column == 1 else -p) * values[r, column]
    for r in range(sizes[2]):
        point[places[r, 2]] = 0.0
    value = gamma + eta * entropy
    if shared.counts[STEPS] == 0 or value < numbers[BOUND]:  # else beta = 1 and p stays
        numbers[BOUND] = value
    numbers[BIAS], numbers[LEAST] = b, np.inf
    shared.counts[STEPS] += 1


@inlined
def probability(weights, j, mirror):  # type: ignore[no-untyped-def]
    """p_j, of signed weights p_j+ - p_j-, of their logarithms"""
    p = math.exp(np.float64(weights[j, 0]))
    return p - math.exp(np.float64(weights[j, 1])) if mirror > 0 else p


@kernel
def soften(shared, params, largest):  # type: ignore[no-untyped-def]
    """A larger X and with it eta:  v stays,  ln p = (v - F) / eta."""
    weights, numbers = shared.weights, shared.numbers
    size = shared.point.size
    eta, n = temperature(size, largest, params), features(size, params)
    if shared.counts[STEPS] > 0:
        log, mean, variance = divergence(numbers[LARGEST] / largest, weights, shared.point, eta, n, params)
        for j in range(n):
            for side in range(2 if params.mirror > 0 else 1):
                weights[j, side] = numbers[LARGEST] / largest * weights[j, side] - log
        numbers[BOUND] += eta * log
    numbers[LARGEST] = largest


@kernel
def memma_p(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
    """One pass over the rows of ``order``, by the recursion."""
    weights, numbers, counts, last = shared.weights, shared.numbers, shared.counts, shared.point.size - 1
    mistakes, updates, loss = 0, 0, np.float64(0)
    for k in range(order.size):
        prefetch_ahead(block, order, k)
        i = order[k]
        most = largest_entry(block, i)
        if most > numbers[LARGEST]:
            soften(shared, params, most)
        y, m = block.labels[i], 0.0
        if counts[STEPS] > 0:
            for p in range(block.indptr[i], block.indptr[i + 1]):
                m += probability(weights, np.int64(block.indices[p]), params.mirror) * entry(block, i, p)
            if params.bias > 0:
                m += probability(weights, last, params.mirror)
            m = y * (m + numbers[BIAS])
        mistakes += m <= 0
        lack = numbers[BOUND] - params.epsilon * numbers[LARGEST] - m
        loss += max(0.0, lack)
        numbers[LEAST] = min(numbers[LEAST], m)
        if (lack <= 0 and counts[STEPS] > 0) or block.norms[i] + params.bias + params.free == 0:
            continue
        if hold(block, i, y, params, shared.places, shared.values, shared.sizes):
            take_recursion(shared, params)
            updates += 1
    return Counts(order.size, mistakes, updates, loss, 0.0)


def weights(shared: Logarithms, params: Params) -> np.ndarray:
    """p (of signed weights p+ - p-) and b [feature + 1]"""
    out = np.zeros(shared.point.size)
    if shared.counts[STEPS] > 0:
        n = out.size if params.bias else out.size - 1
        logs = shared.weights[:n].astype(np.float64)
        out[:n] = np.exp(logs[:, 0]) - (np.exp(logs[:, 1]) if params.mirror else 0.0)
        out[-1] += shared.numbers[BIAS]
    return np.asarray(out, shared.weights.dtype)


# Methods

METHODS = (
    online(
        name="memma_p",
        title="MEMMA by the recursion of its paper: every step goes through all features",
        formula="y (p.x + b) < gamma - eps + eta H:  p <- p^beta exp((1-beta) (x+ - x-) / (2 eta)) / Z",
        shared=begin,
        update=lambda loss: memma_p,
        weights=weights,
        bounded=False,
        **MEMMA,
    ),
)
