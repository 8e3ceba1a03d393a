"""``bigclf validate``: read and check every byte, in a process of its own that a damaged file may crash."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

import click

from bigclf import files
from bigclf.cli.shared import terminal
from bigclf.errors import BigclfError, DataError
from bigclf.units import format_bytes, format_count, format_seconds, plural

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from bigclf.data.dataset import Dataset


MOST_FAULTS = 100


@click.command("validate", short_help="Read and check every byte of shards.")
@terminal.data_argument
@click.option("--columns", cls=terminal.Listed, metavar="ROLE=NAME,...", help="Column names, by role, for Parquet"
              " files not written by bigclf; ROLE is label, weight, features, or indices and values.")  # fmt: skip
@terminal.json_option
@click.pass_context
def command(ctx: click.Context, data: tuple[str, ...], columns: str | None, as_json: bool) -> None:
    """Read and check every byte of the shards DATA: checksums, schema, indices, values and labels."""
    names = terminal.names_option(columns, "--columns") if columns else None
    report = validate(list(data), names)
    if as_json:
        terminal.emit_json(report)
    else:
        _print(report)
    for fault in report["faults"]:
        terminal.say("error:", fault, "red")
    if report["faults"]:
        ctx.exit(terminal.BAD_DATA)


class Checked(TypedDict):
    """What was found in shards."""

    files: int
    rows: int
    nnz: int
    bytes: int
    warnings: list[str]
    faults: list[str]


class Report(Checked):
    seconds: float


def _print(report: Report) -> None:
    verdict = terminal.good("good") if not report["faults"] else click.style("damaged", fg="red", bold=True)
    rate = report["bytes"] / max(report["seconds"], 1e-9)
    terminal.heading(verdict, f"{plural(report['files'], 'file')}, {format_bytes(report['bytes'])} in "
                     f"{format_seconds(report['seconds'])} ({format_bytes(rate)}/s)")  # fmt: skip
    terminal.facts(
        [
            ("rows", f"{format_count(report['rows'])} checked"),
            ("non-zeros", f"{format_count(report['nnz'])} checked"),
            ("faults", f"{len(report['faults']):,}" if report["faults"] else None),
        ],
        indent="  ",
    )
    for text in report["warnings"]:
        terminal.say("warning:", text, "yellow")


def validate(data: list[str], columns: Mapping[str, str] | None = None) -> Report:
    """Check shards in a child process.

    Parameters
    ----------
    data : paths, directories or globs.
    columns : names of foreign columns, or None.

    Returns
    -------
    dict : files, rows, nnz, bytes, seconds, warnings, and ``faults`` (one text a faulty row group, and one for manifest
        and chunk table; at most 100).

    Raises
    ------
    DataError : the data cannot be opened at all, or a file crashed its reader.
    """
    import multiprocessing

    from bigclf.progress import TerminalProgress

    started = time.perf_counter()
    context = multiprocessing.get_context("spawn")  # a child that has nothing of ours to lose
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_check_all, args=(theirs, data, columns), daemon=True)
    child.start()
    theirs.close()
    place = ""
    report: Checked | None = None
    try:
        with TerminalProgress("checking") as progress:
            while report is None:
                kind, content = ours.recv()
                if kind == "start":
                    progress.start(content)
                elif kind == "at":
                    place = content
                elif kind == "done":
                    progress.advance(*content)
                elif kind == "error":
                    raise content
                else:
                    report = content
    except EOFError:
        child.join()
        raise DataError(
            f"reading it crashed the reader (code {child.exitcode}): the file is damaged or hostile; do not use it",
            file=place or data[0],
        ) from None
    finally:
        child.kill()
        child.join()
    return {**report, "seconds": time.perf_counter() - started}


def _check_all(pipe: Connection, data: list[str], columns: Mapping[str, str] | None) -> None:
    """In the child: open, decode every row group, tell where we are before each."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and ends us
    try:
        pipe.send(("report", _check(pipe, data, columns)))
    except BigclfError as error:
        pipe.send(("error", error))
    except MemoryError:
        pipe.send(("error", DataError("needs more memory than there is", file=data[0])))


def _check(pipe: Connection, data: list[str], columns: Mapping[str, str] | None) -> Checked:
    from bigclf.data.dataset import Dataset, anew

    pipe.send(("at", data[0]))
    dataset = Dataset(data if len(data) > 1 else data[0], columns=columns, warn=False)
    pipe.send(("start", {"n_rows": dataset.n_rows, "task": "rows"}))
    rows = nnz = 0
    faults = [f"{text}: fit and others work without it; {_anew(dataset)}" for text in dataset.damaged]
    faults += [f"{text}: put back what is missing, or write a manifest of what is there: {anew(directory)}"
               for text, directory in dataset.lost.items()]  # fmt: skip
    for file, row_group in dataset.places():
        pipe.send(("at", f"{dataset.files[file]}, row group {row_group}"))
        try:
            for block in dataset.parts(file, row_group):
                rows, nnz = rows + block.n_rows, nnz + block.nnz
                pipe.send(("done", (block.n_rows, block.n_bytes)))
                del block
        except DataError as error:
            faults.append(str(error))
            if len(faults) == MOST_FAULTS:
                break
    return {
        "files": len(dataset.files),
        "rows": rows,
        "nnz": nnz,
        "bytes": sum(mark.size for mark in dataset.fingerprints),
        "warnings": [text for text in dataset.warnings if text not in (*dataset.damaged, *dataset.lost)],
        "faults": faults,
    }


def _anew(dataset: Dataset) -> str:
    """How manifest and chunk table are written once more."""
    from bigclf.data.dataset import anew

    return ("`bigclf convert SOURCE... OUT --overwrite` writes it again with the shards; without the sources, run "
            f"{anew(files.parent_directory(dataset.files[0]))} (it then no longer names them)")  # fmt: skip
