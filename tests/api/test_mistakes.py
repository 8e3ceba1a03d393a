"""Mistakes of the first hour in Python: what the message says to do about each."""

import os
import re
import warnings
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse
from making import shards_of

import bigclf
from bigclf import LinearClassifier, LinearRegressor
from bigclf.errors import DataError, MemoryBudgetError, RunError, SchemaError
from bigclf.model.explanations import explain_row

RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(60, 4)), np.arange(60) % 2


def message(kind, call, *args, **more):
    with pytest.raises(kind) as caught:
        call(*args, **more)
    return str(caught.value)


@pytest.mark.parametrize("given", [{}, {"algo": "dcd"}, {"algo": "newton"}])
def test_a_parameter_in_the_wrong_case_is_guessed(given):
    assert "; did you mean C?" in message((ValueError, TypeError), bigclf.fit, X, Y, c=1, progress=False, **given)


def test_the_right_case_is_never_asked_for():
    assert "did you mean" not in message(TypeError, bigclf.fit, X, Y, C=1, algo="arow", progress=False)
    assert "did you mean c?" in message(TypeError, bigclf.fit, X, Y, C=1, algo="memma_p", progress=False)
    told = message(ValueError, bigclf.fit, X, Y, C=1, r=2.0, bias="free", progress=False)
    assert "did you mean" not in told and "r is a parameter of" in told


@pytest.mark.parametrize(("loss", "meant"), [
    ("log_loss", "'logistic'"), ("log", "'logistic'"), ("modified_huber", "'squared_hinge'"),
    ("squared_error", "'squared'"), ("absolute_error", "'epsilon_insensitive'"), ("l1", "penalty='l1'"),
    ("hinges", "hinge"),
])  # fmt: skip
def test_losses_of_other_libraries_are_guessed(loss, meant):
    assert message(ValueError, bigclf.fit, X, Y, loss=loss, progress=False).endswith(f"; did you mean {meant}?")
    assert message(ValueError, LinearClassifier(loss=loss).fit, X, Y).endswith(f"; did you mean {meant}?")
    told = message(ValueError, bigclf.fit, X, Y, loss=loss, algo="dcd", progress=False)
    assert told.endswith("; bigclf calls it 'squared'" if loss == "squared_error" else f"; did you mean {meant}?")


def test_probabilities_that_are_not_there_come_with_who_has_them():
    for name in ("predict_proba", "predict_log_proba"):
        for estimator, own in ((LinearClassifier(loss="hinge"), "loss='hinge'"),
                               (LinearClassifier("arow"), "algo='arow'")):  # fmt: skip
            for made in (estimator, estimator.fit(X, Y)):
                assert not hasattr(made, name)
                told = message(AttributeError, getattr, made, name)
                assert (
                    told.startswith(f"{name} needs a model trained with loss='logistic', or calibrated") and own in told
                )
        assert hasattr(LinearClassifier().fit(X, Y), name)
        assert "has no attribute" in message(AttributeError, getattr, LinearRegressor(), name)


@pytest.mark.parametrize(("value", "decimal", "written", "told"), [
    ("160,87", ".", "plain", '(decimal: "," in the reader of a spec, --decimal ,)'),
    ("160,87 €", ".", "plain", '--decimal , (decimal: "," in the reader of a spec, and written: grouped'),
    ("$1.160,87", ".", "grouped", '--decimal , (decimal: "," in the reader of a spec)'),
    ("$1,160.87", ",", "plain", '--decimal . (decimal: "." in the reader of a spec, and written: grouped'),
    ("1,160", ".", "plain", "add `written: grouped`"),
])  # fmt: skip
def test_decimals_of_the_other_kind_come_with_the_option(tmp_path, value, decimal, written, told):
    (tmp_path / "t.tsv").write_text(f"amount\ty\n{value}\t1\n1\t0\n")
    spec = {"label": "y", "features": [{"numeric": "amount", "written": written}], "reader": {"decimal": decimal}}
    said = message(DataError, bigclf.convert, tmp_path / "t.tsv", tmp_path / "s", features=spec)
    assert f"column amount: {value!r} is not a number; " in said and told in said and "skip" not in said


def test_rows_that_are_bad_for_another_reason_come_with_what_leaves_them_out(tmp_path):
    (tmp_path / "t.tsv").write_text("amount\ty\nmuch\t1\n1\t0\n")
    spec = {"label": "y", "features": [{"numeric": "amount"}]}
    said = message(DataError, bigclf.convert, tmp_path / "t.tsv", tmp_path / "s", features=spec)
    assert said.endswith(
        "'much' is not a number; to leave such rows out, use --on-bad-rows skip (on_bad_rows=\"skip\")"
    )


def table_without_some_labels(raw):
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    if raw:
        frame["city"] = np.where(X[:, 2] > 0, "x", "y")
    status = np.where(X[:, 0] > 0, "yes", "no").astype(object) if raw else (X[:, 0] > 0).astype(float)
    status[[3, 7]] = None if raw else np.nan
    return frame.assign(status=status)


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("beside", [True, False])
@pytest.mark.parametrize("arrow", [True, False])
def test_rows_of_tables_without_a_label_are_skipped_as_those_of_files(raw, beside, arrow):
    frame = table_without_some_labels(raw)
    weights = np.linspace(1, 2, len(frame))
    weights[5] = np.nan
    kept = np.delete(np.arange(len(frame)), [3, 5, 7])
    options = {"algo": "dcd", "memory": "100MB", "progress": False}
    wanted = bigclf.fit(frame.iloc[kept], y="status", sample_weight=weights[kept], **options)

    def fit(**more):
        y = frame["status"] if beside else "status"
        rows = frame.drop(columns="status") if beside else frame
        rows = pa.Table.from_pandas(rows) if arrow else rows
        return bigclf.fit(rows, y=y, sample_weight=weights, **options, **more)

    model = fit(on_bad_rows="skip", max_bad_fraction=0.05)
    assert np.array_equal(model.coef_, wanted.coef_) and model.classes_.tolist() == wanted.classes_.tolist()
    (said,) = [text for text in model.result_.warnings if "left out" in text]
    assert said.startswith("3 bad rows were left out: 2 as in row 3: the label is missing; 1 in row 5: the weight is")
    with pytest.raises(DataError, match="3 of 60 rows are bad, more than the 0.01 that max_bad_fraction allows"):
        fit(on_bad_rows="skip")
    with pytest.raises(DataError, match="row 3.*missing|row 3.*NaN"):
        fit()
    with pytest.raises(ValueError, match='"quarantine" needs files'):
        fit(on_bad_rows="quarantine")


def test_bad_rows_of_arrays_are_to_be_left_out_of_them():
    with pytest.raises(ValueError, match="when training on arrays.*leave the rows that are bad out of X and y"):
        bigclf.fit(X, Y, on_bad_rows="skip", progress=False)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_the_label_of_files_may_be_named_beside_their_format(tmp_path, form):
    frame = pd.DataFrame({"a": X[:, 0], "town": np.where(X[:, 1] > 0, "x", "y"), "status": Y})
    path = tmp_path / f"t.{form}"
    frame.to_csv(path, index=False) if form == "csv" else frame.to_parquet(path)
    options = {"algo": "dcd", "progress": False, "memory": "300MB"}
    plain = bigclf.fit(str(path), y="status", **options)
    model = bigclf.fit(str(path), y="status", format=form, **options)
    assert np.array_equal(model.coef_, plain.coef_) and model.classes_.tolist() == [0, 1]
    told = message(SchemaError, bigclf.fit, str(path), y="nope", format=form, **options)
    assert told.startswith("column nope: there is no such column")


@pytest.mark.parametrize("name", ["output", "out"])
def test_who_names_a_file_is_told_what_saves(name):
    for call in (bigclf.fit, partial(bigclf.path, C=[1]), partial(bigclf.sweep, grid={"C": [1]})):
        told = message(TypeError, call, X, Y, progress=False, **{name: "x"})
        assert "no method has it; save what is returned: model.save(FILE), of sweep found.best_model.save(FILE)" in told


def test_words_that_are_nearly_right_come_with_the_right_one():
    for call in (bigclf.fit, partial(bigclf.path, C=[1])):
        said = message(ValueError, call, X, Y, penalty="ridge", progress=False)
        assert said == "unknown penalty 'ridge'; choose from l2, l1, elastic_net; did you mean l2?"
    assert message(ValueError, bigclf.fit, X, Y, algo="dcd", tol="0,001").endswith("'0,001'; did you mean 0.001?")
    with pytest.raises(ValueError, match="only names no class"):
        explain_row(bigclf.fit(X, Y, algo="pa1", epochs=1, progress=False), X[0], only=[])


@pytest.mark.parametrize("wrap", [np.asarray, scipy.sparse.csr_matrix, scipy.sparse.csc_matrix])
@pytest.mark.parametrize("wrong", [np.nan, -np.inf, 1e200])
def test_what_is_no_finite_number_is_told_by_row_and_column(wrap, wrong):
    spoilt = np.where(RNG.random(X.shape) < 0.5, X, 0.0)
    spoilt[7, 2] = wrong
    spoilt[8, 0] = wrong
    told = message(DataError, bigclf.fit, wrap(spoilt), Y, progress=False)
    assert told.startswith("row 7, column 2: a value is ") and told.endswith("(both count from 0)")
    model = bigclf.fit(X, Y, algo="pa1", epochs=1, progress=False)
    if abs(wrong) != 1e200:
        told = message(ValueError, model.predict, wrap(spoilt))
        assert told.startswith("Input X contains NaN or infinity in row 7, column 2 (both count from 0)")


@pytest.fixture(scope="module")
def frame():
    words = [f"w{k % 7}@x.org" for k in range(60)]
    return pd.DataFrame({"mail": words, "a": X[:, 0], "b": X[:, 1], "town": [w[:2] for w in words], "y": Y})


@pytest.fixture(scope="module")
def of_table(frame):
    spec = {"label": "y", "features": [{"numeric": ["a", "b"]}, {"categorical": "town"}]}
    return bigclf.fit(frame, features=spec, algo="pa1", epochs=1, progress=False)


def test_a_model_of_a_table_says_which_columns_it_takes(of_table, frame):
    for call in (of_table.predict, of_table.decision_function, lambda x: bigclf.evaluate(of_table, x, Y)):
        told = message(ValueError, call, X)
        assert told.startswith("X has 4 features, but the model takes a table with the columns a, b, town: ")
    encoded = of_table.encode(frame)
    np.testing.assert_array_equal(of_table.predict(encoded), of_table.predict(frame))
    many = {f"c{k}": X[:, 0] for k in range(9)} | {"y": Y}
    spec = {"label": "y", "features": [{"numeric": [f"c{k}" for k in range(9)]}]}
    wide = bigclf.fit(pd.DataFrame(many), features=spec, algo="pa1", epochs=1, progress=False)
    assert "columns c0, c1, c2, c3, c4, ... (9 in all): " in message(ValueError, wide.predict, X)
    plain = bigclf.fit(X, Y, algo="pa1", epochs=1, progress=False)
    assert message(ValueError, plain.predict, X[:, :3]).endswith("but the model is expecting 4 features as input")


def test_columns_of_text_are_named_where_numbers_are_needed(frame):
    x = frame[["a", "b", "mail", "town"]]
    model = bigclf.fit(X, Y, algo="pa1", epochs=1, progress=False)
    for call, *given in (
        (model.predict, x), (lambda x: bigclf.evaluate(model, x, Y), x), (LinearClassifier().fit, x, Y),
        (LinearClassifier("pa1").partial_fit, x, Y, [0, 1]), (LinearRegressor().fit, x, Y),
        (model.predict, pa.table(x.to_dict("list"))),
    ):  # fmt: skip
        told = message(ValueError, call, *given)
        assert told.startswith("column mail: could not convert string to float: 'w0@x.org'. ")
        assert "FeatureTransformer" in told and 'bigclf.fit(frame, y="COLUMN")' in told
    assert "column" not in message(ValueError, LinearClassifier().fit, [["x", "1"]] * 60, Y)


def test_all_columns_that_are_missing_are_named(of_table, frame, tmp_path):
    some = frame[["mail", "y"]]
    some.to_csv(tmp_path / "some.csv", index=False)
    for rows, what in ((some, "table"), (tmp_path / "some.csv", "file")):
        told = message(SchemaError, of_table.predict, rows)
        trained = "; the model was trained on a table that has these columns" if what == "file" else ""
        assert told.endswith(f"the columns 'a', 'b', 'town' are missing; the {what} has mail, y{trained}")
        assert "missing" in message(SchemaError, bigclf.evaluate, of_table, rows)
    assert message(SchemaError, of_table.predict, frame[["a", "b"]]).startswith("column town: there is no such column;")
    many = {f"c{k}": X[:, 0] for k in range(12)} | {"y": Y}
    spec = {"label": "y", "features": [{"numeric": [f"c{k}" for k in range(12)]}]}
    wide = bigclf.fit(pd.DataFrame(many), features=spec, algo="pa1", epochs=1, progress=False)
    told = message(SchemaError, wide.predict, some)
    assert "'c0', " in told and "'c9' and 2 more are missing; the table has mail, y" in told


def test_a_missing_label_is_told_as_such(of_table, frame, tmp_path):
    rest = frame.drop(columns="y")
    rest.to_csv(tmp_path / "rest.csv", index=False)
    for rows in (rest, tmp_path / "rest.csv"):
        told = message(SchemaError, bigclf.evaluate, of_table, rows)
        assert "column y: there is no such column (it should hold the labels); the " in told
        assert len(of_table.predict(rows)) == 60  # which needs none
    rest.drop(columns="b").to_csv(tmp_path / "less.csv", index=False)
    told = message(SchemaError, bigclf.evaluate, of_table, tmp_path / "less.csv")
    assert "'b'" in told and "'y' (the labels)" in told and "are missing" in told


@pytest.mark.parametrize("classes", [2, 3, 30])
def test_memory_that_is_too_small_comes_with_what_is_enough(classes):
    """And it is: training within that ends."""
    x, y = RNG.normal(size=(120, 5)), np.arange(120) % classes
    told = message(MemoryBudgetError, bigclf.fit, x, y, memory=10, progress=False)
    assert told.startswith("memory=10 B is too small: ") and "multiclass" not in told
    enough = re.search(r"; memory=([\d.]+ ?[kMG]?B) would do$", told)
    assert bigclf.fit(x, y, memory=enough[1], epochs=2, progress=False).n_features == 5


def test_an_evaluation_is_told_in_a_line(of_table, frame, tmp_path):
    told = bigclf.evaluate(of_table, frame)
    assert repr(told) == str(told) and len(repr(told)) < 200
    share = f"accuracy {100 * told.accuracy:.2f} % (majority 50.00 %), AUC {told.auc:.5f}, macro F1 {told.macro_f1:.5f}"
    assert repr(told) == f"<Evaluation: 60 rows, {share}>"
    logistic = bigclf.evaluate(bigclf.fit(X, np.arange(60) % 3, progress=False), X, np.arange(60) % 3)
    assert f", log loss {logistic.log_loss:.5f}, macro F1 " in repr(logistic) and "AUC" not in repr(logistic)
    assert logistic["accuracy"] == logistic.accuracy and set(logistic.keys()) == set(logistic.to_dict())
    frame.to_csv(tmp_path / "t.csv", index=False)
    spec = {"label": "y", "features": [{"numeric": ["a", "b"]}]}
    model = bigclf.fit(tmp_path / "t.csv", features=spec, algo="pa1", epochs=1, progress=False)
    assert repr(bigclf.evaluate(model, tmp_path / "t.csv")).endswith(", the model was trained on these rows>")


def test_an_evaluation_of_numbers_is_told_in_a_line():
    model = bigclf.fit(X, X[:, 0] - X[:, 1], loss="squared", progress=False)
    told = bigclf.evaluate(model, X, X[:, 0] - X[:, 1])
    errors = f"mean squared error {told.mean_squared_error:.6g}, mean absolute error {told.mean_absolute_error:.6g}"
    assert repr(told) == f"<RegressionEvaluation: 60 rows, {errors}, R^2 {told.r2:.5f}>"
    none = bigclf.evaluate(model, X, np.ones(60))
    assert "R^2" not in repr(none) and none.r2 is None


@pytest.mark.parametrize("algo", ["newton", "newton_dense", "dcd", "newglmnet"])
def test_a_sweep_tells_what_each_point_took(algo):
    found = bigclf.sweep(X, Y, algo=algo, grid={"C": [0.1, 1.0]}, folds=2, progress=False)
    assert all(point["seconds"] > 0 for point in found.table)


def test_data_given_for_a_spec_are_not_written_into_the_error(tmp_path):
    (tmp_path / "people.csv").write_text("name,y\n" + "a secret,1\n" * 5000)
    with pytest.raises(SchemaError, match="a spec of features is a table with the keys label and features") as caught:
        bigclf.fit(tmp_path / "people.csv", features=(tmp_path / "people.csv").read_text())
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("weight", ["heavy", None, True, float("nan"), -1])
def test_weights_of_classes_are_numbers(weight):
    with pytest.raises(ValueError, match="class_weight of 1 must be a finite number of at least 0"):
        bigclf.fit(np.eye(4), [0, 1, 0, 1], class_weight={1: weight})


def test_what_is_skipped_of_tables_in_memory_is_what_is_of_files(tmp_path):
    frame = pd.DataFrame({"a": np.arange(40.0), "l": ["1", "2"] * 20})
    frame.loc[9, "l"] = "true"
    spec = {"label": {"column": "l", "type": "number"}, "features": [{"numeric": "a"}]}
    skip = {"on_bad_rows": "skip", "max_bad_fraction": 0.5, "algo": "pa1", "epochs": 1, "progress": False}
    model = bigclf.fit(frame, features=spec, **skip)
    assert model.classes_.tolist() == [1, 2]
    assert any("row 9: column l: 'true' is not a number" in text for text in model.result_.warnings)
    y, w = np.tile([0.0, 1.0], 20), np.ones(40)
    y[3], w[4] = np.nan, np.inf
    kept = bigclf.fit(frame[["a"]], y, sample_weight=w, **skip)
    assert any("2 bad rows" in text for text in kept.result_.warnings)
    whole = np.tile([0.0, 1.0], 20)
    for labels, weights in ((whole[:30], w), (pd.Series(whole[:30]), w), ([*whole, *whole], w), (whole, w[:30])):
        with pytest.raises(ValueError, match=r"40 rows|expected \(40,\)"):
            bigclf.fit(frame[["a"]], labels, sample_weight=weights, **skip)
    with pytest.raises(DataError, match="all 40 rows are bad"):
        bigclf.fit(frame[["a"]], np.full(40, np.nan), **skip | {"max_bad_fraction": 1.0})


def test_a_column_of_labels_is_no_list_for_each_row():
    X = np.random.default_rng(0).normal(size=(40, 2))
    for y in ([[2], [3]] * 20, [["u"], ["v"]] * 20):
        assert bigclf.LinearClassifier("pa1").fit(X, y).classes_.tolist() == [y[0][0], y[1][0]]


def test_columns_that_are_no_frame_are_told_how_to_be_one():
    columns = {name: pd.Series(X[:, k]) for k, name in enumerate("abcd")}
    model = bigclf.fit(X, Y, algo="pa1", progress=False)
    calls = (partial(bigclf.fit, columns, Y, algo="pa1", progress=False), partial(model.predict, columns),
             partial(bigclf.evaluate, model, columns, Y))  # fmt: skip
    for call in calls:
        assert "give a frame, pandas.DataFrame(X)" in message(TypeError, call)
    assert (model.predict(pd.DataFrame(columns).to_numpy()) == model.predict(X)).all()


def test_bad_rows_to_validate_on_are_left_out_like_those_to_learn_from(tmp_path):
    for name, bad in (("rows", 3), ("others", 1)):
        lines = [f"{'uv'[i % 2]},{'x' if i < bad else i % 7}" for i in range(90)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["y,a", *lines]) + "\n")
    words = dict(features={"label": "y", "features": [{"numeric": "a"}]}, algo="pa1", progress=False, epochs=1)
    words |= {"validate": str(tmp_path / "others.csv")}
    skipping = bigclf.fit(str(tmp_path / "rows.csv"), on_bad_rows="skip", max_bad_fraction=0.1, **words)
    assert 0 < skipping.result_.history[0]["validation"]["accuracy"] < 1
    table = pd.DataFrame({"y": list("uv") * 45, "a": np.arange(90) % 7})
    assert bigclf.fit(table, on_bad_rows="skip", max_bad_fraction=0.1, **words).result_.history[0]["validation"]
    assert "others.csv, line 2" in message(DataError, bigclf.fit, *[str(tmp_path / "others.csv")], **words)


def test_a_table_where_files_are_meant_and_a_path_where_a_model_is(of_table, frame, tmp_path):
    path, out = tmp_path / "m.bigclf", str(tmp_path / "out")
    of_table.save(path)
    for thing in (path, str(path)):
        assert bigclf.evaluate(thing, frame).accuracy == bigclf.evaluate(of_table, frame).accuracy
        assert bigclf.predict(thing, frame).equals(bigclf.predict(of_table, frame))
        assert bigclf.calibrate(thing, frame).calibration
    report = partial(bigclf.report, out=str(tmp_path / "r.html"))
    for call in (bigclf.evaluate, bigclf.predict, bigclf.calibrate, lambda one, _: report(one)):
        told = message(TypeError, call, frame, of_table)
        assert told == "the first argument is a model, or the path of one, not a DataFrame"
    for table in (frame, {name: frame[name] for name in frame}, pa.Table.from_pandas(frame)):
        for call in (bigclf.Dataset, partial(bigclf.convert, out=out), partial(bigclf.split, out=out, parts={"a": 1})):
            told = message(TypeError, call, table)
            assert told == f"expected files (a path, a glob or a list of them), not a {type(table).__name__}"
        assert "those of rows in memory are returned" in message(TypeError, bigclf.predict, of_table, table, out)
    assert "for a mapping of columns use model.predict(X)" in message(TypeError, bigclf.predict, of_table, dict(frame))
    told = message(TypeError, bigclf.forget, of_table, out, like=frame, to=str(tmp_path / "left"))
    assert told.endswith("or of the run; not the Model")


def test_rows_to_validate_on_are_looked_at_before_the_first_epoch(tmp_path):
    for name, labels in (("a", (1, -1)), ("b", (5, 6))):
        (tmp_path / f"{name}.svm").write_text("".join(f"{labels[k % 2]} 1:{k}\n" for k in range(40)))
        bigclf.convert(str(tmp_path / f"{name}.svm"), tmp_path / name)
    for rows, others in ((tmp_path / "a", tmp_path / "b"), (tmp_path / "a.svm", tmp_path / "b.svm")):
        told = message(DataError, bigclf.fit, str(rows), validate=str(others), run_dir=tmp_path / "run", progress=False)
        assert "no row has a label that the model knows" in told and not (tmp_path / "run").exists()
    words = {"run_dir": tmp_path / "run", "algo": "pa1", "epochs": 1, "progress": False}
    made = bigclf.fit(str(tmp_path / "a"), validate=str(tmp_path / "a.svm"), **words)
    (tmp_path / "a.svm").unlink()  # of a run that has ended
    assert (
        bigclf.fit(str(tmp_path / "a"), validate=str(tmp_path / "a.svm"), resume=True, **words).coef_ == made.coef_
    ).all()


def test_labels_that_stand_among_the_columns_are_refused(frame):
    label = frame.columns[-1]
    for wrap in (lambda table: table, pl.from_pandas):
        table = wrap(frame)
        told = message(ValueError, bigclf.fit, table, table[label], progress=False)
        assert told == f"y is the column {label!r} of X itself: give it by its name, y={label!r}, or leave it out of X"
    numbers = pd.DataFrame({"a": X[:, 0], "b": Y})
    for estimator in (LinearClassifier(), LinearRegressor()):
        assert "of X itself" in message(ValueError, estimator.fit, numbers, numbers["b"])
        estimator.fit(numbers, (1.0 - numbers["b"]).rename("b"))  # another one of this name
        estimator.fit(numbers[["a"]], numbers["b"])
    unnamed = pd.DataFrame({0: X[:, 0], 1: Y})
    assert message(ValueError, bigclf.fit, unnamed, unnamed[1], progress=False).startswith("y is the column 1 of X")
    lacking = pd.DataFrame({"a": X[:, 0], "b": pd.array([None, *Y[1:].tolist()], dtype="Int64")})
    assert "of X itself" in message(ValueError, bigclf.fit, lacking, lacking["b"], progress=False)


def test_labels_that_no_feature_is_made_of_may_stand_among_the_columns(frame):
    *others, label = frame.columns
    numbers = [name for name in others if frame[name].dtype.kind == "f"]
    for spec in ({"features": [{"numeric": numbers}]}, {"label": label, "features": [{"numeric": numbers}]}):
        apart = bigclf.fit(frame[numbers], frame[label], features={"features": [{"numeric": numbers}]}, progress=False)
        among = bigclf.fit(frame, frame[label], features=spec, progress=False)
        assert (among.coef_ == apart.coef_).all()
    spec = {"features": [{"numeric": numbers}, {"categorical": [label]}]}
    told = message(ValueError, bigclf.fit, frame, frame[label], features=spec, progress=False)
    assert told == f"y is the column {label!r} of X, and features makes one of it: leave it out there"


def test_files_to_predict_may_be_named_by_any_iterable(of_table, frame, tmp_path):
    paths = [tmp_path / "a.csv", tmp_path / "b.csv"]
    for path in paths:
        frame.to_csv(path, index=False)
    for k, named in enumerate((tmp_path.glob("[ab].csv"), {*paths}, np.array([*map(str, paths)]))):
        assert bigclf.predict(of_table, named, str(tmp_path / f"out-{k}"))["rows"] == 2 * len(frame)
    for rows in (frame, X, iter([X])):
        assert "out is for predictions of files" in message(TypeError, bigclf.predict, of_table, rows, "out")


def test_what_has_no_effect_on_predictions_is_refused(of_table, frame, tmp_path):
    assert "keep has no effect" in message(TypeError, bigclf.predict, of_table, frame, keep=["nope"])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    told = message(TypeError, bigclf.predict, of_table, str(tmp_path / "rows.csv"), frame)
    assert told == "out is the place to write to: predict(model, data, out); not a DataFrame"
    assert "is a directory" in message(RunError, of_table.save, tmp_path)


def test_the_label_of_files_may_be_named_to_evaluate(of_table, frame, tmp_path):
    path = str(tmp_path / "rows.csv")
    frame.to_csv(path, index=False)
    label = of_table.finisher.spec.label.column
    assert bigclf.evaluate(of_table, path, y=label).accuracy == bigclf.evaluate(of_table, path).accuracy
    told = message(TypeError, bigclf.evaluate, of_table, path, y="other")
    assert told == f"files have their own labels, in the column {label!r}: y has no effect"


def test_columns_are_named_that_cannot_be_told_apart_or_read(frame):
    twice = pd.concat([frame, frame.iloc[:, :1]], axis=1)
    label, first = frame.columns[-1], frame.columns[0]
    assert f"column {first}: two columns have this name" in message(SchemaError, bigclf.fit, twice, y=label)
    mixed = pd.DataFrame({"a": [1, "x", 2, 3] * 20, "y": [0, 1, 1, 0] * 20})
    assert "column a: values of several kinds" in message(SchemaError, bigclf.fit, mixed, y="y")


def test_numbers_that_are_too_many_classes_come_with_how_to_predict_them():
    table = pd.DataFrame({"a": RNG.normal(size=4000), "income": RNG.normal(size=4000)})
    told = message(MemoryBudgetError, bigclf.fit, table, y="income", memory="64MB", progress=False)
    assert "would do; to predict numbers (regression), give a loss for them: --loss squared" in told


def test_predictions_of_other_rows_in_the_directory_are_told_of(of_table, frame, tmp_path):
    frame[:50].to_csv(tmp_path / "a.csv", index=False)
    frame[50:].to_csv(tmp_path / "b.csv", index=False)
    out = str(tmp_path / "out")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):  # the same again
            bigclf.predict(of_table, [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")], out)
    with pytest.warns(
        UserWarning, match=re.escape(f"{out} also holds b.csv.parquet, not made by this call; whoever reads")
    ):
        bigclf.predict(of_table, str(tmp_path / "a.csv"), out)


def test_a_path_tells_what_fit_tells_of_the_data(tmp_path, caplog):
    x = scipy.sparse.random(60, 9, 0.5, "csr", np.float32, random_state=0)
    found = shards_of(tmp_path / "s", x, np.sort(Y), shard_nnz=90, chunk_nnz=40)
    os.remove(found.files[1])
    bigclf.path(str(tmp_path / "s"), C=[0.1, 1], progress=False)
    assert "1 of" in caplog.text and "shards that the manifest lists is not there" in caplog.text
    caplog.clear()
    bigclf.path(bigclf.Dataset(tmp_path / "s", target_nnz=33), C=[0.1, 1], progress=False)  # which tells it itself
    assert caplog.text.count("shards that the manifest lists is not there") == 1


def test_what_holds_no_rows_is_called_so():
    frame = pd.DataFrame({"a": X[:, 0], "w": np.where(X[:, 1] > 0, "u", "v"), "y": Y})
    model = bigclf.fit(frame, y="y", algo="pa1", progress=False)
    for rows, labels in ((frame["y"], frame), (frame["y"], X), (Y, frame), (Y, X), (pl.Series(Y), frame)):
        assert "the rows come first, fit(X, y)" in message(TypeError, bigclf.fit, rows, labels, progress=False)
    for rows in (frame["a"], pl.Series(X[:, 0]), pa.chunked_array([X[:, 0]])):
        assert "X is one column: rows are a frame" in message(TypeError, bigclf.fit, rows, Y, progress=False)
        assert "this is one column, or one row" in message(TypeError, bigclf.predict, model, rows)
    assert "this is one column, or one row" in message(TypeError, bigclf.predict, model, frame.iloc[0])
    for thing, what in ((model, "a Model"), (3, "a int"), (None, "None"), ({1, 2}, "a set"), (message, "a function")):
        assert f"X is {what}: rows are files" in message(TypeError, bigclf.fit, thing, progress=False)
        assert f"X is {what}: rows" in message(TypeError, bigclf.sweep, thing, grid={"C": [1]}, progress=False)
    assert "looks at files or a table, not at a Model" in message(TypeError, bigclf.suggest, model)
    told = message(SchemaError, model.predict, {"a": 1.0, "w": "u"})
    assert "column a: one value where a column of them is meant: [value]" in told
    records = np.array([(0.5, 1)], [("a", float), ("y", int)])
    assert "give a frame, pandas.DataFrame(X)" in message(TypeError, bigclf.fit, records, [1], progress=False)


def test_the_label_to_measure_by_is_no_feature_and_is_read_as_the_model_learned_it():
    frame = pd.DataFrame({"a": X[:, 0], "w": np.where(X[:, 1] > 0, "u", "v"), "y": np.where(X[:, 0] > 0, "Yes", "no")})
    spec = {"features": [{"numeric": ["a"]}, {"categorical": ["w"]}], "label": {"column": "y", "lowercase": True}}
    model = bigclf.fit(frame, features=spec, algo="lbfgs", progress=False)
    plain = bigclf.fit(frame[["a"]], frame["y"], algo="lbfgs", progress=False)
    assert bigclf.evaluate(model, frame, "y").accuracy == bigclf.evaluate(model, frame).accuracy > 0.9
    assert str(bigclf.calibrate(model, frame, "y").calibration) == str(bigclf.calibrate(model, frame).calibration)
    for verb in (bigclf.evaluate, bigclf.calibrate):
        told = message(TypeError, verb, model, frame, "w")
        assert "y names 'w', of which the model's features are made; its label is 'y'" in told
        assert "y names 'a', of which the model's features are made" in message(TypeError, verb, plain, frame, "a")


def test_predictions_of_a_frame_warn_of_categories_that_the_model_does_not_know():
    frame = pd.DataFrame({"a": X[:, 0], "w": np.where(X[:, 1] > 0, "u", "v"), "y": Y})
    model = bigclf.fit(frame, y="y", algo="pa1", progress=False)
    other = frame.assign(w="new")
    for rows in (other, pl.DataFrame(other), pa.table(other), pl.DataFrame(other).lazy()):
        with pytest.warns(UserWarning, match="60 cells hold categories that the model does not know"):
            found = bigclf.predict(model, rows)
        assert list(found["prediction"]) == list(model.predict(other)) or isinstance(rows, pa.Table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(bigclf.predict(model, frame)["prediction"]) == list(model.predict(frame))
    assert "'new' is not a category" in message(DataError, bigclf.predict, model, other, unseen="error")
