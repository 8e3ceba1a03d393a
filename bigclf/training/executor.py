"""The bench: what one process needs to make visits, be it the only one of a run or one of many on a cluster.

All engines make their visits here, so that their results have the same bits by construction.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf import files
from bigclf.data.dataset import Dataset
from bigclf.data.shards import release_unused
from bigclf.errors import RunError
from bigclf.limits import cores, memory_limit
from bigclf.maths.block import Block
from bigclf.maths.deltas import State
from bigclf.maths.mixing import Weights
from bigclf.stream.blocks import Stream
from bigclf.stream.raw_store import ROW_BYTES, RawStore, chunk_sizes, entry_bytes
from bigclf.stream.row_files import RowStore
from bigclf.stream.working_set import Members
from bigclf.training.blend import Blend
from bigclf.training.core_team import Team
from bigclf.training.plan import Plan, proves_alone, segment_units, units_of
from bigclf.training.problems import Problem
from bigclf.training.roles import learner_of
from bigclf.training.roles.learner import Assignment, Learner
from bigclf.training.roles.steps import SumsLearner
from bigclf.training.roles.turn import Turn, lots, teach_together
from bigclf.training.summing import Summing
from bigclf.training.visit import (
    STILL,
    Carry,
    Outcome,
    Part,
    Ref,
    RowFile,
    Visit,
)
from bigclf.units import format_bytes

if TYPE_CHECKING:
    from bigclf.data.arrays import Arrays


log = logging.getLogger("bigclf")
HELD_BYTES = 64_000_000  # what Arrow may hold beyond its need where the budget has room
CACHE_SHARE = 0.2  # of the machine's (or control group's) memory: a raw store up to that may stay in the page cache


class Job(NamedTuple):
    """What stays the same during a run: its name, the rows, what is learned, how, the tolerance, and where this
    machine may keep a raw store (None: a nameless file)."""

    run: str
    source: Any
    problems: list[Problem]
    plan: Plan
    tol: float | None
    local_dir: str | None


class Missing(Exception):
    """The process lacks what a visit goes on from; it is to be sent along."""


class Share:
    """Tells ``advance`` of a block's rows and bytes as its problems are done: many, each with rounds of its own, take
    long over rows in memory."""

    def __init__(self, advance: Callable[[int, int], None], block: Block, parts: int) -> None:
        self._advance, self._whole, self._parts, self._before = advance, (block.n_rows, block.n_bytes), parts, (0, 0)

    def told(self, done: int) -> None:
        rows, n_bytes = (size * done // self._parts for size in self._whole)
        if (rows, n_bytes) != self._before:
            self._advance(rows - self._before[0], n_bytes - self._before[1])
            self._before = rows, n_bytes


class Bench:
    """A place to make visits, one at a time.

    Large because what a process keeps between visits (stream, stores, learners) is restored and handed over as one.

    Parameters
    ----------
    job : what stays the same.
    idle : called between two kernels; may raise to break off.
    advance : told of rows and bytes that have been through the kernels.
    """

    def __init__(
        self,
        job: Job,
        idle: Callable[[], None] = lambda: None,
        advance: Callable[[int, int], None] = lambda rows, n_bytes: None,
    ) -> None:
        self.job, self.idle, self.advance = job, idle, advance
        self.source, self.plan, self.problems = job.source, job.plan, job.problems
        self._rows = row_store_of(job)  # first: the raw store takes what room is left
        self.stream = stream_of(job)
        chunks = self.source.chunks
        self.group_rows = [int(chunks.rows[a:b].sum()) for a, b in self.plan.groups]
        self._chunk_bytes = chunk_sizes(self.source)
        self._learners: dict[int, list[Learner]] = {}
        self._at: dict[int, tuple[str, bool]] = {}  # of a group: the last attempt made here, whether it is settled
        self._resident: dict[int, Block] = {}
        self._spare: list[list[Any]] = [[] for _ in self.problems]
        self._team = Team(job.plan.learners)
        self._summing = Summing(self.plan, self.source, self.stream, self._team, idle, advance)
        self._bytes = self._told = 0
        self._files_sets = False  # the raw store has no room for every row
        aside = proves_alone(job.plan, len(job.problems))  # then memory has no room for a copy of the weights
        self._aside = files.scratch_directory(job.local_dir) if aside else None

    # A visit

    def visit(self, visit: Visit, states: Sequence[Weights], carries: Sequence[Carry | None], token: str) -> Outcome:
        """Make a visit.

        Parameters
        ----------
        states : common state of each problem still learned; never changed, unless the run has one group only.
        carries : of each group what it goes on from, where this process may not have it.
        token : name of this attempt.

        Raises
        ------
        Missing : the group goes on from something that this process has not.
        DataError : rows that cannot be used.
        """
        began, self._bytes = time.monotonic(), 0
        rebuilt, waited = self._rebuilt, self.stream.waited
        facts: dict[str, Any] = {"rounds": 0, "steps": 0, "again": 0.0, "set_rows": 0, "busy": {}}
        if visit.last - visit.first > 1:
            parts = self._bundle(visit, states, token, facts)
        else:
            parts = self._one(visit, visit.first, states, carries[0], token, facts)
        facts |= {
            "rows": sum(self.group_rows[visit.first : visit.last]),
            "bytes_read": self._bytes,
            "rebuilt": self._rebuilt - rebuilt,
            "seconds": time.monotonic() - began,
            "waited": self.stream.waited - waited,
            "decoded": self.stream.bytes_decoded - self._told,  # what was gathered before it, too
        }
        self._told = self.stream.bytes_decoded
        return Outcome(visit.first, visit.last, token, parts, None, facts)

    @property
    def _rebuilt(self) -> int:
        return 0 if self.stream.store is None else self.stream.store.rebuilt

    def _bundle(self, visit: Visit, states: Sequence[Weights], token: str, facts: dict[str, object]) -> list[Part]:
        """Several groups one after another, joined as the run would join them."""
        blends = [Blend(self.problems[n], state) for n, state in zip(visit.todo, states, strict=True)]
        for group in range(visit.first, visit.last):
            parts = self._one(visit, group, states, None, token, facts)
            for blend, part in zip(blends, parts, strict=True):
                blend.add(part)
            self.recycle(group)
        return [blend.part() for blend in blends]

    def _one(
        self,
        visit: Visit,
        group: int,
        states: Sequence[Weights],
        carry: Carry | None,
        token: str,
        facts: dict[str, object],
    ) -> list[Part]:
        self.bring(group, visit.refs[group - visit.first], carry, visit, states)
        if visit.kind == "update" and visit.epoch > 1:
            self.decode([group])
        learners = [self._of(group)[number] for number in visit.todo]
        self._at[group] = "", False  # half-way through, it is nothing to go on from
        for learner, lesson in zip(learners, visit.lessons, strict=True):
            learner.prepare(lesson)
        if any(lesson.begins for lesson in visit.lessons):
            self._begin_with_others(visit, group, learners, states)
        if visit.segment == 0:
            for learner, state, lesson in zip(learners, states, visit.lessons, strict=True):
                spare = self._spare[learner.number]
                held = spare.pop() if spare and learner.shared is None else None
                learner.begin(state, lesson, visit.kind in STILL, held)
        if visit.kind == "close":
            for learner in learners:
                learner.cut_short()
        elif visit.kind in STILL:
            for block in self._blocks(visit, group):
                self._team.each(learners, functools.partial(Learner.look_at, block=block), self.idle)
                self.advance(block.n_rows, block.n_bytes)
        else:
            self._update(visit, group, learners, facts)
        self._at[group] = token, False
        if visit.kind == "update" and visit.segment < self.plan.segments - 1:
            return []
        ends = zip(learners, states, visit.lessons, strict=True)
        return [learner.end(state, lesson.certify) for learner, state, lesson in ends]

    def _begin_with_others(self, visit: Visit, group: int, learners: list[Learner], states: Sequence[Weights]) -> None:
        """Problems whose turn it is begin with the dual variables of those they waited for; every row is at hand."""
        everyone = self._of(group)
        for block in self._blocks(visit, group):
            for learner, state, lesson in zip(learners, states, visit.lessons, strict=True):
                if lesson.begins:
                    others = [(everyone[number], factor) for number, factor in learner.problem.start]
                    learner.begin_with(others, learner.view(block), state)

    def _update(self, visit: Visit, group: int, learners: list[Learner], facts: dict[str, Any]) -> None:
        turns = [Turn(ln, lesson, self.job.tol) for ln, lesson in zip(learners, visit.lessons, strict=True)]
        trace = len(self.problems) == 1 and visit.epoch == 1 and learners[0].may_trace
        for learner in learners:
            learner.begin_segment(visit.epoch, visit.segment, trace)
        adding = [learner for learner in learners if isinstance(learner, SumsLearner)]
        if adding:
            took = self._summing.go(visit, group, adding, functools.partial(self._blocks, visit, group))
            _add_seconds(facts["busy"], took.items())
            return
        for block in self._blocks(visit, group):
            if self.plan.tiled and visit.epoch > 1:
                many = lots(turns)
                told = Share(self.advance, block, len(many)).told
                self._team.each(many, functools.partial(teach_together, block=block), self.idle, told)
            else:
                told = Share(self.advance, block, len(turns)).told
                self._team.each(turns, functools.partial(Turn.teach, block=block), self.idle, told)
        if visit.segment == self.plan.segments - 1 and self.plan.set_rows:
            if len(self.plan.groups) == 1:  # else another group's blocks come next
                self.stream.fetch(self._next_units(visit, group))
            self._team.each(turns, Turn.finish, self.idle)
            facts["set_rows"] += sum(learner.set.n_rows for learner in learners if learner.set is not None)
        facts["rounds"] = max([facts["rounds"], *(turn.rounds for turn in turns)])
        facts["steps"] = max([facts["steps"], *(turn.steps for turn in turns)])
        facts["again"] = max([facts["again"], *(turn.learner.again for turn in turns)])
        if trace:
            facts["curve"] = learners[0].curve
        _add_seconds(facts["busy"], ((turn.learner.number, turn.seconds) for turn in turns))

    def _blocks(self, visit: Visit, group: int, drawn: bool = False) -> Iterator[Block]:
        if self.plan.resident:
            yield self._loaded(group)
            return
        self.source.check_unchanged(self.plan.groups[group])
        units = self._units(visit, group, drawn)
        if self._rows is not None:
            self._rows.expect(units)
        for block in self.stream.blocks(units, self._next_units(visit, group)):
            self._bytes += block.n_bytes
            yield block

    def _loaded(self, group: int) -> Block:
        """The group's rows, which stay in memory."""
        if group not in self._resident:
            first, last = self.plan.groups[group]
            self._resident[group] = self.stream.load(np.arange(first, last))
            self._bytes += self._resident[group].n_bytes
        return self._resident[group]

    def _every_block(self, group: int) -> Iterator[Block]:
        """Every row of the group once, chunk after chunk where they stream by."""
        if self.plan.resident:
            yield self._loaded(group)
            return
        yield from self.stream.blocks(_one_by_one(range(*self.plan.groups[group])))

    def _next_units(self, visit: Visit, group: int) -> list[np.ndarray]:
        """What is read after this visit, where that is known and comes from the store: of the only group, its next
        part."""
        alone = len(self.plan.groups) == 1 and visit.kind == "update"
        if not alone or self.stream.store is None or not self.stream.threads:
            return []
        last = visit.segment == self.plan.segments - 1
        ahead = visit._replace(epoch=visit.epoch + last, segment=0 if last else visit.segment + 1)
        return self._units(ahead, group)

    def _units(self, visit: Visit, group: int, drawn: bool = False) -> list[np.ndarray]:
        """The chunks of each block that the visit reads; ``drawn`` : in a random order whatever the plan says."""
        plan = dataclasses.replace(self.plan, sequential=False) if drawn else self.plan
        units = units_of(plan, self.source.chunks, self._chunk_bytes, group, visit.epoch)
        return segment_units(self.plan, units, visit.segment) if visit.kind == "update" else units

    # What groups carry from visit to visit

    def _of(self, group: int) -> list[Learner]:
        if group not in self._learners:
            self._learners[group] = [self._learner(number, group) for number in range(len(self.problems))]
        return self._learners[group]

    def _learner(self, number: int, group: int) -> Learner:
        """A problem at its beginning."""
        problem, rows = self.problems[number], self.group_rows[group]
        return learner_of(Assignment(problem, self.plan, number, group, rows, self.source, self._rows, self._aside))

    def bring(
        self,
        group: int,
        ref: Ref | None,
        carry: Carry | None,
        visit: Visit | None = None,
        states: Sequence[Weights] = (),
    ) -> None:
        """Make the group stand where ``ref`` says: from what is here, else from ``carry``."""
        token, is_settled = self._at.get(group, ("", False))
        if ref is None:
            self._learners.pop(group, None)
            return
        if token == ref.token:
            if not is_settled and ref.steps:
                for learner, t in zip(self._of(group), ref.steps, strict=True):
                    learner.settle(t)
            self._at[group] = token, True
            return
        if carry is None:
            if visit is not None and visit.segment == 0 and not self._keeps:
                return  # nothing is carried from epoch to epoch
            raise Missing(f"group {group} at {ref.token}")
        self.restore(group, ref, carry, dict(zip(visit.todo, states, strict=True)) if visit is not None else {})

    @property
    def _keeps(self) -> bool:
        return self.problems[0].setting.method.keeps_rows

    def restore(self, group: int, ref: Ref, carry: Carry, common: dict[int, State]) -> None:
        """Take up what a group carries; ``common`` has the common state of each problem in the middle of an epoch."""
        self.decode([group])
        learners = self._of(group)
        assert not isinstance(carry.rows, RowFile)
        for number, learner in enumerate(learners):
            learner.restore_rows(carry.rows[number])
            if carry.shared is not None and carry.shared[number]:
                if learner.shared is None and self._spare[number]:
                    self._spare[number].pop()  # it comes with memory of its own, which is recycled in its turn
                learner.restore_state(carry.shared[number], common[number])
        if any(learner.set is not None and learner.set.n_rows for learner in learners):
            self._gather(group, learners)
        self._make_again(group, {n: held["point"] for n, held in enumerate(carry.rows) if "point" in held}, common)
        self._at[group] = ref.token, True

    def _make_again(self, group: int, points: Mapping[int, np.ndarray], common: Mapping[int, State]) -> None:
        """Per-row arrays that did not travel, by a read of the rows at these points."""
        adding = [learner for learner in self._of(group) if isinstance(learner, SumsLearner)]
        states = [(ln, ln.state_again(common[ln.number], points[ln.number])) for ln in adding if ln.number in points]
        if states:
            for block in self._every_block(group):
                for learner, state in states:
                    learner.make_again(block, state)

    def _gather(self, group: int, learners: Sequence[Learner]) -> None:
        """The rows that the working sets of a group expect."""
        for block in self._every_block(group):
            for learner in learners:
                learner.gather(block)

    # The memory that decoding took, and working sets take over

    def decode(self, groups: Iterable[int]) -> None:
        """Decode what the raw store lacks of these groups, row group after row group, where a process that comes to
        them after the first epoch could not well do so in the read: blocks have chunks of many row groups, or there is
        no memory beside a grown working set, which is laid aside meanwhile. What the disk has no room for is decoded
        in every read; then the sets lie in files, for their size is the plan's, whatever a machine has.

        Raises
        ------
        RunError : there is no room for these either.
        """
        if not (self.plan.grown or self.plan.redrawn) or not (lacking := self._lacking(groups)):
            return
        if self.stream.store is not None and not self._files_sets:
            aside = self._lay_aside()
            for _ in self.stream.blocks(_one_by_one(lacking)):
                pass
            release_unused()
            self._take_up(aside)
            lacking = self._lacking(groups)
        self._files_sets = bool(lacking)
        if lacking:
            self._put_sets_in_files(groups)

    def _lacking(self, groups: Iterable[int]) -> list[int]:
        """Chunks that are not in the raw store."""
        chunks = [chunk for group in groups for chunk in range(*self.plan.groups[group])]
        store = self.stream.store
        return chunks if store is None else [chunk for chunk in chunks if not store.has(chunk)]

    def _lay_aside(self) -> list[tuple[int, Learner, Members]]:
        """Give back the memory of grown working sets: of which group and learner, and what rows they had."""
        found = []
        for group, learners in self._learners.items():
            for learner in learners:
                if learner.set is not None and learner.set.grown and not learner.set.filed:
                    found.append((group, learner, learner.set.let_go()))
        return found

    def _take_up(self, aside: list[tuple[int, Learner, Members]]) -> None:
        """Bring the rows again that were laid aside."""
        for _, learner, members in aside:
            assert learner.set is not None
            learner.set.expect(members)
        for group in sorted({group for group, _, _ in aside}):
            self._gather(group, [learner for at, learner, _ in aside if at == group])

    def _put_sets_in_files(self, groups: Iterable[int]) -> None:
        directory = _local_directory(self.job.local_dir)
        try:
            for held in (learner.set for group in groups for learner in self._of(group)):
                if held is not None:
                    held.put_in_file(directory)
        except OSError as error:
            raise RunError(
                f"the disk of {directory!r} has no room for decoded rows, nor for working sets "
                f"({error.strerror}): name another directory (local_dir)"
            ) from error

    def rows_before(self, group: int, number: int) -> dict[str, np.ndarray]:
        """The row arrays of a problem as they were before the group's last epoch; none where it is the only group."""
        return {f"before.rows.{name}": array for name, array in self._of(group)[number].rows_before().items()}

    def carry(self, group: int, midway: bool, todo: Sequence[int]) -> Carry:
        """What the group carries as it stands (views, not copies)."""
        learners = self._of(group)
        rows = [learner.carried_rows(midway) for learner in learners]
        if not midway:
            return Carry(rows, None)
        return Carry(rows, [ln.carried_state() if ln.number in todo else {} for ln in learners])

    def recycle(self, group: int) -> None:
        """The state of the group's copies has been taken: their memory may be used again."""
        if len(self.plan.groups) == 1:
            return
        for learner in self._learners.get(group, ()):
            learner.rest()
            if learner.shared is not None:
                self._spare[learner.number].append(learner.shared)
                learner.shared = None
        if not self._keeps:
            self._learners.pop(group, None)

    def release(self) -> None:
        """Let go of all that is large."""
        self.forget()
        self._resident = {}

    def forget(self) -> None:
        """Let go of what was learned."""
        self._learners, self._spare = {}, [[] for _ in self.problems]
        self._summing.forget()
        self._team.rest()

    def close(self) -> None:
        self.release()
        self._team.close()
        self.stream.close()
        if self._rows is not None:
            self._rows.close()

    # Beside the visits

    def everything(self) -> Iterator[tuple[int, Block]]:
        """Every row once, as (number of the row that ids call 0, block): from memory where they are."""
        for group, (first, last) in enumerate(self.plan.groups):
            row0 = int(self.source.chunks.row0[first])
            if group in self._resident:
                yield row0, self._resident[group]
                continue
            for block in self.stream.blocks([np.array([chunk]) for chunk in range(first, last)]):
                yield row0, block

    def every_row(self) -> Iterator[tuple[int, Block]]:
        """The same; rows that the plan keeps in memory are there from then on."""
        for group, (first, _) in enumerate(self.plan.groups):
            for block in self._every_block(group):
                yield int(self.source.chunks.row0[first]), block

    def loaded(self) -> list[Block]:
        """The rows that stay in memory, a block for each group."""
        return [self._loaded(group) for group in range(len(self.plan.groups))]

    def take_over(self, other: Bench) -> None:
        """Use the rows that another bench of the same source has in memory or in its raw store; it is closed then."""
        if self.plan.resident and self.plan.groups == other.plan.groups:
            self._resident = dict(other._resident)
        if other.stream.store is not None:
            if self.stream.store is not None:
                self.stream.store.close()
            self.stream.store, other.stream.store = other.stream.store, None
        other.close()


def _one_by_one(chunks: Iterable[int]) -> list[np.ndarray]:
    return [np.array([chunk]) for chunk in chunks]


def stream_of(job: Job) -> Stream:
    """The way to the rows: read ahead, through a raw store where data are read more than once from files."""
    source, plan = job.source, job.plan
    chunks = source.chunks
    place = np.concatenate([chunks.row0[a:b] - chunks.row0[a] for a, b in plan.groups]) if plan.groups else chunks.row0
    store = None
    if isinstance(source, Dataset) and plan.store_bytes:
        store = _store(source, job.local_dir)
    if isinstance(source, Dataset) and (store is None or not store.stored.all()):
        source.prepare()
        if store is not None:
            store.prepare()
    size = max(plan.block_bytes, int(chunk_sizes(source).max(initial=0)))
    rows, nnz = size // ROW_BYTES + 1, size // entry_bytes(source) + 1
    return Stream(source, place, store=store, threads=plan.threads, buffers=plan.buffers, rows=rows, nnz=nnz,
                  frugal=is_frugal(plan), copiers=max(1, cores() - 1), whole=plan.whole)  # fmt: skip


def is_frugal(plan: Plan) -> bool:
    """Whether what decoding took is given back at once: the budget has no room for what Arrow would hold on to."""
    return plan.memory["planned"] + HELD_BYTES > plan.memory["budget"]


def row_store_of(job: Job) -> RowStore | None:
    """Where the per-row arrays are; None: in memory.

    Raises
    ------
    RunError : there is no room on the local disk.
    """
    plan = job.plan
    if not plan.rows_sides:
        return None
    largest = max(plan.arena(number, grown=True)[0] for number in range(len(job.problems)))
    directory = _local_directory(job.local_dir)
    log.info("dual variables on disk: %s in %s", format_bytes(plan.rows_bytes), directory)
    return RowStore(
        job.source.chunks.rows,
        len(job.problems),
        job.problems[0].setting.row_numbers,
        plan.rows_sides,
        directory,
        largest,
        _cache_share(),
        len(plan.groups),
    )


def _local_directory(local_dir: str | os.PathLike[str] | None) -> str:
    if local_dir is not None:
        files.make_directory(local_dir)
    return files.scratch_directory(local_dir)


def _cache_share() -> int:
    """Bytes of a file that may stay in the page cache."""
    return int(CACHE_SHARE * memory_limit()[0])


def _store(source: Dataset | Arrays, local_dir: str | os.PathLike[str] | None) -> RawStore | None:
    try:
        directory = _local_directory(local_dir)
        room = int(files.free_bytes(directory) * 0.8)
        return RawStore(source, directory, keep=local_dir is not None, limit=room, cache=_cache_share())
    except OSError as error:
        log.warning("no raw store (%s): the shards are decoded in every read", error)
        return None


def _add_seconds(busy: dict[int, float], took: Iterable[tuple[int, float]]) -> None:
    """Add the seconds of a core that problems took."""
    for number, seconds in took:
        busy[number] = busy.get(number, 0.0) + seconds
