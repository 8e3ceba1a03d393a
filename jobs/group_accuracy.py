"""What groups cost online methods: accuracy after every epoch, by the number of groups, in one process.

    python jobs/group_accuracy.py TRAIN TEST OUT [--algo NAME[-LOSS] ...] [--groups 1,8,64] [--epochs 5]

TRAIN and TEST are shards of two classes; of TRAIN as many chunks as there are groups (`bigclf convert --chunk-nnz`).
Without --algo: every online method whose groups are mixed, with the hinge and the logistic loss where it has a choice.
Each is mixed by its default rule, and by rows and with momentum where it has both. OUT gets a line a run
(JSON), and what stands there is not measured again. The table shows accuracies after the last epoch, of the default
rule in bold. Exit code 1 where a method by its default rule lies in 8 groups more than --below points below one group,
or in any number of groups more than a point lower after the second epoch than after the first.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from typing import NamedTuple

import bigclf
from bigclf.methods import METHODS

BELOW, DROP = 0.7, 1.0  # points of accuracy
LOSSES = ("hinge", "logistic")


class Case(NamedTuple):
    """A method and its loss (None: its own)."""

    algo: str
    loss: str | None

    def __str__(self) -> str:
        return "-".join(filter(None, self))

    def usual(self, groups: int) -> str:
        """The default rule; of one group there is none."""
        return next(iter(METHODS[self.algo].form.mixings)) if groups > 1 else ""

    def rules(self, groups: int) -> list[str]:
        """The default and, where there are both, by rows and with momentum."""
        mixings = METHODS[self.algo].form.mixings
        others = ("rows", "momentum") if "momentum" in mixings else ()
        return list(dict.fromkeys([self.usual(groups), *others])) if groups > 1 else [""]


class Run(NamedTuple):
    """What is measured."""

    case: Case
    groups: int
    rule: str

    @property
    def name(self) -> str:
        return f"{self.case}:{self.rule} {self.groups}"


def cases() -> list[Case]:
    """Every online method that has groups."""
    return [
        Case(method["name"], loss)
        for method in bigclf.algorithms() if method["mixings"] and not method["certificate"]
        for loss in [one for one in method["losses"] if one in LOSSES] or [None]
    ]  # fmt: skip


def named(text: str) -> Case:
    """``sgd-logistic``"""
    algo, _, loss = text.partition("-")
    return Case(algo, loss or None)


def accuracies(run: Run, given: argparse.Namespace) -> list[float]:
    """In percent, after each epoch; none where the method cannot learn these rows."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = bigclf.fit(
                given.train, algo=run.case.algo, loss=run.case.loss, groups=run.groups, mixing=run.rule or None,
                epochs=given.epochs, validate=given.test, memory=given.memory, progress=False,
            )  # fmt: skip
    except (ValueError, MemoryError) as error:
        print(run.name, error)
        return []
    return [100 * record["validation"]["accuracy"] for record in model.result_.history]


def measure(wanted: list[Case], given: argparse.Namespace) -> dict[str, list[float]]:
    """By the name of the run."""
    os.makedirs(given.out, exist_ok=True)
    path, found = os.path.join(given.out, "accuracy.jsonl"), {}
    if os.path.exists(path):
        with open(path) as lines:
            found = dict(map(json.loads, lines))
    for run in [Run(case, k, rule) for case in wanted for k in given.groups for rule in case.rules(k)]:
        if run.name not in found:
            found[run.name] = shown = accuracies(run, given)
            print(f"{run.name:<40}", " ".join(f"{a:.2f}" for a in shown), flush=True)
            with open(path, "a") as lines:
                lines.write(json.dumps([run.name, shown]) + "\n")
    return found


def table(wanted: list[Case], found: dict[str, list[float]], groups: list[int]) -> list[str]:
    """In Markdown: accuracies after the last epoch."""
    many = [k for k in groups if k > 1]
    heads = ["method", "1 group", *(head for k in many for head in (f"{k} groups", "momentum"))]
    lines = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for case in wanted:
        cells = [_cell(Run(case, 1, ""), found)]
        for k in many:
            usual = case.usual(k)
            plain = Run(case, k, "rows" if usual == "momentum" else usual)
            cells += [_cell(plain, found), _cell(plain._replace(rule="momentum"), found)]
        lines.append(f"| `{case}` | " + " | ".join(cells) + " |")
    return lines


def _cell(run: Run, found: dict[str, list[float]]) -> str:
    shown = found.get(run.name)
    if not shown:
        return ""
    return f"**{shown[-1]:.2f}**" if run.groups > 1 and run.rule == run.case.usual(run.groups) else f"{shown[-1]:.2f}"


def failures(wanted: list[Case], found: dict[str, list[float]], given: argparse.Namespace) -> list[str]:
    """Default rules that lose too much."""
    said = []
    for case in wanted:
        alone = found.get(Run(case, 1, "").name)
        for k in given.groups:
            shown = found.get(Run(case, k, case.usual(k)).name)
            if k == 1 or not shown or not alone:
                continue
            if k == 8 and shown[-1] < alone[-1] - given.below:
                said.append(f"{case} in {k} groups: {shown[-1]:.2f} after the last epoch, in one {alone[-1]:.2f}")
            if len(shown) > 1 and shown[1] < shown[0] - DROP:
                said.append(f"{case} in {k} groups: {shown[0]:.2f} after one epoch, {shown[1]:.2f} after two")
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("test")
    parser.add_argument("out")
    parser.add_argument("--algo", action="append", metavar="NAME[-LOSS]", help="may be given more than once")
    parser.add_argument("--groups", default="1,8,64")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--memory", default="2GB")
    parser.add_argument("--below", type=float, default=BELOW, help="points")
    given = parser.parse_args()
    given.groups = [int(k) for k in given.groups.split(",")]
    wanted = [named(text) for text in given.algo] if given.algo else cases()
    found = measure(wanted, given)
    print("\n".join(["", *table(wanted, found, given.groups)]))
    said = failures(wanted, found, given)
    print("\n".join(["", *said]))
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
