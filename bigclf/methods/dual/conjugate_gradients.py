"""Conjugate gradients over the free dual variables, for problems on which coordinate steps stall.

With the dual variables at the ends of their pieces held where they are, the dual of a piecewise quadratic loss is a
quadratic of the others, the face F (for the losses of the tube the pieces end at 0, too):

    max_d  g.d - 1/2 d.(Q_FF + D) d,    Q_ij = s_i s_j x_i.x_j,   g = slope - m - D a

Coordinate steps take about as many rounds as Q_FF is badly conditioned, conjugate gradients its square root (Hestenes,
Stiefel, 1952; scaled by the diagonal); each costs two passes over the rows of F. So coordinate steps find the face, and
conjugate gradients go to its top (More, Toraldo, SIAM J. Optimization 1991, with coordinate steps for the projected
gradient): until the face's own gap is small, or too many rows would leave their pieces. The way found is projected into
the pieces and taken if the dual objective rises by it, else a quarter of it. What meets an end stays there, and
the smaller face is next. Every point is feasible and the dual objective never falls: certificates stay what they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from bigclf.compiled.jit import axpy, dot_ahead, in_turns, inlined, inner, kernel, prefetch_ahead
from bigclf.maths.losses import Loss, dual_terms, plain

if TYPE_CHECKING:
    from bigclf.maths.block import Block
    from bigclf.methods.dual.dual_coordinate_descent import Shared


# Of the face's rows: where more would leave it, it is not the right one; and how many faces one after the other, before
# coordinate steps look at all rows again. Without an upper end few of those that leave would come back (news20, squared
# hinge: a third of the time); in a box more would, and the rounds that put them right take longer.
LEAVING = 10
BOXED_SHARE, BOXED_FACES = 0.003, 5
OPEN_SHARE, OPEN_FACES = 0.02, 10
ROWS_A_CALL = 10_000  # of a face, times steps, between two looks at whether the run is to stop
QUARTERS = 12  # tried of a way, before it is given up
FLAT = 1e-12  # curvature of a direction beside that of its rows one by one: rounding
BYTES_A_ROW = 8 * 8


class Face(NamedTuple):
    """rows : int64 [k], the free rows of the block; start : float64 [k], their dual variables; step : from there;
    gradient, residual : of the dual there and after the step; diagonal : of Q_FF + D; direction : p; image : (Q + D) p,
    and on the way to it what p is there; sum : float64 [feature + 1], sum of p_i s_i x_i."""

    rows: np.ndarray
    start: np.ndarray
    step: np.ndarray
    gradient: np.ndarray
    residual: np.ndarray
    diagonal: np.ndarray
    direction: np.ndarray
    image: np.ndarray
    sum: np.ndarray


class Ascent(NamedTuple):
    """The kernels that go up a kind of face, which has an array ``step`` of its free variables; all of them get block
    and face first. begin : (shared, rows, loss) -> r.z; advance : (loss, r.z, most, goal, leaving) -> (steps, r.z,
    found); it calls first_end : (loss) -> how far the direction leads; rise : (loss, t) -> gain; take : (shared, rows,
    loss, t), after rise with this t -> how many variables are at their ends. share : of the variables, as many may
    leave the face; faces : how many are gone up one after the other; further : whether another one follows where a part
    of the way was gone."""

    begin: Callable[..., float]
    advance: Callable[..., tuple[int, float, bool]]
    first_end: Callable[..., float]
    rise: Callable[..., float]
    take: Callable[..., int]
    share: float
    faces: int
    further: bool


class Quadratic(NamedTuple):
    """A loss whose dual is piecewise quadratic: C, bias, epsilon of the method's parameters; diagonal : D_ii C_i;
    open : whether the dual variables have no upper end; signed : whether s_i is the label, -1 or +1, and not 1."""

    C: float
    bias: float
    epsilon: float
    diagonal: float
    open: bool
    signed: bool


@inlined
def ends(loss, a, c):  # type: ignore[no-untyped-def]
    """The interval around a on which the row's term is one parabola or straight line."""
    top = np.inf if loss.open else c
    below = a < 0 and not loss.signed
    return -top if below else 0.0, 0.0 if below else top


@kernel
def find(block, members, rows, loss, free):  # type: ignore[no-untyped-def]
    """Put those of ``members`` that are inside their pieces into ``free``, as far as there is room; their number."""
    n = 0
    for k in range(members.size):
        i = members[k]
        a = rows.alpha[block.ids[i]]
        low, high = ends(loss, a, loss.C * block.weights[i])
        if low < a < high:
            if n < free.size:
                free[n] = i
            n += 1
    return n


@kernel
def margins(block, order, weights, bias, image):  # type: ignore[no-untyped-def]
    """image[k] = w.x of the row order[k], without its label; what is compiled once need not be in both callers."""
    constant = bias * weights[weights.size - 1]
    for k in range(order.size):
        image[k] = dot_ahead(block, order, k, weights) + constant


@kernel
def add_rows(block, order, steps, bias, total):  # type: ignore[no-untyped-def]
    """total = sum of steps[k] times the row order[k]"""
    last = total.size - 1
    total[:] = 0.0
    for k in range(order.size):
        prefetch_ahead(block, order, k)
        axpy(steps[k], block, order[k], total)
        total[last] += bias * steps[k]


@kernel
def begin(block, face, shared, rows, loss):  # type: ignore[no-untyped-def]
    """Gradient, diagonal and the first direction; returns r.z with z = r / diagonal."""
    rz = np.float64(0)
    margins(block, face.rows, shared.weights, loss.bias, face.image)
    for k in range(face.rows.size):
        i = face.rows[k]
        a, t, d = rows.alpha[block.ids[i]], block.labels[i], loss.diagonal / (loss.C * block.weights[i])
        s = t if loss.signed else 1.0
        slope = 1.0 if loss.signed else t - loss.epsilon if a > 0 else t + loss.epsilon
        g = slope - s * face.image[k] - d * a
        q = block.norms[i] + loss.bias * loss.bias + d
        face.start[k], face.step[k], face.gradient[k], face.residual[k], face.diagonal[k] = a, 0.0, g, g, q
        face.direction[k] = g / q
        rz += g * (g / q)
    return rz


@kernel
def multiply(block, face, loss):  # type: ignore[no-untyped-def]
    """image = (Q + D) p; returns p.(Q + D) p, and the same without what lies off the diagonal."""
    for k in range(face.rows.size):
        face.image[k] = block.labels[face.rows[k]] * face.direction[k] if loss.signed else face.direction[k]
    add_rows(block, face.rows, face.image, loss.bias, face.sum)
    margins(block, face.rows, face.sum, loss.bias, face.image)
    curvature, apart = np.float64(0), np.float64(0)
    for k in range(face.rows.size):
        i, p = face.rows[k], face.direction[k]
        s = block.labels[i] if loss.signed else 1.0
        d = loss.diagonal / (loss.C * block.weights[i])
        face.image[k] = s * face.image[k] + d * p
        curvature += p * face.image[k]
        apart += p * face.diagonal[k] * p
    return curvature, apart


@kernel
def first_end(block, face, loss):  # type: ignore[no-untyped-def]
    """How far the direction leads to the first end of a row's piece."""
    t = np.inf
    for k in range(face.rows.size):
        a, p = face.start[k], face.direction[k]
        low, high = ends(loss, a, loss.C * block.weights[face.rows[k]])
        if p != 0:
            t = min(t, max(0.0, ((high if p > 0 else low) - a - face.step[k]) / p))
    return t


@kernel
def advance(block, face, loss, rz, most, goal, leaving):  # type: ignore[no-untyped-def]
    """``most`` steps, or fewer: their number, r.z and whether this is the way, because the face's own gap is at its
    goal, more than ``leaving`` rows would leave it, or the direction has no curvature."""
    for taken in range(1, most + 1):
        curvature, apart = multiply(block, face, loss)
        flat = not curvature > FLAT * apart
        t = first_end(block, face, loss) if flat else rz / curvature
        gap, following, out = np.float64(0), np.float64(0), 0
        for k in range(face.rows.size):
            a, c = face.start[k], loss.C * block.weights[face.rows[k]]
            low, high = ends(loss, a, c)
            face.step[k] += t * face.direction[k]
            face.residual[k] -= t * face.image[k]
            r, there = face.residual[k], a + face.step[k]
            out += there < low or there > high
            there = min(max(there, low), high)
            if loss.open:  # max_z r z - D z^2 / 2
                gap += 0.5 * c * r * r / loss.diagonal
            else:
                there = r * (high - there) if r > 0 else r * (low - there)
                gap += min(there, 0.5 * c * r * r / loss.diagonal) if loss.diagonal > 0 else there
            following += r * (r / face.diagonal[k])
        if flat or gap <= goal or out > leaving or not 0 < following < np.inf:
            return taken, following, True
        for k in range(face.rows.size):
            face.direction[k] = face.residual[k] / face.diagonal[k] + following / rz * face.direction[k]
        rz = following
    return most, rz, False


@kernel
def rise(block, face, loss, t):  # type: ignore[no-untyped-def]
    """What the dual objective gains by t times the step, projected; ``sum`` is then how the weights move."""
    gain = np.float64(0)
    for k in range(face.rows.size):
        i, a = face.rows[k], face.start[k]
        c = loss.C * block.weights[i]
        low, high = ends(loss, a, c)
        by = min(max(a + t * face.step[k], low), high) - a
        face.image[k] = block.labels[i] * by if loss.signed else by
        gain += by * (face.gradient[k] - 0.5 * loss.diagonal / c * by)
    add_rows(block, face.rows, face.image, loss.bias, face.sum)
    return gain - 0.5 * inner(face.sum, face.sum)


@kernel
def take(block, face, shared, rows, loss, t):  # type: ignore[no-untyped-def]
    """Go there; how many rows are at an end of their piece now."""
    alpha, weights, n = rows.alpha, shared.weights, 0
    for k in range(face.rows.size):
        i, a = face.rows[k], face.start[k]
        low, high = ends(loss, a, loss.C * block.weights[i])
        there = min(max(a + t * face.step[k], low), high)
        alpha[block.ids[i]] = there
        n += there <= low or there >= high
    for j in range(weights.size):
        weights[j] += face.sum[j]
    return n


def climb(loss: Loss) -> Callable[..., int] | None:
    """Function that goes up the dual over the free rows (see above), or None where the dual is not quadratic.

    Its arguments: block, members (int64, the rows of the block that may move), shared, rows, params; goal, the gap of
    the face at which it is done; steps, the most to take; room, the most rows of a face; idle, called between two
    kernels. It returns the number of steps.
    """
    dual = dual_terms(loss)
    if not dual.parabolic:
        return None
    return functools.partial(_climb, float(plain(dual.diagonal)(1.0)), dual.open, not loss.regression)


def _climb(
    diagonal: float,
    unbounded: bool,
    signed: bool,
    block: Block,
    members: np.ndarray,
    shared: Any,
    rows: object,
    params: Any,
    goal: float,
    steps: int,
    room: int,
    idle: Callable[[], None],
) -> int:
    loss = Quadratic(params.C, params.bias, params.epsilon, diagonal, unbounded, signed)
    free = np.empty(min(room, members.size), np.int64)

    def face() -> Face | None:
        size = find(block, members, rows, loss, free)
        if size == 0 or size > free.size:
            return None
        a, b, c, d, e, f, g = (np.empty(size) for _ in range(7))
        return Face(free[:size], a, b, c, d, e, f, g, np.empty(shared.weights.size))

    return go_up(OPEN if unbounded else BOXED, face, block, shared, rows, loss, goal, steps, idle)


OPEN = Ascent(begin, advance, first_end, rise, take, OPEN_SHARE, OPEN_FACES, further=False)
BOXED = Ascent(begin, advance, first_end, rise, take, BOXED_SHARE, BOXED_FACES, further=False)


def go_up(
    ascent: Ascent,
    find_face: Callable[[], object],
    block: Block,
    shared: object,
    rows: object,
    loss: object,
    goal: float,
    steps: int,
    idle: Callable[[], None],
) -> int:
    """Up one face after the other, each that ``find_face`` finds (None: there is none); the steps taken."""
    taken = 0
    for _ in range(ascent.faces):
        face = find_face() if taken < steps else None
        if face is None:
            break
        more, smaller = _go_up(ascent, block, face, shared, rows, loss, goal, steps - taken, idle)
        taken += more
        if not smaller:
            break
    return taken


def _load(ascent: Ascent, block: Block, face: Face, shared: Shared, rows: object, loss: object) -> None:
    """Have the kernels ready, by a face of no rows: where another process is at one of them, the others come first."""
    none, nothing = type(face)(*(array[:0] for array in face)), shared._replace(weights=shared.weights[:0])
    in_turns([
        functools.partial(ascent.begin, block, none, shared, rows, loss),
        functools.partial(ascent.advance, block, none, loss, 0.0, 0, 0.0, 0.0),
        functools.partial(ascent.first_end, block, none, loss),
        functools.partial(ascent.rise, block, none, loss, 0.0),
        functools.partial(ascent.take, block, none, nothing, rows, loss, 0.0),
    ])  # fmt: skip


def _go_up(
    ascent: Ascent,
    block: Block,
    face: Any,
    shared: object,
    rows: object,
    loss: object,
    goal: float,
    steps: int,
    idle: Callable[[], None],
) -> tuple[int, bool]:
    """Up one face: the steps taken, and whether they left a smaller face that is to be gone up."""
    _load(ascent, block, face, cast("Shared", shared), rows, loss)
    size = face.step.size
    rz, taken, found = ascent.begin(block, face, shared, rows, loss), 0, False
    leaving = LEAVING + ascent.share * size
    while taken < steps and not found and 0 < rz < np.inf:
        most = min(steps - taken, 1 + ROWS_A_CALL // size)
        more, rz, found = ascent.advance(block, face, loss, rz, most, goal, leaving)
        taken += more
        idle()
    t = 1.0
    for _ in range(QUARTERS):
        gain = ascent.rise(block, face, loss, t)
        idle()
        if 0 < gain < np.inf:
            return taken, ascent.take(block, face, shared, rows, loss, t) > 0 and (t == 1.0 or ascent.further)
        t *= 0.25
    return taken, False
