"""Workers with less memory than a plan needs, and workers that are killed for theirs."""

import os

import pytest
from making import control_group

import bigclf
from bigclf.errors import MemoryBudgetError

pytestmark = pytest.mark.chaos


def test_the_limit_of_a_nanny(chaos_cluster, shards):
    """Refused with a budget that would do; with that budget the run is done, though a worker is ended at its limit."""
    limit = 320_000_000
    cluster = chaos_cluster(memory_limit=str(limit), env={"DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "false"}).start(1)
    wanted = dict(algo="perceptron", epochs=3, groups=5)
    with pytest.raises(MemoryBudgetError, match="the limit there is 320 MB") as refusal:
        cluster.fit(shards, **wanted).model()
    wanted["memory"] = str(refusal.value).split("memory=")[1].split(" would do")[0].replace(" ", "")
    order = cluster.order(at="begin", epoch=2, first=2, do="hog", bytes=limit, seconds=3)
    run = cluster.fit(shards, **wanted)
    assert run.model().digest() == bigclf.fit(shards, **wanted).digest()
    assert order.claims() and run.told("group 2 given out again") and run.told("left")


@pytest.mark.root
def test_the_limit_of_a_control_group(chaos_cluster, shards, answers, caplog):
    """The run goes on, and a warning says where to look."""
    limit = 700_000_000
    answer = answers("perceptron")
    with control_group("memory", limit) as members:
        cluster = chaos_cluster(join=lambda: members.write_text(str(os.getpid()))).start(1)
        order = cluster.order(at="begin", epoch=2, first=2, do="hog", bytes=limit, seconds=20)
        try:
            patient = {"stale": 120, "least": 120}  # or it may be late before it is ended
            run = cluster.fit(shards, patience=patient, **answer.keywords)
            answer.check_run(run)
            assert order.claims() and run.told("group 2 given out again") and run.told("left")
            assert "a worker died at group" in caplog.text and "start them with a higher memory limit" in caplog.text
        finally:
            cluster.close()
