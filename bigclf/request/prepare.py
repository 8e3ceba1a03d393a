"""From what was asked for to rows that can be learned from: once, for ``fit``, ``sweep``, ``path`` and ``plan``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf import files
from bigclf.data.arrays import Arrays
from bigclf.data.dataset import Dataset
from bigclf.data.shards import load_libraries
from bigclf.maths.losses import REGRESSION
from bigclf.methods import METHODS, Method, Setting
from bigclf.methods.method import Dual
from bigclf.request.auto import BY_SUMS, SET_COPIES, Asked, choose, has_room, loss_for, stays_apart
from bigclf.request.door import UNKNOWN, Found, Shape, Shards, refuse_several_labels
from bigclf.request.request import Request, of_one_method
from bigclf.request.spreading import (
    advice,
    deals_out,
    how_dealt,
    idle_text,
    may_gather,
    of_one_group,
    require_joining,
    speed_up,
)
from bigclf.request.workers import is_cluster
from bigclf.stream.raw_store import is_finished
from bigclf.training.memory import PeakMemory
from bigclf.training.problems import (
    Fold,
    Problem,
    class_weight_array,
    label_problems,
    make_problems,
    regression_problem,
    require_few,
)
from bigclf.training.records.run_directory import groups_before, plan_before
from bigclf.training.sources import require_usable, warm
from bigclf.units import format_bytes, plural

if TYPE_CHECKING:
    from bigclf.cluster.link import Link


log = logging.getLogger("bigclf")
VISITS, MOST_EPOCHS = 1_000_000, 100


class Prepared(NamedTuple):
    """Rows that each of ``settings`` (of each method's points) can learn from, in ``groups``; class_weights : float64
    [class], None of a regression; shape : what ``make_plan`` is told beside problems and reads."""

    source: Any
    settings: list[list[Setting]]
    class_weights: np.ndarray | None
    groups: int
    shape: dict[str, Any]

    def problems(self, memory: int) -> list[Problem]:
        """What is to be learned by the first of the settings.

        Raises
        ------
        MemoryBudgetError : there are too many classes.
        """
        setting = self.settings[0][0]
        if self.class_weights is None:
            return [regression_problem(setting)]
        if self.source.sets is not None:
            return label_problems(self.source, self.class_weights, setting)
        require_few(self.source.classes.size, setting, memory)
        return make_problems(self.source.classes, self.class_weights, setting)


def asked_for(request: Request, shape: Shape) -> Asked:
    """What the choice of a method depends on."""
    told = {name: request[name] for name in ("loss", "penalty", "bias", "epochs", "memory", "tol")}
    n_rows, n_features, nnz, n_classes, square, ones, rarest = shape
    problems = n_classes if n_classes > 2 and request["loss"] not in REGRESSION else 1
    groups = request["groups"] or (2 if is_cluster(request["workers"]) else 1)
    return Asked(
        **told, C=request["C"] or 1.0, given=tuple(request.params), n_rows=n_rows, n_features=n_features, nnz=nnz,
        groups=groups, problems=problems, square=square, native=request["multiclass"] == "native",
        begins=request["init"] is not None, mixing=request["mixing"], ones=ones,
        share=1 / problems if problems > 1 else rarest or 0.5,
        workers=_known_workers(request["workers"]),
        changes=request.verb in ("fit", "plan") and request.options.get("run_dir") is None and problems == 1,
    )  # fmt: skip


def _known_workers(workers: object) -> int:
    """How many there will be, where the request says it; of a cluster that is there, 1."""
    counts = workers if isinstance(workers, int) and not isinstance(workers, bool) else 1
    return max(1, counts)


def require_some_method(request: Request) -> None:
    """ValueError or TypeError where no method has what is asked, whatever the rows are."""
    choose(asked_for(request, UNKNOWN))


def with_method(request: Request, shape: Shape) -> Request:
    """With the method and the loss that such rows ask for."""
    asked = asked_for(request, shape)
    algo, chosen = choose(asked)
    log.info("%s", chosen)
    return of_one_method(request.having(algo=algo, loss=loss_of(algo, asked), chosen=chosen))


def loss_of(algo: str, asked: Asked) -> str | None:
    """The loss that is meant, by name; None for a method that has its own alone."""
    return loss_for(asked) if METHODS[algo].losses else asked.loss


def prepare(
    request: Request, found: Found, link: Any = None, peak: PeakMemory | None = None, groups: int | None = None
) -> Prepared:
    """Open the rows and load the kernels: before the first row, as far as a glance at the data tells which.

    Parameters
    ----------
    found : the rows that the request is about, not open yet.
    link : to the cluster whose workers make the visits; None: this process.
    peak : measured from here on: interpreter and libraries, and of arrays what making CSR of them took, do not count.
    groups : how many where the request does not say and problems are not dealt out; None: as many as
        ``default_groups`` says. No more than there are chunks.

    Raises
    ------
    DataError, ValueError, TypeError : rows that these methods cannot learn from.
    """
    first = [setting for each in request.at_first() for setting in each]
    if link is not None and not found.far:
        raise TypeError("workers of a cluster cannot read an iterator of blocks; write it with write_shards")
    dtype, memory = request["dtype"], request["memory"]
    if not (request["resume"] and groups_before(request["run_dir"])):  # what older versions began is ended
        for setting in first:
            require_joining(setting.method, setting.loss, request["groups"] or 1)
    if groups is not None and groups > 1 and request["groups"] is None:
        one = any(stays_apart(setting.method, setting.loss) for setting in first)
        groups = 1 if one or dealt_out(request, found.counts(), groups) else groups
    least = request["groups"] or groups or default_groups(request, link, found)
    width = found.index_width()
    refuse_several_labels(request.verb, found.several_labels())  # before kernels are compiled
    rare = request.verb != "fit"  # which loads them once there is a plan
    _warm(first, width, dtype, rare)
    if isinstance(found, Shards):
        load_libraries()
    if peak is not None:
        peak.begin(trim=isinstance(found, Shards))
    regression = first[0].loss in REGRESSION
    source = found.rows(least, regression)
    refuse_several_labels(request.verb, source.sets is not None)
    groups = least if request["groups"] is not None else min(least, source.n_chunks)
    if link is not None and (least > 1 or request["groups"] is not None):  # else it was said why there is one group
        _say_who_is_idle(request, found, int(link.count_now()), groups, source.n_chunks)
    settings = request.settings(groups, request["mixing"] if groups > 1 else None)
    class_weights = None if regression else class_weight_array(request["class_weight"], source)
    for setting in {setting.method.name: setting for each in settings for setting in each}.values():
        require_usable(source, setting, class_weights)
    if source.index_width != width:
        _warm(first, source.index_width, dtype, rare)
    in_memory = isinstance(source, Arrays)
    if peak is not None and (in_memory or source.feature_ids is not None):
        peak.begin(trim=not in_memory)  # looking which features occur does not count either
    shape = dict(memory=memory, dtype=dtype, seed=request["seed"], groups=groups, in_memory=in_memory,
                 threads=request["threads"] or (2 if link is None else 1),
                 before=plan_before(request["run_dir"]) if request["resume"] else {},
                 stored=link is None and is_stored(source, request["local_dir"]))  # fmt: skip
    return Prepared(source, settings, class_weights, groups, shape)


def _say_who_is_idle(request: Request, found: Found, workers: int, groups: int, chunks: int) -> None:
    """Warn of workers that have no group, unless problems are dealt out to them."""
    if groups == 1 and _problems(request, found.counts()) > 1:
        return
    few = f"the data have {plural(chunks, 'chunk')}; `bigclf convert --chunk-nnz` with a smaller number makes more"
    if text := idle_text(workers, groups, few if chunks < workers else ""):
        log.warning("%s", text)


def is_stored(source: object, local_dir: files.PathLike | None) -> bool:
    """Whether earlier runs left every row of ``source`` decoded in ``local_dir``."""
    if local_dir is None or not isinstance(source, Dataset) or not files.exists(local_dir):
        return False
    return is_finished(source, files.scratch_directory(local_dir))


def _warm(settings: list[Setting], width: int, dtype: str, rare: bool) -> None:
    """Load the kernels of each method and loss; those of a sweep also say which fold a row is in."""
    for setting in {(setting.method.name, setting.loss): setting for setting in settings}.values():
        warm(setting, width, dtype, rare)
    if len(settings) > 1:
        Fold(0, 2, 0).holds(np.zeros(0, np.int64), 0)


def default_groups(request: Request, link: Link | None, found: Found) -> int:
    """As many as a run that is resumed had; else 1 in this process or where that is faster, said in a warning, or as
    many as there are workers now."""
    if request["resume"]:
        before = groups_before(request["run_dir"])
        if before:
            return before
    if link is None:
        return 1
    workers = int(link.count(request["patience"].idle))
    if whole := [family.algo for family in request.families if not METHODS[family.algo].form.mixings]:
        if workers > 1 and _problems(request, found.counts()) == 1:
            log.warning("%s", of_one_group(METHODS[whole[0]], workers))
        return 1
    settings = request.at_first()
    dual = [setting for each in settings for setting in each if isinstance(setting.method.how, Dual)]
    if workers == 1 or not (dual or request.verb == "sweep"):
        return workers
    shape = found.counts()
    if problems := dealt_out(request, shape, workers):
        log.info("%s", how_dealt(problems, workers))
        return 1
    if not dual:
        return workers
    why = next(filter(None, (_why_one(request, setting, shape, workers) for setting in dual)), "") if shape.nnz else ""
    if why:
        log.warning(why)
    return 1 if why else workers


def dealt_out(request: Request, shape: Shape, workers: int) -> int:
    """How many problems are dealt out to so many workers; 0: none, rows may be cut."""
    problems = _problems(request, shape)
    methods = [each[0].method for each in request.at_first()]
    return problems if deals_out(methods, request.verb == "sweep", problems, workers) else 0


def _problems(request: Request, shape: Shape) -> int:
    """How many problems a run has, of several runs the least: classes, points and folds."""

    def of_one(setting: Setting) -> int:
        together = setting.method.all_classes or setting.loss in REGRESSION or shape.classes <= 2
        return 1 if together else shape.classes

    settings, folds = request.at_first(), max(1, request.options.get("folds") or 1)
    return min(folds * sum(of_one(setting) for setting in each) for each in settings)


def asked_of(request: Request, setting: Setting, shape: Shape, groups: int) -> Asked:
    """What the predicted cost of one problem depends on."""
    told = {name: request[name] for name in ("penalty", "bias", "epochs", "memory", "tol")}
    return Asked(
        **told, loss=setting.loss, C=float(setting.settings.get("C", 1.0)), given=(), groups=groups,
        n_rows=shape.n_rows, n_features=shape.n_features, nnz=shape.nnz, square=shape.square,
        ones=shape.ones, share=shape.rarest or 0.5,
    )  # fmt: skip


def _why_one(request: Request, setting: Setting, shape: Shape, workers: int) -> str:
    """Why the rows of such a method are not cut; empty where groups pay."""
    name, loss = setting.method.name, setting.loss or ""
    if stays_apart(setting.method, loss):
        return advice(name, workers, 0.0, apart=loss)
    gathered = may_gather(setting.method, setting.loss, request["mixing"], setting.settings)
    asked = asked_of(request, setting, shape, workers)
    room = has_room(asked)
    lacks = (
        format_bytes(int(SET_COPIES * asked.size)) if gathered and not room and loss in METHODS[BY_SUMS].losses else ""
    )
    return advice(name, workers, speed_up(asked, loss, workers, gathered and room), lacks=lacks)


def default_epochs(method: Method, n_rows: int, early_stopping: int | None = None) -> int:
    """The method's own limit; an online method goes over few rows more often, to about a million visits."""
    if method.certificate:
        return method.epochs
    if early_stopping is not None:
        return MOST_EPOCHS
    return min(MOST_EPOCHS, max(method.epochs, -(-VISITS // max(1, n_rows))))
