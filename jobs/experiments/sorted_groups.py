"""Groups whose rows are not alike: what sorted rows cost, test accuracy after each epoch.

    python jobs/experiments/sorted_groups.py OUT --data SHARDS --test SHARDS [--groups 4] [--epochs 5]
                                                 [--algo NAME[,KEY=VALUE...] ...]

Each method learns three times, without a bias: as one group, as groups of the rows as they lie, and as groups of the
rows sorted by label. A group is a run of rows, so that then all groups but one see one class only. OUT gets
`results.json`, `table.md` and `groups.png`.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings

import numpy as np

import bigclf

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
from learning_curves import named
from one_pass import Rows, load
from texts import table, write

ALGOS = ["asgd,lam=1e-5", "averaged_pa2,C=0.1", "arow"]
HEAD = ("method", "one group", "groups", "sorted groups", "loss of sorting")


def by_label(rows: Rows) -> Rows:
    """The rows of one class, then those of the other, each in their order."""
    order = np.argsort(rows.y, kind="stable")
    return Rows(rows.x[order], rows.y[order])


def curve(rows: Rows, test: Rows, text: str, groups: int, epochs: int) -> list[float]:
    """Test accuracy in % after each epoch."""
    algo, parameters = named(text)
    model = bigclf.fit(
        rows.x, rows.y, algo=algo, bias=None, epochs=epochs, groups=groups, validate=(test.x, test.y), progress=False,
        **parameters,
    )  # fmt: skip
    return [100 * record["validation"]["accuracy"] for record in model.result_.history]


def line(name: str, runs: dict[str, list[float]]) -> list[str]:
    """A row of the table: accuracies after the last epoch."""
    one, apart, in_order = (runs[kind][-1] for kind in ("one group", "groups", "sorted groups"))
    return [name, *(f"{figure:.2f}" for figure in (one, apart, in_order, apart - in_order))]


def draw(found: dict[str, dict[str, list[float]]], title: str, path: str) -> None:
    """Accuracy after each epoch, a colour a method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.subplots()
    for number, (name, runs) in enumerate(found.items()):
        for (kind, reached), style in zip(runs.items(), ("-", "--", ":"), strict=True):
            places = range(1, len(reached) + 1)
            axes.plot(places, reached, style, marker="o", color=f"C{number}", label=f"{name}, {kind}")
    axes.set(xlabel="epochs", ylabel="test accuracy in %", title=title)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(True, alpha=0.2)
    figure.legend(loc="outside right upper", fontsize="small")  # lines lie everywhere
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", help="directory of the results")
    parser.add_argument("--data", required=True, help="shards with two classes to learn from")
    parser.add_argument("--test", required=True, help="shards to measure on")
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--algo", action="append", metavar="NAME[,KEY=VALUE...]", help="may be given more than once")
    given = parser.parse_args()
    warnings.simplefilter("ignore", bigclf.errors.ConvergenceWarning)  # so many epochs are all that is asked for
    train, test = load(given.data), load(given.test)
    ways = {"one group": (train, 1), "groups": (train, given.groups), "sorted groups": (by_label(train), given.groups)}
    found: dict[str, dict[str, list[float]]] = {}
    for name in given.algo or ALGOS:
        found[name] = {kind: curve(rows, test, name, n, given.epochs) for kind, (rows, n) in ways.items()}
        print(*line(name, found[name]), flush=True)
    title = f"{given.groups} groups, {train.y.size:,} rows"
    told = table(HEAD, [line(name, runs) for name, runs in found.items()])
    write(given.out, found, told, lambda path: draw(found, title, path), "groups.png")


if __name__ == "__main__":
    main()
