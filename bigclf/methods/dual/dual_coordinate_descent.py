"""Dual coordinate descent: support vector machine (Hsieh et al., ICML 2008, Algorithm 1), logistic regression (Yu,
Huang, Lin, MLJ 2011), support vector regression (Ho and Lin, JMLR 2012), one solver for all.

    min_w  1/2 ||w||^2 + sum_i C_i loss(s_i w.x_i)                                   (primal, P)
    max_a  sum_i -C_i loss*(-a_i/C_i) - 1/2 ||sum_i a_i s_i x_i||^2,  a_i in its interval   (dual, D)

s_i is the label y_i = -1 or +1, or 1 for regression, whose labels are in the loss (``bigclf.maths.losses``).

Groups of rows can take their steps at the same time: each maximises its own part of the dual with its steps counted
sigma times, the steps are summed, and an exact line search on the dual, or sigma = number of groups, makes the sum safe
(Ma et al., ICML 2015; Lee and Chang, 2019). With the line search, groups go on from a point they agree on and sigma is
1/rho of the method of multipliers (Zhang, Lee, Shin, AISTATS 2012; ``bigclf.maths.mixing``): far fewer epochs.
Where most rows are stuck at an end of their interval, those that are not are gathered and solved in one place, and the
number of groups hardly matters (``training/roles/gathered.py``).

Out of core it is block minimisation (Yu et al., KDD 2010) with a working set of the rows that still matter
(selective block minimisation: Chang and Roth, KDD 2011), and every read yields the exact duality gap of the
weights at its start.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from bigclf.compiled.jit import (
    AHEAD,
    axpy,
    dot,
    dot_ahead,
    dot_slack,
    inlined,
    kernel,
    prefetch,
    sharp_dot,
    sharp_slack,
)
from bigclf.maths.block import Counts
from bigclf.maths.losses import Loss, dual_terms, having, is_dual
from bigclf.methods.common import COST, DUAL, EPSILON, INNER_ROUNDS, SCHEDULE, WORKING_SET
from bigclf.methods.dual import conjugate_gradients, subspace_ascent
from bigclf.methods.method import dual, zeros

UNSEEN = 1e-9  # of P: what the roundings of margins may come to, at most, without being looked at


class Shared(NamedTuple):
    """weights : float64 or float32 [feature + 1], the last one the bias."""

    weights: np.ndarray


class Rows(NamedTuple):
    """alpha : float64 [row], the dual variables."""

    alpha: np.ndarray


class Params(NamedTuple):
    """C : price of a unit of loss, times the row's weight; bias : value of the constant feature (1.0 or 0.0);
    epsilon : half the width of the tube of the regression losses (0.0 for the others); sigma : how many times a step
    counts while other groups take theirs (1.0 where there is one group)."""

    C: float
    bias: float
    epsilon: float
    sigma: float


@functools.cache
def pass_over(loss: Loss):  # type: ignore[no-untyped-def]
    """Helper for one pass over the rows of ``order``; ``scores`` gets minus the distance to being provably stuck."""
    regression, value_of = loss.regression, loss.value
    gap_of, best, freedom = dual_terms(loss).gap, dual_terms(loss).best, dual_terms(loss).freedom

    @inlined
    def go_over(block, order, weights, alpha, params, sigma, scores):  # type: ignore[no-untyped-def]
        last, e = weights.size - 1, params.epsilon
        mistakes, updates, total, gap = 0, 0, np.float64(0), np.float64(0)
        for k in range(order.size):
            if k + AHEAD < order.size:
                prefetch(alpha, block.ids[order[k + AHEAD]])
                prefetch(scores, order[k + AHEAD])
            i = order[k]
            r, t = block.ids[i], block.labels[i]
            s = 1.0 if regression else t
            c = params.C * block.weights[i]
            a = alpha[r]
            m = s * (dot_ahead(block, order, k, weights) + params.bias * weights[last])
            value = value_of(m, t, e)
            mistakes += value > 0 if regression else m <= 0
            total += c * value
            gap += gap_of(a, m, c, t, e)
            q = sigma * (block.norms[i] + params.bias * params.bias)
            new = best(a, m, q, c, t, e)
            if new != a:
                alpha[r] = new
                step = sigma * (new - a) * s
                axpy(step, block, i, weights)
                weights[last] += params.bias * step
                m += (new - a) * q
                updates += 1
            scores[i] = freedom(new, m, c, t, e)
        return Counts(order.size, mistakes, updates, total, gap)

    return go_over


@functools.cache
def descend(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order``."""
    go_over = pass_over(loss)

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        return go_over(block, order, shared.weights, rows.alpha, params, params.sigma, scores)

    return update


def judge(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel that says of all rows what ``descend`` says at its visits, and moves none: their w . x_i are known
    (``maths/side_by_side.py``), for this problem in margins[:, place]. The score of a row that can move is its gap."""
    regression, value_of = loss.regression, loss.value
    gap_of, freedom = dual_terms(loss).gap, dual_terms(loss).freedom

    @kernel
    def look(block, margins, place, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        alpha, e = rows.alpha, params.epsilon
        constant = params.bias * shared.weights[shared.weights.size - 1]
        seen, mistakes, total, gap = 0, 0, np.float64(0), np.float64(0)
        for i in range(block.indptr.size - 1):
            t, c = block.labels[i], params.C * block.weights[i]
            if c == 0:
                continue
            m = (1.0 if regression else t) * (margins[i, place] + constant)
            value, a = value_of(m, t, e), alpha[block.ids[i]]
            seen += 1
            mistakes += value > 0 if regression else m <= 0
            total += c * value
            lacks, free = gap_of(a, m, c, t, e), freedom(a, m, c, t, e)
            gap += lacks
            scores[i] = free if free < 0 else lacks
        return Counts(seen, mistakes, 0, total, gap)

    return look


def measure(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel that adds a block's part of the certificate: both sums are exact whatever the precision of w.

    P needs the loss of w0 on every row; D needs v = sum_i a_i s_i x_i, made anew in float64, and the rows' terms.

    Margins are rounded, and C times the rounding of one near a corner of the loss may be more than the gap. Where that
    matters, margins are computed as if in twice the precision, and the loss is the largest that they allow: P is never
    too small by more than ``UNSEEN`` of it.
    """
    regression, value_of, highest_of, dual_value = loss.regression, loss.value, loss.highest, dual_terms(loss).value

    @kernel
    def certify(block, shared, rows, params, dual_weights, length):  # type: ignore[no-untyped-def]
        weights, alpha, e = shared.weights, rows.alpha, params.epsilon
        last = weights.size - 1
        primal, dual = np.float64(0), np.float64(0)
        constant = params.bias * weights[last]
        for i in range(block.indptr.size - 1):
            t, c = block.labels[i], params.C * block.weights[i]
            if c == 0:
                continue
            s = 1.0 if regression else t
            m, slack = dot(block, i, weights), dot_slack(block, i, length, params.bias)
            value = value_of(s * (m + constant), t, e)
            highest = highest_of(s * (m + constant), slack, t, e)
            if highest > 0 and c * slack * (1 + highest) * (i + 1) > UNSEEN * primal:
                value, sharp = highest, sharp_dot(block, i, weights)
                if math.isfinite(sharp):
                    slack = min(slack, sharp_slack(block, i, length, sharp, constant, params.bias))
                    value = highest_of(s * (sharp + constant), slack, t, e)
            primal += c * value
            a = alpha[block.ids[i]]
            if a != 0:
                dual += dual_value(a, c, t, e)
                axpy(a * s, block, i, dual_weights)
                dual_weights[last] += params.bias * a * s
        return primal, dual

    return certify


def scaled(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel that adds to ``losses`` [scale] a block's  sum_i C_i loss(s_i (t w).x_i)  for each t of ``scales``,
    with the largest loss that a rounded margin allows. Powers of two scale weights and margins without rounding.

    It gives the derivative of the sum along t at the first of ``scales``: one exponential is for both.
    """
    regression, value_of, slope, highest_of = loss.regression, loss.value, loss.slope, loss.highest

    @kernel
    def add(block, shared, params, length, scales, losses):  # type: ignore[no-untyped-def]
        weights, e, first, slopes = shared.weights, params.epsilon, scales[0], np.float64(0)
        constant = params.bias * weights[weights.size - 1]
        for i in range(block.indptr.size - 1):
            y, c = block.labels[i], params.C * block.weights[i]
            if c == 0:
                continue
            m = (1.0 if regression else y) * (dot(block, i, weights) + constant)
            slack = dot_slack(block, i, length, params.bias)
            worst = first * m + first * slack if regression and first * m >= y else first * m - first * slack
            losses[0] += c * value_of(worst, y, e)
            slopes += c * slope(worst, y, e) * m
            for k in range(1, scales.size):
                losses[k] += c * highest_of(scales[k] * m, scales[k] * slack, y, e)
        return slopes

    return add


def along(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel that says how the rows of ``order`` have moved since ``start``: what a line search on the dual needs.

    With phi_i(a) = -C_i loss*(-a_i/C_i):  sum_i phi_i(a_i) - phi_i(start_i)  and  sum_i D_ii (a_i - start_i)^2. The
    rest of phi is straight or bends down, so that a part of the way gains at least that part of it.
    """
    dual_value, diagonal = dual_terms(loss).value, dual_terms(loss).diagonal

    @kernel
    def moved(block, order, rows, start, params):  # type: ignore[no-untyped-def]
        alpha, before, e = rows.alpha, start.alpha, params.epsilon
        gain, bend = np.float64(0), np.float64(0)
        for k in range(order.size):
            i = order[k]
            r = block.ids[i]
            a, b = alpha[r], before[r]
            if a != b:
                t, c = block.labels[i], params.C * block.weights[i]
                gain += dual_value(a, c, t, e) - dual_value(b, c, t, e)
                bend += diagonal(c) * (a - b) * (a - b)
        return gain, bend

    return moved


def within(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel that puts the dual variables of a block's rows into their intervals, for another C or other rows."""
    lower, upper = dual_terms(loss).lower, dual_terms(loss).upper

    @kernel
    def clip(block, rows, params):  # type: ignore[no-untyped-def]
        alpha = rows.alpha
        for i in range(block.indptr.size - 1):
            r, c = block.ids[i], params.C * block.weights[i]
            low, high = (lower(c), upper(c)) if c > 0 else (0.0, 0.0)
            alpha[r] = min(max(alpha[r], low), high)

    return clip


def value(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel of  sum_i -C_i loss*(-t alpha_i / C_i)  over a block: a part of the way from nothing to alpha."""
    dual_value = dual_terms(loss).value

    @kernel
    def part(block, rows, params, t):  # type: ignore[no-untyped-def]
        alpha, e, total = rows.alpha, params.epsilon, np.float64(0)
        for i in range(block.indptr.size - 1):
            a = t * alpha[block.ids[i]]
            if a != 0:
                total += dual_value(a, params.C * block.weights[i], block.labels[i], e)
        return total

    return part


# Methods

METHODS = (
    dual(
        name="dcd",
        title="dual coordinate descent (SVM, logistic, support vector regression), certified, in memory or out of core",
        paper="Hsieh et al., ICML 2008; Yu et al., KDD 2010; Chang and Roth, KDD 2011; Matsushima et al., KDD 2012; "
        "Yu, Huang, Lin, MLJ 2011; Ho and Lin, JMLR 2012",
        formula="a_i <- clip(a_i - (y_i w.x_i - 1 + D a_i) / (||x_i||^2 + D), 0, U);  w <- w + (change) y_i x_i",
        params=(COST, EPSILON, WORKING_SET, SCHEDULE, INNER_ROUNDS),
        losses=tuple(name for name in having(is_dual) if name != "squared"),  # twice that is the squared tube of e = 0
        shared=functools.partial(zeros, Shared),
        rows=Rows,
        bind=lambda settings: Params(settings["C"], settings["bias"], settings.get("epsilon", 0.0), 1.0),
        update=descend,
        judge=functools.cache(judge),
        certify=functools.cache(measure),
        scaled=functools.cache(scaled),
        along=functools.cache(along),
        within=functools.cache(within),
        value=functools.cache(value),
        climb=conjugate_gradients.climb,
        span=subspace_ascent.kernels,
        **DUAL,
    ),
)
