"""Parquet that is damaged, hostile or of a kind not read: an error that names it, never a crash, nothing run."""

import json
import os
import pickle
import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest

import bigclf
from bigclf import files
from bigclf.conversion.convert import convert, write_shards
from bigclf.data import shards
from bigclf.data.dataset import MANIFEST, Dataset
from bigclf.errors import BigclfError, DataError
from bigclf.training.records.run_directory import clear


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


def table():
    rng = np.random.default_rng(0)
    indices = [np.unique(rng.integers(0, 50, 6)).tolist() for _ in range(40)]
    return pa.table(
        {
            "label": [i % 2 for i in range(40)],
            "indices": pa.array(indices, pa.list_(pa.int32())),
            "values": pa.array([[0.5 * i for i in row] for row in indices], pa.list_(pa.float32())),
        }
    )


def written(directory):
    """Files as several writers make them: pages of both formats, codecs, dictionaries, checksums, our own."""
    ways = {
        "snappy": dict(compression="snappy"),
        "v2": dict(compression="gzip", data_page_version="2.0", row_group_size=10),
        "plain": dict(compression="none", use_dictionary=False),
        "delta": dict(compression="zstd", use_dictionary=False, write_page_checksum=True,
                      column_encoding={"indices.list.element": "DELTA_BINARY_PACKED"}),
    }  # fmt: skip
    paths = []
    for name, options in ways.items():
        paths.append(directory / f"{name}.parquet")
        pq.write_table(table(), paths[-1], **options)
    flat = table()
    offsets = flat["indices"].combine_chunks().offsets.to_numpy().astype(np.int64)
    entries = (flat[name].combine_chunks().values.to_numpy() for name in ("indices", "values"))
    write_shards([(offsets, *entries, flat["label"].to_numpy().astype(float))], directory / "ours", classes=[0, 1])
    return [*paths, directory / "ours" / "part-00000.parquet"]


def damaged(directory, count, seed=0):
    """``count`` files with one to eight bits flipped, most of them in the footer and in the heads of pages."""
    draw, sources, made = random.Random(seed), written(directory), []
    for number in range(count):
        data = bytearray(sources[number % len(sources)].read_bytes())
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        for _ in range(draw.randint(1, 8)):
            first, last = draw.choice([(0, len(data)), (footer, len(data)), (4, 60)])
            data[draw.randrange(first, last)] ^= 1 << draw.randrange(8)
        made.append(directory / f"bad-{number}.parquet")
        made[-1].write_bytes(data)
    return [str(path) for path in made]


READ = """
import json, sys
from bigclf.data.dataset import Dataset
from bigclf.errors import BigclfError
said = []
for path in json.load(sys.stdin):
    print(path, file=sys.stderr, flush=True)
    try:
        ds = Dataset(path)
        rows = sum(ds.decode(0, g).n_rows for g in dict.fromkeys(ds.chunks.row_group.tolist()))
        said.append("rows" if rows == ds.n_rows else "wrong")
    except BigclfError as error:
        said.append("error" if path in str(error) else "nameless: " + str(error))
print(json.dumps(said))
"""


@pytest.mark.long
def test_flipped_bits_are_rows_or_an_error_that_names_the_file(tmp_path):
    """150 files in one process, which would not come back from a crash."""
    paths = damaged(tmp_path, 150)
    done = subprocess.run([sys.executable, "-c", READ], input=json.dumps(paths), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-400:]
    said = json.loads(done.stdout)
    assert len(said) == 150 and set(said) == {"rows", "error"}, set(said)
    assert said.count("error") > 75


@pytest.mark.slow
def test_validate_survives_whatever_the_file(tmp_path):
    """Each in a child of the command; done, or bad data."""
    for path in damaged(tmp_path, 40, seed=1):
        done = subprocess.run([sys.executable, "-m", "bigclf", "validate", path], capture_output=True, text=True)
        assert done.returncode in (0, 3) and "Traceback" not in done.stderr, (path, done.stderr[-400:])


class Mine:
    """What writes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_extension_types_are_plain_storage_and_nothing_is_unpickled(tmp_path):
    """A type whose description is a pickle (Apache Arrow, CVE-2023-47248)."""
    trap = tmp_path / "trap"
    for name in (b"arrow.py_extension_type", b"somebody.vector"):
        told = {b"ARROW:extension:name": name, b"ARROW:extension:metadata": pickle.dumps(Mine(trap))}
        data = table()
        data = data.cast(pa.schema([data.schema.field(0).with_metadata(told), *list(data.schema)[1:]]))
        pq.write_table(data, tmp_path / "f.parquet")
        ds = Dataset(tmp_path / "f.parquet")
        assert ds.n_rows == 40 and ds.decode(0, 0).n_rows == 40 and not trap.exists()


def test_encrypted_files_are_told_by_name(tmp_path):
    """The marks of a file with an encrypted footer (parquet-format, Encryption.md)."""
    (tmp_path / "f.parquet").write_bytes(b"PARE" + b"\0" * 100 + (50).to_bytes(4, "little") + b"PARE")
    with pytest.raises(DataError, match="encrypted") as caught:
        Dataset(tmp_path / "f.parquet")
    assert caught.value.file == str(tmp_path / "f.parquet")


class Keys(encryption.KmsClient):
    """Wraps keys in nothing."""

    def wrap_key(self, key_bytes, master_key_identifier):
        return key_bytes

    def unwrap_key(self, wrapped_key, master_key_identifier):
        return wrapped_key


@pytest.mark.parametrize("plain_footer", [False, True])
def test_encrypted_columns_are_told_by_name(tmp_path, plain_footer):
    """Of a real encrypted file, whose footer may be read by anybody."""
    asked = encryption.EncryptionConfiguration(
        footer_key="f",
        column_keys={"c": ["indices.list.element", "values.list.element"]},
        plaintext_footer=plain_footer,
    )
    factory = encryption.CryptoFactory(lambda config: Keys())
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), asked)
    path = tmp_path / "f.parquet"
    with pq.ParquetWriter(path, table().schema, encryption_properties=properties) as writer:
        writer.write_table(table())
    with pytest.raises(DataError, match="(?i)encrypt") as caught:
        Dataset(path)
    assert caught.value.file == str(path)


@pytest.mark.parametrize("codec", [3, 40])
def test_a_codec_that_is_not_known_is_an_error(tmp_path, codec):
    """LZO, which no reader here has, and a number that no codec has."""
    pq.write_table(table(), tmp_path / "f.parquet", compression="snappy")
    data = (tmp_path / "f.parquet").read_bytes()
    before, after = b"\x18\x05label\x15\x02", b"\x18\x05label\x15" + bytes([2 * codec])  # path, then codec as zigzag
    assert data.count(before) == 1
    (tmp_path / "f.parquet").write_bytes(data.replace(before, after))
    with pytest.raises(DataError, match="(?i)codec|compress|damaged|supported") as caught:
        Dataset(tmp_path / "f.parquet")
    assert caught.value.file == str(tmp_path / "f.parquet")


def check_long_row(tmp_path, nnz):
    """A row of ``nnz`` entries between short ones is a chunk of its own, and is trained on."""
    indptr = np.array([0, 2, 2 + nnz, 4 + nnz])
    indices = np.concatenate([[0, 1], np.arange(nnz), [1, 2]]).astype(np.uint32)
    values = np.full(indices.size, 0.5, np.float32)
    block = indptr, indices, values, np.array([0.0, 1, 0])
    ds = write_shards([block], tmp_path / "s", classes=[-1, 1], chunk_nnz=1000, memory="2GB")
    assert ds.chunks.nnz.tolist() == [2, nnz, 2] and ds.max_row_nnz == nnz
    assert bigclf.fit(ds, algo="pa1", epochs=1, memory="6GB", progress=False).coef_.shape == (1, nnz)


def test_a_row_longer_than_a_chunk_is_a_chunk_of_its_own(tmp_path):
    check_long_row(tmp_path, 100_000)


@pytest.mark.slow
def test_a_row_of_fifty_million_entries(tmp_path):
    check_long_row(tmp_path, 50_000_000)


@pytest.mark.parametrize("name", ["../part-00000.parquet", "/etc/passwd", "sub/../part-00000.parquet"])
def test_a_manifest_leads_nowhere_else(tmp_path, name):
    """It only says what is known of the files beside it, found by their own names."""
    (tmp_path / "rows.svm").write_bytes(b"1 1:1\n-1 2:1\n")
    ds = convert(tmp_path / "rows.svm", tmp_path / "s")
    manifest = tmp_path / "s" / MANIFEST
    facts = shards.unsealed(manifest.read_text())
    facts["files"][0]["name"] = name
    facts["n_rows"] = 10**6
    manifest.write_bytes(shards.sealed(facts))
    again = Dataset(tmp_path / "s")
    assert again.n_rows == 2 and again.files == ds.files


@pytest.mark.parametrize("what", ["shard", "output", "directory"])
def test_what_a_link_out_of_the_directory_names_stays_as_it_is(tmp_path, what):
    """A shard may be a link, and is read; what replaces or clears a directory takes the link and not what it names."""
    outside, place = tmp_path / "outside", tmp_path / "s"
    outside.mkdir()
    (outside / "mine.txt").write_text("mine")
    (tmp_path / "rows.svm").write_bytes(b"1 1:1\n-1 2:1\n")
    ds = convert(tmp_path / "rows.svm", outside / "shards")
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    if what == "shard":
        place.mkdir()
        (place / "part-00000.parquet").symlink_to(ds.files[0])
        assert Dataset(place).n_rows == 2
        convert(tmp_path / "rows.svm", place, overwrite=True)
        assert not (place / "part-00000.parquet").is_symlink()
    elif what == "output":
        (tmp_path / "m").symlink_to(outside / "mine.txt")
        bigclf.fit(ds, epochs=1, algo="pa1", progress=False).save(tmp_path / "m")
        assert bigclf.load(tmp_path / "m").n_features == 2
    else:
        place.mkdir()
        (place / "run").symlink_to(outside)
        with pytest.raises(BigclfError, match="mine"):
            convert(tmp_path / "rows.svm", place / "run", overwrite=True)
        bigclf.fit(ds, epochs=1, algo="pa1", progress=False, run_dir=place / "run")
        clear(place / "run")
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_a_hundred_thousand_files_are_listed(tmp_path):
    for number in range(100_000):
        (tmp_path / f"part-{number}.parquet").touch()
    assert len(files.expand(tmp_path)) == 100_000 and len(files.expand(tmp_path / "part-1*.parquet")) == 11_111


@pytest.mark.long
def test_more_entries_than_32_bits_count_are_described_learned_and_measured(tmp_path):
    """Real ones: one small file of four million equal entries, under 538 names."""
    rows, long = 2000, 2000
    block = (np.arange(rows + 1) * long, np.tile(np.arange(long, dtype=np.int32), rows),
             np.ones(rows * long, np.float32), np.arange(rows) % 3 % 2.0)  # fmt: skip
    one = write_shards([block], tmp_path / "one", classes=[0, 1], chunk_nnz=10**6, shard_nnz=10**8)
    (tmp_path / "many").mkdir()
    for number in range(538):
        os.link(one.files[0], tmp_path / "many" / f"part-{number:03d}.parquet")
    many = Dataset(tmp_path / "many")
    assert (many.n_rows, many.nnz) == (538 * rows, 538 * one.nnz) and many.nnz > 2**31
    assert int(many.chunks.nnz.sum()) == many.nnz
    model = bigclf.fit(many, algo="pa1", epochs=1, progress=False)
    (record,) = model.result_.history
    assert (record["rows"], record["nnz"]) == (many.n_rows, many.nnz)
    assert bigclf.evaluate(model, many).correct == 538 * bigclf.evaluate(model, one).correct > 0


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_a_hundred_thousand_files_are_one_dataset(tmp_path):
    """Forty shards of ten rows or so under many names, described, remembered and read."""
    (tmp_path / "r.svm").write_text("".join(f"{2 * (i % 2) - 1} {i % 7 + 1}:1 {i % 5 + 9}:0.5\n" for i in range(400)))
    few = convert(tmp_path / "r.svm", tmp_path / "s", shard_nnz=100, workers=1)
    rows = [told.n_rows for told in few.by_file()]
    (tmp_path / "many").mkdir()
    for number in range(100_000):
        os.link(few.files[number % len(few.files)], tmp_path / "many" / f"part-{number:06d}.parquet")
    for _ in range(2):
        ds = Dataset(tmp_path / "many")
        assert ds.n_rows == sum(rows[k % len(rows)] for k in range(100_000))
        assert any("same content" in text for text in ds.warnings)
    assert ds.decode(99_999, 0).n_rows == rows[99_999 % len(rows)]
