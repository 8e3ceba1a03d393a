"""AdaGrad (Duchi, Hazan, Singer, JMLR 2011), diagonal, on  lambda penalty(w) + (1/l) sum_i loss(s_i w.x_i).

s_i is the label y_i = -1 or +1, or 1 for regression. With the row's gradient g = loss'(m) s x, and place by place
G <- G + g^2 and H = delta + sqrt(G):

    forward-backward splitting   w <- w - eta g / H,  then a proximal step of the penalty at the rate eta lambda / H:
                                 l2  w <- w / (1 + eta lambda / H);   l1  w <- truncate(w, eta lambda / H)
    dual averaging               S <- S + g;   l2  w = -eta S / (H + eta lambda t)
                                               l1  w = -(eta / H) sign(S) max(0, |S| - lambda t)

Both penalties act at every step on every weight, at the cost of the row's entries: while g is 0 at a place H stands
still, so that k missed steps are one (a power, or k times the threshold); and what dual averaging learns is a function
of the sums and t. A free bias is not penalised. A row's weight multiplies its loss.

In each of K groups whose copies are mixed by shares a row stands for K rows, as K steps taken at once:  G <- G + K g^2,
w <- w - eta K g / H and K steps of the penalty;  S <- S + K g,  t <- t + K. So a copy goes about as far in its rows as
one learner in all of them, and the mean of the copies' sums is what it would have.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import at, axpy, dot, entry, kernel, prefetch_ahead, prefetch_weights
from bigclf.maths.block import Counts
from bigclf.maths.losses import Loss, slope_within
from bigclf.maths.mixing import FEATURES, MEAN, OF_WEIGHTS, weighed
from bigclf.maths.penalties import PENALTIES, dual_averaged, paid
from bigclf.methods.common import EPSILON, LAM, gradient
from bigclf.methods.method import Param, by_momentum, by_shares
from bigclf.methods.online.stochastic_gradient import touched

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class Shared(NamedTuple):
    """weights : [feature + 1], the bias last; squares : float64 [feature + 1], G; seen : float64 [feature + 1], steps
    of the penalty that each weight has taken; steps : float64 [1], those there were (both since the epoch began);
    touched : float64 [feature + 1], rows that have each feature, where copies are mixed by that (else [0])."""

    weights: np.ndarray
    squares: np.ndarray
    seen: np.ndarray
    steps: np.ndarray
    touched: np.ndarray


class Sums(NamedTuple):
    """weights : [feature + 1], S, the bias last; squares : float64 [feature + 1], G; clock : float64 [1], steps t."""

    weights: np.ndarray
    squares: np.ndarray
    clock: np.ndarray


class Params(NamedTuple):
    """lam : lambda; eta, delta : as above; epsilon : half the width of the tube; bias : value of the constant feature
    (1.0 or 0.0); free : 1.0 where its weight is not penalised; penalty : its code, for what is not compiled; copies :
    as how many rows a row counts."""

    lam: float
    eta: float
    delta: float
    epsilon: float
    bias: float
    free: float
    penalty: int
    copies: float = 1.0


def bind(settings: dict[str, Any]) -> Params:
    summed = settings.get("mixing") in ("features", "adagrad")  # which add up what copies have seen
    return Params(
        settings["lam"],
        settings["eta"],
        settings["delta"],
        settings.get("epsilon", 0.0),
        settings["bias"],
        settings["free_bias"],
        PENALTIES[settings["penalty"]],
        1.0 if summed else float(settings.get("groups", 1)),
    )


def shared(n_features: int, dtype: DTypeLike, settings: Mapping[str, object]) -> Shared:
    n = n_features + 1
    return Shared(np.zeros(n, dtype), np.zeros(n), np.zeros(n), np.zeros(1), touched(n_features, settings))


def sums(n_features: int, dtype: DTypeLike, settings: Mapping[str, object]) -> Sums:
    return Sums(np.zeros(n_features + 1, dtype), np.zeros(n_features + 1), np.zeros(1))


def adagrad(loss: Loss, penalty: int):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order`` by forward-backward splitting."""
    regression, value_of, slope = loss.regression, loss.value, loss.slope

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        weights, squares, seen, steps, e = shared.weights, shared.squares, shared.seen, shared.steps, params.epsilon
        copies, eta = params.copies, params.eta * params.copies
        last, pull = weights.size - 1, eta * params.lam
        mistakes, updates, total = 0, 0, np.float64(0)
        for n in range(order.size):
            prefetch_ahead(block, order, n)
            prefetch_weights(block, order, n, weights)
            prefetch_weights(block, order, n, squares)
            i = order[n]
            y, c = block.labels[i], block.weights[i]
            sign = 1.0 if regression else y
            if pull > 0:
                for p in range(block.indptr[i], block.indptr[i + 1]):
                    j = at(block.indices, p)
                    k = steps[0] - seen[j]
                    if k > 0:
                        rate = pull / (params.delta + math.sqrt(squares[j]))
                        weights[j] = paid(penalty, np.float64(weights[j]), rate, k)
                        seen[j] = steps[0]
                k = steps[0] - seen[last]
                if k > 0 and not params.free:
                    rate = pull / (params.delta + math.sqrt(squares[last]))
                    weights[last] = paid(penalty, np.float64(weights[last]), rate, k)
                seen[last] = steps[0]
            m = sign * (dot(block, i, weights) + params.bias * weights[last])
            value = value_of(m, y, e)
            mistakes += value > 0 if regression else m <= 0
            total += c * value
            steps[0] += 1.0
            g = c * slope(m, y, e) * sign
            if g != 0:
                for p in range(block.indptr[i], block.indptr[i + 1]):
                    j = at(block.indices, p)
                    own = g * entry(block, i, p)
                    squares[j] += copies * own * own
                    weights[j] -= eta * own / (params.delta + math.sqrt(squares[j]))
                own = g * params.bias
                squares[last] += copies * own * own
                weights[last] -= eta * own / (params.delta + math.sqrt(squares[last]))
                updates += 1
        return Counts(order.size, mistakes, updates, total, 0.0)

    return update


@kernel
def pay_all(weights, squares, seen, steps, pull, delta, l1):  # type: ignore[no-untyped-def]
    """The steps of the penalty that each weight has missed."""
    for j in range(weights.size):
        k = steps - seen[j]
        if k > 0 and weights[j] != 0:
            rate = pull / (delta + math.sqrt(squares[j]))
            weights[j] = paid(1, np.float64(weights[j]), rate, k) if l1 else paid(0, np.float64(weights[j]), rate, k)


def weights(shared: Shared, params: Params) -> np.ndarray:
    """w, [feature + 1]."""
    w = shared.weights.copy()
    _pay(w, shared, params)
    return w


def finish(shared: Shared, params: Params) -> None:
    """Every weight takes the steps it has missed."""
    _pay(shared.weights, shared, params)
    shared.seen[:] = shared.steps[:] = 0


def _pay(w: np.ndarray, shared: Shared, params: Params) -> None:
    end = w.size - 1 if params.free else w.size
    steps, pull = float(shared.steps[0]), params.eta * params.copies * params.lam
    pay_all(w[:end], shared.squares[:end], shared.seen[:end], steps, pull, params.delta, params.penalty == 1)


def adagrad_rda(loss: Loss, penalty: int):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order`` by dual averaging: a weight is made when it is needed."""
    regression, value_of, slope = loss.regression, loss.value, loss.slope

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        sums, squares, clock, e = shared.weights, shared.squares, shared.clock, params.epsilon
        last, eta, copies = sums.size - 1, params.eta, params.copies
        mistakes, updates, total = 0, 0, np.float64(0)
        for k in range(order.size):
            prefetch_ahead(block, order, k)
            prefetch_weights(block, order, k, sums)
            prefetch_weights(block, order, k, squares)
            i = order[k]
            y, c = block.labels[i], block.weights[i]
            sign = 1.0 if regression else y
            dues = params.lam * clock[0]
            h = (params.delta + math.sqrt(squares[last])) / eta
            product = params.bias * dual_averaged(penalty, np.float64(sums[last]), 0.0 if params.free else dues, h)
            for p in range(block.indptr[i], block.indptr[i + 1]):
                j = at(block.indices, p)
                h = (params.delta + math.sqrt(squares[j])) / eta
                product += dual_averaged(penalty, np.float64(sums[j]), dues, h) * entry(block, i, p)
            m = sign * product
            value = value_of(m, y, e)
            mistakes += value > 0 if regression else m <= 0
            total += c * value
            clock[0] += copies
            g = slope_within(c * slope(m, y, e) * sign, block.norms[i] + params.bias)
            if g != 0:
                axpy(copies * g, block, i, sums)
                for p in range(block.indptr[i], block.indptr[i + 1]):
                    own = g * entry(block, i, p)
                    squares[at(block.indices, p)] += copies * own * own
                sums[last] += copies * g * params.bias
                squares[last] += copies * g * params.bias * g * params.bias
                updates += 1
        return Counts(order.size, mistakes, updates, total, 0.0)

    return update


def made(shared: Sums, params: Params) -> np.ndarray:
    """w of the sums and t, float64 [feature + 1]."""
    h = (params.delta + np.sqrt(shared.squares)) / params.eta
    dues = np.full(h.size, params.lam * shared.clock[0])
    if params.free:
        dues[-1] = 0
    s = shared.weights.astype(np.float64)
    if params.penalty == PENALTIES["l1"]:
        return -np.sign(s) * np.maximum(0.0, np.abs(s) - dues) / h
    return -s / (h + dues)


# Methods

ADAPTIVE = (
    LAM,
    Param("eta", 0.1, 0.0, 1e30, "learning rate", open_low=True),
    Param("delta", 1e-6, 0.0, 1e30, "initial value of H", open_low=True),
    EPSILON,
)

METHODS = (
    gradient(
        "adagrad",
        "AdaGrad, forward-backward splitting",
        "Duchi, Hazan, Singer, JMLR 2011; Duchi and Singer, JMLR 2009",
        "G <- G + g^2;  H = delta + sqrt(G);  w <- (w - eta g / H) / (1 + eta lam / H),  g = loss'(y w.x) y x",
        params=ADAPTIVE,
        penalties=("l2", "l1"),
        shared=shared,
        bind=bind,
        update=functools.cache(adagrad),
        weights=weights,
        finish=finish,
        mixings=by_shares(MEAN) | by_momentum(MEAN, OF_WEIGHTS) | {"features": FEATURES, "adagrad": weighed("squares")},
        mixing="mean by rows, uniform, by mistakes, with momentum or, feature by feature, by the rows that have it or "
        "by the squared gradients",
    ),
    gradient(
        "adagrad_rda",
        "AdaGrad, dual averaging",
        "Duchi, Hazan, Singer, JMLR 2011; Xiao, JMLR 2010",
        "S <- S + g;  G <- G + g^2;  H = delta + sqrt(G);  w = -eta S / (H + eta lam t),  g = loss'(y w.x) y x",
        params=ADAPTIVE,
        penalties=("l2", "l1"),
        shared=sums,
        bind=bind,
        update=functools.cache(adagrad_rda),
        weights=made,
        place=None,
    ),
)
