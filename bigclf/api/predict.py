"""``predict``: shards or raw files in, for each a Parquet file of predictions out; gone on with where it stopped."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

import numpy as np

from bigclf import files
from bigclf.api import frames
from bigclf.api.predicted_shards import Asked, Input, as_called, count_on, counted_work, predicted_rows, shard_inputs
from bigclf.conversion.convert import QUERIES_IGNORED
from bigclf.conversion.tables.raw_rows import RawRows
from bigclf.conversion.tables.reading import state_of
from bigclf.conversion.text.in_order import Differing, Rows, TextRows
from bigclf.data import shards
from bigclf.data.predictions import (
    ArrowColumns,
    Column,
    Columns,
    Totals,
    check_csv,
    check_parquet,
    end_to_end,
    forget_parts,
    is_one_file,
    made_from,
    parts_of,
    write_csv,
    write_in_parts,
    write_parquet,
)
from bigclf.errors import DataError, RunError
from bigclf.features.arrow import null_where_nan
from bigclf.features.values import is_table
from bigclf.files.apart import keep_apart
from bigclf.metrics.figures import row_groups
from bigclf.model.model import Model, as_model, is_stored, unknown_text, unseen_text
from bigclf.model.raw_input import Texts, in_order, naming_format
from bigclf.progress import Plan, Watcher, watcher
from bigclf.request.workers import crew_of, is_cluster, linked
from bigclf.units import parse_bytes

if TYPE_CHECKING:
    from bigclf.cluster.book import Patience
    from bigclf.cluster.link import Link
    from bigclf.conversion.text.pieces import Source
    from bigclf.data.dataset import Dataset, Stored


log = logging.getLogger("bigclf")
Crew: TypeAlias = "tuple[Link, Patience]"  # workers, and how long they are waited for
NOTE = ".named.json"  # behind the name of a file, until what it grew from is gone: what it is known by
ENDING = re.compile(r".\.(?!v\d)[a-z][a-z0-9]*$")  # of the name of a file, not 2024.06 or a.v2
LOCK = ".predicting"  # in the directory of the output, or behind the name of a file, while one process writes there


def predict(
    model: Model | files.PathLike,
    data: object,
    out: str | None = None,
    *,
    scores: bool = False,
    proba: bool = False,
    top: int = 0,
    unseen: str = "ignore",
    keep: Sequence[str] | None = None,
    memory: float | str = "1GB",
    overwrite: bool = False,
    workers: object = None,
    progress: Watcher | None = None,
) -> Any:
    """Predict the class (or number) of every row of ``data``, in files or in a frame; labels are not needed.

    Parameters
    ----------
    model : or the path of one.
    data : shards (path, directory, glob, list of them, Dataset), or raw files: for a model of raw columns such, for one
        of sparse rows text of such, svmlight unless the name tells another format or ``model.reading`` was told it.
        Or, without ``out``, a frame: pandas, Polars, an Arrow table, a Dask DataFrame (its partitions are predicted
        where they lie, once they are asked for), or a stream of Arrow's record batches.
    out : directory; gets a Parquet file for each input file with the columns ``row`` (number in its input file),
        those of the input that pass through (``keep``), ``label`` where shards have one, ``prediction``, and the
        following. Several labels a row are a list there, in CSV they are joined by commas. Or a file that ends in
        ``.csv`` or ``.parquet``: all of them, of several files with a column ``file`` before (``input_file`` where a
        column of the input is called so). A directory that is there already may end in ``.parquet``, too.
    scores, proba : add the decision values and probabilities: for two classes ``score`` and ``probability`` (of the
        label that sorts last), else ``score_<class>`` and ``probability_<class>``. Probabilities come from the logistic
        loss, uncalibrated, or from the calibration if the model has one.
    top : add so many columns ``top_1``, ``top_2`` ... of the classes with the greatest decision values, and these as
        ``top_1_score`` ...; for more than two classes, or several labels a row.
    unseen : features that the model does not know (of raw files, categories of columns whose categories it knows one by
        one): ``"ignore"`` (of files counted, with a warning) or ``"error"``, for which files that an earlier call made
        of rows with such are made again, and so refused.
    keep : names of columns of the input that pass through (``id``, ``fold`` ...); None: of shards all that are no part
        of the rows, of raw files all that no feature is made of. They stay what they are: of CSV and JSON text as it
        stands there. One that is called as a column of the output is becomes ``input_<name>``. Of directories and
        archives of documents ``member`` may pass, the name of each.
    memory : bound of what reading raw files takes, in bytes or like "256MB": of a CSV what an open quote may enclose.
        Rows of shards come in parts of some megabytes.
    overwrite : replace files that were made from other data or by another model.
    workers : as in ``fit``, for shards only; they write into ``out``, which all of them must see. The files are the
        same to the byte.
    progress : an object with ``start, advance, stop`` such as ``TerminalProgress``, or None.

    Returns
    -------
    Without ``out`` a frame of the kind of ``data`` with the columns ``prediction`` and, as asked, ``score`` and
    ``probability``; of a stream a ``pyarrow.RecordBatchReader``. Else dict : out, rows, written and kept (files),
    rows_kept (that an earlier call left of files it did not finish), columns, probability (of what, and whether
    calibrated; None without ``proba``), unseen, bytes, seconds. What was written earlier with the same input, model and
    options is kept, whole files and parts of some seconds of long ones: an interrupted call goes on where it stopped.

    Raises
    ------
    RunError : ``out`` holds other files of these names, is where the input lies, or another call writes there now.
    DataError : an input that cannot be read, or lacks a column of ``keep``; one that a CSV file cannot hold.
    """
    model = as_model(model)
    as_csv = str(out).lower().endswith(".csv")
    asked, progress = Asked(model, scores, proba, unseen, parse_bytes(memory), top, as_csv), watcher(progress)
    asked.check()
    workers, patience = crew_of(workers)
    if is_cluster(workers) and out is None:
        raise TypeError("workers has no effect without out: a frame is predicted where it is")
    if out is None:
        if is_stored(data):
            raise TypeError("predictions for files need a place to write to: predict(model, data, out)")
        if keep is not None:
            raise TypeError("keep has no effect with rows in memory: their predictions stand in their order")
        return frames.predicted(asked, data)
    if not isinstance(out, str | os.PathLike):
        raise TypeError(f"out is the place to write to: predict(model, data, out); not a {type(out).__name__}")
    data = _named(data)
    if not is_stored(data):
        raise TypeError("out is for predictions of files; those of rows in memory are returned: predict(model, data)")
    place, as_one = [str(out)], is_one_file(str(out))
    if (
        not as_one
        and ENDING.search(files.base_name(str(out)).lower())
        and not str(out).endswith("/")
        and not files.is_directory(out)
    ):
        raise ValueError(f"{out}: predictions go to a directory, or to one file whose name ends in .csv or .parquet; "
                         f"for a directory of this name, write {out}/")  # fmt: skip
    keep_apart([data], written=place if as_one else (), entered=() if as_one else place)
    with in_order(model, data, memory) as rows, contextlib.ExitStack() as stack:
        if is_cluster(workers) and (isinstance(rows, Texts) or model.is_raw(rows)):
            raise TypeError("workers has no effect with raw files, which this process parses; convert them to shards")
        link = stack.enter_context(linked(workers, patience))
        crew = None if link is None else (link, patience)
        result, warned = (_as_one_file if as_one else _in_directory)(
            asked, rows, str(out), keep, overwrite, progress, crew
        )
    for text in warned:
        warnings.warn(text, stacklevel=2)
    return result


def _named(data: object) -> object:
    """Paths in a set, an array or what is gone through once as a list; anything else as it is."""
    if is_stored(data) or is_table(data) or hasattr(data, "columns") or not isinstance(data, Iterable):
        return data
    rest = iter(data)
    first = next(rest, None)
    return [first, *rest] if isinstance(first, str | os.PathLike) else data


def _in_directory(
    asked: Asked,
    data: Stored | Texts,
    out: str,
    keep: Sequence[str] | None,
    overwrite: bool,
    progress: Watcher | None,
    crew: Crew | None = None,
) -> tuple[Predicted, list[str]]:
    """What ``predict`` returns, and what it is to warn of."""
    inputs = _inputs(asked, data, keep)
    targets = _target_paths([one.path for one in inputs], out)
    begun = files.exists(out)
    files.make_directory(out)
    try:
        with _alone_at(out, files.join(out, LOCK)):
            result, warned = _as_parquet(asked, data, inputs, targets, overwrite, progress, crew)
    except BaseException:
        if not begun and not files.list_directory(out):  # nothing to go on from
            files.remove_tree(out)
        raise
    names = {*files.list_directory(out)} - {*map(files.base_name, targets)}
    if others := sorted(name for name in names if name.endswith(".parquet") and name[0] not in "_."):
        what = others[0] if len(others) == 1 else f"{len(others):,} other files ({others[0]}, ...)"
        warned.append(f"{out} also holds {what}, not made by this call; whoever reads the directory reads all of it")
    return {"out": out, **result}, warned


def _as_one_file(
    asked: Asked,
    data: Stored | Texts,
    out: str,
    keep: Sequence[str] | None,
    overwrite: bool,
    progress: Watcher | None,
    crew: Crew | None = None,
) -> tuple[Predicted, list[str]]:
    """The same as one file; what is interrupted goes on in a hidden directory beside it."""
    home, name = files.parent_directory(out), files.base_name(out)
    hidden = files.join(home, f".{name}.predictions")
    note = files.join(home, f".{name}{NOTE}")
    _refuse_existing(out, overwrite or files.is_noted(out, note))
    inputs = _inputs(asked, data, keep)
    _check_as_one(inputs, asked.joined)
    paths = [one.path for one in inputs]
    targets = _target_paths(paths, hidden)
    files.make_directory(home)
    with _alone_at(out, files.join(home, f".{name}{LOCK}")):
        _refuse_existing(out, overwrite or files.is_noted(out, note))  # another call may have ended since
        try:
            files.make_directory(hidden)
            result, warned = _as_parquet(asked, data, inputs, targets, True, progress, crew)
        except BaseException:
            if files.exists(hidden) and not files.list_directory(hidden):  # nothing to go on from
                files.remove_tree(hidden)
            raise
        named = None if len(paths) == 1 else (_free_name("file", result["columns"]), paths)
        write = write_csv if asked.joined else write_parquet
        try:
            columns = write(targets, named, out, hidden, note)
        except DataError:  # the same call would end as this one
            files.remove_tree(hidden)
            raise
        files.remove_tree(hidden)
    files.remove(note)  # nothing else is left then
    size = files.file_size(out)
    return {**result, "out": out, "written": 1, "kept": 0, "columns": columns, "bytes": size}, warned


def _refuse_existing(out: str, overwrite: bool) -> None:
    if files.is_directory(out):
        raise RunError(f"{out}: a directory; name the file, or a directory that does not end in .csv")
    if files.exists(out) and not overwrite:
        raise RunError(f"{out} already exists; add overwrite=True to replace it")


def _check_as_one(inputs: Sequence[Input], as_csv: bool) -> None:
    """What one file cannot become, before the first row is predicted."""
    passing = [one.passing() for one in inputs]
    for one, columns in zip(inputs, passing, strict=True):
        if as_csv:
            check_csv(columns, one.path)
        if other := sorted(set(columns) ^ set(passing[0])):
            raise DataError(f"column {other[0]} is not in both this file and the first, {inputs[0].path}; name"
                            " those that all have: --keep NAME,... (keep=[...])", file=one.path)  # fmt: skip
    if not as_csv:
        check_parquet(passing, [one.path for one in inputs])


def _free_name(name: str, taken: Sequence[str]) -> str:
    """``name``, or ``input_<name>``, ``input_<name>_2`` ... where a column is called so."""
    names = itertools.chain([name, f"input_{name}"], (f"input_{name}_{k}" for k in itertools.count(2)))
    return next(one for one in names if one not in taken)


def _inputs(asked: Asked, data: Stored | Texts, keep: Sequence[str] | None) -> list[Input]:
    if isinstance(data, Texts):
        return [_text(asked, path, rows, data, keep) for path, rows in data.files]
    return (raw_inputs if asked.model.is_raw(data) else shard_inputs)(asked, data, keep)


def _as_parquet(
    asked: Asked,
    data: Stored | Texts,
    inputs: list[Input],
    targets: list[str],
    overwrite: bool,
    progress: Watcher | None,
    crew: Crew | None,
) -> tuple[Made, list[str]]:
    """The predictions of each input at its target: what came of it, and what is to be warned of."""
    started, model, unseen = time.perf_counter(), asked.model, asked.unseen
    todo = [k for k, path in enumerate(targets) if not _is_finished(path, inputs[k].mark, unseen, overwrite)]
    before = {k: parts_of(targets[k], inputs[k].mark)[1]["rows"] for k in todo}
    plan = _forecast([inputs[k] for k in todo], sum(before.values()))
    if crew is not None and todo:
        from bigclf.api.predict_there import write_there

        write_there(asked, [(targets[k], inputs[k]) for k in todo], *crew, progress, plan)
    elif progress is not None:
        progress.start(plan)
    for k, path in enumerate(targets):
        if k not in before:
            forget_parts(path)
        elif crew is None:
            _write(path, inputs[k], progress)
    skipped = sum(made_from(path)[1] or 0 for path in targets)
    rows = [int(shards.claims(path).n_rows) for path in targets]
    warned = []
    if skipped:
        warned.append(unknown_text(skipped) if model.is_raw(data) else unseen_text(skipped, model.n_features))
    if empty := [one.path for one, count in zip(inputs, rows, strict=True) if not count]:
        warned.append(f"{empty[0]}{', ...' * (len(empty) > 1)}: there are no rows, so there are no predictions")
    return {
        "rows": sum(rows),
        "written": len(todo),
        "kept": len(targets) - len(todo),
        "rows_kept": sum(before.values()),
        "columns": _columns_of(targets[0]) if targets else [],
        "probability": model.probabilities_text() if asked.proba else None,
        "unseen": skipped,
        "bytes": sum(files.file_size(path) for path in targets),
        "seconds": time.perf_counter() - started,
    }, warned


def _write(path: str, one: Input, progress: Watcher | None) -> None:
    rows_from = _counted(one.rows_from, progress)
    try:
        write_in_parts(path, one.mark, one.work, rows_from, one.settle)
    except Differing:  # it is known now
        forget_parts(path)
        write_in_parts(path, one.mark, one.work, rows_from, one.settle)


class Options(TypedDict, total=False):
    """What ``predict`` may be asked for beside rows and their place."""

    scores: bool
    proba: bool
    top: int
    unseen: str
    keep: Sequence[str] | None
    memory: float | str
    overwrite: bool
    workers: object


class Made(TypedDict):
    """What came of the inputs: ``predict`` says it, and where it is."""

    rows: int
    written: int
    kept: int
    rows_kept: int
    columns: list[str]
    probability: str | None
    unseen: int
    bytes: int
    seconds: float


class Predicted(Made):
    out: str


def _target_paths(paths: Sequence[str], out: str) -> list[str]:
    """Where the predictions of each input go: its own name, numbered where names repeat."""
    names = [files.base_name(path).removesuffix(".parquet") for path in paths]
    if len(set(names)) < len(names):
        names = [f"{number:05d}-{name}" for number, name in enumerate(names)]
    targets = [files.join(out, name + ".parquet") for name in names]
    inputs = {files.identity(path) for path in paths}
    if hit := next((path for path in targets if files.identity(path) in inputs), None):
        raise RunError(f"{hit}: is an input; write the predictions to another directory")
    return targets


@contextlib.contextmanager
def _alone_at(out: str, lock: str) -> Iterator[None]:
    """Hold what is written at ``out`` on this machine, by the file ``lock``; a store has no locks, and files appear
    whole there all the same.

    Raises
    ------
    RunError : another process, or thread, holds it.
    """
    if files.is_remote(out):
        yield
        return
    held = files.lock(lock)
    if held is None:
        raise RunError(f"{out}: other predictions are being written there now; wait for them, or choose another place")
    try:
        yield
    finally:
        files.remove(lock)
        files.unlock(held)


def _is_finished(path: str, mark: Mapping[str, object], unseen: str, overwrite: bool) -> bool:
    if not files.exists(path):
        return False
    made, unknown = made_from(path)
    if made == mark:
        return unseen == "ignore" or unknown == 0
    if not overwrite:
        raise RunError(
            f"{path} already exists, and was not made from this data by this model; add overwrite=True to replace it"
        )
    return False


def _forecast(inputs: list[Input], rows_kept: int) -> Plan:
    """What is to be done, as ``progress`` takes it: rows, or bytes where rows are not known."""
    if all(one.n_rows for one in inputs):
        return {"n_rows": sum(one.n_rows for one in inputs) - rows_kept, "task": "rows"}
    known = all(one.n_bytes for one in inputs) and not rows_kept
    return {"n_rows": 0, "bytes": sum(one.n_bytes for one in inputs) if known else 0, "task": "rows"}


def _counted(
    rows_from: Callable[[Totals], Iterator[Columns | None]], progress: Watcher | None
) -> Callable[[Totals], Iterator[Columns | None]]:
    """The same row groups, told of to whoever watches."""
    if progress is None:
        return rows_from

    def told(totals: Totals) -> Iterator[Columns | None]:
        rows, n_bytes = totals["rows"], totals.get("bytes", 0)
        for columns in rows_from(totals):
            if columns is not None:
                progress.advance(totals["rows"] - rows, totals.get("bytes", 0) - n_bytes)
                rows, n_bytes = totals["rows"], totals.get("bytes", 0)
            yield columns

    return told


def _columns_of(path: str) -> list[str]:
    with shards.open_parquet(path) as file:
        return list(file.schema_arrow.names)


# Sparse text


def _text(asked: Asked, path: str, rows: Dataset | TextRows, texts: Texts, keep: Sequence[str] | None) -> Input:
    """A file of text that is ``rows``, in their order."""
    if keep:
        raise DataError(f"there is no column {keep[0]!r} to keep; the file has none besides its rows", file=path)
    named = {"name": files.base_name(path), "state": json.dumps(state_of(path)), **texts.told}
    mark = {**asked.as_json(), "input": named, "passing": []}
    if isinstance(rows, TextRows):
        return _parsed_text(asked, path, rows, texts.form, mark)
    dataset, places = rows, list(row_groups(rows))

    def rows_from(totals: Totals) -> Iterator[Columns | None]:
        return predicted_rows(asked, dataset, places, {}, totals)

    return Input(path, mark, counted_work(asked, dataset.n_rows, dataset.nnz), dataset.n_rows, 0, dict, rows_from)


def _parsed_text(asked: Asked, path: str, rows: TextRows, form: str, mark: dict[str, object]) -> Input:
    """A file of text whose rows are scored as they are parsed."""

    def rows_from(totals: Totals) -> Iterator[Columns | None]:
        with naming_format(asked.model, path, form):
            yield from _of_text(asked, rows, totals)

    size = 0 if rows.source.compressed else rows.source.size
    return Input(path, mark, WORK_A_BYTE * rows.source.size, 0, size, dict, rows_from, _with_labels)


def _of_text(asked: Asked, rows: TextRows, totals: Totals) -> Iterator[Columns | None]:
    """Predictions for the tasks of a file of text behind those that were done; labels are numbers still."""
    path, unknown = rows.source.path, asked.unseen == "error"
    if unknown and totals.get("unseen"):  # in parts of a call that was to ignore them
        raise DataError(unseen_text(totals["unseen"], asked.model.n_features), file=path)
    held, size = list[dict[str, Column]](), 0
    for found in rows.pieces(totals.get("tasks", 0), totals.get("lines", 0), totals.get("values", 0)):
        if found is not None:
            block, first = found.block, totals["rows"] + sum(each["row"].size for each in held)
            said, skipped = asked.of_block(block)
            if skipped and unknown:
                raise DataError(unseen_text(skipped, asked.model.n_features), file=path)
            held.append({"row": np.arange(first, first + block.n_rows), "label": block.labels, **said})
            size += block.n_rows * len(held[0])
            count_on(totals, lines=found.n_lines, unseen=skipped, bytes=found.n_bytes, work=WORK_A_BYTE * found.n_bytes)
            _note(totals, found)
        if size and (found is None or size >= GATHERED):
            columns = {name: end_to_end([each[name] for each in held]) for name in held[0]}
            held, size = [], 0
            count_on(totals, rows=columns["row"].size)
            yield columns
        if found is None:
            count_on(totals, tasks=1)
            yield None
    rows.check_unchanged()
    if not totals["rows"]:
        raise DataError("there are no rows", file=path)
    if totals.get("queries"):
        log.warning("%s", QUERIES_IGNORED)
    if totals.get("beyond") and not totals.get("fractions"):
        raise DataError("a label is beyond 2^53, where whole numbers can no longer be told apart; give the classes "
                        "smaller numbers", file=path, column="label")  # fmt: skip


def _note(totals: Totals, found: Rows) -> None:
    """Keep in the totals what shows at the end of a file alone."""
    every = found.block.labels
    labels = every[~np.isnan(every)]
    for name, there in (
        ("unlabelled", labels.size < every.size),
        ("queries", found.queries),
        ("fractions", (labels != np.rint(labels)).any()),
        ("beyond", (np.abs(labels) >= 2**53).any()),
    ):
        totals[name] = int(totals.get(name, 0) or there)
    totals["values"] = found.values


def _with_labels(columns: ArrowColumns, totals: Totals) -> Columns:
    """Labels as whole numbers, where all are, and null where there is none."""
    labels = columns["label"]
    if totals.get("unlabelled"):
        labels = null_where_nan(labels)
    return {**columns, "label": labels if totals["fractions"] else labels.cast("int64")}


# Raw files


def raw_inputs(asked: Asked, data: Stored, keep: Sequence[str] | None) -> list[Input]:
    """Raw files for a model of raw columns; a directory or an archive of documents is one."""
    raw = RawRows(asked.model.finisher_of(data), data, keep, asked.memory)
    return [_raw(asked, raw, source) for source in raw.sources]


def _raw(asked: Asked, raw: RawRows, source: Source) -> Input:
    path, part, _ = raw.place(source)
    passing = as_called(raw.kept[source.number], ["row", *asked.nothing()], path)
    told = {"name": files.base_name(path), "part": part, "state": json.dumps(state_of(path))}
    learned = asked.model.finisher.learned.digest()
    mark = {**asked.as_json(), "input": told, "passing": sorted(passing), "columns": learned, "counted": "categories"}

    def rows_from(totals: Totals) -> Iterator[Columns | None]:
        return _of_raw(asked, raw, source, passing, totals)

    rows, n_bytes = raw.size(source)
    work = WORK_A_BYTE * (n_bytes or PACKED * source.size)
    return Input(path, mark, work, rows, n_bytes, lambda: raw.no_rows(source, passing), rows_from)


GATHERED = 2**18  # cells of a row group of predictions
WORK_A_BYTE = 8  # of text: parsing and hashing it takes as long as so many multiplications
PACKED = 4  # compressed text is likely so many times as long


def _of_raw(
    asked: Asked, raw: RawRows, source: Source, passing: Mapping[str, str], totals: Totals
) -> Iterator[Columns | None]:
    """Predictions for the pieces of a raw file behind those that were done."""
    if asked.unseen == "error" and totals.get("unseen"):  # in parts of a call that was to ignore them
        raise DataError(unknown_text(totals["unseen"]), file=source.path)
    for task in raw.tasks(source, totals.get("tasks", 0)):
        lines = 0
        for batch, block, unseen in raw.rows(task, totals.get("lines", 0), asked.unseen):
            said, _ = asked.of_block(block)
            columns = {"row": np.arange(totals["rows"], totals["rows"] + block.n_rows)}
            columns |= raw.passed_through(batch, passing) | said
            count_on(totals, rows=block.n_rows, unseen=unseen, bytes=batch.n_bytes, work=WORK_A_BYTE * batch.n_bytes)
            lines += batch.n_lines
            if block.n_rows:
                yield columns
        count_on(totals, tasks=1, lines=lines)
        yield None
    if not totals["rows"]:
        yield {"row": np.arange(0), **raw.no_rows(source, passing), **asked.nothing()}
