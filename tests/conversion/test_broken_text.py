"""Raw text that is broken: nothing is swallowed without a word, and it takes bounded memory."""

import json
import tracemalloc

import numpy as np
import pytest

import bigclf
from bigclf.conversion.tables import reading
from bigclf.conversion.text.pieces import Task
from bigclf.errors import DataError

SPEC = {"label": "y", "features": [{"numeric": "a"}]}


def lines(n):
    return [f"{k % 97 / 97},word{k % 7},{k % 2}" for k in range(n)]


def table(path, rows):
    path.write_text("a,t,y\n" + "\n".join(rows) + "\n")
    return path


def torn(path):
    """A stray quote at the beginning of a field in line 1002, another in the middle of one ten lines below."""
    rows = lines(3000)
    rows[1000], rows[1010] = '0.5,"open,1', '0.5,clo"se,1'
    return table(path, rows)


def test_a_pair_of_stray_quotes_never_swallows_the_rows_between_them(tmp_path):
    path = torn(tmp_path / "t.csv")
    for features in (bigclf.suggest(path, "y"), SPEC):
        with pytest.raises(DataError, match="line 1002: a quote is not closed on its line"):
            bigclf.convert(path, tmp_path / "out", features=features)
    across = {**SPEC, "reader": {"multiline": True}}
    with pytest.raises(DataError, match="line 1002: a quote opened here closes 10 lines further down, in the middle"):
        bigclf.convert(path, tmp_path / "out", features=across)
    made = bigclf.convert(path, tmp_path / "out", features=across, on_bad_rows="skip")
    assert made.n_rows == 3000 - 11


def test_line_breaks_in_quotes_that_close_where_the_field_ends_are_taken(tmp_path):
    rows = lines(3000)
    rows[1000], rows[1010], rows[1500] = '0.5,"two\nlines, ""quoted""",1', '0.5,an inch " here,1', '0.5,"""\n",0'
    path = table(tmp_path / "t.csv", rows)
    made = bigclf.convert(path, tmp_path / "out", features=bigclf.suggest(path, "y"))
    assert made.n_rows == 3000
    rows[1010] = '0.5,"no",1'
    assert (
        bigclf.convert(
            table(tmp_path / "u.csv", rows), tmp_path / "u", features={**SPEC, "reader": {"multiline": True}}
        ).n_rows
        == 3000
    )


@pytest.mark.parametrize("told", [{}, {"multiline": True}])
def test_lines_that_are_no_rows_take_few_bytes_each(tmp_path, told):
    n = 60_000
    path = table(tmp_path / "t.csv", ["x"] * n)
    how = reading.reading(told)
    place = reading.places(path)[0]
    job = reading.TableJob(how, ("a", "y"), [("a", "t", "y")], [place], 2**24)
    task = Task(reading.look_at(place, 0, how), 0, 1, [(0, path.read_bytes())])
    tracemalloc.start()
    ((_, batch),) = reading.batches(job, task)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(batch.bad) == n and batch.bad[0].place == {"line": 2} and batch.bad[0].reason == "1 fields, not 3"
    assert batch.bad[-1].place == {"line": n + 1} and peak < 60 * n  # 500 bytes each, once
    assert [bad.place["line"] for bad in batch.bad[2:4]] == [4, 5]


def test_skipped_rows_are_counted_and_told_as_before(tmp_path):
    rows = lines(2000)
    for k in range(0, 2000, 3):
        rows[k] = "x" if k % 2 else "oops,t,1"
    path = table(tmp_path / "t.csv", rows)
    made = bigclf.convert(path, tmp_path / "out", features=SPEC, on_bad_rows="quarantine", max_bad_fraction=1)
    bad = sum(1 for row in rows if row in ("x", "oops,t,1"))
    assert made.n_rows == 2000 - bad
    held = (tmp_path / "out" / "_bigclf_quarantine.txt").read_text().splitlines()
    assert sum(not line.startswith("#") for line in held) == bad
    assert held[0].startswith(f"# {path}, line 2: column a: 'oops'") and held[1] == "oops,t,1"
    assert f"{bad - bad // 2:,} as in {path}, line 2" in " ".join(made.warnings)


def test_keys_without_end_are_refused_where_they_are_too_many(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_COLUMNS", 1000)
    path = tmp_path / "k.jsonl"
    rows = ({**{f"k{j + 100 * i}": 1.5 for j in range(100)}, "y": i % 2} for i in range(300))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="k.jsonl, line 10: .* different keys.* sparse rows"):
        bigclf.suggest(path, "y")


def test_wide_rows_of_json_are_read_some_at_a_time(tmp_path, monkeypatch):
    rows = [{"a": k / 7, "y": k % 2, f"k{k % 50}": 1.0} for k in range(400)]
    path = tmp_path / "w.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    names = ["a", *(f"k{k}" for k in range(50))]
    spec = {
        "label": "y",
        "reader": {"format": "jsonl"},
        "features": [{"numeric": name, "missing": "ignore"} for name in names],
    }
    whole = bigclf.convert(path, tmp_path / "whole", features=spec)
    sizes, read = [], reading.json_rows
    monkeypatch.setattr(reading, "CELLS", 52 * 40)

    def json_rows(text, wanted, *more):
        sizes.extend([text.count(b"\n")] * (len(wanted) > 1))  # one look is at the label alone
        return read(text, wanted, *more)

    monkeypatch.setattr(reading, "json_rows", json_rows)
    parts = bigclf.convert(path, tmp_path / "parts", features=spec)
    assert max(sizes) <= 40 and sum(sizes) == 400
    for mine, its in zip(whole.blocks(), parts.blocks(), strict=True):
        for one, other in zip(mine, its, strict=True):
            np.testing.assert_array_equal(one, other)
    path.write_text(path.read_text().replace('"a": 43.0, "y": 1', '"a": 43.0, "y": '))
    with pytest.raises(DataError, match="line 302: not readable as JSON"):
        bigclf.convert(path, tmp_path / "bad", features=spec)


def test_rows_too_deep_are_told_in_our_words(tmp_path):
    (tmp_path / "d.jsonl").write_text('{"a":' * 100_000 + "\n")
    with pytest.raises(DataError, match="line 1: its lists and objects lie too deep"):
        bigclf.convert(tmp_path / "d.jsonl", tmp_path / "out", features=SPEC, format="jsonl")
