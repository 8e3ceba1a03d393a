"""Many problems, of whose weights some are left out within a tolerance: as in ``pruning``, of eight at a time.

A pass over a sample of the rows estimates the objective P(u) of the weights of which the smallest are set to 0, for 33
numbers of them. A number that is likely to be within the bound is then tried on all rows, and by what that shows a few
more; the most that was seen to be within the bound is dropped. Margins of eight problems are made together
(``maths/side_by_side.py``): a trial takes a tenth of the time of a pass over the rows for each.
"""

from __future__ import annotations

import functools
import math
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from bigclf.compiled.jit import kernel
from bigclf.compiled.lanes import LANES
from bigclf.maths.block import Block
from bigclf.maths.losses import Loss
from bigclf.maths.side_by_side import add_up
from bigclf.methods import Setting
from bigclf.training.problems import Problem
from bigclf.training.pruning import LEVELS, SAMPLED, THREADS, Blocks, Pruned, adder, agrees, bounds_of, sampled

TRIALS = 6
SHY = 0.005  # of the room that the bound leaves: so far below it trials aim
ENOUGH = 0.03  # ... and this near a trial is good enough
BACK = 0.02  # of the size that was too large: so far below it the next trial is at least, of several in a row more


class Search:
    """For the size below which weights of a problem are dropped.

    primal, bound : the objective of all weights, and the one to stay within. sizes : ascending, float64 [level], the
    smallest weights that are left at each level; estimates : float64 [level], of the objectives there.
    """

    def __init__(self, primal: float, bound: float, sizes: np.ndarray, estimates: np.ndarray) -> None:
        self.primal, self.bound, self.sizes = primal, bound, sizes
        self.over = np.maximum.accumulate(np.maximum(0.0, estimates - estimates[0]))
        self.best, self.tried = (0.0, primal), 0.0
        self.most, self.worst = float(sizes[-1]), math.inf  # nothing from ``most`` on will do: by so much
        self.over_it = 0  # so many trials in a row were above the bound
        self.done = bound <= primal

    def next(self) -> float:
        """The size to try: where the estimates come to the bound; between one that is within it and one that is not, by
        a power of the size."""
        room = (1 - SHY) * (self.bound - self.primal)
        over = self.best[1] - self.primal
        if over > 0 and self.worst < math.inf:
            share = math.log(max(room, over) / over) / math.log(self.worst / over)
            wanted = self.best[0] * (self.most / self.best[0]) ** share
        else:
            wanted = self._expected(room)
        if self.over_it > 1 and self.best[0] > 0:  # many weights may be of one size
            wanted = math.sqrt(self.best[0] * self.most)
        elif self.over_it:
            wanted = min(wanted, (1 - BACK * self.over_it) * self.most)
        elif not self.best[0] < wanted < self.most:
            wanted = self.most if self.worst == math.inf else 0.5 * (self.best[0] + self.most)
        self.tried = wanted
        return wanted

    def _expected(self, room: float) -> float:
        """The size at which the objective is that much larger."""
        level = int(np.searchsorted(self.over, room, side="right"))
        if level == self.over.size:
            return self.most
        low, high = self.over[level - 1], self.over[level]
        share = (room - low) / (high - low)
        return float(self.sizes[level - 1] + share * (self.sizes[level] - self.sizes[level - 1]))

    def take(self, objective: float) -> None:
        """What came of the trial: the estimates go through it from now on."""
        room, over = self.bound - self.primal, objective - self.primal
        if objective <= self.bound:
            self.best = max(self.best, (self.tried, objective))
            self.over_it = 0
            self.done = room - over <= ENOUGH * room or self.tried == self.sizes[-1]
        else:
            self.most, self.worst = self.tried, over
            self.over_it += 1
        expected = float(np.interp(self.tried, self.sizes, self.over))
        if over > 0 and expected > 0:
            self.over *= over / expected


class Lane(NamedTuple):
    """A trial: the number of the problem, and the size below which its weights are left out."""

    number: int
    least: float


def pruned_together(
    problems: Sequence[Problem],
    weights: Sequence[np.ndarray],
    objectives: Sequence[tuple[float, float]],
    blocks: Blocks,
    tol: float,
) -> list[Pruned]:
    """As ``pruning.pruned``, of several problems."""
    bounds = bounds_of(objectives, tol)
    passes = _Passes(problems, weights, blocks)
    levels = [_Levels.of(w, problem) for w, problem in zip(weights, problems, strict=True)]
    found = [
        Search(primal, bound, its.least, total)
        for (primal, _), bound, its, total in zip(objectives, bounds, levels, passes.estimates(levels), strict=True)
    ]
    for trial in range(TRIALS):
        lanes = [Lane(n, search.next()) for n, search in enumerate(found) if not search.done]
        first = [Lane(0, 0.0)] if trial == 0 else []  # nothing is left out: the rows are known by it
        came = passes.objectives(first + lanes)
        if first and not agrees(came[0], objectives[0][0], problems[0], weights[0], blocks):
            return [Pruned(its, primal, False) for its, (primal, _) in zip(weights, objectives, strict=True)]
        for lane, objective in zip(lanes, came[len(first) :], strict=True):
            found[lane.number].take(objective)
    for its, search in zip(weights, found, strict=True):
        its[:-1][np.abs(its[:-1]) < np.float64(search.best[0])] = 0  # as the trial did, not in float32
    return [Pruned(its, search.best[1]) for its, search in zip(weights, found, strict=True)]


class _Levels(NamedTuple):
    """least : float64 [level], 0, the smallest weights behind each of ``LEVELS`` parts of those that are not 0, and
    more than all; squares : float64 [level], half of ||u||^2 of what is not below them."""

    least: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, weights: np.ndarray, problem: Problem) -> _Levels:
        sizes = np.sort(np.abs(weights[:-1], dtype=np.float64))
        sizes = sizes[np.searchsorted(sizes, 0.0, side="right") :]
        ends = -(-sizes.size * np.arange(LEVELS + 1) // LEVELS)
        above = np.nextafter(sizes[-1], np.inf) if sizes.size else 1.0
        left = np.append(np.cumsum((sizes * sizes)[::-1])[::-1], 0.0)[ends]
        least = np.append(sizes, above)[ends]
        least[0] = 0.0
        return cls(least, 0.5 * (left + _square_of_bias(weights, problem)))


def _square_of_bias(weights: np.ndarray, problem: Problem) -> float:
    return 0.0 if problem.setting.settings.get("free_bias") else float(weights[-1]) ** 2


class _Room:
    """A thread's memory for ``size`` weights of eight problems beside each other, and for rows."""

    def __init__(self, size: int) -> None:
        self.tile, self._margins = np.zeros((size, LANES)), np.empty((0, LANES))
        self._seen = np.empty((2, 0))

    def margins(self, rows: int) -> np.ndarray:
        """float64 [row, 8]"""
        if self._margins.shape[0] < rows:
            self._margins, self._seen = np.empty((rows, LANES)), np.empty((2, rows))
        return self._margins[:rows]

    def view(self, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Of labels and weights, float64 [row] each."""
        return self._seen[0, :rows], self._seen[1, :rows]


class _Passes(NamedTuple):
    """Passes over the rows, in ``THREADS`` threads."""

    problems: Sequence[Problem]
    weights: Sequence[np.ndarray]
    blocks: Blocks

    def estimates(self, levels: Sequence[_Levels]) -> list[np.ndarray]:
        """Of each problem P(u) at each level, float64 [level], by a sample of the rows."""
        found = [np.zeros(LEVELS + 2) for _ in levels]
        add = adder(self._loss)

        def of(block: Block, n: int) -> None:
            w, sums, room = self.weights[n], found[n], np.empty((2, LEVELS + 2))
            its = np.empty(w.size - 1, np.int8)
            rank(w, levels[n].least, its)
            C, e, constant = self._settings(n)
            add(sampled(self.problems[n].view(block), SAMPLED), w, its, constant, C, e, room, sums)

        with ThreadPoolExecutor(THREADS) as pool:
            for block in self.blocks():
                list(pool.map(functools.partial(of, block), range(len(levels))))
        return [total[1:] + its.squares for total, its in zip(found, levels, strict=True)]

    def objectives(self, lanes: Sequence[Lane]) -> list[float]:
        """P(u) of each, by all rows."""
        found = np.zeros(len(lanes))
        rooms: queue.SimpleQueue[_Room] = queue.SimpleQueue()
        for _ in range(THREADS):
            rooms.put(_Room(self.weights[0].size))

        def of(block: Block, first: int) -> None:
            room = rooms.get()
            try:
                self._add(block, lanes[first : first + LANES], room, found[first : first + LANES])
            finally:  # else others would wait for it
                rooms.put(room)

        with ThreadPoolExecutor(THREADS) as pool:
            for block in self.blocks() if lanes else ():
                list(pool.map(functools.partial(of, block), range(0, len(lanes), LANES)))
        halves = [0.5 * self._square(lane) for lane in lanes]
        return [float(a + b) for a, b in zip(found, halves, strict=True)]

    def _add(self, block: Block, lot: Sequence[Lane], room: _Room, sums: np.ndarray) -> None:
        """The losses of a block's rows, of each lane."""
        for place, lane in enumerate(lot):
            lay_left(self.weights[lane.number], lane.least, place, room.tile)
        margins, lost = room.margins(block.n_rows), losses(self._loss)
        seen = room.view(block.n_rows)
        add_up(block, room.tile, margins)
        for place, lane in enumerate(lot):
            C, e, constant = self._settings(lane.number)
            view = self.problems[lane.number].view(block, 0, seen)
            sums[place] = lost(view, margins, place, constant, C, e, sums[place])

    def _square(self, lane: Lane) -> float:
        """||u||^2"""
        w = self.weights[lane.number]
        return float(square_left(w, lane.least)) + _square_of_bias(w, self.problems[lane.number])

    @property
    def _loss(self) -> Loss:
        setting = self.problems[0].setting
        loss = setting.method.loss_of(setting.loss)
        assert loss is not None
        return loss

    def _settings(self, n: int) -> tuple[float, float, float]:
        """C, epsilon, and what the bias adds to each margin."""
        settings = self.problems[n].setting.settings
        return settings["C"], settings.get("epsilon") or 0.0, settings["bias"] * float(self.weights[n][-1])


def warm_pruning(setting: Setting, block: Block, weights: np.ndarray) -> None:
    """Call what drops weights on the rows of ``block``, which may be none."""
    problem = Problem("", np.array([-1.0, 1.0]), np.ones(2), setting)
    passes = _Passes([problem], [weights], lambda: [block])
    passes.estimates([_Levels.of(weights, problem)])
    passes.objectives([Lane(0, 0.0)])


@kernel
def rank(weights, least, levels):  # type: ignore[no-untyped-def]
    """levels[j]: how many of ``least``, ascending, |weights[j]| is not below."""
    for j in range(levels.size):
        size, low, high = abs(weights[j]), 0, least.size
        while low < high:
            middle = (low + high) >> 1
            if least[middle] <= size:
                low = middle + 1
            else:
                high = middle
        levels[j] = low


@kernel
def lay_left(weights, least, place, tile):  # type: ignore[no-untyped-def]
    """``weights`` to tile[:, place], but those whose size is below ``least``."""
    for j in range(weights.size):
        w = np.float64(weights[j])
        tile[j, place] = w if abs(w) >= least else 0.0


@kernel
def square_left(weights, least):  # type: ignore[no-untyped-def]
    """The sum of squares of ``weights`` [feature + 1], without the last, whose size is not below ``least``."""
    total = np.float64(0)
    for j in range(weights.size - 1):
        w = np.float64(weights[j])
        total += w * w if abs(w) >= least else 0.0
    return total


@functools.cache
def losses(loss: Loss) -> Callable[..., float]:
    """Kernel that adds C_i loss(s_i m_i) of a block's rows to ``total``, row by row, so that the bits do not depend on
    blocks; their margins but for the ``constant`` are margins[:, place]."""
    value_of, regression = loss.value, loss.regression

    @kernel
    def add(block, margins, place, constant, C, e, total):  # type: ignore[no-untyped-def]
        for i in range(block.indptr.size - 1):
            c, t = C * block.weights[i], block.labels[i]
            if c > 0:
                total += c * value_of((1.0 if regression else t) * (margins[i, place] + constant), t, e)
        return total

    return add
