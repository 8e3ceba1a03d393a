"""Figures against scikit-learn's, labels the model does not know, predictions that go on where they stopped."""

import numpy as np
import pytest
import scipy.sparse
from making import shards_of
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    log_loss,
    mean_absolute_error,
    mean_squared_error,
    precision_recall_fscore_support,
    roc_auc_score,
)

from bigclf.api.predict import predict
from bigclf.conversion.convert import write_shards
from bigclf.data.dataset import Dataset
from bigclf.data.shards import read_table
from bigclf.errors import DataError, MemoryBudgetError, RunError
from bigclf.metrics.figures import BinnedRanking, Ranking, evaluate, score_bins
from bigclf.model.model import Model

D = 9


def make(classes=(-1, 1), seed=0, loss="hinge"):
    rng = np.random.default_rng(seed)
    rows = 1 if len(classes) == 2 else len(classes)
    return Model(rng.normal(size=(rows, D)), 0.1 * rng.normal(size=rows), classes, method={"name": "dcd", "loss": loss})


def matrix(n=400, seed=1, d=D):
    return scipy.sparse.random(n, d, 0.4, format="csr", random_state=seed, dtype=np.float32)


def shards(X, y, out, chunk_nnz=100, shard_nnz=1000, **kwargs):
    classes, codes = np.unique(y, return_inverse=True)
    row = (X.indptr.astype(np.int64), X.indices, X.data, codes)
    return write_shards([row], str(out), classes=classes, n_features=X.shape[1],
                        chunk_nnz=chunk_nnz, shard_nnz=shard_nnz, **kwargs)  # fmt: skip


@pytest.mark.parametrize("classes", [(-1, 1), (0, 1, 2), ("a", "b", "c", "d"), (False, True)])
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_figures_are_those_of_scikit_learn(tmp_path, classes, loss):
    model, X = make(classes, loss=loss), matrix()
    y = np.random.default_rng(3).choice(np.array(classes), X.shape[0])
    said, scores = model.predict(X), model.decision_function(X)
    stored = shards(X, y, tmp_path / "s")
    assert len(stored.files) > 1 and stored.n_chunks > len(stored.files)
    for figures in (evaluate(model, stored), evaluate(model, X, y)):
        assert figures.n == 400 and figures["accuracy"] == accuracy_score(y, said)
        assert figures.confusion == confusion_matrix(y, said, labels=list(classes)).tolist()
        p, r, f, n = precision_recall_fscore_support(y, said, labels=list(classes), zero_division=0)
        for k, row in enumerate(figures.f1):
            got = [row["precision"], row["recall"], row["f1"], row["rows"]]
            np.testing.assert_allclose(got, [p[k], r[k], f[k], n[k]], rtol=1e-12)
        assert figures.macro_f1 == pytest.approx(f.mean())
        assert figures.majority == max(np.mean(y == label) for label in classes)
        if len(classes) == 2:
            assert figures.auc == pytest.approx(roc_auc_score(y == classes[1], scores), abs=1e-12)
            assert figures.auc_bound == 0
        else:
            assert figures.auc is None and "two classes" in figures.missing["auc"]
        if loss == "logistic":
            expected = log_loss(y, model.predict_proba(X), labels=list(classes))
            assert figures.log_loss == pytest.approx(expected, rel=1e-6)
        else:
            assert figures.log_loss is None and "logistic" in figures.missing["log_loss"]
        assert figures.to_dict()["n"] == 400 and "auc" in figures.keys()  # noqa: SIM118


def test_of_many_classes_the_worst_and_the_most_confused_are_told(capsys):
    from bigclf.cli.evaluate import print_evaluation

    labels = [f"c{k:02}" for k in range(30)]
    y = np.repeat(labels, 10)
    said = y.copy()
    said[70:74], said[75:78], said[200:202] = "c01", "c29", "c01"  # of c07 seven are wrong, of c20 two
    model = Model(np.zeros((30, 1)), np.zeros(30), labels, method={"name": "dcd", "loss": "hinge"})
    model.decision_function = lambda X: (said[:, None] == np.array(labels)).astype(float)
    figures = evaluate(model, scipy.sparse.csr_matrix((300, 1)), y)
    assert [row["label"] for row in figures.worst(4)] == ["c07", "c01", "c29", "c20"] and len(figures.worst()) == 10
    assert figures.confused() == [("c07", "c01", 4), ("c07", "c29", 3), ("c20", "c01", 2)]
    assert figures.confused(1) == [("c07", "c01", 4)]
    print_evaluation(figures)
    out = capsys.readouterr().out
    assert "baseline, always predicting the most frequent class: 3.33 %" in out and "10 worst of 30 classes" in out
    assert "confused most: c07 as c01 4, c07 as c29 3, c20 as c01 2" in out and "c12" not in out


def test_of_a_few_classes_the_most_confused_are_told_too(capsys):
    from bigclf.cli.evaluate import print_evaluation

    y = np.repeat(["a", "b", "c"], 10)
    said = y.copy()
    said[:4], said[12:14] = "c", "a"
    model = Model(np.zeros((3, 1)), np.zeros(3), ["a", "b", "c"], method={"name": "dcd", "loss": "hinge"})
    model.decision_function = lambda X: (said[:, None] == np.array(["a", "b", "c"])).astype(float)
    print_evaluation(evaluate(model, scipy.sparse.csr_matrix((30, 1)), y))
    assert "confused most: a as c 4, b as a 2" in capsys.readouterr().out


def test_by_row_weights_the_figures_are_those_of_scikit_learn(tmp_path):
    X, rng = matrix(), np.random.default_rng(3)
    weights = rng.choice([0.0, 0.25, 1.0, 7.0], 400).astype(np.float32)
    model, y = make((0, 1, 2), loss="logistic"), rng.integers(0, 3, 400)
    found = evaluate(model, shards_of(tmp_path / "c", X, y, weights))
    assert found.accuracy == accuracy_score(y, model.predict(X)) and "`weighted`" in found.notes[0]
    assert found.weighted["accuracy"] == pytest.approx(accuracy_score(y, model.predict(X), sample_weight=weights))
    expected = log_loss(y, model.predict_proba(X), labels=[0, 1, 2], sample_weight=weights)
    assert found.weighted["log_loss"] == pytest.approx(expected, rel=1e-6)
    assert evaluate(model, X, y).weighted is None

    model, y = Model(model.coef_[:1], model.intercept_[:1], None, method={"name": "dcd"}), rng.normal(size=400)
    found = evaluate(model, shards_of(tmp_path / "n", X, y, weights, real=True))
    for name, score in (("mean_squared_error", mean_squared_error), ("mean_absolute_error", mean_absolute_error)):
        assert found.weighted[name] == pytest.approx(score(y, model.predict(X), sample_weight=weights))


def test_auc_counts_ties_half_and_bins_keep_their_bound():
    rng = np.random.default_rng(0)
    for scores in (rng.normal(size=3000), rng.integers(-3, 3, 3000) / 4, np.zeros(3000), rng.normal(size=3000) * 1e200):
        positive = rng.random(3000) < 0.3
        exact, binned = Ranking(int((~positive).sum()), int(positive.sum())), BinnedRanking()
        for part in np.array_split(np.arange(3000), 7):
            exact.add(scores[part], positive[part])
            binned.add(scores[part], positive[part])
        truth = roc_auc_score(positive, scores)
        assert exact.auc(step=100) == (pytest.approx(truth, abs=1e-12), 0.0)
        auc, bound = binned.auc()
        assert abs(auc - truth) <= bound + 1e-12
        if np.abs(scores).max() < 1e3 and np.unique(scores).size > 10:
            assert bound < 1e-3


def test_bins_keep_the_order_of_the_values():
    scores = np.array([-np.inf, -1e300, -2.0, -1.0, -1e-30, -0.0, 0.0, 1e-30, 0.5, 1.0, 3.0, 1e300, np.inf])
    bins = score_bins(scores)
    assert (np.diff(bins) >= 0).all() and bins[5] == bins[6] and bins[0] >= 0 and bins[-1] < 2**20
    assert np.unique(bins).size >= 10


def test_auc_from_bins_when_the_budget_is_small(tmp_path, monkeypatch):
    model, X = make(), matrix()
    y = np.random.default_rng(3).choice([-1, 1], 400)
    stored = shards(X, y, tmp_path / "s")
    exact = evaluate(model, stored)
    monkeypatch.setattr("bigclf.metrics.figures.BYTES_PER_ROW", 10**9)
    rough = evaluate(model, stored)
    assert rough.auc_bound > 0 and abs(rough.auc - exact.auc) <= rough.auc_bound


def test_labels_the_model_does_not_know_count_as_wrong(tmp_path):
    model, X = make(), matrix()
    y = np.random.default_rng(3).choice([-1, 1, 7], 400)
    figures = evaluate(model, shards(X, y, tmp_path / "s"))
    said = model.predict(X)
    assert figures.n == 400 and figures.correct == int((said == y).sum())
    assert figures.unknown == {7: int((y == 7).sum())} and "does not know (7)" in figures.notes[0]
    known = y != 7
    assert figures.auc == pytest.approx(roc_auc_score(y[known], model.decision_function(X)[known]))


@pytest.mark.parametrize("stored", [True, False])
def test_it_is_said_which_figures_are_of_the_rows_with_known_labels_alone(tmp_path, stored):
    X = matrix()
    y = np.random.default_rng(3).choice([-1, 1, 7], 400)

    def told(model, y):
        return (
            evaluate(model, shards(X, y, tmp_path / "s", overwrite=True)) if stored else evaluate(model, X, y)
        ).notes

    n, model = int((y != 7).sum()), make()
    (note,) = told(model, y)
    assert note.endswith(f"(7); they count as wrong; AUC tells of the other {n} alone")
    model.method["loss"] = "logistic"
    (note,) = told(model, y)
    assert note.endswith(f"they count as wrong; AUC, log loss and calibration error tell of the other {n} alone")
    (note,) = told(model, np.where(y == 1, 1, 7))
    assert note.endswith(f"; log loss and calibration error tell of the other {int((y == 1).sum())} alone")
    assert told(model, np.where(y == 7, 1, y)) == []


def test_rows_of_which_no_label_is_known_are_refused_by_file_and_column(tmp_path):
    model, X = make(), matrix()
    strings = np.where(np.arange(400) % 2, "yes", "no")
    stored = shards(X, strings, tmp_path / "t")
    told = "no row has a label that the model knows: the model knows -1, 1, and the rows have 'no', 'yes'; measure on"
    with pytest.raises(DataError, match=told) as of_shards:
        evaluate(model, stored)
    assert of_shards.value.file == stored.files[0] and of_shards.value.column == "label"
    with pytest.raises(DataError, match=f"^{told}"):
        evaluate(model, X, strings)
    with pytest.raises(DataError, match="the rows have 2, 3, 4, 5, 6, ...;"):
        evaluate(model, X, np.arange(400) % 6 + 2)
    text = tmp_path / "rows.svm"  # read as shards for as long as that takes: the file named is the user's
    text.write_text("5 1:1\n6 2:1\n")
    with pytest.raises(DataError, match="and the rows have 5, 6;") as of_text:
        evaluate(model, str(text))
    assert of_text.value.file == str(text)
    assert evaluate(model, X, [1, *[9] * 399]).unknown == {9: 399}


def test_one_class_is_enough_to_evaluate_but_not_for_an_auc(tmp_path):
    figures = evaluate(make(), shards(matrix(), np.ones(400, int), tmp_path / "s"))
    assert figures.auc is None and "both classes" in figures.missing["auc"]


def test_unseen_features_are_counted(tmp_path):
    X = matrix(d=D + 2)
    figures = evaluate(make(), shards(X, np.arange(400) % 2 * 2 - 1, tmp_path / "s"))
    assert figures.unseen == int((X.indices >= D).sum()) and "does not know" in figures.notes[-1]


def test_nobody_watches_or_something_that_can(tmp_path):
    stored = shards(matrix(), np.arange(400) % 2, tmp_path / "s")
    model = make(classes=(0, 1))
    assert evaluate(model, stored, progress=False).accuracy == evaluate(model, stored).accuracy
    with pytest.raises(TypeError, match="progress must be an object with start, advance and stop.*or None, not True"):
        predict(model, stored, str(tmp_path / "p"), progress=True)


def test_what_cannot_be_evaluated(tmp_path):
    model, X = make(), matrix()
    stored = shards(X, np.arange(400) % 2, tmp_path / "s")
    with pytest.raises(MemoryBudgetError, match="or more"):
        evaluate(model, stored, memory="1kB")
    with pytest.raises(TypeError, match="labels"):
        evaluate(model, X)
    with pytest.raises(TypeError, match="no effect"):
        evaluate(model, stored, np.zeros(400))
    with pytest.raises(ValueError, match="400 rows"):
        evaluate(model, X, np.zeros(3))
    with pytest.raises(DataError, match="no rows"):
        evaluate(model, X[:0], np.zeros(0))


# Predict


def read_all(result):
    from pathlib import Path

    return [read_table(str(path)) for path in sorted(Path(result["out"]).glob("*.parquet"))]


@pytest.mark.parametrize("classes", [(-1, 1), ("a", "b", "c")])
def test_predictions_beside_their_rows(tmp_path, classes):
    model, X = make(classes, loss="logistic"), matrix()
    y = np.array(classes)[np.arange(400) % len(classes)]
    stored = shards(X, y, tmp_path / "s")
    result = predict(model, stored, str(tmp_path / "out"), scores=True, proba=True)
    tables = read_all(result)
    assert result["rows"] == 400 and result["written"] == len(stored.files) == len(tables) and result["kept"] == 0
    joined = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    assert list(joined) == result["columns"]
    assert joined["prediction"].tolist() == model.predict(stored).tolist()
    assert joined["label"].tolist() == y.tolist()
    assert all((table["row"] == np.arange(len(table["row"]))).all() for table in tables)
    scores, shares = model.decision_function(stored), model.predict_proba(stored)
    if len(classes) == 2:
        np.testing.assert_array_equal(joined["score"], scores)
        np.testing.assert_array_equal(joined["probability"], shares[:, 1])
    else:
        np.testing.assert_array_equal(joined["score_b"], scores[:, 1])
        np.testing.assert_array_equal(joined["probability_c"], shares[:, 2])


def test_predict_goes_on_where_it_stopped(tmp_path):
    model, X = make(), matrix()
    stored = shards(X, np.arange(400) % 2, tmp_path / "s")
    out = tmp_path / "out"

    class Stop:
        left = 7

        def start(self, plan):
            assert plan["n_rows"] == 400

        def advance(self, rows, nbytes):
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict(model, stored, str(out), progress=Stop())
    kept = len(list(out.iterdir()))
    assert 0 < kept < len(stored.files) and all(path.suffix == ".parquet" for path in out.iterdir())
    result = predict(model, stored, str(out))
    assert result["kept"] == kept and result["written"] == len(stored.files) - kept
    assert predict(model, stored, str(out))["written"] == 0
    assert np.concatenate([t["prediction"] for t in read_all(result)]).tolist() == model.predict(stored).tolist()


def test_predict_replaces_nothing_unasked(tmp_path):
    X = matrix()
    stored = shards(X, np.arange(400) % 2, tmp_path / "s")
    out = str(tmp_path / "out")
    predict(make(), stored, out)
    with pytest.raises(RunError, match="exists"):
        predict(make(seed=5), stored, out)
    assert predict(make(seed=5), stored, out, overwrite=True)["kept"] == 0
    with pytest.raises(RunError, match="input"):
        predict(make(), stored, str(tmp_path / "s"), overwrite=True)
    with pytest.raises(RunError, match="logistic"):
        predict(make(), stored, out, proba=True)


def test_labels_are_not_needed_and_ids_pass_through(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    model, X = make(), matrix(20)
    lists = [X.indices[a:b].tolist() for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    values = [X.data[a:b].tolist() for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    ids = [f"row {i}" for i in range(20)]
    table = pa.table({"id": ids, "indices": pa.array(lists, pa.list_(pa.int32())),
                      "values": pa.array(values, pa.list_(pa.float32()))})  # fmt: skip
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=7)
    result = predict(model, str(tmp_path / "x.parquet"), str(tmp_path / "out"))
    (table,) = read_all(result)
    assert result["columns"] == ["row", "id", "prediction"] and table["id"].tolist() == ids
    assert table["prediction"].tolist() == model.predict(X).tolist()
    assert model.predict(Dataset(str(tmp_path / "x.parquet"), need_labels=False)).tolist() == model.predict(X).tolist()


def test_columns_beside_the_rows_pass_through(tmp_path):
    """Of any type, nulls and nested ones too; one that is called as ours is gets another name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    model, X = make(), matrix(20)
    lists = [X.indices[a:b].tolist() for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    values = [X.data[a:b].tolist() for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    beside = {
        "fold": pa.array([None, *range(19)], pa.int8()),
        "when": pa.array(range(20), pa.timestamp("us")),
        "tags": pa.array([["a", None]] * 20),
        "score": pa.array([0.5] * 20),
    }
    table = pa.table({"y": [0, 1] * 10, "indices": pa.array(lists, pa.list_(pa.int32())),
                      "values": pa.array(values, pa.list_(pa.float32())), "weight": pa.array([1.0] * 20, pa.float32()),
                      **beside})  # fmt: skip
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=7)
    data = Dataset(str(tmp_path / "x.parquet"), columns={"label": "y"})
    result = predict(model, data, str(tmp_path / "out"), scores=True)
    assert result["columns"] == ["row", "fold", "when", "tags", "input_score", "label", "prediction", "score"]
    written = pq.read_table(tmp_path / "out" / "x.parquet")
    for name, column in beside.items():
        mine = written.column("input_score" if name == "score" else name)
        assert mine.to_pylist() == column.to_pylist() and mine.type == column.type
    assert predict(model, data, str(tmp_path / "out"), scores=True)["kept"] == 1
    with pytest.raises(RunError, match="exists"):
        predict(model, data, str(tmp_path / "out"), scores=True, keep=["when"])
    told = predict(model, data, str(tmp_path / "out"), keep=["when"], overwrite=True)
    assert told["columns"] == ["row", "when", "label", "prediction"]
    assert predict(model, data, str(tmp_path / "none"), keep=[])["columns"] == ["row", "label", "prediction"]
    with pytest.raises(DataError, match="no column 'whom' to keep; the file has fold, when, tags, score"):
        predict(model, data, str(tmp_path / "other"), keep=["whom"])
    twice = table.append_column("input_score", pa.array(range(20)))
    pq.write_table(twice, tmp_path / "z.parquet")
    with pytest.raises(DataError, match="the same name"):
        predict(model, Dataset(str(tmp_path / "z.parquet"), columns={"label": "y"}), str(tmp_path / "z"), scores=True)


def test_equal_names_are_numbered(tmp_path):
    X = matrix(30)
    for name in ("a", "b"):
        shards(X, np.arange(30) % 2, tmp_path / name, shard_nnz=10**6)
    out, both = tmp_path / "out", [str(tmp_path / name / "*.parquet") for name in ("a", "b")]
    result = predict(make(), both, str(out))
    assert sorted(path.name for path in out.iterdir()) == ["00000-part-00000.parquet", "00001-part-00000.parquet"]
    assert result["rows"] == 60


def test_labels_of_mixed_types_are_refused(tmp_path):
    X = np.eye(4, dtype=np.float32)
    model = Model(np.ones((1, 4)), np.zeros(1), np.array([0, 1]))
    with pytest.raises(DataError, match="mixed"):
        evaluate(model, X, ["a", 1, 0, 1])
