"""Multi-class passive-aggressive learners, one vector of weights a class.

With l_k = (w_y - w_k).x and N = ||x||^2, each row moves all vectors the least, in sum_k ||change of w_k||^2 / 2, that
satisfies  l_k >= 1 - xi  with a slack xi that is 0 (PA), or costs C xi (PA-I), or C xi^2 (PA-II):

    w_y <- w_y + A x,    w_k <- w_k - tau_k x,    A = sum_k tau_k.

``one``: only the best-scoring wrong class, k = r, is a constraint (Crammer, Dekel, Keshet, Shalev-Shwartz, Singer,
JMLR 2006): with l = max(0, 1 - l_r),

    tau_r = l / (2N)                 PA
            min(C, l / (2N))         PA-I
            l / (2N + 1/(2C))        PA-II

``all``: every wrong class is, and tau_k > 0 for some of them (``bigclf.methods.many_classes.support_classes``).

Of two classes w_1 - w_0 is the vector of the binary learner at the price 2C.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import kernel, prefetch_ahead
from bigclf.maths.block import Counts
from bigclf.methods.common import COST, MEAN_OF_STEPS, NATIVE
from bigclf.methods.many_classes.multiclass import (
    Room,
    averaged_zeros,
    axpy_classes,
    judge,
    prefetch_classes,
    room,
    zeros,
)
from bigclf.methods.many_classes.support_classes import support
from bigclf.methods.method import Method, choice, online
from bigclf.methods.online.passive_aggressive import HARD, LINEAR, SQUARED
from bigclf.methods.online.perceptron import AVERAGES
from bigclf.methods.sparse_state import touched

if TYPE_CHECKING:
    from bigclf.methods.method import Numbers


class Params(NamedTuple):
    """slack : HARD, LINEAR or SQUARED; every : whether every wrong class is a constraint; C : price of slack, times
    the row's weight; bias : value of the constant feature (1.0 or 0.0)."""

    slack: int
    every: bool
    C: float
    bias: float
    room: Room


def bind(slack: int, settings: Numbers) -> Params:
    return Params(slack, settings["constraints"] == "all", settings.get("C", 1.0), settings["bias"], room(settings))


def passive_aggressive(averaged: bool):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order``; averaged, of a state that is ``perceptron.Averaged``."""

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        weights, outputs = shared.weights, params.room.outputs
        classes, steps = params.room.classes, params.room.steps
        mistakes, updates, total = 0, 0, np.float64(0)
        for k in range(order.size):
            prefetch_ahead(block, order, k)
            prefetch_classes(block, order, k, weights)
            i = order[k]
            if averaged:
                shared.steps[0] += 1
            y, other, m, wrong = judge(block, i, weights, params.bias, outputs)
            mistakes += wrong
            lack = max(0.0, 1.0 - m)
            total += lack
            norm = block.norms[i] + params.bias * params.bias
            if lack == 0 or norm == 0:
                continue
            price = params.C * block.weights[i]
            count = support(outputs, y, other, lack, norm, params.slack, price, params.every, classes, steps)
            if count == 0:
                continue
            axpy_classes(1.0, block, i, weights, classes, steps, count, params.bias)
            if averaged:
                late = np.float64(shared.steps[0] - 1)
                axpy_classes(late, block, i, shared.drift, classes, steps, count, params.bias)
            updates += 1
        return Counts(order.size, mistakes, updates, total, 0.0)

    return update


# Methods

CONSTRAINTS = choice(
    "constraints", ("one", "all"), "the best-scoring wrong class alone, or every one at once, by support classes"
)
TO_THE_CLASS = "w_y <- w_y + (sum of t_k) x, w_k <- w_k - t_k x"
_kernel = functools.cache(passive_aggressive)


def _pa_mc(name: str, title: str, formula: str, slack: int, averaged: bool) -> Method:
    plain: dict[str, Any] = dict(shared=zeros, touched=touched(slack, True, {"constraints": "one"}))
    hard = slack == HARD
    return online(
        name=f"averaged_{name}" if averaged else name,
        title=("averaged " if averaged else "") + title,
        paper="Crammer et al., JMLR 2006; all constraints: Matsushima et al., SDM 2010",
        formula=f"{TO_THE_CLASS} of {name}{MEAN_OF_STEPS}" if averaged else f"{TO_THE_CLASS}:  {formula}",
        params=(CONSTRAINTS,) if hard else (COST, CONSTRAINTS),
        losses=("hinge",),
        bind=functools.partial(bind, slack),
        update=lambda loss: _kernel(averaged),
        row_weights="binary" if hard else "any",
        weight_meaning="0 or 1 only" if hard else "multiplies C",
        **NATIVE,
        **(AVERAGES | dict(shared=averaged_zeros) if averaged else plain),
    )


_KINDS = (
    ("pa_mc", "passive-aggressive of all classes, hard", "the least with (w_y - w_k).x >= 1", HARD),
    ("pa1_mc", "passive-aggressive I of all classes", "the least, plus C s, with (w_y - w_k).x >= 1 - s", LINEAR),
    ("pa2_mc", "passive-aggressive II of all classes", "the least, plus C s^2, with (w_y - w_k).x >= 1 - s", SQUARED),
)
METHODS = tuple(_pa_mc(*kind, averaged) for averaged in (False, True) for kind in _KINDS)
