"""How workers give each other what they hold: a question that each of them answers beside its tasks.

A task does not wait for another as Dask's tasks do, which would hang on one that is frozen: it asks, and what does not
come in time is an error that names who did not give it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Sequence
from typing import Any

import distributed
from distributed.protocol import to_serialize
from distributed.utils import sync

from bigclf.cluster.holdings import Given, Joined, Name, Unreached, Wanted
from bigclf.cluster.worker_tasks import (
    Changes,
    Failure,
    Greeting,
    Parcel,
    Shipment,
    attempt_join,
    attempt_visit,
    drop,
    greet,
    held_by,
    passed_on,
    place_of,
)
from bigclf.maths.deltas import Cut
from bigclf.training.memory import keep_freed
from bigclf.training.visit import Outcome

POLL_SECONDS = 0.002


def listen() -> None:
    """Have this worker answer from now on."""
    worker: Any = distributed.get_worker()
    slot = worker.address

    async def bigclf_give(run: str, round: int, name: list[int], cut: list[int], total: bool) -> dict[str, object]:
        height, number, *of = name
        wanted = Wanted(round, Name(height, number, Cut(*of)), Cut(*cut), total)
        return {"given": to_serialize(Parcel(held_by(run, slot, wanted)))}

    async def bigclf_drop(run: str, round: int, pieces: list[list[int]], totals: list[list[int]]) -> None:
        drop(run, slot, round, *([Name(h, n, Cut(*cut)) for h, n, *cut in names] for names in (pieces, totals)))

    async def bigclf_pass_on(run: str, version: int, base: int, cut: list[int], seconds: float) -> dict[str, object]:
        end = time.monotonic() + seconds
        while (given := passed_on(run, slot, version, base, Cut(*cut))) is None and time.monotonic() < end:
            await asyncio.sleep(POLL_SECONDS)
        return {"given": to_serialize(Parcel(given))}

    worker.handlers.setdefault("bigclf_give", bigclf_give)
    worker.handlers.setdefault("bigclf_pass_on", bigclf_pass_on)
    worker.handlers.setdefault("bigclf_drop", bigclf_drop)


def introduce(directory: str | None, sample: str | None) -> Greeting:
    """``greet``, by a worker that answers others from now on."""
    listen()
    keep_freed()
    return greet(directory, sample)


def attempt_order(order: Parcel, job: Parcel, slot: str, shipment: Parcel | None) -> Joined | Failure:
    """A task of the tree; see ``attempt_join``."""
    run = job.content.run
    return attempt_join(order, job, slot, brought(shipment, job, slot), functools.partial(fetch, run))


def attempt_visit_there(
    visit: Parcel, job: Parcel, slot: str, token: str, shipment: Parcel | None, carries: Parcel | None, keeps: str,
    holds: int,
) -> Outcome | Failure:  # fmt: skip
    """``attempt_visit``, where the common state may have to be asked for."""
    found = brought(shipment, job, slot)
    return attempt_visit(visit, job, slot, token, found, carries, keeps, holds)


def brought(shipment: Parcel | None, job: Parcel, slot: str) -> Parcel | None:
    """The common state, where another worker is to pass it on, cut by cut, so that others can be given those that are
    here already; None where that does not: the driver sends it then."""
    if shipment is None or not shipment.content.source:
        return shipment
    run, asked, place = job.content.run, shipment.content, place_of(job.content, slot)
    if place.version == asked.version:
        return shipment
    version, base, *_ = asked
    arrived = place.arriving(version, base)
    for number in range(asked.cuts):
        if number not in arrived:
            cut = _asked_for(run, asked, number)
            if cut is None:
                return None
            arrived[number] = cut
    return Parcel(place.assembled(version, base, asked.cuts))


def _asked_for(run: str, asked: Shipment, number: int) -> Changes | None:
    worker: Any = distributed.get_worker()

    async def ask() -> Changes | None:
        question = worker.rpc(asked.source).bigclf_pass_on(
            run=run, version=asked.version, base=asked.base, cut=[number, asked.cuts], seconds=asked.seconds
        )
        with contextlib.suppress(Exception):  # whatever it is
            said = await asyncio.wait_for(question, asked.seconds)
            return None if said is None else said["given"].content
        return None

    found: Changes | None = sync(worker.loop, ask)
    return found


def fetch(run: str, asked: Sequence[tuple[str, Wanted]], seconds: float) -> list[Given]:
    """What other workers hold, all of it asked for at once.

    Raises
    ------
    Unreached : one of them did not give it.
    """
    worker: Any = distributed.get_worker()

    async def all_of_them() -> list[Given]:
        return await asyncio.gather(*(_one(worker, run, address, wanted, seconds) for address, wanted in asked))

    given: list[Given] = sync(worker.loop, all_of_them)
    return given


async def _one(worker: distributed.Worker, run: str, address: str, wanted: Wanted, seconds: float) -> Given:
    name = wanted.name
    try:
        said = await asyncio.wait_for(
            worker.rpc(address).bigclf_give(
                run=run, round=wanted.round, name=[name.height, name.number, *name.cut], cut=[*wanted.cut],
                total=wanted.total,
            ),
            seconds,
        )  # fmt: skip
    except Exception as error:
        raise Unreached(address, f"{type(error).__name__} {error}".strip()) from error
    given: Given | None = None if said is None else said["given"].content
    if given is None:
        raise Unreached(address)
    return given
