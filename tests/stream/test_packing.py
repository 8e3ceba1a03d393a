"""Packed indices: whatever rows go in come out, and what cannot be such rows is noticed."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bigclf.stream.packing import count_far, pack_indices, unpack_indices

UNITS = pytest.mark.parametrize("unit", [np.uint8, np.uint16])
WIDTHS = pytest.mark.parametrize("width", [np.uint32, np.uint64])
LIMIT = {np.uint32: 2**31, np.uint64: 2**63}
gaps = st.one_of(
    st.integers(0, 5), st.integers(250, 260), st.integers(65530, 65540), st.integers(0, 2**24), st.integers(0, 2**61)
)


def rows_of(lists, width):
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in lists])]).astype(np.int64)
    return indptr, np.array([j for row in lists for j in row], width)


def packed(indptr, indices, unit):
    units = np.full(indices.size * (1 + indices.itemsize // np.dtype(unit).itemsize), 7, unit)
    return units[: pack_indices(indptr, indices, units)].copy()


def unpacked(units, indptr, width, size=None):
    out = np.zeros(int(indptr[-1] - indptr[0]) if size is None else size, width)
    return unpack_indices(units, np.diff(indptr).astype(np.uint32), out), out


@UNITS
@WIDTHS
@settings(max_examples=80, deadline=None)
@given(lists=st.lists(st.lists(gaps, max_size=12), max_size=12))
@example(lists=[])
@example(lists=[[], [0], [], [254], [255], [256], [65534], [65535]])
@example(lists=[[2**31 - 1], [0, 2**31 - 2]])
def test_rows_come_out_as_they_went_in(unit, width, lists):
    rows = [np.cumsum([gap + (k > 0) for k, gap in enumerate(row)], dtype=object).tolist() for row in lists]
    rows = [[j for j in row if j < LIMIT[width]] for row in rows]
    indptr, indices = rows_of(rows, width)
    units = packed(indptr, indices, unit)
    sound, out = unpacked(units, indptr, width)
    assert sound
    np.testing.assert_array_equal(out, indices)
    far = count_far(indptr, indices)[0 if unit == np.uint8 else 1]
    assert units.size == indices.size + far * (indices.itemsize // np.dtype(unit).itemsize)


@UNITS
def test_rows_need_not_begin_at_the_first_entry(unit):
    indptr, indices = np.array([2, 4, 4, 5]), np.array([9, 9, 3, 700, 1, 9], np.uint32)
    sound, out = unpacked(packed(indptr, indices, unit), indptr, np.uint32)
    assert sound and out.tolist() == [3, 700, 1]


@UNITS
@WIDTHS
def test_a_row_of_five_million_entries(unit, width):
    indices = np.cumsum(np.random.default_rng(0).integers(1, 420, 5_000_000)).astype(width)
    indptr = np.array([0, indices.size])
    units = packed(indptr, indices, unit)
    sound, out = unpacked(units, indptr, width)
    assert sound and (out == indices).all() and (unit == np.uint8 or units.size == indices.size)


@UNITS
def test_units_that_cannot_be_of_these_rows_are_noticed(unit):
    indptr, indices = rows_of([[3, 70_000], [5], [1_000_000]], np.uint32)
    units = packed(indptr, indices, unit)
    assert unpacked(units, indptr, np.uint32)[0]
    assert not unpacked(units[:-1], indptr, np.uint32)[0]  # the last one is cut short
    assert not unpacked(units[:1], indptr, np.uint32)[0]
    assert not unpacked(np.append(units, units[:1]), indptr, np.uint32)[0]
    assert not unpacked(units, indptr, np.uint32, size=3)[0]
    assert not unpacked(units, indptr, np.uint32, size=5)[0]
