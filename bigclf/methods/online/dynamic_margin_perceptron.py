"""The perceptron with dynamic margin, PDM (Panagiotakopoulos and Tsampouka, arXiv 1105.6041, 2011).

After t updates of the perceptron ||w|| / t is no less than the largest margin gamma_d by which any unit vector
separates the rows: u.w >= gamma_d t. So a row is learned from until its margin is most of that bound:

    y w.x <= (1-eps) ||w||^2 / t:   w <- w + y x

An epoch in which no row moves w ends the run: every margin y w.x / ||w|| is then more than (1-eps) gamma_d. Of a row of
weight c the step is c y x and t grows by c, which keeps the bound. It stands for its authors' Margitron too (arXiv
0805.2752; IEEE TNN 2011), a family of the same updates on another condition, the perceptron with margin among them,
which also comes to any part of gamma_d that is asked for: its condition has not been confirmed from a source, so no
method has its name.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigclf.compiled.jit import axpy, dot_ahead, inner, kernel
from bigclf.maths.block import Counts
from bigclf.maths.mixing import MEASURED
from bigclf.methods.method import Param, by_shares, online


class Shared(NamedTuple):
    """weights : [feature + 1], the last one the bias; square : float64 [1], ||w||^2; steps : float64 [1], t."""

    weights: np.ndarray
    square: np.ndarray
    steps: np.ndarray


class Params(NamedTuple):
    """eps : part of the margin that may lack; bias : value of the constant feature (1.0 or 0.0)."""

    eps: float
    bias: float


@kernel
def dynamic_margin_perceptron(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
    """One pass over the rows of ``order``."""
    weights, square, steps = shared.weights, shared.square, shared.steps
    last = weights.size - 1
    mistakes, updates, loss = 0, 0, np.float64(0)
    for k in range(order.size):
        i = order[k]
        y, c = block.labels[i], block.weights[i]
        m = y * (dot_ahead(block, order, k, weights) + params.bias * weights[last])
        mistakes += m <= 0
        wanted = (1 - params.eps) * square[0] / steps[0] if steps[0] > 0 else 0.0
        loss += max(0.0, wanted - m)
        norm = block.norms[i] + params.bias * params.bias
        if m > wanted or norm == 0:
            continue
        axpy(c * y, block, i, weights)
        weights[last] += params.bias * c * y
        square[0] = max(0.0, square[0] + c * (2 * m + c * norm))  # ||w + c y x||^2
        steps[0] += c
        updates += 1
    return Counts(order.size, mistakes, updates, loss, 0.0)


def finish(shared: Shared, params: Params) -> None:
    """||w||^2 anew: what rounding has added to it while rows went by."""
    shared.square[0] = inner(shared.weights, shared.weights)


def begin_with(shared: Shared, weights: np.ndarray, params: Params) -> None:
    """Begin with the weights of a model. t counts from here: where u.w >= 0 at first, ||w|| / t is a bound still."""
    shared.weights[:] = weights
    finish(shared, params)


# Methods

METHODS = (
    online(
        name="pdm",
        title="perceptron with dynamic margin, in the place of the Margitron",
        paper="Panagiotakopoulos and Tsampouka, arXiv 1105.6041, 2011",
        formula="y w.x <= (1-eps) ||w||^2 / t:  w <- w + y x;  t counts the updates",
        params=(Param("eps", 0.1, 0.0, 1.0, "allowed shortfall from the largest margin, a share", open_low=True),),
        shared=lambda n_features, dtype, settings: Shared(np.zeros(n_features + 1, dtype), np.zeros(1), np.zeros(1)),
        bind=lambda settings: Params(settings["eps"], settings["bias"]),
        update=lambda loss: dynamic_margin_perceptron,
        place=begin_with,
        finish=finish,
        settles=True,
        mixings=by_shares(MEASURED),
        weight_meaning="multiplies the step",
        bounded=False,
    ),
)
