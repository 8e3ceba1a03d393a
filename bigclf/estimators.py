"""scikit-learn's face of the same methods."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from bigclf.data.arrays import Arrays
from bigclf.losses import REGRESSION
from bigclf.methods import METHODS
from bigclf.model import PROBABILITY_LOSSES

_OWN_PARAMETERS = ("C", "epsilon")  # those of the signature that only some methods have; None leaves them to the method


class _Linear(BaseEstimator):
    """What both estimators share: from parameters to ``bigclf.fit``, and decision values."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _train(self, X: Any, y: Any, sample_weight: Any, **options: Any) -> None:
        from bigclf.training import fit

        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        self.model_ = fit(X, y, sample_weight=sample_weight, progress=False, **(self._keywords() | options))
        self.coef_, self.intercept_ = self.model_.coef_, self.model_.intercept_
        self.n_iter_ = self.model_.result_.epochs

    def _keywords(self) -> dict[str, Any]:
        given = {name: value for name in _OWN_PARAMETERS if (value := getattr(self, name, None)) is not None}
        return {
            "algo": self.algo,
            "loss": self.loss,
            "bias": None if self.bias == "none" else self.bias,
            "tol": self.tol,
            "epochs": self.epochs,
            "max_seconds": self.max_seconds,
            "dtype": self.dtype,
            "seed": _seed(self.random_state),
            "memory": self.memory,
            **given,
            **(self.params or {}),
        }

    def __getattr__(self, name: str) -> Any:
        """Says of a ``partial_fit`` that is not there who has one."""
        if name == "partial_fit":
            having = ", ".join(method.name for method in METHODS.values() if not method.certificate)
            raise AttributeError(f"algo={self.algo!r} has no partial_fit; those that learn row by row have: {having}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _learns_on(self) -> bool:
        """Whether there is a ``partial_fit``: for methods that learn from a row at a time."""
        return self.algo in METHODS and not METHODS[self.algo].certificate

    def _train_on(self, X: Any, y: Any, sample_weight: Any, classes: Any, **options: Any) -> None:
        """One epoch over these rows, from where the last call ended."""
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        if X.shape[0] == 0:
            raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
        rows = Arrays(X, y, sample_weight, real_labels=classes is None, classes=classes)
        before = getattr(self, "model_", None)
        if before is not None and hasattr(self.random_state, "randint"):  # it would draw another seed
            options["seed"] = before.facts["seed"]
        self._train(rows, None, None, init=before, epochs=1, **options)

    def _decision_values(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        return self.model_.decision_function(X)


class LinearClassifier(ClassifierMixin, _Linear):
    """A linear classifier trained by any of bigclf's methods, for arrays that fit in memory.

    Parameters
    ----------
    algo : name of the method (``bigclf.algorithms()``).
    loss : the method's loss; None is its first.
    C : price of a unit of loss; None is the method's default, and the only value for a method without ``C``.
    bias : ``"feature"`` (a constant 1, regularised) or None.
    class_weight : None, ``"balanced"`` or a dict class -> weight.
    multiclass : ``"one-vs-rest"``, ``"native"`` (all classes at once, where the method can) or ``"auto"``: what it can.
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
        multiclass: str = "auto",
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
        self.multiclass = multiclass
        self.tol = tol
        self.epochs = epochs
        self.max_seconds = max_seconds
        self.dtype = dtype
        self.random_state = random_state
        self.params = params
        self.memory = memory

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearClassifier:
        """Train on X [n, d] (numpy, scipy sparse or pandas) with labels y [n] and, if given, row weights [n]."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32])
        check_classification_targets(y)
        if np.unique(y).size < 2:
            raise ValueError(f"training needs two classes or more; there is one class only: {np.unique(y).tolist()}")
        self._train(X, y, sample_weight, class_weight=self.class_weight, multiclass=self.multiclass)
        self.classes_ = self.model_.classes_
        return self

    @available_if(_Linear._learns_on)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> LinearClassifier:
        """Go over X [n, d] once, in shuffled order, from where the last call ended (online methods only).

        Parameters
        ----------
        y : labels [n].
        classes : every label that will ever come, needed in the first call.
        sample_weight : row weights [n], or None.
        """
        first = not hasattr(self, "model_")
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], reset=first)
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        known = np.unique(classes) if first else self.classes_
        if not first and classes is not None and not np.array_equal(np.unique(classes), known):
            raise ValueError(f"classes={classes!r} is not what the first call was given: {known.tolist()}")
        if known.size < 2:
            raise ValueError(f"training needs two classes or more; there is one class only: {known.tolist()}")
        if self.class_weight == "balanced":
            raise ValueError("class_weight='balanced' needs all rows; compute the weights and give them as a dict")
        self._train_on(X, y, sample_weight, known, class_weight=self.class_weight, multiclass=self.multiclass)
        self.classes_ = self.model_.classes_
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values: [n] for two classes (positive for the greater), else [n, K]."""
        return self._decision_values(X)

    def predict(self, X: Any) -> np.ndarray:
        """The class of every row, [n]."""
        scores = self.decision_function(X)
        return self.model_.said(scores)

    def _gives_probabilities(self) -> bool:
        return self.loss in PROBABILITY_LOSSES

    @available_if(_gives_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Probabilities [n, classes], for ``loss="logistic"`` alone; of more than two classes those of one against the
        rest, made to sum to 1."""
        scores = self.decision_function(X)
        return self.model_.probabilities(scores)

    @available_if(_gives_probabilities)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Their logarithms."""
        return np.log(self.predict_proba(X))


class LinearRegressor(RegressorMixin, _Linear):
    """A linear regression (support vector regression) by a certified method, for arrays that fit in memory.

    Parameters
    ----------
    algo : name of a method with a regression loss.
    loss : ``"epsilon_insensitive"`` or ``"squared_epsilon_insensitive"``.
    C : price of a unit of loss; epsilon : half the width of the tube in which a prediction costs nothing. None is the
        method's default (1 and 0.1).
    bias : ``"feature"`` (a constant 1, regularised) or None.
    tol, epochs, max_seconds, dtype, random_state, params, memory : as of ``LinearClassifier``.

    Attributes
    ----------
    coef_ : [d].   intercept_ : float.   n_features_in_ : d.   n_iter_ : epochs made.
    model_ : the ``bigclf.Model``, whose ``result_`` holds history and certificate.
    """

    def __init__(
        self,
        algo: str = "dcd",
        *,
        loss: str = "epsilon_insensitive",
        C: float | None = None,
        epsilon: float | None = None,
        bias: str | None = "feature",
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
        self.epsilon = epsilon
        self.bias = bias
        self.tol = tol
        self.epochs = epochs
        self.max_seconds = max_seconds
        self.dtype = dtype
        self.random_state = random_state
        self.params = params
        self.memory = memory

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearRegressor:
        """Train on X [n, d] (numpy, scipy sparse or pandas) with numbers y [n] and, if given, row weights [n]."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], y_numeric=True)
        if self.loss not in REGRESSION:
            raise ValueError(f"loss={self.loss!r} learns classes; a regression has {', '.join(REGRESSION)}")
        self._train(X, y, sample_weight)
        self.coef_: Any = self.coef_[0]
        self.intercept_: Any = float(self.intercept_[0])
        return self

    @available_if(_Linear._learns_on)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> LinearRegressor:
        """Go over X [n, d] with numbers y [n] once, in shuffled order, from where the last call ended (online methods
        only)."""
        first = not hasattr(self, "model_")
        X, y = validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], y_numeric=True, reset=first
        )
        self._train_on(X, y, sample_weight, None)
        self.coef_ = self.coef_[0]
        self.intercept_ = float(self.intercept_[0])
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The number predicted for every row, float64 [n]."""
        return self._decision_values(X)


def _seed(random_state: Any) -> int:
    if random_state is None:
        return 0
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(2**31 - 1))
