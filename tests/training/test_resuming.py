"""Conversions that are killed, and go on."""

import errno
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from making import environment

import bigclf
from bigclf import files
from bigclf.conversion import converter, resuming, shuffle
from bigclf.conversion.resuming import Workplace
from bigclf.conversion.tables import from_columns
from bigclf.conversion.text import pieces
from bigclf.data.dataset import MANIFEST
from bigclf.errors import DataError, RunError


class Killed(BaseException):
    """What stands for SIGKILL: nobody catches it, and nothing is cleared up."""


def text_of(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_rows):
        columns = np.sort(rng.choice(200, rng.integers(0, 12), replace=False)) + 1
        rows.append(f"{rng.integers(3)} " + " ".join(f"{c}:{rng.integers(1, 5)}" for c in columns))
    return "\n".join(rows).encode() + b"\n"


def content(directory):
    """Bytes of all files by name; of the manifest, which holds times of change, the chunk table's digest."""
    found = {name: (directory / name).read_bytes() for name in sorted(os.listdir(directory))}
    return {**found, MANIFEST: json.loads(found[MANIFEST])["chunks"]}


OPTIONS = dict(workers=1, shard_nnz=3000, chunk_nnz=500, on_bad_rows="quarantine", max_bad_fraction=0.1)


HEADER = b"label,price,shop,said\n"
SPEC = {
    "label": "label",
    "features": [
        {"numeric": "price", "scale": "standard"}, {"numeric": "price", "scale": "bins", "bins": 5},
        {"categorical": "shop"}, {"text": "said"},
    ],
}  # fmt: skip


def table_of(n_rows, seed=0, header=HEADER):
    rng = np.random.default_rng(seed)
    rows = [
        b"%s,%.3f,shop%d,%s" % (rng.choice([b"yes", b"no"]), rng.normal(), rng.integers(9),
                                b" ".join(b"w%d" % w for w in rng.integers(0, 300, rng.integers(0, 6))))
        for _ in range(n_rows)
    ]  # fmt: skip
    return header + b"\n".join(rows) + b"\n"


@pytest.fixture
def tables(tmp_path, sources):
    """The same of raw columns: a source that is cut by its bytes, one that is decompressed, and a bad row."""
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "a.csv").write_bytes(table_of(300))
    (folder / "b.csv.gz").write_bytes(gzip.compress(table_of(300, 1) + b"yes,much,shop1,\n" + table_of(50, 2, b"")))
    return folder


@pytest.fixture
def sources(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE", 4096)
    monkeypatch.setattr(pieces, "BLOCK", 1500)
    monkeypatch.setattr(converter, "PARSED_PIECE", 2**30)  # a piece a task
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "a.svm").write_bytes(text_of(400))
    (folder / "b.svm.gz").write_bytes(gzip.compress(text_of(400, 1) + b"bad\n" + text_of(100, 2)))
    (folder / "c.svm").write_bytes(text_of(300, 3))
    return folder


def killed_at(monkeypatch, module, name, count, after):
    """Make the call number ``count`` of ``name`` the last thing that the process does."""
    real, calls = getattr(module, name), []

    def fatal(*args, **keywords):
        calls.append(None)
        if len(calls) == count and not after:
            raise Killed
        result = real(*args, **keywords)
        if len(calls) == count:
            raise Killed
        return result

    monkeypatch.setattr(module, name, fatal)
    monkeypatch.setattr(Workplace, "leave", lambda self, finished: files.unlock(self._lock))


MOMENTS = [
    (pieces, "run_task", 1, True), (pieces, "run_task", 9, False), (pieces, "run_task", 11, True),
    (Workplace, "note", 5, True), (Workplace, "note_end", 2, True), (Workplace, "note_written", 1, True),
    (shuffle, "write_run", 3, False), (shuffle, "write_shard", 1, False), (shuffle, "write_shard", 3, True),
    (files, "publish_directory", 1, False), (files, "publish_directory", 1, True),
]  # fmt: skip


@pytest.mark.parametrize(("module", "name", "count", "after"), [
    moment if i in (1, 4, 8, 10) else pytest.param(*moment, marks=pytest.mark.long) for i, moment in enumerate(MOMENTS)
])  # fmt: skip
def test_killed_and_run_again_gives_the_same_shards(tmp_path, sources, monkeypatch, module, name, count, after):
    once = bigclf.convert(sources, tmp_path / "once", **OPTIONS)
    with monkeypatch.context() as patch:
        killed_at(patch, module, name, count, after)
        with pytest.raises(Killed):
            bigclf.convert(sources, tmp_path / "again", **OPTIONS)
    published = name == "publish_directory" and after
    assert (tmp_path / "again").exists() == published
    if published:
        assert bigclf.convert(sources, tmp_path / "again", **OPTIONS).report["rows"] == once.n_rows
        with pytest.raises(
            RunError, match="exists and is not empty; .* add overwrite=True to replace it$"
        ):  # another one
            bigclf.convert(sources, tmp_path / "again", **OPTIONS)
    else:
        ds = bigclf.convert(sources, tmp_path / "again", **{**OPTIONS, "memory": "2GB"})
        kept = (module, name) not in [(pieces, "run_task"), (shuffle, "write_run")] or count > 1
        assert (ds.report["bytes_kept"] > 0) == kept
    assert content(tmp_path / "again") == content(tmp_path / "once")
    assert sorted(os.listdir(tmp_path)) == ["again", "once", "rows"]


def test_what_was_finished_is_not_done_again(tmp_path, sources, monkeypatch):
    with monkeypatch.context() as patch:
        killed_at(patch, shuffle, "write_shard", 3, True)
        with pytest.raises(Killed):
            bigclf.convert(sources, tmp_path / "s", **OPTIONS)
    monkeypatch.setattr(pieces, "run_task", lambda job, task: 1 / 0)
    written = []
    real = shuffle.write_shard
    monkeypatch.setattr(shuffle, "write_shard", lambda plan, number: written.append(number) or real(plan, number))
    ds = bigclf.convert(sources, tmp_path / "s", **OPTIONS)
    assert written == list(range(3, len(ds.files))) and ds.report["bytes_kept"] == ds.report["bytes_in"]


@pytest.mark.parametrize("change", ["source", "seed", "damage", "torn journal", "option"])
def test_what_cannot_be_trusted_is_done_again(tmp_path, sources, monkeypatch, change):
    with monkeypatch.context() as patch:
        killed_at(patch, shuffle, "write_shard", 1, False)
        with pytest.raises(Killed):
            bigclf.convert(sources, tmp_path / "s", **OPTIONS)
    options = dict(OPTIONS)
    place = tmp_path / ".s.converting"
    if change == "source":
        (sources / "a.svm").write_bytes(text_of(399))
    elif change == "seed":
        options["seed"] = 1
    elif change == "option":
        options["chunk_nnz"] = 400
    elif change == "torn journal":
        text = (place / "journal.jsonl").read_bytes()
        (place / "journal.jsonl").write_bytes(text[: len(text) // 2])
    else:
        for run in list(place.glob("runs-*/*.run"))[::3]:
            run.write_bytes(run.read_bytes()[:-1] + b"?")
    ds = bigclf.convert(sources, tmp_path / "s", **options)
    assert (0 < ds.report["bytes_kept"] < ds.report["bytes_in"]) == (change in ("damage", "torn journal"))
    bigclf.convert(sources, tmp_path / "once", **options)
    assert content(tmp_path / "s") == content(tmp_path / "once")


OF_TABLES = [
    (from_columns, "run_task", 1, True), (from_columns, "run_task", 5, False), (Workplace, "note", 5, True),
    (from_columns, "write_tallies", 4, True), (Workplace, "note_written", 1, True), (shuffle, "write_shard", 2, True),
    (files, "publish_directory", 1, False),
]  # fmt: skip


@pytest.mark.parametrize(("module", "name", "count", "after"), [
    moment if i in (3, 5) else pytest.param(*moment, marks=pytest.mark.long) for i, moment in enumerate(OF_TABLES)
])  # fmt: skip
def test_raw_columns_killed_and_run_again_give_the_same_shards(
    tmp_path, tables, monkeypatch, module, name, count, after
):
    options = {**OPTIONS, "features": SPEC, "format": "csv"}
    once = bigclf.convert(tables, tmp_path / "once", **options)
    with monkeypatch.context() as patch:
        killed_at(patch, module, name, count, after)
        with pytest.raises(Killed):
            bigclf.convert(tables, tmp_path / "again", **options)
    ds = bigclf.convert(tables, tmp_path / "again", **{**options, "memory": "2GB"})
    assert ds.report["bytes_kept"] > 0 or (name, count) == ("run_task", 1)
    timed = ("seconds", "bytes_kept")
    assert all(ds.report[told] == once.report[told] for told in once.report if told not in timed)
    assert content(tmp_path / "again") == content(tmp_path / "once")
    assert sorted(os.listdir(tmp_path)) == ["again", "once", "rows", "tables"]


@pytest.mark.parametrize("damage", ["tallies", *(pytest.param(d, marks=pytest.mark.long) for d in ("spec", "row"))])
def test_what_raw_columns_told_is_not_trusted_blindly(tmp_path, tables, monkeypatch, damage):
    options = {**OPTIONS, "features": SPEC, "format": "csv"}
    with monkeypatch.context() as patch:
        killed_at(patch, shuffle, "write_shard", 1, False)
        with pytest.raises(Killed):
            bigclf.convert(tables, tmp_path / "s", **options)
    if damage == "tallies":
        for path in list((tmp_path / ".s.converting").glob("kept-*/*.npz"))[::2]:
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    elif damage == "spec":
        options["features"] = {**SPEC, "features": SPEC["features"][1:]}
    else:
        (tables / "a.csv").write_bytes(table_of(299))
    ds = bigclf.convert(tables, tmp_path / "s", **options)
    assert (0 < ds.report["bytes_kept"] < ds.report["bytes_in"]) == (damage == "tallies")
    bigclf.convert(tables, tmp_path / "once", **options)
    assert content(tmp_path / "s") == content(tmp_path / "once")


def test_documents_go_on_too(tmp_path, sources, monkeypatch):
    """Of a directory of documents, whose texts only the first process has."""
    for number in range(60):
        (tmp_path / "texts" / f"c{number % 3}").mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / f"c{number % 3}" / f"{number}.txt").write_text(f"word{number % 7} " * 40)
    options = dict(format="text", workers=1, chunk_nnz=20)
    bigclf.convert(tmp_path / "texts", tmp_path / "once", **options)
    with monkeypatch.context() as patch:
        killed_at(patch, shuffle, "write_shard", 1, True)
        with pytest.raises(Killed):
            bigclf.convert(tmp_path / "texts", tmp_path / "again", **options)
    for run in list((tmp_path / ".again.converting").glob("runs-*/*.run"))[::3]:
        run.write_bytes(b"?")
    assert bigclf.convert(tmp_path / "texts", tmp_path / "again", **options).n_rows == 60
    assert content(tmp_path / "again") == content(tmp_path / "once")


def test_one_process_at_a_time(tmp_path, sources):
    work = Workplace(tmp_path / "s", {"some": "thing"})
    with pytest.raises(RunError, match="another process is converting"):
        bigclf.convert(sources, tmp_path / "s", **OPTIONS)
    work.leave(finished=True)
    assert bigclf.convert(sources, tmp_path / "s", **OPTIONS).n_rows == 1200


def test_what_killed_ones_left_is_forgotten(tmp_path):
    """Of those at work nothing is touched, and one may end meanwhile."""
    places = [Workplace(tmp_path / name, {"name": name}) for name in "abcd"]
    for k, place in enumerate(places[:3]):
        files.unlock(place._lock)
        os.utime(place.path, ns=(k * 10**9, k * 10**9))
    outs = [str(tmp_path / name) for name in "abcd"]
    assert resuming.left_in(tmp_path) == outs
    for out in (*outs[:2], outs[3], str(tmp_path / "e")):
        resuming.forget(out)
    assert sorted(os.listdir(tmp_path)) == [".c.converting", ".d.converting"]
    places[3].leave(finished=True)


def test_bad_rows_leave_nothing_behind(tmp_path, sources):
    with pytest.raises(DataError):
        bigclf.convert(sources, tmp_path / "s", workers=1)
    assert os.listdir(tmp_path) == ["rows"]


def test_replacing_is_taken_up_again(tmp_path, sources, monkeypatch):
    """Killed between the two renames that put new shards in the place of old ones."""
    bigclf.convert(sources, tmp_path / "s", **OPTIONS)
    with monkeypatch.context() as patch:
        killed_at(patch, files.os, "rename", 1, True)
        with pytest.raises(Killed):
            bigclf.convert(sources, tmp_path / "s", **{**OPTIONS, "seed": 1}, overwrite=True)
    ds = bigclf.convert(sources, tmp_path / "s", **{**OPTIONS, "seed": 1})
    assert ds.report["bytes_kept"] == ds.report["bytes_in"] and sorted(os.listdir(tmp_path)) == ["rows", "s"]


def sparse_rows(folder):
    for number in range(3):
        (folder / f"{number}.svm").write_bytes(text_of(2000, number) * 80)
    (folder / "3.svm.gz").write_bytes(gzip.compress(text_of(2000, 9) * 80, 1))
    return ["--memory", "600MB"]


def raw_columns(folder):
    for number in range(3):
        (folder / f"{number}.csv").write_bytes(table_of(2000, number) + table_of(2000, number + 3, header=b"") * 60)
    (folder / "3.csv.gz").write_bytes(gzip.compress(table_of(2000, 9) + table_of(2000, 8, header=b"") * 60, 1))
    (folder.parent / "spec.yaml").write_text(json.dumps(SPEC))
    return ["--memory", "600MB", "--format", "csv", "--spec", str(folder.parent / "spec.yaml")]


@pytest.mark.chaos
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", [sparse_rows, raw_columns])
def test_killed_at_ten_random_moments(tmp_path, kind):
    """With processes of its own, which may outlive it for a moment; other moments in every run."""
    (tmp_path / "rows").mkdir()
    options = kind(tmp_path / "rows")
    there = [*sorted(os.listdir(tmp_path)), "again", "once", "warm"]
    command = [sys.executable, "-m", "bigclf", "convert", str(tmp_path / "rows"), *options, "--workers", "2"]
    quiet = dict(env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for name in ("warm", "once"):
        started = time.monotonic()
        subprocess.run([*command, str(tmp_path / name)], check=True, **quiet)
        whole = time.monotonic() - started
    seed = random.SystemRandom().randrange(10**6)
    print("seed", seed)
    draw = random.Random(seed)
    kills = 0
    while kills < 10:
        run = subprocess.Popen([*command, str(tmp_path / "again")], start_new_session=True, **quiet)
        try:
            run.wait(draw.uniform(0.2, 0.9) * whole)
        except subprocess.TimeoutExpired:
            os.kill(run.pid, signal.SIGKILL) if draw.random() < 0.7 else os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            kills += 1
        if (tmp_path / "again").exists():
            assert content(tmp_path / "again") == content(tmp_path / "once")
            subprocess.run(["rm", "-r", str(tmp_path / "again")], check=True)
    subprocess.run([*command, str(tmp_path / "again")], check=True, **quiet)
    assert content(tmp_path / "again") == content(tmp_path / "once")
    assert sorted(os.listdir(tmp_path)) == sorted(there)


def test_predictions_on_a_full_disk_go_on(tmp_path, sources, monkeypatch):
    """No part of a file is left, what is finished stays, the rerun writes the rest."""
    ds = bigclf.convert(sources, tmp_path / "s", **OPTIONS)
    model = bigclf.fit(ds, algo="pa1", epochs=1, progress=False)
    real, calls = files.os.replace, []

    def full(*args):
        calls.extend(args[1:] if str(args[1]).startswith(str(tmp_path / "out")) else ())
        if len(calls) == 3 and str(args[1]).startswith(str(tmp_path / "out")):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            bigclf.predict(model, ds, str(tmp_path / "out"))
    assert sorted(os.listdir(tmp_path / "out")) == ["part-00000.parquet", "part-00001.parquet"]
    again = bigclf.predict(model, ds, str(tmp_path / "out"))
    assert again["kept"] == 2 and again["written"] == len(ds.files) - 2
