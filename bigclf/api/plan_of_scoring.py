"""What evaluating and predicting with a model would take, said before it is done.

Rows are scored once and nothing is joined but sums, so workers share all of it but starting. A trial scores the first
row groups here; where processes of this machine are to be the workers, they score them too, the first time and again,
which tells what they take to begin and what they take while all are at work.
"""

from __future__ import annotations

import functools
import itertools
import time
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from bigclf import files
from bigclf.api.evaluate import PARTS_A_WORKER, evaluate_on
from bigclf.api.predicted_shards import Asked, predicted_rows
from bigclf.cluster.book import Patience
from bigclf.cluster.measuring import Measure, bytes_needed, cut
from bigclf.data.predictions import PredictionWriter
from bigclf.machine import anonymous_bytes, cores
from bigclf.metrics import figures
from bigclf.metrics.figures import exact_auc_fits, rows_to_measure
from bigclf.model.model import Model
from bigclf.request.spreading import DEALT_PAYS
from bigclf.request.workers import linked

if TYPE_CHECKING:
    from bigclf.data.dataset import Stored

SAMPLE_NNZ, SAMPLE_PARTS = 4_000_000, 4  # entries of a trial, at most, and so many times fewer than there are
TIMES = 2  # that a trial is made, after one that loads what it needs
MOST_HERE = 16  # processes of a trial: more of them would take memory, and tell nothing more of a machine's cores
PART_SECONDS = 0.02  # of a part's way to a worker and back
ANSWER_BYTES = 4_000  # of a part's figures


class Rates(NamedTuple):
    """Seconds an entry to evaluate and to predict; the same of processes of this machine, all at work, to evaluate
    (0: there are none); seconds until they are there, and of their first look beside a later one."""

    evaluate: float
    predict: float
    crew: float = 0.0
    start: float = 0.0
    first: float = 0.0


class Line(TypedDict):
    """For so many workers: seconds in all and bytes moved, to evaluate and to predict; of these seconds those until the
    workers can begin; bytes of a worker; how many times faster than one process, and what follows."""

    workers: int
    start: float
    evaluate_seconds: float
    evaluate_moved: int
    predict_seconds: float
    predict_moved: int
    memory: int
    evaluate_speed_up: float
    predict_speed_up: float
    advice: str


class Scored(TypedDict):
    """Hash of the model, counts of the data, and a line for each number of workers."""

    model: str
    data: dict[str, int]
    bandwidth: int | None
    scoring: list[Line]


class Scoring:
    """Rows that a model is to score. ``bandwidth`` : to workers elsewhere, bytes a second; None: they are here."""

    def __init__(self, model: Model, data: Stored, memory: int, bandwidth: int | None) -> None:
        self.model, self.memory, self.bandwidth = model, memory, bandwidth
        self.dataset = rows_to_measure(model, data)
        self.exact = exact_auc_fits(model, self.dataset, memory)
        least = max(SAMPLE_PARTS, -(-self.dataset.nnz // SAMPLE_NNZ))
        self.sample = cut(self.dataset, least)[0].last  # chunks of the first row groups
        self.entries = int(self.dataset.chunks.nnz[: self.sample].sum())

    def forecast(self, counts: list[int]) -> Scored:
        """``bigclf plan --model`` : a line for one process and for each number of workers."""
        lines = [self.line(n, self.rates(n)) for n in sorted({1, *counts})]
        first = lines[0]
        for line in lines[1:]:
            for what in ("evaluate", "predict"):
                line[f"{what}_speed_up"] = first[f"{what}_seconds"] / line[f"{what}_seconds"]  # type: ignore[literal-required]
            line["advice"] = _advice(line)
        shown = [line for line in lines if line["workers"] in counts or len(counts) > 1]
        data = {"rows": self.dataset.n_rows, "nnz": self.dataset.nnz, "features": self.dataset.n_features}
        return Scored(model=self.model.digest(), data=data, bandwidth=self.bandwidth, scoring=shown)

    def line(self, workers: int, rates: Rates) -> Line:
        """What so many workers take."""
        nnz, rows = self.dataset.nnz, self.dataset.n_rows
        parts = cut(self.dataset, 1 if workers == 1 else PARTS_A_WORKER * workers)
        largest = max(int(self.dataset.chunks.nnz[part.first : part.last].sum()) for part in parts)
        at_once = min(workers, len(parts)) if self.bandwidth is not None else min(workers, len(parts), cores())
        mine = max(nnz / at_once, largest)
        of_one = rates.crew or rates.evaluate
        moved = self.model.n_bytes * workers if workers > 1 else 0
        sums = len(parts) * ANSWER_BYTES + (8 * rows if self.exact else 0)
        on_way, turns = 0.0, 0.0
        if workers > 1:
            on_way = (moved + sums) / self.bandwidth if self.bandwidth else 0.0
            turns = len(parts) / at_once * PART_SECONDS
        start = rates.start + rates.first
        beside = start + on_way + turns
        memory = anonymous_bytes() + bytes_needed(Measure(self.model, self.dataset, self.exact), parts)
        return Line(
            workers=workers, start=start, evaluate_seconds=beside + of_one * mine,
            evaluate_moved=moved + sums if workers > 1 else 0,
            predict_seconds=beside + of_one * rates.predict / rates.evaluate * mine, predict_moved=moved, memory=memory,
            evaluate_speed_up=1.0, predict_speed_up=1.0, advice="",
        )  # fmt: skip

    @functools.cached_property
    def alone(self) -> Rates:
        """What is measured of this process, once."""
        return Rates(self._evaluating() / self.entries, self._predicting() / self.entries)

    def rates(self, workers: int) -> Rates:
        """What is measured, on this machine."""
        if workers == 1 or self.bandwidth is not None:
            return self.alone
        began = time.perf_counter()
        with linked(min(workers, MOST_HERE), Patience()) as link:
            assert link is not None  # there are several
            n = int(link.count(Patience().idle))
            start, looks, sample = time.perf_counter() - began, [], self.dataset.leading(self.sample)
            for _ in range(1 + TIMES):
                began = time.perf_counter()
                evaluate_on(link, self.model, sample, self.memory, patience=Patience())
                looks.append(time.perf_counter() - began)
        again = min(looks[1:])
        share = self.entries / min(n, cores())
        return self.alone._replace(crew=again / share, start=start, first=max(0.0, looks[0] - again))

    def _evaluating(self) -> float:
        """Seconds of the trial."""

        def once() -> float:
            began = time.perf_counter()
            figures.partial_evaluation(self.model, self.dataset, 0, self.sample, exact=self.exact)
            return time.perf_counter() - began

        once()
        return min(once() for _ in range(TIMES))

    def _predicting(self) -> float:
        chunks = self.dataset.chunks
        places = zip(chunks.file[: self.sample].tolist(), chunks.row_group[: self.sample].tolist(), strict=True)
        groups = [place for place, _ in itertools.groupby(places)]
        asked = Asked(self.model, False, False, "ignore", self.memory)

        def once() -> float:
            began = time.perf_counter()
            with files.scratch() as folder, PredictionWriter(files.join(folder, "predictions.parquet"), {}) as part:
                for columns in predicted_rows(asked, self.dataset, groups, {}, {"rows": 0, "work": 0}):
                    if columns is not None:
                        part.write(columns)
            return time.perf_counter() - began

        once()
        return min(once() for _ in range(TIMES))


def _advice(line: Line) -> str:
    """What follows, of evaluating and of predicting."""
    faster = {"evaluate": line["evaluate_speed_up"], "predict": line["predict_speed_up"]}
    said = ", ".join(f"{what} {ratio:.2g} times" for what, ratio in faster.items())
    pays = [what for what, ratio in faster.items() if ratio >= DEALT_PAYS]
    if len(pays) == 2:
        return f"{line['workers']:,} workers: they pay ({said} the speed of one process)"
    if pays:
        return f"{line['workers']:,} workers: they pay to {pays[0]} ({said} the speed of one process)"
    return f"{line['workers']:,} workers: one process is enough ({said} its speed)"
