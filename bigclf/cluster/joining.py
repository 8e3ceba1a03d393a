"""The driver's side of the tree: tasks of ``tree.Tree`` go to workers, and what comes of the root is put together."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.cluster.holdings import Joined, Name, Order, Unreached
from bigclf.cluster.tree import BATCH, CUTS, Dropping, Task, Tree
from bigclf.cluster.worker_tasks import Failure, picks
from bigclf.errors import ClusterError, RunError
from bigclf.maths.deltas import Cut, Delta, apply, n_bytes
from bigclf.maths.mixing import FAN, Weights
from bigclf.training.visit import DualSum, Part

if TYPE_CHECKING:
    from bigclf.training.engines import Round
    from bigclf.training.executor import Job

SPREAD_BYTES = 256_000_000  # of all groups' states together, from which on they do not come to the driver
LINE_BYTES = 256_000_000  # of the common state for all workers, from which on they pass it on
CUT_BYTES = 1_000_000  # of a part of the feature axis, at least
WAITING_BYTES = 64_000_000  # of what groups of a worker came to, while it waits to be joined
SLOWEST = 2_000_000  # bytes a second that a connection has at least, before it counts as dead
LOOK_SECONDS = 0.5
MOST_IN_VAIN = 50  # tasks in a row, beside two a group


def spreads(job: Job, round: Round) -> bool:
    """Whether what groups come to in the round is joined between workers."""
    n = len(round.refs)
    if picks(job):
        return False
    return n > 1 and not round.midway and not job.plan.places and n * n_bytes(round.states) > SPREAD_BYTES


def cuts_for(size: int) -> int:
    """Cuts of the feature axis, at most, in which so many bytes travel."""
    return max(1, min(CUTS, size // CUT_BYTES)) if CUT_BYTES else CUTS


def passes_on(size: int, workers: int) -> bool:
    """Whether workers give so many bytes of the common state to others."""
    return size > 0 and workers * size > LINE_BYTES


class Line:
    """Workers in the order in which they were given a version of the common state, the first by the driver. Of two
    each it gets to two others."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._workers: list[str] = []
        self._base: int | None = None
        self._out: set[str] = set()  # those whom nobody can ask, and who ask nobody

    def ahead(self, worker: str, base: int) -> str | None:
        """Whom the worker, which has the version ``base``, is to ask; None: the driver."""
        if self._base is None:
            self._base = base
        if base != self._base or worker in self._out:
            return None
        if worker not in self._places:
            self._places[worker] = len(self._workers)
            self._workers.append(worker)
        place = self._places[worker]
        source = self._workers[(place - 1) // 2] if place else None
        return None if source in self._out else source

    def leave(self, worker: str) -> None:
        """The worker did not get it from others, or is gone."""
        self._out.add(worker)


class Whole(NamedTuple):
    """What a problem came to, as it is put together: arrays like those of ``start``, which all groups began with."""

    start: Weights
    state: Weights
    dual: np.ndarray | None


class Joining:
    """One round of the tree.

    Parameters
    ----------
    job : what the run is. round, number : the round, and its number. workers : ready ones.
    units : groups first:last of each visit. patience : seconds to wait for a worker that gives no sign of life;
    failures of a task that are forgiven.
    """

    def __init__(
        self, job: Job, round: Round, number: int, workers: Sequence[str], units: Sequence[tuple[int, int]],
        stale: float, retries: int,
    ) -> None:  # fmt: skip
        rule = job.problems[0].setting.rule
        assert rule is not None
        self._round, self.number, self._stale, self._retries = round, number, stale, retries
        size = n_bytes(round.states)
        cuts = cuts_for(size) if rule.by_place else 1
        bundles = any(last - first > 1 for first, last in units)
        batch = max(1, min(BATCH, WAITING_BYTES // size))
        self._tree = Tree(len(round.refs), bundles, workers, cuts, batch)
        self._names = {_name(first, last): unit for unit, (first, last) in enumerate(units)}
        self._units = units
        self._seconds = stale + 4 * size / SLOWEST
        self._wholes: list[Whole | None] = [None for _ in round.states]
        self._figures: list[np.ndarray | None] = [None for _ in round.states]
        self._doubted: dict[str, float] = {}  # since when: a sign of life from before says nothing
        self._looked, self._failures, self._in_vain = time.monotonic(), 0, 0

    @property
    def done(self) -> bool:
        """Whether everything is joined."""
        return self._tree.done

    # What happened

    def hold(self, unit: int, worker: str) -> None:
        """The worker holds what the visit came to."""
        self._tree.hold(_name(*self._units[unit]), worker)

    def lost(self, worker: str) -> None:
        """What the worker holds cannot be had."""
        self._tree.lost(worker)

    def welcome(self, worker: str) -> None:
        """The worker is ready."""
        self._doubted.pop(worker, None)
        self._tree.welcome(worker)

    def look(self, seen: Iterator[tuple[str, float]]) -> None:
        """Doubt workers without a sign of life; ``seen`` : each ready one, and when it gave the last."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        listened, self._looked = now - self._looked <= self._stale / 2, now
        for worker, at in seen if listened else ():
            if now - at > self._stale:
                self._doubt(worker)
            elif at > self._doubted.get(worker, at):
                self.welcome(worker)

    def _doubt(self, worker: str) -> None:
        if worker not in self._doubted:
            self._tree.lost(worker)
            self._doubted[worker] = time.monotonic()

    def heard(self, task: Task, answer: object) -> None:
        """What came of a task: ``Joined``, ``Failure``, or None: nothing."""
        if not self._tree.waits_for(task):  # others have been given it since
            return
        if isinstance(answer, Joined):
            if task.root and answer.parts:
                self._take(task.name.cut, answer.parts)
            self._tree.joined(task, answer.taken)
            self._in_vain = 0
            return
        self._in_vain += 1
        error = answer.error if isinstance(answer, Failure) else None
        if isinstance(error, Unreached):
            self._tree.lost(error.address)
            self._tree.welcome(error.address)
        else:
            self._failures += isinstance(answer, Failure) and answer.kind == "failed"
            self._tree.failed(task)
            if answer is None:  # it may be dead, and nobody has said so yet
                self._doubt(task.worker)
        if self._failures > self._retries:
            raise RunError(f"what groups came to could not be joined: {type(error).__name__}: {error}") from error
        if self._in_vain > MOST_IN_VAIN + 2 * len(self._round.refs):
            raise ClusterError(f"workers could not join what groups came to ({error}): do they reach one another?")

    # What follows

    def tasks(self) -> Iterator[Task]:
        """What is to be done now."""
        return self._tree.tasks()

    def droppings(self) -> list[Dropping]:
        """What workers may let go of."""
        return self._tree.droppings()

    def missing(self) -> list[int]:
        """Visits that have to be made again."""
        return [self._names[name] for name in self._tree.missing()]

    def order(self, task: Task) -> Order:
        """The task as a worker gets it."""
        return Order(self.number, self._round.version, self._round.todo, task.name, task.first, task.sources, task.base,
                     task.last, task.root, self._seconds)  # fmt: skip

    # The root

    def _take(self, cut: Cut, parts: Sequence[Part]) -> None:
        """Put a part of the features in its place."""
        for number, (part, start) in enumerate(zip(parts, self._round.states, strict=True)):
            whole = self._wholes[number]
            if whole is None:
                state = type(start)(*(np.empty_like(array) for array in start))
                dual = None if part.dual is None else np.zeros(start.weights.shape)
                whole = self._wholes[number] = Whole(start, state, dual)
            _put(whole, cut, part)
            self._figures[number] = part.figures

    def parts(self) -> list[Part]:
        """What all groups came to."""
        found = []
        for whole, figures in zip(self._wholes, self._figures, strict=True):
            assert whole is not None and figures is not None
            found.append(Part(whole.state, whole.dual, figures))
        self._wholes = []
        return found


def _put(whole: Whole, cut: Cut, part: Part) -> None:
    length = whole.start.weights.shape[0]
    state, start = (cut.state(one, length) for one in (whole.state, whole.start))
    changed = isinstance(part.state, Delta)
    for into, values in zip(state, start if changed else part.state, strict=True):
        into[...] = values
    if changed:
        apply(state, part.state)
    if whole.dual is not None:
        dual = cut.state(DualSum(whole.dual), length)
        if isinstance(part.dual, Delta):
            dual.weights[...] = 0
            apply(dual, part.dual)
        else:
            dual.weights[...] = part.dual.weights


def _name(first: int, last: int) -> Name:
    return Name(1, first // FAN) if last - first > 1 else Name(0, first)


def side_by_side(units: int, workers: Sequence[str], many: int) -> list[str | None]:
    """Who had best make each visit where nobody has been at it before: those of a node the same worker, where each has
    nodes enough; ``many`` : visits of a node."""
    if units < many * max(1, len(workers)) or not workers:
        return [None] * units
    nodes = -(-units // many)
    return [workers[unit // many * len(workers) // nodes] for unit in range(units)]
