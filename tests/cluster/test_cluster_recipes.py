"""The recipes under ``cluster/``, run for real: what dies comes back, and in the end nothing is left."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid

import psutil
import pytest
import yaml
from making import PACKAGE, environment, random_rows, shards_of

RECIPES = PACKAGE.parent / "cluster"
pytestmark = pytest.mark.skipif(not RECIPES.exists(), reason="the recipes are not part of an installed package")
MARK = "BIGCLF_RECIPE_TEST"


def wait_for(true, what, seconds=90.0):
    """The first true value of ``true()``, whose errors are no value."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError, TimeoutError):
            if found := true():
                return found
        assert time.monotonic() < end, f"{what} did not come in {seconds:.0f} s"
        time.sleep(0.1)


class Recipe:
    """The start script as a process, what it has said, and every process that came of it."""

    def __init__(self, directory, *words):
        self.mark = uuid.uuid4().hex
        self.lines = []
        self.process = subprocess.Popen(
            [sys.executable, str(RECIPES / "this-machine" / "start.py"), "--port", "0", "--temporary", str(directory),
             "--memory-limit", "1GB", "--workers", "2", *words],
            env=environment(**{MARK: self.mark}), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stdout), daemon=True)
        self.reader.start()

    @property
    def address(self):
        return wait_for(lambda: re.search(r"tcp://[\d.:]+", "".join(self.lines)), "an address").group()

    def numbers(self, name):
        """The numbers of the processes that were started under this name, the last one last."""
        return [int(number) for number in re.findall(rf"{name} is process (\d+)", "".join(self.lines))]

    def left(self):
        """Living processes that came of it, by their environment, which they inherit."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def end(self):
        for process in self.left():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()


@pytest.fixture
def recipe(tmp_path):
    """start(*words) -> Recipe."""
    started = []

    def start(*words):
        started.append(Recipe(tmp_path / "place", *words))
        return started[-1]

    yield start
    for one in started:
        one.end()


@contextlib.contextmanager
def client_of(recipe, workers=2):
    import logging

    from distributed import Client

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with Client(recipe.address, timeout=60, set_as_default=False) as client:
        wait_for(lambda: len(known(client)) == workers, "the workers")
        yield client


def known(client):
    return client.scheduler_info(n_workers=-1)["workers"]


def pids(client):
    """Of the workers that answer, by name; {} while the scheduler is away."""
    try:
        there = {address: what["name"] for address, what in known(client).items()}
        return {there[address]: pid for address, pid in client.run(os.getpid, workers=list(there)).items()}
    except Exception:  # whatever a cluster that loses a part of itself may raise
        return {}


# The configuration


def leaves(tree, path=()):
    for name, value in tree.items():
        yield from leaves(value, (*path, name)) if isinstance(value, dict) else [((*path, name), value)]


def test_the_configuration_names_what_dask_has_and_why():
    import dask.config
    import distributed  # noqa: F401  # whose defaults these are

    text = (RECIPES / "dask.yaml").read_text()
    found = {".".join(path): value for path, value in leaves(yaml.safe_load(text))}
    assert len(found) >= 10
    for name, value in found.items():
        if name.startswith("distributed."):
            dask.config.get(name)  # KeyError: a name that has no effect
        (line,) = [line for line in text.splitlines() if re.match(rf"\s*{name.rpartition('.')[2]}: ", line)]
        assert len(line.partition("#")[2]) > 10, f"{name}: no reason"
        assert yaml.safe_load(line) == {name.rpartition(".")[2]: value}


# This machine


def test_it_starts_as_configured_and_stops_without_a_trace(recipe, tmp_path):
    from bigclf.cluster.cluster_survey import survey

    started = recipe("--preload", "json")
    with client_of(started) as client:
        told = survey(client)
        assert {worker["name"] for worker in told["workers"]} == {"worker-0", "worker-1"}
        for worker in told["workers"]:
            assert worker["threads"] == 1 and worker["memory_limit"] == 10**9 and worker["nanny"]
            assert worker["facts"]["temporary"]["path"] == str(tmp_path / "place")
        settings = yaml.safe_load((RECIPES / "dask.yaml").read_text())["distributed"]
        asked = {f"scheduler.{name}": value for name, value in settings["scheduler"].items()}
        asked |= {f"comm.timeouts.{name}": value for name, value in settings["comm"]["timeouts"].items()}
        assert asked.items() <= told["scheduler"]["settings"].items()
    assert len(started.left()) >= 6  # the script, the scheduler, two nannies and two workers
    started.process.send_signal(signal.SIGTERM)
    assert started.process.wait(60) == 0 and started.left() == []
    assert (tmp_path / "place" / "logs" / "worker-1.log").exists()


@pytest.mark.parametrize("words", [["--workers", "0"], ["--port", "taken"], ["--config", "/nowhere.yaml"]], ids=str)
def test_what_cannot_be_is_refused_at_once(words):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = [str(taken.getsockname()[1]) if word == "taken" else word for word in words]
        done = subprocess.run([sys.executable, str(RECIPES / "this-machine" / "start.py"), *words],
                              env=environment(), capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.returncode != 0 and done.stdout == ""
    assert "is a cluster running already?" in done.stderr or words[0] != "--port"


@pytest.mark.chaos
def test_what_dies_comes_back(recipe):
    started = recipe("--preload", "json")
    with client_of(started) as client:
        first = pids(client)
        os.kill(first["worker-0"], signal.SIGKILL)  # its nanny starts another
        second = wait_for(lambda: (now := pids(client)).keys() == first.keys() and now != first and now, "the worker")
        assert second["worker-1"] == first["worker-1"]

        os.kill(started.numbers("worker-1")[0], signal.SIGKILL)  # the nanny itself
        third = wait_for(lambda: (now := pids(client)).keys() == first.keys() and now["worker-1"] != first["worker-1"]
                         and now, "the nanny's worker")  # fmt: skip
        assert third["worker-0"] == second["worker-0"] and len(started.numbers("worker-1")) == 2

        os.kill(started.numbers("scheduler")[0], signal.SIGKILL)
        last = wait_for(lambda: (now := pids(client)).keys() == first.keys() and now, "all of them")
        assert not set(last.values()) & set(third.values())  # the client is the same, the workers are new
        assert client.submit(sum, [1, 2]).result(60) == 3
    said = "".join(started.lines)
    assert "scheduler ended with code -9" in said and said.count("worker-0 ended with code 0") == 1
    started.process.send_signal(signal.SIGINT)
    assert started.process.wait(60) == 0 and started.left() == []


@pytest.mark.chaos
def test_a_frozen_worker_is_ended_too(recipe):
    started = recipe("--preload", "json")
    with client_of(started) as client:
        os.kill(pids(client)["worker-0"], signal.SIGSTOP)
        os.kill(started.numbers("worker-1")[0], signal.SIGSTOP)
    started.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    started.process.send_signal(signal.SIGTERM)  # at once
    assert started.process.wait(60) == 0 and started.left() == []


@pytest.mark.chaos
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent died")
def test_when_it_is_killed_itself_nothing_runs_on(recipe):
    started = recipe("--preload", "json")
    with client_of(started):
        pass
    started.process.kill()
    wait_for(lambda: started.left() == [], "the end of all processes")


# Any client


@pytest.mark.chaos
@pytest.mark.parametrize("given", ["address", "nothing"])
def test_the_example_trains_on_whatever_gives_a_client(recipe, tmp_path, given):
    import bigclf

    x, y = random_rows(300, 30)
    shards_of(tmp_path / "shards", x, y)
    words = [str(tmp_path / "shards"), str(tmp_path / "model")]
    if given == "address":
        started = recipe()
        words.append(started.address)
        with client_of(started):
            log = tmp_path / "place" / "logs" / "worker-0.log"
            wait_for(lambda: "kernels" in log.read_text(), "a word on the kernels")
    script = RECIPES / "any-client" / "train.py"
    done = subprocess.run([sys.executable, str(script), *words], env=environment(), capture_output=True, text=True,
                          timeout=250)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert bigclf.load(tmp_path / "model").predict(x).shape == y.shape
