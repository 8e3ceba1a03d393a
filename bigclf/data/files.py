"""The only module that touches paths: list, open, fingerprint, publish atomically, find room for scratch files."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bigclf.errors import DataError, RunError

PathLike = str | os.PathLike[str]


# Finding files


def expand(data: PathLike | Iterable[PathLike]) -> list[str]:
    """The files that ``data`` names: a path, a directory, a glob (``**`` too) or a list of them.

    The files of a directory or glob come sorted; names that begin with ``_`` or ``.`` and directories are ignored
    there, as Spark and Dask do. A list keeps its order.

    Raises
    ------
    DataError : if something named matches no file; the message holds the nearest directory that exists.
    """
    if isinstance(data, str | bytes | os.PathLike):
        return _expand_one(os.fsdecode(data))
    return [path for item in data for path in _expand_one(os.fsdecode(item))]


def _expand_one(name: str) -> list[str]:
    if os.path.isdir(name):
        candidates = [os.path.join(name, entry) for entry in os.listdir(name)]
    elif os.path.exists(name):
        return [name]
    else:
        candidates = glob.glob(name, recursive=True)
    found = sorted(path for path in candidates if os.path.basename(path)[:1] not in "_." and os.path.isfile(path))
    if not found:
        nearest = nearest_directory(name)
        raise DataError(f"no data file matches {name!r}; the nearest directory that exists is {nearest!r}")
    return found


def nearest_directory(path: PathLike) -> str:
    """The deepest existing directory on the way to ``path``."""
    directory = os.path.abspath(os.fspath(path))
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    return directory


def list_directory(directory: PathLike) -> list[str]:
    """Sorted names in ``directory``; none when it does not exist."""
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def exists(path: PathLike) -> bool:
    return os.path.exists(path)


def is_directory(path: PathLike) -> bool:
    return os.path.isdir(path)


def file_size(path: PathLike) -> int:
    """Bytes in the file at ``path``."""
    return os.stat(path).st_size


def status(path: PathLike) -> tuple[int, int]:
    """Size in bytes and time of change in nanoseconds."""
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def base_name(path: PathLike) -> str:
    return os.path.basename(os.path.normpath(path))


def parent_directory(path: PathLike) -> str:
    """Directory that holds ``path``, absolute."""
    return os.path.dirname(os.path.abspath(path))


def link_target(path: PathLike) -> str:
    """What the symbolic link ``path`` names; nothing where there is none to read."""
    try:
        return os.readlink(path)  # type: ignore[return-value]
    except OSError:
        return ""


def join(directory: PathLike, *names: str) -> str:
    return os.path.join(directory, *names)


def absolute(path: PathLike) -> str:
    return os.path.abspath(path)


# Knowing them again


class Fingerprint(NamedTuple):
    """What tells a Parquet file from another without reading it: size in bytes, time of change, hash of its footer."""

    size: int
    mtime_ns: int
    footer: str


def fingerprint(path: PathLike) -> Fingerprint:
    """Fingerprint of the Parquet file at ``path``.

    Raises
    ------
    DataError : if there is no complete Parquet file; the message says what is wrong with it.
    """
    with open_binary(path) as file:
        found = os.fstat(file.fileno())
        footer = _footer(file, path, found.st_size)
    return Fingerprint(found.st_size, found.st_mtime_ns, hashlib.blake2b(footer, digest_size=16).hexdigest())


def read_footer(path: PathLike) -> tuple[int, bytes]:
    """Size of the Parquet file at ``path`` and the bytes of its footer; errors as for ``fingerprint``."""
    with open_binary(path) as file:
        size = os.fstat(file.fileno()).st_size
        return size, _footer(file, path, size)


def _footer(file: BinaryIO, path: PathLike, size: int) -> bytes:
    """The footer's bytes; its length and the marks before and after are checked first."""
    if size == 0:
        raise DataError("the file is empty (0 bytes); copy or write it again", file=path)
    if (mark := file.read(4)) != b"PAR1":
        encrypted = mark == b"PARE"
        what = "an encrypted Parquet file, which is not read" if encrypted else "not a Parquet file (no PAR1 in front)"
        raise DataError(what, file=path)
    file.seek(max(size - 8, 0))
    tail = file.read(8)
    if size < 12 or tail[4:] != b"PAR1":
        raise DataError("not complete: the closing PAR1 is missing; copy or write the file again", file=path)
    length = int.from_bytes(tail[:4], "little")
    if length > size - 12:
        raise DataError(f"the footer claims {length:,} bytes of a file of {size:,}; copy the file again", file=path)
    file.seek(size - 8 - length)
    return file.read(length)


def has_changed(path: PathLike, known: Fingerprint) -> str | None:
    """What changed in the file since ``known`` was taken, by its status alone; None if nothing did."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return "the file is gone"
    except OSError as error:
        return f"the file cannot be read any more ({error.strerror})"
    if status.st_size != known.size:
        return f"the file had {known.size:,} bytes and now has {status.st_size:,}"
    return "the file was written to" if status.st_mtime_ns != known.mtime_ns else None


# Reading


def open_binary(path: PathLike, mode: str = "rb") -> BinaryIO:
    """Python file object; a reason in plain words where that fails.

    Raises
    ------
    DataError : when a file to read is missing or unreadable.
    """
    try:
        return open(path, mode)  # type: ignore[return-value]
    except OSError as error:
        if mode != "rb":
            raise
        raise DataError(f"cannot be opened: {error.strerror}", file=path) from error


def open_arrow(path: PathLike, mode: str = "rb") -> Any:
    """File for pyarrow (any file name, also one that is not UTF-8)."""
    import pyarrow

    try:
        return pyarrow.OSFile(os.fsencode(path), mode)
    except OSError as error:
        if mode != "rb":
            raise
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise DataError(f"cannot be opened: {reason}", file=path) from error


def read_bytes(path: PathLike) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def read_text(path: PathLike) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


# Writing


@contextlib.contextmanager
def publishing(path: PathLike) -> Iterator[str]:
    """Yield a path beside ``path``; on success sync it and rename it to ``path``, else remove it."""
    path = os.fspath(path)
    beside = temporary_name(path)
    try:
        yield beside
        if os.path.isfile(beside):
            os.chmod(beside, 0o666 & ~_umask())  # libraries that write files for us may keep them to the owner
        _sync(beside)
        os.replace(beside, path)
        _sync(parent_directory(path))
    except BaseException:
        remove(beside)
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def temporary_name(path: PathLike) -> str:
    """A hidden name beside ``path`` that nobody else uses."""
    directory, name = os.path.split(os.path.normpath(path))
    return os.path.join(directory, f".{name}.tmp-{os.getpid()}-{secrets.token_hex(4)}")


def publish_bytes(path: PathLike, data: bytes) -> None:
    """Write a whole file that is seen complete or not at all."""
    with publishing(path) as beside, open(beside, "wb") as file:
        file.write(data)


def publish_text(path: PathLike, text: str) -> None:
    publish_bytes(path, text.encode("utf-8"))


def publish_directory(beside: PathLike, directory: PathLike) -> None:
    """Rename ``beside`` to ``directory``, taking the place of one that is there."""
    old = temporary_name(directory)
    replaced = os.path.isdir(directory) and bool(os.listdir(directory))
    if replaced:
        os.rename(directory, old)
    try:
        os.rename(beside, directory)
    except BaseException:
        if replaced:
            os.rename(old, directory)
        raise
    _sync(parent_directory(directory))
    if replaced:
        remove_tree(old)


def append_line(path: PathLike, text: str) -> None:
    """Append ``text`` and a newline in one write."""
    with open(path, "ab", buffering=0) as file:
        file.write(text.encode("utf-8") + b"\n")


def make_directory(path: PathLike) -> None:
    """Make ``path`` and what is missing above it.

    Raises
    ------
    RunError : if it cannot be made, with the reason.
    """
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make the directory {os.fspath(path)!r}: {error.strerror}") from error


def remove(path: PathLike) -> None:
    """Remove a file if it is there."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_tree(path: PathLike) -> None:
    """Remove a directory and all in it, as far as that is possible."""
    shutil.rmtree(path, ignore_errors=True)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot sync a directory
            raise
    finally:
        os.close(descriptor)


# Room for scratch files


def free_bytes(directory: PathLike) -> int:
    """Bytes an unprivileged user may still write on the file system of ``directory``."""
    return shutil.disk_usage(nearest_directory(directory)).free


def total_bytes(directory: PathLike) -> int:
    """Size of the file system of ``directory``."""
    return shutil.disk_usage(nearest_directory(directory)).total


def probe_writable(directory: PathLike) -> None:
    """Write and remove a small file in ``directory``.

    Raises
    ------
    RunError : with the reason, if that fails.
    """
    path = os.path.join(directory, f".probe-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with open(path, "wb") as file:
            file.write(b"bigclf")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(f"cannot write in {os.fspath(directory)!r}: {error.strerror}; name another directory") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def scratch_directory(preferred: PathLike | None = None) -> str:
    """Where big caches may lie: ``preferred``, else the first of the temporary directory, /var/tmp and the user's
    cache directory that is on a disk (a file system in memory would count against the memory budget)."""
    if preferred is not None:
        make_directory(preferred)
        return os.fspath(preferred)
    from bigclf.jit import cache_home

    for candidate in (tempfile.gettempdir(), "/var/tmp"):
        if os.path.isdir(candidate) and os.access(candidate, os.W_OK) and not _in_memory(candidate):
            return candidate
    return str(cache_home())


def _in_memory(directory: str) -> bool:
    """Whether ``directory`` lies on a tmpfs or ramfs."""
    try:
        mounts = read_text("/proc/mounts").splitlines()
    except OSError:
        return False
    place, best, kind = os.path.realpath(directory) + "/", "", ""
    for line in mounts:
        _, point, type_, *_ = line.split(" ")
        point = point.encode().decode("unicode_escape")
        if place.startswith(point.rstrip("/") + "/") and len(point) >= len(best):
            best, kind = point, type_
    return kind in ("tmpfs", "ramfs")


def cache_directory(name: str) -> str:
    """The directory ``name`` in bigclf's cache, made if need be."""
    from bigclf.jit import cache_home

    path = os.path.join(cache_home(), name)
    os.makedirs(path, exist_ok=True)
    return path


def unlinked_file(directory: PathLike) -> int:
    """Descriptor for reading and writing of a file without a name: it vanishes with the last process that has it."""
    with tempfile.TemporaryFile(dir=directory) as file:
        return os.dup(file.fileno())


def drop_cache(descriptor: int, offset: int = 0, length: int = 0) -> None:
    """Let the system forget its copy in memory of ``length`` bytes from ``offset`` (0: to the end), where it can."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)


def fetch_ahead(descriptor: int, offset: int, length: int) -> None:
    """Ask the system to read ``length`` bytes from ``offset`` into its memory, where it can; returns at once."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_WILLNEED)


# Descriptors: what the raw store reads and writes

PAGE = 4096


def open_descriptor(path: PathLike) -> int:
    """Descriptor for reading and writing of ``path``, made if need be."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o644)


def direct_descriptor(descriptor: int) -> int:
    """Another descriptor for the same file, for writes that go to the disk past the page cache; -1 where the system
    has none. Memory, place and length of what is written are to be multiples of ``PAGE``."""
    try:
        return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_DIRECT)
    except (OSError, AttributeError):
        return -1


def write_all(descriptor: int, views: list[memoryview], offset: int) -> None:
    """Write the views one after another from ``offset``; OSError when there is no room."""
    for view in views:
        while view.nbytes:
            done = os.pwrite(descriptor, view, offset)
            view, offset = view[done:], offset + done


def read_all(descriptor: int, views: list[memoryview], offset: int) -> bool:
    """Fill the views from ``offset`` with as few calls as can be; False at an early end of the file."""
    views = [view for view in views if view.nbytes]
    while views:
        done = os.preadv(descriptor, views, offset)
        if done == 0:
            return False
        offset += done
        while views and done >= views[0].nbytes:
            done -= views.pop(0).nbytes
        if views:
            views[0] = views[0][done:]
    return True


def sync_descriptor(descriptor: int) -> None:
    os.fsync(descriptor)


def reserve(descriptor: int, size: int) -> None:
    """Make the file ``size`` bytes long and take the room for them, if the system can; OSError when there is none."""
    if hasattr(os, "posix_fallocate") and size:
        os.posix_fallocate(descriptor, 0, size)
    else:
        os.ftruncate(descriptor, size)


def close_descriptor(descriptor: int) -> None:
    os.close(descriptor)


def save_arrays(path: PathLike, **arrays: np.ndarray) -> None:
    """Publish numpy arrays as one .npz file."""
    import io

    held = io.BytesIO()
    np.savez(held, allow_pickle=False, **arrays)
    publish_bytes(path, held.getvalue())


def load_arrays(path: PathLike) -> dict[str, np.ndarray]:
    """The arrays of an .npz file; nothing in it is executed. ValueError when it is damaged."""
    import zipfile

    try:
        with np.load(path, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}
    except (zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"{path}: damaged: {error}") from None
