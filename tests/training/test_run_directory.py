"""The run directory itself: what it refuses, what it keeps of checkpoints and history, and what an older file says."""

import errno
import hashlib
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from making import environment

import bigclf
from bigclf import files
from bigclf.errors import ModelFormatError, RunError
from bigclf.stream.row_files import FiledArray
from bigclf.training.records import run_directory as module
from bigclf.training.records.run_directory import (
    Checkpoint,
    RunDirectory,
    groups_before,
    load_arrays,
    load_rows,
    publish_arrays,
    run_of,
)
from bigclf.training.records.sameness import differences

IDENTITY = {"algo": "dcd", "tol": 0.1, "data": {"rows": 3}}


def asked(**changes):
    return {"version": 1, "identity": {**IDENTITY, **changes}, "plan": {"groups": [[0, 1], [1, 2]]}}


@pytest.fixture
def directory(tmp_path):
    made = RunDirectory(tmp_path)
    made.acquire()
    yield made
    made.release()


def checkpoint(value, groups=1):
    rows = [{"0.0.rows.alpha": np.full(3, value + group)} for group in range(groups)]
    return Checkpoint({"weights": np.full(2, value)}, rows, {"value": value})


# What was asked


def test_a_run_begins_once_and_goes_on_only_when_asked_to(tmp_path):
    directory = RunDirectory(tmp_path)
    assert directory.begin(asked(), resume=True) is None and directory.run is not None
    again = RunDirectory(tmp_path)
    with pytest.raises(RunError, match="holds a run already"):
        again.begin(asked(), resume=False)
    assert again.begin(asked(), resume=True) == asked()
    assert again.run == directory.run == run_of(tmp_path)


@pytest.mark.parametrize(("tol", "may_loosen", "accepted"),
                         [(0.1, False, True), (0.2, False, False), (0.2, True, True), (0.05, True, False),
                          (None, True, False)])  # fmt: skip
def test_only_a_tolerance_that_may_grow_may_differ(tmp_path, tol, may_loosen, accepted):
    RunDirectory(tmp_path).begin(asked(), resume=False)
    (tmp_path / "state-00000001-000000.safetensors").touch()  # it came to a checkpoint
    again = RunDirectory(tmp_path)
    more = {"may_loosen": True} if may_loosen else {}  # without it nothing may differ
    if accepted:
        assert again.begin(asked(tol=tol), resume=True, **more) == asked()
        assert again.run == run_of(tmp_path)
    else:
        with pytest.raises(RunError, match="tol: 0.1 -> ") as refused:
            again.begin(asked(tol=tol), resume=True, **more)
        assert ("tol may grow" in str(refused.value)) == may_loosen


def test_a_run_of_a_newer_version_is_refused_and_one_of_this_is_not(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({**asked(), "version": 2}))
    with pytest.raises(RunError, match="newer bigclf"):
        RunDirectory(tmp_path).begin(asked(), resume=True)
    (tmp_path / "run.json").write_text(json.dumps({**asked(), "version": 1}))
    assert RunDirectory(tmp_path).begin(asked(), resume=True)["version"] == 1


def test_a_run_is_known_by_a_digest_of_its_identity(tmp_path):
    RunDirectory(tmp_path).begin(asked(), resume=False)
    text = json.dumps(IDENTITY, sort_keys=True).encode()
    assert run_of(tmp_path) == hashlib.blake2b(text, digest_size=16).hexdigest()
    assert groups_before(tmp_path) == 2
    assert run_of(tmp_path / "none") is None and groups_before(tmp_path / "none") is None


def test_differences_are_named_leaf_by_leaf():
    before = {"a": 1, "b": {"c": 2, "d": "x" * 100}, "same": [1]}
    now = {"a": 1, "b": {"c": 3, "d": "y"}, "same": [1], "new": None, "more": 0}
    first, second, third = differences(before, now)
    assert first == "b.c: 2 -> 3"
    assert second == f'b.d: "{"x" * 56}... -> "y"'
    assert third == "more: null -> 0"


def test_a_text_of_60_characters_is_shown_whole():
    assert differences("x" * 58, 0, "n") == [f'n: "{"x" * 58}" -> 0']
    assert differences("x" * 59, 0, "n") == [f'n: "{"x" * 56}... -> 0']


# History


def test_records_are_kept_at_most_ten_a_second_but_for_those_that_matter(directory, monkeypatch):
    seconds = iter([10.0, 10.05, 10.06, 10.07, 10.08, 10.15, 10.17, 10.3])
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    events, validation = [{"what": "e"}], {"error": 0.5}
    given = [{"epoch": 0}, {"epoch": 1}, {"epoch": 2, "events": events}, {"epoch": 3, "validation": validation}]
    for record in given:
        directory.record(record)
    directory.record({"epoch": 4}, now=True)
    for epoch in (5, 6, 7):
        directory.record({"epoch": epoch})
    assert [record["epoch"] for record in directory.history()] == [0, 2, 3, 4, 7]


def test_the_same_record_is_written_once(directory):
    record = {"epoch": 1}
    directory.record(record)
    directory.record(record, now=True)
    assert directory.history() == [{"epoch": 1}]


def test_the_last_record_before_a_checkpoint_is_kept(directory, monkeypatch):
    """A run that is killed after it and goes on from there has no other: its history ended before its last gap."""
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 10.0))
    for epoch in (1, 2, 3):
        directory.record({"epoch": epoch})
    for _ in range(2):
        directory.save(checkpoint(1.0), 4, 0)
    directory.record({"epoch": 4})
    assert [record["epoch"] for record in directory.history()] == [1, 3]


def test_the_history_is_cut_in_the_file_too(directory, tmp_path):
    assert directory.history(3) == []
    lines = [{"epoch": 1}, {"of": "no epoch"}, {"epoch": 2}, {"epoch": 3}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "history.jsonl").write_text(text + '{"epoch": 1, "cut')
    assert directory.history() == lines
    assert directory.history(2) == lines[:3]
    assert [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()] == lines[:3]


# Checkpoints


def names(path, start):
    return sorted(name for name in os.listdir(path) if name.startswith(start))


def test_the_two_newest_checkpoints_stay_with_their_rows_and_nothing_else(directory, tmp_path):
    directory.begin(asked(), resume=False)
    (tmp_path / ".state.tmp-1").write_bytes(b"of a writer that was killed")
    (tmp_path / ".hidden").write_bytes(b"not ours")
    (tmp_path / "rows-00000-99999999-000000.safetensors").write_bytes(b"no checkpoint names it")
    for epoch in range(4):
        assert directory.save(checkpoint(float(epoch), 2), epoch, 7)
    assert names(tmp_path, "state-") == [f"state-{e:08d}-000007.safetensors" for e in (2, 3)]
    assert names(tmp_path, "rows-") == [f"rows-{g:05d}-{e:08d}-000007.safetensors" for g in (0, 1) for e in (2, 3)]
    assert names(tmp_path, ".") == [".hidden"]
    found = RunDirectory(tmp_path).newest(2)
    assert found.facts["value"] == 3 and (found.facts["epoch"], found.facts["segment"]) == (3, 7)
    np.testing.assert_array_equal(found.arrays["weights"], [3.0, 3.0])
    for group in range(2):
        np.testing.assert_array_equal(found.rows[group]["0.0.rows.alpha"], np.full(3, 3.0 + group))


def test_rows_stay_while_a_checkpoint_or_the_run_needs_them(directory, tmp_path):
    directory.save(checkpoint(1.0), 1, 0)
    (named,) = names(tmp_path, "rows-")
    other = "rows-00000-00000009-000000.safetensors"
    (tmp_path / other).write_bytes(b"the run goes on from it")
    directory.discard_rows(named)
    directory.prune(2, {other})
    assert names(tmp_path, "rows-") == [named, other]
    directory.discard_rows(other)
    assert names(tmp_path, "rows-") == [named]
    fresh = RunDirectory(tmp_path)  # which looks the names up in the checkpoints
    fresh.prune(2)
    assert names(tmp_path, "rows-") == [named]
    fresh.prune(0)
    assert names(tmp_path, "rows-") == names(tmp_path, "state-") == []


def test_a_failed_write_is_counted_and_costs_the_older_of_two_checkpoints(directory, tmp_path, monkeypatch):
    for epoch in (1, 2):
        directory.save(checkpoint(1.0), epoch, 0)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "publishing", full)
    assert not directory.save(checkpoint(2.0), 3, 0) and directory.failed_writes == 2
    assert names(tmp_path, "state-") == ["state-00000002-000000.safetensors"]
    monkeypatch.setattr(files, "append_line", full)
    directory.record({"epoch": 3}, now=True)
    assert directory.failed_writes == 3


def test_a_record_that_was_not_written_is_written_before_the_next_checkpoint(directory, tmp_path, monkeypatch):
    def fails(*_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(files, "append_line", fails)
        directory.record({"epoch": 1}, now=True)
    assert directory.failed_writes == 1 and not (tmp_path / "history.jsonl").exists()
    directory.save(checkpoint(1.0), 1, 0)
    assert (tmp_path / "history.jsonl").read_text() == '{"epoch": 1}\n'


def test_a_checkpoint_of_another_run_is_an_error_and_a_damaged_one_is_passed_over(directory, tmp_path):
    directory.begin(asked(), resume=False)
    for epoch in (1, 2):
        directory.save(checkpoint(float(epoch)), epoch, 0)
    (tmp_path / "run.json").unlink()
    other = RunDirectory(tmp_path)
    assert other.newest(1).facts["value"] == 2  # it has not begun, and takes what there is
    other.begin(asked(algo="pa1"), resume=False)
    with pytest.raises(RunError, match="another run"):
        other.newest(1)
    (tmp_path / "state-00000002-000000.safetensors").write_bytes(b"damaged")
    assert directory.newest(1).facts["value"] == 1


def test_arrays_come_back_as_they_were_with_the_digest_of_their_bytes(tmp_path):
    path, arrays = str(tmp_path / "a.safetensors"), {"b": np.arange(4.0), "a": np.arange(6).reshape(2, 3)}
    digest = publish_arrays(path, arrays, {"fact": 1})
    found, facts, again = load_arrays(path)
    assert facts == {"fact": 1} and again == digest and len(digest) == 32
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype
    sums = {n: hashlib.blake2b(a.tobytes(), digest_size=16).hexdigest() for n, a in arrays.items()}
    assert digest == hashlib.blake2b(json.dumps(sorted(sums.items())).encode(), digest_size=16).hexdigest()


@pytest.mark.parametrize("filed", [False, True])
def test_rows_are_those_that_were_written_and_go_as_far_as_their_steps(tmp_path, filed):
    path = str(tmp_path / "rows.safetensors")
    arrays = {"0.0.rows.alpha": np.arange(4.0), "0.0.before.rows.alpha": np.ones(4), "1.0.rows.alpha": np.full(4, 5.0),
              "0.0.shared.steps": np.arange(3)}  # fmt: skip
    digest = publish_arrays(path, arrays, {})
    held = load_rows(path, digest, (0.25, 1.0), filed)
    assert set(held) == {"0.0.rows.alpha", "1.0.rows.alpha", "0.0.shared.steps"}
    if filed:
        assert isinstance(held["1.0.rows.alpha"], FiledArray) and not isinstance(held["0.0.shared.steps"], FiledArray)
    else:
        np.testing.assert_array_equal(held["0.0.rows.alpha"], 1 + 0.25 * (np.arange(4.0) - 1))
        np.testing.assert_array_equal(held["1.0.rows.alpha"], np.full(4, 5.0))
    np.testing.assert_array_equal(held["0.0.shared.steps"], np.arange(3))
    with pytest.raises(ModelFormatError, match="not the one that was written"):
        load_rows(path, "0" * 32, (), filed)


def test_a_file_of_a_newer_version_is_refused(tmp_path, monkeypatch):
    path = str(tmp_path / "a.safetensors")
    with monkeypatch.context() as newer:
        newer.setattr(module, "VERSION", 2)
        publish_arrays(path, {"a": np.zeros(1)}, {})
    with pytest.raises(RunError, match="newer bigclf"):
        load_arrays(path)


@pytest.fixture
def small_disk(tmp_path):
    """A directory on a file system of 128 kB."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", place], check=True)
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.root
def test_the_model_is_written_where_there_is_room_though_the_disk_of_the_run_is_full(small_disk, tmp_path):
    text = "".join(f"{1 - 2 * (k % 2)} {k + 1}:1 {100_000 + k}:1\n" for k in range(20))
    (tmp_path / "rows.svm").write_text(text)
    words = ["fit", tmp_path / "rows.svm", "-o", tmp_path / "m", "--run-dir", small_disk / "run", "--epochs", "2"]
    done = subprocess.run([sys.executable, "-m", "bigclf", *map(str, words)], env=environment(), text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode in (0, 4), done.stderr
    assert bigclf.load(tmp_path / "m").n_features == 100_019
    assert "No space left on device" in done.stderr and "SafetensorError" not in done.stderr
    assert not (small_disk / "run" / "model.bigclf").exists()


def test_a_run_of_another_plan_alone_is_told_why_and_what_to_do_and_stays(tmp_path):
    RunDirectory(tmp_path).begin(asked(plan={"resident": False}), resume=False)
    (tmp_path / "state-00000001-000000.safetensors").touch()  # it came to a checkpoint
    before = (tmp_path / "run.json").read_bytes()
    with pytest.raises(RunError, match=r"differs in: the plan; .* another version .* start over \(--overwrite"):
        RunDirectory(tmp_path).begin(asked(plan={"resident": True}), resume=True)
    assert (tmp_path / "run.json").read_bytes() == before


@pytest.mark.parametrize(("name", "wrong"), [
    ("it", []), ("version", "x"), ("version", None), ("identity", 3), ("plan", []), ("limits", "x"),
])  # fmt: skip
def test_a_wrong_field_of_a_run_is_named(tmp_path, name, wrong):
    RunDirectory(tmp_path).begin(asked(), resume=False)
    held = wrong if name == "it" else asked() | {name: wrong}
    (tmp_path / "run.json").write_text(json.dumps(held))
    with pytest.raises(RunError, match=rf"run\.json is damaged: .*{name}.* must be a"):
        RunDirectory(tmp_path).begin(asked(), resume=True)
    assert json.loads((tmp_path / "run.json").read_text()) == held


@pytest.mark.parametrize(("name", "wrong"), [
    ("rows_files", []), ("rows_files", {"rows": "x"}), ("rows_files", {"rows-00000-1-1.safetensors": 3}),
    ("rows_steps", 3), ("rows_steps", [3]), ("run", 3), ("epoch", "x"), ("segment", None),
])  # fmt: skip
def test_a_checkpoint_with_a_wrong_field_is_passed_over(directory, caplog, name, wrong):
    directory.save(checkpoint(1.0), 1, 0)
    directory.save(checkpoint(2.0), 2, 0)
    path = directory.file(directory.checkpoints()[0])
    arrays, facts, _ = load_arrays(path)
    publish_arrays(path, arrays, facts | {name: wrong})
    assert directory.newest(1).facts["value"] == 1.0 and f"field 'facts.{name}' must be" in caplog.text
