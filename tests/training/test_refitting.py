"""What pruning left, trained again: fewer weights with the same proof, whatever the loss and wherever the rows are."""

import numpy as np
import pytest
import scipy.sparse as sp
from making import shards_of

import bigclf
from bigclf.api import outcome
from bigclf.training import refitting
from bigclf.training.counts import Clock

TOL = 0.02


def rows(n=600, d=3000, seed=0, classes=2):
    """Rows like short texts: rare words have many small weights."""
    rng = np.random.default_rng(seed)
    words = np.minimum(rng.zipf(1.3, size=(n, 25)), d) - 1
    X = sp.csr_matrix((np.full(words.size, 0.2, np.float32), words.ravel(), np.arange(n + 1) * 25), (n, d))
    X.sum_duplicates()
    score = X @ rng.standard_normal((d, classes)) + 0.2 * rng.standard_normal((n, classes))
    y = score.argmax(axis=1) if classes > 2 else np.where(score[:, 0] > 0, 1, -1)
    return X, y, score[:, 0]


LOSS = {
    "hinge": lambda m, t: np.maximum(0, 1 - t * m),
    "squared_hinge": lambda m, t: np.maximum(0, 1 - t * m) ** 2,
    "logistic": lambda m, t: np.logaddexp(0, -t * m),
    "squared": lambda m, t: 0.5 * (t - m) ** 2,
    "epsilon_insensitive": lambda m, t: np.maximum(0, np.abs(t - m) - 0.1),
}


def primal_of(loss, w, b, X, t, costs=1.0, free=False):
    """P by numpy alone."""
    m = X.astype(np.float64) @ w.astype(np.float64) + float(b)
    own = 0.0 if free else float(b) ** 2
    return 0.5 * (float(w.astype(np.float64) @ w) + own) + float(np.sum(costs * LOSS[loss](m, t)))


@pytest.fixture
def plain(monkeypatch):
    """Fits that train nothing again."""

    def fit(*data, **asked):
        with monkeypatch.context() as patch:
            patch.setattr("bigclf.api.outcome.refitted", lambda problems, found, *rest: found)
            return bigclf.fit(*data, progress=False, **asked)

    return fit


@pytest.mark.parametrize(
    ("algo", "loss", "more"),
    [
        ("dcd", "hinge", {}),
        ("dcd", "hinge", {"dtype": "float32"}),
        ("dcd", "squared_hinge", {"bias": "none"}),
        ("newton", "logistic", {}),
        ("newton", "logistic", {"bias": "free"}),
        ("newton", "squared", {}),
        ("dcd", "epsilon_insensitive", {"epsilon": 0.1}),
    ],
)
def test_fewer_weights_are_left_and_numpy_certifies_them(plain, algo, loss, more):
    X, y, target = rows()
    t = target if loss in ("squared", "epsilon_insensitive") else y
    costs = np.random.default_rng(1).integers(0, 3, t.size).astype(float)  # rows of weight 0 among them
    asked = dict(algo=algo, loss=loss, C=0.5, tol=1e-4, sample_weight=costs, **more)
    whole = bigclf.fit(X, t, progress=False, **asked)
    cut = plain(X, t, prune=TOL, **asked)
    found = bigclf.fit(X, t, prune=TOL, progress=False, **asked)
    kept = [model.facts["pruned"]["kept"] for model in (cut, found)]
    assert 0 < kept[1] <= (0.8 if loss == "hinge" else 1.0) * kept[0], kept
    assert kept[1] == np.count_nonzero(found.coef_) and found.coef_.dtype == whole.coef_.dtype
    told = found.certificate
    primal = primal_of(
        loss, found.coef_.ravel(), np.ravel(found.intercept_)[0], X, t, 0.5 * costs, more.get("bias") == "free"
    )
    assert told["dual"] == whole.certificate["dual"] and told["primal"] == pytest.approx(primal, rel=1e-9)
    assert told["gap"] == pytest.approx((primal - told["dual"]) / primal, abs=1e-9) and told["gap"] <= TOL


def test_classes_against_the_rest_each_have_their_own_features(plain):
    X, y, _ = rows(classes=4)
    asked = dict(algo="dcd", loss="hinge", C=0.5, tol=1e-3, class_weight="balanced")
    cut, found = plain(X, y, prune=TOL, **asked), bigclf.fit(X, y, prune=TOL, progress=False, **asked)
    assert found.facts["pruned"]["kept"] <= 0.9 * cut.facts["pruned"]["kept"]
    weights = y.size / (4 * np.bincount(y))
    for k, proof in enumerate(found.certificate["problems"]):
        t = np.where(y == k, 1, -1)
        w = found.dense_weights()[k]
        assert proof["primal"] == pytest.approx(
            primal_of("hinge", w, found.intercept_[k], X, t, 0.5 * weights[y]), rel=1e-9
        )
        assert proof["gap"] <= TOL


def test_the_same_bits_from_disk_in_memory_and_on_workers(tmp_path, client):
    X, y, _ = rows(1500)
    shards_of(tmp_path / "s", X, y, chunk_nnz=20_000)
    asked = dict(algo="dcd", loss="hinge", C=0.5, tol=1e-3, prune=TOL, progress=False)
    whole = bigclf.fit(str(tmp_path / "s"), **asked)
    there = bigclf.fit(str(tmp_path / "s"), workers=client, **asked)
    assert whole.result_.plan["resident"] and np.array_equal(whole.coef_, there.coef_)
    assert whole.certificate == there.certificate


def test_rows_that_stream_by_are_trained_on_again_where_there_is_room(tmp_path, plain, monkeypatch):
    X, y, _ = rows(5000)
    shards_of(tmp_path / "s", X, y, chunk_nnz=20_000)
    asked = dict(algo="dcd", loss="hinge", C=0.5, tol=1e-3, prune=TOL, memory="19MB")
    cut, tried, measured = plain(str(tmp_path / "s"), **asked), [], refitting._Search._measured
    monkeypatch.setattr(refitting._Search, "_measured", lambda *of: tried.append(of[1].n_rows) or measured(*of))
    found = bigclf.fit(str(tmp_path / "s"), progress=False, **asked)
    assert not found.result_.plan["resident"]
    assert found.facts["pruned"]["kept"] <= cut.facts["pruned"]["kept"] and found.certificate["gap"] <= TOL
    assert len(tried) > 1 and set(tried) == {y.size}  # of all blocks
    w, b = found.coef_.ravel(), found.intercept_[0]
    assert found.certificate["primal"] == pytest.approx(primal_of("hinge", w, b, X, y, 0.5), rel=1e-9)


def test_no_fewer_features_would_be_enough_than_are_known_to_be_needed():
    """Of all sets of so many features one has the least bound from below, that of the dual of training."""
    X, y, _ = rows(1500)
    asked = dict(algo="dcd", loss="hinge", C=0.5, progress=False)
    whole = bigclf.fit(X, y, tol=1e-6, **asked)
    found = bigclf.fit(X, y, tol=1e-3, prune=TOL, **asked)
    squares = np.sort(whole.coef_.ravel() ** 2)[::-1]
    above = whole.certificate["dual"] + 0.5 * (squares.sum() - np.cumsum(squares))
    needed = 1 + np.count_nonzero(above > whole.certificate["primal"] / (1 - TOL))
    assert needed <= found.facts["pruned"]["kept"] <= 1.5 * needed


def test_a_trial_that_cannot_come_to_the_bound_ends_and_that_is_true(monkeypatch):
    X, y, _ = rows(1500)
    asked = dict(algo="dcd", loss="hinge", C=0.5, tol=1e-4, prune=TOL, progress=False)
    ended, search = [], refitting._Search
    trained = search._trained

    def again(self, places, v, alpha):
        its, passes = trained(self, places, v, alpha), len(seen)
        seen.clear()
        with monkeypatch.context() as patch:
            patch.setattr(self, "bounded", False)  # to its end
            whole = trained(self, places, v, alpha)
        ended.append((its.primal > self.bound, whole.primal > self.bound, passes, len(seen)))
        seen.clear()
        return its

    seen = []
    monkeypatch.setattr(
        refitting, "terms_of", lambda loss, real=refitting.terms_of: lambda *of: seen.append(1) or real(loss)(*of)
    )
    monkeypatch.setattr(search, "_trained", again)
    monkeypatch.setattr(refitting, "FIRST", 0.8)  # begins with too few
    bigclf.fit(X, y, **asked)
    assert any(over for over, *_ in ended) and all(over == whole for over, whole, *_ in ended), ended
    assert any(passes < most for over, _, passes, most in ended if over), ended


def test_the_time_is_looked_at(monkeypatch, plain):
    X, y, _ = rows()
    asked = dict(algo="dcd", loss="hinge", C=0.5, tol=1e-3, prune=TOL)
    cut, drop = plain(X, y, **asked), outcome.pruned

    def late(*of):
        found = drop(*of)
        monkeypatch.setattr(Clock, "late", property(lambda clock: clock.max_seconds is not None))
        return found

    monkeypatch.setattr(outcome, "pruned", late)
    found = bigclf.fit(X, y, progress=False, max_seconds=1000, **asked)
    assert np.array_equal(found.coef_, cut.coef_) and found.certificate == cut.certificate
    assert bigclf.fit(X, y, progress=False, **asked).facts["pruned"]["kept"] < cut.facts["pruned"]["kept"]


@pytest.mark.parametrize("several", [False, pytest.param(True, marks=pytest.mark.long)])
def test_rows_so_long_that_roundings_hide_the_objective_lose_no_weight(several, quiet):
    X, y, score = rows()
    X = X.tocsr().astype(np.float64) * 1e10
    given = np.column_stack([score > 0, score > 1, score < 0]).astype(int) if several else y
    asked = dict(algo="dcd", loss="hinge", C=1.0, tol=1e-3, epochs=30, progress=False)
    whole, found = bigclf.fit(X, given, **asked), bigclf.fit(X, given, prune=TOL, **asked)
    assert np.array_equal(found.dense_weights() if several else found.coef_, whole.coef_)
    assert found.certificate["primal"] == whole.certificate["primal"]


def test_without_room_what_pruning_left_stays(monkeypatch, plain):
    X, y, _ = rows()
    asked = dict(algo="dcd", loss="hinge", C=0.5, tol=1e-3, prune=TOL)
    cut = plain(X, y, **asked)
    monkeypatch.setattr("bigclf.training.plan.Plan.left_room", 1000)
    found = bigclf.fit(X, y, progress=False, **asked)
    assert np.array_equal(found.coef_, cut.coef_) and found.certificate == cut.certificate


def test_many_passes_over_rows_that_are_not_in_memory_are_not_made():
    assert refitting._lots(range(9), 10, 30, False) == [range(3), range(3, 6), range(6, 9)]
    assert refitting._lots(range(9), 10, 10, False) == []
    assert len(refitting._lots(range(9), 10, 10, True)) == 9


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_rows_of_a_class_keep_their_mean_score_within_the_same_proof(monkeypatch, loss):
    """Else those of rare classes would come to stand behind others."""
    X, y, _ = rows(1500, classes=6)
    asked = dict(algo="dcd", loss=loss, C=0.5, tol=1e-3, progress=False)
    whole, found = bigclf.fit(X, y, **asked), bigclf.fit(X, y, prune=TOL, **asked)
    monkeypatch.setattr(refitting._Search, "_priced", lambda self, best: best)
    without = bigclf.fit(X, y, prune=TOL, **asked)

    def scores(model):
        each = X @ model.dense_weights().T + model.intercept_
        return np.array([each[y == k, k].mean() for k in range(6)])

    lost = [scores(whole) - scores(model) for model in (without, found)]
    assert np.all(lost[0] > 0) and np.all(np.abs(lost[1]) <= lost[0] + 1e-12), lost
    assert np.abs(lost[1]).sum() <= 0.5 * lost[0].sum(), lost
    for k, proof in enumerate(found.certificate["problems"]):
        w, t = found.dense_weights()[k], np.where(y == k, 1, -1)
        assert proof["primal"] == pytest.approx(primal_of(loss, w, found.intercept_[k], X, t, 0.5), rel=1e-9)
        assert proof["gap"] <= TOL


def test_a_class_of_empty_rows_has_no_score_to_keep():
    """No price moves it: by what it would move the price was divided."""
    X, y, _ = rows(300, d=200, classes=3)
    X = sp.diags((y > 0).astype(np.float32)) @ X
    found = bigclf.fit(X, y, algo="dcd", loss="hinge", bias="none", C=0.5, tol=1e-3, prune=0.1, progress=False)
    assert all(proof["gap"] <= 0.1 for proof in found.certificate["problems"])
    assert found.facts["pruned"]["kept"] < found.facts["pruned"]["of"]
