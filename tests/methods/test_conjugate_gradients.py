"""Conjugate gradients over the free dual variables: they start where rounds stall and nowhere else, the dual objective
never falls, the certified optimum is that of the rounds alone, and bits repeat, resumed or not."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse
from making import block_of, interrupted_after, random_rows, shards_of
from test_dual_coordinate_descent import dual, extended, signs

import bigclf
from bigclf.api.fit import fit
from bigclf.data.arrays import Arrays
from bigclf.maths.losses import LOSSES, REGRESSION, plain
from bigclf.methods import METHODS, resolve
from bigclf.methods.dual.conjugate_gradients import Quadratic, climb, ends
from bigclf.training.plan import make_plan
from bigclf.training.problems import make_problems
from bigclf.training.roles import dual as dual_role
from bigclf.training.roles import gathered
from bigclf.training.roles.dual import MOST_STEPS, PACE, STEP, stalls, steps_worth
from bigclf.training.run import Run

QUADRATIC = [loss for loss in METHODS["dcd"].losses if loss != "logistic"]
every_loss = pytest.mark.parametrize("loss", QUADRATIC)
N, D = 300, 60


def stiff(loss, n=N, seed=0):
    """Rows over features on scales from 0.03 to 30: coordinate steps take many rounds."""
    x, y = random_rows(n, D, 0.4, seed=seed, noise=1.0, real=loss in REGRESSION)
    return x.multiply(np.geomspace(0.03, 30, D)[None, :]).tocsr().astype(np.float32), y


def nothing():
    pass


def climbed(loss, bias, dtype="float64", rounds=3, weights=None, goal=1e-9):
    """x, y, params, and dual variables and weights before and after a climb from where a few rounds lead."""
    x, y = stiff(loss)
    block = block_of(x, y, weights)
    method, record = METHODS["dcd"], LOSSES[loss]
    params = method.form.bind(resolve("dcd", loss, None, bias, {"C": 0.5}).settings)
    shared = resolve("dcd", None, None, None, {}).shared(D, dtype)
    rows, scores = method.how.rows(np.zeros(N)), np.zeros(N)
    everyone = np.arange(N)
    for _ in range(rounds):
        method.how.update(record)(block, everyone, shared, rows, params, scores)
    before = rows.alpha.copy()
    steps = climb(record)(block, everyone, shared, rows, params, goal, 500, N, nothing)
    return x, y, before, rows.alpha, shared.weights, steps


@every_loss
@pytest.mark.parametrize("bias", [None, "feature"])
def test_the_dual_objective_rises_inside_the_box_and_the_weights_go_with_it(loss, bias):
    weights = np.random.default_rng(1).choice([0.5, 1.0, 2.0], N)
    x, y, before, after, w, steps = climbed(loss, bias, weights=weights)
    matrix, c = extended(x, bias), 0.5 * weights
    found = [dual(matrix, y, alpha, loss, c) for alpha in (before, after)]
    assert steps > 0 and found[1] > found[0]
    upper = np.inf if loss.startswith("squared") else c
    assert (np.abs(after) <= upper).all() and ((after >= 0).all() or loss in REGRESSION)
    np.testing.assert_array_equal(after[before == 0], 0)  # who is at an end of a piece stays there
    np.testing.assert_allclose(w, matrix.T @ (after * signs(loss, y)), rtol=1e-9, atol=1e-9 * np.abs(w).max())


def test_without_an_end_in_the_way_it_finds_the_solution_of_the_linear_system():
    """With the squared hinge and dual variables that all stay positive: (Q + D) a = 1, by numpy."""
    x, y = random_rows(40, D, 0.4, noise=5.0)
    x = x * np.float32(0.1)
    block, method, record = block_of(x, y), METHODS["dcd"], LOSSES["squared_hinge"]
    params = method.form.bind(resolve("dcd", "squared_hinge", None, None, {"C": 0.5}).settings)
    shared, rows = resolve("dcd", None, None, None, {}).shared(D, "float64"), method.how.rows(np.full(40, 1e-3))
    rowsum = x.toarray().astype(float) * y[:, None]
    shared.weights[:D] = rowsum.T @ rows.alpha
    climb(record)(block, np.arange(40), shared, rows, params, 0.0, 200, 40, nothing)
    exact = np.linalg.solve(rowsum @ rowsum.T + np.eye(40), np.ones(40))
    assert exact.min() > 0
    np.testing.assert_allclose(rows.alpha, exact, rtol=1e-9)


def test_rows_that_depend_on_each_other_go_up_to_an_end():
    """Duplicates: the face is flat along their differences, and for the hinge the dual rises along them for ever."""
    x, y = stiff("hinge")
    x, y = x[np.arange(N) % 7].tocsr(), y[np.arange(N) % 7]
    block, method, record = block_of(x, y), METHODS["dcd"], LOSSES["hinge"]
    params = method.form.bind(resolve("dcd", "hinge", None, None, {"C": 0.5}).settings)
    rng = np.random.default_rng(0)
    shared, rows = resolve("dcd", None, None, None, {}).shared(D, "float64"), method.how.rows(rng.uniform(0.1, 0.4, N))
    matrix = extended(x, None)
    shared.weights[:] = matrix.T @ (rows.alpha * y)
    known = dual(matrix, y, rows.alpha, "hinge", 0.5)
    for _ in range(5):
        climb(record)(block, np.arange(N), shared, rows, params, 0.0, 50, N, nothing)
        now = dual(matrix, y, rows.alpha, "hinge", 0.5)
        assert np.isfinite(shared.weights).all() and now >= known - 1e-12 * abs(known)
        known = now


def test_too_little_room_or_no_free_row_leaves_everything_as_it_is():
    x, y = stiff("hinge")
    block, method, record = block_of(x, y), METHODS["dcd"], LOSSES["hinge"]
    params = method.form.bind(resolve("dcd", "hinge", None, None, {"C": 0.5}).settings)
    for alpha, room in ((np.full(N, 0.2), N - 1), (np.zeros(N), N), (np.full(N, 0.5), N)):
        shared, rows = resolve("dcd", None, None, None, {}).shared(D, "float64"), method.how.rows(alpha.copy())
        assert climb(record)(block, np.arange(N), shared, rows, params, 0.0, 50, room, nothing) == 0
        np.testing.assert_array_equal(rows.alpha, alpha)
        assert not shared.weights.any()
    assert climb(LOSSES["logistic"]) is None


def without(monkeypatch):
    """From here on runs have no conjugate gradients."""
    monkeypatch.setattr("bigclf.training.plan._room_to_climb", lambda *_: 0)


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize(("loss", "dtype"), [*((loss, "float64") for loss in QUADRATIC),
                         pytest.param("hinge", "float32", marks=pytest.mark.long)])  # fmt: skip
def test_with_and_without_the_certified_optimum_is_the_same(loss, dtype, monkeypatch):
    x, y = stiff(loss)
    tol = 1e-6 if dtype == "float64" else 1e-4
    options = dict(loss=loss, C=0.5, tol=tol, dtype=dtype, epochs=100, progress=False)
    quick = fit(x, y, **({"algo": "dcd"} | options))
    assert any("conjugate_steps" in record for record in quick.result_.history)
    without(monkeypatch)
    plain = fit(x, y, **({"algo": "dcd"} | options))
    assert not any("conjugate_steps" in record for record in plain.result_.history)
    told = [model.certificate for model in (quick, plain)]
    assert quick.result_.converged
    assert told[0]["dual"] <= told[1]["primal"] * (1 + 1e-14) and told[1]["dual"] <= told[0]["primal"] * (1 + 1e-14)
    rounds = [sum(record["rounds"] for record in model.result_.history) for model in (quick, plain)]
    assert rounds[0] < 0.5 * rounds[1]


def test_where_rounds_do_not_stall_nothing_changes(monkeypatch):
    x, y = random_rows(2000, 200, 0.05, noise=0.5)
    quick = fit(x, y, C=0.1, tol=1e-3, progress=False)
    assert not any("conjugate_steps" in record for record in quick.result_.history)
    without(monkeypatch)
    assert fit(x, y, C=0.1, tol=1e-3, progress=False).digest() == quick.digest()


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    x, y = stiff("hinge", n=4000)
    return shards_of(tmp_path_factory.mktemp("stiff") / "shards", x, y, chunk_nnz=3000, shard_nnz=40_000)


PLACES = {"resident": "1GB", "streamed": "15.5MB"}


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize("place", PLACES)
def test_bits_repeat_whatever_the_threads_and_after_a_stop(shards, place, tmp_path):
    options = dict(C=0.5, tol=1e-9, epochs=5, memory=PLACES[place], progress=False)
    whole = fit(shards, workers=bigclf.Workers(threads=1), **({"algo": "dcd"} | options))
    assert any("conjugate_steps" in record for record in whole.result_.history)
    assert whole.result_.plan["resident"] == (place == "resident") and whole.result_.repeatable
    assert fit(shards, workers=bigclf.Workers(threads=2), **({"algo": "dcd"} | options)).digest() == whole.digest()
    given = dict(run_dir=bigclf.RunDir(tmp_path / "run", 0), **options)
    with interrupted_after(3):
        fit(shards, **({"algo": "dcd"} | given))
    resumed = fit(shards, resume=True, **({"algo": "dcd"} | given))
    assert resumed.digest() == whole.digest() and resumed.certificate == whole.certificate


def test_the_plan_has_room_for_them_in_the_budget_or_goes_without():
    x, y = stiff("hinge", n=4000)
    source = Arrays(x, y)

    def plan(loss="hinge", bias="feature", memory=10**9, groups=1, **settings):
        problems = make_problems(np.arange(2), np.ones(2), resolve("dcd", loss, None, bias, settings, groups=groups))
        return make_plan(source, problems, memory=memory, dtype="float64", seed=0, groups=1, threads=1, in_memory=True,
                         reads=9)  # fmt: skip

    roomy = plan()
    assert roomy.climb_rows == 4000 and roomy.memory["conjugate gradients"] == 64 * 4000 + 8 * (D + 1)
    least = roomy.memory["planned"]
    assert plan(memory=least).climb_rows == 4000 and plan(memory=least - 1).climb_rows == 0
    assert plan(memory=least - 1).resident  # rows in memory come first
    assert plan("logistic").climb_rows == plan(inner_rounds=9).climb_rows == 0


def test_a_certificate_that_was_tried_in_vain_is_told_by_the_record_that_follows(shards, monkeypatch):
    """Out of core, with a working set, a certificate is made alone; here it is tried long before its time."""
    from bigclf.training.status import Status

    seen, accept = [], Status.accept
    monkeypatch.setattr(Run, "_seems_done", lambda self: self.epoch > 1 and self.status[0].estimate < np.inf)

    def noting(self, primal, dual, *rest):
        if dual != self.dual:
            seen.append((primal, dual))
        else:  # weights that were let go are kept after all, their losses rounded up; or scaled ones are better
            seen[-1] = min(primal, seen[-1][0]), dual
        accept(self, primal, dual, *rest)

    monkeypatch.setattr(Status, "accept", noting)
    model = fit(shards, C=0.5, tol=1e-2, epochs=60, memory=PLACES["streamed"], progress=False, algo="dcd")
    history = model.result_.history
    assert model.result_.converged and len(seen) > 2 and "gap" not in history[0]
    for tried, record in enumerate(history[1:], 1):  # each follows one more certificate
        primal, dual = min(p for p, _ in seen[:tried]), max(d for _, d in seen[:tried])
        if tried < len(seen):  # the last one ends the run
            assert record["objective"] == pytest.approx(primal, rel=1e-9) and record["dual"] == dual
            assert record["gap"] == pytest.approx((primal - dual) / primal, rel=1e-9) and record["gap"] > 1e-2
    assert history[-1]["gap"] == model.certificate["gap"] <= 1e-2


def test_a_visit_ends_with_rounds_so_that_its_weights_are_as_good_as_these_said():
    """One-hot rows: after a climb alone the dual has risen and the primal objective is far off, in vain."""
    n, fields = 12_000, 12
    rng, field = np.random.default_rng(7), n // 3
    x = np.empty((n, fields), np.int64)
    for f in range(fields):
        size = max(3, field // 2**f) if f < 10 else 5 + f
        x[:, f] = f * field + np.minimum((rng.pareto(1.1, n) * 3).astype(np.int64), size - 1)
    weights = rng.normal(size=fields * field) * 0.6
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-weights[x].sum(1))), 1, -1)
    x = scipy.sparse.csr_array((np.ones(x.size, np.float32), x.ravel(), np.arange(0, x.size + 1, fields)))
    history = fit(x, y, algo="dcd", loss="hinge", inner_rounds=20, progress=False).result_.history
    assert sum(record["rounds"] == 20 and "conjugate_steps" in record for record in history) >= 3
    pairs = [(before["estimated_gap"], after["gap"]) for before, after in itertools.pairwise(history)
             if before["rounds"] == 20 and "gap" in after]  # fmt: skip
    assert pairs and all(gap < 2 * estimate for estimate, gap in pairs)


def test_rounds_stall_where_twice_as_many_would_not_do():
    assert not stalls(1e-2, 1.0, 1.1e-6) and stalls(1e-2, 1.0, 0.9e-6) and stalls(1.0, 0.0, 0.5)
    assert stalls(1e200, 1e201, 1e100) and not stalls(1e200, 1e280, 1e100)  # gaps of rows on such scales
    assert stalls(1.0, 1e-200, 1e300)


@pytest.mark.filterwarnings("ignore:not converged")
def test_a_climb_takes_no_longer_than_the_rounds_that_it_saves(shards, monkeypatch):
    assert steps_worth(0.5, 1.0, 0.25) == PACE / STEP  # as many rounds again would do
    assert steps_worth(0.5, 1.0, 2.0**-9) == 8 * PACE / STEP and steps_worth(0.999, 1.0, 1e-9) == MOST_STEPS
    for left, mark, goal in ((1.0, 1.0, 0.1), (2.0, 1.0, 0.1), (1.0, math.inf, 0.1), (1.0, 2.0, 0.0), (0.1, 1.0, 0.1)):
        assert steps_worth(left, mark, goal) == MOST_STEPS  # nothing can be said
    for module, groups, words in ((dual_role, 1, {}), (gathered, 2, {"memory": "17MB"})):
        monkeypatch.setattr(module, "steps_worth", lambda left, mark, goal: 3)
        history = fit(shards, algo="dcd", loss="hinge", C=30, epochs=4, groups=groups, progress=False, **words
                      ).result_.history  # fmt: skip
        climbs = [(record["conjugate_steps"], record["rounds"]) for record in history if "conjugate_steps" in record]
        assert climbs and all(steps <= 3 * (rounds // PACE) for steps, rounds in climbs), module


def test_the_end_of_a_box_is_one_whatever_the_loss_adds_to_the_curvature():
    """Of a smoothed hinge, say: D_ii is 1 / C_i, and alpha_i at most C_i."""
    for a, signed, expected in ((0.5, True, (0, 2)), (-0.5, False, (-2, 0)), (0.5, False, (0, 2))):
        for diagonal in (0.0, 1.0):
            assert plain(ends)(Quadratic(2.0, 1.0, 0.1, diagonal, False, signed), a, 2.0) == expected
        assert np.isinf(plain(ends)(Quadratic(2.0, 1.0, 0.1, 1.0, True, signed), a, 2.0)).any()


@every_loss
def test_steps_are_counted_the_same_in_many_calls_as_in_few(loss, monkeypatch):
    few = climbed(loss, None)
    monkeypatch.setattr("bigclf.methods.dual.conjugate_gradients.ROWS_A_CALL", 0)  # each step in a call of its own
    many = climbed(loss, None)
    assert few[-1] == many[-1] > 1
    np.testing.assert_array_equal(few[3], many[3])
