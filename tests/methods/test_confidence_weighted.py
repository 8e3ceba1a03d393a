"""The confidence family: each closed form against a general-purpose optimiser, bounds, symmetries, fusion, extremes.

The problems are those of the papers that ``online/confidence_weighted.py`` names; solved by scipy's SLSQP.
"""

import numpy as np
import pytest
from making import Case, all_arrays, block_of, learn, mix, random_rows, separable_rows
from scipy.optimize import minimize
from scipy.stats import norm as normal

from bigclf.api.fit import fit
from bigclf.errors import DataError, MemoryBudgetError
from bigclf.maths.deltas import difference
from bigclf.maths.mixing import PRECISION, Mixture
from bigclf.methods import METHODS, resolve

QUIET = dict(progress=False)
FAMILY = [name for name, m in METHODS.items() if m.name.startswith(("cw", "scw", "arow", "narow", "nherd"))]
VARIANCES = [name for name in FAMILY if METHODS[name].form.mixings]
FULL = [name for name in FAMILY if name not in VARIANCES]
every_member = pytest.mark.parametrize("algo", FAMILY)


def state_of(algo, mu, covariance):
    """The method's state [features + 1] with a mean [n] and a covariance [n, n]; the bias has mean 0, variance 1."""
    shared = resolve(algo, None, None, None, {}).shared(mu.size, "float64")
    if algo in VARIANCES:
        shared.weights[:-1] = np.column_stack([mu, np.diag(covariance)])
    else:
        shared.weights[:-1] = mu
        shared.covariance[:-1, :-1] = covariance
    return shared


def gaussian_of(shared):
    """(mean [n], covariance [n, n]) without the bias."""
    if shared.weights.ndim == 2:
        return shared.weights[:-1, 0].copy(), np.diag(shared.weights[:-1, 1])
    return shared.weights[:-1].copy(), shared.covariance[:-1, :-1].copy()


def step(algo, mu, covariance, x, y, **given):
    """The Gaussian after one row, and whether it moved."""
    shared = state_of(algo, mu, covariance)
    *_, counts, _ = learn(
        Case(algo, None), block_of(np.vstack([x, x]), [y, y]), x.size, np.array([0]), (shared, ()), **given
    )
    return *gaussian_of(shared), counts.updates


def instances(n_instances, seed, diagonal):
    """Random Gaussians of 1 to 4 weights, rows (float32 values) and labels, whose margins go both ways."""
    rng = np.random.default_rng(seed)
    for _ in range(n_instances):
        n = int(rng.integers(1, 5))
        root = rng.standard_normal((n, n)) + 0.5 * np.eye(n)
        covariance = np.diag(rng.uniform(0.2, 2, n)) if diagonal else root @ root.T + 0.1 * np.eye(n)
        yield rng.standard_normal(n), covariance, rng.standard_normal(n).astype(np.float32), int(rng.choice([-1, 1]))


def argmin(mu, covariance, x, y, cost, shortage, diagonal=False):
    """The Gaussian that minimises  KL(it, the given one) + cost(s, v)  with  shortage(m, v) <= s, 0 <= s, by SLSQP over
    the mean, a Cholesky factor L (diagonal: its diagonal) and the slack s (none where there is no cost); m = y mu.x,
    v = x' Sigma x. ``cost`` and ``shortage`` return their values and slopes."""
    n, places = mu.size, np.eye(mu.size, dtype=bool) if diagonal else np.tri(mu.size, dtype=bool)
    precision, slack = np.linalg.inv(covariance), cost is not None
    cost = cost or (lambda s, v: (0.0, 0.0, 0.0))

    def parts(z):
        factor = np.zeros((n, n))
        factor[places] = z[n:-1]
        return z[:n], factor, z[-1], (x @ factor) @ (x @ factor), 2 * np.outer(x, x @ factor)[places]

    def value(z):
        m, factor, s, v, _ = parts(z)
        trace = np.sum(precision * (factor @ factor.T))
        away = (m - mu) @ precision @ (m - mu)
        return 0.5 * (trace + away) - np.log(np.abs(np.diag(factor))).sum() + cost(s, v)[0]

    def slope(z):
        m, factor, s, v, slope_v = parts(z)
        inner = (precision @ factor - np.diag(1 / np.diag(factor)))[places]
        _, by_s, by_v = cost(s, v)
        return np.concatenate([precision @ (m - mu), inner + by_v * slope_v, [by_s]])

    def room(z):
        m, _, s, v, _ = parts(z)
        return s - shortage(y * (m @ x), v)[0]

    def room_slope(z):
        m, _, s, v, slope_v = parts(z)
        _, by_m, by_v = shortage(y * (m @ x), v)
        return np.concatenate([-by_m * y * x, -by_v * slope_v, [1.0]])

    limits = {"type": "ineq", "fun": room, "jac": room_slope}
    factor = np.linalg.cholesky(covariance)
    start = np.concatenate([mu, factor[places], [0.0]])
    start[-1] = max(0.0, -room(start)) if slack else 0.0
    bounds = [(None, None)] * (start.size - 1) + [(0.0, None if slack else 0.0)]
    exact = {"ftol": 1e-15, "maxiter": 1000}
    found = minimize(value, start, jac=slope, bounds=bounds, constraints=limits, method="SLSQP", options=exact)
    m, factor, *_ = parts(found.x)
    return m, factor @ factor.T


PHI = normal.ppf(0.9)
COSTS = {  # cost(s, v) and its slopes
    "hard": None,
    "linear": lambda s, v: (0.3 * s, 0.3, 0.0),
    "squared": lambda s, v: (0.3 * s * s, 0.6 * s, 0.0),
    "adaptive": lambda s, v: ((s * s + v) / 1.4, 2 * s / 1.4, 1 / 1.4),  # r = 0.7
}
SHORTAGES = {
    "variance": lambda m, v: (0.8 * v - m, -1.0, 0.8),
    "deviation": lambda m, v: (PHI * np.sqrt(v) - m, -1.0, 0.5 * PHI / np.sqrt(v)),
    "hinge": lambda m, v: (1 - m, -1.0, 0.0),
}
PROBLEMS = {
    "cw_var": ("hard", "variance", dict(phi=0.8)),
    "cw_var_exact": ("hard", "variance", dict(phi=0.8)),
    "cw_var_full": ("hard", "variance", dict(phi=0.8)),
    "cw": ("hard", "deviation", dict(eta=0.9)),
    "cw_exact": ("hard", "deviation", dict(eta=0.9)),
    "cw_full": ("hard", "deviation", dict(eta=0.9)),
    "scw1": ("linear", "deviation", dict(C=0.3, eta=0.9)),
    "scw2": ("squared", "deviation", dict(C=0.3, eta=0.9)),
    "arow": ("adaptive", "hinge", dict(r=0.7)),
    "arow_var": ("adaptive", "hinge", dict(r=0.7)),
    "arow_full": ("adaptive", "hinge", dict(r=0.7)),
}


@pytest.mark.parametrize("algo", PROBLEMS)
def test_a_step_equals_the_solution_of_its_problem(algo):
    """Full and exact forms are it; the others are its mean and, of its precision or covariance, the diagonal."""
    cost, shortage, given = PROBLEMS[algo]
    moved = 0
    for mu, covariance, x, y in instances(40, 3, diagonal=algo in VARIANCES):
        mean, found, updates = step(algo, mu, covariance, x, y, **given)
        moved += updates
        if not updates:
            assert SHORTAGES[shortage](y * (mu @ x), x @ covariance @ x)[0] <= 0
            np.testing.assert_array_equal(mean, mu)
            np.testing.assert_array_equal(found, covariance)
            continue
        wide = x.astype(float)
        best, expected = argmin(mu, covariance, wide, y, COSTS[cost], SHORTAGES[shortage], algo.endswith("_exact"))
        if algo == "arow_var":
            expected = np.diag(np.diag(expected))
        elif algo in VARIANCES and not algo.endswith("_exact"):
            expected = np.diag(1 / np.diag(np.linalg.inv(expected)))
        np.testing.assert_allclose(mean, best, rtol=0, atol=1e-5 * max(1, np.abs(best).max()))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * max(1, np.abs(expected).max()))
    assert 12 < moved < 40


def test_a_step_of_the_normal_herd_equals_the_best_linear_map():
    """min over A, b of  E 1/2 ||w' - w||^2 + C/2 (1 - y w'.x)^2  for w' = A w + b, w from the Gaussian, the norm that
    of its precision (Crammer and Lee 2010): a least-squares problem in A L and in the mean, solved as one."""
    moved = 0
    for mu, covariance, x, y in instances(100, 5, diagonal=True):
        mean, found, updates = step("nherd", mu, covariance, x, y, C=0.6)
        moved += updates
        if not updates:
            continue
        n, root, x = mu.size, np.linalg.cholesky(covariance), x.astype(float)
        inverse, pull = np.linalg.inv(root), np.sqrt(0.6) * x[None]

        def solved(target, aim, inverse=inverse, pull=pull):
            return np.linalg.lstsq(np.vstack([inverse, pull]), np.vstack([inverse @ target, aim]), rcond=None)[0]

        best = solved(mu[:, None], np.full((1, 1), np.sqrt(0.6) * y))[:, 0]
        image = solved(root, np.zeros((1, n)))  # A L, whose columns are mapped one by one
        expected = np.diag(1 / np.diag(np.linalg.inv(image @ image.T)))
        np.testing.assert_allclose(mean, best, atol=1e-9)
        np.testing.assert_allclose(found, expected, atol=1e-9)
    assert 30 < moved < 100


@pytest.mark.parametrize("algo", ["cw_var_exact", "cw_var_full", "cw_exact", "cw_full"])
def test_a_row_is_satisfied_to_the_last_digits(algo):
    """The constraint is active after an update, whatever the sizes of margin, variance and confidence."""
    rng = np.random.default_rng(1)
    for number in range(100):
        n = int(rng.integers(1, 30))
        x = (rng.standard_normal(n) * 10.0 ** rng.uniform(-2, 2, n)).astype(np.float32)
        covariance = np.diag(10.0 ** rng.uniform(-2, 2, n))
        mu = rng.standard_normal(n) * 10.0 ** rng.uniform(-2, 2)
        given = {"phi": 10.0 ** rng.uniform(-2, 2)} if "var" in algo else {"eta": rng.uniform(0.51, 0.999)}
        y = -1 if mu @ x > 0 else 1  # a mistake
        mean, found, updates = step(algo, mu, covariance, x, y, **given)
        wide = x.astype(float)
        v = wide @ found @ wide
        asked = given["phi"] * v if "var" in algo else normal.ppf(given["eta"]) * np.sqrt(v)
        scale = np.abs(mean) @ np.abs(wide) + asked
        assert updates == 1 and abs(y * (mean @ wide) - asked) <= 1e-9 * scale, number


@pytest.mark.parametrize("algo", ["cw_var", "cw_var_exact", "cw", "cw_exact", "arow", "arow_var", "narow"])
def test_in_one_dimension_the_full_covariance_is_its_diagonal(algo):
    other = {"arow_var": "arow", "cw_exact": "cw", "cw_var_exact": "cw_var"}.get(algo, algo) + "_full"
    rng = np.random.default_rng(0)
    block = block_of(rng.standard_normal((200, 1)).astype(np.float32), rng.choice([-1, 1], 200))
    few, whole = learn(Case(algo, None), block, 1), learn(Case(other, None), block, 1)
    assert few[2].mistakes == whole[2].mistakes > 20
    for found, expected in zip(gaussian_of(few[0]), gaussian_of(whole[0]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


# NAROW's recursion


def narow(x, y, b, diagonal, fixed_r=None):
    """The author's recursion (F. Orabona, DOGMA, narow_train.m) with dense matrices, A inverted anew for each row.
    diagonal : what is off the diagonal of K = A^-1 is dropped after each row."""
    n = x.shape[1]
    theta, K = np.zeros(n), np.eye(n)
    for row, label in zip(x.astype(float), y, strict=True):
        chi = row @ K @ row
        r = fixed_r or (chi / (b * chi - 1) if b * chi > 1 else np.inf)
        shrink = 1.0 if np.isinf(r) else r / (chi + r)
        if label * (row @ (K @ theta)) * shrink < 1:
            theta = theta + label * row
            if not np.isinf(r):
                K = np.linalg.inv(np.linalg.inv(K) + np.outer(row, row) / r)
                K = np.diag(np.diag(K)) if diagonal else K
    return K @ theta, K


@pytest.mark.parametrize("algo", ["narow", "narow_full"])
@pytest.mark.parametrize("b", [0.3, 1.0, 20.0])
def test_narow_is_its_author_s_recursion(algo, b):
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((150, 6)).astype(np.float32), rng.choice([-1, 1], 150)
    shared, *_ = learn(Case(algo, None), block_of(x, y), 6, b=b)
    for found, expected in zip(gaussian_of(shared), narow(x, y, b, algo == "narow"), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_narow_of_a_large_b_has_the_one_r_of_1_over_b():
    rng = np.random.default_rng(4)
    x, y = rng.standard_normal((12, 20)).astype(np.float32), rng.choice([-1, 1], 12)
    shared, *_ = learn(Case("narow_full", None), block_of(x, y), 20, b=1e7)
    for found, expected in zip(gaussian_of(shared), narow(x, y, None, False, fixed_r=1e-7), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


# Bounds and symmetries


@pytest.mark.parametrize("eta", [0.7, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_steps_stay_below_their_bound(seed, eta):
    """Crammer et al. 2008, theorem 4: where N(mu*, S*) satisfies every row, the sum of alpha^2 v over the updates is at
    most (1 + phi^2) / phi^2 (tr S* - log det S* - d + mu*' S^-1 mu*), S the last covariance. A mistake's alpha^2 v is
    at least phi^2 / (1 + phi^2)."""
    x, y, u, gamma = separable_rows(seed=seed, n_features=5)
    phi, d, case = normal.ppf(eta), 5, Case("cw_full", None)
    block, state, total, mistakes = block_of(x, y), Case("cw_full", None).state(5, 0), 0.0, 0
    for _ in range(5):
        for i in range(len(y)):
            mu, covariance = gaussian_of(state[0])
            row = x[i].astype(float)
            *_, counts, _ = learn(case, block, 5, np.array([i]), state, eta=eta)
            gain = y[i] * (gaussian_of(state[0])[0] - mu) @ row  # alpha v
            total += gain**2 / (row @ covariance @ row)
            mistakes += counts.mistakes
    spread = (gamma / phi) ** 2 / (x.astype(float) ** 2).sum(axis=1).max()  # S* = spread I
    assert all(y * (x @ u) >= phi * np.sqrt(spread * (x.astype(float) ** 2).sum(axis=1)) * (1 - 1e-6))
    last = np.linalg.inv(gaussian_of(state[0])[1])
    limit = (1 + phi**2) / phi**2 * (d * (spread - np.log(spread) - 1) + u @ last @ u)
    assert 0 < mistakes * phi**2 / (1 + phi**2) <= total <= limit


@pytest.mark.parametrize("algo", ["cw", "cw_exact", "cw_full"])
def test_the_deviation_form_depends_neither_on_the_first_variance_nor_on_factors_of_rows(algo):
    x, y = random_rows(120, 20)
    plain = fit(x, y, algo=algo, bias=None, **QUIET)
    wide = fit(x, y, algo=algo, bias=None, a=16.0, **QUIET)
    np.testing.assert_allclose(wide.coef_, 4 * plain.coef_, rtol=1e-9)
    scaled = x.copy()
    scaled.data *= np.repeat(2.0 ** np.random.default_rng(0).integers(-20, 20, 120), np.diff(x.indptr)).astype("f4")
    np.testing.assert_allclose(fit(scaled, y, algo=algo, bias=None, **QUIET).coef_, plain.coef_, rtol=1e-9)


@pytest.mark.parametrize("algo", ["cw_var", "cw_var_exact", "cw_var_full"])
def test_the_variance_form_depends_on_phi_times_the_first_deviation_only(algo):
    x, y = random_rows(120, 20)
    plain = fit(x, y, algo=algo, phi=1.0, a=1.0, **QUIET).coef_
    np.testing.assert_allclose(fit(x, y, algo=algo, phi=0.25, a=16.0, **QUIET).coef_, 4 * plain, rtol=1e-9)
    assert np.abs(fit(x, y, algo=algo, phi=0.25, a=1.0, **QUIET).coef_ - plain).max() > 0.01


# Extremes


@pytest.mark.parametrize(
    ("algo", "dtype"), [*((name, "float64") for name in FAMILY), ("arow", "float32"), ("cw", "float32")]
)
def test_extreme_rows_leave_every_number_finite_and_every_variance_positive(algo, dtype):
    """Norms of 1e18 and 1e-18, contradictions, rows without entries, thousands of times."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 4)) * 10.0 ** rng.choice([-18, -3, 0, 3, 18], (300, 1))
    x[::17] = 0
    block, state, case = block_of(x.astype(np.float32), rng.choice([-1, 1], 300)), None, Case(algo, None)
    for _ in range(100):
        state = learn(case, block, 4, None, state and state[:2], dtype=dtype, bias="feature")
    shared = state[0]
    assert all(np.isfinite(array).all() for array in all_arrays(shared).values())
    variances = shared.weights[..., 1] if algo in VARIANCES else np.diag(shared.covariance)
    assert (variances > 0).all() and state[2].updates > 0


@pytest.mark.parametrize(("algo", "dtype"), [("cw", "float32"), ("cw_full", "float64")])
def test_variances_at_their_floor_are_warned_of(algo, dtype, tmp_path, caplog):
    x, _ = random_rows(300, 20, 1.0)
    y = np.random.default_rng(0).choice([-1, 1], 300)
    options = dict(algo=algo, dtype=dtype, epochs=5, **QUIET)
    assert fit(x, y, eta=0.6, **options).result_.warnings == [] and not caplog.records
    model = fit(x, y, eta=0.999, run_dir=tmp_path, **options)
    first = model.state["0.weights"] if algo == "cw" else model.state["0.covariance"]
    share = np.mean((first[:, 1] if algo == "cw" else np.diag(first)) < 1.001e-6)
    (text,) = model.result_.warnings
    assert share > 0.01 and f"{100 * share:.0f} % of the variances" in text and "a smaller eta" in text
    assert model.facts["warnings"] == [text] == [record.message for record in caplog.records]
    assert fit(x, y, eta=0.999, run_dir=tmp_path, resume=True, **options).result_.warnings == [text]


@pytest.mark.data
@pytest.mark.parametrize("algo", ["cw", "cw_exact", "cw_full"])
def test_much_confidence_on_dense_data_runs_to_its_end(algo, data_set):
    """One against the rest of the ten digits (calibration: the textbook forms end in NaN at eta >= 0.95)."""
    from sklearn.datasets import load_svmlight_file

    x, y = load_svmlight_file(str(data_set("usps/usps.gz")), n_features=256, dtype=np.float32)
    model = fit(x, y, algo=algo, eta=0.99, epochs=2, **QUIET)
    assert np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()
    assert (model.predict(x) == y).mean() > 0.5


# Fusion


def copies_of(n_copies, start=None):
    """AROW's state at a start and what copies of it become on rows of their own."""
    case = Case("arow", None)
    start = start or learn(case, block_of(*random_rows(60, 30, seed=99)), 30)[0]
    copies = []
    for number in range(n_copies):
        copy = type(start)(start.weights.copy())
        copies.append(learn(case, block_of(*random_rows(20, 30, seed=number)), 30, None, (copy, ()))[0])
    return start, copies


def test_fused_copies_are_the_posterior_given_their_rows_by_equal_parts():
    """Rows of one entry and an r that no margin reaches: AROW is then Bayesian linear regression on the labels with
    noise r (its diagonal is exact), and the fusion of three copies is the posterior given what all began with, once,
    and each copy's rows by a third: the same rows again, as in a second epoch, are nothing new."""
    rng = np.random.default_rng(2)
    x = np.zeros((120, 8), np.float32)
    x[np.arange(120), rng.integers(0, 8, 120)] = rng.standard_normal(120)
    y, case, given = rng.choice([-1, 1], 120), Case("arow", None), dict(r=50.0)
    start = learn(case, block_of(x[:30], y[:30]), 8, **given)[0]
    parts = [slice(30, 50), slice(50, 95), slice(95, 120)]
    copies = []
    for part in parts:
        copy = type(start)(start.weights.copy())
        *_, counts, _ = learn(case, block_of(x[part], y[part]), 8, None, (copy, ()), **given)
        assert counts.updates == part.stop - part.start
        copies.append(copy)
    fused = mix(PRECISION, start, copies, (1.0, 1.0, 1.0)).weights
    wide, part = x.astype(float), np.where(np.arange(120) < 30, 1.0, 1 / 3)
    precision = np.eye(8) + (wide.T * part) @ wide / 50  # the posterior in closed form
    np.testing.assert_allclose(fused[:-1, 1], np.diag(np.linalg.inv(precision)), rtol=1e-10)
    np.testing.assert_allclose(
        fused[:-1, 0], np.linalg.solve(precision, (wide.T * part) @ y / 50), rtol=1e-10, atol=1e-12
    )


def test_a_tree_of_copies_fuses_as_the_formula_says():
    start, copies = copies_of(40)
    precision = np.mean([1 / c.weights[:, 1] for c in copies], axis=0)
    mean = np.mean([c.weights[:, 0] / c.weights[:, 1] for c in copies], axis=0) / precision
    fused = mix(PRECISION, start, copies, np.ones(40)).weights
    np.testing.assert_allclose(fused, np.column_stack([mean, 1 / precision]), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("algo", ["arow", "cw", "sop"])
@pytest.mark.parametrize("n_copies", [2, 64])
def test_copies_that_went_alike_fuse_to_what_they_are(algo, n_copies):
    """A step that all groups take for the same lack of margin is taken once."""
    case, rows = Case(algo, None), block_of(*random_rows(60, 30, seed=99))
    start = learn(case, rows, 30)[0]
    state = type(start)(*(array.copy() for array in start))
    copy = learn(case, block_of(*random_rows(20, 30, seed=0)), 30, None, (state, ()))[0]
    fused = mix(case.method.form.mixings["precision"], start, [copy] * n_copies, np.ones(n_copies))
    for found, expected in zip(fused, copy, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_copies_given_by_their_changes_fuse_to_the_same_bits():
    start = learn(Case("arow", None), block_of(*random_rows(60, 300, density=0.1)), 300)[0]
    copies = []
    for number in range(20):
        copy = type(start)(start.weights.copy())
        rows = block_of(*random_rows(4, 300, density=0.02, seed=number))
        copies.append(learn(Case("arow", None), rows, 300, None, (copy, ()))[0])
    mixture = Mixture(PRECISION, start)
    for copy in copies:
        delta = difference(start, copy, 301)
        assert delta is not None and 0 < delta.places.size < 100
        mixture.add(delta, 1.0)
    whole = mix(PRECISION, start, copies, np.ones(20)).weights
    np.testing.assert_array_equal(mixture.result().weights, whole)
    assert np.any(whole != start.weights)


def test_copies_are_mixed_by_rows_unless_they_are_to_be_fused(quiet):
    x, y = random_rows(400, 20, seed=3)
    fused, mean = (
        fit(x, y, algo="cw", groups=4, epochs=3, **options, **QUIET) for options in ({"mixing": "precision"}, {})
    )
    assert fused.result_.plan["groups"] == mean.result_.plan["groups"] and np.any(fused.coef_ != mean.coef_)
    for model in (fused, mean):
        assert (model.predict(x) == y).mean() > 0.9


# What is refused, and row weights


@pytest.mark.parametrize("algo", FULL)
def test_full_covariance_takes_one_group_and_says_what_it_would_take(algo):
    x, y = random_rows(50, 5)
    with pytest.raises(ValueError, match=f"groups=2.*{algo}.*one group"):
        fit(x, y, algo=algo, groups=2, **QUIET)
    wide, y = random_rows(50, 100_000, density=1e-4)
    with pytest.raises(MemoryBudgetError, match="state 80.0 GB"):
        fit(wide, y, algo=algo, **QUIET)


@pytest.mark.parametrize("eta", [0.5, 1.0, 0.4, float("nan")])
def test_confidence_is_more_than_chance_and_less_than_certainty(eta):
    with pytest.raises(ValueError, match=r"eta=.*0.5 < eta < 1"):
        resolve("cw", None, None, None, {"eta": eta})


@pytest.mark.parametrize(
    ("algo", "given", "alone"),
    [("arow", {"r": 2.0}, {"r": 0.5}), ("arow_full", {"r": 2.0}, {"r": 0.5}), ("scw1", {"C": 0.01}, {"C": 0.04}),
     ("scw2", {"C": 0.01}, {"C": 0.04}), ("nherd", {"C": 0.01}, {"C": 0.04})],
)  # fmt: skip
def test_a_row_s_weight_multiplies_c_or_divides_r(algo, given, alone):
    x, y = random_rows(80, 20)
    heavy = fit(x, y, algo=algo, sample_weight=np.full(80, 4.0), **given, **QUIET)
    np.testing.assert_allclose(heavy.coef_, fit(x, y, algo=algo, **alone, **QUIET).coef_, rtol=1e-12)


def test_confidence_takes_weights_of_0_and_1_only():
    x, y = random_rows(30, 10)
    with pytest.raises(DataError, match="0 and 1 only"):
        fit(x, y, algo="cw", sample_weight=np.full(30, 0.5), **QUIET)
