"""How copies of a state that went their own ways for an epoch become one again.

A rule is ``mix(start, copies, shares) -> state``: ``start`` is what every copy began the epoch with, ``copies`` the
states of the groups in group order, ``shares`` float64 [group], at least 0 with sum 1. Sums run in group order in
float64, so the result depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

State = TypeVar("State", bound=tuple)  # type: ignore[type-arg]


def mean(arrays: Sequence[np.ndarray], shares: Sequence[float]) -> np.ndarray:
    """sum_k shares_k arrays_k, in the arrays' own type; one array is given back as it is."""
    if len(arrays) == 1:
        return arrays[0]
    total = np.zeros(arrays[0].shape, np.float64)
    for array, share in zip(arrays, shares, strict=True):
        total += share * array
    return total.astype(arrays[0].dtype)


def mix_mean(start: State, copies: Sequence[State], shares: Sequence[float]) -> State:
    """Iterative parameter mixing (McDonald, Hall, Mann, NAACL 2010): the mean of every array."""
    return type(start)(*(mean(arrays, shares) for arrays in zip(*copies, strict=True)))
