"""``path``: one problem at ascending values of C, each starting from the previous solution.

The values are problems of one run, chained: one is trained at a time, so a read serves one of them and what is kept in
memory is of one. With the squared loss and L1 or elastic net a read serves many: one collects the columns that they may
need, they are solved on these in memory one after another, and one read certifies them all. With ``within`` they are
two bounds, and models are trained that cover every C between them (``bigclf.api.guarantee``).

For L1 and elastic net the strong rule leaves columns out of the first collection (Tibshirani et al., JRSS B 2012); the
read that certifies the answer checks them all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsFloat

import numpy as np

from bigclf import texts
from bigclf.api.guarantee import SHARP, Cover, cover, line_of, values_between
from bigclf.api.results_record import PATH, check_path
from bigclf.api.sweep import Task
from bigclf.data.frames import pandas_frame
from bigclf.methods import METHODS, Method
from bigclf.model.model import Model
from bigclf.progress import Record
from bigclf.request.auto import require_penalty
from bigclf.request.door import open_rows
from bigclf.request.options import documented
from bigclf.request.prepare import default_epochs, prepare
from bigclf.request.request import Family, Point, Request, asked
from bigclf.request.workers import linked
from bigclf.training.memory import PeakMemory
from bigclf.training.plan import make_plan
from bigclf.training.problems import Problem
from bigclf.units import plural

log = logging.getLogger("bigclf")


@dataclass(repr=False)
class Path:
    """The answers along C.

    Attributes
    ----------
    table : a dict for each value, ascending: ``C``; ``nonzero``, weights that are not 0, of all classes, the bias not
        counted; ``objective``, ``dual``, ``gap`` and (L1, elastic net) ``violation``: its certificate, the worst of
        several classes; ``epochs``; ``read``, the last that the certificate needed; ``seconds`` of a core in the reads.
        With ``within`` also ``low`` and ``high``, the values of C that the model serves, and ``within``: its objective
        is at most that share above the optimum of each of them.
    models : a ``Model`` for each value, with its own certificate.
    penalty : ``"l1"``, ``"l2"`` or ``"elastic_net"``: what all of them were trained with.
    seconds, reads, memory, plan, converged, history : of the run.
    """

    table: list[dict[str, Any]]
    seconds: float
    reads: int
    converged: bool
    memory: dict[str, int]
    plan: dict[str, Any]
    history: list[Record]
    models: list[Model] = field(default_factory=list)

    @classmethod
    def of_json(cls, told: dict[str, Any]) -> Path:
        """What ``as_json`` gave, without the models; FieldError names a field that is missing or wrong."""
        check_path(told)
        return cls(**{name: told[name] for name in PATH})

    def __repr__(self) -> str:
        first, last = (f"{row['C']:.3g} ({row['nonzero']:,} weights)" for row in (self.table[0], self.table[-1]))
        return f"<Path of {plural(len(self.table), 'value')} of C: {first} to {last}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: a row for each value of C."""
        rows = [
            (f"{row['C']:.4g}", f"{row['nonzero']:,}", f"{row['objective']:,.7g}", f"{row['gap']:.1e}")
            for row in self.table
        ]
        return texts.card(
            "Path", {"penalty": self.penalty or ""}, texts.grid(["C", "weights", "objective", "gap"], rows)
        )

    @property
    def penalty(self) -> str | None:
        return (self.models[0].method.get("penalty") or "l2") if self.models else None

    @property
    def C(self) -> np.ndarray:
        """float64 [value]"""
        return np.array([row["C"] for row in self.table])

    @property
    def coefs_(self) -> np.ndarray:
        """float64 [value, class, feature], the class axis 1 long for two classes.

        Raises
        ------
        MemoryBudgetError : of very many features, where they do not fit into this machine's memory.
        """
        return np.stack([model.dense_weights() for model in self.models])

    @property
    def intercepts_(self) -> np.ndarray:
        """float64 [value, class]"""
        return np.stack([model.intercept_ for model in self.models])

    def model_at(self, C: float) -> Model:
        """The model that serves this C.

        Raises
        ------
        ValueError : none does: C is beyond the bounds, or, without ``within``, not one of the values.
        """
        for row, model in zip(self.table, self.models, strict=True):
            if row.get("low", row["C"]) <= C <= row.get("high", row["C"]):
                return model
        raise ValueError(f"no model serves C={C:g}: {self!r}")

    def to_pandas(self) -> object:
        """The table as a pandas DataFrame, a row for each value."""
        return pandas_frame(self.table)

    def as_json(self) -> dict[str, object]:
        """Everything but the models, in types that JSON knows."""
        told = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "models"}
        return told | {"penalty": self.penalty}


@documented("path")
def path(data: object, y: object = None, *, C: Sequence[float], **given: object) -> Path:
    """Train at ascending values of C, each starting from the previous solution; or, with ``within``, train a few
    models that cover every C between two bounds.

    Parameters
    ----------
    {options}
    given : Options as above, and the method's own parameters by name. It is one that takes its steps from sums over all
        rows, with ``within`` one by dual variables.

    Returns
    -------
    Path

    Raises
    ------
    As ``fit``; ValueError for values that make no sense; TypeError for a method without warm starts.
    """
    return followed(asked_of_path(data, y, {**given, "C": C}))


def asked_of_path(data: object, y: object, given: Mapping[str, object]) -> Request:
    """What ``path`` is asked with these arguments, checked as far as no row is needed, so also before files become
    shards.

    Raises
    ------
    TypeError, ValueError : what makes no sense whatever the rows are.
    """
    request = asked("path", data, y, given)
    if request["within"] is not None:
        return _asked_within(request)
    points: list[Point] = [{"C": value} for value in values_of(request["C"])]
    algo = request["algo"]
    if algo == "auto":
        require_penalty(request["penalty"])
        algo = "newton" if request["penalty"] == "l2" else "newglmnet"
    request = request.having(families=(Family(algo, points),))
    if not begins_with(request.at_first()[0][0].method):
        having = ", ".join(m.name for m in METHODS.values() if begins_with(m))
        raise TypeError(f"path is not available with algo={algo!r}: it is with {having}; sweep has every method")
    request.check()
    return request


def _asked_within(request: Request) -> Request:
    """``asked_of_path`` of two bounds and what lies between; errors likewise."""
    (low, *others), within = values_of(request["C"]), request["within"]
    if len(others) != 1 or low <= 0:
        raise ValueError(f"with within, C must be two bounds above 0, such as [0.01, 10], not {request['C']!r}")
    algo = request["algo"]
    loss = request["loss"]
    if algo == "auto":
        algo, loss = "dcd", loss or "logistic"
    points: list[Point] = [{"C": value} for value in values_between(low, others[0], within)]
    tol = within * SHARP if request["tol"] is None else request["tol"]
    request = request.having(families=(Family(algo, points),), loss=loss, tol=tol)
    method = request.at_first()[0][0].method
    if not method.by_duals:
        having = ", ".join(m.name for m in METHODS.values() if m.by_duals)
        raise TypeError(f"within is not available with algo={algo!r}: it is with {having}")
    if tol >= within:
        raise ValueError(f"tol={tol:g} must be less than within={within:g}: the models are certified within it")
    request.check()
    return request


def followed(request: Request) -> Path:
    """The path that is asked for; errors as of ``path``."""
    ((algo, points),) = request.families
    if request["algo"] == "auto":
        why = "dual variables serve other values of C" if algo == "dcd" else "exact zeros"
        log.info("algo=auto: %s, for %s", algo, "l2" if algo == "newton" else why)
    with contextlib.ExitStack() as stack:
        found, request = stack.enter_context(open_rows(request))
        link = stack.enter_context(linked(request["workers"], request["patience"]))
        peak = stack.enter_context(PeakMemory())
        prepared = prepare(request, found, link, peak)
        source, (settings,), (options,) = prepared.source, prepared.settings, request.check()
        for told in source.warnings:
            if told not in source.said:
                log.warning("%s", told)
        options["epochs"] = options["epochs"] or default_epochs(METHODS[algo], source.learnable[0])
        shape = prepared.shape | {"reads": options["epochs"] + 1}
        if request["within"] is not None:

            def make(values: list[float], place: str | None) -> Cover:
                there = request.having(families=(Family(algo, [{"C": value} for value in values]),))
                (found,) = there.settings(prepared.shape["groups"])
                task = Cover(source, there.families[0].points, found, prepared.class_weights, 0, None,
                             options | {"run_dir": place}, link, peak)  # fmt: skip
                task.shape = shape
                return task

            low, high = values_of(request["C"])
            ranges, took = cover(make, low, high, request["within"], request["run_dir"])
            table = [
                one.trained.line
                | {"low": one.low, "high": one.high, "within": one.within if math.isfinite(one.within) else None}
                for one in ranges
            ]
            return Path(table, *took, models=[one.trained.model for one in ranges])
        task = Chain(source, points, settings, prepared.class_weights, 0, None, options, link, peak)
        task.shape = shape
        return task.follow()


def begins_with(method: Method) -> bool:
    """Whether its run can begin with the answer of another one."""
    return method.goes_on_elsewhere


def values_of(C: Iterable[SupportsFloat | str]) -> list[float]:
    """The values of C, ascending.

    Raises
    ------
    ValueError : there are none, or one is no number or there twice.
    """
    try:
        values = sorted(float(value) for value in C)
    except (TypeError, ValueError):
        raise ValueError(f"C must be a list of numbers, such as [0.01, 0.1, 1], not {C!r}") from None
    if not values or len(set(values)) < len(values):
        raise ValueError(f"C must be a list of different numbers, not {C!r}")
    return values


class Chain(Task):
    """The values of C over rows that have been opened."""

    def linked(self) -> list[Problem]:
        """Each begins with the answer of the one before it."""
        return [
            problem if number < self.k else problem._replace(start=((number - self.k, 1.0),))
            for number, problem in enumerate(self.problems)
        ]

    def follow(self) -> Path:
        """Learn them all."""
        self.problems = self.linked()
        plan = make_plan(self.source, self.problems, **self.shape)
        log.info("plan: %s", plan)
        with self.ended(plan) as (run, history, result):
            models = [self._model(run, plan, history, n) for n in range(len(self.points))]
            table = [line_of(self, run, n, model) for n, model in enumerate(models)]
            return Path(
                table, run.clock.seconds, run.reads, result.converged, result.memory, result.plan, history, models
            )  # fmt: skip
