"""A state for very many classes: weights of touched places only, and the learners of all classes at once that need it.

Weights [feature + 1, class] of 100,000 classes and 2^20 features are 839 GB, almost all of it zeros: a row that is
learned from changes, at each of its features, the weights of two classes. Here every feature has a list of the classes
that it has a weight for. The scores of a row are sums over the lists of its features; all other classes have their bias
alone, of which the best is found by the maxima of ``SPAN`` classes at a time.

Lists lie in stretches of 2, 4, 8 ... slots of two arrays, one of classes and one of weights. A list that outgrows its
stretch moves to one twice as long, and the one it leaves is the next to be taken by another list. A kernel stops where
the arrays have too few slots for the next row; they grow in place (no copy is made) and it goes on with that row, so
that no bit depends on how often. What the plan allows they never exceed.

The numbers are those of the dense state to the bit: a class without a weight at a feature would add 0 there. Rows are
learned from by ``multiclass_perceptron`` (``max``) and ``multiclass_passive_aggressive`` (``one``): steps against all
classes at fault would touch every class.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import entry, inlined, kernel, prefetch, prefetch_ahead
from bigclf.errors import MemoryBudgetError
from bigclf.maths.block import Counts
from bigclf.maths.mixing import Rule, accumulate, interpolate
from bigclf.methods.many_classes.support_classes import reach
from bigclf.methods.method import TouchedForm, by_shares
from bigclf.units import format_bytes

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


SPAN = 256  # classes that share a maximum of their biases
MOST = 2**32 - 2  # slots, of which units are counted by int32
SIZES = 40  # lengths of stretches: 2, 4, ... 2^40
LEAST_GROWTH = 1 / 8  # of the slots there are


class Touched(NamedTuple):
    """weights [slot] and classes int32 [slot], of which unit u is slots 2u and 2u + 1, and unit 0 is nobody's;
    lists : int32 [feature, 2], the unit where a feature's list begins and its length; bias : [class];
    free : int32 [40], the first free stretch of 2, 4, 8 ... slots, whose first slot of ``classes`` has the next one;
    used : int64 [1], slots that are or have been in use. All zeros are a state of weights 0."""

    weights: np.ndarray
    classes: np.ndarray
    lists: np.ndarray
    bias: np.ndarray
    free: np.ndarray
    used: np.ndarray


class Room(NamedTuple):
    """outputs : float64 [class], 0 between two rows; marks : uint8 [class], whether a class has had a part of its
    score; heard : int32 [class], those that have; tops : float64 [class / SPAN], largest biases; wanted : int64 [1],
    slots that the next row may need; so_far : float64 [3], mistakes, updates and losses of a call so far."""

    outputs: np.ndarray
    marks: np.ndarray
    heard: np.ndarray
    tops: np.ndarray
    wanted: np.ndarray
    so_far: np.ndarray


class Params(NamedTuple):
    """slack, C : of the passive-aggressive learner (0, 1.0 of the perceptron); bias : value of the constant feature
    (1.0 or 0.0); places : most slots there may be."""

    slack: int
    C: float
    bias: float
    places: int
    room: Room


def bind(slack: int, settings: dict[str, Any]) -> Params:
    """``settings["places"]`` : most slots."""
    n = settings["n_classes"]
    room = Room(np.zeros(n), np.zeros(n, np.uint8), np.zeros(n, np.int32), np.zeros(-(-n // SPAN)),
                np.zeros(1, np.int64), np.zeros(3))  # fmt: skip
    return Params(slack, settings.get("C", 1.0), settings["bias"], settings["places"], room)


def zeros(n_features: int, dtype: DTypeLike, settings: dict[str, Any]) -> Touched:
    """Weights 0 of ``settings["n_classes"]`` classes."""
    lists, bias = np.zeros((n_features, 2), np.int32), np.zeros(settings["n_classes"], dtype)
    free, used = np.zeros(SIZES, np.int32), np.zeros(1, np.int64)
    return Touched(np.zeros(2, dtype), np.zeros(2, np.int32), lists, bias, free, used)


def slot_bytes(dtype: DTypeLike) -> int:
    """Of a slot, a class and a weight."""
    return 4 + np.dtype(dtype).itemsize


def fixed_bytes(n_features: int, n_classes: int, dtype: DTypeLike) -> int:
    """Of a state without slots."""
    return 8 * n_features + np.dtype(dtype).itemsize * n_classes + 8 * (SIZES + 3)


# Slots


def grow(state: Touched, wanted: int, most: int) -> None:
    """Make room for ``wanted`` more slots, in place; MemoryBudgetError where that would be more than ``most``."""
    slots = state.weights.size
    least = max(2, int(state.used[0])) + wanted
    if least > most:
        held = format_bytes(most * (state.weights.itemsize + state.classes.itemsize))
        raise MemoryBudgetError(
            f"the weights of touched features have used up their {most:,} places ({held}), which is what memory= left "
            f"for them: the next row needs {wanted:,} more; give more memory, or fewer features (--hash-bits)"
        )
    size = min(most, max(least, slots + int(slots * LEAST_GROWTH)))
    for array in (state.weights, state.classes):
        array.resize(size, refcheck=False)  # its memory is extended where it lies or moved by pages, not copied


@inlined
def stretch(count):  # type: ignore[no-untyped-def]
    """(slots, number of their size) of the stretch that a list of ``count`` > 0 classes has."""
    slots, size = np.int64(2), np.int64(0)
    while slots < count:
        slots *= 2
        size += 1
    return slots, size


@inlined
def extra(count, more):  # type: ignore[no-untyped-def]
    """Slots of the longer stretch that a list of ``count`` needs for ``more``, 0 where it needs none."""
    now = np.int64(0)
    if count > 0:
        now, _ = stretch(count)
    needed, _ = stretch(count + more)
    return needed if needed > now else np.int64(0)


@kernel
def taken(state, size):  # type: ignore[no-untyped-def]
    """The unit of a free stretch of 2 << size slots; there is room for one."""
    unit = np.int64(state.free[size])
    if unit != 0:
        state.free[size] = state.classes[2 * unit]
        return unit
    unit = max(np.int64(1), state.used[0] // 2)
    state.used[0] = 2 * unit + (np.int64(2) << size)
    return unit


@kernel
def appended(state, j, c):  # type: ignore[no-untyped-def]
    """The slot of class c, which the list of feature j has not, with weight 0; there is room for it."""
    unit, count = np.int64(state.lists[j, 0]), np.int64(state.lists[j, 1])
    slots, size = stretch(max(np.int64(1), count))
    if count == 0:
        unit = taken(state, size)
    elif count == slots:
        before, unit = unit, taken(state, size + 1)
        for n in range(count):
            state.classes[2 * unit + n] = state.classes[2 * before + n]
            state.weights[2 * unit + n] = state.weights[2 * before + n]
        state.classes[2 * before] = state.free[size]
        state.free[size] = before
    slot = 2 * unit + count
    state.lists[j, 0], state.lists[j, 1] = unit, count + 1
    state.classes[slot], state.weights[slot] = c, 0
    return slot


# Learning


@inlined
def prefetch_lists(block, order, k, state):  # type: ignore[no-untyped-def]
    """Ask for where the lists of the row two places on are, and for the beginnings of those of the next row."""
    if k + 2 < order.size:
        i = order[k + 2]
        for p in range(block.indptr[i], block.indptr[i + 1]):
            prefetch(state.lists, 2 * np.int64(block.indices[p]))
        i = order[k + 1]
        for p in range(block.indptr[i], block.indptr[i + 1]):
            slot = 2 * np.int64(state.lists[np.int64(block.indices[p]), 0])
            prefetch(state.classes, slot)
            prefetch(state.weights, slot)


@kernel
def find_tops(state, bias, tops):  # type: ignore[no-untyped-def]
    """tops[b] = max of b_c over the classes c of span b."""
    for b in range(tops.size):
        tops[b] = largest(state, bias, b)


@inlined
def largest(state, bias, b):  # type: ignore[no-untyped-def]
    top = -np.inf
    for c in range(b * SPAN, min(state.bias.size, (b + 1) * SPAN)):
        top = max(top, np.float64(state.bias[c]) * bias)
    return top


@inlined
def scores_of(block, i, state, bias, room):  # type: ignore[no-untyped-def]
    """outputs[c] = w_c.x + b_c for the classes c that some feature of the row touches: how many; they are ``heard``."""
    seen = 0
    for p in range(block.indptr[i], block.indptr[i + 1]):
        j, value = np.int64(block.indices[p]), entry(block, i, p)
        first = 2 * np.int64(state.lists[j, 0])
        for slot in range(first, first + np.int64(state.lists[j, 1])):
            c = state.classes[slot]
            room.outputs[c] += np.float64(state.weights[slot]) * value
            if room.marks[c] == 0:
                room.marks[c] = 1
                room.heard[seen] = c
                seen += 1
    if bias != 0:
        for n in range(seen):
            c = room.heard[n]
            room.outputs[c] += np.float64(state.bias[c]) * bias
    return seen


@inlined
def score_of(c, state, bias, room):  # type: ignore[no-untyped-def]
    return room.outputs[c] if room.marks[c] != 0 else np.float64(state.bias[c]) * bias


@kernel
def best_other(y, seen, state, bias, room):  # type: ignore[no-untyped-def]
    """(the best-scoring class but y, of several the smallest; its score). Of the classes that no feature of the row
    touches, only spans whose best could be it are looked at."""
    best = np.int64(0 if y != 0 else 1)
    score = score_of(best, state, bias, room)
    for n in range(seen):
        c = np.int64(room.heard[n])
        if c != y and (room.outputs[c] > score or (room.outputs[c] == score and c < best)):
            best, score = c, room.outputs[c]
    for b in range(room.tops.size):
        if room.tops[b] < score or (room.tops[b] == score and b * SPAN >= best):
            continue
        for k in range(b * SPAN, min(state.bias.size, (b + 1) * SPAN)):
            if room.marks[k] == 0 and k != y:
                value = np.float64(state.bias[k]) * bias
                if value > score or (value == score and k < best):
                    best, score = np.int64(k), value
    return best, score


@inlined
def forget(seen, room):  # type: ignore[no-untyped-def]
    """Outputs and marks are 0 again."""
    for n in range(seen):
        c = room.heard[n]
        room.outputs[c] = 0.0
        room.marks[c] = 0


@kernel
def slots_needed(block, i, state):  # type: ignore[no-untyped-def]
    """At most, by a step of row i that moves two classes."""
    needed = np.int64(0)
    for p in range(block.indptr[i], block.indptr[i + 1]):
        needed += extra(np.int64(state.lists[np.int64(block.indices[p]), 1]), 2)
    return needed


@kernel
def move(step, block, i, y, other, state):  # type: ignore[no-untyped-def]
    """w_y += step x_i, w_other -= step x_i; there is room for both."""
    for p in range(block.indptr[i], block.indptr[i + 1]):
        j, value = np.int64(block.indices[p]), entry(block, i, p)
        first, up, down = 2 * np.int64(state.lists[j, 0]), np.int64(-1), np.int64(-1)
        for slot in range(first, first + np.int64(state.lists[j, 1])):
            c = state.classes[slot]
            if c == y:
                up = np.int64(slot)
            elif c == other:
                down = np.int64(slot)
        if up >= 0 and down >= 0:
            state.weights[down] += value * -step
            state.weights[up] += value * step
            continue
        # a list that grows may move: one at a time, and the one that was found is looked for again by its place in it
        if down < 0:
            up -= first
            down = appended(state, j, other)
            up += 2 * np.int64(state.lists[j, 0]) if up >= 0 else 0
        state.weights[down] += value * -step
        if up < 0:
            up = appended(state, j, y)
        state.weights[up] += value * step


@inlined
def move_bias(c, step, state, bias, tops):  # type: ignore[no-untyped-def]
    """b_c += step, and the maximum of its span."""
    before = np.float64(state.bias[c]) * bias
    state.bias[c] += bias * step
    now, b = np.float64(state.bias[c]) * bias, c // SPAN
    if now >= tops[b]:
        tops[b] = now
    elif before == tops[b]:
        tops[b] = largest(state, bias, b)


def one_pass(margin: bool):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order``, as far as there are slots: of the perceptron, or of the learner
    with a margin."""

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        room, bias = params.room, params.bias
        mistakes, updates, loss = room.so_far[0], room.so_far[1], room.so_far[2]
        find_tops(shared, bias, room.tops)
        k = 0
        while k < order.size:
            prefetch_ahead(block, order, k)
            prefetch_lists(block, order, k, shared)
            i = order[k]
            y = np.int64(block.labels[i])
            seen = scores_of(block, i, shared, bias, room)
            own = score_of(y, shared, bias, room)
            other, theirs = best_other(y, seen, shared, bias, room)
            forget(seen, room)
            m, step = own - theirs, np.float64(0)
            lack = max(0.0, 1.0 - m if margin else -m)
            if margin:
                norm = block.norms[i] + bias * bias
                if lack > 0 and norm > 0:
                    step = max(0.0, reach(lack, 0.0, 1, norm, params.slack, params.C * block.weights[i])) / norm
            elif m <= 0:
                step = block.weights[i]
            if step > 0:
                needed = slots_needed(block, i, shared)
                if needed > 0 and max(np.int64(2), shared.used[0]) + needed > shared.weights.size:
                    room.wanted[0] = needed
                    break
                move(step, block, i, y, other, shared)
                if bias != 0:
                    move_bias(other, -step, shared, bias, room.tops)
                    move_bias(y, step, shared, bias, room.tops)
                updates += 1
            mistakes += theirs > own or (theirs == own and other < y)
            loss += lack
            k += 1
        room.so_far[0], room.so_far[1], room.so_far[2] = mistakes, updates, loss
        return k

    return update


def learner(margin: bool) -> Callable[..., Counts]:
    """One pass over the rows of ``order``, the state growing as it must."""
    kernel_of_a_pass = one_pass(margin)

    def update(block: object, order: Any, shared: Any, rows: Any, params: Any, scores: Any) -> Counts:
        room, done = params.room, 0
        room.so_far[:] = 0
        while True:
            done += kernel_of_a_pass(block, order[done:], shared, rows, params, scores)
            if done == order.size:
                mistakes, updates, loss = room.so_far.tolist()
                return Counts(done, int(mistakes), int(updates), loss, 0.0)
            grow(shared, int(room.wanted[0]), params.places)

    return update


@kernel
def count_wrong(block, members, state, params):  # type: ignore[no-untyped-def]
    """How many of the rows ``members`` have another label than the class that scores best, of several the smallest. A
    label below 0 is none of the classes."""
    room, bias, wrong = params.room, params.bias, 0
    find_tops(state, bias, room.tops)
    for k in range(members.size):
        i = members[k]
        y = np.int64(block.labels[i])
        if y < 0:
            wrong += 1
            continue
        seen = scores_of(block, i, state, bias, room)
        own = score_of(y, state, bias, room)
        other, theirs = best_other(y, seen, state, bias, room)
        forget(seen, room)
        wrong += theirs > own or (theirs == own and other < y)
    return wrong


# Mixing: the mean of ``bigclf.maths.mixing``, place by place


@kernel
def accumulate_touched(total, start, copy, share, j, marks):  # type: ignore[no-untyped-def]
    """total += share (copy - start) at the features from j on, as far as there are slots; returns the first that is
    left. ``marks`` : int64 [2, class], room."""
    while j < copy.lists.shape[0]:
        count = np.int64(copy.lists[j, 1])
        if count > 0:
            held = np.int64(total.lists[j, 1])
            room = extra(held, count)
            if room > 0 and max(np.int64(2), total.used[0]) + 2 * room > total.weights.size:
                return j
            first, begin = 2 * np.int64(copy.lists[j, 0]), 2 * np.int64(start.lists[j, 0])
            note_places(total, j, marks[0])
            note_places(start, j, marks[1])
            for slot in range(first, first + count):
                c = np.int64(copy.classes[slot])
                n, before = marks[1, c], np.float64(0)
                if n < start.lists[j, 1] and start.classes[begin + n] == c:
                    before = np.float64(start.weights[begin + n])
                change = share * (np.float64(copy.weights[slot]) - before)
                if change != 0:
                    n, into = marks[0, c], 2 * np.int64(total.lists[j, 0])
                    found = n < held and total.classes[into + n] == c
                    place = into + n if found else appended(total, j, c)
                    total.weights[place] += change
        j += 1
    return j


@inlined
def note_places(state, j, places):  # type: ignore[no-untyped-def]
    """places[c] = where class c stands in the list of feature j; others keep what they have."""
    first = 2 * np.int64(state.lists[j, 0])
    for n in range(state.lists[j, 1]):
        places[state.classes[first + n]] = n


@kernel
def interpolate_touched(start, total, t, out, j, places):  # type: ignore[no-untyped-def]
    """out = start + t total at the features from j on, as far as there are slots, of ``out`` that is ``start`` at
    first; where total is 0 start keeps its bits. ``places`` : int64 [class], room."""
    while j < total.lists.shape[0]:
        count = np.int64(total.lists[j, 1])
        if count > 0:
            held = np.int64(out.lists[j, 1])
            room = extra(held, count)
            if room > 0 and max(np.int64(2), out.used[0]) + 2 * room > out.weights.size:
                return j
            first = 2 * np.int64(total.lists[j, 0])
            note_places(out, j, places)
            for slot in range(first, first + count):
                if total.weights[slot] != 0:
                    c = np.int64(total.classes[slot])
                    n, into = places[c], 2 * np.int64(out.lists[j, 0])
                    found = n < held and out.classes[into + n] == c
                    place = into + n if found else appended(out, j, c)
                    out.weights[place] = np.float64(out.weights[place]) + t * np.float64(total.weights[slot])
        j += 1
    return j


def _whole(state: Touched, step: Callable[[int], int]) -> None:
    """``step`` from feature to feature, the state growing as it must."""
    j, more = step(0), 0
    while j < len(state.lists):
        more = max(2 * more, state.weights.size // 4, 1024)
        grow(state, more, 2**62)
        after = step(j)
        j, more = after, more if after == j else 0


def _add_mean(total: Any, start: Any, copy: Any, share: float) -> None:
    places = np.zeros((2, start.bias.size), np.int64)
    _whole(total, lambda j: accumulate_touched(total, start, copy, float(share), j, places))
    accumulate(total.bias, start.bias, copy.bias, float(share))


def _join_mean(total: Any, start: Any, shares: float) -> Any:
    scale = 1.0 / shares if shares > 0 else 0.0
    state = Touched(*(array.copy() for array in start))
    places = np.zeros(start.bias.size, np.int64)
    _whole(state, lambda j: interpolate_touched(start, total, scale, state, j, places))
    interpolate(start.bias, total.bias, scale, state.bias)
    return state


MEAN = Rule(_add_mean, _join_mean)


# To and from the matrix of a model


@kernel
def fill_columns(state, indptr, indices, data):  # type: ignore[no-untyped-def]
    """Columns [class, feature] of the weights; ``indptr`` is known."""
    for j in range(state.lists.shape[0]):
        first, into = 2 * np.int64(state.lists[j, 0]), np.int64(indptr[j])
        for n in range(state.lists[j, 1]):
            indices[into + n], data[into + n] = state.classes[first + n], state.weights[first + n]


@kernel
def fill_lists(state, indptr, indices, data):  # type: ignore[no-untyped-def]
    """The lists of an empty state, from columns [class, feature]; there is room for them."""
    for j in range(state.lists.shape[0]):
        count = np.int64(indptr[j + 1]) - np.int64(indptr[j])
        if count > 0:
            _, size = stretch(count)
            unit = taken(state, size)
            state.lists[j, 0], state.lists[j, 1] = unit, count
            for n in range(count):
                state.classes[2 * unit + n] = indices[indptr[j] + n]
                state.weights[2 * unit + n] = data[indptr[j] + n]


def coefficients(state: Touched) -> object:
    """The weights as a scipy CSC matrix [class, feature], classes ascending in each column."""
    import scipy.sparse

    lengths = state.lists[:, 1]
    total = int(lengths.sum(dtype=np.int64))
    indptr = np.zeros(lengths.size + 1, np.int32 if total < 2**31 else np.int64)
    np.cumsum(lengths, out=indptr[1:])
    indices, data = np.empty(total, indptr.dtype), np.empty(total, state.weights.dtype)
    fill_columns(state, indptr, indices, data)
    matrix = scipy.sparse.csc_matrix((data, indices, indptr), shape=(state.bias.size, lengths.size), copy=False)
    matrix.sort_indices()
    return matrix


def place(state: Touched, weights: tuple[object, np.ndarray], params: Params) -> None:
    """Begin with the weights of a model: a matrix [class, feature] and the biases [class]."""
    import scipy.sparse

    matrix, bias = scipy.sparse.csc_matrix(weights[0]), weights[1]
    lengths = np.diff(matrix.indptr).astype(np.int64)
    lengths = lengths[lengths > 0]
    slots = int((2 ** np.ceil(np.log2(np.maximum(lengths, 2)))).sum())
    if slots:
        grow(state, slots, params.places)
    fill_lists(state, matrix.indptr, matrix.indices, matrix.data)
    state.bias[:] = bias


# Methods


@functools.cache
def _kernel(margin: bool) -> Callable[..., object]:
    made: Callable[..., Any] = learner(margin)
    return made


def touched(slack: int, margin: bool, needs: Mapping[str, object]) -> TouchedForm:
    """The form of a method in a state of touched places; needs : settings without which it would touch every class."""
    return TouchedForm(
        shared=zeros,
        bind=functools.partial(bind, slack),
        update=lambda loss: _kernel(margin),
        mixings=by_shares(MEAN),
        place=place,
        needs=needs,
    )
