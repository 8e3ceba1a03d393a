"""Places to run, for real: an SSH server and a SLURM of this machine's own, and jobs whose bits are known.

All of it listens on loopback, or in network namespaces that are made here; what is started is ended by its number.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from making import PACKAGE, environment, random_rows

import bigclf

sys.path.append(str(Path(__file__).parent.parent / "chaos"))

from clusters import kill_trees

RECIPES = PACKAGE.parent / "cluster"


def pytest_collection_modifyitems(items):
    for item in items:
        if not RECIPES.exists():
            item.add_marker(pytest.mark.skip(reason="the recipes are not part of an installed package"))


def program(name):
    """Where it is, or the test is skipped; servers are not always on the path."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if found is None:
        pytest.skip(f"there is no {name}")
    return found


def run(*words, seconds=120, **options):
    """A program's standard output; what it said is shown when it fails."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=seconds, **options)
    assert done.returncode == 0, f"{words[0]} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Experiment(NamedTuple):
    """A job file, and the bits its model has when it is run on this machine."""

    directory: Path
    table: dict
    bits: str

    def written(self, directory, alone=False, **limits):
        """The same job, whose outputs lie in a directory of their own: (job file, model). alone : by one process."""
        directory.mkdir(parents=True, exist_ok=True)
        table = {**self.table, "run": {**self.table["run"], "dir": str(directory / "run")},
                 "outputs": {"model": str(directory / "model.bigclf")}}  # fmt: skip
        table["limits"] = {**table["limits"], **limits}
        if alone:
            del table["cluster"]
        job = directory / "job.yaml"
        job.write_text(yaml.safe_dump(table))
        return job, directory / "model.bigclf"


JOBS = {
    "perceptron": {"method": {"algo": "averaged_perceptron"}, "limits": {"memory": "256MB", "epochs": 20}},
    "dcd": {"method": {"algo": "dcd", "C": 0.01}, "limits": {"memory": "256MB", "tol": 0.03}},
}


@pytest.fixture(scope="session")
def experiments(tmp_path_factory):
    """12,000 rows as text; jobs that learn from them in four groups, and what each comes to on this machine."""
    from sklearn.datasets import dump_svmlight_file

    directory = tmp_path_factory.mktemp("experiments")
    x, y = random_rows(12_000, 400, 0.1, seed=1, noise=1.0)
    dump_svmlight_file(x, y, str(directory / "train.svm"), zero_based=False)
    data = {"source": str(directory / "train.svm"), "train": str(directory / "train"), "convert": {"chunk_nnz": 20_000}}
    made = {}
    for name, job in JOBS.items():
        common = {"data": data, "run": {"seed": 0, "groups": 4}, "cluster": {"workers": "${SCHEDULER:-2}"}}
        made[name] = Experiment(directory, common | job, "")
        path, model = made[name].written(directory / name)
        path.write_text(path.read_text().replace("${SCHEDULER:-1}", "1"))
        bigclf_command("run", path)
        made[name] = made[name]._replace(bits=bits(model))
    return made


def bigclf_command(*words, seconds=200, cwd=None, **env):
    words = [sys.executable, "-W", "ignore", "-m", "bigclf", *words]
    return run(*words, seconds=seconds, cwd=cwd, env=environment(**env))


def bits(model):
    return bigclf.load(model).digest()


@pytest.fixture
def started(tmp_path):
    """start(words, **options) -> Popen whose output goes to a file beside; all it started is ended with the test."""
    processes = []

    def start(words, **options):
        path = tmp_path / f"program-{len(processes)}.log"
        with open(path, "wb") as log:
            process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       start_new_session=True, **options)  # fmt: skip
        process.said = lambda: path.read_text(errors="replace")
        processes.append(process)
        return process

    yield start
    kill_trees(*processes)
    for process in processes:
        print("---", process.args[:3], process.said()[-4000:], sep="\n")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def marked(mark):
    """Living processes that have the mark in their environment."""
    import psutil

    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if mark in process.environ().values() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
