"""What a run hands back whose time is over before it is done: of all weights that it came to, the best certified."""

import numpy as np
import pytest

from bigclf.errors import ConvergenceWarning
from bigclf.training import fit
from bigclf.training.run import Run


def late_from(epoch, monkeypatch):
    """Time is over when this epoch is to begin, whatever the clock says."""
    monkeypatch.setattr(Run, "_late", lambda run: run.epoch >= epoch)


def hard_rows():
    """Rows on which coordinate steps take many rounds."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 20)) + 3 * rng.normal(size=(200, 1))
    return x, np.where(x @ rng.normal(size=20) + rng.normal(size=200) > 0, 1, -1)


def test_the_last_weights_are_certified_although_earlier_ones_were(monkeypatch):
    """The answer was that of the last certificate, many epochs before."""
    x, y = hard_rows()
    options = dict(C=1e3, tol=1e-9, inner_rounds=1, progress=False)
    with pytest.warns(ConvergenceWarning):
        by_epochs = fit(x, y, epochs=75, **options).result_
    late_from(76, monkeypatch)
    with pytest.warns(ConvergenceWarning):
        by_time = fit(x, y, **options).result_
    assert by_time.stopped == "seconds" and by_time.epochs == by_epochs.epochs == 75
    assert by_time.certificate["primal"] <= by_epochs.certificate["primal"]


def noisy_rows():
    """Rows of very different lengths with labels drawn at random: each step of a long price overshoots."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 3)) * np.exp(2 * rng.normal(size=(100, 1)))
    return x, np.where(rng.random(100) > 0.5, 1, -1)


def primal_of(model, x, y, C):
    """P of the hinge, from the model alone."""
    w, b = np.asarray(model.coef_[0], np.float64), float(model.intercept_[0])
    return 0.5 * (w @ w + b * b) + C * np.maximum(0, 1 - y * (x @ w + b)).sum()


@pytest.mark.parametrize("epochs", [1, 2])
def test_no_answer_is_worse_than_zero_weights(epochs):
    """The last weights have 1.8 and 3.1 times the objective of zero weights; after the second epoch 1/2^k of them do
    better than either."""
    x, y = noisy_rows()
    with pytest.warns(ConvergenceWarning):
        model = fit(x, y, C=1e3, tol=1e-9, inner_rounds=1, epochs=epochs, progress=False)
    primal = model.result_.certificate["primal"]
    assert primal <= 1e3 * len(y)
    assert primal == pytest.approx(primal_of(model, x, y, 1e3), rel=1e-5)
    zero = not model.coef_.any()
    assert any(("are zero" if zero else "multiplied by") in warning for warning in model.result_.warnings)


def test_two_groups_try_the_same_scales():
    """Losses of scaled weights are summed over groups."""
    x, y = noisy_rows()
    with pytest.warns(ConvergenceWarning):
        model = fit(x, y, C=1e3, tol=1e-9, inner_rounds=1, epochs=2, groups=2, progress=False)
    primal = model.result_.certificate["primal"]
    assert primal <= 1e3 * len(y) and primal == pytest.approx(primal_of(model, x, y, 1e3), rel=1e-5)


def test_all_classes_at_once_are_no_worse_than_zero_weights():
    x, y = noisy_rows()
    y = np.where(np.arange(len(y)) % 3 == 0, 2, y)
    with pytest.warns(ConvergenceWarning):
        model = fit(x, y, algo="dcd_mc", C=1e3, tol=1e-9, inner_rounds=1, epochs=1, progress=False)
    assert model.result_.certificate["primal"] <= 1e3 * len(y)
