"""Rows of tables in memory that cannot be used, left out where that is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigclf.data.bad_rows import MOST_BAD, Reasons, left_out, too_many
from bigclf.data.label_sets import are_sets
from bigclf.errors import DataError
from bigclf.features import values
from bigclf.features.extract import UNLABELLED, extract
from bigclf.features.spec import parse
from bigclf.features.truths import coded
from bigclf.features.values import Bad
from bigclf.request.request import Request


def without_bad_rows(request: Request) -> tuple[Request, list[str]]:
    """The request of a table without its bad rows, if it asks to skip them, and the warning that says so.

    Raises
    ------
    DataError : more rows are bad than ``max_bad_fraction`` allows.
    """
    if request["on_bad_rows"] != "skip" or not values.is_table(request.data):
        return request, []
    spec, y, weights = request["features"], request.y, request["sample_weight"]
    bad, n_rows = Bad(), values.n_rows_of(request.data)
    if any(_length(of) not in (None, n_rows) for of in (y, weights)):  # an error that has its own words
        return request.having(on_bad_rows="error", max_bad_fraction=MOST_BAD), []
    if spec is not None:
        bad |= _of_columns(request.data, spec, own_labels=y is None)
    if y is not None and not are_sets(y):
        bad |= dict.fromkeys(np.flatnonzero(missing(y)).tolist(), UNLABELLED)
    if weights is not None:
        w = np.asarray(weights, np.float64)
        strange = ~((w >= 0) & np.isfinite(w))
        bad |= dict.fromkeys(np.flatnonzero(strange).tolist(), "the weight is missing, negative or infinite")
    limit = request["max_bad_fraction"]
    request = request.having(on_bad_rows="error", max_bad_fraction=MOST_BAD)
    if not bad:
        return request, []
    reasons = Reasons()
    for row, reason in sorted(bad.items()):
        reasons.add(reason, f"row {row}: {reason}")
    if len(bad) > limit * n_rows:
        raise DataError(too_many(reasons, n_rows, limit))
    if len(bad) == n_rows:
        raise DataError(f"all {n_rows:,} rows are bad: {reasons}")
    kept = np.delete(np.arange(n_rows), list(bad))
    rest = request.having(data=values.rows_at(request.data, kept), y=_some(y, kept), sample_weight=_some(weights, kept))
    return rest, [left_out(reasons)]


def _of_columns(table: object, features: object, own_labels: bool) -> Bad:
    """What is wrong with rows of raw columns, as their spec reads them."""
    spec = parse(getattr(features, "features", features))
    columns, n_rows = values.as_columns(table)
    found = extract(spec, columns, n_rows, label=own_labels)
    if not (own_labels and spec.label is not None and spec.label.type == "number"):
        return found.bad
    if coded(np.delete(found.labels, list(found.bad)).tolist()):
        return found.bad
    return extract(spec, columns, n_rows, words=False).bad  # true and false are no numbers beside these


def _length(of: object) -> int | None:
    """How many rows labels or weights have; None where there are none."""
    array: Any = of
    return None if array is None else int(array.shape[0]) if hasattr(array, "shape") else len(array)


def missing(labels: object) -> np.ndarray:
    """Of which rows there is no label: None, NaN, or pandas's NA; bool [n]."""
    array = np.array(labels, dtype=object) if isinstance(labels, list | tuple) else np.asarray(labels)
    if array.dtype.kind == "f":
        return ~np.isfinite(array)
    if array.dtype.kind != "O":
        return np.zeros(array.shape, bool)
    return np.array([one is None or type(one).__name__ == "NAType" or one != one for one in array.ravel()], bool)


def _some(of: object, rows: np.ndarray) -> object:
    """What belongs to these rows, if it stands beside them."""
    array: Any = of
    if array is None or hasattr(array, "iloc"):
        return None if array is None else array.iloc[rows]
    if isinstance(array, list | tuple):
        return [array[row] for row in rows.tolist()]
    return array[rows] if hasattr(array, "tocsr") else np.asarray(array)[rows]
