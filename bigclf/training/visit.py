"""A visit: one problem's kernel over one group's part of an epoch, as data.

``Visit`` says everything that a visit depends on but the arrays, ``Outcome`` is what comes of it. A learner
(``roles.learner``) does the work: a pure function of its state, the plan, the seed and the numbers of epoch and
segment, so that it may be done again anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bigclf.compiled import large_pages
from bigclf.compiled.jit import inner
from bigclf.compiled.lanes import LANES
from bigclf.errors import ModelFormatError
from bigclf.maths.block import Block, Counts, gather_rows, room_for_rows, rows_of
from bigclf.maths.mixing import settled
from bigclf.maths.side_by_side import margins_of
from bigclf.stream.row_files import Between, FiledArray

STILL = "certify", "last"  # visits in which nothing is learned
# What the weights of a run that may end before it is done are tried with: 0 and powers of two, which round nothing.
SCALES = np.array([0.0, *(0.5**k for k in range(17))])
FEW = 4  # of so many rows one may be copied, to lie beside others that are gone over again
HALF_IS_NO_BETTER = 0.25  # times ||w||^2: most of P'(1), since P(1/2) >= P(1) - P'(1) / 2 + ||w||^2 / 8


class Ref(NamedTuple):
    """What a group goes on from: the attempt whose result was taken, and how far along its step the row state went
    (for each problem; empty: all the way)."""

    token: str
    steps: tuple[float, ...] = ()


class Solved(NamedTuple):
    """What the rows of a group's working set came to elsewhere, in the order of its arena: float64 [row] each."""

    alpha: np.ndarray
    scores: np.ndarray


class Lesson(NamedTuple):
    """What a visit is told of one problem.

    number : of the problem; certify : whether the read certifies its weights; aim : the relative gap that its inner
    rounds aim at; known : its best primal and dual objective so far; estimate : of its gap; sigma : how many times each
    step of a group counts while it is away from the others; begins : it now begins with the dual variables of others
    (``Problem.start``); beat : the primal objective that its weights at the start times one of ``SCALES`` may beat, or
    None: they are not tried; holds : these weights are given back where the epoch ends before its last segment.
    solved : of each group that is visited, what its working set's rows came to (none: they are as it has them); anew :
    whoever solves them has none of these rows. most : the share of the rows that may move after a pass; where it is
    more, a run that is only tried (``give_up`` of ``Run`` has ``most``) ends there, without rounds.
    """

    number: int
    certify: bool = False
    aim: float = 0.0
    known: tuple[float, float] = (np.inf, -np.inf)
    estimate: float = 1.0
    sigma: float = 1.0
    begins: bool = False
    beat: float | None = None
    holds: bool = False
    solved: tuple[Solved, ...] = ()
    anew: bool = False
    most: float = np.inf


class Visit(NamedTuple):
    """Everything a visit depends on but arrays.

    kind : "update"; "certify" (nothing is learned); "last" (likewise, and the losses of scaled weights are added up);
    "close" (the epoch ends before its last segment). epoch, segment :
    numbers.
    first, last : the groups first:last (more than one: a bundle, joined where it is computed).
    lessons : one for each problem still learned.
    version : of the common state; refs : of each group, what it goes on from (None: its beginning).
    """

    kind: str
    epoch: int
    segment: int
    first: int
    last: int
    lessons: tuple[Lesson, ...]
    version: int
    refs: tuple[Ref | None, ...]

    @property
    def todo(self) -> tuple[int, ...]:
        """Numbers of the problems still learned."""
        return tuple(lesson.number for lesson in self.lessons)


class Part(NamedTuple):
    """What a visit leaves of one problem.

    state : NamedTuple of arrays, or its ``Delta`` to the common state; dual : sum of a_i y_i x_i over the group as it
    was at the start of the read, in the shape of the weights, or its ``Delta`` to zeros, or, of rows that stay in
    memory, its ``Lengths`` alone, or None; figures : see ``Figures``; certified : the weights at the start of the read
    where the state has overwritten them, their squared norm alone where others are known to be better, or None; found :
    what the method collected, one of several groups a list with what each block gave, else what its ``gather`` made of
    it, or None.
    """

    state: Any
    dual: Any
    figures: np.ndarray
    certified: np.ndarray | float | None = None
    found: Any = None


class Lengths(NamedTuple):
    """Of v = sum a_i y_i x_i beside the weights w: ||v||^2 and <v, w>."""

    square: float
    across: float


class DualSum(NamedTuple):
    """weights : float64 [feature + 1] or [feature + 1, class], sum of a_i y_i x_i."""

    weights: np.ndarray


class Tried(NamedTuple):
    """weights : [feature + 1] or [feature + 1, class], whose losses are added up times each of ``SCALES``."""

    weights: np.ndarray


class Sums(NamedTuple):
    """values : float64, figures that add up over groups."""

    values: np.ndarray


class RowFile(NamedTuple):
    """Row state in the run directory, as a visit left it: name of the file, digest of its tensors, and how far along
    its step each problem went since (empty: all the way)."""

    name: str
    digest: str
    steps: tuple[float, ...] = ()


class Carry(NamedTuple):
    """What a group keeps from visit to visit: rows : of each problem its arrays with a row axis, or the file that has
    them; shared : of each problem its other arrays in the middle of an epoch, or None between two epochs."""

    rows: list[dict[str, np.ndarray]] | RowFile
    shared: list[dict[str, np.ndarray]] | None


class Outcome(NamedTuple):
    """What came of a visit to the groups first:last: parts of each problem still learned after the last segment (else
    none), the ``Carry`` where it has to travel, and facts: rows, bytes_read, rounds, set_rows, rebuilt, seconds, and of
    these those in which it waited for data; bytes decoded. joined : what all groups came to together, with the last
    outcome of a round, where the engine joins that itself; then the parts have no state."""

    first: int
    last: int
    token: str
    parts: list[Part]
    carry: Carry | None
    facts: dict[str, Any]
    joined: list[Part] = []


class Tally:
    """Sums of the counts of an epoch."""

    def __init__(self) -> None:
        self.rows = self.mistakes = self.updates = 0
        self.loss = self.gap = 0.0

    def add(self, counts: Counts | Tally) -> None:
        """Counts of a kernel, or another tally."""
        self.rows += counts.rows
        self.mistakes += counts.mistakes
        self.updates += counts.updates
        self.loss += counts.loss
        self.gap += counts.gap

    def array(self) -> np.ndarray:
        """float64 [5], exact for counts below 2^53."""
        return np.array([self.rows, self.mistakes, self.updates, self.loss, self.gap], np.float64)

    @classmethod
    def of(cls, array: np.ndarray) -> Tally:
        tally = cls()
        tally.rows, tally.mistakes, tally.updates = (int(x) for x in array[:3])
        tally.loss, tally.gap = float(array[3]), float(array[4])
        return tally


class Figures(NamedTuple):
    """The sums of an epoch: over the rows that streamed, over the working set, of the certificate (primal, dual), of
    the row state's step (gain, bend; see ``line_search``), of the shares, and of shares times mistakes; losses of the
    weights times each of ``SCALES``, where they are tried."""

    tally: Tally
    set_tally: Tally
    primal: float
    dual: float
    gain: float
    bend: float
    share: float
    mixed_mistakes: float
    scaled: tuple[float, ...] = ()

    def array(self) -> np.ndarray:
        """float64 [16], and those of the scales"""
        return np.concatenate([self.tally.array(), self.set_tally.array(), self[2:8], self.scaled])

    @classmethod
    def of(cls, array: np.ndarray) -> Figures:
        primal, dual, gain, bend, share, mistakes = (float(x) for x in array[10:16])
        scaled = tuple(float(x) for x in array[16:])
        return cls(Tally.of(array[:5]), Tally.of(array[5:10]), primal, dual, gain, bend, share, mistakes, scaled)

    def estimated_gap(self, weights: np.ndarray, before: float = np.inf) -> float:
        """Relative gap at the end of the epoch as its counts make it look: it steers, it certifies nothing.

        ``before`` : the gap that the rows showed in the epoch before.
        """
        primal = self.tally.loss + self.set_tally.loss + 0.5 * square_of(weights)
        left = self.tally.gap if before == np.inf else gap_after(self.tally.gap, before)
        return (left + self.set_tally.gap) / primal if primal > 0 else 0.0


def square_of(weights: np.ndarray) -> float:
    """||w||^2, of all classes."""
    flat = weights.reshape(-1)
    return float(inner(flat, flat))


def regularised_square(weights: np.ndarray, params: object) -> float:
    """||w||^2; a free bias has no part in it."""
    square = square_of(weights)
    if getattr(params, "free", 0.0):
        last = float(weights.reshape(-1)[-1])
        square = max(0.0, square - last * last) if square < np.inf else square
    return square


def primals_of(weights: np.ndarray, params: object, losses: np.ndarray) -> np.ndarray:
    """P(t w) = t^2/2 ||w||^2 + sum_i C_i loss(t m_i) for each t of ``SCALES``."""
    primals = losses.copy()
    square = regularised_square(weights, params)
    primals[1:] += 0.5 * SCALES[1:] * SCALES[1:] * square  # of 0 times inf nothing is known
    return primals


def objectives(
    primal: float, dual: float, weights: np.ndarray | float, dual_weights: np.ndarray | Lengths
) -> tuple[float, float]:
    """P(w0) and D(alpha) from the sums over rows, w0 and v = sum a_i y_i x_i, or their squared norms in their place."""
    square = weights if isinstance(weights, float) else square_of(weights)
    of_dual = dual_weights.square if isinstance(dual_weights, Lengths) else square_of(dual_weights)
    return primal + 0.5 * square, dual - 0.5 * of_dual


def lengths_of(dual_weights: np.ndarray, weights: np.ndarray) -> Lengths:
    """``Lengths`` of arrays of one shape."""
    flat = dual_weights.reshape(-1)
    return Lengths(float(inner(flat, flat)), float(inner(flat, weights.reshape(-1))))


class Scratch:
    """Memory that every learner of a group uses in turn: what is allocated anew for each block the system takes back
    after it, and clears page by page for the next."""

    def __init__(self, rows: int) -> None:
        self._scores, self._order = np.empty(rows), np.empty(rows, np.int64)
        self._labels, self._weights, self._members = np.empty(0), np.empty(0), np.empty(0, np.int64)
        self._tile = self._margins = np.empty((0, LANES))
        self._few: Block | None = None

    def scores(self, n: int) -> np.ndarray:
        if n > self._scores.size:
            self._scores = np.empty(n)
        return self._scores[:n]

    def order(self, n: int) -> np.ndarray:
        if n > self._order.size:
            self._order = np.empty(n, np.int64)
        return self._order[:n]

    def members(self, n: int) -> np.ndarray:
        if n > self._members.size:
            self._members = np.empty(n, np.int64)
        return self._members[:n]

    def view(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Of labels and weights."""
        if n > self._labels.size:
            self._labels, self._weights = np.empty(n), np.empty(n)
        return self._labels[:n], self._weights[:n]

    def few(self, view: Block, rows: np.ndarray) -> Block | None:
        """A copy of some of the rows, which then lie together; None: they are more than one in ``FEW``."""
        n, entries = view.n_rows // FEW, view.nnz // FEW
        if rows.size > n or int((view.indptr[rows + 1] - view.indptr[rows]).sum()) > entries:
            return None
        if self._few is None or self._few.labels.size < n or self._few.indices.size < entries:
            self._few = room_for_rows(view, n, entries)
        gather_rows(view, rows, self._few)
        return rows_of(self._few, 0, rows.size)

    def margins(self, block: Block, weights: Sequence[np.ndarray]) -> np.ndarray:
        """w_k . x_i without the bias, float64 [row, 8], of at most eight ``weights`` [feature + 1]."""
        if self._tile.shape[0] < weights[0].size:
            self._tile = np.zeros((weights[0].size, LANES))
        if self._margins.shape[0] < block.n_rows:
            self._margins = np.empty((block.n_rows, LANES))
        return margins_of(block, weights, self._tile, self._margins)


def gap_after(seen: float, before: float) -> float:
    """The gap at the end of a pass in which the rows showed ``seen``, each as it was visited, and ``before`` in the
    pass before: of a gap that falls by the same factor f in each pass, about sqrt(f) is still to come."""
    seen = max(0.0, seen)  # rounding
    return seen * min(1.0, seen / before) ** 0.5 if before > 0 else seen


def named_rows(number: int, group: int, held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of a problem in a group under the names they have in a file."""
    return {f"{number}.{group}.{name}": array for name, array in held.items()}


def settled_rows(held: dict[str, np.ndarray], steps: tuple[float, ...]) -> dict[str, np.ndarray]:
    """The row state of a group from a file that has it before and after its step: names ``problem.group.rows.alpha``
    and ``problem.group.before.rows.alpha``."""
    rows = {}
    for name, array in held.items():
        number, group, rest = name.split(".", 2)
        if rest.startswith("before."):
            continue
        before = held.get(f"{number}.{group}.before.{rest}")
        if before is not None and (before.shape != array.shape or before.dtype != array.dtype):
            was, now = (f"{a.dtype} {list(a.shape)}" for a in (before, array))
            raise ModelFormatError(f"the array {name!r} is {now}, and before its step {was}")
        t = steps[int(number)] if steps and before is not None else 1.0
        rows[name] = array if before is None or t == 1.0 else _settled(before, array, t)
    return rows


def _settled(before: Any, after: Any, t: float) -> Any:
    if isinstance(after, FiledArray):
        return FiledArray(after.edges, Between(before, after, t), after.shape[1:])
    return settled(before, after, t)


def copied(state: Any, into: Any) -> Any:
    """A copy of a state, in the arrays of ``into`` where there are any."""
    if not state:
        return ()
    if not into:
        return type(state)(*map(_copy, state))
    return type(state)(*map(copied_array, state, into))


def copied_array(array: np.ndarray, into: np.ndarray) -> np.ndarray:
    """A copy, in the memory of ``into`` where it has the shape."""
    if into.shape != array.shape:  # of a state that has grown
        return _copy(array)
    np.copyto(into, array)
    return into


def _copy(array: Any) -> Any:
    return large_pages.copied(array) if isinstance(array, np.ndarray) else array.copy()
