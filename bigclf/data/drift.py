"""Whether the shards of a dataset are alike: labels and lengths of rows that differ more than chance makes them.

Shards that were shuffled are alike; those that were made day by day need not be, and then online methods learn the
last one best and figures depend on which are held out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigclf.data import files
from bigclf.data.dataset import Dataset
from bigclf.errors import masked

DOUBT = 1e-6  # a warning is wrong so often, over all shards of a dataset whose rows are in random order
LEAST = 5.0  # rows of a class that are expected in a shard; rarer classes count as one
RELEVANT = 0.02  # differences of shares, and of lengths relative to the mean, that anyone cares about


class Shard(NamedTuple):
    """What is known of one: name, rows, entries a row, its share of each class [K] (None: labels are numbers), largest
    norm of a row."""

    name: str
    n_rows: int
    row_nnz: float
    shares: np.ndarray | None
    largest_norm: float


def shards_of(dataset: Dataset) -> list[Shard]:
    """What the footers say of each shard; none of files that bigclf did not write."""
    facts = dataset.by_file() or []
    found = []
    for path, told in zip(dataset.files, facts, strict=False):
        shares = None
        if dataset.classes is not None:
            counts = np.array([told.counts.get(label, 0) for label in dataset.classes.tolist()], np.float64)
            shares = counts / max(told.n_rows, 1)
        name = masked(files.base_name(path))
        found.append(Shard(name, told.n_rows, told.nnz / max(told.n_rows, 1), shares, told.max_norm**0.5))
    return found


def drift(dataset: Dataset, found: list[Shard]) -> list[str]:
    """Warnings of shards that are not like the others."""
    return [*_labels(dataset, found), *_lengths(dataset, found)]


def _labels(dataset: Dataset, found: list[Shard]) -> list[str]:
    """Pearson's chi-squared test of each shard's classes against the whole, for so many shards at once."""
    from scipy.stats import chi2

    if dataset.classes is None or dataset.classes.size < 2 or len(found) < 2:
        return []
    whole = dataset.class_counts / max(dataset.n_rows, 1)
    unlike = []
    for shard in found:
        assert shard.shares is not None
        seen, expected = _pooled(shard.shares * shard.n_rows, whole * shard.n_rows)
        # without replacement: the more of all rows a shard has, the less it can differ
        rest = max(1 - shard.n_rows / max(dataset.n_rows, 1), 1e-9)
        statistic = float(((seen - expected) ** 2 / expected).sum()) / rest if expected.size > 1 else 0.0
        largest = float(np.abs(shard.shares - whole).max())
        if largest > RELEVANT and chi2.sf(statistic, expected.size - 1) < DOUBT / len(found):
            unlike.append((largest, shard, int(np.abs(shard.shares - whole).argmax())))
    if not unlike:
        return []
    _, shard, k = max(unlike, key=lambda one: one[0])
    assert shard.shares is not None
    mine, all_ = 100 * shard.shares[k], 100 * whole[k]
    return [f"{len(unlike)} of {len(found)} shards have other shares of the classes than chance explains: in "
            f"{shard.name} {mine:.1f} % of the rows are {dataset.classes[k].item()!r}, in all {all_:.1f} %; convert "
            "all sources together, shuffled, or hold out whole shards to see how a model ages"]  # fmt: skip


def _pooled(seen: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts with the rare classes as one; none where even that is rare."""
    rare = expected < LEAST
    seen, expected = (np.append(a[~rare], a[rare].sum()) for a in (seen, expected))
    return (seen, expected) if expected[-1] >= LEAST else (seen[:-1], expected[:-1])


def _lengths(dataset: Dataset, found: list[Shard]) -> list[str]:
    """Student's test of each shard's entries a row against the whole; chunks of the same shard tell how far chance
    goes."""
    from scipy.stats import t as student

    chunks = dataset.chunks
    means = chunks.nnz / np.maximum(chunks.rows, 1)
    own = np.array([one.row_nnz for one in found])
    freedom = chunks.file.size - len(found)
    if len(found) < 2 or freedom < 3:
        return []
    variance = float((chunks.rows * (means - own[chunks.file]) ** 2).sum()) / freedom  # of a row, chunks' means tell
    whole = dataset.nnz / max(dataset.n_rows, 1)
    unlike = []
    for one in found:
        spread = max((variance / max(one.n_rows, 1)) ** 0.5, 1e-12)
        far = abs(one.row_nnz - whole)
        if far > RELEVANT * max(whole, 1e-12) and 2 * student.sf(far / spread, freedom) < DOUBT / len(found):
            unlike.append((far, one))
    if not unlike:
        return []
    _, worst = max(unlike, key=lambda pair: pair[0])
    return [f"{len(unlike)} of {len(found)} shards have rows of another length than chance explains: {worst.name} has "
            f"{worst.row_nnz:.1f} non-zeros a row, all have {whole:.1f}"]  # fmt: skip


def table(dataset: Dataset, found: list[Shard], classes: int = 4) -> list[dict[str, Any]]:
    """A line a shard, with the shares of the first ``classes`` classes."""
    lines = []
    for shard in found:
        line: dict[str, Any] = {"shard": shard.name, "rows": shard.n_rows, "nnz_a_row": shard.row_nnz,
                                "largest_norm": shard.largest_norm}  # fmt: skip
        if shard.shares is not None:
            names = [str(label) for label in dataset.classes[:classes].tolist()]
            line["shares"] = dict(zip(names, shard.shares[:classes].tolist(), strict=True))
        lines.append(line)
    return lines
