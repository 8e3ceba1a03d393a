"""The shard format: what other programs see in it, what its footer says, and that it appears whole or not at all."""

import collections
import itertools
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from making import run_python

from bigclf.data import shards
from bigclf.data.dataset import Dataset
from bigclf.errors import DataError
from bigclf.features.arrow import in_arrow, texts_in_arrow
from bigclf.maths.block import check_rows

ROWS = (np.array([0, 2, 2, 5]), np.array([0, 4, 1, 2, 3], np.uint32), np.arange(1, 6, dtype=np.float32))
CODES = np.array([1.0, 0.0, 1.0])


def write(path, rows=ROWS, codes=CODES, weights=None, **options):
    options = {"n_features": 5, "classes": np.array([-1, 1]), **options}
    with shards.ShardWriter(str(path), **options) as writer:
        writer.write(*rows, codes, weights)
        writer.write(*rows, codes, weights)
    return pq.ParquetFile(path)


def test_other_programs_see_plain_lists(tmp_path):
    file = write(tmp_path / "s.parquet")
    assert [str(f.type) for f in file.schema_arrow] == [
        "int64", "list<element: int32 not null>", "list<element: float not null>"
    ]  # fmt: skip
    assert not any(field.nullable for field in file.schema_arrow)
    assert file.read().slice(3).to_pydict() == {
        "label": [1, -1, 1], "indices": [[0, 4], [], [1, 2, 3]], "values": [[1, 2], [], [3, 4, 5]]
    }  # fmt: skip
    column = file.metadata.row_group(0).column(1)
    assert file.num_row_groups == 2 and column.compression == "ZSTD"


def test_values_of_one_are_left_out_and_weights_put_in(tmp_path):
    indptr, indices, _ = ROWS
    file = write(tmp_path / "s.parquet", (indptr, indices, np.empty(0, np.float32)), binary=True)
    assert file.schema_arrow.names == ["label", "indices"]
    file = write(tmp_path / "w.parquet", weights=np.array([0.0, 1.0, 2.5]), weighted=True, index_width=8)
    assert file.read(["weight"]).to_pydict()["weight"] == [0, 1, 2.5] * 2
    assert file.schema_arrow.field("indices").type.value_type == pa.int64()


def test_the_footer_says_what_is_in_the_file(tmp_path):
    file = write(tmp_path / "s.parquet")
    told = json.loads(file.metadata.metadata[b"bigclf"])
    expected = {
        "version": 1, "n_features": 5, "n_rows": 6, "nnz": 10, "sorted": True, "binary": False, "chunks": [5, 5],
        "row_constant": False,
        "classes": [-1, 1], "class_counts": [2, 4], "max_row_nnz": 3, "max_norm": 50.0, "weight_sum": 6.0,
        "features": {"kind": "given", "version": 1},
    }  # fmt: skip
    assert {key: told[key] for key in expected} == expected
    path = str(tmp_path / "s.parquet")
    assert shards.read_facts(shards.claims(path), path)["content"] == told["content"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [([2, 2, 3, 3, 3], True), ([1, 1, 1, 1, 1], True), ([2, 2, 3, 3, 2], False), ([2, 2, -0.5, -0.5, -0.5], True)],
)
def test_the_footer_says_whether_rows_have_one_value_each(tmp_path, values, expected):
    file = write(tmp_path / "s.parquet", (*ROWS[:2], np.array(values, np.float32)))
    assert json.loads(file.metadata.metadata[b"bigclf"])["row_constant"] == expected
    assert file.read(["values"])["values"].to_pylist()[2] == values[2:]  # written out all the same, for other programs


def test_footers_tell_contents_apart(tmp_path):
    indptr, indices, values = ROWS
    first = write(tmp_path / "a.parquet").metadata.metadata[b"bigclf"]
    assert write(tmp_path / "b.parquet").metadata.metadata[b"bigclf"] == first
    assert write(tmp_path / "c.parquet", (indptr, indices, values[::-1])).metadata.metadata[b"bigclf"] != first
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_nothing_appears_when_writing_fails(tmp_path):
    with pytest.raises(KeyError), shards.ShardWriter(str(tmp_path / "s"), n_features=5, classes=np.arange(2)) as writer:
        writer.write(*ROWS, CODES)
        raise KeyError
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "rows",
    [
        (ROWS[0], np.array([0, 4, 1, 2, 5], np.uint32), ROWS[2]),
        (ROWS[0], np.array([4, 0, 1, 2, 3], np.uint32), ROWS[2]),
        (ROWS[0], ROWS[1], np.array([1, 2, np.nan, 4, 5], np.float32)),
        (np.array([0, 2, 2, 6]), ROWS[1], ROWS[2]),
    ],
    ids=["out of range", "unsorted", "nan", "bounds"],
)
def test_no_bad_row_is_ever_written(tmp_path, rows):
    with pytest.raises(DataError, match="row"):
        write(tmp_path / "s.parquet", rows)
    assert os.listdir(tmp_path) == []


def test_damaged_facts_are_noticed():
    text = shards.sealed({"version": 1, "n_rows": 3})
    assert shards.unsealed(text) == {"version": 1, "n_rows": 3}
    for place in range(len(text)):
        with pytest.raises(ValueError):
            shards.unsealed(text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :])


def test_plain_tables_go_round(tmp_path):
    path = str(tmp_path / "t.parquet")
    shards.write_table(path, {"a": np.arange(3), "b": np.array(["x", "y", "z"])}, {"about": "this"})
    assert shards.read_table(path)["a"].tolist() == [0, 1, 2]
    assert shards.read_table(path, ["b"])["b"].tolist() == ["x", "y", "z"]
    assert shards.read_metadata(path) == {"about": "this"}
    with pytest.raises(DataError, match="cannot be opened"):
        shards.read_table(str(tmp_path / "missing.parquet"))


def test_shards_of_format_1_are_read_for_ever(monkeypatch, tmp_path):
    """The file was written by bigclf 0.1.0 with pyarrow 26 and is never to be written again."""
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path))
    ds = Dataset(os.path.join(os.path.dirname(os.path.dirname(__file__)), "golden", "shard-1.parquet"))
    assert (ds.n_rows, ds.n_features, ds.nnz, ds.n_chunks) == (6, 6, 10, 2) and ds.weighted and not ds.binary
    assert ds.classes.tolist() == ["ham", "spam"] and ds.class_counts.tolist() == [3, 3]
    block = ds.decode(0, 0)
    assert block.indptr.tolist() == [0, 2, 2, 5] and block.indices.tolist() == [0, 4, 1, 2, 3]
    assert block.values.tolist() == [1, 2, 3, 4, 5] and block.labels.tolist() == [1, 0, 1]
    assert block.weights.tolist() == [1, 2, 0.5] and block.norms.tolist() == [5, 0, 50]
    assert ds.decode(0, 1).ids.tolist() == [3, 4, 5]


def first_fault_of(indptr, indices, values, n_features):
    """By the definition, row by row, in plain Python: (fault, row)."""
    for i, (first, last) in enumerate(itertools.pairwise(indptr.tolist())):
        if first < 0 or last < first or last > indices.size:
            return "lengths", i
        row = indices[first:last].tolist()
        found = values[first:last].astype(float)
        for p in range(len(row)):
            if row[p] >= n_features:
                return "range", i
            if p and row[p - 1] >= row[p]:
                return "order", i
            if not np.isfinite(found[p]):
                return "value", i
    return "none", -1


def test_of_rows_with_faults_the_first_is_told_and_sound_ones_get_their_norms():
    rng, names = np.random.default_rng(0), {0: "none", 1: "lengths", 2: "order", 3: "range", 4: "value"}
    told = collections.Counter()
    for trial in range(300):
        lengths = rng.integers(0, 5, 8)
        indptr = np.concatenate([[0], np.cumsum(lengths)])
        rows = [np.sort(rng.choice(20, length, replace=False)) for length in lengths]
        indices = np.concatenate(rows).astype(np.uint32)
        values = rng.standard_normal(indices.size).astype(np.float32)
        for _ in range(rng.integers(0, 3)):
            place, kind = int(rng.integers(max(1, indices.size - 1))), rng.integers(4)
            if indices.size < 2:
                break
            if kind == 0:
                indices[place] = rng.choice([20, 2**31, 2**32 - 1])
            elif kind == 1:
                indices[place + 1] = indices[place]  # a fault only where no row begins
            elif kind == 2:
                values[place] = rng.choice([np.nan, np.inf])
            else:
                indptr[rng.integers(1, 9)] = rng.integers(-1, indices.size + 2)
        norms = np.full(8, np.nan)
        fault, row = check_rows(indptr, indices, values, np.uint32(20), norms)
        assert (names[fault], row) == first_fault_of(indptr, indices, values, 20), trial
        told[names[fault]] += 1
        if fault == 0:
            squares = values.astype(float) ** 2
            expected = [squares[a:b].sum() for a, b in itertools.pairwise(indptr.tolist())]
            np.testing.assert_allclose(norms, expected, rtol=1e-12)
    assert len(told) == 5 and min(told.values()) > 10, told


@pytest.mark.parametrize("array", [
    np.arange(5, dtype=np.uint32), np.array([0.0, -0.0, np.nan, np.inf], np.float32), np.arange(6.0)[::2], np.empty(0),
    np.array([True, False]), np.array(["a", "é"]),
])  # fmt: skip
def test_columns_of_numbers_and_texts_are_arrow_s_own(array):
    mine, other = in_arrow(array), pa.array(array)
    assert mine.type == other.type and mine.null_count == 0
    np.testing.assert_array_equal(mine.to_numpy(zero_copy_only=False), other.to_numpy(zero_copy_only=False))
    assert in_arrow(np.arange(3), pa.float64()).type == pa.float64()
    assert in_arrow(np.arange(3, dtype=">i8")) == pa.array([0, 1, 2])
    assert texts_in_arrow(["", "é", "ab"], pa.large_string()) == pa.array(["", "é", "ab"], pa.large_string())
    assert texts_in_arrow([]) == pa.array([], pa.string())
    assert texts_in_arrow(["a"], pa.string_view()).type == "string_view"
    assert texts_in_arrow(["a", None]).to_pylist() == ["a", None]
    assert in_arrow(np.ma.masked_array([1.0, 2.0], [True, False])).to_pylist() == [None, 2.0]


UNUSED = """
import sys
import bigclf
text, *rows = sys.argv[1:]
bigclf.convert(text, rows[0])
for data in rows:
    model = bigclf.fit(data, algo="perceptron", epochs=1, memory="64MB", progress=False)
    bigclf.predict(model, data, data + ".scores.parquet")
    print("pandas" in sys.modules)
"""


def test_shards_labels_and_predictions_do_not_load_pandas(tmp_path):
    """It would take 30 MB that no budget has, and half a second."""
    (tmp_path / "t.svm").write_text("1 1:1 3:2\n-1 2:1\n" * 20)
    kinds = ["a", "b"], [[3, 1], []], [["é", "b"], ["b"]]
    for number, labels in enumerate(kinds):
        rows = pa.table({"label": labels * 20, "indices": [[0, 2], [1]] * 20, "values": [[1.0, 2.0], [1.0]] * 20})
        pq.write_table(rows, tmp_path / f"{number}.parquet")
    told = run_python(
        UNUSED, tmp_path / "t.svm", tmp_path / "s", *(tmp_path / f"{n}.parquet" for n in range(len(kinds)))
    )
    assert told.split() == ["False"] * 4
