"""Averages over many epochs: whether the answer gets worse from epoch to epoch, and what ends it in time.

    python jobs/experiments/averaging_epochs.py OUT --data SHARDS --test SHARDS [--epochs 10]
    python jobs/experiments/averaging_epochs.py OUT --texts FOLDER [--epochs 10]

The averaged perceptron and averaged PA, PA-I and PA-II learn without a bias. C is one of nine values, chosen on every
tenth row after learning from the others, once for one epoch and once for all of them. `stopped early` is an answer of
its own: learned from nine tenths of the rows, the state of the epoch that did best on the tenth, ended after two epochs
without a better one. Of the seven tasks of texts (`confidence_weighted.py`) with their own labels, the learners that
have no C, mean of ten folds. OUT gets `results.json`, `table.md` and `averages.png`.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from typing import Any

import numpy as np

import bigclf

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
from one_pass import Rows, accuracy, load, tenth
from texts import TASKS, read, table, tenths, write

PRICES = 10.0 ** np.linspace(-4, 0, 9)  # 0.0001, 0.00032 ... 1
PRICED = ("averaged_pa1", "averaged_pa2")
ALGOS = ("averaged_perceptron", "averaged_pa", *PRICED)
WITHOUT_PRICE = tuple(algo for algo in ALGOS if algo not in PRICED)
HEAD = ("method", "first epoch", "best (epoch)", "last epoch", "stopped early (epoch)")


def learned(rows: Rows, others: Rows, epochs: int, algo: str, **options: Any) -> tuple[Any, list[float]]:
    """A model, and its accuracy in % on ``others`` after each epoch."""
    told = (others.x, others.y)
    model = bigclf.fit(
        rows.x, rows.y, algo=algo, bias=None, epochs=epochs, validate=told, progress=False, **options
    )  # fmt: skip
    return model, [100 * record["validation"]["accuracy"] for record in model.result_.history]


def chosen(most: Rows, held: Rows, epochs: int, algo: str) -> dict[str, dict[str, float]]:
    """Names and parameters to learn with: C as it is best for one epoch and for all of them."""
    if algo not in PRICED:
        return {algo: {}}
    seen = np.array([learned(most, held, epochs, algo, C=float(price))[1] for price in PRICES])
    places = {"one epoch": int(seen[:, 0].argmax()), f"{epochs} epochs": int(seen[:, -1].argmax())}
    return {f"{algo}, C = {PRICES[i]:.2g} for {what}": {"C": float(PRICES[i])} for what, i in places.items()}


def run(train: Rows, test: Rows, epochs: int, algo: str) -> dict[str, dict[str, Any]]:
    """By name: the curve of all rows on the test rows, and what stopping early comes to."""
    (most, held), found = tenth(train), {}
    for name, parameters in chosen(most, held, epochs, algo).items():
        curve = learned(train, test, epochs, algo, **parameters)[1]
        early, judged = learned(most, held, epochs, algo, early_stopping=2, **parameters)
        reached = 100 * accuracy(early.decision_function(test.x), test)
        found[name] = {"curve": curve, "early": reached, "kept": int(np.argmax(judged)) + 1}
    return found


def run_text(name: str, folder: str, epochs: int) -> dict[str, dict[str, Any]]:
    """By name: the curve on a task of texts, mean of ten folds."""
    task, found = read(name, folder), {}
    for algo in WITHOUT_PRICE:
        curves = []
        for train, test in tenths(task.labels, 0):
            parts = (Rows(task.rows[some], task.labels[some]) for some in (train, test))
            curves.append(learned(*parts, epochs, algo)[1])
        found[f"{name}, {algo}"] = {"curve": np.mean(curves, axis=0).tolist()}
    return found


def line(name: str, found: dict[str, Any]) -> list[str]:
    """A row of the table."""
    curve, best = found["curve"], int(np.argmax(found["curve"]))
    early = [f"{found['early']:.2f} ({found['kept']})"] if "early" in found else []
    return [name, f"{curve[0]:.2f}", f"{curve[best]:.2f} ({best + 1})", f"{curve[-1]:.2f}", *early]


def draw(found: dict[str, dict[str, Any]], title: str, path: str) -> None:
    """Accuracy after each epoch, and, dotted, of the answer that was stopped early."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    axes, ylabel = figure.subplots(), "test accuracy in %"
    for number, (name, one) in enumerate(found.items()):
        color = colormaps["tab20"](number)
        axes.plot(range(1, len(one["curve"]) + 1), one["curve"], marker="o", color=color, label=name)
        if "early" in one:
            axes.axhline(one["early"], color=color, linestyle=":")
            ylabel = "test accuracy in % (dotted: stopped early)"
    axes.set(xlabel="epochs", ylabel=ylabel, title=title)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(True, alpha=0.2)
    figure.legend(loc="outside right upper", fontsize="small")
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", help="directory of the results")
    parser.add_argument("--data", help="shards with two classes to learn from")
    parser.add_argument("--test", help="shards to measure on")
    parser.add_argument("--texts", help="instead of them: the folder of the data sets")
    parser.add_argument("--epochs", type=int, default=10)
    given = parser.parse_args()
    if bool(given.texts) == bool(given.data or given.test) or bool(given.data) != bool(given.test):
        parser.error("either --data and --test or --texts")
    warnings.simplefilter("ignore", bigclf.errors.ConvergenceWarning)  # so many epochs are all that is asked for
    found: dict[str, dict[str, Any]] = {}
    if given.texts:
        parts, title, head = (run_text(name, given.texts, given.epochs) for name in TASKS), "averages, texts", HEAD[:-1]
    else:
        train, test = load(given.data), load(given.test)
        parts = (run(train, test, given.epochs, algo) for algo in ALGOS)
        title, head = f"averages, {train.y.size:,} rows", HEAD
    for new in parts:
        found |= new
        print(*(" ".join(line(name, one)) for name, one in new.items()), sep="\n", flush=True)
    told = table(head, [line(name, one) for name, one in found.items()])
    write(given.out, found, told, lambda path: draw(found, title, path), "averages.png")


if __name__ == "__main__":
    main()
