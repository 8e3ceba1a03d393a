"""Rows with columns that have names: ``y`` may be the label's, and what is no number becomes features by a look.

A spec says what becomes of raw columns. Where none is given, columns that are all numbers are the features as they are,
and of others a spec is proposed, as ``bigclf.suggest`` does.
"""

from __future__ import annotations

import dataclasses
import inspect
import logging
import numbers
from collections.abc import Mapping, Set
from typing import Any, cast

import numpy as np

from bigclf import files
from bigclf.conversion.foreign_rows import is_column
from bigclf.conversion.tables.plain import are_plain, has_vectors, is_plain
from bigclf.conversion.tables.reading import Place, are_raw, format_by_look, is_partitioned, places
from bigclf.conversion.tables.suggest import is_label, of_table, suggest, which_label
from bigclf.data import shards
from bigclf.data.arrays import Arrays
from bigclf.data.dataset import MANIFEST, Dataset
from bigclf.errors import SchemaError
from bigclf.features import values
from bigclf.features.spec import Label, parse
from bigclf.files.formats import COLUMNS
from bigclf.model.model import Model, is_stored
from bigclf.request.request import Request

log = logging.getLogger("bigclf")
HOLD_NO_ROWS = (Model, numbers.Number, bytes, Set, type(None))


def refuse_no_rows(data: object, y: object) -> None:
    """TypeError for one column where rows are meant, and for what holds no rows at all."""
    if is_column(data) and not is_column(y) and (values.is_table(y) or getattr(y, "ndim", 0) == 2):
        raise TypeError("X is one column and y has several: the rows come first, fit(X, y)")
    if is_column(data) and not isinstance(data, np.ndarray):  # whose shape is told later
        raise TypeError("X is one column: rows are a frame, such as frame[[NAME]], or an array [row, feature]")
    if isinstance(data, HOLD_NO_ROWS) or inspect.isroutine(data):
        what = "None" if data is None else f"a {type(data).__name__}"
        raise TypeError(f"X is {what}: rows are files (a path, a glob, a list of them), a table, or an"
                        " array [row, feature]")  # fmt: skip


def refuse_label_among(of: object, y: object, features: object = None) -> None:
    """ValueError where the labels are a column of the frame that becomes a feature, too: every model learns that from
    itself. ``features`` : a spec of them, which may leave it out; None: all columns become some."""
    name, data = getattr(y, "name", None), cast("Any", of)
    if not isinstance(name, str | int | tuple) or not values.is_table(data):
        return
    if name not in list(getattr(data, "columns", ())):
        return
    column = data[name]
    if type(column) is type(y) and hasattr(column, "equals") and column.equals(y):
        if features is not None:
            if name in parse(getattr(features, "features", features)).columns:
                raise ValueError(f"y is the column {name!r} of X, and features makes one of it: leave it out there")
            return
        raise ValueError(f"y is the column {name!r} of X itself: give it by its name, y={name!r}, or leave it out of X")


def by_name(request: Request) -> Request:
    """The request with its labels, weights and rows to validate on where rows have them, and with a spec of the
    features where one is needed.

    Raises
    ------
    TypeError : ``y`` or ``sample_weight`` names a column of what has none, or another one than the spec of the
        features. SchemaError : there is no such column.
    """
    if isinstance(request.y, Mapping):
        request = _of_several(request)
    if request.y is None and values.is_table(request.data) and request["features"] is None:
        request = request.having(y=_guessed(request.data))
    label, weight = request.y, request["sample_weight"]
    named = isinstance(weight, str)
    request = _weighted(request.having(sample_weight=None), weight) if named else _of_label(request)
    return _with_validation(request, label if isinstance(label, str) else None)


def _of_several(request: Request) -> Request:
    """With a spec whose label is what ``y`` says of it.

    Raises
    ------
    TypeError : rows without names of columns, or a spec that has a label.
    """
    data, features = request.data, request["features"]
    if isinstance(data, Dataset | Arrays) or not (values.is_table(data) or is_stored(data)):
        raise TypeError("y says which columns hold labels, and only tables and raw files have columns with names")
    if features is None:
        told = None if request["format"] is None else {"format": request["format"]}
        return request.having(features=suggest(data, told, request.y).spec(), y=None)
    spec = parse(features)
    if spec.label is not None:
        raise TypeError("y says what the label is, and so does features: leave one out")
    return request.having(features=dataclasses.replace(spec, label=parse({"label": request.y}).label), y=None)


def _of_label(request: Request) -> Request:
    """With the labels where rows have them, and with a spec where one is needed."""
    data, y = request.data, request.y
    if isinstance(y, str) and request["features"] is not None:
        return request.having(features=_labelled(request["features"], y), y=None)
    form = request["format"]
    stored = is_stored(data) and not isinstance(data, Dataset) and request["columns"] is None
    if isinstance(y, str) and form in COLUMNS and form != "text" and stored:
        return request.having(features=suggest(data, {"format": form}, y).spec(), y=None)
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


def _weighted(request: Request, weight: str) -> Request:
    """With the labels, and with the weights of the column that is named.

    Raises
    ------
    TypeError : rows without names of columns, or shards. SchemaError : there is no such column.
    """
    data = request.data
    if isinstance(data, Dataset | Arrays) or not (values.is_table(data) or is_stored(data)):
        what = "shards bring their own weights" if is_stored(data) else "an array has no column names; pass the weights"
        raise TypeError(f"sample_weight is a column name, but {what}")
    found = _of_label(request)
    if found["features"] is not None:
        spec = parse(found["features"])
        if spec.weight not in (None, weight):
            raise TypeError(f"sample_weight names the column {weight!r} as the weight, and features {spec.weight!r}")
        terms = spec.terms if request["features"] is not None else tuple(
            term for term in spec.terms if term.columns != (weight,)
        )  # fmt: skip
        if found.y is None:  # the labels are a column too
            return found.having(features=dataclasses.replace(spec, weight=weight, terms=terms))
        found = found.having(features=dataclasses.replace(spec, weight=None, terms=terms))
    if found["format"] is not None:
        raise TypeError("sample_weight has no effect with text of sparse rows, which bring their own weights")
    if values.is_table(found.data):
        rows, weights = values.apart(found.data, weight)
        return found.having(data=rows, sample_weight=weights)
    return found.having(columns={**(found["columns"] or {}), "weight": weight})


def _with_validation(request: Request, label: str | None) -> Request:
    """With rows to validate on that are read as those to train on: of tables of numbers (X, y), whose labels stand in
    the column ``label``, or in one that is called as labels are. Of raw columns the spec says what they become.

    Raises
    ------
    TypeError : they have no labels.
    """
    rows = request["validate"]
    if request["features"] is not None or isinstance(rows, Dataset | Arrays):
        return request
    if values.is_table(rows):
        label = label or _guessed(rows, "validate is a table without labels: give validate=(X, y)")
        return request.having(validate=values.apart(rows, label))
    paths: files.Paths = rows
    if label is None or request["columns"] is not None or not is_stored(rows) or not are_plain(paths, label):
        return request
    return request.having(validate=Dataset(paths, columns={"features": "*", "label": label}))


def _guessed(table: object, wanted: str = "a table needs its labels: fit(X, y)") -> str:
    """The one column that is called as labels are.

    Raises
    ------
    TypeError : there is none, or there are several.
    """
    found = of_table(table, None)
    labels = [column.name for column in found.columns if is_label(column.name)]
    if len(labels) != 1:
        raise TypeError(f"{wanted}; or {which_label(found, 'y={!r}')}")
    _tell_guess(labels[0])
    return labels[0]


def _tell_guess(label: str) -> None:
    log.warning('predicting column %r, guessed from its name; pass y="COLUMN" to choose another', label)


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
    place = places(data)[0]
    form = format_by_look(place.path)
    if form is None and not _is_unread_table(data, place):
        return request  # Parquet says itself what it holds, but not what the directories that it lies in say
    if form is not None and form not in COLUMNS:
        return request.having(format=form)
    if form == "text":
        return request.having(features=parse({"features": [], "reader": {"format": form}}))
    found = suggest(data)
    spec = found.spec()
    if spec.label is None or not is_label(spec.label.column):
        asked = f"{which_label(found, 'y={!r}')} bigclf.suggest lists all the columns"
        raise SchemaError(asked, file=place.path) if form is None else TypeError(f"{data}: {asked}")
    _tell_guess(spec.label.column)
    return request.having(features=spec)


def _is_unread_table(data: files.Paths, place: Place) -> bool:
    """Whether it is Parquet of raw columns that its names do not explain: cut by the values of columns, with other
    columns than numbers, or without one that is called as a label is."""
    if files.is_directory(place.path) or not are_raw(data, place) or has_vectors(place.path):
        return False
    if is_partitioned(data):
        return True
    with shards.open_parquet(place.path) as file:
        schema = file.schema_arrow
    labels = [name for name in schema.names if is_label(name)]
    try:
        shards.find_layout(schema, None, place.path)
    except SchemaError as error:
        return error.column is None and len(labels) < 2
    return False


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
