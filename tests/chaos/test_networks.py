"""Networks that fail: three hosts behind a switch that delays, loses and cuts (faults 25 to 29 and 32).

The hosts are network namespaces of this machine: the scheduler and the driver on one, a worker on each of two others.
All is encrypted, and each run comes to the bits of one that nothing happened to.
"""

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from clusters import HERE, PATIENCE, ChaosCluster, kill_trees, wait_for, words_of
from making import environment

from bigclf import tls
from bigclf.model import load

pytestmark = pytest.mark.root
NUMBERS = itertools.count()


class Network(ChaosCluster):
    """A cluster of three hosts: ``s`` with the scheduler, ``a`` and ``b`` with a worker each."""

    def __init__(self, home, certificates, **options):
        if shutil.which("ip") is None or not os.path.exists("/dev/net/tun"):
            pytest.skip("needs the program ip and /dev/net/tun")
        super().__init__(home, env={"DASK_CONFIG": str(certificates)}, **options)
        mark = f"bigclf-{os.getpid()}-{next(NUMBERS)}"
        self.names = {host: f"{mark}-{host}" for host in "sab"}
        self.addresses = {host: f"10.77.0.{k}" for k, host in enumerate("sab", start=1)}
        words = [f"{self.names[host]}={self.addresses[host]}/24" for host in "sab"]
        self.switch = subprocess.Popen([sys.executable, str(HERE / "switch.py"), *words], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)  # fmt: skip
        assert self.switch.stdout.readline() == "ready\n"
        self._host, self._drivers = "s", []

    def tell(self, *words):
        """The switch, in its own words; hosts are s, a and b."""
        named = [":".join(self.names.get(part, part) for part in word.split(":")) for word in words]
        self.switch.stdin.write(" ".join(named) + "\n")
        self.switch.stdin.flush()
        assert self.switch.stdout.readline() == "ok\n"

    # On the hosts

    def _command(self, words):
        return ["ip", "netns", "exec", self.names[self._host], *super()._command(words)]

    def begin(self):
        self.start_scheduler(self.addresses["s"])
        for self._host in "ab":
            self.add_worker(self.addresses[self._host])
        self._host = "s"
        wait_for(lambda: all(worker.pid for worker in self.workers), 60, "both workers")
        return self

    @property
    def far(self):
        """The process on host b that makes visits."""
        return self.workers[1].pid

    def fit(self, shards, answer, directory, **patience):
        driver = Driver(self, shards, answer, directory, patience)
        self._drivers.append(driver)
        return driver

    def close(self):
        for driver in self._drivers:
            kill_trees(driver.popen)
        super().close()
        self.switch.stdin.close()
        self.switch.wait(10)

    def drop_client(self):
        """There is none: this process is on no host."""


class Driver:
    """A run's driver on host s, and what it said."""

    def __init__(self, network, shards, answer, directory, patience):
        self.answer, self.directory = answer, directory
        self.model, self.run, self._log = directory / "model.bigclf", directory / "run", directory / "driver.log"
        words = [sys.executable, HERE / "driver.py", "fit", shards, "-o", self.model, "--workers", network.address]
        words += ["--run-dir", self.run, *words_of(answer.keywords)]
        env = environment(BIGCLF_CHAOS_PATIENCE=json.dumps(PATIENCE | patience), NO_COLOR="1", PYTHONWARNINGS="ignore",
                          DASK_LOGGING__BIGCLF="info", **network.env)  # fmt: skip
        with open(self._log, "w") as log:
            self.popen = subprocess.Popen(
                ["ip", "netns", "exec", network.names["s"], *map(str, words)], env=env, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    @property
    def said(self):
        return self._log.read_text()

    def check(self, seconds=120):
        """It ends, and the model has the bits of a run that nothing happened to."""
        try:
            assert self.popen.wait(seconds) in (0, 4)
        finally:
            print("--- the driver", self.said[-6000:], sep="\n")
        model = load(self.model)
        assert (model.digest(), model.coef_.tobytes(), model.intercept_.tobytes()) == self.answer.bits[:3]
        epochs = [json.loads(line)["epoch"] for line in (self.run / "history.jsonl").read_text().splitlines()]
        assert epochs == sorted(set(epochs)) and epochs[-1] == self.answer.epochs


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    directory = tmp_path_factory.mktemp("certificates")
    tls.make(str(directory))
    recipes = HERE.parent.parent / "cluster"
    if recipes.exists():  # with the settings that the recipes have
        shutil.copy(recipes / "dask.yaml", directory)
    return directory


@pytest.fixture
def network(tmp_path_factory, certificates):
    with contextlib.closing(Network(tmp_path_factory.mktemp("network"), certificates)) as there:
        yield there.begin()
        there.logs()


# Fault 25


@pytest.mark.parametrize("case", ["long", "dcd-streamed"])
def test_a_host_that_is_cut_off_for_a_while_and_comes_back(network, shards, answers, case, tmp_path):
    network.pace(0.3)
    run = network.fit(shards, answers(case), tmp_path)
    network.wait_visit(what="begin", pid=network.far)
    network.tell("cut", "b")
    time.sleep(5)
    network.tell("heal")
    healed = time.monotonic()
    if case == "long":
        wait_for(lambda: [v for v in network.visits(pid=network.far) if v["at"] > healed + 1], 60, "a visit by it")
    network.pace(0)
    run.check()
    assert "given out again" in run.said


def test_the_scheduler_is_cut_off_from_all_for_a_while(network, shards, answers, tmp_path):
    network.pace(0.1)
    run = network.fit(shards, answers("pa2"), tmp_path)
    network.wait_visit(what="begin", epoch=2)
    network.tell("cut", "s")
    time.sleep(5)
    network.tell("heal")
    run.check()


# Fault 26


@pytest.mark.parametrize("case", ["perceptron", "dcd-streamed"])
def test_a_host_that_is_cut_off_for_ever_and_works_on(network, shards, answers, case, tmp_path):
    """What it was doing it finishes, and nobody wants it any more."""
    orders = [network.order(at="begin", epoch=2, first=first, do="hold") for first in range(5)]
    run = network.fit(shards, answers(case), tmp_path)
    wait_for(lambda: any(network.far in order.claims() for order in orders), what="the far worker to begin")
    network.tell("cut", "b")
    for order in orders:
        order.release()
    network.wait_visit(what="end", pid=network.far, epoch=2)
    run.check()
    assert "given out again" in run.said
    network.tell("heal")
    time.sleep(3)  # its late result finds its way
    assert load(run.model).digest() == run.answer.bits[0]


# Fault 27


@pytest.mark.parametrize("case", ["pa2", "dcd-streamed"])
def test_two_workers_that_cannot_reach_each_other(network, shards, answers, case, tmp_path):
    """No worker needs another: nobody notices."""
    network.tell("cut", "a:b")
    network.pace(0.05)
    run = network.fit(shards, answers(case), tmp_path, stale=10, least=30)
    run.check()
    assert {visit["pid"] for visit in network.visits()} == {worker.pid for worker in network.workers}
    assert "given out again" not in run.said


# Fault 28


def test_a_slow_line_that_loses_frames(network, shards, answers, tmp_path):
    """200 ms there and back, 1 MB/s, one frame of a hundred lost; with the patience that runs have by default."""
    for word in (("delay", "0.1"), ("rate", "1e6"), ("loss", "0.01")):
        network.tell(*word)
    run = network.fit(shards, answers("long"), tmp_path, stale=10, least=30)
    run.check(200)
    assert "communication dominates" in run.said and "fewer mixes" in run.said
    assert "given out again" not in run.said


# Fault 29


def test_a_worker_that_dies_without_a_word_on_the_line(network, shards, answers, tmp_path):
    """Half-open: its end of each connection is gone, and no FIN or RST tells the other."""
    orders = [network.order(at="begin", epoch=2, first=first, do="hold") for first in range(5)]
    run = network.fit(shards, answers("perceptron"), tmp_path)
    wait_for(lambda: any(network.far in order.claims() for order in orders), what="the far worker to begin")
    network.tell("hush", "b")
    network.workers[1].send(signal.SIGKILL, nanny=True)
    for order in orders:
        order.release()
    run.check()
    assert "given out again" in run.said


# Fault 32


LISTENING = """
import psutil
from bigclf.tls import speaks_tls
for one in psutil.net_connections("tcp"):
    if one.status == "LISTEN":
        print(one.laddr.ip, speaks_tls(f"tls://{one.laddr.ip}:{one.laddr.port}"))
"""


def test_whatever_listens_beyond_loopback_wants_a_certificate(network):
    for host, least in (("s", 1), ("a", 2), ("b", 2)):  # a worker has a nanny
        words = ["ip", "netns", "exec", network.names[host], sys.executable, "-c", LISTENING]
        told = subprocess.run(words, env=environment(), text=True, capture_output=True, check=True).stdout
        beyond = [line for line in told.splitlines() if not line.startswith("127.0.0.1 ")]
        assert len(beyond) >= least and set(beyond) == {f"{network.addresses[host]} True"}, told


def test_without_a_certificate_nothing_falls_back(network, shards, answers, tmp_path):
    network.env = {}
    for address, said in ((network.address, "wants certificates"),
                          (network.address.replace("tls://", "tcp://"), "wants TLS: write tls://")):  # fmt: skip
        network.address = address
        run = network.fit(shards, answers("perceptron"), tmp_path)
        assert run.popen.wait(60) == 5 and said in run.said, run.said
