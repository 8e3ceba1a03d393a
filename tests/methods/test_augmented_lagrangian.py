"""The augmented Lagrangian of the hinge: its sums against numpy, its certificates, what travels, bits, and its ends."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import scipy.sparse as sp
from making import block_of, environment, fit, interrupted_after, random_rows, shards_of

import bigclf
from bigclf.maths.losses import HINGE
from bigclf.methods import METHODS, resolve
from bigclf.methods.steps import augmented_lagrangian as al
from bigclf.methods.steps import planes

D, C = 9, 0.7


def begun(seed=0, weighted=True, **scalars):
    """A state, its rows' multipliers and the block of a hundred rows, as matrix with the bias too."""
    rng = np.random.default_rng(seed)
    x, y = random_rows(100, D, density=0.5, seed=seed)
    weights = rng.choice([0.5, 1.0, 3.0], 100) if weighted else np.ones(100)
    setting = resolve("augmented_lagrangian", None, None, "feature", {"C": C})
    state, rows = setting.shared(D, "float64"), setting.rows(100)
    state.weights[:], state.probe[:] = rng.standard_normal((2, D + 1)) * 0.3
    c = C * weights
    for array in rows:
        array[:] = c * np.clip(rng.uniform(-0.5, 1.5, 100), 0, 1)
    for name, value in {"KIND": al.POINT, "PENALTY": 0.5, "NEXT": 1.0, "HOLD": 0, **scalars}.items():
        state.scalars[getattr(al, name)] = value
    wide = np.hstack([x.toarray().astype(float), np.ones((100, 1))]) * y[:, None]
    return setting, state, rows, block_of(x, y, weights), wide, c


def read(setting, state, rows, block, order=None):
    order = np.arange(100) if order is None else order
    setting.kernel()(block, order, state, rows, setting.params(), np.zeros(0))


def term(a, b, m, c, r):
    return a * (1 - m) - (a - b) ** 2 / (2 * r * c)


@pytest.mark.parametrize("hold", [0, 1])
@pytest.mark.parametrize("other", [0, 1])
def test_the_sums_of_a_point_and_products_there_are_those_of_numpy(hold, other):
    setting, state, rows, block, wide, c = begun(HOLD=hold, OTHER=other)
    b = (rows.other if other else rows.one).copy()
    read(setting, state, rows, block)
    m = wide @ state.weights
    a = np.clip(b + 0.5 * c * (1 - m), 0, c)
    z = np.clip(b + 1.0 * c * (1 - m), 0, c) if hold else np.clip(a + 1.0 * c * (1 - m), 0, c)
    inside = (z > 0) & (z < c)
    assert 5 < inside.sum() < 90
    f, close = state.figures, dict(rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(state.total, -wide.T @ z, **close)
    np.testing.assert_allclose(state.diagonal, (wide**2).T @ (c * inside), **close)
    np.testing.assert_allclose(f[al.LOSS], c @ np.maximum(0, 1 - m), **close)
    np.testing.assert_allclose(f[al.DUAL], z.sum(), **close)
    np.testing.assert_allclose(f[al.LACK], c @ np.maximum(0, 1 - m) - z @ (1 - m), **close)
    np.testing.assert_allclose(f[al.TERMS], term(a, b, m, c, 0.5).sum(), **close)
    np.testing.assert_allclose(f[al.NEXT_TERMS], term(z, b if hold else a, m, c, 1.0).sum(), **close)
    al.follow(state, 1.0, 1.0, 0.0)
    state.scalars[al.KIND] = al.PRODUCT
    al.clear(state)
    read(setting, state, rows, block)
    np.testing.assert_allclose(state.total, wide.T @ (c * inside * (wide @ state.probe)), **close)


def test_a_point_that_is_not_taken_leaves_the_multipliers_of_the_last_one():
    """So a read that was cut short, or one too far along, can be made anew."""
    setting, state, rows, block, _, _ = begun()
    before = rows.one.copy()
    read(setting, state, rows, block, np.arange(60))
    assert al.forget(state) and not (np.any(state.total) or np.any(state.figures) or np.any(state.diagonal))
    np.testing.assert_array_equal(rows.one, before)
    read(setting, state, rows, block)
    again, fresh = (state.total.copy(), rows.other.copy()), begun()
    read(*fresh[:4])
    np.testing.assert_array_equal(again[0], fresh[1].total)
    np.testing.assert_array_equal(again[1], fresh[2].other)


def test_what_is_measured_along_a_step_is_the_lagrangian_there():
    setting, state, rows, block, wide, c = begun(KIND=al.LINE)
    state.point[:], state.step[:] = state.weights, state.probe
    w, s, b = state.point.copy(), state.step.copy(), rows.one.copy()
    read(setting, state, rows, block)
    expected = []
    for t in al.LENGTHS:
        m = wide @ (w + t * s)
        a = np.clip(b + 0.5 * c * (1 - m), 0, c)
        expected.append(0.5 * np.dot(w + t * s, w + t * s) + term(a, b, m, c, 0.5).sum())
    al.measured(state)
    best = al.LENGTHS[int(np.argmin(expected))]
    assert state.scalars[al.LENGTH] == best and state.scalars[al.KIND] == al.POINT
    np.testing.assert_allclose(state.weights, w + best * s, rtol=1e-12)
    np.testing.assert_array_equal(rows.one, b)


def primal(x, y, w, c):
    return 0.5 * w @ w + c @ np.maximum(0, 1 - y * (x @ w))


def watched(monkeypatch):
    """What every point told: (weights, P, bound), the multipliers' D, with a' read out of the learner's rows."""
    seen, came = [], al.came

    def watch(shared):
        seen.append((shared.weights.astype(float), shared.total.copy(), float(shared.figures[al.DUAL]), came(shared)))
        return seen[-1][-1]

    monkeypatch.setattr(al, "came", watch)
    return seen


@pytest.mark.parametrize("c", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("groups", [1, 3])
def test_no_bound_is_above_the_optimum_and_each_is_that_of_its_dual_variables(c, groups, monkeypatch, quiet):
    x, y = random_rows(400, 30, density=0.3, noise=1.0)
    weights = np.random.default_rng(3).choice([0.5, 1.0, 2.0], 400)
    seen = watched(monkeypatch)
    options = dict(C=c, sample_weight=weights, bias=None, progress=False)
    model = fit(x, y, algo="augmented_lagrangian", groups=groups, tol=1e-4, **options)
    dense = x.toarray().astype(float)
    best = fit(x, y, tol=1e-10, epochs=5000, **options).result_.certificate
    for w, total, dual, step in seen:
        np.testing.assert_allclose(step.primal, primal(dense, y, w[:-1], c * weights), rtol=1e-12)
        own = dual - 0.5 * total @ total
        assert own <= best["primal"] * (1 + 1e-12)
        assert own * (1 - 1e-12) <= step.dual <= best["primal"] * (1 + 1e-12)
    told = model.result_.certificate
    assert model.result_.converged and len(seen) > 3
    np.testing.assert_allclose(told["primal"], primal(dense, y, model.coef_.ravel(), c * weights), rtol=1e-12)
    assert told["dual"] <= best["primal"] and told["primal"] - told["dual"] <= 1e-4 * told["primal"]


def test_the_sum_that_came_is_of_dual_variables_in_their_box():
    """v and the sum of a' of a read, made again in numpy from the rows' two numbers alone."""
    setting, state, rows, block, wide, c = begun(seed=4)
    read(setting, state, rows, block)
    z = np.clip(rows.other + 2.0 * (rows.other - rows.one), 0, c)
    assert np.all((z >= 0) & (z <= c))
    v = wide.T @ z
    np.testing.assert_allclose(state.total, -v, rtol=1e-9, atol=1e-10)
    value = 0.5 * state.weights @ state.weights + c @ np.maximum(0, 1 - wide @ state.weights)
    told = al.came(state)
    np.testing.assert_allclose(told.primal, value, rtol=1e-12)
    np.testing.assert_allclose(told.dual, max(0.0, z.sum() - 0.5 * v @ v), rtol=1e-9)


def test_the_best_mean_of_planes_is_the_dual_objective_of_that_mean():
    state = begun()[1]
    rng, tops = np.random.default_rng(0), []
    for _ in range(planes.PLANES + 3):
        state.total[:] = rng.standard_normal(D + 1)
        offset = float(rng.uniform(1, 3))
        own = offset - 0.5 * state.total @ state.total
        tops.append(planes.largest(state, 10.0, own, offset))
        assert tops[-1] >= max(own, *tops)
    shares = np.full(planes.PLANES, 1 / planes.PLANES)
    products, offsets = state.book[: planes.PLANES, : planes.PLANES], state.book[planes.PLANES, : planes.PLANES]
    assert planes.bound_of(products, offsets) >= offsets @ shares - 0.5 * shares @ products @ shares


def travelled(monkeypatch):
    """Arrays of a feature's length that the ways of all reads name, one entry a read."""
    found, absorb = [], METHODS["augmented_lagrangian"].how.absorb(HINGE)

    def counted(shared, params, given=None):
        way = al.way(shared)
        found.append(sum(getattr(shared, n).size == shared.weights.size for n in (*way.down, *way.up)))
        return absorb(shared, params, given)

    monkeypatch.setattr("bigclf.training.roles.steps.StepsConductor._step", lambda self, part, ending: counted(
        part.state, self.problem.setting.params()))  # fmt: skip
    return found


def test_as_many_vectors_travel_with_many_groups_as_with_few(monkeypatch, quiet):
    x, y = random_rows(3000, 200, density=0.05, noise=1.0)
    counts = {}
    for groups in (4, 32):
        with monkeypatch.context() as patch:
            found = travelled(patch)
            model = fit(x, y, algo="augmented_lagrangian", groups=groups, start=2, progress=False)
        assert model.result_.converged and max(found) <= 3
        counts[groups] = sum(found)
    assert counts[32] <= 1.5 * counts[4]


@pytest.mark.parametrize("workers", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 4))])
def test_bits_do_not_depend_on_workers(workers, tmp_path, client, quiet):
    """Of a client of three, and processes that are started for it."""
    x, y = random_rows(600, 30, density=0.2)
    shards_of(tmp_path / "s", x, y, chunk_nnz=400)
    options = dict(algo="augmented_lagrangian", tol=1e-2, groups=4, progress=False)
    own, other = fit(str(tmp_path / "s"), **options), fit(str(tmp_path / "s"), workers=workers or client, **options)
    assert own.result_.converged and own.result_.epochs > 5
    assert other.digest() == own.digest() and other.result_.certificate == own.result_.certificate


@pytest.mark.parametrize(("commits", "groups"), [
    (2, 1), (11, 3), *(pytest.param(*more, marks=pytest.mark.long) for more in ((2, 3), (11, 1), (23, 1), (23, 3))),
])  # fmt: skip
def test_a_run_that_was_broken_off_goes_on_with_the_same_bits(groups, commits, tmp_path, quiet):
    x, y = random_rows(2000, 40, density=0.2, noise=1.0)
    shards_of(tmp_path / "s", x, y, chunk_nnz=2000)
    data = str(tmp_path / "s")
    options = dict(algo="augmented_lagrangian", tol=1e-4, groups=groups, memory="14MB", segments=2, progress=False)
    straight = fit(data, **options)
    assert straight.result_.epochs > 20
    with interrupted_after(commits):
        fit(data, run_dir=tmp_path / "r", checkpoint_every=0, **options)
    again = fit(data, run_dir=tmp_path / "r", resume=True, **options)
    assert again.digest() == straight.digest()
    assert again.result_.epochs == straight.result_.epochs


KILLED = textwrap.dedent("""
    import os, signal, sys, bigclf
    from bigclf.methods.steps import augmented_lagrangian as al
    came, left = al.came, [4]
    def counted(shared):
        left[0] -= 1
        if left[0] == 0 and sys.argv[3] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return came(shared)
    al.came = counted
    run = bigclf.RunDir(sys.argv[2], 0)
    model = bigclf.fit(sys.argv[1], algo="augmented_lagrangian", tol=1e-2, groups=3, workers=int(sys.argv[4]),
                       run_dir=run, resume=sys.argv[3] == "resume", progress=False)
    print(model.digest())
""")


@pytest.mark.long
def test_a_killed_run_goes_on_with_the_same_bits_on_other_workers(tmp_path):
    x, y = random_rows(600, 30, density=0.2, noise=1.0)
    shards_of(tmp_path / "s", x, y, chunk_nnz=400)
    data = str(tmp_path / "s")

    def run(*words):
        command = [sys.executable, "-c", KILLED, data, *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300, check=False)

    whole = run(str(tmp_path / "whole"), "go", "1")
    assert whole.returncode == 0, whole.stderr
    killed = run(str(tmp_path / "r"), "die", "1")
    assert killed.returncode == -signal.SIGKILL and os.path.isdir(tmp_path / "r")
    again = run(str(tmp_path / "r"), "resume", "2")
    assert again.returncode == 0, again.stderr
    assert again.stdout == whole.stdout and len(whole.stdout) > 20


def test_row_state_on_disk_gives_the_same_bits(tmp_path, quiet):
    x, y = random_rows(150_000, 20, density=0.05)
    shards_of(tmp_path / "s", x, y, chunk_nnz=20_000)
    options = dict(algo="augmented_lagrangian", tol=1e-2, progress=False)
    found = {m: fit(str(tmp_path / "s"), memory=m, **options) for m in ("20MB", "17MB")}
    assert [model.result_.plan["rows_sides"] for model in found.values()] == [0, 1]
    assert len({model.digest() for model in found.values()}) == 1


def test_what_does_not_get_there_says_so_with_its_gap(monkeypatch):
    x, y = random_rows(400, 30, density=0.3, noise=1.0)
    monkeypatch.setattr(al, "PATIENCE", 3)
    with pytest.warns(bigclf.errors.ConvergenceWarning, match=r"not converged: .*gap is \d"):
        model = fit(x, y, algo="augmented_lagrangian", C=1e4, tol=1e-14, progress=False)
    assert not model.result_.converged and model.result_.stopped == "stalled"
    told = model.result_.certificate
    assert told["dual"] <= told["primal"] and told["primal"] < np.inf


def test_threads_change_no_bits_and_groups_and_memory_no_more_than_the_gap(tmp_path, quiet):
    x, y = random_rows(3000, 60, density=0.2, noise=1.0)
    shards_of(tmp_path / "s", x, y, chunk_nnz=4000)
    options = dict(algo="augmented_lagrangian", tol=1e-4, progress=False)
    threads = [fit(x, y, workers=bigclf.Workers(threads=n), **options) for n in (1, 2)]
    assert threads[0].digest() == threads[1].digest()
    told = [threads[0].result_.certificate]
    for more in ({"groups": 3}, {"memory": "14MB"}, {"memory": "14MB", "groups": 2}):
        model = fit(str(tmp_path / "s"), **more, **options)
        assert model.result_.converged and model.result_.plan["resident"] == ("memory" not in more)
        told.append(model.result_.certificate)
    assert max(each["dual"] for each in told) <= min(each["primal"] for each in told)


def test_a_model_of_another_C_is_a_start(quiet):
    x, y = random_rows(800, 30, density=0.3, noise=1.0)
    warm = fit(x, y, algo="augmented_lagrangian", progress=False)
    again = fit(x, y, algo="augmented_lagrangian", C=1.2, init=warm, progress=False)
    assert again.result_.converged
    path = bigclf.path(x, y, algo="augmented_lagrangian", C=[0.1, 1.0], progress=False)
    assert path is not None


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_scale_of_the_features_goes_with_that_of_C(scale, quiet):
    """x times s and C by s^2 is the same problem: r is in units of C, so the reads are the same but for rounding."""
    x, y = random_rows(500, 30, density=0.3, noise=1.0)
    own = fit(x, y, algo="augmented_lagrangian", bias=None, dtype="float64", progress=False)
    other = fit(sp.csr_matrix(x * np.float32(scale)), y, algo="augmented_lagrangian", bias=None, C=scale**-2,
                dtype="float64", progress=False)  # fmt: skip
    assert other.result_.converged and abs(other.result_.epochs - own.result_.epochs) <= 3


def test_infinite_sums_end_the_run_by_name():
    setting, state, *_ = begun()
    state.figures[al.LOSS] = np.inf
    assert setting.method.how.absorb(HINGE)(state, setting.params()).over == "stalled"
