"""Gradient methods: lazily regularised steps against naive dense loops, slopes against differences, bounds of the papers,
averages, mixing."""

import json

import numpy as np
import pytest
import scipy.optimize
from making import Case, block_of, dense, learn, mix, random_rows, run_python

from bigclf.losses import GRADIENT, LOSSES, REGRESSION, curvature, loss_value, slope
from bigclf.methods import METHODS, resolve
from bigclf.training import fit

FAMILY = [name for name, method in METHODS.items() if "squared" in method.losses or name == "pegasos"]
D = 12


# Losses


@pytest.mark.parametrize("loss", GRADIENT)
def test_slopes_are_the_derivatives_of_the_values_and_curvatures_of_the_slopes(loss):
    code, rng, h = LOSSES[loss], np.random.default_rng(0), 1e-6
    for m, t in zip(rng.uniform(-5, 5, 200), rng.uniform(-4, 4, 200), strict=True):
        corner = min(abs(m - 1), abs(abs(t - m) - 0.5))
        if corner < 1e-3:
            continue
        difference = (loss_value(code, m + h, t, 0.5) - loss_value(code, m - h, t, 0.5)) / (2 * h)
        assert slope(code, m, t, 0.5) == pytest.approx(difference, rel=1e-6, abs=1e-8)
        difference = (slope(code, m + h, t, 0.5) - slope(code, m - h, t, 0.5)) / (2 * h)
        assert curvature(code, m, t, 0.5) == pytest.approx(difference, rel=1e-6, abs=1e-8)


def test_at_a_corner_the_slope_is_that_of_no_loss():
    assert slope(LOSSES["hinge"], 1.0, 1.0, 0.0) == slope(LOSSES["epsilon_insensitive"], 0.5, 1.0, 0.5) == 0
    assert slope(LOSSES["logistic"], -1e4, 1.0, 0.0) == -1 and slope(LOSSES["logistic"], 1e4, 1.0, 0.0) == 0


# Each method as a naive loop over dense rows. A row is (x with the constant feature, label, weight); ``held`` is 0 for a
# weight that is not regularised, else 1.


def truncate(w, by):
    return np.sign(w) * np.maximum(0, np.abs(w) - by)


def judged(loss, w, x, y, e):
    """(sign, slope): of the margin, or of the prediction."""
    sign = 1.0 if loss in REGRESSION else y
    return sign, slope(LOSSES[loss], sign * (w @ x), y, e)


def limited(loss, rate, x):
    """The rate at which the row's own loss is least, where it would be passed."""
    bend = {"squared_hinge": 2.0, "squared": 1.0}.get(loss, 0.0)
    return min(rate, 1 / (bend * (x @ x))) if bend * (x @ x) > 0 else rate


def naive_sgd(rows, loss, held, penalty, lam, eta0, epsilon=0.0, start=0, averaged=False):
    w, total, n = np.zeros(held.size), np.zeros(held.size), 0
    for t, (x, y, c) in enumerate(rows, 1):
        eta = eta0 / (1 + lam * eta0 * t)
        sign, g = judged(loss, w, x, y, epsilon)
        step = -limited(loss, c * eta, x) * g * sign * x
        w = (1 - eta * lam * held) * w + step if penalty == "l2" else truncate(w + step, eta * lam * held)
        if averaged and t > start:
            total, n = total + w, n + 1
        yield total / n if n else w


def naive_asgd(rows, loss, held, penalty, **params):
    return naive_sgd(rows, loss, held, "l2", averaged=True, **params)


def naive_pegasos(rows, loss, held, penalty, lam, batch, projection, epsilon=0.0):
    w = np.zeros(held.size)
    for t, first in enumerate(range(0, len(rows), batch), 1):
        some = rows[first : first + batch]
        step = np.zeros(held.size)
        for x, y, c in some:
            sign, g = judged(loss, w, x, y, epsilon)
            step -= c * g * sign * x / len(some)
        w = (1 - 1 / t) * w + step / (lam * t)
        if projection == "on" and lam * (w @ w) > 1:
            w = w / np.sqrt(lam * (w @ w))
        for _ in some:
            yield w


def naive_adagrad(rows, loss, held, penalty, lam, eta, delta, epsilon=0.0):
    w, squares = np.zeros(held.size), np.zeros(held.size)
    for x, y, c in rows:
        sign, slant = judged(loss, w, x, y, epsilon)
        g = c * slant * sign * x
        squares = squares + g**2
        h = delta + np.sqrt(squares)
        rate = eta * lam * held / h
        w = w - eta * g / h
        w = w / (1 + rate) if penalty == "l2" else truncate(w, rate)
        yield w


def naive_adagrad_rda(rows, loss, held, penalty, lam, eta, delta, epsilon=0.0):
    w, sums, squares = (np.zeros(held.size) for _ in range(3))
    for t, (x, y, c) in enumerate(rows, 1):
        sign, slant = judged(loss, w, x, y, epsilon)
        g = c * slant * sign * x
        sums, squares = sums + g, squares + g**2
        h = delta + np.sqrt(squares)
        dues = lam * t * held
        w = -eta * sums / (h + eta * dues) if penalty == "l2" else -eta / h * truncate(sums, dues)
        yield w


def naive_sgd_newton(rows, loss, held, penalty, lam, eta0):
    w, d = np.zeros(held.size), np.full(held.size, 1 / eta0)
    for x, y, c in rows:
        d = d + lam * held
        w = (1 - lam * held / d) * w
        sign, slant = judged(loss, w, x, y, 0.0)
        bend = c * curvature(LOSSES[loss], sign * (w @ x), y, 0.0)
        if slant != 0:
            w = w - c * slant * sign * np.linalg.solve(np.diag(d) + bend * np.outer(x, x), x)
            d = d + bend * x**2
        yield w


def naive_ftrl(rows, loss, held, penalty, alpha, beta, l1, l2, epsilon=0.0):
    z, n = np.zeros(held.size), np.zeros(held.size)
    w = np.zeros(held.size)
    for x, y, c in rows:
        sign, slant = judged(loss, w, x, y, epsilon)
        g = c * slant * sign * x
        sigma = (np.sqrt(n + g**2) - np.sqrt(n)) / alpha
        z, n = z + g - sigma * w, n + g**2
        w = -truncate(z, l1 * held) / ((beta + np.sqrt(n)) / alpha + l2 * held)
        yield w


NAIVE = {name.removeprefix("naive_"): function for name, function in globals().items() if name.startswith("naive_")}
GIVEN = {  # strong penalties, so that what is lazy matters
    "sgd": dict(lam=0.05, eta0=0.3),
    "asgd": dict(lam=0.05, eta0=0.3, start=20),
    "pegasos": dict(lam=0.05, batch=1, projection="on"),
    "adagrad": dict(lam=0.02, eta=0.2, delta=0.1),
    "adagrad_rda": dict(lam=0.02, eta=0.2, delta=0.1),
    "sgd_newton": dict(lam=0.05, eta0=0.5),
    "ftrl": dict(alpha=0.3, beta=0.5, l1=0.1, l2=0.2),
}


def some_rows(loss, seed=0):
    x, y = random_rows(90, D, 0.25, seed=seed, real=loss in REGRESSION, noise=0.5)
    return block_of(x, y, np.random.default_rng(seed).choice([0.5, 1.0, 2.0], 90))


def difference_to_naive(name, loss, penalty, bias, given):
    """Largest difference of the weights, at five moments of 90 steps in three blocks' calls, before and after
    ``finish``."""
    block = some_rows(loss)
    given = given | ({"epsilon": 0.3} if loss == "epsilon_insensitive" else {})
    setting = resolve(name, loss, penalty, bias, given)
    held = np.ones(D + 1)
    held[-1] = bias != "free"
    x = np.hstack([dense(block, D), np.full((90, 1), 0.0 if bias is None else 1.0)])
    expected = [*NAIVE[name](list(zip(x, block.labels, block.weights, strict=True)), loss, held, penalty, **given)]
    state, kernel, params, scores = setting.shared(D, "float64"), setting.kernel(), setting.params(), np.zeros(90)
    worst, first = 0.0, 0
    for last in (20, 45, 60, 90):  # multiples of the mini-batch
        kernel(block, np.arange(first, last), state, (), params, scores)
        worst = max(worst, np.abs(setting.weights(state) - expected[last - 1]).max())
        if last != 20 and setting.method.finish:
            setting.method.finish(state, params)
            worst = max(worst, np.abs(setting.weights(state) - expected[last - 1]).max())
        first = last
    assert np.abs(expected[-1]).max() > 0.05
    return worst


def differences():
    """{what: difference} for each method, loss, penalty and bias."""
    found = {}
    for name in FAMILY:
        method = METHODS[name]
        for loss in method.losses:
            for penalty in method.penalties:
                for bias in method.bias:
                    options = [GIVEN[name]]
                    if name == "pegasos":
                        options += [dict(lam=0.05, batch=5, projection="off"), dict(lam=0.5, batch=5, projection="on")]
                    for number, given in enumerate(options):
                        own = None if bias == "none" else bias
                        key = f"{name} {loss} {penalty} {bias} {number}"
                        found[key] = difference_to_naive(name, loss, penalty, own, given)
    return found


INTERPRETED = """
import json, test_gradient
print(json.dumps(test_gradient.differences()))
"""


def test_every_method_equals_a_naive_dense_loop_with_every_loss_penalty_and_bias():
    """In the interpreter: that compiled code computes the same is a law of its own."""
    found = json.loads(run_python(INTERPRETED, NUMBA_DISABLE_JIT="1"))
    assert len(found) == 147
    assert {name: d for name, d in found.items() if not d <= 1e-10} == {}


@pytest.mark.parametrize("name", FAMILY)
def test_compiled_code_does_too(name):
    method = METHODS[name]
    for penalty in method.penalties:
        for bias in ("feature", method.bias[-1]):
            own = None if bias == "none" else bias
            assert difference_to_naive(name, method.losses[0], penalty, own, GIVEN[name]) <= 1e-10
