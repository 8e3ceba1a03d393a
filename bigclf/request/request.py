"""What was asked for, checked as far as no row is needed: the same for ``fit``, ``sweep``, ``path`` and ``plan``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypedDict, cast

from bigclf.features.spec import refuse_shell_names
from bigclf.files.apart import keep_apart
from bigclf.maths.losses import REGRESSION
from bigclf.methods import METHODS, Method, Setting, native, resolve
from bigclf.request.options import OPTIONS, declared, refuse_others, taken
from bigclf.request.workers import is_cluster, patience_of

if TYPE_CHECKING:
    from bigclf.cluster.book import Patience
    from bigclf.files import PathLike
    from bigclf.model.model import Model
    from bigclf.progress import Record, Watcher
    from bigclf.training.run import Run

Point: TypeAlias = dict[str, object]  # of a grid: parameters by name

EVERY = {option.name: option.default for option in reversed(OPTIONS) if "fit" in option.verbs}
OWN = {param.name for method in METHODS.values() for param in method.params} | {"loss", "algo"}


class Family(NamedTuple):
    """A method by name, and the points that it is learned at: each a table of its parameters."""

    algo: str
    points: list[Point]


class RunOptions(TypedDict, total=False):
    """Options of a method's run that are read once the rows are there: each checked, its limits filled in.

    title : what the screen calls it. give_up : as of ``Run``. rows_aside : a directory that every worker can write, for
    row state of a run without a directory of its own.
    """

    bias: str | None
    callbacks: Sequence[Callable[[Record], None]]
    checkpoint_every: float
    chosen: str
    dtype: str
    early_stopping: int | None
    epochs: int
    give_up: Callable[[Run], list[int]] | None
    init: Model | None
    local_dir: str | None
    max_seconds: float | None
    memory: int
    patience: Patience
    progress: Watcher | bool | None
    prune: float | None
    resume: bool
    rows_aside: str | None
    run_dir: PathLike | None
    seed: int
    title: str
    tol: float | None
    validate: object


@dataclass(frozen=True)
class Request:
    """What is asked of some rows.

    Attributes
    ----------
    verb : "fit", "sweep", "path" or "plan". data, y : the rows. options : every option by name, each checked by itself.
    params : the methods' own. families : the methods; none where the rows say which.
    """

    verb: str
    data: Any
    y: Any
    options: Mapping[str, Any]
    params: Mapping[str, Any]
    families: tuple[Family, ...] = ()
    chosen: str = ""

    def __getitem__(self, name: str) -> Any:
        return self.options[name]

    def having(self, **changes: Any) -> Request:
        """With other data, or other values of options."""
        own = {name: changes.pop(name) for name in ("data", "y", "families", "chosen") if name in changes}
        return replaced(self, options={**self.options, **changes}, **own)

    def settings(self, groups: int, mixing: str | None = None) -> list[list[Setting]]:
        """Of every point of each method; ValueError or TypeError where it is not for this method."""
        return [[self._setting(family.algo, point, groups, mixing) for point in family.points]
                for family in self.families]  # fmt: skip

    def _setting(self, algo: str, point: Point, groups: int, mixing: str | None) -> Setting:
        if "loss" in point and self["loss"] is not None:
            raise TypeError("loss is both in the grid and set beside it")
        own = {name: value for name, value in point.items() if name != "loss"}
        loss = cast("str | None", point.get("loss", self["loss"]))
        return resolve(algo, loss, self["penalty"], self["bias"], {**self.params, **own}, mixing, groups,
                       declared(self.verb))  # fmt: skip

    def at_first(self) -> list[list[Setting]]:
        """The settings as far as they are known before the rows, which say in how many groups they can be cut."""
        cut = is_cluster(self["workers"]) and all(_may_be_cut(family.algo) for family in self.families)
        groups = self["groups"] or (2 if cut else 1)
        return self.settings(groups, self.options.get("mixing"))

    def check(self) -> list[RunOptions]:
        """The options of each method's run, its own limits filled in.

        Raises
        ------
        TypeError, ValueError : what makes no sense whatever the rows are; of methods that the rows are to choose,
            nothing is refused.
        """
        return [_of_run(self, each[0]) for each in self.at_first()]


def asked(verb: str, data: object, y: object, given: Mapping[str, object]) -> Request:
    """The request that the arguments of a verb make, its families still to be named.

    Raises
    ------
    TypeError, ValueError : an option of another verb, or with another value than it may have.
    RunError : a run directory that is an input or holds one.
    """
    refuse_shell_names(given)
    options, params = taken(verb, given)
    refuse_others(params, OWN, verb)
    options = EVERY | options
    options["patience"] = patience_of(cast("Mapping[str, float] | None", options["patience"]), options["workers"])
    if options["C"] is not None and verb != "path":
        params["C"] = options["C"]
    options["bias"] = None if options["bias"] == "none" else options["bias"]
    if verb != "plan" and options["run_dir"] is not None:
        keep_apart([data, options["validate"]], filled=[cast("PathLike", options["run_dir"])])
    return Request(verb, data, y, options, params)


def of_one_method(request: Request) -> Request:
    """With the method that is named, if one is."""
    if request["algo"] == "auto":
        return request
    return request.having(families=(Family(native(request["algo"], request["multiclass"]), [{}]),))


def _of_run(request: Request, setting: Setting) -> RunOptions:
    """Options of a run of one method, checked against it and each other; limits filled in with the method's own."""
    method, options = setting.method, dict(request.options)
    options["chosen"] = request.chosen
    if setting.loss in REGRESSION:
        for name in ("multiclass", "class_weight"):
            if options[name] != EVERY[name]:
                raise TypeError(f"{name} has no effect with loss={setting.loss!r}: there are no classes")
    tol, epochs = options["tol"], options["epochs"]
    if tol is not None and not method.certificate:
        if len(request.families) == 1:
            raise TypeError(f"tol has no effect with {method.asked}: it has no certificate; set epochs=")
        tol = None  # it is for others
    require_early_stopping(options["early_stopping"], options["validate"], method)
    if options["init"] is not None and method.by_duals:
        raise TypeError(f"init has no effect with {method.asked}: its answer comes from dual variables")
    if options["resume"] and options["run_dir"] is None:
        raise ValueError("resume=True needs run_dir=")
    options["tol"] = (method.tol if tol is None else tol) if method.certificate else None
    if tol is None and epochs == 1 and (method.by_duals or not method.certificate):
        options["tol"] = None  # one look at each row: nothing of it is left to certify
    return cast("RunOptions", options)


def _may_be_cut(algo: str) -> bool:
    """Whether groups of rows can be combined, of a method that is known."""
    return algo not in METHODS or bool(METHODS[algo].form.mixings)


def require_early_stopping(patience: int | None, validate: object, method: Method) -> None:
    """TypeError where it makes no sense."""
    if patience is None:
        return
    if method.certificate:
        raise TypeError(f"early_stopping has no effect with {method.asked}: it ends at its tolerance")
    if not method.linear:
        raise TypeError(f"early_stopping is not available with {method.asked}: its answer is not its weights")
    if validate is None:
        raise TypeError("early_stopping has no effect without validate=: rows to measure on")
