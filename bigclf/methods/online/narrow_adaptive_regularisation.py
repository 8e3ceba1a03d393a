"""NAROW (Orabona and Crammer, NIPS 2010): AROW whose r each row sets, by the recursion of its author's program.

With theta = 0, A = I at the start, K = A^-1, w = K theta, chi = x' K x and a bound b > 0 on the growth of A:

    r = chi / (b chi - 1) where chi > 1/b, else infinite        (1/r = b - 1/chi, else 0)
    the prediction is that of the matrix after the row: f = (w.x) r / (chi + r)
    y f < 1:  theta <- theta + y x,  A <- A + x x' / r,  that is  K <- K - K x x' K / (r + chi)

So each row takes chi at most to 1/b, and rows in directions already known well change theta alone. A row's weight
divides r. ``diagonal`` keeps the diagonal of K, dropping the rest after each row. Other programs that carry the name
take AROW's step (1 - m) / (v + r) instead, which with an infinite r is none at all.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.compiled.jit import at, dot, inlined, kernel
from bigclf.compiled.lanes import room_for_pairs
from bigclf.maths.block import Counts
from bigclf.methods.method import Param
from bigclf.methods.online.confidence_weighted import (
    DIVIDED,
    FULL,
    LEAST,
    LEAST_FULL,
    gaussian,
    moments,
    move_all,
    product,
    quadratic_form,
)

if TYPE_CHECKING:
    from bigclf.methods.method import Numbers


class Params(NamedTuple):
    """b : bound, 1/b the variance above which a row has an r; floor : of the variances; bias : value of the constant
    feature (1.0 or 0.0)."""

    b: float
    floor: float
    bias: float


def bind(settings: Numbers, least: float = LEAST) -> Params:
    return Params(settings["b"], least, settings["bias"])


@inlined
def inverse_r(chi, b):  # type: ignore[no-untyped-def]
    """1 / r >= 0; none at all where chi <= 1/b."""
    return b - 1.0 / chi if b * chi > 1.0 else 0.0


@inlined
def move(weights, j, x, y, beta, chi, floor):  # type: ignore[no-untyped-def]
    """K_jj <- K_jj - beta K_jj^2 x^2,  w_j <- K_jj (theta_j + y x)  with  theta_j = w_j / K_jj  before."""
    k = np.float64(weights[j, 1])
    kept = 1.0 - beta * chi + beta * max(chi - k * x * x, 0.0)
    now = max(k * kept, min(k, floor))
    weights[j, 0] = now / k * weights[j, 0] + y * now * x
    weights[j, 1] = now


@kernel
def diagonal(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
    """One pass over the rows of ``order``; ``weights`` [feature + 1, 2] has w_j and K_jj side by side."""
    weights = shared.weights
    last = weights.shape[0] - 1
    explicit = block.values.size > 0
    room = room_for_pairs(weights)
    mistakes, updates, total = 0, 0, np.float64(0)
    for k in range(order.size):
        i = order[k]
        y = block.labels[i]
        mean, chi = moments(block, order, k, weights, params.bias, room)
        mistakes += y * mean <= 0
        c = block.weights[i] * inverse_r(chi, params.b)
        loss = max(0.0, 1.0 - y * mean / (1.0 + c * chi))
        total += loss
        if loss == 0 or chi == 0:
            continue
        beta = c / (1.0 + c * chi)
        one = np.float64(block.scales[i]) if block.scales.size > 0 else np.float64(1)
        for p in range(block.indptr[i], block.indptr[i + 1]):
            x = np.float64(at(block.values, p)) if explicit else one
            move(weights, at(block.indices, p), x, y, beta, chi, params.floor)
        if params.bias != 0:
            move(weights, last, params.bias, y, beta, chi, params.floor)
        updates += 1
    return Counts(order.size, mistakes, updates, total, 0.0)


@kernel
def full(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
    """One pass that keeps all of K: with z = K x,  w <- w + (1 - beta (m + chi)) y z,  K <- K - beta z z'."""
    weights, covariance = shared.weights, shared.covariance
    last = weights.size - 1
    mistakes, updates, total = 0, 0, np.float64(0)
    for k in range(order.size):
        i = order[k]
        y = block.labels[i]
        m = y * (dot(block, i, weights) + params.bias * weights[last])
        least = params.floor * (block.norms[i] + params.bias * params.bias)
        chi = max(quadratic_form(block, i, covariance, params.bias), least)
        mistakes += m <= 0
        c = block.weights[i] * inverse_r(chi, params.b)
        loss = max(0.0, 1.0 - m / (1.0 + c * chi))
        total += loss
        if loss == 0 or chi == 0:
            continue
        beta = c / (1.0 + c * chi)
        product(block, i, covariance, params.bias, shared.product)
        move_all(shared, (1.0 - beta * (m + chi)) * y, beta, params.floor)
        updates += 1
    return Counts(order.size, mistakes, updates, total, 0.0)


# Methods

B = Param("b", 1.0, 0.0, 1e30, "how far a row may narrow its direction: to the variance 1/b", open_low=True)
PAPER = "Orabona and Crammer, NIPS 2010"

METHODS = (
    gaussian(
        "narow",
        "narrow adaptive regularisation of weights, diagonal",
        PAPER,
        "y f < 1:  t <- t + y x;  k <- k - k^2 x^2 / (r + v);  w <- k t;  1/r = max(0, b - 1/v),  f = w.x r / (v + r)",
        lambda: diagonal,
        bind=bind,
        params=(B,),
        bounded=False,
        **DIVIDED,
    ),
    gaussian(
        "narow_full",
        "narrow adaptive regularisation of weights, full covariance",
        PAPER,
        "y f < 1:  t <- t + y x;  K <- K - K x x' K / (r + v);  w <- K t;  1/r = max(0, b - 1/v),  f = w.x r / (v + r)",
        lambda: full,
        bind=functools.partial(bind, least=LEAST_FULL),
        params=(B,),
        bounded=False,
        **DIVIDED | FULL,
    ),
)
