"""``bigclf algorithms``: the methods there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bigclf.cli.shared import terminal
from bigclf.units import near

if TYPE_CHECKING:
    from bigclf.api.method_list import Described, Parameter


@click.command("algorithms", short_help="List the methods.")
@click.argument("names", nargs=-1)
@terminal.json_option
def command(names: tuple[str, ...], as_json: bool) -> None:
    """List all methods, or show those in NAMES in full: paper, update and parameters."""
    from bigclf.api.method_list import algorithms

    methods = {method["name"]: method for method in algorithms()}
    for name in names:
        if name == "auto":
            raise click.UsageError("auto is no method: it takes one of them by your data (see bigclf help algorithms)")
        if name not in methods:
            there = near(name, methods) or f"; the methods are {', '.join(methods)}"
            raise click.UsageError(f"no method {name!r}{there}")
    chosen = [methods[name] for name in names] or list(methods.values())
    if as_json:
        terminal.emit_json(chosen)
    elif names:
        for method in chosen:
            _print_one(method)
    else:
        _print_table(chosen)


WIDE = 110  # characters; where there are fewer, parameters and losses are left to the page of each


def _print_table(methods: list[Described]) -> None:
    from rich import box
    from rich.table import Table

    console = terminal.tables()
    wide = console.width >= WIDE
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("name", style="bold green", no_wrap=True)
    table.add_column("what it is", ratio=1)
    for name in (("parameters", "losses") if wide else ()) + ("quality",):
        table.add_column(name, no_wrap=True)
    for method in methods:
        params = "\n".join(_default_text(param) for param in method["parameters"])
        quality = "certified gap" if method["certificate"] else "progressive error"
        more = [params, "\n".join(method["losses"])] if wide else []
        table.add_row(method["name"], method["title"], *more, quality)
    console.print(table)
    click.echo("Details: " + click.style("bigclf algorithms NAME", bold=True))


def _default_text(param: Parameter) -> str:
    default = param["default"]
    if default is None:
        return param["name"]
    return f"{param['name']}={default if param['choices'] else format(default, 'g')}"


def _print_one(method: Described) -> None:
    terminal.heading(method["name"], method["title"])
    terminal.facts(
        [
            ("update", method["update"]),
            ("paper", method["paper"]),
            ("losses", ", ".join(method["losses"])),
            ("penalties", ", ".join(method["penalties"])),
            ("bias", ", ".join(str(bias) for bias in method["bias"])),
            ("multiclass", ", ".join(method["multiclass"])),
            ("row weights", method["row_weights"]),
            ("groups combined by", method["mixing"]),
            ("--mixing", ", ".join(method["mixings"])),
            ("quality", "certified duality gap" if method["certificate"] else "progressive validation error"),
        ],
        indent="  ",
    )
    for param in method["parameters"]:
        bounds = f" in {param['bounds']}" if param["bounds"] else ""
        only = f" (with {', '.join(param['losses'])})" if param["losses"] else ""
        click.echo(f"  {click.style(_default_text(param), bold=True)}{bounds}: {param['about']}{only}")
    click.echo()
