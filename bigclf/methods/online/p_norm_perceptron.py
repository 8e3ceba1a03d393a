"""The p-norm perceptron (Grove, Littlestone, Schuurmans, MLJ 2001; Gentile, MLJ 2003), for p >= 2.

On a mistake, m = y w.x <= 0:  theta <- theta + y x.   The weights are the gradient of 1/2 ||theta||_p^2,

    w = g(theta),  g_j = sign(theta_j) |theta_j|^{p-1} / ||theta||_p^{p-2}

and with 1/p + 1/q = 1 the same link function of q leads back. Rows that u separates by gamma cause at most
(p-1) max ||x||_p^2 ||u||_q^2 / gamma^2 mistakes. p = 2 is the perceptron; p about 2 ln(features) is near Winnow.

A mistake is known by the sign of w.x, and that by |theta_j|^{p-1} up to any common factor: each row divides by the
largest |theta_j| among its own features, so that nothing overflows, and needs no norm.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from bigclf.compiled.jit import axpy, dot_ahead, entry, kernel, prefetch_ahead, prefetch_weights
from bigclf.maths.block import Counts
from bigclf.methods.method import Param, online, zeros


class Shared(NamedTuple):
    """weights : theta [feature + 1], the last one the bias."""

    weights: np.ndarray


class Params(NamedTuple):
    """p : the norm; bias : value of the constant feature (1.0 or 0.0)."""

    p: float
    bias: float


@kernel
def p_norm_perceptron(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
    """One pass over the rows of ``order``; a row's weight multiplies its step, and a mistake's loss is 1."""
    theta, power = shared.weights, params.p - 1
    last = theta.size - 1
    mistakes = 0
    for k in range(order.size):
        i = order[k]
        y = block.labels[i]
        if power == 1:
            m = y * (dot_ahead(block, order, k, theta) + params.bias * theta[last])
        else:
            prefetch_ahead(block, order, k)
            prefetch_weights(block, order, k, theta)
            most = params.bias * abs(np.float64(theta[last]))
            for p in range(block.indptr[i], block.indptr[i + 1]):
                most = max(most, abs(np.float64(theta[block.indices[p]])))
            m = np.float64(0)
            if most > 0:
                for p in range(block.indptr[i], block.indptr[i + 1]):
                    ratio = theta[block.indices[p]] / most
                    m += np.copysign(abs(ratio) ** power, ratio) * entry(block, i, p)
                ratio = params.bias * theta[last] / most
                m += np.copysign(abs(ratio) ** power, ratio)
            m *= y
        if m <= 0:
            step = block.weights[i] * y
            axpy(step, block, i, theta)
            theta[last] += params.bias * step
            mistakes += 1
    return Counts(order.size, mistakes, mistakes, np.float64(mistakes), 0.0)


def link(theta: np.ndarray, p: float) -> np.ndarray:
    """sign(theta_j) |theta_j|^{p-1} / ||theta||_p^{p-2}, in the type of theta; every power is of a number up to 1."""
    most = np.float64(np.abs(theta).max())
    if p == 2 or most == 0:
        return theta
    ratio = np.abs(theta / most)
    length = (ratio**p).sum() ** ((p - 2) / p)
    return np.asarray(np.copysign(most * ratio ** (p - 1) / length, theta), theta.dtype)


def weights(shared: Shared, params: Params) -> np.ndarray:
    """w = g(theta) [feature + 1]"""
    return link(shared.weights, params.p)


def begin_with(shared: Shared, weights: np.ndarray, params: Params) -> None:
    """Begin with the weights of a model: theta is the link function of q = p / (p-1)."""
    shared.weights[:] = link(weights, params.p / (params.p - 1))


# Methods

METHODS = (
    online(
        name="pnorm_perceptron",
        title="p-norm perceptron",
        paper="Grove, Littlestone, Schuurmans, MLJ 2001; Gentile, MLJ 2003",
        formula="y w.x <= 0:  theta <- theta + y x;  w_j = sign(theta_j) |theta_j|^(p-1) / ||theta||_p^(p-2)",
        params=(Param("p", 4.0, 2.0, 1e6, "the norm: 2 is the perceptron, 2 ln(features) is near Winnow"),),
        shared=functools.partial(zeros, Shared),
        bind=lambda settings: Params(settings["p"], settings["bias"]),
        update=lambda loss: p_norm_perceptron,
        weights=weights,
        place=begin_with,
        mixing="mean of theta by rows, uniform or by mistakes",
        weight_meaning="multiplies the step",
        bounded=False,
    ),
)
