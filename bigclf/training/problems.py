"""Problems: the things being learned over one stream of rows."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.compiled.jit import brief, kernel, random_state
from bigclf.errors import MemoryBudgetError
from bigclf.features.truths import places
from bigclf.maths.block import Block
from bigclf.methods import METHODS, Setting
from bigclf.units import format_bytes

if TYPE_CHECKING:
    from bigclf.data.rows import Rows


class Fold(NamedTuple):
    """Rows that a problem never sees: those whose keyed hash of (seed, number in the dataset) is ``number`` of
    ``folds``. What else the rows hold has no part in it."""

    number: int
    folds: int
    seed: int

    def holds(self, rows: np.ndarray, first_row: int) -> np.ndarray:
        """bool [row], for the rows numbered ``first_row + rows`` in the dataset."""
        held = np.empty(rows.size, np.bool_)
        mark_fold(rows, first_row, random_state(self.seed, 3)[0], self.folds, self.number, held)
        return held


@kernel
def mark_fold(rows, first_row, key, folds, number, held):  # type: ignore[no-untyped-def]
    """held[i]: whether row first_row + rows[i] is in the fold; SplitMix64's mix of the row and the key."""
    for i in range(rows.size):
        z = key + np.uint64(first_row + rows[i] + 1) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        held[i] = np.int64(((z >> np.uint64(32)) * np.uint64(folds)) >> np.uint64(32)) == number


class OfLabel(NamedTuple):
    """A label of rows that have several each: its ``number``, and the labels of each set, as in ``LabelSets``."""

    number: int
    indptr: np.ndarray
    members: np.ndarray


class Problem(NamedTuple):
    """One thing being learned.

    Attributes
    ----------
    name : what it is called in the history ("" for the only one).
    targets : float64 [class], what a row of each class is to the kernel: -1 or +1, or its code where all classes are
        learned at once; None for regression, where labels are the numbers to predict.
    class_weights : float64 [class], multiplied into the rows' weights (0: the class takes no part); None for
        regression.
    setting : the method and its parameters.
    fold : rows that take no part, or None.
    start : (number of a problem, factor): it begins when those have ended, with factor times their dual variables.
    label : of rows with several labels each, which one it is about: the codes in blocks are then those of sets, and
        ``targets`` and ``class_weights`` [2] are for rows without it and with it.
    """

    name: str
    targets: np.ndarray | None
    class_weights: np.ndarray | None
    setting: Setting
    fold: Fold | None = None
    start: tuple[tuple[int, float], ...] = ()
    label: OfLabel | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Of one class against the rest its number travels, and no array of what every class is to it."""
        targets = self.targets
        if targets is None or targets.size <= 2 or targets.base is not _line(targets.size):
            return Problem, tuple(self)
        return _against_rest, (self._replace(targets=None), targets.size, int(np.argmax(targets)))

    def view(self, block: Block, first_row: int = 0, into: tuple[np.ndarray, np.ndarray] | None = None) -> Block:
        """The block as this problem sees it: targets for class codes, weights times class weights, 0 in its fold.

        ``first_row`` is the number in the dataset of the row that ``block.ids`` call 0; ``into`` : memory for labels
        and weights, float64 [row] each (None: it is new).
        """
        view = block
        if self.targets is not None and self.class_weights is not None:
            labels, weights = (np.empty(block.n_rows), np.empty(block.n_rows)) if into is None else into
            if self.label is None:
                aim_at(block.labels, block.weights, self.targets, self.class_weights, labels, weights)
            else:
                aim_at_label(
                    block.labels, block.weights, *self.label, self.targets, self.class_weights, labels, weights
                )
            view = block._replace(labels=labels, weights=weights)
        if self.fold is not None:
            view = view._replace(weights=np.where(self.fold.holds(block.ids, first_row), 0.0, view.weights))
        return view


def taking_part(view: Block, into: np.ndarray | None = None) -> np.ndarray:
    """int64, the rows of a problem's view that it learns from; the others cost nothing more. ``into`` : memory for
    them, int64 [row] (None: it is new)."""
    if into is None:
        return np.flatnonzero(view.weights > 0)
    return into[: find_positive(view.weights, into)]


@brief
def aim_at(codes, weights, targets, class_weights, aims, seen):  # type: ignore[no-untyped-def]
    """aims[i]: what row i's class, whose code is codes[i], is to a problem; seen[i]: its weight times its class's."""
    for i in range(codes.size):
        code = np.int64(codes[i])
        aims[i] = targets[code]
        seen[i] = weights[i] * class_weights[code]


@brief
def aim_at_label(codes, weights, number, indptr, members, targets, class_weights, aims, seen):  # type: ignore[no-untyped-def]
    """The same where row i has the labels of the set codes[i], and what counts is whether ``number`` is among them."""
    for i in range(codes.size):
        code, has = np.int64(codes[i]), 0
        for p in range(indptr[code], indptr[code + 1]):
            if members[p] == number:
                has = 1
        aims[i] = targets[has]
        seen[i] = weights[i] * class_weights[has]


@brief
def find_positive(weights, rows):  # type: ignore[no-untyped-def]
    """The rows whose weight is above 0, in their order; how many they are."""
    n = 0
    for i in range(weights.size):
        rows[n] = i
        n += weights[i] > 0
    return n


def class_weight_array(class_weight: object, source: Rows) -> np.ndarray:
    """float64 [class] from None, "balanced" (rows / (classes * rows of the class)) or {label: weight}; of rows with
    several labels each float64 [label, 2], of rows without the label and with it.

    Rows of weight 0 do not count, nor do classes that have no others. A label may be given as text too: a command line
    knows no types.

    Raises
    ------
    ValueError : a label that is no class, or of one class a second one, or a weight that is negative or not finite.
    """
    if source.sets is not None:
        return _label_weights(class_weight, source)
    classes = source.classes
    if class_weight is None:
        return np.ones(classes.size)
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ValueError(f'class_weight must be "balanced" or a dict, not {class_weight!r}')
        counts = source.learnable_counts
        return counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1))
    if not isinstance(class_weight, Mapping):
        raise ValueError(f'class_weight must be "balanced" or a dict, not {class_weight!r}')
    return _weights_by_name(class_weight, classes)


def _weights_by_name(class_weight: Mapping[object, object], classes: np.ndarray) -> np.ndarray:
    weights, named = np.ones(classes.size), dict[int, object]()
    for label, weight in class_weight.items():
        place = [i for i, c in enumerate(classes.tolist()) if c == label or str(c) == label]
        place = place or [k for k in places(classes.tolist(), [label]) if k >= 0]
        if len(place) != 1:
            raise ValueError(f"class_weight names {label!r}, which is not one of the classes {classes[:10].tolist()}")
        if isinstance(weight, bool) or not isinstance(weight, numbers.Real) or not 0 <= float(weight) < np.inf:
            raise ValueError(f"class_weight of {label!r} must be a finite number of at least 0, not {weight!r}")
        if (other := named.setdefault(place[0], label)) is not label:
            raise ValueError(f"class_weight names {other!r} and {label!r}, which are one class: give one of them")
        weights[place[0]] = weight
    return weights


def _label_weights(class_weight: object, source: Rows) -> np.ndarray:
    """The weights of rows without and with each label: what is given for a label is for the rows that have it."""
    weights = np.ones((source.classes.size, 2))
    if class_weight == "balanced":
        rows, having = source.learnable[0], source.learnable_counts
        counts = np.stack([rows - having, having], axis=1)
        weights = np.where(counts == 0, 1.0, rows / (2 * np.maximum(counts, 1)))
    elif isinstance(class_weight, Mapping):
        weights[:, 1] = _weights_by_name(class_weight, source.classes)
    elif class_weight is not None:
        raise ValueError(f'class_weight must be "balanced" or a dict, not {class_weight!r}')
    return weights


def label_problems(source: Rows, weights: np.ndarray, setting: Setting) -> list[Problem]:
    """A problem for each label of rows that have several; ``weights`` : float64 [label, 2]."""
    assert source.sets is not None
    targets, sets = np.array([-1.0, 1.0]), source.sets
    return [
        Problem(str(label), targets, weights[n], setting, label=OfLabel(n, sets.indptr, sets.members))
        for n, label in enumerate(source.classes.tolist())
    ]


def regression_problem(setting: Setting) -> Problem:
    """The one thing that is learned where labels are numbers to predict."""
    return Problem("", None, None, setting)


def progress_of(problem: Problem, rows: int, mistakes: int, loss: float) -> dict[str, float]:
    """What rows judged before they were learned from say of the answer: the share of mistakes, or for regression the
    mean of their losses, each times the row's weight (a certified method's sum has them times C)."""
    if problem.targets is None:
        price = problem.setting.settings["C"] if problem.setting.method.certificate else 1.0
        return {"mean_loss": loss / (max(1, rows) * price)}
    return {"error": mistakes / max(1, rows)}


SMALL = 8_000_000  # bytes that are written down whatever the memory is: the plan then says how much is needed
PROBLEM_BYTES = 16_000  # what a run notes of a problem beside its arrays: how far it is, its history, its checkpoint


def require_few(n_classes: int, setting: Setting, memory: int, answers: int = 1) -> None:
    """MemoryBudgetError where the problems of so many classes, one against the rest, are too many whatever their
    weights take. ``answers`` : points of a sweep times its folds."""
    size = PROBLEM_BYTES * n_classes * answers
    if not setting.method.all_classes and n_classes > 2 and size > max(memory, SMALL):
        having = ", ".join(name for name, method in METHODS.items() if method.form.touched)
        many = f"{answers} times " if answers > 1 else ""
        raise MemoryBudgetError(
            f"{n_classes:,} classes one against the rest are {many}as many problems, whose notes alone take "
            f"{format_bytes(size)}, and "
            f"memory={format_bytes(memory)}; all classes at once, by weights of touched features, are learned by "
            f"{having} (multiclass='native')"
        )


def make_problems(classes: np.ndarray, class_weights: np.ndarray, setting: Setting) -> list[Problem]:
    """One problem for two classes (the greater positive) and for a method that learns all at once; else one against
    the rest for each class."""
    k = classes.size
    if setting.method.all_classes:
        return [Problem("", np.arange(float(k)), class_weights, setting.of_classes(k))]
    if k == 2:
        return [Problem("", np.array([-1.0, 1.0]), class_weights, setting)]
    return [Problem(str(label), targets_against_rest(k, i), class_weights, setting) for i, label in enumerate(classes)]


@functools.lru_cache(4)
def _line(k: int) -> np.ndarray:
    line = np.full(2 * k - 1, -1.0)
    line[k - 1] = 1.0
    return line


def targets_against_rest(k: int, number: int) -> np.ndarray:
    """float64 [class], 1 for the class of that number and -1 for the others: a part of one array for all of them, since
    k times k numbers would be 200 MB of 5,000 classes."""
    return _line(k)[k - 1 - number : 2 * k - 1 - number]


def _against_rest(problem: Problem, k: int, number: int) -> Problem:
    """As ``Problem.__reduce__`` left it."""
    return problem._replace(targets=targets_against_rest(k, number))
