"""How good a model is on data it has not seen."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import numpy as np

from bigclf.compiled.jit import clock
from bigclf.data.arrays import label_array, number_array
from bigclf.data.dataset import Dataset, Stored, as_trained, no_rows, require_classes
from bigclf.data.label_lists import with_whole_labels
from bigclf.data.label_sets import are_sets, n_labels, of_memory
from bigclf.errors import DataError, MemoryBudgetError
from bigclf.features.truths import places
from bigclf.maths.block import Block
from bigclf.maths.deltas import n_bytes
from bigclf.methods import METHODS
from bigclf.metrics.kinds import Figures, LabelFigures, f1_of, rows_trained_on
from bigclf.metrics.label_figures import LabelsEvaluation, PartialLabels
from bigclf.model.explanations import giving_away
from bigclf.model.model import PIECE_BYTES, Model, is_stored, require_same_columns, unseen_text
from bigclf.model.raw_input import BadRows, as_shards, label_apart, labels_of_table, left_out, refuse_labels
from bigclf.progress import Watcher, watcher
from bigclf.texts import card, grid
from bigclf.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from bigclf.data.rows import Rows


BYTES_PER_ROW = 12  # what the exact AUC may take
BINS = 2**20
RELIABILITY_BINS = 10
UNITS = 2**30  # of a probability that is summed: whole numbers have no order of summing, to 8 billion rows in a bin
MOST_CLASSES_SHOWN = 10  # in a notebook, whose lines are short
MOST_CLASSES_CONFUSED = 1000  # a confusion of more classes is a table nobody reads and no memory holds


class Bin(TypedDict):
    """Rows by the probability of a label, from ``low`` to ``high``: how many, its mean, and how many have the label."""

    low: float
    high: float
    rows: int
    probability: float | None
    share: float | None


@dataclass(repr=False)
class Evaluation(Figures):
    """Figures of a model on labelled rows; also read like a dict.

    Attributes
    ----------
    n, correct, accuracy : rows, and how many (which share) got their own label.
    majority : the share of the commonest label, the accuracy of who always says it; None in figures of older versions.
    classes : labels of the model, in order; ``f1`` and ``confusion`` follow it.
    f1 : for each class ``label, rows, precision, recall, f1``; macro_f1 their plain mean.
    confusion : counts [true][predicted], or None above 1000 classes; rows with unknown labels are not in it.
    auc, auc_bound : two classes: area under the ROC curve, ties counted half; the bound is 0 when it is exact.
    log_loss : mean of -log(probability of the label), or None; AUC, log loss and calibration error are of the rows
        whose label the model knows.
    calibration_error : the expected calibration error, sum over the bins of ``reliability`` of their share of the rows
        times |share that is right - mean probability| (Naeini, Cooper, Hauskrecht, AAAI 2015), or None.
    reliability : of the rows with a known label, in 10 bins of equal width: of two classes by the probability of the
        greater, of more by that of the class predicted: for each bin ``low, high, rows, probability`` (its mean) and
        ``share`` (of rows with that label; both None in an empty bin); None without probabilities.
    missing : why a figure is None.
    unknown : labels that the model does not know and how many rows have them; all these rows count as wrong.
    unseen : entries whose feature the model does not know; they count as zero.
    bad_rows : of raw files, that could not be used and are in none of the figures.
    trained_on : about which share of the rows the model was trained on, as far as marks of the files tell: the rows of
        the same files of shards, else, of rows made of raw files, the share of these files, whatever their size.
    seconds : what it took, but for compiling.   notes : what a reader of the figures should know.
    weighted : of rows with weights, accuracy and log_loss in which each counts by its weight (scikit-learn's
        ``sample_weight``); in the other figures every row counts once. None without weights.
    """

    n: int
    correct: int
    accuracy: float
    classes: list[Any]
    f1: list[LabelFigures]
    macro_f1: float
    confusion: list[list[int]] | None
    auc: float | None
    auc_bound: float
    log_loss: float | None
    calibration_error: float | None = None
    reliability: list[Bin] | None = None
    missing: dict[str, str] = field(default_factory=dict)
    unknown: dict[Any, int] = field(default_factory=dict)
    unseen: int = 0
    trained_on: float = 0.0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    weighted: dict[str, float | None] | None = None
    bad_rows: int = 0
    majority: float | None = None

    def _main_figures(self) -> list[str]:
        beside = "" if self.majority is None else f" (majority {100 * self.majority:.2f} %)"
        shown = (("AUC", self.auc), ("log loss", self.log_loss), ("macro F1", self.macro_f1))
        return [f"accuracy {100 * self.accuracy:.2f} %{beside}",
                *(f"{name} {value:.5f}" for name, value in shown if value is not None)]  # fmt: skip

    def _repr_html_(self) -> str:
        """For notebooks: the figures, the classes that do worst, and of few classes which are taken for which."""
        percent = "{:.2f} %".format
        facts = {
            "rows": f"{self.n:,}",
            "accuracy": percent(100 * self.accuracy),
            "baseline (most frequent class)": "" if self.majority is None else percent(100 * self.majority),
            **{name: "" if value is None else f"{value:.5f}" for name, value in (("AUC", self.auc),
               ("log loss", self.log_loss), ("F1, mean of classes", self.macro_f1))},
            "notes": "; ".join(self.notes),
        }  # fmt: skip
        worst = grid(
            ("class", "rows", "precision", "recall", "F1"),
            ([row["label"], row["rows"], *(f"{row[name]:.4f}" for name in ("precision", "recall", "f1"))]  # type: ignore[literal-required]
             for row in self.worst()),
        )  # fmt: skip
        few = self.confusion is not None and len(self.classes) <= MOST_CLASSES_SHOWN
        rows = zip(self.classes, self.confusion or [], strict=False) if few else ()
        table = grid(["", *(f"said {label}" for label in self.classes)], ([label, *row] for label, row in rows))
        return card("Evaluation", facts, worst, table if few else "")

    def worst(self, most: int = 10) -> list[LabelFigures]:
        """The classes of least F1 among those that have rows."""
        return sorted((row for row in self.f1 if row["rows"]), key=lambda row: row["f1"])[:most]

    def confused(self, most: int = 10) -> list[tuple[object, object, int]]:
        """(label, label that was said, rows) of the pairs confused most, most first."""
        counts = np.array(self.confusion if self.confusion is not None else np.zeros((0, 0)), np.int64)
        np.fill_diagonal(counts, 0)
        order = np.argsort(-counts, axis=None, kind="stable")[:most].tolist()
        pairs = [divmod(place, len(self.classes)) for place in order]
        return [(self.classes[i], self.classes[j], int(counts[i, j])) for i, j in pairs if counts[i, j]]


@dataclass(repr=False)
class RegressionEvaluation(Figures):
    """Figures of a model that predicts numbers, on rows labelled with numbers; also read like a dict.

    Attributes
    ----------
    n : rows.
    mean_squared_error, mean_absolute_error : of prediction less label.
    r2 : 1 - squared error / squared deviation of the labels from their mean; None where all labels are the same.
    label_mean : mean of the labels.
    missing : why a figure is None.
    unseen : entries whose feature the model does not know; they count as zero.
    bad_rows : of raw files, that could not be used and are in none of the figures.
    trained_on : about which share of the rows the model was trained on, as far as marks of the files tell: the rows of
        the same files of shards, else, of rows made of raw files, the share of these files, whatever their size.
    seconds : what it took, but for compiling.   notes : what a reader of the figures should know.
    weighted : of rows with weights, mean_squared_error and mean_absolute_error in which each counts by its weight; None
        without weights.
    """

    n: int
    mean_squared_error: float
    mean_absolute_error: float
    r2: float | None
    label_mean: float
    missing: dict[str, str] = field(default_factory=dict)
    unseen: int = 0
    trained_on: float = 0.0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)
    weighted: dict[str, float | None] | None = None
    bad_rows: int = 0

    def _main_figures(self) -> list[str]:
        errors = (
            f"mean squared error {self.mean_squared_error:.6g}",
            f"mean absolute error {self.mean_absolute_error:.6g}",
        )
        return [*errors, *([] if self.r2 is None else [f"R^2 {self.r2:.5f}"])]

    def _repr_html_(self) -> str:
        """For notebooks: the figures."""
        facts = {
            "rows": f"{self.n:,}",
            "mean squared error": f"{self.mean_squared_error:.6g}",
            "mean absolute error": f"{self.mean_absolute_error:.6g}",
            "R^2": "" if self.r2 is None else f"{self.r2:.5f}",
            "notes": "; ".join(self.notes),
        }
        return card("Evaluation", facts)


AnyEvaluation: TypeAlias = Evaluation | RegressionEvaluation | LabelsEvaluation


def evaluate(
    model: Model, data: object, y: object = None, *, memory: str | int = "1GB", bad: BadRows | None = None,
    progress: Watcher | None = None,
) -> AnyEvaluation:  # fmt: skip
    """Measure ``model`` on labelled rows.

    Parameters
    ----------
    data : shards (path, directory, glob, list of them, Dataset), or an array [n, d] with ``y`` [n]; of a model of raw
        columns also raw files, or a table, whose labels may be ``y``. Of a table ``y`` may be the label's name.
    memory : bound of what is allocated; when 12 bytes a row do not fit it, the AUC comes from 2^20 bins with its bound.
    bad : what becomes of rows of raw files that cannot be used; None: they are an error.
    progress : an object with ``start, advance, stop`` such as ``TerminalProgress``, or None.

    Raises
    ------
    DataError : data that cannot be read, or has no rows or no labels (or numbers where the model knows classes), or no
        label that the model knows.
    MemoryBudgetError : model and largest row group do not fit; the message says what would do.
    """
    progress = watcher(progress)
    with clock() as elapsed:
        if is_stored(data):
            refuse_labels(model, data, y)
            with as_shards(model, data, memory, bad) as rows:
                found = _evaluate_shards(model, rows_to_measure(model, rows), parse_bytes(memory), progress)
                found.leave_out(*left_out(data, rows))
        else:
            if bad is not None:
                bad.check(model, data)
            found, _ = evaluate_in_memory(model, data, y)
        found.seconds = elapsed()
    return found


def _evaluate_shards(model: Model, dataset: Dataset, memory: int, progress: Watcher | None) -> AnyEvaluation:
    exact = exact_auc_fits(model, dataset, memory)
    if progress is not None:
        progress.start({"n_rows": dataset.n_rows, "task": "rows"})
    advance = None if progress is None else progress.advance
    part = partial_evaluation(model, dataset, 0, dataset.n_chunks, exact=exact, advance=advance)
    return concluded(model, dataset, part)


def evaluate_in_memory(model: Model, data: object, y: object = None, verb: str = "evaluate(model, X, y)"
                       ) -> tuple[AnyEvaluation, AnyPart]:  # fmt: skip
    """The figures of an array or a table, whose labels are as in ``evaluate``, and what was summed for them.

    Raises
    ------
    TypeError : there are no labels, and ``verb`` takes them so; and what ``evaluate`` raises.
    """
    if isinstance(y, str):
        data, y = label_apart(model, data, y)
    if y is None and model.is_raw(data):
        y = labels_of_table(model, data)
    if y is None:
        raise TypeError(f"an array needs its labels: {verb}")
    return _evaluate_array(model, data, y)


def _evaluate_array(model: Model, X: object, y: object) -> tuple[AnyEvaluation, AnyPart]:
    if model.regression:
        return _evaluate_numbers(model, X, number_array(y))
    if model.multilabel:
        return _evaluate_labels(model, X, y)
    classes, codes, counts = np.unique(label_array(y), return_inverse=True, return_counts=True)
    if codes.size == 0:
        raise DataError("there are no rows to measure the model on")
    part = PartialEvaluation(model, exact=True, rows=codes.size)
    if model.many and model.no_probabilities() is not None:
        scores = np.searchsorted(model.classes_, model.predict(X))
    else:
        scores = model.decision_function(X)
    if len(scores) != codes.size:
        raise ValueError(f"X has {len(scores)} rows and y has {codes.size}")
    require_known(model.classes_, classes, counts)
    if scores.dtype.kind != "i":
        scores = scores.reshape(codes.size, -1)
    part.add(model, scores, class_positions(model, classes)[codes])
    return _figures(model, classes, counts, part), part


def _evaluate_labels(model: Model, X: object, y: object) -> tuple[LabelsEvaluation, PartialLabels]:
    if not are_sets(y):
        raise TypeError("the model gives several labels a row: y is an indicator matrix [n, K], or a list for each row")
    y = with_whole_labels(y)
    sets = of_memory(y, model.classes_ if n_labels(y) == model.classes_.size else None)
    n = sets.rows.size
    if n == 0:
        raise DataError("there are no rows to measure the model on")
    require_known(model.classes_, sets.labels, sets.rows_of_labels(), several=True)
    part, known = PartialLabels(model), sets.positions(model.classes_)
    scores = model.decision_function(X)
    if len(scores) != n:
        raise ValueError(f"X has {len(scores)} rows and y has {n}")
    part.add_scores(scores, known.indptr, known.members)
    return part.figures(model, sets), part


def _evaluate_numbers(model: Model, X: object, labels: np.ndarray) -> tuple[RegressionEvaluation, PartialRegression]:
    if labels.size == 0:
        raise DataError("there are no rows to measure the model on")
    scores = model.decision_function(X)
    if len(scores) != labels.size:
        raise ValueError(f"X has {len(scores)} rows and y has {labels.size}")
    part = PartialRegression()
    part.add(model, scores.reshape(-1, 1), labels)
    return part.figures(model), part


# In parts, wherever they are measured:
#
#     exact = exact_auc_fits(model, dataset, memory)                          # once, for all parts
#     part = partial_evaluation(model, dataset, first, last, exact=exact)     # in any process
#     total = no_part(model, exact=exact, rows=dataset.n_rows)
#     total.merge(part)                                                       # each part, in the order of the chunks
#     concluded(model, dataset, total)                                        # what evaluate() returns, to the bit


AnyPart: TypeAlias = "PartialEvaluation | PartialRegression | PartialLabels"


def exact_auc_fits(model: Model, dataset: Dataset, memory: int) -> bool:
    """Whether ``memory`` bytes hold scoring and every decision value; decided once for all parts of an evaluation.

    The 12 bytes a row are 8 of the total and room for parts on their way to it: parts of up to half of all rows.
    With more than two classes the answer changes nothing: there is no AUC and nothing is kept.

    Raises
    ------
    MemoryBudgetError : not even scoring fits; the message says what would do.
    """
    need = scoring_bytes(model, dataset)
    if need > memory:
        raise MemoryBudgetError(
            f"scoring needs {format_bytes(need)} (model {format_bytes(model.memory_bytes)}, chunks of "
            f"{int(dataset.chunks.nnz.max(initial=0)):,} entries) and memory is {format_bytes(memory)}; "
            f"give memory={format_bytes(1.05 * need)!r} or more"
        )
    return bool(need + BYTES_PER_ROW * dataset.n_rows <= memory)


def scoring_bytes(model: Model, dataset: Dataset) -> int:
    """Bytes that a process needs to score: the model, two chunks, and decision values of one."""
    rows, nnz = int(dataset.chunks.rows.max(initial=0)), int(dataset.chunks.nnz.max(initial=0))
    decoded_twice = 2 * (nnz * (dataset.index_width + 4) + rows * 40)  # this chunk and the one read ahead
    values = 8 * (2 * model.intercept_.size + 4)
    by_codes = model.multilabel or (model.many and model.no_probabilities() is not None)
    scores = min(rows * values, 2 * PIECE_BYTES + values) if by_codes else rows * values
    return int(model.memory_bytes + decoded_twice + scores)


def partial_evaluation(
    model: Model,
    dataset: Dataset,
    first_chunk: int,
    last_chunk: int,
    *,
    exact: bool,
    advance: Callable[[int, int], object] | None = None,
) -> AnyPart:
    """Measure ``model`` on the chunks first_chunk:last_chunk of ``dataset``; a pure function for any process.

    Parameters
    ----------
    exact : what ``exact_auc_fits`` said, the same for all parts. True keeps 8 bytes a row of two classes.
    advance : called with rows and bytes after every chunk.

    It takes ``scoring_bytes`` and what the part keeps. A row group of which some chunks belong to another part is
    decoded here and there: cut where row groups begin.

    Raises
    ------
    DataError : data that cannot be read or has no labels.   ValueError : no such chunks.
    """
    if not 0 <= first_chunk <= last_chunk <= dataset.n_chunks:
        raise ValueError(f"there are chunks 0:{dataset.n_chunks}, not {first_chunk}:{last_chunk}")
    require_labels(model, dataset)
    rows = int(dataset.chunks.rows[first_chunk:last_chunk].sum())
    part = no_part(model, exact=exact, rows=rows, first=first_chunk)
    if isinstance(part, PartialLabels):
        return _partial_labels(model, dataset, first_chunk, last_chunk, part, advance)
    positions = None if model.regression else class_positions(model, dataset.classes)
    by_codes = model.many and model.no_probabilities() is not None
    for chunk, block in decoded(dataset, list(row_groups(dataset, first_chunk, last_chunk))):
        if not first_chunk <= chunk < last_chunk:
            continue
        scores, unseen = (model.codes_of_block if by_codes else model.score_block)(block)
        true = block.labels if positions is None else positions[block.labels.astype(np.int64)]
        part.unseen += unseen
        part.add(model, scores, true, block.weights if dataset.weighted else None)
        if advance is not None:
            advance(block.n_rows, block.n_bytes)
    return part


def _partial_labels(
    model: Model,
    dataset: Dataset,
    first: int,
    last: int,
    part: PartialLabels,
    advance: Callable[[int, int], object] | None,
) -> PartialLabels:
    """The same of rows with several labels each."""
    assert dataset.sets is not None
    sets = dataset.sets.positions(model.classes_)
    for chunk, block in decoded(dataset, list(row_groups(dataset, first, last))):
        if first <= chunk < last:
            part.add(model, block, sets)
            if advance is not None:
                advance(block.n_rows, block.n_bytes)
    return part


def require_labels(model: Model, dataset: Dataset) -> None:
    """Refuse a dataset without labels, and one whose labels are not of the model's kind."""
    if not model.regression:
        require_classes(dataset)
    if dataset.real_labels != model.regression:
        raise DataError("the model predicts numbers, the labels are codes of classes: Dataset.with_real_labels()")
    if model.multilabel != (dataset.sets is not None):
        theirs, mine = ("one label", "several a row") if model.multilabel else ("a list of labels", "one class a row")
        message = f"each of these rows has {theirs}, and the model gives {mine}"
        column = None if dataset.made_of else dataset.layout.label  # text has no columns
        raise DataError(message, file=dataset.made_of or dataset.files[0], column=column)
    if dataset.label_range is None and (model.regression or (dataset.classes.size == 0 and dataset.sets is None)):
        raise DataError("there are no labels to measure the model by", file=dataset.made_of or dataset.files[0])


def no_part(model: Model, *, exact: bool, rows: int = 0, first: int = 0) -> AnyPart:
    """What the parts of an evaluation are added to: ``first``, the number of the first chunk; ``exact`` and ``rows`` as
    in ``PartialEvaluation``."""
    if model.regression:
        return PartialRegression(first=first)
    if model.multilabel:
        return PartialLabels(model, first)
    return PartialEvaluation(model, exact=exact, rows=rows, first=first)


def class_positions(model: Model, labels: np.ndarray) -> np.ndarray:
    """Position int64 [L] in the model's classes of each of ``labels`` [L] (``truths.places``), -1 for one it does not
    know."""
    return np.array(places(model.classes_.tolist(), labels.tolist()), np.int64)


class WeightedMeans:
    """Means of figures of rows by the rows' weights, from the sums of each chunk.

    Attributes
    ----------
    sums : of each figure the sums of weight times figure, and of the weights of the rows that have it.
    """

    def __init__(self) -> None:
        self.sums: dict[str, tuple[array[float], array[float]]] = {}

    def add(self, name: str, weights: np.ndarray, values: np.ndarray) -> None:
        """Of the next chunk: float64 [m] each."""
        above, below = self.sums.setdefault(name, (array("d"), array("d")))
        above.append(float(weights @ values))
        below.append(float(weights.sum()))

    def merge(self, other: WeightedMeans) -> None:
        for name, theirs in other.sums.items():
            mine = self.sums.setdefault(name, (array("d"), array("d")))
            for ours, more in zip(mine, theirs, strict=True):
                ours.extend(more)

    @property
    def n_bytes(self) -> int:
        return sum(16 * len(above) for above, _ in self.sums.values())

    def figures(self) -> dict[str, float | None] | None:
        """Each mean (None where the weights are all 0); None without weights."""
        sums = {name: (math.fsum(above), math.fsum(below)) for name, (above, below) in self.sums.items()}
        return {name: above / below if below > 0 else None for name, (above, below) in sums.items()} or None


class Reliability:
    """Rows, those with the label, and sums of probabilities in units, int64 each, in bins of the probability."""

    def __init__(self) -> None:
        self.rows, self.right, self.units = (np.zeros(RELIABILITY_BINS, np.int64) for _ in range(3))

    def add(self, probability: np.ndarray, right: np.ndarray) -> None:
        """Probabilities [m] of a label, and whether it is the row's, bool [m]."""
        places = np.minimum((probability * RELIABILITY_BINS).astype(np.int64), RELIABILITY_BINS - 1)
        self.rows += np.bincount(places, minlength=RELIABILITY_BINS)
        self.right += np.bincount(places[right], minlength=RELIABILITY_BINS)
        np.add.at(self.units, places, np.rint(probability * UNITS).astype(np.int64))

    def merge(self, other: Reliability) -> None:
        self.rows += other.rows
        self.right += other.right
        self.units += other.units

    def error(self) -> float | None:
        """sum over bins of |rows with the label - sum of probabilities| / all rows"""
        n = int(self.rows.sum())
        return math.fsum(np.abs(self.right - self.units / UNITS).tolist()) / n if n else None

    def bins(self) -> list[Bin]:
        table = zip(self.rows.tolist(), self.right.tolist(), self.units.tolist(), strict=True)
        return [
            {
                "low": k / RELIABILITY_BINS,
                "high": (k + 1) / RELIABILITY_BINS,
                "rows": rows,
                "probability": units / UNITS / rows if rows else None,
                "share": right / rows if rows else None,
            }
            for k, (rows, right, units) in enumerate(table)
        ]


class PartialEvaluation:
    """Counts over the rows of consecutive chunks, from which all figures follow; parts can be merged and pickled.

    Where the cuts between the parts are changes no bit of the figures: counts are whole numbers, and the sum of the
    log loss is the exactly rounded sum of one float64 a chunk. (Processors of different kinds may differ in the last
    bit of a logarithm.)

    Parameters
    ----------
    exact : keep every decision value of two classes (8 bytes a row) instead of counts in 2^20 bins.
    rows : how many to make room for when values are kept; more make it grow, which takes room for both.
    first : number of the first chunk that will be added.

    Attributes
    ----------
    first, last : the chunks counted so far are first:last.
    n : rows; unseen : entries whose feature the model does not know.
    right, truly, predicted : int64 [class]; rows that got their own label, that have it, that got it.
    confusion : int64 [true class, predicted class], or None above 1000 classes.
    ranking : what the AUC comes from, or None without two classes.
    losses : for each chunk the sum of -log(probability of the label), or None without probabilities.
    reliability : rows by their probability, or None without.
    weighed : the same of rows with weights.
    """

    def __init__(self, model: Model, *, exact: bool, rows: int = 0, first: int = 0) -> None:
        k = model.classes_.size
        self.first = self.last = first
        self.n = self.unseen = 0
        self.right, self.truly, self.predicted = (np.zeros(k, np.int64) for _ in range(3))
        self.confusion = np.zeros((k, k), np.int64) if k <= MOST_CLASSES_CONFUSED else None
        self.ranking = (Ranking(rows) if exact else BinnedRanking()) if model.binary else None
        self.losses = None if model.no_probabilities() else array("d")
        self.reliability = None if model.no_probabilities() else Reliability()
        self.weighed = WeightedMeans()

    def add(self, model: Model, scores: np.ndarray, true: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Count the rows of the next chunk: decision values [m, K], or what they say as positions int64 [m] where
        nothing else is made of them; ``true`` int64 [m], of ``class_positions``; row weights float64 [m] or None."""
        if model.binary:
            scores = scores[:, 0]
        said, known = scores if scores.dtype.kind == "i" else model.codes(scores), true >= 0
        self.last += 1
        self.n += true.size
        self.predicted += np.bincount(said, minlength=self.predicted.size)
        self.truly += np.bincount(true[known], minlength=self.truly.size)
        self.right += np.bincount(true[true == said], minlength=self.right.size)
        if self.confusion is not None:
            np.add.at(self.confusion.reshape(-1), true[known] * self.truly.size + said[known], 1)
        if self.ranking is not None:
            self.ranking.add(scores[known], true[known] == 1)
        if self.losses is not None:
            shares, each = model.probabilities(scores[known]), np.arange(int(known.sum()))
            losses = -np.log(np.maximum(shares[each, true[known]], np.finfo(float).tiny))
            self.losses.append(float(losses.sum()))
            assert self.reliability is not None
            told = np.ones_like(each) if model.binary else said[known]
            self.reliability.add(shares[each, told], true[known] == told)
        if weights is not None:
            self.weighed.add("accuracy", weights, (true == said).astype(np.float64))
            if self.losses is not None:
                self.weighed.add("log_loss", weights[known], losses)

    def merge(self, other: PartialEvaluation) -> None:
        """Add the part that comes next; ``other`` stays as it is.

        Raises
        ------
        ValueError : it is not the next one, or was measured in another way; nothing was added.
        """
        self._check(other)
        self.last = other.last
        self.n, self.unseen = self.n + other.n, self.unseen + other.unseen
        for name in ("right", "truly", "predicted", "confusion"):
            if (mine := getattr(self, name)) is not None:
                mine += getattr(other, name)
        if self.ranking is not None:
            self.ranking.merge(other.ranking)  # type: ignore[arg-type]  # of the same type
        if self.losses is not None:
            self.losses.extend(other.losses or ())
        if self.reliability is not None and other.reliability is not None:
            self.reliability.merge(other.reliability)
        self.weighed.merge(other.weighed)

    def _check(self, other: PartialEvaluation) -> None:
        if other.first != self.last:
            raise ValueError(f"after chunks {self.first}:{self.last} come others than {other.first}:{other.last}")
        if type(other.ranking) is not type(self.ranking):
            raise ValueError("either all parts of an evaluation keep the decision values or none does")
        if other.truly.size != self.truly.size or (other.losses is None) != (self.losses is None):
            raise ValueError("the parts were measured with different models")

    @property
    def n_bytes(self) -> int:
        """Bytes of it as it travels."""
        kept = {} if self.ranking is None else self.ranking.__getstate__()
        counts = self.right, self.truly, self.predicted, self.confusion
        bins = 3 * 8 * RELIABILITY_BINS * (self.reliability is not None)
        return n_bytes((counts, kept)) + 8 * len(self.losses or ()) + bins + self.weighed.n_bytes


class PartialRegression:
    """Sums over the rows of consecutive chunks for a model that predicts numbers; parts can be merged and pickled.

    Where the cuts between the parts are changes no bit of the figures: each is made of the exactly rounded sums of one
    float64 a chunk.

    Attributes
    ----------
    first, last : the chunks counted so far are first:last.
    n : rows; unseen : entries whose feature the model does not know.
    sums : for each chunk its rows, the sums of squared and of absolute errors, the sum of the labels, and that of their
        squared deviations from the chunk's own mean.
    weighed : means by the rows' weights.
    """

    NAMES = ("rows", "squares", "absolutes", "labels", "deviations")

    def __init__(self, first: int = 0) -> None:
        self.first = self.last = first
        self.n = self.unseen = 0
        self.sums = {name: array("d") for name in self.NAMES}
        self.weighed = WeightedMeans()

    def add(self, model: Model, scores: np.ndarray, true: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Count the rows of the next chunk: predictions [m, 1], labels float64 [m], row weights float64 [m] or None."""
        error = scores[:, 0] - true
        mean = float(true.mean()) if true.size else 0.0
        found = (true.size, error @ error, np.abs(error).sum(), true.sum(), ((true - mean) ** 2).sum())
        for name, value in zip(self.NAMES, found, strict=True):
            self.sums[name].append(float(value))
        if weights is not None:
            self.weighed.add("mean_squared_error", weights, error * error)
            self.weighed.add("mean_absolute_error", weights, np.abs(error))
        self.last += 1
        self.n += true.size

    def merge(self, other: PartialRegression) -> None:
        """Add the part that comes next; ValueError if it is not the next one. ``other`` stays as it is."""
        if other.first != self.last:
            raise ValueError(f"after chunks {self.first}:{self.last} come others than {other.first}:{other.last}")
        self.last = other.last
        self.n, self.unseen = self.n + other.n, self.unseen + other.unseen
        for name, values in self.sums.items():
            values.extend(other.sums[name])
        self.weighed.merge(other.weighed)

    @property
    def n_bytes(self) -> int:
        """Bytes of it as it travels."""
        return 8 * len(self.NAMES) * len(self.sums["rows"]) + self.weighed.n_bytes

    def figures(self, model: Model) -> RegressionEvaluation:
        squares, mean = math.fsum(self.sums["squares"]), math.fsum(self.sums["labels"]) / self.n
        whole = math.fsum(
            inside + rows * (total / rows - mean) ** 2
            for inside, rows, total in zip(self.sums["deviations"], self.sums["rows"], self.sums["labels"], strict=True)
            if rows
        )
        return RegressionEvaluation(
            n=self.n,
            mean_squared_error=squares / self.n,
            mean_absolute_error=math.fsum(self.sums["absolutes"]) / self.n,
            r2=1.0 - squares / whole if whole > 0 else None,
            label_mean=mean,
            missing={} if whole > 0 else {"r2": "undefined: every label is the same"},
            unseen=self.unseen,
            weighted=self.weighed.figures(),
            notes=[unseen_text(self.unseen, model.n_features)] if self.unseen else [],
        )


def concluded(model: Model, dataset: Dataset, total: AnyPart) -> AnyEvaluation:
    """The figures of all parts merged; ``seconds`` is left at 0.

    Raises
    ------
    ValueError : a part is missing.
    """
    if (total.first, total.last, total.n) != (0, dataset.n_chunks, dataset.n_rows):
        raise ValueError(f"chunks {total.first}:{total.last} of {dataset.n_chunks} were measured")
    found: AnyEvaluation
    if isinstance(total, PartialRegression):
        found = total.figures(model)
    elif isinstance(total, PartialLabels):
        assert dataset.sets is not None
        found = total.figures(model, dataset.sets)
    else:
        found = _figures(model, dataset.classes, dataset.class_counts, total)
    if dataset.weighted:
        names = " and ".join(name.replace("_", " ") for name in found.weighted or ())
        by = f"`weighted` has {names} by them; other figures ignore them" if names else "the figures ignore them"
        found.notes.insert(0, f"the rows have weights: {by}")
    found.trained_on = share_trained_on(model, dataset)
    if found.trained_on:
        found.notes.insert(0, trained_on_text(model, found.trained_on))
    return found


def trained_on_text(model: Model, share: float) -> str:
    """What is to be said of figures on rows of which the model was trained on this share."""
    held = held_out_text(model)
    return f"{rows_trained_on(share)}, so these figures are optimistic" + (f"; {held}" if held else "")


def judges_rows(method: str) -> bool:
    """Whether the mistakes of a method on the way say something of rows to come: not where it goes over many rows, or
    all, before it takes a step."""
    return method not in METHODS or not METHODS[method].by_steps


def seen_before_text(progressive: Mapping[str, float]) -> str:
    """What is to be said of a progressive error on rows that were no news to the model; nothing where they were."""
    if not (share := progressive.get("seen")):
        return ""
    rows = "these rows" if share == 1 else f"about {100 * share:.0f} % of these rows"
    return f"the model it began with was trained on {rows}: no estimate for others"


def share_trained_on(model: Model, dataset: Rows) -> float:
    """About which share of the rows the model was trained on, by the marks of the files, of which the chunks tell the
    rows, or of the raw files behind them, of which nothing does; 0 where none is known to."""
    mine, its = model.facts.get("origin"), dataset.origin() if isinstance(dataset, Dataset) else None
    if not mine or not its:
        return 0.0
    known = np.isin(its["files"], mine["files"])
    if known.any():
        chunks = dataset.chunks
        return float(chunks.rows[known[chunks.file]].sum() / max(1, chunks.rows.sum()))
    same = set(mine["sources"]) & set(its["sources"])
    part, of = mine["part"], its["part"]
    if not same or (part and of and part[0] == of[0] and part[1] != of[1]):
        return 0.0
    share = len(same) / len(set(its["sources"]))
    return share * (part[0] if part[1] else 1 - part[0]) if part and not of else share


def held_out_text(model: Model) -> str:
    """``on the 120 rows held out of its training: accuracy 73.33 % (baseline 55.83 %)``; nothing where none were."""
    if not (held := model.facts.get("held_out")):
        return ""
    name, value = next((name, value) for name, value in held.items() if name not in ("share", "n"))
    figure = f"{100 * value:.2f} %" if name == "accuracy" else f"{value:.5g}"
    majority = (model.facts.get("held_out_figures") or {}).get("majority")
    beside = "" if majority is None else f" (baseline {100 * majority:.2f} %)"
    return f"on the {held['n']:,} rows held out of its training: {name.replace('_', ' ')} {figure}{beside}"


def held_out_figures(model: Model) -> Evaluation | RegressionEvaluation | None:
    """What ``Figures.keep_in`` noted, or None: nothing was held out, or by a version that kept one figure only."""
    kept = model.facts.get("held_out_figures")
    if not kept:
        return None
    kind = RegressionEvaluation if model.regression else Evaluation
    kept = {name: value for name, value in kept.items() if name in {field.name for field in fields(kind)}}
    if model.regression:
        return RegressionEvaluation(**kept)
    labels = model.classes_.tolist()
    f1: Any = [{"label": label, **row} for label, row in zip(labels, kept.pop("f1"), strict=False)]
    return Evaluation(**kept, classes=labels, f1=f1)


def _figures(model: Model, labels: np.ndarray, counts: np.ndarray, part: PartialEvaluation) -> Evaluation:
    """All figures, for ``labels`` [L] that occur, ascending, with ``counts`` [L] rows each."""
    missing = {}
    auc, bound, no_auc = _auc(part)
    if no_auc:
        missing["auc"] = no_auc
    if model.no_probabilities():
        missing["log_loss"] = missing["calibration_error"] = "needs loss=logistic, or `bigclf calibrate`"
    if part.confusion is None:
        missing["confusion"] = f"not shown: {part.truly.size:,} classes are too many for a table of all pairs"
    f1 = f1_of(model.classes_.tolist(), part.truly, part.predicted, part.right)
    correct = int(part.right.sum())
    unknown = _unknown(model, labels, counts)
    return Evaluation(
        n=part.n,
        correct=correct,
        accuracy=correct / part.n,
        classes=model.classes_.tolist(),
        f1=f1,
        macro_f1=float(np.mean([row["f1"] for row in f1])),
        confusion=None if part.confusion is None else part.confusion.tolist(),
        auc=auc,
        auc_bound=bound,
        log_loss=_log_loss(part),
        calibration_error=None if part.reliability is None else part.reliability.error(),
        reliability=None if part.reliability is None else part.reliability.bins(),
        missing=missing,
        unknown=unknown,
        unseen=part.unseen,
        weighted=part.weighed.figures(),
        notes=_notes(model, unknown, part, auc is not None) + _given_away(model, correct, counts),
        majority=int(counts.max()) / part.n,
    )


def _auc(part: PartialEvaluation) -> tuple[float | None, float, str]:
    if part.ranking is None:
        return None, 0.0, "for two classes only"
    if part.truly.min() == 0:
        return None, 0.0, "needs rows of both classes"
    return (*part.ranking.auc(), "")


def _log_loss(part: PartialEvaluation) -> float | None:
    known = int(part.truly.sum())
    return None if part.losses is None or known == 0 else math.fsum(part.losses) / known


def _unknown(model: Model, labels: np.ndarray, counts: np.ndarray) -> dict[object, int]:
    lost = class_positions(model, labels) < 0
    return dict(zip(labels[lost].tolist(), counts[lost].tolist(), strict=True))


def _notes(model: Model, unknown: dict[object, int], part: PartialEvaluation, has_auc: bool) -> list[str]:
    notes, unseen = [], part.unseen
    if unknown:
        names = ", ".join(repr(label) for label in list(unknown)[:5]) + ", ..." * (len(unknown) > 5)
        rows = sum(unknown.values())
        of_known = ["AUC"] * has_auc + ["log loss", "calibration error"] * (_log_loss(part) is not None)
        *some, last = of_known or [""]
        listed = f"{', '.join(some)} and {last}" if some else last
        tells = "tells" if len(of_known) == 1 else "tell"
        alone = f"; {listed} {tells} of the other {part.n - rows:,} alone" if of_known else ""
        notes.append(f"{rows:,} rows have labels that the model does not know ({names}); they count as wrong{alone}")
    if unseen:
        notes.append(unseen_text(unseen, model.n_features))
    return notes


def _given_away(model: Model, correct: int, counts: np.ndarray) -> list[str]:
    """What is to be said where one column decides all; ``counts`` [L] rows of each label."""
    rows = int(counts.sum())
    told = giving_away(model, correct / rows, int(counts.max()) / rows)
    return [told] if told else []


class Ranking:
    """The exact area under the ROC curve from all decision values, 8 bytes a row.

    AUC = (pairs ranked right + half the ties) / all pairs of a negative and a positive row.

    Parameters
    ----------
    n_negative, n_positive : rows to make room for. Only their sum matters: one array holds the values of negative
        rows from its front and those of positive rows from its back, so nobody needs to know how many are which.
    """

    def __init__(self, n_negative: int, n_positive: int = 0) -> None:
        self._values = np.empty(n_negative + n_positive)
        self._n_negative = self._n_positive = 0

    @property
    def negative(self) -> np.ndarray:
        """Decision values of negative rows, a view."""
        return self._values[: self._n_negative]

    @property
    def positive(self) -> np.ndarray:
        """Decision values of positive rows, a view."""
        return self._values[self._values.size - self._n_positive :]

    def add(self, scores: np.ndarray, positive: np.ndarray) -> None:
        """Take in decision values [m]; ``positive`` bool [m]."""
        self._take(scores[~positive], scores[positive])

    def merge(self, other: Ranking) -> None:
        self._take(other.negative, other.positive)

    def _take(self, negative: np.ndarray, positive: np.ndarray) -> None:
        self._make_room(negative.size + positive.size)
        begin, end = self._n_negative, self._values.size - self._n_positive
        self._values[begin : begin + negative.size] = negative
        self._values[end - positive.size : end] = positive
        self._n_negative, self._n_positive = begin + negative.size, self._n_positive + positive.size

    def _make_room(self, rows: int) -> None:
        needed = self._n_negative + self._n_positive + rows
        if needed > self._values.size:
            values = np.empty(max(needed, 2 * self._values.size))
            values[: self._n_negative] = self.negative
            values[values.size - self._n_positive :] = self.positive
            self._values = values

    def __getstate__(self) -> dict[str, object]:
        """Without the room that was not used."""
        full = self._n_negative + self._n_positive == self._values.size
        return {**self.__dict__, "_values": self._values if full else np.concatenate([self.negative, self.positive])}

    def auc(self, step: int = 2**18) -> tuple[float, float]:
        """The area and the bound of its error, 0."""
        negative, positive = self.negative, self.positive
        negative.sort()
        positive.sort()  # in order they are looked up side by side: a fifth of the time, sorting included
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
        """Count decision values [m]; ``positive`` bool [m]."""
        np.add.at(self._counts.reshape(-1), score_bins(scores) + positive * BINS, 1)

    def merge(self, other: BinnedRanking) -> None:
        self._counts += other._counts

    def __getstate__(self) -> dict[str, np.ndarray]:
        """The bins that were used, mostly a small part of the 16 MB."""
        used = np.flatnonzero(self._counts.any(axis=0))
        return {"used": used.astype(np.uint32), "counts": self._counts[:, used]}

    def __setstate__(self, state: Mapping[str, np.ndarray]) -> None:
        self._counts = np.zeros((2, BINS), np.int64)
        self._counts[:, state["used"]] = state["counts"]

    def auc(self) -> tuple[float, float]:
        """The area and the bound of its error."""
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


def labelled_dataset(model: Model, data: Stored) -> Dataset:
    """The dataset behind ``data`` with labels of the model's kind: numbers for one that predicts numbers."""
    dataset = open_dataset(data, columns=model.columns)
    require_same_columns(model, dataset)
    return dataset.with_real_labels() if model.regression else dataset


def rows_to_measure(model: Model, rows: Stored) -> Dataset:
    """``labelled_dataset`` of ``rows``, if they can be measured on; errors name the raw files that they were made of.

    Raises
    ------
    DataError : there are no rows, or the model knows the label of none.
    """
    dataset = labelled_dataset(model, rows)
    file, column = dataset.called or dataset.files[0], dataset.label_called
    if dataset.n_rows == 0:
        raise no_rows(dataset, "there are no rows to measure the model on")
    sets = dataset.sets
    if sets is not None and model.multilabel:
        require_known(model.classes_, sets.labels, sets.rows_of_labels(), file, column, True)
    elif dataset.classes is not None and not (model.multilabel or model.regression or sets is not None):
        require_known(model.classes_, dataset.classes, dataset.class_counts, file, column)
    return dataset


def require_known(
    known: np.ndarray, labels: np.ndarray, counts: np.ndarray, file: str | None = None, column: str | None = None,
    several: bool = False,
) -> None:  # fmt: skip
    """Refuse rows of ``labels`` [L], ``counts`` [L] of each, where none is one of the classes ``known`` [K]: then all
    answers are wrong; or where a row may have ``several`` and none has any."""
    labels = labels[counts > 0]
    if not labels.size and several:
        raise DataError("no row has a label: there is nothing to measure the model on", file=file, column=column)
    if labels.size and max(places(known.tolist(), labels.tolist())) < 0:
        mine, theirs = (", ".join(map(repr, some[:5].tolist())) + ", ..." * (some.size > 5)
                        for some in (known, labels))  # fmt: skip
        raise DataError(
            f"no row has a label that the model knows: the model knows {mine}, and the rows have {theirs}; "
            "measure on rows with the labels that the model was trained on",
            file=file,
            column=column,
        )


def open_dataset(data: Stored, need_labels: bool = True, columns: Mapping[str, object] | None = None) -> Dataset:
    """The dataset behind ``data``; ``columns`` : what a model remembers of the names of columns."""
    return as_trained(data, columns or {}, need_labels)


def row_groups(dataset: Dataset, first: int = 0, last: int | None = None) -> dict[tuple[int, int], int]:
    """(file, row group) of everything in the chunks first:last, in file order, with the number of these chunks."""
    file, row_group = dataset.chunks.file[first:last].tolist(), dataset.chunks.row_group[first:last].tolist()
    return Counter(zip(file, row_group, strict=True))


def decoded(dataset: Dataset, places: list[tuple[int, int]]) -> Iterator[tuple[int, Block]]:
    """The chunks of the row groups ``places``, each with its number and as a checked block, the next one read while
    this one is used."""
    wanted = dict.fromkeys(places)
    keys = zip(dataset.chunks.file.tolist(), dataset.chunks.row_group.tolist(), strict=True)
    numbers = [number for number, place in enumerate(keys) if place in wanted]
    blocks = dataset.blocks(places)
    with ThreadPoolExecutor(1) as reader:
        ahead = reader.submit(next, blocks) if numbers else None
        for k, number in enumerate(numbers):
            assert ahead is not None
            block = ahead.result()
            ahead = reader.submit(next, blocks) if k + 1 < len(numbers) else None
            yield number, block
            del block
