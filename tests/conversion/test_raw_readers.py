"""Readers of raw rows: what is bad is named with its place, what is not is what pandas and json read."""

import codecs
import csv
import datetime
import io
import json
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import bigclf
from bigclf.cli import main
from bigclf.conversion.tables import reading as tables
from bigclf.conversion.tables.reading import csv_rows, json_rows, labelled_lines, reading
from bigclf.conversion.tables.suggest import as_yaml, suggest
from bigclf.conversion.text import pieces
from bigclf.conversion.text.parsed import BadRow
from bigclf.data.bad_rows import enough
from bigclf.errors import DataError, SchemaError
from bigclf.features.spec import parse

SPEC = {"label": {"column": "y", "type": "number"}, "features": [{"numeric": "a"}, {"categorical": "c"}]}

DAYS = {"parts": ["time", "month", "weekday"]}  # no hour where all dates have the same


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


def converted(tmp_path, text, form="csv", features=SPEC, **options):
    path = tmp_path / f"rows.{form}"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return bigclf.convert(path, tmp_path / "s", format=form, features=features, overwrite=True, workers=1, **options)


def stored(dataset):
    return [pq.read_table(path).to_pydict() for path in dataset.files]


# Bad rows

GOOD = "a,c,y\n1,x,0\n2,z,1\n\n3,x,0\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"1,x", "2 fields, not 3"),
        (b"1,x,0,9", "4 fields, not 3"),
        (b"one,x,0", "column a: 'one' is not a number"),
        (b"1_0,x,0", "'1_0' is not a number"),
        (b"1e300,x,0", "beyond the range of float32"),
        (b"inf,x,0", "beyond the range of float32"),
        (b"1,\xff\xfe,0", "byte 3 of the line is not UTF-8"),
        (b"1,x,", "the label is missing"),
        (b"1,x,maybe", "column y: 'maybe' is not a number"),
        (b'1,"x,0', "a quote is not closed on its line"),
    ],
)
def test_a_bad_row_of_csv_is_named_with_its_line(tmp_path, line, reason):
    text = GOOD.encode() + line + b"\n4,x,1\n"
    with pytest.raises(DataError, match=reason) as caught:
        converted(tmp_path, text)
    assert caught.value.line == 6 and str(caught.value).startswith(str(tmp_path / "rows.csv"))


def test_bad_rows_are_left_out_or_kept_apart(tmp_path):
    lines = [b"1,x", b"one,x,0", b"1,\xff\xfe,0", b"1,x,"]
    text = GOOD.encode() + b"\n".join(lines) + b"\n4,x,1\n"
    kept = converted(tmp_path, text, on_bad_rows="quarantine", max_bad_fraction=0.5)
    assert kept.n_rows == 4 and kept.report["bad_rows"] == 4
    told = (tmp_path / "s" / "_bigclf_quarantine.txt").read_bytes()
    for number, line in enumerate(lines):
        assert b"line %d" % (6 + number) in told and line in told
    assert converted(tmp_path, text, on_bad_rows="skip", max_bad_fraction=0.5).nnz == kept.nnz
    with pytest.raises(DataError, match="more than the 0.1"):
        converted(tmp_path, text, on_bad_rows="skip", max_bad_fraction=0.1)


def office(path, m=400, decimal=","):
    """A table with decimal commas, of whose rows some are broken in one of four ways: lines 5, 7, 9, 11 ..."""
    broken = {3: "{k};1,5", 5: "{k};1,5;ulm;ja;x;y", 7: "{k};12,3,4abc;ulm;ja", 9: "{k};1,5;ulm;"}
    rows = [broken.get(k % 100, "{k};{a};{c};{y}") for k in range(m)]
    rows = [row.format(k=f"K{k}", a=f"{k * 37 % 97},{k % 89}", c="xyz"[k % 3], y=("nein", "ja")[k % 3 == 0])
            for k, row in enumerate(rows)]  # fmt: skip
    rows[1] = rows[1].rpartition(";")[0] + ";vielleicht"
    path.write_text("\n".join(["id;betrag;ort;klasse", *rows, ""]))
    return path


def test_a_few_bad_cells_and_broken_lines_are_told_in_a_proposal(tmp_path):
    found = suggest(office(tmp_path / "r.csv"))
    told = as_yaml(found)
    column = {c.name: c for c in found.columns}["betrag"]
    assert column.kind == "numeric" and found.how.decimal == ","
    assert '4 cells are not numbers, the first in line 9: "12,3,4abc"' in column.why
    assert "from the first 392 rows" in told and "# 8 lines cannot be read" in told
    assert "4 as in r.csv, line 5: 2 fields, not 4" in told and "#   4 as in line 7: 6 fields, not 4" in told
    shares = dict(found.classes)
    assert sum(shares.values()) == 388 and shares["vielleicht"] == 1
    assert f"nein {100 * shares['nein'] / 388:.1f} %" in told and "fewer than 1 % of the rows: vielleicht" in told
    assert "# missing in 4 of 392 rows: --on-bad-rows skip --max-bad-fraction 0.015 leaves them out" in told
    assert parse(told) == found.spec()
    printed = bigclf_command("inspect", tmp_path / "r.csv", "--suggest", "--json").stdout
    said = json.loads(printed)["notes"]
    assert parse(printed) == found.spec() and said["rows"] == 392  # it is a spec all the same
    assert said["label"] == {"column": "klasse", "distinct": 3, "guessed": True, "classes": shares,
                             "rare": ["vielleicht"], "missing": 4}  # fmt: skip
    assert said["unreadable"] == {"lines": 8, "why": ["4 as in r.csv, line 5: 2 fields, not 4",
                                                      "4 as in line 7: 6 fields, not 4"]}  # fmt: skip
    assert {c["column"]: c["why"] for c in said["columns"] if c["used"]}["betrag"] == column.why


def test_thousands_beside_a_mistake_are_no_categories(tmp_path):
    rows = [f'"{k},{100 + k}",{"uv"[k % 2]}' if k != 50 else "about fifty,u" for k in range(1, 100)]
    (tmp_path / "r.csv").write_text("\n".join(["a,y", *rows, ""]))
    found = suggest(tmp_path / "r.csv").columns[0]
    assert (found.kind, found.options) == ("numeric", {"written": "grouped"}) and "about fifty" in found.why


def test_cells_of_parquet_that_are_no_numbers_are_named_by_their_row(tmp_path):
    pq.write_table(pa.table({"a": [f"{k}.5" if k != 60 else "?!" for k in range(99)]}), tmp_path / "r.parquet")
    found = suggest(tmp_path / "r.parquet").columns[0]
    assert found.kind == "numeric" and 'the first in row group 0, row 60: "?!"' in found.why


@pytest.mark.parametrize(("strange", "kind"), [(5, "numeric"), (6, "categorical")])
def test_numbers_are_proposed_where_all_but_one_in_twenty_cells_are(tmp_path, strange, kind):
    cells = [f"{k % 50}" if k >= strange else f"about {k}" for k in range(100)]
    (tmp_path / "r.csv").write_text("\n".join(["a,y", *(f"{cell},{'uv'[k % 2]}" for k, cell in enumerate(cells)), ""]))
    assert suggest(tmp_path / "r.csv").columns[0].kind == kind


def test_bad_rows_are_told_by_reason_the_commonest_first(tmp_path):
    spec = {"label": "klasse", "features": {"numeric": ["betrag"]}, "reader": {"format": "csv", "separator": ";"}}
    path = office(tmp_path / "r.csv")
    with pytest.raises(DataError, match=r"line 2: column betrag: '0,0' is not a number; .*decimal: \",\""):
        bigclf.convert(path, tmp_path / "s", features=spec)
    with pytest.raises(DataError, match=r"400 of 400 rows are bad.*: 384 as in .*, line 2: column betrag: '0,0' is"):
        bigclf.convert(path, tmp_path / "s", features=spec, on_bad_rows="skip")
    spec["reader"]["decimal"] = ","
    with pytest.raises(DataError, match="16 of 400 rows are bad.*: 4 as in .*line 5: 2 fields.*4 as in line 7: 6 fields"
                                        ".*--max-bad-fraction 0.04 "):  # fmt: skip
        bigclf.convert(path, tmp_path / "s", features=spec, on_bad_rows="skip")
    ds = bigclf.convert(path, tmp_path / "s", features=spec, on_bad_rows="skip", max_bad_fraction=0.04)
    assert ds.n_rows == 384 and any("16 bad rows were left out: 4 as in" in one for one in ds.warnings)
    with pytest.raises(DataError, match="line 5: 2 fields, not 4; to leave such rows out, use --on-bad-rows skip"):
        bigclf.convert(path, tmp_path / "t", features=spec)


@pytest.mark.parametrize(
    ("bad", "rows", "value"),
    [(317, 20_000, 0.016), (7, 100, 0.07), (29, 100, 0.3), (1, 3, 0.34), (1, 999, 0.0011)],  # 0.29 * 100 < 29
)
def test_the_limit_that_is_named_allows_the_rows(bad, rows, value):
    assert enough(bad, rows) == value and bad <= value * rows


def test_lines_are_counted_over_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE", 300)
    monkeypatch.setattr(pieces, "BLOCK", 100)
    text = "a,c,y\n" + "1,x,0\n" * 200 + "1,x,0,\n" + "2,z,1\n" * 50
    with pytest.raises(DataError, match="4 fields") as caught:
        converted(tmp_path, text)
    assert caught.value.line == 202


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"a": 1, "c": "x", "y": 0', "not readable as JSON"),
        ("[1, 2", "not readable as JSON"),
        ("3", "must be a JSON object"),
        ('{"a": [1], "c": "x", "y": 0}', "column a: holds a list"),
        ('{"a": "one", "c": "x", "y": 0}', "column a: 'one' is not a number"),
        ('{"a": 1, "c": "x"}', "the label is missing"),
        ('{"a": 1, "c": "\\ud800", "y": 0}', "half of a surrogate pair"),
    ],
)
def test_a_bad_row_of_json_is_named_with_its_line(tmp_path, line, reason):
    good = '{"a": 1, "c": "x", "y": 0}\n{"a": null, "c": "z", "y": 1}\n'
    with pytest.raises(DataError, match=reason) as caught:
        converted(tmp_path, good + line + "\n" + good, "jsonl")
    assert caught.value.line == 3


def test_bad_rows_of_text_and_parquet_are_named(tmp_path):
    with pytest.raises(DataError, match="between a label and a text") as caught:
        converted(tmp_path, "ham\thello there\nspam only\n", "text", None)
    assert caught.value.line == 2
    table = pd.DataFrame({"a": ["1", "2", "x"] * 10, "c": "u", "y": [0, 1, 0] * 10})
    pq.write_table(pa.Table.from_pandas(table), tmp_path / "r.parquet", row_group_size=5)
    with pytest.raises(DataError, match="'x' is not a number") as caught:
        bigclf.convert(tmp_path / "r.parquet", tmp_path / "p", format="parquet", features=SPEC)
    assert (caught.value.row_group, caught.value.row) == (0, 2)
    (tmp_path / "docs" / "one").mkdir(parents=True)
    (tmp_path / "docs" / "one" / "bad").write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match="#one/bad: byte 4 is not utf-8"):
        bigclf.convert(tmp_path / "docs", tmp_path / "d", format="text")


def test_columns_that_are_not_there_are_named_before_reading(tmp_path):
    with pytest.raises(SchemaError, match="no such column; the file has a, b, y") as caught:
        converted(tmp_path, "a,b,y\n1,2,3\n")
    assert caught.value.column == "c"
    with pytest.raises(SchemaError, match="'a' twice"):
        converted(tmp_path, "a,a,y\n1,2,3\n")
    with pytest.raises(DataError, match="no rows"):
        converted(tmp_path, "a,c,y\n")
    with pytest.raises(TypeError, match="n_features has no effect"):
        converted(tmp_path, GOOD, n_features=3)


def test_rows_without_a_label_may_be_dropped(tmp_path):
    features = {"label": {"column": "y", "missing": "drop"}, "features": [{"numeric": "a"}]}
    ds = converted(tmp_path, "a,y\n1,0\n2,NA\n3,1\n", features=features)
    assert ds.n_rows == 2 and ds.report["unlabelled"] == 1 and ds.report["bad_rows"] == 0


def test_quoted_line_breaks(tmp_path, monkeypatch):
    text = "t,y\n" + "".join(f'"line one\nline ""two"" {k}",{k % 2}\n' for k in range(100))
    features = {"label": "y", "features": [{"text": "t"}], "reader": {"multiline": True}}
    monkeypatch.setattr(pieces, "PIECE", 500)
    monkeypatch.setattr(pieces, "BLOCK", 500)
    assert converted(tmp_path, text, features=features).n_rows == 100
    with pytest.raises(DataError, match=r"contain line breaks, use --multiline") as caught:
        converted(tmp_path, text, features={"label": "y", "features": [{"text": "t"}]})
    assert caught.value.line == 2


def test_a_share_is_held_out_by_a_hash_of_the_place(tmp_path):
    from bigclf.conversion.tables.from_columns import HeldOut
    from bigclf.model.raw_input import converted as in_cache

    (tmp_path / "r.csv").write_text("a,c,y\n" + "".join(f"{k},x,{k % 2}\n" for k in range(1000)))
    rest = in_cache(tmp_path / "r.csv", SPEC, "csv", part=HeldOut(0.3, False))
    held = in_cache(tmp_path / "r.csv", rest, part=HeldOut(0.3, True))
    assert rest.n_rows + held.n_rows == 1000 and 240 < held.n_rows < 360
    assert held.features["learned"]["digest"] == rest.features["learned"]["digest"]
    assert rest.features["learned"]["rows"] == rest.n_rows  # nothing was learned from what is held out


# The same as the readers of others

FIELD = st.one_of(
    st.sampled_from(["", " ", "1", "-2.5", "x", "NA", "1e5", "\x00", "é", "日", '"', '""', "#", "\t", "'", '5" disk']),
    st.text(st.characters(blacklist_categories=["Cs"]), max_size=5),
    st.text('",\n\r ab', max_size=6),
)
LINES = st.lists(
    st.one_of(
        st.lists(FIELD, min_size=2, max_size=4).map(lambda row: ",".join(row).encode()),
        st.lists(FIELD, min_size=3, max_size=3).map(lambda row: _quoted(row).encode()),
        st.binary(max_size=12),
    ),
    max_size=6,
).map(b"\n".join)
NAMES = ("0", "1", "2")


def _quoted(row):
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow([field.replace("\n", "").replace("\r", "") for field in row])
    return out.getvalue()


def check_csv(text):
    """Line by line: a line that the csv module reads as three fields without a NUL is that row, every other one is bad;
    and where all are rows, they are those of the table that pandas reads."""
    text = text.removeprefix(codecs.BOM_UTF8)  # the mark of the encoding, which the csv module takes for text
    table = csv_rows(text, NAMES, None, reading({"header": False}))
    expected, bad = [], []
    for found in tables.LINE.finditer(text):
        row = _csv_row(found[0])
        (expected if row is not None else bad).append(row if row is not None else found.start())
    assert [[table.columns[name][i].as_py() for name in NAMES] for i in range(table.n_rows)] == expected
    assert [offset for offset, _ in table.bad] == bad
    for row in range(table.n_rows):
        table.line_from(table.offset(row))
    odd = b"\0" in text or b"\r" in text  # pandas ends a field at the one, and begins a table oddly at the other
    if expected and not bad and not odd:
        theirs = pd.read_csv(
            io.BytesIO(text), header=None, names=NAMES, dtype=str, keep_default_na=False, index_col=False
        )
        assert theirs.to_numpy().tolist() == expected


def _csv_row(line):
    """The three fields of a line; None where it has not three, or is no line of text."""
    try:
        text = line.decode()
        row = next(csv.reader([text]))
    except (ValueError, StopIteration, csv.Error):
        return None
    return row if len(row) == 3 and "\0" not in text and not _unclosed(text) else None


def _unclosed(text):
    reader = csv.reader(iter([text, ""]))
    next(reader)
    return reader.line_num > 1


PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.lists(st.integers(), max_size=1)
)
NESTED = st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists, max_leaves=3)
ODD = [b"{", b"[", b"{}", b'{"a": 01}', b'{"a": "\\ud800"}', b"nul", b'{"a": 1} x', b"[" * 5000, b'{"a": 1e999}']
JSON = st.one_of(
    st.dictionaries(st.sampled_from("abc"), PLAIN).map(lambda row: json.dumps(row).encode()),
    NESTED.map(lambda value: json.dumps(value).encode()),
    st.sampled_from(ODD),
    st.binary(max_size=10),
)


def check_json(text):
    """Line by line: an object (or a list) of plain values is the row that json reads; every other line is bad."""
    table = json_rows(text, ("a", "b"))
    good, bad = [], []
    for found in tables.LINE.finditer(text):
        if not found[0].strip():
            continue
        row = _json_row(found[0])
        (bad if row is None else good).append(found.start() if row is None else row)
    assert [offset for offset, _ in table.bad] == bad
    assert table.n_rows == len(good)
    for name in "ab":
        for i, row in enumerate(good):
            _same(table.columns[name][i].as_py(), row.get(name))


def _json_row(line):
    try:
        row = json.loads(line)
        row = {str(k): v for k, v in enumerate(row)} if isinstance(row, list) else row
        values = [row.get(name) for name in "ab"]
        for value in values:
            if isinstance(value, str):
                value.encode()
    except (ValueError, AttributeError, RecursionError):
        return None
    return None if any(isinstance(value, list | dict) for value in values) else row


def _same(got, expected):
    if expected is None or got is None:
        assert got is None and (expected is None or expected != expected)  # NaN is missing
    elif isinstance(got, float) and isinstance(expected, int | float):
        assert got == pytest.approx(float(expected) if abs(expected) < 1e308 else got, nan_ok=True)
    elif isinstance(expected, str):
        assert got == expected
    elif isinstance(expected, bool):
        assert got in (expected, json.dumps(expected))
    else:
        assert float(got) == pytest.approx(float(expected), nan_ok=True)


def check_lines(text):
    table = labelled_lines(text, (), None, reading({"format": "text"}))
    good, bad = [], []
    for found in tables.LINE.finditer(text):
        label, tab, said = found[0].partition(b"\t")
        try:
            good.append((label.decode(), said.decode())) if tab and found[0].decode() is not None else bad.append(
                found.start()
            )
        except UnicodeDecodeError:
            bad.append(found.start())
    assert list(zip(table.columns["label"].to_pylist(), table.columns["text"].to_pylist(), strict=True)) == good
    assert [offset for offset, _ in table.bad] == bad


TABBED = st.lists(st.one_of(st.binary(max_size=8), st.text("ab\té \r", max_size=8).map(str.encode)), max_size=6).map(
    b"\n".join
)
CHECKS = [(check_csv, LINES), (check_json, st.lists(JSON, max_size=5).map(b"\n".join)), (check_lines, TABBED)]


@pytest.mark.parametrize(("check", "texts"), CHECKS, ids=["csv", "json", "text"])
def test_any_text_gives_the_rows_of_the_reference_or_bad_ones(check, texts):
    for text in (b",\n,,\x00", b',a","'):  # what random texts found
        check(text)
    settings(max_examples=100, deadline=None)(given(texts)(check))()


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("check", "texts"), CHECKS, ids=["csv", "json", "text"])
def test_any_text_gives_the_rows_of_the_reference_at_length(check, texts):
    settings(max_examples=5000, deadline=None)(given(texts)(check))()


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("times", [50, pytest.param(5000, marks=pytest.mark.slow)])
def test_a_damaged_parquet_file_is_an_error_never_a_crash(times, tmp_path):
    """Some bytes changed, cut or added: the table of the whole file, or an error that names it."""
    table = pd.DataFrame({"a": np.arange(50.0), "c": ["u", "v"] * 25, "y": [0, 1] * 25})
    pq.write_table(pa.Table.from_pandas(table), tmp_path / "r.parquet", row_group_size=20, write_page_checksum=True)
    done = subprocess.run(
        [sys.executable, "-c", DAMAGED, tmp_path / "r.parquet", str(times)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


DAMAGED = """
import random, sys
from bigclf.conversion.tables import from_columns, reading
from bigclf.features.spec import parse
from bigclf.errors import BigclfError
path, times = sys.argv[1], int(sys.argv[2])
whole = open(path, "rb").read()
spec = parse({"label": "y", "features": [{"numeric": "a"}, {"categorical": "c"}], "reader": {"format": "parquet"}})
def rows(name):
    raw = from_columns.prepare(name, spec, 2**28)
    found = []
    for task in reading.tasks_of(raw.reader, raw.sources[0], 1):
        for _, batch in reading.batches(raw.reader, task):
            found += list(zip(*(batch.columns[column].to_pylist() for column in "acy")))
    return found
expected, random = rows(path), random.Random(0)
for k in range(times):
    data = bytearray(whole)
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(data))
        kind = random.random()
        if kind < 0.7:
            data[place] = random.randrange(256)
        elif kind < 0.85:
            del data[place : place + random.randint(1, 40)]
        else:
            data[place:place] = bytes(random.randrange(256) for _ in range(random.randint(1, 8)))
    name = path + ".damaged"
    open(name, "wb").write(data)
    try:
        got = rows(name)
    except BigclfError as error:
        assert name in str(error), error
        continue
    assert len(got) <= len(expected), (k, len(got))
"""


# Proposals


def test_a_proposed_spec_is_one_that_can_be_used(tmp_path):
    rng = np.random.default_rng(0)
    m = 400
    frame = pd.DataFrame(
        {
            "id": [f"row-{k}" for k in range(m)],
            "age": rng.integers(18, 90, m),
            "flag": rng.integers(0, 2, m),
            "rare": np.where(np.arange(m) % 150 == 0, np.arange(m) // 150 + 1, 0),
            "pay": np.round(np.exp(rng.normal(0, 3, m)), 2),
            "job": rng.choice(["clerk", "cook", ""], m),
            "notes": [" ".join(rng.choice(["so", "it", "goes", "on", "for", "ever"], 8)) for _ in range(m)],
            "since": pd.date_range("2020-01-01", periods=m).strftime("%Y-%m-%d"),
            "class": rng.choice(["a", "b"], m),
        }
    )
    frame.to_csv(tmp_path / "r.csv", index=False, sep=";")
    found = suggest(tmp_path / "r.csv")
    told = as_yaml(found)
    spec = parse(told)
    assert spec == found.spec() and found.label == "class" and spec.reader["separator"] == ";"
    kinds = {c.name: (c.kind, c.options) for c in found.columns}
    assert kinds["id"][0] == "" and kinds["job"] == ("categorical", {}) and kinds["since"] == ("date", DAYS)
    assert kinds["flag"] == kinds["rare"] == ("numeric", {"scale": "none"})
    assert kinds["pay"] == ("numeric", {"scale": "log"})
    assert kinds["notes"][0] == "text" and "# left out: id" in told and "% missing" in told
    ds = bigclf.convert(tmp_path / "r.csv", tmp_path / "s", features=told)
    assert ds.n_rows == m and ds.classes.tolist() == ["a", "b"]
    frame.to_csv(tmp_path / "bare.csv", index=False, header=False)
    bare = suggest(tmp_path / "bare.csv")
    assert bare.spec().reader["header"] is False and bare.label == "8"
    frame.to_json(tmp_path / "r.jsonl", orient="records", lines=True)
    assert suggest(tmp_path / "r.jsonl").spec().reader["format"] == "jsonl"


def test_a_table_as_german_offices_have_it(tmp_path):
    m = 120
    days = pd.date_range("2024-01-01", periods=m)
    frame = pd.DataFrame(
        {
            "Größe (€)": [f"{k},{k % 10}5" if k % 9 else "" for k in range(m)],
            "Datum": days.strftime("%d.%m.%Y"),
            "slashes": days.strftime("%m/%d/%Y"),
            "unclear": pd.DatetimeIndex(["2024-01-02", "2024-03-04"] * (m // 2)).strftime("%d/%m/%Y"),
            "gekündigt?": ["ja", "nein", "ja"] * (m // 3),
        }
    )
    frame.loc[3, "Datum"] = ""
    frame.to_csv(tmp_path / "r.csv", index=False, sep=";", encoding="utf-8-sig")
    found = suggest(tmp_path / "r.csv")
    told = as_yaml(found)
    assert parse(told) == found.spec() and found.label == "gekündigt?"
    kinds = {c.name: (c.kind, c.options) for c in found.columns}
    assert kinds["Datum"] == ("date", {"format": "%d.%m.%Y", **DAYS})
    assert kinds["slashes"] == ("date", {"format": "%m/%d/%Y", **DAYS})
    assert kinds["unclear"] == ("categorical", {}) and kinds["Größe (€)"] == ("numeric", {})
    assert 'label: "gekündigt?"' in told and 'decimal: ","' in told
    german = bigclf.convert(tmp_path / "r.csv", tmp_path / "s", features=told)
    frame["Größe (€)"] = frame["Größe (€)"].str.replace(",", ".")
    frame.to_csv(tmp_path / "p.csv", index=False, sep=";")
    with_points = suggest(tmp_path / "p.csv")
    assert with_points.how.decimal == "." and with_points.columns[0].kind == "numeric"
    english = bigclf.convert(tmp_path / "p.csv", tmp_path / "t", features=as_yaml(with_points))
    assert stored(german) == stored(english)
    with pytest.raises(DataError, match="line 3: column Größe .*: '1.15' is not a number; decimals have a comma here"):
        bigclf.convert(tmp_path / "p.csv", tmp_path / "u", features=told)
    with pytest.raises(DataError, match="'1,15' is not a number; write it with a decimal point .* --decimal ,"):
        bigclf.convert(tmp_path / "r.csv", tmp_path / "u", features=as_yaml(with_points))


@pytest.mark.parametrize(
    ("a", "b", "decimal", "why"),
    [
        ("-{k},25", "2,{h}", ",", ""),  # the second alone might be thousands
        ("2,{h}", "{k}", ".", "written as amounts"),  # were they decimals, a scale is all that would differ
        ("{k},5", "{k}.5", ".", "numbers with a comma"),  # as many with a point
        ("{k}.25", "{k}", ".", ""),
    ],
)
def test_decimal_commas_are_told_from_thousands_and_points(tmp_path, a, b, decimal, why):
    rows = [f"{a};{b};{'xy'[k % 2]}".format(k=k, h=100 + 7 * k % 41) for k in range(40)]
    (tmp_path / "r.csv").write_text("\n".join(["a;b;class", *rows, ""]))
    found = suggest(tmp_path / "r.csv")
    assert found.how.decimal == decimal and why in found.columns[0].why
    assert found.columns[0].kind == ("" if why == "numbers with a comma" else "numeric")


def test_decimals_of_labels_weights_and_frames_have_the_comma_too(tmp_path):
    spec = {"label": "y", "weight": "w", "features": {"numeric": ["x"]}, "reader": {"format": "csv", "separator": ";"}}
    rows = [(k / 8, k / 4, 1 + k / 2) for k in range(8)]
    for decimal in (".", ","):
        text = "\n".join(["x;y;w", *(";".join(map(str, row)) for row in rows), ""]).replace(".", decimal)
        (tmp_path / f"{ord(decimal)}.csv").write_text(text)
    told = {**spec, "reader": {**spec["reader"], "decimal": ","}}
    points = bigclf.convert(tmp_path / "46.csv", tmp_path / "p", features=spec)
    commas = bigclf.convert(tmp_path / "44.csv", tmp_path / "c", features=told)
    assert stored(points) == stored(commas)
    assert commas.classes.tolist() == [k / 4 for k in range(8)]
    model = bigclf.fit(commas, loss="squared_epsilon_insensitive", C=1)
    frame = pd.read_csv(tmp_path / "44.csv", sep=";", dtype=str)
    assert (model.predict(frame) == model.predict(pd.DataFrame({"x": [k / 8 for k in range(8)]}))).all()
    for wrong, reason in (({"decimal": "'"}, "'.' or ','"), ({"format": "jsonl", "decimal": ","}, "no effect")):
        with pytest.raises(SchemaError, match=reason):
            bigclf.convert(tmp_path / "44.csv", tmp_path / "d", features={**spec, "reader": wrong})


def test_dates_of_which_some_are_none_are_proposed_as_dates(tmp_path):
    for decimal in ".", ",":
        days = [f"{1 + k % 28:02d}.{1 + k % 12:02d}.20{10 + k % 9}" for k in range(300)]
        days[7], days[20], days[40] = "unknown", "n/a", "soon"
        rows = [f"{day};{k}{decimal}5;{k % 2}\n" for k, day in enumerate(days)]
        (tmp_path / "r.csv").write_text("since;pay;y\n" + "".join(rows))
        found = suggest(tmp_path / "r.csv").columns[0]
        assert (found.kind, found.options) == ("date", {"format": "%d.%m.%Y", **DAYS})
        assert '2 cells are not dates, the first in line 9: "unknown"' in found.why
    (tmp_path / "r.csv").write_text("since,y\n" + "".join(f"2020-01-{1 + k % 28:02d}T{k % 24:02d},{k % 2}\n" for k in
                                                          range(300)) + "soon,1\n")  # fmt: skip
    assert suggest(tmp_path / "r.csv").columns[0].kind == "date"


def test_a_number_of_the_row_is_left_out_where_some_lines_cannot_be_read_too(tmp_path):
    lines = [f"{100 + k},{k * k % 17},{k % 2}" for k in range(200)]
    for k in (3, 50, 51):
        lines[k] += ",x"
    (tmp_path / "r.csv").write_text("Order ID,a,y\n" + "\n".join(lines) + "\n")
    found = suggest(tmp_path / "r.csv")
    assert found.broken.n == 3 and found.columns[0].kind == "" and "just numbers the rows" in found.columns[0].why
    (tmp_path / "r.csv").write_text("Order ID,a,y\n" + "\n".join(lines[:90] + lines[95:]) + "\n")  # more are missing
    assert suggest(tmp_path / "r.csv").columns[0].kind == "numeric"


def test_another_separator_is_told_by_the_header(tmp_path):
    with pytest.raises(SchemaError, match="names have ';' between them: --separator ';'"):
        converted(tmp_path, "Order ID;y\n1;0\n", features={"label": "y", "features": [{"numeric": "Order ID"}]})


def test_columns_that_number_the_rows_are_proposed_to_be_left_out(tmp_path):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"nr": np.arange(7, 127), "id": rng.permutation(500)[:120], "paid": rng.permutation(500)[:120],
                          "class": rng.choice(["a", "b"], 120)})  # fmt: skip
    frame.to_csv(tmp_path / "r.csv", index=False)
    kinds = {c.name: (c.kind, c.why) for c in suggest(tmp_path / "r.csv").columns}
    assert kinds["nr"][0] == "" and "just numbers the rows" in kinds["nr"][1]
    assert kinds["id"][0] == "" and "a different value in every row" in kinds["id"][1]
    assert kinds["paid"][0] == "numeric"


# From the command line


def test_fit_leaves_out_as_many_bad_rows_as_it_is_told(tmp_path):
    words = ("fit", office(tmp_path / "r.csv"), "--separator", ";", "--decimal", ",", "--label", "klasse", "--numeric",
             "betrag", "--categorical", "ort", "-o", tmp_path / "m")  # fmt: skip
    refused = bigclf_command(*words, "--on-bad-rows", "quarantine")
    assert refused.exit_code == 2 and "is for `bigclf convert`" in refused.output
    refused = bigclf_command(*words)
    assert refused.exit_code == 3 and "--on-bad-rows skip" in refused.output
    refused = bigclf_command(*words, "--on-bad-rows", "skip")
    assert refused.exit_code == 3 and "--max-bad-fraction 0.04 " in refused.output
    # a share held out needs no more: broken lines, which belong to no part, are counted once, of all rows
    done = bigclf_command(*words, "--on-bad-rows", "skip", "--max-bad-fraction", "0.04", "--holdout", "0.2", "--json")
    assert done.exit_code == 0, done.output
    assert 40 < json.loads(done.stdout)["evaluation"]["n"] < 120
    leave = ("--on-bad-rows", "skip", "--max-bad-fraction", "0.04")
    # 4 rows too short, 4 too long, 4 without a label and 4 with a cell that is no number, of 400
    for command, more in (("evaluate", ()), ("calibrate", ("-o", tmp_path / "c", "--overwrite"))):
        refused = bigclf_command(command, tmp_path / "m", tmp_path / "r.csv", *more)
        assert (
            refused.exit_code == 3
            and "line 5: 2 fields, not 4; to leave such rows out, use --on-bad-rows skip" in refused.output
        )
        few = bigclf_command(command, tmp_path / "m", tmp_path / "r.csv", *more, *leave[:2])
        assert few.exit_code == 3 and "--max-bad-fraction 0.04 " in few.output
        told = bigclf_command(command, tmp_path / "m", tmp_path / "r.csv", *more, *leave, "--json")
        assert told.exit_code == 0 and json.loads(told.stdout)["bad_rows"] == 16, told.output
        text = bigclf_command(command, tmp_path / "m", tmp_path / "r.csv", *more, *leave).output
        assert "16 bad rows were left out: 4 as in" in " ".join(text.split())
        assert command == "calibrate" or json.loads(told.stdout)["n"] == 384
    shards = bigclf_command("fit", tmp_path, "-o", tmp_path.parent / "n", "--max-bad-fraction", "0")
    assert shards.exit_code == 2 and "--max-bad-fraction is for raw tables" in shards.output
    model = bigclf.load(tmp_path / "m")
    for measure in (bigclf.evaluate, bigclf.calibrate):
        with pytest.raises(TypeError, match="on_bad_rows .* has no effect here"):
            measure(model, pd.DataFrame({"betrag": [1.0], "ort": ["x"], "klasse": ["ja"]}), on_bad_rows="skip")
        with pytest.raises(ValueError, match="on_bad_rows is 'error' or 'skip' here"):
            measure(model, tmp_path / "r.csv", on_bad_rows="quarantine")


def bigclf_command(*words):

    return CliRunner().invoke(main, [str(word) for word in words], prog_name="bigclf")


def test_commands_take_raw_files(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=600), "c": rng.choice(["u", "v"], 600)})
    frame["y"] = np.where(frame.a + (frame.c == "u") > 0.5, "yes", "no")
    frame.to_csv(tmp_path / "r.csv", index=False)
    named = ("--format", "csv", "--label", "y", "--numeric", "a", "--categorical", "c")
    made = bigclf_command("convert", tmp_path / "r.csv", tmp_path / "s", *named, "--hash-bits", "12", "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["features"] == 2**12 + 2
    done = bigclf_command("fit", tmp_path / "r.csv", *named, "-o", tmp_path / "m", "--holdout", "0.3", "--json")
    assert done.exit_code == 0, done.output
    measured = json.loads(done.stdout)["evaluation"]
    assert measured["accuracy"] > 0.9 and 140 < measured["n"] < 220
    again = bigclf_command("evaluate", tmp_path / "m", tmp_path / "r.csv", "--json")
    assert again.exit_code == 0 and json.loads(again.stdout)["n"] == 600, again.output
    told = bigclf_command("predict", tmp_path / "m", tmp_path / "r.csv", "-o", tmp_path / "p", "--json")
    assert told.exit_code == 0 and pq.read_table(tmp_path / "p" / "r.csv.parquet").num_rows == 600, told.output
    like = bigclf_command("convert", tmp_path / "r.csv", tmp_path / "t", "--features-of", tmp_path / "m", "--json")
    assert like.exit_code == 0, like.output
    same = bigclf_command("evaluate", tmp_path / "m", tmp_path / "t", "--json")
    assert json.loads(same.stdout)["accuracy"] == json.loads(again.stdout)["accuracy"]
    proposed = bigclf_command("inspect", tmp_path / "r.csv", "--suggest")
    (tmp_path / "spec.yaml").write_text(proposed.stdout)
    used = bigclf_command("fit", tmp_path / "r.csv", "--spec", tmp_path / "spec.yaml", "-o", tmp_path / "n", "--json")
    assert used.exit_code == 0, used.output


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("--format", "svmlight", "--label", "y"), 2, "raw columns"),
        (("--format", "csv", "--label", "z", "--numeric", "a"), 3, "no such column"),
        (("--spec", "missing.yaml"), 3, "no such file"),
        (("--format", "csv", "--label", "y", "--numeric", "c"), 3, "line 2: column c: 'x' is not a number"),
    ],
)
def test_wrong_commands_say_what_is_wrong(tmp_path, words, code, reason):
    (tmp_path / "r.csv").write_text("a,c,y\n1,x,0\n2,z,1\n")
    done = bigclf_command("convert", tmp_path / "r.csv", tmp_path / "s", *words)
    assert done.exit_code == code and reason in done.output


# Real sets


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "source", "test", "least"),
    [
        (
            "adult",
            "adult/adult.data.gz",
            "adult/adult.test.gz",
            0.904,
        ),  # AUC; scikit-learn's best linear pipeline 0.909
        ("sms_spam", "sms_spam/SMSSpamCollection.gz", None, 0.985),  # AUC; 0.994
        ("covtype20k", "covtype20k/covtype.20k.data.gz", None, 0.755),  # accuracy; 0.760
    ],
)
def test_raw_files_of_the_first_hour(tmp_path, name, source, test, least):
    """The commands and peers of jobs/experiments/first_hour.py."""
    folder, specs = (
        os.environ["BIGCLF_DATA"],
        os.path.join(os.path.dirname(__file__), "../../jobs/experiments/first_hour"),
    )
    how = ["--format", "text"] if name == "sms_spam" else ["--spec", f"{specs}/{name}.yaml"]
    part = ["--evaluate", f"{folder}/{test}"] if test else ["--holdout", "0.2"]
    loss = "logistic" if name == "adult" else "squared_hinge"
    done = bigclf_command("fit", f"{folder}/{source}", *how, *part, "--loss", loss, "-o", tmp_path / "m", "--json")
    found = json.loads(done.stdout)["evaluation"]
    assert (found["accuracy"] if found["auc"] is None else found["auc"]) > least


# Quotes that are not closed


@pytest.mark.parametrize(("text", "said"), [
    (b'y,a\n"p,1\np,2,"x\nq,"z\n', "line 2: a quote is not closed on its line"),
    (b"y,a\np,\xff\n", "line 2: byte 3 of the line is not UTF-8"),
    (b"y,a\n", "there are no rows"),
])  # fmt: skip
def test_why_there_is_no_row_to_look_at_is_said(tmp_path, text, said):
    """It was that there are none."""
    (tmp_path / "r.csv").write_bytes(text)
    with pytest.raises(DataError, match=said):
        suggest(tmp_path / "r.csv", {"encoding": "utf-8", "format": "csv", "multiline": False})


def test_a_command_says_where_the_only_quote_opens(tmp_path):
    (tmp_path / "r.csv").write_bytes(b'y,a\n"p,1\np,2,"x\nq,"z\n')
    refused = bigclf_command("convert", tmp_path / "r.csv", tmp_path / "s", "--label", "y")
    assert refused.exit_code == 3 and "line 2: a quote is not closed on its line" in refused.output


class CountedText(bytes):
    """Text that counts the bytes that are looked through for line breaks."""

    looked_at = 0

    def count(self, sub, start=0, end=None):
        CountedText.looked_at += (len(self) if end is None else end) - start
        return super().count(sub, start, len(self) if end is None else end)


def test_the_lines_of_many_bad_rows_are_counted_once(tmp_path, monkeypatch):
    """Each row's quote is open: the work is linear in the text."""
    text = CountedText(b"a,b\n" + b'1,"x\n' * 3000)
    how = tables.reading({"format": "csv"})
    path = tmp_path / "r.csv"
    path.write_bytes(text)
    place = tables.places(str(path))[0]
    job = tables.TableJob(how, None, [("a", "b")], [place], 2**24)
    task = pieces.Task(tables.look_at(place, 0, how), 1, 2, None)
    monkeypatch.setattr(CountedText, "looked_at", 0)
    batch = tables._text_batch(job, task, CountedText(text[4:]), 1, False)
    assert [bad.place["line"] for bad in batch.bad] == list(range(2, 3002))
    assert CountedText.looked_at < 20 * len(text)
    looked = CountedText(text[4:])
    CountedText.looked_at = 0
    found = pieces.located(looked, 0, [BadRow(5 * k, "") for k in range(3000)], 1)
    assert [bad.line for bad in found] == list(range(2, 3002)) and CountedText.looked_at < 20 * len(text)


def test_an_open_quote_is_an_error_at_the_line_where_it_opens(tmp_path):
    """The text behind it is held once, not line by line, and no more than a line may have."""
    path = tmp_path / "r.csv"
    path.write_bytes(b"a,b\n1,2\n1,2\n" + b'1,"x\n' + b"1\n" * 2**21)
    how = tables.reading({"format": "csv", "multiline": True})
    source = tables.look_at(tables.places(str(path))[0], 0, how)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="line 4: a quote that opens here is not closed"):
            list(tables._record_pieces(source, how, 2**20))
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("line", [b"x" * 99 + b"\n", b"x" * 2**20], ids=["lines", "one line"])
def test_an_open_quote_is_not_read_to_the_end_of_the_file(tmp_path, line):
    """16 MB at a budget of 150 MB: what the quote encloses took 275 MB, as text of four bytes a letter."""
    path = tmp_path / "r.csv"
    path.write_bytes(b'a,b\n1,2\n1,"x' + line * (16_000_000 // len(line)))
    how = tables.reading({"format": "csv", "multiline": True})
    place = tables.places(str(path))[0]
    source = tables.look_at(place, 0, how)
    job = tables.TableJob(how, None, [("a", "b")], [place], 150_000_000 // 8)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="line 3: a quote that opens here is not closed within 4,687,500 bytes"):
            for task in tables.tasks_of(job, source, 1):
                list(tables.batches(job, task))
        assert tracemalloc.get_traced_memory()[1] < 64e6
    finally:
        tracemalloc.stop()


def test_a_quote_open_at_the_end_is_named_on_a_single_line_too():
    how = tables.reading({"format": "csv", "multiline": True})
    records = list(tables._long_records(b'1,2\n3,"x', how))
    assert records == [(0, ["1", "2"]), (4, "a quote is not closed")]
    assert list(tables._long_records(b'1,2" wide\n3,x', how)) == [(0, ["1", '2" wide']), (10, ["3", "x"])]


def test_a_quote_is_closed_many_lines_on(tmp_path):
    path = tmp_path / "r.csv"
    path.write_bytes(b'a,b\n1,"x\r\ny\rz\n\n"\n3,4\n')
    how = tables.reading({"format": "csv", "multiline": True})
    records = list(tables._long_records(path.read_bytes(), how))
    assert records == [(0, ["a", "b"]), (4, ["1", "x\r\ny\rz\n\n"]), (17, ["3", "4"])]


@pytest.mark.parametrize("block", [300, 2**21], ids=["many blocks", "one block"])
def test_lines_are_counted_where_quotes_hold_line_breaks(tmp_path, monkeypatch, block):
    """The number of the record was told for the line."""
    rows = [
        f'{k},"line one\nline two, ""{k}""",{k % 2}\n' if k % 3 == 0 else f"{k},plain,{k % 2}\n" for k in range(200)
    ]
    rows[150] = '150,"a\nb",0\n'.replace("150", "forty")
    text = "a,t,y\n" + "".join(rows)
    (tmp_path / "r.csv").write_text(text)
    line = 1 + text[: text.index("forty")].count("\n")
    monkeypatch.setattr(pieces, "BLOCK", block)
    features = {"label": "y", "features": [{"numeric": "a"}], "reader": {"multiline": True}}
    with pytest.raises(DataError, match="'forty' is not a number") as caught:
        bigclf.convert(tmp_path / "r.csv", tmp_path / "out", features=features, workers=1)
    assert caught.value.line == line == 202


@pytest.mark.parametrize("block", [100, 301, 2**21])
def test_a_stray_quote_costs_its_own_record_alone(tmp_path, monkeypatch, block):
    """It turned all quotes after it round: blocks were cut inside records, and whole ones were called broken."""
    rows = [f'{k},"one\ntwo",{k % 2}\n' for k in range(100)]
    rows[20] = 'two",0\n'  # the first half of a record was lost
    (tmp_path / "r.csv").write_text("a,t,y\n" + "".join(rows))
    monkeypatch.setattr(pieces, "BLOCK", block)
    features = {"label": "y", "features": [{"numeric": "a"}], "reader": {"multiline": True}}
    options = {"on_bad_rows": "skip", "max_bad_fraction": 0.5, "workers": 1}
    found = bigclf.convert(tmp_path / "r.csv", tmp_path / "out", features=features, **options)
    assert found.n_rows == 99 and found.report["bad_rows"] == 1


def _as_the_csv_module_reads_it(text):
    """Whether a quote is open at its end."""
    return [*csv.reader((text + "Q,Q,Z\n").splitlines(keepends=True))][-1] != ["Q", "Q", "Z"]


@given(st.text('a,"\n', min_size=1, max_size=12), st.text('a,"', max_size=8))
def test_a_quote_is_open_where_the_csv_module_says_so(text, line):
    how, text, line = tables.reading({"format": "csv", "multiline": True}), text + "\n", line + "\n"
    is_open = tables._left_open(text.encode(), how) is not None
    assert is_open == _as_the_csv_module_reads_it(text)
    if is_open:
        assert (tables._left_open(line.encode(), how, inside=True) is not None) == _as_the_csv_module_reads_it(
            text + line
        )


def _order(k):
    comment = f"{['very', 'quite', 'not'][k % 3]} {k % 37} fast, but; {['small', 'large'][k % 2]}"
    amount, who, town = f"{1000 + k},{k % 90 + 10} €", f"k{k * 7919 % 1800}@x.at", f"{k * 7919 % 1500:05d}"
    return f'{k:05d};{who};{amount};{k % 41} %;"{comment}";{town};{"yes" if k % 3 else "no"}\n'


ORDERS = "id;who;amount;share;comment;town;kept\n" + "".join(map(_order, range(2000)))


def test_fields_between_semicolons_that_hold_commas_and_semicolons(tmp_path):
    """Commas before decimals and inside quotes cut as many fields a line."""
    (tmp_path / "orders.csv").write_text(ORDERS)
    found = suggest(tmp_path / "orders.csv")
    assert (found.how.separator, found.how.decimal, found.label) == (";", ",", "kept")
    kinds = {column.name: (column.kind, column.options.get("written")) for column in found.columns}
    assert kinds["amount"] == kinds["share"] == ("numeric", "grouped")
    assert kinds["comment"][0] == "text"  # 222 sentences
    assert kinds["id"][0] == kinds["who"][0] == kinds["town"][0] == ""  # most values in one row
    assert "most values occur only once" in str(found)
    assert bigclf.fit(tmp_path / "orders.csv", features=found, progress=False).n_features > 5


def test_the_same_columns_in_a_table_in_memory(tmp_path):
    table = pd.read_csv(io.StringIO(ORDERS), sep=";", dtype={"id": str, "town": str})
    found = bigclf.suggest(table, label="kept")
    assert found.how.decimal == "," and "reader:\n  decimal" in str(found) and "format" not in str(found)
    assert parse(str(found)).decimal == ","
    by_spec = bigclf.FeatureTransformer(found).fit_transform(table)
    assert by_spec.shape[0] == 2000 and (by_spec != bigclf.FeatureTransformer(str(found)).fit_transform(table)).nnz == 0
    assert bigclf.suggest(table, label="kept", decimal=".").how.decimal == "."
    with pytest.raises(SchemaError, match="sep has no effect with a table in memory"):
        bigclf.suggest(table, sep=";")


@pytest.mark.parametrize(("values", "decimal"), [
    (["1,5", "2,25"], ","), (["1.234,50 €", "7,00 €"], ","), (["$1,234.50", "$7.00"], "."), (["1,234", "5,678"], "."),
    (["1.234", "5.678"], "."), (["1,5", "2.5"], "."), (["12.03.1984", "01.02.2001"], "."),
])  # fmt: skip
def test_the_mark_before_decimals_is_told_by_the_values(values, decimal):
    assert bigclf.suggest({"a": values * 20, "y": [0, 1] * 20}).how.decimal == decimal


def test_dashes_and_dates_of_zeros_are_missing_values(tmp_path):
    cells = ["-" if k % 9 == 0 else f'"-$1,{k:03d}.50"' for k in range(300)]
    dates = ["0000-00-00" if k % 40 == 0 else f"2020-02-{k % 28 + 1:02d}" for k in range(300)]
    rows = [f"{a},{d},{'-' if k % 2 else 'x'},{k % 2}\n" for k, (a, d) in enumerate(zip(cells, dates, strict=True))]
    (tmp_path / "r.csv").write_text("balance,since,code,y\n" + "".join(rows))
    found = suggest(tmp_path / "r.csv")
    kinds = {column.name: column.kind for column in found.columns}
    assert found.signs == ("-", "0000-00-00") and kinds["balance"] == "numeric" and kinds["since"] == "date"
    assert parse(str(found)).missing_values[-2:] == ("-", "0000-00-00") == found.spec().missing_values[-2:]
    assert bigclf.fit(tmp_path / "r.csv", features=str(found), progress=False).result_.converged
    assert not suggest({"a": ["-", "x"] * 50, "y": [0, 1] * 50}).signs  # of categories it is one


@pytest.mark.parametrize(("form", "parts"), [
    ("%d-%b-%Y", 3), ("%b %d, %Y", 3), ("%d %B %Y", 3), ("%m/%d/%Y %I:%M %p", 4), ("%d.%m.%Y %H:%M", 4),
])  # fmt: skip
def test_dates_in_their_usual_forms(form, parts):
    first = datetime.datetime(2013, 1, 1, 3, 5)
    dates = [(first + datetime.timedelta(days=11 * k, hours=5 * k)).strftime(form) for k in range(90)]
    (column, _) = suggest({"when": dates, "y": [0, 1] * 45}).columns
    assert (column.kind, column.options["format"]) == ("date", form)
    assert len(column.options.get("parts", (1, 2, 3, 4))) == parts


def test_a_few_dates_of_zeros_among_many_that_are_other_mistakes(tmp_path):
    dates = ["2013-13-40" if k % 40 == 0 else f"2013-{k % 12 + 1:02d}-{k % 28 + 1:02d}" for k in range(300)]
    (column, _) = suggest({"when": dates, "y": [0, 1] * 150}).columns
    assert column.kind == "date" and "8 cells" in column.why and "2013-13-40" in column.why


def test_a_name_that_is_there_twice_is_an_error_of_the_header(tmp_path):
    (tmp_path / "r.csv").write_text("a,a,y\n1,2,0\n3,4,1\n")
    with pytest.raises(SchemaError, match="the header has 'a' twice"):
        suggest(tmp_path / "r.csv")


def _folders(tmp_path, encoding="utf-8"):
    for name, word in (("good", "fine café"), ("bad", "awful")):
        (tmp_path / "films" / name).mkdir(parents=True)
        for k in range(20):
            (tmp_path / "films" / name / f"{k}.txt").write_bytes(f"{word} film {k}".encode(encoding))
    return tmp_path / "films"


def test_a_readme_and_an_empty_folder_beside_folders_of_classes(tmp_path):
    films = _folders(tmp_path)
    plain = bigclf.fit(films, progress=False)
    (films / "README.md").write_text("What lies here")
    (films / "empty").mkdir()
    (films / ".DS_Store").write_bytes(b"\0\1")
    again = bigclf.fit(films, progress=False)
    assert list(again.classes_) == ["bad", "good"] and (again.coef_ == plain.coef_).all()
    for number in range(5):
        (films / f"{number}.csv").write_text("1,2\n")
    with pytest.raises(TypeError, match="say which column"):  # a table, then
        bigclf.fit(films, progress=False)


def test_folders_of_classes_in_another_encoding(tmp_path):
    films = _folders(tmp_path, "latin-1")
    assert "name the encoding" in CliRunner().invoke(main, ["fit", str(films), "-o", str(tmp_path / "m")]).output
    line = ["fit", str(films), "--encoding", "latin-1", "-o", str(tmp_path / "m.bigclf")]
    result = CliRunner().invoke(main, line, catch_exceptions=False)
    assert result.exit_code == 0
    wrong = CliRunner().invoke(main, ["evaluate", str(tmp_path / "m.bigclf"), str(tmp_path / "m.bigclf")])
    assert wrong.exit_code == 3 and "expected data, got a model file" in wrong.output
