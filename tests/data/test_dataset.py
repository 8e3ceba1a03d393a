"""Datasets: what is known of files, what a decoded row group holds, and every way in which data can be wrong."""

import contextlib
import functools
import json
import os
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from bigclf import files
from bigclf.conversion.convert import write_shards
from bigclf.data import chunk_table, footer, pages, shards
from bigclf.data import dataset as dataset_module
from bigclf.data.dataset import CHUNK_TABLE, MANIFEST, Dataset, require_trainable
from bigclf.data.shards import ShardWriter
from bigclf.errors import DataError, MemoryBudgetError, SchemaError, StoreError
from bigclf.maths.block import concatenate, explicit_values
from bigclf.request.door import Numbering, Shards


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


ROWS = {"label": [1, -1, 1], "indices": [[0, 4], [], [1, 2, 3]], "values": [[1.0, 2.0], [], [3.0, 4.0, 5.0]]}


def table(index=None, value=None, label=None, **columns):
    """A table of ROWS with columns replaced (None: left out) and types as asked."""
    data = {**ROWS, **columns}
    types = {"indices": pa.list_(index or pa.int32()), "values": pa.list_(value or pa.float32()), "label": label}
    return pa.table({k: pa.array(v, types.get(k)) for k, v in data.items() if v is not None})


def write(path, *args, **kwargs):
    made = args[0] if args else table(**kwargs)
    pq.write_table(made, path)
    return str(path)


def matrix(dataset):
    """All rows of a dataset as (CSR float64, labels in their own type, weights, ids)."""
    groups = dict.fromkeys(zip(dataset.chunks.file.tolist(), dataset.chunks.row_group.tolist(), strict=True))
    blocks = [dataset.decode(f, g) for f, g in groups]
    rows = []
    for b in blocks:
        values = b.values if b.values.size else np.ones(b.indices.size)
        shape = b.n_rows, dataset.n_features
        rows.append(sp.csr_matrix((values.astype(float), b.indices.astype(np.int64), b.indptr), shape=shape))
    labels = dataset.classes[np.concatenate([b.labels for b in blocks]).astype(int)]
    weights, ids = (np.concatenate([getattr(b, name) for b in blocks]) for name in ("weights", "ids"))
    return sp.vstack(rows).tocsr(), labels, weights, ids


def random_rows(m=300, d=50, seed=0, binary=False):
    rng = np.random.default_rng(seed)
    x = sp.random(m, d, 0.1, "csr", np.float32, random_state=rng)
    x.sort_indices()
    if binary:
        x.data[:] = 1
    return x, rng.integers(0, 2, m).astype(float)


def write_own(out, x, codes, classes=(-1, 1), **options):
    return write_shards([(x.indptr, x.indices, x.data, codes)], out, classes=classes, n_features=x.shape[1], **options)


# What is known


def test_own_shards_are_known_by_manifest_footers_or_both(tmp_path):
    x, codes = random_rows()
    ds = write_own(tmp_path / "s", x, codes, chunk_nnz=300, shard_nnz=1500)
    assert len(ds.files) > 1 and ds.n_chunks > len(ds.files)
    assert (ds.n_rows, ds.n_features, ds.nnz) == (300, 50, x.nnz)
    assert ds.classes.tolist() == [-1, 1] and ds.class_counts.tolist() == np.bincount(codes.astype(int)).tolist()
    assert ds.max_row_nnz == np.diff(x.indptr).max() and not ds.binary and ds.index_width == 4
    assert ds.max_norm == pytest.approx(x.multiply(x).sum(1).max(), rel=1e-6)
    os.remove(tmp_path / "s" / MANIFEST)
    again = Dataset(tmp_path / "s" / "*.parquet")
    assert repr(again) == repr(ds) and again.digest == ds.digest and again.max_norm == ds.max_norm
    for a, b in zip(again.chunks, ds.chunks, strict=True):
        np.testing.assert_array_equal(a, b)
    part = Dataset(ds.files[1:])
    assert part.n_rows < ds.n_rows and part.chunks.row0[0] == 0


def test_decode_gives_back_what_was_written(tmp_path):
    x, codes = random_rows()
    ds = write_own(tmp_path / "s", x, codes, chunk_nnz=300, shard_nnz=1500)
    got, labels, weights, ids = matrix(ds)
    assert abs(got - x).max() == 0
    np.testing.assert_array_equal(labels, np.where(codes == 1, 1, -1))
    np.testing.assert_array_equal(weights, np.ones(300))
    np.testing.assert_array_equal(ids, np.arange(300))
    block = ds.decode(0, 0)
    assert block.indices.dtype == np.uint32 and block.values.dtype == np.float32 and block.labels.dtype == np.float64
    np.testing.assert_allclose(block.norms, x[: block.n_rows].multiply(x[: block.n_rows]).sum(1).A1, rtol=1e-6)


def test_small_data_are_decoded_by_arrow_and_large_ones_by_kernels_to_the_same(tmp_path, monkeypatch):
    x, codes = random_rows()
    read, calls = pages.read_lists, []
    monkeypatch.setattr(pages, "read_lists", lambda *asked: calls.append(asked) or read(*asked))
    write_own(tmp_path / "s", x, codes, chunk_nnz=300, shard_nnz=1500)
    monkeypatch.setattr(dataset_module, "SMALL", x.nnz)
    small = Dataset(tmp_path / "s")
    by_arrow = [small.decode(0, 0), small.decode(1, 0)]
    assert not calls
    monkeypatch.setattr(dataset_module, "SMALL", x.nnz - 1)
    large = Dataset(tmp_path / "s")
    for one, other in zip(by_arrow, [large.decode(0, 0), large.decode(1, 0)], strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)
    assert len(calls) == 2


def constant_rows(m=300, d=50):
    x, codes = random_rows(m, d)
    x.data[:] = np.repeat(np.random.default_rng(1).standard_normal(m).astype(np.float32), np.diff(x.indptr))
    return x, codes


def assert_scaled(ds, x):
    block = ds.decode(0, 0)
    assert ds.row_constant and not ds.binary and block.values.size == 0 and block.scales.dtype == np.float32
    assert block.scales.size == block.n_rows
    got = sp.csr_matrix((explicit_values(block), block.indices.astype(np.int64), block.indptr), x[: block.n_rows].shape)
    assert abs(got - x[: block.n_rows]).max() == 0
    np.testing.assert_allclose(block.norms, x[: block.n_rows].multiply(x[: block.n_rows]).sum(1).A1, rtol=1e-6)


def test_rows_of_one_value_each_are_known_as_such_and_hold_it_once(tmp_path):
    x, codes = constant_rows()
    ds = write_own(tmp_path / "s", x, codes, chunk_nnz=300, shard_nnz=1500)
    assert_scaled(ds, x)
    assert "one value a row" in repr(ds)
    again = write_shards([ds.decode(0, 0)], tmp_path / "again", classes=[-1, 1], n_features=50)
    assert abs(matrix_of(again.decode(0, 0)) - x[: again.n_rows]).max() == 0  # blocks can be written as they are
    os.remove(tmp_path / "s" / MANIFEST)
    assert_scaled(Dataset(ds.files), x)
    for k, path in enumerate(ds.files):  # as other people's
        pq.write_table(pq.read_table(path).replace_schema_metadata(None), tmp_path / f"foreign-{k}.parquet")
    foreign = Dataset(tmp_path / "foreign-*.parquet")
    assert_scaled(foreign, x)
    assert_scaled(Dataset(foreign.files), x)  # remembered


def matrix_of(block, d=50):
    shape = block.n_rows, d
    return sp.csr_matrix((explicit_values(block), block.indices.astype(np.int64), block.indptr), shape)


def test_one_row_with_two_values_is_enough_to_keep_them_all(tmp_path):
    x, codes = constant_rows()
    x.data[-1] *= 2
    ds = write_own(tmp_path / "s", x, codes, chunk_nnz=300, shard_nnz=1500)
    assert not ds.row_constant and ds.decode(0, 0).values.size and ds.decode(0, 0).scales.size == 0
    assert Dataset(ds.files[:1]).row_constant == (len(ds.files) > 1)


def test_files_of_ones_and_of_one_value_a_row_go_together(tmp_path):
    x, codes = constant_rows()
    one, other = write_own(tmp_path / "a", x, codes), x.copy()
    other.data[:] = 1
    ones = write_own(tmp_path / "b", other, codes)
    assert ones.binary and not ones.row_constant
    ds = Dataset([*one.files, *ones.files])
    assert ds.row_constant and not ds.binary
    blocks = [ds.decode(0, 0), ds.decode(1, 0)]
    assert all(block.values.size == 0 for block in blocks)
    assert abs(matrix_of(concatenate(blocks)) - sp.vstack([x, other])).max() == 0


def test_shards_that_do_not_say_are_read_with_all_their_values(tmp_path, monkeypatch):
    real = ShardWriter.footer
    monkeypatch.setattr(ShardWriter, "footer", lambda w: {k: v for k, v in real(w).items() if k != "row_constant"})
    x, codes = constant_rows()
    ds = write_own(tmp_path / "s", x, codes)
    assert not ds.row_constant and ds.decode(0, 0).values.size == x.nnz
    assert write_own(tmp_path / "b", *random_rows(binary=True)).binary


def test_a_footer_that_promises_one_value_a_row_falsely_is_found_out(tmp_path, monkeypatch):
    real = ShardWriter.footer
    monkeypatch.setattr(ShardWriter, "footer", lambda w: {**real(w), "row_constant": True})
    ds = write_own(tmp_path / "s", *random_rows())
    with pytest.raises(DataError, match="values that differ"):
        ds.decode(0, 0)


def test_decode_from_many_threads(tmp_path):
    x, codes = random_rows(2000)
    ds = write_own(tmp_path / "s", x, codes, chunk_nnz=400, shard_nnz=4000)
    groups = list(zip(ds.chunks.file.tolist(), ds.chunks.row_group.tolist(), strict=True)) * 3
    with ThreadPoolExecutor(8) as pool:
        blocks = list(pool.map(lambda g: ds.decode(*g), groups))
    assert sum(b.nnz for b in blocks) == 3 * x.nnz


@pytest.mark.parametrize(
    "classes", [[False, True], [-1, 1], [0.5, 1.5], ["ham", "sp\u00e4m"]], ids=["bool", "int", "float", "str"]
)
def test_labels_come_back_in_their_own_type(tmp_path, classes):
    x, codes = random_rows(binary=True)
    ds = write_own(tmp_path / "s", x, codes, classes)
    assert ds.classes.tolist() == classes
    assert ds.binary and ds.decode(0, 0).values.size == 0
    os.remove(tmp_path / "s" / MANIFEST)
    assert Dataset(ds.files).classes.dtype == ds.classes.dtype
    foreign = table().drop_columns(["label"]).append_column("y", pa.array([classes[1], *classes]))
    assert Dataset(write(tmp_path / "f.parquet", foreign)).classes.tolist() == classes


def test_foreign_files_are_read_once_and_remembered(tmp_path, monkeypatch):
    path = write(tmp_path / "f.parquet", value=pa.float64())
    first = Dataset(path)
    monkeypatch.setattr(chunk_table, "gather", lambda *a: pytest.fail("read again"))
    monkeypatch.setattr("bigclf.data.dataset.gather", lambda *a: pytest.fail("read again"))
    again = Dataset(path)
    assert repr(first) == repr(again) and again.n_features == 5 and again.nnz == 5
    assert sorted(os.listdir(tmp_path)) == ["f.parquet"]


WEIGHTS = np.random.default_rng(2).choice([0.0, 0.5, 2.0], 300)
WEIGHTS[100:110] = WEIGHTS[290:] = 0  # chunks of nothing else
BOUNDS = [0, 100, 110, 290, 300]


def write_weighted(path, keep):
    """Those of 300 rows that are kept as a shard of up to four chunks."""
    x, codes = random_rows()
    with ShardWriter(str(path), n_features=50, classes=np.array([-1, 1]), weighted=True) as shard:
        for first, last in zip(BOUNDS[:-1], BOUNDS[1:], strict=True):
            rows = first + np.flatnonzero(keep[first:last])
            if rows.size:
                part = x[rows]
                shard.write(part.indptr.astype(np.int64), part.indices, part.data, codes[rows], WEIGHTS[rows])


def assert_same(one, other):
    """Both have the same chunks, and decode to the same rows."""
    for mine, its in zip((*one.chunks[2:], *matrix(one)[1:]), (*other.chunks[2:], *matrix(other)[1:]), strict=True):
        np.testing.assert_array_equal(mine, its)
    assert (one.n_rows, one.nnz, one.n_chunks) == (other.n_rows, other.nnz, other.n_chunks)
    assert abs(matrix(one)[0] - matrix(other)[0]).max() == 0


@pytest.mark.parametrize("told", [True, False], ids=["told", "gathered"])
def test_rows_of_weight_zero_are_left_out_of_what_takes_part(tmp_path, monkeypatch, told):
    """Shards that do not tell how many there are, as earlier ones did not, are read once."""
    footer, read = ShardWriter.footer, []
    if not told:
        monkeypatch.setattr(ShardWriter, "footer", lambda w: {k: v for k, v in footer(w).items() if k != "zero_weight"})
        monkeypatch.setattr("bigclf.data.dataset.gather", lambda *a: read.append(a[-1]) or chunk_table.gather(*a))
    write_weighted(tmp_path / "all.parquet", WEIGHTS >= 0)
    write_weighted(tmp_path / "some.parquet", WEIGHTS > 0)
    whole, some = Dataset(tmp_path / "all.parquet"), Dataset(tmp_path / "some.parquet")
    assert sorted(read) == ([] if told else [0, 0, 1, 1, 2, 3])
    assert matrix(whole)[2].tolist() == WEIGHTS.tolist() and whole.n_chunks == 4 and whole.n_features == 50
    assert some.taking_part() is some
    found = whole.taking_part()
    assert_same(found, some)
    assert found.taking_part() is found and found.digest != whole.digest
    assert_same(pickle.loads(pickle.dumps(found)), some)
    whole.write_manifest(tmp_path)
    assert_same(Dataset(tmp_path / "all.parquet").taking_part(), some)
    manifest = shards.unsealed((tmp_path / MANIFEST).read_text())
    del manifest["zero_weight"]
    (tmp_path / MANIFEST).write_bytes(shards.sealed(manifest))  # an earlier one
    assert_same(Dataset(tmp_path / "all.parquet").taking_part(), some)
    assert len(read) == (0 if told else 6)  # remembered


def test_rows_of_weight_zero_do_not_move_the_cuts_of_foreign_row_groups(tmp_path):
    for name, keep in (("all", WEIGHTS >= 0), ("some", WEIGHTS > 0)):
        write_weighted(tmp_path / name, keep)
        rows = pq.read_table(tmp_path / name).replace_schema_metadata(None)
        pq.write_table(rows, tmp_path / name, row_group_size=rows.num_rows)
    for target in (50, 90, 200, 10**6):
        whole, some = (Dataset(tmp_path / name, target_nnz=target) for name in ("all", "some"))
        assert whole.n_rows == 300 and (some.n_chunks > 1) == (target < 10**6)
        assert_same(whole.taking_part(), some)


def test_a_footer_that_is_wrong_about_rows_of_weight_zero_is_found_out(tmp_path, monkeypatch):
    footer = ShardWriter.footer
    monkeypatch.setattr(ShardWriter, "footer", lambda w: {**footer(w), "zero_weight": [(1, 1)] * 4})
    write_weighted(tmp_path / "all.parquet", WEIGHTS >= 0)
    with pytest.raises(DataError, match="wrong about how many rows have the weight 0"):
        Dataset(tmp_path / "all.parquet").taking_part().decode(0, 0)


def test_shards_that_are_gone_from_a_directory_are_told_of(tmp_path, caplog):
    x = sp.random(40, 10, 0.5, "csr", np.float32, random_state=0)
    given = [(x.indptr, x.indices, x.data, np.arange(40) % 2, None)]
    write_shards(given, tmp_path / "s", classes=np.array([0, 1]), chunk_nnz=20, shard_nnz=40, n_features=10)
    first, *others = Dataset(tmp_path / "s").files
    assert len(others) > 2 and not Dataset(tmp_path / "s").warnings
    for path in others[:2]:
        os.remove(path)
    told = f"{tmp_path}/s: 2 of {len(others) + 1} shards that the manifest lists are not there"
    for named in (tmp_path / "s", [str(tmp_path / "s")]):
        assert [text for text in Dataset(named).warnings if text.startswith(told)]
    assert not Dataset([first, *others[3:]]).warnings  # which asks for no others
    write_shards(given, tmp_path / "t", classes=np.array([0, 1]), n_features=10)
    for named in (tmp_path / "*" / "*.parquet", [tmp_path / "t", tmp_path / "s"]):
        assert [text for text in Dataset(named).warnings if text.startswith(told)]
    caplog.clear()
    for _ in range(2):  # and said where it is opened, once a process
        assert Dataset(tmp_path / "s", target_nnz=77).said
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith(told)
    for path in (first, *others[2:]):
        os.rename(path, f"{tmp_path}/s/a-{os.path.basename(path)}")
    assert told in str(Dataset(tmp_path / "s").warnings)  # and of none that has another name now
    for path in (first, *others[2:]):
        os.rename(f"{tmp_path}/s/a-{os.path.basename(path)}", f"{tmp_path}/s/_{os.path.basename(path)}")
    assert not Dataset(f"{tmp_path}/s/_part-00000.parquet").warnings  # a manifest that was said to be damaged


def test_what_a_shell_makes_of_a_glob_is_the_shards(tmp_path):
    x = sp.random(40, 10, 0.5, "csr", np.float32, random_state=0)
    given = [(x.indptr, x.indices, x.data, np.arange(40) % 2, None)]
    found = write_shards(given, tmp_path / "s", classes=np.array([0, 1]), shard_nnz=40, n_features=10)
    for pattern in ("*", "*.parquet"):
        assert Dataset(sorted(map(str, (tmp_path / "s").glob(pattern)))).files == found.files
    ours = tmp_path / "s" / "_bigclf_chunks.parquet"
    assert files.expand([ours]) == [str(ours)]  # named alone, it is meant
    for name in ("_bigclf_mine.csv", "_bigclf_quarantine.txt", "rows.csv"):
        (tmp_path / name).touch()
    for names in (["_bigclf_mine.csv", "rows.csv"], ["_bigclf_quarantine.txt"]):  # a person's own; of other rows
        named = [str(tmp_path / name) for name in names]
        assert files.expand([*named, *found.files]) == [*named, *found.files]
    both = [str(tmp_path / name) for name in ("_bigclf_quarantine.txt", "rows.csv")]
    assert files.expand(both) == both[1:]


def test_damaged_manifest_is_made_anew(tmp_path):
    x, codes = random_rows()
    ds = write_own(tmp_path / "s", x, codes)
    for name in (MANIFEST, CHUNK_TABLE):
        text = bytearray((tmp_path / "s" / name).read_bytes())
        text[len(text) // 2] ^= 1
        (tmp_path / "s" / name).write_bytes(text)
        assert repr(Dataset(tmp_path / "s")) == repr(ds)


def test_large_foreign_row_groups_are_cut(tmp_path):
    m = 1000
    data = pa.table({"label": [0, 1] * (m // 2), "indices": [[1, 2, 3]] * m, "values": [[1.0, 2.0, 3.0]] * m})
    pq.write_table(data, tmp_path / "f.parquet", row_group_size=500)
    ds = Dataset(tmp_path / "f.parquet", target_nnz=400)
    assert ds.n_chunks == 8 and ds.chunks.rows.sum() == m and ds.chunks.nnz.sum() == 3 * m
    assert ds.chunks.row0.tolist() == np.cumsum([0, *ds.chunks.rows[:-1]]).tolist()
    assert ds.chunks.first.tolist()[:4] == (ds.chunks.row0[:4]).tolist() and ds.chunks.first[4] == 0
    assert ds.max_group_nnz == 1500 and ds.decode(0, 1).ids[0] == 500


def largest_parts(monkeypatch):
    """The rows of each part of a row group that is decoded from now on, and of each that is decoded whole."""
    parts, whole = [], []
    in_parts, at_once = shards.read_parts, shards.read_rows

    def told(*given):
        for first, rows in in_parts(*given):
            parts.append(rows.n_rows)
            yield first, rows

    monkeypatch.setattr(shards, "read_parts", told)
    monkeypatch.setattr(shards, "read_rows", lambda *given: whole.append(1) or at_once(*given))
    return parts, whole


def test_a_row_group_of_rows_without_entries_is_decoded_in_parts(tmp_path, monkeypatch):
    m = 300_000  # 48 bytes each as arrays, a tenth of a bit in the file
    empty = pa.array([[]] * m, pa.list_(pa.int32()))
    data = pa.table({"label": np.arange(m) >= m // 2, "indices": empty, "values": empty.cast(pa.list_(pa.float32()))})
    pq.write_table(data, tmp_path / "f.parquet", row_group_size=m)
    parts, whole = largest_parts(monkeypatch)
    ds = Dataset(tmp_path / "f.parquet")
    assert (ds.n_rows, ds.nnz, ds.sorted_labels, ds.class_counts.tolist()) == (m, 0, True, [m // 2, m // 2])
    assert ds.n_chunks > 2 and ds.chunks.rows.max() * 48 < 10_000_000
    seen = [(block.n_rows, int(block.ids[0]), float(block.labels.sum())) for block in ds.blocks()]
    assert [n for n, _, _ in seen] == ds.chunks.rows.tolist() and [i for _, i, _ in seen] == ds.chunks.row0.tolist()
    assert sum(total for _, _, total in seen) == m // 2
    assert max(parts) * 64 <= 1 << 20 and sum(parts) == 2 * m and not whole


@pytest.mark.parametrize("weighted", [False, True])
def test_parts_of_a_row_group_say_what_the_whole_of_it_does(tmp_path, monkeypatch, weighted):
    rng = np.random.default_rng(0)
    m, lengths = 3000, rng.integers(0, 9, 3000)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    indices = np.concatenate([np.sort(rng.choice(50, n, replace=False)) for n in lengths]).astype(np.int32)
    columns = {
        "label": np.repeat(["b", "a", "c"], m // 3),
        "indices": pa.ListArray.from_arrays(indptr, indices),
        "values": pa.ListArray.from_arrays(indptr, rng.integers(1, 9, indices.size).astype(np.float32)),
    }
    if weighted:
        columns["weight"] = rng.integers(0, 3, m).astype(np.float32)
    pq.write_table(pa.table(columns), tmp_path / "f.parquet", row_group_size=m // 2)
    told = []
    for part_bytes in (1 << 30, 1 << 12):
        for module in (shards, dataset_module):
            monkeypatch.setattr(module, "PART_BYTES", part_bytes)
        monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path / str(part_bytes)))
        parts, whole = largest_parts(monkeypatch)
        ds = Dataset(tmp_path / "f.parquet", target_nnz=700).taking_part()
        assert bool(whole) == (part_bytes == 1 << 30)  # while facts are gathered
        block = concatenate([block._replace(labels=block.labels.copy()) for block in ds.blocks()])
        assert max(parts) < m // 2 or part_bytes == 1 << 30
        told.append((ds._known.facts, *ds.chunks, *block))
    assert told[0][0] == told[1][0]
    for mine, its in zip(told[0][1:], told[1][1:], strict=True):
        np.testing.assert_array_equal(mine, its)


def test_a_fault_in_a_later_part_is_named_by_its_row_in_the_row_group(tmp_path, monkeypatch):
    m = 2000
    data = pa.table({"label": [0, 1] * (m // 2), "indices": [[1, 2]] * 1700 + [[2, 1]] * 300})
    pq.write_table(data, tmp_path / "f.parquet", row_group_size=m)
    for module in (shards, dataset_module):
        monkeypatch.setattr(module, "PART_BYTES", 1 << 12)
    with pytest.raises(DataError, match="row group 0, row 1700, column indices"):
        Dataset(tmp_path / "f.parquet")


@pytest.mark.parametrize(
    "make",
    [pa.large_list, lambda t: pa.list_(t, 2), pa.list_],
    ids=["large", "fixed size", "list"],
)
def test_all_kinds_of_lists(tmp_path, make):
    data = pa.table(
        {
            "label": [0, 1],
            "indices": pa.array([[0, 3], [1, 2]], make(pa.int64())),
            "values": pa.array([[1.0, 2.0], [3.0, 4.0]], make(pa.float64())),
        }
    )
    ds = Dataset(write(tmp_path / "f.parquet", data))
    assert matrix(ds)[0].toarray().tolist() == [[1, 0, 0, 2], [0, 3, 4, 0]]
    assert ds.index_width == 8 and ds.decode(0, 0).indices.dtype == np.uint64


def test_spark_vectors_sparse_and_dense(tmp_path):
    lists = [("indices", pa.list_(pa.int32())), ("values", pa.list_(pa.float64()))]
    vector = pa.struct([("type", pa.int8()), ("size", pa.int32()), *lists])
    vectors = [
        {"type": 0, "size": 3, "indices": [0, 2], "values": [1.0, 2.0]},
        {"type": 1, "size": None, "indices": None, "values": [3.0, 4.0, 5.0]},
    ]
    data = pa.table({"label": [0.0, 1.0], "features": pa.array(vectors, vector)})
    ds = Dataset(write(tmp_path / "f.parquet", data))
    assert matrix(ds)[0].toarray().tolist() == [[1, 0, 2], [3, 4, 5]]


def test_spark_vectors_under_any_name(tmp_path):
    vector = pa.struct([("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32())),
                        ("values", pa.list_(pa.float64()))])  # fmt: skip
    vectors = [(0, 3, [0, 2], [1.0, 2.0]), (1, None, None, [3.0, 4.0, 5.0])]
    rows = [dict(zip(("type", "size", "indices", "values"), v, strict=True)) for v in vectors]
    path = write(tmp_path / "f.parquet", pa.table({"y": [0, 1], "scaled": pa.array(rows, vector)}))
    for columns in ({"features": "scaled"}, {"indices": "scaled.indices", "values": "scaled.values"}):
        assert matrix(Dataset(path, columns=columns))[0].toarray().tolist() == [[1, 0, 2], [3, 4, 5]]


PAIR = pa.struct([("index", pa.int32()), ("value", pa.float64())])
STRUCTS = [[{"index": 0, "value": 1.5}, {"index": 3, "value": -2.0}], [], [{"index": 2, "value": 0.25}]]
DENSE = [[1.5, 0.0, 0.0, -2.0], [0.0] * 4, [0.0, 0.0, 0.25, 0.0]]
MANY = {f"x{j}": [row[j] for row in DENSE] for j in range(4)}
VECTORS = {
    "list of structs": ({"features": pa.array(STRUCTS, pa.list_(PAIR))}, None),
    "large list of structs": (
        {"f": pa.array(STRUCTS, pa.large_list(PAIR))},
        {"indices": "f.index", "values": "f.value"},
    ),
    "map": ({"f": pa.array([[(s["index"], s["value"]) for s in row] for row in STRUCTS],
                           pa.map_(pa.int64(), pa.float32()))}, {"features": "f"}),
    "struct of lists": (
        {"v": pa.array([{"index": [s["index"] for s in row], "value": [s["value"] for s in row]} for row in STRUCTS])},
        {"features": "v"},
    ),
    "fixed-size lists": ({"features": pa.array(DENSE, pa.list_(pa.float32(), 4))}, None),
    "lists of numbers": ({"embedding": pa.array(DENSE, pa.list_(pa.float64()))}, {"values": "embedding"}),
    "columns": (MANY, {"features": list(MANY)}),
    "columns by a glob": ({**MANY, "text": ["a", "b", "c"]}, {"features": "x*"}),
    "all columns of numbers": ({**MANY, "text": ["a", "b", "c"]}, {"features": "*"}),
}  # fmt: skip


@pytest.mark.parametrize("kind", VECTORS)
def test_vectors_of_every_kind_hold_the_numbers_that_were_written(tmp_path, kind):
    """In row groups that are cut when first decoded, too."""
    columns, names = VECTORS[kind]
    data = pa.table({"label": ["no", "yes", "no"], **columns})
    pq.write_table(pa.concat_tables([data] * 50), tmp_path / "f.parquet", row_group_size=60)
    ds = Dataset(tmp_path / "f.parquet", columns=names, target_nnz=10)
    assert ds.n_chunks > 3 and ds.n_features == 4 and ds.n_rows == 150
    x, labels, *_ = matrix(ds)
    assert x.toarray().tolist() == DENSE * 50 and labels.tolist() == ["no", "yes", "no"] * 50
    again = Dataset(tmp_path / "f.parquet", columns=names, target_nnz=10)
    assert again.layout == ds.layout and again.digest == ds.digest


def test_a_list_of_whole_numbers_is_the_features_that_are_one(tmp_path):
    path = write(tmp_path / "f.parquet", pa.table({"label": [0, 1], "features": [[3, 5], [1]]}))
    ds = Dataset(path)
    assert ds.binary and matrix(ds)[0].toarray().tolist() == [[0, 0, 0, 1, 0, 1], [0, 1, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("columns", "names", "message"),
    [
        ({"f": ["a"]}, {"features": "f"}, "must hold vectors or numbers, not string"),
        ({"f": [1.0]}, {"features": ["f", "g"]}, "no such column"),
        ({"f": ["a"], "g": [1]}, {"features": ["g", "f"]}, "must hold numbers, not string"),
        ({"f": ["a"]}, {"features": "x*"}, "no column of numbers is called so"),
        ({"f": [{"a": 1}]}, {"features": "f"}, "has the fields indices and values"),
        ({"f": [[{"a": 1.5}]]}, {"features": "f"}, "need a field of integers"),
        ({"f": [1]}, {"features": "f", "indices": "f"}, "not both"),
        ({"f": [[{"index": 1, "value": None}]]}, {"features": "f"}, "need a field of numbers"),
        ({"f": pa.array([[{"index": 1, "value": None}]], pa.list_(PAIR))}, {"features": "f"}, "null inside the list"),
        ({"f": [[None]]}, {"values": "f"}, "null"),
        ({"f": [None], "g": [1.0]}, {"features": ["g", "f"]}, "null|must hold numbers"),
        ({"f": [1.0], "g": [np.nan]}, {"features": "*"}, "NaN|not finite|nan"),
    ],
)
def test_vectors_that_cannot_be_used(tmp_path, columns, names, message):
    path = write(tmp_path / "f.parquet", pa.table({"label": [0], **columns}))
    with pytest.raises((SchemaError, DataError), match=message):
        Dataset(path, columns=names)


def test_columns_may_have_other_names(tmp_path):
    data = table().rename_columns(["klasse", "idx", "val"])
    path = write(tmp_path / "f.parquet", data.append_column("importance", pa.array([1, 2, 0])))
    with pytest.raises(SchemaError, match=r"no list column of feature indices.*klasse"):
        Dataset(path)
    names = {"label": "klasse", "indices": "idx", "values": "val", "weight": "importance"}
    ds = Dataset(path, columns=names)
    assert ds.weighted and ds.weight_sum == 3 and matrix(ds)[2].tolist() == [1, 2, 0]
    with pytest.raises(SchemaError, match=r"no such column.*klasse"):
        Dataset(path, columns={**names, "label": "missing"})


def test_labels_are_optional_for_prediction(tmp_path):
    path = write(tmp_path / "f.parquet", table().drop_columns(["label"]))
    with pytest.raises(SchemaError, match="no label column"):
        Dataset(path)
    ds = Dataset(path, need_labels=False)
    assert ds.n_rows == 3 and ds.classes.size == 0 and np.isnan(ds.decode(0, 0).labels).all()


def test_empty_shards_and_row_groups_count_as_nothing(tmp_path):
    write(tmp_path / "a.parquet", table().slice(0, 0))
    write(tmp_path / "b.parquet")
    with pq.ParquetWriter(tmp_path / "c.parquet", table().schema) as file:
        for part in (table(), table().slice(0, 0), table().slice(1, 1)):
            file.write_table(part)
    ds = Dataset(tmp_path)
    assert ds.n_rows == 7 and ds.nnz == 10 and matrix(ds)[0].shape == (7, 5)
    assert ds.chunks.row0.tolist() == [0, 3, 6]


def test_mixed_widths_are_widened(tmp_path):
    write(tmp_path / "a.parquet", index=pa.int32(), value=pa.float32())
    write(tmp_path / "b.parquet", index=pa.int64(), value=pa.float64(), label=pa.int8(), extra=["x", "y", "z"])
    ds = Dataset(tmp_path)
    assert ds.index_width == 8 and ds.decode(0, 0).indices.dtype == ds.decode(1, 0).indices.dtype == np.uint64
    assert ds.classes.dtype == np.int64 and abs(matrix(ds)[0][:3] - matrix(ds)[0][3:]).max() == 0


def test_sorted_labels_and_repeated_files_are_warned_of(tmp_path):
    x, codes = random_rows(binary=True)
    ds = write_own(tmp_path / "s", x, np.sort(codes))
    assert ds.sorted_labels and "sorted" in ds.warnings[0]
    assert not write_own(tmp_path / "t", x, codes).warnings
    shutil.copy(ds.files[0], tmp_path / "s" / "part-copy.parquet")
    assert "same content" in Dataset(tmp_path / "s").warnings[1]


def test_a_dataset_travels_between_processes(tmp_path):
    x, codes = random_rows()
    ds = write_own(tmp_path / "s", x, codes)
    ds.decode(0, 0)
    copy = pickle.loads(pickle.dumps(ds))
    np.testing.assert_array_equal(copy.decode(0, 0).indices, ds.decode(0, 0).indices)


@pytest.mark.parametrize("name", ["a b", "100%", "a*b", "[x]", "new\nline", os.fsdecode(b"latin-\xe9")])
def test_any_name_will_do(tmp_path, name):
    x, codes = random_rows()
    ds = write_own(os.path.join(tmp_path, name), x, codes)
    assert ds.files == [os.path.join(tmp_path, name, "part-00000.parquet")]
    assert ds.decode(0, 0).nnz == x.nnz and Dataset(ds.files).n_rows == 300


# What is refused: files


def broken(name, path):
    whole = path.read_bytes()
    damage = {
        "empty": b"",
        "not parquet": b"label,indices\n1,2\n" * 50,
        "truncated": whole[:-100],
        "cut short": whole[:10],
        "footer length": whole[:-8] + (2**31 - 1).to_bytes(4, "little") + b"PAR1",
    }
    path.write_bytes(damage[name])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("empty", "0 bytes"),
        ("not parquet", "not a Parquet file"),
        ("truncated", "not complete"),
        ("cut short", "not complete"),
        ("footer length", "footer claims"),
    ],
)
def test_files_that_are_no_parquet(tmp_path, name, message):
    write(tmp_path / "a.parquet")
    write(tmp_path / "b.parquet")
    broken(name, tmp_path / "b.parquet")
    with pytest.raises(DataError, match=message) as caught:
        Dataset(tmp_path)
    assert caught.value.file == str(tmp_path / "b.parquet")


def test_a_flipped_bit_is_an_error_or_changes_nothing(tmp_path):
    """Wherever the bit is, the same rows come back or an error that names the file."""
    x, codes = random_rows(60)
    ds = write_own(tmp_path / "s", x, codes)
    want = matrix(ds)
    path, whole = ds.files[0], files.read_bytes(ds.files[0])
    rng = np.random.default_rng(1)
    detected = 0
    for place in rng.choice(len(whole), 150, replace=False):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.integers(8)
        files.publish_bytes(path, bytes(damaged))
        try:
            got = matrix(Dataset(path))
        except DataError as error:
            assert path in str(error)
            detected += 1
        else:
            assert abs(got[0] - want[0]).max() == 0, place
            np.testing.assert_array_equal(got[1], want[1])
    assert detected > 75


def test_a_flipped_bit_in_a_page_names_the_row_group(tmp_path):
    x, codes = random_rows(3000)
    ds = write_own(tmp_path / "s", x, codes, chunk_nnz=5000)
    column = pq.ParquetFile(ds.files[0]).metadata.row_group(1).column(2)
    with open(ds.files[0], "r+b") as file:
        file.seek(column.data_page_offset + column.total_compressed_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 16]))
    opened = Dataset(ds.files)
    opened.decode(0, 0)
    with pytest.raises(DataError, match="damaged") as caught:
        opened.decode(0, 1)
    assert caught.value.file == ds.files[0] and caught.value.row_group == 1


@pytest.mark.parametrize(
    ("false", "message"),
    [
        ({"n_values": 2**40}, "too many"),
        ({"n_values": -1}, "claims -1 values"),
        ({"n_values": 2}, "claims 2 values in 3 rows"),
        ({"n_values": 2**31 - 1}, "damaged or hostile"),
        ({"n_bytes": 2**40}, "outside the file"),
        ({"first": -5}, "outside the file"),
    ],
)
def test_absurd_footers_are_refused_before_reading(tmp_path, false, message):
    path = write(tmp_path / "f.parquet")
    column = shards.claims(path).groups[0].columns[1]
    footer.check_column(column, 3, path, files.file_size(path), 0)
    with pytest.raises(DataError, match=message):
        footer.check_column(column._replace(**false), 3, path, files.file_size(path), 0)


def test_a_row_group_larger_than_the_machine(tmp_path, monkeypatch):
    """As its footer tells."""
    path = write(tmp_path / "f.parquet")
    real = shards.claims(path)
    bomb = real._replace(groups=[real.groups[0]._replace(n_bytes=2**50)])
    monkeypatch.setattr(shards, "claims", lambda path: bomb)
    with pytest.raises(MemoryBudgetError, match=r"row group 0: 1\.13 PB decompressed"):
        Dataset(path)


def test_footers_are_read_as_pyarrow_reads_them(tmp_path):
    path = str(tmp_path / "f.parquet")
    pq.write_table(pa.concat_tables([table(weight=[1.0, 2.0, 3.0])] * 7), path, row_group_size=5)
    mine, its = shards.claims(path), pq.ParquetFile(path).metadata
    assert mine.n_rows == its.num_rows == 21 and len(mine.groups) == its.num_row_groups
    for g, group in enumerate(mine.groups):
        real = its.row_group(g)
        assert (group.n_rows, group.n_bytes) == (real.num_rows, real.total_byte_size)
        for c, column in enumerate(group.columns):
            chunk = real.column(c)
            first = chunk.dictionary_page_offset or chunk.data_page_offset
            assert column[:4] == (chunk.path_in_schema, chunk.num_values, first, chunk.total_compressed_size)


def test_a_damaged_footer_is_an_error_and_no_crash(tmp_path):
    """Bytes of the footer replaced at random, of a file without our checksum."""
    path = tmp_path / "f.parquet"
    pq.write_table(pa.concat_tables([table()] * 20), path, row_group_size=30)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    start = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for _ in range(200):
        damaged = bytearray(whole)
        for place in rng.integers(start, len(whole) - 8, rng.integers(1, 4)):
            damaged[place] = rng.integers(256)
        path.write_bytes(damaged)
        with contextlib.suppress(DataError):
            matrix(Dataset(path))


def test_a_newer_format_is_refused(tmp_path, monkeypatch):
    x, codes = random_rows(binary=True)
    monkeypatch.setattr(shards, "CLASSES_FORMAT_VERSION", 3)
    monkeypatch.setattr(shards, "FORMAT_VERSION", 3)
    ds = write_own(tmp_path / "s", x, codes)
    os.remove(tmp_path / "s" / MANIFEST)
    monkeypatch.setattr(shards, "FORMAT_VERSION", 2)
    with pytest.raises(DataError, match=r"shard format 3.*newer bigclf"):
        Dataset(ds.files)


@pytest.mark.parametrize("how", ["written", "deleted", "replaced"])
def test_files_that_change_after_opening(tmp_path, how):
    """A new file is not looked at."""
    x, codes = random_rows()
    ds = write_own(tmp_path / "s", x, codes, shard_nnz=2000)
    write_own(tmp_path / "t", x[::-1], codes, shard_nnz=2000)
    shutil.copy(ds.files[0], tmp_path / "s" / "part-99999.parquet")
    ds.check_unchanged()
    if how == "written":
        os.utime(ds.files[1], ns=(0, 0))
    elif how == "deleted":
        os.remove(ds.files[1])
    else:
        os.replace(tmp_path / "t" / os.path.basename(ds.files[1]), ds.files[1])
    for look in (ds.check_unchanged, lambda: ds.decode(1, 0)):
        with pytest.raises(DataError) as caught:
            look()
        assert caught.value.file == ds.files[1]


def test_an_input_output_error_is_tried_again(tmp_path, monkeypatch):
    x, codes = random_rows()
    ds = write_own(tmp_path / "s", x, codes)
    real, failures = pq.ParquetFile.read_row_group, [1, 1]

    def failing(self, *args, **kwargs):
        if failures:
            failures.pop()
            raise OSError(5, "Input/output error")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", failing)
    assert ds.decode(0, 0).nnz > 0
    failures += [1, 1, 1]
    with pytest.raises(DataError, match="Input/output") as caught:
        ds.decode(0, 0)
    assert caught.value.row_group == 0


# What is refused: schemas


@pytest.mark.parametrize(
    ("change", "message", "column"),
    [
        ({"label": ["a", "b", "a"]}, "str here and int in", "label"),
        ({"label": [0.5, 1.5, 0.5]}, "float here and int in", "label"),
        ({"values": None}, "no column 'values', unlike", "values"),
        ({"weight": [1.0, 1.0, 1.0]}, "has the column 'weight', unlike", "weight"),
        ({"label": None}, "no label column", "label"),
        ({"indices": None}, "no list column", "indices"),
    ],
)
def test_files_that_do_not_go_together(tmp_path, change, message, column):
    """The error names both files."""
    write(tmp_path / "a.parquet")
    columns = {k: v for k, v in {**ROWS, **change}.items() if v is not None}
    pq.write_table(pa.table(columns), tmp_path / "b.parquet")
    with pytest.raises(SchemaError, match=message) as caught:
        Dataset(tmp_path)
    assert caught.value.file == str(tmp_path / "b.parquet") and caught.value.column == column
    if "unlike" in message or "here and" in message:
        assert "a.parquet" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": [0, 1, 2]}, "list of integers"),
        ({"indices": [[0.5], [], [1.0]]}, "list of integers"),
        ({"values": [["a"], [], ["b"]]}, "list of numbers"),
        ({"label": [[1.5], [2.5], [3.5]]}, "booleans, integers"),
        ({"weight": ["a", "b", "c"]}, "weights must be numbers"),
    ],
)
def test_types_that_cannot_be_used(tmp_path, change, message):
    pq.write_table(pa.table({**ROWS, **change}), tmp_path / "f.parquet")
    with pytest.raises(SchemaError, match=message):
        Dataset(tmp_path / "f.parquet")


# What is refused: values

NAN, INF = float("nan"), float("inf")
BAD_VALUES = {
    "nan value": ({"values": [[1.0, 2.0], [], [3.0, NAN, 5.0]]}, "NaN or infinite", "values"),
    "infinite value": ({"values": [[1.0, 2.0], [], [INF, 1.0, 5.0]]}, "NaN or infinite", "values"),
    "beyond float32": ({"values": [[1.0, 2.0], [], [3.0, 1e300, 5.0]]}, "beyond the range of float32", "values"),
    "negative index": ({"indices": [[0, 4], [], [-1, 2, 3]]}, "negative", "indices"),
    "unsorted": ({"indices": [[0, 4], [], [1, 3, 2]]}, "unsorted or duplicate", "indices"),
    "duplicate": ({"indices": [[0, 4], [], [1, 3, 3]]}, "unsorted or duplicate", "indices"),
    "lengths": ({"values": [[1.0, 2.0], [], [3.0, 4.0]]}, "3 indices but 2 values", "values"),
    "null list": ({"indices": [[0, 4], [], None], "values": [[1.0, 2.0], [], []]}, "null", "indices"),
    "null values": ({"values": [[1.0, 2.0], [], None]}, "null", "values"),
    "null index": ({"indices": [[0, 4], [], [1, None, 3]]}, "null inside", "indices"),
    "null value": ({"values": [[1.0, 2.0], [], [3.0, None, 5.0]]}, "null inside", "values"),
    "null label": ({"label": [1, -1, None]}, "null", "label"),
    "nan label": ({"label": [1.0, -1.0, NAN]}, "label is nan", "label"),
    "null weight": ({"weight": [1.0, 1.0, None]}, "null", "weight"),
    "nan weight": ({"weight": [1.0, 1.0, NAN]}, "weight is nan", "weight"),
    "negative weight": ({"weight": [1.0, 1.0, -2.0]}, "weight -2 is negative", "weight"),
}


@pytest.mark.parametrize("name", BAD_VALUES)
def test_bad_values_are_named_with_their_place(tmp_path, name):
    """In the second row group of the second file, at its third row."""
    change, message, column = BAD_VALUES[name]
    columns = {"weight": [1.0] * 3} if "weight" in change else {}
    types = {"indices": pa.list_(pa.int64()), "values": pa.list_(pa.float64())}
    for path, bad in ((tmp_path / "a.parquet", {}), (tmp_path / "b.parquet", change)):
        good = {**ROWS, **columns}
        if name == "nan label":
            good["label"] = [1.0, -1.0, 1.0]
        parts = [pa.table({k: pa.array(v, types.get(k)) for k, v in {**good, **p}.items()}) for p in ({}, bad)]
        parts[1] = parts[1].cast(parts[0].schema)
        with pq.ParquetWriter(path, parts[0].schema) as file:
            for part in parts:
                file.write_table(part)
    with pytest.raises(DataError, match=message) as caught:
        Dataset(tmp_path)
    error = caught.value
    place = error.file, error.row_group, error.row, error.column
    assert place == (str(tmp_path / "b.parquet"), 1, 2, column)


def test_index_beyond_the_features_of_our_own_shards(tmp_path):
    """The footers are believed when opening, the rows are not when decoding."""
    x, codes = random_rows(binary=True)
    ds = write_own(tmp_path / "s", x, codes)
    ds.n_features = 20
    with pytest.raises(DataError, match=r"not less than the number of features \(20\)") as caught:
        ds.decode(0, 0)
    assert caught.value.row_group == 0 and caught.value.column == "indices"


def test_a_label_that_is_not_among_the_classes(tmp_path):
    x, codes = random_rows(binary=True)
    ds = write_own(tmp_path / "s", x, codes)
    ds.classes = np.array([-1, 0])
    with pytest.raises(DataError, match="label 1 is not among the 2 classes") as caught:
        ds.decode(0, 0)
    assert caught.value.row == int(np.argmax(codes))


def test_int32_wrap_around_is_found(tmp_path):
    """2^31 + 5 stored in 32 bits is negative; in 64 bits or unsigned it is an index."""
    wrapped = np.array([2**31 + 5], np.uint32).view(np.int32).tolist()
    one = {"label": [1], "values": [[1.0]]}
    pq.write_table(pa.table({**one, "indices": pa.array([wrapped], pa.list_(pa.int32()))}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="negative"):
        Dataset(tmp_path / "a.parquet")
    pq.write_table(pa.table({**one, "indices": pa.array([[2**31 + 5]], pa.list_(pa.uint32()))}), tmp_path / "b.parquet")
    assert Dataset(tmp_path / "b.parquet").n_features == 2**31 + 6


def test_too_many_distinct_float_labels(tmp_path):
    m = 100_001
    data = {"label": np.random.default_rng(0).random(m), "indices": pa.array([[]] * m, pa.list_(pa.int32()))}
    pq.write_table(pa.table(data), tmp_path / "f.parquet")
    ds = Dataset(tmp_path / "f.parquet")
    assert ds.real_labels and ds.classes is None and ds.class_counts is None and not ds.warnings
    with pytest.raises(DataError, match="too many different ones to be classes.*epsilon_insensitive"):
        require_trainable(ds)
    require_trainable(ds, regression=True)
    again = Dataset(tmp_path / "f.parquet")  # from what was kept of it
    labels = np.asarray(data["label"])
    assert again.label_range == ds.label_range and again.real_labels
    assert again.label_range["min"] == labels.min() and again.label_range["max"] == labels.max()
    assert again.label_range["mean"] == pytest.approx(labels.mean(), rel=1e-12)
    np.testing.assert_array_equal(again.decode(0, 0).labels, labels)
    assert "numbers from" in repr(ds)


def test_too_many_distinct_labels_over_all_row_groups(tmp_path):
    """No row group alone has too many, and what comes after the limit is not counted."""
    labels = np.random.default_rng(0).random(130_000)
    data = {"label": labels, "indices": pa.array([[]] * labels.size, pa.list_(pa.int32()))}
    pq.write_table(pa.table(data), tmp_path / "f.parquet", row_group_size=10_000)
    ds = Dataset(tmp_path / "f.parquet")
    assert ds.real_labels and ds.n_rows == labels.size
    assert ds.label_range["mean"] == pytest.approx(labels.mean(), rel=1e-12)
    assert (ds.label_range["min"], ds.label_range["max"]) == (labels.min(), labels.max())


def test_labels_of_few_values_serve_as_classes_and_as_numbers(tmp_path):
    data = {"label": [3, -1, 3], "indices": pa.array([[0], [1], []], pa.list_(pa.int32()))}
    ds = Dataset(write(tmp_path / "f.parquet", pa.table(data)))
    real = ds.with_real_labels()
    assert not ds.real_labels and ds.classes.tolist() == [-1, 3] and ds.decode(0, 0).labels.tolist() == [1, 0, 1]
    assert real.real_labels and real.classes is None and real.decode(0, 0).labels.tolist() == [3, -1, 3]
    assert real.with_real_labels() is real and real.digest != ds.digest
    assert ds.label_range == real.label_range == {"min": -1.0, "max": 3.0, "mean": pytest.approx(5 / 3)}
    text = Dataset(write(tmp_path / "t.parquet", pa.table({**data, "label": ["a", "b", "a"]})))
    assert text.label_range is None
    with pytest.raises(SchemaError, match="text"):
        text.with_real_labels()


def test_a_label_a_hair_beside_another_is_another(tmp_path):
    """What differs in the last bit of a float64 differs; a model's own labels are told from it."""
    data = {"label": [1.0, np.nextafter(1.0, 2.0), -1.0], "indices": pa.array([[0], [1], []], pa.list_(pa.int32()))}
    ds = Dataset(write(tmp_path / "f.parquet", pa.table(data)))
    assert ds.classes.tolist() == [-1.0, 1.0, np.nextafter(1.0, 2.0)]
    assert ds.decode(0, 0).labels.tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": [7, 7, 7]}, "every one of the 3 rows has the label 7"),
        ({"label": [], "indices": [], "values": []}, "no rows"),
        ({"weight": [0.0, 0.0, 0.0]}, "every row weight is zero"),
    ],
)
def test_data_nothing_can_be_learned_from(tmp_path, change, message):
    types = {"indices": pa.list_(pa.int32()), "values": pa.list_(pa.float32()), "label": pa.int64()}
    data = pa.table({k: pa.array(v, types.get(k)) for k, v in {**ROWS, **change}.items()})
    ds = Dataset(write(tmp_path / "f.parquet", data))
    with pytest.raises(DataError, match=message):
        require_trainable(ds)


def test_all_empty_rows_are_data(tmp_path):
    """No features at all is no reason to fail."""
    data = {"label": [0, 1], "indices": pa.array([[], []], pa.list_(pa.int32()))}
    ds = Dataset(write(tmp_path / "f.parquet", pa.table(data)))
    require_trainable(ds)
    assert ds.n_features == 0 and ds.nnz == 0 and ds.decode(0, 0).n_rows == 2


@pytest.mark.parametrize("name", ["_bigclf_manifest.json", "_bigclf_chunks.parquet"])
def test_a_damaged_manifest_is_made_anew_and_told_of(tmp_path, name):
    whole = write_shards([(np.array([0, 1, 2]), np.array([0, 1]), None, np.array([0.0, 1.0]))], tmp_path / "s",
                         classes=[0, 1])  # fmt: skip
    assert whole.warnings == []
    path = tmp_path / "s" / name
    path.write_bytes(path.read_bytes()[:-9] + b"xxxxxxxxx")
    again = Dataset(tmp_path / "s")
    assert again.n_rows == whole.n_rows and "damaged" in again.warnings[0]


@pytest.mark.parametrize("name", ["_bigclf_manifest.json", "_bigclf_chunks.parquet"])
@pytest.mark.parametrize("failure", [StoreError("s3://b/x: access was refused"), PermissionError(13, "Denied")])
def test_a_manifest_that_a_store_does_not_give_is_not_called_damaged(tmp_path, monkeypatch, name, failure):
    whole = write_shards([(np.array([0, 1, 2]), np.array([0, 1]), None, np.array([0.0, 1.0]))], tmp_path / "s",
                         classes=[0, 1])  # fmt: skip

    def failing(real, path, *rest):
        if os.path.basename(path) == name:
            raise failure
        return real(path, *rest)

    for module, reads in ((files, "read_text"), (shards, "read_table")):
        monkeypatch.setattr(module, reads, functools.partial(failing, getattr(module, reads)))
    again = Dataset(tmp_path / "s")
    assert again.n_rows == whole.n_rows and again.damaged == [] and "damaged" not in "".join(again.warnings)
    assert f"cannot be read ({failure})" in again.warnings[0]


def test_a_dataset_named_by_relative_paths_is_read_from_another_directory(tmp_path, monkeypatch):
    write(tmp_path / "a.parquet")
    monkeypatch.chdir(tmp_path)
    here = Dataset("a.parquet")
    there = here.seen_from_elsewhere()
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert there.decode(0, 0).n_rows == 3 and there.digest == here.digest
    assert here.files == ["a.parquet"] and there.files == [str(tmp_path / "a.parquet")]


# Data frames: their index, and what is no feature


def frame_table(index="__index_level_0__", named=True, **more):
    """A table as pandas writes it, with an index; ``named`` : whether its metadata tell of it."""
    data = pa.table({"label": [0, 1, 0], "a": [1.0, 0, 2], "b": [0, 3, 0], index: [100, 200, 300], **more})
    told = {"index_columns": [index], "columns": []}
    return data.replace_schema_metadata({"pandas": json.dumps(told)} if named else None)


@pytest.mark.parametrize(
    ("index", "named"),
    [("__index_level_0__", True), ("__null_dask_index__", False), ("customer", True), ("a_id", True)],
)
@pytest.mark.parametrize("pattern", ["*", "[a_c]*"])
def test_the_index_of_a_data_frame_is_no_feature(tmp_path, index, named, pattern):
    path = write(tmp_path / "f.parquet", frame_table(index, named))
    ds = Dataset(path, columns={"features": pattern})
    assert index not in ds.layout.values and "a" in ds.layout.values
    told = [text for text in ds.warnings if "not used as features" in text]
    assert len(told) == (not index.startswith("__")) and all(f"{index} (the data frame's index)" in t for t in told)
    assert Dataset(path, columns={"features": pattern}).warnings == ds.warnings  # remembered
    assert Dataset(path, columns={"features": ["a", index]}).layout.values == ("a", index)  # asked for by name


@pytest.mark.parametrize("pandas", ["{", "[]", '{"index_columns": 3}', '{"index_columns": [{"kind": "range"}]}'])
def test_metadata_that_name_no_index_leave_all_columns_of_numbers(tmp_path, pandas):
    path = write(tmp_path / "f.parquet", frame_table("id").replace_schema_metadata({"pandas": pandas}))
    assert Dataset(path, columns={"features": "*"}).layout.values == ("a", "b", "id")


def test_columns_that_are_no_features_are_named(tmp_path):
    more = {"name": ["x", "y", "z"], "when": pa.array([0, 1, 2], pa.timestamp("us")), "c": [1, 2, 3]}
    path = write(tmp_path / "f.parquet", frame_table("id", **more))
    ds = Dataset(path, columns={"features": "*"})
    assert ds.layout.values == ("a", "b", "c")
    (told,) = (text for text in ds.warnings if "not used as features" in text)
    assert "3 columns" in told and "name (string), when (timestamp[us]), id (the data frame's index)" in told
    many = pa.table({"label": [0], "x": [1.0], **{f"t{k}": ["text"] for k in range(1000)}})
    (told,) = Dataset(write(tmp_path / "g.parquet", many), columns={"features": "*"}).warnings
    assert "1,000 columns" in told and "t9 (string), ..." in told and "t10" not in told


def test_columns_that_are_no_features_are_said_once(tmp_path, caplog):
    path = write(tmp_path / "f.parquet", frame_table("id", name=["x", "y", "z"]))
    ds = Dataset(path, columns={"features": "*"})
    assert ds.said == ds.warnings and [r.getMessage() for r in caplog.records] == ds.warnings
    for data, columns in ((ds, None), (path, {"features": "*"})):
        caplog.clear()
        source = Shards(data, columns, Numbering(10**9)).rows(1, False)
        assert source.warnings == ds.warnings and not caplog.records  # ``fit`` says those that were not said
        assert source.said == (ds.warnings if data is ds else [])


def test_a_role_that_is_nearly_one_is_suggested(tmp_path):
    with pytest.raises(SchemaError, match="not labl; did you mean label"):
        Dataset(write(tmp_path / "f.parquet", frame_table()), columns={"labl": "a"})


def test_parts_of_a_frame_with_and_without_an_index_are_one_dataset(tmp_path):
    write(tmp_path / "1.parquet", pa.table({"label": [0, 1], "a": [1.0, 2], "b": [1, 0]}))
    write(tmp_path / "2.parquet", frame_table())
    assert Dataset(tmp_path / "*.parquet", columns={"features": "*"}).n_features == 2


@pytest.mark.parametrize(
    "name", ["bool", "int8", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64"]
)
def test_types_of_labels_have_the_names_of_numpy(name):
    """Arrow's own way to them wants pandas in some versions."""
    from bigclf.data import shards

    schema = pa.schema([("label", pa.from_numpy_dtype(np.dtype(name))), ("f", pa.float64())])
    layout = shards.Layout("f", None, "label", None)
    assert shards.label_dtype(schema, layout) == name
