"""What a comparison found, as JSON, as CSV, as a table in Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bigclf.benchmarks.comparing import Entry, Measurement, Options, Outcome
from bigclf.benchmarks.peers import Absent
from bigclf.benchmarks.sets import Set
from bigclf.units import format_bytes, format_seconds

COLUMNS = (
    "job", "target", "who", "version", "threads", "tol", "rounds", "seconds", "prepare_seconds", "wall_seconds",
    "peak_bytes", "gap", "error", "ratio", "failure",
)  # fmt: skip
MEDIANS = ("seconds", "prepare_seconds", "wall_seconds", "peak_bytes", "gap", "error")


def as_json(
    data: Set, options: Options, outcomes: list[Outcome], absent: list[Absent], machine: Mapping[str, object]
) -> dict[str, object]:
    """Plain values: the set, the machine, how it was measured, each job with its programs and all measurements."""
    return {
        "data": data._asdict(),
        "machine": machine,
        "options": options._asdict(),
        "absent": [peer._asdict() for peer in absent],
        "jobs": [
            {
                **outcome.job._asdict(),
                "bound": outcome.bound,
                "left_out": outcome.missing,
                "programs": [program(outcome, entry) for entry in outcome.entries],
            }
            for outcome in outcomes
        ],
    }


def program(outcome: Outcome, entry: Entry) -> dict[str, object]:
    return {
        **line(outcome, entry),
        "whole_program": any(m.whole_program for m in entry.rounds),
        "measurements": [told(m) for m in entry.rounds],
        "tried": [told(m) for m in entry.tried],
    }


def told(measurement: Measurement) -> dict[str, object]:
    return {name: value for name, value in measurement._asdict().items() if value is not None}


def line(outcome: Outcome, entry: Entry) -> dict[str, object]:
    """One program in one job: medians over the rounds, ratio = seconds of bigclf over its own."""
    known = {
        "job": outcome.job.name, "target": outcome.job.target, "who": entry.who, "version": entry.version,
        "threads": entry.threads, "tol": entry.tol, "rounds": len(entry.rounds), "ratio": outcome.ratio(entry),
        "failure": entry.failure, **{name: entry.median(name) for name in MEDIANS},
    }  # fmt: skip
    return {name: known[name] for name in COLUMNS}


def lines(outcomes: list[Outcome]) -> list[dict[str, object]]:
    return [line(outcome, entry) for outcome in outcomes for entry in outcome.entries]


def as_csv(outcomes: list[Outcome]) -> str:
    held = io.StringIO()
    writer = csv.DictWriter(held, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines(outcomes))
    return held.getvalue()


HEADINGS = ("job", "program", "threads", "tol", "fit", "ratio", "gap, error", "peak", "process")


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    """One line for people, under ``HEADINGS``."""

    def shown(name: str, text: Callable[[Any], str]) -> str:
        return "" if row[name] is None else text(row[name])

    if row["seconds"] is None:
        return (row["job"], row["who"], "", "", "-", "", "failed", "", "")
    good = shown("gap", "{:.1e}".format) or shown("error", lambda share: f"{100 * share:.2f} %")
    return (
        row["job"],
        row["who"],
        str(row["threads"]),
        shown("tol", "{:g}".format),
        format_seconds(row["seconds"]),
        shown("ratio", "{:.2f}".format),
        good + (" !" if row["failure"] else ""),
        shown("peak_bytes", format_bytes),
        shown("wall_seconds", format_seconds),
    )


def as_markdown(data: Set, outcomes: list[Outcome], absent: list[Absent]) -> str:
    """The table, and what is missing from it."""
    text = (
        f"# bigclf bench: {data.name}\n\n{data.n_rows:,} rows, {data.n_features:,} features, {data.nnz:,} non-zeros; "
    )
    text += "medians; ratio = seconds of bigclf over seconds of the other.\n\n"
    text += "| " + " | ".join(HEADINGS) + " |\n" + "| --- " * len(HEADINGS) + "|\n"
    text += "".join("| " + " | ".join(cells(row)) + " |\n" for row in lines(outcomes))
    return text + "".join(f"\n- {note}" for note in notes(outcomes, absent)) + "\n"


# Several shapes

NOT_REACHED = "not reached"
Shapes = Sequence[tuple[Set, Options, list[Outcome]]]


def shapes_csv(shapes: Shapes) -> str:
    held = io.StringIO()
    writer = csv.DictWriter(held, ("shape", *COLUMNS), lineterminator="\n")
    writer.writeheader()
    for data, _, outcomes in shapes:
        writer.writerows({"shape": data.name, **row} for row in lines(outcomes))
    return held.getvalue()


def shapes_table(shapes: Shapes) -> list[list[str]]:
    """Headings and a line for each shape and loss: seconds of bigclf, and of each other program bigclf's seconds over
    its own, at gaps within the same target; or that it did not get there."""
    who = list(dict.fromkeys(entry.who for _, _, outcomes in shapes for o in outcomes for entry in o.entries[1:]))
    table = [["shape", "rows x features", "loss", "gap", "bigclf", *who]]
    for data, _, outcomes in shapes:
        for outcome in outcomes:
            if not outcome.entries:
                continue
            ours, *others = outcome.entries
            against = {entry.who: _against(outcome, entry) for entry in others}
            seconds = ours.median("seconds")
            own = NOT_REACHED if ours.failure or seconds is None else format_seconds(seconds)
            size = f"{data.n_rows:,} x {data.n_features:,}"
            table.append([data.name, size, outcome.job.name, f"{outcome.job.target:g}", own,
                          *(against.get(name, "") for name in who)])  # fmt: skip
    return table


def _against(outcome: Outcome, entry: Entry) -> str:
    ratio, seconds = outcome.ratio(entry), entry.median("seconds")
    if entry.failure or seconds is None:
        return NOT_REACHED
    return f"{'-' if ratio is None else f'{ratio:.2f}'} ({format_seconds(seconds)})"


def shapes_markdown(shapes: Shapes, absent: list[Absent]) -> str:
    headings, *rows = shapes_table(shapes)
    text = "# bigclf bench: shapes\n\nMedians; seconds of bigclf over seconds of the other (its seconds).\n\n"
    text += "| " + " | ".join(headings) + " |\n" + "| --- " * len(headings) + "|\n"
    text += "".join("| " + " | ".join(row) + " |\n" for row in rows)
    return text + "".join(f"\n- {note}" for note in shapes_notes(shapes, absent)) + "\n"


def shapes_notes(shapes: Shapes, absent: list[Absent]) -> list[str]:
    found = [f"{data.name}: {note}" for data, _, outcomes in shapes for note in notes(outcomes, [])]
    return found + notes([], absent)


def notes(outcomes: list[Outcome], absent: list[Absent]) -> list[str]:
    """What was not measured, and why."""
    found = [f"{outcome.job.name} was left out: {outcome.missing}" for outcome in outcomes if outcome.missing]
    found += [
        f"{entry.who} failed at {outcome.job.name}: {entry.failure}"
        for outcome in outcomes
        for entry in outcome.entries
        if entry.failure
    ]
    found += [
        f"{entry.who}: the seconds at {outcome.job.name} are those of the whole program, reading included"
        for outcome in outcomes
        for entry in outcome.entries
        if any(m.whole_program for m in entry.rounds)
    ]
    return found + [f"{peer.name} is absent ({peer.reason}); {peer.advice}" for peer in absent]
