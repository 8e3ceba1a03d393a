"""A worker that was started by hand with another Python, with bigclf or without: refused by name, and the run goes on
with the others.

BIGCLF_OTHER_PYTHON names an interpreter of another version that has Dask and what bigclf needs. Without it one is
looked for, and gets these in an environment that is made for it.
"""

import contextlib
import glob
import importlib
import os
import shutil
import subprocess
import sys
import threading
import tomllib

import pytest
from making import PACKAGE, environment, random_rows, shards_of

import bigclf
from bigclf.errors import ClusterError

distributed = pytest.importorskip("distributed")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(900)]
FIT = dict(algo="pa1", epochs=3, groups=2, mixing="mistakes", progress=False)
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def version(python):
    """``3.12.1``, or nothing where it does not run."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        code = "import platform; print(platform.python_version())"
        return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    return ""


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A Python of another version that starts Dask's workers."""
    if named := os.environ.get("BIGCLF_OTHER_PYTHON"):
        return named
    names = [f"python3.{minor}" for minor in (12, 13, 11) if f"3.{minor}" != HERE]
    found = [shutil.which(name) for name in names]
    found += [path for name in names for path in glob.glob(os.path.expanduser(f"~/.pyenv/versions/*/bin/{name}"))]
    first = next((path for path in found if path and version(path)), None)
    if first is None:
        pytest.skip(f"there is no other Python ({', '.join(names)}); BIGCLF_OTHER_PYTHON names one")
    place = tmp_path_factory.mktemp("other") / "env"
    needs = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]["dependencies"]
    needs += [f"distributed=={distributed.__version__}"]
    subprocess.run([first, "-m", "venv", place], check=True)
    words = [place / "bin" / "python", "-m", "pip", "install", "-q", *needs]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{first} gets no Dask: {done.stderr.strip().splitlines()[-1]}")
    return str(place / "bin" / "python")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return shards_of(tmp_path_factory.mktemp("rows") / "s", *random_rows(900, 20, noise=0.5), chunk_nnz=300)


@contextlib.contextmanager
def joined(python, cluster, count, home, with_bigclf):
    """``python`` has joined the cluster as its worker number ``count``."""
    env = environment(NUMBA_CACHE_DIR=str(home / "kernels"))
    if not with_bigclf:
        del env["PYTHONPATH"]
    words = [cluster.scheduler_address, "--name", "other", "--nthreads", "1", "--memory-limit", "0", "--no-dashboard",
             "--no-nanny"]  # fmt: skip
    with open(home / "log", "wb") as log:
        worker = subprocess.Popen([python, "-m", "distributed.cli.dask_worker", *words], cwd=home, env=env, stdout=log,
                                  stderr=log)  # fmt: skip
    try:
        with distributed.Client(cluster, set_as_default=False) as client:
            client.wait_for_workers(count, timeout=300)
            loading = client.submit(importlib.import_module, "bigclf.cluster.machine", workers=["other"])  # takes long
            loading.exception()  # when it is over
        yield
    finally:
        worker.kill()
        worker.wait()


@pytest.mark.parametrize("with_bigclf", [True, False], ids=["with bigclf", "without"])
@pytest.mark.parametrize("good", [1, 0], ids=["beside another", "alone"])
def test_a_worker_of_another_python_is_refused_by_name(other, shards, tmp_path, good, with_bigclf, monkeypatch):
    from bigclf.cluster import engine

    greeted, greet = threading.Semaphore(0), engine.DaskEngine._greet

    async def counted(self, address):
        await greet(self, address)
        greeted.release()

    def hold(record):
        """Nobody learns on until all have said what they are: the other one is long at loading bigclf."""
        if record["epoch"] == 1:
            assert all(greeted.acquire(timeout=100) for _ in range(good + 1))

    monkeypatch.setattr(engine.DaskEngine, "_greet", counted)
    options = dict(n_workers=good, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1",
                   memory_limit=0, dashboard_address=None)  # fmt: skip
    told = (
        f"python {version(other)} there, {version(sys.executable)} here" if with_bigclf else "No module named 'bigclf'"
    )
    with distributed.LocalCluster(**options) as cluster, joined(other, cluster, good + 1, tmp_path, with_bigclf):
        workers = bigclf.Workers(cluster.scheduler_address, patience={"idle": 20})
        if not good:
            with pytest.raises(ClusterError, match="no usable worker for 20 s") as caught:
                bigclf.fit(shards, workers=workers, **FIT)
            assert told in str(caught.value)
            return
        model = bigclf.fit(shards, workers=workers, callbacks=[hold], **FIT)
    events = [event["what"] for record in model.result_.history for event in record.get("events", ())]
    assert any(event.startswith("not used: ") and told in event for event in events), events
    assert model.digest() == bigclf.fit(shards, **FIT).digest()
