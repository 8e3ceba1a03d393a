"""What a cluster costs beside the learning: the driver's own time, its memory and the scheduler's, bytes moved.

    python jobs/cluster_overhead.py [--epochs 50] [--only tasks|groups|dense|sparse]

tasks : 64 workers in this process, 1,000 groups: processor time of the driver's own thread a task (deciding, taking in
    results, mixing; Dask's thread not counted), and resident memory of this process over the epochs. The same with
    scheduler and two workers in processes of their own, where all of this process is the driver.
groups : 10,000 groups of a few rows on one worker.
dense : a state of 128 MB that changes in every coordinate, two worker processes and a scheduler process: bytes moved
    an epoch, and the scheduler's memory before and after.
sparse : 16 M features of which 1 % are touched: bytes moved an epoch over those of the dense state.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import scipy.sparse
from distributed import Client, LocalCluster

import bigclf

MB = 1e6


def rows(n: int, n_features: int, nnz: int, touched: int | None = None, seed: int = 0) -> tuple[Any, np.ndarray]:
    """n random rows of ``nnz`` entries among the first ``touched`` features, and labels they almost determine."""
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, touched or n_features, (n, nnz), dtype=np.int64)
    values = rng.normal(size=(n, nnz)).astype(np.float32)
    matrix = scipy.sparse.csr_matrix((values.ravel(), columns.ravel(), np.arange(0, n * nnz + 1, nnz)), (n, n_features))
    matrix.sum_duplicates()
    return matrix, np.where(values.sum(axis=1) + rng.normal(size=n) > 0, 1, -1)


def fit(x: Any, y: np.ndarray, client: Client, **options: Any) -> bigclf.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bigclf.fit(x, y, workers=client, progress=False, **({"algo": "pa1"} | options))


class Watch:
    """A line an epoch: processor time of this thread and this process (s), bytes moved, resident memory of this
    process and others (MB)."""

    def __init__(self, *others: psutil.Process) -> None:
        self.processes = [psutil.Process(), *others]
        self.lines: list[tuple[float, ...]] = []

    def __call__(self, record: dict[str, Any]) -> None:
        memory = [process.memory_info().rss / MB for process in self.processes]
        self.lines.append((time.thread_time(), time.process_time(), record.get("bytes_moved", 0), *memory))


def tasks(epochs: int) -> None:
    x, y = rows(20_000, 1_000, 10)
    many = dict(n_workers=64, threads_per_worker=1, processes=False, memory_limit=0, dashboard_address=None)
    with LocalCluster(**many) as cluster, Client(cluster) as client:
        watch = Watch()
        fit(x, y, client, groups=1_000, epochs=epochs, callbacks=[watch])
    own = [b[0] - a[0] for a, b in zip(watch.lines, watch.lines[1:], strict=False)]
    whole = [b[1] - a[1] for a, b in zip(watch.lines, watch.lines[1:], strict=False)]
    print(f"tasks   64 workers, 1,000 groups, {epochs} epochs: the driver's own time is {np.median(own):.2f} ms a task "
          f"(driver, scheduler and workers together {np.median(whole):.2f} ms)")  # fmt: skip
    shown = [watch.lines[k][3] for k in (min(4, len(watch.lines) - 1), len(watch.lines) // 2, -1)]
    print(f"        memory of this process after 5, {epochs // 2}, {epochs} epochs: "
          + ", ".join(f"{m:.0f}" for m in shown) + " MB")  # fmt: skip

    def work(client: Client, scheduler: psutil.Process) -> None:
        watch = Watch(scheduler)
        fit(x, y, client, groups=100, epochs=epochs, callbacks=[watch])
        spent = [(b[1] - a[1]) / 100 for a, b in zip(watch.lines, watch.lines[1:], strict=False)]
        memory = [[round(line[k]) for k in (3, 4)] for line in (watch.lines[len(watch.lines) // 10], watch.lines[-1])]
        print(f"        scheduler and 2 workers apart, 100 groups: the driver's process takes "
              f"{1000 * np.median(spent):.2f} ms a task; driver and scheduler {memory[0]} MB early, {memory[1]} MB at "
              "the end")  # fmt: skip

    apart(work)


def groups(epochs: int) -> None:
    x, y = rows(30_000, 1_000, 10)
    one = dict(n_workers=1, threads_per_worker=1, dashboard_address=None)
    with LocalCluster(**one) as cluster, Client(cluster) as client:
        started = time.perf_counter()
        model = fit(x, y, client, groups=10_000, epochs=2)
        print(f"groups  10,000 groups on one worker: {model.result_.epochs} epochs in "
              f"{time.perf_counter() - started:.1f} s")  # fmt: skip


def apart(work: Callable[[Client, psutil.Process], None]) -> None:
    """Scheduler and two workers in processes of their own."""
    with tempfile.TemporaryDirectory() as directory:
        file = str(Path(directory) / "scheduler.json")
        dask = [sys.executable, "-m", "distributed.cli."]
        quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        scheduler = subprocess.Popen(
            [*dask[:2], dask[2] + "dask_scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", file], **quiet
        )
        worker = [*dask[:2], dask[2] + "dask_worker", "--nthreads", "1", "--no-dashboard", "--memory-limit", "0",
                  "--scheduler-file", file]  # fmt: skip
        workers = [subprocess.Popen(worker, **quiet) for _ in range(2)]
        try:
            with Client(scheduler_file=file) as client:
                client.wait_for_workers(2)
                work(client, psutil.Process(scheduler.pid))
        finally:
            for process in (*workers, scheduler):
                process.terminate()
                process.wait()


def moved(watch: Watch) -> list[float]:
    """Bytes moved in each epoch but the first, in MB."""
    return [(b[2] - a[2]) / MB for a, b in zip(watch.lines, watch.lines[1:], strict=False)]


def dense(epochs: int) -> None:
    n_features = 16_000_000
    x, y = rows(80_000, n_features, 400)

    def work(client: Client, scheduler: psutil.Process) -> None:
        watch, before = Watch(scheduler), scheduler.memory_info().rss / MB
        fit(x, y, client, groups=2, epochs=4, callbacks=[watch], algo="averaged_perceptron", memory="8GB")
        state = 2 * 8 * (n_features + 1) / MB
        print(f"dense   a state of {state:.0f} MB, two workers: {moved(watch)} MB an epoch, to both and back "
              f"({[round(m / state, 2) for m in moved(watch)]} states); scheduler {before:.0f} MB before, "
              f"at most {max(line[4] for line in watch.lines):.0f} MB after")  # fmt: skip

    apart(work)


def sparse(epochs: int) -> None:
    n_features = 16_000_000
    x, y = rows(20_000, n_features, 30, touched=n_features // 100)

    def work(client: Client, scheduler: psutil.Process) -> None:
        watch = Watch(scheduler)
        fit(x, y, client, groups=2, epochs=5, callbacks=[watch])
        whole = 2 * 2 * 8 * (n_features + 1) / MB  # to two workers and back
        shares = [100 * m / whole for m in moved(watch)]
        print(f"sparse  16 M features, at most 1 % touched: {[round(m, 1) for m in moved(watch)]} MB an epoch, "
              f"{max(shares):.1f} % of the dense state to two workers and back")  # fmt: skip

    apart(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=50, help="of the first part (50)")
    parser.add_argument("--only", choices=["tasks", "groups", "dense", "sparse"], help="one part")
    given = parser.parse_args()
    for part in (tasks, groups, dense, sparse):
        if given.only in (None, part.__name__):
            part(given.epochs)


if __name__ == "__main__":
    main()
