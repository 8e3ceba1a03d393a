"""Methods that ascend the dual over rows whose dual variables they keep; certificates by sums over rows.

In a group a learner has a ``Certificate`` that is added up, ``SetVisits`` to rows of its working set while the data
stream by, and ``InnerRounds`` between two reads; at the driver a conductor decides when certificates are made and how
far groups go along their steps.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bigclf import files
from bigclf.compiled.jit import shuffle_runs
from bigclf.errors import DataError
from bigclf.maths.block import Block, Counts
from bigclf.maths.deltas import State
from bigclf.maths.mixing import Weights, accumulate, agree, half_distance, interpolate, line_search, next_penalty
from bigclf.methods.method import Dual
from bigclf.stream.row_files import RowStore
from bigclf.stream.working_set import Members, WorkingSet
from bigclf.training.plan import ACTIVE_SLACK, CYCLES_A_READ, PACE, ROUNDS_A_READ, SCANT_VISITS
from bigclf.training.problems import Problem, mark_fold, taking_part
from bigclf.training.roles.conductor import Conductor, Ending, When
from bigclf.training.roles.learner import Assignment, Learner
from bigclf.training.roles.light_bias import light_bias
from bigclf.training.roles.row_state import Followed, RowState
from bigclf.training.roles.scaled_trial import ScaledTrial
from bigclf.training.schedules import TAKES, settled
from bigclf.training.status import TRUTH_OF_SCANT_SET, TRUTH_OF_SET
from bigclf.training.visit import (
    Figures,
    Lengths,
    Lesson,
    Part,
    Scratch,
    Tally,
    copied,
    gap_after,
    lengths_of,
    objectives,
    square_of,
)

# A certificate costs about what an epoch's learning does: one is made when the estimate is this near the tolerance, or
# after so many epochs without one. Streaming, it is made beside the learning, since a read may be dearer than both;
# where the estimate is surely below the tolerance, it is made alone. With a working set that is the only way, for one
# problem (``status.TRUTH_OF_SET``).
NEAR, SELDOM = 2.0, 50
NEAR_STREAMED, SELDOM_STREAMED, SURE = 5.0, 8, 0.6
OVERFLOW = "the objective overflows: scale down the labels, the values, the rows' weights or C"
MOST_OPTIMISM = 100.0
ALL_AGAIN = 6  # every so many inner rounds the rows that looked stuck are looked at again
# The rows at hand are solved when their own gap is below the first share of the tolerance, or below the second one of
# the gap that the pass before them saw, of which more rounds cannot see the rest.
STREAMED = 0.2, 0.03  # a working set: another read is dear (M, 15 % of the rows: 4 reads to 1e-3; 6 with 0.3)
RESIDENT = 0.8, 0.2  # every row: another pass costs what a few rounds do (5 passes and 6.3 to 6.7 visits a row, not 8)
APART = 0.1, 0.1  # one of several groups: its gap is one among many
# Rare labels and classes against the rest: most rows are not of it, and their margins crowd at the corner of the loss.
# Where more than the share of all rows is near enough to be gone over again, only those that are nearer are. The rounds
# are then cheap beside a pass (4,000 labels to 1e-3: 5.3 visits a row rather than 15.6; 150 classes: 7.5, not 14.6).
CROWDED, NEARER, CHEAP, RARE = 1 / 3, 0.01, (0.8, 0.1), 0.02
# Several problems that look at rows together: shares of the rows that are gone over at first.
BEGINS_WITH, LEAST_FOREMOST = 16, 32  # of those without the label one in so many; of all rows one in so many at least
ROUNDED = 1e-10  # of P: what margins that are made together may be off
SUPPORTED, NARROW = 0.3, 10  # share of the gap that rounds over the support alone bring theirs to, and most of them
STEP = 0.5  # of a visit to the rows that move, about: what a step of conjugate gradients takes
CLIMBED, MOST_STEPS = 0.25, 3000  # conjugate gradients: share of the rounds' goal they aim at, most steps in a visit


def how_of(problem: Problem) -> Dual:
    """The kernels of such a problem's method."""
    how = problem.setting.method.how
    assert isinstance(how, Dual)
    return how


class Certificate:
    """The primal and the dual objective of the weights at the start of a read, added up block by block.

    measure : kernel of a block's part; sees_all : one block holds every row, so that the lengths of v alone are kept.
    """

    def __init__(self, measure: Callable[..., Any], sees_all: bool) -> None:
        self.measure, self.sees_all = measure, sees_all
        self.start: tuple[Any, Any] | None = None  # state and row state as they were at the start of the read
        self.sums = np.zeros(2)  # of the rows: primal and dual so far
        self.dual_weights: np.ndarray | None = None  # v = sum a_i y_i x_i
        self.lengths: Lengths | None = None  # of ``dual_weights``, which are then let go

    def begin(self, start: tuple[Weights, State] | None) -> None:
        """A read begins; None: it is not certified."""
        self.sums[:] = 0
        self.start, self.lengths = start, None
        if start is not None and not self.sees_all:  # else while one block is gone over: not of every problem at a time
            self.dual_weights = np.zeros(start[0].weights.shape)

    def add(self, view: Block, rows: Any, params: Any, length: float) -> None:
        """Add a block's part; ``rows`` : as they were at the start, length : of the weights."""
        assert self.start is not None
        shared = self.start[0]
        if self.sees_all:
            self.dual_weights = np.zeros(shared.weights.shape)
        self.sums += self.measure(view, shared, rows, params, self.dual_weights, length)
        if self.sees_all and self.dual_weights is not None:
            self.lengths, self.dual_weights = lengths_of(self.dual_weights, shared.weights), None

    @property
    def dual(self) -> np.ndarray | Lengths | None:
        """v, or its lengths."""
        return self.dual_weights if self.lengths is None else self.lengths

    @property
    def objectives(self) -> tuple[float, float]:
        """Of the weights at the start of the read that has just ended."""
        assert self.start is not None and self.dual is not None
        return objectives(float(self.sums[0]), float(self.sums[1]), self.start[0].weights, self.dual)

    def end(self) -> None:
        """The read has ended."""
        self.start = self.dual_weights = None

    def carried(self, alone: bool) -> dict[str, np.ndarray]:
        """What a checkpoint in the middle of an epoch has of it."""
        assert self.start is not None and self.dual_weights is not None
        held = {"dual_weights": self.dual_weights}
        return held | ({f"start.shared.{n}": a for n, a in self.start[0]._asdict().items()} if alone else {})


class SetVisits:
    """Visits to rows of a learner's working set while the data stream by, in ever new orders."""

    def __init__(self, learner: DualLearner, held: WorkingSet, most: int) -> None:
        self.learner, self.held, self.schedule = learner, held, learner.plan.schedule
        self._cycle, self._turn, self._drawn_at = np.empty(most, np.int64), 0, -1
        self._cycle_size, self._credit = 0, 0.0
        self.stuck = np.array([np.inf, 0.0])  # largest violation of the last read, and of this one so far

    def begin_segment(self, epoch: int, segment: int) -> None:
        """Orders are drawn anew."""
        self._cycle_size, self._turn, self._credit = 0, 0, 0.0
        self.held.salt = epoch
        if segment == 0 and self.stuck[1] > 0:
            self.stuck[:] = self.stuck[1], 0.0

    def earn(self, visits: float) -> None:
        """Visit as many rows as the streamed rows have earned."""
        self._credit += visits
        while self._credit >= 1 and self.held.n_rows:
            self._credit -= self.go_on(int(self._credit))

    def go_on(self, most: int) -> int:
        """Visit the next rows, ``most`` at most; their number."""
        if self._turn >= self._cycle_size or self._drawn_at != self.held.generation:
            if self.schedule == "cached":
                self.held.drop(-self.stuck[0])
            n = self.held.n_rows
            shuffle_runs(np.arange(n), self.learner.plan.run, self.learner.random(), self._cycle)
            self._turn, self._cycle_size, self._drawn_at = 0, n, self.held.generation
        stop = min(self._cycle_size, self._turn + most)
        order = self._cycle[self._turn : stop]
        self._turn = stop
        self.visit(order)
        return int(order.size)

    def visit(self, order: np.ndarray) -> Counts:
        """The kernel over rows of the set; dual cached loops want to know the largest violation it met."""
        learner, block = self.learner, self.held.block()
        if self.schedule != "cached":
            return self._teach(block, order)
        alpha, ids = learner.rows.alpha, block.ids[order]
        before = alpha[ids]
        counts = self._teach(block, order)
        moved = np.abs(alpha[ids] - before)
        if moved.ndim > 1:  # the class that moved most
            moved = moved.max(axis=1)
        moved *= block.norms[order] + learner.params.bias**2
        self.stuck[1] = max(self.stuck[1], moved.max(initial=0.0))
        return counts

    def _teach(self, block: Block, order: np.ndarray) -> Counts:
        return self.learner.teach(block, order, self.held.scores)


class InnerRounds:
    """Rounds over the rows that matter, between two reads, until their own gap is small beside what it is to be."""

    def __init__(self, learner: DualLearner) -> None:
        self.learner, self.plan = learner, learner.plan
        record = learner.problem.setting.method.loss_of(learner.problem.setting.loss)
        self._ascend = learner.how.climb(record) if self.plan.climb_rows else None
        self._no_scores = np.empty(0)  # rounds over the support give none
        self._narrows = "support" in getattr(learner.params, "_fields", ())
        self.rounds = self.steps = 0  # after the last pass; steps : of conjugate gradients
        self.rows = 0.0  # that they went over, a step's counted ``STEP`` times
        self.refused = False  # whether too many rows move for the run to be more than tried

    def go(self, view: Block, scores: np.ndarray, tol: float, scratch: Scratch, idle: Callable[[], None]) -> None:
        """``view`` holds the rows in memory: the working set, or all rows of a resident group with the scores of the
        pass just made."""
        learner = self.learner
        everything = taking_part(view) if learner.begun is None else learner.begun
        slack = self._slack(scores[everything], view)
        live = everything[scores[everything] >= -slack]
        if self.plan.tiled:
            live = self._foremost(live, scores, view)
        few = scratch.few(view, live) if self.plan.tiled else None
        if few is not None:
            view, scores = few, scores[: few.n_rows]
            everything = live = np.arange(few.n_rows)
        square = square_of(learner.shared.weights) if learner.square is None else learner.square
        primal = learner.tally.loss + 0.5 * square / len(self.plan.groups)
        solved, balanced = APART if not learner.alone else RESIDENT if self.plan.resident else STREAMED
        if slack < ACTIVE_SLACK:
            solved, balanced = CHEAP
        goal = max(solved * tol * primal, balanced * learner.tally.gap)
        rounds, looked, before, mark, again = 0, 0, learner.tally.gap, learner.tally.gap, False
        self.steps, self.rows = 0, 0.0
        self.refused = live.size > learner.most
        while rounds < self.plan.rounds and live.size and not self.refused:
            everyone = again or (learner.set is not None and rounds % ALL_AGAIN == 0)
            members = everything if everyone else live
            if self._narrows:
                rounds += self._go_over_support(view, members, before, self.plan.rounds - 1 - rounds, scratch, idle)
            counts = learner.go_over(view, members, scores, scratch)
            if learner.set is not None and rounds == 0:
                learner.set_tally.add(counts)
            learner.set_tally.gap = left = counts.gap
            if self.plan.resident:  # every row that moves has been looked at again since the pass over all
                left = counts.gap if again else gap_after(counts.gap, before)
                learner.set_tally.gap = left - learner.tally.gap
            before = counts.gap
            live = members[scores[members] >= -slack]
            rounds += 1
            self.rows += members.size
            idle()
            if left <= goal:
                break
            again = False
            if rounds - looked >= PACE and rounds < self.plan.rounds:  # never last: rounds put its primal right
                before_it = self.steps
                looked, again = rounds, self._climb(view, everything, left, mark, goal, idle)
                self.rows += STEP * (self.steps - before_it) * live.size
                mark = left
        self.rounds = rounds

    def _foremost(self, live: np.ndarray, scores: np.ndarray, view: Block) -> np.ndarray:
        """Of the rows that begin to move now, those which lack most, as many as there are that have moved: most others
        have no cause any more once these have."""
        moved = self.learner.rows.alpha[view.ids[live]] > 0
        waits = scores[live]
        waits[moved] = 0.0
        most = max(view.n_rows // LEAST_FOREMOST, int(np.count_nonzero(moved)))
        if np.count_nonzero(waits > 0) <= most:
            return live
        return live[moved | (waits <= 0) | (waits >= np.partition(waits, -most)[-most])]

    def _slack(self, scores: np.ndarray, view: Block) -> float:
        """How far from being at hand the rows may score that are gone over again; of every row there is their scores
        are given."""
        learner = self.learner
        if learner.problem.targets is None or not (learner.alone and self.plan.resident):
            return ACTIVE_SLACK
        if learner.problem.label is None and np.count_nonzero(view.labels > 0) > RARE * view.n_rows:
            return ACTIVE_SLACK
        crowd = np.count_nonzero(scores >= -ACTIVE_SLACK)
        return NEARER if crowd > CROWDED * scores.size else ACTIVE_SLACK

    def _go_over_support(
        self, view: Block, members: np.ndarray, gap: float, most: int, scratch: Scratch, idle: Callable[[], None]
    ) -> int:
        """Rounds over ``members``, of each row only the classes that it has given something to, until these lack far
        less than the ``gap`` of the pass before over all classes: cheap, and no look at what the others lack. Their
        number."""
        learner, rounds = self.learner, 0
        whole = learner.params
        learner.params = whole._replace(support=True)
        while rounds < min(most, NARROW):
            left = learner.go_over(view, members, self._no_scores, scratch).gap
            rounds += 1
            idle()
            if left <= SUPPORTED * gap:
                break
        learner.params = whole
        return rounds

    def _climb(
        self, view: Block, members: np.ndarray, left: float, mark: float, goal: float, idle: Callable[[], None]
    ) -> bool:
        """Conjugate gradients where the rounds stall; whether anything was done."""
        if self._ascend is None or self.steps >= MOST_STEPS or not stalls(left, mark, goal):
            return False
        learner = self.learner
        if learner.light is not None:
            learner.light.settle(learner.shared.weights)
        steps = self._ascend(
            view, members, learner.shared, learner.rows, learner.params, CLIMBED * goal,
            min(MOST_STEPS - self.steps, steps_worth(left, mark, goal)), self.plan.climb_rows, idle,
        )  # fmt: skip
        self.steps += steps
        return steps > 0


class DualLearner(Learner):
    """A problem of such a method in a group: it keeps dual variables, certifies, and goes on over rows that matter."""

    square: float | None = None  # ||w||^2 at the start, once it is known
    begun: np.ndarray | None = None  # the rows of the first pass, where it is not over all

    def __init__(self, given: Assignment) -> None:
        problem, plan, source = given.problem, given.plan, given.source
        if plan.set_rows:
            kind = source.index_width, source.binary, given.group_rows, source.row_constant
            self.set = WorkingSet(*plan.arena(given.number), *kind, grown=plan.arena(given.number, grown=True))
        super().__init__(given)
        method = problem.setting.method
        record = method.loss_of(problem.setting.loss)
        self.certificate = Certificate(self.how.certify(record), self.sees_all)
        self.trial = ScaledTrial(problem, plan, given.aside)
        self.along = None if self.alone else self.how.along(record)
        self.moves = np.zeros(2)  # gain and bend so far, of several groups
        if self.along is not None:
            followed = Followed(self.kernel, self.along, self.row_state)
            self.kernel, self.moves = followed, followed.moves
        self.set_tally = Tally()
        me = weakref.proxy(self)  # a circle would keep the arrays until garbage is collected
        self.visits = None if self.set is None else SetVisits(me, self.set, plan.arena(given.number, grown=True)[0])
        self.inner, self.most = InnerRounds(me), np.inf  # rows that may move, for these to begin
        self.schedule = TAKES.get(plan.schedule, settled) if plan.block_rounds else None
        self.light = light_bias(problem, plan, given.number)

    @property
    def how(self) -> Dual:
        """The method's kernels."""
        return how_of(self.problem)

    def _row_state(self, store: RowStore | None) -> RowState:
        places = self.problem, self.plan, self.number, self.group, self.group_rows
        return RowState(*places, store, self.set, steps_back=not self.alone)

    def outside(self, view: Block, members: np.ndarray) -> np.ndarray:
        """Those of the block's rows ``members`` that are not in the working set."""
        assert self.set is not None
        return self.set.outside(self.row_state.numbers(view), members)

    def admit(self, view: Block, members: np.ndarray, scores: np.ndarray) -> None:
        """Take those of the block's rows ``members`` into the working set whose scores earn it."""
        assert self.set is not None
        self.set.admit(view._replace(ids=self.row_state.numbers(view)), members, scores)

    # An epoch

    def prepare(self, lesson: Lesson) -> None:
        """In this visit every step counts ``sigma`` times, for those that other groups take meanwhile; so many rows may
        move."""
        self.most = lesson.most * self.group_rows
        if self.along is not None:
            self.params = self.params._replace(sigma=lesson.sigma)

    def begin(self, state: Weights, lesson: Lesson, still: bool = False, spare: Weights | None = None) -> None:
        """Keep what the certificate of the weights needs, which is no copy where nothing will be learned. One of
        several groups always takes its sums: they say how the groups are to go on."""
        super().begin(state, lesson, still, spare)
        if self.light is not None:
            self.light.on = lesson.aim > 0  # else there may be no rounds
        self.set_tally = Tally()
        self.square = self.begun = None
        self.moves[:] = 0
        self.row_state.begin(lesson.certify, still)
        start: tuple[Any, Any] | None = None
        if not self.alone:
            start = state, self.row_state.start
        elif lesson.certify:
            as_it_is = still or self.plan.resident  # there it comes before the learning
            rows = () if self.row_state.window is not None else self.rows
            # without a working set a row is as it was until its block comes, and is certified then before it moves
            start = (
                self.shared if as_it_is else copied(self.shared, None),
                (rows if as_it_is or self.set is None else copied(rows, None)),
            )
        self.certificate.begin(start)
        begun = state.weights if start is None else start[0].weights
        self.trial.begin(state, begun, lesson.beat, lesson.holds, still)

    def begin_segment(self, epoch: int, segment: int, trace: bool = False) -> None:
        """Likewise the orders in which the working set is visited."""
        super().begin_segment(epoch, segment, trace)
        if self.set is not None and self.plan.grown and epoch > 1:
            self._grow()
            if (epoch, segment) == (2, 0):
                self.set.open()
        if self.visits is not None:
            self.visits.begin_segment(epoch, segment)

    def _grow(self) -> None:
        """The working set takes what decoding has given back."""
        if self.set is not None and not self.set.grown:
            self.set.grow()
            self.row_state.grow()

    def begin_with(self, others: Sequence[tuple[Learner, float]], view: Block, state: Weights) -> None:
        """Take the sum of factor times the dual variables of ``others``, which is in ``state`` already, inside the
        box, and go back along the line to nothing as far as the dual objective gains by it.

        ``view`` holds every row there is.
        """
        method, loss = self.problem.setting.method, self.problem.setting.loss
        assert self.alone
        record, alpha = method.loss_of(loss), self.rows.alpha
        alpha[:] = 0
        for other, factor in others:
            alpha += factor * other.rows.alpha
        self.how.within(record)(view, self.rows, self.params)
        value = self.how.value(record)
        size = square_of(state.weights)
        t = best_share(lambda t: value(view, self.rows, self.params, t) - 0.5 * t * t * size)
        alpha *= t
        state.weights[:] *= t

    @property
    def may_trace(self) -> bool:
        """Its counts are judged by certificates."""
        return False

    def cut_short(self) -> None:
        """Sums of part of the rows say nothing, weights stay."""
        self.trial.cut_short(self.shared.weights)
        self.certificate.start = None

    def end(self, common: Weights, certified: bool) -> Part:
        """Steps that counted sigma times are brought back to their true length."""
        sigma = self.params.sigma if self.along is not None else 1.0
        if sigma != 1.0:
            start, mine = common.weights.reshape(-1), self.shared.weights.reshape(-1)
            step = np.zeros(mine.size)
            accumulate(step, start, mine, 1.0 / sigma)
            interpolate(start, step, 1.0, mine)
        self._finish()
        begun = self.certificate.start
        dual = self.certificate.dual if certified and begun is not None else None
        figures, kept = self._figures().array(), self.trial.end(common.weights)
        if begun is not None and self.alone and not self.plan.resident:
            kept = begun[0].weights
        self.certificate.end()
        return Part(self.shared, dual, figures, kept)

    def _figures(self) -> Figures:
        share = self._share()
        primal, dual, gain, bend = (float(x) for x in (*self.certificate.sums, *self.moves))
        mistakes = share * self.tally.mistakes
        return Figures(self.tally, self.set_tally, primal, dual, gain, bend, share, mistakes, self.trial.scaled)

    # A block

    def before_pass(self, view: Block) -> None:
        """Certify the block's rows before they move."""
        if self.light is not None:
            self.light.weigh(view)
        if not self.plan.resident:  # there it came first
            self._certify(view)
        self.trial.weigh(view, self.params)

    def due(self, view: Block, members: np.ndarray) -> np.ndarray:
        """Rows of the working set get their turn there; of a rare label a part of the rows without it is enough to
        begin with."""
        if self.plan.tiled and self._first:
            return self._some(view, members)
        return members if self.set is None else self.outside(view, members)

    def _some(self, view: Block, members: np.ndarray) -> np.ndarray:
        """The rows that have the label, if they are rare, and one in ``BEGINS_WITH`` of the others; all, if not."""
        having = view.labels[members] > 0
        if np.count_nonzero(having) > RARE * members.size:
            return members
        drawn = np.empty(members.size, np.bool_)
        mark_fold(members, 0, self.random()[0], BEGINS_WITH, 0, drawn)
        self.begun = members[having | drawn]
        return self.begun

    def after_pass(self, view: Block, members: np.ndarray, scores: np.ndarray) -> None:
        """Rows that earn it enter the working set; as many of it are visited as the block's rows earn."""
        if self.set is None:
            return
        self.set.passed = self.tally.rows / self.group_rows if self._first else 1.0
        self.admit(view, members, scores)
        if self.visits is not None:
            times = SCANT_VISITS if self.plan.scant else 1.0
            most = CYCLES_A_READ * self.set.n_rows / self.group_rows
            self.visits.earn(times * min(ROUNDS_A_READ, most) * view.n_rows)

    def judge(self, view: Block, margins: np.ndarray, place: int, scores: np.ndarray, tol: float | None) -> bool:
        """By a kernel that moves nothing; the gaps of all rows are that of the weights, but for rounding."""
        assert self.how.judge is not None
        judge = self.how.judge(self.problem.setting.method.loss_of(self.problem.setting.loss))
        self.tally.add(judge(view, margins, place, self.shared, self.rows, self.params, scores))
        if self.light is not None:
            self.tally.gap += self.light.lag(view, self.rows, self.shared.weights)
        self.square = square_of(self.shared.weights)
        return tol is not None and self.tally.gap <= (tol + ROUNDED) * (self.tally.loss + 0.5 * self.square)

    def look(self, view: Block) -> None:
        """The certificate, and losses of scaled weights."""
        self._certify(view)
        self.trial.weigh(view, self.params)

    def _certify(self, view: Block) -> None:
        """Add the block's part of the certificate of the weights at the start of the read."""
        if self.certificate.start is None:
            return
        shared, rows = self.certificate.start
        rows = rows if self.row_state.window is None else self.row_state.before
        self.certificate.add(view, rows, self.params, self.trial.length(shared.weights))

    def closes(self, view: Block, lesson: Lesson, tol: float | None) -> float | None:
        """By the certificate just made, of every row there is, together with the best so far. If it does not end the
        problem, the weights that it speaks of are kept, since those that follow take their place."""
        self._certify(view)
        if not (self.alone and lesson.certify):
            return lesson.aim
        assert tol is not None
        primal, dual = self.certificate.objectives
        best, bound = min(primal, lesson.known[0]), max(0.0, dual, lesson.known[1])  # D(0) = 0
        if best <= 0 or max(0.0, best - bound) / best <= tol:
            return None
        if primal < lesson.known[0]:
            self.trial.keep(self.shared.weights)
        else:
            self.trial.kept = square_of(self.shared.weights)
        return tol / optimism(primal, dual, lesson.estimate)

    @property
    def rounds(self) -> tuple[int, int]:
        """As many as the gap asked for."""
        return self.inner.rounds, self.inner.steps

    @property
    def again(self) -> float:
        """Those that the rounds went over; infinite where too many rows move for any."""
        return np.inf if self.inner.refused else self.inner.rows / max(1, self.group_rows)

    def go_on(self, view: Block, scores: np.ndarray, aim: float, scratch: Scratch, idle: Callable[[], None]) -> None:
        """Rounds, as many as the plan has."""
        if self.light is not None and self.light.on:
            self.light.firm(view, self.shared.weights, self.tally.gap)
        if self.plan.rounds:
            self.inner.go(view, scores, aim, scratch, idle)

    # To a file and back

    def carried_rows(self, midway: bool) -> dict[str, np.ndarray]:
        """Dual variables, the working set's rows."""
        begun = self.certificate.start
        held = self.row_state.arrays(midway, None if begun is None else () if self.plan.resident else begun[1])
        if self.set is not None:
            held |= {f"set.{n}": a for n, a in self.set.members()._asdict().items()}
        if self.light is not None:
            held["light"] = self.light.state.copy()
        if self.plan.schedule == "cached" and self.visits is not None:
            held["stuck"] = self.visits.stuck.copy()
        return held

    def carried_state(self) -> dict[str, np.ndarray]:
        """The method's own arrays, the certificate so far, the counts."""
        begun = self.certificate.start is not None
        return super().carried_state() | (self.certificate.carried(self.alone) if begun else self.trial.carried())

    def restore_rows(self, held: dict[str, np.ndarray]) -> None:
        """The working set's rows are expected first: they stay at hand."""
        if self.light is not None and not self.light.restore(held):
            self.light = None
        if self.set is not None:
            if self.visits is not None and "stuck" in held:
                self.visits.stuck = held["stuck"].copy()
            self.set.clear()
            names = [name for name in Members._fields if f"set.{name}" in held]  # older runs have fewer
            members = Members.none()._replace(**{name: held[f"set.{name}"] for name in names})
            if not self.set.has_room(members):
                self._grow()
            self.set.expect(members)
        self.row_state.restore(held, not (self.alone and self.set is None))

    def restore_state(self, held: dict[str, np.ndarray], common: Any) -> None:
        """The certificate so far, too."""
        super().restore_state(held, common)
        figures, begun, kind = Figures.of(held["figures"]), None, type(common)
        if "dual_weights" in held:
            self.certificate.dual_weights = held["dual_weights"].copy()
            before = kind(*(held[f"start.shared.{n}"].copy() for n in kind._fields)) if self.alone else common
            in_memory = self.alone and self.row_state.window is None
            begun = before, self.row_state.start or (self.rows if in_memory else ())
        self.certificate.start = begun
        start = common.weights if begun is None else begun[0].weights
        self.trial.restore(held, figures, start, begun is not None)

    def _restore_figures(self, figures: Figures) -> None:
        self.tally, self.set_tally = figures.tally, figures.set_tally
        self.certificate.sums, self.moves[:] = np.array(figures[2:4]), figures[4:6]

    def gather(self, block: Block) -> None:
        """Of the working set's rows."""
        if self.set is not None:
            self.set.fill(self.problem.view(block, self.first_row))


class DualConductor(Conductor):
    """A problem of such a method at the driver."""

    @property
    def searches(self) -> bool:
        """Whether groups go on from a point that they agree on, and their steps are searched along."""
        return self.problem.setting.settings.get("mixing") == "line_search"

    def begin(self, states: list[Weights], others: Sequence[Conductor]) -> None:
        """How much its estimates are to be believed; the sum of the dual variables is kept beside the point where
        groups agree on one."""
        if self.plan.scant:
            self.status.truth = TRUTH_OF_SCANT_SET
        if self.searches:
            self.status.dual_weights = np.zeros(states[self.number].weights.shape)

    @property
    def sigma(self) -> float:
        """By the line search, what the method of multipliers says."""
        return 1 / self.status.penalty if self.searches else float(len(self.plan.groups))

    def takes_up(self, states: list[Weights], others: Sequence[Conductor]) -> bool:
        """The weights that go with the dual variables of others."""
        start = self.problem.start
        if not start or self.status.epochs:
            return False
        weights = np.zeros(states[self.number].weights.shape)
        for other, factor in start:
            weights += factor * states[other].weights.astype(np.float64, copy=False)
        states[self.number].weights[:] = weights
        return True

    # Certificates

    def certifies(self, when: When) -> bool:
        """Groups always make one: it says how they are to go on; alone, a problem has it made when it may end, or in
        every read where nothing estimates the gap."""
        if self.limits.tol is None or when.epoch == 1 or self.limits.proves_apart:
            return False
        if self.plan.tiled:  # it is made where all rows' margins say that it is time
            return True
        every = not self.alone or self.plan.schedule != "auto"
        return every and not self.plan.resident or self.status.certify_next

    def seems_done(self) -> bool:
        """By the estimate, or since nothing has been proved for long; blocks of fixed or cached rows have none."""
        status, tol = self.status, self.limits.tol
        if tol is None or self.plan.schedule != "auto":
            return False
        if not self.limits.proves_apart:
            return status.estimate <= SURE * tol
        seldom = tol > 0 and status.since_certificate >= SELDOM_STREAMED
        return seldom or status.estimate * status.truth <= tol

    def may_be_better(self) -> bool:
        """The last weights have no certificate yet."""
        return self.limits.tol is not None

    def accept(self, state: Weights, part: Part, figures: Figures, reads: int, keep: str = "copy") -> None:
        """Take the certificate of the weights at the start of the read."""
        status, tol = self.status, self.limits.tol
        assert tol is not None
        weights = part.certified if part.certified is not None else state.weights
        primal, dual = objectives(figures.primal, figures.dual, weights, part.dual)
        if not (math.isfinite(primal) and math.isfinite(dual)):
            raise DataError(OVERFLOW)
        own = self.plan.resident and isinstance(part.certified, np.ndarray)  # a copy already, and nobody else's
        if keep == "if done" and self.limited and primal < status.primal:  # memory has no room for a copy
            weights, own = files.filed_copy(np.asarray(weights), files.scratch_directory()), True
        keep = "as they are" if own else keep
        status.accept(primal, max(0.0, dual), weights, reads, tol, keep)  # D(0) = 0 is always a bound
        if status.primal == primal and status.reads == reads and status.weights is not None:
            status.take_pair(
                dual, part.dual if isinstance(part.dual, Lengths) else lengths_of(part.dual, status.weights)
            )
        if primal > 0 and 0 < status.estimate < np.inf:
            status.truth = max(TRUTH_OF_SET, (primal - dual) / primal / status.estimate)
        status.optimism = optimism(primal, dual, status.estimate)
        status.since_certificate = 0

    # After an epoch

    def take(self, start: Weights, part: Part, figures: Figures, ending: Ending) -> tuple[Weights, float]:
        """Groups go as far along their steps as the dual gains by it."""
        status = self.status
        if status.done:
            return start, 0.0  # the dual variables stay with the certificate
        t = 1.0 if self.alone else self._combine(start, part, figures, ending.whole)
        status.step = t
        status.since_certificate += 1
        if self.limits.tol is not None:
            self._estimate(part, figures, self.limits.tol)
        return part.state, t

    def _estimate(self, part: Part, figures: Figures, tol: float) -> None:
        """How far it seems from done, and whether the next epoch makes a certificate."""
        status = self.status
        if self.alone:
            before, status.seen = status.seen, figures.tally.gap
            if self.plan.resident:  # the rounds after the pass have seen every row that moves
                before = np.inf
            status.estimate = figures.estimated_gap(part.state.weights, before)
        near, seldom = (NEAR, SELDOM) if self.plan.resident else (NEAR_STREAMED, SELDOM_STREAMED)
        status.certify_next = status.estimate < near * tol or status.since_certificate >= seldom

    def _combine(self, start: Weights, part: Part, figures: Figures, whole: bool) -> float:
        """Combine what groups came to, in ``part.state``; returns how far along their step it is."""
        status, groups, t = self.status, len(self.plan.groups), 1.0
        weights = status.dual_weights
        if weights is not None and part.dual is not None:
            weights[:] = part.dual  # made anew: its rounding errors do not gather
        primal, dual = objectives(
            figures.primal, figures.dual, start.weights, start.weights if weights is None else weights
        )
        if weights is not None:
            flat = weights.reshape(-1), start.weights.reshape(-1), part.state.weights.reshape(-1)
            lag = half_distance(*flat[:2])
            t = line_search(*flat, figures.gain + 0.5 * figures.bend, figures.bend)
            agree(*flat, t, groups * status.penalty)
        if whole:  # else those are sums over a part of the rows
            status.estimate = max(0.0, primal - dual) / primal if primal > 0 else 0.0
            if weights is not None:
                status.penalty = next_penalty(status.penalty, t, primal - dual, lag, groups)
        return t

    # What it tells

    def record(self, seen: dict[str, int]) -> dict[str, float]:
        """Rounds, steps of conjugate gradients and rows of the working set."""
        steps = {"conjugate_steps": int(seen["steps"])} if seen["steps"] else {}
        rows = {"working_set_rows": seen["set_rows"]}
        return {"rounds": seen["rounds"]} | steps | {"estimated_gap": self.status.estimate} | rows

    def mixing_record(self) -> dict[str, float]:
        """How far its groups went along their step."""
        if self.limits.tol is None:
            return {}
        return {"steps": self.status.step} | ({"penalties": self.status.penalty} if self.searches else {})


def optimism(primal: float, dual: float, estimate: float) -> float:
    """How many times the certified gap is the estimate of the same weights: the next goal is set that much lower."""
    if primal <= 0 or estimate <= 0:
        return 1.0
    return min(MOST_OPTIMISM, max(1.0, (primal - dual) / primal / estimate))


def stalls(left: float, mark: float, goal: float) -> bool:
    """Whether twice as many rounds as have brought the gap from ``mark`` to ``left`` would not bring it to the goal."""
    if mark <= 0:
        return True
    return not left * (left / mark) * (left / mark) <= goal  # a power of such numbers may overflow, which raises


def steps_worth(left: float, mark: float, goal: float) -> int:
    """Steps of conjugate gradients that take as long as the rounds which would bring the gap to its goal, at the pace
    at which ``PACE`` of them have brought it from ``mark`` to ``left``: of both together no more than twice that."""
    if not 0 < goal < left < mark < math.inf:
        return MOST_STEPS
    rounds = PACE * math.log(left / goal) / math.log(mark / left)
    return math.ceil(min(MOST_STEPS, rounds / STEP))


def best_share(value: Callable[[float], float]) -> float:
    """About the t in [0, 1] at which a concave function is largest, by golden sections."""
    ratio = 0.5 * (5**0.5 - 1)
    low, high = 0.0, 1.0
    a, b = high - ratio, low + ratio
    at_a, at_b = value(a), value(b)
    while high - low > 0.01:
        if at_a < at_b:
            low, a, at_a, b = a, b, at_b, a + ratio * (high - a)
            at_b = value(b)
        else:
            high, b, at_b, a = b, a, at_a, b - ratio * (b - low)
            at_a = value(a)
    middle = 0.5 * (low + high)
    return max((middle, 1.0), key=value)
