"""One pass over shards: test accuracy of online learners, of scikit-learn's SGD and of Vowpal Wabbit.

    python jobs/one_pass.py TRAIN TEST [LEARNER[-LOSS] ...] [--bias none] [--peers scikit-learn,vw] [--json FILE]

Every learner, ours and theirs, has one number to set: a rate, C, or what stands in its place. It takes the same nine
values for all, times what is usual for that number, and is chosen on every tenth training row after one pass over the
others; then follows one pass over all of them, and the test rows. The rows come in one order for all learners.
Vowpal Wabbit takes part where its Python package (vowpalwabbit) is there; it reads from a cache of its own.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp

import bigclf

VALUES = 10.0 ** np.linspace(-2, 2, 9)  # 0.01, 0.032, 0.1 ... 100
USUAL = {"C": 0.1, "r": 1.0, "phi": 1.0, "eta": 1.0, "alpha": 1.0, "lam": 1e-5}  # the value in the middle


class Rows(NamedTuple):
    """x : CSR float32 [rows, features]; y : int64 [rows], -1 or +1."""

    x: Any
    y: np.ndarray


class Learner(NamedTuple):
    """name; what is set; its usual value; learn : (rows, value) -> (test rows -> decision values)."""

    name: str
    number: str
    usual: float
    learn: Callable[[Rows, float], Callable[[Rows], np.ndarray]]


def load(shards: str) -> Rows:
    """All rows of shards with two classes, in their order."""
    facts, parts, labels = bigclf.Dataset(shards), [], []
    for path in facts.files:
        file = pq.ParquetFile(path)
        for row_group in range(file.num_row_groups):
            table = file.read_row_group(row_group)
            lists = table["indices"].chunk(0)
            entries = lists.flatten().to_numpy()
            values = np.ones(entries.size, np.float32)
            if "values" in table.column_names:
                values = table["values"].chunk(0).flatten().to_numpy()
            offsets = lists.offsets.to_numpy()
            parts.append(sp.csr_matrix((values, entries, offsets - offsets[0]), (len(lists), facts.n_features)))
            labels.append(table["label"].to_numpy())
    if facts.classes.size != 2:
        raise SystemExit(f"{shards} has {facts.classes.size} classes, this program compares learners of two")
    return Rows(sp.vstack(parts, "csr"), np.where(np.concatenate(labels) == facts.classes[1], 1, -1))


def tenth(rows: Rows) -> tuple[Rows, Rows]:
    """The rows to learn from, and every tenth, to choose by."""
    held = np.arange(rows.y.size) % 10 == 9
    return Rows(rows.x[~held], rows.y[~held]), Rows(rows.x[held], rows.y[held])


def ours(name: str, bias: str | None) -> Learner:
    """A method of bigclf, by its name or name-loss."""
    algo, _, loss = name.partition("-")
    (method,) = [m for m in bigclf.algorithms() if m["name"] == algo]
    own = [param["name"] for param in method["parameters"]]
    number = next((n for n in USUAL if n in own), "")

    def learn(rows: Rows, value: float) -> Callable[[Rows], np.ndarray]:
        given = {number: value} if number else {}
        model = bigclf.fit(rows.x, rows.y, algo=algo, loss=loss or None, bias=bias, epochs=1, progress=False, **given)
        return lambda test: model.decision_function(test.x)

    return Learner(name, number, USUAL.get(number, 1.0), learn)


def scikit_learn(name: str, number: str, **options: Any) -> Learner:
    """SGDClassifier by ``partial_fit``, with what it does by default unless said."""

    def learn(rows: Rows, value: float) -> Callable[[Rows], np.ndarray]:
        from sklearn.linear_model import SGDClassifier

        learner = SGDClassifier(**options, **{number: value})
        learner.partial_fit(rows.x, rows.y, classes=[-1, 1])
        return lambda test: learner.decision_function(test.x)

    return Learner(f"scikit-learn {name}", number, {"alpha": 1e-5, "eta0": 0.1}[number], learn)


SCIKIT_LEARN = (
    scikit_learn("SGD hinge", "alpha", loss="hinge"),
    scikit_learn("SGD logistic", "alpha", loss="log_loss"),
    scikit_learn("averaged SGD hinge", "alpha", loss="hinge", average=True),
    scikit_learn("SGD hinge, constant rate", "eta0", loss="hinge", learning_rate="constant", alpha=1e-6),
    scikit_learn("PA-I", "eta0", loss="hinge", learning_rate="pa1", penalty=None),
)


class VowpalWabbit:
    """Vowpal Wabbit on the same rows: each set of rows is written once, as text."""

    def __init__(self, directory: str) -> None:
        self.directory, self.texts = directory, dict[int, str]()

    def text(self, rows: Rows) -> str:
        path = self.texts.setdefault(id(rows.y), os.path.join(self.directory, f"{len(self.texts)}.vw"))
        if not os.path.exists(path):
            with open(path, "w") as out:
                for i, y in enumerate(rows.y.tolist()):
                    some = slice(rows.x.indptr[i], rows.x.indptr[i + 1])
                    entries = zip(rows.x.indices[some].tolist(), rows.x.data[some].tolist(), strict=True)
                    out.write(f"{y} | " + " ".join(f"{j}:{value:.7g}" for j, value in entries) + "\n")
        return path

    def learner(self, name: str, *words: str, number: str = "-l", usual: float = 0.5) -> Learner:
        def learn(rows: Rows, value: float) -> Callable[[Rows], np.ndarray]:
            from vowpalwabbit import pyvw  # type: ignore[import-not-found]

            path = self.text(rows)
            bits = max(18, int(rows.x.shape[1]).bit_length())
            model = os.path.join(self.directory, "model")
            start = f"--quiet -b {bits} {' '.join(words)} {number} {value}"
            run(pyvw.Workspace(f"{start} -d {path} --cache_file {path}.cache -f {model}"))

            def decide(test: Rows) -> np.ndarray:
                where, told = self.text(test), os.path.join(self.directory, "told")
                run(pyvw.Workspace(f"--quiet -t -i {model} -d {where} --cache_file {where}.cache -r {told}"))
                return np.loadtxt(told)

            return decide

        return Learner(f"Vowpal Wabbit {name}", number, usual, learn)

    def learners(self) -> tuple[Learner, ...]:
        return (
            self.learner("hinge", "--loss_function hinge"),
            self.learner("logistic", "--loss_function logistic"),
            self.learner("hinge, plain SGD", "--loss_function hinge --sgd"),
            self.learner("ftrl", "--loss_function logistic --ftrl", number="--ftrl_alpha", usual=0.05),
        )


def run(workspace: Any) -> None:
    workspace.run_parser()
    workspace.finish()


def accuracy(values: np.ndarray, rows: Rows) -> float:
    return float(np.mean(np.where(values > 0, 1, -1) == rows.y))


def compare(learners: Iterable[Learner], train: Rows, test: Rows) -> list[dict[str, Any]]:
    """Each learner's chosen value and accuracies, printed as they come."""
    most, chosen_on = tenth(train)
    found = []
    for learner in learners:
        started = time.perf_counter()
        values = learner.usual * VALUES if learner.number else np.ones(1)
        seen = [accuracy(learner.learn(most, float(value))(chosen_on), chosen_on) for value in values]
        best = float(values[int(np.argmax(seen))])
        reached = accuracy(learner.learn(train, best)(test), test)
        line = {"learner": learner.name, "number": learner.number, "value": best, "chosen_by": max(seen)}
        found.append(line | {"test": reached, "all": dict(zip(values.tolist(), seen, strict=True))})
        seconds = time.perf_counter() - started
        setting = f"{learner.number} = {best:.3g}" if learner.number else ""
        shown = f"{100 * max(seen):>7.2f} {100 * reached:>7.2f}   {seconds:.0f} s"
        print(f"{learner.name:<40} {setting:<16} {shown}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train", help="directory of shards with two classes")
    parser.add_argument("test", help="directory of shards with the same features")
    parser.add_argument("learners", nargs="*", default=["sgd", "asgd", "adagrad"], help="algo or algo-loss")
    parser.add_argument("--peers", default="scikit-learn,vw", help="of scikit-learn, vw; empty: none")
    parser.add_argument("--bias", default="feature", help="of ours: feature, free or none (feature)")
    parser.add_argument("--json", help="file to write what was found to")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # one pass is all that anybody is asked for
    train, test = load(given.train), load(given.test)
    print(f"{train.y.size:,} rows, {train.x.nnz:,} non-zeros; {test.y.size:,} test rows")
    print(f"{'learner':<40} {'chosen':<16} {'tenth':>7} {'test':>7}   accuracy, %")
    with tempfile.TemporaryDirectory() as directory:
        peers: list[Learner] = list(SCIKIT_LEARN) if "scikit-learn" in given.peers.split(",") else []
        if "vw" in given.peers.split(","):
            if importlib.util.find_spec("vowpalwabbit"):
                peers += VowpalWabbit(directory).learners()
            else:
                print("vowpalwabbit is not installed: pip install vowpalwabbit")
        bias = None if given.bias == "none" else given.bias
        found = compare([*(ours(name, bias) for name in given.learners), *peers], train, test)
    mine = max(found[: len(given.learners)], key=lambda line: line["test"])
    theirs = max(found[len(given.learners) :], key=lambda line: line["test"], default=None)
    if theirs:
        ahead = 100 * (mine["test"] - theirs["test"])
        print(f"{mine['learner']} is {ahead:+.2f} points from {theirs['learner']}")
    if given.json:
        with open(given.json, "w") as out:
            json.dump(found, out, indent=1)


if __name__ == "__main__":
    main()
