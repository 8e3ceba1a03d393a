"""Sums over all rows, of which a part is lost, late or made twice: the answer has the bits of undisturbed sums."""

import signal

import pytest

pytestmark = pytest.mark.chaos
every_case = pytest.mark.parametrize("case", ["newton", "newton-streamed", "newglmnet"])
EPOCH = 3


@every_case
def test_one_killed_in_the_middle_of_a_sum(cluster, shards, answers, case):
    """A block of the group is in the sums; they are begun anew elsewhere, and nothing counts twice."""
    answer = answers(case)
    order = cluster.order(at="sum", epoch=EPOCH, first=2, do="kill")
    run = cluster.fit(shards, **answer.keywords)
    answer.check_run(run)
    assert order.claims() and run.told("left") and run.told("group 2 given out again")


@every_case
def test_a_straggler_is_not_waited_for(cluster, shards, answers, case):
    """One stands still in the middle of a sum and goes on when the run is over: its part comes too late to count."""
    answer = answers(case)
    order = cluster.order(at="sum", epoch=EPOCH, first=1, do="hold")
    run = cluster.fit(shards, **answer.keywords)
    holder = cluster.of(order.claimed())
    holder.send(signal.SIGSTOP)
    answer.check_run(run)
    assert run.told("group 1 given out again")
    order.release()
    holder.send(signal.SIGCONT)


@every_case
def test_a_part_that_is_lost_with_its_worker_is_made_again(cluster, shards, answers, case):
    """The sum is done and the scheduler knows; its worker dies when it is asked for it."""
    answer = answers(case)
    order = cluster.order(at="fetch", epoch=EPOCH, first=3, do="kill")
    run = cluster.fit(shards, **answer.keywords)
    answer.check_run(run)
    assert order.claims() and run.told("left") and run.told("group 3 given out again")
    assert len(cluster.visits(what="end", epoch=EPOCH, first=3)) >= 2
