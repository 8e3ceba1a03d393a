"""Blocks: CSR rows in memory, what a kernel is called on, and the checks no kernel repeats."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np

from bigclf.compiled.jit import AHEAD, inlined, kernel, move, prefetch

NO_SCALES = np.empty(0, np.float32)
PER_ROW = ("labels", "weights", "norms", "ids")
Entries = tuple[np.ndarray, np.ndarray]  # indices, values


class Block(NamedTuple):
    """m rows with nnz stored entries.

    Attributes
    ----------
    indptr : int64 [m+1]; row i holds entries indptr[i]:indptr[i+1]; indptr[0] need not be 0.
    indices : uint32 or uint64 [nnz]; strictly increasing in a row, less than the number of features.
    values : float32 [nnz], or float32 [0] when no row has two values that differ.
    labels : float64 [m]; from a stream the code of the class (0, 1, ... in the order of ``classes``) or the
        number to predict; inside a kernel the problem's target (-1, +1, or 0 for a row that takes no part).
    weights : float64 [m]; row weights, at least 0.
    norms : float64 [m]; squared Euclidean norms of the rows.
    ids : int64 [m]; the row's place in its group's per-row arrays.
    scales : float32 [m]; where there are no ``values``, the one value of each row; float32 [0] when that is always 1.
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    norms: np.ndarray
    ids: np.ndarray
    scales: np.ndarray = NO_SCALES

    @property
    def n_rows(self) -> int:
        return self.indptr.size - 1

    @property
    def nnz(self) -> int:
        return int(self.indptr[-1] - self.indptr[0])

    @property
    def n_bytes(self) -> int:
        return sum(array.nbytes for array in self)


class Counts(NamedTuple):
    """What a kernel says of one call.

    rows : rows visited; mistakes : of these, with y w.x <= 0 before the row was learned from (the progressive
    error's numerator); updates : rows that changed the state; loss : sum of the losses before each row's update;
    gap : for dual methods the sum of the rows' own duality gaps, each at the moment of its visit (0 otherwise).
    """

    rows: int
    mistakes: int
    updates: int
    loss: float
    gap: float


def concatenate(blocks: list[Block]) -> Block:
    """One block of the rows of several, in order."""
    if len(blocks) == 1:
        return blocks[0]
    lengths = np.concatenate([np.diff(block.indptr) for block in blocks])
    indptr = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=indptr[1:])
    entries = [slice(block.indptr[0], block.indptr[-1]) for block in blocks]
    values, scales = np.empty(0, np.float32), NO_SCALES
    if any(block.values.size for block in blocks):
        values = np.concatenate([explicit_values(block) for block in blocks])
    elif any(block.scales.size for block in blocks):
        scales = np.concatenate([explicit_scales(block) for block in blocks])
    return Block(
        indptr,
        np.concatenate([b.indices[e] for b, e in zip(blocks, entries, strict=True)]),
        values,
        **{name: np.concatenate([getattr(b, name) for b in blocks]) for name in PER_ROW},
        scales=scales,
    )


def explicit_values(block: Block) -> np.ndarray:
    """The values float32 [nnz] of a block's rows, written out where each row has one."""
    if block.values.size:
        return block.values[block.indptr[0] : block.indptr[-1]]
    return np.repeat(explicit_scales(block), np.diff(block.indptr))


def explicit_scales(block: Block) -> np.ndarray:
    """The one value of each row, float32 [m], of a block without ``values``."""
    return block.scales if block.scales.size else np.ones(block.n_rows, np.float32)


def written_out(block: Block) -> Block:
    """The block with ``indptr`` from 0 and ``values``, unless all are 1."""
    if block.scales.size == 0:
        return block
    entries = slice(block.indptr[0], block.indptr[-1])
    indptr, indices = block.indptr - block.indptr[0], block.indices[entries]
    return block._replace(indptr=indptr, indices=indices, values=explicit_values(block), scales=NO_SCALES)


def rows_of(block: Block, first: int, last: int) -> Block:
    """Rows first:last as views of the same memory."""
    per_row = {name: getattr(block, name)[first:last] for name in PER_ROW}
    scales = block.scales[first:last] if block.scales.size else block.scales
    return Block(block.indptr[first : last + 1], block.indices, block.values, **per_row, scales=scales)


def selected(block: Block, there: np.ndarray) -> Block:
    """The rows i with there[i] (bool [m]), copied."""
    lengths, first = np.diff(block.indptr), block.indptr[0]
    entries = np.repeat(there, lengths)
    indptr = np.concatenate([[0], np.cumsum(lengths[there])])
    indices, values = (a[first : first + entries.size][entries] if a.size else a for a in (block.indices, block.values))
    per_row = {name: getattr(block, name)[there] for name in PER_ROW}
    return Block(indptr, indices, values, **per_row, scales=block.scales[there] if block.scales.size else block.scales)


@kernel
def gather_rows(block, rows, into):  # type: ignore[no-untyped-def]
    """The rows ``rows`` of the block to the beginning of another one with room for them, whose indptr begins with 0."""
    explicit, constant = block.values.size > 0, block.scales.size > 0
    to = 0
    for k in range(rows.size):
        i = rows[k]
        first, length = block.indptr[i], block.indptr[i + 1] - block.indptr[i]
        if k + AHEAD < rows.size:
            begin = block.indptr[rows[k + AHEAD]]
            for p in range(begin, block.indptr[rows[k + AHEAD] + 1], 16):
                prefetch(block.indices, p)
                if explicit:
                    prefetch(block.values, p)
        move(into.indices, to, block.indices, first, length)
        if explicit:
            move(into.values, to, block.values, first, length)
        if constant:
            into.scales[k] = block.scales[i]
        into.labels[k], into.weights[k], into.norms[k], into.ids[k] = (
            block.labels[i],
            block.weights[i],
            block.norms[i],
            block.ids[i],
        )
        to += length
        into.indptr[k + 1] = to


def room_for_rows(block: Block, rows: int, entries: int) -> Block:
    """Memory for so many rows with so many entries, of the kind of the block's."""
    explicit, constant = block.values.size > 0, block.scales.size > 0
    return Block(
        np.zeros(rows + 1, np.int64),
        np.empty(entries, block.indices.dtype),
        np.empty(entries if explicit else 0, np.float32),
        np.empty(rows),
        np.empty(rows),
        np.empty(rows),
        np.empty(rows, np.int64),
        np.empty(rows if constant else 0, np.float32),
    )


def as_unsigned(indices: np.ndarray) -> np.ndarray:
    """The same memory read as unsigned: int32 as uint32, int64 as uint64 (a negative index becomes huge)."""
    return indices.view(np.uint64 if indices.dtype.itemsize == 8 else np.uint32)


OK, BAD_LENGTHS, BAD_ORDER, BAD_RANGE, BAD_VALUE, BAD_NORM = range(6)
FAULTS = {
    BAD_LENGTHS: ("indices", "the row lengths are not increasing or do not add up"),
    BAD_ORDER: ("indices", "an index is not greater than the one before it (unsorted or duplicate)"),
    BAD_RANGE: ("indices", "an index is negative or not less than the number of features ({n_features})"),
    BAD_VALUE: ("values", "a value is NaN or infinite"),
    BAD_NORM: ("values", "the squared norm of the row is not finite"),
}


def check_rows(
    indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, n_features: np.integer, norms: np.ndarray
) -> tuple[int, int]:
    """Fill ``norms`` with the squared norm of each row; return (OK, -1) or (fault, first row at fault).

    ``indices`` is unsigned and ``n_features`` of the same type. Kernels check no bounds, so no block reaches one
    without having passed here. What is wrong is looked for by a kernel of its own, compiled when a row is at fault:
    half of the time that both take to compile.
    """
    if fill_norms(indptr, indices, values, n_features, norms):
        return OK, -1
    return first_fault(indptr, indices, values, n_features)


@kernel
def fill_norms(indptr, indices, values, n_features, norms):  # type: ignore[no-untyped-def]
    """Fill ``norms``; False where a row is at fault, with norms up to there or of all rows."""
    binary = values.size == 0
    falls = np.int64(0)  # entries not greater than the one before, counted in one go: row by row it takes ten times
    for p in range(1, indices.size):  # as long; then without those that begin a row
        falls += np.int64(indices[p - 1] >= indices[p])
    for i in range(indptr.size - 1):
        first, last = indptr[i], indptr[i + 1]
        if first < 0 or last < first or last > indices.size:
            return False
        if first < last:
            if first > 0:
                falls -= np.int64(indices[first - 1] >= indices[first])
            if indices[last - 1] >= n_features:
                return False
        norm = np.float64(last - first)
        if not binary:
            norm = squared_norm(values, first, last)
        if not np.isfinite(norm):
            return False
        norms[i] = norm
    return falls == 0  # else in a row, or in what belongs to none


@kernel
def first_fault(indptr, indices, values, n_features):  # type: ignore[no-untyped-def]
    """(fault, row) of the first row that has one, (OK, -1) where none has."""
    binary = values.size == 0
    for i in range(indptr.size - 1):
        first, last = indptr[i], indptr[i + 1]
        if first < 0 or last < first or last > indices.size:
            return BAD_LENGTHS, i
        ascending = True
        for p in range(first + 1, last):
            ascending &= indices[p - 1] < indices[p]
        norm = np.float64(0) if binary else squared_norm(values, first, last)
        if not ascending or (last > first and indices[last - 1] >= n_features) or not np.isfinite(norm):
            return fault_of(indices[first:last], values[0:0] if binary else values[first:last], n_features), i
    return OK, -1


@inlined
def squared_norm(values, first, last):  # type: ignore[no-untyped-def]
    """Sum of squares in float64, by four sums that do not wait for each other: every fourth entry, then the rest."""
    a, b, c, d = np.float64(0), np.float64(0), np.float64(0), np.float64(0)
    p = first
    while p + 4 <= last:
        a += np.float64(values[p]) * np.float64(values[p])
        b += np.float64(values[p + 1]) * np.float64(values[p + 1])
        c += np.float64(values[p + 2]) * np.float64(values[p + 2])
        d += np.float64(values[p + 3]) * np.float64(values[p + 3])
        p += 4
    norm = (a + b) + (c + d)
    for k in range(p, last):
        norm += np.float64(values[k]) * np.float64(values[k])
    return norm


@kernel
def fault_of(indices, values, n_features):  # type: ignore[no-untyped-def]
    """What the first bad entry of a row has; no entry bad: its norm is."""
    for p in range(indices.size):
        if indices[p] >= n_features:
            return BAD_RANGE
        if p > 0 and indices[p - 1] >= indices[p]:
            return BAD_ORDER
        if values.size > 0 and not np.isfinite(values[p]):
            return BAD_VALUE
    return BAD_NORM


@kernel
def find_scales(indptr, values, scales):  # type: ignore[no-untyped-def]
    """Fill ``scales`` with the first value of each row (1 where there is none); False at a row that has another."""
    for i in range(scales.size):
        first, last = indptr[i], indptr[i + 1]
        scale = values[first] if first < last else np.float32(1)
        scales[i] = scale
        same = True
        for p in range(first, last):  # without a way out, so that eight are compared at a time
            same &= values[p] == scale
        if not same:
            return False
    return True


@kernel
def count_features(block, order, counts):  # type: ignore[no-untyped-def]
    """counts[j] += rows of ``order`` that have an entry at j; the bias, last, counts them all."""
    for i in order:
        for p in range(block.indptr[i], block.indptr[i + 1]):
            counts[block.indices[p]] += 1
    counts[counts.size - 1] += order.size


def one_value_a_row(indptr: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``values`` and ``scales`` of checked rows: the values left out where no row has two that differ.

    Ordinary data are known by their first rows, so that this costs nothing.
    """
    if values.size == 0:
        return values, NO_SCALES
    scales = np.empty(indptr.size - 1, np.float32)
    if not find_scales(writable(indptr), writable(values), scales):
        return values, NO_SCALES
    return values[:0], NO_SCALES if (scales == 1).all() else scales


def writable(array: np.ndarray) -> np.ndarray:
    """The same memory under the type every kernel is compiled for (numba tells read-only arrays apart).

    Kernels write neither indices nor values, so memory that others own stays as it is.
    """
    if array.flags.writeable or array.size == 0:
        return array if array.flags.writeable else np.empty(0, array.dtype)
    holder = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    holder.owner = array  # type: ignore[attr-defined]  # the memory lives as long as the view
    return np.frombuffer(holder, array.dtype)


def alike(block: Block) -> Block:
    """The block with every array of the one type that kernels are compiled for."""
    return Block(*(writable(np.ascontiguousarray(array)) for array in block))
