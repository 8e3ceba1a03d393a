"""Rows a second from a CSV file of categories: bigclf's columns to shards, beside scikit-learn's FeatureHasher.

    python jobs/columns_speed.py [--rows 200000] [--columns 20] [--times 3]

The file has so many columns of categories, skewed, from ten to a hundred thousand distinct each. scikit-learn's
pipeline is pandas' ``read_csv`` with text columns, a dictionary a row, and ``FeatureHasher``; it makes a matrix in
memory and writes nothing. bigclf parses, hashes, shuffles, compresses and writes. Both by one process, in turn; the
median of each and their ratio are printed, and whether the rows are the same.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from typing import Any

import numpy as np

import bigclf

BITS = 22


def write(path: str, rows: int, columns: int) -> None:
    """A CSV file of labels and categories."""
    random = np.random.default_rng(0)
    names = [f"c{k}" for k in range(columns)]
    sizes = np.geomspace(10, 100_000, columns).astype(int)
    values = [(random.zipf(1.3, rows) % size).astype(str) for size in sizes]
    with open(path, "w") as file:
        file.write(",".join(["label", *names]) + "\n")
        for k, row in enumerate(zip(*values, strict=True)):
            file.write(f"{k % 2}," + ",".join(f"value{value}" for value in row) + "\n")


def ours(path: str, out: str, columns: int) -> Any:
    from bigclf.features.spec import columns as spec

    features = spec(label="label", categorical=[f"c{k}" for k in range(columns)], hash_bits=BITS)
    return bigclf.convert(path, out, format="csv", features=features, workers=1, shuffle=False, overwrite=True)


def theirs(path: str) -> Any:
    import pandas as pd
    from sklearn.feature_extraction import FeatureHasher

    frame = pd.read_csv(path, dtype=str)
    labels = frame.pop("label")
    return FeatureHasher(2**BITS).transform(frame.to_dict("records")), labels


def same(dataset: Any, matrix: Any) -> bool:
    """Whether the shards hold the rows of the matrix."""
    import scipy.sparse

    first = 0
    for place in dict.fromkeys(zip(dataset.chunks.file.tolist(), dataset.chunks.row_group.tolist(), strict=True)):
        block = dataset.decode(*place)
        values = block.values if block.values.size else np.ones(block.nnz)
        parts = (values, block.indices.astype(np.int64), block.indptr)
        rows = scipy.sparse.csr_matrix(parts, shape=(block.n_rows, dataset.n_features))
        if abs(rows - matrix[first : first + block.n_rows]).max() > 0:
            return False
        first += block.n_rows
    return first == matrix.shape[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--times", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        path, out = os.path.join(scratch, "rows.csv"), os.path.join(scratch, "shards")
        write(path, asked.rows, asked.columns)
        print(f"{asked.rows:,} rows of {asked.columns} categories, {os.path.getsize(path) / 1e6:.0f} MB")
        ours(path, out, asked.columns)  # compiles, or loads what was compiled
        seconds = np.empty((asked.times, 2))
        for k in range(asked.times):
            began = time.perf_counter()
            dataset = ours(path, out, asked.columns)
            middle = time.perf_counter()
            matrix, _ = theirs(path)
            seconds[k] = middle - began, time.perf_counter() - middle
        rates = asked.rows / np.median(seconds, axis=0)
        print(f"bigclf {rates[0]:,.0f} rows/s, FeatureHasher {rates[1]:,.0f} rows/s: {rates[0] / rates[1]:.1f} times, "
              f"load {os.getloadavg()[0]:.1f}")  # fmt: skip
        print("the same rows" if same(dataset, matrix) else "OTHER ROWS")


if __name__ == "__main__":
    main()
