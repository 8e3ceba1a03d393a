"""Rows that others hold, Dask DataFrames and streams of Arrow: the same as the files that they become."""

import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bigclf
from bigclf.conversion import foreign_rows

dd = pytest.importorskip("dask.dataframe")
pytestmark = pytest.mark.filterwarnings("ignore:not converged")
SPEC = {"label": "y", "features": [{"numeric": "size", "scale": "standard"}, {"categorical": "colour"}]}

QUIET = {"progress": False}


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    size = rng.normal(size=900)
    return pd.DataFrame({"y": np.where(size + rng.normal(0, 0.5, 900) > 0, "yes", "no"), "size": size,
                         "colour": rng.choice(["red", "green", "blue"], 900)})  # fmt: skip


def test_a_dask_frame_becomes_the_shards_of_its_partitions(tmp_path, table):
    frame = dd.from_pandas(table, npartitions=12)
    (tmp_path / "files").mkdir()
    for number in range(frame.npartitions):  # 2 before 10
        frame.partitions[number].compute().to_parquet(tmp_path / "files" / f"p{number:02d}.parquet", index=False)
    near = bigclf.convert(tmp_path / "files", tmp_path / "near", format="parquet", features=SPEC)
    found = bigclf.convert(frame, tmp_path / "found", features=SPEC, shard_nnz=2**23)
    assert [open(p, "rb").read() for p in found.files] == [open(p, "rb").read() for p in near.files]  # noqa: SIM115
    model = bigclf.fit(frame, features=SPEC, algo="dcd", progress=False)
    assert (model.coef_ == bigclf.fit(near, algo="dcd", progress=False).coef_).all()
    assert sorted(os.listdir(tmp_path)) == ["files", "found", "near"]
    with pytest.raises(TypeError, match="labels of a Dask DataFrame"):
        bigclf.fit(frame, table.y, features=SPEC)


def test_a_dask_frame_of_rows_trains_as_it_is(tmp_path):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"label": rng.integers(0, 2, 200)})
    rows["indices"] = [sorted(rng.choice(30, 4, replace=False).tolist()) for _ in range(200)]
    rows["indices"] = rows["indices"].astype(pd.ArrowDtype(pa.list_(pa.int64())))
    frame = dd.from_pandas(rows, npartitions=4)
    model = bigclf.fit(frame, algo="pa1", epochs=2, progress=False)
    assert model.n_features == 30 and model.result_.plan is not None
    with pytest.raises(bigclf.errors.DataError, match="no conversion"):
        bigclf.convert(frame, tmp_path / "out")


class Relation:
    """What DuckDB, Ibis, Delta or Hugging Face give: nothing is known of it but the protocol."""

    def __init__(self, table, broken=False):
        self.table, self.broken = table, broken

    def __arrow_c_stream__(self, requested_schema=None):
        def batches():
            yield from self.table.to_batches(max_chunksize=70)
            if self.broken:
                raise pa.ArrowInvalid("the server went away")

        return pa.RecordBatchReader.from_batches(self.table.schema, batches()).__arrow_c_stream__(requested_schema)


def test_a_stream_of_columns_trains_as_its_file_does(tmp_path, table, monkeypatch):
    rows = pa.Table.from_pandas(table, preserve_index=False)
    pq.write_table(rows, tmp_path / "rows.parquet")
    wanted = bigclf.fit(str(tmp_path / "rows.parquet"), format="parquet", features=SPEC, tol=1e-6, **QUIET)
    monkeypatch.setattr(foreign_rows, "GROUP_BYTES", 3000)
    found = bigclf.fit(Relation(rows), features=SPEC, tol=1e-6, **QUIET)
    assert found.classes_.tolist() == ["no", "yes"] and found.n_features == wanted.n_features == 5
    np.testing.assert_allclose(found.coef_, wanted.coef_, atol=0.01)  # the rows come in another order
    reader = pa.RecordBatchReader.from_batches(rows.schema, iter(rows.to_batches()))
    assert bigclf.fit(reader, features=SPEC, epochs=3, **QUIET).n_features == 5
    made = bigclf.convert(Relation(rows), tmp_path / "made", features=SPEC)
    assert made.n_rows == 900 and sorted(os.listdir(tmp_path)) == ["made", "rows.parquet"]


def test_a_stream_is_written_down_in_row_groups_of_a_size(tmp_path, table, monkeypatch):
    monkeypatch.setattr(foreign_rows, "GROUP_BYTES", 4000)
    monkeypatch.setattr(foreign_rows, "STEP", 8)
    rows = pa.Table.from_pandas(table, preserve_index=False)
    with foreign_rows.collected(Relation(rows), tmp_path / "x") as (folder, kind):
        (name,) = os.listdir(folder)
        told = pq.ParquetFile(os.path.join(folder, name))
        assert kind == "parquet" and told.read().equals(rows)
        assert 3 < told.num_row_groups < 13
    with foreign_rows.collected(Relation(rows.slice(0, 0)), tmp_path / "x") as (folder, _):
        assert pq.read_table(folder).num_rows == 0
    assert not os.listdir(tmp_path)


def test_a_stream_of_rows_trains_as_it_is_in_every_verb(tmp_path):
    rng = np.random.default_rng(0)
    rows = pa.table({"label": rng.integers(0, 2, 200),
                     "indices": [sorted(rng.choice(30, 4, replace=False).tolist()) for _ in range(200)]})  # fmt: skip
    pq.write_table(rows, tmp_path / "rows.parquet")
    options = dict(epochs=2, seed=3, **QUIET)
    wanted = bigclf.fit(str(tmp_path / "rows.parquet"), algo="pa1", **options)
    assert (bigclf.fit(Relation(rows), algo="pa1", **options).coef_ == wanted.coef_).all()
    found = bigclf.sweep(Relation(rows), algo="pa1", grid={"C": [0.1, 1.0]}, folds=2, **options)
    other = bigclf.sweep(str(tmp_path / "rows.parquet"), algo="pa1", grid={"C": [0.1, 1.0]}, folds=2, **options)
    assert [row["mean"] for row in found.table] == [row["mean"] for row in other.table]


def test_a_sweep_takes_raw_columns_as_fit_does(table):
    found = bigclf.sweep(table, features=SPEC, grid={"C": [1e-6, 1.0]}, folds=2, **QUIET)
    assert found.best_params_ == {"C": 1.0} and found.best_model.n_features == 5
    assert (found.best_model.predict(table) == table.y).mean() > 0.8
    with pytest.raises(ValueError, match="on_bad_rows must be"):
        bigclf.sweep(table[["size"]].to_numpy(), table.y, grid={"C": [1.0, 2.0]}, on_bad_rows="skip")


def test_what_makes_no_sense_of_a_stream_is_refused(tmp_path, table):
    rows = pa.Table.from_pandas(table, preserve_index=False)
    with pytest.raises(TypeError, match="a stream, y must be the name of the label column"):
        bigclf.fit(Relation(rows), table.y, features=SPEC)
    with pytest.raises(bigclf.errors.DataError, match="the stream of rows broke off: .*the server went away$"):
        bigclf.fit(Relation(rows, broken=True), features=SPEC)
