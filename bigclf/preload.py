"""Kernels ready before the first task comes: ``dask worker --preload bigclf.preload``, or ``python -m bigclf.preload``.

A worker prepares those for indices of 4 bytes, which nearly all data have; the command those of 8 bytes as well. The
first process of a host compiles, under a lock; the others find its work on disk. A worker waits with joining its
cluster until that is done, but not for longer than ``PATIENCE``. Whatever goes wrong is a line in the log: a worker
without compiled kernels compiles them when a task needs them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from bigclf.methods import Method


log = logging.getLogger("bigclf")
PATIENCE = 40.0  # seconds; a nanny with --death-timeout 60 would take a worker that needs longer for hung
SAY = 15.0  # seconds between two lines of the command while it compiles, unless told --every SECONDS
_steps = {"done": 0, "all": 0}  # methods with each of their losses, for each width of an index


def compile_all(index_width: int = 4, dtype: str = "float64") -> None:
    """Compile, or load from disk, every kernel of every method, and those that decode shards.

    Parameters
    ----------
    index_width : bytes of an index, 4 or 8.
    dtype : of the weights while training.
    """
    from bigclf.data import pages
    from bigclf.methods import resolve
    from bigclf.training.sources import warm, warm_gathered

    pages.warm(index_width)
    for method, loss in _learners():
        groups = 2 if method.form.mixings else 1  # two: with what combines them
        setting = resolve(method.name, loss, None, method.bias[0], {})
        warm(setting._replace(settings=setting.settings | {"groups": groups}), index_width, dtype)
        if groups > 1:
            warm_gathered(setting, index_width, dtype)
        _steps["done"] += 1


def _learners() -> list[tuple[Method, str | None]]:
    """Every method with each of its losses."""
    from bigclf.methods import METHODS

    return [(method, loss) for method in METHODS.values() for loss in method.losses or (None,)]


class Prepared(TypedDict, total=False):
    """What came of ``prepare``."""

    versions: dict[str, str]
    cpu: str
    kernels: dict[str, str]
    compiled: int
    found: int
    seconds: float
    error: str | None


def prepare(widths: tuple[int, ...] = (4,), ready: threading.Event | None = None) -> Prepared:
    """Compile everything for these widths of an index, and set ``ready``. Never raises an error.

    Returns
    -------
    dict : versions, cpu, kernels {path}, compiled and found (signatures), seconds, error (text or None).
    """
    told: Prepared = {"compiled": 0, "found": 0, "error": None}
    started = time.perf_counter()
    try:
        from bigclf import machine
        from bigclf.compiled import jit

        told |= {"versions": machine.versions(), "cpu": jit.cpu_type()}
        told["kernels"] = {"path": str(jit.kernel_cache())}
        _steps["done"], _steps["all"] = 0, len(widths) * len(_learners())
        for width in widths:
            compile_all(width)
        told["compiled"], told["found"] = jit.compilations()
    except Exception as error:  # it must not end a worker
        told["error"] = f"{type(error).__name__}: {error}"
    told["seconds"] = time.perf_counter() - started
    _log(told)
    if ready is not None:
        ready.set()
    return told


def _log(told: Prepared) -> None:
    if told["error"] is not None:
        log.warning("bigclf could not prepare its kernels (%s); they are compiled when needed", told["error"])
        return
    names = ", ".join(f"{name} {version}" for name, version in told["versions"].items())
    log.info("%s on %s: %s", names, told["cpu"], describe(told))


def describe(told: Prepared) -> str:
    """``26 kernels compiled, 0 found in /home/me/.cache/bigclf/kernels/..., 17.3 s``"""
    return (
        f"{told['compiled']} kernels compiled, {told['found']} found in {told['kernels']['path']}, "
        f"{told['seconds']:.1f} s"
    )


async def dask_setup(server: object) -> None:
    """Called by Dask before a worker joins (``server`` may be a scheduler as well)."""
    ready = threading.Event()
    threading.Thread(target=prepare, args=((4,), ready), name="bigclf-preload", daemon=True).start()
    if not await asyncio.to_thread(ready.wait, PATIENCE):
        log.warning("kernels are still being compiled after %.0f s; the worker joins meanwhile", PATIENCE)


def _say_meanwhile(over: threading.Event, every: float = SAY) -> None:
    """To stderr, what was done so far: the first time it takes minutes."""
    while not over.wait(every):
        with contextlib.suppress(KeyError, AttributeError, RuntimeError):  # not imported yet; grew while it was read
            compiled, found = sys.modules["bigclf.compiled.jit"].compilations()
            steps = f"{_steps['done']} of {_steps['all']} steps"
            sys.stderr.write(f"so far {steps}: {compiled} kernels compiled, {found} found\n")
            sys.stderr.flush()


def main() -> int:
    """Prepare this host; 0 when every kernel is compiled and kept."""
    import json

    over, words = threading.Event(), sys.argv[1:]
    every = float(words[words.index("--every") + 1]) if "--every" in words else SAY
    threading.Thread(target=_say_meanwhile, args=(over, every), name="bigclf-preload-says", daemon=True).start()
    told = prepare((4, 8), over)
    if "--json" in words:
        sys.stdout.write(json.dumps(told) + "\n")
    elif told["error"] is None:
        sys.stdout.write(describe(told) + "\n")
    return 0 if told["error"] is None else 1


if __name__ == "__main__":
    sys.exit(main())
