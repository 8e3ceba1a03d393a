"""The infinity-norm margin from the worst rows of each read, against the linear programme."""

import making
import numpy as np
import pytest
import scipy.sparse as sp
from making import shards_of

import bigclf
from bigclf.maths.block import Block
from bigclf.methods.steps import maximum_entropy_blocks as blocks


def fit(x, y, **how):
    return bigclf.fit(x, y, progress=False, **how)


def votes(rows, n=30, k=8, r=4, seed=0, wrong=0):
    """x in {-1, 1}; a row is positive where at least r of the first k features are 1."""
    random = np.random.default_rng(seed)
    x = random.choice([-1.0, 1.0], (rows, n)).astype(np.float32)
    y = np.where((x[:, :k] > 0).sum(axis=1) >= r, 1, -1)
    y[:wrong] *= -1
    return x, y


def bounds(model):
    return [r["margin_bound"] for r in model.result_.history if r["margin_bound"] > 0]


@pytest.mark.parametrize("signs", ["both", "nonnegative"])
@pytest.mark.parametrize("bias", ["free", "feature"])
@pytest.mark.parametrize("buffer", [4, 200])  # of the smaller one rows are let go of and merged
def test_the_margin_is_that_of_the_linear_programme(signs, bias, buffer):
    x, y = votes(300)
    best = bigclf.infinity_norm_margin(x, y, signs=signs, bias=bias).margin
    eps = 0.5 * best
    model = fit(x, y, algo="memma_blocks", eps=eps, signs=signs, bias=bias, buffer=buffer)
    result = model.result_
    assert result.stopped == "tolerance" and not result.warnings
    scores = y * model.decision_function(x)
    size = np.abs(model.coef_).sum() + (np.abs(model.intercept_).sum() if bias == "feature" else 0)
    assert size <= 1 + 1e-12 and (signs == "both" or (model.coef_ >= 0).all())
    assert scores.min() == pytest.approx(result.certificate["dual"], abs=1e-12)
    assert scores.min() >= best - eps
    found = bounds(model)
    assert all(later <= before + 1e-12 for before, later in zip(found, found[1:], strict=False))
    assert found[-1] >= best and result.certificate["primal"] == found[-1]


def test_a_tolerance_asks_for_more():
    x, y = votes(300)
    model = fit(x, y, algo="memma_blocks", eps=0.05, bias="free", tol=0.0)
    assert model.result_.certificate["gap"] > 0.01
    assert fit(x, y, algo="memma_blocks", eps=0.05, bias="free", tol=0.9).result_.reads <= model.result_.epochs


def test_groups_and_rows_in_another_order_come_to_the_same_margin_and_resumed_runs_to_the_same_bits(tmp_path):
    x, y = votes(600)
    whole = fit(x, y, algo="memma_blocks", eps=0.03, bias="free", buffer=50)
    shards = shards_of(tmp_path / "shards", sp.csr_matrix(x), y)
    for other in (
        making.fit(shards, algo="memma_blocks", eps=0.03, bias="free", buffer=50, groups=3, segments=2, progress=False),
        fit(x[::-1], y[::-1], algo="memma_blocks", eps=0.03, bias="free", buffer=50),
    ):
        assert other.result_.certificate["dual"] >= whole.result_.certificate["primal"] - 0.03
    with pytest.warns(bigclf.errors.ConvergenceWarning):
        fit(x, y, algo="memma_blocks", eps=0.03, bias="free", buffer=50, epochs=2, run_dir=tmp_path / "run")
    again = fit(x, y, algo="memma_blocks", eps=0.03, bias="free", buffer=50, run_dir=tmp_path / "run", resume=True)
    assert again.coef_.tobytes() == whole.coef_.tobytes() and again.intercept_ == whole.intercept_


@pytest.mark.parametrize("bias", ["free", "feature"])
def test_a_run_of_one_read_has_the_weights_of_the_rows_it_kept(bias):
    x, y = votes(600)
    with pytest.warns(bigclf.errors.ConvergenceWarning, match="not converged"):
        model = fit(x, y, algo="memma_blocks", eps=0.03, bias=bias, buffer=50, epochs=1)
    assert 0.5 < np.abs(model.coef_).sum() <= 1 + 1e-12 and model.result_.certificate is None
    assert (model.predict(x) == y).mean() > 0.7


def test_rows_that_no_weights_separate_are_told_of():
    x, y = votes(400, wrong=20)
    result = fit(x, y, algo="memma_blocks", eps=0.05, bias="free").result_
    assert any("soft_margin" in text for text in result.warnings)
    assert result.certificate["dual"] <= result.certificate["primal"] <= 0.05


def test_zeros_that_are_stored_are_no_entries():
    """A row and its twin with more of them: a step between them touches no more places than there are."""
    random = np.random.default_rng(0)
    x, y = votes(60, n=12)
    x[random.random(x.shape) < 0.5] = 0
    stored = sp.csr_matrix(np.ones_like(x))
    stored.data[:] = x.reshape(-1)
    best = bigclf.infinity_norm_margin(x, y, bias="feature").margin
    for rows in (sp.csr_matrix(x), stored):
        found = fit(rows, y, algo="memma_blocks", eps=0.1)
        scores, sure = y * found.decision_function(x), found.result_.certificate
        assert scores.min() == pytest.approx(sure["dual"], abs=1e-12)
        assert sure["dual"] <= best + 1e-9 and best - 1e-9 <= sure["primal"] <= sure["dual"] + 0.1


def test_the_worst_are_kept_whatever_comes_in_between():
    random = np.random.default_rng(1)
    outputs, scratch = random.standard_normal(500), np.empty(20)
    kept = blocks.nothing_kept(3, 20)
    x = np.ones((500, 1), np.float32)

    m = outputs.size
    block = Block(np.arange(m + 1), np.zeros(m, np.uint32), x[:, 0], np.ones(m), np.ones(m), np.ones(m), np.arange(m))
    everyone = blocks.nothing_kept(3, 20)
    for i in range(m):
        blocks.keep(kept, 0, block, i, outputs[i], 1.0, scratch)
    blocks.gather(everyone, kept, scratch)
    n = kept.counts[0, 0]
    assert 10 <= n <= 20
    np.testing.assert_array_equal(np.sort(kept.outputs[0, 0, :n])[:10], np.sort(outputs)[:10])
    assert everyone.counts[0, 0] == n
