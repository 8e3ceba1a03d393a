"""Train again, on its features alone, what ``pruning`` left: far fewer weights come to the same tolerance.

Weights are trained to act together; where some are dropped, the others are no longer the best for what is left. Their
best ones, u with  u_j = 0 outside the features S,

    min_u  P(u) = 1/2 ||u||^2 + sum_i C_i loss(s_i u.x_i),   u in R^S,

is the same problem on shorter rows, and is solved by the same dual coordinate descent. Its answer is certified as any
other weights are: P(u) - P* <= P(u) - D(alpha), D the dual objective by which training of all features ended.

How small S can be is known from below. With phi the rows' terms of the dual, and v = sum_i alpha_i s_i x_i in all
features, any alpha whatever bounds the objective of every u in R^S,

    P(u) >= sum_i phi_i(alpha_i) - 1/2 ||v_S||^2,

and this is least for the S of the largest |v_j|. So no S of a size at which even that is above the bound will do. The
search begins there, with the weights of training for v. A trial whose own dual comes to be above the bound ends: its S
will not do. Its v raises what is known from below, and has its part in the choice of the next S: these are the
features of the largest sizes in the mean of all v so far (subgradient steps on the least dual over all S of a size:
Bertsimas, Pauphilet, Van Parys, Statistical Science 2020). What is kept is the smallest S that was seen to be within
the bound, and its weights are trained on until little is left to be gained.

Of several problems, whose scores are compared with each other, rows of a rare class lose a little by every feature that
is dropped: their own duals, at their bound already, cannot make up for it, and rows of other classes come before them.
So the last weights are those of a price of the class's rows, C_i (1 + r), at which these rows have the mean score that
they had, or as near to it as the bound and |r| <= 1/2 allow. Of all weights of these features under which the losses of
the class's rows sum up to as little they have the least P(u); it is about a thirtieth of the room more.

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

from bigclf.compiled.jit import axpy, dot, entry, inner, kernel
from bigclf.maths.block import Block, concatenate
from bigclf.maths.losses import Loss
from bigclf.methods import Setting
from bigclf.methods.dual.dual_coordinate_descent import Params, Rows, Shared, descend, value
from bigclf.training.problems import Problem
from bigclf.training.pruning import THREADS, Pruned, add_scores, bounds_of

if TYPE_CHECKING:
    from bigclf.data.rows import Rows as Source

TRIALS = 6  # sizes of S
FIRST = 1.3  # times what is known from below is the first guess of P(u) - D at a size
SHY = 0.02  # of the room below the bound: so far below it trials aim
CLOSE = 0.05  # ... and this far below it an objective is near enough
PRICED = 0.03  # ... and so much further, where the mean score of a class is to be kept
MOST_PRICE, PRICES, SAME = 0.5, 3, 0.1  # |r|; how many are tried; what may be left of the difference of mean scores
NEAR = 0.02  # two sizes, one within the bound and one not, that differ by so little end the search
SWEEPS, INNER = 12, 12  # over all rows, and after each over those that can move
DONE = 0.02  # of the room: where a trial's own gap ends it
ROUGH = 0.1  # of what P(u) - D is at least: ... and one that cannot come to the bound
MOST_PASSES = 8  # over rows that are not in memory
ROW_BYTES, ENTRY_BYTES = 100, 8  # of rows in memory: a block's, dual variables, scores and orders
FEATURE_BYTES = 80  # ... and of each feature: v, sizes, what there is at least, and sorting them
COPIES = 2  # of the rows at a time: those of all features that are left, and of a size


terms_of = functools.cache(value)  # of the dual, the rows'


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
    squares: Sequence[float],
    over: Callable[[], bool],
    scores: Sequence[float] | None = None,
) -> list[Pruned]:
    """What pruning ``found``, with fewer weights where training them again allows it, in place.

    Parameters
    ----------
    objectives : primal and dual of each problem, as its certificate has them before anything was dropped.
    blocks : all rows, anew at each call.
    tol : the relative gap that the weights that are left may have.
    most : bytes that the rows of one problem can take, in all features (``bytes_of_rows``); room : that all may take.
    cheap : whether a pass over the blocks is, as where they are in memory; else few are made.
    squares : sum of the squares of each problem's weights, the bias's not, before any were dropped.
    over : whether the time is: what has been found by then stands.
    scores : ``scores_of_class`` of all weights, where they are to be kept.
    """
    bounds = bounds_of(objectives, tol)
    todo = [n for n, one in enumerate(found) if one.exact and np.count_nonzero(one.weights[:-1]) > 1]
    lots = _lots(todo, most, room, cheap)

    def of(lot: Sequence[int], threads: int) -> None:
        if over():
            return
        share = room // (threads * len(lot))
        rows = _gathered([problems[n] for n in lot], [found[n].weights for n in lot], blocks, share)
        for n in lot:  # who searches is the only one that has the rows: they are to go when others take their place
            left = rows.pop(0)
            if left is not None:
                kept = math.nan if scores is None else scores[n]
                search = _Search(problems[n], found[n], left, objectives[n][1], bounds[n], squares[n], over, kept)
                again[n] = search.found()

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


def is_refitted(problems: int, most: int, room: int, cheap: bool) -> bool:
    """Whether there is room, and time, to train what is left of so many problems again."""
    return bool(_lots(range(problems), most, room, cheap))


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

    places : int64 [k], ascending, of the features among those that are left. weights : float64 [k + 1], the bias last,
    as they are stored. alpha : float64 [row].
    """

    places: np.ndarray
    weights: np.ndarray
    primal: float
    alpha: np.ndarray


class _Search:
    """For the fewest features of a problem that are enough.

    Attributes
    ----------
    bound : the most that the objective may come to; room : by how much that is above ``dual``, of all features.
    sizes : float64 [feature], by which features are chosen. least : float64 [size], what P(u) - D is at least with so
    many features, by the weights of training. bounded : whether a dual bounds what is certified: with a bias without
    penalty those here do not. score : the mean of the class's rows, to be kept; NaN where it is not. below : of the
    room, how much further below the bound trials are to come for that.
    """

    def __init__(
        self, problem: Problem, found: Pruned, left: Left, dual: float, bound: float, squares: float,
        over: Callable[[], bool], score: float = math.nan,
    ) -> None:  # fmt: skip
        setting = problem.setting
        settings = setting.settings
        self.before, self.left, self.dual, self.bound, self.over = found, left, dual, bound, over
        self.room, self.score = bound - dual, score
        self.loss = _loss(setting)
        self.below = 0.0 if math.isnan(score) or self.loss.regression else PRICED
        self.params = Params(settings["C"], settings["bias"], settings.get("epsilon") or 0.0, 1.0)
        self.bounded = not settings.get("free_bias")
        self.sizes = np.abs(found.weights[left.features]).astype(np.float64)
        self.least = np.maximum(0.5 * (squares - _largest_squares(self.sizes)), 1e-12 * self.room)

    def found(self) -> Pruned:
        """What is left of the problem."""
        best, short, most = None, 0, self.sizes.size  # ``short`` features are not enough
        alpha, v = np.zeros(self.left.rows.n_rows), np.zeros(most + 1)
        wanted = self._expected(FIRST)
        for trial in range(TRIALS):
            wanted = min(max(wanted, math.ceil((1 + NEAR) * short), 1), math.floor(most / (1 + NEAR)))
            if wanted <= short or wanted < 1 or self.room <= 0 or self.over():
                break
            its = self._trained(_largest(self.sizes, wanted), v, alpha)
            if not math.isfinite(its.primal):
                break
            if its.primal <= self.bound:
                best, most = its, wanted
                if self.bound - its.primal <= (CLOSE + self.below) * self.room:
                    break
            else:
                short = max(short, wanted)
            wanted = self._expected((its.primal - self.dual) / float(self.least[wanted]))
            alpha, v = its.alpha, self._sums(its.alpha)
            if self.bounded:
                own = np.abs(v[:-1])
                terms = self._terms(alpha) - 0.5 * float(v[-1]) ** 2
                above = terms - 0.5 * _largest_squares(own) > self.bound
                short = max(short, int(np.count_nonzero(above)) - 1)
                self.sizes += (own - self.sizes) / (trial + 2)
        if best is None:
            return self.before
        best = self._priced(best)
        weights = self.before.weights
        weights[:-1] = 0
        weights[self.left.features[best.places]] = best.weights[:-1]
        weights[-1] = best.weights[-1]
        return Pruned(weights, best.primal)

    def _expected(self, times: float) -> int:
        """The size at which P(u) - D leaves a little of the room, if it is so many times what it is at least."""
        return int(np.count_nonzero(times * self.least > (1 - SHY - self.below) * self.room))

    def _priced(self, best: _Answer) -> _Answer:
        """Weights of the same features under which the class's rows have the mean score that is to be kept, or as near
        to it as the bound allows."""
        rows = self.left.rows
        own = np.where(rows.labels > 0, rows.weights, 0.0)
        total = float(own.sum())
        # of a row at its bound: what its own dual adds to its score
        slope = self.params.C * float((own * rows.weights * (rows.norms + self.params.bias**2)).sum())
        if self.below == 0 or not slope > 0:  # or the class's rows have no feature that is left, and no bias
            return best
        slope /= total
        price, now = 0.0, self._score(best)
        apart, tried = self.score - now, (self.score - now) / slope
        near = SAME * abs(apart)
        for _ in range(PRICES):
            if abs(apart) <= near or self.over():
                break
            tried = min(max(tried, -MOST_PRICE), MOST_PRICE)
            its = self._trained(best.places, self._sums(best.alpha), best.alpha, tried)
            if its.primal > self.bound:
                tried = 0.5 * (price + tried)
                continue
            came = self._score(its)
            if abs(self.score - came) >= abs(apart):  # too far, as where rows are not at their bounds
                tried = 0.5 * (price + tried)
                continue
            step = (tried - price) / (came - now)
            best, price, now, apart = its, tried, came, self.score - came
            tried = price + step * apart
        return best

    def _score(self, its: _Answer) -> float:
        """The mean of the class's rows."""
        u = np.zeros(self.sizes.size + 1)
        u[np.append(its.places, u.size - 1)] = its.weights
        sums = np.zeros(2)
        add_scores(self.left.rows, u, self.params.bias * float(u[-1]), sums)
        return float(sums[0] / sums[1])

    def _trained(self, places: np.ndarray, v: np.ndarray, alpha: np.ndarray, price: float = 0.0) -> _Answer:
        """The best weights of some features, by dual coordinate descent from ``alpha`` and its ``v``; where the dual
        says that the objective stays above the bound, about how far. ``price`` : r, of the class's rows."""
        there = np.zeros(self.sizes.size + 1)
        there[places] = 1.0
        left, params, update = left_of(self.left.rows, there), self.params, descend(self.loss)
        rows = left._replace(weights=np.where(left.labels > 0, 1 + price, 1.0) * left.weights) if price else left
        weights, alpha = v[np.append(places, v.size - 1)], alpha.copy()
        scores, draw = np.empty(rows.n_rows), np.random.default_rng(0)
        shared, own = Shared(weights), Rows(alpha)
        for _ in range(SWEEPS):
            counts = update(rows, draw.permutation(rows.n_rows), shared, own, params, scores)
            if counts.gap <= DONE * self.room:
                break
            dual = float(terms_of(self.loss)(rows, own, params, 1.0)) - 0.5 * inner(weights, weights)
            if self.bounded and not price and dual > self.bound and counts.gap <= ROUGH * (dual - self.dual):
                break
            free = np.flatnonzero(scores >= 0)
            for _ in range(INNER):
                if free.size:
                    update(rows, draw.permutation(free), shared, own, params, scores)
        return self._measured(left, places, weights, alpha)

    def _measured(self, rows: Block, places: np.ndarray, weights: np.ndarray, alpha: np.ndarray) -> _Answer:
        """The weights as they are stored, and their objective."""
        kept = weights.astype(self.before.weights.dtype).astype(np.float64)
        params = self.params
        half = 0.5 * (inner(kept, kept) - (0.0 if self.bounded else kept[-1] ** 2))
        primal = half + float(total(self.loss)(rows, kept, params.C, params.bias * kept[-1], params.epsilon))
        return _Answer(places, kept, primal if math.isfinite(primal) else math.inf, alpha)

    def _sums(self, alpha: np.ndarray) -> np.ndarray:
        """v in all features that are left, float64 [feature + 1]."""
        v = np.zeros(self.sizes.size + 1)
        sum_up(self.left.rows, alpha, self.params.bias, self.loss.regression, v)
        return v

    def _terms(self, alpha: np.ndarray) -> float:
        """The rows' terms of the dual."""
        return float(terms_of(self.loss)(self.left.rows, Rows(alpha), self.params, 1.0))


def _largest_squares(sizes: np.ndarray) -> np.ndarray:
    """Sums of the squares of the 0, 1, 2 ... largest, float64 [size + 1]."""
    sums = np.zeros(sizes.size + 1)
    np.cumsum(np.sort(sizes)[::-1] ** 2, out=sums[1:])
    return sums


def _largest(sizes: np.ndarray, wanted: int) -> np.ndarray:
    """Places of the largest, ascending; the first of equal ones."""
    return np.sort(np.argsort(-sizes, kind="stable")[:wanted])


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


@kernel
def sum_up(block, alpha, bias, regression, v):  # type: ignore[no-untyped-def]
    """Add  sum_i alpha_i s_i x_i  to ``v`` [feature + 1], the bias's last."""
    for i in range(block.indptr.size - 1):
        a = alpha[i]
        if a != 0:
            step = a if regression else a * block.labels[i]
            axpy(step, block, i, v)
            v[v.size - 1] += bias * step


def warm_refitting(setting: Setting, block: Block) -> None:
    """Call what trains again on the rows of ``block``, which may be none."""
    rows, weights, loss = left_of(block, np.ones(2)), np.zeros(2), _loss(setting)
    params, own = Params(1.0, 1.0, 0.0, 1.0), Rows(np.zeros(rows.n_rows))
    descend(loss)(rows, np.empty(0, np.int64), Shared(weights), own, params, np.empty(rows.n_rows))
    total(loss)(rows, weights, 1.0, 0.0, 0.0)
    terms_of(loss)(rows, own, params, 1.0)
    sum_up(rows, own.alpha, 1.0, loss.regression, weights)
    add_scores(rows, weights, 0.0, np.zeros(2))
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
