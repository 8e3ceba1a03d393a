"""Conjugate gradients over free pairs of a row and a class: the dual objective rises inside the bounds, a face without
a bound in the way is solved, and runs that stalled without them end."""

import numpy as np
import pytest
import scipy.sparse as sp
from making import block_of

from bigclf.api.fit import fit
from bigclf.methods import resolve
from bigclf.methods.dual.multiclass_conjugate_gradients import climb

N, D, K = 60, 8, 4


def stiff(n=N, seed=0):
    """Rows over features on scales from 0.1 to 10, and codes that the largest of K noisy outputs gives."""
    rng = np.random.default_rng(seed)
    x = sp.random(n, D, 0.5, "csr", np.float32, random_state=rng, data_rvs=rng.standard_normal)
    x = x.multiply(np.geomspace(0.1, 10, D)[None, :]).tocsr().astype(np.float32)
    return x, (x @ rng.standard_normal((D, K)) + rng.standard_normal((n, K))).argmax(axis=1)


def nothing():
    pass


class Machine:
    """Rows, dual variables and weights, and steps of the method's own kernels."""

    def __init__(self, x, y, C, bias="feature", weights=None):
        self.setting = resolve("dcd_mc", None, None, bias, {"C": C}).of_classes(K)
        self.block, self.n = block_of(x, y, weights), x.shape[0]
        self.shared, self.rows = self.setting.shared(D, "float64"), self.setting.rows(self.n)
        self.params, self.upper = self.setting.params(), C * self.block.weights[:, None] * np.eye(K)[y]

    def rounds(self, n):
        for _ in range(n):
            self.setting.kernel()(self.block, np.arange(self.n), self.shared, self.rows, self.params, np.zeros(self.n))

    def climb(self, room=N * K, goal=1e-12):
        everyone = np.arange(self.n)
        return climb(self.block, everyone, self.shared, self.rows, self.params, goal, 500, room, nothing)

    def dual(self):
        """D of the dual variables, whose weights those of the state are."""
        v = np.zeros(self.shared.weights.shape)
        _, dual = self.setting.method.how.certify(0)(self.block, self.shared, self.rows, self.params, v, 0.0)
        np.testing.assert_allclose(self.shared.weights, v, atol=1e-9 * np.abs(v).max())
        return dual - 0.5 * np.sum(v**2)


@pytest.mark.parametrize("C", [0.05, 50.0])
@pytest.mark.parametrize("bias", [None, "feature"])
def test_the_dual_objective_rises_inside_the_bounds_and_the_weights_go_with_it(C, bias):
    machine = Machine(*stiff(), C, bias, np.random.default_rng(1).choice([0.5, 1.0, 2.0], N))
    alpha = machine.rows.alpha
    for _ in range(4):
        machine.rounds(3)
        before, known = alpha.copy(), machine.dual()
        assert machine.climb() > 0 and machine.dual() > known
        assert (alpha <= machine.upper).all() and np.abs(alpha.sum(axis=1)).max() < 1e-12 * C
        wrong = machine.upper == 0
        np.testing.assert_array_equal(alpha[wrong & (before == 0)], 0)  # who is at a bound stays there


def test_without_a_bound_in_the_way_it_finds_the_solution_of_the_linear_system():
    """Of rows that are independent, with every pair free: w_m.x_i + e_im is one number for all m, so with the sums of
    rows 0 and the matrix Q of products of rows,  Q a = mean_m e - e  of each class, by numpy."""
    rng = np.random.default_rng(0)
    x = sp.csr_matrix((0.1 * rng.standard_normal((5, D)) + 2 * np.eye(5, D)).astype(np.float32))  # almost orthogonal
    y, own = np.arange(5) % K, np.eye(K)[np.arange(5) % K]
    exact = np.linalg.solve((x @ x.T).toarray().astype(float), own - 1 / K)
    assert (exact[own == 0] < 0).all()
    machine = Machine(x, y, 1e3, None)
    machine.rows.alpha[:] = 1e-3 * (K * own - 1)
    machine.shared.weights[:D] = x.T @ machine.rows.alpha
    assert machine.climb() > 0
    np.testing.assert_allclose(machine.rows.alpha, exact, rtol=1e-6)


def test_rows_that_depend_on_each_other_go_up_to_a_bound():
    x, y = stiff()
    machine = Machine(x[np.arange(N) % 7].tocsr(), y[(3 * np.arange(N)) % 11], 0.5)
    machine.rounds(2)
    for _ in range(3):
        known = machine.dual()
        machine.climb(goal=0.0)
        assert np.isfinite(machine.shared.weights).all() and machine.dual() >= known - 1e-12 * abs(known)


def test_too_little_room_or_no_free_pair_leaves_everything_as_it_is():
    machine = Machine(*stiff(), 0.5)
    assert machine.climb() == 0 and not machine.rows.alpha.any()
    machine.rounds(1)
    before = machine.rows.alpha.copy()
    assert machine.climb(room=5 * K) == 0
    np.testing.assert_array_equal(machine.rows.alpha, before)


@pytest.mark.long
def test_a_run_that_stalls_ends_with_them_at_the_same_optimum(monkeypatch):
    x, y = stiff(300)
    given = dict(algo="dcd_mc", bias=None, C=100.0, tol=1e-4, progress=False)
    with_them = fit(x, y, **given).result_
    assert with_them.converged and sum(record.get("conjugate_steps", 0) for record in with_them.history) > 0
    monkeypatch.setattr("bigclf.training.plan._room_to_climb", lambda *_: 0)
    without = fit(x, y, **given | {"tol": 0.1}, epochs=3).result_
    assert without.certificate["dual"] <= with_them.certificate["primal"]
    assert with_them.certificate["dual"] <= without.certificate["primal"]
