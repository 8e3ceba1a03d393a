"""Confidence-weighted learners: a Gaussian over the weights, with mean mu (the answer) and covariance Sigma.

A row with margin m = y mu.x and variance v = x' Sigma x moves the Gaussian the least, in Kullback-Leibler divergence
from where it was, that satisfies the row (CW), or that balances divergence and loss (SCW, AROW). The solution is

    mu <- mu + alpha y Sigma x,    Sigma^-1 <- Sigma^-1 + c x x'

with two numbers that ``closed_form`` gives (phi = Phi^-1(eta), the normal quantile; u = x' Sigma' x the new variance):

============  =====================================================  =================================================
rule          what is minimised, or asked for                        paper
============  =====================================================  =================================================
VARIANCE      divergence with m >= phi v, the variance linearised    CW: Dredze, Crammer, Pereira, ICML 2008
DEVIATION     divergence with m >= phi sqrt(v)                       CW: Crammer, Dredze, Pereira, NIPS 2008, eq. 10-15
SOFT          divergence + C max(0, phi sqrt(v) - m)                 SCW-I: Wang, Zhao, Hoi, ICML 2012, proposition 1
SQUARED_SOFT  divergence + C max(0, phi sqrt(v) - m)^2               SCW-II: the same, proposition 2
ADAPTIVE      divergence + (max(0, 1 - m)^2 + v) / (2 r)             AROW: Crammer, Kulesza, Dredze, NIPS 2009, eq. 6-9
HERDING       E[|w' - w|^2 / 2 + C/2 (1 - y w'.x)^2], w' = A w + b   NHERD: Crammer and Lee, NIPS 2010
============  =====================================================  =================================================

VARIANCE      alpha = (-(1 + 2 phi m) + sqrt(D)) / (4 phi v),  c = 2 phi alpha, with the discriminant
              (1 + 2 phi m)^2 - 8 phi (m - phi v) written as the sum of squares D = (1 - 2 phi m)^2 + 8 phi^2 v
DEVIATION     alpha = (-m psi + sqrt(m^2 phi^4 / 4 + v phi^2 xi)) / (v xi),  c = alpha phi / sqrt(u),  where
              psi = 1 + phi^2 / 2,  xi = 1 + phi^2,  sqrt(u) = 2 v / (alpha v phi + sqrt(alpha^2 v^2 phi^2 + 4 v))
SOFT          alpha = min(C, that of DEVIATION),  c likewise
SQUARED_SOFT  alpha = (-(2 m n + phi^2 m v) + g) / (2 (n^2 + n v phi^2)),  c likewise, where
              n = v + 1 / (2 C),  g = phi sqrt(phi^2 m^2 v^2 + 4 n v (n + v phi^2))
ADAPTIVE      alpha = (1 - m) / (v + r),  c = 1 / r
HERDING       alpha = (1 - m) / (v + 1 / C),  c = 2 C + C^2 v; the norm is that of Sigma^-1, and the best map has
              A = I - C / (1 + C v) Sigma x x',  Sigma' = A Sigma A'

Where a root and the term before it have opposite signs, the quotient is taken of their product and their sum, so that
nothing cancels. Kept of Sigma are (``diagonal``) its diagonal, by dropping after each row what is off the diagonal of
Sigma^-1, or of Sigma itself,

    1 / s_j <- 1 / s_j + c x_j^2     or     s_j <- s_j - (c / (1 + c v)) s_j^2 x_j^2,

(``exact``) the diagonal that minimises the divergence among diagonal ones, the same step with another c, found by
Newton's method, or (``full``) all of it.

No variance falls below ``floor``. On dense data with eta >= 0.95 a row that can hardly be satisfied shrinks its
variances doubly exponentially; for CW and SCW 1e-6 of the first variance is the floor that keeps the most accuracy. It
scales with that, so that what holds for every first variance goes on to hold. For AROW and NHERD, whose variances fall
like one over the number of rows, it is only there so that none becomes zero.

The deviation form does not depend on the first variance ``a`` but for the scale sqrt(a) of mu, nor on positive factors
of the rows; the variance form depends on phi sqrt(a) only.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled import large_pages
from bigclf.compiled.jit import asks, at, distances, dot, eights_of, inlined, kernel, prefetch_known
from bigclf.compiled.lanes import ROOM, moment_lanes, move_lanes, move_lanes_alike, pair_lanes, room_for_pairs
from bigclf.maths.block import Counts
from bigclf.maths.mixing import MEAN, OF_MEANS, PRECISION
from bigclf.methods.common import WITH_MOMENTUM
from bigclf.methods.method import Method, Param, by_momentum, by_shares, online

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


VARIANCE, DEVIATION, SOFT, SQUARED_SOFT, ADAPTIVE, HERDING = range(6)
OFF_PRECISION, OFF_COVARIANCE = range(2)  # the matrix whose entries off the diagonal are dropped
FLOOR = 1e-6  # of the first variance
LEAST = 1e-30  # a variance that float32 holds
LEAST_FULL = 1e-12  # a variance that rounding in a matrix with entries of about 1 leaves alone
MOST_STEPS = 100  # of Newton's method for one row
NEAR = 1e-12  # relative change of the root at which it ends


class Diagonal(NamedTuple):
    """weights : [feature + 1, 2], of each weight the mean and the variance side by side; the last one is the bias."""

    weights: np.ndarray


class Full(NamedTuple):
    """weights : [feature + 1], the means, the last one the bias; covariance : float64 [feature + 1, feature + 1],
    whatever the precision of the weights; product : float64 [feature + 1], Sigma x of the last row that was learned
    from, room that a kernel may not make."""

    weights: np.ndarray
    covariance: np.ndarray
    product: np.ndarray


class Params(NamedTuple):
    """phi : deviations that a margin is to be away from 0; C : price of loss (SCW, NHERD), times the row's weight; r :
    price of divergence (AROW), divided by the row's weight; floor : of the variances; bias : value of the constant
    feature (1.0 or 0.0)."""

    phi: float
    C: float
    r: float
    floor: float
    bias: float


def diagonal_state(n_features: int, dtype: DTypeLike, settings: Mapping[str, object]) -> Diagonal:
    weights = large_pages.zeros((n_features + 1, 2), dtype)
    weights[:, 1] = settings.get("a", 1.0)
    return Diagonal(weights)


def full_state(n_features: int, dtype: DTypeLike, settings: Mapping[str, object]) -> Full:
    n = n_features + 1
    covariance = np.zeros((n, n))
    np.fill_diagonal(covariance, settings.get("a", 1.0))
    return Full(np.zeros(n, dtype), covariance, np.zeros(n))


def bind(settings: Numbers, least: float = LEAST) -> Params:
    """Numbers that a method has no use for are 1; ``least`` is the floor of AROW and NHERD."""
    confident = "phi" in settings or "eta" in settings
    phi = NormalDist().inv_cdf(settings["eta"]) if "eta" in settings else settings.get("phi", 1.0)
    floor = FLOOR * settings.get("a", 1.0) if confident else least
    return Params(phi, settings.get("C", 1.0), settings.get("r", 1.0), floor, settings["bias"])


def means(shared: Diagonal, params: Params) -> np.ndarray:
    """[feature + 1] (with more axes, those between the features and the pairs), a copy."""
    return np.ascontiguousarray(shared.weights[..., 0])


def at_floor(shared: Any, params: Params) -> float:
    """Share of the variances that stand at their floor (``params.floor``), in a state that has them beside the means,
    as an array ``variances`` or as the diagonal of ``covariance``."""
    if "covariance" in shared._fields:
        variances = np.diagonal(shared.covariance)
    else:
        variances = shared.variances if "variances" in shared._fields else shared.weights[..., 1]
    return float(np.mean(variances <= params.floor * (1 + 1e-6)))  # float32 rounds the floor itself


def begin_means(shared: Diagonal, weights: np.ndarray, params: Params) -> None:
    """Begin with the weights of a model, about which nothing else is known."""
    shared.weights[..., 0] = weights


@inlined
def lack(rule, m, v, phi):  # type: ignore[no-untyped-def]
    """What the row lacks before it is learned from: 0 where it is satisfied."""
    if rule in (ADAPTIVE, HERDING):
        return max(0.0, 1.0 - m)
    return max(0.0, phi * (v if rule == VARIANCE else math.sqrt(v)) - m)


@inlined
def closed_form(rule, m, v, params, weight):  # type: ignore[no-untyped-def]
    """(alpha, c) of a row that is not satisfied, with margin m, variance v > 0 and a weight."""
    phi = params.phi
    if rule == VARIANCE:
        alpha = variance_step(m, v, phi)
        return alpha, 2.0 * phi * alpha
    if rule == ADAPTIVE:
        return (1.0 - m) / (v + params.r / weight), weight / params.r
    if rule == HERDING:
        C = params.C * weight
        return (1.0 - m) / (v + 1.0 / C), C * (2.0 + C * v)
    if rule == SQUARED_SOFT:
        alpha = squared_soft_step(m, v, phi, params.C * weight)
    else:
        alpha = deviation_step(m, v, phi)
        if rule == SOFT:
            alpha = min(params.C * weight, alpha)
    return alpha, alpha * phi * inverse_deviation_after(alpha, v, phi)


@inlined
def variance_step(m, v, phi):  # type: ignore[no-untyped-def]
    """The root alpha > 0 of  m + alpha v = phi v / (1 + 2 phi alpha v)."""
    b = 1.0 + 2.0 * phi * m
    root = math.sqrt((1.0 - 2.0 * phi * m) * (1.0 - 2.0 * phi * m) + 8.0 * phi * phi * v)
    return quotient(b > 0, 2.0 * (phi * v - m), v * (b + root), root - b, 4.0 * phi * v)


@inlined
def deviation_step(m, v, phi):  # type: ignore[no-untyped-def]
    """The root alpha > 0 of  m + alpha v = phi sqrt(u)."""
    psi, xi = 1.0 + 0.5 * phi * phi, 1.0 + phi * phi
    root = math.sqrt(0.25 * m * m * phi * phi * phi * phi + v * phi * phi * xi)
    return quotient(m > 0, phi * phi * v - m * m, v * (m * psi + root), root - m * psi, v * xi)


@inlined
def quotient(first, a, b, c, d):  # type: ignore[no-untyped-def]
    """a / b if ``first``, else c / d: chosen, not jumped to, for which of the two it is no processor foresees."""
    return (a if first else c) / (b if first else d)


@inlined
def squared_soft_step(m, v, phi, C):  # type: ignore[no-untyped-def]
    """The root alpha > 0 of  m + alpha n = phi sqrt(u); the numerator's two ends multiply to 4 n (n + v phi^2) times
    phi^2 v - m^2."""
    n = v + 0.5 / C
    b = m * (2.0 * n + phi * phi * v)
    root = phi * math.sqrt(phi * phi * m * m * v * v + 4.0 * n * v * (n + v * phi * phi))
    if m > 0:
        return 2.0 * (phi * phi * v - m * m) / (b + root)
    return (root - b) / (2.0 * n * (n + v * phi * phi))


@inlined
def inverse_deviation_after(alpha, v, phi):  # type: ignore[no-untyped-def]
    """1 / sqrt(u), of the deviation of the margin after the step: a product, for what moves waits for it."""
    w = alpha * v * phi
    return (w + math.sqrt(w * w + 4.0 * v)) * (0.5 / v)


@inlined
def moments(block, order, k, weights, bias, room):  # type: ignore[no-untyped-def]
    """(mu.x, sum_j s_j x_j^2) of the row order[k], in float64, added as ``dot`` adds and the bias last; what a row to
    come needs is asked for meanwhile, and what was looked up is left in ``room``."""
    i, last = order[k], weights.shape[0] - 1
    first, eights = eights_of(block, i)
    end, large = block.indptr[i + 1], asks(block, first, eights, weights)
    prefetch_known(block, order, k)
    near, far = distances(block, order, k, eights)
    if block.values.size > 0:
        mean, variance = moment_lanes(weights, block.indices, block.values, first, eights, near, far, large, room)
        for p in range(eights, end):
            j, x = at(block.indices, p), np.float64(at(block.values, p))
            mean += weights[j, 0] * x
            variance += weights[j, 1] * (x * x)
    else:
        mean, variance = pair_lanes(weights, block.indices, block.values, first, eights, near, far, large, room)
        for p in range(eights, end):
            j = at(block.indices, p)
            mean += weights[j, 0]
            variance += weights[j, 1]
        if block.scales.size > 0:
            x = np.float64(block.scales[i])
            mean *= x
            variance *= x * x
    return mean + bias * weights[last, 0], variance + bias * bias * weights[last, 1]


@inlined
def shrunk(drop, s, q, c, v, floor):  # type: ignore[no-untyped-def]
    """The variance s after a row with x_j^2 = q: not below the floor nor above s."""
    if drop == OFF_COVARIANCE:
        return max(s * ((1.0 + c * max(v - s * q, 0.0)) / (1.0 + c * v)), min(s, floor))
    return max(s / (1.0 + c * s * q), min(s, floor))


@inlined
def move(drop, block, i, first, weights, step, c, v, params):  # type: ignore[no-untyped-def]
    """mu_j += step s_j x_j, then s_j shrinks, for every feature of the row from its entry ``first`` on, and the
    bias."""
    one = np.float64(block.scales[i]) if block.scales.size > 0 else np.float64(1)
    explicit = block.values.size > 0
    for p in range(first, block.indptr[i + 1]):
        j, x = at(block.indices, p), np.float64(at(block.values, p)) if explicit else one
        s = np.float64(weights[j, 1])
        weights[j, 0] += step * s * x
        weights[j, 1] = shrunk(drop, s, x * x, c, v, params.floor)
    if params.bias != 0:
        last = weights.shape[0] - 1
        s = np.float64(weights[last, 1])
        weights[last, 0] += step * s * params.bias
        weights[last, 1] = shrunk(drop, s, params.bias * params.bias, c, v, params.floor)


@inlined
def move_kept(block, i, room, weights, step, c, params):  # type: ignore[no-untyped-def]
    """What ``move`` does off the precision, for the entries whose pairs ``moments`` left in ``room``; the first entry
    that has not moved."""
    first, last = eights_of(block, i)
    last = min(last, first + ROOM)
    if block.values.size > 0:
        move_lanes(weights, block.indices, block.values, first, last, 1.0, step, c, params.floor, room)
    else:
        one = np.float64(block.scales[i]) if block.scales.size > 0 else np.float64(1)
        move_lanes_alike(weights, block.indices, block.values, first, last, one, step, c, params.floor, room)
    return last


@inlined
def spread(block, i, variances, c, bias):  # type: ignore[no-untyped-def]
    """u(c) = sum_j t_j / (1 + c t_j) of t_j = s_j x_j^2, and -u'(c)."""
    t = bias * bias * variances[variances.size - 1]
    part = t / (1.0 + c * t)
    u, slope = part, part * part
    one = np.float64(block.scales[i]) if block.scales.size > 0 else np.float64(1)
    explicit = block.values.size > 0
    for p in range(block.indptr[i], block.indptr[i + 1]):
        x = np.float64(at(block.values, p)) if explicit else one
        t = variances[at(block.indices, p)] * (x * x)
        part = t / (1.0 + c * t)
        u += part
        slope += part * part
    return u, slope


@inlined
def exact_variance(block, i, variances, m, v, phi, c, bias):  # type: ignore[no-untyped-def]
    """The c with  f(c) = m + c v / (2 phi) - phi u(c) = 0, from that of the closed form.

    f rises and is concave, and u(c) >= v / (1 + c v), so Newton's method from there goes up to the root.
    """
    for _ in range(MOST_STEPS):
        u, slope = spread(block, i, variances, c, bias)
        step = -(m + c * v / (2.0 * phi) - phi * u) / (v / (2.0 * phi) + phi * slope)
        c += max(step, 0.0)
        if not step > NEAR * c:
            break
    return c


@inlined
def exact_deviation(block, i, variances, m, v, pull, phi, c, bias):  # type: ignore[no-untyped-def]
    """(c, sqrt(u)) with  f(c) = m + (c pull / phi - phi) sqrt(u(c)) = 0, from the c of u = v / (1 + c v).

    f has the sign of c - root, and the root lies between the c it begins with, exact where one t_j is all of v, and
    that of u(c) = v: Newton's method inside this bracket, which each step narrows. ``pull`` is v, where one answer is
    moved by each row.
    """
    wide = phi * (phi - m / math.sqrt(v)) / pull
    low, high = min(c, wide), max(c, wide)
    u = v
    for _ in range(MOST_STEPS):
        u, slope = spread(block, i, variances, c, bias)
        short = c * pull / phi - phi
        f = m + short * math.sqrt(u)
        if f > 0:
            high = min(high, c)
        else:
            low = max(low, c)
        following = c - f / (pull / phi * math.sqrt(u) - 0.5 * short * slope / math.sqrt(u))
        if not (low <= following <= high):
            following = 0.5 * (low + high)
        done = abs(following - c) <= NEAR * c
        c = following
        if done:
            break
    return c, math.sqrt(u)


def diagonal(rule: int, drop: int = OFF_PRECISION, exact: bool = False):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order`` that keeps variances only: by dropping what the closed form has off
    the diagonal, or those that minimise the divergence among diagonal covariances (``exact``; both forms of CW)."""

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        weights = shared.weights
        room = room_for_pairs(weights)
        mistakes, updates, total = 0, 0, np.float64(0)
        for k in range(order.size):
            i = order[k]
            y = block.labels[i]
            mean, v = moments(block, order, k, weights, params.bias, room)
            m = y * mean
            loss = lack(rule, m, v, params.phi)
            mistakes += m <= 0
            total += loss
            if loss == 0 or v == 0:
                continue
            alpha, c = closed_form(rule, m, v, params, block.weights[i])
            if exact and rule == VARIANCE:
                c = exact_variance(block, i, weights[:, 1], m, v, params.phi, c, params.bias)
                alpha = c / (2.0 * params.phi)
            elif exact:
                c, root = exact_deviation(block, i, weights[:, 1], m, v, v, params.phi, c, params.bias)
                alpha = c * root / params.phi
            step, first = alpha * y, block.indptr[i]
            if drop == OFF_PRECISION:
                first = move_kept(block, i, room, weights, step, c, params)
            move(drop, block, i, first, weights, step, c, v, params)
            updates += 1
        return Counts(order.size, mistakes, updates, total, 0.0)

    return update


@inlined
def quadratic_form(block, i, covariance, bias):  # type: ignore[no-untyped-def]
    """x' Sigma x of a symmetric Sigma: the diagonal, and twice what is below it."""
    last = covariance.shape[0] - 1
    one = np.float64(block.scales[i]) if block.scales.size > 0 else np.float64(1)
    explicit = block.values.size > 0
    first, end = block.indptr[i], block.indptr[i + 1]
    total, edge = np.float64(0), bias * covariance[last, last]
    for p in range(first, end):
        j, x = block.indices[p], np.float64(block.values[p]) if explicit else one
        below = np.float64(0)
        for q in range(first, p):
            below += covariance[j, block.indices[q]] * (np.float64(block.values[q]) if explicit else one)
        total += x * (2.0 * below + covariance[j, j] * x)
        edge += 2.0 * covariance[last, j] * x
    return total + bias * edge


@inlined
def product(block, i, covariance, bias, out):  # type: ignore[no-untyped-def]
    """out = Sigma x, by the rows of a symmetric Sigma."""
    last = covariance.shape[0] - 1
    one = np.float64(block.scales[i]) if block.scales.size > 0 else np.float64(1)
    explicit = block.values.size > 0
    for k in range(last + 1):
        out[k] = bias * covariance[last, k]
    for p in range(block.indptr[i], block.indptr[i + 1]):
        j, x = block.indices[p], np.float64(block.values[p]) if explicit else one
        for k in range(last + 1):
            out[k] += x * covariance[j, k]


@inlined
def narrow(covariance, z, beta, floor):  # type: ignore[no-untyped-def]
    """Sigma -= beta z z'  with z = Sigma x; symmetric to the bit, no variance below the floor."""
    for j in range(z.size):
        s = np.float64(covariance[j, j])
        for k in range(z.size):
            covariance[j, k] -= beta * (z[j] * z[k])
        covariance[j, j] = max(np.float64(covariance[j, j]), min(s, floor))


@inlined
def move_all(shared, step, beta, floor):  # type: ignore[no-untyped-def]
    """mu += step z,  Sigma -= beta z z'  with z = Sigma x."""
    weights, covariance, z = shared
    for j in range(weights.size):
        weights[j] += step * z[j]
    narrow(covariance, z, beta, floor)


def full(rule: int):  # type: ignore[no-untyped-def]
    """Kernel of one pass that keeps all of Sigma:  Sigma <- Sigma - (c / (1 + c v)) Sigma x x' Sigma.

    A row costs the square of its non-zeros, an update the square of the features. With a floor on v too, rounding in
    Sigma cannot make a step long.
    """

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        weights, covariance = shared.weights, shared.covariance
        last = weights.size - 1
        mistakes, updates, total = 0, 0, np.float64(0)
        for k in range(order.size):
            i = order[k]
            y = block.labels[i]
            m = y * (dot(block, i, weights) + params.bias * weights[last])
            least = params.floor * (block.norms[i] + params.bias * params.bias)
            v = max(quadratic_form(block, i, covariance, params.bias), least)
            loss = lack(rule, m, v, params.phi)
            mistakes += m <= 0
            total += loss
            if loss == 0 or v == 0:
                continue
            alpha, c = closed_form(rule, m, v, params, block.weights[i])
            product(block, i, covariance, params.bias, shared.product)
            move_all(shared, alpha * y, c / (1.0 + c * v), params.floor)
            updates += 1
        return Counts(order.size, mistakes, updates, total, 0.0)

    return update


# Methods

PHI = Param(
    "phi", 1.0, 0.0, 1e6, "confidence that a row asks for: Phi^-1(eta), the normal quantile of eta", open_low=True
)
ETA = Param("eta", 0.9, 0.5, 1.0, "required probability that a row is right", open_low=True, open_high=True)
A = Param("a", 1.0, 1e-30, 1e30, "initial variance of every weight")
R = Param("r", 1.0, 1e-100, 1e30, "weight of the divergence against the loss; a larger r makes smaller steps")
PRICE = Param("C", 1.0, 1e-100, 1e30, "cost parameter; a larger C fits the training rows more closely")
BY_PRECISION = "by precision, each mean weighed by how sure it is"
MEANS = f"mean by rows, uniform or by mistakes; {BY_PRECISION}"
FULL: dict[str, Any] = dict(
    shared=full_state,
    weights=lambda shared, params: shared.weights,
    place=lambda shared, weights, params: np.copyto(shared.weights, weights, casting="same_kind"),
    mixings={},
    mixing="none: it runs with one group",
)
# Of methods whose confidence in a row has its price: those that ask for it at any price lose by momentum.
GOES_ON: dict[str, Any] = dict(
    mixings={**by_shares(MEAN), **by_momentum(MEAN, OF_MEANS), "precision": PRECISION},
    mixing=f"{WITH_MOMENTUM} of the means; {BY_PRECISION}",
    row_weights="any",
)
PRICED = GOES_ON | dict(weight_meaning="multiplies C")
DIVIDED = GOES_ON | dict(weight_meaning="divides r")
VARIANCE_PAPER = "Dredze, Crammer, Pereira, ICML 2008"
DEVIATION_PAPER = "Crammer, Dredze, Pereira, NIPS 2008"
SOFT_PAPER = "Wang, Zhao, Hoi, ICML 2012"
ADAPTIVE_PAPER = "Crammer, Kulesza, Dredze, NIPS 2009"


def gaussian(name: str, title: str, paper: str, formula: str, kernel: Any, **more: object) -> Method:
    """A method whose state is means and variances side by side."""
    standard: dict[str, Any] = dict(
        shared=diagonal_state,
        bind=bind,
        weights=means,
        place=begin_means,
        floored=at_floor,
        mixings={**by_shares(MEAN), "precision": PRECISION},
        mixing=MEANS,
        row_weights="binary",
        weight_meaning="0 or 1 only",
    )
    kernel = functools.cache(kernel)
    own = dict(name=name, title=title, paper=paper, formula=formula, update=lambda loss: kernel())
    return online(**own, **(standard | more))


METHODS = (
    gaussian(
        "cw_var",
        "confidence-weighted, variance form, diagonal by dropping",
        VARIANCE_PAPER,
        "m < phi v:  mu <- mu + g y S x;  1/s <- 1/s + 2 g phi x^2",
        lambda: diagonal(VARIANCE),
        params=(PHI, A),
    ),
    gaussian(
        "cw_var_exact",
        "confidence-weighted, variance form, exact diagonal",
        VARIANCE_PAPER,
        "m < phi v:  mu <- mu + g y S x;  1/s <- 1/s + 2 g phi x^2;  g the root of m + g v = phi v'",
        lambda: diagonal(VARIANCE, exact=True),
        params=(PHI, A),
    ),
    gaussian(
        "cw_var_full",
        "confidence-weighted, variance form, full covariance",
        VARIANCE_PAPER,
        "m < phi v:  mu <- mu + g y S x;  S <- S - (2 g phi / (1 + 2 g phi v)) S x x' S",
        lambda: full(VARIANCE),
        params=(PHI, A),
        **FULL,
    ),
    gaussian(
        "cw",
        "confidence-weighted, standard-deviation form, diagonal by dropping",
        DEVIATION_PAPER,
        "m < phi sqrt(v):  mu <- mu + a y S x;  1/s <- 1/s + (a phi / sqrt(u)) x^2",
        lambda: diagonal(DEVIATION),
        params=(ETA, A),
    ),
    gaussian(
        "cw_exact",
        "confidence-weighted, standard-deviation form, exact diagonal",
        DEVIATION_PAPER,
        "m < phi sqrt(v):  mu <- mu + a y S x;  1/s <- 1/s + c x^2;  a = c sqrt(v') / phi,  m + a v = phi sqrt(v')",
        lambda: diagonal(DEVIATION, exact=True),
        params=(ETA, A),
    ),
    gaussian(
        "cw_full",
        "confidence-weighted, standard-deviation form, full covariance",
        DEVIATION_PAPER,
        "m < phi sqrt(v):  mu <- mu + a y S x;  S <- S - b S x x' S,  b = a phi / (sqrt(u) + v a phi)",
        lambda: full(DEVIATION),
        params=(ETA, A),
        **FULL,
    ),
    gaussian(
        "scw1",
        "soft confidence-weighted I, diagonal by dropping",
        SOFT_PAPER,
        "m < phi sqrt(v):  mu <- mu + min(C, a) y S x;  1/s <- 1/s + (min(C, a) phi / sqrt(u)) x^2,  a of cw",
        lambda: diagonal(SOFT),
        params=(PRICE, ETA),
        **PRICED,
    ),
    gaussian(
        "scw2",
        "soft confidence-weighted II, diagonal by dropping",
        SOFT_PAPER,
        "m < phi sqrt(v):  mu <- mu + a y S x;  1/s <- 1/s + (a phi / sqrt(u)) x^2,  m + a (v + 1/(2C)) = phi sqrt(u)",
        lambda: diagonal(SQUARED_SOFT),
        params=(PRICE, ETA),
        **PRICED,
    ),
    gaussian(
        "arow",
        "adaptive regularisation of weights, diagonal by dropping in the precision",
        ADAPTIVE_PAPER,
        "m < 1:  mu <- mu + ((1 - m) / (v + r)) y S x;  1/s <- 1/s + x^2 / r",
        lambda: diagonal(ADAPTIVE),
        params=(R,),
        **DIVIDED,
    ),
    gaussian(
        "arow_var",
        "adaptive regularisation of weights, diagonal by dropping in the covariance",
        ADAPTIVE_PAPER,
        "m < 1:  mu <- mu + ((1 - m) / (v + r)) y S x;  s <- s - s^2 x^2 / (v + r)",
        lambda: diagonal(ADAPTIVE, OFF_COVARIANCE),
        params=(R,),
        **DIVIDED,
    ),
    gaussian(
        "arow_full",
        "adaptive regularisation of weights, full covariance",
        ADAPTIVE_PAPER,
        "m < 1:  mu <- mu + ((1 - m) / (v + r)) y S x;  S <- S - S x x' S / (v + r)",
        lambda: full(ADAPTIVE),
        bind=functools.partial(bind, least=LEAST_FULL),
        params=(R,),
        **DIVIDED | FULL,
    ),
)
