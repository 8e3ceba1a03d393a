"""Rows with columns that have names: ``y`` may be the label's, and what is no number becomes features by a look.

A spec says what becomes of raw columns. Where none is given, columns that are all numbers are the features as they are,
and of others a spec is proposed, as ``bigclf.suggest`` does.
"""

from __future__ import annotations

import dataclasses
import logging

from bigclf import files
from bigclf.conversion.tables.plain import are_plain, has_vectors, is_plain
from bigclf.conversion.tables.reading import are_raw, format_by_look, is_partitioned, places
from bigclf.conversion.tables.suggest import is_label, of_table, suggest, which_label
from bigclf.data.arrays import Arrays
from bigclf.data.dataset import MANIFEST, Dataset
from bigclf.errors import SchemaError
from bigclf.features import values
from bigclf.features.spec import Label, parse
from bigclf.files.formats import COLUMNS
from bigclf.model.model import is_stored
from bigclf.request.request import Request

log = logging.getLogger("bigclf")


def by_name(request: Request) -> Request:
    """The request with its labels where rows have them, and with a spec of the features where one is needed.

    Raises
    ------
    TypeError : ``y`` names a column of what has none, or another one than the spec of the features. SchemaError : there
        is no such column.
    """
    data, y = request.data, request.y
    if isinstance(y, str) and request["features"] is not None:
        return request.having(features=_labelled(request["features"], y), y=None)
    if any(request[name] is not None for name in ("features", "format", "hash_bits")):
        return request
    if values.is_table(data):
        return _of_table(request)
    if y is None and is_stored(data) and not isinstance(data, Dataset | Arrays) and request["columns"] is None:
        return _by_look(request)
    if not isinstance(y, str):
        return request
    if not is_stored(data) or isinstance(data, Dataset):
        if isinstance(data, Dataset):
            raise TypeError("y is a column name, but shards bring their own labels; leave y out")
        raise TypeError("y is a column name, but an array has no column names; pass the labels")
    return _of_files(request)


def _labelled(features: object, label: str) -> object:
    """The spec with the label that is named beside it."""
    spec = parse(features)
    if spec.label is not None and spec.label.column != label:
        raise TypeError(f"y names the column {label!r} as the label, and features {spec.label.column!r}")
    return spec if spec.label is not None else dataclasses.replace(spec, label=Label(label))


def _of_files(request: Request) -> Request:
    data, label = request.data, request.y
    path = places(data)[0].path
    if files.exists(files.join(files.parent_directory(path), MANIFEST)):
        raise TypeError("y has no effect with shards, which bring their own labels; leave y out")
    columns: dict[str, object] = {"label": label, **(request["columns"] or {})}
    if columns["label"] != label:
        raise TypeError(f"y names the column {label!r} as the label, and columns {columns['label']!r}")
    if not are_raw(data) or {"features", "indices", "values"} & columns.keys():
        return request.having(columns=columns, y=None)
    if are_plain(data, label):
        return request.having(columns={"features": "*", **columns}, y=None)
    if request["columns"]:
        raise SchemaError(
            "columns= names columns of vectors or numbers; of raw columns features= says what they become"
        )
    return request.having(features=suggest(data, label=label).spec(), y=None)


def _by_look(request: Request) -> Request:
    """Of files of which nothing is said, what they are is told by their names and first bytes."""
    data = request.data
    if request.verb == "plan":  # reads no rows, and text would have to be converted
        return request
    form = format_by_look(places(data)[0].path)
    if form is None and not (is_partitioned(data) and are_raw(data) and not has_vectors(places(data)[0].path)):
        return request  # Parquet says itself what it holds, but not what the directories that it lies in say
    if form is not None and form not in COLUMNS:
        return request.having(format=form)
    if form == "text":
        return request.having(features=parse({"features": [], "reader": {"format": form}}))
    found = suggest(data)
    spec = found.spec()
    if spec.label is None or not is_label(spec.label.column):
        raise TypeError(f"{data}: {which_label(found, 'y={!r}')} bigclf.suggest shows all")
    log.warning('predicting column %r, guessed from its name; pass y="COLUMN" to choose another', spec.label.column)
    return request.having(features=spec)


def _of_table(request: Request) -> Request:
    """Of a table in memory, whose label is a column or stands beside it."""
    data, y = request.data, request.y
    named = isinstance(y, str)
    if y is None:
        raise TypeError('a table needs its labels: fit(X, y), or the name of their column: fit(table, "COLUMN")')
    if is_plain(data, y if named else None, named):
        data, y = values.apart(data, y) if named else (data, y)
        return request.having(data=data, y=y)
    spec = of_table(data, y if named else None, apart=not named).spec()
    return request.having(features=spec, y=None if named else y)
