"""Exact to the certificate: weights of rows, gaps that are never too small, and data that no one would wish for.

Long runs of our own are the reference where no other solver is exact enough: their primal and dual objectives enclose
the optimum, whatever one thinks of the solver, since numpy recomputes the primal here.
"""

import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from making import FLOAT32, fit, long_but_float32, random_rows, shards_of
from test_dual_coordinate_descent import alphas, dual, extended, primal

import bigclf
from bigclf.errors import DataError, MemoryBudgetError
from bigclf.maths.losses import REGRESSION, TUBES
from bigclf.methods import METHODS

LOSSES = METHODS["dcd"].losses
every_loss = pytest.mark.parametrize("loss", LOSSES)
places = pytest.mark.parametrize("place", ["resident", "streamed"])
SMALL = "17MB"  # 3,000 rows do not stay in it
LIMITING = 14_900_000  # ... nor does a quarter of them in a working set
D = 40


def rows(loss, n=3000, **options):
    return random_rows(n, D, 0.3, **{"noise": 1.0, "real": loss in REGRESSION, **options})


def train(place, path, x, y, weights=None, **options):
    """The model, learned in memory or from shards under a budget that does not hold the rows."""
    options = {"progress": False, **options}
    if place == "resident":
        return fit(x, y, sample_weight=weights, **options)
    if path.exists():
        made = bigclf.Dataset(str(path / "*.parquet"))
    else:
        made = shards_of(path, x, y, weights, real=options["loss"] in REGRESSION, chunk_nnz=2000, shard_nnz=20_000)
    model = fit(made, **{"memory": SMALL, **options})
    assert not model.result_.plan["resident"]
    return model


# Weights of rows


@every_loss
@places
def test_a_row_of_weight_k_counts_as_the_row_k_times(loss, place, tmp_path):
    x, y = rows(loss, 1500 if place == "resident" else 3000)
    times = np.random.default_rng(0).integers(0, 4, len(y))
    copies = np.repeat(np.arange(len(y)), times)
    options = dict(loss=loss, C=0.003, tol=1e-10, epochs=3000)
    weighted = train(place, tmp_path / "weighted", x, y, times.astype(float), **options)
    copied = train(place, tmp_path / "copied", x[copies], y[copies], **options)
    told = [model.result_.certificate for model in (weighted, copied)]
    assert weighted.result_.converged and copied.result_.converged
    assert told[0]["primal"] == pytest.approx(told[1]["primal"], rel=1e-9, abs=0)
    assert told[0]["dual"] <= told[1]["primal"] * (1 + 1e-14) and told[1]["dual"] <= told[0]["primal"] * (1 + 1e-14)
    w = np.append(weighted.coef_[0], weighted.intercept_[0])
    found = primal(extended(x[copies], True), y[copies], w, loss, 0.003)  # of the copies, by the weighted rows' rule
    assert found == pytest.approx(told[1]["primal"], rel=1e-9, abs=0)
    plain = train("resident", None, x, y, **options).result_.certificate["primal"]
    assert abs(plain - told[0]["primal"]) > 1e-3 * plain


@pytest.fixture(scope="module")
def with_and_without(tmp_path_factory):
    """Whether labels are numbers -> datasets of the same five chunks with and without 0 to 40 more rows of weight 0 in
    each of them: in each file one chunk."""
    known = {}

    def make(real):
        if real not in known:
            known[real] = made = tmp_path_factory.mktemp("weights")
            rng, size = np.random.default_rng(0), 600
            x, y = random_rows(5 * size, D, 0.3, noise=1.0, real=real)
            spare_x, spare_y = random_rows(300, D, 0.3, seed=7, noise=1.0, real=real)
            for number in range(5):
                part, some = slice(size * number, size * number + size), rng.integers(0, 300, 10 * number)
                mixed = rng.permutation(size + some.size)
                weights = np.append(rng.choice([0.5, 1.0], size), np.zeros(some.size))[mixed]
                wide, labels = sp.vstack([x[part], spare_x[some]]).tocsr()[mixed], np.append(y[part], spare_y[some])
                labels, there = labels[mixed], weights > 0
                options = dict(real=real, chunk_nnz=10**6)
                shards_of(made / f"with/{number}", wide, labels, weights, **options)
                shards_of(made / f"without/{number}", wide[there], labels[there], weights[there], **options)
        return [bigclf.Dataset(str(known[real] / name / "*" / "*.parquet")) for name in ("with", "without")]

    return make


@pytest.mark.parametrize(("loss", "working_set", "bias"), [  # each with a set or without, with a bias or without
    pytest.param(loss, working_set, bias, marks=pytest.mark.long if (i + bool(working_set) + bool(bias)) % 2 else ())
    for i, loss in enumerate(LOSSES) for working_set in (0, 0.2) for bias in (None, "feature")
])  # fmt: skip
def test_streamed_rows_of_weight_zero_are_as_if_they_were_not_there_to_the_bit(
    loss, bias, working_set, with_and_without, tmp_path, quiet
):
    dtype = "float32" if bias and loss == "hinge" else "float64"
    data = with_and_without(loss in REGRESSION)
    given = dict(loss=loss, bias=bias, dtype=dtype, memory=SMALL, working_set=working_set, tol=0, progress=False)
    assert data[0].n_chunks == data[1].n_chunks == 5 and data[0].n_rows == data[1].n_rows + 100
    for number, one in enumerate(data):  # the rows of weight 0 are there in the one run until it is stopped, too
        fit(one, epochs=3, run_dir=tmp_path / str(number), **given)
    models = [fit(one, epochs=6, run_dir=tmp_path / str(n), resume=True, **given) for n, one in enumerate(data)]
    for model in models:
        assert not model.result_.plan["resident"] and bool(model.result_.plan["set_rows"]) == (working_set > 0)
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    np.testing.assert_array_equal(models[0].intercept_, models[1].intercept_)
    assert models[0].result_.certificate == models[1].result_.certificate


def test_rows_of_weight_zero_change_neither_a_working_set_that_memory_limits_nor_balanced_classes(
    with_and_without, quiet
):
    data = with_and_without(False)
    given = dict(memory=LIMITING, class_weight="balanced", bias=None, tol=0, epochs=3, progress=False)
    models = [fit(one, **given) for one in data]
    plans = [model.result_.plan for model in models]
    assert data[0].max_group_rows > data[1].max_group_rows
    assert 0 < plans[0]["set_rows"] == plans[1]["set_rows"] < 0.25 * data[1].n_rows
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_rows_of_weight_zero_in_memory_do_not_change_the_runs_that_are_shuffled(monkeypatch, quiet):
    monkeypatch.setattr("bigclf.training.plan.SMALL_BYTES", 1000)  # below it every row is shuffled by itself
    monkeypatch.setattr("bigclf.training.plan.UNITS", 100)  # of 5,400 rows, 54
    x, y = random_rows(5000, D, noise=1.0)
    spare_x, spare_y = random_rows(400, D, 0.9, seed=7, noise=1.0)
    mixed = np.random.default_rng(0).permutation(5400)
    rows, labels, weights = sp.vstack([x, spare_x]).tocsr()[mixed], np.append(y, spare_y)[mixed], 1.0 * (mixed < 5000)
    there, given = weights > 0, dict(algo="pa1", epochs=2, class_weight="balanced", progress=False)
    found = fit(rows, labels, sample_weight=weights, **given)
    wanted = fit(rows[there], labels[there], **given)
    assert found.result_.plan["run"] == wanted.result_.plan["run"] > 1
    np.testing.assert_array_equal(found.coef_, wanted.coef_)


# The gap


@pytest.fixture(scope="module")
def references():
    """loss -> (x, y, weights, C, primal and dual of a long run), the primal recomputed by numpy."""
    known = {}

    def find(loss):
        if loss not in known:
            x, y = rows(loss, seed=5)
            weights = np.random.default_rng(1).choice([0.5, 1.0, 3.0], len(y))
            model = fit(x, y, sample_weight=weights, loss=loss, C=0.01, tol=1e-13, epochs=20_000, progress=False)
            told, w = model.result_.certificate, np.append(model.coef_[0], model.intercept_[0])
            best = primal(extended(x, True), y, w, loss, 0.01 * weights)
            assert best == pytest.approx(told["primal"], rel=1e-13) and told["gap"] <= 1e-13
            known[loss] = x, y, weights, 0.01, best, told["dual"]
        return known[loss]

    return find


RUNS = [
    ("resident", "float64", {}),
    ("resident", "float32", {"inner_rounds": 0}),
    ("resident", "float32", {"groups": 3}),
    ("streamed", "float32", {}),
    ("streamed", "float64", {"inner_rounds": 0}),
    ("streamed", "float64", {"workers": bigclf.Workers(threads=2), "segments": 3}),
    ("streamed", "float64", {"groups": 3}),
]


@pytest.mark.parametrize(
    ("loss", "place", "dtype", "options"),
    [pytest.param(loss, *run, marks=pytest.mark.long) if (i + j) % 2 else long_but_float32(loss, run[1], *run)
     for i, loss in enumerate(LOSSES) for j, run in enumerate(RUNS)],
    ids=str,
)  # fmt: skip
def test_the_gap_is_never_negative_and_never_below_the_true_one(
    references, loss, dtype, place, options, tmp_path, quiet, as_begun_before
):
    x, y, weights, C, best, bound = references(loss)
    given = dict(loss=loss, C=C, dtype=dtype, tol=1e-9, run_dir=tmp_path / "run", **options)
    train(place, tmp_path / "shards", x, y, weights, epochs=2, **given)
    model = train(place, tmp_path / "shards", x, y, weights, epochs=8, resume=True, **given)
    told, records = model.result_.certificate, [r for r in model.result_.history if "gap" in r]
    assert records and model.result_.converged == (told["gap"] <= 1e-9)
    for record in [*records, {**told, "objective": told["primal"]}]:
        least = (record["objective"] - best) / record["objective"]  # the true gap is at least this
        assert record["gap"] >= 0 and record["gap"] >= least - 1e-12
        assert record["dual"] <= best * (1 + 1e-12) and record["objective"] >= bound * (1 - 1e-12)
    w, matrix = np.append(model.coef_[0], model.intercept_[0]), extended(x, True)
    assert told["primal"] == pytest.approx(primal(matrix, y, w, loss, C * weights), rel=1e-11)
    if "groups" not in options and place == "resident":  # what is told has been reached by dual variables that exist
        assert told["dual"] >= dual(matrix, y, alphas(tmp_path / "run"), loss, C * weights) * (1 - 1e-11)


# Bad input


def check(model, tol=1e-6):
    """An answer with its certificate, or "not converged" with the gap; never a NaN."""
    told = model.result_.certificate
    figures = [told["primal"], told["dual"], told["gap"]]
    assert np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all() and np.isfinite(figures).all()
    assert told["gap"] >= 0 and told["primal"] >= 0
    assert model.result_.converged == (told["gap"] <= tol)
    assert model.result_.stopped == ("tolerance" if model.result_.converged else "epochs")
    return told


def bad(name, loss):
    """x, y, weights, options and whether the tolerance is to be reached."""
    x, y = rows(loss)
    weights, options, easy = None, {}, True
    scales = (10.0 ** np.linspace(-6, 6, D)).astype(np.float32)
    if name == "empty rows":
        x = sp.csr_matrix(x.shape, dtype=np.float32)
    elif name == "zeros":
        x.data[:] = 0
    elif name == "duplicates":
        x, easy = x[np.arange(len(y)) % 2].tocsr(), False
    elif name.startswith("C="):
        options, easy = {"C": float(name[2:])}, name == "C=1e-12"
    elif name == "scales":
        x, easy = x.multiply(scales).tocsr().astype(np.float32), False
    elif name == "scales, C=1e12":
        x, options, easy = x.multiply(scales).tocsr().astype(np.float32), {"C": 1e12}, False
    elif name == "largest":
        x, easy = x.multiply(np.float32(1e37)).tocsr().astype(np.float32), False
    elif name == "least":
        x = x.multiply(np.float32(1e-38)).tocsr().astype(np.float32)
    else:
        weights, easy = 10.0 ** np.linspace(-12, 12, len(y)), False
        weights = weights.astype(np.float32).astype(float)  # as shards keep them
    return x, y, weights, options, easy


KINDS = ["empty rows", "zeros", "duplicates", "C=1e-12", "C=1e12", "scales", "scales, C=1e12", "largest", "least",
         "weights"]  # fmt: skip


@pytest.mark.parametrize(("kind", "loss"), [  # of each kind two, one in memory and one streamed; the rest is long
    pytest.param(kind, loss, marks=() if 0 <= j - min(i % len(LOSSES), len(LOSSES) - 2) < 2 else pytest.mark.long)
    for i, kind in enumerate(KINDS) for j, loss in enumerate(LOSSES)
])  # fmt: skip
def test_bad_input_has_an_answer_with_its_certificate_or_is_not_converged(loss, kind, tmp_path, quiet):
    x, y, weights, options, easy = bad(kind, loss)
    turn = LOSSES.index(loss) + KINDS.index(kind)  # every kind is met in memory and streamed, with both biases
    place = "streamed" if turn % 2 else "resident"
    bias = None if turn // 2 % 2 else "feature"
    dtype = "float64" if bias or loss not in FLOAT32 else "float32"
    given = dict(loss=loss, bias=bias, dtype=dtype, epochs=12, tol=1e-6, **options)
    model = train(place, tmp_path / f"{bias}", x, y, weights, **given)
    told = check(model)
    assert model.result_.converged or not (easy and bias is None)
    c = given.get("C", 1.0) * (np.ones(len(y)) if weights is None else weights)
    w = np.append(model.coef_[0], model.intercept_[0])
    if kind != "largest":  # there numpy's own sums overflow or cancel
        assert told["primal"] == pytest.approx(primal(extended(x, bias), y, w, loss, c), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(
    ("loss", "dtype"), [long_but_float32(loss, dtype, dtype) for loss in TUBES for dtype in ("float64", "float32")]
)
def test_labels_whose_losses_overflow_are_refused(loss, dtype, quiet):
    x, y = rows(loss, 200)
    options = dict(loss=loss, dtype=dtype, epochs=5, tol=1e-6, progress=False)
    check(fit(x, y * 1e12, **options))
    with pytest.raises(DataError, match="overflow"):
        fit(x, y * (1e200 if loss == "squared_epsilon_insensitive" else 1e307), **options)


NUMBERS = st.sampled_from([0.0, 1.0, -1.0, 3.0, 1e-6, -1e6, 1e-38, 1e-45, 1e18, -3e38])


NASTY = dict(
    loss=st.sampled_from(list(LOSSES)), C=st.sampled_from([1e-12, 1e-3, 1.0, 1e12]),
    bias=st.sampled_from([None, "feature"]), dtype=st.sampled_from(["float64", "float32"]),
    values=st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=2, max_size=6),
    labels=st.lists(st.sampled_from([-1.0, 1.0, 0.0, 1e-12, 1e12]), min_size=6, max_size=6),
    weights=st.lists(st.sampled_from([1.0, 1e-12, 1e12, 0.0]), min_size=6, max_size=6),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(**NASTY)
def test_no_few_rows_of_nasty_numbers_give_a_nan(loss, dtype, **told):
    check_nasty(loss, dtype=dtype if loss in FLOAT32 else "float64", **told)


@pytest.mark.long
@settings(max_examples=80, deadline=None)
@given(**NASTY)
def test_nor_do_any_of_more(**told):
    check_nasty(**told)


def check_nasty(loss, C, bias, dtype, values, labels, weights):
    x = np.array(values, np.float32)
    y, weights = np.array(labels[: len(x)]), np.array(weights[: len(x)])
    if loss not in REGRESSION:
        y = np.where(y > 0, 1, -1)
        y[0], y[1] = 1, -1
        weights[:2] = 1
    weights[0] = max(weights[0], 1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bigclf.errors.ConvergenceWarning)
        check(fit(x, y, sample_weight=weights, loss=loss, C=C, bias=bias, dtype=dtype, epochs=7, tol=1e-6,
                  progress=False))  # fmt: skip


@pytest.fixture(scope="module")
def long_row():
    """50 rows over 5 million features, one of which has them all."""
    x, y = random_rows(50, 5_000_000, 2e-5, noise=1.0)
    full = sp.csr_matrix(np.full((1, 5_000_000), 1e-3, np.float32))
    return sp.vstack([x[:20], full, x[20:]]).tocsr(), np.insert(y, 20, 1)


@pytest.mark.parametrize("loss", ["hinge", pytest.param("squared_epsilon_insensitive", marks=pytest.mark.long)])
def test_a_row_of_five_million_entries_is_learned_or_refused_with_the_memory_it_takes(loss, long_row, tmp_path, quiet):
    x, y = long_row
    options = dict(loss=loss, epochs=30, tol=1e-6, progress=False)
    best = check(fit(x, y, **options))
    made = shards_of(tmp_path / "shards", x, y.astype(float), real=loss in REGRESSION, chunk_nnz=500)
    assert made.n_chunks > 5
    with pytest.raises(MemoryBudgetError, match="would do") as refused:
        fit(made, memory="100MB", **options)
    enough = re.search(r"memory=([0-9.]+ ?[kMG]B) would do", str(refused.value)).group(1)
    told = check(fit(made, memory=enough, **options))
    assert told["dual"] <= best["primal"] * (1 + 1e-9) and best["dual"] <= told["primal"] * (1 + 1e-9)
