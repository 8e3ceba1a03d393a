"""Vowpal Wabbit's text, readers of one's own, and records of several lines: right rows, or the line that is bad."""

import gzip
import itertools
import json
import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction import FeatureHasher

import bigclf
from bigclf.cli import main
from bigclf.conversion.convert import convert
from bigclf.conversion.text import pieces, readers, vowpal_wabbit
from bigclf.conversion.text.parsed import Options
from bigclf.errors import DataError


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


def source(tmp_path, text, name="rows.txt"):
    path = tmp_path / name
    path.write_bytes(text)
    return str(path)


def rows_of(parsed):
    """(label, weight, {index: value}) of each row, whose indices ascend."""
    found = []
    for i, (a, b) in enumerate(itertools.pairwise(parsed.indptr.tolist())):
        indices = parsed.indices[a:b].tolist()
        assert indices == sorted(set(indices))
        weight = parsed.weights[i] if parsed.weights.size else 1.0
        found.append((parsed.labels[i], weight, dict(zip(indices, parsed.values[a:b].tolist(), strict=True))))
    return found


# Vowpal Wabbit


def test_vowpal_wabbit_text_becomes_rows(tmp_path):
    """By hand, from the format's description in Vowpal Wabbit's wiki."""
    text = (
        b"1 | 3:2.5 0 7:-1\n"  # a value left out is 1
        b"-1 2.5 |  7:2 3\n"  # an importance is the row's weight
        b"1 'a_tag | 1:1\n"
        b"-1 0.5 tag| 1:1 1:2\n"  # the word that touches the bar is a tag too; values of one feature add up
        b"\n"
        b"1 |:2 5:3\n"  # the weight of a namespace multiplies
        b"-1 |\n"
    )
    ds = convert(source(tmp_path, text), tmp_path / "s", format="vw", shuffle=False)
    block = ds.decode(0, 0)
    assert ds.n_features == 8 and ds.weighted and ds.classes.tolist() == [-1, 1]
    assert np.diff(block.indptr).tolist() == [3, 2, 1, 1, 1, 0]
    assert block.indices.tolist() == [0, 3, 7, 3, 7, 1, 1, 5]
    assert block.values.tolist() == [1, 2.5, -1, 1, 2, 1, 3, 6]
    assert block.weights.tolist() == [1, 2.5, 1, 0.5, 1, 1] and block.labels.tolist() == [1, 0, 1, 0, 1, 0]


def test_names_are_hashed_as_scikit_learn_hashes_them(tmp_path):
    text = "3 |user age:3 name=Zoë |item:0.5 red price:2e1 red\n12 | red\n".encode()
    ds = convert(source(tmp_path, text), tmp_path / "s", format="vw", hash_bits=10, shuffle=False)
    names = [
        [("user^age", 3), ("user^name=Zoë", 1), ("item^red", 0.5), ("item^price", 10), ("item^red", 0.5)],
        [("red", 1)],
    ]
    expected = FeatureHasher(2**10, input_type="pair").transform(names).toarray()
    block = ds.decode(0, 0)
    got = np.zeros((2, ds.n_features))
    for i, (a, b) in enumerate(itertools.pairwise(block.indptr)):
        got[i, block.indices[a:b]] = block.values[a:b]
    np.testing.assert_array_equal(got, expected)
    assert ds.classes.tolist() == [3, 12] and ds.features == {"kind": "hashed names", "version": 1, "hash_bits": 10}


BAD = {
    b"1 f 3:1": "there is no bar",
    b"| 3:1": "there is no label",
    b"1| 3:1": "a word that touches the bar is a tag",
    b"one | 3:1": "the label is not a number: 'one'",
    b"1:0.5 2:1 | 3:1": "the label is not a number: '1:0.5'",
    b"1 2 3 | 3:1": "3 numbers before the bar",
    b"1 -2 | 3:1": "the importance -2 is negative",
    b"1 nan | 3:1": "the importance is nan",
    b"1 | 3:x": "the value in '3:x' is not a number",
    b"1 | 3:1:2": "the value in '3:1:2' is not a number",
    b"1 | :2": "the feature ':2' has no name",
    b"1 | 3:1e39": "beyond the range of float32",
    b"1 | 3:3e38 3:3e38": "beyond the range of float32",
    b"1 | a": "the feature 'a' is not a whole number; names of features are hashed with hash_bits=22",
    b"1 | -3": "is not a whole number",
    b"1 | 99999999999999999999": "beyond",
    b"1 |g 3": "the namespace 'g' is not '', that of the first row",
    b"1 |:x 3": "the weight of the namespace '' is not a number",
}


@pytest.mark.parametrize("line", BAD, ids=[repr(line)[2:-1] for line in BAD])
def test_bad_lines_of_vowpal_wabbit_text_are_named(tmp_path, line):
    text = b"1 | 1:2\n-1 | 2\n" + line + b"\n1 | 3:1\n"
    path = source(tmp_path, text)
    with pytest.raises(DataError) as caught:
        convert(path, tmp_path / "s", format="vw", workers=1)
    assert BAD[line] in str(caught.value) and caught.value.line == 3 and caught.value.file == path
    ds = convert(path, tmp_path / "s", format="vw", on_bad_rows="quarantine", max_bad_fraction=0.5, workers=1)
    kept = (tmp_path / "s" / "_bigclf_quarantine.txt").read_bytes()
    assert ds.n_rows == 3 and ds.report["bad_rows"] == 1
    assert kept.startswith(b"# rows.txt, line 3: ") and kept.endswith(b"\n" + line + b"\n")


WORD = st.text("ab1:|'- \t", max_size=6)
NAME = st.sampled_from(["", "f", "g", "a^b", "f:2", "f:-.5", ":3", "\xe4"])
FIELD = st.builds(
    lambda name, value: name + value,
    st.sampled_from(["a", "b", "1", "2", "17", "007", "a^b", "\xe9", "x" * 1200, "1_0", "3"]),
    st.sampled_from(["", ":1", ":0.25", ":-2e3", ":1e39", ":nan", ":", ":1:2", ":123456789012345678901", ":+.5"]),
)
PART = st.builds(lambda name, fields: name + " " + " ".join(fields), NAME, st.lists(FIELD, max_size=4))
LINE = st.builds(
    lambda head, parts, end: (head + "|" + "|".join(parts) + end).encode(),
    st.sampled_from(
        ["1 ", "-1 2 ", "3 0.5 'tag ", "2 tag", "", "1", "1 1 1 ", "1e999 ", "1 -1 ", "a ", " 1\t", "1 nan "]
    ),
    st.lists(PART, min_size=1, max_size=3),
    st.sampled_from(["", " ", "\r", "\t", "\x00", "|", WORD]).flatmap(lambda e: e if e is WORD else st.just(e)),
)
TEXT = st.lists(LINE | WORD.map(str.encode) | st.binary(max_size=12), max_size=6).map(b"\n".join)
TOLD = st.sampled_from(
    [Options(0), Options(1, 20), Options(0, None, None, b"f"), Options(0, 2**5, 5), Options(0, 2**20, 20)]
)


def digits(text):
    """Python's float, which reads 1_0 as 10, without that."""
    return float(text.replace(b"_", b"?"))


def simple(line, options):
    """The format's description in a few lines of Python; ValueError for what is no row."""
    head, bar, rest = line.partition(b"|")
    if b"\0" in line:
        raise ValueError
    words = head.split()
    if words and (head == head.rstrip() or words[-1][:1] == b"'"):
        words.pop()
    if not bar or not 1 <= len(words) <= 2:
        raise ValueError
    label, weight = digits(words[0]), digits(words[1]) if words[1:] else 1.0
    row, features = {}, []
    for part in rest.split(b"|"):
        words = part.split()
        space, _, scale = (words.pop(0) if part[:1].strip() else b"").partition(b":")
        factor = digits(scale) if _ else 1.0
        if not abs(factor) < np.inf:
            raise ValueError
        for word in words:
            name, colon, value = word.partition(b":")
            value = (digits(value) if colon else 1.0) * factor
            if not name:
                raise ValueError
            if options.hash_bits is None:
                if (
                    space != options.namespace
                    or not name.isdigit()
                    or not 0 <= int(name) - options.index_base < options.limit
                ):
                    raise ValueError
                index = int(name) - options.index_base
                row[index] = row.get(index, 0.0) + value
            else:
                features.append(((space + b"^" if space else b"") + name, value))
    if options.hash_bits is not None:
        hashed = FeatureHasher(options.n_features, input_type="pair").transform([[]])
        for name, value in features:
            one = FeatureHasher(options.n_features, input_type="pair").transform([[(name, 1.0)]])
            index = int(one.indices[0])
            row[index] = row.get(index, 0.0) + value * one.data[0]
        assert hashed.nnz == 0
    numbers = [label, weight, *row.values()]
    if (
        not all(abs(v) <= 3.4028234663852886e38 for v in numbers[1:])
        or abs(label) == np.inf
        or label != label
        or weight < 0
    ):
        raise ValueError
    return label, weight, dict(sorted(row.items()))


def check_against_the_description(text, options):
    good, bad, offset = [], [], 0
    for line in text.split(b"\n"):
        if line.strip():
            try:
                good.append(simple(line, options))
            except ValueError:
                bad.append(offset)
        offset += len(line) + 1
    parsed = vowpal_wabbit.parse(text, options)
    assert rows_of(parsed) == good and [b.offset for b in parsed.bad] == bad


@settings(max_examples=200, deadline=None)
@given(TEXT, TOLD)
def test_any_vowpal_wabbit_text_gives_the_rows_of_the_description_or_an_error(text, options):
    check_against_the_description(text, options)


@pytest.mark.slow
@settings(max_examples=5000, deadline=None)
@given(TEXT, TOLD)
def test_any_of_thousands_of_vowpal_wabbit_texts_gives_the_rows_of_the_description_or_an_error(text, options):
    check_against_the_description(text, options)


def test_long_rows_of_names_in_any_order_are_sorted_and_added_up():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 300, 2000)
    text = b"1 | " + b" ".join(b"%d:%d" % (i, k) for k, i in enumerate(ids.tolist())) + b"\n"
    parsed = vowpal_wabbit.parse(text, Options(0))
    assert parsed.indices.tolist() == np.unique(ids).tolist()
    np.testing.assert_array_equal(parsed.values, np.bincount(ids, np.arange(2000))[np.unique(ids)])


@pytest.mark.parametrize("format", ["vw", "svmlight"])
def test_sparse_text_trains_as_its_shards_do(tmp_path, format):
    """It becomes shards in the cache, once."""
    rng = np.random.default_rng(0)
    bar = "| " if format == "vw" else ""
    lines = [f"{2 * (i % 2) - 1} {bar}{i % 2 + 1}:1 {3 + int(rng.integers(5))}:0.5" for i in range(60)]
    path = source(tmp_path, "\n".join(lines).encode())
    options = dict(algo="pa1", epochs=2, memory="100MB", progress=False)
    direct = bigclf.fit(path, format=format, validate=path, **options)
    shards = bigclf.fit(convert(path, tmp_path / "s", format=format), **options)
    np.testing.assert_array_equal(direct.coef_, shards.coef_)
    assert direct.result_.history[-1]["validation"]["accuracy"] == 1
    np.testing.assert_array_equal(bigclf.fit(path, format=format, **options).coef_, direct.coef_)
    line = [
        "fit",
        path,
        "-o",
        str(tmp_path / "m"),
        "--format",
        format,
        "--algo",
        "pa1",
        "--epochs",
        "2",
        "--memory",
        "100MB",
        "--evaluate",
        path,
        "--json",
    ]
    done = CliRunner().invoke(main, line)
    assert done.exit_code == 0 and json.loads(done.stdout)["evaluation"]["accuracy"] == 1
    np.testing.assert_array_equal(bigclf.load(tmp_path / "m").coef_, direct.coef_)


def test_names_are_hashed_where_text_is_trained_on(tmp_path):
    path = source(tmp_path, b"1 | good red\n-1 | bad red\n" * 20)
    options = dict(algo="pa1", epochs=1, progress=False)
    direct = bigclf.fit(path, format="vw", hash_bits=6, **options)
    shards = bigclf.fit(convert(path, tmp_path / "s", format="vw", hash_bits=6), **options)
    np.testing.assert_array_equal(direct.coef_, shards.coef_)
    line = ["fit", path, "-o", tmp_path / "m", "--format", "vw", "--hash-bits", 6, "--algo", "pa1", "--epochs", 1]
    assert CliRunner().invoke(main, [*map(str, line)]).exit_code == 0
    np.testing.assert_array_equal(bigclf.load(tmp_path / "m").coef_, shards.coef_)
    with pytest.raises(TypeError, match="hash_bits has no effect"):
        bigclf.fit(path, hash_bits=6, **options)


# Readers of one's own


def fasta(record):
    """The row of a FASTA record whose header ends in its label: how often each base is there."""
    header, *lines = record.splitlines()
    sequence = b"".join(lines).strip()
    if set(sequence) - set(b"ACGT"):
        raise ValueError("a letter that is no base")
    counts = [sequence.count(base) for base in (b"T", b"A", b"C", b"A")]
    return float(header.rpartition(b"=")[2]), [3, 0, 1, 0], counts


@pytest.fixture
def registered():
    bigclf.readers.register("bases", fasta, record=b">")
    yield
    del readers.READERS["bases"]


SEQUENCES = [b"ACGT" * (i % 50) + b"A" * i for i in range(300)]
FASTA = b"".join(
    b">number %d label=%d\n" % (i, i % 3) + b"".join(s[k : k + 60] + b"\n" for k in range(0, len(s), 60))
    for i, s in enumerate(SEQUENCES)
)


@pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, lambda b: pa.compress(b, "zstd", asbytes=True)], ids=["plain", "gz", "zst"]
)
@pytest.mark.parametrize("workers", [1, 2])
def test_records_of_several_lines_are_never_cut(tmp_path, monkeypatch, registered, pack, workers):
    """Also where processes read parts of the file, to which the reader is sent."""
    if workers == 1:  # other processes have pieces of the usual size
        monkeypatch.setattr(pieces, "PIECE", 2000)
        monkeypatch.setattr(pieces, "BLOCK", 700)
    elif pack is not bytes:
        pytest.skip("once is enough")
    path = source(tmp_path, pack(FASTA), "x.fasta")
    ds = convert(path, tmp_path / "s", format="bases", shuffle=False, workers=workers)
    rows = [(i % 3, {k: v for k, v in ((0, 2 * s.count(b"A")), (1, s.count(b"C")), (3, s.count(b"T"))) if v})
            for i, s in enumerate(SEQUENCES)]  # fmt: skip
    block = ds.decode(0, 0)
    spans = list(itertools.pairwise(block.indptr.tolist()))
    got = [dict(zip(block.indices[a:b].tolist(), block.values[a:b].tolist(), strict=True)) for a, b in spans]
    assert ds.n_chunks == 1 and list(zip(block.labels.tolist(), got, strict=True)) == rows


def test_what_a_reader_raises_is_the_reason_of_a_bad_row(tmp_path, registered):
    text = b"; who knows\n>one label=1\nAC\nGT\n>two label=2\nAX\nGT\n>three label=x\nA\n>four label=4\nA\n"
    path = source(tmp_path, text, "x.fasta")
    with pytest.raises(DataError, match="text before the first record, which begins with '>'") as caught:
        convert(path, tmp_path / "s", format="bases")
    assert caught.value.line == 1
    ds = convert(path, tmp_path / "s", format="bases", on_bad_rows="quarantine", max_bad_fraction=1)
    kept = (tmp_path / "s" / "_bigclf_quarantine.txt").read_bytes()
    assert ds.n_rows == 2 and ds.report["bad_rows"] == 3
    assert b"line 5: a letter that is no base\n>two label=2\nAX\nGT\n# x.fasta, line 8: could not convert" in kept


WRONG = {
    "(1, [0.5], None)": "not a whole number",
    "(1, [-1], None)": "negative",
    "(1, [1, 2], [1])": "2 indices but 1 values",
    "(1, [1], [float('nan')])": "not finite",
    "(1, [1], [1e300])": "beyond the range of float32",
    "(float('inf'), [1], None)": "the label is inf",
    "(1, [1], [1], -1)": "the weight -1.0 is negative",
    "(1, [1])": "not enough values",
    "{}['x']": "KeyError: 'x'",
}


@pytest.mark.parametrize("made", WRONG)
def test_rows_that_are_none(made):
    parsed = readers.own(lambda record: eval(made)).parse(b"\nline\n", Options(0))
    assert WRONG[made] in parsed.bad[0].reason and parsed.bad[0].offset == 1 and parsed.labels.size == 0


def test_readers_are_found_by_module_and_function(tmp_path, monkeypatch):
    (tmp_path / "my_lines.py").write_text(
        "def row(line):\n    label, *ids = line.split()\n    return label, map(int, ids), None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    ds = convert(source(tmp_path, b"1 5 3 3\n\n0 1\n"), tmp_path / "s", format="my_lines:row", shuffle=False)
    assert ds.decode(0, 0).indices.tolist() == [3, 5, 1] and ds.decode(0, 0).values.tolist() == [2, 1, 1]
    for name, message in [
        ("none", "module:function"),
        ("my_lines:no", "cannot be imported"),
        ("no_such:x", "imported"),
    ]:
        with pytest.raises(ValueError, match=message):
            convert(tmp_path / "rows.txt", tmp_path / "t", format=name)
    for options in ({"index_base": 1}, {"hash_bits": 5}):
        with pytest.raises(TypeError, match="no effect"):
            convert(tmp_path / "rows.txt", tmp_path / "t", format="my_lines:row", **options)
    del sys.modules["my_lines"]


def test_the_example_of_a_reader_numbers_kmers_by_place(tmp_path, monkeypatch):
    """jobs/kmers.py, run as its first lines say, against a loop over all k and places."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "jobs"))
    sequences, places = ["ACGTTGCA", "acgacgtt"], {}
    for k in (1, 2, 3):
        for p in range(8 - k + 1):
            for code in itertools.product("ACGT", repeat=k):
                places[k, p, "".join(code)] = len(places)
    text = "".join(f"> chr=1, label={2 * i - 1}\n{s[:5]}\n{s[5:]}\n" for i, s in enumerate(sequences)).encode()
    ds = convert(source(tmp_path, text), tmp_path / "s", format="kmers:row", shuffle=False)
    block = ds.decode(0, 0)
    expected = [places[k, p, s.upper()[p : p + k]] for s in sequences for k in (1, 2, 3) for p in range(8 - k + 1)]
    assert block.indices.tolist() == expected and ds.classes.tolist() == [-1, 1] and ds.row_constant
    np.testing.assert_allclose(block.norms, 1, rtol=1e-6)
    with pytest.raises(DataError, match="no base") as caught:
        convert(source(tmp_path, text + b">x label=1\nACNT\n"), tmp_path / "t", format="kmers:row")
    assert caught.value.line == 7


# Real rows


@pytest.mark.data
@pytest.mark.skipif("BIGCLF_DATA" not in os.environ, reason="BIGCLF_DATA does not name the folder of data sets")
@pytest.mark.parametrize(
    ("name", "rows", "bits"),
    [("0001.dat.gz", 200, 18), ("rcv1_small.dat.gz", 1000, None), ("rcv1_multiclass.dat.gz", 1000, None)],
)
def test_rcv1_in_vowpal_wabbit_s_own_form(tmp_path, name, rows, bits):
    """Counts as the description of the data has them; the first has a feature with a name."""
    path = os.path.join(os.environ["BIGCLF_DATA"], "rcv1_vw", name)
    ds = convert(path, tmp_path / "s", format="vw", hash_bits=bits)
    assert ds.n_rows == rows and ds.classes.size == 2 and (ds.n_features < 48_000 or bits)
    assert bigclf.fit(ds, algo="dcd", C=1.0, memory="200MB", epochs=20, progress=False) is not None
