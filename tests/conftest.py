"""What every test shares: a private cache, the marks, and the way to the data sets.

The cache directory (manifests, compiled kernels) is made for the session and removed after it, so that tests neither
use nor touch the user's; subprocesses inherit it, those that share the tests among them too. Kernels are kept
there even by tests that name another one for the rest. BIGCLF_TESTS_CACHE names one that stays, for several sessions.
"""

import faulthandler
import gc
import logging
import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from zlib import crc32

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key as STDERR  # fd 2 itself may be captured

sys.path[:0] = sorted({str(path.parent) for path in Path(__file__).parent.glob("*/test_*.py")})  # shared helpers
SHARING = "PYTEST_XDIST_WORKER" in os.environ  # one of the processes that the tests are shared among
GRACE = -1 if SHARING else 30  # seconds from its limit to when a test is ended by force: nobody sees the stacks that
# pytest-timeout prints in one of several processes
KEPT = os.environ.get("BIGCLF_TESTS_CACHE")
CACHE = os.environ["BIGCLF_CACHE_DIR"] if SHARING else KEPT or tempfile.mkdtemp(prefix="bigclf-tests-")
os.environ["BIGCLF_CACHE_DIR"] = CACHE
os.environ["NUMBA_CACHE_DIR"] = os.path.join(CACHE, "kernels")  # also of those that name another BIGCLF_CACHE_DIR
if not os.environ.get("BIGCLF_TESTS_INTERPRETED"):  # tests/mutants.py: kernels as plain Python, not compiled anew
    os.environ.pop("NUMBA_DISABLE_JIT", None)


def pytest_collection_finish():
    """The tests themselves are no garbage, and compilers make little: looking for it costs a fifth of compiling."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    if "dask" in sys.modules:  # its profiler goes through all threads 100 times a second, and may stand still in the
        # middle of that for ever (python/cpython#106883)
        sys.modules["dask"].config.set({"distributed.worker.profile.enabled": False})


@pytest.fixture(scope="session", autouse=True)
def compile_at_once():
    """Let processes that share the tests compile different kernels at once: ``jit.compiling`` lets one at a time, and
    whoever has all kernels waits, too. A signature has a lock of its own besides."""
    from bigclf.compiled import jit

    shared, locked = os.path.join(CACHE, "kernels"), jit._locked
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jit, "_locked", lambda file, end: os.path.dirname(file.name) == shared or locked(file, end))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_power_cut():
    """Wait for no disk, some 10 ms a time: what a test reads back comes from memory. A wrong descriptor is an error."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """End a process that its time limit does not end: whoever holds the interpreter's lock lets no thread of pytest's
    run, but Python's own watchdog needs no lock. It says where every thread stood."""
    mark = item.get_closest_marker("timeout")
    limit = (mark.args[0] if mark and mark.args else None) or float(item.config.getini("timeout") or 0)
    if limit and not item.config.getoption("usepdb"):
        faulthandler.dump_traceback_later(limit + GRACE, exit=True, file=item.config.stash.get(STDERR, 2))
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_runtest_logreport(report):
    """Who is ended from outside never gets to its summary: what failed is told when it fails."""
    if report.failed and not SHARING:
        said = report.longreprtext[-2000:]
        print(f"\n{report.nodeid} failed ({report.when}): {said}", file=sys.__stderr__, flush=True)


def pytest_unconfigure(config):
    if not SHARING and not KEPT:
        shutil.rmtree(CACHE, ignore_errors=True)


def in_turn(items):
    """All but slow tests, and those of the slow ones whose turn it is: with BIGCLF_TESTS_PART=1/3 a third, by
    their names."""
    part, of = map(int, os.environ.get("BIGCLF_TESTS_PART", "0/1").split("/"))
    return [item for item in items if not item.get_closest_marker("slow") or crc32(item.nodeid.encode()) % of == part]


def pytest_collection_modifyitems(config, items):
    """What was asked for with -m but cannot run here says why; slow ones have 50 minutes unless they say how many, and
    their turn."""
    now = in_turn(items)
    if left := [*{*items} - {*now}]:
        config.hook.pytest_deselected(items=left)
        items[:] = now
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3000))
        if item.get_closest_marker("data") and not os.environ.get("BIGCLF_DATA"):
            item.add_marker(pytest.mark.skip(reason="needs the data sets: BIGCLF_DATA names their folder"))
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root"))


@pytest.fixture(scope="session")
def data_set():
    """name -> path below $BIGCLF_DATA. With the folder named, a set that is missing is a failure."""
    folder = Path(os.environ["BIGCLF_DATA"])

    def find(name):
        path = folder / name
        if not path.exists():
            pytest.fail(f"BIGCLF_DATA is set, but there is no {name} in it")
        return path

    return find


@pytest.fixture(scope="module")
def client():
    """A client of three Dask workers in this process: quick, and as apart from each other as any."""
    distributed = pytest.importorskip("distributed")
    logging.getLogger("distributed").setLevel(logging.ERROR)
    cluster = distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=False, memory_limit=0, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def address():
    """Two Dask workers in this process, behind an address."""
    distributed = pytest.importorskip("distributed")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    options = dict(threads_per_worker=1, processes=False, memory_limit=0, dashboard_address=":0", protocol="tcp")
    with distributed.LocalCluster(n_workers=2, **options) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def quiet():
    """Runs that are cut short on purpose warn of it; here that is no news."""
    from bigclf.errors import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


@pytest.fixture
def as_begun_before(monkeypatch):
    """``dcd`` takes groups with every loss, as in runs that older versions began and this one ends."""
    monkeypatch.setattr("bigclf.request.prepare.require_joining", lambda method, loss, groups: None)
