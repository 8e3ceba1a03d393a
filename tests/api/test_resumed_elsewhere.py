"""A run goes on with the rows that it began with, wherever they lie now: copies of its shards, or what is made once
more of the raw files."""

import copy
import errno
import gc
import os
import pathlib
import pickle
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from making import random_rows, run_python, shards_of

import bigclf
from bigclf import files
from bigclf.errors import RunError
from bigclf.files import caches
from bigclf.files.caches import is_cached
from bigclf.model import raw_input

N, D = 200, 30
pytestmark = pytest.mark.filterwarnings("ignore::bigclf.errors.ConvergenceWarning")
FIT = {"algo": "dcd", "tol": 1e-9, "progress": False, "seed": 3}


def fitted(data, run, epochs, resume=False, **others):
    return bigclf.fit(data, **{**FIT, **others}, epochs=epochs, run_dir=run, resume=resume)


@pytest.fixture
def shards(tmp_path):
    shards_of(tmp_path / "shards", *random_rows(N, D))
    return tmp_path / "shards"


def later(directory):
    for path in pathlib.Path(directory).iterdir():
        os.utime(path, (1e9, 1e9))


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, N))
    label = np.where(a + 0.4 * b + rng.normal(size=N) > 0, "yes", "no")
    pa.csv.write_csv(pa.table({"a": a, "b": b, "shop": rng.choice(["x", "y"], N), "y": label}), "rows.csv")
    return "rows.csv"


SPEC = {"label": "y", "features": [{"numeric": ["a", "b"]}, {"categorical": "shop"}]}


def of_table(run, epochs, resume=False, data="rows.csv"):
    return fitted(data, run, epochs, resume, features=SPEC)


def test_copies_of_the_shards_with_other_times(shards, tmp_path):
    whole = fitted(shards, tmp_path / "whole", 8)
    fitted(shards, tmp_path / "run", 4)
    shutil.copytree(shards, tmp_path / "copies")
    shutil.rmtree(shards)
    later(tmp_path / "copies")
    found = fitted(tmp_path / "copies", tmp_path / "run", 8, resume=True)
    assert found.coef_.tobytes() == whole.coef_.tobytes() and found.result_.epochs == 8
    assert found.result_.history[0]["epoch"] == 1
    bigclf.forget(tmp_path / "run", tmp_path / "left.bigclf", rows=[3], data=tmp_path / "copies", to=tmp_path / "left")
    assert bigclf.Dataset(tmp_path / "left").n_rows == N - 1


@pytest.mark.parametrize("lost", ["shards", "cache", "elsewhere", "touched"])
def test_a_table_whose_shards_the_cache_has_lost(table, tmp_path, monkeypatch, lost):
    whole = of_table("whole", 8)
    of_table("run", 4)
    if lost == "elsewhere":
        monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path / "another"))
    elif lost == "touched":
        os.utime("rows.csv", (1e9, 1e9))
    else:
        shutil.rmtree(tmp_path / "cache" / ("raw" if lost == "shards" else ""))
    found = of_table("run", 8, resume=True)
    assert found.coef_.tobytes() == whole.coef_.tobytes() and found.result_.epochs == 8


def test_a_sweep_and_a_path(table, tmp_path):
    for verb in (bigclf.sweep, bigclf.path):
        how = {"features": SPEC, "algo": "newton", "loss": "logistic", "progress": False}
        how |= {"C": [0.1, 1.0]} if verb is bigclf.path else {"folds": 2, "grid": {"C": [0.1, 1.0]}}
        run = tmp_path / f"{verb.__name__}.run"
        first = verb("rows.csv", run_dir=run, **how)
        shutil.rmtree(tmp_path / "cache" / "raw")
        again = verb("rows.csv", run_dir=run, resume=True, **how)
        assert [m.coef_.tobytes() for m in again.models] == [m.coef_.tobytes() for m in first.models]


def test_other_rows_are_refused_by_the_names_of_their_files(table, tmp_path):
    of_table("run", 4)
    with open("rows.csv", "a") as file:
        file.write("1.5,2.5,x,yes\n")
    with pytest.raises(RunError, match=f"data: {tmp_path}/rows.csv has changed since; .*n_rows"):
        of_table("run", 8, resume=True)
    shutil.copy("rows.csv", "more.csv")
    with pytest.raises(RunError, match=f"data: {tmp_path}/rows.csv -> {tmp_path}/more.csv"):
        of_table("run", 8, resume=True, data="more.csv")


def test_a_table_that_is_read_in_another_way_has_not_changed(table, tmp_path):
    of_table("run", 4)
    other = SPEC | {"features": [{"numeric": ["a"]}]}
    with pytest.raises(RunError, match=r"data: \S*/rows.csv, read in another way \(features\)") as refused:
        fitted("rows.csv", "run", 8, resume=True, features=other)
    assert "changed" not in str(refused.value)
    with pytest.raises(RunError, match=r"read in another way \(seed\)"):
        fitted("rows.csv", "run", 8, resume=True, features=SPEC, seed=4)


def test_one_of_several_shards_that_was_made_anew_is_named(tmp_path):
    x, y = random_rows(N, D)
    shards_of(tmp_path / "s", x, y)
    fitted(tmp_path / "s", tmp_path / "run", 4)
    y[0] = 1 - y[0] if set(y) == {0, 1} else -y[0]
    shutil.rmtree(tmp_path / "s")
    shards_of(tmp_path / "s", x, y)
    with pytest.raises(RunError, match=r"data: \S*/s/\S* has changed since"):
        fitted(tmp_path / "s", tmp_path / "run", 8, resume=True)


def test_foreign_files_are_known_by_their_times_too(tmp_path):
    """Nothing in such a file tells what its rows are."""
    x, y = random_rows(N, D)
    dense = x.toarray()
    columns = {"label": y, **{f"x{j}": dense[:, j] for j in range(5)}}
    pa.parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    fitted(tmp_path / "a.parquet", tmp_path / "run", 2)
    later(tmp_path)
    with pytest.raises(RunError, match="data: .*a.parquet has changed since"):
        fitted(tmp_path / "a.parquet", tmp_path / "run", 4, resume=True)


OTHER = """
import gc, sys, bigclf
from bigclf.model import raw_input
raw_input.KEPT = 1
spec = {"label": "y", "features": [{"numeric": ["a", "b"]}]}
for name in sys.argv[1:]:
    bigclf.fit(name, features=spec, algo="pa1", epochs=1, progress=False)
    gc.collect()  # what it read is in use for as long as anything holds it
"""


def test_shards_of_the_cache_stay_while_they_are_used(table, tmp_path, monkeypatch):
    """Other tables were read meanwhile, by another process, more than are kept."""
    monkeypatch.setattr(raw_input, "KEPT", 1)
    for name in "cde":
        shutil.copy("rows.csv", f"{name}.csv")

    def kept():
        return len([path for path in (tmp_path / "cache" / "raw").iterdir() if not path.name.startswith(".")])

    mine = raw_input.converted("rows.csv", SPEC)
    part = pickle.loads(pickle.dumps(mine.with_real_labels() if mine.real_labels else mine.taking_part()))
    run_python(OTHER, "c.csv", "d.csv", BIGCLF_CACHE_DIR=str(tmp_path / "cache"))
    assert kept() == 2 and sum(block.n_rows for block in mine.blocks()) == N
    assert part.used is None and copy.copy(mine).used is mine.used
    del mine
    gc.collect()
    run_python(OTHER, "e.csv", BIGCLF_CACHE_DIR=str(tmp_path / "cache"))
    assert kept() == 1


def test_what_another_process_makes_in_the_cache_is_not_touched(table, tmp_path, monkeypatch):
    """It is about to mark as in use what it made, or works at it, or ended since it was looked for; and others may have
    called their own directory so."""
    monkeypatch.setattr(raw_input, "KEPT", 1)
    home = tmp_path / "cache" / "raw"
    (home / "2020-01").mkdir(parents=True)
    os.utime(home / "2020-01", (1e9, 1e9))
    a, b, c = (32 * name for name in "abc")
    for name in (a, b, c):
        for place in (home / name, home / f".{name}.converting"):
            place.mkdir(parents=True)
            os.utime(place, (1e9, 1e9))
    (home / f".{32 * '0'}.lock").touch()
    real = files.status
    gone = [home / b, home / f".{b}.converting"]

    def status(path):
        found = real(path)
        if pathlib.Path(path) in gone:
            pathlib.Path(path).rmdir()
        return found

    monkeypatch.setattr(files, "status", status)
    with files.alone(home / f".{a}.lock"):
        made = raw_input.converted(table, SPEC)
        kept = {*os.listdir(home)} - {pathlib.Path(made.files[0]).parent.name}
    assert kept == {a, f".{a}.lock", f".{a}.converting", f".{c}.converting", "2020-01"}


def test_a_cache_that_another_user_made_is_passed_over(table, tmp_path, monkeypatch):
    """As root did, with this user's home: the cache can be written, what is in it cannot."""
    theirs, real = tmp_path / "cache" / "raw", os.access
    theirs.mkdir(parents=True)
    (tmp_path / "bigclf-0").mkdir()
    monkeypatch.setattr(os, "access", lambda path, *how: pathlib.Path(path) != theirs and real(path, *how))
    monkeypatch.setattr(caches, "_temporary_home", lambda: tmp_path / "bigclf-0")
    made = raw_input.converted(table, SPEC)
    assert made.n_rows == N and not os.listdir(theirs) and is_cached(made.files[0])
    assert caches.cache_directory("raw") == str(tmp_path / "bigclf-0" / "raw")


@pytest.mark.parametrize("name", ["lock", "list_directory", "publish_text"])
def test_shards_of_another_user_in_the_cache_are_named(table, tmp_path, monkeypatch, name):
    """Who made them, and was killed or lets nobody in, shares the cache."""
    real = getattr(files, name)

    def closed(path, *how):
        if re.search(r"/raw/\.?[0-9a-f]{32}", str(path)):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *how)

    monkeypatch.setattr(files, name, closed)
    with pytest.raises(RunError, match=r"/raw/.*: Permission denied; name another cache \(BIGCLF_CACHE_DIR"):
        raw_input.converted(table, SPEC)


def test_a_disk_that_fails_to_make_a_directory_of_the_cache_is_no_reason_for_another(table, tmp_path, monkeypatch):
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(caches, "_temporary_home", lambda: pytest.fail("another home"))
    home, plain = caches.cache_home(), pathlib.Path.mkdir

    def mkdir(path, *given, **more):
        if path.parent == home:
            raise OSError(errno.EIO, "Input/output error", str(path))
        plain(path, *given, **more)

    monkeypatch.setattr(pathlib.Path, "mkdir", mkdir)
    with pytest.raises(OSError, match="Input/output error"):
        caches.cache_directory("raw")
    with pytest.raises(RunError, match=r"cannot make .*/raw: Input/output error; name another cache"):
        raw_input.converted(table, SPEC)
    shards_of(tmp_path / "mine", *random_rows(50, 5))
    os.remove(tmp_path / "mine" / "_bigclf_manifest.json")  # what is known of them would be kept in the cache
    assert bigclf.Dataset(tmp_path / "mine").n_rows == 50


@pytest.mark.parametrize("lost", ["shard", "cut", "features"])
def test_shards_of_the_cache_that_are_not_whole_are_made_again(table, lost, monkeypatch):
    """A program that clears disks took some files, by their age."""
    real = raw_input.convert_columns
    monkeypatch.setattr(raw_input, "convert_columns", lambda *given, **told: real(*given, **told | {"shard_nnz": 100}))
    made = raw_input.converted(table, SPEC)
    shard = pathlib.Path(made.files[1])
    names = sorted(os.listdir(shard.parent))
    assert len(made.files) > 2
    if lost == "cut":
        os.truncate(shard, 50)
    else:
        (shard if lost == "shard" else shard.with_name("_bigclf_features.safetensors")).unlink()
    del made
    again = raw_input.converted(table, SPEC)
    assert sum(block.n_rows for block in again.blocks()) == N and again.learned_of_columns()
    assert sorted(os.listdir(shard.parent)) == names
    written = shard.stat().st_mtime_ns
    raw_input.converted(table, SPEC)
    assert shard.stat().st_mtime_ns == written  # whole: taken as they are


def test_a_directory_that_is_gone_is_not_in_use(tmp_path):
    (tmp_path / "d").mkdir()
    used = files.InUse(tmp_path / "d")
    files.remove_unused(tmp_path / "d")
    assert used.held and (tmp_path / "d").exists()
    (tmp_path / "d").rename(tmp_path / "e")
    assert not files.InUse(tmp_path / "d").held and not files.InUse(tmp_path / "no").held
    files.remove_unused(tmp_path / "e")  # the mark is of the directory, whatever it is called
    assert (tmp_path / "e").exists()
    del used
    files.remove_unused(tmp_path / "e")
    assert not (tmp_path / "e").exists()


def test_what_is_another_users_in_the_cache_ends_nobody_elses_reading(table, tmp_path, monkeypatch):
    """Its lock, of a conversion at work or killed, cannot be opened: "Permission denied: .../raw/.x.lock"."""
    home = tmp_path / "cache" / "raw"
    (home / ".theirs.converting").mkdir(parents=True)
    for name in (".theirs.lock", ".killed.lock"):
        (home / name).touch()
    (home / "theirs").mkdir()
    monkeypatch.setattr(raw_input, "KEPT", 1)
    real = files.lock

    def lock(path, wait=False):
        if not wait and pathlib.Path(path).parent == home:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, wait)

    monkeypatch.setattr(files, "lock", lock)
    assert raw_input.converted(table, SPEC).n_rows == N


def test_shards_of_ones_own_may_lie_where_a_cache_would_have_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = f"raw/{32 * 'a'}"
    shards_of(place, *random_rows(300, 9))
    bigclf.fit(place, algo="dcd", run_dir="run", progress=False)
    for k, data in enumerate((None, place)):
        left = bigclf.forget("run", f"m{k}", rows=[1, 2], data=data, rewrite=k == 1, to=None if k else "left")
        assert left.receipt["rows"]["forgotten"] == 2


def test_a_run_of_columns_is_another_one_when_they_are_features_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numbers = np.arange(80.0)
    for name in "ab":
        pa.parquet.write_table(pa.table({"y": numbers % 2, "x": numbers}), f"{name}.parquet")
    words = {"algo": "pa1", "epochs": 1, "run_dir": "run", "progress": False}
    files_of = ["a.parquet", "b.parquet"]
    bigclf.fit(files_of, features={"label": "y", "features": [{"numeric": ["x"]}]}, **words)
    with pytest.raises(RunError, match="a.parquet and 1 more, read in another way"):
        bigclf.fit(files_of, y="y", resume=True, **words)
