"""``bigclf bench --shape``: several sets of rows, and one table of all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import click
from rich import box
from rich.table import Table

from bigclf import files
from bigclf.benchmarks import comparing, results, sets
from bigclf.benchmarks.comparing import Job, Options, Outcome, Tell, Watch
from bigclf.benchmarks.peers import Absent, Place
from bigclf.benchmarks.sets import Set
from bigclf.benchmarks.shapes import KINDS
from bigclf.cli.shared import terminal

Measured = tuple[Set, Options, list[Outcome]]


def chosen(asked: list[str], others: Mapping[str, object]) -> list[str]:
    """The shapes that are asked for, in their own order; none where rows are like text. ``others`` : options that say
    something of other rows.

    Raises
    ------
    click.UsageError : a shape that there is not; an option without effect.
    """
    if not asked:
        return []
    if given := [f"--{name}" for name, value in others.items() if value]:
        raise click.UsageError(f"{given[0]} has no effect with --shape; --size makes its rows fewer or more")
    if asked == ["all"]:
        return list(KINDS)
    for name in asked:
        if name not in KINDS:
            raise click.BadParameter(f"{name!r} is none of {', '.join([*KINDS, 'all'])}", param_hint="--shape")
    return [name for name in KINDS if name in asked]


def compare(
    name: str, size: str, seed: int, jobs: list[Job], places: list[Place], options: Options, tell: Tell, watch: Watch
) -> Measured:
    """The measurements on one shape."""
    data = sets.shape_set(name, size, seed, options.cache, tell)
    tell(f"{data.name}: {data.n_rows:,} rows, {data.n_features:,} features")
    return data, options, comparing.compare(data, jobs, places, options, tell, watch)


def save(
    paths: list[str], pictures: list[str], told: Mapping[str, object], measured: Sequence[Measured],
    absent: list[Absent],
) -> list[str]:  # fmt: skip
    """Write the tables to ``paths``, in place of what is there and of pictures; the paths."""
    texts = (json.dumps(terminal.plain(told), indent=2), results.shapes_csv(measured),
             results.shapes_markdown(measured, absent))  # fmt: skip
    with files.together([*pictures, *paths]) as place:
        for path, text in zip(paths, texts, strict=True):
            files.publish_text(place[path], text)
    return paths


def show(measured: Sequence[Measured], absent: list[Absent], saved: list[str]) -> None:
    """The table, what is missing from it, and where it was saved."""
    headings, *lines = results.shapes_table(measured)
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in headings:
        drawn.add_column(name, justify="left" if name in ("shape", "loss") else "right")
    for line in lines:
        drawn.add_row(*line)
    terminal.heading("bigclf bench: shapes", "seconds of bigclf over seconds of the other (its seconds)")
    terminal.tables().print(drawn)
    for note in results.shapes_notes(measured, absent):
        terminal.note(note)
    terminal.note(f"saved in {files.parent_directory(saved[0])}: {', '.join(files.base_name(path) for path in saved)}")
