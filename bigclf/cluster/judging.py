"""Answers of a sweep, measured on all rows by the workers that learned them: each takes some, and reads what it has."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from bigclf import files
from bigclf.cluster.book import Patience
from bigclf.cluster.engine import Crew, _for_elsewhere, _Member
from bigclf.cluster.link import Link, submitted
from bigclf.cluster.worker_tasks import Failure, Parcel, Verdict, on_trial, place_of, shard_error
from bigclf.data.dataset import Dataset
from bigclf.maths.deltas import n_bytes
from bigclf.training.executor import Job
from bigclf.training.shares import ShareBench
from bigclf.training.validation import Candidate, Sums
from bigclf.training.visit import Visit

if TYPE_CHECKING:
    from distributed import Future

EVERYTHING = Visit("certify", 1, 0, 0, 1, (), 0, (None,))  # what a trial goes through


class Judging(Crew[list[Sums]]):
    """Candidates measured on the rows of a run whose problems are dealt out.

    Parameters
    ----------
    job : of the run. candidates : what is measured, by what measure.
    idle, link, patience : as of ``Crew``.
    """

    verb = "measured"

    def __init__(
        self,
        job: Job,
        candidates: Sequence[Candidate],
        measure: str,
        idle: Callable[[], None],
        *,
        link: Link,
        patience: Patience,
    ) -> None:
        self._job, self._measure = job, measure
        size = -(-len(candidates) // max(1, link.count(patience.idle)))
        self._shares = [list(candidates[first : first + size]) for first in range(0, len(candidates), size)]
        self.sample = files.absolute(job.source.files[0]) if isinstance(job.source, Dataset) else None
        planned, name = job.plan.memory["planned"], f"judge-{job.run}"  # not the run's: that goes on
        super().__init__(name, _for_elsewhere(job), planned, idle, link=link, patience=patience)

    def sums(self) -> list[Sums]:
        """Of every candidate, in order."""
        found: list[Sums] = []
        sizes = [float(len(share) * self._job.source.nnz) for share in self._shares]
        with contextlib.closing(self), contextlib.closing(self.work(sizes)) as units:
            for unit in units:
                found += self._answers.pop(unit)
        return found

    def _called(self, unit: int) -> str:
        return f"{len(self._shares[unit])} answers"

    async def _submit(self, unit: int, attempt: int, member: _Member) -> Future:
        weights: Any = [(one.weights, one.touched) for one in self._shares[unit]]
        self.bytes_moved += n_bytes(weights)
        parcel = await self._put(Parcel((self._shares[unit], self._measure)), member.address)
        return submitted(
            self.link.client, attempt_judging, parcel, member.anchor, member.address,
            key=self._key("judge", unit, attempt), workers=[member.address], pure=False,
        )  # fmt: skip

    def _submit_trial(self, unit: int, attempt: int, member: _Member) -> Future:
        return submitted(
            self.link.client, on_trial, Parcel(EVERYTHING), member.anchor, key=self._key("trial", unit, attempt),
            workers=[member.address], pure=False,
        )  # fmt: skip

    def _key(self, word: str, unit: int, attempt: int) -> tuple[str, str]:
        return f"bigclf-{word}", f"{self.name[:14]}-{id(self)}-{unit}-{attempt}"

    def _convicted(self, unit: int, found: Verdict) -> BaseException:
        deaths = self.patience.deaths
        return shard_error(self._job.source, found["chunk"], found["signal"], deaths, self._called(unit))

    def _size_of(self, answer: list[Sums]) -> int:
        return 0


def attempt_judging(share: Parcel, job: Parcel, slot: str) -> list[Sums] | Failure:
    """Measure candidates on a worker, whatever comes of it."""
    try:
        place = place_of(job.content, slot, ShareBench)
        assert isinstance(place.bench, ShareBench)
        with place.lock:
            return place.bench.judge(*share.content)
    except Exception as error:
        return Failure("failed", error)
