"""Very many classes under a hard cap on memory: one epoch, in a state that holds touched features only.

    python jobs/many_classes.py OUT [--classes 100000] [--rows 1000000] [--algo pa1_mc] [--memory 4GB] [--no-cap]

The rows are made: each class has 12 of 2^20 features for its own, and a row has 8 of these and 16 others, drawn so that
few are frequent and many are rare (from the 1,000th on: the most frequent words of a text are left out as a rule). Its
values are 1. Every class has as many rows; every fiftieth row is held out. Training runs in a process of its own, in a
memory control group of the budget and 512 MB that counts the page cache too (root is needed for one: ``--no-cap``).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np

import bigclf
from bigclf.benchmarks.cap import memory_group
from bigclf.conversion.convert import write_shards
from bigclf.units import parse_bytes

FEATURES, OWN, SHOWN, OTHERS, FIRST = 2**20, 12, 8, 16, 1000
BLOCK, HELD_OUT = 20_000, 50
ROOM = 512_000_000  # for the interpreter, libraries and the page cache


def blocks(rows: int, classes: int, held_out: bool) -> Iterator[tuple[np.ndarray, ...]]:
    """(indptr, indices, values, labels, weights) of the rows to learn from, or of those held out."""
    own = np.random.default_rng(0).integers(FIRST, FEATURES, (classes, OWN))
    labels = np.random.default_rng(1).permutation(rows) % classes
    for first in range(0, rows, BLOCK):
        random, y = np.random.default_rng([2, first]), labels[first : first + BLOCK]
        shown = np.take_along_axis(own[y], random.random((y.size, OWN)).argsort(axis=1)[:, :SHOWN], axis=1)
        others = FIRST * (FEATURES / FIRST) ** random.random((y.size, OTHERS))
        entries = np.sort(np.hstack([shown, others.astype(np.int64)]), axis=1)
        keep = np.ones(entries.shape, bool)
        keep[:, 1:] = entries[:, 1:] != entries[:, :-1]
        mine = (np.arange(first, first + y.size) % HELD_OUT == 0) == held_out
        keep, entries = keep[mine], entries[mine]
        indptr = np.concatenate([[0], keep.sum(axis=1).cumsum()])
        yield indptr, entries[keep].astype(np.int32), None, y[mine].astype(np.float64), None


def make(out: str, rows: int, classes: int) -> None:
    names = np.arange(classes)
    for part, held_out in (("train", False), ("test", True)):
        began = time.monotonic()
        write_shards(blocks(rows, classes, held_out), os.path.join(out, part), classes=names, n_features=FEATURES)
        print(f"{part}: written in {time.monotonic() - began:.1f} s")


def learn(out: str, algo: str, memory: str, epochs: int, dtype: str) -> None:
    """In the process that is capped: one line of JSON."""
    began = time.monotonic()
    data = bigclf.Dataset(os.path.join(out, "train"))
    opened = time.monotonic() - began
    began = time.monotonic()
    run_dir = os.path.join(out, f"run-{os.getpid()}")  # where the model is written, which takes memory too
    model = bigclf.fit(data, algo=algo, epochs=epochs, memory=memory, dtype=dtype, run_dir=run_dir, progress=False)
    learned = time.monotonic() - began
    result, path = model.result_, os.path.join(out, "model.bigclf")
    os.replace(os.path.join(run_dir, "model.bigclf"), path)
    found = {
        "rows": data.n_rows, "nnz": data.nnz, "classes": data.classes.size, "opening seconds": opened,
        "fit seconds": learned, "epoch seconds": result.seconds, "rows a second": epochs * data.n_rows / result.seconds,
        "progressive error": result.progressive["error"], "memory": result.memory, "budget": result.plan["memory"],
        "places": result.plan["places"], "weights": int(model.coef_.nnz), "model bytes": os.path.getsize(path),
    }  # fmt: skip
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--classes", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--algo", default="pa1_mc")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--no-cap", action="store_true")
    parser.add_argument("--learn", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.learn:
        learn(asked.out, asked.algo, asked.memory, asked.epochs, asked.dtype)
        return
    if not os.path.exists(os.path.join(asked.out, "test")):
        make(asked.out, asked.rows, asked.classes)
    with contextlib.ExitStack() as stack:
        join, peak = None, None
        if not asked.no_cap:
            group = stack.enter_context(memory_group(parse_bytes(asked.memory) + ROOM))
            peak = group.peak

            def join() -> None:
                with open(group.members, "w") as members:
                    members.write("0")

        told = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--learn"], preexec_fn=join, check=True,
                              stdout=subprocess.PIPE, text=True).stdout  # fmt: skip
        found = json.loads(told.splitlines()[-1])
        found["peak of the control group"] = None if peak is None else peak()
    for name, value in found.items():
        print(f"{name}: {value:,.4g}" if isinstance(value, float) else f"{name}: {value}")
    model, began = bigclf.load(os.path.join(asked.out, "model.bigclf")), time.monotonic()
    measured = bigclf.evaluate(model, os.path.join(asked.out, "test"))
    seconds = time.monotonic() - began
    print(f"held out: {measured.n:,} rows, accuracy {100 * measured.accuracy:.2f} %, {seconds:.1f} s")


if __name__ == "__main__":
    main()
