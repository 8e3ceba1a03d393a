"""Lasso and elastic net in memory beside skglm, celer and scikit-learn, at equal gaps and with equal supports.

    python jobs/lasso_peers.py NEWS20.bz2 [--ratio 10,100] [--mixing 1.0,0.5] [--gap 1e-4,1e-6,1e-8] [--repeats 3]

The rows are news20's (15,935 x 62,061, LIBSVM form), of unit length, their values rounded to float32: bigclf stores
them so, and its problem would else differ from that of the others by more than a gap of 1e-8. The number to predict is
+1 for the first ten classes and -1 for the others; no bias. alpha is the one at which the first weight is not 0, over
each ratio. A program has the loosest of its tolerances with which the gap is small enough: (P - D) / P by the formula
of scikit-learn,

    P = 1/2 ||y - X w||^2 + l1 ||w||_1 + l2/2 ||w||^2,   D of the residual, scaled into the dual's set.

Told are the least CPU seconds of the repeats, taken in turns, and at the smallest gap in how many places a support
(|w_j| > 1e-8) differs from ours. A program that is not installed is left out (`pip install skglm celer`).
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.datasets import load_svmlight_file
from sklearn.linear_model import ElasticNet
from sklearn.preprocessing import normalize

import bigclf

TOLERANCES = [10.0**-k for k in range(1, 17)]
ZERO = 1e-8


def gap(X, y, w, l1, l2):
    residual = y - X @ w
    slopes = X.T @ residual - l2 * w
    square = residual @ residual + l2 * (w @ w)
    primal = 0.5 * square + l1 * np.abs(w).sum()
    scale = min(1.0, l1 / np.abs(slopes).max())
    return (primal - (scale * (residual @ y) - 0.5 * scale * scale * square)) / primal


def ours(X, y, l1, l2, tol):
    penalty = {"penalty": "l1"} if l2 == 0 else {"penalty": "elastic_net", "l1_ratio": l1 / (l1 + l2)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = bigclf.fit(X, y, algo="newglmnet", loss="squared", C=1 / (l1 + l2), tol=tol, bias="none",
                           progress=False, **penalty)  # fmt: skip
    return np.asarray(model.coef_.todense() if hasattr(model.coef_, "todense") else model.coef_).ravel()


def of_estimator(make):
    def solve(X, y, l1, l2, tol):
        n = X.shape[0]
        estimator = make(alpha=(l1 + l2) / n, l1_ratio=l1 / (l1 + l2), tol=tol, fit_intercept=False, max_iter=100_000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return estimator.fit(X, y).coef_.ravel()

    return solve


def programs():
    found = {"bigclf": ours, "scikit-learn": of_estimator(ElasticNet)}
    try:
        import skglm

        def quick(max_iter, **asked):
            return skglm.ElasticNet(max_iter=200, max_epochs=max_iter, **asked)

        found["skglm"] = of_estimator(quick)
    except ImportError:
        pass
    try:
        import celer

        found["celer"] = of_estimator(
            lambda max_iter, **asked: celer.ElasticNet(max_iter=200, max_epochs=max_iter, **asked)
        )
    except ImportError:
        pass
    return found


def loosest(solve, X, y, l1, l2, wanted):
    """The tolerance, and the weights."""
    for tol in TOLERANCES:
        w = solve(X, y, l1, l2, tol)
        if gap(X, y, w, l1, l2) <= wanted:
            return tol, w
    return None, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows")
    for name, default in (("ratio", "10,100"), ("mixing", "1.0,0.5"), ("gap", "1e-4,1e-6,1e-8")):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    X, classes = load_svmlight_file(given.rows)
    X = normalize(X).astype(np.float32).astype(np.float64)
    X, y = X.tocsc(), np.where(classes <= 10, 1.0, -1.0)
    rows, most = X.tocsr(), np.abs(X.T @ y).max()
    solvers = programs()
    for mixing in map(float, given.mixing.split(",")):
        for ratio in map(float, given.ratio.split(",")):
            l1 = most / ratio
            l2 = l1 * (1 - mixing) / mixing
            for wanted in sorted(map(float, given.gap.split(",")), reverse=True):
                compare(solvers, X, rows, y, l1, l2, wanted, given.repeats, f"l1 share {mixing:g}, ratio {ratio:g}")


def compare(solvers, X, rows, y, l1, l2, wanted, repeats, title):
    data = {name: rows if name == "bigclf" else X for name in solvers}
    chosen = {name: loosest(solve, data[name], y, l1, l2, wanted) for name, solve in solvers.items()}
    seconds = {name: [] for name, (tol, _) in chosen.items() if tol is not None}
    for _ in range(repeats):
        for name, taken in seconds.items():
            began = time.process_time()
            solvers[name](data[name], y, l1, l2, chosen[name][0])
            taken.append(time.process_time() - began)
    mine = chosen["bigclf"][1]
    for name, (tol, w) in chosen.items():
        if w is None:
            print(f"{title}, gap {wanted:.0e}: {name:13} does not get there", flush=True)
            continue
        support = np.abs(w) > ZERO
        apart = "" if mine is None else f", {np.count_nonzero(support != (np.abs(mine) > ZERO))} others than ours"
        found = f"{min(seconds[name]):7.3f} s   {np.count_nonzero(support):6,} weights{apart}, tolerance {tol:.0e}"
        print(f"{title}, gap {wanted:.0e}: {name:13} {found}", flush=True)


if __name__ == "__main__":
    main()
