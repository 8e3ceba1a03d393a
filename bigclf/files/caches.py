"""Where bigclf keeps what can be made again."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import stat
import tempfile
from pathlib import Path

log = logging.getLogger("bigclf")
CONVERSIONS = "raw"  # name of the directory of shards that were made of raw files
MANIFESTS = "manifests"  # of that of what is known of files elsewhere


def cache_home() -> Path:
    """``$BIGCLF_CACHE_DIR``, else the user's cache directory, else (not writable) a temporary one."""
    home = os.environ.get("BIGCLF_CACHE_DIR")
    path = Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bigclf"
    try:
        path.mkdir(parents=True, exist_ok=True)
        if os.access(path, os.W_OK):
            return path
    except OSError:
        pass
    return _temporary_home()


@functools.cache
def _temporary_home() -> Path:
    """A directory of this user's own: code is loaded from there, and anybody may make names in /tmp."""
    path = Path(tempfile.gettempdir()) / f"bigclf-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    found = path.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022:
        return path
    log.warning("%s is another user's or open to others: using a new directory", path)
    return Path(tempfile.mkdtemp(prefix="bigclf-"))


def cache_directory(name: str) -> str:
    """The directory ``name`` in bigclf's cache, made if need be; where it cannot be written (another user made it, with
    this one's home) in the temporary one.

    Raises
    ------
    OSError : it cannot be made for another reason, as for want of room.
    """
    path = cache_home() / name
    with contextlib.suppress(PermissionError):  # what a disk fails to make is an error, as anywhere
        path.mkdir(exist_ok=True)
        if os.access(path, os.W_OK | os.X_OK):
            return str(path)
    path = _temporary_home() / name
    path.mkdir(exist_ok=True)
    return str(path)


def is_conversion(name: str) -> bool:
    """Whether a directory of ``CONVERSIONS`` is named as those are that hold shards: by a digest of what made them."""
    return re.fullmatch("[0-9a-f]{32}", name) is not None


def is_cached(path: str | os.PathLike[str]) -> bool:
    """Whether a file is by the names of its directories a shard that was made of a raw file, in this cache, or in one
    that another process had."""
    directories = (Path(of(path)).parent for of in (os.path.abspath, os.path.realpath))
    return any(found.parent.name == CONVERSIONS and is_conversion(found.name) for found in directories)


def kernel_cache() -> Path:
    """Directory of the compiled kernels: ``$NUMBA_CACHE_DIR``, else one in ``cache_home()``."""
    return Path(os.environ.get("NUMBA_CACHE_DIR") or _own_kernels())


@functools.cache
def _own_kernels() -> Path:
    """Chosen once: kernels of one process lie in one place."""
    return cache_home() / "kernels"


def has_kernels() -> bool:
    """Whether any kernel has been compiled here, by this version or another."""
    return any(kernel_cache().glob("bigclf.*"))
