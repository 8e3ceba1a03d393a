"""A fitted scikit-learn estimator with the model's weights.

scikit-learn says the smaller class where the decision value is exactly 0, bigclf the greater one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigclf import files
from bigclf.errors import RunError
from bigclf.maths.losses import TUBES

if TYPE_CHECKING:
    import scipy.sparse
    from sklearn.base import BaseEstimator

    from bigclf.model.model import Model


NOTE = "a joblib file is a pickle: whoever loads it runs what is in it; load those of people you trust only"


def write(model: Model, path: str) -> list[str]:
    """Write the estimator for ``joblib.load``; bigclf itself never loads such a file."""
    import joblib

    with files.publishing(path) as beside:
        joblib.dump(estimator(model), beside)
    return [NOTE, "its coef_ is sparse: scikit-learn wants sparse rows of float64 then"] if model.sparse else [NOTE]


def estimator(model: Model) -> BaseEstimator:
    """``LinearSVR`` for numbers; for classes ``LogisticRegression`` where the loss is the logistic one (one in
    ``OneVsRestClassifier`` where more than two were learned one against the rest), else ``LinearSVC``."""
    if model.regression:
        return _regressor(model)
    if model.method.get("loss") != "logistic" or model.calibration is not None:  # that has other probabilities
        return _classifier(_new("LinearSVC", model), model.coef_, model.intercept_, model.classes_)
    if model.binary or model.method.get("multiclass") == "multinomial":
        return _classifier(_new("LogisticRegression", model), model.coef_, model.intercept_, model.classes_)
    return _one_against_rest(model)


def _new(name: str, model: Model) -> BaseEstimator:
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC, LinearSVR

    kinds = {"LinearSVC": LinearSVC, "LinearSVR": LinearSVR, "LogisticRegression": LogisticRegression}
    options: dict[str, Any] = {"C": model.method["C"]} if "C" in model.method else {}
    loss = model.method.get("loss")
    if name == "LinearSVC" and loss in ("hinge", "squared_hinge") or name == "LinearSVR" and loss in TUBES:
        options["loss"] = loss
    return kinds[name](fit_intercept=bool(model.intercept_.any()), **options)


def _classifier(
    new: BaseEstimator, weights: np.ndarray | scipy.sparse.csc_matrix, bias: np.ndarray, classes: np.ndarray
) -> BaseEstimator:
    new.coef_ = weights.tocsr().astype(np.float64) if hasattr(weights, "tocsr") else weights.astype(np.float64)
    new.intercept_, new.classes_ = bias.copy(), classes.copy()
    new.n_features_in_ = weights.shape[1]
    new.n_iter_ = np.zeros(1, np.int32) if hasattr(new, "solver") else 0
    return new


def _regressor(model: Model) -> BaseEstimator:
    new = _new("LinearSVR", model)
    new.coef_, new.intercept_ = model.coef_[0].astype(np.float64), model.intercept_.copy()
    new.n_features_in_, new.n_iter_ = model.n_features, 0
    return new


def _one_against_rest(model: Model) -> BaseEstimator:
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import LabelBinarizer

    if model.classes_.dtype.kind == "f" and (model.classes_ % 1 != 0).any():
        raise RunError("scikit-learn takes fractions for numbers to predict, not for classes: train with whole numbers "
                       "or text as labels")  # fmt: skip
    new = OneVsRestClassifier(_new("LogisticRegression", model))
    rows = zip(model.coef_, model.intercept_[:, None], strict=True)  # the loss has no sparse weights
    pair = np.array([0, 1])
    new.estimators_ = [_classifier(_new("LogisticRegression", model), w[None], b, pair) for w, b in rows]
    new.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(model.classes_)
    new.classes_, new.n_features_in_ = new.label_binarizer_.classes_, model.n_features
    return new
