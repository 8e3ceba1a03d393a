"""Gradient methods: slopes against differences, bounds of the papers, averages, mixing."""

import numpy as np
import pytest
import scipy.optimize
from making import block_of, mix, random_rows, shards_of

from bigclf.api.fit import fit
from bigclf.errors import DataError
from bigclf.maths.losses import LOSSES, REGRESSION
from bigclf.methods import METHODS, resolve

FAMILY = [name for name, method in METHODS.items() if method.penalties and not method.certificate]
D = 12


# Losses


def test_at_a_corner_the_slope_is_that_of_no_loss():
    assert LOSSES["hinge"].slope(1.0, 1.0, 0.0) == LOSSES["epsilon_insensitive"].slope(0.5, 1.0, 0.5) == 0
    assert LOSSES["logistic"].slope(-1e4, 1.0, 0.0) == -1 and LOSSES["logistic"].slope(1e4, 1.0, 0.0) == 0


def some_rows(loss, seed=0):
    x, y = random_rows(90, D, 0.25, seed=seed, real=loss in REGRESSION, noise=0.5)
    return block_of(x, y, np.random.default_rng(seed).choice([0.5, 1.0, 2.0], 90))


# Bounds


def objective(w, x, y, lam):
    return 0.5 * lam * (w @ w) + np.maximum(0, 1 - y * (x @ w)).mean()


@pytest.mark.parametrize("lam", [0.01, 0.1])
@pytest.mark.parametrize("projection", ["on", "off"])
def test_pegasos_after_1e5_steps_is_as_near_to_the_optimum_as_its_theorem_says(lam, projection):
    """Shalev-Shwartz, Singer, Srebro 2007, Theorem 1, of the last w; the optimum from a certificate."""
    x, y = random_rows(200, D, 0.3, noise=2.0)
    block, rows, rng = block_of(x, y), x.toarray().astype(float), np.random.default_rng(0)
    setting = resolve("pegasos", "hinge", None, None, {"lam": lam, "projection": projection})
    state, steps = setting.shared(D, "float64"), 100_000
    for _ in range(100):
        setting.kernel()(block, rng.integers(0, 200, steps // 100), state, (), setting.params(), np.zeros(200))
        w = setting.weights(state)[:-1]
        assert projection == "off" or np.linalg.norm(w) <= (1 + 1e-9) / np.sqrt(lam)
    assert state.clock[0] == steps and state.square[0] == pytest.approx(w @ w, rel=1e-6)
    best = fit(x, y, algo="dcd", loss="hinge", C=1 / (200 * lam), bias=None, tol=1e-6, epochs=20_000, progress=False)
    least = 200 * lam * best.result_.certificate["primal"] / 200
    c = (np.sqrt(lam) + np.sqrt((rows**2).sum(1).max())) ** 2
    gap = objective(w, rows, y, lam) - least
    assert -1e-6 < gap <= c * (1 + np.log(steps)) / (2 * lam * steps)


@pytest.mark.parametrize("seed", range(3))
def test_the_regret_of_adagrad_stays_below_its_bound(seed):
    """Duchi, Hazan, Singer 2011, Corollary 1: with eta = D_inf / sqrt(2) at most sqrt(2) D_inf sum_j ||g_{1:T, j}||."""
    x, y = random_rows(400, 6, 1.0, seed=seed, noise=3.0)
    rows, block = x.toarray().astype(float), block_of(x, y)
    u = scipy.optimize.linprog(  # the best w: least sum of z >= 0 with z_i >= 1 - y_i w.x_i
        np.r_[np.zeros(6), np.ones(400)], -np.hstack([y[:, None] * rows, np.eye(400)]), -np.ones(400),
        bounds=[(None, None)] * 6 + [(0, None)] * 400,
    ).x[:6]  # fmt: skip
    eta = 0.3
    for _ in range(30):
        setting = resolve("adagrad", "hinge", None, None, {"lam": 0, "eta": eta, "delta": 1e-12})
        state, path = setting.shared(6, "float64"), []
        for i in range(400):
            path.append(state.weights[:-1].copy())
            setting.kernel()(block, np.array([i]), state, (), setting.params(), np.zeros(400))
        width = np.abs(np.array(path) - u).max()
        if abs(eta - width / np.sqrt(2)) < 1e-3:
            break
        eta = width / np.sqrt(2)
    regret = np.maximum(0, 1 - y * (np.array(path) * rows).sum(1)).sum() - np.maximum(0, 1 - y * (rows @ u)).sum()
    sums = np.sqrt(state.squares[:-1]).sum()
    assert eta == pytest.approx(width / np.sqrt(2), rel=0.05)
    assert 0 < regret <= (width**2 / (2 * eta) + eta) * sums  # which is sqrt(2) D_inf times the sum at that eta


# Averages and mixing


def copies_of(setting, start, parts, block):
    copies = []
    for part in parts:
        copy = type(start)(*(array.copy() for array in start))
        setting.kernel()(block, part, copy, (), setting.params(), np.zeros(block.n_rows))
        setting.method.form.finish(copy, setting.params())
        copies.append(copy)
    return copies


@pytest.mark.parametrize("bias", ["feature", "free"])
def test_of_mixed_copies_the_average_is_over_every_step_of_every_copy(bias):
    block, params = some_rows("hinge"), dict(lam=0.05, eta0=0.3)
    setting = resolve("asgd", None, None, bias, params, "rows", groups=2)
    one_by_one = resolve("sgd", None, None, bias, params)
    start = setting.shared(D, "float64")
    (start,) = copies_of(setting, start, [np.arange(30)], block)
    copies = copies_of(setting, start, [np.arange(30, 50), np.arange(50, 90)], block)
    mixed = mix(setting.rule, start, copies, (1.0, 2.0))

    def total(state, part):
        for i in part:
            one_by_one.kernel()(block, np.array([i]), state, (), one_by_one.params(), np.zeros(90))
            yield one_by_one.weights(state)

    begun = one_by_one.shared(D, "float64")
    seen = list(total(begun, range(30)))
    for part in (range(30, 50), range(50, 90)):
        seen += list(total(type(begun)(*(array.copy() for array in begun)), part))
    np.testing.assert_allclose(setting.weights(mixed), np.mean(seen, axis=0), rtol=0, atol=1e-12)
    np.testing.assert_allclose(mixed.weights, seen[49] / 3 + 2 * seen[89] / 3, rtol=0, atol=1e-12)
    assert mixed.steps[0] == 90 and mixed.clock[0] == pytest.approx(30 + 20 / 3 + 2 * 40 / 3)


def test_the_clock_goes_on_by_the_mean_of_the_copies_steps_and_by_features_by_their_sum():
    block = some_rows("hinge")
    for mixing, expected in (("uniform", 45.0), ("features", 90.0)):
        setting = resolve("sgd", None, None, None, {}, mixing, groups=2)
        start = setting.shared(D, "float64")
        assert start.touched.size == (D + 1 if mixing == "features" else 0)
        copies = copies_of(setting, start, [np.arange(60), np.arange(60, 90)], block)
        assert mix(setting.rule, start, copies, (1.0, 1.0)).clock[0] == expected


@pytest.mark.parametrize("penalty", ["l2", "l1"])
@pytest.mark.parametrize(("name", "mixing"), [("sgd", "features"), ("adagrad", "features"), ("adagrad", "adagrad")])
def test_of_features_that_no_copy_has_met_the_weights_are_regularised_all_the_same(name, mixing, penalty):
    x, y = random_rows(90, D, 0.5)
    x = x.toarray()
    x[:, 4] = x[30:, 5] = 0
    setting = resolve(name, None, penalty, None, {"lam": 0.01}, mixing, groups=2)
    start = setting.shared(D, "float64")
    setting.method.form.place(start, np.full(D + 1, 3.0), setting.params())
    if name == "adagrad":
        start.squares[:] = 1.0
    block = block_of(x, y)
    copies = copies_of(setting, start, [np.arange(30), np.arange(30, 90)], block)
    for copy, part in zip(copies, (slice(0, 30), slice(30, 90)), strict=True):
        if mixing == "features":
            copy.touched[:D] += (x[part] != 0).sum(axis=0)
    first, second = (setting.weights(copy) for copy in copies)
    assert first[4] != second[4] < 3 and second[5] < 3
    mixed = setting.weights(mix(setting.rule, start, copies, (1.0, 1.0)))
    np.testing.assert_allclose(mixed[4:6], [(first[4] + second[4]) / 2, first[5]], rtol=1e-12)


@pytest.mark.parametrize("mixing", ["adagrad", "features", "mistakes"])
def test_groups_learn_by_each_rule(mixing):
    x, y = random_rows(300, D, 0.4)
    model = fit(x, y, algo="adagrad", groups=3, mixing=mixing, epochs=4, progress=False)
    assert np.mean(model.predict(x) == y) > 0.85


# Runs


def test_weights_that_overflow_are_refused_with_the_longest_row(tmp_path):
    x, y = random_rows(60, D, 0.3)
    x = x.tolil()
    x[41, 3] = 1e30
    x = x.tocsr().astype(np.float32)
    shards_of(tmp_path / "rows", x, y, chunk_nnz=20)
    for rows in ((x, y), (tmp_path / "rows",)):
        with pytest.raises(DataError, match=r"overflow.*row 41, of norm 1e\+30"):
            fit(*rows, algo="sgd", eta0=1e10, dtype="float32", epochs=1, progress=False)


@pytest.mark.parametrize(
    ("name", "bias"), [(n, b) for n in FAMILY if METHODS[n].form.place for b in METHODS[n].bias if b != "none"]
)
def test_a_run_begins_with_the_weights_of_a_model(name, bias):
    setting = resolve(name, None, None, bias, {})
    state, w = setting.shared(D, "float64"), np.random.default_rng(0).standard_normal(D + 1)
    setting.method.form.place(state, w, setting.params())
    np.testing.assert_allclose(setting.weights(state), w, rtol=1e-12)


def test_squared_losses_reach_least_squares():
    x, y = random_rows(400, D, 0.5, noise=0.5, real=True)
    rows = np.hstack([x.toarray().astype(float), np.ones((400, 1))])
    best = np.linalg.lstsq(rows, y, rcond=None)[0]
    for algo in ("asgd", "sgd_newton"):
        model = fit(x, y, algo=algo, loss="squared", bias="free", epochs=60, lam=0.0, progress=False)
        assert model.regression
        np.testing.assert_allclose(np.append(model.coef_[0], model.intercept_), best, atol=0.05)


def test_l1_leaves_weights_that_are_zero():
    x, y = random_rows(600, D, 0.5, noise=0.3)
    for algo, given in (("sgd", {"eta0": 0.3}), ("adagrad_rda", {})):
        model = fit(x, y, algo=algo, penalty="l1", lam=0.15, epochs=20, progress=False, **given)
        assert 0 < np.count_nonzero(model.coef_) < D, algo


def test_dual_coordinate_descent_has_no_squared_loss():
    assert "squared" not in METHODS["dcd"].losses and set(METHODS["dcd"].losses) < set(LOSSES)
    with pytest.raises(ValueError, match="squared"):
        resolve("dcd", "squared", None, None, {})


@pytest.mark.parametrize("name", ["eta", "delta"])
@pytest.mark.parametrize("algo", ["adagrad", "adagrad_rda"])
def test_a_rate_of_nothing_and_a_start_that_would_be_divided_by_are_refused(algo, name):
    with pytest.raises(ValueError, match=name):
        resolve(algo, None, None, None, {name: 0.0})
    assert resolve(algo, None, None, None, {name: 1e-12}).settings[name] == 1e-12
