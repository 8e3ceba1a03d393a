"""Newton's method in several groups: the bound of several gradients, and steps that end in a certificate."""

import numpy as np
import pytest
import scipy.optimize
from making import random_rows

import bigclf
from bigclf.methods.steps import planes


def test_the_bound_is_the_best_one_over_the_simplex():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(4, 6)), rng.normal(size=4)
    found = planes.bound_of(a @ a.T, b)

    def value(z):
        shares = np.exp(z) / np.exp(z).sum()
        return -(shares @ b - 0.5 * np.square(shares @ a).sum())

    best = max(-scipy.optimize.minimize(value, rng.normal(size=4)).fun for _ in range(5))
    assert best - 1e-6 < found <= best + 1e-6
    assert found >= (b - 0.5 * np.square(a).sum(axis=1)).max()


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@pytest.mark.parametrize("algo", ["newton", "tron"])
def test_no_bound_is_above_the_optimum_and_reads_do_not_depend_on_the_groups(algo, loss):
    x, y = random_rows(600, 80, noise=0.5)
    options = dict(algo=algo, loss=loss, progress=False)
    best = bigclf.fit(x, y, tol=1e-10, **options).result_.certificate["dual"]
    runs = [bigclf.fit(x, y, tol=1e-4, groups=groups, **options).result_ for groups in (2, 5)]
    for run in runs:
        assert run.certificate["dual"] <= best * (1 + 1e-9) and run.certificate["primal"] >= best * (1 - 1e-9)
    assert abs(runs[0].epochs - runs[1].epochs) <= 2


def test_a_step_that_ends_in_a_certificate_is_the_one_of_the_least_residual():
    """Steps along one direction and back: the best lies between."""
    kept, book = planes.begin(2)
    state = type("State", (), {})()
    state.kept, state.book = kept, book
    state.step, state.residual = np.zeros(2), np.array([1.0, 0.0])
    book[-1, [planes.PRIMAL, planes.DUAL]] = 100.0, 99.0
    planes.begin_smoothing(state, 1e-4)
    assert not planes.is_close(state)
    planes.begin_smoothing(state, 0.05)
    assert planes.is_close(state)
    state.step, state.residual = np.array([2.0, 0.0]), np.array([-1.0, 0.0])
    assert planes.smooth(state, 1)
    np.testing.assert_allclose(state.step, [1.0, 0.0])
    np.testing.assert_allclose(kept[planes.LEFT], 0.0)
