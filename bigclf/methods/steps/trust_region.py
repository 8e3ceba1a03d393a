"""Trust region Newton for the smooth losses (Lin and More, SIAM J. Optimization 1999; Lin, Weng, Keerthi, JMLR 2008),
in the norm of the preconditioner (Hsia, Chiang, Lin, ACML 2018).

    min_s  q(s) = g.s + 1/2 s.H s,  ||s||_M <= Delta,    by conjugate gradients (Steihaug 1983)
    rho = (P(w) - P(w + s)) / -q(s):  the step is taken where rho > eta_0, and Delta follows rho

A line search shortens a step that goes too far, and Delta stays (Nocedal and Yuan, Advances in Nonlinear Programming
1998). Shrinking Delta instead fails on the squared losses: their Hessian jumps where a row begins to cost, so Delta
falls to the distance of the next such row, in all directions. Conjugate gradients then end at the border after a
product or two, and thousands of short steps follow the kinks. Steps also go too far where rows are sampled and say too
little of the Hessian: that shows in the gradient that a step leaves, and from there on products are of all rows.

Conjugate gradients end at the border, or as in Newton's method by what a step still adds to the model: a share of ||g||
takes many more products where few directions hold most of it. Problem, sums, kernels, state and certificate are those
of ``bigclf.methods.steps.newton``.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import numpy as np

from bigclf.maths.losses import Loss
from bigclf.methods.common import COST, EPSILON
from bigclf.methods.method import Step, steps
from bigclf.methods.steps import newton
from bigclf.methods.steps.newton import (
    BY_SUMS,
    GOAL,
    IDLE,
    LEAST,
    LENGTH,
    MODEL,
    OWN_PASSES,
    POOR,
    PRODUCTS,
    ROUNDING,
    SAMPLE,
    SEEN,
    SQUARE,
    STEEP,
    VALUE,
    WHOLE,
    dot,
)

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


ETA = 1e-4, 0.25, 0.75
SIGMA = 0.25, 0.5, 4.0
SHORTEST, LONGEST = 0.1, 0.9  # parts of a step that was too long, which are tried next
RADIUS, FIRST, REACH = range(newton.N_SCALARS, newton.N_SCALARS + 3)  # more places in ``scalars``


def begin(n_features: int, dtype: DTypeLike, settings: Numbers) -> newton.Shared:
    """A state at w = 0."""
    shared = newton.begin(n_features, dtype, settings)
    return shared._replace(scalars=np.concatenate([shared.scalars, [0.0, 1.0, 0.0]]))


def absorb(loss: Loss):  # type: ignore[no-untyped-def]
    """Function (shared, params) -> Step: from the sums of a read to the next one."""

    def step(shared: newton.Shared, params: newton.Params) -> Step:
        kind = shared.scalars[newton.KIND]
        if kind == newton.START:
            return newton.started(shared)
        return multiplied(shared, params) if kind == newton.PRODUCT else looked(loss, shared, params)

    return step


def looked(loss: Loss, shared: newton.Shared, params: newton.Params) -> Step:
    """The gradient at ``weights`` is known: is the model to be trusted?"""
    scalars = shared.scalars
    g, value, steep, told = newton.judged(loss, shared, params)
    if steep == 0:
        return told._replace(over="done")
    if scalars[LENGTH] > 0:
        fell, promised = float(scalars[VALUE]) - value, promised_by(shared)
        floor = ROUNDING * abs(float(scalars[VALUE]))
        scalars[IDLE] = 0 if steep < scalars[LEAST] else scalars[IDLE] + 1
        if promised <= floor and scalars[IDLE] >= newton.PATIENCE:
            return told._replace(over="stalled")
        if not fell > ETA[0] * promised - floor:
            return shorten(shared, fell, dot(g, shared.step), told)
        if scalars[LENGTH] == 1.0:
            resize(shared, fell, promised)
        if steep > POOR * scalars[STEEP]:
            scalars[WHOLE] = 1
    scalars[LEAST] = min(scalars[LEAST], steep)
    shared.point[:] = shared.weights
    scalars[[VALUE, STEEP, SEEN]] = value, steep, shared.figures[newton.ROWS]
    newton.begin_conjugate_gradients(shared, -g, params)
    if scalars[RADIUS] == 0:
        scalars[RADIUS] = math.sqrt(scalars[SQUARE])
    return told


def tangent(shared: newton.Shared) -> tuple[float, float]:
    """g.s and s.H s, from the model's value q = g.s + s.H s / 2 and the residual r = -g - H s: s.r = -g.s - s.H s."""
    model, left = float(shared.scalars[MODEL]), dot(shared.step, shared.residual)
    return 2.0 * model + left, -2.0 * (model + left)


def promised_by(shared: newton.Shared) -> float:
    """-q(t s) of the part t of the step that was tried."""
    t = float(shared.scalars[LENGTH])
    if t == 1.0:
        return -float(shared.scalars[MODEL])
    slope, bend = tangent(shared)
    return -t * (slope + 0.5 * t * bend)


def shorten(shared: newton.Shared, fell: float, slope: float, told: Step) -> Step:
    """The next read is at a part of the step, which went too far: P did not fall, and rises by ``slope`` there."""
    scalars = shared.scalars
    t = float(scalars[LENGTH])
    if t < 0.5**newton.HALVINGS:
        return told._replace(over="stalled")
    scalars[LENGTH] = t = min(max(lowest(t, *tangent(shared), -fell, slope), SHORTEST * t), LONGEST * t)
    shared.weights[:] = shared.point + t * shared.step
    newton.clear(shared)
    return told


def lowest(t: float, slope: float, bend: float, rose: float, end: float) -> float:
    """Where P is lowest along the step, if rows begin to cost at one place: P rose by ``rose`` up to t, where its slope
    is ``end``.

        P(u) - P(0) = slope u + bend u^2 / 2 + c max(0, u - k)^2 / 2

    What the model lacks at t, c (t - k)^2 / 2, and its slope lacks, c (t - k), say where k is.
    """
    value, tilt = rose - t * (slope + 0.5 * t * bend), end - slope - t * bend
    if not (math.isfinite(value) and math.isfinite(tilt) and tilt > 0):
        return 0.0
    past = min(t, 2.0 * value / tilt)
    if not past > 0:
        return t
    c = tilt / past
    return (c * (t - past) - slope) / (bend + c)


def resize(shared: newton.Shared, fell: float, promised: float) -> None:
    """Delta after a whole step of which the objective fell by ``fell`` and the model had said ``promised``."""
    scalars = shared.scalars
    length = float(scalars[REACH])
    radius = min(float(scalars[RADIUS]), length) if scalars[FIRST] else float(scalars[RADIUS])
    scalars[FIRST] = 0.0
    slope = tangent(shared)[0]
    over = -fell - slope  # the objective lies above its tangent by that, at the end of the step
    best = SIGMA[2] if not over > 0 else max(SIGMA[0], -0.5 * slope / over)
    rho = fell / promised if promised > 0 else -1.0
    if rho < ETA[0]:  # within rounding
        radius = min(max(best, SIGMA[0]) * length, SIGMA[1] * radius)
    elif rho < ETA[1]:
        radius = max(SIGMA[0] * radius, min(best * length, SIGMA[1] * radius))
    elif rho < ETA[2]:
        radius = max(SIGMA[0] * radius, min(best * length, SIGMA[2] * radius))
    else:
        radius = max(radius, min(best * length, SIGMA[2] * radius))
    scalars[RADIUS] = radius


def multiplied(shared: newton.Shared, params: newton.Params) -> Step:
    """H d is known: a step of conjugate gradients, to the border of the region at most."""
    direction, image = newton.product(shared, params)
    scalars, step, residual = shared.scalars, shared.step, shared.residual
    square, bend = float(scalars[SQUARE]), dot(direction, image)
    facts = {"products": 1.0}
    scalars[PRODUCTS] += 1
    room = to_border(shared, direction)
    a = square / bend if 0 < bend < np.inf else room
    border = not a < room
    a = min(a, room)
    step += a * direction
    gain = a * dot(residual, direction) - 0.5 * a * a * bend
    scalars[MODEL] -= gain
    residual -= a * image
    z = residual / shared.diagonal
    scalars[SQUARE] = following = dot(residual, z)
    count, model = scalars[PRODUCTS], -scalars[MODEL]
    if border or count * gain <= scalars[GOAL] * model or not 0 < following < np.inf:
        return tried(shared, facts)
    if count >= newton.MOST_PRODUCTS:
        return tried(shared, facts)
    shared.probe[:] = z + following / square * direction
    newton.clear_sums(shared)
    return Step(facts=facts)


def tried(shared: newton.Shared, facts: dict[str, float]) -> Step:
    """The next read is the gradient at the end of the step, whose length is taken while M is at hand."""
    shared.scalars[REACH] = math.sqrt(dot(shared.step, shared.diagonal * shared.step))
    return newton.tried(shared, facts)


def to_border(shared: newton.Shared, direction: np.ndarray) -> float:
    """The t >= 0 with ||s + t d||_M = Delta."""
    m, s, radius = shared.diagonal, shared.step, float(shared.scalars[RADIUS])
    dd, sd, ss = dot(direction, m * direction), dot(s, m * direction), dot(s, m * s)
    left = max(0.0, radius * radius - ss)
    if dd == 0:
        return 0.0
    root = math.sqrt(sd * sd + dd * left)
    return left / (sd + root) if sd > 0 else (root - sd) / dd


# Methods

METHODS = (
    steps(
        name="tron",
        title="trust region Newton with preconditioned conjugate gradients, certified",
        paper="Lin and More 1999; Nocedal and Yuan 1998; Lin, Weng, Keerthi, JMLR 2008; Hsia, Chiang, Lin, ACML 2018",
        formula="min_s g.s + s.H s / 2, ||s|| <= Delta;  w <- w + t s, t < 1 where a whole step goes too far",
        params=(COST, EPSILON, OWN_PASSES, SAMPLE),
        shared=begin,
        absorb=functools.cache(absorb),
        **BY_SUMS,
    ),
)
