"""Sums over the entries of a row in eight lanes: what numba has no words for, written as LLVM's instructions.

A sum that adds one product after the other waits four cycles for each. Here entry k of a row goes to lane k mod 8 of a
vector of eight float64, whose weights are gathered at once; the lanes are then added as a tree,
((0+4)+(2+6))+((1+5)+(3+7)). The order of additions depends on the row's length only: not on where the row lies, nor on
the processor, which need not have such vectors. The last entries, fewer than eight, are left to the caller.
"""

from __future__ import annotations

import operator
from typing import Any

import llvmlite.ir as ir
import numba
import numpy as np
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.extending import intrinsic

LANES = 8
WORD, LONG, REAL, SINGLE = ir.IntType(32), ir.IntType(64), ir.DoubleType(), ir.FloatType()
REALS, LONGS = ir.VectorType(REAL, LANES), ir.VectorType(LONG, LANES)
INTERPRETED = bool(numba.config.DISABLE_JIT)  # type: ignore[attr-defined]
KINDS = {types.float32: SINGLE, types.float64: REAL, types.uint32: WORD, types.int32: WORD, types.uint64: LONG}


def _opened(context: Any, builder: Any, signature: Any, arguments: Any, k: int) -> Any:
    return cgutils.create_struct_proxy(signature.args[k])(context, builder, arguments[k])


def _splat(builder: Any, value: Any) -> Any:
    """A long in all lanes."""
    one = builder.insert_element(ir.Constant(LONGS, ir.Undefined), value, WORD(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(WORD, LANES), [0] * LANES))


def _vector(builder: Any, data: Any, kind: Any, first: Any) -> Any:
    """data[first : first + 8], aligned as numbers are."""
    where = builder.bitcast(builder.gep(data, [first]), ir.VectorType(kind, LANES).as_pointer())
    return builder.load(where, align=8 if kind in (LONG, REAL) else 4)


def _gather(builder: Any, data: Any, kind: Any, offsets: Any) -> Any:
    """The numbers that lie ``offsets`` (eight longs, bytes) behind ``data``; llvm.masked.gather with a full mask."""
    pointers, mask = ir.VectorType(ir.PointerType(), LANES), ir.VectorType(ir.IntType(1), LANES)
    where = builder.inttoptr(builder.add(_splat(builder, builder.ptrtoint(data, LONG)), offsets), pointers)
    numbers = ir.VectorType(kind, LANES)
    name = f"llvm.masked.gather.v{LANES}f{32 if kind is SINGLE else 64}.v{LANES}p0"
    form = ir.FunctionType(numbers, [pointers, WORD, mask, numbers])
    function = cgutils.get_or_insert_function(builder.module, form, name)
    align = WORD(4 if kind is SINGLE else 8)
    return builder.call(function, [where, align, ir.Constant(mask, [1] * LANES), ir.Constant(numbers, ir.Undefined)])


def _ask(builder: Any, data: Any, kind: Any, indices: Any, place: Any, stride: Any) -> None:
    """llvm.prefetch of what the eight entries from ``place`` on will need."""
    base = builder.bitcast(data, ir.IntType(8).as_pointer())
    form = ir.FunctionType(ir.VoidType(), [base.type, WORD, WORD, WORD])
    function = cgutils.get_or_insert_function(builder.module, form, "llvm.prefetch.p0")
    for k in range(LANES):
        j = builder.load(builder.gep(indices, [builder.add(place, LONG(k))]))
        offset = builder.mul(j if kind is LONG else builder.zext(j, LONG), stride)
        builder.call(function, [builder.gep(base, [offset]), WORD(0), WORD(3), WORD(1)])


def _tree(builder: Any, lanes: Any) -> Any:
    """((0+4)+(2+6))+((1+5)+(3+7))"""
    parts = [builder.extract_element(lanes, WORD(k)) for k in range(LANES)]
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [builder.fadd(parts[k], parts[k + half]) for k in range(half)]
    return parts[0]


def _wide(builder: Any, numbers: Any) -> Any:
    return numbers if numbers.type == REALS else builder.fpext(numbers, REALS)


def _plain(builder: Any, data: Any, kind: Any, offsets: Any) -> list[Any]:
    return [_gather(builder, data, kind, offsets)]


def _means_and_variances(builder: Any, data: Any, kind: Any, offsets: Any) -> list[Any]:
    """Two numbers side by side for each offset: two float32 are gathered as one number of eight bytes."""
    if kind is REAL:
        behind = builder.add(offsets, ir.Constant(LONGS, [8] * LANES))
        return [_gather(builder, data, REAL, offsets), _gather(builder, data, REAL, behind)]
    both = builder.bitcast(_gather(builder, data, REAL, offsets), ir.VectorType(SINGLE, 2 * LANES))
    picks = (ir.Constant(ir.VectorType(WORD, LANES), list(range(k, 2 * LANES, 2))) for k in (0, 1))
    return [builder.shuffle_vector(both, both, pick) for pick in picks]


def _sums(pairs: bool, explicit: bool, asking: bool) -> Any:
    """An intrinsic (weights, indices, values, first, end, ahead) -> the sums over the entries first:end, whose number
    is a multiple of eight: of w_j x_j, and for ``pairs`` [feature, 2] of s_j x_j^2 too; with x_j = 1 unless
    ``explicit``; ``asking`` for what the entries ``ahead`` places on will need, which must be there."""

    def sums(typing: Any, weights: Any, indices: Any, values: Any, first: Any, end: Any, ahead: Any) -> Any:
        wanted = 2 if pairs else 1
        if weights.ndim != wanted or weights.dtype not in KINDS or (pairs and weights.layout != "C"):
            raise TypingError(f"weights in lanes are float32 or float64 [feature{', 2' * pairs}], not {weights}")

        def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            w, ix, v = (_opened(context, builder, signature, arguments, k) for k in range(3))
            kind, whole = KINDS[weights.dtype], KINDS[indices.dtype]
            size = 4 if kind is SINGLE else 8
            stride = LONG(size * wanted) if weights.layout == "C" else builder.extract_value(w.strides, 0)
            totals = [cgutils.alloca_once_value(builder, ir.Constant(REALS, [0.0] * LANES)) for _ in range(wanted)]
            _, _, _, begin, stop, distance = arguments
            with cgutils.for_range_slice(builder, begin, stop, LONG(LANES)) as (p, _):
                if asking:
                    _ask(builder, w.data, whole, ix.data, builder.add(p, distance), stride)
                entries = _vector(builder, ix.data, whole, p)
                longs = entries if whole is LONG else builder.zext(entries, LONGS)
                offsets = builder.mul(longs, _splat(builder, stride))
                gathered = _means_and_variances if pairs else _plain
                parts = gathered(builder, w.data, kind, offsets)
                x = _wide(builder, _vector(builder, v.data, SINGLE, p)) if explicit else None
                for total, part in zip(totals, parts, strict=True):
                    wide = _wide(builder, part)
                    factor = x if total is totals[0] or x is None else builder.fmul(x, x)
                    product = wide if factor is None else builder.fmul(wide, factor)
                    builder.store(builder.fadd(builder.load(total), product), total)
            found = [_tree(builder, builder.load(total)) for total in totals]
            return context.make_tuple(builder, signature.return_type, found) if pairs else found[0]

        kind = types.UniTuple(types.float64, 2) if pairs else types.float64
        return kind(weights, indices, values, types.int64, types.int64, types.int64), build

    return intrinsic(sums)


@intrinsic
def _element(typing: Any, array: Any, index: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.gep(_opened(context, builder, signature, arguments, 0).data, [arguments[1]]))

    return array.dtype(array, types.int64), build


def _in_python(pairs: bool, explicit: bool) -> Any:
    """The same sums by numpy."""

    def sums(weights: Any, indices: Any, values: Any, first: int, end: int, ahead: int) -> Any:
        numbers = weights[indices[first:end]].astype(float)
        x = values[first:end].astype(float) if explicit else np.ones(end - first)
        if pairs:
            return _added(numbers[:, 0] * x), _added(numbers[:, 1] * (x * x))
        return _added(numbers * x)

    return sums


def _added(numbers: np.ndarray) -> Any:
    """The sum of float64, a multiple of eight of them, lane by lane and then as a tree."""
    lanes = np.zeros(LANES)
    for eight in numbers.reshape(-1, LANES):
        lanes = lanes + eight
    while lanes.size > 1:
        lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
    return lanes[0]


def _both(pairs: bool, explicit: bool) -> Any:
    """Sums without asking ahead and with it; for the interpreter there is nothing to ask."""
    if INTERPRETED:
        return _in_python(pairs, explicit), _in_python(pairs, explicit)
    return _sums(pairs, explicit, False), _sums(pairs, explicit, True)


dot_lanes, dot_lanes_asking = _both(pairs=False, explicit=True)
sum_lanes, sum_lanes_asking = _both(pairs=False, explicit=False)
moment_lanes, moment_lanes_asking = _both(pairs=True, explicit=True)
pair_lanes, pair_lanes_asking = _both(pairs=True, explicit=False)
element = operator.getitem if INTERPRETED else _element
