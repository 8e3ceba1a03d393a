"""Dual variables on disk: the same bits as in memory, whatever is at hand when they change, and nothing is lost."""

import dataclasses
import errno
import json
import os
import signal
import subprocess

import numpy as np
import pytest
from making import fit, interrupted_after, random_rows, run_python, shards_of

import bigclf
from bigclf import files
from bigclf.conversion.convert import write_shards
from bigclf.data.dataset import Dataset
from bigclf.errors import MemoryBudgetError, RunError
from bigclf.methods import resolve
from bigclf.stream import row_files
from bigclf.stream.row_files import FiledArray, RowStore
from bigclf.training import plan as planning
from bigclf.training.problems import make_problems
from bigclf.training.records.run_directory import load_rows, publish_arrays
from bigclf.units import parse_bytes

D, N = 60, 4000
SMALL = dict(memory="14.8MB", progress=False, C=0.1)  # the rows do not stay in memory
PLAN = planning.make_plan
SET = {"working_set": 0.05}
pytestmark = pytest.mark.filterwarnings("ignore:not converged")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    x, y = random_rows(N, D, 0.25, noise=1.0)
    return shards_of(tmp_path_factory.mktemp("rows") / "shards", x, y, chunk_nnz=3000, shard_nnz=40_000)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    x, y = random_rows(N, D, 0.25, noise=1.0, real=True)
    return shards_of(tmp_path_factory.mktemp("numbers") / "shards", x, y, real=True, chunk_nnz=3000)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Many short rows: 2.4 MB of dual variables, and what is needed beside is little."""
    rng, rows = np.random.default_rng(0), 300_000
    indices = (rng.integers(0, 500, (rows, 2)) + np.array([0, 500])).astype(np.int32)
    labels = (rng.standard_normal(1000)[indices].sum(axis=1) > 0).astype(float)
    block = np.arange(rows + 1) * 2, indices.ravel(), np.ones(2 * rows, np.float32), labels
    return write_shards([block], tmp_path_factory.mktemp("short") / "shards", classes=[-1, 1], chunk_nnz=20_000)


def on_disk(*given, **named):
    """The plan that is made, but for where the dual variables are."""
    plan = PLAN(*given, **named)
    assert not plan.resident and not plan.rows_sides
    return dataclasses.replace(plan, rows_sides=2)


@pytest.fixture
def disk(monkeypatch):
    """Call it, and from then on dual variables are on disk; call it with False, and they are in memory."""

    def put(there=True):
        monkeypatch.setattr(planning, "make_plan", on_disk if there else PLAN)

    return put


def both(disk, *given, **options):
    found = [fit(*given, **SMALL | options)]
    disk()
    found.append(fit(*given, **SMALL | options))
    assert [model.result_.plan["rows_sides"] for model in found] == [0, 2]
    return found


def same(memory, there):
    assert memory.digest() == there.digest() and memory.certificate == there.certificate
    for a, b in zip(memory.result_.history, there.result_.history, strict=True):
        for name in ("loss", "updates", "rounds", "working_set_rows", "estimated_gap", "objective", "dual"):
            assert a.get(name) == b.get(name)


# The same bits


@pytest.mark.parametrize(
    "loss, given",
    [
        ("hinge", {}),
        ("hinge", SET),
        ("squared_hinge", SET),
        ("logistic", {}),
        ("epsilon_insensitive", SET),
        ("squared_epsilon_insensitive", {"working_set": 0}),
        ("hinge", {"schedule": "fixed", "memory": "13.2MB"}),
        ("squared_hinge", {"schedule": "selective", "working_set": 0.1}),
        ("hinge", {"schedule": "cached", "working_set": 0.1}),
        ("hinge", {"epochs": 1, "tol": None, "workers": bigclf.Workers(threads=1)}),
        ("hinge", {"algo": "dcd_mc", **SET}),
        ("hinge", {"algo": "dcd_mc", "working_set": 0}),
        ("hinge", {"groups": 3, "memory": "17MB", **SET}),
        ("logistic", {"groups": 3, "memory": "17MB", "segments": 2}),
        ("squared_epsilon_insensitive", {"groups": 2, "memory": "17MB", "mixing": "safe"}),
    ],
    ids=str,
)
def test_the_bits_are_those_of_arrays_in_memory(shards, numbers, loss, given, disk, as_begun_before):
    data = numbers if "epsilon" in loss else shards
    same(*both(disk, data, loss=loss, **{"tol": 0, "epochs": 4, **given}))


@pytest.mark.parametrize("runs, waiting", [(32, 0.01), (1, 0.1), (0, 0.1)])
def test_rows_that_left_the_set_are_found_again_wherever_they_wait(shards, runs, waiting, disk, monkeypatch):
    calls = {"_write_run": 0, "write_back": 0}

    def count(name):
        real = getattr(row_files.Window, name)

        def counted(self, *given, **named):
            calls[name] += 1
            return real(self, *given, **named)

        monkeypatch.setattr(row_files.Window, name, counted)

    for name in calls:
        count(name)
    monkeypatch.setattr(row_files, "RUNS", runs)
    monkeypatch.setattr(row_files, "WAITING", waiting)
    same(*both(disk, shards, tol=0, epochs=4, **SET))
    assert (calls["_write_run"] > 10) == (runs > 1) and (calls["write_back"] > 10) == (runs < 2), calls


def test_several_problems_on_two_cores_in_segments_have_the_bits_too(tmp_path, disk):
    x, scores = random_rows(1500, D, 0.25, noise=1.0, real=True)
    data = shards_of(tmp_path / "s", x, np.digitize(scores, np.quantile(scores, [0.3, 0.7])), chunk_nnz=2000)
    same(*both(disk, data, tol=0.05, epochs=8, segments=3, workers=bigclf.Workers(threads=2), memory="16MB", **SET))


def test_a_sweep_measures_the_same(shards, disk):
    options = dict(grid={"C": [0.01, 0.1]}, folds=2, tol=0.05, memory="17MB", progress=False)
    memory = bigclf.sweep(shards, **options)
    disk()
    there = bigclf.sweep(shards, **options)
    assert there.plan["rows_sides"] and not memory.plan["rows_sides"]
    assert there.certificates == memory.certificates and there.best_params_ == memory.best_params_
    assert [row["folds"] for row in there.table] == [row["folds"] for row in memory.table]
    assert there.best_model.certificate["gap"] <= 0.05


# The plan


def plan_of(source, memory, groups=1, **settings):
    problems = make_problems(np.arange(2), np.ones(2), resolve("dcd", None, None, None, settings, groups=groups))
    return PLAN(source, problems, memory=memory, dtype="float64", seed=0, groups=groups, threads=2, in_memory=False,
                reads=9)  # fmt: skip


def test_they_go_to_disk_where_memory_has_no_room_and_the_plan_says_so(short, tmp_path):
    from click.testing import CliRunner

    from bigclf.cli import main

    with pytest.raises(MemoryBudgetError, match="would do"):
        plan_of(short, 10_000_000)
    plan = plan_of(short, 19_000_000)
    parts = {name: size for name, size in plan.memory.items() if name not in ("planned", "budget")}
    assert sum(parts.values()) == plan.memory["planned"] <= 19_000_000
    assert plan.rows_sides == 1 and plan.rows_bytes > 8 * short.n_rows and parts["row state"] < 8 * short.n_rows / 5
    with pytest.raises(MemoryBudgetError) as refusal:
        plan_of(short, 10_000_000, working_set=0)
    least = parse_bytes(str(refusal.value).split("memory=")[-1].removesuffix(" would do"))
    assert plan_of(short, least, working_set=0).rows_sides == 2  # as they were, for certificates beside learning
    assert not plan_of(short, 10**9).rows_sides
    apart = plan_of(short, 19_000_000, groups=2)  # groups are told afterwards how far they go
    assert apart.rows_sides == 2 and apart.memory["planned"] <= 19_000_000 and apart.rows_bytes > 16 * short.n_rows
    assert not plan_of(short, 10**9, groups=2).rows_sides
    given = dict(C=0.1, tol=1e-2, progress=False)
    memory, there = fit(short, memory="1GB", **given), fit(short, memory=19_000_000, run_dir=tmp_path / "run", **given)
    a, b = memory.certificate, there.certificate
    assert there.result_.plan["rows_sides"] == 1 and b["gap"] <= 1e-2
    assert a["dual"] <= b["primal"] and b["dual"] <= a["primal"]
    told = json.loads((tmp_path / "run/run.json").read_text())
    assert told["plan"]["rows_bytes"] == there.result_.plan["rows_bytes"] > 0
    assert "rows_bytes" not in told["identity"]["plan"]
    shown = CliRunner().invoke(main, ["inspect", str(tmp_path / "run")]).output
    assert "dual variables on disk" in shown


# Stopped and resumed


@pytest.mark.parametrize("stop_after", [2, 4])
@pytest.mark.parametrize(
    "before, after, given",
    [
        (True, True, SET), (True, False, {"working_set": 0}), (False, True, {"working_set": 0}),
        (True, True, {"groups": 3, "memory": "17MB", **SET}),
    ],
)  # fmt: skip
def test_stopped_and_resumed_wherever_they_are_it_has_the_same_bits(
    shards, before, after, given, stop_after, disk, tmp_path
):
    shape = dict(tol=0, epochs=4, segments=3, **SMALL | given)
    whole = fit(shards, **shape)
    shape |= dict(run_dir=tmp_path / "run", checkpoint_every=0)
    disk(before)
    with interrupted_after(stop_after):
        fit(shards, **shape)
    disk(after)
    resumed = fit(shards, resume=True, **shape)
    assert resumed.result_.plan["rows_sides"] == 2 * after
    assert resumed.digest() == whole.digest() and resumed.certificate == whole.certificate


KILLS = """
import dataclasses, json, os, signal, sys, warnings
import bigclf
warnings.simplefilter("ignore")
from bigclf import files
from making import fit
from bigclf.training import plan as planning
shards, place, moments = sys.argv[1], sys.argv[2], int(sys.argv[3])
plan, count, stop, real = planning.make_plan, 0, None, files.write_all
planning.make_plan = lambda *given, **named: dataclasses.replace(plan(*given, **named), rows_sides=2)

def write_all(*given):  # dies before or after a write of dual variables or of a record
    global count
    count += 1
    if count == stop:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*given)

files.write_all = write_all

def run(directory, at=None):
    global stop
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        stop = at
        try:
            model = fit(shards, tol=0, epochs=4, segments=2, run_dir=directory, resume=True, checkpoint_every=0, C=0.1,
                        memory="14.8MB", working_set=0.05, progress=False, workers=bigclf.Workers(threads=1))
            os.write(writer, json.dumps([model.digest(), count]).encode())
        except BaseException as error:
            os.write(writer, json.dumps([repr(error), count]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    return os.waitpid(child, 0)[1], json.loads(said) if said else None

_, (digest, total) = run(place + "/whole")
found = []
for n in range(1, moments + 1):
    killed, _ = run(f"{place}/{n}", n * total // (moments + 1))
    found.append([killed, run(f"{place}/{n}")[1][0]])
print(json.dumps([digest, total, found]))
"""


def test_killed_between_two_writes_and_resumed_it_has_the_same_bits(tmp_path):
    made = shards_of(tmp_path / "shards", *random_rows(900, D, 0.25, noise=1.0), chunk_nnz=1500)
    digest, total, found = json.loads(run_python(KILLS, tmp_path / "shards", tmp_path, 2))
    assert total > 3 * 4 * made.n_chunks and len(digest) == 32
    assert found == [[signal.SIGKILL, digest]] * 2


def test_one_group_visited_by_workers_has_the_bits_too(shards, disk, tmp_path, client):
    given = dict(tol=0, epochs=2, **SMALL, **SET)
    here = fit(shards, **given)
    disk()
    there = fit(shards, workers=client, groups=1, run_dir=tmp_path / "run", checkpoint_every=0, **given)
    assert there.digest() == here.digest() and there.certificate == here.certificate
    (tmp_path / "run/model.bigclf").unlink()
    resumed = fit(shards, workers=client, groups=1, run_dir=tmp_path / "run", resume=True, **given | {"epochs": 4})
    disk(there=False)
    assert resumed.digest() == fit(shards, **given | {"epochs": 4}).digest()


@pytest.mark.parametrize("where", ["run_dir", "nowhere"])
def test_several_groups_visited_by_workers_have_the_bits_too(shards, disk, tmp_path, client, where):
    """What each visit leaves goes to a file with the values before it, or, where it is little, to and fro."""
    shape = dict(tol=0, groups=4, segments=2, **SMALL | SET | {"memory": "17MB"})
    here = {epochs: fit(shards, epochs=epochs, **shape) for epochs in (3, 5)}
    assert any(0 < step < 1 for record in here[3].result_.history for step in record["steps"])
    disk()
    kept = dict(run_dir=tmp_path / "run", checkpoint_every=0) if where == "run_dir" else {}
    there = fit(shards, workers=client, epochs=3, **kept, **shape)
    assert there.result_.plan["rows_sides"] == 2
    assert there.digest() == here[3].digest() and there.certificate == here[3].certificate
    if kept:  # taken up in this process
        again = fit(shards, epochs=5, resume=True, **kept, **shape)
        assert again.digest() == here[5].digest()


# What can be wrong


def test_a_disk_without_room_is_refused_before_anything_is_read(shards, disk, tmp_path, monkeypatch):
    def full(descriptor, size):
        raise OSError(errno.ENOSPC, "No space left on device")

    disk()
    monkeypatch.setattr(files, "reserve", full)
    monkeypatch.setattr(Dataset, "decode", lambda *_: pytest.fail("read"))
    with pytest.raises(RunError, match=r"dual variables need [\d.]+ \w+ of disk in '.*local'.*No space left") as said:
        fit(shards, workers=bigclf.Workers(local_dir=tmp_path / "local"), **SMALL)
    assert "local_dir" in str(said.value)


@pytest.mark.root
def test_a_disk_that_is_really_small_is_refused_before_anything_is_read_and_one_that_has_room_will_do(
    shards, disk, tmp_path, monkeypatch
):
    whole, place = fit(shards, tol=0, epochs=3, **SMALL), tmp_path / "small"
    shape = dict(tol=0, epochs=3, workers=bigclf.Workers(local_dir=place), run_dir=tmp_path / "run", **SMALL)
    place.mkdir()
    disk()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", place], check=True)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(Dataset, "decode", lambda *_: pytest.fail("read"))
            with pytest.raises(RunError, match=r"dual variables need [\d.]+ \w+ of disk in '.*small'.*No space left"):
                fit(shards, **shape)
        assert not os.listdir(place)
        subprocess.run(["mount", "-o", "remount,size=4m", place], check=True)
        assert fit(shards, resume=True, **shape).digest() == whole.digest()
    finally:
        subprocess.run(["umount", "-l", place], check=False)


@pytest.mark.parametrize("copies", [0, 2])
def test_a_disk_without_room_for_a_copy_of_the_weights_is_named_and_the_run_goes_on(
    shards, tmp_path, monkeypatch, copies
):
    """The weights of a certificate, where memory has none for a second copy; ``copies`` : those that had room."""
    shape = dict(loss="hinge", tol=0, epochs=5, run_dir=tmp_path / "run", checkpoint_every=0, **SMALL, **SET)
    whole = fit(shards, loss="hinge", tol=0, epochs=5, **SMALL, **SET)
    made, real = [], files.tempfile.TemporaryFile

    local = tmp_path / "local"

    def full(dir, **named):
        if dir == str(local):
            made.append(dir)
        return open("/dev/full", "rb+") if len(made) > copies else real(dir=dir, **named)

    with monkeypatch.context() as patch:
        patch.setattr(files.tempfile, "TemporaryFile", full)
        with pytest.raises(RunError, match=r"local' has no room for \d+ bytes .*No space left.*name another"):
            fit(shards, workers=bigclf.Workers(local_dir=local), **shape)
    assert len(made) == copies + 1
    again = fit(shards, resume=True, **shape)
    assert again.digest() == whole.digest() and again.certificate == whole.certificate


def test_a_write_that_fails_costs_no_checkpoint(shards, disk, tmp_path, monkeypatch):
    shape = dict(tol=0, epochs=4, run_dir=tmp_path / "run", checkpoint_every=0, **SMALL, **SET)
    whole = fit(shards, tol=0, epochs=4, **SMALL, **SET)
    calls, real = [], RowStore.write

    def failing(self, *given):
        calls.append(given)
        if len(calls) > 2.5 * shards.n_chunks:
            with monkeypatch.context() as patch:
                patch.setattr(files, "write_all", lambda *_: os.write(os.open("/dev/full", os.O_WRONLY), b"x"))
                return real(self, *given)
        return real(self, *given)

    disk()
    with monkeypatch.context() as patch:
        patch.setattr(RowStore, "write", failing)
        with pytest.raises(RunError, match=r"dual variables in .* cannot be written \(No space left.*resume"):
            fit(shards, **shape)
    assert [name for name in os.listdir(tmp_path / "run") if name.startswith("rows-")]
    assert fit(shards, resume=True, **shape).digest() == whole.digest()


def test_bytes_that_changed_are_never_learned_from(shards, disk, monkeypatch):
    stores, real = [], RowStore.__init__

    def noting(self, *given, **named):
        real(self, *given, **named)
        stores.append(self)

    def damage(record):
        if record["epoch"] == 2:
            os.pwrite(stores[0].descriptor, b"\x01", 8 * 1000 + 3)
            os.pwrite(stores[0].descriptor, b"\x01", 8 * (N + 1000) + 3)

    disk()
    monkeypatch.setattr(RowStore, "__init__", noting)
    with pytest.raises(RunError, match="not as they were written"):
        fit(shards, tol=0, epochs=5, callbacks=[damage], **SMALL)


def test_a_file_of_tensors_is_the_same_written_whole_or_in_pieces(tmp_path):
    from safetensors.numpy import load_file

    alpha, ids = np.random.default_rng(0).random(300_000), np.arange(7)
    edges = np.array([0, 1, 150_000, 300_000])
    names = {"0.0.rows.alpha": alpha, "0.0.set.ids": ids, "0.0.set.scores": np.zeros(0)}
    pieces = names | {"0.0.rows.alpha": FiledArray(edges, lambda a, b: alpha[a:b])}
    digests = {publish_arrays(str(tmp_path / name), held, {}) for name, held in {"a": names, "b": pieces}.items()}
    assert len(digests) == 1 and (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    for name, array in load_file(tmp_path / "a").items():
        np.testing.assert_array_equal(array, names[name])
    held = load_rows(str(tmp_path / "a"), digests.copy().pop(), (), filed=True)
    assert isinstance(held["0.0.rows.alpha"], FiledArray)
    np.testing.assert_array_equal(held["0.0.rows.alpha"][140_000:290_000], alpha[140_000:290_000])
    np.testing.assert_array_equal(np.concatenate([*held["0.0.rows.alpha"].pieces()]), alpha)
    np.testing.assert_array_equal(held["0.0.set.ids"], ids)
    damaged = bytearray((tmp_path / "a").read_bytes())
    damaged[-1000] ^= 1
    (tmp_path / "b").write_bytes(damaged)
    with pytest.raises(bigclf.errors.ModelFormatError, match="checksum"):
        load_rows(str(tmp_path / "b"), digests.pop(), (), filed=True)
