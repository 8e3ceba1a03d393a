"""Workers that stand still for a while, or for ever, while their connections stay open."""

import signal

import pytest

from bigclf.errors import ClusterError

pytestmark = pytest.mark.chaos


def test_one_that_stood_still_comes_back_with_a_late_result(cluster, shards, answers):
    answer = answers("pa2")
    first = cluster.order(at="begin", epoch=2, segment=0, first=2, do="hold")
    later = cluster.order(at="begin", epoch=4, segment=0, first=0, do="hold")
    run = cluster.fit(shards, **answer.keywords)
    frozen = first.claimed()
    cluster.of(frozen).send(signal.SIGSTOP)
    first.release()
    later.claimed()  # the others went on without it
    cluster.of(frozen).send(signal.SIGCONT)
    cluster.wait_visit(what="end", pid=frozen, epoch=2, segment=0, first=2)
    later.release()
    answer.check_run(run)
    assert len(cluster.visits(what="end", epoch=2, segment=0, first=2)) == 2
    assert run.told("group 2 given out again") and not run.told("left")


def test_it_is_used_again_when_it_is_the_only_one(cluster, shards, answers):
    answer = answers("perceptron")
    cluster.ensure(1)
    order = cluster.order(at="begin", epoch=2, first=2, do="hold")
    run = cluster.fit(shards, **answer.keywords)
    frozen = order.claimed()
    cluster.of(frozen).send(signal.SIGSTOP)
    order.release()
    cluster.of(frozen).send(signal.SIGCONT)
    answer.check_run(run)


def test_all_stand_still_for_longer_than_the_idle_limit(cluster, shards, answers):
    answer = answers("perceptron")
    order = cluster.order(at="begin", epoch=2, first=2, do="hold")
    run = cluster.fit(shards, patience={"stale": 2, "least": 3, "idle": 1}, **answer.keywords)
    order.claimed()
    for worker in cluster.workers:
        worker.send(signal.SIGSTOP)
    with pytest.raises(ClusterError, match="no usable worker for 1 s"):
        run.model()
