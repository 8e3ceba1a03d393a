"""``bigclf explain``: the largest weights of each class, or what moved the score of one row."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, TypeAlias

import click

from bigclf.cli.inspect import weights_text
from bigclf.cli.shared import columns, terminal
from bigclf.cli.shared.texts import print_columns

if TYPE_CHECKING:
    from bigclf.data.dataset import Stored
    from bigclf.model.explanations import ClassWeights, Entry, Explanation, RowAnswer, RowClass
    from bigclf.model.model import Model


MOST_TABLES = 20
Only: TypeAlias = str | list[str] | None  # of which class, or classes


@click.command("explain", short_help="Show the largest weights, or why a row got its score.")
@click.argument("model", metavar="MODEL")
@click.option("--top", type=click.IntRange(1), default=20, show_default=True, help="Features to list per class.")
@click.option("--class", "classes", metavar="K", multiple=True, help="Show only the class with this label; repeatable.")
@click.option(
    "--names",
    metavar="FILE",
    help="Feature names, one per line, or lines FEATURE<tab>NAME, with numbers as the data have them.",
)
@click.option("--data", multiple=True, metavar="DATA", help="Labelled rows; count how many have each feature.")
@click.option("--row", type=click.IntRange(0), metavar="N", help="Explain the score of row N of --data (from 0).")
@columns.format_option
@columns.bad_rows_options
@terminal.json_option
def command(
    model: str, top: int, classes: tuple[str, ...], names: str | None, data: tuple[str, ...], row: int | None,
    as_json: bool, **reader: object,
) -> None:  # fmt: skip
    """Show the largest weights of MODEL for each class, with feature names if there are any and standard errors if the
    method keeps variances.

    With --data, also show in how many rows each feature occurs. With --row, show what each entry of the row adds to its
    score; of several labels per row, to that of each label predicted. DATA are shards, or raw files like those that
    MODEL was trained on.
    """
    from bigclf.model.model import load

    only = list(classes) if len(classes) > 1 else classes[0] if classes else None
    where = list(data) if len(data) > 1 else data[0] if data else None
    if row is not None and where is None:
        raise click.UsageError("--row needs the rows: --data DATA")
    bad = columns.bad_rows(reader)
    if bad != columns.NOTHING_SAID and (row is not None or where is None):
        raise click.UsageError(
            "--on-bad-rows and --max-bad-fraction are for --data without --row, which counts all rows"
        )
    loaded = columns.as_read(load(model), reader)
    with terminal.usage_errors():
        told: Explanation | RowAnswer
        if row is None:
            told = weights = _weights(loaded, where, top, only, names, bad)
            show = functools.partial(_print_weights, loaded, weights)
        else:
            told = answer = _row(loaded, where, row, top, only, names)
            show = functools.partial(_print_row, answer)
    if as_json:
        terminal.emit_json(told)
    else:
        show()
    for text in () if as_json else told["warnings"]:
        terminal.say("warning:", text, "yellow")
    for text in () if as_json else told["notes"]:
        terminal.say("note:", text, "yellow")


def _weights(
    model: Model, data: Stored | None, top: int, only: Only, names: str | None, bad: columns.OfBadRows
) -> Explanation:
    from bigclf.model.explanations import explain
    from bigclf.model.raw_input import BadRows, as_shards, left_out
    from bigclf.progress import TerminalProgress

    if data is None:
        return explain(model, top=top, only=only, names=names)
    with TerminalProgress("counting") as progress, as_shards(model, data, bad=BadRows(**bad)) as rows:
        told = explain(model, top=top, only=only, names=names, data=rows, progress=progress)
    n_bad, why = left_out(data, rows)
    return {**told, "notes": [*told["notes"], *([why] if n_bad else [])]}


def _row(model: Model, data: Stored | None, row: int, top: int, only: Only, names: str | None) -> RowAnswer:
    from bigclf.model.raw_input import explain_at

    assert data is not None
    return explain_at(model, data, row, top=top, only=only, names=names)


def _print_weights(model: Model, told: Explanation) -> None:
    for each in told["classes"][:MOST_TABLES]:
        what = "numbers" if each["class"] is None else f"class {terminal.printable(each['class'])}"
        weights = f"weights {weights_text(1, model.n_features, each['nonzero'])}"
        terminal.heading(what, f"{weights}, bias {each['bias'] + 0.0:.6g}")
        if not each["for"] and not each["against"]:
            click.echo("  no weight favours it\n")
            continue
        print_columns(_columns(each), [_line(entry, each) for entry in (*each["for"], *reversed(each["against"]))])
    if len(told["classes"]) > MOST_TABLES:
        click.echo(f"and {len(told['classes']) - MOST_TABLES:,} more classes: --class K shows one, --json all")


def _columns(each: ClassWeights) -> list[tuple[str, str]]:
    entry = (each["for"] or each["against"])[0]
    columns = [("weight", "right")]
    columns += [("± std. error", "right")] if "standard_error" in entry else []
    columns += [("feature", "right")]
    columns += [("name", "left")] if any(e["name"] for e in (*each["for"], *each["against"])) else []
    columns += [("rows", "right")] if "rows" in entry else []
    return columns + ([("of the class", "right")] if "rows_in_class" in entry else [])


def _line(entry: Entry, each: ClassWeights) -> list[str]:
    names = [name for name, _ in _columns(each)]
    cells = {
        "weight": f"{entry['weight']:+.5g}",
        "± std. error": f"{entry.get('standard_error', 0):.3g}",
        "feature": f"{entry['number']:,}",
        "name": terminal.printable(entry["name"] or ""),
        "rows": f"{entry.get('rows', 0):,}",
        "of the class": f"{entry.get('rows_in_class', 0):,}",
    }
    return [cells[name] for name in names]


def _print_row(told: RowAnswer) -> None:
    what = f"row {told['row']:,}: {_labels_text(told['prediction'])}"
    what += "" if told["label"] is None else f", labelled {_labels_text(told['label'])}"
    if "each" in told:
        _print_each(what, told["each"], isinstance(told["prediction"], list))
    else:
        score_of = "" if told["class"] is None else f" for class {terminal.printable(told['class'])}"
        terminal.heading(what, f"score {told['score']:+.6g}{score_of}")
        _print_entries(told)
    if told["unknown"]:
        unknown = f"{told['unknown']:,} entries of features that the model does not know"
        terminal.facts([("unknown", unknown)], indent="  ")


def _print_each(what: str, each: list[RowClass], several: bool) -> None:
    """A table for each class, or where a row has ``several`` labels for each label."""
    terminal.heading(what, "every label with a score of 0 or more is predicted" if several else "")
    for one in each[:MOST_TABLES]:
        name = f"{'label' if several else 'class'} {terminal.printable(one['class'])}"
        terminal.heading(name, f"score {one['score']:+.6g}")
        _print_entries(one)
    if len(each) > MOST_TABLES:
        click.echo(f"and {len(each) - MOST_TABLES:,} more: --class K shows one, --json all")


def _labels_text(labels: object) -> str:
    """A label, or several as they are said."""
    if not isinstance(labels, list):
        return str(terminal.printable(labels))
    return ", ".join(str(terminal.printable(label)) for label in labels) or "no label"


def _print_entries(told: RowClass) -> None:
    named = any(entry["name"] for entry in told["entries"])
    columns = [("adds", "right"), ("weight", "right"), ("value", "right"), ("feature", "right")]
    rows = [
        [f"{e['contribution']:+.5g}", f"{e['weight']:+.5g}", f"{e['value']:.5g}", f"{e['number']:,}"]
        + ([terminal.printable(e["name"] or "")] if named else [])
        for e in told["entries"]
    ]
    print_columns(columns + ([("name", "left")] if named else []), rows)
    terminal.facts(
        [
            ("all others", f"{told['others']:+.5g}" if told["others"] else None),
            ("bias", f"{told['bias']:+.5g}" if told["bias"] else None),
        ],
        indent="  ",
    )
