"""Fixtures of the chaos suite: data made once, reference answers of this process, clusters to be maltreated."""

import contextlib
import json
import os
import subprocess
import sys
import time
import warnings
from typing import NamedTuple

import pytest
from clusters import HERE, PATIENCE, ChaosCluster, kill_trees, wait_for
from making import environment, in_segments, random_rows, shards_of

import bigclf
from bigclf.cluster import joining
from bigclf.errors import ConvergenceWarning, MemoryBudgetError
from bigclf.units import parse_bytes

GROUPS = 5
warnings.simplefilter("ignore", ConvergenceWarning)  # in threads too


class Case(NamedTuple):
    """A run, and whether its rows stream by (in epochs of two segments) or stay in memory."""

    name: str
    keywords: dict
    streams: bool


CASES = [
    Case("perceptron", dict(algo="perceptron", epochs=5), streams=False),
    Case("pa2", dict(algo="pa2", epochs=4), streams=True),
    Case("dcd", dict(algo="dcd", C=0.01, tol=1e-4), streams=False),
    Case("dcd-streamed", dict(algo="dcd", C=0.01, tol=1e-1), streams=True),
    Case("dcd-gathered", dict(algo="dcd", C=0.01, tol=1e-4, memory="20MB"), streams=True),
    Case("dcd-filed", dict(algo="dcd", C=0.01, tol=1e-1, memory="15.4MB"), streams=True),  # 15.8 MB hold the duals
]
CASES += [
    Case("newton", dict(algo="newton", tol=1e-6), streams=False),
    Case("newton-streamed", dict(algo="newton", tol=1e-6), streams=True),
    Case("newglmnet", dict(algo="newglmnet", C=0.1, tol=1e-4), streams=False),
]
LONG = Case("long", dict(algo="perceptron", epochs=20), streams=False)
SLOW = Case("slow", dict(algo="perceptron", epochs=12), streams=False)  # of messages that take a second


@pytest.fixture(scope="session")
def shards(tmp_path_factory):
    """12,000 rows in 5 files, 25 row groups."""
    out = tmp_path_factory.mktemp("shards") / "rows"
    x, y = random_rows(12_000, 400, 0.1, seed=1, noise=1.0)
    shards_of(out, x, y, chunk_nnz=20_000, shard_nnz=120_000)
    return str(out)


class Answer(NamedTuple):
    """What a run in this process comes to, and how to ask for the same."""

    keywords: dict
    bits: tuple
    epochs: int
    segments: int

    def check(self, model):
        assert bits_of(model) == self.bits
        epochs = [record["epoch"] for record in model.result_.history]
        assert epochs == sorted(set(epochs)) and epochs[-1] == self.epochs  # a file has ten records a second at most

    def check_run(self, run, seconds=60.0):
        """The run comes to the same bits, and accepted as many results as it asked for."""
        model = run.model(seconds)
        self.check(model)
        assert len(run.records) == self.epochs
        assert run.counter.results == self.rounds * GROUPS
        return model

    @property
    def rounds(self):
        """Visits to each group; a certificate alone, at the limit of epochs, is one more."""
        return self.epochs * self.segments


def bits_of(model):
    certificate = model.certificate
    bounds = certificate and tuple(certificate[name].hex() for name in ("primal", "dual", "gap"))
    return model.digest(), model.coef_.tobytes(), model.intercept_.tobytes(), bounds


def tight_memory(shards, keywords):
    """A budget that the rows do not fit into."""
    with pytest.raises(MemoryBudgetError) as refusal:
        bigclf.fit(shards, memory="1MB", groups=GROUPS, **keywords)
    return parse_bytes(str(refusal.value).split("memory=")[-1].removesuffix(" would do"))


@pytest.fixture(scope="module", autouse=True)  # no longer: other tests of the same process come after
def two_segments():
    """Of an epoch of the rows that stream by, few as they are; ``driver.py`` has it so, too."""
    with in_segments(2):
        yield


@pytest.fixture(scope="module", autouse=True)
def joined():
    """With $BIGCLF_CHAOS_JOINED workers join what their groups came to, however small it is; ``driver.py`` likewise."""
    if os.environ.get("BIGCLF_CHAOS_JOINED"):
        joining.SPREAD_BYTES = joining.CUT_BYTES = joining.LINE_BYTES = 0


@pytest.fixture(scope="session")
def answers(shards):
    """case or its name -> Answer, learned in this process with the same groups."""
    known = {}

    def answer(case):
        case = case if isinstance(case, Case) else next(c for c in [*CASES, LONG, SLOW] if c.name == case)
        if case.name not in known:
            keywords = case.keywords | {"groups": GROUPS}
            if case.streams:
                keywords = {"memory": "tight", **keywords}
                if keywords["memory"] == "tight":
                    keywords["memory"] = tight_memory(shards, case.keywords)
            model = bigclf.fit(shards, **keywords)
            plan = model.result_.plan
            assert bool(plan["rows_sides"]) == (case.name == "dcd-filed")
            assert plan["resident"] is not case.streams and plan["segments"] == (2 if case.streams else 1)
            result = model.result_
            known[case.name] = Answer(keywords, bits_of(model), result.epochs, plan["segments"])
        return known[case.name]

    return answer


@pytest.fixture(scope="session")
def lasting_cluster(tmp_path_factory):
    """Workers under nannies, for all tests that do nothing to the scheduler; not for direct use."""
    with contextlib.closing(ChaosCluster(tmp_path_factory.mktemp("cluster"))) as cluster:
        cluster.start(2)
        yield cluster


@pytest.fixture
def cluster(lasting_cluster):
    """A ChaosCluster of two sound workers under nannies."""
    lasting_cluster.reset()
    lasting_cluster.ensure(2)
    yield lasting_cluster
    lasting_cluster.logs()


@pytest.fixture
def chaos_cluster(tmp_path_factory):
    """options -> a ChaosCluster of one's own, not yet started."""
    with contextlib.ExitStack() as stack:

        def make(**options):
            cluster = ChaosCluster(tmp_path_factory.mktemp("cluster"), **options)
            stack.callback(cluster.logs)
            stack.callback(cluster.close)
            return cluster

        yield make


class Driver:
    """The command line in a process of its own, its standard error in a file."""

    def __init__(self, words, patience, home):
        env = environment(BIGCLF_CHAOS_PATIENCE=json.dumps(PATIENCE | patience), NO_COLOR="1", PYTHONWARNINGS="ignore")
        words = [sys.executable, str(HERE / "driver.py"), *map(str, words)]
        self._errors = home / f"driver-{time.monotonic_ns()}.log"
        with open(self._errors, "w") as errors:
            self.popen = subprocess.Popen(
                words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
                start_new_session=True,
            )  # fmt: skip

    def send(self, number):
        self.popen.send_signal(number)

    def said(self, text):
        """Wait for the line of its standard error that has the text."""

        def line():
            return next((line for line in self._errors.read_text().splitlines() if text in line), None)

        return wait_for(line, what=repr(text))

    def end(self, seconds=60.0):
        """(exit code, standard output, standard error)"""
        out, _ = self.popen.communicate(timeout=seconds)
        error = self._errors.read_text()
        print("driver's stderr:", error)
        return self.popen.returncode, out, error


@pytest.fixture
def drive(tmp_path):
    """(words of the command line, patience=...) -> a Driver."""
    started = []

    def start(*words, **patience):
        started.append(Driver(words, patience, tmp_path))
        return started[-1]

    yield start
    kill_trees(*(driver.popen for driver in started))
