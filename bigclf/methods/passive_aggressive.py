"""Passive-aggressive learners (Crammer, Dekel, Keshet, Shalev-Shwartz, Singer, JMLR 2006).

With the loss l = max(0, 1 - y w.x), each row moves the weights the least that satisfies it:

    w <- w + tau y x,   tau = l / ||x||^2                    PA    (hard; section 3)
                        tau = min(C, l / ||x||^2)            PA-I  (slack at price C)
                        tau = l / (||x||^2 + 1/(2C))         PA-II (squared slack at price C)

Averaged (as Collins, EMNLP 2002, averages the perceptron), the answer is the mean of w over all rows: steps on noisy
labels, which PA takes in full, go out in it.

A step of PA-II is one of gradient descent on l^2 / 2 at the rate g = 1 / (||x||^2 + 1/(2C)): it brings the weight of a
feature the part g x_j^2 of the way to where the row alone would have it. The sum of these parts is how far a copy of
the weights has gone for its rows; copies of several groups are mixed by it (``mixing.PULL``).

For regression (section 5) y is the number to predict, l = max(0, |y - w.x| - epsilon), and the step is
tau sign(y - w.x) x.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigclf.block import Counts
from bigclf.jit import at, axpy, dot_ahead, entry, inlined, kernel
from bigclf.losses import is_regression

HARD, LINEAR, SQUARED = range(3)


class Shared(NamedTuple):
    """weights : [feature + 1], the last one the bias."""

    weights: np.ndarray


class Pulled(NamedTuple):
    """weights, drift, steps : as in ``perceptron.Averaged``; pull : float64 [feature + 1], sum of g x_j^2 over the
    updates, where copies are mixed by it (else [0])."""

    weights: np.ndarray
    drift: np.ndarray
    steps: np.ndarray
    pull: np.ndarray


class Params(NamedTuple):
    """C : price of slack (PA-I, PA-II), times the row's weight; bias : value of the constant feature (1.0 or 0.0);
    epsilon : half the width of the tube in which a prediction costs nothing."""

    C: float
    bias: float
    epsilon: float


@inlined
def add_squares(a, block, i, sums):  # type: ignore[no-untyped-def]
    """sums_j += a x_ij^2"""
    for p in range(block.indptr[i], block.indptr[i + 1]):
        value = entry(block, i, p)
        sums[at(block.indices, p)] += a * value * value


def passive_aggressive(slack: int, averaged: bool, loss: int):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order`` for a kind of slack and one of the two losses; averaged, of a
    state that is ``perceptron.Averaged``, for PA-II ``Pulled``."""
    regression = is_regression(loss)
    pulls = averaged and slack == SQUARED

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        weights = shared.weights
        last = weights.size - 1
        mistakes, updates, total = 0, 0, np.float64(0)
        for k in range(order.size):
            i = order[k]
            if averaged:
                shared.steps[0] += 1
            y = block.labels[i]
            m = dot_ahead(block, order, k, weights) + params.bias * weights[last]
            if regression:
                lack = max(0.0, abs(y - m) - params.epsilon)
                y = np.sign(y - m)
                mistakes += lack > 0
                total += block.weights[i] * lack
            else:
                lack = max(0.0, 1.0 - y * m)
                mistakes += y * m <= 0
                total += lack
            norm = block.norms[i] + params.bias * params.bias
            if lack == 0 or norm == 0:
                continue
            if slack == HARD:
                tau = lack / norm
            elif slack == LINEAR:
                tau = min(params.C * block.weights[i], lack / norm)
            else:
                tau = lack / (norm + 0.5 / (params.C * block.weights[i]))
            axpy(tau * y, block, i, weights)
            weights[last] += params.bias * tau * y
            if averaged:
                late = (shared.steps[0] - 1) * tau * y
                axpy(late, block, i, shared.drift)
                shared.drift[last] += params.bias * late
            if pulls and shared.pull.size > 0:
                part = tau / lack
                add_squares(part, block, i, shared.pull)
                shared.pull[last] += part * params.bias * params.bias
            updates += 1
        return Counts(order.size, mistakes, updates, total, 0.0)

    return update
