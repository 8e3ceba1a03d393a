"""newGLMNET in memory, on columns: Newton's method for penalties with corners, its steps by coordinate descent (Yuan,
Ho, Lin, JMLR 2012; LIBLINEAR's solver of L1-regularised logistic regression).

    min_w  F(w) = l1 ||w||_1 + l2/2 ||w||^2 + L(w),    L(w) = sum_i C_i loss(m_i),  m_i = y_i w.x_i
    step   min_d  l1 (||w+d||_1 - ||w||_1) + g.d + 1/2 d'H d,    g, H of L + l2/2 ||.||^2, H + nu I
    search F(w + t d) - F(w) <= sigma t (g.d + l1 ||w+d||_1 - l1 ||w||_1),  t = 1, 1/2, 1/4, ...

The step is found one coordinate after another; what H d needs of the rows, y_i d.x_i, is kept. Coordinates that are 0
and far from moving are left out, of a step (first level) and of a cycle in it (second level). For the squared hinge H
is made of the generalised second derivative, 2 C_i where m_i < 1.

A value in a column is x_ij = s_i v_ij, where s_i is the label y_i and, where each row has one value, that value times
it; then there are no v_ij, which are 1. So the rows' arrays do what would else be read with every entry.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bigclf.jit import inlined, inner, kernel, prefetch, random_state, shuffle
from bigclf.losses import curvature, dual_value, loss_value, slope

NU = 1e-12  # added to the Hessian's diagonal
SIGMA, HALVINGS = 0.01, 40
LONGEST = 10.0  # most that a step of one coordinate changes a margin by
MOST_CYCLES = 20  # of a step: then the model is made anew where it has come to
MOST_IN_ALL = 2000  # ... of a solution: then a read tells how good it is, and it goes on
ENOUGH = 0.2  # a step is good enough where the violations have fallen to this share of what they were
ROUGH = 0.1  # of the gap over some columns, while others wait
ROUNDING = 1e-14  # of F: smaller differences are not told apart
AHEAD = 16  # entries of a column between the prefetch and the use of a row


class Columns(NamedTuple):
    """Rows by columns.

    starts : int64 [column + 1]; rows : uint32 [entry], ascending in a column; values : float32 [entry], or none where
    each row has one value; largest : float64 [column], max_i |x_ij|; float64 [row] each: labels, -1 or +1; signs, s_i;
    units, y_i / s_i, or none where that is 1; prices, C_i; margins.
    """

    starts: np.ndarray
    rows: np.ndarray
    values: np.ndarray
    largest: np.ndarray
    labels: np.ndarray
    signs: np.ndarray
    units: np.ndarray
    prices: np.ndarray
    margins: np.ndarray


class Penalty(NamedTuple):
    """l1 ||w||_1 + l2/2 ||w||^2; bias : value of the constant feature, whose weight is the last (0.0: there is none);
    free : whether that one is not penalised."""

    l1: float
    l2: float
    bias: float
    free: bool


class Found(NamedTuple):
    """What a solution comes to: primal objective, gap over the columns at hand, largest violation of the optimality
    conditions there; scale : with which the rows' slopes, positive and negative ones times ``sides``, are dual feasible
    there; steps and cycles; stuck : floating point went no further."""

    primal: float
    gap: float
    violation: float
    scale: float
    sides: tuple[float, float]
    steps: int
    cycles: int
    stuck: bool


@inlined
def value_at(values, p):  # type: ignore[no-untyped-def]
    """v_ij at entry p."""
    if values.size > 0:
        return np.float64(values[p])
    return 1.0


@inlined
def unit_at(units, i):  # type: ignore[no-untyped-def]
    """y_i / s_i"""
    if units.size > 0:
        return units[i]
    return 1.0


@functools.cache
def look(loss: int):  # type: ignore[no-untyped-def]
    """Kernel: pairs [row, 2] = s_i^2 C_i loss''(m_i) and s_i C_i loss'(m_i); gives the sum of losses and the sums of
    C_i |loss'| over positive and negative rows."""

    @kernel
    def slopes(columns, pairs):  # type: ignore[no-untyped-def]
        total, plus, minus = np.float64(0), np.float64(0), np.float64(0)
        for i in range(columns.margins.size):
            m, c, s = columns.margins[i], columns.prices[i], columns.signs[i]
            g = c * slope(loss, m, 1.0, 0.0)
            pairs[i, 0] = s * s * c * curvature(loss, m, 1.0, 0.0)
            pairs[i, 1] = s * g
            total += c * loss_value(loss, m, 1.0, 0.0)
            if columns.labels[i] > 0:
                plus -= g
            else:
                minus -= g
        return total, plus, minus

    return slopes


@functools.cache
def dual_sum(loss: int):  # type: ignore[no-untyped-def]
    """Kernel: sum of the rows' terms of the dual objective at t_i = -C_i loss'(m_i) times a factor for each side."""

    @kernel
    def add(columns, plus, minus):  # type: ignore[no-untyped-def]
        total = np.float64(0)
        for i in range(columns.margins.size):
            c = columns.prices[i]
            a = -c * slope(loss, columns.margins[i], 1.0, 0.0) * (plus if columns.labels[i] > 0 else minus)
            total += dual_value(loss, a, c, 1.0, 0.0)
        return total

    return add


@functools.cache
def along(loss: int):  # type: ignore[no-untyped-def]
    """Kernel: sum_i C_i (loss(m_i + t s_i v_i) - loss(m_i))."""

    @kernel
    def change(columns, pairs, t):  # type: ignore[no-untyped-def]
        total = np.float64(0)
        for i in range(columns.margins.size):
            moved = t * columns.signs[i] * pairs[i, 1]
            if moved != 0:
                m = columns.margins[i]
                after, before = loss_value(loss, m + moved, 1.0, 0.0), loss_value(loss, m, 1.0, 0.0)
                total += columns.prices[i] * (after - before)
        return total

    return change


@kernel
def move(columns, pairs, t):  # type: ignore[no-untyped-def]
    """m_i += t s_i v_i"""
    for i in range(columns.margins.size):
        columns.margins[i] += t * columns.signs[i] * pairs[i, 1]


@inlined
def violation(g, w, l1):  # type: ignore[no-untyped-def]
    """How far 0 is from the subdifferential g + l1 d|w|."""
    if w > 0:
        return abs(g + l1)
    if w < 0:
        return abs(g - l1)
    return max(0.0, abs(g) - l1)


@kernel
def gradient(columns, penalty, pairs, w, slopes, diagonal, losses):  # type: ignore[no-untyped-def]
    """Of every column: ``losses``, g_j of the loss alone, ``slopes``, with l2, and ``diagonal``, H_jj + nu; the bias
    last."""
    last = w.size - 1
    for j in range(last):
        g, h = np.float64(0), np.float64(0)
        for p in range(columns.starts[j], columns.starts[j + 1]):
            if p + AHEAD < columns.rows.size:
                prefetch(pairs, 2 * np.int64(columns.rows[p + AHEAD]))
            x, i = value_at(columns.values, p), columns.rows[p]
            g += x * pairs[i, 1]
            h += x * x * pairs[i, 0]
        losses[j], slopes[j], diagonal[j] = g, g + penalty.l2 * w[j], h + penalty.l2 + NU
    losses[last], slopes[last], diagonal[last] = 0.0, 0.0, 1.0
    if penalty.bias != 0:
        g, h = np.float64(0), np.float64(0)
        for i in range(columns.margins.size):
            x = penalty.bias * unit_at(columns.units, i)
            g += x * pairs[i, 1]
            h += x * x * pairs[i, 0]
        l2 = 0.0 if penalty.free else penalty.l2
        losses[last], slopes[last], diagonal[last] = g, g + l2 * w[last], h + l2 + NU


@kernel
def screen(penalty, w, slopes, far, active):  # type: ignore[no-untyped-def]
    """Fill ``active`` with the coordinates that may move: all but those at 0 whose slope is ``far`` inside. Gives their
    number, the sum of violations and the largest one."""
    last, n, total, most = w.size - 1, 0, np.float64(0), np.float64(0)
    for j in range(w.size):
        if j == last and penalty.bias == 0:
            continue
        l1 = 0.0 if j == last and penalty.free else penalty.l1
        v = violation(slopes[j], w[j], l1)
        if w[j] == 0 and abs(slopes[j]) < l1 - far:
            continue
        active[n] = j
        n += 1
        total += v
        most = max(most, v)
    return n, total, most


@kernel
def cycle(columns, penalty, pairs, w, sought, slopes, diagonal, order, n, far):  # type: ignore[no-untyped-def]
    """One go of coordinate descent over order[:n] on the quadratic model; pairs[i, 1] holds y_i d.x_i / s_i, and
    ``sought`` w + d. What is far inside at 0 goes to the end of the order; gives how many are left, the sum of
    violations and the largest one."""
    last, total, most = w.size - 1, np.float64(0), np.float64(0)
    k = 0
    while k < n:
        j = order[k]
        constant = j == last
        l1 = 0.0 if constant and penalty.free else penalty.l1
        l2 = 0.0 if constant and penalty.free else penalty.l2
        d = sought[j] - w[j]
        g = slopes[j] + (l2 + NU) * d
        if constant:
            for i in range(columns.margins.size):
                g += penalty.bias * unit_at(columns.units, i) * pairs[i, 0] * pairs[i, 1]
        else:
            for p in range(columns.starts[j], columns.starts[j + 1]):
                if p + AHEAD < columns.rows.size:
                    prefetch(pairs, 2 * np.int64(columns.rows[p + AHEAD]))
                i = columns.rows[p]
                g += value_at(columns.values, p) * pairs[i, 0] * pairs[i, 1]
        v = violation(g, sought[j], l1)
        if sought[j] == 0 and abs(g) < l1 - far:
            n -= 1
            order[k], order[n] = order[n], order[k]
            continue
        k += 1
        total += v
        most = max(most, v)
        h = diagonal[j]
        if g + l1 <= h * sought[j]:
            z = -(g + l1) / h
        elif g - l1 >= h * sought[j]:
            z = -(g - l1) / h
        else:
            z = -sought[j]
        reach = LONGEST / (penalty.bias if constant else columns.largest[j])
        z = min(max(z, -reach), reach)
        if z == 0:
            continue
        sought[j] += z
        if constant:
            for i in range(columns.margins.size):
                pairs[i, 1] += z * penalty.bias * unit_at(columns.units, i)
        else:
            for p in range(columns.starts[j], columns.starts[j + 1]):
                pairs[columns.rows[p], 1] += z * value_at(columns.values, p)
    return n, total, most


@kernel
def clear(pairs):  # type: ignore[no-untyped-def]
    """d = 0"""
    for i in range(pairs.shape[0]):
        pairs[i, 1] = 0.0


def solve(
    loss: int, columns: Columns, penalty: Penalty, w: np.ndarray, goal: float, salt: int, partial: bool = False,
    idle: Callable[[], None] = lambda: None, late: Callable[[], bool] = lambda: False,
) -> Found:  # fmt: skip
    """Go on from ``w`` (float64 [column + 1], the bias last; in place, as ``columns.margins``) until the duality gap
    over these columns is at most ``goal`` times the objective.

    salt : of the random orders; partial : other columns have weights too, which stay as they are: then the gap is to
    fall to ``ROUGH`` of what it was; idle : called after each cycle; late : asked then: it ends where it stands.
    """
    n = w.size
    pairs, sought = np.empty((columns.margins.size, 2)), w.copy()
    slopes, diagonal, losses = np.empty(n), np.empty(n), np.empty(n)
    active, random = np.empty(n, np.int64), random_state(6, salt)
    before, cycles, least = math.inf, 0, 0.0
    flat = pairs.reshape(-1, 2)
    step = 0
    while True:
        loss_sum, plus, minus = look(loss)(columns, flat)
        gradient(columns, penalty, flat, w, slopes, diagonal, losses)
        count, total, most = screen(penalty, w, slopes, _far(before, penalty, columns), active)
        primal = loss_sum + penalty_of(w, penalty)
        sides = sides_of(penalty, plus, minus)
        points, sums = balanced(columns, penalty, pairs, w, losses, sides)
        scale = scale_of(sums, penalty)
        gap = primal - dual_of(dual_sum(loss), columns, sums, penalty, scale, sides)
        if partial:  # what the other weights have of the margins is taken from the rows' terms
            gap += held_elsewhere(columns, points, sums, penalty, w, scale)
            least = ROUGH * gap if step == 0 else least
        found = Found(primal, gap, most, scale, sides, step, cycles, False)
        if gap <= (least if partial else goal * primal) or most == 0 or cycles >= MOST_IN_ALL or late():
            return found
        clear(flat)
        enough = ENOUGH * total
        cycles += _step(columns, penalty, flat, w, sought, slopes, diagonal, active[:count], enough, before, random,
                        idle, late)  # fmt: skip
        if not _search(along(loss), columns, penalty, flat, w, sought, slopes, primal):
            return found._replace(steps=step + 1, cycles=cycles, stuck=True)
        before, step = most, step + 1


def _far(before: float, penalty: Penalty, columns: Columns) -> float:
    """How far inside a coordinate at 0 is left out: as the largest violation of the round before it allows."""
    return before / max(1, columns.margins.size)


def _step(
    columns: Columns, penalty: Penalty, pairs: np.ndarray, w: np.ndarray, sought: np.ndarray, slopes: np.ndarray,
    diagonal: np.ndarray, active: np.ndarray, enough: float, before: float, random: np.ndarray,
    idle: Callable[[], None], late: Callable[[], bool],
) -> int:  # fmt: skip
    """Minimise the quadratic model over ``active`` until the violations of a cycle sum up to ``enough``; the number of
    cycles."""
    n, far = active.size, _far(before, penalty, columns)
    for done in range(1, MOST_CYCLES + 1):
        shuffle(active, 0, n, random)
        n, total, most = cycle(columns, penalty, pairs, w, sought, slopes, diagonal, active, n, far)
        idle()
        far = _far(most, penalty, columns)
        if total <= enough:
            if n == active.size:
                return done
            n, far = active.size, math.inf
        if late():
            return done
    return MOST_CYCLES


def _search(
    change: Any, columns: Columns, penalty: Penalty, pairs: np.ndarray, w: np.ndarray, sought: np.ndarray,
    slopes: np.ndarray, primal: float,
) -> bool:  # fmt: skip
    """Go along the step as far as it keeps its promise; False where floating point sees no gain."""
    d = sought - w
    free = _loose(w, penalty)
    promised = float(inner(slopes, d)) + penalty.l1 * float(np.sum((np.abs(sought) - np.abs(w))[free]))
    t = 1.0
    for _ in range(HALVINGS):
        there = w + t * d
        gained = change(columns, pairs, t) + penalty_of(there, penalty) - penalty_of(w, penalty)
        if gained <= SIGMA * t * promised + ROUNDING * primal:
            move(columns, pairs, t)
            moved = bool(np.any(there != w))
            w[:] = there if t != 1.0 else sought
            sought[:] = w
            return moved
        t *= 0.5
    sought[:] = w
    return False


def _loose(w: np.ndarray, penalty: Penalty) -> slice:
    """Those that are penalised."""
    return slice(0, w.size - 1 if penalty.free or penalty.bias == 0 else w.size)


def penalty_of(w: np.ndarray, penalty: Penalty) -> float:
    held = w[_loose(w, penalty)]
    return penalty.l1 * float(np.sum(np.abs(held))) + 0.5 * penalty.l2 * float(np.sum(held * held))


def sides_of(penalty: Penalty, plus: float, minus: float) -> tuple[float, float]:
    """With a free bias, the factors of t_i = -C_i loss'(m_i) of either side with which sum_i t_i y_i = 0."""
    least = min(plus, minus)
    if not penalty.free:
        return 1.0, 1.0
    return least / plus if plus > 0 else 1.0, least / minus if minus > 0 else 1.0


def balanced(
    columns: Columns, penalty: Penalty, pairs: np.ndarray, w: np.ndarray, losses: np.ndarray, sides: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """``pairs`` and ``losses`` of the t_i with these factors."""
    if sides == (1.0, 1.0):
        return pairs, losses
    points = pairs.copy()
    points[:, 1] *= np.where(columns.labels > 0, *sides)
    sums, slopes, diagonal = (np.empty(w.size) for _ in range(3))
    gradient(columns, penalty, points, w, slopes, diagonal, sums)
    sums[-1] = 0.0  # it is, but for rounding
    return points, sums


def scale_of(losses: np.ndarray, penalty: Penalty) -> float:
    """The scale that makes |sum_i t_i y_i x_ij| <= l1 of these columns."""
    if penalty.l2 > 0:
        return 1.0
    top = float(np.max(np.abs(losses[_loose(losses, penalty)]), initial=0.0))
    return min(1.0, penalty.l1 / top) if top > 0 else 1.0


def dual_of(
    add: Any, columns: Columns, losses: np.ndarray, penalty: Penalty, scale: float, sides: tuple[float, float]
) -> float:
    """The dual objective of that point: the rows' terms, less the conjugate of the penalty."""
    rows = float(add(columns, scale * sides[0], scale * sides[1]))
    return rows - (conjugate(losses[_loose(losses, penalty)], penalty) if penalty.l2 > 0 else 0.0)


def held_elsewhere(
    columns: Columns, pairs: np.ndarray, losses: np.ndarray, penalty: Penalty, w: np.ndarray, scale: float
) -> float:
    """sum_i t_i o_i, o_i what weights of other columns add to the margin: sum_i t_i m_i - sum_j u_j w_j."""
    everything = -float(inner(pairs[:, 1] / columns.signs, columns.margins))
    return scale * (everything + float(inner(losses, w)))


def conjugate(u: np.ndarray, penalty: Penalty) -> float:
    """sum_j max(0, |u_j| - l1)^2 / (2 l2)"""
    beyond = np.maximum(0.0, np.abs(u) - penalty.l1)
    return float(np.sum(beyond * beyond)) / (2 * penalty.l2)
