"""The process in which a peer is measured. It runs under any Python that has the peer, so it knows nothing of bigclf.

``python child.py TASK``, TASK being JSON, writes the weights to a file and says what it found on its last line::

    bigclf-bench {"seconds": ..., "prepare_seconds": ..., "peak_bytes": ...}

``seconds`` is the fit: rows in memory in the form that the peer reads fastest, to weights; libraries are loaded and
what is to be compiled is, by a fit on a handful of rows. ``prepare_seconds`` is what making that form took.
With {"probe": [names]} it says instead which peers this Python has: {name: {"version": ...} or {"missing": why}}.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

if TYPE_CHECKING:
    import numpy as np
    import scipy.sparse as sp
    from sklearn.base import BaseEstimator

MARK = "bigclf-bench "
SOLVERS = {"hinge": 3, "squared_hinge": 1, "logistic": 7}  # LIBLINEAR's -s: dual, one thread
PRIMAL = {"hinge": 3, "squared_hinge": 2, "logistic": 0}  # faster where there are few features
PARALLEL = {"hinge": 3, "squared_hinge": 1, "logistic": 0}  # its multi-core edition has no parallel -s 7
ROUNDS = 1_000_000  # as good as no limit: it is the tolerance that stops a peer


class Task(TypedDict, total=False):
    """What is to be measured, as JSON holds it."""

    probe: list[str]
    peer: str
    job: str
    data: str
    n_features: int
    C: float
    tol: float | None
    out: str
    text: str | None
    packages: str | None
    program: str
    threads: int
    tall: bool


class Answer(TypedDict, total=False):
    """What is said on the last line; bigclf itself says more (``bigclf.benchmarks.ours``)."""

    seconds: float
    prepare_seconds: float | None
    wall_seconds: float
    peak_bytes: int
    whole_program: bool
    failure: str
    converged: bool
    certificate: dict[str, float]
    trace: Sequence[Sequence[float]]
    reads: float
    memory: object


class Fit(NamedTuple):
    """What is timed, and the weights [features] of what it gave."""

    learn: Callable[[], Any]
    weights: Callable[[Any], Any]


def main(text: str) -> Answer | dict[str, dict[str, str]]:
    task: Task = json.loads(text)
    warnings.simplefilter("ignore")
    if packages := task.get("packages"):
        sys.path.insert(0, packages)
    if "probe" in task:
        return {name: probe(name) for name in task["probe"]}
    if task["peer"] == "program":
        return measure_program(task)
    return measure(task, PEERS[task["peer"]])


# What is here


def probe(name: str) -> dict[str, str]:
    """The version of a peer, or why it is missing."""
    distribution, module = NAMES[name]
    try:
        importlib.import_module(module)
        if reason := wrong_liblinear(name):
            return {"missing": reason}
        return {"version": importlib.metadata.version(distribution)}
    except Exception as error:  # a library that does not load is as good as absent, whatever it raises
        return {"missing": f"{type(error).__name__}: {error}"}


def wrong_liblinear(name: str) -> str:
    """Both editions of LIBLINEAR install a module of one name: the one that came last is there."""
    if not name.startswith("liblinear"):
        return ""
    from liblinear.liblinear import parameter  # type: ignore[import-not-found, import-untyped]

    found = "liblinear-multicore" if "nr_thread" in parameter._names else "liblinear"
    return "" if found == name else f"the module liblinear here is that of {found}"


# Measuring


def measure(task: Task, peer: Callable[..., Fit]) -> Answer:
    import numpy as np
    import scipy.sparse as sp

    if task.get("text") is None:
        rng = np.random.default_rng(0)
        toy = sp.random(40, 10, 0.3, "csr", np.float32, random_state=rng)
        fit, weights = peer(task, toy, np.where(np.arange(40) % 2, 1.0, -1.0))
        weights(fit())
    x, y = load(task)
    started = time.perf_counter()
    fit, weights = peer(task, x, y)
    prepared = time.perf_counter()
    model = fit()
    seconds = time.perf_counter() - prepared
    np.save(task["out"], np.ascontiguousarray(weights(model), np.float64))
    return {"seconds": seconds, "prepare_seconds": prepared - started, "peak_bytes": peak_bytes()}


def load(task: Task) -> tuple[sp.csr_matrix | None, np.ndarray | None]:
    """CSR float32 [rows, features] and labels -1.0/+1.0; nothing for a peer that reads text."""
    if task.get("text") is not None:
        return None, None
    import numpy as np
    import scipy.sparse as sp

    indptr, indices, values, labels = (
        np.load(f"{task['data']}.{name}.npy") for name in ("indptr", "indices", "values", "labels")
    )
    return sp.csr_matrix((values, indices, indptr), (labels.size, task["n_features"])), labels.astype(np.float64)


def peak_bytes() -> int:
    """The most memory this process ever had resident."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure_program(task: Task) -> Answer:
    """A program that is called as LIBLINEAR's ``train`` and writes a model as that does. What it prints as
    ``seconds NUMBER`` is the time of its fit, else the whole program counts, reading the text included."""
    import resource

    model = task["out"] + ".model"
    words = [
        task["program"],
        "-s",
        str(SOLVERS[task["job"]]),
        "-c",
        repr(task["C"]),
        "-e",
        repr(task["tol"]),
        "-B",
        "-1",
    ]
    started = time.perf_counter()
    done = subprocess.run(
        [*words, str(task["text"]), model], capture_output=True, text=True, errors="replace", check=False
    )
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    if done.returncode:
        raise SystemExit(f"ended with code {done.returncode}: {done.stderr.strip()[-300:]}")
    said = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("seconds ")]
    import numpy as np

    np.save(task["out"], read_model(model, task["n_features"]))
    return {"seconds": float(said[-1]) if said else seconds, "whole_program": not said, "prepare_seconds": None,
            "peak_bytes": peak}  # fmt: skip


def read_model(path: str, n_features: int) -> np.ndarray:
    """Weights [features] towards +1 from a LIBLINEAR model."""
    import numpy as np

    with open(path) as file:
        lines = file.read().splitlines()
    start = lines.index("w")
    head = dict(line.split(" ", 1) for line in lines[:start] if " " in line)
    found = np.array([float(line.split()[0]) for line in lines[start + 1 :] if line.strip()])
    weights = np.zeros(n_features)
    weights[: min(found.size, n_features)] = found[:n_features]
    return weights if float(head["label"].split()[0]) > 0 else -weights


# The peers


def liblinear(task: Task, x: sp.csr_matrix, y: np.ndarray) -> Fit:
    """LIBLINEAR's own Python interface; the rows in its own form are made beforehand."""
    import numpy as np
    from liblinear.liblinearutil import parameter, problem, train  # type: ignore[import-not-found, import-untyped]

    given = problem(y, x)
    if task["peer"] == "liblinear-multicore":
        words = f"-s {PARALLEL[task['job']]} -m {task['threads']}"
    else:
        words = f"-s {(PRIMAL if task.get('tall') else SOLVERS)[task['job']]}"
    told = parameter(f"{words} -c {task['C']!r} -e {task['tol']!r} -B -1 -q")

    def weights(model: Any) -> np.ndarray:
        sign = 1 if model.get_labels()[0] > 0 else -1
        found: np.ndarray = sign * np.ctypeslib.as_array(model.w, (model.nr_feature,))
        return found

    return Fit(lambda: train(given, told), weights)


def sklearn(task: Task, x: sp.csr_matrix, y: np.ndarray) -> Fit:
    from sklearn.linear_model import LogisticRegression, Perceptron
    from sklearn.svm import LinearSVC

    told = {"C": task["C"], "fit_intercept": False, "max_iter": ROUNDS, "tol": task.get("tol") or 0.1}
    if task["job"] == "online":
        return one_pass(passive_aggressive(task["C"]), x, y)
    if task["job"] == "perceptron":
        return one_pass(Perceptron(fit_intercept=False, shuffle=False), x, y)
    tall = bool(task.get("tall"))
    if task["job"] == "logistic":
        solver = {"solver": "newton-cholesky"} if tall else {"solver": "liblinear", "dual": True}
        return whole(LogisticRegression(**solver, **told), x, y)
    return whole(LinearSVC(loss=task["job"], dual=not tall or task["job"] == "hinge", **told), x, y)


def passive_aggressive(C: float) -> BaseEstimator:
    """PA-I under the name it has in this version."""
    import inspect

    from sklearn import linear_model

    if "PA1" in (inspect.getdoc(linear_model.SGDClassifier) or "").upper():
        return linear_model.SGDClassifier(
            loss="hinge", penalty=None, learning_rate="pa1", eta0=C, fit_intercept=False, shuffle=False
        )
    return linear_model.PassiveAggressiveClassifier(C=C, fit_intercept=False, shuffle=False)


def sklearn_sgd(task: Task, x: sp.csr_matrix, y: np.ndarray) -> Fit:
    return one_pass(sgd(task, x), x, y)


def sgd(task: Task, x: sp.csr_matrix) -> BaseEstimator:
    from sklearn.linear_model import SGDClassifier

    return SGDClassifier(loss="hinge", alpha=1 / (task["C"] * x.shape[0]), fit_intercept=False, shuffle=False)


def snapml(task: Task, x: sp.csr_matrix, y: np.ndarray) -> Fit:
    from snapml import LogisticRegression, SupportVectorMachine  # type: ignore[import-not-found, import-untyped]

    told = {"regularizer": 1 / task["C"], "fit_intercept": False, "max_iter": ROUNDS, "tol": task["tol"],
            "n_jobs": task["threads"], "random_state": 0}  # fmt: skip
    if task["job"] == "logistic":
        return whole(LogisticRegression(dual=True, **told), x, y.astype("float32"))
    return whole(SupportVectorMachine(loss=task["job"], **told), x, y.astype("float32"))


def vw(task: Task, x: sp.csr_matrix, y: np.ndarray) -> Fit:
    """One pass over its own cache file, which is made beforehand."""
    import numpy as np
    from vowpalwabbit import pyvw  # type: ignore[import-not-found, import-untyped]

    d = task["n_features"]
    words = f"--quiet --noconstant --loss_function hinge --holdout_off -b {d.bit_length()}"
    words += f" --cache_file {task['out']}.cache"
    reader = pyvw.Workspace(f"{words} -k -d {task['text']}")
    reader.run_parser()
    reader.finish()

    def fit() -> object:
        workspace = pyvw.Workspace(words)
        workspace.run_parser()
        return workspace

    return Fit(fit, lambda workspace: np.array([workspace.get_weight(j + 1) for j in range(d)]))


def dask_ml(task: Task, x: sp.csr_matrix, y: np.ndarray) -> Fit:
    """``Incremental``: an estimator of scikit-learn, given one block of rows after another."""
    import dask
    import dask.array as da
    from dask_ml.wrappers import Incremental  # type: ignore[import-not-found, import-untyped]

    dask.config.set(scheduler="threads", num_workers=task["threads"])
    bounds = [*range(0, x.shape[0], max(1, x.shape[0] // 16)), x.shape[0]]
    pairs = list(zip(bounds[:-1], bounds[1:], strict=True))
    rows = da.concatenate([
        da.from_delayed(dask.delayed(x[a:b]), (b - a, x.shape[1]), dtype=x.dtype, meta=x[:0]) for a, b in pairs
    ])  # fmt: skip
    labels = da.from_array(y, chunks=(tuple(b - a for a, b in pairs),))
    wrapped = Incremental(sgd(task, x), shuffle_blocks=False, scoring="accuracy")
    return Fit(lambda: wrapped.fit(rows, labels, classes=[-1.0, 1.0]), lambda model: model.estimator_.coef_.ravel())


def whole(estimator: BaseEstimator, x: sp.csr_matrix, y: np.ndarray) -> Fit:
    return Fit(lambda: estimator.fit(x, y), lambda model: model.coef_.ravel())


def one_pass(estimator: BaseEstimator, x: sp.csr_matrix, y: np.ndarray) -> Fit:
    return Fit(lambda: estimator.partial_fit(x, y, classes=[-1.0, 1.0]), lambda model: model.coef_.ravel())


PEERS: dict[str, Callable[..., Fit]] = {
    "liblinear": liblinear,
    "liblinear-multicore": liblinear,
    "sklearn": sklearn,
    "sklearn-sgd": sklearn_sgd,
    "snapml": snapml,
    "vw": vw,
    "dask-ml": dask_ml,
}
NAMES = {  # distribution, module
    "liblinear": ("liblinear-official", "liblinear.liblinearutil"),
    "liblinear-multicore": ("liblinear-multicore", "liblinear.liblinearutil"),
    "sklearn": ("scikit-learn", "sklearn.linear_model"),
    "sklearn-sgd": ("scikit-learn", "sklearn.linear_model"),
    "snapml": ("snapml", "snapml"),
    "vw": ("vowpalwabbit", "vowpalwabbit.pyvw"),
    "dask-ml": ("dask-ml", "dask_ml.wrappers"),
}

if __name__ == "__main__":
    print("\n" + MARK + json.dumps(main(sys.argv[1])), flush=True)
