"""Train again, on its features alone, what ``pruning`` left: far fewer weights come to the same tolerance.

Weights are trained to act together; where some are dropped, the others are no longer the best for what is left. Their
best ones, u with  u_j = 0 outside the features S,

    min_u  P(u) = 1/2 ||u||^2 + sum_i C_i loss(s_i u.x_i),   u in R^S,

is the same problem on shorter rows, and is solved by the same dual coordinate descent. Its answer is certified as any
other weights are: P(u) - P* <= P(u) - D(alpha), D the dual objective by which training of all features ended. So S is
made smaller, by the size of the weights on it, as long as P(u) stays within the bound: a few sizes are tried, each
from where those before make the bound likely to be reached. What is kept is the smallest S that was seen to be within.

The rows of a problem's features are copied into memory, those of weight 0 left out; where there is no room for that,
the problem stays as pruning left it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.compiled.jit import dot, entry, inner, kernel
from bigclf.maths.block import Block, concatenate
from bigclf.maths.losses import Loss
from bigclf.methods import Setting
from bigclf.methods.dual.dual_coordinate_descent import Params, Rows, Shared, descend
from bigclf.training.problems import Problem
from bigclf.training.pruning import THREADS, Pruned, bounds_of

if TYPE_CHECKING:
    from bigclf.data.rows import Rows as Source

TRIALS = 5  # sizes of S
FIRST = 0.3  # of the weights: the first size
SLOPE = 1.5  # P(u) - P* of |S| weights is about |S|^-SLOPE, before two sizes tell
SHY = 0.03  # of the room below the bound: so far below it trials aim
NEAR = 0.04  # two sizes, one within the bound and one not, that differ by so little end the search
SWEEPS, INNER = 12, 12  # over all rows, and after each over those that can move
DONE = 0.1  # of the tolerance: a trial ends at such a gap of its own
MOST_PASSES = 8  # over rows that are not in memory
ROW_BYTES, ENTRY_BYTES = 100, 8  # of rows in memory: a block's, dual variables, scores and orders
FEATURE_BYTES = 20  # ... and of each feature, while they are gathered
COPIES = 2  # of the rows at a time: those of a size, and of the one before


class Left(NamedTuple):
    """The rows of a problem in the features that are left.

    features : int64 [k], ascending; rows : a block of those rows of the problem that cost anything, whose features are
    numbered as there and whose ``ids`` are 0, 1, ...
    """

    features: np.ndarray
    rows: Block


def refitted(
    problems: Sequence[Problem],
    found: Sequence[Pruned],
    objectives: Sequence[tuple[float, float]],
    blocks: Callable[[], Iterable[Block]],
    tol: float,
    most: int,
    room: int,
    cheap: bool,
) -> list[Pruned]:
    """What pruning ``found``, with fewer weights where training them again allows it, in place.

    Parameters
    ----------
    objectives : primal and dual of each problem, as its certificate has them before anything was dropped.
    blocks : all rows, anew at each call.
    tol : the relative gap that the weights that are left may have.
    most : bytes that the rows of one problem can take, in all features (``bytes_of_rows``); room : that all may take.
    cheap : whether a pass over the blocks is, as where they are in memory; else few are made.
    """
    bounds = bounds_of(objectives, tol)
    todo = [n for n, one in enumerate(found) if np.count_nonzero(one.weights[:-1]) > 1]
    lots = _lots(todo, most, room, cheap)

    def of(lot: Sequence[int], threads: int) -> None:
        share = room // (threads * len(lot))
        rows = _gathered([problems[n] for n in lot], [found[n].weights for n in lot], blocks, share)
        for n in lot:  # who searches is the only one that has the rows: they are to go when others take their place
            again[n] = _smaller(problems[n], found[n], rows.pop(0), objectives[n][1], bounds[n], tol)

    again, threads = list(found), THREADS if cheap and THREADS * most <= room else 1
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(functools.partial(of, threads=threads), lots))
    return again


def _lots(todo: Sequence[int], most: int, room: int, cheap: bool) -> list[Sequence[int]]:
    """Problems whose rows are gathered by one pass: each its own where passes are cheap, else as many as there is room
    for; none where that takes too many passes."""
    size = 1 if cheap else max(1, room // most)
    lots = [todo[k : k + size] for k in range(0, len(todo), size)]
    return lots if cheap or len(lots) <= MOST_PASSES else []


def bytes_of_rows(source: Source) -> int:
    """Bytes that the rows of a problem take at most while they are trained on again."""
    return _bytes_of(source.n_rows, source.nnz) + FEATURE_BYTES * source.n_features


def _bytes_of(rows: int, entries: int) -> int:
    return COPIES * (ROW_BYTES * rows + ENTRY_BYTES * entries)


def _gathered(
    problems: Sequence[Problem], weights: Sequence[np.ndarray], blocks: Callable[[], Iterable[Block]], share: int
) -> list[Left | None]:
    """Of each problem its rows in the features whose weights are not 0, by one pass; None where they take more bytes
    than ``share``."""
    parts: list[list[Block]] = [[] for _ in problems]
    taken = [FEATURE_BYTES * w.size for w in weights]
    for block in blocks():
        for n, (problem, own) in enumerate(zip(problems, weights, strict=True)):
            if taken[n] <= share:
                part = left_of(problem.view(block), own)
                taken[n] += _bytes_of(part.n_rows, part.nnz)
                parts[n].append(part)
                if taken[n] > share:
                    parts[n].clear()
    return [_joined(own, mine) for own, mine in zip(weights, parts, strict=True)]


def _joined(weights: np.ndarray, parts: list[Block]) -> Left | None:
    """The rows of all blocks, with ``ids`` from 0; None of no blocks."""
    if not parts:
        return None
    block = concatenate(parts)
    return Left(np.flatnonzero(weights[:-1]), block._replace(ids=np.arange(block.n_rows)))


class _Answer(NamedTuple):
    """Weights of some features, and what they come to.

    left : the rows in those features. weights : float64 [k + 1], the bias last, as they are stored. exact, alpha :
    those of the solver, [k + 1] and [row], not rounded to what is stored; None of what was not trained again.
    """

    left: Left
    weights: np.ndarray
    primal: float
    exact: np.ndarray | None
    alpha: np.ndarray | None


def _smaller(problem: Problem, found: Pruned, left: Left | None, dual: float, bound: float, tol: float) -> Pruned:
    """What is left of a problem with the fewest features that were seen to be enough."""
    if left is None:
        return found
    stored = found.weights.dtype
    size = left.features.size
    first = np.append(found.weights[left.features], found.weights[-1]).astype(np.float64)
    best = _Answer(left, first, found.primal, None, None)
    del left
    over: list[tuple[int, float]] = []  # (features, P - D)
    short = 0  # so many features were not enough
    wanted = max(1, math.ceil(FIRST * size))
    for _ in range(TRIALS):
        its = _trained(problem, _largest(best, wanted), DONE * tol * bound, stored)
        if not math.isfinite(its.primal):
            break
        over.append((wanted, max(its.primal - dual, 1e-6 * tol * bound)))
        if its.primal <= bound:
            best = its
        else:
            short = max(short, wanted)
        del its
        most = best.left.features.size
        wanted = min(max(_expected(over, (1 - SHY) * (bound - dual)), math.ceil((1 + NEAR) * short)),
                     math.floor((1 - NEAR) * most))  # fmt: skip
        if wanted <= short or wanted < 1:
            break
    if best.exact is not None:
        found.weights[:-1] = 0
        found.weights[best.left.features] = best.weights[:-1]
        found.weights[-1] = best.weights[-1]
    return Pruned(found.weights, best.primal)


def _expected(over: Sequence[tuple[int, float]], room: float) -> int:
    """The number of features whose P - D comes to ``room``, by a power of it through the last two that were tried."""
    k, excess = over[-1]
    slope = SLOPE
    if len(over) > 1 and over[-2][0] != k and over[-2][1] != excess:
        slope = math.log(excess / over[-2][1]) / math.log(over[-2][0] / k)
        slope = min(max(slope, 0.5 * SLOPE), 3 * SLOPE)
    return round(min(k * (excess / room) ** (1 / slope), 2.0**40))


def _largest(best: _Answer, wanted: int) -> _Answer:
    """The rows in the ``wanted`` features with the largest weights, and what to begin with there."""
    sizes = np.abs(best.weights[:-1])
    keep = np.sort(np.argsort(-sizes, kind="stable")[:wanted])
    there = np.zeros(sizes.size + 1)
    there[keep] = 1.0
    rows = left_of(best.left.rows, there)
    ends = np.append(keep, sizes.size)
    exact = None if best.exact is None else best.exact[ends]
    alpha = None if best.alpha is None else best.alpha.copy()
    return _Answer(Left(best.left.features[keep], rows), best.weights[ends], math.inf, exact, alpha)


def _trained(problem: Problem, begun: _Answer, enough: float, stored: np.dtype) -> _Answer:
    """The best weights of the features: dual coordinate descent until the rows' gaps come to ``enough``."""
    setting, rows = problem.setting, begun.left.rows
    settings = setting.settings
    loss = _loss(setting)
    params = Params(settings["C"], settings["bias"], settings.get("epsilon") or 0.0, 1.0)
    weights = np.zeros(begun.weights.size) if begun.exact is None else begun.exact
    alpha = np.zeros(rows.n_rows) if begun.alpha is None else begun.alpha
    scores, draw, update = np.empty(rows.n_rows), np.random.default_rng(0), descend(loss)
    shared, own = Shared(weights), Rows(alpha)
    for _ in range(SWEEPS):
        counts = update(rows, draw.permutation(rows.n_rows), shared, own, params, scores)
        if counts.gap <= enough:
            break
        free = np.flatnonzero(scores >= 0)
        for _ in range(INNER):
            if free.size:
                update(rows, draw.permutation(free), shared, own, params, scores)
    kept = weights.astype(stored).astype(np.float64)
    constant = params.bias * kept[-1]
    half = 0.5 * (inner(kept, kept) - (kept[-1] ** 2 if settings.get("free_bias") else 0.0))
    primal = half + float(total(loss)(rows, kept, params.C, constant, params.epsilon))
    return _Answer(begun.left, kept, primal, weights, alpha)


def left_of(block: Block, chosen: np.ndarray) -> Block:
    """The rows whose weight is not 0, in the features that are not 0 in ``chosen`` [feature + 1], numbered as they
    come: with values, squared norms and ids of their own."""
    places = np.full(chosen.size, -1, np.int32)
    there = np.flatnonzero(chosen[:-1])
    places[there] = np.arange(there.size)
    rows, entries = count_left(block, places)
    labels, weights, norms = np.empty((3, rows))
    indices, values = np.empty(entries, np.uint32), np.empty(entries, np.float32)
    left = Block(np.zeros(rows + 1, np.int64), indices, values, labels, weights, norms, np.arange(rows))
    take_left(block, places, left)
    return left


@kernel
def count_left(block, places):  # type: ignore[no-untyped-def]
    rows, entries = 0, 0
    for i in range(block.indptr.size - 1):
        if block.weights[i] > 0:
            rows += 1
            for p in range(block.indptr[i], block.indptr[i + 1]):
                entries += places[block.indices[p]] >= 0
    return rows, entries


@kernel
def take_left(block, places, left):  # type: ignore[no-untyped-def]
    row, to = 0, 0
    for i in range(block.indptr.size - 1):
        if block.weights[i] > 0:
            square = np.float64(0)
            for p in range(block.indptr[i], block.indptr[i + 1]):
                place = places[block.indices[p]]
                if place >= 0:
                    value = entry(block, i, p)
                    left.indices[to], left.values[to] = place, value
                    square += value * value
                    to += 1
            left.labels[row], left.weights[row], left.norms[row] = block.labels[i], block.weights[i], square
            row += 1
            left.indptr[row] = to


def warm_refitting(setting: Setting, block: Block) -> None:
    """Call what trains again on the rows of ``block``, which may be none."""
    rows, weights, loss = left_of(block, np.ones(2)), np.zeros(2), _loss(setting)
    params, own = Params(1.0, 1.0, 0.0, 1.0), Rows(np.zeros(rows.n_rows))
    descend(loss)(rows, np.empty(0, np.int64), Shared(weights), own, params, np.empty(rows.n_rows))
    total(loss)(rows, weights, 1.0, 0.0, 0.0)
    inner(weights, weights)


def _loss(setting: Setting) -> Loss:
    loss = setting.method.loss_of(setting.loss)
    assert loss is not None
    return loss


@functools.cache
def total(loss: Loss) -> Callable[..., float]:
    """Kernel of  sum_i C_i loss(s_i m_i)  of a block's rows."""
    value_of, regression = loss.value, loss.regression

    @kernel
    def add(block, weights, C, constant, e):  # type: ignore[no-untyped-def]
        found = np.float64(0)
        for i in range(block.indptr.size - 1):
            t = block.labels[i]
            m = (1.0 if regression else t) * (dot(block, i, weights) + constant)
            found += C * block.weights[i] * value_of(m, t, e)
        return found

    return add
