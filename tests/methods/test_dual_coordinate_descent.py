"""Dual coordinate descent: optimality, the certificate, weights, and the bits of a loop anyone can read."""

import math
from fractions import Fraction

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from making import Case, block_of, dense, learn, random_rows, shards_of
from scipy.optimize import brentq
from scipy.special import entr, expit
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from bigclf.api.fit import fit
from bigclf.compiled.jit import kernel, random_state, shuffle_runs
from bigclf.maths.losses import LOGISTIC, REGRESSION, TUBES, plain
from bigclf.maths.losses import LOSSES as LOSSES_BY_NAME
from bigclf.methods.dual import dual_coordinate_descent as module
from bigclf.training.records.run_directory import RunDirectory

LOSSES = ("hinge", "squared_hinge", "logistic")
every_loss = pytest.mark.parametrize("loss", LOSSES)
biases = pytest.mark.parametrize("bias", [None, "feature"], ids=["no bias", "bias"])
D = 30


EPSILON = 0.1


def signs(loss, y):
    """s_i in w = sum_i s_i alpha_i x_i."""
    return np.ones(len(y)) if loss in REGRESSION else y


def loss_of(loss, m):
    if loss == "logistic":
        return np.logaddexp(0.0, -m)
    slack = np.maximum(0.0, 1.0 - m)
    return slack if loss == "hinge" else slack**2


def primal(x, y, w, loss, c):
    """1/2 ||w||^2 + sum_i C_i loss(y_i w.x_i), with numpy's own sums; of a regression the loss is of y_i - w.x_i."""
    if loss in REGRESSION:
        out = np.maximum(0.0, np.abs(y - x @ w) - EPSILON)
        return 0.5 * w @ w + (c * (out if loss == "epsilon_insensitive" else out**2)).sum()
    return 0.5 * w @ w + (c * loss_of(loss, y * (x @ w))).sum()


def dual(x, y, alpha, loss, c):
    """sum_i (alpha_i - D_i alpha_i^2 / 2) - 1/2 ||sum_i alpha_i y_i x_i||^2 (Hsieh et al. 2008, problem 2); of the
    logistic loss the entropies are summed (Yu, Huang, Lin 2011, equation 3, less a constant)."""
    v = x.T @ (alpha * signs(loss, y))
    if loss in REGRESSION:  # Ho and Lin 2012, problem 5
        extra = 0.0 if loss == "epsilon_insensitive" else (alpha**2 / (4 * c)).sum()
        return y @ alpha - EPSILON * np.abs(alpha).sum() - extra - 0.5 * v @ v
    if loss == "logistic":
        return (c * (entr(alpha / c) + entr(1 - alpha / c))).sum() - 0.5 * v @ v
    extra = 0.0 if loss == "hinge" else (alpha**2 / (4 * c)).sum()
    return alpha.sum() - extra - 0.5 * v @ v


def extended(x, bias):
    x = x.toarray().astype(float) if sp.issparse(x) else np.asarray(x, float)
    return np.hstack([x, np.full((x.shape[0], 1), 1.0 if bias else 0.0)])


def optimum(x, y, loss, C=1.0, weights=None, bias=None):
    """The optimal objective, by scikit-learn's LinearSVC (or its Newton method) run to its end."""
    if loss == "logistic":  # with bias: a column of ones, regularised as the others
        x = sp.hstack([x, np.ones((x.shape[0], 1))]).tocsr() if bias else x
        machine = LogisticRegression(C=C, solver="newton-cholesky", tol=1e-12, fit_intercept=False, max_iter=1000)
        machine.fit(x.astype(np.float64), y, sample_weight=weights)
        w = machine.coef_[0] if bias else np.append(machine.coef_[0], 0.0)
        return primal(extended(x, True) if not bias else x.toarray(), y, w, loss, C if weights is None else C * weights)
    machine = LinearSVC(loss=loss, C=C, dual=True, tol=1e-10, max_iter=10**6, fit_intercept=bool(bias))
    machine.fit(x.astype(np.float64), y, sample_weight=weights)
    w = np.append(machine.coef_[0], machine.intercept_[0] if bias else 0.0)
    c = C * (np.ones(len(y)) if weights is None else weights)
    return primal(extended(x, bias), y, w, loss, c)


def alphas(directory):
    """The dual variables that the run's last checkpoint holds."""
    return RunDirectory(directory).newest(1).rows[0]["0.0.rows.alpha"]


# The optimum


@every_loss
@biases
@pytest.mark.parametrize("C", [0.1, 1.0, 10.0])
def test_the_solution_fulfils_the_optimality_conditions(loss, bias, C):
    """0 < alpha_i < U_i only where the gradient is 0; alpha_i = 0 only where it is >= 0; alpha_i = U_i only <= 0."""
    case = Case("dcd", loss)
    x, y = random_rows(80, D, noise=1.0)
    block = block_of(x, y)
    state, rng = case.state(D, 80), np.random.default_rng(0)
    for _ in range(3000):
        *_, counts, _ = learn(case, block, D, rng.permutation(80), state, bias=bias, C=C)
        if counts.updates == 0:
            break
    (shared,), (alpha,) = state
    rows = extended(x, bias)
    np.testing.assert_allclose(shared, rows.T @ (alpha * y), atol=1e-10)  # w is what the dual variables say
    if loss == "logistic":  # the entropy keeps every row inside: ln(alpha / (C - alpha)) = -m
        np.testing.assert_allclose(np.log(alpha / (C - alpha)), -y * (rows @ shared), atol=1e-8)
        return
    gradient = y * (rows @ shared) - 1 + (0.0 if loss == "hinge" else alpha / (2 * C))
    upper = C if loss == "hinge" else np.inf
    inside = (alpha > 0) & (alpha < upper)
    assert 5 < inside.sum() < 80 and (alpha >= 0).all() and (alpha <= upper).all()
    assert np.abs(gradient[inside]).max() < 1e-8
    assert gradient[alpha == 0].min(initial=0) > -1e-8 and gradient[alpha == upper].max(initial=0) < 1e-8


@every_loss
@biases
@pytest.mark.parametrize("C", [0.03, 1.0, 20.0])
def test_the_objective_is_scikit_learn_s(loss, bias, C):
    x, y = random_rows(150, D, noise=1.0)
    model = fit(x, y, loss=loss, bias=bias, C=C, tol=1e-9, progress=False)
    best = optimum(x, y, loss, C, bias=bias)
    w = np.append(model.coef_[0], model.intercept_[0])
    assert primal(extended(x, bias), y, w, loss, C) == pytest.approx(best, rel=1e-6, abs=0)
    assert model.result_.certificate["primal"] == pytest.approx(best, rel=1e-6, abs=0)
    assert bias or model.intercept_[0] == 0


@every_loss
def test_the_gap_is_never_negative_and_falls_to_the_tolerance(loss):
    x, y = random_rows(200, D, noise=1.0)
    model = fit(x, y, loss=loss, tol=1e-8, inner_rounds=0, progress=False)
    records = [r for r in model.result_.history if "gap" in r]
    gaps = [record["gap"] for record in records]
    assert model.result_.converged and model.result_.certificate["gap"] <= 1e-8
    assert all(0 <= b <= a for a, b in zip(gaps, gaps[1:], strict=False))
    best = optimum(x, y, loss, bias="feature")
    for record in records:
        assert record["dual"] <= best * (1 + 1e-9) and record["objective"] >= best * (1 - 1e-9)
        assert record["gap"] == pytest.approx((record["objective"] - record["dual"]) / record["objective"], abs=1e-15)


@every_loss
@biases
@pytest.mark.parametrize("tol", [0.1, 1e-3, 1e-7])
def test_the_certificate_recomputed_from_the_model_and_the_dual_variables(loss, bias, tol, tmp_path):
    x, y = random_rows(150, D, noise=1.0, seed=3)
    weights = np.random.default_rng(0).choice([0.5, 1.0, 3.0], 150)
    model = fit(
        x, y, sample_weight=weights, loss=loss, bias=bias, tol=tol, run_dir=tmp_path, progress=False, algo="dcd"
    )
    rows, alpha = extended(x, bias), alphas(tmp_path)
    told = model.result_.certificate
    w = np.append(model.coef_[0], model.intercept_[0])
    assert told["primal"] == pytest.approx(primal(rows, y, w, loss, weights), rel=1e-12)
    assert told["dual"] >= dual(rows, y, alpha, loss, weights) * (1 - 1e-12)  # the best one that was seen
    if tol == 1e-7:
        assert told["dual"] == pytest.approx(dual(rows, y, alpha, loss, weights), rel=1e-7)
    assert told["gap"] == pytest.approx((told["primal"] - told["dual"]) / told["primal"], rel=1e-9, abs=1e-15)
    assert told["gap"] <= tol and told["dual"] <= optimum(x, y, loss, 1.0, weights, bias) * (1 + 1e-9)


@every_loss
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), C=st.floats(0.01, 100), bias=st.sampled_from([None, "feature"]))
def test_the_certificate_kernel_s_sums_are_those_of_numpy(loss, seed, C, bias):
    """At any w and any feasible alpha, not only where a run has been."""
    case, rng = Case("dcd", loss), np.random.default_rng(seed)
    x, y = random_rows(20, 6, 0.5, seed=seed)
    weights = rng.choice([0.0, 0.5, 2.0], 20)
    weights[0] = 1.0
    block = block_of(x, y, weights)
    shared, rows = case.state(6, 20)
    w = rng.standard_normal(7)
    shared.weights[:] = w
    rows.alpha[:] = rng.uniform(0, 1, 20) * C * weights * rng.integers(0, 2, 20)
    v = np.zeros(7)
    loss_sum, dual_sum = case.certify(block, shared, rows, case.params(bias, C=C), v, np.linalg.norm(w))
    matrix, there = np.hstack([dense(block, 6), np.full((20, 1), 1.0 if bias else 0.0)]), weights > 0
    c = C * weights[there]
    expected = primal(matrix[there], y[there], w, loss, c) - 0.5 * w @ w
    assert loss_sum == pytest.approx(expected, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(v, matrix.T @ (rows.alpha * y), rtol=1e-12, atol=1e-12)
    both = dual(matrix[there], y[there], rows.alpha[there], loss, c)
    assert dual_sum - 0.5 * v @ v == pytest.approx(both, rel=1e-10, abs=1e-10 * (1 + abs(both) + v @ v))


@pytest.mark.parametrize(("loss", "size"), [("hinge", 1), ("epsilon_insensitive", 1), ("epsilon_insensitive", 3)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("form", ["values", "ones", "scales"])
def test_where_a_unit_of_loss_is_dear_the_certificate_s_loss_is_never_too_small(loss, size, dtype, form):
    """Margins are 1, or at the edge of the tube, but for roundings, whose prices are more than all of 1/2 ||w||^2."""
    case, C, epsilon = Case("dcd", loss), 1e12, 0.0 if loss == "hinge" else 0.125
    for seed in range(30):
        x, y = random_rows(12, 60, 0.5, seed=seed)
        y = size * y
        if form != "values":
            x.data[:] = 1.0
        if form == "scales":
            x = sp.csr_matrix(x.multiply(np.float32(1.1) ** np.arange(12)[:, None]).astype(np.float32))
        block = block_of(x, y)
        if form != "values":
            scales = x.data[x.indptr[:-1]] if form == "scales" else np.empty(0, np.float32)
            block = block._replace(values=block.values[:0], scales=scales)
        shared, rows = case.state(60, 12, dtype=dtype)
        matrix = np.hstack([x.toarray(), np.ones((12, 1))])
        shared.weights[:] = np.linalg.lstsq(matrix.astype(np.float64), (1 + epsilon / size) * y, rcond=None)[0]
        w = [Fraction(float(number)) for number in shared.weights]
        exact = Fraction(0)
        for row, label in zip(matrix, y.tolist(), strict=True):
            m = sum(Fraction(float(a)) * b for a, b in zip(row, w, strict=True))
            value = 1 - int(label) * m if loss == "hinge" else abs(int(label) - m) - Fraction(epsilon)
            exact += Fraction(C) * max(Fraction(0), value)
        params = case.params("feature", C=C, **({} if loss == "hinge" else {"epsilon": epsilon}))
        told, _ = case.certify(block, shared, rows, params, np.zeros(61), np.linalg.norm(shared.weights))
        told = Fraction(float(told))
        assert exact * Fraction(1 - 1e-9) <= told <= exact * Fraction(1 + 1e-9) + Fraction(12 * C * size * 2.0**-49)


@every_loss
def test_a_margin_that_cannot_be_made_sharper_costs_its_own_loss(loss):
    """Weights beyond float32 have no part of that width to begin with."""
    case, block = Case("dcd", loss), block_of(np.eye(2, dtype=np.float32), np.array([-1.0, -1.0]))
    shared, rows = case.state(2, 2)
    shared.weights[:2] = 1e39, 2e39
    told, _ = case.certify(block, shared, rows, case.params(), np.zeros(3), np.linalg.norm(shared.weights))
    assert told == pytest.approx(sum(naive.VALUE[loss](-w, -1.0, 0.0) for w in shared.weights[:2]), rel=1e-12)


@every_loss
def test_each_visit_raises_the_dual_objective(loss):
    case, (x, y) = Case("dcd", loss), random_rows(40, 10, noise=1.0)
    block, state = block_of(x, y), case.state(10, 40)
    rows, before = extended(x, None), 0.0
    for i in [*range(40), *range(40)]:
        learn(case, block, 10, np.array([i]), state)
        after = dual(rows, y, state[1].alpha, loss, 1.0)
        assert after >= before - 1e-12
        before = after
    assert before > 1


@every_loss
def test_scores_say_how_far_a_row_is_from_being_stuck(loss):
    """At an end of its box the margin's distance from the kink, as a negative number; inside the box 0."""
    case, (x, y) = Case("dcd", loss), random_rows(60, 12)
    block, state = block_of(x, y), case.state(12, 60)
    for _ in range(30):
        *_, scores = learn(case, block, 12, None, state)
    (w,), (alpha,) = state
    if loss == "logistic":
        assert (scores == 0).all()  # no row is ever stuck
        return
    margin = y * (extended(x, None) @ w)
    slack = np.where(alpha == 0, np.minimum(1 - margin, 0), 0.0)
    if loss == "hinge":
        slack = np.where(alpha == 1, np.minimum(margin - 1, 0), slack)
    np.testing.assert_allclose(scores, slack, atol=0.05)  # w went on a little after each row's visit
    assert (scores <= 0).all() and (scores < -0.1).any() and (scores == 0).any()


# Rows that are special


def test_empty_rows_cost_c_each_and_say_so(tmp_path):
    """Hinge, no bias: an empty row's loss is 1 whatever w is, so its dual variable is C (w8a has 4,203 such rows)."""
    x, y = random_rows(60, D)
    padded = sp.vstack([x, sp.csr_matrix((5, D), dtype=np.float32)]).tocsr()
    labels = np.concatenate([y, [1, -1, 1, -1, 1]])
    model = fit(padded, labels, bias=None, C=0.7, tol=1e-9, run_dir=tmp_path / "a", progress=False, algo="dcd")
    np.testing.assert_array_equal(alphas(tmp_path / "a")[60:], 0.7)
    without = fit(x, y, bias=None, C=0.7, tol=1e-9, progress=False, algo="dcd")
    extra = model.result_.certificate["primal"] - without.result_.certificate["primal"]
    assert extra == pytest.approx(5 * 0.7, rel=1e-7)
    model = fit(
        padded, labels, bias=None, C=0.7, loss="squared_hinge", run_dir=tmp_path / "b", progress=False, algo="dcd"
    )
    np.testing.assert_allclose(alphas(tmp_path / "b")[60:], 2 * 0.7)


@every_loss
@biases
def test_a_row_of_weight_k_counts_k_times(loss, bias):
    x, y = random_rows(60, D, noise=1.0)
    times = np.random.default_rng(0).integers(0, 4, 60)
    repeated = np.repeat(np.arange(60), times)
    options = dict(loss=loss, bias=bias, tol=1e-13, progress=False)
    weighted = fit(x, y, sample_weight=times.astype(float), **options)
    copied = fit(x[repeated], y[repeated], **options)
    primals = [model.result_.certificate["primal"] for model in (weighted, copied)]
    assert primals[0] == pytest.approx(primals[1], rel=1e-9)
    # P is strongly convex: ||w - w*||^2 <= 2 gap, so weights agree to the root of what the objectives do
    np.testing.assert_allclose(weighted.coef_, copied.coef_, atol=1e-5)
    assert abs(fit(x, y, **options).result_.certificate["primal"] - primals[0]) > 1


@every_loss
def test_class_weights_multiply_c_by_class(loss):
    x, y = random_rows(90, D, noise=1.0)
    y = np.where(np.arange(90) < 60, -1, y)
    options = dict(loss=loss, tol=1e-9, progress=False)
    by_class = fit(x, y, class_weight={-1: 0.5, 1: 3.0}, **options)
    by_row = fit(x, y, sample_weight=np.where(y == 1, 3.0, 0.5), **options)
    np.testing.assert_array_equal(by_class.coef_, by_row.coef_)
    n, positive = 90, (y == 1).sum()
    balanced = np.where(y == 1, n / (2 * positive), n / (2 * (n - positive)))
    even = fit(x, y, class_weight="balanced", **options)
    assert even.result_.certificate["primal"] == pytest.approx(optimum(x, y, loss, 1.0, balanced, "feature"), rel=1e-6)
    assert np.abs(even.coef_ - fit(x, y, **options).coef_).max() > 0.01


def test_rows_and_classes_weigh_together():
    x, y = random_rows(90, D)
    rows = np.random.default_rng(0).choice([0.5, 2.0], 90)
    both = fit(x, y, sample_weight=rows, class_weight={1: 3.0}, tol=1e-9, progress=False)
    product = fit(x, y, sample_weight=rows * np.where(y == 1, 3.0, 1.0), tol=1e-9, progress=False)
    np.testing.assert_array_equal(both.coef_, product.coef_)


@settings(max_examples=300, deadline=None)
@given(
    share=st.sampled_from([0.0, 1e-12, 0.3, 1 - 1e-9, 1.0]) | st.floats(0, 1),
    m=st.floats(-1e3, 1e3),
    q=st.floats(-4, 6).map(lambda x: 10**x),
    C=st.floats(-6, 6).map(lambda x: 10**x),
)
def test_a_logistic_row_goes_to_the_best_point_of_its_coordinate(share, m, q, C):
    def value(p):
        return C * (entr(p) + entr(1 - p)) - C * (p - share) * m - 0.5 * q * (C * (p - share)) ** 2

    def gradient(u):
        return u + m + q * C * (expit(u) - share)

    far = abs(m) + q * C + 10
    best = expit(brentq(gradient, -m - far, -m + far, xtol=1e-12))
    found = alone_on_its_coordinate(share * C, m, q, C) / C
    gain = value(best) - value(share)
    assert value(found) >= value(best) - 1e-4 * gain - 1e-9 * (C + abs(value(best)))


best_of_logistic = LOGISTIC.dual.best


@kernel
def alone_on_its_coordinate(a, m, q, c):
    return best_of_logistic(a, m, q, c, 0.0, 0.0)


# The bits


def sigmoid(u):
    return (1 if u >= 0 else math.exp(u)) / (1 + math.exp(-abs(u)))


def plain_logistic(alpha, m, q, C):
    """C sigma(u) at the root of u + m + q (C sigma(u) - alpha), which lies between -m and logit(alpha / C)."""
    u = -m
    s = sigmoid(u)
    f = q * (C * s - alpha)
    end = u - f
    if abs(f) > 1 and 0 < alpha < C:
        end = min(end, math.log(alpha / (C - alpha)), key=lambda x: abs(x - u))
    low, high = min(u, end), max(u, end)
    if abs(f) > 1:
        u = min(max(0.0, low), high)
        s = sigmoid(u)
        f = u + m + q * (C * s - alpha)
    while True:
        new = u - f / (1 + q * C * s * (1 - s))
        new = new if low <= new <= high else 0.5 * (low + high)
        near, u = (new - u) ** 2 * (1 + q * C * s * (1 - s)) <= 1e-4, new
        s = sigmoid(u)
        if near:
            return C * s
        f = u + m + q * (C * s - alpha)
        low, high = (low, u) if f > 0 else (u, high)


def plain_norm(values):
    """By four sums, of every fourth entry each, and the rest."""
    sums, rest = [0.0] * 4, len(values) // 4 * 4
    for k in range(rest):
        sums[k % 4] += values[k] ** 2
    norm = (sums[0] + sums[1]) + (sums[2] + sums[3])
    for v in values[rest:]:
        norm += v * v
    return norm


def plain_product(w, row, values):
    """By eight sums, of every eighth entry each, which are added in halves; then the rest."""
    sums, rest = [0.0] * 8, len(values) // 8 * 8
    for k in range(rest):
        sums[k % 8] += w[row[k]] * values[k]
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [a + b for a, b in zip(sums[:half], sums[half:], strict=True)]
    for j, v in zip(row[rest:], values[rest:], strict=True):
        sums[0] += w[j] * v
    return sums[0]


def plain_loop(x, y, loss, C, bias, epochs, seed):
    """Dual coordinate descent as one would write it down: the same arithmetic in the same order, w at the end."""
    w, alpha, order = [0.0] * (x.shape[1] + 1), [0.0] * len(y), np.empty(len(y), np.int64)
    for epoch in range(1, epochs + 1):
        shuffle_runs(np.arange(len(y)), 1, random_state(seed, 2, epoch, 0, 0, 0, 1), order)
        for i in order.tolist():
            row = x.indices[x.indptr[i] : x.indptr[i + 1]].tolist()
            values = x.data[x.indptr[i] : x.indptr[i + 1]].astype(float).tolist()
            product, norm = plain_product(w, row, values), plain_norm(values)
            m, d, upper = y[i] * (product + bias * w[-1]), *((0.0, C) if loss == "hinge" else (0.5 / C, np.inf))
            q = norm + bias * bias + (0.0 if loss == "logistic" else d)
            if loss == "logistic":
                new = plain_logistic(alpha[i], m, q, C)
            else:
                new = min(max(alpha[i] - (m - 1 + d * alpha[i]) / q, 0.0), upper) if q > 0 else upper
            step, alpha[i] = (new - alpha[i]) * y[i], new
            for j, v in zip(row, values, strict=True):
                w[j] += step * v
            w[-1] += bias * step
    return np.array(w), np.array(alpha)


@every_loss
@biases
def test_one_block_without_a_working_set_gives_the_bits_of_a_plain_loop(loss, bias, tmp_path, quiet):
    x, y = random_rows(2000, 80, 0.15, noise=1.0)
    limits = dict(tol=0, working_set=0, epochs=4, seed=11, run_dir=tmp_path, progress=False)
    model = fit(x, y, loss=loss, bias=bias, C=0.3, **limits)
    w, alpha = plain_loop(x, y.tolist(), loss, 0.3, 1.0 if bias else 0.0, 4, 11)
    np.testing.assert_array_equal(model.coef_[0], w[:-1])
    assert model.intercept_[0] == w[-1]
    np.testing.assert_array_equal(alphas(tmp_path), alpha)
    assert model.result_.reads == 1 and 0 < (alpha > 0).sum() < 2000 + (loss == "logistic")


def test_the_plain_loop_s_bits_come_from_shards_too(tmp_path, quiet):
    x, y = random_rows(500, 40, 0.15, noise=1.0)
    shards_of(tmp_path / "shards", x, y)
    model = fit(tmp_path / "shards", bias=None, tol=0, working_set=0, epochs=3, progress=False, algo="dcd")
    np.testing.assert_array_equal(model.coef_[0], plain_loop(x, y.tolist(), "hinge", 1.0, 0.0, 3, 0)[0][:-1])


# The certificate's kernel


def naive_certificate(x, y, weights, c, alpha, loss, e):
    """P of the weights and D of the dual variables, from their definitions, row by row; v of the dual variables."""
    total, dual, v = 0.0, 0.0, np.zeros(x.shape[1])
    for row, t, price, a in zip(x, y, c, alpha, strict=True):
        m = row @ weights
        if loss in REGRESSION:
            outside = max(0.0, abs(t - m) - e)
            cost, gain = outside, t * a - e * abs(a)
        else:
            m *= t
            outside = max(0.0, 1 - m)
            cost, gain = outside, a
        if loss.startswith("squared"):
            cost, gain = outside**2, gain - (a**2 / (4 * price) if price else 0.0)
        if loss == "logistic":
            p = a / price if price else 0.5
            cost, gain = np.log1p(np.exp(-m)), -price * (p * np.log(p) + (1 - p) * np.log1p(-p))
        total += price * cost
        if price:
            dual += gain
            v += a * row * (1.0 if loss in REGRESSION else t)
    return total, dual, v


@pytest.mark.parametrize("loss", sorted({"hinge", "squared_hinge", "logistic", *TUBES}))
@biases
@pytest.mark.parametrize("scale", [1.0, 1e9], ids=["plain", "sharp"])
def test_the_certificate_is_the_sum_over_rows_and_never_too_small(loss, bias, scale):
    """A ``length`` of 1e9 makes roundings matter, so that every margin is computed sharply."""
    case, rng = Case("dcd", loss), np.random.default_rng(0)
    x, y = random_rows(40, D, noise=1.0, real=loss in REGRESSION)
    row_weights = rng.choice([0.0, 0.5, 2.0], 40)
    block, params = block_of(x, y, row_weights), case.params(bias, C=2.0)
    shared, rows = case.state(D, 40)
    shared.weights[:] = rng.standard_normal(D + 1) * (1.0 if bias else np.append(np.ones(D), 0.0))
    c = 2.0 * row_weights  # 0, 1 and 4: who costs 1 counts like the others
    rows.alpha[:] = rng.uniform(0.1, 0.9, 40) * c * (rng.choice([-1, 1], 40) if loss in REGRESSION else 1)
    rows.alpha[::5] = 0.0 if loss != "logistic" else rows.alpha[::5]
    v = np.zeros(D + 1)
    primal_, dual_ = case.certify(block, shared, rows, params, v, scale * np.linalg.norm(shared.weights))
    wanted = naive_certificate(extended(x, bias), y, shared.weights, c, rows.alpha, loss, params.epsilon)
    assert wanted[0] * (1 - 1e-12) <= primal_ <= wanted[0] * (1 + 1e-5)
    assert dual_ == pytest.approx(wanted[1], rel=1e-12)
    np.testing.assert_allclose(v, wanted[2], atol=1e-12)


@pytest.mark.parametrize("loss", sorted({"hinge", "squared_hinge", "logistic", *TUBES}))
@biases
def test_a_row_s_score_is_its_freedom_after_its_step(loss, bias):
    """Which rows stay in the working set: judged by the margin that the step has left, not by the one before."""
    case, moved = Case("dcd", loss), 0
    x, y = random_rows(30, D, noise=1.0, real=loss in REGRESSION)
    y = np.asarray(y, float)
    for i in range(30):
        block, params = block_of(x[[i]], y[[i]], np.array([0.5])), case.params(bias, C=0.7)
        (shared,), (alpha,), counts, scores = learn(case, block, D, bias=bias, C=0.7)
        moved += counts.updates
        m = (1.0 if loss in REGRESSION else y[i]) * (extended(x[[i]], bias)[0] @ shared)
        freedom = plain(LOSSES_BY_NAME[loss].dual.freedom)
        judged = freedom(alpha[0], m, 0.35, y[i], params.epsilon)
        assert scores[0] == pytest.approx(judged, abs=1e-6)
    assert moved > 20


# What else is asked of dual variables


SIX = sorted({"hinge", "squared_hinge", "logistic", *TUBES})


def rows_with_duals(loss, seed=0, n=25):
    """Block, its dense rows, labels, prices and dual variables inside their intervals, some of them 0."""
    rng = np.random.default_rng(seed)
    x, y = random_rows(n, D, noise=1.0, seed=seed, real=loss in REGRESSION)
    weights = rng.choice([0.5, 1.0, 2.0], n)
    alpha = rng.uniform(0.1, 0.9, n) * 3.0 * weights * (rng.choice([-1, 1], n) if loss in REGRESSION else 1)
    alpha[::5] = 0.0
    return block_of(x, y, weights), np.asarray(y, float), 3.0 * weights, alpha


def dual_terms(loss, alpha, y, c):
    """-C_i loss*(-alpha_i / C_i), row by row."""
    if loss == "logistic":
        return c * (entr(alpha / c) + entr(1 - alpha / c))
    gain = y * alpha - EPSILON * np.abs(alpha) if loss in REGRESSION else alpha
    return gain - (alpha**2 / (4 * c) if loss.startswith("squared") else 0.0)


@pytest.mark.parametrize("loss", SIX)
def test_how_far_dual_variables_have_moved_is_told_by_their_terms(loss):
    case = Case("dcd", loss)
    block, y, c, alpha = rows_with_duals(loss)
    params, before, some = case.params("feature", C=3.0), alpha[::-1] * c / c[::-1], np.arange(3, 20)
    moved = module.along(LOSSES_BY_NAME[loss])
    gain, bend = moved(block, some, module.Rows(alpha), module.Rows(before), params)
    terms = dual_terms(loss, alpha, y, c) - dual_terms(loss, before, y, c)
    assert gain == pytest.approx(terms[some].sum(), rel=1e-11)
    curved = 1 / (2 * c) if loss.startswith("squared") else np.zeros(25)
    assert bend == pytest.approx((curved * (alpha - before) ** 2)[some].sum(), rel=1e-12)
    assert moved(block, some, module.Rows(alpha), module.Rows(alpha.copy()), params) == (0.0, 0.0)


@pytest.mark.parametrize("loss", SIX)
@pytest.mark.parametrize("t", [1.0, 0.3])
def test_the_dual_value_of_a_part_of_the_way_is_the_sum_of_its_terms(loss, t):
    block, y, c, alpha = rows_with_duals(loss)
    found = module.value(LOSSES_BY_NAME[loss])(block, module.Rows(alpha), Case("dcd", loss).params(C=3.0), t)
    assert found == pytest.approx(dual_terms(loss, t * alpha, y, c).sum(), rel=1e-12)


@pytest.mark.parametrize("loss", SIX)
def test_dual_variables_of_another_c_are_put_into_their_intervals(loss):
    block, _, _, alpha = rows_with_duals(loss)
    block.weights[7] = 0.0
    alpha[8] = -4.0
    c, rows = 0.5 * block.weights, module.Rows(alpha.copy())
    module.within(LOSSES_BY_NAME[loss])(block, rows, Case("dcd", loss).params(C=0.5))
    upper = np.where(c > 0, np.inf if loss.startswith("squared") else c, 0.0)
    expected = np.clip(alpha, -upper if loss in REGRESSION else 0.0, upper)
    assert rows.alpha.tolist() == expected.tolist() and rows.alpha[7] == 0 and (rows.alpha != alpha).any()


@pytest.mark.parametrize("loss", SIX)
@biases
def test_the_loss_of_weights_scaled_down_is_that_of_margins_scaled_down(loss, bias):
    case, rng = Case("dcd", loss), np.random.default_rng(0)
    block, y, c, _ = rows_with_duals(loss)
    shared, _ = case.state(D, 25)
    shared.weights[:] = rng.standard_normal(D + 1) * (1.0 if bias else np.append(np.ones(D), 0.0))
    scales, found, params = np.array([1.0, 0.5, 0.25]), np.zeros(3), case.params(bias, C=3.0)
    length, add = float(np.linalg.norm(shared.weights)), module.scaled(LOSSES_BY_NAME[loss])
    slope = add(block, shared, params, length, scales, found)
    near = np.zeros(2)
    add(block, shared, params, length, np.array([1.0 + 1e-6, 1.0 - 1e-6]), near)
    assert slope == pytest.approx((near[0] - near[1]) / 2e-6, rel=1e-4)
    for scale, told in zip(scales, found, strict=True):
        w, matrix = scale * shared.weights, np.hstack([dense(block, D), np.full((25, 1), float(bias is not None))])
        wanted = primal(matrix, y, w, loss, c) - 0.5 * w @ w
        assert wanted * (1 - 1e-12) <= told <= wanted * (1 + 1e-9)


@pytest.mark.parametrize("loss", SIX)
@biases
def test_a_pass_counts_rows_mistakes_updates_losses_and_gaps_as_it_meets_them(loss, bias):
    """Beside a loop that takes one row at a time: what counts is the margin before the row's own step."""
    case, (block, y, c, _) = Case("dcd", loss), rows_with_duals(loss)
    w, alpha, matrix = np.zeros(D + 1), np.zeros(25), np.hstack([dense(block, D), np.full((25, 1), bias is not None)])
    state, wrong = case.state(D, 25), 0
    for _ in range(2):
        (_, _, counts, _), told = learn(case, block, D, None, state, bias=bias, C=3.0), np.zeros(4)
        for i, row in enumerate(matrix):
            s = 1.0 if loss in REGRESSION else y[i]
            m = s * (row @ w)
            value = float(primal(row[None], y[i : i + 1], w, loss, c[i : i + 1]) - 0.5 * w @ w)
            gap = value - dual_terms(loss, alpha[[i]], y[i], c[i])[0] + alpha[i] * m
            new = state[1].alpha[i]
            told += value > 0 if loss in REGRESSION else m <= 0, new != alpha[i], value, gap
            w, alpha[i] = w + (new - alpha[i]) * s * row, new
        assert counts.rows == 25 and [counts.mistakes, counts.updates] == told[:2].tolist()
        assert counts.loss == pytest.approx(told[2], rel=1e-9)
        assert counts.gap == pytest.approx(told[3], rel=0.6 if loss == "logistic" else 1e-9)  # there by a bound
        np.testing.assert_allclose(state[0].weights, w, atol=1e-12)
        wrong += counts.mistakes
    assert told[1] > 5 and wrong > 5
