"""MIRA as it was published (Crammer and Singer, JMLR 2003), for two classes.

On a mistake, m = y w.x <= 0, the weights move to the nearest ones that are none, by one row at most:

    w <- w + tau y x,   tau = min(1, -m / ||x||^2)

which minimises ||w + tau y x||^2 over 0 <= tau <= 1. With a margin of 1 and no cap it is ``pa``, which later papers
call MIRA. From w = 0 the rule would never start (the paper begins with other weights): the first mistake is added
whole. A row that was put right has m = 0, which is a mistake still: of separable rows the mistakes get small, but need
not end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigclf.compiled.jit import axpy, dot_ahead, kernel
from bigclf.maths.block import Counts
from bigclf.methods.common import BINARY
from bigclf.methods.method import online


class Shared(NamedTuple):
    """weights : [feature + 1], the last one the bias; begun : float64 [1], 0 until there are weights."""

    weights: np.ndarray
    begun: np.ndarray


class Params(NamedTuple):
    """bias : value of the constant feature (1.0 or 0.0)."""

    bias: float


@kernel
def mira(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
    """One pass over the rows of ``order``."""
    weights, begun = shared.weights, shared.begun
    last = weights.size - 1
    mistakes, updates, loss = 0, 0, np.float64(0)
    for k in range(order.size):
        i = order[k]
        y = block.labels[i]
        m = y * (dot_ahead(block, order, k, weights) + params.bias * weights[last])
        if m > 0:
            continue
        mistakes += 1
        loss -= m
        norm = block.norms[i] + params.bias * params.bias
        if norm == 0 or (m == 0 and begun[0] > 0):
            continue
        tau = min(1.0, -m / norm) if begun[0] > 0 else 1.0
        axpy(tau * y, block, i, weights)
        weights[last] += params.bias * tau * y
        begun[0] = 1.0
        updates += 1
    return Counts(order.size, mistakes, updates, loss, 0.0)


def begin_with(shared: Shared, weights: np.ndarray, params: Params) -> None:
    """Begin with the weights of a model."""
    shared.weights[:] = weights
    shared.begun[0] = float(np.any(weights))


# Methods

METHODS = (
    online(
        name="mira",
        title="MIRA (as published: no margin, steps of one row at most)",
        paper="Crammer and Singer, JMLR 2003",
        formula="y w.x <= 0:  w <- w + min(1, -y w.x / ||x||^2) y x",
        shared=lambda n_features, dtype, settings: Shared(np.zeros(n_features + 1, dtype), np.zeros(1)),
        bind=lambda settings: Params(settings["bias"]),
        update=lambda loss: mira,
        place=begin_with,
        separates=False,
        **BINARY,
    ),
)
