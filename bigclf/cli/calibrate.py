"""``bigclf calibrate``: probabilities for a model of any loss."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from bigclf.cli.evaluate import refuse_existing
from bigclf.cli.shared import columns, flags, terminal
from bigclf.units import plural

if TYPE_CHECKING:
    from bigclf.model.model import Model


NAMES = {"platt": "Platt's sigmoid", "isotonic": "isotonic regression"}


@click.command("calibrate", short_help="Add calibrated probabilities to a model.")
@click.argument("model", metavar="MODEL")
@terminal.data_argument
@click.option("-o", "--output", "out", required=True, metavar="OUT", help="File for the calibrated model.")
@click.option("--method", type=click.Choice(["platt", "isotonic"]), default="platt", show_default=True, help="Fit a"
              " sigmoid, or any increasing function of the decision value (for a thousand rows or more).")  # fmt: skip
@columns.format_option
@columns.reader_options
@columns.bad_rows_options
@flags.shared("calibrate", "memory")
@terminal.overwrite_option
@terminal.json_option
def command(
    model: str, data: tuple[str, ...], out: str, method: str, memory: str | None, overwrite: bool, as_json: bool,
    **reader: object,
) -> None:  # fmt: skip
    """Calibrate MODEL on the labelled rows DATA, so that its decision values give probabilities.

    DATA is shards, or raw files in the same format as MODEL's training files, but its rows must not have been used to
    train MODEL. It is read once. OUT predicts the same classes as MODEL, and has probabilities for `bigclf predict
    --proba` and `bigclf evaluate`.
    """
    from bigclf import files
    from bigclf.api.calibrate import calibrate
    from bigclf.model.model import load
    from bigclf.progress import TerminalProgress

    refuse_existing([out], overwrite)
    where = list(data) if len(data) > 1 else data[0]
    with TerminalProgress("calibrating") as progress, terminal.usage_errors():
        bad = columns.bad_rows(reader)
        known = columns.as_read(load(model), reader)
        found = calibrate(known, where, method=method, memory=memory or "1GB", progress=progress, **bad)
    files.make_directory(files.parent_directory(out))
    with files.together([out]) as place:
        found.save(place[out])
    if as_json:
        terminal.emit_json(told(found) | {"out": out})
    else:
        show(found, out)


def told(model: Model) -> dict[str, Any]:
    """A model's calibration in types that JSON knows."""
    kept = model.calibration
    assert kept is not None
    pieces = [kept.values[:, a:b].tolist() for a, b in pairwise(kept.ends)]
    if kept.method == "platt":
        points = {"A": [piece[0][0] for piece in pieces], "B": [piece[1][0] for piece in pieces]}
    else:
        points = {"scores": [piece[0] for piece in pieces], "probability": [piece[1] for piece in pieces]}
    return {"method": kept.method, "bad_rows": 0, **kept.facts, **points}


def line(calibration: Mapping[str, Any]) -> str:
    """Such as ``Platt's sigmoid, from 16,281 rows``."""
    return f"{NAMES[calibration['method']]}, from {plural(calibration['rows'], 'row')}"


def show(model: Model, out: str) -> None:
    kept = told(model)
    terminal.heading(out, line(kept))
    if kept["method"] == "platt":
        a, b = kept["A"][0], kept["B"][0]
        text = f"1 / (1 + exp({a:.4g} score {b:+.4g}))" if model.binary else None
    else:
        text = f"{sum(map(len, kept['scores'])):,} points" + " of its function" * model.binary
    each = None if model.binary else f"{model.classes_.size:,}, each against the rest"
    bad = terminal.poor(f"{kept['bad_rows']:,}") if kept["bad_rows"] else None
    terminal.facts([("probability", text), ("classes", each), ("bad rows", bad)], indent="  ")
    click.echo(f"  next: {click.style(f'bigclf evaluate {out} TEST_DATA', bold=True)}")
