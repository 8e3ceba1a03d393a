"""Who runs when, and what is worked out: bigclf, peer, peer, bigclf, peer, peer ... each in a process of its own.

A peer runs at the loosest of its tolerances (0.1, 0.03, 0.01 ...) whose weights are as good as the target says. That is
tried out in the first round and kept. How good they are is worked out by ourselves in float64, against a bound that a
tighter certificate of bigclf's gives in the same run. bigclf itself stops by its own certificate.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf import files
from bigclf.benchmarks import child, objective, sets
from bigclf.benchmarks.cap import Group, memory_group
from bigclf.benchmarks.peers import Place, last_answer, last_line
from bigclf.errors import RunError
from bigclf.methods import METHODS
from bigclf.version import __version__

if TYPE_CHECKING:
    from bigclf.benchmarks.child import Answer, Task
    from bigclf.benchmarks.ours import OwnTask


OURS, AUTO = "bigclf", "auto"
TALL = 10  # times as many rows as features, where others have faster solvers than their dual ones
LADDER = tuple(float(f"{digit}e{power}") for power in range(-1, -13, -1) for digit in (3, 1))[1:]  # 0.1, 0.03, 0.01 ...
STUCK = 6  # tolerances of a peer, smaller and smaller
REFERENCE_SHARE = 0.05  # of the target: how close the bound is that gaps are measured from
SCRATCH = "run-"  # and the number of the process: where weights and the raw store lie meanwhile
BLAS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Job(NamedTuple):
    """What is to be learned.

    Attributes
    ----------
    target : relative gap to be reached; None for one pass of an online method.
    solves : the job whose peers this one is held against; ``out_of_core`` itself reads from disk, peers from memory.
    """

    name: str
    algo: str
    loss: str | None
    target: float | None
    solves: str
    about: str


JOBS = {
    job.name: job
    for job in (
        Job("hinge", "dcd", "hinge", 1e-3, "hinge", "linear SVM, hinge loss, in memory"),
        Job(
            "squared_hinge", "dcd", "squared_hinge", 1e-4, "squared_hinge", "linear SVM, squared hinge loss, in memory"
        ),
        Job("logistic", "dcd", "logistic", 1e-6, "logistic", "logistic regression, in memory"),
        Job("online", "pa1", None, None, "online", "one pass, online, in memory"),
        Job("perceptron", "perceptron", None, None, "perceptron", "one pass of the perceptron, in memory"),
        Job("out_of_core", "dcd", "hinge", 1e-3, "hinge", "linear SVM, hinge loss, from a raw store under a cap"),
        Job("shards", "dcd", "hinge", 1e-3, "hinge", "linear SVM, hinge loss, from cold shards under a cap"),
    )
}
CAPPED = ("out_of_core", "shards")
CERTIFIED = tuple(name for name, method in METHODS.items() if method.certificate)  # what a gap may be asked of
YARDSTICKS = ("liblinear", "liblinear-multicore")


class Options(NamedTuple):
    """How everything is measured; ``memory`` and ``cap`` in bytes, the first for fits in memory; ``solvers`` : methods
    of ours that are measured beside the one of the job."""

    rounds: int
    C: float
    threads: int
    peer_threads: int
    dtype: str
    memory: int
    cap: int | None
    time_limit: float
    cache: str
    solvers: tuple[str, ...] = ()


class Measurement(NamedTuple):
    """One process.

    Attributes
    ----------
    seconds : of the fit.   prepare_seconds : of making the peer's form of the rows before.
    wall_seconds : of the whole process.
    objective, gap : of certified jobs.   error : on the rows to test on, else on those trained on.
    certified : the gap of bigclf's own certificate; trace : (seconds, certified gap) read by read.
    failure : why there are no figures.
    """

    who: str
    job: str
    tol: float | None
    seconds: float = 0.0
    prepare_seconds: float | None = None
    wall_seconds: float = 0.0
    peak_bytes: int | None = None
    group_peak_bytes: int | None = None
    objective: float | None = None
    gap: float | None = None
    error: float | None = None
    certified: float | None = None
    dual: float | None = None
    trace: Sequence[Sequence[float]] | None = None
    whole_program: bool = False
    failure: str | None = None


class Entry(NamedTuple):
    """All measurements of one of the programs in one job; ``tried`` are those of other tolerances."""

    who: str
    version: str
    threads: int
    tol: float | None
    rounds: list[Measurement]
    tried: list[Measurement]
    failure: str | None = None

    def median(self, name: str) -> float | None:
        found = [value for m in self.rounds if (value := getattr(m, name)) is not None]
        return statistics.median(found) if found else None


class Outcome(NamedTuple):
    """One job: ``bound`` is the dual objective that gaps are measured from."""

    job: Job
    bound: float | None
    entries: list[Entry]
    missing: str | None = None

    def ratio(self, entry: Entry) -> float | None:
        """Seconds of bigclf over seconds of a peer."""
        ours, theirs = self.entries[0].median("seconds"), entry.median("seconds")
        return ours / theirs if ours and theirs and entry is not self.entries[0] else None


Tell = Callable[[str], None]
Watch = Callable[[Measurement, int], None]


def compare(
    data: sets.Set, jobs: list[Job], peers: list[Place], options: Options, tell: Tell, watch: Watch
) -> list[Outcome]:
    """Run everything; ``watch`` is told of each measurement and its round (0: a bound)."""
    comparison = Comparison(data, options, tightest(jobs), tell, watch)
    try:
        return [comparison.job(job, [place for place in peers if takes_part(place, job)]) for job in jobs]
    finally:
        files.remove_tree(comparison.scratch)


def tightest(jobs: list[Job]) -> dict[str, float]:
    """Of the jobs that solve the same problem, the target that its bound has to serve."""
    aims: dict[str, float] = {}
    for job in jobs:
        if job.target is not None:
            aims[job.solves] = min(job.target, aims.get(job.solves, job.target))
    return aims


def takes_part(place: Place, job: Job) -> bool:
    can = job.solves in place.peer.jobs
    return can and (job.name not in CAPPED or place.peer.name in YARDSTICKS or bool(place.program))


class Comparison:
    """The measurements of one set."""

    def __init__(self, data: sets.Set, options: Options, targets: dict[str, float], tell: Tell, watch: Watch) -> None:
        self.data, self.options, self.targets, self.tell, self.watch = data, options, targets, tell, watch
        clear_scratch(options.cache)
        self.scratch = files.join(options.cache, f"{SCRATCH}{os.getpid()}")
        files.make_directory(self.scratch)
        self.rows = data.rows("train")
        self.judged = data.rows("test") if data.n_test else self.rows
        self.bounds: dict[str, float] = {}

    # A job

    def job(self, job: Job, peers: list[Place]) -> Outcome:
        if reason := self.cannot(job):
            return Outcome(job, None, [], reason)
        ours = Entry(OURS, own_version(), self.own_threads(job), job.target, [], [])
        if job.target is not None and (failure := self.find_bound(job)):
            return Outcome(job, None, [ours._replace(failure=failure)])
        if failure := self.prepare(job):
            return Outcome(job, None, [ours._replace(failure=failure)])
        solvers = [name for name in self.options.solvers if job.loss in METHODS[name].losses]
        entries = [ours, *(ours._replace(who=name) for name in solvers), *map(self.entry_of, peers)]
        measures: list[Callable[[float | None], Measurement]] = [functools.partial(self.own, job)]
        measures += [functools.partial(self.own, job._replace(algo=name), who=name) for name in solvers]
        measures += [functools.partial(self.theirs, place, job) for place in peers]
        for number in range(1, self.options.rounds + 1):
            for k, measure in enumerate(measures):
                entries[k] = self.one_round(entries[k], number, job, measure)
        return Outcome(job, self.bounds.get(job.solves), entries)

    def cannot(self, job: Job) -> str | None:
        """Why a job cannot be run here at all."""
        if job.loss is not None and job.algo != AUTO and job.loss not in METHODS[job.algo].losses:
            return f"{job.algo} of this version has no {job.loss} loss"
        if job.name not in CAPPED:
            return None
        if self.options.cap is None:
            return "give --cap 512MB (root and memory control groups are needed)"
        try:
            with memory_group(self.options.cap):
                return None
        except RunError as error:
            return str(error)

    def entry_of(self, place: Place) -> Entry:
        return Entry(place.peer.name, place.version, min(self.options.peer_threads, place.peer.threads), None, [], [])

    def one_round(self, entry: Entry, number: int, job: Job, measure: Callable[[float | None], Measurement]) -> Entry:
        """Another measurement, in the first round of a peer at the first of its tolerances that is good enough."""
        if entry.failure:
            return entry
        tried: list[Measurement] = []
        searching = number == 1 and entry.who not in (OURS, *self.options.solvers) and job.target is not None
        for tol in LADDER if searching else (entry.tol,):
            found = measure(tol)
            self.watch(found, number)
            if found.failure:
                return entry._replace(tried=entry.tried + tried, failure=found.failure)
            if not searching or good_enough(found, job):
                return entry._replace(tol=tol, rounds=[*entry.rounds, found], tried=entry.tried + tried)
            tried.append(found)
            if is_stuck([m.gap for m in tried if m.gap is not None]):
                break
        best = min(m.gap for m in tried if m.gap is not None)
        return entry._replace(
            tried=tried, failure=f"its best gap is {best:.1e}, at tolerances down to {tried[-1].tol:g}"
        )

    # bigclf

    def own_threads(self, job: Job) -> int:
        return 2 if job.name in CAPPED else self.options.threads

    def find_bound(self, job: Job) -> str | None:
        """A tight certificate of the same problem, in memory; why there is none, if there is none."""
        if job.solves in self.bounds:
            return None
        tol = REFERENCE_SHARE * self.targets[job.solves]
        certified = JOBS[job.solves]._replace(algo=AUTO) if job.algo == AUTO else JOBS[job.solves]
        found = self.own(certified, tol, dtype="float64")
        self.watch(found, 0)
        if found.dual is not None:
            self.bounds[job.solves] = found.dual
        return found.failure

    def prepare(self, job: Job) -> str | None:
        """The raw store that is read later, which a run leaves behind; why not, if not."""
        if job.name not in CAPPED:
            return None
        sets.shards_of(self.data, self.options.cache, self.tell)
        if job.name == "shards":
            return None
        self.tell("making the raw store")
        return self.own(job, LADDER[0]).failure

    def own(self, job: Job, tol: float | None, dtype: str | None = None, who: str = OURS) -> Measurement:
        with self.group(job) as group:
            answer = self.run(
                [sys.executable, "-m", "bigclf.benchmarks.ours"],
                self.own_task(job, tol, dtype, group),
                self.options.threads,
            )
            peak = group.peak() if group else None
        found = self.judge(who, job, tol, answer)._replace(group_peak_bytes=peak)
        if found.failure or tol is None:
            return found
        proof = answer["certificate"]
        found = found._replace(certified=proof["gap"], dual=proof["dual"], trace=answer["trace"])
        return found if answer["converged"] else found._replace(failure=f"not converged: gap {proof['gap']:.1e}")

    def own_task(self, job: Job, tol: float | None, dtype: str | None, group: Group | None) -> OwnTask:
        capped = job.name in CAPPED
        return {
            **self.task(job, tol),
            "algo": job.algo,
            "loss": job.loss,
            "dtype": dtype or self.options.dtype,
            "threads": self.own_threads(job),
            "members": group.members if group else None,
            "memory": self.options.cap // 2 if capped and self.options.cap else self.options.memory,
            "shards": sets.shards_of(self.data, self.options.cache, self.tell) if capped else None,
            "local_dir": files.join(self.scratch, "store") if job.name == "out_of_core" else None,
            "evict": job.name == "shards",
        }

    # Peers

    def theirs(self, place: Place, job: Job, tol: float | None) -> Measurement:
        threads = min(self.options.peer_threads, place.peer.threads)
        text = sets.text_of(self.data, self.options.cache, place.peer.text, self.tell) if place.peer.text else None
        task: Task = {
            **self.task(job, tol), "peer": "program" if place.program else place.peer.name, "text": text,
            "packages": place.packages, "program": place.program, "threads": threads,
        }  # fmt: skip
        return self.judge(place.peer.name, job, tol, self.run([place.python, child.__file__], task, threads))

    # A process

    def task(self, job: Job, tol: float | None) -> Task:
        return {
            "job": job.solves, "data": self.data.place("train"), "n_features": self.data.n_features,
            "C": self.options.C, "tol": tol, "out": files.join(self.scratch, "weights.npy"),
            "tall": job.algo == AUTO and self.data.n_rows >= TALL * self.data.n_features,
        }  # fmt: skip

    def run(self, words: list[str], task: Task, threads: int) -> Answer:
        """Call the program with the task; what it answered, or {"failure": why}."""
        files.remove(task["out"])
        environment = {**os.environ, **dict.fromkeys(BLAS, str(threads))}
        started = time.perf_counter()
        try:
            code, said, complaint = self.call([*words, json.dumps(task)], environment)
        except subprocess.TimeoutExpired:
            return {"failure": f"not done after {self.options.time_limit:g} s"}
        except OSError as error:
            return {"failure": f"{words[0]}: {error.strerror}"}
        seconds = time.perf_counter() - started
        answer: Answer | None = last_answer(said)
        if code or answer is None:
            return {"failure": f"killed by signal {-code}" if code < 0 else last_line(complaint)}
        return {**answer, "wall_seconds": seconds}

    def call(self, words: list[str], environment: dict[str, str]) -> tuple[int, str, str]:
        """Exit code, output and complaints of a program, which is gone afterwards with all that it started."""
        pipe = subprocess.PIPE
        with subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, errors="replace",
            process_group=0,
        ) as running:  # fmt: skip
            try:
                said, complaint = running.communicate(timeout=self.options.time_limit)
            except BaseException:
                os.kill(-running.pid, signal.SIGKILL)
                raise
        return running.returncode, said, complaint

    def judge(self, who: str, job: Job, tol: float | None, answer: Answer) -> Measurement:
        """The figures of one process, and how good its weights are."""
        if "failure" in answer:
            return Measurement(who, job.name, tol, failure=answer["failure"])
        weights = np.load(files.join(self.scratch, "weights.npy"))
        if weights.shape != (self.data.n_features,) or not np.isfinite(weights).all():
            return Measurement(who, job.name, tol, failure=f"weights of shape {weights.shape}, or not finite")
        told = {name: answer.get(name) for name in ("seconds", "prepare_seconds", "wall_seconds", "peak_bytes")}
        found = Measurement(who, job.name, tol, **told, whole_program=bool(answer.get("whole_program")))  # type: ignore[arg-type]
        found = found._replace(error=objective.error(weights, self.judged))
        if job.loss is None:
            return found
        reached = objective.primal(job.loss, weights, self.rows, self.options.C)
        bound = self.bounds.get(job.solves)
        return found._replace(objective=reached, gap=None if bound is None else objective.relative_gap(reached, bound))

    @contextlib.contextmanager
    def group(self, job: Job) -> Iterator[Group | None]:
        if job.name not in CAPPED:
            yield None
            return
        assert self.options.cap is not None
        with memory_group(self.options.cap) as group:
            yield group


def clear_scratch(cache: str) -> None:
    """Remove what runs that were killed left behind, in the sets too; others may be at work there."""
    import psutil

    files.clear_left(cache, of_the_dead=True)
    for name in files.list_directory(cache):
        path, number = files.join(cache, name), name.removeprefix(SCRATCH)
        if number != name and number.isdecimal() and not psutil.pid_exists(int(number)):
            files.remove_tree(path)
        elif name.startswith(sets.PREFIXES) and files.is_directory(path):
            files.clear_left(path, of_the_dead=True)


def is_stuck(gaps: list[float]) -> bool:
    """Whether the last ``STUCK`` tolerances brought nothing: smaller ones then bring nothing either."""
    before, last = gaps[:-STUCK], gaps[-STUCK:]
    return bool(before) and min(last) > 0.8 * min(before)


def good_enough(found: Measurement, job: Job) -> bool:
    return found.gap is not None and job.target is not None and found.gap <= job.target


def own_version() -> str:

    return __version__
