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

from typing import Any, NamedTuple

import numpy as np

from bigclf.jit import LARGE, entry, inlined, prefetch
from bigclf.methods.perceptron import Averaged


class Shared(NamedTuple):
    """weights : [feature + 1, class], the last row the bias."""

    weights: np.ndarray


class Room(NamedTuple):
    """outputs : float64 [class], the scores of a row; classes : int64 [class] and steps : float64 [class], the columns
    that a row is added to and what it is multiplied with."""

    outputs: np.ndarray
    classes: np.ndarray
    steps: np.ndarray


def room(settings: dict[str, Any]) -> Room:
    """For ``settings["n_classes"]`` classes."""
    n = settings["n_classes"]
    return Room(np.zeros(n), np.zeros(n, np.int64), np.zeros(n))


def zeros(n_features: int, dtype: Any, settings: dict[str, Any]) -> Shared:
    """A state whose one array is ``weights``."""
    return Shared(np.zeros((n_features + 1, settings["n_classes"]), dtype))


def averaged_zeros(n_features: int, dtype: Any, settings: dict[str, Any]) -> Averaged:
    """The state of ``perceptron.averaged_perceptron``, with a column for each class."""
    shape = (n_features + 1, settings["n_classes"])
    return Averaged(np.zeros(shape, dtype), np.zeros(shape), np.zeros(1, np.int64))


@inlined
def prefetch_classes(block, order, k, weights):  # type: ignore[no-untyped-def]
    """Ask for what the row two places on needs of an array [feature, class]: the first cache line of each feature, whose
    further ones the processor sees coming."""
    if weights.nbytes > LARGE and k + 2 < order.size:
        i = order[k + 2]
        for p in range(block.indptr[i], block.indptr[i + 1]):
            prefetch(weights, np.int64(block.indices[p]) * weights.shape[1])


@inlined
def scores_of(block, i, weights, bias, out):  # type: ignore[no-untyped-def]
    """out = W' x_i, accumulated in float64 in the order of the entries, the bias last."""
    for c in range(out.size):
        out[c] = 0.0
    for p in range(block.indptr[i], block.indptr[i + 1]):
        j, value = block.indices[p], entry(block, i, p)
        for c in range(out.size):
            out[c] += np.float64(weights[j, c]) * value
    if bias != 0:
        last = weights.shape[0] - 1
        for c in range(out.size):
            out[c] += np.float64(weights[last, c]) * bias


@inlined
def axpy_class(a, block, i, weights, c, bias):  # type: ignore[no-untyped-def]
    """w_c += a x_i, the bias too."""
    for p in range(block.indptr[i], block.indptr[i + 1]):
        weights[block.indices[p], c] += a * entry(block, i, p)
    if bias != 0:
        weights[weights.shape[0] - 1, c] += a * bias


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
def best_other(scores, y):  # type: ignore[no-untyped-def]
    """The best-scoring class but y; of several the smallest."""
    best = 0 if y != 0 else 1
    for c in range(best + 1, scores.size):
        if c != y and scores[c] > scores[best]:
            best = c
    return best


@inlined
def predicted(scores):  # type: ignore[no-untyped-def]
    """The best-scoring class; of several the smallest."""
    best = 0
    for c in range(1, scores.size):
        if scores[c] > scores[best]:
            best = c
    return best
