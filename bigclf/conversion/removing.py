"""Shards without some of their rows: which rows are meant, the shards written anew, and what is left that equals them.

Only shards that hold such rows are written. Those of other programs keep their columns, their types, what is said of
the whole file, and how each column is compressed; statistics and dictionaries are made of the rows that are left.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from bigclf import files
from bigclf.conversion.shuffle import _mixed
from bigclf.conversion.split import hashes_of
from bigclf.data import shards, vectors
from bigclf.data.chunk_table import group_starts, in_threads
from bigclf.data.dataset import Dataset
from bigclf.data.predictions import passed_in_parts
from bigclf.data.shards import ShardWriter
from bigclf.errors import DataError, SchemaError
from bigclf.features.arrow import as_numpy
from bigclf.features.truths import places
from bigclf.maths.block import Block, selected, written_out

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


PART_BYTES = 1 << 26  # of a row group of other people's, once decompressed: larger ones are written in parts
MOST_RUNS = 200  # stretches of rows that stay, above which copying them is cheaper than naming them
WRITERS = 2  # shards that are written at a time


Stays: TypeAlias = Mapping[int, Mapping[int, np.ndarray]]  # see ``by_file``


# Which rows


def numbered(numbers: Iterable[int], n_rows: int) -> np.ndarray:
    """Row numbers as int64 [n], ascending, each once.

    Raises
    ------
    ValueError : one is no row of the data.
    """
    found = np.unique(np.asarray(list(numbers) if not isinstance(numbers, np.ndarray) else numbers))
    if found.size and (found.dtype.kind not in "iu" or found[0] < 0 or found[-1] >= n_rows):
        wrong = found[-1] if found.dtype.kind in "iu" and found[0] >= 0 else found[0]
        raise ValueError(f"rows are numbered from 0 to {n_rows - 1:,}; there is no row {wrong}")
    return found.astype(np.int64)


def having(dataset: Dataset, column: str, values: Sequence[object]) -> np.ndarray:
    """Numbers int64 [n] of the rows whose value in ``column``, which stands beside the features, is one of ``values``.

    Raises
    ------
    SchemaError : there is no such column, or its type has no such values.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    found = [np.empty(0, np.int64)]
    for file, row_group, first, sizes in row_groups(dataset):
        path = dataset.files[file]
        for size, array in zip(sizes, _column(path, row_group, column, sizes), strict=True):
            array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
            array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
            there = pc.is_in(array, value_set=_as_type(values, array.type, path, column))
            found.append(first + np.flatnonzero(as_numpy(there)))
            first += size
    return np.concatenate(found)


def _column(path: str, row_group: int, column: str, sizes: Sequence[int]) -> Iterable[pa.Array]:
    try:
        for piece in passed_in_parts(path, row_group, {column: column}, sizes):
            yield piece[column]
    except (DataError, KeyError) as error:
        text = (
            "there is no such column beside the rows, and convert leaves none there; name the rows by number (--rows) "
            "or by what they hold (--like)"
        )
        raise SchemaError(text, file=path, column=column) from error


def _as_type(values: Sequence[object], kind: pa.DataType, path: str, column: str) -> pa.Array:
    import pyarrow as pa

    texts = pa.array([str(value) for value in values])
    try:
        return texts.cast(kind)
    except (pa.ArrowException, NotImplementedError) as error:
        text = f"a value of this column is {kind}; {values[0]!r} is none"
        raise SchemaError(text, file=path, column=column) from error


class Alike(NamedTuple):
    """Rows that equal others: their numbers int64 [n], ascending; how many others there are; how many of these no row
    equals, and their numbers where they lie in the order that they were given in."""

    numbers: np.ndarray
    n_others: int = 0
    n_lacking: int = 0
    lacking: Sequence[int] = ()


def like(dataset: Dataset, others: Dataset) -> Alike:
    """The rows that equal one of ``others``: the same features and values, and the same label where the others have
    labels, a truth in whatever spelling."""
    wanted, noted = Keys(), list[tuple[int, tuple[int, object]]]()
    meant = _meant(others, dataset)
    for block in others.blocks():
        labels = _labels(block, meant)
        noted += zip(block.ids.tolist(), zip(wanted.add(block, labels), labels, strict=True), strict=True)
    found, mine = [np.empty(0, np.int64)], _meant(dataset, dataset)
    for block in dataset.blocks():
        found.append(block.ids[wanted.find(block, _labels(block, mine))])
    lacking = sorted(number for number, row in noted if row not in wanted.met)
    in_order = others.raw is None or others.raw["in_order"]
    return Alike(np.sort(np.concatenate(found)), len(noted), len(lacking), lacking if in_order else ())


def _meant(dataset: Dataset, known: Dataset) -> list[object] | None:
    """What each code of labels stands for, in the labels of ``known``; None: labels are numbers."""
    if dataset.classes is None or known.classes is None:
        return None
    labels, theirs = dataset.classes.tolist(), known.classes.tolist()
    names = [label if k < 0 else theirs[k] for label, k in zip(labels, places(theirs, labels), strict=True)]
    if dataset.sets is None:
        return names
    members, ends = dataset.sets.members.tolist(), dataset.sets.indptr.tolist()
    return [frozenset(names[k] for k in members[a:b]) for a, b in itertools.pairwise(ends)]


def _labels(block: Block, meant: list[object] | None) -> list[object]:
    if np.isnan(block.labels).any():
        return [None] * block.n_rows
    return block.labels.tolist() if meant is None else [meant[code] for code in block.labels.astype(np.int64).tolist()]


class Keys:
    """Rows by their contents. A short key of each row, from what a block knows of it, says which few of others are
    worth a look at all their entries.

    Attributes
    ----------
    met : hash and label of the noted rows that ``find`` found another one to equal.
    """

    def __init__(self) -> None:
        self._short = np.empty(0, np.uint64)
        self._whole: dict[int, set[object]] = {}  # labels by hash
        self.met: set[tuple[int, object]] = set()

    @property
    def n(self) -> int:
        """Different rows."""
        return len(self._whole)

    def add(self, block: Block, labels: Sequence[object] | None = None) -> list[int]:
        """Note the rows of a block; without ``labels`` [row] these make no difference. Their hashes."""
        if not block.n_rows:
            return []
        self._short = np.union1d(self._short, short_keys(block))
        every = [None] * block.n_rows if labels is None else labels
        keys: list[int] = hashes_of(block, 0).tolist()
        for key, label in zip(keys, every, strict=True):
            self._whole.setdefault(key, set()).add(label)
        return keys

    def find(self, block: Block, labels: Sequence[object] | None = None) -> np.ndarray:
        """Places in a block, int64 [n], of rows that equal one that was noted."""
        some = np.flatnonzero(np.isin(short_keys(block), self._short))
        if not some.size:
            return some
        there = np.zeros(block.n_rows, bool)
        there[some] = True
        keys = hashes_of(selected(block, there), 0).tolist()
        return np.array([place for place, key in zip(some.tolist(), keys, strict=True)
                         if self._has(key, None if labels is None else labels[place])], np.int64)  # fmt: skip

    def _has(self, key: int, label: object) -> bool:
        known = self._whole.get(key, set())
        equal = known if label is None else known & {None, label}
        self.met.update((key, one) for one in equal)
        return bool(equal)


def short_keys(block: Block) -> np.ndarray:
    """uint64 [row] of length, first and last index of each row."""
    lengths = np.diff(block.indptr)
    if not block.indices.size:
        return lengths.astype(np.uint64)
    ends = np.maximum(block.indptr[1:] - 1, 0), np.minimum(block.indptr[:-1], block.indices.size - 1)
    last, first = (np.where(lengths > 0, block.indices[at], 0).astype(np.uint64) for at in ends)
    return _mixed(_mixed(first + np.uint64(1)) + last) + lengths.astype(np.uint64)


# Where they are


class RowGroup(NamedTuple):
    """A row group: numbers of file and row group, number of its first row, rows of each of its chunks."""

    file: int
    row_group: int
    first: int
    sizes: list[int]


def row_groups(dataset: Dataset) -> list[RowGroup]:
    """Every row group that has rows, in order; rows of weight 0 count."""
    table = dataset.chunks
    if not table.file.size:
        return []
    starts = group_starts(table)
    ends = [*starts.tolist()[1:], table.file.size]
    return [
        RowGroup(int(table.file[a]), int(table.row_group[a]), int(table.row0[a]), table.rows[a:b].tolist())
        for a, b in zip(starts.tolist(), ends, strict=True)
    ]


def by_file(dataset: Dataset, numbers: np.ndarray) -> dict[int, dict[int, np.ndarray]]:
    """Of each file that holds such rows, of each of its row groups that does: which rows stay, bool [row]."""
    found: dict[int, dict[int, np.ndarray]] = {}
    for file, row_group, first, sizes in row_groups(dataset):
        here = numbers[np.searchsorted(numbers, first) : np.searchsorted(numbers, first + sum(sizes))] - first
        if here.size:
            stays = np.ones(sum(sizes), bool)
            stays[here] = False
            found.setdefault(file, {})[row_group] = stays
    return found


def rows_that_go(dataset: Dataset, stays: Stays) -> dict[int, np.ndarray]:
    """Of each file of ``stays`` (see ``by_file``) the rows that go, int64 [n], counted from 0 in that file."""
    found, n_rows = dict[int, list[np.ndarray]](), dict[int, int]()
    for file, row_group, _, sizes in row_groups(dataset):
        first = n_rows.get(file, 0)
        n_rows[file] = first + sum(sizes)
        if (there := stays.get(file, {}).get(row_group)) is not None:
            found.setdefault(file, []).append(first + np.flatnonzero(~there))
    return {file: np.concatenate(rows) for file, rows in found.items()}


def blocks_of(dataset: Dataset, stays: Stays) -> list[Block]:
    """The rows that go, read from the files once more."""
    found = []
    for file, groups in stays.items():
        for row_group, there in groups.items():
            first = 0
            for block in dataset.parts(file, row_group):
                goes = ~there[first : first + block.n_rows]
                first += block.n_rows
                found += [selected(block, goes)] if goes.any() else []
    return found


# Writing


def write_without(dataset: Dataset, stays: Stays, place: Mapping[int, str]) -> list[Block]:
    """Write each file of ``stays`` (see ``by_file``) to its ``place``, without the rows that go; these rows.

    Raises
    ------
    DataError : a file cannot be read.
    """
    write = _write_ours if dataset.ours else _write_others
    each = in_threads(lambda file: write(dataset, file, stays[file], place[file]), list(stays), WRITERS)
    return [block for blocks in each for block in blocks]


def _write_ours(dataset: Dataset, file: int, stays: Mapping[int, np.ndarray], path: str) -> list[Block]:
    gone = []
    writer = ShardWriter(
        path, n_features=dataset.n_features, classes=dataset.classes, index_width=dataset.index_width,
        binary=dataset.binary, weighted=dataset.weighted, features=dataset.features,
    )  # fmt: skip
    with writer:
        for one in row_groups(dataset):
            if one.file != file:
                continue
            block = dataset.decode(file, one.row_group)
            if (there := stays.get(one.row_group)) is not None:
                gone.append(selected(block, ~there))
                block = selected(block, there)
            block = written_out(block)
            writer.write(block.indptr, block.indices, block.values, block.labels, block.weights)
    return gone


def _write_others(dataset: Dataset, file: int, stays: Mapping[int, np.ndarray], path: str) -> list[Block]:
    source, gone = dataset.files[file], list[Block]()
    with shards.open_parquet(source) as old, shards.translated(source):
        _refuse_inner_dictionaries(old.schema_arrow, source)
        with files.publishing(path) as beside, files.open_arrow(beside, "wb") as sink, _writer_like(old, sink) as new:
            for row_group in range(old.num_row_groups):
                tables = _copied(old, row_group, stays.get(row_group), new)
                gone += [dataset.block_of(table, file, row_group) for table in tables]
    return gone


def _copied(old: pq.ParquetFile, row_group: int, there: np.ndarray | None, new: pq.ParquetWriter) -> Iterable[pa.Table]:
    """Write the rows of a row group that stay (None: all), little more than ``PART_BYTES`` at a time; the others."""
    about = old.metadata.row_group(row_group)
    first = 0
    for table in _tables(old, row_group, about.num_rows, about.total_byte_size):
        here = np.ones(table.num_rows, bool) if there is None else there[first : first + table.num_rows]
        first += table.num_rows
        if not here.all():
            yield table.take(np.flatnonzero(~here))
            table = kept(table, here)
        new.write_table(_own_dictionaries(table), row_group_size=max(1, table.num_rows))


def _tables(old: pq.ParquetFile, row_group: int, n_rows: int, size: int) -> Iterable[pa.Table]:
    import pyarrow as pa

    if size <= PART_BYTES:
        yield old.read_row_group(row_group, use_threads=False)
        return
    rows = max(1, n_rows * PART_BYTES // size)
    for batch in old.iter_batches(rows, [row_group], use_threads=False):
        yield pa.Table.from_batches([batch])


def kept(table: pa.Table, there: np.ndarray) -> pa.Table:
    """The rows of a table that are ``there``, bool [row]: few stretches as they lie in memory, else copied."""
    import pyarrow as pa

    edges = np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(np.int8)))
    if edges.size > 2 * MOST_RUNS:
        return table.filter(pa.array(there))
    runs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return pa.concat_tables([table.slice(a, b - a) for a, b in runs] or [table.slice(0, 0)])


def _own_dictionaries(table: pa.Table) -> pa.Table:
    """The table with dictionaries of the values that it has: those of a part name the values of all rows."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            plain = table.column(place).cast(field.type.value_type)
            table = table.set_column(place, field, plain.combine_chunks().dictionary_encode().cast(field.type))
    return table


def _refuse_inner_dictionaries(schema: pa.Schema, path: str) -> None:
    for field in schema:
        if vectors.is_nested(field.type) and "dictionary<" in str(field.type):
            raise SchemaError("a dictionary inside of lists or structs cannot be written without values of rows that "
                              "are gone; write the column as plain values", file=path, column=field.name)  # fmt: skip


def _writer_like(old: pq.ParquetFile, sink: pa.NativeFile) -> pq.ParquetWriter:
    """A writer of the same columns, each compressed as it was."""
    import pyarrow.parquet as pq

    about, columns = old.metadata, range(old.metadata.num_columns)
    known = [about.row_group(0).column(n) for n in columns] if about.num_row_groups else []
    codecs = {one.path_in_schema: _codec(one.compression) for one in known}
    return pq.ParquetWriter(
        sink,
        old.schema_arrow,
        compression=codecs or "zstd",
        use_dictionary=[one.path_in_schema for one in known if one.has_dictionary_page],
        write_statistics=[one.path_in_schema for one in known if one.is_stats_set],
        write_page_checksum=True,
    )


@functools.cache
def _codec(name: str) -> str:
    return "none" if name == "UNCOMPRESSED" else name.lower()
