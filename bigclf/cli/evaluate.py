"""``bigclf evaluate``: how good a model is on data it has not seen."""

from __future__ import annotations

from typing import Any

import click

from bigclf.cli import terminal
from bigclf.units import format_count, format_seconds


@click.command("evaluate", short_help="Measure a model on labelled data.")
@click.argument("model", metavar="MODEL")
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@terminal.memory_option
@terminal.workers_option
@terminal.patience_option
@click.option("-o", "--output", metavar="FILE", help="Also write the figures to FILE as JSON.")
@click.option("--report", metavar="FILE.html", help="Also write a report that a browser shows.")
@terminal.overwrite_option
@terminal.json_option
def command(
    model: str, data: tuple[str, ...], memory: str | None, workers: str | None, patience: tuple[str, ...],
    output: str | None, report: str | None, overwrite: bool, as_json: bool,
) -> None:  # fmt: skip
    """Accuracy, AUC, F1 and the confusion of MODEL on the labelled shards DATA.

    Of a model that predicts numbers: mean squared and absolute error, and R^2.
    """
    from bigclf.model import load

    for path in (output, report):
        if path:
            refuse_existing(path, overwrite)
    if report and workers:
        raise click.UsageError("--report needs every decision value and measures in this process: without --workers")
    where = list(data) if len(data) > 1 else data[0]
    known = load(model)
    if report:
        result = measure_and_report(known, where, memory or "1GB", report, model)
    else:
        result = measure(known, where, memory or "1GB", workers, patience)
    if output:
        write_json(output, result.to_dict())
    if as_json:
        terminal.emit_json(result.to_dict())
    else:
        print_evaluation(result)
        if report:
            click.echo(f"  report: {report}")


def measure(model: Any, data: Any, memory: str, workers: str | None, patience: tuple[str, ...]) -> Any:
    """``bigclf.evaluate`` with its progress on stderr."""
    from bigclf.progress import TerminalProgress
    from bigclf.training.evaluation import evaluate

    progress = TerminalProgress("evaluating")
    try:
        with terminal.usage_errors():
            return evaluate(
                model, data, memory=memory, workers=terminal.workers_of(workers),
                patience=terminal.pairs_option(patience, "--patience") or None, progress=progress,
            )  # fmt: skip
    finally:
        progress.stop()


def measure_and_report(model: Any, data: Any, memory: str, out: str, path: str) -> Any:
    """The same figures, and their report, from one read."""
    import time

    from bigclf.data import files
    from bigclf.progress import TerminalProgress
    from bigclf.reporting import measured, report

    progress, started = TerminalProgress("evaluating"), time.perf_counter()
    try:
        found = measured(model, data, memory, progress)
    finally:
        progress.stop()
    found.evaluation.seconds = time.perf_counter() - started
    report(model, out, found, overwrite=True, title=files.base_name(path))
    return found.evaluation


def refuse_existing(path: str, overwrite: bool) -> None:
    from bigclf.data import files
    from bigclf.errors import RunError

    if files.exists(path) and not overwrite:
        raise RunError(f"{path}: exists; add --overwrite to replace it")


def write_json(path: str, value: Any) -> None:
    import json

    from bigclf.data import files

    files.make_directory(files.parent_directory(path))
    files.publish_text(path, json.dumps(terminal.plain(value), indent=2, ensure_ascii=False) + "\n")


NAMES = {"auc": "AUC", "log_loss": "log loss", "r2": "R^2"}


def print_evaluation(result: Any, most: int = 20) -> None:
    rate = f", {format_count(result.n / result.seconds)} rows/s" if result.seconds > 0 else ""
    rows = f"{result.n:,} row{'s' * (result.n != 1)}"
    terminal.heading(headline(result), f"{rows} in {format_seconds(result.seconds)}{rate}")
    missing = [(NAMES.get(name, name), f"none: {why}") for name, why in result.missing.items()]
    terminal.facts([*figures(result), *missing], indent="  ")
    if not numeric(result) and len(result.classes) <= most:
        _print_classes(result)
    for note in result.notes:
        terminal.say("note:", note, "yellow")


def numeric(result: Any) -> bool:
    """Whether the figures are of a model that predicts numbers."""
    return hasattr(result, "mean_squared_error")


def headline(result: Any) -> str:
    if numeric(result):
        return f"mean squared error {result.mean_squared_error:.6g}"
    return f"accuracy {100 * result.accuracy:.2f} %"


def figures(result: Any) -> list[tuple[str, Any]]:
    """The figures of an evaluation that are a number each, as text."""
    if numeric(result):
        return [
            ("mean absolute error", f"{result.mean_absolute_error:.6g}"),
            ("R^2", None if result.r2 is None else f"{result.r2:.5f}"),
            ("by row weights", weighted_text(result)),
        ]
    bound = f" ± {result.auc_bound:.1e}" if result.auc_bound else ""
    return [
        ("AUC", None if result.auc is None else f"{result.auc:.5f}{bound}"),
        ("log loss", None if result.log_loss is None else f"{result.log_loss:.5f}"),
        ("F1, mean of classes", f"{result.macro_f1:.4f}"),
        ("by row weights", weighted_text(result)),
    ]


def weighted_text(result: Any) -> str | None:
    """``accuracy 93.20 %, log loss 0.20113``."""
    return ", ".join(
        f"{NAMES.get(name, name.replace('_', ' '))} {f'{100 * value:.2f} %' if name == 'accuracy' else f'{value:.6g}'}"
        for name, value in (result.weighted or {}).items()
        if value is not None
    )


def _print_classes(result: Any) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("class", style="bold")
    for name in ("rows", "precision", "recall", "F1"):
        table.add_column(name, justify="right")
    confusion = result.confusion if result.confusion and len(result.classes) <= 8 else None
    for label in result.classes if confusion else ():
        table.add_column(f"→ {label}", justify="right", style="dim")
    for k, label in enumerate(result.classes):
        row = result.f1[k]
        cells = [f"{count:,}" for count in confusion[k]] if confusion else []
        ratios = (f"{row[name]:.4f}" for name in ("precision", "recall", "f1"))
        table.add_row(str(label), f"{row['rows']:,}", *ratios, *cells)
    terminal.tables().print(table)
