"""One passive-aggressive epoch over shards, reading included: rows a second of bigclf and of its peers.

    python jobs/pa_from_shards.py SHARDS [--repeats 5] [-C 0.1] [--memory 256MB] [--text ROWS.vw] [--dask]

All work in turn, from a warm page cache, and update once a row; medians are compared, compiling and starting come
before the clock.

* bigclf from Parquet: ``fit(SHARDS, algo="pa1", epochs=1)``, which keeps nothing on disk.
* bigclf from its raw store: the epochs after the first of a longer run; what building the store costs is the first
  epoch less one from Parquet.
* scikit-learn: PA-I by ``partial_fit`` on each row group as pyarrow decodes it.
* Vowpal Wabbit, with ``--text`` (the same rows in its own form) and its package: its default rule with the hinge loss
  from its own cache file.
* dask-ml's ``Incremental`` around scikit-learn's PA-I on two workers that read the shards, with ``--dask``.
"""

from __future__ import annotations

import argparse
import glob
import os
import statistics
import tempfile
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


def store_epochs(shards: str, C: float, memory: str, epochs: int) -> list[float]:
    """Seconds of the epochs of one run with a raw store: the first one fills it."""
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore", bigclf.errors.ConvergenceWarning)
        model = bigclf.fit(shards, algo="pa1", C=C, bias=None, epochs=epochs, memory=memory,
                           workers=bigclf.Workers(local_dir=place), progress=False)  # fmt: skip
    ends = [0.0] + [record["seconds"] for record in model.result_.history]
    return np.diff(ends).tolist()


def vowpal_wabbit(text: str, cache: str, n_features: int) -> Callable[[], Any]:
    """One pass over its cache file, which is made here."""
    from vowpalwabbit import pyvw

    words = (
        f"--quiet --noconstant --loss_function hinge --holdout_off -b {n_features.bit_length()} --cache_file {cache}"
    )
    reader = pyvw.Workspace(f"{words} -k -d {text}")
    reader.run_parser()
    reader.finish()

    def pass_over() -> None:
        workspace = pyvw.Workspace(words)
        workspace.run_parser()
        workspace.finish()

    return pass_over


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
    parser.add_argument("--text", help="the same rows as Vowpal Wabbit reads them")
    parser.add_argument("--dask", action="store_true", help="dask-ml too")
    given = parser.parse_args()
    facts = bigclf.Dataset(given.shards)
    store: list[list[float]] = []
    with tempfile.TemporaryDirectory() as place:
        contestants: dict[str, Callable[[], Any]] = {
            "bigclf": lambda: with_bigclf(given.shards, facts, given.C, given.memory),
            "scikit-learn": lambda: with_scikit_learn(given.shards, facts, given.C),
        }
        first = {name: function() for name, function in contestants.items()}  # warms cache and kernels, not counted
        difference = abs(first["bigclf"].coef_ - first["scikit-learn"].coef_).max()
        peak = first["bigclf"].result_.memory["peak"] / 1e6
        print(f"{facts.n_rows:,} rows, {facts.nnz:,} non-zeros; the weights differ by at most {difference:.1e}")
        print(f"bigclf's anonymous memory at its peak, interpreter and libraries included: {peak:.0f} MB")
        if given.text:
            contestants["Vowpal Wabbit"] = vowpal_wabbit(given.text, os.path.join(place, "cache"), facts.n_features)
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(given.repeats):
            for name, function in contestants.items():
                seconds[name].append(timed(function))
            store.append(store_epochs(given.shards, given.C, given.memory, 3))
            if given.dask:
                from cluster_speed import with_dask_ml

                given.epochs = 3  # its first two would be ours; one pass
                seconds.setdefault("dask-ml", []).extend(with_dask_ml(given.shards, given, in_memory=False))
    seconds["raw store"] = [second for epochs in store for second in epochs[1:]]
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    for name, median in medians.items():
        ratios = (
            f"{median / medians['bigclf']:.2f} x bigclf's, {median / medians['raw store']:.2f} x from the raw store"
        )
        print(f"{name:<14}{facts.n_rows / median:>12,.0f} rows/s   median {median:.3f} s   {ratios}")
    building = statistics.median(epochs[0] for epochs in store) - medians["bigclf"]
    print(f"building the raw store costs {building / medians['bigclf']:.2f} epochs")


if __name__ == "__main__":
    main()
