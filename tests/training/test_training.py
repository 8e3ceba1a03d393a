"""Runs: what is planned, what is promised of memory, reads and bits, and what becomes of a run that is disturbed."""

import contextlib
import copy
import errno
import functools
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from making import environment, fit, random_rows, run_python, shards_of

import bigclf
from bigclf import files
from bigclf.data.arrays import Arrays
from bigclf.data.dataset import Dataset
from bigclf.errors import ClusterError, ConvergenceWarning, DataError, Interrupted, MemoryBudgetError, RunError
from bigclf.maths.block import NO_SCALES
from bigclf.methods import resolve
from bigclf.metrics.figures import evaluate
from bigclf.model.model import load
from bigclf.stream.raw_store import ROW_BYTES, RawStore, buffer_bytes
from bigclf.training.plan import SLACK_BYTES, Sizes, _streamed, make_plan
from bigclf.training.problems import make_problems
from bigclf.training.records.run_directory import RunDirectory, checkpoints_in, run_of
from bigclf.training.records.sameness import differences

D = 60
SMALL = "17MB"  # Arrow's allocator and the queues take 12 of them: the rows do not stay


def options(**more):
    return {"progress": False, **more}


@pytest.fixture(scope="module")
def rows():
    return random_rows(4000, D, 0.25, noise=1.0)


@pytest.fixture(scope="module")
def shards(rows, tmp_path_factory):
    return shards_of(tmp_path_factory.mktemp("training") / "shards", *rows, chunk_nnz=3000, shard_nnz=40_000)


@pytest.fixture(scope="module")
def classes3(tmp_path_factory):
    x, _ = random_rows(900, D, 0.25)
    y = np.array(["ant", "bee", "cow"])[np.argmax(x[:, :3].toarray() + 0.3 * x[:, 3:6].toarray(), axis=1)]
    return x, y, shards_of(tmp_path_factory.mktemp("three") / "shards", x, y, chunk_nnz=3000)


def small(path, n=300, **more):
    return shards_of(path, *random_rows(n, D), **more)


# The plan


def plan_of(source, algo="dcd", memory=10**9, classes=2, groups=1, dtype="float64", in_memory=False, **given):
    problems = make_problems(np.arange(classes), np.ones(classes), resolve(algo, None, None, None, given))
    return make_plan(source, problems, memory=memory, dtype=dtype, seed=0, groups=groups, threads=2,
                     in_memory=in_memory, reads=9)  # fmt: skip


def test_the_parts_add_up_and_stay_within_the_budget(shards):
    for memory in (17 * 10**6, 25 * 10**6, 10**8, 10**9):
        for algo in ("dcd", "pa1"):
            plan = plan_of(shards, algo, memory)
            parts = {k: v for k, v in plan.memory.items() if k not in ("planned", "budget")}
            assert sum(parts.values()) == plan.memory["planned"] <= memory == plan.memory["budget"], plan.memory
            assert all(size >= 0 for size in parts.values())
    assert plan_of(shards, memory=10**9).resident and not plan_of(shards, memory=17 * 10**6).resident


def test_blocks_read_ahead_leave_a_working_set_its_least(shards):
    wide = copy.copy(shards)
    wide.n_features = 10**7  # weights take nearly all of the memory
    problems = make_problems(np.arange(2), np.ones(2), resolve("dcd", None, None, None, {}))
    sizes = Sizes(wide, problems, "float64", [(0, shards.n_chunks)], False, 1)
    buffers = set()
    for memory in range(174 * 10**6, 176 * 10**6, 10**4):
        with contextlib.suppress(MemoryBudgetError):  # below the least
            shape, parts = _streamed(sizes, memory, again=True)
            buffers.add(shape["buffers"])
            assert shape["set_rows"] > 16 and sum(parts.values()) + SLACK_BYTES <= memory, parts
    assert len(buffers) > 1


class Pretended(SimpleNamespace):
    """What a plan asks of a source of so many chunks, of rows with so many entries each."""

    def __init__(self, chunks, rows, entries, features, width=4):
        n, nnz = chunks * rows, chunks * rows * entries
        counts = np.full(chunks, rows), np.full(chunks, rows * entries)
        places = SimpleNamespace(rows=counts[0], nnz=counts[1], row0=rows * np.arange(chunks),
                                 file=np.zeros(chunks), row_group=np.arange(chunks))  # fmt: skip
        super().__init__(
            chunks=places, n_chunks=chunks, n_rows=n, nnz=nnz, n_features=features, index_width=width, binary=False,
            row_constant=False, written_here=True, classes=np.arange(2), learnable=(n, nnz), max_row_nnz=entries,
            whole_group=(rows, rows * entries), in_parts=np.zeros(chunks, bool), feature_ids=None,
        )  # fmt: skip


HUNGRY = [
    ("dcd", None, {}),
    ("dcd", None, {"groups": 3}),
    ("dcd", "logistic", {"working_set": 0.3}),
    ("dcd", None, {"schedule": "selective"}),
    ("dcd", None, {"schedule": "cached"}),
    ("dcd", None, {"schedule": "fixed"}),
    ("newglmnet", "logistic", {}),
    ("newton", "logistic", {}),
]


def hunger_of(source, algo, loss, memory, groups=1, **given):
    """What such a budget gives to those that want memory; None where all rows stay in it."""
    problems = make_problems(np.arange(2), np.ones(2), resolve(algo, loss, None, None, given))
    try:
        plan = make_plan(source, problems, memory=memory, dtype="float64", seed=0, groups=groups, threads=2,
                         in_memory=False, reads=99)  # fmt: skip
    except ValueError as error:
        assert "every row fits" in str(error)  # a schedule has no effect then
        return None
    assert plan.memory["planned"] <= memory, plan.memory
    block = plan.block_bytes if plan.schedule == "fixed" else 0
    held = plan.set_rows, plan.set_nnz, plan.collected, plan.memory.get("kept rows", 0), block
    return None if plan.resident else held


@pytest.mark.parametrize(("algo", "loss", "given"), HUNGRY, ids=str)
def test_with_more_memory_no_working_set_collection_or_sample_is_smaller(algo, loss, given):
    source = Pretended(chunks=300, rows=3000, entries=70, features=200_000)
    held = []
    for memory in np.geomspace(30e6, 800e6, 150).astype(int).tolist():
        try:
            found = hunger_of(source, algo, loss, memory, **given)
        except MemoryBudgetError:
            assert not held, memory  # what would do once does with more
            continue
        if found is None:
            break
        held.append(found)
    steps = np.diff(held, axis=0)
    assert len(held) > 50 and (steps >= 0).all() and (steps > 0).any(), steps.min(axis=0)


@settings(max_examples=150, deadline=None)
@given(
    case=st.sampled_from(HUNGRY),
    shape=st.tuples(st.integers(5, 500), st.integers(1, 9000), st.integers(0, 900), st.integers(1, 3_000_000)),
    width=st.sampled_from([4, 8]),
    memory=st.integers(10**6, 10**9),
    more=st.integers(1, 10**8),
)
def test_whatever_the_data_more_memory_is_never_less(case, shape, width, memory, more):
    (algo, loss, words), source = case, Pretended(*shape, width)
    try:
        before = hunger_of(source, algo, loss, memory, **words)
    except MemoryBudgetError:
        return
    after = hunger_of(source, algo, loss, memory + more, **words)
    assert before is not None or after is None
    assert after is None or all(a <= b for a, b in zip(before, after, strict=True))


def test_decoding_is_not_planned_where_a_store_has_all_rows_and_changes_no_bit():
    source = Pretended(200, 3000, 60, 40_000)
    problems = make_problems(np.arange(2), np.ones(2), resolve("dcd", None, None, None, {}))

    def planned(memory, stored):
        return make_plan(source, problems, memory=memory, dtype="float64", seed=0, groups=1, threads=2,
                         in_memory=False, reads=99, stored=stored)  # fmt: skip

    made, found = planned(10**8, False), planned(10**8, True)
    assert found.same_bits() == made.same_bits()
    assert found.memory["decoding"] == 0 < made.memory["decoding"] == made.memory["planned"] - found.memory["planned"]
    with pytest.raises(MemoryBudgetError) as refusal:
        planned(20 * 10**6, False)
    least = int(float(re.search(r"memory=([\d.]+) MB would do", str(refusal.value)).group(1)) * 1e6)
    with pytest.raises(MemoryBudgetError):
        planned(least - 5 * 10**6, False)
    assert planned(least - 5 * 10**6, True).memory["planned"] <= least - 5 * 10**6


def test_state_is_counted_by_features_classes_types_and_groups(shards):
    def state(**given):
        return plan_of(shards, "pa1", **given).memory["state"]

    assert state() == 8 * (D + 1)
    assert state(dtype="float32") == 4 * (D + 1)
    assert state(classes=5) == 5 * 8 * (D + 1)
    assert state(groups=3) == 5 * 8 * (D + 1)
    assert plan_of(shards, "dcd").memory["row state"] == 8 * 4000
    assert plan_of(shards, "averaged_perceptron").memory["state"] >= 16 * (D + 1)


@pytest.mark.parametrize("algo", ["dcd", "pa2", "averaged_perceptron"])
def test_a_budget_that_is_too_small_is_refused_with_one_that_would_do(shards, algo, quiet):
    with pytest.raises(MemoryBudgetError, match="would do") as refusal:
        fit(shards, algo=algo, memory="1MB", **options())
    said = re.search(r"memory=([\d.]+ ?\w+) would do", str(refusal.value)).group(1)
    model = fit(shards, algo=algo, memory=said, epochs=2, **options())
    assert model.result_.plan["memory"]["planned"] <= model.result_.plan["memory"]["budget"] < 30 * 10**6
    assert "state" in str(refusal.value) and "decoding" in str(refusal.value)


def test_nothing_is_read_before_a_refusal(shards, monkeypatch, tmp_path):
    monkeypatch.setattr(Dataset, "decode", lambda *_: pytest.fail("read"))
    with pytest.raises(MemoryBudgetError):
        fit(shards, memory="1MB", run_dir=tmp_path / "run", **options())
    assert not (tmp_path / "run").exists()


def test_a_working_set_takes_the_share_that_was_asked_for(shards):
    shares = [plan_of(shards, memory=40 * 10**6, working_set=share).set_nnz for share in (0, 0.01, 0.1)]
    assert shares[0] == 0 < shares[1] < shares[2] <= 0.15 * shards.nnz or plan_of(shards, memory=40 * 10**6).resident


# Two ways to the same answer


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("given", [{}, {"working_set": 0}, {"working_set": 0.05}, {"segments": 5}], ids=str)
def test_streamed_and_resident_runs_agree_within_their_gaps(rows, shards, loss, given, quiet):
    has_set = given.get("working_set", loss == "hinge") != 0  # nothing gets stuck above with the squared hinge
    tol, C = 1e-3 if has_set else 0.01, 0.01
    resident = fit(*rows, loss=loss, C=C, tol=1e-6, **options())
    streamed = fit(shards, loss=loss, C=C, tol=tol, memory=SMALL, epochs=60, **given, **options())
    assert resident.result_.plan["resident"] and not streamed.result_.plan["resident"]
    assert (streamed.result_.plan["set_rows"] > 0) == has_set
    a, b = resident.result_.certificate, streamed.result_.certificate
    assert streamed.result_.converged and b["gap"] <= tol
    assert b["dual"] <= a["primal"] * (1 + 1e-9) and a["dual"] <= b["primal"] * (1 + 1e-9)  # one optimum between all
    assert b["primal"] - a["primal"] <= tol * b["primal"]
    w = np.append(streamed.coef_[0], streamed.intercept_[0])
    slack = np.maximum(0, 1 - rows[1] * (rows[0].astype(float) @ w[:-1] + w[-1]))
    assert b["primal"] == pytest.approx(0.5 * w @ w + C * (slack if loss == "hinge" else slack**2).sum(), rel=1e-11)
    assert 2 <= streamed.result_.epochs <= streamed.result_.reads <= streamed.result_.epochs + 1  # one to certify alone


def test_the_model_is_the_one_its_certificate_speaks_of_when_a_limit_comes_first(rows, shards):
    with pytest.warns(ConvergenceWarning, match="epochs=2.*gap"):
        model = fit(shards, tol=0, epochs=2, memory=SMALL, **options())
    result, w = model.result_, np.append(model.coef_[0], model.intercept_[0])
    slack = np.maximum(0, 1 - rows[1] * (rows[0].astype(float) @ w[:-1] + w[-1]))
    assert result.certificate["primal"] == pytest.approx(0.5 * w @ w + slack.sum(), rel=1e-11)
    assert result.stopped == "epochs" and not result.converged and result.reads == 3  # one to certify


@pytest.mark.parametrize("algo", ["dcd", "pa2", "averaged_perceptron"])
@pytest.mark.parametrize("threads", [1, 4])
def test_readers_and_the_store_never_change_bits(shards, algo, threads, tmp_path, quiet):
    base = fit(shards, algo=algo, epochs=3, memory=SMALL, **options())
    other = fit(
        shards,
        algo=algo,
        epochs=3,
        memory=SMALL,
        workers=bigclf.Workers(threads=threads, local_dir=tmp_path),
        **options(),
    )
    again = fit(
        shards,
        algo=algo,
        epochs=3,
        memory=SMALL,
        workers=bigclf.Workers(threads=threads, local_dir=tmp_path),
        **options(),
    )
    assert base.digest() == other.digest() == again.digest()


@pytest.mark.parametrize("algo", ["dcd", "pa2"])
def test_rows_of_one_value_each_learn_the_same_from_files_memory_and_a_packed_store(algo, tmp_path, monkeypatch, quiet):
    x, y = random_rows(4000, D, 0.25, noise=1.0, constant=True)
    made = shards_of(tmp_path / "constant", x, y, chunk_nnz=3000, shard_nnz=40_000)
    assert made.row_constant
    chosen, real = [], RawStore._chosen
    monkeypatch.setattr(RawStore, "_chosen", lambda self, block: chosen.append(real(self, block)) or chosen[-1])
    base = fit(made, algo=algo, epochs=3, memory=SMALL, **options())
    assert chosen[0][0] == "u8"
    stored = [
        fit(made, algo=algo, epochs=3, memory=SMALL, workers=bigclf.Workers(local_dir=tmp_path / "kept"), **options())
        for _ in range(2)
    ]
    assert [model.digest() for model in stored] == [base.digest()] * 2 and len(chosen) == 2
    monkeypatch.setattr(RawStore, "_chosen", lambda self, block: ("raw", 0))
    assert fit(made, algo=algo, epochs=3, memory=SMALL, **options()).digest() == base.digest()
    monkeypatch.setattr("bigclf.data.arrays.one_value_a_row", lambda indptr, values: (values, NO_SCALES))
    written = Arrays(x, y)
    assert written.whole().values.size and not written.row_constant
    monkeypatch.undo()
    resident = fit(x, y, algo=algo, epochs=3, **options())
    explicit = fit(written, algo=algo, epochs=3, **options())
    np.testing.assert_allclose(resident.coef_, explicit.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(base.decision_function(x), base.decision_function(made), rtol=1e-12, atol=1e-12)


def test_rows_of_one_value_each_are_planned_with_their_scales_and_no_values(tmp_path):
    x, y = random_rows(4000, D, 0.25, constant=True)
    source = Arrays(x, y, least_chunks=4)
    plan = plan_of(source, memory=10**9)
    assert plan.resident and plan.memory["data"] == buffer_bytes(4000, source.nnz, 4, False, True)
    assert plan.memory["data"] == source.nnz * 4 + 4000 * (ROW_BYTES + 4) + 8


def test_a_store_that_has_no_room_changes_no_bits(shards, monkeypatch, quiet):
    base = fit(shards, epochs=3, memory=SMALL, **options())

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_all", full)
    assert fit(shards, epochs=3, memory=SMALL, **options()).digest() == base.digest()


@pytest.mark.parametrize("groups", [1, 2, 5])
def test_groups_learn_apart_and_mix(shards, groups, quiet):
    model = fit(shards, algo="pa1", C=0.01, groups=groups, epochs=3, memory=SMALL, **options())
    assert len(model.result_.plan["groups"]) == groups
    again = fit(shards, algo="pa1", C=0.01, groups=groups, epochs=3, memory=SMALL, **options())
    assert again.digest() == model.digest()
    resident = fit(shards, algo="pa1", C=0.01, groups=groups, epochs=3, **options())
    assert model.result_.history[0]["rows"] == resident.result_.history[0]["rows"] == 4000
    for one in (model, resident):
        assert np.corrcoef(one.coef_[0], fit(shards, tol=1e-3, **options()).coef_[0])[0, 1] > 0.7


def test_segments_are_no_more_than_places_to_stop_for_methods_without_a_set(shards, quiet):
    whole = fit(shards, algo="pa1", epochs=2, memory=SMALL, segments=1, **options())
    parts = fit(shards, algo="pa1", epochs=2, memory=SMALL, segments=4, **options())
    assert parts.result_.plan["segments"] == 4
    assert [r["rows"] for r in parts.result_.history] == [r["rows"] for r in whole.result_.history] == [4000, 4000]


def test_one_against_the_rest_shares_each_read(classes3, monkeypatch, quiet):
    x, y, made = classes3
    calls, real = [], Dataset.decode
    monkeypatch.setattr(Dataset, "decode", lambda self, f, g, into=None: calls.append((f, g)) or real(self, f, g, into))
    model = fit(made, tol=0.01, memory="19MB", **options())
    assert not model.result_.plan["resident"] and model.result_.reads >= 2
    assert len(calls) == made.n_chunks == len(set(calls))  # the first read decodes, later ones find the raw store
    assert model.coef_.shape == (3, D) and model.classes_.tolist() == ["ant", "bee", "cow"]
    told = model.result_.certificate
    assert [p["name"] for p in told["problems"]] == ["ant", "bee", "cow"]
    assert told["gap"] == max(p["gap"] for p in told["problems"]) <= 0.01
    assert told["primal"] == pytest.approx(sum(p["primal"] for p in told["problems"]))
    for k, name in enumerate(model.classes_):
        alone = fit(x, np.where(y == name, 1, -1), tol=1e-6, **options()).result_.certificate["primal"]
        assert alone <= told["problems"][k]["primal"] * (1 + 1e-9) <= alone * 1.011
    assert (model.predict(x) == y).mean() > 0.8


@pytest.mark.parametrize("bias", [None, "feature"])
def test_problems_of_several_classes_are_the_single_ones(classes3, bias, quiet):
    x, y, _ = classes3
    model = fit(x, y, algo="pa1", bias=bias, epochs=2, **options())
    alone = fit(x, np.where(y == "ant", 1, -1), algo="pa1", bias=bias, epochs=2, **options())
    np.testing.assert_array_equal(model.coef_[0], alone.coef_[0])
    assert model.result_.progressive["rows"] == 3 * 900


# History and progress


def test_every_epoch_has_its_record(shards, quiet):
    seen = []
    model = fit(shards, algo="pa2", epochs=4, memory=SMALL, callbacks=(seen.append,), **options())
    assert [r["epoch"] for r in seen] == [1, 2, 3, 4] and seen == model.result_.history
    for record in seen:
        assert record["rows"] == 4000 and record["error"] == record["mistakes"] / 4000
        assert record["reads"] == record["epoch"]
    progressive = {name: model.result_.progressive[name] for name in ("rows", "mistakes", "error")}
    assert progressive == {"rows": 4000, "mistakes": seen[0]["mistakes"], "error": seen[0]["error"]}
    assert [r["bytes_read"] for r in seen] == sorted(r["bytes_read"] for r in seen)


def test_the_screen_hears_of_every_block(shards, quiet):
    class Screen:
        def __init__(self):
            self.said, self.rows = [], 0

        def start(self, plan):
            self.said.append("start")
            assert plan["n_rows"] == 4000

        def advance(self, rows, nbytes):
            assert rows > 0 < nbytes
            self.rows += rows

        def epoch(self, record):
            self.said.append(record["epoch"])

        def stop(self):
            self.said.append("stop")

    screen = Screen()
    fit(shards, algo="pa2", epochs=3, memory=SMALL, progress=screen)
    assert screen.said == ["start", 1, 2, 3, "stop"] and screen.rows == 3 * 4000


def test_the_screen_hears_which_epochs_are_to_come(shards, tmp_path, quiet):
    class Screen:
        def start(self, plan):
            self.told = plan["epoch"], plan["epochs"]

        def advance(self, rows, nbytes): ...

        def epoch(self, record): ...

        def stop(self): ...

    def told(**given):
        model = fit(shards, progress=(screen := Screen()), **{"algo": "pa2", "memory": SMALL, **given})
        return screen.told, model

    run = dict(run_dir=tmp_path / "run")
    began, model = told(epochs=2, **run)
    assert began == (1, 2) and told(epochs=5, resume=True, **run)[0] == (3, 5)
    assert told(epochs=3, init=model)[0] == (3, 5)
    assert told(algo="auto", tol=0.5)[0] == (1, None)  # that one ends by its gap


def test_validation_goes_into_the_history(shards, quiet):
    model = fit(shards, algo="pa1", epochs=2, validate=shards, **options())
    assert all(0.5 < record["validation"]["accuracy"] <= 1 for record in model.result_.history)


def test_a_run_begins_with_the_weights_it_is_given(rows, quiet):
    x, y = rows
    first = fit(x, y, algo="pa1", C=0.01, epochs=1, **options())
    warm = fit(x, y, algo="pa1", C=0.01, epochs=1, init=first, **options())
    assert warm.result_.mistakes < first.result_.mistakes
    with pytest.raises(TypeError, match="init.*dcd"):
        fit(x, y, init=first, **options())
    with pytest.raises(ValueError, match="init has weights"):
        fit(x[:, :5], y, algo="pa1", init=first, **options())


def test_time_is_a_limit_too(shards):
    with pytest.warns(ConvergenceWarning, match="max_seconds"):
        model = fit(shards, tol=0, max_seconds=1e-6, memory=SMALL, **options())
    assert model.result_.stopped == "seconds" and model.result_.certificate["gap"] < 1
    with pytest.warns(ConvergenceWarning, match="1 epoch was done"):
        fit(shards, algo="pa1", epochs=2, max_seconds=1e-6, memory=SMALL, **options())


# The run directory


def test_what_a_run_writes_down(shards, tmp_path, quiet):
    model = fit(shards, tol=1e-3, memory=SMALL, run_dir=tmp_path / "run", checkpoint_every=0, **options())
    names = sorted(os.listdir(tmp_path / "run"))
    states = [n for n in names if n.startswith("state-")]
    assert {"run.json", "history.jsonl", "model.bigclf"} < set(names) and "lease" not in names
    assert 1 <= len(states) <= 2 and len(states) == len([n for n in names if n.startswith("rows-")])
    assert not [n for n in names if n.startswith(".")]
    told = json.loads((tmp_path / "run/run.json").read_text())
    assert told["version"] == 1 and told["identity"]["method"] == "dcd"
    assert told["plan"] == json.loads(json.dumps(model.result_.plan))
    assert told["identity"]["data"]["digest"] == shards.digest and len(told["files"]) == len(shards.files)
    assert {"numpy", "numba", "bigclf", "python"} <= set(told["versions"]) and told["cpu"]
    history = [json.loads(line) for line in (tmp_path / "run/history.jsonl").read_text().splitlines()]
    assert history[-1]["gap"] == model.result_.certificate["gap"]


def test_a_finished_run_gives_its_model_and_an_empty_directory_starts_afresh(shards, tmp_path, monkeypatch, quiet):
    first = fit(shards, tol=1e-3, run_dir=tmp_path / "run", resume=True, **options())
    monkeypatch.setattr(Dataset, "decode", lambda *_: pytest.fail("read again"))
    again = fit(shards, tol=1e-3, run_dir=tmp_path / "run", resume=True, **options())
    assert again.digest() == first.digest() and again.result_.certificate == first.result_.certificate
    with pytest.raises(RunError, match="holds a run already.*resume"):
        fit(shards, tol=1e-3, run_dir=tmp_path / "run", **options())


@pytest.mark.parametrize(
    ("change", "named"),
    [({"C": 2.0}, "C"), ({"tol": 0.05}, "tol"), ({"loss": "squared_hinge"}, "loss"), ({"seed": 5}, "seed"),
     ({"bias": None}, "bias"), ({"class_weight": {1: 2.0}}, "class_weights"), ({"algo": "pa1", "tol": None}, "method"),
     ({"dtype": "float32"}, "dtype"), ({"memory": "15MB"}, "the plan"), ({"groups": 2}, "groups")],
    ids=str,
)  # fmt: skip
def test_another_run_is_not_resumed_and_the_difference_is_named(shards, tmp_path, change, named, quiet):
    given = {"tol": 0.1, "run_dir": tmp_path / "run", "epochs": 2, **options()}
    fit(shards, **given)
    before = sorted(os.listdir(tmp_path / "run"))
    with pytest.raises(RunError, match=f"differs in.*{named}") as refused:
        fit(shards, resume=True, **{**given, **change})
    assert "plan." not in str(refused.value)  # what follows from what was said
    assert sorted(os.listdir(tmp_path / "run")) == before


def test_a_run_that_stopped_goes_on_under_larger_limits_and_ends_at_a_larger_tolerance(tmp_path, quiet):
    shards, given = small(tmp_path / "a"), {"run_dir": tmp_path / "run", **options()}
    first = fit(shards, tol=1e-9, epochs=2, **given)
    second = fit(shards, tol=1e-9, epochs=4, resume=True, **given)
    assert [m.result_.stopped for m in (first, second)] == ["epochs"] * 2 and second.result_.epochs == 4
    assert second.digest() == fit(shards, tol=1e-9, epochs=4, **options()).digest()
    gap = second.certificate["gap"]
    third = fit(shards, tol=2 * gap, epochs=4, resume=True, **given)  # near enough already: nothing is read
    assert third.result_.converged and third.result_.stopped == "tolerance" and third.result_.epochs == 4
    assert third.digest() == second.digest() and third.certificate["gap"] == gap
    assert third.facts["run"] == first.facts["run"] == run_of(tmp_path / "run")
    assert run_of(tmp_path / "none") is None
    fourth = fit(shards, tol=1e-9, epochs=6, resume=True, **given)  # the old tolerance again: on from where it was
    assert fourth.digest() == fit(shards, tol=1e-9, epochs=6, **options()).digest()


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("how", [{"loss": "hinge"}, {"loss": "hinge", "groups": 2}, {"algo": "newton"}])
def test_a_smaller_tolerance_again_is_reached_again(tmp_path, quiet, caplog, monkeypatch, how, older):
    """What ended at a larger one let go of what it would go on from: an earlier checkpoint has to do, or none."""
    shards, given = small(tmp_path / "a"), {**options(), **how}
    if older:  # checkpoints did not tell their tolerance
        write = RunDirectory._write
        monkeypatch.setattr(RunDirectory, "_write", lambda *of: of[1].facts.pop("tol") and write(*of))
    train = functools.partial(fit, shards, run_dir=tmp_path / "run", epochs=50, **given)
    train(tol=1e-6, max_seconds=1e-9)
    looser = train(tol=1e-1, resume=True)
    assert looser.result_.stopped == "tolerance" and looser.certificate["gap"] > 1e-6
    assert train(tol=1e-1, resume=True).digest() == looser.digest()
    again = train(tol=1e-6, resume=True)
    assert again.result_.converged and again.certificate["gap"] <= 1e-6
    assert "it ended at a larger tolerance" in caplog.text
    assert len(checkpoints_in(tmp_path / "run")) <= 2
    assert train(tol=1e-3, resume=True).digest() == again.digest()  # nearer than asked


def test_a_model_of_a_frame_refuses_other_columns_and_another_order(tmp_path, quiet):
    import pandas as pd
    import pyarrow as pa

    x, y = random_rows(60, 3)
    frame = pd.DataFrame(x.toarray(), columns=["x", "y", "z"])
    model = fit(frame, y, algo="pa1", progress=False)
    assert model.features["names"] == ["x", "y", "z"] and "'name': 'x'" in str(model.explain(top=3))
    model.save(tmp_path / "m")
    for known in (model, load(tmp_path / "m")):
        for same in (frame, frame.to_numpy(), pa.table(frame), x, frame.rename(columns=lambda name: ord(name))):
            assert (known.predict(same) == model.predict(x)).all()
        swapped, other = frame[["z", "y", "x"]], frame.rename(columns={"z": "w"})
        for ask in (known.predict, known.decision_function, functools.partial(evaluate, known, y=y)):
            with pytest.raises(ValueError, match="in another order .* column 0 is 'z' and was 'x'"):
                ask(swapped)
            with pytest.raises(ValueError, match="unknown to it 'w'; missing 'z'"):
                ask(other)
        with pytest.raises(ValueError, match="another order"):
            fit(pa.table(swapped), y, algo="pa1", init=known, progress=False)
    with pytest.raises(ValueError, match="another order"):
        fit(frame, y, algo="pa1", epochs=1, validate=(swapped, y), progress=False)
    wider = frame.assign(w=1.0)
    assert (model.predict(wider, unseen="ignore") == model.predict(x)).all()
    assert fit(wider, [*y], algo="pa1", init=model, progress=False).features["names"] == ["x", "y", "z", "w"]
    assert "names" not in fit(frame.rename(columns={"x": 0}), y, algo="pa1", progress=False).features


def test_a_progressive_error_on_rows_seen_before_is_no_estimate(tmp_path, quiet):
    shards, other = small(tmp_path / "a"), shards_of(tmp_path / "b", *random_rows(300, D, seed=5))
    how = {"algo": "pa1", "epochs": 1, "progress": False}
    first = fit(shards, **how)
    again, elsewhere = (fit(data, init=first, **how).result_ for data in (shards, other))
    both = fit([*shards.files, *other.files], init=first, **how).result_
    assert again.progressive["seen"] == 1 and "error" not in repr(again)
    assert "seen" not in first.result_.progressive | elsewhere.progressive and "error" in repr(elsewhere)
    assert both.progressive["seen"] == shards.n_rows / (shards.n_rows + other.n_rows)
    x, y = random_rows(40, D)
    arrays = fit(x, y, **how)
    assert fit(x, y, init=arrays, **how).result_.progressive["seen"] == 1
    assert "seen" not in fit(x[:30], y[:30], init=arrays, **how).result_.progressive


def test_other_data_are_not_resumed_on(tmp_path, quiet):
    first, other = small(tmp_path / "a"), shards_of(tmp_path / "b", *random_rows(300, D, seed=5))
    fit(first, tol=0.1, run_dir=tmp_path / "run", **options())
    with pytest.raises(RunError, match=r"data: .*/a/.* -> .*/b/"):
        fit(other, tol=0.1, run_dir=tmp_path / "run", resume=True, **options())


def test_other_features_are_not_resumed_on(tmp_path, quiet):
    """The same rows, said to have a feature more."""
    x, y = random_rows(300, D)
    wider = x.copy()
    wider.resize(300, D + 1)
    fit(shards_of(tmp_path / "a", x, y), tol=0.1, run_dir=tmp_path / "run", **options())
    with pytest.raises(RunError, match=r"differs in.*data\."):
        fit(shards_of(tmp_path / "b", wider, y), tol=0.1, run_dir=tmp_path / "run", resume=True, **options())


@pytest.mark.parametrize("other", [{"C": 2.0}, {"n": 200}, {"d": D + 3}], ids=["parameters", "rows", "features"])
def test_a_checkpoint_of_another_run_is_refused(tmp_path, quiet, other):
    """One that was put beside the run.json of this one; its arrays would not fit, or worse, would."""
    mine, given = small(tmp_path / "a"), {"tol": 1e-9, "epochs": 1, **options()}
    rows = random_rows(other.get("n", 300), other.get("d", D))
    fit(mine, run_dir=tmp_path / "run", **given)
    fit(shards_of(tmp_path / "b", *rows), C=other.get("C", 1.0), run_dir=tmp_path / "other", **given)
    names = [name for name in os.listdir(tmp_path / "other") if name.startswith(("rows-", "state-"))]
    assert any(name.startswith("state-") for name in names)
    for name in names:
        (tmp_path / "run" / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(RunError, match=r"state-\d+-\d+.safetensors is a checkpoint of another run"):
        fit(mine, run_dir=tmp_path / "run", resume=True, **{**given, "epochs": 3})


def test_differences_name_the_leaf():
    assert differences({"a": {"b": 1, "c": [1]}}, {"a": {"b": 2, "c": [1]}, "d": None}) == ["a.b: 1 -> 2"]
    assert len(differences({"a": "x" * 500}, {"a": "y"})[0]) < 100


HOLD = """
import sys, time
from bigclf.training.records.run_directory import RunDirectory
directory = RunDirectory(sys.argv[1])
directory.acquire()
print("held", flush=True)
time.sleep(600)
"""


def test_a_directory_in_use_is_refused_and_a_dead_process_s_taken_over_at_once(shards, tmp_path, quiet):
    given = {"tol": 0.1, "run_dir": tmp_path / "run", **options()}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")], env=environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunError, match=f"in use by process {holder.pid} on"):
            fit(shards, **given)
        assert sorted(os.listdir(tmp_path / "run")) == ["lease"]
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    assert (tmp_path / "run/lease").exists()
    assert fit(shards, **given).result_.converged and not (tmp_path / "run/lease").exists()


def test_a_directory_that_cannot_be_written_is_refused_before_the_first_read(shards, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no directory")
    monkeypatch.setattr(Dataset, "decode", lambda *_: pytest.fail("read"))
    with pytest.raises(RunError, match="cannot make the directory"):
        fit(shards, run_dir=tmp_path / "file" / "run", **options())


# Disturbed runs

SHAPES = {
    "dcd": dict(algo="dcd", tol=0, epochs=4, segments=3, memory=SMALL, working_set=0.1, inner_rounds=3),
    "pa2": dict(algo="pa2", epochs=4, segments=3, memory=SMALL, groups=2),
    "classes": dict(algo="dcd", loss="squared_hinge", tol=0.01, segments=2, memory="19MB", epochs=12),
    "in memory": dict(algo="dcd", tol=0, epochs=6, inner_rounds=2),
}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))

KILLS = """
import hashlib, json, os, random, shutil, signal, sys, warnings
warnings.simplefilter("ignore")
import numpy, bigclf, safetensors.numpy, psutil, xxhash, sklearn
import bigclf
from bigclf.maths.block import NO_SCALES
from bigclf import files
from bigclf.stream.blocks import Stream
from making import fit
shards, place, shape, moments = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
count, stop = 0, None

def event():
    # a place where a process may die: before and after each write, sync and rename, and at each block
    global count
    count += 1
    if count == stop:
        os.kill(os.getpid(), signal.SIGKILL)

def noting(function):
    def noted(*given, **named):
        event()
        done = function(*given, **named)
        event()
        return done
    return noted

for name in ("_sync", "append_line", "remove", "publish_text", "write_all"):
    setattr(files, name, noting(getattr(files, name)))
os.replace, os.fsync = noting(os.replace), os.fstat  # no power cut: there is nothing to wait for
blocks = Stream.blocks

def counted(self, units, *then):
    for block in blocks(self, units, *then):
        event()
        yield block
Stream.blocks = counted

def run(directory, at=None):
    # in a process of its own: (signal that ended it, digest, events)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        global stop
        stop = at
        try:
            model = fit(shards, run_dir=directory, resume=True, checkpoint_every=0, progress=False,
                        workers=bigclf.Workers(threads=1), **shape)
            gap = model.result_.certificate and model.result_.certificate["gap"]
            os.write(writer, json.dumps([model.digest(), count, gap, model.result_.epochs]).encode())
        except BaseException as error:
            os.write(writer, json.dumps(["error: " + repr(error), count, None, 0]).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, json.loads(said) if said else None

signal_, whole = run(place + "/whole")
assert signal_ == 0, signal_
total = whole[1]
chance = random.Random(0)
at = [1, 2, 10 * total] + sorted(chance.sample(range(3, total * 4 // 5), moments - 3))  # how many lines of history
# are written depends on the time they come at, so the last moments may not be reached in every run
found = []
for k in at:
    directory = f"{place}/{k}"
    kills = [run(directory, k)[0]]
    if k % 2:  # and killed again on the way
        kills.append(run(directory, chance.randrange(1, total))[0])
    found.append([k, kills, run(directory)[1]])
    shutil.rmtree(directory)
print(json.dumps({"whole": whole, "total": total, "found": found}))
"""


@pytest.mark.parametrize("name", ["dcd", pytest.param("pa2", marks=pytest.mark.long)])
def test_killed_at_any_moment_and_resumed_it_gives_the_bits_of_the_undisturbed_run(name, tmp_path):
    """Four moments, before the first checkpoint and after the end among them; SIGKILL, so nothing is tidied up."""
    made = small(tmp_path / "shards", 900)
    told = json.loads(run_python(KILLS, tmp_path / "shards", tmp_path, json.dumps(SHAPES[name]), 4))
    whole, found = told["whole"], told["found"]
    assert len(found) == 4 and made.n_chunks > 5 and told["total"] > 30
    assert [kills[0] for k, kills, _ in found] == [signal.SIGKILL if k <= told["total"] else 0 for k, *_ in found]
    assert {(a[0], a[2], a[3]) for _, _, a in found} == {(whole[0], whole[2], whole[3])}, (whole, found)


def stopped_run(data, directory, shape, after):
    """A run that gets SIGTERM in epoch ``after``."""

    def ask(record):
        if record["epoch"] == after:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted, match="SIGTERM") as caught:
        fit(data, run_dir=directory, callbacks=(ask,), **shape, **options())
    return caught.value


def data_for(shape, shards, classes3):
    return classes3[2] if shape is SHAPES["classes"] else shards


@every_shape
def test_sigterm_ends_a_run_with_a_checkpoint_that_is_taken_up(shards, classes3, shape, tmp_path, quiet):
    data = data_for(shape, shards, classes3)
    handler = signal.getsignal(signal.SIGTERM)
    whole = fit(data, **shape, **options())
    error = stopped_run(data, tmp_path / "run", {**shape, "checkpoint_every": 1000}, 1)
    assert error.exit_code == 6 and "resume=True" in str(error) and signal.getsignal(signal.SIGTERM) is handler
    assert RunDirectory(tmp_path / "run").checkpoints() and not (tmp_path / "run/lease").exists()
    resumed = fit(data, run_dir=tmp_path / "run", resume=True, **shape, **options())
    assert resumed.digest() == whole.digest() and resumed.result_.certificate == whole.result_.certificate
    assert resumed.result_.progressive == whole.result_.progressive
    assert resumed.result_.mistakes == whole.result_.mistakes


class Bell:
    """A screen that rings (SIGTERM) at the ``when``-th block."""

    def __init__(self, when):
        self.when = when

    def advance(self, rows, nbytes):
        self.when -= 1
        if self.when == 0:
            os.kill(os.getpid(), signal.SIGTERM)

    def start(self, plan): ...

    def epoch(self, record): ...

    def stop(self): ...


@pytest.mark.parametrize("name", ["dcd", "pa2"])
def test_sigterm_in_the_middle_of_an_epoch_stops_at_the_segment_s_end(shards, name, tmp_path, quiet):
    given = {**SHAPES[name], "segments": 2}
    whole = fit(shards, **given, **options())
    with pytest.raises(Interrupted, match="in epoch 1, after part 1 of 2 of its blocks"):
        fit(shards, run_dir=tmp_path / "run", checkpoint_every=1000, progress=Bell(1), **given)
    facts = RunDirectory(tmp_path / "run").newest(len(whole.result_.plan["groups"])).facts
    assert (facts["epoch"], facts["segment"]) == (1, 1)
    assert fit(shards, run_dir=tmp_path / "run", resume=True, **given, **options()).digest() == whole.digest()


@pytest.mark.parametrize("name", ["on_change", "opportunistic", "segments"])
def test_an_option_that_is_gone_says_what_is_so_without_it(name):
    with pytest.raises(TypeError, match=f"there is no option {name} any more: .*; leave it out"):
        bigclf.fit(*random_rows(), **{name: None})


def test_without_a_run_directory_an_interrupted_run_says_that_nothing_is_kept(shards):
    with pytest.raises(Interrupted, match="no run directory"):
        fit(shards, algo="pa1", callbacks=(lambda r: os.kill(os.getpid(), signal.SIGINT),), **options())


def interrupted(shards, tmp_path):
    """The run directory of a run stopped in epoch 3, with its two checkpoints, newest first; and the whole run."""
    shape = SHAPES["dcd"]
    whole = fit(shards, **shape, **options())
    stopped_run(shards, tmp_path / "run", {**shape, "checkpoint_every": 0}, 3)
    names = RunDirectory(tmp_path / "run").checkpoints()
    assert len(names) == 2
    return shape, whole, names


@pytest.mark.parametrize("kind", ["state", "rows"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(shards, kind, tmp_path, caplog, quiet):
    shape, whole, names = interrupted(shards, tmp_path)
    newest, older = (name.removeprefix("state") for name in names)
    file = tmp_path / "run" / (f"state{newest}" if kind == "state" else f"rows-00000{newest}")
    content = file.read_bytes()
    directory, rng = RunDirectory(tmp_path / "run"), np.random.default_rng(0)
    intact = directory.newest(1).facts
    cuts = [content[:n] for n in (0, 7, *range(4096, len(content), 4096), len(content) - 1)]
    for n in rng.choice(len(content), 60, replace=False):
        flipped = bytearray(content)
        flipped[n] ^= 1 << int(rng.integers(8))
        cuts.append(bytes(flipped))
    with caplog.at_level(logging.WARNING, "bigclf"):
        for damaged in cuts:
            file.write_bytes(damaged)
            facts = directory.newest(1).facts
            assert (facts["epoch"], facts["segment"]) < (intact["epoch"], intact["segment"])
    assert "passed over" in caplog.text and file.name.split("-")[0] in caplog.text
    resumed = fit(shards, run_dir=tmp_path / "run", resume=True, **shape, **options())
    assert resumed.digest() == whole.digest()


def test_with_no_checkpoint_left_whole_the_run_starts_afresh(shards, tmp_path, quiet):
    shape, whole, names = interrupted(shards, tmp_path)
    for name in names:
        (tmp_path / "run" / name).write_bytes(b"")
    assert fit(shards, run_dir=tmp_path / "run", resume=True, **shape, **options()).digest() == whole.digest()


@pytest.mark.parametrize("failing", ["once", "always"])
def test_a_full_disk_costs_the_new_checkpoint_never_the_old_one(shards, failing, tmp_path, monkeypatch, caplog, quiet):
    shape = {**SHAPES["dcd"], "checkpoint_every": 0}
    whole = fit(shards, **shape, **options())
    real, calls, kept = files.publishing, [], []

    @contextlib.contextmanager
    def full(path, *mode):
        calls.append(path)
        is_checkpoint = os.path.basename(path).startswith(("state-", "rows-"))
        if is_checkpoint and len(calls) > 8 and (failing == "always" or len(calls) < 10):
            kept.append([n for n in os.listdir(tmp_path / "run") if n.startswith("state-")])
            with real(path, *mode) as beside:
                with open(beside, "wb") as file:
                    file.write(b"half of it")
                raise OSError(errno.ENOSPC, "No space left on device")
        with real(path, *mode) as beside:
            yield beside

    monkeypatch.setattr(files, "publishing", full)
    with caplog.at_level(logging.WARNING, "bigclf"):
        model = fit(shards, run_dir=tmp_path / "run", **shape, **options())
    assert model.digest() == whole.digest() and "No space left" in caplog.text
    assert kept and all(kept)  # whenever a write failed an older checkpoint stood there, and stands still
    directory = RunDirectory(tmp_path / "run")
    assert directory.newest(1) is not None
    assert not [name for name in os.listdir(tmp_path / "run") if ".tmp-" in name]
    if failing == "always":
        (tmp_path / "run/model.bigclf").unlink()
        monkeypatch.setattr(files, "publishing", real)
        assert fit(shards, run_dir=tmp_path / "run", resume=True, **shape, **options()).digest() == whole.digest()


# Data that are wrong, or become so


@pytest.mark.parametrize("how", ["replaced", "touched", "gone"])
def test_a_file_that_changes_between_reads_is_an_error_that_names_it(tmp_path, how, quiet):
    made = small(tmp_path / "shards", 900, shard_nnz=3000)
    assert len(made.files) > 1
    victim = made.files[1]

    def change(record):
        if how == "replaced":
            shutil.copy(made.files[0], victim)
        elif how == "touched":
            os.utime(victim, (1, 1))
        else:
            os.remove(victim)

    with pytest.raises(DataError, match="since it was first read") as caught:
        fit(made, algo="pa1", epochs=3, memory=SMALL, callbacks=(change,), **options())
    assert caught.value.file == victim


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_is_an_error_that_names_its_row(value, rows):
    x, y = rows[0].copy(), rows[1]
    x.data[x.indptr[123]] = value
    for matrix in (x, x.toarray()):
        with pytest.raises(DataError, match="NaN or infinite") as caught:
            fit(matrix, y, **options())
        assert caught.value.row == 123 and caught.value.column == str(x.indices[x.indptr[123]])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_shard_with_such_a_value_is_an_error_that_names_file_row_group_and_row(value, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    values = [[1.0, 2.0], [3.0], [4.0, 5.0], [float(value)]]
    columns = {"label": [0, 1, 0, 1], "indices": pa.array([[0, 1], [2], [0, 2], [1]], pa.list_(pa.int32())),
               "values": pa.array(values, pa.list_(pa.float32()))}  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "foreign.parquet", row_group_size=2)
    with pytest.raises(DataError, match="NaN|infinite") as caught:
        fit(tmp_path / "foreign.parquet", **options())
    assert caught.value.file.endswith("foreign.parquet")
    assert (caught.value.row_group, caught.value.row, caught.value.column) == (1, 1, "values")


def test_labels_and_weights_that_are_wrong_name_their_row(rows):
    x, y = rows[0][:10], rows[1][:10]
    for labels in ([*y[:9].astype(float), np.nan], [*y[:9].tolist(), None]):
        with pytest.raises(DataError) as caught:
            fit(x, labels, **options())
        assert caught.value.row == 9 and caught.value.column == "label"
    with pytest.raises(DataError, match="mixed types"):
        fit(x, [*y[:9].tolist(), "one"], **options())
    for weight in (-1.0, np.nan, np.inf):
        with pytest.raises(DataError, match="negative, NaN or infinite") as caught:
            fit(x, y, sample_weight=[1.0] * 4 + [weight] + [1.0] * 5, **options())
        assert caught.value.row == 4
    with pytest.raises(DataError, match="every row weight is zero"):
        fit(x, y, sample_weight=np.zeros(10), **options())


def test_one_class_or_no_rows_is_refused_before_training(rows, tmp_path):
    x, y = rows
    with pytest.raises(DataError, match="label 1"):
        fit(x[:5], np.ones(5, int), **options())
    with pytest.raises(DataError, match="no rows"):
        fit(x[:0], y[:0], **options())
    one = shards_of(tmp_path / "one", x[:5], np.zeros(5))
    with pytest.raises(DataError):
        fit(one, **options())
    empty = shards_of(tmp_path / "empty", sp.csr_matrix((0, D), dtype=np.float32), np.zeros(0))
    with pytest.raises(DataError):
        fit(empty, **options())


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"speed": 0.1}, TypeError, "speed.*no method has it.*dcd takes C"),
        ({"algo": "perceptron", "C": 1.0}, TypeError, "C has no effect.*dcd, .*pa1, pa2"),
        ({"algo": "pa1", "tol": 0.1}, TypeError, "tol has no effect.*pa1"),
        ({"algo": "pa1", "working_set": 0.1}, TypeError, "working_set.*dcd"),
        ({"algo": "perceptron", "loss": "hinge"}, TypeError, "loss"),
        ({"algo": "gibberish"}, ValueError, "gibberish.*bigclf algorithms"),
        ({"C": 0}, ValueError, "0 < C"),
        ({"tol": -1}, ValueError, "tol"),
        ({"epochs": 0}, ValueError, "epochs"),
        ({"epochs": 1.5}, ValueError, "epochs"),
        ({"workers": bigclf.Workers(threads=0)}, ValueError, "threads"),
        ({"seed": -1}, ValueError, "seed"),
        ({"max_seconds": 0}, ValueError, "max_seconds"),
        ({"dtype": "float16"}, ValueError, "dtype"),
        ({"multiclass": "tree"}, ValueError, "multiclass"),
        ({"bias": "free"}, ValueError, "bias='free'.*dcd"),
        ({"class_weight": {7: 1.0}}, ValueError, "7.*not one of the classes"),
        ({"class_weight": {1: -1.0}}, ValueError, "class_weight"),
        ({"class_weight": "even"}, ValueError, "balanced"),
        ({"resume": True}, ValueError, "run_dir"),
        ({"workers": 0}, ValueError, "workers"),
        ({"workers": "two"}, ClusterError, "two.*port"),
        ({"columns": {"label": "y"}}, TypeError, "columns"),
        ({"memory": "plenty"}, ValueError, "plenty"),
    ],
    ids=str,
)
def test_what_has_no_effect_or_no_sense_is_refused_by_name(rows, given, error, words):
    with pytest.raises(error, match=words):
        fit(rows[0][:20], rows[1][:20], **given, **options())


def test_files_bring_their_own_labels_and_weights(shards, rows):
    with pytest.raises(TypeError, match="y has no effect with files"):
        fit(shards, rows[1], **options())
    with pytest.raises(TypeError, match="sample_weight has no effect with files"):
        fit(shards, sample_weight=np.ones(4000), **options())
    with pytest.raises(TypeError, match=r"fit\(X, y\)"):
        fit(rows[0], **options())


def test_the_kinds_of_rows_in_memory_are_one_and_the_same(rows, quiet):
    import pandas as pd

    x, y = rows[0][:200], rows[1][:200]
    base = fit(x, y, algo="pa1", epochs=2, **options())
    kinds = [x.toarray(), x.astype(np.float64), sp.csr_array(x), sp.csc_matrix(x), pd.DataFrame(x.toarray())]
    for kind in kinds:
        assert fit(kind, y, algo="pa1", epochs=2, **options()).digest() == base.digest(), type(kind)
    named = fit(x, np.where(y == 1, "yes", "no"), algo="pa1", epochs=2, **options())
    np.testing.assert_array_equal(named.coef_, base.coef_)
    assert named.classes_.tolist() == ["no", "yes"]


def test_rows_in_memory_are_not_written_to(rows, quiet):
    x, y = rows[0].copy(), rows[1].copy()
    source = Arrays(x, y)
    assert np.shares_memory(source.whole().values, x.data) and np.shares_memory(source.whole().indices, x.indices)
    before = [array.copy() for array in (x.data, x.indices, x.indptr, y)]
    for algo in ("dcd", "pa1"):
        fit(x, y, algo=algo, epochs=2, **options())
    for array, was in zip((x.data, x.indices, x.indptr, y), before, strict=True):
        np.testing.assert_array_equal(array, was)


def test_class_weights_that_would_have_no_effect_are_refused(rows):
    """PA's step does not know a weight, so nothing but leaving rows out has a meaning."""
    with pytest.raises(ValueError, match="class weights of 0 and 1 only"):
        fit(*rows, algo="pa", class_weight={1: 50.0}, **options())
    fit(*rows, algo="pa", class_weight={1: 1.0}, epochs=1, **options())


def test_a_class_may_be_named_by_its_text(rows):
    by_number = fit(*rows, algo="pa1", class_weight={1: 3.0, -1: 0.5}, epochs=2, **options())
    by_text = fit(*rows, algo="pa1", class_weight={"1": 3.0, "-1": 0.5}, epochs=2, **options())
    plain = fit(*rows, algo="pa1", epochs=2, **options())
    assert np.array_equal(by_number.coef_, by_text.coef_) and not np.array_equal(by_number.coef_, plain.coef_)


def test_resume_refuses_another_start(rows, tmp_path):
    one, other = (fit(*rows, algo="pa1", epochs=1, seed=seed, **options()) for seed in (1, 2))
    fit(*rows, algo="pa1", epochs=1, init=one, run_dir=tmp_path / "run", **options())
    with pytest.raises(RunError, match="init"):
        fit(*rows, algo="pa1", epochs=1, init=other, run_dir=tmp_path / "run", resume=True, **options())


def test_a_finished_run_comes_back_with_its_whole_result(rows, tmp_path):
    first = fit(*rows, algo="perceptron", epochs=4, run_dir=tmp_path / "run", **options()).result_
    again = fit(*rows, algo="perceptron", epochs=4, run_dir=tmp_path / "run", resume=True, **options()).result_
    assert again.mistakes == first.mistakes > 0 and again.bytes_read == first.bytes_read
    epochs = [record["epoch"] for record in again.history]
    assert epochs == sorted(set(epochs)) and epochs[-1] == 4
    assert first.stopped == "epochs" and first.converged


def test_an_unfit_matrix_is_refused(rows):
    X, y = rows
    with pytest.raises(ValueError, match="Complex"):
        fit(X.toarray() + 1j, y, **options())
    broken = X.copy()
    broken.indptr[1] = broken.indptr[-1] + 7
    with pytest.raises(DataError, match="row lengths"):
        fit(broken, y, **options())


@pytest.mark.parametrize("name", ["tol", "seed", "checkpoint_every", "epochs", "max_seconds"])
def test_a_limit_that_is_no_number_is_refused_by_name(rows, name, tmp_path):
    with pytest.raises(ValueError, match=f"{name} must be a number"):
        fit(*rows, **(options() | {"run_dir": tmp_path, name: "a"}))


def test_many_labels_that_are_no_whole_numbers_are_warned_of(tmp_path, caplog):
    x, _ = random_rows(60, 8)
    y = np.arange(60) // 2 + 0.5
    data = shards_of(tmp_path / "rows", x, y)
    assert "30 distinct labels" in data.warnings[0] and data.with_real_labels().warnings == []
    for rows in ((x, y), (data,)):
        for loss, expected in ((None, 1), ("squared", 0)):
            caplog.clear()
            algo = "sgd" if loss else "perceptron"
            found = fit(*rows, algo=algo, loss=loss, epochs=1, progress=False).result_.warnings
            assert len(found) == expected == len(caplog.records) and all("squared" in text for text in found)
    assert fit(x, np.floor(y), algo="perceptron", epochs=1, progress=False).result_.warnings == []
