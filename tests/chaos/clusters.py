"""Clusters of real processes that can be killed, stopped and started anew, and runs on them that can be watched."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import distributed
import psutil
from making import environment

import bigclf

HERE = Path(__file__).parent
PATIENCE = {"stale": 2.0, "least": 2.0, "idle": 30.0}


def wait_for(true, seconds=30.0, what="what was waited for"):
    """The first true value of ``true()``; AssertionError when none comes."""
    end = time.monotonic() + seconds
    while True:
        if found := true():
            return found
        assert time.monotonic() < end, f"{what} did not come in {seconds} s"
        time.sleep(0.02)


def is_living(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_trees(*popens):
    """The processes and all they started, stopped ones too; until they are gone."""
    trees = []
    for popen in popens:
        with contextlib.suppress(psutil.NoSuchProcess):
            tree = psutil.Process(popen.pid).children(recursive=True)
            popen.kill()
            for process in tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            trees += tree
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGKILL)
    for popen in popens:
        popen.wait()
    psutil.wait_procs(trees, timeout=5)


class Worker:
    """A ``dask worker``: the process that was started (the nanny, if there is one) and the one that does the work."""

    def __init__(self, popen, nanny, home):
        self.popen, self.nanny, self._home = popen, nanny, home

    @property
    def pid(self):
        """Of the process that makes visits now, None while there is none."""
        parent = "parent" if self.nanny else None
        for note in self._home.glob("workers/*[0-9]"):
            pid = int(note.name)
            ours = json.loads(note.read_text())["parent"] == self.popen.pid if parent else pid == self.popen.pid
            if ours and is_living(pid):
                return pid
        return None

    @property
    def pids(self):
        """Of all its processes."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [self.popen.pid, *(p.pid for p in psutil.Process(self.popen.pid).children(recursive=True))]
        return []

    def send(self, number, *, nanny=False):
        for pid in self.pids if nanny else [self.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class ChaosCluster:
    """A scheduler and workers as processes of their own.

    Parameters
    ----------
    home : directory for logs, the scheduler's file and the notes of workers.
    orders : directory of the orders that workers obey (``chaos_worker.py``).
    nanny, memory_limit, worker_options, env : how workers are started.
    supervised : the scheduler and workers that end are started anew, as a supervisor would.
    join : called in the process of each worker before it becomes one.
    """

    def __init__(self, home, *, nanny=True, memory_limit="0", worker_options=(), env=(), supervised=False, join=None):
        self.home, self.orders = Path(home), Path(home) / "orders"
        self.nanny, self.memory_limit, self.worker_options = nanny, memory_limit, worker_options
        self.env, self.join, self.supervised = dict(env), join, supervised
        self.workers, self.scheduler, self.port = [], None, 0
        self._numbers = itertools.count()
        self._client = None
        self._closing = threading.Event()
        for name in ("logs", "workers", "orders", "scratch"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        if supervised:
            threading.Thread(target=self._supervise, daemon=True).start()

    # Processes

    def _start(self, name, words, **options):
        path = f"{HERE}{os.pathsep}{HERE / 'site'}"
        env = environment(BIGCLF_CHAOS=str(self.orders), PYTHONWARNINGS="ignore", **self.env)
        env["PYTHONPATH"] = path + os.pathsep + env["PYTHONPATH"]
        with open(self.home / "logs" / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                self._command(words), env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, **options,
            )  # fmt: skip

    def _command(self, words):
        return [sys.executable, "-m", *words]

    def start_scheduler(self, host="127.0.0.1"):
        """On the port it had before, if it had one."""
        file = self.home / "scheduler.json"
        file.unlink(missing_ok=True)
        words = ["--no-dashboard", "--dashboard-address", "127.0.0.1:0", "--host", host, "--port", str(self.port)]
        words += ["--scheduler-file", str(file)]
        self.scheduler = self._start("scheduler", ["distributed.cli.dask_scheduler", *words])

        def said():
            with contextlib.suppress(OSError, ValueError):
                return json.loads(file.read_text())["address"]

        self.address = wait_for(said, what="a scheduler")
        self.port = int(self.address.rsplit(":", 1)[1])

    def add_worker(self, host="127.0.0.1"):
        number = next(self._numbers)
        words = ["--nthreads", "1", "--no-dashboard", "--memory-limit", self.memory_limit, "--preload", "chaos_worker"]
        words += ["--local-directory", str(self.home / "scratch"), "--host", host, "--death-timeout", "60"]
        words += ["--dashboard-address", "127.0.0.1:0"]
        words += [] if self.nanny else ["--no-nanny"]
        options = {"preexec_fn": self.join} if self.join else {}
        program = ["distributed.cli.dask_worker", self.address, *words, *self.worker_options]
        worker = Worker(self._start(f"worker-{number}", program, **options), self.nanny, self.home)
        self.workers.append(worker)
        return worker

    def _supervise(self):
        while not self._closing.wait(0.2):
            for worker in list(self.workers):
                if worker.popen.poll() is not None and not self._closing.is_set():
                    self.workers.remove(worker)
                    self.add_worker()

    def start(self, n):
        self.start_scheduler()
        return self.ensure(n)

    def ensure(self, n):
        """Exactly ``n`` sound workers, known to the scheduler."""
        while len(self.workers) > n:
            self.remove(self.workers[-1])
        for worker in [w for w in self.workers if self._is_stopped(w)]:
            self.remove(worker)

        def is_settled():
            for worker in [w for w in self.workers if w.popen.poll() is not None]:
                self.remove(worker)
            while len(self.workers) < n:
                self.add_worker()
            return all(w.pid for w in self.workers) and len(self.known()) == n

        wait_for(is_settled, what=f"a cluster of {n}")
        return self

    @staticmethod
    def _is_stopped(worker):
        with contextlib.suppress(psutil.NoSuchProcess):
            return any(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in worker.pids)
        return True

    def known(self):
        """What the scheduler knows of its workers, by address."""
        if self._client is None:
            self._client = distributed.Client(self.address, set_as_default=False)
        scheduler = self._client.scheduler
        return self._client.sync(lambda: scheduler.identity(n_workers=-1))["workers"]

    def remove(self, *workers):
        """Kill them, all at once."""
        self.workers = [worker for worker in self.workers if worker not in workers]
        kill_trees(*(worker.popen for worker in workers))

    def kill_scheduler(self):
        self.drop_client()
        kill_trees(self.scheduler)

    def drop_client(self):
        if self._client is not None:
            self._client.close(timeout=1)
            self._client = None

    def of(self, pid):
        """The worker whose visits the process ``pid`` makes."""
        return next(w for w in self.workers if w.pid == pid)

    def close(self):
        self._closing.set()
        with contextlib.suppress(Exception):
            self.drop_client()
        kill_trees(*(w.popen for w in self.workers), *([self.scheduler] if self.scheduler else []))

    def logs(self, lines=40):
        """The end of every log, for a test that failed."""
        for path in sorted((self.home / "logs").iterdir()):
            text = path.read_text(errors="replace").splitlines()
            print(f"--- {path.name}", *text[-lines:], sep="\n")

    # Orders and visits

    def reset(self):
        """No orders, no pace, nothing seen."""
        for path in self.orders.iterdir():
            path.unlink(missing_ok=True)

    def pace(self, seconds):
        """Have every visit take so many seconds longer."""
        part = self.orders / "pace.part"
        part.write_text(str(seconds))
        part.rename(self.orders / "pace")

    def order(self, **order):
        """Leave an order for whoever meets its place first."""
        name = f"{next(self._numbers):03d}"
        (self.orders / f"{name}.part").write_text(json.dumps(order))
        (self.orders / f"{name}.part").rename(self.orders / f"{name}.order")
        return Order(self, name)

    def visits(self, **where):
        """What was told of visits: those with these values."""
        if not (self.orders / "visits").exists():
            return []
        records = [json.loads(line) for line in (self.orders / "visits").read_text().splitlines()]
        return [r for r in records if all(r[name] == value for name, value in where.items())]

    def wait_visit(self, seconds=30.0, **where):
        return wait_for(lambda: self.visits(**where), seconds, f"a visit with {where}")[0]

    def fit(self, data, **keywords):
        return Fitting(data, **{"workers": self.address, "groups": 5} | keywords)


class Order:
    def __init__(self, cluster, name):
        self.cluster, self.path = cluster, cluster.orders / f"{name}.order"

    def claims(self):
        """Process ids of those who met it."""
        return [int(p.read_text()) for p in sorted(self.path.parent.glob(f"{self.path.stem}.claim-*"))]

    def claimed(self, times=1, seconds=30.0):
        """Wait until it was met so often; the process id of the last who did."""
        return wait_for(lambda: len(self.claims()) >= times and self.claims(), seconds, "someone to obey an order")[-1]

    def release(self):
        self.path.with_suffix(".release").touch()


class Counter:
    """A screen that counts what was accepted, and can break the run off."""

    def __init__(self):
        self.rows = self.results = 0
        self.abandoned = False

    def start(self, plan):
        self.groups = len(plan["groups"])

    def advance(self, rows, n_bytes):
        if self.abandoned:
            raise RuntimeError("the test is over")
        self.rows, self.results = self.rows + rows, self.results + 1

    def epoch(self, record): ...

    def stop(self): ...


class Fitting:
    """``bigclf.fit`` in a thread."""

    def __init__(self, data, **keywords):
        self.counter, self.records, self.result, self.error = Counter(), [], None, None
        callbacks = [self.records.append, *keywords.pop("callbacks", ())]
        patience = keywords.pop("patience", PATIENCE)
        workers = bigclf.Workers(keywords.pop("workers"), patience=patience)
        keywords = {"progress": self.counter, "callbacks": callbacks, "workers": workers} | keywords
        self._thread = threading.Thread(target=self._go, args=(data, keywords), daemon=True)
        self._thread.start()

    def _go(self, data, keywords):
        try:
            self.result = bigclf.fit(data, **keywords)
        except BaseException as error:
            self.error = error

    def wait_epoch(self, epoch, seconds=60.0):
        """Until the epoch is over (or the run)."""
        wait_for(lambda: len(self.records) >= epoch or self.is_over(), seconds, f"epoch {epoch}")

    def is_over(self):
        return not self._thread.is_alive()

    def model(self, seconds=60.0):
        """Wait for the model; what the fit raised is raised."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            self.counter.abandoned = True
            raise AssertionError(f"the run did not end in {seconds} s; it is at epoch {len(self.records)}")
        if self.error is not None:
            raise self.error
        return self.result

    @property
    def events(self):
        return [event for record in self.records for event in record.get("events", ())]

    def told(self, text):
        """Events that begin so."""
        return [event for event in self.events if event["what"].startswith(text)]


def words_of(keywords):
    """The same run on the command line."""
    options = ("C", "algo", "epochs", "tol", "groups", "memory")
    words = []
    for name, value in keywords.items():
        words += [f"--{name}", str(value)] if name in options else ["--param", f"{name}={value}"]
    return words
