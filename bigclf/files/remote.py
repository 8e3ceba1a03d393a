"""Files behind URLs (s3://, http:// and whatever else fsspec knows), for ``files`` and nobody else.

A store is told from a disk by three things. It fails now and then, so every call is repeated with growing, jittered
pauses, and what came back is counted: a short answer is a failed one. It is far, so what is read comes in blocks of
4 MiB, a few of them fetched ahead, and as many as fit are kept on the local disk. And it has no times of change and no
renaming: a file is known again by its size and the tag its store gives it (ETag), and appears whole once written.

Who may read what is told to fsspec's own places (environment, ~/.aws, ~/.config/fsspec), never to us.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import functools
import hashlib
import io
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from bigclf.errors import DataError, RunError, StoreError, masked
from bigclf.files.caches import cache_directory
from bigclf.texts import LIBRARIES, guard_logs, remember
from bigclf.units import parse_bytes

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from fsspec import AbstractFileSystem


BLOCK = 2**22  # bytes asked for at a time
HELD, AHEAD = 8, 2  # blocks in memory, of all files together; of these asked for before they are needed
TRIES = 10  # ... with pauses that add up to about 40 seconds
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 15.0
CONNECT_SECONDS, SILENT_SECONDS = 10, 30  # a store that says nothing for so long has failed
CACHE_BYTES = "2GB"
SCHEME = re.compile(r"(?!file:)([a-z][a-z0-9+.-]+)://", re.IGNORECASE)  # of what is not on this machine
FLAT = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss"}  # object stores: whole or not there, no directories
READ_ONLY = {"http", "https"}
EXPIRED = "400 bad request|expired|forbidden|credential|signature|access key|token|denied|unauthorized"
NEVER = (PermissionError, FileExistsError, IsADirectoryError, NotImplementedError, ImportError, ValueError, TypeError)
_T = TypeVar("_T")


class Found(NamedTuple):
    """What a store says of a name: size in bytes, a number made from its tag (0: it has none), whether it is a
    directory."""

    size: int
    version: int
    directory: bool


# Patience


def pause(attempt: int) -> None:
    """Wait after the failed ``attempt``, the longer the more there were, never as long as others do."""
    time.sleep(min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt) * random.uniform(0.5, 1.0))


def patiently(what: Callable[[], _T], url: str) -> _T:
    """``what()``, repeated while its failures may pass.

    Raises
    ------
    FileNotFoundError : the store says that there is no such thing.
    StoreError : it refuses, or was asked TRIES times in vain.
    """
    for attempt in range(TRIES):
        try:
            return what()
        except (RunError, DataError, MemoryError):
            raise
        except Exception as error:
            remember([url])
            reason = _reason(error)
            if _is_missing(reason):
                raise FileNotFoundError(2, "No such file", masked(url)) from None
            if not _may_pass(reason):
                raise _refused(url, reason) from error
            if attempt == TRIES - 1:
                raise StoreError(f"{url}: the store failed {TRIES} times, the last time with: {_text(reason)}; look at "
                                 "address and network, and run the same again") from error  # fmt: skip
            pause(attempt)
    raise AssertionError("unreachable")


def _reason(error: BaseException) -> BaseException:
    """What really happened: fsspec tells some failures of a server as files that are not there."""
    cause = error.__cause__
    return cause if isinstance(error, FileNotFoundError) and cause is not None and _status(cause) != 404 else error


def _status(error: BaseException) -> int | None:
    """The HTTP status an error stands for, if it does."""
    for one in (error, error.__cause__):
        status = getattr(one, "status", None)
        if isinstance(status, int):
            return status
        with contextlib.suppress(AttributeError, KeyError, TypeError):
            return int(one.response["ResponseMetadata"]["HTTPStatusCode"])  # type: ignore[union-attr]
    return None


def _is_missing(error: BaseException) -> bool:
    return isinstance(error, FileNotFoundError) or _status(error) in (404, 410)


def _may_pass(error: BaseException) -> bool:
    """Whether it makes sense to ask again: no connection, silence, a broken answer, a server that is busy or failed."""
    status = _status(error)
    if status is not None and 400 <= status < 500:
        busy = "SlowDown|Throttl|RequestTimeout|RequestLimit|reduce your request rate"
        return status in (408, 425, 429) or re.search(busy, f"{error} {error.__cause__}") is not None
    if isinstance(error, NEVER) and status is None:
        return False
    names = {kind.__name__ for kind in type(error).__mro__}
    return not names & {"NoCredentialsError", "PartialCredentialsError", "ParamValidationError", "ProfileNotFound"}


def _refused(url: str, error: BaseException) -> Exception:
    text = _text(error)
    if isinstance(error, ImportError):
        scheme = urlsplit(url).scheme
        place = "" if url == f"{scheme}://" else f"{url}: "
        return RunError(f"{place}{scheme}:// needs more libraries: pip install 'bigclf[remote]' for s3 and http, else "
                        f"as fsspec says ({text})")  # fmt: skip
    if re.search(EXPIRED, text, re.IGNORECASE) or isinstance(error, PermissionError):
        return StoreError(f"{url}: access was refused ({text}): look at the credentials (environment, ~/.aws), renew "
                          "them where they have expired, and run the same again")  # fmt: skip
    return StoreError(f"{url}: {text}")


def _text(error: BaseException) -> str:
    return masked(" ".join(str(error).split()) or type(error).__name__)


# Asking


@functools.lru_cache(maxsize=64)
def _store_of(scheme: str, place: str, process: int) -> AbstractFileSystem:
    """fsspec's file system; its own retries are off, ours are counted. ``process`` : sockets are not shared."""
    import fsspec

    guard_logs(*LIBRARIES)
    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if scheme in ("s3", "s3a"):
        silent = {"connect_timeout": CONNECT_SECONDS, "read_timeout": SILENT_SECONDS}
        options["config_kwargs"] = {**silent, "retries": {"total_max_attempts": 1}}
    if scheme in READ_ONLY:
        try:
            import aiohttp
        except ImportError as error:
            raise RunError(f"{scheme}:// needs more libraries: pip install 'bigclf[remote]'") from error
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENT_SECONDS)
        options |= {"client_kwargs": {"timeout": timeout}, "headers": {"Accept-Encoding": "identity"}}
    try:
        if scheme in FLAT | READ_ONLY:
            store = fsspec.filesystem(scheme, **options)
        else:  # who is asked stands in the URL
            store, _ = fsspec.core.url_to_fs(f"{scheme}://{place}", **options)
    except (ImportError, ValueError, TypeError, OSError) as error:
        raise _refused(f"{scheme}://{place}", error) from error
    if scheme in ("s3", "s3a"):
        store.retries = 1
    return store


def _asked(url: str) -> tuple[AbstractFileSystem, str]:
    """The store of ``url``, and what it calls it."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    store = _store_of(scheme, "" if scheme in FLAT | READ_ONLY else parts.netloc, os.getpid())
    return store, store._strip_protocol(url)


def _found(told: Mapping[str, Any]) -> Found:
    tags = ("ETag", "etag", "Content-MD5", "md5Hash", "Digest", "generation", "Last-Modified", "LastModified", "mtime",
            "last_modified", "created")  # fmt: skip
    tag = next((str(told[name]) for name in tags if told.get(name)), "")
    version = int.from_bytes(hashlib.blake2b(tag.encode(), digest_size=8).digest()) >> 1 if tag else 0
    index = str(told.get("mimetype", "")) == "text/html" and told["type"] == "file"
    return Found(-1 if told.get("size") is None else int(told["size"]), version, told["type"] == "directory" or index)


def look(url: str) -> Found | None:
    """What the store says of ``url``; None where there is nothing."""
    store, name = _asked(url)
    try:
        return _found(patiently(lambda: store.info(name), url))
    except FileNotFoundError:
        return None


def look_at_all(urls: list[str]) -> list[Found | None]:
    """The same of many: where they lie together and the store tells sizes in listings, it is asked once a directory."""
    listed: dict[str, Found | None] = {}
    for parent, count in collections.Counter(parent_of(url) for url in urls).items():
        if count >= 4 and urlsplit(parent).scheme.lower() not in READ_ONLY:
            listed |= {f"{parent}/{name}": found for name, found in list_directory(parent).items()}
            listed |= {url: None for url in urls if parent_of(url) == parent and url not in listed}
    rest = [url for url in urls if url not in listed]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        listed |= dict(zip(rest, pool.map(look, rest), strict=True))
    return [listed[url] for url in urls]


def list_directory(url: str) -> dict[str, Found]:
    """What lies directly under ``url``, by name; nothing where there is no such directory."""
    store, name = _asked(url)
    try:
        told = patiently(lambda: store.ls(name if urlsplit(url).scheme in READ_ONLY else name.rstrip("/"), detail=True),
                         url)  # fmt: skip
    except (FileNotFoundError, NotADirectoryError):
        return {}
    here = name.rstrip("/")
    return {last_name(one["name"]): _found(one) for one in told if one["name"].rstrip("/") != here}


def glob(url: str) -> list[str]:
    """URLs of the files that match, as far as the store can list."""
    store, name = _asked(url)
    told = patiently(lambda: store.glob(name, detail=True), url)
    return [store.unstrip_protocol(one) for one, info in told.items() if info["type"] == "file"]


def last_name(url: str) -> str:
    """The last part of a URL or of a store's name, without a query."""
    path = urlsplit(url).path if SCHEME.match(url) and urlsplit(url).scheme.lower() in READ_ONLY else url
    return path.rstrip("/").rpartition("/")[2]


def parent_of(url: str) -> str:
    """The URL above; of the topmost itself."""
    parts = urlsplit(url) if urlsplit(url).scheme.lower() in READ_ONLY else None
    plain = url.rstrip("/") if parts is None else f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/")
    above = plain.rpartition("/")[0]
    return plain if above.endswith("/") or above.endswith(":") else above


# Reading


def read_range(url: str, found: Found, first: int, last: int) -> bytes:
    """The bytes first:last of a file that is as it was ``found``; never fewer.

    Raises
    ------
    DataError : the file is gone. StoreError : see ``patiently``.
    """
    if last <= first:
        return b""
    store, name = _asked(url)

    def once() -> bytes:
        content: bytes = store.cat_file(name, start=first, end=last)
        if len(content) == found.size != last - first:  # a server that knows no ranges sends all of it
            content = content[first:last]
        if len(content) != last - first:
            raise OSError(f"{len(content):,} bytes came where {last - first:,} were asked for")
        return content

    try:
        return patiently(once, url)
    except FileNotFoundError:
        raise DataError("the file is gone", file=url) from None


def read_all(url: str) -> bytes:
    """The whole file: FileNotFoundError where there is none."""
    found = look(url)
    if found is None or found.directory:
        raise FileNotFoundError(2, "No such file", masked(url))
    if found.size < 0:
        store, name = _asked(url)
        return bytes(patiently(lambda: store.cat_file(name), url))
    return read_range(url, found, 0, found.size)


class Reader(io.RawIOBase):
    """A remote file for reading, whole blocks at a time.

    Raises
    ------
    DataError : there is no such file, or the server does not say how long it is.
    """

    def __init__(self, url: str) -> None:
        found = look(url)
        if found is None or found.directory:
            raise DataError("a directory, not a file" if found else "there is no such file", file=url)
        if found.size < 0:
            raise DataError("the server does not say how long the file is; copy it to a disk or an object store",
                            file=url)  # fmt: skip
        self.url, self.found, self._at, self._last = url, found, 0, -2
        super().__init__()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + (0, self._at, self.found.size)[whence])
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill the buffer; less only at the end of the file."""
        into = memoryview(buffer).cast("B")
        done, size = 0, self.found.size
        while done < into.nbytes and self._at < size:
            number, offset = divmod(self._at, BLOCK)
            ahead = range(number + 1, min(number + 1 + AHEAD, -(-size // BLOCK))) if number == self._last + 1 else ()
            content = _blocks().get(self.url, self.found, number, ahead)
            self._last = number
            piece = memoryview(content)[offset : offset + into.nbytes - done]
            into[done : done + piece.nbytes] = piece
            done, self._at = done + piece.nbytes, self._at + piece.nbytes
        return done

    def read(self, size: int | None = -1) -> bytes:
        """``size`` bytes, fewer only at the end."""
        rest = max(0, self.found.size - self._at)
        content = bytearray(rest if size is None or size < 0 else min(size, rest))
        self.readinto(content)
        return bytes(content)


class _Blocks:
    """The last few blocks of all files in memory, and as many as fit on disk."""

    def __init__(self, cache: Cache | None) -> None:
        self._cache, self._lock = cache, threading.Lock()
        self._held: collections.OrderedDict[Any, concurrent.futures.Future[bytes]] = collections.OrderedDict()
        self._pool = concurrent.futures.ThreadPoolExecutor(4, "bigclf-remote")

    def get(self, url: str, found: Found, number: int, ahead: Iterable[int] = ()) -> bytes:
        """A block; ``ahead`` are asked for without waiting."""
        key = url, found, number
        with self._lock:
            wanted = self._ask(key)
            for other in ahead:
                self._ask((url, found, other))
            while len(self._held) > HELD:
                self._held.popitem(last=False)
        try:
            return wanted.result()
        except BaseException:
            with self._lock:
                self._held.pop(key, None)
            raise

    def _ask(self, key: tuple[str, Found, int]) -> concurrent.futures.Future[bytes]:
        if key not in self._held:
            self._held[key] = self._pool.submit(self._fetch, *key)
        self._held.move_to_end(key)
        return self._held[key]

    def _fetch(self, url: str, found: Found, number: int) -> bytes:
        first, last = number * BLOCK, min((number + 1) * BLOCK, found.size)
        kept = self._cache if found.version else None
        if kept is not None and (content := kept.load(url, found, number, last - first)) is not None:
            return content
        content = read_range(url, found, first, last)
        if kept is not None:
            kept.keep(url, found, number, content)
        return content


class Cache:
    """Blocks in a local directory of bounded size; harmless to lose, or to find damaged.

    What fits first stays: a read of more than the bound would find nothing in a cache that lets go of the oldest. What
    earlier processes left gives way, the longest unused first.
    """

    def __init__(self, directory: str, bound: int) -> None:
        self.directory, self.bound = directory, bound
        self._began, self._lock = time.time(), threading.Lock()
        self._used = sum(size for _, size, _ in self._files())

    def _files(self) -> list[tuple[float, int, str]]:
        """(time of last use, size, path) of all blocks."""
        found = []
        with contextlib.suppress(OSError), os.scandir(self.directory) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    found.append((status.st_mtime, status.st_size, entry.path))
        return found

    def _path(self, url: str, found: Found, number: int) -> str:
        name = hashlib.blake2b(f"{url} {found.size} {found.version}".encode(), digest_size=16).hexdigest()
        return os.path.join(self.directory, f"{name}-{number:06d}")

    def load(self, url: str, found: Found, number: int, size: int) -> bytes | None:
        """A block that was kept, its checksum compared; None where there is none."""
        path = self._path(url, found, number)
        with contextlib.suppress(OSError):
            with open(path, "rb") as file:
                content = file.read()
            if len(content) == size + 16 and _digest(content[:size]) == content[size:]:
                with contextlib.suppress(OSError):
                    os.utime(path)
                return content[:size]
        return None

    def keep(self, url: str, found: Found, number: int, content: bytes) -> None:
        """Keep a block if there is room; a disk that is full keeps none."""
        with self._lock:
            if self._used + len(content) + 16 > self.bound and not self._make_room(len(content) + 16):
                return
            self._used += len(content) + 16
        path = self._path(url, found, number)
        beside = f"{path}.{os.getpid()}.{threading.get_ident()}"
        try:
            with open(beside, "wb") as file:
                file.write(content)
                file.write(_digest(content))
            os.replace(beside, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(beside)

    def _make_room(self, size: int) -> bool:
        """Remove what nobody has used since this process began; False where that is not enough."""
        there = self._files()  # other processes come and go
        self._used = sum(one[1] for one in there)
        for used, n_bytes, path in sorted(there):
            if self._used + size <= self.bound:
                break
            if used >= self._began:
                return False
            with contextlib.suppress(OSError):
                os.unlink(path)
                self._used -= n_bytes
        return self._used + size <= self.bound


def _digest(content: bytes) -> bytes:
    import xxhash

    return xxhash.xxh3_128_digest(content)


@functools.lru_cache(maxsize=1)
def _blocks_in(process: int, directory: str, bound: int) -> _Blocks:
    return _Blocks(Cache(directory, bound) if bound else None)


def _blocks() -> _Blocks:
    """The blocks of this process; BIGCLF_REMOTE_CACHE bounds the directory (0: nothing is kept)."""
    text = os.environ.get("BIGCLF_REMOTE_CACHE", CACHE_BYTES)
    try:
        bound = 0 if text.strip() == "0" else parse_bytes(text)
    except ValueError as error:
        raise RunError(f"BIGCLF_REMOTE_CACHE: {error}") from None
    return _blocks_in(os.getpid(), cache_directory("remote") if bound else "", bound)


# Writing


def _writable(url: str) -> tuple[AbstractFileSystem, str]:
    if urlsplit(url).scheme.lower() in READ_ONLY:
        raise StoreError(f"{url}: http cannot be written to; name a directory or an object store")
    return _asked(url)


def upload(local: str, url: str) -> None:
    """Make the local file appear at ``url``, whole or not at all, and look whether it did.

    Raises
    ------
    StoreError : it cannot be written.
    """
    store, name = _writable(url)
    size = os.stat(local).st_size
    beside = name if urlsplit(url).scheme.lower() in FLAT else f"{name}.{random.getrandbits(32):08x}.tmp"

    def once() -> None:
        store.put_file(local, beside)
        if beside != name:
            store.mv(beside, name)
        if (there := int(store.info(name)["size"])) != size:
            raise OSError(f"{there:,} of {size:,} bytes arrived")

    try:
        patiently(once, url)
    except FileNotFoundError as error:
        raise StoreError(f"{url}: there is no such bucket or directory; make it first") from error


def make_directory(url: str) -> None:
    """Make a directory, where the store has such things."""
    if urlsplit(url).scheme.lower() not in FLAT:
        store, name = _writable(url)
        patiently(lambda: store.makedirs(name, exist_ok=True), url)


def remove(url: str, tree: bool = False) -> None:
    """Remove a file, or a directory and all in it; nothing where there is none."""
    store, name = _writable(url)
    with contextlib.suppress(FileNotFoundError):
        patiently(lambda: store.rm(name, recursive=True) if tree else store.rm_file(name), url)
