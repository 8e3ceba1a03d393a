"""Rows a second of passive-aggressive epochs on worker processes of this machine, against fewer and against dask-ml.

    python jobs/cluster_speed.py SHARDS [--repeats 3] [--epochs 6] [--memory 600MB]

In turn, ``--repeats`` times, over the same shards: two workers of one thread with a group each; one such worker with
both groups; this process with two threads; and, where dask-ml is installed, its ``Incremental`` around scikit-learn's
PA-I on two workers, with its partitions in their memory before the clock starts, and reading Parquet in each pass. A
run's first epochs decode Parquet and fill the raw stores and are not counted. Medians of the epochs are compared, by
ratio.
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
from distributed import Client, LocalCluster, wait

import bigclf


def epochs_of(shards: str, given: argparse.Namespace, **how: Any) -> list[float]:
    """Seconds of each epoch but the first two: in the second a group may go to a worker that has not read it yet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bigclf.errors.ConvergenceWarning)
        model = bigclf.fit(shards, algo="pa1", C=0.1, bias=None, epochs=given.epochs, memory=given.memory, groups=2,
                           progress=False, **how)  # fmt: skip
    ends = [record["seconds"] for record in model.result_.history]
    return list(np.diff(ends)[1:])


def on_workers(n: int, shards: str, given: argparse.Namespace) -> list[float]:
    with processes(n) as cluster, Client(cluster) as client:
        return epochs_of(shards, given, workers=bigclf.Workers(client, threads=1))


def processes(n: int) -> LocalCluster:
    return LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=None, memory_limit=0)


def with_dask_ml(shards: str, given: argparse.Namespace, in_memory: bool) -> list[float]:
    """dask-ml's Incremental on two workers, its partitions in their memory or read from Parquet in each pass."""
    import dask.array as da
    from dask import delayed
    from dask_ml.wrappers import Incremental
    from pa_from_shards import online_learner

    facts = bigclf.Dataset(shards)
    paths = sorted(glob.glob(os.path.join(shards, "part-*.parquet")))
    with processes(2) as cluster, Client(cluster) as client:
        rows = [delayed(rows_of_file)(path, facts.n_features) for path in paths]
        labels = [delayed(labels_of_file)(path) for path in paths]
        sizes = client.gather([client.submit(len_of_file, path) for path in paths])
        x = da.concatenate([
            da.from_delayed(r, (n, facts.n_features), np.float32) for r, n in zip(rows, sizes, strict=True)
        ])  # fmt: skip
        y = da.concatenate([da.from_delayed(r, (n,), np.float64) for r, n in zip(labels, sizes, strict=True)])
        if in_memory:
            x, y = client.persist([x, y])
            wait([x, y])
        learner = Incremental(online_learner(0.1), shuffle_blocks=False)
        seconds = []
        for _ in range(given.epochs - 2):
            started = time.perf_counter()
            learner.partial_fit(x, y, classes=facts.classes)
            seconds.append(time.perf_counter() - started)
        return seconds


def rows_of_file(path: str, n_features: int) -> Any:
    import pyarrow.parquet as pq
    from pa_from_shards import csr

    return csr(pq.read_table(path, columns=["indices", "values"]).combine_chunks(), n_features)


def labels_of_file(path: str) -> np.ndarray:
    import pyarrow.parquet as pq

    return pq.read_table(path, columns=["label"])["label"].to_numpy()


def len_of_file(path: str) -> int:
    import pyarrow.parquet as pq

    return int(pq.ParquetFile(path).metadata.num_rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("shards", help="directory of shards with two classes")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each (3)")
    parser.add_argument("--epochs", type=int, default=6, help="epochs of a run (6)")
    parser.add_argument("--memory", default="600MB", help="budget of each process (600MB)")
    given = parser.parse_args()
    n_rows = bigclf.Dataset(given.shards).n_rows
    contestants: dict[str, Callable[[], list[float]]] = {
        "2 workers": lambda: on_workers(2, given.shards, given),
        "1 worker": lambda: on_workers(1, given.shards, given),
        "this process": lambda: epochs_of(given.shards, given, workers=bigclf.Workers(threads=2)),
    }
    try:
        import dask_ml  # noqa: F401

        contestants["dask-ml in memory"] = lambda: with_dask_ml(given.shards, given, True)
        contestants["dask-ml from Parquet"] = lambda: with_dask_ml(given.shards, given, False)
    except ImportError:
        print("dask-ml is not installed: it is left out")
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(given.repeats):
        for name, function in contestants.items():
            seconds[name] += function()
    rates = {name: n_rows / statistics.median(times) for name, times in seconds.items()}
    for name, rate in rates.items():
        print(f"{name:<21}{rate:>12,.0f} rows/s   2 workers against it: {rates['2 workers'] / rate:.2f}   "
              f"epochs {min(seconds[name]):.2f} to {max(seconds[name]):.2f} s")  # fmt: skip


if __name__ == "__main__":
    main()
