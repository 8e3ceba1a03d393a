"""Losses of the margin m = y w.x, each with what the dual solvers and certificates need of it.

A loss is a compile-time constant: a kernel factory catches its code (a plain integer, which numba's disk cache can
key) and the branches below fold away. To add a loss: its code, its line in ``LOSSES``, a branch in each function.

With C_i the row's weight in  P(w) = 1/2 ||w||^2 + sum_i C_i loss(y_i w.x_i)  the dual of a row is maximised over
0 <= alpha_i <= U_i (Hsieh et al., ICML 2008; `algorithms` of LIBLINEAR):

=============  =================  ==============  ==========  ======================
loss           value              D_ii            U_i         C_i loss*(-alpha_i/C_i)
=============  =================  ==============  ==========  ======================
hinge          max(0, 1-m)        0               C_i         -alpha_i
squared_hinge  max(0, 1-m)^2      1 / (2 C_i)     infinity    alpha_i^2/(4C_i) - alpha_i
=============  =================  ==============  ==========  ======================
"""

from __future__ import annotations

import numpy as np

from bigclf.jit import inlined

HINGE, SQUARED_HINGE = 0, 1
LOSSES = {"hinge": HINGE, "squared_hinge": SQUARED_HINGE}
BOXED = ("hinge",)  # rows get stuck at both ends of a finite box: few keep moving, and a working set can hold them


@inlined
def loss_value(loss, m):  # type: ignore[no-untyped-def]
    """loss(m) >= 0"""
    slack = max(0.0, 1.0 - m)
    return slack if loss == HINGE else slack * slack


@inlined
def dual_diagonal(loss, c):  # type: ignore[no-untyped-def]
    """D_ii: what the loss adds to the curvature of the row's dual coordinate."""
    return 0.0 if loss == HINGE else 0.5 / c


@inlined
def dual_upper(loss, c):  # type: ignore[no-untyped-def]
    """U_i, the upper end of the dual coordinate's box."""
    return c if loss == HINGE else np.inf


@inlined
def dual_value(loss, alpha, c):  # type: ignore[no-untyped-def]
    """The row's term of the dual objective: -C_i loss*(-alpha_i / C_i)."""
    return alpha if loss == HINGE else alpha - 0.25 * alpha * alpha / c
