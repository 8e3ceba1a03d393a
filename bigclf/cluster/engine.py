"""The engine of a Dask cluster: visits as tasks, whose results have the bits of visits made in this process.

The driver places every task itself and holds everything that cannot be made again. A task's data go straight to the
worker that is to do it and nowhere else, so that no worker depends on another; a worker that dies takes its attempt
with it at once, one that freezes or is cut off is given up on by the clocks of ``Book``, and whatever attempt is first
counts. What happens in Dask's own thread reaches the driver's as messages in one queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import queue
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future as ThreadFuture
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import distributed
from distributed.utils_comm import gather_from_workers

from bigclf import files
from bigclf.cluster.book import Action, Book, Cancel, GiveUp, Patience, Submit, Trial
from bigclf.cluster.carried_rows import CarriedRows, RowPlace
from bigclf.cluster.holdings import Joined
from bigclf.cluster.joining import SLOWEST, Joining, Line, cuts_for, passes_on, side_by_side, spreads
from bigclf.cluster.link import GREETING_SECONDS, WAIT_LONGER, Link, submitted
from bigclf.cluster.measuring import Measure, Measured, Part, attempt_part, bytes_needed
from bigclf.cluster.peers import attempt_order, attempt_visit_there, introduce
from bigclf.cluster.tree import Dropping, Task
from bigclf.cluster.worker_tasks import (
    Failure,
    Greeting,
    Parcel,
    Shipment,
    Verdict,
    changes_to,
    farewell,
    on_trial,
    picks,
    shard_error,
    unpacked,
)
from bigclf.data.dataset import Dataset
from bigclf.errors import BigclfError, ClusterError, DataError, MemoryBudgetError, RunError
from bigclf.machine import differences, facts, remedy
from bigclf.maths.deltas import Picked, State, n_bytes, picked
from bigclf.maths.mixing import FAN
from bigclf.metrics.figures import AnyPart
from bigclf.progress import Event, Plan, Status, Watcher
from bigclf.training.engines import Round
from bigclf.training.executor import Job
from bigclf.training.memory import reuse_freed
from bigclf.training.roles.steps import keeps_rows, rows_elsewhere, way_of
from bigclf.training.validation import Candidate, Sums
from bigclf.training.visit import Carry, Outcome, Ref
from bigclf.units import format_bytes
from bigclf.version import __version__

log = logging.getLogger("bigclf")
POLL_SECONDS = 0.2
ANSWER_SECONDS = 5.0  # for the scheduler to say who is there
TOGETHER_SECONDS = 1.0  # the first worker that has answered waits so long for the others that are there
BUNDLES = 4  # groups are done in bundles when each worker has at least so many bundles to do
INLINE_BYTES = 50_000  # more than this is not sent inside a task
TRAVEL_BYTES = 64_000_000  # of a group's row state, sent to and fro where no directory is shared
FILE_BYTES = 4_000_000  # of a group's row state, from which on it goes through a directory where there is one
ROOM_BESIDE = 300_000_000  # interpreter and libraries of a worker, and the 95 % at which a nanny ends it
WEIGHED_SECONDS, WEIGHED_ROUNDS = 10.0, 3  # of rounds without a fault, before it is said that sending takes longer ...
MUCH = 3  # ... than learning, by this factor
CLOCK_SECONDS = 5.0  # a clock that was set back by less holds nobody up
RECENT = 6  # events the screen is told of
FOR_MEMORY = (
    "if the system or a nanny ended them for their memory (signal 9), start them with a higher memory limit or fewer to"
    " a machine"
)
PREFIX = "bigclf-visit"  # of keys of tasks, and always the same: Dask groups and remembers by it


A = TypeVar("A")  # what comes of a unit
C = TypeVar("C", Job, Measure)


@dataclass
class _Member:
    """A worker as the driver knows it."""

    address: str
    name: str
    threads: int
    memory: int
    heard: Any = None  # its last sign of life, by the scheduler's clock
    seen: float = 0.0  # ... when that was first different, by ours
    state: str = "new"  # "greeting", "ready", "refused"
    reason: str = ""
    anchor: Any = None  # the job, there: lost with it, and every task there with it
    version: int = -1  # of the common state it is known to have
    shipment: tuple[int, asyncio.Future[Any]] | None = None  # the version on its way
    refused_at: float = field(default=0.0)
    status: str = "running"  # as Dask says
    told: int = 0  # process id under which it was said to have joined; 0: it was not


def _why_not_used(members: list[_Member]) -> str:
    """What is known of workers none of which can be used, and what to do where waiting longer may help."""
    if not members:
        return "; none was there"
    refused = [f"{m.address}: {m.reason}" for m in members if m.state == "refused"][:3]
    silent = [f"{m.address}: {m.reason}" for m in members if m.state == "retry"][:3]
    new = [m.address for m in members if m.state == "new"][:3]
    paused = [m.address for m in members if m.status == "paused"]
    return (
        (f"; refused were {'; '.join(refused)}" if refused else "")
        + (f"; paused, for want of memory, were {', '.join(paused)}" if paused else "")
        + (f"; there, but without an answer, were {'; '.join(silent)}" if silent else "")
        + (f"; still starting were {', '.join(new)}" if new else "")
        + (WAIT_LONGER if silent or new or not (refused or paused) else "")
    )


class Crew(Generic[A]):
    """The workers of a cluster, doing units of work for one driver; what a unit is, a subclass says.

    Large because members, tasks and messages change together, in the one loop that hears of them.

    Parameters
    ----------
    name : of what is done; part of the keys of all tasks.
    content : what each worker needs for every unit; sent to it once, straight.
    planned : bytes that a worker needs, without interpreter and libraries.
    idle : called several times a second; may raise to break off.
    link, patience : the cluster, and when to stop believing in something.
    """

    verb = "done"  # what could not be ...
    content_bytes = 0  # of arrays in the content
    sample: str | None = None  # a file that every worker must be able to read
    writes: str | None = None  # a directory that every worker must be able to write

    def __init__(
        self, name: str, content: object, planned: int, idle: Callable[[], None], *, link: Link, patience: Patience
    ) -> None:
        self.idle, self.link, self.patience = idle, link, patience
        self.bytes_moved = 0
        self.name, self._parcel, self._planned = name, Parcel(content), planned
        self._mine = facts()
        self._members: dict[str, _Member] = {}
        self._messages: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._events: list[Event] = []
        self._recent: list[Event] = []  # the last of them, for whoever watches
        self._speeds: list[float] = []
        self._served = 0.0  # seconds of earlier rounds in which there was a usable worker
        self._book: Book | None = None
        self._serial = 0
        self._flights: dict[tuple[int, int], ThreadFuture[None]] = {}
        self._limbo: list[tuple[int, int, str]] = []
        self._answers: dict[int, A] = {}
        self._errors: dict[int, BaseException] = {}
        self._data_errors: dict[int, int] = {}
        self._direct = True
        self._warned = False  # of workers that die
        self._ahead = time.time() - time.monotonic()  # of the wall clock
        self._clocks: set[str] = set()  # that were set back, and of which it was warned
        self._tried_again = 0.0
        self._early: list[tuple[str, float]] = []  # who has answered, and when, and waits for the others
        self._begun = False  # whether any worker was let in
        self._watch: ThreadFuture[None] | None = None
        reuse_freed()
        self._begin_watch()

    # What a subclass says

    def _called(self, unit: int) -> str:
        """The unit in words."""
        raise NotImplementedError

    async def _submit(self, unit: int, attempt: int, member: _Member) -> distributed.Future:
        """The unit as a task of this worker, whose answer is what it came to, or a ``Failure``."""
        raise NotImplementedError

    def _submit_trial(self, unit: int, attempt: int, member: _Member) -> distributed.Future:
        """The unit in a child process of this worker, since workers died at it (``on_trial``)."""
        raise NotImplementedError

    def _convicted(self, unit: int, found: Verdict) -> BaseException:
        """The error, when the child died of it too."""
        raise NotImplementedError

    def _accept(self, unit: int, address: str, answer: A) -> None:
        """The first answer there is to the unit."""
        self._answers[unit] = answer

    def _size_of(self, answer: A) -> int:
        """Bytes that came with it."""
        return n_bytes(answer)

    def _reported(self, address: str) -> None:
        """The worker has done something it was given."""

    def _lacking(self, unit: int, address: str) -> None:
        """The worker had not what it was thought to have."""

    def _forgotten(self, address: str) -> None:
        """The worker has left, or another process may have taken its place."""

    def _go_on(self, book: Book) -> None:
        """Do what follows from answers."""

    def _over(self) -> bool:
        """Whether nothing is left to do when every unit is done."""
        return True

    def _remedy(self, limit: int) -> str:
        """What would do where a worker may not have more than so many bytes."""
        fits = int((limit - ROOM_BESIDE) / 1.1) // 1_000_000 * 1_000_000
        return f"; memory={format_bytes(fits)} would do" if fits > 0 else "; more memory for the workers would do"

    # What a driver asks for

    @property
    def workers(self) -> int:
        return sum(member.state == "ready" for member in list(self._members.values()))  # the screen's thread asks too

    def work(self, sizes: list[float], wishes: Sequence[str | None] = ()) -> Generator[int, None, None]:
        """Have every unit done; gives out their numbers in order, each when its answer is in ``_answers``."""
        book = self._open(sizes, wishes)
        try:
            while not (book.done and self._over()):
                self.idle()
                ahead, self._ahead = self._ahead, time.time() - time.monotonic()
                self._look_at_clock("this machine", ahead - self._ahead)
                for action in book.actions(time.monotonic()):
                    self._act(action)
                self._hear(POLL_SECONDS)
                self._note_repeats()
                self._require_usable(book)
                self._go_on(book)
                yield from book.ready()
        finally:
            self._shut()

    def take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._shut()
        with contextlib.suppress(Exception):
            self._run(self._say_farewell()).result(timeout=3)
        for member in self._members.values():
            member.anchor = member.shipment = None
        self._members = {}

    # A round of units

    def _open(self, sizes: list[float], wishes: Sequence[str | None]) -> Book:
        self._serial += 1
        known = max(1, self.workers)
        book = self._book = Book(sizes, self.patience, ahead=16 + 4 * known * self.patience.window, preferred=wishes,
                                 speeds=self._speeds)  # fmt: skip
        self._answers, self._errors, self._data_errors, self._limbo = {}, {}, {}, []
        self._early = []
        ready = [member for member in self._members.values() if member.state == "ready"]
        for member in sorted(ready, key=lambda member: member.seen):  # one that was frozen before still is
            book.joined(member.address, member.seen)
        self._begun = self._begun or bool(ready)
        return book

    def _shut(self) -> None:
        if self._book is not None:
            self._speeds = self._book.speeds
            self._served += self._book.served
            self._note_repeats()
        for flight in self._flights.values():
            flight.cancel()
        self._flights, self._answers = {}, {}
        self._book = None

    def _note_repeats(self) -> None:
        assert self._book is not None
        for record in self._book.take_events():
            if record["why"] == "missing":
                continue
            what = f"{self._called(record['unit'])} given out again ({record['why']})"
            self._event(what, record["worker"], attempt=record["attempt"])
            if record["why"] == "died" and not self._warned:
                self._warned = True
                called = self._called(record["unit"])
                log.warning("a worker died at %s, which is given out again; %s", called, FOR_MEMORY)

    def _event(self, what: str, worker: str, **more: object) -> None:
        member = self._members.get(worker)
        name = f"{member.name} at {worker}" if member is not None and member.name != worker else worker
        self._tell({"what": what, "worker": name, **more})

    def _tell(self, event: Event) -> None:
        self._events.append(event)
        self._recent = [*self._recent[1 - RECENT :], event]
        log.info("%s: %s", event["worker"], event["what"])

    # Actions

    def _act(self, action: Action) -> None:
        if isinstance(action, Cancel):
            flight = self._flights.pop((action.unit, action.attempt), None)
            if flight is not None:
                flight.cancel()
            return
        if isinstance(action, GiveUp):
            raise self._reason(action)
        place = action.unit, action.attempt
        if isinstance(action, Trial):
            self._flights[place] = self._run(self._try(self._serial, action))
            return
        assert isinstance(action, Submit)
        self._flights[place] = self._run(self._send(self._serial, action))

    def _reason(self, given: GiveUp) -> BaseException:
        if given.unit is not None and given.killed:
            return ClusterError(
                f"{self._called(given.unit)} could not be {self.verb}: {given.reason}, and a process of its own got "
                f"through it. Something ends workers: look at their logs; {FOR_MEMORY}"
            )
        if given.unit is not None:
            error = self._errors.get(given.unit)
            if isinstance(error, BigclfError):
                return error
            failure = RunError(f"{self._called(given.unit)} could not be {self.verb}: {given.reason}")
            failure.__cause__ = error
            return failure
        refused = [m for m in self._members.values() if m.state == "refused"]
        if refused and all(m.reason.startswith("memory") for m in refused):
            return MemoryBudgetError(refused[0].reason)
        served = self._served + (self._book.served if self._book is not None else 0.0)
        after = f", after {served:.0f} s with one" if served >= 1 else ""
        return ClusterError(given.reason + after + _why_not_used(list(self._members.values())))

    def _require_usable(self, book: Book) -> None:
        """Give up early where workers are there and every one was refused: waiting changes none of them."""
        idle = book.idle_since(time.monotonic())
        if idle is None or idle <= self.patience.least:  # with thousands of workers they are not gone through each time
            return
        refused = [m.state == "refused" for m in self._members.values()]
        if refused and all(refused):
            raise self._reason(GiveUp("no worker can be used", None))

    def _look_at_clock(self, whose: str, back: float) -> None:
        """Warn, once, of a clock that was set back by so many seconds: Dask compares its deadlines with it, and holds
        messages that were to be sent together in a moment until that moment comes again."""
        if back > CLOCK_SECONDS and whose not in self._clocks:
            self._clocks.add(whose)
            log.warning("the clock of %s was set back by %.0f s, for which Dask may hold its messages back; if the run"
                        " stands still, start scheduler and workers anew, and resume it", whose, back)  # fmt: skip

    def _run(self, work: Coroutine[object, object, None]) -> ThreadFuture[None]:
        loop: Any = self.link.client.loop
        try:
            return asyncio.run_coroutine_threadsafe(work, loop.asyncio_loop)
        except RuntimeError:  # the client was closed: what was sent is lost, and ``_hear`` looks for a new one
            work.close()
            return ThreadFuture()

    # In Dask's thread

    async def _send(self, serial: int, action: Submit) -> None:
        """One attempt from its beginning to its end, which it tells of in a message."""
        unit, attempt, address = action
        if serial != self._serial:  # its round ended before it began
            return
        said: tuple[Any, ...] = ("lost",)
        try:
            said = await self._attempt(unit, attempt, address)
        except asyncio.CancelledError:
            raise
        except (OSError, TimeoutError, distributed.client.FutureCancelledError) as error:
            said = "lost", error
        except Exception as error:
            said = "failed", error
        self._messages.put((said[0], serial, unit, attempt, address, *said[1:]))

    async def _attempt(self, unit: int, attempt: int, address: str) -> tuple[object, ...]:
        member, client = self._members.get(address), self.link.client
        if member is None or member.anchor is None or member.anchor.status != "finished":
            return ("lost",)
        future = await self._submit(unit, attempt, member)
        await _over(future)
        if future.status == "error":
            return await _dask_error(client, future)
        if future.status != "finished":
            return ("lost",)
        answer = await self._fetch(client, future, address)
        if isinstance(answer, Failure):
            return (answer.kind, answer.error)
        return "finished", answer

    async def _fetch(self, client: distributed.Client, future: distributed.Future, address: str) -> object:
        """A result, straight from the worker that it was bound to: no other worker's trouble can hold it up."""
        if not self._direct:
            return await client.gather(future, direct=False, asynchronous=True)
        data = (await gather_from_workers({future.key: [address]}, rpc=client.rpc))[0]
        if future.key not in data:
            raise OSError("the result was lost with its worker")
        return data[future.key]

    async def _put(self, parcel: Parcel, address: str) -> distributed.Future:
        self.bytes_moved += n_bytes(parcel.content) if parcel is not self._parcel else self.content_bytes
        # in the group of the tasks: Dask's scheduler keeps for ever each group that ends, and this one lasts as long as
        # the content is anywhere
        name = f"{PREFIX}-{uuid.uuid4().hex}"
        return (await self.link.client.scatter(
            {name: parcel}, workers=[address], hash=False, direct=self._direct, asynchronous=True
        ))[name]  # fmt: skip

    async def _try(self, serial: int, action: Trial) -> None:
        """A unit in a child process of a worker, since workers died at it."""
        place = serial, action.unit, action.attempt, action.worker
        if serial != self._serial:
            return
        try:
            member = self._members[action.worker]
            future = self._submit_trial(action.unit, action.attempt, member)
            await _over(future)
            if future.status == "finished":
                self._messages.put(("tried", *place, await self._fetch(self.link.client, future, action.worker)))
                return
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.info("trial of %s: %s", self._called(action.unit), error)
        self._messages.put(("lost", *place))

    # Who is there

    def _begin_watch(self) -> None:
        self._poke, self._watched = asyncio.Event(), self.link.client
        self._watch = self._run(self._watch_workers())

    async def _watch_workers(self) -> None:
        while True:
            found = None
            with contextlib.suppress(Exception):
                scheduler: Any = self.link.client.scheduler
                found = (await asyncio.wait_for(scheduler.identity(n_workers=-1), ANSWER_SECONDS))["workers"]
            self._messages.put(("there", found))
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
                await asyncio.wait_for(self._poke.wait(), max(0.5, len(found or ()) / 200))
            self._poke.clear()

    async def _greet(self, address: str) -> None:
        """Ask a new worker what it is, and give it what every unit needs."""
        try:
            said = await asyncio.wait_for(self._introduced(address), GREETING_SECONDS)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            why = f"{type(error).__name__} {error}".strip()
            if isinstance(error, TimeoutError):
                why = f"nothing in {GREETING_SECONDS:.0f} s"
            said = {"problems": [f"it does not answer: {why}"], "again": True}
        self._messages.put(("greeted", address, said))

    async def _introduced(self, address: str) -> Greeting:
        """What a worker says of itself. One that cannot load a task's code ends: that it can is found out first."""
        client, mark = self.link.client, f"{self.name[:8]}-{address}-{time.monotonic_ns()}"
        words = {"workers": [address], "pure": False}
        loaded = submitted(client, importlib.import_module, "bigclf", key=("bigclf-load", mark), **words)
        await _over(loaded)
        if loaded.status == "error":
            error = await loaded.exception()
            where = "in the environment of that worker"
            return {
                "problems": [f"it has no bigclf ({error}); install bigclf {__version__} {where}, and start it anew"]
            }
        future = submitted(client, introduce, self.writes, self.sample, key=(PREFIX, mark), **words)
        await _over(future)
        said = await client.gather(future, direct=False, asynchronous=True)
        said["anchor"] = await self._anchor(address)
        return said

    async def _anchor(self, address: str) -> distributed.Future:
        """The content, there. Where this process cannot reach workers, everything goes through the scheduler."""
        if self._direct:
            try:
                return await asyncio.wait_for(self._put(self._parcel, address), GREETING_SECONDS / 4)
            except (OSError, TimeoutError):
                if self.workers:  # others are reached: it is this worker
                    raise
                self._direct = False
                log.warning("workers cannot be reached from here: data go through the scheduler, which is slower")
        return await self._put(self._parcel, address)

    async def _say_farewell(self) -> None:
        client = self.link.client
        ready = [m.address for m in self._members.values() if m.state == "ready"]
        keys = {address: ("bigclf-farewell", f"{self.name[:8]}-{address}") for address in ready}
        futures = [submitted(client, farewell, self.name, workers=[a], pure=False, key=keys[a]) for a in ready]
        await asyncio.wait_for(asyncio.gather(*(_over(f) for f in futures)), 2)

    # Messages

    def _hear(self, seconds: float) -> None:
        """Take in what has happened, waiting for the first of it."""
        if self.link.client.status == "closed":
            self._reconnect(time.monotonic())
        elif self.link.client is not self._watched:  # whoever else uses the link has replaced it
            self._watch_anew(time.monotonic())
        try:
            message = self._messages.get(timeout=seconds)
        except queue.Empty:
            self._let_in(time.monotonic())
            return
        waiting = self._messages.qsize()  # what comes meanwhile waits: to look for a scheduler may take seconds
        getattr(self, f"_hear_{message[0]}")(*message[1:])
        for _ in range(waiting):
            message = self._messages.get_nowait()
            getattr(self, f"_hear_{message[0]}")(*message[1:])
        self._let_in(time.monotonic())
        if self._book is not None and self._limbo:
            self._run(self._look_now())

    async def _look_now(self) -> None:
        self._poke.set()

    def _hear_there(self, found: Mapping[str, Mapping[str, Any]] | None) -> None:
        now = time.monotonic()
        if found is None:
            self._reconnect(now)
            return
        self.link.call(not found)
        for address in [a for a in self._members if a not in found]:
            self._left(address, now)
        for address, what in found.items():
            member = self._members.get(address)
            if member is None:
                name, limit = str(what.get("name", address)), int(what.get("memory_limit") or 0)
                self._members[address] = _Member(address, name, int(what["nthreads"]), limit, what["last_seen"], now)
                self._run(self._greet(address))
                continue
            member.status = what.get("status", "running")
            if member.heard is not None:
                self._look_at_clock("the scheduler", member.heard - what["last_seen"])
            if member.heard != what["last_seen"] and member.status == "running":  # paused or leaving it does nothing
                member.heard, member.seen = what["last_seen"], now
                if self._book is not None and member.state == "ready":
                    self._book.seen(address, now, now)
            if member.state == "retry" and now - member.refused_at > self.patience.stale:
                member.state = "new"
                self._run(self._greet(address))
        for unit, attempt, address in self._limbo:  # their worker is there: the attempt alone was lost
            if self._book is not None and address in self._members:
                self._forget(address)
                self._book.lost(unit, attempt, address, now, running=False)
        self._limbo = []

    def _left(self, address: str, now: float) -> None:
        if self._members[address].told:  # also where its death was felt before it was known, and it is being greeted
            self._event("left", address)
        del self._members[address]
        self._forgotten(address)
        if self._book is not None:
            self._book.left(address, now)

    def _forget(self, address: str) -> None:
        """The process behind the address may be another now: nothing is taken to be there, and it is greeted anew."""
        member = self._members[address]
        if member.state == "ready":
            member.state, member.version, member.shipment, member.anchor = "new", -1, None, None
            self._run(self._greet(address))
        self._forgotten(address)

    def _hear_greeted(self, address: str, said: Greeting) -> None:
        member, now = self._members.get(address), time.monotonic()
        if member is None:
            return
        reason = "; ".join(said["problems"] or self._unfit(member, said))
        if reason:
            member.state, member.reason = "retry" if said.get("again") else "refused", reason
            member.refused_at = now
            self._event(f"not used: {reason}", address)
            return
        member.state, member.anchor, member.version, member.shipment = "ready", said["anchor"], -1, None
        member.seen = now
        if member.told != said["pid"]:
            if member.told:
                self._event("left", address)
            member.told = said["pid"]
            self._event("joined", address, pid=said["pid"], host=said["host"])
        if self._book is not None:
            self._early.append((address, now))
            self._let_in(now)

    def _let_in(self, now: float) -> None:
        """Who has answered takes part. The first of all wait for each other: else one is given, and reads, what two
        would."""
        waiting = not self._begun and any(member.state == "new" for member in self._members.values())
        if self._book is None or not self._early or (waiting and now - self._early[0][1] < TOGETHER_SECONDS):
            return
        early, self._early, self._begun = self._early, [], True
        for address, _ in early:
            if address in self._members and self._members[address].state == "ready":
                self._book.joined(address, now)

    def _unfit(self, member: _Member, said: Greeting) -> list[str]:
        different = differences(self._mine, said)
        if different:
            mending = remedy(self._mine, said)
            return ["; ".join(different) + f"; mend it {mending}" * bool(mending)]
        planned = int(1.1 * self._planned) + ROOM_BESIDE
        limit = min(x for x in (member.memory, said["memory"]) if x)
        if limit < planned:
            return [
                f"memory: the plan needs {format_bytes(planned)} a worker, libraries included, and the limit there "
                f"is {format_bytes(limit)}{self._remedy(limit)}"
            ]
        return []

    def _hear_finished(self, serial: int, unit: int, attempt: int, address: str, answer: A) -> None:
        self.bytes_moved += self._size_of(answer)
        if not self._current(serial, unit, attempt):
            return
        assert self._book is not None
        self._reported(address)
        if self._book.finished(unit, attempt, address, time.monotonic()):
            self._accept(unit, address, answer)

    def _hear_failed(self, serial: int, unit: int, attempt: int, address: str, error: BaseException) -> None:
        if not self._current(serial, unit, attempt):
            return
        assert self._book is not None
        self._errors[unit] = error
        self._data_errors[unit] = self._data_errors.get(unit, 0) + isinstance(error, DataError)
        fatal = isinstance(error, BigclfError) and (not isinstance(error, DataError) or self._data_errors[unit] > 1)
        reason = f"{type(error).__name__}: {error} (at {address})"
        self._book.failed(unit, attempt, address, time.monotonic(), reason, fatal=fatal)

    def _hear_missing(self, serial: int, unit: int, attempt: int, address: str, error: BaseException) -> None:
        if not self._current(serial, unit, attempt):
            return
        assert self._book is not None
        self._lacking(unit, address)
        log.debug("missing at %s: %s", address, error)
        self._book.missing(unit, attempt, address, time.monotonic())

    def _hear_lost(self, serial: int, unit: int, attempt: int, address: str, error: object = None) -> None:
        if self._current(serial, unit, attempt):
            log.debug("attempt %d of unit %d lost: %s", attempt, unit, error)
            self._limbo.append((unit, attempt, address))

    def _hear_killed(self, serial: int, unit: int, attempt: int, address: str, error: BaseException) -> None:
        if self._current(serial, unit, attempt):
            assert self._book is not None
            self._book.lost(unit, attempt, address, time.monotonic(), running=True)

    def _hear_tried(self, serial: int, unit: int, attempt: int, address: str, found: Verdict) -> None:
        if not self._current(serial, unit, attempt):
            return
        assert self._book is not None
        if found["signal"]:
            raise self._convicted(unit, found)
        self._book.acquitted(unit)

    def _current(self, serial: int, unit: int, attempt: int) -> bool:
        """Whether the message speaks of this round."""
        if serial != self._serial or self._book is None:
            return False
        self._flights.pop((unit, attempt), None)
        return True

    def _reconnect(self, now: float) -> None:
        """The scheduler does not answer. The client looks for it by itself for a while; after that a new one does."""
        if self.link.client.status != "closed" or now - self._tried_again < 1:
            return
        found = self.link.again()
        self._tried_again = time.monotonic()
        if found:
            self._watch_anew(self._tried_again)

    def _watch_anew(self, now: float) -> None:
        """There is another client: nothing that was sent by the one before is known of."""
        for address in list(self._members):
            self._left(address, now)
        if self._watch is not None:
            self._watch.cancel()
        self._begin_watch()


# The engine


class JoiningCrew(Crew[Outcome]):
    """Workers that join what their units come to between themselves, by a tree (``joining``)."""

    job: Job
    _joining: Joining | None = None  # of the round under way
    _errands: set[ThreadFuture[None]]

    async def _ship(self, member: _Member, version: int) -> distributed.Future | Parcel | None:
        """The common state on its way to the worker, or None where it has it."""
        raise NotImplementedError

    def _lacks_state(self, address: str) -> None:
        """The worker has not the common state that it was thought to have."""
        raise NotImplementedError

    def _go_on(self, book: Book) -> None:
        if (joining := self._joining) is None:
            return
        joining.look((member.address, member.seen) for member in self._members.values() if member.state == "ready")
        for unit in joining.missing():
            book.undone(unit, time.monotonic())
        for task in joining.tasks():
            self._run_errand(self._join(joining, task))
        for dropping in joining.droppings() if self._direct else ():
            self._run_errand(self._drop(joining.number, dropping))

    def _over(self) -> bool:
        return self._joining is None or self._joining.done

    def _run_errand(self, work: Coroutine[object, object, None]) -> None:
        errand = self._run(work)
        self._errands.add(errand)
        errand.add_done_callback(self._errands.discard)

    async def _join(self, joining: Joining, task: Task) -> None:
        """A task of the tree, whatever comes of it."""
        said: object = None
        try:
            said = await self._carried_out(joining, task)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.debug("joining %s at %s: %s", task.name, task.worker, error)
        self._messages.put(("joined", joining, task, said))

    async def _carried_out(self, joining: Joining, task: Task) -> object:
        member, client = self._members.get(task.worker), self.link.client
        if member is None or member.anchor is None or member.anchor.status != "finished":
            return None
        order = joining.order(task)
        shipment = await self._ship(member, order.version)
        future = submitted(
            client, attempt_order, Parcel(order), member.anchor, member.address, shipment,
            key=("bigclf-join", f"{self.name[:8]}-{joining.number}-{task.attempt}"), workers=[member.address],
            pure=False, priority=1,
        )  # fmt: skip
        await _over(future)
        return await self._fetch(client, future, task.worker) if future.status == "finished" else None

    async def _drop(self, number: int, dropping: Dropping) -> None:
        pieces, totals = ([[*n[:2], *n.cut] for n in names] for names in (dropping.pieces, dropping.totals))
        with contextlib.suppress(OSError, TimeoutError):
            question = self.link.client.rpc(dropping.worker).bigclf_drop
            await asyncio.wait_for(question(run=self.name, round=number, pieces=pieces, totals=totals), ANSWER_SECONDS)

    def _hear_joined(self, joining: Joining, task: Task, answer: object) -> None:
        if isinstance(answer, Joined):
            self.bytes_moved += answer.moved + n_bytes(answer.parts)
        if joining is self._joining:
            if isinstance(answer, Joined):
                self._reported(task.worker)
            elif isinstance(answer, Failure) and answer.kind == "missing":
                self._lacks_state(task.worker)
            joining.heard(task, answer)

    def _hear_greeted(self, address: str, said: Greeting) -> None:
        super()._hear_greeted(address, said)
        if self._joining is not None and address in self._members and self._members[address].state == "ready":
            self._joining.welcome(address)

    def _forgotten(self, address: str) -> None:
        if self._joining is not None:
            self._joining.lost(address)

    def _shut(self) -> None:
        super()._shut()
        for errand in list(self._errands):
            errand.cancel()
        self._joining = None

    @property
    def _holding(self) -> int:
        """Number of the round for which workers hold what their units come to; 0: they do not."""
        return 0 if self._joining is None else self._joining.number


class DaskEngine(JoiningCrew):
    """Visits made by the workers of a cluster.

    Large because what travels to a worker and what is carried from group to group follow from the same round.

    Parameters
    ----------
    job : what stays the same during the run.
    idle : called several times a second; may raise to break off.
    advance : told of rows and bytes of each accepted visit.
    link, patience : the cluster, and when to stop believing in something.
    directory : where row state too large to travel is kept: the run directory or one beside the rows, or None.
    """

    verb = "visited"

    remembers = lasting = True
    deals = False
    worker_memory = 0

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
        self.job, self.advance, self.directory = job, advance, directory
        self._keeps = job.problems[0].setting.method.keeps_rows
        self._remakes = (  # what groups keep of each row is made anew where it is lost
            self._keeps and picks(job) and job.plan.segments == 1 and not job.plan.rows_sides
        )
        self._keeping = self._way_to_keep()
        self.sample = files.absolute(job.source.files[0]) if isinstance(job.source, Dataset) else None
        self.writes = self._keeping if self._writes else None
        self._kept_rows = CarriedRows(len(job.problems), directory)
        self._home: dict[int, tuple[str, str]] = {}  # worker that has the group's state, and at which token
        self._states: dict[int, Any] = {}  # the common state of each problem at ...
        self._version = -1
        self._previous: dict[int, Any] = {}  # ... and at the version before
        self._shipments: dict[int | None, Parcel] = {}  # of this version, by base
        self._line = Line()  # in which workers pass it on
        self._stating = threading.Lock()  # the four change together: Dask's thread may be at an attempt of before
        self._round: Round | None = None
        self._errands = set()
        self._accepted: set[int] = set()
        self._units: list[tuple[int, int]] = []
        self._nnz = [int(job.source.chunks.nnz[a:b].sum()) for a, b in job.plan.groups]
        self._done_groups = 0
        self._weight, self._weighed = (0, 0.0, 0.0), False  # rounds, seconds learned and seconds there
        super().__init__(job.run, _for_elsewhere(job), job.plan.memory["planned"], idle, link=link, patience=patience)

    def _way_to_keep(self) -> str:
        """What becomes of the groups' row state: "" there is none, "travels", or the directory it is written into."""
        if not self._keeps:
            return ""
        setting, chunks = self.job.problems[0].setting, self.job.source.chunks
        rows = max(int(chunks.rows[a:b].sum()) for a, b in self.job.plan.groups)
        largest = rows * 8 * setting.row_numbers * len(self.job.problems)
        filed = self.job.plan.rows_sides > 0
        if (filed or largest > FILE_BYTES) and self.directory is not None:
            return self.directory.path
        if filed and largest > FILE_BYTES:
            raise RunError(
                f"the dual variables take {format_bytes(largest)}, for which the plan has no room in memory: give a "
                "run_dir that every worker can write, or more memory"
            )
        if largest > TRAVEL_BYTES:
            enough = -(-len(self.job.plan.groups) * largest // TRAVEL_BYTES)
            raise RunError(
                f"the row state of a group takes {format_bytes(largest)}, and {format_bytes(TRAVEL_BYTES)} can travel "
                f"between workers and driver: give a run_dir that every worker can write, or groups={enough} or more"
            )
        return "travels"

    # What a run asks for

    def perform(self, round: Round) -> Iterator[Outcome]:
        sizes, wishes = self._begin_round(round)
        events, worked, began, joining = len(self._events), 0.0, time.monotonic(), self._joining
        last: Outcome | None = None
        with contextlib.closing(self.work(sizes, wishes)) as units:
            for unit in units:
                outcome = self._answers.pop(unit)
                self._done_groups = outcome.last
                worked += outcome.facts["seconds"]
                if joining is None:  # it is taken in while others are under way
                    yield outcome
                    continue
                if last is not None:
                    yield last
                last = outcome
        if last is not None and joining is not None:
            yield last._replace(joined=joining.parts())
        if len(self._events) == events:
            self._weigh(worked, (time.monotonic() - began) * min(len(sizes), self.workers))

    def _weigh(self, worked: float, there: float) -> None:
        """Say once if workers wait for much longer than they learn: seconds of both in a round without a fault."""
        rounds, sum_worked, sum_there = self._weight
        self._weight = rounds + 1, sum_worked + worked, sum_there + there
        if self._weighed or rounds + 1 < WEIGHED_ROUNDS or sum_there + there < WEIGHED_SECONDS * self.workers:
            return
        self._weighed = True
        rounds, worked, there = self._weight
        if there > (1 + MUCH) * worked:
            what = (
                f"communication dominates: in {rounds} mixes workers learned for {worked:.1f} s of {there:.1f} s; "
                "fewer mixes, each after more work, are faster: take fewer workers and groups, or fewer epochs"
            )
            self._tell({"what": what, "worker": "the driver"})
            log.warning(what)

    def carry(self, group: int, ref: Ref, round: Round) -> Carry:
        if self._remakes and not self._kept_rows.has(group, ref):
            return Carry([{} for _ in self.job.problems], None)
        return self._kept_rows.settled(group, ref)

    def restore(self, group: int, ref: Ref, carry: Carry, common: dict[int, State]) -> None:
        self._kept_rows.restore(group, ref, carry)

    def judged(self, candidates: Sequence[Candidate], measure: str) -> list[Sums] | None:
        return None

    def status(self) -> Status:
        return {
            "workers": self.workers,
            "groups": len(self.job.plan.groups),
            "groups_done": self._done_groups,
            "bytes_moved": self.bytes_moved,
            "events": self._recent,
        }

    # A round

    def _begin_round(self, round: Round) -> tuple[list[float], list[str | None]]:
        self._hear(0)  # what happened since the last round
        self._take_states(round)
        self._round, self._done_groups, self._accepted = round, 0, set()
        self._units = self._bundles(round)
        sizes = [float(sum(self._nnz[a:b])) for a, b in self._units]
        wishes = balanced([self._home.get(a, (None, ""))[0] for a, _ in self._units], self.workers)
        if not spreads(self.job, round):
            return sizes, wishes
        ready = sorted(member.address for member in self._members.values() if member.state == "ready")
        patience = self.patience
        self._joining = Joining(self.job, round, self._serial + 1, ready, self._units, patience.stale, patience.retries)
        side = side_by_side(len(self._units), ready, FAN)
        return sizes, [wish or beside for wish, beside in zip(wishes, side, strict=True)]

    def _bundles(self, round: Round) -> list[tuple[int, int]]:
        """What one task does: a group, or a node's groups where there are many for each worker."""
        n = len(round.refs)
        whole = self.job.plan.segments == 1 and not self._keeps
        if not whole or n < BUNDLES * FAN * max(1, self.workers):
            return [(group, group + 1) for group in range(n)]
        return [(first, min(n, first + FAN)) for first in range(0, n, FAN)]

    def _take_states(self, round: Round) -> None:
        if round.version == self._version and set(round.todo) <= set(self._states):
            return
        with self._stating:
            follows = round.version == self._version + 1 and not self.job.problems[0].setting.method.by_way
            self._previous = self._states if follows else {}  # by a way, arrays of both are the same
            self._states = dict(zip(round.todo, round.states, strict=True))
            self._version, self._shipments, self._line = round.version, {}, Line()

    # Its units

    def _called(self, unit: int) -> str:
        first, last = self._units[unit]
        return f"group {first}" if last == first + 1 else f"groups {first} to {last - 1}"

    async def _submit(self, unit: int, attempt: int, member: _Member) -> distributed.Future:
        (first, last), round, client = self._units[unit], self._round, self.link.client
        assert round is not None
        shipment = await self._ship(member, round.version)
        carries = await self._carries(member.address, first, round)
        visit = await self._visit(Parcel(round.visit(first, last)), member.address)
        token = f"{self.job.run[:8]}-{round.name}-{first}-{attempt}-{self._serial}"
        return submitted(  # bound to the worker: Dask would take it from one it killed to kill the next
            client, attempt_visit_there, visit, member.anchor, member.address, token, shipment, carries,
            self._keep(round), self._holding, key=(PREFIX, token), workers=[member.address], pure=False,
        )  # fmt: skip

    def _submit_trial(self, unit: int, attempt: int, member: _Member) -> distributed.Future:
        first, last = self._units[unit]
        assert self._round is not None
        return submitted(
            self.link.client, on_trial, Parcel(self._round.visit(first, last)), member.anchor,
            key=("bigclf-trial", f"{self.job.run[:8]}-{self._serial}-{first}-{attempt}"),
            workers=[member.address], pure=False,
        )  # fmt: skip

    def _convicted(self, unit: int, found: Verdict) -> BaseException:
        return shard_error(self.job.source, found["chunk"], found["signal"], self.patience.deaths, self._called(unit))

    def _accept(self, unit: int, address: str, answer: Outcome) -> None:
        outcome = answer
        assert self._round is not None
        self.worker_memory = max(self.worker_memory, outcome.facts["memory"])
        if self._joining is not None:
            self._joining.hold(unit, address)
        if unit in self._accepted:  # made again, since what it had come to was lost
            return
        self._accepted.add(unit)
        states = [self._states[number] for number in self._round.todo]
        alone = len(self.job.plan.groups) == 1
        if outcome.parts and alone:  # of several groups the mixture takes changes as they are
            outcome = outcome._replace(parts=[unpacked(p, s) for p, s in zip(outcome.parts, states, strict=True)])
        self._answers[unit] = outcome
        for group in range(outcome.first, outcome.last):
            self._home[group] = address, outcome.token
        if outcome.carry is not None:
            self._kept_rows.propose(outcome.first, self._round.refs[outcome.first], outcome.token, outcome.carry)
        self.advance(outcome.facts["rows"], outcome.facts["bytes_read"])

    def _size_of(self, answer: Outcome) -> int:
        return n_bytes(answer.parts) + (n_bytes(answer.carry) if answer.carry else 0)

    def _reported(self, address: str) -> None:
        member = self._members.get(address)
        if member is not None:
            member.version, member.shipment = self._version, None

    def _lacks_state(self, address: str) -> None:
        self._line.leave(address)
        member = self._members.get(address)
        if member is not None:
            member.version, member.shipment = -1, None

    def _lacking(self, unit: int, address: str) -> None:
        self._lacks_state(address)
        first, last = self._units[unit]
        for group in range(first, last):
            self._home.pop(group, None)

    def _forgotten(self, address: str) -> None:
        super()._forgotten(address)
        self._line.leave(address)
        self._home = {group: home for group, home in self._home.items() if home[0] != address}

    # What travels

    @property
    def _writes(self) -> bool:
        """Whether workers write row state into files."""
        return self._keeping not in ("", "travels")

    def _keep(self, round: Round) -> str:
        """What becomes of what the group carries after the round."""
        if self._remakes and not any(keeps_rows(self.job.problems[n], state) for n, state in self._states.items()):
            return ""
        return self._keeping or ("travels" if round.midway else "")

    async def _ship(self, member: _Member, version: int) -> distributed.Future | Parcel | None:
        """The common state on its way to the worker, or whom it is to ask for it, or None where it has it."""
        if member.version == version:
            return None
        if not picks(self.job) and (source := self._line.ahead(member.address, member.version)) is not None:
            parcel = self._shipment(member.version)
            size = n_bytes(parcel.content.changes)
            if passes_on(size, self.workers):
                self.bytes_moved += size
                seconds = self.patience.stale + 4 * size / SLOWEST
                cuts = 1 if self.job.plan.places else cuts_for(size)
                return Parcel(parcel.content._replace(changes={}, source=source, seconds=seconds, cuts=cuts))
        if member.shipment is None or member.shipment[0] != version or _failed(member.shipment[1]):
            sending = asyncio.ensure_future(self._put(self._shipment(member.version), member.address))
            sending.add_done_callback(_failed)  # whoever waited for it may be gone
            member.shipment = version, sending  # two attempts at once share it
        return await asyncio.shield(member.shipment[1])

    def _shipment(self, known: int) -> Parcel:
        """The common state as changes to what the worker has, or to the state every process can make."""
        with self._stating:
            base: int | None = 0
            if picks(self.job):
                base = None
            elif known == self._version - 1 and set(self._states) <= set(self._previous):
                base = known
            if not base and self._version == 0:
                return Parcel(Shipment(0, 0, {}))
            if base not in self._shipments:
                changes: dict[int, Any] = {}
                for number, state in self._states.items():
                    way = way_of(self.job.problems[number], state)
                    if way is not None and base is None:
                        changes[number] = picked(state, way.down)
                        continue
                    before = self._previous[number] if base else self._zero(number)
                    changes[number] = changes_to(before, state, self.job.plan) or self._whole(number, before, state)
                self._shipments[base] = Parcel(Shipment(self._version, base, changes))
            return self._shipments[base]

    def _whole(self, number: int, before: State, state: State) -> State | Picked:
        """A state as it travels: without what is 0 in it, as in the one ``before`` that the worker has."""
        rule = self.job.problems[number].setting.rule
        if rule is None or not rule.counts or self.job.plan.places:
            return state
        own = zip(state._fields, before, state, strict=True)  # type: ignore[attr-defined]
        return Picked({name: a for name, b, a in own if name not in rule.counts or a.any() or b.any()})

    async def _visit(self, parcel: Parcel, address: str) -> Parcel | distributed.Future:
        """The visit inside the task, or beside it where it has much to say of rows."""
        size = n_bytes(parcel.content)
        if size > INLINE_BYTES:
            return await self._put(parcel, address)
        self.bytes_moved += size
        return parcel

    def _zero(self, number: int) -> State:
        return self.job.problems[number].setting.shared(self.job.source.n_features, self.job.plan.dtype)

    async def _carries(self, address: str, first: int, round: Round) -> Parcel | distributed.Future | None:
        """What the group goes on from, where the worker is not known to have it."""
        ref = round.refs[first]
        if ref is None or not (self._keeps or round.segment > 0) or self._home.get(first) == (address, ref.token):
            return None
        parcel = Parcel([self._carry_at(first, ref)])
        size = n_bytes(parcel.content)
        if size <= INLINE_BYTES:
            self.bytes_moved += size
            return parcel
        return await self._put(parcel, address)

    def _carry_at(self, group: int, ref: Ref) -> Carry:
        """What the group carries at ``ref``, or where that did not travel, what it is made anew from."""
        if not self._remakes or self._kept_rows.has(group, ref):
            return self._kept_rows.settled(group, ref)
        problems, states = self.job.problems, self._states
        return Carry([rows_elsewhere(p, states[n]) if n in states else {} for n, p in enumerate(problems)], None)


class Measuring(Crew[Measured]):
    """The parts of an evaluation, measured by the workers of a cluster.

    Parameters
    ----------
    measure : what every part needs. parts : of all chunks, in order.
    progress : told of rows and bytes of each part, or None.
    """

    verb = "measured"

    def __init__(
        self, measure: Measure, parts: list[Part], idle: Callable[[], None], progress: Watcher | None, *, link: Link,
        patience: Patience,
    ) -> None:  # fmt: skip
        self.measure, self._parts, self._progress, self._done = measure, parts, progress, 0
        self.sample, self.content_bytes = files.absolute(measure.source.files[0]), measure.model.n_bytes
        needed = bytes_needed(measure, parts)
        super().__init__(uuid.uuid4().hex, _for_elsewhere(measure), needed, idle, link=link, patience=patience)

    def measured(self) -> Iterator[AnyPart]:
        """Every part once, in order."""
        if self._progress is not None:
            told: Plan = {"n_rows": self.measure.source.n_rows, "task": "rows", "status": self.status}
            self._progress.start(told)
        nnz = self.measure.source.chunks.nnz
        with contextlib.closing(self.work([float(nnz[a:b].sum()) for a, b, _ in self._parts])) as units:
            for unit in units:
                self._done = unit + 1
                yield self._answers.pop(unit).part

    def status(self) -> Status:
        return {
            "workers": self.workers,
            "parts": len(self._parts),
            "parts_done": self._done,
            "bytes_moved": self.bytes_moved,
            "events": self._recent,
        }

    def _called(self, unit: int) -> str:
        return f"chunks {self._parts[unit].first} to {self._parts[unit].last - 1}"

    async def _submit(self, unit: int, attempt: int, member: _Member) -> distributed.Future:
        return submitted(
            self.link.client, attempt_part, Parcel(self._parts[unit]), member.anchor,
            key=self._key("measure", unit, attempt), workers=[member.address], pure=False,
        )  # fmt: skip

    def _submit_trial(self, unit: int, attempt: int, member: _Member) -> distributed.Future:
        return submitted(
            self.link.client, on_trial, Parcel(self._parts[unit]), member.anchor, key=self._key("trial", unit, attempt),
            workers=[member.address], pure=False,
        )  # fmt: skip

    def _key(self, word: str, unit: int, attempt: int) -> tuple[str, str]:
        return f"bigclf-{word}", f"{self.name[:8]}-{self._parts[unit].first}-{attempt}"

    def _convicted(self, unit: int, found: Verdict) -> BaseException:
        return shard_error(
            self.measure.source, found["chunk"], found["signal"], self.patience.deaths, self._called(unit)
        )

    def _accept(self, unit: int, address: str, answer: Measured) -> None:
        self._answers[unit] = answer
        if self._progress is not None:
            self._progress.advance(answer.part.n, answer.n_bytes)

    def _size_of(self, answer: Measured) -> int:
        return answer.part.n_bytes


def _for_elsewhere(content: C) -> C:
    """A job or a measure as workers get it, whose directory may be another."""
    source = content.source
    return content._replace(source=source.seen_from_elsewhere()) if isinstance(source, Dataset) else content


def balanced(wishes: list[str | None], workers: int) -> list[str | None]:
    """The wishes, but of no worker more than its even share: what one has fetched first, others may take over."""
    share, taken = -(-len(wishes) // max(1, workers)), Counter[str]()
    kept: list[str | None] = []
    for wish in wishes:
        if wish is not None:
            taken[wish] += 1
        kept.append(wish if wish is not None and taken[wish] <= share else None)
    return kept


def _failed(sending: asyncio.Future[distributed.Future]) -> bool:
    """Whether what was sent did not arrive, or was lost since."""
    if not sending.done():
        return False
    return sending.cancelled() or sending.exception() is not None or sending.result().status in ("cancelled", "lost")


async def _over(future: distributed.Future) -> None:
    """Until the future is finished, failed or cancelled."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def tell(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(over.set)

    future.add_done_callback(tell)
    await over.wait()


async def _dask_error(client: distributed.Client, future: distributed.Future) -> tuple[object, ...]:
    """What kept a task from being run at all."""
    try:
        await client.gather(future, direct=False, asynchronous=True)
    except distributed.scheduler.KilledWorker as error:
        return "killed", error
    except (distributed.scheduler.NoWorkerError, distributed.client.FutureCancelledError) as error:
        return "lost", error
    except Exception as error:
        return "failed", error
    return ("lost",)
