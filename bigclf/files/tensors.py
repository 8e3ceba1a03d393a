"""Files of tensors (safetensors), written in pieces: what is written need not fit in memory.

Each tensor has a checksum, which stands in front of them all and is known when the last of them has been written: the
head is written twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from bigclf import files

if TYPE_CHECKING:
    import numpy as np

NAMES = {"<f8": "F64", "<f4": "F32", "<i8": "I64", "<i4": "I32", "<u4": "U32", "<u2": "U16", "|u1": "U8"}
PIECE_BYTES = 1 << 22  # of an array that are written, or added to a checksum, at a time
NO_SUM = "0" * 32


class InPieces(Protocol):
    """An array that is never held whole; its pieces follow each other as the rows of an array do."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int

    def pieces(self) -> Iterator[np.ndarray]: ...


def write_tensors(
    path: str | os.PathLike[str],
    arrays: Mapping[str, np.ndarray | InPieces],
    metadata: Callable[[dict[str, str]], dict[str, str]],
) -> dict[str, str]:
    """Write arrays to ``path``; ``metadata`` makes the head's texts of the checksums, which are returned.

    The texts are as long whatever the checksums are.
    """
    sums = dict.fromkeys(arrays, NO_SUM)
    with files.open_binary(path, "wb") as file:
        file.write(_head(arrays, metadata(sums)))
        for name, array in arrays.items():
            digest = hashlib.blake2b(digest_size=16)
            for content in _contents(array):
                digest.update(content)
                file.write(content)
            sums[name] = digest.hexdigest()
        file.seek(0)
        file.write(_head(arrays, metadata(sums)))
    return sums


def checksum(array: np.ndarray | InPieces) -> str:
    """Of the array's bytes."""
    digest = hashlib.blake2b(digest_size=16)
    for content in _contents(array):
        digest.update(content)
    return digest.hexdigest()


def _contents(array: np.ndarray | InPieces) -> Iterator[memoryview]:
    import numpy as np  # not at the top: ``bigclf --help`` loads this package

    for piece in [array] if isinstance(array, np.ndarray) else array.pieces():
        if piece.size:
            content = memoryview(np.ascontiguousarray(piece).reshape(-1)).cast("B")
            for first in range(0, content.nbytes, PIECE_BYTES):
                yield content[first : first + PIECE_BYTES]


def _head(arrays: Mapping[str, np.ndarray | InPieces], metadata: dict[str, str]) -> bytes:
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
