"""A visit: one problem's kernel over one group's part of an epoch.

A ``Learner`` holds the state of a problem in a group and does with a block what the plan says; what it does is a pure
function of its state, the plan, the seed and the numbers of epoch and segment, so that it may be done again anywhere.
``Visit`` says everything that a visit depends on but the arrays, ``Outcome`` is what comes of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bigclf import large_pages
from bigclf.block import Block, Counts, count_features
from bigclf.data.files import filed_copy
from bigclf.data.row_files import Between, FiledArray, RowStore, Window
from bigclf.data.working_set import Members, WorkingSet
from bigclf.jit import FEW, inner, random_state, shuffle_few_runs, shuffle_runs
from bigclf.methods.method import LEARN, SUM
from bigclf.mixing import FEATURES, TRACE, accumulate, interpolate, settled
from bigclf.training.plan import ACTIVE_SLACK, CYCLES_A_READ, PACE, ROUNDS_A_READ, Plan
from bigclf.training.problems import Problem, taking_part
from bigclf.training.sampling import Kept
from bigclf.training.schedules import TAKES

COLLECTED = 4096  # rows that a collection takes at a time
ALL_AGAIN = 6  # every so many inner rounds the rows that looked stuck are looked at again
# The rows at hand are solved when their own gap is below the first share of the tolerance, or below the second one of
# the gap that the pass before them saw, of which more rounds cannot see the rest.
STREAMED = 0.2, 0.03  # a working set: another read is dear (M, 15 % of the rows: 4 reads to 1e-3; 6 with 0.3)
RESIDENT = 0.8, 0.2  # every row: another pass costs what a few rounds do (5 passes and 6.3 to 6.7 visits a row, not 8)
APART = 0.1, 0.1  # one of several groups: its gap is one among many
SUPPORTED, NARROW = 0.3, 10  # share of the gap that rounds over the support alone bring theirs to, and most of them
CLIMBED, MOST_STEPS = 0.25, 3000  # conjugate gradients: share of the rounds' goal they aim at, most steps in a visit


STILL = "certify", "last"  # visits in which nothing is learned
# What the weights of a run that may end before it is done are tried with: 0 and powers of two, which round nothing.
SCALES = np.array([0.0, *(0.5**k for k in range(17))])


class Ref(NamedTuple):
    """What a group goes on from: the attempt whose result was taken, and how far along its step the row state went
    (for each problem; empty: all the way)."""

    token: str
    steps: tuple[float, ...] = ()


class Lesson(NamedTuple):
    """What a visit is told of one problem.

    number : of the problem; certify : whether the read certifies its weights; aim : the relative gap that its inner
    rounds aim at; known : its best primal and dual objective so far; estimate : of its gap; sigma : how many times each
    step of a group counts while it is away from the others; begins : it now begins with the dual variables of others
    (``Problem.start``); beat : the primal objective that its weights at the start times one of ``SCALES`` may beat, or
    None: they are not tried; holds : these weights are given back where the epoch ends before its last segment.
    """

    number: int
    certify: bool
    aim: float
    known: tuple[float, float]
    estimate: float
    sigma: float
    begins: bool = False
    beat: float | None = None
    holds: bool = False


class Visit(NamedTuple):
    """Everything a visit depends on but arrays.

    kind : "update"; "certify" (nothing is learned); "last" (likewise, and the losses of scaled weights are added up);
    "close" (the epoch ends before its last segment). epoch, segment :
    numbers.
    first, last : the groups first:last (more than one: a bundle, joined where it is computed).
    lessons : one for each problem still learned.
    version : of the common state; refs : of each group, what it goes on from (None: its beginning).
    """

    kind: str
    epoch: int
    segment: int
    first: int
    last: int
    lessons: tuple[Lesson, ...]
    version: int
    refs: tuple[Ref | None, ...]

    @property
    def todo(self) -> tuple[int, ...]:
        """Numbers of the problems still learned."""
        return tuple(lesson.number for lesson in self.lessons)


class Part(NamedTuple):
    """What a visit leaves of one problem.

    state : NamedTuple of arrays, or its ``Delta`` to the common state; dual : sum of a_i y_i x_i over the group as it
    was at the start of the read, in the shape of the weights, or its ``Delta`` to zeros, or, of rows that stay in
    memory, its squared norm alone, or None; figures : see
    ``Figures``; certified : the weights at the start of the read where the state has overwritten them, their squared
    norm alone where others are known to be better, or None; found : what the method collected, one of several groups a
    list with what each block gave, else what its ``gather`` made of it, or None.
    """

    state: Any
    dual: Any
    figures: np.ndarray
    certified: np.ndarray | float | None = None
    found: Any = None


class Dual(NamedTuple):
    """weights : float64 [feature + 1] or [feature + 1, class], sum of a_i y_i x_i."""

    weights: np.ndarray


class Tried(NamedTuple):
    """weights : [feature + 1] or [feature + 1, class], whose losses are added up times each of ``SCALES``."""

    weights: np.ndarray


class Sums(NamedTuple):
    """values : float64, figures that add up over groups."""

    values: np.ndarray


class RowFile(NamedTuple):
    """Row state in the run directory, as a visit left it: name of the file, digest of its tensors, and how far along
    its step each problem went since (empty: all the way)."""

    name: str
    digest: str
    steps: tuple[float, ...] = ()


class Carry(NamedTuple):
    """What a group keeps from visit to visit: rows : of each problem its arrays with a row axis, or the file that has
    them; shared : of each problem its other arrays in the middle of an epoch, or None between two epochs."""

    rows: list[dict[str, np.ndarray]] | RowFile
    shared: list[dict[str, np.ndarray]] | None


class Outcome(NamedTuple):
    """What came of a visit to the groups first:last: parts of each problem still learned after the last segment (else
    none), the ``Carry`` where it has to travel, and facts: rows, bytes_read, rounds, set_rows, rebuilt, seconds, and of
    these those in which it waited for data; bytes decoded."""

    first: int
    last: int
    token: str
    parts: list[Part]
    carry: Carry | None
    facts: dict[str, Any]


class Tally:
    """Sums of the counts of an epoch."""

    def __init__(self) -> None:
        self.rows = self.mistakes = self.updates = 0
        self.loss = self.gap = 0.0

    def add(self, counts: Any) -> None:
        """Counts of a kernel, or another tally."""
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


class Figures(NamedTuple):
    """The sums of an epoch: over the rows that streamed, over the working set, of the certificate (primal, dual), of
    the row state's step (gain, bend; see ``line_search``), of the shares, and of shares times mistakes; losses of the
    weights times each of ``SCALES``, where they are tried."""

    tally: Tally
    set_tally: Tally
    primal: float
    dual: float
    gain: float
    bend: float
    share: float
    mixed_mistakes: float
    scaled: tuple[float, ...] = ()

    def array(self) -> np.ndarray:
        """float64 [16], and those of the scales"""
        return np.concatenate([self.tally.array(), self.set_tally.array(), self[2:8], self.scaled])

    @classmethod
    def of(cls, array: np.ndarray) -> Figures:
        primal, dual, gain, bend, share, mistakes = (float(x) for x in array[10:16])
        scaled = tuple(float(x) for x in array[16:])
        return cls(Tally.of(array[:5]), Tally.of(array[5:10]), primal, dual, gain, bend, share, mistakes, scaled)

    def estimated_gap(self, weights: np.ndarray, before: float = np.inf) -> float:
        """Relative gap at the end of the epoch as its counts make it look: it steers, it certifies nothing.

        ``before`` : the gap that the rows showed in the epoch before.
        """
        primal = self.tally.loss + self.set_tally.loss + 0.5 * square_of(weights)
        left = self.tally.gap if before == np.inf else gap_after(self.tally.gap, before)
        return (left + self.set_tally.gap) / primal if primal > 0 else 0.0


def square_of(weights: np.ndarray) -> float:
    """||w||^2, of all classes."""
    flat = weights.reshape(-1)
    return float(inner(flat, flat))


def regularised_square(weights: np.ndarray, params: Any) -> float:
    """||w||^2; a free bias has no part in it."""
    square = square_of(weights)
    if getattr(params, "free", 0.0):
        last = float(weights.reshape(-1)[-1])
        square = max(0.0, square - last * last) if square < np.inf else square
    return square


def primals_of(weights: np.ndarray, params: Any, losses: np.ndarray) -> np.ndarray:
    """P(t w) = t^2/2 ||w||^2 + sum_i C_i loss(t m_i) for each t of ``SCALES``."""
    primals = losses.copy()
    square = regularised_square(weights, params)
    primals[1:] += 0.5 * SCALES[1:] * SCALES[1:] * square  # of 0 times inf nothing is known
    return primals


def objectives(
    primal: float, dual: float, weights: np.ndarray | float, dual_weights: np.ndarray | float
) -> tuple[float, float]:
    """P(w0) and D(alpha) from the sums over rows, w0 and v = sum a_i y_i x_i, or their squared norms in their place."""
    squares = [given if isinstance(given, float) else square_of(given) for given in (weights, dual_weights)]
    return primal + 0.5 * squares[0], dual - 0.5 * squares[1]


def stalls(left: float, mark: float, goal: float) -> bool:
    """Whether twice as many rounds as have brought the gap from ``mark`` to ``left`` would not bring it to the goal."""
    if mark <= 0:
        return True
    return not left * (left / mark) * (left / mark) <= goal  # a power of such numbers may overflow, which raises


class Learner:
    """A problem in a group.

    Parameters
    ----------
    problem, plan : what is learned, and how the run goes.
    number : of the problem; group : of the group; group_rows : rows in it.
    source : for the widths of its arrays.
    store : where the per-row arrays are, if not in memory; then ``rows`` are a window on them, and a block's ``ids``
        places in it.
    aside : directory for a copy of the weights that memory has no room for; None: it has.
    """

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        number: int,
        group: int,
        group_rows: int,
        source: Any,
        store: RowStore | None = None,
        aside: str | None = None,
    ) -> None:
        self.aside = aside
        self.problem, self.plan, self.number, self.group, self.group_rows = problem, plan, number, group, group_rows
        method = problem.setting.method
        loss = method.loss_of(problem.setting.loss)
        self.first_row = int(source.chunks.row0[plan.groups[group][0]])  # number in the dataset
        self.alone = len(plan.groups) == 1
        self.sees_all = self.alone and plan.resident  # one block holds every row: a certificate is made in one go
        self.steps_back = not (self.alone or method.sums)  # how far its row state goes is decided afterwards
        self.kernel, self.params = problem.setting.kernel(), problem.setting.params()
        self.measure = method.certify(loss) if method.certify else None
        self.add_scaled = method.scaled(loss) if method.scaled else None
        self.scaled: np.ndarray | None = None  # losses of the weights times each of ``SCALES``, where they are tried
        self.tried, self.beat = Tried(np.empty(0)), np.inf  # these weights; the primal objective to beat
        self.moves_on = False
        self.along = method.along(loss) if method.along and not self.alone else None
        self.collect = method.collect
        self.climb = method.climb(loss) if method.climb and plan.climb_rows else None
        self._no_scores = np.empty(0)  # rounds over the support give none
        self.narrows = "support" in getattr(self.params, "_fields", ())
        self.in_order = method.absorb is not None and not method.sums  # nothing is gained by a drawn order
        self.sum_names, self._reading = method.sums, method.reading
        self.parts: list[Any] = []  # the state, and copies of it with sums of their own
        self._counts: list[Any] = []
        self._whole: tuple[Block, list[np.ndarray]] | None = None  # of rows that stay in memory: what is made of them
        self._again: tuple[Block, list[np.ndarray]] | None = None  # ... and of rows that are kept
        self.kept_values: Any = ()  # the per-row arrays of rows that are kept
        self.kept_rows = 0  # of which they hold the values of the point
        self.found: Any = None  # what the method has collected in this epoch
        self.shared: Any = None
        self.counts_features = not self.alone and problem.setting.rule is FEATURES
        self.rows: Any = ()
        if method.rows and store is None:
            self.rows = problem.setting.rows(group_rows)
        self.start_rows: Any = ()  # of several groups: as they were at the start of the epoch
        self.tally, self.set_tally = Tally(), Tally()
        self.start: tuple[Any, Any] | None = None  # weights and row state as they were at the start of the read
        self._length: float | None = None  # of these weights, once a certificate asks
        self.sums = np.zeros(2)  # primal and dual so far
        self.moves = np.zeros(2)  # gain and bend so far
        self.dual_weights: np.ndarray | None = None
        self.dual_square: float | None = None  # of ``dual_weights``, which are then let go
        self.certified: np.ndarray | float | None = None
        self._best = np.empty(0)  # of rows that stay in memory, the weights of the answer so far
        self.set: WorkingSet | None = None
        if plan.set_rows:
            set_rows, set_nnz = plan.arena(number)
            self.set = WorkingSet(set_rows, set_nnz, source.index_width, source.binary, group_rows, source.row_constant)
            self._cycle, self._turn, self._drawn_at = np.empty(set_rows, np.int64), 0, -1
            self._cycle_size, self._credit = 0, 0.0
        self.window: Window | None = None
        if store is not None:
            which = None if self.alone else group
            self.window = Window(store, number, plan.groups[group], problem.setting.rows(0), self.set, which)
            self.rows = self.window.rows
        self._take = TAKES.get(plan.schedule)
        self._stuck = np.array([np.inf, 0.0])  # largest violation of the last read, and of this one so far
        self._serial = 0
        self.steps = 0  # of conjugate gradients, after the last pass

    def view(self, block: Block, scratch: Scratch | None = None) -> Block:
        """The block as the problem sees it; where the per-row arrays are on disk, its rows' values are fetched.

        ``scratch`` : has the memory for it, until another view is made there (None: it lasts).
        """
        into = None if scratch is None else scratch.view(block.n_rows)
        view = self.problem.view(block, self.first_row, into)
        if self.window is None:
            return view
        self._ids, self._placed = view.ids, self.window.load(view.ids)
        self._look_through()
        return view._replace(ids=self._placed)

    def _look_through(self) -> None:
        """The per-row arrays are those that the window has at hand."""
        assert self.window is not None
        self.rows = self.window.rows
        if self.steps_back:
            self.start_rows = self.window.before

    def rest(self) -> None:
        """Another group is visited: of the per-row arrays on disk only the working set's stay at hand."""
        assert self.window is not None
        self.window.rest()
        self._look_through()

    def outside(self, view: Block, members: np.ndarray) -> np.ndarray:
        """Those of the block's rows ``members`` that are not in the working set."""
        assert self.set is not None
        return self.set.outside(view.ids if self.window is None else self._ids, members)

    def admit(self, view: Block, members: np.ndarray, scores: np.ndarray) -> None:
        """Take those of the block's rows ``members`` into the working set whose scores earn it."""
        assert self.set is not None
        self.set.admit(view if self.window is None else view._replace(ids=self._ids), members, scores)

    # An epoch

    def count_steps(self, sigma: float) -> None:
        """In this visit every step counts ``sigma`` times, for those that other groups take meanwhile."""
        if self.along is not None:
            self.params = self.params._replace(sigma=sigma)  # type: ignore[attr-defined]

    def begin_epoch(
        self,
        state: Any,
        certifying: bool,
        spare: Any = None,
        still: bool = False,
        beat: float | None = None,
        holds: bool = False,
    ) -> None:
        """Start counting anew from the common ``state``; keep what the certificate of its weights needs, which is no
        copy where nothing will be learned (``still``).

        Alone, a learner works in the common state itself; one of several works in a copy, in ``spare`` if given, and
        always takes the sums of the certificate: they say how the groups are to go on.

        beat : the primal objective that the weights times one of ``SCALES`` may beat, or None: they are not tried.
        holds : these weights are given back where the epoch is cut short.
        """
        self.tally, self.set_tally = Tally(), Tally()
        self.curve: list[tuple[int, int, float]] = []  # rows, mistakes, losses so far, in this visit
        self.sums[:] = self.moves[:] = 0
        self.start = self.certified = self._length = self.dual_square = None
        self.found = self.scaled = None
        if self.window is not None:
            self.window.begin(keep=self.steps_back or (certifying and not still), still=still)
            self._look_through()
        if self.sum_names and self._reading(state) == SUM:
            self.kept_rows = 0
        if self.alone:
            self.shared, self.start_rows = state, ()
        else:
            self.shared = _copied(state, self.shared if self.shared is not None else spare)
            if self.window is None:
                self.start_rows = _copied(self.rows, self.start_rows) if self.steps_back else ()
        if self.measure is not None and (certifying or not self.alone):
            if not self.sees_all:  # there they are needed while one block is gone over: not of every problem at a time
                self.dual_weights = np.zeros(state.weights.shape)
            if self.alone:
                still = still or self.plan.resident  # there it comes before the learning
                rows = () if self.window is not None else self.rows
                shared = self.shared if still else _copied(self.shared, None)
                # without a working set a row is as it was until its block comes, and is certified then before it moves
                self.start = shared, rows if still or self.set is None else _copied(rows, None)
            else:
                self.start = (state, self.start_rows)
        if self.add_scaled is not None and (holds or beat is not None):
            self._hold(state, still)
        if self.add_scaled is not None and beat is not None:  # losses are added up in the read that begins, too
            self.scaled, self.beat, self._length = np.zeros(SCALES.size), beat, None
            self.moves_on = self.sees_all and not still  # these very weights, once every row has been looked at

    def _hold(self, state: Any, still: bool) -> None:
        """Keep the weights at the start of the read."""
        weights = state.weights if self.start is None else self.start[0].weights
        if self.alone and not still and weights is state.weights and not self.plan.resident:  # blocks will move it
            weights = weights.copy() if self.aside is None else filed_copy(weights, self.aside)
        self.tried = Tried(weights)

    def cut_short(self) -> None:
        """The epoch ends before its last segment: sums of part of the rows say nothing, weights stay."""
        if self.alone and self.tried.weights.size and self.tried.weights is not self.shared.weights:
            self.certified = self.tried.weights
        self.start = self.scaled = None

    def begin_with(self, others: Sequence[tuple[Learner, float]], view: Block, state: Any) -> None:
        """Take the sum of factor times the dual variables of ``others``, which is in ``state`` already, inside the
        box, and go back along the line to nothing as far as the dual objective gains by it.

        ``view`` holds every row there is.
        """
        method = self.problem.setting.method
        assert method.within is not None and method.value is not None and self.alone
        loss, alpha = method.loss_of(self.problem.setting.loss), self.rows.alpha
        alpha[:] = 0
        for other, factor in others:
            alpha += factor * other.rows.alpha
        method.within(loss)(view, self.rows, self.params)
        value = method.value(loss)
        size = square_of(state.weights)
        t = best_share(lambda t: value(view, self.rows, self.params, t) - 0.5 * t * t * size)
        alpha *= t
        state.weights[:] *= t

    def begin_segment(self, epoch: int, segment: int, trace: bool = False) -> None:
        """Random numbers belong to the segment, so that any process can do it. ``trace``: the counts so far are noted
        on the way."""
        self._key = (self.plan.seed, 2, epoch, segment, self.group, self.number)
        self.traced, self.curve = trace, []
        self._serial, self._first = 0, epoch == 1
        if self.set is not None:
            self._cycle_size, self._turn, self._credit = 0, 0, 0.0
            self.set.salt = epoch
        if segment == 0 and self._stuck[1] > 0:
            self._stuck[:] = self._stuck[1], 0.0

    def end_epoch(self, common: Any, certify: bool) -> Part:
        """What the epoch comes to; steps that counted sigma times are brought back to their true length."""
        sigma = getattr(self.params, "sigma", 1.0)
        if sigma != 1.0:
            start, mine = common.weights.reshape(-1), self.shared.weights.reshape(-1)
            step = np.zeros(mine.size)
            accumulate(step, start, mine, 1.0 / sigma)
            interpolate(start, step, 1.0, mine)
        if self.problem.setting.method.finish is not None:
            self.problem.setting.method.finish(self.shared, self.params)
        dual = self._dual() if certify and self.start is not None else None
        certified = self.certified
        if self.start is not None and self.alone and not self.plan.resident:
            certified = self.start[0].weights
        elif self.scaled is not None and self.tried.weights is not common.weights and not self.plan.resident:
            certified = self.tried.weights
        self.start = self.certified = self.dual_weights = None
        found, self.found = self.found, None
        figures = self._figures().array()
        self.scaled, self.tried = None, Tried(np.empty(0))
        return Part(self.shared, dual, figures, certified, found)

    def _figures(self) -> Figures:
        share = self._share()
        primal, dual, gain, bend = (float(x) for x in (*self.sums, *self.moves))
        mistakes = share * self.tally.mistakes
        scaled = () if self.scaled is None else tuple(self.scaled)
        return Figures(self.tally, self.set_tally, primal, dual, gain, bend, share, mistakes, scaled)

    def _share(self) -> float:
        """The weight of this copy among the others; by "mistakes" its updates, since margins move it without any."""
        kind = self.problem.setting.settings.get("mixing", "rows")
        return {"rows": float(self.group_rows), "mistakes": self.tally.updates or TRACE}.get(kind, 1.0)

    def settle(self, t: float) -> None:
        """Go only a part of the way that the row state went in the last epoch: start + t (rows - start)."""
        if t == 1.0:
            return
        if self.window is not None:
            self.window.settle(t)
            self._look_through()
            return
        for now, before in zip(self.rows, self.start_rows, strict=True):
            now[:] = settled(before, now, t)

    def _random(self) -> np.ndarray:
        self._serial += 1
        return random_state(*self._key, self._serial)

    def take(self, block: Block, scratch: Scratch) -> None:
        """Learn from a block that streams by."""
        self.learn(self.view(block, scratch), scratch)

    def learn(self, view: Block, scratch: Scratch) -> None:
        """The same, of the block as the problem sees it."""
        if not self.plan.resident:  # there it came first
            self.certify(view)
        self.weigh(view)
        members = taking_part(view, scratch.members(view.n_rows))
        if self._take is not None:
            self._take(self, view, members, scratch)
        else:
            self._pass(view, members, scratch)
        if self.window is not None:
            self.window.keep()

    def _pass(self, view: Block, members: np.ndarray, scratch: Scratch) -> None:
        """One go over the block's rows, and over as many of the working set as they earn."""
        if self.set is not None:  # rows of the working set get their turn there
            members = self.outside(view, members)
        scores = scratch.scores(view.n_rows)
        if self.traced:
            self._trace(view, members, scores, scratch)
        else:
            self.tally.add(self.go_over(view, members, scores, scratch))
        if self.counts_features:
            count_features(view, members, self.shared.touched)
        if self.set is not None:
            self.set.passed = self.tally.rows / self.group_rows if self._first else 1.0
            self.admit(view, members, scores)
            most = CYCLES_A_READ * self.set.n_rows / self.group_rows
            self._credit += min(ROUNDS_A_READ, most) * view.n_rows
            self._go_round()

    # Sums over rows

    @property
    def reading(self) -> str:
        """What the read is that the state asks for."""
        return self._reading(self.shared)

    def begin_sums(self) -> None:
        """Parts of the rows add to arrays of their own."""
        if len(self.parts) != self.plan.parts:
            self.parts = [self.shared] * self.plan.parts
        for number in range(1, self.plan.parts):
            own = {name: getattr(self.parts[number], name) for name in self.sum_names}
            for name, array in own.items():
                if array is getattr(self.parts[0], name):
                    own[name] = np.zeros_like(array)
                else:
                    array[:] = 0.0
            self.parts[number] = self.shared._replace(**own)
        self.parts[0] = self.shared

    def work(self, block: Block) -> list[Callable[[Scratch], None]]:
        """What the read does with a block, as pieces that may be done at the same time; ``end_block`` is to follow."""
        if self.reading == LEARN:  # which tries scaled weights, too
            return [lambda scratch: self.learn(self.view(block, scratch), scratch)]
        if self._whole is not None:
            view, pieces = self._whole
        else:
            view = self.view(block)
            pieces = self._cut(view, taking_part(view))
            if self.plan.resident and len(self.plan.groups) == 1:
                self._whole = view, pieces
        self.weigh(view)
        return self._adding(view, pieces, self.rows)

    def work_again(self, kept: Kept, block: Block | None) -> list[Callable[[Scratch], None]]:
        """The same of the rows that are kept; ``block`` : every row, where all are at hand."""
        if self._again is None:
            if block is None:
                assert kept.block is not None
                view = self.problem.view(kept.block._replace(ids=kept.ids), self.first_row)
                view = view._replace(ids=np.arange(view.n_rows))
                members = taking_part(view)
            else:
                view = self.problem.view(block, self.first_row)
                members = kept.ids[view.weights[kept.ids] > 0]
            self._again = view, self._cut(view, members)
        return self._adding(*self._again, self.rows if block is not None else self.kept_values)

    def _cut(self, view: Block, members: np.ndarray) -> list[np.ndarray]:
        """``members`` (ascending) as ``plan.parts`` pieces of about as many entries."""
        if self.plan.parts == 1:
            return [members]
        ends = np.cumsum(view.indptr[members + 1] - view.indptr[members])
        marks = np.linspace(0, ends[-1] if ends.size else 0, self.plan.parts + 1)[1:-1]
        return np.split(members, np.searchsorted(ends, marks))

    def _adding(self, view: Block, pieces: list[np.ndarray], rows: Any) -> list[Callable[[Scratch], None]]:
        self._counts = [None] * len(pieces)

        def add(number: int, scratch: Scratch) -> None:
            state = self.parts[number]
            self._counts[number] = self.kernel(view, pieces[number], state, rows, self.params, scratch.scores(0))

        return [functools.partial(add, number) for number in range(len(pieces))]

    def end_block(self) -> None:
        """All pieces of a block are done."""
        for counts in self._counts:
            self.tally.add(counts)
        self._counts = []
        if self.window is not None and self.reading != LEARN:
            self.window.keep()

    def keep_values(self, kept: Kept, block: Block) -> None:
        """The per-row arrays of the block's rows that are kept, as the block has left them."""
        if not self.kept_values:
            self.kept_values = type(self.rows)(*(np.zeros(kept.ids.size) for _ in self.rows))
        there, places = kept.places(block)
        ids = block.ids[there] if self.window is None else self._placed[there]
        for array, own in zip(self.rows, self.kept_values, strict=True):
            own[places] = array[ids]
        self.kept_rows += places.stop - places.start

    def join_parts(self) -> None:
        """The sums of the parts become those of the state, in the order of the parts."""
        for part in self.parts[1:]:
            for name in self.sum_names:
                total = getattr(self.shared, name)
                total += getattr(part, name)

    def _trace(self, view: Block, members: np.ndarray, scores: np.ndarray, scratch: Scratch) -> None:
        """As ``go_over``, with a note of the counts so far at every milestone."""
        order = self._drawn(members, scratch)
        first = 0
        while first < order.size:
            stop = first + milestone(self.tally.rows) - self.tally.rows
            self.tally.add(self._learn(view, order[first:stop], scores))
            first = stop
            if milestone(self.tally.rows - 1) == self.tally.rows:
                self.curve.append((self.tally.rows, self.tally.mistakes, self.tally.loss))

    def certify(self, view: Block) -> None:
        """Add the block's part of the certificate of the weights at the start of the read."""
        if self.start is not None and self.measure is not None:
            shared, rows = self.start
            if self.window is not None:
                rows = self.window.before
            if self._length is None:
                self._length = math.sqrt(square_of(shared.weights))
            if self.sees_all:
                self.dual_weights = np.zeros(shared.weights.shape)
            self.sums += self.measure(view, shared, rows, self.params, self.dual_weights, self._length)
            if self.sees_all and self.dual_weights is not None:
                self.dual_square, self.dual_weights = square_of(self.dual_weights), None

    def look(self, view: Block) -> None:
        """All that is to be known of the weights, where nothing is learned."""
        self.certify(view)
        self.weigh(view)

    def weigh(self, view: Block) -> None:
        """Add the block's losses of scaled weights; where it holds every row, keep weights that are better so."""
        if self.scaled is None or self.add_scaled is None:
            return
        weights = self.tried.weights
        if self._length is None:
            self._length = math.sqrt(square_of(weights))
        if not (self.sees_all and self._best_whole(view)):
            self._add_scaled(view, slice(None))
        if self.moves_on and not isinstance(self.certified, np.ndarray):
            if primals_of(weights, self.params, self.scaled)[1:].min() < self.beat:
                self._keep_weights()
            else:
                self.scaled[1:] = np.inf  # what they were is not known at the end

    def _best_whole(self, view: Block) -> bool:
        """Whether half of the weights is no better than they are: P(t w) bends up along t, so no smaller part is. By
        how much it bends at least, ||w||^2, the derivative at t = 1 mostly tells that."""
        assert self.scaled is not None
        self.scaled[:] = np.inf
        self.scaled[1] = 0
        slope = self._add_scaled(view, slice(1, 2))
        if self.scaled[1] < np.inf and slope <= -0.75 * regularised_square(self.tried.weights, self.params):
            return True  # P(1/2) >= P(1) - P'(1) / 2 + ||w||^2 / 8
        self.scaled[2] = 0
        self._add_scaled(view, slice(2, 3))
        whole, half = primals_of(self.tried.weights, self.params, self.scaled)[1:3]
        if whole <= half < np.inf:
            return True
        self.scaled[:] = 0
        return False

    def _add_scaled(self, view: Block, which: slice) -> float:
        """Add the block's losses of the weights times some of ``SCALES``; their derivative at the first of these."""
        assert self.scaled is not None and self.add_scaled is not None
        return self.add_scaled(view, self.tried, self.params, self._length, SCALES[which], self.scaled[which])

    def go_over(self, view: Block, members: np.ndarray, scores: np.ndarray, scratch: Scratch) -> Counts:
        """The kernel over ``members`` in shuffled runs, or as they come where the order has no part in the result."""
        if self.in_order:
            return self._learn(view, members, scores)
        return self._learn(view, self._drawn(members, scratch), scores)

    def _drawn(self, members: np.ndarray, scratch: Scratch) -> np.ndarray:
        """``members`` in shuffled runs."""
        order = scratch.order(members.size)
        shuffle = shuffle_few_runs if members.size <= FEW else shuffle_runs
        shuffle(members, self.plan.run, self._random(), order)
        return order

    def _learn(self, view: Block, order: np.ndarray, scores: np.ndarray) -> Counts:
        """The kernel; of several groups, how far it moved the row state is kept for the line search."""
        if self.along is not None:
            self.moves -= self.along(view, order, self.rows, self.start_rows, self.params)
        if self.collect is not None and self._collected(view, order):
            return Counts(order.size, 0, 0, 0.0, 0.0)
        counts: Counts = self.kernel(view, order, self.shared, self.rows, self.params, scores)
        if self.along is not None:
            self.moves += self.along(view, order, self.rows, self.start_rows, self.params)
        return counts

    def _collected(self, view: Block, order: np.ndarray) -> bool:
        """Collect a few rows at a time, so that what is under way stays small; False in a read for sums."""
        assert self.collect is not None
        for first in range(0, order.size, COLLECTED):
            piece = self.collect(view, order[first : first + COLLECTED], self.shared, self.params)
            if piece is None:
                return False
            self._keep(piece)
        return order.size > 0

    def _keep(self, piece: Any) -> None:
        """What a block gave to a collection: of the only group it goes to its place at once."""
        gather = self.problem.setting.method.gather
        assert gather is not None
        if self.found is None:
            self.found = gather(self.shared, self.group_rows) if self.alone else []
        self.found.append(piece)

    # The working set while the data stream by

    def _go_round(self) -> None:
        """Visit as many rows of the working set as the streamed rows have earned, in ever new orders."""
        assert self.set is not None
        while self._credit >= 1 and self.set.n_rows:
            self._credit -= self.go_on_round(int(self._credit))

    def earn(self, visits: int) -> None:
        """So many more visits to rows of the working set, now."""
        self._credit += visits
        self._go_round()

    def go_on_round(self, most: int) -> int:
        """Visit the next rows of the working set, ``most`` at most; their number."""
        assert self.set is not None
        if self._turn >= self._cycle_size or self._drawn_at != self.set.generation:
            if self.plan.schedule == "cached":
                self.set.drop(-self._stuck[0])
            n = self.set.n_rows
            shuffle_runs(np.arange(n), self.plan.run, self._random(), self._cycle)
            self._turn, self._cycle_size, self._drawn_at = 0, n, self.set.generation
        stop = min(self._cycle_size, self._turn + most)
        order = self._cycle[self._turn : stop]
        self._turn = stop
        self.visit_set(order)
        return int(order.size)

    def visit_set(self, order: np.ndarray) -> Counts:
        """The kernel over rows of the working set; dual cached loops want to know the largest violation it met."""
        assert self.set is not None
        block = self.set.block()
        if self.plan.schedule != "cached":
            return self._learn(block, order, self.set.scores)
        alpha, ids = self.rows.alpha, block.ids[order]
        before = alpha[ids]
        counts = self._learn(block, order, self.set.scores)
        moved = np.abs(alpha[ids] - before)
        if moved.ndim > 1:  # the class that moved most
            moved = moved.max(axis=1)
        moved *= block.norms[order] + self.params.bias**2  # type: ignore[attr-defined]
        self._stuck[1] = max(self._stuck[1], moved.max(initial=0.0))
        return counts

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
        primal = self.tally.loss + 0.5 * square_of(self.shared.weights) / len(self.plan.groups)
        solved, balanced = APART if not self.alone else RESIDENT if self.plan.resident else STREAMED
        goal = max(solved * tol * primal, balanced * self.tally.gap)
        rounds, looked, before, mark, again = 0, 0, self.tally.gap, self.tally.gap, False
        self.steps = 0
        while rounds < self.plan.rounds and live.size:
            everyone = again or (self.set is not None and rounds % ALL_AGAIN == 0)
            members = everything if everyone else live
            if self.narrows:
                rounds += self._go_over_support(view, members, before, self.plan.rounds - 1 - rounds, scratch, idle)
            counts = self.go_over(view, members, scores, scratch)
            if self.set is not None and rounds == 0:
                self.set_tally.add(counts)
            self.set_tally.gap = left = counts.gap
            if self.plan.resident:  # every row that moves has been looked at again since the pass over all
                left = counts.gap if again else gap_after(counts.gap, before)
                self.set_tally.gap = left - self.tally.gap
            before = counts.gap
            live = members[scores[members] >= -ACTIVE_SLACK]
            rounds += 1
            idle()
            if left <= goal:
                break
            again = False
            if rounds - looked >= PACE:
                looked, again = rounds, self._climb(view, everything, left, mark, goal, idle)
                mark = left
        return rounds

    def _go_over_support(
        self, view: Block, members: np.ndarray, gap: float, most: int, scratch: Scratch, idle: Callable[[], None]
    ) -> int:
        """Rounds over ``members``, of each row only the classes that it has given something to, until these lack far
        less than the ``gap`` of the pass before over all classes: cheap, and no look at what the others lack. Their
        number."""
        whole, rounds = self.params, 0
        self.params = whole._replace(support=True)  # type: ignore[attr-defined]
        while rounds < min(most, NARROW):
            left = self.go_over(view, members, self._no_scores, scratch).gap
            rounds += 1
            idle()
            if left <= SUPPORTED * gap:
                break
        self.params = whole
        return rounds

    def _climb(
        self, view: Block, members: np.ndarray, left: float, mark: float, goal: float, idle: Callable[[], None]
    ) -> bool:
        """Conjugate gradients where the rounds stall; whether anything was done."""
        if self.climb is None or self.steps >= MOST_STEPS or not stalls(left, mark, goal):
            return False
        steps = self.climb(
            view, members, self.shared, self.rows, self.params, CLIMBED * goal, MOST_STEPS - self.steps,
            self.plan.climb_rows, idle,
        )  # fmt: skip
        self.steps += steps
        return steps > 0

    def closes(self, known: tuple[float, float], tol: float) -> bool:
        """Whether the certificate just made, of every row there is, together with the best so far ends the problem.

        If it does not, the weights that it speaks of are kept, since those that follow take their place.
        """
        assert self.start is not None
        primal, dual = self.certificate()
        best, bound = min(primal, known[0]), max(0.0, dual, known[1])  # D(0) = 0
        if best <= 0 or max(0.0, best - bound) / best <= tol:
            return True
        self._keep_weights() if primal < known[0] else self._keep_square()
        return False

    def _keep_weights(self) -> None:
        """Copy the weights, which learning is about to move, to where the best before them lay: they are better."""
        self._best = self.certified = _copied_array(self.shared.weights, self._best)

    def _keep_square(self) -> None:
        self.certified = square_of(self.shared.weights)

    def certificate(self) -> tuple[float, float]:
        """Primal and dual objective of the weights at the start of the read that has just ended."""
        dual = self._dual()
        assert self.start is not None and dual is not None
        return objectives(float(self.sums[0]), float(self.sums[1]), self.start[0].weights, dual)

    def _dual(self) -> np.ndarray | float | None:
        """v of the certificate, or ||v||^2."""
        return self.dual_weights if self.dual_square is None else self.dual_square

    # To a file and back

    def rows_before(self) -> dict[str, Any]:
        """The row arrays as they were at the start of the epoch; none of the only group."""
        if not self.steps_back:
            return {}
        if self.window is not None:
            return dict(self.window.arrays(before=True))
        return dict(zip(getattr(self.start_rows, "_fields", ()), self.start_rows, strict=True))

    def row_state(self, midway: bool) -> dict[str, np.ndarray]:
        """Everything with a row axis: dual variables, in the middle of an epoch also as they were at its start, the
        working set's rows."""
        held: dict[str, Any] = dict(zip(getattr(self.rows, "_fields", ()), self.rows, strict=True))
        before = self.start_rows or (self.start[1] if self.start is not None and not self.plan.resident else ())
        start = before._asdict() if before else {}
        if self.window is not None:
            held, start = self.window.arrays(), {}
            if self.start is not None or self.steps_back:
                start = self.window.arrays(before=True)
        held = {f"rows.{name}": array for name, array in held.items()}
        if midway:
            held |= {f"start.rows.{name}": array for name, array in start.items()}
        if self.set is not None:
            held |= {f"set.{n}": a for n, a in self.set.members()._asdict().items()}
        if self.plan.schedule == "cached":
            held["stuck"] = self._stuck.copy()
        return held

    def shared_state(self) -> dict[str, np.ndarray]:
        """Everything else, in the middle of an epoch: the method's own arrays, the certificate so far, the counts."""
        held = {f"shared.{n}": a for n, a in self.shared._asdict().items()}
        held["figures"] = self._figures().array()
        if self.start is not None:
            assert self.dual_weights is not None
            held["dual_weights"] = self.dual_weights
            if self.alone:
                held |= {f"start.shared.{n}": a for n, a in self.start[0]._asdict().items()}
        elif self.tried.weights.size and self.alone:
            held["tried"] = self.tried.weights
        return held

    def restore_rows(self, held: dict[str, np.ndarray]) -> None:
        """Take up a row state; the bytes of the working set are then gathered with ``gather``."""
        if self.rows and self.window is None:
            self.rows = type(self.rows)(*(held[f"rows.{n}"].copy() for n in self.rows._fields))
            if f"start.rows.{self.rows._fields[0]}" in held and not (self.alone and self.set is None):
                self.start_rows = type(self.rows)(*(held[f"start.rows.{n}"].copy() for n in self.rows._fields))
        if "stuck" in held:
            self._stuck = held["stuck"].copy()
        if self.set is not None:
            self.set.clear()
            names = [name for name in Members._fields if f"set.{name}" in held]  # older runs have fewer
            self.set.expect(Members.none()._replace(**{name: held[f"set.{name}"] for name in names}))
        if self.window is not None:
            names = [f"rows.{name}" for name in self.rows._fields]
            start = [held[f"start.{name}"] for name in names] if f"start.{names[0]}" in held else None
            self.window.restore([held[name] for name in names], start)
            self._look_through()

    def restore_shared(self, held: dict[str, np.ndarray], common: Any) -> None:
        """Take up what ``shared_state`` gave; the row state has been taken up before."""
        kind = type(common)
        mine = kind(*(held[f"shared.{n}"].copy() for n in kind._fields))
        self.shared = _copied(mine, common if self.alone else None)
        figures = Figures.of(held["figures"])
        self.tally, self.set_tally = figures.tally, figures.set_tally
        self.sums, self.moves = np.array(figures[2:4]), np.array(figures[4:6])
        self.start = self._length = None
        if "dual_weights" in held:
            self.dual_weights = held["dual_weights"].copy()
            before = common
            if self.alone:
                before = kind(*(held[f"start.shared.{n}"].copy() for n in kind._fields))
            self.start = before, self.start_rows or (self.rows if self.alone and self.window is None else ())
        self.scaled = np.array(figures.scaled) if figures.scaled else None
        if "tried" in held:
            self.tried = Tried(held["tried"].copy())
        elif self.scaled is not None or self.start is not None:
            self.tried = Tried(common.weights if self.start is None else self.start[0].weights)

    def gather(self, block: Block) -> None:
        """Copy the rows of the working set that stand in the block; every block of the group passes here once."""
        if self.set is not None:
            self.set.fill(self.problem.view(block, self.first_row))


def milestone(rows: int) -> int:
    """The smallest of 64, 77, 92 ..., each a fifth more than the one before, that is more than ``rows``."""
    at = 64
    while at <= rows:
        at += -(-at // 5)
    return at


class Scratch:
    """Memory that every learner of a group uses in turn: what is allocated anew for each block the system takes back
    after it, and clears page by page for the next."""

    def __init__(self, rows: int) -> None:
        self._scores, self._order = np.empty(rows), np.empty(rows, np.int64)
        self._labels, self._weights, self._members = np.empty(0), np.empty(0), np.empty(0, np.int64)

    def scores(self, n: int) -> np.ndarray:
        if n > self._scores.size:
            self._scores = np.empty(n)
        return self._scores[:n]

    def order(self, n: int) -> np.ndarray:
        if n > self._order.size:
            self._order = np.empty(n, np.int64)
        return self._order[:n]

    def members(self, n: int) -> np.ndarray:
        if n > self._members.size:
            self._members = np.empty(n, np.int64)
        return self._members[:n]

    def view(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Of labels and weights."""
        if n > self._labels.size:
            self._labels, self._weights = np.empty(n), np.empty(n)
        return self._labels[:n], self._weights[:n]


def gap_after(seen: float, before: float) -> float:
    """The gap at the end of a pass in which the rows showed ``seen``, each as it was visited, and ``before`` in the
    pass before: of a gap that falls by the same factor f in each pass, about sqrt(f) is still to come."""
    seen = max(0.0, seen)  # rounding
    return seen * min(1.0, seen / before) ** 0.5 if before > 0 else seen


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


def named_rows(number: int, group: int, held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of a problem in a group under the names they have in a file."""
    return {f"{number}.{group}.{name}": array for name, array in held.items()}


def settled_rows(held: dict[str, np.ndarray], steps: tuple[float, ...]) -> dict[str, np.ndarray]:
    """The row state of a group from a file that has it before and after its step: names ``problem.group.rows.alpha``
    and ``problem.group.before.rows.alpha``."""
    rows = {}
    for name, array in held.items():
        number, group, rest = name.split(".", 2)
        if rest.startswith("before."):
            continue
        before = held.get(f"{number}.{group}.before.{rest}")
        t = steps[int(number)] if steps and before is not None else 1.0
        rows[name] = array if before is None or t == 1.0 else _settled(before, array, t)
    return rows


def _settled(before: Any, after: Any, t: float) -> Any:
    if isinstance(after, FiledArray):
        return FiledArray(after.edges, Between(before, after, t), after.shape[1:])
    return settled(before, after, t)


def _copied(state: Any, into: Any) -> Any:
    """A copy of a state, in the arrays of ``into`` where there are any."""
    if not state:
        return ()
    if not into:
        return type(state)(*map(_copy, state))
    return type(state)(*map(_copied_array, state, into))


def _copied_array(array: np.ndarray, into: np.ndarray) -> np.ndarray:
    if into.shape != array.shape:  # of a state that has grown
        return _copy(array)
    np.copyto(into, array)
    return into


def _copy(array: Any) -> Any:
    return large_pages.copied(array) if isinstance(array, np.ndarray) else array.copy()
