"""The tree of a round: its shape is that of a mixture, whoever joins and whoever is lost."""

import collections
import random
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigclf.cluster.holdings import Joined, Name
from bigclf.cluster.joining import Joining, Line
from bigclf.cluster.tree import CUTS, Tree
from bigclf.maths.deltas import Cut
from bigclf.maths.mixing import FAN


def shape(height, number, groups):
    """A node as what is joined in it, in order: nested tuples of groups."""
    if height == 0:
        return number
    below = -(-groups // FAN ** (height - 1))
    return tuple(shape(height - 1, k, groups) for k in range(FAN * number, min(below, FAN * (number + 1))))


class Workers:
    """Workers that hold words in place of arrays, and count what each sends and gets, in parts of one state."""

    def __init__(self, groups, names, bundles=False, cuts=CUTS):
        self.groups, self.bundles = groups, bundles
        self.tree = Tree(groups, bundles, names, cuts)
        self.pieces = {name: {} for name in names}  # of each worker: by name
        self.totals = {name: {} for name in names}
        self.sent, self.got = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
        self.root, self.most, self.tasks = {}, 0, 0

    def visit(self, first, worker):
        """The worker makes the visit to a group, or the bundle that begins there."""
        bundle = self.bundles and first < self.groups - 1
        name = Name(1, first // FAN) if bundle else Name(0, first)
        self.pieces[worker][name] = shape(*name[:2], self.groups)
        self.tree.hold(name, worker)

    def carry_out(self, task):
        """As ``holdings.join``; False: another worker has not what it should have."""
        name, here = task.name, task.worker
        totals, first = self.totals[here], task.first
        if task.base is not None and len(totals.get(name, ())) < first:
            moved = self.totals.get(task.base, {}).get(name)
            if moved is None:
                return False
            totals[name] = list(moved)
            self._move(task.base, here, 1 / name.cut.of)
        if first and len(totals.get(name, ())) < first:
            return False
        total = totals.setdefault(name, [])
        for source in task.sources[len(total) - first :]:
            held = self.pieces.get(source.address, {}).get(source.name)
            if held is None:
                return False
            assert source.name.cut == name.cut or source.cut == name.cut
            self._move(source.address, here, 1 / max(source.name.cut.of, source.cut.of))
            total.append(held)
        if task.last:
            del totals[name]
            if task.root:
                self.root[name.cut] = tuple(total)
            else:
                self.pieces[here][name] = tuple(total)
        self.tree.joined(task, first + len(task.sources))
        return True

    def _move(self, one, other, size):
        if one != other:
            self.sent[one] += size
            self.got[other] += size

    def drop(self):
        for worker, pieces, totals in self.tree.droppings():
            for name in pieces:
                self.pieces.get(worker, {}).pop(name, None)
            for name in totals:
                self.totals.get(worker, {}).pop(name, None)
        self.most = max(self.most, *(len(held) for held in self.pieces.values()))

    def kill(self, worker):
        del self.pieces[worker], self.totals[worker]
        self.tree.lost(worker)


@settings(max_examples=200, deadline=None)
@given(groups=st.integers(2, 300), n=st.integers(1, 7), cuts=st.sampled_from([1, 3, CUTS]), bundles=st.booleans(),
       deaths=st.integers(0, 4), seed=st.integers(0, 10**6))  # fmt: skip
def test_whoever_joins_or_dies_the_root_has_every_group_once_in_its_place(groups, n, cuts, bundles, deaths, seed):
    draw, names = random.Random(seed), [f"w{k}" for k in range(n)]
    workers = Workers(groups, names, bundles, cuts)
    todo, tasks = list(range(0, groups, FAN if bundles else 1)), []
    draw.shuffle(todo) if draw.random() < 0.5 else todo.reverse()
    for step in range(100_000):
        if workers.tree.done:
            break
        if deaths and draw.random() < 0.02:
            deaths -= 1
            workers.kill(draw.choice([*workers.pieces]))
            workers.pieces[f"x{step}"], workers.totals[f"x{step}"] = {}, {}
            workers.sent[f"x{step}"] = workers.got[f"x{step}"] = 0.0
            workers.tree.welcome(f"x{step}")
        tasks += workers.tree.tasks()
        todo += [FAN * name.number if name.height else name.number for name in workers.tree.missing()]
        if tasks and draw.random() < 0.6:
            task = tasks.pop(draw.randrange(len(tasks)))
            if task.worker in workers.pieces and not workers.carry_out(task):
                workers.tree.failed(task)
        elif todo:
            workers.visit(todo.pop(), draw.choice([*workers.pieces]))
        workers.drop()
    height = next(h for h in range(1, 9) if FAN**h >= groups)
    assert workers.tree.done
    assert all(root == shape(height, 0, groups) for root in workers.root.values())
    assert set(workers.root) == {Cut(k, len(workers.root)) for k in range(len(workers.root))}


@pytest.mark.parametrize(("n", "groups", "up"), [(4, 4, 0.75), (4, 64, 0.75), (64, 64, 1.2), (1000, 100_000, 2.9)])
def test_nobody_sends_or_gets_more_than_twice_what_an_all_reduce_would(n, groups, up):
    """In states, of groups side by side; an all-reduce sends and gets two. ``up`` : the most before it goes down."""
    names, bundles = [f"w{k}" for k in range(n)], groups >= 4 * FAN * n
    workers, line = Workers(groups, names, bundles), Line()
    firsts = range(0, groups, FAN if bundles else 1)
    for unit, first in enumerate(firsts):
        workers.visit(first, names[unit * n // len(firsts)])
    while not workers.tree.done:
        for task in workers.tree.tasks():
            workers.tasks += 1
            assert workers.carry_out(task)
        workers.drop()
    assert max(workers.sent.values()) <= up and max(workers.got.values()) <= up
    assert workers.tasks <= len(firsts) + CUTS * groups / FAN
    assert workers.most <= -(-len(firsts) // n) + CUTS
    for name in names:
        if (source := line.ahead(name, 0)) is not None:
            workers.sent[source] += 1
        workers.got[name] += 1
    assert max(workers.sent.values()) <= 4 and max(workers.got.values()) <= 4
    assert sum(line.ahead(name, 0) is None for name in names) == 1  # whom the driver sends it


def test_who_did_not_get_the_state_from_others_gets_it_from_the_driver_and_gives_nobody():
    line = Line()
    assert [line.ahead(name, 3) for name in "abcd"] == [None, "a", "a", "b"]
    assert line.ahead("d", 3) == "b" and line.ahead("e", 2) is None  # it has another version
    line.leave("b")
    assert line.ahead("b", 3) is None and line.ahead("d", 3) is None and line.ahead("c", 3) == "a"


def test_what_one_gave_away_stays_when_who_asked_for_it_dies():
    workers = Workers(3, ["a", "b", "c"], cuts=1)
    for group, name in enumerate("abc"):
        workers.visit(group, name)
    (task,) = workers.tree.tasks()
    workers.kill(task.worker)
    lost = {"a": 0, "b": 1, "c": 2}[task.worker]
    assert workers.tree.missing() == [Name(0, lost)]
    workers.tree.joined(task, 3)  # it comes too late to count
    assert not workers.tree.done
    workers.visit(lost, next(iter(workers.pieces)))
    (task,) = workers.tree.tasks()
    assert workers.carry_out(task) and workers.tree.done and workers.root[Cut()] == (0, 1, 2)


class Plain(NamedTuple):
    weights: np.ndarray


def test_a_dead_worker_is_asked_in_vain_only_until_another_can_be_asked():
    job = SimpleNamespace(problems=[SimpleNamespace(setting=SimpleNamespace(rule=SimpleNamespace(by_place=True)))])
    round = SimpleNamespace(states=[Plain(np.zeros(9))], refs=list(range(4)), version=1, todo=())
    joining = Joining(job, round, 1, ["dead", "alive"], [(k, k + 1) for k in range(4)], stale=30.0, retries=0)
    for group in range(4):
        joining.hold(group, "dead" if group < 3 else "alive")
    asked, missing = collections.Counter(), set()
    while not joining.done:
        for group in joining.missing():
            missing.add(group)
            joining.hold(group, "alive")
        for task in joining.tasks():
            asked[task.worker] += 1
            dead = task.worker == "dead"
            joining.heard(task, None if dead else Joined(task.first + len(task.sources), [], 0))
    assert asked["dead"] == 1 and missing == {0, 1, 2}
