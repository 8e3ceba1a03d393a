"""Newton's method with the whole Hessian, for tables: many rows, few features, noise; every loss, certified.

    min_w  P(w) = 1/2 ||w||^2 + sum_i C_i loss(s_i w.x_i)
    (I + sum_i C_i loss''(m_i) x_i x_i') s = -g,    g = w + sum_i C_i loss'(m_i) s_i x_i,    w <- w + t s

A loss with a corner is smoothed by h, which falls to where the answer no longer feels it: of the hinge
h log(1 + e^((1-m)/h)) (Lee, Mangasarian, SSVM, Computational Optimization and Applications 2001; continued in h),
of the tube the same on either side. What is certified is the loss itself: a_i = -C_i times the smoothed slope lies in
the box of the dual, and with F = sum_i C_i loss(m_i) - phi_i(a_i) + a_i m_i, each term of which is at least 0,

    P(w) - D(a) = F + 1/2 ||g||^2.

F is about C n h^2 times the density of rows at the corner, so h need not be less than about the root of the tolerance.

Two reads make a step: one at a point (g, the d x d sum, P and D), and one along the step, for the slope of P at lengths
2, 1, 1/2 ... at once, between which a cubic finds the length. Where the step before had the length 1, the next point is
taken without that read, and the slope there says whether that was right. Only sums over rows are needed and nothing is
kept of a row, so a block that streams by does as well as one that stays. A row adds to every sum after the row before
it, so the bits do not depend on how rows come in blocks.

The Hessian is scaled to a unit diagonal before it is factored: the scale of a column changes nothing but rounding. Rows
of little curvature stay out of it; where steps of the length 1 then shrink too little, fewer do.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.compiled.exponentials import exp_below, log1p_within
from bigclf.compiled.jit import at, axpy, dot_ahead, entry, inlined, inner, kernel
from bigclf.compiled.lanes import LANES
from bigclf.compiled.tiles import (
    BLOCK,
    ROWS,
    WIDE,
    add_columns,
    add_panels_1,
    add_panels_2,
    add_panels_3,
    inner_eights,
    panels_of,
    put_columns,
    tile_numbers,
)
from bigclf.maths.block import Counts
from bigclf.maths.losses import LOSSES, Loss, at_least, dual_terms, is_smooth, nothing, of_squares
from bigclf.maths.mixing import totals
from bigclf.methods.common import COST, EPSILON
from bigclf.methods.method import SUM, Given, Step, steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import DTypeLike

    from bigclf.maths.block import Block
    from bigclf.methods.method import Numbers


POINT, LINE = 0.0, 1.0
LENGTHS = tuple(2.0 * 0.5**k for k in range(8))  # of steps that are tried in a read
N_LENGTHS = len(LENGTHS)
PANEL = ROWS * LANES
HELD = 16  # panels: of so few all sums stay beside the tile for a call, in the processor's second cache
BATCHES = 9  # numbers of each of ``ROWS`` rows that are worked on together
FULL = 0.3  # of a row's features: from there on its products are cheaper in a tile than one by one
FAR = 40.0  # in units of h: there a smoothed corner is straight to rounding
SHRINK = 3.0  # h falls so many times at once, at most
SMOOTHED = 0.3  # part of the decrement, or of the tolerated gap, that smoothing may have
ENOUGH = 0.5  # of the tolerated gap: that much due to smoothing is no reason to go on with it
SETTLED = 0.1  # of the tolerated gap, promised by a step
KEPT = 0.1  # of the decrement, about what a good step leaves
OVERSHOT = 0.3  # of the slope at the start: a step that ends on a steeper rise was too long
STRAIGHT = 0.3  # ... below that in size it had about the right length
LEFT_OUT = 1e-3  # of the largest curvature of a loss: rows below stay out of the Hessian at first
TOO_LONG = 0.003  # a step that is to be shortened so much: likewise
SLOW = 0.2  # of the decrement left by a step of about the length 1: the Hessian lacks rows
QUADRATIC = 1e-2  # of the decrement left: the Hessian has hardly changed, and does for one more step
ROUNDING = 1e-15  # of P: smaller promises say nothing
ROUGH = 1e-12  # of P: so much may a bound be above it by rounding
PATIENCE = 6  # points in a row that gain nothing
HALVINGS = 12  # of h, for want of gain
MOST_LOOKS = 4  # along a step, after the first
UNEVEN = 0.3, 3.0  # times the mean rise of the slope: bends outside of that tell of corners between
FLAT = 0.3  # of the slope at the start: a lesser rise needs no closer look
BISECTIONS = 40
TINY = 1e-300  # h that smooths nothing
LARGEST = float(np.finfo(np.float64).max)
UNIT = 2e-16  # times the features: what is added to the scaled Hessian's diagonal where it has no factor
WARM = 0.1  # h where it begins with weights of another answer


class Shared(NamedTuple):
    """weights : [feature + 1], where a read is, or from where it looks along ``probe``; probe : [feature + 1], a step;
    float64: point, the last point that was taken; total, the sum of g's terms; side, of a free bias (else [0]) the part
    of it that pulls the bias up; hessian, [(feature + 1)^2], above the diagonal and on it the products of rows that are
    mostly full, below it those of others, whose part of the diagonal is in ``diagonal``; then, until the next such sum,
    the factor, and the scales in ``diagonal``; lengths, [8], falling, at which a read looks along the step; figures,
    scalars, see ``LOSS`` and ``KIND``."""

    weights: np.ndarray
    probe: np.ndarray
    point: np.ndarray
    total: np.ndarray
    diagonal: np.ndarray
    side: np.ndarray
    hessian: np.ndarray
    lengths: np.ndarray
    figures: np.ndarray
    scalars: np.ndarray


SUMS = ("total", "diagonal", "side", "hessian", "figures")


class Params(NamedTuple):
    """C : price of a unit of loss, times the row's weight; bias : value of the constant feature (1.0 or 0.0);
    epsilon : half the width of the tube; free : 1.0 where the bias is not regularised."""

    C: float
    bias: float
    epsilon: float
    free: float


# Places in ``figures``: the sum of losses; F; of the rows that pull the bias up, then of the others: the sums of a_i,
# C_i loss, a_i m_i, C_i ``odds`` of the loss, and their part of F; sums of C_i and C_i t^2; at each of ``LENGTHS`` the
# sums of losses' slopes and curvatures along the step.
LOSS, LACK, UP, DOWN, COSTS, SQUARES, SLOPES = 0, 1, 2, 7, 12, 13, 14
BENDS = SLOPES + N_LENGTHS
N_FIGURES = BENDS + N_LENGTHS
# Places in ``scalars``: what the next read is for; h (0: to be found from the labels); 1 where it makes the Hessian;
# share of the largest curvature below which rows are left out of that; the step's decrement -g.s; 1 where the point was
# not looked for along the step; the length before; decrement and h before; the least decrement at this h, points since
# then, and times that h has been halved for that; 1 where the next step is to be tried unseen; P and F at the point;
# reads that have looked along the step.
KIND, SMOOTH, FRESH, DROP, DECREMENT, TRIED, LENGTH, BEFORE, SMOOTH_BEFORE, LEAST, IDLE, HALVED = range(12)
UNSEEN, VALUE, LACKING, LOOKS = range(12, 16)
N_SCALARS = 16


def bind(settings: Numbers) -> Params:
    return Params(settings["C"], settings["bias"], settings.get("epsilon", 0.0), settings["free_bias"])


def begin(n_features: int, dtype: DTypeLike, settings: Numbers) -> Shared:
    """A state at w = 0."""
    n = n_features + 1
    weights, probe = (np.zeros(n, dtype) for _ in range(2))
    point, total, diagonal = (np.zeros(n) for _ in range(3))
    side, hessian = np.zeros(n if settings["free_bias"] else 0), np.zeros(n * n)
    sums = total, diagonal, side, hessian
    shared = Shared(weights, probe, point, *sums, np.array(LENGTHS), np.zeros(N_FIGURES), np.zeros(N_SCALARS))
    shared.scalars[[FRESH, DROP, LENGTH, UNSEEN]] = 1, LEFT_OUT, 1, 1
    shared.scalars[[BEFORE, LEAST]] = LARGEST
    shared.scalars[SMOOTH] = 0.0 if "epsilon" in settings else 1.0
    return shared


def room(n_features: int) -> int:
    """Numbers that a kernel wants for itself."""
    return BATCHES * ROWS + tile_numbers(n_features + 1) + held_numbers(n_features + 1)


def held_numbers(n: int) -> int:
    """Sums of all blocks that are kept beside a tile, but for the one that ``tile_numbers`` counts."""
    panels = panels_of(n)
    return LANES * LANES * panels * (panels + 1) // 2 if panels <= HELD else 0


# A loss, smoothed by h: (m, t, e, h) -> (loss, a, q, gap), all of them of a unit of C: the loss itself, minus the
# slope and the curvature of the smoothed one, and loss - phi(a) + a m >= 0


@inlined
def sigma(u):  # type: ignore[no-untyped-def]
    """(1 / (1 + e^-u), 1 / (1 + e^u)), the lesser one without cancellation."""
    size = abs(u)
    e = 0.0 if size > FAR else exp_below(-size)
    most = 1.0 / (1.0 + e)
    least = e * most
    return (most, least) if u >= 0 else (least, most)


@inlined
def logistic(m, t, e, h):  # type: ignore[no-untyped-def]
    """a = sigma(-m); one exponential and one division for all."""
    x = exp_below(-abs(m))
    most = 1.0 / (1.0 + x)
    least = x * most
    return max(0.0, -m) + log1p_within(x), least if m >= 0 else most, most * least, 0.0


@inlined
def soft_hinge(m, t, e, h):  # type: ignore[no-untyped-def]
    """a = sigma((1 - m) / h)"""
    r = 1.0 - m
    p, rest = sigma(r / h)
    return max(0.0, r), p, p * rest / h, r * rest if r > 0 else -r * p


@inlined
def soft_tube(m, t, e, h):  # type: ignore[no-untyped-def]
    """a = sigma((r - e) / h) - sigma((-r - e) / h),  r = t - m; of -r it is -a."""
    r = abs(t - m)
    p, rest = sigma((r - e) / h)
    other, most = sigma((-r - e) / h)
    a, over = p - other, r - e
    gap = over * (rest + other) if over > 0 else -over * a
    return max(0.0, over), a if t > m else -a, (p * rest + other * most) / h, gap


def terms_of(loss: Loss):  # type: ignore[no-untyped-def]
    """The function of a loss as above."""
    if not is_smooth(loss):
        return soft_tube if loss.tube else soft_hinge
    if loss.name == "logistic":
        return logistic
    value, slope, curvature = loss.value, loss.slope, loss.curvature

    @inlined
    def smooth(m, t, e, h):  # type: ignore[no-untyped-def]
        return value(m, t, e), -slope(m, t, e), curvature(m, t, e), 0.0

    return smooth


# Sums over rows


@inlined
def is_full(block, i, n):  # type: ignore[no-untyped-def]
    """Whether the row has an entry of each feature: then they lie in their order."""
    return block.values.size > 0 and at(block.indptr, i + 1) - at(block.indptr, i) == n - 1


@inlined
def product(block, order, k, weights, bias):  # type: ignore[no-untyped-def]
    """w . x of the row order[k], the bias with it."""
    i, last = at(order, k), weights.size - 1
    if is_full(block, i, weights.size):
        first, eights = at(block.indptr, i), last - last % LANES
        total = inner_eights(block.values, first, weights, 0, eights)
        for j in range(eights, last):
            total += np.float64(at(block.values, first + j)) * weights[j]
    else:
        total = dot_ahead(block, order, k, weights)
    return total + bias * weights[last]


@kernel
def multiply(block, order, begin, count, weights, bias, into):  # type: ignore[no-untyped-def]
    """``product`` of ``count`` rows: a kernel of its own, since it takes long to compile and serves every loss."""
    for r in range(count):
        into[r] = product(block, order, begin + r, weights, bias)


@inlined
def add_row(a, block, i, total, bias):  # type: ignore[no-untyped-def]
    """total += a x_i"""
    last = total.size - 1
    if is_full(block, i, total.size):
        first = at(block.indptr, i)
        for j in range(last):
            total[j] += a * np.float64(block.values[first + j])
    else:
        axpy(a, block, i, total)
    total[last] += a * bias


@kernel
def add_batch(factors, block, order, begin, count, total, bias):  # type: ignore[no-untyped-def]
    """``add_row`` of some rows after each other; of full rows that lie side by side column by column: the same bits."""
    n, i = total.size, at(order, begin)
    side_by_side = True
    for r in range(count):
        side_by_side = side_by_side and at(order, begin + r) == i + r and is_full(block, i + r, n)
    if side_by_side:
        add_columns(total, block.values, at(block.indptr, i), n - 1, factors, count)
        for r in range(count):
            total[n - 1] += factors[r] * bias
    else:
        for r in range(count):
            if factors[r] != 0:
                add_row(factors[r], block, at(order, begin + r), total, bias)


@inlined
def put_row(block, i, scale, bias, n, tile, place):  # type: ignore[no-untyped-def]
    """scale x_i to a row of a tile, ``place`` that of its first number; what lies behind its columns stays."""
    first, end = at(block.indptr, i), at(block.indptr, i + 1)
    if end - first == n - 1 and block.values.size > 0:
        put_columns(tile, place, block.values, first, n - 1, scale)
    else:
        for j in range(n):
            tile[place + j // LANES * PANEL + j % LANES] = 0.0
        for p in range(first, end):
            column = np.int64(at(block.indices, p))
            tile[place + column // LANES * PANEL + column % LANES] = scale * entry(block, i, p)
    tile[place + (n - 1) // LANES * PANEL + (n - 1) % LANES] = scale * bias


@kernel
def add_tile(tile, start, rows, n, hessian):  # type: ignore[no-untyped-def]
    """Add the products of a tile's rows to the Hessian, above its diagonal and on it; where it has few panels, to the
    sums that ``move_sums`` takes and gives."""
    panels = (n + LANES - 1) // LANES
    sums = start + panels * PANEL
    for i in range(panels):
        j = i
        while j < panels:
            wide = min(WIDE, panels - j)
            if panels > HELD:
                take_block(hessian, n, LANES * i, LANES * j, wide, tile, sums)
            if wide == 3:
                add_panels_3(tile, start + i * PANEL, start + j * PANEL, rows, sums)
            elif wide == 2:
                add_panels_2(tile, start + i * PANEL, start + j * PANEL, rows, sums)
            else:
                add_panels_1(tile, start + i * PANEL, start + j * PANEL, rows, sums)
            if panels > HELD:
                give_block(hessian, n, LANES * i, LANES * j, wide, tile, sums)
            else:
                sums += LANES * LANES * wide
            j += wide


TAKE, GIVE = np.int64(0), np.int64(1)  # a bool of Python would be compiled for True and for False


@kernel
def move_sums(tile, start, n, hessian, way):  # type: ignore[no-untyped-def]
    """Where the Hessian has few panels: all its blocks to the room behind a tile, for all tiles of a call; and back."""
    panels = (n + LANES - 1) // LANES
    if panels > HELD:
        return
    sums = start + panels * PANEL
    for i in range(panels):
        j = i
        while j < panels:
            wide = min(WIDE, panels - j)
            if way == GIVE:
                give_block(hessian, n, LANES * i, LANES * j, wide, tile, sums)
            else:
                take_block(hessian, n, LANES * i, LANES * j, wide, tile, sums)
            sums += LANES * LANES * wide
            j += wide


@inlined
def take_block(hessian, n, i, j, wide, tile, sums):  # type: ignore[no-untyped-def]
    """The Hessian's rows i:i+8 and columns j:j+8 ``wide`` to ``sums``."""
    width = LANES * wide
    for a in range(min(LANES, n - i)):
        for b in range(min(width, n - j)):
            tile[sums + a * width + b] = hessian[(i + a) * n + j + b]


@inlined
def give_block(hessian, n, i, j, wide, tile, sums):  # type: ignore[no-untyped-def]
    """... and back; what lies below the diagonal is not for them."""
    width = LANES * wide
    for a in range(min(LANES, n - i)):
        for b in range(max(0, i + a - j), min(width, n - j)):
            hessian[(i + a) * n + j + b] = tile[sums + a * width + b]


@kernel
def add_pairs(block, i, q, bias, n, hessian, diagonal):  # type: ignore[no-untyped-def]
    """Add q x_i x_i' to the Hessian entry by entry: below its diagonal, and that to ``diagonal``."""
    first, end, last = at(block.indptr, i), at(block.indptr, i + 1), n - 1
    explicit = block.values.size > 0
    for k in range(first, end):
        e, j = q * entry(block, i, k), np.int64(at(block.indices, k))
        diagonal[j] += e * entry(block, i, k)
        if explicit:
            for p in range(first, k):
                hessian[j * n + np.int64(at(block.indices, p))] += e * np.float64(at(block.values, p))
        else:
            e *= entry(block, i, k)
            for p in range(first, k):
                hessian[j * n + np.int64(at(block.indices, p))] += e
        if bias != 0:
            hessian[last * n + j] += bias * q * entry(block, i, k)
    diagonal[last] += q * bias * bias


@inlined
def batch(scores, k):  # type: ignore[no-untyped-def]
    """The k-th number of each row of a batch."""
    return scores[k * ROWS : (k + 1) * ROWS]


@kernel
def begin_tile(tile, n):  # type: ignore[no-untyped-def]
    """Where in the array a tile begins, at a cache line; behind its columns there are zeros. -1: there is no room."""
    panels = (n + LANES - 1) // LANES
    held = LANES * LANES * panels * (panels + 1) // 2 if panels <= HELD else 0
    if tile.size < BATCHES * ROWS + panels * PANEL + BLOCK + held + LANES:
        return -1
    start = BATCHES * ROWS + (-tile.ctypes.data % 64) // 8
    for r in range(ROWS):
        for j in range(n, panels * LANES):
            tile[start + j // LANES * PANEL + r * LANES + j % LANES] = 0.0
    for k in range(BLOCK):
        tile[start + panels * PANEL + k] = 0.0
    return start


@functools.cache
def batch_of(loss: Loss):  # type: ignore[no-untyped-def]
    """The terms of a batch of rows. Pasted in, not called: 500,000 x 28 rows with the hinge take a tenth longer where
    this is a kernel of its own."""
    terms = terms_of(loss)

    @inlined
    def of_rows(m, t, e, h, value, a, q, gap):  # type: ignore[no-untyped-def]
        """``terms`` of a batch of rows: a loop that LLVM makes of vectors."""
        for r in range(ROWS):
            value[r], a[r], q[r], gap[r] = terms(m[r], t[r], e, h)

    return of_rows


@functools.cache
def slopes(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel of a read along a step."""
    of_rows, regression = batch_of(loss), loss.regression

    @kernel
    def along(block, order, shared, params, scores):  # type: ignore[no-untyped-def]
        weights, probe, figures, lengths = shared.weights, shared.probe, shared.figures, shared.lengths
        e, h, last = params.epsilon, shared.scalars[SMOOTH], order.size
        m, z, c, t = batch(scores, 0), batch(scores, 1), batch(scores, 2), batch(scores, 3)
        there, value, a = batch(scores, 4), batch(scores, 5), batch(scores, 6)
        q, gap = batch(scores, 7), batch(scores, 8)
        for begin in range(0, last, ROWS):
            rows = min(ROWS, last - begin)
            multiply(block, order, begin, rows, weights, params.bias, m)
            multiply(block, order, begin, rows, probe, params.bias, z)
            for r in range(rows):
                i = at(order, begin + r)
                t[r], c[r] = block.labels[i], params.C * block.weights[i]
                s = 1.0 if regression else t[r]
                m[r], z[r] = s * m[r], s * z[r]
            for place in range(N_LENGTHS):
                for r in range(ROWS):
                    there[r] = m[r] + lengths[place] * z[r]
                of_rows(there, t, e, h, value, a, q, gap)
                slope, bend = figures[SLOPES + place], figures[BENDS + place]
                for r in range(rows):
                    if z[r] != 0:
                        slope -= c[r] * a[r] * z[r]
                        bend += c[r] * q[r] * z[r] * z[r]
                figures[SLOPES + place], figures[BENDS + place] = slope, bend
        return Counts(order.size, 0, 0, 0.0, 0.0)

    return along


@functools.cache
def sums_at_point(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel of a read at a point."""
    of_rows, regression = batch_of(loss), loss.regression
    odds = nothing if loss.dual is None else loss.dual.odds
    soft = not is_smooth(loss)
    most = 0.25 if soft else loss.most_curved  # of the smoothed corner, in units of 1 / h

    @kernel
    def add(block, order, shared, params, scores):  # type: ignore[no-untyped-def]
        weights, total, side, figures = shared.weights, shared.total, shared.side, shared.figures
        n, e, h, fresh = total.size, params.epsilon, shared.scalars[SMOOTH], shared.scalars[FRESH] != 0
        looks = soft and h == 0
        h = TINY if looks else h
        least, fresh = shared.scalars[DROP] * most / (h if soft else 1.0), fresh and not looks
        start, filled, mistakes, before = np.int64(begin_tile(scores, n)), np.int64(0), 0, figures[LOSS]
        margins, labels, values = batch(scores, 0), batch(scores, 1), batch(scores, 2)
        slopes, bends, gaps = batch(scores, 3), batch(scores, 4), batch(scores, 5)
        pulls, ups = batch(scores, 6), batch(scores, 7)
        taken, size = False, order.size
        for begin in range(0, size, ROWS):
            count = min(ROWS, size - begin)
            multiply(block, order, begin, count, weights, params.bias, margins)
            for r in range(count):
                t = block.labels[at(order, begin + r)]
                margins[r], labels[r] = margins[r] if regression else t * margins[r], t
            of_rows(margins, labels, e, h, values, slopes, bends, gaps)
            for r in range(count):
                t, c, m = labels[r], params.C * block.weights[at(order, begin + r)], margins[r]
                value, gap, g = values[r], gaps[r], -c * slopes[r] * (1.0 if regression else t)
                mistakes += value > 0 if regression else m <= 0
                figures[LOSS] += c * value
                figures[LACK] += c * gap
                if looks:
                    figures[COSTS] += c
                    figures[SQUARES] += c * t * t
                if side.size > 0:
                    place = UP if g < 0 else DOWN
                    figures[place] += c * abs(slopes[r])
                    figures[place + 1] += c * value
                    figures[place + 2] += c * slopes[r] * m
                    figures[place + 3] += c * odds(m)
                    figures[place + 4] += c * gap
                pulls[r], ups[r] = g, min(g, 0.0)
            if side.size > 0:
                add_batch(ups, block, order, begin, count, side, params.bias)
            add_batch(pulls, block, order, begin, count, total, params.bias)
            for r in range(count if fresh else 0):
                i, q = at(order, begin + r), bends[r]
                if q > 0 and q >= least:
                    c = params.C * block.weights[i]
                    if start >= 0 and at(block.indptr, i + 1) - at(block.indptr, i) >= FULL * (n - 1):
                        if not taken:
                            move_sums(scores, start, n, shared.hessian, TAKE)
                            taken = True
                        put_row(block, i, math.sqrt(c * q), params.bias, n, scores, start + filled * LANES)
                        filled += 1
                        if filled == ROWS:
                            add_tile(scores, start, filled, n, shared.hessian)
                            filled = np.int64(0)
                    else:
                        add_pairs(block, i, c * q, params.bias, n, shared.hessian, shared.diagonal)
        if filled > 0:
            add_tile(scores, start, filled, n, shared.hessian)
        if taken:
            move_sums(scores, start, n, shared.hessian, GIVE)
        return Counts(order.size, mistakes, order.size, figures[LOSS] - before, 0.0)

    return add


def sums(loss: Loss):  # type: ignore[no-untyped-def]
    """A read: sums at a point, or along a step, each a kernel of its own."""
    add, along = sums_at_point(loss), slopes(loss)

    def update(
        block: Block, order: np.ndarray, shared: Shared, rows: object, params: Params, scores: np.ndarray
    ) -> Counts:
        counts: Counts = (along if shared.scalars[KIND] == LINE else add)(block, order, shared, params, scores)
        return counts

    return update


def kinds(shared: Shared) -> list[Shared]:
    """States that ask for a read along a step, and for one at a point."""
    scalars = shared.scalars.copy()
    scalars[KIND] = LINE
    return [shared._replace(scalars=scalars), shared]


def callees(loss: Loss, block: Block, shared: Shared, params: Params) -> list[Callable[[], object]]:
    """Calls of kernels that a read at a point calls, for one empty row; last the one that it needs first."""
    block, order = block._replace(indptr=np.zeros(2, np.int64)), np.zeros(1, np.int64)
    none, n, tile = np.int64(0), np.int64(shared.total.size), np.zeros(room(shared.total.size - 1))
    return [
        lambda: add_pairs(block, none, 0.0, params.bias, n, shared.hessian, shared.diagonal),
        lambda: add_tile(tile, none, none, n, shared.hessian),
        lambda: move_sums(tile, none, n, shared.hessian, TAKE),
        lambda: add_batch(tile, block, order, none, none, shared.total, params.bias),
        lambda: multiply(block, order, none, none, shared.weights, params.bias, tile),
    ]


# Between two reads


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """In float64, by no BLAS."""
    return float(inner(a, b))


def absorb(loss: Loss):  # type: ignore[no-untyped-def]
    """Function (shared, params, given) -> Step: from the sums of a read to the next one."""

    def step(shared: Shared, params: Params, given: Given) -> Step:
        read = measured if shared.scalars[KIND] == LINE else taken
        return read(loss, shared, params, given.tol)

    return step


def look(shared: Shared, params: Params) -> None:
    """h begins where the labels lie, seen from 0; the next read is at the same point."""
    costs, squares = shared.figures[COSTS], shared.figures[SQUARES]
    size = max(params.epsilon, math.sqrt(squares / costs) if costs > 0 else 0.0)
    warm = WARM if np.any(shared.weights) else 1.0
    shared.scalars[SMOOTH] = warm * size if 0 < size < math.inf else 1.0
    at_point(shared)


def regularised(w: np.ndarray, params: Params) -> np.ndarray:
    """The part of w in the penalty."""
    w = w.astype(np.float64)
    if params.free:
        w[-1] = 0.0
    return w


def taken(loss: Loss, shared: Shared, params: Params, tol: float) -> Step:
    """The sums at ``weights`` are known: certify, and take the point, or look for a shorter step; then the next one."""
    scalars = shared.scalars
    w = regularised(shared.weights, params)
    g, value, lack = w + shared.total, 0.5 * dot(w, w) + float(shared.figures[LOSS]), float(shared.figures[LACK])
    told = Step(value, bound(loss, shared, params, value, lack, g), shared.weights.copy())
    if not is_smooth(loss) and scalars[SMOOTH] == 0:
        look(shared, params)
        return told
    if scalars[TRIED] and not dot(g, shared.probe.astype(np.float64)) <= OVERSHOT * scalars[DECREMENT]:
        scalars[[UNSEEN, FRESH]] = 0, 1
        shared.weights[:] = shared.point
        seek(shared)
        return told if math.isfinite(value) else Step()
    if not (math.isfinite(value) and np.isfinite(g).all()):
        return told._replace(dual=0.0)
    shared.point[:], scalars[[VALUE, LACKING]] = shared.weights, (value, lack)
    if not is_smooth(loss) and lack <= 0 and not np.any(g):
        return told._replace(over="done")
    gap = value - max(0.0, told.dual or 0.0)
    return told._replace(over=turn(is_smooth(loss), shared, params, g, lack, gap, tol))


def bound(loss: Loss, shared: Shared, params: Params, value: float, lack: float, g: np.ndarray) -> float:
    """The dual objective of the a_i of this read. One whose own gap is above P tells nothing: D(0) = 0 is better, and
    where large numbers cancel it may be wrong."""
    if params.free:
        return balanced(loss, shared, value)
    gap = lack + 0.5 * dot(g, g)
    return value - gap if 0 <= gap < value else 0.0


def balanced(loss: Loss, shared: Shared, value: float) -> float:
    """... where the bias is free: sum_i s_i a_i = 0 is asked for, and the side that pulls harder is multiplied by r < 1
    (``newton.balanced``)."""
    sides = [[float(x) for x in shared.figures[place : place + 5]] for place in (UP, DOWN)]
    pulls = [side[0] for side in sides]
    if min(pulls) <= 0:
        return 0.0
    shares = [min(1.0, pulls[1] / pulls[0]), min(1.0, pulls[0] / pulls[1])]
    shrunk = of_squares if loss.dual is None else dual_terms(loss).shrunk
    dual = 0.0
    for (_, lost, along, odds, gap), r in zip(sides, shares, strict=True):
        least = at_least(lost - gap, along, 0.0, r)
        sharp = r < 1 and math.isfinite(odds)
        dual += max(least, shrunk(lost - gap, along, odds, r)) if sharp else least
    v = shares[0] * shared.side + shares[1] * (shared.total - shared.side)
    bound = dual - 0.5 * dot(v[:-1], v[:-1])
    sound = 0 < bound <= value * (1 + ROUGH) and dual <= 1e3 * value
    return min(bound, value) if sound else 0.0


def turn(smooth: bool, shared: Shared, params: Params, g: np.ndarray, lack: float, gap: float, tol: float) -> str:
    """The next step from a point, or less smoothing there; "stalled" where there is nothing to gain."""
    scalars, value = shared.scalars, float(shared.scalars[VALUE])
    if scalars[FRESH] and not factored(shared, params):
        return "stalled"
    s = solved(shared, g)
    shared.probe[:] = s
    decrement = -dot(g, shared.probe.astype(np.float64))
    same_h = scalars[SMOOTH] == scalars[SMOOTH_BEFORE] or smooth
    left = decrement / scalars[BEFORE] if same_h and 0 < scalars[BEFORE] < LARGEST else 1.0
    straight = abs(scalars[LENGTH] - 1) < 0.5
    if same_h and left > SLOW and straight and scalars[BEFORE] < QUADRATIC * value:
        take_in_more(scalars)
    if is_idle(shared, decrement, value, same_h) and scalars[IDLE] >= PATIENCE:
        scalars[HALVED] += 1
        if smooth or scalars[HALVED] > HALVINGS:
            return "stalled"
        scalars[SMOOTH] /= 2.0
        scalars[IDLE] = 0
    stale = not scalars[FRESH]
    scalars[[DECREMENT, BEFORE, SMOOTH_BEFORE]] = decrement, decrement, scalars[SMOOTH]
    if smooth and same_h and straight and left < QUADRATIC and not stale:
        scalars[FRESH] = 0  # the Hessian hardly changes any more
    elif left > QUADRATIC or not stale:
        scalars[FRESH] = 1
    if smooth and straight and not stale and gap < value and gap * left * left <= tol * value:
        scalars[FRESH] = 0  # the next point is likely to be the last one, as far as there is a bound to tell from
    enough = ENOUGH * tol * value
    if 0.5 * decrement <= max(SMOOTHED * lack, SETTLED * tol * value) and lack > enough:
        sharpen(shared, lack, tol)
        at_point(shared)
    elif scalars[UNSEEN] and same_h and not sharpens(scalars, tol):
        scalars[[TRIED, LENGTH]] = 1, 1
        shared.weights[:] = shared.point + shared.probe
        at_point(shared, tried=True)
    else:
        seek(shared)
    return ""


def take_in_more(scalars: np.ndarray) -> None:
    """Leave fewer rows out of the Hessian."""
    scalars[DROP] = 0.01 * scalars[DROP] if scalars[DROP] > 1e-9 else 0.0


def is_idle(shared: Shared, decrement: float, value: float, same_h: bool) -> bool:
    """Whether there is nothing more to gain at this h but rounding; counts such points."""
    scalars = shared.scalars
    least = scalars[LEAST] if same_h else LARGEST
    gains = decrement > ROUNDING * value and decrement <= 0.5 * least
    scalars[LEAST] = min(least, decrement) if decrement > 0 else least
    hopeless = not decrement > 1e-9 * value
    scalars[IDLE] = scalars[IDLE] + 1 if hopeless and not gains else 0
    return bool(scalars[IDLE] > 0)


def sharpens(scalars: np.ndarray, tol: float) -> bool:
    """Whether h is to fall with a good step from here."""
    lack = scalars[LACKING]
    return bool(KEPT * scalars[DECREMENT] <= SMOOTHED * lack and lack > ENOUGH * tol * scalars[VALUE])


def sharpen(shared: Shared, lack: float, tol: float) -> None:
    """h falls, to where F is ``SMOOTHED`` of the tolerated gap or not so far."""
    scalars = shared.scalars
    scalars[SMOOTH] *= max(1.0 / SHRINK, math.sqrt(SMOOTHED * tol * scalars[VALUE] / lack))


def seek(shared: Shared) -> None:
    """The next read looks along the step."""
    shared.scalars[[KIND, TRIED, LOOKS]] = LINE, 0, 0
    shared.lengths[:] = LENGTHS
    clear(shared)


def at_point(shared: Shared, tried: bool = False) -> None:
    """The next read is at a point."""
    shared.scalars[[KIND, TRIED]] = POINT, tried
    clear(shared)


def clear(shared: Shared) -> None:
    """Sums begin at 0; a factor that is to do once more stays."""
    for array in (shared.total, shared.side, shared.figures):
        array[:] = 0.0
    if shared.scalars[KIND] == POINT and shared.scalars[FRESH]:
        shared.hessian[:] = 0.0
        shared.diagonal[:] = 0.0


def forget(shared: Shared) -> bool:
    """A read has ended before its time: it is to be made anew."""
    clear(shared)
    return True


# Along a step


def measured(loss: Loss, shared: Shared, params: Params, tol: float) -> Step:
    """The slopes of P along the step are known: go to where it is about 0, or look more closely."""
    scalars = shared.scalars
    ends = bracket(shared, params)
    if ends is not None and is_rough(ends, float(scalars[DECREMENT])) and scalars[LOOKS] < MOST_LOOKS:
        scalars[LOOKS] += 1
        shared.lengths[:] = between(ends[0].length, ends[1].length)
        clear(shared)
        return Step()
    t = float(shared.lengths[0]) if ends is None else length_of(*ends)
    scalars[LENGTH] = t
    if t < TOO_LONG:
        take_in_more(scalars)
    scalars[[UNSEEN, FRESH]] = abs(t - 1) <= STRAIGHT, 1
    if not is_smooth(loss) and t >= 0.5 and sharpens(scalars, tol):
        sharpen(shared, float(scalars[LACKING]), tol)
    shared.weights[:] = shared.point + t * shared.probe.astype(np.float64)
    at_point(shared)
    return Step()


class End(NamedTuple):
    """A length of the step, and the slope of P and its bend there."""

    length: float
    slope: float
    bend: float


def bracket(shared: Shared, params: Params) -> tuple[End, End] | None:
    """The lengths between which the slope changes its sign; None: it falls on along all of them."""
    w, s = regularised(shared.point, params), regularised(shared.probe, params)
    square, decrement = dot(s, s), float(shared.scalars[DECREMENT])
    slopes = dot(w, s) + shared.lengths * square + shared.figures[SLOPES : SLOPES + N_LENGTHS]
    bends = square + shared.figures[BENDS : BENDS + N_LENGTHS]
    slopes[~np.isfinite(slopes)] = np.inf
    ends = [End(*map(float, end)) for end in zip(shared.lengths, slopes, bends, strict=True)]
    if slopes[0] <= 0:
        return None
    low = next((k for k, end in enumerate(ends) if end.slope < 0), N_LENGTHS)
    return (*ends, End(0.0, -decrement, decrement))[low], ends[low - 1]


def is_rough(ends: tuple[End, End], decrement: float) -> bool:
    """Whether the slope rises much between the ends, and not as it does at them."""
    low, high = ends
    rise, wide = high.slope - low.slope, high.length - low.length
    even = all(UNEVEN[0] * rise <= wide * end.bend <= UNEVEN[1] * rise for end in ends)
    return rise > FLAT * decrement and not even


def between(low: float, high: float) -> np.ndarray:
    """Lengths for a closer look: the ends and six between them; from 0 on halves of halves."""
    return high * 0.5 ** np.arange(N_LENGTHS) if low == 0 else np.linspace(high, low, N_LENGTHS)


def length_of(low: End, high: End) -> float:
    """Where the slope along a step is 0."""
    wide = high.length - low.length
    return low.length + wide * root(low.slope, high.slope, wide * low.bend, wide * high.bend)


def root(low: float, high: float, bend: float, other: float) -> float:
    """Where in [0, 1] a cubic is 0 that has these values and derivatives at its ends, low < 0 <= high; derivatives of
    more than three times its mean rise are cut, so that it only rises (Fritsch and Carlson 1980)."""
    if not math.isfinite(high):
        return 0.5
    most = 3.0 * (high - low)
    bend, other = min(bend, most), min(other, most) if math.isfinite(other) else most
    first, last = 0.0, 1.0
    for _ in range(BISECTIONS):
        x = 0.5 * (first + last)
        y = 1.0 - x
        value = (1 + 2 * x) * y * y * low + x * x * (3 - 2 * x) * high + x * y * (y * bend - x * other)
        first, last = (x, last) if value < 0 else (first, x)
    return 0.5 * (first + last)


# The Hessian


def factored(shared: Shared, params: Params) -> bool:
    """Scale the Hessian to a unit diagonal and factor it, in place; False where it is not finite."""
    h, n = shared.hessian, shared.diagonal.size
    if not assemble(h, shared.diagonal, params.free):
        return False
    more = 0.0
    while not factor(h, n, 1.0 + more):
        more = max(UNIT * n, 10.0 * more)
        if not more <= 1.0:
            return False
    return True


@kernel
def assemble(h, diagonal, free):  # type: ignore[no-untyped-def]
    """From sums of rows: above the diagonal the Hessian scaled to a unit diagonal; ``diagonal`` becomes the scales.
    False where a number is too large."""
    n = diagonal.size
    for j in range(n):
        x = diagonal[j] + h[j * n + j] + (0.0 if j == n - 1 and free != 0 else 1.0)
        if not x < np.inf:
            return False
        diagonal[j] = 1.0 / math.sqrt(x) if x > 0 else 1.0
    for i in range(n):
        for j in range(i + 1, n):
            h[i * n + j] = (h[i * n + j] + h[j * n + i]) * diagonal[i] * diagonal[j]
    return True


@kernel
def factor(h, n, one):  # type: ignore[no-untyped-def]
    """Cholesky's factor, below the diagonal and on it, of the matrix above it with ``one`` on its diagonal; False
    where it is not positive definite."""
    for i in range(n):
        for j in range(i):
            h[i * n + j] = (h[j * n + i] - inner_of(h, i * n, j * n, j)) / h[j * n + j]
        pivot = one - inner_of(h, i * n, i * n, i)
        if not pivot > 0:
            return False
        h[i * n + i] = math.sqrt(pivot)
    return True


@inlined
def inner_of(h, i, j, count):  # type: ignore[no-untyped-def]
    """The sum of h[i + k] h[j + k], k < count."""
    eights = count - count % LANES
    total = inner_eights(h, i, h, j, eights)
    for k in range(eights, count):
        total += h[i + k] * h[j + k]
    return total


@kernel
def substitute(h, scales, s):  # type: ignore[no-untyped-def]
    """s becomes the scaled solution of L L' s = s."""
    n = s.size
    for j in range(n):
        s[j] = (s[j] * scales[j] - inner_rows(h, j * n, s, j)) / h[j * n + j]
    for j in range(n - 1, -1, -1):
        s[j] /= h[j * n + j]
        for k in range(j):
            s[k] -= s[j] * h[j * n + k]
    for j in range(n):
        s[j] *= scales[j]


@inlined
def inner_rows(h, i, s, count):  # type: ignore[no-untyped-def]
    """The sum of h[i + k] s[k], k < count."""
    total = 0.0
    for k in range(count):
        total += h[i + k] * s[k]
    return total


def solved(shared: Shared, g: np.ndarray) -> np.ndarray:
    """The step -H^-1 g."""
    s = -g
    substitute(shared.hessian, shared.diagonal, s)
    return s


def place(shared: Shared, weights: np.ndarray, params: Params) -> None:
    """Begin at such weights: if they are an answer's, little smoothing is left to do."""
    shared.weights[:] = weights
    shared.point[:] = shared.weights
    if shared.scalars[SMOOTH] > 0 and np.any(shared.weights):
        shared.scalars[SMOOTH] = WARM


# Methods

METHODS = (
    steps(
        name="newton_dense",
        title="Newton's method with the whole Hessian for tables of few columns, every loss smoothed, certified",
        paper="Keerthi, DeCoste, JMLR 2005; Lee, Mangasarian, Computational Optimization and Applications 2001",
        formula="(I + C X' D X) s = -g by Cholesky's factor;  w <- w + t s;  h -> 0",
        params=(COST, EPSILON),
        losses=tuple(sorted(LOSSES, key=lambda name: name != "logistic")),
        penalties=("l2",),
        bias=("feature", "free", "none"),
        shared=begin,
        bind=bind,
        place=place,
        update=functools.cache(sums),
        kinds=kinds,
        absorb=functools.cache(absorb),
        aims=True,
        room=room,
        callees=callees,
        in_runs=True,
        sums=SUMS,
        forget=forget,
        reading=lambda shared: SUM,
        mixings={"sum": totals(*SUMS)},
        mixing="sums over all rows: the answer does not depend on the groups",
        weight_meaning="multiplies C",
        epochs=10_000,
        tol=1e-3,
        instead="the state has a number for each pair of features: algo='newton' or 'dcd' has none",
    ),
)
