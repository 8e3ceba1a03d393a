"""Dask DataFrames as data: the same as the files that their partitions become."""

import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import bigclf

dd = pytest.importorskip("dask.dataframe")
SPEC = {"label": "y", "features": [{"numeric": "size", "scale": "standard"}, {"categorical": "colour"}]}


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
    with pytest.raises(TypeError, match="y has no effect"):
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
