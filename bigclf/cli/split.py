"""``bigclf split``: one dataset into parts, such as training and test rows."""

from __future__ import annotations

from typing import Any

import click

from bigclf.cli.convert import class_text, describe
from bigclf.cli.shared import terminal
from bigclf.cli.shared.results import require_free
from bigclf.units import plural


@click.command("split", short_help="Split shards into parts, such as train and test.")
@terminal.data_argument
@click.argument("out", metavar="OUT")
@click.option("--parts", "shares", cls=terminal.Listed, default="train=0.8,test=0.2", show_default=True,
              metavar="NAME=SHARE,...", help="The parts, each a directory in OUT, and their shares of the"
              " rows.")  # fmt: skip
@click.option("--by", metavar="COL", help="Rows with the same value in this column stay together.")
@click.option("--order", metavar="COL", help="The parts follow each other along this column, such as a time.")
@click.option("--columns", cls=terminal.Listed, metavar="ROLE=NAME,...", help="Names of columns, by role, in Parquet"
              " files not written by bigclf; ROLE is label, weight, features, or indices and values. The parts need"
              " none.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Another one gives other parts.")
@click.option("--memory", type=terminal.SIZE, default="256MB", show_default=True, help="What this may allocate.")
@terminal.overwrite_option
@terminal.json_option
def command(data: tuple[str, ...], out: str, shares: str, columns: str | None, as_json: bool, **options: Any) -> None:
    """Split the rows of the shards DATA into parts in the directory OUT.

    Without --by and --order, a hash of each row decides: equal rows stay together, and earlier rows stay in their part
    when the data grow.
    """
    from bigclf.conversion.split import split
    from bigclf.data.dataset import Dataset

    parts = _parts(shares)
    names = terminal.names_option(columns, "--columns") if columns else None
    require_free(out, below=False)
    with terminal.usage_errors():
        source = list(data) if len(data) > 1 else data[0]
        found = split(source if names is None else Dataset(source, columns=names), out, parts, **options)
    if as_json:
        terminal.emit_json({name: describe(part) for name, part in found.items()})
        return
    total = sum(part.n_rows for part in found.values())
    terminal.heading(f"{plural(total, 'row')} in {plural(len(found), 'part')}")
    rows = [
        (name, f"{part.n_rows:,} row{'s' * (part.n_rows != 1)}, {100 * part.n_rows / total:.2f} %"
         + ("" if part.classes is None else f"  ({class_text(part)})"))
        for name, part in found.items()
    ]  # fmt: skip
    terminal.facts(rows, indent="  ")


def _parts(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for item in text.split(","):
        name, _, share = item.partition("=")
        try:
            found[name.strip()] = float(share)
        except ValueError:
            raise click.BadParameter(f"write NAME=SHARE, not {item!r}", param_hint="--parts") from None
    return found
