"""What a method is, as data and plain functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bigclf import large_pages
from bigclf.losses import LOSSES, Loss
from bigclf.mixing import MEAN, Rule


@dataclass(frozen=True)
class Param:
    """What the user sets: a number with default, bounds (``open_low``, ``open_high``: the bound itself is refused) and
    meaning, or one of ``choices``, which are names."""

    name: str
    default: Any
    low: float
    high: float
    doc: str
    open_low: bool = False
    open_high: bool = False
    integer: bool = False
    losses: tuple[str, ...] = ()  # those it has an effect with; none: every loss of the method
    penalties: tuple[str, ...] = ()  # likewise
    choices: tuple[str, ...] = ()

    def check(self, value: Any) -> Any:
        """The value as float or int, or a name of ``choices``; ValueError naming the parameter and its bounds
        otherwise."""
        if value is None and self.default is None:
            return None
        if self.choices:
            if not isinstance(value, str) or value not in self.choices:
                raise ValueError(f"{self.name} must be one of {', '.join(self.choices)}, not {value!r}")
            return value
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"{self.name} must be a number {self.bounds}, not {value!r}") from None
        inside = number > self.low if self.open_low else number >= self.low
        inside &= number < self.high if self.open_high else number <= self.high
        if not inside:  # so is NaN
            raise ValueError(f"{self.name}={value!r} is outside its bounds: {self.bounds}")
        if self.integer and number != int(number):
            raise ValueError(f"{self.name}={value!r} must be a whole number")
        return int(number) if self.integer else number

    def takes(self, value: Any) -> bool:
        """Whether ``value``, as a model's file has it, is one that ``check`` gives."""
        try:
            found = self.check(value)
        except (ValueError, OverflowError):
            return False
        return found is value or (type(value) in (int, float) and found == value)

    @property
    def bounds(self) -> str:
        """Such as ``0 < C <= 1e+30``."""
        low, high = ("<" if self.open_low else "<="), ("<" if self.open_high else "<=")
        return f"{self.low:g} {low} {self.name} {high} {self.high:g}"


def choice(name: str, choices: tuple[str, ...], doc: str) -> Param:
    """A parameter that takes one of ``choices``, the first by default."""
    return Param(name, choices[0], 0.0, 0.0, doc, choices=choices)


SHARES = ("rows", "uniform", "mistakes")


def by_shares(rule: Rule) -> dict[str, Rule]:
    """Copies weighed by their rows, alike, or by their updates, of a perceptron its mistakes."""
    return dict.fromkeys(SHARES, rule)


# What a read is to a method that takes its steps from sums over rows: the kernel learns, row by row in a drawn order;
# or it only adds; or it adds over rows that it has been over since, of which a share may do.
LEARN, SUM, AGAIN = "learn", "sum", "again"

SCHEDULES = ("auto", "fixed", "selective", "cached")


class Step(NamedTuple):
    """What a method made of the sums over all rows.

    primal, dual : an objective value and a bound on all of them, or None where this read does not tell; weights : the
    model's weights that ``primal`` is of, not touched again by the method; over : "" (another read is to follow),
    "done" (there is nothing left to do) or "stalled" (nothing more to gain in floating point); facts : figures of the
    step for the history; violation : of the optimality conditions, the largest in the weights.
    """

    primal: float | None = None
    dual: float | None = None
    weights: np.ndarray | None = None
    over: str = ""
    facts: dict[str, float] = {}
    violation: float | None = None


Both = Callable[[Callable[[], Any], Callable[[], Any]], tuple[Any, Any]]  # two pieces of work -> what each gives


def in_turn(one: Callable[[], Any], other: Callable[[], Any]) -> tuple[Any, Any]:
    """``Both`` on one core."""
    return one(), other()


class Given(NamedTuple):
    """What a method that collects goes on from, beside its state.

    found : what ``gather`` made, with what the blocks of all groups gave, in their order; it may be used up. tol : the
    relative gap that is asked for; entries : how many a collection has room for; idle : to be called now and then: it
    may raise to break off; late : whether the run's time is over, so that what has been found is to do; both : does
    two pieces of work that share nothing that they write, beside each other where there are cores for it.
    """

    found: Any
    tol: float
    entries: int
    idle: Callable[[], None] = lambda: None
    late: Callable[[], bool] = lambda: False
    both: Both = in_turn


@dataclass(frozen=True)
class TouchedForm:
    """How a method that learns all classes at once does so in a state of touched places (``bigclf.methods.touched``):
    functions as in ``Method``; needs : settings without which it would touch every class."""

    shared: Callable[[int, Any, dict[str, Any]], tuple]  # type: ignore[type-arg]
    bind: Callable[[dict[str, Any]], tuple]  # type: ignore[type-arg]
    update: Callable[..., Callable[..., Any]]
    mixings: Mapping[str, Rule]
    place: Callable[[Any, Any, Any], None]
    needs: Mapping[str, Any]


@dataclass(frozen=True)
class Method:
    """One learning algorithm, as data and plain functions.

    Attributes
    ----------
    shared : (number of features, dtype, settings) -> NamedTuple of arrays that all rows share. The first one is
        ``weights`` with axis 0 [feature + 1], the bias last; other arrays of that length have the feature axis too. Of
        a method that learns all classes at once axis 1 is [class], and ``settings["n_classes"]`` their number.
    rows : NamedTuple type of the per-row arrays (float64 [row] each, of a method that learns all classes at once
        [row, class]; zero at the start), or None.
    bind : settings (resolved parameters, ``penalty`` where there is a choice, ``bias`` as 1.0 or 0.0, ``free_bias``
        where that is known) -> NamedTuple the kernel reads.
    update : loss, as ``loss_of`` gives it (and, where there is a choice, penalty code) -> kernel
        ``(block, order, shared, rows, params, scores) -> Counts``.
    certify : loss -> kernel ``(block, shared, rows, params, dual_weights, length) -> (primal, dual)``, or None;
        length : ||weights||, which says how far rounded margins may be off.
    scaled : loss -> kernel ``(block, shared, params, length, scales, losses) -> None`` that adds to ``losses``
        [scale] those of the weights times each of ``scales``, never too small; or None.
    weights : (shared, params) -> the model's weights [feature + 1] or [feature + 1, class], bias last.
    place : (shared, weights, params) -> None: begin with such weights of a model; None: it cannot.
    finish : (shared, params) -> None: at the end of an epoch, what was put off while the rows went by (regularisation
        of features that did not occur, a scale); None: nothing is. It must not change what ``weights`` gives.
    told : (shared, params) -> figures of a state for the history: bounds of the margin, the largest value; None: none.
    settles : whether the run ends with an epoch that learns from no row: nothing would change any more.
    threshold : whether the last of ``weights`` is a threshold, which stays where there is no bias.
    floored : (shared, params) -> share of the variances that stand at their floor, or None where there are none.
    along : loss -> kernel ``(block, order, rows, start, params) -> (gain, bend)`` for the line search on the
        dual along the summed steps of several groups, or None.
    within, value : loss -> kernels ``(block, rows, params)`` and ``(block, rows, params, t) -> float`` with which
        a problem begins from the dual variables of another: their intervals, and the rows' terms of the dual objective
        at t times them; None: every problem begins at zero.
    absorb : loss -> function (shared, params) -> Step, for methods that take a step after each read from sums over
        all rows (gradients, products with a Hessian): the kernel only adds to the arrays ``sums`` of ``shared``, so
        that the order of rows and groups has no part in it; this makes of them, in place, what the next read begins
        with. None: the kernel itself learns.
    forget : shared -> bool: after a read of some rows alone, lets go of what was summed over them, so that the read can
        be made anew; False: there is no such sum, ``absorb`` goes on from what was learned. None: reads are whole.
    sums : names of those arrays; reading : shared -> what the next read is, "learn", "sum" or "again".
    collect : (block, order, shared, params) -> what the read keeps of the block's rows ``order``, a NamedTuple of
        arrays, in place of a call of the kernel; or None in a read for sums. ``absorb`` is then by loss, and what
        it gives has a third argument, ``Given``, with what was kept of all blocks, for which
        gather : (shared, number of rows) -> something to ``append`` to.
        ``entry_bytes``, ``row_bytes``, ``column_bytes`` : what each takes there until ``absorb`` is done;
        ``piece_bytes`` : what an entry takes on its way from another group. None: the method needs sums alone.
    follow : (shared, weights, params, params before) -> None: begin with the weights of a problem that differs in C
        only; None: ``place`` does.
    climb : loss -> function that goes up the dual over the rows that can move, where rounds of the kernel stall,
        or None (``bigclf.methods.conjugate_gradients``).
    mixings : how copies are combined (``bigclf.mixing``), the default first, by the names the user may choose from:
        shares ("rows", "uniform", "mistakes"), what a rule of its own weighs by ("features", "precision", ...) or, for
        dual methods, what makes summed steps safe ("line_search", "safe"). Empty: the method runs with one group only.
    clocked : whether every row is a step of its rate or its regularisation, one without entries too.
    row_weights : "any" weights, or "binary" when only 0 and 1 have a meaning.
    epochs : most epochs of a certified method, fewest of an online one, where the user says nothing.
    multiclass : what it learns: two classes ("binary"), more of them as so many problems ("one-vs-rest"), or all at
        once ("native"), where labels are codes of classes to its kernel.
    native : the method that learns all classes at once in its place, or None.
    touched : how it learns where weights of every feature and class do not fit in memory, or None.
    in_pieces : whether rows gone over in several calls of the kernel give the bits of one call.
    separates : whether on rows that a vector separates the mistakes come to an end.
    bounded : whether what was learned from the others outlives a row of huge norm; False where a step is as long as its
        row (of ``narow``: of theta), or all values are divided by the largest.
    linear : whether the answer is its weights; else the model decides by the state that it keeps.
    judges_by_answer : whether rows are judged by the weights of the answer, before they are learned from.
    """

    name: str
    title: str
    paper: str
    formula: str
    shared: Callable[[int, Any, dict[str, Any]], tuple]  # type: ignore[type-arg]
    bind: Callable[[dict[str, Any]], tuple]  # type: ignore[type-arg]
    update: Callable[..., Callable[..., Any]]
    params: tuple[Param, ...] = ()
    losses: tuple[str, ...] = ()
    rows: Any = None
    certify: Callable[[Any], Callable[..., Any]] | None = None
    scaled: Callable[[Any], Callable[..., Any]] | None = None
    weights: Callable[[Any, Any], np.ndarray] = lambda shared, params: shared.weights
    place: Callable[[Any, np.ndarray, Any], None] | None = lambda shared, weights, params: np.copyto(
        shared.weights, weights, casting="same_kind"
    )
    finish: Callable[[Any, Any], None] | None = None
    floored: Callable[[Any, Any], float] | None = None
    told: Callable[[Any, Any], dict[str, float]] | None = None
    settles: bool = False
    threshold: bool = False
    along: Callable[[Any], Callable[..., Any]] | None = None
    within: Callable[[Any], Callable[..., Any]] | None = None
    value: Callable[[Any], Callable[..., Any]] | None = None
    climb: Callable[[Any], Callable[..., int] | None] | None = None
    absorb: Callable[[Any], Callable[..., Step]] | None = None
    forget: Callable[[Any], bool] | None = None
    sums: tuple[str, ...] = ()
    reading: Callable[[Any], str] = lambda shared: LEARN
    collect: Callable[[Any, np.ndarray, Any, Any], Any] | None = None
    gather: Callable[[Any, int], Any] | None = None
    entry_bytes: int = 0
    piece_bytes: int = 0
    row_bytes: int = 0
    column_bytes: int = 0
    follow: Callable[[Any, np.ndarray, Any, Any], None] | None = None
    mixings: Mapping[str, Rule] = field(default_factory=lambda: by_shares(MEAN))
    mixing: str = "mean by rows, uniform or by mistakes"
    clocked: bool = False
    row_weights: str = "any"
    weight_meaning: str = ""
    epochs: int = 5
    tol: float | None = None
    bias: tuple[str, ...] = ("feature", "none")
    multiclass: tuple[str, ...] = ("binary", "one-vs-rest")
    native: str | None = None
    touched: TouchedForm | None = None
    working_set: bool = False
    penalties: tuple[str, ...] = ()
    in_pieces: bool = True
    separates: bool = True
    bounded: bool = True
    judges_by_answer: bool = True
    linear: bool = True

    @property
    def certificate(self) -> bool:
        """Whether an answer comes with a duality gap, so that ``tol`` has a meaning."""
        return self.certify is not None or self.absorb is not None

    @property
    def asked(self) -> str:
        """How a person asks for it: ``algo='pa1'``, for all classes at once ``algo='pa1', multiclass='native'``."""
        base = self.name.removesuffix("_mc")
        return f"algo={base!r}" + ("" if base == self.name else ", multiclass='native'")

    @property
    def all_classes(self) -> bool:
        """Whether one problem has all classes."""
        return self.multiclass == ("native",)

    def loss_of(self, name: str | None) -> Loss | None:
        """What its functions are given for a loss by name: the record; None for a method that is its own loss."""
        return LOSSES[name] if name is not None else None


def zeros(kind: type, n_features: int, dtype: Any, settings: dict[str, Any]) -> Any:
    """A state whose one array is ``weights``."""
    return kind(large_pages.zeros(n_features + 1, dtype))
