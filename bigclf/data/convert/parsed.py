"""What every input format yields: rows as parsed, in float64 and with the lines that were no rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bigclf.data.convert.bytes_to_rows import store
from bigclf.data.convert.shuffle import Slab


class Options(NamedTuple):
    """What a parser is told: the first index (0 or 1) and the number of features, None for as many as come."""

    index_base: int = 1
    n_features: int | None = None


class BadRow(NamedTuple):
    """Text that is no row: place of its first byte, and what is wrong."""

    offset: int
    reason: str


class Parsed(NamedTuple):
    """Rows of some text: indptr int64 [m+1] from 0, indices (0-based, increasing in a row) and values float64 [nnz],
    labels float64 [m]; all finite and values within float32. And what is bad."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    labels: np.ndarray
    bad: list[BadRow]


def as_slab(parsed: Parsed) -> tuple[Slab, float]:
    """The rows as they are stored (float32, no zeros) and the largest relative difference that makes to a value."""
    indices = parsed.indices
    wide = indices.size and int(indices.max()) >= 2**31
    indptr, values = np.zeros_like(parsed.indptr), np.empty(indices.size, np.float32)
    kept = np.empty(indices.size, np.uint64 if wide else np.uint32)
    rounding, ones = store(parsed.indptr, indices, parsed.values, indptr, kept, values)
    n = int(indptr[-1])
    if n < indices.size:  # views would keep the memory of the zeros
        kept, values = kept[:n].copy(), values[:n].copy()
    return Slab(indptr, kept, values[: 0 if ones else n], parsed.labels, np.empty(0)), rounding
