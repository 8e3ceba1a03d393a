"""The p-norm perceptron: its bound, p = 2, and the link function at sizes whose powers overflow."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from making import Case, block_of, dense, learn, random_rows, separable_rows

from bigclf.api.fit import fit
from bigclf.methods.online.p_norm_perceptron import link

PNORM, PERCEPTRON = Case("pnorm_perceptron", None), Case("perceptron", None)


def norm(x, p):
    """||x||_p of vectors along the last axis, from the definition."""
    return (np.abs(x) ** p).sum(axis=-1) ** (1 / p)


def test_mistakes_over_all_epochs_stay_below_the_bound():
    """(p-1) max ||x||_p^2 ||u||_q^2 / gamma^2 (Gentile 2003) on 50 sets, p = 2, 4 and 2 ln n."""
    for seed in range(50):
        n = 3 + seed % 9
        x, y, u, gamma = separable_rows(n_rows=20 + seed, n_features=n, seed=seed)
        for p in (2, 4, max(2, 2 * math.log(n))):
            state, total, mistakes = PNORM.state(n, 0), 0, 1
            while mistakes:  # until a pass has none
                mistakes = learn(PNORM, block_of(sp.csr_matrix(x), y), n, None, state, p=p)[2].mistakes
                total += mistakes
            bound = (p - 1) * norm(x.astype(float), p).max() ** 2 * norm(u, p / (p - 1)) ** 2 / gamma**2
            assert 0 < total <= bound


@pytest.mark.parametrize("bias", [None, "feature"])
def test_with_p_2_it_is_the_perceptron_to_the_bit(bias):
    x, y = random_rows(200, 30, noise=0.5)
    block = block_of(x, y, np.random.default_rng(0).choice([0.5, 1.0, 3.0], 200))
    shared, _, counts, _ = learn(PNORM, block, 30, bias=bias, p=2)
    expected, _, others, _ = learn(PERCEPTRON, block, 30, bias=bias)
    np.testing.assert_array_equal(PNORM.weights(shared, bias, p=2), expected.weights)
    assert counts[:3] == others[:3] and counts.mistakes > 20


@pytest.mark.parametrize("p", [2.5, 4.0, 9.0])
@pytest.mark.parametrize("bias", [None, "feature"])
def test_the_steps_are_those_of_the_weights_written_out(p, bias):
    for seed in range(10):
        x, y = random_rows(100, 15, seed=seed, noise=0.5, constant=seed % 2 == 0)
        block = block_of(x, y)
        shared, _, counts, _ = learn(PNORM, block, 15, bias=bias, p=p)
        theta, mistakes = np.zeros(16), 0
        for row, label in zip(
            np.hstack([dense(block, 15), np.full((100, 1), float(bias is not None))]), y, strict=True
        ):
            w = np.sign(theta) * np.abs(theta) ** (p - 1) / (norm(theta, p) ** (p - 2) if theta.any() else 1)
            if label * (w @ row) <= 0:
                theta, mistakes = theta + label * row, mistakes + 1
        assert counts.mistakes == counts.updates == mistakes > 10
        np.testing.assert_allclose(shared.weights, theta, rtol=0, atol=1e-12)
        w = np.sign(theta) * np.abs(theta) ** (p - 1) / norm(theta, p) ** (p - 2)
        np.testing.assert_allclose(PNORM.weights(shared, bias, p=p), w, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e18])
@pytest.mark.parametrize("p", [2, 3, 2 * math.log(1e6), 1e6])
def test_the_link_function_of_q_leads_back_and_nothing_overflows(size, p):
    w = size * np.random.default_rng(0).choice([-1.0, 1.0], 50) * np.linspace(0.9, 1, 50)
    w[7] = 0
    theta = link(w, p / (p - 1))
    assert np.isfinite(theta).all() and theta[7] == 0
    np.testing.assert_allclose(link(theta, p), w, rtol=1e-6 if p > 1e3 else 1e-9)
    assert not link(np.zeros(4), p).any()
    q = p / (p - 1)  # ||g(theta)||_q = ||theta||_p
    lengths = [np.abs(v).max() * norm(v / np.abs(v).max(), r) for v, r in ((w, q), (theta, p))]
    np.testing.assert_allclose(*lengths, rtol=1e-6)


def test_rows_of_any_size_leave_finite_numbers():
    x = sp.csr_matrix(np.array([[1e18, 0, 1], [0, 0, 0], [1e-18, 1, 0], [-1e18, 1e18, 1], [1e18, 1e18, 0]], np.float32))
    y, state = np.array([1, -1, 1, 1, -1]), PNORM.state(3, 5)
    for epoch in range(60):
        learn(PNORM, block_of(x, y if epoch % 3 else -y), 3, None, state, bias="feature", p=40)
        assert np.isfinite(state[0].weights).all() and np.isfinite(PNORM.weights(state[0], p=40)).all()


def test_it_goes_on_from_the_weights_of_a_model():
    x, y = random_rows(200, 30)
    first = fit(x, y, algo="pnorm_perceptron", p=5, epochs=3, progress=False)
    shared = PNORM.state(30, 0)[0]
    weights = np.append(first.coef_[0], first.intercept_)
    PNORM.method.form.place(shared, weights, PNORM.params("feature", p=5))
    np.testing.assert_allclose(PNORM.weights(shared, "feature", p=5), weights, rtol=1e-9)
