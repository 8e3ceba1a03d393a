"""Points of a path with the squared loss: many are solved on one collection of columns, and one read certifies them."""

import dataclasses
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from making import block_of, interrupted_after, random_rows, shards_of
from sklearn.linear_model import ElasticNet
from test_newglmnet import a_few_columns_at_a_time
from test_squared_loss_on_columns import gap_by_numpy, rows_of_numbers

import bigclf
from bigclf.api.fit import fit
from bigclf.errors import ConvergenceWarning
from bigclf.maths.losses import SQUARED
from bigclf.methods import METHODS
from bigclf.methods.method import Given
from bigclf.methods.steps import newglmnet, path_batch
from bigclf.methods.steps.active_columns import Gathering, piece_of
from bigclf.methods.steps.columns import Penalty
from bigclf.methods.steps.path_batch import Batch
from bigclf.methods.steps.proximal_newton import newton_round, solve
from bigclf.training.run import Run

N, D = 6_000, 800
L1 = 0.6
BASE = dict(loss="squared", penalty="elastic_net", l1_ratio=L1, bias="free", tol=1e-4, progress=False)


def rows_of_many(seed=0, correlated=False):
    """CSR float32 [N, D] and numbers that a twentieth of the features explain; ``correlated`` : in runs of ten, so that
    what one explains hides what another does."""
    rng = np.random.default_rng(seed)
    x, _ = random_rows(N, D, 0.02, seed=seed)
    if correlated:
        runs = np.kron(np.eye(D // 10), rng.standard_normal((10, 10)) * 0.3 + np.eye(10))
        x = sp.csr_matrix((x @ runs).astype(np.float32))
    rule = np.where(rng.random(D) < 0.05, rng.standard_normal(D), 0.0)
    y = x @ rule
    return x, y + rng.standard_normal(N) * 0.5 * y.std() + 3.0


def values_of(x, y, number=20, eps=1e-2, l1=L1):
    """C from where the first column moves to 1 / ``eps`` of that."""
    return np.geomspace(1.0, 1.0 / eps, number) * l1 / np.abs(x.T @ (y - y.mean())).max()


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    x, y = rows_of_many()
    data = shards_of(tmp_path_factory.mktemp("many") / "shards", x, y, chunk_nnz=4_000, real=True)
    return data, x, y, values_of(x, y)


STREAMED = "16MB"  # too little to keep these rows


def gap_by_scikit_learn(x, y, w, C, l1):
    """(P, the gap) as ``ElasticNet`` has them with an intercept, both times C: centred, l2 as further rows, and the
    residual scaled until it is feasible."""
    x = x.toarray().astype(np.float64)
    x, y, alpha, beta = x - x.mean(axis=0), y - y.mean(), l1 / C, (1 - l1) / C
    r = y - x @ w
    s = min(1.0, alpha / np.abs(x.T @ r - beta * w).max())
    squares = r @ r + beta * (w @ w)
    primal = 0.5 * squares + alpha * np.abs(w).sum()
    return C * primal, C * (primal - s * (r @ y) + 0.5 * s * s * squares)


def assert_certified(path, x, y, l1=L1, bias="free", tol=1e-4):
    """Each value's gap, by numpy as scikit-learn has it too, is within the tolerance, and no bound is above what a
    nearly exact answer comes to."""
    exact = bigclf.path(x, y, C=path.C, **BASE | {"tol": 1e-12})
    for row, model, best in zip(path.table, path.models, exact.table, strict=True):
        given = x, y, model.coef_[0], float(model.intercept_[0]), row["C"], l1, np.ones(len(y)), bias
        primal, gap = gap_by_numpy(*given)
        assert row["objective"] == pytest.approx(primal, rel=1e-10)
        assert row["gap"] <= tol and -1e-12 * primal <= gap <= 2 * tol * primal
        assert row["dual"] <= best["objective"] * (1 + 1e-11)
        primal, gap = gap_by_scikit_learn(x, y, model.coef_[0], row["C"], l1)
        assert row["objective"] == pytest.approx(primal, rel=1e-6) and gap <= tol * primal * (1 + 1e-3)


def test_a_path_takes_at_most_three_times_the_reads_of_its_last_point(many):
    data, x, y, values = many
    found = bigclf.path(data, C=values, memory=STREAMED, **BASE)
    last = fit(data, algo="newglmnet", C=values[-1], memory=STREAMED, **BASE).result_
    assert not found.plan["resident"] and not last.plan["resident"]
    assert found.converged and last.converged
    assert found.reads <= 3 * last.reads and found.reads <= 7
    assert_certified(found, x, y)


def test_the_answers_are_scikit_learn_s(many):
    data, x, y, values = many
    found = bigclf.path(data, C=values[::4], memory=STREAMED, **BASE | {"tol": 1e-13})
    dense = x.toarray().astype(np.float64)
    for C, model in zip(found.C, found.models, strict=True):
        peer = ElasticNet(alpha=1 / (N * C), l1_ratio=L1, tol=1e-14, max_iter=100_000).fit(dense, y)
        np.testing.assert_allclose(model.coef_[0], peer.coef_, atol=2e-5)
        np.testing.assert_array_equal(np.abs(model.coef_[0]) > 1e-8, np.abs(peer.coef_) > 1e-8)


@pytest.mark.parametrize("algo", ["newglmnet", "cdn"])
@pytest.mark.parametrize("bias", ["free", "feature", "none"])
@pytest.mark.parametrize("l1", [1.0, 0.3])
def test_every_value_has_its_own_certificate(algo, bias, l1):
    x, y = rows_of_numbers(seed=1)
    shape = {"penalty": "l1"} if l1 == 1 else {"penalty": "elastic_net", "l1_ratio": l1}
    options = dict(algo=algo, loss="squared", bias=bias, progress=False, **shape)
    for tol in (1e-1, 1e-3, 1e-8):
        found = bigclf.path(x, y, C=np.geomspace(1e-4, 1.0, 12), tol=tol, **options)
        assert found.converged
        for row, model in zip(found.table, found.models, strict=True):
            given = x, y, model.coef_[0], float(model.intercept_[0]), row["C"], l1, np.ones(len(y)), bias
            primal, gap = gap_by_numpy(*given)
            assert row["objective"] == pytest.approx(primal, rel=1e-12)
            assert row["gap"] <= tol and -1e-12 * primal <= gap <= 2 * tol * primal
            best = fit(x, y, C=row["C"], tol=1e-12, **options).result_.certificate["primal"]
            assert row["dual"] <= best * (1 + 1e-12)


def test_rows_of_one_value_and_weighted_rows():
    x, y = rows_of_numbers(seed=2, constant=True)
    weights = np.random.default_rng(0).choice([0.0, 0.5, 2.0], len(y))
    options = dict(loss="squared", penalty="l1", bias="free", sample_weight=weights, tol=1e-10, progress=False)
    found = bigclf.path(x, y, C=[0.003, 0.01, 0.03], **options)
    for row, model in zip(found.table, found.models, strict=True):
        primal, gap = gap_by_numpy(x, y, model.coef_[0], float(model.intercept_[0]), row["C"], 1.0, weights, "free")
        assert row["objective"] == pytest.approx(primal, rel=1e-12) and gap <= 1e-9 * primal


def test_a_wrong_guess_costs_reads_and_no_certificate(many, monkeypatch):
    """Columns are collected that matter least: what violates is found by the read that certifies."""
    data, x, y, values = many
    guessed = bigclf.path(data, C=values, memory=STREAMED, **BASE)
    monkeypatch.setattr(newglmnet, "NEARLY", 1.0)
    monkeypatch.setattr(newglmnet, "WORTH", 1.0)
    monkeypatch.setattr(path_batch, "WIDEST", 1.0)
    monkeypatch.setattr(path_batch, "NEARLY", 1.0)
    wrong = bigclf.path(data, C=values[[0, 10, 19]], memory=STREAMED, **BASE | {"tol": 1e-9})
    assert wrong.converged and wrong.reads > guessed.reads
    assert_certified(wrong, x, y, tol=1e-9)


def test_correlated_columns(tmp_path):
    x, y = rows_of_many(seed=3, correlated=True)
    data = shards_of(tmp_path / "shards", x, y, chunk_nnz=40_000, real=True)
    found = bigclf.path(data, C=values_of(x, y, 8), **BASE)
    assert found.converged
    assert_certified(found, x, y)


def test_where_few_columns_have_room_the_points_come_in_several_batches(many, monkeypatch):
    data, x, y, values = many
    sizes, whole = [], newglmnet.choose_together

    def in_little_room(points, entries):
        whole(points, x.nnz // 8)
        sizes.append(sum(newglmnet.joined(point.state) for point in points))

    little = newglmnet.Batches(("squared",), in_little_room, newglmnet.joined, newglmnet.unproved)
    method = METHODS["newglmnet"]
    how = dataclasses.replace(method.how, batches=little)
    monkeypatch.setitem(METHODS, "newglmnet", dataclasses.replace(method, how=how))
    a_few_columns_at_a_time(monkeypatch, x.nnz // 8)
    found = bigclf.path(data, C=values, **BASE)
    assert found.converged and sum(size > 1 for size in sizes) > 1 and 0 in sizes
    assert_certified(found, x, y)


@pytest.mark.parametrize("groups", [1, 3])
def test_stopped_after_any_epoch_and_resumed_a_path_has_the_same_bits(many, tmp_path, groups):
    data, _, _, values = many
    options = BASE | dict(C=values[::3], memory=STREAMED if groups == 1 else "40MB", groups=groups, tol=1e-9)
    commits, commit = 0, Run._commit

    def counted(self, last=False):
        nonlocal commits
        commits += 1
        commit(self, last)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "_commit", counted)
        straight = bigclf.path(data, **options)
    assert commits >= 3
    for stop in range(1, commits):
        place = tmp_path / str(stop)
        with interrupted_after(stop):
            bigclf.path(data, run_dir=bigclf.RunDir(place, 0), **options)
        resumed = bigclf.path(data, run_dir=place, resume=True, **options)
        np.testing.assert_array_equal(resumed.coefs_, straight.coefs_)
        np.testing.assert_array_equal(resumed.intercepts_, straight.intercepts_)
        told = ("C", "nonzero", "objective", "dual", "gap", "violation", "epochs", "read")
        assert [[row[name] for name in told] for row in resumed.table] == [
            [row[name] for name in told] for row in straight.table
        ]


def test_groups_streamed_rows_and_rows_in_memory_come_to_the_same_answers(many):
    data, x, y, values = many
    options = BASE | dict(C=values[::3], tol=1e-10)
    streamed = bigclf.path(data, memory=STREAMED, **options)
    for other in (bigclf.path(x, y, **options), bigclf.path(data, groups=3, **options)):
        np.testing.assert_allclose(other.coefs_, streamed.coefs_, atol=1e-7)
        np.testing.assert_array_equal(other.coefs_ != 0, streamed.coefs_ != 0)


def test_epochs_of_a_path_end_each_point_and_more_of_them_go_on(many, tmp_path):
    data, x, y, values = many
    options = BASE | dict(C=values[::5], memory=STREAMED, tol=1e-12)
    with pytest.warns(ConvergenceWarning, match="epochs=2"):
        short = bigclf.path(data, run_dir=tmp_path / "run", epochs=2, **options)
    assert not short.converged and all(row["epochs"] <= 2 for row in short.table)
    further = bigclf.path(data, run_dir=tmp_path / "run", resume=True, **options)
    assert_certified(further, x, y, tol=1e-9)


def test_the_bound_of_a_point_is_scikit_learn_s_too():
    x, y = rows_of_numbers(seed=5)
    rng = np.random.default_rng(0)
    w, C, l1 = np.where(rng.random(x.shape[1]) < 0.3, rng.standard_normal(x.shape[1]), 0.0), 0.02, 0.7
    b = float(np.mean(y - x @ w))
    r = y - x @ w - b
    shared = newglmnet.begin(x.shape[1], np.dtype("float64"), {})
    shared.weights[:], shared.total[:-1] = np.append(w, b), C * (x.T @ r)
    shared.figures[:] = 0.5 * C * (r @ r), C * (r @ y) - 0.5 * C * (r @ r), np.sum(np.abs(C * r))
    params = newglmnet.Params(C, 1.0, 1.0, l1, 1 - l1)
    primal, gap = gap_by_scikit_learn(x, y, w, C, l1)
    assert primal - newglmnet.scaled_bound(shared, shared.weights, params) == pytest.approx(gap, rel=1e-6)


def columns_of(x, y, C):
    """A collection of all columns."""
    block, counts = block_of(x, y), np.diff(x.tocsc().indptr)
    gathering = Gathering(counts, x.shape[0], True)
    n, d = x.shape
    gathering.append(piece_of(block, np.arange(n), np.zeros(d + 1), np.arange(d + 1), C, 1.0, True))
    return gathering.columns()


@pytest.mark.parametrize("spare", [0, 10**6])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize(
    "penalty", [Penalty(1.0, 0.0, 1.0, True), Penalty(0.5, 0.5, 1.0, False), Penalty(0.5, 0.5, 0.0, False)]
)
def test_points_of_a_batch_are_solved_as_each_by_itself(spare, constant, penalty):
    """With copies of each point's columns and without room for any; also one that goes on from weights of its own."""
    x, y = rows_of_numbers(seed=4, constant=constant)
    given = Given(None, 1e-9, 0)
    points = Batch(columns_of(x, y, 1e-3), 1e-3, x.nnz + spare)
    for C, own in ((1e-3, False), (2e-3, False), (3e-3, False), (2e-2, False), (0.05, True), (0.06, False)):
        w = np.zeros(x.shape[1] + 1) if points.weights is None or own else points.weights.copy()
        if own:
            w[:5] = 1.0
        found = points.solve(newton_round, SQUARED, penalty, w, C, 1e-9, 0, given)
        alone = np.zeros(w.size)
        best = solve(newton_round, SQUARED, columns_of(x, y, C), penalty, alone, 1e-12, 0)
        np.testing.assert_allclose(points.columns.margins, x @ w[:-1] + penalty.bias * w[-1], atol=1e-6)
        assert best.primal * (1 - 1e-12) <= found.primal <= best.primal * (1 + 1e-6)
        np.testing.assert_allclose(w, alone, atol=1e-3)


@pytest.mark.parametrize("spare", [0.0, 0.5])
@pytest.mark.parametrize(("n_rows", "n_features", "each"), [(100, 40_000, 400), (20_000, 100, 4)])
def test_a_batch_takes_no_more_memory_than_is_planned(n_rows, n_features, each, spare):
    """With a free bias, whose dual point is balanced, and copies of the columns of a point."""
    random = np.random.default_rng(0)
    indices = random.integers(0, n_features, n_rows * each).astype(np.int32)
    values = random.standard_normal(indices.size).astype(np.float32)
    x = sp.csr_matrix((values, indices, np.arange(n_rows + 1) * each), (n_rows, n_features))
    x.sum_duplicates()
    counts = np.diff(x.tocsc().indptr)
    x, n = x[:, counts > 0], np.count_nonzero(counts)
    y = random.standard_normal(n_rows)
    block, entries = block_of(x, y), x.nnz + int(spare * x.nnz)
    places, penalty = np.arange(n + 1), Penalty(1.0, 0.0, 1.0, True)
    top = np.abs(x.T @ (y - y.mean())).max()

    def solution():
        gathering = Gathering(counts[counts > 0], n_rows, True)
        for first in range(0, n_rows, 1000):
            order = np.arange(first, min(n_rows, first + 1000))
            gathering.append(piece_of(block, order, np.zeros(n + 1), places, 1.0 / top, 1.0, True))
        points = Batch(gathering.columns(), 1.0 / top, entries)
        w, steps = np.zeros(n + 1), 0
        for ratio in (1.1, 1.5, 2.0, 5.0):
            steps += points.solve(newton_round, SQUARED, penalty, w, ratio / top, 1e-3, 0, Given(None, 1e-3, 0)).steps
        return steps

    assert solution() > 2  # its kernels are compiled now
    tracemalloc.start()
    solution()
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    pieces, kept = 100_000, METHODS["newglmnet"].collected
    planned = entries * kept.entry + n_rows * kept.row + n * kept.column
    assert 0.3 * planned < taken <= planned + pieces
