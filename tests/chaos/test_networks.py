"""Networks that fail: three hosts behind a switch that delays, loses and cuts.

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
from bigclf.model.model import load

pytestmark = [pytest.mark.root, pytest.mark.timeout(1200)]
NUMBERS = itertools.count()
LONG = 400.0  # seconds: what is waited for comes sooner, also on a machine that has much else to do for minutes


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
        return self.settle()

    def settle(self):
        """Healed, idle and without orders."""
        self.tell("heal")
        wait_for(lambda: all(worker.pid for worker in self.workers), LONG, "both workers")
        wait_for(self._at_rest, LONG, "the end of all visits")
        self.reset()
        return self

    def _at_rest(self):
        told = [visit["what"] for visit in self.visits()]
        return 2 * told.count("begin") == len(told)

    def wait_visit(self, seconds=LONG, **where):
        return super().wait_visit(seconds, **where)

    def wait_far(self, orders):
        """Until the worker on host b met one of the orders."""
        wait_for(lambda: any(self.far in order.claims() for order in orders), LONG, "the far worker to begin")

    @property
    def far(self):
        """The process on host b that makes visits."""
        return self.workers[1].pid

    def fit(self, shards, answer, directory, **patience):
        driver = Driver(self, shards, answer, directory, patience)
        self._drivers.append(driver)
        return driver

    def close(self):
        kill_trees(*(driver.popen for driver in self._drivers))
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

    def check(self, seconds=LONG):
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
    """For a test that loses one of its hosts."""
    with contextlib.closing(Network(tmp_path_factory.mktemp("network"), certificates)) as there:
        yield there.begin()
        there.logs()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory, certificates):
    with contextlib.closing(Network(tmp_path_factory.mktemp("network"), certificates)) as there:
        yield there.begin()


@pytest.fixture
def sound(lasting):
    """For tests after which all are there again: one after the other, on the same network."""
    yield lasting.settle()
    lasting.logs()


# A line that is cut and heals


@pytest.mark.parametrize("case", ["long", "dcd-streamed"])
def test_a_host_that_is_cut_off_for_a_while_and_comes_back(sound, shards, answers, case, tmp_path):
    sound.pace(0.3)
    run = sound.fit(shards, answers(case), tmp_path)
    sound.wait_visit(what="begin", pid=sound.far)
    sound.tell("cut", "b")
    time.sleep(5)
    sound.tell("heal")
    healed = time.monotonic()
    if case == "long":
        wait_for(lambda: [v for v in sound.visits(pid=sound.far) if v["at"] > healed + 1], LONG, "a visit by it")
    sound.pace(0)
    run.check()
    assert "given out again" in run.said


def test_the_scheduler_is_cut_off_from_all_for_a_while(sound, shards, answers, tmp_path):
    sound.pace(0.1)
    run = sound.fit(shards, answers("pa2"), tmp_path)
    sound.wait_visit(what="begin", epoch=2)
    sound.tell("cut", "s")
    time.sleep(5)
    sound.tell("heal")
    run.check()


# A line that is cut for ever


@pytest.mark.parametrize("case", ["perceptron", "dcd-streamed"])
def test_a_host_that_is_cut_off_for_ever_and_works_on(network, shards, answers, case, tmp_path):
    """What it was doing it finishes, and nobody wants it any more."""
    orders = [network.order(at="begin", epoch=2, first=first, do="hold") for first in range(5)]
    run = network.fit(shards, answers(case), tmp_path)
    network.wait_far(orders)
    network.tell("cut", "b")
    for order in orders:
        order.release()
    network.wait_visit(what="end", pid=network.far, epoch=2)
    run.check()
    assert "given out again" in run.said
    network.tell("heal")
    time.sleep(3)  # its late result finds its way
    assert load(run.model).digest() == run.answer.bits[0]


# Workers that cannot reach each other


@pytest.mark.parametrize("case", ["pa2", "dcd-streamed"])
def test_two_workers_that_cannot_reach_each_other(sound, shards, answers, case, tmp_path):
    """No worker needs another: nobody notices."""
    sound.tell("cut", "a:b")
    sound.pace(0.05)
    run = sound.fit(shards, answers(case), tmp_path, stale=10, least=30)
    run.check()
    assert {visit["pid"] for visit in sound.visits()} == {worker.pid for worker in sound.workers}
    assert "given out again" not in run.said


# A slow line that loses frames


def test_a_slow_line_that_loses_frames(sound, shards, answers, tmp_path):
    """200 ms there and back, 1 MB/s, one frame of a hundred lost; with the patience that runs have by default."""
    for word in (("delay", "0.1"), ("rate", "1e6"), ("loss", "0.01")):
        sound.tell(*word)
    run = sound.fit(shards, answers("slow"), tmp_path, stale=10, least=30)
    run.check(200)
    assert "communication dominates" in run.said and "fewer mixes" in run.said
    assert "given out again" not in run.said


# A line of which one end is gone


def test_a_worker_that_dies_without_a_word_on_the_line(network, shards, answers, tmp_path):
    """Half-open: its end of each connection is gone, and no FIN or RST tells the other."""
    orders = [network.order(at="begin", epoch=2, first=first, do="hold") for first in range(5)]
    run = network.fit(shards, answers("perceptron"), tmp_path)
    network.wait_far(orders)
    network.tell("hush", "b")
    network.workers[1].send(signal.SIGKILL, nanny=True)
    for order in orders:
        order.release()
    run.check()
    assert "given out again" in run.said


# Certificates


LISTENING = """
import psutil
from bigclf.tls import speaks_tls
for one in psutil.net_connections("tcp"):
    if one.status == "LISTEN":
        print(one.laddr.ip, speaks_tls(f"tls://{one.laddr.ip}:{one.laddr.port}"))
"""


def test_whatever_listens_beyond_loopback_wants_a_certificate(sound):
    def look(host):
        words = ["ip", "netns", "exec", sound.names[host], sys.executable, "-c", LISTENING]
        return subprocess.Popen(words, env=environment(), text=True, stdout=subprocess.PIPE)

    for (host, least), there in [(given, look(given[0])) for given in (("s", 1), ("a", 2), ("b", 2))]:
        told = there.communicate(timeout=LONG)[0]
        beyond = [line for line in told.splitlines() if not line.startswith("127.0.0.1 ")]
        assert there.returncode == 0 and len(beyond) >= least  # a worker has a nanny
        assert set(beyond) == {f"{sound.addresses[host]} True"}, told


def test_without_a_certificate_nothing_falls_back(sound, shards, answers, tmp_path, monkeypatch):
    monkeypatch.setattr(sound, "env", {})
    expected = {
        sound.address: "wants certificates",
        sound.address.replace("tls://", "tcp://"): "wants TLS: write tls://",
    }
    runs = {}
    for address in expected:
        monkeypatch.setattr(sound, "address", address)
        (directory := tmp_path / address[:3]).mkdir()
        runs[address] = sound.fit(shards, answers("perceptron"), directory)
    for address, run in runs.items():
        assert run.popen.wait(LONG) == 5 and expected[address] in run.said, run.said
