"""A state of touched places alone: the bits of the dense one, however its lists grow, and what comes of it."""

import itertools
import logging
from contextlib import nullcontext

import numpy as np
import pytest
import scipy.sparse as sp
from making import fit, shards_of

import bigclf
from bigclf.api import fit as fitting
from bigclf.errors import Interrupted, MemoryBudgetError, ModelFormatError
from bigclf.methods import METHODS, sparse_state
from bigclf.training import plan

N, D, K = 300, 60, 12
HUGE = 2**22  # features: of 1,000 classes 34 GB


@pytest.fixture(scope="module")
def rows():
    """CSR float64 [N, D] of float32 values, and the class of each row that the largest of K outputs gives."""
    x = sp.random(N, D, 0.15, format="csr", random_state=0)
    x.data = x.data.astype(np.float32).astype(float)
    return x, np.asarray((x @ np.random.default_rng(0).standard_normal((D, K))).argmax(1))


@pytest.fixture
def forced(monkeypatch):
    """Weights of every feature and class never fit."""
    real = plan.make_plan

    def make_plan(source, problems, **shape):
        if not problems[0].setting.places:
            raise MemoryBudgetError("too small")
        return real(source, problems, **shape)

    return lambda: monkeypatch.setattr(plan, "make_plan", make_plan)


def train(data, y=None, algo="pa1_mc", **options):
    return fit(data, y, algo=algo, **{"epochs": 3, "memory": "30MB", "progress": False, **options})


def told(model):
    return [(r["mistakes"], r["updates"], r["loss"]) for r in model.result_.history]


def assert_same(sparse, dense):
    assert sparse.sparse and sparse.result_.plan["places"] and not dense.sparse
    np.testing.assert_array_equal(sparse.coef_.toarray(), dense.coef_)
    np.testing.assert_array_equal(sparse.intercept_, dense.intercept_)
    assert told(sparse) == told(dense)


@pytest.mark.parametrize(
    "options",
    [
        {"algo": "perceptron_mc"},
        {"algo": "perceptron_mc", "groups": 3, "bias": None},
        {"algo": "pa1_mc", "C": 0.1, "groups": 20, "mixing": "mistakes"},  # a tree of two levels
        {"algo": "pa2_mc", "class_weight": "balanced"},
        {"algo": "pa_mc", "bias": None},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_it_has_the_bits_of_the_dense_state(rows, forced, options):
    wanted = train(*rows, **options)
    forced()
    found = train(*rows, **options)
    assert_same(found, wanted)
    np.testing.assert_array_equal(found.predict(rows[0]), wanted.predict(rows[0]))
    np.testing.assert_allclose(found.decision_function(rows[0]), wanted.decision_function(rows[0]), atol=1e-12)


@pytest.mark.parametrize("groups", [1, 3])
def test_a_run_that_stopped_in_an_epoch_goes_on(rows, forced, groups, tmp_path, monkeypatch):
    data = shards_of(tmp_path / "shards", *rows)
    options = dict(groups=groups, segments=3, epochs=1, checkpoint_every=0)  # of more, every row stays in memory
    wanted = train(data, **options)
    forced()
    run, calls = tmp_path / "run", itertools.count()
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "_signals", lambda: nullcontext(lambda: "SIGTERM" if next(calls) > 4 else None))
        with pytest.raises(Interrupted, match="epoch 1, after part [12] of"):
            train(data, run_dir=run, **options)
    found = train(data, run_dir=run, resume=True, **options)
    assert_same(found, wanted)


def test_it_begins_with_a_model_of_either_kind(rows, forced):
    x, y = rows
    dense = train(x, y, epochs=2)
    wanted = train(x, y, init=dense, epochs=1)
    forced()
    assert_same(train(x, y, init=dense, epochs=1), wanted)
    sparse = train(x, y, epochs=2)
    assert_same(train(x, y, init=sparse, epochs=1), wanted)


def test_partial_fit_and_a_dense_run_go_on_from_it(rows, forced, monkeypatch):
    x, y = rows
    wanted, found = (bigclf.LinearClassifier("pa1", multiclass="native", memory="30MB") for _ in range(2))
    for part in (slice(0, 100), slice(100, N)):
        wanted.partial_fit(x[part], y[part], classes=np.arange(K))
    forced()
    for part in (slice(0, 100), slice(100, N)):
        found.partial_fit(x[part], y[part], classes=np.arange(K))
    assert_same(found.model_, wanted.model_)
    np.testing.assert_array_equal(found.predict(x), wanted.predict(x))
    monkeypatch.undo()
    for learner in (found, wanted):
        learner.partial_fit(x[:100], y[:100])
    np.testing.assert_array_equal(found.coef_, wanted.coef_)


def test_lists_that_move_keep_what_they_hold():
    """Against a dict: weights of 50 classes at 4 features, their stretches taken, left and taken again."""
    state = sparse_state.zeros(4, "float64", {"n_classes": 50})
    wanted = {}
    rng = np.random.default_rng(0)
    for c in rng.permutation(50):
        for j in rng.permutation(4):
            sparse_state.grow(state, 200, 10**6)
            slot = sparse_state.appended(state, np.int64(j), np.int64(c))
            state.weights[slot] = wanted[c, j] = rng.standard_normal()
    matrix = sparse_state.coefficients(state)
    assert {(i, j): matrix[i, j] for i, j in wanted} == wanted and matrix.nnz == len(wanted)
    assert state.used[0] < 4 * len(wanted)
    again = sparse_state.zeros(4, "float64", {"n_classes": 50})
    sparse_state.place(
        again, (matrix, np.zeros(50)), sparse_state.bind(0, {"n_classes": 50, "bias": 1.0, "places": 10**6})
    )
    np.testing.assert_array_equal(sparse_state.coefficients(again).toarray(), matrix.toarray())


# Very many classes


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """Shards of 2,000 rows of 1,000 classes of HUGE features, two rows a class, told apart by three features."""
    rng = np.random.default_rng(0)
    y = np.arange(2000) % 1000
    own = rng.permutation(HUGE)[: 3 * 1000].reshape(1000, 3)
    entries = np.sort(np.hstack([own[y], rng.integers(0, HUGE, (2000, 2))]), axis=1)
    x = sp.csr_matrix((np.ones(10_000), entries.ravel(), np.arange(0, 10_001, 5)), (2000, HUGE))
    names = np.array([f"class-{c:04d}" for c in range(1000)])
    return shards_of(tmp_path_factory.mktemp("wide") / "shards", x, names[y]), x, names[y]


@pytest.fixture(scope="module")
def learned(wide):
    return train(wide[0], memory="300MB")


def test_it_is_planned_where_the_weights_do_not_fit(wide, learned, caplog):
    with caplog.at_level(logging.INFO, "bigclf"):
        train(wide[0], epochs=1, memory="300MB")
    assert "would take 33.6 GB: the state holds those that are touched" in caplog.text
    facts = learned.result_.plan
    slots = facts["places"]
    assert facts["memory"]["state"] == slots * 12 + sparse_state.fixed_bytes(HUGE, 1000, "float64")
    assert facts["memory"]["planned"] <= 300_000_000
    memory = learned.result_.memory
    assert memory["peak"] <= 1.1 * memory["planned"]


def test_it_predicts_and_is_measured_by_its_columns(wide, learned, tmp_path):
    data, x, y = wide
    assert learned.coef_.shape == (1000, HUGE) and learned.coef_.nnz < 40_000
    np.testing.assert_array_equal(learned.predict(data), y)
    found = bigclf.evaluate(learned, data)
    assert found.accuracy == 1.0 and found.macro_f1 == 1.0
    assert bigclf.evaluate(learned, x, y).accuracy == 1.0
    told = bigclf.predict(learned, data, tmp_path / "said")
    assert told["rows"] == 2000 and told["columns"] == ["row", "label", "prediction"]
    with pytest.raises(AttributeError, match="logistic"):
        learned.predict_proba(x)


def test_its_file_brings_it_back_and_is_read_with_suspicion(learned, tmp_path):
    path = tmp_path / "model.bigclf"
    learned.save(path)
    again = bigclf.load(path)
    assert again.digest() == learned.digest() and (again.coef_ != learned.coef_).nnz == 0
    wrong = learned.coef_.copy()
    wrong.indices[0] = 5000
    bigclf.Model(wrong, learned.intercept_, learned.classes_).save(path)
    with pytest.raises(ModelFormatError, match="a class that is not there"):
        bigclf.load(path)


def test_places_that_run_out_end_the_run_with_its_checkpoint(wide, tmp_path, monkeypatch):
    data, run = wide[0], tmp_path / "run"
    options = dict(epochs=1, segments=4, checkpoint_every=0, memory="300MB")
    real = plan._places
    monkeypatch.setattr(plan, "_places", lambda *args: 12_000)
    with pytest.raises(MemoryBudgetError, match="used up their 12,000 places .* more memory"):
        train(data, run_dir=run, **options)
    assert list(run.glob("state-*"))
    monkeypatch.setattr(plan, "_places", real)
    found, wanted = train(data, run_dir=run, resume=True, **options), train(data, **options)
    assert found.digest() == wanted.digest()


@pytest.mark.parametrize("groups", [1, 3])
def test_workers_of_a_cluster_have_the_bits_of_one_process(rows, forced, client, groups):
    forced()
    given = dict(groups=groups, epochs=4)
    here, there = train(*rows, **given), train(*rows, workers=client, **given)
    assert there.sparse and there.digest() == here.digest() and told(there) == told(here)
    assert there.result_.plan["places"] == here.result_.plan["places"]


@pytest.mark.parametrize(
    "options",
    [
        {"folds": 3},
        {"folds": 2, "halving": "validation"},
        {"folds": 3, "grid": [{"algo": ["pa"]}, {"algo": ["pa1"], "C": [0.01, 0.1]}]},
        {"folds": 0, "bias": None},
    ],
    ids=["folds", "halving", "methods", "apart"],
)
def test_a_sweep_finds_what_it_finds_with_the_dense_states(rows, forced, options):
    x, y = rows
    if options["folds"] == 0:
        unknown = np.where(np.arange(60) < 5, 99, y[:60])  # of no class that was learned: always wrong
        x, y, options = x[60:], y[60:], options | {"validate": (x[:60], unknown)}
    given = {"algo": "pa1_mc", "grid": {"C": [0.001, 0.1, 1.0]}, "epochs": 3, "memory": "30MB", **options}
    given |= {"progress": False, "multiclass": "native"}
    wanted = bigclf.sweep(x, y, **given)
    forced()
    found = bigclf.sweep(x, y, **given)
    assert found.plan["places"] and not wanted.plan["places"] and found.measure == "error"
    for name in ("params", "mean", "folds", "dropped"):
        assert [row.get(name) for row in found.table] == [row.get(name) for row in wanted.table]
    assert found.best_params_ == wanted.best_params_
    assert_same(found.best_model, wanted.best_model)
    for mine, theirs in zip(found.models, wanted.models, strict=True):
        assert_same(mine, theirs)


def test_workers_of_a_cluster_sweep_as_one_process_does(rows, forced, client):
    forced()
    given = dict(algo="pa1", multiclass="native", grid={"C": [0.01, 1.0]}, folds=2, groups=2, epochs=2, memory="30MB")
    here, there = (bigclf.sweep(*rows, workers=w, progress=False, **given) for w in (None, client))
    assert [row["folds"] for row in here.table] == [row["folds"] for row in there.table]
    assert here.best_model.sparse and there.best_model.digest() == here.best_model.digest()


def test_a_sweep_has_room_for_all_its_states_or_says_what_they_take(wide):
    """A state without a place takes 34 MB: two fit in 200 MB, ten do not."""
    data = wide[0]
    given = dict(algo="pa1", multiclass="native", memory="200MB", epochs=1, progress=False)
    found = bigclf.sweep(data, grid={"C": [1.0]}, folds=2, **given)
    assert found.plan["memory"]["planned"] <= 200_000_000 and found.memory["peak"] <= 1.1 * found.memory["planned"]
    assert found.plan["memory"]["state"] >= 2 * found.plan["places"] * 12
    assert found.best_model.sparse and 0 < found.table[0]["mean"] < 1  # some classes have both their rows in a fold
    with pytest.raises(MemoryBudgetError, match=r"too small: state 33\d MB.* would do"):
        bigclf.sweep(data, grid={"C": [0.1, 1.0]}, folds=5, **given)
    with pytest.raises(MemoryBudgetError, match=r"10 times as many problems, whose notes alone take 160 MB"):
        bigclf.sweep(data, grid={"C": [0.1, 1.0]}, folds=5, algo="pa1", memory="70MB", progress=False)


def test_it_is_calibrated_as_the_dense_model_is(rows, forced):
    wanted = train(*rows)
    forced()
    found = train(*rows)
    for model in (found, wanted):
        model.calibration = bigclf.calibrate(model, *rows).calibration
    assert found.sparse
    np.testing.assert_allclose(found.predict_proba(rows[0]), wanted.predict_proba(rows[0]), rtol=1e-9)


def test_what_cannot_have_it_is_refused_with_those_that_can(wide):
    data = wide[0]
    having = "perceptron_mc, pa_mc, pa1_mc, pa2_mc"
    assert having == ", ".join(name for name, method in METHODS.items() if method.form.touched)
    with pytest.raises(MemoryBudgetError, match=f"too small: state .* GB.*held by {having}"):
        train(data, algo="averaged_pa1_mc", memory="300MB")
    with pytest.raises(MemoryBudgetError, match=f"too small: state .* GB.*held by {having}"):
        train(data, algo="pa1", memory="300MB")  # one against the rest: 1,000 problems
    with pytest.raises(MemoryBudgetError, match="held with constraints='one'"):
        bigclf.sweep(data, algo="pa1_mc", grid={"constraints": ["one", "all"]}, memory="300MB", progress=False)
    with pytest.raises(MemoryBudgetError, match="held with constraints='one'"):
        train(data, memory="300MB", constraints="all")
    with pytest.raises(MemoryBudgetError, match="too small"):
        train(data, memory="40MB")
