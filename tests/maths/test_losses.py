"""Laws of every loss's record: value, slope, curvature, conjugate, best step, interval, freedom and bounds, against
scipy and finite differences."""

from types import FunctionType

import naive
import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from bigclf.maths import losses
from bigclf.maths.losses import plain
from bigclf.methods import METHODS


def interpreted(records):
    """The same records of Python functions, which call each other: compiled alone each would take a second."""
    scope = dict(vars(losses))
    scope |= {name: FunctionType(one.py_func.__code__, scope) for name, one in scope.items() if hasattr(one, "py_func")}

    def as_python(value):
        if isinstance(value, losses.Dual):
            return type(value)(*map(as_python, value))
        return scope[value.py_func.__name__] if hasattr(value, "py_func") else value

    return {name: type(record)(*map(as_python, record)) for name, record in records.items()}


TUBE = 0.3
LOSSES = interpreted(losses.LOSSES)
# of the dual: the interval of alpha at C = c; None where a loss has no dual here
INTERVALS = {
    "hinge": lambda c: (0, c),
    "squared_hinge": lambda c: (0, np.inf),
    "logistic": lambda c: (0, c),
    "epsilon_insensitive": lambda c: (-c, c),
    "squared_epsilon_insensitive": lambda c: (-np.inf, np.inf),
    "squared": lambda c: (-np.inf, np.inf),
}
DUAL = [loss for loss in LOSSES if INTERVALS[loss]]


def test_the_table_has_every_loss():
    assert set(INTERVALS) == set(LOSSES) == set(naive.VALUE) == set(naive.SLOPE) == set(naive.CURVATURE)


def test_a_loss_without_one_of_its_functions_cannot_be_made():
    for record in (*LOSSES.values(), LOSSES["hinge"].dual):
        for name in record._fields:
            with pytest.raises(TypeError, match=f"missing 1 required positional argument: '{name}'"):
                type(record)(**{field: value for field, value in record._asdict().items() if field != name})
        assert {name for name, value in record._asdict().items() if value is None} <= {"dual", "rate_within"}


def test_lists_of_losses_follow_from_their_records():
    """In the order in which people see them."""
    assert losses.TUBES == ("epsilon_insensitive", "squared_epsilon_insensitive")
    assert (*losses.TUBES, "squared") == losses.REGRESSION and losses.BOXED == ("hinge", "epsilon_insensitive")
    assert losses.having(losses.is_dual) == tuple(DUAL)
    assert METHODS["dcd"].losses == tuple(loss for loss in DUAL if loss != "squared")
    assert METHODS["newton"].losses == ("logistic", "squared_hinge", "squared_epsilon_insensitive", "squared")
    assert METHODS["cdn"].losses == ("logistic", "squared_hinge", "squared")
    assert METHODS["sgd"].losses == ("hinge", "squared_hinge", "logistic", "squared", "epsilon_insensitive")
    assert METHODS["pegasos"].losses == ("hinge", "logistic", "epsilon_insensitive")


@pytest.mark.parametrize("loss", LOSSES)
def test_no_slope_is_steeper_and_none_bends_more_than_the_record_says(loss):
    has, h = LOSSES[loss], 1e-4
    m = np.concatenate([np.linspace(-40, 40, 4001), np.linspace(-1e6, 1e6, 20)])
    slopes = np.array([has.slope(x, 0.1, TUBE) for x in m])
    bends = [(has.slope(x + h, 0.1, TUBE) - has.slope(x - h, 0.1, TUBE)) / (2 * h) for x in m[:4001]]
    if np.isfinite(has.steepest):
        assert np.abs(slopes).max() == pytest.approx(has.steepest, rel=1e-9)
    else:
        assert np.abs(slopes).max() > 1e5
    if np.isfinite(has.most_curved):
        assert np.max(bends) == pytest.approx(has.most_curved, rel=1e-4)
    else:
        assert np.max(bends) > 1e3


@pytest.mark.parametrize("loss", LOSSES)
def test_value_slope_and_curvature(loss):
    has, rng, h, far = LOSSES[loss], np.random.default_rng(0), 1e-6, 0
    for m, t in zip(rng.uniform(-4, 4, 100), rng.uniform(-3, 3, 100), strict=True):
        assert has.value(m, t, TUBE) == pytest.approx(naive.VALUE[loss](m, t, TUBE), rel=1e-12, abs=1e-15)
        if min(abs(m - 1), abs(abs(t - m) - TUBE)) < 1e-3:
            continue
        slope = (naive.VALUE[loss](m + h, t, TUBE) - naive.VALUE[loss](m - h, t, TUBE)) / (2 * h)
        assert has.slope(m, t, TUBE) == pytest.approx(slope, rel=1e-6, abs=1e-8)
        bend = (has.slope(m + h, t, TUBE) - has.slope(m - h, t, TUBE)) / (2 * h)
        assert has.curvature(m, t, TUBE) == pytest.approx(bend, rel=1e-6, abs=1e-8)
        far += slope != 0
    assert far > 30


def inside(loss, c, rng):
    low, high = (max(min(end, 3.0), -3.0) for end in INTERVALS[loss](c))
    return rng.uniform(low + 0.02 * c, high - 0.02 * c)


@pytest.mark.parametrize("loss", DUAL)
def test_the_dual_term_is_minus_the_conjugate_and_the_best_step_its_maximum(loss):
    """Fenchel and Young:  -C loss*(-a / C) = min over m of  C loss(m) + a m."""
    has, rng = LOSSES[loss].dual, np.random.default_rng(1)
    for _ in range(30):
        c, t, q, m = rng.uniform(0.3, 2), rng.uniform(-2, 2), rng.uniform(0.2, 3), rng.uniform(-3, 3)
        a = inside(loss, c, rng)
        exact = {"method": "bounded", "options": {"xatol": 1e-11, "maxiter": 2000}}
        found = minimize_scalar(
            lambda x, a=a, c=c, t=t: c * naive.VALUE[loss](x, t, TUBE) + a * x, bounds=(-40, 40), **exact
        )
        assert has.value(a, c, t, TUBE) == pytest.approx(found.fun, rel=1e-6, abs=1e-6)
        low, high = (max(min(end, 40.0), -40.0) for end in INTERVALS[loss](c))
        assert (max(has.lower(c), -40.0), min(has.upper(c), 40.0)) == (low, high)
        best = has.best(a, m, q, c, t, TUBE)
        assert low <= best <= high

        def value(b, a=a, c=c, t=t, q=q, m=m):
            return -has.value(b, c, t, TUBE) + 0.5 * q * (b - a) ** 2 + m * (b - a)

        least = minimize_scalar(value, bounds=(low, high), **exact)
        assert value(best) <= least.fun + 1e-9 and best == pytest.approx(least.x, abs=1e-4)


@pytest.mark.parametrize("loss", DUAL)
def test_a_parabolic_dual_has_the_slope_and_the_curvature_that_conjugate_gradients_reckon_with(loss):
    has, rng = LOSSES[loss].dual, np.random.default_rng(7)
    for _ in range(30):
        c, t = rng.uniform(0.3, 2), rng.uniform(-2, 2)
        a = inside(loss, c, rng)
        slope = t - TUBE * LOSSES[loss].tube * np.sign(a) if LOSSES[loss].regression else 1.0
        parabola = slope * a - 0.5 * has.diagonal(c) * a * a
        assert has.diagonal(c) == pytest.approx(has.diagonal(1.0) / c)
        assert (has.value(a, c, t, TUBE) == pytest.approx(parabola, rel=1e-12, abs=1e-12)) == has.parabolic
    assert has.open == np.isinf(INTERVALS[loss](1.0)[1]) and has.boxed == (loss in losses.BOXED)


@pytest.mark.parametrize("loss", DUAL)
def test_dual_variables_that_are_all_shrunk_have_terms_of_at_least_the_bound(loss):
    """Its sums, of C loss, a m and C odds, are all that Newton's method knows of the rows of a side."""
    has, rng = LOSSES[loss], np.random.default_rng(8)
    for r in (1e-3, 0.3, 0.9, 0.999):
        sums, exact = np.zeros(3), 0.0
        for m, t in zip(rng.uniform(-3, 3, 40), rng.uniform(-2, 2, 40), strict=True):
            c = rng.uniform(0.3, 2)
            a = -c * has.slope(m, t, TUBE)
            exact += has.dual.value(r * a, c, t, TUBE)
            sums += c * has.value(m, t, TUBE), a * m, c * has.dual.odds(m)
        bound = max(has.dual.shrunk(*sums, r), losses.at_least(*sums, r))
        assert bound <= exact + 1e-9
        if np.isfinite(has.most_curved) and r > 0.5:
            assert bound > losses.at_least(*sums, r)
            assert loss == "logistic" or bound == pytest.approx(exact)


@pytest.mark.parametrize("loss", DUAL)
def test_freedom_is_minus_the_way_of_the_margin_until_the_row_moves_again(loss):
    """At an end of the interval, or where the tube holds it at 0; 0 anywhere else."""
    has, rng, c, stuck = LOSSES[loss].dual, np.random.default_rng(2), 0.8, 0

    def moves(a, m, t):
        return has.best(a, m, 1.0, c, t, TUBE) != a

    for a in {0.0, *(end for end in INTERVALS[loss](c) if np.isfinite(end)), 0.5 * c}:
        for m, t in zip(rng.uniform(-3, 3, 40), rng.uniform(-2, 2, 40), strict=True):
            way = -has.freedom(a, m, c, t, TUBE)
            assert way >= 0 and (way == 0) >= moves(a, m, t)
            if way > 1e-3 and loss not in ("logistic", "squared"):
                stuck += 1
                assert not any(moves(a, m + 0.999 * way * sign, t) for sign in (-1, 1))
                assert any(moves(a, m + 1.001 * way * sign, t) for sign in (-1, 1))
    assert stuck > 3 or loss in ("logistic", "squared")


@pytest.mark.parametrize("loss", LOSSES)
def test_the_highest_loss_is_that_at_the_worse_end_of_what_a_margin_may_be(loss):
    has, rng = LOSSES[loss], np.random.default_rng(3)
    for m, t, slack in zip(rng.uniform(-4, 4, 50), rng.uniform(-3, 3, 50), rng.uniform(0, 0.5, 50), strict=True):
        ends = [naive.VALUE[loss](m + way * slack, t, TUBE) for way in (-1, 1)]
        assert has.highest(m, slack, t, TUBE) == pytest.approx(max(ends), rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("loss", ["squared_hinge", "squared", "epsilon_insensitive"])
def test_a_rate_goes_no_further_than_to_the_least_loss_of_the_row(loss):
    has, rng, cut = LOSSES[loss], np.random.default_rng(4), 0
    for _ in range(60):
        rate, q, m, t = rng.uniform(0.01, 2), rng.uniform(0.2, 3), rng.uniform(-3, 0.5), rng.uniform(-2, 2)
        value, slope = naive.VALUE[loss](m, t, TUBE), naive.SLOPE[loss](m, t, TUBE)
        if value == 0:
            continue
        found = has.rate_within(rate, q, value)
        far = value / q if loss == "epsilon_insensitive" else 1 / (naive.CURVATURE[loss](m, t, TUBE) * q)
        assert found == pytest.approx(min(rate, far), rel=1e-12)
        cut += found < rate
        if found < rate:
            assert naive.VALUE[loss](m - found * slope * q, t, TUBE) == pytest.approx(0.0, abs=1e-12)
    assert 5 < cut < 55
    assert LOSSES["logistic"].rate_within(7.0, 9.0, 1.0) == 7.0


def test_a_gradient_is_cut_to_the_longest_that_float32_can_add_up():
    longest = losses.LONGEST
    assert losses.slope_within(-3.0, 4.0) == -3.0
    assert losses.slope_within(longest / 2, 4.0) == longest / 2
    assert losses.slope_within(-longest, 4.0) == -longest / 2
    assert losses.slope_within(longest, 4.0) == longest / 2


@pytest.mark.parametrize("loss", DUAL)
def test_a_row_s_gap_is_what_its_loss_and_its_dual_term_lack(loss):
    """Of the logistic loss nearly: near the optimum its bound of the second order, here at most four times as much."""
    has, rng = LOSSES[loss].dual, np.random.default_rng(5)
    for _ in range(60):
        c, t, m = rng.uniform(0.3, 2), rng.uniform(-2, 2), rng.uniform(-3, 3)
        a = inside(loss, c, rng)
        exact = c * naive.VALUE[loss](m, t, TUBE) - has.value(a, c, t, TUBE) + a * m
        found = has.gap(a, m, c, t, TUBE)
        assert exact >= -1e-12
        if loss == "logistic":
            assert exact <= found + 1e-12 and found <= 4 * exact + 1e-12
        else:
            assert found == pytest.approx(exact, rel=1e-12, abs=1e-12)
    if loss == "logistic":  # the second order itself: (p - q)^2 / (q (1 - q)), where logarithms would cancel
        q = 1 / (1 + np.exp(0.4))
        assert has.gap(2 * (q + 1e-7), 0.4, 2.0, 1.0, 0.0) == pytest.approx(2e-14 / (q - q * q), rel=1e-6)


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
        assert plain(losses.logit_root)(a, m, q, c) == pytest.approx(losses.sigmoid(u), rel=1e-4)


def test_the_entropy_of_certainty_is_nothing():
    assert losses.entropy(0.0) == losses.entropy(1.0) == losses.entropy(-0.5) == losses.entropy(1.5) == 0.0
    assert losses.entropy(0.5) == pytest.approx(np.log(2)) and losses.entropy(0.1) == pytest.approx(0.3250829733914482)
