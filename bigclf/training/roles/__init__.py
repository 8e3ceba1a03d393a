"""What a kind of method asks of training, each in a file: ``online``, ``dual`` and ``steps``.

A ``Learner`` has a problem in a group of rows, on a worker: what it does with a block. A ``Conductor`` has a problem at
the driver: what its next visits are told, and what becomes of what came together. Read ``learner`` and ``conductor``
first, which say what every kind does; ``row_state`` has what is kept of each row, ``scaled_trial`` tries weights that a
run may end with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigclf.compiled.jit import inner
from bigclf.data.rows import Rows
from bigclf.maths.block import Block, gather_rows, room_for_rows
from bigclf.maths.losses import Loss
from bigclf.maths.mixing import Weights
from bigclf.methods.dual.subspace_ascent import SubspaceAscent
from bigclf.methods.method import LEARN, Dual, Given, Online, Role, Steps
from bigclf.training.plan import Plan
from bigclf.training.problems import Problem
from bigclf.training.roles.conductor import Conductor, Limits
from bigclf.training.roles.dual import DualConductor, DualLearner
from bigclf.training.roles.gathered import GatheredConductor, GatheredLearner, go_along
from bigclf.training.roles.learner import Assignment, Learner
from bigclf.training.roles.online import OnlineConductor, OnlineLearner
from bigclf.training.roles.steps import CollectingLearner, StepsConductor, SumsLearner
from bigclf.training.visit import SCALES, Scratch, Tried, copied


def conductor_of(number: int, problem: Problem, plan: Plan, limits: Limits, source: Rows) -> Conductor:
    """Whoever has a problem at the driver, by what its method does."""
    how = problem.setting.method.how
    if plan.gathered:
        return GatheredConductor(number, problem, plan, limits, source)
    kinds: dict[type, type[Conductor]] = {Online: OnlineConductor, Dual: DualConductor, Steps: StepsConductor}
    return kinds[type(how)](number, problem, plan, limits)


def learner_of(given: Assignment) -> Learner:
    """Whoever has a problem in a group, by what its method does."""
    kinds: dict[type, type[Learner]] = {Online: OnlineLearner, Dual: DualLearner, Steps: CollectingLearner}
    method = given.problem.setting.method
    kind = GatheredLearner if given.plan.gathered else SumsLearner if method.by_sums else kinds[type(method.how)]
    return kind(given)


def gather_of(problem: Problem) -> Callable[[object, int], object] | None:
    """What puts together what groups have collected, where the method collects."""
    setting = problem.setting
    how, loss = setting.method.how, setting.method.loss_of(setting.loss)
    return how.collection.gather(loss) if isinstance(how, Steps) and how.collection is not None else None


def role_calls(
    how: Role, loss: Loss | None, block: Block, shared: Any, rows: Any, params: Any
) -> list[Callable[[], object]]:
    """What is called beside the kernel of an update, in the order of need."""
    calls: list[Callable[[], object]] = []
    if isinstance(how, Dual):
        calls.append(lambda: inner(shared.weights.reshape(-1), shared.weights.reshape(-1)))
        calls.append(lambda: inner(np.empty(0), np.empty(0)))
    if not isinstance(how, Online) and how.scaled is not None:
        scaled = how.scaled
        calls.append(lambda: scaled(loss)(block, Tried(shared.weights), params, 0.0, SCALES, np.zeros(SCALES.size)))
    if isinstance(how, Dual):
        certify = how.certify
        calls.append(lambda: certify(loss)(block, shared, rows, params, np.zeros(shared.weights.shape), 0.0))
    if isinstance(how, Steps):
        steps = how
        calls.append(lambda: _take_step(steps, loss, block, copied(shared, None), params))
    return calls


def update_states(how: Role, shared: object) -> list[object]:
    """States with which an update calls all of its kernels, the one that it begins with last."""
    return how.kinds(shared) if isinstance(how, Steps) and how.kinds is not None else [shared]


def learns(how: Role, states: list[object]) -> bool:
    """Whether a read of such states learns from rows, in an order that is drawn."""
    return not isinstance(how, Steps) or not how.sums or any(how.reading(state) == LEARN for state in states)


def looking_together(how: Role, loss: Loss | None, block: Block, shared: Weights, rows: object, params: object) -> None:
    """Call what problems call that look at rows together, on the rows of ``block``."""
    assert isinstance(how, Dual) and how.judge is not None
    margins, scores = Scratch(0).margins(block, [shared.weights]), np.empty(block.n_rows)
    how.judge(loss)(block, margins, 0, shared, rows, params, scores)
    gather_rows(block, np.arange(block.n_rows), room_for_rows(block, block.n_rows, block.nnz))


def solving_together(how: Dual, loss: Loss | None, block: Block, shared: Weights, rows: object, params: object) -> None:
    """Call what solves the working sets of several groups in one place, on no rows of ``block``."""
    start = shared.weights.astype(np.float64), shared.weights, copied(shared, None).weights
    go_along(*start, 1.0)
    on = how.span(loss)
    if on is not None:
        moves = SubspaceAscent(on, block, np.empty(0, np.int64), copied(shared, None), rows, params)
        moves.step()  # no gain: it stays
        moves.take(0)


def update_callees(
    how: Role, loss: Loss | None, block: Block, shared: object, params: object
) -> list[Callable[[], object]]:
    """Calls of the kernels that the one of an update calls, where they take long to compile."""
    return how.callees(loss, block, shared, params) if isinstance(how, Steps) and how.callees is not None else []


def _take_step(how: Steps, loss: Loss | None, block: Block, shared: object, params: object) -> None:
    """The step between two reads, after what is collected of rows where it is."""
    if how.collection is None:
        how.absorb(loss)(shared, params, *([Given(None, 0.0, 0)] if how.aims else []))
        return
    how.absorb(loss)(shared, params, Given(None, 0.0, 0))  # after a read for sums the next one collects
    found = how.collection.gather(loss)(shared, 0)
    found.append(how.collection.collect(loss)(block, np.empty(0, np.int64), shared, params))
    how.absorb(loss)(shared, params, Given(found, 0.0, 0))
