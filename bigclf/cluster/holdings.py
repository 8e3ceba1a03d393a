"""What a worker holds of a round until it is joined: parts of groups, nodes of the tree, and totals on their way.

A *piece* is what a group or a node of the tree came to, or its part of the feature axis. No Dask here: what another
worker holds comes by a function that is handed in. Everything is a function of the round and of its groups alone,
whoever made it: so a piece that is lost may be made again anywhere, and of two the same one is as good as the other.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from bigclf.maths.deltas import Cut, n_bytes
from bigclf.maths.mixing import Weights
from bigclf.training.blend import Joint, Total, cut_part
from bigclf.training.executor import Missing
from bigclf.training.plan import Plan
from bigclf.training.visit import Part

if TYPE_CHECKING:
    from bigclf.cluster.worker_tasks import Place

AT_ONCE = 4  # pieces that are fetched beside each other


class Name(NamedTuple):
    """Of a piece: the group ``number`` (height 0), or the node of so many levels of groups; a part of its features."""

    height: int
    number: int
    cut: Cut = Cut()


class Source(NamedTuple):
    """A child of a node: where it is held, under which name, and which part of that is wanted."""

    address: str
    name: Name
    cut: Cut


class Order(NamedTuple):
    """Take children into the total of a node.

    Attributes
    ----------
    round, version : whose parts they are, and the version of the common state that they began with.
    todo : numbers of the problems.
    name : of the node, with the part of the features.
    first : children that the total has taken in before; sources : those that follow.
    base : worker that has the total now; None: this one, or nobody where ``first`` is 0.
    last : the node is done with these; root : and with it the tree.
    seconds : to wait for a worker to answer, beside the time that the bytes take.
    """

    round: int
    version: int
    todo: tuple[int, ...]
    name: Name
    first: int
    sources: tuple[Source, ...]
    base: str | None
    last: bool
    root: bool
    seconds: float


class Joined(NamedTuple):
    """What came of an order: children in the total, parts of the root (else none), bytes that were fetched."""

    taken: int
    parts: list[Part]
    moved: int


class Wanted(NamedTuple):
    """What is asked of another worker: a piece of a round, or the total of a node; and of a piece, which part."""

    round: int
    name: Name
    cut: Cut = Cut()
    total: bool = False


Given = list[Part] | list[list[Total | None]]  # of each problem
Fetch = Callable[[Sequence[tuple[str, Wanted]], float], list[Given]]
Pack = Callable[[Part, Weights, Plan], Part]


class Unreached(Exception):
    """Another worker did not give what it is thought to hold."""

    def __init__(self, address: str, why: object = "it lacks it") -> None:
        super().__init__(address, str(why))

    @property
    def address(self) -> str:
        """Of the worker."""
        return str(self.args[0])


class Running:
    """The total of a node that children are taken into."""

    def __init__(self, joints: list[Joint]) -> None:
        self.lock, self.joints, self.count = threading.Lock(), joints, 0

    def add(self, parts: Sequence[Part]) -> None:
        """Take in the next child."""
        for joint, part in zip(self.joints, parts, strict=True):
            joint.add(part)
        self.count += 1

    def totals(self) -> list[list[Total | None]] | None:
        """What has been taken in, of each problem; None: something is being taken in."""
        if not self.lock.acquire(blocking=False):
            return None
        try:
            return [joint.totals() for joint in self.joints]
        finally:
            self.lock.release()


class Holdings:
    """What a worker holds of the round under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._round = 0
        self._pieces: dict[Name, tuple[list[Part], list[int]]] = {}
        self._totals: dict[Name, Running] = {}

    def begin(self, round: int) -> None:
        """Of the rounds before nothing is wanted any more."""
        with self._lock:
            if round > self._round:
                self._round, self._pieces, self._totals = round, {}, {}

    def hold(self, round: int, name: Name, parts: list[Part], lengths: list[int]) -> None:
        """A group, or a node, is done; ``lengths`` : of the feature axis of each problem."""
        with self._lock:
            if round == self._round:
                self._pieces[name] = parts, lengths

    def drop(self, round: int, pieces: Sequence[Name], totals: Sequence[Name]) -> None:
        """What has been taken in where it is wanted."""
        with self._lock:
            for name in pieces if round == self._round else ():
                self._pieces.pop(name, None)
            for name in totals if round == self._round else ():
                self._totals.pop(name, None)

    def give(self, wanted: Wanted) -> Given | None:
        """A piece or a total; None: it is not here."""
        with self._lock:
            if wanted.round != self._round:
                return None
            running, held = self._totals.get(wanted.name), self._pieces.get(wanted.name)
        if wanted.total:
            return None if running is None else running.totals()
        return None if held is None else [cut_part(p, wanted.cut, n) for p, n in zip(*held, strict=True)]

    def running(self, order: Order, begin: Callable[[], list[Joint]]) -> Running | None:
        """The total that the order goes on with, begun anew if it is the first; None: it is not here."""
        with self._lock:
            if order.round != self._round:
                return None
            if order.name not in self._totals and (order.first == 0 or order.base is not None):
                self._totals[order.name] = Running(begin())
            return self._totals.get(order.name)

    def finish(self, order: Order) -> None:
        """The total is a piece now."""
        with self._lock:
            if order.round == self._round:
                self._totals.pop(order.name, None)


def join(order: Order, place: Place, here: str, fetch: Fetch, pack: Pack) -> Joined:
    """Take children into the total of a node, in their order; ``pack`` : makes a part as it travels.

    Raises
    ------
    Missing : what it goes on from is not here. Unreached : another worker did not give its part.
    """
    if place.version != order.version:
        raise Missing(f"state of version {order.version}, here is {place.version}")
    problems = [(place.job.problems[number], place.states[number]) for number in order.todo]
    held = place.holdings
    running = held.running(order, lambda: [Joint(problem, state, order.name.cut) for problem, state in problems])
    if running is None:
        raise Missing(f"the total of {order.name}")
    with running.lock:
        try:
            moved = _taken_in(order, running, held, here, fetch)
            states = [order.name.cut.state(state, len(state.weights)) for _, state in problems]
            both = zip(running.joints, states, strict=True)
            parts = [pack(joint.part(), state, place.job.plan) for joint, state in both] if order.last else []
        except (Missing, Unreached):
            raise
        except Exception:  # part of a child may be in it
            held.finish(order)
            raise
    if not order.last:
        return Joined(running.count, [], moved)
    if not order.root:
        held.hold(order.round, order.name, parts, [len(state.weights) for state in states])
    held.finish(order)
    return Joined(order.first + len(order.sources), parts if order.root else [], moved)


def _taken_in(order: Order, running: Running, held: Holdings, here: str, fetch: Fetch) -> int:
    """Take in the children; bytes that were fetched."""
    moved = _go_on(order, running, fetch)
    for batch in _batches(order.sources[running.count - order.first :], here):
        for parts in _brought(order, batch, held, here, fetch):
            moved += 0 if batch[0].address == here else n_bytes(parts)
            running.add(parts)
    return moved


def _go_on(order: Order, running: Running, fetch: Fetch) -> int:
    """Fetch the total from the worker that has it, where it is behind; bytes."""
    if running.count >= order.first:
        return 0
    if order.base is None:
        raise Missing(f"{order.first} children in the total of {order.name}")
    wanted = Wanted(order.round, order.name, total=True)
    totals = cast(list[list[Total | None]], fetch([(order.base, wanted)], order.seconds)[0])
    for joint, total in zip(running.joints, totals, strict=True):
        joint.go_on(total)
    running.count = running.joints[0].copies
    if running.count < order.first:
        raise Missing(f"{order.first} children in the total of {order.name}, {running.count} came")
    return n_bytes(totals)


def _batches(sources: Sequence[Source], here: str) -> Iterator[Sequence[Source]]:
    """Those that are here one by one, of others some at a time."""
    for is_here, run in itertools.groupby(sources, lambda source: source.address == here):
        together = [*run]
        size = 1 if is_here else AT_ONCE
        yield from (together[first : first + size] for first in range(0, len(together), size))


def _brought(order: Order, batch: Sequence[Source], held: Holdings, here: str, fetch: Fetch) -> list[list[Part]]:
    asked = [(source.address, Wanted(order.round, source.name, source.cut)) for source in batch]
    if batch[0].address != here:
        return cast(list[list[Part]], fetch(asked, order.seconds))
    given = held.give(asked[0][1])
    if given is None:
        raise Unreached(here)
    return [cast(list[Part], given)]
