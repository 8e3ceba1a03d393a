"""The plan's own arithmetic: how chunks are cut and drawn, and what a budget exactly at the least gives."""

from types import SimpleNamespace

import numpy as np
import pytest
from test_training import Pretended

from bigclf.errors import MemoryBudgetError
from bigclf.methods import resolve
from bigclf.stream import raw_store as raw
from bigclf.training import plan as module
from bigclf.training.plan import Sizes, group_edges, make_plan, run_length, segment_units, settle, units_of
from bigclf.training.problems import make_problems


def problems_of(algo="dcd", classes=2, loss=None, **given):
    return make_problems(np.arange(classes), np.ones(classes), resolve(algo, loss, None, None, given))


def plan_of(source, problems, memory, **more):
    shape = dict(dtype="float64", seed=0, groups=1, threads=2, in_memory=False, reads=9)
    return make_plan(source, problems, memory=memory, **{**shape, **more})


def least_of(source, problems, **more):
    """The smallest budget that is not refused, to the byte."""
    low, high = 0, 10**12
    while high - low > 1:
        middle = (low + high) // 2
        try:
            plan_of(source, problems, middle, **more)
            high = middle
        except MemoryBudgetError:
            low = middle
    return high


LARGE = Pretended(400, 5000, 30, 1000)


@pytest.mark.parametrize("algo", ["dcd", "pa1", "newton"])
def test_a_budget_of_exactly_the_least_is_used_to_the_last_byte_or_nearly(algo):
    problems = problems_of(algo, loss="logistic" if algo == "newton" else None)
    least = least_of(LARGE, problems)
    plan = plan_of(LARGE, problems, least)
    assert least - 300_000 < plan.memory["planned"] <= least
    with pytest.raises(MemoryBudgetError, match="would do") as refused:
        plan_of(LARGE, problems, least - 1)
    told = float(str(refused.value).split("memory=")[-1].split(" MB")[0])
    assert (told - 1) * 1e6 < least <= told * 1e6


def test_large_row_groups_are_decoded_whole_where_the_budget_has_room_for_that():
    source = Pretended(400, 5000, 30, 1000)
    source.in_parts[:] = True
    source.largest_group, source.written_here = (500_000, 15_000_000), False
    problems = problems_of("pa1")
    parts = plan_of(source, problems, 10**9, reads=1)
    least = next(memory for memory in range(10**8, 10**10, 10**7) if plan_of(source, problems, memory).whole)
    plan, before = plan_of(source, problems, least), plan_of(source, problems, least - 10**7)
    assert plan.resident and before.resident and not before.whole and not parts.whole
    more = plan.memory["decoding"] - before.memory["decoding"]
    assert more > module.DECODERS * 15_000_000 * 8 and before.memory["planned"] + more <= least
    assert plan.memory["planned"] <= least and plan.same_bits() == before.same_bits()
    with pytest.raises(StopIteration):  # one of our own has none in parts
        next(m for m in range(10**9, 10**10, 10**9) if plan_of(LARGE, problems, m).whole)


def test_rows_are_shuffled_in_runs_of_a_bounded_length():
    def run(rows, entries, algo="pa1", loss=None, bias=None):
        source = SimpleNamespace(learnable=(rows, rows * entries), binary=False, index_width=4,
                                 row_constant=False, n_rows=rows, nnz=rows * entries)  # fmt: skip
        return run_length(source, resolve(algo, loss, None, bias, {}))

    def row_bytes(entries):
        return entries * 8 + raw.ROW_BYTES

    assert run(10**8, 0) == min(512, int(module.RUN_BYTES / row_bytes(0)))
    assert run(10**8, 100) == int(module.RUN_BYTES / row_bytes(100))
    assert run(10**7, 10**5) == 1
    few = int(module.SMALL_BYTES / row_bytes(100))
    assert run(few, 100) == 1 and run(few + 1, 100) == min((few + 1) // module.UNITS, int(64000 / row_bytes(100)))
    assert max(run(10**9, entries) for entries in range(4)) <= 512
    for loss in ("hinge", "logistic"):  # the bias is in every row
        assert run(10**8, 20, "dcd", loss, "feature") == 1
        assert run(10**8, 20, "dcd", loss) == 8


@pytest.mark.parametrize("seed", range(10))
def test_groups_have_about_as_many_entries_and_a_chunk_at_least(seed):
    rng = np.random.default_rng(seed)
    nnz = rng.integers(0, 100, int(rng.integers(1, 20))) * rng.integers(0, 2, 1)
    for groups in range(1, nnz.size + 1):
        edges = group_edges(nnz, groups)
        assert len(edges) == groups and edges[0][0] == 0 and edges[-1][1] == nnz.size
        assert all(a < b for a, b in edges) and all(a[1] == b[0] for a, b in zip(edges, edges[1:], strict=False))
    with pytest.raises(ValueError, match="smaller"):
        group_edges(nnz, nnz.size + 1)


def test_even_chunks_are_cut_evenly_and_one_large_one_stands_alone():
    assert group_edges(np.full(12, 7), 4) == [(0, 3), (3, 6), (6, 9), (9, 12)]
    assert group_edges(np.array([1, 1, 100, 1, 1]), 2) == [(0, 3), (3, 5)]
    assert group_edges(np.array([100, 1, 1]), 3) == [(0, 1), (1, 2), (2, 3)]
    assert group_edges(np.array([1, 1, 100]), 3) == [(0, 1), (1, 2), (2, 3)]


def blocks_plan(**more):
    held = dict(groups=[(0, 10)], sequential=True, by_row_group=False, in_order=False, redrawn=False, schedule="auto")
    return SimpleNamespace(**{**held, "block_bytes": 30, "seed": 5, "segments": 3, **more})


def test_a_block_is_as_many_chunks_as_fit_and_one_at_least():
    sizes = np.array([10, 20, 5, 40, 10, 10, 10, 10, 25, 5])
    found = [unit.tolist() for unit in units_of(blocks_plan(), None, sizes, 0, 1)]
    assert found == [[0, 1], [2], [3], [4, 5, 6], [7], [8, 9]]
    parts = [segment_units(blocks_plan(), found, segment) for segment in range(3)]
    assert parts == [found[:2], found[2:4], found[4:]]


def test_an_order_is_drawn_anew_in_each_epoch_and_row_groups_stay_together():
    chunks = SimpleNamespace(file=np.zeros(10, np.int32), row_group=np.repeat(np.arange(5), 2))
    drawn = blocks_plan(sequential=False, by_row_group=True)
    orders = [np.concatenate(units_of(drawn, chunks, np.full(10, 1), 0, epoch)) for epoch in (0, 1)]
    for order in orders:
        assert sorted(order.tolist()) == list(range(10))
        assert (order[::2] // 2 == order[1::2] // 2).all()
    assert orders[0].tolist() != orders[1].tolist()
    in_order = blocks_plan(sequential=False, by_row_group=True, in_order=True)
    order = np.concatenate(units_of(in_order, chunks, np.full(10, 1), 0, 0))
    assert (order[::2] + 1 == order[1::2]).all() and order[::2].tolist() == (orders[0][::2] // 2 * 2).tolist()
    redrawn = blocks_plan(sequential=False, by_row_group=True, in_order=True, redrawn=True)
    first, later = (np.concatenate(units_of(redrawn, chunks, np.full(10, 1), 0, epoch)) for epoch in (1, 2))
    assert sorted(later.tolist()) == list(range(10))
    assert (first[::2] + 1 == first[1::2]).all() and (later[::2] // 2 != later[1::2] // 2).any()  # stored by then
    fixed = blocks_plan(sequential=False, schedule="fixed")
    sets = [{frozenset(u.tolist()) for u in units_of(fixed, chunks, np.full(10, 10), 0, epoch)} for epoch in (1, 2)]
    turns = [[u[0] for u in units_of(fixed, chunks, np.full(10, 10), 0, epoch)] for epoch in (1, 2)]
    assert sets[0] == sets[1] and turns[0] != turns[1]


@pytest.mark.parametrize(("groups", "segments", "copies"), [(1, 1, 1), (1, 4, 1), (3, 1, 5), (3, 4, 8)])
def test_several_groups_have_room_for_the_copies_they_join(groups, segments, copies):
    edges = group_edges(LARGE.chunks.nnz, groups)
    sizes = Sizes(LARGE, problems_of("pa1"), "float64", edges, False, segments)
    assert sizes.copies == copies and sizes.state == copies * sizes.one_state == copies * 8 * 1001


def test_working_sets_share_memory_by_their_values_of_c():
    problems = [problems_of(C=value)[0] for value in (1.0, 8.0, 1000.0)]
    shares = module._shares(problems)
    claims = np.array([1 / 16, 1 / 16, 1.0])
    np.testing.assert_allclose(shares, claims * 3 / claims.sum())
    assert module._shares(problems[:1] * 2) == ()


def test_a_schedule_that_has_no_effect_is_refused_and_auto_never_is():
    assert plan_of(LARGE, problems_of(), 10**12).resident
    with pytest.raises(ValueError, match="every row fits"):
        plan_of(LARGE, problems_of(schedule="cached"), 10**12)
    with pytest.raises(ValueError, match="one read only"):
        plan_of(LARGE, problems_of(schedule="cached"), 5 * 10**8, reads=1)
    assert plan_of(LARGE, problems_of(), 10**12, reads=1).store_bytes == 0


def test_what_is_sampled_depends_on_what_was_asked_for():
    sizes = Sizes(LARGE, problems_of("newton", loss="logistic"), "float64", [(0, 400)], False, 1)
    assert module._wanted_sample(sizes, resident=True) == 1
    assert module._wanted_sample(sizes, resident=False) == module.SAMPLED
    assert module._useful(sizes, 0, 1.0) == sizes.kept(module.SAMPLED) > 0
    whole = Sizes(LARGE, problems_of("newton", loss="logistic", sample=1.0), "float64", [(0, 400)], False, 1)
    assert module._useful(whole, 0, 1.0) == 0 and module._wanted_sample(whole, resident=False) == 1


def test_two_classes_are_never_learned_in_touched_places():
    wide = Pretended(40, 5000, 30, 10**9)
    with pytest.raises(MemoryBudgetError) as refused:
        settle(wide, problems_of("pa1"), memory=10**9, dtype="float64", seed=0, groups=1, threads=2,
               in_memory=False, reads=9)  # fmt: skip
    assert "touched" not in str(refused.value)


def test_a_part_of_an_epoch_takes_about_half_a_minute():
    source = SimpleNamespace(nnz=30 * 10**9, n_chunks=1000)
    assert module._segments(source, 1, 1) == 10  # 10 ns an entry
    assert module._segments(source, 3, 1) == 30
    assert module._segments(source, 10, 50) == 20  # no more than a group has chunks
    assert module._segments(SimpleNamespace(nnz=1, n_chunks=0), 1, 1) == 1
    assert module._segments(SimpleNamespace(nnz=30 * 10**9, n_chunks=1), 1, 1) == 1


def test_a_budget_of_the_least_to_the_byte_is_not_refused():
    problems = problems_of("pa1")
    sizes = Sizes(LARGE, problems, "float64", [(0, 400)], False, module._segments(LARGE, 1, 1))
    _, least, _ = module._least(sizes, 10**12, True, 0, 1.0)
    assert not plan_of(LARGE, problems, least).resident
    with pytest.raises(MemoryBudgetError, match="would do"):
        plan_of(LARGE, problems, least - 1)


def test_a_block_is_gone_over_as_often_as_its_schedule_or_the_user_says():
    memory = 5 * 10**8
    assert plan_of(LARGE, problems_of(), memory).block_rounds == 0
    for schedule in ("fixed", "selective", "cached"):
        plan = plan_of(LARGE, problems_of(schedule=schedule), memory)
        assert plan.block_rounds == module.BLOCK_ROUNDS[schedule] > 0 and plan.schedule == schedule
        assert plan_of(LARGE, problems_of(schedule=schedule, inner_rounds=7), memory).block_rounds == 7


def test_certificates_are_made_apart_from_learning_for_one_problem_of_one_group_alone():
    def apart(problems, groups=1, schedule="auto", has_set=True):
        return Sizes(LARGE, problems, "float64", group_edges(LARGE.chunks.nnz, groups), False, 1).proves_apart(
            has_set, schedule
        )

    assert apart(problems_of())
    assert not apart(problems_of(classes=3)) and not apart(problems_of(), groups=2)
    assert not apart(problems_of(), schedule="fixed") and not apart(problems_of(), has_set=False)


def test_free_rows_have_room_for_an_eighth_of_all_and_no_more_than_the_budget_has_left():
    def room(resident, rows, memory, set_rows=0, climbs=True):
        sizes = SimpleNamespace(group_rows=rows, fields=2, at_once=1, climbs=climbs, climbing=lambda has_set: 1000)
        parts = {"state": 5000}
        found = module._room_to_climb(sizes, parts, memory, dict(resident=resident, set_rows=set_rows))
        assert (parts.get("conjugate gradients") == found * module.BYTES_A_ROW + 1000) == (found > 0)
        return found

    assert room(True, 10**7, 10**12) == 2 * 10**7 // 8
    assert room(True, 500_000, 10**12) == module.CLIMB_ROWS and room(True, 30, 10**12) == 60
    assert room(False, 10**7, 10**12, set_rows=777) == 777 and room(False, 10**7, 10**12) == 0
    assert room(True, 30, 10**12, climbs=False) == 0
    enough = 5000 + module.SLACK_BYTES + 60 * module.BYTES_A_ROW + 1000
    assert room(True, 30, enough) == 60 and room(True, 30, enough - 1) == 0


def test_touched_places_share_what_is_left_with_the_best_state_that_is_kept():
    wide = Pretended(40, 5000, 30, 10**7)
    wide.classes = np.arange(3000)
    problems = make_problems(wide.classes, np.ones(3000), resolve("pa1_mc", None, None, None, {}))
    shape = dict(dtype="float64", groups=1, in_memory=False, reads=5)
    once = module._places(wide, problems, 10**9, shape)
    kept = module._places(wide, problems, 10**9, {**shape, "keeps_best": True})
    assert 0.6 * once < kept < 0.75 * once  # one state more beside the state itself and the answer's two
