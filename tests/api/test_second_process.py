"""A second process compiles while the first one reads, where that pays, and ends with it."""

import json
import os
import subprocess
import time

import psutil
import pytest
from making import run_python

from bigclf import limits
from bigclf.api import second_process
from bigclf.api.fit import asked_of_fit
from bigclf.api.second_process import compiling_beside
from bigclf.cli.shared import early

CODE = """
import json, sys, time
import psutil
from bigclf.api import second_process
from bigclf.api.fit import asked_of_fit
from bigclf.compiled.jit import compilations, is_kept
second_process.room_for_another = lambda: True
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
    monkeypatch.setattr(limits, "cores", lambda: cores)
    monkeypatch.setattr(limits, "memory_limit", lambda: (memory, "here"))
    before = psutil.Process().children()
    assert children_beside(given) == before


def test_it_ends_when_whoever_started_it_is_killed(tmp_path):
    killed = """
import os, psutil, signal
from bigclf.api import second_process
from bigclf.api.fit import asked_of_fit
second_process.room_for_another = lambda: True
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
    monkeypatch.setattr(second_process, "room_for_another", lambda: True)
    monkeypatch.setattr(second_process, "_tell", lambda process, line: asked.append(line))
    assert children_beside({"algo": "auto", "loss": loss}) is not None
    assert json.loads(asked[0])["named"][:2] == ["newton_dense", loss or "logistic"]


def test_a_process_that_is_there_already_compiles_what_it_is_told(tmp_path):
    code = """
import json, subprocess, time
from bigclf import limits
from bigclf.api import second_process
from bigclf.api.fit import asked_of_fit
from bigclf.cli.shared import early
from bigclf.compiled.jit import compilations, is_kept
early.room_for_another = second_process.room_for_another = lambda: True
request = asked_of_fit(None, None, {"algo": "perceptron"})
kernel = request.at_first()[0][0].kernel()
with early.begun(workers=2) as none:
    pass
with early.begun(None) as begun, second_process.compiling_beside(request, begun):
    end = time.monotonic() + 120
    while not is_kept(kernel) and time.monotonic() < end:
        time.sleep(0.05)
    alive = begun.poll()
with early.begun(None) as late:
    pass
print(json.dumps([none, alive, is_kept(kernel), compilations(), begun.poll(), late]))
"""
    told = json.loads(run_python(code, NUMBA_CACHE_DIR=str(tmp_path)))
    assert told == [None, None, True, [0, 0], -9, None]


@pytest.mark.parametrize("kept", [True, False])
def test_a_process_that_is_there_already_ends_where_nothing_is_to_be_compiled(monkeypatch, tmp_path, kept):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(early, "room_for_another", lambda: True)
    monkeypatch.setattr(second_process, "is_kept", lambda kernel: kept)
    with early.begun(None) as begun:
        if kept:
            with compiling_beside(asked_of_fit(None, None, {"algo": "pa1"}), begun):
                assert begun.wait(60) == -9
        else:
            begun.stdin.close()  # whoever began it has ended
            assert begun.wait(60) == 0


def test_one_that_has_ended_before_it_is_told_stops_nobody(monkeypatch):
    """What it was to be told is not written once more when its pipe is closed."""
    monkeypatch.setattr(second_process, "is_kept", lambda kernel: False)
    monkeypatch.setattr(second_process, "room_for_another", lambda: True)
    with subprocess.Popen(["true"], stdin=subprocess.PIPE) as process:
        process.wait()
        with compiling_beside(asked_of_fit(None, None, {"algo": "pa1"}), process):
            pass
