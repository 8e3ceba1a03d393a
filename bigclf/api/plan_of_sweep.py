"""What a plan of a sweep adds to that of a training: which problems there are, and how many are learned at a time.

One problem tells what a pass takes and how many passes there are: that of the middle point, on all rows. How much more
or less others take is counted in trials of the first and the last, in passes over all rows that their visits come to;
those between lie on a parabola through the logarithms, as C grows by ratios. Where all rows stay in memory the values
of C are learned one after another, so of many problems few are learned at a time, and workers share these.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from bigclf.api.sweep import Task, families_of, is_named, with_families
from bigclf.request.door import Shape
from bigclf.request.prepare import Prepared
from bigclf.request.request import Request, RunOptions
from bigclf.training.memory import PeakMemory
from bigclf.training.plan import Plan
from bigclf.training.problems import Problem

# What the points of a chain take after its first, beside what they took if all began afresh: 60 of 73 million visits of
# rows for eight values of C and five folds of 200,000 rows (hinge).
WARM = 0.83


class Points(NamedTuple):
    """The problems of a sweep: of all points, folds and classes, as the run has them, with its plan; ``one`` of them on
    all rows; ``chains`` : how many are learned at a time; ``load`` : entries of a pass of all, by those of all rows;
    ``best`` : problems of the best point; ``beside`` : the first and the last, for their work beside that of ``one``;
    ``among`` : points."""

    problems: list[Problem]
    plan: Plan
    one: Problem
    chains: int
    load: float
    best: int
    beside: tuple[Problem, ...] = ()
    among: int = 1

    def share(self, at_once: int) -> float:
        """Of the work of a pass, what the busiest of so many has, workers or threads."""
        turn = self.plan.in_turn or 1
        most = self.chains // turn * turn or self.chains  # that a round takes
        return math.ceil(most / at_once) / most

    def weighed(self, works: Sequence[float]) -> Points:
        """With the load that counts the work of ``one`` and of those ``beside``, where all are known."""
        if len(works) < 3 or not all(works):
            return self
        one, first, last = works
        if self.among < 3:  # no parabola goes through two
            each = np.array([first, last]) / one
        else:
            ends = [0.0, float(self.among // 2), float(self.among - 1)]
            lines = np.polyfit(ends, np.log([first, one, last]), 2)
            each = np.exp(np.polyval(lines, np.arange(self.among))) / one
        if self.chains < len(self.problems):
            each[1:] *= WARM
        return self._replace(load=self.load * float(np.mean(each)))


def of_grid(request: Request) -> Request:
    """The request of the sweep that is to be planned; its methods are still to be named where the rows say which."""
    whole = None if request["folds"] else "other rows"  # they are measured after the run
    request = dataclasses.replace(request.having(halving=None, refit=True, validate=whole), verb="sweep")
    return _of_one(request.having(families=families_of(request))) if is_named(request) else request


def with_points(request: Request, shape: Shape) -> Request:
    """With the method that such rows ask for."""
    return _of_one(with_families(request, shape))


def _of_one(request: Request) -> Request:
    if len(request.families) > 1:
        raise ValueError("a plan is of one method: name it with algo, and leave the others out of the grid")
    return request


Settle: TypeAlias = Callable[[list[Problem]], tuple[list[Problem], Plan]]


def points_of(request: Request, prepared: Prepared, options: RunOptions, settled: Settle) -> Points:
    """The problems of the sweep; ``settled`` : these with the plan of a run."""
    (family,), (settings,), folds = request.families, prepared.settings, request["folds"]
    source, peak = prepared.source, PeakMemory()  # of which nothing is asked
    task = Task(source, family.points, settings, prepared.class_weights, folds, None, options, None, peak)
    task.problems, plan = settled(task.problems)
    chains, load = len(task.problems), len(task.problems) * (folds - 1) / folds if folds else len(task.problems)
    plan = task.in_chains(plan)
    if any(problem.start for problem in task.problems):
        chains = sum(not problem.start for problem in task.problems)
    order = sorted(settings, key=lambda setting: float(setting.settings.get("C", 1.0)))
    whole = task.on_all_rows(order[len(order) // 2])
    ends = [task.on_all_rows(setting)[0] for setting in (order[0], order[-1])] if len(order) > 2 else []
    return Points(task.problems, plan, whole[0], chains, load, len(whole), tuple(ends), len(order))


def of_classes(problems: list[Problem], plan: Plan) -> Points:
    """Classes one against the rest: the middle one tells of all."""
    middle, n = problems[len(problems) // 2], len(problems)
    return Points(problems, plan, middle, n, float(n), 0, (problems[0], problems[-1]), n)
