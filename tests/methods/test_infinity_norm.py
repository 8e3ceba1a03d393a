"""Winnow, ALMA, PUMMA and MEMMA: naive loops, general optimisers, and the bounds of their papers."""

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from making import Case, block_of, dense, random_rows, separable_rows

from bigclf.api.fit import fit
from bigclf.api.margins import infinity_norm_margin
from bigclf.methods.online import maximum_entropy_margin as me
from bigclf.methods.online import p_norm_margin as pn

WINNOW, WINNOW2, ALMA, PUMMA, MEMMA, MEMMA_P = (
    Case(name, None) for name in ("winnow", "winnow2", "alma", "pumma", "memma", "memma_p")
)


def some_seeds(first, last):
    """The first seeds; the others up to the last in the long tests."""
    rest = pytest.param(range(first, last), marks=pytest.mark.long, id=f"seeds {first} to {last - 1}")
    return pytest.mark.parametrize("seeds", [pytest.param(range(first), id=f"seeds to {first - 1}"), rest])


def norm(x, p):
    """||x||_p along the last axis."""
    most = np.abs(x).max()
    return most * ((np.abs(x) / most) ** p).sum(axis=-1) ** (1 / p)


def gradient(theta, p):
    """Of 1/2 ||theta||_p^2."""
    return np.sign(theta) * np.abs(theta) ** (p - 1) / norm(theta, p) ** (p - 2) if theta.any() else theta


def made(case, n, **given):
    """Setting and state."""
    bias = given.pop("bias", None)
    setting = case.setting(bias, **given)
    return setting, setting.shared(n, "float64")


def passes(setting, state, block, most=10_000, watch=lambda: None):
    """Until a pass learns from no row; updates, mistakes."""
    kernel, params, scores, total = setting.kernel(), setting.params(), np.zeros(block.n_rows), np.zeros(2, int)
    for _ in range(most):
        counts = kernel(block, np.arange(block.n_rows), state, (), params, scores)
        total += counts.updates, counts.mistakes
        watch()
        if counts.updates == 0:
            return total
    raise AssertionError("it goes on")


def disjunction(n, rows=2000, k=5, seed=0):
    """Sparse rows 0 or 1 of n features, label +1 where one of the first k is there; half of either class."""
    random = np.random.default_rng(seed)
    x = sp.random(rows, n, 20 / n, "lil", np.float32, random_state=random, data_rvs=np.ones)
    x[:, :k] = 0
    for i in range(0, rows, 2):
        x[i, random.integers(k)] = 1
    return x.tocsr(), np.where(np.arange(rows) % 2 == 0, 1, -1)


# Winnow


@pytest.mark.parametrize("signs", ["both", "nonnegative"])
@pytest.mark.parametrize("bias", [None, "feature"])
def test_winnow_is_the_normalised_one_on_rows_and_their_mirror_images(signs, bias):
    x, y = random_rows(150, 12, noise=0.5)
    weights = np.random.default_rng(0).choice([0.5, 1.0, 3.0], 150)
    setting, state = made(WINNOW, 12, bias=bias, signs=signs, eta=0.3)
    block = block_of(x, y, weights)
    counts = setting.kernel()(block, np.arange(150), state, (), setting.params(), np.zeros(150))
    rows = np.hstack([dense(block, 12), np.ones((150, int(bias is not None)))])
    both = np.hstack([rows, -rows]) if signs == "both" else rows
    largest, w, mistakes = 1.0, np.full(both.shape[1], 1 / both.shape[1]), 0
    theta = np.zeros(both.shape[1])
    for row, label, weight, plain in zip(both, y, weights, dense(block, 12), strict=True):
        now = max(largest, np.abs(plain).max())
        theta, largest = theta * (largest / now), now
        if label * (row @ w) <= 1e-15:
            theta, mistakes = theta + 0.3 * weight * label * row / largest, mistakes + 1
        w = np.exp(theta) / np.exp(theta).sum()
    assert counts.mistakes == mistakes > 20
    d = rows.shape[1]
    expected = w[:d] - w[d:] if signs == "both" else w
    np.testing.assert_allclose(setting.weights(state)[:d], expected, rtol=1e-10, atol=1e-13)


def test_winnow2_multiplies_and_compares_with_the_threshold():
    x, y = random_rows(150, 12, noise=0.5, binary=True)
    for threshold in (None, 3.3):
        setting, state = made(WINNOW2, 12, alpha=1.37, threshold=threshold)
        counts = setting.kernel()(block_of(x, y), np.arange(150), state, (), setting.params(), np.zeros(150))
        w, mistakes, limit = np.ones(12), 0, threshold or 12
        for row, label in zip(x.toarray(), y, strict=True):
            if label * (w @ row - limit) <= 0:
                w, mistakes = w * 1.37 ** (label * row), mistakes + 1
        assert counts.mistakes == mistakes > 20
        found = setting.weights(state)
        np.testing.assert_allclose(found / found[-1], np.append(w, -limit) / -limit, rtol=1e-10)


@pytest.mark.parametrize("threshold", [None, 3.3])
def test_the_bias_of_winnow2_is_a_column_of_ones_whatever_the_largest_value(threshold):
    """The constant counted as 1 in w.x / X, but moved by 1 / X."""
    x, y = random_rows(150, 12, noise=0.5)
    x.data *= 7
    weights = np.random.default_rng(0).choice([0.5, 1.0, 3.0], 150)
    setting, state = made(WINNOW2, 12, bias="feature", alpha=1.37, threshold=threshold)
    block = block_of(x, y, weights)
    counts = setting.kernel()(block, np.arange(150), state, (), setting.params(), np.zeros(150))
    rows = np.hstack([dense(block, 12), np.ones((150, 1))])
    theta, largest, mistakes, limit = np.zeros(13), 1.0, 0, threshold or 12
    for row, label, weight in zip(rows, y, weights, strict=True):
        now = max(largest, np.abs(row).max())
        theta, largest = theta * (largest / now), now
        if label * (np.exp(theta) @ row / largest - limit) <= 0:
            theta, mistakes = theta + np.log(1.37) * weight * label * row / largest, mistakes + 1
    assert counts.mistakes == mistakes > 20 and largest > 7
    found, w = setting.weights(state), np.exp(theta) / largest
    expected = np.append(w[:12], w[12] - limit)
    np.testing.assert_allclose(found / found[0], expected / expected[0], rtol=1e-9)


def test_winnows_mistakes_stay_below_the_bound_and_grow_with_the_logarithm_of_the_features():
    """2 X^2 ln n / gamma^2 with eta = gamma / X (Littlestone 1988; n counts mirror images), on 30 sets; for weights not
    below 0 the rows are turned so that u is not."""
    for seed in range(30):
        x, y, u, _ = separable_rows(n_features=3 + seed % 9, seed=seed)
        gamma, largest = (y * (x.astype(float) @ u)).min() / np.abs(u).sum(), float(np.abs(x).max())
        for signs, names, rows in (("both", 2 * u.size, x), ("nonnegative", u.size, x * np.sign(u).astype(x.dtype))):
            setting, state = made(WINNOW, u.size, eta=gamma / largest, signs=signs)
            _, mistakes = passes(setting, state, block_of(sp.csr_matrix(rows), y))
            assert 0 < mistakes <= 2 * largest**2 * math.log(names) / gamma**2
    few, many = (passes(*made(WINNOW2, n), block_of(*disjunction(n)))[1] for n in (100, 10_000))
    assert 0 < many < 2.2 * few  # ln 10,000 / ln 100 = 2


# ALMA and PUMMA


@pytest.mark.parametrize("p", [2.0, 3.5, 9.0])
@pytest.mark.parametrize("bias", [None, "feature"])
def test_alma_is_its_paper_written_out(p, bias):
    x, y = random_rows(120, 15, noise=0.5, constant=p == 9)
    setting, state = made(ALMA, 15, bias=bias, p=p, alpha=0.5)
    block = block_of(x, y)
    for _ in range(2):
        counts = setting.kernel()(block, np.arange(120), state, (), setting.params(), np.zeros(120))
    theta, k = np.zeros(16), 1
    for row, label in 2 * list(zip(np.hstack([dense(block, 15), np.full((120, 1), bias is not None)]), y, strict=True)):
        unit = row / norm(row, p) if row.any() else row
        if row.any() and label * (gradient(theta, p) @ unit) <= 0.5 * (8**0.5 / 0.5) * ((p - 1) / k) ** 0.5:
            theta = theta + 2**0.5 / ((p - 1) * k) ** 0.5 * label * unit
            theta, k = theta / max(1, norm(theta, p)), k + 1
    assert state.steps[0] == k > 60 and counts.updates < 120
    np.testing.assert_allclose(setting.weights(state), gradient(theta, p), rtol=1e-9, atol=1e-12)


def largest_p_margin(rows, p, parts):
    """Bounds of the largest margin in the p-norm of signed rows, within 1e-5: the least ||sum d_i y_i x_i||_p over
    d >= 0 of sum 1 (or of 1/2 over each of the ``parts``), by SLSQP, which no margin exceeds, and the margin of g
    there."""
    d = np.zeros(len(rows))
    for part in parts:
        d[part] = 1 / len(part) / len(parts)

    def half_square(d):
        v = d @ rows
        return 0.5 * norm(v, p) ** 2, rows @ gradient(v, p)

    sums = [np.isin(np.arange(len(rows)), part).astype(float) for part in parts]
    limits = {"type": "eq", "fun": lambda d: np.array([s @ d - 1 / len(parts) for s in sums]),
              "jac": lambda d: np.array(sums)}  # fmt: skip
    found = scipy.optimize.minimize(half_square, d, jac=True, bounds=[(0, 1)] * len(rows), constraints=limits,
                                    method="SLSQP", options={"ftol": 1e-16, "maxiter": 2000})  # fmt: skip
    v = found.x @ rows
    u = gradient(v, p) / norm(v, p)  # of q-norm 1
    margin, bound = sum((rows[part] @ u).min() for part in parts) / len(parts), norm(v, p)
    assert 0 < margin <= bound * (1 + 1e-12) and bound - margin <= 1e-5 * bound
    return margin, bound


@some_seeds(2, 8)
def test_almas_corrections_and_margins_keep_to_its_theorem(seeds):
    """(Gentile 2001, Theorem 3) for alpha = 0.5 and 0.1, p = 2 and 2 ln n; gamma is the largest margin there is."""
    for seed in seeds:
        n = 4 + seed
        x, y, *_ = separable_rows(n_rows=30, n_features=n, seed=seed)
        for p in (2.0, max(2.0, 2 * math.log(n))):
            unit = x.astype(float) / np.array([[norm(row, p)] for row in x.astype(float)])
            gamma, most = largest_p_margin(y[:, None] * unit, p, [np.arange(30)])
            for alpha in (0.5, 0.1):
                setting, state = made(ALMA, n, p=p, alpha=alpha)
                corrections, _ = passes(setting, state, block_of(sp.csr_matrix(x), y), most=10**6)
                assert 0 < corrections <= 2 * (p - 1) / most**2 * (2 / alpha - 1) ** 2 + 8 / alpha - 4
                w = setting.weights(state)[:-1]
                assert (1 - alpha) * most <= (y * (unit @ w)).min() / norm(w, p / (p - 1)) <= most * (1 + 1e-12)
            assert gamma >= (1 - 1e-5) * most


def test_each_step_of_pumma_is_the_point_of_least_norm_on_its_way():
    """||u||_p of the step against a search by scipy, and the slope there: steps of p from 2 to 85."""
    for seed in range(4):
        x, y = random_rows(60, 20, seed=seed, density=0.5, noise=0)
        p, bias = (2.0, 3.0, 9.0, 85.0)[seed], (None, "free")[seed % 2]
        setting, state = made(PUMMA, 20, bias=bias, p=p, delta=0.1)
        block, kernel, params, seen = block_of(x, y), setting.kernel(), setting.params(), 0
        for i in range(60):
            before = state.length[pn.SCALE] * state.weights.copy()
            if not kernel(block, np.array([i]), state, (), params, np.zeros(60)).updates or not before.any():
                continue
            u, z = state.length[pn.SCALE] * state.weights, np.zeros(21)
            z[state.places[: state.sizes[2], 2]] = state.values[: state.sizes[2], 2]
            s = (u - before) @ (z - before) / ((z - before) @ (z - before))
            np.testing.assert_allclose(u, before + s * (z - before), rtol=0, atol=1e-13)
            found = scipy.optimize.minimize_scalar(
                lambda s, u=before, z=z, p=p: norm(u + s * (z - u), p), bounds=(0, 1), method="bounded",
                options={"xatol": 1e-12},
            )  # fmt: skip
            assert state.margin[pn.BOUND] <= found.fun * (1 + 1e-12)
            np.testing.assert_allclose(state.margin[pn.BOUND], norm(u, p), rtol=1e-10)
            if s < 1:
                assert abs(gradient(u, p) @ (z - before)) < 1e-10
            w = setting.weights(state)
            np.testing.assert_allclose(w[:-1], (gradient(u, p) / norm(u, p) ** 2)[:-1], rtol=1e-8, atol=1e-12)
            seen += 1
        assert seen >= 5


def largest_margin(x, y):
    """max_{w, b} min y (w.x + b) / ||w||_2, by SLSQP."""

    def lack(z):
        return y * (x @ z[:-1] + z[-1]) - 1

    start = np.append(10 * y @ x / len(y), 0.0)
    found = scipy.optimize.minimize(lambda z: 0.5 * z[:-1] @ z[:-1], start, jac=lambda z: np.append(z[:-1], 0),
                                    constraints={"type": "ineq", "fun": lack}, method="SLSQP",
                                    options={"maxiter": 500, "ftol": 1e-14})  # fmt: skip
    assert found.success
    return 1 / np.linalg.norm(found.x[:-1])


def test_pumma_reaches_its_part_of_the_largest_margin():
    for seed in range(5):
        x, y, *_ = separable_rows(n_rows=30, n_features=5, seed=seed)
        x, block = x.astype(float), block_of(sp.csr_matrix(x), y)
        for delta in (0.3, 0.05):
            setting, state = made(PUMMA, 5, bias="free", p=2, delta=delta)
            passes(setting, state, block, most=10**5)
            w, most = setting.weights(state), largest_margin(x, y)
            margin = (y * (x @ w[:-1] + w[-1])).min() / np.linalg.norm(w[:-1])
            assert (1 - delta) * most <= margin <= most * (1 + 1e-9) and state.margin[pn.BOUND] >= most * (1 - 1e-9)
        setting, state = made(PUMMA, 5, bias="free", delta=0.1)  # of the infinity norm
        passes(setting, state, block, most=10**5)
        w, most = setting.weights(state), infinity_norm_margin(x.astype(np.float32), y).margin
        assert (y * (x @ w[:-1] + w[-1])).min() / np.abs(w[:-1]).sum() >= 0.9 * most


@some_seeds(2, 4)
def test_pummas_updates_and_margins_keep_to_its_theorem(seeds):
    """1 + 16 (p-1) R^2 / (delta^2 gamma^2) steps with a free bias, a quarter of that without (``p_norm_margin``), gamma
    the largest margin there is, and at least (1 - delta) gamma in the end."""
    for seed in seeds:
        n = 4 + 2 * seed
        x, y, *_ = separable_rows(n_rows=30, n_features=n, seed=seed)
        signed, block = y[:, None] * x.astype(float), block_of(sp.csr_matrix(x), y)
        for p in (2.0, max(2.0, 2 * math.log(n))):
            for bias, parts in ((None, [np.arange(30)]), ("free", [np.flatnonzero(y == s) for s in (1, -1)])):
                _, most = largest_p_margin(signed, p, parts)
                size = max(norm(row, p) for row in signed)
                for delta in (0.5, 0.1):
                    setting, state = made(PUMMA, n, bias=bias, p=p, delta=delta)
                    updates, _ = passes(setting, state, block, most=10**5)
                    assert 0 < updates <= 1 + len(parts) ** 2 * 4 * (p - 1) * size**2 / (delta * most) ** 2
                    w = setting.weights(state)
                    margin = (y * (x @ w[:-1] + w[-1])).min() / norm(w[:-1], p / (p - 1))
                    assert (1 - delta) * most <= margin <= most * (1 + 1e-9)


# MEMMA


def free_energy(v, eta, mirror):
    t = np.concatenate([v, -v]) / eta if mirror else v / eta
    return eta * np.logaddexp.reduce(t), np.exp(t - np.logaddexp.reduce(t))


def random_state(random, n, signs, bias, **given):
    """MEMMA's state after two rows and then somewhere at random, in both forms; and a row that it lacks margin on."""
    settings = [case.setting(bias, signs=signs, **given) for case in (MEMMA, MEMMA_P)]
    x, y = np.clip(random.standard_normal((3, n)), -1, 1).astype(np.float32), np.array([1, -1, 1])
    block, states = block_of(sp.csr_matrix(x), y), [setting.shared(n, "float64") for setting in settings]
    for setting, state in zip(settings, states, strict=True):
        setting.kernel()(block, np.arange(2), state, (), setting.params(), np.zeros(3))
    params, mirror = settings[0].params(), signs == "both"
    held = n + (bias == "feature")
    eta = params.epsilon / (params.c * math.log(held * (1 + mirror)))
    v = np.zeros(n + 1)
    v[:held] = 0.3 * random.standard_normal(held)
    F, p = free_energy(v[:held], eta, mirror)
    states[0].weights[:], states[0].numbers[me.SCALE] = v, 1.0
    me.measure(states[0], params)
    states[1].weights[:held] = np.stack([v[:held], -v[:held]], axis=1) / eta - F / eta
    states[1].numbers[me.BOUND] = F
    for state in states:
        state.numbers[me.BIAS] = 0.0
    return settings, states, block, (v, eta, F, p)


@pytest.mark.parametrize("signs", [pytest.param("both", marks=pytest.mark.long), "nonnegative"])
def test_both_forms_of_memma_make_the_same_step_from_any_state(signs):
    """To 1e-9, single steps from 400 states with either kind of weights and all of bias: p, b, F."""
    random, moved, trial = np.random.default_rng(0), 0, 0
    while moved < 200:
        trial += 1
        bias = (None, "feature", "free")[trial % 3]
        eps = float(10 ** random.uniform(-2, 0))
        settings, states, block, (_, _, F, _) = random_state(random, int(random.integers(2, 40)), signs, bias, eps=eps)
        found = []
        for setting, state in zip(settings, states, strict=True):
            updates = setting.kernel()(block, np.array([2]), state, (), setting.params(), np.zeros(3)).updates
            found.append(np.append(setting.weights(state), [state.numbers[me.BOUND], updates]))
        moved += int(found[0][-1])
        assert found[0][-2] <= F * (1 + 1e-14) + 1e-14
        np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-9)
    assert trial < 800


def solved(A, room, q, eta):
    """p, b, gamma of  max gamma + eta H(p)  such that  A (p, b, gamma) + room >= 0, sum p = 1:  by SLSQP, from which
    Newton's method on the conditions of Karush, Kuhn and Tucker (scipy's root) goes on to rounding; these conditions
    are what is checked, for the problem is concave."""
    n = q.size

    def value(t):
        p = np.maximum(t[:n], 1e-300)
        return -(t[n + 1] - eta * p @ np.log(p)), -np.concatenate([-eta * (np.log(p) + 1), [0, 1]])

    limits = [
        {"type": "ineq", "fun": lambda t: A @ t + room, "jac": lambda t: A},
        {"type": "eq", "fun": lambda t: t[:n].sum() - 1, "jac": lambda t: np.r_[np.ones(n), 0, 0]},
    ]
    near = scipy.optimize.minimize(
        value, np.r_[q, 0, -2], jac=True, bounds=[(1e-12, 1)] * n + [(None, None)] * 2, constraints=limits,
        method="SLSQP", options={"ftol": 1e-15, "maxiter": 1000},
    ).x  # fmt: skip
    for active in ([0, 1], [0, 1, 2]):  # the margins of both rows, and the memory

        def conditions(t, active=active):
            logs, prices = t[:n], t[n + 2 : -1]
            p, at = np.exp(logs), np.r_[np.exp(logs), t[n : n + 2]]
            slope = np.r_[-eta * (logs + 1) + t[-1], 0, 1] + prices @ A[active]
            return np.r_[slope, (A @ at + room)[active], p.sum() - 1]

        logs = np.log(np.maximum(near[:n], 1e-9))
        normals = np.vstack([A[active], np.r_[np.ones(n), 0, 0]])
        prices = np.linalg.lstsq(normals.T, -np.r_[-eta * (logs + 1), 0, 1], rcond=None)[0]
        found = scipy.optimize.root(conditions, np.r_[logs, near[n:], prices], method="lm", tol=1e-15)
        at = np.r_[np.exp(found.x[:n]), found.x[n : n + 2]]
        prices = found.x[n + 2 : -1]
        if np.abs(conditions(found.x)).max() < 1e-11 and (A @ at + room).min() > -1e-11 and prices.min() >= -1e-11:
            assert -value(at)[0] == pytest.approx(-value(near)[0], abs=1e-6)  # SLSQP's
            return at, len(active)
    raise AssertionError("not solved")


@pytest.mark.parametrize("signs", ["both", "nonnegative"])
def test_memmas_step_is_the_solution_of_its_papers_problem(signs):
    """max gamma + eta H(p) under the two rows' margins and the memory: 100 problems, p, gamma, b and the value of both
    forms to 1e-9 of a general optimiser's."""
    random, solutions, remembered = np.random.default_rng(1), 0, 0
    while solutions < 50:
        n, eps = int(random.integers(2, 7)), float(random.choice([2.0, 0.5]))
        settings, states, block, (_, eta, F, q) = random_state(random, n, signs, "free", eps=eps, c=2.5)
        plus, minus = dense(block, n)[2], dense(block, n)[1]
        if signs == "both":
            plus, minus = np.r_[plus, -plus], np.r_[minus, -minus]
        if q @ (plus - minus) / 2 - eta * q @ np.log(q) >= F:  # no row that MEMMA would learn from
            continue
        A = np.array([np.r_[plus, 1, -1], np.r_[-minus, -1, -1], np.r_[eta * np.log(q), 0, -1]])
        at, active = solved(A, np.array([0, 0, F]), q, eta)
        p, b, gamma = at[:-2], at[-2], at[-1]
        solutions, remembered = solutions + 1, remembered + (active == 3)
        for setting, state in zip(settings, states, strict=True):
            state.numbers[me.BIAS] = -1e3  # whatever the row is, it lacks margin
            setting.kernel()(block, np.array([2]), state, (), setting.params(), np.zeros(3))
            w = setting.weights(state)
            np.testing.assert_allclose(w[:n], p[:n] - p[n:] if signs == "both" else p, rtol=0, atol=1e-9)
            assert w[n] == pytest.approx(b, abs=1e-9)
            assert state.numbers[me.BOUND] == pytest.approx(gamma - eta * p @ np.log(p), abs=1e-9)
            for x, y in ((plus, 1), (minus, -1)):  # both margins are gamma
                assert y * (x[:n] @ w[:n] + w[n]) == pytest.approx(gamma, abs=1e-9)
    assert 10 < remembered <= 50


def signs_of_k(seed, n=40, rows=150, k=5, r=3):
    random = np.random.default_rng(seed)
    x = random.choice(np.array([-1, 1], np.float32), (rows, n))
    return x, np.where((x[:, :k] > 0).sum(axis=1) >= r, 1, -1)


@some_seeds(1, 3)
@pytest.mark.parametrize(("signs", "bias"), [
    ("both", "free"), ("nonnegative", "feature"),
    *(pytest.param(*more, marks=pytest.mark.long) for more in (("both", "feature"), ("nonnegative", "free"))),
])  # fmt: skip
def test_memmas_bound_margin_and_updates(signs, bias, seeds):
    """F never rises nor falls below gamma* + eta H(p*); a clean pass leaves gamma* - eps; updates by the corrected
    theorem with c = 4."""
    for seed in seeds:
        x, y = signs_of_k(seed)
        best = infinity_norm_margin(x, y, signs=signs, bias=bias)
        u = np.append(best.weights, best.bias) if bias == "feature" else best.weights
        eps = 0.3 * best.margin
        setting, state = made(MEMMA, 40, bias=bias, signs=signs, eps=eps)
        mirrors = 2 if signs == "both" else 1
        names = (40 + (bias == "feature")) * mirrors
        eta = eps / (4 * math.log(names))
        entropy = -(np.abs(u[u != 0]) * np.log(np.abs(u[u != 0]))).sum()
        bounds, block, order = [np.inf], block_of(sp.csr_matrix(x), y), np.arange(150)
        total, updates = 0, 1
        while updates:
            updates = 0
            for i in order:
                updates += setting.kernel()(block, order[i : i + 1], state, (), setting.params(), np.zeros(150)).updates
                if state.counts[me.STEPS]:
                    v = state.numbers[me.SCALE] * state.weights[: names // mirrors]
                    bounds.append(free_energy(v, eta, mirrors == 2)[0])
                    assert state.numbers[me.BOUND] == pytest.approx(bounds[-1], rel=1e-12)
            total += updates
        assert np.all(np.diff(bounds) <= 1e-14)
        assert min(bounds) >= best.margin + eta * entropy - 1e-12
        w = setting.weights(state)
        margin = (y * (x @ w[:-1] + w[-1])).min()
        assert margin == pytest.approx(state.numbers[me.LEAST], abs=1e-12)
        assert best.margin - eps <= margin <= best.margin + 1e-12
        assert 0 < total <= 32 * 64 * math.log(names) / eps**3 + 32 * 16 * math.log(names) / eps**2


@pytest.mark.parametrize("signs", ["both", "nonnegative"])
def test_steps_on_sparse_rows_keep_the_sum_over_all_features(signs):
    """F by moments and few features against the sum over all 3,000, after every pass; p kept by row against p."""
    x, y = random_rows(400, 3000, density=0.01, noise=0)
    x.data[:] = np.clip(x.data, -1, 1)
    setting, state = made(MEMMA, 3000, bias="free", signs=signs, eps=0.1)
    block, params, hot = block_of(x, y), setting.params(), []
    for _ in range(4):
        setting.kernel()(block, np.arange(400), state, (), params, np.zeros(400))
        eta = params.epsilon / (params.c * math.log(3000 * (1 + params.mirror)))
        v = state.numbers[me.SCALE] * state.weights[:-1]
        F, p = free_energy(v, eta, params.mirror)
        assert state.numbers[me.BOUND] == pytest.approx(F, rel=1e-12)
        w = p[:3000] - p[3000:] if params.mirror else p
        np.testing.assert_allclose(setting.weights(state)[:-1], w, rtol=1e-9, atol=1e-16)
        kept = state.asked[:-1] == state.counts[me.CLOCK]
        np.testing.assert_allclose(state.answers[:-1][kept], w[kept], rtol=1e-9, atol=1e-16)
        levels = np.abs(v / eta)
        assert set(np.flatnonzero(levels > me.COLD)) == set(state.hot[: state.counts[me.HOT]])
        assert state.moments[0] == 3000 - state.counts[me.HOT] and kept.sum() > 10
        hot.append(int(state.counts[me.HOT]))
    assert min(hot) < 2500 and state.counts[me.STEPS] > 40


def test_values_beyond_1_are_divided_by_the_largest_and_it_is_said(caplog, quiet):
    x, y = signs_of_k(0)
    one, eight = (
        fit(c * x, y, algo="memma", bias="free", eps=0.1, epochs=400, progress=False) for c in np.float32([1, 8])
    )
    np.testing.assert_allclose(one.coef_, eight.coef_, rtol=1e-9)
    assert one.result_.stopped == "settled" and one.result_.epochs == eight.result_.epochs < 400
    assert not one.result_.warnings and "8" in eight.result_.warnings[0] and "divides" in caplog.text
    first, last = eight.result_.history[0], eight.result_.history[-1]
    assert last["largest_value"] == 8 and last["updates"] == 0 and first["margin_bound"] > last["margin_bound"]
    scores = y * (8 * x @ eight.coef_[0] + eight.intercept_[0])
    assert last["least_margin"] == pytest.approx(scores.min()) and scores.min() > last["margin_bound"] - 0.8


@pytest.mark.parametrize("algo", ["memma", "memma_p", "pumma", "alma"])
def test_rows_that_nothing_separates_end_with_a_statement(algo, quiet):
    x, y = signs_of_k(1)
    y[::5] *= -1
    options = {"eps": 0.3} if algo.startswith("memma") else {}
    model = fit(x, y, algo=algo, epochs=100, progress=False, **options)
    (said,) = model.result_.warnings
    assert "separa" in said and "soft_margin" in said and np.isfinite(model.coef_).all()
    if algo.startswith("memma"):
        assert model.result_.stopped == "settled"


@pytest.mark.long
def test_a_million_features_and_a_tiny_temperature_stay_finite(quiet):
    """eta = 1e-6, p = 2 ln n, theta in the millions."""
    n, random = 1_000_000, np.random.default_rng(0)
    relevant = random.choice(np.array([-1, 1], np.float32), (60, 8))
    others = sp.random(60, n - 8, 20 / n, "csr", np.float32, random_state=random)
    rows = sp.hstack([sp.csr_matrix(relevant), others]).tocsr()
    labels = np.where(relevant.sum(axis=1) > 0, 1, -1)
    block = block_of(rows, labels)
    tiny = 1e-6 * 4 * math.log(2 * n)
    exact = {"p": 2 * math.log(n)}
    cases = ((MEMMA, {"eps": tiny}, 60), (MEMMA_P, {"eps": tiny}, 3), (PUMMA, exact, 60), (ALMA, exact, 60),
             (Case("pnorm_perceptron", None), exact, 60), (WINNOW, {"eta": 1e6}, 60), (WINNOW, {"eta": 1e-6}, 60),
             (WINNOW2, {"alpha": 1 + 1e-6}, 60), (WINNOW2, {"alpha": 1e6}, 60))  # fmt: skip
    for case, given, m in cases:
        setting, state = made(case, n, bias="free" if case in (MEMMA, MEMMA_P, PUMMA) else "feature", **given)
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            for _ in range(3 if m == 60 else 1):
                counts = setting.kernel()(block, np.arange(m), state, (), setting.params(), np.zeros(60))
            w = setting.weights(state)
        assert np.isfinite(w).all() and np.any(w[:8] != 0) and counts.mistakes <= 40, case
        for array in state:  # the least margin since the last step is infinite until a row comes
            assert np.isfinite(array).all() or (array.size < 20 and np.isposinf(array[~np.isfinite(array)]).all())
    few = rows[:, :300]  # the solver between reads goes through all features many times
    found = fit(few, labels, algo="memma_blocks", eps=tiny, bias="free", buffer=30, epochs=2, progress=False)
    sure = found.result_.certificate
    largest = infinity_norm_margin(few, labels, bias="free").margin
    assert np.isfinite(found.coef_).all() and -1 <= sure["dual"] <= largest <= sure["primal"] + 1e-9 <= 2


@pytest.mark.parametrize("algo", ["pumma", "memma", "memma_p"])
def test_a_least_margin_is_told_of_rows_that_came_after_the_last_step_only(algo, quiet):
    """One row each: every pass ends with a step."""
    x, y = np.array([[1.0, 0.5], [-0.5, -1.0]], np.float32), np.array([1, -1])
    setting, state = made(Case(algo, None), 2)
    block, params = block_of(x, y), setting.params()
    setting.kernel()(block, np.array([0]), state, (), params, np.zeros(2))
    told = setting.method.form.told(state, params)
    assert told["margin_bound"] > 0 and "least_margin" not in told
    setting.kernel()(block, np.array([0]), state, (), params, np.zeros(2))
    told = setting.method.form.told(state, params)
    assert 0 < told["least_margin"] <= told["margin_bound"]


@pytest.mark.parametrize("algo", ["alma", "pumma"])
def test_where_mistakes_are_left_both_reasons_are_named(algo):
    x, y = random_rows(200, 20, noise=2.0)
    (said,) = fit(x, y, algo=algo, epochs=2, progress=False).result_.warnings
    assert "more than 2 epochs are needed" in said and "or the rows are not separable" in said


@pytest.mark.parametrize("p", [2.0, 3.5, 9.0])
def test_the_slopes_along_a_search_are_the_derivatives_of_half_the_squared_norm(p):
    """In units of the scale times the unit; features that z lacks count by their norm."""
    rng, scale, unit = np.random.default_rng(0), 0.5, 2.0
    u, z, rest = rng.standard_normal(5), rng.standard_normal(5), 0.7
    length = np.array([p, scale, unit, 0.0, 0.0, 0.0])
    places, values = np.zeros((6, 3), np.int64), np.zeros((6, 3))
    places[:5, 2], values[:5, 2] = np.arange(5)[::-1], z

    def half(s):
        joined = (1 - s) * u[::-1] / unit + s * z / (scale * unit)
        return 0.5 * (((1 - s) * rest) ** p + (np.abs(joined) ** p).sum()) ** (2 / p)

    for s in (0.0, 0.3, 0.8):
        norm, first, second = pn.slope(s, 5, rest, np.append(u, 9.0), length, places, values)
        h = 1e-4
        assert norm == pytest.approx(np.sqrt(2 * half(s)))
        assert first == pytest.approx((half(s + h) - half(s - h)) / (2 * h), rel=1e-6)
        assert second == pytest.approx((half(s + h) - 2 * half(s) + half(s - h)) / h**2, rel=1e-4)


@pytest.mark.parametrize(
    ("bracket", "first", "second", "found"),
    [
        ((0.0, 1.0, 0.5), -1.0, 10.0, (0.5, 1.0, 0.6)),  # Newton's step
        ((0.0, 1.0, 0.5), 1.0, 10.0, (0.0, 0.5, 0.4)),
        ((0.0, 1.0, 0.5), -1.0, 0.1, (0.5, 1.0, 1.0)),  # beyond the end: the end itself, once
        ((0.0, 1.0, 1.0), -1.0, 0.1, (1.0, 1.0, 1.0)),
        ((0.2, 0.8, 0.5), -1.0, 0.1, (0.5, 0.8, 0.65)),  # beyond what is left: its middle
        ((0.2, 0.8, 0.5), 1.0, 0.1, (0.2, 0.5, 0.35)),
        ((0.2, 0.8, 0.5), 1.0, 0.0, (0.2, 0.5, 0.35)),  # no curvature
    ],
)
def test_a_search_looks_next_inside_what_is_left_of_its_bracket(bracket, first, second, found):
    from bigclf.methods.online.held_rows import narrowed

    assert narrowed(*bracket, first, second) == pytest.approx(found)
