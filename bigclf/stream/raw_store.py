"""The raw store: decoded chunks as records on local disk, read back several times faster than Parquet decodes.

A record holds a chunk's sections one after another: indices, values (or one a row), squared norms, row lengths, labels,
row weights. One ``preadv`` a record scatters them straight into the arrays of a block. Where that at least halves a
record, its indices are packed (``packing``) and unpacked by the thread that reads. Records of many pages are written
past the page cache where the system can: through it a first read had to find new memory for every byte of the store.

Every record has its place from the beginning, in the order of the chunks. The store is a cache: every record carries a
checksum of its bytes on disk, a bad one is made anew from the shards, a full disk only makes the store smaller, and a
process that is killed leaves nothing behind (the file has no name) unless a directory for it was given.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from bigclf import files
from bigclf.compiled.jit import compiling, copy_past_caches
from bigclf.maths.block import Block, Entries, explicit_scales
from bigclf.stream.packing import count_far, pack_indices, unpack_indices

if TYPE_CHECKING:
    from bigclf.data.rows import Rows


log = logging.getLogger("bigclf")
FORMAT = 3
ENCODINGS: dict[str, Any] = {"raw": None, "u8": np.uint8, "u16": np.uint16}
WORTHWHILE = 0.5  # indices are packed where a record is at most this share of what it is else: reading a byte takes
# 0.36 ns and unpacking an entry 0.7 to 0.9 (2.8 GB/s, measured), so that packing four bytes into two would not pay
MARGIN = 1 / 16  # slots are so much longer than the first record needs: the others differ a little
NEAR = 1 << 20  # records within so many bytes of each other are read in sequence by the system itself
FETCH_SHARE = 0.9  # of ``cache`` is asked for before a read begins
DIRECT = 1 << 18  # bytes of the largest record from which on records begin at a page, and bypass the page cache
PIECE = 1 << 18  # bytes that stay in a core's second-level cache: so much of a large record is read at a time
LAG, BEHIND = 1 << 24, 1 << 26  # read in sequence, the page cache forgets what lies between these bytes behind


class Buffer:
    """Memory for a block of at most ``rows`` rows and ``nnz`` entries, used again and again."""

    def __init__(self, rows: int, nnz: int, index_width: int, binary: bool, constant: bool = False) -> None:
        self.indices = np.empty(nnz, np.uint64 if index_width == 8 else np.uint32)
        self.values = np.empty(0 if binary or constant else nnz, np.float32)
        self.scales = np.empty(rows if constant else 0, np.float32)
        self.norms, self.labels, self.weights = np.empty(rows), np.empty(rows), np.empty(rows)
        self.lengths, self.codes = np.empty(rows, np.uint32), np.empty(rows, np.int32)
        self.indptr, self.ids = np.zeros(rows + 1, np.int64), np.empty(rows, np.int64)

    def entries(self, first: int, last: int) -> Entries:
        """Memory for the indices and values of entries first:last; no values where a block has none."""
        return self.indices[first:last], self.values[first:last]

    def put(self, block: Block, row: int, entry: int) -> None:
        """Bring the rows of ``block`` to the places from ``row`` and ``entry`` on; what lies there already stays."""
        m, n, a = block.n_rows, block.nnz, int(block.indptr[0])
        rows, (indices, values) = slice(row, row + m), self.entries(entry, entry + n)
        if not np.may_share_memory(indices, block.indices):
            indices[:] = block.indices[a : a + n]
        if values.size and not np.may_share_memory(values, block.values):
            values[:] = block.values[a : a + n]
        if self.scales.size:
            self.scales[rows] = explicit_scales(block)
        self.lengths[rows] = np.diff(block.indptr)
        self.labels[rows], self.norms[rows], self.weights[rows] = block.labels, block.norms, block.weights

    def block(self, rows: int, nnz: int) -> Block:
        """The first ``rows`` rows as a block; ``ids`` is left to the caller."""
        np.cumsum(self.lengths[:rows], out=self.indptr[1 : rows + 1])
        return Block(
            self.indptr[: rows + 1],
            self.indices[:nnz],
            self.values[: 0 if self.values.size == 0 else nnz],
            self.labels[:rows],
            self.weights[:rows],
            self.norms[:rows],
            self.ids[:rows],
            self.scales[: 0 if self.scales.size == 0 else rows],
        )


ROW_BYTES = 3 * 8 + 2 * 4 + 2 * 8  # a row of a buffer, entries and scale apart


N = TypeVar("N", int, np.ndarray)


def buffer_bytes(rows: N, nnz: N, index_width: int, binary: bool, constant: bool = False) -> N:
    """What a ``Buffer`` of that size allocates; int or int64 [n]."""
    entry = index_width + (0 if binary or constant else 4)
    return nnz * entry + rows * (ROW_BYTES + (4 if constant else 0)) + 8


def entry_bytes(source: Rows) -> int:
    """What an entry of the source's rows takes in memory."""
    return int(source.index_width + (0 if source.binary or source.row_constant else 4))


def chunk_sizes(source: Rows) -> np.ndarray:
    """``buffer_bytes`` of each chunk, int64 [chunk]."""
    chunks = source.chunks
    return buffer_bytes(chunks.rows, chunks.nnz, source.index_width, source.binary, source.row_constant)


class Layout:
    """Where the records lie: a function of the source's counts, the encoding and its estimated bytes an entry.

    A slot for each chunk in their order; behind them, a place for each that its slot does not hold, where its indices
    stand as they are. ``sixteenths`` : of a byte, what the index of an entry is to need. ``unit`` : what the places and
    lengths of slots are multiples of.
    """

    def __init__(self, rows: np.ndarray, nnz: np.ndarray, row: int, value: int, width: int, encoding: str,
                 sixteenths: int = 0) -> None:  # fmt: skip
        self.encoding, self.sixteenths = encoding, sixteenths
        self.fixed = rows * row + nnz * value
        plain = self.fixed + nnz * width
        self.unit = files.PAGE if plain.max(initial=0) >= DIRECT else 16
        self.plain = self.aligned(plain)
        slots = self.plain if encoding == "raw" else self.aligned(self.fixed + nnz * sixteenths // 16)
        self.offsets = np.concatenate([[0], np.cumsum(slots)])
        self.beyond = self.offsets[-1] + np.concatenate([[0], np.cumsum(self.plain)])

    @property
    def name(self) -> str:
        return "" if self.encoding == "raw" else f"-{self.encoding}-{self.sixteenths}"

    def fits(self, chunk: int, size: int) -> bool:
        return bool(self.offsets[chunk] + size <= self.offsets[chunk + 1])

    def aligned(self, sizes: N) -> N:
        """The next multiple of ``unit``."""
        return (sizes + self.unit - 1) // self.unit * self.unit


class Record(NamedTuple):
    """A chunk as it is to be written.

    Attributes
    ----------
    chunk, offset, size : its number, place and bytes.
    units : of packed indices; 0: they stand as they are.
    views : its bytes.
    direct : the same in whole pages of memory of their own; None: they are written through the page cache, and lie in
        the block's memory.
    checksum : of its bytes; None: not yet known.
    held : scratch that they lie in, free again once they are written.
    """

    chunk: int
    offset: int
    size: int
    units: int
    views: list[memoryview]
    direct: memoryview | None
    checksum: int | None
    held: list[np.ndarray]


class RawStore:
    """Records of the chunks of one dataset.

    Large because writing, reading and checking a record know the same layout, and share the file and its limits.

    Parameters
    ----------
    source : the dataset. ``source.real_labels`` (if it has that): labels are numbers, kept as float64, not codes.
    directory : where the file lies.
    keep : leave the file there, named by the dataset's digest, for later runs.
    limit : most bytes on disk; chunks beyond it are simply not stored.
    cache : bytes that may stay in the system's page cache. It is made to forget what was read of a larger store:
        nothing of a scan that does not fit it would be found again.
    encoding : of the indices: "raw", "u8", "u16", or None to decide by the first chunk.

    Attributes
    ----------
    offsets, sizes : int64 [chunk], place and bytes of the records that are ``stored``.
    """

    def __init__(
        self,
        source: Rows,
        directory: str,
        *,
        keep: bool = False,
        limit: int | None = None,
        cache: int = 0,
        encoding: str | None = None,
    ) -> None:
        if encoding is not None and encoding not in ENCODINGS:
            raise ValueError(f"encoding must be one of {', '.join(ENCODINGS)}, not {encoding!r}")
        self.source, self.binary, self.weighted = source, source.binary, source.weighted
        self.constant, self.real = source.row_constant, bool(getattr(source, "real_labels", False))
        self.rows, self.nnz, self.width = source.chunks.rows, source.chunks.nnz, source.index_width
        self._value = entry_bytes(source) - self.width
        self._row = 8 + 4 + (8 if self.real else 4) + (4 if self.constant else 0) + (8 if self.weighted else 0)
        count = self.rows.size
        self.offsets, self.sizes = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.units = np.zeros(count, np.int64)  # of packed indices; 0: they stand as they are
        self.sums, self.stored = np.zeros(count, np.uint64), np.zeros(count, bool)
        self.limit, self.cache, self.wanted = limit, cache, encoding
        self.rebuilt = self._end = 0  # where the record read last ends
        self.descriptor = self._direct = -1
        self.layout: Layout | None = None
        self._indirect = False  # the system has no way past the page cache
        self._lock = threading.Lock()
        self._spare: list[np.ndarray] = []
        self._directory = directory
        self._path = files.join(directory, f"raw-{source.digest}") if keep else None
        if self._path is None:
            self.descriptor = files.unlinked_file(directory)
        else:
            self._recall()

    @property
    def n_bytes(self) -> int:
        """Bytes of the whole store when every chunk is in it, as far as is known yet."""
        return int((self.layout or self._layout("raw")).offsets[-1])

    @property
    def drop(self) -> bool:
        """Whether the page cache is to forget what was read."""
        return self.n_bytes > self.cache

    @property
    def packs(self) -> bool:
        """Whether indices are packed, as far as is known yet."""
        return self.layout is not None and self.layout.encoding != "raw"

    def has(self, chunk: int) -> bool:
        return bool(self.stored[chunk])

    def bytes_for(self, source: Rows) -> int:
        """What a store of ``source`` would take on disk, were its indices packed as here."""
        layout = self.layout or self._layout("raw")
        rows, nnz = source.chunks.rows, source.chunks.nnz
        whole = Layout(rows, nnz, self._row, self._value, self.width, layout.encoding, layout.sixteenths)
        return int(whole.offsets[-1])

    # Writing

    def prepare(self) -> None:
        """Compile (or load) the kernels that records are made with."""
        with compiling():
            count_far(np.zeros(1, np.int64), np.empty(0, np.uint64 if self.width == 8 else np.uint32))
            copy_past_caches(np.empty(0, np.uint8), np.empty(0, np.uint8))

    def write(self, chunk: int, block: Block) -> None:
        """Keep a decoded chunk, if there is room."""
        record = self.record(chunk, block)
        if record is not None:
            self.put(record)

    def record(self, chunk: int, block: Block) -> Record | None:
        """A decoded chunk as it is to be written; None where it is stored already or there is no room for it."""
        if self.stored[chunk]:
            return None
        layout = self._settled(block)
        packed, scratch = self._packed(block, layout)
        size = int(layout.fixed[chunk]) + (packed.nbytes if packed.size else int(self.nnz[chunk]) * self.width)
        offset = int(layout.offsets[chunk])
        if not layout.fits(chunk, size):  # as it is, behind the slots
            offset, packed = int(layout.beyond[chunk]), packed[:0]
            size = int(layout.fixed[chunk]) + int(self.nnz[chunk]) * self.width
        held = [scratch] if scratch.size else []
        if not self._has_room(offset, size):
            self._spare += held
            return None
        views, direct, checksum = [_bytes(section) for section in self._sections(block, packed)], None, None
        if self._direct >= 0 and not self._indirect:
            direct, checksum, copy = self._in_pages(views, size)
            self._spare += held
            views, held = [direct[:size]], [copy]
        return Record(chunk, offset, size, packed.size, views, direct, checksum, held)

    def put(self, record: Record) -> None:
        """Write a record, if there is room still."""
        chunk, offset, size = record.chunk, record.offset, record.size
        try:
            if not self._has_room(offset, size):
                return
            if record.direct is None or not self._put_directly(record.direct, offset):
                files.write_all(self.descriptor, record.views, offset)
        except OSError as error:
            with self._lock:
                before = self._bytes_before(offset)
                self.limit = before if self.limit is None else min(self.limit, before)
            log.warning("raw store: %s; it goes on with what fits (%d bytes)", error, self.limit)
            return
        else:
            self.offsets[chunk], self.sizes[chunk] = offset, size
            self.units[chunk] = record.units
            self.sums[chunk] = _checksum(record.views) if record.checksum is None else record.checksum
            self.stored[chunk] = True
        finally:
            self._spare += record.held

    def _settled(self, block: Block) -> Layout:
        """The layout; the first chunk to be written decides."""
        with self._lock:
            if self.layout is None:
                self.layout = self._layout(*self._chosen(block))
                if self._path is not None:
                    self.descriptor = files.open_descriptor(f"{self._path}{self.layout.name}.bin")
            if self._direct < 0 and self.layout.unit == files.PAGE and not self._indirect:
                self._direct = files.direct_descriptor(self.descriptor)
                self._indirect = self._direct < 0
            return self.layout

    def _layout(self, encoding: str, sixteenths: int = 0) -> Layout:
        return Layout(self.rows, self.nnz, self._row, self._value, self.width, encoding, sixteenths)

    def _chosen(self, block: Block) -> tuple[str, int]:
        """The encoding, and sixteenths of a byte that a slot has for an entry's index."""
        nnz = max(1, block.nnz)
        far = count_far(block.indptr, block.indices)
        sizes = {"u8": nnz + far[0] * self.width, "u16": 2 * (nnz + far[1] * (self.width // 2))}
        rest = block.n_rows * self._row + nnz * self._value
        best = self.wanted or min(sizes, key=lambda name: sizes[name])
        if best == "raw" or (not self.wanted and rest + sizes[best] > WORTHWHILE * (rest + nnz * self.width)):
            return "raw", 0
        return best, min(16 * self.width, -int(-16 * (1 + MARGIN) * sizes[best] // nnz))

    def _packed(self, block: Block, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
        """The packed indices (none where they are kept as they are), and the memory they lie in."""
        unit = ENCODINGS[layout.encoding]
        if unit is None:
            return np.empty(0, np.uint8), np.empty(0, np.uint8)
        most = block.nnz * (np.dtype(unit).itemsize + self.width)
        scratch = self._scratch(most)
        units = scratch[:most].view(unit)
        return units[: pack_indices(block.indptr, block.indices, units)], scratch

    def _scratch(self, size: int) -> np.ndarray:
        """Bytes to work in, used again and again; whoever took them appends them to ``_spare``."""
        try:
            held = self._spare.pop()
        except IndexError:
            held = np.empty(0, np.uint8)
        return held if held.size >= size else np.empty(size, np.uint8)

    def rest(self) -> None:
        """Let go of the memory to work in, when nobody does."""
        self._spare = []

    def _has_room(self, offset: int, size: int) -> bool:
        return self.limit is None or self._bytes_before(offset) + size <= self.limit

    def _bytes_before(self, offset: int) -> int:
        """Bytes that the disk needs for what lies before ``offset``: behind the slots are mostly holes."""
        assert self.layout is not None
        end = int(self.layout.offsets[-1])
        return offset if offset < end else end + int(self.sizes[self.stored & (self.offsets >= end)].sum())

    def _sections(self, block: Block, packed: np.ndarray) -> list[np.ndarray]:
        a, b = int(block.indptr[0]), int(block.indptr[-1])
        sections = [packed if packed.size else block.indices[a:b]]
        if self.constant:
            sections.append(explicit_scales(block))
        elif not self.binary:
            sections.append(block.values[a:b])
        sections += [block.norms, np.diff(block.indptr).astype(np.uint32)]
        sections.append(block.labels if self.real else block.labels.astype(np.int32))
        return sections + ([block.weights] if self.weighted else [])

    def _in_pages(self, views: list[memoryview], size: int) -> tuple[memoryview, int, np.ndarray]:
        """What is written past the page cache needs memory that begins at a page, and whole pages: a copy of the views
        in such memory, the rest of its last page zero, their checksum, and the scratch the copy lies in.

        A large record goes there piece by piece, each while the checksum has it in the cache, and past the cache: the
        disk is what reads it next.
        """
        import xxhash

        padded = -(-size // files.PAGE) * files.PAGE
        scratch = self._scratch(padded + files.PAGE)
        first = -scratch.ctypes.data % files.PAGE
        pages, end = scratch[first : first + padded], 0
        digest = xxhash.xxh3_64()
        for view in views:
            for start in range(0, view.nbytes, PIECE):
                piece = np.frombuffer(view[start : start + PIECE], np.uint8)
                digest.update(piece)
                into = pages[end : end + piece.size]
                if size < 4 * PIECE:
                    into[:] = piece
                else:
                    copy_past_caches(piece, into)
                end += piece.size
        pages[end:] = 0
        return memoryview(pages), digest.intdigest(), scratch

    def _put_directly(self, pages: memoryview, offset: int) -> bool:
        """Write past the page cache; False where the system refuses."""
        try:
            if not self._indirect:
                files.write_all(self._direct, [pages], offset)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._indirect = True
        return not self._indirect

    # Reading

    def read(self, chunks: np.ndarray, buffer: Buffer, given_up: threading.Event | None = None) -> Block | None:
        """The chunks as one block in ``buffer``; None when a record is not as it was written, or it is ``given_up``."""
        row = entry = 0
        for chunk in chunks.tolist():
            if given_up is not None and given_up.is_set():
                return None
            m, n = int(self.rows[chunk]), int(self.nnz[chunk])
            if not self._read_record(chunk, buffer, slice(row, row + m), slice(entry, entry + n)):
                self._forget(chunk)
                return None
            row, entry = row + m, entry + n
        return buffer.block(row, entry)

    def _read_record(self, chunk: int, buffer: Buffer, rows: slice, entries: slice) -> bool:
        """Bring a record to its place in the buffer; False when it is not as it was written."""
        units, indices = int(self.units[chunk]), buffer.indices[entries]
        sections, scratch = [indices], None
        if units:
            unit = ENCODINGS[self.layout.encoding]  # type: ignore[union-attr]
            scratch = self._scratch(units * np.dtype(unit).itemsize)
            sections = [scratch[: units * np.dtype(unit).itemsize].view(unit)]
        if self.constant:
            sections.append(buffer.scales[rows])
        elif not self.binary:
            sections.append(buffer.values[entries])
        sections += [buffer.norms[rows], buffer.lengths[rows], (buffer.labels if self.real else buffer.codes)[rows]]
        sections += [buffer.weights[rows]] if self.weighted else []
        views = [_bytes(section) for section in sections]
        offset, size = int(self.offsets[chunk]), int(self.sizes[chunk])
        forget = self._passed(offset, size)
        sound = self._fill(views, offset, size, by_pieces=not units) == self.sums[chunk]
        if sound and units:
            sound = unpack_indices(sections[0], buffer.lengths[rows], indices)
        if scratch is not None:
            self._spare.append(scratch)
        if forget[1] > 0 and self.drop:
            files.drop_cache(self.descriptor, *forget)
        if not self.real:
            buffer.labels[rows] = buffer.codes[rows]
        if not self.weighted:
            buffer.weights[rows] = 1.0
        return bool(sound)

    def _fill(self, views: list[memoryview], offset: int, size: int, by_pieces: bool) -> int | None:
        """Bring a record's bytes to the views; their checksum, None at an early end of the file.

        Of a large record whose sections are used as they stand, piece by piece: each is added to the checksum and
        copied on while it is in the reader's cache, and goes to memory past it (``copy_past_caches``). Beside readers
        that bring whole records to their places the kernel took 1.22 times as long as alone, beside these 1.09 times.
        """
        if not by_pieces or size < 4 * PIECE:
            return _checksum(views) if files.read_all(self.descriptor, views, offset) else None
        scratch = self._scratch(PIECE + files.PAGE)
        try:
            return self._fill_by_pieces(views, offset, size, scratch[-scratch.ctypes.data % files.PAGE :][:PIECE])
        finally:
            self._spare.append(scratch)

    def _fill_by_pieces(self, views: list[memoryview], offset: int, size: int, scratch: np.ndarray) -> int | None:
        import xxhash

        digest = xxhash.xxh3_64()
        sections = iter([np.frombuffer(view, np.uint8) for view in views if view.nbytes])
        section = next(sections)
        for first in range(0, size, PIECE):
            piece = scratch[: size - first]
            if not files.read_all(self.descriptor, [memoryview(piece)], offset + first):
                return None
            digest.update(piece)
            while piece.size:
                if not section.size:
                    section = next(sections)
                n = min(piece.size, section.size)
                copy_past_caches(piece[:n], section[:n])
                piece, section = piece[n:], section[n:]
        return digest.intdigest()

    def _passed(self, offset: int, size: int) -> tuple[int, int]:
        """Place and bytes of what the page cache may forget when the record at ``offset`` has been read.

        In sequence the system reads in pieces of megabytes, whatever the records' bounds, and forgets only pieces that
        are named whole: record by record, 93 % of a file stayed. So all of a stretch behind is named each time, but
        for what another thread may be reading yet.
        """
        follows, self._end = 0 <= offset - self._end <= NEAR, offset + size
        if not follows:
            return offset, size
        first = max(0, offset - size - BEHIND)
        return first, offset - LAG - first

    def n_bytes_of(self, chunks: np.ndarray) -> int:
        """Bytes on disk of these records."""
        return int(self.sizes[chunks].sum())

    def advise(self, here: np.ndarray, coming: np.ndarray) -> None:
        """Say that ``coming`` will be read after ``here``: the system fetches it while ``here`` is worked on.

        Nothing is said of what lies next in the file: that it fetches by itself, in larger pieces and cheaper.
        """
        end = int(self.offsets[here[-1]] + self.sizes[here[-1]]) if here.size else -NEAR - 1
        for chunk in coming.tolist():
            offset, size = int(self.offsets[chunk]), int(self.sizes[chunk])
            if size and not 0 <= offset - end <= NEAR:
                files.fetch_ahead(self.descriptor, offset, size)
            end = offset + size

    def fetch(self, chunks: Iterable[int]) -> None:
        """Ask for the first of these records, as many bytes as surely stay in the page cache until they are read."""
        room = int(FETCH_SHARE * self.cache)
        for chunk in chunks:
            offset, size = int(self.offsets[chunk]), int(self.sizes[chunk])
            room -= size
            if not self.stored[chunk] or room < 0:
                return
            files.fetch_ahead(self.descriptor, offset, size)

    def _forget(self, chunk: int) -> None:
        """Drop a record whose bytes are not what was written; it is decoded anew and counted."""
        self.stored[chunk] = False
        self.rebuilt += 1
        log.warning("raw store: the record of chunk %d is damaged; it is made anew", chunk)

    # Between runs

    def _shape(self) -> np.ndarray:
        """What the records' form depends on beside the data."""
        return np.array([FORMAT, self.width, self.binary, self.constant, self.weighted, self.real, self.rows.size])

    def _recall(self) -> None:
        """Take over the records that an earlier run wrote down."""
        prefix = f"raw-{self.source.digest}"
        for name in files.list_directory(self._directory):
            if name.startswith(prefix) and name.endswith(".npz") and self._take(name):
                return

    def _take(self, name: str) -> bool:
        try:
            kept = files.load_arrays(files.join(self._directory, name))
            encoding = str(kept["encoding"])
            usable = np.array_equal(kept["shape"], self._shape()) and self.wanted in (None, encoding)
            if not usable or encoding not in ENCODINGS:
                return False
            layout = self._layout(encoding, int(kept["sixteenths"]))
            found = {n: kept[n].astype(getattr(self, n).dtype) for n in KEPT}
            if any(found[n].shape != self.rows.shape for n in KEPT):
                return False
        except (OSError, ValueError, KeyError):
            return False  # none, or not readable: made anew
        self.layout = layout
        self.descriptor = files.open_descriptor(f"{self._path}{layout.name}.bin")
        self.__dict__.update(found)
        return True

    def remember(self) -> None:
        """Write down which records there are, so that a later run finds them."""
        if self._path is not None and self.layout is not None:
            files.sync_descriptor(self.descriptor)
            told = {name: getattr(self, name) for name in KEPT}
            files.save_arrays(f"{self._path}{self.layout.name}.npz", shape=self._shape(),
                              encoding=np.array(self.layout.encoding), sixteenths=np.array(self.layout.sixteenths),
                              **told)  # fmt: skip

    def close(self) -> None:
        for descriptor in (self.descriptor, self._direct):
            if descriptor >= 0:
                os.close(descriptor)
        self.descriptor = self._direct = -1  # closed twice, it would be somebody else's


def is_finished(source: Rows, directory: str) -> bool:
    """Whether a store left in ``directory`` by earlier runs has a record of every chunk of ``source``: then nothing is
    left to decode."""
    try:
        store = RawStore(source, directory, keep=True)
    except OSError:
        return False
    try:
        whole = bool(store.stored.all()) and store.descriptor >= 0
        return whole and files.size_of(store.descriptor) >= int((store.offsets + store.sizes).max(initial=0))
    finally:
        store.close()


KEPT = ("offsets", "sizes", "units", "sums", "stored")


def _bytes(array: np.ndarray) -> memoryview:
    return memoryview(np.ascontiguousarray(array)).cast("B") if array.size else memoryview(b"")


def _checksum(views: list[memoryview]) -> int:
    """XXH3 over the sections: many times faster than the disk, where zlib's CRC is slower."""
    import xxhash

    digest = xxhash.xxh3_64()
    for view in views:
        digest.update(view)
    return digest.intdigest()
