"""Rows that others hold: written down as Parquet, and that is read as any other.

A Dask DataFrame knows itself how its workers write it, so nothing of Dask is imported. Whatever speaks Arrow's stream
protocol (a ``RecordBatchReader``, a DuckDB relation, Ibis, Delta, Lance, Hugging Face ...) is written as it comes, in
bounded memory.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

import numpy as np

from bigclf import files
from bigclf.errors import DataError
from bigclf.features.values import is_table

if TYPE_CHECKING:
    import pyarrow as pa
    from dask.array import Array
    from dask.dataframe import DataFrame

STEP = 1024  # rows that are taken from a stream at a time
GROUP_ROWS = 120 * STEP  # of a stream, to a row group: as many as DuckDB writes
GROUP_BYTES = 32_000_000  # ... or fewer, where rows are large
BLOCK_BYTES = 16_000_000  # of a block, to one
ROWS = 2**16  # of a lazy frame, to one


class LazySchema(Protocol):
    """Columns by name."""

    def names(self) -> list[str]: ...


class LazyFrame(Protocol):
    """A frame that is yet to be worked out."""

    def collect(self) -> object: ...

    def head(self, n: int) -> LazyFrame: ...

    def collect_schema(self) -> LazySchema: ...

    def sink_parquet(self, path: str, *, row_group_size: int) -> object: ...


class Stream(Protocol):
    """Record batches one after another."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Collected: TypeAlias = "DataFrame | Array | LazyFrame | Stream"


def is_collected(data: object) -> TypeGuard[Collected]:
    """Whether ``data`` is a DataFrame in partitions that others hold, or a stream of record batches."""
    stream = hasattr(data, "__arrow_c_stream__") and not is_table(data) and not is_column(data)
    return is_in_partitions(data) or is_blocked(data) or is_lazy(data) or stream or is_scanned(data)


def is_column(data: object) -> bool:
    """Whether ``data`` are the values of one column, or row: a Series, or an array [n]."""
    held: Any = data
    if hasattr(held, "type") and hasattr(held, "null_count"):  # Arrow's
        return not str(held.type).startswith("struct")
    return getattr(held, "ndim", 0) == 1 or (hasattr(held, "dtype") and hasattr(held, "to_frame"))


def is_scanned(data: object) -> bool:
    """Whether ``data`` are tables on disk that give batches when asked: an Arrow or a Lance data set, a Delta table, or
    one of Hugging Face's."""
    scanned = hasattr(data, "scanner") or hasattr(data, "to_pyarrow_dataset")
    return scanned or (hasattr(data, "with_format") and hasattr(data, "iter") and hasattr(data, "column_names"))


def as_stream(data: object) -> object:
    """What has Arrow's stream protocol for what ``is_scanned``, with little read ahead; all else as it is."""
    import pyarrow as pa

    if not is_scanned(data):
        return data
    held: Any = data
    if hasattr(held, "with_format"):
        tables = iter(held.with_format("arrow").iter(STEP))
        first = next(tables, None)
        first = held.features.arrow_schema.empty_table() if first is None else first
        batches = itertools.chain.from_iterable(table.to_batches() for table in itertools.chain([first], tables))
        return pa.RecordBatchReader.from_batches(first.schema, batches)
    held = held.to_pyarrow_dataset() if hasattr(held, "to_pyarrow_dataset") else held
    return held.scanner(batch_readahead=1, fragment_readahead=1).to_reader()


def is_blocked(data: object) -> TypeGuard[Array]:
    """Whether ``data`` is a matrix in blocks that others hold (Dask's)."""
    return hasattr(data, "to_delayed") and hasattr(data, "rechunk") and getattr(data, "ndim", 0) == 2


def is_lazy(data: object) -> TypeGuard[LazyFrame]:
    """Whether ``data`` is a frame that is yet to be worked out, and writes itself (Polars')."""
    return hasattr(data, "sink_parquet") and hasattr(data, "collect_schema")


def is_in_partitions(data: object) -> TypeGuard[DataFrame]:
    """Whether ``data`` is a DataFrame whose partitions others hold (Dask's)."""
    return hasattr(data, "npartitions") and hasattr(data, "to_parquet") and hasattr(data, "columns")


def with_labels(data: Collected, y: object) -> tuple[Collected, object]:
    """A Dask DataFrame with the labels ``y`` [rows], where these are Dask's too, and the name of their column; all else
    as it is.

    Raises
    ------
    TypeError : the two do not go together.
    """
    if not is_in_partitions(data) or y is None or isinstance(y, str):
        return data, y
    name = str(getattr(y, "name", None) or "label")
    advice = 'put the labels into the frame, and name their column: fit(frame, "label")'
    if not hasattr(y, "dask") or getattr(y, "ndim", 1) != 1:
        raise TypeError(f"labels of a Dask DataFrame are a Dask Series of its partitions; {advice}")
    try:
        return data.assign(**{name: y}), name
    except (TypeError, ValueError, AssertionError, NotImplementedError) as error:
        raise TypeError(f"the labels do not go with the frame ({error}); {advice}") from None


def first_rows(data: Collected, most: int) -> object:
    """A table of the first rows of a frame or a stream, ``most`` or some more.

    Raises
    ------
    TypeError : it has no columns with names, or can be read once only.
    """
    import pyarrow as pa

    if is_blocked(data):
        raise TypeError("an array has no column names; suggest looks at tables")
    if isinstance(data, pa.RecordBatchReader):
        raise TypeError("a RecordBatchReader gives its rows once, and fit needs them; suggest looks at tables or files")
    if is_lazy(data):
        return data.head(most).collect()
    if is_in_partitions(data):
        parts = (data.get_partition(k).head(most, npartitions=1) for k in range(data.npartitions))
        return next((part for part in parts if len(part)), data._meta)
    found, rows = list[pa.RecordBatch](), 0
    batches = pa.RecordBatchReader.from_stream(as_stream(data))
    for batch in batches:
        found.append(batch)
        rows += batch.num_rows
        if rows >= most:
            break
    return pa.Table.from_batches(found, batches.schema)


@contextlib.contextmanager
def collected(data: Collected, beside: files.PathLike, y: object = None) -> Iterator[tuple[str, str | None]]:
    """A directory beside the path ``beside``, which every worker must see, with the rows as Parquet, a file a
    partition or one of a stream; and the format in which it is read: "parquet" for raw columns, None where rows are
    lists of indices and values. ``y`` : labels [rows] of a matrix in blocks. The directory is removed in the end.

    Raises
    ------
    DataError : the stream broke off.
    """
    name = f".{files.base_name(beside)}.collected-{secrets.token_hex(4)}"
    folder = files.join(files.parent_directory(beside), name)
    files.make_directory(folder)
    try:
        if is_blocked(data):
            names = _write_blocks(data, y, folder)
        elif is_lazy(data):
            names = data.collect_schema().names()
            data.sink_parquet(files.join(folder, "part-00000000.parquet"), row_group_size=ROWS)
        elif is_in_partitions(data):
            data.to_parquet(folder, write_index=False, name_function=lambda number: f"part-{number:08d}.parquet")
            names = list(data.columns)
        else:
            names = _write(data, files.join(folder, "part-00000000.parquet"))
        yield folder, None if "indices" in names else "parquet"
    finally:
        files.remove_tree(folder)


def _write(stream: object, path: str) -> list[str]:
    """A stream as a file, in row groups as ``_gathered`` cuts them; the names of its columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        batches = pa.RecordBatchReader.from_stream(as_stream(stream))
        with (
            files.publishing(path) as beside, files.open_arrow(beside, "wb") as sink,
            pq.ParquetWriter(sink, batches.schema) as writer,
        ):  # fmt: skip
            for table in _gathered(batches):
                writer.write_table(table, row_group_size=max(1, table.num_rows))
    except pa.ArrowException as error:
        raise DataError(
            f"the stream of rows broke off: {str(error).splitlines()[0].partition('. Detail')[0]}"
        ) from None
    return [str(name) for name in batches.schema.names]


def _gathered(batches: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Tables of ``GROUP_ROWS`` rows, or of fewer that reach ``GROUP_BYTES``; at least one.

    Row groups are part of a fit's bits, so they follow from the rows and not from the sizes of batches, which change
    with threads and versions of who sends them.
    """
    import pyarrow as pa

    held, rows, size = list[pa.Table](), 0, 0
    for step in _steps(batches):
        held.append(step)
        rows, size = rows + step.num_rows, size + sum(_bytes(column) for column in step.columns)
        if rows >= GROUP_ROWS or size >= GROUP_BYTES:
            yield pa.concat_tables(held)
            held, rows, size = [], 0, 0
    if held:
        yield pa.concat_tables(held)


def _steps(batches: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Tables of ``STEP`` rows; the last, of fewer, may be empty."""
    import pyarrow as pa

    rest = batches.schema.empty_table()
    for batch in batches:
        rest = pa.concat_tables([rest, pa.Table.from_batches([batch])])
        whole = rest.num_rows // STEP * STEP
        yield from (rest.slice(first, STEP) for first in range(0, whole, STEP))
        rest = rest.slice(whole)
    yield rest


def _bytes(column: pa.Array | pa.ChunkedArray) -> int:
    """The bytes of a column's values without masks and dictionaries, which come and go with batches."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_dictionary(kind):
        return 4 * len(column)
    if pa.types.is_struct(kind):
        return sum(_bytes(child) for child in column.flatten())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return 8 * len(column) + _bytes(pc.list_flatten(column))
    try:
        return len(column) * kind.bit_width // 8
    except ValueError:  # its values have lengths of their own
        binary = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind)
        return 8 * len(column) + (pc.sum(pc.binary_length(column)).as_py() or 0 if binary else column.nbytes)


def _write_blocks(matrix: Array, labels: object, folder: str) -> list[str]:
    """A matrix in blocks as rows of indices and values with their labels, each block of rows by who holds it."""
    import dask

    y: Any = labels
    rows = matrix.rechunk({1: -1})
    counts = rows.chunks[0]
    if any(count != count for count in counts):
        rows = rows.compute_chunk_sizes()
        counts = rows.chunks[0]
    if y is None or len(y) != sum(counts):
        raise ValueError(f"a matrix of {sum(counts):,} rows needs as many labels: fit(X, y)")
    if hasattr(y, "to_delayed"):
        y = (y.to_dask_array(lengths=True) if hasattr(y, "to_dask_array") else y).rechunk((counts,)).to_delayed()
    else:
        y = np.split(np.asarray(y), np.cumsum(counts)[:-1])
    blocks = zip(rows.to_delayed().ravel().tolist(), y, strict=True)
    names = (files.join(folder, f"part-{number:08d}.parquet") for number in range(len(counts)))
    dask.compute(*(dask.delayed(_write_block)(*pair, path) for pair, path in zip(blocks, names, strict=True)))
    return ["label", "indices", "values"]


def _write_block(block: object, labels: np.ndarray, path: str) -> None:
    """A block of rows [m, features], dense or sparse, with labels [m], as a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import scipy.sparse

    rows = scipy.sparse.csr_matrix(block)
    rows.sort_indices()
    lists = [pa.LargeListArray.from_arrays(rows.indptr.astype(np.int64), column)
             for column in (rows.indices, rows.data.astype(np.float32))]  # fmt: skip
    table = pa.table({"label": pa.array(labels), "indices": lists[0], "values": lists[1]})
    per_group = max(1, BLOCK_BYTES * max(1, table.num_rows) // max(1, table.nbytes))
    with files.publishing(path) as beside, files.open_arrow(beside, "wb") as sink:
        pq.write_table(table, sink, row_group_size=per_group)
