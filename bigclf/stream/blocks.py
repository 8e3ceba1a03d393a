"""From chunks to blocks: what a visit sees of the data.

``Stream.blocks`` yields one block for each list of chunks it is given, in that order, while threads read ahead. Chunks
come from the raw store where they are in it, else they are decoded (with every check) and put there, by a thread that
writes meanwhile. A block is valid until the next one is taken: its memory is used again.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from bigclf.data.shards import release_freed, release_unused
from bigclf.maths.block import Block, Entries, alike, concatenate
from bigclf.stream.raw_store import Buffer, RawStore, Record

if TYPE_CHECKING:
    from bigclf.data.arrays import Arrays
    from bigclf.data.dataset import Dataset


Made = tuple[Block, Buffer | None]
NOTHING = np.empty(0, np.int64)
RELEASE_EVERY = 4  # decodes by Arrow; giving back costs a third of the speed of decoding, as every page is fetched anew


class _Begun(NamedTuple):
    """A block that was begun before anybody asked for it: its chunks, the block, whether nobody will, its readers."""

    unit: np.ndarray
    future: Future[Made | None]
    given_up: threading.Event
    pool: ThreadPoolExecutor


class Stream:
    """Blocks of a source, read ahead.

    Parameters
    ----------
    source : Dataset or Arrays.
    place : int64 [chunk], the place of each chunk's first row in its group's per-row arrays.
    store : raw store, or None.
    threads : readers beside the caller's thread; 0: blocks are made in turn by that thread itself. They never change
        the blocks.
    buffers : blocks in memory at a time (at least 2); rows, nnz : size of the largest.
    copiers : of the readers, those that read where all is in the store (None: all) and its indices need no unpacking:
        then they only copy, and more than there are cores beside the caller's would take turns with it.
    frugal : have Arrow give back, every few decodes, the memory it holds beyond what it needs (several times that).
    whole : what is loaded is decoded in whole row groups, the large ones of other people's too.
    """

    def __init__(
        self,
        source: Dataset | Arrays,
        place: np.ndarray,
        *,
        store: RawStore | None = None,
        threads: int = 1,
        buffers: int = 3,
        rows: int = 0,
        nnz: int = 0,
        frugal: bool = True,
        copiers: int | None = None,
        whole: bool = False,
    ) -> None:
        self.source, self.place, self.store, self.threads, self.ahead = source, place, store, threads, buffers
        self.frugal, self.copiers, self.whole = frugal, copiers, whole
        self.waited = 0.0  # seconds in which nothing was at hand to learn from
        self.bytes_decoded = self.bytes_stored = self._through_arrow = 0
        self._decoded = False  # anything in this read
        self._decodes = not hasattr(source, "whole")  # blocks are made of files, not views of arrays
        self._shape = rows, nnz, source.index_width, source.binary, source.row_constant
        self._free: queue.SimpleQueue[Buffer] = queue.SimpleQueue()
        self._made = 0
        self._fetching: threading.Thread | None = None
        self._begun: _Begun | None = None  # the first block of the read to come
        self._guard = threading.Lock()
        self._large = _Large(source)
        self._writer: _Writer | None = None

    def blocks(self, units: Sequence[np.ndarray], then: Sequence[np.ndarray] = ()) -> Iterator[Block]:
        """One block a unit (an array of chunk numbers), in order.

        ``then`` : units of the read that most likely comes next: its first block, which nothing else would hide, is
        brought from the store while the last ones of this read are worked on.
        """
        if self.threads == 0:
            yield from self._in_turn(units)
            return
        before = self._begun
        waiting: deque[Future[Made | None]] = deque(self._claimed(units))
        todo = itertools.islice(itertools.zip_longest(units, units[1:], fillvalue=NOTHING), len(waiting), None)
        copied = self.store is not None and not self.store.packs and self.store.stored.all()
        readers = min(self.threads, self.copiers or self.threads) if copied else self.threads
        pool = ThreadPoolExecutor(readers, thread_name_prefix="bigclf-read")
        if self.store is not None:
            self._writer = _Writer(self.store, self.threads)
        try:
            for unit, coming in itertools.islice(todo, self.ahead - len(waiting)):
                waiting.append(pool.submit(self._make, unit, coming))
            while waiting:
                began = time.monotonic()
                block, buffer = waiting.popleft().result() or self._make(units[0], NOTHING)
                self.waited += time.monotonic() - began
                try:
                    yield block
                finally:  # also when nobody asks for more
                    if buffer is not None:
                        self._free.put(buffer)
                if (more := next(todo, None)) is not None:
                    waiting.append(pool.submit(self._make, *more))
                elif self._begun is None and len(then) and self._stored(then[0]):
                    self._begin(pool, then)
        finally:
            for future in waiting:
                future.cancel()
            pool.shutdown(wait=bool(waiting) or self._decoded or self._begun is None, cancel_futures=bool(waiting))
            if before is not None:
                before.pool.shutdown(wait=True)  # its threads have long ended
            for future in waiting:
                self._take_back(future)
            writer, self._writer = self._writer, None
            try:
                if writer is not None:
                    writer.close()
            finally:
                self._let_go()

    def _begin(self, pool: ThreadPoolExecutor, units: Sequence[np.ndarray]) -> None:
        """Bring the first block of a read to come; a buffer is free, since no unit waits for one any more."""
        given_up = threading.Event()
        coming = units[1] if len(units) > 1 else NOTHING
        self._begun = _Begun(units[0], pool.submit(self._bring, units[0], coming, given_up), given_up, pool)

    def _claimed(self, units: Sequence[np.ndarray]) -> list[Future[Made | None]]:
        """The first of the units where it is under way already; what is under way of another read is given up."""
        begun, self._begun = self._begun, None
        if begun is None:
            return []
        if len(units) and np.array_equal(begun.unit, units[0]) and not begun.future.cancelled():
            return [begun.future]
        begun.given_up.set()
        begun.pool.shutdown(wait=True)
        self._take_back(begun.future)
        return []

    def _take_back(self, future: Future[Made | None]) -> None:
        """The buffer of a block that nobody will ask for."""
        if not future.cancelled() and future.exception() is None:
            _, buffer = future.result() or (None, None)
            if buffer is not None:
                self._free.put(buffer)

    def _in_turn(self, units: Sequence[np.ndarray]) -> Iterator[Block]:
        try:
            for unit, coming in itertools.zip_longest(units, units[1:], fillvalue=NOTHING):
                began = time.monotonic()
                block, buffer = self._make(unit, coming)
                self.waited += time.monotonic() - began
                try:
                    yield block
                finally:
                    if buffer is not None:
                        self._free.put(buffer)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Of what decoding took, in threads that have ended: while they last, Arrow keeps what was theirs."""
        self._large.close()
        if self.frugal and self._decoded:
            release_freed()
            if self.store is not None:
                self.store.rest()
        self._decoded = False

    def fetch(self, units: Sequence[np.ndarray]) -> None:
        """Have the system fetch what comes first of a read that is yet to begin, while other work is done."""
        if self.store is not None and self.threads:
            begun = self._begun is not None and np.array_equal(self._begun.unit, units[0])
            chunks = itertools.chain.from_iterable(unit.tolist() for unit in units[begun:])
            self._join()
            self._fetching = threading.Thread(target=self.store.fetch, args=(chunks,), name="bigclf-fetch")
            self._fetching.start()

    def _join(self) -> None:
        if self._fetching is not None:
            self._fetching.join()

    def load(self, chunks: np.ndarray) -> Block:
        """All the chunks as one block that stays."""
        if hasattr(self.source, "whole") and chunks.size == self.source.n_chunks:
            return alike(self.source.whole())
        rows, nnz = self.source.chunks.rows[chunks], self.source.chunks.nnz[chunks]
        source, n, entries = self.source, int(rows.sum()), int(nnz.sum())
        buffer = Buffer(n, entries, source.index_width, source.binary, source.row_constant)
        at = np.concatenate([[0], np.cumsum(rows)]), np.concatenate([[0], np.cumsum(nnz)])
        if self._decodes and self.store is None and (self.whole or not source.in_parts[chunks].any()):
            self._load_into(buffer, chunks, *at)
        else:
            units = [np.array([chunk]) for chunk in chunks]
            for block, row, entry in zip(self.blocks(units), *map(np.ndarray.tolist, at), strict=False):
                buffer.put(block, row, entry)
            self._claimed([])
            self._free, self._made = queue.SimpleQueue(), 0  # no more blocks are read
        return self._numbered(buffer.block(n, entries), chunks)

    def _load_into(self, buffer: Buffer, chunks: np.ndarray, rows: np.ndarray, entries: np.ndarray) -> None:
        """Decode row groups to where they stay, several at a time; ``rows``, ``entries`` : where each chunk begins."""
        source, began = self.source.chunks, time.monotonic()
        keys = (source.file.astype(np.int64) << 32) + source.row_group
        in_all = cast("Dataset", self.source).siblings  # else nothing is decoded
        of_group = np.split(np.arange(chunks.size), 1 + np.flatnonzero(np.diff(keys[chunks])))

        def load(part: np.ndarray) -> None:
            chunk = int(chunks[part[0]])
            place = int(source.file[chunk]), int(source.row_group[chunk])
            if part.size == in_all[chunk]:
                first, last = part[0], part[-1] + 1
                block = self.source.decode(*place, into := buffer.entries(int(entries[first]), int(entries[last])))
                self._counted(block, np.may_share_memory(block.indices, into[0]))
                buffer.put(block, int(rows[first]), int(entries[first]))
                return
            for i in part.tolist():  # the group of rows begins or ends within a row group
                buffer.put(self._decode(int(chunks[i])), int(rows[i]), int(entries[i]))

        try:
            if self.threads == 0:
                for part in of_group:
                    load(part)
                return
            with ThreadPoolExecutor(self.threads, thread_name_prefix="bigclf-read") as pool:
                try:
                    for future in [pool.submit(load, part) for part in of_group]:
                        future.result()
                except BaseException:
                    pool.shutdown(wait=True, cancel_futures=True)
                    raise
        finally:
            self.waited += time.monotonic() - began
            self._let_go()

    def _make(self, unit: np.ndarray, coming: np.ndarray) -> Made:
        """A block of the unit's chunks, and the buffer it lies in; ``coming`` : the unit after it."""
        if self._stored(unit) and (made := self._bring(unit, coming)) is not None:
            return made
        if not self._decodes:
            block = alike(concatenate([self._decode(int(chunk)) for chunk in unit]))
            return self._numbered(block._replace(ids=np.empty(block.n_rows, np.int64)), unit), None
        buffer = self._buffer()
        try:
            return self._numbered(self._decode_all(unit, buffer), unit), buffer
        except BaseException:
            self._free.put(buffer)
            raise

    def _stored(self, unit: np.ndarray) -> bool:
        return self.store is not None and all(self.store.has(chunk) for chunk in unit)

    def _bring(self, unit: np.ndarray, coming: np.ndarray, given_up: threading.Event | None = None) -> Made | None:
        """A block that is in the store, None when a record of it is not as it was written, or it is ``given_up``."""
        assert self.store is not None
        buffer = self._buffer()
        self.store.advise(unit, coming)
        try:
            block = self.store.read(unit, buffer, given_up)
        except BaseException:
            self._free.put(buffer)
            raise
        if block is None:
            self._free.put(buffer)
            return None
        self.bytes_stored += self.store.n_bytes_of(unit)
        return self._numbered(block, unit), buffer

    def _numbered(self, block: Block, unit: np.ndarray) -> Block:
        """The block with its rows' places as ``ids``, in the memory that it has for them."""
        row = 0
        for first, rows in zip(self.place[unit].tolist(), self.source.chunks.rows[unit].tolist(), strict=True):
            block.ids[row : row + rows] = np.arange(first, first + rows)
            row += rows
        return block

    def _buffer(self) -> Buffer:
        """A free buffer; one is made while fewer than ``ahead`` + 1 are."""
        with self._guard:
            if self._free.empty() and self._made <= self.ahead:
                self._made += 1
                return Buffer(*self._shape)
        return self._free.get()

    def _decode_all(self, unit: np.ndarray, buffer: Buffer) -> Block:
        """Decoded chunks as one block in the buffer."""
        row = entry = 0
        for chunk in unit.tolist():
            n = int(self.source.chunks.nnz[chunk])
            block = self._decode(chunk, buffer.entries(entry, entry + n))
            buffer.put(block, row, entry)
            row, entry = row + block.n_rows, entry + n
        return buffer.block(row, entry)

    def _decode(self, chunk: int, into: Entries | None = None) -> Block:
        """A checked chunk from its file; it goes into the raw store, if there is one, on the way."""
        place = int(self.source.chunks.file[chunk]), int(self.source.chunks.row_group[chunk])
        if not self._decodes:
            block = self._counted(self.source.decode(*place))
        elif self.source.in_parts[chunk]:
            block = self._counted(self._large.chunk(place, chunk))
        else:
            block = self.source.decode(*place, into)
            self._counted(block, into is not None and np.may_share_memory(block.indices, into[0]))
        if self._writer is not None:
            self._writer.write(chunk, block)
        elif self.store is not None:
            self.store.write(chunk, block)
        return block

    def _counted(self, block: Block, past_arrow: bool = False) -> Block:
        self.bytes_decoded += block.n_bytes
        self._decoded = True
        if not past_arrow:
            self._through_arrow += 1
            if self.frugal and self._through_arrow % RELEASE_EVERY == 0:
                release_unused()
        return block

    def close(self) -> None:
        self._join()
        self._claimed([])
        if self.store is not None:
            self.store.remember()
            self.store.close()
        release_unused()


class _Large:
    """The large row group that is being decoded in parts: its chunks are had in order, by one thread at a time; one
    that has gone by costs another look at those before it."""

    def __init__(self, source: Dataset | Arrays) -> None:
        self._source, self._lock = source, threading.Lock()
        self._place: tuple[int, int] | None = None
        self._blocks: Iterator[Block] = iter(())
        self._next = 0  # chunk

    def chunk(self, place: tuple[int, int], chunk: int) -> Block:
        """A chunk of the row group ``place``."""
        with self._lock:
            if self._place != place or chunk < self._next:
                self.close()
                same = (self._source.chunks.file == place[0]) & (self._source.chunks.row_group == place[1])
                self._place, self._next = place, int(np.argmax(same))
                self._blocks = self._source.parts(*place)
            try:
                while True:
                    block, at = next(self._blocks), self._next
                    self._next += 1
                    if at == chunk:
                        return block
                    del block
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Let go of the file."""
        blocks, self._place, self._blocks = self._blocks, None, iter(())
        if hasattr(blocks, "close"):
            blocks.close()


class _Writer:
    """Puts records into the raw store in a thread of its own: decoding goes on, and blocks are learned from, while the
    disk writes. No more than ``most`` records are held."""

    def __init__(self, store: RawStore, most: int) -> None:
        self._store, self._room = store, threading.Semaphore(most)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="bigclf-write")
        self._error: BaseException | None = None

    def write(self, chunk: int, block: Block) -> None:
        """Keep a decoded chunk; its memory is free on return."""
        self._room.acquire()
        try:
            record = self._store.record(chunk, block)
            if record is not None and record.direct is not None:
                self._pool.submit(self._put, record)
                return
        except BaseException:
            self._room.release()
            raise
        self._room.release()
        if record is not None:  # it lies in the block's memory
            self._store.put(record)

    def _put(self, record: Record) -> None:
        try:
            self._store.put(record)
        except BaseException as error:
            self._error = error
        finally:
            self._room.release()

    def close(self) -> None:
        """Wait until all is written; what went wrong is raised here."""
        self._pool.shutdown(wait=True)
        if self._error is not None:
            raise self._error
