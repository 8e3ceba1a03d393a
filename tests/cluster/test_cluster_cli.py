"""A cluster from the command line: options, job files, what is told of it, and the exit codes when it goes wrong."""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from making import environment, random_rows, shards_of
from test_cli import bigclf, error_of

import bigclf as package
from bigclf.errors import ClusterError

distributed = pytest.importorskip("distributed")
FIT = ["--algo", "pa1", "--epochs", "3", "--groups", "3", "--mixing", "mistakes"]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Shards, and the model of three groups made in this process."""
    path = tmp_path_factory.mktemp("cli")
    shards_of(path / "s", *random_rows(900, 20, noise=0.5), chunk_nnz=300)
    bigclf("fit", path / "s", "-o", path / "here", *FIT)
    return path


def same(a, b):
    a, b = package.load(a), package.load(b)
    np.testing.assert_array_equal(a.coef_.view(np.uint64), b.coef_.view(np.uint64))
    np.testing.assert_array_equal(a.intercept_, b.intercept_)


def test_fit_on_a_cluster_and_what_is_told_of_it(place, address, tmp_path):
    words = ["fit", place / "s", *FIT, "--workers", address, "--patience", "idle=20", "--patience", "stale=5"]
    out, err = bigclf(*words, "-o", tmp_path / "there", "--run-dir", tmp_path / "run")
    same(place / "here", tmp_path / "there")
    assert "2 workers, 3 groups, 3 mixes, " in out and err == ""
    out = bigclf("inspect", tmp_path / "run")[0]
    assert "groups" in out and "2 workers, 3 groups, 3 mixes, " in out and "moved, 2 events" in out
    assert out.count(": joined") == 2 and "bytes moved" in out
    told = json.loads(bigclf("inspect", tmp_path / "run", "--json")[0])
    assert {event["what"] for event in told["history"][0]["events"]} == {"joined"}
    assert "moved" not in bigclf("inspect", place / "here")[0]


def test_a_job_names_the_cluster(place, address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHEDULER", address)
    (tmp_path / "job.yaml").write_text(
        f"data: {{train: '{place}/s', test: '{place}/s'}}\nmethod: {{algo: pa1}}\nlimits: {{epochs: 3}}\n"
        "run: {groups: 3, mixing: mistakes, dir: run}\n"
        "cluster: {workers: '${SCHEDULER}', patience: {idle: 20}}\noutputs: {model: m, evaluation: e.json}\n"
    )
    told = json.loads(bigclf("run", "job.yaml", "--json")[0])
    same(place / "here", "m")
    assert told["steps"][0]["result"]["history"][-1]["bytes_moved"] > 0
    bigclf("evaluate", place / "here", place / "s", "-o", "here.json")
    here, there = (json.loads((tmp_path / name).read_text()) for name in ("here.json", "e.json"))
    assert here | {"seconds": 0} == there | {"seconds": 0}
    assert address in (tmp_path / "run" / "job.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--patience", "stail=3", "--workers", "2"], "unknown key 'stail'; patience has stale, factor"),
        (["--patience", "stale=soon", "--workers", "2"], "stale must be a number"),
        (["--patience", "stale", "--workers", "2"], "NAME=VALUE"),
        (["--patience", "stale=3"], "no effect in this process"),
        (["--workers", "0"], "workers must be a whole number"),
        (["--groups", "0"], "--groups"),
        (["--algo", "dcd", "--groups", "3", "--mixing", "mistakes"], "mixing"),
        (["--algo", "pa1", "--mixing", "rows"], "one group"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_a_usage_error(words, message, place, tmp_path):
    assert message in error_of("fit", place / "s", "-o", tmp_path / "m", *words, code=2)
    assert not list(tmp_path.iterdir())


def test_no_cluster_is_5_and_leaves_nothing(place, tmp_path, monkeypatch):
    from bigclf.cluster import link

    monkeypatch.setattr(link, "connect", functools.partial(link.connect, timeout=0.3))
    monkeypatch.setattr(link, "REFUSAL_SECONDS", 0.3)
    for command in (["fit", place / "s", "-o", tmp_path / "m"], ["evaluate", place / "here", place / "s"]):
        line = error_of(*command, "--workers", "tcp://127.0.0.1:9", code=5)
        assert "127.0.0.1:9" in line and "continue with" not in line and "Traceback" not in line
    assert not list(tmp_path.iterdir())


def test_a_lost_cluster_is_5_and_the_line_goes_on(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = dict(threads_per_worker=1, processes=False, memory_limit=0, dashboard_address=":0", protocol="tcp")
    words = ["fit", place / "s", "-o", "m", "--algo", "pa1", "--groups", "2", "--epochs", "500"]
    with distributed.LocalCluster(n_workers=1, **options) as cluster:

        def lose():
            while not list(tmp_path.glob("m.run/state-*")):
                time.sleep(0.05)
            cluster.scale(0)

        thread = threading.Thread(target=lose)
        thread.start()
        more = ["--checkpoint-every", "0.1", "--workers", cluster.scheduler_address, "--patience", "idle=0.5"]
        line = error_of(*words, *more, code=5)
        thread.join()
    assert "no usable worker" in line and "; continue with:  bigclf fit " in line and "resume=True" not in line
    again = line.split("; continue with:  bigclf ")[1].split()
    assert "--resume" in again and set(more) <= set(again)
    bigclf(*words, "--resume")  # in this process
    bigclf(*words, "-o", "whole")
    same("m", "whole")
    assert not (tmp_path / "m.run").exists()


def test_a_job_that_loses_its_workers_after_a_step_says_why_and_how_to_go_on(place, tmp_path, monkeypatch):
    from bigclf.cli import evaluate
    from bigclf.errors import ClusterError

    def lost(*_):
        raise ClusterError("no usable worker for 300 s")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(evaluate, "measure", lost)
    (tmp_path / "job.yaml").write_text(f"steps: [evaluate: {{model: '{place}/here', data: '{place}/s'}}]")
    err = bigclf("run", "job.yaml", code=5)[1]
    assert err.rstrip().endswith("no usable worker for 300 s")  # nothing was done: there is nothing to go on with
    (tmp_path / "job.yaml").write_text(
        f"steps: [validate: {{data: '{place}/s'}}, evaluate: {{model: '{place}/here', data: '{place}/s'}}]"
    )
    err = bigclf("run", "job.yaml", code=5)[1]
    assert "; continue with:  bigclf run job.yaml --resume" in err


def test_workers_that_are_not_used_are_told_of_by_what_is_known():
    from bigclf.cluster.engine import _Member, _why_not_used

    slow = _Member("tcp://a:1", "a", 1, 0)
    silent = _Member("tcp://b:1", "b", 1, 0, state="retry", reason="it does not answer: nothing in 60 s")
    other = _Member("tcp://c:1", "c", 1, 0, state="refused", reason="numpy 1.0, here 2.0")
    assert _why_not_used([]) == "; none was there"
    text = _why_not_used([slow, silent])
    assert "still starting were tcp://a:1" in text and "b:1: it does not answer: nothing in 60 s" in text
    assert "--patience idle=SECONDS" in text and "patience" not in _why_not_used([other])


def alive(pattern):
    return subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False).stdout.split()


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_ctrl_c_ends_a_run_on_processes_of_its_own_at_its_segment(place, tmp_path):
    """A terminal's Ctrl-C goes to every process of the group: the workers are to outlive it until the run is over."""
    words = ["fit", str(place / "s"), "-o", "m", "--algo", "pa1", "--epochs", "100000", "--groups", "2",
             "--workers", "2", "--checkpoint-every", "0.2"]  # fmt: skip
    child = subprocess.Popen(
        [sys.executable, "-m", "bigclf", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        env=environment(TMPDIR=str(tmp_path)), start_new_session=True,
    )  # fmt: skip
    deadline = time.time() + 120
    while not list(tmp_path.glob("m.run/state-*")) and time.time() < deadline and child.poll() is None:
        time.sleep(0.1)
    os.killpg(child.pid, signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 6, err
    *warned, last = [line.split()[0] for line in err.splitlines()]
    assert last == "interrupted" and warned in ([], ["warning:"]), err  # none where it came between two visits
    assert "; continue with:  bigclf fit " in err and "--resume" in err.splitlines()[-1]
    assert not alive(str(tmp_path))


def semaphores(pid):
    """Those with a name that the processes below this one have, as paths."""
    found = set()
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.Error, OSError):
            maps = Path(f"/proc/{process.pid}/maps").read_text()
            found |= {line.split()[-1] for line in maps.splitlines() if "/dev/shm/sem." in line and "(del" not in line}
    return found


@pytest.mark.long
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL, None], ids=["told", "killed", "by itself"])
def test_no_semaphore_outlives_the_processes_of_a_run(place, tmp_path, end):
    """Dask's processes make six a worker, and the system keeps them until it is started anew."""
    epochs = "40" if end is None else "100000"
    words = ["fit", str(place / "s"), "-o", "m", "--algo", "pa1", "--epochs", epochs, "--groups", "2", "--workers", "2"]
    child = subprocess.Popen(
        [sys.executable, "-m", "bigclf", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        env=environment(TMPDIR=str(tmp_path)), start_new_session=True,
    )  # fmt: skip
    deadline = time.time() + 120
    while not (tmp_path / "m.run" / "history.jsonl").exists() and time.time() < deadline and child.poll() is None:
        time.sleep(0.1)
    names = semaphores(child.pid)
    assert len(names) == 12
    if end is not None:
        os.kill(child.pid, end)
    _, err = child.communicate(timeout=60)
    assert "resource_tracker" not in err
    deadline = time.time() + 30
    while any(map(os.path.exists, names)) and time.time() < deadline:
        time.sleep(0.1)
    assert not [name for name in names if os.path.exists(name)]


CHILD = """
import asyncio, os, signal, sys, threading, time
from bigclf import processes

async def main(case):
    def start(self):
        raise RuntimeError("can't start new thread")
    if case == "no threads":
        threading.Thread.start = start
    signal.signal(signal.SIGTERM, lambda *_: None)  # it hangs
    processes.GRACE_SECONDS = 0.1
    print(os.getpid(), flush=True)
    while case == "late" and os.getppid() == int(os.environ[processes.PARENT]):
        time.sleep(0.01)
    processes.dask_setup(object())
    print("", flush=True)
    await asyncio.sleep(60)

asyncio.run(main(sys.argv[1]))
"""
PARENT = f"""
import os, subprocess, sys
from bigclf import processes
os.environ[processes.PARENT] = str(os.getpid())
subprocess.Popen([sys.executable, "-c", {CHILD!r}, sys.argv[1]])
input()
"""


@pytest.mark.parametrize("case", ["", "no threads", "late"])
def test_a_process_started_for_a_run_ends_with_the_one_that_started_it(case):
    """Also where the system starts no more threads for it, and where that one is gone before this one looks."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, case], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True, env=environment())  # fmt: skip
    number = int(parent.stdout.readline())
    assert os.getpgid(number)  # it is there
    if case != "late":
        parent.stdout.readline()
        assert os.getpgid(number) == number  # in a group of its own
    parent.kill()
    parent.wait()
    deadline = time.time() + 30
    while time.time() < deadline:
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("it goes on without its parent")


def test_a_process_that_only_computes_ends_in_silence_where_it_cannot_watch_who_started_it():
    code = """
import os, threading
from bigclf import processes

def start(self):
    raise RuntimeError("can't start new thread")

threading.Thread.start = start
processes.end_with(os.getppid())
"""
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("who", "message"), [("Scheduler", "the scheduler of 1 process"), ("Nanny", "one ended, with exit code 3")]
)
def test_a_process_that_ends_as_it_starts_is_not_waited_for(who, message, tmp_path, monkeypatch, capfd):
    """As where the system starts too few threads for it."""
    from bigclf.cluster import link

    (tmp_path / "ends.py").write_text(f"import os, sys\n'distributed.{who}' in ' '.join(sys.argv) and os._exit(3)\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{environment()['PYTHONPATH']}")
    monkeypatch.setattr(link, "CHILD", "ends")
    before = psutil.Process().children()
    with pytest.raises(ClusterError, match=f"{message}.*; where the system limits processes and threads"):
        link.connect(1).close()
    assert not {*psutil.Process().children()} - {*before} and "Traceback" not in capfd.readouterr().err
