"""Columns as tables of the kind that somebody holds: pandas, Polars, Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bigclf.errors import DataError, RunError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

ROWS_AT_A_TIME = 2**16


def like(table: object, columns: Mapping[str, np.ndarray]) -> object:
    """The columns, arrays [rows] by name, as a table of the kind of ``table``; of pandas with its index.

    Raises
    ------
    TypeError : ``table`` is none.
    """
    known: Any = table
    if hasattr(known, "iloc"):
        plain = {
            name: column.to_pandas() if hasattr(column, "to_pandas") else column for name, column in columns.items()
        }
        return type(known)(
            {name: getattr(column, "values", column) for name, column in plain.items()}, index=known.index
        )
    if hasattr(known, "to_arrow"):
        return type(known)(dict(columns))
    if hasattr(known, "column_names"):
        return type(known).from_pydict(dict(columns))
    raise TypeError("it is no frame")


def pandas_frame(rows: Sequence[Mapping[str, object]]) -> object:
    """A pandas DataFrame of the rows.

    Raises
    ------
    RunError : pandas is not installed; bigclf itself does not need it.
    """
    try:
        import pandas
    except ModuleNotFoundError:
        raise RunError("a table of pandas needs the package: pip install pandas; .table has the same rows") from None
    return pandas.DataFrame(rows)


def _plain(column: object) -> object:
    """Lists of labels as pandas takes them beside an index."""
    return column.to_pandas().to_numpy() if hasattr(column, "to_pandas") else column


def batch_by_batch(
    stream: object, said: Callable[[pa.Table], object], nothing: Mapping[str, np.ndarray]
) -> pa.RecordBatchReader:
    """What is said of each batch of a stream, as it is asked for; ``nothing`` : the columns without a row.

    Raises
    ------
    DataError : the stream cannot be read.
    """
    import pyarrow as pa

    try:
        batches = pa.RecordBatchReader.from_stream(stream)
    except pa.ArrowException as error:
        raise DataError(f"the stream of rows broke off: {error}") from None
    schema = pa.RecordBatch.from_pydict(dict(nothing)).schema

    def made() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for first in range(0, batch.num_rows, ROWS_AT_A_TIME):
                rows = pa.Table.from_batches([batch.slice(first, ROWS_AT_A_TIME)])
                table: Any = said(rows)
                yield from table.cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, made())
