"""A problem in a group of rows: what every kind of method does there with a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import random_state, shuffle_runs
from bigclf.maths.block import Block, Counts, count_features
from bigclf.maths.mixing import FEATURES, TRACE, Weights
from bigclf.methods.method import LEARN
from bigclf.stream.row_files import RowStore
from bigclf.stream.working_set import WorkingSet
from bigclf.training.plan import Plan
from bigclf.training.problems import Problem, taking_part
from bigclf.training.roles.light_bias import LightBias
from bigclf.training.roles.row_state import RowState
from bigclf.training.visit import Figures, Lesson, Part, Scratch, Tally, copied


class Assignment(NamedTuple):
    """What a learner is made for.

    problem, plan : what is learned, and how the run goes.
    number : of the problem; group : of the group; group_rows : rows in it.
    source : for the widths of its arrays.
    store : where the per-row arrays are, if not in memory.
    aside : directory for a copy of the weights that memory has no room for; None: it has.
    """

    problem: Problem
    plan: Plan
    number: int
    group: int
    group_rows: int
    source: Any
    store: RowStore | None = None
    aside: str | None = None


class Learner:
    """A problem in a group, whose kernel learns row by row."""

    adds_up = False  # whether its read may be a sum, in which the order of rows has no part
    draws = True  # whether rows are gone over in an order that is drawn
    set: WorkingSet | None = None
    light: LightBias | None = None  # of a bias that is a feature of a small value
    schedule: Callable[..., None] | None = None  # (learner, view, members, scratch), in place of a pass

    def __init__(self, given: Assignment) -> None:
        self.problem, self.plan, self.number, self.group, self.group_rows, source, store, _ = given
        problem, plan = self.problem, self.plan
        self.first_row = int(source.chunks.row0[plan.groups[self.group][0]])  # number in the dataset
        self.alone = len(plan.groups) == 1
        self.sees_all = self.alone and plan.resident  # one block holds every row: a certificate is made in one go
        self.kernel, self.params = problem.setting.kernel(), problem.setting.params()
        self.shared: Any = None
        self.counts_features = not self.alone and problem.setting.rule is FEATURES
        self.row_state = self._row_state(store)
        self.tally = Tally()
        self.traced = False
        self.curve: list[tuple[int, int, float]] = []  # rows, mistakes, losses so far, in this visit
        self._serial, self._first = 0, False

    def _row_state(self, store: RowStore | None) -> RowState:
        return RowState(self.problem, self.plan, self.number, self.group, self.group_rows, store)

    @property
    def rows(self) -> Any:
        """The per-row arrays at hand."""
        return self.row_state.rows

    def view(self, block: Block, scratch: Scratch | None = None) -> Block:
        """The block as the problem sees it; where the per-row arrays are on disk, its rows' values are fetched.

        ``scratch`` : has the memory for it, until another view is made there (None: it lasts).
        """
        into = None if scratch is None else scratch.view(block.n_rows)
        return self.row_state.see(self.problem.view(block, self.first_row, into))

    # An epoch

    def prepare(self, lesson: Lesson) -> None:
        """Every visit begins with this."""

    def begin(self, state: Weights, lesson: Lesson, still: bool = False, spare: Weights | None = None) -> None:
        """Start counting anew from the common ``state``; nothing will be learned where it is ``still``.

        Alone, a learner works in the common state itself; one of several works in a copy, in ``spare`` if given.
        """
        self.tally, self.curve = Tally(), []
        self.shared = state if self.alone else self._copy_of(state, spare)

    def _copy_of(self, state: Weights, spare: Weights | None) -> Weights:
        """A copy to learn in, in the arrays of ``spare`` if given."""
        found: Weights = copied(state, self.shared if self.shared is not None else spare)
        return found

    def begin_segment(self, epoch: int, segment: int, trace: bool = False) -> None:
        """Random numbers belong to the segment, so that any process can do it. ``trace``: the counts so far are noted
        on the way."""
        self._key = (self.plan.seed, 2, epoch, segment, self.group, self.number)
        self.traced, self.curve = trace, []
        self._serial, self._first = 0, epoch == 1

    def begin_with(self, others: Sequence[tuple[Learner, float]], view: Block, state: Weights) -> None:
        """Begin from the dual variables of others."""
        raise TypeError(f"{self.problem.setting.method.name} has no dual variables")

    @property
    def may_trace(self) -> bool:
        """Whether counts are noted on the way through the first epoch."""
        return self.alone

    @property
    def reading(self) -> str:
        """What the read is that the state asks for."""
        return LEARN

    def cut_short(self) -> None:
        """The epoch ends before its last segment."""

    def end(self, common: Weights, certified: bool) -> Part:
        """What the epoch comes to."""
        self._finish()
        return Part(self.shared, None, self._figures().array())

    def _finish(self) -> None:
        self.problem.setting.method.form.end_epoch(self.shared, self.params)

    def _figures(self) -> Figures:
        share = self._share()
        return Figures(self.tally, Tally(), 0.0, 0.0, 0.0, 0.0, share, share * self.tally.mistakes)

    def _share(self) -> float:
        """The weight of this copy among the others; by "mistakes" its updates, since margins move it without any."""
        kind = self.problem.setting.settings.get("mixing", "rows")
        rows = float(self.group_rows)
        return {"rows": rows, "momentum": rows, "mistakes": self.tally.updates or TRACE}.get(kind, 1.0)

    def settle(self, t: float) -> None:
        """Go only a part of the way that the row state went in the last epoch."""
        self.row_state.settle(t)

    def rest(self) -> None:
        """Another group is visited; the copy of the state has been taken."""
        self.row_state.rest()

    # A block

    def take(self, block: Block, scratch: Scratch) -> None:
        """Learn from a block that streams by."""
        self.learn(self.view(block, scratch), scratch)

    def learn(self, view: Block, scratch: Scratch) -> None:
        """The same, of the block as the problem sees it."""
        self.before_pass(view)
        members = taking_part(view, scratch.members(view.n_rows))
        if self.schedule is not None:
            self.schedule(self, view, members, scratch)
        else:
            members = self.due(view, members)
            self._pass(view, members, scratch)
            self.after_pass(view, members, scratch.scores(view.n_rows))
        self.row_state.done()

    def before_pass(self, view: Block) -> None:
        """What is to be known of the block's rows before any of them is learned from."""

    def due(self, view: Block, members: np.ndarray) -> np.ndarray:
        """Those of the block's rows ``members`` that are learned from in the pass over it."""
        return members

    def after_pass(self, view: Block, members: np.ndarray, scores: np.ndarray) -> None:
        """``scores`` : what the kernel said of the rows ``members``."""

    def judge(self, view: Block, margins: np.ndarray, place: int, scores: np.ndarray, tol: float | None) -> bool:
        """In place of a pass: count and score all rows by their ``margins`` [row, problem], its own at ``place``;
        whether a certificate is likely to be within ``tol``."""
        raise TypeError(f"{self.problem.setting.method.name} looks at rows as it learns from them")

    def look_at(self, scratch: Scratch, idle: Callable[[], None], block: Block) -> None:
        """``look`` at a block that streams by."""
        self.look(self.view(block, scratch))

    def look(self, view: Block) -> None:
        """All that is to be known of the weights, where nothing is learned."""

    def closes(self, view: Block, lesson: Lesson, tol: float | None) -> float | None:
        """With every row at hand, whether the certificate of the weights ends the problem: None; else the gap that is
        aimed at."""
        return lesson.aim

    @property
    def rounds(self) -> tuple[int, int]:
        """Rounds over rows at hand, and steps of conjugate gradients among them, after the last pass."""
        return 0, 0

    @property
    def again(self) -> float:
        """Times the rows that such rounds went over, after the last pass."""
        return 0.0

    def go_on(self, view: Block, scores: np.ndarray, aim: float, scratch: Scratch, idle: Callable[[], None]) -> None:
        """More rounds over the rows that matter, before the next read."""

    def _pass(self, view: Block, members: np.ndarray, scratch: Scratch) -> None:
        """One go over the block's rows."""
        scores = scratch.scores(view.n_rows)
        if self.traced:
            self._trace(view, members, scores, scratch)
        else:
            self.tally.add(self.go_over(view, members, scores, scratch))
        if self.counts_features:
            count_features(view, members, self.shared.touched)

    def _trace(self, view: Block, members: np.ndarray, scores: np.ndarray, scratch: Scratch) -> None:
        """As ``go_over``, with a note of the counts so far at every milestone."""
        order = self._drawn(members, scratch)
        first = 0
        while first < order.size:
            stop = first + milestone(self.tally.rows) - self.tally.rows
            self.tally.add(self.teach(view, order[first:stop], scores))
            first = stop
            if milestone(self.tally.rows - 1) == self.tally.rows:
                self.curve.append((self.tally.rows, self.tally.mistakes, self.tally.loss))

    def go_over(self, view: Block, members: np.ndarray, scores: np.ndarray, scratch: Scratch) -> Counts:
        """The kernel over ``members`` in shuffled runs, or as they come where the order has no part in the result."""
        return self.teach(view, self._drawn(members, scratch) if self.draws else members, scores)

    def _drawn(self, members: np.ndarray, scratch: Scratch) -> np.ndarray:
        """``members`` in shuffled runs."""
        order = scratch.order(members.size)
        shuffle_runs(members, self.plan.run, self.random(), order)
        return order

    def random(self) -> np.ndarray:
        """The next random numbers of the segment."""
        self._serial += 1
        return random_state(*self._key, self._serial)

    def teach(self, view: Block, order: np.ndarray, scores: np.ndarray) -> Counts:
        """The kernel over rows in this order."""
        light = self.light
        params = self.params if light is None else light.enter(self.shared, self.rows, self.params)
        counts: Counts = self.kernel(view, order, self.shared, self.rows, params, scores)
        return counts if light is None else light.leave(self.shared, counts)

    # To a file and back

    def rows_before(self) -> dict[str, Any]:
        """The row arrays as they were at the start of the epoch; none of the only group."""
        return self.row_state.arrays_before()

    def carried_rows(self, midway: bool) -> dict[str, np.ndarray]:
        """Everything with a row axis, in the middle of an epoch also as it was at its start."""
        return self.row_state.arrays(midway)

    def carried_state(self) -> dict[str, np.ndarray]:
        """Everything else, in the middle of an epoch."""
        held = {f"shared.{n}": a for n, a in self.shared._asdict().items()}
        held["figures"] = self._figures().array()
        return held

    def restore_rows(self, held: dict[str, np.ndarray]) -> None:
        """Take up a row state; the bytes of a working set are then gathered with ``gather``."""
        self.row_state.restore(held, not self.alone)

    def restore_state(self, held: dict[str, np.ndarray], common: Any) -> None:
        """Take up what ``carried_state`` gave; the row state has been taken up before."""
        kind = type(common)
        mine = kind(*(held[f"shared.{n}"].copy() for n in kind._fields))
        self.shared = copied(mine, common if self.alone else None)
        self._restore_figures(Figures.of(held["figures"]))

    def _restore_figures(self, figures: Figures) -> None:
        self.tally = figures.tally

    def gather(self, block: Block) -> None:
        """Copy the rows of a working set that stand in the block; every block of the group passes here once."""


def milestone(rows: int) -> int:
    """The smallest of 64, 77, 92 ..., each a fifth more than the one before, that is more than ``rows``."""
    at = 64
    while at <= rows:
        at += -(-at // 5)
    return at
