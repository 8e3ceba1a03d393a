"""Every method written out in plain numpy from the formulas of its paper: what the laws compare the kernels with.

Nothing here shares code with the package. A row is (x, y, c): dense float64 values with the constant feature last (0
where there is none), the label (-1 or +1, a number, or the code of a class) and the row's weight. A loop takes the rows
and the resolved settings and yields a ``Told`` after each row. ``NAIVE`` has one loop for each method that learns row
by row; ``OBJECTIVES`` names for the others what their answer has to solve.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, linprog, minimize

TINY = 1e-13  # a margin that is 0 but for rounding


class Told(NamedTuple):
    """After a row: the model's weights [feature + 1] or [feature + 1, class]; whether the row was a mistake before it
    was learned from; its loss then; whether it moved the state."""

    weights: np.ndarray
    wrong: bool
    loss: float
    moved: bool


# Losses: value, slope and curvature by (margin or prediction, target, half the tube's width)

REGRESSION = ("squared", "epsilon_insensitive", "squared_epsilon_insensitive")
VALUE = {
    "hinge": lambda m, t, e: max(0.0, 1 - m),
    "squared_hinge": lambda m, t, e: max(0.0, 1 - m) ** 2,
    "logistic": lambda m, t, e: float(np.logaddexp(0, -m)),
    "squared": lambda m, t, e: (t - m) ** 2 / 2,
    "epsilon_insensitive": lambda m, t, e: max(0.0, abs(t - m) - e),
    "squared_epsilon_insensitive": lambda m, t, e: max(0.0, abs(t - m) - e) ** 2,
}
SLOPE = {
    "hinge": lambda m, t, e: -float(m < 1),
    "squared_hinge": lambda m, t, e: -2 * max(0.0, 1 - m),
    "logistic": lambda m, t, e: -math.exp(-np.logaddexp(0, m)),
    "squared": lambda m, t, e: m - t,
    "epsilon_insensitive": lambda m, t, e: float(np.sign(m - t)) * (abs(t - m) > e),
    "squared_epsilon_insensitive": lambda m, t, e: 2 * float(np.sign(m - t)) * max(0.0, abs(t - m) - e),
}
CURVATURE = {
    "hinge": lambda m, t, e: 0.0,
    "squared_hinge": lambda m, t, e: 2.0 * (m < 1),
    "logistic": lambda m, t, e: math.exp(-np.logaddexp(0, m) - np.logaddexp(0, -m)),
    "squared": lambda m, t, e: 1.0,
    "epsilon_insensitive": lambda m, t, e: 0.0,
    "squared_epsilon_insensitive": lambda m, t, e: 2.0 * (abs(t - m) > e),
}


def zeros(rows, *more):
    return np.zeros((rows[0][0].size, *more))


def averaged(loop):
    """The answer is the mean of the weights after every row so far, learned from or not."""

    def averages(rows, s):
        total = 0.0
        for t, told in enumerate(loop(rows, s), 1):
            total = total + told.weights
            yield told._replace(weights=total / t)

    return averages


# The perceptron and what it became


def perceptron(rows, s):
    w = zeros(rows)
    for x, y, c in rows:
        m = y * (w @ x)
        if m <= 0:
            w = w + c * y * x
        yield Told(w, m <= 0, max(0.0, -m), m <= 0)


def second_order_perceptron(diagonal):
    """A is solved anew for every row, which counts in it already."""

    def loop(rows, s):
        A, v = s["a"] * np.eye(rows[0][0].size), zeros(rows)
        for x, y, c in rows:
            outer = np.diag(x * x) if diagonal else np.outer(x, x)
            m = y * (v @ np.linalg.solve(A + outer, x))
            if wrong := m <= TINY:
                v, A = v + c * y * x, A + c * outer
            yield Told(np.linalg.solve(A, v), wrong, max(0.0, -m), wrong)

    return loop


def p_norm(x, p):
    most = np.abs(x).max()
    return most * ((np.abs(x) / most) ** p).sum() ** (1 / p) if most > 0 else 0.0


def gradient(theta, p):
    """Of 1/2 ||theta||_p^2."""
    if not theta.any():
        return np.zeros_like(theta)
    return np.sign(theta) * np.abs(theta) ** (p - 1) / p_norm(theta, p) ** (p - 2)


def p_norm_perceptron(rows, s):
    theta = zeros(rows)
    for x, y, c in rows:
        wrong = y * (gradient(theta, s["p"]) @ x) <= 0
        if wrong:
            theta = theta + c * y * x
        yield Told(gradient(theta, s["p"]), wrong, float(wrong), wrong)


def mira(rows, s):
    w, begun = zeros(rows), False
    for x, y, _ in rows:
        m = y * (w @ x)
        moved = m < 0 or (m == 0 and not begun)
        if moved:
            w, begun = w + (min(1.0, -m / (x @ x)) if begun else 1.0) * y * x, True
        yield Told(w, m <= 0, max(0.0, -m), moved)


def romma(aggressive):
    """The shortest w with w.w_t >= ||w_t||^2 and y w.x >= 1."""

    def loop(rows, s):
        w, limit = zeros(rows), float(aggressive)
        for x, y, _ in rows:
            m, q = y * (w @ x), (x @ x) * (w @ w)
            moved = m < limit or (m <= 0 and not aggressive)
            if moved and m >= q:
                w = y * x / (x @ x)
            elif moved:
                w = ((q - m) * w + (w @ w) * (1 - m) * y * x) / (q - m * m)
            yield Told(w, m <= 0, max(0.0, limit - m), moved)

    return loop


def dynamic_margin_perceptron(rows, s):
    w, t = zeros(rows), 0.0
    for x, y, c in rows:
        m, wanted = y * (w @ x), (1 - s["eps"]) * (w @ w) / t if t else 0.0
        if m <= wanted:
            w, t = w + c * y * x, t + c
        yield Told(w, m <= 0, max(0.0, wanted - m), m <= wanted)


def passive_aggressive(step):
    """step : (loss, ||x||^2, C) -> tau."""

    def loop(rows, s):
        w, regression = zeros(rows), s["loss"] in REGRESSION
        for x, y, c in rows:
            p = w @ x
            loss = max(0.0, abs(y - p) - s["epsilon"]) if regression else max(0.0, 1 - y * p)
            way = np.sign(y - p) if regression else y
            if loss > 0:
                w = w + step(loss, x @ x, s.get("C", 1.0) * c) * way * x
            yield Told(w, loss > 0 if regression else y * p <= 0, c * loss if regression else loss, loss > 0)

    return loop


PA = {
    "pa": lambda loss, n, C: loss / n,
    "pa1": lambda loss, n, C: min(C, loss / n),
    "pa2": lambda loss, n, C: loss / (n + 1 / (2 * C)),
}


# Gaussians: a step is (alpha, c) of  mu <- mu + alpha y Sigma x,  Sigma^-1 <- Sigma^-1 + c x x'


def variance_step(m, v, phi, C, r):
    g = (-(1 + 2 * phi * m) + math.sqrt((1 + 2 * phi * m) ** 2 - 8 * phi * (m - phi * v))) / (4 * phi * v)
    return g, 2 * g * phi


def precision_of(alpha, v, phi):
    root_u = (-alpha * v * phi + math.sqrt((alpha * v * phi) ** 2 + 4 * v)) / 2
    return alpha * phi / root_u


def deviation_step(m, v, phi, C, r):
    psi, xi = 1 + phi**2 / 2, 1 + phi**2
    alpha = (-m * psi + math.sqrt(m**2 * phi**4 / 4 + v * phi**2 * xi)) / (v * xi)
    return alpha, precision_of(alpha, v, phi)


def soft_step(m, v, phi, C, r):
    alpha = min(C, deviation_step(m, v, phi, C, r)[0])
    return alpha, precision_of(alpha, v, phi)


def squared_soft_step(m, v, phi, C, r):
    n = v + 1 / (2 * C)
    g = phi * math.sqrt((phi * m * v) ** 2 + 4 * n * v * (n + v * phi**2))
    alpha = (-(2 * m * n + phi**2 * m * v) + g) / (2 * (n**2 + n * v * phi**2))
    return alpha, precision_of(alpha, v, phi)


def adaptive_step(m, v, phi, C, r):
    return (1 - m) / (v + r), 1 / r


def herding_step(m, v, phi, C, r):
    return (1 - m) / (v + 1 / C), 2 * C + C**2 * v


def spread(variances, x, c):
    """u(c), the variance of the margin after a step of a diagonal."""
    return (x * x * variances / (1 + c * variances * x * x)).sum()


def exact_variance_step(variances, x, m, phi):
    """The root g of  m + g v = phi u(2 g phi)."""
    v = spread(variances, x, 0)
    g = brentq(lambda g: m + g * v - phi * spread(variances, x, 2 * g * phi), 0, (phi * v - m) / v, xtol=1e-15)
    return g, 2 * g * phi


def exact_deviation_step(variances, x, m, phi):
    """The root c of  m + c sqrt(u(c)) v / phi = phi sqrt(u(c))."""
    v = spread(variances, x, 0)
    high = phi * (phi - m / math.sqrt(v)) / v
    while m + (high * v / phi - phi) * math.sqrt(spread(variances, x, high)) < 0:
        high *= 2
    c = brentq(lambda c: m + (c * v / phi - phi) * math.sqrt(spread(variances, x, c)), 0, high, xtol=1e-15)
    return c * math.sqrt(spread(variances, x, c)) / phi, c


def lacking(rule, m, v, phi):
    """What a row lacks of what the rule asks for."""
    if rule in (adaptive_step, herding_step):
        return max(0.0, 1 - m)
    return max(0.0, phi * (v if rule in (variance_step, exact_variance_step) else math.sqrt(v)) - m)


def quantile(s):
    return NormalDist().inv_cdf(s["eta"]) if "eta" in s else s.get("phi", 1.0)


def kept(matrix, keep):
    """What is kept of a covariance: all, the diagonal, or that of which the precision has a diagonal."""
    if keep == "full":
        return matrix
    if keep == "covariance":
        return np.diag(np.diag(matrix))
    return np.diag(1 / np.diag(np.linalg.inv(matrix)))


def confidence_weighted(rule, keep="precision"):
    exact = rule in (exact_variance_step, exact_deviation_step)

    def loop(rows, s):
        mu, S, phi = zeros(rows), s.get("a", 1.0) * np.eye(rows[0][0].size), quantile(s)
        for x, y, c in rows:
            m, v = y * (mu @ x), x @ S @ x
            loss = lacking(rule, m, v, phi)
            if loss > 0:
                if exact:
                    alpha, by = rule(np.diag(S), x, m, phi)
                else:
                    alpha, by = rule(m, v, phi, s.get("C", 1.0) * c, s.get("r", 1.0) / c)
                mu = mu + alpha * y * (S @ x)
                S = kept(S - by / (1 + by * v) * np.outer(S @ x, S @ x), keep)
            yield Told(mu, m <= 0, loss, loss > 0)

    return loop


def narow(diagonal):
    """The author's recursion (F. Orabona, DOGMA, narow_train.m); a row's weight divides r."""

    def loop(rows, s):
        theta, K = zeros(rows), np.eye(rows[0][0].size)
        for x, y, c in rows:
            chi, f = x @ K @ x, x @ K @ theta
            r = chi / (s["b"] * chi - 1) / c if s["b"] * chi > 1 else math.inf
            lack = max(0.0, 1 - y * f * (r / (chi + r) if r < math.inf else 1.0))
            if lack > 0:
                theta = theta + y * x
                if r < math.inf:
                    K = K - np.outer(K @ x, K @ x) / (r + chi)
                    K = np.diag(np.diag(K)) if diagonal else K
            yield Told(K @ theta, y * f <= 0, lack, lack > 0)

    return loop


# Multiplied weights and large margins in other norms


def scaled(rows):
    """X before each row: 1, or the largest value so far, without the constant feature."""
    largest = 1.0
    for x, *_ in rows:
        largest = max(largest, np.abs(x[:-1]).max())
        yield largest


def winnow(rows, s):
    theta, before = zeros(rows), 1.0
    there = np.append(np.ones(theta.size - 1), s["bias"])
    mirror = float(s["signs"] == "both")

    def weights():
        up, down = there * np.exp(theta), mirror * there * np.exp(-theta)
        return (up - down) / (up + down).sum()

    for (x, y, c), X in zip(rows, scaled(rows), strict=True):
        theta, before = theta * before / X, X
        wrong = y * (weights() @ x) <= TINY
        if wrong:
            theta = theta + s["eta"] * c * y * x / X
        yield Told(weights(), wrong, float(wrong), wrong)


def winnow2(rows, s):
    """The answer is in units of its longest entry; the threshold is minus the last one."""
    theta, before, limit = zeros(rows), 1.0, s["threshold"] or float(rows[0][0].size - 1)
    for (x, y, c), X in zip(rows, scaled(rows), strict=True):
        theta, before = theta * before / X, X
        wrong = y * (np.exp(theta) @ x / X - limit) <= 0
        if wrong:
            theta = theta + math.log(s["alpha"]) * c * y * x / X
        w = np.exp(theta) / X
        w[-1] = s["bias"] * w[-1] - limit
        yield Told(w / np.abs(w).max(), wrong, float(wrong), wrong)


def alma(rows, s):
    theta, k, p = zeros(rows), 1, s["p"] or max(2.0, 2 * math.log(rows[0][0].size - 1))
    for x, y, _ in rows:
        unit = x / p_norm(x, p)
        m = y * (gradient(theta, p) @ unit)
        wanted = (1 - s["alpha"]) * (s["B"] or math.sqrt(8) / s["alpha"]) * math.sqrt((p - 1) / k)
        if m <= wanted:
            theta = theta + s["rate"] / math.sqrt((p - 1) * k) * y * unit
            theta, k = theta / max(1, p_norm(theta, p)), k + 1
        yield Told(gradient(theta, p), m <= 0, max(0.0, wanted - m), m <= wanted)


class Points:
    """The last row of each class that was learned from, and the point that a search goes towards."""

    def __init__(self, free):
        self.free, self.held = free, {}

    def hold(self, x, y):
        """z, once there is one."""
        self.held = {**self.held, y: x} if self.free else {1: y * x, -1: -y * x}
        return (self.held[1] - self.held[-1]) / 2 if len(self.held) == 2 else None

    def bias(self, w):
        return -w @ (self.held[1] + self.held[-1]) / 2 if self.free else 0.0


def lowest(slope):
    """The s in [0, 1] at which a convex function with this slope is least."""
    if slope(0.0) >= 0:
        return 0.0
    return 1.0 if slope(1.0) <= 0 else brentq(slope, 0, 1, xtol=1e-16, rtol=1e-15)


def pumma(rows, s):
    free, n = bool(s["free_bias"]), rows[0][0].size - 1
    rows = [(x * (1 - free * (np.arange(n + 1) == n)), y, c) for x, y, c in rows]
    delta = s["delta"] if s["p"] else s["delta"] / 2
    p = s["p"] or max(2.0, math.log(n) / math.log((1 - s["delta"] / 2) / (1 - s["delta"])))
    u, points, w, b = None, Points(free), zeros(rows), 0.0
    for x, y, _ in rows:
        m = y * (w @ x + b)
        z = points.hold(x, y) if m < 1 - delta else None
        if z is not None:
            to = u if u is not None else z
            t = lowest(lambda t, z=z, to=to: gradient((1 - t) * to + t * z, p) @ (z - to))
            u = (1 - t) * to + t * z
            w = gradient(u, p) / p_norm(u, p) ** 2
            b = points.bias(w)
        yield Told(w + np.eye(n + 1)[n] * b, m <= 0, max(0.0, 1 - m), z is not None)


def free_energy(v, eta, there, mirror):
    """F = eta ln sum exp(v / eta) over the features and their mirror images, and p (p+ - p-)."""
    t = np.concatenate([v[there], -v[there]]) / eta if mirror else v[there] / eta
    F, p = eta * np.logaddexp.reduce(t), np.zeros(v.size)
    q = np.exp(t - np.logaddexp.reduce(t))
    p[there] = q[: there.sum()] - q[there.sum() :] if mirror else q
    return F, p


def memma(rows, s):
    """The potential form: v goes to the point of least F on the way to z."""
    free, mirror, n = bool(s["free_bias"]), s["signs"] == "both", rows[0][0].size
    there = np.append(np.ones(n - 1, bool), bool(s["bias"]) and not free)
    points, v, p, b, F = Points(free), None, np.zeros(n), 0.0, 0.0
    rows = [(x * there, y, c) for x, y, c in rows]
    for (x, y, _), X in zip(rows, scaled(rows), strict=True):
        eta = s["eps"] * X / (s["c"] * math.log(there.sum() * (1 + mirror)))
        if v is not None:
            F, p = free_energy(v, eta, there, mirror)
        m = y * (p @ x + b)
        lack = F - s["eps"] * X - m
        z = points.hold(x, y) if lack > 0 or v is None else None
        if z is not None:
            to = v if v is not None else z

            def slope(t, z=z, to=to, eta=eta):
                return free_energy((1 - t) * to + t * z, eta, there, mirror)[1] @ (z - to)

            t = lowest(slope)
            v = (1 - t) * to + t * z
            F, p = free_energy(v, eta, there, mirror)
            b = points.bias(p)
        yield Told(p + np.eye(n)[n - 1] * b, m <= 0, max(0.0, lack), z is not None)


# All classes at once


def scores_of(W, x):
    """W' x, each class added up alike, so that equal weights have equal scores."""
    return (x[:, None] * W).sum(axis=0)


def rival_of(scores, y):
    """The best-scoring class but y, of several the smallest."""
    return int(np.argmax(np.where(np.arange(scores.size) == y, -np.inf, scores)))


def multiclass_perceptron(rows, s):
    W = zeros(rows, s["n_classes"])
    for x, y, c in rows:
        scores = scores_of(W, x)
        rival = rival_of(scores, y)
        m, fault = scores[y] - scores[rival], [rival]
        if m <= 0:
            if s["against"] == "uniform":
                fault = [k for k in range(scores.size) if k != y and scores[k] >= scores[y]]
            W = W.copy()
            W[:, y] += c * x
            W[:, fault] -= c * x[:, None] / len(fault)
        yield Told(W, np.argmax(scores) != y, max(0.0, -m), m <= 0)


def support_taus(g, slack, N, C):
    """tau [class] for g_k = what each constraint lacks, by sorting: Matsushima et al. 2010, and a simplex of size C."""
    order = np.argsort(-g, kind="stable")
    for s in range(1, g.size + 1):
        total = g[order[:s]].sum()
        if slack == "pa2":
            threshold = total / ((s + 1) * N + s / (2 * C)) * (N + 1 / (2 * C))
        else:
            threshold = total / (s + 1)
            if slack == "pa1" and threshold / N > C:
                threshold = (total - C * N) / s
        if s == g.size or g[order[s]] <= threshold:
            return np.maximum(0.0, g - threshold) / N
    raise AssertionError("no support")


def multiclass_passive_aggressive(slack):
    def loop(rows, s):
        W = zeros(rows, s["n_classes"])
        for x, y, c in rows:
            scores, N, C = scores_of(W, x), x @ x, s.get("C", 1.0) * c
            rival = rival_of(scores, y)
            others = [rival] if s["constraints"] == "one" else [k for k in range(scores.size) if k != y]
            loss = max(0.0, 1 - scores[y] + scores[rival])
            if loss > 0:
                if s["constraints"] == "one":
                    tau = {"pa": loss / (2 * N), "pa1": min(C, loss / (2 * N)), "pa2": loss / (2 * N + 1 / (2 * C))}
                    tau = np.array([tau[slack]])
                else:
                    tau = support_taus(1 - scores[y] + scores[others], slack, N, C)
                W = W.copy()
                W[:, y] += tau.sum() * x
                W[:, others] -= np.outer(x, tau)
            yield Told(W, np.argmax(scores) != y, loss, loss > 0)

    return loop


def multiclass_mira(rows, s):
    """Crammer and Singer: least change with margin 0, a step of 1 at most; the first row whole."""
    W, begun = zeros(rows, s["n_classes"]), False
    for x, y, _ in rows:
        scores = scores_of(W, x)
        others = [k for k in range(scores.size) if k != y]
        lack = scores[rival_of(scores, y)] - scores[y]
        moved = lack > 0 or (lack == 0 and not begun)
        if moved:
            tau = support_taus(scores[others] - scores[y], "pa1", x @ x, 1.0) if begun else None
            tau = np.full(len(others), 1 / len(others)) if tau is None else tau
            W, begun = W.copy(), True
            W[:, y] += tau.sum() * x
            W[:, others] -= np.outer(x, tau)
        yield Told(W, np.argmax(scores) != y, max(0.0, lack), moved)


def multiclass_confidence_weighted(rule):
    def loop(rows, s):
        W, phi, K = zeros(rows, s["n_classes"]), quantile(s), s["n_classes"]
        S = np.full(W.shape, s.get("a", 1.0))
        kind = s.get("constraints", "one")
        n = 1 if kind == "one" else min(s["k"] or K - 1, K - 1)
        for x, y, c in rows:
            scores, first, moved = scores_of(W, x), None, False
            rivals = sorted((k for k in range(K) if k != y), key=lambda k, scores=scores: (-scores[k], k))[:n]
            before, changes = (W, S), []
            for k in rivals:
                W0, S0 = before if kind == "parallel" else (W, S)
                m, v = scores_of(W0, x)[y] - scores_of(W0, x)[k], x**2 @ (S0[:, y] + S0[:, k])
                loss = lacking(rule, m, v, phi)
                first = loss if first is None else first
                if loss == 0:
                    continue
                alpha, by = rule(m, v, phi, 1.0, s.get("r", 1.0) / c)
                moved, step, shrink = True, np.zeros_like(W), np.zeros_like(W)
                step[:, y], step[:, k] = alpha * S0[:, y] * x, -alpha * S0[:, k] * x
                shrink[:, y] = shrink[:, k] = by * x**2
                if kind == "parallel":
                    changes.append((step / n, shrink / n))
                else:
                    W, S = W + step, 1 / (1 / S + shrink)
            for step, shrink in changes:
                W, S = W + step, 1 / (1 / S + shrink)
            yield Told(W, np.argmax(scores) != y, first, moved)

    return loop


def support_class_confidence_weighted(keep):
    """A and the support classes by the closed form of the paper; ``exact``: by roots."""

    def closed(L, v, s, K, Q):
        B = (s + 1) * K * v + s * Q**2 * v
        D = B**2 - (s * Q**2 * v) ** 2
        return (-K * B * L + s * K * Q * math.sqrt(Q**2 * v**2 * L**2 + 2 * v * D)) / D

    def of_form(low, x, S, K, Q):
        """(A, c, u), by the first s of the sorted margins, as many as are below their threshold."""
        v = x @ S @ x
        for s in range(1, low.size + 1):
            A = closed(low[:s].sum(), v, s, K, Q)
            u = ((-math.sqrt(2) * Q * A * v + math.sqrt(2 * (Q * A * v) ** 2 + 4 * K**2 * v)) / (2 * K)) ** 2
            if s == low.size or low[s] >= Q * math.sqrt(2 * u) - A * v:
                return A, math.sqrt(2) * Q * A / (K * math.sqrt(u)), u
        raise AssertionError("no support")

    def of_roots(low, x, S, K, Q):
        """c at which the multipliers that the constraints ask for add up to A."""
        variances, v = np.diag(S), x @ S @ x

        def excess(c):
            u = spread(variances, x, c)
            A = c * K * math.sqrt(u) / (math.sqrt(2) * Q)
            return np.maximum(0, (Q * math.sqrt(2 * u) - low) / v - A).sum() - A

        high = 1.0
        while excess(high) > 0:
            high *= 2
        c = brentq(excess, 0, high, xtol=1e-15)
        u = spread(variances, x, c)
        return c * K * math.sqrt(u) / (math.sqrt(2) * Q), c, u

    def loop(rows, s):
        K, Q = s["n_classes"], quantile(s)
        W, S = zeros(rows, K), s["a"] * np.eye(rows[0][0].size)
        for x, y, _ in rows:
            scores, v = scores_of(W, x), x @ S @ x
            others = np.delete(np.arange(K), y)
            margins = scores[y] - scores[others]
            loss = max(0.0, Q * math.sqrt(2 * v) - margins.min())
            if loss > 0:
                A, c, u = (of_roots if keep == "exact" else of_form)(np.sort(margins), x, S, K, Q)
                W = W.copy()
                W[:, others] -= np.outer(S @ x, np.maximum(0, (Q * math.sqrt(2 * u) - margins) / v - A))
                W[:, y] += A * (S @ x)
                S = kept(S - c / (1 + c * v) * np.outer(S @ x, S @ x), "full" if keep == "full" else "precision")
            yield Told(W, np.argmax(scores) != y, loss, loss > 0)

    return loop


# Gradients: ``held`` is 0 for a weight that is not regularised, else 1


def truncate(w, by):
    return np.sign(w) * np.maximum(0, np.abs(w) - by)


def held_of(rows, s):
    return np.append(np.ones(rows[0][0].size - 1), 1.0 - s.get("free_bias", 0.0))


def judged(w, x, y, s):
    """(sign, margin or prediction, value and slope of the loss, whether it is a mistake)."""
    regression, e = s["loss"] in REGRESSION, s.get("epsilon", 0.0)
    sign = 1.0 if regression else y
    m = sign * (w @ x)
    value = VALUE[s["loss"]](m, y, e)
    return sign, m, value, SLOPE[s["loss"]](m, y, e), value > 0 if regression else m <= 0


def limited(loss, rate, x, m, y, e):
    """The rate at which the row's own loss is least, where it would be passed."""
    if loss == "epsilon_insensitive":
        return min(rate, max(0.0, abs(y - m) - e) / (x @ x))
    bend = {"squared_hinge": 2.0, "squared": 1.0}.get(loss, 0.0)
    return min(rate, 1 / (bend * (x @ x))) if bend else rate


def sgd(rows, s):
    w, held, lam = zeros(rows), held_of(rows, s), s["lam"]
    for t, (x, y, c) in enumerate(rows, 1):
        eta = s["eta0"] / (1 + lam * s["eta0"] * t)
        sign, m, value, g, wrong = judged(w, x, y, s)
        step = -limited(s["loss"], c * eta, x, m, y, s.get("epsilon", 0.0)) * g * sign * x
        w = (1 - eta * lam * held) * w + step if s["penalty"] == "l2" else truncate(w + step, eta * lam * held)
        yield Told(w, wrong, c * value, g != 0)


def asgd(rows, s):
    total, n = 0.0, 0
    for t, told in enumerate(sgd(rows, s | {"penalty": "l2"}), 1):
        if t > s["start"]:
            total, n = total + told.weights, n + 1
        yield told._replace(weights=total / n) if n else told


def pegasos(rows, s):
    w, lam = zeros(rows), s["lam"]
    for t, first in enumerate(range(0, len(rows), s["batch"]), 1):
        some, step, told = rows[first : first + s["batch"]], zeros(rows), []
        for x, y, c in some:
            sign, _, value, g, wrong = judged(w, x, y, s)
            step -= c * g * sign * x / len(some)
            told.append((wrong, c * value, g != 0))
        w = (1 - 1 / t) * w + step / (lam * t)
        if s["projection"] == "on" and lam * (w @ w) > 1:
            w = w / np.sqrt(lam * (w @ w))
        for one in told:
            yield Told(w, *one)


def adagrad(rows, s):
    w, squares, eta = zeros(rows), zeros(rows), s["eta"]
    held = held_of(rows, s)
    for x, y, c in rows:
        sign, _, value, slant, wrong = judged(w, x, y, s)
        g = c * slant * sign * x
        squares = squares + g**2
        h = s["delta"] + np.sqrt(squares)
        w = w - eta * g / h
        rate = eta * s["lam"] * held / h
        w = w / (1 + rate) if s["penalty"] == "l2" else truncate(w, rate)
        yield Told(w, wrong, c * value, slant != 0)


def adagrad_rda(rows, s):
    w, sums, squares, eta = zeros(rows), zeros(rows), zeros(rows), s["eta"]
    held = held_of(rows, s)
    for t, (x, y, c) in enumerate(rows, 1):
        sign, _, value, slant, wrong = judged(w, x, y, s)
        g = c * slant * sign * x
        sums, squares = sums + g, squares + g**2
        h, dues = s["delta"] + np.sqrt(squares), s["lam"] * t * held
        w = -eta * sums / (h + eta * dues) if s["penalty"] == "l2" else -eta / h * truncate(sums, dues)
        yield Told(w, wrong, c * value, slant != 0)


def sgd_newton(rows, s):
    w, d, held = zeros(rows), np.full(rows[0][0].size, 1 / s["eta0"]), held_of(rows, s)
    for x, y, c in rows:
        d = d + s["lam"] * held
        w = (1 - s["lam"] * held / d) * w
        sign, m, value, slant, wrong = judged(w, x, y, s)
        bend = c * CURVATURE[s["loss"]](m, y, 0.0)
        if slant != 0:
            w = w - c * slant * sign * np.linalg.solve(np.diag(d) + bend * np.outer(x, x), x)
            d = d + bend * x**2
        yield Told(w, wrong, c * value, slant != 0)


def ftrl(rows, s):
    z, n, w, held, alpha = zeros(rows), zeros(rows), zeros(rows), held_of(rows, s), s["alpha"]
    for x, y, c in rows:
        sign, _, value, slant, wrong = judged(w, x, y, s)
        g = c * slant * sign * x
        sigma = (np.sqrt(n + g**2) - np.sqrt(n)) / alpha
        z, n = z + g - sigma * w, n + g**2
        w = -truncate(z, s["l1"] * held) / ((s["beta"] + np.sqrt(n)) / alpha + s["l2"] * held)
        yield Told(w, wrong, c * value, slant != 0)


NAIVE = {
    "perceptron": perceptron,
    "averaged_perceptron": averaged(perceptron),
    "voted_perceptron": perceptron,  # its last vector; the votes have a test of their own
    "sop": second_order_perceptron(diagonal=True),
    "sop_full": second_order_perceptron(diagonal=False),
    "pnorm_perceptron": p_norm_perceptron,
    "mira": mira,
    "romma": romma(aggressive=False),
    "aggressive_romma": romma(aggressive=True),
    "pdm": dynamic_margin_perceptron,
    **{name: passive_aggressive(step) for name, step in PA.items()},
    **{f"averaged_{name}": averaged(passive_aggressive(step)) for name, step in PA.items()},
    "cw_var": confidence_weighted(variance_step),
    "cw_var_exact": confidence_weighted(exact_variance_step),
    "cw_var_full": confidence_weighted(variance_step, "full"),
    "cw": confidence_weighted(deviation_step),
    "cw_exact": confidence_weighted(exact_deviation_step),
    "cw_full": confidence_weighted(deviation_step, "full"),
    "scw1": confidence_weighted(soft_step),
    "scw2": confidence_weighted(squared_soft_step),
    "arow": confidence_weighted(adaptive_step),
    "arow_var": confidence_weighted(adaptive_step, "covariance"),
    "arow_full": confidence_weighted(adaptive_step, "full"),
    "narow": narow(diagonal=True),
    "narow_full": narow(diagonal=False),
    "nherd": confidence_weighted(herding_step),
    "perceptron_mc": multiclass_perceptron,
    "averaged_perceptron_mc": averaged(multiclass_perceptron),
    **{f"{name}_mc": multiclass_passive_aggressive(name) for name in PA},
    **{f"averaged_{name}_mc": averaged(multiclass_passive_aggressive(name)) for name in PA},
    "mira_mc": multiclass_mira,
    "cw_mc": multiclass_confidence_weighted(deviation_step),
    "cw_var_mc": multiclass_confidence_weighted(variance_step),
    "arow_mc": multiclass_confidence_weighted(adaptive_step),
    "sccw": support_class_confidence_weighted("precision"),
    "sccw_exact": support_class_confidence_weighted("exact"),
    "sccw_full": support_class_confidence_weighted("full"),
    "sgd": sgd,
    "asgd": asgd,
    "pegasos": pegasos,
    "adagrad": adagrad,
    "adagrad_rda": adagrad_rda,
    "sgd_newton": sgd_newton,
    "ftrl": ftrl,
    "winnow": winnow,
    "winnow2": winnow2,
    "alma": alma,
    "pumma": pumma,
    "memma": memma,
    "memma_p": memma,  # the same steps, by another recursion
}


# What the others solve: each says how far an answer [feature + 1] or [feature + 1, class] is from solving it


def parts(rows):
    return (np.array(part) for part in zip(*rows, strict=True))


def primal(rows, s, w):
    """1/2 ||w||^2 + sum C_i loss, of a weight that is not regularised its loss alone."""
    regression, e = s["loss"] in REGRESSION, s.get("epsilon", 0.0)
    lost = sum(s["C"] * c * VALUE[s["loss"]](w @ x if regression else y * (w @ x), y, e) for x, y, c in rows)
    return 0.5 * (held_of(rows, s) * w) @ w + lost


def slope_of(rows, s, w):
    """The gradient of the losses, and the sum of its terms' sizes, by which it is judged."""
    regression, e, g, size = s["loss"] in REGRESSION, s.get("epsilon", 0.0), np.zeros_like(w), 0.0
    for x, y, c in rows:
        sign = 1.0 if regression else y
        g = g + s["C"] * c * SLOPE[s["loss"]](sign * (w @ x), y, e) * sign * x
        size += s["C"] * c * np.abs(x).max()
    return g, size


def not_stationary(rows, s, w):
    """The largest entry of the gradient of 1/2 ||w||^2 + sum C_i loss."""
    g, size = slope_of(rows, s, w)
    return np.abs(held_of(rows, s) * w + g).max() / size


def not_stationary_l1(rows, s, w):
    """... of  rho ||w||_1 + (1 - rho) / 2 ||w||^2 + sum C_i loss: of a weight of 0 what its slope has beyond rho."""
    g, size = slope_of(rows, s, w)
    rho = 1.0 if s["penalty"] == "l1" else s["l1_ratio"]
    held = held_of(rows, s)
    g = g + (1 - rho) * held * w
    beyond = np.where(w == 0, np.maximum(0, np.abs(g) - rho * held), np.abs(g + rho * held * np.sign(w)))
    return beyond.max() / size


def programme(n_weights, prices, limits, at_least, start):
    """The least 1/2 ||w||^2 + prices.xi with limits (w, xi) >= at_least and xi >= 0, by SLSQP."""

    def value(z):
        return 0.5 * z[:n_weights] @ z[:n_weights] + prices @ z[n_weights:]

    return minimize(
        value, start, jac=lambda z: np.concatenate([z[:n_weights], prices]), method="SLSQP",
        bounds=[(None, None)] * n_weights + [(0, None)] * prices.size,
        constraints={"type": "ineq", "fun": lambda z: limits @ z - at_least, "jac": lambda z: limits},
        options={"ftol": 1e-14, "maxiter": 1000},
    ).fun  # fmt: skip


def above_the_programme(rows, s, w):
    """How much of the least objective, by SLSQP with a slack for each row, the answer's is above it."""
    x, y, c = parts(rows)
    e, slack = s.get("epsilon", 0.0), np.eye(len(y))
    if s["loss"] in REGRESSION:
        limits, least = np.block([[x, slack], [-x, slack]]), np.concatenate([y - e, -y - e])
        lost = np.maximum(0, np.abs(y) - e)
    else:
        limits, least, lost = np.hstack([y[:, None] * x, slack]), np.ones(len(y)), np.ones(len(y))
    start = np.concatenate([np.zeros(x.shape[1]), lost])
    return abs(primal(rows, s, w) / programme(x.shape[1], s["C"] * c, limits, least, start) - 1)


def dual_coordinate_descent(rows, s, w):
    corner = s["loss"] in ("hinge", "epsilon_insensitive")
    return (above_the_programme if corner else not_stationary)(rows, s, w)


def multiclass_hinge(rows, s, W):
    """Crammer and Singer: 1/2 ||W||^2 + sum C_i max(0, 1 - (w_y - w_k).x), by SLSQP."""
    K, n = s["n_classes"], rows[0][0].size
    limits, lost, prices = [], 0.0, np.array([s["C"] * c for *_, c in rows])
    for i, (x, y, c) in enumerate(rows):
        scores = scores_of(W, x)
        lost += s["C"] * c * max(0.0, 1 - scores[y] + scores[rival_of(scores, y)])
        for k in range(K):
            if k != y:
                row = np.zeros((n, K))
                row[:, y], row[:, k] = x, -x
                limits.append(np.concatenate([row.ravel(), np.eye(len(rows))[i]]))
    start = np.concatenate([np.zeros(n * K), np.ones(len(rows))])
    best = programme(n * K, prices, np.array(limits), np.ones(len(limits)), start)
    return abs((0.5 * (W * W).sum() + lost) / best - 1)


def multinomial(rows, s, W):
    """The gradient of  1/2 ||W||^2 - sum C_i ln softmax(W' x)_y."""
    g, size = W.copy(), 0.0
    for x, y, c in rows:
        scores = scores_of(W, x)
        p = np.exp(scores - np.logaddexp.reduce(scores))
        g += s["C"] * c * np.outer(x, p - np.eye(p.size)[y])
        size += s["C"] * c * np.abs(x).max()
    return np.abs(g).max() / size


def short_of_the_margin(rows, s, w):
    """How much of what may lack, eps X, the least y (p.x + b) is short of the largest by a linear programme; 0 where
    it has it. ||p||_1 is 1, and the constant feature counts where b is not free."""
    x, y, _ = parts(rows)
    free, n = bool(s["free_bias"]), x.shape[1]
    there = np.arange(n - 1 + (bool(s["bias"]) and not free))
    z = y[:, None] * x[:, there]
    signed = np.hstack([z, -z]) if s["signs"] == "both" else z
    k = signed.shape[1]
    A = np.hstack([-signed, -y[:, None] * free, np.ones((len(y), 1))])
    sums = np.append(np.ones(k), [0, 0])[None]
    best = linprog(np.append(np.zeros(k + 1), -1), A, np.zeros(len(y)), sums, [1],
                   bounds=[(0, None)] * k + [(None, None)] * 2)  # fmt: skip
    assert np.abs(w[there]).sum() <= 1 + 1e-9
    found = (z @ w[there] + y * free * w[-1]).min()
    assert found <= -best.fun + 1e-9
    return max(0.0, -best.fun - found - s["eps"] * max(1.0, np.abs(x[:, :-1]).max()))


OBJECTIVES = {
    "dcd": dual_coordinate_descent,
    "dcd_mc": multiclass_hinge,
    "newton": not_stationary,
    "tron": not_stationary,
    "lbfgs": not_stationary,
    "newton_dense": dual_coordinate_descent,
    "augmented_lagrangian": dual_coordinate_descent,
    "newton_mc": multinomial,
    "newglmnet": not_stationary_l1,
    "cdn": not_stationary_l1,
    "memma_blocks": short_of_the_margin,
}
