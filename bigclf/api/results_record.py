"""What the results of ``sweep`` and ``path`` may say once they are read back (``results.json``, ``path.json``)."""

from __future__ import annotations

from typing import Any

from bigclf.files.json_fields import (
    FLAG,
    TABLE,
    check_fields,
    check_relations,
    either,
    figure,
    list_of,
    named,
    number,
    optional,
    or_none,
    table_of,
    text,
    whole,
)
from bigclf.training.records.run_record import PLAN, TOLD

MEASURES = ("error", "log_loss", "mean_squared_error")
POINT = {
    "params": named(or_none(either(figure(), FLAG, text()))), "mean": or_none(figure()), "spread": or_none(figure(0)),
    "gap": or_none(figure(0)), "epochs": whole(), "seconds": number(0), "folds": optional(list_of(or_none(figure()))),
    "read": optional(whole()), "dropped": optional(or_none(whole())),
}  # fmt: skip
CERTIFIED = {"name": text(), "fold": or_none(whole()), "primal": or_none(figure()), "dual": or_none(figure()),
             "gap": or_none(figure(0)), "read": whole()}  # fmt: skip
SHOWN = {"table": list_of(TABLE), "reads": whole(), "measure": text(*MEASURES), "best_params_": TABLE}
RESULTS = {
    **SHOWN, "certificates": list_of(list_of(table_of(CERTIFIED, "a certificate"))), "folds": whole(),
    "seconds": number(0), "converged": FLAG, "memory": named(whole()), "plan": TABLE, "history": list_of(TABLE),
}  # fmt: skip
VALUE = {
    "C": number(0), "nonzero": whole(), "objective": or_none(figure()), "dual": or_none(figure()),
    "gap": or_none(figure(0)), "violation": optional(or_none(figure(0))), "epochs": whole(), "read": whole(),
    "seconds": number(0), **{name: optional(number(0)) for name in ("low", "high")},
    "within": optional(or_none(number(0))),
}  # fmt: skip
PATH = {"table": list_of(TABLE), "seconds": number(0), "reads": whole(), "converged": FLAG,
           "memory": named(whole()), "plan": TABLE, "history": list_of(TABLE)}  # fmt: skip
OF_MODELS = {"penalty": optional(or_none(text("l1", "l2", "elastic_net")))}  # what the models of a path say, too


def check_shown(told: Any) -> None:
    """Check what is shown of the results of a sweep; FieldError names the first field that is missing or wrong."""
    check_fields(told, SHOWN)
    for place, row in enumerate(told["table"]):
        check_fields(row, POINT, f"table.{place}")
    known = any(row["params"] == told["best_params_"] for row in told["table"])
    check_relations([(known, "best_params_", "those of a point of 'table'")])


def check_results(told: Any) -> None:
    """Check all the results of a sweep; FieldError likewise."""
    check_fields(told, RESULTS)
    check_shown(told)
    points = len(told["table"])
    check_relations([(len(told["certificates"]) == points, "certificates", "one for each of 'table'")])
    _check_run(told)


def check_path(told: Any) -> None:
    """Check the results of a path; FieldError likewise."""
    check_fields(told, PATH | OF_MODELS)
    for place, row in enumerate(told["table"]):
        check_fields(row, VALUE, f"table.{place}")
    _check_run(told)


def _check_run(told: dict[str, Any]) -> None:
    check_fields(told["plan"], PLAN, "plan")
    for place, record in enumerate(told["history"]):
        check_fields(record, TOLD, f"history.{place}")
