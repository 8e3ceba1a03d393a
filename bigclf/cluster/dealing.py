"""The engine that deals out problems: of a run of one group, each worker goes over all rows for its share of them.

No rows are cut and nothing is merged, so the bits are those of one process, whoever learns what. The driver holds what
a problem goes on with (its state, its row state) as it was after its last round; a worker that had the problem last is
sent nothing, any other takes it up from there. Where every row stays in memory, problems are given out one by one, and
whoever is done takes the next; where rows stream by, each worker gets one share, for which it reads them once.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bigclf.cluster.book import Patience
from bigclf.cluster.carried_rows import RowPlace
from bigclf.cluster.engine import INLINE_BYTES, PREFIX, DaskEngine, _Member, balanced
from bigclf.cluster.judging import Judging
from bigclf.cluster.link import Link, submitted
from bigclf.cluster.share_tasks import attempt_share
from bigclf.cluster.worker_tasks import Parcel, changes_to, unpacked
from bigclf.maths.deltas import State, n_bytes
from bigclf.maths.mixing import Weights
from bigclf.progress import Status
from bigclf.training.engines import Round
from bigclf.training.executor import Job
from bigclf.training.roles import learner_of
from bigclf.training.roles.learner import Assignment
from bigclf.training.shares import Standing
from bigclf.training.validation import Candidate, Sums
from bigclf.training.visit import STILL, Carry, Outcome, Part, Ref, RowFile

if TYPE_CHECKING:
    from distributed import Future

MOVES = 1.25  # a share may be so many times as long as the shortest before problems move, which costs a read

Carried = tuple[
    dict[str, np.ndarray], dict[str, np.ndarray] | None
]  # rows, and in the middle of an epoch what else there is


def engine_for(job: Job) -> type[DaskEngine]:
    """The engine of a run on a cluster. Problems are dealt out where there are several, the rows are one group, and
    what is kept of them has room in memory."""
    dealt = len(job.plan.groups) == 1 and len(job.problems) > 1 and not job.plan.rows_sides
    return ShareEngine if dealt else DaskEngine


class ShareEngine(DaskEngine):
    """Problems learned by the workers of a cluster, each from all rows.

    Parameters
    ----------
    job, idle, advance, link, patience, directory : as of ``DaskEngine``.
    """

    verb, deals = "learned", True

    def __init__(
        self,
        job: Job,
        idle: Callable[[], None],
        advance: Callable[[int, int], None],
        *,
        link: Link,
        patience: Patience,
        directory: RowPlace | None,
    ) -> None:
        self._shares: list[tuple[int, ...]] = []  # of this round, the problems of each unit
        self._at: dict[int, str] = {}  # the last round of each problem, ...
        self._where: dict[int, str] = {}  # ... the worker that made it, ...
        self._kept: dict[int, Carried] = {}  # ... what it carries since, ...
        self._came: dict[int, Any] = {}  # ... and the state that it was left with
        self._found: dict[int, tuple[str, Carried | None]] = {}  # of this round: who, and what is carried
        self._spent: dict[int, float] = {}  # seconds of each problem's last visit
        self._nnz_all, self._rows_told = float(job.source.nnz), 0
        self._steps_at_driver = job.problems[0].setting.method.by_steps
        self._expected = link.count(patience.idle)
        super().__init__(job, idle, advance, link=link, patience=patience, directory=directory)

    def _way_to_keep(self) -> str:
        """What problems carry comes back with what they learned."""
        return "travels" if self._keeps else ""

    # What a run asks for

    def perform(self, round: Round) -> Iterator[Outcome]:
        self._hear(0)  # what happened since the last round
        self._round, self._found, self._rows_told = round, {}, 0
        self._shares, wishes = self._dealt(round.todo)
        token = f"{self._serial + 1}-{round.name}"
        outcomes = []
        sizes = [self._nnz_all * len(share) for share in self._shares]
        with contextlib.closing(self.work(sizes, wishes)) as units:
            for unit in units:
                outcomes.append(self._answers.pop(unit))
        outcome = self._joined(round, outcomes, token)
        self._commit(round, outcome, token)
        yield outcome

    def carry(self, group: int, ref: Ref, round: Round) -> Carry:
        found = [self._holds(number) for number in range(len(self.job.problems))]
        return Carry([rows for rows, _ in found], [shared or {} for _, shared in found] if round.midway else None)

    def restore(self, group: int, ref: Ref, carry: Carry, common: dict[int, State]) -> None:
        assert not isinstance(carry.rows, RowFile)
        self._where, self._came = {}, {}
        for number, rows in enumerate(carry.rows):
            self._at[number] = ref.token
            self._kept[number] = rows, None if carry.shared is None else carry.shared[number] or None

    def judged(self, candidates: Sequence[Candidate], measure: str) -> list[Sums] | None:
        crew = Judging(self.job, candidates, measure, self.idle, link=self.link, patience=self.patience)
        found = crew.sums()
        self.bytes_moved += crew.bytes_moved
        return found

    def status(self) -> Status:
        return {
            "workers": self.workers,
            "problems": len(self._round.todo) if self._round is not None else len(self.job.problems),
            "problems_done": len(self._found),
            "bytes_moved": self.bytes_moved,
            "events": self._recent,
        }

    # A round

    def _dealt(self, todo: Sequence[int]) -> tuple[list[tuple[int, ...]], list[str | None]]:
        """The problems of each unit, the longest first, and the worker that is to have it."""
        plan, ready = self.job.plan, [m.address for m in self._members.values() if m.state == "ready"]
        lengths = {number: self._length(number) for number in todo}
        if not plan.resident:
            return shared_out(lengths, self._where, ready, max(self._expected - len(ready), 0))
        order = sorted(todo, key=lambda number: (-lengths[number], -number))
        firsts = range(0, len(order), plan.learners)
        units = [tuple(sorted(order[first : first + plan.learners])) for first in firsts]
        return units, balanced([self._where.get(unit[0]) for unit in units], len(ready))

    def _length(self, number: int) -> float:
        """How long a visit to the problem is likely to take: as the last one did, or by its part of the memory. Of one
        that is to begin where every row stays in memory, longer than any other: its first visit is its longest."""
        if self.job.plan.resident:
            return self._spent.get(number, math.inf)
        shares = self.job.plan.shares
        return self._spent.get(number, shares[number] if shares else 1.0)

    def _joined(self, round: Round, outcomes: list[Outcome], token: str) -> Outcome:
        """What came of all shares, as one process would say it."""
        parts: dict[int, Part] = {}
        for share, outcome in zip(self._shares, outcomes, strict=True):
            parts |= zip(share, outcome.parts, strict=False)
        told = [outcome.facts for outcome in outcomes]
        facts = {name: sum(each[name] for each in told) for name in ("set_rows", "bytes_read", "rebuilt", "decoded")}
        most = "rounds", "steps", "again", "rows", "seconds", "waited"
        facts |= {name: max(each[name] for each in told) for name in most}
        facts["busy"] = {number: seconds for each in told for number, seconds in each["busy"].items()}
        return Outcome(0, 1, token, [parts[number] for number in round.todo if number in parts], None, facts)

    def _commit(self, round: Round, outcome: Outcome, token: str) -> None:
        """The round is over: problems go on from what it left."""
        for number, (address, carried) in self._found.items():
            self._at[number], self._where[number] = token, address
            if carried is not None:
                self._kept[number] = carried
            elif round.kind not in STILL:
                self._kept.pop(number, None)
        self._came |= {number: part.state for number, part in zip(round.todo, outcome.parts, strict=False)}
        self._spent |= outcome.facts["busy"]
        self._found = {}

    # Its units

    def _called(self, unit: int) -> str:
        share = self._shares[unit]
        first, *others = (self.job.problems[number].name for number in share)
        return f"the problem {first}" if not others else f"{len(share)} problems ({first} to {others[-1]})"

    async def _submit(self, unit: int, attempt: int, member: _Member) -> Future:
        share, round, client = self._shares[unit], self._round, self.link.client
        assert round is not None
        visit = round.visit(0, 1)
        visit = visit._replace(refs=(None,), lessons=tuple(ln for ln in visit.lessons if ln.number in share))
        standings = self._standings(visit.todo, member.address, round)
        begun = {other for ln in visit.lessons if ln.begins for other, _ in self.job.problems[ln.number].start}
        standings |= {number: self._standing(number, member.address) for number in begun - standings.keys()}
        parcel: Any = Parcel(standings)
        size = n_bytes([tuple(at) for at in standings.values()])
        if size > INLINE_BYTES:
            parcel = await self._put(parcel, member.address)
        self.bytes_moved += size
        token = f"{self.job.run[:8]}-{round.name}-0-{unit}-{attempt}-{self._serial}"
        return submitted(
            client, attempt_share, Parcel(visit), member.anchor, member.address, f"{self._serial}-{round.name}", parcel,
            self._keep(round) != "" and round.kind not in STILL, key=(PREFIX, token), workers=[member.address],
            pure=False,
        )  # fmt: skip

    def _standings(self, todo: Sequence[int], address: str, round: Round) -> dict[int, Standing]:
        """Of the problems that are visited: what the worker lacks of them goes with it."""
        states = dict(zip(round.todo, round.states, strict=True))
        found = {}
        for number in todo:
            at, state = self._standing(number, address), states[number]
            here = at.token and self._where.get(number) == address
            as_left = self._came.get(number) is state and not self._steps_at_driver
            if not (here and (round.segment > 0 or as_left)):
                at = at._replace(state=changes_to(self._zero(number), state, self.job.plan) or state)
            found[number] = at
        return found

    def _standing(self, number: int, address: str) -> Standing:
        """What the problem carries, where the worker has not had it last."""
        token = self._at.get(number, "")
        if not token or self._where.get(number) == address or number not in self._kept:
            return Standing(token)
        return Standing(token, None, *self._kept[number])

    def _zero(self, number: int) -> Weights:
        state: Weights = self.job.problems[number].setting.shared(self.job.source.n_features, self.job.plan.dtype)
        return state

    def _accept(self, unit: int, address: str, answer: Outcome) -> None:
        assert self._round is not None
        self.worker_memory = max(self.worker_memory, answer.facts["memory"])
        share, states = self._shares[unit], dict(zip(self._round.todo, self._round.states, strict=True))
        parts = []
        for number, part in zip(share, answer.parts, strict=False):
            if part.state is None:
                part = part._replace(state=states[number])
            parts.append(unpacked(part, self._zero(number)))
        self._answers[unit] = answer._replace(parts=parts, carry=None)
        carry = answer.carry
        for place, number in enumerate(share):
            carried = None
            if carry is not None:
                assert not isinstance(carry.rows, RowFile)
                carried = carry.rows[place], None if carry.shared is None else carry.shared[place]
            self._found[number] = address, carried
        done = len(self._found) * answer.facts["rows"] // len(self._round.todo)
        self.advance(done - self._rows_told, answer.facts["bytes_read"])
        self._rows_told = done

    def _reported(self, address: str) -> None: ...

    def _lacking(self, unit: int, address: str) -> None:
        for number in self._shares[unit]:
            for one in (number, *(other for other, _ in self.job.problems[number].start)):
                self._where.pop(one, None)

    def _forgotten(self, address: str) -> None:
        self._where = {number: where for number, where in self._where.items() if where != address}

    # What problems carry

    def _holds(self, number: int) -> Carried:
        """As the last round left it; of one whose turn has not come, as it will begin."""
        if number not in self._kept:
            job = self.job
            rows = int(job.source.chunks.rows.sum())
            given = Assignment(job.problems[number], job.plan, number, 0, rows, job.source)
            self._kept[number] = learner_of(given).carried_rows(False), None
        return self._kept[number]


def shared_out(
    lengths: Mapping[int, float], where: Mapping[int, str], ready: Sequence[str], coming: int = 0
) -> tuple[list[tuple[int, ...]], list[str | None]]:
    """A share for each worker, and whose it is (None: whoever comes).

    Parameters
    ----------
    lengths : of each problem's visit. where : the worker that had it last. ready : workers. coming : how many more are
        expected.
    """
    names: list[str | None] = [*ready, *[None] * max(coming, 0 if ready else 1)]
    hands: list[list[int]] = [[] for _ in names]
    totals = np.zeros(len(names))

    def give(number: int, hand: int) -> None:
        hands[hand].append(number)
        totals[hand] += lengths[number]

    order = sorted(lengths, key=lambda number: (-lengths[number], number))
    for number in order:
        if (home := where.get(number)) in ready:
            give(number, names.index(home))
    for number in order:
        if where.get(number) not in ready:
            give(number, int(totals.argmin()))
    while True:
        most, least = int(totals.argmax()), int(totals.argmin())
        lightest = min(hands[most], key=lambda number: lengths[number], default=None)
        if lightest is None or totals[most] <= MOVES * (totals[least] + lengths[lightest]):
            break
        hands[most].remove(lightest)
        totals[most] -= lengths[lightest]
        give(lightest, least)
    dealt = [(tuple(sorted(hand)), name) for hand, name in zip(hands, names, strict=True) if hand]
    return [hand for hand, _ in dealt], [name for _, name in dealt]
