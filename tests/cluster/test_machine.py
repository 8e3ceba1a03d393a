"""What a machine says of itself, and what of it must agree between machines."""

import copy
import json
import os
import re
from types import SimpleNamespace

import pytest
from making import random_rows, run_python, shards_of

from bigclf import limits, machine
from bigclf.methods import METHODS


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def test_facts_fit_into_json_and_hold_what_is_promised():
    told = machine.facts()
    assert json.loads(json.dumps(told)) == told
    assert set(told) == {
        "host", "executable", "pid", "time", "versions", "sources", "cpu", "cores", "memory", "memory_by", "open_files",
        "shared_memory", "kernels", "temporary",
    }  # fmt: skip
    assert told["pid"] == os.getpid() and told["cores"] >= 1 and told["memory"] > 2**20 and told["cpu"]
    assert {"bigclf", "python", "numpy", "numba", "pyarrow"} <= set(told["versions"])
    assert told["kernels"]["writable"] and told["temporary"]["free"] > 0
    assert machine.differences(told, told) == []


def test_dask_is_named_where_it_is_loaded_only():
    code = (
        "import sys\n{}\nfrom bigclf import machine; print(sorted(machine.facts()['versions']), 'dask' in sys.modules)"
    )
    alone = run_python(code.format(""))
    assert "distributed" not in alone and "False" in alone
    assert "distributed" in run_python(code.format("import distributed"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("versions", "bigclf", "9.9"), ["bigclf 9.9 there, {bigclf} here"]),
        (("versions", "numba", "0.61.2"), ["numba 0.61.2 there, {numba} here"]),
        (("versions", "numpy", None), ["numpy None there, {numpy} here"]),
        (("versions", "python", "4.0.1"), ["python 4.0.1 there, {python} here"]),
        (("versions", "pyarrow", "none"), ["pyarrow none there, {pyarrow} here"]),
        (("versions", "distributed", "1.0"), []),  # Dask looks after itself
        (("sources", None, "0"), ["bigclf {bigclf} is changed: its files there are not the ones here"]),
        (("cpu", None, "generic"), ["processor generic there, {cpu} here"]),
        (("host", None, "x"), []),
        (("memory", None, 1), []),
    ],
    ids=str,
)
def test_what_must_agree_is_named_in_plain_words(change, said):
    mine = machine.facts()
    theirs = copy.deepcopy(mine)
    name, inner, value = change
    if inner is None:
        theirs[name] = value
    else:
        theirs[name][inner] = value
    assert machine.differences(mine, theirs) == [line.format(**mine["versions"], cpu=mine["cpu"]) for line in said]


def test_the_last_number_of_a_version_may_differ():
    mine = {"versions": {"bigclf": "1.0", "numpy": "2.4.6", "numba": "0.68.1", "python": "3.11.7", "pyarrow": "26.0"}}
    theirs = {
        "versions": {"bigclf": "1.0", "numpy": "2.4.9", "numba": "0.68.0rc1", "python": "3.11.1", "pyarrow": "26.0.1"}
    }
    assert machine.differences(mine, theirs) == []
    assert machine.differences(mine, {}) != []


def test_a_processor_that_numba_was_told_to_compile_for_counts():
    code = "from bigclf import machine; print(machine.facts()['cpu'])"
    assert run_python(code, NUMBA_CPU_NAME="generic").strip() == "generic"


# Limits: control groups in made-up trees


def test_limits_of_version_2_groups_the_smallest_on_the_way_up(tmp_path):
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/b/memory.max": "max\n",
            "sys/fs/cgroup/a/memory.max": "300000000\n",
            "sys/fs/cgroup/memory.max": "max\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            "sys/fs/cgroup/a/cpu.max": "50000 100000\n",
        },
    )
    assert limits.memory_limit(root) == (300_000_000, "a control group") and limits.cores(root) == 1


def test_limits_of_version_1_groups(tmp_path):
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/x\n1:name=systemd:/x\n0::/\n",
            "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "400000000\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
        },
    )
    assert limits.memory_limit(root) == (400_000_000, "a control group") and limits.cores(root) == 1


def test_a_container_s_groups_seen_from_inside(tmp_path):
    root = tree(tmp_path, {"proc/self/cgroup": "0::/../../elsewhere\n", "sys/fs/cgroup/memory.max": "500000000\n"})
    assert limits.memory_limit(root) == (500_000_000, "a control group")


@pytest.mark.parametrize("text", ["", "max\n", "9223372036854771712\n", "what\n"])
def test_without_a_limit_the_machine_is_the_limit(tmp_path, text):
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": text, "sys/fs/cgroup/cpu.max": "max 100000"}
    assert limits.memory_limit(tree(tmp_path, files))[1] == "the machine"
    assert limits.cores(str(tmp_path)) == limits.cores(str(tmp_path / "nothing"))


def test_ulimits_are_seen():
    code = (
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))\n"
        "from bigclf import limits, machine\nprint(limits.memory_limit('/nowhere'), machine.open_files())"
    )
    assert run_python(code).split() == [f"({8 << 30},", "'ulimit", "-v')", "200"]


def test_a_cache_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    code = "from bigclf import machine; print(machine.facts()['kernels']['writable'])"
    assert run_python(code, NUMBA_CACHE_DIR=str(tmp_path / "file" / "cache")).strip() == "False"


# The preload


ONE = """
import sys
from bigclf import methods, preload
methods.METHODS = {name: methods.METHODS[name] for name in sys.argv[2:]}
sys.exit(preload.main())
"""


def prepared(cache, *names):
    """What a process says that has prepared the kernels of these methods."""
    return json.loads(run_python(ONE, "--json", *names, timeout=3000, NUMBA_CACHE_DIR=str(cache)))


@pytest.mark.long
def test_preload_prepares_kernels_and_a_second_process_finds_them(tmp_path):
    told = [prepared(tmp_path, "perceptron") for _ in range(2)]
    assert told[0]["compiled"] >= 5 and told[1]["compiled"] == 0 and told[1]["found"] >= 5
    assert told[0]["kernels"]["path"] == str(tmp_path) and told[0]["error"] is None


def test_preload_counts_its_steps(monkeypatch):
    from bigclf import methods, preload
    from bigclf.data import pages
    from bigclf.training import sources

    monkeypatch.setattr(methods, "METHODS", {name: methods.METHODS[name] for name in ("perceptron", "pa1")})
    monkeypatch.setattr(pages, "warm", lambda width: None)
    for name in ("warm", "warm_gathered"):
        monkeypatch.setattr(sources, name, lambda *given: None)
    monkeypatch.setattr(preload, "_steps", dict(preload._steps))
    assert preload.prepare((4, 8))["error"] is None
    losses = max(1, len(methods.METHODS["perceptron"].losses)) + len(methods.METHODS["pa1"].losses)
    assert preload._steps == {"done": 2 * losses, "all": 2 * losses}


def test_the_command_says_how_far_it_is(capsys):
    from bigclf import preload  # what counts is loaded by now
    from bigclf.compiled import jit

    turns = iter([False, True])
    preload._say_meanwhile(SimpleNamespace(wait=lambda seconds: next(turns)))
    said = re.fullmatch(r"so far 0 of 0 steps: (\d+) kernels compiled, (\d+) found\n", capsys.readouterr().err)
    assert said and tuple(map(int, said.groups())) == jit.compilations()


FITS = """
import sys, warnings
warnings.simplefilter("ignore")
from bigclf.compiled import jit
from bigclf.api.fit import fit
from making import CASES
for case in CASES:
    for groups in (1, 2):
        try:
            fit(sys.argv[1], algo=case.algo, loss=case.loss, epochs=2, progress=False, groups=groups)
        except ValueError as error:
            assert groups == 2 and "one group" in str(error), error
print({d.py_func.__name__: d.signatures for d in jit._compiled if d.stats.cache_misses})
"""


@pytest.mark.slow
def test_after_preload_no_run_compiles_anything(tmp_path):
    shards_of(tmp_path / "shards", *random_rows(300, 30))
    prepared(tmp_path / "cache", *METHODS)
    assert run_python(FITS, tmp_path / "shards", timeout=3000, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == "{}\n"


def test_the_command_prints_a_line(tmp_path):
    code = "import sys\nfrom bigclf import preload\npreload.compile_all = lambda width: {}\nsys.exit(preload.main())"
    assert "0 kernels compiled, 0 found in" in run_python(code.format("None"))
    assert run_python(code.format("1 / 0"), check=False) == ""


SETUP = """
import asyncio, logging, sys
logging.basicConfig(level="INFO", format="%(message)s", stream=sys.stdout)
from bigclf import preload
{}
asyncio.run(preload.dask_setup(object()))
print("joined", flush=True)
import threading
for thread in threading.enumerate():
    if thread.name == "bigclf-preload":
        thread.join()
print("dask" in sys.modules)
"""


def test_a_worker_joins_when_its_kernels_are_ready_and_no_dask_is_needed():
    said = run_python(SETUP.format("preload.compile_all = lambda width: None")).splitlines()
    assert any("bigclf 0." in line and "kernels compiled" in line for line in said) and "joined" in said
    assert said[-1] == "False"


@pytest.mark.parametrize(
    "error",
    ["OSError(28, 'No space left on device')",
     *(pytest.param(error, marks=pytest.mark.long) for error in ("MemoryError()", "ImportError('numba')"))],
)  # fmt: skip
def test_a_worker_joins_whatever_goes_wrong(error):
    said = run_python(SETUP.format(f"def fail(width): raise {error}\npreload.compile_all = fail"))
    assert "could not prepare its kernels" in said and "joined" in said


def test_a_worker_does_not_wait_for_ever():
    slow = "import time\npreload.compile_all = lambda width: time.sleep(0.5)\npreload.PATIENCE = 0.05"
    said = run_python(SETUP.format(slow)).splitlines()
    assert "still being compiled" in said[0] and said[1] == "joined"
