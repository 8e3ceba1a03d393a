"""``bigclf fit``: shards to a model that says how good it is."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from bigclf import files
from bigclf.cli.evaluate import print_evaluation
from bigclf.cli.inspect import (
    NOT_REPEATABLE,
    certificate_text,
    cluster_text,
    disk_text,
    nonzero_weights,
    parameters_text,
    validation_text,
    weights_text,
)
from bigclf.cli.shared import columns, early, flags, terminal
from bigclf.errors import BigclfError, ClusterError, DataError, Interrupted, RunError
from bigclf.progress import gap_text, quality_text
from bigclf.units import format_bytes, format_peak, format_seconds, in_worker, plural, within_plan

if TYPE_CHECKING:
    from bigclf.cli.jobs.record import Record
    from bigclf.data.dataset import Stored
    from bigclf.metrics.figures import AnyEvaluation
    from bigclf.model.model import Model
    from bigclf.progress import Record as EpochRecord

MUCH = 2.0  # seconds beside the training that a person wonders about


@click.command("fit", short_help="Train a model.")
@terminal.data_argument
@click.option("-o", "--output", "model", required=True, metavar="MODEL", help="File for the model.")
@flags.of("fit")
@click.option("--report", metavar="FILE.html", help="Also write an HTML report; with --validate it includes"
              " measurements on those rows.")  # fmt: skip
@columns.raw_options
@click.option(
    "--evaluate", "test", cls=terminal.OneValue, metavar="DATA", help="Data on which to measure the model at the end."
)
@click.option("--holdout", type=click.FloatRange(0, 0.9, min_open=True), metavar="SHARE", help="Hold out this share of"
              " raw rows, chosen by a hash of their position in the file, and measure the model on them at the"
              " end.")  # fmt: skip
@terminal.overwrite_option
@terminal.json_option
@click.pass_context
def command(
    ctx: click.Context, data: tuple[str, ...], model: str, report: str | None, as_json: bool, **options: Any
) -> None:  # fmt: skip
    """Train a model on the shards DATA (a directory, a glob or files), or on raw tables and texts.

    Exit code 4: training stopped at a limit before it reached the tolerance. The model is written; to continue, run the
    same command with --resume and a larger limit or --tol. Exit code 5: the cluster was lost; the last line says how to
    resume.
    """
    started = time.perf_counter()
    begun = ctx.with_resource(early.begun(options["workers"]))
    overwrite, resume = options.pop("overwrite"), options["resume"]
    test, holdout, asked = options.pop("test"), options.pop("holdout"), columns.Asked.taken(options)
    bad = asked.of_bad_rows()
    own_directory = options["run_dir"] is None
    run_dir = options["run_dir"] = options["run_dir"] or f"{model}.run"
    if report and not overwrite:
        refuse_report(report, run_dir, resume)
    prepare(ctx, model, run_dir, overwrite=overwrite, resume=resume)
    begun_before = has_run(run_dir)
    if resume and not has_checkpoint(run_dir):
        terminal.say("note:", f"{run_dir}: no run to resume; starting from the beginning", "yellow")
    keywords = flags.keywords("fit", options)
    with terminal.usage_errors():
        from bigclf.api import fit, second_process

        request = fit.asked_of_fit(None, None, keywords)
    ctx.with_resource(second_process.compiling_beside(request, begun))
    rows: Any = list(data)
    form, features = asked.settled(rows, keywords, holdout)
    if features is not None:
        rows = columns.converted(rows, features, form, keywords, holdout, bad)
        if holdout:
            test = columns.held_out(list(data), rows, keywords, holdout, bad)
    elif form and not (holdout or asked.said.keys() - {"hash_bits"}):  # rows that are sparse already
        bits, said = asked.said.get("hash_bits"), asked.format is not None
        rows, test = columns.sparse(rows, test, form, keywords, bad, bits, said)
    else:
        if holdout:
            asked.refuse_holdout(rows, form, keywords.get("columns") or {})
        asked.refuse_without_features(form)
    again = terminal.command_line(ctx, resume=True)
    if overwrite:
        allow_to_replace(model, run_dir)
    try:
        with terminal.resumable(again):
            trained = fit_showing(rows, keywords)
            save(trained, model)
        took = time.perf_counter() - started
    except (click.UsageError, BigclfError) as error:
        may_go_on = begun_before or isinstance(error, Interrupted | ClusterError) or has_checkpoint(run_dir)
        if own_directory and not may_go_on:
            clear_away(run_dir)
        raise
    kept = not own_directory or can_go_on(trained)
    measured, fault = (None, None) if test is None else measure(trained, test, bad)
    if holdout and measured is not None:
        measured.leave_out(*columns.left_out_of_held(test))
        keep_held_out(trained, holdout, measured, [model, kept_model(run_dir)] if kept else [model])
    if report:
        write_report(trained, report, model, options["validate"], run_dir, overwrite, bad)
    if not kept:
        clear_away(run_dir)
    if as_json:
        figures = {} if measured is None else {"evaluation": measured.to_dict()}
        terminal.emit_json({**summary(trained, model), "run_dir": run_dir if kept else None, **figures})
    else:
        print_fit(trained, model, run_dir, test is None, overwrite, took, asked.left_out)
        if report:
            click.echo(f"  report: {report}")
        if measured is not None:
            print_evaluation(measured)
    if fault is not None:
        raise fault
    if stopped_early(trained):
        ctx.exit(terminal.LIMITS)


def keep_held_out(model: Model, share: float, measured: AnyEvaluation, paths: list[str]) -> None:
    """Note in the model, and in its files, what it was measured to be on the rows held out."""
    measured.keep_in(model, share)
    for path in paths:
        try:
            save(model, path)
        except OSError as error:  # the model is there, without this note
            text = f"{path}: the figures on held-out rows were not added to it: {error.strerror or error}"
            terminal.say("warning:", text, "yellow")


def kept_model(run_dir: str) -> str:
    return files.join(run_dir, "model.bigclf")


def save(model: Model, path: str) -> None:
    """Write the model aside first: what is killed meanwhile leaves nothing there when the line is given again."""
    with files.together([path]) as place:
        model.save(place[path])


def refuse_report(report: str, run_dir: str, resume: bool) -> None:
    """RunError where there is a report, but with ``resume`` that of the run in ``run_dir`` itself."""
    if resume:
        recover(run_dir)
        written_by(run_dir).refuse_foreign([report])
    elif files.exists(report):
        raise RunError(f"{report} already exists; add --overwrite to replace it")


def written_by(run_dir: str) -> Record:
    """The record of what a run wrote outside of its directory."""
    from bigclf.cli.jobs.record import Record
    from bigclf.training.records.run_directory import WROTE

    return Record(files.join(run_dir, WROTE), "run")


def recover(run_dir: str) -> None:
    """Have a run again whose directory was to be removed when that was killed."""
    files.put_back(run_dir, if_holds="run.json")


def write_report(
    model: Model, report: str, path: str, validate: str | None, run_dir: str, overwrite: bool, bad: columns.OfBadRows
) -> None:
    """What happened in the run is in ``model.result_``; the run's directory notes what it writes."""
    from bigclf.cli.report import write

    record = written_by(run_dir)
    if not overwrite:
        record.refuse_foreign([report])  # one that came meanwhile
    with record.writing([report], overwrite=True), files.together([report]) as place:
        told = of_raw(model, validate, bad)
        write(model, place[report], validate, overwrite=True, title=files.base_name(path), **told)


def prepare(ctx: click.Context, model: str, run_dir: str, *, overwrite: bool, resume: bool) -> None:
    """Refuse what would destroy a model or an unfinished run; clear the way when that is wanted.

    Raises
    ------
    RunError : the output exists, its directory cannot be written, or an earlier run lies there or is under way.
    """
    from bigclf.training.records.lease import require_free
    from bigclf.training.records.run_directory import clear, take_back

    if files.is_directory(model):
        raise RunError(f"{model}: is a directory; name a file for the model")
    if resume or overwrite:
        recover(run_dir)
    there = has_run(run_dir)
    if there and resume == overwrite:
        require_free(run_dir)  # nobody is told to resume or replace a run that is under way, nor notes anything there
    if files.exists(model) and not overwrite:
        came_of_it = there and is_of_run(model, run_dir)
        if came_of_it and resume:
            take_back(run_dir, model)
        own = came_of_it or (there and may_replace(model, run_dir))
        if not (resume and own):
            raise RunError(f"{model} already exists; {what_to_do(model, run_dir, there, own, resume)}")
    directory = files.parent_directory(model)
    require_free(directory, below=False)  # of another run
    ctx.with_resource(files.made_for(model))
    files.make_directory(directory)
    files.probe_writable(directory)
    if there and not resume:
        if not overwrite:
            raise RunError(f"{run_dir}: an earlier run; add --overwrite to replace it, or --resume to continue it")
        clear(run_dir)


def is_of_run(model: str, run_dir: str) -> bool:
    """Whether the model in a file came of the run in ``run_dir``, which may go on and replace it."""
    from bigclf.model.model import load
    from bigclf.training.records.run_directory import run_of

    try:
        return load(model).facts.get("run", "") == run_of(run_dir)
    except BigclfError:  # a file of another kind
        return False


def allow_to_replace(model: str, run_dir: str) -> None:
    """Note in the run directory that its run replaces the model that is there now: then it goes on with --resume."""
    from bigclf.training.records.run_directory import REPLACES

    if files.exists(model):
        with contextlib.suppress(OSError):  # the run itself says what is wrong with its directory
            files.make_directory(run_dir)
            files.publish_text(files.join(run_dir, REPLACES), json.dumps([files.absolute(model), *files.status(model)]))


def may_replace(model: str, run_dir: str) -> bool:
    """Whether the run in ``run_dir`` was begun with --overwrite over the model that is still there."""
    from bigclf.training.records.run_directory import REPLACES

    try:
        noted = json.loads(files.read_text(files.join(run_dir, REPLACES)))
        return bool(noted == [files.absolute(model), *files.status(model)])
    except (OSError, ValueError, BigclfError):  # nothing is noted
        return False


def what_to_do(model: str, run_dir: str, has_run: bool, own: bool, resume: bool) -> str:
    """Advice where there is a model in the place of the one to be trained."""
    if own:
        return f"add --overwrite to replace it, or --resume to continue its run in {run_dir}"
    if not resume:
        return "add --overwrite to replace it"
    if has_run:
        return f"it is not from the run in {run_dir}; add --overwrite to replace it and continue that run"
    return f"there is no run to resume in {run_dir}; add --overwrite to replace it"


def clear_away(run_dir: str) -> None:
    """Remove what is left of a run that is over, unless another process has begun to work there."""
    from bigclf.training.records.run_directory import clear

    with contextlib.suppress(RunError):
        clear(run_dir)


def has_run(run_dir: str) -> bool:
    return files.exists(files.join(run_dir, "run.json"))


def has_checkpoint(run_dir: str) -> bool:
    from bigclf.training.records.run_directory import checkpoints_in

    return bool(checkpoints_in(run_dir))


def fit_showing(data: Stored, keywords: dict[str, Any]) -> Model:
    """``bigclf.fit`` with its progress; what is wrong with its arguments is a usage error."""
    from bigclf.api.fit import fit

    with terminal.usage_errors():
        if "init" in keywords:
            keywords = {**keywords, "init": columns.model_at(keywords["init"])}
        return fit(data[0] if isinstance(data, list) and len(data) == 1 else data, **keywords)


def stopped_early(model: Model) -> bool:
    """True when limits stopped a run that had a tolerance to reach."""
    result = model.result_
    if result is None or result.converged:
        return False
    return result.certificate is not None or result.stopped == "seconds"


def can_go_on(model: Model) -> bool:
    """True when a run that stopped early would come nearer to its tolerance with more time."""
    return stopped_early(model) and model.result_.stopped != "stalled"


def how_to_go_on(model: Model, run_dir: str, overwrite: bool) -> str:
    """What is to be said of a run that stopped early; ``overwrite`` : the line that began it said --overwrite."""
    result = model.result_
    if not can_go_on(model):
        return terminal.poor("not converged: floating point allows no better answer") + "; use a larger --tol"
    limit = "--max-seconds" if result.stopped == "seconds" else "--epochs"
    or_tolerance = " or --tol" * (result.certificate is not None)
    stopped = terminal.poor(f"not converged: stopped at its limit of {result.stopped}")
    if not has_checkpoint(run_dir):  # its disk was full
        return (f"{stopped}; {run_dir} has no checkpoint to resume from: free some disk space and train again with a "
                f"larger {limit}{or_tolerance} and --overwrite")  # fmt: skip
    resume = "--resume instead of --overwrite" if overwrite else "--resume"
    return f"{stopped}; to continue from {run_dir}, use {resume} and a larger {limit}{or_tolerance}"


def summary(model: Model, path: str) -> dict[str, object]:
    """What ``--json`` prints of a training."""
    result = model.result_
    return {
        "model": path,
        "method": model.method,
        "converged": result.converged,
        "stopped": result.stopped,
        "reads": result.reads,
        "epochs": result.epochs,
        "seconds": result.seconds,
        "certificate": result.certificate,
        "progressive": result.progressive,
        "repeatable": result.repeatable,
        "memory": result.memory,
        "history": result.history,
        "facts": model.facts,
    }


def measure(model: Model, test: object, bad: columns.OfBadRows) -> tuple[AnyEvaluation, None] | tuple[None, DataError]:
    """The figures of the model on ``test``, of whose rows, where they are raw, become ``bad`` what those become that
    it was trained on; or what is wrong with these rows, which is told once the model has been."""
    from bigclf.api.evaluate import evaluate

    try:
        with terminal.usage_errors():
            return evaluate(model, test, **of_raw(model, test, bad)), None
    except DataError as error:
        return None, error


def of_raw(model: Model, rows: object, bad: columns.OfBadRows) -> columns.OfBadRows:
    """``bad``, where it says something of these rows: they are raw files."""
    from bigclf.model.raw_input import may_be_bad

    return bad if may_be_bad(model, rows) else {}


def print_fit(
    model: Model, path: str, run_dir: str, advise: bool, overwrite: bool, took: float | None = None,
    left_out: Sequence[tuple[str, str]] = (),
) -> None:  # fmt: skip
    """``took`` : seconds since the command was given, of which training may be a small part; ``left_out`` : columns
    that nothing was learned from, each with the reason."""
    result = model.result_
    method, proof = dict(model.method), result.certificate or {}
    name = method.pop("name", "?")
    how_long = f"{plural(result.reads, 'read')}, {plural(result.epochs, 'epoch')}, {format_seconds(result.seconds)}"
    terminal.heading(f"{path}", f"{name} in {how_long}")
    terminal.facts(
        [
            ("chosen", result.chosen or None),
            ("quality", quality(model)),
            ("in all", in_all_text(took, result.seconds)),
            ("columns", columns_text(model, left_out)),
            ("validation", validation_text(model.facts.get("validation"), model.facts.get("best_epoch"))),
            trace(result.history, "read" if result.reads >= result.epochs else "epoch", proof.get("gap")),
            ("labels", f"{model.classes_.size:,}, any number a row" if model.multilabel else None),
            ("weights", weights_text(model.intercept_.size, model.n_features, nonzero_weights(model))),
            ("parameters", parameters_text(method)),
            ("memory", memory_text(result.memory)),
            ("disk", disk_text(result.plan)),
            ("repeatable", None if result.repeatable else NOT_REPEATABLE),
            ("cluster", cluster_text(result.history)),
        ],
        indent="  ",
    )
    if stopped_early(model):
        click.echo(f"  {how_to_go_on(model, run_dir, overwrite)}")
    accuracy = (model.facts.get("validation") or {}).get("accuracy")
    if advise and accuracy is not None:
        from bigclf.model.explanations import giving_away

        if told := giving_away(model, accuracy):
            terminal.say("note:", told, "yellow")
    if advise:
        click.echo(f"  next: {click.style(f'bigclf evaluate {path} TEST_DATA', bold=True)}")


def columns_text(model: Model, left_out: Sequence[tuple[str, str]] = (), most: int = 3) -> str | None:
    """``3 numbers, 2 categories, 1 date; left out: id (just numbers the rows)`` of a model of raw columns, ``3 numbers
    as they are, not scaled`` of one of columns of Parquet; None of any other."""
    if isinstance(names := model.columns.get("features"), list | tuple):
        return f"{plural(len(names), 'number')} as they are, not scaled"
    terms: Any = model.features.get("features")
    if not terms or not isinstance(terms, list):
        return None
    words = {"numeric": ("number", "numbers"), "categorical": ("category", "categories"), "cross": ("cross", "crosses"),
             "text": ("text", "texts"), "date": ("date", "dates")}  # fmt: skip
    counts = {kind: len({str(term[kind]) for term in terms if kind in term}) for kind in words}
    taken = ", ".join(f"{count:,} {words[kind][count != 1]}" for kind, count in counts.items() if count)
    if not left_out:
        return taken
    few = ", ".join(f"{terminal.printable(name)} ({terminal.printable(why)})" for name, why in left_out[:most])
    others = f" and {plural(len(left_out) - most, 'other')}" if len(left_out) > most else ""
    return f"{taken}; left out: {few}{others}"


def in_all_text(took: float | None, training: float) -> str | None:
    """What a command took in all, where training was not most of it."""
    if took is None or took < MUCH or took < 2 * training:
        return None
    return f"{format_seconds(took)} including reading the data and compiling"


def quality(model: Model) -> str | None:
    """The figure that says how good the answer is, in colour."""
    result = model.result_
    colour = terminal.poor if stopped_early(model) else terminal.good
    if text := certificate_text(result.certificate):
        return colour(text)
    if result.progressive:
        colour = terminal.poor if "seen" in result.progressive else colour
        return colour(progressive_text(result.progressive))
    return None


def progressive_text(progressive: Mapping[str, Any]) -> str:
    from bigclf.metrics.figures import seen_before_text

    rows, seen = progressive.get("rows"), seen_before_text(progressive)
    over = f" over {plural(rows, 'row')}" if rows else ""
    if "mean_loss" in progressive:
        judged = f"progressive validation loss {progressive['mean_loss']:.6g} per row"
    else:
        judged = f"progressive validation error {100 * progressive['error']:.2f} %"
    return f"{judged}{over}" + (f"; {seen}" if seen else ", each judged before training on it" * bool(over))


def trace(history: Sequence[EpochRecord], step: str, gap: float | None = None, most: int = 6) -> tuple[str, str]:
    """The figure of quality at each ``step`` with its name, numbered where it was looked at, ends kept and what stayed
    the same said once, ``3 to 5: 2.1e-02``: ``gap by read``,
    ``1: 3.1e-01 → 4: 2.0e-02 → … → 9: 9.1e-04``. A gap is of the weights with
    which a step begins; that of the answer, where it is another, comes last: ``end: 8.7e-04``."""
    certified = [record for record in history if record.get("gap") is not None]
    texts = [(record, text) for record in certified or history if (text := quality_text(record))]
    told = [(str(record["epoch"]), *text.split(" ", 1)) for record, text in texts]
    if certified and (end := gap_text(gap)) not in ("", " ".join(told[-1][1:])):
        told.append(("end", *end.split(" ", 1)))
    values = []
    for value, run in itertools.groupby(told, lambda one: one[2]):
        first, *others = [epoch for epoch, _, _ in run]
        values.append(f"{first} to {others[-1]}: {value}" if others else f"{first}: {value}")
    if len(values) > most:
        values = [*values[:3], "…", *values[-2:]]
    return f"{told[0][1]} by {step}" if told else "", " → ".join(values) if len(values) > 1 else ""


def memory_text(memory: Mapping[str, int] | None) -> str | None:
    """What training itself planned and took, and what interpreter and libraries take besides."""
    if not memory or "planned" not in memory:
        return None
    base = memory.get("base", 0)
    planned, peak = (max(memory.get(key, 0) - base, 0) for key in ("planned", "peak"))
    most = memory.get("worker", peak)  # the plan is that of a process that makes visits
    taken = f"{format_peak(peak)} at the peak{in_worker(memory)}{within_plan(planned, most)}"
    return (f"{format_bytes(planned)} planned, {taken}, plus {format_bytes(base)} for interpreter and "
            "libraries")  # fmt: skip
