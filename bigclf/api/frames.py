"""Predictions for rows that others hold, in the kind that they came in: a frame for a frame."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from bigclf.conversion.foreign_rows import as_stream, is_blocked, is_collected, is_column, is_in_partitions, is_lazy
from bigclf.conversion.tables.raw_rows import table_rows
from bigclf.data.frames import batch_by_batch, like
from bigclf.features.values import is_table
from bigclf.model.model import unknown_text

if TYPE_CHECKING:
    import numpy as np

    from bigclf.api.predicted_shards import Asked


def predicted(asked: Asked, data: object) -> object:
    """What ``predict`` says of the rows of a table, a column each, in a table of the same kind.

    Raises
    ------
    TypeError : ``data`` is no frame. DataError, SchemaError, ValueError : as of ``Model.predict``.
    """
    if is_column(data):
        raise TypeError("predict() without out= needs a data frame, and this is one column, or one row: of a frame, "
                        "rows are frame.iloc[[0]], and columns frame[[NAME]]")  # fmt: skip
    if is_blocked(data):
        kind = "float" if asked.model.regression else "model.classes_.dtype"
        line = f"X.rechunk({{1: -1}}).map_blocks(model.predict, drop_axis=1, dtype={kind})"
        raise TypeError(f"predict() without out= needs a data frame; a Dask array is predicted by its blocks: {line}")
    if is_in_partitions(data):
        return data.map_partitions(_of_table, asked, meta=_of_table(data._meta, asked))
    if is_lazy(data):
        return _of_table(data.collect(), asked)
    if is_collected(data):
        return batch_by_batch(as_stream(data), lambda rows: _of_table(rows, asked), asked.nothing())
    if not is_table(data) or isinstance(data, dict):
        kind = "a mapping of columns" if isinstance(data, dict) else "an array"
        raise TypeError(f"predict() without out= needs a data frame; for {kind} use model.predict(X)")
    return _of_table(data, asked)


def _of_table(table: object, asked: Asked) -> object:
    return like(table, _columns(asked, table))


def _columns(asked: Asked, given: object) -> dict[str, np.ndarray]:
    """The columns for a table; of one of numbers those that the model knows by name are taken."""
    model, table = asked.model, given
    data: Any = table
    if not len(data):
        return asked.nothing()
    names = model.plain_columns
    if names and not model.is_raw(data) and {*names} <= {*(getattr(data, "column_names", None) or data.columns)}:
        data = data.select(names) if hasattr(data, "select") else data[names]
    if model.is_raw(data):
        block, unknown = table_rows(model.finisher, data, unseen=asked.unseen)
        if unknown:
            warnings.warn(unknown_text(unknown), stacklevel=5)
        return asked.of_block(block)[0]
    values = model.decision_function(data, unseen=asked.unseen)
    return asked.columns(values if values.ndim == 2 else values[:, None])
