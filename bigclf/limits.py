"""How many cores and how much memory this process may use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

from bigclf import files

ROOM = 2_000_000_000  # bytes of memory: where there is less, another 300 MB may be too much


def room_for_another() -> bool:
    """Whether there are a core and memory for a second process that compiles."""
    return cores() > 1 and memory_limit()[0] >= ROOM


def cores(root: str = "") -> int:
    """Cores this process may use: affinity, and the share of time its control groups leave it, rounded up."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shares = [share for directory in _groups_of("cpu", root) if (share := _share(directory)) is not None]
    return max(1, min([allowed, *(math.ceil(share) for share in shares)]))


def memory_limit(root: str = "") -> tuple[int, str]:
    """Bytes this process may use at most, and what says so: the machine, a control group or ulimit -v."""
    import resource

    limits = [(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), "the machine")]
    for directory in _groups_of("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            if (number := _number(files.join(directory, name))) is not None:
                limits.append((number, "a control group"))
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    if soft != resource.RLIM_INFINITY:
        limits.append((soft, "ulimit -v"))
    return min(limits, key=lambda limit: limit[0])


def _groups_of(controller: str, root: str) -> Iterator[str]:
    """Directories of the control groups that hold this process, inmost first, of version 1 and 2."""
    try:
        lines = files.read_text(f"{root}/proc/self/cgroup").splitlines()
    except OSError:
        return
    for line in lines:
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        for top in (names, controller) if names else ("", "unified"):
            parts = [part for part in path.split("/") if part]
            if ".." in parts:  # outside of what this name space shows
                parts = []
            while parts:
                yield f"{root}/sys/fs/cgroup/{top}/{'/'.join(parts)}"
                parts.pop()
            yield f"{root}/sys/fs/cgroup/{top}"


def _share(directory: str) -> float | None:
    """Cores' worth of time a control group may use, or None without a limit."""
    both = _words(files.join(directory, "cpu.max"))
    if len(both) == 2:
        return None if both[0] == "max" else int(both[0]) / int(both[1])
    quota, period = (_number(files.join(directory, f"cpu.cfs_{name}_us")) for name in ("quota", "period"))
    return quota / period if quota is not None and period and quota > 0 else None


def _number(path: str) -> int | None:
    words = _words(path)
    return int(words[0]) if words and words[0].lstrip("-").isdigit() else None


def _words(path: str) -> list[str]:
    try:
        return files.read_text(path).split()
    except OSError:
        return []
