"""Problems with a corner in the penalty on rows turned into columns: the columns, sums over them, and how good weights
are.

    min_w  F(w) = l1 ||w||_1 + l2/2 ||w||^2 + L(w),    L(w) = sum_i C_i loss(m_i),  m_i = y_i w.x_i

For regression y_i is 1 in the margin, which is the prediction, and the label is the number to predict. A value in a
column is x_ij = s_i v_ij, where s_i is y_i and, where each row has one value, that value times it; then there are no
v_ij, which are 1. So the rows' arrays do what would else be read with every entry. A column may have a scale of its
own, which multiplies all its values and is never stored with them; sums over a column are made without it.

The dual point is t_i = -C_i loss'(m_i), scaled into |sum_i t_i y_i x_ij| <= l1: see ``bigclf.methods.steps.newglmnet``.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import inlined, inner, kernel, prefetch
from bigclf.maths.losses import Loss, dual_terms
from bigclf.methods.method import Both, in_turn

NU = 1e-12  # added to the Hessian's diagonal
AHEAD = 16  # entries of a column between the prefetch and the use of a row
LARGE = 1 << 17  # entries: fewer are not worth a second core


class Columns(NamedTuple):
    """Rows by columns.

    starts : int64 [column + 1]; rows : uint32 [entry], ascending in a column; values : float32 [entry], or none where
    each row has one value; largest : float64 [column], max_i |x_ij|, with the scale; float64 [row] each: labels, -1 or
    +1, or numbers; signs, s_i; units, y_i / s_i, or none where that is 1; prices, C_i; margins; scales : float64
    [column], not 0, what multiplies v_ij, or none where that is 1.
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
    scales: np.ndarray = np.empty(0)


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
    there; steps, cycles and steps of conjugate gradients; stuck : floating point went no further."""

    primal: float
    gap: float
    violation: float
    scale: float
    sides: tuple[float, float]
    steps: int
    cycles: int
    climbed: int
    stuck: bool


@inlined
def value_at(values, p):  # type: ignore[no-untyped-def]
    """v_ij at entry p."""
    if values.size > 0:
        return np.float64(values[p])
    return 1.0


@inlined
def scale_at(scales, j):  # type: ignore[no-untyped-def]
    """What multiplies the values of column j."""
    if scales.size > 0:
        return scales[j]
    return 1.0


@inlined
def unit_at(units, i):  # type: ignore[no-untyped-def]
    """y_i / s_i"""
    if units.size > 0:
        return units[i]
    return 1.0


@inlined
def add_bent(g, columns, penalty, pairs, j):  # type: ignore[no-untyped-def]
    """g + sum_i v_ij D_i p_i, where ``pairs`` holds D_i and p_i; after the last column comes the constant one."""
    total = g
    if j == columns.starts.size - 1:
        for i in range(columns.margins.size):
            total += penalty.bias * unit_at(columns.units, i) * pairs[i, 0] * pairs[i, 1]
    else:
        scale = scale_at(columns.scales, j)
        total /= scale
        for p in range(columns.starts[j], columns.starts[j + 1]):
            if p + AHEAD < columns.rows.size:
                prefetch(pairs, 2 * np.int64(columns.rows[p + AHEAD]))
            i = columns.rows[p]
            total += value_at(columns.values, p) * pairs[i, 0] * pairs[i, 1]
        total *= scale
    return total


@functools.cache
def look(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel: pairs [row, 2] = s_i^2 C_i loss''(m_i) and s_i C_i loss'(m_i); gives the sum of losses and the sums of
    C_i |loss'| over rows that pull the prediction up (positive ones) and down."""
    value, slope, curvature, regression = loss.value, loss.slope, loss.curvature, loss.regression

    @kernel
    def slopes(columns, pairs):  # type: ignore[no-untyped-def]
        total, plus, minus = np.float64(0), np.float64(0), np.float64(0)
        for i in range(columns.margins.size):
            m, c, s, t = columns.margins[i], columns.prices[i], columns.signs[i], columns.labels[i]
            g = c * slope(m, t, 0.0)
            pairs[i, 0] = s * s * c * curvature(m, t, 0.0)
            pairs[i, 1] = s * g
            total += c * value(m, t, 0.0)
            if g < 0 if regression else t > 0:
                plus += abs(g)
            else:
                minus += abs(g)
        return total, plus, minus

    return slopes


@functools.cache
def dual_sum(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel: sum of the rows' terms of the dual objective at t_i = -C_i loss'(m_i) times a factor for each side."""
    slope, dual_value, regression = loss.slope, dual_terms(loss).value, loss.regression

    @kernel
    def add(columns, plus, minus):  # type: ignore[no-untyped-def]
        total = np.float64(0)
        for i in range(columns.margins.size):
            c, t = columns.prices[i], columns.labels[i]
            a = -c * slope(columns.margins[i], t, 0.0)
            up = a > 0 if regression else t > 0
            total += dual_value(a * (plus if up else minus), c, t, 0.0)
        return total

    return add


@inlined
def violation(g, w, l1):  # type: ignore[no-untyped-def]
    """How far 0 is from the subdifferential g + l1 d|w|."""
    if w > 0:
        return abs(g + l1)
    if w < 0:
        return abs(g - l1)
    return max(0.0, abs(g) - l1)


@inlined
def best_step(g, h, w, l1):  # type: ignore[no-untyped-def]
    """The z of least g z + h z^2 / 2 + l1 |w + z| (Yuan, Ho, Lin, JMLR 2012)."""
    if g + l1 <= h * w:
        return -(g + l1) / h
    if g - l1 >= h * w:
        return -(g - l1) / h
    return -w


def gradient(
    columns: Columns, penalty: Penalty, pairs: np.ndarray, w: np.ndarray, slopes: np.ndarray, diagonal: np.ndarray,
    losses: np.ndarray, both: Both = in_turn,
) -> None:  # fmt: skip
    """Of every column: ``losses``, g_j of the loss alone, ``slopes``, with l2, and ``diagonal``, H_jj + nu; the bias
    last. ``both`` halves of the columns are looked at beside each other or in turn."""
    entries, n = columns.rows.size, w.size - 1
    middle = int(np.searchsorted(columns.starts, entries // 2))
    both = both if entries >= LARGE else in_turn
    given = columns, penalty, pairs, w, slopes, diagonal, losses
    both(lambda: _gradient(*given, 0, min(middle, n)), lambda: _gradient(*given, min(middle, n), w.size))


@kernel
def _gradient(columns, penalty, pairs, w, slopes, diagonal, losses, first, end):  # type: ignore[no-untyped-def]
    last = w.size - 1
    for j in range(first, min(end, last)):
        g, h = np.float64(0), np.float64(0)
        for p in range(columns.starts[j], columns.starts[j + 1]):
            if p + AHEAD < columns.rows.size:
                prefetch(pairs, 2 * np.int64(columns.rows[p + AHEAD]))
            x, i = value_at(columns.values, p), columns.rows[p]
            g += x * pairs[i, 1]
            h += x * x * pairs[i, 0]
        scale = scale_at(columns.scales, j)
        g *= scale
        h *= scale * scale
        losses[j], slopes[j], diagonal[j] = g, g + penalty.l2 * w[j], h + penalty.l2 + NU
    if end <= last:
        return
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
def clear(pairs):  # type: ignore[no-untyped-def]
    """d = 0"""
    for i in range(pairs.shape[0]):
        pairs[i, 1] = 0.0


def loose(w: np.ndarray, penalty: Penalty) -> slice:
    """Those that are penalised."""
    return slice(0, w.size - 1 if penalty.free or penalty.bias == 0 else w.size)


def penalty_of(w: np.ndarray, penalty: Penalty) -> float:
    held = w[loose(w, penalty)]
    return penalty.l1 * float(np.sum(np.abs(held))) + 0.5 * penalty.l2 * float(np.sum(held * held))


def sides_of(penalty: Penalty, plus: float, minus: float) -> tuple[float, float]:
    """With a free bias, the factors of t_i = -C_i loss'(m_i) of either side with which sum_i t_i y_i = 0; the sides are
    those of t_i y_i > 0 and < 0."""
    least = min(plus, minus)
    if not penalty.free:
        return 1.0, 1.0
    return least / plus if plus > 0 else 1.0, least / minus if minus > 0 else 1.0


def balanced(
    loss: Loss, columns: Columns, penalty: Penalty, pairs: np.ndarray, w: np.ndarray, losses: np.ndarray,
    sides: tuple[float, float], both: Both = in_turn,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """``pairs`` and ``losses`` of the t_i with these factors."""
    if sides == (1.0, 1.0):
        return pairs, losses
    points = pairs.copy()
    up = points[:, 1] * columns.signs < 0 if loss.regression else columns.labels > 0
    points[:, 1] *= np.where(up, *sides)
    sums, slopes, diagonal = (np.empty(w.size) for _ in range(3))
    gradient(columns, penalty, points, w, slopes, diagonal, sums, both)
    sums[-1] = 0.0  # it is, but for rounding
    return points, sums


def scale_of(losses: np.ndarray, penalty: Penalty) -> float:
    """The scale that makes |sum_i t_i y_i x_ij| <= l1 of these columns."""
    if penalty.l2 > 0:
        return 1.0
    top = float(np.max(np.abs(losses[loose(losses, penalty)]), initial=0.0))
    return min(1.0, penalty.l1 / top) if top > 0 else 1.0


def dual_of(
    add: Any, columns: Columns, losses: np.ndarray, penalty: Penalty, scale: float, sides: tuple[float, float]
) -> float:
    """The dual objective of that point: the rows' terms, less the conjugate of the penalty."""
    rows = float(add(columns, scale * sides[0], scale * sides[1]))
    return rows - (conjugate(losses[loose(losses, penalty)], penalty) if penalty.l2 > 0 else 0.0)


def scaled_dual(rows: float, losses: float, top: float, square: float, penalty: Penalty) -> float:
    """The dual objective that scikit-learn's ``ElasticNet`` has of the squared loss, which takes l2 for further rows:
    the point, which is w there, is scaled by s = min(1, l1 / max_j |u_j - l2 w_j|), so that this is
    s (R + L) - s^2 (L + l2/2 ||w||^2).

    rows : R, the rows' terms of the dual objective at s = 1; losses : L; top : that maximum; square : ||w||^2.
    """
    s = min(1.0, penalty.l1 / top) if top > 0 else 1.0
    return s * (rows + losses) - s * s * (losses + 0.5 * penalty.l2 * square)


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
