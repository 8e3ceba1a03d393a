"""A second process that compiles the kernels of a run while the first one still reads, the first time on a machine.

numba compiles one function at a time in a process, and two processes can do so on two cores. What one compiles is on
disk when the other looks for it, and whoever wants what the other is at waits for it
(``bigclf/compiled/kernel_cache.py``), once there is nothing else to compile. So this process begins with what the first
one needs last; it ends when the run does.
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
from bigclf.compiled.jit import begin_compiling, in_turns, is_kept
from bigclf.data import pages
from bigclf.limits import room_for_another
from bigclf.methods import Setting, resolve
from bigclf.request.request import Request
from bigclf.training.sources import callee_calls, first_calls, load_climb


@contextlib.contextmanager
def compiling_beside(request: Request, begun: subprocess.Popen[bytes] | None = None) -> Iterator[None]:
    """Let a second process compile, where nothing has been compiled for this method and there is a core for it;
    ``begun`` : it is there, and waits for a line that says what."""
    setting = _awaited(request)
    if not _pays(request, setting):
        if begun is not None:
            begun.kill()
        yield
        return
    named = [setting.method.name, setting.loss, setting.settings.get("penalty"), request["bias"], request["dtype"]]
    asked = json.dumps({"parent": os.getpid(), "named": named})
    with processes.waiting(__name__) if begun is None else contextlib.nullcontext(begun) as process:
        _tell(process, asked)
        yield


def _tell(process: subprocess.Popen[bytes], line: str) -> None:
    """Nothing where it has ended meanwhile: then this process compiles."""
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()
        return
    with contextlib.suppress(BrokenPipeError):  # else what stays in the buffer would be written once more at the end
        process.stdin.close()


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
    return room_for_another()


def _compile_callees(setting: Setting, dtype: str) -> None:
    """About half of the kernels that the one of an update calls, while the other process starts: it needs them last."""
    calls = callee_calls(setting, 4, dtype)
    in_turns(calls[: len(calls) // 2])


def main() -> None:
    gc.disable()  # looking for garbage, of which there is little, takes a fifth of the time
    begin_compiling()
    line = sys.stdin.readline()
    if not line:  # nothing is to be compiled after all
        return
    asked = json.loads(line)
    processes.end_with(asked["parent"])
    algo, loss, penalty, bias, dtype = asked["named"]
    setting = resolve(algo, loss, penalty, bias, {})
    in_turns(reversed(first_calls(setting, 4, dtype)))
    load_climb(setting, 4, dtype)
    pages.warm(4)


if __name__ == "__main__":
    main()
