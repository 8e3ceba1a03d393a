"""``calibrate``: probabilities for a model of any loss, from one read of rows that it has not seen."""

from __future__ import annotations

import abc
import copy
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from bigclf.api.evaluate import is_elsewhere, on_disk
from bigclf.data.arrays import label_array, weight_array
from bigclf.data.bad_rows import MOST_BAD
from bigclf.errors import DataError, MemoryBudgetError
from bigclf.features.values import is_table
from bigclf.metrics.figures import (
    class_positions,
    decoded,
    labelled_dataset,
    require_labels,
    row_groups,
    rows_trained_on,
    score_bins,
    scoring_bytes,
    share_trained_on,
)
from bigclf.model.calibration import METHODS, Calibration, Tally, learned
from bigclf.model.model import MANY_CLASSES, Model, as_model, is_stored
from bigclf.model.raw_input import BadRows, as_shards, label_apart, labels_of_table, left_out
from bigclf.progress import Watcher, watcher
from bigclf.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from bigclf.data.dataset import Stored
    from bigclf.files import PathLike


log = logging.getLogger("bigclf")
PLACE_BYTES = 6 * 24  # of a decision value that is kept, three numbers, and again while they are sorted
LEAST_PLACES = 1 << 12


class Tallying:
    """The tally of one problem, made of rows as they come by.

    Where there are more than ``most`` different decision values, those that agree in sign, exponent and 11 bits become
    one, their mean by weight.
    """

    def __init__(self, most: int) -> None:
        self.most, self.held, self.pieces = most, 0, [np.empty((3, 0))]

    def add(self, scores: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> None:
        """Rows with decision values [m]; ``positive`` bool [m]; weights above 0 [m]."""
        self.pieces.append(np.stack([scores, weights * positive, weights * ~positive]))
        self.held += scores.size
        if self.held > self.most:
            self._gather()

    def _gather(self) -> None:
        rows = self._together(lambda scores: scores)
        if rows.shape[1] > self.most // 2:
            rows = self._together(score_bins)
        if rows.shape[1] > self.most // 2:
            raise MemoryBudgetError(f"{rows.shape[1]:,} decision values are too many for memory=; give twice as much")
        self.pieces, self.held = [rows], rows.shape[1]

    def _together(self, key: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """[3, different keys], ascending: decision value (mean by weight) and weights of positive and negative rows."""
        rows = np.hstack(self.pieces)
        _, first, place = np.unique(key(rows[0]), return_index=True, return_inverse=True)
        positive, negative = (np.bincount(place, weights=row, minlength=first.size) for row in rows[1:])
        apart = (rows[0] - rows[0][first][place]) * (rows[1] + rows[2])
        middle = np.bincount(place, weights=apart, minlength=first.size) / (positive + negative)
        return np.stack([rows[0][first] + middle, positive, negative])

    def result(self) -> Tally:
        """What all rows came to."""
        return Tally(*self._together(lambda scores: scores))


def calibrate(
    model: Model | PathLike,
    data: object,
    y: object = None,
    *,
    method: str = "platt",
    sample_weight: object = None,
    memory: int | str = "1GB",
    on_bad_rows: str = "error",
    max_bad_fraction: float = MOST_BAD,
    progress: Watcher | None = None,
) -> Model:
    """The same model with ``predict_proba`` learned from held-out rows, which are read once.

    Parameters
    ----------
    model : or the path of one; of classes, at most 1,000 of them; trained with any loss, or calibrated before.
    data : rows that it was not trained on: shards (path, directory, glob, list of them, Dataset), or an array [n, d]
        with labels ``y`` [n] and, if given, row weights ``sample_weight`` [n]; shards bring theirs. Of a model of raw
        columns also raw files, or a table. Of tables and of rows that others hold (Dask DataFrames, streams), ``y`` may
        be the name of the label's column.
    method : "platt" (a sigmoid of the decision value: two numbers a class, for few rows too) or "isotonic" (any
        non-decreasing function: for a thousand rows or more).
    memory : memory budget; if not every decision value fits in it, neighbouring ones are merged.
    on_bad_rows : what to do with rows of raw files that cannot be used: "error" stops at the first, "skip" leaves them
        out (the ``facts`` of the calibration count them); max_bad_fraction : fail if more than this share is skipped.
    progress : an object with ``start, advance, stop`` such as ``TerminalProgress``, or None.

    Returns
    -------
    Model : with the same weights and decisions (``predict`` goes by decision values as before) and a ``calibration``.
        Of more than two classes each is calibrated against the rest, and the probabilities are made to sum to 1.

    Raises
    ------
    ValueError, TypeError : a model or a method for which it makes no sense.
    DataError : rows that cannot be used, or of one class only.
    MemoryBudgetError : the budget is too small.
    """
    model = as_model(model)
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, not {method!r}")
    if model.regression:
        raise ValueError("a model that predicts numbers has no classes, so it cannot be calibrated")
    if model.multilabel:
        raise ValueError("calibrate does not take models of several labels a row yet")
    if model.classes_.size > MANY_CLASSES:
        raise ValueError(f"{model.classes_.size:,} classes are too many to calibrate; the limit is {MANY_CLASSES:,}")
    if is_elsewhere(data):
        with on_disk(model, data, y) as written:
            return calibrate(
                model, written, method=method, sample_weight=sample_weight, memory=memory, on_bad_rows=on_bad_rows,
                max_bad_fraction=max_bad_fraction, progress=progress,
            )  # fmt: skip
    if isinstance(y, str) and is_table(data):
        data, y = label_apart(model, data, y)
    found = copy.copy(model)
    found.facts = dict(model.facts)
    if held := found.facts.get("held_out_figures"):  # of the probabilities before
        found.facts["held_out_figures"] = {**held, "log_loss": None, "calibration_error": None, "reliability": None}
    given = y, sample_weight, parse_bytes(memory), watcher(progress)
    bad = BadRows(on_bad_rows, max_bad_fraction)
    bad.check(model, data)
    if is_stored(data):
        with as_shards(model, data, memory, bad) as there:
            rows = _Shards(model, there, *given)
            if share := share_trained_on(model, rows.source):
                told = rows_trained_on(share)
                log.warning("%s, so its probabilities will be optimistic; calibrate on rows it has not seen", told)
            found.calibration = rows.concluded(method)
            n_bad, why = left_out(data, there)
        if n_bad:
            log.warning("%s", why)
            found.calibration.facts["bad_rows"] = n_bad
    else:
        found.calibration = _Array(model, data, *given).concluded(method)
    return found


class _Rows(abc.ABC):
    """Rows to calibrate on, and what has been counted of them."""

    def __init__(self, model: Model, memory: int) -> None:
        self.model = model
        most = memory // (PLACE_BYTES * model.intercept_.size)
        if most < LEAST_PLACES:
            need = format_bytes(LEAST_PLACES * PLACE_BYTES * model.intercept_.size)
            raise MemoryBudgetError(f"counting decision values needs {need} beside scoring; give more memory")
        self.tallies = [Tallying(most) for _ in range(model.intercept_.size)]
        self.rows = self.unknown = 0
        self.weighted = False
        self.weights = np.zeros(model.classes_.size)  # by class

    def add(self, scores: np.ndarray, true: np.ndarray, weights: np.ndarray) -> None:
        """Decision values [m, K], positions of the labels [m] (-1: unknown), weights [m]."""
        known = (true >= 0) & (weights > 0)
        self.unknown += int(np.count_nonzero(true < 0))
        self.rows += int(np.count_nonzero(known))
        scores, true, weights = scores[known], true[known], weights[known]
        self.weights += np.bincount(true, weights, self.weights.size)
        for k, tally in enumerate(self.tallies):
            tally.add(scores[:, k], true == (1 if self.model.binary else k), weights)

    @abc.abstractmethod
    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Decision values, positions of the labels and weights, as ``add`` takes them."""

    def concluded(self, method: str) -> Calibration:
        """What all rows come to."""
        for scores, true, weights in self:
            self.add(scores, true, weights)
        lacking = self.model.classes_[self.weights == 0].tolist()
        if lacking and (self.model.binary or len(lacking) == self.weights.size):
            raise DataError(f"calibration needs rows of both classes; none has the label {lacking[0]!r}")
        if lacking:
            names = ", ".join(map(repr, lacking[:5])) + ", ..." * (len(lacking) > 5)
            log.warning("no row to calibrate on has the label %s: probabilities of such are tiny everywhere", names)
        if self.unknown:
            log.warning("%s rows have labels that the model does not know; they were left out", f"{self.unknown:,}")
        facts = {"rows": self.rows, "unknown": self.unknown, "weighted": self.weighted}
        return learned(method, [tally.result() for tally in self.tallies], facts)


class _Shards(_Rows):
    def __init__(
        self, model: Model, data: Stored, y: object, sample_weight: object, memory: int, progress: Watcher | None
    ) -> None:
        for name, value in (("y", y), ("sample_weight", sample_weight)):
            if value is not None:
                raise TypeError(f"shards have their own labels and weights: {name} has no effect")
        self.source, self.progress = labelled_dataset(model, data), progress
        require_labels(model, self.source)
        super().__init__(model, memory - scoring_bytes(model, self.source))
        self.weighted = bool(self.source.weighted)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        positions = class_positions(self.model, self.source.classes)
        if self.progress is not None:
            self.progress.start({"n_rows": self.source.n_rows, "task": "rows"})
        for _, block in decoded(self.source, list(row_groups(self.source))):
            scores, _ = self.model.score_block(block)
            yield scores, positions[block.labels.astype(np.int64)], block.weights
            if self.progress is not None:
                self.progress.advance(block.n_rows, block.n_bytes)


class _Array(_Rows):
    def __init__(
        self, model: Model, X: object, y: object, sample_weight: object, memory: int, progress: Watcher | None
    ) -> None:
        if y is None and model.is_raw(X):
            y = labels_of_table(model, X)
        if y is None:
            raise TypeError("an array needs its labels: calibrate(model, X, y)")
        super().__init__(model, memory)
        classes, codes = np.unique(label_array(y), return_inverse=True)
        scores = model.decision_function(X).reshape(-1, model.intercept_.size)
        if scores.shape[0] != codes.size:
            raise ValueError(f"X has {scores.shape[0]} rows and y has {codes.size}")
        weights = np.ones(codes.size) if sample_weight is None else weight_array(sample_weight, codes.size)
        self.weighted = sample_weight is not None
        self.all = scores, class_positions(model, classes)[codes], weights

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        yield self.all
