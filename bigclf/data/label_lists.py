"""Lists of labels whose numbers are floats, as scikit-learn's readers give them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import numpy as np

from bigclf.data.label_sets import are_sets


def are_lists(y: object) -> bool:
    """Whether every row has a list of labels, not a line of an indicator matrix."""
    return are_sets(y) and not hasattr(y, "tocsr") and getattr(y, "ndim", 1) == 1


def are_no_matrix(y: object) -> bool:
    """Whether they are lists that cannot be the lines of an indicator matrix, of 0 and 1 and of one length."""
    if not are_lists(y):
        return False
    rows = [list(row) if hasattr(row, "__iter__") else [] for row in cast(Iterable[object], y)]
    if {len(row) for row in rows} == {1}:  # a column of labels, which scikit-learn takes
        return False
    return len({len(row) for row in rows}) > 1 or not all(one in (0, 1) for row in rows for one in row)


def with_whole_labels(y: object) -> object:
    """Labels with integers in the place of floats, where they are lists of floats without a fraction
    (``load_svmlight_file(multilabel=True)``); others as they are."""
    if not are_lists(y):
        return y
    rows = cast(list[Iterable[object]], y)
    floats = (
        not isinstance(row, str) and hasattr(row, "__iter__") and all(_is_whole(one) for one in row) for row in rows
    )
    return [[int(cast(float, one)) for one in row] for row in rows] if all(floats) else y


def _is_whole(one: object) -> bool:
    """Whether it is a number without a fraction below 2^53."""
    if isinstance(one, float | np.floating):
        return float(one).is_integer() and abs(float(one)) < 2**53
    return isinstance(one, int | np.integer) and not isinstance(one, bool)
