"""Dual coordinate descent for the multi-class support vector machine of Crammer and Singer (JMLR 2001), all dual
variables of a row at once (sequential dual method: Keerthi, Sundararajan, Chang, Hsieh, Lin, KDD 2008).

With e_im = 1 for m != y_i, else 0, and the bounds u_im = C_i for m = y_i, else 0:

    min_w  1/2 sum_m ||w_m||^2 + sum_i C_i max_m (e_im + w_m.x_i - w_yi.x_i)              (primal, P)
    max_a  -1/2 sum_m ||w_m||^2 - sum_i sum_m e_im a_im,  a_im <= u_im,  sum_m a_im = 0   (dual, D)

and w_m = sum_i a_im x_i. The gradient of -D is G_m = w_m.x_i + e_im. A row's own part of the dual is the closed form by
support classes of ``multiclass_passive_aggressive`` with every wrong class a constraint, from the weights without the
row's own share, w_m - a_im x_i: t_m = -a_im of the wrong classes, their sum a_iy. A row lacks

    C_i (top - G_y) + sum_m a_im G_m = (C_i - a_iy) (top - G_y) + sum_{m != y} -a_im (top - G_m),  top = max_m G_m,

of which no term is negative; the sum over rows is P - D.

Most a_im are 0. A pass over the support alone (``Params.support``) makes the scores of those classes only that a row
has given something to, which costs their number and not that of all classes; it is coordinate ascent too, but for the
classes that come to a row's support, which whole passes find.

Groups of rows, certificates and what is done out of core: as in ``dual_coordinate_descent``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.compiled.jit import UNIT, inlined, kernel, prefetch_ahead
from bigclf.maths.block import Counts
from bigclf.methods.common import COST, DUAL, INNER_ROUNDS, NATIVE, SCHEDULE, WORKING_SET
from bigclf.methods.dual import multiclass_conjugate_gradients
from bigclf.methods.many_classes.multiclass import (
    axpy_classes,
    best_other,
    predicted,
    prefetch_classes,
    scores_of,
    scores_of_columns,
    zeros,
)
from bigclf.methods.many_classes.support_classes import support
from bigclf.methods.method import dual
from bigclf.methods.online.passive_aggressive import LINEAR

if TYPE_CHECKING:
    from bigclf.methods.method import Numbers


NEGLIGIBLE = 1e-13  # a row whose gradients differ by less, beside their size, is left as it is
AT_BOUND = 1e-13  # a_iy that is short of C_i by less, relative to it, is rounding: the sum of its shares


class Rows(NamedTuple):
    """alpha : float64 [row, class], the dual variables."""

    alpha: np.ndarray


class Space(NamedTuple):
    """Room for a row: float64 [class] outputs, own (its dual variables), change, steps; int64 [class] columns (the
    classes looked at), classes (those of a step)."""

    outputs: np.ndarray
    own: np.ndarray
    change: np.ndarray
    steps: np.ndarray
    columns: np.ndarray
    classes: np.ndarray


class Params(NamedTuple):
    """C : price of a unit of loss, times the row's weight; bias : value of the constant feature (1.0 or 0.0);
    sigma : how many times a step counts while other groups take theirs (1.0 where there is one group);
    support : whether only the classes are looked at that a row has given something to."""

    C: float
    bias: float
    sigma: float
    support: bool
    space: Space


def bind(settings: Numbers) -> Params:
    n = settings["n_classes"]
    floats, numbers = (np.zeros(n) for _ in range(4)), (np.zeros(n, np.int64) for _ in range(2))
    return Params(settings["C"], settings["bias"], 1.0, False, Space(*floats, *numbers))


@kernel
def descend(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
    """One pass over the rows of ``order``; ``scores`` gets minus the distance to being provably stuck, from a pass
    over the support nothing."""
    weights, alpha, space = shared.weights, rows.alpha, params.space
    mistakes, updates, total, gap = 0, 0, np.float64(0), np.float64(0)
    for k in range(order.size):
        prefetch_ahead(block, order, k)
        if not params.support:
            prefetch_classes(block, order, k, weights)
        i = order[k]
        c = params.C * block.weights[i]
        n, y = look_at(block, i, alpha, c, params.support, space)
        if n < 2:
            continue
        outputs, own = space.outputs[:n], space.own[:n]
        if params.support:
            scores_of_columns(block, i, weights, params.bias, space.columns[:n], outputs)
        else:
            scores_of(block, i, weights, params.bias, outputs)
        mistakes += predicted(outputs) != y
        top, low = extremes(outputs, own, y, c)
        total += c * (top - outputs[y])
        gap += lacks(outputs, own, y, c, top)
        q = params.sigma * (block.norms[i] + params.bias * params.bias)
        if top - low > NEGLIGIBLE * max(1.0, abs(top)):
            count = solve(outputs, own, y, q, c, params.sigma, space)
            for m in range(n):
                alpha[block.ids[i], space.columns[m]] = own[m]
            axpy_classes(1.0, block, i, weights, space.classes, space.steps, count, params.bias)
            updates += 1
        if not params.support:
            scores[i] = -slack(outputs, own, y, c)
    return Counts(order.size, mistakes, updates, total, gap)


@inlined
def look_at(block, i, alpha, c, support, space):  # type: ignore[no-untyped-def]
    """Fill ``columns`` with the classes that are looked at and ``own`` with their dual variables: how many they are and
    the place of the row's own class among them. None of a row that costs nothing, whose dual variables are 0."""
    r, label = block.ids[i], np.int64(block.labels[i])
    n, y = np.int64(0), np.int64(0)
    if c > 0:
        for m in range(alpha.shape[1]):
            if m == label:
                y = n
            if not support or m == label or alpha[r, m] != 0:
                space.columns[n], space.own[n] = m, alpha[r, m]
                n += 1
    return n, y


@inlined
def extremes(outputs, own, y, c):  # type: ignore[no-untyped-def]
    """max_m G_m, and the least G_m of those below their bounds."""
    top = outputs[y]
    low = outputs[y] if own[y] < c else np.inf
    for m in range(outputs.size):
        if m != y:
            top = max(top, outputs[m] + 1.0)
            if own[m] < 0:
                low = min(low, outputs[m] + 1.0)
    return top, low


@inlined
def lacks(outputs, own, y, c, top):  # type: ignore[no-untyped-def]
    """The row's part of P - D."""
    total = (c - own[y]) * (top - outputs[y])
    for m in range(outputs.size):
        if m != y:
            total -= own[m] * (top - (outputs[m] + 1.0))
    return total


@inlined
def solve(outputs, own, y, q, c, sigma, space):  # type: ignore[no-untyped-def]
    """Maximise the dual over the row's variables ``own``, their steps counted so that they move w by q / ||x||^2 as
    much; fill ``classes`` and ``steps`` with what the row is multiplied with, and say how many they are. ``outputs``
    become those that follow.

    min 1/2 q ||a||^2 + B.a,  B = G - q own;  a row without entries gives all it may to one class.
    """
    change, classes, steps = space.change, space.classes, space.steps
    for m in range(outputs.size):
        outputs[m] -= q * own[m]
        change[m] = -own[m]
        own[m] = 0.0
    other = best_other(outputs, y)
    lack = max(0.0, 1.0 - (outputs[y] - outputs[other]))
    if q > 0:
        count = support(outputs, y, other, lack, q, LINEAR, c, True, classes, steps)
    else:
        classes[0], steps[0], classes[1], steps[1] = other, -c, y, c
        count = 2
    for n in range(count):
        own[classes[n]] = steps[n]
    if abs(c - own[y]) <= AT_BOUND * c:
        own[y] = c
    moved = 0
    for m in range(outputs.size):
        outputs[m] += q * own[m]
        change[m] += own[m]
        if change[m] != 0:
            classes[moved], steps[moved] = space.columns[m], sigma * change[m]
            moved += 1
    return moved


@inlined
def slack(outputs, own, y, c):  # type: ignore[no-untyped-def]
    """How far the row is from where its variables could move: with one class below its bound, all must stay while its
    gradient is the largest, by so much; else 0."""
    free, place = 0, 0
    for m in range(outputs.size):
        if own[m] < (c if m == y else 0.0):
            free += 1
            place = m
    if free != 1:
        return 0.0
    highest = -np.inf
    for m in range(outputs.size):
        if m != place:
            highest = max(highest, outputs[m] + (0.0 if m == y else 1.0))
    return max(0.0, outputs[place] + (0.0 if place == y else 1.0) - highest)


@kernel
def measure(block, shared, rows, params, dual_weights, length):  # type: ignore[no-untyped-def]
    """Add a block's part of the certificate: sum_i C_i max_m (e_im + w_m.x_i - w_yi.x_i), -sum_i sum_m e_im a_im, and
    to ``dual_weights`` [feature + 1, class] sum_i a_im x_i, made anew in float64.

    The former with the most that both outputs may be off by rounding, at least ||w_m|| ||x_i|| a time: ``length`` is
    ||w|| of all classes.
    """
    weights, alpha, outputs = shared.weights, rows.alpha, params.space.outputs
    classes, steps = params.space.classes, params.space.steps
    primal, dual = np.float64(0), np.float64(0)
    for i in range(block.indptr.size - 1):
        c = params.C * block.weights[i]
        if c == 0:
            continue
        r, y = block.ids[i], np.int64(block.labels[i])
        scores_of(block, i, weights, params.bias, outputs)
        roundings = 2 * (block.indptr[i + 1] - block.indptr[i] + 8)
        slack = UNIT * roundings * length * math.sqrt(block.norms[i] + params.bias * params.bias)
        primal += c * max(0.0, outputs[best_other(outputs, y)] + 1.0 - outputs[y] + slack)
        count, given = 0, np.float64(0)
        for m in range(outputs.size):
            if alpha[r, m] != 0:
                classes[count], steps[count] = m, alpha[r, m]
                given -= alpha[r, m] if m != y else 0.0
                count += 1
        dual += given
        if count > 0:
            axpy_classes(1.0, block, i, dual_weights, classes, steps, count, params.bias)
    return primal, dual


@kernel
def scaled(block, shared, params, length, scales, losses):  # type: ignore[no-untyped-def]
    """Add to ``losses`` [scale] a block's  sum_i C_i max_m (e_im + t (w_m.x_i - w_yi.x_i))  for each t of ``scales``,
    with the most that outputs may be off by rounding, as in ``measure``. It gives the derivative of the sum along t at
    the first of ``scales``."""
    outputs, slopes = params.space.outputs, np.float64(0)
    for i in range(block.indptr.size - 1):
        c = params.C * block.weights[i]
        if c == 0:
            continue
        y = np.int64(block.labels[i])
        scores_of(block, i, shared.weights, params.bias, outputs)
        roundings = 2 * (block.indptr[i + 1] - block.indptr[i] + 8)
        slack = UNIT * roundings * length * math.sqrt(block.norms[i] + params.bias * params.bias)
        lead = outputs[best_other(outputs, y)] - outputs[y] + slack
        for k in range(scales.size):
            losses[k] += c * max(0.0, 1.0 + scales[k] * lead)
        slopes += c * lead if 1.0 + scales[0] * lead > 0 else 0.0
    return slopes


@kernel
def along(block, order, rows, start, params):  # type: ignore[no-untyped-def]
    """How the rows of ``order`` have moved since ``start``: the gain of -sum_m e_im a_im; nothing of it bends."""
    alpha, before = rows.alpha, start.alpha
    gain = np.float64(0)
    for k in range(order.size):
        r, y = block.ids[order[k]], np.int64(block.labels[order[k]])
        for m in range(alpha.shape[1]):
            if m != y:
                gain -= alpha[r, m] - before[r, m]
    return gain, 0.0


@kernel
def within(block, rows, params):  # type: ignore[no-untyped-def]
    """Put the dual variables of a block's rows inside their bounds, for another C or other rows."""
    alpha = rows.alpha
    for i in range(block.indptr.size - 1):
        r, y, c = block.ids[i], np.int64(block.labels[i]), params.C * block.weights[i]
        total = np.float64(0)
        for m in range(alpha.shape[1]):
            if m != y:
                alpha[r, m] = min(alpha[r, m], 0.0) if c > 0 else 0.0
                total -= alpha[r, m]
        alpha[r, y] = min(total, c)
        if total > c:
            for m in range(alpha.shape[1]):
                if m != y:
                    alpha[r, m] *= c / total


@kernel
def value(block, rows, params, t):  # type: ignore[no-untyped-def]
    """-sum_i sum_m e_im t a_im over a block: a part of the way from nothing to alpha."""
    alpha, total = rows.alpha, np.float64(0)
    for i in range(block.indptr.size - 1):
        y = np.int64(block.labels[i])
        for m in range(alpha.shape[1]):
            if m != y:
                total -= alpha[block.ids[i], m]
    return t * total


# Methods

METHODS = (
    dual(
        name="dcd_mc",
        title="dual coordinate descent of all classes (Crammer-Singer SVM), certified, in memory or out of core",
        paper="Crammer and Singer, JMLR 2001; Keerthi et al., KDD 2008; Yu et al., KDD 2010; Chang and Roth, KDD 2011",
        formula="a_i <- argmin ||x_i||^2 |a_i|^2 / 2 + B.a_i, a_im <= C [m = y_i], sum_m a_im = 0;  w_m = sum a_im x_i",
        params=(COST, WORKING_SET, SCHEDULE, INNER_ROUNDS),
        losses=("hinge",),
        shared=zeros,
        rows=Rows,
        bind=bind,
        update=lambda loss: descend,
        certify=lambda loss: measure,
        scaled=lambda loss: scaled,
        along=lambda loss: along,
        within=lambda loss: within,
        value=lambda loss: value,
        climb=lambda loss: multiclass_conjugate_gradients.climb,
        **DUAL,
        **NATIVE,
    ),
)
