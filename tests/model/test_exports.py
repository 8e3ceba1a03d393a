"""Models in the formats of others say what the model says; LIBLINEAR's text is read with suspicion.

``liblinear_models.json`` has models that liblinear-official 2.50 wrote after training on 40 made-up rows of 4 features
(-s 7 -B 1; -s 1 -c 0.5 -B 1; -s 4 of two and of three classes; -s 6 -B 2; -s 12 -p 0.1 -B 0.5; -s 21), with the labels,
decision values (in the order of ``order``, its ``label`` line) and probabilities its ``predict`` gave for ``ROWS``.
"""

import csv
import datetime
import importlib.util
import json
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from making import HERE, run_python
from sklearn.utils import murmurhash3_32

import bigclf
from bigclf.errors import ModelFormatError, RunError, SchemaError
from bigclf.model.calibration import Calibration
from bigclf.model.exports import table_rows
from bigclf.model.model import Model, load

D = 9
ROWS = np.array([[1, 0, 2, 0], [0, -1.5, 0, 0.25], [0, 0, 0, 0]])
GOLDEN = json.loads((HERE / "liblinear_models.json").read_text())


def made(classes=(-1, 1), loss="hinge", bias=True, dtype=np.float64, sparse=False, **method):
    """A model of random weights, a third of them 0."""
    rng = np.random.default_rng(1)
    k = 1 if classes is None or len(classes) == 2 else len(classes)
    weights = (rng.normal(size=(k, D)) * (rng.random((k, D)) > 0.3)).astype(dtype)
    told = {"name": "dcd"} | {"loss": loss, "C": 0.5, "bias": "feature" if bias else None} | method
    return Model(sp.csc_matrix(weights) if sparse else weights, rng.normal(size=k) * bias, classes, method=told)


MODELS = {
    "two": made(),
    "no-bias": made(bias=False),
    "logistic": made((3, 5), "logistic"),
    "float32": made((False, True), "squared_hinge", dtype=np.float32),
    "three": made((-1, 0, 7), "hinge"),
    "three-logistic": made((1.0, 2.0, 4.0), "logistic"),
    "multinomial": made((1, 2, 3), "logistic", multiclass="multinomial"),
    "words": made(("no", "perhaps", "yes")),
    "own-loss": made((0, 1), None),
    "numbers": made(None, "epsilon_insensitive"),
    "sparse": made((1, 2, 3, 4), sparse=True),
}
MODELS["platt"] = made((3, 5))
MODELS["platt"].calibration = Calibration("platt", np.array([[-1.5], [0.25]]), np.array([0, 1]), {})
MODELS["platt-three"] = made((1, 2, 3), "logistic")
MODELS["platt-three"].calibration = Calibration("platt", np.array([[-1, -2, -3], [0, 0.5, 1.0]]), np.arange(4), {})
MODELS["isotonic"] = made((1, 2, 3))
POINTS = np.array([[-1.0, 0, 1, -2, 2, -0.5, 0.5], [0.1, 0.2, 0.9, 0.3, 0.7, 0.05, 0.95]])
MODELS["isotonic"].calibration = Calibration("isotonic", POINTS, np.array([0, 3, 5, 7]), {})
WHOLE = [name for name in MODELS if name != "words"]


def rows(n=30):
    x = sp.random(n, D, 0.4, "csr", np.float32, random_state=np.random.default_rng(2))
    return sp.vstack([x, sp.csr_matrix((1, D), dtype=np.float32)]).tocsr()


def says_the_same(model, predicted, scores, x, rtol=1e-12):
    expected = model.decision_function(x)
    np.testing.assert_allclose(scores, expected, rtol=rtol, atol=rtol)
    if model.regression:
        return np.testing.assert_allclose(predicted, expected, rtol=rtol, atol=rtol)
    assert np.array_equal(np.asarray(predicted), model.predict(x))


# LIBLINEAR


def scored_by_hand(text, x):
    """Labels and decision values as LIBLINEAR's README and predict_values() have them."""
    head, weights = text.split("w\n", 1)
    told = dict(line.split(" ", 1) for line in head.splitlines())
    w = np.array([[float(word) for word in line.split()] for line in weights.splitlines()])
    x = x.toarray().astype(float)
    if float(told["bias"]) >= 0:
        x = np.column_stack([x, np.full(len(x), float(told["bias"]))])
    assert len(w) == int(told["nr_feature"]) + (float(told["bias"]) >= 0)
    values = x @ w
    if told["solver_type"].endswith(("SVR", "SVR_DUAL")):
        return values[:, 0], values[:, 0]
    labels = np.array([int(label) for label in told["label"].split()])
    assert len(labels) == int(told["nr_class"])
    if len(labels) == 2:
        return np.where(values[:, 0] > 0, labels[0], labels[1]), values[:, 0]
    return labels[values.argmax(axis=1)], values


@pytest.mark.parametrize("name", WHOLE)
def test_liblinear_reads_the_weights_as_they_are(tmp_path, name):
    model, x = MODELS[name], rows()
    told = model.export(tmp_path / "m.txt", "liblinear")
    notes = " ".join(told["notes"])
    assert ("exactly 0" in notes) == (name == "no-bias") and ("stays behind" in notes) == bool(model.calibration)
    x = x[model.decision_function(x) != 0] if name == "no-bias" else x  # LIBLINEAR says the other label at 0
    says_the_same(model, *scored_by_hand((tmp_path / "m.txt").read_text(), x), x)


@pytest.mark.parametrize("name", WHOLE)
def test_through_liblinears_text_and_back_no_bit_changes(tmp_path, name):
    model = MODELS[name]
    model.export(tmp_path / "m.txt", "liblinear")
    again = Model.from_liblinear(tmp_path / "m.txt")
    assert np.array_equal(again.coef_, model.dense_weights()) and np.array_equal(again.intercept_, model.intercept_)
    assert model.regression or np.array_equal(again.classes_, model.classes_)
    again.save(tmp_path / "m")
    assert load(tmp_path / "m").digest() == again.digest()
    gives = model.method["loss"] == "logistic" and "multiclass" not in model.method and model.calibration is None
    assert (again.no_probabilities() is None) == gives
    if gives:
        np.testing.assert_allclose(again.predict_proba(rows()), model.predict_proba(rows()), rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in GOLDEN if name != "one"])
def test_liblinears_own_models_are_read_right(tmp_path, name):
    told = GOLDEN[name]
    (tmp_path / "m.txt").write_text(told["text"])
    model = Model.from_liblinear(tmp_path / "m.txt")
    values, scores = np.array(told["values"]), model.decision_function(ROWS)
    if model.regression:
        return np.testing.assert_allclose(scores, values[:, 0], rtol=1e-14)
    order = np.argsort(told["order"])
    zero = ROWS.any(axis=1) | bool(model.intercept_.any())
    assert model.predict(ROWS)[zero].tolist() == np.array(told["labels"])[zero].tolist()
    if model.binary:  # its value is for the first label; of Crammer and Singer's it shows one of two
        values = values[:, 0] * (1 if order[0] == 1 else -1) * (2 if name == "cs2" else 1)
    np.testing.assert_allclose(scores, values if model.binary else values[:, order], rtol=1e-14, atol=1e-15)
    if told["prob"]:
        np.testing.assert_allclose(model.predict_proba(ROWS), np.array(told["prob"])[:, order], rtol=1e-12)


def test_labels_that_are_no_whole_numbers_are_refused_or_numbered(tmp_path):
    model = MODELS["words"]
    with pytest.raises(RunError, match=r"whole numbers.*'no'.*--codes"):
        model.export(tmp_path / "m.txt", "liblinear")
    model.export(tmp_path / "m.txt", "liblinear", codes=True)
    assert Model.from_liblinear(tmp_path / "m.txt").classes_.tolist() == [0, 1, 2]


HEAD = "solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature {}\nbias -1\nw\n"
THREE = HEAD.format(3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD.format(10**15) + "0.5\n" * 3, "1,000,000,000,000,000 lines.*12 bytes are left"),
        (HEAD.format("9" * 30) + "0.5\n", "nr_feature must be a whole number"),
        (HEAD.format(-3) + "0.5\n", "nr_feature must be a whole number of at least 0, not '-3'"),
        (HEAD.format("1e3") + "0.5\n", "nr_feature"),
        (THREE + "0.5 \n0.25 \n", "3 lines of weights were announced, 2 are there"),
        (THREE + "0.5 \n0.25 \n1 2 \n", "line 9 has 2 weights, not 1"),
        (THREE + "0.5 \n\n0.25 \n1\n", "line 8 has 0 weights"),
        (THREE + "0.5 \n0.25 \n1 \n2 \n", "line 10 comes after the last"),
        (THREE + "0.5 \nnan \n1 \n", "line 8: a weight is 'nan', not a finite number"),
        (THREE + "0.5 \n-inf \n1 \n", "line 8: a weight is '-inf'"),
        (THREE + "0.5 \n1e999 \n1 \n", "beyond the range"),
        (THREE + "0.5 \n0,25 \n1 \n", "line 8 has a comma.*LC_ALL"),
        (THREE + "0.5 \n1_0 \n1 \n", "line 8: a weight is '1_0'"),
        (THREE + "0.5 \n1-0 \n1 \n", "lines 7 to 9"),
        (THREE + "0.5 \n0x1p3 \n1 \n", "line 8: a weight is '0x1p3'"),
        (THREE.replace("\nw\n", "\n") + "0.5 \n", "unknown line '0.5'|no end"),
        (THREE.replace("\nw\n", "\nw"), "3 lines of 1 weights"),
        (THREE.replace("bias -1", "bias x"), "bias must be a number, not 'x'"),
        (THREE.replace("bias -1", "bias nan"), "bias must be a number"),
        (THREE.replace("bias -1\n", ""), "no line 'bias'"),
        (THREE.replace("nr_class 2", "nr_class 3"), "nr_class is 3 and there are 2 labels"),
        (THREE.replace("nr_class 2", "nr_class 2\nnr_class 2"), "line 3 says nr_class again"),
        (THREE.replace("nr_class 2\nlabel 1 -1", "nr_class 1\nlabel 1"), "one class alone"),
        (THREE.replace("label 1 -1", "label 1 1"), "labels must be whole numbers that differ"),
        (THREE.replace("label 1 -1", "label a b"), "labels must be whole numbers"),
        (THREE.replace("L2R_LR", "L9"), "solver_type 'L9' is none"),
        (THREE.replace("solver_type", "type"), "begins with solver_type"),
        (THREE.replace("bias", "kernel rbf\nbias"), "unknown line 'kernel'"),
        ("solver_type", "no end"),
        (GOLDEN["one"]["text"], "one-class"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_model_is_refused_by_line(tmp_path, text, message):
    path = tmp_path / "m.txt"
    path.write_text(text)
    with pytest.raises(ModelFormatError, match=f"m.txt: .*({message})"):
        Model.from_liblinear(path)


def test_a_text_model_or_none_given_in_the_others_place(tmp_path):
    MODELS["two"].export(tmp_path / "m.txt", "liblinear")
    with pytest.raises(ModelFormatError, match="LIBLINEAR text model: `bigclf import`"):
        load(tmp_path / "m.txt")
    MODELS["two"].save(tmp_path / "m")
    with pytest.raises(ModelFormatError, match="begins with solver_type"):
        Model.from_liblinear(tmp_path / "m")
    with pytest.raises(ModelFormatError, match="no such file"):
        Model.from_liblinear(tmp_path / "none")


# scikit-learn


@pytest.mark.parametrize("name", MODELS)
def test_a_fitted_estimator_of_scikit_learn(tmp_path, name):
    import joblib

    model, x = MODELS[name], rows()
    told = model.export(tmp_path / "m.joblib", "sklearn")
    assert "pickle" in told["notes"][0] and any("float64" in note for note in told["notes"]) == model.sparse
    found = joblib.load(tmp_path / "m.joblib")
    x = x.astype(np.float64) if model.sparse else x
    kinds = {"numbers": "LinearSVR", "three-logistic": "OneVsRestClassifier"}
    kind = "LogisticRegression" if model.method["loss"] == "logistic" and not model.calibration else "LinearSVC"
    assert type(found).__name__ == kinds.get(name, kind)
    x = x[model.decision_function(x) != 0] if name == "no-bias" else x  # scikit-learn says the smaller class at 0
    says_the_same(model, found.predict(x), getattr(found, "decision_function", found.predict)(x), x)
    assert hasattr(found, "predict_proba") == (model.method["loss"] == "logistic" and not model.calibration)
    if hasattr(found, "predict_proba"):
        np.testing.assert_allclose(found.predict_proba(x), model.predict_proba(x), rtol=1e-9, atol=1e-15)


# ONNX


@pytest.mark.parametrize("name", MODELS)
def test_onnxruntime_says_the_same(tmp_path, name):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, x = MODELS[name], rows()
    told = model.export(tmp_path / "m.onnx", "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"X": x.toarray()}), strict=True))
    says_the_same(model, found.get("label", found["scores"]), found["scores"], x)
    assert ("probabilities" in found) == (not model.no_probabilities() and name != "isotonic")
    assert ("isotonic" in told["notes"][-1]) == (name == "isotonic")
    if "probabilities" in found:
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(x), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(
    "weights",
    [np.broadcast_to(np.float32(0), (3, 200_000_000)),  # a view of one number
     sp.csr_matrix((3, 200_000_000), dtype=np.float32)],
    ids=["dense", "sparse"],
)  # fmt: skip
def test_what_onnx_cannot_hold_is_refused_with_the_number(tmp_path, weights):
    """Its graph is dense, so that weights of which few are not 0 take the same room."""
    model = made((1, 2, 3))
    model.coef_ = weights
    with pytest.raises(RunError, match=r"2,147,483,647 bytes.*3 x 200,000,000 weights of 4 bytes take 2.40 GB"):
        model.export(tmp_path / "m.onnx", "onnx")
    assert not [*tmp_path.iterdir()]


def test_without_onnx_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(RunError, match=r"pip install 'bigclf\[onnx\]'"):
        MODELS["two"].export(tmp_path / "m.onnx", "onnx")


# Parquet


@pytest.mark.parametrize("name", MODELS)
def test_the_table_has_every_weight_that_is_not_0(tmp_path, name):
    import pandas as pd

    model = MODELS[name]
    model.export(tmp_path / "m.parquet", "parquet", names=[f"f{j}" for j in range(D)])
    table = pd.read_parquet(tmp_path / "m.parquet")
    assert ("class" in table) == (not model.regression) and "variance" not in table
    again = np.zeros(model.coef_.shape)
    labels = [None] if model.regression else model.classes_.tolist()[-1:] if model.binary else model.classes_.tolist()
    for row in table[table.feature.notna()].itertuples(index=False):
        assert row.weight != 0 and row.name == f"f{int(row.feature)}"
        again[labels.index(None if model.regression else row[0]), int(row.feature)] = row.weight
    assert np.array_equal(again, model.dense_weights().astype(float))
    bias = table[table.feature.isna()]
    assert bias.weight.tolist() == model.intercept_.tolist() and set(bias.name) == {"(bias)"}


# Plain numpy


def imported(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", MODELS)
def test_a_module_in_plain_numpy(tmp_path, name):
    model, x = MODELS[name], rows()
    told = model.export(tmp_path / "scorer.py", "numpy")
    assert [file.rpartition("/")[2] for file in told["files"]] == ["scorer.py", "scorer.npz"]
    assert len((tmp_path / "scorer.py").read_text().splitlines()) < 70
    scorer = imported(tmp_path / "scorer.py")
    for form in (x, x.toarray(), (x.indptr, x.indices, x.data)):
        says_the_same(model, scorer.predict(form), scorer.decision_function(form), x)
    assert hasattr(scorer, "predict_proba") == (not model.no_probabilities())
    if hasattr(scorer, "predict_proba"):
        np.testing.assert_allclose(scorer.predict_proba(x), model.predict_proba(x), rtol=1e-9, atol=1e-15)
    wide = sp.csr_matrix(([1.0], ([0], [D])), shape=(1, D + 1))
    with pytest.raises(ValueError, match="features 0 to 8"):
        scorer.predict(wide)
    assert scorer.decision_function(x[:0]).shape == model.decision_function(x[:0]).shape


def test_the_module_needs_neither_bigclf_nor_scipy(tmp_path):
    MODELS["words"].export(tmp_path / "scorer", "numpy")  # the ending is added
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "sys.modules['bigclf'] = sys.modules['scipy'] = None; import scorer, numpy; "
        "print(scorer.predict(numpy.ones((1, 9)))[0])"
    )
    assert run_python(code, tmp_path).strip() == MODELS["words"].predict(np.ones((1, D)))[0]


@pytest.mark.parametrize(("name", "better"), [("a.b", "a_b"), ("a.b.py", "a_b"), ("my-model", "my_model"),
                                              ("2nd", "score_2nd"), ("class", "score_class"),
                                              ("numpy", "score_numpy")])  # fmt: skip
def test_a_module_that_could_not_be_imported_is_not_written(tmp_path, name, better):
    with pytest.raises(RunError, match=f"Python cannot import .* as a module; export to .*/{better}.py"):
        MODELS["words"].export(f"{tmp_path}/{name}", "numpy")
    assert not [*tmp_path.iterdir()]
    MODELS["words"].export(tmp_path / better, "numpy")
    assert imported(tmp_path / f"{better}.py").predict(np.ones((1, D))).shape == (1,)


# Tables


def columns_of(m=60):
    """A frame with something of every kind, and holes in it."""
    rng = np.random.default_rng(5)
    words = ["Früh", "spät", "NACHT", "so", "ein", "a", "b2", "x_y", "-", "tag;e", "wörter\u00a0zwei", "日本語", "\t\t"]
    days = pd.date_range("2019-12-28 21:30:15.5", periods=m, freq="37h")
    frame = pd.DataFrame(
        {
            "a": rng.normal(3, 10, m), "b": rng.integers(0, 3, m), "c": rng.exponential(100, m),
            "d": rng.normal(size=m), "e": rng.choice(["u", " v ", "w w", "NA", ""], m),
            "f": rng.integers(0, 60, m), "g": rng.random(m) > 0.5,
            "h": [" ".join(rng.choice(words, rng.integers(0, 30))) for _ in range(m)],
            "i": days, "j": days.strftime("%d.%m.%Y"), "y": rng.choice(["p", "q", "r"], m),
        }
    )  # fmt: skip
    frame.loc[::7, ["a", "c", "d"]] = np.nan
    frame.loc[3::11, ["e", "h", "j"]] = None
    frame.loc[5::13, "i"] = pd.NaT
    return frame


TERMS = [
    {"numeric": "a"}, {"numeric": "b", "scale": "none"}, {"numeric": "c", "scale": "log", "missing": "ignore"},
    {"numeric": "d", "scale": "bins", "bins": 5}, {"categorical": ["e", "g"]},
    {"categorical": "b", "missing": "ignore"}, {"categorical": "f", "encode": "hashed"}, {"cross": ["e", "b"]},
    {"cross": ["e", "f"], "encode": "hashed"},
    {"text": "h", "ngrams": [1, 2]}, {"text": "h", "analyzer": "char", "ngrams": [2, 3], "lowercase": False},
    {"text": "h", "analyzer": "char_wb", "ngrams": [3, 5], "tfidf": False, "sublinear": False, "prefix": "wb "},
    {"date": "i", "parts": ["time", "year", "month", "day", "weekday", "hour"]}, {"date": "j", "format": "%d.%m.%Y"},
]  # fmt: skip


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_what_takes_no_table_says_which_columns_its_features_are_made_of(tmp_path, loss):
    joblib, onnxruntime = pytest.importorskip("joblib"), pytest.importorskip("onnxruntime")
    frame = columns_of()
    model = bigclf.fit(frame, features={"label": "y", "features": TERMS}, loss=loss, epochs=1, algo="dcd")
    rows = model.encode(frame)
    assert rows.shape == (len(frame), model.n_features) and rows.dtype == np.float32
    for to in ("onnx", "sklearn"):
        (note,) = [note for note in model.export(tmp_path / to, to)["notes"] if "columns" in note]
        assert f"the {model.n_features:,} features made of the columns a, b, c, d, e, g, f, h, ..., " in note
        assert "model.encode(table) makes them" in note
    estimator = joblib.load(tmp_path / "sklearn")
    says_the_same(model, estimator.predict(rows), estimator.decision_function(rows), frame)
    session = onnxruntime.InferenceSession(tmp_path / "onnx")
    told = session.get_modelmeta().custom_metadata_map
    assert json.loads(told["columns"]) == ["a", "b", "c", "d", "e", "g", "f", "h", "i", "j"]
    assert json.loads(told["features"]) == model.features
    label, scores = session.run(["label", "scores"], {"X": rows.toarray()})
    says_the_same(model, label, scores, frame)
    frame.to_csv(tmp_path / "r.csv", index=False)
    again = model.encode(tmp_path / "r.csv")
    says_the_same(model, estimator.predict(again), estimator.decision_function(again), tmp_path / "r.csv")
    with pytest.raises(ValueError, match="encode takes raw columns"):
        model.encode(np.eye(3))
    with pytest.raises(ValueError, match="encode takes raw columns"):
        bigclf.fit(np.eye(2), [0, 1], algo="dcd").encode(frame)


@pytest.mark.parametrize(
    ("options", "dtype"), [({"hash_bits": 6}, "float64"), ({"hash_bits": 14, "signed": False}, "float32")]
)
def test_a_scorer_takes_the_table_that_the_model_takes(tmp_path, options, dtype):
    """To the bit, new categories, words and holes too; with 64 places for all that is hashed most are shared."""
    frame = columns_of()
    spec = {"label": "y", "features": TERMS, "reader": {"format": "csv", "decimal": ",", "separator": ";"}, **options}
    model = bigclf.fit(frame[:40], features=spec, algo="pa1", epochs=1, dtype=dtype, progress=False)
    told = model.export(tmp_path / "scorer.py", "numpy")
    assert "takes tables with the columns a, b, c, d, e, g" in told["notes"][0]
    scorer = imported(tmp_path / "scorer.py")
    assert scorer.COLUMNS == ["a", "b", "c", "d", "e", "g", "f", "h", "i", "j"]
    expected = model.decision_function(frame)
    assert np.array_equal(scorer.decision_function(frame), expected)
    assert np.array_equal(scorer.decision_function(pa.Table.from_pandas(frame)), expected)
    assert scorer.predict(frame).tolist() == model.predict(frame).tolist()
    frame.to_csv(tmp_path / "r.csv", sep=";", decimal=",", index=False)
    model.save(tmp_path / "m")
    bigclf.predict(load(tmp_path / "m"), tmp_path / "r.csv", tmp_path / "said", scores=True)
    said = pq.read_table(tmp_path / "said" / "r.csv.parquet").to_pandas()
    with open(tmp_path / "r.csv", newline="") as file:
        scores = scorer.decision_function(csv.DictReader(file, delimiter=";"))
    assert np.array_equal(scores, said[["score_p", "score_q", "score_r"]].to_numpy())
    for change, reason in (
        ({"a": ["x"]}, "row 0: column a: 'x' is not a number"),
        ({"a": ["1.5"]}, "'1.5' is not a number"),
        ({"j": ["2019-01-01"]}, "row 0: column j"),
        ({"a": ["1e300"]}, "beyond the range of float32"),
    ):
        with pytest.raises(ValueError, match=reason):
            scorer.predict(dict(frame[:1].to_dict("list"), **change))
    with pytest.raises(ValueError, match="row 0: there is no column 'b'"):
        scorer.predict([{"a": 1.0, "g": True}])


@pytest.fixture(scope="module")
def dated(tmp_path_factory):
    """A model of texts that are numbers and dates, and its scorer."""
    texts = ["red", "1", "true", "1.50", "1.5", "1E-8", "0.00", "2020-01-01", "2020-07-01 00:00:00",
             "2020-07-01 00:00:00.000000", "2020-07-01 00:00:00.123456789", "2020-07-01 00:00:00.000000+0200",
             "2020-07-01 00:00:00.000+0200", "2020-01-01 01:00:00.000000+0100",
             "2020-07-01 00:00:00.000000Z"]  # fmt: skip
    frame = pd.DataFrame({"c": texts, "n": np.arange(15.0), "y": ["p", "q", "r"] * 5})
    frame["i"] = pd.date_range("2020", periods=15)
    frame.loc[3, "n"], frame.loc[4, "i"] = np.nan, pd.NaT
    terms = [{"numeric": "n"}, {"categorical": "c", "missing": "indicator"}, {"text": "c"},
             {"date": "i", "parts": ["time", "hour"], "missing": "indicator"}]  # fmt: skip
    model = bigclf.fit(frame, features={"label": "y", "features": terms}, algo="pa1", epochs=1, progress=False)
    path = tmp_path_factory.mktemp("dated") / "scorer.py"
    model.export(path, "numpy")
    return model, imported(path)


BERLIN = ZoneInfo("Europe/Berlin")
TENTHS, JULY = [Decimal("1.5"), Decimal("1.50"), Decimal("-0.0"), None], datetime.datetime(2020, 7, 1)
VALUES = {
    "Int64": ("cn", pd.Series([1, None], dtype="Int64")), "Float64": ("cn", pd.Series([1.5, None], dtype="Float64")),
    "boolean": ("cn", pd.Series([True, None], dtype="boolean")),
    "string": ("c", pd.Series(["red", None], dtype="string")),
    "NA": ("cni", pd.Series([pd.NA, pd.NA], dtype=object)), "NaT": ("ci", pd.Series([pd.NaT, JULY], dtype=object)),
    "decimals": ("cn", TENTHS), "small": ("c", [Decimal("1E-8"), Decimal(1)]),
    "arrow decimals": ("cn", pa.array(TENTHS)),
    "dates": ("ci", [datetime.date(2020, 1, 1), None]), "days": ("ci", np.array(["2020-01-01", "NaT"], "M8[D]")),
    "times": ("ci", [JULY, None]), "s": ("ci", np.array(["2020-07-01"], "M8[s]")),
    "ns": ("ci", pd.Series(np.array(["2020-07-01T00:00:00.123456789", "NaT"], "M8[ns]"))),
    "zone": ("ci", [JULY.replace(tzinfo=BERLIN), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)]),
    "utc": ("ci", [JULY.replace(tzinfo=datetime.UTC), None]),
    "zoned": ("ci", pd.Series([JULY, pd.NaT]).dt.tz_localize("Europe/Berlin").dt.as_unit("ms")),
    "category": ("ci", pd.Series(np.array(["2020-07-01"] * 2, "M8[s]")).astype("category")),
    "arrow": ("ci", pa.chunked_array([pa.array([JULY, None], pa.timestamp("ms", "Europe/Berlin"))])),
    "arrow dictionary": ("c", pa.array([JULY, None], pa.timestamp("s")).dictionary_encode()),
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES)
def test_a_scorer_takes_holes_decimals_and_dates_of_every_kind(dated, kind):
    """Of what pandas calls <NA>, and texts with as many decimals as the column has, to the bit."""
    model, scorer = dated
    names, values = VALUES[kind]
    usual = {"n": [1.0] * len(values), "c": ["red"] * len(values), "i": [JULY] * len(values)}
    for name in names:
        table = {**usual, name: values}
        if not isinstance(values, list):
            table = pa.table(table) if isinstance(values, pa.Array | pa.ChunkedArray) else pd.DataFrame(table)
        expected = model.decision_function(table)
        assert np.array_equal(scorer.decision_function(table), expected)
    if isinstance(table, dict) and kind not in ("decimals", "small", "zone"):  # which a single row does not show
        rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
        assert np.array_equal(scorer.decision_function(rows), expected)


def test_a_table_with_an_integer_that_no_column_holds_is_refused_by_name(dated):
    with pytest.raises(SchemaError, match="column n: an integer has more than 64 bits"):
        dated[0].decision_function({"n": [10**20], "c": ["red"], "i": [JULY]})


def test_hashes_of_the_scorer_are_those_of_scikit_learn():
    names = ["", "a", "ab", "abc", "abcd", "größe=x", "日本" * 9]
    assert [table_rows.hash_of(name.encode()) for name in names] == [
        murmurhash3_32(name, positive=True) for name in names
    ]


# What no format holds, and what is not overwritten


def test_a_voted_perceptron_is_refused_by_name(tmp_path):
    model = made(name="voted_perceptron")
    model.state = {"0.weights": np.zeros(D + 1)}
    for to in ("liblinear", "sklearn", "onnx", "parquet", "numpy"):
        with pytest.raises(RunError, match=f"voted perceptron.*--to {to}"):
            model.export(tmp_path / "m", to)
    with pytest.raises(RunError, match="voted perceptron"):
        model.to_sklearn()
    assert not [*tmp_path.iterdir()]


def test_nothing_is_replaced_unless_that_is_said(tmp_path):
    path = tmp_path / "m.txt"
    path.write_text("mine")
    with pytest.raises(RunError, match="exists"):
        MODELS["two"].export(path, "liblinear")
    assert path.read_text() == "mine"
    MODELS["two"].export(path, "liblinear", overwrite=True)
    assert path.read_text().startswith("solver_type")
    (tmp_path / "s.npz").write_text("mine")
    with pytest.raises(RunError, match=r"s.npz already exists"):
        MODELS["two"].export(tmp_path / "s.py", "numpy")
    with pytest.raises(RunError, match="a directory"):
        MODELS["two"].export(tmp_path, "onnx")
    with pytest.raises(ValueError, match="no format 'pmml'; the formats are onnx, liblinear"):
        MODELS["two"].export(tmp_path / "x", "pmml")
