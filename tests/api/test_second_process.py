"""A second process compiles while the first one reads, where that pays, and ends with it."""

import json
import os
import subprocess
import time

import psutil
import pytest
from making import run_python

from bigclf.api import second_process
from bigclf.api.fit import asked_of_fit
from bigclf.api.second_process import compiling_beside

CODE = """
import json, sys, time
import psutil
from bigclf.api import second_process
from bigclf.api.fit import asked_of_fit
from bigclf.compiled.jit import compilations, is_kept
second_process.cores, second_process.memory_limit = lambda: 2, lambda: (4_000_000_000, "here")
request = asked_of_fit(None, None, {"algo": "perceptron"})
kernel = request.at_first()[0][0].kernel()
before, children = is_kept(kernel), []
with second_process.compiling_beside(request):
    children = psutil.Process().children()
    end = time.monotonic() + 120
    while not is_kept(kernel) and time.monotonic() < end:
        time.sleep(0.05)
print(json.dumps([before, is_kept(kernel), compilations(), len(children), [child.is_running() for child in children]]))
"""


def test_the_kernels_come_from_the_second_process_which_is_gone_at_the_end(tmp_path):
    told = json.loads(run_python(CODE, NUMBA_CACHE_DIR=str(tmp_path)))
    assert told == [False, True, [0, 0], 1, [False]]


def children_beside(given):
    with compiling_beside(asked_of_fit(None, None, given)):
        return psutil.Process().children()


@pytest.mark.parametrize(
    ("given", "kept", "cores", "memory"),
    [
        ({"algo": "pa1"}, True, 2, 4_000_000_000),
        ({"algo": "pa1"}, False, 1, 4_000_000_000),
        ({"algo": "pa1"}, False, 2, 256_000_000),
        ({"algo": "pa1", "workers": 2}, False, 2, 4_000_000_000),
        ({"algo": "auto"}, True, 2, 4_000_000_000),
    ],
)
def test_there_is_none_where_it_would_not_pay(monkeypatch, given, kept, cores, memory):
    monkeypatch.setattr(second_process, "is_kept", lambda kernel: kept)
    monkeypatch.setattr(second_process, "cores", lambda: cores)
    monkeypatch.setattr(second_process, "memory_limit", lambda: (memory, "here"))
    before = psutil.Process().children()
    assert children_beside(given) == before


def test_it_ends_when_whoever_started_it_is_killed(tmp_path):
    killed = """
import os, psutil, signal
from bigclf.api import second_process
from bigclf.api.fit import asked_of_fit
second_process.cores, second_process.memory_limit = lambda: 2, lambda: (4_000_000_000, "here")
with second_process.compiling_beside(asked_of_fit(None, None, {"algo": "dcd"})):
    print(psutil.Process().children()[0].pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    pid = int(run_python(killed, check=False, NUMBA_CACHE_DIR=str(tmp_path)))
    end = time.monotonic() + 60
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE and time.monotonic() < end:
        time.sleep(0.1)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert pid != os.getpid()


@pytest.mark.parametrize("loss", [None, "hinge"])
def test_where_the_rows_choose_the_method_it_compiles_the_one_for_tables(monkeypatch, loss):
    asked = []
    monkeypatch.setattr(second_process, "is_kept", lambda kernel: False)
    monkeypatch.setattr(second_process, "cores", lambda: 2)
    monkeypatch.setattr(second_process, "memory_limit", lambda: (4_000_000_000, "here"))
    started = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda line, **more: asked.append(line[-1]) or started(["true"], **more))
    assert children_beside({"algo": "auto", "loss": loss}) is not None
    assert json.loads(asked[0])["named"][:2] == ["newton_dense", loss or "logistic"]
