"""``bigclf help``: the guides."""

from __future__ import annotations

import sys
from importlib import resources
from typing import TYPE_CHECKING

import click

from bigclf.cli.shared import terminal
from bigclf.units import near

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

TOPICS = (  # in the order in which a person needs them
    "table",
    "text",
    "labels",
    "table-labels",
    "laptop",
    "commands",
    "python",
    "data",
    "cluster",
    "groups",
    "momentum",
    "jobs",
    "from-liblinear",
    "from-vowpal-wabbit",
    "from-scikit-learn",
    "from-xgboost",
    "methods",
    "algorithms",
    "exact-solvers",
    "perceptrons",
    "confidence-weighted",
    "all-classes",
    "gradient-methods",
    "other-norms",
    "parameters",
    "retraining",
    "forgetting",
    "certificate",
    "limits",
    "bench",
    "troubleshooting",
    "code",
)


def guide(topic: str) -> str:
    """The guide ``topic``, one of ``TOPICS``, as Markdown; its first line is its title."""
    return resources.files("bigclf").joinpath("guides", f"{topic}.md").read_text(encoding="utf-8")


@click.command("help", short_help="Show a guide, or what a command does.")
@click.argument("topic", required=False)
@click.option("--pager/--no-pager", default=None, help="Show page by page  [default: if stdout is a terminal]")
@click.pass_context
def command(ctx: click.Context, topic: str | None, pager: bool | None) -> None:
    """Show the guide TOPIC, or the help of the command of that name; without TOPIC, list the guides.

    In a pipe, a guide is printed as Markdown.
    """
    if topic is None:
        _list()
    elif topic in TOPICS:
        _show(guide(topic), sys.stdout.isatty() if pager is None else pager)
    else:
        click.echo(_command_help(ctx, topic))


def _list() -> None:
    terminal.heading("guides", "bigclf help TOPIC")
    width = max(map(len, TOPICS)) + 2
    for topic in TOPICS:
        title = guide(topic).splitlines()[0].removeprefix("# ")
        click.echo(f"  {click.style(topic.ljust(width), bold=True)}{title}")
    click.echo("\nHelp on a command: " + click.style("bigclf help COMMAND", bold=True))


def _show(markdown: str, pager: bool) -> None:
    if not sys.stdout.isatty():
        click.echo(markdown)
        return
    from rich.markdown import CodeBlock, Markdown
    from rich.syntax import Syntax

    class Whole(CodeBlock):
        """Code whose lines are as long as they are, so that what is copied off the screen runs."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            code = str(self.text).rstrip()
            shown = Syntax(code, self.lexer_name, theme=self.theme).highlight(code)
            shown.no_wrap, shown.overflow = True, "ignore"
            yield shown

    class Guide(Markdown):
        elements = {**Markdown.elements, "fence": Whole, "code_block": Whole}

    console = terminal.tables()
    page = Guide(markdown, code_theme="ansi_dark")
    if not pager:
        console.print(page, crop=False)
        return
    with console.capture() as shown:
        console.print(page, crop=False)
    click.echo_via_pager(shown.get())


def _command_help(ctx: click.Context, name: str) -> str:
    """Help of the command ``name``.

    Raises
    ------
    click.UsageError : if there is neither a guide nor a command of that name.
    """
    group = ctx.find_root().command
    found = group.get_command(ctx, name) if isinstance(group, click.Group) else None
    if found is None:
        known = [*TOPICS, *(group.list_commands(ctx) if isinstance(group, click.Group) else [])]
        meant = near(name, known) or f"; the guides are {', '.join(TOPICS)}"
        raise click.UsageError(f"there is no guide or command {name!r}{meant}")
    with click.Context(found, info_name=name, parent=ctx.parent) as inner:
        return found.get_help(inner)
