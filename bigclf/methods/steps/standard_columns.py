"""Columns of standard deviation 1, without their being written down: what each is divided by, from sums over the rows.

    s_j^2 = sum_i c_i (x_ij - mean_j)^2 / sum_i c_i,    c_i the weight of row i

A problem on columns x_j / s_j has weights v_j = s_j w_j, w those of the columns as they are: reads go over rows with w,
and what they sum up of column j is divided by s_j; columns that are collected have 1 / s_j for a scale.

The sums are made in the first read, around 0. Where a mean is so far from 0 beside s_j that they would leave little of
it, they are made once more, around the means. A column of one value has no s_j: its weight is 0, as of glmnet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.compiled.jit import entry, inlined
from bigclf.methods.steps.columns import Columns

if TYPE_CHECKING:
    from bigclf.methods.steps.newglmnet import Shared

FAR = 1e-6  # s_j^2 is at least this share of the mean square: else it is summed up around the mean
ALIKE = 1e-13  # s_j beside the mean that is left by rounding: values of float32 that differ have more
PART = 1 << 16  # columns that are looked at together
AROUND_MEANS, KNOWN = -1.0, 1.0  # last of ``factors``: what they are; at first it is 0


class Moments(NamedTuple):
    """What a state keeps to know the s_j; float64 [feature + 1] each, or none where columns are as they are.

    factors : 1 / s_j, 0 of a column of one value; until they are known what the sums are around. Last 1 where they are.
    present : sum_i c_i over the entries of column j, last over the rows; deviations, squares : over its entries sum_i
    c_i (x_ij - a_j) and sum_i c_i (x_ij - a_j)^2, a_j what they are around.
    """

    factors: np.ndarray
    present: np.ndarray
    deviations: np.ndarray
    squares: np.ndarray


MOMENTS = ("present", "deviations", "squares")


def moments(n_features: int, wanted: bool) -> Moments:
    """Nothing is summed up yet."""
    return Moments(*(np.zeros(n_features + 1 if wanted else 0) for _ in Moments._fields))


@inlined
def are_wanted(shared):  # type: ignore[no-untyped-def]
    """Whether a read is to sum up for the s_j."""
    return shared.factors.size > 0 and shared.factors[shared.factors.size - 1] != KNOWN


@inlined
def add_moments(block, i, shared):  # type: ignore[no-untyped-def]
    """The sums of a row."""
    c = block.weights[i]
    shared.present[shared.present.size - 1] += c
    for p in range(block.indptr[i], block.indptr[i + 1]):
        j = block.indices[p]
        x = entry(block, i, p) - shared.factors[j]
        shared.present[j] += c
        shared.deviations[j] += c * x
        shared.squares[j] += c * (x * x)


def find_factors(shared: Shared) -> bool:
    """After a read: the s_j are known from here on, if they were not; False: the read is to be made once more, since it
    was around 0, or of a weight of a column that has none."""
    if not are_wanted(shared):
        return True
    n = shared.factors.size - 1
    parts = [slice(first, min(n, first + PART)) for first in range(0, n, PART)]
    if shared.factors[-1] != AROUND_MEANS and any(is_far(shared, part).any() for part in parts):
        for part in parts:
            means = mean_and_variance(shared, part)[0]
            shared.factors[part] = np.where(is_far(shared, part), means, 0.0)
        shared.factors[-1] = AROUND_MEANS
        for name in MOMENTS:
            getattr(shared, name)[:] = 0.0
        shared.counts[:] = 0
        return False
    dropped = 0
    for part in parts:
        variances = mean_and_variance(shared, part)[1]
        constant = variances <= np.square(ALIKE * shared.factors[part])
        shared.factors[part] = np.where(constant, 0.0, 1.0 / np.sqrt(np.where(constant, 1.0, variances)))
        shared.counts[part][constant] = 0  # nobody collects it
        dropped += int(np.count_nonzero(shared.weights[part][constant]))
        shared.weights[part][constant] = 0
    shared.factors[-1] = KNOWN
    return dropped == 0


def mean_and_variance(shared: Shared, part: slice) -> tuple[np.ndarray, np.ndarray]:
    """Of some columns; the mean is told from what the sums are around."""
    rows, around = float(shared.present[-1]) or 1.0, shared.factors[part]
    absent = np.maximum(0.0, rows - shared.present[part])
    means = (shared.deviations[part] - absent * around) / rows
    return means, (shared.squares[part] + absent * around * around) / rows - means * means


def is_far(shared: Shared, part: slice) -> np.ndarray:
    """Whether the mean of a column, summed up around 0, leaves too little of its variance."""
    rows = float(shared.present[-1]) or 1.0
    return np.asarray(mean_and_variance(shared, part)[1] < FAR * shared.squares[part] / rows)


def scaled(columns: Columns, factors: np.ndarray, chosen: np.ndarray) -> Columns:
    """The columns ``chosen`` with their scales."""
    if not factors.size:
        return columns
    scales = factors[chosen]
    return columns._replace(scales=scales, largest=columns.largest * scales)


def as_scaled(weights: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """float64: of weights those of the columns divided by s_j."""
    weights = weights.astype(np.float64)
    if factors.size:
        np.divide(weights, factors, out=weights, where=factors > 0)
    return weights


def as_they_are(weights: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """The inverse of ``as_scaled``."""
    return weights * factors if factors.size else weights
