"""Whether the shards of a dataset are alike: labels, lengths of rows and features that differ more than chance makes
them.

Shards that were shuffled are alike; those that were made day by day need not be, and then online methods learn the
last one best and figures depend on which are held out.
"""

from __future__ import annotations

from typing import NamedTuple, NotRequired, TypedDict

import numpy as np

from bigclf import files
from bigclf.data.arrays import counted_from
from bigclf.data.dataset import Dataset
from bigclf.errors import DataError, masked

DOUBT = 1e-6  # a warning is wrong so often, over all shards of a dataset whose rows are in random order
LEAST = 5.0  # rows of a class that are expected in a shard; rarer classes count as one
LOOKED_AT = 32  # shards whose features are looked at, evenly spread, and of each the first chunk
FREQUENT = 256  # features that are compared: those in most of the rows
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
        if dataset.classes is not None and dataset.sets is None:
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

    if dataset.classes is None or dataset.sets is not None or dataset.classes.size < 2 or len(found) < 2:
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


def features_used(dataset: Dataset, found: list[Shard]) -> list[str]:
    """In how many rows a feature stands, in the first chunk of each of a few shards against all of these: the
    hypergeometric test, for the features that are in most rows."""
    from scipy.stats import hypergeom

    filled = [file for file, shard in enumerate(found) if shard.n_rows]
    if len(filled) < 2:
        return []
    files_at = np.array(filled)[np.unique(np.linspace(0, len(filled) - 1, min(len(filled), LOOKED_AT)).astype(int))]
    n, seen = np.zeros(files_at.size), list[tuple[np.ndarray, np.ndarray]]()
    for s, file in enumerate(files_at.tolist()):
        try:
            rows = dataset._read(file, 0)
        except DataError as error:
            return [f"features were not compared, for a shard cannot be read (bigclf validate says more): {error}"]
        n[s] = rows.indptr.size - 1
        seen.append(np.unique(rows.indices, return_counts=True))
    totals = np.unique(np.concatenate([ids for ids, _ in seen]), return_inverse=True)
    sums = np.bincount(totals[1], np.concatenate([counts for _, counts in seen]), totals[0].size)
    ids = np.sort(totals[0][np.argsort(-sums, kind="stable")[:FREQUENT]])
    counts = np.stack([_counts_of(ids, *one) for one in seen])  # [shard, feature]
    whole = counts.sum(0) / max(n.sum(), 1)
    far = np.abs(counts / np.maximum(n, 1)[:, None] - whole)
    chance = hypergeom(n.sum(), counts.sum(0), n[:, None])
    doubt = 2 * np.minimum(chance.cdf(counts), chance.sf(counts - 1))
    unlike = (far > RELEVANT) & (doubt < DOUBT / max(doubt.size, 1))
    if not unlike.any():
        return []
    s, k = divmod(int(np.where(unlike, far, 0).argmax()), far.shape[1])
    number = int(ids[k]) + counted_from(dataset.features)
    told = f"feature {number} stands in {100 * counts[s, k] / n[s]:.1f} % of the rows looked at"
    return [f"{int(unlike.any(1).sum())} of {len(n)} shards looked at use features otherwise than chance explains: in "
            f"{found[files_at[s]].name} {told}, in all in {100 * whole[k]:.1f} %; what makes features may have changed "
            "between them"]  # fmt: skip


def _counts_of(wanted: np.ndarray, ids: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """How often each of ``wanted`` occurs, both ascending."""
    at = np.minimum(np.searchsorted(ids, wanted), ids.size - 1)
    return np.where(ids[at] == wanted, counts[at], 0).astype(np.float64) if ids.size else np.zeros(wanted.size)


class ShardFigures(TypedDict):
    """A shard in a line of a table; ``shares`` of the first classes."""

    shard: str
    rows: int
    nnz_a_row: float
    largest_norm: float
    shares: NotRequired[dict[str, float]]


def table(dataset: Dataset, found: list[Shard], classes: int = 4) -> list[ShardFigures]:
    """A line a shard, with the shares of the first ``classes`` classes."""
    lines = []
    for shard in found:
        line: ShardFigures = {"shard": shard.name, "rows": shard.n_rows, "nnz_a_row": shard.row_nnz,
                                "largest_norm": shard.largest_norm}  # fmt: skip
        if shard.shares is not None:
            names = [str(label) for label in dataset.classes[:classes].tolist()]
            line["shares"] = dict(zip(names, shard.shares[:classes].tolist(), strict=True))
        lines.append(line)
    return lines
