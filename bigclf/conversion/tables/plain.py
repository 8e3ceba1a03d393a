"""Tables that need no spec: whose columns are numbers, which are features as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigclf import files
from bigclf.conversion.tables.reading import places
from bigclf.data import shards, vectors
from bigclf.features import values

if TYPE_CHECKING:
    import pyarrow as pa


def are_plain(data: files.Paths, label: str) -> bool:
    """Whether the files are Parquet of numbers beside the label, which are features as they are."""
    named = places(data)
    return not any(place.keys for place in named) and all(are_numbers(place.path, label) for place in named)


def are_numbers(path: str, label: str) -> bool:
    """Whether it is Parquet whose columns are numbers, but for the label, and by its footer none is missing."""
    with files.open_binary(path) as file:
        if file.read(4) != b"PAR1":
            return False
    with shards.open_parquet(path) as parquet:
        schema, meta = parquet.schema_arrow, parquet.metadata
        found = vectors.all_numbers(schema, (label, *shards.WEIGHT_NAMES)) if label in schema.names else None
        if found is None:
            return False
        told = [meta.row_group(group).column(k).statistics for group in range(meta.num_row_groups)
                for k, name in enumerate(schema.names) if name in (found[1] or ())]  # fmt: skip
        return not any(one is not None and one.null_count for one in told)


def has_vectors(path: str) -> bool:
    """Whether it is Parquet with a column of lists or structs, which are features by themselves."""
    with files.open_binary(path) as file:
        if file.read(4) != b"PAR1":
            return False
    with shards.open_parquet(path) as parquet:
        return any(vectors.is_nested(column.type) for column in parquet.schema_arrow)


def is_plain(table: object, label: str | None, complete: bool) -> bool:
    """Whether all columns but the label are numbers or vectors; ``complete`` : and none of them is missing."""
    if hasattr(table, "iloc"):
        return _is_plain_frame(table, label, complete)
    columns, _ = values.as_columns(table)
    return all(_is_plain_column(column, complete) for name, column in columns.items() if name != label)


def _is_plain_column(column: pa.Array, complete: bool) -> bool:
    import pyarrow as pa

    kind = column.type
    if vectors.is_nested(kind):
        return True
    if not vectors.is_number(kind) and not pa.types.is_null(kind):
        return False
    floating = pa.types.is_floating(kind)
    return not complete or not (
        column.null_count or (floating and np.isnan(column.to_numpy(zero_copy_only=False)).any())
    )


def _is_plain_frame(table: object, label: str | None, complete: bool) -> bool:
    """The same of pandas, whose columns of objects may hold numbers or lists, too."""
    frame: Any = table
    for k, name in enumerate(frame.columns):
        if name == label:
            continue
        column = frame.iloc[:, k]
        kind = getattr(column.dtype, "kind", "O")
        if hasattr(column.dtype, "fill_value") or kind in "iub" and not hasattr(column.dtype, "na_value"):
            continue
        if kind in "iubf":
            if complete and bool(column.isna().any()):
                return False
        elif not _is_plain_column(values.as_columns(column.iloc[: 2**14].to_frame())[0][str(column.name)], complete):
            return False
    return True
