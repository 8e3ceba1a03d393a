"""The raw store: decoded chunks as records on local disk, read back several times faster than Parquet decodes.

A record holds a chunk's sections one after another: indices, values, squared norms, row lengths, class codes, row
weights. One ``preadv`` a record scatters them straight into the arrays of a block. The store is a cache: every record
carries a checksum, a bad one is made anew from the shards, a full disk only makes the store smaller, and a process
that is killed leaves nothing behind (the file has no name) unless a directory for it was given.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

import numpy as np

from bigclf.block import Block
from bigclf.data import files

log = logging.getLogger("bigclf")
FORMAT = 1


class Buffer:
    """Memory for a block of at most ``rows`` rows and ``nnz`` entries, used again and again."""

    def __init__(self, rows: int, nnz: int, index_width: int, binary: bool) -> None:
        self.indices = np.empty(nnz, np.uint64 if index_width == 8 else np.uint32)
        self.values = np.empty(0 if binary else nnz, np.float32)
        self.norms, self.labels, self.weights = np.empty(rows), np.empty(rows), np.empty(rows)
        self.lengths, self.codes = np.empty(rows, np.uint32), np.empty(rows, np.int32)
        self.indptr, self.ids = np.zeros(rows + 1, np.int64), np.empty(rows, np.int64)

    def block(self, rows: int, nnz: int) -> Block:
        """The first ``rows`` rows as a block; ``ids`` is left to the caller."""
        np.cumsum(self.lengths[:rows], out=self.indptr[1 : rows + 1])
        self.labels[:rows] = self.codes[:rows]
        return Block(
            self.indptr[: rows + 1],
            self.indices[:nnz],
            self.values[: 0 if self.values.size == 0 else nnz],
            self.labels[:rows],
            self.weights[:rows],
            self.norms[:rows],
            self.ids[:rows],
        )


ROW_BYTES = 3 * 8 + 2 * 4 + 2 * 8  # a row of a buffer, entries apart


def buffer_bytes(rows: Any, nnz: Any, index_width: int, binary: bool) -> Any:
    """What a ``Buffer`` of that size allocates; int or int64 [n]."""
    return nnz * (index_width + (0 if binary else 4)) + rows * ROW_BYTES + 8


class RawStore:
    """Records of the chunks of one dataset.

    Parameters
    ----------
    source : the dataset; its chunk table places every record before the first is written.
    directory : where the file lies.
    keep : leave the file there, named by the dataset's digest, for later runs.
    limit : most bytes on disk; chunks beyond it are simply not stored.
    drop : have the page cache forget what was read: nothing of a scan that does not fit it would be found again.
    """

    def __init__(
        self, source: Any, directory: str, *, keep: bool = False, limit: int | None = None, drop: bool = True
    ) -> None:
        self.drop = drop
        self.source, self.binary, self.weighted = source, source.binary, source.weighted
        self.rows, self.nnz = source.chunks.rows, source.chunks.nnz
        entry = source.index_width + (0 if source.binary else 4)
        row = 8 + 4 + 4 + (4 if source.weighted else 0)
        sizes = (self.nnz * entry + self.rows * row + 15) // 16 * 16
        self.offsets = np.concatenate([[0], np.cumsum(sizes)])
        self.sums = np.zeros(sizes.size, np.uint64)
        self.stored = np.zeros(sizes.size, bool)
        self.limit = int(self.offsets[-1]) if limit is None else limit
        self.rebuilt = 0
        self._lock = threading.Lock()
        self._path = files.join(directory, f"raw-{source.digest}") if keep else None
        if self._path is None:
            self.descriptor = files.unlinked_file(directory)
        else:
            self.descriptor = files.open_descriptor(self._path + ".bin")
            self._recall()

    @property
    def n_bytes(self) -> int:
        """Bytes of the whole store when every chunk is in it."""
        return int(self.offsets[-1])

    def has(self, chunk: int) -> bool:
        return bool(self.stored[chunk])

    def write(self, chunk: int, block: Block) -> None:
        """Keep a decoded chunk, if there is room."""
        if self.stored[chunk] or self.offsets[chunk + 1] > self.limit:
            return
        a, b = int(block.indptr[0]), int(block.indptr[-1])
        sections = [block.indices[a:b]]
        if not self.binary:
            sections.append(block.values[a:b])
        sections += [block.norms, np.diff(block.indptr).astype(np.uint32), block.labels.astype(np.int32)]
        if self.weighted:
            sections.append(block.weights.astype(np.float32))
        views = [_bytes(section) for section in sections]
        try:
            files.write_all(self.descriptor, views, int(self.offsets[chunk]))
        except OSError as error:
            with self._lock:
                self.limit = min(self.limit, int(self.offsets[chunk]))
            log.warning("raw store: %s; it goes on with what fits (%d bytes)", error, self.limit)
            return
        self.sums[chunk] = _checksum(views)
        self.stored[chunk] = True

    def read(self, chunks: np.ndarray, buffer: Buffer) -> Block | None:
        """The chunks as one block in ``buffer``; None when a record is not as it was written."""
        row = entry = 0
        for chunk in chunks:
            m, n = int(self.rows[chunk]), int(self.nnz[chunk])
            sections = [buffer.indices[entry : entry + n]]
            if not self.binary:
                sections.append(buffer.values[entry : entry + n])
            sections += [a[row : row + m] for a in (buffer.norms, buffer.lengths, buffer.codes)]
            if self.weighted:
                weights = np.empty(m, np.float32)
                sections.append(weights)
            views = [_bytes(section) for section in sections]
            offset = int(self.offsets[chunk])
            if not files.read_all(self.descriptor, views, offset) or _checksum(views) != self.sums[chunk]:
                self._forget(int(chunk))
                return None
            if self.drop:
                files.drop_cache(self.descriptor, offset, int(self.offsets[chunk + 1]) - offset)
            buffer.weights[row : row + m] = weights if self.weighted else 1.0
            row, entry = row + m, entry + n
        return buffer.block(row, entry)

    def _forget(self, chunk: int) -> None:
        """Drop a record whose bytes are not what was written; it is decoded anew and counted."""
        self.stored[chunk] = False
        self.rebuilt += 1
        log.warning("raw store: the record of chunk %d is damaged; it is made anew", chunk)

    def _recall(self) -> None:
        """Take over the records that an earlier run wrote down."""
        try:
            kept = files.load_arrays(f"{self._path}.npz")
            if int(kept["format"]) == FORMAT and np.array_equal(kept["offsets"], self.offsets):
                self.sums, self.stored = kept["sums"].copy(), kept["stored"].copy()
        except (OSError, ValueError, KeyError):
            return  # none, or not readable: made anew

    def remember(self) -> None:
        """Write down which records there are, so that a later run finds them."""
        if self._path is not None:
            files.sync_descriptor(self.descriptor)
            files.save_arrays(f"{self._path}.npz", format=np.array(FORMAT), offsets=self.offsets, sums=self.sums,
                              stored=self.stored)  # fmt: skip

    def close(self) -> None:
        os.close(self.descriptor)


def _bytes(array: np.ndarray) -> memoryview:
    return memoryview(np.ascontiguousarray(array)).cast("B") if array.size else memoryview(b"")


def _checksum(views: list[memoryview]) -> int:
    """XXH3 over the sections: many times faster than the disk, where zlib's CRC is slower."""
    import xxhash

    digest = xxhash.xxh3_64()
    for view in views:
        digest.update(view)
    return digest.intdigest()
