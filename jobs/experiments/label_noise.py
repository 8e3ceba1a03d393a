"""Learners whose labels to learn from are partly turned round: AROW beside both forms of CW on text problems.

    python jobs/experiments/label_noise.py OUT [--data DIR] [--shuffles N] [--tasks NAME ...]

Crammer, Kulesza, Dredze: Adaptive Regularization of Weight Vectors, NIPS 2009. Ten-fold cross-validation, five passes,
the mean of so many shuffles (3); 0, 10, 20 and 30 % of the labels learned from are wrong, those measured on are not.
Parameters are set beforehand: r = 1000, much regularisation; with r = 1 AROW would lose to CW. DIR (or BIGCLF_DATA)
holds `20news/`. OUT gets `results.json`, `table.md` and `noise.png`.
"""

from __future__ import annotations

from typing import Any

from scipy.stats import norm
from texts import TASKS, Claim, Learner, arguments, cross_validate, errors, folder_of, read, table, write

NOISE = (0.0, 0.1, 0.2, 0.3)
LEARNERS = (
    Learner("AROW", "arow", {"r": 1000.0}),
    Learner("CW variance", "cw_var", {"phi": 1.0}),
    Learner("CW deviation", "cw", {"eta": float(norm.cdf(2.33))}),
    Learner("PA", "pa"),
    Learner("PA-I", "pa1", {"C": 0.001}),
    Learner("averaged perceptron", "averaged_perceptron"),
)
CLAIMED = ("comp", "sci")
LEADS = {  # by how many points AROW is to beat the column, by share of wrong labels
    "CW deviation": {0.1: 1.0, 0.2: 4.0, 0.3: 5.0},
    "CW variance": {0.2: 2.0, 0.3: 2.0},
}


def measure(name: str, folder: str, shuffles: int) -> list[dict[str, Any]]:
    """Errors of one task in per cent, a record for each share of wrong labels."""
    task, records = read(name, folder), []
    for noise in NOISE:
        mean, spread = errors(cross_validate(task, LEARNERS, shuffles, noise))
        by = {learner.title: (float(m), float(s)) for learner, m, s in zip(LEARNERS, mean, spread, strict=False)}
        records.append({"noise": noise, "error": {t: m for t, (m, _) in by.items()},
                        "spread": {t: s for t, (_, s) in by.items()}})  # fmt: skip
    return records


def report(found: dict[str, list[dict[str, Any]]]) -> str:
    titles = [learner.title for learner in LEARNERS]
    lines = [
        [name, f"{record['noise']:.0%}", *(f"{record['error'][t]:.2f} ± {record['spread'][t]:.2f}" for t in titles)]
        for name, records in found.items()
        for record in records
    ]
    head = "Error in % ± standard deviation over shuffles, by share of the labels learned from that are wrong"
    told = [str(claim) for name in CLAIMED if name in found for claim in claims(name, found[name])]
    learners = "\n".join(f"- {learner}" for learner in LEARNERS)
    return "\n\n".join([head, table(["task", "wrong", *titles], lines), learners, "\n".join(told)])


def claims(name: str, records: list[dict[str, Any]]) -> list[Claim]:
    told = []
    for title, leads in LEADS.items():
        for record in records:
            least = leads.get(record["noise"])
            if least is not None:
                lead = record["error"][title] - record["error"]["AROW"]
                text = f"{name}, {record['noise']:.0%} wrong: AROW beats {title} by {least:g} points or more"
                told.append(Claim(text, lead >= least, f"{lead:.2f}"))
    return told


def draw(found: dict[str, list[dict[str, Any]]], path: str) -> None:
    """A panel a task: error against the share of wrong labels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(found), 4.2), layout="constrained")
    panels = figure.subplots(1, len(found), sharey=True, squeeze=False)
    for axes, (name, records) in zip(panels[0], found.items(), strict=True):
        for title in records[0]["error"]:
            axes.errorbar(
                [100 * r["noise"] for r in records], [r["error"][title] for r in records],
                [r["spread"][title] for r in records], marker="o", ms=4, capsize=2, label=title,
            )  # fmt: skip
        axes.set(title=name, xlabel="labels learned from that are wrong, in %")
        axes.grid(True, color="#e6e6e6")
    panels[0][0].set(ylabel="error in %", ylim=(0, None))
    panels[0][0].legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--shuffles", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", default=("comp", "sci", "talk"), choices=TASKS)
    given = parser.parse_args()
    folder, found = folder_of(given.data), {}
    for name in given.tasks:
        found[name] = measure(name, folder, given.shuffles)
        print(name, found[name][-1]["error"], flush=True)
    write(given.out, found, report(found), lambda path: draw(found, path), "noise.png")


if __name__ == "__main__":
    main()
