"""What a worker does with its share of the problems of a run; as in ``worker_tasks``, no Dask here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bigclf.cluster.worker_tasks import Failure, Parcel, owned, packed, place_of
from bigclf.training.executor import Missing
from bigclf.training.shares import ShareBench
from bigclf.training.visit import STILL, Carry, Outcome, Part, Visit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bigclf.maths.mixing import Weights
    from bigclf.training.plan import Plan
    from bigclf.training.shares import Standing


def attempt_share(
    visit: Parcel, job: Parcel, slot: str, token: str, standings: Parcel, carries: bool
) -> Outcome | Failure:
    """``make_share``, whatever comes of it."""
    try:
        return make_share(visit.content, job, slot, token, standings.content, carries)
    except Missing as error:
        return Failure("missing", error)
    except Exception as error:
        return Failure("failed", error)


def make_share(
    visit: Visit, job: Parcel, slot: str, token: str, standings: Mapping[int, Standing], carries: bool
) -> Outcome:
    """Visit a share of the problems: what came of it, with states as changes to those at the very beginning where that
    is less, and None where nothing was learned.

    carries : whether what the problems carry comes with it.

    Raises
    ------
    Missing : this process lacks what the driver thought it had; it is to be sent along.
    DataError : rows that cannot be used.
    """
    place = place_of(job.content, slot, ShareBench)
    bench = place.bench
    assert isinstance(bench, ShareBench)
    with place.lock:
        place.used = time.monotonic()
        outcome = bench.visit_share(visit, standings, token)
        pairs = zip(visit.todo, outcome.parts, strict=False)
        parts = [_packed(part, bench.fresh_state(number), place.job.plan, visit) for number, part in pairs]
        midway = visit.kind == "update" and visit.segment < place.job.plan.segments - 1
        carry = bench.carry_share(visit, midway) if carries else None
        if carry is not None:
            assert isinstance(carry.rows, list)
            carry = Carry(owned(carry.rows), None if carry.shared is None else owned(carry.shared))
        return place.weighed(outcome._replace(parts=parts, carry=carry))


def _packed(part: Part, start: Weights, plan: Plan, visit: Visit) -> Part:
    """A part as it travels, without a state where that is as it was."""
    if visit.kind not in STILL:
        return packed(part, start, plan)
    return packed(part._replace(state=start), start, plan)._replace(state=None)
