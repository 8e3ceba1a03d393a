"""``predict`` by the workers of a cluster: the same files to the byte.

A short file is one piece, which a worker writes whole. A long one is cut where row groups begin; workers write its
pieces beside it, where parts of an interrupted call lie, and the driver puts them together.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf import files
from bigclf.api.evaluate import bare
from bigclf.api.predicted_shards import Asked, Input, Shard, counted_work, predicted_rows
from bigclf.cluster.predicting import Piece, Predicting, Written
from bigclf.data.predictions import (
    PART_WORK,
    UNSEEN,
    Columns,
    PredictionWriter,
    Totals,
    parts_directory,
    parts_of,
    put_together,
    read_mark,
    write_in_parts,
)
from bigclf.metrics.figures import scoring_bytes

if TYPE_CHECKING:
    from bigclf.cluster.book import Patience
    from bigclf.cluster.link import Link
    from bigclf.data.dataset import Dataset
    from bigclf.progress import Plan, Watcher

PIECES_A_WORKER = 4  # at least, where there are so many row groups: pieces of a file are put together at the end
WHOLE = 1.5  # times what a piece is to take: a file that takes less is not cut


class Content(NamedTuple):
    """What every piece needs."""

    asked: Asked
    source: Any

    @property
    def n_bytes(self) -> int:
        """Of the model, mostly."""
        return int(self.asked.model.n_bytes)

    @property
    def planned(self) -> int:
        """Bytes that a worker takes."""
        return scoring_bytes(self.asked.model, self.source)

    def write(self, piece: Piece) -> Written:
        """Predict a piece, unless an earlier call did."""

        def rows_from(totals: Totals) -> Iterator[Columns | None]:
            return predicted_rows(self.asked, self.source, piece.places, piece.passing, totals)

        if not piece.part:
            totals = write_in_parts(piece.path, piece.mark, piece.work, rows_from)
            return Written(totals["rows"], totals.get("bytes", 0), totals.get(UNSEEN, 0))
        found = read_mark(piece.part)
        if found is None or found["of"] != piece.mark:
            totals = {"rows": piece.first_row, "work": 0}
            files.make_directory(files.parent_directory(piece.part))
            with PredictionWriter(piece.part, {"of": piece.mark, "totals": totals}) as part:
                for columns in rows_from(totals):
                    if columns is not None:
                        part.write(columns)
        else:
            totals = dict(found["totals"])
        return Written(totals["rows"] - piece.first_row, totals.get("bytes", 0), totals.get(UNSEEN, 0))

    def try_part(self, first: int, last: int) -> None:
        """Predict chunk by chunk, saying which: in a child process that may die of it."""
        for chunk in range(first, last):
            print(chunk, flush=True)
            place = int(self.source.chunks.file[chunk]), int(self.source.chunks.row_group[chunk])
            for _ in predicted_rows(self.asked, self.source, [place], {}, {"rows": 0, "work": 0}):
                pass


def write_there(
    asked: Asked,
    todo: Sequence[tuple[str, Input]],
    link: Link,
    patience: Patience,
    progress: Watcher | None,
    plan: Plan,
) -> None:
    """Write the predictions of each input at its path; errors as of ``predict``."""
    shards = [one.shard for _, one in todo if one.shard is not None]
    if not shards:
        return
    source = shards[0].dataset
    pieces = cut(asked, todo, PIECES_A_WORKER * link.count(patience.idle))
    content = Content(asked._replace(model=bare(asked.model)), source.seen_from_elsewhere())
    directory = files.parent_directory(todo[0][0])
    crew = Predicting(content, pieces, directory, progress, link=link, patience=patience)
    if progress is not None:
        progress.start(crew.watched(plan))
    waiting: dict[str, list[tuple[Piece, Written]]] = {}
    with contextlib.closing(crew):
        for piece, written in crew.written():
            if piece.part:
                mine = waiting.setdefault(piece.path, [])
                mine.append((piece, written))
                if piece.last == _end(source, piece.number):
                    _join(waiting.pop(piece.path))


def cut(asked: Asked, todo: Sequence[tuple[str, Input]], parts: int) -> list[Piece]:
    """What is left to do, in at least so many pieces as far as there are row groups."""
    left = [(path, one, one.shard, _works(asked, one.shard)) for path, one in todo if one.shard is not None]
    goal = min(PART_WORK, sum(sum(works) for *_, works in left) / max(1, parts))
    pieces = []
    for path, one, shard, works in left:
        marks = [0, len(works)]
        if sum(works) > WHOLE * goal and len(works) > 1:
            marks = _marks(works, parts_of(path, one.mark)[1].get("groups", 0), goal)
        pieces += [_piece(path, one, shard, a, b, sum(works[a:b])) for a, b in itertools.pairwise(marks)]
    return pieces


def _works(asked: Asked, shard: Shard) -> list[int]:
    """Of each row group."""
    edges, chunks = shard.edges.tolist(), shard.dataset.chunks
    return [
        counted_work(asked, int(chunks.rows[a:b].sum()), int(chunks.nnz[a:b].sum()))
        for a, b in itertools.pairwise(edges)
    ]


def _marks(works: Sequence[int], first: int, goal: float) -> list[int]:
    """Where pieces of about ``goal`` begin, from the row group ``first`` on, and one past the last."""
    marks, spent = [first], 0
    for number in range(first, len(works)):
        spent += works[number]
        if spent >= goal or number == len(works) - 1:
            marks.append(number + 1)
            spent = 0
    return marks


def _piece(path: str, one: Input, shard: Shard, first: int, last: int, work: int) -> Piece:
    """The row groups first:last of an input; all of them are no part of it."""
    edges, places = shard.edges, shard.places
    whole = (first, last) == (0, len(places))
    part = "" if whole else files.join(parts_directory(path), f"{first:06d}-{last:06d}.parquet")
    before = int(shard.dataset.chunks.rows[edges[0] : edges[first]].sum())
    return Piece(
        int(edges[first]), int(edges[last]), 0, shard.number, places[first:last], path, part, one.mark, before, work,
        dict(shard.passing),
    )  # fmt: skip


def _end(source: Dataset, number: int) -> int:
    """One past the last chunk of a file."""
    return int(np.searchsorted(source.chunks.file, number + 1))


def _join(pieces: list[tuple[Piece, Written]]) -> None:
    """The file of all pieces of an input, behind the parts of an earlier call."""
    first = pieces[0][0]
    parts, totals = parts_of(first.path, first.mark)
    unseen = totals.get(UNSEEN, 0) + sum(written.unseen for _, written in pieces)
    put_together(first.path, {**first.mark, UNSEEN: unseen}, [*parts, *(piece.part for piece, _ in pieces)])
