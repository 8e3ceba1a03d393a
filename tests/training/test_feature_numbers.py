"""Of very many features, few of which occur, only those have weights: the bits of columns numbered by hand."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from making import fit, interrupted_after, random_rows, shards_of
from test_forecast import RATES

import bigclf
from bigclf import files
from bigclf.api.plan import forecast
from bigclf.cli import main
from bigclf.data import numbering
from bigclf.data.arrays import Arrays
from bigclf.data.dataset import NUMBERS
from bigclf.data.shards import write_table
from bigclf.errors import DataError, MemoryBudgetError, ModelFormatError, RunError
from bigclf.files.caches import cache_home
from bigclf.maths.feature_ids import FeatureIds, distinct
from bigclf.model.explanations import decisive_column
from bigclf.model.model import Model
from bigclf.training.records.run_directory import features_before

D, N = 10**9, 60  # features there are; features that occur
NUMBERS_OF = np.unique(np.random.default_rng(3).integers(0, D, N))[:N]


def far(x, numbers=NUMBERS_OF, d=D):
    """The matrix with column j as column ``numbers[j]`` of ``d``."""
    return sp.csr_matrix((x.data, numbers[x.indices], x.indptr), shape=(x.shape[0], d))


def rows(seed=0, n_rows=150, **options):
    """Rows in which each of the N features occurs, and their labels."""
    x, y = random_rows(n_rows, N, 0.15, seed=seed, **options)
    assert np.unique(x.indices).size == N
    return x, y


@pytest.fixture
def both(tmp_path):
    """The same rows as shards of N features, and of D."""
    x, y = rows()
    return shards_of(tmp_path / "near", x, y), shards_of(tmp_path / "far", far(x), y)


def equal(found, wanted):
    """Whether the model of D features has the bits of that of N."""
    return (
        np.array_equal(found.weights, wanted.weights)
        and np.array_equal(found.intercept_, wanted.intercept_)
        and np.array_equal(found.feature_ids.numbers, NUMBERS_OF)
    )


FITS = [
    dict(algo="pa2", epochs=2),
    dict(algo="averaged_pa2", epochs=2, groups=3),
    dict(algo="arow", epochs=2, dtype="float32"),
    dict(algo="dcd", loss="hinge", tol=1e-3),
    dict(algo="dcd", loss="hinge", groups=3, epochs=4),
    dict(algo="newton", loss="logistic"),
    dict(algo="newglmnet", loss="logistic", penalty="l1", epochs=5),
]


@pytest.mark.parametrize(
    "options",
    [pytest.param(o, marks=() if n in (0, 3) else pytest.mark.long) for n, o in enumerate(FITS)],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_a_fit_has_the_bits_of_columns_numbered_by_hand(both, options):
    near, wide = both
    wanted, found = (bigclf.fit(data, progress=False, **options) for data in (near, wide))
    assert equal(found, wanted) and found.n_features == D and found.certificate == wanted.certificate
    assert found.result_.plan["groups"] == wanted.result_.plan["groups"]


def test_rows_in_memory_are_numbered_anew_too():
    x, y = rows()
    wanted, found = (bigclf.fit(m, y, algo="dcd", progress=False) for m in (x, far(x)))
    assert equal(found, wanted) and np.array_equal(found.predict(far(x)), wanted.predict(x))
    assert equal(bigclf.fit(far(x).astype(np.float64), y, algo="dcd", progress=False), wanted)


@pytest.mark.parametrize("width", [D, 2**33])
def test_indices_of_either_width_become_places(tmp_path, width):
    """Of more than 2^32 features shards have indices of 8 bytes, blocks of places 4."""
    x, y = rows()
    data = shards_of(tmp_path / "rows", far(x, NUMBERS_OF * (width // D), width), y)
    assert data.index_width == (8 if width > D else 4)
    ids = FeatureIds(NUMBERS_OF * (width // D), width)
    found, near = data.with_feature_ids(ids), shards_of(tmp_path / "near", x, y)
    for block, wanted in zip(found.blocks(), near.blocks(), strict=True):
        assert block.indices.dtype == np.uint32 and np.array_equal(block.indices, wanted.indices)
    assert found.index_width == 4 and found.digest != data.digest
    wanted = bigclf.fit(near, algo="pa2", epochs=1, progress=False)
    assert np.array_equal(bigclf.fit(data, algo="pa2", epochs=1, progress=False).weights, wanted.weights)


@pytest.mark.long
def test_what_a_class_has_and_numbers_to_predict(tmp_path):
    x, _ = rows()
    three, numbers = np.arange(x.shape[0]) % 3, np.asarray(x.sum(axis=1)).ravel()
    for y, options in (
        (three, dict(algo="pa2", epochs=1)),
        (three, dict(algo="pa1_mc", epochs=1)),
        (numbers, dict(algo="dcd", loss="epsilon_insensitive", epochs=3)),
    ):
        wanted, found = (bigclf.fit(m, y, progress=False, **options) for m in (x, far(x)))
        assert equal(found, wanted) and np.array_equal(found.predict(far(x)), wanted.predict(x))
        coef = found.coef_
        assert coef.shape == (found.intercept_.size, D) and np.array_equal(coef.data, wanted.coef_.ravel())
        assert np.array_equal(coef.indices, np.tile(NUMBERS_OF, found.intercept_.size))


# The model


@pytest.fixture
def pair(both):
    """Models of N and of D features, with variances."""
    return tuple(bigclf.fit(data, algo="arow", epochs=1, progress=False) for data in both)


def test_a_model_scores_rows_by_its_features(pair, both):
    near, model = pair
    x, y = rows(seed=1)
    wide = far(x)
    scores = x.toarray() @ model.coef_.data + model.intercept_  # scipy's product would make arrays of D numbers
    assert np.allclose(model.decision_function(wide), scores, rtol=0, atol=1e-12)
    assert np.array_equal(model.decision_function(both[1]), near.decision_function(both[0]))
    for k in range(5):
        row = wide[k]
        assert model.scorer()((row.indices, row.data)) == near.scorer()((x[k].indices, x[k].data))
    assert bigclf.evaluate(model, wide, y).accuracy == bigclf.evaluate(near, x, y).accuracy
    assert bigclf.evaluate(model, both[1]).correct == bigclf.evaluate(near, both[0]).correct


def test_features_that_did_not_occur_have_no_weight_and_those_beyond_are_told(pair, tmp_path):
    _, model = pair
    other = np.setdiff1d(np.arange(5), NUMBERS_OF)[:1]  # a feature of the D that occurred in no row
    x = sp.csr_matrix((np.ones(2, np.float32), (np.zeros(2, int), [other[0], NUMBERS_OF[7]])), shape=(1, D))
    wanted = model.weights[0, 7] + model.intercept_[0]
    assert model.decision_function(x)[0] == wanted
    assert model.scorer()({int(other[0]): 1.0, int(NUMBERS_OF[7]): 1.0}) == wanted
    beyond = sp.csr_matrix((np.ones(2, np.float32), (np.zeros(2, int), [NUMBERS_OF[7], D + 3])), shape=(1, D + 4))
    data = shards_of(tmp_path / "beyond", sp.vstack([beyond, beyond]).tocsr(), np.array([0, 1]))
    with pytest.warns(UserWarning, match="2 entries have features that the model does not know"):
        assert (model.decision_function(data) == wanted).all()
    with pytest.raises(ValueError, match="none of the model's"):
        model.scorer()({D + 3: 1.0})
    assert model.scorer("ignore")({D + 3: 1.0}) == model.intercept_[0]


def test_a_model_is_saved_and_read_whole(pair, tmp_path):
    near, model = pair
    model.save(tmp_path / "model")
    again = bigclf.load(tmp_path / "model")
    assert equal(again, near) and again.n_features == D and again.digest() == model.digest()
    assert again.state_digest() == model.state_digest() and files.file_size(tmp_path / "model") < 20_000
    assert Model.map(tmp_path / "model").digest() == model.digest()
    near.save(tmp_path / "near model")
    assert bigclf.load(tmp_path / "near model").feature_ids is None  # and a file of the old form
    other = FeatureIds(NUMBERS_OF + 1, D)
    assert Model(model.weights, model.intercept_, model.classes_, feature_ids=other).digest() != model.digest()


@pytest.mark.parametrize("numbers", [NUMBERS_OF[::-1], NUMBERS_OF - D, NUMBERS_OF + D, NUMBERS_OF.astype(np.float64)])
def test_a_file_with_wrong_numbers_of_features_is_refused(pair, tmp_path, numbers):
    _, model = pair
    model.feature_ids = FeatureIds(np.ascontiguousarray(numbers), D)
    model.save(tmp_path / "model")
    with pytest.raises(ModelFormatError, match="numbers of features must"):
        bigclf.load(tmp_path / "model")


def test_coef_is_sparse_and_dense_weights_are_refused_where_they_do_not_fit(pair, monkeypatch):
    _, model = pair
    coef = model.coef_
    assert coef.shape == (1, D) and coef.nnz == N and np.array_equal(coef.indices, NUMBERS_OF)
    monkeypatch.setattr("bigclf.model.model.memory_limit", lambda: (10**9, "here"))
    with pytest.raises(MemoryBudgetError, match=r"1,000,000,000 features as one array take 8.00 GB"):
        model.dense_weights()
    few = Model(np.ones((1, 2)), [0.0], [0, 1], feature_ids=FeatureIds(np.array([1, 4]), 6))
    assert few.dense_weights().tolist() == [[0, 1, 0, 0, 1, 0]]


def test_explanations_and_the_table_of_weights_name_the_true_features(pair, both, tmp_path):
    near, model = pair
    place = {int(number): j for j, number in enumerate(NUMBERS_OF)}
    mine, theirs = model.explain(both[1], top=5)["classes"], near.explain(both[0], top=5)["classes"]
    for a, b in zip(mine, theirs, strict=True):
        assert a["nonzero"] == b["nonzero"]
        found = [{**entry, "feature": place[entry["feature"]], "number": place[entry["number"]]} for entry in a["for"]]
        assert found == b["for"]
    x, _ = rows(seed=1)
    told = model.explain_row(far(x)[0]), near.explain_row(x[0])
    assert [(place[e["feature"]], e["contribution"]) for e in told[0]["entries"]] == [
        (e["feature"], e["contribution"]) for e in told[1]["entries"]
    ]
    tables = []
    for one, name in ((model, "table of far"), (near, "table of near")):
        one.export(tmp_path / name, "parquet")
        tables.append(pq.read_table(tmp_path / name).to_pydict())
    features = [None if feature is None else place[feature] for feature in tables[0].pop("feature")]
    assert features == tables[1].pop("feature") and tables[0] == tables[1]


@pytest.mark.parametrize("to", ["onnx", "liblinear", "sklearn", "numpy", "sql", "c"])
def test_other_exports_are_refused_by_name(pair, tmp_path, to):
    with pytest.raises(RunError, match=f"--to {to} has a weight for each of 1,000,000,000 features; --to parquet"):
        pair[1].export(tmp_path / "out", to)
    if to == "sklearn":
        with pytest.raises(RunError, match="--to parquet"):
            pair[1].to_sklearn()


# Which rows, and what is kept of them


def collected(monkeypatch):
    """How often the rows were looked through for the features that occur."""
    calls = []
    look = numbering.distinct
    monkeypatch.setattr(numbering, "distinct", lambda *given: calls.append(given[1]) or look(*given))
    return calls


def kept_of(data):
    return cache_home() / NUMBERS / f"{data.digest}.parquet"


def test_the_numbers_are_collected_once_and_ordinary_rows_are_not_looked_at(both, monkeypatch):
    near, wide = both
    calls = collected(monkeypatch)
    for _ in range(2):
        found = bigclf.fit(wide, algo="pa2", epochs=1, progress=False)
    assert len(calls) == 1 and kept_of(wide).exists()
    wanted = bigclf.fit(near, algo="pa2", epochs=1, progress=False)
    assert len(calls) == 1 and equal(found, wanted) and not kept_of(near).exists()


@pytest.mark.parametrize("damage", ["cut", "descending", "beyond"])
def test_a_list_that_cannot_be_trusted_is_made_anew(both, monkeypatch, damage):
    near, wide = both
    bigclf.fit(wide, algo="pa2", epochs=1, progress=False)
    path = kept_of(wide)
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    else:
        write_table(str(path), {"feature": NUMBERS_OF[::-1] if damage == "descending" else NUMBERS_OF + D})
    calls = collected(monkeypatch)
    found = bigclf.fit(wide, algo="pa2", epochs=1, progress=False)
    assert len(calls) == 1 and equal(found, bigclf.fit(near, algo="pa2", epochs=1, progress=False))


def test_a_list_of_other_rows_is_told(both):
    _, wide = both
    with pytest.raises(DataError, match="not among those that were collected"):
        next(wide.with_feature_ids(FeatureIds(NUMBERS_OF[1:], D)).blocks())


def test_where_many_of_the_features_occur_all_have_weights(monkeypatch):
    x, y = rows()
    wide = Arrays(far(x), y)
    assert numbering.numbered(wide, 10**9).n_features == N
    assert numbering.numbered(Arrays(x, y), 10**9).feature_ids is None
    monkeypatch.setattr(numbering, "MANY", 8 * N - 2)
    assert numbering.numbered(Arrays(far(x, np.arange(N), 8 * N), y), 10**9).feature_ids is not None
    assert numbering.numbered(Arrays(far(x, np.arange(N), 8 * N - 1), y), 10**9).feature_ids is None
    with pytest.raises(MemoryBudgetError, match="more than 59 of 1,000,000,000 features occur"):
        numbering.numbered(wide, 32 * (N - 1))
    empty = Arrays(sp.csr_matrix((2, D), dtype=np.float32), [0, 1])
    assert numbering.numbered(empty, 10**9).feature_ids.numbers.tolist() == [0]


def test_distinct_numbers_are_joined_as_they_come(monkeypatch):
    monkeypatch.setattr("bigclf.maths.feature_ids.AT_ONCE", 8)
    pieces = [np.random.default_rng(k).integers(0, 40, 5).astype(np.uint32) for k in range(20)]
    wanted = np.unique(np.concatenate(pieces))
    assert np.array_equal(distinct(pieces, 40), wanted) and distinct(pieces, wanted.size) is not None
    assert distinct(pieces, wanted.size - 1) is None and distinct([], 3).size == 0


def test_places_are_those_of_a_search_whatever_the_order():
    rng = np.random.default_rng(0)
    numbers = np.unique(rng.integers(0, 1000, 200))
    for dtype in (np.uint32, np.uint64, np.int64):
        features = rng.integers(0, 1000, 500).astype(dtype)
        places, known = FeatureIds(numbers, 1000).places(features)
        assert np.array_equal(known, np.isin(features, numbers))
        assert np.array_equal(numbers[places[known]], features[known].astype(np.int64))


# Going on


@pytest.mark.parametrize(
    "options", [dict(algo="averaged_pa2", epochs=4), dict(algo="dcd", groups=3, epochs=4), dict(algo="pa2", epochs=3)]
)
def test_stopped_and_resumed_it_has_the_same_bits_and_looks_no_second_time(both, tmp_path, monkeypatch, options):
    shape = dict(run_dir=tmp_path / "run", checkpoint_every=0, progress=False, **options)
    with interrupted_after(2):
        fit(both[1], **shape)
    calls = collected(monkeypatch)
    assert features_before(tmp_path / "run") == N
    model = fit(both[1], resume=True, **shape)
    assert not calls and equal(model, bigclf.fit(both[0], progress=False, **options))
    kept_of(both[1]).unlink()
    assert fit(both[1], resume=True, **shape).digest() == model.digest()  # the run had ended
    told = json.loads((tmp_path / "run" / "run.json").read_text())["identity"]["data"]
    assert told["of_features"] == D and told["n_features"] == N


def test_a_run_that_had_weights_for_all_features_goes_on_so(tmp_path, monkeypatch):
    """Older versions never numbered features anew."""
    x, y = rows()
    data = shards_of(tmp_path / "rows", far(x, np.arange(N), 900), y)
    shape = dict(algo="pa2", epochs=3, run_dir=tmp_path / "run", checkpoint_every=0, progress=False)
    with interrupted_after(1):
        fit(data, **shape)
    monkeypatch.setattr("bigclf.request.door.MANY", 100)
    monkeypatch.setattr(numbering, "MANY", 100)
    model = fit(data, resume=True, **shape)
    assert model.feature_ids is None and model.weights.shape == (1, 900)
    again = bigclf.fit(data, algo="pa2", epochs=3, progress=False)
    assert again.feature_ids.size == N and np.array_equal(again.coef_.data, model.weights[0, :N])


def test_training_goes_on_from_a_model_of_the_same_and_of_other_features(both, tmp_path):
    """Of the same it goes on exactly; of others the features of both have weights."""
    near, wide = both
    for algo in ("averaged_pa2", "arow"):
        options = dict(algo=algo, progress=False)
        first = bigclf.fit(wide, epochs=1, **options)
        first.save(tmp_path / "first")
        on = bigclf.fit(wide, epochs=1, init=bigclf.load(tmp_path / "first"), **options)
        assert equal(on, bigclf.fit(near, epochs=1, init=bigclf.fit(near, epochs=1, **options), **options))
    x, y = rows(seed=5)
    more = np.concatenate([NUMBERS_OF[:50], np.arange(7, 17)])  # ten are new, ten do not occur again
    order = np.argsort(more, kind="stable")
    other = far(x[:, order], more[order])
    found = bigclf.fit(other, y, algo="pa2", epochs=1, init=first, progress=False)
    union = np.union1d(NUMBERS_OF, more)
    assert np.array_equal(found.feature_ids.numbers, union)
    by_hand = Model(first.by_place(FeatureIds(union, D)).weights, first.intercept_, first.classes_)
    place = np.searchsorted(union, more[order])
    wanted = bigclf.fit(far(x[:, order], place, union.size), y, algo="pa2", epochs=1, init=by_hand, progress=False)
    assert np.array_equal(found.weights, wanted.weights)
    plain = bigclf.fit(x, y, algo="pa2", epochs=1, progress=False)  # N features, all of which have a weight
    found = bigclf.fit(far(x), y, algo="pa2", epochs=1, init=plain, progress=False)
    assert np.array_equal(found.feature_ids.numbers, np.union1d(np.flatnonzero(plain.coef_[0]), NUMBERS_OF))
    with pytest.raises(ValueError, match=r"init has weights \[1, 1000000000\]"):
        bigclf.fit(x, y, algo="pa2", epochs=1, init=first, progress=False)


# What else is done with rows and models


def test_a_sweep_a_path_and_early_stopping_are_those_of_columns_numbered_by_hand(both):
    near, wide = both
    x, y = rows(seed=2)
    grids = [bigclf.sweep(data, algo="dcd", grid={"C": [0.1, 1.0]}, folds=3, progress=False) for data in both]
    assert equal(grids[1].best_model, grids[0].best_model)
    assert [row["mean"] for row in grids[0].table] == [row["mean"] for row in grids[1].table]
    apart = [
        bigclf.sweep(data, algo="pa2", grid={"C": [0.1, 1.0]}, folds=0, validate=test, progress=False)
        for data, test in ((near, (x, y)), (wide, (far(x), y)))
    ]
    assert [row["mean"] for row in apart[0].table] == [row["mean"] for row in apart[1].table]
    stopped = [
        bigclf.fit(data, algo="pa2", early_stopping=1, validate=test, epochs=6, progress=False)
        for data, test in ((near, (x, y)), (wide, (far(x), y)))
    ]
    assert equal(stopped[1], stopped[0]) and stopped[0].facts["validation"] == stopped[1].facts["validation"]
    paths = [bigclf.path(data, C=[0.01, 0.1], loss="logistic", penalty="l1", progress=False) for data in both]
    assert [row["nonzero"] for row in paths[0].table] == [row["nonzero"] for row in paths[1].table]
    assert equal(paths[1].models[-1], paths[0].models[-1])


def test_a_calibrated_model_gives_the_same_probabilities(pair, both):
    x, y = rows(seed=4)
    told = [bigclf.calibrate(model, m, y) for model, m in zip(pair, (x, far(x)), strict=True)]
    assert np.array_equal(told[0].predict_proba(x), told[1].predict_proba(far(x)))


def test_several_labels_a_row_and_rows_of_no_weight(tmp_path):
    x, _ = rows()
    sets = [[k % 3] if k % 4 else [0, 2] for k in range(x.shape[0])]
    found, wanted = (bigclf.fit(m, sets, algo="pa2", epochs=1, progress=False) for m in (far(x), x))
    assert equal(found, wanted) and (found.predict(far(x)) != wanted.predict(x)).nnz == 0
    y, weights = np.arange(x.shape[0]) % 2, (np.arange(x.shape[0]) % 5 > 0).astype(np.float32)
    pairs = [shards_of(tmp_path / name, m, y, weights) for name, m in (("near", x), ("far", far(x)))]
    wanted, found = (bigclf.fit(data, algo="pa2", epochs=2, progress=False) for data in pairs)
    assert equal(found, wanted)


def test_forget_is_refused_by_name(both, tmp_path):
    bigclf.fit(both[1], algo="dcd", run_dir=tmp_path / "run", progress=False)
    with pytest.raises(TypeError, match="forget does not yet take models that keep weights"):
        bigclf.forget(tmp_path / "run", tmp_path / "out", rows=[1], to=tmp_path / "left")


def test_the_plan_knows_how_many_features_occur(both, monkeypatch):
    monkeypatch.setattr("bigclf.api.plan._rates", lambda intent, fresh: RATES)  # nothing is measured
    near, wide = (forecast(data, algo="pa2") for data in both)
    parts = {name: size for name, size in wide["memory"]["parts"].items() if name != "numbers of features"}
    assert parts == near["memory"]["parts"]
    assert wide["data"] | near["data"] == near["data"] | {"occurring": N} and wide["data"]["features"] == D


def test_a_scikit_learn_estimator_takes_rows_of_very_many_features():
    x, y = rows()
    found, wanted = (bigclf.LinearClassifier(algo="pa2", epochs=2).fit(m, y) for m in (far(x), x))
    assert found.n_features_in_ == D and np.array_equal(found.predict(far(x)), wanted.predict(x))
    found.partial_fit(far(x), y)
    wanted.partial_fit(x, y)
    assert np.array_equal(found.model_.weights, wanted.model_.weights)


@pytest.mark.parametrize("options", [dict(algo="averaged_pa2", epochs=2), dict(algo="dcd", loss="hinge", epochs=3)])
def test_workers_give_the_same_bits(both, client, options):
    options = dict(groups=3, progress=False, **options)
    wanted, there = bigclf.fit(both[0], **options), bigclf.fit(both[1], workers=client, **options)
    assert equal(there, wanted)
    assert bigclf.evaluate(there, both[1], workers=client).correct == bigclf.evaluate(wanted, both[0]).correct


def test_the_command_line_from_text_to_predictions(tmp_path):
    """convert, fit, evaluate and predict of svmlight text of 10^9 features, and what inspect says."""
    x, y = rows()
    for name, numbers in (("near", np.arange(N)), ("far", NUMBERS_OF)):
        lines = [" ".join([str(label), *(f"{numbers[j] + 1}:{v:.6g}" for j, v in zip(r.indices, r.data, strict=True))])
                 for label, r in zip(y, x, strict=True)]  # fmt: skip
        (tmp_path / f"{name}.svm").write_text("\n".join(lines) + "\n")
    told = {}
    for name in ("near", "far"):
        at, model = str(tmp_path / name), str(tmp_path / f"{name}.bigclf")
        said = []
        for words in (
            ["convert", f"{at}.svm", at],
            ["fit", at, "--algo", "dcd", "-o", model],
            ["evaluate", model, f"{at}.svm", "--json"],
            ["predict", model, f"{at}.svm", "-o", f"{at}.csv", "--scores"],
            ["inspect", model],
        ):
            done = CliRunner().invoke(main, words, catch_exceptions=False)
            assert done.exit_code == 0, done.output
            said.append(done.output)
        told[name] = json.loads(said[2])["confusion"], Path(f"{at}.csv").read_text()
    assert told["near"] == told["far"] and told["far"][1].count("\n") == x.shape[0] + 1
    assert f"kept for the {N} features that occur" in said[-1]


@pytest.mark.long
def test_a_model_of_hashed_columns_takes_tables_and_names_features(tmp_path, monkeypatch):
    lines = [f"{'yes' if k % 7 < 3 else 'no'},{k % 5},w{k % 7}" for k in range(200)]
    (tmp_path / "rows.csv").write_text("\n".join(["label,age,word", *lines]) + "\n")
    spec = {"label": "label", "features": [{"numeric": "age"}, {"text": "word"}], "hash_bits": 10}
    options = dict(features=spec, format="csv", algo="pa2", epochs=2, progress=False)
    wanted = bigclf.fit(str(tmp_path / "rows.csv"), **options)
    monkeypatch.setattr("bigclf.request.door.MANY", 100)
    monkeypatch.setattr(numbering, "MANY", 100)
    model = bigclf.fit(str(tmp_path / "rows.csv"), **options)
    assert wanted.feature_ids is None and model.feature_ids.size == 8 and model.n_features == wanted.n_features
    assert model.predict(str(tmp_path / "rows.csv")).tolist() == wanted.predict(str(tmp_path / "rows.csv")).tolist()
    assert model.explain(top=3) == wanted.explain(top=3)
    assert decisive_column(model) == decisive_column(wanted) == "word"


def test_weights_that_pruning_left_are_known_by_number(tmp_path):
    x, _ = rows()
    y = np.argmax(x[:, :3].toarray(), axis=1)
    options = dict(algo="dcd", loss="hinge", prune=0.1, progress=False)
    wanted, found = (bigclf.fit(m, y, **options) for m in (x, far(x)))
    assert found.sparse and found.coef_.nnz == wanted.coef_.nnz < 3 * N
    found.save(tmp_path / "model")
    again = bigclf.load(tmp_path / "model")
    assert np.array_equal(again.decision_function(far(x)), wanted.decision_function(x))
    assert np.array_equal(again.coef_.tocoo().col, NUMBERS_OF[wanted.coef_.tocsr().tocoo().col])
    assert again.scorer().predict((far(x)[3].indices, x[3].data)) == wanted.scorer().predict((x[3].indices, x[3].data))
    ids = FeatureIds(np.union1d(NUMBERS_OF, [5]), D)
    assert NUMBERS_OF[0] > 5 and np.array_equal(again.by_place(ids).weights[:, 1:], wanted.coef_.toarray())
