"""``bigclf predict``: shards in, shards out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from bigclf.cli.shared import columns, flags, terminal
from bigclf.request.places import Workers
from bigclf.units import format_bytes, format_seconds, plural

if TYPE_CHECKING:
    from bigclf.api.predict import Options, Predicted
    from bigclf.data.dataset import Stored
    from bigclf.model.model import Model


@click.command("predict", short_help="Predict the class of every row.")
@click.argument("model", metavar="MODEL")
@terminal.data_argument
@click.option("-o", "--output", "out", required=True, metavar="OUT", help="Directory for the predictions, or one file"
              " that ends in .csv or .parquet, or - for CSV on standard output.")  # fmt: skip
@click.option("--scores", is_flag=True, help="Add the decision values; with two classes, positive means the"
              " label that sorts last.")  # fmt: skip
@click.option("--proba", is_flag=True, help="Add probabilities. Two classes: one column `probability`, of the label"
              " that sorts last; more: one column per class, `probability_CLASS`. Logistic models give"
              " uncalibrated probabilities, and models from `bigclf calibrate` calibrated ones; other models give"
              " none.")  # fmt: skip
@click.option("--top", type=click.IntRange(1), metavar="K", help="Add the K classes with the greatest decision values"
              " and their scores, as columns `top_1`, `top_1_score` and so on; for more than two classes, or several"
              " labels per row.")  # fmt: skip
@click.option("--unseen", type=click.Choice(["ignore", "error"]), default="ignore", show_default=True,
              help="What to do with features the model does not know; for raw files, with unknown categories in columns"
              " that are not hashed.")  # fmt: skip
@click.option("--keep", cls=terminal.Listed, metavar="NAME,...", help="Columns of DATA to copy to OUT, or `none`"
              "  [default: all that are not used as features]")  # fmt: skip
@columns.format_option
@columns.reader_options
@flags.shared("predict", "memory", "workers", "patience")
@terminal.overwrite_option
@terminal.json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: str,
    data: tuple[str, ...],
    out: str,
    scores: bool,
    proba: bool,
    top: int | None,
    unseen: str,
    keep: str | None,
    memory: str | None,
    workers: str | None,
    patience: tuple[str, ...],
    overwrite: bool,
    as_json: bool,
    **reader: object,
) -> None:
    """Predict the class of every row of DATA: shards, or raw files like those that MODEL was trained on. Labels are not
    needed.

    OUT is a directory with one Parquet file per input file, or a single CSV or Parquet file. It holds the predictions
    and the input columns that are not used as features. Several labels per row are a list, joined by commas in CSV.
    After an interruption, run the same command again: finished files are kept, and so are the finished parts of long
    ones.
    """
    from bigclf.data.predictions import is_one_file
    from bigclf.model.model import load

    known, where = columns.as_read(load(model), reader), list(data) if len(data) > 1 else data[0]
    options: Options = {"scores": scores, "proba": proba, "unseen": unseen, "keep": names_in(keep)}
    options["memory"], options["top"] = memory or "1GB", top or 0
    if workers or patience:
        options["workers"] = Workers(terminal.workers_of(workers), None, terminal.patience_of(patience))
    if out == "-":
        if as_json:
            raise click.UsageError("--json and -o - would both be written to standard output")
        to_stdout(known, where, options)
        return
    with terminal.resumable(terminal.command_line(ctx)):
        options["overwrite"] = overwrite
        result = showing(known, where, out, **options)
    if as_json:
        terminal.emit_json(result)
        return
    terminal.heading(plural(result["rows"], "prediction"), f"in {format_seconds(result['seconds'])}")
    before = f"after {result['rows_kept']:,} rows of an earlier call"
    terminal.facts(
        [
            ("file", out) if is_one_file(out) else ("files", files_text(out, result)),
            *([("continued", before)] * bool(result["rows_kept"])),
            ("bytes", format_bytes(result["bytes"])),
            ("columns", columns_text(result["columns"])),
            ("probability", result["probability"]),
        ],
        indent="  ",
    )


def showing(model: Model, data: Stored, out: str, **options: Unpack[Options]) -> Predicted:
    """``bigclf.predict`` with its progress on stderr."""
    from bigclf.api.predict import predict
    from bigclf.progress import TerminalProgress

    with TerminalProgress("predicting") as progress, terminal.usage_errors():
        return predict(model, data, out, progress=progress, **options)


def to_stdout(model: Model, data: Stored, options: Options) -> None:
    """The predictions as CSV on stdout, once all are made."""
    from bigclf import files

    with files.scratch() as scratch:
        out = files.join(scratch, "predictions.csv")
        showing(model, data, out, **options)
        with files.open_binary(out) as file:
            terminal.emit_bytes(iter(lambda: file.read(2**20), b""))


def files_text(out: str, result: Predicted) -> str:
    place = f"{out}, a directory" if out.lower().endswith(".parquet") else out
    return f"{place}: {result['written']:,} written" + (f", {result['kept']:,} kept" * bool(result["kept"]))


def names_in(keep: str | None) -> list[str] | None:
    """``id,fold`` as a list; ``none`` is an empty one."""
    if keep is None:
        return None
    return [] if keep == "none" else [name for name in keep.split(",") if name]


def columns_text(columns: list[str], most: int = 8) -> str:
    more = f" ... {columns[-1]} ({len(columns)} in all)" if len(columns) > most else ""
    return ", ".join(columns[:most]) + more
