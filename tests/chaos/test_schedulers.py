"""The scheduler dies, drivers meet on one run directory, two runs share a cluster, lines are cut."""

import contextlib
import shlex
import signal
import socket
import threading
import time

import distributed
import pytest
from clusters import PATIENCE, wait_for, words_of

import bigclf
from bigclf.errors import ClusterError, RunError
from bigclf.model.model import load

pytestmark = pytest.mark.chaos


def run_words(shards, answer, cluster, run_dir, model):
    words = ["fit", shards, "-o", model, "--workers", cluster.address, "--run-dir", run_dir, "--checkpoint-every", "0"]
    return [*words, *words_of(answer.keywords)]


# A scheduler that dies


def test_a_scheduler_that_is_killed_and_comes_back(chaos_cluster, shards, answers):
    """Workers leave with it and a supervisor starts them again; the client finds the scheduler by itself."""
    answer = answers("long")
    cluster = chaos_cluster(supervised=True, env={"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "2s"})
    cluster.start(2)
    cluster.pace(0.05)
    run = cluster.fit(shards, **answer.keywords)
    run.wait_epoch(3)
    cluster.kill_scheduler()
    cluster.start_scheduler()
    answer.check(run.model(60))
    assert run.told("left") and len(run.told("joined")) >= 3


def test_without_a_supervisor_it_is_resumed_on_another_cluster(chaos_cluster, shards, answers, drive, tmp_path):
    """Given up after longer than Dask's client looks for its scheduler, which is 10 s."""
    answer, model = answers("dcd"), tmp_path / "m.bigclf"
    cluster = chaos_cluster()
    cluster.start(2)
    order = cluster.order(at="begin", epoch=3, first=2, do="hold")
    driver = drive(*run_words(shards, answer, cluster, tmp_path / "run", model), idle=12)
    order.claimed(seconds=90)
    cluster.kill_scheduler()
    code, _, error = driver.end()
    assert code == 5 and "--resume" in error and not model.exists()
    other = chaos_cluster()
    other.start(1)
    words = shlex.split(error.split("continue with:")[1].splitlines()[0])[1:]
    words[words.index("--workers") + 1] = other.address
    code, _, _ = drive(*words).end()
    assert code == 0 and load(model).digest() == answer.bits[0]


# A driver that dies


@pytest.mark.parametrize("moment", range(4))
def test_a_driver_killed_while_it_writes_a_checkpoint(moment, cluster, shards, answers, drive, tmp_path):
    """At a moment of its own in each case: the new checkpoint or the one before is whole."""
    answer, model, run_dir = answers("dcd"), tmp_path / "m.bigclf", tmp_path / "run"
    cluster.pace(0)
    driver = drive(*run_words(shards, answer, cluster, run_dir, model))
    wait_for(lambda: len(list(run_dir.glob("state-*"))) > 0 or driver.popen.poll() is not None)
    time.sleep(0.013 * moment)
    driver.send(signal.SIGKILL)
    driver.end()
    run = cluster.fit(shards, run_dir=str(run_dir), resume=True, **answer.keywords)
    assert run.model().digest() == answer.bits[0]


# Two drivers, and tasks that nobody waits for any more


def test_two_drivers_on_one_run_directory(cluster, shards, answers, drive, tmp_path):
    answer, run_dir = answers("perceptron"), tmp_path / "run"
    order = cluster.order(at="begin", epoch=2, first=1, do="hold")
    first = drive(*run_words(shards, answer, cluster, run_dir, tmp_path / "a"))
    order.claimed()
    with pytest.raises(RunError, match=f"in use by process {first.popen.pid} on {socket.gethostname()}"):
        bigclf.fit(shards, run_dir=run_dir, resume=True, workers=cluster.address, progress=False, **answer.keywords)
    order.release()
    code, _, _ = first.end()
    assert code == 0 and load(tmp_path / "a").digest() == answer.bits[0]


def test_tasks_of_a_driver_that_died_hold_nobody_up(cluster, shards, answers, drive, tmp_path):
    """Its visits are still there, one of them held for ever; another run on the same cluster does not wait for it."""
    answer = answers("pa2")
    order = cluster.order(at="begin", epoch=2, segment=0, first=1, do="hold")
    driver = drive(*run_words(shards, answer, cluster, tmp_path / "run", tmp_path / "a"))
    order.claimed()
    driver.send(signal.SIGKILL)
    driver.end()
    run = cluster.fit(shards, run_dir=str(tmp_path / "run"), resume=True, **answer.keywords)
    assert run.model().digest() == answer.bits[0]
    order.release()


# Two runs on one cluster


def test_two_runs_on_one_cluster_while_a_worker_dies(cluster, shards, answers):
    first, second = answers("pa2"), answers("dcd-streamed")
    runs = [cluster.fit(shards, **answer.keywords) for answer in (first, second)]
    runs[0].wait_epoch(1)
    cluster.workers[0].send(signal.SIGKILL)
    for run, answer in zip(runs, (first, second), strict=True):
        answer.check(run.model())


# Lines that are cut, by a proxy in front of the scheduler


class Proxy:
    """A line to an address that can be cut without a word: both ends stay open and hear nothing."""

    def __init__(self, address):
        self.target = tuple(address.removeprefix("tcp://").rsplit(":", 1))
        self.cut = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._socket.getsockname()[1]}"
        self._open = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._socket.accept()
                there = socket.create_connection((self.target[0], int(self.target[1])))
                self._open += [here, there]
                for a, b in ((here, there), (there, here)):
                    threading.Thread(target=self._pass_on, args=(a, b), daemon=True).start()

    def _pass_on(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                while self.cut.is_set():
                    time.sleep(0.02)
                sink.sendall(data)
        self._end(source, sink)

    @staticmethod
    def _end(*sockets):
        for end in sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # a thread that waits in it keeps it open otherwise
            end.close()

    def close(self):
        self._end(self._socket, *self._open)


@pytest.mark.parametrize("heals", [True, False])
def test_a_worker_cut_off_from_the_scheduler(heals, cluster, shards, answers):
    answer = answers("perceptron")
    with contextlib.closing(Proxy(cluster.address)) as proxy:
        direct, cluster.address = cluster.address, proxy.address
        try:
            far = cluster.add_worker()
        finally:
            cluster.address = direct
        wait_for(lambda: len(cluster.known()) == 3, what="the third worker")
        run = cluster.fit(shards, **answer.keywords)
        cluster.wait_visit(what="begin", pid=wait_for(lambda: far.pid))
        proxy.cut.set()
        if heals:
            time.sleep(4)
            proxy.cut.clear()
        answer.check_run(run)
        proxy.cut.clear()
        cluster.remove(far)


def test_the_driver_cut_off_from_the_scheduler_for_a_while(cluster, shards, answers):
    answer = answers("perceptron")
    with contextlib.closing(Proxy(cluster.address)) as proxy:
        run = cluster.fit(shards, workers=proxy.address, **answer.keywords)
        run.wait_epoch(1)
        proxy.cut.set()
        time.sleep(4)
        proxy.cut.clear()
        answer.check_run(run)


def test_the_driver_cut_off_for_ever(cluster, shards, answers, tmp_path):
    answer = answers("perceptron")
    with contextlib.closing(Proxy(cluster.address)) as proxy:
        patience = PATIENCE | {"stale": 1, "idle": 2}
        run = cluster.fit(shards, workers=proxy.address, patience=patience, run_dir=str(tmp_path), **answer.keywords)
        run.wait_epoch(1)
        proxy.cut.set()
        with pytest.raises(ClusterError, match="no usable worker for 2 s.*resume it with run_dir="):
            run.model()
        proxy.cut.clear()
    again = cluster.fit(shards, run_dir=str(tmp_path), resume=True, **answer.keywords)
    assert again.model().digest() == answer.bits[0]


# The caller's own client


def test_a_client_that_is_closed_under_the_run(cluster, shards, answers):
    """A notebook's cell was run again: the run finds its own way to the scheduler."""
    answer = answers("long")
    client = distributed.Client(cluster.address, set_as_default=False)
    run = cluster.fit(shards, workers=client, **answer.keywords)
    run.wait_epoch(2)
    with contextlib.suppress(TimeoutError):  # its thread may be slow to end
        client.close()
    answer.check(run.model())
