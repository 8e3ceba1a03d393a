"""Every loss by a table: value, slope, curvature, conjugate, best step, interval and freedom, against scipy."""

import naive
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from bigclf import losses
from bigclf.losses import LOSSES

TUBE = 0.3
# of the dual: the interval of alpha at C = c; None where a loss has no dual here
INTERVALS = {
    "hinge": lambda c: (0, c),
    "squared_hinge": lambda c: (0, np.inf),
    "logistic": lambda c: (0, c),
    "epsilon_insensitive": lambda c: (-c, c),
    "squared_epsilon_insensitive": lambda c: (-np.inf, np.inf),
    "squared": None,
}
DUAL = [loss for loss in LOSSES if INTERVALS.get(loss)]


def test_the_table_has_every_loss():
    assert set(INTERVALS) == set(LOSSES) == set(naive.VALUE) == set(naive.SLOPE) == set(naive.CURVATURE)


@pytest.mark.parametrize("loss", LOSSES)
def test_value_slope_and_curvature(loss):
    code, rng, h, far = LOSSES[loss], np.random.default_rng(0), 1e-6, 0
    for m, t in zip(rng.uniform(-4, 4, 100), rng.uniform(-3, 3, 100), strict=True):
        assert losses.loss_value(code, m, t, TUBE) == pytest.approx(naive.VALUE[loss](m, t, TUBE), rel=1e-12, abs=1e-15)
        if min(abs(m - 1), abs(abs(t - m) - TUBE)) < 1e-3:
            continue
        slope = (naive.VALUE[loss](m + h, t, TUBE) - naive.VALUE[loss](m - h, t, TUBE)) / (2 * h)
        assert losses.slope(code, m, t, TUBE) == pytest.approx(slope, rel=1e-6, abs=1e-8)
        bend = (losses.slope(code, m + h, t, TUBE) - losses.slope(code, m - h, t, TUBE)) / (2 * h)
        assert losses.curvature(code, m, t, TUBE) == pytest.approx(bend, rel=1e-6, abs=1e-8)
        far += slope != 0
    assert far > 30


def inside(loss, c, rng):
    low, high = (max(min(end, 3.0), -3.0) for end in INTERVALS[loss](c))
    return rng.uniform(low + 0.02 * c, high - 0.02 * c)


@pytest.mark.parametrize("loss", DUAL)
def test_the_dual_term_is_minus_the_conjugate_and_the_best_step_its_maximum(loss):
    """Fenchel and Young:  -C loss*(-a / C) = min over m of  C loss(m) + a m."""
    code, rng = LOSSES[loss], np.random.default_rng(1)
    for _ in range(30):
        c, t, q, m = rng.uniform(0.3, 2), rng.uniform(-2, 2), rng.uniform(0.2, 3), rng.uniform(-3, 3)
        a = inside(loss, c, rng)
        exact = {"method": "bounded", "options": {"xatol": 1e-11, "maxiter": 2000}}
        found = minimize_scalar(
            lambda x, a=a, c=c, t=t: c * naive.VALUE[loss](x, t, TUBE) + a * x, bounds=(-40, 40), **exact
        )
        assert losses.dual_value(code, a, c, t, TUBE) == pytest.approx(found.fun, rel=1e-6, abs=1e-6)
        low, high = (max(min(end, 40.0), -40.0) for end in INTERVALS[loss](c))
        assert min(losses.dual_upper(code, c), 40.0) == high
        best = losses.best_dual(code, a, m, q, c, t, TUBE)
        assert low <= best <= high

        def value(b, a=a, c=c, t=t, q=q, m=m):
            return -losses.dual_value(code, b, c, t, TUBE) + 0.5 * q * (b - a) ** 2 + m * (b - a)

        least = minimize_scalar(value, bounds=(low, high), **exact)
        assert value(best) <= least.fun + 1e-9 and best == pytest.approx(least.x, abs=1e-4)


@pytest.mark.parametrize("loss", DUAL)
def test_freedom_is_minus_the_way_of_the_margin_until_the_row_moves_again(loss):
    """At an end of the interval, or where the tube holds it at 0; 0 anywhere else."""
    code, rng, c, stuck = LOSSES[loss], np.random.default_rng(2), 0.8, 0

    def moves(a, m, t):
        return losses.best_dual(code, a, m, 1.0, c, t, TUBE) != a

    for a in {0.0, *(end for end in INTERVALS[loss](c) if np.isfinite(end)), 0.5 * c}:
        for m, t in zip(rng.uniform(-3, 3, 40), rng.uniform(-2, 2, 40), strict=True):
            way = -losses.freedom(code, a, m, c, t, TUBE)
            assert way >= 0 and (way == 0) >= moves(a, m, t)
            if way > 1e-3 and loss != "logistic":
                stuck += 1
                assert not any(moves(a, m + 0.999 * way * sign, t) for sign in (-1, 1))
                assert any(moves(a, m + 1.001 * way * sign, t) for sign in (-1, 1))
    assert stuck > 3 or loss == "logistic"
