"""scikit-learn's own checks, and agreement with scikit-learn's solver."""

import pickle
import warnings

import joblib
import numpy as np
import pytest
import scipy.sparse
import sklearn
from making import random_rows, shards_of
from sklearn.base import clone
from sklearn.datasets import make_classification, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC, LinearSVR
from sklearn.utils.estimator_checks import (
    check_estimator,
    check_sample_weight_equivalence_on_dense_data,
    check_sample_weight_equivalence_on_sparse_data,
    parametrize_with_checks,
)
from sklearn.utils.validation import validate_data

import bigclf
from bigclf import FeatureTransformer, LinearClassifier, LinearRegressor
from bigclf.data.arrays import Arrays
from bigclf.errors import DataError, SchemaError
from bigclf.maths.block import explicit_values
from bigclf.maths.losses import REGRESSION
from bigclf.methods import METHODS, native

NOT_REPEATED = "it meets weighted and repeated rows in another order; scikit-learn's LinearSVC and SGD fail it too"
ZERO_OR_ONE = "its row and class weights are 0 and 1 only, any other is refused by name"
EQUIVALENCE = [f"check_sample_weight_equivalence_on_{kind}_data" for kind in ("dense", "sparse")]
WEIGHTS = ["check_sample_weights_list", "check_sample_weights_not_overwritten", "check_class_weight_classifiers"]


OWN_PACE = "weights scale its steps or confidences: 1000 to 0.0001 does not move its answer as a price would"
AT_ITS_OWN_PACE = ("perceptron_mc", "narow", "narow_full", "nherd", "pegasos")
UNFIT = {  # for the rows of check_classifiers_train: three clouds, one class against the rest
    "winnow2": "its weights are never below 0: features can only speak for the greater class",
    "memma_blocks": "it is for rows that can be separated",
}
UNFIT_NUMBERS = {  # of check_regressors_train: 200 rows
    "pegasos": "its steps 1 / (lam t) are too long for so few rows at its own lam",
}
STEPPING = ("newton", "tron", "lbfgs")


def expected_failures(estimator):
    """Why which checks fail, by their names."""
    regression = isinstance(estimator, LinearRegressor)
    check, reasons = ("check_regressors_train", UNFIT_NUMBERS) if regression else ("check_classifiers_train", UNFIT)
    algo = estimator.algo or ("newglmnet" if estimator.penalty == "l1" else "dcd")
    unfit = {check: reasons[algo]} if algo in reasons else {}
    if algo == "auto":  # of so few columns the table solver
        return dict.fromkeys(EQUIVALENCE, NOT_REPEATED)
    if METHODS[algo].row_weights == "binary":
        failing = [*EQUIVALENCE, *WEIGHTS[: 2 if regression else 3]]
        return dict.fromkeys(failing, ZERO_OR_ONE) | unfit
    at_once = algo == "newton_mc" or estimator.get_params().get("multiclass") == "native"
    at_once = at_once and algo.startswith("newton")  # multinomial, and strongly convex
    if at_once:
        return {}
    named = native(algo, estimator.get_params().get("multiclass", "auto"))
    of_classes = () if regression else WEIGHTS[2:]
    paced = dict.fromkeys(of_classes if named in AT_ITS_OWN_PACE else (), OWN_PACE)
    if named == "newton_dense":  # a step on the table itself ends far below its tolerance
        return paced | unfit
    return dict.fromkeys(EQUIVALENCE, NOT_REPEATED) | paced | unfit


LONG = [LinearClassifier("averaged_perceptron", multiclass="native")]
SLOW = [LinearClassifier("arow", r=0.5)]


@parametrize_with_checks(
    [LinearClassifier(), LinearRegressor(), LinearRegressor(penalty="l1")], expected_failed_checks=expected_failures
)
def test_scikit_learn_checks(estimator, check):
    scikit_learn_checks(estimator, check)


@pytest.mark.long
@parametrize_with_checks(LONG, expected_failed_checks=expected_failures)
def test_scikit_learn_checks_of_another_kind_of_method(estimator, check):
    scikit_learn_checks(estimator, check)


@pytest.mark.slow
@parametrize_with_checks(SLOW, expected_failed_checks=expected_failures)
def test_scikit_learn_checks_with_a_parameter_of_its_own(estimator, check):
    scikit_learn_checks(estimator, check)


def scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.parametrize(
    "estimator",
    [
        LinearClassifier(tol=1e-12, epochs=3000),
        LinearRegressor(loss="squared_epsilon_insensitive", tol=1e-14, epochs=3000),
        *(pytest.param(LinearRegressor(name, tol=1e-14), marks=pytest.mark.slow) for name in STEPPING),
    ],
    ids=repr,
)
def test_a_weight_is_a_row_repeated_where_the_answer_is_as_fine_as_that_is_checked(estimator):
    """The checks compare to 1e-7 in the predictions; weights are as near to the best ones as the root of twice the gap,
    since the objective is strongly convex."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_sample_weight_equivalence_on_dense_data(type(estimator).__name__, estimator)
        check_sample_weight_equivalence_on_sparse_data(type(estimator).__name__, estimator)


def every_estimator():
    for name, method in METHODS.items():
        yield LinearClassifier(name)
        if "native" in method.multiclass and not method.all_classes:
            yield LinearClassifier(name, multiclass="native")
        yield from (LinearRegressor(name, loss=loss) for loss in method.losses if loss in REGRESSION)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", list(every_estimator()), ids=repr)
def test_scikit_learn_checks_of_every_method(estimator):
    """Each check passes, or is known to fail and does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {result["check_name"]: result["exception"] for result in results if result["status"] == "failed"}
    assert set(failed) == set(expected_failures(estimator)), failed


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
    with pytest.raises(ValueError, match="is for classes"):
        LinearRegressor(loss="hinge").fit(X, y)
    assert not hasattr(LinearClassifier("dcd"), "predict_proba") and hasattr(
        LinearClassifier(loss="logistic"), "predict_proba"
    )


def test_what_was_found_is_shown_in_a_line():
    X, y = make_classification(60, 5, random_state=1)
    fitted = LinearClassifier(tol=1e-2).fit(X, y)
    assert len(repr(fitted.model_.result_)) < 120 and "gap" in repr(fitted.model_.result_)
    assert "error" in repr(LinearClassifier("pa1", epochs=2).fit(X, y).model_.result_)


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


def test_a_method_s_own_parameters_are_parameters_like_any_other():
    X, y = make_classification(200, 8, random_state=1)
    estimator = LinearClassifier("arow", r=5.0)
    assert estimator.get_params()["r"] == 5.0 and clone(estimator).r == 5.0 and "r=5.0" in repr(estimator)
    assert estimator.fit(X, y).model_.method["r"] == 5.0 and estimator.fit(X, y).model_.method["name"] == "arow"
    assert estimator.set_params(r=None, epochs=2).fit(X, y).model_.method["r"] == 1.0  # the method's own
    grid = [{"algo": ["arow"], "r": [0.1, 10.0]}, {"algo": ["cw"], "eta": [0.6, 0.9]}, {"algo": ["pa1"], "C": [0.1]}]
    search = GridSearchCV(LinearClassifier(epochs=3), grid, cv=2, error_score="raise").fit(X, y)
    assert [p.get("r") for p in search.cv_results_["params"]] == [0.1, 10.0, None, None, None]
    assert set(search.best_params_.items()) <= set(search.best_estimator_.get_params().items())
    with pytest.raises(TypeError, match=r"unexpected parameter 'alpah': no method has it; did you mean alpha\?"):
        LinearClassifier("ftrl", alpah=0.1)
    with pytest.raises(ValueError, match="Invalid parameter 'alpah'"):
        estimator.set_params(alpah=0.1, r=2.0)
    assert set(LinearClassifier().get_params()) - set(LinearRegressor().get_params()) >= {"r", "phi", "class_weight"}
    assert "epsilon" in LinearRegressor().get_params() and "epsilon" not in LinearClassifier().get_params()
    with pytest.raises(TypeError, match="r has no effect with algo='pa1'.*it is a parameter of arow"):
        LinearClassifier("pa1", r=0.1).fit(X, y)


def test_row_weights_are_routed_through_pipelines_and_searches():
    X, y = make_classification(120, 5, n_informative=3, random_state=2)
    weights = np.random.default_rng(0).integers(0, 3, 120).astype(float)
    with sklearn.config_context(enable_metadata_routing=True):
        final = LinearClassifier("pa1").set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, final)
        with_weights = pipeline.fit(X, y, sample_weight=weights)[-1].coef_
        search = GridSearchCV(pipeline, {"linearclassifier__C": [0.1]}, cv=2).fit(X, y, sample_weight=weights)
        learner = LinearClassifier("pa1").set_partial_fit_request(sample_weight=True, classes=True)
        assert learner.partial_fit(X, y, classes=[0, 1], sample_weight=weights).n_iter_ == 1
        halves = [search.cv_results_[f"split{k}_test_score"][0] for k in range(2)]
    alone = LinearClassifier("pa1").fit(StandardScaler().fit_transform(X), y, sample_weight=weights)
    assert (with_weights == alone.coef_).all()
    assert np.any(with_weights != LinearClassifier("pa1").fit(StandardScaler().fit_transform(X), y).coef_)
    for score, (train, test) in zip(halves, StratifiedKFold(2).split(X, y), strict=True):
        scaler = StandardScaler().fit(X[train])
        model = LinearClassifier("pa1", C=0.1).fit(scaler.transform(X[train]), y[train], sample_weight=weights[train])
        assert score == pytest.approx(model.score(scaler.transform(X[test]), y[test], weights[test]))


def test_names_of_columns_are_kept_and_compared():
    pandas = pytest.importorskip("pandas")
    X, y = make_classification(80, 4, n_informative=3, n_redundant=0, random_state=3)
    frame = pandas.DataFrame(X, columns=["age", "height", "weight", "pulse"])
    pipeline = make_pipeline(StandardScaler(), LinearClassifier()).set_output(transform="pandas").fit(frame, y)
    assert pipeline[-1].feature_names_in_.tolist() == list(frame.columns) and pipeline[-1].n_features_in_ == 4
    assert pipeline.score(frame, y) == make_pipeline(StandardScaler(), LinearClassifier()).fit(X, y).score(X, y)
    with pytest.raises(ValueError, match="feature names should match"):
        pipeline[-1].predict(frame[["height", "age", "weight", "pulse"]])


@pytest.mark.parametrize(
    "estimator", [LinearClassifier(tol=1e-9), LinearRegressor(tol=1e-9)], ids=["classes", "numbers"]
)
def test_shards_are_learned_from_and_predicted_as_arrays_are(estimator, tmp_path):
    x, y = random_rows(300, 40, real=isinstance(estimator, LinearRegressor))
    glob = f"{shards_of(tmp_path / 'shards', x, y, chunk_nnz=500).files[0].rsplit('/', 1)[0]}/*.parquet"
    arrays, stored = clone(estimator).fit(x, y), clone(estimator).fit(glob)
    np.testing.assert_allclose(stored.coef_, arrays.coef_, atol=1e-4)
    assert stored.n_features_in_ == 40 and not hasattr(stored, "feature_names_in_")
    dataset = bigclf.Dataset(glob)
    assert stored.score(glob) == pytest.approx(stored.score(x, y), abs=1e-12) == stored.score(dataset)
    np.testing.assert_allclose(np.sort(stored.predict(glob)), np.sort(stored.predict(x)), rtol=1e-6)
    if isinstance(estimator, LinearClassifier):
        assert stored.decision_function(dataset).shape == (300,) and stored.classes_.tolist() == [-1, 1]
    with pytest.raises(TypeError, match="labels and weights of their own"):
        stored.score(glob, y)
    with pytest.raises(TypeError, match="y"):
        clone(estimator).fit(glob, y)


def test_wide_indices_and_float32_values_are_used_as_they_are():
    x, y = random_rows(100, 30)
    wide = scipy.sparse.csr_matrix((x.data, x.indices.astype(np.int64), x.indptr.astype(np.int64)), x.shape)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert wide.indices.dtype == np.int64 and x.data.dtype == np.float32
    a, b = LinearClassifier("pa1").fit(x, y), LinearClassifier("pa1").fit(wide, y)
    assert (a.coef_ == b.coef_).all() and (b.predict(wide) == a.predict(x)).all()
    checked = validate_data(LinearClassifier(), wide, accept_sparse="csr", dtype=[np.float64, np.float32])
    assert checked.dtype == np.float32 and checked.indices.dtype == np.int64
    assert Arrays(checked, y).whole().values is not None
    assert np.shares_memory(Arrays(checked, y).whole().values, wide.data)
    assert LinearClassifier("pa1", dtype="float32").fit(x, y).coef_.dtype == np.float32


@pytest.mark.parametrize("how", ["one-vs-rest", pytest.param("native", marks=pytest.mark.long)])
def test_more_than_two_classes_either_way(how):
    X, y = make_classification(300, 10, n_informative=6, n_classes=3, random_state=0)
    names = np.array(["ant", "bee", "cow"])[y]
    for algo in ("dcd", "pa1", "arow"):
        found = LinearClassifier(algo, multiclass=how).fit(X, names)
        assert found.coef_.shape == (3, 10) and found.decision_function(X).shape == (300, 3)
        assert found.score(X, names) > 0.5 and found.model_.method["name"] == algo + "_mc" * (how == "native")


@pytest.mark.parametrize("algo", ["pa1", "arow", "voted_perceptron"])
def test_it_travels_and_goes_on_where_it_was(algo, tmp_path):
    X, y = make_classification(90, 6, random_state=4)
    here = LinearClassifier(algo).partial_fit(X[:50], y[:50], classes=[0, 1])
    joblib.dump(here, tmp_path / "estimator.joblib")
    there = [pickle.loads(pickle.dumps(here)), joblib.load(tmp_path / "estimator.joblib")]
    for other in there:
        assert (other.decision_function(X) == here.decision_function(X)).all()
        other.partial_fit(X[50:], y[50:])
    here.partial_fit(X[50:], y[50:])
    assert all((other.decision_function(X) == here.decision_function(X)).all() for other in there)


def test_a_regression_takes_the_first_loss_for_numbers():
    X, y = make_regression(100, 5, noise=1.0, random_state=0)
    assert LinearRegressor("newton").fit(X, y).model_.method["loss"] == "squared_epsilon_insensitive"
    with pytest.raises(ValueError, match=r"algo='arow' is for classes; for regression use dcd, newton, .*, sgd"):
        LinearRegressor("arow").fit(X, y)
    with pytest.raises(DataError, match="algo='pa' takes row weights of 0 and 1 only"):
        LinearRegressor("pa").fit(X, y, sample_weight=np.full(100, 2.0))
    with pytest.raises(ValueError, match="requires y to be passed"):
        LinearRegressor().fit(X)


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


def test_a_spec_of_features_is_a_transformer(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({
        "age": rng.normal(40, 10, 120), "city": rng.choice(["Rome", "Oslo", "Lima"], 120),
        "said": rng.choice(["good day", "bad day", "good night"], 120),
    })  # fmt: skip
    y = np.where((frame.age > 40) ^ (frame.city == "Rome"), "yes", "no")
    terms = [{"numeric": ["age"]}, {"categorical": ["city"]}, {"text": ["said"]}]
    made = FeatureTransformer(terms).fit(frame)
    rows = made.transform(frame)
    frame.assign(y=y).to_parquet(tmp_path / "rows.parquet")
    spec = {"features": terms, "label": "y"}
    shards = bigclf.convert(tmp_path / "rows.parquet", tmp_path / "s", format="parquet", features=spec, shuffle=False)
    stored = shards.decode(0, 0)
    assert rows.shape == (120, shards.n_features) and rows.dtype == np.float32
    np.testing.assert_array_equal(rows.indices, stored.indices)  # what convert makes of the same table
    np.testing.assert_array_equal(rows.data, explicit_values(stored))
    names = made.get_feature_names_out()
    assert names.size == rows.shape[1] and "age" in names[0] and sum("city" in name for name in names) >= 3
    assert made.feature_names_in_.tolist() == ["age", "city", "said"]
    pipeline = make_pipeline(clone(made), LinearClassifier("dcd"))
    assert GridSearchCV(pipeline, {"linearclassifier__C": [0.1, 1.0]}, cv=2).fit(frame, y).best_score_ > 0.6
    again = pickle.loads(pickle.dumps(made))
    assert (again.transform(frame[::-1]) != rows[::-1]).nnz == 0
    dense = FeatureTransformer(terms[:2], sparse_output=False).set_output(transform="pandas").fit_transform(frame)
    assert isinstance(dense, pandas.DataFrame) and dense.shape[0] == 120 and "age" in dense.columns[0]
    with pytest.raises(SchemaError, match="city"):
        made.transform(frame.drop(columns="city"))
    with pytest.raises(NotFittedError):
        FeatureTransformer(terms).transform(frame)
