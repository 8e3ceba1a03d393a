"""LIBLINEAR's text models, both ways.

The file is a header of ``name value`` lines, ending in the line ``w``, and then a line a feature with a weight for each
class (one weight for two classes, positive for the *first* label; two for Crammer and Singer's), where ``bias`` >= 0
one line more, of the feature that is ``bias`` in every row. Features count from 1: line j is our feature j - 1.

LIBLINEAR says the second label where the decision value is 0, bigclf the greater one: with the greater one first, as it
is written here, decision values are the same numbers, and only rows that score exactly 0 differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf import files
from bigclf.errors import ModelFormatError, RunError
from bigclf.maths.losses import REGRESSION
from bigclf.units import format_bytes

if TYPE_CHECKING:
    from bigclf.model.model import Model


SOLVERS = {  # name -> loss, penalty
    "L2R_LR": ("logistic", "l2"),
    "L2R_L2LOSS_SVC_DUAL": ("squared_hinge", "l2"),
    "L2R_L2LOSS_SVC": ("squared_hinge", "l2"),
    "L2R_L1LOSS_SVC_DUAL": ("hinge", "l2"),
    "MCSVM_CS": ("hinge", "l2"),
    "L1R_L2LOSS_SVC": ("squared_hinge", "l1"),
    "L1R_LR": ("logistic", "l1"),
    "L2R_LR_DUAL": ("logistic", "l2"),
    "L2R_L2LOSS_SVR": ("squared_epsilon_insensitive", "l2"),
    "L2R_L2LOSS_SVR_DUAL": ("squared_epsilon_insensitive", "l2"),
    "L2R_L1LOSS_SVR_DUAL": ("epsilon_insensitive", "l2"),
}
ALL_AT_ONCE = "MCSVM_CS"
FIRST = {(loss, penalty): name for name, (loss, penalty) in reversed(SOLVERS.items()) if name != ALL_AT_ONCE}
PIECE = 2**18  # numbers that are made text, or text made numbers, at a time
MOST_HEADER = 2**28  # bytes
NUMBER = b"0123456789+-.eE \t\r\n"


# Writing


def write(model: Model, path: str, *, codes: bool = False) -> list[str]:
    """Write the model; ``codes``: positions in ``classes_`` in place of labels, which are whole numbers here.

    Raises
    ------
    RunError : labels that are no whole numbers; more weights than the disk has room for.
    """
    rows, d = model.coef_.shape
    head = _header(model, codes)
    _check_room(path, 4 * rows * d)
    with files.publishing(path) as beside, files.open_binary(beside, "wb") as file:
        file.write(head.encode())
        step = max(1, PIECE // rows)
        for a in range(0, d, step):
            file.write(_lines(_features(model, a, min(d, a + step))))
        if model.intercept_.any():
            file.write(_lines(model.intercept_[None]))
    tie = "where a decision value is exactly 0, as of a row without entries, LIBLINEAR says the smaller label"
    return [tie] if model.binary and not model.intercept_.any() else []


def _header(model: Model, codes: bool) -> str:
    lines = [f"solver_type {_solver(model)}"]
    if model.regression:
        lines.append("nr_class 2")
    else:
        labels = _labels(model, codes)
        labels = labels[::-1] if model.binary else labels
        lines += [f"nr_class {len(labels)}", f"label {' '.join(map(str, labels))}"]
    bias = 1 if model.intercept_.any() else -1
    return "\n".join([*lines, f"nr_feature {model.n_features}", f"bias {bias}", "w\n"])


def _solver(model: Model) -> str:
    """The first of LIBLINEAR's with the model's loss. It decides how probabilities are made of decision values, and
    nothing else: multinomial ones are not LIBLINEAR's, and the methods without a loss of theirs count as hinge."""
    loss, penalty = str(model.method.get("loss")), str(model.method.get("penalty") or "l2")
    if model.regression:
        return FIRST[loss if loss in REGRESSION[:2] else "squared_epsilon_insensitive", "l2"]
    if model.method.get("multiclass") == "multinomial" and not model.binary:
        return ALL_AT_ONCE
    if model.calibration is not None:  # its probabilities are others
        return FIRST["hinge", "l2"]
    return FIRST.get((loss, penalty), FIRST.get((loss, "l2"), FIRST["hinge", "l2"]))


def _labels(model: Model, codes: bool) -> list[int]:
    classes = model.classes_
    if codes:
        return list(range(classes.size))
    whole = classes.dtype.kind in "iub" or (classes.dtype.kind == "f" and (classes == np.floor(classes)).all())
    if not whole or not all(-(2**31) <= label < 2**31 for label in classes.tolist()):
        shown = ", ".join(repr(label) for label in classes.tolist()[:3])
        raise RunError(
            f"LIBLINEAR's labels are whole numbers of 32 bits, the model's are not ({shown} ...); "
            "codes=True (--codes) writes their positions, counted from 0, instead"
        )
    return [int(label) for label in classes.tolist()]


def _features(model: Model, a: int, b: int) -> np.ndarray:
    """Weights float64 [b - a, K] of the features a:b."""
    piece = model.weights[:, a:b]
    return np.asarray((piece.toarray() if model.sparse else piece).T, np.float64)


def _lines(weights: np.ndarray) -> bytes:
    """A line a row; each number in the fewest digits that give its bits back."""
    return "".join(" ".join(map(repr, row)) + " \n" for row in weights.tolist()).encode()


def _check_room(path: str, n_bytes: int) -> None:
    files.make_directory(files.parent_directory(path))
    free = files.free_bytes(files.parent_directory(path))
    if n_bytes > free:
        raise RunError(
            f"{path}: LIBLINEAR's text has a number for every feature and class, {format_bytes(n_bytes)} at least, and "
            f"the disk has {format_bytes(free)}; --to parquet keeps weights that are not 0 alone"
        )


# Reading


class Linear(NamedTuple):
    """A model as read: weights float64 [K, d] (one row for two classes, positive for the greater, and for a
    regression), bias float64 [K], classes int64 ascending or None; method as in ``Model``."""

    weights: np.ndarray
    bias: np.ndarray
    classes: np.ndarray | None
    method: dict[str, object]


def read(path: str) -> Linear:
    """Read a model that LIBLINEAR wrote, or ``write``.

    Raises
    ------
    ModelFormatError : it is none, or damaged, with the line; memory is taken for numbers that are in the file only.
    """
    data = files.read_bytes(path)
    if not data.startswith(b"solver_type"):
        raise ModelFormatError("not a model in LIBLINEAR's text: it begins with solver_type")
    told, start, line = _read_header(data)
    solver = _solver_of(told)
    classes = None if SOLVERS[solver][0] in REGRESSION else _classes(told)
    columns = 1 if classes is None or (classes.size == 2 and solver != ALL_AT_ONCE) else classes.size
    bias = _number(told["bias"], "bias")
    rows = _whole(told["nr_feature"], "nr_feature") + (bias >= 0)
    weights = _numbers(data, start, line, rows, columns)
    constant = bias * weights[-1] if bias >= 0 else np.zeros(columns)
    weights = weights[: rows - (bias >= 0)]
    weights, constant, classes = (
        (weights.T, constant, None) if classes is None else _ascending(weights.T, constant, classes)
    )
    loss, penalty = SOLVERS[solver]
    native = {"multiclass": "native"} if solver == ALL_AT_ONCE else {}
    method = {"name": "liblinear", "solver": solver, "loss": loss, "penalty": penalty, **native}
    return Linear(weights, constant, classes, {**method, "bias": "feature" if bias >= 0 else None})


def _read_header(data: bytes) -> tuple[dict[str, list[bytes]], int, int]:
    """The header's lines, where the weights begin, and in which line."""
    told: dict[str, list[bytes]] = {}
    place, line = 0, 1
    while True:
        end = data.find(b"\n", place, place + MOST_HEADER)
        words = data[place : end if end >= 0 else len(data)].split()
        if end < 0 and words != [b"w"]:
            raise ModelFormatError(f"cut short in line {line}: the header has no end; copy the file again")
        place, line = (end + 1 if end >= 0 else len(data)), line + 1
        if words == [b"w"]:
            break
        if not words:
            continue
        name = words[0].decode("ascii", "replace")
        if name in told:
            raise ModelFormatError(f"damaged: line {line - 1} says {name} again")
        told[name] = words[1:]
    return told, place, line


def _solver_of(told: dict[str, list[bytes]]) -> str:
    """The solver's name, once the header has what belongs to it."""
    names = ("solver_type", "nr_class", "label", "nr_feature", "bias")
    if strange := [name for name in told if name not in (*names, "rho")]:
        raise ModelFormatError(f"not a model in LIBLINEAR's text: its header has an unknown line {strange[0][:40]!r}")
    solver = b" ".join(told["solver_type"]).decode("ascii", "replace")
    if solver == "ONECLASS_SVM":
        raise ModelFormatError("a one-class model (-s 21) says whether a row is an outlier; bigclf has no such models")
    if solver not in SOLVERS:
        raise ModelFormatError(f"solver_type {solver[:40]!r} is none that bigclf knows; it knows {', '.join(SOLVERS)}")
    needed = [name for name in names if name != "label" or SOLVERS[solver][0] not in REGRESSION]
    if missing := [name for name in needed if name not in told]:
        raise ModelFormatError(f"damaged: the header has no line {missing[0]!r}")
    return solver


def _whole(words: list[bytes], name: str) -> int:
    text = b" ".join(words)
    if not text.isdigit() or len(text) > 18:
        raise ModelFormatError(f"damaged: {name} must be a whole number of at least 0, not {_shown(text)}")
    return int(text)


def _number(words: list[bytes], name: str) -> float:
    try:
        value = float(b" ".join(words)) if not b" ".join(words).translate(None, NUMBER) else np.nan
    except ValueError:
        value = np.nan
    if not np.isfinite(value):
        raise ModelFormatError(f"damaged: {name} must be a number, not {_shown(b' '.join(words))}")
    return float(value)


def _shown(text: bytes) -> str:
    return repr(text[:40].decode("ascii", "replace"))


def _classes(told: dict[str, list[bytes]]) -> np.ndarray:
    n = _whole(told["nr_class"], "nr_class")
    words = told["label"]
    if len(words) != n:
        raise ModelFormatError(f"damaged: nr_class is {n} and there are {len(words)} labels")
    if n < 2:
        raise ModelFormatError("trained with rows of one class alone; a model needs two")
    try:
        classes = np.array([int(word) for word in words if not word.translate(None, b"0123456789+-")], np.int64)
    except (ValueError, OverflowError):
        classes = np.zeros(0, np.int64)
    if classes.size != n or np.unique(classes).size != n:
        raise ModelFormatError("damaged: labels must be whole numbers that differ")
    return classes


def _numbers(data: bytes, start: int, line: int, rows: int, columns: int) -> np.ndarray:
    """float64 [rows, columns] from the lines that begin at ``start``."""
    if 2 * rows * columns > len(data) - start + 1:  # a digit and a space each
        raise ModelFormatError(
            f"damaged or cut short: {rows:,} lines of {columns:,} weights were announced and "
            f"{len(data) - start:,} bytes are left; copy the file again"
        )
    found = np.empty((rows, columns))
    step = max(1, PIECE // columns)
    for first in range(0, rows, step):
        lines, start = _next_lines(data, start, min(step, rows - first))
        if len(lines) < min(step, rows - first):
            raise ModelFormatError(
                f"cut short: {rows:,} lines of weights were announced, {first + len(lines):,} are there"
            )
        _check_text(lines, line, columns)
        try:
            found[first : first + len(lines)] = [[float(word) for word in text.split()] for text in lines]
        except ValueError as error:
            raise ModelFormatError(f"damaged: lines {line} to {line + len(lines) - 1}: {error}") from None
        line += len(lines)
    if data[start:].strip():
        raise ModelFormatError(f"damaged: line {line} comes after the last of {rows:,} lines of weights")
    if not np.isfinite(found).all():
        raise ModelFormatError("damaged: a weight is beyond the range of numbers")
    return found


def _next_lines(data: bytes, start: int, most: int) -> tuple[list[bytes], int]:
    """Up to ``most`` lines, and where the next one begins."""
    lines: list[bytes] = []
    while len(lines) < most and start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        lines.append(data[start:end])
        start = end + 1
    return lines, start


def _check_text(lines: list[bytes], first: int, columns: int) -> None:
    """The right number of words a line, of digits, signs, points and exponents: no nan, no comma of another language,
    no underscore."""
    for line, text in enumerate(lines, first):
        words = text.split()
        strange = text.translate(None, NUMBER)
        if b"," in strange:
            raise ModelFormatError(f"line {line} has a comma: write it again where decimals have a point (LC_ALL=C)")
        if strange:
            word = next(word for word in words if word.translate(None, NUMBER))
            raise ModelFormatError(f"line {line}: a weight is {_shown(word)}, not a finite number")
        if len(words) != columns:
            raise ModelFormatError(
                f"damaged: line {line} has {len(words):,} weights, not {columns:,}; copy the file again"
            )


def _ascending(weights: np.ndarray, bias: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """With the classes in order; of two one row, positive for the greater."""
    order = np.argsort(classes)
    if classes.size > 2:
        return np.ascontiguousarray(weights[order]), bias[order], classes[order]
    if len(weights) == 2:  # Crammer and Singer's: the greater score wins
        weights, bias = weights[:1] - weights[1:], bias[:1] - bias[1:]
    sign = 1.0 if classes[0] > classes[1] else -1.0  # the weights are those of the first label
    return np.ascontiguousarray(sign * weights), sign * bias, classes[order]
