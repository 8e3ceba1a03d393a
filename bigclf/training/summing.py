"""Reads for sums over rows: what ``Bench`` does for methods that take their steps from sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from bigclf.data.rows import Rows
from bigclf.maths.block import Block
from bigclf.methods.method import AGAIN, LEARN, SUM
from bigclf.stream.blocks import Stream
from bigclf.training.core_team import Team
from bigclf.training.plan import Plan
from bigclf.training.roles.steps import SumsLearner
from bigclf.training.sampling import Kept
from bigclf.training.visit import Scratch, Visit

SMALL_BLOCK = 50_000  # entries: less work than it is to hand it to another thread
Work = Callable[[Scratch], None]
Blocks = Callable[[bool], Iterator[Block]]  # of a visit to a group; told whether the order of rows is drawn


class Summing:
    """A process's reads for sums, and the rows that it keeps for products between them."""

    def __init__(
        self,
        plan: Plan,
        source: Rows,
        stream: Stream,
        team: Team,
        idle: Callable[[], None],
        advance: Callable[[int, int], None],
    ) -> None:
        self.plan, self.source, self.stream, self.team = plan, source, stream, team
        self.idle, self.advance = idle, advance
        self._kept: dict[int, Kept] = {}

    def forget(self) -> None:
        """Let go of the rows that are kept."""
        self._kept = {}

    def go(self, visit: Visit, group: int, learners: list[SumsLearner], blocks: Blocks) -> dict[int, float]:
        """The sums that learners of a method ask for that takes its steps from sums; some may still learn. Returns the
        seconds of a core that each problem took."""
        kept = self._kept_of(group) if self.plan.every > 1 else None
        again = [learner for learner in learners if kept is not None and learner.reading == AGAIN]
        others = [learner for learner in learners if learner not in again]
        for learner in learners:
            learner.begin_sums()
        if self.plan.resident:
            block = next(blocks(False))
            work = [piece for learner in others for piece in learner.pieces(block)]
            if kept is not None:
                work += [piece for one in again for piece in one.pieces_again(kept, block)]
            self._together(work, learners, block)
        elif others:
            self._stream(visit, others, kept, blocks)
        if again and kept is not None and not self.plan.resident and visit.segment == self.plan.segments - 1:
            self._gather_kept(group, again, kept)
            work = [piece for learner in again for piece in learner.pieces_again(kept, None)]
            self._together(work, again, kept.block)
        for learner in learners:
            learner.join_parts()
        return {learner.number: learner.seconds_taken() for learner in learners}

    def _stream(self, visit: Visit, learners: list[SumsLearner], kept: Kept | None, blocks: Blocks) -> None:
        if kept is not None and visit.segment == 0:
            kept.begin()
        keeping = [learner for learner in learners if kept is not None and learner.reading == SUM]
        learning = all(learner.reading == LEARN for learner in learners)  # then the order has a part in the result
        for block in blocks(learning):
            work = [piece for learner in learners for piece in learner.pieces(block)]
            self._together(work, learners, block)
            if kept is not None and keeping:
                kept.take(block)
                for learner in keeping:
                    learner.keep_values(kept, block)

    def _together(self, work: list[Work], learners: Sequence[SumsLearner], block: Block | None) -> None:
        """Pieces of work on a block, side by side where that is worth it: the bits are the same."""
        assert block is not None
        self.team.do(work, self.idle, apart=block.nnz >= SMALL_BLOCK)
        for learner in learners:
            learner.block_done()
        self.advance(block.n_rows, block.n_bytes)

    def _kept_of(self, group: int) -> Kept:
        if group not in self._kept:
            self._kept[group] = Kept(self.source, self.plan.groups[group], self.plan.every, self.plan.seed)
        return self._kept[group]

    def _gather_kept(self, group: int, learners: list[SumsLearner], kept: Kept) -> None:
        """Rows that are to be kept, and their values, where this process has not seen them all."""
        lacking = [learner for learner in learners if learner.kept_rows != kept.ids.size]
        if kept.block is not None and not lacking:
            return
        kept.begin()
        for learner in lacking:
            learner.kept_rows = 0
        first, last = self.plan.groups[group]
        for block in self.stream.blocks([np.array([chunk]) for chunk in range(first, last)]):
            kept.take(block)
            for learner in lacking:
                learner.view(block)
                learner.keep_values(kept, block)
