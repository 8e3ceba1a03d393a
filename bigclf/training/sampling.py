"""Rows that are kept in memory for sums that can do without the others: products with a Hessian, mostly.

Which rows they are a hash of their numbers says, so that no order of the rows can spoil the sample. The rows themselves
are a cache: another process that takes over a group, or a run that is taken up again, gathers them once more.
"""

from __future__ import annotations

import numpy as np

from bigclf.block import Block, concatenate, selected
from bigclf.training.problems import Fold


class Kept:
    """One row of ``every`` of a group.

    Attributes
    ----------
    there : bool [row of the group]; ids : int64, the rows that are kept.
    block : these rows, their ``ids`` counted from 0, once all of them have come by (``take``); else None.
    """

    def __init__(self, group_rows: int, first_row: int, every: int, seed: int) -> None:
        self.there = Fold(0, every, seed).holds(np.arange(group_rows), first_row)
        self.ids = np.flatnonzero(self.there)
        self.block: Block | None = None
        self._pieces: list[Block] = []
        self._rows = 0

    def begin(self) -> None:
        """A read begins, of all rows in their order."""
        if self.block is None:
            self._pieces, self._rows = [], 0

    def take(self, block: Block) -> None:
        """Keep what is to be kept of the block that comes next."""
        if self.block is not None:
            return
        there = self.there[block.ids]
        if there.any() and block.ids[there][0] == self.ids[min(self._rows, self.ids.size - 1)]:
            self._pieces.append(selected(block, there))
            self._rows += self._pieces[-1].n_rows
        if self._rows == self.ids.size and self._pieces:
            whole = concatenate(self._pieces)
            self.block, self._pieces = whole._replace(ids=np.arange(whole.n_rows)), []

    def places(self, block: Block) -> tuple[np.ndarray, slice]:
        """Which rows of the block are kept (bool [row]), and their places among the kept ones."""
        there = self.there[block.ids]
        n = int(there.sum())
        first = int(np.searchsorted(self.ids, block.ids[there][0])) if n else 0
        return there, slice(first, first + n)
