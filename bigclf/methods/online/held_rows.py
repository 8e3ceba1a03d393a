"""The one or two rows that a maximum-margin learner keeps, and the point that they make.

Without a free bias it is the last row learned from, as y x: a point of the hull of all y_i x_i. With one it is the last
of either class, x+ and x-, and their half difference z = (x+ - x-) / 2: a point of the hull of all (x_i+ - x_j-) / 2.
The least norm in such a hull is the largest margin, and a step goes from where the learner stands towards the point.

A state has  places int64, values float64 [feature + 1, 3], sizes int64 [3]:  column 0 holds y x, or x+ / 2; column 1
-x- / 2; column 2 the point, features ascending in each. So a step costs what the two rows have, not all features.
"""

from __future__ import annotations

import numpy as np

from bigclf.compiled.jit import entry, inlined


@inlined
def hold(block, i, y, params, places, values, sizes):  # type: ignore[no-untyped-def]
    """Keep row i; whether there is a point now: with a free bias only when both classes have been seen."""
    free = params.free > 0
    column, part = (1 if free and y < 0 else 0), (0.5 * y if free else y)
    n = 0
    for p in range(block.indptr[i], block.indptr[i + 1]):
        places[n, column] = np.int64(block.indices[p])
        values[n, column] = part * entry(block, i, p)
        n += 1
    if params.bias > 0 and not free:
        places[n, column] = places.shape[0] - 1
        values[n, column] = y
        n += 1
    sizes[column] = n + 1  # 0: never held
    return not free or (sizes[0] > 0 and sizes[1] > 0)


@inlined
def make_point(places, values, sizes):  # type: ignore[no-untyped-def]
    """The sum of columns 0 and 1 into column 2; its number of entries."""
    a, b, n = 0, 0, 0
    ends, none = (sizes[0] - 1, sizes[1] - 1), places.shape[0]
    while a < ends[0] or b < ends[1]:
        j = places[a, 0] if a < ends[0] else none
        k = places[b, 1] if b < ends[1] else none
        places[n, 2] = min(j, k)
        values[n, 2] = 0.0
        if j <= k:
            values[n, 2] += values[a, 0]
            a += 1
        if k <= j:
            values[n, 2] += values[b, 1]
            b += 1
        n += 1
    sizes[2] = n
    return n


@inlined
def along(column, weights, places, values, sizes):  # type: ignore[no-untyped-def]
    """weights . the column"""
    total = np.float64(0)
    for p in range(sizes[column] - 1):
        total += weights[places[p, column]] * values[p, column]
    return total


@inlined
def narrowed(low, high, s, first, second):  # type: ignore[no-untyped-def]
    """The bracket in [0, 1] of the lowest point of a convex function with these derivatives at s, and where to look
    next: Newton's step, the end 1 where that leads there, else the middle of the bracket."""
    if first < 0:
        low = s
    else:
        high = s
    to = s - first / second if second > 0 else high
    if to >= high and high == 1 and s < 1:
        to = 1.0
    elif not low < to < high:
        to = 0.5 * (low + high)
    return low, high, to


def nothing_held(n_features: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """places, values and sizes at the beginning."""
    n = n_features + 1
    return np.zeros((n, 3), np.int64), np.zeros((n, 3)), np.zeros(3, np.int64)
