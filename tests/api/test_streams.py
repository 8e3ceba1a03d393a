"""Learning that goes on: from a model, in pieces, from an iterator of blocks, until a validation set says enough."""

import copy

import numpy as np
import pytest
from making import CASES, NAMES, Case, random_rows, shards_of

import bigclf
from bigclf import LinearClassifier, LinearRegressor, load
from bigclf.api.fit import fit
from bigclf.compiled import jit
from bigclf.errors import DataError, ModelFormatError, SchemaError
from bigclf.training.roles.learner import milestone

ONLINE = [case for case in CASES if not case.method.certificate]
every_online = pytest.mark.parametrize("case", ONLINE, ids=[NAMES[CASES.index(case)] for case in ONLINE])
PERCEPTRONS = [Case("perceptron", None), Case("averaged_perceptron", None)]


def options_of(case, **more):
    return dict(algo=case.algo, loss=case.loss, progress=False, **more)


@every_online
def test_fit_from_a_model_goes_on_exactly(case, tmp_path):
    x, y = case.data(150, 30)
    straight = fit(x, y, epochs=5, **options_of(case))
    fit(x, y, epochs=3, **options_of(case)).save(tmp_path / "model")
    further = fit(x, y, epochs=2, init=load(tmp_path / "model"), **options_of(case))
    assert further.digest() == straight.digest() and further.state_digest() == straight.state_digest()
    assert further.result_.epochs == 5 and [record["epoch"] for record in further.result_.history] == [4, 5]


def test_going_on_with_another_seed_or_type_of_weights_says_so(caplog):
    x, y = random_rows(150, 30)
    options = dict(algo="averaged_perceptron", progress=False)
    model = fit(x, y, epochs=3, **options)
    for name, value in (("seed", 7), ("dtype", "float32")):
        caplog.clear()
        further = fit(x, y, epochs=2, init=model, **{name: value}, **options)
        assert [f"{name}={value}" in record.message for record in caplog.records] == [True]
        assert further.result_.epochs == 5 and further.state["0.steps"][0] == 5 * 150
    assert further.state["0.weights"].dtype == "float32"
    caplog.clear()
    fit(x, y, epochs=2, init=model, **options)
    estimator = LinearClassifier("averaged_perceptron", random_state=np.random.RandomState(3))
    for _ in range(2):
        estimator.partial_fit(x, y, classes=[-1, 1])
    assert not caplog.records


@every_online
def test_partial_fit_is_a_fit_of_one_epoch_after_another(case):
    x, y = case.data(120, 30)
    estimator = (LinearRegressor if case.regression else LinearClassifier)(case.algo, loss=case.loss)
    model = None
    for part in (slice(0, 50), slice(50, 120)):
        if case.regression:
            estimator.partial_fit(x[part], y[part])
        else:
            estimator.partial_fit(x[part], y[part], classes=[-1, 1])
        model = fit(x[part], y[part], epochs=1, init=model, **options_of(case))
    assert estimator.model_.digest() == model.digest()
    assert np.any(fit(x[50:], y[50:], epochs=1, **options_of(case)).coef_ != model.coef_)


def test_partial_fit_of_rows_of_one_class_and_of_strange_labels():
    x, y = random_rows(60, 10)
    names = np.where(y > 0, "spam", "ham")
    estimator = LinearClassifier("pa1")
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        estimator.partial_fit(x, names)
    estimator.partial_fit(x[y > 0], names[y > 0], classes=["spam", "ham"])
    estimator.partial_fit(x, names)
    assert estimator.classes_.tolist() == ["ham", "spam"] and estimator.score(x, names) > 0.7
    with pytest.raises(DataError, match=r"row 1.*'eggs' is none of the classes"):
        estimator.partial_fit(x[:2], ["ham", "eggs"])
    assert not hasattr(LinearClassifier("dcd"), "partial_fit")
    for estimator in (LinearClassifier("dcd"), LinearRegressor()):
        with pytest.raises(AttributeError, match="algo='dcd' has no partial_fit.*perceptron.*, pa1, .*sgd"):
            estimator.partial_fit(x, y)


def test_a_model_of_another_method_gives_only_its_weights():
    x, y = random_rows(100, 20)
    first = fit(x, y, algo="pa1", epochs=2, progress=False)
    again = fit(x, y, algo="pa2", epochs=2, init=first, progress=False)
    assert again.result_.epochs == 2
    assert np.any(again.coef_ != fit(x, y, algo="pa2", epochs=2, progress=False).coef_)
    with pytest.raises(ValueError, match=r"classes \[-1, 1\], the data need .* for classes \[0, 1\]"):
        fit(x, (y > 0).astype(int), algo="pa1", init=first, progress=False)


def test_a_damaged_state_is_refused(tmp_path):
    x, y = random_rows(100, 20)
    path = tmp_path / "model"
    fit(x, y, algo="averaged_perceptron", epochs=2, progress=False).save(path)
    whole = bytearray(path.read_bytes())
    whole[-3] ^= 1
    path.write_bytes(whole)
    with pytest.raises(ModelFormatError, match="checksum"):
        load(path)


# An iterator of blocks


def blocks_of(x, y, sizes, weights=None):
    first = 0
    for size in sizes:
        part = slice(first, first + size)
        yield (x[part], y[part]) if weights is None else (x[part], y[part], weights[part])
        first += size


@pytest.mark.parametrize("case", [*PERCEPTRONS, Case("dcd", "hinge")], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_of_any_size_give_the_bits_of_shards(case, weighted, tmp_path):
    x, y = random_rows(200, 30)
    names = np.where(y > 0, "yes", "no")
    weights = np.random.default_rng(0).choice([0.5, 1.0, 2.0], 200) if weighted else None
    shards_of(tmp_path / "shards", x, names, weights, chunk_nnz=500_000)
    expected = fit(str(tmp_path / "shards"), epochs=2, **options_of(case))
    for sizes in ([200], [1, 0, 99, 100]):
        local = tmp_path / "local"
        found = fit(
            blocks_of(x, names, sizes, weights), epochs=2, workers=bigclf.Workers(local_dir=local), **options_of(case)
        )
        assert found.digest() == expected.digest() and found.classes_.tolist() == ["no", "yes"]
        assert not [*local.glob("bigclf-rows-*")]


def test_numbers_come_in_blocks_too():
    x, y = random_rows(200, 30, real=True)
    options = dict(algo="dcd", loss="epsilon_insensitive", progress=False)
    found = fit(blocks_of(x, y, [50, 150]), **options)
    np.testing.assert_allclose(found.coef_, fit(x, y, **options).coef_, atol=0.05)


def test_what_is_no_block_is_refused_by_its_number():
    x, y = random_rows(20, 5)
    for bad, error, text in (
        ((x,), TypeError, "block 1: a block is"),
        ((x, y[:3]), ValueError, "block 1: X has 20 rows and y has 3"),
        ((x, np.where(y > 0, "a", "b")), SchemaError, "block 1: labels of mixed types"),
    ):
        with pytest.raises(error, match=text):
            fit(iter([(x, y), bad]), algo="pa1", progress=False)
    with pytest.raises(TypeError, match="sample_weight has no effect with an iterator"):
        fit(iter([(x, y)]), sample_weight=np.ones(20), algo="pa1", progress=False)


# Validation and progress


def test_early_stopping_gives_the_best_epoch(tmp_path):
    x, y = random_rows(150, 60, noise=3.0)
    apart = random_rows(80, 60, seed=9, noise=3.0)
    options = dict(algo="perceptron", validate=apart, progress=False, seed=3)
    model = fit(x, y, early_stopping=3, **options)
    scores = [record["validation"]["accuracy"] for record in model.result_.history]
    best = int(np.argmax(scores))
    assert model.result_.stopped == "validation" and model.result_.converged
    assert len(scores) == best + 4 and len(set(scores)) > 1
    assert model.digest() == fit(x, y, epochs=best + 1, **options).digest()
    fit(x, y, early_stopping=3, epochs=2, run_dir=tmp_path, **options)
    assert fit(x, y, early_stopping=3, run_dir=tmp_path, resume=True, **options).digest() == model.digest()


@pytest.mark.parametrize("algo", ["perceptron", "averaged_perceptron", "arow"])
def test_a_run_goes_on_from_the_best_epoch_where_another_stopped_early(algo, tmp_path):
    x, y = random_rows(150, 60, noise=3.0)
    options = dict(algo=algo, validate=random_rows(80, 60, seed=9, noise=3.0), progress=False, seed=3)
    fit(x, y, early_stopping=2, epochs=2, run_dir=tmp_path / "run", **options)
    fit(x, y, early_stopping=2, run_dir=tmp_path / "run", resume=True, **options).save(tmp_path / "model")
    model = load(tmp_path / "model")
    best = model.facts["best_epoch"]
    assert model.facts["epochs"] == best + 2
    further, straight = fit(x, y, epochs=2, init=model, **options), fit(x, y, epochs=best + 2, **options)
    assert further.state_digest() == straight.state_digest() and further.result_.epochs == best + 2


def test_early_stopping_without_a_meaning_is_refused():
    x, y = random_rows(30, 5)
    with pytest.raises(TypeError, match="early_stopping has no effect with algo='dcd'"):
        fit(x, y, early_stopping=2, validate=(x, y))
    with pytest.raises(TypeError, match="early_stopping has no effect without validate="):
        fit(x, y, algo="pa1", early_stopping=2)
    with pytest.raises(ValueError, match="early_stopping must be a whole number"):
        fit(x, y, algo="pa1", early_stopping=0, validate=(x, y))


def test_the_progressive_error_is_noted_on_the_way(tmp_path):
    x, y = random_rows(500, 30)
    model = fit(x, y, algo="perceptron", epochs=2, progress=False)
    curve = model.result_.progressive["curve"]
    assert [rows for rows, *_ in curve] == [64, 77, 93, 112, 135, 162, 195, 234, 281, 338, 406, 488]
    mistakes = [mistakes for _, mistakes, _ in curve]
    assert mistakes == sorted(mistakes) and mistakes[-1] <= model.result_.progressive["mistakes"]
    for rows, mistakes, _ in curve[:3]:  # a run over so many rows alone, in the same order
        order = np.empty(500, np.int64)
        jit.shuffle_runs(np.arange(500), 512, jit.random_state(0, 2, 1, 0, 0, 0, 1), order)
        part = x[order[:rows]]
        assert mistakes == naive_mistakes(part, y[order[:rows]])
    shards_of(tmp_path / "shards", x, y)
    streamed = fit(str(tmp_path / "shards"), algo="perceptron", epochs=1, memory="20MB", progress=False)
    assert [rows for rows, *_ in streamed.result_.progressive["curve"]] == [rows for rows, *_ in curve]


def naive_mistakes(x, y):
    w, b, mistakes = np.zeros(x.shape[1]), 0.0, 0
    for i in range(x.shape[0]):
        row = x[i].toarray()[0].astype(float)
        if y[i] * (row @ w + b) <= 0:
            w, b, mistakes = w + y[i] * row, b + y[i], mistakes + 1
    return mistakes


def test_milestones_ascend():
    reached = [64]
    while reached[-1] < 10**6:
        reached.append(milestone(reached[-1]))
    assert reached == sorted(set(reached)) and len(reached) < 70 and milestone(0) == 64


def test_a_mini_batch_is_not_cut_where_progress_is_noted():
    x, y = random_rows(400, 10)
    options = dict(algo="pegasos", batch=400, epochs=3, progress=False)
    assert fit(x, y, **options).state["0.clock"][0] == 3


def test_no_bias_may_be_written_none():
    x, y = random_rows(60, 5)
    for algo in ("dcd", "pa1"):
        found = [fit(x, y, algo=algo, bias=bias, epochs=2, progress=False) for bias in ("none", None)]
        assert found[0].intercept_[0] == 0 and found[0].digest() == found[1].digest()


REGROUPED = [("averaged_pa2", None, {}, "ways"), ("averaged_pa2", None, {"mixing": "rows"}, None),
             ("sgd", "l2", {"mixing": "features"}, "touched"), ("sgd", "l1", {"mixing": "features"}, "touched"),
             ("averaged_perceptron", None, {}, None)]  # fmt: skip


@pytest.mark.parametrize("algo, penalty, mixing, counted", REGROUPED)
def test_a_run_goes_on_in_other_groups(algo, penalty, mixing, counted):
    x, y = random_rows(90, 12, noise=1.0)
    options = dict(algo=algo, penalty=penalty, epochs=1, progress=False)
    apart, alone = fit(x, y, groups=2, **mixing, **options), fit(x, y, **options)
    for begun, more in ((apart, {"groups": 1}), (apart, {"groups": 3, "mixing": "uniform"}),
                        (alone, {"groups": 2, **mixing})):  # fmt: skip
        bare = copy.copy(begun)  # as of a version that did not count
        bare.state = {name: array for name, array in begun.state.items() if name != f"0.{counted}"}
        assert begun.state["0.weights"].tobytes() != (alone if begun is apart else apart).state["0.weights"].tobytes()
        found, wanted = (fit(x, y, init=model, **options, **more) for model in (begun, bare))
        assert found.digest() == wanted.digest() and found.state_digest() == wanted.state_digest()
        size = 0 if begun is apart else 26 if counted == "ways" else 13
        assert counted is None or found.state[f"0.{counted}"].size == size
        for name in ("steps", "clock"):  # of sgd mixed by features the clock counts all rows
            if f"0.{name}" in begun.state:
                assert found.state[f"0.{name}"][0] > begun.state[f"0.{name}"][0] > 0
        assert found.result_.epochs == 2


def test_a_run_in_one_group_goes_on_exactly_from_a_state_that_counts_for_mixing():
    x, y = random_rows(90, 12, noise=1.0)
    for options in (dict(algo="averaged_pa2"), dict(algo="averaged_perceptron"), dict(algo="sgd")):
        straight, begun = (fit(x, y, epochs=epochs, progress=False, **options) for epochs in (2, 1))
        for name in {"0.ways", "0.touched"} & set(begun.state):
            begun.state[name] = np.arange(13.0)
        begun.method |= {"groups": 4, "mixing": "rows"}
        further = fit(x, y, epochs=1, init=begun, progress=False, **options)
        assert further.digest() == straight.digest() and further.state_digest() == straight.state_digest()


def test_partial_fit_goes_on_in_one_group_after_several():
    x, y = random_rows(90, 12, noise=1.0)
    estimator = LinearClassifier("averaged_pa2", groups=2, epochs=1).fit(x, y)
    first = estimator.model_
    estimator.set_params(groups=1).partial_fit(x, y)
    assert estimator.model_.digest() == fit(x, y, algo="averaged_pa2", epochs=1, init=first, progress=False).digest()
    assert estimator.model_.state["0.steps"][0] == 180
