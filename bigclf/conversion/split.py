"""One dataset into parts, reproducibly: by a hash of each row, by group, or along an order such as time.

Which part a row belongs to depends on the row (or its group) and the seed, or on its place in the order, and on nothing
else: not on files, chunks or neighbours. So a dataset that grows splits as before, and equal rows stay together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf import files
from bigclf.conversion.converter import write_shards
from bigclf.conversion.destination import OF_COLUMNS, require_free
from bigclf.conversion.shuffle import _mixed
from bigclf.data.dataset import Dataset, Stored
from bigclf.data.predictions import passed_in_parts
from bigclf.errors import DataError, MemoryBudgetError, SchemaError
from bigclf.features.arrow import as_numpy
from bigclf.files.apart import keep_apart
from bigclf.maths.block import Block, selected, written_out
from bigclf.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    import pyarrow as pa


ORDER_BYTES = 24  # a row, while cuts along an order are looked for


def split(
    data: Stored,
    out: files.PathLike,
    parts: Mapping[str, float],
    *,
    by: str | None = None,
    order: str | None = None,
    seed: int = 0,
    memory: float | str = "256MB",
    overwrite: bool = False,
) -> dict[str, Dataset]:
    """Write each part of a dataset as shards in a directory of its own below ``out``; one read a part.

    Parameters
    ----------
    data : path, directory or glob of Parquet, list of them, or ``Dataset``.
    parts : name -> share of the rows; the shares add up to 1.
    by : column whose equal values stay in one part (users, sessions, documents); None: a hash of each row's features,
        so that equal rows stay together.
    order : column of numbers or times along which the parts follow each other, in the order in which they are named;
        equal values stay together.
    seed : another one gives other parts (no effect with ``order``).
    memory : bytes to allocate, about.
    overwrite : replace shards that are there.

    Returns
    -------
    dict : name -> Dataset.

    Raises
    ------
    ValueError : shares that do not add up to 1, or ``by`` and ``order`` both.
    SchemaError : there is no such column, or it has no order. DataError : a part without rows, or a null.
    MemoryBudgetError : the column ``order`` does not fit ``memory``. RunError : what is to be written is there already,
        or is or holds an input.
    """
    dataset = data if isinstance(data, Dataset) else Dataset(data)
    bounds = _bounds(parts)
    if by is not None and order is not None:
        raise ValueError("by and order are two ways to split: take one of them")
    choose = _by_row(bounds, seed)
    if by is not None:
        choose = _by_group(bounds, by, seed)
    if order is not None:
        choose = _along(dataset, bounds, order, parse_bytes(memory))
    paths = [files.join(files.absolute(out), name) for name in parts]
    keep_apart([dataset], entered=[out], replaced=paths)
    ours = files.half_done(paths)
    for path in paths:
        require_free(path, overwrite or path in ours)
    with files.together(paths) as place:
        for number, path in enumerate(paths):
            if _write(dataset, place[path], number, choose, memory, overwrite) == 0:
                files.remove_tree(place[path])
                name = files.base_name(path)
                raise DataError(f"no row belongs to the part {name!r}; give it a larger share", file=path)
    return {name: Dataset(path) for name, path in zip(parts, paths, strict=True)}


class Choose(NamedTuple):
    """Which part each row goes to: ``parts(block, column)`` int [m], and the name of the column that it looks at, an
    Arrow array (None: it looks at none)."""

    column: str | None
    parts: Callable[[Block, pa.Array], np.ndarray]


def _bounds(parts: Mapping[str, float]) -> np.ndarray:
    """Where the parts but the first begin, on a scale from 0 to 1."""
    shares = np.array(list(parts.values()), np.float64)
    if not parts or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-9:
        raise ValueError(f"the shares must be above 0 and add up to 1, not {dict(parts)}")
    if wrong := [name for name in parts if not name or name[0] in "._" or "/" in name]:
        raise ValueError(f"a part is a directory: {wrong[0]!r} cannot be its name")
    return np.cumsum(shares)[:-1]


def _write(dataset: Dataset, out: str, number: int, choose: Choose, memory: float | str, overwrite: bool) -> int:
    """Write the rows of a part to ``out``; returns their number."""

    def rows() -> Iterator[Block]:
        for place in dataset.places():
            for block, column in zip(dataset.parts(*place), _columns(dataset, *place, choose.column), strict=True):
                mine = choose.parts(block, column) == number
                if mine.any():
                    yield selected(block, mine)

    classes, kind = (dataset.classes, "") if dataset.sets is None else (dataset.sets.texts(), dataset.sets.kind)
    found = write_shards(
        rows(), out, classes=classes, n_features=dataset.n_features, features=dataset.features, memory=memory,
        overwrite=overwrite, sets=kind,
    )  # fmt: skip
    source = files.parent_directory(dataset.files[0])
    for name in OF_COLUMNS:  # what was learned of raw columns goes with the rows
        if files.exists(files.join(source, name)):
            files.publish_bytes(files.join(out, name), files.read_bytes(files.join(source, name)))
    return found.n_rows


# By hash


def _by_row(bounds: np.ndarray, seed: int) -> Choose:
    return Choose(None, lambda block, _: _part(hashes_of(block, seed), bounds))


def _part(hashes: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The part of each hash uint64 [m]."""
    return np.searchsorted(bounds, (hashes >> np.uint64(11)) * 2.0**-53, side="right")


def hashes_of(block: Block, seed: int) -> np.ndarray:
    """uint64 [m]: of each row's indices and values, in which the order of entries and how they are stored make no
    difference. h(row) = mix(sum over entries of mix(mix(value) + index) + seed), mix as in ``shuffle``."""
    block = written_out(block)
    first, last = int(block.indptr[0]), int(block.indptr[-1])
    values = block.values[first:last] if block.values.size else np.ones(last - first, np.float32)
    bits = (values + np.float32(0)).view(np.uint32).astype(np.uint64)  # -0 is 0
    entries = _mixed(_mixed(bits + np.uint64(1)) + block.indices[first:last].astype(np.uint64))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(entries, dtype=np.uint64)])
    bounds = block.indptr - first
    return _mixed(sums[bounds[1:]] - sums[bounds[:-1]] + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64))


def _by_group(bounds: np.ndarray, name: str, seed: int) -> Choose:
    def parts(_: Block, column: pa.Array) -> np.ndarray:
        values = column.dictionary_encode()
        texts = [f"{seed}\0{value}".encode() for value in values.dictionary.to_pylist()]
        digests = [hashlib.blake2b(text, digest_size=8).digest() for text in texts]
        hashes = np.array([int.from_bytes(digest) for digest in digests], np.uint64)
        return _part(hashes[as_numpy(values.indices)], bounds)

    return Choose(name, parts)


def _columns(dataset: Dataset, file: int, row_group: int, name: str | None) -> Iterator[pa.Array | None]:
    """A column that stands beside the rows, of each chunk of a row group as an Arrow array without nulls; None of each
    where it has no ``name``."""
    import pyarrow as pa

    path, sizes = dataset.files[file], dataset.rows_of_chunks(file, row_group)
    if name is None:
        yield from (None for _ in sizes)
        return
    pieces = passed_in_parts(path, row_group, {name: name}, sizes)
    for _ in sizes:
        try:
            array = next(pieces)[name]
        except (DataError, KeyError) as error:
            raise SchemaError("there is no such column beside the rows to split by", file=path, column=name) from error
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        if array.null_count:
            raise DataError("a null has no part to go to", file=path, row_group=row_group, column=name)
        yield array


# Along an order


def _along(dataset: Dataset, bounds: np.ndarray, name: str, memory: int) -> Choose:
    """Parts that end where their share of the rows, ordered by the column, is reached."""
    if dataset.n_rows * ORDER_BYTES > memory:
        needed = format_bytes(dataset.n_rows * ORDER_BYTES)
        raise MemoryBudgetError(
            f"the column {name!r} of {dataset.n_rows:,} rows needs {needed} while it is put in order"
        )

    def numbers(array: pa.Array, path: str | None = None) -> np.ndarray:
        return _numbers(array, name, path)

    each = ((dataset.files[place[0]], array) for place in dataset.places() for array in _columns(dataset, *place, name))
    values = np.sort(np.concatenate([numbers(array, path) for path, array in each]))
    places = np.minimum(np.rint(bounds * values.size).astype(np.int64), values.size - 1)
    cuts = values[places]
    return Choose(name, lambda _, column: np.searchsorted(cuts, numbers(column), side="right"))


def _numbers(array: pa.Array, name: str, path: str | None) -> np.ndarray:
    """A column's numbers, or times as numbers."""
    import pyarrow as pa

    if pa.types.is_temporal(array.type):
        wide = pa.types.is_date32(array.type) or pa.types.is_time32(array.type)
        array = array.cast(pa.int32()).cast(pa.int64()) if wide else array.cast(pa.int64())
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        raise SchemaError(f"numbers or times have an order, {array.type} is neither", file=path,
                          column=name)  # fmt: skip
    numbers = as_numpy(array)
    if numbers.dtype.kind == "f" and np.isnan(numbers).any():
        raise DataError("NaN has no place in an order", file=path, column=name)
    return numbers
