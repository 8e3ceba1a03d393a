"""The perceptron's mistake bound (Block, Novikoff 1962), and the average against one that is computed step by step."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from making import Case, block_of, dense, learn, mix, random_rows, separable_rows

from bigclf.api.fit import fit
from bigclf.maths.mixing import AVERAGED as AVERAGED_RULE

PERCEPTRON, AVERAGED = Case("perceptron", None), Case("averaged_perceptron", None)


def bound(x, y, u):
    """floor(R^2 / gamma^2) for the unit vector u."""
    margins = y * (x @ u)
    assert abs(np.linalg.norm(u) - 1) < 1e-9 and margins.min() > 0
    return math.floor((x * x).sum(axis=1).max() / margins.min() ** 2)


@pytest.mark.parametrize("algo", ["perceptron", "averaged_perceptron"])
@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.long) for part in (2, 3, 4))])
def test_mistakes_over_all_epochs_stay_below_the_bound_on_separable_sets(algo, part):
    for seed in range(8 * part, 8 * part + 8):
        x, y, u, gamma = separable_rows(n_rows=20 + seed % 40, n_features=2 + seed % 9, seed=seed)
        result = fit(x, y, algo=algo, bias=None, epochs=100, seed=seed, progress=False).result_
        assert gamma > 0 and 0 < result.mistakes <= bound(x.astype(float), y, u)
        assert result.mistakes == sum(record["mistakes"] for record in result.history)
        assert result.progressive["mistakes"] == result.history[0]["mistakes"]
        assert result.history[-1]["mistakes"] == 0  # nothing is left to come


@pytest.mark.parametrize("n", [2, 7, 30])
def test_the_bound_is_reached_by_rows_that_have_nothing_in_common(n):
    """n orthonormal rows: R = 1, and u = sum y_i e_i / sqrt(n) has gamma = 1 / sqrt(n)."""
    y = np.where(np.arange(n) % 2, 1, -1)
    x = sp.eye_array(n, format="csr", dtype=np.float32)
    assert fit(x, y, algo="perceptron", bias=None, epochs=9, progress=False).result_.mistakes == n


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(-3, 3), min_size=3, max_size=3), min_size=1, max_size=12),
    labels=st.lists(st.sampled_from([-1, 1]), min_size=12, max_size=12),
    bias=st.sampled_from([None, "feature"]),
)
def test_the_steps_are_the_textbook_s(rows, labels, bias):
    """Whole numbers, so that every sum is exact: a row with y w.x <= 0 is added, y times."""
    x, y = sp.csr_matrix(np.array(rows, np.float32)), np.array(labels[: len(rows)])
    shared, _, counts, _ = learn(PERCEPTRON, block_of(x, y), 3, bias=bias)
    extended = np.hstack([np.array(rows, float), np.full((len(rows), 1), 1.0 if bias else 0.0)])
    w, mistakes = np.zeros(4), 0
    for row, label in zip(extended, y, strict=True):
        if label * (w @ row) <= 0:
            w, mistakes = w + label * row, mistakes + 1
    np.testing.assert_array_equal(shared.weights, w)
    assert counts.mistakes == counts.updates == mistakes and counts.rows == len(rows)


def naive_average(block, order, x, bias, w=None):
    """(sum over steps of w, last w, steps): w counted after every row, learned from or not."""
    w = np.zeros(x.shape[1] + 1) if w is None else w.copy()
    total = np.zeros_like(w)
    for i in order:
        row = np.append(x[i], bias)
        if block.labels[i] * (w @ row) <= 0:
            w = w + block.weights[i] * block.labels[i] * row
        total += w
    return total, w, len(order)


@pytest.mark.parametrize("bias", [None, "feature"])
@pytest.mark.parametrize("seed", range(4))
def test_the_lazy_average_equals_the_naive_one(bias, seed):
    x, y = random_rows(100, 25, seed=seed)
    rng = np.random.default_rng(seed)
    block = block_of(x, y, rng.choice([0.5, 1.0, 3.0], 100))
    rows, state = dense(block, 25), None
    total, w, steps = np.zeros(26), None, 0
    for _ in range(3):
        order = rng.permutation(100)
        shared, nothing, *_ = learn(AVERAGED, block, 25, order, state, bias=bias)
        state = shared, nothing
        part, w, n = naive_average(block, order, rows, 1.0 if bias else 0.0, w)
        total, steps = total + part, steps + n
    assert shared.steps[0] == steps == 300
    np.testing.assert_allclose(AVERAGED.weights(shared), total / steps, rtol=0, atol=1e-12)
    np.testing.assert_allclose(shared.weights, w, rtol=0, atol=1e-12)
    assert np.abs(AVERAGED.weights(shared) - shared.weights).max() > 0.01


def test_every_epoch_s_average_is_scikit_learn_s():
    from sklearn.linear_model import SGDClassifier

    x, y = random_rows(200, 25, noise=1.0)
    block, order, state = block_of(x, y), np.arange(200), None
    other = SGDClassifier(
        loss="perceptron", learning_rate="constant", eta0=1.0, penalty=None, average=True, shuffle=False,
        fit_intercept=False,
    )  # fmt: skip
    for _ in range(10):
        shared, nothing, *_ = learn(AVERAGED, block, 25, order, state)
        state = shared, nothing
        other.partial_fit(x.astype(float), y, classes=[-1, 1])
        np.testing.assert_allclose(AVERAGED.weights(shared)[:25], other.coef_[0], rtol=0, atol=1e-10)


def test_of_mixed_copies_the_average_is_over_every_step_of_every_copy():
    x, y = random_rows(120, 25)
    block = block_of(x, y)
    rows = dense(block, 25)
    start, *_ = learn(AVERAGED, block, 25, np.arange(0, 30))
    total, w, steps = naive_average(block, range(30), rows, 0.0)
    parts = [np.arange(30, 60), np.arange(60, 120)]
    copies, sums = [], []
    for part in parts:
        copy = type(start)(*(array.copy() for array in start))
        copies.append(learn(AVERAGED, block, 25, part, (copy, ()))[0])
        sums.append(naive_average(block, part, rows, 0.0, w))
    mixed = mix(AVERAGED_RULE, start, copies, (1 / 3, 2 / 3))
    expected = (total + sums[0][0] + sums[1][0]) / (steps + sums[0][2] + sums[1][2])
    assert mixed.steps[0] == 120
    np.testing.assert_allclose(AVERAGED.weights(mixed), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(mixed.weights, sums[0][1] / 3 + 2 * sums[1][1] / 3, rtol=0, atol=1e-12)


def test_a_run_answers_with_the_average():
    x, y = random_rows(100, 25)
    plain = fit(x, y, algo="perceptron", epochs=3, progress=False)
    averaged = fit(x, y, algo="averaged_perceptron", epochs=3, progress=False)
    assert plain.result_.mistakes == averaged.result_.mistakes  # the steps are the same, the answer is not
    assert np.abs(plain.coef_ - averaged.coef_).max() > 0.01


@pytest.mark.data
def test_mistakes_on_mushrooms_stay_below_the_bound(data_set):
    """u and gamma from scikit-learn's hard-margin SVM (C so large that no row lies inside the margin)."""
    from sklearn.datasets import load_svmlight_file
    from sklearn.svm import SVC

    x, y = load_svmlight_file(str(data_set("mushrooms/mushrooms.gz")), dtype=np.float32)
    assert x.shape == (8124, 112)
    signs = np.where(y == y.max(), 1, -1)
    extended = np.hstack([x.toarray().astype(float), np.ones((x.shape[0], 1))])
    machine = SVC(kernel="linear", C=1e6, tol=1e-4).fit(extended, signs)
    u = np.append(machine.coef_[0][:-1], machine.coef_[0][-1] + machine.intercept_[0])  # the bias is a feature here
    u /= np.linalg.norm(u)
    limit = bound(extended, signs, u)
    assert limit < 10_000  # a bound that says something: 8,124 rows could cause that many in two epochs
    result = fit(x, y, algo="perceptron", bias="feature", epochs=200, progress=False).result_
    assert 0 < result.mistakes <= limit and result.history[-1]["mistakes"] == 0
