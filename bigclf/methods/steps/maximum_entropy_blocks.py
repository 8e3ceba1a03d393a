"""Maximum entropy, maximum margin over blocks: the largest infinity-norm margin of more rows than memory holds.

The problem is MEMMA's (``maximum_entropy_margin``): with F(v) = eta ln sum_j exp(v_j / eta) and eta = epsilon X /
(c ln n),

    min_d F(sum_i d_i y_i x_i),   d >= 0,   sum_i d_i = 1 (free bias: 1/2 over each class),   p = softmax(v / eta)

A read keeps, of each class (without a free bias, of all rows), the rows on which p is worst: the least p.x of the
positives, the least -p.x of the negatives. Between two reads the problem is solved over these rows and those that have
d_i > 0 from before, by steps that move d from the row with the largest y p.x to the one with the least, the next
largest to the next least, and so on (pairwise steps: Lacoste-Julien and Jaggi, NIPS 2015): a step changes v at the
entries of two rows only. Where more rows have d_i > 0 than are kept, those with the least go together into one row of
their class, their weighted mean, so that v is never changed by what is let go of.

Each read also gives the least margin of all rows and the bias that suits p best, b = (max_- p.x - min_+ p.x) / 2, so
that

    margin(p, b)  <=  gamma*  <=  F(v)

is known of the p that was read with. The run ends when the two are within epsilon X: a clean read, in which no row
would make MEMMA learn; or within the relative tolerance asked for. The worst rows of several groups are the worst of
all: the order of rows and groups has a part in ties and in rounding only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import dot, dot_ahead, entry, inlined, kernel
from bigclf.maths.block import Block, Counts, as_unsigned
from bigclf.maths.mixing import Rule
from bigclf.methods.method import Param, Step, steps
from bigclf.methods.online.maximum_entropy_margin import MEMMA, Params, features, temperature
from bigclf.methods.online.winnow import largest_entry

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


CLOSER = 0.5  # between reads the rows at hand are solved to this share of epsilon
SWEEPS = 500  # over them, at most
SEARCHES = 40  # most steps of a search along a pair
FLAT = 1e-10  # slope of F, in units of X, at which a search ends
ENTRIES_A_ROW = 64  # there is room for; there always is for a row of every feature
SEEN, LEAST, MOST = 0, 1, 2  # of ``figures``: rows of a side, the least of their y p.x, their largest value
BOUND, LARGEST, MARGIN, BEGUN, MERGED = 0, 1, 2, 3, 4  # of ``numbers``; the last is the first of two


class Kept(NamedTuple):
    """Rows of either side (0: the negatives, or all where no bias is free; 1: the positives) with the least y p.x.

    values : float32, places : int64 [1, 2, entry], the rows one after another; starts : int64 [1, 2, row + 1];
    outputs : float64 [1, 2, row], y p.x, or where rows are kept between reads d; signs : float64 [1, 2, row], y;
    counts : int64 [1, 2], rows; bars : float64 [1, 2], outputs that are not below this are not worth keeping. The first
    axis keeps them from having the feature axis by chance."""

    values: np.ndarray
    places: np.ndarray
    starts: np.ndarray
    outputs: np.ndarray
    signs: np.ndarray
    counts: np.ndarray
    bars: np.ndarray


class Shared(NamedTuple):
    """weights : [feature + 1], p+ - p- and b of the largest margin so far; p : float64 [feature + 1], those of the next
    read; merged : float64 [feature + 1, 2], y x of the row of either side that stands for many; numbers : float64
    [1, 6], F, X, the largest margin so far, whether there is a p, d of the merged rows; figures : float64 [1, 2, 3];
    then the rows ``Kept`` in a read, and those from before (``old_``)."""

    weights: np.ndarray
    p: np.ndarray
    merged: np.ndarray
    numbers: np.ndarray
    figures: np.ndarray
    kept_values: np.ndarray
    kept_places: np.ndarray
    kept_starts: np.ndarray
    kept_outputs: np.ndarray
    kept_signs: np.ndarray
    kept_counts: np.ndarray
    kept_bars: np.ndarray
    old_values: np.ndarray
    old_places: np.ndarray
    old_starts: np.ndarray
    old_outputs: np.ndarray
    old_signs: np.ndarray
    old_counts: np.ndarray
    old_bars: np.ndarray


def kept_of(shared: object, which: str = "kept") -> Kept:
    return Kept(*(getattr(shared, f"{which}_{name}") for name in Kept._fields))


def nothing_kept(n_features: int, rows: int) -> Kept:
    room = max(ENTRIES_A_ROW * rows, n_features + 1)
    return Kept(
        np.zeros((1, 2, room), np.float32), np.zeros((1, 2, room), np.int64), np.zeros((1, 2, rows + 1), np.int64),
        np.zeros((1, 2, rows)), np.zeros((1, 2, rows)), np.zeros((1, 2), np.int64), np.full((1, 2), np.inf),
    )  # fmt: skip


def begin(n_features: int, dtype: DTypeLike, settings: dict[str, Any]) -> Shared:
    n, rows = n_features + 1, settings["buffer"]
    numbers = np.array([[0.0, 1.0, -np.inf, 0.0, 0.0, 0.0]])
    kept = (array for _ in range(2) for array in nothing_kept(n_features, rows))
    return Shared(np.zeros(n, dtype), np.zeros(n), np.zeros((n, 2)), numbers, np.zeros((1, 2, 3)), *kept)


@kernel
def let_go(kept, side, room, scratch):  # type: ignore[no-untyped-def]
    """Let go of the better half of the rows, and of more until ``room`` entries are free."""
    values, places, starts = kept.values[0, side], kept.places[0, side], kept.starts[0, side]
    outputs, signs = kept.outputs[0, side], kept.signs[0, side]
    n, least = kept.counts[0, side], outputs.size - outputs.size // 2
    while n > 0 and (n > least or values.size - starts[n] < room):
        half = n // 2
        for r in range(n):
            scratch[r] = outputs[r]
        bar = ranked(scratch, n, half)
        ties = half
        for r in range(n):
            ties -= outputs[r] < bar
        m, end = 0, np.int64(0)
        for r in range(n):
            tie = outputs[r] == bar
            if outputs[r] > bar or (tie and ties <= 0):
                continue
            ties -= tie
            for p in range(starts[r], starts[r + 1]):
                values[end], places[end] = values[p], places[p]
                end += 1
            outputs[m], signs[m] = outputs[r], signs[r]
            m += 1
            starts[m] = end
        n = m
        kept.bars[0, side] = min(kept.bars[0, side], bar)
    kept.counts[0, side] = n


@kernel
def ranked(a, n, rank):  # type: ignore[no-untyped-def]
    """The element of a[:n] that ``rank`` others are at most, by Hoare's selection; ``a`` is reordered."""
    low, high = 0, n - 1
    while low < high:
        pivot, i, j = a[(low + high) // 2], low, high
        while i <= j:
            while a[i] < pivot:
                i += 1
            while a[j] > pivot:
                j -= 1
            if i <= j:
                a[i], a[j] = a[j], a[i]
                i += 1
                j -= 1
        if rank <= j:
            high = j
        elif rank >= i:
            low = i
        else:
            break
    return a[rank]


@inlined
def keep(kept, side, block, i, output, sign, scratch):  # type: ignore[no-untyped-def]
    """Keep the row i, unless as many are worse."""
    length = block.indptr[i + 1] - block.indptr[i]
    n = kept.counts[0, side]
    if output < kept.bars[0, side]:
        if n == kept.outputs.shape[2] or kept.values.shape[2] - kept.starts[0, side, n] < length:
            let_go(kept, side, length, scratch)
            n = kept.counts[0, side]
        if output < kept.bars[0, side]:
            end = kept.starts[0, side, n]
            for p in range(block.indptr[i], block.indptr[i + 1]):
                kept.values[0, side, end] = entry(block, i, p)
                kept.places[0, side, end] = block.indices[p]
                end += 1
            kept.outputs[0, side, n], kept.signs[0, side, n] = output, sign
            kept.starts[0, side, n + 1] = end
            kept.counts[0, side] = n + 1


@kernel
def collect(block, order, shared, kept, params, scratch):  # type: ignore[no-untyped-def]
    """A read over the rows of ``order`` with one p."""
    p, figures, last = shared.p, shared.figures, shared.p.size - 1
    mistakes, loss = 0, np.float64(0)
    wanted = shared.numbers[0, BOUND] - params.epsilon * shared.numbers[0, LARGEST]
    for k in range(order.size):
        i = order[k]
        if block.norms[i] + params.bias + params.free == 0:
            continue
        y = block.labels[i]
        output = dot_ahead(block, order, k, p)
        m = y * (output + (params.bias + params.free) * p[last])
        mistakes += m <= 0
        loss += max(0.0, wanted - m)
        side, output = (1 if params.free > 0 and y > 0 else 0), (y * output if params.free > 0 else m)
        if figures[0, side, SEEN] == 0 or output < figures[0, side, LEAST]:
            figures[0, side, LEAST] = output
        figures[0, side, SEEN] += 1
        figures[0, side, MOST] = max(figures[0, side, MOST], largest_entry(block, i))
        keep(kept, side, block, i, output, y, scratch)
    return Counts(order.size, mistakes, 0, loss, 0.0)


def update(block: Block, order: np.ndarray, shared: Shared, rows: object, params: Params, scores: object) -> Counts:
    """The kernel of a read."""
    kept = kept_of(shared)
    counts: Counts = collect(block, order, shared, kept, params, np.empty(kept.outputs.shape[2]))
    return counts


@kernel
def gather(total, copy, scratch):  # type: ignore[no-untyped-def]
    """Keep the worst of what both have kept."""
    for side in range(2):
        total.bars[0, side] = min(total.bars[0, side], copy.bars[0, side])
        for r in range(copy.counts[0, side]):
            first, stop = copy.starts[0, side, r], copy.starts[0, side, r + 1]
            n = total.counts[0, side]
            if n == total.outputs.shape[2] or total.values.shape[2] - total.starts[0, side, n] < stop - first:
                let_go(total, side, stop - first, scratch)
                n = total.counts[0, side]
            if copy.outputs[0, side, r] <= total.bars[0, side]:
                end = total.starts[0, side, n]
                for p in range(first, stop):
                    total.values[0, side, end] = copy.values[0, side, p]
                    total.places[0, side, end] = copy.places[0, side, p]
                    end += 1
                total.outputs[0, side, n], total.signs[0, side, n] = copy.outputs[0, side, r], copy.signs[0, side, r]
                total.starts[0, side, n + 1] = end
                total.counts[0, side] = n + 1


@kernel
def join_figures(total, copy):  # type: ignore[no-untyped-def]
    for side in range(2):
        if copy[0, side, SEEN] > 0:
            if total[0, side, SEEN] == 0 or copy[0, side, LEAST] < total[0, side, LEAST]:
                total[0, side, LEAST] = copy[0, side, LEAST]
            total[0, side, SEEN] += copy[0, side, SEEN]
            total[0, side, MOST] = max(total[0, side, MOST], copy[0, side, MOST])


def _add(total: Any, start: object, copy: Any, share: float) -> None:
    kept = kept_of(total)
    if not total.figures[0, :, SEEN].any():  # made of zeros
        kept.bars[:] = np.inf
    gather(kept, kept_of(copy), np.empty(kept.outputs.shape[2]))
    join_figures(total.figures, copy.figures)


def _join(total: object, start: Any, shares: float) -> Any:
    state = type(start)(*(array.copy() for array in start))
    for name in (*(f"kept_{field}" for field in Kept._fields), "figures"):
        getattr(state, name)[...] = getattr(total, name)
    return state


# The worst rows that copies kept, of which there is room for as many as each had.
TOP = Rule(_add, _join)


def absorb(shared: Shared, params: Params) -> Step:
    """What the read says of the p it was made with; then the problem of the rows at hand."""
    figures, numbers = shared.figures[0], shared.numbers[0]
    sides = 2 if params.free > 0 else 1
    numbers[LARGEST] = max(numbers[LARGEST], figures[:, MOST].max())
    told = Step()
    if numbers[BEGUN] and figures[:sides, SEEN].all():
        told = _judged(shared, params)
    if told.over == "" and figures[:sides, SEEN].all():
        told = told._replace(facts=told.facts | {"sweeps": float(_solve(shared, params, sides))})
        numbers[BEGUN] = 1.0
    forget(shared)
    return told


def forget(shared: Shared) -> bool:
    """Of rows that have been read nothing is kept: all are to be read anew."""
    kept = kept_of(shared)
    kept.counts[:], kept.bars[:], shared.figures[:] = 0, np.inf, 0
    return True


def _judged(shared: Shared, params: Params) -> Step:
    """Bound and margin, and whether the run is over."""
    least, numbers = shared.figures[0, :, LEAST], shared.numbers[0]
    margin = 0.5 * float(least[0] + least[1]) if params.free > 0 else float(least[0])
    if margin > numbers[MARGIN]:
        numbers[MARGIN] = margin
        shared.weights[:] = shared.p
        if params.free > 0:  # the bias that suits both classes
            shared.weights[-1] = 0.5 * (least[0] - least[1])
    bound, best = float(numbers[BOUND]), float(numbers[MARGIN])
    clean = bound - best <= params.epsilon * numbers[LARGEST]
    return Step(bound, best, shared.weights.copy(), "done" if clean else "")


class Hand(NamedTuple):
    """The rows at hand, from both sides: block; duals : float64 [row], d; sides : int64 [row]; v, p, move : float64
    [feature + 1], the last zeros between two steps; touched : int64 [feature + 1]; merged : float64 [feature + 1, 2],
    masses : float64 [2], rows that stand for many and their d."""

    block: Block
    duals: np.ndarray
    sides: np.ndarray
    v: np.ndarray
    p: np.ndarray
    move: np.ndarray
    touched: np.ndarray
    merged: np.ndarray
    masses: np.ndarray


def _solve(shared: Shared, params: Params, sides: int) -> int:
    """min F over the rows at hand, to ``CLOSER`` epsilon; returns the number of sweeps."""
    hand, numbers = _hand(shared, params, sides), shared.numbers[0]
    size, outputs = hand.v.size, np.empty(hand.duals.size)
    eta = temperature(size, numbers[LARGEST], params)
    n, goal = features(size, params), CLOSER * params.epsilon * numbers[LARGEST]
    flat = FLAT * numbers[LARGEST]
    sum_up(hand, params)
    sweep = 0
    while sweep < SWEEPS:
        sweep += 1
        bound = look(hand, eta, params.mirror, n, outputs, params)
        least = [outputs[hand.sides == side].min() for side in range(sides)]
        if bound - sum(least) / sides <= goal:
            break
        for side in range(sides):
            mine = np.flatnonzero(hand.sides == side)
            worst = mine[np.argsort(outputs[mine], kind="stable")]
            if hand.masses[side] > 0:
                pair(hand, worst[0], -1 - side, bound / eta, eta, params, flat, n)
                bound = look(hand, eta, params.mirror, n, outputs, params)
            best = worst[::-1][hand.duals[worst[::-1]] > 0]
            pairs(hand, worst, best, outputs, bound / eta, eta, params, flat, n)
            bound = look(hand, eta, params.mirror, n, outputs, params)
    sum_up(hand, params)
    numbers[BOUND] = look(hand, eta, params.mirror, n, outputs, params)
    least = [outputs[hand.sides == side].min() for side in range(sides)]
    shared.p[:] = hand.p
    if params.free > 0:
        shared.p[-1] = 0.5 * (least[0] - least[1])
    numbers[MERGED : MERGED + 2] = hand.masses
    _retain(shared, hand, outputs, params)
    return sweep


def _hand(shared: Shared, params: Params, sides: int) -> Hand:
    """The rows of the read and those from before, each once."""
    parts = [(kept_of(shared, which), side) for which in ("old", "kept") for side in range(sides)]
    seen: set[bytes] = set()
    rows: list[tuple[np.ndarray, np.ndarray, float, float, int]] = []
    for number, (part, side) in enumerate(parts):
        for r in range(part.counts[0, side]):
            entries = slice(part.starts[0, side, r], part.starts[0, side, r + 1])
            places, values = part.places[0, side, entries], part.values[0, side, entries]
            key = places.tobytes() + values.tobytes() + bytes([int(part.signs[0, side, r] > 0)])
            if key not in seen:
                seen.add(key)
                dual = part.outputs[0, side, r] if number < sides else 0.0
                rows.append((places, values, part.signs[0, side, r], dual, side))
    lengths = np.array([row[0].size for row in rows])
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    m, size = len(rows), shared.p.size
    labels = np.array([row[2] for row in rows])
    places, values = (np.concatenate([row[part] for row in rows]) for part in (0, 1))
    block = Block(indptr, as_unsigned(places), values, labels, np.ones(m), np.ones(m), np.arange(m))
    duals, side_of = np.array([row[3] for row in rows]), np.array([row[4] for row in rows], np.int64)
    if not shared.numbers[0, BEGUN]:
        for side in range(sides):
            duals[side_of == side] = 1.0 / (sides * np.count_nonzero(side_of == side))
    scratch = (np.zeros(size) for _ in range(3))
    v, p, move = scratch
    masses = shared.numbers[0, MERGED : MERGED + 2].copy()
    return Hand(block, duals, side_of, v, p, move, np.zeros(size, np.int64), shared.merged, masses)


@kernel
def sum_up(hand, params):  # type: ignore[no-untyped-def]
    """v = sum_i d_i y_i x_i anew"""
    block, v = hand.block, hand.v
    for j in range(v.size):
        v[j] = hand.masses[0] * hand.merged[j, 0] + hand.masses[1] * hand.merged[j, 1]
    for i in range(hand.duals.size):
        if hand.duals[i] > 0:
            a = hand.duals[i] * block.labels[i]
            for q in range(block.indptr[i], block.indptr[i + 1]):
                v[block.indices[q]] += a * entry(block, i, q)
            v[v.size - 1] += a * params.bias


@kernel
def look(hand, eta, mirror, n, outputs, params):  # type: ignore[no-untyped-def]
    """p and y p.x of every row; F."""
    v, p, block, most, total = hand.v, hand.p, hand.block, -np.inf, np.float64(0)
    for j in range(n):
        most = max(most, abs(v[j]) if mirror > 0 else v[j])
    for j in range(n):
        up, down = math.exp((v[j] - most) / eta), 0.0
        if mirror > 0:
            down = math.exp((-v[j] - most) / eta)
        total += up + down
        p[j] = up - down
    for j in range(n):
        p[j] /= total
    for i in range(outputs.size):
        outputs[i] = block.labels[i] * (dot(block, i, p) + params.bias * p[p.size - 1])
    return most + eta * math.log(total)


@kernel
def pairs(hand, worst, best, outputs, log, eta, params, flat, n):  # type: ignore[no-untyped-def]
    """Move d from best[k] to worst[k] for as long as that is the way down."""
    for k in range(min(worst.size, best.size)):
        if outputs[worst[k]] >= outputs[best[k]]:
            break
        log = pair(hand, worst[k], best[k], log, eta, params, flat, n)


@inlined
def spread(hand, i, sign, count, params):  # type: ignore[no-untyped-def]
    """move += sign y x of the row; touched lists where it is not 0."""
    block, move, touched = hand.block, hand.move, hand.touched
    a = sign * block.labels[i]
    for q in range(block.indptr[i], block.indptr[i + 1]):
        j, x = np.int64(block.indices[q]), entry(block, i, q)
        if x == 0:  # else the next row would list the feature again
            continue
        if move[j] == 0:
            touched[count] = j
            count += 1
        move[j] += a * x
    if params.bias > 0:
        j = move.size - 1
        if move[j] == 0:
            touched[count] = j
            count += 1
        move[j] += a * params.bias
    return count


@kernel
def pair(hand, to, source, log, eta, params, flat, n):  # type: ignore[no-untyped-def]
    """Move d from a row (below 0: from the merged row of the side -1 - source) to another, to the least F on the way;
    returns F / eta there, given that at the start."""
    move, touched, v, mirror = hand.move, hand.touched, hand.v, params.mirror
    count = 0
    if source >= 0:
        longest = hand.duals[source]
        count = spread(hand, source, -1.0, count, params)
        count = spread(hand, to, 1.0, count, params)
    else:
        longest = hand.masses[-1 - source]
        for j in range(n):
            move[j] = -hand.merged[j, -1 - source]
            touched[j] = j
        block, a = hand.block, hand.block.labels[to]
        for q in range(block.indptr[to], block.indptr[to + 1]):
            move[block.indices[q]] += a * entry(block, to, q)
        if params.bias > 0:
            move[n - 1] += a * params.bias
        count = n
    rest = 1.0
    for k in range(count):
        t = v[touched[k]] / eta
        rest -= math.exp(t - log)
        if mirror > 0:
            rest -= math.exp(-t - log)
    rest = max(rest, 0.0)
    step, low, high, whole, total = longest, 0.0, longest, True, 1.0
    for _ in range(SEARCHES):
        total, first, second = rest, np.float64(0), np.float64(0)
        for k in range(count):
            j = touched[k]
            t, d = (v[j] + step * move[j]) / eta, move[j]
            up, down = math.exp(t - log), 0.0
            if mirror > 0:
                down = math.exp(-t - log)
            total += up + down
            first += (up - down) * d
            second += (up + down) * d * d
        slope = first / total
        if whole and slope <= 0:  # all the way is down
            break
        whole = False
        if abs(slope) <= flat:
            break
        if slope > 0:
            high = step
        else:
            low = step
        bend = (second / total - slope * slope) / eta
        following = step - slope / bend if bend > 0 else low
        if not low < following < high:
            following = 0.5 * (low + high)
        if following == step:
            break
        step = following
    for k in range(count):
        j = touched[k]
        v[j] += step * move[j]
        move[j] = 0.0
    hand.duals[to] += step
    if source >= 0:
        hand.duals[source] = 0.0 if whole else hand.duals[source] - step
    else:
        hand.masses[-1 - source] = 0.0 if whole else hand.masses[-1 - source] - step
    return log + math.log(total)


def _retain(shared: Shared, hand: Hand, outputs: np.ndarray, params: Params) -> None:
    """Rows with d > 0 stay, those with the largest where there is no room for all, which are merged then; beside them
    the worst."""
    old, block = kept_of(shared, "old"), hand.block
    room, capacity = old.values.shape[2], old.outputs.shape[2]
    old.counts[:] = 0
    for side in (0, 1):
        mine = np.flatnonzero(hand.sides == side)
        first = np.lexsort((outputs[mine], -hand.duals[mine]))
        end = n = 0
        left: list[int] = []
        for i in mine[first].tolist():
            entries = slice(block.indptr[i], block.indptr[i + 1])
            stop = end + entries.stop - entries.start
            if n == capacity or stop > room:
                left.append(i)
                continue
            old.values[0, side, end:stop], old.places[0, side, end:stop] = block.values[entries], block.indices[entries]
            old.outputs[0, side, n], old.signs[0, side, n] = hand.duals[i], block.labels[i]
            n, end = n + 1, stop
            old.starts[0, side, n] = end
        old.counts[0, side] = n
        _merge(shared, hand, side, [i for i in left if hand.duals[i] > 0], params)


def _merge(shared: Shared, hand: Hand, side: int, rows: list[int], params: Params) -> None:
    """The rows become part of the one that stands for many."""
    if not rows:
        return
    numbers, block = shared.numbers[0], hand.block
    before = float(numbers[MERGED + side])
    mass = before + float(sum(hand.duals[rows]))
    mean = shared.merged[:, side] * (before / mass)
    for i in rows:
        entries = slice(block.indptr[i], block.indptr[i + 1])
        share = hand.duals[i] / mass * block.labels[i]
        mean[block.indices[entries]] += share * block.values[entries]
        mean[-1] += share * params.bias
    shared.merged[:, side] = mean
    numbers[MERGED + side] = mass


def weights(shared: Shared, params: Params) -> np.ndarray:
    """p (of signed weights p+ - p-) and b [feature + 1] of the largest margin that was read; those of the rows at hand
    while no read has measured any."""
    unread = shared.numbers[0, MARGIN] == -np.inf and shared.numbers[0, BEGUN]
    return shared.p.astype(shared.weights.dtype) if unread else shared.weights


def told(shared: Shared, params: Params) -> dict[str, float]:
    """``margin`` : the largest so far, of all rows; ``margin_bound`` : F, below which every margin lies;
    ``largest_value`` : X."""
    names = {"margin": MARGIN, "margin_bound": BOUND, "largest_value": LARGEST}
    return {name: float(shared.numbers[0, place]) for name, place in names.items()}


# Methods

BUFFER = Param("buffer", 2000, 2, 10_000_000, "rows kept per side in each read, and between reads", integer=True)

METHODS = (
    steps(
        name="memma_blocks",
        title="MEMMA from the worst rows of each read: the infinity-norm margin out of core, certified",
        formula="v <- argmin F over the rows of least y p.x in reads;  p = softmax(v / eta);  margin <= F",
        shared=begin,
        update=lambda loss: update,
        weights=weights,
        absorb=lambda loss: absorb,
        forget=forget,
        **MEMMA
        | dict(
            told=told,
            params=(*MEMMA["params"], BUFFER),
            mixings={"top": TOP},
            mixing="the worst rows of all groups",
            epochs=1000,
            tol=0.0,
        ),
    ),
)
