"""A second process that compiles the kernels of a run while the first one still reads, the first time on a machine.

numba compiles one function at a time in a process, and two processes can do so on two cores. What one compiles is on
disk when the other looks for it, and whoever wants what the other is at waits for it
(``bigclf/compiled/kernel_cache.py``). So this process begins with what the first one needs last; it ends when the run
does.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator

from bigclf import processes
from bigclf.compiled.jit import is_kept
from bigclf.data import pages
from bigclf.machine import cores, memory_limit
from bigclf.methods import Setting, resolve
from bigclf.request.request import Request
from bigclf.training.sources import callee_calls, first_calls, load_climb

ROOM = 2_000_000_000  # bytes of memory: where there is less, another 300 MB may be too much


@contextlib.contextmanager
def compiling_beside(request: Request) -> Iterator[None]:
    """Let a second process compile, where nothing has been compiled for this method and there is a core for it."""
    setting = _awaited(request)
    if not _pays(request, setting):
        yield
        return
    named = [setting.method.name, setting.loss, setting.settings.get("penalty"), request["bias"], request["dtype"]]
    asked = json.dumps({"parent": os.getpid(), "named": named})
    with subprocess.Popen(
        [sys.executable, "-m", __name__, asked], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            _compile_callees(setting, request["dtype"])
            yield
        finally:
            process.kill()  # what it has not written down yet nobody needs


def _awaited(request: Request) -> Setting:
    """What the run begins with. Where the rows are to choose the method, the one that takes longest to compile: it is
    the choice for tables, which most first runs are of."""
    known = [setting for each in request.at_first() for setting in each]
    if known:
        return known[0]
    loss = request["loss"] or "logistic"
    return resolve("newton_dense", loss, None, request["bias"], {})


def _pays(request: Request, setting: Setting) -> bool:
    if request["workers"] is not None or setting.method.all_classes or is_kept(setting.kernel()):
        return False
    return cores() > 1 and memory_limit()[0] >= ROOM


def _compile_callees(setting: Setting, dtype: str) -> None:
    """About half of the kernels that the one of an update calls, while the other process starts: it needs them last."""
    calls = callee_calls(setting, 4, dtype)
    for call in calls[: len(calls) // 2]:
        call()


def main() -> None:
    gc.disable()  # looking for garbage, of which there is little, takes a fifth of the time
    asked = json.loads(sys.argv[1])
    processes.end_with(asked["parent"])
    algo, loss, penalty, bias, dtype = asked["named"]
    setting = resolve(algo, loss, penalty, bias, {})
    for call in reversed(first_calls(setting, 4, dtype)):
        call()
    pages.warm(4)
    load_climb(setting, 4, dtype)


if __name__ == "__main__":
    main()
