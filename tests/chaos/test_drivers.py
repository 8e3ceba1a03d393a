"""The process that asked for the run is interrupted, or loses its cluster: what is written down, said and resumed."""

import shlex
import signal

import pytest
from clusters import words_of

import bigclf
from bigclf.cluster.link import connect
from bigclf.errors import ClusterError
from bigclf.model.model import load

pytestmark = pytest.mark.chaos


@pytest.fixture
def started(cluster, shards, answers, drive, tmp_path):
    """case, patience -> a driver that is held in epoch 3, the order, the answer and where the model goes."""

    def start(name, **patience):
        answer, model = answers(name), tmp_path / "m.bigclf"
        order = cluster.order(at="begin", epoch=3, segment=0, first=2, do="hold")
        words = ["fit", shards, "-o", model, "--workers", cluster.address, "--checkpoint-every", "0"]
        driver = drive(*words, *words_of(answer.keywords), **patience)
        order.claimed()
        return driver, order, answer, model

    return start


def resumed(drive, error):
    """A driver on the command line that was shown."""
    words = error.split("continue with:")[1].splitlines()[0]
    assert "--resume" in words
    return drive(*shlex.split(words)[1:])


def test_sigterm_is_obeyed_at_the_end_of_the_segment(cluster, shards, started):
    driver, order, answer, model = started("dcd-streamed")
    driver.send(signal.SIGTERM)
    order.release()
    code, _, error = driver.end()
    assert code == 6 and "--resume" in error and not model.exists()
    answer.check(cluster.fit(shards, run_dir=f"{model}.run", resume=True, **answer.keywords).model())


def test_ctrl_c_twice(cluster, shards, started):
    """The first is obeyed at the end of the epoch, which does not come here; the second at once."""
    driver, order, answer, model = started("perceptron")
    driver.send(signal.SIGINT)
    assert "SIGINT: stopping at the end of the epoch" in driver.said("stopping")
    driver.send(signal.SIGINT)
    code, _, error = driver.end(20)
    assert code == 6 and "--resume" in error and not model.exists()
    order.release()
    answer.check(cluster.fit(shards, run_dir=f"{model}.run", resume=True, **answer.keywords).model())


def test_every_worker_lost_for_longer_than_the_idle_limit(cluster, started, drive):
    driver, order, answer, model = started("pa2", idle=1)
    cluster.remove(*cluster.workers)
    code, _, error = driver.end()
    assert code == 5 and "no usable worker for 1 s" in error and not model.exists()
    cluster.ensure(1)
    code, _, _ = resumed(drive, error).end()
    assert code == 0 and load(model).digest() == answer.bits[0]


def test_no_worker_ever_comes(cluster, shards, tmp_path):
    cluster.remove(*cluster.workers)
    run = cluster.fit(shards, algo="perceptron", patience={"idle": 0.5}, run_dir=str(tmp_path / "run"))
    with pytest.raises(ClusterError, match=r"no usable worker for \d+ s.*resume it with run_dir="):
        run.model()
    with pytest.raises(ClusterError, match="no worker came to"):  # how many groups, then?
        bigclf.fit(shards, algo="perceptron", workers=bigclf.Workers(cluster.address, patience={"idle": 0.5}))


def test_nobody_at_the_address():
    with pytest.raises(ClusterError, match="no Dask scheduler answers"):
        connect("tcp://127.0.0.1:9", timeout=0.5)
