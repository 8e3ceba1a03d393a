"""Paths: what is found, what is published, what is known again."""

import errno
import os
import resource
import signal
import sys
import threading

import numpy as np
import pytest

from bigclf import files
from bigclf.errors import DataError, RunError


@pytest.fixture
def folder(tmp_path):
    for name in ("b.parquet", "a.parquet", "_SUCCESS", ".a.crc"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "sub.parquet").mkdir()
    return tmp_path


@pytest.mark.parametrize("form", ["directory", "glob", "pathlib", "list"])
def test_expand_ignores_hidden_files_and_directories(folder, form):
    """Spark's _SUCCESS and .crc files and directories matched by a glob are no data."""
    data = {
        "directory": str(folder),
        "glob": str(folder / "*"),
        "pathlib": folder,
        "list": [folder / "a.parquet", folder / "b.*"],
    }[form]
    assert files.expand(data) == [str(folder / "a.parquet"), str(folder / "b.parquet")]


@pytest.mark.parametrize("missing", ["nowhere/*.parquet", "none*.parquet"])
def test_expand_names_the_nearest_directory(tmp_path, missing):
    with pytest.raises(DataError, match="no data file matches") as caught:
        files.expand(str(tmp_path / missing))
    assert repr(str(tmp_path)) in str(caught.value)


def test_a_directory_without_data_files_says_what_it_holds(tmp_path):
    (tmp_path / "out" / "train").mkdir(parents=True)

    def said(name):
        with pytest.raises(DataError, match="holds no data files") as caught:
            files.expand(str(tmp_path / name))
        return str(caught.value)

    assert said("out/train").endswith("train' holds no data files")
    assert said("out").endswith(f"there are directories in it: name one of them, such as '{tmp_path}/out/train'")
    (tmp_path / "out" / "_SUCCESS").touch()
    assert said("out").endswith("only such as are ignored, as their names begin with _ or .: '_SUCCESS'")


@pytest.mark.parametrize("name", ["with space", "100%", "a*b", "new\nline", "[x]", os.fsdecode(b"latin-\xe9")])
def test_expand_takes_any_file_name(tmp_path, name):
    path = os.path.join(tmp_path, name)
    with open(path, "wb") as file:
        file.write(b"x")
    assert files.expand(path) == [path]
    assert files.expand(tmp_path) == [path]


def test_symbolic_links_in_a_circle_match_nothing(tmp_path):
    os.symlink(tmp_path / "b", tmp_path / "a")
    os.symlink(tmp_path / "a", tmp_path / "b")
    with pytest.raises(DataError, match="no data file"):
        files.expand(tmp_path / "*")


def test_publishing_leaves_all_or_nothing(tmp_path):
    path = tmp_path / "x"
    files.publish_text(path, "old")
    with pytest.raises(KeyError), files.publishing(path) as beside:
        with open(beside, "w") as file:
            file.write("new, half")
        raise KeyError
    assert path.read_text() == "old"
    files.publish_bytes(path, b"new")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["x"]


def test_publish_directory_replaces_a_full_one(tmp_path):
    for name in ("new", "out"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    files.publish_directory(tmp_path / "new", tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"]
    assert os.listdir(tmp_path / "out") == ["new"]


def test_has_changed_says_what(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    known = files.Fingerprint(*files.status(path), footer="")
    assert files.has_changed(path, known) is None
    os.utime(path, ns=(1, 1))
    assert "written" in files.has_changed(path, known)
    path.write_bytes(b"1234")
    assert "5 bytes and now has 4" in files.has_changed(path, known)
    path.unlink()
    assert "gone" in files.has_changed(path, known)


def test_what_killed_processes_were_writing_goes_and_nothing_else(tmp_path):
    gone, living = "2999999999", os.getpid()  # no process has such a number
    left = [f".m.bigclf.tmp-{gone}-0123abcd", f".m.bigclf.tmp-{living}-0123abcd", f".lease.tmp-{gone}-0123abcd",
            f"..lease.tmp-{gone}-0123abcd"]  # fmt: skip
    kept = [f".lease.tmp-{living}-0123abcd", f"m.tmp-{gone}-0123abcd", f".m.tmp-{gone}", ".mine", "lease", "m.bigclf"]
    for name in (*left, *kept):
        (tmp_path / name).write_text("")
    (tmp_path / f".s.tmp-{gone}-0123abcd" / "inner").mkdir(parents=True)
    files.clear_left(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(kept)
    files.clear_left(tmp_path / "missing")


def test_a_directory_whose_removal_was_killed_comes_back_whole_or_goes(tmp_path):
    run, gone = tmp_path / "m.run", tmp_path / ".m.run.removed"
    gone.mkdir()
    (gone / "run.json").write_text("")
    files.put_back(run, if_holds="run.json")
    assert [path.name for path in run.iterdir()] == ["run.json"] and not gone.exists()
    gone.mkdir()
    (gone / "run.json").write_text("")
    files.put_back(run, if_holds="run.json")  # one that was begun since then stays
    assert run.exists() and not gone.exists()
    run.rename(gone)
    (gone / "run.json").unlink()
    files.put_back(run, if_holds="run.json")
    assert list(tmp_path.iterdir()) == []
    run.mkdir()
    gone.mkdir()
    files.remove_at_once(run)
    assert list(tmp_path.iterdir()) == []


def test_what_a_removal_keeps_to_the_last_comes_back_of_one_that_was_killed(tmp_path, monkeypatch):
    """After ``run.json`` had gone nothing told that there was a run to go on with."""
    run, removed = tmp_path / "m.run", []

    def killed(path):
        if os.path.exists(path):
            removed.append(path)
            for name in os.listdir(path):
                os.unlink(os.path.join(path, name))
            raise KeyboardInterrupt

    run.mkdir()
    for name in ("run.json", "fit_wrote.json", "state"):
        (run / name).write_text(f"{name}: text")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(files, "remove_tree", killed)
        files.remove_at_once(run, ("replaces.json", "fit_wrote.json", "run.json"))
    assert removed and not run.exists()
    files.put_back(run, if_holds="run.json")
    assert {path.name: path.read_text() for path in run.iterdir()} == {
        name: f"{name}: text" for name in ("run.json", "fit_wrote.json")
    }
    assert os.listdir(tmp_path) == ["m.run"]


def test_who_takes_up_a_directory_waits_for_its_removal_under_way(tmp_path, monkeypatch):
    """It was renamed back, and emptied under the process that went on in it."""
    run, taken, removed = tmp_path / "m.run", [], files.remove_tree
    run.mkdir()
    (run / "run.json").write_text("")

    def slowly(path):
        if os.path.exists(path) and not taken:
            taken.append(threading.Thread(target=files.put_back, args=(run, "run.json")))
            taken[0].start()
            taken[0].join(0.5)
        removed(path)

    monkeypatch.setattr(files, "remove_tree", slowly)
    files.remove_at_once(run, to_the_last=["run.json"])
    taken[0].join()
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_removed_at_once_leaves_no_note(tmp_path, monkeypatch):
    (tmp_path / "m.run").mkdir()

    def refused(*_):
        raise OSError(errno.EBUSY, "a mount point")

    monkeypatch.setattr(os, "rename", refused)
    with pytest.raises(OSError, match="mount point"):
        files.remove_at_once(tmp_path / "m.run", to_the_last=["run.json"])
    assert os.listdir(tmp_path) == ["m.run"]


def test_what_is_kept_to_the_last_does_without_where_there_is_no_room(tmp_path, monkeypatch):
    run = tmp_path / "m.run"
    run.mkdir()
    (run / "run.json").write_text("")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    files.remove_at_once(run, to_the_last=["run.json"])
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_said_with_the_path(tmp_path):
    """The system names no file where a write fails."""
    with pytest.raises(OSError, match=r"No space.*m\.bigclf"), files.publishing(tmp_path / "m.bigclf") as beside:
        files.append_line(beside, "")
        raise OSError(errno.ENOSPC, "No space left on device")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("told", ["[]", "3", '"run.json"', '{"../other": "x", "..": "x", "": "x"}', '{"run.json": 3}'])
def test_what_others_wrote_there_brings_nothing_back(tmp_path, told):
    """Names led to any place."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / ".m.run.removed.json").write_text(told)
    (tmp_path / "own" / ".m.named.json").write_text(told)
    assert files.half_done([str(tmp_path / "own" / "m")]) == {}
    files.put_back(tmp_path / "own" / "m.run", if_holds="run.json")
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["own", "own/.m.named.json"]


def test_probe_writable(tmp_path):
    files.probe_writable(tmp_path)
    assert os.listdir(tmp_path) == []
    with pytest.raises(RunError, match="No such file or directory"):
        files.probe_writable(tmp_path / "missing")
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot make"):
        files.make_directory(tmp_path / "file" / "below")


def test_unlinked_file_has_no_name(tmp_path):
    descriptor = files.unlinked_file(tmp_path)
    try:
        os.pwrite(descriptor, b"abc", 0)
        files.drop_cache(descriptor, 0, 3)
        assert os.pread(descriptor, 3, 0) == b"abc"
        assert os.listdir(tmp_path) == []
    finally:
        os.close(descriptor)


def test_scratch_directory_is_on_a_disk(tmp_path, monkeypatch):
    assert files.scratch_directory(tmp_path / "mine") == str(tmp_path / "mine")
    monkeypatch.setattr(files.tempfile, "gettempdir", lambda: "/proc" if os.path.isdir("/proc") else "/tmp")
    assert os.access(files.scratch_directory(), os.W_OK)
    mounts = "disk / ext4 rw 0 0\nshm /dev/shm tmpfs rw 0 0\nodd /a\\040b ramfs rw 0 0\n"
    monkeypatch.setattr(files, "read_text", lambda path: mounts)
    assert files._in_memory("/dev/shm")
    assert files._in_memory("/dev/shm/x")
    assert files._in_memory("/a b/c")
    assert not files._in_memory("/dev/shmoo")


def test_a_line_that_cannot_be_appended_leaves_nothing_behind(tmp_path):
    path = tmp_path / "log"
    files.append_line(path, "one")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))  # room for half of it
    try:
        with pytest.raises(OSError, match="No space left"):
            files.append_line(path, "three and more")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    files.append_line(path, "two")
    assert path.read_text() == "one\ntwo\n"


def test_of_a_file_only_what_the_dead_were_writing_is_removed(tmp_path):
    mine, other = f".a.tmp-{os.getpid()}-0123abcd", ".ab.tmp-4194305-0123abcd"  # no system has that number
    for name in ("a", mine, other, ".a.tmp-4194305-0123abcd"):
        (tmp_path / name).write_text("x")
    files.clear_left_of(tmp_path / "a")
    assert sorted(os.listdir(tmp_path)) == sorted(["a", mine, other])


def test_a_tree_is_removed_surely_or_as_far_as_that_is_possible(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()

    def fails(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "rmdir", fails)
    files.remove_tree(tmp_path / "a")
    with pytest.raises(OSError, match="Input/output"):
        files.remove_tree(tmp_path / "a", surely=True)


@pytest.mark.parametrize("name", ["unlink", "rmdir"])
def test_what_the_device_once_fails_to_remove_does_not_stay(name, tmp_path, monkeypatch):
    """A lock that stayed kept the hidden directory that outputs had waited in."""
    real, failed = getattr(os, name), []

    def fails_once(path, **more):
        if not failed:
            failed.append(path)
            raise OSError(errno.EIO, "Input/output error")
        real(path, **more)

    with files.together([str(tmp_path / "a"), str(tmp_path / "b")]) as place:
        for path in place.values():
            files.publish_text(path, "x")
        monkeypatch.setattr(os, name, fails_once)
    assert failed and sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_append_line_and_sizes(tmp_path):
    path = tmp_path / "log"
    files.append_line(path, "one")
    files.append_line(path, "zwei\u00fc")
    assert files.read_text(path) == "one\nzwei\u00fc\n"
    assert files.file_size(path) == len(path.read_bytes())
    assert files.free_bytes(tmp_path / "not" / "there") > 0
    assert files.list_directory(tmp_path / "none") == []


@pytest.mark.parametrize("made", [lambda place: files.filed_array(9, np.dtype("f8"), place),
                                  lambda place: files.filed_copy(np.ones(9), place)])  # fmt: skip
def test_a_mapped_file_keeps_its_place_on_a_disk_that_copies_on_write_from_before_it_has_bytes(
    made, tmp_path, monkeypatch
):
    fcntl = pytest.importorskip("fcntl")
    asked = []

    def ioctl(descriptor, request, flags):
        asked.append((request, os.fstat(descriptor).st_size, int.from_bytes(flags[:4], sys.byteorder)))
        return (0x10).to_bytes(4, sys.byteorder) + bytes(4)

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    assert made(tmp_path).size == 9
    assert asked == [(files.GET_FLAGS, 0, 0), (files.SET_FLAGS, 0, 0x10 | files.NO_COPY_ON_WRITE)]


def test_where_the_cache_cannot_be_written_the_cache_is_to_be_another(tmp_path, monkeypatch):
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path / "cache"))
    error = OSError(errno.EROFS, "Read-only file system")
    shards = tmp_path / "cache" / "raw" / ("0" * 32)
    assert files.cannot_write(shards, error).endswith("; name another cache (BIGCLF_CACHE_DIR)")
    for place in (tmp_path / "out", tmp_path / "cache" / "out"):  # a person's own
        assert files.cannot_write(place, error).endswith("; name another directory")
