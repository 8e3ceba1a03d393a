"""Each passive-aggressive step solves its quadratic programme (Crammer et al., JMLR 2006, equations 3, 6 and 7)."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from making import Case, block_of, learn, mix, random_rows, separable_rows
from scipy.optimize import minimize

from bigclf.api.fit import fit
from bigclf.methods import resolve

KINDS = ("pa", "pa1", "pa2")
every_kind = pytest.mark.parametrize("algo", KINDS)


def step(algo, w, x, y, bias=None, weight=1.0, C=1.0):
    """The kernel's weights after one row; ``w`` [features + 1]."""
    case = Case(algo, "hinge")
    shared = case.setting().shared(x.size, "float64")
    shared.weights[:] = w
    given = {} if algo == "pa" else {"C": C}
    block = block_of(np.vstack([x, x]), [y, y], [weight, weight])
    *_, counts, _ = learn(case, block, x.size, np.array([0]), (shared, ()), bias=bias, **given)
    return shared.weights, counts


def solved(algo, w, x, y, C):
    """min 1/2 ||v - w||^2 (+ C s, + C s^2)  with  y v.x >= 1 - s, s >= 0 (PA: s = 0), by sequential least squares."""
    n = x.size
    slack = 0.0 if algo == "pa" else 1.0
    power = {"pa": 1, "pa1": 1, "pa2": 2}[algo]

    def cost(z):
        return 0.5 * ((z[:n] - w) ** 2).sum() + slack * C * z[n] ** power

    def slope(z):
        return np.append(z[:n] - w, slack * C * power * z[n] ** (power - 1))

    limits = [
        {"type": "ineq", "fun": lambda z: y * (z[:n] @ x) - 1 + slack * z[n], "jac": lambda z: np.append(y * x, slack)},
        {"type": "ineq", "fun": lambda z: z[n], "jac": lambda z: np.append(np.zeros(n), 1.0)},
    ]
    start = np.append(w, max(0.0, 1 - y * (w @ x)))
    exact = {"ftol": 1e-16, "maxiter": 500}
    return minimize(cost, start, jac=slope, constraints=limits, method="SLSQP", options=exact).x[:n]


@every_kind
@pytest.mark.parametrize("bias", [None, "feature"])
def test_a_step_equals_the_solution_of_its_programme(algo, bias):
    rng = np.random.default_rng(7)
    moved = 0
    for _ in range(100):
        n = int(rng.integers(1, 6))
        x = rng.standard_normal(n).astype(np.float32)
        w, y, C = rng.standard_normal(n + 1), int(rng.choice([-1, 1])), float(10 ** rng.uniform(-2, 1))
        extended = np.append(x.astype(float), 1.0) if bias else x.astype(float)
        before = w if bias else w[:n]
        after, counts = step(algo, w, x, y, bias, C=C)
        expected = solved(algo, before, extended, y, C)
        np.testing.assert_allclose(after[: before.size], expected, rtol=0, atol=1e-8)
        moved += counts.updates
    assert 30 < moved < 100  # some rows were satisfied already and left the weights alone


@every_kind
@settings(max_examples=150, deadline=None)
@given(
    x=st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=6),
    w=st.lists(st.floats(-4, 4), min_size=6, max_size=6),
    y=st.sampled_from([-1, 1]),
    C=st.floats(1e-3, 1e3),
    weight=st.floats(0.01, 100),
)
def test_a_step_fulfils_the_optimality_conditions(algo, x, w, y, C, weight):
    """With the multiplier tau of y v.x >= 1 - s:  v = w + tau y x, and of tau and the slack s what each kind asks."""
    x, w, weight = np.array(x, np.float32), np.array(w[: len(x)]), 1.0 if algo == "pa" else weight
    after, counts = step(algo, np.append(w, 0.0), x, y, C=C, weight=weight)
    v, x = after[:-1], x.astype(float)
    norm, loss = x @ x, max(0.0, 1 - y * (w @ x))
    if norm < 1e-6 or loss == 0:
        if norm == 0 or loss == 0:
            np.testing.assert_array_equal(v, w)
            assert counts.updates == 0
        return
    tau = y * ((v - w) @ x) / norm
    np.testing.assert_allclose(v, w + tau * y * x, atol=1e-9 * (1 + np.abs(v).max()))
    s = 1 - y * (v @ x)  # what is left of the loss
    price, tiny = C * weight, 1e-9 * (1 + tau + loss + norm)
    assert tau >= -tiny and s >= -1e-9 * (1 + norm * tau)
    if algo == "pa":
        assert abs(s) <= 1e-9 * (1 + norm * tau)
    elif algo == "pa1":  # tau <= C, and slack only where the price is paid in full
        assert tau <= price * (1 + 1e-9) + tiny and (abs(s) <= 1e-9 * (1 + norm * tau) or tau == pytest.approx(price))
    else:  # the slope of C s^2
        assert tau == pytest.approx(2 * price * s, rel=1e-6, abs=1e-6)


def test_slack_at_a_high_price_is_no_slack_at_all():
    x, y = random_rows(80, 20)
    hard = fit(x, y, algo="pa", epochs=2, progress=False).coef_
    np.testing.assert_allclose(fit(x, y, algo="pa1", C=1e12, epochs=2, progress=False).coef_, hard, rtol=1e-12)
    np.testing.assert_allclose(fit(x, y, algo="pa2", C=1e12, epochs=2, progress=False).coef_, hard, rtol=1e-6)
    assert np.abs(fit(x, y, algo="pa1", C=0.01, epochs=2, progress=False).coef_ - hard).max() > 0.1


@pytest.mark.parametrize("algo", ["pa1", "pa2"])
def test_a_row_s_weight_multiplies_c(algo):
    x, y = random_rows(80, 20)
    heavy = fit(x, y, algo=algo, C=0.05, sample_weight=np.full(80, 4.0), epochs=2, progress=False)
    np.testing.assert_array_equal(heavy.coef_, fit(x, y, algo=algo, C=0.2, epochs=2, progress=False).coef_)


def test_hard_steps_take_weights_of_0_and_1_only():
    from bigclf.errors import DataError

    x, y = random_rows(30, 10)
    with pytest.raises(DataError, match="0 and 1 only.*pa1, pa2"):
        fit(x, y, algo="pa", sample_weight=np.full(30, 0.5), progress=False)


@pytest.mark.parametrize("seed", range(10))
def test_squared_losses_stay_below_their_bound(seed):
    """Separable by u with margin 1: the sum of squared losses of PA is at most R^2 ||u||^2 (Theorem 2)."""
    x, y, u, gamma = separable_rows(seed=seed)
    case = Case("pa", "hinge")
    block, state, total = block_of(x, y), case.state(8, 0), 0.0
    for _ in range(20):
        for i in range(len(y)):
            *_, counts, _ = learn(case, block, 8, np.array([i]), state)
            total += counts.loss**2
    limit = (x.astype(float) ** 2).sum(axis=1).max() / gamma**2
    assert 1 < total <= limit


# Regression


def solved_for_a_number(algo, w, x, y, C, epsilon):
    """min 1/2 ||v - w||^2 (+ C s, + C s^2)  with  |y - v.x| <= epsilon + s, s >= 0 (PA: s = 0)."""
    n = x.size
    slack, power = (0.0, 1) if algo == "pa" else (C, {"pa1": 1, "pa2": 2}[algo])

    def cost(z):
        return 0.5 * ((z[:n] - w) ** 2).sum() + slack * z[n] ** power

    def slope(z):
        return np.append(z[:n] - w, slack * power * z[n] ** (power - 1))

    limits = [
        {
            "type": "ineq",
            "fun": lambda z, s=s: epsilon + z[n] - s * (y - z[:n] @ x),
            "jac": lambda z, s=s: np.append(s * x, 1),
        }
        for s in (-1.0, 1.0)
    ]
    start = np.append(w, max(0.0, abs(y - w @ x) - epsilon) if slack else 0.0)
    bounds = [(None, None)] * n + [(0.0, None if slack else 0.0)]
    exact = {"ftol": 1e-16, "maxiter": 500}
    return minimize(cost, start, jac=slope, bounds=bounds, constraints=limits, method="SLSQP", options=exact).x[:n]


@every_kind
def test_a_step_of_regression_equals_the_solution_of_its_programme(algo):
    rng = np.random.default_rng(8)
    case, moved = Case(algo, "epsilon_insensitive"), 0
    for _ in range(100):
        n = int(rng.integers(1, 6))
        x = rng.standard_normal(n).astype(np.float32)
        w, y, C = rng.standard_normal(n), float(rng.standard_normal()), float(10 ** rng.uniform(-2, 1))
        shared = case.setting().shared(n, "float64")
        shared.weights[:-1] = w
        given = {"epsilon": 0.5} | ({} if algo == "pa" else {"C": C})
        *_, counts, _ = learn(case, block_of(np.vstack([x, x]), [y, y]), n, np.array([0]), (shared, ()), **given)
        expected = solved_for_a_number(algo, w, x.astype(float), y, C, 0.5)
        np.testing.assert_allclose(shared.weights[:-1], expected, rtol=0, atol=1e-8)
        moved += counts.updates
    assert 30 < moved < 100


@every_kind
def test_numbers_are_learned_from_arrays(algo):
    x, y = random_rows(300, 20, noise=0.01, real=True)
    model = fit(x, y, algo=algo, loss="epsilon_insensitive", epsilon=0.01, epochs=10, progress=False)
    assert np.abs(model.predict(x) - y).mean() < 0.05 * np.abs(y).mean()


@pytest.mark.parametrize("bias", [None, "feature"])
@pytest.mark.parametrize("algo", KINDS)
def test_the_averaged_answer_is_the_mean_over_all_steps(algo, bias):
    x, y = random_rows(60, 12, seed=3)
    shared, *_ = learn(Case("averaged_" + algo, "hinge"), block_of(x, y), 12, bias=bias)
    block, total = block_of(x, y), np.zeros(13)
    state = Case(algo, "hinge").setting().shared(12, "float64")
    for i in range(60):  # the plain learner, row after row, and the sum of what it is after each
        learn(Case(algo, "hinge"), block, 12, np.array([i]), (state, ()), bias=bias)
        total += state.weights
    np.testing.assert_array_equal(shared.weights, state.weights)
    np.testing.assert_allclose(Case("averaged_" + algo, "hinge").weights(shared), total / 60, rtol=0, atol=1e-12)


def copies_by_pull(x, y, parts, C, groups):
    """(start of so many groups mixed by pull, what each part of the rows made of it, their setting)"""
    setting = resolve("averaged_pa2", "hinge", None, None, {"C": C}, groups=groups)
    assert groups == 1 or setting.settings["mixing"] == "pull"
    start, block, copies = setting.shared(x.shape[1], "float64"), block_of(x, y), []
    for part in parts:
        copies.append(type(start)(*(array.copy() for array in start)))
        setting.kernel()(block, part, copies[-1], (), setting.params(), np.zeros(len(y)))
    return start, copies, setting


def test_ways_are_counted_where_rows_are_learned_from_and_only_to_be_mixed_by():
    x, y = random_rows(40, 9, seed=2)
    _, (copy,), setting = copies_by_pull(x, y, [np.arange(40)], 0.3, 2)
    weights, ways = np.zeros(10), np.zeros((10, 2))
    for row, label in zip(x.toarray().astype(float), y, strict=True):
        rates = 1 / (row @ row + 0.5 / (0.3 * np.array([2, 1])))  # of a copy, as one of two, and of one learner
        lack = 1 - label * row @ weights[:9]
        if lack > 0:
            weights[:9] += rates[0] * lack * label * row
            ways[:9] += np.outer(row**2, rates)
    np.testing.assert_allclose(copy.ways, ways, rtol=1e-9)
    np.testing.assert_allclose(copy.weights, weights, rtol=1e-9)
    assert setting.kernel() is resolve("averaged_pa2", "hinge", None, None, {}).kernel()
    for options in ({}, {"mixing": "rows", "groups": 2}):
        setting = resolve("averaged_pa2", "hinge", None, None, {}, **options)
        assert setting.shared(9, "float64").ways.size == 0 and setting.params().copies == 1


def test_of_slow_learners_groups_come_as_far_as_one_learner_and_their_mean_does_not():
    rng = np.random.default_rng(0)
    places, values = rng.integers(0, 20, 900), rng.uniform(0.5, 2.0, 20).astype(np.float32)
    x = sp.csr_matrix((values[places], places, np.arange(901)), (900, 20))  # rows of one feature: nothing is shared
    y = np.where(places % 3, 1, -1)
    parts = np.split(np.arange(900), [100, 400, 500])
    start, copies, setting = copies_by_pull(x, y, parts, 0.001, 4)
    serial = copies_by_pull(x, y, [np.arange(900)], 0.001, 1)[1][0]
    np.testing.assert_allclose(mix(setting.rule, start, copies, [1.0] * 4).weights, serial.weights, rtol=0.01)
    copies = copies_by_pull(x, y, parts, 0.001, 1)[1]
    mean = mix(setting.method.form.mixings["uniform"], copies_by_pull(x, y, [], 0.001, 1)[0], copies, [1.0] * 4).weights
    assert np.abs(mean[:20] / serial.weights[:20]).max() < 0.35
