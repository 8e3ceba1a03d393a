"""Features by number and by place: where their numbers are spread far and wide, only those that occur are kept.

Of 10^9 features with 800,000 non-zeros at most 800,000 occur. Numbered anew in their order, they leave every row as it
is but for the numbers, so that kernels, plans and states need not know of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from bigclf.compiled.jit import kernel
from bigclf.maths.block import writable

AT_ONCE = 1 << 18  # numbers that are sorted in before the next


class FeatureIds(NamedTuple):
    """The features that are known by their place.

    numbers : int64 [place], ascending: of each its number among all.   n_features : how many there are in all.
    """

    numbers: np.ndarray
    n_features: int

    @property
    def size(self) -> int:
        """How many are known."""
        return int(self.numbers.size)

    def places(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The places of ``features`` (their numbers, of any integer type), uint32, and which are known, bool."""
        places = np.empty(features.size, np.uint32)
        self.find(features, places)
        return places, places < self.size

    def find(self, features: np.ndarray, places: np.ndarray) -> int:
        """Put the places of ``features`` into uint32 ``places``, which may be the same array, ``size`` for one that is
        not known; the position of the first such, or -1."""
        return int(find_places(writable(self.numbers), writable(features), places))

    def same_as(self, other: FeatureIds | None) -> bool:
        """Whether the places of both mean the same features."""
        return other is not None and self.n_features == other.n_features and np.array_equal(self.numbers, other.numbers)

    def fault(self) -> str:
        """What is wrong with numbers that came from a file; empty where nothing is."""
        if self.numbers.dtype != np.int64 or self.numbers.ndim != 1:
            return "must be whole numbers of 64 bits in one row"
        if (np.diff(self.numbers) <= 0).any():
            return "must ascend"
        if self.size and not (self.numbers[0] >= 0 and self.numbers[-1] < self.n_features):
            return f"must be at least 0 and below {self.n_features:,}"
        return ""


@kernel
def find_places(numbers, features, places):  # type: ignore[no-untyped-def]
    """places[p] = the place of features[p] in the ascending ``numbers``, their count where it is none of them; the
    first such p, or -1. In a row, whose features ascend, a search begins where the one before ended."""
    missing, low, before = np.int64(-1), np.int64(0), np.int64(-1)
    for p in range(features.size):
        wanted = np.int64(features[p])
        low = low if wanted > before else np.int64(0)
        before, high = wanted, np.int64(numbers.size)
        while low < high:
            middle = (low + high) // 2
            if numbers[middle] < wanted:
                low = middle + 1
            else:
                high = middle
        if low < numbers.size and numbers[low] == wanted:
            places[p] = low
        else:
            places[p] = numbers.size
            if missing < 0:
                missing = np.int64(p)
    return missing


def distinct(features: Iterable[np.ndarray], most: int) -> np.ndarray | None:
    """The numbers that occur, int64, ascending; None as soon as they are more than ``most``."""
    found, waiting, n_waiting = np.empty(0, np.int64), list[np.ndarray](), 0
    for some in features:
        waiting.append(np.unique(some))
        n_waiting += waiting[-1].size
        if n_waiting >= max(AT_ONCE, found.size):
            found = _joined(found, waiting)
            waiting, n_waiting = [], 0
            if found.size > most:
                return None
    found = _joined(found, waiting)
    return None if found.size > most else found


def _joined(found: np.ndarray, more: list[np.ndarray]) -> np.ndarray:
    return np.unique(np.concatenate([found, *(some.astype(np.int64) for some in more)]))
