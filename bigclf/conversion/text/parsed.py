"""What every input format yields: rows as parsed, in float64 and with the records that were no rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bigclf.conversion.shuffle import Slab
from bigclf.conversion.text.bytes_to_rows import ascend, store
from bigclf.features.arrow import FLOAT32_MAX


class Options(NamedTuple):
    """What a parser is told.

    Attributes
    ----------
    index_base : the first feature's number, 0 or 1.
    n_features : None for as many as come.
    hash_bits : names of features are hashed to so many bits; None: they are numbers.
    namespace : where features are numbers, the one namespace that they are in.
    unlabelled : rows may have no label, as those to predict; it is NaN then.
    tells_base : what is made tells ``index_base``: text of this format is taken to count from 1 where nothing is said.
    """

    index_base: int = 1
    n_features: int | None = None
    hash_bits: int | None = None
    namespace: bytes = b""
    unlabelled: bool = False
    tells_base: bool = False

    @property
    def limit(self) -> int:
        """0-based indices are below it."""
        return 2**63 - 1 if self.n_features is None else self.n_features


class BadRow(NamedTuple):
    """Text that is no row: place of its first byte, what is wrong, and where it ends (-1: with its line)."""

    offset: int
    reason: str
    end: int = -1


class Parsed(NamedTuple):
    """Rows of some text: indptr int64 [m+1] from 0, indices (0-based, increasing in a row) and values float64 [nnz],
    labels float64 [m], weights float64 [m] or [0] when all are 1; all finite and values within float32. And what is
    bad."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    labels: np.ndarray
    bad: list[BadRow]
    weights: np.ndarray = np.empty(0)
    queries: bool = False  # rows have qid:, of which nothing is made


class Gathering:
    """Rows that come one at a time."""

    def __init__(self) -> None:
        self.labels, self.weights, self.bad = list[float](), list[float](), list[BadRow]()
        self.indices, self.values = list[np.ndarray](), list[np.ndarray]()

    def add(self, label: float, indices: np.ndarray, values: np.ndarray, weight: float = 1.0) -> None:
        self.labels.append(label)
        self.weights.append(weight)
        self.indices.append(indices)
        self.values.append(values)

    def parsed(self) -> Parsed:
        indptr = np.cumsum([0, *(part.size for part in self.indices)], dtype=np.int64)
        indices = np.concatenate([np.empty(0, np.int64), *self.indices])
        values = np.concatenate([np.empty(0), *self.values])
        return Parsed(indptr, indices, values, np.array(self.labels, np.float64), self.bad, np.array(self.weights))


def one_row(indices: np.ndarray, values: np.ndarray, options: Options) -> tuple[np.ndarray, np.ndarray]:
    """Entries in ascending order, values of the same index added up in the order they came in.

    Raises
    ------
    ValueError : for an index out of range or a value that is not finite or beyond float32.
    """
    if indices.size and (indices.min() < 0 or indices.max() >= options.limit):
        wrong = indices[np.argmax((indices < 0) | (indices >= options.limit))]
        raise ValueError(f"the index {wrong + options.index_base} is negative or beyond the {options.limit:,} features")
    indices, values = np.array(indices, np.int64), np.array(values, np.float64)
    end, fit = ascend(0, indices.size, indices, values, np.empty_like(indices), np.empty_like(values))
    indices, values = indices[:end], values[:end]
    if not fit:
        at = int(np.argmax(~(np.abs(values) <= FLOAT32_MAX)))
        feature = indices[at] + options.index_base
        raise ValueError(f"the value {values[at]:g} of the feature {feature} is not finite or beyond the range of "
                         f"float32 ({FLOAT32_MAX:.3g})")  # fmt: skip
    return indices, values


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
    weights = parsed.weights if (parsed.weights != 1).any() else np.empty(0)
    return Slab(indptr, kept, values[: 0 if ones else n], parsed.labels, weights), rounding


class Reader(NamedTuple):
    """A format.

    Attributes
    ----------
    parse : rows of whole records of text.
    record : what the first line of a record begins with; empty where every line is a record.
    index_base : the first feature's number, unless it is said; None where the reader knows.
    prepare : what the options become once the first records have been seen, or None.
    example : rows with which the parser is compiled.
    """

    parse: Callable[[bytes, Options], Parsed]
    record: bytes = b""
    index_base: int | None = None
    prepare: Callable[[bytes, Options], Options] | None = None
    example: bytes = b""
