"""MIRA, ROMMA and the perceptron with dynamic margin: every step against a general optimiser, and their bounds."""

import numpy as np
import pytest
import scipy.sparse as sp
from making import Case, block_of, learn, random_rows, separable_rows
from scipy.optimize import minimize

from bigclf.api.fit import fit
from bigclf.maths.mixing import MEASURED

MIRA, PDM = Case("mira", None), Case("pdm", None)
ROMMAS = {"romma": Case("romma", None), "aggressive_romma": Case("aggressive_romma", None)}
every_romma = pytest.mark.parametrize("case", ROMMAS.values(), ids=list(ROMMAS))


def one_row(seed, scale=1.0):
    """Weights, a float32 row and a label at random."""
    rng = np.random.default_rng(seed)
    n = 2 + seed % 7
    return rng.standard_normal(n), (scale * rng.standard_normal(n)).astype(np.float32), rng.choice([-1, 1])


def after(case, w, x, y):
    """The weights after one row, and what the kernel counted."""
    shared = case.state(w.size, 1)[0]
    case.method.form.place(shared, np.append(w, 0.0), case.params())
    counts = learn(case, block_of(sp.csr_matrix(x[None]), [y]), w.size, None, (shared, ()))[2]
    return case.weights(shared)[:-1], counts


def minimised(function, slope, constraints, start, bounds=None):
    """scipy's SLSQP on a smooth problem, to the end of its precision."""
    options = {"ftol": 1e-16, "maxiter": 500}
    return minimize(function, start, jac=slope, constraints=constraints, bounds=bounds, options=options).x


# MIRA


def test_the_step_of_mira_is_that_of_its_quadratic_problem():
    """The two-class case of Crammer and Singer's problem: weights w and -w, tau_y <= 1, the other <= 0, sum 0."""
    taus = []
    for seed in range(100):
        w, x, y = one_row(seed, scale=[0.3, 1, 3][seed % 3])
        found, counts = after(MIRA, w, x, y)
        row = x.astype(float)
        if y * (w @ row) > 0:
            np.testing.assert_array_equal(found, w)
            assert counts.mistakes == counts.updates == 0
            continue
        M, square = np.array([y * w, -y * w]), row @ row  # the true class first
        tau = minimised(
            lambda t, M=M, row=row: 0.5 * ((M + np.outer(t, row)) ** 2).sum(),
            lambda t, M=M, row=row, square=square: M @ row + t * square,
            {"type": "eq", "fun": lambda t: t.sum(), "jac": lambda t: np.ones(2)},
            [0.5, -0.5],
            [(None, 1), (None, 0)],
        )[0]
        taus.append((found - w) @ row / square * y)
        assert abs(taus[-1] - tau) < 1e-8 and counts.updates == 1
        np.testing.assert_allclose(found, w + tau * y * row, rtol=0, atol=1e-7)
    assert len(taus) > 30 and min(taus) < 0.9 and np.isclose(max(taus), 1)


def test_mira_begins_with_a_whole_row():
    x, y = random_rows(100, 20)
    shared, _, counts, _ = learn(MIRA, block_of(x, y), 20, np.arange(1))
    np.testing.assert_array_equal(shared.weights[:-1], y[0] * x[[0]].toarray()[0])
    model = fit(x, y, algo="mira", epochs=10, progress=False)
    assert (model.predict(x) == y).mean() > 0.85


# ROMMA


@every_romma
def test_the_step_of_romma_is_the_shortest_vector_in_both_half_spaces(case):
    updates = alone = 0
    for seed in range(100):
        w, x, y = one_row(seed, scale=[0.2, 1, 3][seed % 3])
        w *= [0.1, 1][seed % 2]
        found, counts = after(case, w, x, y)
        row = x.astype(float)
        m = y * (w @ row)
        assert counts.mistakes == (m <= 0)
        if m > 0 and (case.algo == "romma" or m >= 1):
            np.testing.assert_array_equal(found, w)
            continue
        unit = np.abs(row).max()  # SLSQP is at its best where numbers are near 1
        constraints = [
            {"type": "ineq", "fun": lambda v, w=w: v @ w - w @ w, "jac": lambda v, w=w: w},
            {"type": "ineq", "fun": lambda v, r=row, y=y: y * (v @ r) - 1, "jac": lambda v, r=row, y=y: y * r},
        ]
        expected = minimised(lambda v: 0.5 * v @ v, lambda v: v, constraints, found + 0.1 / unit)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
        updates += 1
        alone += found @ w > (w @ w) * (1 + 1e-9)
    assert updates > 30 and (alone > 3 or case.algo == "romma")


@every_romma
@pytest.mark.parametrize("bias", [None, "feature"])
def test_romma_knows_the_length_of_its_weights_and_stays_below_the_bound(case, bias):
    for seed in range(30):
        x, y, u, gamma = separable_rows(n_rows=20 + seed, n_features=2 + seed % 7, seed=seed)
        block, state, mistakes = block_of(sp.csr_matrix(x), y), case.state(x.shape[1], 0), 0
        for epoch in range(20):
            order = np.random.default_rng(epoch).permutation(x.shape[0])
            mistakes += learn(case, block, x.shape[1], order, state, bias=bias)[2].mistakes
            w = case.weights(state[0], bias)
            assert np.isclose(state[0].square[0], w @ w, rtol=1e-9)
            assert np.sqrt(w @ w) <= (1 + 1e-9) / gamma  # u / gamma has y u.x >= 1
        assert 0 < mistakes <= (block.norms.max() + (bias is not None)) / gamma**2
        case.method.form.finish(state[0], case.params(bias))
        assert state[0].scale[0] == 1
        np.testing.assert_array_equal(case.weights(state[0], bias), w)


@every_romma
def test_romma_steps_rightly_where_no_vector_separates_the_rows(case):
    """||w|| grows without end: every step against the recursion in numbers up to 1e4932, from the weights before."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((400, 6)).astype(np.float32), rng.choice([-1, 1], 400)
    block, state, steps = block_of(sp.csr_matrix(x), y), case.state(6, 0), 0
    for i in list(range(400)) * 2:
        before, unit = case.weights(state[0])[:-1].astype(np.longdouble), np.longdouble(state[0].target[0])
        w, row, label = before / unit, x[i].astype(np.longdouble), y[i]
        steps += learn(case, block, 6, np.array([i]), state)[2].updates
        m, P = label * (w @ row), (row @ row) * (w @ w)
        if m >= P:
            w = label * row / (row @ row)
        elif m <= 0 or (m < 1 and case.algo != "romma"):
            w = (P - m) / (P - m * m) * w + label * (w @ w) * (1 - m) / (P - m * m) * row
        found = case.weights(state[0])[:-1] / np.longdouble(state[0].target[0])
        length = np.sqrt(w @ w)
        np.testing.assert_allclose((found / length).astype(float), (w / length).astype(float), atol=1e-9)
    assert steps > 300 and np.sqrt(w @ w) > 1e20 and state[0].target[0] < 1e-17


# PDM


def hard_margin(x, y):
    """gamma_d, the largest margin of a unit vector: 1 / ||v|| of min 1/2 ||v||^2 with y v.x >= 1, by SLSQP."""
    z = y[:, None] * x
    constraints = {"type": "ineq", "fun": lambda v: z @ v - 1, "jac": lambda v: z}
    start = np.linalg.lstsq(z, np.ones(len(z)), rcond=None)[0]
    v = minimised(lambda v: 0.5 * v @ v, lambda v: v, constraints, start)
    assert (z @ v).min() > 1 - 1e-8
    return 1 / np.linalg.norm(v)


@pytest.mark.parametrize("eps", [0.5, 0.1, 0.02])
@pytest.mark.parametrize("bias", [None, "feature"])
def test_the_margin_in_the_end_is_what_was_asked_for(eps, bias):
    for seed in range(6):
        x, y, *_ = separable_rows(n_rows=40, n_features=2 + seed, seed=seed, least=0.3)
        rows = np.hstack([x.astype(float), np.full((40, 1), float(bias is not None))])
        block, state, updates = block_of(sp.csr_matrix(x), y), PDM.state(x.shape[1], 0), 1
        weights = np.random.default_rng(seed).choice([0.5, 1.0, 2.0], 40) if seed % 2 else np.ones(40)
        epochs = 0
        while updates:
            shared, _, counts, _ = learn(
                PDM, block._replace(weights=weights), x.shape[1], None, state, bias=bias, eps=eps
            )
            updates, epochs = counts.updates, epochs + 1
            assert epochs < 20_000
        w = shared.weights
        best = hard_margin(rows, y)
        assert (y * (rows @ w)).min() / np.linalg.norm(w) >= (1 - eps) * best
        assert np.linalg.norm(w) / shared.steps[0] >= best * (1 - 1e-9)  # the bound that it learns by
        assert np.isclose(shared.square[0], w @ w, rtol=1e-9)


def test_with_eps_1_it_is_the_perceptron():
    x, y = random_rows(150, 20, noise=0.5)
    shared = learn(PDM, block_of(x, y), 20, bias="feature", eps=1)[0]
    expected = learn(Case("perceptron", None), block_of(x, y), 20, bias="feature")[0]
    np.testing.assert_array_equal(shared.weights, expected.weights)


# All of them


@pytest.mark.parametrize("case", [MIRA, PDM, *ROMMAS.values()], ids=lambda case: case.algo)
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.long)])
@pytest.mark.parametrize("bias", [None, "feature"])
def test_rows_of_any_size_leave_finite_numbers(case, dtype, bias):
    rows = [[1e18, 0, 1], [0, 0, 0], [1e-18, 1, 0], [-1e18, 1e18, 1], [1e18, 1e18, 0], [0, 0, 1e-18], [2, 0, 0]]
    x, y = sp.csr_matrix(np.array(rows, np.float32)), np.array([1, -1, 1, 1, -1, 1, -1])
    state = case.state(3, 7, dtype)
    for epoch in range(200):
        learn(case, block_of(x, y if epoch % 3 else -y), 3, None, state, dtype, bias)
        if epoch % 5 == 0 and case.method.form.finish:
            case.method.form.finish(state[0], case.params(bias))
        assert all(np.isfinite(array).all() for array in state[0])
        assert np.isfinite(case.weights(state[0], bias)).all()


@pytest.mark.parametrize("case", [PDM, *ROMMAS.values()], ids=lambda case: case.algo)
def test_mixed_weights_have_their_own_length(case):
    from making import mix

    x, y = random_rows(90, 20, noise=0.5)
    copies = [learn(case, block_of(x[part], y[part]), 20)[0] for part in (slice(0, 40), slice(40, 90))]
    for copy in copies:
        case.method.form.finish(copy, case.params())
    mixed = mix(MEASURED, case.state(20, 0)[0], copies, (40, 50))
    w = case.weights(mixed)
    np.testing.assert_allclose(w, (40 * copies[0].weights + 50 * copies[1].weights) / 90, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(mixed.square[0], w @ w, rtol=1e-12)


# The end of a run


def test_the_perceptron_with_dynamic_margin_ends_with_an_epoch_that_moves_nothing():
    x, y, _, _ = separable_rows(n_features=4, seed=3)
    model = fit(x, y, algo="pdm", bias=None, epochs=3000, progress=False)
    result = model.result_
    assert result.stopped == "settled" and 2 < result.epochs < 3000
    assert [r["updates"] == 0 for r in result.history] == [False] * (result.epochs - 1) + [True]
    further = fit(x, y, algo="pdm", bias=None, epochs=1, init=model, progress=False)
    assert further.result_.mistakes == 0


@every_romma
def test_romma_measures_its_weights_anew_where_roundings_have_grown_or_the_scale_has(case):
    """The scale goes into the weights and ||w||^2 is theirs; what is learned is the same."""
    w, x, y = np.array([0.5, -2.0, 0.25]), np.array([1.0, 3.0, -1.0], np.float32), 1
    plain, _ = after(case, w, x, y)
    for growth, scale in ((1e6, 1.0), (1.0, 2.0**40), (1.0, 2.0**-40)):
        shared = case.state(3, 1)[0]
        shared.weights[:3], shared.square[0] = w / scale, w @ w
        shared.growth[0], shared.scale[0] = growth, scale
        counts = learn(case, block_of(sp.csr_matrix(x[None]), [y]), 3, None, (shared, ()))[2]
        assert counts.updates == 1 and shared.scale[0] == 1.0 == shared.growth[0]
        np.testing.assert_allclose(shared.weights[:3], plain, rtol=1e-12)
        assert shared.square[0] == pytest.approx(plain @ plain, rel=1e-12)


def test_the_perceptron_with_dynamic_margin_measures_its_weights_when_an_epoch_is_over():
    """What rounding has added to ||w||^2 while rows went by does not stay."""
    shared = PDM.state(2, 1)[0]
    shared.weights[:], shared.square[0] = [3.0, 4.0, 12.0], 170.0
    PDM.method.form.finish(shared, PDM.params())
    assert shared.square[0] == 169.0 and shared.weights.tolist() == [3.0, 4.0, 12.0]
