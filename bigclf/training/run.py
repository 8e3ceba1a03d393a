"""The loop of a run: visit every group, combine, certify, commit; until every problem is done.

The visits are made by an engine, here or on a cluster. Between two rounds everything a run knows is in
``Run.checkpoint()``: what is committed can be written down, and a run taken up from there gives the bits of one that
never stopped, on whatever engine.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bigclf import large_pages
from bigclf.data import files
from bigclf.data.json_fields import check_fields, check_relations
from bigclf.errors import ClusterError, DataError, Interrupted, ModelFormatError
from bigclf.methods.method import AGAIN, LEARN, Given
from bigclf.mixing import PENALTY, agree, half_distance, line_search, next_penalty
from bigclf.training.bench import Blend, optimism
from bigclf.training.engines import Engine, Round
from bigclf.training.plan import Plan, proves_alone
from bigclf.training.problems import Problem, progress_of
from bigclf.training.run_directory import Checkpoint, RunDirectory
from bigclf.training.run_record import RUN_FACTS, STATUS, VALIDATED
from bigclf.training.team import beside
from bigclf.training.visit import (
    SCALES,
    STILL,
    Carry,
    Figures,
    Lesson,
    Outcome,
    Part,
    Ref,
    RowFile,
    Tally,
    named_rows,
    objectives,
    primals_of,
)
from bigclf.units import plural

log = logging.getLogger("bigclf")
# A certificate costs about what an epoch's learning does: one is made when the estimate is this near the tolerance, or
# after so many epochs without one. Streaming, it is made beside the learning, since a read may be dearer than both;
# where the estimate is surely below the tolerance, it is made alone. With a working set that is the only way, for one
# problem; there the estimate is several times too high at first, as rows outside the set show what they lacked before
# their visit (1.5 to 7 times on three sets of data), and after the first certificate as many times as it was then.
NEAR, SELDOM = 2.0, 50
NEAR_STREAMED, SELDOM_STREAMED, SURE, TRUTH_OF_SET = 5.0, 8, 0.6, 0.25
OVERFLOW = "the objective overflows: scale down the labels, the values, the rows' weights or C"
GRACE_SECONDS = 20.0  # what a run that was told to stop may take to reach the end of its segment


def is_fibonacci(n: int) -> bool:
    """Whether n is one of 1, 2, 3, 5, 8, 13 and so on: 5 n^2 + 4 or 5 n^2 - 4 is a square."""
    return any(math.isqrt(square) ** 2 == square for square in (5 * n * n - 4, 5 * n * n + 4))


class Status:
    """How far a problem is.

    weights : [feature + 1] of the answer so far, in the run's precision; primal : their objective; dual : the best
    dual objective, which no primal objective can be below; gap : (primal - dual) / primal; progressive : Tally of the
    first epoch; best : the state that did best on the validation rows, where a run may end for their sake.
    """

    def __init__(self) -> None:
        self.weights: np.ndarray | None = None
        self.best: Any = None
        self.primal, self.dual = np.inf, -np.inf
        self.tried = np.inf  # least primal objective of weights that were certified, be they kept or let go
        self.scale = 1.0  # of the answer: a run that ends early may return its last weights scaled
        self.done = False
        self.since_certificate = 0
        self.certify_next = False
        self.estimate = 1.0
        self.seen = np.inf  # gap that the rows showed as they streamed by
        self.truth = TRUTH_OF_SET  # how many times the certified gap will be the estimate
        self.optimism = 1.0  # how many times the certified gap was the estimate of the same weights
        self.progressive, self.total = Tally(), Tally()
        self.reads = 0  # the read that certified the answer
        self.step = 1.0  # how far along the summed steps of the groups the last epoch went
        self.penalty = PENALTY  # on groups that disagree
        self.epochs = 0  # that it has learned in
        self.over = False  # it has had as many as it may have
        self.dropped = False  # others promise more
        self.stalled = False  # floating point has no better answer
        self.last_mistakes = 0  # in its last epoch
        self.learned = True  # ... from rows, one after another: else its read was for sums
        self.settled = False  # its last epoch learned from no row, and no further one would
        self.busy = 0.0  # seconds of a core that it took
        self.violation: float | None = None  # of the optimality conditions, in the weights of the answer
        self.began: np.ndarray | None = None  # the weights at the start of an epoch that was cut short
        self.dual_weights: np.ndarray | None = None  # float64, sum a_i y_i x_i, where groups start from another point

    @property
    def gap(self) -> float | None:
        """Certified relative gap; rounding alone can make P - D negative, and then it is 0."""
        if self.weights is None:
            return None
        return max(0.0, self.primal - self.dual) / self.primal if self.primal > 0 else 0.0

    @property
    def told(self) -> tuple[float, float | None]:
        """Objective and gap that the history tells: of the answer so far, or, while there is none, of the best weights
        that were certified and let go."""
        if self.weights is not None or self.tried == np.inf:
            return self.primal, self.gap
        return self.tried, max(0.0, self.tried - self.dual) / self.tried if self.tried > 0 else 0.0

    def accept(self, primal: float, dual: float, weights: Any, read: int, tol: float, keep: str) -> None:
        """Keep the best primal and the best dual seen: together they certify the weights of the former.

        keep : "copy" (learning goes on in their place), "as they are" (it does not), or "if done": weights that do not
        end the problem are let go. Those that do are kept as they are.
        """
        self.dual, self.tried = max(self.dual, dual), min(self.tried, primal)
        if primal >= self.primal:
            self.done = self.gap is not None and self.gap <= tol
            return
        gap = max(0.0, primal - self.dual) / primal if primal > 0 else 0.0
        self.done = gap <= tol
        if not self.done and keep == "if done":
            return
        self.primal, self.reads, self.scale = primal, read, 1.0
        if self.done or keep == "as they are":
            self.weights = weights
        elif self.weights is None:
            self.weights = weights.copy()
        else:
            self.weights[:] = weights


class Run:
    """Problems trained together over one stream of rows.

    Parameters
    ----------
    source, problems, plan : what is learned from what, and how.
    engine : (idle, advance) -> who makes the visits.
    tol : certified relative gap at which a problem is done (None: no certificate is asked for).
    epochs, max_seconds : limits.
    directory : where to write checkpoints and history, or None.
    watch : called with each record of the history.
    progress : ``advance(rows, nbytes)`` for each block.
    stopping : says why the run is to stop, or None.
    early_stopping : epochs in a row without a better figure on the validation rows after which to end, or None.
    give_up : called with the run at the end of each epoch: numbers of problems that are learned no further; or None.
    """

    def __init__(
        self,
        source: Any,
        problems: list[Problem],
        plan: Plan,
        engine: Callable[[Callable[[], None], Callable[[int, int], None]], Engine],
        *,
        tol: float | None,
        epochs: int,
        max_seconds: float | None,
        directory: RunDirectory | None,
        checkpoint_every: float,
        watch: Callable[[dict[str, Any]], None],
        progress: Any,
        stopping: Callable[[], str | None],
        early_stopping: int | None = None,
        give_up: Callable[[Run], list[int]] | None = None,
    ) -> None:
        self.source, self.problems, self.plan = source, problems, plan
        self.give_up = give_up
        self.tol, self.epochs, self.max_seconds = tol, epochs, max_seconds
        self.directory, self.checkpoint_every = directory, checkpoint_every
        self.watch, self.progress, self.stopping = watch, progress, stopping
        self.early_stopping, self.best_score, self.since_best = early_stopping, -np.inf, 0
        self.best_epoch = 0
        self.method = problems[0].setting.method
        self.states: list[Any] = [p.setting.shared(source.n_features, plan.dtype) for p in problems]
        self.version = 0  # of the states: it grows when they change
        self.refs: list[Ref | None] = [None for _ in plan.groups]
        self.status = [Status() for _ in problems]
        if self._searches:
            for status, state in zip(self.status, self.states, strict=True):
                status.dual_weights = np.zeros(state.weights.shape)
        self.figures: dict[int, Figures] = {}  # of the epoch that has just ended, by problem
        self.step_facts: dict[str, float] = {}  # of its steps
        self.epoch, self.segment, self.reads = 1, 0, 0
        self.rounds = self.steps = self.set_rows = self.rebuilt = self.mixes = 0
        self.seconds_before, self.moved_before = 0.0, 0
        self.decoded = 0  # bytes that had to be decoded from the shards
        self.waited = 0.0  # of the epoch's visits: seconds in which they had nothing to learn from
        self.stopped = ""
        self.bytes_read = 0
        self.curve: list[tuple[int, int, float]] = []  # rows, mistakes, losses so far, in the first epoch
        self._last_round: Round | None = None
        self._begun = self._checkpointed = time.monotonic()
        self._asked_to_stop: float | None = None
        self._unproved = False  # the last step left weights without a certificate, and the next read makes one
        self.engine = engine(self.idle, progress.advance)

    @property
    def last_epoch(self) -> int:
        """The number of the last epoch that the limit allows: those of the model it began with do not count for it."""
        return self.epoch - 1 - max(status.epochs for status in self.status) + self.epochs

    # The loop

    def go(self) -> str:
        """Run until done; returns "tolerance", "settled" (an epoch learned from no row), "epochs" or "seconds".

        Raises
        ------
        Interrupted : a signal came; everything up to the last segment is written down.
        """
        self._begun = self._checkpointed = time.monotonic()
        while not self.stopped:
            if self._seems_done():
                self._prove()
                continue
            parts = self._visit_all("update")
            self.segment += 1
            if self.segment < self.plan.segments:
                self._commit()
                if not self._late():
                    continue
                parts = self._visit_all("close")  # the time is over: the epoch ends with what has been learned
            self._end_epoch(parts)
            self.epoch, self.segment = self.epoch + 1, 0
            self._look_at_limits()
            self._commit(last=bool(self.stopped))
        return self.stopped

    def release(self) -> None:
        """Let go of all that is large: callbacks and the run refer to each other, and would keep it for long."""
        self.engine.close()
        self.forget()

    def let_go(self, number: int) -> None:
        """Of a problem's weights, whose answer has been copied."""
        self.status[number].weights = self.status[number].best = self.states[number] = None

    def forget(self) -> None:
        """Let go of what was learned."""
        self.states, self.status, self.figures, self._last_round = [], [], {}, None

    def _seems_done(self) -> bool:
        """Whether a read for the certificates alone is likely to be the last one."""
        if self.tol is None or self.plan.resident or len(self.plan.groups) > 1 or self.epoch == 1 or self.segment:
            return False
        if self.method.absorb is not None:  # each step says how good it is
            return False
        if self.plan.schedule != "auto":  # its estimate leaves out the rows of the cache
            return False
        todo = [self.status[number] for number in self._todo()]
        if not self._proves_alone:
            return all(status.estimate <= SURE * self.tol for status in todo)
        seldom = self.tol > 0 and todo[0].since_certificate >= SELDOM_STREAMED
        return seldom or todo[0].estimate * todo[0].truth <= self.tol

    @property
    def _proves_alone(self) -> bool:
        """Whether certificates are never made beside the learning: then no copy of its start is kept."""
        return proves_alone(self.plan, len(self.problems))

    def _prove(self) -> None:
        """A read for the certificates alone; whatever they do not end goes on learning."""
        self._certify_all(self._todo(), "if done" if self._proves_alone else "copy")
        for number in self._todo():
            status = self.status[number]
            status.estimate = np.inf  # until the next read
        self.figures = {}
        if not self._todo():
            self.stopped = self._ending()
            self._record()
            self._commit(last=True)

    def _certify_all(self, todo: list[int], keep: str, kind: str = "certify") -> None:
        """One more read of these problems, for their certificates alone."""
        parts = self._visit_all(kind, todo)
        assert parts is not None
        for number, part in zip(todo, parts, strict=True):
            if part.dual is not None:
                self._accept(number, part, Figures.of(part.figures), keep)
        if kind == "last":
            assert self.tol is not None
            scaled = [Figures.of(part.figures).scaled for part in parts]
            del parts, part  # room for the scaled weights: that of the sums of the dual variables
            for number, losses in zip(todo, scaled, strict=True):
                self._take_scaled(number, np.array(losses), self.tol)

    def _take_scaled(self, number: int, losses: np.ndarray, tol: float, own: np.ndarray | None = None) -> None:
        """Where the weights at the start of the read times one of ``SCALES`` are better than all before, they are the
        answer so far; t = 0 bounds the primal objective of every answer.

        own : a copy of these weights that is nobody else's; tol : below 0, no problem is done by this, learning went
        on.
        """
        status, setting = self.status[number], self.problems[number].setting
        weights = self.states[number].weights if own is None else own
        if status.done or not losses.size:
            return
        primals = primals_of(weights, setting.params(), losses)
        best = int(np.argmin(primals))
        if not primals[best] < status.primal:
            return
        if own is None:
            weights = weights * weights.dtype.type(SCALES[best])
        else:
            weights *= weights.dtype.type(SCALES[best])
        status.accept(float(primals[best]), max(0.0, status.dual), weights, self.reads, tol, "as they are")
        status.scale = float(SCALES[best])

    def _todo(self) -> list[int]:
        """The problems that are learned now: neither ended nor waiting for others to end."""
        ended = [status.done or status.over for status in self.status]
        starts = [problem.start for problem in self.problems]
        return [n for n, start in enumerate(starts) if not ended[n] and all(ended[other] for other, _ in start)]

    def _visit_all(self, kind: str, todo: list[int] | None = None) -> list[Part] | None:
        """One round; what all groups come to together, of each problem of ``todo`` (those that are still learned), at
        an epoch's end."""
        round, before = self._round(kind, self._todo() if todo is None else todo), (self.reads, self.bytes_read)
        if kind in STILL or self.segment == 0:
            self.reads += self._reads_now(round)
            self.rounds = self.steps = self.set_rows = 0
            self.waited = 0.0
        alone = len(self.plan.groups) == 1
        blends: list[Blend] = []
        if not round.midway and not alone:
            rows = self.source.n_rows
            blends = [Blend(self.problems[n], state, rows) for n, state in zip(round.todo, round.states, strict=True)]
        parts: list[Part] = []
        try:
            for outcome in self.engine.perform(round):
                self._take_facts(outcome)
                for blend, part in zip(blends, outcome.parts, strict=False):
                    blend.add(part, outcome.last - outcome.first > 1)
                parts = outcome.parts
        except (ClusterError, Interrupted):
            if kind == "update" and self.engine.remembers:
                self._keep_start(round, *before)
            raise
        self._last_round = round
        if round.midway:
            return None
        return parts if alone else [blend.part() for blend in blends]

    def _reads_now(self, round: Round) -> int:
        """Rows that stay in memory are read once."""
        again = self.plan.every > 1 and all(self.method.reading(state) == AGAIN for state in round.states)
        return 0 if (self.plan.resident or again) and self.reads else 1

    def _round(self, kind: str, todo: list[int]) -> Round:
        lessons = tuple(self._lesson(kind, number) for number in todo)  # some take up the weights of others
        return Round(
            kind=kind, epoch=self.epoch, segment=self.segment, lessons=lessons, version=self.version,
            states=[self.states[number] for number in todo], refs=list(self.refs),
            midway=kind == "update" and self.segment < self.plan.segments - 1,
        )  # fmt: skip

    def _lesson(self, kind: str, number: int) -> Lesson:
        status = self.status[number]
        tries = kind == "last" or kind == "update" and not self.segment and self._tries(status)
        return Lesson(
            number,
            certify=kind in STILL or self._certifies(status),
            aim=0.0 if self.tol is None else self.tol / status.optimism,
            known=(status.primal, status.dual),
            estimate=status.estimate,
            sigma=1 / status.penalty if self._searches else float(len(self.refs)),
            begins=kind == "update" and self._begin_with_others(number),
            beat=status.primal if tries else None,
            holds=kind == "update" and not self.segment and self._holds(status),
        )

    def _begin_with_others(self, number: int) -> bool:
        """A problem whose turn it is begins with the weights that go with the dual variables it begins with."""
        start = self.problems[number].start
        if not start or self.status[number].epochs or self.segment:
            return False
        if self.method.absorb is not None:
            self._follow(number, start[0][0])
            return False  # nothing of the rows has a part in it
        weights = np.zeros(self.states[number].weights.shape)
        for other, factor in start:
            weights += factor * self.states[other].weights.astype(np.float64, copy=False)
        self.states[number].weights[:] = weights
        return True

    def _follow(self, number: int, other: int) -> None:
        """A problem of a path begins with the answer of the one before it."""
        held, before = self.status[other].weights, self.problems[other].setting
        weights = before.weights(self.states[other]) if held is None else held
        state, setting = self.states[number], self.problems[number].setting
        if self.method.follow is not None:
            self.method.follow(state, weights, setting.params(), before.params())
        elif self.method.place is not None:
            self.method.place(state, weights, setting.params())

    def _tries(self, status: Status) -> bool:
        """Whether the weights at the start of an epoch are tried, as they are and scaled: where the run may end before
        it is done their objective is not lost, whatever follows. That costs part of an epoch, so it is seldom done.
        What sums are made at, they tell themselves."""
        return self._limited and status.learned and status.epochs > 0 and is_fibonacci(status.epochs)

    @property
    def _limited(self) -> bool:
        """Whether the run may end before its tolerance is met: then the best answer that was certified is kept."""
        return self.tol is not None and (self.epochs < self.method.epochs or self.max_seconds is not None)

    def _holds(self, status: Status) -> bool:
        """Whether a copy of the weights at the start of an epoch is kept, to be tried where time is over in the midst
        of it."""
        may_be_cut = self.max_seconds is not None and self.plan.segments > 1
        return may_be_cut and self.tol is not None and status.learned and status.epochs > 0

    def _certifies(self, status: Status) -> bool:
        """Groups always make one: it says how they are to go on; alone, a problem has it made when it may end, or in
        every read where nothing estimates the gap."""
        if self.tol is None or self.epoch == 1 or self.method.absorb is not None:
            return False
        if self._proves_alone:
            return False
        every = len(self.plan.groups) > 1 or self.plan.schedule != "auto"
        return every and not self.plan.resident or status.certify_next

    def _take_facts(self, outcome: Outcome) -> None:
        for group in range(outcome.first, outcome.last):
            self.refs[group] = Ref(outcome.token)
        facts = outcome.facts
        self.bytes_read += facts["bytes_read"]
        self.rebuilt += facts["rebuilt"]
        self.waited += facts["waited"]
        self.decoded += facts["decoded"]
        self.rounds = max(self.rounds, facts["rounds"])
        self.steps = max(self.steps, facts["steps"])
        self.set_rows += facts["set_rows"]
        for number, seconds in facts.get("busy", {}).items():
            self.status[number].busy += seconds
        self.curve += facts.get("curve", [])

    def _end_epoch(self, parts: list[Part] | None) -> None:
        """Take the certificates of the read that has ended, go on to the combined state, and write the record."""
        steps = [1.0] * len(self.problems)
        self.figures, self.step_facts = {}, {}
        for number, part in zip(self._todo(), parts or [], strict=False):
            figures = self.figures[number] = Figures.of(part.figures)
            status = self.status[number]
            status.epochs += 1
            for tally in (status.total,) + ((status.progressive,) if status.epochs == 1 else ()):
                tally.add(figures.tally)
            status.last_mistakes = figures.tally.mistakes
            if part.dual is not None:
                self._accept(number, part, figures)
            own = part.certified if isinstance(part.certified, np.ndarray) else None
            if self._whole:
                self._take_scaled(number, np.array(figures.scaled), -1.0, own)
            elif self._holds(status) and status.epochs > 1:
                status.began = own if len(self.refs) == 1 else self.states[number].weights
            status.learned = self.method.reading(part.state) == LEARN
            if self.method.absorb is not None:
                cut_off = not self._whole and self.method.forget is not None
                if not (cut_off and self.method.forget(self.states[number])):  # type: ignore[misc]
                    self._absorb(number, part)
                continue
            status.settled = self.method.settles and self._whole and figures.tally.updates == 0
            if status.done:
                steps[number] = 0.0  # the dual variables stay with the certificate
                continue
            steps[number] = status.step = self._advance(number, part, figures)
            status.since_certificate += 1
            if self.tol is not None:
                if len(self.refs) == 1:
                    before, status.seen = status.seen, figures.tally.gap
                    if self.plan.resident:  # the rounds after the pass have seen every row that moves
                        before = np.inf
                    status.estimate = figures.estimated_gap(self.states[number].weights, before)
                near, seldom = (NEAR, SELDOM) if self.plan.resident else (NEAR_STREAMED, SELDOM_STREAMED)
                status.certify_next = status.estimate < near * self.tol or status.since_certificate >= seldom
        self.version += 1
        if len(self.refs) > 1:
            self.mixes += 1
            self.refs = [None if ref is None else Ref(ref.token, tuple(steps)) for ref in self.refs]
        self._record()

    def _absorb(self, number: int, part: Part) -> None:
        """The method makes of the sums over all rows what the next read begins with."""
        assert self.method.absorb is not None
        status = self.status[number]
        self.states[number] = part.state
        setting = self.problems[number].setting
        absorb, params = self.method.absorb(self.method.loss_code(setting.loss)), setting.params()
        if self.method.collect is None:
            step = absorb(part.state, params)
        else:
            assert self.tol is not None and self.method.gather is not None
            found = self.method.gather(part.state, 0) if part.found is None else part.found
            with beside(self.plan.learners) as both:
                given = Given(found, self.tol, self.plan.collected, self.idle, self._late, both)
                step = absorb(part.state, params, given)
            self._unproved = step.primal is None
        if step.primal is not None and step.dual is not None and step.weights is not None:
            if not (math.isfinite(step.primal) and math.isfinite(step.dual)):
                raise DataError(OVERFLOW)
            assert self.tol is not None
            best = status.primal
            status.accept(step.primal, step.dual, step.weights, self.reads, self.tol, "as they are")
            if status.primal < best:
                status.violation = step.violation
        status.done = bool(status.done or step.over == "done")
        status.stalled = status.over = bool(step.over == "stalled" and not status.done)
        for name, figure in step.facts.items():
            self.step_facts[name] = self.step_facts.get(name, 0) + figure

    def _advance(self, number: int, part: Part, figures: Figures) -> float:
        """The problem's common state becomes what its groups came to; returns how far along their step it goes."""
        start, status, t = self.states[number], self.status[number], 1.0
        if len(self.refs) > 1 and self.method.certificate:
            t = self._combine(status, start, part, figures)
        self.states[number] = part.state
        return t

    def _combine(self, status: Status, start: Any, part: Part, figures: Figures) -> float:
        """Combine what groups of a dual method came to, in ``part.state``; returns how far along their step it is."""
        weights, groups, t = status.dual_weights, len(self.refs), 1.0
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
        if self._whole:  # else those are sums over a part of the rows
            status.estimate = max(0.0, primal - dual) / primal if primal > 0 else 0.0
            if weights is not None:
                status.penalty = next_penalty(status.penalty, t, primal - dual, lag, groups)
        return t

    @property
    def _whole(self) -> bool:
        """Whether the epoch that ends went over every row."""
        return self._last_round is not None and self._last_round.kind == "update"

    @property
    def _searches(self) -> bool:
        """Whether groups go on from a point that they agree on, and their steps are searched along."""
        return self.problems[0].setting.settings.get("mixing") == "line_search"

    def _accept(self, number: int, part: Part, figures: Figures, keep: str = "copy") -> None:
        """Take the certificate of the weights at the start of the read."""
        status, tol = self.status[number], self.tol
        assert tol is not None
        weights = part.certified if part.certified is not None else self.states[number].weights
        primal, dual = objectives(figures.primal, figures.dual, weights, part.dual)
        if not (math.isfinite(primal) and math.isfinite(dual)):
            raise DataError(OVERFLOW)
        own = self.plan.resident and isinstance(part.certified, np.ndarray)  # a copy already, and nobody else's
        if keep == "if done" and self._limited and primal < status.primal:  # memory has no room for a copy
            weights, own = files.filed_copy(np.asarray(weights), files.scratch_directory()), True
        keep = "as they are" if own else keep
        status.accept(primal, max(0.0, dual), weights, self.reads, tol, keep)  # D(0) = 0 is always a bound
        if primal > 0 and 0 < status.estimate < np.inf:
            status.truth = max(TRUTH_OF_SET, (primal - dual) / primal / status.estimate)
        status.optimism = optimism(primal, dual, status.estimate)
        status.since_certificate = 0

    def _look_at_limits(self) -> None:
        late = self._late() and not self._unproved  # what was found on collected columns has one more read, to prove it
        for number in self.give_up(self) if self.give_up is not None and not late else ():
            self.status[number].over = self.status[number].dropped = True
        ended = [n for n in self._todo() if self.status[n].epochs >= self.epochs or self.status[n].settled]
        proves = [n for n in ended if self._may_be_better(n)]
        if proves:
            self._certify_all(proves, "as they are", "last")
        for number in ended:
            self.status[number].over = True
        todo = self._todo()
        if not todo:
            self.stopped = self._ending()
        elif self.early_stopping is not None and self.since_best >= self.early_stopping:
            self.stopped = "validation"
        elif late:
            if last := [n for n in todo if self._may_be_better(n)]:
                self._certify_last(last)
            self._certify_starts()
            self.stopped = "seconds" if self._todo() else self._ending()

    def _may_be_better(self, number: int) -> bool:
        """Whether nothing is known of the last weights: they do not come from sums, which tell how good they are."""
        absorbs = self.method.absorb is not None
        return self.tol is not None and self.status[number].learned and not (absorbs and self.method.scaled is None)

    def _certify_last(self, todo: list[int]) -> None:
        """Certify the last weights, which may be better than those kept, where a run ends before it is done. When the
        next certificates are due stays as it is: the run may go on with more time."""
        due = [(s.truth, s.optimism, s.since_certificate) for s in self.status]
        self._certify_all(todo, "as they are", "last")
        for status, (truth, optimistic, since) in zip(self.status, due, strict=True):
            status.truth, status.optimism, status.since_certificate = truth, optimistic, since

    def _certify_starts(self) -> None:
        """Likewise the weights at the start of an epoch that was cut short, which may be better than its end."""
        todo = [number for number in self._todo() if self.status[number].began is not None]
        ends = {number: self.states[number] for number in todo}
        if not todo:
            return
        try:
            for number, state in ends.items():
                self.states[number] = state._replace(weights=self.status[number].began)
            self.version += 1
            self._certify_last(todo)
        finally:
            self.version += 1
            for number, state in ends.items():
                self.states[number], self.status[number].began = state, None

    def _ending(self) -> str:
        """What ended a run in which nothing is left to learn."""
        if any(status.stalled for status in self.status):
            return "stalled"
        kept = [status for status in self.status if not status.dropped]
        if self.tol is not None and all(status.done for status in kept):
            return "tolerance"
        return "settled" if all(status.settled for status in kept) else "epochs"

    def _late(self) -> bool:
        return self.max_seconds is not None and self.seconds > self.max_seconds

    # Signals, time and records

    @property
    def seconds(self) -> float:
        """Of the run, an earlier process's included."""
        return self.seconds_before + time.monotonic() - self._begun

    def idle(self) -> None:
        """Between two kernels: a run that was told to stop does so at the end of its segment, or soon."""
        if self.stopping() is None:
            return
        now = time.monotonic()
        if self._asked_to_stop is None:
            self._asked_to_stop = now
            log.warning("%s: stopping at the end of the segment, in %d s at most", self.stopping(), GRACE_SECONDS)
        elif now - self._asked_to_stop > GRACE_SECONDS:
            raise Interrupted(self._interrupted())

    def _interrupted(self) -> str:
        where = f" in epoch {self.epoch}, segment {self.segment} of {self.plan.segments}"
        return f"stopped by {self.stopping()}{where}"

    def _record(self) -> None:
        figures = list(self.figures.values())
        tallies = [f.tally for f in figures]
        record: dict[str, Any] = {
            "epoch": self.epoch,
            "seconds": round(self.seconds, 4),
            "reads": self.reads,
            "rows": sum(tally.rows for tally in tallies),
            "nnz": self.source.nnz,
            "bytes_read": self.bytes_read,
            "waited": round(self.waited, 4),
            "updates": sum(tally.updates for tally in tallies),
            "mistakes": sum(tally.mistakes for tally in tallies),
            "loss": sum(tally.loss for tally in tallies),
        }
        record |= progress_of(self.problems[0], record["rows"], record["mistakes"], record["loss"])
        record |= self.step_facts
        if self.tol is not None:
            record |= self._certified_record()
        told = self.method.told
        if told is not None and len(self.problems) == 1:
            record |= told(self.states[0], self.problems[0].setting.params())
        if len(self.refs) > 1:
            record |= self._mixing_record(figures)
        events = self.engine.take_events()
        if events:
            record["events"] = events
        if self.rebuilt:
            record["records_rebuilt"] = self.rebuilt
        self.watch(record)
        if self.early_stopping is not None:
            self._look_at_score(record["validation"])

    def _look_at_score(self, found: dict[str, float]) -> None:
        """Keep the state after the epoch that did best on the validation rows."""
        score = found["accuracy"] if "accuracy" in found else -found["mean_squared_error"]
        if score > self.best_score:
            self.best_score, self.since_best, self.best_epoch = score, 0, self.epoch
            for status, state in zip(self.status, self.states, strict=True):
                status.best = type(state)(*(array.copy() for array in state))
        else:
            self.since_best += 1

    def continue_from(self, state: dict[str, np.ndarray], epochs: int) -> None:
        """Go on from the state (``problem.field``; none: the weights are all there is) of a run that made so many
        epochs. What is counted for a way of mixing alone is [0] in a run that does not mix by it: from such a run it
        begins anew, to such a run it is not taken."""
        for number, mine in enumerate(self.states):
            for name, array in mine._asdict().items():
                theirs = state.get(f"{number}.{name}")
                if theirs is not None and theirs.size and array.size:
                    array[...] = theirs
        self.epoch += epochs

    def _certified_record(self) -> dict[str, Any]:
        """What only a certified method has to tell."""
        told = [status.told for status in self.status]
        record: dict[str, Any] = {}
        certified = [gap for _, gap in told if gap is not None]
        if self.method.absorb is None:
            record = {"rounds": self.rounds}
            if self.steps:
                record["conjugate_steps"] = self.steps
            record["estimated_gap"] = max(status.estimate for status in self.status)
            record["working_set_rows"] = self.set_rows
        if len(certified) == len(told):
            record["gap"] = max(certified)
            record["objective"] = sum(primal for primal, _ in told)
            record["dual"] = sum(status.dual for status in self.status)
        if len(self.problems) > 1:
            record["problems_done"] = sum(status.done for status in self.status)
        return record

    def _mixing_record(self, figures: list[Figures]) -> dict[str, Any]:
        """What only a run of several groups has to tell."""
        shares = sum(f.share for f in figures)
        record: dict[str, Any] = {
            "groups": len(self.refs),
            "workers": self.engine.workers,
            "mixes": self.mixes,
            "mixed_mistakes": sum(f.mixed_mistakes for f in figures) / shares if shares else 0.0,
            "bytes_moved": self.moved_before + self.engine.bytes_moved,
        }
        if self.tol is not None and self.method.absorb is None:
            record["steps"] = [status.step for status in self.status]
            if self._searches:
                record["penalties"] = [status.penalty for status in self.status]
        return record

    # What is committed

    def _commit(self, last: bool = False) -> None:
        reason = self.stopping()
        due = time.monotonic() - self._checkpointed >= self.checkpoint_every
        if self.directory is not None and (last or reason or due):
            self.directory.save(self.checkpoint(), self.epoch, self.segment)
            self._checkpointed = time.monotonic()
        if reason and not last:
            raise Interrupted(self._interrupted())

    def _keep_start(self, round: Round, reads: int, n_bytes: int) -> None:
        """A round is broken off: what was committed before it is written down, as far as it is still at hand."""
        if self.directory is None or self._last_round is None:
            return
        self.refs, self.reads, self.bytes_read = list(round.refs), reads, n_bytes
        try:
            self.directory.save(self.checkpoint(), self.epoch, self.segment)
        except Exception as error:  # the one written before has to do
            log.warning("no checkpoint of where the run was broken off: %s", error)

    def checkpoint(self) -> Checkpoint:
        """Everything the run knows, between two rounds."""
        arrays: dict[str, np.ndarray] = {}
        for number, (state, status) in enumerate(zip(self.states, self.status, strict=True)):
            arrays |= {f"{number}.state.{name}": array for name, array in state._asdict().items()}
            if status.weights is not None:
                arrays[f"{number}.best"] = status.weights
            if status.best is not None:
                arrays |= {f"{number}.best.{name}": array for name, array in status.best._asdict().items()}
            if status.dual_weights is not None:
                arrays[f"{number}.dual_weights"] = status.dual_weights
        rows: list[Any] = [{} for _ in self.refs]
        midway = self.segment > 0
        if self._last_round is not None and (midway or self.method.rows is not None):
            for group, ref in enumerate(self.refs):
                if ref is not None:
                    rows[group] = _carried(group, self.engine.carry(group, ref, self._last_round), arrays)
        facts = {
            "reads": self.reads,
            "seconds": self.seconds,
            "bytes_read": self.bytes_read,
            "stopped": self.stopped,
            "version": self.version,
            "mixes": self.mixes,
            "bytes_moved": self.moved_before + self.engine.bytes_moved,
            "curve": self.curve,
            "status": [_status_facts(status) for status in self.status],
        }
        if self.early_stopping is not None:
            facts |= {"best_score": float(self.best_score).hex(), "since_best": self.since_best}
            facts["best_epoch"] = self.best_epoch
        return Checkpoint(arrays, rows, facts)

    def go_further(self) -> None:
        """A run that stopped at its limits goes on when it is given further ones, or ends by a larger tolerance."""
        tol = -1.0 if self.tol is None else self.tol
        reached = [s for s in self.status if not s.done and s.gap is not None and s.gap <= tol]
        for status in reached:
            status.done, status.stalled = True, False
        left = [s for s in self.status if not s.done]
        further = [s for s in left if s.over and s.epochs < self.epochs and not (s.settled or s.dropped)]
        for status in further:
            status.over = False
        if reached or further or self.stopped == "seconds":
            self.stopped = "" if self._todo() else self._ending()

    def require(self, saved: Checkpoint) -> None:
        """Look whether all is there that ``restore`` takes up.

        Raises
        ------
        FieldError : naming a fact that is missing or wrong.
        ModelFormatError : naming an array that is missing.
        """
        facts, n = saved.facts, len(self.problems)
        validated = self.early_stopping is not None or "best_score" in facts
        check_fields(facts, RUN_FACTS | (VALIDATED if validated else {}), "facts")
        check_relations([
            (len(facts["status"]) == n, "facts.status", f"that of {plural(n, 'problem')}"),
            (facts["segment"] < self.plan.segments, "facts.segment", f"less than {self.plan.segments}"),
            (facts.get("best_epoch", 0) <= facts["epoch"], "facts.best_epoch", "an epoch that was"),
            (len(facts.get("rows_steps", ())) in (0, n), "facts.rows_steps", f"those of {plural(n, 'problem')}"),
        ])  # fmt: skip
        for number, (status, state) in enumerate(zip(facts["status"], self.states, strict=True)):
            where = f"facts.status.{number}"
            check_fields(status, STATUS, where)
            check_relations([(status.get("epochs", 0) <= facts["epoch"], f"{where}.epochs", "at most facts.epoch")])
            kinds = ["state", *(["best"] if facts.get("best_epoch") else [])]
            kinds += [f"{group}.shared" for group in range(len(self.refs)) if _is_midway(number, group, saved.arrays)]
            names = [f"{number}.{kind}.{name}" for kind in kinds for name in type(state)._fields]
            if missing := [name for name in names if name not in saved.arrays]:
                raise ModelFormatError(f"the array {missing[0]!r} is missing")
        for group, rows in enumerate(saved.rows if self.method.rows is not None else ()):
            if not any(f".{group}.rows." in name for name in (*rows, *saved.arrays)):
                raise ModelFormatError(f"field 'facts.rows_files' must be with those of group {group}")

    def restore(self, saved: Checkpoint) -> None:
        """Take up a checkpoint of the same run."""
        facts = saved.facts
        self.epoch, self.segment, self.reads = facts["epoch"], facts["segment"], facts["reads"]
        self.seconds_before, self.bytes_read, self.stopped = facts["seconds"], facts["bytes_read"], facts["stopped"]
        self.version, self.mixes = facts["version"], facts["mixes"]
        self.moved_before = facts.get("bytes_moved", 0)
        self.curve = [tuple(point) for point in facts.get("curve", [])]
        if "best_score" in facts:
            self.best_score, self.since_best = float.fromhex(facts["best_score"]), facts["since_best"]
            self.best_epoch = facts.get("best_epoch", 0)
        for number, state in enumerate(self.states):
            kind = type(state)
            arrays = (saved.arrays[f"{number}.state.{name}"] for name in kind._fields)
            self.states[number] = kind(*map(large_pages.copied, arrays))
            kept = (saved.arrays.get(f"{number}.{name}") for name in ("best", "dual_weights"))
            self.status[number] = _restored_status(facts["status"][number], *kept)
            if self.best_epoch:
                best = (saved.arrays[f"{number}.best.{name}"].copy() for name in kind._fields)
                self.status[number].best = kind(*best)
        self._restore_groups(saved)

    def _restore_groups(self, saved: Checkpoint) -> None:
        """What each group carried, in the middle of an epoch or where methods have row state."""
        common = dict(enumerate(self.states))
        for group in range(len(self.refs)):
            held = saved.arrays | saved.rows[group]
            parts = []
            for number in range(len(self.problems)):
                prefix = f"{number}.{group}."
                parts.append({name[len(prefix) :]: a for name, a in held.items() if name.startswith(prefix)})
            if not any(parts):
                continue
            ref = self.refs[group] = Ref(f"checkpoint-{self.epoch}-{self.segment}")
            shared = [held if any(name.startswith("shared.") for name in held) else {} for held in parts]
            self.engine.restore(group, ref, Carry(parts, shared if self.segment else None), common)


def _is_midway(number: int, group: int, arrays: dict[str, np.ndarray]) -> bool:
    """Whether a problem was being learned in a group when these were written down."""
    return f"{number}.{group}.figures" in arrays


def _carried(group: int, carry: Carry, arrays: dict[str, np.ndarray]) -> Any:
    """The group's row state as it is written down; what it has else goes into ``arrays``."""
    for number, held in enumerate(carry.shared or ()):
        arrays |= named_rows(number, group, held)
    if isinstance(carry.rows, RowFile):
        return carry.rows
    rows: dict[str, np.ndarray] = {}
    for number, held in enumerate(carry.rows):
        rows |= named_rows(number, group, held)
    return rows


_LATER: dict[str, Any] = {  # facts that older checkpoints have not
    "epochs": 0, "over": False, "busy": 0.0, "settled": False, "last_mistakes": 0, "stalled": False,
    "violation": None, "dropped": False, "scale": 1.0, "learned": True,
}  # fmt: skip
_FLOATS = ("primal", "dual", "estimate", "seen", "truth", "optimism", "penalty")
_LATER_FLOATS = {"tried": np.inf}
_FACTS = (*_FLOATS, "done", "since_certificate", "certify_next", "reads", "step")


def _status_facts(status: Status) -> dict[str, Any]:
    facts = {name: getattr(status, name) for name in (*_FACTS, *_LATER)}
    for name in (*_FLOATS, *_LATER_FLOATS):  # JSON has no infinity; hexadecimal keeps every bit
        facts[name] = float(getattr(status, name)).hex()
    return facts | {
        "progressive": status.progressive.array().tolist(),
        "total": status.total.array().tolist(),
    }


def _restored_status(facts: dict[str, Any], weights: np.ndarray | None, dual_weights: np.ndarray | None) -> Status:
    status = Status()
    for name in _FACTS:
        setattr(status, name, facts[name])
    for name, value in _LATER.items():
        setattr(status, name, facts.get(name, value))
    for name in _FLOATS:
        setattr(status, name, float.fromhex(facts[name]))
    for name, least in _LATER_FLOATS.items():
        setattr(status, name, float.fromhex(facts[name]) if name in facts else least)
    status.progressive, status.total = Tally.of(np.array(facts["progressive"])), Tally.of(np.array(facts["total"]))
    status.weights = None if weights is None else weights.copy()
    status.dual_weights = None if dual_weights is None else dual_weights.copy()
    return status
