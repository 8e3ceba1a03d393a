"""Working sets that take over, after the first epoch, the memory in which large row groups were decoded."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from making import fit, interrupted_after, of_older_version

from bigclf.data.dataset import Dataset
from bigclf.stream.blocks import Stream
from bigclf.stream.working_set import WorkingSet
from bigclf.training import engines, executor
from bigclf.training import plan as planning

PLAN = planning.make_plan
ROWS, LENGTH, FEATURES = 12_000, 50, 2000  # of a row group: more than is decoded at once
SHAPE = dict(memory="54MB", progress=False, C=1.0, tol=0, epochs=3, segments=2, inner_rounds=2, working_set=0.6)
GROUPS = dict(groups=2, memory="56MB")
pytestmark = pytest.mark.filterwarnings("ignore:not converged")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Rows in four large row groups that another program wrote, with labels that nothing separates."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("rows") / "f.parquet"
    n = 4 * ROWS
    indices = np.sort(rng.integers(0, FEATURES // LENGTH, (n, LENGTH)) + np.arange(LENGTH) * (FEATURES // LENGTH))
    labels = rng.standard_normal(FEATURES)[indices].sum(axis=1) + 4 * rng.standard_normal(n) > 0
    lists = pa.ListArray.from_arrays(np.arange(0, n * LENGTH + 1, LENGTH, np.int32), indices.ravel().astype(np.int32))
    values = pa.ListArray.from_arrays(lists.offsets, rng.uniform(0.1, 0.2, n * LENGTH).astype(np.float32))
    table = pa.table({"label": labels.astype(np.int8), "indices": lists, "values": values})
    pq.write_table(table, path, row_group_size=ROWS)
    return path


@pytest.fixture(scope="module")
def undisturbed(foreign):
    return {groups: fit(foreign, **SHAPE | (GROUPS if groups > 1 else {})) for groups in (1, 2)}


@pytest.fixture
def events(monkeypatch):
    """What is decoded, and rows that come to grown sets again, in their order."""
    told, decode, fill = [], Stream._decode, WorkingSet.fill

    def decoding(self, *given):
        told.append("decoded")
        return decode(self, *given)

    def filling(self, block):
        told.append("filled" if self.grown else "")
        return fill(self, block)

    monkeypatch.setattr(Stream, "_decode", decoding)
    monkeypatch.setattr(WorkingSet, "fill", filling)
    return told


def same(model, whole):
    return model.digest() == whole.digest() and model.certificate == whole.certificate


def test_the_set_takes_the_memory_of_decoding_after_the_first_epoch(foreign, undisturbed):
    result = undisturbed[1].result_
    plan, seen = result.plan, [record["working_set_rows"] for record in result.history]
    assert not plan["resident"] and plan["memory"]["planned"] <= 54_000_000
    assert seen[0] <= plan["set_rows"] < seen[1] <= plan["grown"][0]
    decoding = planning.decoding_bytes(Dataset(foreign))
    grown = plan["memory"]["working set"] * (1 - plan["set_nnz"] / plan["grown"][1])
    assert grown > 2_000_000 and grown + plan["memory"]["decoding"] == pytest.approx(decoding, rel=0.1)


@pytest.mark.parametrize("stop_after", [1, 2, 3, 4, 5])
def test_stopped_anywhere_and_resumed_it_has_the_same_bits(foreign, undisturbed, stop_after, events, tmp_path):
    shape = SHAPE | dict(run_dir=tmp_path, checkpoint_every=0)
    with interrupted_after(stop_after):
        fit(foreign, **shape)
    events.clear()
    assert same(fit(foreign, resume=True, **shape), undisturbed[1])
    first = events.index("filled") if "filled" in events else len(events)
    assert ("filled" in events) == (stop_after > 2) and "decoded" not in events[first:] and "decoded" in events


@pytest.mark.parametrize("stop_after", [2, 3])
@pytest.mark.parametrize("apart", [False, True], ids=["at once", "one by one"])
def test_groups_resumed_one_by_one_lay_their_sets_aside(
    foreign, undisturbed, stop_after, apart, events, monkeypatch, tmp_path
):
    """As a worker does that takes a group over: it decodes its rows with room for that."""
    shape = SHAPE | GROUPS | dict(run_dir=tmp_path, checkpoint_every=0)
    with interrupted_after(stop_after):
        fit(foreign, **shape)
    laid, let_go = [], WorkingSet.let_go
    monkeypatch.setattr(WorkingSet, "let_go", lambda self: laid.append(self.n_rows) or let_go(self))
    if apart:
        monkeypatch.setattr(engines.LocalEngine, "restore", lambda self, *given: self.bench.restore(*given))
    assert same(fit(foreign, resume=True, **shape), undisturbed[2])
    assert bool(laid) == (apart and stop_after == 3)


def test_workers_have_the_same_bits(foreign, undisturbed, client, tmp_path):
    shape = SHAPE | GROUPS | dict(workers=client, run_dir=tmp_path, checkpoint_every=0)
    assert same(fit(foreign, **shape), undisturbed[2])
    (tmp_path / "model.bigclf").unlink()
    longer = {"epochs": 4}
    here = fit(foreign, **SHAPE | GROUPS | longer)
    assert fit(foreign, resume=True, **shape | longer).digest() == here.digest()


@pytest.mark.parametrize("groups", [1, 2])
def test_with_row_state_on_disk_it_has_the_same_bits(foreign, undisturbed, groups, monkeypatch, tmp_path):
    monkeypatch.setattr(
        planning, "make_plan", lambda *given, **named: dataclasses.replace(PLAN(*given, **named), rows_sides=2)
    )
    shape = SHAPE | (GROUPS if groups > 1 else {}) | dict(run_dir=tmp_path, checkpoint_every=0)
    with interrupted_after(3):
        fit(foreign, **shape)
    assert same(fit(foreign, resume=True, **shape), undisturbed[groups])


def test_where_the_disk_has_no_room_for_all_rows_the_set_lies_in_a_file(foreign, undisturbed, monkeypatch, tmp_path):
    real, filed = executor.RawStore, []
    monkeypatch.setattr(executor, "RawStore", lambda *given, limit, **named: real(*given, limit=10**7, **named))
    put = WorkingSet.put_in_file
    monkeypatch.setattr(WorkingSet, "put_in_file", lambda self, place: filed.append(self.filed) or put(self, place))
    assert same(fit(foreign, **SHAPE), undisturbed[1]) and filed[0] is False and all(filed[1:])


def test_a_run_that_was_begun_before_sets_grew_goes_on_without(foreign, undisturbed, monkeypatch, tmp_path):
    shape = SHAPE | dict(run_dir=tmp_path, checkpoint_every=0)
    with monkeypatch.context() as patch:
        patch.setattr(planning, "make_plan", lambda *given, **named: PLAN(*given, **named | {"before": {"groups": []}}))
        before = fit(foreign, **SHAPE)
        with interrupted_after(3):
            fit(foreign, **shape)
    of_older_version(tmp_path, "grown")
    found = fit(foreign, resume=True, **shape)
    assert same(found, before) and not same(found, undisturbed[1]) and not found.result_.plan["grown"]
