"""The methods as data: what ``bigclf.algorithms()`` returns and ``bigclf algorithms`` prints."""

from __future__ import annotations

from typing import TypedDict

from bigclf.methods import METHODS, Method, Param

UNBOUNDED = 1e30  # bounds from here on only keep numbers finite


class Parameter(TypedDict):
    name: str
    default: object
    bounds: str
    choices: list[str]
    losses: list[str]
    about: str


class Described(TypedDict):
    """A method in plain values."""

    name: str
    title: str
    paper: str
    update: str
    parameters: list[Parameter]
    losses: list[str]
    bias: list[str]
    penalties: list[str]
    multiclass: list[str]
    row_weights: str
    mixing: str
    mixings: list[str]
    certificate: bool


def algorithms() -> list[Described]:
    """Every method with its name, title, paper, update in a line, parameters with defaults and bounds, losses,
    biases, whether it certifies its answer, and how copies are combined.

    Returns
    -------
    list of dicts of plain values, in the order of the table ``METHODS``.
    """
    return [describe(method) for method in METHODS.values()]


def describe(method: Method) -> Described:
    """One method of the table as a dict of plain values."""
    return {
        "name": method.name,
        "title": method.title,
        "paper": method.paper,
        "update": method.formula,
        "parameters": [_parameter(param) for param in method.params],
        "losses": list(method.losses),
        "bias": list(method.bias),
        "penalties": list(method.penalties),
        "multiclass": list(method.multiclass),
        "row_weights": method.weight_meaning or method.row_weights,
        "mixing": method.form.mixing,
        "mixings": list(method.form.mixings),
        "certificate": bool(method.certificate),
    }


def _parameter(param: Param) -> Parameter:
    return {
        "name": param.name,
        "default": param.default,
        "bounds": bounds_text(param),
        "choices": list(param.choices),
        "losses": list(param.losses),
        "about": param.doc,
    }


def bounds_text(param: Param) -> str:
    """The values a parameter takes: ``(0, inf)``, ``[0, 1]`` or ``{this, that}``."""
    if param.choices:
        return "{" + ", ".join(param.choices) + "}"
    left = "(" if param.open_low or param.low == float("-inf") else "["
    if param.high >= UNBOUNDED:
        return f"{left}{param.low:g}, inf)"
    return f"{left}{param.low:g}, {param.high:g}{')' if param.open_high else ']'}"
