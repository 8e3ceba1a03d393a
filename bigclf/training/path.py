"""``path``: one problem at ascending values of C, each begun with the answer of the one before it.

The values are problems of one run, chained: one is learned at a time, so a read serves one of them and what is kept in
memory is of one. For L1 and elastic net the strong rule leaves columns out of the first collection (Tibshirani et al.,
JRSS B 2012); the read that certifies the answer checks them all.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bigclf.api.options import refuse_gone
from bigclf.methods import METHODS, Method, Setting
from bigclf.model import Model
from bigclf.training.fitting import (
    _checked,
    conducted,
    refuse_what_fit_has,
    require_whole,
)
from bigclf.training.memory import PeakMemory
from bigclf.training.outcome import result_of, warn_of_limits
from bigclf.training.plan import make_plan
from bigclf.training.preparing import Request, default_epochs, default_groups, prepare
from bigclf.training.problems import Problem
from bigclf.training.results_record import PATH, check_path
from bigclf.training.run import Run
from bigclf.training.sweep import Task, setting_of
from bigclf.training.workers import linked
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
    models : a ``Model`` for each value, with its own certificate.
    seconds, reads, memory, plan, converged, history : of the run.
    """

    table: list[dict[str, Any]]
    seconds: float
    reads: int
    converged: bool
    memory: dict[str, int]
    plan: dict[str, Any]
    history: list[dict[str, Any]]
    models: list[Model] = field(default_factory=list)

    @classmethod
    def of_json(cls, told: dict[str, Any]) -> Path:
        """What ``as_json`` gave, without the models; FieldError names a field that is missing or wrong."""
        check_path(told)
        return cls(**{name: told[name] for name in PATH})

    def __repr__(self) -> str:
        first, last = (f"{row['C']:.3g} ({row['nonzero']:,} weights)" for row in (self.table[0], self.table[-1]))
        return f"<Path of {plural(len(self.table), 'value')} of C: {first} to {last}>"

    @property
    def C(self) -> np.ndarray:
        """float64 [value]"""
        return np.array([row["C"] for row in self.table])

    @property
    def coefs_(self) -> np.ndarray:
        """float64 [value, class, feature], the class axis 1 long for two classes."""
        return np.stack([model.coef_ for model in self.models])

    @property
    def intercepts_(self) -> np.ndarray:
        """float64 [value, class]"""
        return np.stack([model.intercept_ for model in self.models])

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame, a row for each value."""
        import pandas

        return pandas.DataFrame(self.table)

    def as_json(self) -> dict[str, Any]:
        """Everything but the models, in types that JSON knows."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "models"}


def path(
    data: Any,
    y: Any = None,
    *,
    C: Sequence[float],
    algo: str = "newglmnet",
    loss: str | None = None,
    penalty: str | None = None,
    bias: str | None = "feature",
    sample_weight: Any = None,
    class_weight: Any = None,
    dtype: str = "float64",
    memory: int | str = "2GB",
    tol: float | None = None,
    epochs: int | None = None,
    seed: int = 0,
    workers: Any = None,
    groups: int | None = None,
    threads: int | None = None,
    run_dir: Any = None,
    resume: bool = False,
    checkpoint_every: float = 60,
    local_dir: Any = None,
    columns: dict[str, str] | None = None,
    patience: Mapping[str, float] | None = None,
    callbacks: Sequence[Callable[[dict[str, Any]], None]] = (),
    progress: Any = None,
    **params: Any,
) -> Path:
    """Learn at every value of C, each begun with the answer of the next smaller one.

    Parameters
    ----------
    C : the values, in any order; of L1 a larger one keeps more features.
    algo : a method that takes its steps from sums over all rows, "newglmnet" (L1, elastic net) or "newton" (L2), or
        "auto": which of the two has the penalty (None: L1).
    tol, epochs : of each value, as in ``fit``; run_dir : where the path can be resumed from.
    Everything else is as in ``fit``.

    Returns
    -------
    Path

    Raises
    ------
    As ``fit``; ValueError for values that make no sense; TypeError for a method without warm starts.
    """
    points, settings_for, options = understood(locals())
    settings = settings_for(groups or 1)
    method = settings[0].method
    if algo == "auto":
        log.info("algo=auto: %s, for %s", method.name, "l2" if penalty == "l2" else "exact zeros")
    with linked(workers, options["patience"]) as link, PeakMemory() as peak:
        request = Request(
            data, y, sample_weight, columns, class_weight, groups,
            default_groups=lambda: default_groups(method, link, options), settings_for=settings_for,
            memory=options["memory"], dtype=dtype, seed=seed, threads=threads or (2 if link is None else 1),
            local_dir=local_dir if link is None else None,
        )  # fmt: skip
        prepared = prepare(request, settings, peak)
        source = prepared.source
        options["epochs"] = options["epochs"] or default_epochs(method, source.learnable[0])
        task = Chain(source, points, prepared.settings, prepared.class_weights, 0, None, options, link, peak)
        task.shape = prepared.shape | {"reads": options["epochs"] + 1}
        return task.follow()


class Understood(NamedTuple):
    """What a path was asked for: its points, the settings of these for so many groups, and the options."""

    points: list[dict[str, Any]]
    settings_for: Callable[[int], list[Setting]]
    options: dict[str, Any]


def understood(given: Mapping[str, Any]) -> Understood:
    """The arguments of ``path``, checked as far as no row is needed, so also before files become shards.

    Raises
    ------
    TypeError, ValueError : what makes no sense whatever the rows are.
    """
    points, groups = [{"C": value} for value in values_of(given["C"])], given["groups"]
    refuse_gone(given["params"])
    refuse_what_fit_has(given["params"], "path")
    auto = "newton" if given["penalty"] == "l2" else "newglmnet"
    algo = auto if given["algo"] == "auto" else given["algo"]
    require_whole({"groups": groups}, "groups")
    bias = None if given["bias"] == "none" else given["bias"]

    def settings_for(groups: int) -> list[Setting]:
        own = algo, given["loss"], given["penalty"], bias, given["params"]
        return [setting_of(*own, point, None, groups) for point in points]

    settings = settings_for(groups or 1)
    if not begins_with(settings[0].method):
        having = ", ".join(m.name for m in METHODS.values() if begins_with(m))
        raise TypeError(f"path is not available with algo={algo!r}: it is with {having}; sweep has every method")
    rest = dict(bias=bias, multiclass="auto", on_bad_rows="error", max_seconds=None, init=None,
                early_stopping=None, validate=None)  # fmt: skip
    return Understood(points, settings_for, _checked(settings[0], {**given, **rest}))


def begins_with(method: Method) -> bool:
    """Whether its run can begin with the answer of another one."""
    return method.absorb is not None and method.place is not None and not method.all_classes


def values_of(C: Any) -> list[float]:
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
        with contextlib.ExitStack() as stack:
            directory = self._directory(self.options["run_dir"], self.problems, plan, stack)
            run, history = stack.enter_context(
                conducted(self.source, self.problems, plan, self.options, self.link, directory)
            )
            result = result_of(run, plan, history, self.peak, self.source)
            if not result.converged:
                warn_of_limits(result, self.options)
            models = [self._model(run, plan, history, n) for n in range(len(self.points))]
            table = [self._line(run, n, model) for n, model in enumerate(models)]
            return Path(
                table, run.seconds, run.reads, result.converged, result.memory, result.plan, history, models
            )  # fmt: skip

    def _line(self, run: Run, point: int, model: Model) -> dict[str, Any]:
        status = [run.status[n] for n in self.numbers(point, 0)]
        found = model.certificate or {}
        return {
            "C": self.points[point]["C"],
            "nonzero": int(np.count_nonzero(model.coef_)),
            **{new: found.get(old) for new, old in (("objective", "primal"), ("dual", "dual"), ("gap", "gap"))},
            **({"violation": found["violation"]} if "violation" in found else {}),
            "epochs": max(s.epochs for s in status),
            "read": max(s.reads for s in status),
            "seconds": sum(s.busy for s in status),
        }
