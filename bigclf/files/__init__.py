"""The only module that touches paths: list, open, fingerprint, publish atomically, find room for scratch files.

A path may be a URL that fsspec knows (s3://bucket/key, https://host/file): ``remote``, behind this module, is for
those.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import functools
import glob
import hashlib
import io
import itertools
import json
import mmap
import os
import re
import secrets
import shutil
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from bigclf.errors import CONVERT_FIRST, DataError, RunError, StoreError
from bigclf.files import remote
from bigclf.files.caches import cache_home, is_cached
from bigclf.units import SHORT, nearest

GET_FLAGS, SET_FLAGS, NO_COPY_ON_WRITE = 0x80086601, 0x40086602, 0x00800000  # FS_IOC_..., FS_NOCOW_FL of linux/fs.h
MOST_ALIKE = 20  # names of files that are looked at for one that is not there

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


PathLike = str | os.PathLike[str]
Paths = PathLike | Iterable[PathLike]


# Finding files


def is_remote(path: PathLike) -> bool:
    """Whether ``path`` is a URL of something that is not on this machine."""
    return isinstance(path, str) and remote.SCHEME.match(path) is not None


def expand(data: Paths) -> list[str]:
    """The files that ``data`` names: a path or URL of a file or directory, a glob (``**`` too) or a list of them.

    The files of a directory or glob come sorted; names that begin with ``_`` or ``.`` and directories are ignored
    there, as Spark and Dask do. A list keeps its order; bigclf's own files beside shards are ignored in one, too, as a
    glob that a shell expands (``shards/*``) names them.

    Raises
    ------
    DataError : if something named matches no file; the message holds the nearest directory that exists. TypeError : a
        table, which would name its columns.
    """
    if isinstance(data, Mapping) or hasattr(data, "columns"):
        raise TypeError(f"expected files (a path, a glob or a list of them), not a {type(data).__name__}")
    if isinstance(data, str | bytes | os.PathLike):
        return _expand_one(os.fsdecode(data))
    return [path for name in without_ours(data) for path in _expand_one(name)]


def without_ours(names: Iterable[PathLike]) -> list[str]:
    """The names but for those of bigclf's own files beside shards that are named, too."""
    every = [os.fsdecode(name) for name in names]
    if not any(base_name(name).startswith(OURS) for name in every):
        return every
    rows = {parent_directory(name) for name in every if not BESIDE.fullmatch(base_name(name))}
    return [name for name in every if not BESIDE.fullmatch(base_name(name)) or parent_directory(name) not in rows]


def _expand_one(name: str) -> list[str]:
    name = name.removeprefix("file://")
    found = _expand_remote(name) if is_remote(name) else _expand_local(name)
    if found == [name]:
        return found
    found = sorted(path for path in found if base_name(path)[:1] not in "_.")
    if left_out := unfinished({parent_directory(path) for path in found}):
        found = [path for path in found if (parent_directory(path), base_name(path)) not in left_out]
        if not found:
            raise DataError(f"{name!r} is not finished: it is being written, or that was interrupted; run the same "
                            "command again")  # fmt: skip
    if not found:
        if is_directory(name):
            raise DataError(f"the directory {name!r} holds no data files{_instead(name)}")
        nearest = nearest_directory(name)
        if not is_directory(nearest):
            raise DataError(f"no data file matches {name!r}: there is no {nearest!r}")
        found_near = meant(name)
        instead = (
            f"; did you mean {found_near!r}?" if found_near else f"; the nearest directory that exists is {nearest!r}"
        )
        raise DataError(f"no data file matches {name!r}{instead}")
    return found


def _instead(directory: str) -> str:
    """What a directory without data files holds, for who expected some."""
    names = list_directory(directory)
    if ignored := [name for name in names if name[:1] in "_." and not is_directory(join(directory, name))]:
        return f", only such as are ignored, as their names begin with _ or .: {ignored[0]!r}"
    below = [name for name in names if is_directory(join(directory, name))]
    if below and all("=" in name for name in below):
        return '; they stand in directories named by the values of columns: name the label (y="COLUMN")'
    return f"; there are directories in it: name one of them, such as {join(directory, below[0])!r}" if below else ""


def unfinished(directories: Iterable[str]) -> set[tuple[str, str]]:
    """(directory, name) of files that are still being written there, as the mark in the directory says."""
    told = ((directory, _told(join(directory, UNFINISHED))) for directory in directories)
    return {(directory, name) for directory, mark in told for name in mark.get("files", ())}


def _expand_local(name: str) -> list[str]:
    if os.path.isdir(name):
        candidates = [os.path.join(name, entry) for entry in os.listdir(name)]
    elif os.path.exists(name):
        return [name]
    else:
        candidates = glob.glob(name, recursive=True)
    return [path for path in candidates if os.path.isfile(path)]


def _expand_remote(url: str) -> list[str]:
    there = remote.look(url)
    if there is None:
        return remote.glob(url)
    if not there.directory:
        return [url]
    names = remote.list_directory(url).items()
    return [join(url, name) for name, found in names if not found.directory]


def nearest_directory(path: PathLike) -> str:
    """The deepest existing directory on the way to ``path``."""
    if is_remote(path):
        directory = str(path)
        while not is_directory(directory) and remote.parent_of(directory) != directory:
            directory = remote.parent_of(directory)
        return directory
    directory = os.path.abspath(os.fspath(path))
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    return directory


def meant(path: PathLike) -> str:
    """The path that is there in place of ``path``, which is not, where one name on the way is nearly right; else ""."""
    if is_remote(path):  # a bucket may hold millions of names
        return ""
    there = nearest_directory(path)
    first, *rest = os.path.relpath(os.path.abspath(path), there).split(os.sep)
    alike = difflib.get_close_matches(first, list_directory(there), MOST_ALIKE)
    alike = [name for name in alike if os.path.exists(os.path.join(there, name, *rest))]
    stem, ending = os.path.splitext(first)
    stems = {os.path.splitext(name)[0]: name for name in alike if os.path.splitext(name)[1] == ending}
    short = [known for known in stems if len(stems) == 1 and len(known) == len(stem) <= SHORT]
    only = stems[short[0]] if short else ""  # of files that end so
    others = [name for name in alike if name not in stems.values()]
    found = stems.get(nearest(stem, stems)) or only or nearest(first, others)
    if not found:
        return ""
    whole = os.path.join(there, found, *rest)
    return whole if os.path.isabs(path) else os.path.relpath(whole)


@contextlib.contextmanager
def made_for(path: PathLike) -> Iterator[None]:
    """Of the directories above ``path`` that are made meanwhile, those in which nothing was put go again at the end."""
    lacking, directory = list[str](), parent_directory(path)
    while not is_remote(path) and not os.path.exists(directory):
        lacking.append(directory)
        directory = os.path.dirname(directory)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # never made, or there is something in it
            for directory in lacking:
                os.rmdir(directory)


def list_directory(directory: PathLike) -> list[str]:
    """Sorted names in ``directory``; none when it does not exist."""
    if is_remote(directory):
        return sorted(remote.list_directory(str(directory)))
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []


def walk(directory: PathLike) -> Iterator[tuple[str, str]]:
    """(name from ``directory`` on, path) of every file below it, sorted; hidden ones and those of "_" are left out."""
    for name in list_directory(directory):
        if name[:1] in "_.":
            continue
        path = join(directory, name)
        if is_directory(path):
            yield from ((f"{name}/{rest}", inner) for rest, inner in walk(path))
        else:
            yield name, path


def exists(path: PathLike) -> bool:
    return remote.look(str(path)) is not None if is_remote(path) else os.path.exists(path)


def is_directory(path: PathLike) -> bool:
    if is_remote(path):
        found = remote.look(str(path))
        return found is not None and found.directory
    return os.path.isdir(path)


def file_size(path: PathLike) -> int:
    """Bytes in the file at ``path``."""
    return status(path)[0]


def status(path: PathLike) -> tuple[int, int]:
    """Size in bytes, and time of change in nanoseconds or of a remote file a number made from its tag."""
    if is_remote(path):
        known = remote.look(str(path))
        if known is None:
            raise FileNotFoundError(errno.ENOENT, "No such file", os.fspath(path))
        return known.size, known.version
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def by_age(paths: Iterable[str]) -> list[str]:
    """Those of ``paths`` that are there, the one that was changed longest ago first."""
    found = list[tuple[int, str]]()
    for path in paths:
        with contextlib.suppress(OSError):
            found.append((status(path)[1], path))
    return [path for _, path in sorted(found)]


def base_name(path: PathLike) -> str:
    return remote.last_name(str(path)) if is_remote(path) else os.path.basename(os.path.normpath(path))


def parent_directory(path: PathLike) -> str:
    """Directory that holds ``path``, absolute."""
    if is_remote(path):
        return remote.parent_of(str(path))
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
    return str(path) if is_remote(path) else os.path.abspath(path)


def is_below(path: PathLike, directory: PathLike) -> bool:
    """Whether ``path`` lies in ``directory``, at any depth, through links too."""
    if is_remote(path) or is_remote(directory):
        return str(path).startswith(f"{str(directory).rstrip('/')}/")
    return os.path.realpath(path).startswith(os.path.join(os.path.realpath(directory), ""))


# Knowing them again


def identity(path: PathLike) -> object:
    """The same of all names of a file or directory, through links too."""
    if is_remote(path):
        return str(path)
    with contextlib.suppress(OSError, ValueError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return os.path.abspath(path)


class Fingerprint(NamedTuple):
    """What tells a Parquet file from another without reading it: size in bytes, time of change (of a remote file a
    number made from the tag its store gives it, such as the ETag), hash of its footer."""

    size: int
    mtime_ns: int
    footer: str


def fingerprint(path: PathLike) -> Fingerprint:
    """Fingerprint of the Parquet file at ``path``.

    Raises
    ------
    DataError : if there is no complete Parquet file; the message says what is wrong with it.
    """
    if is_remote(path):
        known, footer = _remote_footer(str(path))
        size, mtime_ns = known.size, known.version
    else:
        with open_binary(path) as file:
            found = os.fstat(file.fileno())
            size, mtime_ns = found.st_size, found.st_mtime_ns
            footer = _footer(file, path, size)
    return Fingerprint(size, mtime_ns, hashlib.blake2b(footer, digest_size=16).hexdigest())


MARKED = 2**16  # bytes at the beginning and at the end that a file is known again by


def mark(path: PathLike) -> str:
    """By what the content of a file, or of the files below a directory, is known again wherever it lies: hex over size,
    beginning and end; of a remote file over what the store says of it, of a directory over names and sizes.

    Raises
    ------
    OSError, DataError : there is no such file.
    """
    digest = hashlib.blake2b(digest_size=8)
    if is_directory(path):
        digest.update(repr([(name, status(inner)[0]) for name, inner in walk(path)]).encode())
    elif is_remote(path):
        digest.update(repr(status(path)).encode())
    else:
        with open_binary(path) as file:
            size = os.fstat(file.fileno()).st_size
            digest.update(f"{size} ".encode() + file.read(MARKED))
            file.seek(max(0, size - MARKED))
            digest.update(file.read(MARKED))
    return digest.hexdigest()


def read_footer(path: PathLike) -> tuple[int, bytes]:
    """Size of the Parquet file at ``path`` and the bytes of its footer; errors as for ``fingerprint``."""
    if is_remote(path):
        known, footer = _remote_footer(str(path))
        return known.size, footer
    with open_binary(path) as file:
        size = os.fstat(file.fileno()).st_size
        return size, _footer(file, path, size)


def _footer(file: BinaryIO, path: PathLike, size: int, claimed: int | None = None) -> bytes:
    """The footer's bytes; its length and the marks before and after are checked first. ``claimed``: bytes of the file
    that ``file``, of ``size`` bytes, is the end of."""
    if size == 0:
        raise DataError("the file is empty (0 bytes); copy or write it again", file=path)
    if (mark := file.read(4)) != b"PAR1":
        encrypted = mark == b"PARE"
        other = f"not a Parquet file (no PAR1 in front){CONVERT_FIRST}"
        raise DataError("an encrypted Parquet file, which is not read" if encrypted else other, file=path)
    file.seek(max(size - 8, 0))
    tail = file.read(8)
    if size < 12 or tail[4:] != b"PAR1":
        raise DataError("not complete: the closing PAR1 is missing; copy or write the file again", file=path)
    length = int.from_bytes(tail[:4], "little")
    if length > size - 12:
        raise DataError(f"the footer claims {length:,} bytes of a file of {claimed or size:,}; copy the file again",
                        file=path)  # fmt: skip
    file.seek(size - 8 - length)
    return file.read(length)


FOOTER_BYTES = 2**16  # of a remote file's end, asked for at once


def _remote_footer(url: str) -> tuple[remote.Found, bytes]:
    """What the store says of a Parquet file, and the bytes of its footer, in one or two small reads."""
    with remote.Reader(url) as whole:
        found = whole.found
    return found, _footer_of(url, found)


@functools.lru_cache(maxsize=4096)
def _footer_of(url: str, found: remote.Found) -> bytes:
    first = max(0, found.size - FOOTER_BYTES)
    tail = remote.read_range(url, found, first, found.size)
    needed = int.from_bytes(tail[-8:-4], "little") + 12
    if tail[-4:] == b"PAR1" and len(tail) < needed <= found.size:
        tail = remote.read_range(url, found, found.size - needed, found.size)
    start = b"PAR1" if len(tail) < found.size else b""  # the mark in front is looked at when rows are read
    with io.BytesIO(start + tail) as file:
        return _footer(file, url, len(start) + len(tail), found.size)


def has_changed(path: PathLike, known: Fingerprint) -> str | None:
    """What changed in the file since ``known`` was taken, by its status alone; None if nothing did."""
    if is_remote(path):
        return _changed(remote.look(str(path)), known)
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return "the file is gone"
    except OSError as error:
        return f"the file cannot be read any more ({error.strerror})"
    if status.st_size != known.size:
        return f"the file had {known.size:,} bytes and now has {status.st_size:,}"
    return "the file was written to" if status.st_mtime_ns != known.mtime_ns else None


def first_change(paths: list[str], known: list[Fingerprint]) -> tuple[int, str] | None:
    """The number of the first of the files that changed, and how; remote ones are asked for many at a time."""
    far = [path for path in paths if is_remote(path)]
    found = dict(zip(far, remote.look_at_all(far), strict=True)) if far else {}
    for number, (path, mark) in enumerate(zip(paths, known, strict=True)):
        change = _changed(found[path], mark) if path in found else has_changed(path, mark)
        if change:
            return number, change
    return None


def _changed(found: remote.Found | None, known: Fingerprint) -> str | None:
    if found is None:
        return "the file is gone"
    if found.size != known.size:
        return f"the file had {known.size:,} bytes and now has {found.size:,}"
    return "the file was written to" if found.version != known.mtime_ns else None


# Reading


def open_binary(path: PathLike, mode: str = "rb") -> BinaryIO:
    """Python file object; a reason in plain words where that fails.

    Raises
    ------
    DataError : when a file to read is missing or unreadable.
    """
    if is_remote(path):
        if mode != "rb":
            raise StoreError(f"{os.fspath(path)}: a remote file is written whole or not at all")
        return io.BufferedReader(remote.Reader(str(path)), 2**17)
    try:
        return open(path, mode)  # type: ignore[return-value]
    except OSError as error:
        if mode != "rb":
            raise
        raise DataError(f"cannot be opened: {error.strerror}", file=path) from error


def open_arrow(path: PathLike, mode: str = "rb") -> pa.NativeFile:
    """File for pyarrow (any file name, also one that is not UTF-8)."""
    import pyarrow

    if is_remote(path):
        return pyarrow.PythonFile(remote.Reader(str(path)), "r")
    try:
        return pyarrow.OSFile(os.fsencode(path), mode)
    except OSError as error:
        if mode != "rb":
            raise
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise DataError(f"cannot be opened: {reason}", file=path) from error


def read_bytes(path: PathLike) -> bytes:
    if is_remote(path):
        return remote.read_all(str(path))
    with open(path, "rb") as file:
        return file.read()


def read_text(path: PathLike) -> str:
    if is_remote(path):
        return remote.read_all(str(path)).decode("utf-8")
    with open(path, encoding="utf-8") as file:
        return file.read()


# Writing


@contextlib.contextmanager
def publishing(
    path: PathLike, mode: int = 0o666, within: PathLike | None = None, note: PathLike | None = None
) -> Iterator[str]:
    """Yield a path beside ``path`` (or ``within`` another directory there); on success sync it and rename it to
    ``path``, else remove it. ``note`` : a file that says from before then on what was put there (``is_noted``).

    What is to be remote is written to a scratch file here, and sent when it is whole.
    """
    path = os.fspath(path)
    if is_remote(path):
        with _sending(path) as beside:
            yield beside
            _take_note(note, beside, path, within)
            _tell(path, beside)
        return
    beside = temporary_name(path if within is None else os.path.join(within, os.path.basename(path)))
    try:
        yield beside
        if os.path.isfile(beside):
            os.chmod(beside, mode & ~_umask())  # libraries that write files for us may keep them to the owner
        _sync(beside)
        _take_note(note, beside, path, within)
        _tell(path, beside)
        os.replace(beside, path)
        _sync(parent_directory(path))
    except BaseException as error:
        remove(beside)
        if isinstance(error, OSError) and error.filename is None and error.errno in NO_ROOM:
            error.filename = path  # the system names none where a write fails
        raise


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _take_note(note: PathLike | None, beside: str, path: str, within: PathLike | None) -> None:
    if note is not None:
        publish_bytes(note, json.dumps({"known": _known_by(beside, is_remote(path))}).encode(), within=within)


def is_noted(path: str, note: PathLike) -> bool:
    """Whether what is at ``path`` is what ``publishing`` noted that it would put there."""
    known = _told(os.fspath(note)).get("known")
    return known is not None and exists(path) and _known_by(path, is_remote(path)) == known


@contextlib.contextmanager
def _sending(url: str) -> Iterator[str]:
    beside = temporary_name(os.path.join(scratch_directory(), "bigclf-sent"))
    try:
        yield beside
        remote.upload(beside, url)
    finally:
        remove(beside)


_listeners: dict[str, Callable[[str, str], None]] = {}  # by absolute path


@contextlib.contextmanager
def telling(paths: Iterable[str], tell: Callable[[str, str], None]) -> Iterator[None]:
    """While inside, ``tell(path, mark)`` is called right before one of the files or directories ``paths`` takes its
    name: who is killed between the two knows a foreign one from what was to be there (``is_marked``)."""
    mine = {absolute(path): tell for path in paths}
    _listeners.update(mine)
    try:
        yield
    finally:
        for path in mine:
            del _listeners[path]


def _tell(path: str, beside: str) -> None:
    if tell := _listeners.get(absolute(path)):
        tell(path, _size_mark(beside) if is_remote(path) else mark(beside))


def is_marked(path: str, marks: Iterable[str]) -> bool:
    """Whether what is at ``path`` has one of these marks, of ``mark`` or ``telling``."""
    known = {*marks}
    return mark(path) in known or (is_remote(path) and _size_mark(path) in known)


def _size_mark(path: str) -> str:
    """By what a file that is to be sent is known in a store, which gives it a tag only then."""
    return f"{file_size(path)} bytes"


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def temporary_name(path: PathLike) -> str:
    """A hidden name beside ``path`` that nobody else uses."""
    directory, name = os.path.split(os.path.normpath(path))
    return os.path.join(directory, f".{name}.tmp-{os.getpid()}-{secrets.token_hex(4)}")


ASIDE = re.compile(r"\..+\.tmp-(\d+)-[0-9a-f]{8}")
LEASE_ASIDE = re.compile(r"\.\.?lease\.tmp-.*")  # another process may be about to ask for the lease


def is_left(name: str) -> bool:
    """Whether a file of this name is one that a process was writing when it was killed, or writes just now."""
    return ASIDE.fullmatch(name) is not None


def clear_left(directory: PathLike, of_the_dead: bool = False) -> None:
    """Remove what killed processes were writing in a local directory that this one holds alone; of leases (of
    everything ``of_the_dead``, where others may be writing) what is of a number that no process here has."""
    for name in () if is_remote(directory) else list_directory(directory):
        left = ASIDE.fullmatch(name)
        if left and not ((of_the_dead or LEASE_ASIDE.fullmatch(name)) and _may_live(left[1])):
            path = join(directory, name)
            remove_tree(path) if is_directory(path) else remove(path)


def clear_left_of(path: PathLike) -> None:
    """Remove what killed processes were writing to become the local file ``path``; those that live go on."""
    directory, own = os.path.split(os.fspath(path))
    for name in () if is_remote(path) else list_directory(directory):
        left = ASIDE.fullmatch(name)
        if left and name.startswith(f".{own}.tmp-") and not _may_live(left[1]):
            remove(join(directory, name))


def _may_live(number: str) -> bool:
    return os.path.exists(f"/proc/{number}") or not os.path.exists("/proc/self")


class Summed:
    """Writes to ``file`` and adds up a checksum of the bytes."""

    def __init__(self, file: BinaryIO) -> None:
        import xxhash

        self._file, self._sum = file, xxhash.xxh3_128()

    def write(self, content: bytes | memoryview) -> None:
        self._file.write(content)
        self._sum.update(content)

    def checksum(self) -> str:
        return self._sum.hexdigest()


def checksum(path: PathLike) -> str | None:
    """That of a file's bytes; None where it cannot be read."""
    import xxhash

    found = xxhash.xxh3_128()
    try:
        with open(path, "rb") as file:
            while piece := file.read(2**20):
                found.update(piece)
    except OSError:
        return None
    return found.hexdigest()


def beside(path: PathLike) -> str:
    """A path on this machine where what is to appear at ``path`` can be made: itself, or one among scratch files."""
    if not is_remote(path):
        return absolute(path)
    name = hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()
    return join(scratch_directory(), f"bigclf-{name}-{base_name(path)}")


def publish_bytes(path: PathLike, data: bytes, mode: int = 0o666, within: PathLike | None = None) -> None:
    """Write a whole file that is seen complete or not at all, at no time by more people than ``mode`` says."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags, mode)

    with publishing(path, mode, within) as beside, open(beside, "wb", opener=opener) as file:
        file.write(data)


def publish_tensors(path: PathLike, tensors: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file that is seen whole or not at all.

    Raises
    ------
    OSError : with the reason of the system and ``path``, such as a full disk.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with publishing(path) as beside:
        try:
            save_file(tensors, beside, metadata=metadata)
        except SafetensorError as error:  # the library says the system's number in words alone
            if (number := re.search(r"os error (\d+)", str(error))) is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1])), os.fspath(path)) from None


def publish_text(path: PathLike, text: str) -> None:
    publish_bytes(path, text.encode("utf-8"))


def publish_directory(beside: PathLike, directory: PathLike) -> None:
    """Rename ``beside`` to ``directory``, taking the place of one that is there.

    A store knows no renaming: there the files are sent one by one, those that begin with ``_`` and tell of the others
    last, and until all is there a mark says that it is not (``unfinished``).
    """
    if is_remote(directory):
        _send_directory(os.fspath(beside), str(directory))
        return
    place = os.fspath(directory)
    old = _replaced(place)
    remove_replaced(directory)
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


def _replaced(place: str) -> str:
    return os.path.join(parent_directory(place), f".{base_name(place)}.replaced")


def remove_replaced(directory: PathLike) -> None:
    """Remove what a directory took the place of, where that was killed before it had."""
    if not is_remote(directory):
        remove_tree(_replaced(os.fspath(directory)))


OURS = "_bigclf_"  # begins the names of what lies beside shards
BESIDE = re.compile(OURS + r"(manifest.json|chunks.parquet|features.(json|safetensors)|quarantine.txt|unfinished.json)")
UNFINISHED = "_bigclf_unfinished.json"
LEFT = re.compile(r"\.(part-\d+|_bigclf_\w+)\.\w+\.tmp-\d+-[0-9a-f]{8}")  # by a process killed before it renamed them


def _send_directory(local: str, url: str) -> None:
    names = sorted(os.listdir(local), key=lambda name: (name.startswith("_"), name))
    sums = {name: checksum(join(local, name)) for name in names}
    mark = join(url, UNFINISHED)
    if _told(mark).get("sums") != sums:  # not this one's sending that was interrupted: what lies there goes
        old = [name for name in list_directory(url) if name != UNFINISHED]
        publish_text(mark, json.dumps({"files": sorted({*old, *names})}))
        for name in sorted(old, key=lambda name: not name.startswith("_")):
            remove(join(url, name))
        publish_text(mark, json.dumps({"files": names, "sums": sums}))
    there = remote.list_directory(url)
    for name in names:
        if name not in there or there[name].size != file_size(join(local, name)):
            remote.upload(join(local, name), join(url, name))
    remove(mark)
    remove_tree(local)


@contextlib.contextmanager
def finishing(directory: PathLike, names: list[str], before: Mapping[str, object]) -> Iterator[None]:
    """While inside, and until it was left without an error, readers leave out the files ``names`` of a directory, and
    are told what there was ``before`` (``before_unfinished``)."""
    mark = join(directory, UNFINISHED)
    for name in set(_told(mark).get("files", ())) - set(names):  # of others that were interrupted
        remove(join(directory, name))
    for name in list_directory(directory):
        if LEFT.fullmatch(name):
            remove(join(directory, name))
    publish_text(mark, json.dumps({"files": names, "before": dict(before)}))
    yield
    remove(mark)


def before_unfinished(directory: PathLike) -> dict[str, Any]:
    """What is told of a directory as it was before the files that are being written there, or that was interrupted."""
    told: dict[str, Any] = _told(join(directory, UNFINISHED)).get("before", {})
    return told


def put(local: PathLike, path: PathLike) -> None:
    """Make the local file appear at ``path`` too, in the place of one that is there; without copying if it can be."""
    if is_remote(path):
        remote.upload(os.fspath(local), str(path))
        return
    beside = temporary_name(path)
    try:
        os.link(local, beside)
    except OSError:  # a file system without links
        shutil.copyfile(local, beside)
        _sync(beside)
    os.replace(beside, path)
    remove(beside)  # of two links to one file no renaming removes one


def _told(mark: str) -> dict[str, Any]:
    """What a mark says, if there is one."""
    try:
        told: object = json.loads(read_text(mark))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


# Several that belong together


@contextlib.contextmanager
def together(paths: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield for each of the files or directories ``paths`` of one command where to write it. Without an error those
    that were written take their names, one right after another; with one none does.

    What a process left that was killed meanwhile goes; what that had named already is known by ``half_done``.

    Raises
    ------
    RunError : another process writes them now.
    """
    if not paths:
        yield {}
        return
    note = _note_of(paths)
    with _waiting_places(paths) as (places, within):
        yield places
        whole = {path: place for path, place in places.items() if os.path.exists(place)}
        known = half_done(paths)
        told = {path: [_known_by(place, is_remote(path)), *known.get(path, ())] for path, place in whole.items()}
        text = json.dumps({base_name(path): marks for path, marks in told.items()})
        publish_bytes(note, text.encode(), within=within)
        for path, place in whole.items():
            _name(place, path)
    remove(note)  # nothing of theirs is left then


def half_done(paths: Sequence[str]) -> dict[str, list[object]]:
    """Of ``paths`` those that a killed process has put in their places while others were missing, as ``together`` noted
    them, with what they are known by: nobody else's, so that they may be replaced."""
    told = _told(_note_of(paths)) if paths else {}
    noted = {path: told[base_name(path)] for path in paths if base_name(path) in told and exists(path)}
    return {path: known for path, known in noted.items() if _known_by(path, is_remote(path)) in known}


def _note_of(paths: Sequence[str]) -> str:
    """Beside one of them, whatever their order."""
    first = min(map(absolute, paths))
    return join(parent_directory(first), f".{base_name(first)}.named.json")


def _known_by(path: str, by_size: bool) -> object:
    """A mark; of what a store holds, and here is to be known there by, sizes alone."""
    if is_directory(path):
        return [[name, status(inner)[0]] for name, inner in walk(path)]
    return file_size(path) if by_size else mark(path)


@contextlib.contextmanager
def _waiting_places(paths: Sequence[str]) -> Iterator[tuple[dict[str, str], str]]:
    """A place of its own name in a hidden directory beside each of ``paths``, and that of the first, which is held by
    one process at a time."""
    hidden = {path: _waiting_directory(path) for path in paths}
    first = hidden[min(paths, key=absolute)]
    make_directory(first)
    if (held := lock(join(first, ".lock"))) is None:
        raise RunError(f"{paths[0]}: another process writes there now; wait for it, or name another output")
    try:
        for directory in hidden.values():
            make_directory(directory)
            clear_directory(directory, keep=[".lock"])  # of one that was killed
        yield {path: join(directory, base_name(path)) for path, directory in hidden.items()}, first
    finally:
        for directory in hidden.values():
            remove_tree(directory)
        unlock(held)


def _waiting_directory(path: str) -> str:
    place = beside(path)
    return join(parent_directory(place), f".{base_name(place)}.unfinished")


def _name(place: str, path: str) -> None:
    """Let what was written at ``place`` appear at ``path``."""
    _tell(path, place)
    if os.path.isdir(place):
        publish_directory(place, path)
    elif is_remote(path):
        remote.upload(place, path)
    else:
        os.replace(place, path)
        _sync(parent_directory(path))


def append_line(path: PathLike, text: str) -> None:
    """Append ``text`` and a newline in one write; where that fails nothing of it stays, so that the next line is one.

    A store knows no appending: there the file is written anew, at most every few seconds and by ``flush_lines``.
    """
    if is_remote(path):
        lines = _lines_of(str(path))
        lines.text += text.encode("utf-8") + b"\n"
        if time.monotonic() - lines.written > LINES_SECONDS:
            flush_lines(path)
        return
    line = text.encode("utf-8") + b"\n"
    with open(path, "ab", buffering=0) as file:
        before = os.fstat(file.fileno()).st_size
        try:
            if file.write(line) < len(line):  # the system takes what there is room for, and says so at the next call
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))
        except OSError:
            file.truncate(before)
            raise


LINES_SECONDS = 5.0


class _Lines:
    """A remote file of lines as it is to be; ``written`` : when it last was so."""

    def __init__(self, text: bytes) -> None:
        self.text, self.length, self.written = bytearray(text), len(text), 0.0


_remote_lines: dict[str, _Lines] = {}


def _lines_of(url: str) -> _Lines:
    if url not in _remote_lines:
        _remote_lines[url] = _Lines(read_bytes(url) if exists(url) else b"")
    return _remote_lines[url]


def flush_lines(path: PathLike, forget: bool = False) -> None:
    """Write what was appended to a remote file of lines; ``forget`` : and read it anew when more comes."""
    lines = _remote_lines.get(str(path))
    if lines is None:
        return
    if len(lines.text) != lines.length:
        publish_bytes(path, bytes(lines.text))
        lines.length, lines.written = len(lines.text), time.monotonic()
    if forget:
        del _remote_lines[str(path)]


def make_directory(path: PathLike) -> None:
    """Make ``path`` and what is missing above it.

    Raises
    ------
    RunError : if it cannot be made, with the reason.
    """
    if is_remote(path):
        remote.make_directory(str(path))
        return
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        if refuses_to_write(error):
            raise RunError(cannot_write(path, error)) from error
        raise RunError(f"cannot make the directory {os.fspath(path)!r}: {error.strerror}") from error


def refuses_to_write(error: OSError) -> bool:
    """Whether a file or directory could not be made for want of permission, and not read."""
    return error.errno in (errno.EROFS, errno.EACCES, errno.EPERM) and bool(error.filename) and not (
        os.path.lexists(error.filename))  # fmt: skip


def cannot_write(path: PathLike, error: OSError) -> str:
    """What is to be said where ``path`` cannot be made: the directory that there is, and not a name of ours below."""
    return f"cannot write in {nearest_directory(path)!r}: {error.strerror}; name another {named_by(path)}"


OTHER_CACHE = "cache (BIGCLF_CACHE_DIR)"


def named_by(path: PathLike) -> str:
    """What a person names another place instead of ``path`` by."""
    ours = not is_remote(path) and is_cached(os.path.join(path, "a shard"))
    return OTHER_CACHE if ours else "directory"


def remove(path: PathLike) -> None:
    """Remove a file if it is there."""
    if is_remote(path):
        remote.remove(str(path))
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_at_once(path: PathLike, to_the_last: Iterable[str] = ()) -> None:
    """Remove a local directory so that a kill leaves all of it under its name, or nothing; a store's file by file.
    ``to_the_last`` : small files of text in it, which are kept until all else is gone (``put_back``)."""
    if is_remote(path):
        remove_tree(path)
        return
    gone = _removed(path)
    with _removing(path) as held:
        remove_tree(gone)  # of one that was killed
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, gone)
        there = {name: join(gone, name) for name in to_the_last if exists(join(gone, name))}
        kept = {name: read_text(file) for name, file in there.items() if file_size(file) <= MOST_KEPT}
        if kept and held is not None:
            _write_over(held, json.dumps(kept).encode())
        remove_tree(gone)


MOST_KEPT = 1 << 22  # bytes of a file that is kept to the last


def _removed(path: PathLike) -> str:
    return os.path.join(parent_directory(path), f".{base_name(path)}.removed")


def _kept_of(path: PathLike) -> str:
    return f"{_removed(path)}.json"


@contextlib.contextmanager
def _removing(path: PathLike) -> Iterator[int | None]:
    """Wait for who removes the directory ``path`` at once, or gives it back, and yield the file of what is kept, which
    is locked meanwhile and goes last; None where none can be made."""
    held = None
    if any(map(os.path.lexists, (path, _removed(path), _kept_of(path)))):
        with contextlib.suppress(OSError):  # a directory that cannot be written, a file system without locks
            held = lock(_kept_of(path), wait=True)
    try:
        yield held
        with contextlib.suppress(OSError):
            remove(_kept_of(path))
    except OSError:  # nothing was removed: a mount point
        if held is not None and not size_of(held):
            remove(_kept_of(path))
        raise
    finally:
        unlock(held)


def _write_over(descriptor: int, data: bytes) -> None:
    """Write all of a file, or leave it empty where there is no room."""
    try:
        os.ftruncate(descriptor, 0)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, 0)


def put_back(path: PathLike, if_holds: str) -> None:
    """Give a directory its name again whose removal at once was killed, with what is left in it, if the file
    ``if_holds`` is, or was kept to the last; else remove what is left. A removal under way is waited for."""
    gone = _removed(path)
    if is_remote(path) or not any(map(os.path.lexists, (gone, _kept_of(path)))):
        return
    with _removing(path):
        if not os.path.exists(path):
            for name, text in _told(_kept_of(path)).items():
                plain = re.fullmatch(r"\w[\w.-]*", name)  # of others' making it may name any place
                if isinstance(text, str) and plain:
                    make_directory(gone)
                    publish_text(join(gone, name), text)
            if os.path.exists(join(gone, if_holds)):
                os.rename(gone, path)
        remove_tree(gone)


def clear_directory(path: PathLike, keep: Iterable[str] = ()) -> None:
    """Remove all that is in a local directory but the names to ``keep``."""
    for name in set(os.listdir(path)) - set(keep):
        there = os.path.join(path, name)
        remove_tree(there) if os.path.isdir(there) else remove(there)


def numbered(path: PathLike) -> str:
    """Make the first local directory that is not there yet of ``path``-1, ``path``-2, ...; return its path."""
    for number in itertools.count(1):
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"{os.fspath(path)}-{number}")
            return f"{os.fspath(path)}-{number}"
    raise AssertionError("unreachable")


def move(path: PathLike, to: PathLike) -> None:
    """Rename a local file, in the place of one that is there."""
    os.replace(path, to)


def relative(path: PathLike, directory: PathLike) -> str:
    return os.path.relpath(path, directory)


def tree_size(directory: PathLike) -> int:
    """Bytes of the files below a local directory."""
    found = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                found += os.lstat(os.path.join(folder, name)).st_size
    return found


@contextlib.contextmanager
def alone(path: PathLike, wait: bool = True) -> Iterator[bool]:
    """Hold the local file ``path`` locked, and remove it in the end; another process that has it is waited for, or
    (not ``wait``) False is yielded."""
    held = lock(path, wait)
    try:
        yield held is not None
    finally:
        try:
            if held is not None:
                remove(path)
        finally:
            unlock(held)


def lock(path: PathLike, wait: bool = False) -> int | None:
    """Lock the local file ``path``, made if need be, until ``unlock`` or the end of this process; None where another
    process has it, unless that is to be waited for."""
    import fcntl

    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)  # who had it removed it meanwhile


def unlock(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)


@contextlib.contextmanager
def in_turn(directory: PathLike, patience: float = 2.0) -> Iterator[None]:
    """Let processes of this machine do what is inside one after another, as far as the file system of a local directory
    can lock it. One that stands still there is waited for ``patience`` seconds, a store lets in all at once."""
    import fcntl

    if is_remote(directory):
        yield
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            descriptor = os.open(directory, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            until = time.monotonic() + patience
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        break
                    time.sleep(0.01)
        yield


class InUse:
    """A mark that a local directory is in use, for as long as this object lives; other processes see it, and
    ``remove_unused`` lets the directory be. ``held`` : whether it could be made: the directory is there, and its file
    system knows locks."""

    def __init__(self, directory: PathLike) -> None:
        import fcntl

        self.held, descriptor = False, -1
        with contextlib.suppress(OSError):
            descriptor = os.open(directory, os.O_RDONLY)
            weakref.finalize(self, os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            self.held = os.stat(directory).st_ino == os.fstat(descriptor).st_ino  # else removed meanwhile

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Nothing in another process: it is there for as long as this one waits for it."""
        return type(None), ()


def remove_unused(directory: PathLike) -> None:
    """Remove a local directory and all in it, unless a process has it ``InUse``."""
    import fcntl

    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            descriptor = os.open(directory, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
        remove_tree(directory)


def remove_tree(path: PathLike, surely: bool = False) -> None:
    """Remove a directory and all in it, as far as that is possible; ``surely`` : OSError where it is not. What the
    device fails to remove is tried once more: a file that stays keeps the directories above it."""
    if is_remote(path):
        remote.remove(str(path), tree=True)
        return

    def once_more(call: Callable[[str], object], failed: str, caught: object) -> None:
        error = caught[1] if isinstance(caught, tuple) else caught  # Python 3.11
        assert isinstance(error, OSError)
        try:
            if not (call in (os.unlink, os.rmdir) and error.errno in PASSING):
                raise error
            call(failed)
        except OSError:
            if surely:
                raise

    if sys.version_info >= (3, 12):
        shutil.rmtree(path, onexc=once_more)
    else:
        shutil.rmtree(path, onerror=once_more)


PASSING = (errno.EIO, errno.EBUSY, errno.ESTALE, errno.ETIMEDOUT, *NO_ROOM)  # a moment later it may be done


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
    """Bytes an unprivileged user may still write on the file system of ``directory``; a store has no end."""
    if is_remote(directory):
        return 2**62
    return shutil.disk_usage(nearest_directory(directory)).free


def total_bytes(directory: PathLike) -> int:
    """Size of the file system of ``directory``."""
    if is_remote(directory):
        return 2**62
    return shutil.disk_usage(nearest_directory(directory)).total


def probe_writable(directory: PathLike) -> None:
    """Write and remove a small file in ``directory``.

    Raises
    ------
    RunError : with the reason, if that fails.
    """
    if is_remote(directory):
        url = join(directory, f".probe-{secrets.token_hex(8)}")
        publish_bytes(url, b"bigclf")
        remote.remove(url)
        return
    try:
        with tempfile.TemporaryFile(prefix=".probe-", dir=directory) as file:  # without a name where that can be
            file.write(b"bigclf")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise RunError(cannot_write(directory, error)) from error


def scratch_directory(preferred: PathLike | None = None) -> str:
    """Where big caches may lie: ``preferred``, else the first of the temporary directory, /var/tmp and the user's
    cache directory that is on a disk (a file system in memory would count against the memory budget)."""
    if preferred is not None:
        make_directory(preferred)
        return os.fspath(preferred)
    for candidate in (tempfile.gettempdir(), "/var/tmp"):
        if os.path.isdir(candidate) and os.access(candidate, os.W_OK) and not _in_memory(candidate):
            return candidate
    return str(cache_home())


@contextlib.contextmanager
def naming_full_disk(directory: PathLike, size: int) -> Iterator[None]:
    """Turn an OSError into a RunError that says where ``size`` bytes had no room, and what to do."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"the disk of {os.fspath(directory)!r} has no room for {size:,} bytes that the memory budget has "
            f"none for ({error.strerror}): make room there, or name another directory (local_dir; TMPDIR without it)"
        ) from error


def filed_copy(array: np.ndarray, directory: PathLike) -> np.ndarray:
    """A copy that can be changed and lies in a nameless file, mapped: no memory but that of the page cache.

    Raises
    ------
    RunError : no room in ``directory``.
    """
    import numpy as np  # not at the top: ``bigclf --help`` loads this file

    if not array.size:
        return array.copy()
    with naming_full_disk(directory, array.nbytes), tempfile.TemporaryFile(dir=directory) as file:
        _written_in_place(file.fileno())
        file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8))  # a full disk is told here, no signal
        file.flush()
        mapped = mmap.mmap(file.fileno(), array.nbytes)
    return np.frombuffer(mapped, array.dtype).reshape(array.shape)


def filed_array(size: int, dtype: np.dtype[Any], directory: PathLike) -> np.ndarray:
    """Memory for so many numbers in a nameless file, mapped; OSError: no room in ``directory``."""
    import numpy as np

    if not size:
        return np.empty(0, dtype)
    with tempfile.TemporaryFile(dir=directory) as file:
        _written_in_place(file.fileno())
        reserve(file.fileno(), size * dtype.itemsize)  # a full disk is told here, not by a signal
        mapped = mmap.mmap(file.fileno(), size * dtype.itemsize)
    return np.frombuffer(mapped, dtype)


def _written_in_place(descriptor: int) -> None:
    """Have a file that is still empty keep its place on the disk when it is written again. Where each write takes a new
    one, as on btrfs, a full disk would end whoever writes to the mapped file by SIGBUS, whatever was reserved."""
    with contextlib.suppress(OSError, ImportError):  # other file systems do so anyway
        import fcntl

        flags = int.from_bytes(fcntl.ioctl(descriptor, GET_FLAGS, bytes(8))[:4], sys.byteorder)
        fcntl.ioctl(descriptor, SET_FLAGS, (flags | NO_COPY_ON_WRITE).to_bytes(4, sys.byteorder) + bytes(4))


def mapped(path: PathLike) -> mmap.mmap:
    """The bytes of a local file, read where they are used; they stay as they are where the file is replaced."""
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


@contextlib.contextmanager
def scratch() -> Iterator[str]:
    """A directory of one's own for scratch files, removed at the end."""
    path = tempfile.mkdtemp(prefix="bigclf-", dir=scratch_directory())
    try:
        yield path
    finally:
        remove_tree(path)


def touch(path: PathLike) -> None:
    """Set the time of change to now."""
    with contextlib.suppress(OSError):
        os.utime(path)


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


def unlinked_file(directory: PathLike) -> int:
    """Descriptor for reading and writing of a file without a name: it vanishes with the last process that has it."""
    with tempfile.TemporaryFile(dir=directory) as file:
        return os.dup(file.fileno())


def drop_cache(descriptor: int, offset: int = 0, length: int = 0) -> None:
    """Let the system forget its copy in memory of ``length`` bytes from ``offset`` (0: to the end), where it can."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(descriptor, offset, length, os.POSIX_FADV_DONTNEED)


def drop_cache_of(file: BinaryIO, offset: int, length: int) -> None:
    """The same of a file object; a remote one has nothing there."""
    with contextlib.suppress(io.UnsupportedOperation):
        drop_cache(file.fileno(), offset, length)


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


def size_of(descriptor: int) -> int:
    """Bytes of the file."""
    return os.fstat(descriptor).st_size


def close_descriptor(descriptor: int) -> None:
    os.close(descriptor)


def save_arrays(path: PathLike, **arrays: np.ndarray) -> None:
    """Publish numpy arrays as one .npz file."""
    import numpy as np

    held = io.BytesIO()
    np.savez(held, allow_pickle=False, **arrays)
    publish_bytes(path, held.getvalue())


def load_arrays(path: PathLike) -> dict[str, np.ndarray]:
    """The arrays of an .npz file; nothing in it is executed. ValueError when it is damaged."""
    import zipfile

    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as held:
            return {name: held[name] for name in held.files}
    except (zipfile.BadZipFile, EOFError) as error:
        raise ValueError(f"{path}: damaged: {error}") from None
