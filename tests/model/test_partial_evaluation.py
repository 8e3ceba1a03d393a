"""An evaluation in parts: wherever the cuts are and whoever measures, the figures are the same to the bit."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from bigclf.conversion.convert import write_shards
from bigclf.data.dataset import Dataset
from bigclf.errors import DataError, MemoryBudgetError
from bigclf.metrics.figures import (
    BinnedRanking,
    PartialEvaluation,
    Ranking,
    concluded,
    evaluate,
    exact_auc_fits,
    partial_evaluation,
    scoring_bytes,
)
from bigclf.model.model import Model

D, ROWS = 9, 500
CLASSES = {"two": (-1, 1), "two, a label unknown": (-1, 1), "four": ("a", "b", "c", "d")}


def make(classes, loss):
    rng = np.random.default_rng(0)
    rows = 1 if len(classes) == 2 else len(classes)
    weights = rng.integers(-4, 5, (rows, D)) / 4  # so that decision values tie
    return Model(weights, np.zeros(rows), classes, method={"name": "dcd", "loss": loss})


def rows_and_labels(kind):
    """Rows with two features the model does not know, and labels of ``kind``, some unknown to it if that says so."""
    X = scipy.sparse.random(ROWS, D + 2, 0.4, format="csr", random_state=1, dtype=np.float32)
    X.data[:] = np.ceil(4 * X.data)
    labels = (-1, 1, 7) if "unknown" in kind else CLASSES[kind]
    return X, np.random.default_rng(3).choice(np.array(labels), ROWS)


def own_shards(X, y, out):
    """Several files, every chunk a row group; rows with weights."""
    classes, codes = np.unique(y, return_inverse=True)
    weights = np.random.default_rng(4).exponential(size=y.size).astype(np.float32)
    row = (X.indptr.astype(np.int64), X.indices, X.data, codes, weights)
    return write_shards([row], str(out), classes=classes, n_features=X.shape[1], chunk_nnz=100, shard_nnz=600)


def foreign_file(X, y, out):
    """One file whose row groups are cut into several chunks."""
    rows = [slice(a, b) for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True)]
    indices = pa.array([X.indices[r].tolist() for r in rows], pa.list_(pa.int32()))
    values = pa.array([X.data[r].tolist() for r in rows], pa.list_(pa.float32()))
    out.mkdir()
    pq.write_table(pa.table({"label": y, "indices": indices, "values": values}), out / "x.parquet", row_group_size=170)
    return Dataset(str(out / "x.parquet"), target_nnz=100)


@pytest.fixture(scope="module", params=list(CLASSES))
def kind(request):
    return request.param


@pytest.fixture(scope="module", params=[own_shards, foreign_file], ids=["shards", "cut row groups"])
def stored(request, kind, tmp_path_factory):
    dataset = request.param(*rows_and_labels(kind), tmp_path_factory.mktemp("rows") / "s")
    assert dataset.n_chunks > 10
    return dataset


@pytest.fixture(params=["hinge", "logistic"])
def model(request, kind):
    return make(CLASSES[kind], request.param)


def figures(evaluation):
    """All of it but the time; floats by ``repr``, which tells every bit."""
    return repr({**evaluation.to_dict(), "seconds": None})


def in_parts(model, dataset, cuts, exact, ship=lambda part: part):
    total = PartialEvaluation(model, exact=exact, rows=dataset.n_rows)
    for first, last in zip(cuts[:-1], cuts[1:], strict=True):
        total.merge(ship(partial_evaluation(model, dataset, first, last, exact=exact)))
    return total


def shipped(part):
    return pickle.loads(pickle.dumps(part, protocol=5))


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "bins"])
def test_no_cut_changes_a_bit(model, stored, exact, monkeypatch):
    if not exact:
        monkeypatch.setattr("bigclf.metrics.figures.BYTES_PER_ROW", 10**9)
    assert exact_auc_fits(model, stored, 10**9) == exact
    whole, n = figures(evaluate(model, stored)), stored.n_chunks
    rng = np.random.default_rng(0)
    some = [np.sort(rng.integers(0, n + 1, 4)).tolist() for _ in range(2)]  # some parts are empty
    for cuts in ([0, n], list(range(n + 1)), *([0, *cut, n] for cut in some)):
        assert figures(concluded(model, stored, in_parts(model, stored, cuts, exact, shipped))) == whole


def test_parts_of_parts(model, stored):
    """Neighbours may be merged before they are merged with the rest, into a part that has no room for them."""
    n = stored.n_chunks
    parts = [partial_evaluation(model, stored, k, min(k + 3, n), exact=True) for k in range(0, n, 3)]
    while len(parts) > 1:
        for left, right in zip(parts[::2], parts[1::2], strict=False):
            left.merge(right)
        parts = parts[::2]
    assert figures(concluded(model, stored, parts[0])) == figures(evaluate(model, stored))


def test_measuring_again_gives_the_same_and_merging_leaves_the_part_as_it_is(model, stored):
    again = [pickle.dumps(partial_evaluation(model, stored, 2, 7, exact=True)) for _ in range(2)]
    assert again[0] == again[1]
    part = pickle.loads(again[0])
    in_parts(model, stored, [0, 2], True).merge(part)
    assert pickle.dumps(part) == again[0]


def test_another_process_can_measure(tmp_path):
    model, dataset = make((-1, 1), "logistic"), own_shards(*rows_and_labels("two"), tmp_path / "s")
    half = dataset.n_chunks // 2
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        there = [
            pool.submit(partial_evaluation, model, dataset, first, last, exact=True)
            for first, last in ((0, half), (half, dataset.n_chunks))
        ]
        total = PartialEvaluation(model, exact=True, rows=dataset.n_rows)
        for future in there:
            total.merge(future.result())
    assert figures(concluded(model, dataset, total)) == figures(evaluate(model, dataset))


def test_each_chunk_counts_once(tmp_path):
    model, dataset = make((-1, 1), "hinge"), own_shards(*rows_and_labels("two"), tmp_path / "s")
    total = in_parts(model, dataset, [0, 4], True)
    before = pickle.dumps(total)
    for first, last in ((0, 4), (3, 6), (5, 7)):  # twice, in part twice, too soon
        with pytest.raises(ValueError, match=f"after chunks 0:4 come others than {first}:{last}"):
            total.merge(partial_evaluation(model, dataset, first, last, exact=True))
    with pytest.raises(ValueError, match="0:4 of"):
        concluded(model, dataset, total)
    with pytest.raises(ValueError, match="none does"):
        total.merge(partial_evaluation(model, dataset, 4, 6, exact=False))
    with pytest.raises(ValueError, match="different models"):
        total.merge(partial_evaluation(make((-1, 1), "logistic"), dataset, 4, 6, exact=True))
    assert pickle.dumps(total) == before
    for first, last in ((-1, 3), (4, 3), (0, dataset.n_chunks + 1)):
        with pytest.raises(ValueError, match="there are chunks"):
            partial_evaluation(model, dataset, first, last, exact=True)


def test_the_progress_of_a_part_is_that_of_its_rows(stored, model):
    seen = []
    part = partial_evaluation(model, stored, 1, 6, exact=True, advance=lambda rows, size: seen.append((rows, size)))
    assert sum(rows for rows, _ in seen) == part.n == stored.chunks.rows[1:6].sum()
    assert all(size > 0 for _, size in seen)


def test_the_budget_decides_once(tmp_path):
    model, dataset = make((-1, 1), "hinge"), own_shards(*rows_and_labels("two"), tmp_path / "s")
    least = scoring_bytes(model, dataset)
    assert exact_auc_fits(model, dataset, least + 12 * ROWS)
    assert not exact_auc_fits(model, dataset, least + 12 * ROWS - 1)
    assert not exact_auc_fits(model, dataset, least)
    with pytest.raises(MemoryBudgetError, match="or more"):
        exact_auc_fits(model, dataset, least - 1)
    rough = evaluate(model, dataset, memory=least)
    assert rough.auc_bound > 0 and abs(rough.auc - evaluate(model, dataset).auc) <= rough.auc_bound


def test_rows_without_labels_measure_nothing(tmp_path):
    pq.write_table(pa.table({"indices": pa.array([[0, 2], [1]], pa.list_(pa.int32()))}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="no labels"):
        evaluate(make((-1, 1), "hinge"), Dataset(str(tmp_path / "x.parquet"), need_labels=False))


PARTS = st.lists(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), max_size=9), max_size=6)


@settings(max_examples=40, deadline=None)
@given(PARTS, st.integers(0, 40))
def test_rankings_merge_whatever_room_they_have(parts, room):
    check_merging(parts, room)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(PARTS, st.integers(0, 40))
def test_many_rankings_merge_whatever_room_they_have(parts, room):
    check_merging(parts, room)


def check_merging(parts, room):
    merged, added, bins = Ranking(room), Ranking(0), BinnedRanking()
    for part in parts:
        scores = np.array([score for score, _ in part], np.float64)
        positive = np.array([label for _, label in part], bool)
        for ranking in (mine := Ranking(len(part) + 2), added, counted := BinnedRanking()):
            ranking.add(scores, positive)
        merged.merge(shipped(mine))
        bins.merge(shipped(counted))
    assert merged.negative.tobytes() == added.negative.tobytes()
    assert merged.positive.tobytes() == added.positive.tobytes()
    rows = [row for part in parts for row in part]
    negative, positive = (np.array([s for s, label in rows if label == k], float)[:, None] for k in (False, True))
    if negative.size and positive.size:
        area = float(((negative < positive.T) + 0.5 * (negative == positive.T)).mean())
        assert merged.auc(step=3)[0] == added.auc()[0] == pytest.approx(area, abs=1e-12)
        auc, bound = bins.auc()
        assert abs(auc - area) <= bound + 1e-12


def test_what_is_shipped_is_small():
    """Room that was not used and bins that nobody is in stay at home."""
    scores = np.random.default_rng(0).normal(size=1000)
    exact, bins = Ranking(10**6), BinnedRanking()
    for ranking in (exact, bins):
        ranking.add(scores, scores > 0)
    assert len(pickle.dumps(exact)) < 8 * 1000 + 500
    assert len(pickle.dumps(bins)) < 20 * 1000 + 500
    assert (shipped(bins)._counts == bins._counts).all()
