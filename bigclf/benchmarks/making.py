"""Made-up rows like a collection of news stories (RCV1): words by Zipf's law, topics, log counts times rarity.

A row's length is log-normal. Half of its words come from a common distribution, half from the same one as its topic
permutes it, which makes features go together. Its values are (1 + ln tf) * idf, scaled to unit length, in whole
millionths, so that every form of the data (arrays, shards, text) holds the same numbers. Labels are the sign of a
planted score about its median, and some of them are flipped. Blocks have seeds of their own: the rows do not depend on
how many threads made them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bigclf.benchmarks.texts import in_order

BLOCK_ROWS = 10_000
ZIPF, TOPICS, FLIPPED = 1.1, 64, 0.05
REPEATS = 1.42  # words of a row to its different words, about
SPREAD, LEAST_WORDS, MOST_WORDS = 0.5, 5, 4000  # of the length's logarithm; words
COMMON, STRONG, WEAK = 2000, 0.2, 0.05  # the most popular features; shares of them and of the rest that matter
MILLION = 1_000_000


class Shape(NamedTuple):
    """What is made: rows to train and to test on, features, different words of a row (about), seed, share of labels
    that are flipped."""

    n_train: int
    n_test: int
    n_features: int
    mean_nnz: float
    seed: int = 1
    flipped: float = FLIPPED


SIZES = {
    "tiny": Shape(2_000, 500, 500, 20),
    "S": Shape(200_000, 20_000, 47_000, 66),
    "M": Shape(2_000_000, 200_000, 1_000_000, 62),
}


class Counted(NamedTuple):
    """Rows before their values are known: lengths int64 [m], indices int32 [nnz], words uint16 [nnz] (how often each
    occurs), topics int8 [m]."""

    lengths: np.ndarray
    indices: np.ndarray
    words: np.ndarray
    topics: np.ndarray


class Planted(NamedTuple):
    """What is hidden: order int32 [features] (feature of each rank), weights [features], of_topic float64 [topics]."""

    order: np.ndarray
    weights: np.ndarray
    of_topic: np.ndarray


class Made(NamedTuple):
    """CSR rows, training ones first: indptr int64 [n+1], indices int32 [nnz], values float32 [nnz], y int8 [n]."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    y: np.ndarray


def make(shape: Shape, advance: Callable[[int], object] = lambda rows: None) -> Made:
    """Rows of this shape; ``advance`` is told of rows done (each is gone over twice)."""
    planted = plant(shape)
    n = shape.n_train + shape.n_test
    bounds = [(at, min(n, at + BLOCK_ROWS)) for at in range(0, n, BLOCK_ROWS)]
    counted: list[Counted | None] = []
    popularity = np.zeros(shape.n_features, np.int64)
    for rows in in_order(lambda k: count_words(shape, planted, k, bounds[k][1] - bounds[k][0]), len(bounds)):
        popularity += np.bincount(rows.indices, minlength=shape.n_features)
        counted.append(rows)
        advance(rows.lengths.size)
    rarity = np.log(n / np.maximum(popularity, 1)) + 0.1
    indptr = np.concatenate([[0], np.cumsum(np.concatenate([rows.lengths for rows in counted if rows]))])
    indices, values = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], np.float32)
    scores, topics = np.empty(n), np.empty(n, np.int8)

    def finish(number: int) -> int:
        rows = counted[number]
        assert rows is not None
        first, last = bounds[number]
        part = slice(indptr[first], indptr[last])
        indices[part], values[part] = rows.indices, weigh(rows, rarity)
        scores[first:last] = row_sums(values[part] * planted.weights[rows.indices], rows.lengths)
        topics[first:last] = rows.topics
        counted[number] = None
        return last - first

    for done in in_order(finish, len(bounds)):
        advance(done)
    return Made(indptr, indices, values, labels(shape, scores / scores.std() + 2 * planted.of_topic[topics]))


def plant(shape: Shape) -> Planted:
    rng = np.random.default_rng([shape.seed, 0])
    d = shape.n_features
    order = rng.permutation(d).astype(np.int32)
    weights = 0.5 * rng.standard_normal(d) * (rng.random(d) < WEAK)
    common = order[:COMMON]
    weights[common] = rng.standard_normal(common.size) * (rng.random(common.size) < STRONG)
    return Planted(order, weights, rng.standard_normal(TOPICS))


def count_words(shape: Shape, planted: Planted, number: int, n_rows: int) -> Counted:
    """A block of rows as counts of words."""
    rng = np.random.default_rng([shape.seed, 1, number])
    mean = shape.mean_nnz * REPEATS
    drawn = mean * np.exp(SPREAD * rng.standard_normal(n_rows) - SPREAD**2 / 2)
    lengths = np.minimum(drawn.astype(np.int64) + LEAST_WORDS, MOST_WORDS)
    topics = rng.integers(0, TOPICS, n_rows, dtype=np.int8)
    row = np.repeat(np.arange(n_rows), lengths)
    ranks = zipf(rng.random(row.size), shape.n_features)
    of_topic = rng.random(row.size) < 0.5
    permuted = (ranks * 67 + topics[row].astype(np.int64) * 7919 + 101) % shape.n_features
    features = planted.order[np.where(of_topic, permuted, ranks)]
    both, words = np.unique(row * shape.n_features + features, return_counts=True)
    row, indices = np.divmod(both, shape.n_features)
    return Counted(np.bincount(row, minlength=n_rows), indices.astype(np.int32), words.astype(np.uint16), topics)


def zipf(u: np.ndarray, d: int) -> np.ndarray:
    """Ranks 0 ... d-1, rank r with a chance like 1 / (r + 1)^1.1, of uniform numbers (the inverse of the integral)."""
    power = 1 - ZIPF
    ranks = (((d + 1) ** power - 1) * u + 1) ** (1 / power) - 1
    return np.clip(ranks.astype(np.int64), 0, d - 1)


def weigh(rows: Counted, rarity: np.ndarray) -> np.ndarray:
    """(1 + ln tf) * idf of unit length, in whole millionths that are neither 0 nor 1: float32 [nnz]."""
    values = (1 + np.log(rows.words)) * rarity[rows.indices]
    norms = np.sqrt(row_sums(values * values, rows.lengths))
    millionths = np.rint(values / np.repeat(norms, rows.lengths) * MILLION)
    return (np.clip(millionths, 1, MILLION - 1) / MILLION).astype(np.float32)


def row_sums(entries: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Sums over each row's entries; rows have at least one."""
    starts = np.cumsum(lengths) - lengths
    return np.add.reduceat(entries.astype(np.float64, copy=False), starts)


def labels(shape: Shape, scores: np.ndarray) -> np.ndarray:
    """-1 or +1, int8 [n]: half of each, then some flipped."""
    y = np.where(scores > np.median(scores), 1, -1).astype(np.int8)
    flip = np.random.default_rng([shape.seed, 2]).random(y.size) < shape.flipped
    return np.where(flip, -y, y).astype(np.int8)
