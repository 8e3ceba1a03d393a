"""Conjugate gradients over the weights that are not 0, where coordinate steps stall.

Where no weight changes its sign, the quadratic model of a step of ``proximal_newton`` is smooth: on the face S of the
weights that are not 0, with their signs held, it is

    min_z  -r.z + 1/2 z.H_SS z,    r_j = -(g + H d + l1 sign(w + d))_j

Coordinate steps take about as many cycles as H_SS is badly conditioned, conjugate gradients the square root of that
(Hestenes, Stiefel, 1952; scaled by the diagonal). So cycles find the face, and conjugate gradients go to its lowest
point (Chen, Curtis, Robinson, SIAM J. Optimization 2017; for a box More, Toraldo, SIAM J. Optimization 1991). The way
found is projected into the orthant: what would change its sign becomes 0. It is taken if the model falls by it, else a
quarter of it, until no sign changes: then the model falls for certain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bigclf.compiled.jit import kernel, prefetch
from bigclf.methods.method import Both, in_turn
from bigclf.methods.steps.columns import AHEAD, LARGE, NU, Columns, Penalty, add_bent, scale_at, unit_at, value_at

LEAVING = 10  # weights, and
LEAVING_SHARE = 0.02  # ... of the face: where more would leave it, it is not the right one
MOST = 1000  # steps on a face
PART = 0.5  # of the violations that are enough for the model: those of the face are to sum up to that
FLAT = 1e-14  # curvature of a direction beside that of its coordinates one by one: rounding


class Face(NamedTuple):
    """members : int64 [k], the coordinates of the face; float64 [k]: gradient, residual : r before and after the step;
    step; direction, image : p, H p; float64 [row]: way, what the step adds to ``pairs[:, 1]``; product, what the
    direction adds, and other, a part of that; bent, the product times ``pairs[:, 0]``."""

    members: np.ndarray
    gradient: np.ndarray
    residual: np.ndarray
    step: np.ndarray
    direction: np.ndarray
    image: np.ndarray
    way: np.ndarray
    product: np.ndarray
    other: np.ndarray
    bent: np.ndarray


def climb(
    columns: Columns, penalty: Penalty, pairs: np.ndarray, w: np.ndarray, sought: np.ndarray, slopes: np.ndarray,
    diagonal: np.ndarray, active: np.ndarray, enough: float, late: Callable[[], bool], both: Both = in_turn,
) -> int:  # fmt: skip
    """Lower the model over the ``active`` coordinates that are not 0, in place: ``sought`` and ``pairs``; the number of
    steps. Other arguments are those of ``proximal_newton.cycle``. Sums are of two parts of the face, whether ``both``
    are made beside each other or in turn."""
    face = face_of(active[sought[active] != 0], columns.margins.size)
    n, (middle, entries) = face.members.size, halves(columns, penalty, face.members)
    both = both if entries >= LARGE else in_turn
    given = columns, penalty, pairs, w, sought, slopes, diagonal, face
    rz = sum(both(lambda: begin(*given, 0, middle), lambda: begin(*given, middle, n)))
    leaving, taken, over = LEAVING + LEAVING_SHARE * n, 0, not rz > 0
    while not over and taken < MOST and not late():
        bend, apart = multiply(columns, penalty, pairs, diagonal, face, middle, both)
        taken += 1
        if not bend > FLAT * apart:
            break
        rz, over = advance(columns, penalty, sought, diagonal, face, rz, bend, PART * enough, leaving)
    project(columns, penalty, pairs, sought, face)
    return taken


def face_of(members: np.ndarray, n_rows: int) -> Face:
    n = members.size
    return Face(members, *(np.zeros(n) for _ in range(5)), *(np.zeros(n_rows) for _ in range(4)))


def halves(columns: Columns, penalty: Penalty, members: np.ndarray) -> tuple[int, int]:
    """How many members make up half of the entries, and the number of entries."""
    last = columns.starts.size - 1
    lengths = np.append(np.diff(columns.starts), columns.margins.size if penalty.bias else 0)
    ends = np.cumsum(lengths[np.minimum(members, last)])
    entries = int(ends[-1]) if ends.size else 0
    return int(np.searchsorted(ends, entries / 2)), entries


@kernel
def begin(columns, penalty, pairs, w, sought, slopes, diagonal, face, first, end):  # type: ignore[no-untyped-def]
    """The gradient of members first:end, and the first direction; gives r.z with z = r / diagonal."""
    last, rz = w.size - 1, np.float64(0)
    for k in range(first, end):
        j = face.members[k]
        constant = j == last
        l1 = 0.0 if constant and penalty.free else penalty.l1
        l2 = 0.0 if constant and penalty.free else penalty.l2
        g = slopes[j] + (l2 + NU) * (sought[j] - w[j]) + (l1 if sought[j] > 0 else -l1)
        g = add_bent(g, columns, penalty, pairs, j)
        face.gradient[k], face.residual[k], face.step[k] = -g, -g, 0.0
        face.direction[k] = -g / diagonal[j]
        rz += g * (g / diagonal[j])
    return rz


def multiply(
    columns: Columns, penalty: Penalty, pairs: np.ndarray, diagonal: np.ndarray, face: Face, middle: int, both: Both
) -> tuple[float, float]:
    """image = H p, and product = X p; gives p.H p, and the same without what lies off the diagonal."""
    n = face.members.size
    both(lambda: spread(columns, penalty, face, face.product, 0, middle),
         lambda: spread(columns, penalty, face, face.other, middle, n))  # fmt: skip
    bend(pairs, face)
    one, two = both(lambda: gather(columns, penalty, diagonal, face, 0, middle),
                    lambda: gather(columns, penalty, diagonal, face, middle, n))  # fmt: skip
    return one[0] + two[0], one[1] + two[1]


@kernel
def spread(columns, penalty, face, product, first, end):  # type: ignore[no-untyped-def]
    """product = X p, of members first:end"""
    members, direction, last = face.members, face.direction, columns.starts.size - 1
    product[:] = 0.0
    for k in range(first, end):
        j, p = members[k], direction[k]
        if p == 0:
            continue
        if j == last:
            for i in range(product.size):
                product[i] += p * penalty.bias * unit_at(columns.units, i)
        else:
            p *= scale_at(columns.scales, j)
            for e in range(columns.starts[j], columns.starts[j + 1]):
                if e + AHEAD < columns.rows.size:
                    prefetch(product, np.int64(columns.rows[e + AHEAD]))
                product[columns.rows[e]] += p * value_at(columns.values, e)


@kernel
def bend(pairs, face):  # type: ignore[no-untyped-def]
    """D X p of both parts"""
    for i in range(face.product.size):
        face.product[i] += face.other[i]
        face.bent[i] = pairs[i, 0] * face.product[i]


@kernel
def gather(columns, penalty, diagonal, face, first, end):  # type: ignore[no-untyped-def]
    """image = X' D X p + (l2 + nu) p of members first:end, and what they have of the sums of ``multiply``."""
    members, direction, bent, last = face.members, face.direction, face.bent, columns.starts.size - 1
    total, apart = np.float64(0), np.float64(0)
    for k in range(first, end):
        j, p = members[k], direction[k]
        constant = j == last
        h = ((0.0 if constant and penalty.free else penalty.l2) + NU) * p
        if constant:
            for i in range(bent.size):
                h += penalty.bias * unit_at(columns.units, i) * bent[i]
        else:
            scale = scale_at(columns.scales, j)
            h /= scale
            for e in range(columns.starts[j], columns.starts[j + 1]):
                if e + AHEAD < columns.rows.size:
                    prefetch(bent, np.int64(columns.rows[e + AHEAD]))
                h += value_at(columns.values, e) * bent[columns.rows[e]]
            h *= scale
        face.image[k] = h
        total += p * h
        apart += p * p * diagonal[j]
    return total, apart


@kernel
def advance(columns, penalty, sought, diagonal, face, rz, bent, goal, leaving):  # type: ignore[no-untyped-def]
    """A step along the direction p with p.H p = ``bent``, and the next direction: r.z, and whether this is the way: the
    sum of |r_j| is at its goal, or more than ``leaving`` weights would leave the face."""
    last = columns.starts.size - 1
    t, following, far, out = rz / bent, np.float64(0), np.float64(0), 0
    for k in range(face.members.size):
        j = face.members[k]
        face.step[k] += t * face.direction[k]
        face.residual[k] -= t * face.image[k]
        following += face.residual[k] * (face.residual[k] / diagonal[j])
        far += abs(face.residual[k])
        if not (j == last and penalty.free):
            out += sought[j] * (sought[j] + face.step[k]) <= 0
    for i in range(face.way.size):
        face.way[i] += t * face.product[i]
    turn = following / rz
    for k in range(face.members.size):
        face.direction[k] = face.residual[k] / diagonal[face.members[k]] + turn * face.direction[k]
    return following, far <= goal or out > leaving


@kernel
def project(columns, penalty, pairs, sought, face):  # type: ignore[no-untyped-def]
    """Take the step, or of the step a part that lowers the model; the number of weights that became 0."""
    t, last = 1.0, columns.starts.size - 1
    while True:
        out, gain, square = 0, np.float64(0), np.float64(0)
        for i in range(face.way.size):
            face.product[i] = t * face.way[i]
        for k in range(face.members.size):
            j = face.members[k]
            z = t * face.step[k]
            constant = j == last
            if not (constant and penalty.free) and sought[j] * (sought[j] + z) <= 0:
                out += 1
                short = -sought[j] - z
                if constant:
                    for i in range(face.way.size):
                        face.product[i] += short * penalty.bias * unit_at(columns.units, i)
                else:
                    short *= scale_at(columns.scales, j)
                    for e in range(columns.starts[j], columns.starts[j + 1]):
                        face.product[columns.rows[e]] += short * value_at(columns.values, e)
                z = -sought[j]
            face.direction[k] = z
            gain += face.gradient[k] * z
            square += ((0.0 if constant and penalty.free else penalty.l2) + NU) * z * z
        for i in range(face.way.size):
            square += pairs[i, 0] * face.product[i] * face.product[i]
        if out == 0 or gain > 0.5 * square:
            for k in range(face.members.size):
                j = face.members[k]
                sought[j] = 0.0 if face.direction[k] == -sought[j] else sought[j] + face.direction[k]
            for i in range(face.way.size):
                pairs[i, 1] += face.product[i]
            return out
        t *= 0.25
