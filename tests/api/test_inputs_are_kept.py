"""Whatever overwrite says, no function writes over what it reads, takes it away, or changes what it holds."""

import os
import shutil

import pytest
from making import random_rows, shards_of

import bigclf
from bigclf.errors import RunError
from bigclf.training.records.run_directory import clear

SOLVED = {"algo": "dcd", "loss": "logistic", "tol": 0.5, "progress": False}
ONCE = {"algo": "pa1", "epochs": 1, "progress": False}
HALVES = {"a": 0.5, "b": 0.5}


@pytest.fixture
def there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shards = shards_of(tmp_path / "shards", *random_rows(40, 4, binary=True))
    bigclf.fit(shards, **SOLVED, run_dir="old").save("m.bigclf")
    shutil.copytree("shards", "parts/a/s")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "part-1.svm").write_text("1 1:1\n-1 2:1\n" * 20)
    return tmp_path


def content(place):
    return {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


def model():
    return bigclf.load("m.bigclf")


CALLS = {
    "convert over its source": lambda: bigclf.convert("text", "text", overwrite=True),
    "convert over the directory of its source": lambda: bigclf.convert("text/part-1.svm", "text", overwrite=True),
    "convert over one of its sources": lambda: bigclf.convert(["text/part-1.svm"], "text/part-1.svm", overwrite=True),
    "split into its input": lambda: bigclf.split("shards", "shards", HALVES, overwrite=True),
    "split over its input": lambda: bigclf.split("parts/a/s", "parts", HALVES, overwrite=True),
    "split a dataset over itself": lambda: bigclf.split(
        bigclf.Dataset("parts/a/s"), "parts/a", {"s": 0.5, "b": 0.5}, overwrite=True
    ),
    "fit with a run in its input": lambda: bigclf.fit("shards", **ONCE, run_dir="shards"),
    "fit a dataset with a run in it": lambda: bigclf.fit(
        bigclf.Dataset("shards"), **ONCE, run_dir=bigclf.RunDir("shards")
    ),
    "fit a file with a run beside it": lambda: bigclf.fit("shards/part-00000.parquet", **ONCE, run_dir="shards"),
    "fit with a run in what validates": lambda: bigclf.fit("parts/a/s", **ONCE, validate="shards", run_dir="shards"),
    "resume in its input": lambda: bigclf.fit("shards", **ONCE, run_dir="shards", resume=True),
    "sweep with a run in its input": lambda: bigclf.sweep("shards", grid={"C": [1, 2]}, **ONCE, folds=2,
                                                          run_dir="shards"),
    "path with a run in its input": lambda: bigclf.path("shards", C=[1, 2], loss="logistic", run_dir="shards"),
    "predict into its input": lambda: bigclf.predict(model(), "shards", "shards", overwrite=True),
    "predict into a file of its input": lambda: bigclf.predict(model(), bigclf.Dataset("shards"), "shards/p.csv"),
    "report over its data": lambda: bigclf.report("m.bigclf", "shards/part-00000.parquet", "shards", overwrite=True),
    "report in its data": lambda: bigclf.report("m.bigclf", "shards/r.html", bigclf.Dataset("shards")),
    "report over its model": lambda: bigclf.report("m.bigclf", "m.bigclf", overwrite=True),
    "forget over its data": lambda: bigclf.forget("old", "n.bigclf", rows=[1], to="shards", overwrite=True),
    "forget into its data": lambda: bigclf.forget("old", "shards/n.bigclf", rows=[1], to="left", overwrite=True),
    "forget with a run in its data": lambda: bigclf.forget("old", "n.bigclf", rows=[1], to="left", run_dir="shards",
                                                          overwrite=True),
    "forget over its own run": lambda: bigclf.forget("old", "n.bigclf", rows=[1], to="left", run_dir="old",
                                                     overwrite=True),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_no_function_takes_away_or_changes_what_it_reads(call, there):
    before = content(there)
    with pytest.raises(RunError, match="is an input|holds the input|would be read with the rows of"):
        CALLS[call]()
    assert content(there) == before


def test_a_run_may_stand_beside_the_directory_that_it_reads(there):
    """Whatever the directory is called: a run writes files of row state whose names begin with rows-, too."""
    os.rename("shards", "rows-1")
    before = content(there)
    bigclf.fit("rows-1", **ONCE, run_dir=".")
    assert before.items() < content(there).items()
    clear(".")
    assert before == content(there)


def test_shards_that_a_run_stands_beside_are_read(there):
    """Rows in memory name no place; a run may stand below the directory of files."""
    x, y = random_rows(40, 4, binary=True)
    bigclf.fit(x, y, **ONCE, run_dir="shards/run")
    fitted = bigclf.fit("shards", **ONCE, run_dir="shards/other")
    assert bigclf.Dataset("shards").n_rows == 40 and fitted.result_ is not None
    bigclf.report("old", "old/r.html")
    bigclf.report("old", "old/r.html", overwrite=True)
