"""Groups that ascend the dual together by a gathered working set: where most rows are stuck at an end of their box.

In a pass each group goes over its rows outside the set, all groups from the same weights, each step counted sigma
times, and chooses the rows that still matter. Those come together at the driver, which goes over them until their own
gap is small: there no step has to be shortened for what others do meanwhile. So the passes hardly grow with the groups.

A row's entries travel when it enters the set, its dual variable and its score both ways in every pass. What a group
goes on from is in its lesson, and the rows at the driver are a cache: whoever takes a group up, or the run, comes to
the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bigclf.compiled.jit import kernel, random_state, shuffle_runs
from bigclf.data.rows import Rows
from bigclf.errors import ModelFormatError
from bigclf.maths.block import Block, selected
from bigclf.maths.mixing import Weights, slope_and_square
from bigclf.methods.dual.subspace_ascent import SubspaceAscent
from bigclf.stream.working_set import WorkingSet, put_all_in
from bigclf.training.plan import ACTIVE_SLACK, PACE, Plan
from bigclf.training.problems import Problem
from bigclf.training.roles.conductor import Conductor, Ending, Limits, When
from bigclf.training.roles.dual import (
    ALL_AGAIN,
    CLIMBED,
    MOST_STEPS,
    DualConductor,
    DualLearner,
    how_of,
    stalls,
    steps_worth,
)
from bigclf.training.roles.learner import Assignment
from bigclf.training.visit import STILL, Figures, Lesson, Part, Scratch, Solved, objectives

FAR = 0.5  # a row that is stuck by more than this much of its margin is not in the set
# The set is solved when its own gap is below the first share of the tolerance, or below the second one of what it was.
SOLVED, BALANCED = 0.2, 0.03
# Rounds over the set before steps along the moves of all of them: of text many rows still leave their intervals then,
# and to put those back costs as much as a round (1 M rows: 24 s of the driver for 33 rounds, half of it for that).
BEFORE_MOVES = 8
SLOWEST, STRETCH = 0.01, 2.0  # of the step of all groups: the least that is believed; most that sigma changes by it


class Chosen(NamedTuple):
    """The working set of a group at the end of a pass, in the order of its arena.

    group : its number; ids : int64 [row], numbers in the dataset; before, after : float64 [row], dual variables at the
    start of the pass and as the group left them; scores : float64 [row]; fresh : the rows that the driver may lack
    (None: it has taken them).
    """

    group: int
    ids: np.ndarray
    before: np.ndarray
    after: np.ndarray
    scores: np.ndarray
    fresh: Block | None


class GatheredLearner(DualLearner):
    """A problem in a group: it goes over the rows outside its working set, and says which rows are in it."""

    def __init__(self, given: Assignment) -> None:
        super().__init__(given)
        self.visits = None  # its rows are visited elsewhere
        self.sent = np.zeros(0, np.uint8)  # a bit a row: those of the set as it was solved last
        self._learns = True

    @property
    def held(self) -> WorkingSet:
        """The working set."""
        assert self.set is not None
        return self.set

    def prepare(self, lesson: Lesson) -> None:
        """Where the driver has lost its rows, all of the set are sent once more."""
        super().prepare(lesson)
        if lesson.anew:
            self.sent = np.zeros_like(self.held.member)

    def begin(self, state: Weights, lesson: Lesson, still: bool = False, spare: Weights | None = None) -> None:
        """The set's rows are as they were solved; those that are stuck by much leave it."""
        self._learns = not still
        if lesson.solved:
            self._take_up(lesson.solved[0])
        self.sent = np.zeros_like(self.held.member) if lesson.anew else self.held.member.copy()
        if self._learns:
            self.held.drop(-FAR)
            self.held.threshold = -FAR
        super().begin(state, lesson, still, spare)

    def _take_up(self, solved: Solved) -> None:
        n, alpha = self.held.n_rows, self.rows.alpha
        if n != solved.alpha.size:
            raise ModelFormatError(f"group {self.group} has {n} rows in its working set, not {solved.alpha.size}")
        alpha[self.held.arena.ids[:n]] = solved.alpha
        self.held.scores[:n] = solved.scores

    def begin_segment(self, epoch: int, segment: int, trace: bool = False) -> None:
        """Among rows that matter as much chance decides, another one in each pass."""
        super().begin_segment(epoch, segment, trace)
        self.held.salt = epoch

    def go_on(self, view: Block, scores: np.ndarray, aim: float, scratch: Scratch, idle: Callable[[], None]) -> None:
        """The set is solved where all groups' rows are."""

    def end(self, common: Weights, certified: bool) -> Part:
        """What the pass came to, with the rows chosen in it."""
        part = super().end(common, certified)
        return part._replace(found=[self._chosen()]) if self._learns else part

    def _chosen(self) -> Chosen:
        block, n = self.held.block(), self.held.n_rows
        there = self.sent[block.ids >> 3] >> (block.ids & 7).astype(np.uint8) & 1 == 0
        fresh = selected(block, there)
        before, after = self.row_state.start.alpha[block.ids], self.rows.alpha[block.ids]
        ids = block.ids + self.first_row
        return Chosen(
            self.group, ids, before, after, self.held.scores[:n].copy(), fresh._replace(ids=fresh.ids + self.first_row)
        )

    # To a file and back

    def carried_rows(self, midway: bool) -> dict[str, np.ndarray]:
        """In the middle of a pass also which rows the driver has."""
        sent = np.flatnonzero(np.unpackbits(self.sent, bitorder="little")) if midway else None
        return super().carried_rows(midway) | ({} if sent is None else {"set.sent": sent})

    def restore_rows(self, held: dict[str, np.ndarray]) -> None:
        """Likewise."""
        super().restore_rows(held)
        self._learns, self.sent = True, np.zeros_like(self.held.member)
        if "set.sent" in held:
            put_all_in(held["set.sent"], self.sent)


class GatheredSet:
    """The rows that all groups chose, in one arena: here they are solved.

    Parameters
    ----------
    problem, number : whose rows they are; plan, source : for the sizes.
    """

    def __init__(self, problem: Problem, number: int, plan: Plan, source: Rows) -> None:
        self.problem, self.number, self.plan = problem, number, plan
        rows, nnz = (len(plan.groups) * size for size in plan.arena(number))
        kinds = source.index_width, source.binary, source.n_rows, source.row_constant
        self.held = WorkingSet(rows, nnz, *kinds)
        self.held.places = np.arange(rows)
        self.kernel, self.params = problem.setting.kernel(), problem.setting.params()
        self.rows = problem.setting.rows(rows)
        self.chosen: list[Chosen] = []  # of each group, the last that came
        record = problem.setting.method.loss_of(problem.setting.loss)
        self._ascend = how_of(problem).climb(record) if plan.climb_rows else None
        self._along_moves = how_of(problem).span(record) if plan.moves else None
        self.rounds = self.steps = 0  # steps : of conjugate gradients
        self.shipped = 0  # entries of rows that came here, as often as they came

    @property
    def is_empty(self) -> bool:
        """Whether no row is at hand."""
        return self.held.n_rows == 0

    def append(self, piece: object) -> None:
        """Take in what a group chose. Rows that it had chosen before stay for as long as nobody needs their room."""
        assert isinstance(piece, Chosen)
        self._take_in(piece)

    def _take_in(self, chosen: Chosen) -> None:
        self.chosen[chosen.group : chosen.group + 1] = [chosen._replace(fresh=None)]
        fresh, held = chosen.fresh, self.held
        assert fresh is not None
        self.shipped += fresh.nnz
        many, long = held.n_rows + fresh.n_rows, int(held.used[1]) + fresh.nnz
        if many > held.scores.size or long > held.arena.indices.size:
            self._let_go()
        held.threshold = -np.inf
        held.admit(fresh, np.arange(fresh.n_rows), np.zeros(fresh.n_rows))

    def _let_go(self) -> None:
        """Of the rows that nobody chose."""
        wanted = np.isin(self.held.arena.ids[: self.held.n_rows], np.concatenate([c.ids for c in self.chosen]))
        self.held.scores[: wanted.size] = wanted
        self.held.drop(1.0)

    def solve(self, weights: Weights, t: float, tol: float, primal: float, epoch: int, ending: Ending) -> list[Solved]:
        """Go over the rows until their gap is small, from dual variables that went the part ``t`` of their step; of
        each group what its rows came to.

        primal : the objective that ``tol`` is a share of; epoch : for the random numbers. ``weights`` are changed.
        """
        places = self._places()
        alpha, scores = self.rows.alpha, self.held.scores
        before, after = (np.concatenate([getattr(c, name) for c in self.chosen]) for name in ("before", "after"))
        alpha[places] = after if t == 1.0 else before + t * (after - before)
        scores[places] = np.concatenate([c.scores for c in self.chosen])
        self._go_over_all(weights, places, SOLVED * tol * primal, epoch, ending)
        ends = np.cumsum([c.ids.size for c in self.chosen])[:-1]
        return list(map(Solved, np.split(alpha[places], ends), np.split(scores[places], ends)))

    def _places(self) -> np.ndarray:
        """Where in the arena the rows are that the groups chose, in their order."""
        ids = self.held.arena.ids[: self.held.n_rows]
        wanted = np.concatenate([c.ids for c in self.chosen])
        order = np.argsort(ids)
        return order[np.searchsorted(ids, wanted, sorter=order)]

    def _go_over_all(self, weights: Weights, places: np.ndarray, goal: float, epoch: int, ending: Ending) -> None:
        """Rounds over those that may move, and conjugate gradients where these stall; the last round is over all. The
        order of rows is that of the groups: where they lie has no part in it."""
        live, everyone, since_all, looked, mark = places, True, 0, 0, 0.0
        self.rounds = self.steps = 0
        moves: SubspaceAscent | None = None
        while self.rounds < self.plan.rounds and places.size and not ending.late():
            members = places if everyone else live
            if moves is not None:
                moves.step()
            elif self.rounds >= BEFORE_MOVES:
                moves = self._moves(weights, places)
            gap = self._round(weights, members, epoch)
            live = members[self.held.scores[members] >= -ACTIVE_SLACK]
            ending.idle()
            if self.rounds == 1:
                goal, mark = max(goal, BALANCED * gap), gap
            if everyone and gap <= goal:
                return
            since_all = 0 if everyone else since_all + 1
            everyone = gap <= goal or since_all + 1 >= ALL_AGAIN
            if self.rounds - looked >= PACE and self.rounds < self.plan.rounds:  # never last, as in InnerRounds
                looked, everyone = self.rounds, self._climb(weights, places, gap, mark, goal, ending) or everyone
                mark = gap

    def _moves(self, weights: Weights, places: np.ndarray) -> SubspaceAscent | None:
        """Of the rounds that follow; each goes on from where the ones before it lead together."""
        if self._along_moves is None:
            return None
        return SubspaceAscent(self._along_moves, self.held.block(), places, weights, self.rows, self.params)

    def _round(self, weights: Weights, members: np.ndarray, epoch: int) -> float:
        """The kernel over rows at these places; the gap that they showed."""
        self.rounds += 1
        order = np.empty_like(members)
        shuffle_runs(members, self.plan.run, random_state(self.plan.seed, 5, epoch, self.number, self.rounds), order)
        counts = self.kernel(self.held.block(), order, weights, self.rows, self.params, self.held.scores)
        return float(counts.gap)

    def _climb(
        self, weights: Weights, places: np.ndarray, gap: float, mark: float, goal: float, ending: Ending
    ) -> bool:
        """Conjugate gradients where the rounds stall; whether anything was done."""
        if self._ascend is None or self.steps >= MOST_STEPS or not stalls(gap, mark, goal):
            return False
        steps = self._ascend(
            self.held.block(), places, weights, self.rows, self.params, CLIMBED * goal,
            min(MOST_STEPS - self.steps, steps_worth(gap, mark, goal)), self.plan.climb_rows, ending.idle,
        )  # fmt: skip
        self.steps += steps
        return steps > 0


class GatheredConductor(DualConductor):
    """Such a problem at the driver, where its rows are solved."""

    def __init__(self, number: int, problem: Problem, plan: Plan, limits: Limits, source: Rows) -> None:
        super().__init__(number, problem, plan, limits)
        self.gathered = GatheredSet(problem, number, plan, source)
        self.solved: list[Solved] = []  # of each group

    def begin(self, states: list[Weights], others: Sequence[Conductor]) -> None:
        """At first each step counts as many times as there are groups."""
        self.status.penalty = 1 / len(self.plan.groups)

    @property
    def searches(self) -> bool:
        """Groups go on from the sum of the dual variables itself."""
        return False

    @property
    def sigma(self) -> float:
        """As their last steps were too long together, or too short."""
        return 1 / self.status.penalty

    def lesson(self, when: When, state: Weights, takes_up: bool, most: float = math.inf) -> Lesson:
        """With what the rows of each group came to, where its pass begins."""
        lesson = super().lesson(when, state, takes_up, most)
        begins = when.segment == 0 or when.kind in STILL
        return lesson._replace(solved=tuple(self.solved) if begins else (), anew=self.gathered.is_empty)

    @property
    def gathering(self) -> GatheredSet:
        """The rows at the driver."""
        return self.gathered

    def certifies(self, when: When) -> bool:
        """Every pass, as it says how the next one is to go."""
        return self.limits.tol is not None and when.epoch > 1

    # After a pass

    def take(self, start: Weights, part: Part, figures: Figures, ending: Ending) -> tuple[Weights, float]:
        """Groups go as far along their steps as the dual gains by it; from there the rows they chose are solved."""
        status = self.status
        self.gathered.rounds = self.gathered.steps = 0
        if status.done:
            return start, 0.0  # the dual variables stay with the certificate
        t = self._join(start, part, figures)
        primal, dual = objectives(figures.primal, figures.dual, start.weights, start.weights)
        if ending.whole:  # else those are sums over a part of the rows
            status.estimate = max(0.0, primal - dual) / primal if primal > 0 else 0.0
        tol = self.limits.tol or 0.0
        self.solved = self.gathered.solve(part.state, t, tol, primal, status.epochs, ending)
        status.step = t
        status.since_certificate += 1
        return part.state, t

    def _join(self, start: Weights, part: Part, figures: Figures) -> float:
        """Make of what groups came to, in ``part.state``, the sum of their dual variables after a part of their steps,
        which is returned."""
        origin = self._sum_of_duals(start, part)
        flat = origin.reshape(-1), start.weights.reshape(-1), part.state.weights.reshape(-1)
        across, square = slope_and_square(*flat)
        curvature = figures.bend + square
        raw = (figures.gain + 0.5 * figures.bend - across) / curvature if curvature > 0 else 1.0
        t = min(1.0, max(0.0, raw))
        go_along(*flat, t)
        self.status.penalty = next_penalty(self.status.penalty, raw, len(self.plan.groups))
        return t

    def _sum_of_duals(self, start: Weights, part: Part) -> np.ndarray:
        """As the certificate has it, made anew: so rounding errors do not gather. In the first pass it is 0."""
        if isinstance(part.dual, np.ndarray):
            return part.dual
        return np.zeros(start.weights.shape) if self.status.epochs == 1 else start.weights.astype(np.float64)

    def record(self, seen: dict[str, int]) -> dict[str, float]:
        """Rounds over the rows at the driver, and steps of conjugate gradients."""
        return super().record(seen | {"rounds": self.gathered.rounds, "steps": self.gathered.steps})

    def mixing_record(self) -> dict[str, float]:
        """How far its groups went along their step, and how long these were."""
        return super().mixing_record() | {"penalties": self.status.penalty}

    # To a file and back

    def arrays(self) -> dict[str, np.ndarray]:
        """What the rows of the set came to, group after group."""
        if not self.solved:
            return {}
        sizes = np.array([solved.alpha.size for solved in self.solved], np.int64)
        alpha, scores = (np.concatenate(arrays) for arrays in zip(*self.solved, strict=True))
        return {"gathered.sizes": sizes, "gathered.alpha": alpha, "gathered.scores": scores}

    def restore(self, held: dict[str, np.ndarray]) -> None:
        """Take up what ``arrays`` gave."""
        if "gathered.sizes" not in held:
            return
        ends = np.cumsum(held["gathered.sizes"])[:-1]
        alpha, scores = (np.split(held[f"gathered.{name}"].copy(), ends) for name in Solved._fields)
        self.solved = list(map(Solved, alpha, scores))


@kernel
def go_along(weights, start, joined, t):  # type: ignore[no-untyped-def]
    """joined = weights + t (joined - start), place by place."""
    for j in range(start.size):
        joined[j] = weights[j] + t * (np.float64(joined[j]) - np.float64(start[j]))


def next_penalty(penalty: float, raw: float, groups: int) -> float:
    """1/sigma of the next pass. ``raw`` : how far along all groups' steps the dual is largest, be it beyond them:
    sigma <- sigma / sqrt(raw), at most twice as much or half."""
    change = min(STRETCH, max(1 / STRETCH, max(raw, SLOWEST) ** 0.5))
    return min(1.0, max(1 / groups, penalty * change))
