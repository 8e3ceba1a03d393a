"""scikit-learn's face of the same methods."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

_OWN_PARAMETERS = ("C",)  # those of the signature that only some methods have; None leaves them to the method


class LinearClassifier(ClassifierMixin, BaseEstimator):
    """A linear classifier trained by any of bigclf's methods, for arrays that fit in memory.

    Parameters
    ----------
    algo : name of the method (``bigclf.algorithms()``).
    loss : the method's loss; None is its first.
    C : price of a unit of loss; None is the method's default, and the only value for a method without ``C``.
    bias : ``"feature"`` (a constant 1, regularised) or None.
    class_weight : None, ``"balanced"`` or a dict class -> weight.
    tol, epochs, max_seconds : when to stop; None is the method's default.
    dtype : of the weights, ``"float64"`` or ``"float32"``.
    random_state : seed of every random choice: an int, None (the seed 0: the same result at every call), or a
        ``RandomState``, from which a seed is drawn.
    params : dict of further parameters of the method by name, or None.
    memory : what training may allocate.

    Attributes
    ----------
    coef_ : [1, d] for two classes, else [K, d].   intercept_ : [1] or [K].   classes_ : [K] ascending.
    n_features_in_ : d.   n_iter_ : epochs made.
    model_ : the ``bigclf.Model``, whose ``result_`` holds history and certificate.
    """

    def __init__(
        self,
        algo: str = "dcd",
        *,
        loss: str | None = None,
        C: float | None = None,
        bias: str | None = "feature",
        class_weight: Any = None,
        tol: float | None = None,
        epochs: int | None = None,
        max_seconds: float | None = None,
        dtype: str = "float64",
        random_state: Any = None,
        params: dict[str, Any] | None = None,
        memory: str | int = "2GB",
    ) -> None:
        self.algo = algo
        self.loss = loss
        self.C = C
        self.bias = bias
        self.class_weight = class_weight
        self.tol = tol
        self.epochs = epochs
        self.max_seconds = max_seconds
        self.dtype = dtype
        self.random_state = random_state
        self.params = params
        self.memory = memory

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearClassifier:
        """Train on X [n, d] (numpy, scipy sparse or pandas) with labels y [n] and, if given, row weights [n]."""
        from bigclf.training import fit

        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32])
        check_classification_targets(y)
        if np.unique(y).size < 2:
            raise ValueError(f"training needs two classes or more; there is one class only: {np.unique(y).tolist()}")
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        self.model_ = fit(X, y, sample_weight=sample_weight, progress=False, **self._keywords())
        self.classes_, self.coef_, self.intercept_ = self.model_.classes_, self.model_.coef_, self.model_.intercept_
        self.n_iter_ = self.model_.result_.epochs
        return self

    def _keywords(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in _OWN_PARAMETERS if getattr(self, name) is not None}
        return {
            "algo": self.algo,
            "loss": self.loss,
            "bias": self.bias,
            "class_weight": self.class_weight,
            "tol": self.tol,
            "epochs": self.epochs,
            "max_seconds": self.max_seconds,
            "dtype": self.dtype,
            "seed": _seed(self.random_state),
            "memory": self.memory,
            **given,
            **(self.params or {}),
        }

    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values: [n] for two classes (positive for the greater), else [n, K]."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        return self.model_.decision_function(X)

    def predict(self, X: Any) -> np.ndarray:
        """The class of every row, [n]."""
        scores = self.decision_function(X)
        return self.classes_[self.model_.codes(scores)]


def _seed(random_state: Any) -> int:
    if random_state is None:
        return 0
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(2**31 - 1))
