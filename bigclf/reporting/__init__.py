"""A report: one HTML file about a run, a model or an evaluation, with everything in it and nothing asked of a network.

``content`` says what is shown, ``curves`` and ``pictures`` draw it, ``page`` and its template make the file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypedDict

from bigclf import files
from bigclf.api.evaluate import is_elsewhere, on_disk
from bigclf.data.bad_rows import MOST_BAD
from bigclf.errors import DataError, RunError
from bigclf.files.apart import keep_apart
from bigclf.metrics import figures
from bigclf.model.explanations import explain
from bigclf.model.model import Model, as_model, is_stored, load
from bigclf.model.raw_input import BadRows, as_shards, left_out, refuse_labels
from bigclf.progress import Record, Watcher, watcher
from bigclf.reporting.content import Measured, Subject, page_of
from bigclf.reporting.page import render
from bigclf.training.records.run_record import read_history, read_run
from bigclf.units import parse_bytes

if TYPE_CHECKING:
    from bigclf.model.explanations import Explanation, NamesGiven


TOP, TOP_OF_MANY = 12, 6  # features of a class


class Report(TypedDict):
    """What ``report`` says: the file, its bytes and sections, and notes on the evaluation."""

    out: str
    bytes: int
    sections: list[str]
    notes: list[str]


def report(
    thing: Model | str | os.PathLike[str], out: str | os.PathLike[str], data: object = None, y: object = None, *,
    names: NamesGiven | None = None, memory: str | int = "1GB", on_bad_rows: str = "error",
    max_bad_fraction: float = MOST_BAD, overwrite: bool = False, progress: Watcher | None = None,
    title: str | None = None,
) -> Report:  # fmt: skip
    """Write a report.

    Parameters
    ----------
    thing : a ``Model`` (with its history where ``fit`` has just made it), the path of one, or a run directory.
    out : the HTML file.
    data, y : labelled rows to measure the model on, shards, an array or a table, as in ``evaluate`` (or what
        ``measured`` gave); None: the report is about the training alone.
    names : of the features, as in ``Model.explain``.
    memory : bound of what measuring allocates.   on_bad_rows, max_bad_fraction : of raw ``data``, as in ``evaluate``.
    overwrite : replace ``out``.   title : of the page; None: the name of ``thing``.
    progress : an object with ``start, advance, stop``, for the read of ``data``.

    Returns
    -------
    dict : out, bytes, the names of the ``sections``, and ``notes`` on the evaluation.

    Raises
    ------
    RunError : ``out`` exists or is an input, or a run that has no model yet is to be measured.
    DataError : ``thing`` is neither, or is damaged.
    TypeError : labels without rows, or rows without labels.
    """
    name = str(out)
    keep_apart([data], [thing], written=[name])
    if files.exists(name) and not overwrite:
        raise RunError(f"{name} already exists; add overwrite=True to replace it")
    if data is None and y is not None:
        raise TypeError("y has no effect without data: report(thing, out, X, y)")
    bad = BadRows(on_bad_rows, max_bad_fraction)
    if data is None and bad != BadRows():
        raise TypeError("on_bad_rows (--on-bad-rows) and max_bad_fraction have no effect without data")
    subject = subject_of(thing, title)
    if data is not None:
        if subject.model is None:
            raise RunError(f"{thing}: the run has no model yet, so that there is nothing to measure")
        found = data if isinstance(data, Measured) else measured(subject.model, data, memory, progress, bad, y)
        subject = subject._replace(measured=found)
    subject = subject._replace(explained=explained(subject.model, names))
    page = page_of(subject)
    files.make_directory(files.parent_directory(name))
    files.publish_text(name, render(page))
    notes = [] if subject.measured is None else list(subject.measured.evaluation.notes)
    sections = [section.name for section in page.sections]
    return {"out": name, "bytes": files.file_size(name), "sections": sections, "notes": notes}


def subject_of(thing: Model | str | os.PathLike[str], title: str | None = None) -> Subject:
    """What a model, a model's file or a run directory tells by itself."""
    if isinstance(thing, Model):
        history = [] if thing.result_ is None else thing.result_.history
        return Subject(title or "model", thing, {}, history, None, None)
    if not isinstance(thing, str | os.PathLike):
        return subject_of(as_model(thing), title)
    path = str(thing)
    if files.exists(files.join(path, "run.json")):
        return _of_run(path, title)
    if files.is_directory(path):
        raise DataError("no run directory: there is no run.json in it", file=path)
    return Subject(title or files.base_name(path), load(path), {}, [], None, None)


def _of_run(path: str, title: str | None) -> Subject:
    run = read_run(files.join(path, "run.json"))
    model = files.join(path, "model.bigclf")
    known = load(model) if files.exists(model) else None
    return Subject(title or files.base_name(path), known, run, history_of(path), None, None)


def history_of(directory: str) -> list[Record]:
    """The records of a run that are of epochs; a line that a kill cut short is left out."""
    records = read_history(files.join(directory, "history.jsonl"))
    return [record for record in records if "epoch" in record]


def measured(
    model: Model, data: object, memory: str | int = "1GB", progress: Watcher | None = None, bad: BadRows | None = None,
    y: object = None,
) -> Measured:  # fmt: skip
    """Figures of the model on labelled rows, as ``evaluate`` takes them, and what curves are made of."""
    where, progress = data_text(data), watcher(progress)
    if is_elsewhere(data):
        with on_disk(model, data, y) as written:
            return measured(model, written, memory, progress, bad)._replace(data=where)
    if not is_stored(data):
        (bad or BadRows()).check(model, data)
        judged, summed = figures.evaluate_in_memory(model, data, y, "report(model, out, X, y)")
        return Measured(judged, getattr(summed, "ranking", None), where)
    refuse_labels(model, data, y)
    with as_shards(model, data, memory, bad) as rows:
        dataset = figures.rows_to_measure(model, rows)
        exact = figures.exact_auc_fits(model, dataset, parse_bytes(memory))
        if progress is not None:
            progress.start({"n_rows": dataset.n_rows, "task": "rows"})
        advance = None if progress is None else progress.advance
        part = figures.partial_evaluation(model, dataset, 0, dataset.n_chunks, exact=exact, advance=advance)
        found = figures.concluded(model, dataset, part)
        found.leave_out(*left_out(data, rows))
        return Measured(found, getattr(part, "ranking", None), where)


def data_text(data: object, most: int = 3) -> str:
    """Where rows come from, in a line."""
    if not is_stored(data):
        return f"rows in memory ({type(data).__name__})"
    names = data.files if hasattr(data, "files") else data if isinstance(data, (list, tuple)) else [data]
    return ", ".join(map(str, names[:most])) + " ..." * (len(names) > most)


def explained(model: Model | None, names: NamesGiven | None) -> Explanation | str | None:
    """The largest weights, or why there are none to show."""
    if model is None:
        return None
    try:
        few = model.intercept_.size <= 3
        return explain(model, top=TOP if few else TOP_OF_MANY, names=names)
    except RunError as error:
        return str(error)
