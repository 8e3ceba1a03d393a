"""Losses of the margin m = y w.x, or of the prediction m = w.x for regression: each a record of all that methods need.

A loss is one block below, which ends with its ``Loss``, and its name in ``LOSSES``. The functions of a record are small
helpers (``inlined``): the factory of a kernel unpacks those it needs, and they are pasted into the kernel as if written
there. Which methods have a loss follows from its record, but where a formula is for one loss alone.

With C_i the row's weight in  P(w) = 1/2 ||w||^2 + sum_i C_i loss(m_i)  a row's dual variable is maximised over an
interval (Hsieh et al., ICML 2008; Yu, Huang, Lin, MLJ 2011; Ho and Lin, JMLR 2012). t is the number to predict and e
half the width of the tube in which a prediction costs nothing; w = sum_i s_i alpha_i x_i with s_i = y_i, or 1 for
regression:

===========================  ===================  ============  ==============  ====================================
loss                         value                D_ii          alpha_i in      phi(a) = -C_i loss*(-a / C_i)
===========================  ===================  ============  ==============  ====================================
hinge                        max(0, 1-m)          0             [0, C_i]        a
squared_hinge                max(0, 1-m)^2        1 / (2 C_i)   [0, infinity)   a - a^2 / (4 C_i)
logistic                     log(1 + exp(-m))     0             (0, C_i)        C_i H(a / C_i), H the entropy in nats
squared                      (t-m)^2 / 2          1 / C_i       everything      t a - a^2 / (2 C_i)
epsilon_insensitive          max(0, |t-m| - e)    0             [-C_i, C_i]     t a - e |a|
squared_epsilon_insensitive  max(0, |t-m| - e)^2  1 / (2 C_i)   everything      t a - e |a| - a^2 / (4 C_i)
===========================  ===================  ============  ==============  ====================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import inlined

MOST_STEPS = 100  # of Newton's method for one row; far out each is about 1 long, where sigma is an exponential
LONGEST = 1e30  # gradient that is added to sums of float32, which end at 3e38
NEAR = 1e-4  # for the square of Newton's last step, in units of the root's own scale: what is left is its square again


class Dual(NamedTuple):
    """A row's term phi of the dual objective, and its coordinate alpha; c = C_i, m = s w.x, q = ||x||^2.

    value : (a, c, t, e) -> phi(a).
    lower, upper : (c) -> the ends of alpha's interval.
    diagonal : (c) -> D_ii, what the loss adds to the curvature of the coordinate.
    best : (a, m, q, c, t, e) -> the maximiser of the dual along the coordinate, from a.
    gap : (a, m, c, t, e) -> the row's own duality gap, C loss(m) - phi(a) + a m >= 0.
    freedom : (a, m, c, t, e) -> minus the distance of the margin from where the row, now stuck at an end of its
        interval, would move again; 0 where it can move.
    odds : (m) -> of a unit of C, what has to be summed up for
    shrunk : (lost, along, odds, r) -> a bound from below on the sum of phi(r a), 0 < r < 1, over rows with
        a = -C loss'(m), from their sums of C loss(m), a m and C times ``odds``.
    parabolic : whether phi is, on either side of 0, a parabola  b a - D_ii a^2 / 2  with b = 1, for regression t -+ e.
    """

    value: Callable[..., Any]
    lower: Callable[..., Any]
    upper: Callable[..., Any]
    diagonal: Callable[..., Any]
    best: Callable[..., Any]
    gap: Callable[..., Any]
    freedom: Callable[..., Any]
    odds: Callable[..., Any]
    shrunk: Callable[[float, float, float, float], float]
    parabolic: bool

    @property
    def open(self) -> bool:
        """Whether the interval has no upper end."""
        return math.isinf(plain(self.upper)(1.0))

    @property
    def boxed(self) -> bool:
        """Whether rows get stuck at the ends of a finite box: few keep moving, and a working set can hold them."""
        return self.parabolic and not self.open


class Loss(NamedTuple):
    """A loss, by name.

    regression : whether it compares a prediction with a number, so that labels are numbers and not classes.
    tube : whether e has a part in it.
    value : (m, t, e) -> loss(m) >= 0.
    slope : (m, t, e) -> d loss / d m; at a corner the one-sided derivative nearer to 0.
    curvature : (m, t, e) -> d^2 loss / d m^2, where there is one.
    highest : (m, slack, t, e) -> the largest loss of any margin between m - slack and m + slack.
    steepest, most_curved : the largest |slope| and curvature; infinite where there is none (at a corner).
    rate_within : (rate, q, value) -> the rate, or if that is less the one whose step takes the row's own loss, now
        ``value``, to its minimum; q = ||x||^2. Where the slope has no bound, 1 / (curvature ||x||^2): a longer step
        makes the next loss larger, and so on without end. To the edge of a tube: a longer one is off by as much as the
        rate, whatever the labels' scale. None: gradient methods do not have the loss.
    dual : None: they alone do.
    """

    name: str
    regression: bool
    tube: bool
    value: Callable[..., Any]
    slope: Callable[..., Any]
    curvature: Callable[..., Any]
    highest: Callable[..., Any]
    steepest: float
    most_curved: float
    rate_within: Callable[..., Any] | None
    dual: Dual | None


def plain(helper: object) -> Callable[..., Any]:
    """A helper as Python: called outside a kernel it would be compiled in every process."""
    return getattr(helper, "py_func", helper)  # type: ignore[no-any-return]


def dual_terms(loss: Loss) -> Dual:
    """Of a loss that has a dual."""
    assert loss.dual is not None, loss.name
    return loss.dual


def rate_of(loss: Loss) -> Callable[..., Any]:
    """``rate_within`` of a loss that gradient methods have."""
    assert loss.rate_within is not None, loss.name
    return loss.rate_within


# What several losses share


@inlined
def nothing(m):  # type: ignore[no-untyped-def]
    """No ``odds`` are needed."""
    return 0.0


def at_least(lost: float, along: float, odds: float, r: float) -> float:
    """phi(r a) >= r phi(a), for phi is concave and 0 at 0; phi(a) = C loss(m) + a m at a = -C loss'(m)."""
    return r * (lost + along)


def of_squares(lost: float, along: float, odds: float, r: float) -> float:
    """Of a squared loss exactly, a = 2 sqrt(C) sqrt(C loss): the parabola through 0 and phi(a)."""
    return r * (2 * lost + along) - r * r * lost


@inlined
def zero(c):  # type: ignore[no-untyped-def]
    return 0.0


@inlined
def price(c):  # type: ignore[no-untyped-def]
    return c


@inlined
def minus_price(c):  # type: ignore[no-untyped-def]
    return -c


@inlined
def infinity(c):  # type: ignore[no-untyped-def]
    return np.inf


@inlined
def minus_infinity(c):  # type: ignore[no-untyped-def]
    return -np.inf


@inlined
def of_square(c):  # type: ignore[no-untyped-def]
    """1 / (2 C_i)"""
    return 0.5 / c


@inlined
def any_rate(rate, q, value):  # type: ignore[no-untyped-def]
    """The slope is bounded, and with it the step."""
    return rate


@inlined
def clipped(a, m, q, d, upper):  # type: ignore[no-untyped-def]
    """clip(a - (m - 1 + D a) / (q + D)), the best step of a hinge"""
    if q + d == 0:
        return upper
    return min(max(a - (m - 1.0 + d * a) / (q + d), 0.0), upper)


@inlined
def shrunk_and_clipped(a, m, q, d, upper, t, e):  # type: ignore[no-untyped-def]
    """clip(shrink(a - (m - t + D a) / (q + D), e / (q + D))), the best step of a tube"""
    if q + d == 0:
        return upper * np.sign(t) if abs(t) > e else 0.0
    free = a - (m - t + d * a) / (q + d)
    shrunk = max(abs(free) - e / (q + d), 0.0)
    return min(shrunk, upper) if free > 0 else -min(shrunk, upper)


@inlined
def freedom_of_hinge(a, m, upper):  # type: ignore[no-untyped-def]
    """At 0 the row moves where m < 1, at the upper end where m > 1."""
    if a <= 0:
        return min(1.0 - m, 0.0)
    return min(m - 1.0, 0.0) if a >= upper else 0.0


@inlined
def freedom_of_tube(a, m, upper, t, e):  # type: ignore[no-untyped-def]
    """At 0 the row moves outside the tube, at an end inside it or beyond."""
    r = abs(t - m) - e
    if a == 0:
        return min(r, 0.0)
    return min(-r, 0.0) if abs(a) >= upper and a * (t - m) > 0 else 0.0


@inlined
def slope_within(g, q):  # type: ignore[no-untyped-def]
    """The slope g, or where that makes a gradient g x longer than ``LONGEST`` the one that makes it so long; q =
    ||x||^2. Methods that divide by the gradients they have seen come to the same weights, and their sums stay within
    float32."""
    return g if g * g * q <= LONGEST * LONGEST else np.sign(g) * LONGEST / math.sqrt(q)


# Hinge


@inlined
def hinge(m, t, e):  # type: ignore[no-untyped-def]
    return max(0.0, 1.0 - m)


@inlined
def hinge_slope(m, t, e):  # type: ignore[no-untyped-def]
    return -1.0 if m < 1.0 else 0.0


@inlined
def hinge_curvature(m, t, e):  # type: ignore[no-untyped-def]
    return 0.0


@inlined
def hinge_highest(m, slack, t, e):  # type: ignore[no-untyped-def]
    return hinge(m - slack, t, e)


@inlined
def hinge_dual(a, c, t, e):  # type: ignore[no-untyped-def]
    return a


@inlined
def hinge_best(a, m, q, c, t, e):  # type: ignore[no-untyped-def]
    return clipped(a, m, q, 0.0, c)


@inlined
def hinge_gap(a, m, c, t, e):  # type: ignore[no-untyped-def]
    return c * hinge(m, t, e) - hinge_dual(a, c, t, e) + a * m


@inlined
def hinge_freedom(a, m, c, t, e):  # type: ignore[no-untyped-def]
    return freedom_of_hinge(a, m, c)


HINGE = Loss(
    name="hinge",
    regression=False,
    tube=False,
    value=hinge,
    slope=hinge_slope,
    curvature=hinge_curvature,
    highest=hinge_highest,
    steepest=1.0,
    most_curved=math.inf,
    rate_within=any_rate,
    dual=Dual(
        value=hinge_dual,
        lower=zero,
        upper=price,
        diagonal=zero,
        best=hinge_best,
        gap=hinge_gap,
        freedom=hinge_freedom,
        odds=nothing,
        shrunk=at_least,
        parabolic=True,
    ),
)


# Squared hinge


@inlined
def squared_hinge(m, t, e):  # type: ignore[no-untyped-def]
    return max(0.0, 1.0 - m) * max(0.0, 1.0 - m)


@inlined
def squared_hinge_slope(m, t, e):  # type: ignore[no-untyped-def]
    return -2.0 * max(0.0, 1.0 - m)


@inlined
def squared_hinge_curvature(m, t, e):  # type: ignore[no-untyped-def]
    return 2.0 if m < 1.0 else 0.0


@inlined
def squared_hinge_highest(m, slack, t, e):  # type: ignore[no-untyped-def]
    return squared_hinge(m - slack, t, e)


@inlined
def squared_hinge_rate(rate, q, value):  # type: ignore[no-untyped-def]
    return rate if 2.0 * rate * q <= 1.0 else 0.5 / q


@inlined
def squared_hinge_dual(a, c, t, e):  # type: ignore[no-untyped-def]
    return a - 0.25 * a * a / c


@inlined
def squared_hinge_best(a, m, q, c, t, e):  # type: ignore[no-untyped-def]
    return clipped(a, m, q, of_square(c), np.inf)


@inlined
def squared_hinge_gap(a, m, c, t, e):  # type: ignore[no-untyped-def]
    return c * squared_hinge(m, t, e) - squared_hinge_dual(a, c, t, e) + a * m


@inlined
def squared_hinge_freedom(a, m, c, t, e):  # type: ignore[no-untyped-def]
    return freedom_of_hinge(a, m, np.inf)


SQUARED_HINGE = Loss(
    name="squared_hinge",
    regression=False,
    tube=False,
    value=squared_hinge,
    slope=squared_hinge_slope,
    curvature=squared_hinge_curvature,
    highest=squared_hinge_highest,
    steepest=math.inf,
    most_curved=2.0,
    rate_within=squared_hinge_rate,
    dual=Dual(
        value=squared_hinge_dual,
        lower=zero,
        upper=infinity,
        diagonal=of_square,
        best=squared_hinge_best,
        gap=squared_hinge_gap,
        freedom=squared_hinge_freedom,
        odds=nothing,
        shrunk=of_squares,
        parabolic=True,
    ),
)


# Logistic


@inlined
def logistic(m, t, e):  # type: ignore[no-untyped-def]
    return max(0.0, -m) + math.log1p(math.exp(-abs(m)))


@inlined
def logistic_slope(m, t, e):  # type: ignore[no-untyped-def]
    return -sigmoid(-m)


@inlined
def logistic_curvature(m, t, e):  # type: ignore[no-untyped-def]
    s = sigmoid(m)
    return s * (1.0 - s)


@inlined
def logistic_highest(m, slack, t, e):  # type: ignore[no-untyped-def]
    return logistic(m - slack, t, e)


@inlined
def logistic_dual(a, c, t, e):  # type: ignore[no-untyped-def]
    return c * entropy(a / c)


@inlined
def logistic_best(a, m, q, c, t, e):  # type: ignore[no-untyped-def]
    """C sigma(u),  u + m + q (C sigma(u) - a) = 0"""
    return c * logit_root(a, m, q, c)


@inlined
def logistic_gap(a, m, c, t, e):  # type: ignore[no-untyped-def]
    """C times the divergence of Bernoulli(a/C) from Bernoulli(sigma(-m)); near the optimum, where a difference of
    logarithms would cost most of the step, its bound (p - q)^2 / (q (1 - q))."""
    q = sigmoid(-m)
    p, spread = a / c, q * (1.0 - q)
    if (p - q) * (p - q) < 0.25 * spread:
        return c * (p - q) * (p - q) / spread
    return c * logistic(m, t, e) - logistic_dual(a, c, t, e) + a * m


@inlined
def logistic_freedom(a, m, c, t, e):  # type: ignore[no-untyped-def]
    """The interval is open."""
    return 0.0


@inlined
def logistic_odds(m):  # type: ignore[no-untyped-def]
    """p / (1 - p), p = a / C = sigma(-m)"""
    return math.exp(-m)


def logistic_shrunk(lost: float, along: float, odds: float, r: float) -> float:
    """By Taylor's formula  C loss + r a m - (1 - r)^2 / (2 r) C p / (1 - p)  at least."""
    return lost + r * along - (1 - r) * ((1 - r) / (2 * r) * odds)


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


LOGISTIC = Loss(
    name="logistic",
    regression=False,
    tube=False,
    value=logistic,
    slope=logistic_slope,
    curvature=logistic_curvature,
    highest=logistic_highest,
    steepest=1.0,
    most_curved=0.25,
    rate_within=any_rate,
    dual=Dual(
        value=logistic_dual,
        lower=zero,
        upper=price,
        diagonal=zero,
        best=logistic_best,
        gap=logistic_gap,
        freedom=logistic_freedom,
        odds=logistic_odds,
        shrunk=logistic_shrunk,
        parabolic=False,
    ),
)


# Squared


@inlined
def squared(m, t, e):  # type: ignore[no-untyped-def]
    return 0.5 * (t - m) * (t - m)


@inlined
def squared_slope(m, t, e):  # type: ignore[no-untyped-def]
    return m - t


@inlined
def squared_curvature(m, t, e):  # type: ignore[no-untyped-def]
    return 1.0


@inlined
def squared_highest(m, slack, t, e):  # type: ignore[no-untyped-def]
    return squared(m - slack if m < t else m + slack, t, e)


@inlined
def squared_rate(rate, q, value):  # type: ignore[no-untyped-def]
    return rate if rate * q <= 1.0 else 1.0 / q


@inlined
def of_half_square(c):  # type: ignore[no-untyped-def]
    """1 / C_i"""
    return 1.0 / c


@inlined
def squared_dual(a, c, t, e):  # type: ignore[no-untyped-def]
    return t * a - 0.5 * a * a / c


@inlined
def squared_best(a, m, q, c, t, e):  # type: ignore[no-untyped-def]
    """a - (m - t + a / C) / (q + 1 / C)"""
    return a - (m - t + a / c) / (q + 1.0 / c)


@inlined
def squared_gap(a, m, c, t, e):  # type: ignore[no-untyped-def]
    """(C (t - m) - a)^2 / (2 C)"""
    return 0.5 * (c * (t - m) - a) * (c * (t - m) - a) / c


@inlined
def squared_freedom(a, m, c, t, e):  # type: ignore[no-untyped-def]
    """The interval has no ends."""
    return 0.0


SQUARED = Loss(
    name="squared",
    regression=True,
    tube=False,
    value=squared,
    slope=squared_slope,
    curvature=squared_curvature,
    highest=squared_highest,
    steepest=math.inf,
    most_curved=1.0,
    rate_within=squared_rate,
    dual=Dual(
        value=squared_dual,
        lower=minus_infinity,
        upper=infinity,
        diagonal=of_half_square,
        best=squared_best,
        gap=squared_gap,
        freedom=squared_freedom,
        odds=nothing,
        shrunk=of_squares,
        parabolic=True,
    ),
)


# Epsilon-insensitive


@inlined
def tube(m, t, e):  # type: ignore[no-untyped-def]
    return max(0.0, abs(t - m) - e)


@inlined
def tube_slope(m, t, e):  # type: ignore[no-untyped-def]
    return np.sign(m - t) if tube(m, t, e) > 0 else 0.0


@inlined
def tube_curvature(m, t, e):  # type: ignore[no-untyped-def]
    return 0.0


@inlined
def tube_highest(m, slack, t, e):  # type: ignore[no-untyped-def]
    return tube(m - slack if m < t else m + slack, t, e)


@inlined
def tube_rate(rate, q, value):  # type: ignore[no-untyped-def]
    return rate if rate * q <= value else value / q


@inlined
def tube_dual(a, c, t, e):  # type: ignore[no-untyped-def]
    return t * a - e * abs(a)


@inlined
def tube_best(a, m, q, c, t, e):  # type: ignore[no-untyped-def]
    return shrunk_and_clipped(a, m, q, 0.0, c, t, e)


@inlined
def tube_gap(a, m, c, t, e):  # type: ignore[no-untyped-def]
    return c * tube(m, t, e) - tube_dual(a, c, t, e) + a * m


@inlined
def tube_freedom(a, m, c, t, e):  # type: ignore[no-untyped-def]
    return freedom_of_tube(a, m, c, t, e)


TUBE = Loss(
    name="epsilon_insensitive",
    regression=True,
    tube=True,
    value=tube,
    slope=tube_slope,
    curvature=tube_curvature,
    highest=tube_highest,
    steepest=1.0,
    most_curved=math.inf,
    rate_within=tube_rate,
    dual=Dual(
        value=tube_dual,
        lower=minus_price,
        upper=price,
        diagonal=zero,
        best=tube_best,
        gap=tube_gap,
        freedom=tube_freedom,
        odds=nothing,
        shrunk=at_least,
        parabolic=True,
    ),
)


# Squared epsilon-insensitive


@inlined
def squared_tube(m, t, e):  # type: ignore[no-untyped-def]
    return max(0.0, abs(t - m) - e) * max(0.0, abs(t - m) - e)


@inlined
def squared_tube_slope(m, t, e):  # type: ignore[no-untyped-def]
    return 2.0 * np.sign(m - t) * max(0.0, abs(t - m) - e)


@inlined
def squared_tube_curvature(m, t, e):  # type: ignore[no-untyped-def]
    return 2.0 if abs(t - m) > e else 0.0


@inlined
def squared_tube_highest(m, slack, t, e):  # type: ignore[no-untyped-def]
    return squared_tube(m - slack if m < t else m + slack, t, e)


@inlined
def squared_tube_dual(a, c, t, e):  # type: ignore[no-untyped-def]
    return t * a - e * abs(a) - 0.25 * a * a / c


@inlined
def squared_tube_best(a, m, q, c, t, e):  # type: ignore[no-untyped-def]
    return shrunk_and_clipped(a, m, q, of_square(c), np.inf, t, e)


@inlined
def squared_tube_gap(a, m, c, t, e):  # type: ignore[no-untyped-def]
    return c * squared_tube(m, t, e) - squared_tube_dual(a, c, t, e) + a * m


@inlined
def squared_tube_freedom(a, m, c, t, e):  # type: ignore[no-untyped-def]
    return freedom_of_tube(a, m, np.inf, t, e)


SQUARED_TUBE = Loss(
    name="squared_epsilon_insensitive",
    regression=True,
    tube=True,
    value=squared_tube,
    slope=squared_tube_slope,
    curvature=squared_tube_curvature,
    highest=squared_tube_highest,
    steepest=math.inf,
    most_curved=2.0,
    rate_within=None,
    dual=Dual(
        value=squared_tube_dual,
        lower=minus_infinity,
        upper=infinity,
        diagonal=of_square,
        best=squared_tube_best,
        gap=squared_tube_gap,
        freedom=squared_tube_freedom,
        odds=nothing,
        shrunk=of_squares,
        parabolic=True,
    ),
)


# All of them

LOSSES = {loss.name: loss for loss in (HINGE, SQUARED_HINGE, LOGISTIC, SQUARED, TUBE, SQUARED_TUBE)}


def having(*properties: Callable[[Loss], bool], first: str | None = None, last: str | None = None) -> tuple[str, ...]:
    """Names of the losses with all of these properties, ``first`` before the others and ``last`` behind them."""
    names = [name for name, loss in LOSSES.items() if all(has(loss) for has in properties)]
    return tuple(sorted(names, key=lambda name: (name != first, name == last)))


def is_dual(loss: Loss) -> bool:
    return loss.dual is not None


def is_smooth(loss: Loss) -> bool:
    """Whether the slope has no jumps."""
    return math.isfinite(loss.most_curved)


def is_gradient(loss: Loss) -> bool:
    """Whether gradient methods have it."""
    return loss.rate_within is not None


def is_flat(loss: Loss) -> bool:
    """Whether the slope has a bound."""
    return math.isfinite(loss.steepest)


def is_tubeless(loss: Loss) -> bool:
    """Whether no width of a tube has a part in it."""
    return not loss.tube


TUBES = having(lambda loss: loss.tube)
REGRESSION = (*TUBES, *having(lambda loss: loss.regression and not loss.tube))  # labels are numbers to predict
BOXED = having(lambda loss: loss.dual is not None and loss.dual.boxed)
