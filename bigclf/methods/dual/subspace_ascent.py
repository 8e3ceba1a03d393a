"""Steps along what the last rounds of coordinate steps did together, for losses whose rows are stuck in a box.

A round moves the dual variables by da and the weights by dw. Coordinate steps take about as many rounds as the problem
is badly conditioned; but over the span of the last few moves, found by them, the dual of a loss without curvature is a
small quadratic whose coefficients are products of arrays that are at hand:

    max_c  b.c - 1/2 c.G c,    b_j = sum_i slope_i da_ij - w.dw_j,    G_jk = dw_j.dw_k

No row is looked at for it but those that would leave their interval, which are put back to its end. What is found is
taken if the dual objective rises by it, and is then a part of the last move: the directions are conjugate, as nearly as
the box allows (Anderson, JACM 1965; of coordinate descent: Bertrand, Massias, AISTATS 2021; over a span: Narkiss,
Zibulevsky 2005). Measured on rows of which half stay free: a third of the rounds to the same dual objective.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.compiled.jit import axpy, inlined, kernel
from bigclf.maths.losses import Loss, dual_terms, plain
from bigclf.maths.mixing import Weights

if TYPE_CHECKING:
    from bigclf.maths.block import Block

MOVES = 5  # that are kept; with 2 of them the same takes half as many rounds again
TILE = 2048  # entries of all moves that stay in the nearest cache
TRIES = 4  # of a way, and of a quarter of it each time the dual would not rise
# Moves of weights and of dual variables are rounded each for themselves. So none is taken more often than this, nor at
# all for a gain that is less than this much of the weights' square: rounding alone could pretend it.
FURTHEST, UNSEEN = 100.0, 1e-12
DEPENDENT = 1e-10  # of a move's square what is not in the span of others, at least


class Span(NamedTuple):
    """Moves, the next over the oldest, and where the present one began.

    moved : [move, feature + 1], of the weights; of_rows : float64 [move, member], of the dual variables; weights, alpha
    : at the start of the present one; found, found_alpha : where the span has led.
    """

    moved: np.ndarray
    of_rows: np.ndarray
    weights: np.ndarray
    alpha: np.ndarray
    found: np.ndarray
    found_alpha: np.ndarray


class Kernels(NamedTuple):
    """slopes : (block, members, rows, span, slope, params), adds to ``slope`` what rows give; find : (block, members,
    shared, rows, span, c, params) -> how much the dual gains."""

    slopes: Callable[..., None]
    find: Callable[..., float]


@inlined
def product(a, b, first, stop):  # type: ignore[no-untyped-def]
    """Of a stretch, in four sums: one alone would wait for itself."""
    p, q, r, s = np.float64(0), np.float64(0), np.float64(0), np.float64(0)
    j = first
    while j + 4 <= stop:
        p += np.float64(a[j]) * np.float64(b[j])
        q += np.float64(a[j + 1]) * np.float64(b[j + 1])
        r += np.float64(a[j + 2]) * np.float64(b[j + 2])
        s += np.float64(a[j + 3]) * np.float64(b[j + 3])
        j += 4
    while j < stop:
        p += np.float64(a[j]) * np.float64(b[j])
        j += 1
    return (p + q) + (r + s)


@kernel
def note(members, ids, shared, rows, span, k):  # type: ignore[no-untyped-def]
    """The present move is number k."""
    weights, alpha = shared.weights, rows.alpha
    for j in range(weights.size):
        span.moved[k, j] = weights[j] - span.weights[j]
    for i in range(members.size):
        span.of_rows[k, i] = alpha[ids[members[i]]] - span.alpha[i]


@kernel
def products(shared, moved, gram, slope):  # type: ignore[no-untyped-def]
    """G, and of b the part of the weights; returns their square."""
    weights, square = shared.weights, np.float64(0)
    gram[:], slope[:] = 0.0, 0.0
    for first in range(0, weights.size, TILE):
        stop = min(first + TILE, weights.size)
        square += product(weights, weights, first, stop)
        for a in range(slope.size):
            slope[a] -= product(weights, moved[a], first, stop)
            for b in range(a + 1):
                gram[a, b] += product(moved[a], moved[b], first, stop)
    return square


@kernel
def highest(gram, c):  # type: ignore[no-untyped-def]
    """Solve G c = b, with b in ``c``, by Cholesky's factors, made in the place of G; 0 for moves that others have in
    their span."""
    m = c.size
    for k in range(m):
        square = gram[k, k]
        for j in range(k):
            for i in range(j):
                gram[k, j] -= gram[k, i] * gram[j, i]
            gram[k, j] = gram[k, j] / gram[j, j] if gram[j, j] > 0 else 0.0
            gram[k, k] -= gram[k, j] * gram[k, j]
        gram[k, k] = np.sqrt(gram[k, k]) if gram[k, k] > DEPENDENT * square else 0.0
        for j in range(k):
            c[k] -= gram[k, j] * c[j]
        c[k] = c[k] / gram[k, k] if gram[k, k] > 0 else 0.0
    for k in range(m - 1, -1, -1):
        for j in range(k + 1, m):
            c[k] -= gram[j, k] * c[j]
        c[k] = c[k] / gram[k, k] if gram[k, k] > 0 else 0.0


@kernel
def take(members, ids, shared, rows, span, k):  # type: ignore[no-untyped-def]
    """Go to what was found: it belongs to the last move, k. The next one begins there."""
    weights, alpha = shared.weights, rows.alpha
    for j in range(weights.size):
        weights[j] = span.found[j]
        span.moved[k, j] = weights[j] - span.weights[j]
        span.weights[j] = weights[j]
    for i in range(members.size):
        there = span.found_alpha[i]
        alpha[ids[members[i]]] = there
        span.of_rows[k, i] = there - span.alpha[i]
        span.alpha[i] = there


@kernel
def stay(members, ids, shared, rows, span):  # type: ignore[no-untyped-def]
    """The next move begins here."""
    weights, alpha = shared.weights, rows.alpha
    for j in range(weights.size):
        span.weights[j] = weights[j]
    for i in range(members.size):
        span.alpha[i] = alpha[ids[members[i]]]


@functools.cache
def kernels(loss: Loss) -> Kernels | None:
    """Those of a loss; None where the dual has a curvature of its own, or no box."""
    dual = dual_terms(loss)
    if not dual.boxed or plain(dual.diagonal)(1.0) > 0:
        return None
    regression, value_of, lower, upper = loss.regression, dual.value, dual.lower, dual.upper

    @kernel
    def slopes(block, members, rows, span, slope, params):  # type: ignore[no-untyped-def]
        for i in range(members.size):
            rise = np.float64(1)
            if regression:
                a = rows.alpha[block.ids[members[i]]]
                rise = block.labels[members[i]] - (params.epsilon if a > 0 else -params.epsilon if a < 0 else 0.0)
            for k in range(slope.size):
                slope[k] += rise * span.of_rows[k, i]

    @kernel
    def find(block, members, shared, rows, span, c, params):  # type: ignore[no-untyped-def]
        weights, found, alpha, e = shared.weights, span.found, rows.alpha, params.epsilon
        last, gain = weights.size - 1, np.float64(0)
        for j in range(weights.size):
            there = np.float64(weights[j])
            for k in range(c.size):
                there += c[k] * span.moved[k, j]
            found[j] = there
        for n in range(members.size):
            i = members[n]
            a, t, price = alpha[block.ids[i]], block.labels[i], params.C * block.weights[i]
            there = a
            for k in range(c.size):
                there += c[k] * span.of_rows[k, n]
            end = min(max(there, lower(price)), upper(price))
            if end != there:
                step = (end - there) * (1.0 if regression else t)
                axpy(step, block, i, found)
                found[last] += params.bias * step
            span.found_alpha[n] = end
            gain += value_of(end, price, t, e) - value_of(a, price, t, e)
        for j in range(weights.size):
            gain -= 0.5 * (np.float64(found[j]) - weights[j]) * (np.float64(found[j]) + weights[j])
        return gain

    return Kernels(slopes, find)


class SubspaceAscent:
    """The last moves of rounds over the rows ``members`` of a block, and steps along them.

    Parameters
    ----------
    block, members, shared, rows, params : as kernels of coordinate steps have them; all stay where they are.
    """

    def __init__(
        self, on: Kernels, block: Block, members: np.ndarray, shared: Weights, rows: object, params: object
    ) -> None:
        self.on, self.block, self.members, self.params = on, block, members, params
        self.shared, self.rows, self.seen = shared, rows, 0
        d, n, dtype = shared.weights.size, members.size, shared.weights.dtype
        self.span = Span(
            np.empty((MOVES, d), dtype), np.empty((MOVES, n)), np.empty(d, dtype), np.empty(n), np.empty(d, dtype),
            np.empty(n),
        )  # fmt: skip
        self._gram, self._slope = np.empty((MOVES, MOVES)), np.empty(MOVES)
        stay(members, block.ids, shared, rows, self.span)

    def step(self) -> bool:
        """After a round: go along the last moves together; whether the dual gained by it."""
        k = self.seen % MOVES
        note(*self._where, k)
        self.seen += 1
        many = min(self.seen, MOVES)
        gram, c = self._gram, self._slope[:many]
        least = UNSEEN * products(self.shared, self.span.moved, gram, c)
        self.on.slopes(self.block, self.members, self.rows, self.span, c, self.params)
        highest(gram, c)
        c *= min(1.0, FURTHEST / max(np.abs(c).max(), 1.0))
        for _ in range(TRIES):
            gain = self.on.find(self.block, self.members, self.shared, self.rows, self.span, c, self.params)
            if least < gain < np.inf:
                self.take(k)
                return True
            c *= 0.25
        stay(*self._where)
        return False

    def take(self, k: int) -> None:
        """Go to what was found; the last move is number k."""
        take(*self._where, k)

    @property
    def _where(self) -> tuple[np.ndarray, np.ndarray, Weights, object, Span]:
        return self.members, self.block.ids, self.shared, self.rows, self.span


def moves_bytes(features: int, rows: int) -> int:
    """What it takes, over so many features and members."""
    return 8 * (MOVES + 2) * (features + 1 + rows)
