"""What several commands print in the same words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bigclf.cli.shared import terminal

MEASURES = {"error": "error", "log_loss": "log loss", "mean_squared_error": "mean squared error"}  # of a sweep


def print_table(points: Sequence[Mapping[str, Any]], measure: str, best_params: Mapping[str, object]) -> None:
    """The points of the grid, an arrow at the best; in grey those that were given up on the way. Where no point is
    certified there is no column of gaps."""
    from rich import box
    from rich.table import Table

    from bigclf.api.sweep import shown_value

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    names = list(dict.fromkeys(name for row in points for name in row["params"]))
    gaps = ["gap"] if any(row["gap"] is not None for row in points) else []
    for name in ("", *names, MEASURES[measure], "spread", *gaps, "epochs", "seconds"):
        table.add_column(name, justify="right")
    for row in points:
        best = row["params"] == best_params
        cells = [*(shown_value(row["params"].get(name)) for name in names),
                 _number(row["mean"], ".5f"), _number(row["spread"], ".5f"),
                 *(_number(row[gap], ".1e") for gap in gaps), str(row["epochs"]), f"{row['seconds']:.2f}"]  # fmt: skip
        style = "bold" if best else "dim" if row.get("dropped") else None
        table.add_row("→" if best else "", *cells, style=style)
    terminal.tables().print(table)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def print_columns(columns: list[tuple[str, str]], rows: Iterable[Sequence[str]]) -> None:
    """A table of texts; ``columns`` : each one's name, and "left" or "right"."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name, justify in columns:
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*map(Text, row))  # names are text, never markup
    terminal.tables().print(table)
