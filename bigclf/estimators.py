"""scikit-learn's face of the same methods."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from bigclf.api.fit import fit
from bigclf.conversion.tables.raw_rows import table_block
from bigclf.conversion.tables.suggest import Suggestion
from bigclf.data.arrays import Arrays, no_numbers_text
from bigclf.data.label_lists import are_no_matrix
from bigclf.data.label_sets import are_sets
from bigclf.errors import DataError
from bigclf.features.encode import Finisher, learn, names_of
from bigclf.features.extract import extract
from bigclf.features.spec import Spec, parse
from bigclf.features.tally import Tally
from bigclf.features.values import as_columns
from bigclf.maths.block import explicit_values
from bigclf.maths.losses import REGRESSION
from bigclf.methods import METHODS
from bigclf.metrics.figures import AnyEvaluation, evaluate
from bigclf.model.model import PROBABILITY_LOSSES, Model, is_stored
from bigclf.request.columns_by_name import refuse_label_among
from bigclf.units import near

if TYPE_CHECKING:
    import scipy.sparse
    from numpy.typing import ArrayLike
    from sklearn.utils import Tags

    from bigclf.data.dataset import Stored


T = TypeVar("T")
RandomState: TypeAlias = int | np.integer | np.random.RandomState | None
Features: TypeAlias = "Spec | Suggestion | str | Sequence[Mapping[str, object]] | Mapping[str, object]"
_ROWS: Any = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}  # float32 is trained on where it lies


def _own(numbers: bool) -> list[str]:
    """Names of the parameters that some method has for labels that are numbers, or classes."""

    def of_this_kind(losses: tuple[str, ...]) -> bool:
        return any((loss in REGRESSION) == numbers for loss in losses)

    able = [m for m in METHODS.values() if of_this_kind(m.losses) or not (m.losses or numbers)]
    return list(dict.fromkeys(p.name for m in able for p in m.params if not p.losses or of_this_kind(p.losses)))


def _with_own_parameters(numbers: bool) -> Callable[[type], type]:
    """Gives ``__init__`` the signature that scikit-learn reads parameters from: in the place of ``**params`` each of
    the methods' own, with the default None."""

    def widened(kind: type[Any]) -> type[object]:
        signature = inspect.signature(kind.__init__)
        named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        further = [name for name in _own(numbers) if name not in signature.parameters]
        added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in further]
        kind.__init__.__signature__ = signature.replace(parameters=[*named, *added])
        kind._further, kind._methods_own = further, _own(numbers)
        return kind

    return widened


class _Linear(BaseEstimator):
    """What both estimators share: parameters of the methods, from there to ``bigclf.fit``, and decision values."""

    algo: Any
    bias: str | None
    random_state: RandomState
    model_: Model
    _further: list[str] = []  # parameters of methods that have no line of their own in ``__init__``
    _methods_own: list[str] = []  # all of them

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _take(self, given: Mapping[str, float | str | None]) -> None:
        for name in given:
            if name not in self._further:
                raise TypeError(f"{type(self).__name__} got an unexpected parameter {name!r}: no method has it"
                                f"{near(name, self.get_params())}")  # fmt: skip
            if given[name] is not None:  # the others are no attributes: ``alpha`` there means something to others
                setattr(self, name, given[name])

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """The parameters by name, those of other methods among them (None); ``deep`` has nothing to go into."""
        return {name: getattr(self, name, None) for name in self._get_param_names()}

    def _method(self) -> str:
        """The method by name, or ``"auto"``."""
        return self.algo

    def _keywords(self) -> dict[str, Any]:
        given = {name: value for name in self._methods_own if (value := getattr(self, name, None)) is not None}
        passed = ("loss", "penalty", "tol", "epochs", "max_seconds", "dtype", "memory", "groups", "workers")
        return {
            **{name: getattr(self, name) for name in passed},
            "algo": self._method(),
            "bias": None if self.bias == "none" else self.bias,
            "seed": _seed(self.random_state),
            **given,
        }

    # Training

    def _train(self, X: object, y: object, sample_weight: object, **options: Any) -> None:
        if sample_weight is not None and not is_stored(X):
            sample_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        self.model_ = fit(X, y, sample_weight=sample_weight, progress=False, **(self._keywords() | options))
        self.coef_, self.intercept_ = self.model_.coef_, self.model_.intercept_
        self.n_iter_ = self.model_.result_.epochs
        if is_stored(X):
            self.n_features_in_ = self.model_.n_features
            self.__dict__.pop("feature_names_in_", None)

    def __getattr__(self, name: str) -> Any:
        """Says of a ``partial_fit`` or probabilities that are not there who has them."""
        if name == "partial_fit":
            having = ", ".join(method.name for method in METHODS.values() if not method.certificate)
            raise AttributeError(f"algo={self._method()!r} has no partial_fit; online methods have it: {having}")
        if name in ("predict_proba", "predict_log_proba") and hasattr(type(self), name):
            loss = getattr(self, "loss", None)  # where it is set: attributes are asked for before that, too
            own = f"loss={loss!r}" if loss is not None else f"algo={getattr(self, 'algo', None)!r}"
            raise AttributeError(
                f"{name} needs a model trained with loss='logistic', or calibrated "
                f"(bigclf.calibrate(estimator.model_, X, y)); this one has {own}"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _learns_on(self) -> bool:
        """Whether there is a ``partial_fit``: for methods that learn from a row at a time."""
        return self._method() in METHODS and not METHODS[self._method()].certificate

    def _train_on(
        self,
        X: np.ndarray | scipy.sparse.csr_matrix,
        y: object,
        sample_weight: object,
        classes: np.ndarray | None,
        **options: object,
    ) -> None:
        """One epoch over these rows, from where the last call ended."""
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        if X.shape[0] == 0:
            raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
        rows = Arrays(X, y, sample_weight, real_labels=classes is None, classes=classes)
        before = getattr(self, "model_", None)
        if before is not None and hasattr(self.random_state, "randint"):
            options["seed"] = before.facts["seed"]  # it would draw another one
        self._train(rows, None, None, init=before, epochs=1, **options)

    # Predicting

    def _checked(self, X: object) -> object:
        """Rows to predict: shards as they are, else checked as scikit-learn does."""
        check_is_fitted(self)
        with _naming_columns(X):
            return X if is_stored(X) else validate_data(self, X, reset=False, **_ROWS)

    def _measured(self, X: Stored, y: object, sample_weight: object) -> AnyEvaluation:
        """``evaluate`` on shards, which have their own labels."""
        check_is_fitted(self)
        if y is not None or sample_weight is not None:
            raise TypeError("shards have labels and weights of their own: y and sample_weight have no effect")
        return evaluate(self.model_, X)


@contextlib.contextmanager
def _naming_columns(X: object) -> Iterator[None]:
    """What is said of a text among numbers names the column of the frame X that holds it."""
    try:
        yield
    except ValueError as error:
        if "could not convert string" not in str(error):
            raise
        raise ValueError(no_numbers_text(X, error)) from None


@_with_own_parameters(numbers=False)
class LinearClassifier(ClassifierMixin, _Linear):
    """A linear classifier trained by any of bigclf's methods.

    Parameters
    ----------
    algo : name of the method (``bigclf.algorithms()``), or ``"auto"``: chosen by the rows, and of the logistic
        loss unless another is named.
    loss, penalty : the method's loss and penalty; None is its first.
    C : cost parameter; None is the method's default, and the only value for a method without ``C``.
    bias : ``"feature"`` (a constant 1, regularised), ``"free"`` (not regularised, where the method can) or None.
    class_weight : None, ``"balanced"`` or a dict class -> weight.
    multiclass : ``"one-vs-rest"``, ``"native"`` (all classes at once, where the method can) or ``"auto"``: what it can.
    tol, epochs, max_seconds : when to stop; None is the method's default.
    dtype : of the weights, ``"float64"`` or ``"float32"``.
    random_state : seed of every random choice: an int, None (the seed 0: the same result at every call), or a
        ``RandomState``, from which a seed is drawn.
    memory : what training may allocate.
    groups, workers : virtual workers and who makes their visits, as in ``bigclf.fit``.
    params : further parameters of the method by name, such as ``r`` of AROW; None is the method's default. They are
        parameters like any other to ``set_params``, ``clone`` and searches.

    Attributes
    ----------
    coef_ : [1, d] for two classes, else [K, d].   intercept_ : [1] or [K].   classes_ : [K] ascending.
    n_features_in_ : d.   n_iter_ : epochs made.
    feature_names_in_ : names of the columns, object [d], where X had such.
    model_ : the ``bigclf.Model``, whose ``result_`` holds history and certificate.
    """

    def __init__(
        self,
        algo: str = "auto",
        *,
        loss: str | None = None,
        penalty: str | None = None,
        C: float | None = None,
        bias: str | None = "feature",
        class_weight: str | Mapping[Any, float] | None = None,
        multiclass: str = "auto",
        tol: float | None = None,
        epochs: int | None = None,
        max_seconds: float | None = None,
        dtype: str = "float64",
        random_state: RandomState = None,
        memory: str | int = "2GB",
        groups: int | None = None,
        workers: object = None,
        **params: float | str | None,
    ) -> None:
        self.algo = algo
        self.loss = loss
        self.penalty = penalty
        self.C = C
        self.bias = bias
        self.class_weight = class_weight
        self.multiclass = multiclass
        self.tol = tol
        self.epochs = epochs
        self.max_seconds = max_seconds
        self.dtype = dtype
        self.random_state = random_state
        self.memory = memory
        self.groups = groups
        self.workers = workers
        self._take(params)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        together = self.algo in METHODS and METHODS[self.algo].all_classes
        tags.classifier_tags.multi_label = self.multiclass != "native" and not together
        return tags

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> LinearClassifier:
        """Train.

        Parameters
        ----------
        X : [n, d] numpy, scipy sparse or pandas; or shards (path, directory, glob, list of them, Dataset).
        y : labels [n], or where rows have several labels each an indicator matrix [n, K], dense or sparse; shards bring
            theirs.
        sample_weight : row weights [n], at least 0, or None; shards bring theirs.

        Raises
        ------
        TypeError, ValueError : parameters that have no effect, rows that make no sense; see ``bigclf.fit``.
        """
        if not is_stored(X):
            _refuse_lists(y)
            refuse_label_among(X, y)
            with _naming_columns(X):
                X, labels = validate_data(self, X, _there(self, y), multi_output=are_sets(y), **_ROWS)
            check_classification_targets(labels)
            if not are_sets(labels) and np.unique(labels).size < 2:
                raise ValueError(f"training needs two classes or more; there is one class only: {np.unique(labels)}")
            y = labels
        self._train(X, y, sample_weight, class_weight=self.class_weight, multiclass=self.multiclass)
        self.classes_ = self.model_.classes_
        self._sparse_labels = is_stored(X) or hasattr(y, "tocsr")
        return self

    @available_if(_Linear._learns_on)
    def partial_fit(
        self, X: object, y: object, classes: ArrayLike | None = None, sample_weight: object = None
    ) -> LinearClassifier:
        """Go over X [n, d] once, in shuffled order, from where the last call ended (online methods only).

        Parameters
        ----------
        y : labels [n].
        classes : every label that will ever come, needed in the first call.
        sample_weight : row weights [n], or None.
        """
        first = not hasattr(self, "model_")
        with _naming_columns(X):
            rows, labels = validate_data(self, X, y, reset=first, **_ROWS)
        if first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        known = np.unique(classes) if first and classes is not None else self.classes_
        if not first and classes is not None and not np.array_equal(np.unique(classes), known):
            raise ValueError(f"classes={classes!r} is not what the first call was given: {known.tolist()}")
        if known.size < 2:
            raise ValueError(f"training needs two classes or more; there is one class only: {known.tolist()}")
        if self.class_weight == "balanced":
            raise ValueError("class_weight='balanced' needs all rows; compute the weights and give them as a dict")
        self._train_on(rows, labels, sample_weight, known, class_weight=self.class_weight, multiclass=self.multiclass)
        self.classes_ = self.model_.classes_
        return self

    def decision_function(self, X: object) -> np.ndarray:
        """Decision values of X [n, d] or shards, float64: [n] for two classes (positive for the greater), else
        [n, K]."""
        X = self._checked(X)
        values: np.ndarray = self.model_.decision_function(X)
        return values

    def predict(self, X: object) -> np.ndarray | scipy.sparse.csr_matrix:
        """The class of every row of X [n, d] or shards, [n] in the type of the labels.

        Trained on an indicator matrix it is one, int [n, K]: scipy CSR where that was sparse, or of shards.
        """
        X = self._checked(X)
        labels: Any = self.model_.predict(X)
        if self.model_.multilabel and not self._sparse_labels:
            return np.asarray(labels.toarray(), np.int64)
        return labels  # type: ignore[no-any-return]

    def score(self, X: object, y: object = None, sample_weight: object = None) -> float:
        """The share of rows of X [n, d] that get their own label y [n], by ``sample_weight`` [n] where it is given; of
        shards every row counts once."""
        if is_stored(X):
            figures = self._measured(X, y, sample_weight)
            return float(figures["subset_accuracy" if self.model_.multilabel else "accuracy"])
        return float(super().score(X, y, sample_weight))

    def _gives_probabilities(self) -> bool:
        model = getattr(self, "model_", None)
        return (self._own_loss() if model is None else model.method.get("loss")) in PROBABILITY_LOSSES

    def _own_loss(self) -> str | None:
        """The loss by name, as far as the parameters say which."""
        return "logistic" if self.loss is None and self.algo == "auto" and self.epochs != 1 else self.loss

    @available_if(_gives_probabilities)
    def predict_proba(self, X: object) -> np.ndarray:
        """Probabilities float64 [n, classes], for ``loss="logistic"`` alone; of more than two classes those of one
        against the rest, made to sum to 1; of several labels a row each label's own. Other methods have them after
        ``bigclf.calibrate(estimator.model_, ...)`` or in scikit-learn's ``CalibratedClassifierCV``."""
        scores = self.decision_function(X)
        probabilities: np.ndarray = self.model_.probabilities(scores)
        return probabilities

    @available_if(_gives_probabilities)
    def predict_log_proba(self, X: object) -> np.ndarray:
        """Their logarithms, float64 [n, classes]."""
        return np.log(self.predict_proba(X))


@_with_own_parameters(numbers=True)
class LinearRegressor(RegressorMixin, _Linear):
    """A linear regression by any of bigclf's methods that have a loss for numbers: support vector regression, ridge,
    Lasso, elastic net.

    Parameters
    ----------
    algo : name of such a method, or ``"auto"``; None is ``"newglmnet"`` for the penalties ``"l1"`` and
        ``"elastic_net"``, else ``"dcd"``.
    loss : ``"epsilon_insensitive"``, ``"squared_epsilon_insensitive"`` or ``"squared"``; None is the method's first.
    C : cost parameter; epsilon : half the width of the tube in which a prediction costs nothing. None is the
        method's default (1 and 0.1).
    penalty, bias, tol, epochs, max_seconds, dtype, random_state, memory, groups, workers, params : as of
        ``LinearClassifier``.

    Attributes
    ----------
    coef_ : [d].   intercept_ : float.   n_features_in_ : d.   n_iter_ : epochs made.
    feature_names_in_ : names of the columns, object [d], where X had such.
    model_ : the ``bigclf.Model``, whose ``result_`` holds history and certificate.
    """

    def __init__(
        self,
        algo: str | None = None,
        *,
        loss: str | None = None,
        penalty: str | None = None,
        C: float | None = None,
        epsilon: float | None = None,
        bias: str | None = "feature",
        tol: float | None = None,
        epochs: int | None = None,
        max_seconds: float | None = None,
        dtype: str = "float64",
        random_state: RandomState = None,
        memory: str | int = "2GB",
        groups: int | None = None,
        workers: object = None,
        **params: float | str | None,
    ) -> None:
        self.algo = algo
        self.loss = loss
        self.penalty = penalty
        self.C = C
        self.epsilon = epsilon
        self.bias = bias
        self.tol = tol
        self.epochs = epochs
        self.max_seconds = max_seconds
        self.dtype = dtype
        self.random_state = random_state
        self.memory = memory
        self.groups = groups
        self.workers = workers
        self._take(params)

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> LinearRegressor:
        """Train on X [n, d] (numpy, scipy sparse or pandas) with numbers y [n] and, if given, row weights
        ``sample_weight`` [n]; or on shards, which bring both.

        Raises
        ------
        TypeError, ValueError : parameters that have no effect, rows that make no sense; see ``bigclf.fit``.
        """
        if not is_stored(X):
            refuse_label_among(X, y)
            with _naming_columns(X):
                X, y = validate_data(self, X, _there(self, y), y_numeric=True, **_ROWS)
        return self._keep(lambda: self._train(X, y, sample_weight, loss=self._own_loss()))

    @available_if(_Linear._learns_on)
    def partial_fit(self, X: object, y: object, sample_weight: object = None) -> LinearRegressor:
        """Go over X [n, d] with numbers y [n] once, in shuffled order, from where the last call ended (online methods
        only)."""
        with _naming_columns(X):
            rows, labels = validate_data(self, X, y, y_numeric=True, reset=not hasattr(self, "model_"), **_ROWS)
        return self._keep(lambda: self._train_on(rows, labels, sample_weight, None, loss=self._own_loss()))

    def _keep(self, train: Callable[[], None]) -> LinearRegressor:
        train()
        self.coef_: Any = self.coef_[0]
        self.intercept_: Any = float(self.intercept_[0])
        return self

    def _has_corners(self) -> bool:
        """Whether the penalty makes exact zeros."""
        return self.penalty in ("l1", "elastic_net")

    def _method(self) -> str:
        return self.algo or ("newglmnet" if self._has_corners() else "dcd")

    def _own_loss(self) -> str | None:
        """The loss by name; ValueError where it is for classes."""
        algo = self._method()
        if algo == "auto":
            return self.loss or ("squared" if self._has_corners() else "epsilon_insensitive")
        if algo not in METHODS:
            return self.loss  # ``fit`` says so
        own = [loss for loss in METHODS[algo].losses if loss in REGRESSION]
        if not own:
            having = ", ".join(m.name for m in METHODS.values() if any(loss in REGRESSION for loss in m.losses))
            raise ValueError(f"algo={algo!r} is for classes; for regression use {having}")
        if self.loss is not None and self.loss not in REGRESSION:
            raise ValueError(f"loss={self.loss!r} is for classes; for regression use {', '.join(own)}")
        return self.loss or own[0]

    def predict(self, X: object) -> np.ndarray:
        """The number predicted for every row of X [n, d] or shards, float64 [n]."""
        X = self._checked(X)
        numbers: np.ndarray = self.model_.predict(X)
        return numbers

    def score(self, X: object, y: object = None, sample_weight: object = None) -> float:
        """R^2 of the numbers predicted for X [n, d] against y [n], by ``sample_weight`` [n] where it is given; of
        shards every row counts once."""
        if is_stored(X):
            r2 = self._measured(X, y, sample_weight)["r2"]
            return float("nan") if r2 is None else float(r2)
        return float(super().score(X, y, sample_weight))


class FeatureTransformer(TransformerMixin, BaseEstimator):
    """Raw columns into features as a spec declares them: what ``bigclf.convert(..., features=spec)`` makes of files, of
    tables in memory.

    Parameters
    ----------
    features : the spec: a list of terms such as ``[{"numeric": ["age"]}, {"categorical": ["city"]}]``, or a table, YAML
        or ``Spec`` (``bigclf/features/spec.py``), or what ``bigclf.suggest`` proposes; its label and weight are left
        aside.
    sparse_output : whether ``transform`` gives a CSR matrix; else an array, for ``set_output`` and dense learners.

    Attributes
    ----------
    n_features_in_, feature_names_in_ : columns of the table and their names, object [n_features_in_].
    learned_ : what one read of the table taught (means, categories, frequencies).
    """

    def __init__(self, features: Features, *, sparse_output: bool = True) -> None:
        self.features = features
        self.sparse_output = sparse_output

    def fit(self, X: object, y: object = None) -> FeatureTransformer:
        """Learn from a table X [n rows] (pandas, Polars, Arrow, or columns by name) what the spec asks for; y has no
        part in it.

        Raises
        ------
        SchemaError : a spec that makes no sense, a column that is missing.   DataError : naming a row, a bad value.
        """
        spec, (columns, n_rows) = self._spec(), as_columns(X)
        tally = Tally(spec)
        found = extract(spec, columns, n_rows, tally, label=False)
        if found.bad:
            row, reason = min(found.bad.items())
            raise DataError(reason, row=row)
        self.learned_ = learn(spec, tally)
        self._finisher = Finisher(spec, self.learned_)
        self.feature_names_in_ = np.array(list(columns), object)
        self.n_features_in_ = len(columns)
        return self

    def transform(self, X: object) -> np.ndarray | scipy.sparse.csr_matrix:
        """Features float32 [n, features] of a table X with the same columns."""
        import scipy.sparse

        check_is_fitted(self)
        block = table_block(self._finisher, X)
        indices = block.indices.view(np.int32 if block.indices.dtype.itemsize == 4 else np.int64)
        shape = block.n_rows, self.learned_.n_features
        rows = scipy.sparse.csr_matrix((explicit_values(block), indices, block.indptr), shape)
        return rows if self.sparse_output else rows.toarray()

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """Names of the features, object [features]; ``input_features`` has no part in them."""
        check_is_fitted(self)
        names = names_of(self._finisher.spec, self.learned_, range(self.learned_.n_features))
        return np.array(names, object)

    def _spec(self) -> Spec:
        if isinstance(self.features, Suggestion):
            return self.features.spec()
        return parse({"features": self.features} if isinstance(self.features, list | tuple) else self.features)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        tags.input_tags.two_d_array = False  # columns have names
        return tags


def _there(estimator: BaseEstimator, y: T) -> T:
    """``y``; ValueError where there is none, in the words of scikit-learn's own estimators."""
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"{name} requires y to be passed, but the target y is None; only shards bring their labels")
    return y


def _refuse_lists(y: object) -> None:
    """ValueError where every row has a list of labels, which scikit-learn's estimators take no longer."""
    if are_no_matrix(y):
        raise ValueError(
            "y is a list of labels for each row, and scikit-learn's estimators take an indicator matrix [n, K]: "
            "sklearn.preprocessing.MultiLabelBinarizer().fit_transform(y) makes one; bigclf.fit(X, y) takes the lists"
        )


def _seed(random_state: RandomState) -> int:
    if random_state is None:
        return 0
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    from sklearn.utils import check_random_state

    return int(check_random_state(random_state).randint(2**31 - 1))
