"""Sparse weights that stay in their file, mapped: a model of very many labels need not fit in memory.

Their pages are the page cache's, which drops them when memory is short. What reads them goes over each column at most
once, in the order of the file.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bigclf.compiled.jit import entry, kernel
from bigclf.maths.block import Block, writable

if TYPE_CHECKING:
    import scipy.sparse

    Columns: TypeAlias = scipy.sparse.csc_matrix

MAPPED_BYTES = 64_000_000  # a model's file of sparse weights stays where it is from this size on
PIECE_ENTRIES = 1 << 20  # that are moved at a time where weights are joined
LARGEST_32 = 2**31 - 1


def is_mapped(array: object) -> bool:
    """Whether the array's memory is a mapped file."""
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


def score_mapped(block: Block, weights: Columns, bias: np.ndarray, scores: np.ndarray) -> None:
    """Decision values [m, K] of the rows of a ``block``: those of ``score_sparse_rows`` to the bit."""
    first, last = int(block.indptr[0]), int(block.indptr[-1])
    order = first + np.argsort(block.indices[first:last], kind="stable")
    rows = np.repeat(np.arange(block.n_rows), np.diff(block.indptr))
    c = weights
    arrays = writable(c.indptr), writable(c.indices), writable(c.data)
    score_sorted_entries(block, order, rows, *arrays, bias, scores)


@kernel
def score_sorted_entries(block, order, rows, indptr, indices, data, bias, scores):  # type: ignore[no-untyped-def]
    """scores[i, k] = w_k . x_i + b_k, for weights in columns [K, d] (CSC).

    order : positions of the block's entries by feature, those of one feature by row.   rows : the row of each entry.

    For one row and one class the products are added in the order of the features, as they are where rows are scored
    one by one: the sums have the same bits.
    """
    first = block.indptr[0]
    for i in range(block.indptr.size - 1):
        for k in range(bias.size):
            scores[i, k] = 0.0
    for p in order:
        i, j = rows[p - first], np.int64(block.indices[p])
        value = entry(block, i, p)
        for q in range(indptr[j], indptr[j + 1]):
            scores[i, indices[q]] += np.float64(data[q]) * value
    for i in range(block.indptr.size - 1):
        for k in range(bias.size):
            scores[i, k] += bias[k]


def joined_columns(parts: Sequence[Columns], room: Callable[[int, np.dtype], np.ndarray]) -> Columns:
    """The rows of all ``parts`` below one another, without holding them; each part is read once, in pieces.

    Parameters
    ----------
    parts : [K_i, d] each, the rows of a column ascending.
    room : makes the arrays of the answer, of so many numbers of a type.
    """
    import scipy.sparse

    counts = np.sum([np.diff(part.indptr) for part in parts], axis=0, dtype=np.int64)
    ends = np.concatenate([[0], np.cumsum(counts)])
    whole = np.dtype(np.int32 if ends[-1] <= LARGEST_32 else np.int64)
    data = room(int(ends[-1]), np.result_type(*(part.dtype for part in parts)))
    indices = room(int(ends[-1]), whole)
    for a, b in _column_ranges(ends):
        start, stop = int(ends[a]), int(ends[b])
        values, labels = np.empty(stop - start, data.dtype), np.empty(stop - start, whole)
        free = ends[a:b] - start  # where the next entry of each column goes
        above = 0  # rows of the parts before
        for part in parts:
            own = part.indptr[a : b + 1].astype(np.int64)
            sizes = np.diff(own)
            places = np.repeat(free - own[:-1], sizes) + np.arange(own[0], own[-1])
            values[places] = part.data[own[0] : own[-1]]
            labels[places] = part.indices[own[0] : own[-1]] + above
            free, above = free + sizes, above + part.shape[0]
        data[start:stop], indices[start:stop] = values, labels
    shape = sum(part.shape[0] for part in parts), parts[0].shape[1]
    return scipy.sparse.csc_matrix((data, indices, ends.astype(whole)), shape=shape, copy=False)


def _column_ranges(ends: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of columns with at most ``PIECE_ENTRIES`` each, or of one column."""
    ranges, a = [], 0
    while a < ends.size - 1:
        b = int(np.searchsorted(ends, ends[a] + PIECE_ENTRIES, "right")) - 1
        b = min(max(b, a + 1), ends.size - 1)
        ranges.append((a, b))
        a = b
    return ranges
