"""Clusters that are restarted, shrunk and grown while a run is under way, by their own means."""

import time

import distributed
import pytest
from clusters import PATIENCE, Fitting

pytestmark = pytest.mark.chaos


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster.address, set_as_default=False) as client:
        yield client


def test_restarted(cluster, client, shards, answers):
    """Every worker's process is replaced, and all futures of all clients are forgotten."""
    answer = answers("dcd-streamed")
    order = cluster.order(at="begin", epoch=2, segment=0, first=2, do="hold")
    run = cluster.fit(shards, **answer.keywords, workers=client)
    order.claimed()
    order.release()
    client.restart(wait_for_workers=False)
    answer.check_run(run)
    assert len(run.told("joined")) >= 3


def test_workers_retired_one_after_another(cluster, client, shards, answers):
    answer = answers("dcd-streamed")
    cluster.pace(0.1)
    run = cluster.fit(shards, **answer.keywords)
    for epoch in (1, 2):
        run.wait_epoch(epoch)
        client.retire_workers([next(iter(cluster.known()))], close_workers=True)
    answer.check_run(run)
    assert run.told("left")


def test_adapted_from_nothing_up_and_down(shards, answers):
    """A cluster of Dask's own, that starts with no workers and makes one when something waits for it."""
    answer = answers("long")
    steps = iter([(3, 3), (1, 1), (2, 2), (0, 1)])

    def adapt(record):
        """The next step as soon as the run has noticed the last one; then the run may be quick."""
        if record["workers"] == adapt.n:
            low, high = next(steps, (0, 0))
            adapt.n = high
            if high:
                cluster.adapt(minimum=low, maximum=high, interval="50ms", wait_count=1)
        time.sleep(0.3 if adapt.n else 0)

    with distributed.LocalCluster(
        n_workers=0, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=0
    ) as cluster:
        adapt.n = 1
        cluster.adapt(minimum=0, maximum=1, interval="50ms", wait_count=1)
        run = Fitting(shards, workers=cluster, patience=PATIENCE, callbacks=[adapt], **answer.keywords)
        answer.check_run(run)
    assert adapt.n == 0
    assert len(run.told("left")) >= 3 and len(run.told("joined")) >= 4
