"""``bigclf doctor``: what it says of a machine and of a cluster, sound or not."""

import contextlib
import copy
import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from click.testing import CliRunner
from making import environment

from bigclf import machine
from bigclf.cli import doctor, main
from bigclf.cli.doctor import BAD, OK, WARNING

LOOPBACK = "127.0.0.1"


def run(*words, code=0):
    result = CliRunner().invoke(main, ["doctor", *map(str, words)], prog_name="bigclf", catch_exceptions=False)
    assert result.exit_code == code, (result.exit_code, result.stdout, result.stderr)
    return result.stdout, result.stderr


@pytest.fixture
def compiled(monkeypatch):
    """Kernels that are ready, and a compiler: both are another test's."""
    found = {"compiled": 0, "found": 9, "seconds": 0.1, "kernels": {"path": "/cache"}, "error": None}
    monkeypatch.setattr(doctor, "_prepared", lambda note: found)
    monkeypatch.setattr(doctor, "compiler_checks", lambda place: [doctor.Check(OK, "kernels", "can be compiled")])


# This machine


def test_a_sound_machine_is_ok(compiled, tmp_path):
    out, _ = run("--run-dir", tmp_path / "new" / "run", "--compile")
    lines = out.splitlines()
    for about in ("versions", "processor", "memory", "open files", "temporary", "clock", "kernels", "run directory"):
        assert any(line.startswith("ok ") and line[8:].startswith(about) for line in lines), about
    assert "9 kernels, 0 of them compiled just now" in out and list((tmp_path / "new" / "run").iterdir()) == []
    told = json.loads(run("--json", "--compile")[0])
    assert told["verdict"] == "good" and told["cluster"] is None and told["machine"]["cores"] >= 1
    assert {"state", "about", "text", "advice"} == set(told["checks"][0])


def test_what_is_bad_is_said_with_what_to_do_and_gives_1(compiled, tmp_path):
    (tmp_path / "file").write_text("")
    out, _ = run("--run-dir", tmp_path / "file" / "run", code=1)
    lines = out.splitlines()
    k = next(k for k, line in enumerate(lines) if line.startswith("bad "))
    assert "cannot make the directory" in lines[k] and lines[k + 1].strip() == "-> name one that can be written"
    assert json.loads(run("--run-dir", tmp_path / "file" / "run", "--json", code=1)[0])["verdict"] == "bad"


@pytest.mark.parametrize(
    ("name", "value", "state", "said"),
    [
        ("memory", 300_000_000, BAD, "300 MB at most"),
        ("memory_by", "ulimit -v", WARNING, "address space"),
        ("open_files", 256, WARNING, "ulimit -n"),
        ("open_files", None, OK, "no limit"),
        ("shared_memory", None, OK, "no /dev/shm"),
        ("shared_memory", {"path": "/dev/shm", "size": 64e6, "free": 1e6}, WARNING, "--shm-size"),
        ("temporary", {"path": "/t", "free": 5e7}, BAD, "TMPDIR"),
        ("temporary", {"path": "/t", "free": 5e8}, WARNING, "--local-dir"),
        ("time", 0.0, BAD, "1970-01-01"),
    ],
)
def test_each_fault_of_a_machine_is_named(name, value, state, said):
    mine = machine.facts()
    before = doctor.machine_checks(mine)
    after = doctor.machine_checks({**mine, name: value})
    assert {check.state for check in before} == {OK}
    changed = [check for check, old in zip(after, before, strict=True) if check != old]
    assert len(changed) == 1 and changed[0].state == state and said in f"{changed[0].text} {changed[0].advice}"


# Kernels


def test_all_kernels_are_compiled_only_when_asked(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "_prepared", lambda note: pytest.fail("that takes minutes"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    out, err = run()
    assert "kernels       can be compiled" in out and str(tmp_path / "kernels") in "".join(out.split()), err
    assert "doctor --compile" in " ".join(out.split())
    whole = subprocess.run
    for code, said in (("print(3)", "does not work"), ("raise OSError('no LLVM')", "OSError: no LLVM")):
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "run", lambda words, code=code, **more: whole([words[0], "-c", code], **more))
            (check,) = doctor.compiler_checks({"path": "/k", "writable": True})
        assert check.state == BAD and said in check.text
    (check,) = doctor.compiler_checks({"path": "/k", "writable": False})
    assert check.state == WARNING and "BIGCLF_CACHE_DIR" in check.advice


@pytest.mark.parametrize(
    ("said", "state", "words"),
    [
        ([{"compiled": 0, "found": 5}], OK, "5 kernels, 0 of them"),
        ([{"compiled": 5, "found": 0}, {"compiled": 0, "found": 5}], OK, "5 of them compiled just now in 3 s"),
        ([{"compiled": 5, "found": 0}, {"compiled": 5, "found": 0}], WARNING, "BIGCLF_CACHE_DIR"),
        ([{"compiled": 0, "found": 0, "error": "OSError: x"}], BAD, "not compiled: OSError: x"),
        ([None], BAD, "ended with code -11"),
    ],
)
def test_kernels_are_compiled_and_found_again(monkeypatch, said, state, words):
    said = list(said)

    def process(arguments, show):
        told = said.pop(0)
        full = {"seconds": 3.0, "kernels": {"path": "/c"}, "error": None, **(told or {})}
        return subprocess.CompletedProcess(arguments, -11 if told is None else 0, json.dumps(full) if told else "", "")

    monkeypatch.setattr(doctor, "_heard", process)
    (check,) = doctor.kernel_checks()
    assert check.state == state and words in f"{check.text} {check.advice}" and not said


TELLS = r"""
import sys
sys.stderr.write("so far 1 of 2 steps: 4 kernels compiled, 0 found\nanother word\n")
print("{}")
sys.exit(3)
"""


def test_what_is_compiled_is_told_meanwhile(monkeypatch, capsys):
    with doctor._steps_shown("compiling") as (every, show):
        done = doctor._heard([sys.executable, "-c", TELLS], show)
    assert every >= 10 and (done.returncode, done.stdout, done.stderr) == (3, "{}\n", "another word\n")
    out, err = capsys.readouterr()
    assert err == "compiling ...\n  so far 1 of 2 steps: 4 kernels compiled, 0 found\n" and out == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    with doctor._steps_shown("compiling") as (every, show):
        doctor._heard([sys.executable, "-c", TELLS], show)
    assert every < 1 and "1/2" in capsys.readouterr().err


STEPS = r"""
import sys, time
for k in range(int(sys.argv[1])):
    sys.stderr.write(f"so far {k if k < int(sys.argv[2]) else 0} of 9 steps: 4 kernels compiled, 0 found\n")
    sys.stderr.flush()
    time.sleep(0.5)
"""


def test_compiling_ends_where_nothing_new_is_compiled_however_long_all_of_it_takes(monkeypatch):
    def heard(*words):
        return doctor._heard([sys.executable, "-c", STEPS, *words], lambda line: None)

    monkeypatch.setattr(doctor, "KERNEL_SECONDS", 6.0)
    assert heard("14", "14").returncode == 0  # seven seconds, and each half a second something
    monkeypatch.setattr(doctor, "KERNEL_SECONDS", 1.0)
    with pytest.raises(subprocess.TimeoutExpired):
        heard("1200", "1")  # the same line again and again


@pytest.mark.parametrize(
    ("line", "seconds", "told"),
    [
        ("so far 4 of 230 steps: 31 kernels compiled", 20.0, ""),
        ("so far 50 of 230 steps: 31 kernels compiled", 100.0, "; about 6 min more"),
        ("so far 200 of 230 steps: 31 kernels compiled", 100.0, "; less than a minute more"),
        ("so far 230 of 230 steps: 31 kernels compiled", 100.0, ""),
        ("so far 0 of 0 steps: 0 kernels compiled", 1.0, ""),
    ],
)
def test_how_long_compiling_will_take_is_told_from_the_steps_done(line, seconds, told):
    assert doctor._time_left(line, seconds) == told


@pytest.mark.slow
def test_the_whole_on_this_machine(tmp_path):
    for compiled in (False, True):
        words = [sys.executable, "-m", "bigclf", "doctor", "--compile", "--json"]
        done = subprocess.run(words, capture_output=True, text=True,
                              env=environment(NUMBA_CACHE_DIR=str(tmp_path)), check=False)  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        (check,) = (check for check in json.loads(done.stdout)["checks"] if check["about"] == "kernels")
        assert check["state"] == OK and (" 0 of them" in check["text"]) == compiled


# A cluster, as a survey may find it


SETTINGS = {
    "scheduler.worker-ttl": "30s", "scheduler.no-workers-timeout": "60s", "scheduler.allowed-failures": 3,
    "scheduler.work-stealing": False, "scheduler.worker-saturation": 1.0, "comm.timeouts.connect": "10s",
    "comm.timeouts.tcp": "30s", "comm.retry.count": 2,
}  # fmt: skip


def sound(k=0, **change):
    return {
        "address": f"tcp://h{k}:1", "name": f"w{k}", "host": f"h{k}", "threads": 1, "memory_limit": 10**9,
        "nanny": True, "silent": 0.1, "facts": {**machine.facts(), "host": f"h{k}", "memory": 4 * 10**9},
        "problem": None, "ahead": 0.0, "direct": {"bytes": 4_000_000, "seconds": 0.01}, "run_dir": None, **change,
    }  # fmt: skip


def judged(*workers, **settings):
    scheduler = {"address": "tcp://s:8786", "versions": {"python": "3"}, "settings": {**SETTINGS, **settings}}
    return doctor.cluster_checks(machine.facts(), {"scheduler": scheduler, "workers": list(workers)})


def test_a_sound_cluster_is_ok():
    checks = judged(sound(0), sound(1), sound(2))
    assert {check.state for check in checks} == {OK} and len(checks) == 3
    assert "3 workers on 3 hosts; data go straight to 3 of them, at 400 MB/s" in checks[-1].text


def test_no_workers_are_bad():
    *_, check = judged()
    assert check.state == BAD and "dask worker tcp://s:8786 --nthreads 1 --preload bigclf.preload" in check.advice


@pytest.mark.parametrize(
    ("change", "state", "said"),
    [
        ({"problem": "no sign of life for 9 s"}, BAD, "frozen, very busy or cut off"),
        ({"problem": "ModuleNotFoundError: No module named 'bigclf'"}, BAD, "install the same bigclf there"),
        ({"threads": 4}, WARNING, "4 threads -> bigclf makes one visit at a time a process"),
        ({"memory_limit": 0}, WARNING, "--memory-limit"),
        ({"memory_limit": 10**8}, BAD, "a memory limit of 100 MB"),
        ({"memory_limit": 5 * 10**9}, WARNING, "h0: its workers may take 5.00 GB together and it has 4.00 GB"),
        ({"nanny": False}, WARNING, "no nanny"),
        ({"direct": "not within 20 s"}, WARNING, "go through the scheduler, which is slower"),
        ({"run_dir": "cannot write in '/r'"}, BAD, "every worker shares and can write"),
        ({"ahead": 3600.0}, WARNING, "its clock is 1 h 00 min ahead of this one"),
        ({"ahead": -60.0}, WARNING, "its clock is 60 s behind this one"),
    ],
)
def test_each_fault_of_a_worker_is_named(change, state, said):
    checks = [check for check in judged(sound(0, **change), sound(1)) if check.state != OK]
    assert len(checks) == 1 and checks[0].state == state and said in f"{checks[0].text} -> {checks[0].advice}"
    assert "w0" in checks[0].text or "h0" in checks[0].text


@pytest.mark.parametrize(
    ("place", "value", "state", "said"),
    [
        ("versions", {"bigclf": "9.9"}, BAD, "bigclf 9.9 there"),
        ("cpu", "generic", BAD, "processor generic there"),
        ("kernels", {"path": "/k", "writable": False}, WARNING, "/k cannot be written"),
        ("temporary", {"path": "/t", "free": 1}, BAD, "/t has 1 B free"),
        ("open_files", 256, WARNING, "256 at most"),
    ],
)
def test_each_fault_of_a_worker_s_machine_is_named(place, value, state, said):
    worker = sound(0)
    facts = copy.deepcopy(worker["facts"])
    facts[place] = {**facts[place], **value} if place == "versions" else value
    checks = [check for check in judged({**worker, "facts": facts}) if check.state != OK]
    assert [check.state for check in checks] == [state] and said in checks[0].text


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("scheduler.worker-ttl", "5 minutes", "a frozen worker after 5 min 00 s to 10 min 00 s"),
        ("scheduler.worker-ttl", None, "a frozen worker never"),
        ("scheduler.allowed-failures", 0, "given up when one worker dies"),
        ("comm.timeouts.tcp", "10 min", "noticed after 10 min 00 s"),
    ],
)
def test_settings_that_matter_are_named(name, value, said):
    checks = [check for check in judged(sound(), **{name: value}) if check.state != OK]
    assert [check.state for check in checks] == [WARNING] and said in checks[0].text and checks[0].advice


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("5 minutes", 300), ("2m", 120), ("500ms", 0.5), (12, 12), ("1 hour", 3600), (None, None), ("x", 1)],
)
def test_times_of_a_configuration(text, seconds):
    assert doctor._seconds(text) == seconds


# Real ones


@contextlib.contextmanager
def cluster(*workers):
    """A scheduler and workers, each with its own options; their processes and the address. Nothing of it stays."""
    with socket.socket() as free:
        free.bind((LOOPBACK, 0))
        port = free.getsockname()[1]
    address = f"tcp://{LOOPBACK}:{port}"
    env = environment(DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL="45s")
    silent = dict(env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    commands = [["scheduler", "--host", LOOPBACK, "--port", str(port), "--no-dashboard"]]
    commands += [["worker", address, "--no-dashboard", "--no-nanny", "--death-timeout", "60", *w] for w in workers]
    started = []
    try:
        for name, *words in commands:
            started.append(subprocess.Popen([sys.executable, "-m", f"distributed.cli.dask_{name}", *words], **silent))
        yield address, started
    finally:
        for process in started:
            process.kill()
            process.wait()


def wait_until(true, seconds=60):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


def test_a_cluster_with_a_frozen_worker_is_described_in_bounded_time(compiled, tmp_path):
    from bigclf.cluster.link import connect

    good = ["--nthreads", "1", "--memory-limit", "1GB", "--name", "good"]
    with cluster(good, ["--nthreads", "2", "--memory-limit", "0", "--name", "poor"]) as (address, processes):
        with contextlib.closing(connect(address, 60)) as link:
            wait_until(lambda: len(link.client.scheduler_info(n_workers=-1)["workers"]) == 2)
        told = json.loads(run("--scheduler", address, "--run-dir", tmp_path / "run", "--timeout", 60, "--json")[0])
        assert told["verdict"] == "good" and told["cluster"]["scheduler"]["settings"]["scheduler.worker-ttl"] == "45s"
        workers = {worker["name"]: worker for worker in told["cluster"]["workers"]}
        for name, process in zip(("good", "poor"), processes[1:], strict=True):
            assert workers[name]["facts"]["pid"] == process.pid and workers[name]["direct"]["bytes"] == 4_000_000
            assert "distributed" in workers[name]["facts"]["versions"] and workers[name]["run_dir"] is None
        said = [check["text"] for check in told["checks"] if check["state"] == WARNING]
        assert sorted(text for text in said if "good" in text) == [
            "good at {}: no nanny".format(workers["good"]["address"])
        ]
        assert any("2 threads" in text for text in said) and any("no memory limit" in text for text in said)
        assert list((tmp_path / "run").iterdir()) == []

        os.kill(processes[2].pid, signal.SIGSTOP)
        out, _ = run("--scheduler", address, "--timeout", 2, code=1)
        assert "1 of 2 answer" in out and "bad     worker        poor at" in out and "end it, and start another" in out


def test_an_address_where_nobody_answers_gives_5_in_plain_words(compiled):
    out, err = run("--scheduler", f"{LOOPBACK}:1", "--timeout", 1, code=5)
    assert "ok      versions" in out  # what was found of this machine is said all the same
    assert err.startswith("error: no Dask scheduler answers at '127.0.0.1:1'") and "Traceback" not in err
    told = json.loads(run("--scheduler", f"tls://{LOOPBACK}:1", "--timeout", 1, "--json", code=5)[0])
    assert told["verdict"] == "no cluster" and told["cluster"] is None
    _, err = run("--scheduler", "nonsense://x", "--timeout", 1, code=5)
    assert err.startswith("error: no ")


def test_a_directory_that_a_worker_does_not_share_is_noticed(tmp_path):
    from bigclf.cluster.cluster_survey import _examine

    assert "one that all share" in _examine(str(tmp_path / "elsewhere" / ".doctor-1"))["run_dir"]
    (tmp_path / ".doctor-1").write_text("")
    assert _examine(str(tmp_path / ".doctor-1"))["run_dir"] is None and _examine(None)["run_dir"] is None
