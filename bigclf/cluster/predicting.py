"""Files of predictions, written by the workers of a cluster into a directory that all of them see."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from bigclf import files
from bigclf.cluster.book import Patience
from bigclf.cluster.engine import Crew, _Member
from bigclf.cluster.link import Link, submitted
from bigclf.cluster.worker_tasks import Failure, Parcel, Verdict, on_trial, shard_error
from bigclf.progress import Plan, Status, Watcher

if TYPE_CHECKING:
    from distributed import Future

    from bigclf.data.dataset import Dataset


class Piece(NamedTuple):
    """Row groups of an input, as they are asked for.

    first, last : chunks first:last; epoch : as in a visit. number : of the input; places : (file, row group) of each.
    path : of the input's predictions; part : of those of the piece, to be put together; "": they are all.
    mark : what the predictions depend on; first_row : number of the first row in its file; work : as in
    ``write_in_parts``; passing : columns that pass through, and how they are called there.
    """

    first: int
    last: int
    epoch: int
    number: int
    places: list[tuple[int, int]]
    path: str
    part: str
    mark: dict[str, object]
    first_row: int
    work: int
    passing: dict[str, str]


class Written(NamedTuple):
    """Rows that were written, bytes that were decoded for them, and entries that the model does not know."""

    rows: int
    n_bytes: int
    unseen: int


class Writing(Protocol):
    """What every piece needs; travels to each worker once. ``planned`` : bytes that a worker needs for it."""

    @property
    def source(self) -> Dataset: ...

    @property
    def n_bytes(self) -> int: ...

    @property
    def planned(self) -> int: ...

    def write(self, piece: Piece) -> Written:
        """Predict a piece."""
        ...


class Predicting(Crew[Written]):
    """Pieces of files of predictions, written by workers.

    Parameters
    ----------
    content : what every piece needs. pieces : in order. directory : that they are written into.
    progress : told of rows and bytes of each piece, or None.
    """

    verb = "predicted"

    def __init__(
        self,
        content: Writing,
        pieces: list[Piece],
        directory: str,
        progress: Watcher | None,
        *,
        link: Link,
        patience: Patience,
    ) -> None:
        self._content, self._pieces, self._progress, self._done = content, pieces, progress, 0
        self.sample, self.writes = files.absolute(content.source.files[0]), files.absolute(directory)
        self.content_bytes = content.n_bytes
        super().__init__(uuid.uuid4().hex, content, content.planned, lambda: None, link=link, patience=patience)

    def written(self) -> Iterator[tuple[Piece, Written]]:
        """Every piece once, in order."""
        with contextlib.closing(self.work([float(piece.work) for piece in self._pieces])) as units:
            for unit in units:
                self._done = unit + 1
                yield self._pieces[unit], self._answers.pop(unit)

    def watched(self, plan: Plan) -> Plan:
        """What is to be read, as a screen takes it, with how the workers are."""
        return {**plan, "status": self.status}

    def status(self) -> Status:
        return {
            "workers": self.workers,
            "parts": len(self._pieces),
            "parts_done": self._done,
            "bytes_moved": self.bytes_moved,
            "events": self._recent,
        }

    def _called(self, unit: int) -> str:
        piece = self._pieces[unit]
        return f"chunks {piece.first} to {piece.last - 1}"

    async def _submit(self, unit: int, attempt: int, member: _Member) -> Future:
        return self._ask(attempt_piece, "predict", unit, attempt, member)

    def _submit_trial(self, unit: int, attempt: int, member: _Member) -> Future:
        return self._ask(on_trial, "trial", unit, attempt, member)

    def _ask(self, what: Callable[..., object], word: str, unit: int, attempt: int, member: _Member) -> Future:
        key = f"bigclf-{word}", f"{self.name[:8]}-{unit}-{attempt}"
        piece = Parcel(self._pieces[unit])
        return submitted(self.link.client, what, piece, member.anchor, key=key, workers=[member.address], pure=False)

    def _convicted(self, unit: int, found: Verdict) -> BaseException:
        deaths = self.patience.deaths
        return shard_error(self._content.source, found["chunk"], found["signal"], deaths, self._called(unit))

    def _accept(self, unit: int, address: str, answer: Written) -> None:
        self._answers[unit] = answer
        if self._progress is not None:
            self._progress.advance(answer.rows, answer.n_bytes)

    def _size_of(self, answer: Written) -> int:
        return 0


def attempt_piece(piece: Parcel, content: Parcel) -> Written | Failure:
    """Predict a ``Piece`` on a worker, whatever comes of it."""
    try:
        found: Written = content.content.write(piece.content)
        return found
    except Exception as error:
        return Failure("failed", error)
