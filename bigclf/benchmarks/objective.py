"""How good weights are, worked out here in float64 whoever made them: objective, gap, error."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

ROWS = 100_000  # at a time: few bytes beside the rows themselves


class Held(NamedTuple):
    """CSR rows on disk, mapped: indptr [n+1], indices and values [nnz], labels -1/+1 [n]."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    labels: np.ndarray


def hold(place: str) -> Held:
    """The arrays ``place``.indptr.npy and so on."""
    return Held(*(np.load(f"{place}.{name}.npy", mmap_mode="r") for name in Held._fields))


def losses(loss: str, margins: np.ndarray) -> np.ndarray:
    """hinge max(0, 1 - m), its square, or ln(1 + e^-m)."""
    if loss == "logistic":
        return np.logaddexp(0.0, -margins)
    short = np.maximum(0.0, 1.0 - margins)
    return short if loss == "hinge" else short * short


def primal(loss: str, weights: np.ndarray, rows: Held, C: float) -> float:
    """P(w) = 1/2 ||w||^2 + C sum of losses."""
    return 0.5 * math.fsum(weights * weights) + C * math.fsum(losses(loss, m).sum() for m in margins(weights, rows))


def error(weights: np.ndarray, rows: Held) -> float:
    """Share of rows on the wrong side, or on none."""
    return sum(int((m <= 0).sum()) for m in margins(weights, rows)) / rows.labels.size


def margins(weights: np.ndarray, rows: Held) -> Iterator[np.ndarray]:
    """y w.x block by block, float64."""
    import scipy.sparse as sp

    weights = np.asarray(weights, np.float64)
    for first in range(0, rows.labels.size, ROWS):
        y = rows.labels[first : first + ROWS]
        part = slice(int(rows.indptr[first]), int(rows.indptr[first + y.size]))
        starts = rows.indptr[first : first + y.size + 1] - rows.indptr[first]
        values = np.asarray(rows.values[part], np.float64)
        x: Any = sp.csr_matrix((values, rows.indices[part], starts), (y.size, weights.size))
        yield y * (x @ weights)


def relative_gap(objective: float, bound: float) -> float:
    """By how much ``objective`` lies above what is known to be at most the optimum, as a share of it: never below the
    true gap, and above it by the bound's own distance from the optimum only."""
    return objective / bound - 1 if bound > 0 else math.inf
