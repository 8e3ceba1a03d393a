"""The infinity-norm margin out of core: 16 relevant features among 100,000, a million rows, 256 MB.

    python jobs/experiments/infinity_norm_blocks.py OUT [--rows 1000000] [--memory 256MB] [--cap 512MB]

A row has 30 features of 100,000 at random and each of the 16 relevant ones with probability 1/2; it is positive where
at least 8 of these are there. All values are 1, and the largest infinity-norm margin is 1/32: half the step from 7/16
to 8/16. With epsilon = gamma* / 2 the run is to end within 20 reads with a clean one (no row has less than F -
epsilon), or else to say what is left between F and the margin. ``--cap`` puts the learning into a memory control group,
which counts the page cache (root). OUT gets `shards` and `results.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

import bigclf
from bigclf.conversion.convert import write_shards

FEATURES, RELEVANT, VOTES, OTHERS = 100_000, 16, 8, 30
GAMMA = 0.5 / RELEVANT
READS = 20


def blocks(rows: int, seed: int = 1) -> Iterator[tuple[np.ndarray, ...]]:
    """The rows, 100,000 at a time."""
    random = np.random.default_rng(seed)
    relevant = np.sort(random.choice(FEATURES, RELEVANT, replace=False))
    others = np.setdiff1d(np.arange(FEATURES), relevant)
    for first in range(0, rows, 100_000):
        m = min(100_000, rows - first)
        there = random.random((m, RELEVANT)) < 0.5
        features = np.hstack([np.where(there, relevant, -1), others[random.integers(0, others.size, (m, OTHERS))]])
        features.sort(axis=1)
        keep = (features >= 0) & np.hstack([np.ones((m, 1), bool), features[:, 1:] != features[:, :-1]])
        indptr = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
        yield indptr, features[keep], None, np.where(there.sum(axis=1) >= VOTES, 1, 0), np.ones(m)  # type: ignore[misc]


def learn(out: str, memory: str) -> None:
    """In a process of its own: the margin from the shards, told as JSON."""
    model = bigclf.fit(
        os.path.join(out, "shards", "*.parquet"), algo="memma_blocks", eps=GAMMA / 2, bias="free", memory=memory,
        epochs=READS, progress=False,
    )  # fmt: skip
    result, w = model.result_, model.coef_[0]
    largest = np.argsort(-np.abs(w))[: RELEVANT + 4]
    told = {
        "stopped": result.stopped, "reads": result.reads, "seconds": result.seconds, "memory": result.memory,
        "resident": result.plan["resident"], "margin": result.certificate["dual"],
        "bound": result.certificate["primal"],
        "weights": w[largest].tolist(), "features": largest.tolist(), "warnings": result.warnings,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }  # fmt: skip
    print(json.dumps(told))


def learned(out: str, memory: str, cap: int | None) -> dict[str, Any]:
    command = [sys.executable, os.path.abspath(__file__), out, "--memory", memory, "--learn"]
    with contextlib.ExitStack() as stack:
        group = None
        if cap is not None:
            from bigclf.benchmarks.cap import memory_group

            group = stack.enter_context(memory_group(cap))

        def join() -> None:
            if group is not None:
                with open(group.members, "w") as members:
                    members.write("0")

        done = subprocess.run(command, preexec_fn=join, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the learning ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--memory", default="256MB")
    parser.add_argument("--cap")
    parser.add_argument("--learn", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.learn:
        learn(asked.out, asked.memory)
        return 0
    shards = os.path.join(asked.out, "shards")
    if not os.path.exists(shards):
        write_shards(blocks(asked.rows), shards, classes=[-1, 1], n_features=FEATURES)
    cap = None if asked.cap is None else int(float(asked.cap.removesuffix("MB")) * 1e6)
    found = learned(asked.out, asked.memory, cap)
    with open(os.path.join(asked.out, "results.json"), "w") as file:
        json.dump(found, file, indent=1)
    clean = found["stopped"] == "tolerance"
    print(f"{asked.rows:,} rows, {FEATURES:,} features; memory={asked.memory}" + (f" under {asked.cap}" if cap else ""))
    print(f"{found['reads']} reads, {found['seconds']:.1f} s; peak {found['peak_bytes'] / 1e6:.0f} MB")
    print(f"margin {found['margin']:.5f} <= gamma* = {GAMMA:.5f} <= F = {found['bound']:.5f}; "
          f"left {found['bound'] - found['margin']:.5f}, epsilon {GAMMA / 2:.5f}")  # fmt: skip
    print("a clean read" if clean else "no clean read")
    return 0 if clean and found["reads"] <= READS else 1


if __name__ == "__main__":
    sys.exit(main())
