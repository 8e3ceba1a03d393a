"""Passive-aggressive learners (Crammer, Dekel, Keshet, Shalev-Shwartz, Singer, JMLR 2006).

With the loss l = max(0, 1 - y w.x), each row moves the weights the least that satisfies it:

    w <- w + tau y x,   tau = l / ||x||^2                    PA    (hard)
                        tau = min(C, l / ||x||^2)            PA-I  (slack at price C)
                        tau = l / (||x||^2 + 1/(2C))         PA-II (squared slack at price C)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigclf.block import Counts
from bigclf.jit import axpy, dot, kernel, prefetch_ahead

HARD, LINEAR, SQUARED = range(3)


class Shared(NamedTuple):
    """weights : [feature + 1], the last one the bias."""

    weights: np.ndarray


class Params(NamedTuple):
    """C : price of slack (PA-I, PA-II), times the row's weight; bias : value of the constant feature (1.0 or 0.0)."""

    C: float
    bias: float


def passive_aggressive(slack: int):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order`` for a kind of slack."""

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        weights = shared.weights
        last = weights.size - 1
        mistakes, updates, total = 0, 0, np.float64(0)
        for k in range(order.size):
            prefetch_ahead(block, order, k)
            i = order[k]
            y = block.labels[i]
            m = y * (dot(block, i, weights) + params.bias * weights[last])
            loss = max(0.0, 1.0 - m)
            mistakes += m <= 0
            total += loss
            norm = block.norms[i] + params.bias * params.bias
            if loss == 0 or norm == 0:
                continue
            if slack == HARD:
                tau = loss / norm
            elif slack == LINEAR:
                tau = min(params.C * block.weights[i], loss / norm)
            else:
                tau = loss / (norm + 0.5 / (params.C * block.weights[i]))
            axpy(tau * y, block, i, weights)
            weights[last] += params.bias * tau * y
            updates += 1
        return Counts(order.size, mistakes, updates, total, 0.0)

    return update
