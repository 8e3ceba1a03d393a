"""newGLMNET in memory, on columns: Newton's method for penalties with corners, its steps by coordinate descent (Yuan,
Ho, Lin, JMLR 2012; LIBLINEAR's solver of L1-regularised logistic regression).

    min_w  F(w) = l1 ||w||_1 + l2/2 ||w||^2 + L(w),    L(w) = sum_i C_i loss(m_i),  m_i = y_i w.x_i
    step   min_d  l1 (||w+d||_1 - ||w||_1) + g.d + 1/2 d'H d,    g, H of L + l2/2 ||.||^2, H + nu I
    search F(w + t d) - F(w) <= sigma t (g.d + l1 ||w+d||_1 - l1 ||w||_1),  t = 1, 1/2, 1/4, ...

The step is found one coordinate after another; what H d needs of the rows, y_i d.x_i, is kept. Coordinates that are 0
and far from moving are left out, of a step (first level) and of a cycle in it (second level). Between cycles conjugate
gradients go over the weights that are not 0 (``orthant_faces``). For the squared hinge H is made of the generalised
second derivative, 2 C_i where m_i < 1. The squared loss is its own model, so that
steps have the length 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import inner, kernel, random_state, shuffle
from bigclf.maths.losses import Loss
from bigclf.methods.method import Both, in_turn
from bigclf.methods.steps.columns import (
    NU,
    Columns,
    Found,
    Penalty,
    add_bent,
    balanced,
    best_step,
    clear,
    conjugate,
    dual_of,
    dual_sum,
    gradient,
    held_elsewhere,
    look,
    loose,
    penalty_of,
    scale_at,
    scale_of,
    scaled_dual,
    screen,
    sides_of,
    unit_at,
    value_at,
    violation,
)
from bigclf.methods.steps.orthant_faces import climb

SIGMA, HALVINGS = 0.01, 40
LONGEST = 10.0  # most that a step of one coordinate changes a margin by; predictions have no scale of their own
MOST_CYCLES = 20  # of a step: then the model is made anew where it has come to
SETTLED = 2  # cycles of a step before conjugate gradients are tried between them
MOST_IN_ALL = 2000  # ... of a solution: then a read tells how good it is, and it goes on
# A step is good enough where the violations have fallen to a share of what they were: the root of the relative gap, so
# that the last steps gain more and more, but no share beyond these.
ENOUGH = 0.05, 0.4
ROUGH = 0.1  # of the gap over some columns, while others wait
ROUNDING = 1e-14  # of F: smaller differences are not told apart


@functools.cache
def along(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel: sum_i C_i (loss(m_i + t s_i v_i) - loss(m_i))."""
    value = loss.value

    @kernel
    def change(columns, pairs, t):  # type: ignore[no-untyped-def]
        total = np.float64(0)
        for i in range(columns.margins.size):
            moved = t * columns.signs[i] * pairs[i, 1]
            if moved != 0:
                m, label = columns.margins[i], columns.labels[i]
                after, before = value(m + moved, label, 0.0), value(m, label, 0.0)
                total += columns.prices[i] * (after - before)
        return total

    return change


@kernel
def move(columns, pairs, t):  # type: ignore[no-untyped-def]
    """m_i += t s_i v_i"""
    for i in range(columns.margins.size):
        columns.margins[i] += t * columns.signs[i] * pairs[i, 1]


@kernel
def cycle(columns, penalty, pairs, w, sought, slopes, diagonal, order, n, far, longest):  # type: ignore[no-untyped-def]
    """One go of coordinate descent over order[:n] on the quadratic model; pairs[i, 1] holds y_i d.x_i / s_i, and
    ``sought`` w + d. What is far inside at 0 goes to the end of the order; no margin changes by more than ``longest``
    in a step. Gives how many are left, the sum of violations and the largest one."""
    last, total, most = w.size - 1, np.float64(0), np.float64(0)
    k = 0
    while k < n:
        j = order[k]
        constant = j == last
        l1 = 0.0 if constant and penalty.free else penalty.l1
        l2 = 0.0 if constant and penalty.free else penalty.l2
        d = sought[j] - w[j]
        g = add_bent(slopes[j] + (l2 + NU) * d, columns, penalty, pairs, j)
        v = violation(g, sought[j], l1)
        if sought[j] == 0 and abs(g) < l1 - far:
            n -= 1
            order[k], order[n] = order[n], order[k]
            continue
        k += 1
        total += v
        most = max(most, v)
        z = best_step(g, diagonal[j], sought[j], l1)
        reach = longest / (penalty.bias if constant else columns.largest[j])
        z = min(max(z, -reach), reach)
        if z == 0:
            continue
        sought[j] += z
        if constant:
            for i in range(columns.margins.size):
                pairs[i, 1] += z * penalty.bias * unit_at(columns.units, i)
        else:
            z *= scale_at(columns.scales, j)
            for p in range(columns.starts[j], columns.starts[j + 1]):
                pairs[columns.rows[p], 1] += z * value_at(columns.values, p)
    return n, total, most


class Work(NamedTuple):
    """Arrays of a solution. pairs : float64 [row, 2], see ``look``; sought : float64 [column + 1], w + d; slopes,
    diagonal, losses : likewise, see ``gradient``; active : int64 [column + 1]."""

    pairs: np.ndarray
    sought: np.ndarray
    slopes: np.ndarray
    diagonal: np.ndarray
    losses: np.ndarray
    active: np.ndarray


def work_of(columns: Columns, w: np.ndarray, pairs: np.ndarray | None = None) -> Work:
    """Room for a solution that begins at ``w``; ``pairs`` : those of another one, whose are no longer needed."""
    n, m = w.size, columns.margins.size
    pairs = np.empty((m, 2)) if pairs is None else pairs
    slopes, diagonal, losses = np.empty(n), np.empty(n), np.empty(n)
    return Work(pairs, w.copy(), slopes, diagonal, losses, np.empty(n, np.int64))


def solve(
    round_of: Callable[..., tuple[int, int, bool]], loss: Loss, columns: Columns, penalty: Penalty, w: np.ndarray,
    goal: float, salt: int, partial: bool = False, idle: Callable[[], None] = lambda: None,
    late: Callable[[], bool] = lambda: False, both: Both = in_turn, work: Work | None = None,
    far: float = math.inf, scaled: bool = False, known: bool = False,
) -> Found:  # fmt: skip
    """Go on from ``w`` (float64 [column + 1], the bias last; in place, as ``columns.margins``) until the duality gap
    over these columns is at most ``goal`` times the objective.

    round_of : what lowers the objective, ``newton_round`` or one of its form; salt : of the random orders; partial :
    other columns have weights too, which stay as they are: then the gap is to fall to ``ROUGH`` of what it was; idle :
    called after each cycle; late : asked then: it ends where it stands; both : of work that has two parts, which makes
    them in turn or beside each other; work : room for the solution (None: it is made), whose ``losses`` become those of
    the answer; far : how far inside a coordinate is to be that is left out of the first step;
    scaled : with l2 > 0, the gap is also to be that small by ``scaled_dual``; known : whether ``work`` has the gradient
    at ``w`` already.
    """
    work, random = work_of(columns, w) if work is None else work, random_state(6, salt)
    work.sought[:] = w
    before, cycles, climbed, least = math.inf, 0, 0, 0.0
    step = 0
    while True:
        far = far_inside(before, columns) if step else far
        found, total, active = looked_at(
            loss, columns, penalty, w, work, far, partial, both, scaled, known and step == 0
        )
        least = ROUGH * found.gap if step == 0 else least
        found = found._replace(steps=step, cycles=cycles, climbed=climbed)
        if found.gap <= (least if partial else goal * found.primal) or found.violation == 0:
            return found
        if cycles >= MOST_IN_ALL or late():
            return found
        enough = total * float(np.clip(math.sqrt(max(0.0, found.gap) / found.primal), *ENOUGH))
        some = round_of(loss, columns, penalty, w, work, active, found.primal, enough, far, random, idle, late, both)
        cycles, climbed = cycles + some[0], climbed + some[1]
        if not some[2]:
            return found._replace(steps=step + 1, cycles=cycles, climbed=climbed, stuck=True)
        before, step = found.violation, step + 1


def looked_at(
    loss: Loss, columns: Columns, penalty: Penalty, w: np.ndarray, work: Work, far: float, partial: bool, both: Both,
    scaled: bool = False, known: bool = False,
) -> tuple[Found, float, np.ndarray]:  # fmt: skip
    """How good ``w`` is, the sum of violations, and the coordinates that may move; ``known`` : the gradient is."""
    loss_sum, plus, minus = look(loss)(columns, work.pairs)
    if not known:
        gradient(columns, penalty, work.pairs, w, work.slopes, work.diagonal, work.losses, both)
    count, total, most = screen(penalty, w, work.slopes, far, work.active)
    primal = loss_sum + penalty_of(w, penalty)
    sides = sides_of(penalty, plus, minus)
    points, sums = balanced(loss, columns, penalty, work.pairs, w, work.losses, sides, both)
    scale = scale_of(sums, penalty)
    gap = primal - dual_of(dual_sum(loss), columns, sums, penalty, scale, sides)
    if scaled and penalty.l2 > 0:
        held = loose(w, penalty)
        rows, square = primal - gap + conjugate(sums[held], penalty), float(inner(w[held], w[held]))
        top = float(np.max(np.abs(sums[held] + penalty.l2 * w[held]), initial=0.0))
        gap = max(gap, primal - scaled_dual(rows, loss_sum, top, square, penalty))
    if partial:  # what the other weights have of the margins is taken from the rows' terms
        gap += held_elsewhere(columns, points, sums, penalty, w, scale)
    return Found(primal, gap, most, scale, sides, 0, 0, 0, False), total, work.active[:count]


def longest_of(loss: Loss) -> float:
    """The most that a step of one coordinate changes a margin by."""
    return math.inf if loss.regression else LONGEST


def far_inside(before: float, columns: Columns) -> float:
    """How far inside a coordinate at 0 is left out: as the largest violation of the round before it allows."""
    return before / max(1, columns.margins.size)


def newton_round(
    loss: Loss, columns: Columns, penalty: Penalty, w: np.ndarray, work: Work, active: np.ndarray, primal: float,
    enough: float, far: float, random: np.ndarray, idle: Callable[[], None], late: Callable[[], bool],
    both: Both,
) -> tuple[int, int, bool]:  # fmt: skip
    """Minimise the quadratic model over ``active`` until the violations of a cycle sum up to ``enough``, and go along
    the step; the number of cycles, of conjugate gradients' steps between them, and whether floating point sees a gain.
    ``work`` is of ``w``, where the objective is ``primal``; what is ``far`` inside is left out."""
    clear(work.pairs)
    n, climbed, longest = active.size, 0, longest_of(loss)
    for done in range(1, MOST_CYCLES + 1):
        shuffle(active, 0, n, random)
        model = work.pairs, w, work.sought, work.slopes, work.diagonal
        n, total, most = cycle(columns, penalty, *model, active, n, far, longest)
        idle()
        far = far_inside(most, columns)
        if total <= enough and n == active.size or late():
            break
        if total <= enough:
            n, far = active.size, math.inf
        elif done >= SETTLED:
            climbed += climb(columns, penalty, *model, active[:n], enough, late, both)
    moved = _search(along(loss), columns, penalty, work.pairs, w, work.sought, work.slopes, primal)
    return done, climbed, moved


def _search(
    change: Any, columns: Columns, penalty: Penalty, pairs: np.ndarray, w: np.ndarray, sought: np.ndarray,
    slopes: np.ndarray, primal: float,
) -> bool:  # fmt: skip
    """Go along the step as far as it keeps its promise; False where floating point sees no gain."""
    d = sought - w
    free = loose(w, penalty)
    promised = float(inner(slopes, d)) + penalty.l1 * float(np.sum((np.abs(sought) - np.abs(w))[free]))
    t = 1.0
    for _ in range(HALVINGS):
        there = w + t * d
        gained = change(columns, pairs, t) + penalty_of(there, penalty) - penalty_of(w, penalty)
        if gained <= SIGMA * t * promised + ROUNDING * primal:
            move(columns, pairs, t)
            moved = bool(np.any(there != w))
            w[:] = there if t != 1.0 else sought
            sought[:] = w
            return moved
        t *= 0.5
    sought[:] = w
    return False
