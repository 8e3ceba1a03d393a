"""``bigclf sweep``: a grid of parameters from one read of each block, and the best of them as a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from bigclf.cli.evaluate import write_json
from bigclf.cli.shared import columns, flags, terminal
from bigclf.cli.shared.results import asked_of, clear_the_way
from bigclf.cli.shared.texts import MEASURES, print_table
from bigclf.units import format_seconds, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bigclf.api.sweep import Sweep


FILES = ("results.json", "results.csv", "results.png", "model.bigclf")


@click.command("sweep", short_help="Cross-validate a grid of parameters and train the best.")
@terminal.data_argument
@click.option("-o", "--output", "out", required=True, metavar="DIR", help="Directory for results and best model.")
@flags.of("sweep", without=("run_dir",))
@columns.raw_options
@terminal.overwrite_option
@terminal.json_option
@click.pass_context
def command(ctx: click.Context, data: tuple[str, ...], out: str, as_json: bool, **options: Any) -> None:
    """Train on DATA (shards, or raw tables and texts) with every value of the grid, measure each on held-out rows, and
    retrain the best on all rows.

    The table shows the mean error of each point over the folds; `spread` is its standard deviation over the folds. DIR
    gets results.json, results.csv, model.bigclf and, if matplotlib is installed, results.png. Exit code 4: a point of
    the grid or the best model stopped at a limit before it reached the tolerance.
    """
    from bigclf import files

    overwrite, raw = options.pop("overwrite"), columns.Asked.taken(options)
    grid = grids_of(pairs_of(options.pop("grid")))
    before = clear_the_way(ctx, out, FILES, "sweep", overwrite=overwrite, resume=options["resume"])
    run_dir = files.join(out, "run")
    keywords = flags.keywords("sweep", {**options, "run_dir": run_dir}) | {"grid": grid}
    again = terminal.command_line(ctx, resume=True)
    with terminal.usage_errors():
        from bigclf.api.sweep import asked_of_sweep, sweep

        asked_of_sweep(None, None, keywords)
    if before is None:
        asked = asked_of(ctx)
        rows = raw.shards("sweep", list(data), keywords)
        with terminal.resumable(again), terminal.usage_errors():
            found = sweep(rows, **keywords)
        written = write(found, out, asked)
        files.remove_at_once(run_dir)
    else:
        found, written = finished(out, before), [files.join(out, name) for name in FILES]
        written = [path for path in written if files.exists(path)]
    if as_json:
        terminal.emit_json(found.as_json() | {"files": written})
    else:
        show(found, out)
    if not (found.converged and (found.best_model is None or found.best_model.result_.converged)):
        ctx.exit(terminal.LIMITS)


def pairs_of(given: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for item in given:
        name, equals, values = item.partition("=")
        if not equals or not name or not values:
            raise click.BadParameter(f"write NAME=A,B,..., not {item!r}", param_hint="--grid")
        if wrong := next((value for value in values_of(values) if _meant_as_number(value)), None):
            text = f"{name}: {wrong!r} is not a number; write every value: --grid {name}=0.01,0.1,1"
            raise click.BadParameter(text, param_hint="--grid")
        if name in pairs:
            raise click.BadParameter(f"{name} is given twice", param_hint="--grid")
        pairs[name] = values
    return pairs


def grids_of(pairs: dict[str, str]) -> object:
    """``NAME=A,B`` for every method, ``ALGO:NAME=A,B`` for that one: a grid, or a list with one a method."""
    shared = {name: values_of(text) for name, text in pairs.items() if ":" not in name}
    own: dict[str, dict[str, Any]] = {}
    for key, text in pairs.items():
        algo, colon, name = key.partition(":")
        if colon:
            own.setdefault(algo, {})[name] = values_of(text)
    if not own:
        return shared
    rest = [name for name in shared.pop("algo", []) if name not in own]
    return [{"algo": [algo], **shared, **grid} for algo, grid in own.items()] + (
        [{"algo": rest, **shared}] if rest else []
    )


def values_of(text: str) -> list[object]:
    """``0.1,1,10`` as numbers, other words as text; a job's list comes as ``[0.1, 1, 10]``."""
    return [terminal.number_or(value.strip(" '\"")) for value in text.strip("[] ").split(",")]


def _meant_as_number(value: object) -> bool:
    """Whether a value begins as numbers do and is none, such as ``0.1..1`` and ``1e``."""
    return isinstance(value, str) and value[:1] in tuple("0123456789+-.")


def finished(out: str, told: dict[str, Any]) -> Sweep:
    """The ``Sweep`` whose results are in ``out``; ``told``: what results.json says, with what was ``asked``.

    Raises
    ------
    DataError : a field is missing or wrong, or the model is another one.
    """
    from bigclf import files
    from bigclf.api.fit import known_again
    from bigclf.api.sweep import Sweep
    from bigclf.errors import DataError
    from bigclf.files.json_fields import TABLE, FieldError, check_fields, check_relations, or_none

    try:
        found = Sweep.of_json(told)
        check_fields(told, {"best": or_none(TABLE)})
        without = told["folds"] > 0 and told["asked"].get("refit") is False
        check_relations([((told["best"] is None) == without, "best", "null" if without else "that of a model")])
        if told["best"] is not None:
            found.best_model = known_again(files.join(out, "model.bigclf"), [])
            same = _as_text(found.as_json()["best"]) == _as_text(told["best"])
            check_relations([(same, "best", "that of model.bigclf")])
    except FieldError as error:
        raise DataError(f"not the results of a sweep: {error}", file=files.join(out, FILES[0])) from None
    return found


def _as_text(value: object) -> str:
    import json

    return json.dumps(terminal.plain(value), sort_keys=True)  # of NaN too


def write(found: Sweep, out: str, asked: dict[str, object]) -> list[str]:
    """The results as files, results.json last: with it they are whole. Their paths."""
    from bigclf import files

    paths = {name: files.join(out, name) for name in FILES}
    if found.best_model is None:
        del paths["model.bigclf"]
    else:
        found.best_model.save(paths["model.bigclf"])
    if not draw(found, paths["results.png"]):
        del paths["results.png"]
    write_table(paths["results.csv"], found.flat())
    write_json(paths["results.json"], found.as_json() | {"asked": asked})
    return list(paths.values())


def write_table(path: str, rows: Sequence[Mapping[str, object]]) -> None:
    """The rows as CSV, with the names of the first one."""
    import csv
    import io

    from bigclf import files

    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    files.publish_text(path, text.getvalue())


def draw(found: Sweep, path: str) -> bool:
    """The measure against the first parameter of numbers, a line for each value of the others; where there is none
    such, the points one below the other. False without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return False
    from bigclf import files

    axis = axis_of(found)
    height = 4 if axis else max(2.0, 1 + 0.3 * len(found.table))
    figure = Figure(figsize=(6, height), layout="constrained")
    axes = FigureCanvasAgg(figure).figure.add_subplot()
    if axis is None:
        _draw_points(axes, found)
    else:
        _draw_lines(axes, found, axis)
    with files.publishing(path) as beside:
        figure.savefig(beside, format="png", dpi=150)
    return True


def _draw_lines(axes: Axes, found: Sweep, axis: str) -> None:
    lines: dict[str, list[tuple[float, float, float]]] = {}
    for row in found.table:
        if row["mean"] is not None:
            own = row["params"]
            label = ", ".join(f"{name}={own[name]}" for name in found.names if name != axis and name in own)
            lines.setdefault(label, []).append((own[axis], row["mean"], row["spread"] or 0.0))
    for label, points in lines.items():
        x, y, spread = zip(*sorted(points), strict=True)
        axes.errorbar(x, y, spread, marker="o", capsize=3, label=label or None)
    if min(row["params"][axis] for row in found.table) > 0:
        axes.set_xscale("log")
    axes.set_xlabel(axis)
    axes.set_ylabel(f"{MEASURES[found.measure]} on rows not learned from")
    if any(lines):
        axes.legend()


def _draw_points(axes: Axes, found: Sweep) -> None:
    from bigclf.api.sweep import name_of

    rows = [row for row in found.table if row["mean"] is not None]
    for place, row in enumerate(rows):
        colour = "C1" if row["params"] == found.best_params_ else "0.6" if row.get("dropped") else "C0"
        axes.errorbar(row["mean"], place, xerr=row["spread"] or 0.0, marker="o", capsize=3, color=colour)
    axes.set_yticks(range(len(rows)), [name_of(row["params"]) for row in rows])
    axes.invert_yaxis()
    axes.set_xlabel(f"{MEASURES[found.measure]} on rows not learned from")


def axis_of(found: Sweep) -> str | None:
    """The first parameter that is a number in every point."""
    for name in found.names:
        if all(isinstance(row["params"].get(name), int | float) for row in found.table):
            return str(name)
    return None


def show(found: Sweep, out: str) -> None:
    from bigclf import files

    result = None if found.best_model is None else found.best_model.result_
    seconds = found.seconds + (0 if result is None else result.seconds)
    terminal.heading(out, f"{plural(len(found.table), 'point')}, {plural(found.reads, 'read')}, "
                     f"{format_seconds(seconds)}")  # fmt: skip
    print_table(found.table, found.measure, found.best_params_)
    for note in found.notes():
        terminal.say("note:", note, "yellow")
    if not (found.converged and (result is None or result.converged)):
        click.echo(
            "  " + terminal.poor("not converged: stopped at the limits") + "; give more epochs, or a larger --tol"
        )
    if result is not None:
        click.echo(f"  next: {click.style(f'bigclf evaluate {files.join(out, FILES[-1])} TEST_DATA', bold=True)}")
