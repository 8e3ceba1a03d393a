"""Passive-aggressive learners (Crammer, Dekel, Keshet, Shalev-Shwartz, Singer, JMLR 2006).

With the loss l = max(0, 1 - y w.x), each row moves the weights the least that satisfies it:

    w <- w + tau y x,   tau = l / ||x||^2                    PA    (hard; section 3)
                        tau = min(C, l / ||x||^2)            PA-I  (slack at price C)
                        tau = l / (||x||^2 + 1/(2C))         PA-II (squared slack at price C)

Averaged (as Collins, EMNLP 2002, averages the perceptron), the answer is the mean of w over all rows: steps on noisy
labels, which PA takes in full, go out in it.

A step of PA-II is one of gradient descent on l^2 / 2 at the rate g = 1 / (||x||^2 + 1/(2C)): it brings the weight of a
feature the part g x_j^2 of the way to where the row alone would have it. The sum of these parts is how far the weights
have gone for their rows. In each of K groups a row stands for K rows, so that a copy learns at the price K C, and goes
in its part of the rows about as far as one learner in all of them; what of that is too far, and what falls short where
the rate is near its bound 1 / ||x||^2, mixing makes good by the sums of both rates (``mixing.PULL``).

For regression (section 5) y is the number to predict, l = max(0, |y - w.x| - epsilon), and the step is
tau sign(y - w.x) x.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import at, axpy, dot_ahead, entry, inlined, kernel
from bigclf.maths.block import Counts
from bigclf.maths.losses import Loss
from bigclf.maths.mixing import AVERAGED, MEAN, OF_AVERAGED, OF_WEIGHTS, PULL
from bigclf.methods.common import COST, EPSILON, MEAN_OF_STEPS, WITH_MOMENTUM
from bigclf.methods.method import Method, by_momentum, by_shares, online, zeros
from bigclf.methods.online.perceptron import AVERAGES, averaged_zeros

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from bigclf.methods.method import Numbers


HARD, LINEAR, SQUARED = range(3)


class Shared(NamedTuple):
    """weights : [feature + 1], the last one the bias."""

    weights: np.ndarray


class Pulled(NamedTuple):
    """weights, drift, steps : as in ``perceptron.Averaged``; ways : float64 [feature + 1, 2], sums of g x_j^2 over the
    updates, of g at the price the copy learns at and at C, where copies are mixed by them (else [0, 2])."""

    weights: np.ndarray
    drift: np.ndarray
    steps: np.ndarray
    ways: np.ndarray


class Params(NamedTuple):
    """C : price of slack (PA-I, PA-II), times the row's weight; bias : value of the constant feature (1.0 or 0.0);
    epsilon : half the width of the tube in which a prediction costs nothing; copies : as how many rows a row counts
    (PA-II)."""

    C: float
    bias: float
    epsilon: float
    copies: float = 1.0


@inlined
def add_squares(a, b, block, i, sums):  # type: ignore[no-untyped-def]
    """sums_j += (a, b) x_ij^2"""
    for p in range(block.indptr[i], block.indptr[i + 1]):
        value, j = entry(block, i, p), at(block.indices, p)
        sums[j, 0] += a * value * value
        sums[j, 1] += b * value * value


def passive_aggressive(slack: int, averaged: bool, loss: Loss):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order`` for a kind of slack and one of the two losses; averaged, of a
    state that is ``perceptron.Averaged``, for PA-II ``Pulled``."""
    regression = loss.regression
    pulls = averaged and slack == SQUARED

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        weights = shared.weights
        last = weights.size - 1
        mistakes, updates, total = 0, 0, np.float64(0)
        for k in range(order.size):
            i = order[k]
            if averaged:
                shared.steps[0] += 1
            y = block.labels[i]
            m = dot_ahead(block, order, k, weights) + params.bias * weights[last]
            if regression:
                lack = max(0.0, abs(y - m) - params.epsilon)
                y = np.sign(y - m)
                mistakes += lack > 0
                total += block.weights[i] * lack
            else:
                lack = max(0.0, 1.0 - y * m)
                mistakes += y * m <= 0
                total += lack
            norm = block.norms[i] + params.bias * params.bias
            if lack == 0 or norm == 0:
                continue
            if slack == HARD:
                tau = lack / norm
            elif slack == LINEAR:
                tau = min(params.C * block.weights[i], lack / norm)
            else:
                tau = lack / (norm + 0.5 / (params.copies * params.C * block.weights[i]))
            axpy(tau * y, block, i, weights)
            weights[last] += params.bias * tau * y
            if averaged:
                late = (shared.steps[0] - 1) * tau * y
                axpy(late, block, i, shared.drift)
                shared.drift[last] += params.bias * late
            if pulls and shared.ways.size > 0:
                own, one = tau / lack, 1.0 / (norm + 0.5 / (params.C * block.weights[i]))
                add_squares(own, one, block, i, shared.ways)
                shared.ways[last, 0] += own * params.bias * params.bias
                shared.ways[last, 1] += one * params.bias * params.bias
            updates += 1
        return Counts(order.size, mistakes, updates, total, 0.0)

    return update


# Methods


def pulled_zeros(n_features: int, dtype: DTypeLike, settings: Mapping[str, object]) -> Pulled:
    ways = np.zeros((n_features + 1 if settings.get("mixing") == "pull" else 0, 2))
    return Pulled(*averaged_zeros(n_features, dtype, settings), ways)


def bind(settings: Numbers) -> Params:
    copies = float(settings["groups"]) if settings.get("mixing") == "pull" else 1.0
    return Params(settings.get("C", 1.0), settings["bias"], settings.get("epsilon", 0.0), copies)


# By pull first: with a small C the steps of a copy are short, and a mean of K copies is K times slower than one
# learner (four groups, five epochs, C = 0.03, 2,000,000 rows: 86.8 % right, as in one group; by rows 85.7).
PULLS = AVERAGES | dict(
    shared=pulled_zeros,
    mixings={"pull": PULL, **by_shares(AVERAGED), **by_momentum(AVERAGED, OF_AVERAGED)},
    mixing="as one learner would have gone over the rows of all groups (pull); mean by rows, uniform, by "
    "mistakes or with momentum; averages over all steps",
)
_kernel = functools.cache(passive_aggressive)


def _pa(name: str, title: str, formula: str, slack: int, averaged: bool) -> Method:
    plain: dict[str, Any] = dict(
        shared=functools.partial(zeros, Shared),
        mixings=by_shares(MEAN) | by_momentum(MEAN, OF_WEIGHTS),
        mixing=WITH_MOMENTUM,
    )
    hard = slack == HARD
    return online(
        name=f"averaged_{name}" if averaged else name,
        title=f"averaged {title}" if averaged else title,
        paper="Crammer, Dekel, Keshet, Shalev-Shwartz, Singer, JMLR 2006",
        formula=formula + (MEAN_OF_STEPS if averaged else ""),
        params=(EPSILON,) if hard else (COST, EPSILON),
        losses=("hinge", "epsilon_insensitive"),
        bind=bind,
        update=functools.partial(_kernel, slack, averaged),
        row_weights="binary" if hard else "any",
        weight_meaning="0 or 1 only" if hard else "multiplies C",
        **(plain if not averaged else PULLS if slack == SQUARED else AVERAGES),
    )


_KINDS = (
    ("pa", "passive-aggressive, hard", "w <- w + (l / ||x||^2) y x", HARD),
    ("pa1", "passive-aggressive I", "w <- w + min(C, l / ||x||^2) y x", LINEAR),
    ("pa2", "passive-aggressive II", "w <- w + (l / (||x||^2 + 1/(2C))) y x", SQUARED),
)
METHODS = tuple(_pa(*kind, averaged) for averaged in (False, True) for kind in _KINDS)
