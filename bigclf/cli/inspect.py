"""``bigclf inspect``: what is in data, a model, a run directory or the results of a sweep."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, cast

import click

from bigclf.cli.convert import class_text, describe, label_line, print_warnings
from bigclf.cli.evaluate import NAMES
from bigclf.cli.jobs import driver
from bigclf.cli.path import finished as of_path
from bigclf.cli.path import show as show_path
from bigclf.cli.shared import columns, terminal
from bigclf.cli.shared.texts import print_columns, print_table
from bigclf.errors import DataError
from bigclf.files.formats import SPARSE
from bigclf.progress import Record
from bigclf.units import format_bytes, format_seconds, plural

if TYPE_CHECKING:
    from rich.table import Table

    from bigclf.conversion.tables.suggest import Described as TableFacts
    from bigclf.conversion.tables.suggest import LabelNotes
    from bigclf.data.dataset import Dataset
    from bigclf.data.drift import ShardFigures
    from bigclf.data.label_sets import LabelSets
    from bigclf.model.calibration import Calibration
    from bigclf.model.model import Model


@click.command("inspect", short_help="Describe data, a model, a run, a sweep or a path.")
@terminal.things_argument
@click.option("--shards", "by_shard", is_flag=True, help="Add a line for each shard: rows, class shares, row lengths.")
@click.option("--suggest", is_flag=True, help="Propose a spec of features for a raw table, as YAML.")
@click.option(
    "--label",
    metavar="COL",
    multiple=True,
    callback=columns.columns_named,
    help="Of a raw table, the column to predict. Given more than once, a row has several labels.",
)
@click.option("--label-separator", metavar="TEXT", help="Of a raw table, what stands between the labels in a cell.")
@click.option("--format", metavar="FORMAT", help="Format of a raw table  [default: detected]")
@click.option("--columns", "names", cls=terminal.Listed, metavar="ROLE=NAME,...", help="Column names, by role, for"
              " Parquet files not written by bigclf; ROLE is label, weight, features, or indices and"
              " values.")  # fmt: skip
@columns.reader_options
@terminal.json_option
def command(
    things: tuple[str, ...], as_json: bool, by_shard: bool, suggest: bool, label: str | list[str] | None,
    label_separator: str | None, format: str | None, names: str | None, **options: object,
) -> None:  # fmt: skip
    """Describe shards, a model, a run directory or the results of a sweep or a path, and list what to check before
    training.

    Of a raw table (CSV, JSON lines, Parquet, text) it lists the columns with their kinds, and --suggest proposes which
    features to make from them: `bigclf inspect rows.csv --suggest > spec.yaml`.
    """
    reader = columns.reader_of(options, format)
    predicted = columns.label_of(columns.taken({"label": label, "label_separator": label_separator}))
    if suggest:
        propose(list(things), predicted, reader, as_json)
        return
    told = terminal.names_option(names, "--columns") if names else None
    kind, facts, show = look(list(things), by_shard, told, reader, predicted)
    if predicted is not None and kind != "table":
        raise click.UsageError("--label and --label-separator are for raw tables; of Parquet, name it with --columns "
                               "label=COLUMN")  # fmt: skip
    if as_json:
        terminal.emit_json({"kind": kind, **facts})
    else:
        show()


def propose(things: list[str], label: object, reader: dict[str, object], as_json: bool) -> None:
    """Print a spec for raw files."""
    from bigclf.conversion.tables.suggest import as_yaml, compared, notes, suggest

    found = compared(suggest(things, reader, label), things)
    if as_json:
        terminal.emit_json({**found.spec().as_json(), "notes": notes(found)})
    else:
        click.echo(as_yaml(found), nl=False)


Looked: TypeAlias = tuple[str, Mapping[str, object], Callable[[], None]]  # what it is, its facts, what prints them


class Process(TypedDict):
    host: str
    pid: int
    heartbeat: float


class RunStatus(TypedDict):
    """How a run goes: ``status``."""

    state: str
    failure: str | None
    process: Process | None
    epoch: int | None
    gap: float | None
    events: int
    driver: dict[str, Any] | None
    last_line: str | None
    checkpoint: int | None


class RunRead(TypedDict):
    run: dict[str, Any]
    history: list[Record]
    status: RunStatus


def look(
    things: list[str], by_shard: bool = False, names: dict[str, str] | None = None,
    reader: Mapping[str, object] | None = None, label: object = None,
) -> Looked:  # fmt: skip
    """What the paths name (``data``, ``table``, ``model``, ``run``, ``sweep`` or ``path``), its facts, and a function
    that prints them; ``names`` : of columns, as ``Dataset`` takes them; ``reader`` : how a raw table is read; ``label``
    : of it."""
    from bigclf import files
    from bigclf.conversion.tables.reading import format_by_name, named_as_table, refuse_several

    told = dict(reader or {})
    if not told and len(things) > 1 and all(files.exists(thing) and not files.is_directory(thing) for thing in things):
        refuse_several(things)
    if (form := told.get("format", format_by_name(things[0]))) in SPARSE and len(told) < 2 and files.exists(things[0]):
        from bigclf.model.raw_input import sparse_text

        things = list(sparse_text(things, str(form)).files)  # shards of the cache, which `fit` takes too
    elif told or all(named_as_table(thing) and (files.exists(thing) or "*" in thing) for thing in things):
        return _table(things, told, label)
    if len(things) == 1 and files.exists(files.join(things[0], "results.json")):
        return _sweep(things[0])
    if len(things) == 1 and files.exists(path := files.join(things[0], "path.json")):
        return _path(things[0], path, files.read_text(path))
    if len(things) == 1 and files.exists(files.join(things[0], "run", "grid", "run.json")):
        things = [files.join(things[0], "run", "grid")]  # a sweep that has not ended
    if len(things) == 1 and files.exists(files.join(things[0], "run.json")):
        run = read_run(things[0])
        return "run", {**run}, lambda: _print_run(things[0], run)
    if len(things) == 1 and files.exists(files.join(things[0], driver.NAME)):  # it has not come to training yet
        begun = status(things[0], [])
        return "run", {"status": begun}, lambda: _print_begun(things[0], begun)
    if len(things) == 1 and files.exists(things[0]) and not files.is_directory(things[0]) and not _parquet(things[0]):
        return _model(things[0])
    if names is None and label is not None and _has_columns(things):
        return _table(things, told, label)
    try:
        found = _data(things, by_shard, names)
        if found[1]["rows"] or not _has_columns(things):
            return found
    except DataError:
        if names is not None or by_shard or not _has_columns(things):
            raise
    return _table(things, told, label)


def _has_columns(things: list[str]) -> bool:
    """Whether it is Parquet of plain columns, none of which holds vectors."""
    from bigclf import files
    from bigclf.conversion.tables.reading import are_raw, is_parquet, places
    from bigclf.data import shards, vectors

    first = places(things)[0]
    if files.is_directory(first.path) or not is_parquet(first.path) or not are_raw(things, first):
        return False
    with shards.open_parquet(first.path) as file:
        return not any(vectors.are_vectors(file.schema_arrow, column) for column in file.schema_arrow)


def _data(things: list[str], by_shard: bool, names: dict[str, str] | None) -> Looked:
    from bigclf.data import drift
    from bigclf.data.dataset import Dataset

    dataset = Dataset(things if len(things) > 1 else things[0], columns=names, warn=False)
    shards = drift.shards_of(dataset)
    dataset.warnings += drift.drift(dataset, shards) + drift.features_used(dataset, shards)
    lines = drift.table(dataset, shards) if by_shard else []
    more = {"shards": lines} if by_shard else {}
    return "data", {**describe(dataset), **more}, lambda: _print_data(dataset, lines)


def _made(features: Mapping[str, object]) -> str:
    """Where the features come from."""
    from bigclf.data.arrays import counted_from

    kind = str(features.get("kind", "?"))
    return f"numbered in the data, from {counted_from(features)}" if kind == "given" else kind


def _parquet(path: str) -> bool:
    from bigclf import files

    with files.open_binary(path) as file:
        start = file.read(4)
    return start in (b"PAR1", b"") or path.endswith(".parquet")


# Data


def sets_text(sets: LabelSets) -> str:
    """``3.2 in the mean, at most 9; none on 12 rows``."""
    lengths, rows = sets.lengths, max(1, int(sets.rows.sum()))
    none = int(sets.rows[lengths == 0].sum())
    mean = float(lengths @ sets.rows) / rows
    return f"{mean:.1f} on average, at most {lengths.max(initial=0):,}" + (
        f"; none on {plural(none, 'row')}" if none else ""
    )


def _print_shards(lines: Sequence[ShardFigures]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    shares = list(lines[0].get("shares", ()))
    for name in ("shard", "rows", "non-zeros per row", "largest norm", *(f"share of {label}" for label in shares)):
        table.add_column(name, justify="left" if name == "shard" else "right")
    for line in lines:
        numbers = [f"{100 * line['shares'][label]:.2f} %" for label in shares]
        table.add_row(
            line["shard"], f"{line['rows']:,}", f"{line['nnz_a_row']:.2f}", f"{line['largest_norm']:.4g}", *numbers
        )
    terminal.tables().print(table)


def _print_data(dataset: Dataset, lines: Sequence[ShardFigures]) -> None:
    told = describe(dataset)
    terminal.heading("data", f"{plural(dataset.n_rows, 'row')}, {plural(dataset.n_features, 'feature')}")
    terminal.facts(
        [
            ("rows", f"{dataset.n_rows:,}"),
            ("features", f"{dataset.n_features:,}  ({_made(dataset.features)})"),
            ("non-zeros", f"{dataset.nnz:,}  ({dataset.nnz / max(dataset.n_rows, 1):.1f} per row, "
                          f"at most {dataset.max_row_nnz:,})"),
            ("values", "all 1" if dataset.binary else "float32, one a row" if dataset.row_constant else "float32"),
            ("largest norm of a row", f"{told['largest_row_norm']:.4g}"),
            label_line(dataset) if dataset.classes is None
            else ("classes" if dataset.sets is None else "labels", f"{len(dataset.classes):,}:  {class_text(dataset)}"),
            ("labels per row", None if dataset.sets is None else sets_text(dataset.sets)),
            ("row weights", "yes" if dataset.weighted else None),
            ("files", f"{len(dataset.files):,}, {format_bytes(told['bytes_on_disk'])} on disk"),
            ("chunks", f"{dataset.n_chunks:,}"),
            ("decoded", f"{format_bytes(told['bytes_in_memory'])}, if all were in memory"),
        ],
        indent="  ",
    )  # fmt: skip
    if lines:
        _print_shards(lines)
    print_warnings(dataset)


# A model


KINDS = {"numeric": "numbers", "categorical": "categories", "date": "dates", "": "none to learn from"}


def _table(things: list[str], reader: dict[str, object], label: object) -> Looked:
    from bigclf.conversion.tables.suggest import described

    facts = described(things, reader, label)
    return "table", {**facts}, lambda: _print_table(things, facts)


def _print_table(things: list[str], facts: TableFacts) -> None:
    from bigclf.conversion.tables.suggest import rows_seen

    terminal.heading(", ".join(things), f"{plural(facts['rows'], 'row')}, {plural(len(facts['columns']), 'column')}, "
                     f"{facts['format']}")  # fmt: skip
    if facts["unreadable"]:
        terminal.facts([("unreadable", terminal.poor(plural(facts["unreadable"], "line")))], indent="  ")
        for text in facts["why"]:
            terminal.note(terminal.printable(text), before="    ")
    rows = [(terminal.printable(one["column"]), KINDS.get(one["kind"], one["kind"]), one["why"])
            for one in facts["columns"]]  # fmt: skip
    if rows:
        print_columns([("column", "left"), ("kind", "left"), ("values", "left")], rows)
        click.echo(f"  kinds by {rows_seen(facts['looked_at'], facts['file'], facts['files'])}")
    for text in facts["differing"]:
        terminal.note(terminal.printable(text), before="    ")
    if facts["label"]:
        terminal.facts([("label", _label_text(facts["label"]))], indent="  ")
    line = f"bigclf inspect {shlex.join(things)} --suggest"
    click.echo(f"  next: {click.style(line, bold=True)} proposes what to learn from")


def _label_text(label: LabelNotes) -> str:
    """``y: 1 54.2 %, 0 45.8 %; missing in 21 rows``, as far as the first rows tell."""
    classes, name = label.get("classes"), terminal.printable(label["column"])
    if not classes:
        return f"{name}: {label['distinct']:,} distinct"
    total, missing = sum(classes.values()), label.get("missing", 0)
    shares = [f"{terminal.printable(each)} {100 * count / total:.1f} %" for each, count in classes.items()]
    return f"{name}: {', '.join(shares)}" + (f"; missing in {plural(missing, 'row')}" if missing else "")


def _model(path: str) -> Looked:
    from bigclf.model.model import load

    model = load(path)
    facts = {
        "n_features": model.n_features,
        "classes": None if model.regression else model.classes_.tolist(),
        "dtype": str(model.weights.dtype),
        **({} if model.feature_ids is None else {"n_weights": model.feature_ids.size}),
        "nonzero_weights": nonzero_weights(model),
        "intercept": model.intercept_.tolist(),
        "features": model.features,
        "method": model.method,
        "certificate": model.certificate,
        **({} if model.calibration is None else {"calibration": _calibration(model.calibration)}),
        "facts": model.facts,
    }
    return "model", facts, lambda: _print_model(path, facts)


def _calibration(kept: Calibration) -> dict[str, object]:
    return {"method": kept.method, **kept.facts}


def _calibration_text(kept: Mapping[str, object] | None) -> str | None:
    from bigclf.cli.calibrate import line

    return None if kept is None else line(kept)


def _print_model(path: str, told: Mapping[str, Any]) -> None:
    method = dict(told["method"])
    terminal.heading(path, f"a model trained with {method.pop('name', '?')}")
    classes = None if told["classes"] is None else [terminal.printable(label) for label in told["classes"]]
    several = method.pop("multiclass", None) == "multi-label"
    rows = 1 if classes is None or (len(classes) == 2 and not several) else len(classes)
    terminal.facts(
        [
            ("predicts", "numbers" if classes is None else None),
            ("labels, several a row" if several else "classes", None if classes is None else _listed(classes)),
            (
                "weights",
                f"{weights_text(rows, told['n_features'], told['nonzero_weights'])}, {told['dtype']}"
                + (f", kept for the {told['n_weights']:,} features that occur" if "n_weights" in told else "")
                + (" (of the last vector: many vote)" if told["method"].get("name") == "voted_perceptron" else ""),
            ),
            ("quality", certificate_text(told["certificate"])),
            ("parameters", parameters_text(method)),
            ("features", _made(told["features"])),
            ("probabilities", _calibration_text(told.get("calibration"))),
            *_training_facts(told["facts"], str(told["method"].get("name"))),
        ],
        indent="  ",
    )
    for text in told["facts"].get("warnings", ()):
        terminal.say("warning:", text, "yellow")


def nonzero_weights(model: Model) -> int:
    """How many weights are not 0."""
    import numpy as np

    return int(sum(np.count_nonzero(w) for w in ([model.weights.data] if model.sparse else model.weights)))


def weights_text(classes: int, features: int, nonzero: int) -> str:
    """``29,764 of 524,385 not zero``; of several classes ``90,120 of 3 x 524,385 not zero``."""
    return f"{nonzero:,} of {f'{classes} x ' * (classes > 1)}{features:,} not zero"


NOT_REPEATABLE = "no: waiting time was used (opportunistic), another run has other bits"


def _listed(classes: list[str], most: int = 8) -> str:
    return f"{len(classes)}:  {', '.join(classes[:most])}{' ...' if len(classes) > most else ''}"


def _training_facts(facts: Mapping[str, Any], method: str) -> list[tuple[str, object]]:
    """How it was trained: what a person asks first, then whatever else is short."""
    from bigclf.metrics.figures import judges_rows, seen_before_text

    facts = dict(facts)
    rows, nnz, stopped = facts.pop("n_rows", None), facts.pop("nnz", None), facts.pop("stopped", None)
    parts = [plural(facts.pop(name), name[:-1]) for name in ("reads", "epochs") if name in facts]
    if "seconds" in facts:
        parts.append(format_seconds(facts.pop("seconds")))
    progressive, mistakes = facts.pop("progressive", None) or {}, facts.pop("mistakes", None)
    if not judges_rows(method):
        progressive, mistakes = {}, None
    for name in ("converged", "run"):
        facts.pop(name, None)
    seen = f"; {text}" if (text := seen_before_text(progressive)) else ""
    repeatable = facts.pop("repeatable", True)
    judged = validation_text(facts.pop("validation", None), facts.get("best_epoch"))
    pruned = facts.pop("pruned", None)
    held = held_text(facts.pop("held_out", None), facts.get("held_out_figures"))
    rest = [(name.replace("_", " "), _amount(name, value)) for name, value in facts.items()
            if value is not None and not isinstance(value, (dict, list))]  # fmt: skip
    return [
        ("trained on", rows_text(rows, nnz) if rows is not None and nnz is not None else None),
        ("took", ", ".join(parts)),
        ("stopped by", stopped),
        ("pruned", pruned and f"within {pruned['tol']:g}: {pruned['kept']:,} of {pruned['of']:,} weights are left"),
        ("repeatable", None if repeatable else NOT_REPEATABLE),
        ("progressive error", f"{100 * progressive['error']:.2f} %{seen}" if "error" in progressive else None),
        ("mistakes", f"{mistakes:,} over all epochs" if mistakes else None),
        ("progressive loss", f"{progressive['mean_loss']:.6g} per row{seen}" if "mean_loss" in progressive else None),
        ("validation", judged),
        ("held out", held),
        *rest,
    ]


def held_text(held: Mapping[str, Any] | None, figures: Mapping[str, float | None] | None = None) -> str | None:
    """``accuracy 73.20 % on 120 rows (baseline 55.83 %), AUC 0.78120, log loss 0.50211``: what `fit --holdout`
    measured, and of ``figures``, which older models do not have, what is in them."""
    if not held:
        return None
    first = {name: value for name, value in held.items() if name not in ("share", "n")}
    figures = figures or {}
    beside = [f"{validation_text(first)} on {plural(held['n'], 'row')}"]
    if (majority := figures.get("majority")) is not None:
        beside[0] += f" (baseline {100 * majority:.2f} %)"
    beside += [f"{NAMES[name]} {figures[name]:.5f}" for name in ("auc", "log_loss", "r2")
               if figures.get(name) is not None]  # fmt: skip
    return ", ".join(beside)


def rows_text(rows: int, nnz: int) -> str:
    """In full, whatever their size."""
    return f"{rows:,} row{'s' * (rows != 1)}, {nnz:,} non-zero{'s' * (nnz != 1)}"


def validation_text(found: dict[str, float] | None, epoch: int | None = None) -> str | None:
    """``accuracy 93.20 %``, or of numbers ``mean squared error 0.31, mean absolute error 0.44``; with the epoch, where
    an earlier one is the answer."""
    if not found:
        return None
    named = {name: NAMES.get(name, name.replace("_", " ")) for name in found}
    texts = [f"accuracy {100 * value:.2f} %" if name == "accuracy" else f"{named[name]} {value:.6g}"
             for name, value in found.items()]  # fmt: skip
    return ", ".join(texts) + (f" after epoch {epoch:,}, the best" if epoch else "")


def _amount(name: str, value: object) -> str:
    """Bytes with their unit, other whole numbers with their thousands apart; a seed as it is given again."""
    if not isinstance(value, int) or isinstance(value, bool) or name == "seed":
        return _short(value)
    return format_bytes(value) if "bytes" in name else f"{value:,}"


def certificate_text(certificate: Mapping[str, object] | None) -> str | None:
    """``certified: within 9.1e-04 of the optimum (objective 11433.81)``; of several problems, of which that is the
    worst: ``certified: all 4 problems within 9.1e-04 of the optimum, relative, the worst of them 3``."""
    if not certificate:
        return None
    gap = certificate.get("gap")
    if gap is None:
        return None
    primal = certificate.get("primal")
    problems: Sequence[Mapping[str, Any]] = cast("Any", certificate.get("problems")) or ()
    several = f"all {len(problems):,} problems " if len(problems) > 1 else ""
    objective = f" (objective {primal:,.4f}{' in all' * bool(several)})" if isinstance(primal, (int, float)) else ""
    worst = max((one for one in problems if one.get("gap") is not None), key=lambda one: one["gap"], default=None)
    named = f", the worst of them {terminal.printable(worst['name'])}" if several and worst else ""
    return f"certified: {several}within {gap:.1e} of the optimum, relative{named}{objective}"


def parameters_text(method: Mapping[str, object]) -> str:
    """``loss=hinge, C=1, bias=feature``; whether the bias is free is said by its own word, not by a number."""
    told = {name: value for name, value in method.items() if value is not None and name != "free_bias"}
    if isinstance(told.get("bias"), float):  # as a run has it
        told["bias"] = "free" if method.get("free_bias") else "feature" if told["bias"] else "none"
    return ", ".join(f"{name}={_short(value)}" for name, value in told.items())


def plan_text(plan: Mapping[str, Any]) -> str | None:
    """``all rows in memory, 20.1 MB planned, float64 weights, seed 0``."""
    if not plan:
        return None
    held = plural(plan.get("set_rows", 0), "row")
    rows = ("all rows in memory" if plan.get("resident") else f"rows read anew in each pass, {held} of them kept"
            if plan.get("set_rows") else "rows read anew in each pass")  # fmt: skip
    planned = (plan.get("memory") or {}).get("planned")
    parts = [rows, planned and f"{format_bytes(planned)} planned", f"{plan.get('dtype', 'float64')} weights",
             f"seed {plan.get('seed', 0)}"]  # fmt: skip
    return ", ".join(part for part in parts if part)


def disk_text(plan: Mapping[str, Any] | None) -> str | None:
    """What is on disk because memory has no room for it."""
    size = (plan or {}).get("rows_bytes", 0)
    return f"dual variables on disk, {format_bytes(size)}" if size else None


def _short(value: object, most: int = 90) -> str:
    text = value if isinstance(value, str) else f"{value:.6g}" if isinstance(value, float) else json.dumps(
        terminal.plain(value), ensure_ascii=False
    )  # fmt: skip
    return text if len(text) <= most else text[: most - 1] + "…"


# A sweep


def _sweep(directory: str) -> Looked:
    from bigclf import files
    from bigclf.api.results_record import check_shown

    path = files.join(directory, "results.json")
    try:
        told = json.loads(files.read_text(path))
        check_shown(told)
    except ValueError as error:
        raise DataError(f"not the results of a sweep: {error}", file=path) from None
    points, reads = len(told["table"]), told["reads"]

    def show() -> None:
        terminal.heading(directory, f"a sweep, {plural(points, 'point')}, {plural(reads, 'read')}")
        print_table(told["table"], told["measure"], told["best_params_"])
        best = files.join(directory, "model.bigclf")
        click.echo(f"  next: {click.style(f'bigclf inspect {best}', bold=True)}")

    return "sweep", told, show


def _path(directory: str, path: str, text: str) -> Looked:
    try:
        told = json.loads(text)
    except ValueError as error:
        raise DataError(f"not the results of a path: {error}", file=path) from None
    found = of_path(directory, told)
    return "path", found.as_json(), lambda: show_path(found, directory)


# A run


def read_run(directory: str) -> RunRead:
    """``run.json`` and the history of a run directory.

    Raises
    ------
    DataError : one of them is damaged.
    """
    from bigclf import files
    from bigclf.training.records import run_record

    run = run_record.read_run(files.join(directory, "run.json"))
    history = run_record.read_history(files.join(directory, "history.jsonl"))
    return {"run": run, "history": history, "status": status(directory, history)}


def status(directory: str, history: Sequence[Record]) -> RunStatus:
    """How a run goes, from what lies in its directory.

    Returns
    -------
    dict : state ("running", "finished", "failed", "stopped": interrupted or broken off, resumable, "died": its process
        is gone without a word, "unknown": a process on another host that gives no sign of life), failure: of a driver
        that failed, the step and its error, else None, process {host, pid, heartbeat}
        of the run or None, epoch, gap and events of the history, driver (see ``bigclf.cli.jobs.driver``) or None,
        last_line of its log, and checkpoint: the epoch in which ``--resume`` goes on, None where there is none.
    """
    from bigclf import files
    from bigclf.training.records.lease import ALIVE, DEAD, Lease, Timing, state_of
    from bigclf.training.records.run_directory import last_checkpoint

    owner, state = Lease(files.join(directory, "lease")).owner(), "stopped"
    if owner is not None:
        alive = state_of(owner, time.time() - owner["heartbeat"], Timing())
        state = {ALIVE: "running", DEAD: "died"}.get(alive, "unknown")
    elif files.exists(files.join(directory, "model.bigclf")):
        state = "finished"
    detached = driver.read(directory)
    if detached is not None and detached["state"] != "stopped":  # after that somebody may have gone on with it
        state = detached["state"] if owner is None or detached["ended"] is None else state
    last = history[-1] if history else {}
    return {
        "state": state,
        "failure": driver.what_failed(detached["log"]) if detached and state == "failed" else None,
        "process": None if owner is None else {"host": owner["host"], "pid": owner["pid"],
                                               "heartbeat": owner["heartbeat"]},
        "epoch": last.get("epoch"),
        "gap": last.get("gap"),
        "events": sum(len(record.get("events") or ()) for record in history),
        "driver": detached,
        "last_line": driver.last_line(detached["log"]) if detached else None,
        "checkpoint": last_checkpoint(directory),
    }  # fmt: skip


def _print_begun(directory: str, told: RunStatus) -> None:
    terminal.heading(directory, "a job that has not started training")
    terminal.facts(status_lines(told), indent="  ")


def status_lines(told: RunStatus) -> list[tuple[str, object]]:
    """The status of a run as names and texts."""
    process, detached, state = told["process"], told["driver"], told["state"]
    again = ("; --resume begins anew: no checkpoint had been written" if told["checkpoint"] is None
             else f"; --resume continues in epoch {told['checkpoint']}")  # fmt: skip
    text = {"running": terminal.good("running"), "finished": terminal.good("finished"),
            "died": terminal.poor("its process died") + again,
            "failed": terminal.poor("failed") + f": {told['failure']}; fix that, then submit it with --resume",
            "stopped": terminal.poor("stopped") + again,
            "unknown": terminal.poor("no sign of life for a while")}[state]  # fmt: skip
    if process is not None:
        ago = format_seconds(max(0.0, time.time() - process["heartbeat"]))
        text += f", process {process['pid']} on {process['host']}, last sign of life {ago} ago"
    if detached is None:
        return [("state", text)]
    ended = (
        detached["ended"]
        and f"{detached['ended']}: {driver.ENDINGS.get(detached['exit_code'], 'failed')}"
        f" (exit code {detached['exit_code']})"
    )
    return [
        ("state", text),
        ("driver", f"process {detached['pid']} on {detached['host']}, started {detached['begun']}"),
        ("ended", ended),
        ("log", detached["log"]),
        ("last line", None if state == "failed" else told["last_line"]),
    ]


def _print_run(directory: str, told: RunRead, most: int = 12) -> None:
    run, history = told["run"], told["history"]
    groups = len(run.get("plan", {}).get("groups", ()))
    identity, plan = run.get("identity", {}), run.get("plan", {})
    epochs = history[-1].get("epoch", 0) if history else 0
    terminal.heading(directory, f"a run of {identity.get('method', '?')}, {plural(epochs, 'epoch')}")
    data = identity.get("data", {})
    terminal.facts(
        [
            ("parameters", parameters_text({"loss": identity.get("loss"), **identity.get("settings", {})})),
            ("data", rows_text(data["n_rows"], data["nnz"]) if {"n_rows", "nnz"} <= {*data} else None),
            ("limits", parameters_text({**run.get("limits", {}), "tol": identity.get("tol")})),
            ("pruned", None if run.get("prune") is None else f"within {run['prune']:g} of the optimum, at the end"),
            ("chosen", run.get("chosen")),
            ("plan", plan_text(plan)),
            ("disk", disk_text(plan)),
            ("groups", f"{groups:,}" if groups > 1 else None),
            ("cluster", cluster_text(history)),
            ("versions", parameters_text(run.get("versions", {}))),
            ("processor", run.get("cpu")),
            ("started", run.get("started")),
            *status_lines(told["status"]),
        ],
        indent="  ",
    )
    if not history:
        return
    names = ("epoch", "seconds", "rows", "bytes_read", "objective", "gap", "error", "mean_loss", "mistakes", "workers",
             "mixes", "bytes_moved", "validation")  # fmt: skip
    columns = [name for name in names if any(record.get(name) is not None for record in history)]
    console = terminal.tables()
    table, spare = _epochs(columns, history[-most:]), [name for name in SPARE if name in columns]
    free = console.options.update(width=1000)  # else nothing measures more than there is room for
    while spare and console.measure(table, options=free).maximum > console.width:
        columns.remove(spare.pop(0))
        table = _epochs(columns, history[-most:])
    console.print(table)
    _print_events(history)


JUDGED = ("error", "mean_loss", "mistakes")  # figures of the rows that an epoch learned from
SPARE = ("bytes_read", "rows", "bytes_moved", "mixes", "workers", "seconds")  # left out first where a line has no room


def _epochs(columns: list[str], history: Sequence[Record]) -> Table:
    """A table of these figures, a line for each record."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name.replace("_", " "), justify="right")
    for record in history:
        judged = record.get("rows") != 0  # else no row was, and 0.00 % would praise it
        table.add_row(*(_cell(name, record.get(name) if judged or name not in JUDGED else None) for name in columns))
    return table


def cluster_text(history: Sequence[Record]) -> str | None:
    """``2 workers, 8 groups, 12 mixes, 1.2 MB moved, 3 events``, or ``2 workers, 20 problems dealt out, ...``; None for
    a run that stayed in one process."""
    last = history[-1] if history else {}
    if not last.get("bytes_moved"):
        return None
    workers, events = last["workers"], sum(len(record.get("events") or ()) for record in history)
    how = [plural(last["groups"], "group"), f"{last['mixes']:,} mix{'es' * (last['mixes'] != 1)}"]
    if dealt := last.get("problems_dealt"):
        how = [f"{plural(dealt, 'problem')} dealt out"]
    parts = [plural(workers, "worker"), *how, f"{format_bytes(last['bytes_moved'])} moved"]
    if events:
        parts.append(plural(events, "event"))
    return ", ".join(parts)


def _print_events(history: Sequence[Record], most: int = 12) -> None:
    """What happened to workers and visits, with the epoch it happened in."""
    from bigclf.progress import event_text

    events = [(record.get("epoch", "?"), event) for record in history for event in record.get("events") or ()]
    if len(events) > most:
        click.echo(click.style(f"  the last {most} of {len(events):,} events", dim=True))
    for epoch, event in events[-most:]:
        click.echo(click.style(f"  epoch {epoch:>3}  ", dim=True) + event_text(event))


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "seconds":
        return format_seconds(value)
    if name in ("bytes_read", "bytes_moved"):
        return format_bytes(value)
    if name == "validation":
        return validation_text(value) or ""
    if name == "gap":
        return f"{value:.2e}"
    if name == "error":
        return f"{100 * value:.2f} %"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}"
