"""How good a model is on data it has not seen, and what it says of data without labels."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from bigclf.block import Block
from bigclf.data import files
from bigclf.data.arrays import label_array
from bigclf.errors import DataError, MemoryBudgetError, RunError
from bigclf.model import Model, is_stored, unseen_text
from bigclf.units import format_bytes, parse_bytes

BYTES_PER_ROW = 12  # what the exact AUC may take
BINS = 2**20
MOST_CLASSES_CONFUSED = 1000  # a confusion of more classes is a table nobody reads and no memory holds
MOST_SCORE_COLUMNS = 1000


@dataclass
class Evaluation:
    """Figures of a model on labelled rows; also read like a dict.

    Attributes
    ----------
    n, correct, accuracy : rows, and how many (which share) got their own label.
    classes : labels of the model, in order; ``f1`` and ``confusion`` follow it.
    f1 : for each class ``label, rows, precision, recall, f1``; macro_f1 their plain mean.
    confusion : counts [true][predicted], or None above 1000 classes; rows with unknown labels are not in it.
    auc, auc_bound : two classes: area under the ROC curve, ties counted half; the bound is 0 when it is exact.
    log_loss : mean of -log(probability of the label), or None.
    missing : why a figure is None.
    unknown : labels that the model does not know and how many rows have them; all these rows count as wrong.
    unseen : entries whose feature the model does not know; they count as zero.
    seconds : what it took.   notes : what a reader of the figures should know.
    """

    n: int
    correct: int
    accuracy: float
    classes: list[Any]
    f1: list[dict[str, Any]]
    macro_f1: float
    confusion: list[list[int]] | None
    auc: float | None
    auc_bound: float
    log_loss: float | None
    missing: dict[str, str] = field(default_factory=dict)
    unknown: dict[Any, int] = field(default_factory=dict)
    unseen: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def keys(self) -> list[str]:
        return list(self.__dataclass_fields__)


def evaluate(model: Model, data: Any, y: Any = None, *, memory: str | int = "1GB", progress: Any = None) -> Evaluation:
    """Measure ``model`` on labelled rows.

    Parameters
    ----------
    data : shards (path, directory, glob, list of them, Dataset), or an array [n, d] with ``y`` [n].
    memory : bound of what is allocated; when 12 bytes a row do not fit it, the AUC comes from 2^20 bins with its bound.
    progress : an object with ``start, advance, stop`` such as ``TerminalProgress``, or None.

    Raises
    ------
    DataError : data that cannot be read, or has no rows.
    MemoryBudgetError : model and largest row group do not fit; the message says what would do.
    """
    started = time.perf_counter()
    if is_stored(data):
        if y is not None:
            raise TypeError("shards have their own labels: y has no effect")
        tally = _tally_shards(model, data, parse_bytes(memory), progress)
    else:
        if y is None:
            raise TypeError("an array needs its labels: evaluate(model, X, y)")
        tally = _tally_array(model, data, y)
    return tally.result(time.perf_counter() - started)


def _tally_shards(model: Model, data: Any, memory: int, progress: Any) -> Tally:
    dataset = open_dataset(data)
    if dataset.n_rows == 0:
        raise DataError("there are no rows to measure the model on", file=dataset.files[0])
    fixed = _check_budget(model, dataset, memory)
    exact = fixed + BYTES_PER_ROW * dataset.n_rows <= memory
    tally = Tally(model, dataset.classes, dataset.class_counts, exact)
    if progress is not None:
        progress.start({"n_rows": dataset.n_rows, "task": "rows"})
    for _, _, block in decoded(dataset):
        scores, unseen = model.score_block(block)
        tally.add(scores, block.labels.astype(np.int64), unseen)
        if progress is not None:
            progress.advance(block.n_rows, block.n_bytes)
    if dataset.weighted:
        tally.notes.append("the data has row weights; evaluation counts every row once")
    return tally


def _tally_array(model: Model, X: Any, y: Any) -> Tally:
    classes, codes, counts = np.unique(label_array(y), return_inverse=True, return_counts=True)
    if codes.size == 0:
        raise DataError("there are no rows to measure the model on")
    scores = model.decision_function(X)
    if len(scores) != codes.size:
        raise ValueError(f"X has {len(scores)} rows and y has {codes.size}")
    tally = Tally(model, classes, counts, exact=True)
    tally.add(scores.reshape(codes.size, -1), codes, 0)
    return tally


def _check_budget(model: Model, dataset: Any, memory: int) -> int:
    """Bytes that scoring holds at once; MemoryBudgetError when ``memory`` is less."""
    rows, nnz = dataset.max_group_rows, dataset.max_group_nnz
    decoded_twice = 2 * (nnz * (dataset.index_width + 4) + rows * 40)  # this row group and the one read ahead
    need = model.coef_.nbytes + decoded_twice + rows * 8 * (2 * model.intercept_.size + 4)
    if need > memory:
        raise MemoryBudgetError(
            f"scoring needs {format_bytes(need)} (model {format_bytes(model.coef_.nbytes)}, row groups of "
            f"{nnz:,} entries) and memory is {format_bytes(memory)}; give memory={format_bytes(1.05 * need)!r} or more"
        )
    return need


class Tally:
    """Counts over blocks of rows, from which all figures follow.

    Parameters
    ----------
    labels : the labels that occur, ascending [L]; counts : int64 [L], rows of each.
    exact : keep every decision value of two classes (8 bytes a row) instead of 2^20 bins.
    """

    def __init__(self, model: Model, labels: np.ndarray, counts: np.ndarray, exact: bool) -> None:
        self.model, self.labels, self.counts = model, labels, counts
        known = {label: k for k, label in enumerate(model.classes_.tolist())}
        self.codes = np.array([known.get(label, -1) for label in labels.tolist()], np.int64)
        k = model.classes_.size
        self.right, self.truly = np.zeros(k, np.int64), np.zeros(k, np.int64)
        self.predicted = np.zeros(k, np.int64)
        self.confusion = np.zeros((k, k), np.int64) if k <= MOST_CLASSES_CONFUSED else None
        self.n = self.unseen = 0
        self.log_loss = 0.0
        self.notes: list[str] = []
        rows = [int(counts[self.codes == code].sum()) for code in (0, 1)]
        self.ranking = (Ranking(*rows) if exact else BinnedRanking()) if model.binary else None

    def add(self, scores: np.ndarray, labels: np.ndarray, unseen: int) -> None:
        """Count rows with decision values [m, K] and ``labels``, int [m], positions in ``self.labels``."""
        true = self.codes[labels]
        if self.model.binary:
            scores = scores[:, 0]
        said = self.model.codes(scores)
        known = true >= 0
        self.n, self.unseen = self.n + true.size, self.unseen + unseen
        self.predicted += np.bincount(said, minlength=self.predicted.size)
        self.truly += np.bincount(true[known], minlength=self.truly.size)
        self.right += np.bincount(true[true == said], minlength=self.right.size)
        if self.confusion is not None:
            k = self.confusion.shape[0]
            self.confusion += np.bincount(true[known] * k + said[known], minlength=k * k).reshape(k, k)
        if self.ranking is not None:
            self.ranking.add(scores[known], true[known] == 1)
        if self.model.no_probabilities() is None:
            chosen = self.model.probabilities(scores[known])[np.arange(int(known.sum())), true[known]]
            self.log_loss -= float(np.log(np.maximum(chosen, np.finfo(float).tiny)).sum())

    def result(self, seconds: float) -> Evaluation:
        missing = {}
        auc, bound, no_auc = self._auc()
        if no_auc:
            missing["auc"] = no_auc
        log_loss: float | None = None
        if reason := self.model.no_probabilities():
            missing["log_loss"] = reason
        elif self.truly.sum():
            log_loss = self.log_loss / int(self.truly.sum())
        if self.confusion is None:
            missing["confusion"] = f"{self.truly.size:,} classes are too many for a table of all pairs"
        f1 = self._f1()
        correct = int(self.right.sum())
        return Evaluation(
            n=self.n,
            correct=correct,
            accuracy=correct / self.n,
            classes=self.model.classes_.tolist(),
            f1=f1,
            macro_f1=float(np.mean([row["f1"] for row in f1])),
            confusion=None if self.confusion is None else self.confusion.tolist(),
            auc=auc,
            auc_bound=bound,
            log_loss=log_loss,
            missing=missing,
            unknown=self._unknown(),
            unseen=self.unseen,
            seconds=seconds,
            notes=self.notes,
        )

    def _auc(self) -> tuple[float | None, float, str]:
        if self.ranking is None:
            return None, 0.0, "it is defined for two classes"
        if self.truly.min() == 0:
            return None, 0.0, "it needs rows of both classes"
        return (*self.ranking.auc(), "")

    def _f1(self) -> list[dict[str, Any]]:
        """F1 = 2 right / (said + true), 0 where a class was neither said nor true (as scikit-learn has it)."""
        return [
            {
                "label": label,
                "rows": int(true),
                "precision": float(right / said) if said else 0.0,
                "recall": float(right / true) if true else 0.0,
                "f1": float(2 * right / (said + true)) if said + true else 0.0,
            }
            for label, true, said, right in zip(
                self.model.classes_.tolist(), self.truly, self.predicted, self.right, strict=True
            )
        ]

    def _unknown(self) -> dict[Any, int]:
        lost = np.flatnonzero(self.codes < 0)
        if lost.size:
            names = ", ".join(repr(label) for label in self.labels[lost[:5]].tolist()) + ", ..." * (lost.size > 5)
            rows = int(self.counts[lost].sum())
            self.notes.append(f"{rows:,} rows have labels that the model does not know ({names}); they count as wrong")
        if self.unseen:
            self.notes.append(unseen_text(self.unseen, self.model.n_features))
        return dict(zip(self.labels[lost].tolist(), self.counts[lost].tolist(), strict=True))


class Ranking:
    """The exact area under the ROC curve from all decision values, 8 bytes a row.

    AUC = (pairs ranked right + half the ties) / all pairs of a negative and a positive row.
    """

    def __init__(self, n_negative: int, n_positive: int) -> None:
        self._values = (np.empty(n_negative), np.empty(n_positive))
        self._filled = [0, 0]

    def add(self, scores: np.ndarray, positive: np.ndarray) -> None:
        for k, chosen in enumerate((scores[~positive], scores[positive])):
            first = self._filled[k]
            self._values[k][first : first + chosen.size] = chosen
            self._filled[k] = first + chosen.size

    def auc(self, step: int = 2**18) -> tuple[float, float]:
        """The area and the bound of its error, 0."""
        negative, positive = self._values
        negative.sort()
        twice = 0
        for first in range(0, positive.size, step):
            piece = positive[first : first + step]
            twice += int(np.searchsorted(negative, piece, "left").sum())
            twice += int(np.searchsorted(negative, piece, "right").sum())
        return twice / (2 * negative.size * positive.size), 0.0


class BinnedRanking:
    """The area from counts in 2^20 bins of the decision value: its sign, exponent and 11 leading bits.

    Pairs inside a bin are counted half, so the error is at most half their share; that bound is returned.
    """

    def __init__(self) -> None:
        self._counts = np.zeros((2, BINS), np.int64)

    def add(self, scores: np.ndarray, positive: np.ndarray) -> None:
        bins = score_bins(scores)
        for k, chosen in enumerate((~positive, positive)):
            self._counts[k] += np.bincount(bins[chosen], minlength=BINS)

    def auc(self) -> tuple[float, float]:
        negative, positive = (counts.astype(object) for counts in self._used())
        below = np.cumsum(negative) - negative
        pairs = int(self._counts[0].sum()) * int(self._counts[1].sum())
        inside = int((positive * negative).sum())
        return (2 * int((positive * below).sum()) + inside) / (2 * pairs), inside / (2 * pairs)

    def _used(self) -> np.ndarray:
        return self._counts[:, self._counts.any(axis=0)]


def score_bins(scores: np.ndarray) -> np.ndarray:
    """Bin int64 [m] of each decision value: the order of the bins is the order of the values."""
    with np.errstate(over="ignore"):
        bits = (scores + 0.0).astype(np.float32).view(np.uint32)  # + 0.0 turns -0.0 into 0.0
    ordered = np.where(bits >> 31 != 0, ~bits, bits | np.uint32(2**31))
    return (ordered >> np.uint32(12)).astype(np.int64)


# Reading


def open_dataset(data: Any, need_labels: bool = True) -> Any:
    from bigclf.data.dataset import Dataset

    return data if isinstance(data, Dataset) else Dataset(data, need_labels=need_labels)


def row_groups(dataset: Any) -> list[tuple[int, int]]:
    """(file, row group) of everything in the dataset, in file order."""
    pairs = zip(dataset.chunks.file.tolist(), dataset.chunks.row_group.tolist(), strict=True)
    return list(dict.fromkeys(pairs))


def decoded(dataset: Any, places: list[tuple[int, int]] | None = None) -> Iterator[tuple[int, int, Block]]:
    """Every row group (or those of ``places``) as a checked block, the next one read while this one is used."""
    places = row_groups(dataset) if places is None else places
    with ThreadPoolExecutor(1) as reader:
        ahead = None
        for k, place in enumerate(places):
            block = (ahead or reader.submit(dataset.decode, *place)).result()
            ahead = reader.submit(dataset.decode, *places[k + 1]) if k + 1 < len(places) else None
            yield (*place, block)


# Predicting


def predict(
    model: Model,
    data: Any,
    out: str,
    *,
    scores: bool = False,
    proba: bool = False,
    unseen: str = "ignore",
    overwrite: bool = False,
    progress: Any = None,
) -> dict[str, Any]:
    """Write the predicted class of every row of ``data``; labels are not needed.

    Parameters
    ----------
    data : shards (path, directory, glob, list of them, Dataset).
    out : directory; gets a Parquet file for each input file with the columns ``row`` (number in its input file),
        ``id`` and ``label`` where the input has them, ``prediction``, and the following.
    scores, proba : also the decision values and probabilities: ``score`` and ``probability`` (of the greater class)
        for two classes, else ``score_<class>`` and ``probability_<class>``.
    unseen : features that the model does not know: ``"ignore"`` (counted, with a warning) or ``"error"``.
    overwrite : replace files that were made from other data or by another model.
    progress : an object with ``start, advance, stop`` such as ``TerminalProgress``, or None.

    Returns
    -------
    dict : out, rows, written and kept (files), columns, unseen, bytes, seconds. A file that was finished earlier with
    the same input, model and options is kept, so an interrupted call goes on where it stopped.

    Raises
    ------
    RunError : ``out`` holds other files of these names, or is where the input lies.
    """
    started = time.perf_counter()
    _check_options(model, scores, proba, unseen)
    dataset = open_dataset(data, need_labels=False)
    targets = _target_paths(dataset, out)
    marks = [_mark(model, dataset, number, scores, proba) for number in range(len(dataset.files))]
    todo = [number for number, path in enumerate(targets) if not _is_finished(path, marks[number], overwrite)]
    files.make_directory(out)
    places = row_groups(dataset)
    if progress is not None:
        progress.start({"n_rows": int(sum(rows_in(dataset, number) for number in todo)), "task": "rows"})
    skipped = 0
    columns: list[str] = []
    options = (scores, proba, unseen)
    for number in todo:
        mine = [place for place in places if place[0] == number]
        more, columns = _predict_file(model, dataset, mine, targets[number], marks[number], options, progress)
        skipped += more
    if skipped:
        warnings.warn(unseen_text(skipped, model.n_features), stacklevel=2)
    return {
        "out": str(out),
        "rows": dataset.n_rows,
        "written": len(todo),
        "kept": len(targets) - len(todo),
        "columns": columns or (list(_columns_of(targets[0])) if targets else []),
        "unseen": skipped,
        "bytes": sum(files.file_size(path) for path in targets),
        "seconds": time.perf_counter() - started,
    }


def _check_options(model: Model, scores: bool, proba: bool, unseen: str) -> None:
    if unseen not in ("ignore", "error"):
        raise ValueError(f"unseen is 'ignore' or 'error', not {unseen!r}")
    if proba and (reason := model.no_probabilities()):
        raise RunError(reason)
    if (scores or proba) and model.classes_.size > MOST_SCORE_COLUMNS:
        raise RunError(f"{model.classes_.size:,} classes are too many for a column each; write predictions only")


def _target_paths(dataset: Any, out: str) -> list[str]:
    """Where the predictions of each input file go: its own name, numbered where names repeat."""
    names = [files.base_name(path).removesuffix(".parquet") for path in dataset.files]
    if len(set(names)) < len(names):
        names = [f"{number:05d}-{name}" for number, name in enumerate(names)]
    targets = [files.join(out, name + ".parquet") for name in names]
    inputs = {files.absolute(path) for path in dataset.files}
    if hit := next((path for path in targets if files.absolute(path) in inputs), None):
        raise RunError(f"{hit}: is an input; write the predictions to another directory")
    return targets


def _mark(model: Model, dataset: Any, number: int, scores: bool, proba: bool) -> dict[str, Any]:
    """What a file of predictions depends on."""
    name, fingerprint = files.base_name(dataset.files[number]), dataset.fingerprints[number]
    return {
        "kind": "predictions",
        "version": 1,
        "input": {"name": name, "size": fingerprint.size, "footer": fingerprint.footer},
        "model": model.digest(),
        "scores": scores,
        "proba": proba,
    }


def _is_finished(path: str, mark: dict[str, Any], overwrite: bool) -> bool:
    from bigclf.data.predictions import read_mark

    if not files.exists(path):
        return False
    if read_mark(path) == mark:
        return True
    if not overwrite:
        raise RunError(f"{path}: exists, and was not made from this data by this model; allow to overwrite it")
    return False


def rows_in(dataset: Any, number: int) -> int:
    return int(dataset.chunks.rows[dataset.chunks.file == number].sum())


def _predict_file(
    model: Model,
    dataset: Any,
    places: list[tuple[int, int]],
    path: str,
    mark: dict[str, Any],
    options: tuple[bool, bool, str],
    progress: Any,
) -> tuple[int, list[str]]:
    """Write the predictions of one input file; how many entries were skipped, and the names of the columns."""
    from bigclf.data.predictions import PredictionWriter, passed_through

    skipped, first, columns = 0, 0, {}
    with PredictionWriter(path, mark) as writer:
        for file, row_group, block in decoded(dataset, places):
            values, more = model.score_block(block)
            if more and options[2] == "error":
                raise DataError(unseen_text(more, model.n_features), file=dataset.files[file], row_group=row_group)
            columns = {"row": np.arange(first, first + block.n_rows), **passed_through(dataset.files[file], row_group)}
            columns.update(_label_column(dataset, block))
            columns.update(_prediction_columns(model, values, *options[:2]))
            writer.write(columns)
            skipped, first = skipped + more, first + block.n_rows
            if progress is not None:
                progress.advance(block.n_rows, block.n_bytes)
        if not places:
            nothing = np.empty((0, model.intercept_.size))
            columns = {"row": np.arange(0), **_prediction_columns(model, nothing, *options[:2])}
            writer.write(columns)
    return skipped, list(columns)


def _label_column(dataset: Any, block: Block) -> dict[str, np.ndarray]:
    if dataset.classes.size == 0 or (block.n_rows and np.isnan(block.labels[0])):
        return {}
    return {"label": dataset.classes[block.labels.astype(np.int64)]}


def _prediction_columns(model: Model, values: np.ndarray, scores: bool, proba: bool) -> dict[str, np.ndarray]:
    """``prediction`` and, as asked, a column or a column a class of decision values and probabilities."""
    values = values[:, 0] if model.binary else values
    columns = {"prediction": model.classes_[model.codes(values)]}
    if scores:
        columns.update(_per_class("score", values, model))
    if proba:
        shares = model.probabilities(values)
        columns.update(_per_class("probability", shares[:, 1] if model.binary else shares, model))
    return columns


def _per_class(name: str, values: np.ndarray, model: Model) -> dict[str, np.ndarray]:
    if values.ndim == 1:
        return {name: values}
    return {f"{name}_{label}": values[:, k] for k, label in enumerate(model.classes_.tolist())}


def _columns_of(path: str) -> list[str]:
    from bigclf.data import shards

    with shards.open_parquet(path) as file:
        return list(file.schema_arrow.names)
