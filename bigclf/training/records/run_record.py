"""What ``run.json`` and ``history.jsonl`` of a run directory may say: their fields, and how they are read.

Every field may be missing, since other versions write fewer; what is there is of its kind.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

from bigclf import files
from bigclf.errors import DataError
from bigclf.files.json_fields import (
    FLAG,
    TABLE,
    TEXTS,
    Field,
    FieldError,
    bits,
    check_fields,
    check_relations,
    figure,
    list_of,
    named,
    number,
    optional,
    or_none,
    table_of,
    text,
    tuple_of,
    whole,
)
from bigclf.progress import Record
from bigclf.training.plan import Plan


def _all_optional(fields: dict[str, Field]) -> dict[str, Field]:
    return {name: optional(field) for name, field in fields.items()}


def _of_plan() -> dict[str, Field]:
    """Fields of a plan as it is written down, by their types."""
    kinds = {"int": whole(), "bool": FLAG, "str": text(), "dict[str, int]": named(whole()),
             "list[tuple[int, int]]": list_of(tuple_of(whole(), whole())),
             "tuple[float, ...]": list_of(number(0)), "tuple[int, ...]": list_of(whole())}  # fmt: skip
    own = {"seed": whole(-(2**63), 2**64)}
    return _all_optional({field.name: kinds[str(field.type)] for field in dataclasses.fields(Plan)} | own)


PLAN = _of_plan()
DATA = _all_optional({"digest": text(), **{name: whole() for name in ("n_rows", "n_features", "nnz", "of_features")}})
SWEEP = _all_optional({
    "problems": list_of(tuple_of(text(), or_none(text()), TABLE, list_of(tuple_of(whole(), number())))),
    "folds": whole(), "halving": text(),
})  # fmt: skip
IDENTITY = _all_optional({
    "method": text(), "loss": or_none(text()), "settings": TABLE, "bias": or_none(text()),
    "class_weights": or_none(list_of(number(0))), "init": or_none(text()), "early_stopping": whole(1),
    "tol": or_none(number(0)), "data": TABLE, "plan": TABLE, "sweep": TABLE,
})  # fmt: skip
RUN = _all_optional({
    "version": whole(), "identity": TABLE, "plan": TABLE, "limits": named(or_none(number(0))), "chosen": text(),
    "prune": number(0), "class_weight": text("balanced"), "files": list_of(TABLE), "versions": named(text()),
    "columns": TABLE,
    "raw": or_none(table_of({"paths": list_of(text()), "in_order": FLAG, "how": optional(TABLE)},
                            "a table of raw files")),
    "cpu": or_none(text()), "started": text(),
    "forgotten": list_of(table_of({name: text() for name in ("path", "what", "done")}, "a table of path, what, done")),
})  # fmt: skip
COUNTS = ("reads", "rows", "nnz", "bytes_read", "updates", "mistakes", "rounds",
          "working_set_rows", "waiting_visits", "problems_done", "records_rebuilt", "groups", "workers", "mixes",
          "bytes_moved", "problems_dealt")  # fmt: skip
FIGURES = ("loss", "mean_loss", "objective", "dual", "estimated_gap")
SIZES = ("error", "gap", "mixed_mistakes")
TIMES = ("seconds", "waited", "conjugate_steps")  # the last were written as 4.0
HISTORY = _all_optional({
    "epoch": whole(), **{name: or_none(whole()) for name in COUNTS},
    **{name: or_none(figure()) for name in FIGURES}, **{name: or_none(figure(0)) for name in SIZES},
    **{name: or_none(number(0)) for name in TIMES},
    "validation": or_none(named(figure())), "steps": list_of(figure()), "penalties": list_of(figure()),
    "events": or_none(list_of(table_of({"worker": optional(text()), "what": optional(text())},
                                       "a table of worker and what, texts"))),
})  # fmt: skip

TOLD = HISTORY | _all_optional({  # in results, which have null for what is not finite
    "validation": or_none(named(or_none(figure()))), "steps": list_of(or_none(figure())),
    "penalties": list_of(or_none(figure())),
})  # fmt: skip

# Facts of checkpoints, and those of a model that a run has come to
COUNTED = tuple_of(whole(0, 2**53), whole(0, 2**53), whole(0, 2**53), figure(), figure())
TALLY = Field(lambda value: isinstance(value, list) and COUNTED.takes(
    [int(x) if type(x) is float and x.is_integer() and n < 3 else x for n, x in enumerate(value)]),
    "a list of three counts and two numbers")  # fmt: skip
STATUS = {
    **{name: bits() for name in ("primal", "dual", "estimate", "seen", "truth", "optimism", "penalty")},
    "tried": optional(bits()), "pair": optional(list_of(bits())),
    "done": FLAG, "certify_next": FLAG, "since_certificate": whole(), "reads": whole(), "step": number(0),
    **{name: optional(FLAG) for name in ("over", "settled", "stalled", "dropped", "learned")},
    **{name: optional(whole()) for name in ("epochs", "last_mistakes")},
    "busy": optional(number(0)), "violation": optional(or_none(figure(0))), "scale": optional(number(0)),
    "progressive": TALLY, "total": TALLY,
}  # fmt: skip
ENDINGS = ("", "tolerance", "settled", "stalled", "epochs", "seconds", "validation")
RUN_FACTS = {
    "epoch": whole(1), "segment": whole(), "reads": whole(), "seconds": number(0), "bytes_read": whole(),
    "stopped": text(*ENDINGS), "version": whole(), "mixes": whole(), "bytes_moved": optional(whole()),
    "curve": optional(list_of(tuple_of(whole(), whole(), figure()))),
    "status": list_of(TABLE), "tol": optional(or_none(number(0))),
}  # fmt: skip
VALIDATED = {"best_score": bits(), "since_best": whole(), "best_epoch": optional(whole())}
TRAINED = {
    "progressive": TABLE, "plan": TABLE, "memory": named(whole()), "converged": FLAG, "reads": number(0),
    "epochs": whole(), "seconds": number(0), "stopped": text(), "mistakes": whole(), "bytes_read": whole(),
    "warnings": TEXTS, "repeatable": optional(FLAG), "chosen": optional(text()),
}  # fmt: skip


def check_run(told: Any) -> None:
    """Check what ``run.json`` says; FieldError names the first field that is wrong."""
    check_fields(told, RUN)
    identity = told.get("identity", {})
    check_fields(identity, IDENTITY, "identity")
    for name, fields in (("data", DATA), ("plan", PLAN), ("sweep", SWEEP)):
        check_fields(identity.get(name, {}), fields, f"identity.{name}")
    check_fields(told.get("plan", {}), PLAN, "plan")


def check_epoch(told: Any) -> None:
    """Check a record of the history; FieldError names the first field that is wrong."""
    check_fields(told, HISTORY)
    certified = told.get("gap") is not None
    check_relations([
        *((not certified or told.get(name) is not None, name, "there, as 'gap' is") for name in ("objective", "dual")),
        *((not told.get("bytes_moved") or told.get(name) is not None, name, "there, as 'bytes_moved' is")
          for name in ("workers", "groups", "mixes")),
    ])  # fmt: skip


def read_run(path: files.PathLike) -> dict[str, object]:
    """What ``run.json`` says.

    Raises
    ------
    DataError : it is damaged, or a field is wrong.
    """
    try:
        told: dict[str, Any] = json.loads(files.read_text(path))
    except ValueError as error:
        raise DataError(f"not readable as JSON: {error}", file=path) from None
    try:
        check_run(told)
    except FieldError as error:
        raise DataError(f"not the record of a run: {error}", file=path) from None
    return told


def read_history(path: files.PathLike) -> list[Record]:
    """The records of ``history.jsonl``, none where it is not there; a line that a kill cut short is left out.

    Raises
    ------
    DataError : a field is wrong, with its line.
    """
    records: list[Record] = []
    for line, record in lines_of(path):
        try:
            check_epoch(record)
        except FieldError as error:
            raise DataError(f"not the record of an epoch: {error}", file=path, line=line) from None
        records.append(record)
    return records


def lines_of(path: files.PathLike) -> Iterator[tuple[int, Any]]:
    """The number, from 1, of each line that can be read, and what it says."""
    for line, said in enumerate(files.read_text(path).splitlines() if files.exists(path) else (), 1):
        try:
            yield line, json.loads(said)
        except ValueError:
            continue
