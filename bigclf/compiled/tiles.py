"""Products of rows that are mostly full, in tiles: what numba has no words for, written as LLVM's instructions.

A tile holds rows of float64, eight columns to a panel, a panel's eights row after row. ``add_panels`` adds to the
products of two panels' columns those of the rows of a tile, in the order of the rows: each sum is the one that the rows
give one after another, wherever a tile begins and ends. Multiplications and additions are rounded apart, so that the
bits are those of any processor.
"""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.ir as ir
import numpy as np
from numba.core import cgutils, types
from numba.core.base import BaseContext
from numba.core.typing import Context, Signature
from numba.extending import intrinsic

from bigclf.compiled.lanes import (
    INTERPRETED,
    KINDS,
    LANES,
    LONG,
    LONGS,
    REAL,
    REALS,
    SINGLE,
    WORD,
    Values,
    _opened,
    _splat,
    _tree,
    _vector,
    _wide,
)

ROWS = 64  # of a tile: two panels of them stay in the processor's first cache
WIDE = 3  # panels that are multiplied with one at a time: 24 vectors of sums, of 32 registers
BLOCK = LANES * LANES * WIDE  # sums of such a call
LANE_NUMBERS = ir.Constant(LONGS, list(range(LANES)))
ALIGNED = 8  # numbers that may be lost to begin at a cache line


def tile_numbers(columns: int) -> int:
    """float64 that ``tile``, its block of sums and its alignment take."""
    return ROWS * panels_of(columns) * LANES + BLOCK + ALIGNED


def panels_of(columns: int) -> int:
    return -(-columns // LANES)


def _add_panels(wide: int) -> Callable[..., None]:
    """An intrinsic (tile, i, j, rows, sums): adds to the sums [8, 8 ``wide``], which lie in the same array from
    ``sums`` on, the products tile[i + a] tile[j + b], a < 8 and b < 8 ``wide``, over the tile's first ``rows`` rows;
    i, j : where the panels begin, those of j following each other."""

    def adding(typing: Context, tile, i, j, rows, sums):  # type: ignore[no-untyped-def]
        def build(context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values) -> ir.Value:
            data = _opened(context, builder, signature, arguments, 0).data
            i, j, rows, sums = arguments[1:]
            places = [[builder.add(sums, LONG(LANES * (a * wide + v))) for v in range(wide)] for a in range(LANES)]
            kept = [[cgutils.alloca_once_value(builder, _vector(builder, data, REAL, place)) for place in row]
                    for row in places]  # fmt: skip
            with cgutils.for_range_slice(builder, LONG(0), builder.mul(rows, LONG(LANES)), LONG(LANES)) as (r, _):
                right = [_vector(builder, data, REAL, builder.add(builder.add(j, r), LONG(v * ROWS * LANES)))
                         for v in range(wide)]  # fmt: skip
                first = builder.add(i, r)
                for a in range(LANES):
                    left = _splat(builder, builder.load(builder.gep(data, [builder.add(first, LONG(a))])))
                    for v in range(wide):
                        product = builder.fmul(left, right[v])
                        builder.store(builder.fadd(builder.load(kept[a][v]), product), kept[a][v])
            for row, whole in zip(places, kept, strict=True):
                for place, vector in zip(row, whole, strict=True):
                    _store(builder, builder.load(vector), data, place)
            return context.get_dummy_value()

        return types.void(tile, *(types.int64,) * 4), build

    return intrinsic(adding)


def _store(builder: ir.IRBuilder, numbers: ir.Value, data: ir.Value, first: ir.Value) -> None:
    """Eight float64 to data[first : first + 8]."""
    where = builder.bitcast(builder.gep(data, [first]), REALS.as_pointer())
    builder.store(numbers, where, align=8)


def _add_panels_in_python(wide: int) -> Callable[..., None]:
    """The same by numpy."""

    def adding(tile: np.ndarray, i: int, j: int, rows: int, sums: int) -> None:
        block = tile[sums : sums + LANES * LANES * wide].reshape(LANES, LANES * wide)
        panels = [tile[j + v * ROWS * LANES :][: ROWS * LANES].reshape(ROWS, LANES) for v in range(wide)]
        left, right = tile[i : i + ROWS * LANES].reshape(ROWS, LANES), np.hstack(panels)
        for r in range(rows):
            block += left[r][:, None] * right[r]

    return adding


@intrinsic
def _put_columns(typing: Context, tile, place, values, first, columns, scale):  # type: ignore[no-untyped-def]
    """scale values[first : first + columns] to a row of a tile, eight to a panel; the last panel is filled with 0."""

    def build(context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values) -> ir.Value:
        into, data = (_opened(context, builder, signature, arguments, k).data for k in (0, 2))
        kind, place, first, columns = KINDS[signature.args[2].dtype], arguments[1], arguments[3], arguments[4]
        scale = _splat(builder, arguments[5])
        with cgutils.for_range_slice(builder, LONG(0), columns, LONG(LANES)) as (j, _):
            mask = builder.icmp_signed("<", LANE_NUMBERS, _splat(builder, builder.sub(columns, j)))
            x = _masked(builder, builder.gep(data, [builder.add(first, j)]), kind, mask)
            panel = builder.add(place, builder.mul(j, LONG(ROWS)))
            _store(builder, builder.fmul(scale, _wide(builder, x)), into, panel)
        return context.get_dummy_value()

    return types.void(tile, types.int64, values, types.int64, types.int64, types.float64), build


def _put_columns_in_python(
    tile: np.ndarray, place: int, values: np.ndarray, first: int, columns: int, scale: float
) -> None:
    for j in range(0, columns, LANES):
        x = np.zeros(LANES)
        x[: min(LANES, columns - j)] = values[first + j : first + min(columns, j + LANES)]
        tile[place + j * ROWS : place + j * ROWS + LANES] = scale * x


@intrinsic
def _add_columns(typing: Context, total, values, first, columns, factors, rows):  # type: ignore[no-untyped-def]
    """total[j] += factors[r] values[first + r columns + j] for one row r after the other; of eight columns at a time,
    whose sums stay in a register meanwhile."""

    def build(context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values) -> ir.Value:
        sums, data, scales = (_opened(context, builder, signature, arguments, k).data for k in (0, 1, 4))
        kind, (first, columns, rows) = KINDS[signature.args[1].dtype], (*arguments[2:4], arguments[5])
        with cgutils.for_range_slice(builder, LONG(0), columns, LONG(LANES)) as (j, _):
            mask = builder.icmp_signed("<", LANE_NUMBERS, _splat(builder, builder.sub(columns, j)))
            where = builder.gep(sums, [j])
            kept = cgutils.alloca_once_value(builder, _masked(builder, where, REAL, mask))
            with cgutils.for_range(builder, rows) as row:
                place = builder.add(builder.add(first, builder.mul(row.index, columns)), j)
                x = _wide(builder, _masked(builder, builder.gep(data, [place]), kind, mask))
                scale = _splat(builder, builder.load(builder.gep(scales, [row.index])))
                builder.store(builder.fadd(builder.load(kept), builder.fmul(scale, x)), kept)
            form = ir.FunctionType(ir.VoidType(), [REALS, ir.PointerType(), WORD, mask.type])
            store = cgutils.get_or_insert_function(builder.module, form, f"llvm.masked.store.v{LANES}f64.p0")
            builder.call(store, [builder.load(kept), builder.bitcast(where, ir.PointerType()), WORD(8), mask])
        return context.get_dummy_value()

    return types.void(total, values, types.int64, types.int64, factors, types.int64), build


def _masked(builder: ir.IRBuilder, where: ir.Value, kind: ir.Type, mask: ir.Value) -> ir.Value:
    """Eight numbers from a place on, 0 where the mask is."""
    numbers, size = ir.VectorType(kind, LANES), 4 if kind is SINGLE else 8
    form = ir.FunctionType(numbers, [ir.PointerType(), WORD, mask.type, numbers])
    load = cgutils.get_or_insert_function(builder.module, form, f"llvm.masked.load.v{LANES}f{8 * size}.p0")
    rest = ir.Constant(numbers, [0.0] * LANES)
    return builder.call(load, [builder.bitcast(where, ir.PointerType()), WORD(size), mask, rest])


def _add_columns_in_python(
    total: np.ndarray, values: np.ndarray, first: int, columns: int, factors: np.ndarray, rows: int
) -> None:
    for r in range(rows):
        total[:columns] += factors[r] * values[first + r * columns :][:columns].astype(float)


@intrinsic
def _inner_eights(typing: Context, a, i, b, j, count):  # type: ignore[no-untyped-def]
    """The sum of a[i + k] b[j + k], k < count, a multiple of eight: entry k in lane k mod 8, then as a tree."""

    def build(context: BaseContext, builder: ir.IRBuilder, signature: Signature, arguments: Values) -> ir.Value:
        one, other = (_opened(context, builder, signature, arguments, k).data for k in (0, 2))
        kinds = [KINDS[signature.args[k].dtype] for k in (0, 2)]
        lanes = cgutils.alloca_once_value(builder, ir.Constant(REALS, [0.0] * LANES))
        with cgutils.for_range_slice(builder, LONG(0), arguments[4], LONG(LANES)) as (k, _):
            x = _wide(builder, _vector(builder, one, kinds[0], builder.add(arguments[1], k)))
            y = _wide(builder, _vector(builder, other, kinds[1], builder.add(arguments[3], k)))
            builder.store(builder.fadd(builder.load(lanes), builder.fmul(x, y)), lanes)
        return _tree(builder, builder.load(lanes))

    return types.float64(a, types.int64, b, types.int64, types.int64), build


def _inner_eights_in_python(a: np.ndarray, i: int, b: np.ndarray, j: int, count: int) -> float:
    lanes = np.zeros(LANES)
    for k in range(0, count, LANES):
        lanes = lanes + a[i + k : i + k + LANES].astype(float) * b[j + k : j + k + LANES].astype(float)
    while lanes.size > 1:
        lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
    return float(lanes[0])


add_panels_1, add_panels_2, add_panels_3 = (
    (_add_panels_in_python if INTERPRETED else _add_panels)(wide) for wide in range(1, WIDE + 1)
)
put_columns: Callable[..., None] = _put_columns_in_python if INTERPRETED else _put_columns
add_columns: Callable[..., None] = _add_columns_in_python if INTERPRETED else _add_columns
inner_eights: Callable[..., float] = _inner_eights_in_python if INTERPRETED else _inner_eights
