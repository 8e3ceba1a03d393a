"""Several groups of rows at once: the dual never falls, certificates are right, mixtures are sums to the bit, and the
theorems of McDonald, Hall and Mann (NAACL 2010) about mixed perceptrons hold."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from making import block_of, environment, fit, long_but_float32, random_rows, separable_rows, shards_of
from test_dual_coordinate_descent import EPSILON, dual, extended, primal, signs

from bigclf.compiled.jit import random_state, shuffle_runs
from bigclf.errors import Interrupted
from bigclf.maths.deltas import difference
from bigclf.maths.losses import LOSSES, REGRESSION
from bigclf.maths.mixing import (
    ADDED,
    AVERAGED,
    FAN,
    MEAN,
    PULL,
    SUM,
    Mixture,
    agree,
    half_distance,
    line_search,
    next_penalty,
)
from bigclf.methods import METHODS
from bigclf.methods.dual import dual_coordinate_descent as dcd
from bigclf.methods.online import passive_aggressive, perceptron
from bigclf.model.model import Model
from bigclf.training.records.run_directory import RunDirectory

every_loss = pytest.mark.parametrize("loss", METHODS["dcd"].losses)
every_loss_of_classes = pytest.mark.parametrize("loss", [n for n in METHODS["dcd"].losses if n not in REGRESSION])
# groups of every loss: squares and the logistic loss as in runs that older versions began
pytestmark = [
    pytest.mark.filterwarnings("ignore::bigclf.errors.ConvergenceWarning"),
    pytest.mark.usefixtures("as_begun_before"),
]
D = 25
SMALL = "17MB"  # Arrow's allocator and the queues take 12 of them: the rows do not stay
QUIET = {"progress": False}


def noisy(n=400, seed=0, noise=1.0, loss="hinge"):
    """CSR float32 [n, D] and labels of the loss's kind, -1/+1 or numbers, in no order."""
    return random_rows(n, D, 0.3, seed=seed, noise=noise, real=loss in REGRESSION)


def checkpoint(directory, groups, number=0):
    """(dual variables of all rows in the order of the file, sum of a_i y_i x_i as the run has it, or None)."""
    saved = RunDirectory(directory).newest(groups)
    alpha = [saved.rows[group][f"{number}.{group}.rows.alpha"].copy() for group in range(groups)]
    gathered = {name: saved.arrays.get(f"{number}.gathered.{name}") for name in ("sizes", "alpha")}
    ends = saved.facts["segment"] == 0 and not saved.facts["status"][number]["done"]
    if gathered["sizes"] is not None and ends:  # what came of the sets
        solved = np.split(gathered["alpha"], np.cumsum(gathered["sizes"])[:-1])
        for group, values in enumerate(solved):
            alpha[group][saved.rows[group][f"{number}.{group}.set.ids"]] = values
    return np.concatenate(alpha), saved.arrays.get(f"{number}.dual_weights", saved.arrays[f"{number}.state.weights"])


class Watch:
    """Keeps what every epoch commits: a callback that reads the last checkpoint (that of the epoch before)."""

    def __init__(self, directory, groups):
        self.directory, self.groups, self.alphas, self.records = directory, groups, [], []

    def __call__(self, record):
        self.records.append(record)
        if record["epoch"] > 1:
            self.look()

    def look(self):
        self.alphas.append(checkpoint(self.directory, self.groups)[0])


def watched(x, y, directory, groups, **options):
    """The model of a run of groups, and its Watch with the dual variables after every epoch."""
    watch = Watch(directory, groups)
    given = {"groups": groups, "run_dir": directory, "checkpoint_every": 0, "callbacks": [watch]}
    model = fit(x, y, **given, **QUIET, **options)
    watch.look()
    return model, watch


def never_falls(values, roundoff=1e-12):
    return all(b >= a - roundoff * max(1.0, abs(a)) for a, b in zip(values, values[1:], strict=False))


# The line search


def steps_of_groups(loss, seed, sigma, groups=3, weighted=True):
    """Rows, start (a, w, z) and what the groups' kernels propose, as a run has it."""
    x, y = noisy(90, seed, loss=loss)
    rng = np.random.default_rng(seed)
    row_weights = rng.choice([0.0, 0.5, 1.0, 3.0], 90) if weighted else np.ones(90)
    record, params = LOSSES[loss], dcd.Params(0.7, 1.0, EPSILON if loss in REGRESSION else 0.0, sigma)
    rows, c = extended(x, True), 0.7 * row_weights
    before = np.where(c > 0, rng.uniform(0, 1, 90) * c * (rng.uniform(size=90) < 0.5), 0.0)
    before *= np.sign(y) if loss in REGRESSION else 1.0
    w = rows.T @ (before * signs(loss, y))
    z = w + rng.standard_normal(w.size) * 0.1
    joined, after, rise, bend = z.copy(), before.copy(), 0.0, 0.0
    for part in np.array_split(np.arange(90), groups):
        block = block_of(x[part], y[part], row_weights[part])
        members = np.flatnonzero(block.weights > 0)
        weights, alpha = z.copy(), before[part].copy()
        start = dcd.Rows(before[part].copy())
        for _ in range(3):
            dcd.descend(record)(block, members, dcd.Shared(weights), dcd.Rows(alpha), params, np.zeros(part.size))
        gain, bent = dcd.along(record)(block, members, dcd.Rows(alpha), start, params)
        rise, bend = rise + gain + 0.5 * bent, bend + bent
        joined += (weights - z) / sigma
        after[part] = alpha
    return rows, y, c, before, after, w, z, joined, rise, bend


def exact_dual(rows, y, alpha, loss, c):
    """The dual objective by numpy alone; rows of weight zero have no part in it."""
    held = c > 0
    assert (alpha[~held] == 0).all() and (loss in REGRESSION or (alpha >= 0).all())
    assert loss.startswith("squared") or (np.abs(alpha) <= c * (1 + 1e-15)).all()
    return dual(rows[held], y[held], alpha[held], loss, c[held])


@every_loss
@pytest.mark.parametrize(("sigma", "seed"), [(0.1, 0), (1.0, 1), (3.0, 0)])
def test_the_line_search_finds_the_best_point_of_a_fine_grid(loss, sigma, seed):
    rows, y, c, before, after, w, z, joined, rise, bend = steps_of_groups(loss, seed, sigma)
    np.testing.assert_allclose(joined - z, rows.T @ ((after - before) * signs(loss, y)), atol=1e-10)
    t = line_search(w, z, joined, rise, bend)
    grid = np.linspace(0, 1, 2001)
    values = [exact_dual(rows, y, before + s * (after - before), loss, c) for s in grid]
    found = exact_dual(rows, y, before + t * (after - before), loss, c)
    if loss == "logistic" or loss in REGRESSION:  # of a bound from below: a part of the way gains that part at least
        bound = [s * (rise - w @ (joined - z)) - 0.5 * s * s * (((joined - z) ** 2).sum() + bend) for s in grid]
        assert all(b <= v - values[0] + 1e-9 for b, v in zip(bound, values, strict=True))
        assert abs(t - grid[np.argmax(bound)]) <= 1 / 2000 and found >= values[0] - 1e-12 * abs(found)
        return
    assert 0 <= t <= 1 and abs(t - grid[np.argmax(values)]) <= 1 / 2000
    assert found >= max(values) - 1e-12 * abs(found)
    if sigma == 3.0:  # steps that are safe together
        assert t > 0.5
    if sigma == 0.1:  # each group does ten times too much: all the way would lose
        assert t < 0.5 and values[-1] < found


def test_steps_that_lead_down_are_not_taken_and_none_at_all_are_no_error():
    w = np.array([1.0, 0.0])
    assert line_search(w, w, np.array([3.0, 0.0]), 0.5, 0.0) == 0.0
    assert line_search(w, w, w.copy(), 0.0, 0.0) == 1.0


def test_the_point_that_groups_agree_on():
    rng = np.random.default_rng(0)
    w, z, joined = (rng.standard_normal(7) for _ in range(3))
    for t, pull in [(1.0, 4.0), (0.3, 0.5), (0.0, 2.0)]:
        weights, point = w.copy(), joined.copy()
        agree(weights, z, point, t, pull)
        step = t * (joined - z)
        np.testing.assert_allclose(weights, w + step, rtol=1e-14)
        np.testing.assert_allclose(point, (w + step + pull * z + step) / (1 + pull), rtol=1e-14)
    assert half_distance(w, z) == pytest.approx(0.5 * ((w - z) ** 2).sum())


def test_the_penalty_goes_where_the_larger_part_of_the_gap_is():
    assert next_penalty(2.0, 1.0, gap=10.0, lag=1.0, groups=4) > 2.0  # groups disagree
    assert next_penalty(2.0, 1.0, gap=10.0, lag=9.0, groups=4) < 2.0  # the common point lags
    assert next_penalty(2.0, 0.9, gap=10.0, lag=1.0, groups=4) < 2.0  # the steps were too long together
    assert next_penalty(0.25, 0.0, gap=10.0, lag=9.0, groups=4) == 0.25  # as safe as CoCoA+ there
    assert next_penalty(1e6, 1.0, gap=1.0, lag=0.0, groups=4) == 1e6


# Runs of dcd


WAYS = (("line_search", 4, 1.0, None), ("line_search", 3, 30.0, "feature"), ("safe", 3, 1.0, "feature"))


@pytest.mark.parametrize(
    ("loss", "mixing", "groups", "C", "bias"),  # in turn; the rest is long
    [pytest.param(loss, *way, marks=() if j == i % len(WAYS) else pytest.mark.long)
     for i, loss in enumerate(METHODS["dcd"].losses) for j, way in enumerate(WAYS)],
)  # fmt: skip
def test_the_dual_never_falls_and_the_certificate_is_right(loss, bias, mixing, groups, C, tmp_path):
    x, y = noisy(loss=loss)
    weights = np.random.default_rng(1).choice([0.0, 0.5, 1.0, 2.0], len(y))
    doubled = {} if loss in REGRESSION else {"class_weight": {1: 2.0}}
    model, watch = watched(x, y, tmp_path, groups, sample_weight=weights, loss=loss, bias=bias, C=C, mixing=mixing,
                           tol=1e-3, epochs=150, **doubled)  # fmt: skip
    rows, c = extended(x, bias), C * weights * np.where((y == 1) & bool(doubled), 2.0, 1.0)
    values = [exact_dual(rows, y, alpha, loss, c) for alpha in watch.alphas]
    assert never_falls(values) and values[-1] > values[0]
    told, w = model.result_.certificate, np.append(model.coef_[0], model.intercept_[0] if bias else 0.0)
    assert told["primal"] == pytest.approx(primal(rows, y, w, loss, c), rel=1e-11)
    assert told["dual"] == pytest.approx(max(values), rel=1e-10)
    assert told["gap"] == pytest.approx((told["primal"] - told["dual"]) / told["primal"], abs=1e-15)
    assert told["gap"] <= (1e-3 if C == 1 and mixing != "safe" else 5e-2)
    steps = [step for record in watch.records for step in record["steps"]]
    assert all(0 <= step <= 1 for step in steps) and (mixing != "safe" or set(steps) == {1.0})
    if C == 30.0 and mixing == "line_search":
        assert min(steps) < 1  # the search had something to do


@every_loss
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3))])
def test_groups_reach_the_optimum_of_the_serial_run(loss, seed):
    x, y = noisy(500, seed, noise=0.5 + seed, loss=loss)
    serial = fit(x, y, loss=loss, tol=1e-8, **QUIET).result_.certificate
    model = fit(x, y, loss=loss, groups=4, tol=1e-5, epochs=2000, **QUIET)
    told = model.result_.certificate
    assert model.result_.converged
    assert serial["dual"] * (1 - 1e-12) <= told["primal"] <= serial["primal"] * (1 + 2e-5)
    assert told["dual"] <= serial["primal"] * (1 + 1e-12)


@pytest.mark.parametrize(
    "loss", [pytest.param(loss, marks=() if loss == "hinge" else pytest.mark.long) for loss in METHODS["dcd"].losses]
)
def test_weights_stay_the_sum_over_rows_for_many_epochs(loss, tmp_path):
    x, y = noisy(loss=loss)
    fit(x, y, loss=loss, groups=5, tol=0, epochs=100, run_dir=tmp_path, **QUIET)
    alpha, weights = checkpoint(tmp_path, 5)
    np.testing.assert_allclose(weights, extended(x, True).T @ (alpha * signs(loss, y)), atol=1e-10)


@pytest.mark.parametrize(
    ("loss", "options"),
    [long_but_float32(loss, options.get("dtype"), options) for loss in METHODS["dcd"].losses
     for options in ({}, {"mixing": "safe"}, {"dtype": "float32"})], ids=str,
)  # fmt: skip
def test_the_same_call_gives_the_same_bits(loss, options):
    x, y = noisy(loss=loss)
    given = {"loss": loss, "groups": 3, "epochs": 6, "tol": 1e-6, **QUIET, **options}
    first, again, other = fit(x, y, **given), fit(x, y, **given), fit(x, y, **given, seed=1)
    np.testing.assert_array_equal(first.coef_, again.coef_)
    assert first.result_.certificate == again.result_.certificate
    assert np.any(first.coef_ != other.coef_)


@pytest.mark.parametrize("loss", [long_but_float32(loss, "float32") for loss in METHODS["dcd"].losses])
def test_half_the_width_reaches_the_tolerance_too(loss):
    x, y = noisy(loss=loss)
    model = fit(x, y, loss=loss, dtype="float32", groups=4, tol=1e-3, epochs=1000, **QUIET)
    whole = fit(x, y, loss=loss, tol=1e-8, **QUIET).result_.certificate
    told = model.result_.certificate
    w = np.append(model.coef_[0], model.intercept_[0])
    assert model.result_.converged and told["dual"] <= whole["primal"] * (1 + 1e-12)
    assert told["primal"] == pytest.approx(primal(extended(x, True), y, w, loss, np.ones(len(y))), rel=1e-6)
    assert whole["dual"] * (1 - 1e-12) <= told["primal"] <= whole["primal"] * (1 + 1.1e-3)


@pytest.fixture(scope="module")
def three_classes():
    x, _ = noisy(600, noise=0.1)
    y = np.argmax(x[:, :3].toarray() + 0.3 * x[:, 3:6].toarray(), axis=1)
    return x, y


@every_loss_of_classes
def test_several_problems_each_with_its_own_certificate(loss, three_classes, tmp_path):
    x, y = three_classes
    model = fit(x, y, loss=loss, groups=4, tol=1e-4, epochs=2000, run_dir=tmp_path, checkpoint_every=0, **QUIET)
    assert model.result_.converged
    rows, c = extended(x, True), np.ones(len(y))
    for number, told in enumerate(model.result_.certificate["problems"]):
        sign = np.where(y == number, 1, -1)
        w = np.append(model.coef_[number], model.intercept_[number])
        alpha, _ = checkpoint(tmp_path, 4, number)
        assert told["primal"] == pytest.approx(primal(rows, sign, w, loss, c), rel=1e-11)
        assert told["dual"] == pytest.approx(exact_dual(rows, sign, alpha, loss, c), rel=1e-10)
        assert told["gap"] <= 1e-4


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    x, y = random_rows(4000, 60, 0.25, noise=1.0)
    path = tmp_path_factory.mktemp("groups") / "shards"
    return x, y, shards_of(path, x, y, chunk_nnz=3000, shard_nnz=40_000), path


@pytest.fixture(scope="module")
def real_shards(tmp_path_factory):
    x, y = random_rows(4000, 60, 0.25, noise=1.0, real=True)
    path = tmp_path_factory.mktemp("groups") / "real"
    return x, y, shards_of(path, x, y, real=True, chunk_nnz=3000, shard_nnz=40_000), path


@every_loss
@pytest.mark.parametrize("segments", [1, 3])
def test_out_of_core_the_dual_never_falls_and_the_optimum_is_the_same(loss, segments, shards, real_shards, tmp_path):
    x, y, made, _ = real_shards if loss in REGRESSION else shards
    watch = Watch(tmp_path, 3)
    model = fit(made, loss=loss, C=0.01, groups=3, tol=1e-3, memory=SMALL, segments=segments, epochs=200,
                run_dir=tmp_path, checkpoint_every=0, callbacks=[watch], **QUIET)  # fmt: skip
    assert model.result_.converged and not model.result_.plan["resident"]
    watch.look()
    alphas = watch.alphas if segments == 1 else watch.alphas[-1:]  # in between the newest is of half an epoch
    rows, c = extended(x, True), np.full(len(y), 0.01)
    values = [exact_dual(rows, y, alpha, loss, c) for alpha in alphas]
    told = model.result_.certificate
    assert never_falls(values) and told["dual"] == pytest.approx(values[-1], rel=1e-10)
    duals = [record["dual"] for record in model.result_.history if "dual" in record]
    assert never_falls(duals)
    best = fit(x, y, loss=loss, C=0.01, tol=1e-7, **QUIET).result_.certificate
    assert best["dual"] * (1 - 1e-12) <= told["primal"] <= best["primal"] * (1 + 1.1e-3)


INTERRUPTED = [
    dict(loss="hinge", groups=3, segments=3, memory=SMALL, tol=0, epochs=5),
    dict(loss="squared_hinge", groups=4, tol=0, epochs=9),
    dict(loss="hinge", groups=2, mixing="safe", tol=0, epochs=6, dtype="float32"),
    dict(loss="epsilon_insensitive", groups=3, segments=3, memory=SMALL, tol=0, epochs=5),
]


@pytest.mark.parametrize("options", INTERRUPTED, ids=["segments", "in memory", "safe", "regression"])
@pytest.mark.parametrize("after", [1, pytest.param(3, marks=pytest.mark.long)])
def test_a_run_that_was_stopped_goes_on_to_the_same_bits(options, after, shards, tmp_path):
    whole = fit(shards[2], **options, **QUIET)

    def stop(record):
        if record["epoch"] == after:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        fit(shards[2], run_dir=tmp_path, callbacks=[stop], **options, **QUIET)
    resumed = fit(shards[2], run_dir=tmp_path, resume=True, **options, **QUIET)
    np.testing.assert_array_equal(whole.coef_, resumed.coef_)
    assert whole.result_.certificate["dual"] == resumed.result_.certificate["dual"]
    names = ("epoch", "steps", "estimated_gap")
    last, again = whole.result_.history[-1], resumed.result_.history[-1]
    assert [last[name] for name in names] == [again[name] for name in names]


KILLED = """
import json, os, signal, sys, warnings
warnings.simplefilter("ignore")
from bigclf.stream.blocks import Stream
from making import fit
shards, directory, options, stop = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
blocks, count = Stream.blocks, 0

def counted(self, units, *then):
    global count
    for block in blocks(self, units, *then):
        count += 1
        if count == stop:
            os.kill(os.getpid(), signal.SIGKILL)
        yield block

Stream.blocks = counted
model = fit(shards, run_dir=directory, resume=True, checkpoint_every=0, progress=False, **options)
print(json.dumps([model.digest(), count]))
"""


@pytest.mark.long
def test_killed_in_the_middle_of_a_block_it_resumes_to_the_same_bits(shards, tmp_path):
    def run(name, stop):
        arguments = [shards[3], tmp_path / name, json.dumps(INTERRUPTED[0]), stop]
        return subprocess.run([sys.executable, "-c", KILLED, *map(str, arguments)], env=environment(), check=False,
                              capture_output=True, text=True, timeout=300)  # fmt: skip

    digest, blocks = json.loads(run("whole", 0).stdout)
    assert blocks > 10
    assert run("broken", blocks // 2 + 1).returncode == -signal.SIGKILL
    assert json.loads(run("broken", 0).stdout)[0] == digest


@pytest.mark.data
@every_loss
@pytest.mark.parametrize("bias", [None, "feature"])
def test_four_groups_on_census_income(loss, bias, data_set, tmp_path):
    from sklearn.datasets import load_svmlight_file

    x, y = load_svmlight_file(str(data_set("a9a/a9a.gz")), dtype=np.float32)
    serial = fit(x, y, loss=loss, bias=bias, tol=1e-3, **QUIET).result_.certificate
    model, watch = watched(x, y, tmp_path, 4, loss=loss, bias=bias, tol=1e-3, epochs=100)
    told = model.result_.certificate
    assert model.result_.converged and model.result_.epochs <= 60
    assert abs(told["primal"] - serial["primal"]) <= told["gap"] * told["primal"] + serial["gap"] * serial["primal"]
    rows = sp.hstack([x.astype(float), np.full((len(y), 1), 1.0 if bias else 0.0)], format="csr")
    values = [exact_dual(rows, y, alpha, loss, np.ones(len(y))) for alpha in watch.alphas]
    assert never_falls(values) and told["dual"] == pytest.approx(values[-1], rel=1e-10)


# Mixtures


def states(kind, count, seed=0, n=40, changed=0.2):
    """A start and copies of it that differ at some places, of a kind that perceptrons have."""
    rng = np.random.default_rng(seed)

    def moved(array):
        mask = rng.uniform(size=array.size) < changed
        return np.where(mask, array + rng.standard_normal(array.size), array)

    start = rng.standard_normal(n)
    if kind is perceptron.Shared:
        return kind(start), [kind(moved(start)) for _ in range(count)]
    drift, ways = rng.standard_normal(n), rng.uniform(size=(n, 2))

    def copy():
        arrays = moved(start), moved(drift), np.array([10 + rng.integers(50)])
        if kind is perceptron.Averaged:
            return kind(*arrays)
        own = np.where(arrays[0] != start, rng.exponential(size=n) * 10.0 ** rng.integers(-9, 3, n), 0.0)
        return kind(*arrays, ways + own[:, None] * [1.0, rng.uniform(1 / count, 1.0)])

    copies = [copy() for _ in range(count)]
    return kind(start, drift, np.array([10]), *(() if kind is perceptron.Averaged else (ways,))), copies


def blended(rule, start, copies, shares, height=0):
    mixture = Mixture(rule, start)
    for copy, share in zip(copies, shares, strict=True):
        mixture.add(copy, share, height)
    return mixture.result()


def same_bits(a, b):
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one.view(np.uint64), other.view(np.uint64))


RULES = [(MEAN, perceptron.Shared), (SUM, perceptron.Shared), (AVERAGED, perceptron.Averaged),
         (PULL, passive_aggressive.Pulled)]  # fmt: skip
every_rule = pytest.mark.parametrize(("rule", "kind"), RULES, ids=["mean", "sum", "averaged", "pull"])
COUNTS = [1, 2, FAN - 1, FAN, FAN + 1, 2 * FAN + 3, FAN * FAN, FAN * FAN + 1, FAN * FAN + 2 * FAN + 5]


@pytest.mark.parametrize("count", COUNTS)
def test_however_deep_the_tree_the_sum_and_the_mean_are_right(count):
    start, copies = states(perceptron.Shared, count)
    shares = np.random.default_rng(1).uniform(0.5, 2.0, count)
    changes = [copy.weights - start.weights for copy in copies]
    total = blended(SUM, start, copies, shares)
    np.testing.assert_allclose(total.weights, start.weights + np.sum(changes, axis=0), atol=1e-12)
    mean = blended(MEAN, start, copies, shares)
    wanted = np.average([copy.weights for copy in copies], axis=0, weights=shares)
    np.testing.assert_allclose(mean.weights, wanted, atol=1e-12)


@pytest.mark.parametrize("count", COUNTS)
def test_however_deep_the_tree_averages_are_over_every_step_once(count):
    start, copies = states(perceptron.Averaged, count)
    shares = np.random.default_rng(1).uniform(0.5, 2.0, count)
    mixed = blended(AVERAGED, start, copies, shares)

    def sums(state):  # of the weights over all steps so far
        return state.steps[0] * state.weights - state.drift

    wanted = sums(start) + np.sum([sums(copy) - sums(start) for copy in copies], axis=0)
    assert mixed.steps[0] == start.steps[0] + sum(copy.steps[0] - start.steps[0] for copy in copies)
    np.testing.assert_allclose(sums(mixed), wanted, rtol=1e-10, atol=1e-7)
    np.testing.assert_allclose(
        mixed.weights, np.average([c.weights for c in copies], axis=0, weights=shares), atol=1e-12
    )


@pytest.mark.parametrize("count", COUNTS)
def test_however_deep_the_tree_steps_add_up_as_far_as_they_were_short(count):
    start, copies = states(passive_aggressive.Pulled, count)
    mixed = blended(PULL, start, copies, [1.0] * count)
    gone = np.array([copy.ways - start.ways for copy in copies])
    own, one = np.maximum(gone, 1e-300).transpose(2, 0, 1)  # of 0 the limit
    changes = np.array([copy.weights - start.weights for copy in copies])
    wanted = changes[0]  # one copy, as it is
    if count > 1:
        wanted = (one / -np.expm1(-own) * changes).sum(axis=0) / one.sum(axis=0)  # the way to go, all of it
        wanted *= -np.expm1(-np.minimum(one.sum(axis=0), ADDED * own.mean(axis=0)))
    np.testing.assert_allclose(mixed.weights, start.weights + wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mixed.ways, start.ways + gone.sum(axis=0), rtol=1e-12)
    sums = [copy.steps[0] * copy.weights - copy.drift for copy in (start, mixed, *copies)]
    np.testing.assert_allclose(sums[1] - sums[0], np.sum(sums[2:] - sums[0], axis=0), rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("count", [2, ADDED, 3 * ADDED, FAN + 4])
@pytest.mark.parametrize("longer", [1.0, 1.7, np.inf], ids=["as-long", "longer", "as-many"])
def test_copies_on_their_way_to_one_place_are_mixed_to_where_one_learner_would_be(count, longer):
    rng, longer = np.random.default_rng(count), min(longer, count)
    begun, goal = rng.standard_normal((2, 30))
    parts = rng.exponential(size=(count, 30)) * 10.0 ** rng.integers(-6, 2, (count, 30))
    start = passive_aggressive.Pulled(begun, np.zeros(30), np.zeros(1, np.int64), np.zeros((30, 2)))
    copies = [
        start._replace(weights=goal + (begun - goal) * np.exp(-longer * q), ways=np.stack([longer * q, q], axis=1))
        for q in parts
    ]
    mixed = blended(PULL, start, copies, [1.0] * count)
    gone = min(1.0, ADDED * longer / count) * parts.sum(axis=0)  # steps of as many as ADDED copies
    np.testing.assert_allclose(mixed.weights, goal + (begun - goal) * np.exp(-gone), rtol=1e-12, atol=1e-9)


def test_copies_that_took_all_the_steps_of_one_learner_and_went_alike_are_mixed_to_their_mean():
    rng = np.random.default_rng(0)
    begun, *changes = rng.standard_normal((4, 30)) * 10.0 ** rng.integers(-5, 2, (4, 30))
    parts = rng.exponential(size=30) * 10.0 ** rng.integers(-6, 2, 30)
    start = passive_aggressive.Pulled(begun, np.zeros(30), np.zeros(1, np.int64), np.zeros((30, 2)))
    ways = np.stack([3 * parts, parts], axis=1)
    copies = [start._replace(weights=begun + change, ways=ways) for change in changes]
    mixed = blended(PULL, start, copies, [1.0] * 3)
    np.testing.assert_allclose(mixed.weights - begun, np.mean(changes, axis=0), rtol=1e-9, atol=1e-12)


@every_rule
@pytest.mark.parametrize("count", [FAN, FAN + 1, 3 * FAN + 5, FAN * FAN + FAN + 3])
def test_bundles_joined_elsewhere_have_the_bits_of_copies_added_singly(rule, kind, count):
    start, copies = states(kind, count)
    shares = list(np.random.default_rng(1).uniform(0.5, 2.0, count))
    singly = blended(rule, start, copies, shares)
    mixture = Mixture(rule, start)
    for first in range(0, count, FAN):
        last = min(count, first + FAN)
        if last == first + 1:  # one alone at the end is no bundle
            mixture.add(copies[first], shares[first])
            continue
        part = Mixture(rule, start)
        for copy, share in zip(copies[first:last], shares[first:last], strict=True):
            part.add(copy, share)
        whole = part.shares
        mixture.add(part.result(), whole, 1)
    same_bits(singly, mixture.result())


@every_rule
@given(count=st.integers(1, 40), seed=st.integers(0, 1000), changed=st.floats(0.0, 0.3))
@settings(max_examples=40, deadline=None)
def test_changes_alone_give_the_bits_of_whole_copies(rule, kind, count, seed, changed):
    start, copies = states(kind, count, seed, changed=changed)
    shares = np.random.default_rng(seed).choice([0.0, 1.0, 2.5], count)
    given_ = []
    for copy in copies:
        delta = difference(start, copy, start.weights.size)
        given_.append(copy if delta is None else delta)
    same_bits(blended(rule, start, copies, shares), blended(rule, start, given_, shares))


# Mixed perceptrons (McDonald, Hall, Mann, NAACL 2010)


def test_by_mistakes_copies_that_made_none_keep_what_their_margins_asked_for():
    x, y, u, _ = separable_rows()
    first = Model(1e-3 * u[None], np.zeros(1), np.array([-1, 1]))
    options = dict(algo="pa1", C=1e-9, bias=None, groups=3, epochs=1, init=first, **QUIET)  # every row is one update
    found, expected = (fit(x, y, mixing=mixing, **options) for mixing in ("mistakes", "rows"))
    assert found.result_.mistakes == 0 and found.result_.history[0]["updates"] == y.size
    assert np.all(found.coef_ != first.coef_)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-14)


@pytest.mark.parametrize("mixing", ["uniform", "mistakes"])
@pytest.mark.parametrize("seed", range(6))
def test_mixed_mistakes_stay_below_the_bound(mixing, seed):
    """Theorem 3: sum over epochs and groups of mu k <= R^2 / gamma^2."""
    x, y, _, gamma = separable_rows(80, 5, seed, least=0.05)
    groups = 2 + seed % 6
    model = fit(x, y, algo="perceptron", bias=None, groups=groups, mixing=mixing, epochs=60, seed=seed, **QUIET)
    history = model.result_.history
    bound = (np.linalg.norm(x.astype(float), axis=1).max() / gamma) ** 2
    mixed = [record["mixed_mistakes"] for record in history]
    assert 0 < sum(mixed) <= bound
    assert mixed[-1] == 0 or sum(record["mistakes"] > 0 for record in history) <= bound
    if mixing == "mistakes":  # at least one is made by every epoch that is not the last: their number is bounded too
        assert sum(record["mistakes"] > 0 for record in history) <= bound


COUNTEREXAMPLE = np.array([[1, 1, 0], [0, 0, 1], [0, 1, 1], [1, 0, 0]], np.float32), np.array([1, -1, 1, -1])


def test_weights_mixed_once_at_the_end_may_fail_where_both_groups_separate_theirs():
    """Theorem 2: the groups end at (1, 1, -1) and (-1, 1, 1), whatever the order; no mixture of those separates."""
    x, y = COUNTEREXAMPLE
    ends = [fit(x[part], y[part], algo="perceptron", bias=None, epochs=20, **QUIET).coef_[0]
            for part in (slice(0, 2), slice(2, 4))]  # fmt: skip
    np.testing.assert_array_equal(ends, [[1, 1, -1], [-1, 1, 1]])
    for part, w in zip((slice(0, 2), slice(2, 4)), ends, strict=True):
        assert (y[part] * (x[part] @ w) > 0).all()
    for share in np.linspace(0, 1, 101):
        assert (y * (x @ (share * ends[0] + (1 - share) * ends[1])) <= 1e-12).any()


@pytest.mark.parametrize("mixing", ["rows", "uniform", "mistakes"])
def test_mixed_after_every_epoch_they_separate(mixing):
    x, y = COUNTEREXAMPLE
    model = fit(x, y, algo="perceptron", bias=None, groups=2, mixing=mixing, epochs=20, **QUIET)
    assert len(model.result_.plan["groups"]) == 2
    assert (y * (x @ model.coef_[0]) > 0).all()
    assert model.result_.history[-1]["mistakes"] == 0


@pytest.mark.parametrize("mixing", ["rows", "uniform"])
@pytest.mark.parametrize("groups", [1, 2, 5])
def test_the_averaged_perceptron_is_the_mean_over_all_steps_of_all_groups(mixing, groups):
    x, y = noisy(230)
    given_ = {} if groups == 1 else {"groups": groups, "mixing": mixing}
    model = fit(x, y, algo="averaged_perceptron", epochs=6, seed=3, **given_, **QUIET)
    rows, w = extended(x, True), np.zeros(D + 1)
    total, steps = np.zeros(D + 1), 0
    plan = model.result_.plan
    sizes = group_sizes(x, y, plan)
    for epoch in range(1, 7):
        ends = []
        for group, part in enumerate(np.split(np.arange(len(y)), np.cumsum(sizes)[:-1])):
            mine, order = w.copy(), np.empty(part.size, np.int64)
            shuffle_runs(np.arange(part.size), plan["run"], random_state(3, 2, epoch, 0, group, 0, 1), order)
            for i in part[order]:
                if y[i] * (rows[i] @ mine) <= 0:
                    mine = mine + y[i] * rows[i]
                total, steps = total + mine, steps + 1
            ends.append(mine)
        w = np.average(ends, axis=0, weights=sizes if mixing == "rows" else None)
    np.testing.assert_allclose(np.append(model.coef_[0], model.intercept_[0]), total / steps, rtol=1e-10, atol=1e-12)


def group_sizes(x, y, plan):
    """Rows of each group."""
    from bigclf.request.door import Matrix, Numbering

    chunks = Matrix(x, y, None, Numbering(10**9)).rows(len(plan["groups"]), False).chunks
    return [int(chunks.rows[first:last].sum()) for first, last in plan["groups"]]
