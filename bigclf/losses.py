"""Losses of the margin m = y w.x, or of the prediction m = w.x for regression, each with what the dual solvers and
certificates need of it.

A loss is a compile-time constant: a kernel factory catches its code (a plain integer, which numba's disk cache can
key) and the branches below fold away. To add a loss: its code, its line in ``LOSSES``, a branch in each function.

With C_i the row's weight in  P(w) = 1/2 ||w||^2 + sum_i C_i loss(m_i)  a row's dual variable is maximised over an
interval (Hsieh et al., ICML 2008; Yu, Huang, Lin, MLJ 2011; Ho and Lin, JMLR 2012). t is the number to predict and e
half the width of the tube in which a prediction costs nothing; w = sum_i s_i alpha_i x_i with s_i = y_i, or 1 for
regression:

===========================  ===================  ============  ==============  ====================================
loss                         value                D_ii          alpha_i in      -C_i loss*(-alpha_i / C_i)
===========================  ===================  ============  ==============  ====================================
hinge                        max(0, 1-m)          0             [0, C_i]        a
squared_hinge                max(0, 1-m)^2        1 / (2 C_i)   [0, infinity)   a - a^2 / (4 C_i)
logistic                     log(1 + exp(-m))     0             (0, C_i)        C_i H(a / C_i), H the entropy in nats
epsilon_insensitive          max(0, |t-m| - e)    0             [-C_i, C_i]     t a - e |a|
squared_epsilon_insensitive  max(0, |t-m| - e)^2  1 / (2 C_i)   everything      t a - e |a| - a^2 / (4 C_i)
squared                      (t-m)^2 / 2          (for gradient methods only)
===========================  ===================  ============  ==============  ====================================

Gradient methods need a loss's value, its ``slope`` and, where they look at second derivatives, its ``curvature``.
"""

from __future__ import annotations

import math

import numpy as np

from bigclf.jit import inlined

HINGE, SQUARED_HINGE, LOGISTIC, TUBE, SQUARED_TUBE, SQUARED = range(6)
LOSSES = {
    "hinge": HINGE,
    "squared_hinge": SQUARED_HINGE,
    "logistic": LOGISTIC,
    "epsilon_insensitive": TUBE,
    "squared_epsilon_insensitive": SQUARED_TUBE,
    "squared": SQUARED,
}
TUBES = ("epsilon_insensitive", "squared_epsilon_insensitive")
REGRESSION = (*TUBES, "squared")  # labels are numbers to predict
GRADIENT = ("hinge", "squared_hinge", "logistic", "squared", "epsilon_insensitive")  # what gradient methods learn
BOXED = ("hinge", "epsilon_insensitive")  # rows get stuck at the ends of a finite box: few keep moving, and a working
# set can hold them
MOST_STEPS = 100  # of Newton's method for one row; far out each is about 1 long, where sigma is an exponential
LONGEST = 1e30  # gradient that is added to sums of float32, which end at 3e38
NEAR = 1e-4  # for the square of Newton's last step, in units of the root's own scale: what is left is its square again


def is_regression(loss: int) -> bool:
    """Whether the loss compares a prediction with a number, so that labels are numbers and not classes."""
    return loss in (TUBE, SQUARED_TUBE, SQUARED)


@inlined
def loss_value(loss, m, t, e):  # type: ignore[no-untyped-def]
    """loss(m) >= 0"""
    if loss == HINGE:
        return max(0.0, 1.0 - m)
    if loss == SQUARED_HINGE:
        return max(0.0, 1.0 - m) * max(0.0, 1.0 - m)
    if loss == LOGISTIC:
        return max(0.0, -m) + math.log1p(math.exp(-abs(m)))
    if loss == TUBE:
        return max(0.0, abs(t - m) - e)
    if loss == SQUARED:
        return 0.5 * (t - m) * (t - m)
    return max(0.0, abs(t - m) - e) * max(0.0, abs(t - m) - e)


@inlined
def highest_loss(loss, m, slack, t, e):  # type: ignore[no-untyped-def]
    """The largest loss of any margin between m - slack and m + slack."""
    if loss in (HINGE, SQUARED_HINGE, LOGISTIC):
        return loss_value(loss, m - slack, t, e)
    return loss_value(loss, m - slack if m < t else m + slack, t, e)


@inlined
def slope(loss, m, t, e):  # type: ignore[no-untyped-def]
    """d loss / d m; at a corner the one-sided derivative nearer to 0."""
    if loss == HINGE:
        return -1.0 if m < 1.0 else 0.0
    if loss == SQUARED_HINGE:
        return -2.0 * max(0.0, 1.0 - m)
    if loss == LOGISTIC:
        return -sigmoid(-m)
    if loss == SQUARED:
        return m - t
    outside = max(0.0, abs(t - m) - e)
    if loss == TUBE:
        return np.sign(m - t) if outside > 0 else 0.0
    return 2.0 * np.sign(m - t) * outside


@inlined
def curvature(loss, m, t, e):  # type: ignore[no-untyped-def]
    """d^2 loss / d m^2, where there is one."""
    if loss == SQUARED_HINGE:
        return 2.0 if m < 1.0 else 0.0
    if loss == LOGISTIC:
        s = sigmoid(m)
        return s * (1.0 - s)
    if loss == SQUARED:
        return 1.0
    if loss == SQUARED_TUBE:
        return 2.0 if abs(t - m) > e else 0.0
    return 0.0


@inlined
def rate_within(loss, rate, q, value):  # type: ignore[no-untyped-def]
    """The rate, or if that is less the one whose step takes the row's own loss, now ``value``, to its minimum; q =
    ||x||^2. Where the slope has no bound, 1 / (curvature ||x||^2): a longer step makes the next loss larger, and so on
    without end. To the edge of the tube: a longer one is off by as much as the rate, whatever the labels' scale."""
    if loss == SQUARED_HINGE:
        return rate if 2.0 * rate * q <= 1.0 else 0.5 / q
    if loss == SQUARED:
        return rate if rate * q <= 1.0 else 1.0 / q
    if loss == TUBE:
        return rate if rate * q <= value else value / q
    return rate


@inlined
def slope_within(g, q):  # type: ignore[no-untyped-def]
    """The slope g, or where that makes a gradient g x longer than ``LONGEST`` the one that makes it so long; q =
    ||x||^2. Methods that divide by the gradients they have seen come to the same weights, and their sums stay within
    float32."""
    return g if g * g * q <= LONGEST * LONGEST else np.sign(g) * LONGEST / math.sqrt(q)


@inlined
def dual_diagonal(loss, c):  # type: ignore[no-untyped-def]
    """D_ii: what the loss adds to the curvature of the row's dual coordinate."""
    return 0.5 / c if loss in (SQUARED_HINGE, SQUARED_TUBE) else 0.0


@inlined
def dual_upper(loss, c):  # type: ignore[no-untyped-def]
    """The upper end of the dual coordinate's interval."""
    return np.inf if loss in (SQUARED_HINGE, SQUARED_TUBE) else c


@inlined
def dual_value(loss, a, c, t, e):  # type: ignore[no-untyped-def]
    """The row's term of the dual objective: -C_i loss*(-alpha_i / C_i)."""
    if loss == HINGE:
        return a
    if loss == SQUARED_HINGE:
        return a - 0.25 * a * a / c
    if loss == LOGISTIC:
        return c * entropy(a / c)
    if loss == TUBE:
        return t * a - e * abs(a)
    return t * a - e * abs(a) - 0.25 * a * a / c


@inlined
def entropy(p):  # type: ignore[no-untyped-def]
    """-p ln p - (1-p) ln(1-p) >= 0, with 0 ln 0 = 0"""
    if p <= 0.0 or p >= 1.0:
        return 0.0
    return -p * math.log(p) - (1.0 - p) * math.log1p(-p)


@inlined
def sigmoid(u):  # type: ignore[no-untyped-def]
    """1 / (1 + exp(-u)), by the exponential that the loss needs too."""
    e = math.exp(-abs(u))
    return (1.0 if u >= 0 else e) / (1.0 + e)


@inlined
def row_gap(loss, a, m, c, t, e):  # type: ignore[no-untyped-def]
    """The row's own duality gap: C loss(m) + C loss*(-a/C) + a m >= 0.

    For the logistic loss it is C times the divergence of Bernoulli(a/C) from Bernoulli(sigma(-m)); near the optimum,
    where a difference of logarithms would cost most of the step, its bound (p - q)^2 / (q (1 - q)) is returned.
    """
    if loss == LOGISTIC:
        q = sigmoid(-m)
        p, spread = a / c, q * (1.0 - q)
        if (p - q) * (p - q) < 0.25 * spread:
            return c * (p - q) * (p - q) / spread
    return c * loss_value(loss, m, t, e) - dual_value(loss, a, c, t, e) + a * m


@inlined
def best_dual(loss, a, m, q, c, t, e):  # type: ignore[no-untyped-def]
    """The maximiser of the dual along the row's coordinate, from a; q = ||x||^2 and m = s w.x at a.

    hinge, squared hinge   clip(a - (m - 1 + D a) / (q + D))
    logistic               C sigma(u),  u + m + q (C sigma(u) - a) = 0
    epsilon-insensitive    clip(shrink(a - (m - t + D a) / (q + D), e / (q + D)))
    """
    if loss == LOGISTIC:
        return c * logit_root(a, m, q, c)
    d = dual_diagonal(loss, c)
    upper = dual_upper(loss, c)
    if q + d == 0:
        if loss == HINGE:
            return upper
        return upper * np.sign(t) if abs(t) > e else 0.0
    if loss in (HINGE, SQUARED_HINGE):
        return min(max(a - (m - 1.0 + d * a) / (q + d), 0.0), upper)
    free = a - (m - t + d * a) / (q + d)
    shrunk = max(abs(free) - e / (q + d), 0.0)
    return min(shrunk, upper) if free > 0 else -min(shrunk, upper)


@inlined
def logit_root(a, m, q, c):  # type: ignore[no-untyped-def]
    """sigma(u) where u + m + q (c sigma(u) - a) = 0, by Newton's method inside a bracket.

    At the optimum of all rows u = -m, so the search begins there; the slope is at least 1, so the root is no further
    from it than the value there, and it is on this side of logit(a / c), where the other terms vanish. Where that is
    far, the search begins as near to 0 as the bracket allows: from there the steps go one way.
    """
    u = -m
    s = sigmoid(u)
    f = q * (c * s - a)
    other = u - f
    if abs(f) > 1 and 0 < a < c:
        w = math.log(a / (c - a))
        other = w if abs(w - u) < abs(f) else other
    low, high = min(u, other), max(u, other)
    if abs(f) > 1:
        u = min(max(0.0, low), high)
        s = sigmoid(u)
        f = u + m + q * (c * s - a)
    for _ in range(MOST_STEPS):
        following = u - f / (1.0 + q * c * s * (1.0 - s))
        if not (low <= following <= high):
            following = 0.5 * (low + high)
        done = (following - u) * (following - u) * (1.0 + q * c * s * (1.0 - s)) <= NEAR
        u = following
        s = sigmoid(u)
        if done:
            break
        f = u + m + q * (c * s - a)
        if f > 0:
            high = u
        else:
            low = u
    return s


@inlined
def freedom(loss, a, m, c, t, e):  # type: ignore[no-untyped-def]
    """Minus the distance of the margin from where the row, now stuck at an end of its interval, would move again; 0
    where it can move."""
    if loss == LOGISTIC:
        return 0.0
    if loss in (HINGE, SQUARED_HINGE):
        if a <= 0:
            return min(1.0 - m, 0.0)
        return min(m - 1.0, 0.0) if a >= dual_upper(loss, c) else 0.0
    r = abs(t - m) - e
    if a == 0:
        return min(r, 0.0)
    return min(-r, 0.0) if abs(a) >= dual_upper(loss, c) and a * (t - m) > 0 else 0.0
