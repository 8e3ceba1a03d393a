"""How wrong each problem's answer is on rows it has not seen: one read measures all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from bigclf.compiled.jit import dot, kernel
from bigclf.data.arrays import Arrays, listed_names, plain_names, require_same_names
from bigclf.data.dataset import Dataset, no_rows
from bigclf.features.truths import places
from bigclf.maths.block import Block
from bigclf.maths.losses import REGRESSION
from bigclf.methods.sparse_state import count_wrong
from bigclf.metrics.figures import open_dataset, require_known
from bigclf.model.model import Model, is_stored, known_entries, require_same_numbers
from bigclf.training.core_team import Team
from bigclf.training.problems import Fold
from bigclf.training.visit import Scratch

if TYPE_CHECKING:
    from bigclf.data.rows import Rows


log = logging.getLogger("bigclf")
SLICE = 1 << 16  # rows whose decision values are in memory at a time
MEASURES = ("error", "log_loss", "mean_squared_error")


class Candidate(NamedTuple):
    """An answer to be measured: weights of its problems, float64 [feature + 1] each with the bias last; value of the
    constant feature; the loss; the rows it has not seen (None: all of those given). Of one that holds touched places
    only ``touched`` are its state and parameters, and there are no weights."""

    weights: list[np.ndarray]
    bias: float
    loss: str | None
    fold: Fold | None
    touched: tuple[Any, Any] | None = None


class Sums:
    """rows : counted; wrong : of them with another class; log_loss, squares : summed over them."""

    def __init__(self) -> None:
        self.rows = self.wrong = 0
        self.log_loss = self.squares = 0.0

    def mean(self, measure: str) -> float | None:
        """The mean of a measure over the rows; None where there were none."""
        total = {"error": self.wrong, "log_loss": self.log_loss, "mean_squared_error": self.squares}[measure]
        return total / self.rows if self.rows else None


@kernel
def score_members(block, members, weights, bias, scores):  # type: ignore[no-untyped-def]
    """scores[k] = w . x_i + b of row i = members[k]"""
    constant = bias * weights[weights.size - 1]
    for k in range(members.size):
        scores[k] = dot(block, members[k], weights) + constant


def measure_of(losses: Sequence[str | None]) -> str:
    """What candidates are compared by: the mean squared error for regression; the log loss where all model
    probabilities; else the share of rows in the wrong class."""
    if any(loss in REGRESSION for loss in losses):
        return "mean_squared_error"
    return "log_loss" if all(loss == "logistic" for loss in losses) else "error"


def measure_all(
    candidates: Sequence[Candidate],
    blocks: Iterator[tuple[int, Block]],
    classes: np.ndarray,
    team: Team,
    measure: str,
    idle: Callable[[], None] = lambda: None,
) -> list[Sums]:
    """The sums of every candidate over the blocks, (number of the row that ids call 0, block); rows of weight 0 are
    none. Labels are codes of ``classes`` (-1: none of them, always wrong), or numbers for regression."""
    sums = [Sums() for _ in candidates]
    for first_row, block in blocks:

        def add(number: int, _: Scratch, go_on: Callable[[], None], b: Block = block, at: int = first_row) -> None:
            _add(candidates[number], sums[number], b, at, classes, measure)

        team.each(range(len(candidates)), add, idle)
    return sums


def _add(candidate: Candidate, sums: Sums, block: Block, first_row: int, classes: np.ndarray, measure: str) -> None:
    counted = block.weights > 0
    if candidate.fold is not None:
        counted &= candidate.fold.holds(block.ids, first_row)
    rows = np.flatnonzero(counted)
    if candidate.touched is not None:  # of very many classes: their scores would be rows x classes
        sums.rows += rows.size
        sums.wrong += count_wrong(block, rows, *candidate.touched)
        return
    for first in range(0, rows.size, SLICE):
        members = rows[first : first + SLICE]
        scores = np.empty((len(candidate.weights), members.size))
        for k, weights in enumerate(candidate.weights):
            score_members(block, members, weights, candidate.bias, scores[k])
        _count(sums, scores, block.labels[members], candidate.loss, classes, measure)


def _count(
    sums: Sums, scores: np.ndarray, labels: np.ndarray, loss: str | None, classes: np.ndarray, measure: str
) -> None:
    """Add rows with decision values [problem, row]."""
    sums.rows += labels.size
    if measure == "mean_squared_error":
        sums.squares += float(np.sum((scores[0] - labels) ** 2))
        return
    true = labels.astype(np.int64)
    values = scores[0] if scores.shape[0] == 1 else scores.T
    judge = Model(np.zeros((scores.shape[0], 1)), np.zeros(scores.shape[0]), classes, method={"loss": loss})
    sums.wrong += int(np.count_nonzero(judge.codes(values) != true))
    if measure == "log_loss":
        known = np.flatnonzero(true >= 0)
        with np.errstate(divide="ignore"):
            sums.log_loss -= float(np.log(judge.probabilities(values[known])[np.arange(known.size), true[known]]).sum())


def rows_apart(source: Dataset | Arrays, learned: Rows) -> Iterator[tuple[int, Block]]:
    """The rows of another source, with labels as codes of the classes of the rows that were ``learned`` from, and
    without features that these have not."""
    classes, n_features, ids = learned.classes, learned.n_features, learned.feature_ids
    if classes is None or not len(classes):  # numbers
        for block in source.blocks():
            yield 0, known_entries(block, n_features, ids)[0]
        return
    codes = np.array(places(classes.tolist(), source.classes.tolist()), np.float64)
    for whole in source.blocks():
        block, _ = known_entries(whole, n_features, ids)
        yield 0, block._replace(labels=codes[block.labels.astype(np.int64)])


def measurable(data: object, learned: Rows, real_labels: bool) -> Dataset | Arrays:
    """The rows of ``rows_to_measure``, with a warning of bad ones that were left out of them.

    Raises
    ------
    DataError : there are none, or none is of a class of those that are ``learned`` from. SchemaError : they have other
        features.
    """
    columns = getattr(learned, "named_columns", None)  # by their names, in whatever order the others have them
    found = rows_to_measure(data, real_labels, columns)
    if isinstance(found, Dataset):
        if why := found.report.get("left_out"):
            log.warning("of the rows to validate on, %s", why)
        require_same_numbers(learned.features, (columns or {}).get("features"), found)
    else:
        mine = plain_names(learned.features, (columns or {}).get("features"))
        its = listed_names(found.features)
        if mine and its:
            is_arrow = hasattr(cast("tuple[object, object]", data)[0], "column_names")
            require_same_names(mine, its, f"X.select({mine})" if is_arrow else f"X[{mine}]")
    _require_known_rows(found, learned)
    return found


def _require_known_rows(source: Dataset | Arrays, learned: Rows) -> None:
    file = column = None
    if isinstance(source, Dataset):
        file, column = source.called or source.files[0], source.label_called
        if source.n_rows == 0:
            raise no_rows(source, "there are no rows to validate on")
    if learned.classes is not None and source.classes is not None:
        require_known(learned.classes, source.classes, source.class_counts, file, column)


def rows_to_measure(
    data: object, real_labels: bool = False, columns: Mapping[str, object] | None = None
) -> Dataset | Arrays:
    """Rows to measure on: shards, whose ``columns`` are called as those of the rows to learn from, or (X, y)."""
    if isinstance(data, Arrays):
        return data.with_real_labels() if real_labels else data
    if isinstance(data, tuple) and len(data) == 2 and not is_stored(data):
        return Arrays(*data, real_labels=real_labels)
    if not is_stored(data):
        raise TypeError("validate must be shards (path, glob, Dataset) or (X, y)")
    dataset = open_dataset(data, columns=columns)
    return dataset.with_real_labels() if real_labels else dataset
