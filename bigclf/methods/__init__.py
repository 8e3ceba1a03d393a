"""The learning algorithms: what a method is, and the table of them.

A method is a file with its kernels and a line in ``METHODS``; the command line, the table that ``bigclf algorithms``
prints, the laws in the tests, mixing and checkpoints follow by themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bigclf import losses
from bigclf.methods import confidence_weighted as cw
from bigclf.methods import dual_coordinate_descent as dcd
from bigclf.methods import narrow_adaptive_regularisation as narow
from bigclf.methods import passive_aggressive as pa
from bigclf.methods import perceptron
from bigclf.mixing import AVERAGED, MEAN, PRECISION, SUM, Rule


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
    """Copies weighed by their rows, alike, or by their mistakes."""
    return dict.fromkeys(SHARES, rule)


SCHEDULES = ("auto", "fixed", "selective", "cached")


@dataclass(frozen=True)
class Method:
    """One learning algorithm, as data and plain functions.

    Attributes
    ----------
    shared : (number of features, dtype, settings) -> NamedTuple of arrays that all rows share. The first one is
        ``weights`` with axis 0 [feature + 1], the bias last; other arrays of that length have the feature axis too.
    rows : NamedTuple type of the per-row arrays (float64 [row] each, zero at the start), or None.
    bind : settings (resolved parameters, ``penalty`` where there is a choice, ``bias`` as 1.0 or 0.0, ``free_bias``
        where that is known) -> NamedTuple the kernel reads.
    update : loss code -> kernel ``(block, order, shared, rows, params, scores) -> Counts``.
    certify : loss code -> kernel ``(block, shared, rows, params, dual_weights) -> (primal, dual)``, or None.
    weights : (shared, params) -> the model's weights [feature + 1], bias last.
    place : (shared, weights, params) -> None: begin with the weights [feature + 1] of a model; None: it cannot.
    finish : (shared, params) -> None: at the end of an epoch, what was put off while the rows went by (regularisation
        of features that did not occur, a scale); None: nothing is. It must not change what ``weights`` gives.
    along : loss code -> kernel ``(block, order, rows, start, params) -> (gain, bend)`` for the line search on the
        dual along the summed steps of several groups, or None.
    within, value : loss code -> kernels ``(block, rows, params)`` and ``(block, rows, params, t) -> float`` with which
        a problem begins from the dual variables of another: their intervals, and the rows' terms of the dual objective
        at t times them; None: every problem begins at zero.
    mixings : how copies are combined (``bigclf.mixing``), the default first, by the names the user may choose from:
        shares ("rows", "uniform", "mistakes"), what a rule of its own weighs by ("features", "precision", ...) or, for
        dual methods, what makes summed steps safe ("line_search", "safe"). Empty: the method runs with one group only.
    row_weights : "any" weights, or "binary" when only 0 and 1 have a meaning.
    epochs : most epochs of a certified method, fewest of an online one, where the user says nothing.
    """

    name: str
    title: str
    paper: str
    formula: str
    shared: Callable[[int, Any, dict[str, Any]], tuple]  # type: ignore[type-arg]
    bind: Callable[[dict[str, Any]], tuple]  # type: ignore[type-arg]
    update: Callable[[int], Callable[..., Any]]
    params: tuple[Param, ...] = ()
    losses: tuple[str, ...] = ()
    rows: Any = None
    certify: Callable[[int], Callable[..., Any]] | None = None
    weights: Callable[[Any, Any], np.ndarray] = lambda shared, params: shared.weights
    place: Callable[[Any, np.ndarray, Any], None] | None = lambda shared, weights, params: np.copyto(
        shared.weights, weights, casting="same_kind"
    )
    finish: Callable[[Any, Any], None] | None = None
    along: Callable[[int], Callable[..., Any]] | None = None
    within: Callable[[int], Callable[..., Any]] | None = None
    value: Callable[[int], Callable[..., Any]] | None = None
    mixings: Mapping[str, Rule] = field(default_factory=lambda: by_shares(MEAN))
    mixing: str = "mean by rows, uniform or by mistakes"
    row_weights: str = "any"
    weight_meaning: str = ""
    epochs: int = 5
    tol: float | None = None
    bias: tuple[str, ...] = ("feature", "none")
    multiclass: tuple[str, ...] = ("binary", "one-vs-rest")
    working_set: bool = False
    penalties: tuple[str, ...] = ()

    @property
    def certificate(self) -> bool:
        """Whether an answer comes with a duality gap, so that ``tol`` has a meaning."""
        return self.certify is not None

    def __reduce__(self) -> tuple[Callable[[str], Method], tuple[str]]:
        return _named, (self.name,)  # travels by its name

    def loss_code(self, loss: str | None) -> int:
        """The compile-time constant of a loss (0 for a method that is its own loss)."""
        return losses.LOSSES[loss] if loss is not None else 0


def zeros(kind: type, n_features: int, dtype: Any, settings: dict[str, Any]) -> Any:
    """A state whose one array is ``weights``."""
    return kind(np.zeros(n_features + 1, dtype))


def averaged_zeros(n_features: int, dtype: Any, settings: dict[str, Any]) -> perceptron.Averaged:
    n = n_features + 1
    return perceptron.Averaged(np.zeros(n, dtype), np.zeros(n), np.zeros(1, np.int64))


C = Param("C", 1.0, 0.0, 1e30, "price of a unit of loss; larger fits the rows closer", open_low=True)


EPSILON = Param(
    "epsilon",
    0.1,
    0.0,
    1e30,
    "half the width of the tube in which a prediction costs nothing",
    losses=losses.REGRESSION,
)


@functools.cache
def _passive_aggressive(slack: int, loss: int) -> Callable[..., Any]:
    return pa.passive_aggressive(slack, loss)


def _pa(name: str, title: str, formula: str, slack: int, params: tuple[Param, ...], row_weights: str) -> Method:
    return Method(
        name=name,
        title=title,
        paper="Crammer, Dekel, Keshet, Shalev-Shwartz, Singer, JMLR 2006",
        formula=formula,
        params=(*params, EPSILON),
        losses=("hinge", "epsilon_insensitive"),
        shared=functools.partial(zeros, pa.Shared),
        bind=lambda settings: pa.Params(settings.get("C", 1.0), settings["bias"], settings.get("epsilon", 0.0)),
        update=functools.partial(_passive_aggressive, slack),
        row_weights=row_weights,
        weight_meaning="multiplies C" if params else "0 or 1 only",
    )


PHI = Param(
    "phi", 1.0, 0.0, 1e6, "confidence that a row asks for: Phi^-1(eta), the normal quantile of eta", open_low=True
)
ETA = Param("eta", 0.9, 0.5, 1.0, "probability with which a row is to be right", open_low=True, open_high=True)
A = Param("a", 1.0, 1e-30, 1e30, "first variance of every weight")
R = Param("r", 1.0, 0.0, 1e30, "price of divergence against loss; larger moves less", open_low=True)
B = Param("b", 1.0, 0.0, 1e30, "how far a row may narrow its direction: to the variance 1/b", open_low=True)
FUSED = {"precision": PRECISION, **by_shares(MEAN)}


def _gaussian(name: str, title: str, paper: str, formula: str, kernel: Any, **more: Any) -> Method:
    """A method whose state is means and variances side by side."""
    standard: dict[str, Any] = dict(
        shared=cw.diagonal_state,
        bind=cw.bind,
        weights=cw.means,
        place=cw.begin_means,
        mixings=FUSED,
        mixing="by precision, what all copies began with counted once; means by rows, uniform or by mistakes",
        row_weights="binary",
        weight_meaning="0 or 1 only",
    )
    kernel = functools.cache(kernel)
    return Method(name, title, paper, formula, update=lambda loss: kernel(), **(standard | more))


VARIANCE_PAPER = "Dredze, Crammer, Pereira, ICML 2008"
DEVIATION_PAPER = "Crammer, Dredze, Pereira, NIPS 2008"
AROW_PAPER = "Crammer, Kulesza, Dredze, NIPS 2009"
SCW_PAPER = "Wang, Zhao, Hoi, ICML 2012"
NAROW_PAPER = "Orabona and Crammer, NIPS 2010"
FULL: dict[str, Any] = dict(
    shared=cw.full_state,
    weights=lambda shared, params: shared.weights,
    place=lambda shared, weights, params: np.copyto(shared.weights, weights, casting="same_kind"),
    mixings={},
    mixing="none: it runs with one group",
)
PRICED: dict[str, Any] = dict(row_weights="any", weight_meaning="multiplies C")
DIVIDED: dict[str, Any] = dict(row_weights="any", weight_meaning="divides r")

_METHODS = (
    Method(
        name="dcd",
        title="dual coordinate descent (SVM, logistic, support vector regression), certified, in memory or out of core",
        paper="Hsieh et al., ICML 2008; Yu et al., KDD 2010; Chang and Roth, KDD 2011; Matsushima et al., KDD 2012; "
        "Yu, Huang, Lin, MLJ 2011; Ho and Lin, JMLR 2012",
        formula="a_i <- clip(a_i - (y_i w.x_i - 1 + D a_i) / (||x_i||^2 + D), 0, U);  w <- w + (change) y_i x_i",
        params=(
            C,
            EPSILON,
            Param(
                "working_set", None, 0.0, 1.0, "share of the rows in the working set (none: what fits, for the hinge)"
            ),
            choice(
                "schedule",
                SCHEDULES,
                "out of core: auto (a working set, solved after each read), fixed blocks (Yu et al. 2010), selective "
                "(and a cache of informative rows: Chang and Roth 2011), cached (dual cached loops: Matsushima et al. "
                "2012)",
            ),
            Param(
                "inner_rounds",
                None,
                0,
                10_000,
                "most rounds over the rows that matter after a read (none: 60, of several groups 3); fixed, selective: "
                "rounds over each block (none: 10); cached: visits to cached rows for each row read (none: 3)",
                integer=True,
            ),
        ),
        losses=("hinge", "squared_hinge", "logistic", *losses.REGRESSION),
        penalties=("l2",),
        shared=functools.partial(zeros, dcd.Shared),
        rows=dcd.Rows,
        bind=lambda settings: dcd.Params(settings["C"], settings["bias"], settings.get("epsilon", 0.0), 1.0),
        update=functools.cache(dcd.descend),
        certify=functools.cache(dcd.measure),
        along=functools.cache(dcd.along),
        within=functools.cache(dcd.within),
        value=functools.cache(dcd.value),
        mixings={"line_search": SUM, "safe": SUM},
        mixing="summed steps with an exact line search on the dual, or the safe scaling of CoCoA+",
        weight_meaning="multiplies C",
        epochs=10_000,
        tol=1e-3,
        working_set=True,
    ),
    Method(
        name="perceptron",
        title="perceptron",
        paper="Rosenblatt 1958; bound: Block, Novikoff 1962",
        formula="y w.x <= 0:  w <- w + y x",
        shared=functools.partial(zeros, perceptron.Shared),
        bind=lambda settings: perceptron.Params(settings["bias"]),
        update=lambda loss: perceptron.perceptron,
        weight_meaning="multiplies the step",
    ),
    Method(
        name="averaged_perceptron",
        title="averaged perceptron",
        paper="Collins, EMNLP 2002; Freund and Schapire 1999",
        formula="y w.x <= 0:  w <- w + y x;  the answer is the mean of w over all steps",
        shared=averaged_zeros,
        bind=lambda settings: perceptron.Params(settings["bias"]),
        update=lambda loss: perceptron.averaged_perceptron,
        weights=perceptron.average,
        place=perceptron.begin_average,
        mixings=by_shares(AVERAGED),
        mixing="mean by rows, uniform or by mistakes; averages over all steps",
        weight_meaning="multiplies the step",
    ),
    _pa("pa", "passive-aggressive, hard", "w <- w + (l / ||x||^2) y x", pa.HARD, (), "binary"),
    _pa("pa1", "passive-aggressive I", "w <- w + min(C, l / ||x||^2) y x", pa.LINEAR, (C,), "any"),
    _pa("pa2", "passive-aggressive II", "w <- w + (l / (||x||^2 + 1/(2C))) y x", pa.SQUARED, (C,), "any"),
    _gaussian(
        "cw_var",
        "confidence-weighted, variance form, diagonal by dropping",
        VARIANCE_PAPER,
        "m < phi v:  mu <- mu + g y S x;  1/s <- 1/s + 2 g phi x^2",
        lambda: cw.diagonal(cw.VARIANCE),
        params=(PHI, A),
    ),
    _gaussian(
        "cw_var_exact",
        "confidence-weighted, variance form, exact diagonal",
        VARIANCE_PAPER,
        "m < phi v:  mu <- mu + g y S x;  1/s <- 1/s + 2 g phi x^2;  g the root of m + g v = phi v'",
        lambda: cw.exact(cw.VARIANCE),
        params=(PHI, A),
    ),
    _gaussian(
        "cw_var_full",
        "confidence-weighted, variance form, full covariance",
        VARIANCE_PAPER,
        "m < phi v:  mu <- mu + g y S x;  S <- S - (2 g phi / (1 + 2 g phi v)) S x x' S",
        lambda: cw.full(cw.VARIANCE),
        params=(PHI, A),
        **FULL,
    ),
    _gaussian(
        "cw",
        "confidence-weighted, standard-deviation form, diagonal by dropping",
        DEVIATION_PAPER,
        "m < phi sqrt(v):  mu <- mu + a y S x;  1/s <- 1/s + (a phi / sqrt(u)) x^2",
        lambda: cw.diagonal(cw.DEVIATION),
        params=(ETA, A),
    ),
    _gaussian(
        "cw_exact",
        "confidence-weighted, standard-deviation form, exact diagonal",
        DEVIATION_PAPER,
        "m < phi sqrt(v):  mu <- mu + a y S x;  1/s <- 1/s + c x^2;  a = c sqrt(v') / phi,  m + a v = phi sqrt(v')",
        lambda: cw.exact(cw.DEVIATION),
        params=(ETA, A),
    ),
    _gaussian(
        "cw_full",
        "confidence-weighted, standard-deviation form, full covariance",
        DEVIATION_PAPER,
        "m < phi sqrt(v):  mu <- mu + a y S x;  S <- S - b S x x' S,  b = a phi / (sqrt(u) + v a phi)",
        lambda: cw.full(cw.DEVIATION),
        params=(ETA, A),
        **FULL,
    ),
    _gaussian(
        "scw1",
        "soft confidence-weighted I, diagonal by dropping",
        SCW_PAPER,
        "m < phi sqrt(v):  mu <- mu + min(C, a) y S x;  1/s <- 1/s + (min(C, a) phi / sqrt(u)) x^2,  a of cw",
        lambda: cw.diagonal(cw.SOFT),
        params=(C, ETA),
        **PRICED,
    ),
    _gaussian(
        "scw2",
        "soft confidence-weighted II, diagonal by dropping",
        SCW_PAPER,
        "m < phi sqrt(v):  mu <- mu + a y S x;  1/s <- 1/s + (a phi / sqrt(u)) x^2,  m + a (v + 1/(2C)) = phi sqrt(u)",
        lambda: cw.diagonal(cw.SQUARED_SOFT),
        params=(C, ETA),
        **PRICED,
    ),
    _gaussian(
        "arow",
        "adaptive regularisation of weights, diagonal by dropping in the precision",
        AROW_PAPER,
        "m < 1:  mu <- mu + ((1 - m) / (v + r)) y S x;  1/s <- 1/s + x^2 / r",
        lambda: cw.diagonal(cw.ADAPTIVE),
        params=(R,),
        **DIVIDED,
    ),
    _gaussian(
        "arow_var",
        "adaptive regularisation of weights, diagonal by dropping in the covariance",
        AROW_PAPER,
        "m < 1:  mu <- mu + ((1 - m) / (v + r)) y S x;  s <- s - s^2 x^2 / (v + r)",
        lambda: cw.diagonal(cw.ADAPTIVE, cw.OFF_COVARIANCE),
        params=(R,),
        **DIVIDED,
    ),
    _gaussian(
        "arow_full",
        "adaptive regularisation of weights, full covariance",
        AROW_PAPER,
        "m < 1:  mu <- mu + ((1 - m) / (v + r)) y S x;  S <- S - S x x' S / (v + r)",
        lambda: cw.full(cw.ADAPTIVE),
        bind=functools.partial(cw.bind, least=cw.LEAST_FULL),
        params=(R,),
        **DIVIDED | FULL,
    ),
    _gaussian(
        "narow",
        "narrow adaptive regularisation of weights, diagonal",
        NAROW_PAPER,
        "y f < 1:  t <- t + y x;  k <- k - k^2 x^2 / (r + v);  w <- k t;  1/r = max(0, b - 1/v),  f = w.x r / (v + r)",
        lambda: narow.diagonal,
        bind=narow.bind,
        params=(B,),
        **DIVIDED,
    ),
    _gaussian(
        "narow_full",
        "narrow adaptive regularisation of weights, full covariance",
        NAROW_PAPER,
        "y f < 1:  t <- t + y x;  K <- K - K x x' K / (r + v);  w <- K t;  1/r = max(0, b - 1/v),  f = w.x r / (v + r)",
        lambda: narow.full,
        bind=functools.partial(narow.bind, least=cw.LEAST_FULL),
        params=(B,),
        **DIVIDED | FULL,
    ),
    _gaussian(
        "nherd",
        "normal herd, diagonal by dropping",
        "Crammer and Lee, NIPS 2010",
        "m < 1:  mu <- mu + ((1 - m) / (v + 1/C)) y S x;  1/s <- 1/s + (2 C + C^2 v) x^2",
        lambda: cw.diagonal(cw.HERDING),
        params=(C,),
        **PRICED,
    ),
)


def weights_alone(state: Any) -> bool:
    """Whether a state is one array [feature + 1]: nothing beside the weights is known."""
    return len(state) == 1 and state[0].ndim == 1


METHODS: dict[str, Method] = {method.name: method for method in _METHODS}


def _named(name: str) -> Method:
    return METHODS[name]


class Setting(NamedTuple):
    """A method with everything it needs decided: the loss by name and all settings."""

    method: Method
    loss: str | None
    settings: dict[str, Any]

    def params(self) -> Any:
        """The numbers that the kernel reads."""
        return self.method.bind(self.settings)

    def shared(self, n_features: int, dtype: Any) -> Any:
        """A state at its beginning."""
        return self.method.shared(n_features, dtype, self.settings)

    def weights(self, shared: Any) -> np.ndarray:
        """The model's weights [feature + 1] in a state."""
        return self.method.weights(shared, self.params())

    @property
    def rule(self) -> Rule | None:
        """How copies are combined; None: there is one group only."""
        mixings = self.method.mixings
        name = self.settings.get("mixing") or next(iter(mixings), None)
        return None if name is None else mixings[name]

    def state_bytes(self, n_features: int, dtype: Any) -> int:
        """Bytes of a state, from small ones: no array has more than two axes of features."""
        none, one, two = (sum(array.nbytes for array in self.shared(n, dtype)) for n in (0, 1, 2))
        square = two - 2 * one + none  # twice the coefficient of n^2
        return none + (one - none) * n_features + square * n_features * (n_features - 1) // 2


def resolve(
    algo: str,
    loss: str | None,
    penalty: str | None,
    bias: str | None,
    given: dict[str, Any],
    mixing: str | None = None,
    groups: int = 1,
) -> Setting:
    """Check what the user set against the method's own list; nothing is ignored in silence.

    Raises
    ------
    ValueError : unknown method, loss, penalty or bias, or a number out of its bounds (named).
    TypeError : a parameter that would have no effect, naming the methods on which it has one.
    """
    if algo not in METHODS:
        raise ValueError(f"unknown algo {algo!r}; there are: {', '.join(METHODS)}")
    method = METHODS[algo]
    own = {param.name: param for param in method.params}
    for name in given:
        if name not in own:
            others = [m.name for m in METHODS.values() if any(p.name == name for p in m.params)]
            where = f"it has an effect with {', '.join(others)}" if others else "no method has it"
            has = f"; {algo} takes {', '.join(own)}" if own else f"; {algo} takes none"
            raise TypeError(f"{name} has no effect with algo={algo!r}: {where}{has}")
    if loss is not None and loss not in method.losses:
        has = f"it has {', '.join(method.losses)}" if method.losses else "it is its own loss"
        raise (ValueError if method.losses else TypeError)(f"loss={loss!r} has no meaning with algo={algo!r}: {has}")
    if penalty is not None and penalty not in (method.penalties or ("l2",)):
        raise ValueError(f"penalty={penalty!r} is not available with algo={algo!r}: it has {method.penalties}")
    if (bias or "none") not in method.bias:
        raise ValueError(f"bias={bias!r} is not available with algo={algo!r}: it has {', '.join(method.bias)}")
    if groups > 1 and not method.mixings:
        raise ValueError(f"groups={groups} is not available with algo={algo!r}: it runs with one group")
    if mixing is not None and mixing not in method.mixings:
        raise ValueError(f"mixing={mixing!r} has no meaning with algo={algo!r}: it has {', '.join(method.mixings)}")
    if mixing is not None and groups == 1:
        raise TypeError(f"mixing={mixing!r} has no effect with one group; set groups=")
    chosen = loss or (method.losses[0] if method.losses else None)
    for name in given:
        if own[name].losses and chosen not in own[name].losses:
            raise TypeError(f"{name} has no effect with loss={chosen!r}: it has one with {', '.join(own[name].losses)}")
    usable = [param for param in method.params if not param.losses or chosen in param.losses]
    settings = {param.name: param.check(given.get(param.name, param.default)) for param in usable}
    _require_schedule(settings, groups)
    settings["bias"] = 0.0 if bias is None else 1.0
    if "free" in method.bias:
        settings["free_bias"] = float(bias == "free")
    if len(method.penalties) > 1:
        settings["penalty"] = penalty or method.penalties[0]
    if groups > 1:
        settings |= {"groups": groups, "mixing": mixing or next(iter(method.mixings))}
    return Setting(method, chosen, settings)


def _require_schedule(settings: dict[str, Any], groups: int) -> None:
    """ValueError or TypeError, naming it, for what makes no sense beside the schedule."""
    schedule = settings.get("schedule", "auto")
    if schedule == "auto":
        return
    if groups > 1:
        raise ValueError(f"schedule={schedule!r} is not available with groups={groups}: it runs with one group")
    if schedule == "fixed" and settings["working_set"] is not None:
        raise TypeError("working_set has no effect with schedule='fixed': it has one with auto, selective, cached")
    for name in ("working_set", "inner_rounds"):
        if settings[name] == 0:
            raise ValueError(f"{name}=0 is not available with schedule={schedule!r}: it must be more than 0")
