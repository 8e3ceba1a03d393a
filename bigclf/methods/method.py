"""What a method is, as data and plain functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from bigclf.compiled import large_pages
from bigclf.maths.losses import LOSSES, Loss
from bigclf.maths.mixing import MEAN, Momentum, Rule

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


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
    several: Any = None  # the default in several groups, where it is another

    def default_in(self, groups: int) -> object:
        """The default with so many groups."""
        return self.default if groups == 1 or self.several is None else self.several

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

    def takes(self, value: object) -> bool:
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


def by_momentum(rule: Rule, momentum: Momentum) -> dict[str, Rule]:
    """Copies weighed by their rows, and what they come to goes on."""
    return {"momentum": rule._replace(momentum=momentum)}


# What a read is to a method that takes its steps from sums over rows: the kernel learns, row by row in a drawn order;
# or it only adds; or it adds over rows that it has been over since, of which a share may do.
LEARN, SUM, AGAIN = "learn", "sum", "again"

SCHEDULES = ("auto", "fixed", "selective", "cached")


class Step(NamedTuple):
    """What a method made of the sums over all rows.

    primal, dual : an objective value and a bound on all of them, or None where this read does not tell; weights : the
    model's weights that ``primal`` is of, not touched again by the method; over : "" (another read is to follow),
    "done" (there is nothing left to do) or "stalled" (the gap falls no further); facts : figures of the
    step for the history; violation : of the optimality conditions, the largest in the weights.
    """

    primal: float | None = None
    dual: float | None = None
    weights: np.ndarray | None = None
    over: str = ""
    facts: dict[str, float] = {}
    violation: float | None = None


T = TypeVar("T")
U = TypeVar("U")


Numbers: TypeAlias = Mapping[str, float]  # settings as a kernel's numbers are made of them


class Both(Protocol):
    """Does two pieces of work; what each gives."""

    def __call__(self, one: Callable[[], T], other: Callable[[], U]) -> tuple[T, U]: ...


def in_turn(one: Callable[[], T], other: Callable[[], U]) -> tuple[T, U]:
    """``Both`` on one core."""
    return one(), other()


class Given(NamedTuple):
    """What a method that collects goes on from, beside its state.

    found : what ``gather`` made, with what the blocks of all groups gave, in their order; it may be used up. tol : the
    relative gap that is asked for; entries : how many a collection has room for; idle : to be called now and then: it
    may raise to break off; late : whether the run's time is over, so that what has been found is to do; both : does
    two pieces of work that share nothing that they write, beside each other where there are cores for it; resident :
    whether the rows stay in memory, so that a further read is cheap.
    """

    found: Any
    tol: float
    entries: int
    idle: Callable[[], None] = lambda: None
    late: Callable[[], bool] = lambda: False
    both: Both = in_turn
    resident: bool = False


@dataclass(frozen=True)
class TouchedForm:
    """How a method that learns all classes at once does so in a state of touched places (``sparse_state``):
    functions as in ``Method``; needs : settings without which it would touch every class."""

    shared: Callable[[int, Any, dict[str, Any]], tuple]  # type: ignore[type-arg]
    bind: Callable[[dict[str, Any]], tuple]  # type: ignore[type-arg]
    update: Callable[..., Callable[..., Any]]
    mixings: Mapping[str, Rule]
    place: Callable[[Any, Any, Any], None]
    needs: Mapping[str, Any]


def _place(shared: Any, weights: np.ndarray, params: object) -> None:
    np.copyto(shared.weights, weights, casting="same_kind")


@dataclass(frozen=True)
class Form:
    """What the state of a method is.

    Attributes
    ----------
    shared : (number of features, dtype, settings) -> NamedTuple of arrays that all rows share. The first one is
        ``weights`` with axis 0 [feature + 1], the bias last; other arrays of that length have the feature axis too. Of
        a method that learns all classes at once axis 1 is [class], and ``settings["n_classes"]`` their number.
    bind : settings (resolved parameters, ``penalty`` where there is a choice, ``bias`` as 1.0 or 0.0, ``free_bias``
        where that is known) -> NamedTuple the kernel reads.
    weights : (shared, params) -> the model's weights [feature + 1] or [feature + 1, class], bias last.
    place : (shared, weights, params) -> None: begin with such weights of a model; None: it cannot.
    finish : (shared, params) -> None: at the end of an epoch, what was put off while the rows went by (regularisation
        of features that did not occur, a scale); None: nothing is. It must not change what ``weights`` gives.
    told : (shared, params) -> figures of a state for the history: bounds of the margin, the largest value; None: none.
    floored : (shared, params) -> share of the variances that stand at their floor, or None where there are none.
    mixings : how copies are combined (``maths/mixing.py``), the default first, by the names the user may choose from:
        shares ("rows", "uniform", "mistakes"), what a rule of its own weighs by ("features", "precision", ...) or, for
        dual methods, what makes summed steps safe ("line_search", "safe"). Empty: the method runs with one group only.
    mixing : the same in words.
    threshold : whether the last of ``weights`` is a threshold, which stays where there is no bias.
    judges_by_answer : whether rows are judged by the weights of the answer, before they are learned from.
    touched : how it learns where weights of every feature and class do not fit in memory, or None.
    """

    shared: Callable[[int, Any, dict[str, Any]], tuple]  # type: ignore[type-arg]
    bind: Callable[[dict[str, Any]], tuple]  # type: ignore[type-arg]
    weights: Callable[[Any, Any], np.ndarray] = lambda shared, params: shared.weights
    place: Callable[[Any, np.ndarray, Any], None] | None = _place
    finish: Callable[[Any, Any], None] | None = None
    told: Callable[[Any, Any], dict[str, float]] | None = None
    floored: Callable[[Any, Any], float] | None = None
    mixings: Mapping[str, Rule] = field(default_factory=lambda: by_shares(MEAN))
    mixing: str = "mean by rows, uniform or by mistakes"
    threshold: bool = False
    judges_by_answer: bool = True
    touched: TouchedForm | None = None

    @property
    def needs(self) -> Mapping[str, Any] | None:
        """The settings without which a state of touched places is no use; None: there is no such state."""
        return None if self.touched is None else self.touched.needs

    @property
    def has_variances(self) -> bool:
        """Whether a state has a variance beside each mean."""
        return self.floored is not None

    def share_at_floor(self, shared: object, params: object) -> float:
        """The share of the variances that stand at their floor; 0 where there are none."""
        return 0.0 if self.floored is None else self.floored(shared, params)

    @property
    def begins_anywhere(self) -> bool:
        """Whether it can begin with any weights."""
        return self.place is not None

    def figures(self, shared: object, params: object) -> dict[str, float]:
        """What ``told`` says of a state, or nothing."""
        return {} if self.told is None else self.told(shared, params)

    def end_epoch(self, shared: object, params: object) -> None:
        """What ``finish`` does, if anything."""
        if self.finish is not None:
            self.finish(shared, params)


@dataclass(frozen=True)
class Online:
    """A method whose kernel learns row by row, and whose copies are mixed between passes.

    Attributes
    ----------
    update : loss (and, where there is a choice, penalty code) -> kernel
        ``(block, order, shared, rows, params, scores) -> Counts``.
    clocked : whether every row is a step of its rate or its regularisation, one without entries too.
    in_pieces : whether rows gone over in several calls of the kernel give the bits of one call.
    """

    update: Callable[..., Callable[..., Any]]
    clocked: bool = False
    in_pieces: bool = True

    rows: ClassVar[Any] = None


@dataclass(frozen=True)
class Dual:
    """A method whose kernel moves dual variables that it keeps of each row, over rows out of a working set too.

    Attributes
    ----------
    update : as of ``Online``.
    rows : NamedTuple type of the per-row arrays (float64 [row] each, of a method that learns all classes at once
        [row, class]; zero at the start).
    certify : loss -> kernel ``(block, shared, rows, params, dual_weights, length) -> (primal, dual)``; length :
        ||weights||, which says how far rounded margins may be off.
    scaled : loss -> kernel ``(block, shared, params, length, scales, losses) -> slope`` that adds to ``losses``
        [scale] those of the weights times each of ``scales``, never too small, and gives their derivative at the first.
    along : loss -> kernel ``(block, order, rows, start, params) -> (gain, bend)`` for the line search on the dual along
        the summed steps of several groups.
    within, value : loss -> kernels ``(block, rows, params)`` and ``(block, rows, params, t) -> float`` with which a
        problem begins from the dual variables of another: their intervals, and the rows' terms of the dual objective at
        t times them.
    climb : loss -> function that goes up the dual over the rows that can move, where rounds of the kernel stall, or
        None (``bigclf.methods.dual.conjugate_gradients``).
    span : loss -> kernels of steps over the span of what the last rounds did, or None
        (``bigclf.methods.dual.subspace_ascent``).
    judge : loss -> kernel ``(block, margins, place, shared, rows, params, scores) -> Counts`` that says of rows whose
        margins are known what ``update`` says, and moves none; None: margins are not made for several problems at once.
    """

    update: Callable[..., Callable[..., Any]]
    rows: Any
    certify: Callable[[Any], Callable[..., Any]]
    scaled: Callable[[Any], Callable[..., Any]]
    along: Callable[[Any], Callable[..., Any]]
    within: Callable[[Any], Callable[..., Any]]
    value: Callable[[Any], Callable[..., Any]]
    climb: Callable[[Any], Callable[..., int] | None]
    span: Callable[[Any], Any] = lambda loss: None
    judge: Callable[[Any], Callable[..., Any]] | None = None


class CollectedBytes(NamedTuple):
    """Bytes of an entry that is collected, of one on its way from another group, of a row and of a column."""

    entry: int = 0
    piece: int = 0
    row: int = 0
    column: int = 0


@dataclass(frozen=True)
class Collection:
    """What a method keeps of rows during a read, to take a step on it.

    Attributes
    ----------
    collect : loss -> function (block, order, shared, params) -> what the read keeps of the block's rows ``order``, a
        NamedTuple of arrays, in place of a call of the kernel; or None in a read for sums.
    gather : loss -> function (shared, number of rows) -> something to ``append`` to, which ``Steps.absorb`` gets in
        ``Given``.
    entry_bytes, row_bytes, column_bytes : what each takes there until ``absorb`` is done; piece_bytes : what an entry
        takes on its way from another group.
    """

    collect: Callable[[Any], Callable[[Any, np.ndarray, Any, Any], Any]]
    gather: Callable[[Any], Callable[[Any, int], Any]]
    entry_bytes: int = 0
    piece_bytes: int = 0
    row_bytes: int = 0
    column_bytes: int = 0

    @property
    def taken(self) -> CollectedBytes:
        """These four together."""
        return CollectedBytes(self.entry_bytes, self.piece_bytes, self.row_bytes, self.column_bytes)


# Where a group has the per-row arrays from that a read goes on from: from its last read; from nowhere, the read makes
# them; or they are those that a read makes at the point (``Steps.again``).
KEPT, MADE, AT_POINT = "kept", "made", "at point"


class Way(NamedTuple):
    """What of a state travels for a read of a group: names of the arrays that it needs (``down``), of the sums that it
    makes (``up``) and of what else it changes (``own``), which stays there; rows : ``KEPT``, ``MADE`` or
    ``AT_POINT``."""

    down: tuple[str, ...]
    up: tuple[str, ...]
    rows: str
    own: tuple[str, ...] = ()


class PathPoint(NamedTuple):
    """A problem of a path: its state and numbers; whether a step was taken of it, and whether it is over."""

    state: Any
    params: Any
    begun: bool
    ended: bool


@dataclass(frozen=True)
class Batches:
    """How points of a path are solved on one collection, and certified by one read.

    Attributes
    ----------
    losses : those it is for.
    choose : (points by ascending C, entries) -> None: after reads for sums, which points go on from the next
        collection, and with what columns; entries : as of ``Given``.
    joined : shared -> whether the state goes on from a collection of several.
    solved : shared -> whether its weights are from a collection, so that the next read tells how good they are.
    """

    losses: tuple[str, ...]
    choose: Callable[[Sequence[PathPoint], int], None]
    joined: Callable[[Any], bool]
    solved: Callable[[Any], bool]


@dataclass(frozen=True)
class Steps:
    """A method that takes a step after each read, from what came together of all rows.

    Attributes
    ----------
    update : as of ``Online``; it adds to ``sums``, or learns first.
    absorb : loss -> function (shared, params) -> Step: makes of the sums (gradients, products with a Hessian), in
        place, what the next read begins with; with a ``collection`` its third argument is ``Given``.
    forget : shared -> bool: after a read of some rows alone, lets go of what was summed over them, so that the read can
        be made anew; False: there is no such sum, ``absorb`` goes on from what was learned. None: reads are whole.
    sums : names of the arrays of ``shared`` to which the kernel only adds, so that the order of rows and groups has no
        part in them; reading : shared -> what the next read is, "learn", "sum" or "again".
    way : shared -> ``Way`` of the next read; None: all of the state travels, and the per-row arrays are kept. again :
        shared -> a state of which a read makes the per-row arrays as they are at ``shared.point``.
    rows, scaled : as of ``Dual``, or None.
    follow : (shared, weights, params, params before, state before or None, entries) -> None: begin with the weights of
        a problem that differs in C only; its last state, where it is of those weights; entries : as of ``Given``. None:
        ``Form.place`` does. batches : for which points of a path a read may be made together; None: each has its own.
    collection : what reads keep of rows, or None: sums alone.
    aims : whether ``absorb`` without a collection has the argument ``Given`` too, for its ``tol``.
    room : number of features -> how many float64 the kernel wants for itself, in place of ``scores``.
    kinds : shared -> states that ask for each kind of read, where ``update`` chooses among kernels; None: it is one.
    callees : (loss, block, shared, params) -> calls of the kernels that ``update`` calls, for a block of no rows; None:
        none of them takes long to compile.
    in_runs : whether the parts of a group are runs of rows by their numbers, so that the bits do not depend on blocks;
        else each block is cut where its entries are halved.
    """

    update: Callable[..., Callable[..., Any]]
    absorb: Callable[[Any], Callable[..., Step]]
    forget: Callable[[Any], bool] | None = None
    sums: tuple[str, ...] = ()
    reading: Callable[[Any], str] = lambda shared: LEARN
    way: Callable[[Any], Way] | None = None
    again: Callable[[Any], Any] | None = None
    rows: Any = None
    scaled: Callable[[Any], Callable[..., Any]] | None = None
    follow: Callable[[Any, np.ndarray, Any, Any, Any, int], None] | None = None
    batches: Batches | None = None
    collection: Collection | None = None
    aims: bool = False
    room: Callable[[int], int] = lambda n_features: 0
    kinds: Callable[[Any], list[Any]] | None = None
    callees: Callable[..., list[Callable[[], object]]] | None = None
    in_runs: bool = False


Role = Online | Dual | Steps


@dataclass(frozen=True)
class Method:
    """One learning algorithm, as data and plain functions.

    Attributes
    ----------
    form : what its state is; how : what a pass over the rows does, and what is done between passes.
    settles : whether the run ends with an epoch that learns from no row: nothing would change any more.
    row_weights : "any" weights, or "binary" when only 0 and 1 have a meaning.
    epochs : most epochs of a certified method, fewest of an online one, where the user says nothing.
    multiclass : what it learns: two classes ("binary"), more of them as so many problems ("one-vs-rest"), or all at
        once ("native"), where labels are codes of classes to its kernel.
    native : the method that learns all classes at once in its place, or None.
    separates : whether on rows that a vector separates the mistakes come to an end.
    bounded : whether what was learned from the others outlives a row of huge norm; False where a step is as long as its
        row (of ``narow``: of theta), or all values are divided by the largest.
    linear : whether the answer is its weights; else the model decides by the state that it keeps.
    instead : what to take where there is no room for its state, where that is more than weights.
    """

    name: str
    title: str
    paper: str
    formula: str
    form: Form
    how: Role
    params: tuple[Param, ...] = ()
    losses: tuple[str, ...] = ()
    penalties: tuple[str, ...] = ()
    bias: tuple[str, ...] = ("feature", "none")
    row_weights: str = "any"
    weight_meaning: str = ""
    epochs: int = 5
    tol: float | None = None
    multiclass: tuple[str, ...] = ("binary", "one-vs-rest")
    native: str | None = None
    settles: bool = False
    separates: bool = True
    bounded: bool = True
    linear: bool = True
    instead: str = ""

    @property
    def certificate(self) -> bool:
        """Whether an answer comes with a duality gap, so that ``tol`` has a meaning."""
        return not isinstance(self.how, Online)

    @property
    def by_steps(self) -> bool:
        """Whether a step is taken between reads."""
        return isinstance(self.how, Steps)

    @property
    def by_duals(self) -> bool:
        """Whether that gap is from dual variables, by a sum over the rows of its own."""
        return isinstance(self.how, Dual)

    @property
    def judges(self) -> bool:
        """Whether rows can be judged by margins that are made for several problems at once."""
        return isinstance(self.how, Dual) and self.how.judge is not None

    @property
    def by_sums(self) -> bool:
        """Whether its passes over the rows add up, in any order."""
        return isinstance(self.how, Steps) and bool(self.how.sums)

    @property
    def collects(self) -> bool:
        """Whether reads keep rows for its steps."""
        return isinstance(self.how, Steps) and self.how.collection is not None

    @property
    def collected(self) -> CollectedBytes:
        """What a collection takes."""
        kept = self.how.collection if isinstance(self.how, Steps) else None
        return CollectedBytes() if kept is None else kept.taken

    @property
    def keeps_rows(self) -> bool:
        """Whether it keeps numbers of each row."""
        return self.how.rows is not None

    @property
    def by_way(self) -> bool:
        """Whether it says what of its state travels for a read."""
        return isinstance(self.how, Steps) and self.how.way is not None

    @property
    def goes_on_elsewhere(self) -> bool:
        """Whether it can begin with the answer of a problem of another C."""
        return isinstance(self.how, Steps) and self.form.begins_anywhere and not self.all_classes

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


def online(**words: object) -> Method:
    """A method of the role ``Online`` from the words of its form, of its role and its own, in one list."""
    return _declared(Online, words)


def dual(**words: object) -> Method:
    """Likewise ``Dual``."""
    return _declared(Dual, words)


def steps(**words: Any) -> Method:
    """Likewise ``Steps``, with a collection where it has one."""
    kept = _taken(Collection, words)
    return _declared(Steps, words | ({"collection": Collection(**kept)} if kept else {}))


def _declared(role: type, words: dict[str, Any]) -> Method:
    return Method(form=Form(**_taken(Form, words)), how=role(**_taken(role, words)), **words)


def _taken(kind: type, words: dict[str, object]) -> dict[str, Any]:
    """Those of ``words`` that are fields of ``kind``, no longer among them."""
    return {field.name: words.pop(field.name) for field in fields(kind) if field.name in words}


def zeros(kind: type, n_features: int, dtype: DTypeLike, settings: dict[str, Any]) -> Any:
    """A state whose one array is ``weights``."""
    return kind(large_pages.zeros(n_features + 1, dtype))
