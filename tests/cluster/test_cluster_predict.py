"""Predictions by workers: the files of one process to the byte."""

import logging
import os
from pathlib import Path

import pytest
from making import random_rows, shards_of

import bigclf
from bigclf.data import predictions
from bigclf.errors import DataError

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
D = 40


@pytest.fixture(scope="module")
def client():
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    options = dict(threads_per_worker=1, processes=False, memory_limit=0, dashboard_address=None)
    with distributed.LocalCluster(n_workers=2, **options) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def rows():
    return random_rows(6000, D, noise=0.5)


@pytest.fixture(scope="module")
def model(rows):
    x, y = rows
    return bigclf.fit(x[:1000, : D - 1], y[:1000], algo="pa1", epochs=2, progress=False)


@pytest.fixture(scope="module", params=[9000, 10**9], ids=["several files", "one file"])
def data(rows, request, tmp_path_factory):
    return shards_of(tmp_path_factory.mktemp("data") / "s", *rows, chunk_nnz=1500, shard_nnz=request.param)


def written(out):
    return {name: (Path(out) / name).read_bytes() for name in os.listdir(out)}


def predict(model, data, out, **options):
    with pytest.warns(UserWarning, match="does not know"):
        return bigclf.predict(model, data, str(out), **options)


def test_the_files_are_those_of_one_process(client, model, data, tmp_path):
    here, there = (
        predict(model, data, tmp_path / n, scores=True, **w) for n, w in (("a", {}), ("b", {"workers": client}))
    )
    assert written(tmp_path / "a") == written(tmp_path / "b")
    for told in (here, there):
        del told["seconds"], told["out"]
    assert here == there and here["rows"] == 6000 and here["unseen"] > 0


def test_also_as_text(client, model, data, tmp_path):
    predict(model, data, tmp_path / "a.csv")
    predict(model, data, tmp_path / "b.csv", workers=client)
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "b.csv"]


def test_what_one_process_left_is_gone_on_with(client, model, data, tmp_path, monkeypatch):
    monkeypatch.setattr(predictions, "PART_WORK", 2000)

    class Stop(Exception): ...

    class Screen:
        n = 0

        def start(self, plan): ...
        def stop(self): ...

        def advance(self, rows, n_bytes):
            self.n += 1
            if self.n == 5:
                raise Stop

    with pytest.raises(Stop):
        bigclf.predict(model, data, str(tmp_path / "b"), progress=Screen())
    told = predict(model, data, tmp_path / "b", workers=client)
    assert told["kept"] or told["rows_kept"]
    predict(model, data, tmp_path / "a")
    assert written(tmp_path / "a") == written(tmp_path / "b")
    assert predict(model, data, tmp_path / "b", workers=client)["written"] == 0


def test_what_is_refused(client, model, data, rows, tmp_path):
    with pytest.raises(TypeError, match="no effect without out"):
        bigclf.predict(model, data, workers=client)
    (tmp_path / "rows.svm").write_text("1 1:1\n")
    with pytest.raises(TypeError, match="convert them to shards"):
        bigclf.predict(model, str(tmp_path / "rows.svm"), str(tmp_path / "x"), workers=client)
    with pytest.raises(DataError, match="train-|shard|part"):
        bigclf.predict(model, data, str(tmp_path / "y"), unseen="error", workers=client)
