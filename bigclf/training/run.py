"""The loop of a run: visit every group, combine, certify, commit; until every problem is done.

The visits are made by an engine, here or on a cluster. Between two rounds everything a run knows is in a checkpoint
(``records/checkpoints.py``): a run taken up from there gives the bits of one that never stopped, on whatever engine.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bigclf.errors import ClusterError, Interrupted
from bigclf.progress import Record
from bigclf.training.blend import Blend, take_in
from bigclf.training.certifying import certify_all, certify_last, certify_starts
from bigclf.training.counts import BestEpoch, Clock, Counts
from bigclf.training.engines import Engine, Round
from bigclf.training.plan import Plan, proves_alone
from bigclf.training.problems import Problem
from bigclf.training.records import checkpoints
from bigclf.training.records.epoch_record import epoch_record
from bigclf.training.records.run_directory import Checkpoint, RunDirectory
from bigclf.training.roles import conductor_of
from bigclf.training.roles.conductor import Ending, Limits, When
from bigclf.training.shared_reads import learned_now, parts_of, read_for
from bigclf.training.status import Status
from bigclf.training.visit import STILL, Figures, Lesson, Outcome, Part, Ref

if TYPE_CHECKING:
    from bigclf.data.rows import Rows


log = logging.getLogger("bigclf")


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
    advance : told of the rows and bytes of each block.
    stopping : says why the run is to stop, or None.
    early_stopping : epochs in a row without a better figure on the validation rows after which to end, or None.
    give_up : called with the run at the end of each epoch: numbers of problems that are learned no further; or None.
    """

    def __init__(
        self,
        source: Rows,
        problems: list[Problem],
        plan: Plan,
        engine: Callable[[Callable[[], None], Callable[[int, int], None]], Engine],
        *,
        tol: float | None,
        epochs: int,
        max_seconds: float | None,
        directory: RunDirectory | None,
        checkpoint_every: float,
        watch: Callable[[Record], None],
        advance: Callable[[int, int], None],
        stopping: Callable[[], str | None],
        early_stopping: int | None = None,
        give_up: Callable[[Run], list[int]] | None = None,
    ) -> None:
        self.source, self.problems, self.plan = source, problems, plan
        self.give_up = give_up
        self.limits = Limits(tol, epochs, max_seconds, proves_alone(plan, len(problems)))
        self.directory, self.checkpoint_every, self.watch = directory, checkpoint_every, watch
        self.method = problems[0].setting.method
        self.states: list[Any] = [p.setting.shared(source.n_features, plan.dtype) for p in problems]
        self.version = 0  # of the states: it grows when they change
        self.refs: list[Ref | None] = [None for _ in plan.groups]
        self.conductors = [
            conductor_of(number, problem, plan, self.limits, source) for number, problem in enumerate(problems)
        ]
        for conductor in self.conductors:
            conductor.begin(self.states, self.conductors)
        self.figures: dict[int, Figures] = {}  # of the epoch that has just ended, by problem
        self.step_facts: dict[str, float] = {}  # of its steps
        self.epoch, self.segment, self.reads, self.mixes = 1, 0, 0, 0
        self.moved_before = 0  # bytes, by engines of earlier processes
        self.counts, self.best = Counts(), BestEpoch(early_stopping)
        place = "the epoch" if plan.segments == 1 else "this part of the epoch"
        self.clock = Clock(max_seconds, stopping, place)
        self.stopped = ""
        self.last_round: Round | None = None
        self._checkpointed = time.monotonic()
        self._unproved = False  # the last step left weights without a certificate, and the next read makes one
        self.engine = engine(self.idle, advance)

    @property
    def status(self) -> list[Status]:
        """How far each problem is."""
        return [conductor.status for conductor in self.conductors]

    @property
    def tol(self) -> float | None:
        """The certified relative gap at which a problem is done, or None."""
        return self.limits.tol

    @property
    def last_epoch(self) -> int:
        """The number of the last epoch that the limit allows: those of the model it began with do not count for it."""
        return self.epoch - 1 - max(status.epochs for status in self.status) + self.limits.epochs

    # The loop

    def go(self) -> str:
        """Run until done; returns "tolerance", "settled" (an epoch learned from no row), "epochs" or "seconds".

        Raises
        ------
        Interrupted : a signal came; everything up to the last segment is written down.
        """
        self.clock.start()
        self._checkpointed = time.monotonic()
        while not self.stopped:
            if self._seems_done():
                self._prove()
                continue
            parts = self.visit_all("update")
            self.segment += 1
            if self.segment < self.plan.segments:
                self._commit()
                if not self._late():
                    continue
                parts = self.visit_all("close")  # the time is over: the epoch ends with what has been learned
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
        self.states, self.conductors, self.figures, self.last_round = [], [], {}, None

    def _seems_done(self) -> bool:
        """Whether a read for the certificates alone is likely to be the last one."""
        if self.tol is None or self.plan.resident or len(self.plan.groups) > 1 or self.epoch == 1 or self.segment:
            return False
        return all(self.conductors[number].seems_done() for number in self.todo())

    def _prove(self) -> None:
        """A read for the certificates alone; whatever they do not end goes on learning."""
        certify_all(self, self.todo(), "if done" if self.limits.proves_apart else "copy")
        for number in self.todo():
            self.status[number].estimate = np.inf  # until the next read
        self.figures = {}
        if not self.todo():
            self.stopped = self.ending()
            self._record()
            self._commit(last=True)

    def todo(self) -> list[int]:
        """The problems that are learned now."""
        return learned_now(self)

    def visit_all(self, kind: str, todo: list[int] | None = None) -> list[Part] | None:
        """One round; what all groups come to together, of each problem of ``todo`` (those that are still learned), at
        an epoch's end."""
        round = self._round(kind, read_for(self) if todo is None else todo)
        before = self.reads, self.counts.bytes_read
        if kind in STILL or self.segment == 0:
            self.reads += self._reads_now(round)
            self.counts.begin_read()
        alone = len(self.plan.groups) == 1
        blends = [] if round.midway or alone else self._blends(round)
        parts: list[Part] = []
        try:
            for outcome in self.engine.perform(round):
                self._take_facts(outcome)
                take_in(blends, outcome)
                parts = outcome.parts
        except (ClusterError, Interrupted):
            if kind == "update" and self.engine.remembers:
                self._keep_start(round, *before)
            raise
        self.last_round = round
        if round.midway:
            return None
        return parts if alone else [blend.part() for blend in blends]

    def _blends(self, round: Round) -> list[Blend]:
        return [
            Blend(self.problems[n], state, self.source.n_rows, self.conductors[n].gathering, self.engine.lasting)
            for n, state in zip(round.todo, round.states, strict=True)
        ]

    def _reads_now(self, round: Round) -> int:
        """Rows that stay in memory are read once."""
        states = zip(round.todo, round.states, strict=True)
        passes = not self.plan.resident and any(self.conductors[number].passes(state) for number, state in states)
        return 0 if self.reads and not passes else 1

    def _round(self, kind: str, todo: list[int]) -> Round:
        lessons = tuple(self._lesson(kind, number) for number in todo)  # some take up the weights of others
        return Round(
            kind=kind, epoch=self.epoch, segment=self.segment, lessons=lessons, version=self.version,
            states=[self.states[number] for number in todo], refs=list(self.refs),
            midway=kind == "update" and self.segment < self.plan.segments - 1,
        )  # fmt: skip

    def _lesson(self, kind: str, number: int) -> Lesson:
        """What a problem's visits are told; one whose turn it is begins where others ended."""
        when, conductor = When(kind, self.epoch, self.segment), self.conductors[number]
        takes_up = when.begins and conductor.takes_up(self.states, self.conductors)
        return conductor.lesson(when, self.states[number], takes_up, getattr(self.give_up, "most", math.inf))

    def _take_facts(self, outcome: Outcome) -> None:
        for group in range(outcome.first, outcome.last):
            self.refs[group] = Ref(outcome.token)
        self.counts.add(outcome.facts)
        for number, seconds in outcome.facts.get("busy", {}).items():
            self.status[number].busy += seconds

    def _end_epoch(self, parts: list[Part] | None) -> None:
        """Take the certificates of the read that has ended, go on to the combined state, and write the record."""
        whole = self.last_round is not None and self.last_round.kind == "update"  # it went over every row
        steps, ending = [1.0] * len(self.problems), Ending(whole, self.reads, self.idle, self._late)
        self.step_facts = {}
        reading, came = read_for(self), parts_of(self, parts or [])
        self.figures = {number: Figures.of(came[number].figures) for number in reading if number in came}
        for number, part in came.items():
            conductor = self.conductors[number]
            self.states[number], steps[number] = conductor.end(self.states[number], part, ending)
            self._unproved = conductor.unproved
            for name, figure in conductor.facts.items():
                self.step_facts[name] = self.step_facts.get(name, 0) + figure
        self.conductors[0].choose_batch(self.states, self.conductors)
        self.version += 1
        if len(self.refs) > 1:
            self.mixes += 1
            self.refs = [None if ref is None else Ref(ref.token, tuple(steps)) for ref in self.refs]
        self._record()

    def _look_at_limits(self) -> None:
        late = self._late() and not self._unproved  # what was found on collected columns has one more read, to prove it
        for number in self.give_up(self) if self.give_up is not None and not late else ():
            self.status[number].over = self.status[number].dropped = True
        ended = [n for n in self.todo() if self.status[n].epochs >= self.limits.epochs or self.status[n].settled]
        proves = [n for n in ended if self.conductors[n].may_be_better()]
        if proves:
            certify_all(self, proves, "as they are", "last")
        for number in ended:
            self.status[number].over = True
        todo = self.todo()
        if not todo:
            self.stopped = self.ending()
        elif self.best.ends:
            self.stopped = "validation"
        elif late:
            if last := [n for n in todo if self.conductors[n].may_be_better()]:
                certify_last(self, last)
            certify_starts(self)
            self.stopped = "seconds" if self.todo() else self.ending()

    def ending(self) -> str:
        """What ended a run in which nothing is left to learn."""
        if any(status.stalled for status in self.status):
            return "stalled"
        kept = [status for status in self.status if not status.dropped]
        if self.tol is not None and all(status.done for status in kept):
            return "tolerance"
        return "settled" if all(status.settled for status in kept) else "epochs"

    def _late(self) -> bool:
        return self.clock.late

    def idle(self) -> None:
        """Between two kernels: a run that was told to stop does so at the end of its segment, or soon."""
        if self.clock.grace_is_over():
            raise Interrupted(self._interrupted())

    def _interrupted(self) -> str:
        if self.segment == 0:
            return f"stopped by {self.clock.told_to_stop()} at the beginning of epoch {self.epoch}"
        return (f"stopped by {self.clock.told_to_stop()} in epoch {self.epoch}, after part {self.segment} of "
                f"{self.plan.segments} of its blocks")  # fmt: skip

    def _record(self) -> None:
        """Write the epoch's record; of the validation rows' figures, which ``watch`` adds, keep the best state."""
        record = epoch_record(self)
        self.watch(record)
        if self.best.patience is not None and self.best.is_better(self.epoch, record["validation"]):
            for status, state in zip(self.status, self.states, strict=True):
                status.best = type(state)(*(array.copy() for array in state))

    # What is committed

    def _commit(self, last: bool = False) -> None:
        reason = self.clock.told_to_stop()
        due = time.monotonic() - self._checkpointed >= self.checkpoint_every
        if self.directory is not None and (last or reason or due):
            self.directory.save(self.checkpoint(), self.epoch, self.segment)
            self._checkpointed = time.monotonic()
        if reason and not last:
            raise Interrupted(self._interrupted())

    def _keep_start(self, round: Round, reads: int, n_bytes: int) -> None:
        """A round is broken off: what was committed before it is written down, as far as it is still at hand."""
        if self.directory is None or self.last_round is None:
            return
        self.refs, self.reads, self.counts.bytes_read = list(round.refs), reads, n_bytes
        try:
            self.directory.save(self.checkpoint(), self.epoch, self.segment)
        except Exception as error:  # the one written before has to do
            log.warning("no checkpoint of where the run was broken off: %s", error)

    def checkpoint(self) -> Checkpoint:
        """Everything the run knows, between two rounds."""
        return checkpoints.checkpoint_of(self)

    def require(self, saved: Checkpoint) -> None:
        """Look whether all is there that ``restore`` takes up: else an error that names what is missing or wrong."""
        checkpoints.require(self, saved)

    def restore(self, saved: Checkpoint) -> None:
        """Take up a checkpoint of the same run."""
        checkpoints.restore(self, saved)
