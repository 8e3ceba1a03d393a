"""Penalties of the weights, each with what a gradient method needs of it.

Like a loss, a penalty is a compile-time constant of a kernel's factory. To add one: its code, its line in
``PENALTIES``, a branch in each function.

=======  ===================  =======================================  ================================================
penalty  value                k steps that it takes alone, at rate r   minimiser of s w + d penalty(w) + h/2 w^2
=======  ===================  =======================================  ================================================
l2       ||w||^2 / 2          w (1 + r)^-k                             -s / (h + d)
l1       ||w||_1              sign(w) max(0, |w| - k r)                -sign(s) max(0, |s| - d) / h
=======  ===================  =======================================  ================================================

The elastic net, rho ||w||_1 + (1 - rho) ||w||^2 / 2, is for methods that go over columns (``proximal_newton.py``).
"""

from __future__ import annotations

import math

import numpy as np

from bigclf.compiled.jit import inlined, kernel

L2, L1, ELASTIC_NET = range(3)
PENALTIES = {"l2": L2, "l1": L1, "elastic_net": ELASTIC_NET}


@inlined
def paid(penalty, w, rate, k):  # type: ignore[no-untyped-def]
    """w after k proximal steps of the penalty alone, each at ``rate`` (Duchi and Singer, 2009)."""
    if penalty == L2:
        return w / (1.0 + rate) if k == 1.0 else w * decay(k, rate)
    return truncated(w, k * rate)


@inlined
def decay(k, r):  # type: ignore[no-untyped-def]
    """(1 + r)^-k; of small numbers by as many terms as the last bit needs, which is five times faster."""
    u = k * (r * (1.0 - r * (1.0 / 2 - r * (1.0 / 3 - r / 4))) if r < 1e-4 else math.log1p(r))
    if u > 0.03:
        return math.exp(-u)
    return 1.0 - u * (1.0 - u / 2 * (1.0 - u / 3 * (1.0 - u / 4 * (1.0 - u / 5 * (1.0 - u / 6 * (1.0 - u / 7))))))


@inlined
def dual_averaged(penalty, s, dues, h):  # type: ignore[no-untyped-def]
    """The w that minimises  s w + dues penalty(w) + h/2 w^2."""
    if penalty == L2:
        return -s / (h + dues)
    return -truncated(s, dues) / h


@inlined
def truncated(w, by):  # type: ignore[no-untyped-def]
    """sign(w) max(0, |w| - by)"""
    return w - min(max(w, -by), by)


@kernel
def truncate_all(weights, paid, due):  # type: ignore[no-untyped-def]
    """Take from every weight what it owes: due - paid[j]."""
    for j in range(paid.size):
        weights[j] = truncated(np.float64(weights[j]), due - paid[j])
