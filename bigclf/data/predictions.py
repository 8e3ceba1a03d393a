"""Files of predictions: one for each file that was read, written a row group at a time, seen complete or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from bigclf.data import files, shards
from bigclf.errors import DataError

KEY = "bigclf"


class PredictionWriter:
    """Writes plain columns to ``path``; what ``mark`` says stands in the footer and tells the file again.

    Parameters
    ----------
    path : where the file appears when the ``with`` block ends well.
    mark : what it was made from, as JSON knows it.
    """

    def __init__(self, path: str, mark: Mapping[str, Any]) -> None:
        self._mark, self._publishing = json.dumps(mark, sort_keys=True), files.publishing(path)
        self._beside = ""
        self._file: Any = None

    def __enter__(self) -> PredictionWriter:
        self._beside = self._publishing.__enter__()
        return self

    def write(self, columns: Mapping[str, Any]) -> None:
        """A row group: name -> numpy or Arrow array [m]; the same names and types at every call."""
        import pyarrow as pa

        table = pa.table({name: _arrow(column) for name, column in columns.items()})
        if self._file is None:
            self._file = shards.parquet_writer(self._beside, table.schema)
        self._file.write_table(table, row_group_size=max(table.num_rows, 1))

    def __exit__(self, *error: Any) -> bool | None:
        try:
            if self._file is not None:
                if error[0] is None:
                    self._file.add_key_value_metadata({KEY: self._mark})
                self._file.close()
        except BaseException as failure:
            self._publishing.__exit__(type(failure), failure, failure.__traceback__)
            raise
        return self._publishing.__exit__(*error)


def _arrow(column: Any) -> Any:
    import pyarrow as pa

    if isinstance(column, np.ndarray) and column.dtype.kind in "UO":
        return pa.array(column.tolist(), pa.string())
    return pa.array(column)


def read_mark(path: str) -> dict[str, Any] | None:
    """What the finished file of predictions at ``path`` was made from; None for any other file."""
    try:
        mark = json.loads(shards.read_metadata(path).get(KEY, "null"))
    except (DataError, ValueError):
        return None
    return mark if isinstance(mark, dict) else None


def other_columns(path: str, layout: shards.Layout) -> list[str]:
    """Names of the columns of an input that are no part of its rows: neither label, features nor weight."""
    values = layout.values if isinstance(layout.values, tuple) else (layout.values,)
    parts = [name for name in (layout.indices, *values, layout.label, layout.weight) if name is not None]
    with shards.open_parquet(path) as file:
        names = list(file.schema_arrow.names)
    taken = {name if name in names else name.partition(".")[0] for name in parts}  # a dot leads into a struct
    return [name for name in names if name not in taken]


def passed_through(path: str, row_group: int, names: Mapping[str, str]) -> dict[str, Any]:
    """Columns of the input that go to the output as they are, as Arrow arrays; ``names`` : theirs -> in the output.

    Raises
    ------
    DataError : a column that cannot be read.
    """
    if not names:
        return {}
    with shards.open_parquet(path) as file, shards.translated(path, row_group):
        table = file.read_row_group(row_group, columns=list(names), use_threads=False)
        return {said: table.column(name).combine_chunks() for name, said in names.items()}
