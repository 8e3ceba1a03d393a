"""The command line: one group of commands, one line for every error, exit codes that scripts can trust.

====  ===========================================================================
code  meaning
====  ===========================================================================
0     done
1     any other failure: disk, memory budget, an error inside bigclf
2     usage
3     bad data, or a file that is not a model
4     stopped at a limit before the tolerance (the model is still written)
5     cluster lost
6     interrupted, and resumable: the last line says how
====  ===========================================================================
"""

from __future__ import annotations

import copy
import importlib
import os

import click

from bigclf.cli.shared import terminal
from bigclf.cli.shared.outputs import refuse_inputs
from bigclf.version import __version__

COMMANDS = {  # in the order in which a person meets them; "module" or "module:attribute"
    "demo": "demo",
    "generate": "generate",
    "convert": "convert",
    "inspect": "inspect",
    "validate": "validate",
    "split": "split",
    "fit": "fit",
    "sweep": "sweep",
    "path": "path",
    "forget": "forget",
    "calibrate": "calibrate",
    "evaluate": "evaluate",
    "predict": "predict",
    "explain": "explain",
    "report": "report",
    "export": "export",
    "import": "export:import_command",
    "algorithms": "algorithms",
    "plan": "plan",
    "run": "run",
    "submit": "submit",
    "doctor": "doctor",
    "bench": "bench",
    "help": "help",
}


class Program(click.Group):
    """A group whose commands are imported when asked for and whose errors are one line each."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name].partition(":")
        return careful(getattr(importlib.import_module(f"bigclf.cli.{module}"), attribute or "command"))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from bigclf.units import near

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"no such command {args[0]!r}{near(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: object
    ) -> click.Context:
        terminal.remember(args)
        with terminal.guarded(), terminal.errors_as_lines(None):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        with terminal.guarded(), terminal.errors_as_lines(ctx), terminal.warnings_as_lines(), terminal.terminable():
            terminal.check_environment()
            return super().invoke(ctx)


def careful(command: click.Command) -> click.Command:
    """The same, but it refuses to write over what it reads."""
    found, does = copy.copy(command), command.callback

    def first_refuse(*args: object, **given: object) -> object:
        refuse_inputs(str(command.name), click.get_current_context().params)
        return does and does(*args, **given)

    found.callback = first_refuse
    return found


@click.group(
    "bigclf",
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Start with: bigclf demo. Guides: bigclf help",
)
@click.version_option(package_name=None, version=__version__, prog_name="bigclf")
def main() -> None:
    """Linear classifiers on sparse data larger than memory.

    Convert text to shards once, train within a memory budget you choose, and get a model that tells you how far it is
    from the optimum. Results go to stdout, progress and messages to stderr. Every command that prints results accepts
    --json.
    """
