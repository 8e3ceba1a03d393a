"""Workers that join between themselves what their groups came to: whoever dies, freezes or cannot be asked then."""

import signal

import pytest
from clusters import wait_for

pytestmark = pytest.mark.chaos
LAST = 4  # of the groups
APART = "newton", "newglmnet"  # what their groups come to is at the driver at once: the sums' arrays alone, or columns


@pytest.fixture(autouse=True)
def joined_there(monkeypatch):
    from bigclf.cluster import joining

    monkeypatch.setattr(joining, "SPREAD_BYTES", 0)
    monkeypatch.setattr(joining, "CUT_BYTES", 0)
    monkeypatch.setattr(joining, "LINE_BYTES", 0)  # and the common state is passed on


every_case = pytest.mark.parametrize("case", ["pa2", "dcd", "dcd-gathered", "dcd-filed", "newton", "newglmnet"])


def held_up(cluster, shards, answer):
    """A run whose last group is held by one worker while the other holds what its groups came to; the two."""
    segment = answer.segments - 1
    order = cluster.order(at="begin", epoch=2, segment=segment, first=LAST, do="hold")
    run = cluster.fit(shards, **answer.keywords)
    holder = cluster.of(order.claimed())
    wait_for(lambda: len(cluster.visits(what="end", epoch=2, segment=segment)) >= LAST, what="the other groups")
    wait_for(lambda: run.counter.results % (LAST + 1) == LAST, what="the driver's hearing of them")
    return run, order, holder, next(worker for worker in cluster.workers if worker is not holder)


@pytest.mark.parametrize("moment", [signal.SIGKILL, signal.SIGSTOP])
@every_case
def test_what_is_lost_with_whoever_held_it_is_made_again(cluster, shards, answers, case, moment):
    answer = answers(case)
    run, order, _, other = held_up(cluster, shards, answer)
    other.send(moment)
    if moment == signal.SIGKILL:
        wait_for(lambda: run.told("left") or len(cluster.known()) == 1, what="the scheduler's noticing")
    order.release()
    answer.check_run(run)
    if case not in APART:
        assert any(run.told(f"group {group} given out again (lost)") for group in range(LAST + 1))


@every_case
def test_one_that_joins_the_run_may_join_parts(cluster, shards, answers, case):
    answer = answers(case)
    cluster.ensure(1)
    order = cluster.order(at="begin", epoch=2, segment=answer.segments - 1, first=LAST, do="hold")
    run = cluster.fit(shards, **answer.keywords)
    order.claimed()
    cluster.ensure(2)
    wait_for(lambda: run.told("joined") or len(cluster.known()) == 2, what="the other one")
    order.release()
    answer.check_run(run)


@pytest.mark.parametrize("case", ["pa2", "dcd"])
def test_the_bits_of_one_two_and_four(cluster, shards, answers, case):
    for n in (1, 2, 4):
        cluster.ensure(n)
        answer = answers(case)
        answer.check_run(cluster.fit(shards, **answer.keywords))
