"""The JSON schema of job files, made from what the commands take: for editors, and for programs that write jobs.

It describes a job as it is written, so any number may also be text with an environment name in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import click

from bigclf.cli import main
from bigclf.cli.jobs import steps
from bigclf.cluster.book import Patience
from bigclf.methods import METHODS

URL = "https://json-schema.org/draft/2020-12/schema"
ENVIRONMENT = r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}"
Schema: TypeAlias = dict[str, object]  # of JSON
TEXT: Schema = {"type": ["string", "number", "boolean"]}  # YAML reads 1 and true where text is meant
NUMBER: Schema = {"type": ["number", "string"], "pattern": rf"^([-+0-9.eE]+|.*{ENVIRONMENT}.*)$"}


def schema() -> Schema:
    """The schema, as plain values for JSON."""
    sections = {name: _section(name) for name in ("data", "method", "limits", "run", "cluster", "outputs")}
    return {
        "$schema": URL,
        "title": "A bigclf job",
        "type": "object",
        "properties": {"name": TEXT, **sections, "steps": _steps()},
        "additionalProperties": False,
        "oneOf": [
            {"required": ["steps"], "not": {"anyOf": [{"required": [name]} for name in sections if name != "run"]}},
            {"required": ["data"], "not": {"required": ["steps"]},
             "properties": {"data": {"required": ["train"]}}},
        ],
    }  # fmt: skip


def _section(name: str) -> Schema:
    if name == "method":
        return _method()
    if name == "data":
        return _data()
    properties = {key: _of_option(_option("fit", key)) for key in steps.KEYS[name] or ()}
    if name == "cluster":
        properties["patience"] = _patience()
    if name == "outputs":
        properties = dict.fromkeys(steps.KEYS[name] or (), TEXT) | {"scores": _flag(), "proba": _flag()}
        return _table(properties)
    if name == "run":
        properties["dir"] = TEXT
    return _table(properties)


def _data() -> Schema:
    paths = dict.fromkeys(("train", "test"), TEXT)
    many = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
    generate = _properties("generate")
    making = _table({key: generate[key] for key in ("out", "rows", "features", "seed")}) | {"required": ["out"]}
    names = {"type": "object", "additionalProperties": TEXT}
    return _table({**paths, "generate": {"anyOf": [making, {"type": "null"}]}, "source": many, "test_source": many,
                   "convert": _table(_properties("convert")), "columns": names})  # fmt: skip


def _method() -> Schema:
    """Options of ``fit``, and the parameters of the method that ``algo`` names."""
    options = {key: _of_option(_option("fit", key)) for key in steps.method_keys()}
    options["algo"] = _algo()
    options["bias"] = {"enum": ["feature", "free", "none", None, False]}
    cases = [
        {
            "if": {"properties": {"algo": {"const": name}}, "required": ["algo"]},
            "then": {"propertyNames": {"enum": [*options, *(param.name for param in method.params)]}},
        }
        for name, method in METHODS.items()
    ]
    return {"type": "object", "properties": options, "additionalProperties": TEXT, "allOf": cases}


def _algo() -> Schema:
    return {"enum": ["auto", *METHODS]}


def _patience() -> Schema:
    return _table({name: NUMBER | {"minimum": 0} for name in Patience._fields})


def _steps() -> Schema:
    commands = {name: _command(name) for name in steps.COMMANDS}
    step = {"type": "object", "properties": commands, "additionalProperties": False, "minProperties": 1,
            "maxProperties": 1}  # fmt: skip
    return {"type": "array", "items": step, "minItems": 1}


def _command(name: str) -> Schema:
    """The table of a step."""
    required = [
        {"anyOf": [{"required": [key]} for key in dict.fromkeys((steps.key_of(param), param.name or ""))]}
        for param in _params(name) if param.required
    ]  # fmt: skip
    return {**_table(_properties(name)), **({"allOf": required} if required else {})}


def _properties(name: str) -> dict[str, Schema]:
    """An entry for each argument and option of the command."""
    found = {
        key: _of_option(param)
        for param in _params(name) for key in dict.fromkeys((steps.key_of(param), param.name or ""))
    }  # fmt: skip
    return found | ({"algo": _algo()} if "algo" in found else {})


def _params(name: str) -> list[click.Parameter]:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    return command.params


def _option(command: str, key: str) -> click.Parameter | None:
    return next((param for param in _params(command) if key in (steps.key_of(param), param.name)), None)


def _of_option(param: click.Parameter | None) -> Schema:
    """What a key that stands for ``param`` may hold; null leaves it out."""
    if param is None:
        return TEXT
    if isinstance(param, click.Option) and param.is_flag:
        return _flag(param.help)
    one = _of_type(param.type)
    said = {"description": param.help} if isinstance(param, click.Option) and param.help else {}
    if steps.takes_many(param):
        listed = {"type": "array", "items": {"anyOf": [TEXT, {"type": "array"}]}}
        return {"anyOf": [one, listed, {"type": "object"}, {"type": "null"}], **said}
    return {"anyOf": [one, {"type": "null"}], **said}


def _of_type(kind: click.ParamType) -> Schema:
    if isinstance(kind, click.Choice):
        return {"anyOf": [{"enum": list(kind.choices)}, {"type": "string", "pattern": ENVIRONMENT}]}
    if isinstance(kind, click.FloatRange | click.IntRange):
        low: Schema = {}
        if kind.min is not None:
            low = {"exclusiveMinimum" if kind.min_open else "minimum": kind.min}
        if kind.max is not None:
            low["maximum"] = kind.max
        return NUMBER | low
    if kind in (click.INT, click.FLOAT):
        return NUMBER
    return TEXT


def _flag(text: str | None = None) -> Schema:
    return {"enum": [True, False, None], **({"description": text} if text else {})}


def _table(properties: Mapping[str, object]) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}
