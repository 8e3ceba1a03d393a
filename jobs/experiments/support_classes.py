"""Accuracy of multi-class confidence-weighted learners with support classes, beside the figures published for them.

    python jobs/experiments/support_classes.py OUT [--data DIR] [--sets usps news20] [--shuffles N] [--processes N]
        [--fixed] [--noise]

Oiwa, Matsushima, Nakagawa: support classes in confidence-weighted learning (a poster): handwritten digits (USPS, 7,291
rows, values from -1 to 1) and messages of 20 groups (news20, 15,935 rows of counts), ten-fold cross-validation, three
passes, the mean of so many shuffles (1). With ``--fixed`` parameters are those that the claims are made for; else they
are chosen by three folds inside each fold. ``--noise`` trains on digits of which 0 to 30 % have a wrong label instead.
DIR (or BIGCLF_DATA) holds `usps/usps.gz` and `news20/news20.bz2`. OUT gets `results.json`, `table.md` and a plot, and
in `folds` what each learner came to on each fold as soon as it is known: the same command goes on where it was stopped.

The poster's other rows are subsets of larger collections of messages, which were not published with it.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from texts import FOLDS, INNER_FOLDS, Claim, arguments, folder_of, table, tenths, write

import bigclf
from bigclf.files import publish_text

PASSES = 3
FILES = {"usps": "usps/usps.gz", "news20": "news20/news20.bz2"}
PUBLISHED = {
    "usps": {"PA": 90.0, "PA-I": 89.6, "PA-II": 90.4, "CW k=1": 92.4, "CW k=ALL": 83.5, "SCCW": 93.7, "SCCWD": 93.5},
    "news20": {"PA": 75.8, "PA-I": 78.0, "PA-II": 78.0, "CW k=1": 84.8, "CW k=ALL": 76.3, "SCCWD": 83.3},
}
RANGES = {  # of the accuracy in per cent, with the parameters that are set beforehand
    "usps": {
        "SCCW": (92.7, 94.3), "SCCWD": (92.2, 94.2), "SCCWD exact": (92.2, 94.2), "CW k=1": (92.7, 94.5),
        "CW k=ALL": (92.4, 94.4), "PA": (91.5, 100.0), "PA-I": (93.6, 95.0), "PA-II": (93.6, 95.0),
        "AROW": (94.0, 95.4),
    },
    "news20": {
        "CW k=1": (84.3, 100.0), "SCCWD": (83.6, 100.0), "CW k=ALL": (83.8, 85.4), "PA": (79.3, 81.0),
        "PA-I": (82.8, 100.0), "PA-II": (83.3, 100.0),
    },
}  # fmt: skip
ETA = {"usps": 0.8, "news20": 0.9}
NOISE = (0.0, 0.1, 0.2, 0.3)
LEAST_WITH_NOISE = {0.1: (91.0, 10.0), 0.2: (88.0, 20.0), 0.3: (82.5, 25.0)}  # AROW's accuracy, its lead over CW k=1
PRICES, QUANTILES = (1e-4, 1e-3, 1e-2, 0.1), (0.6, 0.7, 0.8, 0.9, 0.95)


class Learner(NamedTuple):
    """A column: a method that learns all classes at once, with its parameters; one of ``grid`` may be chosen."""

    title: str
    algo: str
    settings: dict[str, Any] = {}
    grid: dict[str, Sequence[float]] = {}

    def __str__(self) -> str:
        told = [f"{name} = {value}" for name, value in self.settings.items()]
        told += [f"{name} of {', '.join(map(str, values))}" for name, values in self.grid.items()]
        return f"{self.title}: `{self.algo}`" + (f", {'; '.join(told)}" if told else "")

    def measured(self, rows: Any, labels: np.ndarray, test: Any, truth: np.ndarray, seed: int) -> dict[str, Any]:
        """``accuracy`` after each pass, in per cent, of rows that were not learned from; ``chosen`` parameters."""
        settings: dict[str, Any] = dict(bias=None, epochs=PASSES, seed=seed, multiclass="native", progress=False)
        settings |= {"workers": bigclf.Workers(threads=1), **self.settings}
        chosen: dict[str, Any] = {}
        if self.grid:  # the best is learned below, where it is measured after each pass
            found = bigclf.sweep(
                rows, labels, algo=self.algo, grid=self.grid, folds=INNER_FOLDS, refit=False, **settings
            )
            chosen = found.best_params_
        model = bigclf.fit(rows, labels, algo=self.algo, validate=(test, truth), **settings, **chosen)
        accuracy = [100 * record["validation"]["accuracy"] for record in model.result_.history]
        return {"accuracy": accuracy, "chosen": chosen}


def learners(name: str, fixed: bool) -> list[Learner]:
    """The columns of a set of rows."""

    def one(title: str, algo: str, given: dict[str, Any], grid: dict[str, Sequence[float]], **more: Any) -> Learner:
        return Learner(title, algo, more | given) if fixed else Learner(title, algo, more, grid)

    price, eta = ({"C": 0.001}, {"C": PRICES}), ({"eta": ETA[name]}, {"eta": QUANTILES})
    columns = [
        Learner("PA", "pa"),
        one("PA-I", "pa1", *price),
        one("PA-II", "pa2", *price),
        one("CW k=1", "cw", *eta, constraints="one"),
        one("CW k=ALL", "cw", *eta, constraints="all"),
        one("SCCW", "sccw_full", *eta),
        one("SCCWD", "sccw", *eta),
        one("SCCWD exact", "sccw_exact", *eta),
        one("AROW", "arow", {"r": 10.0}, {"r": (0.1, 1.0, 10.0, 100.0)}),
        Learner("perceptron", "perceptron"),
        Learner("averaged perceptron", "averaged_perceptron"),
        Learner("averaged PA", "averaged_pa"),
    ]
    full_fits = name != "news20"  # else a matrix of 62,061 x 62,061
    return [column for column in columns if full_fits or column.algo != "sccw_full"]


NOISY = (
    Learner("AROW", "arow", {"r": 1000.0}),
    Learner("CW k=1", "cw", {"eta": ETA["usps"], "constraints": "one"}),
    Learner("SCCWD", "sccw", {"eta": ETA["usps"]}),
    Learner("PA", "pa"),
    Learner("PA-I", "pa1", {"C": 0.001}),
    Learner("averaged PA", "averaged_pa"),
    Learner("averaged perceptron", "averaged_perceptron"),
)


def read(name: str, folder: str) -> tuple[sparse.csr_matrix, np.ndarray]:
    """Rows float64 as they are in the file, and the labels, whole numbers."""
    from sklearn.datasets import load_svmlight_file

    rows, labels = load_svmlight_file(os.path.join(folder, FILES[name]))
    return rows, labels.astype(np.int64)


def wrong_labels(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """A copy of the labels of which this share is another class, each as likely."""
    random, classes = np.random.default_rng(seed), np.unique(labels)
    noisy = labels.copy()
    places = random.permutation(labels.size)[: round(share * labels.size)]
    further = random.integers(1, classes.size, places.size)
    noisy[places] = classes[(np.searchsorted(classes, labels[places]) + further) % classes.size]
    return noisy


class Fold(NamedTuple):
    """One of ten parts of a set, with this share of the labels learned from wrong; ``shuffle`` says how it is cut."""

    name: str
    shuffle: int
    number: int
    noise: float

    def rows(self, folder: str) -> tuple[Any, np.ndarray, Any, np.ndarray]:
        """To learn from, with their labels, and to measure on."""
        rows, labels = read(self.name, folder)
        train, test = tenths(labels, self.shuffle)[self.number]
        learned = wrong_labels(labels[train], self.noise, 10 * self.shuffle + self.number)
        return rows[train], learned, rows[test], labels[test]

    def measured(self, folder: str, columns: Sequence[Learner], kept: str) -> dict[str, Any]:
        """``rows`` that were measured on, and under ``learners`` what each came to; what the directory ``kept`` has
        from an earlier run is not measured again."""
        path = os.path.join(kept, "{}-{}-{}-{:g}.json".format(*self))
        made = {"passes": PASSES, "inner folds": INNER_FOLDS, "bigclf": bigclf.__version__}
        known: dict[str, Any] = {"made": made, "rows": 0, "learners": {}}
        if os.path.exists(path):
            with open(path) as file:
                told = json.load(file)
            known = told if told["made"] == made else known
        missing = [column for column in columns if str(column) not in known["learners"]]
        rows, labels, test, truth = self.rows(folder) if missing else (None,) * 4
        for column in missing:
            known["rows"] = truth.size
            known["learners"][str(column)] = column.measured(rows, labels, test, truth, self.shuffle)
            publish_text(path, json.dumps(known, indent=1))
        return known


def measure(
    name: str, folder: str, columns: Sequence[Learner], asked: argparse.Namespace, noise: float = 0.0
) -> dict[str, dict[str, Any]]:
    """Of each learner the mean accuracy over folds and shuffles by pass, its standard error over the folds, and what
    was chosen in each."""
    from joblib import Parallel, delayed

    kept = os.path.join(asked.out, "folds")
    os.makedirs(kept, exist_ok=True)
    folds = [Fold(name, shuffle, number, noise) for shuffle in range(asked.shuffles) for number in range(FOLDS)]
    found = Parallel(n_jobs=asked.processes)(delayed(fold.measured)(folder, columns, kept) for fold in folds)
    sizes = np.array([told["rows"] for told in found], float)
    each = {column.title: [told["learners"][str(column)] for told in found] for column in columns}
    values = np.array([[one["accuracy"] for one in own] for own in each.values()])  # [learner, fold, pass]
    mean = np.average(values, axis=1, weights=sizes)
    error = values[:, :, -1].std(axis=1, ddof=1) / np.sqrt(len(folds))
    return {
        title: {
            "accuracy": mean[i].tolist(),
            "standard_error": float(error[i]),
            "chosen": [one["chosen"] for one in own],
        }
        for i, (title, own) in enumerate(each.items())
    }


def last(found: dict[str, dict[str, Any]], title: str) -> float:
    return float(found[title]["accuracy"][-1])


def claims(name: str, found: dict[str, dict[str, Any]], fixed: bool) -> list[Claim]:
    """What is to hold of a set of rows; ranges are for the parameters set beforehand."""
    told = []
    for title, (low, high) in RANGES[name].items() if fixed else ():
        value = last(found, title)
        bounds = f"at least {low:g} %" if high == 100 else f"from {low:g} to {high:g} %"
        told.append(Claim(f"{name}: {title} {bounds}", low <= value <= high, f"{value:.2f}"))
    for title, published in PUBLISHED[name].items():
        value = last(found, title)
        told.append(Claim(f"{name}: {title} at least the published {published:g} % less 1", value >= published - 1,
                          f"{value:.2f}"))  # fmt: skip
    told += usps_claims(found) if name == "usps" else news20_claims(found)
    return told


def usps_claims(found: dict[str, dict[str, Any]]) -> list[Claim]:
    apart = last(found, "SCCW") - last(found, "SCCWD")
    told = [Claim("usps: SCCW and SCCWD are within 1 point", abs(apart) <= 1, f"{apart:+.2f}")]
    for title, plain, least in (("averaged perceptron", "perceptron", 2.0), ("averaged PA", "PA", 1.0)):
        gain = last(found, title) - last(found, plain)
        told.append(Claim(f"usps: {title} at least {least:g} points above {plain}", gain >= least, f"{gain:+.2f}"))
    return told


def news20_claims(found: dict[str, dict[str, Any]]) -> list[Claim]:
    lead = last(found, "CW k=1") - last(found, "SCCWD")
    told = [Claim("news20: CW k=1 at least SCCWD less 0.2", lead >= -0.2, f"{lead:+.2f}")]
    order = ["CW k=1", "PA-II", "PA-I", "PA"]
    values = [last(found, title) for title in order]
    held = all(a > b for a, b in zip(values, values[1:], strict=False))
    told.append(Claim(f"news20: {' > '.join(order)}", held, ", ".join(f"{v:.2f}" for v in values)))
    lead = last(found, "CW k=1") - last(found, "CW k=ALL")
    return [*told, Claim("news20: CW k=1 above CW k=ALL", lead > 0, f"{lead:+.2f}")]


def noise_claims(records: list[dict[str, Any]]) -> list[Claim]:
    told = []
    for record in records:
        least = LEAST_WITH_NOISE.get(record["noise"])
        if least is not None:
            arow, other = last(record["found"], "AROW"), last(record["found"], "CW k=1")
            text = f"{record['noise']:.0%} wrong: AROW at least {least[0]:g} % and {least[1]:g} points above CW k=1"
            told.append(Claim(text, arow >= least[0] and arow - other >= least[1], f"{arow:.2f}, {other:.2f}"))
    return told


def report(results: dict[str, dict[str, dict[str, Any]]], fixed: bool) -> str:
    parts = ["Accuracy in % ± standard error over the folds, after three passes; below it what was published"]
    for name, found in results.items():
        cells = [f"{last(found, t):.2f} ± {found[t]['standard_error']:.2f}" for t in found]
        known = PUBLISHED[name]
        parts.append(
            table([name, *found], [["bigclf", *cells], ["published", *(str(known.get(t, "")) for t in found)]])
        )
        parts.append("\n".join(f"- {column}{choices(found[column.title])}" for column in learners(name, fixed)))
        parts.append("\n".join(map(str, claims(name, found, fixed))))
    return "\n\n".join(parts)


def choices(found: dict[str, Any]) -> str:
    """How often each value was chosen, the most frequent first; nothing where there was no choice."""
    counts = collections.Counter(value for chosen in found["chosen"] for value in chosen.values())
    told = ", ".join(f"{value} ({times} of {counts.total()})" for value, times in counts.most_common())
    return f"; chosen: {told}" if told else ""


def noise_report(records: list[dict[str, Any]]) -> str:
    titles = [column.title for column in NOISY]
    lines = [[f"{r['noise']:.0%}", *(f"{last(r['found'], t):.2f}" for t in titles)] for r in records]
    head = "USPS: accuracy in % after three passes, by share of the labels learned from that are wrong"
    listed = "\n".join(f"- {column}" for column in NOISY)
    return "\n\n".join([head, table(["wrong", *titles], lines), listed, "\n".join(map(str, noise_claims(records)))])


def draw(results: dict[str, dict[str, dict[str, Any]]], path: str) -> None:
    """A panel a set: accuracy by pass."""
    curves = {name: {t: (range(1, PASSES + 1), f["accuracy"]) for t, f in found.items()}
              for name, found in results.items()}  # fmt: skip
    _draw(curves, "pass", path)


def draw_noise(records: list[dict[str, Any]], path: str) -> None:
    shares = [100 * record["noise"] for record in records]
    curves = {c.title: (shares, [last(r["found"], c.title) for r in records]) for c in NOISY}
    _draw({"usps": curves}, "labels learned from that are wrong, in %", path)


def _draw(panels: dict[str, dict[str, tuple[Any, Any]]], below: str, path: str) -> None:
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4 * len(panels), 4.6), layout="constrained")
    places = figure.subplots(1, len(panels), squeeze=False)
    titles = list(
        dict.fromkeys(title for curves in panels.values() for title in curves)
    )  # a colour each, in every panel
    for axes, (name, curves) in zip(places[0], panels.items(), strict=True):
        for title, (x, y) in curves.items():
            colour = colormaps["tab20"](titles.index(title))
            axes.plot(x, y, marker="o", ms=4, label=title, color=colour)
        axes.set(title=name, xlabel=below, ylabel="accuracy in %", xticks=list(next(iter(curves.values()))[0]))
        axes.grid(True, color="#e6e6e6")
        axes.legend(frameon=False, fontsize="small", ncols=2)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--sets", nargs="+", default=list(FILES), choices=FILES)
    parser.add_argument("--shuffles", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2, help="folds that are measured at a time")
    parser.add_argument("--fixed", action="store_true", help="parameters set beforehand")
    parser.add_argument("--noise", action="store_true", help="wrong labels among those learned from")
    given = parser.parse_args()
    folder = folder_of(given.data)
    if given.noise:
        records = [{"noise": n, "found": measure("usps", folder, NOISY, given, n)} for n in NOISE]
        write(given.out, {"usps": records}, noise_report(records), lambda path: draw_noise(records, path), "noise.png")
        return
    results = {n: measure(n, folder, learners(n, given.fixed), given) for n in given.sets}
    write(given.out, results, report(results, given.fixed), lambda path: draw(results, path), "passes.png")


if __name__ == "__main__":
    main()
