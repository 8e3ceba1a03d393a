"""What the arrays of a checkpoint must be: types and shapes follow from the run that takes them up.

A checksum tells that a file is as it was written, not that the writer was right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bigclf.errors import ModelFormatError
from bigclf.maths.mixing import Weights
from bigclf.stream.row_files import FiledArray
from bigclf.stream.working_set import Members
from bigclf.training.problems import Problem
from bigclf.training.visit import SCALES, Figures, Solved, Tally

Arrays = Mapping[str, np.ndarray | FiledArray]
FLOAT64, INT64 = np.dtype(np.float64), np.dtype(np.int64)
SUMS = Figures(Tally(), Tally(), 0, 0, 0, 0, 0, 0).array().size
NOBODY = Members.none()
AS_LONG = {"lengths": "ids", "scores": "ids", "classes": "weights"}  # the array beside it that it is as long as


class Kind(NamedTuple):
    """Type and shape of an array; None : any length. ``other`` : a length that it may have instead; below : all are
    from 0 on and less than that; differ : none is there twice."""

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    other: int | None = None
    below: int | None = None
    differ: bool = False

    def fits(self, array: np.ndarray | FiledArray) -> bool:
        if array.dtype != self.dtype or len(array.shape) != len(self.shape):
            return False
        lengths = zip(array.shape, self.shape, strict=True)
        return all(n in (wanted, self.other) or wanted is None for n, wanted in lengths)

    def __str__(self) -> str:
        lengths = ", ".join("any" if n is None else f"{n}" for n in self.shape)
        return f"{self.dtype} [{lengths}]" + (f" or [{self.other}]" if self.other is not None else "")


def check_arrays(
    arrays: Arrays, problems: Sequence[Problem], states: Sequence[Weights], group_rows: Sequence[int]
) -> None:
    """Check the arrays that a run has names for; others are those of other versions.

    Parameters
    ----------
    states : of each problem as it began.
    group_rows : rows of each group.

    Raises
    ------
    ModelFormatError : naming the first array of another type or shape, and both, or with a number of a row that there
        is not.
    """
    found = [(name, array, _kind_of(name, arrays, problems, states, group_rows)) for name, array in arrays.items()]
    known = [(name, array, kind) for name, array, kind in found if kind is not None]
    for name, array, kind in known:
        if not kind.fits(array):
            it_is = Kind(array.dtype, tuple(array.shape))
            raise ModelFormatError(f"the array {name!r} is {it_is}; this run has {kind}")
    for name, array, kind in known:
        if kind.below is None:
            continue
        assert isinstance(array, np.ndarray)
        if array.size and not (array.min() >= 0 and array.max() < kind.below):
            raise ModelFormatError(f"the array {name!r} must be of numbers from 0 on, less than {kind.below}")
        if kind.differ and np.unique(array).size < array.shape[0]:
            raise ModelFormatError(f"the array {name!r} names a row twice")


def _kind_of(
    name: str, arrays: Arrays, problems: Sequence[Problem], states: Sequence[Weights], group_rows: Sequence[int]
) -> Kind | None:
    number, *way = name.split(".")
    if not (number.isdecimal() and int(number) < len(problems) and way):
        return None
    problem, state = problems[int(number)], states[int(number)]
    beside = arrays.get(f"{name.rpartition('.')[0]}.{AS_LONG.get(way[-1])}")
    length = None if beside is None or not beside.shape else int(beside.shape[0])
    if way[0] == "gathered":
        return _of_gathered(way[1:], arrays.get(f"{number}.gathered.sizes"), group_rows)
    if not way[0].isdecimal():
        return _of_problem(way, problem, state, length)
    group = int(way[0])
    return _of_group(way[1:], problem, state, length, group_rows[group]) if group < len(group_rows) else None


def _of_problem(way: list[str], problem: Problem, state: Weights, length: int | None) -> Kind | None:
    match way:
        case ["state" | "best", field]:
            return _of_state(field, problem, state, length)
        case ["best"]:
            return _of_state("weights", problem, state, None)
        case ["dual_weights"]:
            return Kind(FLOAT64, state.weights.shape)
        case ["velocity"] if (rule := problem.setting.rule) is not None and rule.momentum is not None:
            return Kind(FLOAT64, rule.momentum.moving(state).shape)
    return None


def _of_gathered(way: list[str], sizes: np.ndarray | FiledArray | None, group_rows: Sequence[int]) -> Kind | None:
    """Rows of each group, and what these came to, one group after another."""
    match way:
        case ["sizes"]:
            return Kind(INT64, (len(group_rows),), below=max(group_rows) + 1)
        case [field] if field in Solved._fields:
            return Kind(FLOAT64, (int(sizes.sum()) if isinstance(sizes, np.ndarray) else None,))
    return None


def _of_group(way: list[str], problem: Problem, state: Weights, length: int | None, rows: int) -> Kind | None:
    match way:
        case ["shared", field] | ["start", "shared", field]:
            return _of_state(field, problem, state, length)
        case ["rows", _] | ["start", "rows", _]:
            return Kind(FLOAT64, (rows, *problem.setting.row_shape))
        case ["set", "ids" | "sent"]:
            return Kind(INT64, (length,), below=rows, differ=True)
        case ["set", "lengths"]:
            return Kind(INT64, (length,), below=np.iinfo(np.int64).max)
        case ["set", field] if (like := getattr(NOBODY, field, None)) is not None:
            return Kind(like.dtype, like.shape if like.size else (length,))
        case ["figures"]:
            return Kind(FLOAT64, (SUMS,), SUMS + SCALES.size)
        case ["tried"]:
            return _of_state("weights", problem, state, None)
        case ["dual_weights"]:
            return Kind(FLOAT64, state.weights.shape)
        case ["stuck"]:
            return Kind(FLOAT64, (2,))
    return None


def _of_state(field: str, problem: Problem, state: Weights, length: int | None) -> Kind | None:
    """Slots of touched places come as they are needed; ``length`` : of those that stand beside them."""
    like = getattr(state, field, None)
    if not isinstance(like, np.ndarray):
        return None
    grows = problem.setting.places and field in ("weights", "classes")
    return Kind(like.dtype, (length,) if grows else like.shape)
