"""Learning curves of online methods: progressive and validation error against rows seen.

    python jobs/learning_curves.py OUT --data SHARDS --validate SHARDS [--algo NAME[,KEY=VALUE...] ...] [--epochs N]

The progressive error of the first epoch, each row judged before it was learned from, is noted on the way (64 rows, 77,
92 ...); the validation error is measured after each epoch. OUT then holds `curves.json`, `table.md` and `curves.png`
(with matplotlib: the extra `plots`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

import bigclf

ALGOS = ["perceptron", "averaged_perceptron", "pa1,C=0.1"]


def named(text: str) -> tuple[str, dict[str, Any]]:
    """``pa1,C=0.1`` as the method and its parameters."""
    algo, *pairs = text.split(",")
    return algo, {key: float(value) for key, value in (pair.split("=") for pair in pairs)}


def measure(text: str, given: argparse.Namespace) -> dict[str, Any]:
    """Train one method; its two curves as [rows seen, error]."""
    algo, parameters = named(text)
    model = bigclf.fit(
        given.data, algo=algo, epochs=given.epochs, validate=given.validate, memory=given.memory, progress=False,
        **parameters,
    )  # fmt: skip
    seen, apart = 0, []
    for record in model.result_.history:
        seen += record["rows"]
        apart.append([seen, 1 - record["validation"]["accuracy"]])
    curve = model.result_.progressive.get("curve", [])
    return {"name": text, "progressive": [[rows, wrong / rows] for rows, wrong, _ in curve], "validation": apart}


def line(run: dict[str, Any]) -> str:
    """A row of the table."""
    cells = [run["name"], *(f"{100 * run['validation'][at][1]:.2f} %" for at in (0, -1))]
    last = run["progressive"][-1][1] if run["progressive"] else float("nan")
    return "| " + " | ".join([cells[0], f"{100 * last:.2f} %", *cells[1:]]) + " |"


HEAD = "| method | progressive, first epoch | validation, first epoch | validation, last |\n" + "| --- " * 4 + "|"


def draw(runs: list[dict[str, Any]], title: str, path: str) -> None:
    """Both errors against rows seen, a colour a method."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for number, run in enumerate(runs):
        colour = f"C{number}"
        for kind, style in (("progressive", "-"), ("validation", "o--")):
            if run[kind]:
                rows, errors = zip(*run[kind], strict=True)
                axes.plot(rows, [100 * e for e in errors], style, color=colour, label=f"{run['name']}, {kind}")
    axes.set(xscale="log", xlabel="rows seen", ylabel="error in %", title=title)
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", help="directory of the results")
    parser.add_argument("--data", required=True, help="shards to learn from")
    parser.add_argument("--validate", required=True, help="shards to measure on")
    parser.add_argument("--algo", action="append", metavar="NAME[,KEY=VALUE...]", help="may be given more than once")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--memory", default="1GB")
    given = parser.parse_args()
    os.makedirs(given.out, exist_ok=True)
    told = bigclf.Dataset(given.data)
    title = f"{told.n_rows:,} rows, {told.nnz:,} non-zeros"
    print(f"{title}\n\n{HEAD}", flush=True)
    runs = []
    for text in given.algo or ALGOS:
        runs.append(measure(text, given))
        print(line(runs[-1]), flush=True)
    with open(os.path.join(given.out, "curves.json"), "w") as file:
        json.dump({"data": title, "runs": runs}, file, indent=1)
    with open(os.path.join(given.out, "table.md"), "w") as file:
        file.write("\n".join([title, "", HEAD, *map(line, runs)]) + "\n")
    try:
        draw(runs, title, os.path.join(given.out, "curves.png"))
    except ModuleNotFoundError as error:
        print(f"no plot: {error}; pip install 'bigclf[plots]' brings it", file=sys.stderr)


if __name__ == "__main__":
    main()
