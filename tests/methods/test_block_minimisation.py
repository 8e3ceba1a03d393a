"""The family of block minimisation as settings of one solver: the same optimum, the same bits, and what each of them
does with its blocks and its cache."""

import functools
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from making import block_of, fit, interrupted_after, random_rows, shards_of

import bigclf
from bigclf.cli import main
from bigclf.data.dataset import Dataset
from bigclf.methods import METHODS, SCHEDULES, resolve
from bigclf.stream import blocks as stream
from bigclf.stream.raw_store import chunk_sizes
from bigclf.training.plan import make_plan, units_of
from bigclf.training.problems import make_problems
from bigclf.training.roles.dual import DualLearner
from bigclf.training.roles.learner import Assignment
from bigclf.training.schedules import TAKES, cached, pieces, selective
from bigclf.training.visit import Lesson, Scratch

D, N = 60, 4000
SMALL = "14.8MB"  # Arrow's allocator and the queues take 12 of them: the rows do not stay
FIXED = "13.2MB"  # and where there is no cache, half of them do not fit in a block
LOSSES = METHODS["dcd"].losses
FAMILY = [name for name in SCHEDULES if name != "auto"]
pytestmark = pytest.mark.filterwarnings("ignore:not converged")
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES)
every_other = pytest.mark.parametrize("schedule", FAMILY)


def given(schedule, **more):
    """Options of a run that streams; a cache is far smaller than the rows."""
    share = {"working_set": 0.1} if schedule != "fixed" else {}
    memory = FIXED if schedule == "fixed" else SMALL
    return {"schedule": schedule, "memory": memory, "progress": False, "C": 0.1, **share, **more}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    x, y = random_rows(N, D, 0.25, noise=1.0)
    return shards_of(tmp_path_factory.mktemp("family") / "shards", x, y, chunk_nnz=3000, shard_nnz=40_000)


def plan_of(source, memory=14_800_000, reads=9, threads=2, seed=0, **settings):
    problems = make_problems(np.arange(2), np.ones(2), resolve("dcd", None, None, None, settings))
    return make_plan(source, problems, memory=memory, dtype="float64", seed=seed, groups=1, threads=threads,
                     in_memory=False, reads=reads), problems[0]  # fmt: skip


# Laws


@pytest.fixture(scope="module")
def best_of(shards):
    """loss -> the certificate of an answer that is finer than those of the schedules."""
    return functools.cache(
        lambda loss: fit(shards, loss=loss, C=0.1, tol=1e-6, memory="1GB", progress=False).certificate
    )


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
@every_schedule
def test_all_of_them_find_the_optimum_and_prove_it(shards, best_of, schedule, loss):
    best = best_of(loss)
    model = fit(shards, loss=loss, tol=1e-3, epochs=100, **given(schedule))
    found = model.certificate
    assert model.result_.converged and 0 <= found["gap"] <= 1e-3
    assert found["primal"] >= best["dual"] and found["primal"] <= best["primal"] * (1 + 1e-3)
    assert found["dual"] <= best["primal"]


def test_numbers_to_predict_too(tmp_path):
    shards = shards_of(tmp_path / "s", *random_rows(N, D, 0.25, noise=1.0, real=True), real=True, chunk_nnz=3000)
    for loss in ("epsilon_insensitive", "squared_epsilon_insensitive"):
        found = [fit(shards, loss=loss, tol=1e-3, epochs=200, **given(name)).certificate for name in SCHEDULES]
        for one in found:
            assert one["gap"] <= 1e-3 and all(one["primal"] >= other["dual"] for other in found)


@every_other
def test_a_certificate_is_that_of_the_weights_it_comes_with(shards, schedule):
    model = fit(shards, tol=1e-2, bias=None, epochs=100, **given(schedule))
    x, y = random_rows(N, D, 0.25, noise=1.0)
    w = model.coef_[0]
    primal = 0.5 * w @ w + 0.1 * np.maximum(0, 1 - y * (x.astype(float) @ w)).sum()
    assert model.certificate["primal"] == pytest.approx(primal, rel=1e-12)


@every_other
def test_bits_repeat_whatever_the_threads_and_follow_the_seed(shards, schedule):
    runs = [
        fit(shards, tol=0, epochs=3, workers=bigclf.Workers(threads=threads), **given(schedule))
        for threads in (1, 2, 2)
    ]
    assert len({run.digest() for run in runs}) == 1 and runs[0].result_.repeatable
    assert fit(shards, tol=0, epochs=3, seed=1, **given(schedule)).digest() != runs[0].digest()


@every_other
@pytest.mark.parametrize("stop_after", [1, 4, 6])
def test_stopped_in_the_middle_and_resumed_it_has_the_bits_of_one_that_went_on(shards, schedule, stop_after, tmp_path):
    shape = dict(tol=0, epochs=4, segments=3, run_dir=tmp_path / "run", checkpoint_every=0, **given(schedule))
    whole = fit(shards, tol=0, epochs=4, segments=3, **given(schedule))
    with interrupted_after(stop_after):
        fit(shards, **shape)
    resumed = fit(shards, resume=True, **shape)
    assert resumed.digest() == whole.digest() and resumed.certificate == whole.certificate


@every_other
def test_every_read_certifies_and_the_gap_never_grows(shards, schedule):
    history = fit(shards, tol=0, epochs=6, **given(schedule)).result_.history
    gaps = [record["gap"] for record in history if "gap" in record]
    assert len(gaps) == 5 and gaps == sorted(gaps, reverse=True) and gaps[-1] < 0.3 * gaps[0]  # the first starts at 0


# What each of them is


def test_fixed_blocks_are_the_same_rows_in_every_read_in_another_order(shards):
    plan, _ = plan_of(shards, schedule="fixed")
    sizes = np.full(shards.n_chunks, plan.block_bytes // 3)  # three chunks a block
    reads = [[tuple(sorted(unit)) for unit in units_of(plan, shards.chunks, sizes, 0, epoch)] for epoch in (1, 2, 3)]
    assert len({frozenset(read) for read in reads}) == 1 and len({tuple(read) for read in reads}) == 3
    assert sorted(sum(reads[0], ())) == list(range(shards.n_chunks)) and len(reads[0]) > 3
    other, _ = plan_of(shards, schedule="fixed", seed=1)
    assert {*reads[0]} != {tuple(sorted(unit)) for unit in units_of(other, shards.chunks, sizes, 0, 1)}
    redrawn, _ = plan_of(shards, working_set=0)
    sets = [{tuple(sorted(unit)) for unit in units_of(redrawn, shards.chunks, sizes, 0, epoch)} for epoch in (1, 2)]
    assert sets[0] != sets[1]


def test_blocks_are_as_large_as_the_memory_allows(shards):
    sizes = []
    for memory in (12_700_000, 13_200_000, 13_700_000, 14_800_000):
        plan, _ = plan_of(shards, memory, schedule="fixed")
        parts = sum(size for name, size in plan.memory.items() if name not in ("planned", "budget"))
        assert parts == plan.memory["planned"] <= memory and plan.set_rows == 0
        sizes.append(plan.block_bytes)
    assert sizes == sorted(sizes) and len(set(sizes)) == 4
    for schedule in ("selective", "cached"):
        plan, _ = plan_of(shards, schedule=schedule)
        assert plan.memory["planned"] <= 14_800_000 and plan.set_rows > 0 and plan.block_bytes < sizes[-1]


@every_schedule
def test_as_many_blocks_are_in_memory_as_the_plan_counts(shards, schedule, monkeypatch):
    made = []

    class Counted(stream.Buffer):
        def __init__(self, *shape):
            made.append(shape)
            super().__init__(*shape)

    def held_up(self, *units):
        """Whoever learns is slower than the readers are."""
        for block in blocks(self, *units):
            end = time.monotonic() + 10
            while len(made) < self.ahead and time.monotonic() < end:
                time.sleep(0.001)
            yield block

    blocks = stream.Stream.blocks
    monkeypatch.setattr(stream.Stream, "blocks", held_up)
    monkeypatch.setattr(stream, "Buffer", Counted)
    plan = fit(shards, tol=0.5, epochs=2, workers=bigclf.Workers(threads=2), **given(schedule)).result_.plan
    largest = max(plan["block_bytes"], int(chunk_sizes(shards).max()))
    # a row of them takes 144 bytes, and 40 of the one block that is learned from: less than another block
    assert len(made) == plan["buffers"] == plan["memory"]["blocks"] // largest
    assert (plan["buffers"] == 2) == (schedule in ("fixed", "selective"))


@every_other
def test_the_plan_says_what_was_decided(shards, schedule):
    plan, _ = plan_of(shards, schedule=schedule)
    default = {"fixed": 10, "selective": 10, "cached": 3}[schedule]
    assert plan.same_bits()["schedule"] == schedule and plan.same_bits()["block_rounds"] == default
    assert plan.rounds == 0 and plan.sequential == (schedule == "cached")
    assert plan_of(shards, schedule=schedule, inner_rounds=4)[0].block_rounds == 4
    auto, _ = plan_of(shards)
    assert auto.schedule == "auto" and auto.block_rounds == 0 and auto.rounds > 0
    assert set(TAKES) == set(FAMILY)


@pytest.mark.parametrize("rounds", [1, 5])
def test_fixed_goes_over_each_block_so_many_times(shards, rounds, monkeypatch):
    seen = []
    go_over = DualLearner.go_over

    def noting(self, view, members, scores, scratch):
        seen.append(members.size)
        return go_over(self, view, members, scores, scratch)

    monkeypatch.setattr(DualLearner, "go_over", noting)
    record = fit(shards, tol=0.5, epochs=1, **given("fixed", inner_rounds=rounds)).result_.history[0]
    assert sum(seen) == rounds * N and record["rows"] == N  # what is judged before it is learned from counts once


def test_a_working_set_of_an_older_run_that_says_less_is_taken_up(shards):
    learner, blocks = learner_of(shards, "auto")
    for block in blocks[:4]:
        learner.take(block, Scratch(500))
    held = learner.carried_rows(midway=True)
    assert held["set.ids"].size
    again, _ = learner_of(shards, "auto")
    again.restore_rows({name: array for name, array in held.items() if name != "set.compacted"})
    assert again.set.threshold == learner.set.threshold
    np.testing.assert_array_equal(again.set.block().ids, learner.set.block().ids)


def learner_of(shards, schedule, **settings):
    """A learner, and all the rows as blocks of 500."""
    plan, problem = plan_of(shards, schedule=schedule, **settings)
    learner = DualLearner(Assignment(problem, plan, 0, 0, N, shards))
    learner.begin(problem.setting.shared(D, "float64"), Lesson(0))
    learner.begin_segment(1, 0)
    x, y = random_rows(N, D, 0.25, noise=1.0)
    blocks = [block_of(x[a : a + 500], y[a : a + 500])._replace(ids=np.arange(a, a + 500)) for a in range(0, N, 500)]
    return learner, blocks


def test_the_cache_of_selective_holds_the_rows_nearest_to_the_margin(shards):
    learner, blocks = learner_of(shards, "selective", working_set=0.05, inner_rounds=3)
    scratch, everything = Scratch(N), np.arange(500)
    for block in blocks[:3]:
        selective(learner, block, everything, scratch)
    held = learner.set
    scores = scratch.scores(500).copy()
    mine = np.ones(500, bool)
    mine[learner.outside(blocks[2], everything)] = False
    inside = learner.rows.alpha[held.block().ids]
    share = ((inside > 0) & (inside < 1.0)).mean()
    alpha = learner.rows.alpha[:1500]
    assert 100 < held.n_rows <= learner.plan.set_rows
    assert share > 1.5 * ((alpha > 0) & (alpha < 1.0)).mean()  # rows inside their box are let in first
    kept = held.scores[: held.n_rows].min()
    assert scores[~mine].max() <= max(kept, held.threshold) + 1e-5  # nobody outside is better than the worst inside


def test_rows_of_the_cache_are_learned_from_with_every_block_and_not_twice(shards, monkeypatch):
    learner, blocks = learner_of(shards, "selective", working_set=0.05, inner_rounds=2)
    scratch = Scratch(N)
    for block in blocks:
        selective(learner, block, np.arange(500), scratch)
    held = learner.set
    visits = []
    monkeypatch.setattr(learner, "teach", lambda view, order, scores: visits.append(view.ids[order]) or NOTHING)
    ids, own = held.block().ids.copy(), blocks[0].ids
    selective(learner, blocks[0], np.arange(500), scratch)
    assert sorted(np.concatenate(visits)) == sorted({*ids, *own}) and np.isin(own, ids).any()


class NOTHING:
    """The counts of a pass that moves nothing."""

    rows = mistakes = updates = 0
    loss = gap = 0.0


@pytest.mark.parametrize("visits", [1, 3])
def test_cached_visits_each_row_that_comes_and_so_many_of_the_cache(shards, visits, monkeypatch):
    learner, blocks = learner_of(shards, "cached", working_set=0.1, inner_rounds=visits)
    scratch, seen = Scratch(N), []
    kernel = learner.kernel

    def noting(view, order, *rest):
        seen.append(view.ids[order])
        return kernel(view, order, *rest)

    monkeypatch.setattr(learner, "kernel", noting)
    for block in blocks:
        cached(learner, block, np.arange(500), scratch)
    rows, counts = np.unique(np.concatenate(seen), return_counts=True)
    assert rows.size == N and counts.sum() == visits * N  # every row once at least, and the quantum to the row
    assert learner.set.n_rows <= learner.plan.set_rows < N // 5


def test_rows_stuck_by_more_than_the_largest_violation_of_the_read_before_leave_the_cache(shards):
    learner, blocks = learner_of(shards, "cached", working_set=0.5)
    scratch = Scratch(N)
    for block in blocks[:2]:
        cached(learner, block, np.arange(500), scratch)
    held, before = learner.set, learner.set.n_rows
    assert (
        learner.visits.stuck[0] == np.inf and learner.visits.stuck[1] > 0
    )  # nothing leaves in the first read unless it must
    learner.begin_segment(2, 0)
    assert 0 < learner.visits.stuck[0] < np.inf and learner.visits.stuck[1] == 0
    low = np.median(held.scores[:before])
    learner.visits.stuck[0] = -low
    stuck = held.block().ids[held.scores[:before] < low].copy()
    learner.visits.go_on(1)
    assert (
        stuck.size > 100
        and held.n_rows == before - stuck.size
        and held.outside(stuck, np.arange(stuck.size)).size == stuck.size
    )


def test_pieces_cover_all_rows_and_fit():
    lengths = np.random.default_rng(0).integers(0, 20, 300)
    for rows, entries in ((7, 1000), (1000, 40), (1, 20), (5, 30)):
        found = [*pieces(lengths, rows, entries)]
        assert [i for piece in found for i in range(piece.start, piece.stop)] == [*range(300)]
        assert all(p.stop - p.start <= rows and lengths[p].sum() <= entries for p in found)


def test_a_row_that_is_too_large_for_the_cache_is_learned_from_where_it_stands(tmp_path):
    import scipy.sparse as sp

    x, y = random_rows(2000, 400, 0.02, noise=1.0)
    x = sp.vstack([sp.csr_matrix(np.ones((1, 400), np.float32)), x]).tocsr()
    shards = shards_of(tmp_path / "s", x, np.concatenate([[1], y]), chunk_nnz=1500)
    found = fit(shards, tol=1e-3, epochs=300, **given("cached", memory="16MB", working_set=0.02)).certificate
    assert found["gap"] <= 1e-3


# What is refused


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"schedule": "best"}, ValueError, "schedule must be one of auto, fixed, selective, cached"),
        ({"schedule": 3}, ValueError, "schedule must be one of"),
        ({"schedule": "fixed", "groups": 2}, ValueError, "schedule='fixed'.*groups=2"),
        ({"schedule": "fixed", "working_set": 0.1}, TypeError, "working_set.*fixed"),
        ({"schedule": "cached", "working_set": 0}, ValueError, "working_set=0.*cached"),
        ({"schedule": "selective", "inner_rounds": 0}, ValueError, "inner_rounds=0.*selective"),
        ({"schedule": "cached", "memory": "1GB"}, ValueError, "schedule='cached' has no effect: every row fits"),
        ({"schedule": "cached", "epochs": 1}, ValueError, "schedule='cached' has no effect: there is one read only"),
        ({"schedule": "fixed", "algo": "pa1"}, TypeError, "schedule has no effect.*dcd"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_by_name(shards, settings, error, words):
    with pytest.raises(error, match=words):
        fit(shards, **{"memory": SMALL, "progress": False, **settings})


def test_the_choices_are_listed():
    (dcd,) = [method for method in bigclf.algorithms() if method["name"] == "dcd"]
    (told,) = [param for param in dcd["parameters"] if param["name"] == "schedule"]
    assert told["choices"] == list(SCHEDULES) and told["default"] == "auto"
    said = CliRunner().invoke(main, ["algorithms", "dcd"]).output
    assert "schedule=auto in {auto, fixed, selective, cached}" in said


def test_on_the_command_line(shards, tmp_path):
    path = str(tmp_path / "model")
    done = CliRunner().invoke(
        main, ["fit", *shards.files, "-o", path, "--C", "0.1", "--memory", SMALL, "--param", "schedule=cached",
               "--param", "working_set=0.1", "--tol", "1e-2"]
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert bigclf.load(path).method["schedule"] == "cached" and "schedule=cached" in done.output


# Losses without stuck rows: no working set, and each block is gone over until it lacks little


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """One row group of many chunks."""
    x, y = random_rows(N, D, 0.25, noise=1.0)
    x = x.tocsr()
    x.sort_indices()
    table = pa.table({
        "label": y,
        "indices": pa.ListArray.from_arrays(x.indptr.astype(np.int32), x.indices.astype(np.int32)),
        "values": pa.ListArray.from_arrays(x.indptr.astype(np.int32), x.data.astype(np.float32)),
    })  # fmt: skip
    path = tmp_path_factory.mktemp("foreign") / "rows.parquet"
    pq.write_table(table, path, row_group_size=N)
    return path


def of(path):
    return bigclf.Dataset(path, target_nnz=3000)


SMOOTH = {"loss": "logistic", "memory": "22.8MB", "progress": False, "C": 10.0}


def test_blocks_of_smooth_losses_are_gone_over_until_they_lack_little(foreign):
    model = fit(of(foreign), tol=1e-4, epochs=200, **SMOOTH)
    once = fit(of(foreign), tol=1e-4, epochs=model.result_.reads, inner_rounds=0, **SMOOTH)
    assert (once.result_.plan["block_rounds"], model.result_.plan["block_rounds"]) == (0, 4)
    assert not model.result_.plan["resident"] and model.certificate["gap"] <= 1e-4
    assert once.certificate["gap"] > 5 * model.certificate["gap"]
    assert fit(of(foreign), tol=1e-4, epochs=2, inner_rounds=2, **SMOOTH).result_.plan["block_rounds"] == 2


def test_after_the_first_read_chunks_of_a_row_group_part(foreign, tmp_path):
    rows = of(foreign)
    model = fit(rows, tol=0, epochs=4, **SMOOTH)
    plan = model.result_.plan
    assert plan["redrawn"] and plan["by_row_group"] and plan["block_bytes"] < 4 * chunk_sizes(rows).max()
    shape = dict(tol=0, epochs=4, run_dir=tmp_path / "run", checkpoint_every=0, **SMOOTH)
    with interrupted_after(2):
        fit(rows, **shape)
    decoded = []
    whole, part = Dataset.decode, Dataset.parts
    with pytest.MonkeyPatch.context() as patch:  # a process that has stored nothing decodes all of it once
        patch.setattr(Dataset, "decode", lambda *given: decoded.append(given) or whole(*given))
        patch.setattr(Dataset, "parts", lambda *given: decoded.append(given) or part(*given))
        resumed = fit(rows, resume=True, **shape)
    assert len(decoded) == 1
    assert resumed.digest() == model.digest() and resumed.certificate == model.certificate


def test_a_run_that_was_begun_before_keeps_its_order_and_goes_over_its_blocks_once(foreign):
    rows = of(foreign)
    problems = make_problems(np.arange(2), np.ones(2), resolve("dcd", "logistic", None, None, {}))
    shape = dict(memory=22_800_000, dtype="float64", seed=0, groups=1, threads=2, in_memory=False, reads=9)
    new = make_plan(rows, problems, **shape)
    old = make_plan(rows, problems, before={"block_rounds": 0, "by_row_group": True}, **shape)
    assert (new.redrawn, new.block_rounds) == (True, 4) and (old.redrawn, old.block_rounds) == (False, 0)
    assert "redrawn" not in old.same_bits() and new.same_bits()["redrawn"]
    assert make_plan(rows, problems, before=new.as_json(), **shape).same_bits() == new.same_bits()
    hinge = make_problems(np.arange(2), np.ones(2), resolve("dcd", "hinge", None, None, {}))
    assert make_plan(rows, hinge, **{**shape, "memory": 26_000_000}).block_rounds == 0
