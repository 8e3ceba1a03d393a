"""Support-class confidence-weighted learning, SCCW, and its diagonal form SCCWD (Oiwa, Matsushima, Nakagawa).

The weights of K classes are Gaussians of means mu_k with one covariance Sigma for all. Scores of two classes differ by
l_k = (mu_y - mu_k).x with variance 2 v, v = x' Sigma x. A row of class y moves the Gaussians the least, in
Kullback-Leibler divergence,

    1/2 [K log(det Sigma / det Sigma') + K tr(Sigma^-1 Sigma') + sum_k (mu_k' - mu_k)' Sigma^-1 (mu_k' - mu_k)],

that satisfies  l_k' >= Q sqrt(2 u)  for every k != y, with u = x' Sigma' x and Q = Phi^-1(eta). With multipliers
alpha_k >= 0 and their sum A,

    mu_y <- mu_y + A Sigma x,   mu_k <- mu_k - alpha_k Sigma x,   Sigma^-1 <- Sigma^-1 + c x x',
    c = sqrt(2) Q A / (K sqrt(u)),   u = v / (1 + c v),   alpha_k = max(0, (Q sqrt(2 u) - l_k) / v - A).

The classes with alpha_k > 0, the support classes, are those of the s smallest l_k. Over them, L = sum l_k,

    (s + 1) A v + L = s Q sqrt(2 u),   alpha_k = A / s + (L / s - l_k) / v,

which is, with l = L / sqrt(v), b = (s + 1) K + s Q^2, d = (s + 1) K ((s + 1) K + 2 s Q^2) and
root = s Q sqrt(Q^2 l^2 + 2 d),

    A sqrt(v) = K (root - b l) / d = K (2 s^2 Q^2 - l^2) / (root + b l),

the one where l <= 0 and the other where l > 0, so that nothing cancels. A class belongs to them while its l_k is less
than (A v + L) / s of those before it: joining, it raises A and lowers that, as in the projection onto a simplex.

Kept of Sigma are (``diagonal``) the diagonal, by dropping what is off the diagonal of Sigma^-1, or the diagonal that
minimises the divergence among diagonal ones (``exact``: the same with u(c) = sum_j s_j x_j^2 / (1 + c s_j x_j^2), c
by Newton's method), or (``full``) all of it.

The answer depends neither on the first variance ``a``, but for the scale sqrt(a) of mu, nor on positive factors of the
rows. With two classes mu_1 - mu_0 and 4 Sigma are the Gaussian of the binary standard-deviation form for phi = Q /
sqrt(2).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import entry, inlined, kernel, prefetch_ahead
from bigclf.maths.block import Counts
from bigclf.maths.mixing import MEAN, SHARED_PRECISION
from bigclf.methods.common import NATIVE
from bigclf.methods.many_classes.multiclass import Room, judge, next_other, others, prefetch_classes, room
from bigclf.methods.many_classes.multiclass_confidence_weighted import variance_of
from bigclf.methods.method import by_shares
from bigclf.methods.online import confidence_weighted as cw
from bigclf.methods.online.confidence_weighted import (
    ETA,
    FULL,
    MEANS,
    A,
    exact_deviation,
    gaussian,
    lack,
    narrow,
    product,
    quadratic_form,
    shrunk,
)

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


class Diagonal(NamedTuple):
    """weights : [feature + 1, class], the means, the last row the bias; variances : [feature + 1], of all classes."""

    weights: np.ndarray
    variances: np.ndarray


class Full(NamedTuple):
    """weights : [feature + 1, class], the means; covariance : float64 [feature + 1, feature + 1], of all classes;
    product : float64 [feature + 1], room for Sigma x."""

    weights: np.ndarray
    covariance: np.ndarray
    product: np.ndarray


class Params(NamedTuple):
    """phi : Q, deviations that a margin is to be away from 0; floor : of the variances; bias : value of the constant
    feature (1.0 or 0.0); room : of a kernel's own."""

    phi: float
    floor: float
    bias: float
    room: Room


def diagonal_state(n_features: int, dtype: DTypeLike, settings: dict[str, Any]) -> Diagonal:
    n = n_features + 1
    return Diagonal(np.zeros((n, settings["n_classes"]), dtype), np.full(n, settings.get("a", 1.0), dtype))


def full_state(n_features: int, dtype: DTypeLike, settings: dict[str, Any]) -> Full:
    _, covariance, product = cw.full_state(n_features, dtype, settings)
    return Full(np.zeros((n_features + 1, settings["n_classes"]), dtype), covariance, product)


def bind(settings: Numbers) -> Params:
    given = cw.bind(settings)
    return Params(given.phi, given.floor, given.bias, room(settings))


@inlined
def support_step(L, v, s, K, Q):  # type: ignore[no-untyped-def]
    """(A, c) of s support classes whose l_k sum up to L."""
    l = L / math.sqrt(v)  # noqa: E741
    b, d = (s + 1) * K + s * Q * Q, (s + 1) * K * ((s + 1) * K + 2.0 * s * Q * Q)
    root = s * Q * math.sqrt(Q * Q * l * l + 2.0 * d)
    a = K * (2.0 * s * s * Q * Q - l * l) / (root + b * l) if l > 0 else K * (root - b * l) / d
    a = max(0.0, a)  # A sqrt(v); less by rounding alone
    w = math.sqrt(2.0) * Q * a
    sqrt_u = 2.0 * K / (w + math.sqrt(w * w + 4.0 * K * K))  # by sqrt(v)
    return a / math.sqrt(v), w / (K * sqrt_u * v)


@inlined
def support(exact, block, i, variances, v, y, phi, bias, room):  # type: ignore[no-untyped-def]
    """(s, c): how many support classes there are; at the end of ``room.classes`` and ``room.steps`` stand these, then
    y, with the steps -alpha_k and A."""
    outputs, classes, steps = room.outputs, room.classes, room.steps
    K = outputs.size
    left = others(outputs, y, classes)
    s, L, A, c = 0, np.float64(0), np.float64(0), np.float64(0)
    while left > 0 and (s == 0 or outputs[y] - outputs[classes[0]] < (A * v + L) / s):
        L += outputs[y] - outputs[next_other(outputs, classes, left)]
        left -= 1
        s += 1
        A, c = support_step(L, v, s, K, phi)
        if exact and c > 0:
            Q = math.sqrt(2.0) * phi
            c, sqrt_u = exact_deviation(block, i, variances, L / s, v, (s + 1) * K * v / s, Q, c, bias)
            A = c * K * sqrt_u / Q
    for n in range(left, K - 1):
        steps[n] = -max(0.0, A / s + (L / s - (outputs[y] - outputs[classes[n]])) / v)
    classes[K - 1], steps[K - 1] = y, A
    return s, c


@inlined
def add(weights, j, z, s, room):  # type: ignore[no-untyped-def]
    """mu_jk += step_k z for the s support classes and y."""
    for n in range(room.classes.size - 1 - s, room.classes.size):
        weights[j, room.classes[n]] += room.steps[n] * z


@inlined
def move(block, i, weights, variances, s, c, v, params):  # type: ignore[no-untyped-def]
    """The means go by s_j x_j, then s_j shrinks, for every feature of the row and the bias."""
    for p in range(block.indptr[i], block.indptr[i + 1]):
        j, x = block.indices[p], entry(block, i, p)
        add(weights, j, variances[j] * x, s, params.room)
        variances[j] = shrunk(cw.OFF_PRECISION, np.float64(variances[j]), x * x, c, v, params.floor)
    if params.bias != 0:
        j, x = variances.size - 1, params.bias
        add(weights, j, variances[j] * x, s, params.room)
        variances[j] = shrunk(cw.OFF_PRECISION, np.float64(variances[j]), x * x, c, v, params.floor)


def diagonal(exact: bool = False):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order`` that keeps variances only: by dropping, or those that minimise the
    divergence among diagonal covariances."""

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        weights, variances = shared
        outputs = params.room.outputs
        mistakes, updates, total = 0, 0, np.float64(0)
        for k in range(order.size):
            prefetch_ahead(block, order, k)
            prefetch_classes(block, order, k, weights)
            i = order[k]
            y, rival, m, wrong = judge(block, i, weights, params.bias, outputs)
            v = variance_of(block, i, variances, params.bias)
            loss = lack(cw.DEVIATION, m, 2.0 * v, params.phi)
            mistakes += wrong
            total += loss
            if loss == 0 or v == 0:
                continue
            s, c = support(exact, block, i, variances, v, y, params.phi, params.bias, params.room)
            move(block, i, weights, variances, s, c, v, params)
            updates += 1
        return Counts(order.size, mistakes, updates, total, 0.0)

    return update


@kernel
def full(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
    """One pass over the rows of ``order`` that keeps all of Sigma; a row costs the square of its non-zeros, an update
    the square of the features. v has a floor as in the binary form."""
    weights, covariance, z = shared
    outputs = params.room.outputs
    mistakes, updates, total = 0, 0, np.float64(0)
    for k in range(order.size):
        i = order[k]
        y, rival, m, wrong = judge(block, i, weights, params.bias, outputs)
        least = params.floor * (block.norms[i] + params.bias * params.bias)
        v = max(quadratic_form(block, i, covariance, params.bias), least)
        loss = lack(cw.DEVIATION, m, 2.0 * v, params.phi)
        mistakes += wrong
        total += loss
        if loss == 0 or v == 0:
            continue
        s, c = support(False, block, i, z, v, y, params.phi, params.bias, params.room)
        product(block, i, covariance, params.bias, z)
        for j in range(z.size):
            add(weights, j, z[j], s, params.room)
        narrow(covariance, z, c / (1.0 + c * v), params.floor)
        updates += 1
    return Counts(order.size, mistakes, updates, total, 0.0)


# Methods

SUPPORT: dict[str, Any] = dict(
    shared=diagonal_state,
    bind=bind,
    weights=lambda shared, params: shared.weights,
    place=lambda shared, weights, params: np.copyto(shared.weights, weights, casting="same_kind"),
    mixings={**by_shares(MEAN), "precision": SHARED_PRECISION},
    mixing=MEANS,
    **NATIVE,
)
PAPER = "Oiwa, Matsushima, Nakagawa: support-class confidence-weighted learning"
FORMULA = "m_k < Q sqrt(2 v):  mu_y <- mu_y + A S x,  mu_k <- mu_k - a_k S x of the support classes;  "

METHODS = (
    gaussian(
        "sccw",
        "support-class confidence-weighted, diagonal by dropping",
        PAPER,
        FORMULA + "1/s <- 1/s + c x^2",
        diagonal,
        params=(ETA, A),
        **SUPPORT,
    ),
    gaussian(
        "sccw_exact",
        "support-class confidence-weighted, exact diagonal",
        PAPER,
        FORMULA + "1/s <- 1/s + c x^2,  c the root of the sum of a_k = A",
        lambda: diagonal(exact=True),
        params=(ETA, A),
        **SUPPORT,
    ),
    gaussian(
        "sccw_full",
        "support-class confidence-weighted, full covariance",
        PAPER,
        FORMULA + "S <- S - (c / (1 + c v)) S x x' S",
        lambda: full,
        params=(ETA, A),
        **SUPPORT | FULL | dict(shared=full_state),
    ),
)
