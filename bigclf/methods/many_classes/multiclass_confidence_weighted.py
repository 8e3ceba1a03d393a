"""Confidence-weighted learners of K classes (Crammer, Dredze, Kulesza, EMNLP 2009), and AROW of K classes.

Each class has a Gaussian over its weights, with mean mu_k and a diagonal covariance Sigma_k. A row of class y is to
score higher for y than for another class k: with g_k the row at the weights of y and its negative at those of k, that
is a row of the binary learner over the weights of all classes, with

    m_k = (mu_y - mu_k).x,    v_k = x' (Sigma_y + Sigma_k) x,

and its step (alpha, c) is that of ``confidence_weighted.closed_form``:

    mu_y <- mu_y + alpha Sigma_y x,    mu_k <- mu_k - alpha Sigma_k x,    1/s <- 1/s + c x^2  in both.

Of the K - 1 classes that are not y, a row is learned against the ``rivals`` that score best:

==========  ==========================================================================================================
one         the best
all         one after the other, the best first (the order is that before the row), each with the m_k and v_k that the
            steps before it left
parallel    each from the m_k and v_k before the row; of the n steps and changes of precision the means, (1 / n) sum_k
==========  ==========================================================================================================

AROW (Crammer, Kulesza, Dredze, Machine Learning 2013) takes the best rival. The variances have the floor of the binary
methods; the deviation form depends neither on their first value nor on positive factors of the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled import large_pages
from bigclf.compiled.jit import dot, entry, kernel, prefetch_ahead
from bigclf.maths.block import Counts
from bigclf.methods.common import NATIVE
from bigclf.methods.many_classes.multiclass import Room, best_other, next_other, others, room, scores_of
from bigclf.methods.method import Param, choice
from bigclf.methods.online import confidence_weighted as cw
from bigclf.methods.online.confidence_weighted import ETA, PHI, A, Diagonal, R, closed_form, gaussian, lack, move

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


ONE, ALL, PARALLEL = CONSTRAINTS = ("one", "all", "parallel")


class Params(NamedTuple):
    """phi, C, r, floor, bias : as of ``confidence_weighted.Params``; rivals : how many classes a row is learned
    against; parallel : whether from the same state; room : of a kernel's own."""

    phi: float
    C: float
    r: float
    floor: float
    bias: float
    rivals: int
    parallel: bool
    room: Room


def diagonal_state(n_features: int, dtype: DTypeLike, settings: dict[str, Any]) -> Diagonal:
    """``weights`` [feature + 1, class, 2], of each weight the mean and the variance side by side."""
    weights = large_pages.zeros((n_features + 1, settings["n_classes"], 2), dtype)
    weights[..., 1] = settings.get("a", 1.0)
    return Diagonal(weights)


def bind(settings: dict[str, Any]) -> Params:
    """``constraints`` : one of CONSTRAINTS (none: "one"); ``k`` : of "all" and "parallel" how many (none: all).

    Raises
    ------
    ValueError : ``k`` is given where there is one rival.
    """
    constraints, k, most = settings.get("constraints", ONE), settings.get("k"), settings["n_classes"] - 1
    if constraints == ONE and k is not None:
        raise ValueError("k has no effect with constraints='one': it says how many 'all' and 'parallel' take")
    rivals = 1 if constraints == ONE else min(k or most, most)
    return Params(*cw.bind(settings), rivals, constraints == PARALLEL, room(settings))


@kernel
def variance_of(block, i, variances, bias):  # type: ignore[no-untyped-def]
    """sum_j s_j x_j^2, accumulated in float64 in the order of the entries, the bias last."""
    total = np.float64(0)
    for p in range(block.indptr[i], block.indptr[i + 1]):
        x = entry(block, i, p)
        total += np.float64(variances[block.indices[p]]) * (x * x)
    return total + bias * bias * variances[variances.size - 1]


@kernel
def move_class(block, i, weights, k, step, c, v, params):  # type: ignore[no-untyped-def]
    """mu_k += step Sigma_k x, then the variances of class k shrink: compiled once for all rules."""
    move(cw.OFF_PRECISION, block, i, block.indptr[i], weights[:, k], step, c, v, params)


def diagonal(rule: int):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order``, for a rule of ``confidence_weighted``. The loss of a row is what
    it lacks against its best rival."""

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        weights, bias, rivals = shared.weights, params.bias, params.rivals
        means, variances = weights[:, :, 0], weights[:, :, 1]
        outputs, classes = params.room.outputs, params.room.classes
        share = 1.0 / rivals if params.parallel else 1.0
        mistakes, updates, total = 0, 0, np.float64(0)
        for k in range(order.size):
            prefetch_ahead(block, order, k)
            i = order[k]
            y = np.int64(block.labels[i])
            scores_of(block, i, means, bias, outputs)
            own = variance_of(block, i, variances[:, y], bias)
            left = others(outputs, y, classes) if rivals > 1 else 0
            step, by, learned = np.float64(0), np.float64(0), False
            for n in range(rivals):
                rival = next_other(outputs, classes, left - n) if rivals > 1 else best_other(outputs, y)
                m = outputs[y] - outputs[rival]
                v = own + variance_of(block, i, variances[:, rival], bias)
                loss = lack(rule, m, v, params.phi)
                if n == 0:
                    mistakes += m < 0 or (m == 0 and rival < y)
                    total += loss
                if loss > 0 and v > 0:
                    alpha, c = closed_form(rule, m, v, params, block.weights[i])
                    move_class(block, i, weights, rival, -share * alpha, share * c, v, params)
                    step += share * alpha
                    by += share * c
                    learned = True
                if step > 0 and (n + 1 == rivals or not params.parallel):
                    move_class(block, i, weights, y, step, by, v, params)
                    step, by = np.float64(0), np.float64(0)
                    if n + 1 < rivals:
                        outputs[y] = dot(block, i, means[:, y]) + bias * means[means.shape[0] - 1, y]
                        own = variance_of(block, i, variances[:, y], bias)
            updates += learned
        return Counts(order.size, mistakes, updates, total, 0.0)

    return update


# Methods

RIVALS = choice(
    "constraints",
    CONSTRAINTS,
    "wrong classes that a row is learned against: the best-scoring; all in turn; all at once, the mean of the steps",
)
HOW_MANY = Param("k", None, 1, 2**31, 'best-scoring classes for "all" and "parallel" (none: all)', integer=True)
GAUSSIANS: dict[str, Any] = dict(shared=diagonal_state, bind=bind, **NATIVE)
PAPER = "Crammer, Dredze, Kulesza, EMNLP 2009"

METHODS = (
    gaussian(
        "cw_mc",
        "multi-class confidence-weighted, standard-deviation form, diagonal by dropping",
        PAPER,
        "m_k < phi sqrt(v_k):  mu_y <- mu_y + a S_y x;  mu_k <- mu_k - a S_k x;  1/s <- 1/s + (a phi / sqrt(u)) x^2",
        lambda: diagonal(cw.DEVIATION),
        params=(ETA, A, RIVALS, HOW_MANY),
        **GAUSSIANS,
    ),
    gaussian(
        "cw_var_mc",
        "multi-class confidence-weighted, variance form, diagonal by dropping",
        PAPER,
        "m_k < phi v_k:  mu_y <- mu_y + g S_y x,  mu_k <- mu_k - g S_k x;  1/s <- 1/s + 2 g phi x^2",
        lambda: diagonal(cw.VARIANCE),
        params=(PHI, A, RIVALS, HOW_MANY),
        **GAUSSIANS,
    ),
    gaussian(
        "arow_mc",
        "multi-class adaptive regularisation of weights, diagonal by dropping in the precision",
        "Crammer, Kulesza, Dredze, Machine Learning 2013",
        "m_k < 1:  mu_y <- mu_y + b S_y x;  mu_k <- mu_k - b S_k x;  1/s <- 1/s + x^2 / r;  b = (1 - m_k) / (v_k + r)",
        lambda: diagonal(cw.ADAPTIVE),
        params=(R,),
        **cw.DIVIDED | GAUSSIANS,
    ),
)
