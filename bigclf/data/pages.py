"""Lists of numbers straight from Parquet's pages, three times as fast as through Arrow.

Arrow rebuilds the nesting of each column value by value. Here the levels of a page are looked at only for where rows
begin, and delta-coded indices and byte-split values go straight into the arrays of a block. What is read: lists without
nulls, format 1 pages, plain, ``DELTA_BINARY_PACKED`` and ``BYTE_STREAM_SPLIT`` numbers, as our own shards have them.
Anything else, and anything that does not add up, gives None: Arrow reads it again, or says what is wrong with it.

The format: https://parquet.apache.org/docs/file-format (encodings, data pages, Thrift's compact protocol).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from isal import isal_zlib
from numpy.typing import DTypeLike

from bigclf.compiled.jit import INTERPRETED, kernel, load_word
from bigclf.data.footer import ColumnChunk, Footer, read_struct

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


CODECS = {0: None, 1: "snappy", 2: "gzip", 6: "zstd", 7: "lz4_raw"}
DATA_PAGE, RLE = 0, 3
PLAIN, DELTA_BINARY_PACKED, BYTE_STREAM_SPLIT = 0, 5, 9
TYPES: dict[str, type[np.number]] = {"INT32": np.int32, "INT64": np.int64, "FLOAT": np.float32}
MOST_BITS = 56  # that one load of eight bytes has, whatever bit they begin at


class Scratch:
    """Memory of one thread that each column is read through: fresh pages for every one cost as much as its checksum."""

    def __init__(self) -> None:
        self._held: dict[str, np.ndarray] = {}

    def take(self, name: str, size: int, dtype: DTypeLike) -> np.ndarray:
        """``size`` numbers [size] to write; what was taken under this name before is overwritten."""
        held = self._held.get(name)
        if held is None or held.nbytes < size * np.dtype(dtype).itemsize:
            held = self._held[name] = np.empty(size * np.dtype(dtype).itemsize, np.uint8)
        return held[: size * np.dtype(dtype).itemsize].view(dtype)


class Pages(NamedTuple):
    """An open file whose pages can be read here.

    Attributes
    ----------
    source : pyarrow.OSFile.
    footer : what the footer claims, checked.
    columns : {dotted name of a leaf: (its place, its numpy type)} of lists without nulls.
    scratch : of the thread that reads.
    """

    source: pa.NativeFile
    footer: Footer
    columns: dict[str, tuple[int, type[np.number]]]
    scratch: Scratch


class _Refused(Exception):
    """Not of a form that is read here."""


def pages_of(
    source: pa.NativeFile, footer: Footer, schema: pq.ParquetSchema, scratch: Scratch | None = None
) -> Pages | None:
    """What is needed to read lists of the file; None where no column is of a form that is read here.

    Parameters
    ----------
    source : pyarrow.OSFile; footer : what it claims, checked; schema : pyarrow's ``ParquetSchema``.
    scratch : memory to read through; None: some of its own.
    """
    columns = {}
    for place in range(len(schema)):
        column = schema.column(place)
        once = column.max_repetition_level == 1 and column.max_definition_level == 1  # an empty list has 0, no null
        plain = column.converted_type in ("NONE", "INT_32", "INT_64") and column.logical_type.type in ("NONE", "INT")
        if once and plain and column.physical_type in TYPES and column.path.endswith((".list.element", ".list.item")):
            columns[column.path.rpartition(".list.")[0]] = place, TYPES[column.physical_type]
    return None if INTERPRETED or not columns else Pages(source, footer, columns, scratch or Scratch())


def read_lists(
    pages: Pages, row_group: int, names: list[str], into: Sequence[np.ndarray | None] = ()
) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """(indptr int64 [m+1], numbers [nnz]) of each list column, or None if one of them is not of a form read here.

    ``into`` : where each column's numbers go, arrays [nnz] with items of their size; they are left alone, and new ones
    made, where the items are of another size. Arrays of another length are as a column of another form.
    """
    if any(name not in pages.columns for name in names):
        return None
    group = pages.footer.groups[row_group]
    try:
        found = []
        for name, out in itertools.zip_longest(names, into):
            place, dtype = pages.columns[name]
            numbers = None
            if out is not None and out.dtype.itemsize == np.dtype(dtype).itemsize:
                numbers = out.view(dtype)
            found.append(_read_column(pages, group.columns[place], group.n_rows, np.dtype(dtype), numbers))
        return found
    except (_Refused, IndexError, KeyError, ValueError, TypeError, AttributeError):  # a header that is none
        return None


def _read_column(
    pages: Pages, chunk: ColumnChunk, n_rows: int, dtype: np.dtype[np.number], numbers: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    data = pages.scratch.take("column", chunk.n_bytes, np.uint8)
    pages.source.seek(chunk.first)
    _require(pages.source.readinto(data) == chunk.n_bytes)
    view = memoryview(data)
    indptr = np.empty(n_rows + 1, np.int64)
    given = numbers is not None
    if numbers is None:
        numbers = np.empty(chunk.n_values, dtype)  # an empty list counts as a value: some may be left over
    levels = place = row = entry = plain = 0
    while levels < chunk.n_values:
        header, place = read_struct(view, place)
        page = view[place : place + header[3]]
        place += header[3]
        plain += header[2]
        _require(header[1] == DATA_PAGE and len(page) == header[3] and plain <= chunk.n_plain)
        _require(4 not in header or isal_zlib.crc32(page) == header[4] % 2**32)
        body = _decompressed(page, header[2], CODECS[chunk.codec])
        n, encoding = header[5][1], header[5][2]
        _require(header[5][3] == header[5][4] == RLE and 0 < n <= chunk.n_values - levels)
        row, there, at = _rows(body, n, indptr, row, entry)
        _fill(body, at, numbers[entry : entry + there], encoding)
        levels, entry = levels + n, entry + there
    _require(row == n_rows and place == len(data) and (not given or entry == numbers.size))
    indptr[n_rows] = entry
    return indptr, numbers[:entry]


def _require(right: bool) -> None:
    if not right:
        raise _Refused


def _decompressed(page: memoryview, size: int, codec: str | None) -> np.ndarray:
    import pyarrow as pa

    if codec is None:
        _require(len(page) == size)
        return np.frombuffer(page, np.uint8)
    try:
        return np.frombuffer(pa.decompress(page, size, codec), np.uint8)
    except (OSError, pa.ArrowException):
        raise _Refused from None


def _rows(body: np.ndarray, n: int, indptr: np.ndarray, row: int, entry: int) -> tuple[int, int, int]:
    """Write down where the rows of a page begin: rows so far, entries in the page, where its numbers begin."""
    first = 4 + int.from_bytes(body[:4].tobytes(), "little")
    at = first + 4 + int.from_bytes(body[first : first + 4].tobytes(), "little")
    _require(at <= body.size)
    if all_ones(body, first + 4, at, n):
        row, there = row_starts(body, 4, first, n, indptr, row, entry), n
    else:  # some lists are empty
        begins, held = np.empty(n, np.uint8), np.empty(n, np.uint8)
        _require(expand(body, 4, first, begins) and expand(body, first + 4, at, held))
        row, there = starts_with_empty(begins, held, indptr, row, entry), int(np.count_nonzero(held))
    _require(row >= 0)
    return row, there, at


def _fill(body: np.ndarray, at: int, numbers: np.ndarray, encoding: int) -> None:
    """Decode the numbers of a page."""
    unsigned = numbers.view(f"u{numbers.itemsize}")
    if encoding == DELTA_BINARY_PACKED and numbers.dtype.kind == "i":
        _require(undelta(body, at, unsigned) >= 0)
        return
    _require(body.size - at == numbers.nbytes)
    if encoding == BYTE_STREAM_SPLIT and numbers.itemsize == 4:
        join_bytes(body[at:], unsigned)
    else:
        _require(encoding == PLAIN)
        numbers.view(np.uint8)[:] = body[at:]


def warm(index_width: int) -> None:
    """Compile (or load) the kernels that lists of our own shards go through, on no numbers at all."""
    page = np.empty(0, np.uint8)
    undelta(page, 0, np.empty(0, np.uint64 if index_width == 8 else np.uint32))
    join_bytes(page, np.empty(0, np.uint32))
    all_ones(page, 0, 0, 0)
    row_starts(page, 0, 0, 0, np.zeros(1, np.int64), 0, 0)


# Kernels: a result of -1 says that the bytes make no sense


@kernel
def varint(page, p, end):  # type: ignore[no-untyped-def]
    """A number of seven bits a byte, the lowest first, and the place after it."""
    number, shift = np.uint64(0), 0
    while p < end and shift < 64:
        byte = page[p]
        p += 1
        number |= np.uint64(byte & 127) << np.uint64(shift)
        if byte < 128:
            return number, p
        shift += 7
    return number, -1


@kernel
def zigzag(page, p, end):  # type: ignore[no-untyped-def]
    """A signed number as ``varint`` has it (0, -1, 1, -2 ... are 0, 1, 2, 3 ...), modulo 2^64."""
    number, p = varint(page, p, end)
    return (number >> np.uint64(1)) ^ (np.uint64(0) - (number & np.uint64(1))), p


@kernel
def undelta(page, p, out):  # type: ignore[no-untyped-def]
    """DELTA_BINARY_PACKED: out[i] = out[i-1] + least + (a few bits), least and the number of bits by miniblock."""
    end, n = page.size, out.size
    size, p = varint(page, p, end)
    minis, p = varint(page, p, end) if p >= 0 else (size, p)
    total, p = varint(page, p, end) if p >= 0 else (size, p)
    value, p = zigzag(page, p, end) if p >= 0 else (size, p)
    if p < 0 or size > 2**20 or minis < 1 or minis > size or total != n:
        return -1
    each = np.int64(size) // np.int64(minis)
    if each % 32 != 0 or each * np.int64(minis) != np.int64(size):
        return -1
    if n:
        out[0] = value
    i = np.int64(1)
    while i < n:
        least, p = zigzag(page, p, end)
        widths = p
        p += np.int64(minis)
        if widths < 0 or p > end:
            return -1
        for m in range(np.int64(minis)):
            if i >= n:
                break
            bits = np.int64(page[widths + m])
            after = p + each // 8 * bits
            if bits > MOST_BITS or after > end:
                return -1
            last = min(i + each, n)
            value = unpack(page, p, bits, least, value, out[i:last], after + 8 <= end)
            i, p = last, after
    return p


@kernel
def unpack(page, p, bits, least, value, out, roomy):  # type: ignore[no-untyped-def]
    """A miniblock; ``roomy`` if eight bytes can be loaded wherever one of its numbers begins."""
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    bit = 0
    for i in range(out.size):
        at = p + (bit >> 3)
        if roomy:
            word = load_word(page, at)
        else:
            word = np.uint64(0)
            for b in range(min(8, page.size - at)):
                word |= np.uint64(page[at + b]) << np.uint64(8 * b)
        value += least + ((word >> np.uint64(bit & 7)) & mask)
        out[i] = value
        bit += bits
    return value


@kernel
def join_bytes(split, out):  # type: ignore[no-untyped-def]
    """BYTE_STREAM_SPLIT: first the lowest bytes of all numbers, in the end the highest."""
    n = out.size
    for i in range(n):
        low = np.uint32(split[i]) | np.uint32(split[n + i]) << np.uint32(8)
        high = np.uint32(split[2 * n + i]) | np.uint32(split[3 * n + i]) << np.uint32(8)
        out[i] = low | high << np.uint32(16)


@kernel
def all_ones(page, p, end, n):  # type: ignore[no-untyped-def]
    """Whether n levels of one bit are all 1, in as few runs as they then come in."""
    i = np.int64(0)
    while i < n:
        head, p = varint(page, p, end)
        if p < 0 or p >= end or head < 2 or head & np.uint64(1) or page[p] != 1:
            return False
        i += np.int64(head >> np.uint64(1))
        p += 1
    return i == n


@kernel
def row_starts(page, p, end, n, indptr, row, entry):  # type: ignore[no-untyped-def]
    """Of n levels of one bit, in runs and packed: each 0 begins a row. The number of rows then."""
    i = np.int64(0)
    while i < n:
        head, p = varint(page, p, end)
        count = np.int64(head >> np.uint64(1))
        if p < 0 or p >= end or count < 1:
            return -1
        if head & np.uint64(1):
            if count > end - p:
                return -1
            for g in range(count):
                byte, last = page[p + g], min(n - i, 8)
                if byte != 255:
                    for j in range(last):
                        if not (byte >> j) & 1:
                            if row + 1 >= indptr.size:
                                return -1
                            indptr[row] = entry + i + j
                            row += 1
                i += max(last, 0)
            p += count
        else:
            if count > n - i or page[p] > 1:
                return -1
            if page[p] == 0:
                if count >= indptr.size - row:
                    return -1
                for j in range(count):
                    indptr[row + j] = entry + i + j
                row += count
            i += count
            p += 1
    return row


@kernel
def expand(page, p, end, out):  # type: ignore[no-untyped-def]
    """Levels of one bit, one a byte; whether there were as many."""
    i, n = np.int64(0), out.size
    while i < n:
        head, p = varint(page, p, end)
        count = np.int64(head >> np.uint64(1))
        packed = head & np.uint64(1)
        if p < 0 or p >= end or count < 1 or count > (end - p if packed else n - i):
            return False
        if packed:
            for j in range(min(n - i, 8 * count)):
                out[i + j] = (page[p + (j >> 3)] >> (j & 7)) & 1
            i, p = i + 8 * count, p + count
        else:
            if page[p] > 1:
                return False
            out[i : i + count] = page[p]
            i, p = i + count, p + 1
    return True


@kernel
def starts_with_empty(begins, held, indptr, row, entry):  # type: ignore[no-untyped-def]
    """``row_starts`` where lists may be empty: ``held`` is 0 for one that is."""
    for i in range(begins.size):
        if not begins[i]:
            if row + 1 >= indptr.size:
                return -1
            indptr[row] = entry
            row += 1
        entry += held[i]
    return row
