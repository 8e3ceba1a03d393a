"""ALMA, the approximate maximal margin classification algorithm (Gentile, JMLR 2001, Figure 2), for p >= 2.

With x^ = x / ||x||_p and w = g(theta), the gradient of 1/2 ||theta||_p^2, correction number k is made on a row with

    y w.x^ <= (1-alpha) B sqrt((p-1)/k):  theta <- theta + C / sqrt((p-1) k) y x^,  theta <- theta / max(1, ||theta||_p)

(||w||_q = ||theta||_p, so that w stays in the unit ball of the q-norm, 1/p + 1/q = 1). With B = sqrt(8) / alpha and
C = sqrt(2), the defaults, rows x^ that some u of q-norm 1 separates by gamma cost at most

    2 (p-1) / gamma^2 (2/alpha - 1)^2 + 8/alpha - 4

corrections, and then every margin y w.x^ / ||w||_q is at least (1-alpha) gamma.

A row that has its margin costs a dot product (``p_norm_vector``): ||x||_p, a power of each value, is computed only
where ||x||_2, which is no less, leaves the test open.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.compiled.jit import dot_ahead, entry, inlined, kernel
from bigclf.maths.block import Counts
from bigclf.methods.common import BINARY
from bigclf.methods.method import Param, by_shares, online
from bigclf.methods.online import p_norm_vector
from bigclf.methods.online.p_norm_vector import FACTOR, SCALE, UNIT, P, measure, move, norm_of, settle

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


class Shared(NamedTuple):
    """weights [feature + 1], powers, length : theta (``p_norm_vector``), the bias last; steps : float64 [1], k."""

    weights: np.ndarray
    powers: np.ndarray
    length: np.ndarray
    steps: np.ndarray


class Params(NamedTuple):
    """alpha : part of the margin that may lack; B, C : of margin and rate; bias : value of the constant feature (1.0
    or 0.0)."""

    alpha: float
    B: float
    C: float
    bias: float


def begin(n_features: int, dtype: DTypeLike, settings: Numbers) -> Shared:
    p = settings["p"] or max(2.0, 2 * math.log(max(1, n_features)))
    return Shared(*p_norm_vector.begin(n_features, dtype, p), np.ones(1))


def bind(settings: Numbers) -> Params:
    alpha = settings["alpha"]
    return Params(alpha, settings["B"] or math.sqrt(8) / alpha, settings["rate"], settings["bias"])


@inlined
def row_norm(block, i, p, bias):  # type: ignore[no-untyped-def]
    """||x_i||_p"""
    most = bias
    for r in range(block.indptr[i], block.indptr[i + 1]):
        most = max(most, abs(entry(block, i, r)))
    if p == 2 or most == 0:
        return math.sqrt(block.norms[i] + bias)
    total = (bias / most) ** p
    for r in range(block.indptr[i], block.indptr[i + 1]):
        total += (abs(entry(block, i, r)) / most) ** p
    return most * total ** (1 / p)


@kernel
def alma(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
    """One pass over the rows of ``order``."""
    weights, powers, length, steps = shared.weights, shared.powers, shared.length, shared.steps
    last, p = weights.size - 1, shared.length[P]
    mistakes, updates, loss = 0, 0, np.float64(0)
    for k in range(order.size):
        i = order[k]
        y = block.labels[i]
        m = y * length[FACTOR] * (dot_ahead(block, order, k, powers) + params.bias * powers[last])
        mistakes += m <= 0
        wanted = (1 - params.alpha) * params.B * math.sqrt((p - 1) / steps[0])
        if m > wanted * math.sqrt(block.norms[i] + params.bias):
            continue
        size = row_norm(block, i, p, params.bias)
        if size == 0 or m > wanted * size:
            continue
        loss += wanted - m / size
        step = params.C / math.sqrt((p - 1) * steps[0]) / size * y / length[SCALE]
        if length[UNIT] == 0:
            length[UNIT] = abs(step) * size
        for r in range(block.indptr[i], block.indptr[i + 1]):
            j = np.int64(block.indices[r])
            move(weights, powers, length, j, weights[j] + step * entry(block, i, r))
        if params.bias > 0:
            move(weights, powers, length, last, weights[last] + step)
        settle(weights, powers, length)
        now = norm_of(length)
        if now > 1:
            length[SCALE] /= now
            length[FACTOR] /= now
        steps[0] += 1
        updates += 1
    return Counts(order.size, mistakes, updates, loss, 0.0)


def finish(shared: Shared, params: Params) -> None:
    """The scale into the weights, and everything measured."""
    measure(shared.weights, shared.powers, shared.length)


def weights(shared: Shared, params: Params) -> np.ndarray:
    """w = g(theta) [feature + 1]"""
    return np.asarray(shared.length[FACTOR] * shared.powers, shared.weights.dtype)


# Methods

METHODS = (
    online(
        name="alma",
        title="ALMA, approximate maximal margin in the p-norm",
        paper="Gentile, JMLR 2001",
        formula="y w.x^ <= (1-alpha) B sqrt((p-1)/k):  theta <- theta + rate y x^ / sqrt((p-1) k), ||theta||_p <= 1",
        params=(
            Param("p", None, 2.0, 1e6, "the norm (none: 2 ln(features))"),
            Param("alpha", 0.5, 0.0, 1.0, "allowed shortfall, as a part of the margin", open_low=True),
            Param("B", None, 1e-30, 1e30, "B in the required margin (none: sqrt(8) / alpha)"),
            Param("rate", 2**0.5, 1e-30, 1e30, "C of the paper"),
        ),
        shared=begin,
        bind=bind,
        update=lambda loss: alma,
        weights=weights,
        finish=finish,
        place=None,
        settles=True,
        mixings=by_shares(p_norm_vector.MEAN_OF_VECTORS),
        mixing="mean of theta by rows, uniform or by mistakes",
        **BINARY,
    ),
)
