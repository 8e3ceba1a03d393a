"""Four schedules of one solver side by side: gap against bytes read and against seconds.

    python jobs/block_minimisation.py OUT [--data SHARDS] [--rows N] [--memory SIZE] [--C C] [--tol GAP] [--loss LOSS]

fixed (Yu et al. 2010), selective (Chang and Roth 2011), cached (dual cached loops: Matsushima et al. 2012) and auto
(ours) train on the same shards with the same memory, each in a process of its own, one after another. Without --data
rows are generated and converted once. OUT then holds `table.md`, `traces.json`, `gap_by_bytes.png` and
`gap_by_seconds.png` (with matplotlib: the extra `plots`). A point is a certificate: the gap that was proven by the end
of a read. Ours makes one only where it may end the run, so its other points are runs of its own that stop at a looser
tolerance. Exit code 1: one of the four came to its limits before the tolerance.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import warnings
from typing import Any

import bigclf
from bigclf.units import format_bytes

SCHEDULES = {
    "fixed": "fixed blocks (Yu et al. 2010)",
    "selective": "selective (Chang, Roth 2011)",
    "cached": "dual cached loops (Matsushima et al. 2012)",
    "auto": "bigclf's default",
}
LADDER = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 3e-4, 1e-4)  # tolerances of the other runs of ours
COLOURS = {"fixed": "#999999", "selective": "#0072b2", "cached": "#d55e00", "auto": "#009e73"}
MARKS = {"fixed": "s", "selective": "^", "cached": "D", "auto": "o"}


def generate(out: str, n_rows: int) -> str:
    """Shards of rows like the demo's, made once; their directory."""
    from bigclf.cli.shared.demo_data import write_text

    shards = os.path.join(out, f"rows-{n_rows}")
    if not os.path.exists(os.path.join(shards, "_bigclf_manifest.json")):
        with tempfile.TemporaryDirectory(dir=out) as place:
            text = os.path.join(place, "rows.svm")
            write_text(text, n_rows, max(1000, n_rows // 2), seed=0, part=1)
            bigclf.convert(text, shards)
    return shards


def train(shards: str, schedule: str, given: argparse.Namespace, tol: float) -> Any:
    return bigclf.fit(
        shards, algo="dcd", loss=given.loss, C=given.C, bias=None, memory=given.memory, tol=tol,
        epochs=given.most_reads, max_seconds=given.most_seconds, schedule=schedule, progress=False,
    )  # fmt: skip


def end_of(model: Any) -> dict[str, Any]:
    result = model.result_
    return {"reads": result.reads, "bytes": result.bytes_read, "seconds": round(result.seconds, 4),
            "gap": model.certificate["gap"]}  # fmt: skip


def measure(shards: str, schedule: str, given: argparse.Namespace) -> dict[str, Any]:
    """Train, and tell what the history of the run has."""
    warnings.simplefilter("ignore", bigclf.errors.ConvergenceWarning)
    model = train(shards, schedule, given, given.tol)
    result, end = model.result_, end_of(model)
    points = [
        {"reads": r["reads"], "bytes": r["bytes_read"], "seconds": r["seconds"], "gap": r["gap"]}
        for r in result.history if "gap" in r
    ]  # fmt: skip
    if schedule == "auto":
        points = [end_of(train(shards, schedule, given, tol)) for tol in LADDER if tol > given.tol]
    points.append(end)  # a certificate that was made alone has no record of its own
    plan = result.plan
    return {"schedule": schedule, "converged": result.converged, "points": points, "end": end,
            "block_bytes": plan["block_bytes"], "set_rows": plan["set_rows"], "memory": result.memory}  # fmt: skip


def alone(shards: str, schedule: str, given: argparse.Namespace, answer: Any) -> None:
    answer.put(measure(shards, schedule, given))


def in_turn(shards: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Each schedule in a process of its own, so that none finds what another left in memory."""
    context, runs = multiprocessing.get_context("spawn"), []
    for schedule in SCHEDULES:
        answer = context.SimpleQueue()
        child = context.Process(target=alone, args=(shards, schedule, given, answer))
        child.start()
        while answer.empty() and child.is_alive():
            child.join(0.1)
        if answer.empty():
            sys.exit(f"{schedule}: the process ended with code {child.exitcode}")
        runs.append(answer.get())
        child.join()
        print(line(runs[-1]), flush=True)
    return runs


HEAD = "| schedule | reads | bytes read | seconds | certified gap | block | rows cached |\n" + "| --- " * 7 + "|"


def line(run: dict[str, Any]) -> str:
    """A row of the table."""
    end = run["end"]
    gap = f"{end['gap']:.1e}" + ("" if run["converged"] else " (not converged)")
    cells = (SCHEDULES[run["schedule"]], f"{end['reads']}", format_bytes(end["bytes"]), f"{end['seconds']:.1f}", gap,
             format_bytes(run["block_bytes"]), f"{run['set_rows']:,}")  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def frontier(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points in order of what they cost, without those that cost more than a better one."""
    kept: list[tuple[float, float]] = []
    for cost, gap in sorted(points):
        if not kept or gap < kept[-1][1]:
            kept.append((cost, gap))
    return kept


def draw(runs: list[dict[str, Any]], axis: str, title: str, tol: float, path: str) -> None:
    """Gap against ``axis`` ("bytes" or "seconds"), a line a schedule, both axes logarithmic."""
    from matplotlib import ticker
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 5), layout="constrained")
    axes = figure.subplots()
    for run in runs:
        name = run["schedule"]
        x, y = zip(*frontier([(point[axis], point["gap"]) for point in run["points"]]), strict=True)
        axes.plot(x, y, color=COLOURS[name], marker=MARKS[name], markersize=5, label=SCHEDULES[name])
    axes.axhline(tol, color="black", linewidth=0.8, linestyle=":", label=f"tolerance {tol:g}")
    axes.set(xscale="log", yscale="log", ylabel="certified relative gap", title=title)
    axes.set_xlabel("bytes read" if axis == "bytes" else "seconds")
    axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda x, _: format_bytes(int(x)) if axis == "bytes" else f"{x:g}")
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.grid(True, which="both", alpha=0.2)
    figure.legend(loc="outside lower center", ncols=2)  # lines lie everywhere
    figure.savefig(path, dpi=130)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", help="directory of the results")
    parser.add_argument("--data", help="shards to train on, in place of generated rows")
    parser.add_argument("--rows", type=int, default=200_000, help="rows to generate")
    parser.add_argument("--memory", default="80MB", help="budget of each run; the rows must not fit")
    parser.add_argument("--C", type=float, default=1.0)
    parser.add_argument("--loss", default="hinge")
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--most-reads", type=int, default=100)
    parser.add_argument("--most-seconds", type=float, default=600.0, help="of each run")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    os.makedirs(given.out, exist_ok=True)
    shards = given.data or generate(given.out, given.rows)
    told = bigclf.Dataset(shards)
    title = f"{told.n_rows:,} rows, {told.nnz:,} non-zeros, {given.loss}, C = {given.C:g}, memory {given.memory}"
    print(f"{title}\n\n{HEAD}", flush=True)
    runs = in_turn(shards, given)
    with open(os.path.join(given.out, "table.md"), "w") as file:
        file.write("\n".join([title, "", HEAD, *map(line, runs)]) + "\n")
    with open(os.path.join(given.out, "traces.json"), "w") as file:
        json.dump({"data": title, "tol": given.tol, "runs": runs}, file, indent=1)
    try:
        draw(runs, "bytes", title, given.tol, os.path.join(given.out, "gap_by_bytes.png"))
        draw(runs, "seconds", title, given.tol, os.path.join(given.out, "gap_by_seconds.png"))
    except ModuleNotFoundError as error:
        print(f"no plots: {error}; pip install 'bigclf[plots]' brings it", file=sys.stderr)
    sys.exit(0 if all(run["converged"] for run in runs) else 1)


if __name__ == "__main__":
    main()
