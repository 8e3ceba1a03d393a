"""``sweep``: a grid of parameters and folds as problems of one run, from one read of each block.

Every value on every fold (and every class) is a problem with its own dual variables and its own certificate. Where all
rows are in memory, values of C are learned in ascending order, each from the dual variables of the one before (alpha
C2 / C1, inside the box, as far along its line as the dual objective gains), in one chain a fold and class or, where
these are few, two; where they stream by, all learn from each block while it is there. A last read measures each answer
on the rows its fold kept from it; the best value is then learned from all rows, beginning with the mean of its folds'
dual variables.

Several methods are as many runs over the same rows, one after another. Successive halving (Jamieson, Talwalkar, AISTATS
2016) learns two thirds of the points no further, the worst of those left: by the error on rows not learned from after
epochs 1, 3, 9 and so on, or once, by the progressive error of the first epoch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import math
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bigclf import files, texts
from bigclf.api.fit import _asked, conducted
from bigclf.api.outcome import Result, answer_rows, model_of, result_of, warn_of_limits
from bigclf.api.results_record import RESULTS, check_results
from bigclf.data.dataset import Dataset
from bigclf.data.frames import pandas_frame
from bigclf.maths.block import Block
from bigclf.maths.losses import REGRESSION
from bigclf.methods import METHODS, Setting, native
from bigclf.methods.method import Dual, Method
from bigclf.model.model import Model
from bigclf.progress import Record
from bigclf.request.auto import choose
from bigclf.request.door import UNKNOWN, Shape, open_rows
from bigclf.request.options import documented, refuse_others
from bigclf.request.prepare import asked_for, default_epochs, loss_of, prepare
from bigclf.request.request import OWN, Family, Point, Request, RunOptions, asked
from bigclf.request.workers import linked
from bigclf.stream.working_set import Members
from bigclf.training.core_team import Team
from bigclf.training.counts import BestEpoch
from bigclf.training.engines import LocalEngine
from bigclf.training.executor import Bench, Job, stream_of
from bigclf.training.memory import PeakMemory
from bigclf.training.plan import IN_TURN, LEARNERS, Plan, settle
from bigclf.training.problems import (
    Fold,
    Problem,
    make_problems,
    regression_problem,
    require_few,
)
from bigclf.training.records.run_directory import Checkpoint, RunDirectory, load_rows
from bigclf.training.run import Run
from bigclf.training.sources import warm
from bigclf.training.status import Status
from bigclf.training.validation import (
    Candidate,
    Sums,
    measurable,
    measure_all,
    measure_of,
    rows_apart,
)
from bigclf.training.visit import RowFile

if TYPE_CHECKING:
    from bigclf.cluster.link import Link
    from bigclf.data.arrays import Arrays
    from bigclf.data.rows import Rows


log = logging.getLogger("bigclf")
STAND_IN = "dcd"  # for a method that the rows are to choose: it has most parameters and losses
Grid: TypeAlias = Mapping[str, Sequence[object]]  # values of parameters by name
KEEP = 3  # of so many points one is learned further
FEW_CHAINS, LEAST_CUT = 8, 4  # fewer chains are cut in two where they have so many values
HOW_NOT_WHAT = ("working_set", "schedule", "inner_rounds")  # parameters that no answer depends on


@dataclass
class Sweep:
    """What a sweep found.

    Attributes
    ----------
    table : a dict for each point of the grid, in its order: ``params``; ``mean``, ``spread`` (standard deviation over
        the folds) and ``folds`` (each fold's) of ``measure`` on rows not learned from; ``gap``, the worst of its
        certificates; ``epochs``, ``read`` (the last that a certificate needed), ``seconds`` of a core; with halving
        ``dropped``, the epoch after which it was learned no further, or None.
    measure : "error" (share of rows in the wrong class), "log_loss" or "mean_squared_error"; smaller is better.
    best_params_ : the point with the smallest mean (of equal ones that with the smallest C, then the first); with
        halving, of those that were learned to the end.
    best_model : learned from all rows with it, with its own certificate and ``result_``; None if that was not asked.
    certificates : for each point of the grid a list: of each problem name, fold, primal, dual, gap, read.
    models : without folds, the model of each point; else empty.
    seconds, reads, memory, plan, converged : of the run over the grid.
    """

    table: list[dict[str, Any]]
    measure: str
    best_params_: dict[str, Any]
    best_model: Model | None
    certificates: list[list[dict[str, Any]]]
    folds: int
    seconds: float
    reads: int
    converged: bool
    memory: dict[str, int]
    plan: dict[str, Any]
    history: list[Record]
    models: list[Model] = field(default_factory=list)
    rank: Any = None  # of the best point: its error, C and number

    @classmethod
    def of_json(cls, told: dict[str, Any]) -> Sweep:
        """What ``as_json`` gave, without the models; FieldError names a field that is missing or wrong."""
        check_results(told)
        return cls(**{name: told[name] for name in RESULTS}, best_model=None)

    @property
    def names(self) -> list[str]:
        """Of the parameters of all points."""
        return list(dict.fromkeys(name for row in self.table for name in row["params"]))

    def flat(self) -> list[dict[str, Any]]:
        """The table with the parameters as columns (None where a point has no such) and without each fold's figure."""
        every = dict.fromkeys(self.names)
        return [
            every | row["params"] | {k: v for k, v in row.items() if k not in ("params", "folds")} for row in self.table
        ]

    def at_edge(self) -> dict[str, float]:
        """Parameters whose best value is the least or the greatest of several: a better one may lie beyond, but of
        those that are 0 or 1."""
        params = [param for method in METHODS.values() for param in method.params]
        switches = {param.name for param in params if param.integer and (param.low, param.high) == (0, 1)}
        found = {}
        for name, best in self.best_params_.items():
            if name in switches:
                continue
            given = (row["params"].get(name) for row in self.table)
            values = sorted({value for value in given if type(value) in (int, float)})
            if len(values) >= 2 and best in (values[0], values[-1]):
                found[name] = best
        return found

    def notes(self) -> list[str]:
        """What to know before the best point is taken: a sentence for each parameter of ``at_edge``."""
        return [f"{name}={value:g} is at the edge of the grid: a better value may lie beyond it"
                for name, value in self.at_edge().items()]  # fmt: skip

    def to_pandas(self) -> object:
        """The table as a pandas DataFrame, a row for each point of the grid."""
        return pandas_frame(self.flat())

    def as_json(self) -> dict[str, object]:
        """Everything but the models, in types that JSON knows."""
        held = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        best = self.best_model
        return {k: v for k, v in held.items() if k not in ("best_model", "models", "rank")} | {
            "best": None if best is None else {"certificate": best.certificate, "facts": best.facts},
            "at_edge": self.at_edge(),
        }

    def __repr__(self) -> str:
        lines = self._lines()
        widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
        marks = ["  ", *("* " if best else "  " for best in self._are_best())]
        body = (mark + "  ".join(t.rjust(w) for t, w in zip(line, widths, strict=True))
                for mark, line in zip(marks, lines, strict=True))  # fmt: skip
        return "\n".join(("<Sweep", *body, *(f"  note: {note}" for note in self.notes()), ">"))

    def _repr_html_(self) -> str:
        """What a notebook shows: a row a point of the grid, the best one marked."""
        names, *rows = self._lines()
        marked = [["best" if best else "", *row] for best, row in zip(self._are_best(), rows, strict=True)]
        told = {"note": "; ".join(notes)} if (notes := self.notes()) else {}
        return texts.card("Sweep", told, texts.grid(["", *names], marked))

    def _lines(self) -> list[list[str]]:
        own = self.names
        return [[*own, self.measure, "spread", "gap", "seconds"]] + [
            [*(shown_value(row["params"].get(name)) for name in own), _short(row["mean"]),
             _short(row["spread"]), "" if row["gap"] is None else f"{row['gap']:.1e}", f"{row['seconds']:.2f}"]
            for row in self.table
        ]  # fmt: skip

    def _are_best(self) -> list[bool]:
        return [row["params"] == self.best_params_ for row in self.table]


def shown_value(value: object) -> str:
    """A parameter's value as text; nothing where a point has no such."""
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.5f}"


@documented("sweep")
def sweep(data: object, y: object = None, *, grid: Grid | Sequence[Grid], **given: object) -> Sweep:
    """Train with every combination of parameters, reading each block once for all of them, and choose the best.

    Parameters
    ----------
    {options}
    given : Options as above, and the methods' own parameters by name.

    Returns
    -------
    Sweep

    Raises
    ------
    As ``fit``; ValueError for a grid, folds or rows to choose by that make no sense.
    """
    return swept(asked_of_sweep(data, y, {**given, "grid": grid}))


def asked_of_sweep(data: object, y: object, given: Mapping[str, object]) -> Request:
    """What ``sweep`` is asked with these arguments, checked as far as no row is needed, so also before files become
    shards.

    Raises
    ------
    TypeError, ValueError : what makes no sense whatever the rows are.
    """
    request = asked("sweep", data, y, given)
    if not is_named(request):
        with_families(request, UNKNOWN)  # whether any method will do
        return request
    return _checked(request.having(families=families_of(request)))


def is_named(request: Request) -> bool:
    """Whether methods are named; else the rows say which, once they are open."""
    return request["algo"] != "auto" or any("algo" in each for each in _grids(request))


def with_families(request: Request, shape: Shape) -> Request:
    """With the one method that such rows ask for at the greatest C, with room for all models at once."""
    points = [point for family in families_of(request.having(algo=STAND_IN)) for point in family.points]
    losses: list[Any] = list(dict.fromkeys(loss for each in _grids(request) for loss in each.get("loss", ())))
    names = {name for point in points for name in point} - {"loss"}
    asked = asked_for(request, shape)
    costs = [_cost(point.get("C", asked.C)) for point in points]
    n_models = asked.problems * len(points) * max(1, request["folds"])
    asked = asked._replace(C=max(costs), given=tuple({*asked.given, *names}), problems=n_models)
    found = dict(choose(asked._replace(loss=loss)) for loss in losses or [asked.loss])
    algo = next(iter(found)) if len(found) == 1 else STAND_IN
    chosen = found.get(algo, f"algo=auto: {algo}, which has all losses of the grid")
    loss = None if losses else loss_of(algo, asked)
    request = request.having(algo=algo, loss=loss, chosen=chosen)
    return _checked(request.having(families=families_of(request)))


def _cost(value: object) -> float:
    """A value of C in a grid.

    Raises
    ------
    ValueError : it is no number.
    """
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        text = f"the grid has C={value!r}, which is not a number; name every value: grid={{'C': [0.01, 0.1, 1]}}"
        raise ValueError(text) from None


def _checked(request: Request) -> Request:
    """The request of methods that are named; errors as of ``asked_of_sweep``."""
    families = request.families
    require_halving(request["halving"], [METHODS[family.algo] for family in families if family.algo in METHODS])
    every = [setting for each in request.at_first() for setting in each]
    many, certified = len(families) > 1, any(setting.method.certificate for setting in every)
    if many and request["tol"] is not None and not certified:
        raise TypeError("tol has no effect: none of the methods has a certificate; set epochs=")
    for setting in every:
        if not setting.method.linear:
            raise TypeError(f"sweep is not available with {setting.method.asked}: its answer is not its weights")
    if len({setting.loss in REGRESSION for setting in every}) > 1:
        raise ValueError("the grid has losses for classes and for numbers: labels are one or the other")
    request.check()
    return request


def swept(request: Request) -> Sweep:
    """What the sweep that is asked for finds; errors as of ``sweep``."""
    folds, run_dir = request["folds"], request["run_dir"]
    with contextlib.ExitStack() as stack:
        found, request = stack.enter_context(open_rows(request))
        if not request.families:
            request = with_families(request, found.counts())
            log.info("%s", request.chosen)
        every = [setting for each in request.at_first() for setting in each]
        many, regression = len(request.families) > 1, every[0].loss in REGRESSION
        link = stack.enter_context(linked(request["workers"], request["patience"]))
        peak = stack.enter_context(PeakMemory())
        prepared = prepare(request, found, link, peak)
        source, weights = prepared.source, prepared.class_weights
        apart = measurable(request["validate"], source, regression) if folds == 0 else None
        if not regression:
            for each in prepared.settings:
                require_few(source.classes.size, each[0], request["memory"], len(each) * max(1, folds))
        tasks = []
        for number, (family, each, own) in enumerate(
            zip(request.families, prepared.settings, request.check(), strict=True)
        ):
            own["validate"] = None  # of the run itself: measured at its end only
            if run_dir is not None:
                place = f"grid-{number}-{family.algo}" if many else "grid"
                own["run_dir"] = files.join(files.absolute(run_dir), place)
            own["epochs"] = own["epochs"] or default_epochs(each[0].method, source.learnable[0])
            task = Task(source, family.points, each, weights, folds, apart, own, link, peak)
            task.halve(request["halving"])
            task.shape = prepared.shape | {"reads": own["epochs"] + (own["tol"] is not None) + 1}
            tasks.append(task)
        measure = measure_of([s.loss for s in every])
        for task in tasks:
            task.measure = measure
        refit = request["refit"]
        result = tasks[0].go(run_dir, refit) if not many else best_of_all(tasks, run_dir, refit)
    for record in source.warnings if result.best_model is None else result.best_model.result_.warnings:
        if record not in source.said:
            log.warning("%s", record)
    return result


def _grids(request: Request) -> Sequence[Grid]:
    grids = [request["grid"]] if isinstance(request["grid"], Mapping) else request["grid"]
    if not isinstance(grids, list | tuple) or not grids or not all(isinstance(each, Mapping) for each in grids):
        raise ValueError('grid must name parameters and their values, such as {"C": [0.1, 1, 10]}, or list such')
    return grids


def families_of(request: Request) -> tuple[Family, ...]:
    """The methods of the grid, each with its points, checked as far as that can be done without the method."""
    families: dict[str, list[dict[str, Any]]] = {}
    for each in _grids(request):
        names = each.get("algo", [request["algo"]])
        if isinstance(names, str) or not len(names) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"grid of 'algo' must be a list of names of methods, not {names!r}")
        own = {name: values for name, values in each.items() if name != "algo"}
        refuse_others(own, OWN, "the grid of a sweep")
        alone: list[dict[str, Any]] | None = [{}] if "algo" in each and not own else None  # methods as they are
        for name in names:
            points = alone or points_of(own, request.params)
            families.setdefault(native(name, request["multiclass"]), []).extend(dict(point) for point in points)
    require_folds(request["folds"], request["validate"])
    for points in families.values():
        for k, point in enumerate(points):
            if point in points[:k]:
                raise ValueError(f"the grid has {name_of(point) or 'a method'} twice")
    return tuple(Family(name, points) for name, points in families.items())


def require_halving(halving: str | None, methods: Sequence[Method]) -> None:
    """TypeError where it makes no sense."""
    certified = next((method for method in methods if method.certificate), None)
    if halving == "progressive" and certified is not None:
        raise TypeError(f"halving='progressive' has no effect with {certified.asked}: use halving='validation'")


def best_of_all(tasks: list[Task], run_dir: files.PathLike | None, refit: bool) -> Sweep:
    """Each method's points in a run of its own; the best of all is learned from all rows."""
    each = [task.go(None, False) for task in tasks]
    number = min(range(len(each)), key=lambda k: each[k].rank)
    best, task = each[number], tasks[number]

    def named(task: Task, params: Point) -> Point:
        return {"algo": task.settings[0].method.name.removesuffix("_mc"), **params}

    table = [row | {"params": named(t, row["params"])} for t, one in zip(tasks, each, strict=True) for row in one.table]
    model = None
    if best.models:
        model = best.models[task.points.index(best.best_params_)]
    elif refit:
        model = task._refit(task.points.index(best.best_params_), None, None, run_dir)
    return dataclasses.replace(
        best, table=table, best_params_=named(task, best.best_params_), best_model=model,
        certificates=[told for one in each for told in one.certificates],
        seconds=sum(one.seconds for one in each), reads=sum(one.reads for one in each),
        converged=all(one.converged for one in each), models=[model for one in each for model in one.models],
        history=[record for one in each for record in one.history],
        memory={name: max(one.memory.get(name, 0) for one in each) for name in best.memory},
    )  # fmt: skip


def points_of(grid: Grid, params: Mapping[str, object]) -> list[Point]:
    """Every combination of the grid's values, checked as far as that can be done without the method."""
    if not grid:
        raise ValueError('grid must name parameters and their values, such as {"C": [0.1, 1, 10]}')
    for name, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray) or not len(values):
            raise ValueError(f"grid of {name!r} must be a list of values, not {values!r}")
        if name in HOW_NOT_WHAT:
            raise ValueError(f"grid of {name!r}: the model does not depend on it, only the training time")
        if name in params:
            raise TypeError(f"{name} is both in the grid and set beside it")
    plain = ([v.item() if isinstance(v, np.generic) else v for v in values] for values in grid.values())
    points = [dict(zip(grid, values, strict=True)) for values in itertools.product(*plain)]
    for k, point in enumerate(points):
        if point in points[:k]:
            raise ValueError(f"the grid has {name_of(point)} twice")
    return points


def require_folds(folds: int, validate: object) -> None:
    """ValueError or TypeError for folds that are none, and rows to choose by that are lacking or not looked at."""
    if folds == 1:
        raise ValueError(f"folds must be 0 or at least 2, not {folds!r}")
    if folds == 0 and validate is None:
        raise ValueError("folds=0 needs validate=: rows to choose on")
    if folds and validate is not None:
        raise TypeError("validate has no effect with folds; to choose on validate, set folds=0")


def name_of(point: Point) -> str:
    """Such as ``C=0.1, loss=hinge``."""
    return ", ".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
                     for name, value in point.items())  # fmt: skip


def together(*names: str) -> str:
    return ", ".join(filter(None, names))


class Task:
    """A sweep over rows that have been opened.

    Large because it is one procedure, step by step: problems, run, choice, the best from all rows, files.
    """

    shape: dict[str, Any]  # what ``make_plan`` is told

    def __init__(
        self,
        source: Rows,
        points: list[Point],
        settings: list[Setting],
        class_weights: np.ndarray | None,
        folds: int,
        apart: Dataset | Arrays | None,
        options: RunOptions,
        link: Link | None,
        peak: PeakMemory,
    ) -> None:
        self.source, self.points, self.settings, self.class_weights = source, points, settings, class_weights
        self.folds, self.apart, self.options, self.link, self.peak = folds, apart, options, link, peak
        self.problems: list[Problem] = []
        self.parts = max(1, folds)  # answers of a point
        for number, (point, setting) in enumerate(zip(points, settings, strict=True)):
            for part in range(self.parts):
                self.problems += self._answer(number, name_of(point), setting, part)
        self.k = len(self.problems) // (len(points) * self.parts)  # problems of an answer
        self.measure = measure_of([setting.loss for setting in settings])
        self.halving: str | None = None
        self.plan: Plan | None = None
        self.dropped: dict[int, int] = {}  # points, and the epoch after which

    def _answer(self, number: int, name: str, setting: Setting, part: int) -> list[Problem]:
        """The problems of one answer: a point on a fold."""
        fold = Fold(part, self.folds, self.options["seed"]) if self.folds else None
        named = [name, f"fold {part + 1}" if self.folds else ""]
        return [
            problem._replace(name=together(*named, f"class {problem.name}" if problem.name else ""), fold=fold)
            for problem in self.on_all_rows(setting)
        ]

    def on_all_rows(self, setting: Setting) -> list[Problem]:
        """The problems of an answer on all rows."""
        if self.class_weights is None:
            return [regression_problem(setting)]
        return make_problems(self.source.classes, self.class_weights, setting)

    def numbers(self, point: int, part: int) -> list[int]:
        """Of the problems of an answer."""
        first = (point * self.parts + part) * self.k
        return list(range(first, first + self.k))

    # Successive halving

    def halve(self, halving: str | None) -> None:
        """Give up points on the way, by ``progressive`` or ``validation`` error."""
        self.halving = halving
        if halving is not None:
            self.options["give_up"] = self._given_up

    def _given_up(self, run: Run) -> list[int]:
        """Problems of the points that are learned no further after the epoch that has ended."""
        epoch = run.epoch - 1
        rungs = {1} if self.halving == "progressive" else {KEEP**k for k in range(60)}
        left = [n for n in range(len(self.points)) if n not in self._dropped(run)]
        if epoch not in rungs or len(left) == 1:
            return []
        if self.halving == "progressive":
            ranks = {n: self._rank(n, [self._progressive(run, n)]) for n in left}
        else:
            assert self.plan is not None
            means = self._measured(run, self.plan, left)
            ranks = {n: self._rank(n, mine) for n, mine in zip(left, means, strict=True)}
        worst = sorted(left, key=lambda n: ranks[n])[-(-len(left) // KEEP) :]
        self.dropped |= dict.fromkeys(worst, epoch)
        return [number for n in worst for part in range(self.parts) for number in self.numbers(n, part)]

    def _dropped(self, run: Run) -> set[int]:
        """Points that were given up, in an earlier process too."""
        return {n for n in range(len(self.points)) if run.status[self.numbers(n, 0)[0]].dropped}

    def _progressive(self, run: Run, point: int) -> float:
        """Errors on each row before it was learned from, a row and problem; of numbers their loss."""
        told = [run.status[n].progressive for part in range(self.parts) for n in self.numbers(point, part)]
        wrong = sum(tally.loss if self.class_weights is None else tally.mistakes for tally in told)
        return wrong / max(1, sum(tally.rows for tally in told))

    # The chain of values of C

    def in_chains(self, plan: Plan) -> Plan:
        """Where every row stays in memory, each value of C begins with the dual variables of the next smaller one, all
        else being equal; the plan of that.

        Few chains are cut in two, a smaller half of the values and a larger one, so that two and four cores have as
        much to do; the first of a half begins afresh, which cost nothing on S (200,000 rows, 0.001 to 3: 60.6 million
        visits of rows rather than 60.5; stride 2: 67.4). A point that is one problem begins with the next but one.
        """
        if not plan.resident or len(plan.groups) > 1 or not self.settings[0].method.by_duals or self.halving:
            return plan
        problems = list(self.problems)
        for point, setting in enumerate(self.settings):
            before = self._before(point)
            if before is None:
                continue
            factor = setting.settings["C"] / self.settings[before].settings["C"]
            for part in range(self.parts):
                for mine, other in zip(self.numbers(point, part), self.numbers(before, part), strict=True):
                    problems[mine] = problems[mine]._replace(start=((other, factor),))
        chains = sum(not problem.start for problem in problems)
        self.problems = problems
        return dataclasses.replace(plan, in_turn=IN_TURN if IN_TURN < chains < len(problems) else 0)

    def _before(self, point: int) -> int | None:
        """The point whose C is the next below this one's, with everything else in common; None: it begins afresh."""
        alike = self._alike(point)
        place = alike.index(point)
        if self.parts * self.k == 1:
            return alike[place - LEARNERS] if place >= LEARNERS else None
        chains = self.parts * self.k * len({self._alike(other)[0] for other in range(len(self.points))})
        cut = (len(alike) + 1) // 2 if chains < FEW_CHAINS and len(alike) >= LEAST_CUT else 0
        return None if place in (0, cut) else alike[place - 1]

    def _alike(self, point: int) -> list[int]:
        """The points that differ from this one in C alone, it among them, by their C."""

        def rest(setting: Setting) -> tuple[str | None, dict[str, object]]:
            return setting.loss, {name: value for name, value in setting.settings.items() if name != "C"}

        mine = rest(self.settings[point])
        found = [n for n, other in enumerate(self.settings) if rest(other) == mine]
        return sorted(found, key=lambda n: float(self.settings[n].settings["C"]))

    # The run over the grid, and what it comes to

    def go(self, run_dir: files.PathLike | None, refit: bool = True) -> Sweep:
        """Learn all points; with ``refit`` the best one from all rows."""
        self.problems, plan = self._settled(self.problems)
        self.plan = plan = self.in_chains(plan)
        with contextlib.ExitStack() as stack:
            directory = self._directory(self.options["run_dir"], self.problems, plan, stack)
            run, history = stack.enter_context(
                conducted(self.source, self.problems, plan, self.options | {"title": "sweeping"}, self.link, directory)
            )
            means = self._measured(run, plan)
            left = [n for n in range(len(self.points)) if n not in self._dropped(run)]
            best = min(left, key=lambda n: self._rank(n, means[n]))
            result = result_of(run, plan, history, self.peak, self.source)
            found: dict[str, Any] = dict(
                table=[self._row(run, n, means[n]) for n in range(len(self.points))], measure=self.measure,
                best_params_=self.points[best],
                certificates=[self._certificates(run, n) for n in range(len(self.points))], folds=self.folds,
                seconds=run.clock.seconds, reads=run.reads, converged=result.converged, memory=result.memory,
                plan=result.plan, history=history, rank=self._rank(best, means[best]),
            )  # fmt: skip
            if not result.converged:
                warn_of_limits(result, self.options)
            if self.folds == 0:
                models = [self._model(run, plan, history, n) for n in range(len(self.points))]
                return Sweep(**found, best_model=models[best], models=models)
            if not refit:
                return Sweep(**found, best_model=None)
            beginning = self._beginning(run, best, directory, plan)
            bench = run.engine.bench if isinstance(run.engine, LocalEngine) else None
            run.forget()
            if bench is not None:
                bench.forget()
            return Sweep(**found, best_model=self._refit(best, beginning, bench, run_dir))

    def _settled(self, problems: list[Problem]) -> tuple[list[Problem], Plan]:
        """The plan, and the problems as it has them."""
        problems, plan = settle(self.source, problems, **self.shape)
        log.info("plan: %s", plan)
        if plan.places:
            warm(problems[0].setting, self.source.index_width, plan.dtype)
        return problems, plan

    @contextlib.contextmanager
    def ended(self, plan: Plan) -> Iterator[tuple[Run, list[Record], Result]]:
        """The run of all problems, which has ended, its history, and how it went; with a warning where its limits cut
        it short. Weights and dual variables can be had while it is open."""
        with contextlib.ExitStack() as stack:
            directory = self._directory(self.options["run_dir"], self.problems, plan, stack)
            run, history = stack.enter_context(
                conducted(self.source, self.problems, plan, self.options, self.link, directory)
            )
            result = result_of(run, plan, history, self.peak, self.source)
            if self._fell_short(run, result):
                warn_of_limits(result, self.options)
            yield run, history, result

    def _fell_short(self, run: Run, result: Result) -> bool:
        """Whether limits ended the run before it had come to what was asked for."""
        return not result.converged

    def _directory(
        self, path: files.PathLike | None, problems: list[Problem], plan: Plan, stack: contextlib.ExitStack
    ) -> RunDirectory | None:
        if path is None:
            return None
        directory = RunDirectory(path)
        directory.acquire()
        stack.callback(directory.release)
        asked = _asked(self.source, problems, plan, self.options)
        asked["identity"]["sweep"] = {
            "problems": [[p.name, p.setting.loss, p.setting.settings, p.start] for p in problems], "folds": self.folds,
            **({} if self.halving is None else {"halving": self.halving}),
        }  # fmt: skip
        directory.begin(asked, self.options["resume"], by_content=self.source.tell_content)
        return directory

    def _rank(self, point: int, means: list[float | None]) -> tuple[float, float, int]:
        known = [mean for mean in means if mean is not None]
        c = self.settings[point].settings.get("C", 0.0)
        return (math.fsum(known) / len(known) if known else math.inf), c, point

    def _row(self, run: Run, point: int, means: list[float | None]) -> dict[str, object]:
        known = [mean for mean in means if mean is not None]
        status = [run.status[n] for part in range(self.parts) for n in self.numbers(point, part)]
        gaps = [s.gap for s in status]
        return {
            "params": self.points[point],
            "mean": math.fsum(known) / len(known) if known else None,
            "spread": float(np.std(known)) if len(known) > 1 else None,
            "folds": means if self.folds else [],
            "gap": None if None in gaps else max(gaps),  # type: ignore[type-var]
            "epochs": max(s.epochs for s in status),
            "read": max(s.reads for s in status),
            "seconds": sum(s.busy for s in status),
            **({"dropped": self.dropped.get(point, status[0].epochs if status[0].dropped else None)}
               if self.halving else {}),
        }  # fmt: skip

    def _certificates(self, run: Run, point: int) -> list[dict[str, Any]]:
        if run.tol is None:
            return []
        return [
            {"name": run.problems[n].name, "fold": part if self.folds else None, "primal": s.primal, "dual": s.dual,
             "gap": s.gap, "read": s.reads}
            for part in range(self.parts) for n in self.numbers(point, part) for s in [run.status[n]]
        ]  # fmt: skip

    def _weights(self, run: Run, number: int) -> np.ndarray:
        """float64 [feature + 1] of a problem's answer."""
        held, setting = run.status[number].weights, run.problems[number].setting
        return np.asarray(setting.weights(run.states[number]) if held is None else held, np.float64)

    def _measured(self, run: Run, plan: Plan, points: Sequence[int] | None = None) -> list[list[float | None]]:
        """[point][fold], in one read; of ``points`` alone where they are given."""
        points = range(len(self.points)) if points is None else points
        candidates = [self._candidate(run, self.numbers(point, part)) for point in points for part in range(self.parts)]
        sums = run.engine.judged(candidates, self.measure) if self.apart is None else None
        means = [s.mean(self.measure) for s in sums or self._measured_here(run, plan, candidates)]
        return [means[n : n + self.parts] for n in range(0, len(means), self.parts)]

    def _measured_here(self, run: Run, plan: Plan, candidates: list[Candidate]) -> list[Sums]:
        """In one read of this process."""
        classes = self.source.classes
        with contextlib.closing(Team(plan.learners)) as team:
            if self.apart is not None:
                blocks = rows_apart(self.apart, self.source)
                return measure_all(candidates, blocks, classes, team, self.measure, run.idle)
            with self._everything(run, plan) as blocks:
                return measure_all(candidates, blocks, classes, team, self.measure, run.idle)

    def _candidate(self, run: Run, numbers: list[int]) -> Candidate:
        """The answer of these problems, to be measured."""
        setting, fold = run.problems[numbers[0]].setting, run.problems[numbers[0]].fold
        bias, loss = setting.settings["bias"], setting.loss
        if setting.places:
            return Candidate([], bias, loss, fold, (run.states[numbers[0]], setting.params()))
        return Candidate([row for n in numbers for row in answer_rows(self._weights(run, n))], bias, loss, fold)

    @contextlib.contextmanager
    def _everything(self, run: Run, plan: Plan) -> Iterator[Iterator[tuple[int, Block]]]:
        """Every row once: from the run's own memory or raw store, else from the shards."""
        if isinstance(run.engine, LocalEngine):
            yield run.engine.bench.everything()
            return
        alone = dataclasses.replace(plan, resident=False, threads=0, store_bytes=0)
        stream = stream_of(Job("", self.source, self.problems, alone, None, None))
        with contextlib.closing(stream):
            yield (
                (int(self.source.chunks.row0[first]), block)
                for first, last in plan.groups
                for block in stream.blocks([np.array([chunk]) for chunk in range(first, last)])
            )

    def _model(self, run: Run, plan: Plan, history: list[Record], point: int) -> Model:
        """Of one point, where it was learned from all rows."""
        numbers = self.numbers(point, 0)
        part: Any = types.SimpleNamespace(
            problems=[run.problems[n] for n in numbers], status=[run.status[n] for n in numbers],
            states=[run.states[n] for n in numbers], conductors=[run.conductors[n] for n in numbers],
            method=run.method, tol=run.tol, stopped=run.stopped, engine=run.engine,
            reads=run.reads, epoch=run.epoch, clock=run.clock, counts=run.counts, best=BestEpoch(None),
            let_go=lambda number: None,  # the answers of all points are still to be measured
        )  # fmt: skip
        result = result_of(part, plan, history, self.peak, self.source)
        result.progressive.pop("curve", None)  # a curve is of all problems together
        result.memory = result_of(run, plan, history, self.peak, self.source).memory  # of all points together
        if run.tol is not None:
            result.converged = all(status.done for status in part.status)
        return model_of(part, self.source, result, self.options)

    # The best value on all rows

    def _beginning(self, run: Run, best: int, directory: RunDirectory | None, plan: Plan) -> Checkpoint | None:
        """The mean of the folds' dual variables, each row's over the folds that it was learned from in, and the
        weights that go with them; None for methods without, for several groups and where they are on disk."""
        method, how = run.method, run.method.how
        if not isinstance(how, Dual) or len(plan.groups) > 1 or plan.rows_sides:
            return None
        alphas = self._alphas(run, best, directory)
        problems = self._full(best)
        setting = self.settings[best]
        loss, params = method.loss_of(setting.loss), problems[0].setting.params()
        states: list[Any] = [p.setting.shared(self.source.n_features, plan.dtype) for p in problems]
        sums = [np.zeros(state.weights.shape) for state in states]
        rows = [how.rows(alpha) for alpha in alphas]
        within, certify = how.within, how.certify  # the latter makes the sum over rows on its way
        with self._everything(run, plan) as blocks:
            for first_row, block in blocks:
                for k, problem in enumerate(problems):
                    view = problem.view(block, first_row)
                    within(loss)(view, rows[k], params)
                    certify(loss)(view, states[k], rows[k], params, sums[k], 0.0)
        arrays: dict[str, np.ndarray] = {}
        held: dict[str, np.ndarray] = {}
        for k, (state, total) in enumerate(zip(states, sums, strict=True)):
            state.weights[:] = total
            arrays[f"{k}.state.weights"] = state.weights
            held[f"{k}.0.rows.alpha"] = alphas[k]
            held |= {f"{k}.0.set.{name}": array for name, array in Members.none()._asdict().items()}
        facts = dict(epoch=1, segment=0, reads=0, seconds=0.0, bytes_read=0, stopped="", version=1, mixes=0)
        return Checkpoint(arrays, [held], facts | {"status": [Status().facts() for _ in problems]})

    def _alphas(self, run: Run, best: int, directory: RunDirectory | None) -> list[np.ndarray]:
        """Of each problem of an answer, float64 [row]: sum over the folds / (folds - 1)."""
        saved = run.checkpoint()
        if not saved.rows[0]:  # an earlier process made the last visit
            newest = directory.newest(1, require=run.require) if directory is not None else None
            saved = newest or saved
        rows = saved.rows[0]
        if isinstance(rows, RowFile):
            assert directory is not None
            rows = load_rows(directory.file(rows.name), rows.digest, rows.steps)
        shape = (self.source.n_rows, *self.problems[0].setting.row_shape)
        alphas = [np.zeros(shape) for _ in range(self.k)]
        for part in range(self.parts):
            for k, number in enumerate(self.numbers(best, part)):
                alphas[k] += rows[f"{number}.0.rows.alpha"]
        for alpha in alphas:
            alpha /= self.folds - 1
        return alphas

    def _full(self, best: int) -> list[Problem]:
        return self.on_all_rows(self.settings[best])

    def _refit(
        self, best: int, beginning: Checkpoint | None, bench: Bench | None, run_dir: files.PathLike | None
    ) -> Model:
        options = self.options | {"give_up": None, "title": "the best, from all rows"}
        problems, plan = self._settled(self._full(best))
        path = None if run_dir is None else files.join(files.absolute(run_dir), "best")
        with contextlib.ExitStack() as stack:
            directory = self._directory(path, problems, plan, stack)
            run, history = stack.enter_context(
                conducted(self.source, problems, plan, options, self.link, directory, beginning, bench)
            )
            result = result_of(run, plan, history, self.peak, self.source)
            model = model_of(run, self.source, result, self.options)
        if not result.converged:
            warn_of_limits(result, self.options)
        return model
