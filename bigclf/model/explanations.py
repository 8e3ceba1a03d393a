"""Why a model says what it says: its largest weights by name, and what each entry of a row adds to its score.

Names come with the model's features where these were made with a dictionary, or from a file. Where names share an index
(hashing), a weight is of all of them together, and that is said. A hashed name that its hash puts into rows with the
sign turned has its weight and its value turned back (of several names, as the first needs it): what is listed for a
class is what speaks for it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NotRequired, Required, TypeAlias, TypedDict

import numpy as np

from bigclf import files
from bigclf.conversion.tables.raw_rows import table_rows
from bigclf.data.arrays import counted_from
from bigclf.data.dataset import Stored, as_trained
from bigclf.errors import DataError, RunError
from bigclf.features.encode import (
    COLLIDING,
    Learned,
    collisions_text,
    hashed_names,
    hashed_signs,
    is_columns,
    report,
    term_of_features,
)
from bigclf.features.encode import names_of as column_names
from bigclf.features.truths import places
from bigclf.features.values import is_table, n_rows_of
from bigclf.maths.block import Block, explicit_values
from bigclf.methods import METHODS
from bigclf.progress import Watcher, watcher

if TYPE_CHECKING:
    from bigclf.features.spec import Spec
    from bigclf.model.model import Model


MOST_CLASSES = 1000  # that are explained without being asked for by name
NamesGiven: TypeAlias = str | os.PathLike[str] | Sequence[str] | Mapping[int, str | Sequence[str]]  # a file, or names


class Entry(TypedDict, total=False):
    """A weight, of a class or in a row, and what is known of it."""

    feature: Required[int]  # its place in ``coef_``, from 0
    number: Required[int]  # what the text that the model was trained on calls it: svmlight counts from 1
    name: Required[str | None]
    weight: Required[float]
    standard_error: float
    rows: int
    rows_in_class: int
    value: float
    contribution: float


ClassWeights = TypedDict(
    "ClassWeights",
    {"class": object, "bias": float, "nonzero": int, "for": list[Entry], "against": list[Entry]},
)


class Explanation(TypedDict):
    classes: list[ClassWeights]
    warnings: list[str]
    notes: list[str]


RowClass = TypedDict(
    "RowClass", {"class": object, "score": float, "bias": float, "entries": list[Entry], "others": float}
)  # what moves the score of a row for one class


class RowExplanation(RowClass):
    """Of the first class that is explained, what is said of the row, and ``each`` where there may be several."""

    prediction: object
    unknown: int
    each: NotRequired[list[RowClass]]
    warnings: list[str]
    notes: list[str]


class RowAnswer(RowExplanation):
    """The same of a row that is stored: its number, and its label."""

    row: int
    label: object


# Names


class Names:
    """Names of features.

    Parameters
    ----------
    table : feature -> its name, or a tuple of all names that share it.
    hashed : whether features come from hashing, so that names that were not seen may share one too.
    counted_from : the number that the data give to feature 0.
    """

    def __init__(self, table: Mapping[int, str | tuple[str, ...]], hashed: bool = False, counted_from: int = 0) -> None:
        self.table, self.hashed = table, hashed
        self.counted_from = counted_from

    def __bool__(self) -> bool:
        return bool(self.table)

    def all_of(self, feature: int) -> tuple[str, ...]:
        """Every name that is known to have this index."""
        found = self.table.get(int(feature), ())
        return (found,) if isinstance(found, str) else tuple(found)

    def signs(self, features: Sequence[int] | np.ndarray) -> np.ndarray:
        """float64 [m]: what to multiply weights by, so that they speak of their names and not of signed places."""
        return np.ones(len(features))

    def text(self, feature: int) -> str | None:
        """``name``, or of several ``name | other``; None where there is none."""
        return " | ".join(self.all_of(feature)) or None

    def texts(self, features: Iterable[int]) -> list[str | None]:
        return [self.text(feature) for feature in features] if self else [None for _ in features]

    def warnings(self, features: Iterable[int] = ()) -> list[str]:
        """What a reader should know: which of ``features`` have several names, and that hashed ones may have more."""
        shared = sorted({int(f) for f in features if len(self.all_of(f)) > 1})
        told = []
        if shared:
            what = "1 feature is" if len(shared) == 1 else f"{len(shared):,} features are"
            told.append(f"{what} shared by several names (collisions): the weight is of all of them together")
        if self.hashed and not self.table:
            told.append("features were hashed and no dictionary was kept: which names an index stands for is not known")
        return told

    def notes(self) -> list[str]:
        """What a reader may like to know, and need not act on."""
        return []


class ColumnNames(Names):
    """Names of features that were made of raw columns: every feature has one, and hashed ones those that were kept.

    spec, learned : of the model's columns (``bigclf.features``).
    """

    def __init__(self, spec: Spec, learned: Learned) -> None:
        super().__init__({})
        self.spec, self.learned = spec, learned

    def __bool__(self) -> bool:
        return True

    def all_of(self, feature: int) -> tuple[str, ...]:
        shared = hashed_names(self.spec, self.learned, int(feature))
        return shared or tuple(column_names(self.spec, self.learned, [int(feature)]))

    def signs(self, features: Sequence[int] | np.ndarray) -> np.ndarray:
        """1, or -1 where the first name that was kept of a hashed feature has that sign."""
        places, features = self.learned.word_places, np.asarray(features, np.int64)
        if not places.size:
            return np.ones(features.size)
        first = np.minimum(np.searchsorted(places, features), places.size - 1)
        return np.where(places[first] == features, self._hashed_signs[first], 1.0)

    @functools.cached_property
    def _hashed_signs(self) -> np.ndarray:
        return hashed_signs(self.spec, self.learned)

    def warnings(self, features: Iterable[int] = ()) -> list[str]:
        return [*super().warnings(features), *self._collisions(COLLIDING, 1.0)]

    def notes(self) -> list[str]:
        return self._collisions(0.0005, COLLIDING)

    def _collisions(self, above: float, most: float) -> list[str]:
        """How many hashed names share their index, if their share is in (above, most]."""
        found = report(self.spec, self.learned)
        if not above < (share := found["colliding"]) <= most:
            return []
        return [collisions_text(share, found["distinct_hashed"], found["hash_bits"])]


def names_of(model: Model, names: NamesGiven | None = None) -> Names:
    """The names of a model's features.

    Parameters
    ----------
    names : None (those of the columns that the model's features were made of, or that its ``features`` list), a file
        (``read_names``), a sequence of d names, or a mapping from features to a name or several.
    """
    features, first = model.features, counted_from(model.features)
    if names is None and model.learned:
        return ColumnNames(model.finisher.spec, model.finisher.learned)
    hashed = "hash" in str(features.get("kind", "")) or bool(features.get("hash_bits"))
    if names is None:
        names = features.get("names") or {}
    elif isinstance(names, str) or hasattr(names, "__fspath__"):
        names = read_names(names, first)
    if isinstance(names, Sequence):
        names = dict(enumerate(names))
    if not isinstance(names, Mapping):
        raise TypeError(f"names are a file, a sequence or a mapping from features, not {type(names).__name__}")
    table = {int(feature): name if isinstance(name, str) else tuple(name) for feature, name in names.items()}
    return Names(table, hashed, first)


def read_names(path: str | os.PathLike[str], first: int = 0) -> dict[int, str | tuple[str, ...]]:
    """Names of features, which count from 0, from a text file: a line a feature in their order, or lines
    ``feature<tab>name``, of which several may have the same feature; ``first`` : what these call feature 0.

    Raises
    ------
    DataError : a file that cannot be read, or a line that is not like the first, with its number.
    """
    try:
        lines = files.read_bytes(path).decode("utf-8").splitlines()
    except OSError as error:
        raise DataError(f"cannot be opened: {error.strerror}", file=path) from None
    except UnicodeDecodeError:
        raise DataError("names of features must be text in UTF-8", file=path) from None
    if not lines or not lines[0].partition("\t")[0].strip().isdecimal() or "\t" not in lines[0]:
        return dict(enumerate(lines))
    table: dict[int, str | tuple[str, ...]] = {}
    for number, line in enumerate(lines, 1):
        feature, tab, name = line.partition("\t")
        if not tab or not feature.strip().isdecimal() or int(feature) < first:
            raise DataError(f"expected a feature (a number from {first}), a tab and its name", file=path, line=number)
        place = int(feature) - first
        before = table.get(place, ())
        table[place] = (*((before,) if isinstance(before, str) else before), name) if before else name
    return table


# Weights


GIVEN_AWAY = 0.9  # of all weights in one column


def decisive_column(model: Model) -> str | None:
    """The one raw column, of two or more, whose features have nearly all of the weights (sum of their absolute values;
    float64 [K, d]); None where there is none, or the features were not made of columns."""
    if not model.learned:
        return None

    spec, learned = model.finisher.spec, model.finisher.learned
    weight = np.asarray(abs(model.weights).sum(axis=0)).reshape(-1)
    term = term_of_features(spec, learned, model.features_at(np.arange(weight.size)))
    each = np.bincount(term[term >= 0], weight[term >= 0], minlength=len(spec.terms))
    of: dict[tuple[str, ...], float] = {}
    for number, one in enumerate(spec.terms):
        of[one.columns] = of.get(one.columns, 0.0) + float(each[number])
    if len(of) < 2 or not weight.any():
        return None
    columns, most = max(of.items(), key=lambda pair: pair[1])
    return " with ".join(columns) if most >= GIVEN_AWAY * float(weight.sum()) else None


def giving_away(model: Model, accuracy: float, most_common: float = 0.0) -> str | None:
    """A sentence on a column that seems to give the answer away; None where rows are in the wrong class, or nearly all
    are of one.

    Parameters
    ----------
    accuracy, most_common : shares of the rows: in their own class, and of the most frequent class.
    """
    if accuracy < 0.999 or 1 - accuracy > 0.1 * (1 - most_common) or (column := decisive_column(model)) is None:
        return None
    return (f"column {column!r} decides nearly alone, and is almost always correct: if it is known only once the answer"
            " is, leave it out")  # fmt: skip


def variances_of(model: Model) -> np.ndarray | None:
    """Variances float64 [K, d] of the weights, of methods that keep them (CW, SCW, AROW, NAROW, NHERD and their
    multi-class forms), else None. Of two classes learned at once the sum of both's."""
    if "0.covariance" in model.state:
        each = [np.diagonal(model.state[f"{n}.covariance"]) for n in _problems(model)]
    elif "0.variances" in model.state:
        each = [model.state[f"{n}.variances"] for n in _problems(model)]
    elif _keeps_pairs(model):
        each = [model.state[f"{n}.weights"][..., 1] for n in _problems(model)]
    else:
        return None
    rows = [_class_rows(np.asarray(array, np.float64)[:-1], model) for array in each]
    return np.concatenate(rows) if len(rows) > 1 else rows[0]


def _problems(model: Model) -> range:
    return range(len({name.partition(".")[0] for name in model.state}))


def _keeps_pairs(model: Model) -> bool:
    """Whether the method's state has a mean and a variance side by side for every weight."""
    method = METHODS.get(str(model.method.get("name")))
    return method is not None and method.form.has_variances and "0.weights" in model.state


def _class_rows(variances: np.ndarray, model: Model) -> np.ndarray:
    """[K, d] of a problem's variances [d], which all its classes share, or [d, class]."""
    k = model.intercept_.size
    if variances.ndim == 1:
        shared = "0.variances" in model.state or model.method["name"].startswith("sccw")
        return np.repeat(variances[None], k, axis=0) if shared and k > 1 else variances[None]
    return variances.sum(axis=1)[None] if k == 1 else np.ascontiguousarray(variances.T)


def explain(
    model: Model,
    *,
    top: int = 20,
    only: object = None,
    names: NamesGiven | None = None,
    data: Stored | None = None,
    progress: Watcher | None = None,
) -> Explanation:
    """The largest weights of each class.

    Parameters
    ----------
    top : how many for each class, and how many against.
    only : the label of one class, a list of such, or None for all (of more than 1000 classes it must be said).
    names : as in ``names_of``.
    data : labelled shards; then ``rows`` says how many rows have the feature, ``rows_in_class`` how many of the class.
    progress : an object with ``start, advance, stop``, for the read of ``data``.

    Returns
    -------
    dict : ``classes``, a list of dicts with the ``class`` (None: numbers), its ``bias``, how many weights are not 0
    (``nonzero``), and lists ``for`` and ``against`` of dicts ``feature, number, name, weight`` and, where they are
    known, ``standard_error`` (of the method's Gaussian over the weight), ``rows``, ``rows_in_class``; the largest
    first. Of two classes ``against`` is empty: what speaks against one speaks for the other, with the sign turned so
    that a weight is always that *for* its class. ``warnings`` of collisions; ``notes``: of those that rarely matter.

    Raises
    ------
    RunError : a voted perceptron, which has no such weights, or too many classes.   ValueError : no such class.
    DataError : data with other features than the model's.
    """
    if model.voted:
        raise RunError("a voted perceptron decides by the votes of many vectors: no weight of a feature says it all")
    known, variances = names_of(model, names), variances_of(model)
    told = [_of_class(model, k, sign, label, top, known, variances) for k, sign, label in _wanted(model, only)]
    listed = [entry for each in told for entry in (*each["for"], *each["against"])]
    if data is not None:
        _count(model, data, told, listed, watcher(progress))
    return {"classes": told, "warnings": known.warnings(entry["feature"] for entry in listed),
            "notes": known.notes()}  # fmt: skip


def _wanted(model: Model, only: object) -> list[tuple[int, float, object]]:
    """Row of the weights, sign and label of each class to be explained."""
    if model.regression:
        return [(0, 1.0, None)]
    if isinstance(only, list) and not only:
        raise ValueError("only names no class; leave it out, or name one")
    if isinstance(only, list):
        return [wanted for one in only for wanted in _wanted(model, one)]
    labels = model.classes_.tolist()
    rows = [(0, -1.0), (0, 1.0)] if model.binary else [(k, 1.0) for k in range(len(labels))]
    if only is None:
        if len(labels) > MOST_CLASSES:
            raise RunError(f"{len(labels):,} classes are too many to list; name one: only=, --class")
        return [(*row, label) for row, label in zip(rows, labels, strict=True)]
    found = [k for k, label in enumerate(labels) if label == only or str(label) == str(only)]
    found = found or [k for k in places(labels, [only]) if k >= 0]
    if not found:
        shown = ", ".join(repr(str(one)) for one in labels[:8]) + " ..." * (len(labels) > 8)
        raise ValueError(f"there is no class {only!r}; the classes are {shown}")
    return [(*rows[found[0]], labels[found[0]])]


def _of_class(
    model: Model, k: int, sign: float, label: object, top: int, names: Names, variances: np.ndarray | None
) -> ClassWeights:
    weights = sign * np.asarray(model.weights[[k]].toarray()[0] if model.sparse else model.weights[k], np.float64)
    numbers = model.features_at(np.arange(weights.size))
    weights = weights * names.signs(numbers)
    listed: dict[str, list[Entry]] = {}
    for name, turned in (("for", weights), ("against", -weights)):
        skipped = model.binary and name == "against"
        places = [] if skipped else largest(turned, top)
        listed[name] = [_entry(int(numbers[p]), weights[p], names, None if variances is None else variances[k, p])
                        for p in places]  # fmt: skip
    bias = sign * float(model.intercept_[k])
    return {"class": label, "bias": bias, "nonzero": int(np.count_nonzero(weights)),
            "for": listed["for"], "against": listed["against"]}  # fmt: skip


def largest(values: np.ndarray, top: int) -> list[int]:
    """Where the ``top`` largest positive of ``values`` [d] are, the largest first, of equal ones the first."""
    places = np.flatnonzero(values > 0)
    if places.size > top:
        bound = np.partition(values[places], places.size - top)[places.size - top] if top else np.inf
        places = places[values[places] >= bound]
    order: list[int] = places[np.argsort(-values[places], kind="stable")][:top].tolist()
    return order


def _entry(feature: int, weight: float, names: Names, variance: float | None) -> Entry:
    number = int(feature) + names.counted_from
    entry: Entry = {"feature": int(feature), "number": number, "name": names.text(feature), "weight": float(weight)}
    return entry if variance is None else {**entry, "standard_error": float(np.sqrt(variance))}


def _count(
    model: Model,
    data: Stored,
    told: Sequence[ClassWeights],
    listed: Sequence[Entry],
    progress: Watcher | None,
) -> None:
    """Write into the entries how many rows have their features, all and of their class; one read."""
    dataset = as_trained(data, model.columns)
    model.require_rows(dataset)
    dataset = dataset.with_real_labels() if model.regression else dataset
    features = np.unique(np.array([entry["feature"] for entry in listed], np.int64))
    labels = [] if model.regression else dataset.classes.tolist()
    counts = np.zeros((max(1, len(labels)), features.size), np.int64)
    if progress is not None:
        progress.start({"n_rows": dataset.n_rows, "task": "counting"})
    for block in dataset.blocks():
        codes = np.zeros(block.n_rows, np.int64) if model.regression else block.labels.astype(np.int64)
        add_counts(block, codes, features, counts)
        if progress is not None:
            progress.advance(block.n_rows, block.n_bytes)
    column = {feature: c for c, feature in enumerate(features.tolist())}
    known = [] if model.regression else model.classes_.tolist()
    theirs = places(known, labels)
    for each in told:
        row = [code for code, place in enumerate(theirs) if known[place] == each["class"] and place >= 0]
        for entry in (*each["for"], *each["against"]):
            c = column[entry["feature"]]
            entry["rows"] = int(counts[:, c].sum())
            if not model.regression:
                entry["rows_in_class"] = int(counts[row, c].sum())


def add_counts(block: Block, codes: np.ndarray, features: np.ndarray, counts: np.ndarray) -> None:
    """counts[code, c] += rows of the block that have features[c] (ascending); ``codes`` int64 [m]."""
    first, last = int(block.indptr[0]), int(block.indptr[-1])
    indices = block.indices[first:last].astype(np.int64)
    place = np.minimum(np.searchsorted(features, indices), max(features.size - 1, 0))
    hit = np.flatnonzero(features[place] == indices) if features.size else np.zeros(0, np.intp)
    row = np.searchsorted(block.indptr, hit + first, side="right") - 1
    np.add.at(counts, (codes[row], place[hit]), 1)


# A row


def explain_row(
    model: Model, row: object, *, top: int = 20, only: object = None, names: NamesGiven | None = None
) -> RowExplanation:
    """What each entry of a row adds to its score.

    Parameters
    ----------
    row : a dict feature -> value, a pair (features, values), a matrix or array of one row; or by the names of columns,
        where the model has such, a dict, a pandas Series or a frame of one row.
    top : how many entries, those that move the score the most.
    only : the label of a class, or a list of labels; None is the one that the model says, of several labels a row all
        that it says, the greatest score first, or where it says none that with the greatest score.
    names : as in ``names_of``.

    Returns
    -------
    dict : ``prediction`` (of several labels a row a list), ``class`` (that the score is for; None: numbers), ``score``
    = ``bias`` + the sum of ``contribution`` over all entries, ``entries`` (dicts ``feature, number, name, value,
    weight, contribution``), ``others`` (the sum over entries not listed), ``unknown`` (entries of features, and
    categories, that the model does not know), ``warnings``, ``notes``. Of several labels a row, or where a list is
    asked for, also ``each``: dicts of ``class``, ``score``, ``bias``, ``entries`` and ``others``, the first of which
    stands above, too.
    """
    if model.voted:
        raise RunError("a voted perceptron decides by the votes of many vectors: no entry adds a number of its own")
    features, values, unknown = entries_by_name(model, row)
    inside = (features >= 0) & (features < model.n_features)
    unknown += int(features.size - inside.sum())
    features, values = features[inside], values[inside]
    weights = model.weights_of(features)
    scores = weights @ values + model.intercept_
    said = _said_of(model, scores)
    if only is None:
        only = _greatest_first(model, scores) if model.multilabel else said
    known = names_of(model, names)
    turned = known.signs(features)

    def of_class(k: int, sign: float, label: object) -> RowClass:
        moved = sign * weights[k] * values
        order = np.argsort(-np.abs(moved), kind="stable")[:top]
        entries = [
            _entry(features[i], sign * turned[i] * weights[k, i], known, None)
            | {"value": float(turned[i] * values[i]), "contribution": float(moved[i])}
            for i in order.tolist()
        ]
        return {"class": label, "score": sign * float(scores[k]), "bias": sign * float(model.intercept_[k]),
                "entries": entries, "others": float(np.delete(moved, order).sum())}  # fmt: skip

    each = [of_class(*wanted) for wanted in _wanted(model, only)]
    listed = dict.fromkeys(entry["feature"] for one in each for entry in one["entries"])
    told: RowExplanation = {
        "prediction": said, **each[0], "unknown": unknown, "warnings": known.warnings(listed), "notes": known.notes(),
    }  # fmt: skip
    return {**told, "each": each} if model.multilabel or isinstance(only, list) else told


def _said_of(model: Model, scores: np.ndarray) -> object:
    """What the model says of a row with these scores [K]."""
    if model.multilabel:
        return model.classes_[scores >= 0].tolist()
    said = model.said(model.flat(scores[None]))[0]
    return said.item() if hasattr(said, "item") else said


def _greatest_first(model: Model, scores: np.ndarray) -> list[object]:
    """The labels that the model says, or else the one that comes nearest."""
    order = np.argsort(-scores, kind="stable")
    labels: list[object] = model.classes_[order[: max(1, int((scores >= 0).sum()))]].tolist()
    return labels


def entries_by_name(model: Model, row: object) -> tuple[np.ndarray, np.ndarray, int]:
    """The same as of ``entries_of`` of a row that may have names of columns, and how many of its categories the model
    does not know.

    Raises
    ------
    SchemaError, DataError : a raw column that is missing, or cannot be read. ValueError : more rows than one.
    """
    table = _raw_row(row) if is_columns(model.features) else None
    if table is None:
        return *entries_of(model.row_by_names(row)), 0
    if (count := n_rows_of(table)) != 1:
        raise ValueError(f"one row at a time, not {count}")
    block, unknown = table_rows(model.finisher, table)
    return block.indices.astype(np.int64), explicit_values(block).astype(np.float64), unknown


def _raw_row(row: object) -> object:
    """A row of raw columns as a table of one row; None where it has no names."""
    held: Any = row
    if hasattr(row, "iloc") and not hasattr(row, "columns"):  # a Series
        held = dict(zip(held.index, held.tolist(), strict=True))
    if not isinstance(held, Mapping):
        return held if is_table(held) else None
    if hasattr(held, "tocsr") or not held or not all(isinstance(name, str) for name in held):
        return None
    columns = all(hasattr(value, "__len__") and not isinstance(value, str) for value in held.values())
    return held if columns else {name: [value] for name, value in held.items()}


def entries_of(row: object) -> tuple[np.ndarray, np.ndarray]:
    """Features int64 [m] and values float64 [m] of a row as ``explain_row`` and ``Scorer`` take it."""
    if isinstance(row, Mapping):
        if named := next((key for key in row if isinstance(key, str)), None):
            raise ValueError(f"{named!r} is no number of a feature, and the model has no names of columns")
        return np.fromiter(row.keys(), np.int64, len(row)), np.fromiter(row.values(), np.float64, len(row))
    if isinstance(row, tuple):
        features, values = np.asarray(row[0], np.int64), np.asarray(row[1], np.float64)
        if features.shape != values.shape or features.ndim != 1:
            raise ValueError(f"features {list(features.shape)} and values {list(values.shape)} do not go together")
        return features, values
    if hasattr(row, "tocsr"):
        matrix = row.tocsr()
        if matrix.shape[0] != 1:
            raise ValueError(f"one row at a time, not {matrix.shape[0]}")
        return matrix.indices.astype(np.int64), matrix.data.astype(np.float64)
    dense = np.asarray(row, np.float64)
    if dense.ndim == 2 and dense.shape[0] == 1:
        dense = dense[0]
    if dense.ndim != 1:
        raise ValueError(f"one row at a time, not an array {list(dense.shape)}")
    features = np.flatnonzero(dense)
    return features, dense[features]


def stored_row(data: Stored, number: int) -> tuple[np.ndarray, np.ndarray, object]:
    """Features, values and label (None: there is none, a list: of several) of row ``number`` of shards, counted from 0
    in their order.

    Raises
    ------
    ValueError : there is no such row.
    """
    dataset = as_trained(data, {}, need_labels=False)
    if not 0 <= number < dataset.n_rows:
        raise no_row(number, dataset.n_rows)
    ends = np.cumsum(dataset.chunks.rows)
    chunk = int(np.searchsorted(ends, number, side="right"))
    place = int(dataset.chunks.file[chunk]), int(dataset.chunks.row_group[chunk])
    block = next(block for block in dataset.parts(*place) if block.ids[-1] >= number)
    i = number - int(block.ids[0])
    label = block.labels[i]
    if dataset.sets is not None:
        return *_entries(block, i), dataset.sets.as_lists(np.array([int(label)]))[0].as_py()
    if not dataset.real_labels:
        label = dataset.classes[int(label)] if dataset.classes is not None and label == label else None
    return *_entries(block, i), label.item() if hasattr(label, "item") else label


def row_of_blocks(blocks: Iterable[Block], number: int) -> tuple[np.ndarray, np.ndarray, float | None]:
    """The same of row ``number`` of blocks in their order, whose labels are numbers, or NaN where there are none."""
    first = 0
    for block in blocks:
        if number < first + block.n_rows:
            label = float(block.labels[number - first])
            whole = int(label) if label.is_integer() else label
            return *_entries(block, number - first), None if label != label else whole
        first += block.n_rows
    raise no_row(number, first)


def no_row(number: int, n_rows: int) -> ValueError:
    """The error that a row is which is not one of so many."""
    return ValueError(f"there is no row {number:,}; the rows are numbered 0 to {n_rows - 1:,}")


def _entries(block: Block, i: int) -> tuple[np.ndarray, np.ndarray]:
    """Features int64 and values float64 of a block's row."""
    first, a, b = int(block.indptr[0]), int(block.indptr[i]), int(block.indptr[i + 1])
    return block.indices[a:b].astype(np.int64), explicit_values(block)[a - first : b - first].astype(np.float64)
