"""Newton's method with the whole Hessian: its sums, its certificates, and bits that depend on the groups alone."""

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from making import block_of, fit, random_rows, shards_of

from bigclf.errors import MemoryBudgetError
from bigclf.maths.losses import LOSSES, plain
from bigclf.methods import resolve
from bigclf.methods.method import Given
from bigclf.methods.steps import newton_dense

BATCHES = newton_dense.BATCHES * newton_dense.ROWS  # the least room of a kernel: none for a tile
D = 21  # features: with the bias two panels and a part of one
CORNERS = ("hinge", "epsilon_insensitive")
every_loss = pytest.mark.parametrize("loss", LOSSES)


def table(n=300, d=D, full=0.5, seed=0, real=False):
    """Rows of which a share has an entry of every feature, the others of a few; noisy labels."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)).astype(np.float32)
    x[rng.random(n) >= full] *= rng.random((1, d)) < 0.15
    f = x @ rng.standard_normal(d) + rng.standard_normal(n)
    return sp.csr_matrix(x), f if real else np.where(f > np.median(f), 1, -1)


def summed(loss, x, y, weights, room, bias="feature", **scalars):
    """The state after a read at some weights."""
    setting = resolve("newton_dense", loss, None, bias, {"C": 0.7})
    state = setting.shared(x.shape[1], "float64")
    state.weights[:] = np.random.default_rng(1).standard_normal(x.shape[1] + 1) * 0.1
    state.scalars[[newton_dense.SMOOTH, newton_dense.DROP]] = 0.5, 0.0
    block = block_of(x, y, weights)
    setting.kernel()(block, np.arange(x.shape[0]), state, (), setting.params(), np.zeros(room))
    return state


def expected_terms(loss, m, y):
    """(loss, minus slope, curvature) of the rows, smoothed by 1/2 where there is a corner, in plain numpy."""
    h = 0.5
    if loss == "hinge":
        p = 1 / (1 + np.exp(-(1 - m) / h))
        return np.maximum(0, 1 - m), p, p * (1 - p) / h
    if loss == "epsilon_insensitive":
        p, o = (1 / (1 + np.exp(-(s * (y - m) - 0.1) / h)) for s in (1, -1))
        return np.maximum(0, abs(y - m) - 0.1), p - o, (p * (1 - p) + o * (1 - o)) / h
    one = LOSSES[loss]
    parts = [[plain(f)(a, b, 0.1) for a, b in zip(m, y, strict=True)] for f in (one.value, one.slope, one.curvature)]
    return np.array(parts[0]), -np.array(parts[1]), np.array(parts[2])


@pytest.mark.parametrize("room", [BATCHES, newton_dense.room(D)], ids=["pairs", "tiles"])
@pytest.mark.parametrize("loss", ["logistic", "hinge", *(pytest.param(name, marks=pytest.mark.long)
                                  for name in LOSSES if name not in ("logistic", "hinge"))])  # fmt: skip
def test_sums_are_those_of_numpy(loss, room):
    x, y = table(real=loss in naive.REGRESSION)
    weights = np.random.default_rng(2).choice([0.0, 1.0, 3.0], x.shape[0])
    state = summed(loss, x, y, weights, room)
    wide, c = np.hstack([x.toarray().astype(float), np.ones((x.shape[0], 1))]), 0.7 * weights
    f = wide @ state.weights
    s = np.ones(y.size) if loss in naive.REGRESSION else y
    m = s * f
    value, a, q = expected_terms(loss, m, y)
    np.testing.assert_allclose(state.figures[newton_dense.LOSS], c @ value, rtol=1e-12)
    np.testing.assert_allclose(state.total, -wide.T @ (c * a * s), rtol=1e-9, atol=1e-10)
    n = D + 1
    below = np.tril(state.hessian.reshape(n, n), -1)
    above = np.triu(state.hessian.reshape(n, n))
    found = above + np.triu(above, 1).T + below + below.T + np.diag(state.diagonal)
    np.testing.assert_allclose(found, wide.T @ (wide * (c * q)[:, None]), rtol=1e-9, atol=1e-10)
    assert (np.abs(above).max() > 0) == (room > BATCHES) and np.abs(below).max() > 0


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_full_rows_side_by_side_give_the_bits_of_rows_one_by_one(loss):
    x, y = table(200, full=1.0)
    setting, ends = resolve("newton_dense", loss, None, None, {"C": 0.7}), []
    block, weights = block_of(x, y), np.random.default_rng(1).standard_normal(D + 1)
    for size in (200, 23, 1):  # one by one there is no batch, and a tile of one row
        for kind in (newton_dense.POINT, newton_dense.LINE):
            state = setting.shared(D, "float64")
            state.weights[:], state.probe[:] = weights, weights[::-1]
            state.scalars[[newton_dense.SMOOTH, newton_dense.DROP, newton_dense.KIND]] = 0.5, 0.0, kind
            for first in range(0, 200, size):
                order = np.arange(first, min(200, first + size))
                setting.kernel()(block, order, state, (), setting.params(), np.full(newton_dense.room(D), np.nan))
            ends.append(np.concatenate([state.total, state.hessian, state.diagonal, state.figures]))
    for end, whole in zip(ends[2:], ends[:2] * 2, strict=True):
        np.testing.assert_array_equal(end, whole)
    f = x.toarray().astype(float) @ weights[:D]
    _, a, _ = expected_terms(loss, y * f, y)
    np.testing.assert_allclose(ends[0][:D], -(x.toarray().astype(float).T @ (0.7 * a * y)), rtol=1e-9)


def test_a_matrix_that_is_not_definite_is_factored_with_more_on_its_diagonal():
    x, y = table(full=1.0)
    x = sp.csr_matrix(np.hstack([x.toarray(), x.toarray()]) * 1e12)  # 1 beside 1e27 is nothing: each column twice
    setting = resolve("newton_dense", "logistic", None, None, {})
    state = setting.shared(2 * D, "float64")
    setting.kernel()(block_of(x, y), np.arange(300), state, (), setting.params(), np.zeros(BATCHES))
    g = state.total.copy()
    assert newton_dense.factored(state, setting.params())
    s = newton_dense.solved(state, g)
    assert np.isfinite(s).all() and g @ s < 0


def after_a_read(left, gap):
    """The scalars after a turn from a point whose decrement is ``left`` times the one before, with a relative gap."""
    x, y = table()
    setting = resolve("newton_dense", "logistic", None, None, {"C": 0.7})
    ends = []
    for before in (None, left):
        state = summed("logistic", x, y, None, BATCHES, None)
        g = newton_dense.regularised(state.weights, setting.params()) + state.total
        state.scalars[newton_dense.VALUE] = 100.0
        if before is not None:
            state.scalars[newton_dense.BEFORE] = ends[0][newton_dense.DECREMENT] / before
        assert newton_dense.turn(True, state, setting.params(), g, 0.0, gap * 100.0, 1e-3) == ""
        ends.append(state.scalars)
    return ends


def test_a_hessian_is_made_anew_after_the_first_step_and_not_where_the_next_point_is_likely_the_last():
    fresh = newton_dense.FRESH
    first, last = after_a_read(0.05, 0.1)
    assert first[fresh] == 1 and last[fresh] == 0
    assert after_a_read(0.05, 0.9)[1][fresh] == 1 and after_a_read(0.5, 0.1)[1][fresh] == 1
    assert after_a_read(0.005, 0.9)[1][fresh] == 0  # the steps converge quadratically


def primal(model, x, y, loss, c, bias):
    """1/2 ||w||^2 + sum C_i loss by numpy alone."""
    w, b = model.coef_.ravel(), float(np.ravel(model.intercept_)[0])
    f, e = x @ w + b, 0.1
    value = {
        "hinge": lambda: np.maximum(0, 1 - y * f),
        "squared_hinge": lambda: np.maximum(0, 1 - y * f) ** 2,
        "logistic": lambda: np.logaddexp(0, -y * f),
        "squared": lambda: 0.5 * (y - f) ** 2,
        "epsilon_insensitive": lambda: np.maximum(0, abs(y - f) - e),
        "squared_epsilon_insensitive": lambda: np.maximum(0, abs(y - f) - e) ** 2,
    }[loss]()
    return 0.5 * (w @ w + b * b * (bias == "feature")) + c @ value


@every_loss
@pytest.mark.parametrize("bias", [None, "feature", "free"])
def test_the_answer_is_certified_and_no_other_method_is_below_its_bound(loss, bias, quiet):
    x, y = table(real=loss in naive.REGRESSION)
    weights = np.random.default_rng(2).choice([0.5, 1.0, 3.0], x.shape[0])
    options = dict(loss=loss, bias=bias, sample_weight=weights, progress=False)
    model = fit(x, y, algo="newton_dense", tol=1e-8, **options)
    found = model.result_.history[-1]
    assert model.result_.stopped == "tolerance" and found["gap"] <= 1e-8
    own = primal(model, x, y, loss, weights, bias)
    np.testing.assert_allclose(found["objective"], own, rtol=1e-12)
    assert found["dual"] <= own * (1 + 1e-12)
    rough = fit(x, y, algo="newton_dense", tol=0.05, **options)
    assert rough.result_.history[-1]["dual"] <= own * (1 + 1e-12)
    if bias != "free" and loss != "squared":
        other = fit(x, y, algo="dcd", tol=1e-8, epochs=3000, **options)
        np.testing.assert_allclose(primal(other, x, y, loss, weights, bias), own, rtol=3e-8)


def test_scales_of_columns_change_nothing_but_rounding(quiet):
    x, y = table(full=1.0)
    scales = 10.0 ** np.random.default_rng(0).integers(-3, 7, D)
    wild = sp.csr_matrix((x.toarray() * scales).astype(np.float32))
    for loss in ("hinge", "logistic"):
        model = fit(wild, y, algo="newton_dense", loss=loss, tol=1e-6, progress=False)
        assert model.result_.stopped == "tolerance" and model.result_.epochs < 80


def test_a_bound_whose_own_gap_is_above_the_objective_is_no_bound():
    loss, setting = LOSSES["squared_hinge"], resolve("newton_dense", "squared_hinge", None, None, {})
    state, params = setting.shared(2, "float64"), setting.params()
    g = np.array([1e9, 0.0, 0.0])
    assert newton_dense.bound(loss, state, params, 3.0, 1.0, np.zeros(3)) == 2.0
    assert newton_dense.bound(loss, state, params, 3.0, 0.0, g) == 0.0
    assert newton_dense.bound(loss, state, params, 3.0, -1.0, np.zeros(3)) == 0.0
    assert newton_dense.bound(loss, state, params, 3.0, np.nan, np.zeros(3)) == 0.0
    free = resolve("newton_dense", "squared_hinge", None, "free", {})
    state, params = free.shared(2, "float64"), free.params()
    state.figures[newton_dense.UP : newton_dense.UP + 5] = 1.0, 1e20, 1e20, 0.0, 0.0  # large numbers that cancel:
    state.figures[newton_dense.DOWN : newton_dense.DOWN + 5] = 1.0, 1e20, 1e20, 0.0, 0.0
    assert newton_dense.bound(loss, state, params, 3.0, 0.0, np.zeros(3)) == 0.0


def test_the_root_of_a_cubic_lies_where_it_changes_its_sign():
    for low, high in [(-1.0, 2.0), (-1e-9, 5.0), (-3.0, 0.0)]:
        x = newton_dense.root(low, high, high - low, high - low)  # a straight line
        np.testing.assert_allclose(low + x * (high - low), 0, atol=1e-9 * (high - low))
    assert newton_dense.root(-1.0, np.inf, 1.0, 1.0) == 0.5


def along(slope, bend=lambda t: 0.0, decrement=1.0):
    """A state after a read along a step of length 1 from 0 on which P has this slope and bend."""
    setting = resolve("newton_dense", "logistic", None, None, {})
    state = setting.shared(1, "float64")
    newton_dense.seek(state)
    state.probe[0], state.scalars[newton_dense.DECREMENT] = 1.0, decrement
    return look(state, slope, bend), setting.params()


def look(state, slope, bend):
    state.figures[newton_dense.SLOPES : newton_dense.BENDS] = [slope(t) - t for t in state.lengths]
    state.figures[newton_dense.BENDS :] = [bend(t) - 1 for t in state.lengths]
    return state


def test_the_length_of_a_step_is_where_the_slope_is_0():
    loss = LOSSES["logistic"]
    state, params = along(lambda t: t * t - 0.3, lambda t: 2 * t, 0.3)
    newton_dense.measured(loss, state, params, 1e-3)
    assert abs(state.weights[0] - 0.3**0.5) < 0.01 and state.scalars[newton_dense.KIND] == newton_dense.POINT
    state, params = along(lambda t: t - 9.0, lambda t: 1.0, 9.0)
    newton_dense.measured(loss, state, params, 1e-3)
    assert state.weights[0] == newton_dense.LENGTHS[0]


def test_a_corner_between_two_lengths_is_looked_at_more_closely():
    loss, at = LOSSES["logistic"], 0.001
    state, params = along(slope := lambda t: 1e3 if t > at else -1.0)
    for looks in range(1, 3):
        newton_dense.measured(loss, state, params, 1e-3)
        assert state.scalars[newton_dense.LOOKS] == looks and state.scalars[newton_dense.KIND] == newton_dense.LINE
        assert state.lengths[-1] <= at <= state.lengths[0] and not np.any(state.figures)
        look(state, slope, lambda t: 0.0)
    while state.scalars[newton_dense.KIND] == newton_dense.LINE:
        newton_dense.measured(loss, look(state, slope, lambda t: 0.0), params, 1e-3)
    assert abs(state.weights[0] - at) < 0.1 * at


def hashes(data, groups, **options):
    """The weights of two losses."""
    models = [fit(data, algo="newton_dense", loss=loss, tol=1e-6, groups=groups, progress=False, **options)
              for loss in ("hinge", "logistic")]  # fmt: skip
    return [np.append(model.coef_, model.intercept_) for model in models], models


@pytest.mark.parametrize("groups", [1, 3])
def test_bits_depend_on_the_groups_and_not_on_memory_or_workers(groups, tmp_path, client, quiet):
    x, y = table(40_000, full=0.7)
    data = shards_of(tmp_path / "rows", x, y, chunk_nnz=20_000)
    own, (first, _) = hashes(data, groups)
    assert first.result_.reads == 1
    streamed, (model, _) = hashes(data, groups, memory="14.5MB")
    assert model.result_.reads == model.result_.epochs > 5
    others = [streamed] + ([hashes(data, groups, workers=client)[0]] if groups > 1 else [])
    for other in others:
        for a, b in zip(own, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_path_begins_each_problem_with_the_answer_before(quiet):
    x, y = table(800)
    warm = fit(x, y, algo="newton_dense", loss="hinge", tol=1e-4, progress=False)
    again = fit(x, y, algo="newton_dense", loss="hinge", tol=1e-4, C=1.2, init=warm, progress=False)
    cold = fit(x, y, algo="newton_dense", loss="hinge", tol=1e-4, C=1.2, progress=False)
    assert again.result_.epochs < cold.result_.epochs


def test_too_many_features_are_refused_with_what_to_take(quiet):
    x = sp.random(50, 40_000, 0.001, "csr", np.float32, random_state=0)
    with pytest.raises(MemoryBudgetError, match=r"each pair of features: algo='newton' or 'dcd'"):
        fit(x, np.where(np.arange(50) % 2, 1, -1), algo="newton_dense", progress=False)


def test_a_read_of_some_rows_is_forgotten(quiet):
    x, y = table()
    state = summed("hinge", x, y, None, BATCHES)
    assert newton_dense.forget(state)
    assert not (np.any(state.total) or np.any(state.hessian) or np.any(state.figures) or np.any(state.diagonal))


def test_infinite_sums_end_the_run_by_name():
    setting = resolve("newton_dense", "logistic", None, None, {})
    state, params = setting.shared(1, "float64"), setting.params()
    state.figures[newton_dense.LOSS] = 1.0
    state.hessian[0] = np.inf
    step = setting.method.how.absorb(LOSSES["logistic"])(state, params, Given(None, 1e-3, 0))
    assert step.over == "stalled"


LONG = ["hinge", "logistic", "squared_hinge", "squared", "epsilon_insensitive", "squared_epsilon_insensitive"]


def drawn(seed):
    """A small problem of any kind: scales from 1e-6 to 1e9, collinear, repeated, sparse, separable, any C."""
    rng = np.random.default_rng(seed)
    n, d, kind, loss = rng.integers(2, 120), rng.integers(1, 12), rng.integers(6), LONG[rng.integers(6)]
    x = rng.standard_normal((n, d))
    if kind == 1:
        x[:, -1] = 1.7 * x[:, 0]
    if kind == 2:
        x = np.repeat(x[: n // 8 + 1], 8, 0)[:n]
    if kind == 3:
        x *= rng.random(x.shape) < 0.3
    if kind == 4:
        x = (x > 0).astype(float)
    x = (x * 10 ** rng.uniform(-6, 9, d)).astype(np.float32) if rng.random() < 0.6 else x.astype(np.float32)
    f = x @ (rng.standard_normal(d) / np.maximum(np.abs(x).max(0), 1e-30))
    f = f + rng.choice([0, 0.1, 1, 10]) * rng.standard_normal(len(x))
    real = loss in naive.REGRESSION
    y = f * 10 ** rng.choice([-3.0, 0.0, 3.0]) if real else np.where(f > np.median(f), 1, -1)
    if not real:
        y[0] = -y[1]
    weights = rng.choice([0.5, 1, 2, 1000], len(x)) if rng.random() < 0.3 else np.ones(len(x))
    return sp.csr_matrix(x), y, weights, loss, 10 ** rng.uniform(-6, 6), [None, "feature", "free"][rng.integers(3)]


@pytest.mark.parametrize("first", [0, *(pytest.param(k, marks=pytest.mark.long if k < 300 else pytest.mark.slow)
                                   for k in range(25, 1000, 25))])  # fmt: skip
def test_no_bound_of_a_drawn_problem_is_above_what_is_reached(first, quiet):
    certified = 0
    for seed in range(first, first + 25):
        x, y, weights, loss, C, bias = drawn(seed)
        options = dict(algo="newton_dense", loss=loss, C=C, bias=bias, sample_weight=weights, progress=False)
        told = [fit(x, y, tol=tol, epochs=150, **options) for tol in (1e-2, 1e-7)]
        best = min(primal(model, x.astype(float), y, loss, C * weights, bias) for model in told)
        for model in told:
            last = model.result_.history[-1]
            assert last["dual"] <= best * (1 + 1e-9) + 1e-250, (seed, loss, C, bias)
            assert last["gap"] >= -1e-10
        certified += told[0].result_.stopped == "tolerance"
    assert certified >= 15


def test_random_rows_of_few_entries_are_certified(quiet):
    x, y = random_rows(300, 40, 0.05)
    model = fit(x, y, algo="newton_dense", loss="hinge", bias="free", tol=1e-6, progress=False)
    assert model.result_.stopped == "tolerance"


def test_the_last_point_is_not_foreseen_before_there_is_a_bound():
    """At first D is 0 and the gap P: a step that leaves a fiftieth of the decrement says nothing of the end then."""
    params = newton_dense.Params(1.0, 0.0, 0.0, 0.0)
    fresh = {}
    for gap in (1.0, 0.9):
        shared = newton_dense.begin(1, np.float64, {"free_bias": 0.0, "epsilon": 0.0})
        shared.hessian[:], shared.scalars[newton_dense.VALUE] = 0.0, 1.0
        shared.scalars[[newton_dense.FRESH, newton_dense.BEFORE, newton_dense.LENGTH]] = 1, 0.05, 1
        newton_dense.turn(True, shared, params, np.array([0.001**0.5, 0.0]), 0.0, gap, 1e-3)
        fresh[gap] = shared.scalars[newton_dense.FRESH]
    assert fresh == {1.0: 1, 0.9: 0}
