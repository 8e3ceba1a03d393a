"""A search by ``bigclf.sweep`` beside the same one by scikit-learn's ``GridSearchCV`` over ``LinearSVC``.

    python jobs/search.py DATA -o OUT [--C A,B,...] [--folds 5] [--rounds 1] [--memory 1GB]

Eight values of C on five folds, hinge loss with a constant feature, and the best value learned from all rows: bigclf
from the shards DATA with a certified gap of 1e-3 each, scikit-learn from the same rows in memory with its default
tolerance, in two processes. Rounds alternate; `results.json` has every measurement. What is asked of bigclf: at most 4
times the bytes that one fit reads, and at most half of scikit-learn's seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import bigclf
from bigclf.maths.block import explicit_values

VALUES = "0.001,0.003,0.01,0.03,0.1,0.3,1,3"
MOST_BYTES, MOST_SECONDS = 4.0, 0.5


def in_memory(data: str) -> tuple[sp.csr_matrix, np.ndarray]:
    """All rows of shards as CSR float64 [rows, features], as LIBLINEAR takes it, and their labels."""
    dataset = bigclf.Dataset(data)
    places = dict.fromkeys(zip(dataset.chunks.file.tolist(), dataset.chunks.row_group.tolist(), strict=True))
    blocks = [dataset.decode(*place) for place in places]
    pieces = [
        sp.csr_matrix(
            (explicit_values(block).astype(np.float64), block.indices.astype(np.int32), block.indptr - block.indptr[0]),
            (block.n_rows, dataset.n_features),
        )
        for block in blocks
    ]
    return sp.vstack(pieces, "csr"), dataset.classes[np.concatenate([b.labels for b in blocks]).astype(int)]


def ours(data: str, values: list[float], folds: int, memory: str) -> dict[str, Any]:
    begun = time.perf_counter()
    found = bigclf.sweep(data, algo="dcd", grid={"C": values}, folds=folds, memory=memory, progress=False)
    seconds = time.perf_counter() - begun
    read = found.history[-1]["bytes_read"] + found.best_model.result_.bytes_read
    return {
        "seconds": seconds,
        "bytes_read": read,
        "best": found.best_params_,
        "error": min(row["mean"] for row in found.table),
    }


def theirs(x: sp.csr_matrix, y: np.ndarray, values: list[float], folds: int) -> dict[str, Any]:
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import LinearSVC

    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that LIBLINEAR stopped at its iterations
        search = GridSearchCV(LinearSVC(loss="hinge"), {"C": values}, cv=folds, n_jobs=2).fit(x, y)
    return {
        "seconds": time.perf_counter() - begun,
        "best": search.best_params_,
        "error": 1 - float(search.best_score_),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--C", default=VALUES)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--memory", default="1GB")
    args = parser.parse_args()
    values = [float(value) for value in args.C.split(",")]
    x, y = in_memory(args.data)
    fit = bigclf.fit(args.data, algo="dcd", memory=args.memory, progress=False)  # kernels are compiled then, too
    one = fit.result_.bytes_read
    rounds = []
    for _ in range(args.rounds):
        rounds.append({"bigclf": ours(args.data, values, args.folds, args.memory)})
        rounds[-1]["scikit-learn"] = theirs(x, y, values, args.folds)
    bytes_ratio = max(r["bigclf"]["bytes_read"] for r in rounds) / one
    seconds = statistics.median(r["bigclf"]["seconds"] / r["scikit-learn"]["seconds"] for r in rounds)
    result = {
        "rows": int(x.shape[0]), "C": values, "folds": args.folds, "bytes_of_one_fit": one, "rounds": rounds,
        "bytes_ratio": bytes_ratio, "seconds_ratio": seconds,
    }  # fmt: skip
    out = Path(args.output)
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(result, indent=2) + "\n")
    for number, r in enumerate(rounds, 1):
        for who in ("bigclf", "scikit-learn"):
            told = f"best {r[who]['best']}, error {r[who]['error']:.5f}"
            print(f"round {number}: {who:12} {r[who]['seconds']:8.1f} s, {told}")
    print(f"bytes read: {bytes_ratio:.2f} times those of one fit (at most {MOST_BYTES:g} asked)")
    print(f"seconds: {seconds:.3f} of scikit-learn's (at most {MOST_SECONDS:g} asked)")
    if bytes_ratio > MOST_BYTES or seconds > MOST_SECONDS:
        raise SystemExit("the claim was not met")


if __name__ == "__main__":
    main()
