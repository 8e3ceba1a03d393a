"""``bigclf run``: a job file from its first step to its last."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import re

import click

from bigclf import files
from bigclf.cli.evaluate import refuse_existing
from bigclf.cli.jobs.record import record_of, results_of
from bigclf.cli.jobs.steps import Job, JobError, Step, read_job
from bigclf.cli.shared import columns, flags, terminal
from bigclf.cli.shared.outputs import ROWS, inputs, models_read, of, refuse_inputs

NO_VALUES = ("to", "or", "and", "is", "for", "says", "with", "of", "in", "beside", "needs", "has", "names")  # of prose
OPTION = re.compile(r"(?<![\w-])(--[a-zA-Z][\w-]*)( [^\s,;:?()]+)?")
GLOB = re.compile(r"[*?[]")
MAKE_MODELS = ("fit", "calibrate", "forget", "import")
WHOLE = ("convert", "split", "sweep", "path")  # make a directory, and add nothing to one
MADE_ANEW = ("calibrate", "evaluate", "report", "export", "import")  # on resume; others keep what is finished


def print_schema(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    """``--schema``: print it and leave."""
    if wanted:
        from bigclf.cli.jobs.schema import schema

        terminal.emit_json(schema())
        ctx.exit()


@click.command("run", short_help="Run a job file.")
@click.argument("job", metavar="JOB.yaml")
@click.option("--set", "changes", multiple=True, metavar="PATH=VALUE", help="Change a key: --set method.C=10")
@click.option("--resume", is_flag=True, help="Continue a run that was interrupted.")
@click.option("--dry-run", is_flag=True, help="Print the resolved job and its commands; run nothing.")
@click.option("--schema", is_flag=True, expose_value=False, is_eager=True, callback=print_schema,
              help="Print the JSON schema of job files, for editors and programs.")  # fmt: skip
@terminal.overwrite_option
@terminal.json_option
@click.pass_context
def command(
    ctx: click.Context, job: str, changes: tuple[str, ...], resume: bool, dry_run: bool, overwrite: bool, as_json: bool
) -> None:
    """Run a job file: either data, method, limits, run and outputs, or a list of bigclf commands.

    The job, the rows that it names and the places of its results are looked at before the first step. Existing shards
    are used as they are.
    """
    read = read_job(job)
    read.override(changes)
    said = {"resume": resume, "overwrite": overwrite, "as_json": as_json}
    again = terminal.command_line(ctx, resume=True, overwrite=False)
    steps = prepare(ctx, read, said)
    if not dry_run:
        require_possible(steps, resume)
    carry_out(ctx, read, steps, again, dry_run=dry_run, as_json=as_json)


def prepare(ctx: click.Context, job: Job, said: dict[str, bool]) -> list[tuple[Step, click.Context]]:
    """The commands of the job, parsed and checked, without those that an earlier start has finished."""
    steps = [(step, make_context(ctx, job, step, said)) for step in job.steps(files.exists)]
    for step, inner in steps:
        refuse_climbing(job, step, inner)
        refuse_senseless(step, inner)
    refuse_inputs_of_job(job, steps)
    made = [step for step, inner in steps if step.command == "generate" and files.exists(inner.params["out"])]
    if not said["overwrite"]:
        steps = [(step, inner) for step, inner in steps if step not in made]
    if said["resume"] and not said["overwrite"]:
        record = record_of(job)
        for step, inner in steps:
            if _is_made_anew(step):
                record.refuse_foreign([*results_of(inner)])
    if said["resume"]:
        steps = [(step, inner) for step, inner in steps if not _is_converted(step, inner)]
    return steps


def require_possible(steps: list[tuple[Step, click.Context]], resume: bool) -> None:
    """Refuse at once what a step would refuse after hours of those before it: rows and models that are not there and
    that none of them may make, a file in the place of a result, and what an earlier one writes there.

    Raises
    ------
    JobError : a step writes what another one did. DataError, RunError : as of the step itself.
    """
    made = set[str]()
    for step, inner in steps:
        overwrite = inner.params.get("overwrite", False)
        for path in of(inner.params, *ROWS):
            if not _may_be_made(path, made):
                columns.is_raw(path)  # opens the first of the files
        for path in [*models_read(step.command, {**inner.params, "features_of": None})]:
            if not files.exists(path) and not _may_be_made(path, made):
                columns.model_at(path)  # says what is wrong
        results = [*results_of(inner)] if _is_made_anew(step) else []
        results += of(inner.params, "model", "report") if step.command == "fit" and not resume else []
        refuse_existing(results, overwrite)
        whole = results if step.command not in WHOLE or inner.params.get("append") else of(inner.params, "out")
        if not overwrite and (twice := sorted(made.intersection(whole))):
            raise JobError(f"{step.place}: {step.command}: a step before it writes {twice[0]}, too")
        made.update(of(inner.params, *written_by(inner)))


def _may_be_made(path: str, made: set[str]) -> bool:
    """Whether some of what was made may lie at, in or above a path or glob."""
    if path in made or files.is_remote(path):
        return path in made
    parts = path.removeprefix("file://").partition("#")[0].split("/")
    fixed = files.absolute("/".join(itertools.takewhile(lambda part: not GLOB.search(part), parts)))
    places = [files.absolute(place) for place in made if not files.is_remote(place)]
    within = files.join(fixed, "a file")  # a link may name the same place
    return any(files.is_below(within, place) or files.is_below(place, fixed) for place in places)


def carry_out(
    ctx: click.Context, job: Job, steps: list[tuple[Step, click.Context]], again: str, *, dry_run: bool, as_json: bool
) -> None:
    """Run the commands, or print them; ``again`` : the command line that goes on after an interruption."""
    if dry_run:
        print_plan(job, [inner for _, inner in steps])
        return
    keep_resolved(job)
    clear_after_conversions(job)
    results, record = [], record_of(job)
    own = frozenset(flag for param in ctx.command.params for flag in param.opts)
    with terminal.resumable(again) as way:
        for step, inner in steps:
            written = [*results_of(inner)] if _is_made_anew(step) else []
            if ctx.params.get("resume") and not ctx.params.get("overwrite"):
                record.refuse_foreign(written)  # one that came meanwhile
            with record.writing(written, inner.params.get("overwrite", False)):
                results.append(run_step(step, inner, as_json, own))
            way.begun = True
    if as_json:
        terminal.emit_json({"job": job.table, "steps": results})
    if any(result["exit_code"] == terminal.LIMITS for result in results):
        ctx.exit(terminal.LIMITS)


def clear_after_conversions(job: Job) -> None:
    """Remove what a killed conversion left beside shards that are there: its step is not carried out again."""
    from bigclf.conversion.resuming import tidy

    steps = [step["convert"] for step in job.table.get("steps", ()) if "convert" in step]
    data = job.table.get("data", {})
    for out in (*(step.get("out") for step in steps), data.get("train"), data.get("test")):
        if isinstance(out, str) and files.exists(out):
            tidy(out)


def make_context(ctx: click.Context, job: Job, step: Step, said: dict[str, bool]) -> click.Context:
    """The step's command with its words parsed and checked; nothing runs yet.

    Raises
    ------
    JobError : what the command line would call a usage error, with the line in the job.
    """
    from bigclf.cli import main

    command = main.get_command(ctx, step.command)
    assert command is not None
    words = list(step.words)
    for param in command.params:
        wanted = said.get(param.name or "")
        if param.name == "overwrite" and _is_made_anew(step):
            wanted = wanted or said["resume"]
        if isinstance(param, click.Option) and param.is_flag and wanted:
            words.append(param.opts[-1])
    try:
        return command.make_context(step.command, words, parent=ctx.parent)
    except click.UsageError as error:
        wrong = getattr(error, "param", None)
        place = step.place if wrong is None else step.places.get(wrong.name or "", step.place)
        raise JobError(f"{place}: {step.command}: {error.format_message()}") from None


def _is_made_anew(step: Step) -> bool:
    """On resume; predictions as one file, too, which does not say what it was made from."""
    from bigclf.data.predictions import is_one_file

    out = [word.partition("=")[2] for word in step.words if word.startswith("--output=")]
    return (step.command == "predict" and any(map(is_one_file, out))) or step.command in MADE_ANEW


def refuse_climbing(job: Job, step: Step, inner: click.Context) -> None:
    """Nothing that a job writes may lie above where it says: a file from elsewhere must not reach what is not its own.

    Raises
    ------
    JobError : with the line.
    """
    written = [inner.params.get(name) for name in written_by(inner)]
    for path in [*written, job.run_dir]:
        if isinstance(path, str) and ".." in path.split("/"):
            raise job.fail(
                f"{step.command}: {path!r}: '..' has no place in what a job writes; name the directory itself, or an "
                "environment variable that holds it (${OUT})", *job.place_of(path)
            )  # fmt: skip


def refuse_senseless(step: Step, inner: click.Context) -> None:
    """JobError where a training is asked for what makes no sense whatever the rows are: no step before it begins."""
    if step.command != "fit":
        return
    from bigclf.api.fit import asked_of_fit

    try:
        asked_of_fit(None, None, flags.keywords("fit", inner.params))
    except (TypeError, ValueError) as error:
        named = (where for name, where in step.places.items() if str(error).startswith(f"{name}="))
        raise JobError(f"{next(named, step.place)}: fit: {error}") from None
    except click.UsageError as error:  # of an option's value as a whole
        option = str(getattr(error, "param_hint", "")).lstrip("-").replace("-", "_")
        raise JobError(f"{step.places.get(option, step.place)}: fit: {error.format_message()}") from None


def refuse_inputs_of_job(job: Job, steps: list[tuple[Step, click.Context]]) -> None:
    """RunError where a step writes over the job, or over what another step reads and none makes before that; a model
    may be replaced by another one."""
    made, read = set[str](), list[tuple[list[str], list[str]]]()
    for step, inner in steps:
        anew = [path for path in inputs(step.command, inner.params) if not _is_made(path, made)]
        models = models_read(step.command, inner.params)
        read.append((anew, [path for path in anew if path not in models]))
        made.update(of(inner.params, *written_by(inner)))
    for k, (step, inner) in enumerate(steps):
        makes_model = step.command in MAKE_MODELS
        others = {path for at, paths in enumerate(read) if at != k for path in paths[makes_model]}
        refuse_inputs(step.command, inner.params, [job.path, *sorted(others)])


def _is_made(path: str, made: set[str]) -> bool:
    return path in made or any(files.is_below(path, place) for place in made)


def written_by(inner: click.Context) -> list[str]:
    """The parameters of a step that name what it writes."""
    return [param.name or "" for param in inner.command.params if _is_written(param)]


def _is_written(param: click.Parameter) -> bool:
    return param.name in ("out", "run_dir", "local_dir", "report", "reliability") or "-o" in param.opts


def _is_converted(step: Step, inner: click.Context) -> bool:
    """True when the shards of the step are there: they appear whole or not at all."""
    return step.command == "convert" and files.exists(inner.params["out"])


def run_step(step: Step, inner: click.Context, quiet: bool, own: frozenset[str]) -> dict[str, object]:
    """Run one command; its result as plain values when ``quiet``, else printed under a line that names it; ``own`` :
    options of the command that runs the job."""
    if not quiet:
        name = click.style(f"\n{terminal.RULE} {step.command} ", fg="cyan", bold=True)
        click.echo(name + click.style("─" * 40, dim=True))
    output, code = io.StringIO(), 0
    with (
        contextlib.redirect_stdout(output) if quiet else contextlib.nullcontext(),
        terminal.rewriting(functools.partial(in_keys, step=step, command=inner.command, own=own)),
        inner,
    ):
        try:
            inner.command.invoke(inner)
        except click.exceptions.Exit as end:
            code = end.exit_code
    if code not in (0, terminal.LIMITS):
        raise click.exceptions.Exit(code)
    text = output.getvalue()
    return {"command": step.command, "exit_code": code, "result": json.loads(text) if text.strip() else None}


def in_keys(text: str, step: Step, command: click.Command, own: frozenset[str]) -> str:
    """Advice in the words of a job, which has no options: ``--label COL`` is ``method.label: COL``, or ``label: COL``
    in a step. What stands in a command to be copied stays, and so do options that ``run`` has of its ``own``."""
    params = {flag: param for param in command.params for flag in param.opts if flag not in own}

    def as_key(found: re.Match[str]) -> str:
        param, value = params.get(found[1]), found[2] or ""
        name = None if param is None else step.key_of(param)
        if name is None:
            return found[0]
        is_value = value and value.strip() not in NO_VALUES and not getattr(param, "is_flag", False)
        return f"{name}:{value}" if is_value else name + value

    parts = re.split(r"(`[^`]*`|\(see [^)]*\))", text)
    made = [part if k % 2 else re.sub(OPTION, as_key, part) for k, part in enumerate(parts)]
    return "".join(made) + ("" if made == parts else " (keys of the job: bigclf help jobs)")


def keep_resolved(job: Job) -> None:
    """Leave the job as it was run in its run directory, unless the job itself is that file; RunError while another
    process is at work there."""
    from bigclf.training.records.lease import require_free

    if job.run_dir:
        files.make_directory(job.run_dir)
        require_free(job.run_dir)
        kept = files.join(job.run_dir, "job.yaml")
        if files.identity(kept) != files.identity(job.path):  # which has the words of a person
            files.publish_text(kept, job.resolved())


def print_plan(job: Job, contexts: list[click.Context]) -> None:
    click.echo(job.resolved().rstrip())
    click.echo()
    for inner in contexts:
        click.echo(click.style("$ ", dim=True) + terminal.command_line(inner))
