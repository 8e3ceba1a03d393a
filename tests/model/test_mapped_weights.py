"""Sparse weights that stay in a file: what is joined, read and scored is the same as in memory, to the bit."""

import mmap
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

import bigclf
from bigclf.errors import ModelFormatError
from bigclf.maths.block import Block, rows_of
from bigclf.model import mapped_weights
from bigclf.model.mapped_weights import is_mapped, joined_columns, score_mapped
from bigclf.model.model import score_sparse_rows

K, D = 40, 300


def weights(rows, seed, dtype=np.float64):
    return sp.random(rows, D, 0.2, format="csc", random_state=seed, dtype=dtype)


def model(tmp_path, dtype=np.float64):
    found = bigclf.Model(
        weights(K, 1, dtype), np.linspace(-1, 1, K), np.arange(K), method={"name": "dcd", "multiclass": "multi-label"}
    )
    found.save(tmp_path / "m.bigclf")
    return tmp_path / "m.bigclf"


def block(rows=50, seed=3, values=True):
    X = sp.random(rows, D, 0.1, format="csr", random_state=seed, dtype=np.float32)
    nothing = np.zeros(rows)
    return Block(
        X.indptr.astype(np.int64), X.indices.astype(np.uint32), X.data if values else np.empty(0, np.float32), nothing,
        nothing, np.empty(0), np.arange(rows),
    )  # fmt: skip


@pytest.mark.parametrize("piece", [1, 70, 1 << 20])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_joined_weights_are_those_of_scipy(monkeypatch, piece, dtype):
    monkeypatch.setattr(mapped_weights, "PIECE_ENTRIES", piece)
    parts = [weights(rows, seed, dtype) for seed, rows in enumerate((3, 1, 20))]
    parts.append(sp.csc_matrix((2, D), dtype=dtype))  # labels whose weights are all 0
    found, wanted = joined_columns(parts, np.empty), sp.vstack(parts, "csr").tocsc()
    assert found.shape == wanted.shape and found.dtype == dtype and found.indptr.dtype == found.indices.dtype
    for name in ("data", "indices", "indptr"):
        assert np.array_equal(getattr(found, name), getattr(wanted, name))


def test_more_entries_than_32_bits_count_get_64(monkeypatch):
    asked = []

    def room(size, dtype):
        asked.append((size, np.dtype(dtype)))
        return np.empty(size, dtype)

    monkeypatch.setattr(mapped_weights, "LARGEST_32", 100)
    joined_columns([weights(3, 0), weights(4, 1)], room)
    assert asked == [(420, np.float64), (420, np.int64)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("values", [True, False])
def test_scores_have_the_bits_of_rows_scored_one_by_one(values, dtype):
    rows, coef, bias = block(values=values), weights(K, 1, dtype), np.linspace(-1, 1, K)
    for part in (rows, rows_of(rows, 20, 45)):  # the second begins within the arrays
        found, wanted = np.full((part.n_rows, K), np.nan), np.empty((part.n_rows, K))
        score_mapped(part, coef, bias, found)
        score_sparse_rows(part, coef.indptr, coef.indices, coef.data, bias, wanted)
        assert np.array_equal(found, wanted)


def test_a_mapped_model_is_the_same_model(tmp_path):
    path = model(tmp_path)
    read, mapped = bigclf.load(path), bigclf.Model.map(path)
    assert mapped.mapped and not read.mapped and mapped.digest() == read.digest()
    assert mapped.memory_bytes == 4 * (D + 1) < read.memory_bytes == read.n_bytes == mapped.n_bytes
    X = sp.random(30, D, 0.1, format="csr", random_state=5)
    assert np.array_equal(mapped.decision_function(X), read.decision_function(X))
    assert (mapped.predict(X) != read.predict(X)).nnz == 0
    assert mapped.scorer()(X[0]).tolist() == pytest.approx(read.decision_function(X[0])[0].tolist(), rel=1e-12)
    assert pickle.loads(pickle.dumps(mapped)).digest() == read.digest()


def test_a_mapped_model_is_saved_in_pieces_and_in_its_own_place(tmp_path, monkeypatch):
    path = model(tmp_path, np.float32)
    mapped, before = bigclf.Model.map(path), path.read_bytes()
    monkeypatch.setattr("bigclf.files.tensors.PIECE_BYTES", 100)
    monkeypatch.setattr("bigclf.files.publish_tensors", None)  # which takes all bytes into memory
    mapped.intercept_ = mapped.intercept_ + 1
    mapped.save(path)
    again = bigclf.load(path)
    assert path.read_bytes() != before and again.intercept_.tolist() == mapped.intercept_.tolist()
    assert again.digest() == mapped.digest() and np.array_equal(again.coef_.data, mapped.coef_.data)
    safetensors = pytest.importorskip("safetensors.numpy")
    assert safetensors.load(path.read_bytes())["weights"].dtype == np.float32


def test_only_sparse_weights_of_large_local_files_are_mapped(tmp_path, monkeypatch):
    path, dense = model(tmp_path), tmp_path / "dense.bigclf"
    bigclf.Model(np.ones((1, D)), np.zeros(1), np.array([0, 1])).save(dense)
    assert not bigclf.load(path).mapped
    monkeypatch.setattr("bigclf.model.model.MAPPED_BYTES", path.stat().st_size + 1)
    assert not bigclf.load(path).mapped
    monkeypatch.setattr("bigclf.model.model.MAPPED_BYTES", 1)
    assert bigclf.load(path).mapped and not is_mapped(bigclf.load(dense).coef_)
    assert is_mapped(bigclf.Model.map(dense).coef_) and not bigclf.Model.map(dense).mapped


@pytest.mark.parametrize("place", [-1, 400, 20, 3])
def test_damage_to_a_mapped_file_is_found(tmp_path, place):
    path = model(tmp_path)
    content = bytearray(path.read_bytes())
    content[place] ^= 0x15
    path.write_bytes(content)
    with pytest.raises(ModelFormatError, match=r"m\.bigclf: "):
        bigclf.Model.map(path)
    path.write_bytes(b"")
    with pytest.raises(ModelFormatError, match=r"m\.bigclf: "):
        bigclf.Model.map(path)


def test_what_is_mapped_is_told_from_what_is_not(tmp_path):
    (tmp_path / "f").write_bytes(bytes(80))
    with open(tmp_path / "f", "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert is_mapped(np.frombuffer(mapped, np.float64)[3:]) and is_mapped(np.memmap(tmp_path / "f", np.float32))
    assert not is_mapped(np.frombuffer(bytes(80), np.float64)) and not is_mapped(np.zeros(3)) and not is_mapped(3)
