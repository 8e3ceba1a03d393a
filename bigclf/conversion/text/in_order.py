"""Rows of sparse text as blocks in their order, parsed ahead in threads and written down nowhere."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from bigclf import files
from bigclf.compiled.jit import compiling
from bigclf.conversion.text.parsed import Options, as_slab
from bigclf.conversion.text.pieces import BOM, NEWLINE, Bad, Source, Task, blocks_of, first_text, located, tasks_of
from bigclf.conversion.text.readers import Reader
from bigclf.errors import DataError
from bigclf.limits import cores
from bigclf.maths.block import NO_SCALES, Block, one_value_a_row

MOST_THREADS = 4  # the rows of one thread keep several busy
ANY, ALIKE, DIFFER = 0, 1, 2  # rows of ones; of one value each; a row with two that differ


class Differing(Exception):
    """Rows had one value each so far, and were scored as such; from the beginning on they are to be taken as others."""


class Rows(NamedTuple):
    """Some rows: a block that scores can be made of (norms, ids and weights are left out), bytes and lines of text that
    they were, whether there was a ``qid:``, and whether values differ in a row (``ANY``, ``ALIKE`` or ``DIFFER``)."""

    block: Block
    n_bytes: int
    n_lines: int
    queries: bool
    values: int


class _Made(NamedTuple):
    rows: Rows
    bad: list[Bad]


class TextRows:
    """A file of sparse text, whose rows are the same, to the bit, as of the shards that it would become.

    Where no row has two values that differ, shards hold one value a row, and a score is that value times a sum. So a
    file that began so and goes on otherwise is to be begun again, see ``Differing``.

    Parameters
    ----------
    source : the file, as ``look_at`` found it.
    reader, options : what its text is.
    max_line : bytes of the longest record.
    """

    def __init__(self, source: Source, reader: Reader, options: Options, max_line: int) -> None:
        with compiling():
            as_slab(reader.parse(reader.example, options))
        if reader.prepare is not None:
            options = reader.prepare(first_text(source, max_line, reader.record), options)
        self.source, self._reader, self._options, self._max_line = source, reader, options, max_line
        self.differ = False  # known from an attempt before

    def pieces(self, done: int, n_lines: int, values: int) -> Iterator[Rows | None]:
        """The rows behind ``done`` tasks, which had so many lines and such ``values``; None behind each task.

        Raises
        ------
        DataError : a line that is no row, with its number. Differing : call it again from the beginning.
        """
        state = DIFFER if self.differ else values
        for made in _ahead(self._parse, self._texts(done)):
            if made is None:
                yield None
                continue
            rows, bad = made
            if bad:
                raise DataError(bad[0].reason, file=self.source.path, line=bad[0].line + n_lines)
            n_lines += rows.n_lines
            if rows.values == DIFFER and state == ALIKE:
                self.differ = True
                raise Differing
            state = state or rows.values
            yield (
                rows._replace(block=_alike(rows.block), values=state) if state == ALIKE else rows._replace(values=state)
            )

    def check_unchanged(self) -> None:
        """DataError if the file is another one by now."""
        if files.status(self.source.path) != (self.source.size, self.source.mtime_ns):
            raise DataError("the file changed while it was read; call it again", file=self.source.path)

    def _texts(self, done: int) -> Iterator[tuple[Task, bytes] | None]:
        """Texts of whole records, None behind each task."""
        tasks = tasks_of(self.source, 1, self._max_line, self._reader.record)
        for task in itertools.islice(tasks, done, None):
            for _, text in blocks_of(task, self._max_line, self._reader.record):
                yield task, text
            yield None

    def _parse(self, task: Task, text: bytes, begins: bool) -> _Made:
        mark = len(BOM) if begins and task.first == 0 and text.startswith(BOM) else 0
        parsed = self._reader.parse(text[mark:] if mark else text, self._options)
        slab, _ = as_slab(parsed)
        n_lines = int(np.count_nonzero(np.frombuffer(text, np.uint8) == NEWLINE))
        nothing = np.empty(0)
        block = Block(slab.indptr, slab.indices, slab.values, slab.labels, nothing, nothing, np.empty(0, np.int64))
        values = ANY
        if slab.values.size:
            values = DIFFER if one_value_a_row(slab.indptr, slab.values)[0].size else ALIKE
        return _Made(Rows(block, len(text), n_lines, parsed.queries, values), located(text, mark, parsed.bad, 0))


def _alike(block: Block) -> Block:
    values, scales = one_value_a_row(block.indptr, block.values)
    return block._replace(values=values, scales=scales if scales.size else NO_SCALES)


def _ahead(
    parse: Callable[[Task, bytes, bool], _Made], texts: Iterator[tuple[Task, bytes] | None]
) -> Iterator[_Made | None]:
    """What the texts become, in their order, while the next ones are under way."""
    threads = max(1, min(MOST_THREADS, cores()))
    waiting: collections.deque[Future[_Made] | None] = collections.deque()
    begins = True  # of a task
    with ThreadPoolExecutor(threads) as pool:
        try:
            for text in texts:
                waiting.append(None if text is None else pool.submit(parse, *text, begins))
                begins = text is None
                while len(waiting) > threads + 1:
                    yield _result(waiting.popleft())
            while waiting:
                yield _result(waiting.popleft())
        finally:
            for each in waiting:
                if each is not None:
                    each.cancel()


def _result(future: Future[_Made] | None) -> _Made | None:
    return None if future is None else future.result()
