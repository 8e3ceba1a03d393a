"""The voted perceptron (Freund and Schapire, MLJ 1999).

The steps are the perceptron's. Its k-th vector, which the k-th mistake made, has a vote c_k: 1 and the number of rows
it was right about until the next mistake. The answer is the majority,

    sign( sum_k c_k sign(w_k.x) ),   sign(0) = 1,

which no one vector gives. What is kept are the mistakes: w_k.x is the sum over the first k of them of (step) x_j.x, so
that a row is judged in one pass over their entries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.compiled.jit import axpy, dot_ahead, entry, kernel
from bigclf.maths.block import Counts
from bigclf.methods.common import ONE_GROUP
from bigclf.methods.method import Param, online

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


class Shared(NamedTuple):
    """weights : [feature + 1], the last vector; places, indices, values : the mistakes' rows as in a block (int64
    [max_vectors + 1], int64 and float32 [max_entries]); steps : float64 [max_vectors], y times the row's weight;
    votes : int64 [max_vectors], c; kept : int64 [2], the vectors there are, and the
    mistakes for which there was no room."""

    weights: np.ndarray
    places: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    steps: np.ndarray
    votes: np.ndarray
    kept: np.ndarray


class Params(NamedTuple):
    """bias : value of the constant feature (1.0 or 0.0)."""

    bias: float


def begin(n_features: int, dtype: DTypeLike, settings: dict[str, Any]) -> Shared:
    vectors, entries = settings["max_vectors"], settings["max_entries"]
    return Shared(
        np.zeros(n_features + 1, dtype), np.zeros(vectors + 1, np.int64), np.zeros(entries, np.int64),
        np.zeros(entries, np.float32), np.zeros(vectors), np.zeros(vectors, np.int64), np.zeros(2, np.int64),
    )  # fmt: skip


@kernel
def voted_perceptron(block, order, shared, rows, params, scores):  # type: ignore[no-untyped-def]
    """One pass over the rows of ``order``. From the first mistake on for which there is no room, nothing changes: the
    last vector, which would have ended there, gets no more votes."""
    weights, places, votes, kept = shared.weights, shared.places, shared.votes, shared.kept
    last = weights.size - 1
    mistakes, updates, loss = 0, 0, np.float64(0)
    for k in range(order.size):
        i, n = order[k], kept[0]
        y = block.labels[i]
        m = y * (dot_ahead(block, order, k, weights) + params.bias * weights[last])
        if m > 0:
            votes[n - 1] += kept[1] == 0
            continue
        mistakes += 1
        loss -= m
        if block.norms[i] + params.bias * params.bias == 0:
            continue
        q = places[n] if n < votes.size else shared.indices.size + 1
        if kept[1] > 0 or q + block.indptr[i + 1] - block.indptr[i] > shared.indices.size:
            kept[1] += 1
            continue
        step = block.weights[i] * y
        axpy(step, block, i, weights)
        weights[last] += params.bias * step
        for p in range(block.indptr[i], block.indptr[i + 1]):
            shared.indices[q] = block.indices[p]
            shared.values[q] = entry(block, i, p)
            q += 1
        places[n + 1], shared.steps[n], votes[n] = q, step, 1
        kept[0] += 1
        updates += 1
    return Counts(order.size, mistakes, updates, loss, 0.0)


@kernel
def vote(block, shared, bias, room, scores):  # type: ignore[no-untyped-def]
    """scores[i] = sum_k c_k sign(w_k.x_i) / sum_k c_k; room : float64 [feature], zeros before and after."""
    for i in range(block.indptr.size - 1):
        for p in range(block.indptr[i], block.indptr[i + 1]):
            room[block.indices[p]] = entry(block, i, p)
        score, balance, total = np.float64(0), np.int64(0), np.int64(0)
        for k in range(shared.kept[0]):
            product = bias * bias
            for q in range(shared.places[k], shared.places[k + 1]):
                product += shared.values[q] * room[shared.indices[q]]
            score += shared.steps[k] * product
            balance += shared.votes[k] if score >= 0 else -shared.votes[k]
            total += shared.votes[k]
        for p in range(block.indptr[i], block.indptr[i + 1]):
            room[block.indices[p]] = 0
        scores[i] = balance / total if total > 0 else 0.0


# Methods

METHODS = (
    online(
        name="voted_perceptron",
        title="voted perceptron: not one vector but the majority of all",
        paper="Freund and Schapire, MLJ 1999",
        formula="y w.x <= 0:  w <- w + y x;  the answer is sign(sum_k c_k sign(w_k.x)), c_k = rows w_k was kept for",
        params=(
            Param("max_vectors", 10_000, 1, 2**31, "number of mistakes to store and learn from", integer=True),
            Param("max_entries", 1_000_000, 1, 2**31, "number of entries of their rows to store", integer=True),
        ),
        shared=begin,
        bind=lambda settings: Params(settings["bias"]),
        update=lambda loss: voted_perceptron,
        place=None,
        weight_meaning="multiplies the step",
        judges_by_answer=False,
        linear=False,
        bounded=False,
        **ONE_GROUP,
    ),
)
