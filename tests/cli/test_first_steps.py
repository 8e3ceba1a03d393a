"""What people do in their first hour with files of their own: titles, headers that are missing, names half right."""

import ast
import itertools
import json
import math
import os
import random
import re
import shlex
import subprocess
import sys

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from making import PACKAGE, random_rows, shards_of

import bigclf
from bigclf import files
from bigclf.cli import main
from bigclf.cli.fit import trace, what_to_do
from bigclf.conversion.tables import from_columns
from bigclf.errors import DataError, SchemaError
from bigclf.metrics.figures import held_out_figures

ROWS = [f"{k % 7},{'xyz'[k % 3]},{'yes' if k % 3 else 'no'}" for k in range(60)]


def table(path, rows=ROWS, before=("age,town,answer",), end="\n"):
    path.write_bytes((end.join([*before, *rows]) + end).encode())
    return path


def run(*words):
    """Exit code, stdout, stderr."""
    done = CliRunner().invoke(main, [str(word) for word in words], prog_name="bigclf", catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, and a model of it."""
    patch = pytest.MonkeyPatch()
    patch.setenv("BIGCLF_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    path = tmp_path_factory.mktemp("first")
    table(path / "people.csv")
    done = run("fit", path / "people.csv", "--label", "answer", "-o", path / "m.bigclf")
    assert done[0] == 0, done
    yield path
    patch.undo()


def test_lines_before_a_table_are_named_and_can_be_skipped(folder, tmp_path):
    titled = table(tmp_path / "titled.csv", before=("Answers of 2024", "(draft)", "age,town,answer"))
    code, _, said = run("inspect", titled, "--suggest")
    assert code == 3 and "the first line has 1 field" in said and "--skip-lines 2" in said
    code, out, _ = run("inspect", titled, "--suggest", "--skip-lines", 2)
    assert code == 0 and "skip_lines: 2" in out and "age" in out
    found = bigclf.convert(titled, tmp_path / "shards", features=out)
    plain = bigclf.convert(folder / "people.csv", tmp_path / "plain", features=out.replace("skip_lines: 2", ""))
    assert found.n_rows == plain.n_rows == 60 and found.n_features == plain.n_features
    bad = table(tmp_path / "bad.csv", rows=[*ROWS, "1,x"], before=("A title", "", "age,town,answer"))
    with pytest.raises(DataError, match="line 64: 2 fields, not 3"):
        bigclf.convert(bad, tmp_path / "none", features=out)
    with pytest.raises(SchemaError, match="skip_lines"):
        bigclf.convert(titled, tmp_path / "none", features={"label": "answer", "features": [{"text": "t"}],
            "reader": {"format": "jsonl", "skip_lines": 1}})  # fmt: skip


def test_shards_given_a_spec_are_told_to_be_shards(folder, tmp_path):
    assert run("convert", folder / "people.csv", tmp_path / "s", "--label", "answer")[0] == 0
    (tmp_path / "spec.yaml").write_text("label: answer\nfeatures:\n- numeric: age\n- categorical: town\n")
    code, _, said = run("fit", tmp_path / "s", "--spec", tmp_path / "spec.yaml", "-o", tmp_path / "m")
    assert code == 3 and "these are shards already, whose features are made: leave out --spec" in " ".join(said.split())


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_raw_table_beside_shards_is_to_be_appended(folder, tmp_path, monkeypatch, form):
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa_csv.read_csv(folder / "people.csv"), "week.parquet")
    table(tmp_path / "week.csv")
    before = folder / "people.csv" if form == "csv" else "week.parquet"
    assert run("convert", before, "s", "--label", "answer")[0] == 0
    code, _, said = run("fit", "s", "week.parquet", "-o", "m")
    said = " ".join(said.split())
    assert code == 3 and "week.parquet: a raw table beside shards; " in said
    assert ("these were made of csv: write it as csv, then append" in said) == (form == "csv")
    way = re.search("`bigclf (convert [^`]*)`", said)[1].split()
    assert way[1] == f"week.{form}" and run(*way)[0] == 0 and run("fit", "s", "-o", "m")[0] == 0
    with pytest.raises(SchemaError, match="say which column"):  # there are no shards in front
        bigclf.fit(["week.parquet", "s"], progress=False)


def test_parquet_without_a_label_is_told_of_commands_only(tmp_path):
    pq.write_table(pa.table({"age": [1, 2, 3], "town": list("xyx")}), tmp_path / "t.parquet")
    said = " ".join(run("fit", tmp_path / "t.parquet", "-o", tmp_path / "m")[2].split())
    assert "say which column is to be predicted" in said and "bigclf.suggest" not in said
    assert "`bigclf inspect FILE --suggest` lists all the columns" in said


def test_fields_in_quotes_are_no_title(tmp_path):
    named = table(tmp_path / "named.csv", rows=[f'"x, {k}",{k % 7},{"yes" if k % 3 else "no"}' for k in range(60)])
    code, out, _ = run("inspect", named, "--suggest")
    assert code == 0 and "answer" in out


def test_a_model_takes_files_whose_header_is_missing(folder, tmp_path):
    bare = table(tmp_path / "bare.csv", before=())
    names = "--no-header", "--names", "age,town,answer"
    for command in (("evaluate", folder / "m.bigclf", bare, "--json"),
                    ("predict", folder / "m.bigclf", bare, "-o", tmp_path / "out", "--json"),
                    ("calibrate", folder / "m.bigclf", bare, "-o", tmp_path / "c.bigclf", "--json")):  # fmt: skip
        assert run(*command)[0] == 3
        code, out, said = run(*command, *names)
        assert code == 0, said
        told = json.loads(out)
        assert told.get("n", told.get("rows")) == 60
    assert run("inspect", folder / "people.csv", *names)[0] == 2  # with --suggest alone


def test_labels_none_of_which_the_model_knows_are_an_error_of_the_file_that_was_named(folder, tmp_path):
    other = table(tmp_path / "other.csv", rows=[row.replace("yes", "oui").replace(",no", ",non") for row in ROWS])
    code, out, said = run("evaluate", folder / "m.bigclf", other)
    assert code == 3 and "'oui'" in said and "'yes'" in said and str(other) in said and out == ""


def test_one_class_is_told_of_the_file_that_was_named(folder, tmp_path):
    same = table(tmp_path / "same.csv", rows=[row for row in ROWS if row.endswith("yes")])
    for _ in range(2):  # made, then found in the cache
        code, _, said = run("fit", same, "--label", "answer", "-o", tmp_path / "m.bigclf")
        assert code == 3 and f"{same}, column answer" in said and "'yes'" in said


def test_many_whole_numbers_for_labels_are_warned_of(tmp_path, folder):
    prices = table(tmp_path / "prices.csv", rows=[f"{k % 7},{'xyz'[k % 3]},{100 + 3 * k}" for k in range(60)])
    numbered = table(tmp_path / "numbered.csv", rows=[f"{k % 7},{'xyz'[k % 3]},{k}" for k in range(60)])
    spec = {"label": "answer", "features": [{"numeric": "age"}]}
    (said,) = bigclf.convert(prices, tmp_path / "a", format="csv", features=spec).warnings
    assert "60 distinct labels" in said and "epsilon_insensitive" in said
    (said,) = bigclf.convert(numbered, tmp_path / "b", format="csv", features=spec).warnings
    assert "distinct labels" not in said and said.startswith("60 classes (0, 1, 2, 3, 4, ...) each have only one row")


def test_a_class_of_one_row_is_named(tmp_path, folder):
    rare = table(tmp_path / "rare.csv", rows=[*ROWS, "3,x,maybe"])
    code, _, said = run("fit", rare, "--label", "answer", "-o", tmp_path / "m.bigclf", "--overwrite")
    said = " ".join(said.split())
    assert code == 0 and "class 'maybe' has only one row" in said and "correct or remove that row" in said
    assert "`one_of` under `label` in a spec" in said
    (tmp_path / "two.yaml").write_text('label: {column: answer, one_of: ["yes"]}\nfeatures: [{numeric: age}]\n')
    code, _, said = run("fit", rare, "--spec", tmp_path / "two.yaml", "-o", tmp_path / "two.bigclf")
    assert code == 0 and "one row" not in said and bigclf.load(tmp_path / "two.bigclf").classes_.size == 2
    x, y = [[float(k % 5)] for k in range(20)], [0, 1] * 9 + [1, 7]
    with_arrays = bigclf.fit(x, y, algo="perceptron", epochs=1, progress=False)
    assert any("class 7 has only one row" in text for text in with_arrays.result_.warnings)
    again = bigclf.fit(x, [0, 1] * 10, algo="perceptron", epochs=1, progress=False)
    assert not any("only one row" in text for text in again.result_.warnings)


def test_a_model_keeps_what_it_is_on_rows_held_out(tmp_path, folder):
    """Beside the accuracy that of always the most frequent class, and the tables: in `inspect`, and in reports without
    the rows."""
    out = ["-o", tmp_path / "h.bigclf", "--report", tmp_path / "h.html", "--json"]
    code, told, _ = run("fit", folder / "people.csv", "--label", "answer", "--holdout", 0.25, *out)
    e = json.loads(told)["evaluation"]
    held = held_out_figures(bigclf.load(tmp_path / "h.bigclf"))
    assert code == 0 and {**held.to_dict(), "seconds": e["seconds"], "unknown": e["unknown"]} == e
    said = " ".join(run("inspect", tmp_path / "h.bigclf")[1].split())
    assert f"accuracy {100 * e['accuracy']:.2f} % on {e['n']} rows (baseline {100 * e['majority']:.2f} %)" in said
    assert f"AUC {e['auc']:.5f}, log loss {e['log_loss']:.5f}" in said
    run("report", tmp_path / "h.bigclf", "-o", tmp_path / "bare.html")
    run("report", tmp_path / "h.bigclf", "-o", tmp_path / "data.html", "--data", folder / "people.csv")
    for name in ("h.html", "bare.html", "data.html"):
        page = (tmp_path / name).read_text()
        assert f"baseline {100 * e['majority']:.2f} %, the most frequent class; {e['n']} rows held out" in page
        assert 'id="held-out"' in page and f"{e['auc']:.5f}" in page and f"{e['log_loss']:.5f}" in page
        assert page.count(">Confusion<") == 1 + (name == "data.html")
    on_all = json.loads(run("evaluate", tmp_path / "h.bigclf", folder / "people.csv", "--json")[1])
    assert f"baseline {100 * on_all['majority']:.2f} %, the most frequent class; {on_all['n']} rows" in page
    calibrated = bigclf.calibrate(bigclf.load(tmp_path / "h.bigclf"), str(folder / "people.csv"))
    held = held_out_figures(calibrated)
    assert held.auc == e["auc"] and held.log_loss is held.reliability is None  # of other probabilities


def test_of_many_classes_and_of_numbers_a_model_keeps_figures(tmp_path):
    """No tables of pairs: they would be most of its file."""
    many = table(tmp_path / "many.csv", rows=[f"{k % 7},{'xyz'[k % 3]},c{k % 21}" for k in range(420)])
    for name, loss in (("many", "logistic"), ("numbers", "squared")):
        data = many
        if name == "numbers":
            data = table(tmp_path / "numbers.csv", rows=[f"{k % 7},{'xyz'[k % 3]},{k % 7 + 0.5}" for k in range(200)])
        out = ["--label", "answer", "--loss", loss, "--holdout", 0.3, "--json"]
        code, told, said = run("fit", data, "-o", tmp_path / name, *out)
        assert code == 0, said
        e, held = json.loads(told)["evaluation"], held_out_figures(bigclf.load(tmp_path / name))
        same = ("n", "accuracy", "macro_f1", "majority") if name == "many" else ("n", "mean_squared_error", "r2")
        assert {key: held[key] for key in same} == {key: e[key] for key in same}
        assert name == "numbers" or (held.f1 == [] and held.confusion is None)
        assert run("report", tmp_path / name, "-o", tmp_path / f"{name}.html")[0] == 0
        assert 'id="held-out"' in (tmp_path / f"{name}.html").read_text()
        assert run("inspect", tmp_path / name)[0] == 0


def test_figures_on_rows_that_were_trained_on_say_so(tmp_path, folder):
    people, elsewhere = folder / "people.csv", table(tmp_path / "copy.csv")
    out = ["-o", tmp_path / "h.bigclf", "--report", tmp_path / "h.html", "--json"]
    code, told, _ = run("fit", people, "--label", "answer", "--holdout", 0.25, *out)
    measured = json.loads(told)["evaluation"]
    assert code == 0 and measured["trained_on"] == 0
    held = f"on the {measured['n']} rows held out of its training: accuracy {100 * measured['accuracy']:.2f} %"
    what, share = "about 75 % of these rows", 0.75
    for data in (people, elsewhere):
        code, out, said = run("report", tmp_path / "h.bigclf", "-o", tmp_path / "r.html", "--data", data, "--overwrite")
        said = " ".join(said.split())
        assert code == 0 and f"the model was trained on {what}" in said and held in said
        page = (tmp_path / "r.html").read_text()
        assert held in page and "Held-out accuracy" in page and "about 75 % of them trained on" in page
        assert json.loads(run("evaluate", tmp_path / "h.bigclf", data, "--json")[1])["trained_on"] == share
    assert "Held-out accuracy" in (tmp_path / "h.html").read_text()
    told = f"accuracy {100 * measured['accuracy']:.2f} % on {measured['n']} rows"
    assert told in " ".join(run("inspect", tmp_path / "h.bigclf")[1].split())
    assert "trained on these rows" in " ".join(run("evaluate", folder / "m.bigclf", people)[2].split())
    other = table(tmp_path / "other.csv", rows=ROWS[:30])
    assert "trained on" not in "".join(run("evaluate", folder / "m.bigclf", other)[1:])


def test_to_calibrate_on_rows_that_were_trained_on_is_warned_of(tmp_path, folder):
    out = ["-o", tmp_path / "c.bigclf", "--overwrite"]
    code, _, said = run("calibrate", folder / "m.bigclf", folder / "people.csv", *out)
    said = " ".join(said.split())
    assert code == 0 and "warning: the model was trained on these rows" in said and "rows it has not seen" in said
    other = table(tmp_path / "other.csv", rows=ROWS[:30])
    assert "trained on" not in run("calibrate", folder / "m.bigclf", other, *out)[2]


@pytest.mark.parametrize(("algo", "told"), [
    ("newton_dense", False), ("dcd", True), pytest.param("newton", False, marks=pytest.mark.long),
    pytest.param("arow", True, marks=pytest.mark.long),
])  # fmt: skip
def test_methods_that_sum_over_rows_tell_of_no_mistakes_on_the_way(tmp_path, folder, algo, told):
    out = tmp_path / f"{algo}.bigclf"
    assert run("fit", folder / "people.csv", "--label", "answer", "--algo", algo, "-o", out)[0] == 0
    said = run("inspect", out)[1]
    assert ("progressive error" in said, "mistakes" in said) == (told, told) and "stopped by" in said


def test_what_stays_the_same_over_epochs_is_said_once_up_to_the_last():
    told = [{"epoch": k, "error": error} for k, error in enumerate((0.3, 0.2, 0.2, 0.1, 0.1, 0.1), 1)]
    assert trace(told, "epoch") == ("error by epoch", "1: 30.00 % → 2 to 3: 20.00 % → 4 to 6: 10.00 %")
    assert trace(told[3:], "epoch") == ("error by epoch", "")


def test_inspect_tells_the_columns_of_a_table(tmp_path):
    for form, between in (("csv", ","), ("tsv", "\t")):
        rows = [between.join((str(n), "ab"[n % 2], str(1000 + n))) for n in range(60)]
        place = table(tmp_path / f"t.{form}", rows=[*rows, "7"], before=(between.join(("n", "town", "id")),))
        code, said, _ = run("inspect", place)
        assert code == 0 and "60 rows, 3 columns, csv" in said and "unreadable  1 line" in said
        assert [line.split()[:2] for line in said.splitlines() if " distinct" in line][1] == ["town", "categories"]
        code, said, _ = run("inspect", place, "--json")
        told = json.loads(said)
        assert code == 0 and told["kind"] == "table" and (told["rows"], told["unreadable"]) == (60, 1)
        assert [(one["column"], one["distinct"]) for one in told["columns"]] == [("n", 60), ("town", 2), ("id", 60)]
    place = table(tmp_path / "t.dat", rows=rows, before=("n\ttown\tid",))
    assert "60 rows, 3 columns, tsv" in run("inspect", place, "--format", "tsv")[1]


def test_parquet_of_columns_is_told_as_csv_is(tmp_path, folder):
    rows = {
        "n": [*range(60)],
        "town": ["ab"[k % 2] for k in range(60)],
        "y": [None if k < 3 else k % 2 for k in range(60)],
    }
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    pa_csv.write_csv(pa.table(rows), tmp_path / "t.csv")
    for words in ((), ("--label", "y")):
        said = [run("inspect", tmp_path / name, *words)[1] for name in ("t.csv", "t.parquet")]
        csv, parquet = (text.replace("csv", "parquet").splitlines() for text in said)
        assert csv == parquet and "60 rows, 3 columns" in csv[0]
        assert ("  label  y: 1 50.9 %, 0 49.1 %; missing in 3 rows" in csv) == bool(words)
    told = json.loads(run("inspect", tmp_path / "t.parquet", "--label", "y", "--json")[1])
    assert told["kind"] == "table" and told["label"]["missing"] == 3
    times = {**rows, "at": pa.array([k % 3 for k in range(60)], pa.time32("s"))}
    pq.write_table(pa.table(times), tmp_path / "times.parquet")  # no days: Arrow's error was told
    told = json.loads(run("inspect", tmp_path / "times.parquet", "--label", "y", "--json")[1])
    assert [one["kind"] for one in told["columns"] if one["column"] == "at"] == ["categorical"]
    numbers = pa.table({"n": [k * 7 % 5 for k in range(60)], "y": rows["y"]})
    pq.write_table(numbers, tmp_path / "n.parquet")  # it lacks labels
    assert "60 rows, 2 columns, parquet" in run("inspect", tmp_path / "n.parquet")[1]
    pq.write_table(numbers.slice(3), tmp_path / "n.parquet")
    assert "57 rows, 1 feature" in run("inspect", tmp_path / "n.parquet")[1]
    assert "57 rows, 2 columns, parquet" in run("inspect", tmp_path / "n.parquet", "--label", "n")[1]
    code, _, said = run("inspect", folder / "m.bigclf", "--label", "y")
    assert code == 2 and "--label and --label-separator are for raw tables" in said


def test_columns_that_are_no_features_are_named_with_the_reason(tmp_path):
    lists = pa.table({"v": [[0.5, 1.0]] * 40, "i": [[1, 2]] * 40, "y": [k % 2 for k in range(40)]})
    pq.write_table(lists, tmp_path / "lists.parquet")
    code, _, said = run("fit", tmp_path / "lists.parquet", "--label", "y", "-o", tmp_path / "m")
    assert code == 3 and "no column looks like a feature (v: a column of list<" in said and "--numeric" in said
    assert "or lists of indices and values: --columns label=y,indices=COLUMN,values=COLUMN" in said
    _, _, said = run("fit", table(tmp_path / "t.csv", [f"{k},{k % 2}" for k in range(60)], ("n,answer",)), "--label",
                     "answer", "-o", tmp_path / "m")  # fmt: skip
    assert "feature (n: 60 distinct, 0 to 59: just numbers the rows); name them (--numeric, " in said


def test_of_several_files_it_is_told_which_one_was_looked_at_and_how_others_differ(tmp_path):
    table(tmp_path / "a.csv")
    table(tmp_path / "b.csv", rows=[f"{row},1" for row in ROWS], before=("age,city,answer,more",))
    (tmp_path / "c.csv").write_bytes((tmp_path / "b.csv").read_bytes())
    every, of = tmp_path / "*.csv", f"the first 60 rows of {tmp_path}/a.csv, one of 3 files"
    lines = [f"column town is not in {tmp_path}/b.csv and 1 other file",
             f"column city is left out: it is only in {tmp_path}/b.csv and 1 other file",
             f"column more is left out: it is only in {tmp_path}/b.csv and 1 other file"]  # fmt: skip
    said = run("inspect", every, "--suggest")[1]
    assert said.startswith(
        "\n".join([f"# proposed from {of}; correct what is wrong", *(f"#   {line}" for line in lines)])
    )
    notes = json.loads(run("inspect", every, "--suggest", "--json")[1])["notes"]
    assert notes["files"] == 3 and notes["differing"] == lines
    table(tmp_path / "b.csv"), table(tmp_path / "c.csv")
    assert f"kinds by {of}" in " ".join(run("inspect", every)[1].split())
    assert run("inspect", every, "--suggest")[1].splitlines()[1] == "reader:"


def test_lines_of_a_table_that_cannot_be_read_are_told_with_the_reason(tmp_path):
    """By their number in the file, whichever part of it they stand in."""
    place = table(tmp_path / "t.csv", rows=[f"x{k % 5},{k % 7},{'ab'[k % 2]}" for k in range(200)])
    place.write_bytes(place.read_bytes() + "Müller,1,a\n".encode("latin-1") + b"x,7\n")
    code, said, _ = run("inspect", place)
    assert code == 0 and "unreadable  2 lines" in said
    assert "1 in t.csv, line 202: byte 2 of the line is not UTF-8; name the encoding: --encoding latin-1 (in a" in said
    assert "1 in line 203: 2 fields, not 3" in said
    why = json.loads(run("inspect", place, "--json")[1])["why"]
    assert len(why) == 2 and all(text in said for text in why)
    code, said, _ = run("inspect", place, "--encoding", "latin-1")
    assert code == 0 and "201 rows" in said and "unreadable  1 line" in said


def test_numbers_of_lines_go_on_from_part_to_part(tmp_path, monkeypatch):
    monkeypatch.setattr("bigclf.conversion.text.pieces.PIECE", 2**12)
    place = table(tmp_path / "long.csv", rows=[*[f"{k % 7},{'xyz'[k % 3]},b" for k in range(5000)], "7"])
    said = run("inspect", place)[1]
    assert "5,000 rows" in said and "1 in long.csv, line 5002: 1 fields, not 3" in said


def test_utf_16_is_named_and_how_to_write_it_as_utf_8(tmp_path):
    rows = "".join(f"{k % 7},{'xyz'[k % 3]},b\n" for k in range(30))
    for name, text in (("t.csv", "age,town,answer\n" + rows), ("t.svm", "1 1:1\n-1 2:1\n")):
        for form in ("utf-16", "utf-16-be"):
            data = text.encode(form)
            (tmp_path / name).write_bytes(data if form == "utf-16" else b"\xfe\xff" + data)
            for words in (("inspect", tmp_path / name), ("fit", tmp_path / name, "-o", tmp_path / "m")):
                code, _, said = run(*words)
                assert code == 3 and f"{name}: the text is in UTF-16; write it as UTF-8: iconv -f UTF-16" in said


def test_sparse_rows_that_are_named_as_a_table_are_told_to_be_none(tmp_path):
    place = tmp_path / "rows.csv"
    place.write_text("".join(f"{1 - 2 * (k % 2)} 1:{k}.5 7:1\n" for k in range(20)))
    out = ["-o", tmp_path / "m.bigclf"]
    for words in (("inspect", place), ("inspect", place, "--suggest"), ("fit", place, *out)):
        code, _, said = run(*words)
        assert code == 3 and "rows.csv, line 1: its lines are sparse rows (label index:value ...)" in said, said
        assert "--format svmlight" in said
    assert "data  20 rows, 7 features" in run("inspect", place, "--format", "svmlight")[1]
    assert run("fit", place, "--format", "svmlight", *out)[0] == 0
    times = table(tmp_path / "times.csv", rows=[f"{k % 5} 12:{k} 13:{k}" for k in range(20)], before=())
    assert "3 columns" in run("inspect", times, "--separator", " ", "--no-header")[1]
    dated = table(tmp_path / "dated.csv", rows=[f"{k % 5},{k}.5,2026-01-07 12:{k + 10}" for k in range(20)], before=())
    assert "3 columns" in run("inspect", dated)[1]


def test_a_proposal_tells_of_a_separator_in_the_label(tmp_path):
    held = [";".join(name for j, name in enumerate(("red", "blue", "green", "black")) if k >> j & 1) for k in range(16)]
    rows = [f"{k % 7},{held[k % 16] or 'none'}" for k in range(160)]
    place = table(tmp_path / "t.csv", rows=rows, before=("a,tags",))
    said = run("inspect", place, "--suggest", "--label", "tags")[1]
    assert "\nlabel: tags  # 16 distinct\n  # column tags: 16 labels were found" in said
    assert "(--label-separator ';'" in said
    joined = json.loads(run("inspect", place, "--suggest", "--label", "tags", "--json")[1])["notes"]["label"]["joined"]
    assert len(joined) == 1 and joined[0] in said
    again = run("inspect", place, "--suggest", "--label", "tags", "--label-separator", ";")[1]
    assert "were found" not in again and "# column" not in run("inspect", place, "--suggest", "--label", "a")[1]


def test_a_size_without_a_unit_is_no_size_of_bytes(tmp_path, folder):
    people = folder / "people.csv"
    for memory, said in (("256", "256 without a unit is 256 bytes; did you mean 256MB?"), ("1 ", "is 1 byte; did")):
        code, _, told = run("fit", people, "--label", "answer", "--memory", memory, "-o", tmp_path / "m.bigclf")
        assert code == 2 and said in " ".join(told.split())
    told = run("fit", people, "--label", "answer", "--memory", "256B", "-o", tmp_path / "m.bigclf")
    assert told[0] == 1 and "memory=256 B is too small" in told[2]
    told = run("fit", people, "--label", "answer", "--memory", "256000000", "-o", tmp_path / "m.bigclf")
    assert told[0] == 0, told


@pytest.mark.skipif(not os.path.isdir("/sys"), reason="needs a directory in which nobody makes files")
def test_a_directory_that_cannot_be_written_in_is_named_by_every_command(folder):
    people, model = folder / "people.csv", folder / "m.bigclf"
    for words in (
        ("fit", people, "--label", "answer", "-o", "/sys/m"), ("predict", model, people, "-o", "/sys/p.csv"),
        ("convert", people, "/sys/out", "--label", "answer", "--numeric", "age"),
        ("evaluate", model, people, "-o", "/sys/e.json"), ("report", model, "-o", "/sys/r.html"),
        ("fit", people, "--label", "answer", "-o", "/sys/new/directory/m"),
        ("generate", "/sys/g.svm", "--rows", 10, "--features", 1000),
    ):  # fmt: skip
        code, _, said = run(*words)
        assert code in (1, 3, 5) and "cannot write in '/sys': " in said, (words, said)
        assert said.endswith("; name another directory\n") and len(said.splitlines()) == 1


def test_a_table_read_as_svmlight_is_told_to_be_one(tmp_path):
    for before in (("age,town,answer",), ("5.1,3.5,1.4,0.2",)):
        place = table(tmp_path / "rows.dat", before=before)
        for words in (["convert", place, tmp_path / "out"], ["fit", place, "-o", tmp_path / "m"]):
            code, _, said = run(*words)
            assert code == 3 and "rows.dat, line 1: " in said and "as rows of a table: --format csv" in said


def test_inspect_tells_of_sparse_text_what_fit_finds(tmp_path):
    (tmp_path / "rows.svm").write_text("1 1:2 3:1\n-1 2:1\n1 1:1\n")
    code, said, _ = run("inspect", tmp_path / "rows.svm", "--json")
    told = json.loads(said)
    assert code == 0 and (told["kind"], told["rows"], told["features"], told["nnz"]) == ("data", 3, 3, 4)


def test_paths_that_are_nearly_right_are_guessed(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    for name, meant in (("peple.csv", "people.csv"), ("people.cvs", "people.csv")):
        with pytest.raises(DataError, match=rf"no data file matches .*; did you mean '{folder / meant}'\?$"):
            files.expand(folder / name)
        with pytest.raises(DataError, match=rf"; did you mean '{folder.name}/{meant}'\?$"):
            files.expand(f"{folder.name}/{name}")
    wrong = folder.name[:-1] + "x"
    with pytest.raises(DataError, match=rf"; did you mean '{folder.name}/people.csv'\?$"):
        files.expand(f"{wrong}/people.csv")
    for name in (f"{wrong}/nothing.csv", f"{folder.name}/zzz.txt"):
        with pytest.raises(DataError, match="the nearest directory that exists is"):
            files.expand(name)
    code, _, said = run("evaluate", folder / "n.bigclf", folder / "people.csv")
    assert code == 3 and f"no such file; did you mean '{folder / 'm.bigclf'}'?" in " ".join(said.split())


def test_what_fails_leaves_no_directories(tmp_path, folder):
    people = folder / "people.csv"
    for words in (
        ["fit", people, "--label", "nope"], ["fit", people, "--label", "answer", "--memory", "10kB"],
        ["fit", people, "--label", "answer", "--algo", "newton", "--param", "zz=1"], ["fit", tmp_path / "none.csv"],
        ["sweep", people, "--label", "nope", "--grid", "C=1"], ["path", people, "--label", "nope", "--C", "1,2"],
    ):  # fmt: skip
        for place in ("new/directory/out", "out"):
            code, _, said = run(*words, "-o", tmp_path / place)
            assert code not in (0, None) and said and not [*tmp_path.iterdir()], words
    (tmp_path / "there").mkdir()
    assert run("fit", people, "--label", "nope", "-o", tmp_path / "there" / "new" / "m")[0] == 3
    assert [*tmp_path.rglob("*")] == [tmp_path / "there"]  # which was there before
    assert run("fit", people, "--label", "answer", "-o", tmp_path / "new" / "m.bigclf")[0] == 0
    assert (tmp_path / "new" / "m.bigclf").exists()


def test_what_is_there_already_is_told_in_the_same_words_everywhere():
    """Of texts that say so, in all sources."""
    said = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                text = "".join(part.value for part in node.values if isinstance(part, ast.Constant))
                if re.search(r" already exists[;,]|exists and is not empty|: an earlier ", text):
                    said.append(text)
    assert len(said) >= 10
    again = [text for text in said if not re.search("add (--overwrite|overwrite=True) to replace (it|what)", text)]
    assert again == [" already exists; "]  # which goes on with what_to_do
    for has_run, own, resume in itertools.product((False, True), repeat=3):
        assert "add --overwrite to replace it" in what_to_do("m", "run", has_run, own, resume)


def test_shards_that_were_trained_on_are_known_again_and_so_is_what_they_were_made_of(tmp_path, folder):
    people = folder / "people.csv"
    spec = {"label": "answer", "features": [{"numeric": "age"}, {"categorical": "town"}]}
    shards = bigclf.convert(people, tmp_path / "s", format="csv", features=spec)
    model = bigclf.fit(tmp_path / "s", algo="pa1", epochs=1, progress=False)
    assert bigclf.evaluate(model, shards).trained_on == 1
    assert bigclf.evaluate(model, people).trained_on == 1
    parts = bigclf.split(shards, tmp_path / "parts", {"one": 0.5, "two": 0.5})
    learned = bigclf.fit(parts["one"], algo="pa1", epochs=1, progress=False)
    assert bigclf.evaluate(learned, parts["two"]).trained_on == 0
    assert bigclf.evaluate(learned, parts["one"]).trained_on == 1
    table(tmp_path / "more.csv", rows=ROWS[:20])
    both = bigclf.convert(tmp_path / "more.csv", tmp_path / "s", format="csv", append=True)
    assert len(both.conversion["sources"]) == 2
    assert bigclf.evaluate(model, both).trained_on == shards.n_rows / both.n_rows != 0.5  # in one of its two files


def test_warnings_of_a_conversion_are_repeated_when_the_cache_has_it(tmp_path, folder):
    rows = [*(f"{k % 7},{'xyz'[k % 3]},{k % 2}" for k in range(200)), "1,x,one", "wrong,x,1"]
    odd = table(tmp_path / "odd.csv", rows=[rows[-2], *rows[:-2], rows[-1]])
    said = []
    for name in ("a", "b"):
        words = ("--label", "answer", "--numeric", "age", "--on-bad-rows", "skip", "-o", tmp_path / name)
        code, _, told = run("fit", odd, *words)
        assert code == 0
        said.append(sorted(line for line in told.splitlines() if line.startswith("warning:")))
    assert said[0] == said[1] and len(said[0]) == 3
    assert any("1 of the first 202 labels are not numbers" in line for line in said[0])
    assert any("1 bad row was left out" in line and "'wrong' is not a number" in line for line in said[0])


def test_what_cannot_be_is_said_before_anything_is_done(tmp_path, folder, monkeypatch):
    (tmp_path / "latin.yaml").write_bytes("label: größe\n".encode("latin-1"))
    code, _, said = run("fit", folder / "people.csv", "--spec", tmp_path / "latin.yaml", "-o", tmp_path / "m")
    assert code == 3 and f"{tmp_path / 'latin.yaml'}: not text in UTF-8: byte 10" in said
    monkeypatch.setenv("BIGCLF_PROGRESS", "often")
    code, _, said = run("fit", folder / "people.csv", "--label", "answer", "-o", tmp_path / "m")
    assert code == 2 and "BIGCLF_PROGRESS=often: a number of seconds between two lines, such as 60" in said
    assert not (tmp_path / "m").exists()


def test_where_no_label_is_named_those_that_may_be_meant_are(tmp_path):
    lines = "".join(f"{k},{'ab'[k % 2]},{k % 3}\n" for k in range(60))
    (tmp_path / "sold.csv").write_text("price,town,sold\n" + lines)
    code, _, said = run("fit", tmp_path / "sold.csv", "-o", tmp_path / "m")
    assert (
        code == 2
        and "did you mean --label sold or --label town? `bigclf inspect FILE --suggest` lists all the columns" in said
    )
    assert not (tmp_path / "m").exists()


def test_a_prediction_says_what_its_probability_is(tmp_path, folder):
    people = folder / "people.csv"
    run("fit", people, "--label", "answer", "--loss", "logistic", "-o", tmp_path / "l.bigclf")
    _, out, _ = run("predict", tmp_path / "l.bigclf", people, "-o", tmp_path / "l", "--proba")
    assert "of 'yes', the label that sorts last; as trained with the logistic loss, not calibrated" in " ".join(
        out.split()
    )
    run("calibrate", folder / "m.bigclf", people, "-o", tmp_path / "c.bigclf")
    _, out, _ = run("predict", tmp_path / "c.bigclf", people, "-o", tmp_path / "c", "--proba", "--json")
    assert json.loads(out)["probability"] == "of 'yes', the label that sorts last; calibrated by Platt's sigmoid"
    _, out, _ = run("predict", tmp_path / "c.bigclf", people, "-o", tmp_path / "n", "--json")
    assert json.loads(out)["probability"] is None


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("evalute", "a", "b"), "evaluate"),
        (("help", "paramters"), "parameters"),
        (("fit", "a.csv", "-o", "m", "--lable", "y"), "--label"),
    ],
)
def test_names_that_are_nearly_right_are_guessed(words, meant):
    code, _, said = run(*words)
    assert code == 2 and "id you mean" in said and meant in said


def test_methods_that_are_nearly_right_are_guessed():
    with pytest.raises(ValueError, match=r"unknown algo 'arrow'; did you mean arow\?"):
        bigclf.fit([[1.0], [2.0]], [0, 1], algo="arrow")


@pytest.mark.long
def test_advice_about_the_choice_of_a_method_is_a_command_that_works(tmp_path, folder):
    wrong = ["sweep", folder / "people.csv", "--label", "answer", "--grid", "c=1,2", "-o", tmp_path / "s"]
    code, _, said = run(*wrong)
    said = " ".join(said.split())
    assert code == 2 and "did you mean C?" in said and said.endswith("(see bigclf help algorithms)")
    assert run("help", "algorithms")[0] == 0
    code, _, said = run("algorithms", "auto")
    assert code == 2 and "bigclf help algorithms" in said
    code, _, said = run("algorithms", "newtn")
    assert code == 2 and "did you mean newton?" in said and "perceptron" not in said
    code, _, said = run("fit", folder / "people.csv", "--label", "answer", "--algo", "dcd", "--param", "r=1", "-o", "m")
    assert code == 2 and said.count("(see ") == 1 and "(see bigclf algorithms dcd)" in said


def test_searches_take_raw_tables_too(folder, tmp_path):
    people = folder / "people.csv"
    code, out, said = run("sweep", people, "--label", "answer", "-o", tmp_path / "s", "--grid", "C=0.1,1", "--folds", 2,
                          "--json")  # fmt: skip
    assert code == 0, said
    assert len(json.loads(out)["table"]) == 2
    assert run("evaluate", tmp_path / "s" / "model.bigclf", people)[0] == 0
    code, _, said = run("split", people, tmp_path / "parts")
    assert code == 3 and f"bigclf convert {people} OUT --label COL" in said
    code, _, said = run("plan", people)
    assert code == 2 and "--label" in said and "answer" in said


def test_a_class_that_nobody_has_is_refused(folder, tmp_path):
    spec = {"label": {"column": "answer", "one_of": ["maybe"]}, "features": [{"numeric": "age"}]}
    with pytest.raises(DataError, match="no row has one_of 'maybe', .*'no', 'yes'"):
        bigclf.convert(folder / "people.csv", tmp_path / "x", format="csv", features=spec)


def test_text_that_is_none_is_told_by_what_it_is(folder, tmp_path):
    spec = {"label": "answer", "features": [{"numeric": "age"}, {"categorical": "town"}]}
    with pytest.raises(DataError, match="carriage returns alone"):
        bigclf.convert(table(tmp_path / "old.csv", end="\r"), tmp_path / "x", format="csv", features=spec)
    spoilt = table(tmp_path / "nul.csv", rows=[*ROWS, "1,x\0y,yes"])
    with pytest.raises(DataError, match="line 62: a NUL byte"):
        bigclf.convert(spoilt, tmp_path / "x", format="csv", features=spec)
    (tmp_path / "nul.vw").write_bytes(b"1 |a x\n-1 |a b\0c\n1 |a y\n")
    with pytest.raises(DataError, match="line 2: a NUL byte"):
        bigclf.convert(tmp_path / "nul.vw", tmp_path / "x", format="vw", hash_bits=10)


def test_nothing_to_predict_is_said(folder, tmp_path):
    code, _, said = run("predict", folder / "m.bigclf", table(tmp_path / "none.csv", rows=[]), "-o", tmp_path / "out")
    assert code == 0 and "none.csv: there are no rows, so there are no predictions" in " ".join(said.split())


def test_columns_whose_hashed_values_can_be_spelt_alike_are_warned_of(tmp_path):
    path = table(tmp_path / "alike.csv", before=("a,a=b,answer",))
    spec = {"label": "answer", "features": [{"categorical": ["a", "a=b"]}]}
    (said,) = bigclf.convert(path, tmp_path / "x", format="csv", features=spec).warnings
    assert "'a' and 'a=b'" in said


def test_columns_that_are_nearly_right_are_guessed(folder, tmp_path):
    code, _, said = run("fit", folder / "people.csv", "--label", "Answer", "-o", tmp_path / "m")
    assert code != 0 and "did you mean answer?" in said
    titled = table(tmp_path / "titled.csv", before=("|1x3 Cross validator", "age,town,answer"))
    code, _, said = run("predict", folder / "m.bigclf", titled, "-o", tmp_path / "p")
    assert code == 3 and "'|1x3 Cross validator'" in said and "--skip-lines" in said


def test_json_under_a_name_of_a_table_is_told_as_such(folder, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("[" + ", ".join(json.dumps({"age": 1, "town": "x"}) for _ in range(3)) + "]")
    code, _, said = run("predict", folder / "m.bigclf", path, "-o", tmp_path / "p")
    assert code == 3 and "looks like JSON: --format jsonl" in said


def test_a_missing_label_comes_with_what_leaves_such_rows_out(folder, tmp_path, monkeypatch):
    gap = table(tmp_path / "gap.csv", rows=[*ROWS, "1,x,", "2,x,"])
    code, _, said = run("fit", gap, "--label", "answer", "-o", tmp_path / "m")
    options = "--on-bad-rows skip --max-bad-fraction 0.033"
    assert code == 3 and f"line 62: the label is missing; to leave such rows out (2 of 62 rows), use {options} " in said
    assert 'on_bad_rows="skip", max_bad_fraction=0.033)' in said
    assert run("fit", gap, "--label", "answer", "-o", tmp_path / "m", *options.split())[0] == 0
    features = bigclf.suggest(str(gap), label="answer")
    bigclf.fit(str(gap), features=features, algo="pa1", on_bad_rows="skip", max_bad_fraction=0.033)
    with pytest.raises(DataError, match="2 of 62 rows are bad, more than the 0.032"):
        bigclf.fit(str(gap), features=features, algo="pa1", on_bad_rows="skip", max_bad_fraction=0.032)
    monkeypatch.setattr(from_columns, "COUNTED", 62)
    with pytest.raises(DataError, match=r"out \(2 of the first 62 rows\), use .* --max-bad-fraction 0.048 "):
        bigclf.fit([str(gap), str(table(tmp_path / "more.csv"))], features=features)


@pytest.mark.parametrize("missing", [None, math.nan])
def test_a_missing_label_of_a_table_of_numbers_comes_with_it_too(tmp_path, missing):
    columns = {"x": [k * 37 % 11 / 8 for k in range(40)], "answer": [missing if k == 7 else k % 2.0 for k in range(40)]}
    pq.write_table(pa.table(columns), tmp_path / "n.parquet")
    code, _, said = run("fit", tmp_path / "n.parquet", "--label", "answer", "-o", tmp_path / "m")
    options = "--format parquet --on-bad-rows skip --max-bad-fraction 0.037"
    told = f"the label is missing; to leave such rows out (1 of 40 rows here), use {options} (features=bigclf.suggest("
    assert code == 3 and f"row 7, column answer: {told}" in said
    assert run("fit", tmp_path / "n.parquet", "--label", "answer", "-o", tmp_path / "m", *options.split())[0] == 0
    by_role = "--columns", "label=answer", *options.split()  # "'Dataset' object is not iterable"
    code, _, said = run("fit", tmp_path / "n.parquet", *by_role, "-o", tmp_path / "n")
    assert code == 2 and "of a raw table, name them with --label and the like instead" in said


def test_parquet_of_numbers_alone_is_told_from_a_table(tmp_path, folder):
    """... by ``fit``, in words, and by what the model takes after it: no rows of other columns."""
    rows = {"a": [k * 37 % 11 / 8 for k in range(40)], "b": [k % 5 for k in range(40)], "y": [k % 2 for k in range(40)]}
    plain, model = tmp_path / "n.parquet", tmp_path / "m"
    pq.write_table(pa.table(rows), plain)
    pa_csv.write_csv(pa.table(rows), tmp_path / "n.csv")
    code, told, said = run("fit", plain, "--label", "y", "--algo", "pa1", "-o", model)
    assert code == 0 and "all columns of " in said and "not scaled" in said and "add --format parquet" in said
    assert "2 numbers as they are, not scaled" in told
    code, _, said = run("fit", plain, "--label", "y", "--algo", "pa1", "--format", "parquet", "-o", tmp_path / "t")
    assert code == 0 and "all columns" not in said and run("evaluate", tmp_path / "t", tmp_path / "n.csv")[0] == 0
    assert run("convert", plain, tmp_path / "s", "--label", "y")[0] == 0
    pq.write_table(pa.table(rows).select(["y", "b", "a"]), tmp_path / "order.parquet")
    assert run("evaluate", model, tmp_path / "order.parquet")[0] == 0  # found by their names
    for verb, more in (("evaluate", ()), ("predict", ("-o", tmp_path / "p"))):
        code, _, said = run(verb, model, tmp_path / "s", *more)
        assert code == 3 and "made of raw columns, and the model takes the columns a, b as they are" in said
        code, _, said = run(verb, model, tmp_path / "n.csv", *more)
        assert code == 3 and "a table as csv, and the model takes columns of Parquet as they are (a, b)" in said
    unsaid = (
        tmp_path / "unsaid"
    )  # the label is known by its name: the columns were forgotten, and taken by their places
    assert run("fit", plain, "--algo", "pa1", "-o", unsaid)[0] == 0
    figures = [
        json.loads(run("evaluate", unsaid, tmp_path / f"{name}.parquet", "--json")[1]) for name in ("n", "order")
    ]
    assert figures[0]["accuracy"] == figures[1]["accuracy"]
    pq.write_table(pa.table({**rows, "a": rows["b"], "c": rows["a"]}).drop_columns("b"), tmp_path / "other.parquet")
    code, _, said = run("evaluate", unsaid, tmp_path / "other.parquet")
    assert code == 3 and "column b: there is no such column; the file has a, y, c" in said
    grid = "--grid", "C=1", "--algo", "pa1", "--epochs", 2, "--folds", 0
    for k, name in enumerate(("n", "order")):
        out = "-o", tmp_path / f"g{k}", "--validate", tmp_path / f"{name}.parquet", "--json"
        figures[k] = json.loads(run("sweep", plain, "--label", "y", *grid, *out)[1])["table"][0]["mean"]
    assert figures[0] == figures[1]
    code, _, said = run("sweep", plain, "--label", "y", *grid, "-o", tmp_path / "g2", "--validate", tmp_path / "s")
    assert code == 3 and "made of raw columns, and the model takes the columns a, b as they are" in said
    asked = {"features": "*", "label": "y"}
    with pytest.raises(DataError, match="another order than the model was trained on: column 0 is 'b' and was 'a'"):
        bigclf.evaluate(bigclf.load(model), bigclf.Dataset(tmp_path / "order.parquet", columns=asked))
    with pytest.raises(DataError, match="columns a, b are features as they are here, and the model makes features"):
        bigclf.evaluate(bigclf.load(tmp_path / "t"), bigclf.Dataset(plain, columns=asked))
    assert run("explain", model, "--row", 0, "--data", tmp_path / "s")[0] == 3
    with pytest.raises(
        DataError, match="cannot go on from the model of init: the file has its columns in another order"
    ):
        swapped = bigclf.Dataset(tmp_path / "order.parquet", columns=asked)
        bigclf.fit(swapped, algo="pa1", init=bigclf.load(model), progress=False)


def test_what_is_looked_at_is_told_as_it_is(tmp_path, folder):
    less = table(tmp_path / "less.csv", rows=[row.partition(",")[2] for row in ROWS], before=("town,answer",))
    code, out, _ = run("inspect", folder / "people.csv", less)  # "there is no such column"
    assert code == 0 and "120 rows, 3 columns" in out and "column age is not in " in out
    pair = {"s": [{"u": 1, "v": "x"}] * 40, "n": [k % 5 for k in range(40)], "y": [k % 2 for k in range(40)]}
    pq.write_table(pa.table(pair), tmp_path / "pair.parquet")  # "there is no list column of feature indices"
    code, out, _ = run("inspect", tmp_path / "pair.parquet")
    assert code == 0 and "40 rows, 3 columns, parquet" in out and "is neither text nor numbers" in " ".join(out.split())
    pq.write_table(pa.table({"n": [0.5], "y": [1]}).slice(0, 0), tmp_path / "none.parquet")
    code, _, said = run("inspect", tmp_path / "none.parquet")  # "0 features, values all 1"
    assert code == 3 and "none.parquet: there are no rows" in said
    mixed = table(tmp_path / "mixed.csv", rows=[f"{k % 7 if k % 2 else 'x'},{k % 3},no" for k in range(60)])
    day = table(tmp_path / "day.csv", before=("id,since,town,answer",), rows=[
        f"{k},2024-01-{1 + k % 7:02d},{row.partition(',')[2]}" for k, row in enumerate(ROWS)])  # fmt: skip
    said = " ".join(run("fit", day, "--label", "answer", "--algo", "pa1", "-o", tmp_path / "day.bigclf")[1].split())
    assert "columns 1 category, 1 date; left out: id (just numbers the rows) error" in said
    assert "numbers in 30 cells, text in 30" in " ".join(run("inspect", mixed)[1].split())
    for names in ((mixed, tmp_path / "pair.parquet"), (tmp_path / "pair.parquet", mixed)):
        for words in (("inspect",), ("fit", "--label", "answer", "-o", tmp_path / "never")):
            code, _, said = run(*words, *names)  # "damaged; copy it again", or a Parquet file already
            assert code == 3 and "not all files are of one format by their names (csv, parquet): read those" in said


def test_labels_that_pass_through_are_spelt_as_predictions(folder, tmp_path):
    blank = table(tmp_path / "blank.csv", rows=[row.replace(",yes", ", yes ") for row in ROWS])
    assert run("predict", folder / "m.bigclf", blank, "-o", tmp_path / "p")[0] == 0
    (said,) = (tmp_path / "p").glob("*.parquet")
    assert set(pq.read_table(said)["answer"].to_pylist()) == {"yes", "no"}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("fit", "-o", "m", "--loss", "hinje"), "unknown loss 'hinje'"),
        (("fit", "-o", "m", "--algo", "arow", "--param", "C=1"), "C has no effect|option of its own"),
        (("fit", "-o", "m", "--algo", "pa1", "--tol", "0.1"), "tol has no effect"),
        (("sweep", "-o", "s", "--grid", "r=1,2"), "r is a parameter of"),
        (("path", "-o", "p", "--C", "1,2", "--algo", "pa1"), "path is not available"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_file_is_converted(folder, tmp_path, monkeypatch, words, reason):
    monkeypatch.setattr("bigclf.conversion.convert.convert_columns", None)
    monkeypatch.setattr("bigclf.model.raw_input.convert_columns", None)  # would be called
    monkeypatch.chdir(tmp_path)
    code, _, said = run(words[0], folder / "people.csv", "--label", "answer", *words[1:])
    assert code == 2 and re.search(reason, said), said
    with pytest.raises(ValueError, match="'hinje' is not a loss"):
        bigclf.fit(folder / "people.csv", features={"label": "answer", "features": [{"numeric": "age"}]}, format="csv",
                   loss="hinje", algo="dcd")  # fmt: skip


def test_a_guessed_label_is_said_to_be_one(folder, tmp_path):
    named = table(tmp_path / "named.csv", before=("age,town,target",))
    code, _, said = run("fit", named, "-o", tmp_path / "m")
    assert code == 0 and "predicting column 'target', guessed from its name" in said
    assert "guessed" not in run("fit", named, "--label", "target", "-o", tmp_path / "n")[2]
    assert "label: target  # 2 distinct; guessed" in run("inspect", named, "--suggest")[1]


def test_a_column_that_gives_the_answer_away_is_named(folder, tmp_path):
    rows = [f"{k * 37 % 50},{'xyz'[k % 3]},{('no', 'paid')[k * 7 % 5 > 1]},{('no', 'yes')[k * 7 % 5 > 1]}"
            for k in range(300)]  # fmt: skip
    leaking = table(tmp_path / "leaking.csv", rows, before=("age,town,note,answer",))
    for label, names in (("answer", True), ("town", False)):
        code, out, said = run("fit", leaking, "--label", label, "--holdout", "0.3", "-o", tmp_path / f"{label}.bigclf")
        assert code == 0 and ("accuracy 100.00 %" in out) == names
        assert ("column 'note' decides nearly alone" in said) == names
    validated = run("fit", leaking, "--label", "answer", "--validate", leaking, "-o", tmp_path / "v.bigclf")
    assert "column 'note' decides nearly alone" in validated[2]


def test_errors_of_a_spec_name_its_line(folder, tmp_path):
    spec = tmp_path / "spec.yaml"
    for text, line, reason in (
        ("label: answer\nfeatures:\n  - numeric: age\n  - categorical: town\n    encode: exakt\n", 5, "encode must"),
        ("label: answer\nfeatures:\n  numeric: [age]\n  categorial: [town]\n", 4, "did you mean categorical"),
        ("label: answer\nfeatures:\n  - numeric: age\n    scael: log\n", 4, "did you mean scale"),
        ("label: {column: answer, above: x}\nfeatures: []\n", 1, "above must be a number"),
        ("features:\n  - numeric: age\nlabel: no\n", 3, "in quotes"),
        ("features: [{numeric: age}]\nfeature: []\nlabel: answer\n", 2, "did you mean features"),
        ("label: answer\nfeatures:\n  - numeric: age\nreader:\n  separater: ;\n", 4, "unknown option 'separater'"),
        ("label: answer\nfeatures:\n  - numeric: [age\n", 4, "not readable as YAML"),
        ("reader: {}\nkind: other\n", 2, "not made from columns"),
    ):
        spec.write_text(text)
        code, _, said = run("fit", folder / "people.csv", "--spec", spec, "-o", tmp_path / "m")
        assert code == 3 and f"spec.yaml, line {line}: " in said and reason in said, said
    spec.write_text("label: answer\x07\n")  # nowhere in YAML, and the parser does not say where
    code, _, said = run("fit", folder / "people.csv", "--spec", spec, "-o", tmp_path / "m")
    assert code == 3 and "spec.yaml: not readable as YAML: unacceptable character" in said, said


def test_a_loss_that_a_job_cannot_have_is_refused_before_its_first_step(folder, tmp_path):
    (tmp_path / "job.yaml").write_text("data: {train: x, source: y}\nmethod:\n  algo: dcd\n  loss: hinje\n"
                                       "outputs: {model: m}\n")  # fmt: skip
    code, _, said = run("run", tmp_path / "job.yaml", "--dry-run")
    assert code == 2 and "line 4: loss 'hinje' is not available with dcd; choose from hinge" in said


def test_notes_of_few_words_are_texts_and_names_of_many_are_categories(tmp_path):
    draw = random.Random(0)
    words = ["called", "asked", "loan", "house", "moved"]
    notes = (" ".join(draw.choices(words, k=draw.randint(2, 6))) for _ in range(6000))
    lines = "".join(f"{note},New Town{k % 1500},{k % 2}\n" for k, note in enumerate(notes))
    (tmp_path / "n.csv").write_text("note,town,y\n" + lines)
    kinds = {column.name: column.kind for column in bigclf.suggest(tmp_path / "n.csv", label="y").columns}
    assert (kinds["note"], kinds["town"]) == ("text", "categorical")


def test_a_loss_in_place_of_a_method_is_told_as_such(tmp_path, folder):
    for algo, told in (("logistic", "logistic is a loss: --loss logistic"), ("hinge_loss", "--loss hinge"),
                       ("squared_hinge", "--loss squared_hinge"), ("zzzz", "`bigclf algorithms` lists")):  # fmt: skip
        code, _, said = run("fit", folder / "people.csv", "--label", "answer", "-o", tmp_path / "x", "--algo", algo)
        assert code == 2 and told in " ".join(said.split()) and "winnow" not in said


@pytest.mark.parametrize("value", ["0.1..1", "1e", "0.1:1"])
def test_a_value_of_a_grid_that_is_no_number_is_told_with_the_form(tmp_path, folder, value):
    words = ("--label", "answer", "-o", tmp_path / "s", "--grid", f"C=1,{value}")
    code, _, said = run("sweep", folder / "people.csv", *words)
    said = " ".join(said.split())
    assert code == 2 and "--grid" in said and f"{value!r} is not a number" in said and "--grid C=0.01,0.1,1" in said
    with pytest.raises(ValueError, match=r"C='.*' is not a number|the grid has C=.*, which is not a number"):
        bigclf.sweep([[1.0], [2.0]] * 20, [0, 1] * 20, grid={"C": [value]}, progress=False)


def test_the_curve_says_what_it_is_of(tmp_path, folder):
    for more, name in ((("--algo", "lbfgs", "--tol", 1e-6), "gap by"), (("--algo", "pa1", "--epochs", 3), "error by")):
        words = ("--label", "answer", "-o", tmp_path / name, *more)
        code, told, _ = run("fit", folder / "people.csv", *words)
        (line,) = [line for line in told.splitlines() if "→" in line]
        assert code == 0 and line.strip().startswith(name), told


def test_an_export_to_numpy_comes_with_a_line_that_predicts(tmp_path, folder, monkeypatch):
    """Of raw columns and of rows that are made: the line is run."""
    shards_of(str(tmp_path / "s"), *random_rows(60, 5))
    run("fit", tmp_path / "s", "-o", tmp_path / "rows.bigclf", "--algo", "dcd")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ROWS.csv").write_text((folder / "people.csv").read_text())
    for model, name, n in ((folder / "m.bigclf", "of_columns", 60), (tmp_path / "rows.bigclf", "of_rows", 1)):
        (line,) = [x for x in run("export", model, f"{name}.py", "--to", "numpy")[1].splitlines() if "try:" in x]
        words = shlex.split(line.split("try:")[1].partition("   (")[0])
        done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, check=True)
        assert words[0] == "python" and len(done.stdout.split()) == n


def test_hashed_names_that_share_an_index_are_told_of_where_they_may_matter(tmp_path, folder):
    """At fit of more than a tenth; in `explain` of fewer too, which rarely matter; with what mends it."""
    rows = [f"{k % 7},town{k},{'yes' if k % 3 else 'no'}" for k in range(300)]
    names = table(tmp_path / "names.csv", rows=rows)
    words = ("--label", "answer", "--categorical", "town", "--seed")
    for seed, bits, many in ((1, 8, True), (2, 12, False)):
        out = tmp_path / f"{bits}.bigclf"
        code, _, said = run("fit", names, *words, seed, "--hash-bits", bits, "-o", out)
        said = " ".join(said.split())
        assert code == 0 and many == ("share their index" in said), said
        told = " ".join(run("explain", out)[2].split())
        mend = f"--hash-bits {bits + 2} (hash_bits: {bits + 2} in a spec)"
        matters = "that may cost accuracy" if many else "so few collisions rarely matter"
        assert ("warning: about" if many else "note: about") in told
        assert mend in told and matters in told and (not many or (mend in said and matters in said))


def test_weights_are_counted_in_the_same_words(tmp_path, folder):
    rows = [f"2024-01-{1 + k % 7:02d},{'yes' if k % 7 < 3 else 'no'}" for k in range(140)]
    dated = table(tmp_path / "dated.csv", rows=rows, before=("day,answer",))
    words = ("--label", "answer", "--date", "day", "-o", tmp_path / "d.bigclf")
    code, told, said = run("fit", dated, *words)
    (counted,) = re.findall(r"weights +(\d+ of \d+ not zero)", told)
    assert code == 0 and f"{counted}, float64" in run("inspect", tmp_path / "d.bigclf")[1]
    _, told, _ = run("explain", tmp_path / "d.bigclf")
    assert f"weights {counted}, bias" in told and "day.weekday=Monday" in told and "weekday=0" not in told


def test_what_a_fit_took_beside_its_training_is_told():
    from bigclf.cli.fit import in_all_text

    assert in_all_text(23.4, 0.6) == "23.4 s including reading the data and compiling"
    assert in_all_text(1.0, 0.1) is None and in_all_text(30.0, 20.0) is None and in_all_text(None, 1.0) is None


@pytest.mark.parametrize(("option", "value", "wanted"), [
    ("--epochs", "ten", "'ten' is not a whole number"), ("--tol", "half", "'half' is not a number"),
])  # fmt: skip
def test_what_is_no_number_is_told_in_plain_words(tmp_path, option, value, wanted):
    code, _, said = run("fit", tmp_path / "r.csv", "-o", tmp_path / "m", option, value)
    assert code == 2 and wanted in said and "range" not in said
