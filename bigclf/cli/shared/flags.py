"""The options that ``request/options.py`` declares, as flags of the command line; and what was said as keywords."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import click

from bigclf.cli.shared import terminal
from bigclf.request.options import OPTIONS, Choice, Number, Option, Size, Speed, Whole, Words, Yes, declared
from bigclf.request.places import RunDir, Workers
from bigclf.units import near

Command = TypeVar("Command", bound=Callable[..., object])
NAMED, KNOWN = re.compile(r"``([^`]+)``"), {option.name for option in OPTIONS}
CHECKS = {"patience": terminal.check_patience}  # of texts, so that a job's error names its line

param_option = click.option(
    "--param", "params", multiple=True, metavar="NAME=VALUE",
    help="A parameter of the method by its name: see `bigclf algorithms NAME`.",
)  # fmt: skip


class Decorator(Protocol):
    """Adds flags to a command."""

    def __call__(self, command: Command, /) -> Command: ...


def of(verb: str, without: Iterable[str] = ()) -> Decorator:
    """Add a flag for every option of a verb, and ``--param``."""
    flags = [flag(option) for name, option in declared(verb).items() if option.flag and name not in without]
    return lambda command: terminal.with_options([*flags, param_option], command)


def shared(verb: str, *names: str) -> Decorator:
    """Add flags of a verb by name; those that it has not itself are as ``fit`` has them."""
    known = declared("fit") | declared(verb)
    return lambda command: terminal.with_options([flag(known[name]) for name in names], command)


def flag(option: Option) -> Decorator:
    """The flag of an option. What is not said is left out, so that the default is Python's."""
    name, value = option.name.replace("_", "-"), option.value
    if isinstance(value, Yes):
        default: Any = None if option.default else False
        names = f"--{name}/--no-{name}" if option.default else f"--{name}"
        return click.option(names, option.name, is_flag=True, default=default, help=_help(option))
    metavar = getattr(value, "metavar", None) or ""
    many = isinstance(value, Words) and value.many
    kind = terminal.Listed if ",..." in metavar and not many else terminal.OneValue if metavar == "DATA" else None
    return click.option(
        f"--{name}", option.name, cls=kind, type=_type(option), metavar=metavar or None, help=_help(option),
        multiple=many, required=option.required, callback=CHECKS.get(option.name),
        **{"default": option.default, "show_default": True} if option.shown else {},  # click 8.3 takes None for one
    )  # fmt: skip


def _help(option: Option) -> str:
    text = NAMED.sub(_said_here, " ".join(option.help.split()))
    default = option.unsaid or ("" if option.shown or option.default is None else str(option.default))
    if isinstance(option.value, Yes):
        default = _long(option) if option.default else ""
    return f"{text}  [default: {default.removesuffix('.0')}]" if default else text


def _said_here(found: re.Match[str]) -> str:
    """What Python's callers read in double quotes."""
    return "--" + found[1].replace("_", "-") if found[1] in KNOWN else f"`{found[1]}`"


def _long(option: Option) -> str:
    return "--" + option.name.replace("_", "-")


def _type(option: Option) -> object:
    value = option.value
    if isinstance(value, Whole):
        return click.IntRange(value.least)
    if isinstance(value, Number):
        if value.least is None:
            return click.FLOAT
        return click.FloatRange(value.least, value.below, min_open=value.above, max_open=value.below is not None)
    if isinstance(value, Choice):
        return click.Choice(value.words)
    return terminal.SIZE if isinstance(value, Size) else terminal.SPEED if isinstance(value, Speed) else click.STRING


# What was said


def keywords(verb: str, options: dict[str, Any]) -> dict[str, Any]:
    """What was said on the command line as keywords of Python's verb; what was not said is left to its defaults."""
    own = declared(verb)
    said = {
        name: _read(own[name], value) for name, value in options.items() if name in own and _is_said(own[name], value)
    }
    params = terminal.pairs_option(options["params"], "--param")
    for name in params:
        if name in own:
            raise click.BadParameter(f"{name!r} has an option of its own: {_long(own[name])}", param_hint="--param")
    for whole, made in (("workers", Workers), ("run_dir", RunDir)):
        parts = {name: said.pop(name) for name in [*said] if own[name].within == whole}
        if parts:
            said[whole] = made(said.get(whole), **parts)
    return {**said, **params}


def _is_said(option: Option, value: object) -> bool:
    return value not in (None, ()) and not (value is False and option.default is False)


def _read(option: Option, value: Any) -> Any:
    """Text as what it stands for; values of other types are what they are."""
    name = _long(option)
    if option.name == "workers":
        return terminal.workers_of(value)
    if not isinstance(option.value, Words):
        return value
    if option.value.texts:
        return terminal.names_option(value, name)
    if option.value.many:
        return terminal.pairs_option(value, name)
    if value in option.value.words:
        return value
    if "=" not in value:
        first = option.value.words[0]
        told = f"{first}, or {option.value.metavar.partition('|')[2].replace('CLASS=W', 'LABEL=WEIGHT')}"
        raise click.BadParameter(f"{told}, not {value!r}{near(value, option.value.words)}", param_hint=name)
    return terminal.pairs_option(tuple(value.split(",")), name)
