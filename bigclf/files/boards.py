"""Large arrays for another process of this machine, through memory that both can read.

Whoever writes has memory without a name, which ends with the process, and the reader opens it by process and
descriptor. Each writing has a number. A reader copies, and then looks whether the number is still there: what was
written over meanwhile, or is another machine's, is not taken for what was asked for.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
from typing import NamedTuple

import numpy as np

LEAST_BYTES = 1_000_000  # less than this travels as all else does ...
MOST_BYTES = 64_000_000  # ... and more, for which there may be no memory twice
BOARDS = 4  # of a worker, for what its visits come to
HEAD = 32  # bytes: a key of the board, and the number of what is there


class Posted(NamedTuple):
    """Where something lies: process, descriptor, head, the pickled rest, sizes of the arrays."""

    pid: int
    descriptor: int
    head: bytes
    rest: bytes
    sizes: tuple[int, ...]


class Board:
    """Memory that other processes of this machine read.

    Raises
    ------
    OSError : the system has none.
    """

    def __init__(self) -> None:
        if not hasattr(os, "memfd_create"):
            raise OSError("no memory without a name on this system")
        self._descriptor: int | None = os.memfd_create("bigclf")
        self._key, self._number = os.urandom(HEAD // 2), 0

    def post(self, content: object) -> Posted:
        """Write it over what was there before.

        Raises
        ------
        OSError : there is no memory for it.
        """
        assert self._descriptor is not None
        held: list[pickle.PickleBuffer] = []
        rest = pickle.dumps(content, protocol=5, buffer_callback=held.append)
        self._number += 1
        head, arrays = self._key + self._number.to_bytes(HEAD // 2, "little"), [buffer.raw() for buffer in held]
        _write(self._descriptor, memoryview(bytes(HEAD)), 0)
        place = HEAD
        for array in arrays:
            _write(self._descriptor, array, place)
            place += array.nbytes
        _write(self._descriptor, memoryview(head), 0)
        return Posted(os.getpid(), self._descriptor, head, rest, tuple(array.nbytes for array in arrays))

    def close(self) -> None:
        """Give the memory back; safe to call twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):
            self.close()


def read(posted: Posted) -> object:
    """What was posted, in arrays of its own.

    Raises
    ------
    OSError : it cannot be read from here, or is no longer there.
    """
    path = f"/proc/{posted.pid}/fd/{posted.descriptor}"  # which may be a pipe by now: nobody waits for its other end
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _require(file, posted)
        arrays, place = [], HEAD
        for size in posted.sizes:
            array = np.empty(size, np.uint8)
            _read(file, memoryview(array), place)
            arrays.append(array)
            place += size
        _require(file, posted)
    finally:
        os.close(file)
    return pickle.loads(posted.rest, buffers=arrays)


def pays(size: int) -> bool:
    """Whether so many bytes are posted."""
    return LEAST_BYTES <= size <= MOST_BYTES


@functools.cache
def _probe() -> tuple[Board, Posted] | None:
    """Of this process, for as long as it lives."""
    try:
        board = Board()
        return board, board.post(None)
    except OSError:
        return None


def probe() -> Posted | None:
    """Something for another process to try to read; None: there is no such memory here."""
    found = _probe()
    return None if found is None else found[1]


def reaches(posted: Posted | None) -> bool:
    """Whether this process can read what another one has posted."""
    with contextlib.suppress(OSError):
        return posted is not None and read(posted) is None
    return False


def _require(file: int, posted: Posted) -> None:
    if os.pread(file, HEAD, 0) != posted.head:
        raise OSError("something else is there")


def _write(file: int, data: memoryview, place: int) -> None:
    while data:
        done = os.pwrite(file, data, place)
        data, place = data[done:], place + done


def _read(file: int, into: memoryview, place: int) -> None:
    while into:
        done = os.preadv(file, [into], place)
        if not done:
            raise OSError("it ends too soon")
        into, place = into[done:], place + done
