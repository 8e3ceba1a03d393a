"""The multi-class perceptron, one vector of weights a class (Crammer and Singer, JMLR 2003), and its average.

Where some other class scores at least as well as the row's own, E = {k != y : (w_y - w_k).x <= 0} not empty,

    w_y <- w_y + x,    w_k <- w_k - tau_k x  for k in E,    sum of tau_k = 1

with tau_k = 1 for the best-scoring of them (``max``) or alike for all (``uniform``). Rows of norm at most R that some
u with sum_k ||u_k||^2 = 1 separates by (u_y - u_k).x >= gamma cause at most 2 R^2 / gamma^2 updates in all, in any
order: an update moves W by at most sqrt(2) R, and by gamma at least towards u. Of two classes (w_1 - w_0) / 2 is the
binary perceptron's vector.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import kernel, prefetch_ahead
from bigclf.maths.block import Counts
from bigclf.methods.common import MEAN_OF_STEPS, NATIVE
from bigclf.methods.many_classes.multiclass import (
    Room,
    at_fault,
    averaged_zeros,
    axpy_classes,
    judge,
    prefetch_classes,
    room,
    zeros,
)
from bigclf.methods.method import Method, choice, online
from bigclf.methods.online.perceptron import AVERAGES
from bigclf.methods.sparse_state import touched

if TYPE_CHECKING:
    from bigclf.methods.method import Numbers


class Params(NamedTuple):
    """uniform : whether the step goes against all classes at fault alike; bias : value of the constant feature (1.0 or
    0.0)."""

    uniform: bool
    bias: float
    room: Room


def bind(settings: Numbers) -> Params:
    return Params(settings["against"] == "uniform", settings["bias"], room(settings))


def perceptron(averaged: bool):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order``, whose weights multiply their steps; averaged, of a state that is
    ``perceptron.Averaged``."""

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        weights, outputs = shared.weights, params.room.outputs
        classes, steps = params.room.classes, params.room.steps
        mistakes, updates, loss = 0, 0, np.float64(0)
        for k in range(order.size):
            prefetch_ahead(block, order, k)
            prefetch_classes(block, order, k, weights)
            i = order[k]
            if averaged:
                shared.steps[0] += 1
            y, other, m, wrong = judge(block, i, weights, params.bias, outputs)
            mistakes += wrong
            if m > 0:
                continue
            count = at_fault(outputs, y, other, params.uniform, classes)
            step = block.weights[i]
            steps[:count] = -step / count
            classes[count], steps[count] = y, step
            axpy_classes(1.0, block, i, weights, classes, steps, count + 1, params.bias)
            if averaged:
                late = np.float64(shared.steps[0] - 1)
                axpy_classes(late, block, i, shared.drift, classes, steps, count + 1, params.bias)
            updates += 1
            loss -= m
        return Counts(order.size, mistakes, updates, loss, 0.0)

    return update


# Methods

AGAINST = choice(
    "against", ("max", "uniform"), "the best-scoring wrong class (max), or all that score no less than the row's, alike"
)
_kernel = functools.cache(perceptron)


def _perceptron_mc(averaged: bool) -> Method:
    plain: dict[str, Any] = dict(shared=zeros, touched=touched(0, False, {"against": "max"}))
    return online(
        name="averaged_perceptron_mc" if averaged else "perceptron_mc",
        title=("averaged " if averaged else "") + "perceptron of all classes",
        paper="Crammer and Singer, JMLR 2003" + ("; Collins, EMNLP 2002" if averaged else ""),
        formula="E = {k: w_k.x >= w_y.x} not empty:  w_y <- w_y + x, w_k <- w_k - t_k x on E, sum of t_k = 1"
        + (MEAN_OF_STEPS if averaged else ""),
        params=(AGAINST,),
        bind=bind,
        update=lambda loss: _kernel(averaged),
        weight_meaning="multiplies the step",
        bounded=False,
        **NATIVE,
        **(AVERAGES | dict(shared=averaged_zeros) if averaged else plain),
    )


METHODS = (_perceptron_mc(False), _perceptron_mc(True))
