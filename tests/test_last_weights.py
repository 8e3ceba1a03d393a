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
