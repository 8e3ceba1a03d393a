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


@pytest.mark.parametrize("loss", LOSSES)
def test_the_highest_loss_is_that_at_the_worse_end_of_what_a_margin_may_be(loss):
    code, rng = LOSSES[loss], np.random.default_rng(3)
    for m, t, slack in zip(rng.uniform(-4, 4, 50), rng.uniform(-3, 3, 50), rng.uniform(0, 0.5, 50), strict=True):
        ends = [naive.VALUE[loss](m + way * slack, t, TUBE) for way in (-1, 1)]
        assert losses.highest_loss(code, m, slack, t, TUBE) == pytest.approx(max(ends), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("loss", ["squared_hinge", "squared", "epsilon_insensitive"])
def test_a_rate_goes_no_further_than_to_the_least_loss_of_the_row(loss):
    code, rng, cut = LOSSES[loss], np.random.default_rng(4), 0
    for _ in range(60):
        rate, q, m, t = rng.uniform(0.01, 2), rng.uniform(0.2, 3), rng.uniform(-3, 0.5), rng.uniform(-2, 2)
        value, slope = naive.VALUE[loss](m, t, TUBE), naive.SLOPE[loss](m, t, TUBE)
        if value == 0:
            continue
        found = losses.rate_within(code, rate, q, value)
        far = value / q if loss == "epsilon_insensitive" else 1 / (naive.CURVATURE[loss](m, t, TUBE) * q)
        assert found == pytest.approx(min(rate, far), rel=1e-12)
        cut += found < rate
        if found < rate:
            assert naive.VALUE[loss](m - found * slope * q, t, TUBE) == pytest.approx(0.0, abs=1e-12)
    assert 5 < cut < 55
    assert losses.rate_within(LOSSES["logistic"], 7.0, 9.0, 1.0) == 7.0


def test_a_gradient_is_cut_to_the_longest_that_float32_can_add_up():
    longest = losses.LONGEST
    assert losses.slope_within(-3.0, 4.0) == -3.0
    assert losses.slope_within(longest / 2, 4.0) == longest / 2
    assert losses.slope_within(-longest, 4.0) == -longest / 2
    assert losses.slope_within(longest, 4.0) == longest / 2


@pytest.mark.parametrize("loss", DUAL)
def test_a_row_s_gap_is_what_its_loss_and_its_dual_term_lack(loss):
    """Of the logistic loss nearly: near the optimum its bound of the second order, here at most four times as much."""
    code, rng = LOSSES[loss], np.random.default_rng(5)
    for _ in range(60):
        c, t, m = rng.uniform(0.3, 2), rng.uniform(-2, 2), rng.uniform(-3, 3)
        a = inside(loss, c, rng)
        exact = c * naive.VALUE[loss](m, t, TUBE) - losses.dual_value(code, a, c, t, TUBE) + a * m
        found = losses.row_gap(code, a, m, c, t, TUBE)
        assert exact >= -1e-12
        if loss == "logistic":
            assert exact <= found + 1e-12 and found <= 4 * exact + 1e-12
        else:
            assert found == pytest.approx(exact, rel=1e-12, abs=1e-12)
    if loss == "logistic":  # the second order itself: (p - q)^2 / (q (1 - q)), where logarithms would cancel
        q = 1 / (1 + np.exp(0.4))
        assert losses.row_gap(code, 2 * (q + 1e-7), 0.4, 2.0, 1.0, 0.0) == pytest.approx(2e-14 / (q - q * q), rel=1e-6)


def test_a_logistic_row_far_from_its_best_point_finds_it_within_its_steps():
    """The root of u + m + q (c sigma(u) - a), which is monotone: bisection finds it too."""
    rng = np.random.default_rng(6)
    for _ in range(60):
        c, q, m = 10 ** rng.uniform(-3, 6), 10 ** rng.uniform(-3, 4), rng.uniform(-50, 50)
        a = c * rng.choice([0.0, 1e-9, 0.3, 1 - 1e-9])
        low, high = -1e12, 1e12
        for _ in range(200):
            u = 0.5 * (low + high)
            low, high = (low, u) if u + m + q * (c * losses.sigmoid(u) - a) > 0 else (u, high)
        assert losses.logit_root(a, m, q, c) == pytest.approx(losses.sigmoid(u), rel=1e-4)


def test_the_entropy_of_certainty_is_nothing():
    assert losses.entropy(0.0) == losses.entropy(1.0) == losses.entropy(-0.5) == losses.entropy(1.5) == 0.0
    assert losses.entropy(0.5) == pytest.approx(np.log(2)) and losses.entropy(0.1) == pytest.approx(0.3250829733914482)
