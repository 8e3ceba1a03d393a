"""L-BFGS for the smooth losses (Liu and Nocedal, Mathematical Programming 1989), from a first pass of online learning
(Agarwal, Chapelle, Dudik, Langford, JMLR 2014).

    w <- w - t H g,   H from the last ten pairs s = w' - w, y = g' - g by the two-loop recursion, H_0 = gamma M^-1

M is what preconditions Newton's method, gamma = s.y / y.M^-1 y. A read is a gradient, at a point that is taken where
Armijo's condition holds and else tried with half the step. Where they begin, each group's pass has learned from its own
rows and the sum of the steps is safe; problem, sums, kernel and certificate are those of ``newton``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.maths.losses import Loss
from bigclf.methods.common import COST, EPSILON
from bigclf.methods.method import SUM, Step, steps
from bigclf.methods.steps import newton
from bigclf.methods.steps.newton import (
    ARMIJO,
    BY_SUMS,
    FRESH,
    HALVINGS,
    IDLE,
    LEAST,
    LENGTH,
    MODEL,
    PASSES,
    PRODUCTS,
    ROUNDING,
    VALUE,
    dot,
)

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


MEMORY = 10
CURVED = 1e-10  # a pair counts where s.y is more than so many times ||y||^2


class Shared(NamedTuple):
    """weights : [feature + 1], where the next gradient is taken; probe : [0]; float64 [feature + 1]: point, the last
    point that was taken, slope, the gradient there, step, the direction from there; total, diagonal, side, figures,
    scalars as in ``newton.Shared``; moves, turns : float64 [10, feature + 1], the pairs s and y, in a ring of which
    ``scalars[PRODUCTS]`` counts the pairs so far."""

    weights: np.ndarray
    probe: np.ndarray
    point: np.ndarray
    slope: np.ndarray
    step: np.ndarray
    total: np.ndarray
    diagonal: np.ndarray
    side: np.ndarray
    figures: np.ndarray
    scalars: np.ndarray
    moves: np.ndarray
    turns: np.ndarray


def begin(n_features: int, dtype: DTypeLike, settings: Numbers) -> Shared:
    """A state at w = 0."""
    first, pairs = newton.begin(n_features, dtype, settings), (np.zeros((MEMORY, n_features + 1)) for _ in range(2))
    return Shared(first.weights, np.zeros(0, dtype), first.point, first.residual, first.step, first.total,
                  first.diagonal, first.side, first.figures, first.scalars, *pairs)  # fmt: skip


def reading(shared: Shared) -> str:
    """What the next read is."""
    return SUM if shared.scalars[newton.KIND] == newton.GRADIENT else newton.reading(shared)


def absorb(loss: Loss):  # type: ignore[no-untyped-def]
    """Function (shared, params) -> Step: from the sums of a read to the next one."""

    def step(shared: Shared, params: newton.Params) -> Step:
        start = shared.scalars[newton.KIND] == newton.START
        return newton.started(shared) if start else looked(loss, shared, params)

    return step


def looked(loss: Loss, shared: Shared, params: newton.Params) -> Step:
    """The gradient at ``weights`` is known: take the point or a shorter step, then turn."""
    scalars = shared.scalars
    g, value, steep, told = newton.judged(loss, shared, params)
    if not scalars[LENGTH] and not math.isfinite(value):
        return Step(value, 0.0, shared.weights.copy())
    length, slope, floor = float(scalars[LENGTH]), float(scalars[MODEL]), ROUNDING * abs(float(scalars[VALUE]))
    if length > 0 and not value <= scalars[VALUE] + ARMIJO * length * slope + floor:
        if length < 0.5**HALVINGS:
            return told._replace(over="stalled")
        scalars[LENGTH] = 0.5 * length
        shared.weights[:] = shared.point + 0.5 * length * shared.step
        newton.clear(shared)
        return told
    scalars[IDLE] = 0 if steep < scalars[LEAST] else scalars[IDLE] + 1
    scalars[LEAST] = min(scalars[LEAST], steep)
    if steep == 0:
        return told._replace(over="done")
    if length > 0 and -length * slope <= floor and scalars[IDLE] >= MEMORY:
        return told._replace(over="stalled")
    if scalars[FRESH]:
        newton.precondition(shared, params)
    if length > 0:
        remember(shared, g)
    turn(shared, g, value)
    return told


def remember(shared: Shared, g: np.ndarray) -> None:
    """The pair of the step just taken."""
    s, y = shared.weights - shared.point, g - shared.slope
    if dot(s, y) > CURVED * dot(y, y):
        place = int(shared.scalars[PRODUCTS]) % MEMORY
        shared.moves[place], shared.turns[place] = s, y
        shared.scalars[PRODUCTS] += 1


def turn(shared: Shared, g: np.ndarray, value: float) -> None:
    """The next point to try: a full step along -H g."""
    scalars = shared.scalars
    direction = -inverse_times(shared, g)
    slope = dot(direction, g)
    if not slope < 0:
        direction = -g / shared.diagonal
        slope, scalars[PRODUCTS] = dot(direction, g), 0
    shared.point[:] = shared.weights
    shared.slope[:], shared.step[:] = g, direction
    scalars[[VALUE, MODEL, LENGTH, FRESH]] = value, slope, 1.0, 0.0
    shared.weights[:] = shared.point + direction
    newton.clear(shared)


def inverse_times(shared: Shared, g: np.ndarray) -> np.ndarray:
    """H g by the two-loop recursion."""
    count = int(shared.scalars[PRODUCTS])
    order = [n % MEMORY for n in range(max(0, count - MEMORY), count)]
    q, shares = g.copy(), {}
    for n in reversed(order):
        s, y = shared.moves[n], shared.turns[n]
        shares[n] = dot(s, q) / dot(s, y)
        q -= shares[n] * y
    gamma = 1.0
    if order:
        s, y = shared.moves[order[-1]], shared.turns[order[-1]]
        gamma = dot(s, y) / dot(y, y / shared.diagonal)
    q *= gamma / shared.diagonal
    for n in order:
        s, y = shared.moves[n], shared.turns[n]
        q += (shares[n] - dot(y, q) / dot(s, y)) * s
    return q


# Methods

METHODS = (
    steps(
        name="lbfgs",
        title="L-BFGS from a pass of online learning, certified",
        paper="Liu and Nocedal 1989; Agarwal, Chapelle, Dudik, Langford, JMLR 2014",
        formula="w <- w - t H g,  H from the last ten pairs of steps and gradients",
        params=(COST, EPSILON, dataclasses.replace(PASSES, default=1)),
        shared=begin,
        absorb=functools.cache(absorb),
        **BY_SUMS | dict(update=functools.cache(newton.sums), reading=reading),  # kernels of a state of its own
    ),
)
