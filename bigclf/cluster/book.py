"""The book of a round: what was given to whom, what is to be done next, and whose result counts.

Events go in (a worker joined, was seen, left; an attempt finished, failed, was lost), actions come out (submit, cancel,
try in a child process, give up). No cluster, no clock and no arrays in here: ``now`` is handed in, in seconds of one
monotonic clock, and the same events give the same actions. An event costs a few dozen steps however many units and
workers there are: nothing is ever scanned, what may change by itself waits in a heap for its time.

Where an attempt can be
-----------------------
A worker does what it was given one after the other, so the book keeps a queue for each. The first of a queue can be
running, and its clock starts when it becomes the first; the others wait. An attempt is

* counted on while its worker is a *good* one;
* doubted once its worker gave no sign of life or it took too long itself: the unit is given out again, but whatever
  comes first wins, and if the worker comes back before another took the unit over, all is as it was;
* *cancelled* when another's result won. Nothing can stop one that runs already, so a cancelled first stays at the head
  of its queue, and those behind it are not late, until the worker reports something later or its time is over.

What happened to an attempt that is over (twice, too late, after its worker left) is not listened to, but for a result:
that is accepted as long as its unit has none.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple, TypedDict

REMEMBERED = 101  # speeds the median is taken of
LOOK = 8  # units that wait for another worker than those with room: so many are looked at before the rest has to wait
LENIENCE = 3  # a late visit gets so many times longer before its worker is tried, or relied on, again
MOST_DEATHS = 10  # times ``deaths``: a unit that passes every trial and yet so many workers die at it
MOST_ATTEMPTS = 1000  # of a unit: something goes round in circles


class Patience(NamedTuple):
    """When to stop believing in something.

    Attributes
    ----------
    stale : seconds without a sign of life after which a worker counts as frozen.
    factor, least : a visit may take max(least, factor x expected) seconds from when it can start; twice as long for
        each time its unit was late before, so that one that really takes so long gets done in the end.
    retries : failures of a unit by exception that are forgiven.
    deaths : workers that died at a unit before it is put on trial.
    idle : seconds without any usable worker after which the round is given up.
    window : most attempts in flight at a worker.
    """

    stale: float = 10.0
    factor: float = 4.0
    least: float = 30.0
    retries: int = 3
    deaths: int = 2
    idle: float = 300.0
    window: int = 2


class Submit(NamedTuple):
    """Have ``worker`` do the unit."""

    unit: int
    attempt: int
    worker: str


class Trial(NamedTuple):
    """Have ``worker`` do the unit in a child process: workers died at it. Else as Submit."""

    unit: int
    attempt: int
    worker: str


class Cancel(NamedTuple):
    """The attempt is not wanted any more; it may be over already."""

    unit: int
    attempt: int


class Repetition(TypedDict):
    """An attempt that was given up on."""

    unit: int
    attempt: int
    worker: str
    why: str


class GiveUp(NamedTuple):
    """The round cannot be finished: because of the unit, or (None) for want of workers. The last action there is.

    killed : workers die at the unit, and trials of it do not.
    """

    reason: str
    unit: int | None
    killed: bool = False


Action = Submit | Trial | Cancel | GiveUp


@dataclass(slots=True, eq=False)
class _Unit:
    number: int
    size: float
    preferred: str | None
    attempts: int = 0  # made so far
    open: dict[int, _Attempt] = field(default_factory=dict)  # those not over
    finished: bool = False
    worker: str = ""  # whose result counts
    pending: bool = False  # to be given out again
    cause: Repetition | None = None  # ... because of this
    failed_at: list[str] = field(default_factory=list)  # workers, one for each failure by exception
    reasons: list[str] = field(default_factory=list)  # distinct ones
    deaths: int = 0  # since it was acquitted
    all_deaths: int = 0
    overdue: int = 0  # attempts that took too long


@dataclass(slots=True, eq=False)
class _Attempt:
    unit: _Unit
    number: int
    worker: _Worker
    trial: bool
    cancelled: bool = False
    passed: bool = False  # the worker reported something that was behind it in the queue
    began: float = 0.0  # when it became the first in the queue
    timed: bool = True  # whether the time since then is how long it took
    alarm: float = math.nan  # when to look at it next


@dataclass(slots=True, eq=False)
class _Worker:
    name: str
    seen: float  # last sign of life
    queue: list[_Attempt] = field(default_factory=list)
    own: deque[_Unit] = field(default_factory=deque)  # units that would rather come here, not all still to be begun
    stale: bool = False
    late: bool = False  # the first in the queue took too long
    died: float | None = None  # when a death was told of; until it leaves, or is seen after that
    gone: bool = False
    faults: int = 0  # times it was late and never reported, since its last result
    pool: _Pool | None = None
    room: dict[str, _Worker] | None = None

    @property
    def load(self) -> int:
        """Attempts in flight; of the cancelled only the first in a queue is still in it."""
        return len(self.queue) - (self.queue[0].cancelled if self.queue else False)


class _Pool:
    """Workers that can be given something, those with room sorted by how much is before it, longest waiting first."""

    def __init__(self, window: int) -> None:
        self.members: dict[str, _Worker] = {}
        self.rooms: list[dict[str, _Worker]] = [{} for _ in range(window)]

    def with_room(self) -> Iterator[_Worker]:
        for room in self.rooms:
            yield from room.values()


class _Speeds:
    """The last seconds a size unit took, and their median."""

    def __init__(self, earlier: Sequence[float]) -> None:
        self.recent: deque[float] = deque()
        self._sorted: list[float] = []
        for seconds in earlier:
            self.add(seconds)

    def add(self, seconds: float) -> None:
        if not 0 <= seconds < math.inf:
            return
        if len(self.recent) == REMEMBERED:
            del self._sorted[bisect_left(self._sorted, self.recent.popleft())]
        self.recent.append(seconds)
        insort(self._sorted, seconds)

    @property
    def median(self) -> float | None:
        return self._sorted[len(self._sorted) // 2] if self._sorted else None


class Book:
    """The book of one round over units 0, 1, ..., which are committed in this order.

    Large because it is one state machine: every event may change what is to be done with any unit or worker.

    Drain what happened into the events, tell of every worker's last sign of life (``seen``), then ask for ``actions``:
    several times a second, as freezes and delays are noticed there only.

    Parameters
    ----------
    sizes : cost of each unit, at least 0, in any measure (non-zeros); expected seconds = size x median speed.
    patience : when to stop believing in something.
    ahead : units more than so many past the first uncommitted one are not begun; None: no such limit.
    preferred : of each unit the worker that has what it needs, or None; () if there is none for any.
    speeds : seconds a size unit took in earlier rounds (their ``speeds``). With none known, then or in this round,
        no visit is too slow, and only frozen and departed workers are given up on.

    Raises
    ------
    ValueError : on sizes, a window or preferences that make no sense.
    """

    def __init__(
        self,
        sizes: Sequence[float],
        patience: Patience | None = None,
        *,
        ahead: int | None = None,
        preferred: Sequence[str | None] = (),
        speeds: Sequence[float] | None = None,
    ) -> None:
        self._patience = patience = patience or Patience()
        _check(sizes, patience, ahead, preferred)
        wishes = preferred or [None] * len(sizes)
        self._units = [_Unit(k, float(s), w) for k, (s, w) in enumerate(zip(sizes, wishes, strict=True))]
        self._ahead = ahead
        self._speeds = _Speeds(speeds or ())
        self._workers: dict[str, _Worker] = {}
        self._good, self._late = _Pool(patience.window), _Pool(patience.window)
        self._asking: dict[str, _Worker] = {}  # with room, and perhaps with units that would rather go there
        self._opened = 0  # units below may be begun
        self._lowest = 0  # units below are begun
        self._committed = self._finished = 0
        self._fresh: list[int] = []  # heap of opened units that are on no worker's list
        self._repeats: list[int] = []  # heap of units to be given out again, some no longer
        self._alarms: list[tuple[float, int, _Worker, _Attempt | None]] = []  # heap: look at it then
        self._serial = 0
        self._out: list[Action] = []
        self._events: list[Repetition] = []
        self._verdict: GiveUp | None = None
        self._told = False  # of the verdict
        self._now = -math.inf
        self._last_look = -math.inf  # last call of actions
        self._looked = False  # whether it judged
        self._idle: float | None = None  # since when there is no usable worker
        self._usable: float | None = None  # since when there is one
        self._served = 0.0  # seconds in which there was one, before that
        self.attempts_made = 0
        self.given_again = 0  # of these, not the first of their unit

    # Events about workers

    def joined(self, worker: str, now: float, *, at: float | None = None) -> None:
        """There is a worker of this name. If its process was replaced by another, tell ``left`` first.

        at : its last sign of life, for one that has been there for a while; None: now.
        """
        self._tick(now)
        at, known = self._now if at is None else min(at, self._now), self._workers.get(worker)
        if known is not None and known.died is not None:
            self.left(worker, now)
        elif known is not None:
            return self.seen(worker, at, now)
        new = self._workers[worker] = _Worker(worker, at)
        self._set_alarm(at + self._patience.stale, new)
        self._place(new)

    def seen(self, worker: str, at: float, now: float) -> None:
        """The worker last gave a sign of life at ``at``. Of workers that did not join nothing is kept."""
        self._tick(now)
        known, at = self._workers.get(worker), min(at, self._now)
        if known is None:
            return
        known.seen = max(known.seen, at)
        if known.died is not None and at > known.died:
            known.died = None
            self._welcome(known)
        if known.stale and known.seen + self._patience.stale > self._now:
            self._thaw(known)

    def left(self, worker: str, now: float) -> None:
        """The worker is gone for good, and with it what it was doing; the attempts are cancelled."""
        self._tick(now)
        gone = self._workers.pop(worker, None)
        if gone is None:
            return
        gone.gone = True
        self._retire(gone)
        queue, gone.queue = gone.queue, []
        for attempt in queue:
            del attempt.unit.open[attempt.number]
        for place, attempt in enumerate(queue):
            if not attempt.cancelled:
                self._out.append(Cancel(attempt.unit.number, attempt.number))
                self._lose(attempt, running=place == 0 and gone.died is None)

    # Events about attempts

    def finished(self, unit: int, attempt: int, worker: str, now: float) -> bool:
        """A result is there. True: the first of its unit, keep it; False: drop it.

        ``worker`` is for the caller's convenience here as in the other events: the book knows whom it asked.
        """
        self._tick(now)
        entry, record = self._units[unit], self._units[unit].open.get(attempt)
        if record is not None:
            self._measure(record)
            record.worker.faults = 0
            self._close(record, reported=True)
        if entry.finished or not 0 <= attempt < entry.attempts:
            return False
        entry.finished, entry.pending, entry.worker = True, False, worker
        self._finished += 1
        for other in list(entry.open.values()):
            self._cancel(other)
        return True

    def failed(self, unit: int, attempt: int, worker: str, now: float, reason: str, *, fatal: bool = False) -> None:
        """The attempt raised; fatal: it would do so anywhere."""
        record = self._take(unit, attempt, now, reported=True)
        if record is None:
            return
        entry = record.unit
        entry.failed_at.append(record.worker.name)
        if reason not in entry.reasons:
            entry.reasons.append(reason)
        times = len(entry.failed_at)
        if fatal:
            self._give_up("; ".join(entry.reasons), unit)
        elif times > self._patience.retries:
            self._give_up(f"failed {times} times: {'; '.join(entry.reasons)}", unit)
        else:
            self._repeat(record, f"failed: {reason}")

    def lost(self, unit: int, attempt: int, worker: str, now: float, *, running: bool) -> None:
        """Nothing will come of the attempt. running: its worker died at it, and gets nothing until it is seen again."""
        self._tick(now)
        record = self._units[unit].open.get(attempt)
        if record is not None and running:
            record.worker.died = self._now
            self._retire(record.worker)
        record = self._take(unit, attempt, now, reported=False)
        if record is not None:
            self._lose(record, running)

    def missing(self, unit: int, attempt: int, worker: str, now: float) -> None:
        """The worker lacked what it was thought to have: again, at no cost."""
        record = self._take(unit, attempt, now, reported=True)
        if record is not None:
            self._repeat(record, "missing")

    def undone(self, unit: int, now: float) -> None:
        """What was kept of a finished unit is lost: it is given out again. ``ready`` does not tell of it once more."""
        self._tick(now)
        entry = self._units[unit]
        if not entry.finished:
            return
        entry.finished, entry.pending = False, True
        self._finished -= 1
        entry.cause = Repetition(unit=unit, attempt=entry.attempts - 1, worker=entry.worker, why="lost")
        heappush(self._repeats, unit)

    def acquitted(self, unit: int) -> None:
        """A trial showed that the unit kills nobody: it goes on as if no worker had died at it.

        Trials in flight are over by this. If one of them had a result, tell of it with ``finished`` as well.
        """
        entry = self._units[unit]
        entry.deaths = 0
        for attempt in list(entry.open.values()):
            if attempt.trial and not attempt.cancelled:
                self._out.append(Cancel(unit, attempt.number))
                self._close(attempt, reported=True)
                self._repeat(attempt, "acquitted")

    # What follows from them

    def actions(self, now: float) -> list[Action]:
        """What is to be done now, in this order. A GiveUp is the last action of all.

        Where the caller was away for more than half of ``stale``, telling nothing and asking nothing, others may seem
        silent because nobody listened: then this call does nothing, and the next one judges.
        """
        listened = not self._looked or now - self._now <= self._patience.stale / 2
        self._tick(now)
        if self._told:
            return []
        if listened:
            self._look()
        self._last_look, self._looked = self._now, listened
        out, self._out = self._out, []
        return out

    def ready(self) -> list[int]:
        """Units to be committed now, in order, each told of once. ``ahead`` counts from the first not told of."""
        first = self._committed
        while self._committed < len(self._units) and self._units[self._committed].finished:
            self._committed += 1
        return list(range(first, self._committed))

    @property
    def done(self) -> bool:
        """Whether ``ready`` has told of every unit, and none was undone since."""
        return self._committed == self._finished == len(self._units)

    def idle_since(self, now: float) -> float | None:
        """Seconds without a usable worker (one that joined and is not frozen), None while there is one."""
        self._tick(now)
        return None if self._idle is None else self._now - self._idle

    # Figures

    @property
    def served(self) -> float:
        """Seconds in which there was a usable worker."""
        return self._served + (0.0 if self._usable is None else self._now - self._usable)

    @property
    def uncommitted(self) -> int:
        """Units ``ready`` has not told of."""
        return len(self._units) - self._committed

    @property
    def speeds(self) -> list[float]:
        """The last seconds a size unit took, for the next round."""
        return list(self._speeds.recent)

    def in_flight(self, worker: str) -> int:
        """Attempts given to the worker that are neither over nor cancelled."""
        known = self._workers.get(worker)
        return 0 if known is None else known.load

    def take_events(self) -> list[Repetition]:
        """Repetitions since the last call: {unit, attempt, worker, why} of the attempt that was given up on.

        why : "stale", "late", "left", "died", "lost", "missing", "acquitted", or "failed: " and the reason.
        """
        events, self._events = self._events, []
        return events

    # Time

    def _tick(self, now: float) -> None:
        if self._now == -math.inf:
            self._idle = now
        self._now = max(self._now, now)

    def _set_alarm(self, time: float, worker: _Worker, attempt: _Attempt | None = None) -> None:
        """Look at the worker then: whether it is alive, or whether ``attempt``, the first in its queue, is late."""
        if attempt is not None:
            attempt.alarm = time
        self._serial += 1
        heappush(self._alarms, (time, self._serial, worker, attempt))

    def _look(self) -> None:
        self._heed_alarms()
        self._heed_idleness()
        if self._verdict is None:
            self._open_more()
            self._give()
        else:
            self._out.append(self._verdict)
            self._told = True

    def _heed_alarms(self) -> None:
        due = []
        while self._alarms and self._alarms[0][0] <= self._now:
            due.append(heappop(self._alarms))
        for time, _, worker, attempt in due:
            if worker.gone or worker.stale:
                continue
            if attempt is None:
                self._look_at(worker)
            elif worker.queue and worker.queue[0] is attempt and attempt.alarm == time:
                self._look_at_first(worker, attempt)

    def _heed_idleness(self) -> None:
        if self._idle is not None and self._finished < len(self._units):
            seconds = self._now - self._idle
            if seconds >= self._patience.idle:
                self._give_up(f"no usable worker for {seconds:.0f} s", None)

    def _limit(self, unit: _Unit) -> float | None:
        """Seconds a visit may take: max(least, factor x size x median) x 2^(times it was late)."""
        median = self._speeds.median
        if median is None:
            return None
        return max(self._patience.least, self._patience.factor * unit.size * median) * 2.0**unit.overdue

    def _measure(self, attempt: _Attempt) -> None:
        """Learn from how long it took, where that is known: not if what was before it was heard of only just now."""
        timed = attempt.timed and attempt.worker.queue[0] is attempt and attempt.began <= self._last_look
        if timed and not attempt.trial and attempt.unit.size > 0:
            self._speeds.add((self._now - attempt.began) / attempt.unit.size)

    # Doubts about a worker

    def _look_at(self, worker: _Worker) -> None:
        stale_at = worker.seen + self._patience.stale
        if stale_at > self._now:
            return self._set_alarm(stale_at, worker)
        worker.stale = True
        self._retire(worker)
        for attempt in worker.queue:
            self._repeat(attempt, "stale")

    def _thaw(self, worker: _Worker) -> None:
        """It lives, and its first visit gets its time anew."""
        worker.stale = False
        self._set_alarm(worker.seen + self._patience.stale, worker)
        self._begin(worker, timed=False)
        self._welcome(worker)

    def _welcome(self, worker: _Worker) -> None:
        """It can be counted on again: what nobody else was given meanwhile stays with it."""
        self._place(worker)
        if worker.pool is self._good:
            for attempt in worker.queue:
                attempt.unit.pending = False

    def _look_at_first(self, worker: _Worker, attempt: _Attempt) -> None:
        """Whether the first visit of the queue is late, and what of one that was late before."""
        limit = self._limit(attempt.unit)
        allowed = limit if limit is not None else self._patience.least if attempt.cancelled else math.inf
        left = attempt.began + allowed - self._now
        if left > 0:
            self._set_alarm(self._now + min(left, self._patience.least), worker, attempt)
        elif attempt.cancelled or attempt.passed or (worker.late and not self._good.members):
            worker.faults += worker.late
            attempt.unit.overdue += not worker.late
            self._drop_first(worker)  # its result was lost, or else what comes next will be late as well
        elif worker.late:
            self._wait_longer(worker, attempt, allowed)
        else:
            self._go_late(worker, attempt, allowed)

    def _go_late(self, worker: _Worker, attempt: _Attempt, allowed: float) -> None:
        attempt.unit.overdue += 1
        worker.late = True
        self._retire(worker)
        self._repeat(attempt, "late")
        self._wait_longer(worker, attempt, allowed)

    def _wait_longer(self, worker: _Worker, first: _Attempt, seconds: float) -> None:
        """A late worker gets nothing, and what waits there goes elsewhere, if there is an elsewhere."""
        if self._good.members:
            for attempt in worker.queue[:0:-1]:
                self._out.append(Cancel(attempt.unit.number, attempt.number))
                self._close(attempt)
                self._repeat(attempt, "late")
        self._set_alarm(self._now + LENIENCE * seconds * 2.0 ** min(worker.faults, 10), worker, first)

    def _retire(self, worker: _Worker) -> None:
        """Take it out of, or into, the pool where it belongs, and let others have the units that preferred it."""
        self._place(worker)
        for unit in worker.own:
            if not unit.attempts:
                heappush(self._fresh, unit.number)
        worker.own.clear()

    def _place(self, worker: _Worker) -> None:
        """File the worker under what it can be given."""
        if worker.room is not None:
            del worker.room[worker.name]
            worker.room = None
        usable = not (worker.gone or worker.stale or worker.died is not None)
        pool = (self._late if worker.late else self._good) if usable else None
        if pool is not worker.pool:
            if worker.pool is not None:
                del worker.pool.members[worker.name]
            if pool is not None:
                pool.members[worker.name] = worker
            worker.pool = pool
        if pool is not None and worker.load < self._patience.window:
            worker.room = pool.rooms[min(len(worker.queue), self._patience.window - 1)]
            worker.room[worker.name] = worker
            if worker.own:
                self._asking[worker.name] = worker
        self._note_idleness()

    def _note_idleness(self) -> None:
        if self._good.members or self._late.members:
            if self._usable is None:
                self._usable, self._idle = self._now, None
        elif self._idle is None:
            self._served, self._usable, self._idle = self.served, None, self._now

    # Attempts and units

    def _begin(self, worker: _Worker, timed: bool = True) -> None:
        """The queue has a new first, which can start now; timed: it did not start before."""
        worker.late = False
        if worker.queue:
            first = worker.queue[0]
            first.began, first.timed = self._now, timed
            self._set_alarm(self._now + self._patience.least, worker, first)

    def _take(self, unit: int, attempt: int, now: float, *, reported: bool) -> _Attempt | None:
        """Close the attempt and return it, unless it was over or cancelled before."""
        self._tick(now)
        record = self._units[unit].open.get(attempt)
        if record is None:
            return None
        self._close(record, reported=reported)
        return None if record.cancelled else record

    def _close(self, attempt: _Attempt, *, reported: bool = False) -> None:
        """The attempt is over. Its worker reported it: then what was before it in the queue should be over as well."""
        worker = attempt.worker
        del attempt.unit.open[attempt.number]
        place = worker.queue.index(attempt)
        del worker.queue[place]
        if place == 0:
            self._begin(worker)
        elif reported:
            for before in worker.queue[:place]:
                before.passed = True
            if worker.late or worker.queue[0].cancelled:
                self._drop_first(worker)
        self._place(worker)

    def _drop_first(self, worker: _Worker) -> None:
        """Nothing more is expected of the first in the queue."""
        first = worker.queue[0]
        if not first.cancelled:
            self._out.append(Cancel(first.unit.number, first.number))
        self._close(first)
        self._repeat(first, "late")
        if worker.queue:
            worker.queue[0].timed = False  # it may have started before, or not yet

    def _cancel(self, attempt: _Attempt) -> None:
        if attempt.cancelled:
            return
        self._out.append(Cancel(attempt.unit.number, attempt.number))
        attempt.cancelled = True
        if attempt.worker.queue[0] is attempt:
            self._place(attempt.worker)  # it may run on, but has room for another
        else:
            self._close(attempt)

    def _lose(self, attempt: _Attempt, running: bool) -> None:
        unit = attempt.unit
        if unit.finished:
            return
        unit.deaths += running
        unit.all_deaths += running
        if unit.all_deaths >= MOST_DEATHS * self._patience.deaths:
            return self._give_up(f"{unit.all_deaths} workers died at it", unit.number, killed=True)
        self._repeat(attempt, "died" if running else "left" if attempt.worker.gone else "lost")

    def _repeat(self, attempt: _Attempt, why: str) -> None:
        """Give the unit out again, unless an attempt in flight can be counted on."""
        unit = attempt.unit
        if unit.finished or unit.pending or any(a.worker.pool is self._good for a in unit.open.values()):
            return
        if unit.attempts >= MOST_ATTEMPTS:
            return self._give_up(f"given out {unit.attempts} times in vain, last: {why}", unit.number)
        unit.pending = True
        unit.cause = Repetition(unit=unit.number, attempt=attempt.number, worker=attempt.worker.name, why=why)
        heappush(self._repeats, unit.number)

    def _give_up(self, reason: str, unit: int | None, killed: bool = False) -> None:
        if self._verdict is None:
            self._verdict = GiveUp(reason, unit, killed)

    # Giving out

    def _open_more(self) -> None:
        """Units that came into reach go on the list of the worker they prefer, if it can be given anything."""
        stop = len(self._units)
        if self._ahead is not None:
            stop = min(stop, self._committed + self._ahead + 1)
        while self._opened < stop:
            unit = self._units[self._opened]
            self._opened += 1
            worker = self._workers.get(unit.preferred) if unit.preferred is not None else None
            if worker is not None and worker.pool is self._good:
                worker.own.append(unit)
                self._asking[worker.name] = worker
            else:
                heappush(self._fresh, unit.number)

    def _give(self) -> None:
        """First what is to be done again, then to each its own, then the rest, then to the idle what is others'."""
        pool = self._good if self._good.members else self._late
        self._give_repeats(pool)
        self._give_own()
        self._give_fresh(pool)
        self._give_to_idle(pool)

    def _give_repeats(self, pool: _Pool) -> None:
        aside: list[int] = []
        while self._repeats and len(aside) < LOOK and any(pool.rooms):
            unit = self._units[heappop(self._repeats)]
            if not unit.pending:
                continue
            worker = self._choose(unit, pool)
            if worker is None:
                aside.append(unit.number)
            else:
                self._submit(unit, worker)
        for number in aside:
            heappush(self._repeats, number)

    def _choose(self, unit: _Unit, pool: _Pool) -> _Worker | None:
        """A worker where the unit neither failed nor is in flight; None: one that has no room yet is worth waiting for.

        A failure is tried again where it happened rather than waited for, except for the last try.
        """
        last = len(unit.failed_at) >= self._patience.retries
        never = {a.worker.name for a in unit.open.values()}.union(unit.failed_at if last else ())
        for avoided in (never.union(unit.failed_at), never):
            for worker in pool.with_room():
                if worker.name not in avoided:
                    return worker
        elsewhere = len(pool.members) > sum(name in pool.members for name in never)
        return None if elsewhere else next(pool.with_room())

    def _give_own(self) -> None:
        while self._asking:
            worker = self._asking.pop(next(iter(self._asking)))
            while worker.own and worker.room is not None:
                unit = worker.own.popleft()
                if not unit.attempts:
                    self._submit(unit, worker)

    def _give_fresh(self, pool: _Pool) -> None:
        while self._fresh:
            worker = next(pool.with_room(), None)
            if worker is None:
                return
            self._submit(self._units[heappop(self._fresh)], worker)

    def _give_to_idle(self, pool: _Pool) -> None:
        while pool.rooms[0]:
            while self._lowest < self._opened and self._units[self._lowest].attempts:
                self._lowest += 1
            if self._lowest == self._opened:
                return
            self._submit(self._units[self._lowest], next(iter(pool.rooms[0].values())))

    def _submit(self, unit: _Unit, worker: _Worker) -> None:
        trial = unit.deaths >= self._patience.deaths
        attempt = _Attempt(unit, unit.attempts, worker, trial)
        if unit.attempts:
            assert unit.cause is not None
            self._events.append(unit.cause)
            self.given_again += 1
        unit.pending = False
        unit.attempts += 1
        self.attempts_made += 1
        unit.open[attempt.number] = attempt
        worker.queue.append(attempt)
        if worker.queue[0] is attempt:
            self._begin(worker)
        self._place(worker)
        self._out.append((Trial if trial else Submit)(unit.number, attempt.number, worker.name))


def _check(sizes: Sequence[float], patience: Patience, ahead: int | None, preferred: Sequence[str | None]) -> None:
    if not all(0 <= size < math.inf for size in sizes):
        raise ValueError("sizes are finite and at least 0")
    if patience.window < 1 or patience.deaths < 1 or patience.retries < 0:
        raise ValueError("window and deaths are at least 1, retries at least 0")
    if ahead is not None and ahead < 0:
        raise ValueError("ahead is at least 0, or None")
    if preferred and len(preferred) != len(sizes):
        raise ValueError(f"{len(preferred)} preferred workers for {len(sizes)} units")
