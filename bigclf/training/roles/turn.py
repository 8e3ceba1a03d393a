"""A learner's turn at a block, and after the data have streamed by."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from bigclf.compiled.lanes import LANES
from bigclf.maths.block import Block
from bigclf.training.roles.learner import Learner
from bigclf.training.visit import Lesson, Scratch


class Turn:
    """A learner at its lesson: the gap its inner rounds aim at, most rounds after a block and steps of conjugate
    gradients among them, seconds. ``tol`` : that of the run, or None."""

    def __init__(self, learner: Learner, lesson: Lesson, tol: float | None) -> None:
        self.learner, self.lesson, self.tol, self.aim = learner, lesson, tol, lesson.aim
        self.rounds, self.steps, self.seconds = 0, 0, 0.0

    def teach(self, scratch: Scratch, idle: Callable[[], None], block: Block) -> None:
        """Learn from a block; with every row at hand also go on, and perhaps be done."""
        began, learner = time.monotonic(), self.learner
        view = learner.view(block, scratch)
        resident = learner.plan.resident
        aim = learner.closes(view, self.lesson, self.tol) if resident else self.lesson.aim
        if aim is not None:
            self.aim = aim
            learner.learn(view, scratch)
            if resident:  # while the scores of the pass are at hand
                self._go_on(view, scratch.scores(view.n_rows), scratch, idle)
        self.seconds += time.monotonic() - began

    def learn(self, scratch: Scratch, idle: Callable[[], None], block: Block, margins: np.ndarray, place: int) -> None:
        """Go over the rows that matter by all rows' ``margins`` [row, problem], of which those at ``place`` are its."""
        began, learner = time.monotonic(), self.learner
        view = learner.view(block, scratch)
        scores = scratch.scores(view.n_rows)
        seems_done = learner.judge(view, margins, place, scores, self.tol)
        aim = learner.closes(view, self.lesson, self.tol) if seems_done else self.lesson.aim
        if aim is not None:
            self.aim = aim
            learner.before_pass(view)
            self._go_on(view, scores, scratch, idle)
        self.seconds += time.monotonic() - began

    def finish(self, scratch: Scratch, idle: Callable[[], None]) -> None:
        """After the data have streamed by, more rounds over the working set."""
        began, rows = time.monotonic(), self.learner.set
        if rows is not None:
            self._go_on(rows.block(), rows.scores, scratch, idle)
        self.seconds += time.monotonic() - began

    def _go_on(self, view: Block, scores: np.ndarray, scratch: Scratch, idle: Callable[[], None]) -> None:
        """More rounds over the rows that matter, before the next read."""
        if self.tol is not None:
            self.learner.go_on(view, scores, self.aim, scratch, idle)
            self.rounds, self.steps = map(max, (self.rounds, self.steps), self.learner.rounds)


def teach_together(turns: Sequence[Turn], scratch: Scratch, idle: Callable[[], None], block: Block) -> None:
    """Several problems with every row at hand: they look at all rows at once, and then each goes on with its own."""
    began = time.monotonic()
    margins = scratch.margins(block, [turn.learner.shared.weights for turn in turns])
    for turn in turns:
        turn.seconds += (time.monotonic() - began) / len(turns)
    for place, turn in enumerate(turns):
        turn.learn(scratch, idle, block, margins, place)
        idle()


def lots(turns: Sequence[Turn]) -> list[Sequence[Turn]]:
    """As many together as there are places."""
    return [turns[first : first + LANES] for first in range(0, len(turns), LANES)]
