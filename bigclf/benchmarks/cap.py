"""A memory control group of its own for one process: the limit counts the page cache too."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bigclf import files
from bigclf.errors import RunError


class Group(NamedTuple):
    """members : file that takes "0" from a process that joins.   peak : bytes at most in use so far, if it is told."""

    members: str
    peak: Callable[[], int | None]


@contextlib.contextmanager
def memory_group(limit: int) -> Iterator[Group]:
    """A control group of ``limit`` bytes (version 1 or 2), removed at the end.

    Raises
    ------
    RunError : none can be made here, with the reason.
    """
    directory, old = place()
    group = files.join(directory, f"bigclf-bench-{os.getpid()}")
    try:
        try:
            files.make_directory(group)
            files.append_line(files.join(group, "memory.limit_in_bytes" if old else "memory.max"), str(limit))
        except (OSError, RunError) as error:
            raise RunError(f"no memory control group can be made here (root is needed): {error}") from error
        peak = files.join(group, "memory.max_usage_in_bytes" if old else "memory.peak")
        yield Group(files.join(group, "cgroup.procs"), lambda: read_number(peak))
    finally:
        files.remove_tree(group)


def place() -> tuple[str, bool]:
    """The directory of the group this process is in, and whether it is of version 1."""
    try:
        lines = files.read_text("/proc/self/cgroup").splitlines()
    except OSError as error:
        raise RunError(f"no memory control groups here: {error.strerror}") from error
    groups = dict(line.split(":", 2)[1:] for line in lines)
    if "memory" in groups:
        return files.join("/sys/fs/cgroup/memory", groups["memory"].lstrip("/")), True
    return files.join("/sys/fs/cgroup", groups.get("", "/").lstrip("/")), False


def read_number(path: str) -> int | None:
    try:
        return int(files.read_text(path))
    except (OSError, ValueError):
        return None
