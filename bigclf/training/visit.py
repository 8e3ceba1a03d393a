"""A visit: one problem's kernel over one group's part of an epoch.

A ``Learner`` holds the state of a problem in a group and does with a block what the plan says; what it does is a pure
function of its state, the plan, the seed and the numbers of epoch and segment, so that it may be done again anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigclf.block import Block, Counts
from bigclf.data.working_set import Members, WorkingSet
from bigclf.jit import inner, random_state, shuffle_runs
from bigclf.training.plan import ACTIVE_SLACK, CYCLES_A_READ, ROUNDS_A_READ, Plan
from bigclf.training.problems import Problem, taking_part

ALL_AGAIN = 6  # every so many inner rounds the rows that looked stuck are looked at again
SOLVED = 0.4  # of the tolerance: the working set is solved when its own gap is below this share of it ...
BALANCED = 0.3  # ... or below this share of the gap outside it, which only another read can close


class Tally:
    """Sums of the counts of an epoch."""

    def __init__(self) -> None:
        self.rows = self.mistakes = self.updates = 0
        self.loss = self.gap = 0.0

    def add(self, counts: Counts) -> None:
        self.rows += counts.rows
        self.mistakes += counts.mistakes
        self.updates += counts.updates
        self.loss += counts.loss
        self.gap += counts.gap

    def array(self) -> np.ndarray:
        """float64 [5], exact for counts below 2^53."""
        return np.array([self.rows, self.mistakes, self.updates, self.loss, self.gap], np.float64)

    @classmethod
    def of(cls, array: np.ndarray) -> Tally:
        tally = cls()
        tally.rows, tally.mistakes, tally.updates = (int(x) for x in array[:3])
        tally.loss, tally.gap = float(array[3]), float(array[4])
        return tally


class Learner:
    """A problem in a group.

    Parameters
    ----------
    problem, plan : what is learned, and how the run goes.
    number : of the problem; group : of the group; group_rows : rows in it.
    source : for the widths of its arrays.
    """

    def __init__(self, problem: Problem, plan: Plan, number: int, group: int, group_rows: int, source: Any) -> None:
        self.problem, self.plan, self.number, self.group, self.group_rows = problem, plan, number, group, group_rows
        method, loss = problem.setting.method, problem.setting.loss
        code = method.loss_code(loss)
        self.kernel, self.params = method.update(code), method.bind(problem.setting.settings)
        self.measure = method.certify(code) if method.certify else None
        self.shared: Any = method.shared(source.n_features, plan.dtype)
        self.rows: Any = method.rows(*(np.zeros(group_rows) for _ in method.rows._fields)) if method.rows else ()
        self.tally, self.set_tally = Tally(), Tally()
        self.start: tuple[Any, Any] | None = None  # weights and row state as they were at the start of the read
        self.sums = np.zeros(2)  # primal and dual so far
        self.dual_weights: np.ndarray | None = None
        self.set: WorkingSet | None = None
        if plan.set_rows:
            self.set = WorkingSet(plan.set_rows, plan.set_nnz, source.index_width, source.binary, group_rows)
            self._cycle, self._turn, self._drawn_at = np.empty(plan.set_rows, np.int64), 0, -1
            self._cycle_size, self._credit = 0, 0.0
        self._serial = 0

    # An epoch

    def begin_epoch(self, certifying: bool) -> None:
        """Start counting anew; keep what the certificate of the weights as they are now needs."""
        self.tally, self.set_tally = Tally(), Tally()
        self.sums[:] = 0
        self.start = None
        if certifying:
            self.dual_weights = np.zeros(self.shared.weights.size)
            self.start = (self.shared, self.rows) if self.plan.resident else _copies(self.shared, self.rows)

    def begin_segment(self, epoch: int, segment: int) -> None:
        """Random numbers belong to the segment, so that any process can do it."""
        self._key = (self.plan.seed, 2, epoch, segment, self.group, self.number)
        self._serial = 0
        if self.set is not None:
            self._cycle_size, self._turn, self._credit = 0, 0, 0.0

    def _random(self) -> np.ndarray:
        self._serial += 1
        return random_state(*self._key, self._serial)

    def take(self, block: Block, scratch: Scratch) -> None:
        """Learn from a block that streams by."""
        view = self.problem.view(block)
        self.certify(view)
        members = taking_part(view)
        if self.set is not None:  # rows of the working set get their turn there
            members = members[~self.set.member[view.ids[members]]]
        scores = scratch.scores(view.n_rows)
        self.tally.add(self._pass(view, members, scores, scratch))
        if self.set is not None:
            self.set.admit(view, members, scores)
            most = CYCLES_A_READ * self.set.n_rows / self.group_rows
            self._credit += min(ROUNDS_A_READ, most) * view.n_rows
            self._go_round()

    def certify(self, view: Block) -> None:
        """Add the block's part of the certificate of the weights at the start of the read."""
        if self.start is not None and self.measure is not None:
            shared, rows = self.start
            self.sums += self.measure(view, shared, rows, self.params, self.dual_weights)

    def _pass(self, view: Block, members: np.ndarray, scores: np.ndarray, scratch: Scratch) -> Counts:
        """The kernel over ``members`` in shuffled runs."""
        order = scratch.order(members.size)
        shuffle_runs(members, self.plan.run, self._random(), order)
        counts: Counts = self.kernel(view, order, self.shared, self.rows, self.params, scores)
        return counts

    # The working set while the data stream by

    def _go_round(self) -> None:
        """Visit as many rows of the working set as the streamed rows have earned, in ever new orders."""
        assert self.set is not None
        while self._credit >= 1 and self.set.n_rows:
            if self._turn >= self._cycle_size or self._drawn_at != self.set.generation:
                n = self.set.n_rows
                shuffle_runs(np.arange(n), self.plan.run, self._random(), self._cycle)
                self._turn, self._cycle_size, self._drawn_at = 0, n, self.set.generation
            stop = min(self._cycle_size, self._turn + int(self._credit))
            order = self._cycle[self._turn : stop]
            self._credit -= order.size
            self._turn = stop
            self.kernel(self.set.block(), order, self.shared, self.rows, self.params, self.set.scores)

    # Between reads

    def inner_rounds(
        self, view: Block, scores: np.ndarray, tol: float, scratch: Scratch, idle: Callable[[], None]
    ) -> int:
        """More rounds over the rows that matter, until their own gap is small beside what it is to be.

        ``view`` holds the rows in memory: the working set, or all rows of a resident group with the scores of the
        pass just made. Returns the number of rounds.
        """
        everything = taking_part(view)
        live = everything[scores[everything] >= -ACTIVE_SLACK]
        primal = self.tally.loss + 0.5 * inner(self.shared.weights, self.shared.weights)
        goal = max(SOLVED * tol * primal, BALANCED * self.tally.gap)
        rounds = 0
        while rounds < self.plan.rounds and live.size:
            members = everything if self.set is not None and rounds % ALL_AGAIN == 0 else live
            counts = self._pass(view, members, scores, scratch)
            if self.set is not None and rounds == 0:
                self.set_tally.add(counts)
            self.set_tally.gap = counts.gap
            live = members[scores[members] >= -ACTIVE_SLACK]
            rounds += 1
            idle()
            if counts.gap <= goal:
                break
        return rounds

    @property
    def estimated_gap(self) -> float:
        """Relative gap as the counts of the epoch make it look: it steers, it certifies nothing."""
        primal = self.tally.loss + self.set_tally.loss + 0.5 * inner(self.shared.weights, self.shared.weights)
        gap = self.tally.gap + (self.set_tally.gap if self.set is not None else 0.0)
        return gap / primal if primal > 0 else 0.0

    def certificate(self) -> tuple[float, float]:
        """Primal and dual objective of the weights at the start of the read that has just ended."""
        assert self.start is not None and self.dual_weights is not None
        w0 = self.start[0].weights
        primal = float(self.sums[0]) + 0.5 * inner(w0, w0)
        dual = float(self.sums[1]) - 0.5 * inner(self.dual_weights, self.dual_weights)
        return primal, dual

    # To a file and back

    def row_state(self) -> dict[str, np.ndarray]:
        """Everything with a row axis: dual variables, their copies at the start of the read, the working set's rows."""
        held = {f"rows.{n}": a for n, a in zip(getattr(self.rows, "_fields", ()), self.rows, strict=True)}
        if self.start is not None and not self.plan.resident:
            held |= {f"start.rows.{n}": a for n, a in zip(self.start[1]._fields, self.start[1], strict=True)}
        if self.set is not None:
            held |= {f"set.{n}": a for n, a in self.set.members()._asdict().items()}
        return held

    def shared_state(self) -> dict[str, np.ndarray]:
        """Everything without one: the method's own arrays, the certificate so far, the counts."""
        held = {f"shared.{n}": a for n, a in self.shared._asdict().items()}
        held["tally"], held["sums"] = self.tally.array(), self.sums
        held["set_tally"] = self.set_tally.array()
        if self.start is not None and not self.plan.resident:
            held |= {f"start.shared.{n}": a for n, a in self.start[0]._asdict().items()}
            assert self.dual_weights is not None
            held["dual_weights"] = self.dual_weights
        return held

    def restore(self, held: dict[str, np.ndarray]) -> None:
        """Take up a state; the bytes of the working set are then gathered with ``gather``."""
        self.shared = type(self.shared)(*(held[f"shared.{n}"].copy() for n in self.shared._fields))
        if self.rows:
            self.rows = type(self.rows)(*(held[f"rows.{n}"].copy() for n in self.rows._fields))
        self.tally, self.set_tally = Tally.of(held["tally"]), Tally.of(held["set_tally"])
        self.sums = held["sums"].copy()
        if "dual_weights" in held:
            self.dual_weights = held["dual_weights"].copy()
            self.start = (
                type(self.shared)(*(held[f"start.shared.{n}"].copy() for n in self.shared._fields)),
                type(self.rows)(*(held[f"start.rows.{n}"].copy() for n in self.rows._fields)),
            )
        if self.set is not None:
            self.set.expect(Members(*(held[f"set.{n}"] for n in Members._fields)))

    def gather(self, block: Block) -> None:
        """Copy the rows of the working set that stand in the block; every block of the group passes here once."""
        if self.set is not None:
            self.set.fill(self.problem.view(block))


class Scratch:
    """Memory that every learner of a group uses in turn."""

    def __init__(self, rows: int) -> None:
        self._scores, self._order = np.empty(rows), np.empty(rows, np.int64)

    def scores(self, n: int) -> np.ndarray:
        if n > self._scores.size:
            self._scores = np.empty(n)
        return self._scores[:n]

    def order(self, n: int) -> np.ndarray:
        if n > self._order.size:
            self._order = np.empty(n, np.int64)
        return self._order[:n]


def _copies(*states: Any) -> tuple[Any, ...]:
    return tuple(type(state)(*(array.copy() for array in state)) if state else () for state in states)
