"""The raw store: a cache that gives back what was put in, notices damage, and may be lost without harm."""

import errno
import logging
import os

import numpy as np
import pytest
from making import random_rows, shards_of

from bigclf.block import Block, as_unsigned
from bigclf.data import files
from bigclf.data.dataset import Dataset
from bigclf.data.store import Buffer, RawStore, buffer_bytes
from bigclf.data.stream import Stream


@pytest.fixture(params=["float32", "binary", "weights"])
def dataset(request, tmp_path):
    x, y = random_rows(400, 50, binary=request.param == "binary")
    weights = np.random.default_rng(0).choice([0.5, 1.0, 4.0], 400) if request.param == "weights" else None
    made = shards_of(tmp_path / "shards", x, y, weights)
    assert made.n_chunks > 5 and made.binary == (request.param == "binary") and made.weighted == (weights is not None)
    return made


def buffer_for(dataset):
    return Buffer(dataset.n_rows, dataset.nnz, dataset.index_width, dataset.binary)


def filled(dataset, directory, **options):
    store = RawStore(dataset, str(directory), **options)
    for chunk in range(dataset.n_chunks):
        store.write(chunk, decoded(dataset, chunk))
    return store


def decoded(dataset, chunk):
    return dataset.decode(int(dataset.chunks.file[chunk]), int(dataset.chunks.row_group[chunk]))


def one_by_one(dataset):
    return [np.array([chunk]) for chunk in range(dataset.n_chunks)]


def assert_same(block, expected):
    """All but ids, which are the reader's own."""
    for name in ("indices", "values", "labels", "weights", "norms"):
        found = getattr(block, name)
        np.testing.assert_array_equal(found, getattr(expected, name), err_msg=name)
        assert found.dtype == getattr(expected, name).dtype, name
    np.testing.assert_array_equal(np.diff(block.indptr), np.diff(expected.indptr))


def test_what_is_put_in_comes_out(dataset, tmp_path):
    store, buffer = filled(dataset, tmp_path), buffer_for(dataset)
    for chunk in reversed(range(dataset.n_chunks)):
        assert_same(store.read(np.array([chunk]), buffer), decoded(dataset, chunk))
    together = store.read(np.arange(dataset.n_chunks), buffer)
    assert together.n_rows == 400 and together.nnz == dataset.nnz and store.rebuilt == 0
    store.close()


def test_the_file_has_no_name_and_the_buffer_the_bytes_it_says(dataset, tmp_path):
    place = tmp_path / "store"
    place.mkdir()
    store = filled(dataset, place)
    assert list(place.iterdir()) == [] and os.fstat(store.descriptor).st_size <= store.n_bytes
    store.close()
    buffer = buffer_for(dataset)
    held = [a for a in vars(buffer).values() if isinstance(a, np.ndarray)]
    size = sum(a.nbytes for a in held)
    assert size == buffer_bytes(400, dataset.nnz, dataset.index_width, dataset.binary)


def flip(store, position, bit=1):
    byte = os.pread(store.descriptor, 1, position)[0]
    os.pwrite(store.descriptor, bytes([byte ^ bit]), position)


@pytest.mark.parametrize("where", [0.0, 0.3, 0.6, 0.97])
def test_a_flipped_bit_is_noticed_and_the_record_made_anew(dataset, tmp_path, caplog, where):
    store = filled(dataset, tmp_path)
    chunk = 2
    size = int(store.offsets[chunk + 1] - store.offsets[chunk]) - 16  # the last bytes may be padding
    flip(store, int(store.offsets[chunk] + where * size), 64)
    with caplog.at_level(logging.WARNING, "bigclf"):
        assert store.read(np.array([chunk]), buffer_for(dataset)) is None
    assert store.rebuilt == 1 and not store.has(chunk) and store.has(chunk + 1) and "chunk 2" in caplog.text
    stream = Stream(dataset, dataset.chunks.row0, store=store, rows=400, nnz=dataset.nnz)
    for number, block in enumerate(stream.blocks(one_by_one(dataset))):
        assert_same(block, decoded(dataset, number))
    assert number == dataset.n_chunks - 1 and store.has(chunk)
    assert_same(store.read(np.array([chunk]), buffer_for(dataset)), decoded(dataset, chunk))
    stream.close()


def test_a_store_cut_short_is_noticed(dataset, tmp_path):
    store = filled(dataset, tmp_path)
    os.ftruncate(store.descriptor, int(store.offsets[3]) + 5)
    assert store.read(np.array([2]), buffer_for(dataset)) is not None
    assert store.read(np.array([3]), buffer_for(dataset)) is None and store.rebuilt == 1
    store.close()


def test_a_full_disk_makes_the_store_smaller_and_nothing_worse(dataset, tmp_path, monkeypatch, caplog):
    real, written = files.write_all, []

    def full_after_three(descriptor, views, offset):
        if len(written) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(offset)
        real(descriptor, views, offset)

    monkeypatch.setattr(files, "write_all", full_after_three)
    store = RawStore(dataset, str(tmp_path))
    stream = Stream(dataset, dataset.chunks.row0, store=store, rows=400, nnz=dataset.nnz)
    with caplog.at_level(logging.WARNING, "bigclf"):
        for _ in range(2):
            for chunk, block in enumerate(stream.blocks(one_by_one(dataset))):
                assert_same(block, decoded(dataset, chunk))
    assert store.stored.sum() == 3 == len(written) and "No space left" in caplog.text
    assert store.limit <= store.offsets[3] and stream.bytes_stored > 0
    stream.close()


def test_a_limit_keeps_the_first_chunks_that_fit(dataset, tmp_path):
    whole = RawStore(dataset, str(tmp_path))
    limit = int(whole.offsets[4])
    whole.close()
    store = filled(dataset, tmp_path, limit=limit)
    assert store.stored.tolist() == [True] * 4 + [False] * (dataset.n_chunks - 4)
    assert os.fstat(store.descriptor).st_size <= limit
    store.close()


def decodes_of(dataset, monkeypatch):
    calls, real = [], Dataset.decode

    def counted(self, file, row_group):
        calls.append((file, row_group))
        return real(self, file, row_group)

    monkeypatch.setattr(Dataset, "decode", counted)
    return calls


def read_through(dataset, place):
    store = RawStore(dataset, str(place), keep=True)
    stream = Stream(dataset, dataset.chunks.row0, store=store, rows=400, nnz=dataset.nnz)
    found = [Block(*(array.copy() for array in block)) for block in stream.blocks(one_by_one(dataset))]
    stream.close()
    return found


def test_a_kept_store_serves_the_next_run(dataset, tmp_path, monkeypatch):
    calls = decodes_of(dataset, monkeypatch)
    place = tmp_path / "kept"
    place.mkdir()
    first = read_through(dataset, place)
    assert len(calls) == dataset.n_chunks and list(place.iterdir())
    again = read_through(Dataset(tmp_path / "shards"), place)
    assert len(calls) == dataset.n_chunks  # nothing was decoded twice
    for block, other in zip(first, again, strict=True):
        assert_same(block, other)
        np.testing.assert_array_equal(block.ids, other.ids)


@pytest.mark.parametrize("damage", ["bits", "index", "other data"])
def test_a_kept_store_that_is_damaged_or_of_other_data_is_made_anew(dataset, tmp_path, monkeypatch, damage):
    place = tmp_path / "kept"
    place.mkdir()
    expected = read_through(dataset, place)
    for path in place.iterdir():
        content = bytearray(path.read_bytes())
        if damage == "bits" and path.suffix == ".bin":
            content[100] ^= 4
        elif damage == "index" and path.suffix == ".npz":
            content = content[: len(content) // 2]
        elif damage == "other data":
            path = path.with_name(path.name.replace(dataset.digest, "0" * 32))
        path.write_bytes(content)
    if damage == "other data":
        for path in place.glob(f"*{dataset.digest}*"):
            path.unlink()
    calls = decodes_of(dataset, monkeypatch)
    for block, other in zip(read_through(dataset, place), expected, strict=True):
        assert_same(block, other)
    assert len(calls) == (1 if damage == "bits" else dataset.n_chunks)


def test_indices_keep_their_width(tmp_path):
    x, y = random_rows(50, 20)
    made = shards_of(tmp_path / "wide", x, y, n_features=2**31 + 10)
    store = filled(made, tmp_path)
    block = store.read(np.array([0]), buffer_for(made))
    assert block.indices.dtype == as_unsigned(np.zeros(1, f"int{8 * made.index_width}")).dtype
    assert_same(block, decoded(made, 0))
    store.close()
