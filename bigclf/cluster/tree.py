"""The tree by which what groups came to is joined between workers: who holds what, and who is to join what.

Its shape is that of ``mixing.Mixture``: ``FAN`` consecutive groups make a node, ``FAN`` consecutive nodes another one,
up to one. So the bits are the same whoever joins, and when. Events go in (a worker holds a group; an order was carried
out, or not; a worker is lost), orders come out. No cluster, no clock and no arrays in here, as in ``Book``.

Who joins
---------
Where workers have many children of a level each, side by side, the total of a node goes from one to the next: so of all
that a worker has of a node one array travels. Else a node is joined in parts of the feature axis, each by a worker of
its own: all workers send and receive alike, about one state each. Who is chosen does not change the bits.

What is lost with a worker is made again: a node from its children, these from theirs, down to visits to groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bigclf.cluster.holdings import Name, Source
from bigclf.maths.deltas import Cut
from bigclf.maths.mixing import FAN

MANY = 2  # nodes that a worker has of a level, from which on totals travel; of groups ``FAN``
CUTS = 16  # most parts of the feature axis
BATCH = 4
RUN = 3  # groups that another worker has side by side, from which on their total goes there
FULL = 2  # states that a worker has got, from which on others are asked


class Task(NamedTuple):
    """Have ``worker`` take the children ``first`` and those that follow into the total of a node; see ``Order``."""

    worker: str
    attempt: int
    name: Name
    first: int
    sources: tuple[Source, ...]
    base: str | None
    last: bool
    root: bool


class Dropping(NamedTuple):
    """Have ``worker`` let go of pieces, and totals, that nobody wants any more."""

    worker: str
    pieces: tuple[Name, ...]
    totals: tuple[Name, ...]


@dataclass(slots=True, eq=False)
class _Total:
    """The total of a node, or of a part of it."""

    name: Name
    children: int
    worker: str | None = None  # who has it, or is to have it
    count: int = 0  # children in it
    task: Task | None = None  # under way
    done: bool = False


@dataclass(slots=True, eq=False)
class _Node:
    number: int
    totals: list[_Total]
    dropped: int = 0  # children that nobody wants any more


@dataclass(slots=True, eq=False)
class _Level:
    """Nodes of one height."""

    count: int
    moves: bool  # their totals go from worker to worker
    cuts: int
    nodes: dict[int, _Node] = field(default_factory=dict)
    held: dict[int, tuple[str, ...]] = field(default_factory=dict)  # those done: who has it, or each part


class Tree:
    """The tree of one round.

    Parameters
    ----------
    groups : how many there are. bundles : whether nodes of height 1 come from visits (one of a single group does not).
    workers : those that may join, in any order. cuts : most parts of the feature axis; 1: nodes are joined whole.
    batch : children that are taken in together where more are to come, which wait for each other where they are.
    """

    def __init__(
        self, groups: int, bundles: bool, workers: Sequence[str], cuts: int = CUTS, batch: int = BATCH
    ) -> None:
        self._bundles, self._workers, self._batch = bundles, list(workers), batch
        many, whole = max(1, len(workers)), True
        parts = min(cuts, many)
        self._levels = [_Level(groups, False, 1)]
        while (below := self._levels[-1].count) > 1:
            moves = whole and below >= (MANY if len(self._levels) > 1 else FAN) * many
            whole = whole and (moves or parts == 1)
            self._levels.append(_Level(-(-below // FAN), moves, 1 if whole else parts))
        self._top = len(self._levels) - 1
        self._turn = 0
        self._sent: defaultdict[str, float] = defaultdict(float)  # by each worker, in states ...
        self._got: defaultdict[str, float] = defaultdict(float)
        self._dirty: dict[tuple[int, int], None] = {}  # nodes for which there may be something to do
        self._dropping: dict[str, tuple[list[Name], list[Name]]] = {}
        self._missing: dict[Name, None] = {}
        self._made = 0

    @property
    def done(self) -> bool:
        """Whether the root is joined."""
        return 0 in self._levels[self._top].held

    # Events

    def hold(self, name: Name, worker: str) -> None:
        """The worker holds what a visit came to: of a group, or of all groups of a node."""
        held = self._levels[name.height].held
        if name.number not in held and self._is_wanted(name):
            held[name.number] = (worker,)
            self._touch(name)

    def joined(self, task: Task, count: int) -> None:
        """The task was carried out, and so many children are in the total."""
        total = self._under_way(task)
        if total is None:
            return
        if task.base is not None:
            self._drop(task.base, totals=task.name)
        total.count, total.task = count, None
        total.done = count == total.children
        height, level = task.name.height, self._levels[task.name.height]
        node = level.nodes[task.name.number]
        if height == 1 or total.done:
            self._let_go(task.name, node)
        if all(other.done for other in node.totals):
            level.held[node.number] = tuple(str(other.worker) for other in node.totals)
            del level.nodes[node.number]
            self._touch(Name(height, node.number))
        else:
            self._dirty[height, node.number] = None

    def waits_for(self, task: Task) -> bool:
        """Whether anything depends on what comes of the task."""
        return self._under_way(task) is not None

    def failed(self, task: Task) -> None:
        """Nothing came of the task, and the total that it went on from is not there: it is begun anew."""
        if (total := self._under_way(task)) is not None:
            self._begin_anew(total)

    def lost(self, worker: str) -> None:
        """The worker is gone, or what it holds cannot be had: it is made again elsewhere."""
        if worker in self._workers:
            self._workers.remove(worker)
        for height, level in enumerate(self._levels[: self._top]):
            for number in [number for number, held in level.held.items() if worker in held]:
                del level.held[number]
                self._make_again(Name(height, number))
        for level in self._levels[1:]:
            for total in [total for node in level.nodes.values() for total in node.totals]:
                self._lose(total, worker)

    def welcome(self, worker: str) -> None:
        """Another worker may join."""
        if worker not in self._workers:
            self._workers.append(worker)
            self._dirty |= {(h, number): None for h, level in enumerate(self._levels) for number in level.nodes}

    # What follows

    def tasks(self) -> Iterator[Task]:
        """What is to be done now."""
        while self._dirty:
            height, number = next(iter(self._dirty))
            del self._dirty[height, number]
            if number in self._levels[height].held:
                continue
            for total in self._node(height, number).totals:
                if total.task is None and not total.done and (task := self._task(total)) is not None:
                    yield task

    def droppings(self) -> list[Dropping]:
        """What is not wanted any more since the last call."""
        dropping, self._dropping = self._dropping, {}
        return [Dropping(worker, tuple(pieces), tuple(totals)) for worker, (pieces, totals) in dropping.items()]

    def missing(self) -> list[Name]:
        """What visits have to come to once more, since the last call; some of it may be under way."""
        missing, self._missing = list(self._missing), {}
        return missing

    # Inside

    def _node(self, height: int, number: int) -> _Node:
        level = self._levels[height]
        if number not in level.nodes:
            children = min(FAN, self._levels[height - 1].count - FAN * number)
            names = (Name(height, number, Cut(part, level.cuts)) for part in range(level.cuts))
            level.nodes[number] = _Node(number, [_Total(name, children) for name in names])
        return level.nodes[number]

    def _touch(self, child: Name) -> None:
        """A child is there: its node may go on."""
        if child.height < self._top:
            self._dirty[child.height + 1, child.number // FAN] = None

    def _is_wanted(self, name: Name) -> bool:
        """Whether the node above has still to take it in."""
        if name.height == self._top:
            return True
        above, number = name.height + 1, name.number // FAN
        if number in self._levels[above].held:
            return False
        return any(total.count <= name.number % FAN for total in self._node(above, number).totals)

    def _under_way(self, task: Task) -> _Total | None:
        node = self._levels[task.name.height].nodes.get(task.name.number)
        total = None if node is None else node.totals[task.name.cut.number]
        return total if total is not None and total.task is task else None

    def _lose(self, total: _Total, worker: str) -> None:
        task = total.task
        if total.done and total.name.height == self._top:  # the driver has it
            return
        if total.worker == worker or task is not None and task.base == worker:
            self._begin_anew(total)
        elif task is not None and any(source.address == worker for source in task.sources):
            total.task = None  # the total stays where it is
            self._dirty[total.name.height, total.name.number] = None

    def _begin_anew(self, total: _Total) -> None:
        total.worker, total.count, total.task, total.done = None, 0, None, False
        self._turn += 1  # another worker may have more luck
        height, number = total.name.height, total.name.number
        self._levels[height].nodes[number].dropped = 0
        self._dirty[height, number] = None
        for child in range(FAN * number, FAN * number + total.children):
            if child not in self._levels[height - 1].held:
                self._make_again(Name(height - 1, child))

    def _make_again(self, name: Name) -> None:
        """It is not held any more, or not yet; if it is wanted, that is to change."""
        level = self._levels[name.height]
        if not self._is_wanted(name) or name.number in level.nodes:
            return
        alone = FAN * name.number == self._levels[0].count - 1
        if name.height == 0 or (name.height == 1 and self._bundles and not alone):
            self._missing[name] = None
            return
        for total in self._node(*name[:2]).totals:
            self._begin_anew(total)

    def _let_go(self, name: Name, node: _Node) -> None:
        """Of children that every part of the node has taken in."""
        taken = min(total.count for total in node.totals)
        for number in range(FAN * name.number + node.dropped, FAN * name.number + taken):
            held = self._levels[name.height - 1].held.pop(number, ())
            for part, worker in enumerate(held):
                self._drop(worker, Name(name.height - 1, number, Cut(part, len(held))))
        node.dropped = max(node.dropped, taken)

    def _drop(self, worker: str, piece: Name | None = None, totals: Name | None = None) -> None:
        dropped = self._dropping.setdefault(worker, ([], []))
        for names, name in zip(dropped, (piece, totals), strict=True):
            if name is not None:
                names.append(name)

    def _task(self, total: _Total) -> Task | None:
        """The next children, as far as they are there, for whoever has the total, or is to have it."""
        height, number, cut = total.name
        level = self._levels[height]
        ready, ended = self._ready(total, level.moves)
        if not ready or not (ended or len(ready) >= self._batch):
            return None
        goes = level.moves and (total.worker is None or height > 1 or len(ready) >= RUN)
        worker = ready[0][0] if goes else total.worker or self._chosen(total.name, total)
        if worker is None:
            return None
        base = total.worker if total.count and total.worker != worker else None
        first = FAN * number + total.count
        sources = tuple(_source(Name(height - 1, child), cut, held) for child, held in enumerate(ready, first))
        last = total.count + len(sources) == total.children
        self._made += 1
        total.worker = worker
        for giver in [source.address for source in sources] + ([] if base is None else [base]):
            if giver != worker:
                self._sent[giver] += 1 / cut.of
                self._got[worker] += 1 / cut.of
        total.task = Task(worker, self._made, total.name, total.count, sources, base, last, height == self._top)
        return total.task

    def _ready(self, total: _Total, moves: bool) -> tuple[list[tuple[str, ...]], bool]:
        """Who has each of the next children that are there, of a total that moves those of one worker; and whether
        nothing is gained by waiting for more."""
        below = self._levels[total.name.height - 1].held
        ready: list[tuple[str, ...]] = []
        for child in range(FAN * total.name.number + total.count, FAN * total.name.number + total.children):
            held = below.get(child)
            if held is None:
                return ready, False
            if moves and ready and held != ready[0]:
                return ready, True
            ready.append(held)
        return ready, True

    def _chosen(self, name: Name, total: _Total) -> str | None:
        """For a part of a node one who holds a child of it, another one for each part; else who has got least."""
        child = FAN * name.number + (name.cut.number + self._turn) % total.children
        held = self._levels[name.height - 1].held.get(child, ())
        holder = held[min(name.cut.number, len(held) - 1)] if held else None
        if holder in self._workers and self._got[holder] < FULL:
            return holder
        turn = (name.number * name.cut.of + name.cut.number + self._turn) % max(1, len(self._workers))
        return min(self._workers[turn:] + self._workers[:turn], key=self._got.__getitem__, default=None)


def _source(name: Name, cut: Cut, held: tuple[str, ...]) -> Source:
    """A child as the node's part asks for it: held whole, or in the same parts."""
    if len(held) == 1:
        return Source(held[0], name, cut)
    return Source(held[cut.number], name._replace(cut=cut), Cut())
