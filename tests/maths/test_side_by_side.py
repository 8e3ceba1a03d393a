"""Margins of several problems at a time, and rows that are copied to lie together."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigclf.maths.block import Block, alike, gather_rows, room_for_rows, rows_of, selected
from bigclf.maths.losses import LOSSES
from bigclf.maths.side_by_side import LANES, margins_of
from bigclf.methods.dual.dual_coordinate_descent import Params, Rows, Shared, descend, judge

N, D = 40, 30


def block_of(kind, seed=0):
    """Rows of 0 to 20 entries with values of their own, one value each or ones; X as an array."""
    rng = np.random.default_rng(seed)
    X = sp.random(N, D, 0.3, format="csr", random_state=seed, dtype=np.float32)
    X.data = rng.normal(size=X.nnz).astype(np.float32)
    scales = np.empty(0, np.float32)
    if kind != "values":
        each = rng.normal(size=N).astype(np.float32) if kind == "scales" else np.ones(N, np.float32)
        X.data, scales = np.repeat(each, np.diff(X.indptr)), each if kind == "scales" else scales
    values = X.data if kind == "values" else np.empty(0, np.float32)
    norms = np.asarray(X.astype(float).multiply(X).sum(1)).ravel()
    y = np.where(rng.random(N) < 0.3, 1.0, -1.0)
    weights = rng.random(N) * (rng.random(N) < 0.9)
    return alike(Block(X.indptr, X.indices.astype(np.uint32), values, y, weights, norms, np.arange(N), scales)), X


@pytest.mark.parametrize("kind", ["values", "ones", "scales"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_margins_are_those_of_each_problem_whatever_lies_beside_it(kind, dtype):
    block, X = block_of(kind)
    W = np.random.default_rng(1).normal(size=(LANES, D + 1)).astype(dtype)
    room = np.empty((D + 1, LANES)), np.empty((N, LANES))
    found = margins_of(block, list(W), *room).copy()
    assert found == pytest.approx(X.toarray().astype(float) @ W[:, :-1].T.astype(float), rel=1e-13, abs=1e-13)
    for k in range(LANES):
        assert np.array_equal(margins_of(block, [W[k]], *room)[:, 0], found[:, k])


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_what_is_judged_is_what_a_pass_finds_before_it_moves_anything(loss):
    """One row at a time, so that the weights of the pass are those that are judged; and P - D by numpy."""
    block, X = block_of("values")
    rng = np.random.default_rng(2)
    params, record = Params(0.7, 1.0, 0.0, 1.0), LOSSES[loss]
    upper = params.C * block.weights if loss == "hinge" else np.full(N, 2.0)
    alpha = np.where(rng.random(N) < 0.5, 0.0, rng.random(N) * upper) * (block.weights > 0)
    Z = np.hstack([X.toarray().astype(float), np.ones((N, 1))])
    w = (alpha * block.labels) @ Z
    scores = np.full(N, np.nan)
    margins = margins_of(block, [w], np.empty((D + 1, LANES)), np.empty((N, LANES)))
    counts = judge(record)(block, margins, 0, Shared(w), Rows(alpha.copy()), params, scores)
    m, c = block.labels * (Z @ w), params.C * block.weights
    lost = c * np.maximum(0, 1 - m) ** (1 if loss == "hinge" else 2)
    there = c > 0
    dual = alpha if loss == "hinge" else alpha - np.divide(alpha**2, 4 * c, out=np.zeros(N), where=there)
    assert (counts.rows, counts.mistakes, counts.updates) == (there.sum(), (m[there] <= 0).sum(), 0)
    assert counts.loss == pytest.approx(lost.sum(), rel=1e-12)
    assert counts.gap == pytest.approx(lost.sum() + w @ w - dual.sum(), rel=1e-10)
    assert np.isnan(scores[~there]).all()
    for i in np.flatnonzero(there):
        seen, one = np.zeros(N), np.array([i])
        found = descend(record)(block, one, Shared(w.copy()), Rows(alpha.copy()), params, seen)
        assert found.gap == pytest.approx(lost[i] - dual[i] + alpha[i] * m[i], abs=1e-12)
        if scores[i] < 0:  # stuck, and the pass does not move it
            assert found.updates == 0 and seen[i] == pytest.approx(scores[i])
        else:
            assert scores[i] == pytest.approx(found.gap, abs=1e-12)


@pytest.mark.parametrize("kind", ["values", "ones", "scales"])
def test_rows_that_are_copied_together_are_the_same_rows(kind):
    block, _ = block_of(kind)
    into = room_for_rows(block, N, block.nnz)
    for seed in (0, 1):  # the second time over the rows of the first
        there = np.random.default_rng(seed).random(N) < 0.4
        gather_rows(block, np.flatnonzero(there), into)
        found = rows_of(into, 0, int(there.sum()))
        wanted = selected(block, there)
        for name, array in wanted._asdict().items():
            assert np.array_equal(getattr(found, name)[: array.size], array), name
