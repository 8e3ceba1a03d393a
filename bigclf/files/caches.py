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
MANIFESTS, KERNELS = "manifests", "kernels"  # of other directories; a cache that has shards has the first


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
    this one's home) in the temporary one."""
    path = cache_home() / name
    with contextlib.suppress(PermissionError):  # what a disk fails to make is an error, as anywhere
        path.mkdir(exist_ok=True)
        if os.access(path, os.W_OK | os.X_OK):
            return str(path)
    path = _temporary_home() / name
    path.mkdir(exist_ok=True)
    return str(path)


def is_below_home(path: str | os.PathLike[str]) -> bool:
    """Whether ``path`` is bigclf's cache, or lies in it."""
    home, found = Path(os.path.realpath(cache_home())), Path(os.path.realpath(path))
    return found == home or home in found.parents


def is_cached(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a shard that was made of a raw file, in this cache, or in one that another process had, which
    its environment named. Such directories are named by what they were made of, and a cache has others beside them."""
    directory = Path(os.path.realpath(path)).parent
    if Path(os.path.realpath(cache_home())) / CONVERSIONS in directory.parents:
        return True
    home, named = directory.parent.parent, re.fullmatch("[0-9a-f]{32}", directory.name)
    if directory.parent.name != CONVERSIONS or not named:  # others have such names, too
        return False
    return home.name.startswith("bigclf") or any((home / name).is_dir() for name in (MANIFESTS, KERNELS))


def kernel_cache() -> Path:
    """Directory of the compiled kernels: ``$NUMBA_CACHE_DIR``, else one in ``cache_home()``."""
    return Path(os.environ.get("NUMBA_CACHE_DIR") or _own_kernels())


@functools.cache
def _own_kernels() -> Path:
    """Chosen once: kernels of one process lie in one place."""
    return cache_home() / KERNELS


def has_kernels() -> bool:
    """Whether any kernel has been compiled here, by this version or another."""
    return any(kernel_cache().glob("bigclf.*"))
