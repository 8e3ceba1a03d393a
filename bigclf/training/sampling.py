"""Rows that are kept in memory for sums that can do without the others: products with a Hessian, mostly.

Which rows they are a hash of their numbers says, so that no order of the rows can spoil the sample. The rows themselves
are a cache: another process that takes over a group, or a run that is taken up again, gathers them once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigclf.maths.block import Block, selected
from bigclf.stream.raw_store import Buffer
from bigclf.training.problems import Fold

if TYPE_CHECKING:
    from bigclf.data.rows import Rows


ROOM = 1.1  # for so many times the entries that the rows have in the mean; what is never written to takes no memory


class Kept:
    """One row of ``every`` of a group.

    Parameters
    ----------
    source : of the rows; chunks : first of the group, one past its last.

    Attributes
    ----------
    there : bool [row of the group]; ids : int64, the rows that are kept.
    block : these rows, their ``ids`` counted from 0, once all of them have come by (``take``); else None.
    """

    def __init__(self, source: Rows, chunks: tuple[int, int], every: int, seed: int) -> None:
        first, last = chunks
        rows, nnz = (int(counts[first:last].sum()) for counts in (source.chunks.rows, source.chunks.nnz))
        self.there = Fold(0, every, seed).holds(np.arange(rows), int(source.chunks.row0[first]))
        self.ids = np.flatnonzero(self.there)
        self.block: Block | None = None
        self._kind = source.index_width, source.binary, source.row_constant
        self._room = int(ROOM * nnz * self.ids.size / max(1, rows))
        self._buffer: Buffer | None = None
        self._rows = self._entries = 0

    def begin(self) -> None:
        """A read begins, of all rows in their order."""
        if self.block is None:
            self._rows = self._entries = 0

    def take(self, block: Block) -> None:
        """Keep what is to be kept of the block that comes next."""
        if self.block is not None:
            return
        there = self.there[block.ids]
        if there.any() and block.ids[there][0] == self.ids[min(self._rows, self.ids.size - 1)]:
            self._put(selected(block, there))
        if self._rows == self.ids.size and self._buffer is not None:
            whole, self._buffer = self._buffer.block(self._rows, self._entries), None
            self.block = whole._replace(ids=np.arange(whole.n_rows))

    def _put(self, rows: Block) -> None:
        """To where they stay: pieces that are joined in the end would take the memory twice."""
        entries = self._entries + rows.nnz
        if self._buffer is None or entries > self._room:
            self._room = max(self._room, int(ROOM * entries))
            before, self._buffer = self._buffer, Buffer(self.ids.size, self._room, *self._kind)
            if before is not None:  # these rows are longer than others
                self._buffer.put(before.block(self._rows, self._entries), 0, 0)
        self._buffer.put(rows, self._rows, self._entries)
        self._rows, self._entries = self._rows + rows.n_rows, entries

    def places(self, block: Block) -> tuple[np.ndarray, slice]:
        """Which rows of the block are kept (bool [row]), and their places among the kept ones."""
        there = self.there[block.ids]
        n = int(there.sum())
        first = int(np.searchsorted(self.ids, block.ids[there][0])) if n else 0
        return there, slice(first, first + n)
