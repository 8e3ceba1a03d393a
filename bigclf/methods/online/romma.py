"""ROMMA, the relaxed online maximum margin algorithm (Li and Long, MLJ 2002).

All that is kept of the rows seen is one half space, w.w_t >= ||w_t||^2. On a mistake, m = y w.x <= 0 (aggressive: on a
margin m < 1), the weights become the shortest that lie in it and have y w.x >= 1:

    w <- c w + d x,   c = (||x||^2 ||w||^2 - m) / D,   d = y ||w||^2 (1 - m) / D,   D = ||x||^2 ||w||^2 - (w.x)^2

and, where that is in the half space already (m >= ||x||^2 ||w||^2, as at w = 0), w <- y x / ||x||^2. A row that lies
along w on the wrong side asks for what cannot be had (D = 0): it changes nothing. Of rows that some u with y u.x >= 1
separates, w.w <= ||u||^2 and the mistakes are at most (max ||x|| ||u||)^2.

w = scale * weights, so that a step costs the row's non-zeros. ||w||^2 is kept by its own recursion, whose rounding
errors grow by up to (||x||^2 ||w||^2 / D)^2 a step: before they matter it is measured. Where no vector separates the
rows ||w|| grows without end: then w is counted in a larger unit, and ``target`` is what of it is left of 1.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from bigclf.compiled.jit import axpy, dot_ahead, kernel
from bigclf.maths.block import Counts
from bigclf.maths.mixing import MEASURED
from bigclf.methods.common import BINARY
from bigclf.methods.method import Method, by_shares, online

UNIT = 2.0**30  # the larger unit, and the limit of the scale; powers of 2 change no bits
ALONG = 1e-9  # D is a difference of numbers that agree so far: noise
GROWTH = 1e5  # of rounding errors, until ||w||^2 is measured


class Shared(NamedTuple):
    """weights : [feature + 1], the last one the bias; scale : float64 [1]; square : float64 [1], ||w||^2; target :
    float64 [1], the margin asked for; growth : float64 [1], of the errors of ``square`` since it was measured."""

    weights: np.ndarray
    scale: np.ndarray
    square: np.ndarray
    target: np.ndarray
    growth: np.ndarray


class Params(NamedTuple):
    """bias : value of the constant feature (1.0 or 0.0)."""

    bias: float


def begin(n_features: int, dtype: object, settings: object) -> Shared:
    return Shared(np.zeros(n_features + 1, dtype), np.ones(1), np.zeros(1), np.ones(1), np.ones(1))  # type: ignore[call-overload]


@kernel
def measure(weights, scale, square, growth):  # type: ignore[no-untyped-def]
    """The scale into the weights, and ||w||^2 anew."""
    total = np.float64(0)
    for j in range(weights.size):
        weights[j] = scale[0] * weights[j]
        total += np.float64(weights[j]) * np.float64(weights[j])
    scale[0], square[0], growth[0] = 1.0, total, 1.0


def romma(aggressive: bool):  # type: ignore[no-untyped-def]
    """Kernel of one pass over the rows of ``order``."""

    @kernel
    def update(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
        weights, scale, square, target, growth = (
            shared.weights,
            shared.scale,
            shared.square,
            shared.target,
            shared.growth,
        )
        last = weights.size - 1
        mistakes, updates, loss = 0, 0, np.float64(0)
        for k in range(order.size):
            i = order[k]
            y = block.labels[i]
            m = y * scale[0] * (dot_ahead(block, order, k, weights) + params.bias * weights[last])
            mistakes += m <= 0
            limit = target[0] if aggressive else 0.0
            loss += max(0.0, limit - m)
            norm = block.norms[i] + params.bias * params.bias
            if norm == 0 or m > limit or (m == limit and limit > 0):
                continue
            product = norm * square[0]
            if target[0] * m >= product:  # the row alone
                weights[:] = 0
                scale[0] = target[0] / norm
                step = y
                square[0] = target[0] * scale[0]
                growth[0] = 1.0
            else:
                D = product - m * m
                if ALONG * product >= D:
                    continue
                c = (product - target[0] * m) / D
                d = square[0] * (target[0] - m) / D  # times y
                scale[0] *= c
                step = y * d / scale[0]
                square[0] = c * square[0] + d * target[0]
                growth[0] *= (product / D) ** 2
            axpy(step, block, i, weights)
            weights[last] += params.bias * step
            updates += 1
            while square[0] > UNIT * UNIT:
                square[0] /= UNIT * UNIT
                scale[0] /= UNIT
                target[0] /= UNIT
            if growth[0] > GROWTH or scale[0] > UNIT or scale[0] < 1 / UNIT:
                measure(weights, scale, square, growth)
        return Counts(order.size, mistakes, updates, loss, 0.0)

    return update


def finish(shared: Shared, params: Params) -> None:
    """The scale into the weights, and ||w||^2 anew."""
    measure(shared.weights, shared.scale, shared.square, shared.growth)


def weights(shared: Shared, params: Params) -> np.ndarray:
    """w [feature + 1]"""
    return np.asarray(shared.scale[0] * shared.weights, shared.weights.dtype)


def begin_with(shared: Shared, weights: np.ndarray, params: Params) -> None:
    """Begin with the weights of a model."""
    shared.weights[:] = weights
    finish(shared, params)


# Methods

_kernel = functools.cache(romma)


def _romma(name: str, title: str, when: str, aggressive: bool) -> Method:
    return online(
        name=name,
        title=title,
        paper="Li and Long, MLJ 2002",
        formula=f"{when}:  w <- c w + d x, the shortest with w.w_t >= ||w_t||^2 and y w.x >= 1",
        shared=begin,
        bind=lambda settings: Params(settings["bias"]),
        update=lambda loss: _kernel(aggressive),
        weights=weights,
        place=begin_with,
        finish=finish,
        mixings=by_shares(MEASURED),
        **BINARY,
    )


METHODS = (
    _romma("romma", "ROMMA, relaxed online maximum margin", "y w.x <= 0", False),
    _romma("aggressive_romma", "aggressive ROMMA", "y w.x < 1", True),
)
