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
            for places in _pieces(model, k):
                weights = weights_at(model, k, places)
                writer.write(_columns(model, k, places, known, weights, variances))
            writer.write(_columns(model, k, None, known, model.intercept_[k : k + 1], variances))
    return []


def _pieces(model: Model, k: int) -> Iterator[np.ndarray]:
    """Where the weights of class k that are not 0 stand, ascending."""
    places = np.sort(model.weights[k].nonzero()[-1]) if model.sparse else np.flatnonzero(model.weights[k])
    for a in range(0, places.size, PIECE):
        yield places[a : a + PIECE]


def weights_at(model: Model, k: int, places: np.ndarray) -> np.ndarray:
    """float64 [m]: the weights of class k that stand in ``places`` [m] of the model's."""
    row = model.weights[[k]][:, places].toarray()[0] if model.sparse else model.weights[k, places]
    return np.asarray(row, np.float64)


def _columns(
    model: Model, k: int, places: np.ndarray | None, names: Names, weights: np.ndarray, variances: np.ndarray | None
) -> dict[str, np.ndarray]:
    """A row group; ``places`` None: the row of the bias."""
    n, missing = weights.size, places is None
    found = np.zeros(n, np.int64) if places is None else model.features_at(places).astype(np.int64)
    texts = ["(bias)"] if places is None else names.texts(found)
    columns: dict[str, np.ndarray] = {}
    if not model.regression:
        columns["class"] = np.repeat(model.classes_[[-1 if model.binary else k]], n)
    columns |= {
        "feature": np.ma.array(found, mask=np.full(n, missing)),
        "name": np.array(texts, object),
        "weight": weights,
    }
    if variances is not None:
        values = np.zeros(n) if places is None else variances[k, places]
        columns["variance"] = np.ma.array(values, mask=np.full(n, missing))
    return columns
