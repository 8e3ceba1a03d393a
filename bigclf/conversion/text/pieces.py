"""Source text in pieces that do not depend on who reads them: piece k owns the records that begin in its 16 MiB.

A record is a line, or lines from one that begins with the reader's mark up to the next such.
"""

from __future__ import annotations

import bz2
import gzip
import io
import itertools
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

import numpy as np

from bigclf import files
from bigclf.conversion.shuffle import Run, Spiller, Totals, is_whole
from bigclf.conversion.text.parsed import BadRow, Options, as_slab
from bigclf.conversion.text.readers import Reader
from bigclf.errors import DataError, StoreError

if TYPE_CHECKING:
    import pyarrow as pa


PIECE = 2**24  # bytes of decompressed text
BLOCK = 2**21  # bytes parsed at a time
SOURCE_BITS, PIECE_BITS, ROW_BITS = 20, 20, 24
BOM, NEWLINE = b"\xef\xbb\xbf", 10
UTF_16 = b"\xff\xfe", b"\xfe\xff"  # begin such text, as spreadsheets on Windows write it


def _open_zstd(file: BinaryIO, mode: str) -> pa.NativeFile:
    import pyarrow as pa

    return pa.CompressedInputStream(pa.PythonFile(file, mode), "zstd")


COMPRESSIONS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ": lzma.open,
    b"\x28\xb5\x2f\xfd": _open_zstd,
}


class Source(NamedTuple):
    """A source file: its number among all, whether it is compressed, its size and time of change when first seen."""

    path: str
    number: int
    compressed: bool
    size: int
    mtime_ns: int

    @property
    def n_pieces(self) -> int:
        return -(-self.size // PIECE)


class Task(NamedTuple):
    """Consecutive pieces for one worker: to be read from the source's byte range, or texts read already.

    Attributes
    ----------
    first, last : the pieces first <= k < last.
    texts : of a compressed source, (piece, its whole lines).
    """

    source: Source
    first: int
    last: int
    texts: list[tuple[int, bytes]] | None


class Job(NamedTuple):
    """What all tasks share."""

    reader: Reader
    options: Options
    seed: int | None
    scratch: str
    room: int
    stop_at_bad: bool
    max_line: int


class Bad(NamedTuple):
    """A line that is no row: 1-based line (of its task, later of its file), reason, text."""

    line: int
    reason: str
    text: bytes


class Done(NamedTuple):
    """What came of a task: sorted runs, totals, (source, piece, rows, nnz) of each piece, lines and bytes read, bad
    lines."""

    runs: list[Run]
    totals: Totals
    pieces: list[tuple[int, int, int, int]]
    n_lines: int
    n_bytes: int
    bad: list[Bad]

    def is_whole(self, merged: bool) -> bool:
        """Whether what it wrote is as it was written; ``merged``: the runs are needed no more."""
        return merged or all(map(is_whole, self.runs))

    def as_written(self) -> Done:
        """Without what stands in files: all of it, for here nothing does."""
        return self


def look_at(path: str, number: int) -> Source:
    """Find out how the file is compressed, by its first bytes.

    Raises
    ------
    DataError : for a compression that is not known, text in UTF-16, or too many or too large files.
    """
    with files.open_binary(path) as file:
        start = file.read(6)
    size, mtime_ns = files.status(path)
    if start.startswith(b"PAR1"):
        raise DataError("this is a Parquet file, which needs no conversion; read it apart from text", file=path)
    if start.startswith(UTF_16):
        raise DataError("the text is in UTF-16; write it as UTF-8: iconv -f UTF-16 -t UTF-8 OLD > NEW", file=path)
    if number >= 2**SOURCE_BITS or size > PIECE * 2**PIECE_BITS:
        raise DataError("more than a million files, or a file of more than 16 TiB; convert in parts", file=path)
    return Source(path, number, any(start.startswith(mark) for mark in COMPRESSIONS), size, mtime_ns)


def is_packed(path: str) -> bool:
    """Whether the file at ``path`` is compressed."""
    with files.open_binary(path) as file:
        return file.read(6).startswith(tuple(COMPRESSIONS))


def first_text(source: Source, max_line: int, record: bytes) -> bytes:
    """Whole records from the beginning of ``source``, without a byte order mark."""
    texts = list(itertools.islice(_decompressed(source, max_line, record), 1)) if source.compressed else None
    text = next(blocks_of(Task(source, 0, 1, texts), max_line, record), (0, b""))[1]
    return text.removeprefix(BOM)


def tasks_of(source: Source, pieces_a_task: int, max_line: int, record: bytes = b"") -> Iterator[Task]:
    """Tasks over all pieces of ``source``; a compressed one is decompressed here, as the tasks are asked for."""
    if not source.compressed:
        for first in range(0, source.n_pieces, pieces_a_task):
            yield Task(source, first, min(first + pieces_a_task, source.n_pieces), None)
        return
    texts = list[tuple[int, bytes]]()
    for piece, text in _decompressed(source, max_line, record):
        texts.append((piece, text))
        if len(texts) == pieces_a_task:
            yield Task(source, texts[0][0], piece + 1, texts)
            texts = []
    if texts:
        yield Task(source, texts[0][0], texts[-1][0] + 1, texts)


def _decompressed(source: Source, max_line: int, record: bytes) -> Iterator[tuple[int, bytes]]:
    """(piece, its whole records) in order; a piece in which none begins is left out."""
    with files.open_binary(source.path) as file:
        start = file.read(6)
        file.seek(0)
        opener = next(opener for mark, opener in COMPRESSIONS.items() if start.startswith(mark))
        try:
            stream = Records(io.BufferedReader(opener(file, "rb"), 2**20), record, max_line, source.path)
            position = 0
            while text := stream.read(PIECE - position % PIECE):
                yield position // PIECE, text
                position += len(text)
        except (EOFError, OSError, zlib.error, lzma.LZMAError, ValueError) as error:
            if isinstance(error, StoreError) or isinstance(error, OSError) and error.errno is not None:
                raise
            raise DataError(f"cannot be decompressed ({error}); copy the file again", file=source.path) from error


class Lines(Protocol):
    """What bytes are read from: a file, open or being decompressed."""

    def read(self, size: int = -1, /) -> bytes: ...

    def readline(self, size: int = -1, /) -> bytes: ...


class Records:
    """Reads whole records of a file."""

    def __init__(self, file: Lines, record: bytes, max_line: int, path: str) -> None:
        self.file, self.record, self.max_line, self.path = file, record, max_line, path
        self.ahead = b""  # the first line of the record to come

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes and the rest of the record they end in; nothing at the end of the file."""
        text = self.ahead + self.file.read(max(size - len(self.ahead), 0))
        self.ahead = b""
        if text and not text.endswith(b"\n"):
            text += self.line()
        return text + self._rest() if text and self.record else text

    def _rest(self) -> bytes:
        """The lines up to the next record."""
        lines, held = list[bytes](), 0
        while (line := self.line()) and not line.startswith(self.record):
            lines.append(line)
            held += len(line)
            if held > self.max_line:
                raise self._too_long("record")
        self.ahead = line
        return b"".join(lines)

    def line(self) -> bytes:
        """The next line, with its end; DataError where it is too long."""
        line: bytes = self.file.readline(self.max_line)
        if len(line) >= self.max_line and not line.endswith(b"\n"):
            raise self._too_long("line")
        return line

    def _too_long(self, what: str) -> DataError:
        message = f"a {what} of more than {self.max_line:,} bytes; allow more memory, if this is text at all"
        return DataError(message, file=self.path)


def blocks_of(task: Task, max_line: int, record: bytes = b"") -> Iterator[tuple[int, bytes]]:
    """(piece, whole records) of a task, a few MiB at a time, in order."""
    if task.texts is not None:
        for piece, text in task.texts:
            stream = Records(io.BytesIO(text), record, max_line, task.source.path)
            while block := stream.read(BLOCK):
                yield piece, block
        return
    with files.open_binary(task.source.path) as file:
        position = _first_record(file, task.first * PIECE, record)
        end = task.last * PIECE
        stream = Records(file, record, max_line, task.source.path)
        while position < end:
            block = stream.read(min(BLOCK, PIECE - position % PIECE))
            if not block:
                return
            yield position // PIECE, block
            position += len(block)


def _first_record(file: BinaryIO, start: int, record: bytes) -> int:
    """Go to the first record that begins at or after ``start``; return its place."""
    if start == 0:
        return 0
    file.seek(start - 1)
    _skip_line(file)
    while record:
        mark = file.read(len(record))
        file.seek(-len(mark), io.SEEK_CUR)
        if mark in (record, b""):
            break
        _skip_line(file)
    return file.tell()


def _skip_line(file: BinaryIO) -> None:
    while (part := file.readline(BLOCK)) and not part.endswith(b"\n"):
        pass


def run_task(job: Job, task: Task) -> Done:
    """Parse the pieces of a task and spill their rows in key order."""
    parse = job.reader.parse
    spiller = Spiller(files.join(job.scratch, f"{task.source.number}-{task.first}"), job.seed, job.room)
    pieces: dict[int, list[int]] = {}
    bad = list[Bad]()
    n_lines = n_bytes = 0
    for piece, text in blocks_of(task, job.max_line, job.reader.record):
        mark = len(BOM) if n_bytes == 0 and task.first == 0 and text.startswith(BOM) else 0
        parsed = parse(text[mark:] if mark else text, job.options)
        bad += located(text, mark, parsed.bad, n_lines)
        if bad and job.stop_at_bad:
            break
        spiller.totals.queries = spiller.totals.queries or parsed.queries
        slab, rounding = as_slab(parsed)
        so_far = pieces.setdefault(piece, [0, 0])
        first = (task.source.number << (PIECE_BITS + ROW_BITS)) + (piece << ROW_BITS) + so_far[0]
        spiller.add(np.arange(first, first + slab.n_rows, dtype=np.uint64), slab)
        spiller.totals.rounding = max(spiller.totals.rounding, rounding)
        so_far[0] += slab.n_rows
        so_far[1] += slab.indices.size
        n_lines += int(np.count_nonzero(np.frombuffer(text, np.uint8) == NEWLINE))  # faster than bytes.count
        n_bytes += len(text)
    spiller.flush()
    counted = [(task.source.number, piece, rows, nnz) for piece, (rows, nnz) in pieces.items()]
    return Done(spiller.runs, spiller.totals, counted, n_lines, n_bytes, bad)


def located(text: bytes, mark: int, bad: list[BadRow], n_lines: int) -> list[Bad]:
    """The bad rows of a text with their lines, which are counted once for all of them."""
    if not bad:
        return []
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == NEWLINE)
    lines = np.searchsorted(ends, [found.offset + mark for found in bad]) + n_lines + 1
    pairs = zip(lines.tolist(), bad, strict=True)
    return [Bad(line, found.reason, _text_of(text, mark, found)) for line, found in pairs]


def _text_of(text: bytes, mark: int, bad: BadRow) -> bytes:
    start = bad.offset + mark
    end = bad.end + mark if bad.end >= 0 else text.find(b"\n", start)
    return text[start : end if end >= 0 else len(text)].rstrip(b"\r")
