"""The loop of a run: visit every group, combine, certify, commit; until every problem is done.

Between two visits everything a run knows is in ``Run.checkpoint()``: what is committed can be written down, and a run
taken up from there gives the bits of one that never stopped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bigclf.block import Block
from bigclf.data.store import buffer_bytes
from bigclf.data.stream import Stream
from bigclf.errors import Interrupted
from bigclf.training.plan import Plan, segment_units, units_of
from bigclf.training.problems import Problem
from bigclf.training.run_directory import Checkpoint, RunDirectory
from bigclf.training.visit import Learner, Scratch, Tally

log = logging.getLogger("bigclf")
NEAR = 3.0  # in memory a certificate costs an epoch: one is made when the estimate is this near the tolerance
MOST_OPTIMISM = 100.0
SELDOM = 50  # ... or after so many epochs without one
GRACE_SECONDS = 20.0  # what a run that was told to stop may take to reach the end of its segment


class Status:
    """How far a problem is.

    weights : float64 [feature + 1] of the answer so far; primal : their objective; dual : the best dual objective,
    which no primal objective can be below; gap : (primal - dual) / primal; progressive : Tally of the first epoch.
    """

    def __init__(self) -> None:
        self.weights: np.ndarray | None = None
        self.primal, self.dual = np.inf, -np.inf
        self.done = False
        self.since_certificate = 0
        self.certify_next = False
        self.estimate = 1.0
        self.optimism = 1.0  # how many times the certified gap was the estimate of the same weights
        self.progressive, self.total = Tally(), Tally()
        self.reads = 0  # the read that certified the answer

    @property
    def gap(self) -> float | None:
        """Certified relative gap; rounding alone can make P - D negative, and then it is 0."""
        if self.weights is None:
            return None
        return max(0.0, self.primal - self.dual) / self.primal if self.primal > 0 else 0.0

    def accept(self, primal: float, dual: float, weights: np.ndarray, read: int) -> None:
        """Keep the best primal and the best dual seen: together they certify the weights of the former."""
        self.dual = max(self.dual, dual)
        if primal < self.primal:
            self.primal, self.reads = primal, read
            if self.weights is None:
                self.weights = weights.copy()
            else:
                self.weights[:] = weights


class Run:
    """Problems trained together over one stream of rows.

    Parameters
    ----------
    source, problems, plan, stream : what is learned from what, how, and the way to the rows.
    tol : certified relative gap at which a problem is done (None: no certificate is asked for).
    epochs, max_seconds : limits.
    directory : where to write checkpoints and history, or None.
    watch : called with each record of the history.
    progress : ``advance(rows, nbytes)`` for each block.
    stopping : says why the run is to stop, or None.
    """

    def __init__(
        self,
        source: Any,
        problems: list[Problem],
        plan: Plan,
        stream: Stream,
        *,
        tol: float | None,
        epochs: int,
        max_seconds: float | None,
        directory: RunDirectory | None,
        checkpoint_every: float,
        watch: Callable[[dict[str, Any]], None],
        progress: Any,
        stopping: Callable[[], str | None],
    ) -> None:
        self.source, self.problems, self.plan, self.stream = source, problems, plan, stream
        self.tol, self.epochs, self.max_seconds = tol, epochs, max_seconds
        self.directory, self.checkpoint_every = directory, checkpoint_every
        self.watch, self.progress, self.stopping = watch, progress, stopping
        self.method = problems[0].setting.method
        chunks = source.chunks
        rows = [int(chunks.rows[a:b].sum()) for a, b in plan.groups]
        self.shares = np.array(rows) / max(1, sum(rows))
        self.learners = [
            [Learner(problem, plan, number, group, rows[group], source) for group in range(len(plan.groups))]
            for number, problem in enumerate(problems)
        ]
        self.starts: list[Any] = [learners[0].shared for learners in self.learners]
        self.status = [Status() for _ in problems]
        self.epoch, self.segment, self.reads = 1, 0, 0
        self.rounds = 0
        self.seconds_before = 0.0
        self.stopped = ""
        self.bytes_read = 0
        self._resident: list[Block] = []
        self._chunk_bytes = buffer_bytes(chunks.rows, chunks.nnz, source.index_width, source.binary)
        self._scratch = Scratch(0)
        self._begun = self._checkpointed = time.monotonic()
        self._asked_to_stop: float | None = None

    # The loop

    def go(self) -> str:
        """Run until done; returns "tolerance", "epochs" (all an online method can be asked for) or "seconds".

        Raises
        ------
        Interrupted : a signal came; everything up to the last segment is written down.
        """
        self._begun = self._checkpointed = time.monotonic()
        self._load_resident()
        while not self.stopped:
            if self.segment == 0:
                self._begin_epoch()
            while self.segment < self.plan.segments and self._todo():
                self._do_segment()
                self.segment += 1
                if self.segment < self.plan.segments:
                    self._commit()
                    if self._late():
                        self._break_off()
            self._end_epoch()
            self.epoch, self.segment = self.epoch + 1, 0
            self._look_at_limits()
            self._commit(last=bool(self.stopped))
        return self.stopped

    def release(self) -> None:
        """Let go of all that is large: callbacks and the run refer to each other, and would keep it for long."""
        self.learners, self.starts, self.status, self._resident = [], [], [], []
        self._scratch = Scratch(0)

    def _todo(self) -> list[int]:
        return [number for number, status in enumerate(self.status) if not status.done]

    def _load_resident(self) -> None:
        if self.plan.resident and not self._resident:
            self._resident = [self.stream.load(np.arange(a, b)) for a, b in self.plan.groups]
            self.reads = max(self.reads, 1)
            self.bytes_read += sum(block.n_bytes for block in self._resident)

    def _begin_epoch(self) -> None:
        self.rounds = 0
        for number, status in enumerate(self.status):
            learners = self.learners[number]
            if status.done:
                for learner in learners:
                    learner.tally = Tally()
                continue
            if len(learners) > 1:
                self.starts[number] = _copy(learners[0].shared)
                for learner in learners:
                    learner.shared = _copy(self.starts[number])
            for learner in learners:
                learner.begin_epoch(self._certifies(status))
        if self.plan.resident:
            self._certify_resident()

    def _certifies(self, status: Status) -> bool:
        """Streaming, every read after the first certifies the one before it; in memory it is done when it may end."""
        if self.tol is None or self.epoch == 1:
            return False
        return not self.plan.resident or status.certify_next

    def _certify_resident(self) -> None:
        """With every row at hand the certificate comes before the epoch, and a problem that is done stays as it is."""
        for number in self._todo():
            learner = self.learners[number][0]
            if learner.start is not None:
                learner.certify(learner.problem.view(self._resident[0]))
                self._accept(number, learner)
                learner.start = None

    def _accept(self, number: int, learner: Learner) -> None:
        status = self.status[number]
        assert learner.start is not None and self.tol is not None
        primal, dual = learner.certificate()
        status.accept(primal, dual, learner.start[0].weights, self.reads)
        if primal > 0 and status.estimate > 0:
            status.optimism = min(MOST_OPTIMISM, max(1.0, (primal - dual) / primal / status.estimate))
        status.since_certificate = 0
        gap = status.gap
        status.done = gap is not None and gap <= self.tol

    def _do_segment(self) -> None:
        todo = self._todo()
        for group in range(len(self.plan.groups)):
            learners = [self.learners[number][group] for number in todo]
            for learner in learners:
                learner.begin_segment(self.epoch, self.segment)
            for block in self._blocks(group):
                for learner in learners:
                    learner.take(block, self._scratch)
                    if self.plan.resident:  # while the scores of the pass are at hand
                        view = learner.problem.view(block)
                        self._go_on(learner, view, self._scratch.scores(view.n_rows))
                    self._idle()
                self.progress.advance(block.n_rows, block.n_bytes)
            if self.segment == self.plan.segments - 1:
                for learner in learners:
                    if learner.set is not None:
                        self._go_on(learner, learner.set.block(), learner.set.scores)

    def _blocks(self, group: int) -> Iterator[Block]:
        if self.plan.resident:
            yield self._resident[group]
            return
        if group == 0:
            self.source.check_unchanged()
            self.reads += self.segment == 0
        units = units_of(self.plan, self.source.chunks, self._chunk_bytes, group, self.epoch)
        for block in self.stream.blocks(segment_units(self.plan, units, self.segment)):
            self.bytes_read += block.n_bytes
            yield block

    def _go_on(self, learner: Learner, view: Block, scores: np.ndarray) -> None:
        """More rounds over the rows that matter, before the next read."""
        if self.plan.rounds and self.tol is not None:
            aim = self.tol / self.status[learner.number].optimism
            rounds = learner.inner_rounds(view, scores, aim, self._scratch, self._idle)
            self.rounds = max(self.rounds, rounds)

    def _end_epoch(self) -> None:
        """Combine the groups, take the certificates of a read that streamed, and write the record."""
        for number in self._todo():
            learners, status = self.learners[number], self.status[number]
            if len(learners) > 1:
                assert self.method.mix is not None
                mixed = self.method.mix(self.starts[number], [learner.shared for learner in learners], self.shares)
                for learner in learners:
                    learner.shared = mixed
            for learner in learners:
                for tally in (status.total,) + ((status.progressive,) if self.epoch == 1 else ()):
                    _add(tally, learner.tally)
            if learners[0].start is not None:
                self._accept(number, learners[0])
                learners[0].start = None
            status.since_certificate += 1
            if self.tol is not None:
                status.estimate = learners[0].estimated_gap
                status.certify_next = status.estimate < NEAR * self.tol or status.since_certificate >= SELDOM
        self._record()

    def _look_at_limits(self) -> None:
        todo = self._todo()
        if not todo:
            self.stopped = "tolerance"
        elif self.epoch > self.epochs:
            self.stopped = "epochs"
        elif self._late():
            self.stopped = "seconds"
        if self.stopped in ("epochs", "seconds") and self.tol is not None:
            self._certify_last(todo)

    def _late(self) -> bool:
        return self.max_seconds is not None and self.seconds > self.max_seconds

    def _break_off(self) -> None:
        """End the epoch here: the time is over. A certificate of half a read says nothing."""
        for learners in self.learners:
            for learner in learners:
                learner.start = None
        self.segment = self.plan.segments

    def _certify_last(self, todo: list[int]) -> None:
        """One more read, for the certificate alone: the limit came before the tolerance."""
        if self.stopped == "seconds" and all(self.status[number].weights is not None for number in todo):
            return
        learners = [self.learners[number][0] for number in todo]
        for learner in learners:
            learner.begin_epoch(certifying=True)
        for block in self._blocks(0) if self.plan.resident else self._once_more():
            for learner in learners:
                learner.certify(learner.problem.view(block))
            self.progress.advance(block.n_rows, block.n_bytes)
        for number, learner in zip(todo, learners, strict=True):
            self._accept(number, learner)
            learner.start = None
        if not self._todo():
            self.stopped = "tolerance"

    def _once_more(self) -> Iterator[Block]:
        self.reads += 1
        units = units_of(self.plan, self.source.chunks, self._chunk_bytes, 0, self.epoch)
        for block in self.stream.blocks(units):
            self.bytes_read += block.n_bytes
            yield block

    # Signals, time and records

    @property
    def seconds(self) -> float:
        """Of the run, an earlier process's included."""
        return self.seconds_before + time.monotonic() - self._begun

    def _idle(self) -> None:
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
        tallies = [learner.tally for learners in self.learners for learner in learners]
        gaps = [status.gap for status in self.status]
        certified = [gap for gap in gaps if gap is not None]
        record: dict[str, Any] = {
            "epoch": self.epoch,
            "seconds": round(self.seconds, 4),
            "reads": self.reads,
            "rows": sum(tally.rows for tally in tallies),
            "nnz": self.source.nnz,
            "bytes_read": self.bytes_read,
            "updates": sum(tally.updates for tally in tallies),
            "mistakes": sum(tally.mistakes for tally in tallies),
            "loss": sum(tally.loss for tally in tallies),
        }
        record["error"] = record["mistakes"] / max(1, record["rows"])
        if self.tol is not None:
            record["rounds"] = self.rounds
            record["estimated_gap"] = max(status.estimate for status in self.status)
            record["working_set_rows"] = sum(ls[0].set.n_rows for ls in self.learners if ls[0].set is not None)
            if len(certified) == len(gaps):
                record["gap"] = max(certified)
                record["objective"] = sum(status.primal for status in self.status)
                record["dual"] = sum(status.dual for status in self.status)
            if len(self.problems) > 1:
                record["problems_done"] = sum(status.done for status in self.status)
        if self.stream.store is not None and self.stream.store.rebuilt:
            record["records_rebuilt"] = self.stream.store.rebuilt
        self.watch(record)

    # What is committed

    def _commit(self, last: bool = False) -> None:
        reason = self.stopping()
        due = time.monotonic() - self._checkpointed >= self.checkpoint_every
        if self.directory is not None and (last or reason or due):
            self.directory.save(self.checkpoint(), self.epoch, self.segment)
            self._checkpointed = time.monotonic()
        if reason and not last:
            raise Interrupted(self._interrupted())

    def checkpoint(self) -> Checkpoint:
        """Everything the run knows, between two visits."""
        arrays: dict[str, np.ndarray] = {}
        rows: list[dict[str, np.ndarray]] = [{} for _ in self.plan.groups]
        for number, learners in enumerate(self.learners):
            for group, learner in enumerate(learners):
                prefix = f"{number}.{group}."
                arrays |= {prefix + name: array for name, array in learner.shared_state().items()}
                rows[group] |= {prefix + name: array for name, array in learner.row_state().items()}
            if len(learners) > 1:
                arrays |= {f"{number}.start.{n}": a for n, a in self.starts[number]._asdict().items()}
            status = self.status[number]
            if status.weights is not None:
                arrays[f"{number}.best"] = status.weights
        facts = {
            "reads": self.reads,
            "seconds": self.seconds,
            "bytes_read": self.bytes_read,
            "stopped": self.stopped,
            "status": [_status_facts(status) for status in self.status],
        }
        return Checkpoint(arrays, rows, facts)

    def restore(self, saved: Checkpoint) -> None:
        """Take up a checkpoint of the same run."""
        facts = saved.facts
        self.epoch, self.segment, self.reads = facts["epoch"], facts["segment"], facts["reads"]
        self.seconds_before, self.bytes_read, self.stopped = facts["seconds"], facts["bytes_read"], facts["stopped"]
        for number, learners in enumerate(self.learners):
            for group, learner in enumerate(learners):
                prefix = f"{number}.{group}."
                held = {**saved.arrays, **saved.rows[group]}
                learner.restore({n[len(prefix) :]: a for n, a in held.items() if n.startswith(prefix)})
            if len(learners) > 1:
                kind = type(learners[0].shared)
                self.starts[number] = kind(*(saved.arrays[f"{number}.start.{n}"].copy() for n in kind._fields))
                if self.segment == 0:
                    for learner in learners[1:]:
                        learner.shared = learners[0].shared
            self.status[number] = _restored_status(facts["status"][number], saved.arrays.get(f"{number}.best"))
        if self.stopped or self.plan.resident:
            return
        for group, (first, last) in enumerate(self.plan.groups):
            if any(learners[group].set is not None for learners in self.learners):
                units = [np.array([chunk]) for chunk in range(first, last)]
                for block in self.stream.blocks(units):
                    for learners in self.learners:
                        learners[group].gather(block)


_FACTS = ("primal", "dual", "done", "since_certificate", "certify_next", "estimate", "optimism", "reads")


def _status_facts(status: Status) -> dict[str, Any]:
    facts = {name: getattr(status, name) for name in _FACTS}
    for name in ("primal", "dual", "estimate", "optimism"):  # JSON has no infinity; hexadecimal keeps every bit
        facts[name] = float(facts[name]).hex()
    return facts | {
        "progressive": status.progressive.array().tolist(),
        "total": status.total.array().tolist(),
    }


def _restored_status(facts: dict[str, Any], weights: np.ndarray | None) -> Status:
    status = Status()
    for name in _FACTS:
        setattr(status, name, facts[name])
    for name in ("primal", "dual", "estimate", "optimism"):
        setattr(status, name, float.fromhex(facts[name]))
    status.progressive, status.total = Tally.of(np.array(facts["progressive"])), Tally.of(np.array(facts["total"]))
    status.weights = None if weights is None else weights.copy()
    return status


def _add(total: Tally, part: Tally) -> None:
    total.rows += part.rows
    total.mistakes += part.mistakes
    total.updates += part.updates
    total.loss += part.loss


def _copy(state: Any) -> Any:
    return type(state)(*(array.copy() for array in state))
