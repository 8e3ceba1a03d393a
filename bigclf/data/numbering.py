"""Which rows have their features numbered anew: those of very many features, few of which occur.

The numbers that occur are collected in one read of the rows, and kept in the cache under the dataset's digest. Whatever
is as long as there are features (weights, sums, what workers send) is then as long as there are of these.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TypeVar

import numpy as np

from bigclf import files
from bigclf.data.arrays import Arrays, listed_names
from bigclf.data.dataset import NUMBERS, Dataset
from bigclf.data.shards import read_table, write_table
from bigclf.errors import DataError, MemoryBudgetError
from bigclf.files.caches import cache_directory
from bigclf.maths.feature_ids import FeatureIds, distinct
from bigclf.units import format_bytes

log = logging.getLogger("bigclf")
AnyRows = TypeVar("AnyRows", Dataset, Arrays)
MANY = 1 << 26  # features; of fewer, weights of all of them take half a gigabyte at most
SHARE = 8  # at most one of so many features occurs
MEMORY_SHARE = 32  # the numbers that occur take at most a quarter of the memory


def numbered(rows: AnyRows, memory: int, more: np.ndarray | None = None) -> AnyRows:
    """The rows with features numbered anew where they have more than ``MANY`` features and few occur, else the rows.

    Parameters
    ----------
    memory : budget in bytes.
    more : int64, ascending: numbers of features that are known by their place even if they occur in no row, as those of
        a model that training goes on from.

    Raises
    ------
    MemoryBudgetError : so many features occur that not even their numbers have room.
    """
    if rows.n_features <= MANY or rows.feature_ids is not None or listed_names(rows.features) is not None:
        return rows
    most = min(rows.n_features // SHARE, memory // MEMORY_SHARE)
    found = _kept(rows, most) if isinstance(rows, Dataset) else distinct(_of_blocks(rows), most)
    if found is not None and more is not None:
        found = np.union1d(found, more[more < rows.n_features])
    if found is None or found.size > most:
        if most < rows.n_features // SHARE:
            raise MemoryBudgetError(
                f"more than {most:,} of {rows.n_features:,} features occur, and even a list of them has no room in "
                f"memory={format_bytes(memory)}; give it more, or hash the features at conversion (--hash-bits)"
            )
        return rows
    found = found if found.size else np.zeros(1, np.int64)
    log.info("%s of %s features occur: weights are kept for these alone", f"{found.size:,}", f"{rows.n_features:,}")
    return rows.with_feature_ids(FeatureIds(found, rows.n_features))


def _kept(rows: Dataset, most: int) -> np.ndarray | None:
    """What ``distinct`` says of a dataset; from the cache, where that has it."""
    try:
        path = files.join(cache_directory(NUMBERS), f"{rows.digest}.parquet")
    except OSError:  # no room for it
        return distinct(_of_blocks(rows), most)
    if files.exists(path):
        try:
            found = read_table(path)["feature"]
            if not (fault := FeatureIds(found, rows.n_features).fault()):
                return found if found.size <= most else None
            log.warning("%s is damaged (its numbers %s): the rows are read once more", path, fault)
        except (DataError, KeyError, OSError) as error:
            log.warning("%s cannot be read (%s): the rows are read once more", path, error)
    log.info("looking which of %s features occur, in one read of the rows", f"{rows.n_features:,}")
    collected = distinct(_of_blocks(rows), most)
    if collected is not None:
        try:
            write_table(path, {"feature": collected})
        except OSError as error:  # no room: collected again next time
            log.info("not kept in the cache: %s", error)
    return collected


def _of_blocks(rows: Dataset | Arrays) -> Iterator[np.ndarray]:
    for block in rows.blocks():
        yield block.indices[block.indptr[0] : block.indptr[-1]]
