"""Rows of other shapes than text of middling length, where other programs and other solvers are at home."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bigclf.benchmarks import making
from bigclf.benchmarks.making import Made

SCALE = {"tiny": 0.01, "S": 1.0, "M": 5.0}  # of the rows below
NOISE, CLICKED, TYPES = 1.5, 0.2, 50


class Kind(NamedTuple):
    """A shape: rows at scale 1, features, what makes (rows, features, generator), and what it is like."""

    n_rows: int
    n_features: int
    make: Callable[[int, int, np.random.Generator], Made]
    about: str

    def rows(self, size: str) -> int:
        return max(400, int(self.n_rows * SCALE[size]))


def noisy_table(n: int, d: int, random: np.random.Generator) -> Made:
    """Numbers that hang together, half of them skewed, and labels that are as much noise as signal."""
    x = random.standard_normal((n, d))
    x[:, ::2] = np.exp(0.6 * x[:, ::2])
    x = (x @ (np.eye(d) + 0.25 * random.standard_normal((d, d)))).astype(np.float32)
    margins = (x - x.mean(axis=0)) @ random.standard_normal(d)
    return full(x, halved(margins / margins.std() + NOISE * random.standard_normal(n)))


def clicks(n: int, d: int, random: np.random.Generator, fields: int = 20) -> Made:
    """A one in each of 20 fields, whose values have frequencies from common to once; a fifth of the rows is clicked."""
    each = d // fields
    values = making.zipf(random.random((n, fields)), each) + each * np.arange(fields)
    margins = random.standard_normal(d)[values].sum(axis=1) / fields**0.5 + random.standard_normal(n)
    y = np.where(margins > np.quantile(margins, 1 - CLICKED), 1, -1).astype(np.int8)
    indptr = np.arange(0, n * fields + 1, fields, dtype=np.int64)
    return Made(indptr, values.ravel().astype(np.int32), np.ones(values.size, np.float32), y)


def long_text(n: int, d: int, random: np.random.Generator) -> Made:
    """Documents of some thousand words."""
    return making.make(making.Shape(n, 0, d, 1500, seed=int(random.integers(2**31))))


def images(n: int, d: int, random: np.random.Generator) -> Made:
    """Pictures of grey, each a sum of blurred spots; one of ten drawings of spots is to be told from the others."""
    side = round(d**0.5)
    places, drawing = np.arange(side), random.integers(0, 10, n)
    spots = random.random((10, 6, 2)) * side
    x = np.zeros((n, side, side), np.float32)
    for k in range(spots.shape[1]):
        at = spots[drawing, k] + 1.5 * random.standard_normal((n, 2))
        tall, wide = (np.exp(-((places - at[:, axis, None]) ** 2) / 8.0).astype(np.float32) for axis in (0, 1))
        x += tall[:, :, None] * wide[:, None, :]
    x = np.minimum(1.0, x + 0.1 * random.random(x.shape, np.float32)).reshape(n, -1)
    return full(x.astype(np.float32), np.where(drawing == 0, 1, -1))


def scales(n: int, d: int, random: np.random.Generator) -> Made:
    """Logs of connections: few types, each of which comes again and again with small changes, in columns of shares,
    counts and bytes; their sizes differ by a factor of a million."""
    size = 10.0 ** np.linspace(-2, 4, d)
    types = np.exp(random.standard_normal((TYPES, d))) * (random.random((TYPES, d)) < 0.4)
    chosen = np.minimum(random.geometric(0.12, n) - 1, TYPES - 1)
    x = types[chosen] * np.exp(0.2 * random.standard_normal((n, d)))
    margins = (np.log1p(x) - np.log1p(x).mean(axis=0)) @ random.standard_normal(d)
    return full((x * size).astype(np.float32), halved(margins + 0.1 * margins.std() * random.standard_normal(n)))


def full(x: np.ndarray, y: np.ndarray) -> Made:
    """Rows that have every feature."""
    n, d = x.shape
    indptr = np.arange(0, n * d + 1, d, dtype=np.int64)
    return Made(indptr, np.tile(np.arange(d, dtype=np.int32), n), x.ravel(), y.astype(np.int8))


def halved(margins: np.ndarray) -> np.ndarray:
    return np.where(margins > np.median(margins), 1, -1)


KINDS = {
    "noisy_table": Kind(500_000, 28, noisy_table, "numbers, labels half noise"),
    "clicks": Kind(400_000, 2_000_000, clicks, "20 ones a row"),
    "long_text": Kind(8_000, 200_000, long_text, "documents of some thousand words"),
    "images": Kind(20_000, 784, images, "grey pictures, one class of ten"),
    "scales": Kind(200_000, 40, scales, "logs, columns of very different sizes"),
}
