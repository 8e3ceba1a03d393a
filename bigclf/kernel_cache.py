"""Compiled code on disk that can be trusted: numba's own files with a checksum each, a pair of them a signature.

numba reads back what it finds. A cut or changed file is an exception in the first call, a crash of the process, or
other machine code than was compiled; and where several processes fill an empty cache at once, the index of one may name
the code of another. Here every file ends in a checksum of all before it, a file that does not agree is removed and its
code compiled anew, and no two signatures share a file. What cannot be written is not kept, which costs time only. Who
wants what another process is compiling waits for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import os
import time
from collections.abc import Iterator
from typing import Any

from numba.core.caching import FunctionCache, IndexDataCacheFile

log = logging.getLogger("bigclf")
SEAL = 16  # bytes
PATIENCE = 120.0  # seconds to wait for a process that compiles the same: it may be frozen


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

    def name(self, key: Any) -> str:
        return f"{self.base}-{hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()}"

    def of(self, key: Any) -> SealedFiles:
        return SealedFiles(self.directory, self.name(key), self.stamp)

    def lock(self, key: Any) -> str:
        """Path of a file that is locked while the signature is compiled."""
        return os.path.join(self.directory, self.name(key) + ".lock")

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
        self._files = SignatureFiles(self._cache_path, self._impl.filename_base, stamp)
        self._cache_file = self._files  # type: ignore[assignment]
        self._lock: io.IOBase | None = None  # held from a load in vain to the save that follows

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What is on disk, at once or when another process has compiled it; None where it is to be compiled here."""
        self._let_go()
        found = super().load_overload(sig, target_context)
        if found is None:
            self._lock = _locked(self._files.lock(self._index_key(sig, target_context.codegen())))
            found = super().load_overload(sig, target_context)
            if found is not None:
                self._let_go()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            log.warning("compiled code is not kept: %s", error)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        if self._lock is not None:
            import fcntl

            fcntl.flock(self._lock, fcntl.LOCK_UN)  # a process forked meanwhile has it open, too
            self._lock.close()
            self._lock = None


def _locked(path: str) -> io.IOBase | None:
    """A file, open and locked for this process alone; None where that cannot be, or not within ``PATIENCE``: the lock
    saves work and is needed for nothing else."""
    import fcntl

    end = time.monotonic() + PATIENCE
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = open(path, "wb")  # noqa: SIM115, it is held when this is over
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file
            time.sleep(0.02)
    except OSError as error:
        log.debug("compiling without a lock: %s", error)
    return None
