"""What a problem keeps of each row of a group: in memory, or on disk behind a window on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigclf.maths.block import Block, Counts
from bigclf.maths.mixing import settled
from bigclf.stream.row_files import RowStore, Window
from bigclf.stream.working_set import WorkingSet
from bigclf.training.plan import Plan
from bigclf.training.problems import Problem
from bigclf.training.visit import copied


class Followed:
    """A kernel that says how far it moves the row state: ``moves`` += ``along(rows) - along(rows before)``."""

    def __init__(self, kernel: Callable[..., Counts], along: Callable[..., np.ndarray], state: RowState) -> None:
        self.kernel, self.along, self.state = kernel, along, state
        self.moves = np.zeros(2)  # gain and bend so far

    def __call__(
        self, view: Block, order: np.ndarray, shared: object, rows: object, params: object, scores: np.ndarray
    ) -> Counts:
        self.moves -= self.along(view, order, rows, self.state.start, params)
        counts = self.kernel(view, order, shared, rows, params, scores)
        self.moves += self.along(view, order, rows, self.state.start, params)
        return counts


class RowState:
    """The per-row arrays of a problem in a group.

    Parameters
    ----------
    problem, plan, number, group, group_rows : as of ``Learner``.
    store : where the arrays are, if not in memory; then ``rows`` are a window on them, and a block's ``ids`` places in
        it. held : the working set, whose rows stay at hand, or None.
    steps_back : whether it is decided after an epoch how far the arrays go along their step.
    """

    def __init__(
        self,
        problem: Problem,
        plan: Plan,
        number: int,
        group: int,
        group_rows: int,
        store: RowStore | None = None,
        held: WorkingSet | None = None,
        steps_back: bool = False,
    ) -> None:
        self.steps_back = steps_back
        self.rows: Any = ()
        self.start: Any = ()  # of several groups: as they were at the start of the epoch
        self.window: Window | None = None
        self.ids = self.placed = np.empty(0, np.int64)  # of the block seen last: its rows' numbers, their places
        if store is None:
            self.rows = problem.setting.rows(group_rows)
        else:
            which = None if len(plan.groups) == 1 else group
            self.window = Window(store, number, plan.groups[group], problem.setting.rows(0), held, which)
            self.rows = self.window.rows

    def see(self, view: Block) -> Block:
        """The block with the places of its rows as ids; what is on disk is fetched."""
        self.ids = self.placed = view.ids
        if self.window is None:
            return view
        self.placed = self.window.load(view.ids)
        self._look_through()
        return view._replace(ids=self.placed)

    def numbers(self, view: Block) -> np.ndarray:
        """Numbers in the group of the rows of the block seen last."""
        return view.ids if self.window is None else self.ids

    def _look_through(self) -> None:
        """The arrays are those that the window has at hand."""
        assert self.window is not None
        self.rows = self.window.rows
        if self.steps_back:
            self.start = self.window.before

    @property
    def before(self) -> Any:
        """Of rows on disk, as they were at the start of the read."""
        assert self.window is not None
        return self.window.before

    def begin(self, keep: bool, still: bool) -> None:
        """An epoch begins; ``keep`` : the arrays are asked for as they are now, ``still`` : and do not change."""
        if self.window is not None:
            self.window.begin(keep=self.steps_back or (keep and not still), still=still)
            self._look_through()
        elif self.steps_back:
            self.start = copied(self.rows, self.start)

    def grow(self) -> None:
        """The working set has grown."""
        if self.window is not None:
            self.window.grow()
            self._look_through()

    def done(self) -> None:
        """A block has been learned from."""
        if self.window is not None:
            self.window.keep()

    def rest(self) -> None:
        """Another group is visited: of arrays on disk only the working set's rows stay at hand."""
        if self.window is not None:
            self.window.rest()
            self._look_through()

    def settle(self, t: float) -> None:
        """Go only a part of the way that the last epoch went: start + t (rows - start)."""
        if t == 1.0:
            return
        if self.window is not None:
            self.window.settle(t)
            self._look_through()
            return
        for now, before in zip(self.rows, self.start, strict=True):
            now[:] = settled(before, now, t)

    # To a file and back

    def arrays_before(self) -> dict[str, Any]:
        """The arrays as they were at the start of the epoch, where it is decided later how far they go."""
        if not self.steps_back:
            return {}
        if self.window is not None:
            return dict(self.window.arrays(before=True))
        return _named(self.start)

    def arrays(self, midway: bool, before: object = None) -> dict[str, Any]:
        """All of them, in the middle of an epoch also as they were at its start: what is kept of it, or
        ``before`` (None: a certificate does not ask for it)."""
        held: dict[str, Any] = _named(self.rows)
        start: dict[str, Any] = _named(self.start or before or ())
        if self.window is not None:
            has_start = before is not None or self.steps_back
            held, start = self.window.arrays(), self.window.arrays(before=True) if has_start else {}
        found = {f"rows.{name}": array for name, array in held.items()}
        return found | ({f"start.rows.{name}": array for name, array in start.items()} if midway else {})

    def restore(self, held: dict[str, np.ndarray], starts: bool) -> None:
        """Take up what ``arrays`` gave; ``starts`` : whether a start in memory is of use."""
        if not self.rows:
            return
        names = [f"rows.{name}" for name in self.rows._fields]
        has_start = f"start.{names[0]}" in held
        if self.window is not None:
            start = [held[f"start.{name}"] for name in names] if has_start else None
            self.window.restore([held[name] for name in names], start)
            self._look_through()
            return
        self.rows = type(self.rows)(*(held[name].copy() for name in names))
        if has_start and starts:
            self.start = type(self.rows)(*(held[f"start.{name}"].copy() for name in names))


def _named(rows: Any) -> dict[str, np.ndarray]:
    return dict(zip(getattr(rows, "_fields", ()), rows, strict=True))
