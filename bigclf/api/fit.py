"""``fit``: from what a person says to a run, and from its outcome to a model."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import platform
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bigclf import files
from bigclf.api.outcome import (
    Result,
    class_columns,
    grown,
    model_of,
    prune,
    result_of,
    share_seen,
    silence,
    spelt_as,
    validation,
    warn_of_limits,
)
from bigclf.api.stall import Stall, watched
from bigclf.api.turns import in_turns, require_room, turns_of
from bigclf.cluster.carried_rows import RowsAside
from bigclf.compiled.jit import cpu_type
from bigclf.conversion.tables.reading import are_raw
from bigclf.data.arrays import (
    are_numbered,
    names_differ,
    names_in,
    plain_names,
    require_named,
    require_same_names,
)
from bigclf.data.dataset import Dataset
from bigclf.errors import ClusterError, DataError, Interrupted, ModelFormatError, RunError, masked
from bigclf.features.encode import is_columns
from bigclf.files.json_fields import FieldError, check_fields
from bigclf.maths.losses import REGRESSION
from bigclf.model.model import Model, is_stored, load
from bigclf.progress import Plan as Shown
from bigclf.progress import Record, Screen, TerminalProgress, Watcher
from bigclf.request.auto import loss_for
from bigclf.request.door import Found, Shape, open_rows, shape_of
from bigclf.request.options import documented
from bigclf.request.prepare import asked_for, default_epochs, prepare, require_some_method, with_method
from bigclf.request.request import Request, RunOptions, asked, of_one_method
from bigclf.request.workers import linked
from bigclf.training.engines import Engine, LocalEngine
from bigclf.training.executor import Bench, Job
from bigclf.training.memory import PeakMemory
from bigclf.training.plan import Plan, settle
from bigclf.training.problems import Problem
from bigclf.training.pruning import THREADS, require_prunable
from bigclf.training.records.checkpoints import continue_from, go_further
from bigclf.training.records.run_directory import VERSION, Checkpoint, RunDirectory
from bigclf.training.records.run_record import TRAINED
from bigclf.training.refitting import bytes_of_rows
from bigclf.training.run import Run
from bigclf.training.sources import warm, warm_gathered, warm_left, warm_together
from bigclf.training.validation import measurable
from bigclf.version import __version__

if TYPE_CHECKING:
    from bigclf.cluster.link import Link
    from bigclf.data.rows import Rows
    from bigclf.request.places import RunDir


log = logging.getLogger("bigclf")


@documented("fit")
def fit(
    data: object,
    y: object = None,
    *,
    sample_weight: object = None,
    features: object = None,
    algo: str = "auto",
    loss: str | None = None,
    C: float | None = None,
    bias: str | None = "feature",
    class_weight: str | Mapping[Any, float] | None = None,
    multiclass: str = "auto",
    dtype: str = "float64",
    memory: int | str = "2GB",
    seed: int = 0,
    groups: int | None = None,
    tol: float | None = None,
    epochs: int | None = None,
    max_seconds: float | None = None,
    validate: object = None,
    early_stopping: int | None = None,
    init: Model | None = None,
    workers: object = None,
    run_dir: files.PathLike | RunDir | None = None,
    resume: bool = False,
    callbacks: Sequence[Callable[[Record], None]] = (),
    progress: Watcher | bool | None = None,
    **params: object,
) -> Model:
    """Train a linear classifier, or with an epsilon-insensitive loss a linear regression.

    Parameters
    ----------
    {options}
    params : The method's own by name, such as ``r``, ``eta`` and ``lam``: see ``bigclf.algorithms()``.

    Returns
    -------
    Model : with ``result_`` (``Result``).

    Raises
    ------
    TypeError, ValueError : a parameter that has no effect or is out of its bounds.
    DataError, SchemaError : data that cannot be used, with file, row group and row.
    MemoryBudgetError : the budget is too small, with the one that would do.
    RunError, Interrupted : a run directory in use or of another run; a signal.
    """
    given = dict(
        sample_weight=sample_weight, features=features, algo=algo, loss=loss, C=C, bias=bias, class_weight=class_weight,
        multiclass=multiclass, dtype=dtype, memory=memory, seed=seed, groups=groups, tol=tol, epochs=epochs,
        max_seconds=max_seconds, validate=validate, early_stopping=early_stopping, init=init, workers=workers,
        run_dir=run_dir, resume=resume, callbacks=callbacks, progress=progress,
    )  # fmt: skip
    return trained(asked_of_fit(data, y, {**given, **params}))


def asked_of_fit(data: object, y: object, given: Mapping[str, object]) -> Request:
    """What ``fit`` is asked with these arguments, checked as far as no row is needed, so also before files become
    shards.

    Raises
    ------
    TypeError, ValueError : what makes no sense whatever the rows are.
    """
    request = of_one_method(asked("fit", data, y, given))
    if not request.families:
        require_some_method(request)
    request.check()
    return request


def trained(request: Request) -> Model:
    """The model that is asked for; errors as of ``fit``."""
    with contextlib.ExitStack() as stack:
        found, request = stack.enter_context(open_rows(request))
        shape = None if request.families else found.counts()
        request = request if shape is None else with_method(request, shape)
        request.check()
        link = stack.enter_context(linked(request["workers"], request["patience"]))
        peak = stack.enter_context(PeakMemory())
        model, seen, stall = _solved(request, found, link, peak, shape)
        if stall is not None and stall.over:
            begins: dict[str, object] = {"init": model} if stall.warm else {}
            begins |= {"max_seconds": stall.seconds} if request["max_seconds"] is not None else {}
            chosen = f"{request.chosen}; {stall.over}"
            loss = loss_for(stall.asked)
            request = of_one_method(request.having(algo=stall.instead, loss=loss, chosen=chosen, **begins))
            model, seen, _ = _solved(request, found, link, peak, None)
    for record in model.result_.warnings[seen:]:
        log.warning("%s", record)
    return model


def _solved(
    request: Request, found: Found, link: Link | None, peak: PeakMemory, shape: Shape | None
) -> tuple[Model, int, Stall | None]:
    """The model by the method that is named, how many warnings its rows gave, and what looked whether it stalls;
    ``shape`` : where the method is of our choice."""
    (options,), (setting,) = request.check(), request.at_first()[0]
    prepared = prepare(request, found, link, peak)
    source, patience = prepared.source, options["early_stopping"]
    options["epochs"] = options["epochs"] or default_epochs(setting.method, source.learnable[0], patience)
    if options["prune"] is not None:
        require_prunable(setting)

    def planned(problems: list[Problem]) -> tuple[list[Problem], Plan]:
        reads = options["epochs"] + (options["tol"] is not None)
        problems, plan = settle(source, problems, reads=reads, keeps_best=patience is not None, **prepared.shape)
        if options["prune"] is None:
            return problems, plan
        return problems, plan.pruning(THREADS * bytes_of_rows(source))

    everything = prepared.problems(options["memory"])
    if source.sets is None:
        problems, plan = planned(everything)
        turns = []
    else:
        require_room(everything, source.n_features, options["dtype"], options["memory"], options["prune"])
        turns = turns_of(everything, planned)
        problems, plan = turns[0]
    stall = None
    if setting.method.name == "dcd" and len(problems) == 1:
        own = asked_for(request.having(loss=setting.loss), shape or shape_of(source)._replace(classes=0))
        stall = watched(own, changes=shape is not None and options["run_dir"] is None)
    options["give_up"] = stall
    log.info("plan: %s", plan)
    if (plan.places or plan.set_rows) and (link is None or plan.gathered):  # workers load kernels for themselves
        with peak.leaving_out():
            warm(problems[0].setting, source.index_width, options["dtype"])
            if plan.gathered:
                warm_gathered(problems[0].setting, source.index_width, options["dtype"])
    elif plan.tiled and link is None:
        with peak.leaving_out():
            warm_together(problems[0].setting, source.index_width, options["dtype"], options["prune"] is not None)
    if options["prune"] is not None:
        with peak.leaving_out():
            warm_left(problems[0].setting, source.index_width)
    for record in source.warnings:
        if record not in source.said:
            log.warning("%s", record)
    apart = options["validate"]
    if not options["resume"] and is_stored(apart) and (isinstance(apart, Dataset) or not are_raw(apart)):
        measurable(apart, source, problems[0].setting.loss in REGRESSION)  # not only after an epoch
    if len(turns) > 1:

        def train(part: list[Problem], its: Plan, theirs: RunOptions) -> Model:
            return train_settled(source, part, its, theirs, peak, link)

        model = in_turns(turns, options, train)
        model.result_.memory["peak"] = max(model.result_.memory["peak"], peak.peak)  # joining the turns, too
    else:
        model = train_settled(source, problems, plan, options, peak, link)
    if said := silence(model, source):
        model.result_.warnings = model.facts["warnings"] = [*model.result_.warnings, *said]
    return model, len(source.warnings), stall


def train_settled(
    source: Rows,
    problems: list[Problem],
    plan: Plan,
    options: RunOptions,
    peak: PeakMemory,
    link: Link | None,
    beginning: Checkpoint | None = None,
    bench: Bench | None = None,
) -> Model:
    """Hold the run directory, the signals and the screen while the run goes; ``beginning``, ``bench`` : what it begins
    with, and where its rows are already, as ``conducted`` takes them."""
    with contextlib.ExitStack() as stack:
        directory = RunDirectory(options["run_dir"]) if options["run_dir"] is not None else None
        limits = {name: options[name] for name in ("epochs", "max_seconds")}
        if directory is not None:
            directory.acquire()
            stack.callback(directory.release)
            asked = _asked(source, problems, plan, options)
            before = directory.begin(asked, options["resume"], may_loosen=True, by_content=source.tell_content)
            finished = _finished(directory, limits, options["tol"], options["prune"]) if before else None
            if finished is not None:
                log.info("%s: the run had ended, and there was nothing left to do; this is its model", directory.path)
                return finished
        run, history = stack.enter_context(
            conducted(source, problems, plan, options, link, directory, beginning, bench)
        )
        if options["prune"] is not None:
            prune(run, source, options["prune"])
        result = result_of(run, plan, history, peak, source)
        result.chosen = options["chosen"]
        if options["init"] is not None and (seen := share_seen(options["init"], source)):
            result.progressive["seen"] = seen
        if isinstance(run.engine, LocalEngine):
            run.engine.bench.forget()  # makes room for the answer
        model = model_of(run, source, result, options)
        run.forget()  # the model has what it needs, and this makes room for its bytes while it is written
        if directory is not None:
            if history:
                directory.record(history[-1], now=True)
            model.facts |= {"limits": limits, "run": directory.run}
            directory.keep(model)
        result.memory["peak"] = max(result.memory["peak"], peak.peak)  # making and writing the model, too
    if not result.converged:
        warn_of_limits(result, options)
    return model


@contextlib.contextmanager
def conducted(
    source: Rows,
    problems: list[Problem],
    plan: Plan,
    options: RunOptions,
    link: Link | None,
    directory: RunDirectory | None,
    beginning: Checkpoint | None = None,
    before: Bench | None = None,
) -> Iterator[tuple[Run, list[Record]]]:
    """A run that has come to its end, and its history; its arrays last as long as the ``with``.

    ``beginning`` is what it begins with where there is no checkpoint of its own; ``before`` a bench of the same source
    in this process, whose rows it takes over.
    """
    with contextlib.ExitStack() as stack:
        job = Job(uuid.uuid4().hex, source, problems, plan, options["tol"], options["local_dir"])
        screen = _screen(options["progress"], options.get("title", "training"))
        history: list[Record] = []

        def watch(record: Record) -> None:
            if options["validate"] is not None:
                record["validation"] = validation(run, source, options["validate"], link, options["patience"])
            history.append(record)
            if directory is not None:
                directory.record(record)
            screen.epoch(record)
            for callback in options["callbacks"]:
                callback(record)

        stopping = stack.enter_context(_signals())
        engine = _engine(job, link, options, directory)
        run = Run(
            source, problems, plan, engine, tol=options["tol"], epochs=options["epochs"],
            max_seconds=options["max_seconds"], directory=directory, checkpoint_every=options["checkpoint_every"],
            watch=watch, advance=screen.advance, stopping=stopping, early_stopping=options.get("early_stopping"),
            give_up=options.get("give_up"),
        )  # fmt: skip
        stack.callback(run.release)
        if before is not None and isinstance(run.engine, LocalEngine):
            run.engine.bench.take_over(before)
        if options["init"] is not None:
            _start_from(run, options["init"], source)
        saved = None
        if directory is not None and options["resume"]:
            saved = directory.newest(len(plan.groups), plan.rows_sides > 0, run.require)
        if saved is not None:
            assert directory is not None
            _restore(run, saved, directory)
            go_further(run)
            history += directory.history(run.epoch if run.segment else run.epoch - 1)
        elif directory is not None and options["resume"]:
            directory.history(0)
        if saved is None and beginning is not None:
            run.restore(beginning)
        shown_plan = plan.as_json() | {
            "n_rows": source.n_rows, "method": problems[0].setting.method.name, "epoch": run.epoch,
            "epochs": run.last_epoch if options["tol"] is None else None,  # else it ends by its gap
            "status": None if link is None else run.engine.status,
        }  # fmt: skip
        screen.start(cast("Shown", shown_plan))
        shown = stack.enter_context(contextlib.ExitStack())
        shown.callback(screen.stop)
        try:
            run.go()
        except (Interrupted, ClusterError) as error:
            raise _with_advice(error, directory) from error.__cause__
        shown.close()
        yield run, history


def _restore(run: Run, saved: Checkpoint, directory: RunDirectory) -> None:
    try:
        run.restore(saved)
    except KeyError as error:
        raise RunError(f"{directory.path}: the checkpoint of epoch {saved.facts['epoch']} has no array {error}; "
                       "remove it, or use another run directory") from None  # fmt: skip


def _engine(job: Job, link: Link | None, options: RunOptions, directory: RunDirectory | None) -> Callable[..., Engine]:
    if link is None:
        return functools.partial(LocalEngine, job)
    from bigclf.cluster.dealing import engine_for

    aside = options.get("rows_aside")
    place = RowsAside(aside) if directory is None and aside is not None else directory
    return functools.partial(engine_for(job), job, link=link, patience=options["patience"], directory=place)


def _with_advice(error: Interrupted | ClusterError, directory: RunDirectory | None) -> Interrupted | ClusterError:
    if directory is None:
        return type(error)(f"{error}; nothing was written down (no run directory was given)")
    return type(error)(f"{error}; resume it with run_dir={directory.path!r}, resume=True")


def _asked(source: Rows, problems: list[Problem], plan: Plan, options: RunOptions) -> dict[str, Any]:
    """``run.json``: the identity, which a resumed run must share, and what else there is to know."""
    import numba
    import pyarrow

    setting = problems[0].setting
    identity = {
        "method": setting.method.name,
        "loss": setting.loss,
        "settings": setting.settings,
        "bias": options["bias"],
        "class_weights": _weights_of(problems),
        "init": None if options["init"] is None else options["init"].state_digest(),
        **({} if options.get("early_stopping") is None else {"early_stopping": options["early_stopping"]}),
        "tol": options["tol"],
        "data": {
            "digest": source.digest,
            "n_rows": source.n_rows,
            "n_features": source.n_features,
            "nnz": source.nnz,
            **({} if source.feature_ids is None else {"of_features": source.feature_ids.n_features}),
        },
        "plan": plan.same_bits(),
    }
    return {
        "version": VERSION,
        "identity": identity,
        "limits": {name: options[name] for name in ("epochs", "max_seconds")},
        **({"chosen": options["chosen"]} if options.get("chosen") else {}),
        **({} if options.get("prune") is None else {"prune": options["prune"]}),
        **({"class_weight": "balanced"} if isinstance(options.get("class_weight"), str) else {}),
        "plan": plan.as_json(),
        "files": [
            {"path": masked(files.absolute(path)), **found._asdict()}
            for path, found in zip(source.files, source.fingerprints, strict=True)
        ],
        **({"columns": columns} if (columns := getattr(source, "columns", None)) else {}),
        **({"raw": source.raw} if isinstance(source, Dataset) else {}),  # None: of shards that a person has
        "versions": {
            "bigclf": __version__,
            "numpy": np.__version__,
            "numba": numba.__version__,
            "pyarrow": pyarrow.__version__,
            "python": platform.python_version(),
        },
        "cpu": cpu_type(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _weights_of(problems: list[Problem]) -> list[float] | None:
    """The weights of the classes; of rows with several labels each those of rows without and with each label."""
    weights = problems[0].class_weights
    if weights is None or problems[0].label is None:
        return None if weights is None else weights.tolist()
    return np.concatenate([problem.class_weights for problem in problems]).tolist()


def _finished(
    directory: RunDirectory, limits: Mapping[str, object], tol: float | None, prune: float | None
) -> Model | None:
    """The model of a run that ended, if it may not go on under these limits and this tolerance."""
    path = directory.file("model.bigclf")
    if not files.exists(path):
        return None
    model = known_again(path, directory.history())
    if (model.facts.get("pruned") or {}).get("tol") != prune:
        return None
    stopped, had = model.facts.get("stopped"), model.facts.get("tol")
    near = stopped == "tolerance" and had is not None and tol is not None and had <= tol  # it may have grown before
    same = model.facts.get("limits") == limits and had == tol
    return model if near or stopped == "settled" or same else None


def known_again(path: str, history: list[Record]) -> Model:
    """The model in a file, with the ``result_`` of its training.

    Raises
    ------
    ModelFormatError : it is none that was trained here.
    """
    model = load(path)
    held = json.loads(json.dumps(model.facts))
    try:
        check_fields(held, TRAINED, "facts")
    except FieldError as error:
        raise ModelFormatError(f"{path}: not a usable model of this run: {error}") from None
    model.result_ = Result(
        history, model.certificate, held["progressive"], held["plan"], bool(held["converged"]),
        held["reads"], held["epochs"], held["seconds"], held["memory"], held["stopped"], held["mistakes"],
        held["bytes_read"], held["warnings"],
        held.get("repeatable", True), held.get("chosen", ""),
    )  # fmt: skip
    return model


class _Silent:
    """A screen that shows nothing."""

    def start(self, plan: Shown) -> None: ...

    def advance(self, rows: int, nbytes: int) -> None: ...

    def epoch(self, record: Record) -> None: ...

    def stop(self) -> None: ...


def _screen(progress: Watcher | bool | None, title: str) -> Screen:
    if progress is False:
        return _Silent()
    if progress in (None, True):
        return TerminalProgress(title)
    return cast("Screen", progress)


@contextlib.contextmanager
def _signals() -> Iterator[Callable[[], str | None]]:
    """The first SIGINT or SIGTERM asks the run to stop at the end of its segment; the second one is as usual."""
    said: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before: dict[signal.Signals, Any] = {}

    def note(number: int, frame: object) -> None:
        said.append(signal.Signals(number).name)
        for again, handler in before.items():
            signal.signal(again, handler)

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, note)
    try:
        yield lambda: said[0] if said else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start_from(run: Run, init: Model, source: Rows) -> None:
    """Begin with the weights of a model; of features and classes that it does not know they are 0."""
    mine = plain_names(init.features, init.columns.get("features"))
    its = plain_names(source.features, source.layout.values if isinstance(source, Dataset) else None)
    path = (source.made_of if isinstance(source, Dataset) else None) or next(iter(source.files), None)
    require_named(init.columns.get("features"), source.features, path)
    if are_numbered(init.features) and is_columns(source.features):
        raise DataError("the model of init takes features by their numbers in text, and these are made of raw columns: "
                        "begin without init, or with a model of such a table", file=path)  # fmt: skip
    if mine is not None and its is not None:
        if isinstance(source, Dataset) and (told := names_differ(mine, its[: len(mine)])):
            raise DataError(f"these rows cannot go on from the model of init: the file has {told}", file=path)
        require_same_names(mine, its[: len(mine)], f"X[{names_in(init.features)}]")
    init = spelt_as(init, source.classes)
    given, init = init, grown(init, source.n_features, source.classes, source.feature_ids)
    place, further = run.method.form.place, init is given and goes_on(run, init)
    if place is None and not further:
        why = "cannot begin with weights" if init is given else "goes on from its whole state, and the data have grown"
        raise TypeError(f"init has no effect with {run.method.asked}: it {why}")
    run.version = 1
    if further:
        _warn_of_other_bits(run, init)
        continue_from(run, init.state, int(init.facts.get("best_epoch", init.facts["epochs"])))
    for number, (problem, state) in enumerate(zip(run.problems, run.states, strict=True)):
        if place is not None and not (init.state and further):
            constant = init.intercept_ * problem.setting.settings["bias"]
            if run.plan.places:
                problem.setting.form.place(state, (init.weights, constant), problem.setting.params())
                continue
            held = init.weights.toarray() if init.sparse else init.weights
            begin = np.hstack([held, constant[:, None]])
            weights = class_columns(begin, len(source.classes)) if run.method.all_classes else begin[number]
            place(state, weights, problem.setting.params())


def _warn_of_other_bits(run: Run, init: Model) -> None:
    """A run that goes on from ``init`` with other random numbers or another type of weights is not the same run."""
    theirs = {"dtype": init.facts.get("plan", {}).get("dtype"), "seed": init.facts.get("seed")}
    mine = {"dtype": run.plan.dtype, "seed": run.plan.seed}
    for name, value in theirs.items():
        if value not in (None, mine[name]):
            log.warning(
                "init was trained with %s=%s, the run goes on with %s=%s: %s, and the bits are not those of one run",
                name, value, name, mine[name],
                "its state is converted" if name == "dtype" else "the rows come in other orders",
            )  # fmt: skip


def goes_on(run: Run, init: Model) -> bool:
    """Whether ``init`` was trained as this run is, in as many groups or not, so that it can go on where that ended."""
    setting = run.problems[0].setting
    mine = {"name": setting.method.name, "loss": setting.loss, **setting.chosen}
    mine = {name: value for name, value in mine.items() if name not in ("bias", "groups", "mixing", "momentum")}
    theirs = {name: value for name, value in init.method.items() if name in mine}
    known = setting.is_answer(run.states[0]) or bool(init.state)
    return known and "epochs" in init.facts and theirs == mine
