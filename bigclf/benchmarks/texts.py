"""Made-up rows as text, fast: every entry of a file has the same width, so numpy alone puts the lines together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np

_A = TypeVar("_A")
SVMLIGHT, VOWPAL_WABBIT = (b"-1", b"+1"), (b"-1 |", b"+1 |")


class Rows(NamedTuple):
    """Some rows: indptr int64 [m+1], indices [nnz], levels [nnz] (value = level / 10^digits), y [m]; all integers."""

    indptr: np.ndarray
    indices: np.ndarray
    levels: np.ndarray
    y: np.ndarray


class Texts:
    """Lines from rows by table.

    Parameters
    ----------
    n_features : at most 9,999,999; the text counts them from 1.
    digits : of a value, all after the point: 3 or 6.
    labels : what a line of -1 and a line of +1 begin with.
    """

    def __init__(self, n_features: int, digits: int = 3, labels: tuple[bytes, bytes] = SVMLIGHT) -> None:
        width = digits + 1
        self._token = np.dtype([("index", "V8"), ("value", f"V{width}")])
        names = [f"{j + 1:>7}:".encode() for j in range(n_features)]
        values = [f".{level:0{digits}d}".encode() for level in range(10**digits)]
        self._indices = np.array(names, "S8").view("V8")
        self._values = np.array(values, f"S{width}").view(f"V{width}")
        self._labels = np.array([label.ljust(width) for label in labels], f"S{width}").view(f"V{width}")
        self._break = np.array([b"       \n"], "S8").view("V8")

    def lines(self, rows: Rows) -> memoryview:
        """The rows as text; each begins with its line break, so a file starts with an empty line."""
        m = rows.y.size
        tokens = np.empty(rows.indices.size + m, self._token)
        at = np.ones(tokens.size, bool)
        starts = rows.indptr[:-1] + np.arange(m)
        at[starts] = False
        tokens["index"][at] = self._indices[rows.indices]
        tokens["value"][at] = self._values[rows.levels]
        tokens["index"][starts] = self._break[0]
        tokens["value"][starts] = self._labels[(rows.y > 0).astype(np.intp)]
        return tokens.view(np.uint8).data


def in_order(make: Callable[[int], _A], count: int, threads: int = 2) -> Iterator[_A]:
    """``make(0)``, ``make(1)`` ... in order, some made ahead by threads."""
    with ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[_A]] = deque()
        for number in range(count):
            ahead.append(pool.submit(make, number))
            if len(ahead) > threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
