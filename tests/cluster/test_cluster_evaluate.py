"""Evaluations by workers: the figures of one process to the bit, whatever happens to the workers."""

import contextlib
import io
import logging
import os
import signal

import numpy as np
import pytest
from making import random_rows, shards_of

import bigclf
from bigclf.cluster.measuring import Measure, Part, cut, try_part
from bigclf.errors import DataError
from bigclf.metrics.figures import scoring_bytes

distributed = pytest.importorskip("distributed")
D = 40
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def client():
    """Two workers, each a process that can be killed and comes back."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, memory_limit=0, dashboard_address=":0"
    )
    with cluster, distributed.Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Several files of several row groups, with a label in the end that no model knows."""
    x, y = random_rows(6000, D, noise=0.5)
    y[-7:] = 3
    return shards_of(tmp_path_factory.mktemp("data") / "s", x, y, chunk_nnz=1500, shard_nnz=9000)


@pytest.fixture(scope="module")
def models():
    x, y = random_rows(1000, D, noise=0.5)
    thirds = np.arange(1000) % 3 * (y > 0)
    return [bigclf.fit(x, labels, algo="pa1", epochs=2, groups=1, progress=False) for labels in (y, thirds)]


def figures(*arguments, **options):
    found = bigclf.evaluate(*arguments, **options).to_dict()
    assert found.pop("seconds") > 0
    return found


@pytest.mark.parametrize("which", [0, 1], ids=["two classes", "three classes"])
def test_the_figures_are_those_of_one_process(which, models, data, client, monkeypatch):
    asked, answers = [], client.cluster.scheduler.handlers
    usual = answers["who_has"]
    monkeypatch.setitem(answers, "who_has", lambda **words: asked.append(words) or usual(**words))
    there = figures(models[which], data, workers=client)
    assert asked == []  # a result lies where its task was bound to
    assert there == figures(models[which], data) and there["n"] == 6000 and there["unknown"][3] == 7


def test_also_where_the_auc_comes_from_bins(models, data, client):
    memory = scoring_bytes(models[0], data) + 100
    there = figures(models[0], data, memory=memory, workers=client)
    assert there == figures(models[0], data, memory=memory) and 0 < there["auc_bound"] < 0.01


class Told:
    """A screen that does something at the first part."""

    def __init__(self, first=lambda: None):
        self.rows, self.first, self.plan = 0, first, {}

    def start(self, plan):
        self.plan = plan

    def advance(self, rows, n_bytes):
        if self.rows == 0:
            self.first()
        self.rows += rows
        assert n_bytes > 0

    def stop(self): ...


def pids(client):
    return list(client.run(os.getpid).values())


def test_a_worker_that_is_killed_costs_nothing_and_doubles_nothing(models, data, client):
    victim = pids(client)[0]
    screen = Told(lambda: os.kill(victim, signal.SIGKILL))
    assert figures(models[0], data, workers=client, progress=screen) == figures(models[0], data)
    status = screen.plan["status"]()
    assert screen.rows == 6000 and status["parts_done"] == status["parts"] >= 8 and status["bytes_moved"] > 0
    client.wait_for_workers(2, timeout=60)


def test_one_that_is_frozen_is_not_waited_for(models, data, client):
    victim = pids(client)[0]
    screen = Told(lambda: os.kill(victim, signal.SIGSTOP))
    try:
        there = figures(
            models[0], data, progress=screen, workers=bigclf.Workers(client, patience={"stale": 1.5, "idle": 30})
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGCONT)
    assert there == figures(models[0], data) and screen.rows == 6000


def test_validation_during_a_run_is_done_there_too(data, client, monkeypatch):
    rows = random_rows(600, D, noise=0.5)
    options = dict(algo="pa1", groups=2, epochs=3, validate=data, progress=False)
    here = [record["validation"] for record in bigclf.fit(*rows, **({"algo": "dcd"} | options)).result_.history]
    monkeypatch.setattr("bigclf.api.outcome.evaluate", None)  # would be called
    there = [
        record["validation"]
        for record in bigclf.fit(*rows, workers=client, **({"algo": "dcd"} | options)).result_.history
    ]
    assert here == there and len(here) == 3


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ([np.eye(D)], {"workers": 2}, "only this process has"),
        (["x.parquet", [1]], {"workers": 2}, "y has no effect"),
        (["x.parquet"], {"workers": bigclf.Workers(patience={"idle": 1})}, "patience has no effect"),
        ([np.eye(D)], {}, "needs its labels"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, options, words, models):
    with pytest.raises(TypeError, match=words):
        bigclf.evaluate(models[0], *arguments, **options)


def test_bad_data_are_told_of_as_in_one_process(models, client, tmp_path):
    shards_of(tmp_path / "s", *random_rows(300, D), chunk_nnz=500)
    data = bigclf.Dataset(tmp_path / "s")
    path = next((tmp_path / "s").glob("part-*.parquet"))
    damaged = bytearray(path.read_bytes())
    damaged[200:1200] = bytes(1000)
    path.write_bytes(damaged)
    with pytest.raises(DataError, match=path.name):
        bigclf.evaluate(models[0], data, workers=client)
    unknown = tmp_path / "unknown.svm"
    unknown.write_text("5 1:1\n6 2:1\n")
    with pytest.raises(DataError, match="no row has a label that the model knows") as caught:
        bigclf.evaluate(models[0], str(unknown), workers=client)
    assert caught.value.file == str(unknown)


# Cutting


@pytest.mark.parametrize("parts", [1, 2, 5, 8, 1000])
def test_parts_are_all_chunks_cut_where_row_groups_begin(parts, data):
    found = cut(data, parts)
    chunks = data.chunks
    assert [a for a, _, _ in found] == [0, *[b for _, b, _ in found[:-1]]] and found[-1].last == data.n_chunks
    places = list(zip(chunks.file.tolist(), chunks.row_group.tolist(), strict=True))
    assert all(a == 0 or places[a] != places[a - 1] for a, _, _ in found)
    groups = len(set(places))
    assert len(found) == groups if parts >= groups else 0.5 * parts < len(found) <= parts


def test_a_part_can_be_tried_chunk_by_chunk(models, data):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try_part(Measure(models[0], data, True), 2, 5)
    assert out.getvalue().split() == ["2", "3", "4"]


def test_what_a_worker_does_on_trial(models, data):
    from bigclf.cluster.worker_tasks import Parcel, on_trial, shard_error

    found = on_trial(Parcel(Part(2, 5)), Parcel(Measure(models[0], data, True)))
    assert found == {"signal": 0, "chunk": 4}
    error = shard_error(data, 4, 11, 2, "chunks 2 to 4")
    assert error.file == data.files[data.chunks.file[4]] and "2 workers died at chunks 2 to 4" in str(error)
