"""Rows of raw files and tables as a model's features, in their order and without labels: to be predicted, not kept."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bigclf.conversion.tables import reading
from bigclf.conversion.tables.from_columns import located, prepare, usable
from bigclf.conversion.tables.reading import Bad, Batch
from bigclf.conversion.text.pieces import Source, Task
from bigclf.errors import DataError, SchemaError
from bigclf.features import values
from bigclf.features.encode import Finisher
from bigclf.features.extract import Extracted, extract, spelt
from bigclf.maths.block import Block, check_rows, writable

if TYPE_CHECKING:
    import pyarrow as pa


class RawRows:
    """Raw files as ``finisher`` makes rows of them, begun at any task.

    Parameters
    ----------
    keep : columns to read although no feature is made of them; None: all such.

    Attributes
    ----------
    sources : the files.
    kept : of each the columns that are read as said by ``keep``.

    Raises
    ------
    DataError, SchemaError : with the place.
    """

    def __init__(
        self, finisher: Finisher, data: object, keep: Sequence[str] | None = (), memory: int = 1_000_000_000
    ) -> None:
        self._finisher = finisher
        try:
            raw = prepare(data, finisher.spec, memory, label=False, keep=keep)
        except values.LackingColumns as error:
            message = f"{error.message}; the model was trained on a table that has these columns"
            raise SchemaError(message, file=error.file, column=error.column) from None
        self.sources, self._reader = raw.sources, raw.reader
        self.kept = self._reader.kept

    def place(self, source: Source) -> reading.Place:
        """The path of a source, and what of it is meant."""
        return self._reader.places[source.number]

    def tasks(self, source: Source, done: int = 0) -> Iterator[Task]:
        """What a source is read by, without the first ``done``."""
        return itertools.islice(reading.tasks_of(self._reader, source, 1), done, None)

    def rows(self, task: Task, lines: int, unseen: str = "ignore") -> Iterator[tuple[Batch, Block, int]]:
        """The rows of a task, which stands behind so many ``lines``, and how many of their categories are not known.

        Raises
        ------
        DataError : with the place of the first row that cannot be used, or, where ``unseen`` is "error", that has a
        category which is not known.
        """
        for _, batch in reading.batches(self._reader, task):
            found, _, bad = usable(self._finisher.spec, batch, 0, None, label=False)
            if batch.bad or bad:
                first = min((*batch.bad[:1], *bad), key=lambda one: one.place.get("line", 0))
                raise located(task.source.path, first, lines)
            unknown = self._finisher.unknown(found)
            if unseen == "error" and (new := first_unknown(self._finisher, batch.columns, unknown)):
                place, text = batch.where(new[0])
                raise located(task.source.path, Bad(place, new[1], text), lines)
            yield batch, block_of(self._finisher, found), unknown[0].size

    def passed_through(self, batch: Batch, called: Mapping[str, str]) -> dict[str, pa.Array]:
        """Columns of a batch under other names, of one type in all batches; the label as predictions are spelt."""
        found = {said: batch.columns[name] for name, said in called.items()}
        label = self._finisher.spec.label
        if label is not None and label.column in called:
            found[called[label.column]] = spelt(label, found[called[label.column]])
        if self._reader.how.format != "jsonl":
            return found
        return {said: values.as_text(column, said) for said, column in found.items()}

    def no_rows(self, source: Source, called: Mapping[str, str]) -> dict[str, pa.Array]:
        """The same without a row."""
        known = reading.no_rows(self._reader, source)
        return {said: known[name] for name, said in called.items()}

    def size(self, source: Source) -> tuple[int, int]:
        """Rows, and bytes of text, of a source; 0 where nobody knows before it is read."""
        return reading.size_of(self._reader, source)


def first_unknown(
    finisher: Finisher, columns: Mapping[str, pa.Array], unknown: tuple[np.ndarray, np.ndarray]
) -> tuple[int, str] | None:
    """The first row that has a category which is not known, and what is to be said of it."""
    if not unknown[0].size:
        return None
    row, term = int(unknown[0][0]), finisher.spec.terms[int(unknown[1][0])]
    said = [columns[name][row].as_py() for name in term.columns]
    missing = len(said) == 1 and (said[0] is None or str(said[0]).strip() in finisher.spec.missing_values)
    what = "a missing value" if missing else repr("&".join(map(str, said)))
    return row, f"column {term.name}: {what} is not a category the model knows (--unseen error)"


def blocks_of(finisher: Finisher, data: object, unseen: str = "ignore") -> Iterator[tuple[str, Block]]:
    """(file, rows) of raw files in their order, without labels; errors as in ``RawRows.rows``."""
    raw = RawRows(finisher, data)
    for source in raw.sources:
        lines = 0
        for task in raw.tasks(source):
            more = 0
            for batch, block, _ in raw.rows(task, lines, unseen):
                more += batch.n_lines
                yield source.path, block
            lines += more


def table_block(finisher: Finisher, data: object, first: int = 0, unseen: str = "ignore") -> Block:
    """The rows of a table in memory; errors as of ``table_rows``."""
    return table_rows(finisher, data, first, unseen)[0]


def table_rows(finisher: Finisher, data: object, first: int = 0, unseen: str = "ignore") -> tuple[Block, int]:
    """The rows of a table in memory, and how many of their categories are not known.

    Raises
    ------
    DataError : naming the first row that cannot be used, or, where ``unseen`` is "error", that has a category which is
    not known. SchemaError : a column that is missing.
    """
    columns, n_rows = values.as_columns(data)
    found = extract(finisher.spec, columns, n_rows, label=False)
    if found.bad:
        row, reason = min(found.bad.items())
        raise DataError(reason, row=first + row)
    unknown = finisher.unknown(found)
    if unseen == "error" and (place := first_unknown(finisher, columns, unknown)):
        raise DataError(place[1], row=first + place[0])
    return block_of(finisher, found), unknown[0].size


def block_of(finisher: Finisher, found: Extracted) -> Block:
    """Finished rows as a checked block; labels NaN."""
    indptr, indices, values = finisher.rows(found)
    m = indptr.size - 1
    norms = np.empty(m)
    fault, row = check_rows(
        writable(indptr), writable(indices), writable(values), np.uint32(finisher.n_features), norms
    )
    if fault:
        raise DataError("a value is NaN or infinite once finished", row=int(row))
    return Block(indptr, indices, values, np.full(m, np.nan), np.ones(m), norms, np.arange(m))
