"""The weights as a Parquet table that every tool reads: class, feature, name, weight, and variance where there is one.

A row for each weight that is not 0; the bias is the row whose feature is null. Of two classes the weights are those of
the greater one (positive: for it); numbers have no classes, and their table no such column.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from bigclf.data.predictions import PredictionWriter
from bigclf.model.explanations import Names, NamesGiven, names_of, variances_of

if TYPE_CHECKING:
    from bigclf.model.model import Model


PIECE = 2**20  # rows at a time


def write(model: Model, path: str, *, names: NamesGiven | None = None) -> list[str]:
    """Write the table; ``names`` as in ``bigclf.model.explanations.names_of``."""
    known, variances = names_of(model, names), variances_of(model)
    mark = {"kind": "weights", "version": 1, "n_features": model.n_features, "method": model.method.get("name")}
    with PredictionWriter(path, mark) as writer:
        for k in range(model.intercept_.size):
            for features in _pieces(model, k):
                weights = weights_at(model, k, features)
                writer.write(_columns(model, k, features, known, weights, variances))
            writer.write(_columns(model, k, None, known, model.intercept_[k : k + 1], variances))
    return []


def _pieces(model: Model, k: int) -> Iterator[np.ndarray]:
    """The features of class k whose weights are not 0, ascending."""
    features = np.sort(model.coef_[k].nonzero()[-1]) if model.sparse else np.flatnonzero(model.coef_[k])
    for a in range(0, features.size, PIECE):
        yield features[a : a + PIECE]


def weights_at(model: Model, k: int, features: np.ndarray) -> np.ndarray:
    """float64 [m]: what class k gives the ``features`` [m]."""
    row = model.coef_[[k]][:, features].toarray()[0] if model.sparse else model.coef_[k, features]
    return np.asarray(row, np.float64)


def _columns(
    model: Model, k: int, features: np.ndarray | None, names: Names, weights: np.ndarray, variances: np.ndarray | None
) -> dict[str, np.ndarray]:
    """A row group; ``features`` None: the row of the bias."""
    n, missing = weights.size, features is None
    found = np.zeros(n, np.int64) if features is None else features.astype(np.int64)
    texts = ["(bias)"] if features is None else names.texts(features)
    columns: dict[str, np.ndarray] = {}
    if not model.regression:
        columns["class"] = np.repeat(model.classes_[[-1 if model.binary else k]], n)
    columns |= {
        "feature": np.ma.array(found, mask=np.full(n, missing)),
        "name": np.array(texts, object),
        "weight": weights,
    }
    if variances is not None:
        values = np.zeros(n) if features is None else variances[k, features]
        columns["variance"] = np.ma.array(values, mask=np.full(n, missing))
    return columns
