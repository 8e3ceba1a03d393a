"""``bigclf path``: a model at every value of C, with the number of weights that are not 0."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from bigclf.cli.evaluate import write_json
from bigclf.cli.shared import columns, flags, terminal
from bigclf.cli.shared.results import asked_of, clear_the_way
from bigclf.cli.sweep import write_table
from bigclf.units import format_seconds, plural

if TYPE_CHECKING:
    from bigclf.api.path import Path


FILES = ("path.json", "path.csv", "path.png")
MODEL = re.compile(r"model-\d+\.bigclf")
LINES = 30  # weights that are drawn


@click.command("path", short_help="Train at every value of C, each starting from the last.")
@terminal.data_argument
@click.option("-o", "--output", "out", required=True, metavar="DIR", help="Directory for the results and models.")
@flags.of("path", without=("run_dir",))
@columns.raw_options
@terminal.overwrite_option
@terminal.json_option
@click.pass_context
def command(ctx: click.Context, data: tuple[str, ...], out: str, as_json: bool, **options: Any) -> None:
    """Train on DATA (shards, or raw tables and texts) at every value of C, each starting from the previous
    solution. With --within, train a few models that cover every C between two bounds.

    DIR gets path.json, path.csv, model-1.bigclf for the smallest C and so on, and path.png where matplotlib is
    installed. Exit code 4: training at some value of C stopped at a limit before it reached the tolerance.
    """
    from bigclf import files

    overwrite, raw = options.pop("overwrite"), columns.Asked.taken(options)
    values = [terminal.number_or(text.strip()) for text in options.pop("C").strip("[] ").split(",")]
    before = clear_the_way(ctx, out, (*FILES, *models_in(out)), "path", overwrite=overwrite, resume=options["resume"])
    run_dir = files.join(out, "run")
    keywords = flags.keywords("path", {**options, "run_dir": run_dir}) | {"C": values}
    with terminal.usage_errors():
        from bigclf.api.path import asked_of_path, path

        asked_of_path(None, None, keywords)
    if before is None:
        asked = asked_of(ctx)
        rows = raw.shards("path", list(data), keywords)
        with terminal.resumable(terminal.command_line(ctx, resume=True)), terminal.usage_errors():
            found = path(rows, **keywords)
        written = write(found, out, asked)
        files.remove_at_once(run_dir)
    else:
        found = finished(out, before)
        written = [name for name in paths_of(found, out) if files.exists(name)]
    if as_json:
        terminal.emit_json(found.as_json() | {"files": written})
    else:
        show(found, out)
    if not found.converged:
        ctx.exit(terminal.LIMITS)


def finished(out: str, told: dict[str, Any]) -> Path:
    """The ``Path`` whose results are in ``out``; ``told``: what path.json says.

    Raises
    ------
    DataError : a field is missing or wrong, or there are not as many models.
    """
    from bigclf import files
    from bigclf.api.path import Path
    from bigclf.errors import DataError
    from bigclf.files.json_fields import FieldError, check_relations
    from bigclf.model.model import load

    there = len(models_in(out))
    try:
        found = Path.of_json(told)
        check_relations([(len(found.table) == there, "table", f"that of {plural(there, 'model')}")])
    except FieldError as error:
        raise DataError(f"not the results of a path: {error}", file=files.join(out, FILES[0])) from None
    found.models = [load(files.join(out, f"model-{number}.bigclf")) for number in range(1, there + 1)]
    return found


def models_in(out: str) -> list[str]:
    """Names of the models of a path in a directory."""
    from bigclf import files

    return sorted(name for name in files.list_directory(out) if MODEL.fullmatch(name))


def paths_of(found: Path, out: str) -> list[str]:
    """Of the results: the files of ``FILES``, then a model for each value."""
    from bigclf import files

    models = [f"model-{number}.bigclf" for number in range(1, len(found.models) + 1)]
    return [files.join(out, name) for name in (*FILES, *models)]


def write(found: Path, out: str, asked: dict[str, object]) -> list[str]:
    """The results as files, path.json last: with it they are whole. Their paths."""
    from bigclf import files

    told, table, picture, *models = paths_of(found, out)
    for name in models_in(out):  # of a grid that is replaced, which may have been larger
        files.remove(files.join(out, name))
    for place, model in zip(models, found.models, strict=True):
        model.save(place)
    drawn = [picture] if draw(found, picture) else []
    write_table(table, found.table)
    write_json(told, found.as_json() | {"asked": asked})
    return [told, table, *drawn, *models]


def draw(found: Path, path: str) -> bool:
    """Above the number of weights that are not 0, below the largest weights, against C; False without matplotlib."""
    import numpy as np

    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    from bigclf import files

    figure = Figure(figsize=(6, 6), layout="constrained")
    above, below = FigureCanvasAgg(figure).figure.subplots(2, 1, sharex=True)
    above.plot(found.C, [row["nonzero"] for row in found.table], marker="o")
    above.set_ylabel("weights that are not 0")
    last = found.models[-1].weights
    largest = np.argsort(-np.abs(last), axis=None, kind="stable")[: min(LINES, np.count_nonzero(last))]
    for place in largest:
        k, j = np.unravel_index(place, last.shape)
        below.plot(found.C, [model.weights[k, j] for model in found.models], linewidth=1)
    below.set_ylabel(f"the {largest.size} largest weights")
    below.set_xlabel("C")
    below.set_xscale("log")
    with files.publishing(path) as beside:
        figure.savefig(beside, format="png", dpi=150)
    return True


def show(found: Path, out: str) -> None:
    from rich import box
    from rich.table import Table

    penalty = f", penalty {found.penalty}" if found.penalty else ""
    terminal.heading(out, f"{plural(len(found.table), 'value')}, {plural(found.reads, 'read')}, "
                     f"{format_seconds(found.seconds)}{penalty}")  # fmt: skip
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    ranges = all("low" in row for row in found.table)
    for name in ("C", "not 0", "objective", "gap", "epochs", *(("serves C", "within") if ranges else ())):
        table.add_column(name, justify="right")
    for row in found.table:
        gap = "" if row["gap"] is None else f"{row['gap']:.1e}"
        serves: tuple[str, ...] = ()
        if ranges:
            share = "" if row["within"] is None else f"{100 * row['within']:.2g} %"
            serves = f"{row['low']:.3g} to {row['high']:.3g}", share
        table.add_row(f"{row['C']:.4g}", f"{row['nonzero']:,}", f"{row['objective'] or 0:.6g}", gap, str(row["epochs"]),
                      *serves)  # fmt: skip
    terminal.tables().print(table)
    if not found.converged:
        click.echo("  " + terminal.poor("not converged: stopped at the limits") + "; give more --epochs")
    if models := paths_of(found, out)[len(FILES) :]:
        several = f"  (the smallest C; model-{len(models)}.bigclf: the largest)" * (len(models) > 1)
        click.echo(f"  next: {click.style(f'bigclf evaluate {models[0]} TEST_DATA', bold=True)}{several}")
