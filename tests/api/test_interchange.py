"""Shards are plain Parquet: DuckDB, Polars, pandas and Spark read in them the numbers that were written."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigclf.conversion.convert import write_shards
from bigclf.data.dataset import Dataset


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


def rows(wide=False, binary=False, weighted=False, seed=0):
    """CSR arrays, codes and weights of 200 rows, some of them empty."""
    rng = np.random.default_rng(seed)
    x = sp.random(200, 40, 0.1, "csr", np.float32, random_state=rng)
    indices = x.indices.astype(np.int64) * (2**33 if wide else 1)
    values = np.ones_like(x.data) if binary else x.data
    weights = rng.integers(0, 5, 200) / 4 if weighted else np.ones(200)
    return x.indptr, indices, values, rng.integers(0, 2, 200).astype(float), weights


KINDS = {
    "text labels": ({}, ["no", "yes"]),
    "wide": ({"wide": True}, [-1, 1]),
    "binary, weighted": ({"binary": True, "weighted": True}, [0.5, 2.5]),
    "bools": ({"weighted": True}, [False, True]),
}


@pytest.fixture(params=KINDS)
def written(request, tmp_path):
    """(directory, what each row is): label, indices, values, weight."""
    options, classes = KINDS[request.param]
    made = rows(**options)
    indptr, indices, values, codes, weights = made
    indices = indices.astype(np.int64 if options.get("wide") else np.int32)
    write_shards([(indptr, indices, *made[2:])], tmp_path / "s", classes=classes, chunk_nnz=200, shard_nnz=1500)
    spans = [slice(a, b) for a, b in zip(indptr[:-1], indptr[1:], strict=True)]
    expected = [
        (classes[int(codes[i])], indices[s].tolist(), values[s].tolist(), float(weights[i]))
        for i, s in enumerate(spans)
    ]
    return tmp_path / "s", expected


def told(records):
    """Rows as ``written`` has them; a column that all-one values or weights need not have is filled in."""
    return [
        (r["label"], list(r["indices"]), list(r["values"]) if "values" in r else [1.0] * len(r["indices"]),
         float(r.get("weight", 1.0)))
        for r in records
    ]  # fmt: skip


def with_duckdb(directory):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install duckdb")
    with duckdb.connect() as connection:
        found = connection.execute(f"SELECT * FROM read_parquet('{directory}/part-*.parquet')")
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def with_polars(directory):
    polars = pytest.importorskip("polars", reason="polars is not installed: pip install polars")
    return polars.read_parquet(f"{directory}/part-*.parquet").to_dicts()


def with_pandas(directory):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
    frames = [pandas.read_parquet(path) for path in sorted(directory.glob("part-*.parquet"))]
    return pandas.concat(frames).to_dict("records")


@pytest.mark.parametrize("read", [with_duckdb, with_polars, with_pandas])
def test_other_programs_read_the_numbers_that_were_written(written, read):
    directory, expected = written
    assert len(list(directory.glob("part-*.parquet"))) == 2
    assert told(read(directory)) == expected


@pytest.mark.parametrize("write", ["duckdb", "polars", "pandas"])
def test_what_other_programs_write_is_read(tmp_path, write):
    """The same rows, written by them and read where they lie."""
    indptr, indices, values, codes, _ = rows()
    lists = {
        "label": codes.astype(int).tolist(),
        "indices": [indices[a:b].tolist() for a, b in zip(indptr[:-1], indptr[1:], strict=True)],
        "values": [values[a:b].tolist() for a, b in zip(indptr[:-1], indptr[1:], strict=True)],
    }
    path = tmp_path / "f.parquet"
    library = pytest.importorskip(write, reason=f"{write} is not installed: pip install {write}")
    if write == "duckdb":
        import pyarrow as pa

        table = pa.table(lists)
        with library.connect() as connection:
            connection.register("made", table)
            connection.execute(f"COPY made TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 64)")
    elif write == "polars":
        library.DataFrame(lists).write_parquet(path, row_group_size=64)
    else:
        library.DataFrame(lists).to_parquet(path, row_group_size=64)
    check(Dataset(path))


def check(dataset):
    indptr, indices, values, codes, _ = rows()
    groups = dict.fromkeys(zip(dataset.chunks.file.tolist(), dataset.chunks.row_group.tolist(), strict=True))
    blocks = [dataset.decode(*group) for group in groups]
    np.testing.assert_array_equal(np.concatenate([block.indices for block in blocks]), indices)
    np.testing.assert_array_equal(np.concatenate([block.values for block in blocks]), values)
    np.testing.assert_array_equal(np.concatenate([np.diff(block.indptr) for block in blocks]), np.diff(indptr))
    np.testing.assert_array_equal(np.concatenate([block.labels for block in blocks]), codes)


@pytest.mark.slow
def test_spark_reads_what_was_written_and_its_vectors_are_read(written, tmp_path):
    pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed: pip install pyspark (and a Java)")
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import SparkSession

    directory, expected = written
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.warehouse.dir", str(tmp_path / "warehouse")).getOrCreate()
    try:
        paths = [str(path) for path in sorted(directory.glob("part-*.parquet"))]
        found = [row.asDict() for path in paths for row in session.read.parquet(path).collect()]
        assert told(found) == expected and pyspark.__version__
        pairs = [(float(i % 2), Vectors.sparse(4, {1: 2.0, 3: i + 0.5}) if i % 3 else Vectors.dense([0.0, 1.0, 0.0, i]))
                 for i in range(30)]  # fmt: skip
        session.createDataFrame(pairs, ["label", "scaled"]).write.parquet(str(tmp_path / "vectors"))
    finally:
        session.stop()
    ds = Dataset(tmp_path / "vectors", columns={"features": "scaled"})
    total = sum(ds.decode(f, g).values.sum() for f, g in zip(ds.chunks.file, ds.chunks.row_group, strict=True))
    assert ds.n_rows == 30 and ds.n_features == 4
    assert total == sum(pair[1].toArray().sum() for pair in pairs)
