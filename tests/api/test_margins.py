"""Exact infinity-norm margins: duality gaps, what must come of what, and the rows that force many updates."""

import math

import numpy as np
import pytest
from making import random_rows

import bigclf
from bigclf.api.margins import OnlineProgramme, hard_rows
from bigclf.errors import DataError


def labelled(seed, n=12, rows=60, wrong=0):
    random = np.random.default_rng(seed)
    x = random.standard_normal((rows, n)).astype(np.float32)
    y = np.where(x[:, :3].sum(axis=1) + 0.3 > 0, 1, -1)
    y[:wrong] *= -1
    return x, y


def least(found, x, y):
    return (y * found.decision_function(x)).min()


@pytest.mark.parametrize("signs", ["both", "nonnegative"])
@pytest.mark.parametrize("bias", ["free", "feature", None])
def test_the_programmes_gap_is_closed(signs, bias):
    for seed in range(5):
        x, y = labelled(seed)
        found = bigclf.infinity_norm_margin(x, y, signs=signs, bias=bias)
        assert 0 <= found.gap + 1e-12 <= 1e-9
        assert np.abs(found.weights).sum() <= 1 + 1e-12 and (signs == "both" or (found.weights >= 0).all())
        assert least(found, x, y) == pytest.approx(found.margin, abs=1e-12)
        v = (found.rows * y) @ x.astype(float)
        assert (np.abs(v) if signs == "both" else v).max() <= found.bound + 1e-12
        assert found.rows.sum() == pytest.approx(1) and (found.rows >= 0).all()
        if bias == "free":
            assert found.rows @ y == pytest.approx(0, abs=1e-12)
    assert found.separated and "margin" in str(found)


def test_the_smooth_problem_is_certified_and_tends_to_the_programme():
    for seed in range(4):
        x, y = labelled(seed)
        for signs, names in (("both", 24), ("nonnegative", 12)):
            best, before = bigclf.infinity_norm_margin(x, y, signs=signs).margin, -np.inf
            for eta in (1.0, 0.1, 0.01, 1e-3, 1e-4):
                found = bigclf.entropy_margin(x, y, eta=eta, signs=signs)
                assert 0 <= found.gap + 1e-12 <= 1e-8 + 1e-12
                assert best - eta * math.log(names) <= found.margin <= best + 1e-12 <= found.bound + 2e-12
                assert found.margin >= before - 1e-8
                before = found.margin
            assert found.margin >= best - 1e-3 and least(found, x, y) == pytest.approx(found.margin, abs=1e-9)


@pytest.mark.parametrize("bias", ["free", None])
def test_rows_that_are_not_separable_say_so_and_have_a_soft_margin(bias):
    x, y = labelled(0, wrong=3)
    hard = bigclf.infinity_norm_margin(x, y, bias=bias)
    assert not hard.separated and "soft_margin" in str(hard) and "no weights separate" in str(hard)
    assert hard.soft.margin > 1e-9 and hard.soft.rows.max() <= 1 / (0.1 * 60) + 1e-12
    assert bigclf.infinity_norm_margin(*labelled(0), bias=bias).soft is None
    twins = np.repeat(x[:5], 2, axis=0), np.tile([-1, 1], 5)  # equal rows of either label: nothing tells them apart
    assert bigclf.infinity_norm_margin(*twins, bias=bias).soft is None
    for nu in (0.3, 0.6):
        found = bigclf.soft_margin(x, y, nu=nu, bias=bias)
        assert found.gap == pytest.approx(0, abs=1e-9) and found.facts["below"] <= nu * 60 + 1e-9
        assert found.rows.max() <= 1 / (nu * 60) + 1e-12
        scores = y * found.decision_function(x)
        value = found.facts["rho"] - np.maximum(0, found.facts["rho"] - scores).sum() / (nu * 60)
        assert value == pytest.approx(found.margin, abs=1e-9) and found.margin > 0
        smooth = bigclf.entropy_margin(x, y, eta=1e-3, nu=nu, bias=bias)
        assert smooth.gap <= 1e-8 and found.margin - 1e-3 * math.log(24) <= smooth.margin <= found.margin + 1e-9


def test_what_makes_no_sense_is_refused():
    x, y = labelled(0)
    for given in ({"nu": 0.0}, {"nu": 1.0}):
        with pytest.raises(ValueError, match="nu="):
            bigclf.soft_margin(x, y, **given)
    with pytest.raises(ValueError, match="signs"):
        bigclf.infinity_norm_margin(x, y, signs="some")
    with pytest.raises(ValueError, match="bias"):
        bigclf.infinity_norm_margin(x, y, bias="maybe")
    with pytest.raises(ValueError, match="between two classes, and the labels are of 1"):
        bigclf.infinity_norm_margin(x, np.ones(60))
    with pytest.raises(ValueError, match="60 rows and y 59 labels"):
        bigclf.infinity_norm_margin(x, y[:59])
    with pytest.raises(ValueError, match="no features"):
        bigclf.soft_margin(np.zeros((60, 0)), y)
    for wrong in (np.nan, np.inf):
        spoilt = x.toarray() if hasattr(x, "toarray") else np.array(x, float)
        spoilt[7, 2] = wrong
        for margin in (bigclf.infinity_norm_margin, bigclf.soft_margin):
            with pytest.raises(DataError, match="NaN or infinite") as caught:
                margin(spoilt, y)
            assert (caught.value.row, caught.value.column) == (7, "2")
    with pytest.raises(ValueError, match="eta"):
        bigclf.entropy_margin(x, y, eta=0)


def test_the_adversary_forces_the_online_programme_to_its_lower_bound():
    """n (1/gamma* - 1) updates (Theorem 1): 45 for n = 5, gamma* = 0.1, after the first row."""
    learner, rows = OnlineProgramme(5), hard_rows(5, 0.1)
    assert rows.shape == (46, 5) and rows.max() == 1
    learner.learn(rows[0], 1)
    assert sum(learner.learn(row, 1) for row in rows[1:]) == 45
    assert learner.gamma == pytest.approx(0.1) and bigclf.api.margins.hard_rows(3, 0.5).shape == (4, 3)


def test_sparse_rows_and_names_as_labels():
    x, y = random_rows(80, 20, noise=0, density=0.5)
    one = bigclf.infinity_norm_margin(x, y)
    other = bigclf.infinity_norm_margin(x.toarray(), np.where(y > 0, "b", "a"))
    assert one.margin == pytest.approx(other.margin, abs=1e-12) and one.margin > 0


def test_a_method_that_stopped_at_its_tolerance_is_not_told_to_train_longer(caplog):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = (x[:, 0] + 0.2 * rng.normal(size=60) > 0).astype(int)
    model = bigclf.fit(x, y, algo="memma_blocks", progress=False)
    assert model.result_.stopped == "tolerance"
    assert "the weights do not separate the rows" in caplog.text and "epochs=" not in caplog.text
