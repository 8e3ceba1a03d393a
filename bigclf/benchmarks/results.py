"""What a comparison found, as JSON, as CSV, as a table in Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping
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


def line(outcome: Outcome, entry: Entry) -> dict[str, Any]:
    """One program in one job: medians over the rounds, ratio = seconds of bigclf over its own."""
    known = {
        "job": outcome.job.name, "target": outcome.job.target, "who": entry.who, "version": entry.version,
        "threads": entry.threads, "tol": entry.tol, "rounds": len(entry.rounds), "ratio": outcome.ratio(entry),
        "failure": entry.failure, **{name: entry.median(name) for name in MEDIANS},
    }  # fmt: skip
    return {name: known[name] for name in COLUMNS}


def lines(outcomes: list[Outcome]) -> list[dict[str, Any]]:
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
