"""Regression: the optimum, its certificate, labels that are numbers all the way from text to figures, one look at each
row, and scikit-learn's figures."""

import json
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from making import long_but_float32, random_rows, run_python, shards_of
from sklearn.datasets import dump_svmlight_file
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVR
from test_dual_coordinate_descent import EPSILON, alphas, dual, extended, primal

import bigclf
from bigclf.api.fit import fit
from bigclf.api.predict import predict
from bigclf.cli import main
from bigclf.conversion.convert import convert
from bigclf.data.arrays import Arrays
from bigclf.errors import DataError, ModelFormatError, RunError, SchemaError
from bigclf.maths.losses import REGRESSION, TUBES
from bigclf.metrics.figures import PartialRegression, evaluate, no_part, partial_evaluation
from bigclf.model.model import Model, load

every_loss = pytest.mark.parametrize("loss", TUBES)
biases = pytest.mark.parametrize("bias", [None, "feature"], ids=["no bias", "bias"])
D = 30
SMALL = "17MB"  # the rows of ``made`` do not stay in it
QUIET = {"progress": False}


def rows(n=200, seed=0, noise=0.5):
    return random_rows(n, D, 0.3, seed=seed, noise=noise, real=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """4,000 rows as shards with labels that are numbers: (x, y, dataset)."""
    x, y = random_rows(4000, 60, 0.25, noise=1.0, real=True)
    path = tmp_path_factory.mktemp("regression") / "shards"
    return x, y, shards_of(path, x, y, real=True, chunk_nnz=3000, shard_nnz=40_000)


def objective(x, y, loss, C, epsilon, bias, weights=None):
    """The optimal objective, by scikit-learn's LinearSVR run to its end."""
    machine = LinearSVR(loss=loss, C=C, epsilon=epsilon, tol=1e-10, max_iter=10**6, dual=True, fit_intercept=bool(bias))
    machine.fit(x.astype(np.float64), y, sample_weight=weights)
    return np.append(machine.coef_, machine.intercept_ if bias else 0.0)


# The optimum


@every_loss
@biases
@pytest.mark.parametrize("C", [0.03, 1.0, 20.0])
def test_the_objective_is_scikit_learn_s(loss, bias, C):
    x, y = rows()
    model = fit(x, y, loss=loss, bias=bias, C=C, tol=1e-9, **QUIET)
    best = primal(extended(x, bias), y, objective(x, y, loss, C, EPSILON, bias), loss, C)
    w = np.append(model.coef_[0], model.intercept_[0])
    assert primal(extended(x, bias), y, w, loss, C) == pytest.approx(best, rel=1e-6, abs=0)
    assert model.result_.certificate["primal"] == pytest.approx(best, rel=1e-6, abs=0)
    assert model.coef_.shape == (1, D) and model.classes_ is None and (bias or model.intercept_[0] == 0)


@biases
@pytest.mark.parametrize(
    ("loss", "options"),
    [*(long_but_float32(loss, options.get("dtype"), options) for loss in TUBES
       for options in ({}, {"dtype": "float32"})),
     pytest.param(TUBES[0], {"groups": 4}, marks=pytest.mark.long), (TUBES[1], {"groups": 4})], ids=str,
)  # fmt: skip
def test_the_certificate_recomputed_from_the_model_and_the_dual_variables(
    loss, bias, options, tmp_path, as_begun_before
):
    x, y = rows(seed=3)
    weights = np.random.default_rng(0).choice([0.5, 1.0, 3.0], len(y))
    model = fit(
        x,
        y,
        sample_weight=weights,
        loss=loss,
        bias=bias,
        tol=1e-6,
        run_dir=tmp_path,
        **({"algo": "dcd"} | options),
        **QUIET,
    )
    matrix, told = extended(x, bias), model.result_.certificate
    w = np.append(model.coef_[0], model.intercept_[0])
    assert told["primal"] == pytest.approx(primal(matrix, y, w, loss, weights), rel=1e-6 if options else 1e-12)
    if "groups" not in options:
        assert told["dual"] >= dual(matrix, y, alphas(tmp_path), loss, weights) * (1 - 1e-12)
    best = fit(
        x, y, sample_weight=weights, loss=loss, bias=bias, tol=1e-12, **({"algo": "dcd"} | QUIET)
    ).result_.certificate
    assert 0 <= told["gap"] <= 1e-6 and told["dual"] <= best["primal"] * (1 + 1e-12)
    true = (told["primal"] - best["primal"]) / told["primal"]  # what the certificate bounds
    assert told["gap"] >= true - 1e-12


@every_loss
def test_the_gap_is_never_below_the_true_one(loss):
    x, y = rows(noise=2.0)
    model = fit(x, y, loss=loss, tol=1e-9, inner_rounds=0, **({"algo": "dcd"} | QUIET))
    best = fit(x, y, loss=loss, tol=1e-13, **({"algo": "dcd"} | QUIET)).result_.certificate["dual"]
    records = [record for record in model.result_.history if "gap" in record]
    assert len(records) >= 3
    for record in records:
        true = (record["objective"] - best) / record["objective"]
        assert record["gap"] >= 0 and record["gap"] >= true - 1e-12
        assert record["dual"] <= best * (1 + 1e-12)


@every_loss
@biases
def test_a_row_of_weight_k_counts_k_times(loss, bias):
    x, y = rows(60)
    times = np.random.default_rng(0).integers(0, 4, 60)
    options = dict(loss=loss, bias=bias, tol=1e-12, **QUIET)
    weighted = fit(x, y, sample_weight=times.astype(float), **options)
    copied = fit(x[np.repeat(np.arange(60), times)], np.repeat(y, times), **options)
    primals = [model.result_.certificate["primal"] for model in (weighted, copied)]
    assert primals[0] == pytest.approx(primals[1], rel=1e-9)
    assert abs(fit(x, y, **options).result_.certificate["primal"] - primals[0]) > 1e-3 * primals[0]


def test_numbers_on_a_line_are_met_within_the_tube():
    x, y = rows(300, noise=0.0)
    for epsilon in (0.0, 0.3):
        model = fit(x, y, loss="epsilon_insensitive", epsilon=epsilon, C=1000, bias=None, tol=1e-9, **QUIET)
        assert np.abs(model.predict(x) - y).max() <= epsilon + 1e-3
    assert np.abs(y).max() > 1
    wide = fit(x, y, loss="epsilon_insensitive", epsilon=1e6, bias=None, **QUIET)
    assert not wide.coef_.any() and wide.result_.certificate["primal"] == 0


# Out of core, groups, workers


@every_loss
def test_out_of_core_it_is_the_optimum_of_the_rows_in_memory(loss, made):
    x, y, dataset = made
    options = dict(loss=loss, C=0.01, epsilon=0.2, tol=1e-4, **QUIET)
    streamed = fit(dataset, memory=SMALL, **options)
    whole = fit(x, y, **{**options, "tol": 1e-8})
    assert not streamed.result_.plan["resident"] and streamed.result_.converged and streamed.result_.reads > 1
    told, best = streamed.result_.certificate, whole.result_.certificate
    assert best["dual"] * (1 - 1e-12) <= told["primal"] <= best["primal"] * (1 + 1.1e-4)
    assert told["dual"] <= best["primal"] * (1 + 1e-12)


@pytest.mark.parametrize("loss", [TUBES[0], *(pytest.param(loss, marks=pytest.mark.long) for loss in TUBES[1:])])
def test_workers_give_the_bits_of_one_process(loss, made, client):
    *_, dataset = made
    options = dict(loss=loss, C=0.01, groups=4, tol=1e-3, validate=dataset, **QUIET)
    here, there = (fit(dataset, **options, **where) for where in ({}, {"workers": client}))
    np.testing.assert_array_equal(here.coef_, there.coef_)
    assert here.result_.certificate == there.result_.certificate
    assert here.result_.history[-1]["validation"] == there.result_.history[-1]["validation"]
    mine, theirs = evaluate(here, dataset), bigclf.evaluate(there, dataset, workers=client)
    assert {**mine.to_dict(), "seconds": 0} == {**theirs.to_dict(), "seconds": 0}


def test_the_raw_store_keeps_every_bit_of_the_numbers_and_the_codes_apart(tmp_path):
    """Two values: the same shards have classes and numbers, and a store of each."""
    x, y = random_rows(4000, 60, 0.25)
    y = np.where(y > 0, 1.25, -7.5)
    dataset = shards_of(tmp_path / "shards", x, y, chunk_nnz=3000, shard_nnz=40_000)
    options = dict(C=0.01, memory=SMALL, tol=1e-2, **QUIET)
    for loss in ("hinge", "epsilon_insensitive"):
        kept = [
            fit(dataset, loss=loss, workers=bigclf.Workers(local_dir=tmp_path / "local"), **options) for _ in range(2)
        ]
        plain = fit(dataset, loss=loss, **options)
        assert kept[0].digest() == kept[1].digest() == plain.digest()
        assert not plain.result_.plan["resident"]
    assert len([*(tmp_path / "local").glob("*.bin")]) == 2


# One look at each row


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic", *TUBES])
@pytest.mark.parametrize("memory", [SMALL, "2GB"])
def test_one_epoch_without_a_tolerance_is_one_read_and_no_second_look(loss, memory, made, recwarn):
    x, y, dataset = made
    if loss not in REGRESSION:
        y, dataset = np.where(y > 0, 1, -1), None
    for source in [(x, y)] + ([(dataset,)] if dataset is not None else []):
        model = fit(*source, loss=loss, C=0.01, epochs=1, memory=memory, **QUIET)
        result = model.result_
        assert result.reads == 1 and result.certificate is None and result.converged and result.stopped == "epochs"
        assert result.progressive["rows"] == result.history[0]["rows"] == 4000
        assert len(result.history) == 1 and result.plan["set_rows"] == result.plan["store_bytes"] == 0
        assert ("mean_loss" in result.progressive) == (loss in REGRESSION) != ("error" in result.progressive)
    assert not recwarn.list
    certified = fit(x, y, loss=loss, C=0.01, epochs=1, tol=0.9, **QUIET).result_
    assert certified.certificate is not None and certified.certificate["gap"] <= 0.9


@every_loss
def test_the_online_step_raises_the_dual_once_for_each_row(loss, made, as_begun_before):
    """What one look gives is better than nothing, and what it says of itself is the loss before learning."""
    x, y, dataset = made
    model = fit(dataset, loss=loss, C=0.01, epochs=1, **QUIET)
    zero = np.maximum(0, np.abs(y) - EPSILON) ** (1 if loss == "epsilon_insensitive" else 2)
    told = model.result_.progressive
    assert told["mean_loss"] < 0.9 * zero.mean() and told["mistakes"] <= 4000
    w = np.append(model.coef_[0], model.intercept_[0])
    assert primal(extended(x, True), y, w, loss, 0.01) < 0.9 * 0.01 * zero.sum()
    groups = fit(dataset, algo="dcd", loss=loss, C=0.01, epochs=1, groups=3, **QUIET)
    assert groups.result_.certificate is None and groups.result_.reads == 1
    w = np.append(groups.coef_[0], groups.intercept_[0])
    assert primal(extended(x, True), y, w, loss, 0.01) < 0.01 * zero.sum()


# Figures


@every_loss
def test_figures_are_scikit_learn_s(loss, made):
    x, y, dataset = made
    model = fit(dataset, loss=loss, C=0.01, tol=1e-2, validate=dataset, **QUIET)
    said = model.predict(x)
    assert said.dtype == np.float64 and (said == model.decision_function(x)).all()
    np.testing.assert_allclose(model.predict(dataset), said, rtol=1e-9, atol=1e-9)
    for found in (evaluate(model, dataset), evaluate(model, x, y)):
        assert found.n == 4000 and found["r2"] == pytest.approx(r2_score(y, said), rel=1e-10)
        assert found.mean_squared_error == pytest.approx(mean_squared_error(y, said), rel=1e-12)
        assert found.mean_absolute_error == pytest.approx(mean_absolute_error(y, said), rel=1e-12)
        assert found.label_mean == pytest.approx(y.mean()) and not found.missing and "r2" in list(found.keys())
    assert model.result_.history[-1]["validation"]["mean_squared_error"] > 0


def test_where_the_parts_are_cut_changes_no_bit(made):
    *_, dataset = made
    model = fit(dataset, loss="epsilon_insensitive", C=0.01, tol=0.1, **QUIET)
    whole = evaluate(model, dataset).to_dict()
    assert whole["trained_on"] == 1 and len(whole["notes"]) == 1  # told of the files, of which parts know nothing
    whole |= {"seconds": 0, "trained_on": 0.0, "notes": []}
    for edges in ([0, 1, dataset.n_chunks], [0, 3, 4, 9, dataset.n_chunks], list(range(dataset.n_chunks + 1))):
        total = no_part(model, exact=True)
        for first, last in zip(edges[:-1], edges[1:], strict=True):
            part = partial_evaluation(model, dataset, first, last, exact=True)
            total.merge(pickle.loads(pickle.dumps(part)))
        assert {**total.figures(model).to_dict(), "seconds": 0} == whole
    with pytest.raises(ValueError, match="come others"):
        total.merge(PartialRegression(first=1))


def test_labels_far_from_zero_lose_no_digits_of_r2():
    x, y = rows(500)
    far = y + 1e8
    model = Model(np.zeros((1, D)), np.array([1e8]), None)
    assert evaluate(model, x, far).r2 == pytest.approx(r2_score(far, np.full(500, 1e8)), abs=1e-9)
    same = evaluate(model, x, np.full(500, 3.0))
    assert same.r2 is None and "same" in same.missing["r2"]


# Labels from text to shards


@pytest.fixture(scope="module")
def many():
    """More distinct labels than can be classes."""
    rng = np.random.default_rng(0)
    x = sp.random(110_000, 20, 0.1, "csr", np.float32, random_state=rng)
    x.sort_indices()
    return x, np.round(x @ rng.standard_normal(20) + rng.standard_normal(110_000), 12)


def test_real_labels_from_svmlight_to_figures(many, tmp_path):
    x, y = many
    dump_svmlight_file(x, y, str(tmp_path / "a.svm"), zero_based=False)
    there = convert(tmp_path / "a.svm", tmp_path / "one", workers=1)
    assert there.real_labels and there.classes is None and there.class_counts is None and not there.warnings
    assert there.label_range == {"min": y.min(), "max": y.max(), "mean": pytest.approx(y.mean(), rel=1e-9)}
    labels = np.concatenate([there.decode(0, g).labels for g in range(there.n_chunks)])
    np.testing.assert_array_equal(np.sort(labels), np.sort(y))
    assert labels.size == y.size and not np.array_equal(labels, y)  # shuffled
    other = convert(tmp_path / "a.svm", tmp_path / "two", workers=2, memory="400MB")
    one, two = ((tmp_path / name / "part-00000.parquet").read_bytes() for name in ("one", "two"))
    assert one == two
    (tmp_path / "two" / "_bigclf_manifest.json").unlink()
    assert bigclf.Dataset(tmp_path / "two").label_range == other.label_range  # from the footers
    model = fit(there, loss="epsilon_insensitive", tol=1e-2, **QUIET)
    assert evaluate(model, there).r2 > 0.2
    for refused in (lambda: fit(there, **QUIET), lambda: fit(there, algo="perceptron", **QUIET)):
        with pytest.raises(DataError, match="too many different ones to be classes.*epsilon_insensitive"):
            refused()
    sorted_ = convert(tmp_path / "a.svm", tmp_path / "three", shuffle=False, workers=1)
    np.testing.assert_array_equal(np.concatenate([sorted_.decode(0, g).labels for g in range(sorted_.n_chunks)]), y)


def test_on_the_command_line(many, tmp_path):
    x, y = many
    shards_of(tmp_path / "shards", x, y, real=True, chunk_nnz=50_000)

    def run(*words):
        done = CliRunner().invoke(main, list(map(str, words)))
        assert done.exit_code == 0, done.output
        return done.stdout

    told = json.loads(run("inspect", tmp_path / "shards", "--json"))
    assert told["classes"] is None and told["label_range"]["max"] == y.max()
    assert "numbers from" in run("inspect", tmp_path / "shards")
    out = tmp_path / "m.bigclf"
    run(
        "fit",
        tmp_path / "shards",
        "-o",
        out,
        "--loss",
        "epsilon_insensitive",
        "--param",
        "epsilon=0.05",
        "--tol",
        "0.1",
    )
    model = load(out)
    assert model.method["epsilon"] == 0.05 and "numbers" in repr(model)
    assert "numbers" in run("inspect", out) and json.loads(run("inspect", out, "--json"))["classes"] is None
    figures = json.loads(run("evaluate", out, tmp_path / "shards", "--json"))
    assert figures["r2"] == pytest.approx(evaluate(model, x, y).r2, rel=1e-9) and "accuracy" not in figures
    shown = run("evaluate", out, tmp_path / "shards")
    assert "mean squared error" in shown and "R^2" in shown
    assert "progressive validation loss" in run(
        "fit", tmp_path / "shards", "-o", tmp_path / "o", "--loss", REGRESSION[1], "--epochs", "1"
    )
    run("predict", out, tmp_path / "shards", "-o", tmp_path / "said", "--scores")
    import pyarrow.parquet as pq

    said = pq.read_table(tmp_path / "said")
    np.testing.assert_allclose(said["prediction"], model.predict(x), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(said["label"], y)
    assert said["score"] == said["prediction"] and "validate" not in run("validate", tmp_path / "shards")


# The model


def test_a_model_of_numbers_is_kept_and_told_from_one_of_classes(tmp_path):
    x, y = rows()
    model = fit(x, y, loss="epsilon_insensitive", **QUIET)
    model.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.regression and again.classes_ is None and again.digest() == model.digest()
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    with pytest.raises(AttributeError, match="predicts numbers"):
        again.predict_proba(x)
    with pytest.raises(RunError, match="predicts numbers"):
        predict(again, shards_of(tmp_path / "s", x, y, real=True), str(tmp_path / "out"), proba=True)
    assert not hasattr(again, "predict_proba")
    with pytest.raises(ValueError, match=r"numbers need weights \[1"):
        Model(np.zeros((2, 3)), np.zeros(2), None)
    assert b'\\"version\\": 2' in (tmp_path / "m").read_bytes()  # an older bigclf says that it is newer
    fit(x, np.sign(y), **QUIET).save(tmp_path / "c")
    assert b'\\"version\\": 1' in (tmp_path / "c").read_bytes()


def test_what_is_refused(tmp_path):
    x, y = rows(50)
    given = dict(loss="epsilon_insensitive", **QUIET)
    for name, value in (("class_weight", "balanced"), ("multiclass", "one-vs-rest")):
        with pytest.raises(TypeError, match=f"{name} has no effect.*epsilon_insensitive"):
            fit(x, y, **({"algo": "dcd"} | given), **{name: value})
    with pytest.raises(ValueError, match="text"):
        fit(x, np.where(y > 0, "yes", "no"), **({"algo": "dcd"} | given))
    with pytest.raises(DataError, match="NaN"):
        fit(x, np.where(y > 0, y, np.nan), **({"algo": "dcd"} | given))
    with pytest.raises(TypeError, match="epsilon has no effect.*hinge"):
        fit(x, np.sign(y), epsilon=0.1, **({"algo": "dcd"} | QUIET))
    text = shards_of(tmp_path / "t", x, np.where(y > 0, "yes", "no"))
    model = fit(x, y, **({"algo": "dcd"} | given))
    for refused in (lambda: fit(text, **({"algo": "dcd"} | given)), lambda: evaluate(model, text)):
        with pytest.raises(SchemaError, match="text"):
            refused()
    real = shards_of(tmp_path / "r", x, y, real=True)
    with pytest.raises(DataError, match="to be classes"):
        evaluate(fit(x, np.sign(y), **({"algo": "dcd"} | QUIET)), real)
    with pytest.raises(ModelFormatError):
        (tmp_path / "m").write_bytes(b"{}")
        load(tmp_path / "m")


def test_arrays_serve_as_numbers_too():
    x, y = rows(80)
    y = np.round(y)
    arrays = Arrays(x, y)
    options = dict(loss="epsilon_insensitive", **QUIET)
    assert fit(arrays, **options).digest() == fit(x, y, **options).digest()
    assert arrays.classes is not None and arrays.digest != arrays.with_real_labels().digest


def test_one_label_for_all_rows_is_no_fault_of_a_regression(tmp_path):
    x, _ = rows(80)
    y = np.full(80, 3.0)
    for source in ((x, y), (shards_of(tmp_path / "s", x, y),)):
        model = fit(*source, loss="epsilon_insensitive", C=100.0, tol=1e-6, **QUIET)
        np.testing.assert_allclose(model.predict(x), 3.0, atol=0.11)


# Probabilities


def test_probabilities_are_scikit_learn_s():
    x, y = random_rows(300, D, 0.3, noise=1.0)
    wide = sp.hstack([x, np.ones((300, 1))]).tocsr().astype(float)  # LIBLINEAR's bias: a constant feature
    machine = LogisticRegression(C=1.0, tol=1e-12, fit_intercept=False, max_iter=1000, solver="newton-cholesky")
    model = fit(x, y, loss="logistic", tol=1e-10, **QUIET)
    np.testing.assert_allclose(model.predict_proba(x), machine.fit(wide, y).predict_proba(wide), atol=1e-4)
    three = np.argmax(x[:, :3].toarray(), axis=1)
    theirs = OneVsRestClassifier(machine).fit(wide, three).predict_proba(wide)
    mine = fit(x, three, loss="logistic", tol=1e-10, **QUIET)
    np.testing.assert_allclose(mine.predict_proba(x), theirs, atol=1e-4)
    expected = -np.log(theirs[np.arange(300), three]).mean()
    assert evaluate(mine, x, three).log_loss == pytest.approx(expected, abs=1e-4)


def test_importing_it_all_stays_cheap():
    """The regression losses' names are known without the estimators."""
    told = run_python("import sys, bigclf; bigclf.Model; print('sklearn' in sys.modules)")
    assert told.strip() == "False"
