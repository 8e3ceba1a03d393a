"""Parts of an evaluation: how rows are cut into them, and what a worker does with one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.cluster.worker_tasks import Failure, Parcel
from bigclf.metrics import figures
from bigclf.metrics.figures import AnyPart
from bigclf.model.model import Model

if TYPE_CHECKING:
    from bigclf.data.dataset import Dataset


PART_NNZ = 20_000_000  # at most, unless a row group has more
ROW_BYTES = 8  # of a part that keeps every decision value


class Measure(NamedTuple):
    """What every part of an evaluation needs; travels to each worker once."""

    model: Model
    source: Any
    exact: bool

    def part(self, first: int, last: int, advance: Callable[[int, int], object] | None = None) -> AnyPart:
        """The chunks first:last."""
        return figures.partial_evaluation(self.model, self.source, first, last, exact=self.exact, advance=advance)


class Part(NamedTuple):
    """The chunks first:last as they are asked for; ``epoch`` as in a visit."""

    first: int
    last: int
    epoch: int = 0


class Measured(NamedTuple):
    """A part, with the bytes that were decoded for it."""

    part: AnyPart
    n_bytes: int


def cut(dataset: Dataset, parts: int) -> list[Part]:
    """The chunks in at least so many parts (as far as there are row groups) of about equal numbers of non-zeros, cut
    where row groups begin."""
    chunks = dataset.chunks
    parts = max(parts, -(-int(chunks.nnz.sum()) // PART_NNZ))
    new = (np.diff(chunks.file) != 0) | (np.diff(chunks.row_group) != 0)
    begins = np.append(0, np.flatnonzero(new) + 1)  # chunks that begin a row group
    before = np.append(0, np.cumsum(chunks.nnz))[begins]  # non-zeros before them
    wanted = np.arange(parts) * (int(chunks.nnz.sum()) / parts)
    chosen = np.unique(np.minimum(np.searchsorted(before, wanted), begins.size - 1))
    edges = [*begins[chosen].tolist(), dataset.n_chunks]
    return [Part(first, last) for first, last in zip(edges[:-1], edges[1:], strict=True)]


def bytes_needed(measure: Measure, parts: list[Part]) -> int:
    """What the largest part takes in a worker."""
    rows = max(int(measure.source.chunks.rows[part.first : part.last].sum()) for part in parts)
    return figures.scoring_bytes(measure.model, measure.source) + (ROW_BYTES * rows if measure.exact else 0)


# What a worker does


def attempt_part(part: Parcel, measure: Parcel) -> Measured | Failure:
    """Measure the chunks of a ``Part``, whatever comes of it."""
    read: list[int] = []
    try:
        found = measure.content.part(*part.content[:2], lambda rows, n_bytes: read.append(n_bytes))
        return Measured(found, sum(read))
    except Exception as error:
        return Failure("failed", error)


def try_part(measure: Measure, first: int, last: int) -> None:
    """Measure chunk by chunk, saying which: in a child process that may die of it."""
    for chunk in range(first, last):
        print(chunk, flush=True)
        measure.part(chunk, chunk + 1)
