"""``bigclf submit``: the job file of ``bigclf run`` on a cluster, here or in the background."""

import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from making import environment, random_rows, shards_of
from test_cli import bigclf, error_of

import bigclf as package
from bigclf import machine
from bigclf.cli.jobs import driver

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
JOB = """\
data: {train: s, test: s}
method: {algo: pa1}
limits: {epochs: 3}
run:
  groups: 3
  dir: run
cluster: {patience: {idle: 20}}
outputs: {model: m, evaluation: e.json}
"""
STEPS = """\
run: {dir: run}
steps:
- fit: {data: s, output: m, algo: pa1, epochs: 3, groups: 3}
- evaluate: {model: m, data: s, output: e.json}
- predict: {model: m, data: s, output: p}
"""


@pytest.fixture
def place(tmp_path, monkeypatch, data):
    """An empty directory with shards and a job in it, to work in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    shutil.copytree(data, tmp_path / "s")
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "steps.yaml").write_text(STEPS)
    return tmp_path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("submit")
    shards_of(path / "s", *random_rows(900, 20, noise=0.5), chunk_nnz=300)
    return path / "s"


def bits(path):
    model = package.load(path)
    return model.coef_.view(np.uint64).tolist(), model.intercept_.view(np.uint64).tolist()


@pytest.mark.parametrize("job", ["job.yaml", "steps.yaml"])
def test_the_same_file_gives_the_same_bits(place, address, job):
    (place / "here.yaml").write_text((place / job).read_text().replace("cluster: {patience: {idle: 20}}\n", ""))
    bigclf("run", "here.yaml")
    here, figures = bits("m"), json.loads((place / "e.json").read_text())
    told = json.loads(bigclf("submit", job, "--scheduler", address, "--overwrite", "--json")[0])
    assert bits("m") == here
    assert json.loads((place / "e.json").read_text()) | {"seconds": 0} == figures | {"seconds": 0}
    fit = next(step for step in told["steps"] if step["command"] == "fit")
    assert fit["result"]["history"][-1]["bytes_moved"] > 0
    assert address in (place / "run" / "job.yaml").read_text()


def test_dry_run_asks_nobody(place):
    out, _ = bigclf("submit", "job.yaml", "--scheduler", "tcp://127.0.0.1:9", "--dry-run")
    assert "--workers tcp://127.0.0.1:9" in out and not (place / "run").exists()


@pytest.mark.parametrize(
    ("old", "new", "words", "code", "message"),
    [
        ("  groups: 3\n", "", [], 2, "job.yaml, line 4: does not say run.groups"),
        ("algo: pa1", "algo: pa9", [], 2, "line 2: unknown algo 'pa9'; `bigclf algorithms`"),
        ("", "", ["--scheduler", "tcp://127.0.0.1:9"], 5, "tcp://127.0.0.1:9"),
        ("", "", ["--tls-ca-file", "job.yaml"], 2, "no effect with tcp://"),
        ("", "", ["--scheduler", "tls://127.0.0.1:9", "--tls-cert", "job.yaml"], 2, "go together"),
        ("", "", ["--scheduler", "127.0.0.1"], 5, "no port"),
    ],
)
def test_what_is_refused_leaves_nothing(place, address, old, new, words, code, message, monkeypatch):
    from bigclf.cluster import link

    slow = link.connect
    monkeypatch.setattr(link, "connect", lambda address: slow(address, timeout=0.3))
    (place / "job.yaml").write_text(JOB.replace(old, new))
    assert message in error_of("submit", "job.yaml", "--scheduler", address, *words, code=code)
    assert sorted(p.name for p in place.iterdir()) == ["job.yaml", "s", "steps.yaml"]


def test_steps_must_say_their_groups(place, address):
    (place / "steps.yaml").write_text(STEPS.replace(", groups: 3", ""))
    assert "steps.yaml, line 3: does not say groups" in error_of("submit", "steps.yaml", "--scheduler", address, code=2)


# Versions

MINE = {"versions": {"bigclf": "1", "python": "3.11.2", "numpy": "2.4.6", "numba": "0.68.1", "pyarrow": "26.0.1"},
        "sources": "a", "cpu": "x", "host": "here", "executable": "/here/python"}  # fmt: skip


def other(sources="a", cpu="x", **versions):
    there = {"sources": sources, "cpu": cpu, "host": "far", "executable": "/v/bin/python"}
    return MINE | there | {"versions": MINE["versions"] | versions}


@pytest.mark.parametrize(
    ("there", "command"),
    [
        (other(), ""),
        (other(numpy="2.4.1", python="3.11.9"), ""),  # a patch changes no bits
        (other(cpu="y"), ""),  # no command mends that
        (other(numpy="2.3.0"), "on far: /v/bin/python -m pip install 'numpy==2.4.6'"),
        (other(numba="0.67", pyarrow="25"), "on far: /v/bin/python -m pip install 'numba==0.68.1' 'pyarrow==26.0.1'"),
        (other(sources="b"), "pip install --force-reinstall --no-deps"),
        (other(bigclf="0"), "pip install --force-reinstall --no-deps"),
        (other(python="3.12.1"), "on far: python3.11 -m venv bigclf-env && bigclf-env/bin/python -m pip install"),
    ],
)
def test_the_command_that_mends_versions(there, command):
    found = machine.remedy(MINE, there)
    assert found.startswith(command) if command.startswith("on") else command in found
    assert bool(found) == bool(command)


def test_other_versions_on_the_cluster_are_refused_before_anything_is_done(place, address, monkeypatch):
    mine = machine.identity()
    newer = mine | {"versions": mine["versions"] | {"numpy": "9.9.9"}}
    whole = machine.remedy

    def remedy(here, there):  # as a driver with another numpy sees what is there
        return whole(newer, there)

    monkeypatch.setattr(machine, "remedy", remedy)
    line = error_of("submit", "job.yaml", "--scheduler", address, code=5)
    assert "not the same versions everywhere" in line and "-m pip install 'numpy==9.9.9'" in line
    assert "the scheduler" in line and not (place / "run").exists()


# In the background


def wait_for(what, seconds=180):
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, [path.read_text() for path in Path().glob("*/driver.log")]
        time.sleep(0.05)
    return found


def state_of(directory):
    return json.loads(bigclf("inspect", directory, "--json")[0])["status"]


def test_a_detached_driver_is_looked_at_stopped_and_goes_on(place, address):
    words = ["submit", "job.yaml", "--scheduler", address, "--detach", "--set", "limits.epochs=100000",
             "--set", "run.checkpoint_every=0.1"]  # fmt: skip
    begun = json.loads(bigclf(*words, "--json")[0])
    assert begun["run"] == "run" and begun["exit_code"] is None
    wait_for(lambda: list(place.glob("run/state-*")))
    told = state_of("run")
    assert told["state"] == "running" and told["epoch"] > 0 and told["driver"]["pid"] == begun["pid"]
    out, _ = bigclf("inspect", "run")
    assert "running, process" in out and "driver.log" in out
    assert f"driven by process {begun['pid']}" in error_of(*words, code=1)
    os.kill(begun["pid"], signal.SIGTERM)
    told = wait_for(lambda: (now := state_of("run"))["state"] != "running" and now)
    assert told["state"] == "stopped" and told["driver"]["exit_code"] == 6
    assert "continue with:  bigclf submit job.yaml" in told["last_line"] and "--resume" in told["last_line"]
    assert "interrupted; resumable (exit code 6)" in bigclf("inspect", "run")[0]
    more = ["--set", "limits.epochs=100001", "--resume"]
    driving = json.loads(bigclf(*words, *more, "--json")[0])["pid"]
    os.kill(driving, signal.SIGKILL)
    wait_for(lambda: driver.read("run")["state"] == "died")
    assert "its process died" in bigclf("inspect", "run")[0]


@pytest.mark.long
def test_a_detached_job_of_steps_that_ends(place, address):
    (place / "steps.yaml").write_text(STEPS.replace("run: {dir: run}\n", ""))
    words = ["submit", "steps.yaml", "--scheduler", address]
    out, _ = bigclf(*words, "--detach")
    assert "bigclf inspect steps.run" in out
    told = wait_for(lambda: (now := state_of("steps.run"))["state"] != "running" and now)
    assert told["state"] == "finished" and told["driver"]["exit_code"] == 0
    there = bits("m")
    (place / "m").unlink()
    bigclf("run", "steps.yaml", "--overwrite")
    assert bits("m") == there


@pytest.mark.long
def test_a_detached_job_that_fails_says_what_failed(place, address):
    words = ["submit", "steps.yaml", "--scheduler", address, "--set", "steps.1.evaluate.data=empty.svm"]
    assert "no data file matches 'empty.svm'" in error_of(*words, "--detach", code=3) and not (place / "run").exists()
    (place / "empty.svm").touch()
    bigclf(*words, "--detach")
    told = wait_for(lambda: (now := state_of("run"))["state"] != "running" and now)
    assert told["state"] == "failed" and told["driver"]["exit_code"] == 3
    assert told["failure"].startswith("evaluate: empty.svm: ")
    out, _ = bigclf("inspect", "run")
    assert "failed: evaluate: empty.svm" in out and "--resume goes on" not in out


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "── fit ────\nerror: s: gone\n── fit ───\nepoch 1\n── predict ──\nerror: p: full\nlast words\n",
            "predict: p: full",
        ),
        ("Traceback\nMemoryError\n", "MemoryError"),
        ("error: no such job\n", "no such job"),
        ("", ""),
    ],
)
def test_what_failed_is_the_last_error_and_its_step(tmp_path, log, said):
    (tmp_path / "driver.log").write_text(log)
    assert driver.what_failed(str(tmp_path / "driver.log")) == said
