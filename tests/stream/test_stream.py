"""The stream: every row once, in an order that is a function of the plan, the epoch and the group, and nothing else."""

import os
import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from making import dense, in_segments, random_rows, shards_of

from bigclf import files
from bigclf.data import dataset as dataset_module
from bigclf.data import shards
from bigclf.data.arrays import Arrays, cut
from bigclf.data.chunk_table import Chunks
from bigclf.data.dataset import Dataset
from bigclf.errors import DataError
from bigclf.methods import resolve
from bigclf.stream import blocks as stream_module
from bigclf.stream.blocks import Stream
from bigclf.stream.raw_store import RawStore
from bigclf.training.plan import group_edges, make_plan, segment_units, units_of
from bigclf.training.problems import make_problems

D = 50


@pytest.fixture(scope="module")
def rows():
    return random_rows(600, D)


@pytest.fixture(scope="module")
def dataset(rows, tmp_path_factory):
    made = shards_of(tmp_path_factory.mktemp("stream") / "shards", *rows, chunk_nnz=300, shard_nnz=3000)
    assert made.n_chunks > 15 and len(made.files) > 1
    return made


def stream_of(source, **options):
    options = {"rows": source.n_rows, "nnz": source.nnz, **options}
    return Stream(source, source.chunks.row0, **options)


def seen(stream, units, then=()):
    """(dense rows in their order of ids, ids in their order of arrival)."""
    parts = [(dense(block, D), block.ids.copy(), block.labels.copy()) for block in stream.blocks(units, then)]
    ids = np.concatenate([part[1] for part in parts])
    place = np.argsort(ids)
    return np.vstack([part[0] for part in parts])[place], ids, np.concatenate([part[2] for part in parts])[place]


def plan_for(source, groups=1, algo="pa1", memory=16_500_000, seed=0, segments=None):
    problems = make_problems(np.array([0, 1]), np.ones(2), resolve(algo, None, None, None, {}))
    with in_segments(segments):
        return make_plan(source, problems, memory=memory, dtype="float64", seed=seed, groups=groups, threads=2,
                         in_memory=False, reads=9)  # fmt: skip


CHUNK_BYTES = 48 * 600 // 20


# Blocks


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("buffers", [2, 4])
@pytest.mark.parametrize("stored", [False, True], ids=["decoded", "store"])
def test_every_row_comes_once_as_it_is(rows, dataset, tmp_path, threads, buffers, stored):
    store = RawStore(dataset, str(tmp_path)) if stored else None
    stream = stream_of(dataset, store=store, threads=threads, buffers=buffers)
    order = np.random.default_rng(0).permutation(dataset.n_chunks)
    units = np.array_split(order, 6)
    for _ in range(3):  # decoded, then from the store
        x, ids, codes = seen(stream, units)
        np.testing.assert_array_equal(x, rows[0].toarray())
        np.testing.assert_array_equal(codes, (rows[1] > 0).astype(float))
        chunks = dataset.chunks
        expected = [np.arange(chunks.row0[c], chunks.row0[c] + chunks.rows[c]) for unit in units for c in unit]
        np.testing.assert_array_equal(ids, np.concatenate(expected))
    assert (stream.bytes_stored > 0) == stored
    stream.close()


def test_ids_are_places_in_the_group_s_own_rows(dataset):
    edges = group_edges(dataset.chunks.nnz, 3)
    place = np.concatenate([dataset.chunks.row0[a:b] - dataset.chunks.row0[a] for a, b in edges])
    stream = Stream(dataset, place, rows=600, nnz=dataset.nnz)
    for a, b in edges:
        ids = np.concatenate([block.ids.copy() for block in stream.blocks([np.arange(a, b)])])
        np.testing.assert_array_equal(ids, np.arange(dataset.chunks.rows[a:b].sum()))
    stream.close()


def test_all_chunks_loaded_are_one_block(rows, dataset):
    stream = stream_of(dataset)
    block = stream.load(np.arange(dataset.n_chunks))
    np.testing.assert_array_equal(dense(block, D), rows[0].toarray())
    np.testing.assert_array_equal(block.ids, np.arange(600))
    norms = (rows[0].toarray().astype(float) ** 2).sum(axis=1)
    np.testing.assert_allclose(block.norms, norms, rtol=1e-12)
    stream.close()


@pytest.fixture
def foreign(rows, tmp_path, monkeypatch):
    """Two files of other people's: row groups of 200 and 100 rows, each decoded in parts; some rows take no part."""
    for module in (shards, dataset_module):
        monkeypatch.setattr(module, "PART_BYTES", 1 << 9)
    x, y = rows
    lists = [pa.ListArray.from_arrays(x.indptr.astype(np.int32), part) for part in (x.indices, x.data)]
    weight = np.arange(600) % 7 != 3
    table = pa.table({"label": y, "indices": lists[0], "values": lists[1], "weight": weight.astype(np.float32)})
    (tmp_path / "foreign").mkdir()
    for name, first in (("a", 0), ("b", 300)):
        pq.write_table(table[first : first + 300], tmp_path / "foreign" / f"{name}.parquet", row_group_size=200)
    made = Dataset(tmp_path / "foreign", target_nnz=300).taking_part()
    assert made.n_chunks > 12 and made.in_parts.all() and made.n_rows == weight.sum() < 600
    return made


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("within", ["all", "from the middle of a row group to that of another file's"])
def test_row_groups_loaded_whole_are_what_their_parts_are(foreign, monkeypatch, threads, within):
    chunks = np.arange(foreign.n_chunks)
    if within != "all":
        chunks = chunks[1:-1]
        assert len({*zip(foreign.chunks.file[chunks], foreign.chunks.row_group[chunks], strict=True)}) == 4
    decoded, at_once = [], shards.read_rows
    monkeypatch.setattr(shards, "read_rows", lambda *given: decoded.append(given) or at_once(*given))
    loaded = []
    for whole in (False, True):
        stream = stream_of(foreign, threads=threads, whole=whole)
        loaded.append(stream.load(chunks))
        blocks = stream.bytes_decoded - 40 * foreign.chunks.rows[chunks].sum() - 8 * foreign.chunks.nnz[chunks].sum()
        assert blocks / 8 == (chunks.size if not whole else 4 if within == "all" else 2 + 7)
        stream.close()
        assert len(decoded) == (0 if not whole else 4 if within == "all" else 2)
    for parts, at_a_time in zip(*loaded, strict=True):
        np.testing.assert_array_equal(parts, at_a_time)
    first, last = foreign.chunks.row0[chunks[0]], foreign.chunks.row0[chunks[-1]] + foreign.chunks.rows[chunks[-1]]
    np.testing.assert_array_equal(loaded[1].ids, np.arange(first, last))


def test_a_fault_in_a_row_group_loaded_whole_is_told_and_ends_the_others(foreign, monkeypatch):
    def fails(*given):
        raise DataError("row group 1, row 7")

    monkeypatch.setattr(shards, "read_rows", fails)
    with pytest.raises(DataError, match="row 7"):
        stream_of(foreign, threads=2, whole=True).load(np.arange(foreign.n_chunks))
    assert not any(thread.name.startswith("bigclf-read") for thread in threading.enumerate())


def test_arrays_stream_without_a_copy(rows):
    source = Arrays(*rows, least_chunks=7)
    assert source.n_chunks > 5
    stream = stream_of(source)
    x, ids, _ = seen(stream, [np.array([c]) for c in range(source.n_chunks)])
    np.testing.assert_array_equal(x, rows[0].toarray())
    np.testing.assert_array_equal(ids, np.arange(600))
    assert np.shares_memory(stream.load(np.arange(source.n_chunks)).values, rows[0].data)
    stream.close()


@pytest.mark.parametrize("threads", [0, 1])
def test_nothing_to_read_is_no_block(dataset, threads):
    stream = stream_of(dataset, threads=threads)
    assert list(stream.blocks([])) == []
    stream.close()


@pytest.mark.timeout(30)
def test_a_reader_that_stops_early_leaves_no_thread_behind(dataset, tmp_path):
    stream = stream_of(dataset, store=RawStore(dataset, str(tmp_path)), threads=2)
    units = [np.array([chunk]) for chunk in range(dataset.n_chunks)]
    for _ in range(4):
        taken = stream.blocks(units)
        next(taken), next(taken)
        taken.close()
    assert not [t for t in threading.enumerate() if t.name.startswith(("bigclf-read", "bigclf-write"))]
    x, _, _ = seen(stream, units)  # and it still has all its buffers
    assert x.shape == (600, D)
    stream.close()


@pytest.fixture
def stored(dataset, tmp_path, monkeypatch):
    """(a stream whose store has every chunk, what the store is asked for from now on)."""
    stream = stream_of(dataset, store=RawStore(dataset, str(tmp_path)), threads=2)
    seen(stream, [np.arange(dataset.n_chunks)])
    asked, real = [], RawStore.read
    monkeypatch.setattr(RawStore, "read", lambda store, unit, *a: asked.append(unit.tolist()) or real(store, unit, *a))
    yield stream, asked
    stream.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("bigclf-read")]


@pytest.mark.timeout(30)
def test_the_first_block_of_the_next_read_is_brought_at_the_end_of_this_one(rows, dataset, stored):
    stream, asked = stored
    units = np.array_split(np.random.default_rng(0).permutation(dataset.n_chunks), 5)
    for _ in range(3):
        x, _, _ = seen(stream, units, units)
        np.testing.assert_array_equal(x, rows[0].toarray())
        stream._begun.future.result()
        asked.remove(units[0].tolist())  # once, for the read after this one
    assert sorted(asked) == sorted(unit.tolist() for unit in [*units, *units[1:], *units[1:]])


@pytest.mark.timeout(30)
def test_a_read_other_than_the_promised_one_loses_no_row_and_no_buffer(rows, dataset, stored):
    stream, _ = stored
    generator = np.random.default_rng(0)
    for turn in range(8):
        units, then = (np.array_split(generator.permutation(dataset.n_chunks), 5) for _ in range(2))
        if turn % 3 == 2:  # whoever reads breaks off, early or with the promised block under way
            taken = stream.blocks(units, then)
            for _ in range(turn // 2 + 1):
                next(taken)
            taken.close()
        x, _, _ = seen(stream, units, then)
        np.testing.assert_array_equal(x, rows[0].toarray())


@pytest.mark.timeout(30)
def test_a_damaged_record_of_the_promised_block_is_made_anew(rows, dataset, stored):
    stream, _ = stored
    units = [np.array([chunk]) for chunk in range(dataset.n_chunks)]
    blocks = stream.blocks(units, units)
    next(blocks)
    stream.store.sums[0] += 1
    list(blocks)
    assert stream._begun.future.result() is None and stream.store.rebuilt == 1
    x, _, _ = seen(stream, units)
    np.testing.assert_array_equal(x, rows[0].toarray())
    assert stream.store.has(0)


@pytest.mark.timeout(30)
def test_decoding_goes_on_while_a_record_is_written(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr("bigclf.stream.raw_store.DIRECT", 1)
    monkeypatch.setattr(files, "direct_descriptor", os.dup)  # whatever the disk of this test can do
    real, began, may_go_on, writers = files.write_all, threading.Event(), threading.Event(), []

    def slow(descriptor, views, offset):
        writers.append(threading.current_thread().name)
        began.set()
        assert may_go_on.wait(20)
        real(descriptor, views, offset)

    monkeypatch.setattr(files, "write_all", slow)
    room = 6  # for a record of each block that may be under way: none of the first two waits for later ones
    monkeypatch.setattr(stream_module, "_Writer", lambda store, _, make=stream_module._Writer: make(store, room))
    store = RawStore(dataset, str(tmp_path))
    stream = stream_of(dataset, store=store, threads=2, buffers=4)
    taken = stream.blocks([np.array([chunk]) for chunk in range(dataset.n_chunks)])
    x = [dense(next(taken), D) for _ in range(2)]  # the disk has written nothing yet
    assert began.wait(20) and len(writers) == 1 and writers[0].startswith("bigclf-write") and not store.stored.any()
    may_go_on.set()
    x += [dense(block, D) for block in taken]
    assert store.stored.all() and len(writers) == dataset.n_chunks  # when the read ends, all is
    np.testing.assert_array_equal(np.concatenate(x), seen(stream, [np.arange(dataset.n_chunks)])[0])
    assert stream.bytes_stored > 0
    stream.close()


def test_an_error_of_the_writer_reaches_the_one_who_reads(dataset, tmp_path, monkeypatch):
    def broken(descriptor, views, offset):
        raise RuntimeError("the writer fell over")

    monkeypatch.setattr("bigclf.stream.raw_store.DIRECT", 1)
    monkeypatch.setattr(files, "direct_descriptor", os.dup)
    monkeypatch.setattr(files, "write_all", broken)
    stream = stream_of(dataset, store=RawStore(dataset, str(tmp_path)), threads=2)
    with pytest.raises(RuntimeError, match="writer fell over"):
        list(stream.blocks([np.array([chunk]) for chunk in range(dataset.n_chunks)]))
    assert not [t for t in threading.enumerate() if t.name.startswith(("bigclf-read", "bigclf-write"))]
    stream.close()


def test_an_error_in_a_reader_reaches_the_one_who_asked(dataset, monkeypatch):
    def broken(self, file, row_group, into=None):
        raise RuntimeError("the reader fell over")

    monkeypatch.setattr(Dataset, "decode", broken)
    stream = stream_of(dataset)
    with pytest.raises(RuntimeError, match="fell over"):
        list(stream.blocks([np.array([0]), np.array([1])]))
    assert not [t for t in threading.enumerate() if t.name.startswith("bigclf-read")]


def test_a_row_group_that_was_cut_is_decoded_once_for_its_neighbours(rows, tmp_path, monkeypatch):
    shards_of(tmp_path / "s", *rows, chunk_nnz=10**6)
    import pyarrow.parquet as pq

    plain = pq.read_table(next((tmp_path / "s").glob("part-*.parquet"))).replace_schema_metadata(None)
    pq.write_table(plain, tmp_path / "foreign.parquet", row_group_size=300)
    dataset = Dataset(tmp_path / "foreign.parquet", target_nnz=400)
    assert dataset.n_chunks > 6
    calls, real = [], shards.read_parts
    monkeypatch.setattr(shards, "read_parts", lambda *given: calls.append(given[2]) or real(*given))
    stream = stream_of(dataset)
    x, ids, _ = seen(stream, [np.array([c]) for c in range(dataset.n_chunks)])
    np.testing.assert_array_equal(x[:, : dataset.n_features], rows[0].toarray()[:, : dataset.n_features])
    np.testing.assert_array_equal(np.sort(ids), np.arange(600))
    assert calls == [0, 1]


# The order


@settings(max_examples=60, deadline=None)
@example(sizes=[1, 100, 1, 1, 1], groups=3, block=1, epoch=1, segments=1, sequential=True, shared=1)
@given(
    sizes=st.lists(st.integers(1, 200), min_size=1, max_size=40),
    groups=st.integers(1, 6),
    block=st.integers(1, 2000),
    epoch=st.integers(1, 9),
    segments=st.integers(1, 5),
    sequential=st.booleans(),
    shared=st.integers(1, 3),
)
def test_the_blocks_of_all_groups_and_segments_cover_every_chunk_once(
    sizes, groups, block, epoch, segments, sequential, shared
):
    nnz = np.array(sizes, np.int64)
    numbers = np.arange(nnz.size)
    chunks = Chunks(numbers * 0, numbers // shared, numbers * 0, nnz, nnz, np.cumsum(nnz) - nnz)
    plan = some_plan()
    if groups > nnz.size:
        with pytest.raises(ValueError, match=f"groups={groups}"):
            group_edges(nnz, groups)
        return
    edges = group_edges(nnz, groups)
    plan = replace(
        plan, groups=edges, block_bytes=block, segments=segments, sequential=sequential, by_row_group=shared > 1
    )
    assert len(edges) == groups
    assert [edges[0][0], *(b for _, b in edges)] == [a for a, _ in edges] + [nnz.size]
    found = []
    for group, (first, last) in enumerate(edges):
        units = units_of(plan, chunks, nnz * 8, group, epoch)
        parts = [unit for segment in range(segments) for unit in segment_units(plan, units, segment)]
        assert [u.tolist() for u in parts] == [u.tolist() for u in units]
        order = np.concatenate(units)
        assert sorted(order.tolist()) == [*range(first, last)]
        assert all(u.size == 1 or (nnz[u] * 8).sum() <= block for u in units)
        if sequential:
            assert order.tolist() == [*range(first, last)]
        keys = chunks.row_group[order]
        assert (np.diff(keys) != 0).sum() == np.unique(keys).size - 1  # each row group is decoded once
        found += order.tolist()
    assert sorted(found) == numbers.tolist()


def some_plan():
    return plan_for(Arrays(*random_rows(50, D)), memory=10**9)


def test_the_order_is_a_function_of_seed_epoch_and_group_only(dataset):
    def order(seed=0, epoch=1, group=0):
        plan = plan_for(dataset, groups=2, seed=seed)
        assert not plan.resident and not plan.sequential
        sizes = np.full(dataset.n_chunks, CHUNK_BYTES)
        return np.concatenate(units_of(plan, dataset.chunks, sizes, group, epoch)).tolist()

    base = order()
    assert base == order() and base != sorted(base)
    assert base != order(seed=1) and base != order(epoch=2) and set(order(group=1)).isdisjoint(base)


def test_with_a_working_set_blocks_come_in_the_order_of_the_files(dataset):
    plan = plan_for(dataset, algo="dcd", memory=16_500_000)
    assert plan.sequential and plan.set_rows > 0
    units = units_of(plan, dataset.chunks, np.full(dataset.n_chunks, CHUNK_BYTES), 0, 3)
    assert np.concatenate(units).tolist() == [*range(dataset.n_chunks)]


@settings(max_examples=50, deadline=None)
@given(lengths=st.lists(st.integers(0, 9), max_size=50), least=st.integers(1, 9))
def test_arrays_are_cut_into_chunks_that_cover_every_row_once(lengths, least):
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    chunks = cut(indptr, least)
    assert chunks.rows.sum() == len(lengths) and chunks.nnz.sum() == indptr[-1] and (chunks.rows > 0).all()
    assert chunks.rows.size >= min(least, len(lengths))
    assert chunks.row0.tolist() == [0, *np.cumsum(chunks.rows)[:-1].tolist()][: chunks.rows.size]
