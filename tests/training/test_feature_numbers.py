"""Of very many features, few of which occur, only those have weights: the bits of columns numbered by hand."""

import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from making import random_rows, shards_of

import bigclf
from bigclf import files
from bigclf.errors import MemoryBudgetError, ModelFormatError, RunError
from bigclf.maths.feature_ids import FeatureIds
from bigclf.model.model import Model

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


@pytest.mark.parametrize("options", FITS, ids=lambda options: "-".join(map(str, options.values())))
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
        assert [{**entry, "feature": place[entry["feature"]]} for entry in a["for"]] == b["for"]
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
