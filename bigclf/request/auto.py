"""``algo="auto"``: which method learns, decided from counts and said in a line.

====================================  ============================================================================
what is asked                         method
====================================  ============================================================================
one epoch                             ``arow``, with a loss or l2 by name ``adagrad``: each row is looked at once
l1, elastic_net                       ``newglmnet``; with the hinge and losses of numbers ``adagrad`` (l1)
hinge, epsilon_insensitive            ``dcd``: where rows stream by, few of them keep moving, and it holds on to those
a free bias                           ``newton``
several groups                        ``newton``: the answer does not depend on the groups
rows stream by                        ``newton``: every row keeps moving, and sums need no order
many rows for each feature, large C   ``newton``; else ``dcd``
squared                               ``adagrad``: no other method has it
====================================  ============================================================================

A method that lacks a parameter given by name is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bigclf.maths.losses import BOXED
from bigclf.methods import METHODS, Method, listed, require_known
from bigclf.units import format_bytes

ENTRY_BYTES, ROW_BYTES = 8, 100  # of a row in memory, about
TALL = 10  # rows for each feature from which the primal problem is the smaller one
LARGE_C = 100.0  # from which dual variables have a long way to go


class Asked(NamedTuple):
    """What the choice depends on: loss and penalty by name or None, bias, C, names of the parameters given, most epochs
    or None, rows, features, entries, memory in bytes, groups."""

    loss: str | None
    penalty: str | None
    bias: str | None
    C: float
    given: tuple[str, ...]
    epochs: int | None
    n_rows: int
    n_features: int
    nnz: int
    memory: int
    groups: int


def choose(asked: Asked) -> tuple[str, str]:
    """Name of a method, and why, in a line.

    Raises
    ------
    ValueError : there is no method for that.   TypeError : a parameter that no method has.
    """
    require_known(asked.given)
    loss = asked.loss or ("logistic" if asked.penalty in ("l1", "elastic_net") or asked.bias == "free" else "hinge")
    for name, reason in _wishes(asked, loss):
        if _can(name, asked, loss):
            return name, f"algo=auto: {name}, for {reason}"
    said = {"loss": asked.loss, "penalty": asked.penalty, "bias": asked.bias, **dict.fromkeys(asked.given, "...")}
    what = ", ".join(f"{name}={value}" for name, value in said.items() if value is not None)
    owners = ((name, listed(m.name for m in METHODS.values() if _has(m, name))) for name in asked.given if name != "C")
    where = "".join(f"; {name} is a parameter of {having}" for name, having in owners)
    raise ValueError(f"algo='auto' finds no method for {what or 'this'}{where}; name one (see `bigclf algorithms`)")


def _has(method: Method, name: str) -> bool:
    return any(param.name == name for param in method.params)


def _wishes(asked: Asked, loss: str) -> Iterable[tuple[str, str]]:
    """Methods with reasons, the best one first."""
    if asked.epochs == 1 and asked.penalty is None and asked.loss is None:
        yield "arow", "each row is looked at once, and it makes the most of that"
    if asked.epochs == 1:
        yield "adagrad", "each row is looked at once, and its rates fit each feature's frequency"
    if asked.penalty in ("l1", "elastic_net"):
        yield "newglmnet", f"{asked.penalty} is solved on the columns that matter, with exact zeros and a certificate"
        yield "adagrad", f"{asked.penalty} with this loss or these parameters has no certified method"
    if asked.bias == "free":
        yield "newton", "a bias that is not regularised couples all dual variables"
    size = ENTRY_BYTES * asked.nnz + ROW_BYTES * asked.n_rows
    streams = size > asked.memory
    fit = f"the rows (about {format_bytes(size)}) {'do not fit' if streams else 'fit'} in {format_bytes(asked.memory)}"
    if loss in BOXED:
        where = "few rows keep moving, and it holds on to those" if streams else "rows that are settled are passed over"
        yield "dcd", f"the {loss} loss has stuck dual variables: {where}; {fit}"
    elif asked.groups > 1:
        yield "newton", f"its answer does not depend on the {asked.groups} groups"
    elif streams:
        yield "newton", f"{fit}, and with the {loss} loss every row keeps moving: sums need no order"
    elif asked.n_rows >= TALL * asked.n_features or asked.C >= LARGE_C:
        why = (
            "C is large" if asked.C >= LARGE_C else f"{asked.n_rows:,} rows are many for {asked.n_features:,} features"
        )
        yield "newton", f"{why}; {fit}"
    yield "dcd", f"{fit}, and a row at a time it is near the answer after a few rounds"
    yield "newton", "it has this loss and these parameters"
    yield "adagrad", "no certified method has this loss and these parameters"
    yield "sgd", "no certified method has this loss and these parameters"


def _can(name: str, asked: Asked, loss: str) -> bool:
    """Whether the method has all that is asked."""
    method = METHODS[name]
    own = {param.name for param in method.params}
    has_loss = loss in method.losses or (asked.loss is None and not method.losses)
    has_penalty = (asked.penalty or "l2") in (method.penalties or ("l2",))
    return has_loss and has_penalty and (asked.bias or "none") in method.bias and set(asked.given) <= own
