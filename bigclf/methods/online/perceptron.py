"""The perceptron (Rosenblatt 1958) and its average (Collins, EMNLP 2002).

On a mistake, m = y w.x <= 0:  w <- w + y x.   Rows of norm at most R that some unit vector separates by gamma cause
at most (R/gamma)^2 mistakes in all, in any order and however often they are shown (Block, Novikoff 1962).

The average is over all steps of all epochs, those without a mistake too. Where labels are wrong, more epochs fit the
wrong ones, in the average as in the last weights: ``validate`` with ``early_stopping`` ends in time.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled import large_pages
from bigclf.compiled.jit import axpy, dot_ahead, kernel
from bigclf.maths.block import Counts
from bigclf.maths.mixing import AVERAGED, OF_AVERAGED
from bigclf.methods.common import MEAN_OF_STEPS, MOMENTUM_FIRST
from bigclf.methods.method import by_momentum, by_shares, online, zeros

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class Shared(NamedTuple):
    """weights : [feature + 1], the last one the bias."""

    weights: np.ndarray


class Averaged(NamedTuple):
    """weights : [feature + 1]; drift : float64 [feature + 1], sum over updates of (t-1) y x; steps : int64 [1], t."""

    weights: np.ndarray
    drift: np.ndarray
    steps: np.ndarray


class Params(NamedTuple):
    """bias : value of the constant feature (1.0 or 0.0)."""

    bias: float


def perceptron(averaged: bool):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order``, whose weights multiply their steps; averaged, of a state that is
    ``Averaged``: drift keeps what turns the last weights into the mean over all steps, in O(non-zeros)."""

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        weights = shared.weights
        last = weights.size - 1
        mistakes, loss = 0, np.float64(0)
        for k in range(order.size):
            i = order[k]
            if averaged:
                shared.steps[0] += 1
            y = block.labels[i]
            m = y * (dot_ahead(block, order, k, weights) + params.bias * weights[last])
            if m <= 0:
                step = block.weights[i] * y
                axpy(step, block, i, weights)
                weights[last] += params.bias * step
                if averaged:
                    late = (shared.steps[0] - 1) * step
                    axpy(late, block, i, shared.drift)
                    shared.drift[last] += params.bias * late
                mistakes += 1
                loss -= m
        return Counts(order.size, mistakes, mistakes, loss, 0.0)

    return update


def begin_average(shared: Averaged, weights: np.ndarray, params: Params) -> None:
    """Begin with the weights of a model: an average of no step yet."""
    shared.weights[:] = weights


def average(shared: Averaged, params: Params) -> np.ndarray:
    """(1/T) sum_t w_t = w_T - drift / T, float64 [feature + 1]."""
    return shared.weights - shared.drift / max(1, int(shared.steps[0]))


# Methods


def averaged_zeros(n_features: int, dtype: DTypeLike, settings: Mapping[str, object]) -> Averaged:
    n = n_features + 1
    return Averaged(large_pages.zeros(n, dtype), large_pages.zeros(n), np.zeros(1, np.int64))


# What goes for methods whose answer is the mean of the weights over all steps
AVERAGES: dict[str, Any] = dict(
    shared=averaged_zeros,
    weights=average,
    place=begin_average,
    mixings=by_momentum(AVERAGED, OF_AVERAGED) | by_shares(AVERAGED),
    mixing=f"{MOMENTUM_FIRST}; averages over all steps",
    judges_by_answer=False,
)
_kernel = functools.cache(perceptron)

METHODS = (
    online(
        name="perceptron",
        title="perceptron",
        paper="Rosenblatt 1958; bound: Block, Novikoff 1962",
        formula="y w.x <= 0:  w <- w + y x",
        shared=functools.partial(zeros, Shared),
        bind=lambda settings: Params(settings["bias"]),
        update=lambda loss: _kernel(False),
        weight_meaning="multiplies the step",
        bounded=False,
    ),
    online(
        name="averaged_perceptron",
        title="averaged perceptron",
        paper="Collins, EMNLP 2002; Freund and Schapire 1999",
        formula="y w.x <= 0:  w <- w + y x" + MEAN_OF_STEPS,
        bind=lambda settings: Params(settings["bias"]),
        update=lambda loss: _kernel(True),
        weight_meaning="multiplies the step",
        bounded=False,
        **AVERAGES,
    ),
)
