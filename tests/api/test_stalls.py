"""Dual coordinate descent that stalls: what is said of it, and that algo="auto" goes on by another method."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from making import shards_of

import bigclf
from bigclf.api import fit as fitting
from bigclf.api import stall
from bigclf.api.stall import Stall
from bigclf.request import auto, prepare
from bigclf.request.auto import Asked, choose, method_for, most_tried
from bigclf.request.door import UNKNOWN, Matrix, Numbering, open_rows
from bigclf.request.request import asked as request_of

ASKED = Asked(loss="hinge", penalty=None, bias=None, C=1.0, given=(), epochs=None, n_rows=10**6, n_features=30,
              nnz=3 * 10**7, memory=10**10, groups=1)  # fmt: skip


def run_of(gap, again=60, done=False, left=np.inf):
    counts = SimpleNamespace(again=again)
    return SimpleNamespace(status=[SimpleNamespace(estimate=gap, done=done)], tol=1e-3, counts=counts,
                           clock=SimpleNamespace(left=left))  # fmt: skip


def noisy(n=4000, d=12):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n, d)).astype(np.float32)
    return x, np.where(x @ rng.standard_normal(d) + 5 * rng.standard_normal(n) > 0, 1, -1)


def test_a_gap_that_falls_slowly_is_a_stall_after_three_passes_and_a_quick_one_is_none():
    slow, quick = Stall(ASKED, changes=True), Stall(ASKED, changes=True)
    assert [slow(run_of(gap)) for gap in (0.5, 0.45, 0.4)] == [[], [], [0]] and not slow.warm
    assert "newton_dense is predicted to take" in slow.over and slow(run_of(0.39)) == []
    assert [quick(run_of(gap, again=3)) for gap in (0.5, 0.05, 0.005, 0.0005)] == [[]] * 4 and not quick.over
    warm = Stall(ASKED, changes=True)
    assert [warm(run_of(gap)) for gap in (0.12, 0.11, 0.1)][-1] == [0] and warm.warm
    assert Stall(ASKED, changes=True)(run_of(0.4, done=True)) == []


def test_what_is_left_grows_with_the_rows_that_an_epoch_goes_over():
    looked = Stall(ASKED, changes=True)
    looked.gaps = [0.5, 0.4, 0.3]
    assert 0 < looked.left(0, 1e-3) < looked.left(60, 1e-3)
    looked.gaps = [0.3, 0.3, 0.3]
    assert looked.left(60, 1e-3) > 100 * looked.left(60, 0.2999)
    looked.gaps = [0.3, 0.2]
    assert looked.left(60, 1e-3) == 0


def test_a_change_has_the_seconds_that_are_left_and_none_is_made_for_too_few():
    few, enough = Stall(ASKED, changes=True), Stall(ASKED, changes=True)
    assert [few(run_of(gap, left=few.cost / 2)) for gap in (0.5, 0.45, 0.4)] == [[]] * 3
    assert [enough(run_of(gap, left=2 * few.cost)) for gap in (0.5, 0.45, 0.4)][-1] == [0]
    assert enough.seconds == 2 * few.cost


def test_a_run_to_no_tolerance_goes_on():
    exact = Stall(ASKED, changes=True)
    for gap in (0.5, 0.45, 0.4, 0.4):
        run = run_of(gap)
        run.tol = 0.0
        assert exact(run) == []


def test_what_was_asked_for_by_name_goes_on_and_is_told_once(caplog):
    told = Stall(ASKED, changes=False)
    with caplog.at_level(logging.WARNING, "bigclf"):
        assert [told(run_of(gap)) for gap in (0.5, 0.45, 0.4, 0.39)] == [[]] * 4
    (record,) = caplog.records
    assert "after 3 passes the gap is about 0.4" in record.message and "(algo='newton_dense')" in record.message
    small = Stall(ASKED._replace(nnz=1000, n_rows=100), changes=False)
    assert [small(run_of(gap)) for gap in (0.5, 0.45, 0.4)] == [[]] * 3 and not small.said
    stuck, changing = (Stall(ASKED._replace(nnz=20000, n_rows=5000), changes=changes) for changes in (False, True))
    with caplog.at_level(logging.WARNING, "bigclf"):  # thousands of epochs take long, of however few rows
        assert [stuck(run_of(1.0)) for _ in range(3)] == [[]] * 3 and stuck.said
    changing.gaps = stuck.gaps
    assert changing.left(60, 1e-3) < 0.5 * stuck.left(60, 1e-3)  # goes by what is counted, as before


def full_rows(apart):
    """3,000 x 300 numbers whose classes lie so far apart."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(3000) < 0.5, 1, -1)
    x = rng.standard_normal((3000, 300)) / 4 + apart * y[:, None] * rng.standard_normal(300) / 17
    return x.astype(np.float32), y


@pytest.mark.parametrize("loss", ["hinge", pytest.param("squared_hinge", marks=pytest.mark.long)])
def test_of_full_rows_a_pass_shows_whether_dual_variables_settle(loss, tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "WORTH_A_TRIAL", 0.0)
    options = {"loss": loss, "bias": "none", "tol": 1e-4, "progress": False}
    (x, y), (z, _) = full_rows(3.0), full_rows(0.1)
    told = bigclf.fit(x, y, **options)
    assert told.method["name"] == "dcd" and "which a few passes show" in told.result_.chosen
    assert (told.coef_ == bigclf.fit(x, y, algo="dcd", **options).coef_).all()
    tried = bigclf.fit(z, y, **options)
    assert tried.method["name"] == "newton_dense" and "many rows keep moving" in tried.result_.chosen
    assert tried.result_.converged and "after a pass the gap" in tried.result_.chosen
    kept = bigclf.fit(x, y, run_dir=tmp_path / "run", **options)  # a run that is kept does not change its method
    assert kept.method["name"] == "newton_dense" and "tried" not in kept.result_.chosen


def test_nothing_is_tried_that_costs_much_beside_the_other_method():
    asked = Asked(loss="hinge", penalty=None, bias=None, C=1.0, given=(), epochs=None, n_rows=20_000, n_features=784,
                  nnz=784 * 20_000, memory=10**10, groups=1, square=90.0, changes=True)  # fmt: skip
    assert most_tried(asked, "hinge") < 1 and choose(asked)[0] == "dcd"
    few, half = asked._replace(n_features=20, nnz=20 * 20_000), asked._replace(nnz=asked.nnz // 2)
    for other in (few, half, asked._replace(changes=False), asked._replace(loss="logistic"), asked._replace(groups=2),
                  asked._replace(square=1e6)):  # fmt: skip
        assert most_tried(other, other.loss) == np.inf and choose(other)[0] != "dcd"


@pytest.mark.parametrize("tol", [None, 1e-6])
def test_the_logistic_loss_on_full_rows_has_a_hessian_where_columns_are_few(tol):
    """Measured: newton 0.4 s of CPU time, newton_dense 5 s of 20,000 pictures; of 28 columns 0.8 and 0.04 s."""
    pictures = Asked(loss="logistic", penalty=None, bias=None, C=1.0, given=(), epochs=None, n_rows=20_000,
                     n_features=784, nnz=784 * 20_000, memory=10**10, groups=1, square=90.0, tol=tol)  # fmt: skip
    assert choose(pictures)[0] == "newton"
    assert choose(pictures._replace(loss="squared_hinge"))[0] == "newton_dense"
    assert choose(pictures._replace(n_features=28, nnz=28 * 20_000, square=60.0))[0] == "newton_dense"
    assert choose(pictures._replace(square=1e6))[0] == "newton_dense"  # numbers of very different sizes


def test_what_no_other_method_can_do_is_not_watched():
    assert method_for(ASKED)[0] == "newton_dense" and stall.watched(ASKED, True) is not None
    text = ASKED._replace(loss="logistic", n_rows=10**5, n_features=10**5 - 1, nnz=10**7)
    assert method_for(text)[0] == "newton" and method_for(text._replace(n_features=10**5))[0] == ""  # apart at any C
    for changes in ({"n_features": 10**6}, {"given": ("inner_rounds",)}, {"memory": 1000}, {"n_rows": 0}):
        assert stall.watched(ASKED._replace(**changes), True) is None


@pytest.mark.parametrize("keeps", [False, True])
def test_auto_goes_on_by_another_method_with_the_same_loss(monkeypatch, tmp_path, keeps):
    x, y = noisy()
    monkeypatch.setattr(prepare, "choose", lambda asked: ("dcd", "algo=auto: dcd"))
    monkeypatch.setattr(stall, "PASSES", 1)
    monkeypatch.setattr(stall, "GAIN", 0.0)
    options = {"run_dir": tmp_path / "run"} if keeps else {"max_seconds": 100}
    asked = []
    train = fitting.train_settled
    monkeypatch.setattr(fitting, "train_settled", lambda *given: asked.append(given[3]["max_seconds"]) or train(*given))
    model = bigclf.fit(sp.csr_matrix(x), y, algo="auto", loss="hinge", tol=1e-5, epochs=3000, progress=False, **options)
    assert model.method["name"] == ("dcd" if keeps else "newton_dense") and model.method["loss"] == "hinge"
    assert ("and goes on" in model.result_.chosen) is not keeps
    assert asked == [None] if keeps else asked[0] == 100 > asked[1] > 0
    assert model.result_.converged and model.result_.certificate["gap"] <= 1e-5
    other = bigclf.fit(sp.csr_matrix(x), y, algo="newton_dense", loss="hinge", tol=1e-5, progress=False)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=0.02)


def test_of_rows_of_ones_the_gap_falls_ever_faster_and_one_pass_more_is_waited_for():
    gaps = 0.14, 0.14, 0.098, 0.038  # of mushrooms, which takes seven passes in all
    usual, easier = (Stall(ASKED._replace(ones=ones), changes=True) for ones in (False, True))
    assert [usual(run_of(gap, again=1)) for gap in gaps][2] == [0]
    assert [easier(run_of(gap, again=1)) for gap in gaps] == [[]] * 4
    stuck = Stall(ASKED._replace(ones=True), changes=True)
    assert [stuck(run_of(gap)) for gap in (0.2, 0.19, 0.18, 0.17)] == [[], [], [], [0]]


def rows_of_ones(n, fields, each, share):
    rng = np.random.default_rng(0)
    columns = (each * rng.random((n, fields)) ** 2).astype(np.int64) + each * np.arange(fields)
    score = rng.standard_normal(fields * each)[columns].sum(axis=1) / fields**0.5 + rng.standard_normal(n)
    x = sp.csr_matrix((np.ones(n * fields, np.float32), columns.ravel(), np.arange(0, n * fields + 1, fields)))
    return x, np.where(score > np.quantile(score, 1 - share), 1, -1)


@pytest.mark.parametrize(("share", "name"), [(0.4, "newton_dense"), (0.05, "dcd")])
def test_of_rows_of_ones_a_pass_shows_how_many_keep_moving(share, name):
    """As many as of hard problems, where a Hessian costs little more: else one pass is not enough to tell."""
    found = bigclf.fit(*rows_of_ones(6000, 20, 10, share), loss="hinge", C=1.0, tol=1e-3, progress=False)
    assert found.method["name"] == name and found.certificate["gap"] <= 1e-3


def glance(x, y):
    return Matrix(x, y, None, Numbering(10**9)).counts()


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix])
def test_a_glance_tells_rows_of_ones_and_the_rarer_class(kind, tmp_path):
    x, y = np.zeros((200, 6), np.float32), np.where(np.arange(200) < 20, 1, -1)
    x[np.arange(200), np.arange(200) % 6] = 1.0
    seen = glance(kind(x), y)
    assert seen.ones and seen.rarest == 0.1
    assert not glance(kind(2 * x), y).ones
    assert glance(kind(x), y.tolist()).rarest == 0.0  # it is not looked at
    shards = shards_of(tmp_path / "shards", sp.csr_matrix(x), y)
    with open_rows(request_of("fit", str(tmp_path / "shards"), None, {"algo": "dcd"})) as (found, _):
        assert found.counts().ones and found.counts().rarest == 0.1 and shards.binary


@pytest.mark.parametrize("kind", ["matrix", "table", "files", "dataset", "blocks"])
@pytest.mark.parametrize("ones", [True, False])
def test_of_a_method_by_name_the_watch_knows_rows_of_ones_and_the_rarer_class_too(kind, ones, monkeypatch, tmp_path):
    x, y = np.zeros((200, 6), np.float32), np.where(np.arange(200) < 20, 1, -1)
    x[np.arange(200), np.arange(200) % 6] = 1.0 if ones else 2.0
    asked = []
    monkeypatch.setattr(fitting, "watched", lambda own, changes: asked.append((own, changes)))
    shards = shards_of(tmp_path / "shards", sp.csr_matrix(x), y)
    data = {
        "matrix": (sp.csr_matrix(x), y), "table": (x, y), "files": (str(tmp_path / "shards"),), "dataset": (shards,),
        "blocks": (iter([(sp.csr_matrix(x[:150]), y[:150]), (sp.csr_matrix(x[150:]), y[150:])]),),
    }[kind]  # fmt: skip
    bigclf.fit(*data, algo="dcd", progress=False)
    ((own, changes),) = asked
    assert not changes and own.ones is ones and own.share == 0.1 and own.problems == 1
    assert (own.n_rows, own.n_features, own.nnz) == (200, 6, 200)


def test_the_table_solver_has_the_loss_that_was_meant():
    x, y = noisy()
    for options, loss in (
        ({}, "logistic"),
        ({"loss": "hinge"}, "hinge"),
        ({"bias": "free"}, "logistic"),
        ({"loss": "logistic"}, "logistic"),
    ):
        model = bigclf.fit(x, y, algo="auto", progress=False, **options)
        assert (model.method["name"], model.method["loss"]) == ("newton_dense", loss)


def test_a_glance_at_a_matrix_counts_what_is_not_0_and_how_long_rows_are():
    x, y = noisy()
    x[:, 3:] = 0.0
    for data in (x, sp.csr_matrix(x)):
        seen = glance(data, y)
        assert seen[:2] == x.shape and seen.classes == 2
        assert abs(seen.nnz - 12000) < 200 and 2.5 < seen.square < 3.5
    assert glance(x.tolist(), y) == UNKNOWN
    assert glance(np.zeros((0, 3)), y)[:3] == (0, 3, 0)
    assert glance(np.zeros((5, 3)), y).square == 0


def test_a_glance_sees_every_column_and_class_whatever_period_they_have():
    x, y = np.ones((30_000, 40), np.float32), np.where(np.arange(30_000) % 2, 1, -1)
    x[:, 7] = 1000.0
    for data in (x, sp.csr_matrix(x)):
        seen = glance(data, y)
        assert seen.square == pytest.approx(1e6, rel=0.02) and seen.rarest == pytest.approx(0.5, abs=0.01)
