"""The squared loss with L1, L2 and elastic net: Lasso, ridge and their mixture on columns that reads collect."""

import numpy as np
import pytest
import scipy.sparse as sp
from making import random_rows, shards_of
from sklearn.linear_model import ElasticNet, Lasso, LinearRegression, Ridge
from test_newglmnet import a_few_columns_at_a_time

import bigclf
from bigclf import LinearRegressor
from bigclf.api.fit import fit
from bigclf.maths.losses import SQUARED
from bigclf.methods import resolve
from bigclf.methods.method import in_turn
from bigclf.methods.steps.columns import Columns, Penalty
from bigclf.methods.steps.proximal_newton import newton_round, solve

N, D = 200, 40
BASE = dict(algo="newglmnet", loss="squared", progress=False)


def rows_of_numbers(seed=0, constant=False, level=20.0):
    """CSR float32 [N, D] and numbers far from 0, which a few of the features explain but for some noise."""
    rng = np.random.default_rng(seed)
    x, _ = random_rows(N, D, 0.3, seed=seed, constant=constant)
    rule = np.where(np.arange(D) < 8, rng.standard_normal(D) * 3, 0.0)
    return x, level + x @ rule + rng.standard_normal(N)


def gap_by_numpy(x, y, w, b, C, l1, weights, bias):
    """(P, the gap) by dense sums, as scikit-learn has them: the residual, scaled until it is feasible, is the dual
    point; with a free bias it is centred before."""
    x, c, l2 = np.asarray(x.todense(), np.float64), C * weights, 1 - l1
    r = c * (y - x @ w - b)
    if bias == "free":
        r -= c * (r.sum() / c.sum())
    elif bias == "feature":
        x, w = np.hstack([x, np.ones((len(y), 1))]), np.append(w, b)
    primal = (
        l1 * np.abs(w).sum() + 0.5 * l2 * (w @ w) + 0.5 * (c * (y - x @ w - (b if bias == "free" else 0)) ** 2).sum()
    )
    u = np.abs(x.T @ r)
    scale = min(1.0, l1 / u.max()) if l2 == 0 else 1.0
    shown = np.where(c > 0, (scale * r) ** 2 / np.maximum(2 * c, 1e-300), 0.0)
    dual = scale * (y @ r) - shown.sum()
    if l2 > 0:
        dual -= (np.maximum(0, u - l1) ** 2).sum() / (2 * l2)
    return primal, primal - dual


@pytest.mark.parametrize("algo", ["newglmnet", "cdn"])
@pytest.mark.parametrize("l1", [1.0, 0.4])
@pytest.mark.parametrize("bias", ["none", "free"])
def test_lasso_and_elastic_net_are_those_of_scikit_learn(algo, l1, bias):
    """alpha = 1 / (n C): ``Lasso`` and ``ElasticNet`` divide all by C n. Row weights are made to sum up to n there."""
    x, y = rows_of_numbers(seed=1)
    weights = np.random.default_rng(0).choice([0.0, 0.5, 2.0], N)
    shape = {"penalty": "l1"} if l1 == 1 else {"penalty": "elastic_net", "l1_ratio": l1}
    model = fit(x, y, C=0.05, bias=bias, sample_weight=weights, tol=1e-13, **BASE | shape | {"algo": algo})
    exact = dict(fit_intercept=bias == "free", tol=1e-14, max_iter=100_000)
    alpha = 1 / (weights.sum() * 0.05)
    peer = Lasso(alpha=alpha, **exact) if l1 == 1 else ElasticNet(alpha=alpha, l1_ratio=l1, **exact)
    peer.fit(x.toarray().astype(np.float64), y, sample_weight=weights)
    assert model.result_.converged and model.regression
    np.testing.assert_allclose(model.coef_[0], peer.coef_, atol=3e-6)
    np.testing.assert_array_equal(np.abs(model.coef_[0]) > 1e-8, np.abs(peer.coef_) > 1e-8)
    assert model.intercept_[0] == pytest.approx(peer.intercept_, abs=3e-6)
    assert 0 < np.count_nonzero(model.coef_) < D


@pytest.mark.parametrize("bias", ["none", "free", "feature"])
@pytest.mark.parametrize("l1", [1.0, 0.5])
def test_each_certificate_is_what_numpy_finds(bias, l1):
    x, y = rows_of_numbers(seed=2)
    weights = np.random.default_rng(0).choice([0.5, 2.0], N)
    shape = {"penalty": "l1"} if l1 == 1 else {"penalty": "elastic_net", "l1_ratio": l1}
    options = BASE | shape | dict(C=0.02, bias=bias, sample_weight=weights)
    best = fit(x, y, tol=1e-13, **options).result_.certificate["primal"]
    for tol in (1e-1, 1e-3, 1e-6):
        model = fit(x, y, tol=tol, **options)
        found = model.result_.certificate
        primal, gap = gap_by_numpy(x, y, model.coef_[0], float(model.intercept_[0]), 0.02, l1, weights, bias)
        assert found["primal"] == pytest.approx(primal, rel=1e-12)
        assert found["dual"] <= best * (1 + 1e-12) and found["primal"] - found["dual"] <= tol * primal
        assert -1e-12 * primal <= gap <= 2 * tol * primal


@pytest.mark.parametrize("algo", ["newton", "newton_dense", "tron", "lbfgs"])
def test_l2_is_ridge_regression(algo):
    """alpha = 1 / C; with a free bias scikit-learn's intercept."""
    x, y = rows_of_numbers(seed=3)
    weights = np.random.default_rng(0).choice([0.0, 0.5, 2.0], N)
    exact = x.toarray().astype(np.float64)
    for bias in ("none", "free"):
        model = fit(x, y, algo=algo, loss="squared", C=0.2, bias=bias, sample_weight=weights, tol=1e-12, progress=False)
        peer = Ridge(alpha=5.0, fit_intercept=bias == "free", solver="cholesky").fit(exact, y, sample_weight=weights)
        np.testing.assert_allclose(model.coef_[0], peer.coef_, atol=2e-5)
        assert model.intercept_[0] == pytest.approx(peer.intercept_, abs=2e-5)
        assert model.result_.certificate["gap"] <= 1e-12


def test_rows_in_memory_begin_with_steep_columns_alone(tmp_path):
    """Where these have few of the entries; what streams by is collected at once, as far as there is room."""
    x, y = rows_of_numbers(seed=13, level=0.0)
    options = BASE | dict(penalty="l1", bias="none", tol=1e-12)

    def collected(C, **more):
        model = fit(shards_of(tmp_path / f"{C} {more}", x, y, chunk_nnz=300, real=True), C=C, **options | more)
        exact = Lasso(alpha=1 / (N * C), fit_intercept=False, tol=1e-14, max_iter=100_000)
        np.testing.assert_allclose(model.coef_[0], exact.fit(x.toarray().astype(np.float64), y).coef_, atol=3e-6)
        return [row["entries"] for row in model.result_.history if "entries" in row]

    slopes = 0.01 * np.abs(x.T @ y)
    steep = int(np.diff(x.tocsc().indptr)[slopes >= 0.8].sum())
    assert collected(0.01)[0] == steep < x.nnz / 2
    assert collected(0.05)[0] == collected(0.01, memory="12.2MB")[0] == x.nnz


def test_the_scale_of_labels_has_no_part_in_it():
    """Numbers a million times as large, with C a millionth: the same weights but for that scale."""
    x, y = rows_of_numbers(seed=4)
    for bias in ("free", "none"):
        options = BASE | dict(penalty="l1", bias=bias, tol=1e-12)
        plain = fit(x, y, C=0.1, **options)
        for scale in (2.0**-20, 2.0**20):
            other = fit(x, y * scale, C=0.1 / scale, **options)
            assert other.result_.converged
            np.testing.assert_allclose(other.coef_ / scale, plain.coef_, rtol=1e-5, atol=1e-7)


def test_groups_rows_that_stream_by_and_a_few_columns_at_a_time_come_to_the_same_answer(tmp_path, monkeypatch):
    x, y = rows_of_numbers(seed=5)
    data = shards_of(tmp_path / "shards", x, y, chunk_nnz=300, real=True)
    options = BASE | dict(penalty="elastic_net", l1_ratio=0.7, C=0.1, bias="free", tol=1e-11)
    alone = fit(data, **options)
    np.testing.assert_array_equal(fit(x, y, **options).coef_, alone.coef_)
    apart = fit(data, groups=4, **options)
    np.testing.assert_allclose(apart.coef_, alone.coef_, atol=1e-8)
    np.testing.assert_array_equal(apart.coef_ != 0, alone.coef_ != 0)
    seen = a_few_columns_at_a_time(monkeypatch, x.nnz // 4)
    pieces = fit(data, **options)
    assert sum(seen) > 2
    np.testing.assert_allclose(pieces.coef_, alone.coef_, atol=1e-5)


def test_a_run_taken_up_again_equals_one_that_never_stopped(tmp_path, quiet):
    x, y = rows_of_numbers(seed=6)
    data = shards_of(tmp_path / "shards", x, y, chunk_nnz=300, real=True)
    options = BASE | dict(penalty="l1", C=0.1, bias="free", tol=1e-11, groups=2)
    straight = fit(data, **options)
    for epochs in (1, 2):
        fit(data, run_dir=tmp_path / str(epochs), epochs=epochs, **options)
        resumed = fit(data, run_dir=tmp_path / str(epochs), resume=True, **options)
        np.testing.assert_array_equal(resumed.coef_, straight.coef_)
        assert resumed.result_.certificate == straight.result_.certificate


def test_rows_of_one_value_and_rows_written_out_are_solved_alike():
    one, y = rows_of_numbers(seed=7, constant=True)
    mixed = sp.vstack([one, sp.csr_matrix(one[:1] + sp.eye(1, D))]).tocsr().astype(np.float32)  # written out at its end
    for x, numbers in ((one, y), (mixed, np.append(y, 1.0))):
        for bias in ("free", "none"):
            model = fit(x, numbers, penalty="l1", C=0.05, bias=bias, tol=1e-13, **BASE)
            alpha = 1 / (len(numbers) * 0.05)
            peer = Lasso(alpha=alpha, fit_intercept=bias == "free", tol=1e-14, max_iter=100_000)
            peer.fit(x.toarray().astype(np.float64), numbers)
            np.testing.assert_allclose(model.coef_[0], peer.coef_, atol=3e-6)


@pytest.mark.parametrize("l1", [1.0, 0.5])
def test_the_gap_over_columns_in_memory_is_what_numpy_finds(l1):
    x, y = rows_of_numbers(seed=8, level=0.0)
    csc = x.tocsc()
    columns = Columns(
        csc.indptr.astype(np.int64), csc.indices.astype(np.uint32), csc.data, abs(csc).max(axis=0).toarray()[0], y,
        np.ones(N), np.empty(0), np.full(N, 0.1), np.zeros(N),
    )  # fmt: skip
    w = np.zeros(D + 1)
    found = solve(newton_round, SQUARED, columns, Penalty(l1, 1 - l1, 0.0, False), w, 1e-4, 0, both=in_turn)
    primal, gap = gap_by_numpy(x, y, w[:-1], 0.0, 0.1, l1, np.ones(N), "none")
    assert found.primal == pytest.approx(primal, rel=1e-12) and found.gap <= 1e-4 * primal
    assert found.gap == pytest.approx(gap, rel=1e-6, abs=1e-12 * primal)
    np.testing.assert_allclose(columns.margins, x @ w[:-1], atol=1e-9)


def test_a_path_is_as_many_fits_and_each_value_has_its_gap(tmp_path):
    x, y = rows_of_numbers(seed=9)
    data = shards_of(tmp_path / "shards", x, y, chunk_nnz=300, real=True)
    values = [1.0, 0.003, 0.1, 0.02]
    for shape in ({}, {"penalty": "elastic_net", "l1_ratio": 0.5}, {"penalty": "l2"}):
        found = bigclf.path(
            data, C=values, algo="auto", loss="squared", bias="free", tol=1e-10, progress=False, **shape
        )
        method = "newton" if shape.get("penalty") == "l2" else "newglmnet"
        assert found.converged and found.coefs_.shape == (4, 1, D)
        assert {model.method["name"] for model in found.models} == {method}
        np.testing.assert_array_equal(found.C, sorted(values))
        if method == "newglmnet":  # the read that certifies an answer says which columns the next one may need
            assert all(row["epochs"] % 2 == 0 for row in found.table[1:])
        for row, model in zip(found.table, found.models, strict=True):
            alone = fit(data, C=row["C"], bias="free", tol=1e-10, **BASE | {"penalty": "l1"} | shape | {"algo": method})
            np.testing.assert_allclose(model.coef_, alone.coef_, atol=1e-4)
            assert row["nonzero"] == np.count_nonzero(alone.coef_) and row["gap"] <= 1e-10
            if method == "newglmnet":
                l1 = shape.get("l1_ratio", 1.0)
                given = x, y, model.coef_[0], float(model.intercept_[0]), row["C"], l1, np.ones(N), "free"
                primal, gap = gap_by_numpy(*given)
                assert row["objective"] == pytest.approx(primal, rel=1e-12) and gap <= 1e-9 * primal
    first = bigclf.path(data, C=[1e-9], loss="squared", bias="free", tol=1e-12, progress=False)
    assert first.table[0]["nonzero"] == 0 and first.models[0].intercept_[0] == pytest.approx(y.mean(), rel=1e-6)


@pytest.mark.parametrize("penalty", ["l1", "elastic_net"])
def test_the_estimator_has_penalties(penalty):
    x, y = rows_of_numbers(seed=10)
    mine = LinearRegressor(penalty=penalty, C=0.05, bias="free", tol=1e-12).fit(x, y)
    told = mine.model_.method
    assert (told["name"], told["loss"], told["penalty"]) == ("newglmnet", "squared", penalty)
    exact = dict(alpha=1 / (N * 0.05), tol=1e-14, max_iter=100_000)
    peer = Lasso(**exact) if penalty == "l1" else ElasticNet(l1_ratio=0.5, **exact)
    dense = x.toarray().astype(np.float64)
    np.testing.assert_allclose(mine.predict(x), peer.fit(dense, y).predict(dense), atol=1e-5)
    assert mine.score(x, y) == pytest.approx(peer.score(dense, y), abs=1e-6)
    other = LinearRegressor("auto", penalty=penalty, C=0.05, bias="free", tol=1e-12).fit(x, y)
    np.testing.assert_array_equal(other.coef_, mine.coef_)
    assert LinearRegressor("auto", tol=1e-9).fit(x, y).model_.method["loss"] == "epsilon_insensitive"
    assert LinearRegressor().fit(x, y).model_.method["name"] == "dcd"


def test_a_large_c_comes_to_least_squares():
    x, y = rows_of_numbers(seed=11)
    exact = LinearRegression().fit(x.toarray().astype(np.float64), y)
    mine = LinearRegressor(penalty="l1", C=1e7, bias="free", tol=1e-9).fit(x, y)
    np.testing.assert_allclose(mine.coef_, exact.coef_, atol=1e-4)


def test_what_makes_no_sense_is_refused():
    x, y = rows_of_numbers(seed=12)
    with pytest.raises(ValueError, match="loss='squared' is not a loss of algo='dcd'"):
        resolve("dcd", "squared", None, None, {})
    with pytest.raises(ValueError, match="penalty='l1' is not available with algo='newton'"):
        LinearRegressor("newton", penalty="l1").fit(x, y)
    with pytest.raises(ValueError, match="penalty='l2' is not available with algo='newglmnet'"):
        bigclf.path(x, y, C=[1.0], algo="newglmnet", loss="squared", penalty="l2", progress=False)
    with pytest.raises(TypeError, match="epsilon has no effect with algo='newglmnet'"):
        LinearRegressor(penalty="l1", epsilon=0.1).fit(x, y)
    with pytest.raises(TypeError, match="class_weight has no effect with loss='squared'"):
        fit(x, y, penalty="l1", class_weight="balanced", **BASE)
    with pytest.raises(ValueError, match="loss='epsilon_insensitive' is not a loss of algo='newglmnet'"):
        LinearRegressor(penalty="l1", loss="epsilon_insensitive").fit(x, y)
