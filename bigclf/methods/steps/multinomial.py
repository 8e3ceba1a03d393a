"""Multinomial logistic regression by Newton's method: all K classes at once, their probabilities by the softmax.

    min_W  P(W) = 1/2 ||W||^2 + sum_i C_i (log sum_c exp(w_c.x_i) - w_{y_i}.x_i),    p_ic = exp(w_c.x_i) / sum_b ...
    G_c = w_c + sum_i C_i (p_ic - [c = y_i]) x_i
    (H V)_c = v_c + sum_i C_i p_ic (v_c.x_i - sum_b p_ib v_b.x_i) x_i

What lies between two reads is Newton's method of ``bigclf.methods.steps.newton``, on matrices. So is the certificate: a
row's conjugate at A_i = [y_i] - p_i is the negative entropy of p_i, and Fenchel's inequality is an equality there:
C_i loss_i + C_i sum_c p_ic log p_ic = -C_i sum_c A_ic w_c.x_i. The sum V of C_i A_ic x_i is W - G, and
P(W) - D = 1/2 ||W||^2 + 1/2 ||V||^2 - W.V = 1/2 ||G||^2.

A product asks for a row's probabilities again, which takes as long as the product itself and no memory.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import entry, inlined, kernel
from bigclf.maths.block import Counts
from bigclf.maths.losses import Loss
from bigclf.methods.common import COST, NATIVE
from bigclf.methods.many_classes.multiclass import Room, predicted, prefetch_classes, room, scores_of
from bigclf.methods.method import MADE, Way, steps
from bigclf.methods.steps import newton, planes
from bigclf.methods.steps.newton import (
    BY_SUMS,
    FRESH,
    GRADIENT,
    KIND,
    LARGEST,
    LEAST,
    LOSS,
    N_SCALARS,
    PRODUCT,
    ROWS,
    SAMPLE,
    Shared,
    absorb,
)

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


class Params(NamedTuple):
    """C : price of a unit of loss, times the row's weight; bias : value of the constant feature (1.0 or 0.0); free :
    0.0; probabilities, images : room for the classes of a row."""

    C: float
    bias: float
    free: float
    probabilities: Room
    images: Room


def bind(settings: Numbers) -> Params:
    return Params(settings["C"], settings["bias"], 0.0, room(settings), room(settings))


def begin(n_features: int, dtype: DTypeLike, settings: dict[str, Any]) -> Shared:
    """A state at W = 0: the arrays of ``newton.Shared``, float64 [feature + 1, class] where those have features."""
    shape = n_features + 1, settings["n_classes"]
    weights, probe = (np.zeros(shape, dtype) for _ in range(2))
    point, step, residual, total, diagonal = (np.zeros(shape) for _ in range(5))
    others = *(np.zeros(k) for k in (0, 10, N_SCALARS)), *planes.begin(0)
    shared = Shared(weights, probe, point, step, residual, total, diagonal, *others)
    shared.scalars[[KIND, LEAST, FRESH]] = GRADIENT, LARGEST, 1
    return shared


@inlined
def softmax(scores):  # type: ignore[no-untyped-def]
    """Scores become probabilities, in place; log sum exp(scores)."""
    top = scores[0]
    for c in range(1, scores.size):
        top = max(top, scores[c])
    total = np.float64(0)
    for c in range(scores.size):
        scores[c] = math.exp(scores[c] - top)
        total += scores[c]
    for c in range(scores.size):
        scores[c] /= total
    return top + math.log(total)


@inlined
def add_classes(block, i, steps, bias, total):  # type: ignore[no-untyped-def]
    """Column c of ``total`` gets steps[c] x_i, the bias too."""
    for q in range(block.indptr[i], block.indptr[i + 1]):
        j, x = block.indices[q], entry(block, i, q)
        for c in range(steps.size):
            total[j, c] += x * steps[c]
    last = total.shape[0] - 1
    for c in range(steps.size):
        total[last, c] += bias * steps[c]


def sums(loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel of a read: gradient and diagonal, or a product with the Hessian."""

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        total, diagonal, figures, b = shared.total, shared.diagonal, shared.figures, params.bias
        asked, fresh = shared.scalars[KIND] == PRODUCT, shared.scalars[FRESH] != 0
        point = shared.point if asked else total
        p, u, last = params.probabilities.outputs, params.images.outputs, total.shape[0] - 1
        mistakes, loss_sum = 0, np.float64(0)
        for k in range(order.size):
            i = order[k]
            prefetch_classes(block, order, k, total)
            c_i = params.C * block.weights[i]
            if asked:
                scores_of(block, i, point, b, p)
                softmax(p)
                scores_of(block, i, shared.probe, b, u)
                mean = np.float64(0)
                for c in range(p.size):
                    mean += p[c] * u[c]
                for c in range(p.size):
                    u[c] = c_i * p[c] * (u[c] - mean)
                add_classes(block, i, u, b, total)
                continue
            scores_of(block, i, shared.weights, b, p)
            y = np.int64(block.labels[i])
            mistakes += predicted(p) != y
            own = p[y]
            value = max(0.0, softmax(p) - own)
            loss_sum += c_i * value
            if fresh:
                for c in range(p.size):
                    u[c] = c_i * p[c] * (1.0 - p[c])
                for q in range(block.indptr[i], block.indptr[i + 1]):
                    j, x = block.indices[q], entry(block, i, q)
                    for c in range(u.size):
                        diagonal[j, c] += x * x * u[c]
                for c in range(u.size):
                    diagonal[last, c] += b * b * u[c]
            for c in range(p.size):
                u[c] = c_i * p[c]
            u[y] -= c_i
            add_classes(block, i, u, b, total)
        figures[LOSS] += loss_sum
        figures[ROWS] += order.size
        return Counts(order.size, mistakes, 0 if asked else order.size, loss_sum, 0.0)

    return update


def way(shared: Shared) -> Way:
    """As of ``newton``; a product makes the probabilities at the point once more."""
    found = newton.way(shared)
    return found._replace(down=("point", *found.down), rows=MADE) if shared.scalars[KIND] == PRODUCT else found


# Methods

METHODS = (
    steps(
        name="newton_mc",
        title="multinomial logistic regression by Newton's method, certified",
        paper="Lin, Weng, Keerthi, JMLR 2008; Hsia, Zhu, Lin, ACML 2017; Boehning 1992",
        formula="H D = -G by conjugate gradients;  W <- W + t D",
        params=(COST, SAMPLE),
        shared=begin,
        absorb=functools.cache(absorb),
        **BY_SUMS
        | dict(
            losses=("logistic",),
            bias=("feature", "none"),
            rows=None,
            scaled=None,
            bind=bind,
            update=functools.cache(sums),
            kinds=None,
            way=way,
            finish=None,
        )
        | NATIVE,
    ),
)
