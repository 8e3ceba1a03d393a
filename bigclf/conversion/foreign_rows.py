"""Rows that others hold: written down as Parquet, and that is read as any other.

A Dask DataFrame knows itself how its workers write it, so nothing of Dask is imported. Whatever speaks Arrow's stream
protocol (a ``RecordBatchReader``, a DuckDB relation, Ibis, Delta, Lance, Hugging Face ...) is written as it comes, in
bounded memory.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, TypeGuard

from bigclf import files
from bigclf.errors import DataError
from bigclf.features.values import is_table

if TYPE_CHECKING:
    import pyarrow as pa
    from dask.dataframe import DataFrame

GROUP_BYTES = 16_000_000  # of a stream, to a row group


class Stream(Protocol):
    """Record batches one after another."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def is_collected(data: object) -> TypeGuard[DataFrame | Stream]:
    """Whether ``data`` is a DataFrame in partitions that others hold, or a stream of record batches."""
    return _in_partitions(data) or (hasattr(data, "__arrow_c_stream__") and not is_table(data))


def _in_partitions(data: object) -> TypeGuard[DataFrame]:
    return hasattr(data, "npartitions") and hasattr(data, "to_parquet") and hasattr(data, "columns")


@contextlib.contextmanager
def collected(data: DataFrame | Stream, beside: files.PathLike) -> Iterator[tuple[str, str | None]]:
    """A directory beside the path ``beside``, which every worker must see, with the rows as Parquet, a file a
    partition or one of a stream; and the format in which it is read: "parquet" for raw columns, None where rows are
    lists of indices and values. The directory is removed in the end.

    Raises
    ------
    DataError : the stream broke off.
    """
    name = f".{files.base_name(beside)}.collected-{secrets.token_hex(4)}"
    folder = files.join(files.parent_directory(beside), name)
    files.make_directory(folder)
    try:
        if _in_partitions(data):
            data.to_parquet(folder, write_index=False, name_function=lambda number: f"part-{number:08d}.parquet")
            names = list(data.columns)
        else:
            names = _write(data, files.join(folder, "part-00000000.parquet"))
        yield folder, None if "indices" in names else "parquet"
    finally:
        files.remove_tree(folder)


def _write(stream: Stream, path: str) -> list[str]:
    """A stream as a file, in row groups of about ``GROUP_BYTES``; the names of its columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        batches = pa.RecordBatchReader.from_stream(stream)
        with files.publishing(path) as beside, pq.ParquetWriter(beside, batches.schema) as writer:
            for table in _gathered(batches):
                writer.write_table(table, row_group_size=max(1, table.num_rows))
    except pa.ArrowException as error:
        raise DataError(
            f"the stream of rows broke off: {str(error).splitlines()[0].partition('. Detail')[0]}"
        ) from None
    return [str(name) for name in batches.schema.names]


def _gathered(batches: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Tables of about ``GROUP_BYTES``, at least one."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(one.nbytes for one in held) >= GROUP_BYTES:
            yield pa.Table.from_batches(held)
            held = []
    yield pa.Table.from_batches(held, batches.schema)
