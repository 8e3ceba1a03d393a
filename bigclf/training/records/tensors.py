"""Files of tensors (safetensors), read in pieces: per-row arrays need not fit in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bigclf import files
from bigclf.errors import RunError
from bigclf.model.model import header_length, tensor_table
from bigclf.stream.row_files import FiledArray

PIECE = 1 << 17  # entries of a tensor that are read at a time


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
