"""``bigclf report``: one HTML file about a run, a model or an evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bigclf import files
from bigclf.cli.evaluate import refuse_existing
from bigclf.cli.shared import columns, flags, terminal
from bigclf.units import format_bytes

if TYPE_CHECKING:
    from bigclf.data.dataset import Stored
    from bigclf.model.model import Model
    from bigclf.reporting import Report


@click.command("report", short_help="Write an HTML report about a model or a run.")
@click.argument("run", metavar="RUN|MODEL")
@click.option("-o", "--output", "out", required=True, metavar="FILE.html", help="File for the report.")
@click.option("--data", multiple=True, metavar="DATA", help="Labelled shards or raw files to measure the model"
              " on: curves, confusion, calibration.")  # fmt: skip
@click.option("--names", metavar="FILE", help="Feature names, one per line, or lines FEATURE<tab>NAME.")
@click.option("--title", help="Title of the page  [default: the name of RUN]")
@columns.bad_rows_options
@flags.shared("report", "memory")
@terminal.overwrite_option
@terminal.json_option
def command(
    run: str, out: str, data: tuple[str, ...], names: str | None, title: str | None, memory: str | None,
    overwrite: bool, as_json: bool, **reader: object,
) -> None:  # fmt: skip
    """Write one HTML file about a model or a run directory, even while the run is in progress: its certificate,
    curves, largest weights, data, settings, memory and events; with --data, measurements on those rows.

    The file contains everything it shows; you can mail it, print it and read it on a phone.
    """
    where, bad = list(data) if len(data) > 1 else data[0] if data else None, columns.bad_rows(reader)
    refuse_existing([out], overwrite)
    options = {"names": names, "memory": memory or "1GB", "title": title or files.base_name(run), **bad}
    files.make_directory(files.parent_directory(out))
    with files.together([out]) as place, terminal.usage_errors():
        told = write(run, place[out], where, overwrite=True, **options) | {"out": out}
    if as_json:
        terminal.emit_json(told)
    else:
        terminal.heading(told["out"], f"{format_bytes(told['bytes'])}: {', '.join(told['sections'])}")
        for note in told["notes"]:
            terminal.say("note:", note, "yellow")


def write(thing: str | Model, out: str, data: Stored | None, **options: Any) -> Report:
    """The report, with progress on stderr while rows are read."""
    from bigclf.progress import TerminalProgress
    from bigclf.reporting import report

    with TerminalProgress("measuring") as progress:
        return report(thing, out, data, progress=progress, **options)
