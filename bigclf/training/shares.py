"""A bench whose problems come and go one by one: of a run of one group, some are learned here and some elsewhere.

Every problem has its own state, its own row state and its own random numbers, by its number in the run, and the plan is
that of all of them. So a problem has the same bits whoever learns it, and beside whichever others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bigclf.maths.deltas import Delta, State, apply
from bigclf.maths.mixing import Weights
from bigclf.training.core_team import Team
from bigclf.training.executor import Bench, Job, Missing
from bigclf.training.roles.learner import Learner
from bigclf.training.validation import Candidate, Sums, measure_all
from bigclf.training.visit import Carry, Outcome, Ref, Visit


class Standing(NamedTuple):
    """Where a problem is.

    token : of the round that visited it last; "": none did.
    state : what the next visit begins with, or its ``Delta`` to the state at the very beginning; None: as the last
        visit left it.
    rows, shared : what it carries, as in ``Carry``; None where the process is thought to have it.
    """

    token: str
    state: Any = None
    rows: dict[str, Any] | None = None
    shared: dict[str, Any] | None = None


class ShareBench(Bench):
    """A place to visit a share of the problems of a run with one group.

    job : that of all problems. idle : as of ``Bench``.
    """

    def __init__(self, job: Job, idle: Callable[[], None] = lambda: None) -> None:
        super().__init__(job, idle)
        self._stand: dict[int, str] = {}  # the round each problem is at
        self._states: dict[int, Any] = {}

    def visit_share(self, visit: Visit, standings: Mapping[int, Standing], token: str) -> Outcome:
        """Visit the problems of ``visit``, each of which goes on from its standing; as ``visit``. Standings are also of
        those whose dual variables some begin with.

        Raises
        ------
        Missing : a standing lacks what this process lacks, too.
        """
        self._bring_all(visit, standings)
        for number in visit.todo:  # half-way through, it is nothing to go on from
            self._stand.pop(number, None)
        outcome = self.visit(visit, [self._states[number] for number in visit.todo], [None], token)
        for number in visit.todo:
            self._stand[number], self._states[number] = token, self._of(0)[number].shared
        return outcome

    def carry_share(self, visit: Visit, midway: bool) -> Carry:
        """What the problems of ``visit`` carry as they stand (views, not copies), in its order."""
        learners = [self._of(0)[number] for number in visit.todo]
        rows = [learner.carried_rows(midway) for learner in learners]
        return Carry(rows, [learner.carried_state() for learner in learners] if midway else None)

    def judge(self, candidates: Sequence[Candidate], measure: str) -> list[Sums]:
        """The sums of each candidate over all rows, from memory where they stay there."""
        first = int(self.source.chunks.row0[0])
        rows = iter([(first, self._loaded(0))]) if self.plan.resident else self.everything()
        with contextlib.closing(Team(1)) as team:
            return measure_all(candidates, rows, self.source.classes, team, measure, self.idle)

    def fresh_state(self, number: int) -> Weights:
        """The state at the very beginning."""
        state: Weights = self.problems[number].setting.shared(self.source.n_features, self.plan.dtype)
        return state

    def bring(
        self,
        group: int,
        ref: Ref | None,
        carry: Carry | None,
        visit: Visit | None = None,
        states: Sequence[Weights] = (),
    ) -> None:
        """Nothing: each problem was brought by itself."""

    # Standings

    def _bring_all(self, visit: Visit, standings: Mapping[int, Standing]) -> None:
        for number, at in standings.items():
            if self._lacks(number, at, visit):
                raise Missing(f"problem {number} at {at.token!r}, here is {self._stand.get(number)!r}")
        moved = {number: at for number, at in standings.items() if not self._is_here(number, at)}
        if any(at.rows for at in moved.values()):
            self.decode([0])
        learners = [self._taken_up(number, at) for number, at in moved.items()]
        if any(learner.set is not None and learner.set.n_rows for learner in learners):
            self._gather(0, learners)
        for number, at in standings.items():
            if at.state is not None and number not in moved:
                self._states[number] = self._whole(number, at.state)

    def _is_here(self, number: int, at: Standing) -> bool:
        return bool(at.token) and self._stand.get(number) == at.token

    def _lacks(self, number: int, at: Standing, visit: Visit) -> bool:
        if not at.token or self._is_here(number, at):
            return False
        carries = self._keeps or visit.segment > 0 or number not in visit.todo
        return (at.rows is None and carries) or (at.state is None and number in visit.todo)

    def _taken_up(self, number: int, at: Standing) -> Learner:
        """A learner of the problem that stands there, made anew."""
        learner = self._of(0)[number] = self._learner(number, 0)
        state = self._whole(number, at.state)
        if at.rows:
            learner.restore_rows(at.rows)
        if at.shared:
            learner.restore_state(at.shared, state)
        self._states[number] = learner.shared if at.shared else state
        if at.state is not None:  # else others begin with its rows, and that is all
            self._stand[number] = at.token
        return learner

    def _whole(self, number: int, state: State | Delta | None) -> Weights:
        """A state that was sent, in arrays of its own; None: the first one."""
        if state is not None and not isinstance(state, Delta):
            own: Any = type(state)(*(array.copy() for array in state))
            return own  # type: ignore[no-any-return]
        found = self.fresh_state(number)
        if state is not None:
            apply(found, state)
        return found
