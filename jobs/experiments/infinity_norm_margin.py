"""MEMMA beside PUMMA: updates, margins and time, and updates against epsilon, beside the published values.

    python jobs/experiments/infinity_norm_margin.py OUT [--parts table margins epsilons choices] [--sets N]

Ohta, Hatano, Takeda: online learning by the principle of maximum entropy, section 4: 1,000 rows of 100 features -1 or
+1, half of them positive, labelled by an r-of-k function; epsilon is a tenth of the true margin gamma* (a linear
programme's), and a run ends when all rows have 90 % of gamma*. ``table`` is its Table 2 (means of ten sets),
``margins`` Figure 3 (the margin against updates), ``epsilons`` Figure 4 (updates to a pass without any, against epsilon
= gamma*/i, i = 1 .. 30). r and k are not told there; k = 16, r = 8 fit its margins; ``choices`` shows others. eta is
epsilon / (2.01 ln n), what the paper asks for at least, weights are not negative, as there, and passes are shuffled
anew. OUT gets `results.json`, `table.md` and `margins.png`.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any, NamedTuple

import numpy as np
from texts import Claim, table, write

from bigclf.api.margins import infinity_norm_margin
from bigclf.data.arrays import Arrays
from bigclf.maths.block import alike
from bigclf.methods import resolve

ROWS, FEATURES, K, R = 1000, 100, 16, 8
DELTA, C = 0.1, 2.01
PUBLISHED = {"MEMMA": (115822, 0.057148, 181), "PUMMA": (119428, 0.057004, 936)}
CHOICES = ((8, 4), (12, 6), (16, 8), (16, 12), (24, 12), (32, 16))
EPSILONS = range(1, 31)
MOST_PASSES = 50_000


class Set(NamedTuple):
    """rows float64 [row, feature], labels [row], -1 or 1, and the true margin."""

    rows: np.ndarray
    labels: np.ndarray
    margin: float


def r_of_k(seed: int, k: int = K, r: int = R) -> Set:
    """Rows -1 or +1, label +1 where at least r of the first k features are +1; half of either class, by rejection."""
    random, kept = np.random.default_rng(seed), {-1: np.empty((0, FEATURES)), 1: np.empty((0, FEATURES))}
    while min(len(rows) for rows in kept.values()) < ROWS // 2:
        rows = random.choice([-1.0, 1.0], (20 * ROWS, FEATURES))
        labels = np.where((rows[:, :k] > 0).sum(axis=1) >= r, 1, -1)
        kept = {sign: np.vstack([kept[sign], rows[labels == sign]])[: ROWS // 2] for sign in kept}
    order = random.permutation(2 * (ROWS // 2))
    rows, labels = np.vstack([kept[-1], kept[1]])[order], np.repeat([-1, 1], ROWS // 2)[order]
    return Set(rows, labels, infinity_norm_margin(rows, labels, signs="nonnegative").margin)


class Path(NamedTuple):
    """How a run went: updates and margin after each pass; seconds of the processor in learning; whether a pass had no
    update."""

    updates: list[int]
    margins: list[float]
    seconds: float
    settled: bool


def run(name: str, given: Set, target: float, seed: int = 0, **settings: Any) -> Path:
    """Pass after pass until all rows have the margin ``target`` or none is learned from."""
    setting = resolve(name, None, None, "free", settings)
    kernel, params, state = setting.kernel(), setting.params(), setting.shared(FEATURES, "float64")
    block = Arrays(given.rows, given.labels).whole()
    block = alike(block._replace(labels=given.labels.astype(float)))
    random, scores = np.random.default_rng(seed), np.zeros(ROWS)
    kernel(block, np.empty(0, np.int64), state, (), params, scores)  # compiled
    updates, margins, seconds = [0], [0.0], 0.0
    while len(updates) <= MOST_PASSES:
        order = random.permutation(ROWS)
        began = time.process_time()
        made = kernel(block, order, state, (), params, scores).updates
        seconds += time.process_time() - began
        w = setting.weights(state)
        updates.append(updates[-1] + made)
        margins.append(float((given.labels * (given.rows @ w[:-1] + w[-1])).min() / np.abs(w[:-1]).sum()))
        if made == 0 or margins[-1] >= target:
            break
    return Path(updates, margins, seconds, made == 0)


def memma(given: Set, share: float = DELTA, target: float = np.inf, **more: Any) -> Path:
    return run("memma", given, target, **{"eps": share * given.margin, "c": C, "signs": "nonnegative"} | more)


def pumma(given: Set, target: float = np.inf) -> Path:
    return run("pumma", given, target, delta=DELTA)


def table_2(sets: int) -> list[dict[str, Any]]:
    """A record a set: gamma* and of each learner updates, passes, margin, seconds."""
    records = []
    for seed in range(sets):
        given = r_of_k(seed)
        record: dict[str, Any] = {"margin": given.margin}
        for name, learner in (("MEMMA", memma), ("PUMMA", pumma)):
            path = learner(given, target=(1 - DELTA) * given.margin)
            record[name] = (path.updates[-1], len(path.updates) - 1, path.margins[-1], path.seconds)
        print(seed, record, flush=True)
        records.append(record)
    return records


def figure_3() -> dict[str, Any]:
    given = r_of_k(0)
    target = (1 - DELTA) * given.margin
    found = {name: learner(given, target=target) for name, learner in (("MEMMA", memma), ("PUMMA", pumma))}
    return {"target": target} | {name: (path.updates, path.margins) for name, path in found.items()}


def figure_4(epsilons: Any = EPSILONS) -> dict[str, Any]:
    """Updates to a pass without any, for epsilon = gamma* / i."""
    given, found = r_of_k(0), []
    for i in epsilons:
        path = memma(given, share=1 / i)
        found.append((given.margin / i, path.updates[-1], path.margins[-1], path.seconds))
        print(i, found[-1], flush=True)
    return {"margin": given.margin, "runs": found, "slope": slope_of(found)}


def slope_of(runs: list[tuple[float, int, float, float]]) -> float:
    """Of ln(updates) against ln(epsilon), by least squares."""
    return float(np.polyfit(np.log([r[0] for r in runs]), np.log([r[1] for r in runs]), 1)[0])


def choices(sets: int) -> list[dict[str, Any]]:
    """The table for other r and k."""
    records = []
    for k, r in CHOICES:
        for seed in range(min(3, sets)):
            given = r_of_k(seed, k, r)
            target = (1 - DELTA) * given.margin
            each = {name: f(given, target=target) for name, f in (("MEMMA", memma), ("PUMMA", pumma))}
            records.append({"k": k, "r": r, "margin": given.margin} | {
                name: (path.updates[-1], len(path.updates) - 1, path.margins[-1], path.seconds)
                for name, path in each.items()
            })  # fmt: skip
            print(records[-1], flush=True)
    return records


def means(records: list[dict[str, Any]], name: str) -> np.ndarray:
    """Updates, passes, margin, seconds."""
    return np.mean([record[name] for record in records], axis=0)


def told_table(records: list[dict[str, Any]]) -> str:
    lines = []
    for name, (updates, margin, seconds) in PUBLISHED.items():
        mean = means(records, name)
        lines.append([name, f"{mean[0]:,.0f}", f"{updates:,}", f"{mean[2]:.6f}", f"{margin:.6f}", f"{mean[3]:.2f}",
                      f"{seconds}", f"{mean[1]:,.0f}"])  # fmt: skip
    head = ["", "updates", "published", "margin", "published", "seconds", "published", "passes"]
    return table(head, lines)


def table_claims(records: list[dict[str, Any]]) -> list[Claim]:
    ours, other = means(records, "MEMMA"), means(records, "PUMMA")
    least = min(record[name][2] for record in records for name in PUBLISHED)
    ratio, times = ours[0] / other[0], other[3] / ours[3]
    return [
        Claim("updates of MEMMA over PUMMA's in [0.5, 2]", bool(0.5 <= ratio <= 2), f"{ratio:.2f}; published 0.97"),
        Claim("time of PUMMA at least 3 times MEMMA's", bool(times >= 3), f"{times:.1f}; published 5.2"),
        Claim("every margin at least 0.05625", least >= 0.05625 - 1e-9, f"{least:.6f}"),
    ]


def epsilon_claims(found: dict[str, Any]) -> list[Claim]:
    slope, held = found["slope"], all(r[2] >= found["margin"] - r[0] - 1e-12 for r in found["runs"])
    return [
        Claim("slope of ln(updates) against ln(epsilon) in [-2.3, -1.7]", -2.3 <= slope <= -1.7, f"{slope:.2f}"),
        Claim("every margin at least gamma* - epsilon", held, "all" if held else "not all"),
    ]


def report(found: dict[str, Any]) -> str:
    parts, told = [], []
    if "table" in found:
        parts += [f"Means of {len(found['table'])} sets, beside Table 2", told_table(found["table"])]
        told += table_claims(found["table"])
    if "epsilons" in found:
        lines = [[f"{e:.5f}", f"{updates:,}", f"{margin:.5f}", f"{seconds:.2f}"]
                 for e, updates, margin, seconds in found["epsilons"]["runs"]]  # fmt: skip
        parts += [f"Updates to a pass without any (gamma* = {found['epsilons']['margin']:.5f}), beside Figure 4",
                  table(["epsilon", "updates", "margin", "seconds"], lines)]  # fmt: skip
        told += epsilon_claims(found["epsilons"])
    if "choices" in found:
        lines = []
        for k, r in CHOICES:
            same = [record for record in found["choices"] if (record["k"], record["r"]) == (k, r)]
            ours, other = means(same, "MEMMA"), means(same, "PUMMA")
            lines.append([f"{r} of {k}", f"{np.mean([s['margin'] for s in same]):.4f}", f"{ours[0]:,.0f}",
                          f"{other[0]:,.0f}", f"{ours[0] / other[0]:.2f}", f"{other[3] / ours[3]:.1f}"])  # fmt: skip
        head = ["", "gamma*", "updates of MEMMA", "of PUMMA", "ratio", "time of PUMMA / MEMMA"]
        parts += ["Other r of k, means of three sets", table(head, lines)]
    return "\n\n".join([*parts, "\n".join(map(str, told))])


def draw(found: dict[str, Any], path: str) -> None:
    from matplotlib.figure import Figure

    shown = [name for name in ("margins", "epsilons") if name in found]
    if not shown:
        return
    figure = Figure(figsize=(5.4 * len(shown), 4.2), layout="constrained")
    panels = figure.subplots(1, len(shown), squeeze=False)
    for axes, name in zip(panels[0], shown, strict=True):
        (draw_margins if name == "margins" else draw_epsilons)(axes, found[name])
        axes.grid(True, color="#e6e6e6")
        axes.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=120)


def draw_margins(axes: Any, found: dict[str, Any]) -> None:
    """Figure 3, with the published ends of both."""
    for name, colour in (("MEMMA", "C0"), ("PUMMA", "C1")):
        updates, margins = found[name]
        axes.plot(updates, margins, color=colour, lw=1, label=name)
        axes.plot(PUBLISHED[name][0], PUBLISHED[name][1], "o", color=colour, mfc="none", label=f"{name}, published end")
    axes.axhline(found["target"], color="black", lw=0.8, ls="--", label="90 % of the true margin")
    least = 0.3 * found["target"]
    axes.set(title="Figure 3", xlabel="updates", ylabel="margin", ylim=(-least, 1.15 * found["target"]))


def draw_epsilons(axes: Any, found: dict[str, Any]) -> None:
    """Figure 4: slopes -2 (its experiment) and -3 (its theorem) through the first point."""
    x, y = np.log([r[0] for r in found["runs"]]), np.log([r[1] for r in found["runs"]])
    axes.plot(x, y, "o-", ms=3, label=f"MEMMA (slope {found['slope']:.2f})")
    for slope, style in ((-2, "--"), (-3, ":")):
        axes.plot(x, y[0] + slope * (x - x[0]), "k" + style, lw=1, label=f"slope {slope}")
    axes.set(title="Figure 4", xlabel="ln epsilon", ylabel="ln updates",
             ylim=(math.floor(y.min()), math.ceil(y.max()) + 3))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", help="directory of the results")
    every = ("table", "margins", "epsilons", "choices")
    parser.add_argument("--parts", nargs="+", default=every, choices=every)
    parser.add_argument("--sets", type=int, default=10)
    given, found = parser.parse_args(), {}
    made = {"table": lambda: table_2(given.sets), "margins": figure_3, "epsilons": figure_4,
            "choices": lambda: choices(given.sets)}  # fmt: skip
    for part in given.parts:
        found[part] = made[part]()
    write(given.out, found, report(found), lambda path: draw(found, path), "margins.png")


if __name__ == "__main__":
    main()
