"""Compiled code on disk that can be trusted: numba's own files with a checksum each, a pair of them a signature.

numba reads back what it finds. A cut or changed file is an exception in the first call, a crash of the process, or
other machine code than was compiled; and where several processes fill an empty cache at once, the index of one may name
the code of another. Here every file ends in a checksum of all before it, a file that does not agree is removed and its
code compiled anew, and no two signatures share a file. What cannot be written is not kept, which costs time only.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
from collections.abc import Iterator
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile

log = logging.getLogger("bigclf")
SEAL = 16  # bytes


def _seal(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=SEAL).digest()


class SealedFiles(IndexDataCacheFile):
    """The index and the code of one signature; unpickling stops before the checksum behind."""

    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        with super()._open_for_write(filepath) as file:
            yield (held := io.BytesIO())
            file.write(held.getvalue() + _seal(held.getvalue()))

    def _load_index(self) -> Any:
        return super()._load_index() if _is_whole(self._index_path) else {}

    def load(self, key: Any) -> Any:
        """What was saved under ``key``, or None when it is not there or not whole."""
        name = self._load_index().get(key)
        if name is None or not _is_whole(self._data_path(name)):
            return None
        with contextlib.suppress(FileNotFoundError):  # removed by another process meanwhile
            return self._load_data(name)


def _is_whole(path: str) -> bool:
    """Whether the file is there and as it was written; one that is not is removed."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return False
    if len(content) > SEAL and _seal(content[:-SEAL]) == content[-SEAL:]:
        return True
    log.warning("compiled code in %s is damaged: removed and compiled anew", path)
    with contextlib.suppress(OSError):
        os.unlink(path)
    return False


class SignatureFiles:
    """``SealedFiles`` for each signature of one function, named by a digest of the signature."""

    def __init__(self, directory: str, base: str, stamp: Any) -> None:
        self.directory, self.base, self.stamp = directory, base, stamp

    def of(self, key: Any) -> SealedFiles:
        name = hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()
        return SealedFiles(self.directory, f"{self.base}-{name}", self.stamp)

    def load(self, key: Any) -> Any:
        return self.of(key).load(key)

    def save(self, key: Any, data: Any) -> None:
        self.of(key).save(key, data)


class KernelCache(FunctionCache):
    """A function's compiled code on disk.

    Raises
    ------
    RuntimeError : there is no directory to keep it in.
    """

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = SignatureFiles(self._cache_path, self._impl.filename_base, stamp)  # type: ignore[assignment]

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            log.warning("compiled code is not kept: %s", error)
