"""Pages read past Arrow: the same rows as through it, and nothing but None of what is damaged or of other forms."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bigclf import files
from bigclf.compiled import jit
from bigclf.data import pages, shards

pytestmark = pytest.mark.skipif(jit.INTERPRETED, reason="pages are read in compiled code alone")


def listed(item):
    return pa.list_(pa.field("element", item, nullable=False))


def written(path, lengths, *, wide=False, group=None, seed=0, encodings=None, high=100_000, **options):
    """A file of rows of these lengths, and its table."""
    draw = np.random.default_rng(seed)
    n = int(np.sum(lengths))
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
    kind = np.int64 if wide else np.int32
    indices = pa.array(draw.integers(0, high, n).astype(kind))
    values = pa.array(draw.standard_normal(n).astype(np.float32))
    schema = pa.schema([pa.field("label", pa.int64(), False), pa.field("indices", listed(indices.type), False),
                        pa.field("values", listed(pa.float32()), False)])  # fmt: skip
    columns = [pa.array(draw.integers(0, 2, len(lengths))), *(pa.ListArray.from_arrays(offsets, a, type=listed(a.type))
                                                               for a in (indices, values))]  # fmt: skip
    table = pa.Table.from_arrays(columns, schema=schema)
    options = {"compression": "zstd", "write_page_checksum": True, "use_dictionary": False} | options
    encodings = (shards.ENCODINGS if encodings is None else encodings) or None
    pq.write_table(table, path, row_group_size=group or max(len(lengths), 1), column_encoding=encodings, **options)
    return table


def opened(path):
    return shards.open_pages(str(path), shards.said_by(str(path)))


def check(path, table, groups=1):
    way = opened(path)
    rows = 0
    for g in range(groups):
        found = pages.read_lists(way, g, ["indices", "values"])
        assert found is not None, "left to Arrow"
        part = table.slice(rows, found[0][0].size - 1)
        rows += part.num_rows
        for name, (indptr, numbers) in zip(("indices", "values"), found, strict=True):
            lists = part.column(name).to_pylist()
            assert np.diff(indptr).tolist() == [len(row) for row in lists]
            expected = np.array([number for row in lists for number in row], numbers.dtype)
            assert np.array_equal(numbers, expected) and numbers.dtype == expected.dtype
    assert rows == table.num_rows


LENGTHS = {
    "long": [700, 3, 900, 1, 1, 1, 64],
    "ones": [1] * 500,
    "some empty": [0, 3, 0, 0, 7, 1, 0],
    "all empty": [0, 0, 0],
    "one row": [5000],
    "one entry": [1],
}


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
def test_same_rows_as_through_arrow(lengths, wide, tmp_path):
    table = written(tmp_path / "a.parquet", lengths, wide=wide, high=2**40 if wide else 2**31)
    check(tmp_path / "a.parquet", table)


def test_numbers_go_where_they_are_asked_to_and_memory_is_used_again(tmp_path):
    lengths = [3, 0, 40, 1]
    written(tmp_path / "a.parquet", lengths)
    way, n = opened(tmp_path / "a.parquet"), sum(lengths)
    new = pages.read_lists(way, 0, ["indices", "values"])
    place = np.empty(n + 2, np.uint32), np.empty(n + 2, np.float32)
    there = pages.read_lists(way, 0, ["indices", "values"], [array[1:-1] for array in place])
    for (_, numbers), (_, wanted), array in zip(there, new, place, strict=True):
        assert np.shares_memory(numbers, array) and not np.shares_memory(wanted, array)
        np.testing.assert_array_equal(numbers, wanted)
    wider = pages.read_lists(way, 0, ["indices", "values"], [np.empty(n, np.uint64), None])  # of another width
    np.testing.assert_array_equal(wider[0][1], new[0][1])
    assert pages.read_lists(way, 0, ["indices"], [np.empty(n - 1, np.uint32)]) is None
    assert pages.read_lists(way, 0, ["indices"], [np.empty(n + 1, np.uint32)]) is None
    held = way.scratch.take("column", 1, np.uint8)
    assert np.shares_memory(held, way.scratch.take("column", 1, np.uint8))


@pytest.mark.parametrize("options", [
    {"compression": "none"}, {"compression": "snappy"}, {"compression": "lz4"}, {"write_page_checksum": False},
    {"encodings": {}}, {"encodings": {"values.list.element": "BYTE_STREAM_SPLIT"}}, {"data_page_size": 700},
])  # fmt: skip
def test_other_codecs_encodings_and_many_pages(options, tmp_path):
    lengths = np.random.default_rng(1).integers(0, 40, 300)
    table = written(tmp_path / "a.parquet", lengths, group=70, **options)
    check(tmp_path / "a.parquet", table, groups=5)


def test_random_lengths(tmp_path):
    draw = np.random.default_rng(3)
    for seed in range(30):
        lengths = draw.integers(0, draw.integers(1, 200), draw.integers(1, 400))
        lengths[draw.random(lengths.size) < draw.random() * 0.5] = draw.integers(0, 3)
        table = written(tmp_path / "a.parquet", lengths, seed=seed, high=int(2 ** draw.integers(1, 31)))
        check(tmp_path / "a.parquet", table)


@pytest.mark.parametrize("item", [pa.uint32(), pa.uint64(), pa.date32(), pa.time32("ms"), pa.int16()], ids=str)
def test_numbers_that_mean_something_else_are_left_to_arrow(item, tmp_path):
    offsets, numbers = pa.array([0, 2, 3], pa.int32()), pa.array([1, 2, 3]).cast(pa.int32()).cast(item)
    lists = pa.ListArray.from_arrays(offsets, numbers, type=listed(item))
    schema = pa.schema([pa.field("indices", lists.type, False)])
    pq.write_table(pa.Table.from_arrays([lists], schema=schema), tmp_path / "a.parquet", use_dictionary=False)
    assert opened(tmp_path / "a.parquet") is None


@pytest.mark.parametrize("form", ["nulls allowed", "dictionary", "pages of format 2", "float64 values"])
def test_other_forms_are_left_to_arrow(form, tmp_path):
    path = tmp_path / "a.parquet"
    if form == "dictionary":
        written(path, [3, 4], encodings={}, use_dictionary=True)
    elif form == "pages of format 2":
        written(path, [3, 4], data_page_version="2.0")
    elif form == "nulls allowed":
        pq.write_table(pa.table({"indices": [[1, 2], None], "values": [[1.0, 2.0], None]}), path)
    else:
        halves = pa.array([[0.5] * 3, [0.5] * 4])
        table = written(path, [3, 4]).select(["label", "indices"]).append_column("values", halves)
        pq.write_table(table, path, use_dictionary=False)
    way = opened(path)
    assert way is None or pages.read_lists(way, 0, ["indices", "values"]) is None


def test_a_damaged_byte_is_found_by_the_checksum(tmp_path):
    path = tmp_path / "a.parquet"
    table = written(path, [30, 0, 50], seed=5)
    data = path.read_bytes()
    way = opened(path)
    column = way.footer.groups[0].columns[1]
    right = pages.read_lists(way, 0, ["indices"])[0][1]
    for at in range(column.first, column.first + column.n_bytes):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        found = pages.read_lists(way._replace(source=files.open_arrow(str(path))), 0, ["indices"])
        assert found is None or np.array_equal(found[0][1], right), at  # some bits of a header mean nothing
    assert table.num_rows == 3


@pytest.mark.parametrize("encodings", [shards.ENCODINGS, {}])
def test_damage_without_checksums_never_leaves_the_arrays(encodings, tmp_path):
    path = tmp_path / "a.parquet"
    written(path, [30, 0, 50, 1, 300], encodings=encodings, compression="none", write_page_checksum=False)
    data, draw = path.read_bytes(), np.random.default_rng(0)
    way = opened(path)
    first = way.footer.groups[0].columns[1].first
    last = way.footer.groups[0].columns[2]
    read = 0
    for _ in range(800):
        bad = bytearray(data)
        for at in draw.integers(first, last.first + last.n_bytes, draw.integers(1, 4)):
            bad[at] = draw.integers(256)
        path.write_bytes(bad)
        found = pages.read_lists(way._replace(source=files.open_arrow(str(path))), 0, ["indices", "values"])
        for indptr, numbers in found or ():
            read += 1
            assert indptr[0] == 0 and indptr[-1] == numbers.size and (np.diff(indptr) >= 0).all()
    assert 0 < read < 1600


def test_lists_that_do_not_fit_each_other_are_told_by_row(tmp_path):
    from bigclf.errors import DataError

    path = str(tmp_path / "a.parquet")
    table = written(path, [2, 3])
    other = written(tmp_path / "b.parquet", [2, 4])
    table = table.set_column(2, table.schema.field("values"), other.column("values"))
    pq.write_table(table, path, use_dictionary=False, column_encoding=shards.ENCODINGS, compression="zstd")
    file, said = shards.open_parquet(path), shards.said_by(path)
    layout = shards.Layout("indices", "values", "label", None)
    with pytest.raises(DataError, match="3 indices but 4 values"):
        shards.read_rows(file, said.schema, 0, layout, path, shards.open_pages(path, said))
