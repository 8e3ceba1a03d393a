"""Sums over the entries of a row in eight lanes: what numba has no words for, written as LLVM's instructions.

A sum that adds one product after the other waits four cycles for each. Here entry k of a row goes to lane k mod 8 of a
vector of eight float64, whose weights are gathered at once; the lanes are then added as a tree,
((0+4)+(2+6))+((1+5)+(3+7)). The order of additions depends on the row's length only: not on where the row lies, nor on
the processor, which need not have such vectors. The last entries, fewer than eight, are left to the caller.

Learners that keep a variance beside each mean sum both and then move both. The pairs that the sums have looked up are
kept in a small room until the row's move, which computes eight at a time and only stores.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeAlias

import llvmlite.ir as ir
import numba
import numpy as np
from numba.core import cgutils, types
from numba.core.base import BaseContext
from numba.core.errors import TypingError
from numba.core.typing import Context, Signature
from numba.extending import intrinsic

LANES = 8
ROOM = 1024  # entries of a row whose pairs are kept; a longer row's last ones are looked up again
BYTE, WORD, LONG, REAL, SINGLE = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.DoubleType(), ir.FloatType()
REALS, LONGS = ir.VectorType(REAL, LANES), ir.VectorType(LONG, LANES)
ONCE, SECOND, FIRST = 0, 2, 3  # llvm.prefetch's locality: used once; kept in all cache levels but the first; in all
INTERPRETED = bool(numba.config.DISABLE_JIT)  # type: ignore[attr-defined]
Values: TypeAlias = Sequence[ir.Value]
Build: TypeAlias = Callable[[BaseContext, ir.IRBuilder, Signature, Values], ir.Value]
Typed: TypeAlias = tuple[Signature, Build]  # what an intrinsic is by numba: its types, and what writes its instructions
KINDS = {types.float32: SINGLE, types.float64: REAL, types.uint32: WORD, types.int32: WORD, types.uint64: LONG}


def _opened(
    context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values, k: int
) -> cgutils._StructProxy:
    return cgutils.create_struct_proxy(signature.args[k])(context, builder, arguments[k])


def _splat(builder: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """A number in all lanes."""
    one = builder.insert_element(ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined), value, WORD(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(WORD, LANES), [0] * LANES))


def _vector(builder: ir.IRBuilder, data: ir.Value, kind: ir.Type, first: ir.Value) -> ir.Value:
    """data[first : first + 8], aligned as numbers are."""
    where = builder.bitcast(builder.gep(data, [first]), ir.VectorType(kind, LANES).as_pointer())
    return builder.load(where, align=8 if kind in (LONG, REAL) else 4)


def _gather(builder: ir.IRBuilder, data: ir.Value, kind: ir.Type, offsets: ir.Value) -> ir.Value:
    """The numbers that lie ``offsets`` (eight longs, bytes) behind ``data``; llvm.masked.gather with a full mask."""
    pointers, mask = ir.VectorType(ir.PointerType(), LANES), ir.VectorType(ir.IntType(1), LANES)
    where = builder.inttoptr(builder.add(_splat(builder, builder.ptrtoint(data, LONG)), offsets), pointers)
    numbers = ir.VectorType(kind, LANES)
    name = f"llvm.masked.gather.v{LANES}f{32 if kind is SINGLE else 64}.v{LANES}p0"
    form = ir.FunctionType(numbers, [pointers, WORD, mask, numbers])
    function = cgutils.get_or_insert_function(builder.module, form, name)
    align = WORD(4 if kind is SINGLE else 8)
    return builder.call(function, [where, align, ir.Constant(mask, [1] * LANES), ir.Constant(numbers, ir.Undefined)])


def _tree(builder: ir.IRBuilder, lanes: ir.Value) -> ir.Value:
    """((0+4)+(2+6))+((1+5)+(3+7))"""
    parts = [builder.extract_element(lanes, WORD(k)) for k in range(LANES)]
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [builder.fadd(parts[k], parts[k + half]) for k in range(half)]
    return parts[0]


def _wide(builder: ir.IRBuilder, numbers: ir.Value) -> ir.Value:
    return numbers if numbers.type == REALS else builder.fpext(numbers, REALS)


def _places(builder: ir.IRBuilder, indices: ir.Value, kind: ir.Type, place: ir.Value) -> list[ir.Value]:
    """The features, longs, of the eight entries from ``place`` on, one by one; two short ones are one load, the lower
    half first: loads are what a row has most of."""
    if kind is LONG:
        return [builder.load(builder.gep(indices, [builder.add(place, LONG(k))])) for k in range(LANES)]
    places = []
    for k in range(0, LANES, 2):
        where = builder.bitcast(builder.gep(indices, [builder.add(place, LONG(k))]), LONG.as_pointer())
        both = builder.load(where, align=4)
        low, high = builder.trunc(both, WORD), builder.lshr(both, LONG(32))
        places += [builder.zext(_as_it_is(builder, low), LONG), _as_it_is(builder, high)]
    return places


def _as_it_is(builder: ir.IRBuilder, number: ir.Value) -> ir.Value:
    """The number in a register: joined with what becomes of it, its cut would take LLVM twice the instructions."""
    return builder.asm(ir.FunctionType(number.type, [number.type]), "", "=r,0", [number], side_effect=False)


def _pairs(builder: ir.IRBuilder, data: ir.Value, kind: ir.Type, places: list[ir.Value]) -> list[ir.Value]:
    """Eight means and eight variances, which lie side by side; each pair is one load: gathers take longer."""
    pair = ir.VectorType(kind, 2)
    data = builder.bitcast(data, pair.as_pointer())
    parts = [builder.load(builder.gep(data, [place]), align=4 if kind is SINGLE else 8) for place in places]
    while len(parts) > 1:
        parts = [_joined(builder, *parts[k : k + 2]) for k in range(0, len(parts), 2)]
    return [builder.shuffle_vector(parts[0], parts[0], _picks(range(k, 2 * LANES, 2))) for k in (0, 1)]


def _joined(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    return builder.shuffle_vector(a, b, _picks(range(2 * a.type.count)))


def _picks(places: Sequence[int]) -> ir.Constant:
    return ir.Constant(ir.VectorType(WORD, len(places)), list(places))


def _store_pairs(
    builder: ir.IRBuilder, data: ir.Value, kind: ir.Type, places: list[ir.Value], both: list[ir.Value]
) -> None:
    """Eight means and variances, float64, to where they lie: a row has a feature once, so in any order."""
    means, variances = (part if kind is REAL else builder.fptrunc(part, ir.VectorType(kind, LANES)) for part in both)
    data = builder.bitcast(data, ir.VectorType(kind, 2).as_pointer())
    for k, place in enumerate(places):
        pair = builder.shuffle_vector(means, variances, _picks((k, k + LANES)))
        builder.store(pair, builder.gep(data, [place]), align=4 if kind is SINGLE else 8)


def _kept(builder: ir.IRBuilder, room: ir.Value, kind: ir.Type, entry: ir.Value) -> list[ir.Value]:
    """Pointers to eight means and eight variances of the entries from ``entry`` of the row on."""
    first = builder.gep(builder.bitcast(room, kind.as_pointer()), [builder.mul(entry, LONG(2))])
    vectors = builder.bitcast(first, ir.VectorType(kind, LANES).as_pointer())
    return [builder.gep(vectors, [LONG(k)]) for k in (0, 1)]


def _least(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    """min(a, b) as Python has it."""
    return builder.select(builder.fcmp_ordered("<", b, a), b, a)


def _most(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    """max(a, b) as Python has it."""
    return builder.select(builder.fcmp_ordered(">", b, a), b, a)


@intrinsic
def _room(typing: Context, weights: types.Array) -> Typed:
    """Memory of the kernel's own for the pairs of a row; what lies past ``ROOM`` entries goes to eight places more."""

    def build(context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values) -> ir.Value:
        room = cgutils.alloca_once(builder, ir.ArrayType(KINDS[weights.dtype], 2 * (ROOM + LANES)))
        room.align = 64
        return builder.bitcast(room, ir.IntType(8).as_pointer())

    return types.voidptr(weights), build


def _sums(explicit: bool) -> Callable[..., ir.Value]:
    """An intrinsic (weights, indices, values, first, end) -> the sum over the entries first:end, whose number is a
    multiple of eight, of w_j x_j, with x_j = 1 unless ``explicit``."""

    def sums(
        typing: Context,
        weights: types.Array,
        indices: types.Array,
        values: types.Array,
        first: types.Type,
        end: types.Type,
    ) -> Typed:
        def build(context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values) -> ir.Value:
            row = _Sum(context, builder, signature, arguments, explicit)
            with row.eights() as (p, _):
                row.add(p, row.entries.gathered(p))
            return row.total()

        _check_weights(weights)
        return types.float64(weights, indices, values, types.int64, types.int64), build

    return intrinsic(sums)


def _sums_ahead(explicit: bool) -> Callable[..., ir.Value]:
    """The same sum; with eight entries at a time it asks for the indices and values that lie ``far`` entries on, and
    where the weights are ``large`` for those of the eight entries ``near`` on, which must be there, as must eight more,
    for the entries that are left to the caller: short rows have no others.

    Large weights are then looked up one by one: what has been asked for need not be waited for together.
    """

    def sums(typing, weights, indices, values, first, end, near, far, large):  # type: ignore[no-untyped-def]
        def build(context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values) -> ir.Value:
            row = _Sum(context, builder, signature, arguments, explicit)
            entries, (near, far, large) = row.entries, arguments[5:]
            with builder.if_else(large) as (yes, no):
                with yes:
                    with row.eights() as (p, _):
                        entries.ask_entries(builder.add(p, far))
                        entries.ask_weights(builder.add(p, near))
                        row.add(p, entries.looked_up(p))
                    entries.ask_weights(builder.add(row.end, near))
                with no, row.eights() as (p, _):
                    entries.ask_entries(builder.add(p, far))
                    row.add(p, entries.gathered(p))
            entries.ask_end(row.first, row.end, far)
            return row.total()

        _check_weights(weights)
        return types.float64(weights, indices, values, *(types.int64,) * 4, types.boolean), build

    return intrinsic(sums)


def _steps(explicit: bool) -> Callable[..., ir.Value]:
    """An intrinsic (weights, indices, values, first, end, step): w_j <- w_j + step x_j for the entries first:end, a
    multiple of eight, x_j = 1 unless ``explicit``: to the bit what the same words in numba do."""

    def steps(
        typing: Context,
        weights: types.Array,
        indices: types.Array,
        values: types.Array,
        first: types.Type,
        end: types.Type,
        step: types.Type,
    ) -> Typed:
        def build(context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values) -> ir.Value:
            entries = _entries(context, builder, signature, arguments, explicit)
            begin, stop, number = arguments[3:]
            step = _splat(builder, number)
            with cgutils.for_range_slice(builder, begin, stop, LONG(LANES)) as (p, _):
                x = _wide(builder, _vector(builder, entries.values, SINGLE, p)) if explicit else None
                moved = builder.fmul(step, x) if explicit else step
                entries.put(p, builder.fadd(_wide(builder, entries.looked_up(p)), moved))
            return context.get_dummy_value()

        _check_weights(weights)
        return types.void(weights, indices, values, types.int64, types.int64, types.float64), build

    return intrinsic(steps)


def _check_weights(weights: types.Array) -> None:
    if weights.ndim != 1 or weights.dtype not in KINDS:
        raise TypingError(f"weights in lanes are float32 or float64 [feature], not {weights}")


class _Entries:
    """The instructions for eight entries of a row, of arrays (weights, indices, values): what they need looked up or
    asked for; ``stride`` bytes lie between the weights of two features."""

    def __init__(
        self, builder: ir.IRBuilder, arrays: Values, kind: ir.Type, whole: ir.Type, stride: ir.Value, explicit: bool
    ) -> None:
        self.builder, self.kind, self.whole, self.stride, self.explicit = builder, kind, whole, stride, explicit
        self.weights, self.indices, self.values = arrays

    def gathered(self, p: ir.Value) -> ir.Value:
        """The eight weights of the entries from p on, all at once."""
        builder = self.builder
        entries = _vector(builder, self.indices, self.whole, p)
        longs = entries if self.whole is LONG else builder.zext(entries, LONGS)
        return _gather(builder, self.weights, self.kind, builder.mul(longs, _splat(builder, self.stride)))

    def looked_up(self, p: ir.Value) -> ir.Value:
        """The same, one by one."""
        builder, numbers = self.builder, ir.Constant(ir.VectorType(self.kind, LANES), ir.Undefined)
        for k, where in enumerate(self._where(p)):
            number = builder.load(builder.bitcast(where, self.kind.as_pointer()), align=4 if self.kind is SINGLE else 8)
            numbers = builder.insert_element(numbers, number, WORD(k))
        return numbers

    def put(self, p: ir.Value, numbers: ir.Value) -> None:
        """Eight float64 to where those weights lie: a row has a feature once, so in any order."""
        builder, align = self.builder, 4 if self.kind is SINGLE else 8
        numbers = numbers if self.kind is REAL else builder.fptrunc(numbers, ir.VectorType(SINGLE, LANES))
        for k, where in enumerate(self._where(p)):
            number = builder.extract_element(numbers, WORD(k))
            builder.store(number, builder.bitcast(where, self.kind.as_pointer()), align=align)

    def ask_weights(self, p: ir.Value) -> None:
        for where in self._where(p):
            hint(self.builder, where, SECOND)

    def ask_entries(self, p: ir.Value) -> None:
        """For the indices and values from p on, which are used once and need not stay in any cache."""
        for data in (self.indices, self.values) if self.explicit else (self.indices,):
            hint(self.builder, self.builder.gep(data, [p]), ONCE)

    def ask_end(self, first: ir.Value, end: ir.Value, far: ir.Value) -> None:
        """... of the last entries, fewer than eight, where the row is so short that no others ask for their line."""
        builder = self.builder
        with builder.if_then(builder.icmp_signed("<", builder.sub(end, first), LONG(2 * LANES))):
            self.ask_entries(builder.add(end, far))

    def _where(self, p: ir.Value) -> list[ir.Value]:
        builder = self.builder
        start = builder.bitcast(self.weights, BYTE.as_pointer())
        places = _places(builder, self.indices, self.whole, p)
        return [builder.gep(start, [builder.mul(place, self.stride)]) for place in places]


def _entries(
    context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values, explicit: bool
) -> _Entries:
    """Of the arguments (weights, indices, values, ...)."""
    w, ix, v = (_opened(context, builder, signature, arguments, k) for k in range(3))
    weights, indices = signature.args[:2]
    stride = LONG(weights.dtype.bitwidth // 8) if weights.layout == "C" else builder.extract_value(w.strides, 0)
    kind, whole = KINDS[weights.dtype], KINDS[indices.dtype]
    return _Entries(builder, (w.data, ix.data, v.data), kind, whole, stride, explicit)


class _Sum:
    """The instructions for the sum of a row: arguments (weights, indices, values, first, end, ...)."""

    def __init__(
        self, context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values, explicit: bool
    ) -> None:
        self.entries = _entries(context, builder, signature, arguments, explicit)
        self.builder, (self.first, self.end) = builder, arguments[3:5]
        self.lanes = cgutils.alloca_once_value(builder, ir.Constant(REALS, [0.0] * LANES))

    def eights(self) -> AbstractContextManager[Values]:
        return cgutils.for_range_slice(self.builder, self.first, self.end, LONG(LANES))

    def add(self, p: ir.Value, numbers: ir.Value) -> None:
        """Each of eight weights times the value of its entry, to its lane."""
        builder, product = self.builder, _wide(self.builder, numbers)
        if self.entries.explicit:
            product = builder.fmul(product, _wide(builder, _vector(builder, self.entries.values, SINGLE, p)))
        builder.store(builder.fadd(builder.load(self.lanes), product), self.lanes)

    def total(self) -> ir.Value:
        return _tree(self.builder, self.builder.load(self.lanes))


def hint(builder: ir.IRBuilder, pointer: ir.Value, locality: int) -> None:
    """llvm.prefetch for reading of the cache line at ``pointer``, which need not exist."""
    form = ir.FunctionType(ir.VoidType(), [BYTE.as_pointer(), WORD, WORD, WORD])
    function = cgutils.get_or_insert_function(builder.module, form, "llvm.prefetch.p0")
    builder.call(function, [builder.bitcast(pointer, BYTE.as_pointer()), WORD(0), WORD(locality), WORD(1)])


def _moments(explicit: bool) -> Callable[..., ir.Value]:
    """The same as ``_sums_ahead`` of means and variances side by side, [feature, 2]: the sums of mu_j x_j and of
    s_j x_j^2, the pairs themselves kept in ``room``."""

    def sums(typing, pairs, indices, values, first, end, near, far, large, room):  # type: ignore[no-untyped-def]
        _check_pairs(pairs)

        def build(context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values) -> ir.Value:
            w, ix, v = (_opened(context, builder, signature, arguments, k) for k in range(3))
            kind, whole = KINDS[pairs.dtype], KINDS[indices.dtype]
            totals = [cgutils.alloca_once_value(builder, ir.Constant(REALS, [0.0] * LANES)) for _ in range(2)]
            begin, stop, near, far, large, kept = arguments[3:]
            ahead = _Entries(builder, (w.data, ix.data, v.data), kind, whole, LONG(pairs.dtype.bitwidth // 4), explicit)
            with cgutils.for_range_slice(builder, begin, stop, LONG(LANES)) as (p, _):
                ahead.ask_entries(builder.add(p, far))
                with builder.if_then(large):
                    ahead.ask_weights(builder.add(p, near))
                parts = _pairs(builder, w.data, kind, _places(builder, ix.data, whole, p))
                entry = builder.sub(p, begin)
                entry = builder.select(builder.icmp_signed("<", entry, LONG(ROOM)), entry, LONG(ROOM))
                x = _wide(builder, _vector(builder, v.data, SINGLE, p)) if explicit else None
                factors = [x, builder.fmul(x, x) if explicit else None]
                for total, part, factor, place in zip(
                    totals, parts, factors, _kept(builder, kept, kind, entry), strict=True
                ):
                    builder.store(part, place)
                    wide = _wide(builder, part)
                    product = builder.fmul(wide, factor) if explicit else wide
                    builder.store(builder.fadd(builder.load(total), product), total)
            ahead.ask_end(begin, stop, far)
            with builder.if_then(large):
                ahead.ask_weights(builder.add(stop, near))
            found = [_tree(builder, builder.load(total)) for total in totals]
            return context.make_tuple(builder, signature.return_type, found)

        kind = types.UniTuple(types.float64, 2)
        return kind(pairs, indices, values, *(types.int64,) * 4, types.boolean, types.voidptr), build

    return intrinsic(sums)


def _check_pairs(pairs: types.Array) -> None:
    if pairs.ndim != 2 or pairs.dtype not in (types.float32, types.float64) or pairs.layout != "C":
        raise TypingError(f"pairs in lanes are float32 or float64 [feature, 2], not {pairs}")


def _moves(explicit: bool) -> Callable[..., ir.Value]:
    """An intrinsic (pairs, indices, values, first, end, one, step, c, floor, room): for the entries first:end, a
    multiple of eight and at most ``ROOM``, whose pairs the sums have kept in ``room``,

        mu_j <- mu_j + step s_j x_j,    s_j <- s_j / (1 + c s_j x_j^2), not below min(s_j, floor),

    x_j = ``one`` unless ``explicit``: to the bit what the same words in numba do."""

    def moves(typing, pairs, indices, values, first, end, one, step, c, floor, room):  # type: ignore[no-untyped-def]
        _check_pairs(pairs)

        def build(context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values) -> ir.Value:
            w, ix, v = (_opened(context, builder, signature, arguments, k) for k in range(3))
            kind, whole = KINDS[pairs.dtype], KINDS[indices.dtype]
            begin, stop = arguments[3:5]
            constant, eta, price, lowest = (_splat(builder, number) for number in arguments[5:9])
            unit = ir.Constant(REALS, [1.0] * LANES)
            with cgutils.for_range_slice(builder, begin, stop, LONG(LANES)) as (p, _):
                kept = _kept(builder, arguments[9], kind, builder.sub(p, begin))
                mean, s = (_wide(builder, builder.load(place)) for place in kept)
                x = _wide(builder, _vector(builder, v.data, SINGLE, p)) if explicit else constant
                moved = builder.fadd(mean, builder.fmul(builder.fmul(eta, s), x))
                below = builder.fadd(unit, builder.fmul(builder.fmul(price, s), builder.fmul(x, x)))
                shrunk = _most(builder, builder.fdiv(s, below), _least(builder, s, lowest))
                _store_pairs(builder, w.data, kind, _places(builder, ix.data, whole, p), [moved, shrunk])
            return context.get_dummy_value()

        numbers = (types.int64,) * 2 + (types.float64,) * 4
        return types.void(pairs, indices, values, *numbers, types.voidptr), build

    return intrinsic(moves)


def _tiles(explicit: bool) -> Callable[..., None]:
    """An intrinsic (tile, indices, values, first, end, sums, row): sums[row, k] = sum of tile[j, k] x_j over the
    entries first:end in their order, for all eight k at once, with x_j = 1 unless ``explicit``; tile float64
    [feature, 8], sums float64 [row, 8]."""

    def tiles(typing, tile, indices, values, first, end, sums, row):  # type: ignore[no-untyped-def]
        for array in (tile, sums):
            if array.ndim != 2 or array.dtype != types.float64 or array.layout != "C":
                raise TypingError(f"tiles in lanes are float64 [feature, {LANES}] and [row, {LANES}], not {array}")

        def build(context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values) -> ir.Value:
            w, ix, v, out = (_opened(context, builder, signature, arguments, k) for k in (0, 1, 2, 5))
            lines, into = (builder.bitcast(array.data, REALS.as_pointer()) for array in (w, out))
            total = cgutils.alloca_once_value(builder, ir.Constant(REALS, [0.0] * LANES))
            with cgutils.for_range_slice(builder, arguments[3], arguments[4], LONG(1)) as (p, _):
                place = builder.load(builder.gep(ix.data, [p]))
                place = place if place.type is LONG else builder.zext(place, LONG)
                product = builder.load(builder.gep(lines, [place]), align=8)
                if explicit:
                    x = builder.fpext(builder.load(builder.gep(v.data, [p])), REAL)
                    product = builder.fmul(product, _splat(builder, x))
                builder.store(builder.fadd(builder.load(total), product), total)
            builder.store(builder.load(total), builder.gep(into, [arguments[6]]), align=8)
            return context.get_dummy_value()

        return types.void(tile, indices, values, types.int64, types.int64, sums, types.int64), build

    return intrinsic(tiles)


@intrinsic
def _element(typing: Context, array: types.Array, index: types.Type) -> Typed:
    def build(context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values) -> ir.Value:
        return builder.load(builder.gep(_opened(context, builder, signature, arguments, 0).data, [arguments[1]]))

    return array.dtype(array, types.int64), build


def _sums_in_python(explicit: bool) -> Callable[..., float]:
    """The same sums by numpy."""

    def sums(weights: np.ndarray, indices: np.ndarray, values: np.ndarray, first: int, end: int) -> float:
        numbers = weights[indices[first:end]].astype(float)
        return _added(numbers * values[first:end].astype(float) if explicit else numbers)

    return sums


def _sums_ahead_in_python(explicit: bool) -> Callable[..., float]:
    """The same sums by numpy: the interpreter asks for nothing."""
    plain = _sums_in_python(explicit)

    def sums(
        weights: np.ndarray,
        indices: np.ndarray,
        values: np.ndarray,
        first: int,
        end: int,
        near: int,
        far: int,
        large: bool,
    ) -> float:
        return plain(weights, indices, values, first, end)

    return sums


def _steps_in_python(explicit: bool) -> Callable[..., None]:
    """The same steps by numpy."""

    def steps(weights: np.ndarray, indices: np.ndarray, values: np.ndarray, first: int, end: int, step: float) -> None:
        j = indices[first:end]
        weights[j] = weights[j].astype(float) + (step * values[first:end].astype(float) if explicit else step)

    return steps


def _moments_in_python(explicit: bool) -> Callable[..., tuple[float, float]]:
    """The same sums by numpy; nothing is kept."""

    def sums(
        pairs: np.ndarray,
        indices: np.ndarray,
        values: np.ndarray,
        first: int,
        end: int,
        near: int,
        far: int,
        large: bool,
        room: None,
    ) -> tuple[float, float]:
        numbers = pairs[indices[first:end]].astype(float)
        x = values[first:end].astype(float) if explicit else np.ones(end - first)
        return _added(numbers[:, 0] * x), _added(numbers[:, 1] * (x * x))

    return sums


def _moves_in_python(explicit: bool) -> Callable[..., None]:
    """The same moves by numpy."""

    def moves(
        pairs: np.ndarray,
        indices: np.ndarray,
        values: np.ndarray,
        first: int,
        end: int,
        one: float,
        step: float,
        c: float,
        floor: float,
        room: None,
    ) -> None:
        j = indices[first:end]
        x = values[first:end].astype(float) if explicit else np.full(end - first, one)
        s = pairs[j, 1].astype(float)
        pairs[j, 0] = pairs[j, 0] + step * s * x
        pairs[j, 1] = np.maximum(s / (1.0 + c * s * (x * x)), np.minimum(s, floor))

    return moves


def _tiles_in_python(explicit: bool) -> Callable[..., None]:
    """The same sums by numpy."""

    def tiles(
        tile: np.ndarray, indices: np.ndarray, values: np.ndarray, first: int, end: int, sums: np.ndarray, row: int
    ) -> None:
        sums[row] = 0
        for p in range(first, end):
            sums[row] += tile[indices[p]] * (float(values[p]) if explicit else 1.0)

    return tiles


def _no_room(weights: np.ndarray) -> None:
    return None


def _added(numbers: np.ndarray) -> float:
    """The sum of float64, a multiple of eight of them, lane by lane and then as a tree."""
    lanes = np.zeros(LANES)
    for eight in numbers.reshape(-1, LANES):
        lanes = lanes + eight
    while lanes.size > 1:
        lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
    return lanes[0]


dot_lanes, sum_lanes = ((_sums_in_python if INTERPRETED else _sums)(explicit) for explicit in (True, False))
dot_lanes_ahead, sum_lanes_ahead = (
    (_sums_ahead_in_python if INTERPRETED else _sums_ahead)(explicit) for explicit in (True, False)
)
step_lanes, step_lanes_alike = ((_steps_in_python if INTERPRETED else _steps)(explicit) for explicit in (True, False))
moment_lanes, pair_lanes = ((_moments_in_python if INTERPRETED else _moments)(explicit) for explicit in (True, False))
tile_lanes, tile_lanes_alike = ((_tiles_in_python if INTERPRETED else _tiles)(explicit) for explicit in (True, False))
move_lanes, move_lanes_alike = ((_moves_in_python if INTERPRETED else _moves)(explicit) for explicit in (True, False))
room_for_pairs: Callable[..., object] = _no_room if INTERPRETED else _room
element = operator.getitem if INTERPRETED else _element
