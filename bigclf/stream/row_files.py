"""Per-row arrays on disk: dual variables of more rows than memory has room for.

A ``RowStore`` is one nameless file with a place for every chunk: the arrays of each problem, one after another. It has
two sides; where a read still needs the arrays as they were at its start, what is new goes to the other side. Slices
are read and written with ``pread`` and ``pwrite`` beside the chunk's own record, checked against checksums, and dropped
from the page cache behind; nothing is mapped. All room is taken at the beginning, so that a disk cannot be full later
on. The file is no checkpoint: it goes with the process, and ``Window.arrays`` is what a checkpoint is written from.

A ``Window`` is what a learner has of it in memory: the values of the rows of its working set, which change whatever
block is at hand, and those of the block at hand; each of several groups has its own, on its chunks. Rows that leave the
working set wait until their chunk is next read: in memory, and where they are many in sorted runs behind the file's
other places. Only where there is no room for another run all that wait are written to their places, in the order of the
file.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, SupportsIndex, overload

import numpy as np

from bigclf import files
from bigclf.errors import RunError
from bigclf.maths.deltas import State
from bigclf.maths.mixing import settled
from bigclf.stream.raw_store import _checksum
from bigclf.stream.working_set import WorkingSet
from bigclf.units import format_bytes

LAG, BEHIND = 1 << 24, 1 << 26  # bytes before the page cache forgets; where they lie in sequence, what it is told of
WAITING = 0.5  # rows that left the working set and wait in memory: at most so many times its own, but for a block's
RUNS = 32  # ... and as many runs of them on disk: a read makes ten or twenty


def waiting_bytes(fields: int, copies: int = 1) -> int:
    """Memory for a row of the working set, of ``fields`` numbers: its values (``copies`` : 2 where they are also kept
    as they were), and its part of the rows that wait and are put in order."""
    return 8 * fields * copies + int(2 * WAITING * (8 + 8 * fields)) + 16


def chunk_bytes(sides: int) -> int:
    """Memory for a chunk of a problem: which side is which, checksums, and where each run has its rows."""
    return 3 + 9 * sides + RUNS * 13


def bytes_of(rows: int, problems: int, fields: int, sides: int, set_rows: int, groups: int = 1) -> int:
    """Disk that a ``RowStore`` takes."""
    return 8 * problems * (rows * fields * sides + groups * RUNS * run_rows(set_rows) * (1 + fields))


def run_rows(set_rows: int) -> int:
    """Rows of a run at most."""
    return int(WAITING * set_rows) + set_rows // 4


class RowStore:
    """Arrays float64 [row] or [row, class] of some problems, in a file; zeros at first.

    Parameters
    ----------
    rows : int64 [chunk], the rows of each.
    problems : those that have such arrays; fields : numbers that all arrays of a problem hold of a row.
    sides : 2 where a problem is ever to keep the arrays as they were (``begin``), else 1.
    set_rows : of the largest working set.
    directory : where the file lies.
    cache : bytes that may stay in the system's page cache.
    groups : windows that a problem has.

    Raises
    ------
    RunError : there is no room for it.
    """

    def __init__(
        self,
        rows: np.ndarray,
        problems: int,
        fields: int,
        sides: int,
        directory: str,
        set_rows: int = 0,
        cache: int = 0,
        groups: int = 1,
    ) -> None:
        self.rows, self.fields, self.directory = rows, fields, directory
        self.first = np.concatenate([[0], np.cumsum(rows)])
        self._row = 8 * fields * problems
        total = int(self.first[-1])
        self.n_bytes = bytes_of(total, problems, fields, sides, set_rows, groups)
        self._one_side, self._runs = total * self._row, sides * total * self._row
        self.run_rows = run_rows(set_rows)
        shape = problems, rows.size
        self._side = np.zeros(shape, np.uint8)  # that has the arrays as they are
        self._moved = np.zeros(shape, np.bool_)  # the other one has them as they were
        self._keeps = np.zeros(shape, np.bool_)
        self._written = np.zeros((sides, *shape), np.bool_)
        self._sums = np.zeros((sides, *shape), np.uint64)
        self._drop = self.n_bytes > cache
        self._passed: deque[tuple[int, int]] = deque()
        self._lag, self._end, self._lock = 0, 0, threading.Lock()
        self._groups = groups
        self._coming: dict[int, np.ndarray] = {}
        self.descriptor = files.unlinked_file(directory)
        try:
            files.reserve(self.descriptor, self.n_bytes)
        except OSError as error:
            self.close()
            free = format_bytes(files.free_bytes(directory))
            raise RunError(
                f"the dual variables need {format_bytes(self.n_bytes)} of disk in {directory!r}, which has {free} free "
                f"({error.strerror}): name another directory (local_dir), or give more memory"
            ) from error

    def begin(self, number: int, chunks: range, keep: bool) -> None:
        """From here on the problem's arrays of these chunks as they are now stay readable (``keep``), or need not."""
        here = number, slice(chunks.start, chunks.stop)
        self._moved[here], self._keeps[here] = False, keep

    def clear(self, number: int, chunks: range) -> None:
        """The problem's arrays of these chunks are zeros."""
        self._written[:, number, chunks.start : chunks.stop] = False
        self.begin(number, chunks, False)

    def read(self, number: int, chunk: int, into: list[np.ndarray], before: bool = False) -> None:
        """Bring a chunk's slice of each array; ``before`` : as they were at ``begin``.

        Raises
        ------
        RunError : the bytes are not those that were written.
        """
        side = int(self._side[number, chunk]) ^ int(before and self._moved[number, chunk])
        if not self._written[side, number, chunk]:
            for array in into:
                array[:] = 0
            return
        offset, views = self._offset(side, number, chunk), [memoryview(array).cast("B") for array in into]
        try:
            whole = files.read_all(self.descriptor, views, offset)
        except OSError as error:
            raise self._error("cannot be read", error) from error
        if not whole or _checksum(views) != self._sums[side, number, chunk]:
            raise self._damaged(chunk)
        self._pass(offset, sum(view.nbytes for view in views))

    def write(self, number: int, chunk: int, values: list[np.ndarray]) -> None:
        """Put down a chunk's slice of each array; RunError where that fails."""
        if self._keeps[number, chunk] and not self._moved[number, chunk]:
            self._side[number, chunk] ^= 1
            self._moved[number, chunk] = True
        side = int(self._side[number, chunk])
        offset, views = self._offset(side, number, chunk), [memoryview(array).cast("B") for array in values]
        try:
            files.write_all(self.descriptor, views, offset)
        except OSError as error:
            raise self._error("cannot be written", error) from error
        self._sums[side, number, chunk], self._written[side, number, chunk] = _checksum(views), True
        self._pass(offset, sum(view.nbytes for view in views))

    def _offset(self, side: int, number: int, chunk: int) -> int:
        within = number * 8 * self.fields * int(self.rows[chunk])
        return side * self._one_side + int(self.first[chunk]) * self._row + within

    def write_run(self, slot: int, run: np.ndarray) -> None:
        """Put down a run: float64 [row, 1 + array]."""
        try:
            files.write_all(self.descriptor, [memoryview(run).cast("B")], self._run_offset(slot))
        except OSError as error:
            raise self._error("cannot be written", error) from error

    def read_run(self, slot: int, first: int, last: int, sum_: int, chunk: int) -> np.ndarray:
        """Rows first:last of a run, whose checksum is ``sum_``; errors as for ``read``."""
        found = np.empty((last - first, 1 + self.fields))
        views = [memoryview(found).cast("B")]
        offset = self._run_offset(slot) + first * found.itemsize * found.shape[1]
        try:
            whole = files.read_all(self.descriptor, views[:], offset)
        except OSError as error:
            raise self._error("cannot be read", error) from error
        if not whole or _checksum(views) != sum_:
            raise self._damaged(chunk)
        return found

    def _run_offset(self, slot: int) -> int:
        return self._runs + slot * self.run_rows * 8 * (1 + self.fields)

    def _damaged(self, chunk: int) -> RunError:
        return RunError(
            f"the dual variables in {self.directory!r} (chunk {chunk}) are not as they were written: the disk or "
            "memory is faulty; resume the run from its last checkpoint"
        )

    def _error(self, what: str, error: OSError) -> RunError:
        return RunError(
            f"the dual variables in {self.directory!r} {what} ({error.strerror}); "
            "what the run directory holds is whole: resume from there"
        )

    def slots(self, number: int, group: int) -> range:
        """Where a group of a problem may put runs."""
        first = (number * self._groups + group) * RUNS
        return range(first, first + RUNS)

    def expect(self, units: list[np.ndarray]) -> None:
        """In this order blocks of chunks will be read: the next one is fetched while one is worked on."""
        self._coming = {int(here[0]): coming for here, coming in zip(units, units[1:], strict=False)}

    def advise(self, chunk: int) -> None:
        """The block that begins with ``chunk`` is at hand."""
        for coming in self._coming.pop(chunk, np.empty(0, np.int64)).tolist():  # the first of the problems says it
            size = int(self.rows[coming]) * self._row
            for side in np.unique(self._side[:, coming]).tolist():
                files.fetch_ahead(self.descriptor, self._offset(side, 0, coming), size)

    def _pass(self, offset: int, size: int) -> None:
        """The page cache may forget what was used a while ago; by then what was written is on its way to the disk.

        The system forgets only pieces that are named whole, and in sequence makes them larger than a slice: then all
        of the stretch behind is named.
        """
        if not self._drop:
            return
        files.drop_cache(self.descriptor, offset, size)  # of what was written: sends it on its way
        with self._lock:
            self._passed.append((offset, size))
            self._lag += size
            while self._lag > LAG:
                first, length = self._passed.popleft()
                self._lag -= length
                stretch = BEHIND if first == self._end else 0
                self._end = first + length
                files.drop_cache(self.descriptor, max(0, first - stretch), self._end - max(0, first - stretch))

    def close(self) -> None:
        if self.descriptor >= 0:
            files.close_descriptor(self.descriptor)
            self.descriptor = -1


class RowState(State, Protocol):
    """A NamedTuple of arrays [row, ...], alike in their shapes."""

    _fields: ClassVar[tuple[str, ...]]

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, place: SupportsIndex, /) -> np.ndarray: ...

    @overload
    def __getitem__(self, place: slice, /) -> tuple[np.ndarray, ...]: ...


class FiledArray:
    """An array [row, ...] that is read in pieces: what a checkpoint is written from and restored from.

    shape, dtype : as of an array; ``array[a:b]`` : rows a to b; ``edges`` : where its pieces begin and end; ``tail`` :
    its shape but for the rows.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, edges: np.ndarray, read: Callable[[int, int], np.ndarray], tail: tuple[int, ...] = ()) -> None:
        self.edges, self._read = edges, read
        self.shape = (int(edges[-1]), *tail)
        self.nbytes = 8 * math.prod(self.shape)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self._read(rows.start, rows.stop)

    def pieces(self) -> Iterator[np.ndarray]:
        for first, last in zip(self.edges.tolist(), self.edges.tolist()[1:], strict=False):
            yield self[first:last]


@dataclass(frozen=True)
class Between:
    """Reads rows a to b of two arrays, ``t`` of the way from the one to the other."""

    before: np.ndarray | FiledArray
    after: np.ndarray | FiledArray
    t: float

    def __call__(self, a: int, b: int) -> np.ndarray:
        return settled(self.before[a:b], self.after[a:b], self.t)


class Run(NamedTuple):
    """Rows that wait on disk, ascending: which slot they are in; where each chunk's begin (int32 [chunk + 1]), their
    checksum, and whether they still wait; in ``left`` [1] how many chunks have some that do."""

    slot: int
    starts: np.ndarray
    sums: np.ndarray
    waits: np.ndarray
    left: np.ndarray


class Window:
    """What a learner has at hand of its arrays in a ``RowStore``.

    Large because places of rows in memory and on disk change together, block by block.

    Parameters
    ----------
    number : of the problem. chunks : first and one past the last of the group's.
    rows : NamedTuple of the arrays at their beginning, of any number of rows. held : the working set, whose rows'
    values stand in front, or None.
    group : of the problem's windows on this store, the how manieth; None: the only one.

    Attributes
    ----------
    rows : ``kind`` of arrays float64: first a place for each row of the working set, then the rows of the block.
    before : the same as it was at ``begin``, where that is kept; for the only window of a problem of the block's rows
        alone.
    """

    def __init__(
        self,
        store: RowStore,
        number: int,
        chunks: tuple[int, int],
        rows: RowState,
        held: WorkingSet | None,
        group: int | None = None,
    ) -> None:
        self.store, self.number, self.kind, self.held = store, number, type(rows), held
        self._slots = store.slots(number, group or 0)
        self._own_before = group is not None and held is not None
        self._keeps = False
        self._tail = rows[0].shape[1:]
        self._chunks = range(*chunks)
        self._row0 = int(store.first[chunks[0]])
        self._own = 0 if held is None else held.scores.size
        self.rows = self._zeros(self._own)
        self.before = self.rows
        self._places = np.arange(self._own)
        self._pieces: list[tuple[int, int, int]] = []  # chunk, its place in the block, its rows
        self._ids = np.empty(0, np.int64)  # of rows that wait, ascending
        self._values = np.empty((len(rows), 0, *self._tail))
        self._waits = np.empty(0, np.bool_)
        self._runs: list[Run] = []
        store.clear(number, self._chunks)
        if held is not None:
            held.places, held.left, held.came = self._places, self._leave, self._enter

    def _zeros(self, rows: int) -> RowState:
        return self.kind(*(np.zeros((rows, *self._tail)) for _ in self.kind._fields))

    # An epoch

    def begin(self, keep: bool, still: bool) -> None:
        """An epoch begins; ``keep`` : ``before`` is asked for, ``still`` : nothing will be learned."""
        if keep or still:  # then what is in the file is all there is to read
            self.write_back(everything=True)
        self._keeps = keep
        self.store.begin(self.number, self._chunks, keep)
        if keep and self._own_before:
            self._room_for(0)
            for before, now in zip(self.before, self.rows, strict=True):
                before[: self._own] = now[: self._own]

    def grow(self) -> None:
        """The working set has grown: its rows' places come first. No block may be at hand."""
        assert self.held is not None
        size, same = self.held.scores.size, self.before is self.rows
        if size == self._own:
            return
        grown = self._grown(self.rows, size)
        self.before = grown if same else self._grown(self.before, size)
        self.rows, self._own, self._places, self._pieces = grown, size, np.arange(size), []
        self.held.places = self._places

    def settle(self, t: float) -> None:
        """Go only a part of the way that the values went since ``begin``, which kept them."""
        self.write_back(everything=True, t=t)
        if self._own_before:
            for before, now in zip(self.before, self.rows, strict=True):
                now[: self._own] = settled(before[: self._own], now[: self._own], t)

    def rest(self) -> None:
        """No block is at hand for a while: its memory is given back."""
        self._pieces, self._places = [], self._places[: self._own].copy()
        same = self.before is self.rows
        self.rows = self.kind(*(array[: self._own].copy() for array in self.rows))
        self.before = self.rows if same else self.kind(*(array[: self._own].copy() for array in self.before))
        if self.held is not None:
            self.held.places = self._places

    def load(self, ids: np.ndarray) -> np.ndarray:
        """Bring the values of a block of whole chunks; the places of its rows in ``rows``."""
        self._room_for(ids.size)
        self._pieces, at = [], 0
        while at < ids.size:
            chunk = int(np.searchsorted(self.store.first, self._row0 + ids[at], "right")) - 1
            self._pieces.append((chunk, self._own + at, int(self.store.rows[chunk])))
            at += int(self.store.rows[chunk])
        for piece in self._pieces:
            self.store.read(self.number, piece[0], _slices(self.rows, piece))
            if self._keeps:
                self.store.read(self.number, piece[0], _slices(self.before, piece), before=True)
            self._catch_up(piece, self.rows)
        if self._pieces:
            self.store.advise(self._pieces[0][0])
        return self._places[self._own : self._own + ids.size]

    def keep(self) -> None:
        """The block has been learned from: its values go back to the file."""
        for piece in self._pieces:
            self.store.write(self.number, piece[0], _slices(self.rows, piece))
        self._pieces = []
        if np.count_nonzero(self._waits) > WAITING * self._own:
            self._spill()

    def _room_for(self, rows: int) -> None:
        """Make the arrays large enough for a block of so many rows."""
        size = self._own + rows
        if self._keeps and (self.before is self.rows or len(self.before[0]) < size):
            self.before = self._grown(self.before, size)
        if self._places.size < size:
            same = self.before is self.rows
            grown = self._grown(self.rows, size)
            self.rows, self._places = grown, np.arange(size)
            self.before = grown if same else self.before
            if self.held is not None:
                self.held.places = self._places[: self._own]
        if not self._keeps:
            self.before = self.rows

    def _grown(self, rows: RowState, size: int) -> RowState:
        """Arrays of that size with the working set's values."""
        grown = self._zeros(size)
        for new, old in zip(grown, rows, strict=True):
            new[: self._own] = old[: self._own]
        return grown

    @property
    def _kept(self) -> list[np.ndarray]:
        """Every array that has values of the working set's rows."""
        return [*self.rows, *(self.before if self._own_before and self.before is not self.rows else ())]

    # Rows that come to the working set and leave it

    def _enter(self, first: int, last: int) -> None:
        """Rows of the block at hand now stand in the places first:last of the working set."""
        assert self.held is not None
        starts = np.array([self.store.first[chunk] - self._row0 for chunk, _, _ in self._pieces])
        places = np.array([place for _, place, _ in self._pieces])
        order, ids = np.argsort(starts), self.held.arena.ids[first:last]
        piece = order[np.searchsorted(starts[order], ids, "right") - 1]
        for array in self._kept:
            array[first:last] = array[places[piece] + ids - starts[piece]]

    def _leave(self, stays: np.ndarray) -> None:
        """Of the working set's rows only those of the mask stay, and move to the front; the others wait."""
        assert self.held is not None
        n = stays.size
        left = np.stack([array[:n][~stays] for array in self.rows])
        for array in self._kept:
            array[: n - left.shape[1]] = array[:n][stays]
        waits = self._waits
        ids = np.concatenate([self._ids[waits], self.held.arena.ids[:n][~stays]])
        order = np.argsort(ids, kind="stable")
        self._values = np.concatenate([self._values[:, waits], left], axis=1)[:, order]
        self._ids, self._waits = ids[order], np.ones(order.size, np.bool_)

    def _spill(self) -> None:
        """Rows that wait in memory are written to runs; where there is no room for one, all go to their places."""
        waiting = np.flatnonzero(self._waits)
        if not self.store.run_rows or -(-waiting.size // self.store.run_rows) > RUNS - len(self._runs):
            self.write_back(everything=False)
            return
        for first in range(0, waiting.size, self.store.run_rows):
            self._write_run(waiting[first : first + self.store.run_rows])
        self._none_waits()

    def _write_run(self, waiting: np.ndarray) -> None:
        ids = self._ids[waiting]
        values = np.moveaxis(self._values[:, waiting], 1, 0).reshape(ids.size, self.store.fields)
        run = np.empty((ids.size, 1 + self.store.fields))
        run[:, 0], run[:, 1:] = ids, values  # numbers of rows are below 2^53
        slot = min({*self._slots} - {other.slot for other in self._runs})
        self.store.write_run(slot, run)
        edges = self.store.first[self._chunks.start : self._chunks.stop + 1] - self._row0
        starts = np.searchsorted(ids, edges).astype(np.int32)
        waits = starts[1:] > starts[:-1]
        sums = np.zeros(len(self._chunks), np.uint64)
        for n in np.flatnonzero(waits).tolist():
            sums[n] = _checksum([memoryview(run[starts[n] : starts[n + 1]]).cast("B")])
        self._runs.append(Run(slot, starts, sums, waits, np.array([np.count_nonzero(waits)])))

    def _none_waits(self) -> None:
        """In memory."""
        self._ids, self._values, self._waits = self._ids[:0].copy(), self._values[:, :0].copy(), self._waits[:0].copy()

    def _catch_up(self, piece: tuple[int, int, int], rows_of: RowState) -> None:
        """Rows of the chunk that left the working set get the values they left with; they wait no more."""
        chunk, place, rows = piece
        first = int(self.store.first[chunk]) - self._row0
        n = chunk - self._chunks.start
        for run in self._runs:
            if run.waits[n]:
                a, b = run.starts[n : n + 2].tolist()
                found = self.store.read_run(run.slot, a, b, run.sums[n], chunk)
                places = place + found[:, 0].astype(np.int64) - first
                values = found[:, 1:].reshape(places.size, len(self.rows), *self._tail)
                for field, array in enumerate(rows_of):
                    array[places] = values[:, field]
                run.waits[n] = False
                run.left[0] -= 1
        self._runs = [run for run in self._runs if run.left[0]]
        a, b = np.searchsorted(self._ids, [first, first + rows])
        here = np.flatnonzero(self._waits[a:b]) + a
        for array, values in zip(rows_of, self._values, strict=True):
            array[place + self._ids[here] - first] = values[here]
        self._waits[here] = False

    def write_back(self, everything: bool, t: float = 1.0) -> None:
        """Bring the file up to date, in its order: for rows that wait, with ``everything`` also for the working set;
        with ``t`` below 1 only so far along the way from what was kept, for every row.

        No block may be at hand.
        """
        held = self._ids[:0] if self.held is None or not everything else self.held.arena.ids[: self.held.n_rows]
        order = np.argsort(held, kind="stable")
        sorted_ids = held[order]
        for chunk in self._chunks:
            first, rows = int(self.store.first[chunk]) - self._row0, int(self.store.rows[chunk])
            a, b = np.searchsorted(sorted_ids, [first, first + rows])
            c, d = np.searchsorted(self._ids, [first, first + rows])
            on_disk = any(run.waits[chunk - self._chunks.start] for run in self._runs)
            if a == b and not on_disk and not self._waits[c:d].any() and t == 1.0:
                continue
            now = self._zeros(rows)
            self.store.read(self.number, chunk, [*now])
            self._catch_up((chunk, 0, rows), now)
            found = [*now]
            for array, own in zip(found, self.rows, strict=True):
                array[sorted_ids[a:b] - first] = own[order[a:b]]
            if t != 1.0:
                start = self._zeros(rows)
                self.store.read(self.number, chunk, [*start], before=True)
                found = [settled(before, now, t) for before, now in zip(start, found, strict=True)]
            self.store.write(self.number, chunk, [*found])
        self._none_waits()

    # To a checkpoint and back

    def arrays(self, before: bool = False) -> dict[str, FiledArray]:
        """Every array by name as it is, or as it was at ``begin``; to be read before anything is learned."""
        self.write_back(everything=True)
        edges = self.store.first[self._chunks.start : self._chunks.stop + 1] - self._row0

        def reader(field: int) -> Callable[[int, int], np.ndarray]:
            def read(first: int, last: int) -> np.ndarray:
                chunk = int(np.searchsorted(edges, first, "right")) - 1
                into = list(self._zeros(last - first))
                self.store.read(self.number, self._chunks[chunk], into, before)
                return into[field]

            return read

        return {name: FiledArray(edges, reader(field), self._tail) for field, name in enumerate(self.kind._fields)}

    def restore(self, now: Sequence[np.ndarray | FiledArray], before: Sequence[np.ndarray | FiledArray] | None) -> None:
        """Take up arrays [row, ...], or ``FiledArray``; ``before`` : as they were at the epoch's start, if that is
        kept. The working set has the rows it is to have."""
        self._none_waits()
        self._runs = []
        self._keeps = before is not None
        self.store.clear(self.number, self._chunks)
        if before is not None:
            self._put(before)
            self.store.begin(self.number, self._chunks, True)
        self._put(now)
        self._room_for(0)
        self._fetch_set(self.rows, False)
        if self._own_before and before is not None:
            self._fetch_set(self.before, True)

    def _put(self, arrays: Sequence[np.ndarray | FiledArray]) -> None:
        for chunk in self._chunks:
            first = int(self.store.first[chunk]) - self._row0
            last = first + int(self.store.rows[chunk])
            self.store.write(self.number, chunk, [np.ascontiguousarray(array[first:last]) for array in arrays])

    def _fetch_set(self, into: RowState, before: bool) -> None:
        """The values of the working set's rows, from the file."""
        if self.held is None:
            return
        ids = self.held.arena.ids[: self.held.n_rows]
        order = np.argsort(ids, kind="stable")
        for chunk in self._chunks:
            first, rows = int(self.store.first[chunk]) - self._row0, int(self.store.rows[chunk])
            a, b = np.searchsorted(ids, [first, first + rows], sorter=order)
            if a == b:
                continue
            found = self._zeros(rows)
            self.store.read(self.number, chunk, [*found], before)
            for own, array in zip(into, found, strict=True):
                own[order[a:b]] = array[ids[order[a:b]] - first]


def _slices(rows: RowState, piece: tuple[int, int, int]) -> list[np.ndarray]:
    return [array[piece[1] : piece[1] + piece[2]] for array in rows]
