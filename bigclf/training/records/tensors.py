"""Files of tensors (safetensors), written and read in pieces: per-row arrays need not fit in memory.

Each tensor has a checksum, which stands in front of them all and is known when the last of them has been written: the
head is written twice.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bigclf import files
from bigclf.errors import RunError
from bigclf.model.model import header_length, tensor_table
from bigclf.stream.row_files import FiledArray

if TYPE_CHECKING:
    from bigclf.stream.row_files import FiledArray


NAMES = {"<f8": "F64", "<f4": "F32", "<i8": "I64", "<i4": "I32"}
PIECE = 1 << 17  # entries of a tensor that are read at a time
NO_SUM = "0" * 32


def write_tensors(
    path: str, arrays: Mapping[str, np.ndarray | FiledArray], metadata: Callable[[dict[str, str]], dict[str, str]]
) -> dict[str, str]:
    """Write arrays to ``path``; ``metadata`` makes the head's texts of the checksums, which are returned.

    The texts are as long whatever the checksums are.
    """
    sums = dict.fromkeys(arrays, NO_SUM)
    with files.open_binary(path, "wb") as file:
        head = _head(arrays, metadata(sums))
        file.write(head)
        for name, array in arrays.items():
            digest = hashlib.blake2b(digest_size=16)
            for piece in _pieces(array):
                content = memoryview(piece).cast("B") if piece.size else b""
                digest.update(content)
                file.write(content)
            sums[name] = digest.hexdigest()
        file.seek(0)
        file.write(_head(arrays, metadata(sums)))
    return sums


def read_head(path: str) -> tuple[dict[str, tuple[int, np.dtype, tuple[int, ...]]], dict[str, str]]:
    """Place, type and shape of each tensor of the file, and the texts of its head; ModelFormatError where damaged."""
    size = files.file_size(path)
    with files.open_binary(path) as file:
        head = file.read(8)
        return tensor_table(head + file.read(header_length(head, size) - len(head)), size)


@dataclass(frozen=True)
class Slices:
    """Reads rows a to b of an array float64 [row, *tail] whose bytes begin at ``first`` in the file; travels as its
    path."""

    path: str
    first: int
    tail: tuple[int, ...] = ()

    def __call__(self, a: int, b: int) -> np.ndarray:
        piece = np.empty((b - a, *self.tail))
        place = self.first + 8 * math.prod(self.tail) * a
        with files.open_binary(self.path) as file:
            file.seek(place)
            if file.readinto(memoryview(piece).cast("B")) != piece.nbytes:  # type: ignore[attr-defined]
                raise RunError(f"{self.path} is shorter than it was; resume the run from its last checkpoint")
            files.drop_cache_of(file, place, piece.nbytes)
        return piece


def filed_array(path: str, first: int, shape: tuple[int, ...]) -> FiledArray:
    """An array float64 [row, ...] whose bytes begin at ``first`` in the file."""
    rows, tail = shape[0], shape[1:]
    piece = max(1, PIECE // math.prod(tail))
    return FiledArray(np.append(np.arange(0, rows, piece), rows), Slices(path, first, tail), tail)


def checksum(array: np.ndarray | FiledArray) -> str:
    """Of the array's bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for piece in _pieces(array):
        digest.update(memoryview(piece).cast("B") if piece.size else b"")
    return digest.hexdigest()


def _pieces(array: np.ndarray | FiledArray) -> Iterator[np.ndarray]:
    if isinstance(array, FiledArray):
        yield from array.pieces()
    else:
        yield np.ascontiguousarray(array)


def _head(arrays: Mapping[str, np.ndarray | FiledArray], metadata: dict[str, str]) -> bytes:
    """The length of the header, and the header itself, filled up to a multiple of 8 bytes."""
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, array in arrays.items():
        first, end = end, end + array.nbytes
        shape, kind = [int(n) for n in array.shape], NAMES[array.dtype.str]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [first, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text
