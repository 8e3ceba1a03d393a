"""Workers that are not as the driver is join a run: left out by name, while the others end it with the same bits."""

import os
import shutil

import pytest
from clusters import wait_for
from making import PACKAGE, ROOMS

from bigclf.version import __version__

pytestmark = pytest.mark.chaos


def another_processor(directory):
    return {"NUMBA_CPU_NAME": "core2"}, "processor"


def another_bigclf(directory):
    """A copy with another version."""
    shutil.copytree(PACKAGE, directory / "bigclf", ignore=shutil.ignore_patterns("__pycache__"))
    version = directory / "bigclf" / "version.py"
    version.write_text(version.read_text().replace(__version__, "0.0.9"))
    path = os.pathsep.join([str(directory), *ROOMS])
    return {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}, "0.0.9"  # not from where the tests are run


@pytest.mark.parametrize("other", [another_processor, another_bigclf])
def test_a_worker_that_is_not_as_the_driver_is_left_out_by_name(chaos_cluster, shards, answers, tmp_path, other):
    answer = answers("perceptron")
    cluster = chaos_cluster(nanny=False).start(1)
    first = cluster.workers[0].pid
    more, said = other(tmp_path)
    cluster.env.update(more)
    cluster.add_worker()
    wait_for(lambda: len(cluster.known()) == 2, 100, "the other worker")
    cluster.pace(0.3)
    run = cluster.fit(shards, patience={"idle": 100.0}, **answer.keywords)
    answer.check_run(run, 200)
    (event,) = run.told("not used: ")
    assert said in event["what"] and {visit["pid"] for visit in cluster.visits()} == {first}
