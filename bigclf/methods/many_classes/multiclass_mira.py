"""MIRA as it was published, for many classes (Crammer and Singer, JMLR 2003).

Where another class scores better than the row's own, the step is the one that minimises

    1/2 sum_k ||w_k + tau_k x||^2    with  tau_y <= 1,  tau_k <= 0 for k != y,  sum of tau_k = 0.

That is ``all`` constraints of passive-aggressive I with the margin 0 in place of 1 and the price 1: the scores of the
classes that are ahead come down to one height, to which that of y is raised, by one row at most in all. As in the
binary learner, which (w_1 - w_0) / 2 of two classes is, the first mistake is added whole, against all that score no
less alike: from W = 0 the rule would never start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import kernel, prefetch_ahead
from bigclf.maths.block import Counts
from bigclf.methods.common import BINARY, NATIVE
from bigclf.methods.many_classes.multiclass import Room, at_fault, axpy_classes, judge, prefetch_classes, room
from bigclf.methods.many_classes.support_classes import support
from bigclf.methods.method import online
from bigclf.methods.online import mira as binary
from bigclf.methods.online.passive_aggressive import LINEAR

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


class Shared(NamedTuple):
    """weights : [feature + 1, class], the last row the bias; begun : float64 [1], 0 until there are weights."""

    weights: np.ndarray
    begun: np.ndarray


class Params(NamedTuple):
    """bias : value of the constant feature (1.0 or 0.0)."""

    bias: float
    room: Room


def begin(n_features: int, dtype: DTypeLike, settings: dict[str, Any]) -> Shared:
    return Shared(np.zeros((n_features + 1, settings["n_classes"]), dtype), np.zeros(1))


def bind(settings: Numbers) -> Params:
    return Params(settings["bias"], room(settings))


@kernel
def mira(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
    """One pass over the rows of ``order``."""
    weights, begun, outputs = shared.weights, shared.begun, params.room.outputs
    classes, steps = params.room.classes, params.room.steps
    mistakes, updates, loss = 0, 0, np.float64(0)
    for k in range(order.size):
        prefetch_ahead(block, order, k)
        prefetch_classes(block, order, k, weights)
        i = order[k]
        y, other, m, wrong = judge(block, i, weights, params.bias, outputs)
        mistakes += wrong
        lack = -m
        norm = block.norms[i] + params.bias * params.bias
        if lack < 0 or norm == 0:
            continue
        loss += lack
        if begun[0] > 0:
            count = support(outputs, y, other, lack, norm, LINEAR, 1.0, True, classes, steps)
        else:
            count = 1 + at_fault(outputs, y, other, True, classes)
            steps[: count - 1] = -1.0 / (count - 1)
            classes[count - 1], steps[count - 1] = y, 1.0
        if count == 0:
            continue
        axpy_classes(1.0, block, i, weights, classes, steps, count, params.bias)
        begun[0] = 1.0
        updates += 1
    return Counts(order.size, mistakes, updates, loss, 0.0)


# Methods

METHODS = (
    online(
        name="mira_mc",
        title="MIRA of all classes (as published: no margin, steps of one row at most)",
        paper="Crammer and Singer, JMLR 2003",
        formula="w_k.x >= w_y.x for a k:  w_k <- w_k + t_k x of least sum ||w_k||^2, t_y <= 1, t_k <= 0, sum t_k = 0",
        shared=begin,
        bind=bind,
        update=lambda loss: mira,
        place=binary.begin_with,
        separates=False,
        **BINARY,
        **NATIVE,
    ),
)
