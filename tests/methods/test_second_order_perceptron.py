"""The second-order perceptron against explicit inverses, and its bound (Cesa-Bianchi, Conconi, Gentile 2005)."""

import numpy as np
import pytest
import scipy.sparse as sp
from making import Case, block_of, dense, learn, random_rows, separable_rows

from bigclf.api.fit import fit
from bigclf.errors import MemoryBudgetError

FULL, DIAGONAL = Case("sop_full", None), Case("sop", None)


def naive(x, y, c, a, diagonal):
    """(w, mistakes, sum of -m over mistakes) with A written out and solved anew for every row."""
    A, v = a * np.eye(x.shape[1]), np.zeros(x.shape[1])
    mistakes, loss = 0, 0.0
    for row, label, weight in zip(x, y, c, strict=True):
        outer = np.diag(row * row) if diagonal else np.outer(row, row)
        m = label * v @ np.linalg.solve(A + outer, row)
        if m <= 1e-13:  # rounding: exact zeros at first
            v, A, mistakes, loss = v + weight * label * row, A + weight * outer, mistakes + 1, loss - m
    return np.linalg.solve(A, v), mistakes, loss


@pytest.mark.parametrize("case", [FULL, DIAGONAL], ids=["full", "diagonal"])
@pytest.mark.parametrize("bias", [None, "feature"])
def test_it_equals_the_explicit_inverse(case, bias):
    for seed in range(50):
        a = 10.0 ** (seed % 4 - 1)
        x, y = random_rows(60, 9, density=0.5, seed=seed, noise=0.5, constant=seed % 3 == 0)
        c = np.random.default_rng(seed).choice([0.5, 1.0, 2.0], 60)
        block = block_of(x, y, c)
        state = case.setting(bias, a=a).shared(9, "float64"), ()
        shared, _, counts, _ = learn(case, block, 9, None, state, bias=bias, a=a)
        rows = np.hstack([dense(block, 9), np.full((60, 1), 1.0 if bias else 0.0)])
        w, mistakes, loss = naive(rows, y, c, a, case is DIAGONAL)
        assert counts.mistakes == mistakes > 5
        np.testing.assert_allclose(case.weights(shared, bias, a=a), w, rtol=0, atol=1e-9)
        assert abs(counts.loss - loss) < 1e-9


def test_the_matrix_is_the_inverse_of_what_the_mistakes_sum_to():
    x, y = random_rows(80, 12, density=0.5, noise=0.5)
    block = block_of(x, y)
    shared, state = FULL.state(12, 80)[0], np.eye(13)
    rows = np.hstack([dense(block, 12), np.ones((80, 1))])
    for i in range(80):
        counts = learn(FULL, block, 12, np.array([i]), (shared, ()), bias="feature")[2]
        state += counts.mistakes * np.outer(rows[i], rows[i])
    np.testing.assert_allclose(shared.covariance, np.linalg.inv(state), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(shared.covariance, shared.covariance.T)


def largest_margin(x, y):
    """The unit vector through 0 with the largest margin, by scikit-learn's hard-margin SVM on rows and their mirrors
    (no row inside the margin: the intercept is 0 by symmetry)."""
    from sklearn.svm import SVC

    both, signs = np.vstack([x, -x]), np.concatenate([y, -y])
    u = SVC(kernel="linear", C=1e8, tol=1e-6).fit(both, signs).coef_[0]
    assert (y * (x @ u)).min() > 0.99
    return u / np.linalg.norm(u)


@pytest.mark.parametrize("a", [0.1, 10.0])
def test_mistakes_stay_below_the_bound(a):
    """The bound with u of the largest margin and gammas of several sizes, over several passes."""
    total = 0
    for seed in range(10):
        x, y, *_ = separable_rows(n_rows=60, n_features=2 + seed, seed=seed)
        block, rows = block_of(sp.csr_matrix(x), y), x.astype(float)
        state, wrong = (FULL.setting(a=a).shared(x.shape[1], "float64"), ()), []
        for _ in range(5):
            for i in range(60):
                if learn(FULL, block, x.shape[1], np.array([i]), state, a=a)[2].mistakes:
                    wrong.append(i)
        X, labels = rows[wrong], y[wrong]
        logs = np.log1p(np.linalg.eigvalsh(X.T @ X).clip(0) / a).sum()
        u = largest_margin(rows, y)
        for gamma in ((y * (rows @ u)).min(), 0.5, 1.0, 2.0):  # at the first no hinge is left
            hinge = np.maximum(0, gamma - labels * (X @ u)).sum()
            assert len(wrong) <= (hinge + np.sqrt((a + ((X @ u) ** 2).sum()) * logs)) / gamma
        total += len(wrong)
    assert total > 60


@pytest.mark.parametrize("case", [FULL, DIAGONAL], ids=["full", "diagonal"])
def test_rows_of_any_size_leave_finite_numbers(case):
    x = sp.csr_matrix(np.array([[1e18, 0, 1], [0, 0, 0], [1e-18, 1, 0], [-1e18, 1e18, 1], [1e18, 1e18, 0]], np.float32))
    y = np.array([1, -1, 1, 1, -1])
    state = case.state(3, 5)
    for epoch in range(60):
        learn(case, block_of(x, y if epoch % 3 else -y), 3, None, state, bias="feature")
    assert all(np.isfinite(array).all() for array in state[0]) and np.isfinite(case.weights(state[0])).all()


def test_a_matrix_that_does_not_fit_is_refused_with_its_size():
    x = sp.csr_matrix((np.ones(4, np.float32), [0, 5, 7, 99_999], [0, 1, 2, 3, 4]), shape=(4, 100_000))
    with pytest.raises(
        MemoryBudgetError, match=r"memory=1\.0+ ?GB is too small: state 80\.\d+ GB.*memory=80.* would do"
    ):
        fit(x, [0, 1, 0, 1], algo="sop_full", memory="1GB", progress=False)
    assert FULL.setting().state_bytes(100_000, "float64") == 8 * (100_001**2 + 2 * 100_001)
    with pytest.raises(ValueError, match="groups=2.*sop_full.*one group"):
        fit(x, [0, 1, 0, 1], algo="sop_full", groups=2, progress=False)


def test_copies_fused_by_precision_hold_the_mean_of_their_sums():
    from making import mix

    x, y = random_rows(90, 20, noise=0.5)
    block = block_of(x, y)
    start = learn(DIAGONAL, block, 20, np.arange(30))[0]
    copies = []
    for part in (np.arange(30, 50), np.arange(50, 90)):
        copy = type(start)(*(array.copy() for array in start))
        copies.append(learn(DIAGONAL, block, 20, part, (copy, ()))[0])
    mixed = mix(DIAGONAL.method.form.mixings["precision"], start, copies, (20, 40))
    for name in start._fields:
        expected = (getattr(copies[0], name) + 2 * getattr(copies[1], name)) / 3
        np.testing.assert_allclose(getattr(mixed, name), expected, rtol=1e-13, atol=1e-13)
