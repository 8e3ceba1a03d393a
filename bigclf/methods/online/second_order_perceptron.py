"""The second-order perceptron (Cesa-Bianchi, Conconi, Gentile, SIAM J. Computing 2005).

With A = a I + sum over mistakes of x x' and v = sum over mistakes of y x, a row is judged by

    m = y v . (A + x x')^{-1} x,   on a mistake, m <= 0:   v <- v + y x,   A <- A + x x'

so that it counts already, mistake or not. For any u and gamma > 0, with sums over the M mistakes, h the hinge loss
max(0, gamma - y u.x) and l_i the eigenvalues of the sum of x x' (their Theorem 3.1):

    M <= (1/gamma) sum h  +  (1/gamma) sqrt((a ||u||^2 + sum (u.x)^2) sum_i ln(1 + l_i / a))

Full: K = A^{-1}, z = K x, q = x.z give (A + x x')^{-1} x = z / (1+q), so that m has the sign of y w.x with w = K v.
A mistake is K <- K - z z' / (1+q) and w <- w + (y - w.x) / (1+q) z: in numbers of features squared.

Diagonal: A keeps its diagonal alone, m = y sum_j v_j x_j / (A_j + x_j^2), in the row's non-zeros. The answer is
w_j = v_j / A_j, which knows of no row to come.

A row of weight c counts c times in v and A.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.compiled.jit import dot, entry, kernel, prefetch_ahead
from bigclf.maths.block import Counts
from bigclf.maths.mixing import MEAN
from bigclf.methods.common import ONE_GROUP
from bigclf.methods.method import Param, by_shares, online

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


class Diagonal(NamedTuple):
    """weights : v [feature + 1], the last one the bias; precision : A, float64 [feature + 1]."""

    weights: np.ndarray
    precision: np.ndarray


class Full(NamedTuple):
    """weights : w = K v [feature + 1]; covariance : K, float64 [feature + 1, feature + 1], symmetric; direction :
    float64 [feature + 1], room for z."""

    weights: np.ndarray
    covariance: np.ndarray
    direction: np.ndarray


class Params(NamedTuple):
    """a : what A begins with; bias : value of the constant feature (1.0 or 0.0)."""

    a: float
    bias: float


def begin_diagonal(n_features: int, dtype: DTypeLike, settings: Mapping[str, object]) -> Diagonal:
    return Diagonal(np.zeros(n_features + 1, dtype), np.full(n_features + 1, settings["a"]))


def begin_full(n_features: int, dtype: DTypeLike, settings: Numbers) -> Full:
    n = n_features + 1
    covariance = np.zeros((n, n))
    np.fill_diagonal(covariance, 1 / settings["a"])
    return Full(np.zeros(n, dtype), covariance, np.zeros(n))


@kernel
def diagonal(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
    """One pass over the rows of ``order``."""
    v, precision = shared.weights, shared.precision
    last = v.size - 1
    mistakes, loss = 0, np.float64(0)
    for k in range(order.size):
        prefetch_ahead(block, order, k)
        i = order[k]
        y = block.labels[i]
        m = y * params.bias * v[last] / (precision[last] + params.bias * params.bias)
        for p in range(block.indptr[i], block.indptr[i + 1]):
            j, x = block.indices[p], entry(block, i, p)
            m += y * v[j] * x / (precision[j] + x * x)
        if m <= 0:
            c = block.weights[i]
            for p in range(block.indptr[i], block.indptr[i + 1]):
                j, x = block.indices[p], entry(block, i, p)
                v[j] += c * y * x
                precision[j] += c * x * x
            v[last] += c * y * params.bias
            precision[last] += c * params.bias * params.bias
            mistakes += 1
            loss -= m
    return Counts(order.size, mistakes, mistakes, loss, 0.0)


@kernel
def full(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
    """One pass over the rows of ``order``; a row that is no mistake costs its non-zeros."""
    w, covariance, z = shared.weights, shared.covariance, shared.direction
    last = w.size - 1
    mistakes, updates, loss = 0, 0, np.float64(0)
    for k in range(order.size):
        prefetch_ahead(block, order, k)
        i = order[k]
        y, c = block.labels[i], block.weights[i]
        score = dot(block, i, w) + params.bias * w[last]
        if y * score > 0:
            continue
        mistakes += 1
        for j in range(z.size):
            z[j] = params.bias * covariance[last, j]
        for p in range(block.indptr[i], block.indptr[i + 1]):
            x, row = entry(block, i, p), covariance[block.indices[p]]
            for j in range(z.size):
                z[j] += x * row[j]
        q = dot(block, i, z) + params.bias * z[last]
        if q <= 0:  # an empty row, or rounding: K knows of no variance in its direction
            continue
        loss -= y * score / (1 + q)
        share = c / (1 + c * q)
        for j in range(z.size):
            if z[j] != 0:
                w[j] += share * (y - score) * z[j]
                row = covariance[j]
                for h in range(z.size):
                    row[h] -= share * (z[j] * z[h])  # the same bits on both sides of the diagonal
        updates += 1
    return Counts(order.size, mistakes, updates, loss, 0.0)


def begin_with(shared: Diagonal, weights: np.ndarray, params: Params) -> None:
    """Begin with the weights of a model: v = A w."""
    shared.weights[:] = shared.precision * weights


def diagonal_weights(shared: Diagonal, params: Params) -> np.ndarray:
    """w = A^{-1} v [feature + 1]"""
    return np.asarray(shared.weights / shared.precision, shared.weights.dtype)


# Methods

BEGINNING = "initial matrix; a larger one is nearer the perceptron"

METHODS = (
    online(
        name="sop",
        title="second-order perceptron, diagonal",
        paper="Cesa-Bianchi, Conconi, Gentile, SIAM J. Comput. 2005",
        formula="y v.(A + diag(x_j^2))^-1 x <= 0:  v <- v + y x, A <- A + diag(x_j^2);  w = A^-1 v",
        params=(Param("a", 1.0, 0.0, 1e30, "initial matrix; a larger one is nearer the perceptron", open_low=True),),
        shared=begin_diagonal,
        bind=lambda settings: Params(settings["a"], settings["bias"]),
        update=lambda loss: diagonal,
        weights=diagonal_weights,
        place=begin_with,
        mixings={"precision": MEAN, **by_shares(MEAN)},  # v and A are precision times mean, and precision
        mixing="mean of v and of A: of all copies alike (precision, uniform), by rows or by mistakes",
        weight_meaning="multiplies the step",
        judges_by_answer=False,
    ),
    online(
        name="sop_full",
        title="second-order perceptron, full matrix: few features",
        paper="Cesa-Bianchi, Conconi, Gentile, SIAM J. Comput. 2005",
        formula="y w.x <= 0:  w <- w + (y - w.x) / (1+q) K x, K <- K - K x x'K / (1+q);  q = x'K x, K = A^-1",
        params=(Param("a", 1.0, 1e-9, 1e30, BEGINNING),),
        shared=begin_full,
        bind=lambda settings: Params(settings["a"], settings["bias"]),
        update=lambda loss: full,
        weight_meaning="multiplies the step",
        **ONE_GROUP,
    ),
)
