"""Probabilities from decision values f, learned from rows that the model has not seen.

platt       p = 1 / (1 + exp(A f + B)), the maximum of likelihood          (Platt, 1999; Lin, Lin, Weng, MLJ 2007)
isotonic    p = the non-decreasing function of f nearest to the labels     (Zadrozny, Elkan, KDD 2002)

Both learn from Platt's targets in place of 1 and 0, so that no probability is exactly either: (N+ + 1) / (N+ + 2) and
1 / (N- + 2) for N+ positive and N- negative rows, counted by their weights. More than two classes are calibrated each
against the rest, and made to sum to 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

METHODS = ("platt", "isotonic")
ROUNDS = 100
RIDGE, SUFFICIENT, LEAST_STEP = 1e-12, 1e-4, 1e-10  # of Lin, Lin, Weng
GRADIENT = 1e-12  # of a row, finer than theirs


class Tally(NamedTuple):
    """Decision values float64 [m], ascending and different, and the weights of positive and negative rows at each."""

    scores: np.ndarray
    positive: np.ndarray
    negative: np.ndarray


class Calibration(NamedTuple):
    """What makes probabilities of a model's decision values.

    method : "platt" or "isotonic".
    values : float64 [2, m]; of Platt's method A and B of each problem (m = K), of the isotonic one decision values,
        ascending, and their probabilities, the points of one problem after another, between which lie straight lines.
    ends : int64 [K + 1]; problem k has the points ends[k]:ends[k + 1].
    facts : of the rows that it was learned from: ``rows``, ``unknown`` (of other classes, left out), ``weighted``.
    """

    method: str
    values: np.ndarray
    ends: np.ndarray
    facts: dict[str, int]

    def check(self, n_problems: int) -> None:
        """ValueError for what is no calibration of so many problems."""
        if self.method not in METHODS:
            raise ValueError(f"a calibration by {self.method!r}")
        values, ends = self.values, self.ends
        whole = values.ndim == 2 and values.shape[0] == 2 and ends.dtype.kind == "i" and ends.shape == (n_problems + 1,)
        whole = whole and ends[0] == 0 and ends[-1] == values.shape[1] and bool((np.diff(ends) > 0).all())
        if not whole or not np.isfinite(values).all():
            raise ValueError("a calibration whose points do not add up")
        if self.method == "platt":
            if values.shape[1] != n_problems:
                raise ValueError("a calibration whose points do not add up")
            return
        rising = np.diff(values, axis=1) >= 0
        rising[:, ends[1:-1] - 1] = True  # where a problem ends and the next begins
        if not rising.all() or values[1].min() < 0 or values[1].max() > 1:
            raise ValueError("a calibration whose probabilities do not rise from 0 to 1 with the decision values")

    def positive(self, scores: np.ndarray, problem: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities [m] of the positive class of a problem, and of the negative one, at decision values [m]."""
        points = self.values[:, self.ends[problem] : self.ends[problem + 1]]
        if self.method == "platt":
            z = points[0, 0] * scores + points[1, 0]
            return np.exp(-np.logaddexp(0, z)), np.exp(-np.logaddexp(0, -z))  # without overflow
        share = np.interp(scores, *points)
        return share, 1.0 - share

    def shares(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities [n, classes] for decision values [n] (two classes) or [n, K]."""
        if scores.ndim == 1:
            greater, smaller = self.positive(scores)
            return np.column_stack([smaller, greater])
        if self.method == "platt":
            logs = -np.logaddexp(0, self.values[0] * scores + self.values[1])
            each = np.exp(logs - logs.max(axis=1, keepdims=True))  # the largest is 1: their sum is never 0
        else:
            each = np.column_stack([self.positive(scores[:, k], k)[0] for k in range(scores.shape[1])])
        shares: np.ndarray = each / each.sum(axis=1, keepdims=True)
        return shares


def learned(method: str, tallies: list[Tally], facts: dict[str, int]) -> Calibration:
    """The calibration of as many problems as there are tallies."""
    points = [np.array(platt(tally))[:, None] if method == "platt" else isotonic(tally) for tally in tallies]
    ends = np.cumsum([0, *(part.shape[1] for part in points)])
    return Calibration(method, np.hstack(points), ends.astype(np.int64), facts)


def targets(tally: Tally) -> tuple[float, float]:
    """Of positive and of negative rows: (N+ + 1) / (N+ + 2), 1 / (N- + 2)."""
    positive, negative = float(tally.positive.sum()), float(tally.negative.sum())
    return (positive + 1) / (positive + 2), 1 / (negative + 2)


def platt(tally: Tally) -> tuple[float, float]:
    """A and B of the least negative log likelihood, by Newton's method with backtracking.

    Lin, Lin, Weng, algorithm 1, with z = A f + B, t the target and w the weight of what lies at f:

        F = sum w (t log(1 + e^z) + (1 - t) log(1 + e^-z)),   dF/dz = w (t - p),   d2F/dz2 = w p (1 - p)
    """
    high, low = targets(tally)
    w = tally.positive + tally.negative
    t = (tally.positive * high + tally.negative * low) / w
    scale = float(np.abs(tally.scores).max(initial=0.0)) or 1.0
    f = tally.scores / scale  # the answer does not depend on it, the last digits do

    def value(a: float, b: float) -> float:
        z = a * f + b
        return float(w @ (t * np.logaddexp(0, z) + (1 - t) * np.logaddexp(0, -z)))

    a, b = 0.0, float(np.log((tally.negative.sum() + 1) / (tally.positive.sum() + 1)))
    now = value(a, b)
    for _ in range(ROUNDS):
        p = np.exp(-np.logaddexp(0, a * f + b))
        slope, bend = w * (t - p), w * p * (1 - p)
        g1, g2 = float(slope @ f), float(slope.sum())
        if max(abs(g1), abs(g2)) <= GRADIENT * float(w.sum()):
            break
        h11, h22, h21 = float(bend @ (f * f)) + RIDGE, float(bend.sum()) + RIDGE, float(bend @ f)
        determinant = h11 * h22 - h21 * h21
        da, db = (h21 * g2 - h22 * g1) / determinant, (h21 * g1 - h11 * g2) / determinant
        step, descent = 1.0, g1 * da + g2 * db
        while step >= LEAST_STEP:
            new = value(a + step * da, b + step * db)
            if new < now + SUFFICIENT * step * descent:
                a, b, now = a + step * da, b + step * db, new
                break
            step /= 2
        else:
            break  # no more to gain in floating point
    return a / scale, b


def isotonic(tally: Tally) -> np.ndarray:
    """Decision values, ascending, and their probabilities, float64 [2, m]: where the pieces of the nearest
    non-decreasing function begin and end."""
    from sklearn.isotonic import isotonic_regression

    high, low = targets(tally)
    w = tally.positive + tally.negative
    share = isotonic_regression(tally.positive / w, sample_weight=w)
    probability = low + (high - low) * share  # of the targets, since the nearest function of c + d y is that of y
    new = np.flatnonzero(np.diff(probability)) + 1
    kept = np.unique(np.concatenate([[0], new - 1, new, [share.size - 1]]))
    return np.stack([tally.scores[kept], probability[kept]])
