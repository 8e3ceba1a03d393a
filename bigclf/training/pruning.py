"""Weights that can be left out within a tolerance, with a proof.

D(alpha), by which training ended, bounds the optimum from below whatever the weights are. So weights u of which the
smallest are set to 0 are certified by what the rows say of them,

    P(u) - P* <= P(u) - D(alpha),      P(u) = 1/2 ||u||^2 + sum_i C_i loss(y_i u.x_i),

and as many are dropped, in the order of |w_j|, as keep (P(u) - D) / P(u) within the tolerance. A pass over a sample of
the rows estimates the objective with 0, 1/32, 2/32 ... of the weights dropped. A pass over all rows then has it with
32 numbers of weights dropped in the two of these parts around the tolerance. Where the estimate was wrong the first
pass is made over all rows. The objective that is kept is a sum over all rows. The bias is never dropped.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeAlias

import numpy as np

from bigclf.compiled.jit import dot, dot_slack, entry, kernel
from bigclf.errors import RunError
from bigclf.maths.block import Block
from bigclf.maths.losses import Loss
from bigclf.methods import Setting
from bigclf.training.problems import Problem

LEVELS = 32
AGREES = 1e-6  # relative, of the objective of all weights with that of the certificate
THREADS = 2
SAMPLED = 8  # one of so many rows that do not have the class is looked at first
Blocks: TypeAlias = Callable[[], Iterable[Block]]


class Pruned(NamedTuple):
    """What became of a problem: its weights [feature + 1], those that were dropped 0, and their objective; ``exact`` is
    False where roundings hide what becomes of that, so that nothing was dropped."""

    weights: np.ndarray
    primal: float
    exact: bool = True


def require_prunable(setting: Setting) -> None:
    """TypeError for a method whose objective is not the one above."""
    method = setting.method
    penalty = setting.settings.get("penalty") or "l2"
    if not method.certificate or method.all_classes or not method.linear or penalty != "l2":
        needed = "a certificate of the L2 penalty, and each class against the rest"
        raise TypeError(f"prune has no effect with {method.asked}: it needs {needed}")


def pruned(
    problems: Sequence[Problem],
    weights: Sequence[np.ndarray],
    objectives: Sequence[tuple[float, float]],
    blocks: Blocks,
    tol: float,
) -> list[Pruned]:
    """Drop what can be dropped of the weights of each problem, in place: copies of very many would take their memory
    once more.

    Parameters
    ----------
    weights : [feature + 1] of each, the bias last.
    objectives : primal and dual of each, as its certificate has them.
    blocks : all rows, anew at each call.
    tol : the relative gap that the weights that are left may have.

    Raises
    ------
    RunError : the rows say another objective than the certificate: they are not those of the training.
    """
    bounds = bounds_of(objectives, tol)
    sizes = [np.sort(np.abs(w[:-1][w[:-1] != 0])) for w in weights]
    some = _Chosen(problems, weights, sizes, blocks)
    sums = some.sums(range(len(problems)), [ALL] * len(problems), SAMPLED)
    parts = [
        _around(total - total[0] + primal, bound)
        for total, (primal, _), bound in zip(sums, objectives, bounds, strict=True)
    ]
    found: dict[int, Pruned] = {}
    todo, last = list(range(len(problems))), False
    while todo:
        for n, total in zip(todo, some.sums(todo, [parts[n] for n in todo]), strict=True):
            if not agrees(total[0], objectives[n][0], problems[n], weights[n], blocks):
                found[n] = Pruned(weights[n], objectives[n][0], False)
                continue
            level = _within(total, bounds[n])
            if last or not _missed(level, parts[n]):
                weights[n][:-1][_levels(weights[n], sizes[n], parts[n]) < level] = 0
                found[n] = Pruned(weights[n], float(total[level]))
        todo, last = [n for n in todo if n not in found], True
        for n, total in zip(todo, some.sums(todo, [ALL] * len(todo)), strict=True):
            parts[n] = _around(total, bounds[n])
    return [found[n] for n in range(len(problems))]


def scores_of_class(problems: Sequence[Problem], weights: Sequence[np.ndarray], blocks: Blocks) -> list[float]:
    """Of each problem the mean of w.x_i + b over the rows that have its class, by their weights; NaN where there are
    none. One pass over the rows."""
    sums = np.zeros((len(problems), 2))
    with ThreadPoolExecutor(THREADS) as pool:
        for block in blocks():

            def of(n: int, rows: Block = block) -> None:
                constant = problems[n].setting.settings["bias"] * float(weights[n][-1])
                add_scores(problems[n].view(rows), weights[n], constant, sums[n])

            list(pool.map(of, range(len(problems))))
    return [float(total / rows) if rows > 0 else math.nan for total, rows in sums]


@kernel
def add_scores(block, weights, constant, sums):  # type: ignore[no-untyped-def]
    """Add  sum_i c_i (w.x_i + constant)  and  sum_i c_i  of the rows that have the class to ``sums`` [2], row by row:
    the bits do not depend on blocks."""
    for i in range(block.indptr.size - 1):
        c = block.weights[i]
        if c > 0 and block.labels[i] > 0:
            sums[0] += c * (dot(block, i, weights) + constant)
            sums[1] += c


def bounds_of(objectives: Sequence[tuple[float, float]], tol: float) -> list[float]:
    """The most that each objective may come to."""
    return [max(primal, dual / (1 - tol)) for primal, dual in objectives]


def agrees(total: float, primal: float, problem: Problem, weights: np.ndarray, blocks: Blocks) -> bool:
    """Whether the rows give the objective of the certificate; False where they may, but margins are rounded by too much
    to see it, as those of very long rows are.

    Raises
    ------
    RunError : they are other rows.
    """
    if abs(total - primal) <= AGREES * abs(primal):
        return True
    if abs(total - primal) <= 2 * _hidden(problem, weights, blocks):
        return False
    raise RunError(f"prune: the rows give the objective {total:.8g} for {problem.name!r}, the certificate "
                   f"{primal:.8g}; they are not the same rows")  # fmt: skip


def _hidden(problem: Problem, weights: np.ndarray, blocks: Blocks) -> float:
    """By how much the sum of the losses may be too small, since margins are rounded."""
    settings, own = problem.setting.settings, weights.astype(np.float64)
    constant, length = settings["bias"] * own[-1], math.sqrt(float(np.square(own).sum()))
    loss = problem.setting.method.loss_of(problem.setting.loss)
    add = hidden(loss)
    return sum(
        float(add(problem.view(block), own, settings["C"], constant, length, settings["bias"],
                  settings.get("epsilon") or 0.0))
        for block in blocks()
    )  # fmt: skip


@functools.cache
def hidden(loss: Loss) -> Callable[..., float]:
    """Kernel that sums up by how much the losses of a block's rows are larger at the worst rounding."""
    value_of, highest_of, regression = loss.value, loss.highest, loss.regression

    @kernel
    def add(block, weights, C, constant, length, bias, e):  # type: ignore[no-untyped-def]
        total = np.float64(0)
        for i in range(block.indptr.size - 1):
            c, t = C * block.weights[i], block.labels[i]
            if c > 0:
                m = (1.0 if regression else t) * (dot(block, i, weights) + constant)
                slack = dot_slack(block, i, length, bias)
                total += c * (highest_of(m, slack, t, e) - value_of(m, t, e))
        return total

    return add


# Level l of a weight: it is the first to be dropped after those of the levels below. At level 0 nothing is dropped, and
# what is in no part that is looked at has level 0, or ``STAYS``, which nothing drops.

STAYS = LEVELS + 1
Parts: TypeAlias = tuple[int, int]  # first and end of those looked at, of LEVELS parts of the weights by their size
ALL: Parts = (0, LEVELS)


def _within(objectives: np.ndarray, bound: float) -> int:
    """The last of the levels whose objective, like that of all before, is within the bound; 0, all weights, is."""
    over = np.flatnonzero(objectives[1:] > bound)
    return int(over[0]) if over.size else objectives.size - 1


def _around(objectives: np.ndarray, bound: float) -> Parts:
    """The two parts around the place where the bound is reached; ``objectives`` : at the levels of ``ALL``."""
    level = max(1, _within(objectives, bound))
    if level == STAYS:
        return LEVELS - 2, LEVELS
    step = objectives[level + 1] - objectives[level]
    early = bound - objectives[level] < 0.5 * step
    first = min(max(0, level - 1 - early), LEVELS - 2)
    return first, first + 2


def _missed(level: int, parts: Parts) -> bool:
    """Whether the bound is reached outside the parts."""
    return (level == 0 and parts[0] > 0) or (level == STAYS and parts[1] < LEVELS)


def _levels(weights: np.ndarray, sizes: np.ndarray, parts: Parts) -> np.ndarray:
    """int8 [feature]; ``sizes`` : of the weights that are not 0, ascending."""
    first, end = (-(-sizes.size * part // LEVELS) for part in parts)
    starts = first - (first - end) * np.arange(LEVELS) // LEVELS
    ends = np.append(starts, end)
    least = np.full(ends.size, np.inf, sizes.dtype)
    least[ends < sizes.size] = sizes[ends[ends < sizes.size]]
    levels = np.empty(weights.size - 1, np.int8)
    give_levels(weights, least, levels)
    return levels


@kernel
def give_levels(weights, least, levels):  # type: ignore[no-untyped-def]
    """How many of ``least`` each weight is not below."""
    for j in range(levels.size):
        size, level = abs(weights[j]), 0
        for k in range(least.size):
            level += least[k] <= size
        levels[j] = level


class _Chosen(NamedTuple):
    """What objectives are made of."""

    problems: Sequence[Problem]
    weights: Sequence[np.ndarray]
    sizes: Sequence[np.ndarray]
    blocks: Blocks

    def sums(self, todo: Sequence[int], parts: Sequence[Parts], every: int = 1) -> list[np.ndarray]:
        """Of each problem of ``todo`` P of the weights of level l and above, float64 [LEVELS + 2]; one pass over the
        rows. ``every`` : of the rows that do not have the class, that many stand for all."""
        if not todo:
            return []
        levels = [_levels(self.weights[n], self.sizes[n], its) for n, its in zip(todo, parts, strict=True)]
        sums = [_squares(self.problems[n], self.weights[n], own) for n, own in zip(todo, levels, strict=True)]
        setting = self.problems[0].setting
        add = adder(setting.method.loss_of(setting.loss))
        with ThreadPoolExecutor(THREADS) as pool:
            for block in self.blocks():

                def of(place: int, rows: Block = block) -> None:
                    n = todo[place]
                    settings, w = self.problems[n].setting.settings, self.weights[n]
                    view = sampled(self.problems[n].view(rows), every)
                    room, constant = np.empty((2, LEVELS + 2)), settings["bias"] * float(w[-1])
                    e = settings.get("epsilon") or 0.0
                    add(view, w, levels[place], constant, settings["C"], e, room, sums[place])

                list(pool.map(of, range(len(todo))))
        return sums


def sampled(view: Block, every: int) -> Block:
    """Rows that do not have the class stand for ``every`` of them, or have weight 0."""
    if every == 1:
        return view
    rare = view.labels > 0
    stand = np.zeros(view.n_rows)
    stand[view.ids % every == 0] = every  # whatever blocks the rows come in
    stand[rare] = 1.0
    return view._replace(weights=view.weights * stand)


def _squares(problem: Problem, weights: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Half of ||u||^2 at each level."""
    each = np.bincount(levels, weights[:-1].astype(np.float64) ** 2, minlength=LEVELS + 2)
    bias = 0.0 if problem.setting.settings.get("free_bias") else float(weights[-1]) ** 2
    return 0.5 * (np.cumsum(each[::-1])[::-1] + bias)


@functools.cache
def adder(loss: Loss) -> Callable[..., None]:
    """Kernel that adds the losses of a block's rows at each level to ``sums`` [level]; ``room`` [2, level]."""
    value_of, regression = loss.value, loss.regression

    @kernel
    def add(block, weights, levels, constant, C, e, room, sums):  # type: ignore[no-untyped-def]
        last = sums.size - 1
        for i in range(block.indptr.size - 1):
            c = C * block.weights[i]
            if c == 0:
                continue
            room[:] = 0
            for p in range(block.indptr[i], block.indptr[i + 1]):
                j = np.int64(block.indices[p])
                room[p & 1, levels[j]] += weights[j] * entry(block, i, p)  # two sums do not wait for each other
            t, m = block.labels[i], constant
            s = 1.0 if regression else t
            for k in range(last, -1, -1):
                m += room[0, k] + room[1, k]
                sums[k] += c * value_of(s * m, t, e)

    return add
