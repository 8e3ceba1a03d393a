"""The loop of a run: visit every group, combine, certify, commit; until every problem is done.

The visits are made by an engine, here or on a cluster. Between two rounds everything a run knows is in
``Run.checkpoint()``: what is committed can be written down, and a run taken up from there gives the bits of one that
never stopped, on whatever engine.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bigclf.compiled import large_pages
from bigclf.errors import ClusterError, Interrupted, ModelFormatError
from bigclf.files.json_fields import check_fields, check_relations
from bigclf.training.engines import Engine, Round
from bigclf.training.executor import Blend
from bigclf.training.plan import Plan, proves_alone
from bigclf.training.problems import Problem, progress_of
from bigclf.training.records.run_arrays import check_arrays
from bigclf.training.records.run_directory import Checkpoint, RunDirectory
from bigclf.training.records.run_record import RUN_FACTS, STATUS, VALIDATED
from bigclf.training.roles import conductor_of
from bigclf.training.roles.conductor import Ending, Limits, When
from bigclf.training.status import Status
from bigclf.training.visit import (
    STILL,
    Carry,
    Figures,
    Lesson,
    Outcome,
    Part,
    Ref,
    RowFile,
    named_rows,
)
from bigclf.units import plural

if TYPE_CHECKING:
    from bigclf.data.rows import Rows


log = logging.getLogger("bigclf")
GRACE_SECONDS = 20.0  # what a run that was told to stop may take to reach the end of its segment


class Run:
    """Problems trained together over one stream of rows.

    Large because everything that is known between two rounds is here, and is written down and taken up as one.

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
        watch: Callable[[dict[str, Any]], None],
        progress: Any,
        stopping: Callable[[], str | None],
        early_stopping: int | None = None,
        give_up: Callable[[Run], list[int]] | None = None,
    ) -> None:
        self.source, self.problems, self.plan = source, problems, plan
        self.give_up = give_up
        self.limits = Limits(tol, epochs, max_seconds, proves_alone(plan, len(problems)))
        self.directory, self.checkpoint_every = directory, checkpoint_every
        self.watch, self.progress, self.stopping = watch, progress, stopping
        self.early_stopping, self.best_score, self.since_best = early_stopping, -np.inf, 0
        self.best_epoch = 0
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
        self.states, self.conductors, self.figures, self._last_round = [], [], {}, None

    def _seems_done(self) -> bool:
        """Whether a read for the certificates alone is likely to be the last one."""
        if self.tol is None or self.plan.resident or len(self.plan.groups) > 1 or self.epoch == 1 or self.segment:
            return False
        return all(self.conductors[number].seems_done() for number in self._todo())

    def _prove(self) -> None:
        """A read for the certificates alone; whatever they do not end goes on learning."""
        self._certify_all(self._todo(), "if done" if self.limits.proves_apart else "copy")
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
                figures = Figures.of(part.figures)
                self.conductors[number].accept(self.states[number], part, figures, self.reads, keep)
        if kind == "last":
            assert self.tol is not None
            scaled = [Figures.of(part.figures).scaled for part in parts]
            del parts, part  # room for the scaled weights: that of the sums of the dual variables
            for number, losses in zip(todo, scaled, strict=True):
                conductor = self.conductors[number]
                conductor.take_scaled(self.states[number], np.array(losses), self.reads, self.tol)

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
            blends = [
                Blend(self.problems[n], state, rows, self.conductors[n].gathering)
                for n, state in zip(round.todo, round.states, strict=True)
            ]
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
        return conductor.lesson(when, self.states[number], takes_up)

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
        steps, ending = [1.0] * len(self.problems), Ending(self._whole, self.reads, self.idle, self._late)
        self.figures, self.step_facts = {}, {}
        for number, part in zip(self._todo(), parts or [], strict=False):
            self.figures[number], conductor = Figures.of(part.figures), self.conductors[number]
            self.states[number], steps[number] = conductor.end(self.states[number], part, ending)
            self._unproved = conductor.unproved
            for name, figure in conductor.facts.items():
                self.step_facts[name] = self.step_facts.get(name, 0) + figure
        self.version += 1
        if len(self.refs) > 1:
            self.mixes += 1
            self.refs = [None if ref is None else Ref(ref.token, tuple(steps)) for ref in self.refs]
        self._record()

    @property
    def _whole(self) -> bool:
        """Whether the epoch that ends went over every row."""
        return self._last_round is not None and self._last_round.kind == "update"

    def _look_at_limits(self) -> None:
        late = self._late() and not self._unproved  # what was found on collected columns has one more read, to prove it
        for number in self.give_up(self) if self.give_up is not None and not late else ():
            self.status[number].over = self.status[number].dropped = True
        ended = [n for n in self._todo() if self.status[n].epochs >= self.limits.epochs or self.status[n].settled]
        proves = [n for n in ended if self.conductors[n].may_be_better()]
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
            if last := [n for n in todo if self.conductors[n].may_be_better()]:
                self._certify_last(last)
            self._certify_starts()
            self.stopped = "seconds" if self._todo() else self._ending()

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
        return self.limits.max_seconds is not None and self.seconds > self.limits.max_seconds

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
            end = "the epoch" if self.plan.segments == 1 else "this part of the epoch"
            log.warning("%s: stopping at the end of %s, in %d s at most", self.stopping(), end, GRACE_SECONDS)
        elif now - self._asked_to_stop > GRACE_SECONDS:
            raise Interrupted(self._interrupted())

    def _interrupted(self) -> str:
        if self.segment == 0:
            return f"stopped by {self.stopping()} at the beginning of epoch {self.epoch}"
        return (f"stopped by {self.stopping()} in epoch {self.epoch}, after part {self.segment} of "
                f"{self.plan.segments} of its blocks")  # fmt: skip

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
        if len(self.problems) == 1:
            record |= self.method.form.figures(self.states[0], self.problems[0].setting.params())
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
        seen = {"rounds": self.rounds, "steps": self.steps, "set_rows": self.set_rows}
        for conductor in self.conductors:
            for name, figure in conductor.record(seen).items():
                record[name] = max(figure, record.get(name, figure))
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
        for conductor in self.conductors:
            for name, figure in conductor.mixing_record().items():
                record.setdefault(name, []).append(figure)
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
            arrays |= {f"{number}.{name}": array for name, array in self.conductors[number].arrays().items()}
        rows: list[Any] = [{} for _ in self.refs]
        midway = self.segment > 0
        if self._last_round is not None and (midway or self.method.keeps_rows):
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
            "status": [status.facts() for status in self.status],
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
        further = [s for s in left if s.over and s.epochs < self.limits.epochs and not (s.settled or s.dropped)]
        for status in further:
            status.over = False
        if reached or further or self.stopped == "seconds":
            self.stopped = "" if self._todo() else self._ending()

    def require(self, saved: Checkpoint) -> None:
        """Look whether all is there that ``restore`` takes up.

        Raises
        ------
        FieldError : naming a fact that is missing or wrong.
        ModelFormatError : naming an array that is missing, or of another type or shape.
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
        for group, rows in enumerate(saved.rows if self.method.keeps_rows else ()):
            if not any(f".{group}.rows." in name for name in (*rows, *saved.arrays)):
                raise ModelFormatError(f"field 'facts.rows_files' must be with those of group {group}")
        group_rows = [int(self.source.chunks.rows[first:last].sum()) for first, last in self.plan.groups]
        for arrays in (saved.arrays, *saved.rows):
            check_arrays(arrays, self.problems, self.states, group_rows)

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
            self.conductors[number].status = Status.of(facts["status"][number], *kept)
            self.conductors[number].restore({
                name.removeprefix(f"{number}."): array
                for name, array in saved.arrays.items() if name.startswith(f"{number}.gathered.")
            })  # fmt: skip
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
