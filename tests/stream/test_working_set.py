"""The working set: who is let in, who leaves when it is full, and that its bytes can be gathered again."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from making import block_of, dense, random_rows

from bigclf.compiled.jit import move
from bigclf.maths.block import rows_of
from bigclf.stream.working_set import KEEP, LEAST_KEPT, TIE, Members, WorkingSet, bytes_of, find_cut

D = 20


def rows_and_scores(n=100, seed=0, weights=True, constant=False):
    x, y = random_rows(n, D, seed=seed, constant=constant)
    rng = np.random.default_rng(seed)
    block = block_of(x, y, rng.choice([0.5, 1.0, 2.0], n) if weights else None)
    return block, -rng.permutation(n) / n  # scores in steps of 1/n, far apart beside the random part of a key


def set_of(rows, nnz, n=100, constant=False):
    return WorkingSet(rows, nnz, 4, False, n, constant)


@pytest.mark.parametrize("ones", [False, True])
def test_rows_of_one_value_each_keep_their_scales_when_others_leave(ones):
    block, scores = rows_and_scores(constant=True)
    if ones:  # a block of a source with scales may have none, as all of its own are 1
        block = block._replace(scales=block.scales[:0])
    held = set_of(30, block.nnz, constant=True)
    held.admit(block, np.arange(100), scores)
    assert held.generation > 0 and held.block().scales.size == held.n_rows and held.block().values.size == 0
    same_rows(held.block(), block, held.block().ids)


def same_rows(held, block, ids):
    """Whether ``held`` has exactly the rows ``ids`` of the block, each with all that belongs to it."""
    np.testing.assert_array_equal(held.ids, ids)
    for name in ("labels", "weights", "norms"):
        np.testing.assert_array_equal(getattr(held, name), getattr(block, name)[ids])
    np.testing.assert_array_equal(dense(held, D), dense(block, D)[ids])


def inside(held, rows=100):
    """The rows that are in the set, by its flags."""
    everyone = np.arange(rows)
    return np.setdiff1d(everyone, held.outside(everyone, everyone))


def test_with_room_for_all_everyone_asked_for_is_let_in_in_order():
    block, scores = rows_and_scores()
    held = set_of(100, block.nnz)
    asked = np.array([3, 4, 50, 7, 99])
    held.admit(block, asked, scores)
    same_rows(held.block(), block, asked)
    np.testing.assert_array_equal(held.scores[:5], scores[asked])
    assert held.n_rows == 5 and inside(held).tolist() == sorted(asked)
    held.admit(block, np.array([50, 8]), scores)  # once is enough
    assert held.block().ids.tolist() == [*asked, 8]


def test_a_full_arena_keeps_the_best_and_remembers_how_good_they_were():
    block, scores = rows_and_scores()
    held = set_of(30, block.nnz)
    held.admit(block, np.arange(100), scores)
    ids = held.block().ids
    assert int(KEEP * 30) <= held.n_rows <= 30 and -1 < held.threshold < 0 and held.generation > 0
    kept, left = scores[ids], np.delete(scores, ids)
    assert left.max() <= kept.min() + TIE  # nobody outside is better than anybody inside
    same_rows(held.block(), block, ids)
    np.testing.assert_array_equal(inside(held), np.sort(ids))
    before = ids.tolist()
    held.admit(block, np.arange(100), np.full(100, held.threshold - 2 * TIE))  # not good enough
    assert held.block().ids.tolist() == before


def test_entries_fill_the_arena_as_rows_do():
    block, scores = rows_and_scores()
    held = set_of(100, block.nnz // 4)
    held.admit(block, np.arange(100), scores)
    assert 0.6 * block.nnz / 4 < held.used[1] <= block.nnz // 4 and held.used[1] == held.block().nnz
    same_rows(held.block(), block, held.block().ids)


def test_a_row_larger_than_the_arena_stays_outside():
    block, _ = rows_and_scores()
    longest = int(np.diff(block.indptr).max())
    held = set_of(100, longest - 1)
    held.admit(block, np.arange(100), np.zeros(100))
    assert held.n_rows > 0 and np.diff(held.block().indptr).max() < longest


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([3, 50, 10**6]), st.sampled_from([2, 100]))
def test_the_cut_is_where_rows_sorted_by_their_keys_no_longer_fit(seed, values, longest):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(0, 300))
    keys, lengths = -rng.integers(0, values, n) * 1e-3, rng.integers(0, longest, n)
    rows, entries = int(rng.integers(0, n + 5)), float(rng.uniform(0, 1.2) * lengths.sum())
    expected, room = None, entries
    for taken, i in enumerate(np.argsort(-keys, kind="stable")):
        room -= lengths[i]
        if taken == rows or room < 0:
            expected = keys[i]
            break
    full, key = find_cut(keys.copy(), lengths.copy(), rows, entries)
    assert (key if full else None) == expected


def test_rows_that_became_stuck_leave_first():
    block, scores = rows_and_scores()
    held = set_of(30, block.nnz)
    held.admit(block, np.arange(30), scores * 0)
    held.scores[:30] = np.where(np.arange(30) < 12, -5.0, 0.0)  # as the kernel would have left them
    held.admit(block, np.arange(30, 33), scores * 0)
    ids = held.block().ids
    assert {*range(12, 33)} <= set(ids.tolist())
    assert (ids < 12).sum() == KEEP * 30 - 18  # room for so many of the others was left when the three came


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64, np.float32])
@pytest.mark.parametrize("first, start", [(3, 5), (5, 3), (4, 4), (0, 20)])
def test_a_move_brings_what_was_there_before_it(dtype, first, start):
    array = np.arange(40).astype(dtype)
    expected = array.copy()
    expected[first : first + 17] = array[start : start + 17]
    move(array, first, array, start, 17)
    np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("passed, kept", [(0.1, LEAST_KEPT), (0.3, 0.6), (0.7, KEEP), (1.0, KEEP)])
def test_the_more_rows_are_yet_to_come_the_more_leave(passed, kept):
    block, scores = rows_and_scores()
    held = set_of(30, block.nnz)
    held.admit(block, np.arange(30), scores)
    held.passed = passed
    assert held.compact()
    assert held.n_rows == round(30 * kept)
    assert set(held.block().ids.tolist()) == set(np.argsort(-scores[:30])[: held.n_rows].tolist())


@pytest.mark.parametrize(
    "before, passed, kept",
    [
        ((0.2, 0.4), 0.4, 0.8),  # at 3 arenas a read, 9/25 of one would have to leave: no more than a fifth does
        ((0.5, 0.75), 0.625, 0.85),  # at 2 arenas a read, 3/4 of one are to come in five times
        ((0.8, 0.9), 0.9, 0.95),
        ((0.5, 1.0), 0.6, 0.95),  # none came, which a row that fits nowhere brings about
        ((0.6, 0.8), 0.6, 0.8),  # twice in a block
        ((0.9, 0.8), 1.0, KEEP),  # after the first read
    ],
)
def test_in_the_first_read_as_many_leave_as_the_pace_at_which_rows_come_asks_for(before, passed, kept):
    block, scores = rows_and_scores(200)
    held = set_of(100, block.nnz, 200)
    held.admit(block, np.arange(100), scores)
    held.compacted[:], held.passed = before, passed
    held.compact()
    assert held.n_rows == round(100 * kept)
    assert held.compacted.tolist() == [passed, kept]


def test_among_equals_chance_decides_the_same_way_every_time():
    block, _ = rows_and_scores()
    found = []
    for _ in range(2):
        held = set_of(40, block.nnz)
        held.admit(block, np.arange(100), np.zeros(100))
        found.append(held.block().ids.tolist())
    assert found[0] == found[1]
    assert max(found[0]) > 60 and not {*range(30)} <= set(found[0])  # not simply those that came first, nor the last


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    capacity=st.integers(2, 60),
    entries=st.integers(1, 300),
    cuts=st.lists(st.integers(0, 60), max_size=3),
)
def test_whatever_comes_the_arena_is_a_valid_block_of_the_rows_it_names(seed, capacity, entries, cuts):
    block, scores = rows_and_scores(60, seed)
    held = set_of(capacity, entries, 60)
    edges = [0, *sorted(cuts), 60]
    for a, b in zip(edges, edges[1:], strict=False):
        held.admit(rows_of(block, a, b), np.arange(b - a), scores[a:b])
    now = held.block()
    assert held.n_rows <= capacity and now.nnz <= entries and now.indptr[0] == 0 and (np.diff(now.indptr) >= 0).all()
    assert np.unique(now.ids).size == now.ids.size == inside(held, 60).size
    same_rows(now, block, now.ids)
    np.testing.assert_array_equal(held.scores[: held.n_rows], scores[now.ids])


@pytest.mark.parametrize("pieces", [1, 3, 100])
@pytest.mark.parametrize("constant", [False, True])
def test_gathered_again_after_a_checkpoint_the_bytes_are_the_same(pieces, constant):
    block, scores = rows_and_scores(constant=constant)
    held = set_of(40, block.nnz // 2, constant=constant)
    held.passed = 0.5  # in the middle of the first read
    held.admit(block, np.arange(100), scores)
    assert (held.block().scales.size > 0) == constant == (held.block().values.size == 0)
    again = set_of(40, block.nnz // 2, constant=constant)
    again.expect(held.members())
    edges = np.linspace(0, 100, pieces + 1).round().astype(int)
    for a, b in reversed([*zip(edges, edges[1:], strict=False)]):  # in whatever order the data come
        again.fill(rows_of(block, a, b))
    for array, other in zip(again.block(), held.block(), strict=True):
        assert array.tobytes() == other.tobytes() and (array.size or array.dtype == np.float32)
    assert again.threshold == held.threshold and again.used.tolist() == held.used.tolist()
    np.testing.assert_array_equal(again.scores[:40][: held.n_rows], held.scores[: held.n_rows])
    again.passed = 0.5
    for one in (held, again):  # and it goes on in the same way
        one.admit(block, np.arange(100), np.zeros(100))
    assert again.block().ids.tolist() == held.block().ids.tolist()


def test_implicit_values_and_wide_indices():
    x, y = random_rows(50, D)
    block = block_of(x, y)
    block = block._replace(indices=block.indices.astype(np.uint64), values=np.empty(0, np.float32))
    held = WorkingSet(20, 200, 8, True, 50)
    held.admit(block, np.arange(50), -np.arange(50.0))
    assert held.block().values.size == 0 and held.block().indices.dtype == np.uint64
    np.testing.assert_array_equal(dense(held.block(), D), dense(block, D)[held.block().ids])


@pytest.mark.parametrize(
    ("width", "binary", "constant"), [(4, False, False), (8, False, False), (4, True, False), (4, False, True)]
)
def test_the_arena_takes_the_bytes_the_plan_counts(width, binary, constant):
    held = WorkingSet(123, 4567, width, binary, 1000, constant)
    taken = sum(array.nbytes for array in held.arena) + held.scores.nbytes
    assert taken == bytes_of(123, 4567, width, binary, constant)


def test_another_salt_gives_others_their_turn_among_equals():
    block, _ = rows_and_scores()
    found = []
    for salt in (0, 1, 2):
        held = set_of(40, block.nnz)
        held.salt = salt
        held.admit(block, np.arange(100), np.zeros(100))
        found.append(frozenset(held.block().ids.tolist()))
    assert len(set(found)) == 3


def test_a_row_at_the_threshold_stays_and_one_just_below_is_dropped():
    block, _ = rows_and_scores()
    held = set_of(100, block.nnz)
    held.admit(block, np.arange(3), np.array([-0.25, np.nextafter(-0.25, -np.inf), -0.2]))
    generation = held.generation
    held.drop(-0.25)
    assert held.block().ids.tolist() == [0, 2] == inside(held).tolist() and held.generation == generation + 1
    held.drop(-0.25)
    assert held.block().ids.tolist() == [0, 2] and held.generation == generation + 1
    same_rows(held.block(), block, [0, 2])


def test_a_set_that_was_cleared_takes_the_same_rows_again():
    block, scores = rows_and_scores()
    held = set_of(100, block.nnz)
    held.admit(block, np.arange(40), scores)
    held.passed = 0.5
    held.compact()
    generation = held.generation
    held.clear()
    assert held.n_rows == 0 and held.block().nnz == 0 and inside(held).size == 0
    assert held.compacted.tolist() == [0, 0] and held.generation == generation + 1  # as if nobody had ever been there
    held.threshold = -np.inf
    held.admit(block, np.arange(40), scores)
    same_rows(held.block(), block, np.arange(40))


def test_the_members_of_a_set_that_nobody_has_entered_are_those_of_a_fresh_one():
    block, scores = rows_and_scores()
    fresh, again = set_of(30, block.nnz), set_of(30, block.nnz)
    for none, found in zip(Members.none(), fresh.members(), strict=True):
        assert none.tolist() == found.tolist() and none.dtype == found.dtype
    again.expect(Members.none())
    assert again.n_rows == 0 and again.threshold == -np.inf and again.compacted.tolist() == [0, 0]
    again.fill(block)
    again.admit(block, np.arange(100), scores)
    fresh.admit(block, np.arange(100), scores)
    assert again.block().ids.tolist() == fresh.block().ids.tolist()
