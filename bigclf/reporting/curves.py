"""Curves of decision values: ROC, precision and recall; from all values, or from counts in bins."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigclf.metrics.figures import BinnedRanking, Ranking, score_bins

POINTS = 200  # of a curve as it is drawn
EXACT_ROWS = 1_000_000  # more are counted in bins first, to 2^-11 of the value


class Levels(NamedTuple):
    """Decision values that occur, ascending, float64 [m], and how many negative and positive rows have each."""

    values: np.ndarray
    negative: np.ndarray
    positive: np.ndarray


def levels(ranking: Ranking | BinnedRanking) -> Levels:
    """What an evaluation of two classes kept of the decision values."""
    if isinstance(ranking, Ranking):
        sides = ranking.negative, ranking.positive
        if sum(side.size for side in sides) <= EXACT_ROWS:
            values, place = np.unique(np.concatenate(sides), return_inverse=True)
            counts = [np.bincount(part, minlength=values.size) for part in np.split(place, [sides[0].size])]
            return Levels(values, *counts)
        bins, place = np.unique(score_bins(np.concatenate(sides)), return_inverse=True)
        counts = [np.bincount(part, minlength=bins.size) for part in np.split(place, [sides[0].size])]
        return Levels(bin_values(bins), *counts)
    kept = ranking.__getstate__()
    return Levels(bin_values(kept["used"]), *kept["counts"])


def bin_values(bins: np.ndarray) -> np.ndarray:
    """The middle, float64, of each bin of ``score_bins``."""
    ordered = (bins.astype(np.uint32) << np.uint32(12)) | np.uint32(2**11)
    bits = np.where(ordered >> 31 != 0, ordered ^ np.uint32(2**31), ~ordered)
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


def roc(found: Levels) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the negative and of the positive rows that lie at or above each threshold, from (0, 0) to (1, 1)."""
    false, true = (np.append(0, np.cumsum(side[::-1])) / side.sum() for side in (found.negative, found.positive))
    return thinned(false, true)


def precision_recall(found: Levels) -> tuple[np.ndarray, np.ndarray]:
    """Recall and precision at each threshold, the highest first."""
    true, false = np.cumsum(found.positive[::-1]), np.cumsum(found.negative[::-1])
    return thinned(true / true[-1], true / (true + false))


def average_precision(found: Levels) -> float:
    """The sum over thresholds of precision times the step of recall."""
    true, false = np.cumsum(found.positive[::-1]), np.cumsum(found.negative[::-1])
    return float((np.diff(np.append(0, true)) * (true / (true + false))).sum() / true[-1])


def thinned(x: np.ndarray, y: np.ndarray, points: int = POINTS) -> tuple[np.ndarray, np.ndarray]:
    """At most ``points`` of a curve, evenly along its length in the box it fills; the ends are kept."""
    if x.size <= points:
        return x, y
    spans: list[Any] = [np.abs(np.diff(axis)) / (np.ptp(axis) or 1.0) for axis in (x, y)]
    length = np.append(0, np.cumsum(np.hypot(*spans)))
    keep = np.unique(np.searchsorted(length, np.linspace(0, length[-1], points)).clip(0, x.size - 1))
    keep[0], keep[-1] = 0, x.size - 1
    return x[keep], y[keep]
