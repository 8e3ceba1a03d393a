"""``fit``: from what a person says to a run, and from its outcome to a model."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import logging
import platform
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bigclf.api.options import refuse_gone
from bigclf.data import files
from bigclf.data.arrays import listed_names, require_same_names
from bigclf.data.collected import collected, is_collection
from bigclf.data.dataset import Dataset
from bigclf.data.features.spec import refuse_shell_names
from bigclf.data.iterator import is_iterator, write_down
from bigclf.data.json_fields import FieldError, check_fields
from bigclf.errors import ClusterError, Interrupted, ModelFormatError, RunError, masked
from bigclf.jit import cpu_type
from bigclf.losses import REGRESSION
from bigclf.methods import METHODS, Method, Setting, native, resolve
from bigclf.model import Model, load
from bigclf.raw import of_columns
from bigclf.training.bench import Bench, Job
from bigclf.training.choice import Asked, choose
from bigclf.training.engines import Engine, LocalEngine
from bigclf.training.memory import PeakMemory
from bigclf.training.outcome import (
    Result,
    class_columns,
    grown,
    model_of,
    result_of,
    share_seen,
    validation,
    warn_of_limits,
)
from bigclf.training.plan import Plan, settle
from bigclf.training.preparing import Request, default_epochs, default_groups, prepare
from bigclf.training.problems import Problem
from bigclf.training.run import Run
from bigclf.training.run_directory import VERSION, Checkpoint, RunDirectory
from bigclf.training.run_record import TRAINED
from bigclf.training.sources import counts_of, warm
from bigclf.training.workers import is_cluster, linked, patience_of
from bigclf.units import parse_bytes
from bigclf.version import __version__

log = logging.getLogger("bigclf")


def fit(
    data: Any,
    y: Any = None,
    *,
    algo: str = "dcd",
    loss: str | None = None,
    penalty: str | None = None,
    C: float | None = None,
    bias: str | None = "feature",
    sample_weight: Any = None,
    class_weight: Any = None,
    multiclass: str = "auto",
    dtype: str = "float64",
    memory: int | str = "2GB",
    tol: float | None = None,
    epochs: int | None = None,
    max_seconds: float | None = None,
    seed: int = 0,
    init: Model | None = None,
    validate: Any = None,
    early_stopping: int | None = None,
    workers: Any = None,
    groups: int | None = None,
    mixing: str | None = None,
    threads: int | None = None,
    run_dir: Any = None,
    resume: bool = False,
    checkpoint_every: float = 60,
    local_dir: Any = None,
    columns: dict[str, str] | None = None,
    on_bad_rows: str = "error",
    patience: Mapping[str, float] | None = None,
    callbacks: Sequence[Callable[[dict[str, Any]], None]] = (),
    progress: Any = None,
    features: Any = None,
    format: str | None = None,
    hash_bits: int | None = None,
    **params: Any,
) -> Model:
    """Train a linear classifier, or with an epsilon-insensitive loss a linear regression.

    Parameters
    ----------
    data : path, directory or glob of Parquet, or ``Dataset``; or a matrix [rows, features] (numpy, scipy sparse,
        pandas, pyarrow), then ``y`` [rows] holds its labels (for a regression numbers); or a Dask DataFrame, which its
        workers write down beside ``run_dir``, else among scratch files; or an iterator of blocks (X, y[, weights]) or
        (indptr, indices, values or None, labels[, weights]), which is written down as shards under ``local_dir`` while
        the run lasts.
    features, format : of raw columns, what becomes of them (a spec: a table, YAML or ``Spec``) and what the files are,
        as ``convert`` takes them; ``data`` is then raw files, which become shards in a cache once, or a table (pandas,
        Polars, Arrow) with ``y`` or the label's column in the spec. The model takes raw rows too.
        With ``format`` "svmlight", "vw" or a reader of your own ``data`` is text of rows that are sparse already;
        ``hash_bits``: of "vw", names of features are hashed to so many bits.
    algo : name of the method (``bigclf.algorithms()``), or "auto": chosen by loss, penalty, size, memory and groups,
        which ``result_.chosen`` gives the reason of; ``loss``, ``C`` and ``params`` are its own.
    loss, penalty : by name, of those the method has (None: its first). C : price of a unit of loss, LIBLINEAR's.
    bias : "feature" (a constant 1, regularised, LIBLINEAR's -B 1), "free" (not regularised; gradient methods, PUMMA,
        MEMMA, newGLMNET) or None, which may be written "none".
    sample_weight : [rows] at least 0, for matrices; shards bring theirs in the column ``weight``.
    class_weight : None, "balanced" or {label: weight}.
    multiclass : "one-vs-rest" (K problems over one read of each block), "native" (all classes at once, by those methods
        that have it), or "auto": the first, unless the method has the second only. Where weights of every feature and
        class do not fit in ``memory``, perceptron_mc, pa_mc, pa1_mc and pa2_mc (steps against one class) hold those
        that are touched alone: the same numbers, and ``coef_`` is sparse.
    dtype : of the weights while training, "float64" or "float32"; certificates are float64 always.
    memory : bytes for data, state and caches, as a number or like "256MB"; interpreter and libraries come on top.
    tol : relative duality gap at which to stop (dcd: 1e-3); epochs, max_seconds : limits. epochs=None is 10,000 for
        a certified method; for an online one about a million visits to rows, but at least 5 epochs and at most 100.
        epochs=1 of a certified method without ``tol`` is an online one: every row is learned from once, in one read,
        and there is no certificate.
    groups : virtual workers whose weights are mixed after each epoch; mixing : how, "rows" (the default), "uniform" or
        "mistakes" (with a margin, by updates) for the shares of online methods, "pull" (the default) or one of these
        for averaged_pa2, "line_search" (the default) or "safe" for dcd; some have others, ``bigclf algorithms NAME``
        all of them, the default first. groups=None is 1 in this process, else the workers at the start. threads : cores
        of a visit, which never change bits: 1 (the default on a cluster) reads and learns in turn, 2 (the default here,
        and the most that is used) reads ahead.
    workers : who makes the visits; never changes the result. None or 1: this process; a number: so many processes,
        started here; else a Dask client, a cluster object or a scheduler's address.
    patience : of a cluster, in seconds: {"stale": without a sign of life a worker is given up on (10), "least": every
        visit may take (30), "idle": without any worker until the run gives up (300)}; others in ``training/book.py``.
    run_dir : directory for checkpoints (at most every ``checkpoint_every`` seconds) and history; ``resume`` goes on,
        also where the run stopped at its limits: with larger ones or a larger ``tol``. Where there is no run it begins.
    local_dir : keep the raw store there for later runs; None: a nameless file on local disk for this run.
    on_bad_rows : "error", the only choice here: bad rows of text are dealt with by ``convert``.
    seed : of every random choice; the same one gives the same bits.
    columns : names in Parquet that bigclf did not write: {"label": ..., "indices": ..., "values": ..., "weight": ...}.
    validate : Dataset, glob or (X, y) to evaluate on after each epoch (accuracy, or of a regression mean squared and
        absolute error, into the history).
    early_stopping : end after so many epochs in a row without a better figure on ``validate`` (methods without a
        certificate; epochs=None is then at most 100); the answer is the best epoch's, and
        ``init`` goes on from there.
    init : model to start from (methods without dual variables); of features and classes that it does not know the
        weights begin at 0. Where it was trained by the same method with the same settings on data of the same features
        and classes, the run goes on exactly where it ended: with the same rows, ``fit`` for 3 epochs and 2 more with
        ``init`` give the bits of 5. So it does in other groups or mixed in another way, which take over its weights
        and averages. With another ``dtype`` its numbers are converted, with another ``seed`` the rows come in other
        orders; a warning says so.
    callbacks : called with each record of the history; progress : True, False or None (a bar on a terminal only).

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
    refuse_shell_names(params)
    refuse_gone(params)
    if is_collection(data):
        given = {name: value for name, value in locals().items() if name not in ("data", "params", "format")}
        if y is not None:
            raise TypeError("y has no effect with a Dask DataFrame: name the column of the label in features")
        place = files.join(files.scratch_directory(local_dir), "rows") if run_dir is None else files.absolute(run_dir)
        with collected(data, place) as (folder, kind):
            return fit(folder, format=kind, **given, **params)
    require_whole({"groups": groups}, "groups")
    bias = None if bias == "none" else bias
    if features is not None or format is not None or hash_bits is not None:
        refuse_early({**locals(), "on_bad_rows": "error"})
        data, y, sample_weight, validate = of_columns(
            data, y, sample_weight, validate, features, format, hash_bits=hash_bits, memory=memory, seed=seed,
            on_bad_rows=on_bad_rows, progress=progress,
        )  # fmt: skip
        on_bad_rows = "error"
    chosen = ""
    if algo == "auto":
        counts = counts_of(data, columns, parse_bytes(memory))
        some = groups or (2 if is_cluster(workers) else 1)
        algo, chosen = choose(Asked(loss, penalty, bias, C or 1.0, (*params, *(["C"] if C is not None else [])), epochs,
                                    *counts, parse_bytes(memory), some))  # fmt: skip
        log.info("%s", chosen)
    named = native(algo, multiclass), loss, penalty, bias, params | ({} if C is None else {"C": C}), mixing
    setting = resolve(*named, groups=groups or (2 if is_cluster(workers) else 1))
    options = _checked(setting, locals())
    options["chosen"] = chosen
    with contextlib.ExitStack() as stack:
        link, peak = stack.enter_context(linked(workers, options["patience"])), stack.enter_context(PeakMemory())
        if is_iterator(data):
            _refuse_beside_iterator(y, sample_weight, columns, link, run_dir)
            data = stack.enter_context(spooled(data, setting.loss in REGRESSION, options))
        request = Request(
            data, y, sample_weight, columns, class_weight, groups,
            default_groups=lambda: default_groups(setting.method, link, options),
            settings_for=lambda groups: [resolve(*named[:-1], mixing if groups > 1 else None, groups=groups)],
            memory=options["memory"], dtype=dtype, seed=seed, threads=threads or (2 if link is None else 1),
            local_dir=local_dir if link is None else None,
        )  # fmt: skip
        prepared = prepare(request, [setting], peak)
        source = prepared.source
        options["epochs"] = options["epochs"] or default_epochs(setting.method, source.learnable[0], early_stopping)
        problems, plan = settle(
            source, prepared.problems(options["memory"]),
            reads=options["epochs"] + (options["tol"] is not None), keeps_best=early_stopping is not None,
            **prepared.shape,
        )  # fmt: skip
        log.info("plan: %s", plan)
        if plan.places:
            warm(problems[0].setting, source.index_width, dtype)
        for record in source.warnings:
            log.warning("%s", record)
        model = _train(source, problems, plan, options, peak, link)
    for record in model.result_.warnings[len(source.warnings) :]:
        log.warning("%s", record)
    return model


def refuse_early(given: Mapping[str, Any]) -> None:
    """Refuse of the arguments of ``fit`` what makes no sense whatever the rows are, before files become shards.

    Raises
    ------
    TypeError, ValueError : as ``fit``; of ``algo="auto"``, whose choice needs the rows, nothing is refused.
    """
    if given["algo"] == "auto":
        return
    price = {} if given["C"] is None else {"C": given["C"]}
    groups = given["groups"] or (2 if is_cluster(given["workers"]) else 1)
    bias = None if given["bias"] == "none" else given["bias"]
    named = native(given["algo"], given["multiclass"]), given["loss"], given["penalty"], bias
    _checked(resolve(*named, given["params"] | price, given["mixing"], groups=groups), dict(given))


def arguments_of(function: Callable[..., Any], said: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments of ``fit``, ``sweep`` or ``path``, those that were said and the defaults of the others."""
    bound = inspect.signature(function).bind(None, **said)
    bound.apply_defaults()
    return bound.arguments


def _checked(setting: Setting, given: dict[str, Any]) -> dict[str, Any]:
    """What a person said, checked; limits filled in with the method's own."""
    method = setting.method
    if setting.loss in REGRESSION:
        for name, default in (("multiclass", "auto"), ("class_weight", None)):
            if given[name] != default:
                raise TypeError(f"{name} has no effect with loss={setting.loss!r}: there are no classes")
    if given["dtype"] not in ("float64", "float32"):
        raise ValueError(f'dtype must be "float64" or "float32", not {given["dtype"]!r}')
    if given["on_bad_rows"] != "error":
        raise ValueError('on_bad_rows must be "error" when training; convert can skip or quarantine bad rows')
    require_numbers(given, "tol", "epochs", "max_seconds", "seed", "checkpoint_every")
    if not given["checkpoint_every"] >= 0:
        raise ValueError(f"checkpoint_every must be at least 0 seconds, not {given['checkpoint_every']!r}")
    if not isinstance(given["callbacks"], list | tuple) or not all(map(callable, given["callbacks"])):
        raise TypeError("callbacks must be a list of functions that take a record")
    tol, epochs = given["tol"], given["epochs"]
    if tol is not None and not method.certificate:
        raise TypeError(f"tol has no effect with {method.asked}: it has no certificate; set epochs=")
    if tol is not None and not 0 <= float(tol) < 1:
        raise ValueError(f"tol must be at least 0 and less than 1, not {tol!r}")
    if epochs is not None and (int(epochs) != epochs or epochs < 1):
        raise ValueError(f"epochs must be a whole number of at least 1, not {epochs!r}")
    require_whole(given, "threads")
    if given["max_seconds"] is not None and not given["max_seconds"] > 0:
        raise ValueError(f"max_seconds must be more than 0, not {given['max_seconds']!r}")
    require_early_stopping(given["early_stopping"], given["validate"], method)
    if given["init"] is not None and method.rows is not None and method.absorb is None:
        raise TypeError(f"init has no effect with {method.asked}: its answer comes from dual variables")
    if int(given["seed"]) != given["seed"] or given["seed"] < 0:
        raise ValueError(f"seed must be a whole number of at least 0, not {given['seed']!r}")
    if given["resume"] and given["run_dir"] is None:
        raise ValueError("resume=True needs run_dir=")
    names = ("bias", "class_weight", "max_seconds", "seed", "init", "validate", "early_stopping", "run_dir", "resume",
             "checkpoint_every", "local_dir", "callbacks", "progress")  # fmt: skip
    options = {name: given[name] for name in names}
    options["patience"] = patience_of(given["patience"], given["workers"])
    options["memory"] = parse_bytes(given["memory"])
    options["tol"] = (method.tol if tol is None else float(tol)) if method.certificate else None
    options["epochs"] = None if epochs is None else int(epochs)
    if tol is None and options["epochs"] == 1 and method.absorb is None:
        options["tol"] = None  # one look at each row: nothing of it is left to certify
    return options


def require_early_stopping(patience: Any, validate: Any, method: Method) -> None:
    """TypeError or ValueError where it makes no sense."""
    if patience is None:
        return
    if method.certificate:
        raise TypeError(f"early_stopping has no effect with {method.asked}: it ends at its tolerance")
    if not method.linear:
        raise TypeError(f"early_stopping is not available with {method.asked}: its answer is not its weights")
    if validate is None:
        raise TypeError("early_stopping has no effect without validate=: rows to measure on")
    if isinstance(patience, bool) or not isinstance(patience, int | np.integer) or patience < 1:
        raise ValueError(f"early_stopping must be a whole number of at least 1, not {patience!r}")


def _refuse_beside_iterator(y: Any, sample_weight: Any, columns: Any, link: Any, run_dir: Any) -> None:
    """What has no meaning beside an iterator of blocks."""
    for name, value in (("y", y), ("sample_weight", sample_weight), ("columns", columns)):
        if value is not None:
            raise TypeError(f"{name} has no effect with an iterator of blocks: they bring their own")
    if link is not None:
        raise TypeError("workers of a cluster do not see an iterator of blocks: write it down with write_shards")


@contextlib.contextmanager
def spooled(blocks: Any, regression: bool, options: dict[str, Any]) -> Iterator[Dataset]:
    """The rows of an iterator as shards in a directory of their own, which is removed in the end."""
    place = files.join(files.scratch_directory(options["local_dir"]), f"bigclf-rows-{uuid.uuid4().hex}")
    try:
        yield write_down(blocks, place, real_labels=regression, memory=options["memory"] // 2)
    finally:
        files.remove_tree(place)


def require_numbers(given: dict[str, Any], *names: str) -> None:
    for name in names:
        if given[name] is not None and not isinstance(given[name], int | float | np.number):
            raise ValueError(f"{name} must be a number, not {given[name]!r}")


def require_whole(given: dict[str, Any], *names: str) -> None:
    require_numbers(given, *names)
    for name in names:
        if given[name] is not None and (int(given[name]) != given[name] or given[name] < 1):
            raise ValueError(f"{name} must be a whole number of at least 1, not {given[name]!r}")


def refuse_what_fit_has(names: Iterable[str], where: str) -> None:
    """TypeError for parameters of ``fit`` that are no method's: they have no place among the methods' own."""
    own = {param.name for method in METHODS.values() for param in method.params} | {"loss", "algo"}
    for name in names:
        if name not in own and name in inspect.signature(fit).parameters:
            raise TypeError(f"{name} has no place in {where}: it is a parameter of bigclf.fit")


def _train(
    source: Any, problems: list[Problem], plan: Plan, options: dict[str, Any], peak: PeakMemory, link: Any
) -> Model:
    """Hold the run directory, the signals and the screen while the run goes."""
    with contextlib.ExitStack() as stack:
        directory = RunDirectory(options["run_dir"]) if options["run_dir"] is not None else None
        limits = {name: options[name] for name in ("epochs", "max_seconds")}
        if directory is not None:
            directory.acquire()
            stack.callback(directory.release)
            before = directory.begin(_asked(source, problems, plan, options), options["resume"], may_loosen=True)
            finished = _finished(directory, limits, options["tol"]) if before else None
            if finished is not None:
                return finished
        run, history = stack.enter_context(conducted(source, problems, plan, options, link, directory))
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
    source: Any,
    problems: list[Problem],
    plan: Plan,
    options: dict[str, Any],
    link: Any,
    directory: RunDirectory | None,
    beginning: Checkpoint | None = None,
    before: Bench | None = None,
) -> Iterator[tuple[Run, list[dict[str, Any]]]]:
    """A run that has come to its end, and its history; its arrays last as long as the ``with``.

    ``beginning`` is what it begins with where there is no checkpoint of its own; ``before`` a bench of the same source
    in this process, whose rows it takes over.
    """
    with contextlib.ExitStack() as stack:
        job = Job(uuid.uuid4().hex, source, problems, plan, options["tol"], options["local_dir"])
        screen = _screen(options["progress"], options.get("title", "training"))
        history: list[dict[str, Any]] = []

        def watch(record: dict[str, Any]) -> None:
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
            watch=watch, progress=screen, stopping=stopping, early_stopping=options.get("early_stopping"),
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
            run.go_further()
            history += directory.history(run.epoch if run.segment else run.epoch - 1)
        elif directory is not None and options["resume"]:
            directory.history(0)
        if saved is None and beginning is not None:
            run.restore(beginning)
        screen.start(plan.as_json() | {
            "n_rows": source.n_rows, "method": problems[0].setting.method.name, "epoch": run.epoch,
            "epochs": run.last_epoch if options["tol"] is None else None,  # else it ends by its gap
            "status": None if link is None else run.engine.status,
        })  # fmt: skip
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


def _engine(job: Job, link: Any, options: dict[str, Any], directory: RunDirectory | None) -> Callable[..., Engine]:
    if link is None:
        return functools.partial(LocalEngine, job)
    from bigclf.training.cluster import DaskEngine

    return functools.partial(DaskEngine, job, link=link, patience=options["patience"], directory=directory)


def _with_advice(error: Interrupted | ClusterError, directory: RunDirectory | None) -> Interrupted | ClusterError:
    if directory is None:
        return type(error)(f"{error}; nothing was written down (no run directory was given)")
    return type(error)(f"{error}; resume it with run_dir={directory.path!r}, resume=True")


def _asked(source: Any, problems: list[Problem], plan: Plan, options: dict[str, Any]) -> dict[str, Any]:
    """``run.json``: the identity, which a resumed run must share, and what else there is to know."""
    import numba
    import pyarrow

    setting = problems[0].setting
    identity = {
        "method": setting.method.name,
        "loss": setting.loss,
        "settings": setting.settings,
        "bias": options["bias"],
        "class_weights": None if (weights := problems[0].class_weights) is None else weights.tolist(),
        "init": None if options["init"] is None else options["init"].state_digest(),
        **({} if options.get("early_stopping") is None else {"early_stopping": options["early_stopping"]}),
        "tol": options["tol"],
        "data": {"digest": source.digest, "n_rows": source.n_rows, "n_features": source.n_features, "nnz": source.nnz},
        "plan": plan.same_bits(),
    }
    return {
        "version": VERSION,
        "identity": identity,
        "limits": {name: options[name] for name in ("epochs", "max_seconds")},
        **({"chosen": options["chosen"]} if options.get("chosen") else {}),
        "plan": plan.as_json(),
        "files": [{"path": masked(p), **f._asdict()} for p, f in zip(source.files, source.fingerprints, strict=True)],
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


def _finished(directory: RunDirectory, limits: dict[str, Any], tol: float | None) -> Model | None:
    """The model of a run that ended, if it may not go on under these limits and this tolerance."""
    path = directory.file("model.bigclf")
    if not files.exists(path):
        return None
    model = known_again(path, directory.history())
    same = model.facts.get("limits") == limits and model.facts.get("tol") == tol
    return model if model.facts.get("stopped") in ("tolerance", "settled") or same else None


def known_again(path: str, history: list[dict[str, Any]]) -> Model:
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

    def start(self, plan: dict[str, Any]) -> None: ...

    def advance(self, rows: int, nbytes: int) -> None: ...

    def epoch(self, record: dict[str, Any]) -> None: ...

    def stop(self) -> None: ...


def _screen(progress: Any, title: str) -> Any:
    if progress is False:
        return _Silent()
    if progress in (None, True):
        from bigclf.progress import TerminalProgress

        return TerminalProgress(title)
    return progress


@contextlib.contextmanager
def _signals() -> Iterator[Callable[[], str | None]]:
    """The first SIGINT or SIGTERM asks the run to stop at the end of its segment; the second one is as usual."""
    said: list[str] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    before: dict[signal.Signals, Any] = {}

    def note(number: int, frame: Any) -> None:
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


def _start_from(run: Run, init: Model, source: Any) -> None:
    """Begin with the weights of a model; of features and classes that it does not know they are 0."""
    mine, its = listed_names(init.features), listed_names(source.features)
    if mine is not None and its is not None:
        require_same_names(mine, its[: len(mine)])
    given, init = init, grown(init, source.n_features, source.classes)
    place, further = run.method.place, init is given and goes_on(run, init)
    if place is None and not further:
        why = "cannot begin with weights" if init is given else "goes on from its whole state, and the data have grown"
        raise TypeError(f"init has no effect with {run.method.asked}: it {why}")
    run.version = 1
    if further:
        _warn_of_other_bits(run, init)
        run.continue_from(init.state, int(init.facts.get("best_epoch", init.facts["epochs"])))
    for number, (problem, state) in enumerate(zip(run.problems, run.states, strict=True)):
        if place is not None and not (init.state and further):
            constant = init.intercept_ * problem.setting.settings["bias"]
            if run.plan.places:
                problem.setting.form.place(state, (init.coef_, constant), problem.setting.params())
                continue
            begin = np.hstack([init.dense_weights(), constant[:, None]])
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
    mine = {name: value for name, value in mine.items() if name not in ("bias", "groups", "mixing")}
    theirs = {name: value for name, value in init.method.items() if name in mine}
    known = setting.is_answer(run.states[0]) or bool(init.state)
    return known and "epochs" in init.facts and theirs == mine
