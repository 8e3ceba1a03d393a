"""The groups fixed, the bits are those of this process, whatever becomes of the workers."""

import signal

import pytest
from clusters import wait_for, words_of
from conftest import bits_of

import bigclf
from bigclf.model.model import load

pytestmark = pytest.mark.chaos


def test_one_two_and_four_workers(cluster, shards, answers):
    for n in (1, 2, 4):
        cluster.ensure(n)
        for name in ("perceptron", "pa2", "dcd", "dcd-streamed", "dcd-gathered"):
            answer = answers(name)
            run = cluster.fit(shards, **answer.keywords)
            answer.check_run(run)
            assert len(run.told("joined")) == run.records[-1]["workers"] == n


def test_sixteen_processes(chaos_cluster, shards):
    """Of which each has a group, and then five more than there are workers."""
    cluster = chaos_cluster(nanny=False)
    cluster.start_scheduler()
    for _ in range(16):
        cluster.add_worker()
    wait_for(lambda: len(cluster.known()) == 16, 250, "sixteen workers")
    for words in (dict(algo="pa2", epochs=3, groups=16), dict(algo="dcd", C=0.01, epochs=3, groups=21)):
        run = cluster.fit(shards, patience={"idle": 200.0, "least": 60.0, "stale": 60.0}, **words)
        assert bits_of(run.model(200)) == bits_of(bigclf.fit(shards, **words))
        assert len(run.told("joined")) == run.records[-1]["workers"] == 16
        assert len({visit["pid"] for visit in cluster.visits(what="end")}) == 16


@pytest.mark.parametrize("case", ["perceptron", "pa2", "dcd", "dcd-streamed", "dcd-gathered", "dcd-filed"])
def test_one_killed_in_the_middle_of_an_epoch(cluster, shards, answers, case):
    answer = answers(case)
    order = cluster.order(at="begin", epoch=2, first=2, do="hold")
    run = cluster.fit(shards, **answer.keywords)
    cluster.of(order.claimed()).send(signal.SIGKILL)
    answer.check_run(run)
    assert run.told("left") and run.told("group 2 given out again")


@pytest.mark.parametrize("case", ["perceptron", "pa2", "dcd", "dcd-gathered"])
def test_one_stopped_for_ever(cluster, shards, answers, case):
    """Dask would take five minutes to notice."""
    answer = answers(case)
    order = cluster.order(at="begin", epoch=2, first=2, do="hold")
    run = cluster.fit(shards, **answer.keywords)
    cluster.of(order.claimed()).send(signal.SIGSTOP)
    answer.check_run(run)
    assert run.told("group 2 given out again")


@pytest.mark.parametrize("case", ["perceptron", "pa2", "dcd-streamed", "dcd-gathered"])
def test_one_that_joins_half_way(cluster, shards, answers, case):
    answer = answers(case)
    cluster.ensure(1)
    order = cluster.order(at="begin", epoch=2, first=2, do="hold")
    run = cluster.fit(shards, **answer.keywords)
    order.claimed()
    cluster.ensure(2)
    wait_for(lambda: len({visit["pid"] for visit in cluster.visits()}) == 2, what="a visit to the new one")
    order.release()
    answer.check_run(run)
    assert len(run.told("joined")) == 2


@pytest.mark.parametrize("case", ["perceptron", "pa2", "dcd-streamed", "dcd-gathered", "dcd-filed"])
def test_resumed_on_another_number_of_workers_after_the_driver_was_killed(
    cluster, shards, answers, case, drive, tmp_path
):
    answer = answers(case)
    model, run_dir = tmp_path / "m.bigclf", tmp_path / "run"
    order = cluster.order(at="begin", epoch=3, first=2, do="hold")
    words = ["fit", shards, "-o", model, "--workers", cluster.address, "--run-dir", run_dir, "--checkpoint-every", "0"]
    driver = drive(*words, *words_of(answer.keywords))
    order.claimed()
    driver.send(signal.SIGKILL)
    driver.end()
    assert not model.exists()
    order.release()
    cluster.ensure(1)
    run = cluster.fit(shards, run_dir=str(run_dir), resume=True, **answer.keywords)
    answer.check(run.model())
    assert run.records[0]["epoch"] == 3 and load(run_dir / "model.bigclf").digest() == answer.bits[0]
