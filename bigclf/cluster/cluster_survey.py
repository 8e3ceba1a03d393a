"""What a cluster is like, before anything is run on it: ``bigclf doctor --scheduler``.

Every question has a time limit of its own and is put to each worker for itself, so that one that is frozen or cannot be
reached is a line in the report and not the end of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import platform
import secrets
import time
from collections.abc import Awaitable, Mapping
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, TypeVar

import dask.config

from bigclf import files, machine
from bigclf.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client


SETTINGS = (
    "scheduler.worker-ttl", "scheduler.no-workers-timeout", "scheduler.allowed-failures", "scheduler.work-stealing",
    "scheduler.worker-saturation", "comm.timeouts.connect", "comm.timeouts.tcp", "comm.retry.count",
)  # fmt: skip
SILENT = 5.0  # seconds without a sign of life after which a worker is asked nothing; heartbeats are some 0.5 s apart
SAMPLE_BYTES = 4_000_000
AT_ONCE = 16  # workers asked at the same time


T = TypeVar("T")


class Scheduler(TypedDict):
    address: str
    versions: dict[str, str]
    settings: dict[str, object]


class Direct(TypedDict):
    """What went straight to a worker, and how long it took."""

    bytes: int
    seconds: float


class Examined(TypedDict):
    """What a worker says of itself."""

    facts: machine.Facts | None
    run_dir: str | None


class Asked(Examined, total=False):
    ahead: float | None
    direct: Direct | str | None


class Worker(Asked):
    address: str
    name: str
    host: str | None
    threads: int
    memory_limit: int
    nanny: bool
    silent: float
    problem: str | None


class Certificate(TypedDict):
    path: str | None
    days_left: int


class Survey(TypedDict):
    scheduler: Scheduler
    workers: list[Worker]
    certificate: NotRequired[Certificate | None]  # of this process, where it has one


def survey(client: Client, run_dir: str | None = None, timeout: float = 20.0) -> Survey:
    """Ask the scheduler and every worker.

    Parameters
    ----------
    client : a ``distributed.Client``.
    run_dir : a directory that every worker should be able to write; made if it is missing.
    timeout : seconds within which a worker has to answer each question.

    Returns
    -------
    dict : scheduler {address, versions, settings} and workers, a list of {address, name, host, threads, memory_limit
        (bytes, 0: none), nanny, silent (seconds since its last sign of life), facts (``machine.facts()`` there, or
        None), problem (why not), ahead (seconds its clock is before ours, at least), direct {bytes, seconds} or the
        reason why data do not move straight to it, run_dir (None, or why it cannot be used there)}.

    Raises
    ------
    ClusterError : the scheduler does not answer.
    """
    told: Survey = client.sync(_survey, client, run_dir, timeout)
    return told


def require_alike(client: Client, timeout: float = 20.0) -> int:
    """Compare what the scheduler and the workers run with what this process does; returns how many workers answered.

    Workers that are silent, or of another processor, are left to the run, which does without them.

    Raises
    ------
    ClusterError : versions differ, or bigclf is not there; with the command that mends each.
    """
    mine = machine.identity()
    places: list[tuple[str, machine.Identity | str]] = client.sync(_identities, client, timeout)
    wrong: dict[str, str] = {}  # by what is to be done
    for place, found in places:
        if isinstance(found, str):
            wrong.setdefault(found, place)
            continue
        if todo := machine.remedy(mine, found):
            differ = [text for text in machine.differences(mine, found) if not text.startswith("processor")]
            wrong.setdefault(todo, f"{place} differs ({'; '.join(differ)})")
    if wrong:
        raise ClusterError(
            "not the same versions everywhere, so not the same bits: "
            + "; ".join(f"{place}: {todo}" for todo, place in wrong.items())
        )
    return len(places) - 1


async def _identities(client: Client, timeout: float) -> list[tuple[str, machine.Identity | str]]:
    """``machine.identity()`` of the scheduler and of each worker that answers, or what to do where there is none."""
    try:
        scheduler: Any = client.scheduler
        known = (await asyncio.wait_for(scheduler.identity(n_workers=-1), timeout))["workers"]
        now = await asyncio.wait_for(client.run_on_scheduler(time.time), timeout)
        first = await asyncio.wait_for(_identity(client.run_on_scheduler(machine.identity)), timeout)
    except (OSError, TimeoutError) as error:
        raise ClusterError(f"the scheduler does not answer: {_text(error)}") from error
    turns = asyncio.Semaphore(AT_ONCE)

    async def ask(address: str) -> tuple[str, machine.Identity | str | None]:
        async with turns:
            try:
                answer = await _bounded(_identity(client.run(machine.identity, workers=[address])), timeout)
            except (OSError, TimeoutError):
                return address, None
            return address, answer[address] if isinstance(answer, dict) else answer

    lively = [address for address, what in sorted(known.items()) if now - what["last_seen"] <= SILENT]
    asked = await asyncio.gather(*(ask(address) for address in lively))
    return [("the scheduler", first), *((f"worker {a}", said) for a, said in asked if said is not None)]


async def _identity(asking: Awaitable[T]) -> T | str:
    """The answer; where the other side cannot find what is asked for, what to do there."""
    try:
        return await asking
    except (ImportError, AttributeError) as error:
        return f"bigclf is not there, or another version ({_text(error)}): install the one used here"


async def _survey(client: Client, run_dir: str | None, timeout: float) -> Survey:
    try:
        scheduler, known, now = await asyncio.wait_for(_scheduler(client), timeout)
    except (OSError, TimeoutError) as error:
        raise ClusterError(f"the scheduler does not answer: {_text(error)}") from error
    mark = _leave_mark(run_dir) if run_dir is not None else None
    turns = asyncio.Semaphore(AT_ONCE)
    try:
        asked = [_worker(client, address, what, now, mark, timeout, turns) for address, what in sorted(known.items())]
        return {"scheduler": scheduler, "workers": list(await asyncio.gather(*asked))}
    finally:
        if mark is not None:
            files.remove(mark)


async def _scheduler(client: Client) -> tuple[Scheduler, dict[str, dict[str, object]], float]:
    """What it says of itself, the workers it knows, and its clock."""
    scheduler: Any = client.scheduler
    found = await scheduler.identity(n_workers=-1)
    now = await client.run_on_scheduler(time.time)
    settings = {name: await client.run_on_scheduler(dask.config.get, f"distributed.{name}", None) for name in SETTINGS}
    versions = {"python": await client.run_on_scheduler(platform.python_version)}
    for name in ("dask", "distributed"):
        versions[name] = await client.run_on_scheduler(importlib.metadata.version, name)
    return {"address": found["address"], "versions": versions, "settings": settings}, found["workers"], now


def _leave_mark(run_dir: str) -> str:
    """A file in the directory that workers should see."""
    files.make_directory(run_dir)
    path = files.join(files.absolute(run_dir), f".doctor-{secrets.token_hex(8)}")
    files.publish_text(path, "bigclf")
    return path


async def _worker(
    client: Client,
    address: str,
    what: Mapping[str, Any],
    now: float,
    mark: str | None,
    timeout: float,
    turns: asyncio.Semaphore,
) -> Worker:
    told: Worker = {
        "address": address, "name": str(what.get("name", address)), "host": what.get("host"),
        "threads": int(what["nthreads"]), "memory_limit": int(what.get("memory_limit") or 0),
        "nanny": bool(what.get("nanny")), "silent": max(0.0, now - what["last_seen"]),
        "facts": None, "problem": None, "ahead": None, "direct": None, "run_dir": None,
    }  # fmt: skip
    if told["silent"] > SILENT:
        return told | {"problem": f"no sign of life for {told['silent']:.0f} s"}
    async with turns:
        try:
            return told | await _asked(client, address, mark, timeout)
        except TimeoutError:
            return told | {"problem": f"no answer within {timeout:.0f} s"}
        except Exception as error:
            return told | {"problem": _text(error)}


async def _asked(client: Client, address: str, mark: str | None, timeout: float) -> Asked:
    before = time.time()
    answer = await _bounded(client.run(examine, mark, workers=[address]), timeout)
    said, after = answer[address], time.time()
    ahead = max(0.0, said["facts"]["time"] - after) - max(0.0, before - said["facts"]["time"])
    direct = await _send_directly(client, address, timeout)
    return {"facts": said["facts"], "run_dir": said["run_dir"], "ahead": ahead, "direct": direct}


async def _send_directly(client: Client, address: str, timeout: float) -> Direct | str:
    """Time for some data from this process to the worker, not through the scheduler, or why that does not work."""
    sample = secrets.token_bytes(SAMPLE_BYTES)  # nothing that compresses
    started = time.perf_counter()
    try:
        await _bounded(client.scatter([sample], workers=[address], hash=False, direct=True), timeout)
    except TimeoutError:
        return f"not within {timeout:.0f} s"
    except Exception as error:
        return _text(error)
    return {"bytes": SAMPLE_BYTES, "seconds": time.perf_counter() - started}


async def _bounded(work: Awaitable[T], timeout: float) -> T:
    return await asyncio.wait_for(work, timeout)


async def examine(mark: str | None) -> Examined:
    """In a worker: its facts, and whether the directory of ``mark`` can be used; in a thread, since a file system may
    hang and the worker should not."""
    return await asyncio.to_thread(_examine, mark)


def _examine(mark: str | None) -> Examined:
    found: Examined = {"facts": machine.facts(), "run_dir": None}
    if mark is not None:
        directory = files.parent_directory(mark)
        if not files.exists(mark):
            found["run_dir"] = f"{directory} is another directory there, or none: it has to be one that all share"
        else:
            with contextlib.suppress(Exception):
                found["run_dir"] = machine.is_writable(directory)
    return found


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
