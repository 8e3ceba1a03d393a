"""What a run hands back whose time is over before it is done: of all weights that it came to, the best certified."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from making import fit

from bigclf.conversion.convert import write_shards
from bigclf.errors import ConvergenceWarning
from bigclf.methods import METHODS
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


def overlapping():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 30)) * (rng.random((60, 30)) < 0.3)
    return x, np.where(x[:, 0] + 0.3 * rng.normal(size=60) > 0, 1, -1)


AT_ZERO = {"logistic": np.log(2.0), "hinge": 1.0, "squared_hinge": 1.0}
QUICK = [("dcd", "squared_hinge"), ("dcd", "hinge"), ("dcd_mc", "hinge"), ("newton", "logistic"), ("lbfgs", "logistic")]
CERTIFIED = [
    (name, loss) for name, method in METHODS.items() if method.certificate for loss in method.losses or (None,)
]


def primals(x, y, name, loss, C, limits):
    """What runs that end after so many epochs hand back; None where nothing is certified."""
    if loss not in AT_ZERO and loss is not None:
        y = y + 0.1 * x[:, 0]
    words = dict(multiclass="native") if name.endswith("_mc") else {}
    if METHODS[name].all_classes:
        y = np.where(np.arange(len(y)) % 3 == 0, 2, y)
    words |= dict(algo=name.removesuffix("_mc"), loss=loss, C=C) if loss else dict(algo=name)
    found = [fit(x, y, **words, tol=1e-9, epochs=n, progress=False).result_.certificate for n in limits]
    return [None if certificate is None else certificate["primal"] for certificate in found]


TIERS = (), pytest.mark.long, pytest.mark.slow


@pytest.mark.filterwarnings("ignore::bigclf.errors.ConvergenceWarning")
@pytest.mark.parametrize(("rows", "name", "loss"), [
    pytest.param(rows, *case, marks=TIERS[(rows is not noisy_rows) + (case not in QUICK)])
    for rows in (noisy_rows, hard_rows, overlapping) for case in CERTIFIED
])  # fmt: skip
def test_more_epochs_never_hand_back_a_higher_primal(rows, name, loss):
    """Nor one above that of zero weights. Every run of dcd handed back its last weights (squared hinge, C = 1: 99 after
    one epoch and 100 after two); newton had nothing certified in its first five epochs, then 24 times the primal
    objective of zero weights."""
    x, y = rows()
    for C in (1.0, 1e3):
        found = primals(x, y, name, loss, C, (1, 2, 3, 5, 8))
        known = [primal for primal in found if primal is not None]
        assert len(known) == len(found) or METHODS[name].collects or name == "memma_blocks"
        assert known and all(b <= a * (1 + 1e-9) for a, b in itertools.pairwise(known)), (C, found)
        if loss in AT_ZERO and not METHODS[name].all_classes:
            assert known[0] <= C * len(y) * AT_ZERO[loss] * (1 + 1e-12)


@pytest.fixture(scope="module")
def streamed(tmp_path_factory):
    """Shards that do not fit in 14 MB, with room to decode them; the rows, too."""
    rng = np.random.default_rng(0)
    x = sp.random(3000, 200, 0.1, "csr", random_state=1, dtype=np.float32)
    y = np.where(x @ rng.normal(size=200) + 0.3 * rng.normal(size=3000) > 0, 1.0, -1.0)
    path = tmp_path_factory.mktemp("streamed") / "s"
    write_shards([(x.indptr, x.indices, x.data, (y > 0) * 1.0)], path, classes=[-1, 1], chunk_nnz=4000)
    return str(path), x, y


@pytest.mark.filterwarnings("ignore::bigclf.errors.ConvergenceWarning")
@pytest.mark.parametrize("algo", ["newton", "tron", "lbfgs"])
@pytest.mark.parametrize(("epoch", "segment"), [(6, 2), (7, 1), (8, 1)])
def test_sums_over_a_part_of_the_rows_are_no_answer(algo, epoch, segment, streamed, monkeypatch):
    """When time was over in the midst of a read, its sums were taken for those of all rows: newton's certificate said
    291.6, its weights have 517.4; L-BFGS said 309 of 1,961."""
    path, x, y = streamed
    monkeypatch.setattr(Run, "_late", lambda run: run.epoch > epoch or run.epoch == epoch and run.segment >= segment)
    model = fit(path, algo=algo, loss="squared_hinge", C=1.0, tol=1e-9, segments=4, memory="14MB",
                max_seconds=1e6, progress=False)  # fmt: skip
    told = model.result_
    assert told.stopped == "seconds" and not told.plan["resident"] and told.plan["segments"] == 4
    w, b = np.asarray(model.coef_[0], np.float64), float(model.intercept_[0])
    primal = 0.5 * (w @ w + b * b) + (np.maximum(0, 1 - y * (x @ w + b)) ** 2).sum()
    assert told.certificate["primal"] == pytest.approx(primal, rel=1e-5)


@pytest.mark.filterwarnings("ignore::bigclf.errors.ConvergenceWarning")
@pytest.mark.parametrize("algo", ["newton", "memma_blocks"])
def test_a_run_that_ended_in_the_midst_of_a_read_goes_on_to_the_same_answer(algo, streamed, monkeypatch, tmp_path):
    """What was summed over a part of the rows is not added to the sums of the read that follows."""
    words = dict(algo=algo, segments=4, memory="20MB" if algo == "memma_blocks" else "14MB", progress=False)
    epoch = 2 if algo == "memma_blocks" else 7
    words |= dict(eps=0.3) if algo == "memma_blocks" else dict(tol=1e-6)
    whole = fit(streamed[0], **words)
    with monkeypatch.context() as late:
        late.setattr(Run, "_late", lambda run: run.epoch > epoch or run.segment >= 2 and run.epoch == epoch)
        cut = fit(streamed[0], **words, run_dir=str(tmp_path / "r"), max_seconds=1e6)
    assert cut.result_.stopped == "seconds"
    went_on = fit(streamed[0], **words, run_dir=str(tmp_path / "r"), resume=True)
    assert went_on.result_.stopped == whole.result_.stopped == "tolerance"
    np.testing.assert_allclose(went_on.coef_, whole.coef_, rtol=1e-3, atol=1e-4)
    assert went_on.result_.epochs == whole.result_.epochs + 1


@pytest.mark.filterwarnings("ignore::bigclf.errors.ConvergenceWarning")
@pytest.mark.parametrize("words", [{}, {"working_set": 0}, {"groups": 2}], ids=["set", "no set", "groups"])
def test_out_of_core_more_epochs_never_hand_back_a_higher_primal(words, streamed, as_begun_before):
    """Of the weights that a read begins with a copy is kept, in a file where memory has no room for it."""
    found = [
        fit(streamed[0], loss="squared_hinge", C=1e3, tol=1e-9, memory="14MB", epochs=n, inner_rounds=1, progress=False,
            **words).result_
        for n in (1, 2, 3, 5)
    ]  # fmt: skip
    assert not any(result.plan["resident"] for result in found)
    assert all(b.certificate["primal"] <= a.certificate["primal"] * (1 + 1e-12) for a, b in itertools.pairwise(found))


@pytest.mark.filterwarnings("ignore::bigclf.errors.ConvergenceWarning")
@pytest.mark.parametrize(("groups", "epoch", "segment"), [(1, 6, 2), (2, 5, 1)])
def test_an_epoch_cut_short_hands_back_nothing_worse_than_it_began_with(
    groups, epoch, segment, streamed, monkeypatch, as_begun_before
):
    """Of an epoch of several segments in which time was over only the weights that it came to were tried: 495,098 of
    492,665, and of two groups 552,626 of 509,668."""
    words = dict(
        groups=groups,
        working_set=0,
        loss="squared_hinge",
        C=1e3,
        tol=1e-9,
        memory="14MB",
        inner_rounds=1,
        segments=4,
        max_seconds=1e6,
    )
    found = []
    for reached in (0, segment):
        monkeypatch.setattr(Run, "_late", lambda run, at=(epoch, reached): (run.epoch, run.segment) >= at)
        model = fit(streamed[0], **words, progress=False)
        w, b = np.asarray(model.coef_[0], np.float64), float(model.intercept_[0])
        slack = np.maximum(0, 1 - streamed[2] * (streamed[1] @ w + b))
        found.append(model.result_.certificate["primal"])
        assert found[-1] == pytest.approx(0.5 * (w @ w + b * b) + 1e3 * (slack**2).sum(), rel=1e-5)
    assert found[1] <= found[0] * (1 + 1e-12)
