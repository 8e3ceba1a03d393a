"""Conjugate gradients over the free dual variables of the multi-class support vector machine, as
``conjugate_gradients`` has them for two classes.

Of row i the free classes S_i are those with a_im below its bound (``multiclass_dual_coordinate_descent``); a row with
two of them at least can move while all else is held. With r_m = -G_m the gradient of the dual, the face is

    max_d  r.d - 1/2 sum_m ||sum_i d_im x_i||^2,    sum_m d_im = 0 in each row,

whose diagonal blocks are q_i = ||x_i||^2 times the identity: gradients less their mean over S_i, divided by q_i, are
the scaled ones, and every direction made of them keeps the sums of the rows. What has been found is put inside the
bounds row by row: no a_im of a wrong class above 0, and these scaled so that a_iy is at most C_i.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import inlined, inner, kernel, prefetch_ahead
from bigclf.methods.dual.conjugate_gradients import FLAT, Ascent, go_up
from bigclf.methods.many_classes.multiclass import axpy_classes, scores_of_columns

if TYPE_CHECKING:
    from bigclf.maths.block import Block


class Face(NamedTuple):
    """rows : int64 [k], the rows of the block with free classes; edges : int64 [k + 1], where those of each begin in
    the arrays by pair of row and free class; classes : int64 [pair]; start : float64 [pair], the dual variables; step :
    from there; gradient, residual : of the dual there and after the step, less their mean over the row; direction,
    image : p, Q p less its mean over the row, and after ``rise`` where the pairs go to and how far that is; sum :
    float64 [feature + 1, class], sum of p_im x_i."""

    rows: np.ndarray
    edges: np.ndarray
    classes: np.ndarray
    start: np.ndarray
    step: np.ndarray
    gradient: np.ndarray
    residual: np.ndarray
    direction: np.ndarray
    image: np.ndarray
    sum: np.ndarray


@kernel
def find(block, members, rows, params, found, edges, classes):  # type: ignore[no-untyped-def]
    """Fill ``found`` with those of ``members`` that have two free classes at least, ``classes`` with these, ``edges``
    with where each row's begin; how many rows. A row without room for every class that there is, is none."""
    alpha, n, size = rows.alpha, 0, 0
    edges[0] = 0
    for k in range(members.size):
        i = members[k]
        c, y, r = params.C * block.weights[i], np.int64(block.labels[i]), block.ids[i]
        if not c > 0 or block.norms[i] + params.bias * params.bias == 0:
            continue
        if n == found.size or size + alpha.shape[1] > classes.size:
            return -1
        end = size
        for m in range(alpha.shape[1]):
            if alpha[r, m] < (c if m == y else 0.0):
                classes[end] = m
                end += 1
        if end - size > 1:
            found[n], size, n = i, end, n + 1
            edges[n] = size
    return n


@inlined
def centre(values, first, end):  # type: ignore[no-untyped-def]
    """Take their mean from values[first:end]."""
    mean = np.float64(0)
    for n in range(first, end):
        mean += values[n]
    mean /= end - first
    for n in range(first, end):
        values[n] -= mean


@kernel
def begin(block, face, shared, rows, params):  # type: ignore[no-untyped-def]
    """Gradient and the first direction; returns r.z with z = r / q."""
    rz = np.float64(0)
    for k in range(face.rows.size):
        prefetch_ahead(block, face.rows, k)
        i, first, end = face.rows[k], face.edges[k], face.edges[k + 1]
        q, y = block.norms[i] + params.bias * params.bias, np.int64(block.labels[i])
        scores_of_columns(block, i, shared.weights, params.bias, face.classes[first:end], face.gradient[first:end])
        for n in range(first, end):
            face.start[n] = rows.alpha[block.ids[i], face.classes[n]]
            face.gradient[n] = -face.gradient[n] - (0.0 if face.classes[n] == y else 1.0)
        centre(face.gradient, first, end)
        for n in range(first, end):
            g = face.gradient[n]
            face.step[n], face.residual[n], face.direction[n] = 0.0, g, g / q
            rz += g * (g / q)
    return rz


@inlined
def add_up(block, face, values, bias):  # type: ignore[no-untyped-def]
    """sum = sum of values_im x_i over the face."""
    total = face.sum
    for j in range(total.shape[0]):
        for m in range(total.shape[1]):
            total[j, m] = 0.0
    for k in range(face.rows.size):
        prefetch_ahead(block, face.rows, k)
        first, end = face.edges[k], face.edges[k + 1]
        axpy_classes(1.0, block, face.rows[k], total, face.classes[first:end], values[first:end], end - first, bias)


@kernel
def multiply(block, face, params):  # type: ignore[no-untyped-def]
    """image = Q p; returns p.Q p, and the same without what lies off the diagonal blocks."""
    add_up(block, face, face.direction, params.bias)
    curvature, apart = np.float64(0), np.float64(0)
    for k in range(face.rows.size):
        prefetch_ahead(block, face.rows, k)
        i, first, end = face.rows[k], face.edges[k], face.edges[k + 1]
        q = block.norms[i] + params.bias * params.bias
        scores_of_columns(block, i, face.sum, params.bias, face.classes[first:end], face.image[first:end])
        centre(face.image, first, end)
        for n in range(first, end):
            curvature += face.direction[n] * face.image[n]
            apart += face.direction[n] * q * face.direction[n]
    return curvature, apart


@inlined
def upper(block, face, params, k, n):  # type: ignore[no-untyped-def]
    """The bound of the pair n, which is of the row rows[k]."""
    i = face.rows[k]
    return params.C * block.weights[i] if face.classes[n] == np.int64(block.labels[i]) else 0.0


@kernel
def first_end(block, face, params):  # type: ignore[no-untyped-def]
    """How far the direction leads to the first bound."""
    t = np.inf
    for k in range(face.rows.size):
        for n in range(face.edges[k], face.edges[k + 1]):
            if face.direction[n] > 0:
                left = upper(block, face, params, k, n) - face.start[n] - face.step[n]
                t = min(t, max(0.0, left / face.direction[n]))
    return t


@kernel
def advance(block, face, params, rz, most, goal, leaving):  # type: ignore[no-untyped-def]
    """``most`` steps, or fewer: their number, r.z and whether this is the way, because the face's own gap is at its
    goal, more than ``leaving`` pairs would leave it, or the direction has no curvature."""
    for taken in range(1, most + 1):
        curvature, apart = multiply(block, face, params)
        flat = not curvature > FLAT * apart
        t = first_end(block, face, params) if flat else rz / curvature
        gap, following, out = np.float64(0), np.float64(0), 0
        for k in range(face.rows.size):
            i, first, end = face.rows[k], face.edges[k], face.edges[k + 1]
            q, least = block.norms[i] + params.bias * params.bias, np.inf
            for n in range(first, end):
                face.step[n] += t * face.direction[n]
                face.residual[n] -= t * face.image[n]
                least = min(least, face.residual[n])
                following += face.residual[n] * (face.residual[n] / q)
            for n in range(first, end):
                left = upper(block, face, params, k, n) - (face.start[n] + face.step[n])
                out += left < 0
                gap += max(left, 0.0) * (face.residual[n] - least)
        if flat or gap <= goal or out > leaving or not 0 < following < np.inf:
            return taken, following, True
        for k in range(face.rows.size):
            q = block.norms[face.rows[k]] + params.bias * params.bias
            for n in range(face.edges[k], face.edges[k + 1]):
                face.direction[n] = face.residual[n] / q + following / rz * face.direction[n]
        rz = following
    return most, rz, False


@kernel
def rise(block, face, params, t):  # type: ignore[no-untyped-def]
    """What the dual objective gains by t times the step, put inside the bounds: ``direction`` is then where the pairs
    go to, ``image`` how far, ``sum`` how the weights move."""
    gain = np.float64(0)
    for k in range(face.rows.size):
        i, first, end = face.rows[k], face.edges[k], face.edges[k + 1]
        y, c, total = np.int64(block.labels[i]), params.C * block.weights[i], np.float64(0)
        bound = True
        for n in range(first, end):
            there = min(face.start[n] + t * face.step[n], 0.0)
            face.direction[n] = there
            if face.classes[n] == y:
                bound = False
            else:
                total -= there
        bound = bound or total > c
        for n in range(first, end):
            if face.classes[n] == y:
                face.direction[n] = c if bound else total
            elif bound:
                face.direction[n] *= c / total
            face.image[n] = face.direction[n] - face.start[n]
            gain += face.image[n] * face.gradient[n]
    add_up(block, face, face.image, params.bias)
    total, square = face.sum, np.float64(0)
    for j in range(total.shape[0]):
        square += inner(total[j], total[j])
    return gain - 0.5 * square


@kernel
def take(block, face, shared, rows, params, t):  # type: ignore[no-untyped-def]
    """Go where ``rise`` has led; how many pairs are at their bounds now."""
    alpha, weights, reached = rows.alpha, shared.weights, 0
    for k in range(face.rows.size):
        r = block.ids[face.rows[k]]
        for n in range(face.edges[k], face.edges[k + 1]):
            alpha[r, face.classes[n]] = face.direction[n]
            reached += face.direction[n] >= upper(block, face, params, k, n)
    for j in range(weights.shape[0]):
        for m in range(weights.shape[1]):
            weights[j, m] += face.sum[j, m]
    return reached


def climb(
    block: Block,
    members: np.ndarray,
    shared: Any,
    rows: object,
    params: object,
    goal: float,
    steps: int,
    room: int,
    idle: Callable[[], None],
) -> int:
    """Go up the dual over the free pairs of row and class (see ``conjugate_gradients.climb``), ``room`` at most; the
    number of steps."""

    def face() -> Face | None:
        n_rows = min(members.size, room // 2)
        found, edges, classes = (np.empty(n, np.int64) for n in (n_rows, n_rows + 1, room))
        n = find(block, members, rows, params, found, edges, classes)
        if n <= 0:
            return None
        a, b, c, d, e, f = (np.empty(edges[n]) for _ in range(6))
        return Face(found[:n], edges[: n + 1], classes[: edges[n]], a, b, c, d, e, f, np.empty(shared.weights.shape))

    return go_up(ASCENT, face, block, shared, rows, params, goal, steps, idle)


ASCENT = Ascent(begin, advance, first_end, rise, take, share=0.02, faces=30, further=True)
