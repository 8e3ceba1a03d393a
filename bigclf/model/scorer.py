"""One row at a time, in microseconds: what a service calls for each request.

Measured on a busy machine: 4 to 5 microseconds for a row of 14 to 80 entries given as arrays, 9 to 15 as a dict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigclf.compiled.jit import kernel
from bigclf.model.explanations import entries_by_name, entries_of

if TYPE_CHECKING:
    from bigclf.model.model import Model


@kernel
def score_one(weights, bias, features, values, out):  # type: ignore[no-untyped-def]
    """out[k] = sum_p values[p] weights[features[p], k] + bias[k] for weights [d, K], in float64; how many features are
    not below d, which count as zero."""
    unknown = 0
    for k in range(bias.size):
        out[k] = bias[k]
    for p in range(features.size):
        j = features[p]
        if j < 0 or j >= weights.shape[0]:
            unknown += 1
            continue
        for k in range(bias.size):
            out[k] += np.float64(weights[j, k]) * values[p]
    return unknown


@kernel
def score_one_sparse(indptr, indices, data, bias, features, values, out):  # type: ignore[no-untyped-def]
    """The same for weights [K, d] in columns (CSC)."""
    unknown = 0
    for k in range(bias.size):
        out[k] = bias[k]
    for p in range(features.size):
        j = features[p]
        if j < 0 or j >= indptr.size - 1:
            unknown += 1
            continue
        for q in range(indptr[j], indptr[j + 1]):
            out[indices[q]] += np.float64(data[q]) * values[p]
    return unknown


class Scorer:
    """Scores single rows of a model; made by ``Model.scorer()``. One thread at a time may use it.

    A row is a dict feature -> value, a pair (features, values) of sequences or arrays (int64 and float64 are the
    fastest), a sparse matrix of one row, an array [d], or a pandas Series or a dict, which are read by their names
    where the model has names of columns. Raw columns are made features as ``Model.encode`` does it: a millisecond.

    Parameters
    ----------
    model : the ``Model``; its weights are copied, the classes of a feature together.
    unseen : ``"error"``, or ``"ignore"``: features that the model does not know count as zero.
    """

    def __init__(self, model: Model, unseen: str = "error") -> None:
        if unseen not in ("error", "ignore"):
            raise ValueError(f"unseen must be 'ignore' or 'error', not {unseen!r}")
        self._model, self._strict, self._bias = model, unseen == "error", model.intercept_
        self._ids = model.feature_ids
        c = model.weights
        arrays = (c.indptr, c.indices, c.data) if model.sparse else (np.ascontiguousarray(c.T),)
        self._arrays = tuple(map(np.array, arrays))
        self._kernel: Any = score_one_sparse if model.sparse else score_one

    def __call__(self, row: object) -> float | np.ndarray:
        """The decision value of a row: a float for two classes and for numbers, else float64 [K].

        Raises
        ------
        ValueError : a feature that the model does not know, or a row that is none.
        """
        named = not isinstance(row, tuple | np.ndarray | dict) or isinstance(next(iter(row), 0), str)
        features, values, lost = entries_by_name(self._model, row) if named else (*entries_of(row), 0)
        if lost and self._strict:
            raise ValueError(f"{lost} of the row's categories are none that the model knows; unseen='ignore' counts "
                             "them as zero")  # fmt: skip
        if self._model.voted:
            return self._voted(features, values)
        out = np.empty(self._bias.size)
        if self._ids is None:
            unknown = self._kernel(*self._arrays, self._bias, features, values, out)
        else:
            unknown = np.count_nonzero((features < 0) | (features >= self._ids.n_features))
            places, _ = self._ids.places(features)
            self._kernel(*self._arrays, self._bias, places.astype(np.int64), values, out)
        if unknown and self._strict:
            raise ValueError(
                f"{unknown} of the row's features are none of the model's 0 to {self._model.n_features - 1}; "
                "unseen='ignore' counts them as zero"
            )
        return float(out[0]) if out.size == 1 else out

    def predict(self, row: object) -> object:
        """The class of a row, in the type of the training labels, or the number."""
        label = self._model.said(np.atleast_1d(self(row)) if self._bias.size == 1 else np.asarray(self(row))[None])[0]
        return label.item() if hasattr(label, "item") else label

    def probabilities(self, row: object) -> np.ndarray:
        """Probabilities [classes] of a row; AttributeError where the model has none."""
        if reason := self._model.no_probabilities():
            raise AttributeError(reason)
        score = self(row)
        shares: np.ndarray = self._model.probabilities(
            np.atleast_1d(score) if self._bias.size == 1 else np.asarray(score)[None]
        )[0]
        return shares

    def _voted(self, features: np.ndarray, values: np.ndarray) -> float | np.ndarray:
        import scipy.sparse

        places = (np.zeros(features.size, np.int64), features)
        width = max(self._model.n_features, features.max(initial=0) + 1)
        row = scipy.sparse.csr_matrix((values, places), shape=(1, width))
        return self._model.decision_function(row, unseen="error" if self._strict else "ignore")[0]
