"""``forget`` of a run on a table, of which ``fit`` made shards in bigclf's cache, and of Parquet of numbers."""

import gc
import json
import os
import pathlib
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from making import does, refuses, rows_in_csv

import bigclf
from bigclf import files
from bigclf.api import forget as verb
from bigclf.api.old_run import old_run
from bigclf.conversion import removing

N = 300


@pytest.fixture
def table(tmp_path, monkeypatch):
    return rows_in_csv(tmp_path, monkeypatch, N)


def _fit(more=""):
    does(f"fit rows.csv --label y --algo dcd -o m.bigclf --run-dir m.bigclf.run {more}")


def _shards(place):
    """Rows as the shards have them, in their order, without the label."""
    return [tuple(row) for block in bigclf.Dataset(place).blocks() for row in block.values.reshape(-1, 2).tolist()]


def test_numbers_of_rows_that_fit_shuffled_are_refused_and_the_cure_takes_out_the_row_that_is_meant(table, tmp_path):
    _fit()
    told = refuses("forget m.bigclf -o f.bigclf --rows 3 --to left")
    assert f"fit shuffled the rows of {tmp_path / 'rows.csv'}, so numbers of rows (--rows, rows=)" in told
    assert "--like FILE" in told and "--data" not in told and not (tmp_path / "left").exists()
    told = refuses("forget m.bigclf -o f.bigclf --where a=3 --to left")
    assert "--like FILE" in told and "--rows" not in told
    pa.csv.write_csv(table.slice(3, 1), "one.csv")
    told = does("forget m.bigclf -o f.bigclf --like one.csv --to left")
    assert f"stays: {tmp_path / 'rows.csv'} (raw file that the shards were made of)" in told
    (shards,) = bigclf.Dataset(next((tmp_path / "cache" / "raw").glob("[!.]*"))).files
    (gone,) = set(_shards(shards)) - set(_shards("left"))
    mean, size = (np.array([getattr(np, f)(table[c].to_numpy()) for c in "ab"]) for f in ("mean", "std"))
    assert gone == pytest.approx((np.array([table[c][3].as_py() for c in "ab"]) - mean) / size, abs=1e-6)


def test_what_is_left_of_them_is_counted_where_its_shards_are_named(table, tmp_path):
    _fit()
    pa.csv.write_csv(table.slice(3, 1), "one.csv")
    does("forget m.bigclf -o f.bigclf --like one.csv --to left")
    told = refuses("forget f.bigclf -o g.bigclf --rows 5 --to more")
    assert f"name these: --data {tmp_path / 'left'}" in told
    before = _shards("left")
    does(f"forget f.bigclf -o g.bigclf --rows 5 --to more --data {tmp_path / 'left'}")
    assert _shards("more") == before[:5] + before[6:]
    shutil.rmtree("more")
    told = refuses("forget g.bigclf -o h.bigclf --like one.csv --to last", 3)
    assert "are gone" in told and "name them where they are now (--data" in told


def test_a_table_in_its_order_may_be_counted(table, tmp_path):
    known = bigclf.convert("rows.csv", "shards", features={"label": "y", "features": [{"numeric": ["a", "b"]}]})
    bigclf.fit("rows.csv", features=known, algo="dcd", run_dir="m.bigclf.run", progress=False)
    (shards,) = bigclf.Dataset(next((tmp_path / "cache" / "raw").glob("[!.]*"))).files
    before = _shards(shards)
    does("forget m.bigclf.run -o f.bigclf --rows 3 --to left")
    assert _shards("left") == before[:3] + before[4:]
    assert before[3][0] == pytest.approx((table["a"][3].as_py() - np.mean(table["a"])) / np.std(table["a"]), abs=1e-6)


def _without_key(name):
    path = pathlib.Path(name) / "run.json"
    told = json.loads(path.read_text())
    del told["raw"]
    path.write_text(json.dumps(told))


def test_shards_that_the_cache_has_lost_are_made_again(table, tmp_path):
    _fit()
    pa.csv.write_csv(table.slice(3, 1), "one.csv")
    before = _shards(next((tmp_path / "cache" / "raw").glob("[!.]*")))
    shutil.rmtree(tmp_path / "cache" / "raw")
    (tmp_path / "store" / f"raw-{bigclf.load('m.bigclf').facts['data']}").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    os.chdir("elsewhere")
    told = does("forget ../m.bigclf -o f.bigclf --like ../one.csv --to left --local-dir ../store")
    assert len(set(before) - set(_shards("left"))) == 1 and len(_shards("left")) == N - 1
    assert "began with   dual variables" in told
    assert "(raw store: decoded rows)" in told


def test_shards_of_another_cache_are_not_replaced_but_a_copy_of_them_is(table, tmp_path, monkeypatch):
    """Every later fit of the table there would learn from the rows that are left, and say nothing."""
    _fit()
    pa.csv.write_csv(table.slice(3, 1), "one.csv")
    place = next((tmp_path / "cache" / "raw").glob("[!.]*"))
    before = _shards(place)
    shutil.copytree(place, "mine")
    (tmp_path / "link").symlink_to(place)
    shutil.rmtree(tmp_path / "cache" / "manifests")  # a program that clears disks: nothing else tells of a cache
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path / "other"))
    for more in ("", f"--data {place}", "--data link"):
        told = refuses(f"forget m.bigclf -o f.bigclf --like one.csv --rewrite {more}", 3)
        assert "these shards are a cache of raw files, which still hold the rows: use --to" in told
    assert _shards(place) == before
    does("forget m.bigclf -o f.bigclf --like one.csv --rewrite --data mine")
    assert len(_shards("mine")) == N - 1


def test_shards_of_the_cache_stay_while_rows_are_taken_out(table, tmp_path):
    """Other tables are read meanwhile, more than are kept."""
    _fit()
    place = next((tmp_path / "cache" / "raw").glob("[!.]*"))
    dataset = verb.opened(old_run("m.bigclf"), None)
    files.remove_unused(place)
    assert sum(block.n_rows for block in dataset.blocks()) == N
    del dataset
    gc.collect()
    files.remove_unused(place)
    assert not place.exists()


def test_of_shards_that_cannot_be_made_again_it_is_told_what_to_do(table, tmp_path):
    _fit()
    pa.csv.write_csv(table.slice(3, 1), "one.csv")
    line = "forget m.bigclf -o f.bigclf --like one.csv --to left"
    told = refuses(f"{line} --data rows.csv")
    assert "rows.csv: is a raw file" in told and "leave the option out" in told
    shutil.rmtree(tmp_path / "cache" / "raw")
    os.rename("rows.csv", "away.csv")
    told = refuses(line, 3)
    assert f"and {tmp_path / 'rows.csv'} is not there to make them again; put it back as it was" in told
    pa.csv.write_csv(table.slice(1), "rows.csv")
    assert f"what is made of {tmp_path / 'rows.csv'} now are others" in refuses(line, 3)
    os.replace("away.csv", "rows.csv")  # as it was, with its time
    shutil.rmtree(tmp_path / "cache" / "raw")
    _without_key("m.bigclf.run")  # as older versions wrote it
    told = refuses(line, 3)
    assert "made of the raw files for this run are gone" in told and "fit once more with another model" in told
    assert "fit shuffled the rows of the raw files" in refuses(line.replace("--like one.csv", "--rows 3"))
    does("fit rows.csv --label y --algo dcd -o other.bigclf")
    does(line)
    assert len(_shards("left")) == N - 1


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_rows_in_a_file_of_another_format_are_found(form, table, tmp_path):
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist()))
    does("fit rows.jsonl --label y --algo dcd -o m.bigclf --run-dir m.bigclf.run")
    one = table.slice(3, 1)
    (tmp_path / "one.jsonl").write_text(json.dumps(one.to_pylist()[0]))
    pa.csv.write_csv(one, "one.csv")
    pq.write_table(one, "one.parquet")
    does(f"forget m.bigclf -o f.bigclf --like one.{form} --to left")
    assert len(_shards("left")) == N - 1


@pytest.mark.parametrize("words", [("TRUE", "FALSE"), ("1", "0")])
def test_rows_are_found_by_truths_in_another_spelling_and_those_that_are_not_are_told(words, table, tmp_path):
    truths = [one == "yes" for one in table["y"].to_pylist()]
    for name, (yes, no) in {"mine": ("true", "false"), "theirs": words}.items():
        pa.csv.write_csv(table.set_column(2, "y", pa.array([yes if one else no for one in truths])), f"{name}.csv")
    does("fit mine.csv --label y --algo dcd -o m.bigclf --run-dir m.bigclf.run")
    header, *lines = (tmp_path / "theirs.csv").read_text().splitlines()
    (tmp_path / "some.csv").write_text("\n".join([header, *lines[:4], ""]))
    told = does("forget m.bigclf -o f.bigclf --like some.csv --to left")
    assert len(_shards("left")) == N - 4 and "--like       all of 4 rows found in the data" in told
    known = json.loads(pathlib.Path("f.bigclf.receipt.json").read_text())["rows"]["like"]
    assert known == {"rows": 4, "not_found": 0, "first_not_found": []}
    mistyped = ["99.5," + lines[4].partition(",")[2], "99.5," + lines[5].partition(",")[2]]
    (tmp_path / "more.csv").write_text("\n".join([header, *mistyped, lines[6], ""]))
    told = does("forget m.bigclf -o g.bigclf --like more.csv --to more")
    assert len(_shards("more")) == N - 1 and "2 of 3 rows not found in the data" in told
    assert "rows 0, 1, counted from 0" in told
    known = json.loads(pathlib.Path("g.bigclf.receipt.json").read_text())["rows"]["like"]
    assert known == {"rows": 3, "not_found": 2, "first_not_found": [0, 1]}


def test_rows_of_several_labels_are_alike_where_these_are_the_same_ones(tmp_path):
    spec = {"label": {"column": "tags", "separator": ";"}, "features": [{"numeric": ["x"]}]}
    (tmp_path / "a.csv").write_text("x,tags\n1,b\n2,true;a\n3,a\n4,\n5,false\n")
    made = bigclf.convert(tmp_path / "a.csv", tmp_path / "a", features=spec, shuffle=False)
    (tmp_path / "b.csv").write_text("x,tags\n2,a;True;TRUE\n3,b\n4,\n5,FALSE;true\n")
    others = bigclf.convert(tmp_path / "b.csv", tmp_path / "b", features=made, shuffle=False)
    numbers, n, n_lacking, lacking = removing.like(made, others)
    assert (numbers.tolist(), n, n_lacking, lacking) == ([1, 3], 4, 2, [1, 3])


# Parquet of numbers


@pytest.mark.parametrize("label", ["y", "given", "older"])
def test_rows_of_parquet_of_numbers_are_forgotten(label, table, tmp_path):
    numbers = table.set_column(2, "y", pa.array([int(one == "yes") for one in table["y"].to_pylist()]))
    os.mkdir("there")
    os.chdir("there")
    pq.write_table(numbers, "rows.parquet")
    given = "" if label == "given" else "--label y"
    does(f"fit rows.parquet {given} --algo dcd -o m.bigclf --run-dir run")
    told = json.loads(pathlib.Path("run/run.json").read_text())
    assert told.get("columns") == (None if label == "given" else {"features": "*", "label": "y"})
    if label == "older":
        del told["columns"]
        pathlib.Path("run/run.json").write_text(json.dumps(told))
    told = refuses("forget m.bigclf -o f.bigclf --rows 3 --to left")
    assert "its run does not lie beside it (m.bigclf.run)" in told and "bigclf forget RUN_DIR -o" in told
    os.chdir(tmp_path)  # the run knows where the rows lie
    told = does("forget there/run -o f.bigclf --rows 3 --to left")
    assert "began with   dual variables" in told
    (left,) = pathlib.Path("left").glob("*.parquet")
    assert pq.read_table(left).equals(pa.concat_tables([numbers.slice(0, 3), numbers.slice(4)]))
    pq.write_table(numbers.slice(7, 1), "one.parquet")
    does("forget f.bigclf -o g.bigclf --like one.parquet --to more")
    assert pq.read_metadata(next(pathlib.Path("more").glob("*.parquet"))).num_rows == N - 2
    pa.csv.write_csv(numbers.slice(9, 1), "one.csv")
    assert "write them as Parquet" in refuses("forget g.bigclf -o h.bigclf --like one.csv --to last", 3)


def test_a_run_that_names_files_from_another_directory_says_so(table, tmp_path):
    numbers = table.set_column(2, "y", pa.array([int(one == "yes") for one in table["y"].to_pylist()]))
    pq.write_table(numbers, "numbers.parquet")
    does("fit numbers.parquet --label y --algo dcd -o m.bigclf --run-dir m.bigclf.run")
    path = tmp_path / "m.bigclf.run" / "run.json"
    path.write_text(path.read_text().replace(str(tmp_path / "numbers.parquet"), "numbers.parquet"))  # as older ones do
    os.mkdir("away")
    os.chdir("away")
    told = refuses("forget ../m.bigclf -o f.bigclf --rows 3 --to left", 3)
    assert "trained on numbers.parquet, named from the directory that fit was given in" in told
    does("forget ../m.bigclf -o f.bigclf --rows 3 --to left --data ../numbers.parquet")


def test_a_later_receipt_tells_what_is_removed_now_with_the_directory_that_held_it(table):
    does("fit rows.csv --label y --algo newton -o m.bigclf --run-dir m.bigclf.run")
    for name, row in (("one", 3), ("two", 5)):
        pa.csv.write_csv(table.slice(row, 1), f"{name}.csv")
    does("forget m.bigclf -o f.bigclf --like one.csv --to left")
    does("forget f.bigclf -o g.bigclf --like two.csv --rewrite")
    receipt = json.loads(pathlib.Path("g.bigclf.receipt.json").read_text())
    (cached,) = [one["path"] for one in receipt["places"] if one["what"] == "cache: shards of the same raw files"]
    inside = [one for one in receipt["earlier"] if one["path"].startswith(f"{cached}/")]
    assert inside and {one["done"] for one in inside} == {"gone"} and not pathlib.Path(cached).exists()
    told = [one["what"] for one in (*receipt["earlier"], *receipt["places"]) if one["what"].startswith("run: ")]
    assert len(told) == 2 and not any("dual" in what for what in told)
    assert [one["done"] for one in receipt["places"] if one["path"].endswith("/rows.csv")] == ["stays"]


def test_where_one_class_would_be_left_the_file_is_named_that_the_run_knows(table):
    numbers = table.set_column(2, "y", pa.array([int(one == "yes") for one in table["y"].to_pylist()]))
    pq.write_table(numbers, "numbers.parquet")
    does("fit numbers.parquet --label y --algo dcd -o m.bigclf --run-dir m.bigclf.run")
    told = refuses("forget m.bigclf -o f.bigclf --where y=1 --to left", 3)
    assert "numbers.parquet, column y: nothing can be learned from the rows that would be left: every one of" in told
    assert ".left" not in told and not pathlib.Path("left").exists() and not pathlib.Path("f.bigclf").exists()
    _fit("--overwrite")
    pa.csv.write_csv(table.filter([one == "yes" for one in table["y"].to_pylist()]), "yes.csv")
    told = refuses("forget m.bigclf -o f.bigclf --like yes.csv --to left", 3)
    assert "rows.csv, column y: nothing can be learned" in told
