"""What this process and its machine are: versions, processor, and the limits that a run will meet here.

A driver asks it of every worker. What has to agree for the same bits is compared by ``differences``; the rest is for
people (``bigclf doctor``).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import socket
import sys
import time
from typing import TypedDict

from bigclf import files
from bigclf.compiled.jit import cpu_type, sources_digest
from bigclf.errors import RunError
from bigclf.files.caches import kernel_cache
from bigclf.limits import cores, memory_limit
from bigclf.version import __version__

SAME_MINOR = ("numpy", "numba", "pyarrow", "python")


class Identity(TypedDict, total=False):
    """What has to agree between processes for the same bits, and where it was found."""

    host: str
    executable: str
    versions: dict[str, str]
    sources: str
    cpu: str


class SharedMemory(TypedDict):
    path: str
    size: int
    free: int


class Kernels(TypedDict):
    path: str
    writable: bool


class Temporary(TypedDict):
    path: str
    free: int


class Facts(Identity, total=False):
    """``facts()``"""

    pid: int
    time: float
    cores: int
    memory: int
    memory_by: str
    open_files: int | None
    shared_memory: SharedMemory | None
    kernels: Kernels
    temporary: Temporary


def identity() -> Identity:
    """The part of ``facts`` that has to agree for the same bits, and where it was found; cheap."""
    return {
        "host": socket.gethostname(),
        "executable": sys.executable,
        "versions": versions(),
        "sources": sources_digest(),
        "cpu": cpu_type(),
    }


def facts() -> Facts:
    """Facts that fit into JSON.

    Returns
    -------
    dict : host, executable (path of the Python), pid, time (seconds since 1970, by this machine's clock), versions
        {name: text}, sources (digest of the
        package), cpu (type the kernels are compiled for), cores (usable), memory (bytes), memory_by (what sets that
        limit), open_files (or None), shared_memory {path, size, free} or None, kernels {path, writable} and
        temporary {path, free} (bytes).
    """
    memory, memory_by = memory_limit()
    return {
        **identity(),
        "pid": os.getpid(),
        "time": time.time(),
        "cores": cores(),
        "memory": memory,
        "memory_by": memory_by,
        "open_files": open_files(),
        "shared_memory": _shared_memory(),
        "kernels": _kernels(),
        "temporary": _temporary(),
    }


def versions() -> dict[str, str]:
    """Versions of what the bits of a result depend on, and of Dask where it is loaded."""

    found = {"bigclf": __version__, "python": platform.python_version()}
    loaded = tuple(name for name in ("dask", "distributed") if name in sys.modules)
    return found | {name: _version(name) for name in ("numpy", "numba", "pyarrow", *loaded)}


def _version(name: str) -> str:
    """Of the module in use, else of the one that would be imported."""
    loaded = getattr(sys.modules.get(name), "__version__", None)
    try:
        return str(loaded or importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return "none"


def differences(mine: Identity, theirs: Identity) -> list[str]:
    """Plain sentences, each about one thing that must agree for the same bits and does not.

    Parameters
    ----------
    mine, theirs : ``facts()`` of this process and of another.
    """
    here, there = mine.get("versions", {}), theirs.get("versions", {})
    found = []
    if here.get("bigclf") != there.get("bigclf"):
        found.append(_both("bigclf", there, here))
    elif mine.get("sources") != theirs.get("sources"):
        found.append(f"bigclf {here.get('bigclf')} is changed: its files there are not the ones here")
    found += [_both(name, there, here) for name in SAME_MINOR if _minor(here.get(name)) != _minor(there.get(name))]
    if mine.get("cpu") != theirs.get("cpu"):
        found.append(f"processor {theirs.get('cpu')} there, {mine.get('cpu')} here")
    return found


def remedy(mine: Identity, theirs: Identity) -> str:
    """The command that makes the versions there those that are here; empty where they agree.

    Parameters
    ----------
    mine, theirs : ``identity()`` of this process and of another.
    """
    here, there = mine.get("versions", {}), theirs.get("versions", {})
    python, host = theirs.get("executable") or "python", theirs.get("host") or "that host"
    wrong = [name for name in ("numpy", "numba", "pyarrow") if _minor(here.get(name)) != _minor(there.get(name))]
    own = here.get("bigclf") != there.get("bigclf") or mine.get("sources") != theirs.get("sources")
    if _minor(here.get("python")) != _minor(there.get("python")):
        new, wrong, own = f"python{_minor(here.get('python'))}", ["numpy", "numba", "pyarrow"], True
        python, first = "bigclf-env/bin/python", f"{new} -m venv bigclf-env && "
    else:
        first = ""
    commands = []
    if wrong:
        pins = " ".join(f"'{name}=={here.get(name)}'" for name in wrong)
        commands.append(f"{python} -m pip install {pins}")
    if own:
        commands.append(f"{python} -m pip install --force-reinstall --no-deps CHECKOUT_OR_WHEEL_USED_HERE")
    return f"on {host}: {first}{' && '.join(commands)}" if commands else ""


def _both(name: str, there: dict[str, str], here: dict[str, str]) -> str:
    return f"{name} {there.get(name, 'none')} there, {here.get(name, 'none')} here"


def _minor(version: str | None) -> str:
    """``2.4`` of ``2.4.6``."""
    match = re.match(r"\d+(\.\d+)?", version or "")
    return match.group() if match else str(version)


# Limits


def anonymous_bytes() -> int:
    """Anonymous resident memory in bytes (shared files and page cache not counted); all resident where Linux is not."""
    with contextlib.suppress(OSError):
        words = files.read_text("/proc/self/status").split()
        if "RssAnon:" in words:
            return int(words[words.index("RssAnon:") + 1]) * 1024
    import psutil

    return int(psutil.Process().memory_info().rss)


def open_files() -> int | None:
    """Files this process may have open; None without a limit."""
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft


# Places


def _shared_memory() -> SharedMemory | None:
    path = "/dev/shm"
    if not files.is_directory(path):
        return None
    return {"path": path, "size": files.total_bytes(path), "free": files.free_bytes(path)}


def _kernels() -> Kernels:
    """Where compiled code is kept."""
    path = str(kernel_cache())
    return {"path": path, "writable": is_writable(path) is None}


def _temporary() -> Temporary:
    """Where a run keeps its raw store, unless it is told another place."""
    path = files.scratch_directory()
    return {"path": path, "free": files.free_bytes(path)}


def is_writable(directory: str) -> str | None:
    """None if a file can be made in ``directory`` (which is made if need be), else the reason."""
    try:
        files.make_directory(directory)
        files.probe_writable(directory)
    except RunError as error:
        return str(error)
    return None
