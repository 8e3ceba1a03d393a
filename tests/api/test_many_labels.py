"""Rows with several labels each: lists in Parquet, indicators, figures, predictions, and what cannot be used."""

import io
import signal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from making import of_older_version
from sklearn import metrics
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from sklearn.preprocessing import MultiLabelBinarizer, normalize

import bigclf
from bigclf.cli import main
from bigclf.errors import DataError, MemoryBudgetError, RunError
from bigclf.metrics.figures import exact_auc_fits, no_part, partial_evaluation
from bigclf.model.raw_input import explain_at
from bigclf.training.roles import dual
from bigclf.training.roles.dual import DualLearner
from bigclf.training.roles.learner import Learner

N, D, LABELS = 300, 20, 6


def rows(seed=0):
    """X as CSR and the indicator matrix of labels that its rows tell; the fourth row has none."""
    rng = np.random.default_rng(seed)
    X = sp.random(N, D, 0.3, format="csr", random_state=seed, dtype=np.float32)
    y = (X @ rng.standard_normal((D, LABELS)) > 0.8).astype(np.int64)
    y[3] = 0
    return X, y


def named(y):
    return [[f"label {j}" for j in np.flatnonzero(row)] for row in y]


def lists(indptr, items):
    return pa.ListArray.from_arrays(pa.array(indptr.astype(np.int32)), pa.array(items))


def write(path, X, labels, kind=None, **more):
    columns = {
        "label": pa.array(labels, kind),
        "indices": lists(X.indptr, X.indices),
        "values": lists(X.indptr, X.data),
    }
    pq.write_table(pa.table({**columns, **more}), path, row_group_size=80)
    return str(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model of rows in Parquet, where they lie, X and y."""
    X, y = rows()
    path = write(tmp_path_factory.mktemp("rows") / "rows.parquet", X, named(y))
    return bigclf.fit(path, algo="dcd", C=1.0, tol=1e-3, progress=False), path, X, y


def objective(w, X, y, C=1.0):
    """1/2 ||w||^2 + C sum max(0, 1 - y_i w.(x_i, 1))"""
    return 0.5 * w @ w + C * np.maximum(0, 1 - y * (X @ w[:-1] + w[-1])).sum()


def test_each_label_is_a_problem_of_its_own(trained):
    model, _, X, y = trained
    assert model.multilabel and model.coef_.shape == (LABELS, D)
    for j, proof in enumerate(model.certificate["problems"]):
        alone = bigclf.fit(X, 2 * y[:, j] - 1, algo="dcd", C=1.0, tol=1e-6, progress=False)
        w = np.append(model.coef_[j], model.intercept_[j])
        assert proof["name"] == f"label {j}"
        assert objective(w, X, 2 * y[:, j] - 1) == pytest.approx(proof["primal"], rel=1e-6)
        assert alone.certificate["dual"] * (1 - 1e-9) <= proof["primal"] <= alone.certificate["primal"] * 1.0011


def test_lists_and_indicators_are_the_same_rows(trained):
    model, _, X, y = trained
    for labels in (y, sp.csr_matrix(y), named(y)):
        other = bigclf.fit(X, labels, algo="dcd", C=1.0, tol=1e-3, progress=False)
        assert np.array_equal(other.coef_, model.coef_)
    assert other.classes_.tolist() == model.classes_.tolist() == [f"label {j}" for j in range(LABELS)]


def test_order_and_repetitions_in_a_list_mean_nothing(trained, tmp_path):
    model, _, X, y = trained
    mixed = [[*reversed(row), *row[:1]] for row in named(y)]
    again = bigclf.fit(write(tmp_path / "mixed.parquet", X, mixed), algo="dcd", C=1.0, tol=1e-3, progress=False)
    assert np.array_equal(again.coef_, model.coef_)


def test_lists_of_numbers_sort_as_numbers(tmp_path):
    X, y = rows()
    labels = [[int(j) * 7 - 5 for j in np.flatnonzero(row)] for row in y]
    data = bigclf.Dataset(write(tmp_path / "rows.parquet", X, labels, pa.list_(pa.int32())))
    assert data.classes.tolist() == [-5, 2, 9, 16, 23, 30] and data.class_counts.tolist() == y.sum(0).tolist()
    assert sorted(data.sets.texts().tolist()) == sorted({",".join(map(str, row)) for row in labels})


def test_a_model_comes_back_from_its_file(trained, tmp_path):
    model, path, X, _ = trained
    model.save(tmp_path / "m.bigclf")
    again = bigclf.load(tmp_path / "m.bigclf")
    assert again.multilabel and repr(again).startswith("<Model dcd: 6 labels")
    assert (again.predict(path) != model.predict(X)).nnz == 0


def test_figures_are_those_of_scikit_learn(trained):
    model, path, X, y = trained
    found, scores, said = bigclf.evaluate(model, path), model.decision_function(X), model.predict(X).toarray()
    wanted = {
        "micro_f1": metrics.f1_score(y, said, average="micro"),
        "micro_precision": metrics.precision_score(y, said, average="micro"),
        "micro_recall": metrics.recall_score(y, said, average="micro"),
        "macro_f1": metrics.f1_score(y, said, average="macro"),
        "subset_accuracy": metrics.accuracy_score(y, said),
        "hamming_loss": metrics.hamming_loss(y, said),
        "ranking_average_precision": metrics.label_ranking_average_precision_score(y, scores),
        "coverage_error": metrics.coverage_error(y, scores),
    }
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-12)
    best = np.argsort(-scores, axis=1)
    for k, share in found.precision_at.items():
        assert share == pytest.approx(np.take_along_axis(y, best[:, :k], 1).mean(), rel=1e-12)
    assert bigclf.evaluate(model, X, y).micro_f1 == found.micro_f1


def test_equal_scores_rank_as_in_scikit_learn():
    X, y = rows()
    model = bigclf.fit(X, y, algo="dcd", progress=False)
    model.coef_ = np.round(model.coef_[:, :3] @ np.zeros((3, D)), 1)
    model.intercept_ = np.array([1.0, 1.0, 0.0, -1.0, -1.0, -1.0])
    scores, found = model.decision_function(X), bigclf.evaluate(model, X, y)
    assert found.ranking_average_precision == pytest.approx(metrics.label_ranking_average_precision_score(y, scores))
    assert found.coverage_error == pytest.approx(metrics.coverage_error(y, scores))
    assert found.precision_at[3] == pytest.approx(y[:, :3].mean())


def test_parts_of_an_evaluation_give_the_same_bits(trained):
    model, path, _, _ = trained
    data = bigclf.Dataset(path)
    exact = exact_auc_fits(model, data, 10**9)
    total = no_part(model, exact=exact)
    for first in range(data.n_chunks):
        total.merge(partial_evaluation(model, data, first, first + 1, exact=exact))
    whole = bigclf.evaluate(model, path)
    assert total.figures(model, data.sets).to_dict() == {
        **whole.to_dict(),
        "seconds": 0.0,
        "trained_on": 0.0,
        "notes": [],
    }


def test_labels_that_the_model_does_not_know_are_named_and_left_out(trained, tmp_path):
    model, _, X, y = trained
    other = [[*row, "news"] for row in named(y)]
    found = bigclf.evaluate(model, write(tmp_path / "other.parquet", X, other))
    assert found.unknown == {"news": N} and "does not know 1 of the labels ('news')" in found.notes[-1]
    assert found.micro_f1 == bigclf.evaluate(model, X, y).micro_f1
    with pytest.raises(
        bigclf.errors.DataError, match="no row has a label that the model knows: .* the rows have 'news';"
    ):
        bigclf.evaluate(model, write(tmp_path / "none.parquet", X, [["news"] for _ in named(y)]))
    with pytest.raises(bigclf.errors.DataError, match="and the rows have 'news';"):
        bigclf.evaluate(model, X, [["news"] for _ in named(y)])


def test_predictions_are_lists_and_the_greatest_scores(trained, tmp_path):
    model, path, X, _ = trained
    bigclf.predict(model, path, str(tmp_path / "out"), top=2)
    table = pq.read_table(tmp_path / "out" / "rows.parquet")
    scores, said = model.decision_function(X), model.predict(X).toarray()
    assert table["prediction"].to_pylist() == named(said)
    assert table["top_2_score"].to_pylist() == pytest.approx(np.sort(scores, axis=1)[:, -2].tolist(), rel=1e-12)
    assert table["top_1"].to_pylist() == model.classes_[scores.argmax(1)].tolist()
    bigclf.predict(model, path, str(tmp_path / "out.csv"))
    assert (tmp_path / "out.csv").read_text().splitlines()[1] == f'0,"{",".join(named(rows()[1])[0])}","' + ",".join(
        named(said)[0]) + '"'  # fmt: skip


def test_top_needs_a_ranking(tmp_path):
    X, y = rows()
    model = bigclf.fit(X, y[:, 0], algo="dcd", progress=False)
    with pytest.raises(RunError, match="more than two classes, or of several labels"):
        bigclf.predict(model, write(tmp_path / "rows.parquet", X, y[:, 0]), str(tmp_path / "out"), top=2)


def test_the_estimator_gives_the_kind_of_indicators_it_was_given():
    X, y = rows()
    dense = bigclf.LinearClassifier("dcd").fit(X, y)
    assert dense.predict(X).dtype == np.int64 and dense.predict(X).shape == (N, LABELS)
    sparse = bigclf.LinearClassifier("dcd").fit(X, sp.csr_matrix(y))
    assert sp.issparse(sparse.predict(X)) and np.array_equal(sparse.predict(X).toarray(), dense.predict(X))
    assert dense.score(X, y) == metrics.accuracy_score(y, dense.predict(X))


def test_labels_on_no_row_or_on_every_row_are_learned_and_named():
    X, y = rows()
    y[:, 1], y[:, 2] = 0, 1
    model = bigclf.fit(X, y, algo="dcd", progress=False)
    first, second = model.facts["warnings"][:2]
    assert first == "no row has the label 1: its model learns to say no to every row"
    assert second == "every row has the label 2: its model learns to say yes to every row"
    said = model.predict(X).toarray()
    assert not said[:, 1].any() and said[:, 2].all() and model.certificate["gap"] <= 1e-3


def test_balanced_weights_are_scikit_learns_for_each_label():
    X, y = rows()
    model = bigclf.fit(X, y, algo="dcd", class_weight="balanced", tol=1e-5, progress=False)
    alone = bigclf.fit(X, y[:, 4], algo="dcd", class_weight="balanced", tol=1e-5, progress=False)
    assert model.certificate["problems"][4]["primal"] == pytest.approx(alone.certificate["primal"], rel=1e-4)


@pytest.mark.parametrize(
    ("labels", "kind", "said"),
    [
        ([["a"], None], None, "null; every row needs a value here"),
        ([["a"], ["b", None]], None, "row 1, column label: a null in the list of labels"),
        ([["a"], ["b", ""]], None, "row 1, column label: an empty text in the list of labels"),
        ([["a"], ["b\x1fc"]], None, "row 1, column label: a label with the control character"),
        ([[], []], pa.list_(pa.string()), "every list of labels is empty"),
        ([[1.5], [2.5]], None, "or lists of integers or strings"),
    ],
)
def test_lists_that_are_no_labels_are_refused(tmp_path, labels, kind, said):
    X = sp.csr_matrix(np.eye(2, dtype=np.float32))
    with pytest.raises(DataError, match=said):
        bigclf.fit(write(tmp_path / "rows.parquet", X, labels, kind), algo="dcd", progress=False)


@pytest.mark.parametrize("verb", [bigclf.sweep, bigclf.path])
def test_several_labels_are_refused_before_anything_is_compiled_or_converted(trained, tmp_path, monkeypatch, verb):
    _, path, X, y = trained

    def never(*args, **options):
        pytest.fail("nothing is compiled, and no raw file converted, for what is refused")

    monkeypatch.setattr("bigclf.request.prepare._warm", never)
    monkeypatch.setattr("bigclf.request.door.of_columns", never)
    how = {"grid": {"C": [1.0]}, "algo": "dcd"} if verb is bigclf.sweep else {"C": [1.0]}
    (tmp_path / "tags.csv").write_text("a,tags\n1,red;blue\n2,red\n")
    (tmp_path / "rows.svm").write_text("1 1:1\n1,3 2:1\n")
    raw = {"features": {"label": {"column": "tags", "separator": ";"}, "features": [{"numeric": "a"}]}}
    text = str(tmp_path / "rows.svm")
    for data, more in ((path, {}), (bigclf.Dataset(path), {}), (str(tmp_path / "tags.csv"), raw), (text, {})):
        with pytest.raises(TypeError, match=f"{verb.__name__} does not take rows with several labels"):
            verb(data, **how, **more, progress=False)
    with pytest.raises(TypeError, match=f"{verb.__name__} does not take rows with several labels"):
        verb(X, y, **how, progress=False)


def test_lists_of_whole_floats_are_those_of_integers():
    X, y = load_svmlight_file(io.BytesIO(b"1,2 1:1\n2 2:1\n1 1:1 2:1\n 3:1\n"), multilabel=True)
    assert isinstance(y[0][0], float)
    model = bigclf.fit(X, y, algo="dcd", progress=False)
    whole = bigclf.fit(X, [[int(one) for one in row] for row in y], algo="dcd", progress=False)
    assert model.classes_.tolist() == [1, 2] and model.classes_.dtype.kind == "i"
    assert np.array_equal(model.coef_, whole.coef_)
    figures = bigclf.evaluate(model, X, y)
    assert (
        figures["subset_accuracy"]
        == bigclf.evaluate(model, X, [[int(one) for one in row] for row in y])["subset_accuracy"]
    )
    with pytest.raises(DataError, match="all whole numbers or all texts, not float"):
        bigclf.fit(X, [(1.5,), (1.0,), (), ()], algo="dcd", progress=False)


@pytest.mark.parametrize("y", [[[1, 2], [2], []], [["a", "b"], ["b", "c"], ["a", "c"]], [(1, 2), (2, 3), (1, 3)]])
def test_the_estimator_asks_for_a_matrix_in_the_place_of_lists(y):
    with pytest.raises(ValueError, match=r"indicator matrix \[n, K\]: sklearn.preprocessing.MultiLabelBinarizer"):
        bigclf.LinearClassifier("dcd").fit(np.eye(3), y)
    matrix = MultiLabelBinarizer().fit_transform(y)
    assert bigclf.LinearClassifier("dcd").fit(np.eye(3), matrix.tolist()).predict(np.eye(3)).shape == matrix.shape


def test_indicators_that_are_none_are_refused():
    X, y = rows()
    with pytest.raises(DataError, match="row 0, column label: .*an indicator matrix of 0 and 1, and here it holds 2"):
        bigclf.fit(X, 2 * np.ones_like(y), algo="dcd")
    with pytest.raises(DataError, match="row 1, column label: labels in lists are all whole numbers or all texts"):
        bigclf.fit(X, [["a"], [1], *[[] for _ in range(N - 2)]], algo="dcd")


def test_what_knows_no_lists_of_labels_says_so(trained, tmp_path):
    model, path, X, y = trained
    with pytest.raises(TypeError, match="sweep does not take rows with several labels"):
        bigclf.sweep(path, algo="dcd", grid={"C": [1.0, 2.0]}, progress=False)
    with pytest.raises(TypeError, match="learns one class a row, and these rows have several labels"):
        bigclf.fit(X, y, algo="dcd_mc", progress=False)
    with pytest.raises(RunError, match="no form for several labels a row"):
        model.export(tmp_path / "m.sql", "sql")
    one = bigclf.fit(X, y[:, 0], algo="dcd", progress=False)
    with pytest.raises(DataError, match="has a list of labels, and the model gives one class a row"):
        bigclf.evaluate(one, path)
    (tmp_path / "rows.svm").write_text("0,1 1:1\n1 2:1\n")
    with pytest.raises(
        DataError, match=r"rows\.svm: each of these rows has a list"
    ) as caught:  # not what was made of it
        bigclf.evaluate(one, str(tmp_path / "rows.svm"))
    assert caught.value.file == str(tmp_path / "rows.svm")


def test_a_run_goes_on_where_it_stopped(trained, tmp_path):
    model, path, _, _ = trained
    place = str(tmp_path / "run")
    with pytest.warns(bigclf.errors.ConvergenceWarning):
        bigclf.fit(path, algo="dcd", C=1.0, tol=1e-3, epochs=1, run_dir=place, progress=False)
    again = bigclf.fit(path, algo="dcd", C=1.0, tol=1e-3, run_dir=place, resume=True, progress=False)
    assert again.certificate["gap"] <= 1e-3 and again.classes_.tolist() == model.classes_.tolist()


def test_what_is_left_of_the_weights_is_certified_on_the_rows(trained):
    model, path, X, y = trained
    found = bigclf.fit(path, algo="dcd", C=1.0, tol=1e-3, prune=0.1, progress=False)
    dense, left = model.dense_weights(), found.dense_weights()
    assert 0.01 < found.certificate["gap"] <= 0.1
    assert found.facts["pruned"] == {"tol": 0.1, "kept": np.count_nonzero(left), "of": dense.size}
    assert np.count_nonzero(left) < np.count_nonzero(dense) and (dense[left != 0] != 0).all()
    for j, (mine, before) in enumerate(zip(found.certificate["problems"], model.certificate["problems"], strict=True)):
        primal = objective(np.append(left[j], found.intercept_[j]), X, 2 * y[:, j] - 1)
        assert mine["primal"] == pytest.approx(primal, rel=1e-9) and mine["dual"] == before["dual"]
        assert mine["gap"] == pytest.approx((primal - before["dual"]) / primal, rel=1e-6)


def dual_by_numpy(X, y, epochs=150):
    """(D(a), P of the weights that go with a), by coordinate ascent that shares no line with the package."""
    x = np.hstack([X.toarray().astype(float), np.ones((len(y), 1))])
    a, w = np.zeros(len(y)), np.zeros(x.shape[1])
    squares = (x * x).sum(axis=1)
    for _ in range(epochs):
        for i in range(len(y)):
            new = min(max(a[i] + (1 - y[i] * (x[i] @ w)) / squares[i], 0.0), 1.0)
            w += (new - a[i]) * y[i] * x[i]
            a[i] = new
    return a.sum() - 0.5 * w @ w, 0.5 * w @ w + np.maximum(0, 1 - y * (x @ w)).sum()


@pytest.mark.parametrize("memory", ["2GB", "22MB"])
def test_numpy_alone_certifies_what_prune_left(tmp_path, memory):
    """Within the tolerance by a lower bound that numpy finds for itself, and to 1e-9 the objective that is told."""
    X, y = rows()
    path = write(tmp_path / "rows.parquet", X, named(y))
    found = bigclf.fit(path, algo="dcd", C=1.0, tol=1e-3, prune=0.05, memory=memory, progress=False)
    assert found.facts["pruned"]["kept"] < found.facts["pruned"]["of"]
    for j, told in enumerate(found.certificate["problems"]):
        signs = 2.0 * y[:, j] - 1
        primal = objective(np.append(found.dense_weights()[j], found.intercept_[j]), X, signs)
        dual, best = dual_by_numpy(X, signs)
        assert told["primal"] == pytest.approx(primal, rel=1e-9)
        assert told["dual"] <= best * (1 + 1e-9)  # by weak duality
        assert (primal - dual) / primal <= 0.05 + 1e-3  # what numpy's own ascent leaves open
        assert told["gap"] == pytest.approx((primal - told["dual"]) / primal, abs=1e-12) and told["gap"] <= 0.05


@pytest.fixture
def dropping_alone(monkeypatch):
    """What pruning leaves is not trained again."""
    monkeypatch.setattr("bigclf.api.outcome.refitted", lambda problems, found, *rest: found)


@pytest.mark.usefixtures("dropping_alone")
def test_the_smallest_weights_go_and_the_next_one_would_be_too_much():
    X, y = rows()
    dense = bigclf.fit(X, y[:, 1], algo="dcd", C=1.0, tol=1e-4, progress=False)
    found = bigclf.fit(X, y[:, 1], algo="dcd", C=1.0, tol=1e-4, prune=0.1, progress=False)
    order = np.argsort(np.abs(dense.coef_[0]))
    n = D - np.count_nonzero(found.coef_)
    w = np.append(dense.coef_[0], dense.intercept_)
    for dropped, within in ((n, True), (n + 1, False)):
        w[order[:dropped]] = 0
        primal = objective(w, X, 2 * y[:, 1] - 1)
        assert ((primal - dense.certificate["dual"]) / primal <= 0.1) == within


def test_a_sample_of_rows_that_misleads_costs_no_proof(monkeypatch):
    """A sample in which no loss grows promises that all weights may go; the pass over all rows says otherwise."""
    X, y = rows()
    asked = {"algo": "dcd", "C": 1.0, "tol": 1e-4, "prune": 0.1, "progress": False}
    good = bigclf.fit(X, y[:, 1], **asked)
    monkeypatch.setattr(
        "bigclf.training.pruning.sampled", lambda v, every: v if every == 1 else v._replace(weights=0 * v.weights)
    )
    found = bigclf.fit(X, y[:, 1], **asked)
    assert 0 < np.count_nonzero(found.coef_) < D
    assert np.array_equal(found.coef_, good.coef_) and found.certificate["gap"] <= 0.1


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"algo": "newglmnet", "penalty": "l1"},
            "prune has no effect with .*: it needs a certificate of the L2 penalty",
        ),
        ({"algo": "dcd_mc"}, "each class against the rest"),
        ({"algo": "pa1"}, "prune has no effect with"),
    ],
)
def test_prune_needs_a_certificate_that_it_knows(asked, said):
    X, y = rows()
    with pytest.raises(TypeError, match=said):
        bigclf.fit(X, y[:, 0] + y[:, 1], prune=0.1, progress=False, **asked)


def test_labels_that_do_not_fit_together_are_learned_in_turns(tmp_path):
    X = sp.random(100, 2000, 0.0075, format="csr", random_state=0, dtype=np.float32)  # few entries, many weights
    y = (np.random.default_rng(0).random((100, 48)) < 0.3).astype(int)
    whole = bigclf.fit(X, y, algo="dcd", C=1.0, progress=False)
    parted = bigclf.fit(X, y, algo="dcd", C=1.0, memory="5MB", run_dir=str(tmp_path / "run"), progress=False)
    assert parted.facts["turns"] > 1 and np.array_equal(parted.classes_, whole.classes_)
    assert parted.certificate["gap"] <= 1e-3 and len(parted.certificate["problems"]) == 48
    for mine, other in zip(parted.certificate["problems"], whole.certificate["problems"], strict=True):
        assert mine["name"] == other["name"] and mine["primal"] == pytest.approx(other["primal"], rel=1e-3)
    again = bigclf.fit(
        X, y, algo="dcd", C=1.0, memory="5MB", run_dir=str(tmp_path / "run"), resume=True, progress=False
    )
    assert np.array_equal(again.coef_, parted.coef_) and again.facts["turns"] == parted.facts["turns"]


def test_svmlight_text_with_several_labels_becomes_lists(tmp_path):
    X, y = rows()
    dump_svmlight_file(X, y, str(tmp_path / "rows.svm"), zero_based=False, multilabel=True)
    found = bigclf.convert(str(tmp_path / "rows.svm"), str(tmp_path / "out"), several_labels=True)
    assert found.class_counts.tolist() == y.sum(0).tolist() and found.nnz == X.nnz
    mine = bigclf.fit(found, algo="dcd", C=1.0, progress=False)
    assert np.array_equal(mine.coef_, bigclf.fit(X, y, algo="dcd", C=1.0, progress=False).coef_)


def test_svmlight_text_with_several_labels_is_taken_as_it_is(trained, tmp_path):
    model, _, X, y = trained
    text, one, out = (str(tmp_path / name) for name in ("rows.svm", "one.svm", "out"))
    dump_svmlight_file(X, y, text, zero_based=False, multilabel=True)
    (tmp_path / "one.svm").write_text("0 1:1\n2:1\n2 2:1\n")  # does not tell, but the model does
    mine = bigclf.fit(text, algo="dcd", C=1.0, validate=one, progress=False)
    assert np.array_equal(mine.coef_, model.coef_)
    assert mine.facts["validation"]["micro_f1"] == bigclf.evaluate(mine, one)["micro_f1"]
    assert bigclf.evaluate(mine, text)["micro_f1"] == bigclf.evaluate(mine, X, y)["micro_f1"]
    bigclf.predict(mine, [text, one], out)
    wanted = [np.flatnonzero(row).tolist() for row in y]
    assert pq.read_table(f"{out}/rows.svm.parquet")["label"].to_pylist() == wanted
    assert pq.read_table(f"{out}/one.svm.parquet")["label"].to_pylist() == [[0], [], [2]]
    counts = (mine.decision_function(X) >= 0).sum(axis=1)
    none, many = int(np.argmin(counts)), int(np.argmax(counts))
    for row in (none, many):  # of no label, and of several
        told, scores = explain_at(mine, text, row), mine.decision_function(X[row])[0]
        order = [k for k in np.argsort(-scores).tolist() if scores[k] >= 0] or [int(np.argmax(scores))]
        assert told["label"] == wanted[row] and told["prediction"] == np.flatnonzero(scores >= 0).tolist()
        assert [one["class"] for one in told["each"]] == order and told["class"] == order[0]
        assert [one["score"] for one in told["each"]] == pytest.approx(scores[order].tolist())
    mine.save(tmp_path / "m.bigclf")
    each = mine.certificate["problems"]
    worst = max(each, key=lambda one: one["gap"])
    told = " ".join(CliRunner().invoke(main, ["inspect", str(tmp_path / "m.bigclf")]).stdout.split())
    assert f"certified: all 6 problems within {worst['gap']:.1e} of the optimum, relative, the worst of them" in told
    assert "validation micro F1 " in told
    assert f" the worst of them {worst['name']} (objective {mine.certificate['primal']:,.4f} in all)" in told
    command = ["explain", str(tmp_path / "m.bigclf"), "--data", text, "--row"]
    said = CliRunner().invoke(main, [*command, str(none)]).stdout
    assert said.startswith(f"row {none}: no label, labelled ") and "a score of 0 or more is predicted" in said
    said = CliRunner().invoke(main, [*command, str(many)]).stdout
    labels = ", ".join(map(str, sorted(order)))
    assert said.startswith(f"row {many}: {labels}, labelled ") and len(order) > 1
    assert [line.split()[1] for line in said.splitlines() if line.startswith("label ")] == [str(k) for k in order]
    said = CliRunner().invoke(main, [*command, "3", "--class", "1", "--class", "0"]).stdout
    assert [line.split()[1] for line in said.splitlines() if line.startswith("label ")] == ["1", "0"]
    with pytest.raises(AttributeError, match="trained with loss='logistic'; this one"):  # not calibrated: refused
        mine.predict_proba(X)
    with pytest.raises(ValueError, match="a directory, or to one file whose name ends in .csv"):
        bigclf.predict(mine, one, str(tmp_path / "p.txt"))
    for name in ("p.xlsx", "p.csv.gz"):  # a directory of that name was made
        with pytest.raises(ValueError, match=rf"a directory of this name, write .*{name}/$"):
            bigclf.predict(mine, one, str(tmp_path / name))
    assert not [*tmp_path.glob("p.*")]
    for name in ("p-2024.06", "p.v2", ".p", "p.old/"):
        bigclf.predict(mine, one, f"{tmp_path}/{name}")
        assert (tmp_path / name).is_dir()
    bigclf.predict(mine, one, str(tmp_path / "p.old"), overwrite=True)  # it is there
    (tmp_path / "same.svm").write_text("1 1:1\n1 2:1\n")
    with pytest.raises(DataError, match="every one of the 2 rows has the label 1") as caught:
        bigclf.fit(str(tmp_path / "same.svm"), algo="dcd", progress=False)
    assert caught.value.column is None  # text has none
    with pytest.raises(TypeError, match="no bad one is left out"):
        bigclf.fit(text, algo="dcd", on_bad_rows="skip", progress=False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,2 1:1\n\n1,x 1:1\n", "line 3, column label: labels are whole numbers with commas between them, not '1,x'"),
        ("1,2 1:1\n2 2:1 1:1\n", "line 2: the index in '1:1' is not greater"),
    ],
)
def test_svmlight_lines_that_are_no_rows_are_named(tmp_path, text, said):
    (tmp_path / "rows.svm").write_text(text)
    with pytest.raises(DataError, match=said):
        bigclf.convert(str(tmp_path / "rows.svm"), str(tmp_path / "out"), several_labels=True)
    assert not (tmp_path / "out").exists()


def test_probabilities_are_each_labels_own(tmp_path):
    X, y = rows()
    model = bigclf.LinearClassifier("dcd", loss="logistic", C=10.0).fit(X, y)
    wanted = 1 / (1 + np.exp(-model.decision_function(X)))
    assert model.predict_proba(X) == pytest.approx(wanted, rel=1e-12) and wanted.sum(axis=1).max() > 1.01
    path = write(tmp_path / "rows.parquet", X, [np.flatnonzero(row).tolist() for row in y])
    bigclf.predict(model.model_, path, str(tmp_path / "out"), proba=True)
    column = pq.read_table(tmp_path / "out" / "rows.parquet")["probability_2"]
    assert column.to_pylist() == pytest.approx(wanted[:, 2].tolist(), rel=1e-12)


@pytest.mark.usefixtures("dropping_alone")  # there is no room for more
def test_weights_that_the_memory_cannot_hold_stay_on_disk(tmp_path, monkeypatch):
    X = sp.random(60, 3000, 0.1, format="csr", random_state=0, dtype=np.float32)
    y = (np.random.default_rng(0).random((60, 250)) < 0.3).astype(int)
    asked = {"algo": "dcd", "prune": 0.005, "progress": False}
    whole = bigclf.fit(X, y, **asked)
    parted = bigclf.fit(X, y, memory="5MB", **asked)
    assert parted.facts["turns"] > 1 and parted.n_bytes > 5e6 and parted.mapped and not whole.mapped
    for model in (whole, parted):  # turns order rows by seeds of their own, so the weights agree within the tolerance
        assert model.certificate["gap"] <= 0.005 and len(model.certificate["problems"]) == 250
    values, _, left = X @ parted.coef_.T.toarray() + parted.intercept_, X @ whole.coef_.T.toarray(), whole.facts
    assert parted.decision_function(X) == pytest.approx(values, rel=1e-9, abs=1e-12)
    assert parted.facts["pruned"]["of"] == left["pruned"]["of"] == 250 * 3000
    assert parted.facts["pruned"]["kept"] == parted.coef_.nnz == pytest.approx(left["pruned"]["kept"], rel=0.05)
    parted.save(tmp_path / "large.bigclf")
    again = bigclf.load(tmp_path / "large.bigclf")
    assert not again.mapped and again.digest() == parted.digest()
    monkeypatch.setattr("bigclf.model.model.MAPPED_BYTES", 1)
    mapped = bigclf.load(tmp_path / "large.bigclf")
    path = write(tmp_path / "rows.parquet", X, [np.flatnonzero(row).tolist() for row in y])
    assert mapped.mapped and np.array_equal(mapped.decision_function(path), again.decision_function(path))
    assert bigclf.evaluate(mapped, path, memory="3MB").micro_f1 == bigclf.evaluate(again, path).micro_f1
    with pytest.raises(MemoryBudgetError, match="scoring needs"):
        bigclf.evaluate(again, path, memory="3MB")


def test_a_disk_without_room_for_the_weights_of_all_labels_is_named(monkeypatch):
    def full(size, dtype, directory):
        raise OSError(28, "No space left on device")

    X = sp.random(60, 3000, 0.1, format="csr", random_state=0, dtype=np.float32)
    y = (np.random.default_rng(0).random((60, 120)) < 0.3).astype(int)
    monkeypatch.setattr("bigclf.api.turns.JOINED_SHARE", 0)
    monkeypatch.setattr("bigclf.files.filed_array", full)
    with pytest.raises(RunError, match=r"weights of all labels need .* of disk in .* name another with local_dir="):
        bigclf.fit(X, y, algo="dcd", memory="5MB", prune=0.005, progress=False)


def words_in(rng, n_rows):
    """Rows of 30 of 2,000 words, some of them frequent."""
    shares = 1 / np.arange(20.0, 2020.0)
    words = rng.choice(2000, (n_rows, 30), p=shares / shares.sum())
    indptr = np.arange(0, words.size + 1, 30)
    return normalize(sp.csr_matrix((np.ones(words.size), words.ravel(), indptr), (n_rows, 2000)))


def visits(X, y, monkeypatch, name, least):
    """Of all rows, to a certified 1e-3: with ``least`` for the constant of ``dual`` that is called so, and as it is."""
    visited, teach, totals = [], Learner.teach, []
    monkeypatch.setattr(Learner, "teach", lambda me, view, order, scores: (
        visited.append(order.size), teach(me, view, order, scores))[1])  # fmt: skip
    for value in (least, getattr(dual, name)):
        monkeypatch.setattr(dual, name, value)
        visited.clear()
        model = bigclf.fit(X, y, algo="dcd", C=1.0, tol=1e-3, progress=False)
        assert all(proof["gap"] <= 1e-3 for proof in model.certificate["problems"])
        totals.append(sum(visited))
    return totals


def test_rows_that_crowd_at_the_corner_are_gone_over_less(monkeypatch):
    """Of labels that few rows have: as near to the optimum with far fewer visits."""
    rng = np.random.default_rng(0)
    X = words_in(rng, 3000)
    y = [[f"label {j}" for j in range(3) if rng.random() < 0.002] for _ in range(3000)]
    before, now = visits(X, y, monkeypatch, "CROWDED", 1.0)
    assert now < 0.6 * before


def test_rows_of_rare_classes_that_crowd_are_gone_over_less_too(monkeypatch):
    """One class against the rest is the same problem as a label that few rows have."""
    X = words_in(np.random.default_rng(0), 1500)
    before, now = visits(X, np.arange(1500) % 60, monkeypatch, "RARE", 0.0)
    assert now < 0.75 * before


def test_a_model_that_gives_no_label_says_so(tmp_path, caplog):
    X, y = rows()
    few = np.zeros_like(y)
    few[5, 0] = few[7, 1] = few[9, 2] = few[7, 3] = 1
    asked = {"algo": "dcd", "tol": 1e-3, "progress": False}
    model = bigclf.fit(X, few, C=1e-3, **asked)
    assert "gives no label to any of the first 300 rows it was trained on" in caplog.text
    model.save(tmp_path / "m.bigclf")
    assert any("gives no label" in text for text in bigclf.load(tmp_path / "m.bigclf").facts["warnings"])
    found = bigclf.evaluate(model, X, y[:, :4])
    assert found.mean_predicted == 0 and found.notes[0].startswith("the model gives no label to any of these rows")
    caplog.clear()
    assert bigclf.evaluate(bigclf.fit(X, y, C=1.0, **asked), X, y).notes == [] and "gives no label" not in caplog.text


def test_no_precision_is_told_at_more_labels_than_there_are():
    X, y = rows()
    found = bigclf.evaluate(bigclf.fit(X, y[:, :4], algo="dcd", progress=False), X, y[:, :4])
    assert list(found.precision_at) == [1, 3] and found.missing == {"precision at 5": "the model has 4 labels"}
    shown = dict(found.lines())
    assert "precision at 3" in shown and "precision at 5" not in shown


def rare(n=2000, labels=20):
    """Rows of words with labels that few have, and the indicator matrix."""
    rng = np.random.default_rng(0)
    X, Y = words_in(rng, n).astype(np.float32), np.zeros((n, labels), np.int64)
    for j in range(labels):
        Y[:, j] = (X[:, [j + 5]].toarray().ravel() > 0) & (rng.random(n) < 0.05)
    return X, Y


def test_labels_that_look_at_rows_together_are_certified_as_each_alone(monkeypatch):
    """Few rows are gone over, most are only looked at, eight labels at a time; the optimum is that of each alone."""
    X, Y = rare()
    gone_over, teach = [], Learner.teach
    monkeypatch.setattr(Learner, "teach", lambda me, view, order, scores: (
        gone_over.append(order.size), teach(me, view, order, scores))[1])  # fmt: skip
    off, closes = [], DualLearner.closes

    def looking(self, view, lesson, tol):
        aim = closes(self, view, lesson, tol)
        if self.plan.tiled and self.certificate.start is not None:
            primal, dual = self.certificate.objectives
            off.append(abs(self.tally.gap - (primal - dual)) / primal if not self._first else 0.0)
        return aim

    monkeypatch.setattr(DualLearner, "closes", looking)
    model = bigclf.fit(X, Y, algo="dcd", C=1.0, tol=1e-4, progress=False)
    assert model.result_.plan["tiled"] and max(gone_over) < X.shape[0]
    assert model.result_.plan["light_bias"] and max(off) < 1e-12, "all rows' margins tell the gap, whatever the bias is"
    for j, proof in enumerate(model.certificate["problems"]):
        w = np.append(model.coef_[j], model.intercept_[j])
        alone = bigclf.fit(X, 2 * Y[:, j] - 1, algo="dcd", C=1.0, tol=1e-4, progress=False)
        assert not alone.result_.plan["tiled"]
        assert objective(w, X, 2 * Y[:, j] - 1) == pytest.approx(proof["primal"], rel=1e-9)
        assert proof["gap"] <= 1e-4 and proof["dual"] <= alone.certificate["primal"]
        assert alone.certificate["dual"] <= proof["primal"]


@pytest.mark.parametrize("epochs", [2, 3, 5])
def test_labels_that_look_together_and_end_early_are_told_the_objective_of_their_weights(epochs):
    """Which may be those that an epoch began with: what is tried before it learns is what is kept."""
    X, Y = rare()
    model = bigclf.fit(X, Y, algo="dcd", C=100.0, tol=1e-9, epochs=epochs, progress=False)
    assert model.result_.plan["tiled"] and model.result_.plan["light_bias"]
    for j, proof in enumerate(model.certificate["problems"]):
        w = np.append(model.coef_[j], model.intercept_[j])
        told = objective(w, X, 2 * Y[:, j] - 1, 100.0)
        assert told == pytest.approx(proof["primal"], rel=1e-9) and proof["dual"] <= told


def test_who_learns_beside_a_label_changes_no_bit_of_it():
    """Places of a tile depend on who is still learned; their sums do not."""
    X, Y = rare()
    asked = {"algo": "dcd", "C": 1.0, "tol": 1e-4, "progress": False}
    all_of_them, some = (bigclf.fit(X, Y[:, :k], **asked) for k in (20, 9))
    assert np.array_equal(all_of_them.coef_[:9], some.coef_)


def test_a_run_of_labels_that_look_together_is_resumed_to_the_bit(tmp_path):
    X, Y = rare()
    asked = {"algo": "dcd", "C": 1.0, "tol": 1e-4, "progress": False}
    place = str(tmp_path / "run")
    whole = bigclf.fit(X, Y, **asked)

    def stop(record):
        signal.raise_signal(signal.SIGINT)

    for number in range(3):  # at the end of its first epoch, then of the second ...
        with pytest.raises(bigclf.errors.Interrupted):
            bigclf.fit(X, Y, run_dir=place, resume=number > 0, callbacks=[stop], **asked)
    again = bigclf.fit(X, Y, run_dir=place, resume=True, **asked)
    assert again.result_.epochs > 3 and np.array_equal(again.coef_, whole.coef_)


def test_a_run_that_an_older_version_began_goes_on_as_it_was(tmp_path, monkeypatch):
    """Its plan does not say that problems look at rows together, and its checkpoints are of a run that did not."""
    X, Y = rare(600, 4)
    asked = {"algo": "dcd", "C": 1.0, "tol": 1e-4, "progress": False}

    def stop(record):
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as older:
        older.setattr("bigclf.training.plan._looks_together", lambda *given: False)
        whole = bigclf.fit(X, Y, **asked)
        with pytest.raises(bigclf.errors.Interrupted):
            bigclf.fit(X, Y, run_dir=str(tmp_path / "run"), callbacks=[stop], **asked)
    of_older_version(tmp_path / "run", "tiled")
    again = bigclf.fit(X, Y, run_dir=str(tmp_path / "run"), resume=True, **asked)
    assert again.result_.epochs > 1 and np.array_equal(again.coef_, whole.coef_)
    assert not again.result_.plan["tiled"] and bigclf.fit(X, Y, **asked).result_.plan["tiled"]


@pytest.mark.usefixtures("dropping_alone")
def test_pruning_many_labels_keeps_as_few_weights_as_one_by_one(monkeypatch):
    """Trials of eight at a time come as near to the bound as the levels of each alone do."""
    X, Y = rare()
    asked = {"algo": "dcd", "C": 1.0, "tol": 1e-4, "prune": 0.05, "progress": False}
    found = bigclf.fit(X, Y, **asked)
    monkeypatch.setattr("bigclf.api.outcome.MOST_TILE", 0)
    alone = bigclf.fit(X, Y, **asked)
    assert found.facts["pruned"]["kept"] <= 1.03 * alone.facts["pruned"]["kept"] < found.facts["pruned"]["of"]
    for j, proof in enumerate(found.certificate["problems"]):
        w = np.append(found.coef_[[j]].toarray(), found.intercept_[j])
        primal = objective(w, X, 2 * Y[:, j] - 1)
        assert primal == pytest.approx(proof["primal"], rel=1e-9) and (primal - proof["dual"]) / primal <= 0.05
        assert proof["gap"] > 0.04  # the room that there is has been used


def test_pruning_many_labels_gives_the_same_bits_on_workers(tmp_path, client):
    """The driver goes over rows that it reads anew, in other blocks."""
    X, Y = rare(600, 3)
    path = write(tmp_path / "rows.parquet", X.tocsr(), named(Y))
    asked = {"algo": "dcd", "C": 1.0, "tol": 1e-3, "prune": 0.05, "progress": False}
    here, there = bigclf.fit(path, **asked), bigclf.fit(path, workers=client, **asked)
    assert here.result_.plan["tiled"] and np.array_equal(here.coef_.toarray(), there.coef_.toarray())
    assert here.certificate == there.certificate


def test_pruning_refuses_rows_that_are_not_those_of_the_training(monkeypatch):
    """Both ways of it look at the objective of all weights."""
    X, Y = rare(600, 3)
    loaded = bigclf.training.executor.Bench.loaded
    monkeypatch.setattr(bigclf.training.executor.Bench, "loaded", lambda me: (
        block._replace(labels=block.labels[::-1].copy()) for block in loaded(me)))  # fmt: skip
    with pytest.raises(RunError, match="they are not the same rows"):
        bigclf.fit(X, Y, algo="dcd", tol=1e-3, prune=0.05, progress=False)


def test_one_epoch_learns_from_every_row_for_every_label():
    """Only where more epochs are to follow is a part of the rows enough to begin with."""
    X, Y = rare(600, 3)
    for more in ({}, {"tol": 0.9}):
        result = bigclf.fit(X, Y, algo="dcd", epochs=1, progress=False, **more).result_
        assert result.progressive["rows"] == Y.size and not result.plan["tiled"]


def test_a_certificate_speaks_of_the_weights_that_are_left_in_float32_too():
    """Where all may go all of them do: the largest of float32 is not kept by rounding what it is compared with."""
    X, Y = rare(600, 3)
    model = bigclf.fit(X, Y, algo="dcd", C=1e-4, tol=1e-3, prune=0.9, dtype="float32", progress=False)
    assert model.result_.plan["tiled"] and model.facts["pruned"]["kept"] == 0
    for j, proof in enumerate(model.certificate["problems"]):
        w = np.append(np.zeros(X.shape[1]), model.intercept_[j])
        assert 0.5 * w @ w + 1e-4 * (objective(w, X, 2 * Y[:, j] - 1) - 0.5 * w @ w) == pytest.approx(proof["primal"])


def test_a_trial_below_the_best_one_takes_nothing_back():
    """After one that is too far the next is 2 % below it, which may be less than what is known to be within."""
    from bigclf.training.pruning_together import Search

    search = Search(1.0, 2.0, np.array([0.0, 0.5, 1.0]), np.array([1.0, 1.4, 3.0]))
    for tried, objective in ((0.99, 1.5), (1.0, 2.5), (0.98, 1.4)):
        search.tried = tried
        search.take(objective)
    assert search.best == (0.99, 1.5)


def test_a_model_is_not_called_silent_for_a_first_row_group_without_labels(tmp_path):
    """A thousand rows are looked at, in as many row groups as have them."""
    X, y = rows()
    asked = {"algo": "dcd", "C": 10.0, "progress": False}
    order = np.argsort(bigclf.fit(X, y, **asked).decision_function(X).max(axis=1))
    X, y = X[order], y[order]
    path = tmp_path / "rows.parquet"
    table = pq.read_table(write(path, X, named(y)))
    pq.write_table(table, path, row_group_size=20)
    model = bigclf.fit(str(path), **asked)
    assert not (model.decision_function(X[:20]) >= 0).any() and (model.decision_function(X) >= 0).any()
    assert not [said for said in model.result_.warnings if "gives no label" in said]
