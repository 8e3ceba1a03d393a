"""Stochastic gradient descent on  lambda penalty(w) + (1/l) sum_i loss(s_i w.x_i),  one row a step, and its average.

s_i is the label y_i = -1 or +1, or 1 for regression, whose labels are in the loss. With Bottou's rate

    eta_t = eta0 / (1 + lambda eta0 t),   t = 1, 2, ...                        (Bottou, COMPSTAT 2010, section 5)

    l2   w <- (1 - eta_t lambda) w - eta_t loss'(m) s x
    l1   w <- truncate(w - eta_t loss'(m) s x, eta_t lambda)                   (Langford, Li, Zhang, JMLR 2009)

every step regularises every weight, and costs no more than its row's entries:

l2: 1 - eta_t lambda = (1 + lambda eta0 (t-1)) / (1 + lambda eta0 t), so that the product over all steps telescopes:
    with w = s v the scale s is known from t alone, and  v <- v - (eta_t / s) loss'(m) s_i x.
l1: the sum of the rates so far, times lambda, is what each weight has to pay; it pays when its feature comes by.

The average (Polyak and Juditsky, 1992; Xu, 2011) of w_k = s_k v_k over N steps is (Q v - drift) / N with Q = sum s_k
and drift = sum Q_{k-1} d_k, where v_k = v_{k-1} + d_k: two scalars, and the row's entries of drift.

Losses whose slope has no bound (squared, squared hinge) take no step past the minimum of the row's own loss: their rate
is at most 1 / (loss'' ||x||^2). Nor does the tube of a regression, whose slope of 1 says nothing of how far its edge
is: at most (|y - m| - epsilon) / ||x||^2, the step of PA-I with C = eta_t. A free bias is not regularised. A row's
weight multiplies its loss. At the end of an epoch everything owed is paid, so that copies can be mixed as plain
weights. ``clock`` is t; after mixing it goes on from the mean of the copies' (by "features" from the sum of their
steps).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.compiled import large_pages
from bigclf.compiled.jit import axpy, dot_ahead, kernel
from bigclf.maths.block import Counts
from bigclf.maths.losses import Loss, rate_of
from bigclf.maths.mixing import AVERAGED, FEATURES, MEAN, OF_AVERAGED, OF_WEIGHTS
from bigclf.maths.penalties import L1, truncate_all, truncated
from bigclf.methods.common import EPSILON, LAM, MOMENTUM_FIRST, gradient
from bigclf.methods.method import Param, by_momentum, by_shares

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


class Scaled(NamedTuple):
    """weights : [feature + 1], v of w = s v, the bias last; clock : float64 [1], steps t; fresh : float64 [1], those
    since s was 1; touched : float64 [feature + 1], rows that have each feature, where copies are mixed by that (else
    [0])."""

    weights: np.ndarray
    clock: np.ndarray
    fresh: np.ndarray
    touched: np.ndarray


class Truncated(NamedTuple):
    """weights : [feature + 1]; paid : float64 [feature + 1], how much of ``due`` each weight has been reduced by;
    clock : float64 [1], steps t; due : float64 [1], lambda times the sum of the rates; touched : as in ``Scaled``."""

    weights: np.ndarray
    paid: np.ndarray
    clock: np.ndarray
    due: np.ndarray
    touched: np.ndarray


class Averaged(NamedTuple):
    """weights, clock, fresh : as in ``Scaled``; drift : float64 [feature + 1]; steps : float64 [1], N that are in the
    average; excess : float64 [1], Q - N."""

    weights: np.ndarray
    drift: np.ndarray
    steps: np.ndarray
    clock: np.ndarray
    fresh: np.ndarray
    excess: np.ndarray


class Params(NamedTuple):
    """lam : lambda; eta0 : the first rate; epsilon : half the width of the tube; bias : value of the constant feature
    (1.0 or 0.0); free : 1.0 where its weight is not regularised; start : steps before the average begins."""

    lam: float
    eta0: float
    epsilon: float
    bias: float
    free: float
    start: float


def first_rate(lam: float) -> float:
    """About the size 1 / lambda^(1/4) that the weights of rows of norm 1 come to (Bottou's rule); 1 without a
    penalty."""
    return min(lam**-0.25, 1e6) if lam > 0 else 1.0


def bind(settings: Numbers) -> Params:
    lam, eta0 = settings["lam"], settings["eta0"]
    return Params(
        lam,
        first_rate(lam) if eta0 is None else eta0,
        settings.get("epsilon", 0.0),
        settings["bias"],
        settings["free_bias"],
        float(settings.get("start", 0)),
    )


def touched(n_features: int, settings: Mapping[str, object]) -> np.ndarray:
    """float64 [feature + 1] where copies are mixed by the rows that have each feature, else [0]."""
    return np.zeros(n_features + 1 if settings.get("mixing") == "features" else 0)


def shared(n_features: int, dtype: DTypeLike, settings: Mapping[str, object]) -> Scaled | Truncated:
    weights, counted = large_pages.zeros(n_features + 1, dtype), touched(n_features, settings)
    if settings["penalty"] == "l1":
        return Truncated(weights, np.zeros(n_features + 1), np.zeros(1), np.zeros(1), counted)
    return Scaled(weights, np.zeros(1), np.zeros(1), counted)


def averaged(n_features: int, dtype: DTypeLike, settings: Mapping[str, object]) -> Averaged:
    n = n_features + 1
    return Averaged(large_pages.zeros(n, dtype), large_pages.zeros(n), *(np.zeros(1) for _ in range(4)))


def sgd(loss: Loss, penalty: int):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order``."""
    return _truncated(loss) if penalty == L1 else _scaled(loss, averaged=False)


def asgd(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel of the same steps with l2; the drift turns the last weights into the average."""
    return _scaled(loss, averaged=True)


def _scaled(loss: Loss, averaged: bool):  # type: ignore[no-untyped-def]
    regression, value_of, slope, rate_within = loss.regression, loss.value, loss.slope, rate_of(loss)

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        weights, clock, fresh, e = shared.weights, shared.clock, shared.fresh, params.epsilon
        last, pull = weights.size - 1, params.lam * params.eta0
        t = clock[0]
        whole = 1.0 + pull * (t - fresh[0])  # s = whole / (1 + lambda eta0 t)
        s, coming = whole / (1.0 + pull * t), 1.0 + pull * (t + 1.0)
        rate, inverse = params.eta0 / coming, coming / whole  # of the row to come, known before its margin is
        mistakes, updates, total = 0, 0, np.float64(0)
        for k in range(order.size):
            i = order[k]
            y, c = block.labels[i], block.weights[i]
            sign = 1.0 if regression else y
            b = params.bias * weights[last]
            m = sign * (s * dot_ahead(block, order, k, weights) + (b if params.free else s * b))
            value = value_of(m, y, e)
            mistakes += value > 0 if regression else m <= 0
            total += c * value
            t += 1.0
            g = slope(m, y, e)
            if g != 0:
                step = -rate_within(c * rate, block.norms[i] + params.bias, value) * g * sign
                axpy(step * inverse, block, i, weights)
                own = params.bias * (step if params.free else step * inverse)
                weights[last] += own
                if averaged:
                    mass = shared.steps[0] + shared.excess[0]
                    if mass > 0:
                        axpy(mass * step * inverse, block, i, shared.drift)
                        shared.drift[last] += own * (shared.steps[0] if params.free else mass)
                updates += 1
            if averaged:  # noqa: SIM102 - alone it folds away where a state has no steps
                if t > params.start:
                    shared.steps[0] += 1.0
                    shared.excess[0] += whole / coming - 1.0
            s, coming = whole / coming, 1.0 + pull * (t + 1.0)
            rate, inverse = params.eta0 / coming, coming / whole
        fresh[0] += t - clock[0]
        clock[0] = t
        return Counts(order.size, mistakes, updates, total, 0.0)

    return update


def scale(shared: Scaled | Averaged, params: Params) -> float:
    """s of w = s v."""
    pull, t = params.lam * params.eta0, float(shared.clock[0])
    return (1.0 + pull * (t - float(shared.fresh[0]))) / (1.0 + pull * t)


def weights(shared: Scaled | Truncated, params: Params) -> np.ndarray:
    """w, [feature + 1]."""
    w = shared.weights.copy()
    _settle(w, shared, params)
    return w


def finish(shared: Scaled | Truncated, params: Params) -> None:
    """Pay everything owed: ``weights`` is w."""
    _settle(shared.weights, shared, params)
    if isinstance(shared, Truncated):
        shared.paid[:] = shared.due[:] = 0
    else:
        shared.fresh[:] = 0


def _settle(w: np.ndarray, shared: Scaled | Truncated, params: Params) -> None:
    regularised = w[: w.size - 1 if params.free else w.size]
    if isinstance(shared, Truncated):
        truncate_all(regularised, shared.paid[: regularised.size], float(shared.due[0]))
    else:
        regularised *= scale(shared, params)


def _truncated(loss: Loss):  # type: ignore[no-untyped-def]
    regression, value_of, slope, rate_within = loss.regression, loss.value, loss.slope, rate_of(loss)

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        weights, paid, clock, due, e = shared.weights, shared.paid, shared.clock, shared.due, params.epsilon
        last, pull = weights.size - 1, params.lam * params.eta0
        mistakes, updates, total = 0, 0, np.float64(0)
        for k in range(order.size):
            i = order[k]
            y, c = block.labels[i], block.weights[i]
            sign = 1.0 if regression else y
            for p in range(block.indptr[i], block.indptr[i + 1]):
                j = block.indices[p]
                weights[j] = truncated(np.float64(weights[j]), due[0] - paid[j])
                paid[j] = due[0]
            if not params.free:
                weights[last] = truncated(np.float64(weights[last]), due[0] - paid[last])
                paid[last] = due[0]
            m = sign * (dot_ahead(block, order, k, weights) + params.bias * weights[last])
            value = value_of(m, y, e)
            mistakes += value > 0 if regression else m <= 0
            total += c * value
            clock[0] += 1.0
            rate = params.eta0 / (1.0 + pull * clock[0])
            due[0] += params.lam * rate
            g = slope(m, y, e)
            if g != 0:
                step = -rate_within(c * rate, block.norms[i] + params.bias, value) * g * sign
                axpy(step, block, i, weights)
                weights[last] += params.bias * step
                updates += 1
        return Counts(order.size, mistakes, updates, total, 0.0)

    return update


def average(shared: Averaged, params: Params) -> np.ndarray:
    """(Q v - drift) / N, float64 [feature + 1]; before the average begins w."""
    n = float(shared.steps[0])
    if n == 0:
        return shared.weights * _factors(shared, params, scale(shared, params), 1.0)
    masses = _factors(shared, params, n + float(shared.excess[0]), n)
    return (shared.weights * masses - shared.drift) / n


def _factors(shared: Averaged, params: Params, factor: float, of_free: float) -> np.ndarray:
    """float64 [feature + 1]: ``factor``, but for a free bias ``of_free``."""
    factors = np.full(shared.weights.size, factor)
    if params.free:
        factors[-1] = of_free
    return factors


def finish_average(shared: Averaged, params: Params) -> None:
    """Make the scale 1 and Q = N: with w = s v,  N w - drift' = Q v - drift."""
    n = float(shared.steps[0])
    factors = _factors(shared, params, scale(shared, params), 1.0)
    masses = _factors(shared, params, n + float(shared.excess[0]), n)
    shared.drift[:] += (n * factors - masses) * shared.weights
    shared.weights[:] *= factors
    shared.fresh[:] = shared.excess[:] = 0


# Methods

ETA0 = Param(
    "eta0", None, 0.0, 1e30, "the first rate (none: lam^(-1/4), for rows of norm 1; others: over their squared norm)",
    open_low=True,
)  # fmt: skip

METHODS = (
    gradient(
        "sgd",
        "stochastic gradient descent",
        "Bottou, COMPSTAT 2010; l1: Langford, Li, Zhang, JMLR 2009",
        "w <- (1 - eta_t lam) w - r loss'(y w.x) y x,  eta_t = eta0 / (1 + lam eta0 t),  r = eta_t, at most the rate "
        "that takes the row's own loss to its least (squared losses, tubes);  "
        "l1: w <- truncate(w - r loss' y x, eta_t lam)",
        params=(LAM, ETA0, EPSILON),
        penalties=("l2", "l1"),
        shared=shared,
        bind=bind,
        update=functools.cache(sgd),
        weights=weights,
        finish=finish,
        mixings=by_shares(MEAN) | by_momentum(MEAN, OF_WEIGHTS) | {"features": FEATURES},
        mixing="mean by rows, uniform, by mistakes, with momentum or, feature by feature, by the rows that have it",
        bounded=False,
    ),
    gradient(
        "asgd",
        "averaged stochastic gradient descent",
        "Xu, arXiv:1107.2490, 2011; Polyak and Juditsky, 1992",
        "w <- the step of sgd;  the answer is the mean of w over the steps after the first ones",
        params=(
            LAM,
            ETA0,
            Param("start", 0, 0, 1e15, "rows to train on before averaging begins", integer=True),
            EPSILON,
        ),
        shared=averaged,
        bind=bind,
        update=functools.cache(asgd),
        weights=average,
        finish=finish_average,
        mixings=by_momentum(AVERAGED, OF_AVERAGED) | by_shares(AVERAGED),
        mixing=f"{MOMENTUM_FIRST}; averages over all steps",
        bounded=False,
    ),
)
