"""``standardize``: L1 and elastic net of columns divided by their standard deviations, which are never written down."""

import numpy as np
import pytest
import scipy.sparse as sp
from making import block_of, interrupted_after, random_rows, shards_of
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression
from test_newglmnet import a_few_columns_at_a_time, naive
from test_squared_loss_on_columns import gap_by_numpy

import bigclf
from bigclf.api.fit import fit
from bigclf.maths.losses import SQUARED
from bigclf.methods.steps import newglmnet, standard_columns
from bigclf.methods.steps.standard_columns import find_factors

N, D = 160, 30
SAME, ONE_VALUE, NOTHING, HIGH = D, D + 1, D + 2, D + 3  # columns: that of 2 again, 3.3 everywhere, zeros, 100 +- 1
BASE = dict(algo="newglmnet", standardize=1, progress=False)
STREAMED = "12.6MB"  # too little to keep the rows


def rows(seed=0, high=100.0):
    """CSR float32 in units far apart, sparse but for two columns; numbers that eight of them explain; row weights."""
    rng = np.random.default_rng(seed)
    x = random_rows(N, D, 0.3, seed=seed)[0].multiply(np.exp(2 * rng.standard_normal(D))).tocsr()
    last = high + rng.choice([-1.0, 1.0], (N, 1))
    x = sp.hstack([x, x[:, [2]], np.full((N, 1), 3.3), sp.csr_matrix((N, 1)), last]).tocsr().astype(np.float32)
    y = 20 + x[:, :8] @ (rng.standard_normal(8) / deviations(x)[:8] * 3) + 2 * (last[:, 0] - high)
    return x, y + rng.standard_normal(N), rng.choice([0.0, 0.5, 2.0], N)


def deviations(x, weights=None):
    """float64: by two passes over the dense rows; 0 of a column of one value."""
    x, c = x.toarray().astype(np.float64), np.ones(x.shape[0]) if weights is None else weights
    s = np.sqrt(c @ (x - c @ x / c.sum()) ** 2 / c.sum())
    return np.where(np.ptp(x[c > 0], axis=0) > 0, s, 0.0)


def scaled(x, s):
    return sp.csr_matrix(x.astype(np.float64) @ sp.diags(np.where(s > 0, 1 / np.where(s > 0, s, 1.0), 0.0)))


def together(v):
    """Which of two equal columns has the weight is open."""
    v = v.reshape(-1).copy()
    v[2] += v[SAME]
    return np.delete(v, SAME)


def shape_of(l1):
    return {"penalty": "l1"} if l1 == 1 else {"penalty": "elastic_net", "l1_ratio": l1}


@pytest.mark.parametrize("l1", [1.0, 0.4])
@pytest.mark.parametrize("bias", ["none", "free"])
@pytest.mark.parametrize("algo", ["newglmnet", "cdn"])
def test_the_squared_loss_on_columns_of_deviation_1_is_scikit_learn_s(algo, bias, l1):
    """... and its certificates are what numpy finds on columns that were divided."""
    x, y, weights = rows(seed=1, high=5.0)
    s = deviations(x, weights)
    options = BASE | shape_of(l1) | dict(algo=algo, loss="squared", C=0.05, bias=bias, sample_weight=weights)
    model = fit(x, y, tol=1e-12, **options)
    exact = dict(fit_intercept=bias == "free", tol=1e-14, max_iter=100_000, alpha=1 / (weights.sum() * 0.05))
    peer = Lasso(**exact) if l1 == 1 else ElasticNet(l1_ratio=l1, **exact)
    peer.fit(scaled(x, s).toarray(), y, sample_weight=weights)
    np.testing.assert_allclose(together(model.coef_ * s), together(peer.coef_), atol=1e-5)
    assert model.intercept_[0] == pytest.approx(peer.intercept_, abs=1e-4)
    assert np.all(model.coef_[0, [ONE_VALUE, NOTHING]] == 0) and model.coef_[0, HIGH] != 0
    assert l1 < 1 or 0 < np.count_nonzero(model.coef_) < D
    best = model.result_.certificate["primal"]
    for tol in (1e-1, 1e-4):
        rough = fit(x, y, tol=tol, **options)
        told, v = rough.result_.certificate, rough.coef_[0] * s
        primal, gap = gap_by_numpy(scaled(x, s), y, v, float(rough.intercept_[0]), 0.05, l1, weights, bias)
        assert told["primal"] == pytest.approx(primal, rel=1e-10)
        assert told["dual"] <= best * (1 + 1e-11) and told["primal"] - told["dual"] <= tol * primal
        assert -1e-12 * primal <= gap <= 2 * tol * primal


@pytest.mark.parametrize(
    ("algo", "loss", "bias", "l1"),
    [("newglmnet", "logistic", "free", 1.0), ("newglmnet", "logistic", "feature", 0.4),
     ("newglmnet", "squared_hinge", "free", 0.6), ("cdn", "logistic", "feature", 1.0)],
)  # fmt: skip
def test_of_signs_the_answer_meets_the_optimality_conditions_of_columns_that_were_divided(algo, loss, bias, l1):
    x, y, weights = rows(seed=2, high=5.0)
    s, signs = deviations(x, weights), np.where(y > 20, 1, -1)
    options = BASE | shape_of(l1) | dict(algo=algo, loss=loss, bias=bias, C=0.7, sample_weight=weights)
    model = fit(x, signs, tol=1e-13 if algo == "newglmnet" else 2e-14, **options)
    rough = fit(x, signs, tol=1e-2, **options).result_.certificate
    v, b = model.coef_[0] * s, model.intercept_[0]
    primal, far = naive(scaled(x, s), signs, weights, v, b, loss, l1, 0.7, bias == "feature")
    found = model.result_.certificate
    assert found["primal"] == pytest.approx(primal, rel=1e-10) and far < 1e-5 and found["violation"] < 1e-5
    assert rough["dual"] <= primal * (1 + 1e-12) and primal <= rough["primal"]


def test_signs_with_l1_are_liblinear_s():
    x, y, _ = rows(seed=3, high=5.0)
    x, signs = x[:, :D], np.where(y > 20, 1, -1)
    s = deviations(x)
    peer = LogisticRegression(C=0.3, l1_ratio=1, solver="liblinear", fit_intercept=False, tol=1e-10, max_iter=10_000)
    peer.fit(scaled(x, s), signs)
    dense = x.toarray()
    for given in (x, dense, np.asfortranarray(dense)):
        model = fit(given, signs, loss="logistic", penalty="l1", C=0.3, bias=None, tol=1e-12, **BASE)
        np.testing.assert_allclose(model.coef_ * s, peer.coef_, atol=1e-5)


def test_rows_that_stay_rows_that_stream_by_and_groups_come_to_the_same(tmp_path, monkeypatch):
    x, y, _ = rows(seed=4, high=1e4)  # so far from 0 that the sums are made twice
    data = shards_of(tmp_path / "shards", x, y, chunk_nnz=300, real=True)
    options = BASE | dict(loss="squared", penalty="elastic_net", l1_ratio=0.7, C=0.1, bias="free", tol=1e-9)
    alone = fit(data, **options)
    np.testing.assert_array_equal(fit(x, y, **options).coef_, alone.coef_)
    streamed = fit(data, memory=STREAMED, **options)
    assert alone.result_.plan["resident"] and not streamed.result_.plan["resident"]
    s = deviations(x)
    for other in (streamed, fit(data, groups=2, **options), fit(data, dtype="float32", **options | {"tol": 1e-6})):
        close = 1e-2 if other.weights.dtype == np.float32 else 1e-4
        np.testing.assert_allclose(together(other.coef_ * s), together(alone.coef_ * s), atol=close)
    seen = a_few_columns_at_a_time(monkeypatch, x.nnz // 4)
    np.testing.assert_allclose(together(fit(data, **options).coef_ * s), together(alone.coef_ * s), atol=1e-3)
    assert sum(seen) > 3


@pytest.mark.parametrize("groups", [1, 2])
def test_a_run_taken_up_again_equals_one_that_never_stopped(tmp_path, groups):
    """After the first read, around 0, the second, around the means, and so on."""
    x, y, _ = rows(seed=5, high=1e4)
    data = shards_of(tmp_path / "shards", x, y, chunk_nnz=200, real=True)
    options = BASE | dict(loss="squared", penalty="l1", C=0.1, tol=1e-8, groups=groups, memory=STREAMED)
    straight = fit(data, **options)
    assert straight.result_.epochs >= 4
    for reads in range(1, straight.result_.epochs):
        with interrupted_after(reads):
            fit(data, run_dir=bigclf.RunDir(tmp_path / str(reads), 0), **options)
        resumed = fit(data, run_dir=tmp_path / str(reads), resume=True, **options)
        np.testing.assert_array_equal(resumed.coef_, straight.coef_)
        assert resumed.result_.certificate == straight.result_.certificate


def test_a_path_is_as_many_fits(tmp_path):
    """With the squared loss the points share reads, and one is stopped and taken up again."""
    x, y, _ = rows(seed=6, high=1e4)
    data = shards_of(tmp_path / "shards", x, y, chunk_nnz=300, real=True)
    s, tol = deviations(x), 1e-8  # 1e4 is squared in sums: what a gap may fall to differs by processor, 1e-9 or 3e-9
    for loss, values in (("squared", np.geomspace(1e-4, 1e-1, 6)), ("logistic", [0.02, 0.3])):
        given = (data,) if loss == "squared" else (x, np.where(y > 20, 1, -1))
        options = BASE | dict(loss=loss, penalty="l1", bias="free", tol=tol)
        found = bigclf.path(*given, C=values, **options)
        assert found.converged
        for stopped in (1, 3):
            place = tmp_path / f"{loss} {stopped}"
            with interrupted_after(stopped):
                bigclf.path(*given, C=values, run_dir=bigclf.RunDir(place, 0), **options)
            again = bigclf.path(*given, C=values, run_dir=place, resume=True, **options)
            np.testing.assert_array_equal(again.coefs_, found.coefs_)
        for row, model in zip(found.table, found.models, strict=True):
            alone = fit(*given, C=row["C"], **options)
            assert row["objective"] == pytest.approx(alone.result_.certificate["primal"], rel=2 * tol)
            np.testing.assert_allclose(together(model.coef_ * s), together(alone.coef_ * s), atol=1e-3)
            if loss == "squared":
                v, b = model.coef_[0] * s, float(model.intercept_[0])
                primal, gap = gap_by_numpy(scaled(x, s), y, v, b, row["C"], 1.0, np.ones(N), "free")
                assert row["objective"] == pytest.approx(primal, rel=1e-7) and gap <= 1e-6 * primal


def test_the_first_weight_of_a_path_is_that_of_the_steepest_column_that_was_divided():
    x, y, _ = rows(seed=7, high=5.0)
    s = deviations(x)
    first = 1 / np.abs(scaled(x, s).T @ (y - y.mean())).max()
    options = BASE | dict(loss="squared", penalty="l1", bias="free", tol=1e-9)
    found = bigclf.path(x, y, C=[0.999 * first, 1.01 * first], **options)
    assert [row["nonzero"] > 0 for row in found.table] == [False, True]


def summed(x, weights, parts, shared):
    """The sums of a read of the rows in so many groups, added up."""
    kernel = newglmnet.sums(SQUARED)
    for order in np.array_split(np.arange(x.shape[0]), parts):
        own = shared._replace(**{name: np.zeros_like(getattr(shared, name)) for name in newglmnet.SUMS})
        block = block_of(x, np.zeros(x.shape[0]))._replace(weights=weights)
        kernel(block, order, own, (), newglmnet.Params(1.0, 1.0, 1.0, 1.0, 0.0), np.empty(0))
        for name in newglmnet.SUMS:
            np.add(getattr(shared, name), getattr(own, name), out=getattr(shared, name))
    return find_factors(shared)


@pytest.mark.parametrize("parts", [1, 3])
def test_deviations_are_exact_however_far_the_mean_is(parts, monkeypatch):
    monkeypatch.setattr(standard_columns, "PART", 3)
    rng = np.random.default_rng(0)
    steps = rng.choice([-1.0, 1.0], 500)
    x = np.column_stack([1e6 + steps, 1e6 + (np.arange(500) == 7) / 16, 1e-3 * steps, np.full(500, 0.1),
                         np.where(np.arange(500) % 5 == 0, 1e6, 0), np.zeros(500), -3e6 + 0.25 * steps])  # fmt: skip
    x, weights = sp.csr_matrix(x.astype(np.float32)), rng.choice([0.3, 0.7, 2.1], 500)
    shared = newglmnet.begin(7, "float64", {"standardize": 1})
    assert not summed(x, weights, parts, shared) and not shared.counts.any()  # some are too far from 0
    assert summed(x, weights, parts, shared)
    s = deviations(x, weights)
    assert s[0] == pytest.approx(1, abs=0.01) and np.flatnonzero(s == 0).tolist() == [3, 5]
    np.testing.assert_allclose(shared.factors[:-1] * s, np.where(s > 0, 1.0, 0.0), rtol=1e-9)
    np.testing.assert_array_equal(shared.counts[:-1], np.where(s > 0, np.diff(x.tocsc().indptr), 0))
    near = newglmnet.begin(1, "float64", {"standardize": 1})
    assert summed(x[:, [2]], weights, parts, near)  # one read is enough
    assert near.factors[0] == pytest.approx(1 / s[2], rel=1e-12)


def test_a_column_a_million_from_0_beside_a_free_bias():
    x, y, _ = rows(seed=8, high=1e6)
    near = rows(seed=8, high=0.0)[0]
    options = BASE | dict(loss="squared", penalty="l1", C=0.1, bias="free")
    far, exact = fit(x, y, tol=1e-6, **options), fit(near, y, tol=1e-10, **options)
    assert far.result_.converged
    s = deviations(near)
    np.testing.assert_allclose(together(far.coef_ * s), together(exact.coef_ * s), atol=0.01)


def test_weights_that_a_run_begins_with_are_dropped_where_a_column_has_one_value():
    x, y, _ = rows(seed=9, high=5.0)
    options = BASE | dict(loss="squared", penalty="elastic_net", C=0.1, bias="none", tol=1e-10)
    before = fit(x, y, **options | {"standardize": 0})
    assert before.coef_[0, ONE_VALUE] != 0
    again, anew = fit(x, y, init=before, **options), fit(x, y, **options)
    assert again.coef_[0, ONE_VALUE] == 0
    np.testing.assert_allclose(again.coef_, anew.coef_, rtol=1e-3, atol=1e-4)


def test_it_is_taken_as_other_parameters_are():
    x, y, _ = rows(seed=10, high=5.0)
    options = dict(algo="newglmnet", loss="squared", penalty="l1", progress=False)
    plain = fit(x, y, **options)
    for off in (0, False):
        np.testing.assert_array_equal(fit(x, y, standardize=off, **options).coef_, plain.coef_)
    on = fit(x, y, standardize=True, **options)
    assert not np.array_equal(on.coef_, plain.coef_)
    estimator = bigclf.LinearRegressor(penalty="l1", standardize=1).fit(x, y)
    np.testing.assert_array_equal(estimator.coef_, on.coef_[0])
    grids = [{"standardize": which, "C": [0.01, 1.0]} for which in ([0], [0, 1], [1, 0], [1])]
    found = [bigclf.sweep(x, y, grid=grid, folds=2, **options) for grid in grids]
    assert [len(one.table) for one in found] == [2, 4, 4, 2]
    assert all(list(one.at_edge()) == ["C"] for one in found)  # there is nothing beyond 0 and 1
    off, *mixed, on = [one.plan["memory"]["state"] / len(one.table) for one in found]
    assert off < on == mixed[0] == mixed[1]  # a state is planned that has room for what any of them keeps
    refused = "standardize has no effect with algo='dcd': it is a parameter of newglmnet, cdn"
    with pytest.raises(TypeError, match=refused):
        fit(x, y, algo="dcd", loss="squared_epsilon_insensitive", standardize=1)
    with pytest.raises(ValueError, match="standardize=2 is outside its bounds: 0 <= standardize <= 1"):
        fit(x, y, standardize=2, **options)
