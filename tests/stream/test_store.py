"""The raw store: a cache that gives back what was put in, notices damage, and may be lost without harm."""

import errno
import logging
import os

import numpy as np
import pytest
import scipy.sparse as sp
from making import random_rows, shards_of

from bigclf import files
from bigclf.data.arrays import Arrays
from bigclf.data.dataset import Dataset
from bigclf.maths.block import Block, as_unsigned
from bigclf.stream.blocks import Stream
from bigclf.stream.raw_store import FETCH_SHARE, Buffer, RawStore, buffer_bytes, is_finished


@pytest.fixture(params=["float32", "binary", "weights", "constant", "packed"])
def dataset(request, tmp_path):
    constant = request.param in ("constant", "packed")
    x, y = random_rows(400, 50, binary=request.param == "binary", constant=constant)
    if request.param == "packed":  # rows of 20 entries: their indices are more than half of a record
        x = sp.hstack([x, x, x, x], "csr", np.float32)
    weights = np.random.default_rng(0).choice([0.5, 1.0, 4.0], 400) if request.param == "weights" else None
    made = shards_of(tmp_path / "shards", x, y, weights)
    assert made.n_chunks > 5 and made.binary == (request.param == "binary") and made.weighted == (weights is not None)
    assert made.row_constant == constant
    return made


def buffer_for(dataset):
    return Buffer(dataset.n_rows, dataset.nnz, dataset.index_width, dataset.binary, dataset.row_constant)


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
    for name in ("indices", "values", "labels", "weights", "norms", "scales"):
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


def test_indices_are_packed_where_that_halves_a_record(dataset, tmp_path):
    store = filled(dataset, tmp_path)
    halved = dataset.nnz / dataset.n_rows > (9 if dataset.binary else 30)
    assert store.layout.encoding == ("u8" if halved and (dataset.binary or dataset.row_constant) else "raw")
    plain = filled(dataset, tmp_path, encoding="raw")
    assert (store.n_bytes < 0.55 * plain.n_bytes) == (store.layout.encoding == "u8")
    assert store.sizes.sum() <= store.n_bytes and plain.sizes.sum() <= plain.n_bytes
    store.close()
    plain.close()


@pytest.mark.parametrize("encoding", ["raw", "u8", "u16"])
def test_every_encoding_gives_back_what_was_put_in(dataset, tmp_path, encoding):
    store, buffer = filled(dataset, tmp_path, encoding=encoding), buffer_for(dataset)
    assert store.layout.encoding == encoding and (store.units > 0).all() == (encoding != "raw")
    for chunk in range(dataset.n_chunks):
        assert_same(store.read(np.array([chunk]), buffer), decoded(dataset, chunk))
    assert store.rebuilt == 0
    store.close()


def test_an_encoding_that_is_none_is_named(dataset, tmp_path):
    with pytest.raises(ValueError, match="u8.*u32"):
        RawStore(dataset, str(tmp_path), encoding="u32")


def chunk_of(arrays, chunk):
    """A chunk without the others' entries."""
    block = arrays.decode(0, chunk)
    entries = slice(block.indptr[0], block.indptr[-1])
    values = block.values[entries] if block.values.size else block.values
    return block._replace(indptr=block.indptr - block.indptr[0], indices=block.indices[entries], values=values)


def uneven():
    """Rows whose gaps are small in the first chunks and beyond every unit in the later ones."""
    rng = np.random.default_rng(0)
    lists = [np.arange(40) * 2 for _ in range(200)]
    lists += [np.sort(rng.choice(10**9, 40, replace=False)) for _ in range(200)]
    indptr = np.arange(401) * 40
    data = np.repeat(rng.standard_normal(400).astype(np.float32), 40)
    return sp.csr_matrix((data, np.concatenate(lists), indptr), (400, 10**9)), rng.choice([-1, 1], 400)


def test_records_larger_than_the_first_one_promised_lie_behind_the_others(tmp_path):
    made = Arrays(*uneven(), least_chunks=8)
    store = RawStore(made, str(tmp_path))
    for chunk in range(8):
        store.write(chunk, chunk_of(made, chunk))
    assert store.layout.encoding == "u8" and store.stored.all()
    last = store.layout.offsets[-1]
    assert (store.offsets[:4] < last).all() and (store.offsets[4:] >= last).all()
    assert (store.units > 0).tolist() == [True] * 4 + [False] * 4
    for chunk in range(8):
        assert_same(store.read(np.array([chunk]), buffer_for(made)), chunk_of(made, chunk))
    limit = int(last + store.sizes[4:6].sum())
    store.close()
    small = RawStore(made, str(tmp_path), limit=limit)
    for chunk in range(8):
        small.write(chunk, chunk_of(made, chunk))
    assert small.stored.tolist() == [True] * 6 + [False] * 2
    small.close()


def test_labels_that_are_numbers_come_back_to_the_bit(tmp_path):
    x, y = random_rows(200, 50)
    made = Arrays(x, y, np.random.default_rng(1).random(200), least_chunks=4)
    made.real_labels = True
    labels = np.random.default_rng(0).standard_normal(200)
    blocks = [chunk_of(made, c) for c in range(4)]
    store, first = RawStore(made, str(tmp_path)), 0
    for chunk, block in enumerate(blocks):
        blocks[chunk] = block._replace(labels=labels[first : first + block.n_rows])
        store.write(chunk, blocks[chunk])
        first += block.n_rows
    for chunk, block in enumerate(blocks):
        assert_same(store.read(np.array([chunk]), buffer_for(made)), block)
    store.close()


@pytest.mark.parametrize("cached", [True, False])
def test_the_page_cache_forgets_what_would_not_fit_it(dataset, tmp_path, monkeypatch, cached):
    dropped = []
    monkeypatch.setattr(files, "drop_cache", lambda descriptor, *place: dropped.append(place))
    store = filled(dataset, tmp_path, cache=10**9 if cached else 0)
    monkeypatch.setattr("bigclf.stream.raw_store.NEAR", 300)  # records this small are all near each other
    order = np.arange(dataset.n_chunks - 1, 0, -1)
    store.read(order, buffer_for(dataset))
    places = [*zip(store.offsets[order].tolist(), store.sizes[order].tolist(), strict=True)]
    assert dropped == ([] if cached else places)
    store.close()


@pytest.mark.parametrize("lag", [0, 4000])
def test_read_in_sequence_all_but_the_end_is_forgotten_in_pieces_larger_than_a_record(tmp_path, monkeypatch, lag):
    dropped = []
    monkeypatch.setattr(files, "drop_cache", lambda descriptor, *place: dropped.append(place))
    monkeypatch.setattr("bigclf.stream.raw_store.LAG", lag)
    monkeypatch.setattr("bigclf.stream.raw_store.BEHIND", 10_000)
    made = shards_of(tmp_path / "shards", *random_rows(400, 50))
    store = filled(made, tmp_path)
    for chunk in range(made.n_chunks):
        store.read(np.array([chunk]), buffer_for(made))
        assert all(a + n <= store.offsets[chunk] - lag for a, n in dropped)  # another thread may be reading there
    end, largest = 0, int(store.sizes.max())
    for first, length in dropped:
        assert first <= end and first + length > end and length > 0  # no gap
        end = first + length
    assert end == store.offsets[-1] - lag and max(n for _, n in dropped) > 1.5 * largest
    store.close()


def test_a_store_that_was_kept_is_finished_once_it_has_every_chunk(dataset, tmp_path):
    assert not is_finished(dataset, str(tmp_path))
    for done in (3, dataset.n_chunks):
        store = RawStore(dataset, str(tmp_path), keep=True)
        stream = Stream(dataset, dataset.chunks.row0, store=store, rows=400, nnz=dataset.nnz)
        list(stream.blocks(one_by_one(dataset)[:done]))
        stream.close()
        assert is_finished(dataset, str(tmp_path)) == (done == dataset.n_chunks)
    (path,) = tmp_path.glob("raw-*.bin")
    os.truncate(path, path.stat().st_size // 2)
    assert not is_finished(dataset, str(tmp_path))


def test_what_is_read_next_is_asked_for_ahead_unless_it_lies_next(dataset, tmp_path, monkeypatch):
    asked = []
    store = filled(dataset, tmp_path)
    monkeypatch.setattr("bigclf.stream.raw_store.NEAR", 300)  # records this small are all near each other
    monkeypatch.setattr(files, "fetch_ahead", lambda descriptor, *place: asked.append(place))
    stream = Stream(dataset, dataset.chunks.row0, store=store, rows=400, nnz=dataset.nnz)
    for _ in stream.blocks(one_by_one(dataset)):
        pass
    assert asked == []
    for _ in stream.blocks(one_by_one(dataset)[::-1]):
        pass
    places = [*zip(store.offsets.tolist(), store.sizes.tolist(), strict=True)]
    assert asked == places[-2::-1]
    asked.clear()
    for _ in stream.blocks([np.array([0, 1]), np.array([5, 6]), np.array([7, 2])]):
        pass
    assert asked == [places[5], places[2]]
    stream.close()


def test_the_file_has_no_name_and_the_buffer_the_bytes_it_says(dataset, tmp_path):
    place = tmp_path / "store"
    place.mkdir()
    store = filled(dataset, place)
    assert list(place.iterdir()) == [] and os.fstat(store.descriptor).st_size <= store.n_bytes
    store.close()
    buffer = buffer_for(dataset)
    held = [a for a in vars(buffer).values() if isinstance(a, np.ndarray)]
    size = sum(a.nbytes for a in held)
    assert size == buffer_bytes(400, dataset.nnz, dataset.index_width, dataset.binary, dataset.row_constant)


def flip(store, position, bit=1):
    byte = os.pread(store.descriptor, 1, position)[0]
    os.pwrite(store.descriptor, bytes([byte ^ bit]), position)


@pytest.mark.parametrize("where", [0.0, 0.3, 0.6, 0.97])
def test_a_flipped_bit_is_noticed_and_the_record_made_anew(dataset, tmp_path, caplog, where):
    store = filled(dataset, tmp_path)
    chunk = 2
    flip(store, int(store.offsets[chunk] + where * store.sizes[chunk]), 64)
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


@pytest.mark.parametrize("piece", [70, 300])
def test_large_records_come_piece_by_piece_and_what_is_amiss_is_noticed(dataset, tmp_path, monkeypatch, piece):
    """Pieces that end in the middle of sections, of entries, and that hold several sections."""
    pieces, real = [], files.read_all
    monkeypatch.setattr("bigclf.stream.raw_store.PIECE", piece)
    monkeypatch.setattr(
        files, "read_all", lambda fd, views, at: pieces.append(sum(v.nbytes for v in views)) or real(fd, views, at)
    )
    store = filled(dataset, tmp_path)
    for chunk in range(dataset.n_chunks):
        assert_same(store.read(np.array([chunk]), buffer_for(dataset)), decoded(dataset, chunk))
    large = (store.sizes >= 4 * piece) & (store.units == 0)
    assert len(pieces) == np.where(large, -(-store.sizes // piece), 1).sum() and sum(pieces) == store.sizes.sum()
    assert large.any() == (not store.units.any())
    end = int(store.offsets[1] + store.sizes[1])
    flip(store, end - 3)
    assert store.read(np.array([1]), buffer_for(dataset)) is None and not store.has(1)
    os.ftruncate(store.descriptor, int(store.offsets[4] + store.sizes[4]) - 5)
    assert store.read(np.array([3]), buffer_for(dataset)) is not None
    assert store.read(np.array([4]), buffer_for(dataset)) is None and store.rebuilt == 2
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
    assert store.limit <= store.layout.offsets[3] and stream.bytes_stored > 0
    stream.close()


@pytest.mark.parametrize("way", ["direct", "none", "refused"])
def test_large_records_begin_at_a_page_and_are_written_past_the_page_cache_where_that_can_be(
    dataset, tmp_path, monkeypatch, way
):
    monkeypatch.setattr("bigclf.stream.raw_store.DIRECT", 1)
    real, pieces, whole = files.write_all, [], []

    def write(descriptor, views, offset):
        direct = len(views) == 1 and descriptor == store._direct
        (whole if direct else pieces).append(offset)
        if direct:  # one piece of memory, of whole pages
            size, place = views[0].nbytes, np.frombuffer(views[0], np.uint8).ctypes.data
            assert not (size % files.PAGE or place % files.PAGE or offset % files.PAGE)
            if way == "refused":
                raise OSError(errno.EINVAL, "Invalid argument")
        real(descriptor, views, offset)

    monkeypatch.setattr(files, "write_all", write)
    if way == "none":
        monkeypatch.setattr(files, "direct_descriptor", lambda descriptor: -1)
    else:  # whatever the disk of this test can do
        monkeypatch.setattr(files, "direct_descriptor", os.dup)
    store, buffer, count = RawStore(dataset, str(tmp_path)), buffer_for(dataset), dataset.n_chunks
    for chunk in range(count):
        store.write(chunk, decoded(dataset, chunk))
    assert (len(whole), len(pieces)) == {"direct": (count, 0), "none": (0, count), "refused": (1, count)}[way]
    assert not (store.layout.offsets % files.PAGE).any() and os.fstat(store.descriptor).st_size <= store.n_bytes
    for chunk in range(count):
        assert_same(store.read(np.array([chunk]), buffer), decoded(dataset, chunk))
    store.close()


def test_what_is_written_past_the_page_cache_comes_back_through_it(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr("bigclf.stream.raw_store.DIRECT", 1)
    store, buffer = filled(dataset, tmp_path), buffer_for(dataset)
    for _ in range(2):
        together = store.read(np.arange(dataset.n_chunks), buffer)
        assert together.n_rows == 400 and store.rebuilt == 0
        store.stored[3] = False
        store.write(3, decoded(dataset, 3))  # a page that has been read is written anew
    store.close()


def test_before_a_read_begins_its_first_records_are_asked_for_as_far_as_they_may_stay(dataset, tmp_path, monkeypatch):
    asked = []
    store = filled(dataset, tmp_path)
    monkeypatch.setattr(files, "fetch_ahead", lambda descriptor, *place: asked.append(place))
    order = [4, 2, 1, 3]
    store.cache = int(store.sizes[[4, 2]].sum() / FETCH_SHARE) + 1
    stream = Stream(dataset, dataset.chunks.row0, store=store, rows=400, nnz=dataset.nnz)
    stream.fetch([np.array(order[:1]), np.array(order[1:])])
    stream.close()
    assert asked == [(int(store.offsets[c]), int(store.sizes[c])) for c in order[:2]]


def test_a_limit_keeps_the_first_chunks_that_fit(dataset, tmp_path):
    whole = filled(dataset, tmp_path)
    limit = int(whole.layout.offsets[4])
    whole.close()
    store = filled(dataset, tmp_path, limit=limit)
    assert store.stored.tolist() == [True] * 4 + [False] * (dataset.n_chunks - 4)
    assert os.fstat(store.descriptor).st_size <= limit
    store.close()


def decodes_of(dataset, monkeypatch):
    calls, real = [], Dataset.decode

    def counted(self, file, row_group, into=None):
        calls.append((file, row_group))
        return real(self, file, row_group, into)

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


def test_a_kept_store_of_an_older_form_is_made_anew(dataset, tmp_path, monkeypatch):
    place = tmp_path / "kept"
    place.mkdir()
    expected = read_through(dataset, place)
    name = next(place.glob("*.npz"))
    with np.load(name) as kept:
        old = {**kept, "shape": kept["shape"] - np.eye(kept["shape"].size, dtype=np.int64)[0]}
    files.save_arrays(name, **old)
    monkeypatch.setattr(RawStore, "read", lambda *a: pytest.fail("read before it was written anew"))
    calls = decodes_of(dataset, monkeypatch)
    for block, other in zip(read_through(dataset, place), expected, strict=True):
        assert_same(block, other)
    assert len(calls) == dataset.n_chunks


def test_a_kept_store_of_the_first_form_is_made_anew(dataset, tmp_path, monkeypatch):
    place = tmp_path / "kept"
    place.mkdir()
    count = dataset.n_chunks
    kept = {"format": np.array(1), "offsets": np.arange(count + 1), "sums": np.zeros(count, np.uint64)}
    files.save_arrays(place / f"raw-{dataset.digest}.npz", stored=np.ones(count, bool), **kept)
    calls = decodes_of(dataset, monkeypatch)
    read_through(dataset, place)
    assert len(calls) == count
    read_through(dataset, place)
    assert len(calls) == count  # and kept


def test_a_kept_store_is_not_taken_for_one_of_another_encoding(dataset, tmp_path):
    place = tmp_path / "kept"
    place.mkdir()
    for encoding in ("raw", "u8", "u16"):
        filled(dataset, place, keep=True, encoding=encoding).remember()
    for encoding in ("raw", "u8", "u16"):
        store = RawStore(dataset, str(place), keep=True, encoding=encoding)
        assert store.stored.all() and store.layout.encoding == encoding
        together = store.read(np.arange(dataset.n_chunks), buffer_for(dataset))
        assert together is not None and store.rebuilt == 0
        store.close()


def test_rows_beyond_32_bits_keep_their_numbers(dataset, tmp_path):
    """The data pretend that 2^33 rows come before them; decoded at first, from the store later."""
    before = dataset.chunks.row0 + 2**33
    stream = Stream(dataset, before, store=RawStore(dataset, str(tmp_path)), rows=400, nnz=dataset.nnz)
    for _ in range(2):
        ids = np.concatenate([block.ids.copy() for block in stream.blocks(one_by_one(dataset))])
        assert ids.dtype == np.int64
        np.testing.assert_array_equal(ids, 2**33 + np.arange(dataset.n_rows))
    assert stream.bytes_stored > 0
    stream.close()


def test_indices_keep_their_width(tmp_path):
    x, y = random_rows(50, 20)
    made = shards_of(tmp_path / "wide", x, y, n_features=2**31 + 10)
    store = filled(made, tmp_path)
    block = store.read(np.array([0]), buffer_for(made))
    assert block.indices.dtype == as_unsigned(np.zeros(1, f"int{8 * made.index_width}")).dtype
    assert_same(block, decoded(made, 0))
    store.close()
