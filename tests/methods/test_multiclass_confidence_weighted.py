"""Multi-class Gaussians: each step against a general-purpose optimiser, the binary methods, an exact oracle, extremes.

The problems are those of the papers that ``bigclf/methods/many_classes/multiclass_confidence_weighted.py`` and
``bigclf/methods/many_classes/support_class_confidence_weighted.py`` name.
"""

from functools import cache
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest
from making import Case, block_of, learn, mix
from scipy.optimize import minimize

from bigclf.maths.mixing import PRECISION, SHARED_PRECISION
from bigclf.methods.many_classes import multiclass_confidence_weighted as mccw
from bigclf.methods.many_classes import support_class_confidence_weighted as sccw
from bigclf.methods.online import confidence_weighted as cw

quantile = NormalDist().inv_cdf

KINDS = {  # kernel, state, bind
    "cw_mc": (lambda: mccw.diagonal(cw.DEVIATION), mccw.diagonal_state, mccw.bind),
    "cw_var_mc": (lambda: mccw.diagonal(cw.VARIANCE), mccw.diagonal_state, mccw.bind),
    "arow_mc": (lambda: mccw.diagonal(cw.ADAPTIVE), mccw.diagonal_state, mccw.bind),
    "sccw": (lambda: sccw.diagonal(), sccw.diagonal_state, sccw.bind),
    "sccw_exact": (lambda: sccw.diagonal(exact=True), sccw.diagonal_state, sccw.bind),
    "sccw_full": (lambda: sccw.full, sccw.full_state, sccw.bind),
}
OVER_CLASSES = ["cw_mc", "cw_var_mc", "arow_mc"]
SUPPORT = ["sccw", "sccw_exact", "sccw_full"]


@cache
def kernel_of(kind):
    return KINDS[kind][0]()


def go(kind, block, n_features, n_classes, state=None, order=None, passes=1, dtype="float64", bias=0.0, **given):
    """(state, counts of the last pass) after passes over the rows."""
    _, make, bind = KINDS[kind]
    settings = dict(n_classes=n_classes, bias=bias, **given)
    state = make(n_features, dtype, settings) if state is None else state
    order = np.arange(block.n_rows) if order is None else order
    for _ in range(passes):
        counts = kernel_of(kind)(block, order, state, (), bind(settings), np.zeros(block.n_rows))
    return state, counts


def rows_of_classes(n_rows, n_features, n_classes, seed=0):
    """Dense float32 rows and class codes that a linear rule explains but for some noise."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, n_features)).astype(np.float32)
    scores = x @ rng.standard_normal((n_features, n_classes)) + rng.standard_normal((n_rows, n_classes))
    return x, scores.argmax(axis=1)


# Support classes


def gaussians(n_instances, seed, diagonal):
    """Random (mu [n, K], Sigma [n, n], row, class), 3 to 5 classes of 2 or 3 weights; a third of the rows is easy."""
    rng = np.random.default_rng(seed)
    for number in range(n_instances):
        n, K = int(rng.integers(2, 4)), int(rng.integers(3, 6))
        root = rng.standard_normal((n, n)) + 0.5 * np.eye(n)
        covariance = np.diag(rng.uniform(0.2, 2, n)) if diagonal else root @ root.T + 0.1 * np.eye(n)
        x, y = rng.standard_normal(n).astype(np.float32), int(rng.integers(K))
        mu = rng.standard_normal((n, K))
        mu[:, y] += (2.0 * x if number % 3 == 0 else 0.0) / (x @ x)
        yield mu, covariance, x, y


def support_state(kind, mu, covariance):
    """The state [features + 1] of means and a covariance; the bias has means 0, variance 1."""
    state = KINDS[kind][1](mu.shape[0], "float64", dict(n_classes=mu.shape[1]))
    state.weights[:-1] = mu
    if kind == "sccw_full":
        state.covariance[:-1, :-1] = covariance
    else:
        state.variances[:-1] = np.diag(covariance)
    return state


def support_gaussian(state):
    """(mu, Sigma) without the bias."""
    if hasattr(state, "covariance"):
        return state.weights[:-1].copy(), state.covariance[:-1, :-1].copy()
    return state.weights[:-1].copy(), np.diag(state.variances[:-1])


def support_optimum(mu, covariance, x, y, Q, diagonal):
    """The problem of the module's docstring by SLSQP, over the means and a Cholesky factor (diagonal: its diagonal)."""
    n, K = mu.shape
    places, precision = np.eye(n, dtype=bool) if diagonal else np.tri(n, dtype=bool), np.linalg.inv(covariance)
    others = np.delete(np.arange(K), y)

    def parts(z):
        factor = np.zeros((n, n))
        factor[places] = z[n * K :]
        return z[: n * K].reshape(n, K), factor

    def value(z):
        m, factor = parts(z)
        away = np.sum((m - mu) * (precision @ (m - mu)))
        return 0.5 * (K * np.sum(precision * (factor @ factor.T)) + away) - K * np.log(np.abs(np.diag(factor))).sum()

    def slope(z):
        m, factor = parts(z)
        inner = K * (precision @ factor - np.diag(1 / np.diag(factor)))
        return np.concatenate([(precision @ (m - mu)).ravel(), inner[places]])

    def room(z):
        m, factor = parts(z)
        return x @ (m[:, [y]] - m[:, others]) - Q * np.sqrt(2) * np.linalg.norm(x @ factor)

    def room_slope(z):
        _, factor = parts(z)
        by_means = np.zeros((K - 1, n, K))
        for k, other in enumerate(others):
            by_means[k, :, y], by_means[k, :, other] = x, -x
        by_factor = -Q * np.sqrt(2) * (np.outer(x, x @ factor) / np.linalg.norm(x @ factor))[places]
        return np.hstack([by_means.reshape(K - 1, -1), np.tile(by_factor, (K - 1, 1))])

    start = np.concatenate([mu.ravel(), np.linalg.cholesky(covariance)[places]])
    limits = {"type": "ineq", "fun": room, "jac": room_slope}
    exact = {"ftol": 1e-13, "maxiter": 200}
    m, factor = parts(minimize(value, start, jac=slope, constraints=limits, method="SLSQP", options=exact).x)
    return m, factor @ factor.T


@pytest.mark.parametrize("kind", ["sccw_full", "sccw_exact"])
def test_a_step_equals_the_solution_of_its_problem(kind):
    """Means and covariance; no constraint is violated, and what is not active has no multiplier."""
    sizes, diagonal = set(), kind == "sccw_exact"
    for number, (mu, covariance, x, y) in enumerate(gaussians(50, 3, diagonal)):
        eta = [0.6, 0.75, 0.9, 0.95][number % 4]
        block = block_of(np.vstack([x, x]), [y, y])
        state = support_state(kind, mu, covariance)
        _, counts = go(kind, block, x.size, mu.shape[1], state, np.array([0]), eta=eta)
        mean, found = support_gaussian(state)
        wide, others = x.astype(float), np.delete(np.arange(mu.shape[1]), y)
        best, expected = support_optimum(mu, covariance, wide, y, quantile(eta), diagonal)
        np.testing.assert_allclose(mean, best, rtol=0, atol=1e-5)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        room = wide @ (mean[:, [y]] - mean[:, others]) - quantile(eta) * np.sqrt(2 * wide @ found @ wide)
        moved = wide @ (mu - mean)[:, others] / (wide @ covariance @ wide)  # alpha_k
        assert room.min() >= -1e-10 and moved.min() >= -1e-10
        assert np.abs(room * moved).max() <= 1e-9
        sizes.add(int((moved > 1e-12).sum()))
        assert bool(counts.updates) == bool((moved > 0).any())
    assert sizes >= {0, 1, 2, 3}


@pytest.mark.parametrize(("kind", "binary"), [("sccw", "cw"), ("sccw_exact", "cw_exact"), ("sccw_full", "cw_full")])
def test_two_support_classes_are_the_binary_form(kind, binary):
    """mu_1 - mu_0 and 4 Sigma are the binary Gaussian for phi = Q / sqrt(2). With d the change of mu_1 - mu_0 the
    divergence is 1/2 [2 f(Sigma') + d' (2 Sigma)^-1 d]: it counts Sigma twice. Half of it is the binary one, 1/2 [f +
    d' (4 Sigma)^-1 d], and the constraint is m >= Q sqrt(2 u) = (Q / sqrt(2)) sqrt(4 u)."""
    x, y = rows_of_classes(150, 6, 2)
    state, counts = go(kind, block_of(x, y), 6, 2, bias=1.0, passes=2, eta=0.9, a=0.5)
    eta, other = NormalDist().cdf(quantile(0.9) / np.sqrt(2)), None
    for _ in range(2):
        other = learn(Case(binary, None), block_of(x, 2 * y - 1), 6, None, other and other[:2], bias="feature", eta=eta)
    # the binary state begins with 1, which is 4 * 0.5 / 2: the deviation form knows a by the scale of mu alone
    mean, scale = state.weights[:, 1] - state.weights[:, 0], 2.0
    assert 20 < counts.updates == other[2].updates
    if kind == "sccw_full":
        np.testing.assert_allclose(mean, np.sqrt(scale) * other[0].weights, rtol=0, atol=1e-10)
        np.testing.assert_allclose(4 * state.covariance, scale * other[0].covariance, rtol=0, atol=1e-10)
    else:
        np.testing.assert_allclose(mean, np.sqrt(scale) * other[0].weights[:, 0], rtol=0, atol=1e-10)
        np.testing.assert_allclose(4 * state.variances, scale * other[0].weights[:, 1], rtol=0, atol=1e-10)


def test_in_one_dimension_the_full_covariance_is_its_diagonal():
    rng, several = np.random.default_rng(0), 0
    for number in range(100):
        K = int(rng.integers(3, 6))
        mu, covariance, y = rng.standard_normal((1, K)), rng.uniform(0.2, 2, (1, 1)), int(rng.integers(K))
        block = block_of(rng.standard_normal((2, 1)).astype(np.float32), [y, y])
        states = [
            go(kind, block, 1, K, support_state(kind, mu, covariance), np.array([0]), eta=0.8)[0] for kind in SUPPORT
        ]
        for state in states[1:]:
            for found, expected in zip(support_gaussian(state), support_gaussian(states[0]), strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=str(number))
        several += (states[0].weights[0] != mu).sum() > 2
    assert several > 20


# One Gaussian a class


def stacked(x, y):
    """Rows over the weights of both classes, and labels, of which the binary learner is that of two classes."""
    return np.hstack([-x, x]), 2 * y - 1


@pytest.mark.parametrize(
    ("kind", "binary", "given"),
    [("cw_mc", "cw", dict(eta=0.8)), ("cw_var_mc", "cw_var", dict(phi=0.8)), ("arow_mc", "arow", dict(r=2.0))],
)
def test_two_classes_are_the_binary_learner_over_the_weights_of_both(kind, binary, given):
    x, y = rows_of_classes(150, 6, 2)
    state, counts = go(kind, block_of(x, y), 6, 2, passes=2, **given)
    other = None
    for _ in range(2):
        other = learn(Case(binary, None), block_of(*stacked(x, y)), 12, None, other and other[:2], **given)
    expected = other[0].weights[:-1].reshape(2, 6, 2).transpose(1, 0, 2)
    np.testing.assert_allclose(state.weights[:-1], expected, rtol=0, atol=1e-10)
    assert 20 < counts.updates == other[2].updates and abs(counts.loss - other[2].loss) < 1e-9


def differences(x, y, others):
    """g_k [n * K] of a row for each other class, the weights class by class."""
    K = others.size + 1
    g = np.zeros((others.size, K, x.size))
    g[:, y] = x
    g[np.arange(others.size), others] = -x
    return g.reshape(others.size, -1)


def oracle(mu, variances, g, phi, sweeps=500):
    """(mu', Sigma', alpha) that minimise the divergence with g_k.mu' >= phi sqrt(g_k' Sigma' g_k) for all k: one
    constraint after the other by the closed form, its own multiplier taken back before (Hildreth's method), until
    nothing changes. With mu' = mu + Sigma g' alpha and Sigma'^-1 = Sigma^-1 + sum_k c_k g_k g_k' the first Sigma is
    the metric of the means throughout."""
    first, alpha, c = np.diag(variances), np.zeros(len(g)), np.zeros(len(g))
    for _ in range(sweeps):
        before = alpha.copy()
        for k in range(len(g)):
            rest = np.delete(np.arange(len(g)), k)
            mean = mu + first @ g[rest].T @ alpha[rest]
            narrowed = np.linalg.inv(np.linalg.inv(first) + (g[rest].T * c[rest]) @ g[rest])
            alpha[k], c[k] = one_constraint(g[k] @ mean, g[k] @ first @ g[k], g[k] @ narrowed @ g[k], phi)
        if np.abs(alpha - before).max() < 1e-14:
            break
    narrowed = np.linalg.inv(np.linalg.inv(first) + (g.T * c) @ g)
    return mu + first @ g.T @ alpha, narrowed, alpha


def one_constraint(m, pull, v, phi):
    """(alpha, c) of  m + alpha pull = phi sqrt(u), 1/u = 1/v + c, c = alpha phi / sqrt(u), by bisection; 0 where it
    holds."""
    low, high = 0.0, (max(0.0, -m) + phi * np.sqrt(v)) / pull
    if m >= phi * np.sqrt(v):
        return 0.0, 0.0
    for _ in range(200):
        alpha = 0.5 * (low + high)
        w = alpha * v * phi
        root = 2 * v / (w + np.sqrt(w * w + 4 * v))
        low, high = (alpha, high) if m + alpha * pull < phi * root else (low, alpha)
    return alpha, alpha * phi / root


def test_steps_against_the_exact_solution_of_all_constraints():
    """The oracle satisfies the conditions of its optimum. Where it has one active constraint against the best rival,
    the step is the oracle's mean and the diagonal of its precision. "all" leaves less violated than "one"."""
    rng = np.random.default_rng(2)
    phi, lone, several, short = quantile(0.9), 0, 0, {"one": 0.0, "all": 0.0}
    for _ in range(40):
        K, n = int(rng.integers(3, 6)), 3
        mu, variances = rng.standard_normal((K, n)), rng.uniform(0.2, 2, (K, n))
        x, y = rng.standard_normal(n).astype(np.float32), int(rng.integers(K))
        others = np.delete(np.arange(K), y)
        g = differences(x.astype(float), y, others)
        mean, found, alpha = oracle(mu.ravel(), variances.ravel(), g, phi)
        room = g @ mean - phi * np.sqrt(np.einsum("ki,ij,kj->k", g, found, g))
        assert room.min() >= -1e-9 and alpha.min() >= 0 and np.abs(room * alpha).max() <= 1e-9
        block = block_of(np.vstack([x, x]), [y, y])
        for constraints in short:
            state = mccw.diagonal_state(n, "float64", dict(n_classes=K))
            state.weights[:-1] = np.stack([mu.T, variances.T], axis=2)
            state, _ = go("cw_mc", block, n, K, state, np.array([0]), eta=0.9, constraints=constraints)
            after = state.weights[:-1].transpose(2, 1, 0).reshape(2, -1)
            left = g @ after[0] - phi * np.sqrt(g**2 @ after[1])
            short[constraints] += np.maximum(0, -left).sum()
            best = others[np.argmax((mu @ x)[others])]
            active = others[alpha > 0]
            if active.size == 1 and active[0] == best:
                np.testing.assert_allclose(after[0], mean, rtol=0, atol=1e-9)
                np.testing.assert_allclose(1 / after[1], np.diag(np.linalg.inv(found)), rtol=1e-9)
        lone += (alpha > 0).sum() == 1
        several += (alpha > 0).sum() > 1
    assert lone > 5 and several > 5 and short["all"] < short["one"]


@pytest.mark.parametrize(("kind", "given"), [("cw_mc", dict(eta=0.8)), ("cw_var_mc", dict(phi=0.8))])
def test_constraints_in_turn_and_at_once_are_the_closed_form_for_each(kind, given):
    """Both kinds of order against a plain loop over the classes, with the binary kernel for each constraint."""
    rule, phi = (cw.DEVIATION, quantile(0.8)) if kind == "cw_mc" else (cw.VARIANCE, 0.8)
    x, y = rows_of_classes(60, 4, 5)
    for constraints, k in [("all", None), ("all", 2), ("parallel", None), ("parallel", 2)]:
        state, _ = go(kind, block_of(x, y), 4, 5, constraints=constraints, k=k, **given)
        mu, s = np.zeros((5, 4)), np.ones((5, 4))
        for row, own in zip(x.astype(float), y, strict=True):
            scores = mu @ row
            rivals = [c for c in np.lexsort((np.arange(5), -scores)) if c != own][:k]
            old_mu, old_s = mu.copy(), s.copy()
            for c in rivals:
                if constraints == "all":
                    old_mu, old_s = mu.copy(), s.copy()
                m, v = (old_mu[own] - old_mu[c]) @ row, (old_s[own] + old_s[c]) @ row**2
                if m >= phi * (v if rule == cw.VARIANCE else np.sqrt(v)):
                    continue
                alpha, c2 = binary_step(rule, m, v, phi)
                share = 1 / len(rivals) if constraints == "parallel" else 1.0
                for which, sign in ((own, 1), (c, -1)):
                    mu[which] += sign * share * alpha * old_s[which] * row
                    s[which] = 1 / (1 / s[which] + share * c2 * row**2)
        np.testing.assert_allclose(state.weights[:-1, :, 0], mu.T, rtol=0, atol=1e-10)
        np.testing.assert_allclose(state.weights[:-1, :, 1], s.T, rtol=0, atol=1e-10)


def binary_step(rule, m, v, phi):
    """(alpha, c) as the papers print them (Dredze et al. 2008; Crammer et al. 2008, eq. 10-15)."""
    if rule == cw.VARIANCE:
        b = 1 + 2 * phi * m
        alpha = (-b + np.sqrt(b * b - 8 * phi * (m - phi * v))) / (4 * phi * v)
        return alpha, 2 * phi * alpha
    psi, xi = 1 + phi**2 / 2, 1 + phi**2
    alpha = (-m * psi + np.sqrt(m * m * phi**4 / 4 + v * phi**2 * xi)) / (v * xi)
    root = 0.5 * (-alpha * v * phi + np.sqrt((alpha * v * phi) ** 2 + 4 * v))
    return alpha, alpha * phi / root


@pytest.mark.parametrize("constraints", ["all", "parallel"])
def test_one_constraint_is_one_constraint(constraints):
    x, y = rows_of_classes(100, 5, 4)
    one, _ = go("cw_mc", block_of(x, y), 5, 4, bias=1.0, eta=0.8)
    other, _ = go("cw_mc", block_of(x, y), 5, 4, bias=1.0, eta=0.8, constraints=constraints, k=1)
    np.testing.assert_array_equal(one.weights, other.weights)
    many, _ = go("cw_mc", block_of(x, y), 5, 4, bias=1.0, eta=0.8, constraints=constraints)
    assert np.abs(many.weights - one.weights).max() > 0.01


def test_a_number_of_constraints_without_effect_is_refused():
    with pytest.raises(ValueError, match="no effect with constraints='one'"):
        mccw.bind(dict(n_classes=3, bias=0.0, eta=0.9, constraints="one", k=2))


# All


@pytest.mark.parametrize("kind", ["cw_mc", *SUPPORT])
def test_the_deviation_forms_depend_neither_on_the_first_variance_nor_on_factors_of_rows(kind):
    x, y = rows_of_classes(120, 8, 5)
    scaled = x * 2.0 ** np.random.default_rng(0).integers(-20, 20, (120, 1)).astype(np.float32)
    plain, wide, other = (
        go(kind, block_of(rows, y), 8, 5, eta=0.8, a=a)[0].weights for rows, a in ((x, 1.0), (x, 16.0), (scaled, 1.0))
    )
    if kind == "cw_mc":
        plain, wide, other = plain[..., 0], wide[..., 0], other[..., 0]
    np.testing.assert_allclose(wide, 4 * plain, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(other, plain, rtol=1e-9, atol=1e-12)


TRYING = [
    *((kind, "float64", None) for kind in KINDS),
    *(("cw_mc", "float64", constraints) for constraints in ("all", "parallel")),
    *(pytest.param("cw_mc", "float32", constraints, marks=pytest.mark.long) for constraints in ("all", "parallel")),
    pytest.param("sccw", "float32", None, marks=pytest.mark.long),
]


@pytest.mark.parametrize("kind", ["cw_mc", "sccw"])
def test_copies_are_fused_as_gaussians_that_began_alike(kind):
    """1/s = sum_k p_k / s_k,  mu / s = sum_k p_k mu_k / s_k, p_k a copy's part of the shares."""
    x, y = rows_of_classes(120, 6, 4)
    start, _ = go(kind, block_of(x[:40], y[:40]), 6, 4, bias=1.0, eta=0.8)
    copies = []
    for first in (40, 80):
        state = type(start)(*(array.copy() for array in start))
        copies.append(go(kind, block_of(x[first : first + 40], y[first : first + 40]), 6, 4, state, eta=0.8)[0])
    rule = PRECISION if kind == "cw_mc" else SHARED_PRECISION

    def means_and_precisions(state):
        if kind == "cw_mc":
            return state.weights[..., 0], 1 / state.weights[..., 1]
        return state.weights, 1 / state.variances[:, None]

    (mu1, p1), (mu2, p2) = (means_and_precisions(copy) for copy in copies)
    precision = (p1 + 5 * p2) / 6
    mean = (mu1 * p1 + 5 * mu2 * p2) / 6 / precision
    for found, expected in zip(means_and_precisions(mix(rule, start, copies, [1, 5])), (mean, precision), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    for found, expected in zip(mix(rule, start, copies[:1], [3]), copies[0], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    for found, expected in zip(mix(rule, start, [start, start], [1, 1]), start, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("kind", "dtype", "constraints"), TRYING)
def test_extreme_and_dense_rows_leave_every_number_finite_and_every_variance_positive(kind, dtype, constraints):
    """Norms of 1e18 and 1e-18, contradictions, rows without entries; values up to 2 of 64 features and eta = 0.99."""
    rng = np.random.default_rng(0)
    wild = rng.standard_normal((200, 4)) * 10.0 ** rng.choice([-18, -3, 0, 3, 18], (200, 1))
    wild[::17] = 0
    dense = rng.uniform(0, 2, (200, 64))
    given = {} if kind == "arow_mc" else dict(phi=2.0) if kind == "cw_var_mc" else dict(eta=0.99)
    given |= dict(constraints=constraints) if constraints else {}
    for x in (wild, dense):
        block, bias = block_of(x.astype(np.float32), rng.integers(0, 5, 200)), 1.0
        state, counts = go(kind, block, x.shape[1], 5, passes=20, dtype=dtype, bias=bias, **given)
        assert counts.updates > 0 and all(np.isfinite(array).all() for array in state)
        if kind == "sccw_full":
            variances = np.diag(state.covariance)
        else:
            variances = state.variances if kind in SUPPORT else state.weights[..., 1]
        assert variances.min() > 0 and variances.max() <= 1
        floor = KINDS[kind][2](dict(n_classes=5, bias=bias, **given)).floor
        assert cw.at_floor(state, SimpleNamespace(floor=floor)) == np.mean(variances <= floor * (1 + 1e-6))
        assert cw.at_floor(state, SimpleNamespace(floor=variances.max())) == 1


@pytest.mark.parametrize("kind", list(KINDS))
def test_mistakes_and_losses_are_those_before_the_row(kind):
    """Ties go to the smallest class: of weights 0 class 0 is right; rows without entries change nothing."""
    x, y = np.zeros((3, 2), np.float32), np.array([0, 1, 2])
    given = {} if kind == "arow_mc" else dict(phi=1.0) if kind == "cw_var_mc" else dict(eta=0.8)
    state, counts = go(kind, block_of(x, y), 2, 3, **given)
    assert counts.mistakes == 2 and not counts.updates * (kind != "arow_mc")
    assert not np.any(state.weights[..., 0] if kind in OVER_CLASSES else state.weights)
