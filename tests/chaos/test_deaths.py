"""Workers that die: alone, together, again and again, at one shard, of memory."""

import contextlib
import os
import random
import shlex
import signal
import time

import pytest
from clusters import wait_for, words_of

from bigclf.errors import DataError
from bigclf.model.model import load

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("moment", ["end", "fetch"])
def test_killed_after_it_computed_and_before_its_result_was_fetched(cluster, shards, answers, moment):
    answer = answers("dcd-streamed")
    order = cluster.order(at=moment, epoch=2, segment=1, first=2, do="kill")
    run = cluster.fit(shards, **answer.keywords)
    answer.check_run(run)
    assert order.claims() and run.told("left") and run.told("group 2 given out again")
    made = cluster.visits(what="end", epoch=2, segment=1, first=2)
    assert len(made) >= (2 if moment == "fetch" else 1)


def test_all_but_one_killed(cluster, shards, answers):
    answer = answers("pa2")
    cluster.ensure(3)
    order = cluster.order(at="begin", epoch=2, first=2, do="hold")
    run = cluster.fit(shards, **answer.keywords)
    holder = cluster.of(order.claimed())
    cluster.remove(next(worker for worker in cluster.workers if worker is not holder))
    wait_for(lambda: len(cluster.known()) == 2, what="the scheduler's noticing")
    cluster.remove(holder)
    answer.check_run(run)
    assert len(run.told("left")) == 2 and run.records[-1]["workers"] == 1


def test_all_killed_and_others_come_later(cluster, shards, answers):
    answer = answers("dcd")
    order = cluster.order(at="begin", epoch=2, first=2, do="hold")
    run = cluster.fit(shards, **answer.keywords)
    order.claimed()
    cluster.remove(*cluster.workers)
    wait_for(lambda: not cluster.known(), what="the scheduler's noticing")
    time.sleep(1.5)
    assert not run.is_over()
    cluster.ensure(1)
    answer.check_run(run)
    assert len(run.told("left")) == 2 and len(run.told("joined")) == 3


def test_killed_at_random_moments_during_twenty_epochs(cluster, shards, answers):
    """Other moments in every run; the seed that is printed gives them again, as far as the machine does."""
    answer = answers("long")
    seed = random.SystemRandom().randrange(10**6)
    print("seed", seed)
    draw = random.Random(seed)
    cluster.pace(0.1)
    run = cluster.fit(shards, **answer.keywords)
    run.wait_epoch(1)
    killed = 0
    while not run.is_over() and killed < 3:
        time.sleep(draw.expovariate(1.5) if killed else 0)
        victim = draw.choice(cluster.workers).pid
        if victim is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
                killed += 1
    answer.check_run(run)
    assert killed and run.told("left")


def test_a_visit_that_meets_many_deaths_does_not_end_the_run(cluster, shards, answers):
    """Dask gives a task up after four; here each attempt is a task of its own, and a trial clears the shard."""
    answer = answers("perceptron")
    order = cluster.order(at="begin", epoch=2, first=2, do="kill", times=3)
    run = cluster.fit(shards, **answer.keywords)
    answer.check_run(run)
    assert len(order.claims()) == 3 and len(run.told("group 2 given out again")) >= 3


def test_killed_until_the_run_gives_up(cluster, shards, answers, drive, tmp_path):
    """Whoever begins the same visit dies, and trials of it do not: an error that says so and of what one dies most
    often, and the line that is shown ends with the bits when nobody kills any more."""
    answer, model = answers("pa2"), tmp_path / "m.bigclf"
    cluster.ensure(3)
    order = cluster.order(at="begin", epoch=3, first=2, do="kill", times=1000)
    words = ["fit", shards, "-o", model, "--workers", cluster.address, "--checkpoint-every", "0"]
    code, _, error = drive(*words, *words_of(answer.keywords)).end(250)
    assert code == 5 and "Traceback" not in error and not model.exists()
    said = next(line for line in error.splitlines() if line.startswith("error:"))
    assert "group 2 could not be visited: 20 workers died at it" in said and "memory limit" in said
    assert 20 <= len(order.claims()) <= 23  # others may have begun it as the twentieth died
    cluster.reset()
    before = len(cluster.visits(what="end", epoch=1))
    cluster.ensure(1)
    code, _, error = drive(*shlex.split(error.split("continue with:")[1].splitlines()[0])[1:]).end()
    assert code == 0 and load(model).digest() == answer.bits[0], error
    assert len(cluster.visits(what="end", epoch=1)) == before == 0  # epochs that were done are not done again


def test_a_shard_that_kills_whoever_reads_it_is_named(cluster, shards, answers):
    answer = answers("pa2")
    order = cluster.order(at="decode", file="part-00002.parquet", row_group=1, do="segfault", seconds=0.5, times=1000)
    run = cluster.fit(shards, **answer.keywords)
    with pytest.raises(DataError, match="signal 11") as error:
        run.model()
    assert error.value.file.endswith("part-00002.parquet") and error.value.row_group == 1
    assert 3 <= len(order.claims()) <= 5  # two workers and the trial; two more where what they did before was blamed
    cluster.reset()
    run = cluster.fit(shards, **answer.keywords)
    answer.check_run(run)
