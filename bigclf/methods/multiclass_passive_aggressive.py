"""Multi-class passive-aggressive learners, one vector of weights a class.

With l_k = (w_y - w_k).x and N = ||x||^2, each row moves all vectors the least, in sum_k ||change of w_k||^2 / 2, that
satisfies  l_k >= 1 - xi  with a slack xi that is 0 (PA), or costs C xi (PA-I), or C xi^2 (PA-II):

    w_y <- w_y + A x,    w_k <- w_k - tau_k x,    A = sum_k tau_k.

``one``: only the best-scoring wrong class, k = r, is a constraint (Crammer, Dekel, Keshet, Shalev-Shwartz, Singer,
JMLR 2006): with l = max(0, 1 - l_r),

    tau_r = l / (2N)                 PA
            min(C, l / (2N))         PA-I
            l / (2N + 1/(2C))        PA-II

``all``: every wrong class is (Crammer and Singer, JMLR 2003; closed form by support classes: Matsushima, Shimizu,
Yoshida, Ninomiya, Nakagawa, SDM 2010). The classes with tau_k > 0, the support, are the best-scoring wrong ones, s of
them, whose constraints hold with equality. With d_k = l_k - l_r, how far a class is behind the first, tau_k is
(q - d_k) / N where q > d_k, else 0, and the sum over the support gives

    q = (l + D) / (s + 1)                           PA        D = sum of d_k over the support
        min((l + D) / (s + 1), (C N + D) / s)       PA-I
        (h l + D) / (s + h),  h = N / (N + 1/(2C))  PA-II

A class with d_k < q lowers q by joining, and every class with d_k less than the q that is found so has joined. With
the support held to r alone this is ``one``. Nothing in it cancels: the terms are at least 0.

Of two classes w_1 - w_0 is the vector of the binary learner at the price 2C.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigclf.block import Counts
from bigclf.jit import inlined, kernel, prefetch_ahead
from bigclf.methods.multiclass import (
    Room,
    axpy_classes,
    judge,
    next_other,
    prefetch_classes,
    room,
    sift_down,
)
from bigclf.methods.passive_aggressive import HARD, LINEAR


class Params(NamedTuple):
    """slack : HARD, LINEAR or SQUARED; every : whether every wrong class is a constraint; C : price of slack, times
    the row's weight; bias : value of the constant feature (1.0 or 0.0)."""

    slack: int
    every: bool
    C: float
    bias: float
    room: Room


def bind(slack: int, settings: dict[str, Any]) -> Params:
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


@inlined
def reach(lack, behind, s, norm, slack, price):  # type: ignore[no-untyped-def]
    """q of a support of s classes that are ``behind`` in all: how far behind the first a class in it may be."""
    if slack == HARD:
        return (lack + behind) / (s + 1)
    if slack == LINEAR:
        return min((lack + behind) / (s + 1), (price * norm + behind) / s)
    share = norm / (norm + 0.5 / price)
    return (share * lack + behind) / (s + share)


@kernel
def support(outputs, y, other, lack, norm, slack, price, every, classes, steps):  # type: ignore[no-untyped-def]
    """Fill ``classes`` and ``steps`` with the support, and y after it; say how many they are, 0 if there is no step.

    The classes in reach of the first alone are put into a heap and taken from it until one is out of reach: O(K) and
    a logarithm for each class of the support.
    """
    q = reach(lack, 0.0, 1, norm, slack, price)
    if not q > 0:
        return 0
    classes[0] = other
    s, held = 1, 1
    if every:
        for c in range(outputs.size):
            if c != y and c != other and outputs[other] - outputs[c] < q:
                classes[held] = c
                held += 1
        s, q = draw_support(outputs, other, lack, norm, slack, price, classes[1:held], q)
        for n in range(1, s):  # the others stand behind what is left of the heap
            classes[n] = classes[held - s + n]
    total = 0.0
    for n in range(s):
        step = max(0.0, q - (outputs[other] - outputs[classes[n]])) / norm
        steps[n] = -step
        total += step
    classes[s], steps[s] = y, total
    return s + 1


@kernel
def draw_support(outputs, other, lack, norm, slack, price, heap, q):  # type: ignore[no-untyped-def]
    """(s, q) of the support that ``other`` begins, with reach q, and classes of ``heap`` join, best-scoring first: the
    s - 1 at its end then."""
    size, behind = heap.size, 0.0
    for n in range(size // 2 - 1, -1, -1):
        sift_down(outputs, heap, n, size)
    while size > 0 and outputs[other] - outputs[heap[0]] < q:
        behind += outputs[other] - outputs[next_other(outputs, heap, size)]
        size -= 1
        q = reach(lack, behind, heap.size - size + 1, norm, slack, price)
    return heap.size - size + 1, q
