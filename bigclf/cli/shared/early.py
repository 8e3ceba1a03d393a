"""A second process that is to compile, begun before it is known what: to begin takes it as long as this one needs to
find that out (``bigclf/api/second_process.py``)."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

from bigclf import processes
from bigclf.files.caches import has_kernels
from bigclf.limits import room_for_another

MODULE = "bigclf.api.second_process"


@contextlib.contextmanager
def begun(workers: object) -> Iterator[subprocess.Popen[bytes] | None]:
    """The process, which waits for a line that says what to compile; it ends with this. None where no kernel is missing
    for sure, there is no core or no memory for it, or the run has ``workers`` of its own."""
    if workers is not None or has_kernels() or not room_for_another():
        yield None
        return
    with processes.waiting(MODULE) as process:
        yield process
