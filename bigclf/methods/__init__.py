"""The learning algorithms: what a method is, and the table of them.

A method is a file that ends with its ``METHODS``, and its name in ``table.py``; the command line, the table that
``bigclf algorithms`` prints, the laws in the tests, mixing and checkpoints follow by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.maths.losses import LOSSES
from bigclf.maths.mixing import BETA, Rule
from bigclf.maths.penalties import PENALTIES
from bigclf.methods import sparse_state
from bigclf.methods.method import SCHEDULES, SHARES, Dual, Method, Param, Steps, by_shares
from bigclf.methods.table import METHODS
from bigclf.units import near, other_case

if TYPE_CHECKING:
    from numpy.typing import DTypeLike


__all__ = [
    "METHODS", "SCHEDULES", "SHARES", "Method", "Param", "Setting", "by_shares", "listed",
    "loss_meant", "native", "of_mixing", "require_known", "resolve",
]  # fmt: skip


OTHER_WORDS = {
    "tolerance": "tol",
    "max_iter": "epochs",
    "n_jobs": "workers",
    "random_state": "seed",
    "fit_intercept": "bias",
    "multi_class": "multiclass",
    "warm_start": "init",
}  # scikit-learn's, but for the first

FOR_FILES = ("output", "out", "output_dir", "out_dir", "save", "save_to", "model_path", "filename")

OTHER_LOSSES = {
    **dict.fromkeys(("log_loss", "log", "logloss", "cross_entropy", "binary_crossentropy", "deviance"), "logistic"),
    **dict.fromkeys(("squared_error", "squared_loss", "mse", "least_squares"), "squared"),
    "modified_huber": "squared_hinge",
    **dict.fromkeys(("absolute_error", "mae"), "epsilon_insensitive"),
}  # of scikit-learn, XGBoost, LightGBM, Keras
PENALTIES_FOR_LOSSES = ("l1", "l2", "elastic_net", "elasticnet")


class Setting(NamedTuple):
    """A method with everything it needs decided: the loss by name and all settings.

    places : most slots of a state that holds touched places only (``Plan.places``); 0: it holds all of them.
    """

    method: Method
    loss: str | None
    settings: dict[str, Any]
    places: int = 0

    @property
    def form(self) -> Any:
        """The functions of the state: the method's own, or those of touched places."""
        return self.method.form.touched if self.places else self.method.form

    def params(self) -> Any:
        """The numbers that the kernel reads."""
        return self.form.bind(self.settings | {"places": self.places} if self.places else self.settings)

    def kernel(self) -> Callable[..., Any]:
        """The kernel of an update, for the loss and the penalty."""
        penalty = self.settings.get("penalty")
        codes = (self.method.loss_of(self.loss), *(() if penalty is None else (PENALTIES[penalty],)))
        update: Callable[..., Any] = (self.form if self.places else self.method.how).update(*codes)
        return update

    def shared(self, n_features: int, dtype: DTypeLike) -> Any:
        """A state at its beginning."""
        return self.form.shared(n_features, dtype, self.settings)

    def rows(self, n_rows: int) -> Any:
        """The per-row arrays at their beginning; () for a method without."""
        kind = self.method.how.rows
        return kind(*(np.zeros((n_rows, *self.row_shape)) for _ in kind._fields)) if kind else ()

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Of the per-row arrays behind the axis of rows: nothing, or the classes."""
        return (self.settings["n_classes"],) if self.method.all_classes else ()

    @property
    def row_numbers(self) -> int:
        """Numbers that all per-row arrays hold of a row."""
        return sum(array.size for array in self.rows(1))

    def of_classes(self, n_classes: int) -> Setting:
        """The same for a number of classes, where the method learns all of them at once."""
        return self._replace(settings=self.settings | {"n_classes": n_classes}) if self.method.all_classes else self

    def weights(self, shared: object) -> np.ndarray:
        """The model's weights [feature + 1] or [feature + 1, class] in a state."""
        return self.method.form.weights(shared, self.params())

    def is_answer(self, shared: Any) -> bool:
        """Whether a state is the model's weights and nothing beside."""
        return bool(self.places) or (len(shared) == 1 and self.weights(shared) is shared[0])

    @property
    def chosen(self) -> dict[str, Any]:
        """The settings that a person chooses: all but what the data say."""
        return {name: value for name, value in self.settings.items() if name != "n_classes"}

    @property
    def rule(self) -> Rule | None:
        """How copies are combined; None: there is one group only."""
        mixings = self.form.mixings
        name = self.settings.get("mixing") or next(iter(mixings), None)
        rule = None if name is None else mixings[name]
        if rule is None or rule.momentum is None:
            return rule
        return rule._replace(momentum=rule.momentum._replace(beta=self.settings.get("momentum", BETA)))

    def state_bytes(self, n_features: int, dtype: DTypeLike) -> int:
        """Bytes of a state, from small ones: no array has more than two axes of features."""
        if self.places:
            fixed = sparse_state.fixed_bytes(n_features, self.settings["n_classes"], dtype)
            return fixed + self.places * sparse_state.slot_bytes(dtype)
        return _bytes_of(lambda n: self.shared(n, dtype), n_features)

    @property
    def climbs(self) -> bool:
        """Whether it goes up the dual by conjugate gradients, where rounds of its kernel stall."""
        how = self.method.how
        return isinstance(how, Dual) and how.climb(self.method.loss_of(self.loss)) is not None

    @property
    def summed(self) -> tuple[str, ...]:
        """Names of the arrays of a state that are sums over rows."""
        return self.method.how.sums if isinstance(self.method.how, Steps) else ()

    def sum_bytes(self, n_features: int, dtype: DTypeLike) -> int:
        """Bytes of the arrays of a state that are sums over rows."""
        return _bytes_of(lambda n: [getattr(self.shared(n, dtype), name) for name in self.summed], n_features)


def _bytes_of(arrays: Callable[[int], Iterable[np.ndarray]], n_features: int) -> int:
    """Bytes of ``arrays(n_features)`` from those of small ones."""
    none, one, two = (sum(array.nbytes for array in arrays(n)) for n in (0, 1, 2))
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
    options: Iterable[str] = (),
) -> Setting:
    """Check what the user set against the method's own list; nothing is ignored in silence. ``options`` : other names
    that may be meant by one that no method has.

    Raises
    ------
    ValueError : unknown method, loss, penalty or bias, or a number out of its bounds (named).
    TypeError : a parameter that would have no effect, naming the methods on which it has one.
    """
    if algo not in METHODS:
        raise ValueError(unknown_algo(algo))
    method = METHODS[algo]
    own = {param.name: param for param in method.params}
    for name in given:
        if name not in own:
            others = [m.name for m in METHODS.values() if any(p.name == name for p in m.params)]
            has = f"{algo.removesuffix('_mc')} takes {', '.join(own) or 'none'}"
            where = (f"it is a parameter of {listed(others)}" if others
                     else f"no method has it{_meant(name, [*own, *options])}")  # fmt: skip
            meant = f"; did you mean {twin}?" if (twin := other_case(name, own)) else ""
            between = " " if where.endswith("?") else "; "
            raise TypeError(f"{name} has no effect with {method.asked}{meant or f': {where}{between}{has}'}")
    if loss is not None and not method.losses:
        raise TypeError(f"loss={loss!r} has no effect with {method.asked}, which has a loss of its own")
    if loss is not None and loss not in method.losses:
        meant = f"{', '.join(method.losses)}{loss_meant(loss, method.losses)}"
        raise ValueError(f"loss={loss!r} is not a loss of {method.asked}; choose from {meant}")
    if penalty is not None and penalty not in (method.penalties or ("l2",)):
        has = ", ".join(method.penalties or ("l2",)) + near(penalty, method.penalties)
        raise ValueError(f"penalty={penalty!r} is not available with {method.asked}; choose from {has}")
    if (bias or "none") not in method.bias:
        raise ValueError(f"bias={bias!r} is not available with {method.asked}; choose from {', '.join(method.bias)}")
    mixed = _mixed(method, mixing, groups)
    chosen = loss or (method.losses[0] if method.losses else None)
    for name in given:
        if own[name].losses and chosen not in own[name].losses:
            raise TypeError(f"{name} has no effect with loss={chosen!r}, only with {', '.join(own[name].losses)}")
    penalised = penalty or (method.penalties[0] if method.penalties else None)
    for name in given:
        if own[name].penalties and penalised not in own[name].penalties:
            having = ", ".join(own[name].penalties)
            raise TypeError(f"{name} has no effect with penalty={penalised!r}, only with {having}")
    usable = [param for param in method.params if not param.losses or chosen in param.losses]
    usable = [param for param in usable if not param.penalties or penalised in param.penalties]
    settings = {param.name: param.check(given.get(param.name, param.default_in(groups))) for param in usable}
    _require_schedule(settings, groups)
    settings["bias"] = 0.0 if bias in (None, "none") else 1.0
    if "free" in method.bias:
        settings["free_bias"] = float(bias == "free")
    if len(method.penalties) > 1:
        settings["penalty"] = penalty or method.penalties[0]
    if method.all_classes:
        settings["n_classes"] = 2  # until they are known
    return Setting(method, chosen, settings | mixed)


def _mixed(method: Method, mixing: str | None, groups: int) -> dict[str, object]:
    """The settings of how copies are combined; ValueError or TypeError where they cannot be so."""
    if groups > 1 and not method.form.mixings:
        raise ValueError(f"groups={groups} is not available with {method.asked}: it runs with one group")
    name, beta = (None, BETA) if mixing is None else of_mixing(mixing)
    if name is not None and name not in method.form.mixings:
        raise ValueError(
            f"mixing={mixing!r} is not available with {method.asked}; choose from {', '.join(method.form.mixings)}"
        )
    if name is not None and groups == 1:
        raise TypeError(f"mixing={mixing!r} has no effect with one group; set groups=")
    if groups == 1:
        return {}
    name = name or next(iter(method.form.mixings))
    goes_on = method.form.mixings[name].momentum is not None
    return {"groups": groups, "mixing": name} | ({"momentum": beta} if goes_on else {})


def of_mixing(text: str) -> tuple[str, float]:
    """The rule that ``text`` names, and beta of its momentum: "momentum", "momentum=0.8".

    Raises
    ------
    ValueError : beta is no number from 0 on below 1.
    """
    name, _, number = text.partition("=")
    if name != "momentum" or not number:
        return text, BETA
    return name, float(Param("momentum", BETA, 0.0, 1.0, "", open_high=True).check(number))


def listed(names: Iterable[str]) -> str:
    """Names of methods in a message; a form for all classes at once goes with the method that it is a form of."""
    names = list(names)
    return ", ".join(name for name in names if name.removesuffix("_mc") == name or name[:-3] not in names)


def unknown_algo(name: object) -> str:
    """What to say of a name that no method has: that it is a loss, or which one may be meant."""
    loss = next((one for one in LOSSES if name == one), None)
    loss = loss or next((one for one in LOSSES if str(name).startswith(f"{one}_")), None)
    if loss is not None:
        told = f"{loss} is a loss: --loss {loss}, in Python loss={loss!r} (leave out algo)"
    else:
        told = near(name, METHODS).removeprefix("; ") or "`bigclf algorithms` lists the methods"
    return f"unknown algo {name!r}; {told}"


def require_known(names: Iterable[str], options: Iterable[str] = ()) -> None:
    """TypeError for the first that is no parameter of any method; ``options`` : other names that may be meant."""
    every = list(dict.fromkeys(param.name for method in METHODS.values() for param in method.params))
    for name in names:
        if name not in every:
            raise TypeError(f"unknown parameter {name!r}: no method has it{_meant(name, [*every, *options])}")


def _meant(name: str, known: Iterable[str]) -> str:
    """What to say in place of a word that no method has: another library's word for an option, or a near one."""
    if name in FOR_FILES:
        return ("; save what is returned: model.save(FILE), of sweep found.best_model.save(FILE), of path "
                "found.models[0].save(FILE) and so on; found.as_json() is the table")  # fmt: skip
    return f"; bigclf calls it {OTHER_WORDS[name]}" if name in OTHER_WORDS else near(name, known)


def loss_meant(name: str, known: Iterable[str]) -> str:
    """What to ask of a loss that is none of those that are known: another library's word for one, or a near one."""
    if name in PENALTIES_FOR_LOSSES:
        return f"; did you mean penalty={name.replace('elasticnet', 'elastic_net')!r}?"
    if (other := OTHER_LOSSES.get(name)) is None:
        return near(name, known)
    return f"; did you mean {other!r}?" if other in known else f"; bigclf calls it {other!r}"


def native(algo: str, multiclass: str) -> str:
    """The method that learns more than two classes as the user wants it.

    Raises
    ------
    ValueError : the method does not do that, naming those that do.
    """
    if multiclass not in ("auto", "one-vs-rest", "native"):
        raise ValueError(f'multiclass must be "auto", "one-vs-rest" or "native", not {multiclass!r}')
    method = METHODS.get(algo)
    if method is None or multiclass == "auto":
        return algo
    if multiclass == "one-vs-rest" and method.all_classes:
        raise ValueError(f'multiclass="one-vs-rest" is not available with algo={algo!r}: it trains all classes at once')
    if multiclass == "native" and not method.all_classes:
        if method.native is None:
            twins = {m.native for m in METHODS.values()}
            having = listed(n for n, m in METHODS.items() if m.native or (m.all_classes and n not in twins))
            raise ValueError(f'multiclass="native" is not available with algo={algo!r}, only with {having}')
        return method.native
    return algo


def _require_schedule(settings: Mapping[str, object], groups: int) -> None:
    """ValueError or TypeError, naming it, for what makes no sense beside the schedule."""
    schedule = settings.get("schedule", "auto")
    if schedule == "auto":
        return
    if groups > 1:
        raise ValueError(f"schedule={schedule!r} is not available with groups={groups}: it runs with one group")
    if schedule == "fixed" and settings["working_set"] is not None:
        raise TypeError("working_set has no effect with schedule='fixed', only with auto, selective, cached")
    for name in ("working_set", "inner_rounds"):
        if settings[name] == 0:
            raise ValueError(f"{name}=0 is not available with schedule={schedule!r}: it must be more than 0")
