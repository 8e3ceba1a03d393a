"""The support vector machine of Crammer and Singer by dual coordinate descent: the optimum, its certificate, and the
same out of core, from several groups and after a kill."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from making import block_of, run_python, shards_of
from scipy.optimize import minimize

from bigclf.api.fit import fit
from bigclf.errors import ConvergenceWarning
from bigclf.methods import resolve

D, K = 20, 4
pytestmark = pytest.mark.filterwarnings("ignore", category=ConvergenceWarning)


def rows_of_classes(n=600, seed=0, k=K, noise=1.0):
    """CSR float32 [n, D] and codes that the largest of k outputs gives, but for noise."""
    rng = np.random.default_rng(seed)
    x = sp.random(n, D, 0.4, "csr", np.float32, random_state=rng, data_rvs=rng.standard_normal)
    return x, (x @ rng.standard_normal((D, k)) + noise * rng.standard_normal((n, k))).argmax(axis=1)


def solve(x, y, **options):
    return fit(x, y, algo="dcd_mc", **{"bias": None, "C": 0.5, "tol": 1e-3, "progress": False, **options})


def objective(model, x, y, C, weights=1.0):
    """P of the model's vectors, as the definition reads."""
    x, w = np.asarray(x.todense(), float), np.column_stack([model.coef_, model.intercept_])
    outputs, own = x @ w[:, :-1].T + w[:, -1], np.arange(y.size)
    loss = (outputs + 1 - np.eye(w.shape[0])[y] - outputs[own, y][:, None]).max(axis=1)
    return 0.5 * np.sum(w**2) + C * np.sum(weights * loss)


@pytest.mark.parametrize("bias", ["feature", None])
def test_the_optimum_is_that_of_a_general_purpose_optimiser(bias):
    """The dual as it stands in the paper, by SciPy's SLSQP, for the bounds and the sums of each row."""
    rng = np.random.default_rng(3)
    x, y = rows_of_classes(12, k=3)
    weights, C = rng.uniform(0.5, 2, 12), 0.7
    full = np.hstack([x.toarray().astype(float), np.full((12, 1), float(bias is not None))])
    own = np.eye(3)[y]
    found = minimize(
        lambda a: 0.5 * np.sum((full.T @ a.reshape(12, 3)) ** 2) + np.sum((1 - own) * a.reshape(12, 3)),
        np.zeros(36), jac=lambda a: (full @ (full.T @ a.reshape(12, 3)) + 1 - own).ravel(), method="SLSQP",
        bounds=[(None, u) for u in (C * weights[:, None] * own).ravel()],
        constraints={"type": "eq", "fun": lambda a: a.reshape(12, 3).sum(1),
                     "jac": lambda a: np.kron(np.eye(12), np.ones(3))},
        options={"maxiter": 1000, "ftol": 1e-14},
    )  # fmt: skip
    model = solve(x, y, bias=bias, C=C, sample_weight=weights, tol=1e-9)
    told = model.result_.certificate
    assert found.success and model.result_.converged
    assert told["primal"] == pytest.approx(-found.fun, rel=1e-6) and told["dual"] == pytest.approx(-found.fun, rel=1e-6)
    assert told["primal"] == pytest.approx(objective(model, x, y, C, weights), rel=1e-12)
    np.testing.assert_allclose(model.coef_, (full.T @ found.x.reshape(12, 3)).T[:, :-1], atol=1e-4)


def test_with_two_classes_it_is_the_hinge_at_twice_the_price():
    """At the optimum w_0 = -w_1, since sum_m a_im = 0 makes the sum of all vectors 0. With w = w_1 - w_0 the penalty
    is ||w||^2 / 4 and a row loses max(0, 1 - y w.x):  P(C) = 1/2 (1/2 ||w||^2 + 2C sum loss)."""
    x, y = rows_of_classes(k=2)
    both, one = solve(x, y, C=0.3, tol=1e-8), fit(x, y, algo="dcd", C=0.6, bias=None, tol=1e-8, progress=False)
    assert both.result_.certificate["primal"] == pytest.approx(one.result_.certificate["primal"] / 2, rel=2e-8)
    np.testing.assert_allclose(both.coef_, one.coef_, atol=1e-3)


def test_each_visit_raises_the_dual_and_the_gap_holds():
    """From the kernels alone, over all classes and over the support: sum_i of what the rows lack is P - D."""
    x, y = rows_of_classes(60)
    setting = resolve("dcd_mc", None, None, "feature", {"C": 2.0}).of_classes(K)
    block, shared, rows = block_of(x, y), setting.shared(D, "float64"), setting.rows(60)
    params, scores, best = setting.params(), np.zeros(60), -np.inf
    for epoch in range(6):
        for i in range(60):
            whole = params._replace(support=bool(epoch % 2 and i % 3))
            setting.kernel()(block, np.array([i]), shared, rows, whole, scores)
            v = np.zeros(shared.weights.shape)
            primal, dual = setting.method.how.certify(0)(block, shared, rows, params, v, 0.0)
            assert dual - 0.5 * np.sum(v**2) >= best - 1e-9
            best = dual - 0.5 * np.sum(v**2)
            np.testing.assert_allclose(shared.weights, v, atol=1e-12)
        assert primal + 0.5 * np.sum(v**2) >= best
    own = np.eye(K)[y] * 2.0
    assert (rows.alpha <= own).all() and np.abs(rows.alpha.sum(axis=1)).max() < 1e-12
    before = shared.weights.copy(), rows.alpha.copy()  # nothing moves in a pass with the rows' prices at 0
    found = setting.kernel()(block._replace(weights=np.zeros(60)), np.arange(60), shared, rows, params, scores)
    assert found.updates == 0 and (before[0] == shared.weights).all() and (before[1] == rows.alpha).all()


def test_where_a_unit_of_loss_is_dear_the_certificate_s_loss_is_never_too_small():
    """Each row's own output leads by 1, but for roundings, whose prices are more than all of 1/2 ||w||^2."""
    setting = resolve("dcd_mc", None, None, None, {"C": 1e12}).of_classes(K)
    for seed in range(20):
        x, y = rows_of_classes(8, seed)
        shared = setting.shared(D, "float64")
        shared.weights[:-1] = np.linalg.pinv(x.toarray().astype(np.float64)) @ np.eye(K)[y]
        vectors = shared.weights[:-1].T.tolist()
        outputs = [
            [sum(Fraction(float(a)) * Fraction(b) for a, b in zip(row, w, strict=True)) for w in vectors]
            for row in x.toarray()
        ]
        leads = [max(row[k] for k in range(K) if k != own) - row[own] for row, own in zip(outputs, y, strict=True)]
        exact = 10**12 * sum(max(Fraction(0), 1 + lead) for lead in leads)
        given = setting.rows(8), setting.params(), np.zeros(shared.weights.shape), np.linalg.norm(shared.weights)
        told, _ = setting.method.how.certify(0)(block_of(x, y), shared, *given)
        assert exact <= Fraction(float(told)) <= exact + 8 * Fraction(1e12 * 2.0**-42)


def test_scores_say_how_far_a_row_is_from_being_stuck():
    x, y = rows_of_classes(200)
    setting = resolve("dcd_mc", None, None, None, {"C": 0.02}).of_classes(K)
    block, shared, rows, scores = block_of(x, y), setting.shared(D, "float64"), setting.rows(200), np.zeros(200)
    for _ in range(300):
        setting.kernel()(block, np.arange(200), shared, rows, setting.params(), scores)
    gradients, upper = x @ shared.weights[:-1] + 1 - np.eye(K)[y], 0.02 * np.eye(K)[y]
    free = rows.alpha < upper
    highest = np.sort(gradients, axis=1)
    stuck = free.sum(axis=1) == 1
    np.testing.assert_allclose(-scores, np.where(stuck, highest[:, -1] - highest[:, -2], 0), atol=1e-6)
    assert 20 < stuck.sum() < 180 and (gradients[stuck] * free[stuck]).max(axis=1) == pytest.approx(highest[stuck, -1])


@pytest.mark.parametrize("C", [1e-12, 1.0, 1e12])
def test_odd_rows_and_prices_get_an_answer_with_a_certificate_that_holds(C):
    x, y = rows_of_classes(80)
    x = sp.vstack([x, x[:10], x[:10], sp.csr_matrix((5, D))]).tocsr()  # duplicates, half of them of other classes
    y = np.concatenate([y, y[:10], (y[:10] + 1) % K, np.arange(5)])  # the class 4 has one row, without entries
    model = solve(x, y, C=C, epochs=300)
    told = model.result_.certificate
    assert np.isfinite(model.coef_).all() and model.coef_.shape == (5, D)
    assert told["primal"] == pytest.approx(objective(model, x, y, C), rel=1e-9)
    assert 0 <= told["gap"] <= 1 and (told["gap"] <= 1e-3) == model.result_.converged
    assert model.result_.converged or C == 1e12


def test_the_gap_is_never_below_the_true_one():
    x, y = rows_of_classes()
    best = solve(x, y, tol=1e-8)
    assert best.result_.converged
    least = best.result_.certificate["primal"]
    for tol in (0.3, 0.03, 3e-3):
        told = solve(x, y, tol=tol).result_.certificate
        assert told["gap"] <= tol and told["dual"] <= least
        assert told["gap"] * told["primal"] >= told["primal"] - least * (1 + 1e-8)


# Out of core and apart


@pytest.fixture(scope="module")
def large():
    return rows_of_classes(20_000, seed=5)


@pytest.fixture(scope="module")
def shards(large, tmp_path_factory):
    return shards_of(tmp_path_factory.mktemp("classes") / "shards", *large, chunk_nnz=6_000)


@pytest.mark.parametrize("memory, sides", [("17MB", 0), ("15.1MB", 1)])
def test_out_of_core_it_is_certified_with_dual_variables_in_memory_or_on_disk(shards, memory, sides, large):
    """Twice the same bits, and the optimum that is found in memory."""
    models = [solve(shards, None, C=0.01, memory=memory) for _ in range(2)]
    plan = models[0].result_.plan
    assert not plan["resident"] and plan["rows_sides"] == sides and plan["set_rows"]
    assert all(model.result_.converged for model in models) and models[0].digest() == models[1].digest()
    told, best = models[0].result_.certificate, solve(*large, C=0.01, tol=1e-5).result_.certificate
    assert best["dual"] <= told["primal"] <= best["primal"] * (1 + 1.1e-3)


@pytest.mark.parametrize(
    "schedule", ["selective", *(pytest.param(name, marks=pytest.mark.long) for name in ("fixed", "cached"))]
)
def test_the_schedules_of_the_family_find_the_same_optimum(shards, large, schedule):
    given = dict(C=0.01, memory="17MB", tol=1e-2, schedule=schedule)
    models = [solve(shards, None, **given) for _ in range(2)]
    told, best = models[0].result_.certificate, solve(*large, C=0.01, tol=1e-5).result_.certificate
    assert models[0].result_.converged and models[0].digest() == models[1].digest()
    assert best["dual"] <= told["primal"] <= best["primal"] * (1 + 1.1e-2)
    with pytest.raises(ValueError, match="every row fits"):
        solve(*large, schedule=schedule)


KILLED = """
import os, signal, sys, bigclf
from bigclf.training.roles.dual import DualLearner
real, begin, epochs = DualLearner.go_over, DualLearner.begin_segment, []
def begin_segment(self, epoch, *given):
    epochs.append(epoch)
    begin(self, epoch, *given)
def go_over(self, *given):
    if epochs[-1] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, *given)
if len(sys.argv) > 5:
    DualLearner.begin_segment, DualLearner.go_over = begin_segment, go_over
model = bigclf.fit(sys.argv[1], algo="dcd", multiclass="native", bias=None, C=0.01, memory=sys.argv[3], tol=1e-4,
                   run_dir=bigclf.RunDir(sys.argv[2], 0), resume=True, progress=False, groups=int(sys.argv[4]))
assert model.result_.plan["rows_sides"] == 2
print(model.digest())
"""


@pytest.mark.long
def test_killed_in_the_middle_of_a_read_it_resumes_to_the_same_bits(shards, tmp_path):
    """Two groups with their dual variables on disk."""
    memory, groups, found = "15.6MB", 2, []
    for name, killed in (("whole", []), ("broken", ["kill"]), ("broken", [])):
        given = (shards.files[0].rsplit("/", 1)[0], tmp_path / name, memory, groups)
        found.append(run_python(KILLED, *given, *killed, check=not killed))
    assert found[0] == found[2] and found[0] and not found[1]


@pytest.mark.parametrize("mixing", ["line_search", "safe"])
def test_several_groups_reach_the_optimum_and_their_dual_never_falls(shards, large, mixing):
    model = solve(shards, None, C=0.01, groups=3, mixing=mixing, tol=1e-5)
    duals = [record["dual"] for record in model.result_.history if "dual" in record]
    assert model.result_.converged and len(duals) > 1 and (np.diff(duals) >= 0).all()
    best = solve(*large, C=0.01, tol=1e-5).result_.certificate
    assert best["dual"] <= model.result_.certificate["primal"] <= best["primal"] * (1 + 1.1e-5)


# Classes that are not everywhere


def scarce(order):
    """Rows in the order of their classes, or in no order; one class has one row in all."""
    x, y = rows_of_classes(600, seed=7)
    keep = np.sort(np.concatenate([np.flatnonzero(y != 2), np.flatnonzero(y == 2)[:1]]))
    keep = keep[np.argsort(y[keep], kind="stable")] if order else keep
    return x[keep], y[keep]


def test_groups_that_lack_classes_find_the_same_optimum_here_and_on_a_cluster(client):
    """In the order of classes every group lacks some, and one class is in one group alone."""
    x, y = scarce(order=True)
    best = solve(x, y, tol=1e-6).result_.certificate
    given = dict(groups=4, tol=1e-4, epochs=200)
    model = solve(x, y, **given)
    parts = [set(part) for part in np.array_split(y, 4)]
    assert all(len(part) < K for part in parts) and sum(2 in part for part in parts) == 1
    told = model.result_.certificate
    assert model.result_.converged and best["dual"] <= told["primal"] <= best["primal"] * (1 + 1.1e-4)
    there = solve(x, y, workers=client, **given)
    assert there.digest() == model.digest() and there.result_.certificate == told


def test_a_fold_that_lacks_a_class_is_learned_and_measured():
    import bigclf

    x, y = scarce(order=False)
    found = bigclf.sweep(x, y, algo="dcd_mc", grid={"C": [0.1, 1.0]}, folds=5, bias=None, tol=1e-3, progress=False)
    assert found.best_model.coef_.shape == (K, D) and len(found.table) == 2
    best = solve(x, y, C=found.best_params_["C"], tol=1e-5).result_.certificate
    told = found.best_model.result_.certificate
    assert best["dual"] <= told["primal"] <= best["primal"] * (1 + 1.1e-3)
    assert all(0 < row["mean"] < 0.3 for row in found.table)  # the share of mistakes; noise makes some


def test_values_of_C_begin_with_the_dual_variables_of_the_one_before(monkeypatch):
    """Inside the bounds, as far along its line as the dual gains; every value is certified at its own optimum."""
    import bigclf
    from bigclf.training.roles.dual import DualLearner

    x, y = rows_of_classes(300, seed=2)
    real, begun = DualLearner.begin_with, []

    def begin_with(self, others, view, state):
        real(self, others, view, state)
        alpha, c = self.rows.alpha, self.params.C
        assert alpha.any() and (alpha <= c * np.eye(K)[y]).all() and np.abs(alpha.sum(axis=1)).max() < 1e-12 * c
        np.testing.assert_allclose(x.T @ alpha, state.weights[:-1], atol=1e-9)
        begun.append(c)

    monkeypatch.setattr(DualLearner, "begin_with", begin_with)
    grid = {"C": [0.01, 0.1, 1.0]}
    found = bigclf.sweep(x, y, algo="dcd_mc", grid=grid, folds=2, bias=None, tol=1e-4, progress=False)
    assert begun == [0.1, 0.1, 1.0, 1.0]
    assert all(told["gap"] <= 1e-4 for point in found.certificates for told in point)


def test_dual_variables_are_put_inside_their_bounds():
    x, y = rows_of_classes(50, seed=4)
    weights = np.random.default_rng(0).choice([0.0, 1.0, 2.0], 50)
    setting = resolve("dcd_mc", None, None, None, {"C": 0.5}).of_classes(K)
    block, rows, own = block_of(x, y, weights), setting.rows(50), np.eye(K)[y]
    rows.alpha[:] = np.random.default_rng(1).normal(0, 0.3, (50, K))
    given = rows.alpha.copy()
    setting.method.how.within(0)(block, rows, setting.params())
    alpha, upper = rows.alpha, 0.5 * weights
    assert (alpha <= upper[:, None] * own).all() and np.abs(alpha.sum(axis=1)).max() < 1e-15
    inside = (-np.minimum(given * (1 - own), 0).sum(axis=1) <= upper) & (weights > 0)
    assert 5 < inside.sum() < 45
    np.testing.assert_array_equal((alpha * (1 - own))[inside], np.minimum(given * (1 - own), 0)[inside])
    told = setting.method.how.value(0)(block, rows, setting.params(), 0.25)
    assert told == pytest.approx(0.25 * np.maximum(alpha, 0).sum())
