"""What every input format yields: rows as parsed, in float64 and with the lines that were no rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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


def join(parts: list[tuple[int, Parsed]]) -> Parsed:
    """Rows of pieces of text, each with the place of its first byte."""
    starts = np.cumsum([0, *(p.indices.size for _, p in parts)])
    indptr = [p.indptr[1:] + start for (_, p), start in zip(parts, starts, strict=False)]
    return Parsed(
        np.concatenate([np.zeros(1, np.int64), *indptr]),
        np.concatenate([p.indices for _, p in parts]),
        np.concatenate([p.values for _, p in parts]),
        np.concatenate([p.labels for _, p in parts]),
        [BadRow(offset + bad.offset, bad.reason) for offset, p in parts for bad in p.bad],
    )


def as_slab(parsed: Parsed) -> tuple[Slab, float]:
    """The rows as they are stored (float32, no zeros) and the largest relative difference that makes to a value."""
    indptr, indices = parsed.indptr, parsed.indices
    values = parsed.values.astype(np.float32)
    rounding = _rounding(parsed.values, values)
    if values.size and not values.all():
        kept = values != 0
        indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(kept)))[indptr]
        indices, values = indices[kept], values[kept]
    wide = indices.size and int(indices.max()) >= 2**31
    indices = indices.astype(np.uint64 if wide else np.uint32)
    if (values == 1).all():
        values = values[:0]
    return Slab(indptr, indices, values, parsed.labels, np.empty(0)), rounding


def _rounding(exact: np.ndarray, stored: np.ndarray) -> float:
    """max |stored - exact| / |exact|; 1 for a value too small for float32."""
    difference = np.abs(stored - exact)
    if not difference.any():
        return 0.0
    changed = difference > 0
    return float((difference[changed] / np.abs(exact[changed])).max())
