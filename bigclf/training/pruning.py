"""Weights that can be left out within a tolerance, with a proof.

D(alpha), by which training ended, bounds the optimum from below whatever the weights are. So weights u of which the
smallest are set to 0 are certified by what the rows say of them,

    P(u) - P* <= P(u) - D(alpha),      P(u) = 1/2 ||u||^2 + sum_i C_i loss(y_i u.x_i),

and as many are dropped, in the order of |w_j|, as keep (P(u) - D) / P(u) within the tolerance. Two passes over the rows
find them: the first has the objective with 0, 1/32, 2/32 ... of the weights dropped, the second the same within the
part in which the tolerance is reached. The objective that is kept is a sum over all rows. The bias is never dropped.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from bigclf.compiled.jit import entry, kernel
from bigclf.errors import RunError
from bigclf.maths.block import Block
from bigclf.maths.losses import Loss
from bigclf.methods import Setting
from bigclf.training.problems import Problem

LEVELS = 32
AGREES = 1e-6  # relative, of the objective of all weights with that of the certificate
THREADS = 2


class Pruned(NamedTuple):
    """What became of a problem: its weights [feature + 1], those that were dropped 0, and their objective."""

    weights: np.ndarray
    primal: float


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
    blocks: Callable[[], Iterable[Block]],
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
    cuts = [_first_cut(w) for w in weights]
    sums = _objectives(problems, weights, cuts, blocks)
    for total, (primal, _), problem in zip(sums, objectives, problems, strict=True):
        if abs(total[0] - primal) > AGREES * abs(primal):
            raise RunError(f"prune: the rows give the objective {total[0]:.8g} for {problem.name!r}, the certificate "
                           f"{primal:.8g}; they are not the same rows")  # fmt: skip
    bounds = [max(primal, dual / (1 - tol)) for primal, dual in objectives]
    chosen = [_within(total, bound) for total, bound in zip(sums, bounds, strict=True)]
    cuts = [_second_cut(w, cut, level) for w, cut, level in zip(weights, cuts, chosen, strict=True)]
    sums = _objectives(problems, weights, cuts, blocks)
    found = []
    for w, cut, total, bound in zip(weights, cuts, sums, bounds, strict=True):
        level = _within(total, bound)
        w[:-1][cut < level] = 0
        found.append(Pruned(w, float(total[level])))
    return found


def _within(objectives: np.ndarray, bound: float) -> int:
    """The last of the levels whose objective, like that of all before, is within the bound; 0, all weights, is."""
    over = np.flatnonzero(objectives[1:] > bound)
    return int(over[0]) if over.size else objectives.size - 1


GONE, STAYS = -1, LEVELS  # levels of weights that are 0, and of those that no level touches


def _first_cut(weights: np.ndarray) -> np.ndarray:
    """int8 [feature], the level of each weight: in which 32nd of those that are not 0 it is, the smallest first."""
    cut = np.full(weights.size - 1, GONE, np.int8)
    _spread(cut, weights, np.flatnonzero(weights[:-1]))
    return cut


def _second_cut(weights: np.ndarray, cut: np.ndarray, level: int) -> np.ndarray:
    """The same within the weights of a ``level``, the first that cannot be dropped as a whole."""
    finer = np.full(cut.size, GONE, np.int8)
    finer[cut > level] = STAYS
    _spread(finer, weights, np.flatnonzero(cut == level))
    return finer


def _spread(cut: np.ndarray, weights: np.ndarray, places: np.ndarray) -> None:
    """Give the weights at ``places`` levels by their size, as many each."""
    order = np.argsort(np.abs(weights[places]), kind="stable")
    cut[places[order]] = np.arange(places.size) * LEVELS // max(1, places.size)


def _objectives(
    problems: Sequence[Problem],
    weights: Sequence[np.ndarray],
    cuts: Sequence[np.ndarray],
    blocks: Callable[[], Iterable[Block]],
) -> list[np.ndarray]:
    """Of each problem P of the weights of level l and above, float64 [LEVELS + 1]; one pass over the rows."""
    sums = [_squares(problem, w, cut) for problem, w, cut in zip(problems, weights, cuts, strict=True)]
    add = _adder(problems[0].setting.method.loss_of(problems[0].setting.loss))
    with ThreadPoolExecutor(THREADS) as pool:
        for block in blocks():

            def of(number: int, rows: Block = block) -> None:
                settings, w = problems[number].setting.settings, weights[number]
                view = problems[number].view(rows)
                room, constant = np.empty(LEVELS + 1), settings["bias"] * float(w[-1])
                add(view, w, cuts[number], constant, settings["C"], settings.get("epsilon") or 0.0, room, sums[number])

            list(pool.map(of, range(len(problems))))
    return sums


def _squares(problem: Problem, weights: np.ndarray, cut: np.ndarray) -> np.ndarray:
    """Half of ||u||^2 at each level."""
    squares = weights[:-1].astype(np.float64) ** 2
    each = np.bincount(cut[cut >= 0], squares[cut >= 0], minlength=LEVELS + 1)
    bias = 0.0 if problem.setting.settings.get("free_bias") else float(weights[-1]) ** 2
    return 0.5 * (np.cumsum(each[::-1])[::-1] + bias)


@functools.cache
def _adder(loss: Loss) -> Callable[..., None]:
    """Kernel that adds the losses of a block's rows at each level to ``sums`` [level]; ``room`` [level]."""
    value_of, regression = loss.value, loss.regression

    @kernel
    def add(block, weights, cut, constant, C, e, room, sums):  # type: ignore[no-untyped-def]
        last = room.size - 1
        for i in range(block.indptr.size - 1):
            c = C * block.weights[i]
            if c == 0:
                continue
            room[:] = 0
            for p in range(block.indptr[i], block.indptr[i + 1]):
                j = np.int64(block.indices[p])
                if cut[j] >= 0:
                    room[cut[j]] += weights[j] * entry(block, i, p)
            t, m = block.labels[i], constant
            s = 1.0 if regression else t
            for k in range(last, -1, -1):
                m += room[k]
                sums[k] += c * value_of(s * m, t, e)

    return add
