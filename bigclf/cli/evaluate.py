"""``bigclf evaluate``: how good a model is on data it has not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import click

from bigclf.cli.shared import columns, flags, terminal
from bigclf.request.places import Workers
from bigclf.units import format_count, format_seconds

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from bigclf.data.dataset import Stored
    from bigclf.metrics.figures import Evaluation, RegressionEvaluation
    from bigclf.metrics.kinds import LabelFigures
    from bigclf.metrics.label_figures import LabelsEvaluation
    from bigclf.model.model import Model
    from bigclf.reporting import Measured

Figures: TypeAlias = "Evaluation | RegressionEvaluation | LabelsEvaluation"


@click.command("evaluate", short_help="Measure a model on labelled data.")
@click.argument("model", metavar="MODEL")
@terminal.data_argument
@columns.format_option
@columns.reader_options
@columns.bad_rows_options
@flags.shared("evaluate", "memory", "workers", "patience")
@click.option("-o", "--output", metavar="FILE", help="Also write the figures to FILE as JSON.")
@click.option("--report", metavar="FILE.html", help="Also write an HTML report.")
@click.option("--reliability", metavar="FILE.png", help="Also draw a reliability diagram of the probabilities.")
@terminal.overwrite_option
@terminal.json_option
def command(
    model: str, data: tuple[str, ...], memory: str | None, workers: str | None,
    patience: tuple[str, ...], output: str | None, report: str | None, reliability: str | None, overwrite: bool,
    as_json: bool, **reader: object,
) -> None:  # fmt: skip
    """Measure MODEL on the labelled rows DATA: accuracy, AUC, F1 and the confusion matrix, and for a model with
    probabilities the log loss and calibration error. Where rows have several labels each: micro and macro F1, precision
    at 1, 3 and 5, and how well the labels are ranked.

    DATA is shards, or raw files like those that MODEL was trained on. For a model that predicts numbers, the
    measures are the mean squared and absolute errors and R^2. It is an error if MODEL knows no label of the rows.
    """
    from bigclf import files
    from bigclf.model.model import load
    from bigclf.reporting import report as write_report

    written = [path for path in (output, report, reliability) if path]
    refuse_existing(written, overwrite)
    if report and workers:
        raise click.UsageError("--report measures in this process; leave out --workers")
    where, bad = list(data) if len(data) > 1 else data[0], columns.bad_rows(reader)
    known = columns.as_read(load(model), reader)
    if reliability:
        require_reliability(known)
    if report:
        found = measured_for_report(known, where, memory or "1GB", bad)
        result = found.evaluation
    else:
        result = measure(known, where, memory or "1GB", workers, patience, bad)
    make_way(written)
    with files.together(written) as place:
        if output:
            write_json(place[output], result.to_dict())
        if report:
            write_report(known, place[report], found, overwrite=True, title=files.base_name(model))
        if reliability:
            draw_reliability(result, place[reliability])
    if as_json:
        terminal.emit_json(result.to_dict())
    else:
        print_evaluation(result)
        if report:
            click.echo(f"  report: {report}")


def measure(
    model: Model, data: Stored, memory: str, workers: str | None, patience: tuple[str, ...], bad: columns.OfBadRows
) -> Figures:
    """``bigclf.evaluate`` with its progress on stderr."""
    from bigclf.progress import TerminalProgress

    with TerminalProgress("evaluating") as progress, terminal.usage_errors():
        from bigclf.api.evaluate import evaluate

        return evaluate(
            model, data, memory=memory, progress=progress, **bad,
            workers=Workers(terminal.workers_of(workers), None, terminal.patience_of(patience)),
        )  # fmt: skip


def measured_for_report(model: Model, data: Stored, memory: str, bad: columns.OfBadRows) -> Measured:
    """The same figures, with what a report shows of them, from one read."""
    import time

    from bigclf.model.raw_input import BadRows
    from bigclf.progress import TerminalProgress
    from bigclf.reporting import measured

    started = time.perf_counter()
    with TerminalProgress("evaluating") as progress, terminal.usage_errors():
        found = measured(model, data, memory, progress, BadRows(**bad))
    found.evaluation.seconds = time.perf_counter() - started
    return found


def refuse_existing(paths: list[str], overwrite: bool) -> None:
    """RunError where one of the files is there and may not be replaced."""
    from bigclf import files
    from bigclf.errors import RunError

    ours = files.half_done(paths)
    for path in paths:
        if files.exists(path) and not overwrite and path not in ours:
            raise RunError(f"{path} already exists; add --overwrite to replace it")


def make_way(paths: list[str]) -> None:
    """Make the directories that are missing above ``paths``."""
    from bigclf import files

    for path in paths:
        files.make_directory(files.parent_directory(path))


def write_json(path: str, value: object) -> None:
    import json

    from bigclf import files

    files.make_directory(files.parent_directory(path))
    files.publish_text(path, json.dumps(terminal.plain(value), indent=2, ensure_ascii=False) + "\n")


def require_reliability(model: Model) -> None:
    """Refuse before the rows are read what could not be drawn after."""
    import importlib.util

    from bigclf.errors import RunError

    if reason := model.no_probabilities():
        raise RunError(f"--reliability needs probabilities: {reason}")
    if importlib.util.find_spec("matplotlib") is None:
        raise RunError("--reliability needs matplotlib: pip install 'bigclf[plots]'")


def draw_reliability(result: Evaluation, path: str) -> None:
    """Above the share of rows with the label against its mean probability in each bin, below how many rows."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from bigclf import files

    figure = Figure(figsize=(5, 6), layout="constrained")
    above, below = FigureCanvasAgg(figure).figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    every = result.reliability or []
    bins = [row for row in every if row["rows"]]
    above.plot([0, 1], [0, 1], color="0.6", linewidth=1, linestyle="--", label="as often as it says")
    above.plot([row["probability"] for row in bins], [row["share"] for row in bins], marker="o", label="the model")
    above.set(xlim=(0, 1), ylim=(0, 1), ylabel="share of rows")
    above.set_title(f"expected calibration error {result.calibration_error or 0:.4f}", fontsize="medium")
    above.legend(loc="upper left")
    widths = [row["high"] - row["low"] for row in every]
    below.bar([row["low"] for row in every], [row["rows"] for row in every], widths,
              align="edge", edgecolor="white")  # fmt: skip
    what = f"of {result.classes[1]!r}" if len(result.classes) == 2 else "of the class predicted"
    below.set(xlabel=f"probability {what}", ylabel="rows")
    files.make_directory(files.parent_directory(path))
    with files.publishing(path) as beside:
        figure.savefig(beside, format="png", dpi=150)


MOST_PAIRS, FEW_PAIRS = 10, 5  # of classes that are confused, of many classes and of few
LONG = 10.0  # seconds from which on little of them is reading and opening, and rows a second mean something
NAMES = {"auc": "AUC", "log_loss": "log loss", "calibration_error": "calibration error", "r2": "R^2",
         "micro_f1": "micro F1"}  # fmt: skip


def print_evaluation(result: Figures, most: int = 20) -> None:
    rate = f", {format_count(result.n / result.seconds)} rows/s" if result.seconds >= LONG else ""
    rows = f"{result.n:,} row{'s' * (result.n != 1)}"
    terminal.heading(headline(result), f"{rows} in {format_seconds(result.seconds)}{rate}")
    bad = terminal.poor(f"{result.bad_rows:,}") if result.bad_rows else None
    terminal.facts([*figures(result), *missing_text(result.missing), ("bad rows", bad)], indent="  ")
    if of_labels(result):
        many = len(result.classes) > most
        _print_classes(result, result.worst() if many else result.f1, most)
    elif not numeric(result):
        many = len(result.classes) > most
        _print_classes(result, result.worst() if many else result.f1, most)
        if len(result.classes) > 2 and (pairs := result.confused(MOST_PAIRS if many else FEW_PAIRS)):
            said = (f"{terminal.printable(is_)} as {terminal.printable(said)} {n:,}" for is_, said, n in pairs)
            click.echo(f"  confused most: {', '.join(said)}")
    for note in result.notes:
        terminal.say("note:", note, "yellow")


def missing_text(missing: dict[str, str]) -> list[tuple[str, str]]:
    """Figures that are not there, and why; those for the same reason in one line."""
    names: dict[str, list[str]] = {}
    for name, why in missing.items():
        names.setdefault(why, []).append(NAMES.get(name, name))
    return [(", ".join(same), why) for why, same in names.items()]


def numeric(result: Figures) -> TypeIs[RegressionEvaluation]:
    """Whether the figures are of a model that predicts numbers."""
    return hasattr(result, "mean_squared_error")


def of_labels(result: Figures) -> TypeIs[LabelsEvaluation]:
    """Whether the figures are of a model of several labels a row."""
    return hasattr(result, "precision_at")


def headline(result: Figures) -> str:
    if of_labels(result):
        return f"micro F1 {result.micro_f1:.4f}, macro F1 {result.macro_f1:.4f}"
    if numeric(result):
        return f"mean squared error {result.mean_squared_error:.6g}"
    accuracy = f"accuracy {100 * result.accuracy:.2f} %"
    if result.majority is None:
        return accuracy
    return f"{accuracy} (baseline, always predicting the most frequent class: {100 * result.majority:.2f} %)"


def figures(result: Figures) -> list[tuple[str, object]]:
    """The figures of an evaluation that are a number each, as text."""
    if of_labels(result):
        return [line for line in result.lines() if line[0] != "macro F1"]
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
        ("calibration error", None if result.calibration_error is None else f"{result.calibration_error:.5f}"),
        ("F1, mean of classes", f"{result.macro_f1:.4f}"),
        ("by row weights", weighted_text(result)),
    ]


def weighted_text(result: Figures) -> str | None:
    """``accuracy 93.20 %, log loss 0.20113``."""
    return ", ".join(
        f"{NAMES.get(name, name.replace('_', ' '))} {f'{100 * value:.2f} %' if name == 'accuracy' else f'{value:.6g}'}"
        for name, value in (result.weighted or {}).items()
        if value is not None
    )


def _print_classes(result: Evaluation | LabelsEvaluation, lines: list[LabelFigures], most: int) -> None:
    """A line a class: all of few, else the ``lines`` of those that do worst."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    one, several = ("label", "labels") if of_labels(result) else ("class", "classes")
    table.add_column(one, style="bold")
    for name in ("rows", "precision", "recall", "F1"):
        table.add_column(name, justify="right")
    confusion = None if of_labels(result) or len(result.classes) > 8 else result.confusion
    for label in result.classes if confusion else ():
        table.add_column(f"→ {terminal.printable(label)}", justify="right", style="dim")
    for k, row in enumerate(lines):
        cells = [f"{count:,}" for count in confusion[k]] if confusion else []
        ratios = (f"{figure:.4f}" for figure in (row["precision"], row["recall"], row["f1"]))
        table.add_row(terminal.printable(row["label"]), f"{row['rows']:,}", *ratios, *cells)
    if len(result.classes) > most:
        click.echo(f"  the {len(lines)} worst of {len(result.classes):,} {several} (all: --json)")
    terminal.tables().print(table)
