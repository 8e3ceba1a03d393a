"""Problems dealt out to workers have the bits of one process, whatever becomes of the workers."""

import signal
import threading

import numpy as np
import pytest
from clusters import PATIENCE
from conftest import bits_of, tight_memory
from making import random_rows, shards_of

import bigclf

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    """4,000 rows of five classes."""
    x, _ = random_rows(4000, 400, 0.1, seed=1)
    labels = np.argmax(x[:, :5].toarray() + 0.5 * x[:, 5:10].toarray(), axis=1)
    out = tmp_path_factory.mktemp("classes") / "rows"
    shards_of(out, x, labels, chunk_nnz=20_000, shard_nnz=120_000)
    return str(out)


ONE = dict(algo="dcd", multiclass="one-vs-rest", groups=1, C=0.1, tol=1e-3)


def options_of(classes, streams):
    if not streams:
        return ONE
    return ONE | {"memory": tight_memory(classes, {k: v for k, v in ONE.items() if k != "groups"})}


@pytest.mark.parametrize("streams", [False, True], ids=["in memory", "streamed"])
@pytest.mark.parametrize("do", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_one_in_the_middle_of_one_against_the_rest(cluster, classes, streams, do):
    options = options_of(classes, streams)
    here = bigclf.fit(classes, progress=False, **options)
    assert here.result_.plan["resident"] is not streams
    order = cluster.order(at="begin", epoch=2, do="hold")
    run = cluster.fit(classes, **options)
    cluster.of(order.claimed()).send(do)
    assert bits_of(run.model()) == bits_of(here)
    assert run.told("the problem" if not streams else "") and [e for e in run.events if "given out again" in e["what"]]


def test_one_that_joins_takes_problems_over(cluster, classes):
    here = bigclf.fit(classes, progress=False, **options_of(classes, True))
    cluster.ensure(1)
    order = cluster.order(at="begin", epoch=2, do="hold")
    run = cluster.fit(classes, **options_of(classes, True))
    order.claimed()
    cluster.ensure(2)
    order.release()
    assert bits_of(run.model()) == bits_of(here)


class Sweeping(threading.Thread):
    def __init__(self, *given, **options):
        super().__init__(daemon=True)
        self.given, self.options, self.found = given, options, None

    def run(self):
        self.found = bigclf.sweep(*self.given, **self.options)


@pytest.mark.parametrize("epoch", [1, 2])
def test_one_killed_in_the_middle_of_a_sweep(cluster, classes, epoch):
    """In the middle of a chain of values of C, too: each goes on from the dual variables of the one before."""
    options = dict(algo="dcd", grid={"C": [0.01, 0.1, 1.0]}, folds=0, validate=classes, progress=False)
    here = bigclf.sweep(classes, **options)
    order = cluster.order(at="begin", epoch=epoch, do="hold")
    workers = bigclf.Workers(cluster.address, patience=PATIENCE)
    sweeping = Sweeping(classes, workers=workers, **options)
    sweeping.start()
    cluster.of(order.claimed()).send(signal.SIGKILL)
    sweeping.join(60)
    far = sweeping.found
    assert far.certificates == here.certificates and far.best_params_ == here.best_params_
    assert [model.digest() for model in far.models] == [model.digest() for model in here.models]
    assert [e for record in far.history for e in record.get("events", ()) if "given out again" in e["what"]]


def test_resumed_on_another_number_of_workers_after_the_driver_was_killed(cluster, classes, drive, tmp_path):
    options = options_of(classes, True)
    here = bigclf.fit(classes, progress=False, **options)
    run_dir = tmp_path / "run"
    order = cluster.order(at="begin", epoch=2, segment=1, do="hold")
    words = ["fit", classes, "-o", tmp_path / "m.bigclf", "--workers", cluster.address, "--run-dir", run_dir]
    words += ["--checkpoint-every", "0", "--multiclass", "one-vs-rest", "--groups", "1", "--algo", "dcd", "--C", "0.1"]
    driver = drive(*words, "--tol", "1e-3", "--memory", options["memory"])
    order.claimed()
    driver.send(signal.SIGKILL)
    driver.end()
    order.release()
    cluster.ensure(1)
    run = cluster.fit(classes, run_dir=str(run_dir), resume=True, **options)
    assert bits_of(run.model()) == bits_of(here)
    assert run.records[0]["epoch"] == 2
