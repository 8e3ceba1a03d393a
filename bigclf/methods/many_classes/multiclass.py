"""What the native multi-class kernels share: one column of weights for each of K classes, K at least 2.

The weights are [feature + 1, K], the classes of a feature together, the last row the bias: of each entry of a row one
stretch of memory is read, and all K scores are made in one sweep. ``block.labels`` hold the code of the class, 0 to
K - 1; a tie goes to the smallest. The loss of a row is told by its margins against the other classes,

    l_k = (w_y - w_k).x,  k != y,

of which the smallest is that of the best-scoring wrong class. A row that is learned from adds a multiple of itself to
some columns: ``classes`` and ``steps`` of the room that comes with the parameters say which and how much, since a
kernel makes no arrays. A room serves one call at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import LARGE, entry, inlined, kernel, prefetch
from bigclf.methods.online.perceptron import Averaged

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class Shared(NamedTuple):
    """weights : [feature + 1, class], the last row the bias."""

    weights: np.ndarray


class Room(NamedTuple):
    """outputs : float64 [class], the scores of a row; classes : int64 [class] and steps : float64 [class], the columns
    that a row is added to and what it is multiplied with."""

    outputs: np.ndarray
    classes: np.ndarray
    steps: np.ndarray


def room(settings: Mapping[str, Any]) -> Room:
    """For ``settings["n_classes"]`` classes."""
    n = settings["n_classes"]
    return Room(np.zeros(n), np.zeros(n, np.int64), np.zeros(n))


def zeros(n_features: int, dtype: DTypeLike, settings: dict[str, Any]) -> Shared:
    """A state whose one array is ``weights``."""
    return Shared(np.zeros((n_features + 1, settings["n_classes"]), dtype))


def averaged_zeros(n_features: int, dtype: DTypeLike, settings: dict[str, Any]) -> Averaged:
    """The state of the averaged perceptron, with a column for each class."""
    shape = (n_features + 1, settings["n_classes"])
    return Averaged(np.zeros(shape, dtype), np.zeros(shape), np.zeros(1, np.int64))


@inlined
def prefetch_classes(block, order, k, weights):  # type: ignore[no-untyped-def]
    """Ask for what the row two places on needs of an array [feature, class]: the first cache line of each feature; the
    processor sees the next ones coming."""
    if weights.nbytes > LARGE and k + 2 < order.size:
        i = order[k + 2]
        for p in range(block.indptr[i], block.indptr[i + 1]):
            prefetch(weights, np.int64(block.indices[p]) * weights.shape[1])


def _scores(some: bool):  # type: ignore[no-untyped-def]
    """Helper: out = W' x_i, of the classes of ``columns`` where they are to be ``some``; accumulated in float64 in the
    order of the entries, the bias last. Of four entries at a time, so that ``out`` is read and written once for them: a
    quarter to a third less time, the same bits."""

    @inlined
    def scores(block, i, weights, bias, columns, out):  # type: ignore[no-untyped-def]
        for n in range(out.size):
            out[n] = 0.0
        p, end = block.indptr[i], block.indptr[i + 1]
        while p + 4 <= end:
            j0, j1, j2, j3 = block.indices[p], block.indices[p + 1], block.indices[p + 2], block.indices[p + 3]
            v0, v1, v2, v3 = entry(block, i, p), entry(block, i, p + 1), entry(block, i, p + 2), entry(block, i, p + 3)
            for n in range(out.size):
                c = columns[n] if some else n
                total = out[n] + np.float64(weights[j0, c]) * v0
                total = total + np.float64(weights[j1, c]) * v1
                total = total + np.float64(weights[j2, c]) * v2
                out[n] = total + np.float64(weights[j3, c]) * v3
            p += 4
        for q in range(p, end):
            j, value = block.indices[q], entry(block, i, q)
            for n in range(out.size):
                out[n] += np.float64(weights[j, columns[n] if some else n]) * value
        if bias != 0:
            last = weights.shape[0] - 1
            for n in range(out.size):
                out[n] += np.float64(weights[last, columns[n] if some else n]) * bias

    return scores


scores_of_columns, _scores_of_all = _scores(some=True), _scores(some=False)


@inlined
def scores_of(block, i, weights, bias, out):  # type: ignore[no-untyped-def]
    """out = W' x_i, of all classes."""
    _scores_of_all(block, i, weights, bias, out, out)


@inlined
def axpy_classes(a, block, i, weights, classes, steps, count, bias):  # type: ignore[no-untyped-def]
    """w_c += a s x_i for the first ``count`` pairs (c, s) of ``classes`` and ``steps``, in one sweep; the bias too."""
    for p in range(block.indptr[i], block.indptr[i + 1]):
        j, value = block.indices[p], a * entry(block, i, p)
        for n in range(count):
            weights[j, classes[n]] += value * steps[n]
    if bias != 0:
        last = weights.shape[0] - 1
        for n in range(count):
            weights[last, classes[n]] += a * bias * steps[n]


@inlined
def at_fault(outputs, y, other, uniform, classes):  # type: ignore[no-untyped-def]
    """Fill ``classes`` with those that the step goes against, and say how many: the best-scoring wrong one, or all that
    score no less than y."""
    classes[0] = other
    count = 1
    if uniform:
        count = 0
        for c in range(outputs.size):
            if c != y and outputs[c] >= outputs[y]:
                classes[count] = c
                count += 1
    return count


@inlined
def best_other(scores, y):  # type: ignore[no-untyped-def]
    """The best-scoring class but y; of several the smallest."""
    best = 0 if y != 0 else 1
    for c in range(best + 1, scores.size):
        if c != y and scores[c] > scores[best]:
            best = c
    return best


@inlined
def judge(block, i, weights, bias, outputs):  # type: ignore[no-untyped-def]
    """outputs = W' x_i; the row's class y, the best-scoring other one, the margin w_y.x_i has over it, and whether the
    other one is predicted."""
    y = np.int64(block.labels[i])
    scores_of(block, i, weights, bias, outputs)
    other = best_other(outputs, y)
    m = outputs[y] - outputs[other]
    return y, other, m, m < 0 or (m == 0 and other < y)


@inlined
def predicted(scores):  # type: ignore[no-untyped-def]
    """The best-scoring class; of several the smallest."""
    best = 0
    for c in range(1, scores.size):
        if scores[c] > scores[best]:
            best = c
    return best


@inlined
def others(scores, y, heap):  # type: ignore[no-untyped-def]
    """Fill ``heap`` with the classes but y, so that ``next_other`` finds them; how many there are."""
    size = np.int64(0)
    for c in range(scores.size):
        if c != y:
            heap[size] = c
            size += 1
    for n in range(size // 2 - 1, -1, -1):
        sift_down(scores, heap, n, size)
    return size


@inlined
def next_other(scores, heap, size):  # type: ignore[no-untyped-def]
    """The best-scoring class of heap[:size], of several the smallest; it is at heap[size - 1] then, behind the rest."""
    best = heap[0]
    heap[0], heap[size - 1] = heap[size - 1], best
    sift_down(scores, heap, np.int64(0), size - 1)  # a literal would be a signature of its own
    return best


@kernel
def sift_down(scores, heap, n, size):  # type: ignore[no-untyped-def]
    """Let the class at place n sink in heap[:size], whose best-scoring class, of several the smallest, is the first."""
    while 2 * n + 1 < size:
        child = 2 * n + 1
        if child + 1 < size and before(scores, heap[child + 1], heap[child]):
            child += 1
        if not before(scores, heap[child], heap[n]):
            break
        heap[n], heap[child] = heap[child], heap[n]
        n = child


@inlined
def before(scores, a, b):  # type: ignore[no-untyped-def]
    """Whether class a scores better than b, or as well and has the smaller code."""
    return scores[a] > scores[b] or (scores[a] == scores[b] and a < b)
