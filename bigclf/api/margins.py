"""The largest infinity-norm margin of rows in memory, exactly: linear programmes and their smoothed forms.

For rows x_i with labels y_i = -1 or +1 the margin of (w, b) is min_i y_i (w.x_i + b) / ||w||_1, the least distance of a
row from the hyperplane in the infinity norm. With the weights a distribution p over the features and, where weights may
have either sign, their mirror images -x_j,

    gamma* = max_{p, b} min_i y_i (p.x_i + b)                                     (``infinity_norm_margin``)
           = min_d max_j (sum_i d_i y_i x_i)_j,   d >= 0, sum_i d_i = 1           (with a free b: 1/2 over each class)

is a linear programme. The margin of all rows but some has d_i <= 1/(nu l) (``soft_margin``; Ratsch et al., ERLPBoost:
Warmuth, Glocer, Vishwanathan, ALT 2008), and with entropies the problems become smooth (``entropy_margin``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bigclf.data.arrays import FROM_0, csr_arrays, label_array, not_finite
from bigclf.errors import DataError

if TYPE_CHECKING:
    import scipy.sparse

MOST_STEPS = 500
ONLINE_EPSILON = 1e-9
ROUNDING = 1e-9
LEFT_OUT = 0.1  # share of the rows with which a soft margin is looked for where no weights separate all


@dataclass
class Margin:
    """A hyperplane and how large its margin is.

    Attributes
    ----------
    weights : float64 [feature], w = p+ - p- with ||w||_1 <= 1; bias : b.
    margin : what was maximised, of these weights: min_i y_i (w.x_i + b); for ``soft_margin`` that less the mean slack.
    bound : no weights do better; gap : bound - margin, of ``entropy_margin`` with the entropy.
    rows : float64 [row], d, how much each row has to say (the dual variables), in sum 1.
    separated : whether margin > 0. text : in words.
    soft : of rows that no weights separate, the ``soft_margin`` of a tenth of them or, until one is above 0, of twice
        as many; None where they are separated or none is.
    """

    weights: np.ndarray
    bias: float
    margin: float
    bound: float
    gap: float
    rows: np.ndarray
    text: str = ""
    facts: dict[str, float] = field(default_factory=dict)
    soft: Margin | None = None

    @property
    def separated(self) -> bool:
        return self.margin > 0

    def __str__(self) -> str:
        return self.text

    def decision_function(self, X: object) -> np.ndarray:
        """w.x + b of every row, float64 [row]."""
        scores: np.ndarray = _matrix(X) @ self.weights + self.bias
        return scores


def infinity_norm_margin(X: object, y: object, *, signs: str = "both", bias: str | None = "free") -> Margin:
    """The largest infinity-norm margin, by a linear programme (HiGHS through scipy).

    Parameters
    ----------
    X : [row, feature], dense or sparse; y : [row], two classes, the greater is positive.
    signs : "both" (weights of either sign) or "nonnegative"; bias : "free", "feature" (a constant 1 among the features)
        or None.

    Returns
    -------
    Margin : with margin and bound from primal and dual solution, each computed from its own variables. Rows that no
        weights separate end with a margin of 0 or less, say so, and have their ``soft`` margin.

    Raises
    ------
    ValueError : labels that are not of two classes, not as many as rows, no features.
    DataError : a value or a label that is not finite, with its row.
    """
    problem = _problem(X, y, signs, bias)
    found = _programme(problem, None)
    if not found.separated:
        _soften(found, problem)
    return found


def _soften(found: Margin, problem: _Problem) -> None:
    """Add the soft margin with the least share of rows that has one, of a tenth, two, four ... of them."""
    least, most = _shares(problem)
    nu = min(max(LEFT_OUT, least), most)
    while True:
        soft = _programme(problem, 1 / (nu * problem.labels.size))
        if soft.margin > ROUNDING:
            found.soft = soft
            found.text += f"; with up to {100 * nu:.3g} % of the rows below it there is a {soft.text} (soft_margin)"
            return
        if nu == most:
            return
        nu = min(2 * nu, most)


def soft_margin(X: object, y: object, *, nu: float = 0.1, signs: str = "both", bias: str | None = "free") -> Margin:
    """The largest soft margin: of all rows but a share of at most ``nu``, whose lacks count in the mean.

        max_{p, b, rho, xi >= 0} rho - sum_i xi_i / (nu l)   such that   y_i (p.x_i + b) >= rho - xi_i

    whose dual is that of the hard margin with d_i <= 1/(nu l).

    Parameters
    ----------
    X, y, signs, bias : as in ``infinity_norm_margin``.
    nu : float, share of the rows that may lie below rho.

    Returns
    -------
    Margin : with ``facts`` rho, and in ``below`` how many rows have less.

    Raises
    ------
    ValueError : nu outside 1/l ... 1 (with a free bias twice the share of the smaller class).
    """
    problem = _problem(X, y, signs, bias)
    cap = _cap(problem, nu)
    return _programme(problem, cap)


def entropy_margin(
    X: object, y: object, *, eta: float, nu: float | None = None, signs: str = "both", bias: str | None = "free",
    tol: float = 1e-8,
) -> Margin:  # fmt: skip
    """max gamma + eta H(p), MEMMA's problem over all rows at once, with a certificate; with ``nu`` of the soft margin.

    The dual is  min F(v), v = sum_i d_i y_i x_i, F(v) = eta ln sum_j exp(v_j / eta), over the d of the margin (with
    ``nu`` d_i <= 1/(nu l)), solved by an interior-point method. The gap

        F(v) - (min over such d of  sum_i d_i y_i p.x_i  + eta H(p)),   p = softmax(v / eta),

    is at most ``tol`` in the end (or the text says how large it is).

    Parameters
    ----------
    X, y, signs, bias : as in ``infinity_norm_margin``; nu : None, or as in ``soft_margin``.
    eta : float above 0, price of the entropy.
    tol : float above 0, of the gap.

    Returns
    -------
    Margin : ``margin`` is the margin (or soft margin) of p, not less than the best one minus eta ln(n); ``bound`` is
        F(v), which no margin exceeds.

    Raises
    ------
    ValueError : eta or tol not above 0, or nu out of its bounds.
    """
    if not eta > 0 or not tol > 0:
        raise ValueError(f"eta and tol must be more than 0, not {eta!r} and {tol!r}")
    problem = _problem(X, y, signs, bias)
    return _smooth(problem, eta, 1.0 if nu is None else _cap(problem, nu), tol, nu is not None)


class OnlineProgramme:
    """The learner of Figure 1 of Ohta, Hatano, Takeda: the linear programme of all rows so far, solved anew after every
    row with y (p.x + b) < gamma - epsilon. No row is forgotten and no entropy asked for, which costs it n (1/gamma* -
    1) updates on ``hard_rows``; MEMMA needs O(ln n / epsilon^3).

    Attributes
    ----------
    weights, bias, gamma : of the last solution, to begin with (1/n, ...), 0 and 1; updates : so far.
    """

    def __init__(
        self, n_features: int, epsilon: float = ONLINE_EPSILON, signs: str = "nonnegative", bias: str | None = None
    ) -> None:
        self.weights, self.bias, self.gamma = np.full(n_features, 1 / n_features), 0.0, 1.0
        self.epsilon, self.updates = epsilon, 0
        self._choices = signs, bias
        self._rows: list[np.ndarray] = []
        self._labels: list[float] = []

    def learn(self, x: np.ndarray, y: float) -> bool:
        """Take in a row [feature] of label -1 or +1; whether it caused an update."""
        self._rows.append(np.asarray(x, np.float64))
        self._labels.append(float(y))
        if y * (self.weights @ x + self.bias) >= self.gamma - self.epsilon:
            return False
        signs, bias = self._choices
        problem = _Problem(_signed(np.array(self._rows), np.array(self._labels), bias), np.array(self._labels),
                           signs == "both", bias == "free", bias == "feature")  # fmt: skip
        found = _programme(problem, None)
        self.weights, self.bias, self.gamma = found.weights, found.bias, found.margin
        self.updates += 1
        return True


def hard_rows(n: int, gamma: float) -> np.ndarray:
    """The rows y x of Theorem 1 (Table 1), float64 [n (1/gamma - 1) + 1, n]: each lowers by gamma the one feature on
    which the linear programme of those before has put all weight; their margin is gamma in the end. 1/gamma is
    whole."""
    rounds = round(1 / gamma) - 1
    row = 1 - gamma / n * np.arange(n)
    rows = [row.copy()]
    for _ in range(rounds):
        for j in range(n):
            row[j] -= gamma
            rows.append(row.copy())
    return np.array(rows)


# The problem as matrices


@dataclass
class _Problem:
    """rows : y_i x_i [row, feature] (with the constant feature last, where there is one); labels : -1 or +1; mirror :
    weights of either sign; free : there is a b; constant : the last feature is the constant one."""

    rows: scipy.sparse.csr_array
    labels: np.ndarray
    mirror: bool
    free: bool
    constant: bool

    @property
    def n(self) -> int:
        """Features and mirror images."""
        return int(self.rows.shape[1]) * (2 if self.mirror else 1)

    @property
    def parts(self) -> list[tuple[np.ndarray, float]]:
        """Rows whose d have a sum of their own, and that sum."""
        if not self.free:
            return [(np.arange(self.labels.size), 1.0)]
        return [(np.flatnonzero(self.labels == sign), 0.5) for sign in (1, -1)]


def _matrix(X: object) -> scipy.sparse.csr_array:
    import scipy.sparse

    indptr, indices, values, n_features = csr_arrays(X)
    row, column = not_finite(indptr, indices, values)
    if row >= 0:
        raise DataError("a value is NaN or infinite" + FROM_0, row=row, column=str(column))
    return scipy.sparse.csr_array((values.astype(np.float64), indices, indptr), shape=(indptr.size - 1, n_features))


def _signed(X: scipy.sparse.csr_array, labels: np.ndarray, bias: str | None) -> scipy.sparse.csr_array:
    """y_i x_i, with y_i where there is a constant feature."""
    import scipy.sparse

    rows = scipy.sparse.diags_array(labels) @ scipy.sparse.csr_array(X)
    return scipy.sparse.hstack([rows, labels[:, None]], format="csr") if bias == "feature" else rows.tocsr()


def _problem(X: object, y: object, signs: str, bias: str | None) -> _Problem:
    if signs not in ("both", "nonnegative"):
        raise ValueError(f'signs must be "both" or "nonnegative", not {signs!r}')
    bias = None if bias == "none" else bias
    if bias not in ("free", "feature", None):
        raise ValueError(f'bias must be "free", "feature" or None, not {bias!r}')
    matrix = _matrix(X)
    classes, codes = np.unique(label_array(y), return_inverse=True)
    if codes.size != matrix.shape[0]:
        raise ValueError(f"X has {matrix.shape[0]} rows and y {codes.size} labels; give a label for each row")
    if classes.size != 2:
        raise ValueError(f"a margin is between two classes, and the labels are of {classes.size}")
    if matrix.shape[1] == 0:
        raise ValueError("X has no features; a margin needs one at least")
    labels = 2.0 * codes - 1
    return _Problem(_signed(matrix, labels, bias), labels, signs == "both", bias == "free", bias == "feature")


def _cap(problem: _Problem, nu: float) -> float:
    """1 / (nu l)"""
    least, most = _shares(problem)
    if not least <= nu <= most:
        raise ValueError(f"nu={nu!r} is outside its bounds: {least:.3g} <= nu <= {most:.3g}")
    return 1 / (nu * problem.labels.size)


def _shares(problem: _Problem) -> tuple[float, float]:
    """The least and the most that nu can be."""
    total = problem.labels.size
    return 1 / total, min(2 * rows.size / total if problem.free else 1.0 for rows, _ in problem.parts)


def _worst(margins: np.ndarray, problem: _Problem, cap: float) -> tuple[np.ndarray, float, float]:
    """The d in their bounds of least sum_i d_i m_i, that sum, and the best b: rows with least margin are filled
    first."""
    d, levels = np.zeros(margins.size), []
    for rows, total in problem.parts:
        order = rows[np.argsort(margins[rows], kind="stable")]
        taken = np.clip(total - cap * np.arange(order.size), 0, cap)
        d[order] = taken
        levels.append(margins[order[np.flatnonzero(taken)[-1]]])
    b = (levels[1] - levels[0]) / 2 if problem.free else 0.0
    return d, float(d @ margins), float(b)


def _answer(problem: _Problem, w: np.ndarray, cap: float, d: np.ndarray, bound: float, name: str) -> Margin:
    """What the weights and dual variables found are worth."""
    margins = problem.rows @ w
    _, margin, b = _worst(margins, problem, cap)
    weights, bias = (w[:-1], float(w[-1])) if problem.constant else (w, b)
    text = f"{name} {margin:.6g}, of any weights at most {bound:.6g}"
    facts: dict[str, float] = {}
    if name == "soft margin":
        level = margins + problem.labels * b
        order = np.sort(level)
        facts["rho"] = float(max(order, key=lambda rho: rho - cap * np.maximum(0, rho - level).sum()))
        facts["below"] = int((level < facts["rho"] - 1e-9).sum())
        text += f"; {facts['below']} of {level.size} rows lie below rho = {facts['rho']:.6g}"
    if margin <= 0 and name != "soft margin":
        text += ": no weights separate the rows" if bound <= ROUNDING else ": these weights do not separate the rows"
    return Margin(weights, bias, margin, bound, bound - margin, d, text, facts)


def _programme(problem: _Problem, cap: float | None) -> Margin:
    """The linear programme, hard (cap None) or with slack at the price ``cap``."""
    import scipy.optimize
    import scipy.sparse

    rows, n = problem.rows.shape
    sides = [problem.rows, -problem.rows] if problem.mirror else [problem.rows]
    weights = n * len(sides)
    columns = [-side for side in sides] + [np.ones((rows, 1))]
    cost = [np.zeros(weights), -np.ones(1)]
    bounds: list[tuple[float | None, float | None]] = [(0, None)] * weights + [(None, None)]
    if problem.free:
        columns.append(-problem.labels[:, None])
        cost.append(np.zeros(1))
        bounds.append((None, None))
    if cap is not None:
        columns.append(-scipy.sparse.eye_array(rows))
        cost.append(np.full(rows, cap))
        bounds += [(0, None)] * rows
    matrix = scipy.sparse.hstack([scipy.sparse.csr_array(c) for c in columns], format="csr")
    c = np.concatenate(cost)
    one = scipy.sparse.csr_array((np.ones(weights), np.arange(weights), [0, weights]), shape=(1, c.size))
    found = scipy.optimize.linprog(
        c, A_ub=matrix, b_ub=np.zeros(rows), A_eq=one, b_eq=[1.0], bounds=bounds, method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )  # fmt: skip
    if found.status != 0:
        raise ValueError(f"the linear programme was not solved: {found.message}")
    p = np.maximum(found.x[:weights], 0)
    p /= p.sum()
    w = p[:n] - p[n:] if problem.mirror else p
    most = 1.0 if cap is None else cap
    d = np.clip(-found.ineqlin.marginals, 0, most)
    for part, total in problem.parts:
        d[part] *= total / d[part].sum()
    v = problem.rows.T @ d
    bound = float(np.abs(v).max() if problem.mirror else v.max())
    return _answer(problem, w, most, d, bound, "margin" if cap is None else "soft margin")


# The smooth problem


def _softmax(v: np.ndarray, eta: float, mirror: bool) -> tuple[float, np.ndarray, np.ndarray, float]:
    """F(v), p+ - p-, p+ + p-, H(p)"""
    t = np.concatenate([v, -v]) / eta if mirror else v / eta
    most = t.max()
    e = np.exp(t - most)
    total = e.sum()
    p, log = e / total, most + math.log(total)
    entropy = float(log - p @ t)
    if not mirror:
        return eta * log, p, p, entropy
    up, down = p[: v.size], p[v.size :]
    return eta * log, up - down, up + down, entropy


@dataclass
class _Point:
    """A point of the interior: d > 0 with room = cap - d > 0 and the multipliers of both bounds and of the sums; with
    F, w = p+ - p-, q = p+ + p-, H(p) and the margins there, and by how much the conditions of the optimum are
    missed."""

    d: np.ndarray
    low: np.ndarray
    high: np.ndarray
    sums: np.ndarray
    F: float
    w: np.ndarray
    q: np.ndarray
    entropy: float
    margins: np.ndarray
    lack: np.ndarray  # margins - low + high - sums by part: 0 at the optimum


class _Interior:
    """The primal-dual interior-point method (Boyd and Vandenberghe, 2004, section 11.7) for
    min F(D'd),  0 <= d <= cap,  the d of each part in a given sum;  D = ``problem.rows``."""

    def __init__(self, problem: _Problem, eta: float, cap: float) -> None:
        self.problem, self.eta, self.cap = problem, eta, cap
        self.parts = np.zeros((len(problem.parts), problem.labels.size))
        for k, (rows, _) in enumerate(problem.parts):
            self.parts[k, rows] = 1

    def begin(self) -> _Point:
        """All rows of a part alike."""
        d = np.zeros(self.problem.labels.size)
        for rows, total in self.problem.parts:
            d[rows] = total / rows.size
        room = np.maximum(self.cap - d, 1e-9 * self.cap)
        return self.at(d, 1e-1 / (d * d.size), 1e-1 / (room * d.size), np.zeros(len(self.parts)))

    def at(self, d: np.ndarray, low: np.ndarray, high: np.ndarray, sums: np.ndarray) -> _Point:
        F, w, q, entropy = _softmax(self.problem.rows.T @ d, self.eta, self.problem.mirror)
        margins = self.problem.rows @ w
        return _Point(d, low, high, sums, F, w, q, entropy, margins, margins - low + high - sums @ self.parts)

    def missed(self, at: _Point, mu: float) -> float:
        """How far from the point that the step aims at."""
        pairs = at.d * at.low - mu, (self.cap - at.d) * at.high - mu
        return math.sqrt(float(at.lack @ at.lack) + at.d.size**2 * sum(float(a @ a) for a in pairs))

    def next(self, at: _Point) -> tuple[_Point, bool]:
        """A step, shortened until it stays inside and misses less; whether it could be made."""
        room = self.cap - at.d
        mu = max(0.1 * (at.d @ at.low + room @ at.high), 0.05 * float(np.abs(at.lack).max())) / (2 * at.d.size)
        weight = at.low / at.d + at.high / room
        right = -at.lack - at.low + mu / at.d + at.high - mu / room
        solve = self.solver(at, weight)
        d, across = solve(right), np.array([solve(part) for part in self.parts])
        sums = np.linalg.solve(across @ self.parts.T, -(self.parts @ d))
        d = d + sums @ across
        low, high = (mu - at.low * d) / at.d - at.low, (mu + at.high * d) / room - at.high
        t, before = 1.0, self.missed(at, mu)
        for value, change in ((at.d, d), (room, -d), (at.low, low), (at.high, high)):
            falls = change < 0
            t = min(t, 0.99 * float((value[falls] / -change[falls]).min(initial=np.inf)))
        for _ in range(40):
            to = self.at(at.d + t * d, at.low + t * low, at.high + t * high, at.sums + t * sums)
            if self.missed(to, mu) <= (1 - 0.01 * t) * before:
                return to, True
            t *= 0.5
        return at, False

    def solver(self, at: _Point, weight: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """x -> (diag(weight) + U U')^-1 x;  U U' = (1/eta) (D diag(q) D' - m m')  is the second derivative of F."""
        import scipy.linalg

        ratio = np.divide(at.w, at.q, out=np.zeros_like(at.w), where=at.q > 0)
        kept = float(at.w @ ratio)  # 1 where there are no mirror images
        turn = (1 - math.sqrt(max(0.0, 1 - kept))) / kept if kept > 0 else 0.0
        U = self.problem.rows.toarray() - np.outer(at.margins, turn * ratio)
        U *= np.sqrt(at.q / self.eta)
        if U.shape[0] <= U.shape[1]:
            whole = _root(U.T, np.diag(np.sqrt(weight)))
            return lambda x: scipy.linalg.cho_solve((whole, False), x)
        part = U / np.sqrt(weight)[:, None]
        small = _root(part, np.eye(U.shape[1]))

        def solve(x: np.ndarray) -> np.ndarray:  # Woodbury
            y = x / np.sqrt(weight)
            found: np.ndarray = (y - part @ scipy.linalg.cho_solve((small, False), part.T @ y)) / np.sqrt(weight)
            return found

        return solve


def _root(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """The upper R with R'R = A'A + B'B, which is never formed."""
    import scipy.linalg

    found: np.ndarray = scipy.linalg.qr(np.vstack([A, B]), mode="r", check_finite=False)[0][: A.shape[1]]
    return found


def _smooth(problem: _Problem, eta: float, cap: float, tol: float, soft: bool) -> Margin:
    interior, steps, there = _Interior(problem, eta, cap), 0, True
    at = interior.begin()
    while True:
        gap = at.F - _worst(at.margins, problem, cap)[1] - eta * at.entropy
        if gap <= tol or steps >= MOST_STEPS or not there:
            break
        at, there = interior.next(at)
        steps += 1
    found = _answer(problem, at.w, cap, at.d, at.F, "soft margin" if soft else "margin")
    found.gap = gap
    found.facts |= {"steps": steps, "objective": float(found.margin + eta * at.entropy), "entropy": at.entropy}
    if not (found.separated or soft):
        found.text += "; soft_margin leaves some out"
    if gap > tol:
        found.text += f"; the gap is {gap:.2e}, the tolerance {tol:g}"
    return found
