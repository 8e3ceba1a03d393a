"""``bigclf convert``: raw text to shards."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

import click

from bigclf.cli.shared import columns, terminal
from bigclf.data.bad_rows import MOST_BAD
from bigclf.files.formats import ALL, DEFAULT
from bigclf.units import format_bytes, format_seconds, plural

if TYPE_CHECKING:
    from bigclf.data.dataset import Dataset


@click.command("convert", short_help="Convert text and tables to shards.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("out", metavar="OUT")
@click.option("--format", "format",
              help=f"Format of the sources: {ALL}, or MODULE:FUNCTION, a reader of"
              " your own  [default: the spec's, or by the file's name, else svmlight]")  # fmt: skip
@click.option("--chunk-nnz", type=click.IntRange(1, 2**27), default=500_000, show_default=True,
              help="Non-zeros per chunk (a Parquet row group).")  # fmt: skip
@click.option("--shuffle/--no-shuffle", default=True, show_default=True, help="Write the rows in random order.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the shuffle.")
@click.option("--memory", type=terminal.SIZE, default="1GB", show_default=True, help="Memory budget.")
@click.option("--workers", type=click.IntRange(1), help="Number of parsing processes  [default: one per core]")
@click.option("--on-bad-rows", type=click.Choice(["error", "skip", "quarantine"]), default="error", show_default=True,
              help="What to do with a row that cannot be used.")  # fmt: skip
@click.option("--max-bad-fraction", type=click.FloatRange(0, 1), default=MOST_BAD, show_default=True,
              help="Fail if more than this share of the rows is bad.")  # fmt: skip
@click.option("--index-base", type=click.IntRange(0, 1),
              help="Smallest feature index  [default: 1 in svmlight, 0 in others]")  # fmt: skip
@click.option("--n-features", type=click.IntRange(1), help="Number of features  [default: the largest index seen]")
@click.option("--several-labels", is_flag=True, help="Rows of svmlight text have several labels, as in `1,3 1:0.5`;"
              " they become lists in Parquet, in the order of the rows.")  # fmt: skip
@columns.columns_options
@click.option("--append", is_flag=True, help="Add rows to the shards in OUT, which stay unchanged.")
@terminal.overwrite_option
@terminal.json_option
@click.pass_context
def command(ctx: click.Context, sources: tuple[str, ...], out: str, as_json: bool, **options: Any) -> None:
    """Convert SOURCE files (plain, .gz, .bz2, .xz or .zst) to shards in the directory OUT.

    For raw tables and texts (--format csv, tsv, jsonl, text, parquet), --spec or the options that name columns define
    the features; `bigclf inspect FILE --suggest` proposes a spec. To read only part of an archive or a JSON file,
    append # and the part: docs.tar.gz#train, data.json#/train.

    Rows are shuffled in bounded memory. The shards' bytes depend only on the sources, the options and the seed, not on
    the number of workers or the memory. After an interruption or a full disk, run the same command again: it continues
    where it stopped.
    """
    from bigclf.model.raw_input import naming_format

    said = columns.taken(options)
    asked = options["format"]
    form = asked or (None if "spec" in said else columns.format_by_name(list(sources), said))
    options["format"] = form or (None if options["append"] else DEFAULT)
    with terminal.usage_errors():
        as_there = options["append"] and not said  # raw columns become what they are in the shards that are there
        options["features"] = None if as_there else columns.features_of(said, list(sources), form)
        if options["features"] is None and "hash_bits" in said:
            options["hash_bits"] = said["hash_bits"]
    told = contextlib.nullcontext() if asked or not form else naming_format(None, list(sources), form)
    with terminal.resumable(terminal.command_line(ctx)), told:
        dataset = convert_showing(list(sources), out, **options)
    if as_json:
        terminal.emit_json({**describe(dataset), "report": getattr(dataset, "report", {})})
    else:
        print_converted(dataset, out, for_tests=not options["shuffle"])


def convert_showing(sources: list[str], out: str, **options: Any) -> Dataset:
    """``bigclf.convert`` with its progress on stderr."""
    from bigclf.conversion.convert import convert
    from bigclf.progress import TerminalProgress

    with TerminalProgress("converting") as progress, terminal.usage_errors():
        return convert(sources if len(sources) > 1 else sources[0], out, progress=progress, **options)


class ClassRows(TypedDict):
    label: object
    rows: int


class Described(TypedDict):
    """A dataset in plain values."""

    rows: int
    features: int
    nnz: int
    chunks: int
    files: int
    classes: list[ClassRows] | None
    label_range: dict[str, float] | None
    binary_values: bool
    weighted: bool
    index_bytes: int
    largest_row_nnz: int
    largest_row_norm: float
    bytes_on_disk: int
    bytes_in_memory: int
    digest: str
    warnings: list[str]


def describe(dataset: Dataset) -> Described:
    """The facts of a dataset as plain values."""
    return {
        "rows": dataset.n_rows,
        "features": dataset.n_features,
        "nnz": dataset.nnz,
        "chunks": dataset.n_chunks,
        "files": len(dataset.files),
        "classes": _classes(dataset),
        "label_range": dataset.label_range,
        "binary_values": bool(dataset.binary),
        "weighted": bool(dataset.weighted),
        "index_bytes": dataset.index_width,
        "largest_row_nnz": dataset.max_row_nnz,
        "largest_row_norm": float(dataset.max_norm) ** 0.5,
        "bytes_on_disk": sum(mark.size for mark in dataset.fingerprints),
        "bytes_in_memory": bytes_in_memory(dataset),
        "digest": dataset.digest,
        "warnings": list(dataset.warnings),
    }


def _classes(dataset: Dataset) -> list[ClassRows] | None:
    """Each class with its rows, or None where labels are numbers that are no classes."""
    if dataset.classes is None:
        return None
    pairs = zip(dataset.classes.tolist(), dataset.class_counts.tolist(), strict=True)
    return [{"label": label, "rows": count} for label, count in pairs]


def bytes_in_memory(dataset: Dataset) -> int:
    """Bytes of the rows decoded: indices, float32 values unless binary, and 8 bytes a row for where it begins."""
    return int(dataset.nnz * (dataset.index_width + (0 if dataset.binary else 4)) + 8 * dataset.n_rows)


def print_converted(dataset: Dataset, out: str, for_tests: bool = False) -> None:
    """What was made; rows ``for_tests`` keep their order, and are no good to learn from one by one."""
    report = getattr(dataset, "report", None) or {}
    seconds = report.get("seconds")
    terminal.heading(
        f"{plural(dataset.n_rows, 'row')}, {plural(dataset.n_features, 'feature')}, {plural(dataset.nnz, 'non-zero')}",
        f"in {format_seconds(seconds)}" if seconds else "",
    )
    bad, rounding = report.get("bad_rows"), report.get("largest_relative_rounding")
    kept = report.get("bytes_kept")
    read, written = report.get("bytes_in"), report.get("bytes_out")
    terminal.facts(
        [
            ("shards", f"{out}  ({plural(len(dataset.files), 'file')}, {plural(dataset.n_chunks, 'chunk')})"),
            ("bytes", f"{format_bytes(read)} -> {format_bytes(written)}" if read and written else None),
            ("added", f"{report['rows']:,} rows" if report.get("rows") not in (None, dataset.n_rows) else None),
            label_line(dataset),
            ("values", "all 1, not stored" if dataset.binary else None),
            ("rounded", f"by at most {rounding:.1e} of a value (stored as float32)" if rounding else None),
            ("continued", f"after {format_bytes(kept)} of an earlier start" if kept else None),
            ("features", features_line(report)),
            ("left out", f"{report['unlabelled']:,} rows without a label" if report.get("unlabelled") else None),
            ("bad rows", terminal.poor(f"{bad:,}") if bad else None),
        ],
        indent="  ",
    )
    print_warnings(dataset)
    loss = " --loss epsilon_insensitive" if dataset.classes is None else ""
    line = f"bigclf evaluate MODEL {out}" if for_tests else f"bigclf fit {out} -o model.bigclf{loss}"
    if dataset.classes is not None and not dataset.classes.size:  # no label to learn or to measure by
        line = f"bigclf predict MODEL {out} -o predictions"
    click.echo(f"  next: {click.style(line, bold=True)}")


def features_line(report: Mapping[str, Any]) -> str | None:
    """How many features are known one by one and how many places the hashed ones have."""
    if "exact_features" not in report:
        return None
    told = f"{report['exact_features']:,} known one by one"
    if report["hash_bits"]:
        told += (f", 2^{report['hash_bits']} slots for about {report['distinct_hashed']:,} hashed "
                 f"names (about {100 * report['colliding']:.1f} % share one)")  # fmt: skip
    return told


def label_line(dataset: Dataset) -> tuple[str, str]:
    """What the labels are: classes with their rows, or a range of numbers."""
    from bigclf.data.dataset import range_text

    if dataset.classes is None:
        return "labels", range_text(dataset.label_range)
    return "classes" if dataset.sets is None else "labels", class_text(dataset)


def class_text(dataset: Dataset, most: int = 6) -> str:
    """``-1: 24,720 rows · 1: 7,841 rows``, the first few."""
    pairs = list(zip(dataset.classes.tolist(), dataset.class_counts.tolist(), strict=True))
    shown = " · ".join(
        f"{terminal.printable(label)}: {count:,} row{'s' * (count != 1)}" for label, count in pairs[:most]
    )
    return shown + (f" · and {len(pairs) - most:,} more" if len(pairs) > most else "")


def print_warnings(dataset: Dataset) -> None:
    for text in dataset.warnings:
        terminal.say("warning:", text, "yellow")
