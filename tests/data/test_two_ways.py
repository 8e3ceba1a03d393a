"""Small datasets are decoded by Arrow, larger ones by bigclf's own kernels: drawn files, good and bad, are the same
rows or the same error either way."""

import os
import sys
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

from bigclf.conversion.convert import write_shards
from bigclf.data import dataset, pages
from bigclf.data.dataset import Dataset
from bigclf.errors import BigclfError, DataError

ARROW, OURS = sys.maxsize, 0  # non-zeros up to which Arrow decodes
READ = [pa.int32()] * 4 + [pa.int64()] * 3, [pa.float32()] * 6  # what the kernels read; else Arrow does either way
INDICES = *READ[0], pa.int8(), pa.uint32(), pa.uint64()
VALUES = *READ[1], pa.float64(), pa.int32(), pa.float16()
LABELS = {
    "whole": lambda rng, n: pa.array(rng.integers(-1, 3, n)),
    "text": lambda rng, n: pa.array(rng.choice(["a", "ß", "c d"], n).tolist(), pa.large_string()),
    "words": lambda rng, n: pa.array(rng.choice(["a", "b"], n).tolist(), pa.string()).dictionary_encode(),
    "yes": lambda rng, n: pa.array(rng.random(n) < 0.5),
    "several": lambda rng, n: pa.array([["x"] * int(k) for k in rng.integers(0, 2, n)], pa.list_(pa.string())),
    "missing": lambda rng, n: pa.array(np.where(rng.random(n) < 0.03, np.nan, 1.0)),
}
FAULTS = [*(["none"] * 6), "descending", "twice", "negative", "null", "no_list", "short", "nan", "inf", "huge"]


def drawn(rng):
    """A table of rows, which may have one fault."""
    n = int(rng.integers(0, 60))
    lengths = rng.integers(0, 6, n) if rng.random() < 0.7 else np.full(n, rng.integers(0, 5))
    rows = [sorted(rng.choice(100, k, replace=False).tolist()) for k in lengths]
    kind, held = INDICES[rng.integers(len(INDICES))], VALUES[rng.integers(len(VALUES))]
    scale = 1 if pa.types.is_floating(held) else 2
    values = [[float(x) / 2 * scale for x in rng.integers(1, 9, k)] for k in lengths]
    if not pa.types.is_floating(held):
        values = [[int(x) for x in row] for row in values]
    spoil(rng, rows, values, kind, held)
    shape = rng.choice(["list", "large", *(["required"] * 6)])

    def listed(item):
        if shape == "large":
            return pa.large_list(item)
        return pa.list_(pa.field("element", item, nullable=shape == "list"))

    columns = {
        "label": LABELS[rng.choice([*LABELS])](rng, n),
        "indices": pa.array(rows, listed(kind)),
        "values": pa.array(values, listed(held)),
    }
    if rng.random() < 0.15:
        columns.pop("values")
    if rng.random() < 0.3:
        columns["weight"] = pa.array(rng.choice([0.0, 1.0, 2.0], n))
    fields = [pa.field(name, column.type, nullable=shape != "required") for name, column in columns.items()]
    table = pa.table(list(columns.values()), pa.schema(fields))
    return table.slice(2, n - 3) if rng.random() < 0.3 and n > 4 else table


def spoil(rng, rows, values, kind, held):
    at = [i for i, row in enumerate(rows) if len(row) >= 2]
    fault, i = rng.choice(FAULTS), int(rng.choice(at)) if at else None
    some = rows if rng.random() < 0.5 else values
    if i is None or fault == "none":
        return
    if fault == "descending":
        rows[i].reverse()
    elif fault == "twice":
        rows[i][1] = rows[i][0]
    elif fault == "negative" and not pa.types.is_unsigned_integer(kind):
        rows[i][0] = -1
    elif fault == "null":
        some[i][0] = None
    elif fault == "no_list":
        some[i] = None
    elif fault == "short":
        values[i].pop()
    elif fault in ("nan", "inf", "huge") and pa.types.is_floating(held):
        values[i][0] = {"nan": np.nan, "inf": np.inf, "huge": 1e300 if held == pa.float64() else 3e4}[fault]


def write(rng, table, path):
    """In one of the ways that Parquet has; whether this pyarrow can."""
    words = rng.random() < 0.5
    own = {"indices": "DELTA_BINARY_PACKED", "values": "BYTE_STREAM_SPLIT"}
    encoding = {f"{name}.list.element": own[name] for name in own if name in table.column_names}
    try:
        pq.write_table(
            table, path, row_group_size=int(rng.choice([1, 7, 1000])), use_dictionary=words,
            compression=str(rng.choice(["none", "zstd", "snappy", "gzip", "lz4"])),
            data_page_size=int(rng.choice([16, 100, 10**6])), data_page_version=str(rng.choice(["1.0", "1.0", "2.0"])),
            write_page_checksum=bool(rng.random() < 0.5),
            column_encoding=None if words or rng.random() < 0.4 else encoding,
        )  # fmt: skip
    except (pa.ArrowException, OSError):  # such numbers have no such encoding; a null where none may be
        return False
    return True


def own_shards(rng, path):
    """Shards of ours with rows of weight 0, ones alone or one value a row; the path of one of them."""
    n = int(rng.integers(1, 100))
    x = sp.random(n, 40, 0.1, "csr", np.float32, random_state=rng)
    x.sort_indices()
    if (kind := rng.random()) < 0.3:
        x.data[:] = 1
    elif kind < 0.6:
        x.data[:] = np.repeat(rng.standard_normal(n).astype(np.float32), np.diff(x.indptr))
    block = x.indptr, x.indices, x.data, rng.integers(0, 2, n).astype(float)
    made = write_shards([block], path, classes=(-1, 1), n_features=40, chunk_nnz=int(rng.choice([20, 1000])))
    return made.files[int(rng.integers(len(made.files)))]


def damage(rng, path):
    """Other bits in its pages; size and time stay."""
    state = os.stat(path)
    with open(path, "r+b") as file:
        data = bytearray(file.read())
        end = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        for _ in range(int(rng.integers(1, 4))):
            data[int(rng.integers(4, max(5, end)))] ^= 1 << int(rng.integers(8))
        file.seek(0)
        file.write(data)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


class Wrong(NamedTuple):
    file: str | None
    row_group: int | None
    text: str


def wrong(error):
    return Wrong(getattr(error, "file", None), getattr(error, "row_group", None), str(error))


def seen(path, small, monkeypatch):
    """What every row group is, or the error that opening or decoding it is."""
    monkeypatch.setattr(dataset, "SMALL", small)
    try:
        data = Dataset(path, warn=False)
    except BigclfError as error:
        return [wrong(error)]
    found = []
    for place in sorted(set(zip(data.chunks.file.tolist(), data.chunks.row_group.tolist(), strict=True))):
        try:
            block = data.decode(*place)
        except BigclfError as error:
            found.append(wrong(error))
        else:
            found.append([(array.dtype.str, array.tobytes()) for array in block])
    return found


SEEDS = [*range(48), 204, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(48, 168)),
         *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(168, 480) if seed != 204)]  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_arrow_and_kernels_give_the_same_rows_or_the_same_error(seed, tmp_path, monkeypatch):
    rng = np.random.default_rng(seed)
    path = tmp_path / ("shards" if seed % 3 == 0 else "rows.parquet")
    if seed % 3 == 0:
        place = own_shards(rng, path)
    else:
        place = path
        while not write(rng, drawn(rng), path):
            pass
    if rng.random() < 0.6:
        assert seen(path, ARROW, monkeypatch) == seen(path, OURS, monkeypatch)
        return
    whole = seen(path, OURS, monkeypatch)
    damage(rng, place)
    for arrow, ours, before in zip(*(seen(path, n, monkeypatch) for n in (ARROW, OURS)), whole, strict=True):
        if isinstance(arrow, Wrong) and isinstance(ours, Wrong):  # pyarrow's words are of the columns it was asked for
            assert arrow[:2] == ours[:2]
        else:  # in a page's head there are things that nobody but Arrow looks at
            assert arrow == ours or ours == before


def test_what_is_drawn_is_often_read_by_kernels_and_often_wrong(tmp_path, monkeypatch):
    """Else the comparison above says nothing."""
    read, ours = pages.read_lists, []

    def counted(*given):
        ours.append(read(*given))
        return ours[-1]

    monkeypatch.setattr(pages, "read_lists", counted)
    outcomes = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        if write(rng, drawn(rng), tmp_path / f"{seed}.parquet"):
            outcomes += seen(tmp_path / f"{seed}.parquet", OURS, monkeypatch)
    assert sum(found is not None for found in ours) > 10
    assert sum(isinstance(found, Wrong) for found in outcomes) > 5 < sum(isinstance(found, list) for found in outcomes)


def test_fewer_labels_than_lists_are_an_error(tmp_path, monkeypatch):
    """Lists do not come of the table whose columns Arrow compares: what was read behind the end of labels was noise."""
    block = np.arange(5), np.zeros(4, np.int32), np.ones(4, np.float32), np.array([0.0, 1.0, 0.0, 1.0])
    data = write_shards([block], tmp_path / "s", classes=(-1, 1), n_features=3)
    read = pages.read_lists

    def longer(*given):
        found = read(*given)
        return [(np.append(indptr, indptr[-1]), numbers) for indptr, numbers in found]

    monkeypatch.setattr(dataset, "SMALL", OURS)
    monkeypatch.setattr(pages, "read_lists", longer)
    with pytest.raises(DataError, match=r"row group 0, column label: damaged; copy it again: 4 values for 5 rows"):
        data.decode(0, 0)
