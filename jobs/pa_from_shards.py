"""One passive-aggressive pass over shards on disk, reading included: rows a second of bigclf and of scikit-learn.

    python jobs/pa_from_shards.py SHARDS [--repeats 5] [-C 0.1] [--memory 256MB]

Both read the same files from a warm page cache and update once a row (PA-I), in one process: bigclf by
``fit(SHARDS, algo="pa1", epochs=1)``, scikit-learn by ``partial_fit`` on each row group as pyarrow decodes it. They
take turns; the medians are compared. Compiling comes before the clock.
"""

from __future__ import annotations

import argparse
import glob
import os
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse
import sklearn
from sklearn.linear_model import SGDClassifier

import bigclf


def online_learner(C: float) -> Any:
    """scikit-learn's PA-I: a step rule of its SGD since 1.8, a class of its own before."""
    if tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8):
        rule = dict(loss="hinge", penalty=None, learning_rate="pa1", eta0=C)
        return SGDClassifier(fit_intercept=False, shuffle=False, **rule)
    from sklearn.linear_model import PassiveAggressiveClassifier

    return PassiveAggressiveClassifier(C=C, fit_intercept=False, shuffle=False)


def with_scikit_learn(shards: str, facts: Any, C: float) -> Any:
    """One pass by partial_fit, row group by row group."""
    learner = online_learner(C)
    for path in sorted(glob.glob(os.path.join(shards, "part-*.parquet"))):
        file = pq.ParquetFile(path)
        for row_group in range(file.num_row_groups):
            table = file.read_row_group(row_group)
            learner.partial_fit(csr(table, facts.n_features), table["label"].to_numpy(), classes=facts.classes)
    return learner


def csr(table: Any, n_features: int) -> scipy.sparse.csr_matrix:
    """A row group's lists as a matrix, their memory taken over as it is."""
    indices = table["indices"].chunk(0)
    entries = indices.flatten().to_numpy()
    if "values" in table.column_names:
        values = table["values"].chunk(0).flatten().to_numpy()
    else:
        values = np.ones(entries.size, np.float32)
    lists = (values, entries, indices.offsets.to_numpy())
    return scipy.sparse.csr_matrix(lists, (len(indices), n_features), copy=False)


def with_bigclf(shards: str, facts: Any, C: float, memory: str) -> Any:
    """The same pass."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bigclf.errors.ConvergenceWarning)  # one epoch is all that it is asked for
        return bigclf.fit(shards, algo="pa1", C=C, bias=None, epochs=1, memory=memory, progress=False)


def timed(function: Callable[[], Any]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shards", help="directory of shards with two classes")
    parser.add_argument("--repeats", type=int, default=5, help="passes of each (5)")
    parser.add_argument("-C", type=float, default=0.1, help="price of slack (0.1)")
    parser.add_argument("--memory", default="256MB", help="bigclf's budget (256MB)")
    given = parser.parse_args()
    facts = bigclf.Dataset(given.shards)
    contestants: dict[str, Callable[[], Any]] = {
        "bigclf": lambda: with_bigclf(given.shards, facts, given.C, given.memory),
        "scikit-learn": lambda: with_scikit_learn(given.shards, facts, given.C),
    }
    first = {name: function() for name, function in contestants.items()}  # warms cache and kernels, is not counted
    difference = abs(first["bigclf"].coef_ - first["scikit-learn"].coef_).max()
    print(f"{facts.n_rows:,} rows, {facts.nnz:,} non-zeros; the weights differ by at most {difference:.1e}")
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(given.repeats):
        for name, function in contestants.items():
            seconds[name].append(timed(function))
    rates = {name: facts.n_rows / statistics.median(times) for name, times in seconds.items()}
    for name, rate in rates.items():
        print(f"{name:<13}{rate:>12,.0f} rows/s   median of {given.repeats}: {statistics.median(seconds[name]):.3f} s")
    print(f"ratio        {rates['bigclf'] / rates['scikit-learn']:>12.2f}")


if __name__ == "__main__":
    main()
