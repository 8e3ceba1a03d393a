"""C. elegans acceptor splice sites as positional k-mers: a small FASTA file into shards of gigabytes.

    python jobs/celegans.py SOURCE OUT [-k 3] [--seed 0] [--memory 256MB] [--overwrite]

Each sequence of L bases becomes a row. For k = 1 .. K and each position p = 0 .. L-k the k-mer that begins there sets
one feature, offset_k + p 4^k + code, where A, C, G, T are the digits 0 .. 3 of its code and offset_k is the number of
features of the shorter k-mers. All values of a row are equal and make its length 1; the label is the one after
``label=`` in the header. The rows are written shuffled, a block at a time: memory does not grow with the file.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import itertools
import time
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np

from bigclf.conversion.convert import write_shards
from bigclf.units import format_bytes, format_seconds

BLOCK_NNZ = 2_000_000
LABELS = {b"-1": -1, b"1": 1, b"+1": 1}
DIGITS = np.full(256, 255, np.uint8)
DIGITS[list(b"ACGTacgt")] = [0, 1, 2, 3, 0, 1, 2, 3]


class Records(NamedTuple):
    """Some sequences: digits uint8 [m, L] and labels [m]."""

    digits: np.ndarray
    labels: np.ndarray


def open_text(path: str) -> IO[bytes]:
    """The file at ``path`` as bytes, decompressed by its ending."""
    openers = {"bz2": bz2.open, "gz": gzip.open}
    return openers.get(path.rsplit(".", 1)[-1], open)(path, "rb")  # type: ignore[operator, no-any-return]


def sequences(path: str) -> Iterator[tuple[int, bytes, int]]:
    """(label, sequence, line of its header) of each record."""
    with open_text(path) as file:
        label, line, parts = None, 0, list[bytes]()
        for number, text in enumerate(file, 1):
            if not text.startswith(b">"):
                parts.append(text.strip())
                continue
            if label is not None:
                yield label, b"".join(parts), line
            label, line, parts = label_of(text, path, number), number, []
        if label is not None:
            yield label, b"".join(parts), line


def label_of(header: bytes, path: str, line: int) -> int:
    """-1 or 1, after ``label=`` in a header; the program ends where there is neither."""
    label = LABELS.get(header.rpartition(b"label=")[2].strip())
    if label is None:
        raise SystemExit(f"{path}, line {line}: the header has no label=1 or label=-1")
    return label


def records(path: str, m: int) -> Iterator[Records]:
    """The sequences ``m`` at a time, all of the first one's length."""
    rows, length = sequences(path), 0
    while batch := list(itertools.islice(rows, m)):
        length = length or len(batch[0][1])
        for _, sequence, line in batch:
            if len(sequence) != length:
                raise SystemExit(f"{path}, line {line}: {len(sequence)} bases, the first sequence has {length}")
        digits = DIGITS[np.frombuffer(b"".join(s for _, s, _ in batch), np.uint8)].reshape(-1, length)
        if (bad := (digits > 3).any(axis=1)).any():
            raise SystemExit(f"{path}, line {batch[int(bad.argmax())][2]}: a base that is not A, C, G or T")
        yield Records(digits, np.array([label for label, _, _ in batch]))


def one_hot(digits: np.ndarray, longest: int) -> np.ndarray:
    """Features int32 or int64 [m, entries a row], ascending in each row."""
    m, length = digits.shape
    dtype = np.int32 if n_features(length, longest) < 2**31 else np.int64
    columns = []
    codes = np.zeros((m, length), dtype)
    for k in range(1, longest + 1):
        places = length - k + 1
        codes = codes[:, :places] * 4 + digits[:, k - 1 :]  # the k-mer at p: the (k-1)-mer at p, then one more base
        columns.append(codes + (n_features(length, k - 1) + np.arange(places) * 4**k).astype(dtype))
    return np.concatenate(columns, axis=1)


def n_features(length: int, longest: int) -> int:
    """How many features k = 1 .. ``longest`` have together."""
    return sum((length - k + 1) * 4**k for k in range(1, longest + 1))


def blocks(path: str, longest: int, classes: np.ndarray, m: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Rows as (indptr, indices, values, codes of the labels)."""
    for batch in records(path, m):
        indices = one_hot(batch.digits, longest)
        rows, width = indices.shape
        values = np.full(indices.size, 1 / np.sqrt(width), np.float32)
        indptr = np.arange(rows + 1, dtype=np.int64) * width
        yield indptr, indices.ravel(), values, np.searchsorted(classes, batch.labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", help="FASTA file, plain, .gz or .bz2")
    parser.add_argument("out", help="directory of the shards")
    parser.add_argument("-k", type=int, default=3, help="longest k-mer (3)")
    parser.add_argument("--seed", type=int, default=0, help="key of the shuffle (0)")
    parser.add_argument("--memory", default="256MB", help="what writing may allocate (256MB)")
    parser.add_argument("--overwrite", action="store_true", help="replace shards that are there")
    given = parser.parse_args()
    started = time.perf_counter()
    first = next(records(given.source, 1))
    length = first.digits.shape[1]
    m = max(1, BLOCK_NNZ // (length * given.k))
    classes = np.array([-1, 1])
    dataset = write_shards(
        blocks(given.source, given.k, classes, m),
        given.out,
        classes=classes,
        n_features=n_features(length, given.k),
        shuffle_rows=True,
        seed=given.seed,
        memory=given.memory,
        overwrite=given.overwrite,
    )
    size = format_bytes(sum(mark.size for mark in dataset.fingerprints))
    print(f"{given.out}: {dataset.n_rows:,} rows, {dataset.n_features:,} features, {dataset.nnz:,} non-zeros, "
          f"{size} in {len(dataset.files)} files, {format_seconds(time.perf_counter() - started)}")  # fmt: skip


if __name__ == "__main__":
    main()
