"""``path`` with ``within``: few models, one of which is certified to be near the optimum at every C between two bounds.

Values of C at equal ratios are problems of one run, each block read once for all. What is known of their answers bounds
the optimum at every C (``bigclf.maths.coverage``); where that leaves a hole, values in it are learned in a further run.
Of all the models the fewest are kept that cover the whole range.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from bigclf import files
from bigclf.api.outcome import Result
from bigclf.api.sweep import Task
from bigclf.errors import ConvergenceWarning
from bigclf.maths.coverage import Answer, Bound, Interval, bounds, common, covered, fewest, holes
from bigclf.model.model import Model
from bigclf.progress import Record
from bigclf.training.run import Run
from bigclf.training.visit import square_of
from bigclf.units import plural

log = logging.getLogger("bigclf")

RATIO = 4.6  # ln of the ratio between values, over the square root of the share: 1.58 for 1 % (S, three losses: 1.8)
SHARP = 0.1  # the tolerance of each answer, as a share of what is asked for
ROUNDS = 6  # of filling holes


class Took(NamedTuple):
    """What runs took, as ``Path`` tells it."""

    seconds: float
    reads: int
    converged: bool
    memory: dict[str, int]
    plan: dict[str, Any]
    history: list[Record]

    def and_then(self, other: Took) -> Took:
        """Both, one after the other."""
        return Took(
            self.seconds + other.seconds,
            self.reads + other.reads,
            self.converged and other.converged,
            {name: max(self.memory[name], other.memory[name]) for name in self.memory},
            self.plan,
            self.history + other.history,
        )


class Known(NamedTuple):
    """What is known of an answer.

    answers : of each of its problems; weights : [problem] float64 [feature + 1]; apart : [problem].
    """

    C: float
    answers: list[Answer]
    weights: list[np.ndarray]
    apart: list[float]


class Trained(NamedTuple):
    """An answer, and its line in the table."""

    known: Known
    model: Model
    line: dict[str, object]


class Range(NamedTuple):
    """A model, and the values of C that it serves: within that share of the optimum at each of them."""

    trained: Trained
    low: float
    high: float
    within: float


def values_between(low: float, high: float, within: float) -> list[float]:
    """Values of C at equal ratios, both bounds among them."""
    steps = math.ceil(math.log(high / low) / (RATIO * math.sqrt(within)) - 1e-9)
    return [low] if low == high else [float(value) for value in np.geomspace(low, high, max(1, steps) + 1)]


class Cover(Task):
    """Values of C over rows that have been opened; ``seeking`` is told before it trains.

    asked : the share, and the bounds of C that are to be served with it; before : answers that are known already.
    """

    asked: tuple[float, float, float]
    before: Sequence[Known] = ()

    def seeking(self, within: float, low: float, high: float, before: Sequence[Known]) -> Cover:
        """To end as soon as the answers, those known ``before`` among them, serve [low, high]."""
        self.asked, self.before = (within, low, high), before
        return self

    def train(self) -> tuple[list[Trained], Took]:
        """Train them all; what the run took, as ``Path`` tells it."""
        self.problems, plan = self._settled(self.problems)
        if plan.resident and len(plan.groups) == 1:
            plan = self.in_chains(plan)
        else:
            self.options |= {"give_up": self._enough}
        with self.ended(plan) as (run, history, result):
            found = []
            for point in self._answered(run) or range(len(self.points)):
                model = self._model(run, plan, history, point)
                found.append(Trained(self._known(run, point), model, line_of(self, run, point, model)))
            converged = not self._fell_short(run, result)
            took = Took(run.clock.seconds, run.reads, converged, result.memory, result.plan, history)
            return found, took

    def _answered(self, run: Run) -> list[int]:
        """The points that have certified weights for all their problems."""
        numbers = range(len(self.points))
        return [point for point in numbers if all(run.status[n].weights is not None for n in self.numbers(point, 0))]

    def _known(self, run: Run, point: int) -> Known:
        C, status = cast("float", self.points[point]["C"]), [run.status[n] for n in self.numbers(point, 0)]
        weights = [self._weights(run, n) for n in self.numbers(point, 0)]
        answers = [
            Answer(C, s.primal, 0.5 * square_of(w), s.pair.dual, s.pair.square)
            for s, w in zip(status, weights, strict=True)
        ]
        return Known(C, answers, weights, [s.pair.apart for s in status])

    def _enough(self, run: Run) -> list[int]:
        """Every problem that is left, once the certificates of the epoch make the answers serve the whole range."""
        left = run.todo()
        certified = [run.status[n] for n in range(len(run.problems)) if run.status[n].weights is not None]
        if not left or all(status.reads < run.reads for status in certified):
            return []
        return left if self._serves(run) else []

    def _serves(self, run: Run) -> bool:
        """Whether the answers serve the whole range."""
        known = [*self.before, *(self._known(run, point) for point in self._answered(run))]
        return not holes_in(known, *self.asked)

    def _fell_short(self, run: Run, result: Result) -> bool:
        """A certificate that is made because a limit is reached may show that all is served, too."""
        return not result.converged and not self._serves(run)


def line_of(task: Task, run: Run, point: int, model: Model) -> dict[str, object]:
    """What ``Path.table`` tells of a value of C."""
    status = [run.status[n] for n in task.numbers(point, 0)]
    found = model.certificate or {}
    return {
        "C": task.points[point]["C"],
        "nonzero": int(np.count_nonzero(model.weights)),
        **{new: found.get(old) for new, old in (("objective", "primal"), ("dual", "dual"), ("gap", "gap"))},
        **({"violation": found["violation"]} if "violation" in found else {}),
        "epochs": max(s.epochs for s in status),
        "read": max(s.reads for s in status),
        "seconds": sum(s.busy for s in status),
    }


def certain_of(known: Sequence[Known]) -> list[list[Bound]]:
    """[problem] the bounds on its optimum that the answers give, which are at ascending C."""
    found = []
    for k in range(len(known[0].answers)):
        weights = [one.weights[k].reshape(-1) for one in known]
        products = np.zeros((len(known), len(known)))
        for n, mine in enumerate(weights):
            products[n, n] = mine @ mine
            if n:
                products[n - 1, n] = products[n, n - 1] = weights[n - 1] @ mine
        found.append(bounds([one.answers[k] for one in known], products, np.array([one.apart[k] for one in known])))
    return found


def holes_in(known: Sequence[Known], within: float, low: float, high: float) -> list[Interval]:
    """What of [low, high] none of the answers serves."""
    ascending = sorted(known, key=lambda one: one.C)
    certain = certain_of(ascending) if ascending else []
    return holes([served(one, certain, within) for one in ascending], low, high)


def served(one: Known, certain: Sequence[Sequence[Bound]], within: float) -> Interval | None:
    """Where all the problems of an answer are within that share of their optima."""
    return common([covered(answer, bound, within) for answer, bound in zip(one.answers, certain, strict=True)])


def ranges_of(trained: Sequence[Trained], within: float, low: float, high: float) -> list[Range]:
    """The fewest of the models that serve as much of [low, high] as all do, each with its share of it: two that meet
    part where their objectives are equal, or as near to there as both serve."""
    certain = certain_of([one.known for one in trained])
    parts = [served(one.known, certain, within) for one in trained]
    chosen = [(trained[n], part) for n in fewest(parts, low, high) if (part := parts[n]) is not None]
    if not chosen:  # none is near its own optimum
        return [Range(one, one.known.C, one.known.C, _share_of(one.known, certain)) for one in trained]
    ends = [(max(low, part[0]), min(high, part[1])) for _, part in chosen]
    for k in range(len(chosen) - 1):
        (one, mine), (other, its) = chosen[k], chosen[k + 1]
        if its[0] <= mine[1]:
            at = min(max(_crossing(one.known, other.known), its[0]), mine[1])
            ends[k], ends[k + 1] = (ends[k][0], at), (at, ends[k + 1][1])
    pairs = zip((one for one, _ in chosen), ends, strict=True)
    return [Range(one, *end, _least(one.known, certain, end, within)) for one, end in pairs]


def _share_of(one: Known, certain: Sequence[Sequence[Bound]]) -> float:
    """How far, at most, an answer is above the optimum at its own C; inf: nothing is known of the optimum."""
    best = [max((bound.at(one.C) for bound in each), default=0.0) for each in certain]
    return max(a.primal / d - 1.0 if d > 0 else math.inf for a, d in zip(one.answers, best, strict=True))


def _crossing(one: Known, other: Known) -> float:
    """The C at which the sums of the objectives of both are equal."""
    half = sum(a.half for a in other.answers) - sum(a.half for a in one.answers)
    slope = sum(a.slope for a in one.answers) - sum(a.slope for a in other.answers)
    return half / slope if slope > 0 else math.sqrt(one.C * other.C)


def _least(one: Known, certain: Sequence[Sequence[Bound]], end: Interval, within: float) -> float:
    """The least share, up to a thousandth of ``within``, with which the model serves all of an interval."""
    low, high = 0.0, within
    while high - low > 1e-3 * within:
        share = 0.5 * (low + high)
        part = served(one, certain, share)
        if part is not None and part[0] <= end[0] and end[1] <= part[1]:
            high = share
        else:
            low = share
    return high


def cover(
    make: Callable[[list[float], str | None], Cover],
    low: float,
    high: float,
    within: float,
    run_dir: files.PathLike | None,
) -> tuple[list[Range], Took]:
    """Models that serve [low, high], and what the runs took together.

    make : (values of C, run directory) -> Cover.
    """
    trained: list[Trained] = []
    took: Took | None = None
    values = values_between(low, high, within)
    for number in range(1, ROUNDS + 1):
        log.info("round %d: %s of C from %g to %g", number, plural(len(values), "value"), values[0], values[-1])
        place = None if run_dir is None else files.join(files.absolute(run_dir), f"round-{number}")
        known = [one.known for one in trained]
        more, mine = make(values, place).seeking(within, low, high, known).train()
        took = mine if took is None else took.and_then(mine)
        trained = sorted([*trained, *more], key=lambda one: one.known.C)
        left = holes_in([one.known for one in trained], within, low, high)
        if not left or not mine.converged:
            break
        middles = (math.sqrt(a * b) for a, b in left)
        values = [value for value in middles if all(value != one.known.C for one in trained)]
        if not values:
            break
    assert took is not None
    if left:
        told = ", ".join(f"{a:.4g} to {b:.4g}" for a, b in left)
        warnings.warn(f"no model is certified within {within:g} for C from {told}", ConvergenceWarning, stacklevel=5)
        took = took._replace(converged=False)
    return ranges_of(trained, within, low, high), took
