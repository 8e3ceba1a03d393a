"""What Newton's method in several groups does at the driver to be certified by fewer products with the Hessian.

Each gradient bounds the sum of the losses from below, by a plane: with L and its gradient a at w, b = L - a.w,

    P(u) >= 1/2 ||u||^2 + max_k (b_k + a_k.u)  >=  sum_k l_k b_k - 1/2 ||sum_k l_k a_k||^2,   l_k >= 0, sum_k l_k = 1

(Teo, Vishwanathan, Smola, Le, JMLR 2010, section 2). One plane alone gives D(a) = P(w) - 1/2 ||g||^2; the best l of the
last ``PLANES`` of them gives more and takes no pass over the rows.

The certificate asks for a small gradient, and conjugate gradients make the model small: their residuals jump. Where the
gap is ``NEAR`` the tolerance, the step is made of theirs so that the residual is small (Schoenauer 1987; Weiss 1994):

    s <- s + t (s_k - s),   r <- r + t (r_k - r),   t minimises ||r||,

until 1/2 ||r||^2 promises the certificate.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from bigclf.compiled.jit import inner

PLANES = 8
NONE = np.empty(0)
STEP, LEFT, FIRST = 0, 1, 2  # rows of ``kept``: the smoothed step, its residual, the first plane's gradient
# Places in the last row of ``book``: the least primal and the largest dual objective so far, planes so far, 1/2 ||r||^2
# at which the step ends (0: by what its products add); the row before has b of the planes, those above their products.
PRIMAL, DUAL, COUNT, AIM = range(4)
NEAR = 30.0  # times the tolerance: a gap from which on a step is to end in a certificate
SHARE = 0.6  # of the gap that is asked for, which the residual may leave
MOST = 14  # products of such a step
CHANGED = 0.1  # as in ``newton``: there a new diagonal costs time, here a vector from each group too


class Planned(Protocol):
    """A state of Newton's method, see ``newton.Shared``."""

    @property
    def weights(self) -> np.ndarray: ...

    @property
    def step(self) -> np.ndarray: ...

    @property
    def residual(self) -> np.ndarray: ...

    @property
    def total(self) -> np.ndarray: ...

    @property
    def kept(self) -> np.ndarray: ...

    @property
    def book(self) -> np.ndarray: ...


def begin(n: int) -> tuple[np.ndarray, np.ndarray]:
    """``kept`` : float64 [2 + plane, feature + 1] and ``book`` : float64 [plane + 2, plane]; both empty for n = 0."""
    if n == 0:
        return np.zeros((0, 0)), np.zeros((0, 0))
    book = np.zeros((PLANES + 2, PLANES))
    book[-1, PRIMAL] = np.finfo(np.float64).max
    return np.zeros((FIRST + PLANES, n)), book


def has_any(shared: object) -> bool:
    """Whether the state has planes: that of Newton's method in several groups."""
    return getattr(shared, "kept", NONE).size > 0


def dot(a: np.ndarray, b: np.ndarray) -> float:
    """Of arrays of any one shape, by no BLAS."""
    return float(inner(a.reshape(-1), b.reshape(-1)))


def best(shared: Planned, value: float, dual: float) -> float:
    """The largest bound that is known, at a point with P = ``value`` whose own bound is ``dual``; the plane is that of
    the losses there."""
    if not (np.isfinite(value) and np.isfinite(dual)):
        return dual
    w = shared.weights.astype(np.float64)
    loss = value - 0.5 * dot(w, w)
    return largest(shared, value, dual, loss - dot(shared.total, w))


def largest(shared: Planned, value: float, dual: float, offset: float) -> float:
    """Likewise with the plane ``offset`` + ``total``.u below the losses: of any dual variables the sum of their phi."""
    if not (np.isfinite(value) and np.isfinite(dual)):
        return dual
    told = shared.book[-1]
    _take(shared, offset)
    count = min(int(told[COUNT]), PLANES)
    found = bound_of(shared.book[:count, :count], shared.book[PLANES, :count])
    told[PRIMAL], told[DUAL] = min(told[PRIMAL], value), max(told[DUAL], dual, found)
    return float(told[DUAL])


def _take(shared: Planned, offset: float) -> None:
    """The plane of ``total`` takes the oldest one's place."""
    told, planes = shared.book[-1], shared.kept[FIRST:]
    place = int(told[COUNT]) % PLANES
    planes[place] = shared.total
    told[COUNT] += 1
    for other in range(min(int(told[COUNT]), PLANES)):
        shared.book[place, other] = shared.book[other, place] = dot(planes[place], planes[other])
    shared.book[PLANES, place] = offset


def bound_of(products: np.ndarray, offsets: np.ndarray) -> float:
    """max over the simplex of l.b - 1/2 l.G l, by steps between two planes; never above it."""
    shares = np.zeros(offsets.size)
    shares[np.argmax(offsets - 0.5 * np.diag(products))] = 1.0
    for _ in range(1000):
        slopes = offsets - products @ shares
        up = int(np.argmax(slopes))
        down = int(np.argmin(np.where(shares > 0, slopes, np.inf)))
        rise = slopes[up] - slopes[down]
        bend = products[up, up] + products[down, down] - 2 * products[up, down]
        if not rise > 1e-9 * abs(offsets @ shares) or not bend > 0:
            break
        t = min(shares[down], rise / bend)
        shares[up] += t
        shares[down] -= t
    return float(offsets @ shares - 0.5 * shares @ products @ shares)


def begin_smoothing(shared: Planned, tol: float) -> None:
    """Conjugate gradients begin: are they to end in a certificate?"""
    told = shared.book[-1]
    gap = told[PRIMAL] - told[DUAL]
    told[AIM] = SHARE * tol * told[PRIMAL] if gap <= NEAR * tol * told[PRIMAL] else 0.0
    if told[AIM]:
        shared.kept[STEP], shared.kept[LEFT] = 0.0, shared.residual


def is_close(shared: Planned) -> bool:
    """Whether the step is to end in a certificate."""
    return bool(shared.book[-1, AIM] > 0)


def smooth(shared: Planned, count: int) -> bool:
    """After a product, the ``count``th: whether the step is long enough; then it is the smoothed one, where that
    promises a certificate."""
    step, left = shared.kept[STEP], shared.kept[LEFT]
    change = shared.residual - left
    square = dot(change, change)
    t = min(1.0, max(0.0, -dot(left, change) / square)) if square > 0 else 0.0
    left += t * change
    step += t * (shared.step - step)
    if 0.5 * dot(left, left) <= shared.book[-1, AIM]:
        shared.step[:] = step
        return True
    return count >= MOST
