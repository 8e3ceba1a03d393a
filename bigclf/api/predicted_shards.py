"""Shards as predictions: what is said of each row, the files that there are, and their rows group by group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf import files
from bigclf.data.label_sets import as_csv, lists
from bigclf.data.predictions import (
    ArrowColumns,
    Column,
    Columns,
    Totals,
    end_to_end,
    no_rows,
    other_columns,
    passed_in_parts,
)
from bigclf.errors import DataError, RunError
from bigclf.maths.block import Block
from bigclf.metrics.figures import decoded, open_dataset, row_groups
from bigclf.model.model import Model, require_same_columns, unseen_text

if TYPE_CHECKING:
    import pyarrow as pa

    from bigclf.data.dataset import Dataset, Stored


MOST_SCORE_COLUMNS = 1000


class Asked(NamedTuple):
    """What is said of each row, and by which model."""

    model: Model
    scores: bool
    proba: bool
    unseen: str
    memory: int
    top: int = 0
    joined: bool = False  # several labels a row are one text

    def check(self) -> None:
        model = self.model
        if self.unseen not in ("ignore", "error"):
            raise ValueError(f"unseen must be 'ignore' or 'error', not {self.unseen!r}")
        if self.proba and (reason := model.no_probabilities()):
            raise RunError(reason)
        if (self.scores or self.proba) and not model.regression and model.classes_.size > MOST_SCORE_COLUMNS:
            many = f"{model.classes_.size:,} classes are too many for a column each"
            raise RunError(f"{many}; write predictions only, or the greatest scores (top, --top)")
        if self.top and (model.regression or model.intercept_.size < 2):
            raise RunError("top (--top) is for models of more than two classes, or of several labels a row")
        if not 0 <= self.top <= MOST_SCORE_COLUMNS or (self.top and self.top > model.classes_.size):
            most = min(MOST_SCORE_COLUMNS, 0 if model.regression else model.classes_.size)
            raise ValueError(f"top must be from 1 to {most:,}, not {self.top}")

    def of_block(self, block: Block) -> tuple[dict[str, Column], int]:
        """The columns for the rows of a block, and how many entries the model does not know."""
        if (self.model.multilabel or self.top) and block.n_rows:
            pieces = [(self.columns(scores), skipped) for _, scores, skipped in self.model.pieces(block)]
            names = pieces[0][0]
            return {name: end_to_end([part[name] for part, _ in pieces]) for name in names}, sum(n for _, n in pieces)
        by_codes = self.model.many and not (self.scores or self.proba)
        values, skipped = (self.model.codes_of_block if by_codes else self.model.score_block)(block)
        return self.columns(values), skipped

    def nothing(self) -> dict[str, Column]:
        """The same columns without a row."""
        return self.columns(np.empty((0, self.model.intercept_.size)))

    def columns(self, values: np.ndarray) -> dict[str, Column]:
        """``prediction`` and, as asked, a column or a column a class of decision values and probabilities."""
        model = self.model
        if values.dtype.kind == "i":
            return {"prediction": model.classes_[values]}
        values = model.flat(values)
        columns: dict[str, Column] = {"prediction": self._said(values)}
        if self.top:
            columns.update(_greatest(values, model, self.top))
        if self.scores:
            columns.update(_per_class("score", values, model))
        if self.proba:
            shares = model.probabilities(values)
            columns.update(_per_class("probability", shares[:, 1] if model.binary else shares, model))
        return columns

    def _said(self, values: np.ndarray) -> Column:
        if not self.model.multilabel:
            return self.model.said(values)
        rows, members = np.nonzero(values >= 0)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(values)))])
        return self.of_sets(lists(self.model.classes_, indptr, members))

    def of_sets(self, sets: pa.Array) -> pa.Array:
        """A column of lists of labels as it is written."""
        return as_csv(sets) if self.joined else sets

    def as_json(self) -> dict[str, object]:
        """What a file of predictions depends on beside the input."""
        several = {"joined": self.joined} if self.model.multilabel else {}
        return {"kind": "predictions", "version": 3, "model": self.model.digest(), "scores": self.scores,
                "proba": self.proba, **({"top": self.top} if self.top else {}), **several}  # fmt: skip


def _per_class(name: str, values: np.ndarray, model: Model) -> dict[str, np.ndarray]:
    if values.ndim == 1:
        return {name: values}
    return {f"{name}_{label}": values[:, k] for k, label in enumerate(model.classes_.tolist())}


def _greatest(values: np.ndarray, model: Model, top: int) -> dict[str, np.ndarray]:
    """The classes of the greatest decision values [m, K] of each row; of equal values the smallest class first."""
    best = np.argsort(-values, axis=1, kind="stable")[:, :top]
    found = {}
    for k in range(top):
        found[f"top_{k + 1}"] = model.classes_[best[:, k]]
        found[f"top_{k + 1}_score"] = np.take_along_axis(values, best[:, k : k + 1], axis=1)[:, 0]
    return found


class Shard(NamedTuple):
    """A file of a dataset: its number there, (file, row group) of all its row groups, and columns that pass through."""

    dataset: Dataset
    number: int
    places: list[tuple[int, int]]
    passing: Mapping[str, str]

    @property
    def edges(self) -> np.ndarray:
        """int64 [row group + 1], the first chunk of each, and one past the last."""
        chunks = self.dataset.chunks
        first, last = np.searchsorted(chunks.file, [self.number, self.number + 1])
        return np.append(first + np.flatnonzero(np.diff(chunks.row_group[first:last], prepend=-1)), last)


class Input(NamedTuple):
    """A file that predictions are made for.

    Attributes
    ----------
    mark : what its predictions depend on.
    work : about what they take, in the units of ``write_in_parts``.
    n_rows, n_bytes : of the file, 0 where that is not known beforehand.
    passing : gives the columns that pass through, without a row.
    rows_from : the row groups of the predictions from where totals stand.
    settle : what columns become by the totals of all rows, as ``write_in_parts`` takes it.
    shard : which file of a dataset it is, or None.
    """

    path: str
    mark: dict[str, object]
    work: int
    n_rows: int
    n_bytes: int
    passing: Callable[[], ArrowColumns]
    rows_from: Callable[[Totals], Iterator[Columns | None]]
    settle: Callable[[ArrowColumns, Totals], Columns] | None = None
    shard: Shard | None = None


def as_called(names: Sequence[str], own: Sequence[str], path: str) -> dict[str, str]:
    """How columns that pass through are called in the output, beside ``own``."""
    called = {name: f"input_{name}" if name in own else name for name in names}
    if len(set(called.values()) - set(own)) < len(called):
        raise DataError(
            "two columns would have the same name in the output; name those to copy: --keep NAME,... (keep=[...])",
            file=path,
        )
    return called


def shard_inputs(asked: Asked, data: Stored, keep: Sequence[str] | None) -> list[Input]:
    """The files of a dataset."""
    dataset = open_dataset(data, need_labels=False, columns=asked.model.columns)
    require_same_columns(asked.model, dataset)
    places = list(row_groups(dataset))
    return [_shard(asked, dataset, number, [place for place in places if place[0] == number], keep)
            for number in range(len(dataset.files))]  # fmt: skip


def _shard(
    asked: Asked, dataset: Dataset, number: int, places: list[tuple[int, int]], keep: Sequence[str] | None
) -> Input:
    path, fingerprint = dataset.files[number], dataset.fingerprints[number]
    passing = _passing(asked, dataset, path, keep)
    told = {"name": files.base_name(path), "size": fingerprint.size, "footer": fingerprint.footer}
    mark = {**asked.as_json(), "input": told, "passing": sorted(passing)}
    mine = dataset.chunks.file == number
    rows, nnz = int(dataset.chunks.rows[mine].sum()), int(dataset.chunks.nnz[mine].sum())

    def rows_from(totals: Totals) -> Iterator[Columns | None]:
        return predicted_rows(asked, dataset, places, passing, totals)

    shard = Shard(dataset, number, places, passing)
    work = counted_work(asked, rows, nnz)
    return Input(path, mark, work, rows, 0, lambda: no_rows(path, passing), rows_from, shard=shard)


def counted_work(asked: Asked, rows: int, nnz: int) -> int:
    """In the units of ``write_in_parts``."""
    return (rows + nnz) * int(asked.model.intercept_.size)


def _passing(asked: Asked, dataset: Dataset, path: str, keep: Sequence[str] | None) -> dict[str, str]:
    """Columns of an input file that pass through, and how they are called in the output."""
    others = other_columns(path, dataset.layout)
    if keep is not None and (missing := [name for name in keep if name not in others]):
        has = ", ".join(others) if others else "none besides its rows"
        raise DataError(f"there is no column {missing[0]!r} to keep; the file has {has}", file=path)
    chosen = [name for name in others if keep is None or name in keep]
    return as_called(chosen, ["row", "label", *asked.nothing()], path)


def predicted_rows(
    asked: Asked, dataset: Dataset, places: list[tuple[int, int]], passing: Mapping[str, str], totals: Totals
) -> Iterator[Columns | None]:
    """Predictions for the row groups ``places`` behind those that were done."""
    if asked.unseen == "error" and totals.get("unseen"):  # in parts of a call that was to ignore them
        raise DataError(unseen_text(totals["unseen"], asked.model.n_features), file=dataset.files[places[0][0]])
    left = places[totals.get("groups", 0) :]
    beside = _passing_by(dataset, left, passing)
    for chunk, block in decoded(dataset, left):
        file, row_group = int(dataset.chunks.file[chunk]), int(dataset.chunks.row_group[chunk])
        said, skipped = asked.of_block(block)
        if skipped and asked.unseen == "error":
            raise DataError(unseen_text(skipped, asked.model.n_features), file=dataset.files[file], row_group=row_group)
        columns = {"row": np.arange(totals["rows"], totals["rows"] + block.n_rows)}
        columns |= next(beside)
        columns |= _label_column(asked, dataset, block) | said
        ends = bool(dataset.last_of_group[chunk])
        count_on(totals, rows=block.n_rows, groups=int(ends), unseen=skipped, bytes=block.n_bytes,
               work=counted_work(asked, block.n_rows, block.nnz))  # fmt: skip
        yield columns
        if ends:  # here it can be begun again
            yield None
    if not places:
        yield {"row": np.arange(0), **asked.nothing()}


def _passing_by(dataset: Dataset, places: list[tuple[int, int]], passing: Mapping[str, str]) -> Iterator[Columns]:
    """The columns that pass through, of one chunk of the row groups after the other."""
    for file, row_group in places:
        yield from passed_in_parts(dataset.files[file], row_group, passing, dataset.rows_of_chunks(file, row_group))


def _label_column(asked: Asked, dataset: Dataset, block: Block) -> dict[str, Column]:
    if dataset.real_labels:
        return {"label": block.labels}
    if dataset.classes.size == 0 or (block.n_rows and np.isnan(block.labels[0])):
        return {}
    codes = block.labels.astype(np.int64)
    if dataset.sets is not None:
        return {"label": asked.of_sets(dataset.sets.as_lists(codes))}
    return {"label": dataset.classes[codes]}


def count_on(totals: Totals, **more: int) -> None:
    for name, value in more.items():
        totals[name] = totals.get(name, 0) + value
