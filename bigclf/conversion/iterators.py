"""Rows that come as an iterator of blocks: written down as shards once, in their order, so that they are trained on
like any other shards."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bigclf.conversion.convert import write_shards
from bigclf.data.arrays import csr_arrays, label_array, number_array
from bigclf.data.dataset import Dataset
from bigclf.errors import DataError, SchemaError
from bigclf.maths.block import Block, written_out


def is_iterator(data: object) -> bool:
    """Whether ``data`` gives blocks one after another."""
    return hasattr(data, "__next__")


class Labels:
    """Labels as numbers, in the order in which they were first seen; in the end the classes they stand for."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._kind = ""

    def code(self, labels: np.ndarray) -> np.ndarray:
        """float64 [row]; SchemaError when labels are of another kind than those before."""
        kind = {"U": "text", "b": "bool"}.get(labels.dtype.kind, "numbers")
        if self._kind not in ("", kind):
            raise SchemaError(f"labels of mixed types: {self._kind}, and then {kind}")
        self._kind = kind
        found, places = np.unique(labels, return_inverse=True)
        numbers = [self._numbers.setdefault(label, len(self._numbers)) for label in found.tolist()]
        return np.array(numbers, np.float64)[places]

    def classes(self) -> tuple[np.ndarray, np.ndarray]:
        """The labels seen, ascending, and the place among them of each number, float64."""
        seen = np.array(list(self._numbers))
        return np.sort(seen), np.argsort(np.argsort(seen)).astype(np.float64)


def write_down(blocks: Iterable[object], out: str, *, real_labels: bool, memory: int) -> Dataset:
    """The rows of ``blocks`` as shards in the directory ``out``, in their order.

    Parameters
    ----------
    blocks : each (X, y) or (X, y, weights), X a matrix [rows, features] as ``fit`` takes it and y its labels; or
        (indptr, indices, values or None, labels) or the same and weights.
    real_labels : labels are numbers to predict.
    memory : bytes to allocate beside a block, about.

    Raises
    ------
    DataError : naming the block, for what is not one; whatever ``write_shards`` raises.
    """
    labels = Labels()
    widest = [0]

    def coded() -> Iterator[tuple[Any, ...]]:
        for number, block in enumerate(blocks):
            try:
                indptr, indices, values, y, weights, width = parts_of(block)
                y = number_array(y) if real_labels else labels.code(label_array(y))
            except (TypeError, ValueError, DataError) as error:
                raise type(error)(f"block {number}: {error}") from error
            widest[0] = max(widest[0], width)
            yield indptr, indices, values, y, weights

    blocks = iter(blocks)
    first = next(blocks, None)
    if first is None:
        raise DataError("the iterator gave no block: there are no rows")
    blocks = itertools.chain([first], blocks)
    return write_shards(
        coded(), out, classes=None if real_labels else labels.classes, n_features=lambda: widest[0], memory=memory
    )


def parts_of(block: object) -> tuple[Any, ...]:
    """(indptr, indices, values, labels, weights, number of columns) of whatever a block is given as."""
    if isinstance(block, Block):
        block = written_out(block)[:5]
    if not isinstance(block, tuple | list) or not 2 <= len(block) <= 5:
        raise TypeError("a block is (X, y), (X, y, weights) or (indptr, indices, values, labels[, weights])")
    if len(block) <= 3:
        X, y, *rest = block
        indptr, indices, values, width = csr_arrays(X)
        if len(y) != indptr.size - 1:
            raise ValueError(f"X has {indptr.size - 1} rows and y has {len(y)} labels")
        return indptr, indices, values, y, rest[0] if rest else None, width
    indptr, indices, values, y, *rest = block
    indices = np.asarray(indices)
    return indptr, indices, values, y, rest[0] if rest else None, int(indices.max(initial=-1)) + 1
