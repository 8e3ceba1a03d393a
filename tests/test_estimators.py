"""scikit-learn's own checks, and agreement with scikit-learn's solver."""

import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import make_classification, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC, LinearSVR
from sklearn.utils.estimator_checks import parametrize_with_checks

from bigclf import LinearClassifier, LinearRegressor

NOT_REPEATED = "it meets weighted and repeated rows in another order; scikit-learn's LinearSVC and SGD fail it too"


def expected_failures(estimator):
    """dcd fails none of the checks where its tolerance is as fine as they compare (1e-7 in the predictions):
    weights are as near to the best ones as the root of twice the gap, since the objective is strongly convex."""
    if estimator.tol is not None and estimator.tol <= 1e-12:
        return {}
    return {f"check_sample_weight_equivalence_on_{kind}_data": NOT_REPEATED for kind in ("dense", "sparse")}


@parametrize_with_checks(
    [
        LinearClassifier(tol=1e-12, epochs=3000),
        LinearClassifier(),
        LinearClassifier(algo="pa1"),
        LinearClassifier(loss="logistic"),
        LinearRegressor(),
        LinearRegressor(loss="squared_epsilon_insensitive", tol=1e-14, epochs=3000),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("classes", [2, 3])
def test_it_finds_the_optimum_that_linear_svc_finds(loss, classes):
    X, y = make_classification(300, 10, n_informative=6, n_classes=classes, random_state=0)
    mine = LinearClassifier(loss=loss, C=0.5, tol=1e-8).fit(X.astype(np.float32), y)
    theirs = LinearSVC(loss=loss, C=0.5, tol=1e-10, max_iter=10**6, dual=True).fit(X, y)
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=2e-4)
    np.testing.assert_allclose(mine.intercept_, theirs.intercept_, atol=2e-4)
    assert mine.model_.result_.certificate["gap"] <= 1e-8 and mine.n_iter_ >= 1


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared_epsilon_insensitive"])
def test_it_finds_the_optimum_that_linear_svr_finds(loss):
    X, y = make_regression(200, 10, noise=1.0, random_state=0)
    X = X.astype(np.float32)
    mine = LinearRegressor(loss=loss, C=0.5, epsilon=0.2, tol=1e-9).fit(X, y)
    theirs = LinearSVR(loss=loss, C=0.5, epsilon=0.2, tol=1e-10, max_iter=10**6, dual=True).fit(X, y)
    np.testing.assert_allclose(mine.coef_, theirs.coef_, rtol=1e-3, atol=1e-2)
    assert mine.intercept_ == pytest.approx(float(theirs.intercept_[0]), abs=1e-2)
    assert mine.score(X, y) == pytest.approx(theirs.score(X, y), abs=1e-4) and mine.coef_.shape == (10,)
    with pytest.raises(ValueError, match="learns classes"):
        LinearRegressor(loss="hinge").fit(X, y)
    assert not hasattr(LinearClassifier(), "predict_proba") and hasattr(
        LinearClassifier(loss="logistic"), "predict_proba"
    )


def test_sparse_and_dense_train_the_same():
    X, y = make_classification(200, 8, random_state=1)
    X = np.where(np.abs(X) < 0.5, 0, X).astype(np.float32)
    names = np.array(["no", "yes"])[y]
    dense = LinearClassifier().fit(X, names)
    sparse = LinearClassifier().fit(scipy.sparse.csr_matrix(X), names)
    assert (dense.coef_ == sparse.coef_).all() and dense.classes_.tolist() == ["no", "yes"]
    assert (dense.predict(X) == sparse.predict(scipy.sparse.csr_matrix(X))).all()


def test_it_lives_in_pipelines_and_searches():
    X, y = make_classification(200, 8, random_state=1)
    pipeline = make_pipeline(StandardScaler(), LinearClassifier())
    search = GridSearchCV(pipeline, {"linearclassifier__C": [0.01, 1.0]}, cv=3)
    assert search.fit(X, y).best_score_ > 0.7
    assert clone(LinearClassifier(algo="pa2", C=3.0)).C == 3.0


def test_what_is_refused():
    X, y = make_classification(50, 4, n_informative=3, n_redundant=0, random_state=1)
    with pytest.raises(NotFittedError):
        LinearClassifier().predict(X)
    with pytest.raises(TypeError, match="no effect"):
        LinearClassifier(algo="pa", C=2.0).fit(X, y)
    with pytest.raises(ValueError, match="unknown algo"):
        LinearClassifier(algo="svm").fit(X, y)
    with pytest.raises(ValueError, match="one class"):
        LinearClassifier().fit(X, np.zeros(50))


def test_row_weights_are_those_of_repeated_rows():
    X, y = make_classification(60, 4, n_informative=3, n_redundant=0, random_state=1)
    times = np.random.default_rng(0).integers(0, 4, 60)
    weighted = LinearClassifier(tol=1e-9).fit(X, y, sample_weight=times)
    repeated = LinearClassifier(tol=1e-9).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-4)
