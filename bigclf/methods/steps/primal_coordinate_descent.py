"""CDN: coordinate descent in the primal by Newton's steps of one weight (Yuan, Chang, Hsieh, Lin, JMLR 2010; for the
squared hinge Chang, Hsieh, Lin, JMLR 2008; LIBLINEAR's solver of the L1-regularised squared hinge).

    min_w  F(w) = l1 ||w||_1 + l2/2 ||w||^2 + L(w),    L(w) = sum_i C_i loss(m_i),  m_i = y_i w.x_i
    step   min_d  l1 |w_j + d| + g d + h d^2 / 2,    g, h : derivatives of L + l2/2 w_j^2 by w_j, where w is now
    search F(w + t d e_j) - F(w) <= sigma t (g d + l1 |w_j + d| - l1 |w_j|),  t = 1, 1/2, 1/4, ...

Unlike ``proximal_newton`` there is no model of all weights: each step is of the true losses, and the margins follow at
once. With loss'' <= 2 q the sum of losses rises by at most g d + q d^2 sum_i C_i x_ij^2, so that most steps are seen to
be good without a look at the losses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from bigclf.compiled.jit import kernel, prefetch, shuffle
from bigclf.maths.losses import Loss
from bigclf.methods.method import Both, steps
from bigclf.methods.steps.columns import AHEAD, Columns, Penalty, best_step, scale_at, unit_at, value_at, violation
from bigclf.methods.steps.newglmnet import BY_COLUMNS, absorb
from bigclf.methods.steps.proximal_newton import HALVINGS, MOST_CYCLES, SIGMA, Work, far_inside, longest_of

LEAST = 1e-12  # curvature of a weight's step


@functools.cache
def descend(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel: a cycle."""
    value, slope, curvature, half = loss.value, loss.slope, loss.curvature, 0.5 * loss.most_curved
    longest = longest_of(loss)

    @kernel
    def cycle(columns, penalty, pairs, w, squares, order, n, far):  # type: ignore[no-untyped-def]
        """One go over order[:n]; ``pairs`` as ``look`` makes them, kept with the margins; squares : float64 [column +
        1], sum_i C_i x_ij^2. What is far inside at 0 goes to the end of the order; gives how many are left, the sum of
        violations, the largest one and how many weights changed."""
        last, total, most, moved = w.size - 1, np.float64(0), np.float64(0), 0
        n_rows = columns.margins.size
        k = 0
        while k < n:
            j = order[k]
            constant = j == last
            first, end = (0, n_rows) if constant else (columns.starts[j], columns.starts[j + 1])
            l1 = 0.0 if constant and penalty.free else penalty.l1
            l2 = 0.0 if constant and penalty.free else penalty.l2
            g, h = l2 * w[j], np.float64(l2)
            own = penalty.bias if constant else scale_at(columns.scales, j)
            for p in range(first, end):
                if not constant and p + AHEAD < columns.rows.size:
                    prefetch(pairs, 2 * np.int64(columns.rows[p + AHEAD]))
                i = p if constant else np.int64(columns.rows[p])
                x = own * (unit_at(columns.units, i) if constant else value_at(columns.values, p))
                g += x * pairs[i, 1]
                h += x * x * pairs[i, 0]
            v = violation(g, w[j], l1)
            if w[j] == 0 and abs(g) < l1 - far:
                n -= 1
                order[k], order[n] = order[n], order[k]
                continue
            k += 1
            total += v
            most = max(most, v)
            d = best_step(g, max(h, np.float64(LEAST)), w[j], l1)
            reach = longest / (penalty.bias if constant else columns.largest[j])
            d = min(max(d, -reach), reach)
            promised = g * d + l1 * (abs(w[j] + d) - abs(w[j]))
            if not promised < 0:
                continue
            t, found = 1.0, False
            for _ in range(HALVINGS):
                z = t * d
                gained = l1 * (abs(w[j] + z) - abs(w[j])) - SIGMA * t * promised
                found = gained + g * z + (half * squares[j] + 0.5 * l2) * z * z <= 0
                if found:
                    break
                gained += l2 * z * (w[j] + 0.5 * z)
                for p in range(first, end):
                    i = p if constant else np.int64(columns.rows[p])
                    x = own * (unit_at(columns.units, i) if constant else value_at(columns.values, p))
                    m, label = columns.margins[i], columns.labels[i]
                    after = value(m + z * columns.signs[i] * x, label, 0.0)
                    gained += columns.prices[i] * (after - value(m, label, 0.0))
                found = gained <= 0
                if found:
                    break
                t *= 0.5
            if not found:
                continue
            z = t * d
            moved += w[j] + z != w[j]
            w[j] = 0.0 if z == -w[j] else w[j] + z
            for p in range(first, end):
                i = p if constant else np.int64(columns.rows[p])
                x = own * (unit_at(columns.units, i) if constant else value_at(columns.values, p))
                s, c, label = columns.signs[i], columns.prices[i], columns.labels[i]
                m = columns.margins[i] + z * s * x
                columns.margins[i] = m
                pairs[i, 0] = s * s * c * curvature(m, label, 0.0)
                pairs[i, 1] = s * c * slope(m, label, 0.0)
        return n, total, most, moved

    return cycle


@kernel
def add_squares(columns, penalty, squares):  # type: ignore[no-untyped-def]
    """squares[j] = sum_i C_i x_ij^2"""
    last = squares.size - 1
    for j in range(last):
        total = np.float64(0)
        for p in range(columns.starts[j], columns.starts[j + 1]):
            i = columns.rows[p]
            x = columns.signs[i] * value_at(columns.values, p)
            total += columns.prices[i] * x * x
        scale = scale_at(columns.scales, j)
        squares[j] = total * (scale * scale)
    total = np.float64(0)
    for i in range(columns.margins.size):
        total += columns.prices[i] * penalty.bias * penalty.bias
    squares[last] = total


def cdn_round(
    loss: Loss, columns: Columns, penalty: Penalty, w: np.ndarray, work: Work, active: np.ndarray, primal: float,
    enough: float, far: float, random: np.ndarray, idle: Callable[[], None], late: Callable[[], bool],
    both: Both,
) -> tuple[int, int, bool]:  # fmt: skip
    """Cycles until the violations of one sum up to ``enough``: as ``proximal_newton.newton_round``."""
    n, moved, done, update = active.size, 0, 0, descend(loss)
    add_squares(columns, penalty, work.diagonal)
    while done < MOST_CYCLES:
        done += 1
        shuffle(active, 0, n, random)
        n, total, most, some = update(columns, penalty, work.pairs, w, work.diagonal, active, n, far)
        moved += some
        idle()
        far = far_inside(most, columns)
        if (total <= enough and n == active.size) or late():
            break
        if total <= enough:
            n, far = active.size, np.inf
    return done, 0, moved > 0


# Methods

METHODS = (
    steps(
        name="cdn",
        title="coordinate descent in the primal on active columns, exact zeros, certified",
        paper="Chang, Hsieh, Lin, JMLR 2008; Yuan, Chang, Hsieh, Lin, JMLR 2010",
        formula="w_j <- w_j + t argmin_d l1 |w_j + d| + g_j d + H_jj d^2 / 2, one coordinate after another",
        absorb=absorb(cdn_round),
        **BY_COLUMNS,
    ),
)
