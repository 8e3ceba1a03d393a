"""Seconds of two workers, a core and a thread each, against one process with one core and one thread.

    python jobs/two_workers.py TRAIN TEST OUT [--lines pa2,newton,dcd,classes,sweep,evaluate,predict] [--rounds 3]

TRAIN and TEST are Parquet files (globs) with two classes; OUT takes what is written. The lines run in turn, one
process, then two workers, ``--rounds`` times; each run is a process of its own, and the workers stand before the
clock starts. They look at themselves once a second, as those of ``--workers`` do. Averaged PA-II counts its epochs
after the first, the others the whole call. A sweep of eight values and five folds is forty trainings and one more: of a
million rows four minutes of a core, so ``--folds 0`` is for a short look. For ``classes`` the rows get one of twenty
labels, of the drawn direction that they look most along; they are written to OUT/classes once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

LINES = ("pa2", "newton", "dcd", "classes", "sweep", "evaluate", "predict")
MEMORY = "3GB"
C_VALUES = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0]


def classes_of(train: str, out: Path) -> str:
    """The rows of TRAIN with twenty classes: which of twenty drawn directions a row looks most along."""
    import glob

    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    out.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(sorted(glob.glob(train))):
        to = out / f"part-{number:03}.parquet"
        if to.exists():
            continue
        table = pq.read_table(path).combine_chunks()
        features = table["indices"].combine_chunks()
        lengths = np.diff(features.offsets.to_numpy())
        ids = features.flatten().to_numpy().astype(np.int64)
        values = table["values"].combine_chunks().flatten().to_numpy()
        rows = np.repeat(np.arange(len(lengths)), lengths)
        scores = np.empty((len(lengths), 20))
        for k in range(20):  # a weight of each feature and class, from a counter: no array of d x 20
            mixed = (ids * 20 + k + 1).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
            weight = (mixed >> np.uint64(40)).astype(np.float64) / 2.0**24 - 0.5
            scores[:, k] = np.bincount(rows, weight * values, minlength=len(lengths))
        at = table.schema.get_field_index("label")
        table = table.set_column(at, "label", pa.array(scores.argmax(axis=1).astype(np.float64)))
        pq.write_table(table, f"{to}.part", row_group_size=50_000)
        os.replace(f"{to}.part", to)
    return str(out / "part-*.parquet")


def run(line: str, given: argparse.Namespace, workers: Any) -> float:
    """Seconds of one line."""
    import bigclf

    out, apart = Path(given.out), workers if isinstance(workers, bigclf.Workers) and workers.where is not None else None
    common: dict[str, Any] = dict(memory=MEMORY, progress=False, workers=workers)
    if line in ("evaluate", "predict"):  # both have loaded what they need before the clock starts
        if not (out / "model.bigclf").exists():
            bigclf.fit(given.train, algo="pa1", epochs=1, memory=MEMORY, progress=False).save(out / "model.bigclf")
        model = bigclf.load(out / "model.bigclf")
        bigclf.evaluate(model, given.test, workers=apart and apart.where)
        bigclf.predict(model, given.test, str(out / "warm.parquet"), overwrite=True, workers=apart and apart.where)
    started = time.perf_counter()
    if line == "pa2":
        model = bigclf.fit(given.train, algo="averaged_pa2", C=0.1, epochs=6, groups=2, **common)
        ends = [record["seconds"] for record in model.result_.history]
        print(json.dumps(ends), file=sys.stderr)
        return (ends[-1] - ends[0]) / (len(ends) - 1)
    if line == "newton":
        model = bigclf.fit(given.train, algo="newton", loss="logistic", C=1.0, tol=1e-4, **common)
    elif line == "dcd":
        model = bigclf.fit(given.train, algo="dcd", loss="hinge", C=1.0, tol=1e-3, **common)
    elif line == "classes":
        model = bigclf.fit(
            classes_of(given.train, out / "classes"), algo="dcd", loss="hinge", C=0.1, tol=1e-2, **common
        )
    elif line == "sweep":
        rows = {"folds": given.folds} if given.folds else {"folds": 0, "validate": given.test}
        bigclf.sweep(given.train, algo="dcd", loss="hinge", grid={"C": C_VALUES}, tol=1e-2, **rows, **common)
    elif line == "evaluate":
        bigclf.evaluate(model, given.train, workers=apart and apart.where)
    else:
        bigclf.predict(model, given.train, str(out / f"scores-{os.getpid()}.parquet"), workers=apart and apart.where)
    seconds = time.perf_counter() - started
    if line in ("newton", "dcd", "classes"):
        print(model.result_, [round(r["seconds"], 2) for r in model.result_.history], file=sys.stderr)
    return seconds


def child(line: str, how: str, given: argparse.Namespace) -> None:
    import bigclf

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bigclf.errors.ConvergenceWarning)
        if how == "one":
            print(run(line, given, bigclf.Workers(threads=1)))
            return
        import dask
        from distributed import Client, LocalCluster

        with (
            dask.config.set({"distributed.admin.tick.interval": "1s", "distributed.worker.profile.interval": "1s"}),
            LocalCluster(2, threads_per_worker=1, dashboard_address=None, memory_limit=0) as cluster,
            Client(cluster) as client,
        ):
            client.wait_for_workers(2)
            cores = sorted(os.sched_getaffinity(0))
            for core, worker in zip(cores, sorted(client.scheduler_info(n_workers=-1)["workers"]), strict=False):
                client.run(lambda core=core: os.sched_setaffinity(0, {core}), workers=[worker])
            client.run(lambda: __import__("bigclf"))
            print(run(line, given, bigclf.Workers(client, threads=1)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("out")
    parser.add_argument("--lines", default=",".join(LINES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--child", nargs=2)
    given = parser.parse_args()
    if given.child:
        child(*given.child, given)
        return
    first = min(os.sched_getaffinity(0))
    print(f"{'line':<10}{'one':>9}{'two':>9}{'ratio':>8}")
    for line in given.lines.split(","):
        seconds: dict[str, list[float]] = {"one": [], "two": []}
        for _ in range(given.rounds):
            for how in seconds:
                pinned = (lambda: os.sched_setaffinity(0, {first})) if how == "one" else None
                done = subprocess.run([sys.executable, *sys.argv, "--child", line, how], preexec_fn=pinned,
                                      stdout=subprocess.PIPE, check=True, text=True)  # fmt: skip
                seconds[how].append(float(done.stdout.split()[-1]))
        one, two = (statistics.median(seconds[how]) for how in seconds)
        print(f"{line:<10}{one:>9.2f}{two:>9.2f}{two / one:>8.2f}   {seconds}", flush=True)


if __name__ == "__main__":
    main()
