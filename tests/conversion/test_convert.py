"""Text to shards: the same rows as scikit-learn reads, the same bytes whoever writes them, and every bad line named."""

import bz2
import errno
import gzip
import hashlib
import itertools
import lzma
import os
import re
import subprocess
import sys
from io import BytesIO

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

import bigclf
from bigclf import files
from bigclf.conversion import converter, shuffle
from bigclf.conversion.convert import convert, write_shards
from bigclf.conversion.resuming import tidy
from bigclf.conversion.text import pieces, svmlight
from bigclf.conversion.text.parsed import Options
from bigclf.data.dataset import Dataset
from bigclf.errors import DataError, MemoryBudgetError, RunError


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


def text_of(m=400, d=60, seed=0, binary=False):
    rng = np.random.default_rng(seed)
    x = sp.random(m, d, 0.1, "csr", random_state=rng)
    x.data = np.ones(x.nnz) if binary else np.round(x.data, 4) + 0.001
    buffer = BytesIO()
    dump_svmlight_file(x, rng.integers(0, 2, m) * 2 - 1, buffer, zero_based=False)
    return buffer.getvalue()


def zstd(text):
    return pa.compress(text, "zstd", asbytes=True)


def source(tmp_path, text, name="rows.svm"):
    path = tmp_path / name
    path.write_bytes(text)
    return str(path)


def rows_of(dataset):
    groups = dict.fromkeys(zip(dataset.chunks.file.tolist(), dataset.chunks.row_group.tolist(), strict=True))
    blocks = [dataset.decode(f, g) for f, g in groups]
    parts = [
        sp.csr_matrix(
            (b.values if b.values.size else np.ones(b.nnz), b.indices.astype(np.int64), b.indptr),
            shape=(b.n_rows, dataset.n_features),
        )
        for b in blocks
    ]
    return sp.vstack(parts).tocsr(), dataset.classes[np.concatenate([b.labels for b in blocks]).astype(int)]


def digest(directory):
    names = sorted(name for name in os.listdir(directory) if name.startswith("part-"))
    return hashlib.sha256(b"".join((directory / name).read_bytes() for name in names)).hexdigest()


def sorted_rows(x, y):
    dense = np.column_stack([x.toarray(), y])
    return dense[np.lexsort(dense.T)]


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces and blocks small enough that a little text has many."""
    monkeypatch.setattr(pieces, "PIECE", 2000)
    monkeypatch.setattr(pieces, "BLOCK", 700)


# The same rows


@pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, bz2.compress, lzma.compress, zstd], ids=["plain", "gz", "bz2", "xz", "zst"]
)
def test_rows_are_those_scikit_learn_reads(tmp_path, small_pieces, pack):
    text = text_of()
    x, y = load_svmlight_file(BytesIO(text), zero_based=False)
    ds = convert(source(tmp_path, pack(text)), tmp_path / "s", shuffle=False, workers=1, shard_nnz=3000)
    got, labels = rows_of(ds)
    assert len(ds.files) > 1 and abs(got - x.astype(np.float32)).max() == 0
    np.testing.assert_array_equal(labels, y)
    assert ds.classes.dtype == np.int64 and ds.classes.tolist() == [-1, 1]
    assert ds.report["rows"] == 400 and ds.report["nnz"] == x.nnz == ds.nnz
    assert 0 < ds.report["largest_relative_rounding"] < 6e-8
    shuffled = convert(source(tmp_path, pack(text)), tmp_path / "t", workers=1, shard_nnz=3000)
    np.testing.assert_array_equal(sorted_rows(*rows_of(shuffled)), sorted_rows(got, labels))
    assert abs(rows_of(shuffled)[0] - got).max() > 0 and not shuffled.sorted_labels


def test_several_members_and_several_files(tmp_path):
    one, two = text_of(50), text_of(70, seed=1)
    gz = source(tmp_path, gzip.compress(one) + gzip.compress(two), "both.gz")
    a, b = source(tmp_path, one, "a.svm"), source(tmp_path, two, "b.svm")
    joined = rows_of(convert(gz, tmp_path / "s", shuffle=False))
    apart = rows_of(convert([a, b], tmp_path / "t", shuffle=False))
    assert abs(joined[0] - apart[0]).max() == 0 and joined[0].shape[0] == 120


def test_values_of_one_are_not_stored(tmp_path):
    ds = convert(source(tmp_path, text_of(binary=True)), tmp_path / "s")
    assert ds.binary and ds.decode(0, 0).values.size == 0


def test_sorted_source_is_shuffled(tmp_path):
    """w8a is such a file."""
    text = b"".join(b"%d 1:1 2:%d\n" % (i >= 500, i + 1) for i in range(1000))
    assert not convert(source(tmp_path, text), tmp_path / "s").sorted_labels
    assert convert(source(tmp_path, text), tmp_path / "t", shuffle=False).sorted_labels


# The same bytes


def test_bytes_do_not_depend_on_workers_memory_or_place(tmp_path, monkeypatch):
    text = text_of(30_000, 300)
    path = source(tmp_path, text)
    made = set()
    for number, (workers, memory) in enumerate([(1, "1GB"), (2, "1GB"), (1, "96MB")]):
        convert(path, tmp_path / f"s{number}", workers=workers, memory=memory, shard_nnz=300_000, chunk_nnz=25_000)
        made.add(digest(tmp_path / f"s{number}"))
    monkeypatch.setattr(shuffle.Spiller, "flush", _often(shuffle.Spiller.flush))
    packed = source(tmp_path, gzip.compress(text, 1), "z")
    convert(packed, tmp_path / "other", workers=1, shard_nnz=300_000, chunk_nnz=25_000)
    made.add(digest(tmp_path / "other"))
    assert len(made) == 1
    assert len(Dataset(tmp_path / "s0").files) > 2
    convert(path, tmp_path / "seed", workers=1, seed=1, shard_nnz=300_000, chunk_nnz=25_000)
    assert digest(tmp_path / "seed") not in made


def _often(flush):
    """Flush, and make room so small that every block becomes a run."""

    def flush_and_shrink(self):
        self.room = 1
        flush(self)

    return flush_and_shrink


@pytest.mark.parametrize("room", [1000, 10_000, 10**7])
def test_slabs_of_any_size_merge_to_the_same_rows(tmp_path, small_pieces, monkeypatch, room):
    real = shuffle._cuts
    monkeypatch.setattr(shuffle, "_cuts", lambda parts, _: real(parts, room))
    convert(source(tmp_path, text_of()), tmp_path / "s", chunk_nnz=500, workers=1)
    monkeypatch.undo()
    monkeypatch.setattr(pieces, "PIECE", 2000)
    convert(source(tmp_path, text_of()), tmp_path / "t", chunk_nnz=500, workers=1)
    assert digest(tmp_path / "s") == digest(tmp_path / "t")


def test_keys_are_a_bijection_and_depend_on_the_seed():
    ordinals = np.arange(100_000, dtype=np.uint64)
    keys = [shuffle.keys_of(ordinals, seed) for seed in (0, 1, 2**63)]
    assert all(np.unique(k).size == ordinals.size for k in keys)
    ranks = [np.argsort(k) for k in keys]
    assert all(abs(np.corrcoef(a, b)[0, 1]) < 0.02 for a, b in [(ranks[0], ranks[1]), (ranks[0], ordinals)])
    assert shuffle.keys_of(ordinals, None) is ordinals


def test_chunks_hold_about_chunk_nnz(tmp_path):
    ds = convert(source(tmp_path, text_of(2000)), tmp_path / "s", chunk_nnz=1000)
    cost = ds.chunks.nnz + ds.chunks.rows
    assert cost.max() <= 1000 and cost[:-1].min() > 950
    tiny = convert(source(tmp_path, text_of(50)), tmp_path / "t", chunk_nnz=1)
    assert tiny.n_chunks == 50


# Odd text


@pytest.mark.parametrize(
    "text",
    [
        b"1 1:2 3:4\n-1 2:1",
        b"\xef\xbb\xbf1 1:2 3:4\n-1 2:1\n",
        b"1 1:2 3:4\r\n-1 2:1\r\n",
        b"1\t1:2\t3:4 \n-1   2:1\t\n",
        b"# a comment\n1 1:2 3:4 # another \xff\n\n   \n-1 2:1 #\n",
        b"+1 qid:7 1:2 3:4\n-1 qid:8 2:+1\n",
        b"1.0 1:2e0 3:4.0\n-1e0 2:10E-1\n",
        b"1 1:2 2:0 3:4\n-1 1:-0.0 2:1 3:1e-300\n",
    ],
    ids=["no newline", "bom", "crlf", "tabs", "comments", "qid", "floats", "zeros"],
)
def test_odd_text_gives_the_same_rows(tmp_path, text):
    """Comments, line ends, tabs and zeros as people and programs write them."""
    ds = convert(source(tmp_path, text), tmp_path / "s", shuffle=False)
    x, y = rows_of(ds)
    assert x.toarray().tolist() == [[2, 0, 4], [0, 1, 0]] and y.tolist() == [1, -1] and ds.nnz == 3


LINE = st.text("0123456789:.+-e nqid#\t\r", max_size=20).map(str.encode)
ODD = st.sampled_from(
    ["", " ", "\t", "  ", "\x0b", "\x0c", "\r", "\x00", "_", "#", ":", "\u0661", "\xa0", "qid:3 ", "nan", "1e5"]
)
NUMBER = st.one_of(
    st.sampled_from(["1", "0.5", "-2e3", "0", "+7.", ".5", "1E-3", "-.25e+2", "1e", ".", "-", "1e39", "1e-400", "0x1"]),
    st.floats(-3e38, 3e38, allow_nan=False).map(repr),
    st.floats(-10, 10).map(lambda v: f"{v:.25g}"),
    st.decimals(-(10**6), 10**6, places=14).map(str),
    st.integers(0, 10**25).map(str),
)
INDEX = st.one_of(st.integers(-1, 12), st.integers(0, 2**31 - 1), st.integers(0, 99).map("{:05d}".format))
ROW = st.builds(
    lambda label, odd, pairs, end: (label + " " + odd + " ".join(f"{i}:{v}" for i, v in pairs) + end).encode(),
    st.sampled_from(["1", "-1", "+1", "2.5", "1e1", " 1", "1:1", "one"]),
    st.just("") | ODD,
    st.lists(st.tuples(INDEX, NUMBER), max_size=5).map(lambda pairs: sorted(pairs, key=lambda p: int(p[0]))),
    st.just("") | ODD | LINE.map(bytes.decode),
)
UNSORTED = st.builds(
    lambda pairs: ("1 " + " ".join(f"{i}:{v}" for i, v in pairs)).encode(),
    st.lists(st.tuples(st.integers(-1, 12), st.sampled_from(["1", "0.5", "-2e3", "0"])), max_size=5),
)
TEXT = st.lists(ROW | UNSORTED | LINE | st.binary(max_size=12), max_size=6).map(b"\n".join)


def check_against_scikit_learn(text):
    """scikit-learn's loader is the oracle, line by line; no more is refused than numbers that no shard can hold."""
    parsed = svmlight.parse(text, Options())
    lines, good, offset, bad = text.split(b"\n"), [], 0, []
    for line in lines:
        try:
            x, y = load_svmlight_file(BytesIO(line), zero_based=False)
            if x.shape[0] and _held(line, x, y):
                good.append((y[0], x.indices.tolist(), x.data.tolist()))
            elif x.shape[0]:
                bad.append(offset)
        except (ValueError, OverflowError):
            bad.append(offset)
        offset += len(line) + 1
    spans = [slice(a, b) for a, b in itertools.pairwise(parsed.indptr.tolist())]
    got = [
        (y, parsed.indices[s].tolist(), parsed.values[s].tolist()) for y, s in zip(parsed.labels, spans, strict=True)
    ]
    assert got == good and [b.offset for b in parsed.bad] == bad


def _held(line, x, y):
    """Whether a row that scikit-learn reads is one: finite, within float32, and of digits, not of 1_0 or zero bytes."""
    plain = line.split(b"#")[0]
    fit = np.isfinite(y[0]) and (np.abs(x.data) <= np.finfo(np.float32).max).all()
    return fit and b"\0" not in plain and b"_" not in re.sub(rb"qid\S*", b"", plain)


@settings(max_examples=200, deadline=None)
@given(TEXT)
def test_any_text_gives_the_rows_or_the_error_of_scikit_learn(text):
    """Any line, with indices up to 2^31 and numbers that no shard can hold."""
    check_against_scikit_learn(text)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None)
@given(TEXT)
def test_any_of_thousands_of_texts_gives_the_rows_or_the_error_of_scikit_learn(text):
    check_against_scikit_learn(text)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2**63 - 1), st.integers(-30, 19)), min_size=50, max_size=50))
def test_decimals_are_rounded_as_python_rounds_them(numbers):
    """Of up to 19 digits and small exponents, where the parser does it itself, and of others, where Python does."""
    halves = [(int(w) // 2**k * 2**k + 2 ** (k - 1), 0) for w, _ in numbers[:10] for k in (9, 10)]  # in the middle
    numbers = [f"{w}e{q}" for w, q in numbers + halves] + [f"{w / 2**63:.19f}" for w, _ in numbers]
    text = "".join(f"0 1:{number}\n" for number in numbers).encode()
    assert svmlight.parse(text, Options()).values.tolist() == [float(number) for number in numbers]


BAD_LINES = {
    b"1 1:2 x": "'x' is not index:value",
    b"1 1:": "the value in '1:' is not a number",
    b"one 1:2": "the label is not a number: 'one'",
    b" 1:2 3:1": "there is no label before '1:2'; predict takes such rows; if rows",
    b"1,2 1:2": "rows with several labels are not taken",
    b"1;2 1:2": "'1;2' is no label; labels of this text are numbers, and several whole ones of a row stand between",
    b"L1,L2 1:2": "'L1,L2' is no label; labels of this text are numbers",
    b"1 a:2": "is not a whole number",
    "1 \u0661:2".encode(): "is not a whole number",
    b"1 0:1": "pass index_base=0",
    b"1 -4:1": "negative",
    b"1 3:1 2:1": "not greater than the one before",
    b"1 3:1 3:1": "not greater than the one before",
    b"1 3:nan": "the value in '3:nan' is nan",
    b"1 3:-inf": "is -inf",
    b"nan 3:1": "the label is nan",
    b"1 3:1e39": "beyond the range of float32",
    b"1 3:1e999": "is inf",
    b"1 99999999999999999999:1": "beyond",
    b"\x00\x01\x02": "a zero byte",
    b"1 qid7 1:1": "'qid7' is not index:value",
}


@pytest.mark.parametrize("line", BAD_LINES, ids=[repr(line)[2:-1] for line in BAD_LINES])
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
def test_the_first_bad_line_is_named(tmp_path, small_pieces, line, pack):
    """Nothing is left behind."""
    rows = text_of(300).splitlines()
    rows[250:250] = [line]
    rows[280:280] = [b"bad, too"]
    path = source(tmp_path, pack(b"\n".join(rows)))
    with pytest.raises(DataError) as caught:
        convert(path, tmp_path / "s", workers=1)
    assert BAD_LINES[line] in str(caught.value)
    assert caught.value.file == path and caught.value.line == 251
    assert os.listdir(tmp_path) == ["rows.svm"]


@pytest.mark.long
def test_the_first_bad_line_is_named_by_many_workers(tmp_path):
    rows = text_of(120_000, 300).splitlines()
    rows[90_000] = rows[110_000] = b"1 2"
    path = source(tmp_path, b"\n".join(rows))
    with pytest.raises(DataError, match="not index:value") as caught:
        convert(path, tmp_path / "s", workers=2)
    assert caught.value.line == 90_001 and os.listdir(tmp_path) == ["rows.svm"]


def test_indices_beyond_32_bits(tmp_path):
    ds = convert(source(tmp_path, b"1 1:1 3000000001:2\n0 5:1\n"), tmp_path / "s", shuffle=False)
    block = ds.decode(0, 0)
    assert ds.index_width == 8 and block.indices.tolist() == [0, 3_000_000_000, 4] and ds.n_features == 3_000_000_001


def test_the_number_of_features_may_be_given(tmp_path):
    path = source(tmp_path, b"1 1:1 3:2\n0 5:1\n")
    assert convert(path, tmp_path / "s", n_features=9).n_features == 9
    with pytest.raises(DataError, match="beyond the 4 features") as caught:
        convert(path, tmp_path / "t", n_features=4)
    assert caught.value.line == 2


def test_zero_based_text(tmp_path):
    """The wrong base is told, both ways round."""
    path = source(tmp_path, b"1 0:1 3:2\n0 5:1\n")
    ds = convert(path, tmp_path / "s", index_base=0, shuffle=False)
    assert ds.decode(0, 0).indices.tolist() == [0, 3, 5] and not ds.warnings
    with pytest.raises(DataError, match="index_base=0"):
        convert(path, tmp_path / "t")
    one_based = convert(source(tmp_path, b"1 1:1\n0 2:1\n"), tmp_path / "u", index_base=0)
    assert "index_base=1" in one_based.warnings[0]


def test_bad_rows_are_skipped_or_kept_apart(tmp_path, small_pieces):
    rows = text_of(300).splitlines()
    rows[100:100] = [b"1 5:x"]
    rows[200:200] = [b"what? 1:1\r"]
    path = source(tmp_path, b"\n".join(rows))
    ds = convert(path, tmp_path / "s", on_bad_rows="skip", workers=1)
    assert ds.n_rows == 300 and ds.report["bad_rows"] == 2 and "line 101" in ds.report["bad_examples"][0]
    assert "2 bad rows were left out" in ds.warnings[0]
    ds = convert(path, tmp_path / "t", on_bad_rows="quarantine", workers=1)
    kept = (tmp_path / "t" / "_bigclf_quarantine.txt").read_bytes().splitlines()
    assert kept[1::2] == [b"1 5:x", b"what? 1:1"] and b"rows.svm, line 201: the label" in kept[2]
    assert Dataset(tmp_path / "t").n_rows == 300 and digest(tmp_path / "s") == digest(tmp_path / "t")
    with pytest.raises(DataError, match=r"2 of 302 rows are bad.*line 101"):
        convert(path, tmp_path / "u", on_bad_rows="skip", max_bad_fraction=0.001, workers=1)


# What is refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "no rows"),
        (b"# nothing\n\n", "no rows"),
        (gzip.compress(text_of())[:-20], "cannot be decompressed"),
        (gzip.compress(text_of())[:2000] + b"rubbish" * 200, "cannot be decompressed"),
        (bz2.compress(text_of())[:-20], "cannot be decompressed"),
        (b"\x28\xb5\x2f\xfdrest", "cannot be decompressed"),
        (zstd(text_of())[:-20], "cannot be decompressed"),
        (b"PAR1 and so on", "is a Parquet file, which needs no conversion"),
        (b"1 1:1 " + b" " * 2**25, "line of more than"),
    ],
    ids=["empty", "comments", "cut gz", "bad gz", "cut bz2", "bad zst", "cut zst", "parquet", "long line"],
)
def test_sources_that_cannot_be_read(tmp_path, text, message):
    path = source(tmp_path, text)
    with pytest.raises(DataError, match=message) as caught:
        convert(path, tmp_path / "s", workers=1, memory="100MB")
    assert caught.value.file == path and os.listdir(tmp_path) == ["rows.svm"]


def test_a_source_that_changes_meanwhile(tmp_path, monkeypatch):
    path = source(tmp_path, text_of(50))
    real = pieces.run_task

    def run_and_touch(job, task):
        done = real(job, task)
        os.utime(path, ns=(1, 1))
        return done

    monkeypatch.setattr(pieces, "run_task", run_and_touch)
    with pytest.raises(DataError, match="changed while"):
        convert(path, tmp_path / "s", workers=1)


@pytest.mark.parametrize("step", ["spill", "shard"])
def test_a_full_disk(tmp_path, monkeypatch, step):
    """Where nothing is finished nothing is left behind, else the rerun goes on."""

    def fail(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    path = source(tmp_path, text_of(50))
    with monkeypatch.context() as patch:
        patch.setattr(shuffle, "write_run" if step == "spill" else "write_shard", fail)
        with pytest.raises(RunError, match=r"no space left on device .* were free") as caught:
            convert(path, tmp_path / "s", workers=1)
    left = {"rows.svm", ".s.converting"} if step == "shard" else {"rows.svm"}
    assert set(os.listdir(tmp_path)) == left and ("goes on" in str(caught.value)) == (step == "shard")
    ds = convert(path, tmp_path / "s", workers=1)
    assert ds.n_rows == 50 and (ds.report["bytes_kept"] > 0) == (step == "shard")
    assert set(os.listdir(tmp_path)) == {"rows.svm", "s"}


def test_outputs_that_are_there(tmp_path):
    path = source(tmp_path, text_of(50))
    convert(path, tmp_path / "s")
    with pytest.raises(RunError, match="overwrite"):
        convert(path, tmp_path / "s")
    before = digest(tmp_path / "s")
    with pytest.raises(DataError):
        convert(source(tmp_path, b"bad\n", "bad.svm"), tmp_path / "s", overwrite=True)
    assert digest(tmp_path / "s") == before
    assert convert(source(tmp_path, text_of(60), "other.svm"), tmp_path / "s", overwrite=True).n_rows == 60
    (tmp_path / "s" / ".part-00001.parquet.tmp-4711-0123abcd").touch()  # by an append whose disk failed as it tidied up
    assert convert(path, tmp_path / "s", overwrite=True).n_rows == 50
    assert not [name for name in os.listdir(tmp_path / "s") if ".tmp-" in name]
    (tmp_path / "s" / "letters.doc").touch()
    with pytest.raises(RunError, match=r"letters.doc.*did not write"):
        convert(path, tmp_path / "s", overwrite=True)
    with pytest.raises(RunError, match="is a file"):
        convert(path, tmp_path / "bad.svm")
    (tmp_path / "empty").mkdir()
    assert convert(path, tmp_path / "empty" / "deep" / "s").n_rows == 50


def test_choices_and_memory(tmp_path):
    path = source(tmp_path, text_of(50))
    with pytest.raises(MemoryBudgetError, match=r"memory=96\.0 MB would do"):
        convert(path, tmp_path / "s", memory="10MB")
    with pytest.raises(MemoryBudgetError, match=r"3 processes; memory=288 MB would do"):
        convert(path, tmp_path / "s", memory="200MB", workers=3)
    for wrong in ({"format": "x"}, {"on_bad_rows": "x"}, {"index_base": 2}, {"chunk_nnz": 0}, {"workers": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            convert(path, tmp_path / "s", **wrong)
    assert os.listdir(tmp_path) == ["rows.svm"]


def test_progress_is_told_of_every_task(tmp_path, small_pieces):
    class Progress:
        rows = stopped = 0

        def start(self, plan):
            self.plan = plan

        def advance(self, rows, nbytes):
            self.rows += rows

        def stop(self):
            self.stopped += 1

    progress = Progress()
    convert(source(tmp_path, text_of()), tmp_path / "s", workers=1, progress=progress)
    assert progress.plan["task"] == "parse" and progress.rows == 400 and progress.stopped == 1


# Rows from memory


def test_write_shards_in_order_and_shuffled(tmp_path):
    x, y = load_svmlight_file(BytesIO(text_of()), zero_based=False)
    codes = (y > 0).astype(float)

    def blocks():
        for a in range(0, 400, 37):
            part = x[a : a + 37]
            yield part.indptr, part.indices.astype(np.int32), part.data, codes[a : a + 37], np.full(part.shape[0], 2.0)

    ds = write_shards(blocks(), tmp_path / "s", classes=["no", "yes"], chunk_nnz=300, shard_nnz=2000)
    got, labels = rows_of(ds)
    assert len(ds.files) > 1 and ds.weighted and ds.decode(0, 0).weights[0] == 2
    assert abs(got - x.astype(np.float32)).max() == 0 and labels.tolist() == ["yes" if v else "no" for v in codes]
    mixed = write_shards(blocks(), tmp_path / "t", classes=["no", "yes"], shuffle_rows=True, n_features=100)
    assert mixed.n_features == 100 and mixed.nnz == ds.nnz and (rows_of(mixed)[1] != labels).any()


def test_write_shards_takes_blocks_back(tmp_path):
    ds = convert(source(tmp_path, text_of()), tmp_path / "s", chunk_nnz=300)
    blocks = (ds.decode(0, int(g)) for g in range(ds.n_chunks))
    flat = ((b.indptr, b.indices, b.values, b.labels, b.weights) for b in blocks)
    copy = write_shards(
        flat, tmp_path / "t", classes=ds.classes, n_features=ds.n_features, chunk_nnz=300, features=ds.features
    )
    assert digest(tmp_path / "s") == digest(tmp_path / "t") and not copy.weighted


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [([0, 2], [-1, 1], "0 to 1, not 2"), ([0.5, 1], [-1, 1], "not 0.5"), ([0, 1], [1, -1], "must ascend")],
)
def test_write_shards_refuses_what_are_no_codes(tmp_path, labels, classes, message):
    block = np.array([0, 1, 2]), np.array([0, 1], np.uint32), None, np.array(labels, float)
    with pytest.raises(DataError, match=message):
        write_shards([block], tmp_path / "s", classes=classes)
    assert os.listdir(tmp_path) == []


def test_files_that_may_not_grow_leave_nothing_behind(tmp_path):
    """No room, by the system: no file may have more than 20,000 bytes."""
    path = source(tmp_path, text_of(3000))
    program = f"""
import resource, bigclf
from bigclf.conversion.converter import compile_kernels
from bigclf.errors import RunError
compile_kernels()
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    bigclf.convert({path!r}, {str(tmp_path / "s")!r}, workers=1)
except RunError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "file too large" in done.stdout and "nothing was left behind" in done.stdout
    assert os.listdir(tmp_path) == ["rows.svm"]


@pytest.mark.data
@pytest.mark.skipif("BIGCLF_DATA" not in os.environ, reason="BIGCLF_DATA does not name the folder of data sets")
@pytest.mark.parametrize(
    ("name", "rows", "features", "nnz", "classes"),
    [
        ("a9a/a9a.gz", 32_561, 123, 451_592, 2),  # counts as published on the LIBSVM page
        ("w8a/w8a.gz", 49_749, 300, 579_586, 2),
        ("mushrooms/mushrooms.gz", 8_124, 112, 170_604, 2),
        ("news20/news20.bz2", 15_935, 62_061, 1_272_569, 20),
    ],
)
def test_published_counts(tmp_path, name, rows, features, nnz, classes):
    ds = convert(files.join(os.environ["BIGCLF_DATA"], *name.split("/")), tmp_path / "s")
    assert (ds.n_rows, ds.n_features, ds.nnz, ds.classes.size) == (rows, features, nnz, classes)
    assert not ds.sorted_labels


@pytest.mark.parametrize("line", [b"1 1_0:1", b"1 1:1_0", b"1_0 1:1"])
def test_underscores_are_no_digits(tmp_path, line):
    """Python reads 1_0 as 10, and so does the parser beneath."""
    (tmp_path / "a.svm").write_bytes(b"1 1:1\n-1 2:1 # a_b\n" + line + b"\n")
    with pytest.raises(DataError) as error:
        convert(tmp_path / "a.svm", tmp_path / "out")
    assert error.value.line == 3 and not (tmp_path / "out").exists()


def test_labels_too_large_to_tell_apart_are_refused(tmp_path):
    (tmp_path / "a.svm").write_bytes(b"9007199254740993 1:1\n9007199254740992 2:1\n")
    with pytest.raises(DataError, match="2\\^53"):
        convert(tmp_path / "a.svm", tmp_path / "out")


@pytest.mark.parametrize("label", [b"1,3", b"1,", b"2,3,4"])
def test_several_labels_are_told_as_what_they_are(tmp_path, label):
    (tmp_path / "r.svm").write_bytes(b"1 1:1\n" + label + b" 1:0.5\n")
    with pytest.raises(DataError, match="line 2: rows with several labels are not taken") as caught:
        convert(tmp_path / "r.svm", tmp_path / "s")
    assert "on-bad-rows" not in str(caught.value)


def test_query_ids_are_said_once_to_be_ignored(tmp_path, caplog):
    (tmp_path / "r.svm").write_bytes(b"1 qid:1 1:1\n-1 qid:2 2:1\n" * 20)
    ds = convert(tmp_path / "r.svm", tmp_path / "s")
    assert len([text for text in ds.warnings if "qid: is ignored" in text]) == 1
    (tmp_path / "no.svm").write_bytes(b"1 1:1 # a qid:1\n-1 2:1\n")
    assert not any("qid" in text for text in convert(tmp_path / "no.svm", tmp_path / "n").warnings)
    model = bigclf.fit(str(tmp_path / "s"), algo="pa1", epochs=1)
    caplog.clear()
    bigclf.evaluate(model, str(tmp_path / "r.svm"))
    assert caplog.text.count("qid: is ignored") == 1


def test_as_many_processes_as_the_machine_has_memory_for(monkeypatch):
    """Each takes interpreter and libraries beside the budget that all share."""
    source = pieces.Source("rows.svm", 0, False, 2**31, 0)
    monkeypatch.setattr(converter.os, "sched_getaffinity", lambda _: range(4), raising=False)
    monkeypatch.setattr(converter, "anonymous_bytes", lambda: 200_000_000)
    for limit, wanted in ((64e9, 4), (1_100_000_000, 2), (512_000_000, 1), (100_000_000, 1)):
        monkeypatch.setattr(converter, "memory_limit", lambda limit=limit: (int(limit), "a control group"))
        assert converter.processes(None, 500_000_000, [source]) == wanted
        assert converter.processes(3, 500_000_000, [source]) == 3, "as asked"


def test_no_shards_appear_with_what_could_not_be_removed_from_among_them(tmp_path, monkeypatch):
    """They would be refused as another's when they are to be replaced."""
    removed, failed = os.rmdir, []

    def fails_twice(path, **options):  # also when it is tried once more
        if os.path.basename(path) == "runs" and len(failed) < 2:
            failed.append(path)
            raise OSError(errno.EIO, "Input/output error")
        removed(path, **options)

    monkeypatch.setattr(os, "rmdir", fails_twice)
    x = sp.random(20, 5, 0.5, "csr", np.float32, random_state=0)
    with pytest.raises(OSError, match="Input/output"):
        write_shards([(x.indptr, x.indices, x.data, np.arange(20) % 2, None)], tmp_path / "s", classes=[0, 1])
    assert os.listdir(tmp_path) == []


def test_what_a_killed_conversion_left_is_tidied_and_that_of_a_living_one_stays(tmp_path):
    place = tmp_path / ".s.converting"
    for path in (tmp_path / "s", place):
        path.mkdir()
    (place / "job.json").write_text("{}")
    held = files.lock(place / "lock")
    tidy(tmp_path / "s")
    assert place.exists()
    files.unlock(held)
    tidy(tmp_path / "s")
    assert os.listdir(tmp_path) == ["s"]
