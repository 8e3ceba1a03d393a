"""Methods that take a step after each read: from sums over all rows, or from rows that were collected."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from bigclf.errors import DataError
from bigclf.maths.block import Block, Counts
from bigclf.maths.mixing import Weights
from bigclf.methods.method import AGAIN, AT_POINT, KEPT, LEARN, SUM, Collection, Given, PathPoint, Step, Steps, Way
from bigclf.training.core_team import beside
from bigclf.training.problems import Problem, taking_part
from bigclf.training.roles.conductor import Conductor, Ending
from bigclf.training.roles.dual import OVERFLOW
from bigclf.training.roles.learner import Assignment, Learner
from bigclf.training.roles.scaled_trial import ScaledTrial
from bigclf.training.sampling import Kept
from bigclf.training.visit import Figures, Lesson, Part, Scratch, copied_array

Work = Callable[[Scratch], None]
Seen = Callable[[int, Scratch], tuple[Block, np.ndarray]]
COLLECTED = 4096  # rows that a collection takes at a time
NOTHING = np.empty(0)
RUN = 4096  # rows of a group that go to the same part


def changed_by(way: Way) -> tuple[str, ...]:
    """Names of the arrays that a read changes."""
    return (*way.up, *way.own)


def way_of(problem: Problem, state: object) -> Way | None:
    """What of the state travels for the next read, where the method says it."""
    how = problem.setting.method.how
    return how.way(state) if isinstance(how, Steps) and how.way is not None else None


def keeps_rows(problem: Problem, state: object) -> bool:
    """Whether the next read goes on from per-row arrays that only the last one can have made."""
    way = way_of(problem, state)
    return way is None or way.rows == KEPT


def rows_elsewhere(problem: Problem, state: object) -> dict[str, np.ndarray]:
    """What another process has to know to make the per-row arrays for the next read, where none travel."""
    way, held = way_of(problem, state), cast("Any", state)
    return {"point": held.point} if way is not None and way.rows == AT_POINT else {}


class SumsLearner(Learner):
    """A problem whose kernel adds over rows, in a group; its first passes may learn from them."""

    adds_up = True

    def __init__(self, given: Assignment) -> None:
        super().__init__(given)
        how = given.problem.setting.method.how
        self.trial = ScaledTrial(given.problem, given.plan, given.aside)
        assert isinstance(how, Steps)
        self.sum_names, self._reading, self._in_runs = how.sums, how.reading, how.in_runs
        self._way, self._again_from = how.way, how.again
        self._changed: tuple[str, ...] = ()  # arrays of the copy that are its own; the others are the common state's
        self._room = how.room(given.source.n_features)
        self.parts: list[Any] = []  # the state, and copies of it with sums of their own
        self._counts: list[Any] = []
        self._took: list[float] = []  # seconds, by piece of work
        self._whole: tuple[Block, list[np.ndarray]] | None = None  # of rows that stay in memory: what is made of them
        self._again: tuple[Block, list[np.ndarray]] | None = None  # ... and of rows that are kept
        self.kept_values: Any = ()  # the per-row arrays of rows that are kept
        self.kept_rows = 0  # of which they hold the values of the point

    @property
    def may_trace(self) -> bool:
        """Its passes are for sums."""
        return False

    @property
    def reading(self) -> str:
        """To learn, to sum, or to sum over rows that have been gone over since."""
        return self._reading(self.shared)

    def begin(self, state: Weights, lesson: Lesson, still: bool = False, spare: Weights | None = None) -> None:
        """Rows that are kept lose the values of the last point where another one is summed at."""
        super().begin(state, lesson, still, spare)
        self.row_state.begin(lesson.certify, still)
        if self._reading(state) == SUM:
            self.kept_rows = 0
        self.trial.begin(state, state.weights, lesson.beat, lesson.holds, still)

    def _copy_of(self, state: Weights, spare: Weights | None) -> Weights:
        """A copy of what the read changes alone, where the method says what that is."""
        if self._way is None:
            return super()._copy_of(state, spare)
        self._changed = changed_by(self._way(state))
        own = {name: getattr(state, name) for name in self._changed}
        copies = {name: copied_array(array, getattr(spare, name, NOTHING)) for name, array in own.items()}
        found: Weights = cast("Any", state)._replace(**copies)
        return found

    def cut_short(self) -> None:
        """Sums of part of the rows say nothing, weights stay."""
        self.trial.cut_short(self.shared.weights)

    def end(self, common: Weights, certified: bool) -> Part:
        """The state with its sums."""
        self._finish()
        figures = self._figures().array()
        return Part(self.shared, None, figures, self.trial.end(common.weights))

    def _figures(self) -> Figures:
        return super()._figures()._replace(scaled=self.trial.scaled)

    def rest(self) -> None:
        """The copies with sums of their own are of a state that has been taken, which gives back its own arrays."""
        super().rest()
        self.parts = []
        if self._way is not None and self.shared is not None:
            kept = {name: getattr(self.shared, name) for name in self._changed}
            self.shared = type(self.shared)(*(kept.get(name, NOTHING) for name in self.shared._fields))

    def look(self, view: Block) -> None:
        """Losses of scaled weights."""
        self.trial.weigh(view, self.params)

    def before_pass(self, view: Block) -> None:
        """A pass of the start tries scaled weights, too."""
        self.trial.weigh(view, self.params)

    # Sums over rows

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

    def pieces(self, block: Block) -> list[Callable[[Scratch], None]]:
        """What the read does with a block, as pieces that may be done at the same time; ``block_done`` is to follow."""
        if self.reading == LEARN:
            return self._timed([functools.partial(self.take, block)])
        if self.plan.parts == 1:  # of many problems, views that lie together would be the largest thing there is
            return self._adding(functools.partial(self._seen, block), 1)
        if self._whole is not None:
            view, pieces = self._whole
        else:
            view = self.view(block)
            pieces = self._cut(view, taking_part(view))
            if self.sees_all:
                self._whole = view, pieces
        self.trial.weigh(view, self.params)
        return self._adding(lambda number, _: (view, pieces[number]), len(pieces))

    def _seen(self, block: Block, number: int, scratch: Scratch) -> tuple[Block, np.ndarray]:
        """The problem's view of a block that is one piece of work, and the rows that take part."""
        view = self.view(block, scratch)
        self.trial.weigh(view, self.params)
        return view, taking_part(view, scratch.members(view.n_rows))

    def pieces_again(self, kept: Kept, block: Block | None) -> list[Callable[[Scratch], None]]:
        """The same of the rows that are kept; ``block`` : every row, where all are at hand."""
        if block is not None and self.plan.parts == 1:
            return self._adding(functools.partial(self._kept_of, kept, block), 1)
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
        view, pieces = self._again
        values = None if block is not None else self.kept_values
        return self._adding(lambda number, _: (view, pieces[number]), len(pieces), values)

    def _kept_of(self, kept: Kept, block: Block, number: int, scratch: Scratch) -> tuple[Block, np.ndarray]:
        """The same of rows that are kept, where all are at hand."""
        view = self.problem.view(block, self.first_row, scratch.view(block.n_rows))
        return view, kept.ids[view.weights[kept.ids] > 0]

    def _cut(self, view: Block, members: np.ndarray) -> list[np.ndarray]:
        """``members`` (ascending) as ``plan.parts`` pieces of about as many entries, or in turn, run after run."""
        if self.plan.parts == 1:
            return [members]
        if self._in_runs:
            turn = view.ids[members] // RUN % self.plan.parts
            return [members[turn == number] for number in range(self.plan.parts)]
        ends = np.cumsum(view.indptr[members + 1] - view.indptr[members])
        marks = np.linspace(0, ends[-1] if ends.size else 0, self.plan.parts + 1)[1:-1]
        return np.split(members, np.searchsorted(ends, marks))

    def _adding(self, seen: Seen, pieces: int, values: object = None) -> list[Work]:
        """``seen`` : (number of a piece, scratch) -> view, and its rows that the piece adds; ``values`` : their per-row
        arrays (None: those of the rows seen last)."""
        self._counts = [None] * pieces

        def add(number: int, scratch: Scratch) -> None:
            view, members = seen(number, scratch)
            state = self.parts[number]
            room = scratch.scores(self._room)
            rows = self.rows if values is None else values
            self._counts[number] = self.kernel(view, members, state, rows, self.params, room)

        return self._timed([functools.partial(add, number) for number in range(pieces)])

    def _timed(self, pieces: list[Work]) -> list[Work]:
        """Pieces of work that note how long each of them took."""

        def timed(piece: Work, scratch: Scratch) -> None:
            began = time.monotonic()
            piece(scratch)
            self._took.append(time.monotonic() - began)

        return [functools.partial(timed, piece) for piece in pieces]

    def seconds_taken(self) -> float:
        """Seconds of a core that pieces of work have taken since this was asked last."""
        took, self._took = sum(self._took), []
        return took

    def block_done(self) -> None:
        """All pieces of a block are done."""
        for counts in self._counts:
            self.tally.add(counts)
        self._counts = []
        if self.reading != LEARN:  # else it is said there
            self.row_state.done()

    def keep_values(self, kept: Kept, block: Block) -> None:
        """The per-row arrays of the block's rows that are kept, as the block has left them."""
        if not self.kept_values:
            self.kept_values = type(self.rows)(*(np.zeros(kept.ids.size) for _ in self.rows))
        there, places = kept.places(block)
        ids = block.ids[there] if self.row_state.window is None else self.row_state.placed[there]
        for array, own in zip(self.rows, self.kept_values, strict=True):
            own[places] = array[ids]
        self.kept_rows += places.stop - places.start

    def join_parts(self) -> None:
        """The sums of the parts become those of the state, in the order of the parts."""
        for part in self.parts[1:]:
            for name in self.sum_names:
                total = getattr(self.shared, name)
                total += getattr(part, name)

    # To a file and back

    def carried_state(self) -> dict[str, np.ndarray]:
        """The method's own arrays, the counts, the weights that are tried."""
        return super().carried_state() | self.trial.carried()

    def restore_rows(self, held: dict[str, np.ndarray]) -> None:
        """Where there are none, the next read makes them, or ``make_again`` does."""
        if any(name.startswith("rows.") for name in held):
            super().restore_rows(held)

    def make_again(self, block: Block, state: object) -> None:
        """The per-row arrays of the block's rows, as a read of ``state`` makes them."""
        view = self.view(block)
        self.kernel(view, taking_part(view), state, self.rows, self.params, np.empty(self._room))

    def state_again(self, common: object, point: np.ndarray) -> object:
        """The state for ``make_again``."""
        assert self._again_from is not None
        return self._again_from(cast("Any", common)._replace(point=point))

    def restore_state(self, held: dict[str, np.ndarray], common: Any) -> None:
        """The losses of scaled weights, too; what the read does not change is the common state's."""
        if self._way is not None:
            changed = {f"shared.{name}" for name in changed_by(self._way(common))}
            held = held | {f"shared.{n}": a for n, a in common._asdict().items() if f"shared.{n}" not in changed}
        super().restore_state(held, common)
        self.trial.restore(held, Figures.of(held["figures"]), common.weights, False)


class CollectingLearner(Learner):
    """A problem whose method keeps rows, in a group: they are gone over in their order."""

    draws = False

    def __init__(self, given: Assignment) -> None:
        super().__init__(given)
        setting = given.problem.setting
        how, self.loss = setting.method.how, setting.method.loss_of(setting.loss)
        self.kept = how.collection if isinstance(how, Steps) else None
        self.found: Any = None  # what the method has collected in this epoch

    @property
    def may_trace(self) -> bool:
        """Its counts are of rows that are kept."""
        return False

    def begin(self, state: Weights, lesson: Lesson, still: bool = False, spare: Weights | None = None) -> None:
        """Nothing is collected yet."""
        super().begin(state, lesson, still, spare)
        self.found = None

    def end(self, common: Weights, certified: bool) -> Part:
        """With what was collected."""
        part = super().end(common, certified)._replace(found=self.found)
        self.found = None
        return part

    def teach(self, view: Block, order: np.ndarray, scores: np.ndarray) -> Counts:
        """Collect the rows, or in a read for sums add them up."""
        if self.kept is not None and self._collected(self.kept, view, order):
            return Counts(order.size, 0, 0, 0.0, 0.0)
        counts: Counts = self.kernel(view, order, self.shared, self.rows, self.params, scores)
        return counts

    def _collected(self, kept: Collection, view: Block, order: np.ndarray) -> bool:
        """Collect a few rows at a time, so that what is under way stays small; False in a read for sums."""
        for first in range(0, order.size, COLLECTED):
            piece = kept.collect(self.loss)(view, order[first : first + COLLECTED], self.shared, self.params)
            if piece is None:
                return False
            self._keep(kept, piece)
        return order.size > 0

    def _keep(self, kept: Collection, piece: object) -> None:
        """What a block gave to a collection: of the only group it goes to its place at once."""
        if self.found is None:
            self.found = kept.gather(self.loss)(self.shared, self.group_rows) if self.alone else []
        self.found.append(piece)


class StepsConductor(Conductor):
    """A problem of such a method at the driver."""

    @property
    def how(self) -> Steps:
        """What the method does between reads."""
        assert isinstance(self.method.how, Steps)
        return self.method.how

    def takes_up(self, states: list[Weights], others: Sequence[Conductor]) -> bool:
        """A problem of a path begins with the answer of the one before it; nothing of the rows has a part in it."""
        start = self.problem.start
        if start and not self.status.epochs and not self.rides(states[self.number]):
            self._follow(states, others[start[0][0]])
        return False

    def _follow(self, states: list[Weights], other: Conductor) -> None:
        before = other.problem.setting
        held, last = other.status.weights, states[other.number]
        weights = before.weights(last) if held is None else held
        state, setting = states[self.number], self.problem.setting
        place = self.method.form.place
        if self.how.follow is not None:
            same = last is not None and np.array_equal(weights, before.weights(last))
            self.how.follow(
                state, weights, setting.params(), before.params(), last if same else None, self.plan.collected
            )
        elif place is not None:
            place(state, weights, setting.params())

    def goes_ahead(self, state: Weights) -> bool:
        """A point of a path that goes on from a collection of several, and until it is certified."""
        batches = self.how.batches
        return batches is not None and bool(self.problem.start) and (batches.joined(state) or batches.solved(state))

    def rides(self, state: Weights) -> bool:
        """Of a path, a point that goes on from a collection of several."""
        return self.how.batches is not None and self.how.batches.joined(state)

    def choose_batch(self, states: list[Weights], others: Sequence[Conductor]) -> None:
        """As the method does, where every problem but the first begins with the answer of the one before it."""
        batches, loss = self.how.batches, self.problem.setting.loss
        chained = [conductor.problem.start == ((n - 1, 1.0),) for n, conductor in enumerate(others) if n > 0]
        if batches is None or loss not in batches.losses or not chained or not all(chained):
            return
        points = [
            PathPoint(state, one.problem.setting.params(), one.status.epochs > 0, one.status.done or one.status.over)
            for state, one in zip(states, others, strict=True)
        ]
        batches.choose(points, self.plan.collected)

    def passes(self, state: Weights) -> bool:
        """Products with the Hessian may be of rows that are kept."""
        return not (self.plan.every > 1 and self.how.reading(state) == AGAIN)

    def may_be_better(self) -> bool:
        """The last weights were learned from rows: sums tell how good theirs are."""
        return self.limits.tol is not None and self.status.learned and self.how.scaled is not None

    def accept(self, state: Weights, part: Part, figures: Figures, reads: int, keep: str = "copy") -> None:
        """Certificates come with the steps."""
        raise TypeError(f"{self.method.name} certifies by its steps")

    def take(self, start: Weights, part: Part, figures: Figures, ending: Ending) -> tuple[Weights, float]:
        """The method makes of the sums over all rows what the next read begins with."""
        self.facts = {}
        self.status.learned = self.how.reading(part.state) == LEARN
        cut_off = not ending.whole and self.how.forget is not None
        if cut_off and self.how.forget(start):  # type: ignore[misc]
            return start, 1.0
        step = self._step(part, ending)
        self._judge(step, ending.reads)
        self.facts = step.facts
        return part.state, 1.0

    def _step(self, part: Part, ending: Ending) -> Step:
        setting, tol = self.problem.setting, self.limits.tol
        loss, params = self.method.loss_of(setting.loss), setting.params()
        absorb = self.how.absorb(loss)
        kept = self.how.collection
        if kept is None and not self.how.aims:
            return absorb(part.state, params)
        assert tol is not None
        if kept is None:
            return absorb(part.state, params, Given(None, tol, 0, ending.idle, ending.late))
        found = kept.gather(loss)(part.state, 0) if part.found is None else part.found
        with beside(self.plan.learners) as both:
            given = Given(found, tol, self.plan.collected, ending.idle, ending.late, both, self.plan.resident)
            step = absorb(part.state, params, given)
        self.unproved = step.primal is None
        return step

    def _judge(self, step: Step, reads: int) -> None:
        """What the step says of its weights, and of how it goes on."""
        status = self.status
        if step.primal is not None and step.dual is not None and step.weights is not None:
            if not (math.isfinite(step.primal) and math.isfinite(step.dual)):
                raise DataError(OVERFLOW)
            assert self.limits.tol is not None
            best = status.primal
            status.accept(step.primal, step.dual, step.weights, reads, self.limits.tol, "as they are")
            if status.primal < best:
                status.violation = step.violation
        status.done = bool(status.done or step.over == "done")
        status.stalled = status.over = bool(step.over == "stalled" and not status.done)
