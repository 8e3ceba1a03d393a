"""Sparse rows for the demo: skewed features like words, a planted separator, noise; made a block at a time as text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bigclf import files
from bigclf.benchmarks.texts import Rows, Texts, in_order
from bigclf.progress import Watcher

MEAN_LENGTH, SPREAD = 80, 40  # entries of a row: uniform in 80 +- 40, before repeats fall out
BLOCK_ROWS = 10_000
NOISE = 0.15  # of the planted score's own spread


def separator(n_features: int, seed: int) -> np.ndarray:
    """Planted weights, float64 [n_features]."""
    return np.random.default_rng([seed, 0]).normal(size=n_features)


def make_rows(n_rows: int, planted: np.ndarray, rng: np.random.Generator) -> Rows:
    """Rows whose features fall off like 1 / rank^(2/3), values in 0.050 ... 0.200, labels by ``planted`` and noise."""
    d, longest = planted.size, MEAN_LENGTH + SPREAD
    u = rng.random((n_rows, longest), dtype=np.float32)
    drawn = (u * u * u * d).astype(np.int32)
    np.minimum(drawn, d - 1, out=drawn)
    lengths = rng.integers(MEAN_LENGTH - SPREAD, longest + 1, n_rows)
    drawn[np.arange(longest) >= lengths[:, None]] = d  # beyond the end of its row
    drawn.sort(axis=1)
    keep = drawn < d
    keep[:, 1:] &= drawn[:, 1:] != drawn[:, :-1]
    counts = keep.sum(axis=1)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    indices = drawn[keep]
    levels = rng.integers(50, 201, indices.size, dtype=np.uint8)
    scores = np.add.reduceat(planted[indices] * levels, indptr[:-1]) / np.sqrt(counts)
    scale = 130.0  # root mean square of a level
    noisy = scores / scale + NOISE * rng.normal(size=n_rows)
    return Rows(indptr, indices, levels, np.where(noisy >= 0, 1, -1))


Text = tuple[int, int, memoryview]  # rows, non-zeros, their lines


def texts(n_rows: int, n_features: int, seed: int, part: int, threads: int = 2) -> Iterator[Text]:
    """The blocks in order, some made ahead; ``part`` 1 trains and 2 tests."""
    planted, table = separator(n_features, seed), Texts(n_features)

    def make(number: int) -> Text:
        rng = np.random.default_rng([seed, part, number])
        rows = make_rows(min(BLOCK_ROWS, n_rows - number * BLOCK_ROWS), planted, rng)
        return rows.y.size, rows.indices.size, table.lines(rows)

    return in_order(make, (n_rows + BLOCK_ROWS - 1) // BLOCK_ROWS, threads)


def write_text(path: str, n_rows: int, n_features: int, seed: int, part: int, progress: Watcher | None = None) -> int:
    """Write svmlight text; its non-zeros."""
    total = 0
    with files.publishing(path) as beside, files.open_binary(beside, "wb") as file:
        for rows, nnz, text in texts(n_rows, n_features, seed, part):
            file.write(text)
            total += nnz
            if progress is not None:
                progress.advance(rows, len(text))
        file.write(b"\n")
    return total
