"""exp and log1p written out: how exact they are, and that a loop over them gives what single calls give."""

import numpy as np

from bigclf.compiled.exponentials import LOWEST, exp_below, log1p_within
from bigclf.compiled.jit import kernel


@kernel
def both(u, e, logs):
    for k in range(u.size):
        e[k] = exp_below(u[k])
        logs[k] = log1p_within(e[k])


def computed(u):
    e, logs = np.empty_like(u), np.empty_like(u)
    both(u, e, logs)
    return e, logs


def test_they_are_within_two_units_of_the_last_place():
    random = np.random.default_rng(0)
    u = -np.concatenate([50 * random.random(50_000), np.linspace(0, -LOWEST, 20_001), np.logspace(-300, 2, 20_000)])
    e, logs = computed(u)
    np.testing.assert_allclose(e, np.exp(u.astype(np.longdouble)).astype(float), rtol=4.5e-16)
    np.testing.assert_allclose(logs, np.log1p(e.astype(np.longdouble)).astype(float), rtol=4.5e-16)


def test_ends_of_the_range():
    e, logs = computed(np.array([0.0, -0.0, LOWEST - 1, -np.inf, np.nan]))
    np.testing.assert_array_equal(e, [1.0, 1.0, 0.0, 0.0, np.nan])
    np.testing.assert_allclose(logs, [np.log(2), np.log(2), 0.0, 0.0, np.nan])


def test_a_number_has_the_same_bits_wherever_it_stands_in_a_loop():
    u = -40 * np.random.default_rng(1).random(37)
    e, logs = computed(u)
    for k in range(u.size):
        alone = computed(u[k : k + 1])
        assert (alone[0][0], alone[1][0]) == (e[k], logs[k])
