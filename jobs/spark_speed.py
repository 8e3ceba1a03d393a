"""L2-regularised logistic regression by bigclf and by Spark ML, whole processes beside each other.

    python jobs/spark_speed.py SHARDS [--C 1] [--tol 1e-6] [--spark-tol 1e-9] [--threads 2] [--times 1] [--algo newton]

Each side is a new process: start, load and fit count on both. bigclf reads its shards until it certifies ``--tol``;
Spark, in local[threads], reads the same rows from a Parquet file of its own vectors, made beforehand, and runs
LogisticRegression with regParam = 1 / (C n), no intercept and no standardisation, which is the same problem:

    P(w) = 1/2 ||w||^2 + C sum_i log(1 + exp(-y_i w.x_i)) = C n (mean loss + regParam / 2 ||w||^2)

Both objectives are then summed up here in float64 over the shards, and printed as their relative distance from the
bound that bigclf certified, so that whoever stopped early shows it. Needs pyspark and a Java.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

MOST_ROUNDS = 10_000  # as good as no limit: the tolerance stops it


def blocks(shards: str) -> Iterator[Any]:
    """The rows of the shards, a row group at a time."""
    import bigclf

    dataset = bigclf.Dataset(shards)
    for place in dict.fromkeys(zip(dataset.chunks.file.tolist(), dataset.chunks.row_group.tolist(), strict=True)):
        yield dataset.decode(*place)


def entries(block: Any) -> np.ndarray:
    """Every value of a block, float64."""
    lengths = np.diff(block.indptr.astype(np.int64))
    scales = block.scales if block.scales.size else np.ones(lengths.size)
    return block.values.astype(np.float64) if block.values.size else np.repeat(scales, lengths).astype(np.float64)


def write_vectors(shards: str, n_features: int, path: str) -> int:
    """A Parquet file of label and vector as Spark ML keeps them; the number of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names, n_rows = ("type", "size", "indices", "values"), 0
    vector = pa.struct([("type", pa.int8()), ("size", pa.int32()), ("indices", pa.list_(pa.int32())),
                        ("values", pa.list_(pa.float64()))])  # fmt: skip
    with pq.ParquetWriter(path, pa.schema([("label", pa.float64()), ("features", vector)])) as writer:
        for block in blocks(shards):
            m, starts = block.labels.size, pa.array(block.indptr.astype(np.int32))
            parts = (
                pa.array(np.zeros(m, np.int8)),
                pa.array(np.full(m, n_features, np.int32)),
                pa.ListArray.from_arrays(starts, pa.array(block.indices.astype(np.int32))),
                pa.ListArray.from_arrays(starts, pa.array(entries(block))),
            )
            rows = pa.StructArray.from_arrays(parts, names=names).cast(vector)
            writer.write_table(pa.table({"label": (block.labels > 0).astype(np.float64), "features": rows}))
            n_rows += m
    return n_rows


def spark(task: dict[str, Any]) -> None:
    """The other side's whole process."""
    from pyspark.ml.classification import LogisticRegression
    from pyspark.ml.linalg import VectorUDT
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DoubleType, StructField, StructType

    started = SparkSession.builder.master(f"local[{task['threads']}]").config("spark.ui.enabled", "false")
    session = started.config("spark.driver.memory", "8g").config("spark.log.level", "ERROR").getOrCreate()
    fields = [StructField("label", DoubleType()), StructField("features", VectorUDT())]
    rows = session.read.schema(StructType(fields)).parquet(task["vectors"]).repartition(task["threads"])
    learner = LogisticRegression(maxIter=MOST_ROUNDS, regParam=1 / (task["C"] * task["n_rows"]), tol=task["tol"],
                                 standardization=False, fitIntercept=False)  # fmt: skip
    model = learner.fit(rows)
    np.save(task["out"], model.coefficients.toArray())
    print(json.dumps({"rounds": model.summary.totalIterations}), flush=True)
    session.stop()


def seconds(command: list[str]) -> tuple[float, str]:
    """Of a process from its start to its end, and what it printed."""
    started = time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return time.perf_counter() - started, done.stdout


def objective(shards: str, weights: np.ndarray, C: float) -> float:
    """P(w) in float64."""
    import scipy.sparse as sp

    loss = 0.0
    for block in blocks(shards):
        form = entries(block), block.indices.astype(np.int64), block.indptr.astype(np.int64)
        x: Any = sp.csr_matrix(form, (block.labels.size, weights.size))
        loss += float(np.logaddexp(0.0, -np.where(block.labels > 0, 1.0, -1.0) * (x @ weights)).sum())
    return 0.5 * float(weights @ weights) + C * loss


def run(asked: argparse.Namespace, folder: str) -> dict[str, Any]:
    import bigclf

    n_features = bigclf.Dataset(asked.shards).n_features
    vectors, model, out = (os.path.join(folder, name) for name in ("vectors.parquet", "model", "weights.npy"))
    n_rows = write_vectors(asked.shards, n_features, vectors)
    task = {"vectors": vectors, "threads": asked.threads, "C": asked.C, "n_rows": n_rows, "tol": asked.spark_tol,
            "out": out}  # fmt: skip
    fit = [sys.executable, "-m", "bigclf", "fit", asked.shards, "-o", model, "--algo", asked.algo, "--loss", "logistic",
           "--bias", "none", "--C", repr(asked.C), "--tol", repr(asked.tol), "--threads", str(asked.threads),
           "--overwrite", "--json"]  # fmt: skip
    seconds(fit)  # compiles, or loads what was compiled
    ours, theirs = [], []
    for _ in range(asked.times):
        took, _said = seconds(fit)
        ours.append(took)
        took, said = seconds([sys.executable, __file__, "--spark", json.dumps(task)])
        theirs.append(took)
    found = bigclf.load(model)
    bound = found.certificate["dual"]
    told = {"ours": ours, "spark": theirs, "ratio": statistics.median(theirs) / statistics.median(ours)}
    weights = {"ours": np.asarray(found.coef_[0], np.float64), "spark": np.load(out)}
    far = {f"{name}_above_bound": objective(asked.shards, w, asked.C) / bound - 1 for name, w in weights.items()}
    return told | far | json.loads(said.strip().splitlines()[-1])


def main() -> None:
    if sys.argv[1:2] == ["--spark"]:
        return spark(json.loads(sys.argv[2]))
    parser = argparse.ArgumentParser()
    parser.add_argument("shards")
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--tol", type=float, default=1e-6)
    parser.add_argument("--spark-tol", type=float, default=1e-9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--algo", default="newton")
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run(parser.parse_args(), folder), indent=1))


if __name__ == "__main__":
    main()
