"""What bigclf claims of its answers, checked on real data against known optima and scikit-learn.

    BIGCLF_DATA=FOLDER python jobs/certificates.py [--skip-news20]

1. a9a and w8a, hinge and squared hinge, C = 1, no bias, tol 1e-6: the certified gap and the distance of the primal
   objective from the optimum (LIBLINEAR's and scikit-learn's solvers, run to 1e-10).
2. a9a.t: rows with |decision value| > 0.05 at the optimum get the optimum's class.
3. w8a, sorted by label in its file: reads to 1e-3, default conversion against rows shuffled before, when little memory
   lets only a part of the rows stay.
4. news20, twenty problems of one read: certificates and accuracy on a held-out third, against LinearSVC.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from sklearn.svm import LinearSVC

import bigclf
from bigclf.conversion.convert import write_shards

OPTIMA = {  # 1/2 ||w||^2 + sum of losses, C = 1, no bias
    ("a9a", "hinge"): 11433.8077,
    ("a9a", "squared_hinge"): 13742.3973,
    ("w8a", "hinge"): 6604.8866,
    ("w8a", "squared_hinge"): 7816.1697,
}
FEATURES = {"a9a": 123, "w8a": 300}
missed: list[str] = []


def say(what: str, figures: str, holds: bool) -> None:
    """A line of the table; what does not hold is remembered for the exit code."""
    print(f"{'holds ' if holds else 'MISSED'}  {what:<34}{figures}", flush=True)
    if not holds:
        missed.append(what)


def train(data: Any, **options: Any) -> Any:
    return bigclf.fit(data, algo="dcd", C=1.0, bias=None, progress=False, **options)


def check_optima(shards: dict[str, Any]) -> None:
    for (name, loss), optimum in OPTIMA.items():
        started = time.perf_counter()
        found = train(shards[name], loss=loss, tol=1e-6).certificate
        above = found["primal"] / optimum - 1
        figures = f"gap {found['gap']:.1e}, primal {found['primal']:.4f}, {above:+.1e} of {optimum}"
        say(f"{name} {loss}", f"{figures}, {time.perf_counter() - started:.1f} s",
            found["gap"] <= 1e-6 and abs(above) <= 1e-6)  # fmt: skip


def check_classes(folder: str, shards: dict[str, Any]) -> None:
    X, y = load_svmlight_file(os.path.join(folder, "a9a", "a9a.gz"), n_features=FEATURES["a9a"])
    test, _ = load_svmlight_file(os.path.join(folder, "a9a", "a9a.t.gz"), n_features=FEATURES["a9a"])
    reference = {
        "hinge": linear_svc(X, y, "hinge", 1e-10).decision_function(test),
        "squared_hinge": linear_svc(X, y, "squared_hinge", 1e-10).decision_function(test),
    }
    for loss, best in reference.items():
        ours = train(shards["a9a"], loss=loss, tol=1e-6).decision_function(test).ravel()
        clear = np.abs(best.ravel()) > 0.05
        wrong = int(((ours > 0) != (best.ravel() > 0))[clear].sum())
        say(f"a9a.t classes, {loss}", f"{wrong} of {clear.sum():,} clear rows differ from the optimum's", wrong == 0)


def check_reads(folder: str, shards: dict[str, Any], out: str) -> None:
    X, y = load_svmlight_file(os.path.join(folder, "w8a", "w8a.gz"), n_features=FEATURES["w8a"])
    order = np.random.default_rng(1).permutation(y.size)
    text = os.path.join(out, "shuffled.svm")
    dump_svmlight_file(X[order], y[order], text, zero_based=False)
    shuffled = bigclf.convert(text, os.path.join(out, "shuffled"), n_features=FEATURES["w8a"], chunk_nnz=5_000)
    default = bigclf.convert(os.path.join(folder, "w8a", "w8a.gz"), os.path.join(out, "default"),
                             n_features=FEATURES["w8a"], chunk_nnz=5_000)  # fmt: skip
    for share in (0.1, 0.0):
        reads = [train(data, tol=1e-3, memory=least_memory(data, share), working_set=share).result_.reads
                 for data in (default, shuffled)]  # fmt: skip
        say(f"w8a reads, working set {share:g}", f"{reads[0]} as converted, {reads[1]} of a shuffled copy",
            reads[0] <= 1.2 * reads[1])  # fmt: skip


def least_memory(data: Any, share: float) -> int:
    """The smallest budget, which does not hold all rows: what the refusal of a smaller one says would do."""
    import re

    from bigclf.units import parse_bytes

    try:
        train(data, tol=1e-3, memory=1_000_000, working_set=share)
    except bigclf.errors.MemoryBudgetError as error:
        return parse_bytes(re.search(r"memory=([\d.]+ \w+) would do", str(error))[1])
    return 1_000_000


def check_news20(folder: str, out: str) -> None:
    X, y = load_svmlight_file(os.path.join(folder, "news20", "news20.bz2"))
    order = np.random.default_rng(0).permutation(y.size)
    held, rest = order[: y.size // 3], order[y.size // 3 :]
    classes, codes = np.unique(y, return_inverse=True)
    part = X[rest]
    block = (part.indptr, part.indices, part.data.astype(np.float32), codes[rest])
    shards = write_shards([block], os.path.join(out, "news20"), classes=classes.astype(int), n_features=X.shape[1])
    started = time.perf_counter()
    model = train(shards, loss="squared_hinge", tol=1e-3, memory="256MB")
    seconds = time.perf_counter() - started
    worst = max(problem["gap"] for problem in model.certificate["problems"])
    say("news20, every problem certified", f"{len(model.certificate['problems'])} problems, worst gap {worst:.1e}, "
        f"{model.result_.reads} read(s) for all, {seconds:.0f} s", worst <= 1e-3)  # fmt: skip
    ours = float((model.predict(X[held]) == y[held]).mean())
    started = time.perf_counter()
    theirs = float(linear_svc(part, y[rest], "squared_hinge", 1e-4).score(X[held], y[held]))
    say("news20, held-out third", f"accuracy {100 * ours:.2f} %, LinearSVC {100 * theirs:.2f} % "
        f"in {time.perf_counter() - started:.0f} s", ours >= theirs - 0.003)  # fmt: skip


def linear_svc(X: Any, y: Any, loss: str, tol: float) -> LinearSVC:
    """scikit-learn's solver run to its end; it takes 32-bit indices only."""
    narrow = (X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32))
    X = scipy.sparse.csr_matrix(narrow, X.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LinearSVC(loss=loss, C=1, fit_intercept=False, tol=tol, max_iter=10**6, dual=True).fit(X, y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--skip-news20", action="store_true", help="leave out the last check, which takes minutes")
    given = parser.parse_args()
    folder = os.environ.get("BIGCLF_DATA")
    if not folder:
        sys.exit("set BIGCLF_DATA to the folder that holds a9a/, w8a/ and news20/")
    with tempfile.TemporaryDirectory() as out:
        shards = {name: bigclf.convert(os.path.join(folder, name, f"{name}.gz"), os.path.join(out, name), n_features=d)
                  for name, d in FEATURES.items()}  # fmt: skip
        check_optima(shards)
        check_classes(folder, shards)
        check_reads(folder, shards, out)
        if not given.skip_news20:
            check_news20(folder, out)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
