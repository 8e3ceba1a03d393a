"""What the driver's book-keeping costs with very many workers and groups, driven by drawn events.

python jobs/driver_capacity.py [--workers 1000] [--groups 100000] [--calm] [--seed 0]

No cluster and no data: the book that a driver keeps (``bigclf.cluster.book``) is told what a cluster of so many
workers would tell it in one epoch, on a clock of its own. Visits take a drawn time about ten seconds, one in a hundred
five times as long; workers die, freeze and come back, results are lost, visits fail (with --calm none of that happens).
Printed are seconds of a processor a result, spent in the book alone, and how much memory the process has grown by.
Then what else a driver does for a result: it takes in a state of a million features, whole or as changes of one in a
hundred, and finds the changes that workers are sent. Exits 1 above a millisecond of book-keeping or a gigabyte.
"""

import argparse
import heapq
import itertools
import sys
import time

import numpy as np
import psutil

from bigclf.cluster.book import Book, Cancel, GiveUp, Patience, Submit, Trial
from bigclf.maths.deltas import difference, n_bytes
from bigclf.methods import resolve
from bigclf.training.executor import Blend
from bigclf.training.problems import Problem
from bigclf.training.visit import Part

SECONDS = 10.0  # of a visit, in the median
POLL = 0.2  # the driver looks at what has come so often
HEARTBEAT = 5.0  # a scheduler with a thousand workers tells of their signs of life about so often
STRAGGLERS, SLOWER = 0.01, 5.0
LOST, FAILED = 0.001, 0.001  # of the visits
LIFE, AWAY = 5_000.0, 30.0  # seconds until a worker dies, in the mean, and until another takes its place
AWAKE, ASLEEP = 10_000.0, 60.0  # ... until it freezes, and for how long


class Cluster:
    """Workers that do what the book's actions say, in simulated time; ``told`` : book-keeping seconds so far."""

    def __init__(self, book: Book, workers: int, calm: bool, seed: int) -> None:
        self.book, self.calm = book, calm
        self.rng = np.random.default_rng(seed)
        self.now, self.told = 0.0, 0.0
        self.serial = itertools.count()
        self.events: list[tuple] = []  # heap of (time, serial, what, worker, life, ...)
        self.queues: dict[str, list[Cancel]] = {}  # unit and attempt
        self.where: dict[Cancel, str] = {}
        self.lives: dict[str, int] = {}  # how often each name was taken
        self.frozen: set[str] = set()
        self.counts = dict.fromkeys(("results", "deaths", "freezes", "lost", "failed", "cancelled", "calls"), 0)
        for number in range(workers):
            self.begin(f"worker-{number}")

    def call(self, what: str, *arguments, **words):
        began = time.perf_counter()
        try:
            return getattr(self.book, what)(*arguments, **words)
        finally:
            self.told += time.perf_counter() - began
            self.counts["calls"] += 1

    def at(self, seconds: float, what: str, worker: str, *more) -> None:
        heapq.heappush(
            self.events, (self.now + seconds, next(self.serial), what, worker, self.lives.get(worker, 0), *more)
        )

    def begin(self, worker: str) -> None:
        self.lives[worker] = self.lives.get(worker, 0) + 1
        self.queues[worker] = []
        self.call("joined", worker, self.now)
        if not self.calm:
            self.at(self.rng.exponential(LIFE), "dies", worker)
            self.at(self.rng.exponential(AWAKE), "freezes", worker)

    def run(self) -> GiveUp | None:
        heard = 0.0
        while not self.book.done:
            while self.events and self.events[0][0] <= self.now:
                _, _, what, worker, life, *more = heapq.heappop(self.events)
                if life == self.lives[worker] or what == "comes":
                    getattr(self, what)(worker, *more)
            if self.now - heard >= HEARTBEAT:
                heard = self.now
                for worker in self.queues:
                    if worker not in self.frozen:
                        self.call("seen", worker, self.now, self.now)
            for action in self.call("actions", self.now):
                if isinstance(action, GiveUp):
                    return action
                self.act(action)
            self.call("ready")
            self.call("take_events")
            self.now += POLL
        return None

    def act(self, action: Submit | Trial | Cancel) -> None:
        if isinstance(action, Cancel):  # what runs already runs on
            self.counts["cancelled"] += 1
            queue = self.queues.get(self.where.pop(action, ""), [])
            if action in queue[1:]:
                queue.remove(action)
            return
        queue = self.queues.get(action.worker)
        if queue is None:
            return
        given = Cancel(action.unit, action.attempt)
        queue.append(given)
        self.where[given] = action.worker
        if len(queue) == 1:
            self.start(action.worker)

    def start(self, worker: str) -> None:
        seconds = SECONDS * self.rng.lognormal(0, 0.2) * (SLOWER if self.rng.random() < STRAGGLERS else 1)
        self.at(seconds, "ends", worker)

    # Events

    def ends(self, worker: str) -> None:
        if worker in self.frozen:
            self.at(1.0, "ends", worker)
            return
        unit, attempt = given = self.queues[worker].pop(0)
        self.where.pop(given, None)
        if self.queues[worker]:
            self.start(worker)
        drawn = 1.0 if self.calm else self.rng.random()
        if drawn < LOST:
            self.counts["lost"] += 1
            self.call("lost", unit, attempt, worker, self.now, running=False)
        elif drawn < LOST + FAILED:
            self.counts["failed"] += 1
            self.call("failed", unit, attempt, worker, self.now, "drawn")
        else:
            self.counts["results"] += 1
            self.call("finished", unit, attempt, worker, self.now)

    def dies(self, worker: str) -> None:
        self.counts["deaths"] += 1
        self.lives[worker] += 1
        for given in self.queues.pop(worker):
            self.where.pop(given, None)
        self.frozen.discard(worker)
        self.call("left", worker, self.now)
        self.at(AWAY, "comes", worker)

    def comes(self, worker: str) -> None:
        self.begin(worker)

    def freezes(self, worker: str) -> None:
        self.counts["freezes"] += 1
        self.frozen.add(worker)
        self.at(ASLEEP, "thaws", worker)

    def thaws(self, worker: str) -> None:
        self.frozen.discard(worker)
        self.call("seen", worker, self.now, self.now)
        self.at(self.rng.exponential(AWAKE), "freezes", worker)


def round_of(groups: int, workers: int, calm: bool = False, seed: int = 0) -> tuple[Book, Cluster]:
    """A round of so many groups, each of which would rather go to one of the workers, and the cluster for it."""
    patience = Patience()
    homes = [f"worker-{number % workers}" for number in range(groups)]
    ahead = 16 + 4 * workers * patience.window  # as the engine of a cluster has it
    book = Book([1.0] * groups, patience, ahead=ahead, preferred=homes, speeds=[SECONDS] * 9)
    return book, Cluster(book, workers, calm, seed)


def states(n_features: int = 1_000_000, times: int = 32) -> None:
    """Print what states of passive-aggressive learners cost the driver: milliseconds and bytes for each result."""
    setting = resolve("pa1", None, None, "feature", {}, groups=times)
    rng = np.random.default_rng(0)
    start = setting.shared(n_features, "float64")
    whole, few = (setting.shared(n_features, "float64") for _ in range(2))
    whole.weights[:] = rng.normal(size=whole.weights.shape)
    few.weights[rng.choice(n_features, n_features // 100, replace=False)] = 1.0
    problem = Problem("", np.array([-1.0, 1.0]), np.ones(2), setting)
    for name, state in (("all", whole), ("1 % of", few)):
        change = difference(start, state, n_features + 1)
        travels = state if change is None else change
        for _ in range(2):  # the first time kernels are compiled
            blend, began = Blend(problem, start), time.perf_counter()
            for _ in range(times):
                blend.add(Part(travels, None, np.ones(16)))
            blend.part()
            mixed = (time.perf_counter() - began) / times
            began = time.perf_counter()
            difference(start, state, n_features + 1)
            made = time.perf_counter() - began
        size = n_bytes(travels) / 1e6
        print(f"{name} {n_features:,} features changed: {1e3 * mixed:.2f} ms to mix a group's {size:.2f} MB, "
              f"{1e3 * made:.2f} ms to find what changed")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--calm", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    process = psutil.Process()
    before = process.memory_info().rss
    began = time.perf_counter()
    book, cluster = round_of(asked.groups, asked.workers, asked.calm, asked.seed)
    opened = time.perf_counter() - began
    given_up = cluster.run()
    grown = process.memory_info().rss - before
    done = cluster.counts["results"]
    print(f"{asked.workers:,} workers, {asked.groups:,} groups, {cluster.now:,.0f} simulated seconds")
    print(", ".join(f"{count:,} {name}" for name, count in cluster.counts.items()))
    print(f"{book.attempts_made:,} attempts, {book.given_again:,} of them again")
    print(f"{1e3 * cluster.told / max(1, done):.4f} ms of book-keeping a result; {opened:.2f} s to open the round")
    print(f"{grown / 1e6:,.0f} MB grown")
    states()
    if given_up is not None:
        print(f"given up: {given_up}")
    return int(given_up is not None or cluster.told / max(1, done) > 1e-3 or grown > 1e9)


if __name__ == "__main__":
    sys.exit(main())
