"""Rules of mixing by their formulas, place by place: what moved, what did not, and what shares of nothing do."""

from typing import NamedTuple

import numpy as np
import pytest
from making import mix

from bigclf.maths import mixing
from bigclf.maths.mixing import AVERAGED, CHANGE, LARGEST, MEAN, TRACE, agree, half_distance, line_search, next_penalty
from bigclf.methods.online.passive_aggressive import Pulled


class Pair(NamedTuple):
    weights: np.ndarray
    other: np.ndarray


class Averaged(NamedTuple):
    weights: np.ndarray
    drift: np.ndarray
    steps: np.ndarray
    total: np.ndarray


def bits(array):
    return np.asarray(array, float).view(np.uint64).tolist()


def test_copies_without_a_share_leave_what_they_began_with():
    start = Pair(np.array([1.0, -0.0]), np.array([2.0]))
    copy = Pair(np.array([5.0, 1.0]), np.array([9.0]))
    mixed = mix(MEAN, start, [copy, copy], [0.0, 0.0])
    assert bits(mixed.weights) == bits(start.weights) and bits(mixed.other) == bits(start.other)


def test_what_no_copy_changed_keeps_its_bits_and_a_change_of_one_counts():
    start = np.array([-0.0, 3.0, 2.0])
    total, ways, out = np.array([0.0, 1.0, 1.0]), np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0]]), np.empty(3)
    mixing.interpolate_pulled(start, total, ways, 1.0, 4.0, out)
    assert bits(out[:1]) == bits(start[:1])
    np.testing.assert_allclose(out[1:], [3 + (1 - np.exp(-1)) / 2, 3.0])
    mixing.interpolate(start, total, 0.5, out)
    assert bits(out) == bits([-0.0, 3.5, 2.5])
    mixing.interpolate_weighed(start, total, np.array([0.0, 3.0, 1.0]), 1.0, out)
    assert bits(out) == bits([-0.0, 3.25, 2.5])


def test_steps_of_copies_go_no_further_together_than_so_many_of_them():
    total, ones = np.zeros(3), np.zeros((3, 2))
    ways = np.array([[2.0, 0.5], [0.1, 0.3], [0.0, 0.0]])
    mixing.accumulate_pulled(total, np.zeros(3), np.ones(3), ones, ways, 2.0, 4.0)
    far = [min(0.5, 4 * 2.0 / 2), min(0.3, 4 * 0.1 / 2)]
    wanted = [0.5 / (1 - np.exp(-far[0])), 0.3 / (1 - np.exp(-far[1])), 1.0]
    np.testing.assert_allclose(total, wanted)
    total[:] = 0
    mixing.accumulate_pulled(total, np.zeros(3), np.ones(3), ones, ways, 1.0, 4.0)
    np.testing.assert_allclose(total, [0.5 / (1 - np.exp(-2)), 0.3 / (1 - np.exp(-0.1)), 1.0])


def test_what_follows_the_first_three_arrays_of_an_average_mixes_by_its_shares():
    start = Averaged(np.zeros(2), np.zeros(2), np.array([4]), np.array([10.0]))
    copies = [Averaged(np.full(2, w), np.zeros(2), np.array([4 + n]), np.array([10.0 + t]))
              for w, n, t in ((1.0, 3, 2.0), (4.0, 5, 8.0))]  # fmt: skip
    mixed = mix(AVERAGED, start, copies, [1.0, 2.0])
    np.testing.assert_allclose(mixed.weights, [3.0, 3.0])
    np.testing.assert_allclose(mixed.total, [10 + (2 + 2 * 8) / 3])
    assert mixed.steps.tolist() == [12]
    # sums over all steps: t w - drift, 7 * 1 of the first and 9 * 4 of the second, from 0
    np.testing.assert_allclose(12 * mixed.weights - mixed.drift, [43.0, 43.0])
    nothing = mix(AVERAGED, start, copies, [0.0, 0.0])
    np.testing.assert_array_equal(nothing.weights, [0.0, 0.0])
    np.testing.assert_array_equal(nothing.total, [10.0])


def test_whatever_else_a_pulled_state_holds_grows_by_all_changes():
    class More(NamedTuple):
        weights: np.ndarray
        drift: np.ndarray
        steps: np.ndarray
        ways: np.ndarray

    start = More(np.zeros(1), np.zeros(1), np.zeros(1, np.int64), np.array([[1.0, 2.0]]))
    copies = [start._replace(weights=np.ones(1), ways=start.ways + w) for w in (0.5, 0.25)]
    mixed = mix(mixing.PULL, start, copies, [1.0, 1.0])
    np.testing.assert_allclose(mixed.ways, [[1.75, 2.75]])
    assert Pulled._fields == More._fields


def test_totals_add_up_what_is_named_and_leave_the_rest():
    rule = mixing.totals("other")
    start = Pair(np.array([1.0, 2.0]), np.array([[5.0, 6.0]]))
    copies = [Pair(np.array([9.0, 9.0]), start.other + change) for change in (1.0, 2.5)]
    mixed = mix(rule, start, copies, [0.1, 0.7])
    np.testing.assert_array_equal(mixed.weights, start.weights)
    np.testing.assert_allclose(mixed.other, [[8.5, 9.5]])
    assert mixed.weights is not start.weights


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_copies_that_wait_for_each_other_come_to_the_same_bits(n, dtype):
    """Two are taken in at once where they stay as they are, also signs of zero and what is no number."""
    rng, rule = np.random.default_rng(n), mixing.totals("other", sharing=True)
    special = np.array([0.0, -0.0, 1e-30, -1e30, np.inf, np.nan, 1.0], dtype)
    start = Pair(rng.normal(size=40).astype(dtype), rng.choice(special, (40, 3)))
    draws = [np.where(rng.random((40, 3)) < 0.3, start.other, rng.choice(special, (40, 3))) for _ in range(n)]
    found = []
    with np.errstate(all="ignore"):
        for lasting in (False, True):
            mixture = mixing.Mixture(rule, start, lasting)
            for number, other in enumerate(draws):
                mixture.add(start._replace(other=other), 1.0 + number)
            assert mixture.shares == n * (n + 1) / 2
            found.append(mixture.result())
    plain, waited = (np.where(np.isnan(state.other), dtype(np.nan), state.other) for state in found)
    assert plain.tobytes() == waited.tobytes()


@pytest.mark.parametrize("n", [2, 3, 18, 34])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_two_copies_that_went_their_ways_are_mixed_in_one_pass_with_the_same_bits(n, dtype):
    """Places that neither moved, one alone, or both; parts of every size and none at all; shares of several copies; two
    that are left over beside nodes of the tree, and are joined with these."""
    rng, places = np.random.default_rng(n), 300
    start = Pulled(
        rng.normal(size=places).astype(dtype), rng.normal(size=places), np.array([70]), np.zeros((places, 2))
    )
    start.weights[::5] = -0.0
    copies = []
    for _ in range(n):
        moved = rng.random(places) < 0.6
        ways = moved[:, None] * rng.exponential(size=(places, 2)) * 10.0 ** rng.integers(-9, 3, (places, 1))
        ways[::7] = 0.0
        weights = np.where(moved, start.weights + rng.normal(size=places), start.weights).astype(dtype)
        drift = start.drift + moved * rng.normal(size=places)
        copies.append(Pulled(weights, drift, start.steps + rng.integers(1, 50), ways))
    found = []
    for lasting in (False, True):
        mixture = mixing.Mixture(mixing.PULL, start, lasting)
        for number, copy in enumerate(copies):
            mixture.add(copy, 1.0 + number)
        found.append(mixture.result())
    assert all(bits(a) == bits(b) for a, b in zip(*found, strict=True))


def test_what_neither_of_two_copies_has_of_its_own_is_shared():
    start = Pair(np.ones(3), np.zeros(3))
    mixture = mixing.Mixture(mixing.totals("weights", "other", sharing=True), start, lasting=True)
    for by in (1.0, 2.0):
        mixture.add(start._replace(other=np.full(3, by)), 1.0)
    mixed = mixture.result()
    assert mixed.weights is start.weights and mixed.other.tolist() == [3.0] * 3 and start.other.tolist() == [0.0] * 3


def test_a_copy_counts_by_what_it_has_seen_and_by_its_share_where_none_has():
    rule = mixing.weighed("other")
    start = Pair(np.array([1.0, 1.0, 1.0]), np.array([2.0, 0.0, 0.0]))
    copies = [Pair(np.array([2.0, 3.0, 1.0]), np.array([5.0, 0.0, 0.0])),
              Pair(np.array([6.0, 5.0, 1.0]), np.array([3.0, 0.0, 1.0]))]  # fmt: skip
    mixed = mix(rule, start, copies, [1.0, 3.0])
    np.testing.assert_allclose(mixed.weights, [1 + (3 * 1 + 1 * 5) / 4, 1 + (1 * 2 + 3 * 4) / 4, 1.0])
    np.testing.assert_allclose(mixed.other, [6.0, 0.0, 1.0])
    assert TRACE * 3 > 0


def test_a_line_search_stays_between_nothing_and_the_whole_step():
    weights, start = np.array([1.0, -2.0]), np.array([0.5, 0.5])
    joined = np.array([1.5, 1.0])  # d = (1, 0.5): w.d = 0, ||d||^2 = 1.25
    assert line_search(weights, start, joined, 0.5, 0.75) == pytest.approx(0.25)
    assert line_search(weights, start, joined, 9.0, 0.75) == 1.0
    assert line_search(weights, start, joined, -1.0, 0.75) == 0.0
    assert line_search(np.array([1.25, -2.0]), start, joined, 0.75, 0.75) == pytest.approx(0.25)
    assert line_search(weights, start, start, 1.0, 0.0) == 1.0


def test_groups_agree_on_a_point_between_their_sum_and_where_they_were():
    weights, start, joined = np.array([2.0]), np.array([1.0]), np.array([4.0])
    agree(weights, start, joined, 0.5, 2.0)  # d = 0.5 (4 - 1)
    assert weights[0] == 3.5 and joined[0] == pytest.approx((3.5 + 2.0 * 1.0 + 1.5) / 3.0)
    assert half_distance(np.array([3.0, 1.0]), np.array([1.0, 2.0], np.float32)) == 2.5


def test_the_penalty_grows_and_shrinks_by_the_same_factor_within_its_bounds():
    assert next_penalty(2.0, 1.0, 5.0, 2.0, 4) == 2.0 * CHANGE
    assert next_penalty(2.0, 1.0, 4.0, 2.0, 4) == 2.0 / CHANGE
    assert next_penalty(2.0, 0.5, 5.0, 2.0, 4) == 2.0 / CHANGE
    assert next_penalty(0.25, 0.5, 5.0, 2.0, 4) == 0.25
    assert next_penalty(LARGEST, 1.0, 5.0, 2.0, 4) == LARGEST


class Measured(NamedTuple):
    weights: np.ndarray
    square: np.ndarray


def test_the_squared_length_is_that_of_the_mixed_weights_and_keeps_its_bits_where_nothing_moved():
    start = Measured(np.array([3.0, 4.0]), np.array([25.0 + 1e-9]))
    copies = [Measured(np.array([3.0, 4.0 + by]), np.array([by])) for by in (2.0, 4.0)]
    mixed = mix(mixing.MEASURED, start, copies, [1.0, 1.0])
    assert mixed.weights.tolist() == [3.0, 7.0] and mixed.square.tolist() == [58.0]
    assert mix(mixing.MEASURED, start, [start, start], [1.0, 1.0]).square.tolist() == [25.0 + 1e-9]


def test_the_shares_of_a_mixture_are_all_that_it_has_taken_in_on_every_level():
    start = Pair(np.zeros(1), np.zeros(1))
    mixture, n = mixing.Mixture(MEAN, start), 2 * mixing.FAN + 3
    for number in range(n):
        mixture.add(Pair(np.array([float(number)]), np.ones(1)), number + 1.0)
    assert mixture.shares == n * (n + 1) / 2 and len(mixture._nodes) == 2
    shares = np.arange(1, n + 1)
    assert mixture.result().weights[0] == pytest.approx((shares * np.arange(n)).sum() / shares.sum())


def test_a_tree_has_no_more_levels_than_its_copies_fill():
    mixture = mixing.Mixture(MEAN, Pair(np.zeros(1), np.zeros(1)))
    for number in range(mixing.FAN**2 + mixing.FAN + 1):
        mixture.add(Pair(np.ones(1), np.ones(1)), 1.0)
        assert len(mixture._nodes) == 1 + (number >= mixing.FAN) + (number >= mixing.FAN**2 + mixing.FAN)
