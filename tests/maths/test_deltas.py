"""Deltas: a state rebuilt from one has the very bytes of the state it was taken from."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigclf.maths import deltas
from bigclf.maths.deltas import Delta, applied, apply, difference, fill, filled, n_bytes, picked, place_dtype


class Plain(NamedTuple):
    weights: np.ndarray


class Rich(NamedTuple):
    weights: np.ndarray  # [feature]
    table: np.ndarray  # [feature, class]
    steps: np.ndarray  # [1]


DTYPES = ("float32", "float64", "int64")
PATTERNS = (0, 1, 2**31, 2**63, 0x3F800000, 0x7FC00000, 0x7FC00001, 0xFF800000, 0x7FF8000000000000, 0x7FF8000000000001)


def from_bits(bits, dtype):
    """An array with these bits: zeros of both signs, infinities, several NaNs, denormals."""
    words = np.array(bits, np.uint64).astype(f"u{np.dtype(dtype).itemsize}")
    return words.view(dtype)


def bits_of(state):
    return [(array.dtype, array.shape, array.tobytes()) for array in state]


def changed_anywhere(start, state):
    """The definition, the slow way: places at which the bytes of any array with the feature axis differ."""
    length = len(start.weights)
    return [
        i
        for i in range(length)
        if any(a[i].tobytes() != b[i].tobytes() for a, b in zip(start, state, strict=True) if len(a) == length)
    ]


@st.composite
def pairs(draw):
    """Two states alike in form, the second one changed at some places (often few)."""
    dtype, length, width = draw(st.sampled_from(DTYPES)), draw(st.integers(2, 40)), draw(st.integers(0, 3))
    word = st.one_of(st.sampled_from(PATTERNS), st.integers(0, 2**64 - 1))

    def array(*shape):
        n = int(np.prod(shape))
        return from_bits(draw(st.lists(word, min_size=n, max_size=n)), dtype).reshape(shape)

    start = Rich(array(length), array(length, width), np.array([3]))
    state = Rich(*(a.copy() for a in start))
    state.steps[0] = draw(st.integers(0, 9))
    for i in draw(st.lists(st.integers(0, length - 1), max_size=length // 2)):
        state.weights[i] = array(1)[0]
        if width and draw(st.booleans()):
            state.table[i, draw(st.integers(0, width - 1))] = array(1)[0]
    return start, state


@settings(deadline=None, max_examples=300)
@given(pairs())
def test_a_state_is_rebuilt_to_the_bit(pair):
    start, state = pair
    length, before = len(start.weights), (bits_of(start), bits_of(state))
    delta = difference(start, state, length)
    changed = changed_anywhere(start, state)
    assert (delta is None) == (len(changed) > 0 and 3 * len(changed) >= length)
    if delta is not None:
        assert delta.places.tolist() == changed and delta.places.dtype == np.uint32
        assert delta.whole == (False, False, True)
        assert bits_of(applied(start, delta)) == bits_of(state)
        assert (bits_of(start), bits_of(state)) == before
        copy = Rich(*(a.copy() for a in start))
        apply(copy, delta)
        assert bits_of(copy) == bits_of(state)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_bits_are_compared_and_not_values(dtype):
    quiet, other = (0x7FC00000, 0x7FC00001) if dtype == "float32" else (0x7FF8000000000000, 0x7FF8000000000001)
    negative = 2 ** (8 * np.dtype(dtype).itemsize - 1)  # of zero
    start = Plain(from_bits([0, quiet, quiet, 5] + [0] * 6, dtype))
    state = Plain(from_bits([negative, quiet, other, 5] + [0] * 6, dtype))
    delta = difference(start, state, 10)
    assert delta.places.tolist() == [0, 2]
    assert bits_of(applied(start, delta)) == bits_of(state)


def test_equal_states_have_an_empty_delta():
    start = Rich(np.full(50, np.nan), np.zeros((50, 3), np.float32), np.array([7]))
    delta = difference(start, start, 50)
    assert delta.places.size == 0 and delta.arrays[0].shape == (0,) and delta.arrays[1].shape == (0, 3)
    rebuilt = applied(start, delta)
    assert bits_of(rebuilt) == bits_of(start)
    assert not any(np.shares_memory(a, b) for a, b in zip(rebuilt, start, strict=True))


def test_looking_at_a_piece_of_the_places_at_a_time_finds_the_same(monkeypatch):
    rng = np.random.default_rng(0)
    for share in (0.02, 0.3, 0.35):
        start = Plain(rng.normal(size=301))
        state = Plain(np.where(rng.random(301) < share, 9.0, start.weights))
        whole = difference(start, state, 301)
        with monkeypatch.context() as patched:
            patched.setattr(deltas, "PIECE", 7)
            pieces = difference(start, state, 301)
        assert (whole is None) == (pieces is None)
        if whole is not None:
            assert whole.places.tolist() == pieces.places.tolist() and bits_of(whole.arrays) == bits_of(pieces.arrays)


def test_a_state_without_features_changes_nowhere():
    start = Rich(np.zeros(0), np.zeros((0, 2)), np.array([1]))
    assert difference(start, start, 0).places.size == 0


def test_a_third_of_the_places_is_too_much():
    start = Plain(np.zeros(300))
    for count, pays in ((99, True), (100, False), (300, False)):
        state = Plain(np.zeros(300))
        state.weights[:count] = 1
        assert (difference(start, state, 300) is not None) == pays


def test_places_count_once_for_all_arrays():
    """A fifth of the places in one array and another fifth in the other are two fifths."""
    start = Rich(np.zeros(100), np.zeros((100, 2)), np.zeros(1))
    state = Rich(np.zeros(100), np.zeros((100, 2)), np.zeros(1))
    state.weights[:20] = 1
    state.table[:20, 1] = 1
    assert difference(start, state, 100).places.tolist() == list(range(20))
    state.table[50:70, 0] = 1
    assert difference(start, state, 100) is None


def test_arrays_without_the_feature_axis_travel_whole():
    """However much of them changed, and although they are no part of the count."""
    start = Rich(np.zeros(10), np.zeros((4, 10)), np.array(0.0))
    state = Rich(np.zeros(10), np.ones((4, 10)), np.array(-0.0))
    delta = difference(start, state, 10)
    assert delta.whole == (False, True, True) and delta.places.size == 0
    assert bits_of(applied(start, delta)) == bits_of(state)
    state.table[:] = 5  # the delta does not change with the state
    assert (delta.arrays[1] == 1).all()


def test_arrays_of_any_order_and_read_only_ones():
    rng = np.random.default_rng(0)
    table = np.asfortranarray(rng.standard_normal((60, 3)))
    start = Rich(rng.standard_normal(120)[::2], table, np.zeros(1))
    state = Rich(start.weights.copy(), table.copy(), np.ones(1))
    state.weights[[3, 59]] = 9
    state.table[8, 2] = 9
    for array in (*start, *state):
        array.flags.writeable = False
    delta = difference(start, state, 60)
    assert delta.places.tolist() == [3, 8, 59]
    assert bits_of(applied(start, delta)) == bits_of(state)


def test_arrays_of_more_axes_and_small_items():
    start = Plain(np.zeros((12, 2, 3), np.int16))
    state = Plain(start.weights.copy())
    state.weights[11, 1, 2] = -4
    delta = difference(start, state, 12)
    assert delta.places.tolist() == [11] and delta.arrays[0].shape == (1, 2, 3)
    assert bits_of(applied(start, delta)) == bits_of(state)


def test_many_places():
    rng = np.random.default_rng(1)
    start = Plain(rng.standard_normal(100_003).astype(np.float32))
    state = Plain(start.weights.copy())
    places = np.flatnonzero(rng.random(100_003) < 0.2)
    state.weights[places] *= -1
    delta = difference(start, state, 100_003)
    assert np.array_equal(delta.places, places)
    assert bits_of(applied(start, delta)) == bits_of(state)


def test_the_dtype_of_places_holds_the_last_one():
    assert place_dtype(2**32) == np.uint32 and place_dtype(2**32 + 1) == np.uint64


def test_states_that_are_not_alike_are_refused():
    with pytest.raises(ValueError, match="differ in form: float64"):
        difference(Plain(np.zeros(4)), Plain(np.zeros(5)), 4)
    with pytest.raises(ValueError, match="differ in form: float64"):
        difference(Plain(np.zeros(4)), Plain(np.zeros(4, np.float32)), 4)
    with pytest.raises(ValueError, match="object"):
        difference(Plain(np.zeros(4, object)), Plain(np.zeros(4, object)), 4)


def test_a_delta_that_does_not_fit_changes_nothing():
    values = np.ones(1)
    for places, arrays, message in (
        ([9], (values, values), "place 9 of 9"),
        ([2, 3], (values, values), "does not fit"),
        ([2], (values.astype(np.float32), values), "float32"),
        ([2], (values, np.ones(2)), "does not fit"),
    ):
        state = Rich(np.zeros(9), np.zeros(9), np.zeros(9))[:2]
        with pytest.raises(ValueError, match=message):
            apply(state, Delta(np.array(places, np.uint32), arrays, (False, False)))
        assert not any(array.any() for array in state)


def test_the_bytes_of_nested_things():
    delta = Delta(np.zeros(3, np.uint32), (np.zeros(3), np.zeros((2, 2), np.float32)), (False, True))
    assert n_bytes(delta) == 12 + 24 + 16
    assert n_bytes({"a": [delta, None], "b": ("text", 5, np.zeros(2))}) == 52 + 16
    assert n_bytes(None) == n_bytes(()) == 0


@pytest.mark.parametrize("there", [3, 40])
def test_picked_arrays_are_those_of_the_state_and_the_others_stay(there):
    """Few values travel with their places, many as they are."""
    weights, table = np.zeros(50), np.zeros((50, 2))
    weights[:there], table[5 : 5 + there // 2] = np.arange(1, there + 1), 2.0
    state, other = Rich(weights, table, np.array([7])), Rich(np.ones(50), np.ones((50, 2)), np.array([1]))
    sent = picked(state, ("weights", "table"))
    assert (n_bytes(tuple(sent)) < weights.nbytes) == (there == 3)
    got = filled(other, sent)
    assert got.steps is other.steps and other.weights.all()
    fill(other, sent)
    for found in (got, other):
        np.testing.assert_array_equal(found.weights, weights)
        np.testing.assert_array_equal(found.table, table)
