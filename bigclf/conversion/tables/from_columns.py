"""Raw tables and texts to shards: extracted and tallied in one read, finished with what that read learned.

The first pass parses each piece, spills raw features in key order and tallies it; the tallies are added in the order
of the pieces. The second pass merges the runs into shards and finishes each row on the way. Both depend on the source
and the spec alone; so do the shards.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import heapq
import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf import files
from bigclf.conversion import appending, destination
from bigclf.conversion import shuffle as merging
from bigclf.conversion.converter import LEAST_MEMORY, Converter, integral, plan_of, processes
from bigclf.conversion.resuming import Workplace
from bigclf.conversion.shuffle import Slab, Spiller, Totals
from bigclf.conversion.tables import reading
from bigclf.conversion.tables.reading import Bad, Batch, TableJob
from bigclf.conversion.text.pieces import PIECE_BITS, ROW_BITS, Source, Task
from bigclf.data.bad_rows import MOST_KINDS, Reasons, kind_of, skipping, with_way_out
from bigclf.data.dataset import Dataset
from bigclf.data.label_sets import TEXT
from bigclf.errors import DataError, SchemaError, masked
from bigclf.features import encode, label_cells, values
from bigclf.features.encode import COLLIDING, collisions_text
from bigclf.features.extract import UNLABELLED, Extracted, extract
from bigclf.features.spec import Categorical, Label, Spec, Text, parse
from bigclf.features.tally import Tallies, Tally, write_tallies
from bigclf.features.truths import apart, as_one, coded
from bigclf.progress import Watcher
from bigclf.units import parse_bytes

if TYPE_CHECKING:
    import pyarrow as pa

EXAMPLES = 10  # of bad rows, in a report
COUNTED = 200_000  # rows that are looked at for others like the one that ends a conversion
HELD_OUT_KEY = 0x5EED  # not that of any shuffle


class HeldOut(NamedTuple):
    """A share of all rows that is held out, chosen by a hash of each row's place in the source: the rows of the share,
    or (``held`` False) the rest."""

    share: float
    held: bool

    def has(self, ordinals: np.ndarray) -> np.ndarray:
        """bool [m]: whether the rows belong to it."""
        chosen: np.ndarray = merging.keys_of(ordinals, HELD_OUT_KEY) < np.uint64(int(self.share * 2**64))
        return chosen == self.held


class ColumnsJob(NamedTuple):
    """What all tasks of the first pass share; runs go to ``scratch``, tallies to ``kept``."""

    reader: TableJob
    spec: Spec
    seed: int | None
    scratch: str
    room: int
    stop_at_bad: bool
    kept: str
    part: HeldOut | None
    keep_bad: bool = False
    words: bool = True


class Noted(NamedTuple):
    """Bad rows of a task: how many, of each kind of reason (rows, the first), the first few; all where asked for."""

    n: int = 0
    kinds: Sequence[tuple[int, Bad]] = ()
    first: Sequence[Bad] = ()
    every: Sequence[Bad] = ()

    def __bool__(self) -> bool:
        return self.n > 0


class Notes:
    """What bad rows of a task come to, as they are met."""

    def __init__(self, every: bool) -> None:
        self.n, self.kinds, self.first, self.every = (
            0,
            dict[str, list[Any]](),
            list[Bad](),
            list[Bad]() if every else None,
        )

    def add(self, bad: Bad) -> None:
        kind = kind_of(bad.reason)
        kind = kind if kind in self.kinds or len(self.kinds) < MOST_KINDS else ""
        self.kinds.setdefault(kind, [0, bad])[0] += 1
        self.n += 1
        if len(self.first) < EXAMPLES:
            self.first.append(bad)
        if self.every is not None:
            self.every.append(bad)

    def noted(self) -> Noted:
        return Noted(self.n, [(count, bad) for count, bad in self.kinds.values()], self.first, self.every or ())


class Done(NamedTuple):
    """What came of a task: sorted runs, totals, (source, piece, rows, nnz) of each piece, their tallies, lines and
    bytes read, bad rows, and how many rows belong to another part."""

    runs: list[merging.Run]
    totals: Totals
    pieces: list[tuple[int, int, int, int]]
    tallies: Tallies
    n_lines: int
    n_bytes: int
    bad: Noted
    n_elsewhere: int = 0

    def is_whole(self, merged: bool) -> bool:
        """Whether what it wrote is as it was written; ``merged``: the runs are needed no more."""
        return self.tallies.is_whole() and (merged or all(map(merging.is_whole, self.runs)))

    def as_written(self) -> Done:
        """Without what stands in files."""
        return self._replace(tallies=self.tallies._replace(held=None))


def run_task(job: ColumnsJob, task: Task) -> Done:
    """Extract the rows of a task and spill them in key order."""
    name = f"{task.source.number}-{task.first}"
    spiller, counts = Spiller(files.join(job.scratch, name), job.seed, job.room), dict[int, list[int]]()
    tallies, notes, n_lines, n_bytes, n_elsewhere = dict[int, Tally](), Notes(job.keep_bad), 0, 0, 0
    seen: collections.Counter[int] = collections.Counter()
    for piece, batch in reading.batches(job.reader, task):
        first = (task.source.number << (PIECE_BITS + ROW_BITS)) + (piece << ROW_BITS) + seen[piece]
        seen[piece] += batch.n_rows
        found, ordinals, strange = usable(job.spec, batch, first, tallies.setdefault(piece, Tally(job.spec)), job.part,
                                          stop_at_bad=job.stop_at_bad, words=job.words)  # fmt: skip
        broken = () if job.part is not None and job.part.held else batch.bad  # of no part: the rest has told them
        strange.sort(key=_line)
        for bad in heapq.merge(broken, strange, key=_line):
            notes.add(bad)
            if job.stop_at_bad:
                break
        if notes.n and job.stop_at_bad:
            break
        slab = Slab(found.indptr, found.codes, found.values, found.labels, found.weights)
        spiller.add(ordinals, slab)
        so_far = counts.setdefault(piece, [0, 0])
        so_far[0] += slab.n_rows
        so_far[1] += slab.indices.size
        n_lines, n_bytes = n_lines + batch.n_lines, n_bytes + batch.n_bytes
        n_elsewhere += 0 if job.part is None else batch.n_rows - slab.n_rows - len(strange)
    spiller.flush()
    counted = [(task.source.number, piece, rows, nnz) for piece, (rows, nnz) in counts.items()]
    written = write_tallies(files.join(job.kept, f"{name}.npz"), list(tallies.values()))
    return Done(spiller.runs, spiller.totals, counted, written, n_lines, n_bytes, notes.noted(), n_elsewhere)


def _line(bad: Bad) -> int:
    return int(bad.place.get("line", 0))


def usable(
    spec: Spec,
    batch: Batch,
    first: int,
    tally: Tally | None,
    part: HeldOut | None = None,
    label: bool = True,
    stop_at_bad: bool = False,
    words: bool = True,
) -> tuple[Extracted, np.ndarray, list[Bad]]:
    """The rows of a batch that belong to ``part`` and are not bad, their ordinals, and those that are bad.

    ``first`` is the ordinal of the batch's first row; ``words`` as of ``extract``.
    """
    ordinals = np.arange(first, first + batch.n_rows, dtype=np.uint64)
    rows = np.arange(batch.n_rows) if part is None else np.flatnonzero(part.has(ordinals))
    columns = batch.columns if rows.size == batch.n_rows else _rows(batch.columns, rows)
    strange, dropped = list[Bad](), 0
    while True:
        keys = merging.keys_of(ordinals[rows], 0)
        found = extract(spec, columns, rows.size, tally, keys, label, words)
        if not found.bad:
            if tally is not None:
                tally.unlabelled += dropped
            return found, ordinals[rows], strange
        for row, reason in sorted(found.bad.items()):
            if reason == UNLABELLED and spec.label is not None and spec.label.missing == "drop":
                dropped += 1
                continue
            place, text = batch.where(int(rows[row]))
            strange.append(Bad(place, reason, text))
            if stop_at_bad:
                return found, ordinals[rows], strange
        rows = np.delete(rows, list(found.bad))
        columns = _rows(batch.columns, rows)


def _rows(columns: Mapping[str, pa.Array], rows: np.ndarray) -> dict[str, pa.Array]:
    import pyarrow as pa

    return {name: column.take(pa.array(rows)) for name, column in columns.items()}


# Before the first pass


class Raw(NamedTuple):
    """Raw files as they are about to be read, and what is to be said of them."""

    spec: Spec
    sources: list[Source]
    reader: TableJob
    notes: list[str]


def prepare(data: Any, spec: Spec, room: int, label: bool = True, keep: Sequence[str] | None = ()) -> Raw:
    """Look at the files and at the beginning of the first: columns that are not there, and what the labels are.

    ``keep`` : columns that are read although nothing is made of them; None: all such.

    Raises
    ------
    DataError, SchemaError : with the place.
    """
    how = reading.reading(spec.reader)
    spec = dataclasses.replace(spec, reader=how.as_json())
    if how.format == "text" and not spec.terms:
        spec = dataclasses.replace(spec, terms=parse({"features": [{"text": "text"}]}).terms)
    if how.format == "text" and spec.label is None:
        spec = dataclasses.replace(spec, label=Label("label"))
    if not spec.terms:
        raise SchemaError("no column is named: say which are numeric, categorical or text (bigclf inspect FILE "
                          "--suggest proposes a spec)")  # fmt: skip
    if label and spec.label is None:
        raise SchemaError("no column is named as the label (--label COLUMN)")
    wanted = wanted_columns(spec, label)
    places = reading.places(data, wanted)
    sources = [reading.look_at(place, number, how) for number, place in enumerate(places)]
    names = [reading.header_names(place, how) for place in places]
    for place, known in zip(places, names, strict=True):
        if known:
            own = spec.label.columns if label and spec.label is not None else ()
            values.require_all(wanted, known, own, what="file", path=place.path)
    reader = TableJob(how, wanted, names, places, max(room // 8, 2**24))
    reader = reader._replace(kept=[reading.kept_columns(reader, source, keep) for source in sources])
    notes = list[str]()
    if label and spec.label is not None and spec.label.type == "auto":
        kind, notes = label_type(reader, sources, spec)
        spec = dataclasses.replace(spec, label=dataclasses.replace(spec.label, type=kind))
    return Raw(spec, sources, reader, notes)


def count_rows(data: files.Paths, spec: Spec, room: int = LEAST_MEMORY) -> tuple[int, Reasons]:
    """How many rows raw files have that can be read, and why the others cannot; errors as ``prepare``."""
    raw = prepare(data, dataclasses.replace(spec, label=None), room, label=False)
    n_rows, broken = 0, Reasons()
    for source in raw.sources:
        n_lines = 0
        for task in reading.tasks_of(raw.reader, source, 1):
            before = n_lines
            for _, batch in reading.batches(raw.reader, task):
                n_rows, n_lines = n_rows + batch.n_rows, n_lines + batch.n_lines
                note_broken(source.path, batch, broken, before)
    return n_rows, broken


def note_broken(path: str, batch: Batch, found: Reasons, lines_before: int = 0) -> None:
    """Add to ``found`` why lines of the batch cannot be read; ``lines_before`` : those before its task."""
    for bad in batch.bad:
        found.add(bad.reason, str(located(files.base_name(path), bad, lines_before)))


def wanted_columns(spec: Spec, label: bool) -> tuple[str, ...]:
    """The columns that are read."""
    own = () if spec.label is None else spec.label.columns
    more = (*own, *(() if spec.weight is None else (spec.weight,))) if label else ()
    return tuple(dict.fromkeys([*spec.columns, *more]))


def first_batch(reader: TableJob, sources: list[Source]) -> Batch | None:
    """The first rows that there are."""
    for source in sources:
        for task in reading.tasks_of(reader, source, 1):
            for _, batch in reading.batches(reader, task):
                if batch.n_rows:
                    return batch
    return None


def label_type(reader: TableJob, sources: list[Source], spec: Spec) -> tuple[str, list[str]]:
    """What the labels at the beginning of the data are, as ``kind_of_labels``."""
    assert spec.label is not None
    batch = first_batch(reader._replace(wanted=spec.label.columns), sources)
    if batch is None or not batch.columns.keys() >= {*spec.label.columns}:
        return "labels" if spec.label.several else "text", []
    return kind_of_labels(batch.columns, spec)


def kind_of_labels(columns: Mapping[str, pa.Array], spec: Spec) -> tuple[str, list[str]]:
    """What the labels in their columns are: a type of ``Label``; and what is to be said where that is a guess."""
    import pyarrow as pa

    assert spec.label is not None
    column = columns[spec.label.column]
    if spec.label.several or label_cells.is_list(column):
        return _kind_of_several([columns[name] for name in spec.label.columns], spec, spec.label), []
    if spec.label.above is not None or spec.label.one_of or pa.types.is_boolean(column.type):
        return "bool", []
    if spec.label.strip or spec.label.lowercase:
        return "text", []
    bad: values.Bad = {}
    try:
        numbers = values.numbers(column, spec.label.column, spec.missing_values, bad, spec.decimal)
    except SchemaError:
        return "text", []
    notes = list[str]()
    if len(bad) < len(column) // 10 and bad:
        notes = [f"{len(bad)} of the first {len(column)} labels are not numbers: all are taken as text (for numbers, "
                 "set type: number for the label in the spec, and --on-bad-rows skip)"]  # fmt: skip
    return "text" if bad or np.isnan(numbers).all() else "number", notes


class _WordsAmongNumbers(Exception):
    """Some labels are true and false in words, and others are numbers but 1 and 0."""


def known_labels(source: object) -> list[object] | None:
    """The labels of the model or the rows whose features others are to get: their classes, or None among them where
    they are numbers; None: it has none."""
    if not hasattr(source, "features"):
        return None
    classes = getattr(source, "classes_", getattr(source, "classes", None))
    return [None] if classes is None else classes.tolist()  # type: ignore[no-any-return]


def _told_of_labels(error: DataError, raw: Raw, limit: float) -> DataError:
    """The error of a cell without a label with what is to be done: the separator, where the other cells seem to hold
    several labels (with one, an empty cell is a row of no label), else the options that leave out all such rows."""
    if not error.message.startswith(UNLABELLED):
        return error
    if separator := _likely_separator(raw):
        told = f"{separator}; with it, an empty cell is a row without labels"
    else:
        n_bad, n_rows, whole = _bad_rows(raw)
        options, keywords = skipping(n_bad, n_rows, limit, whole)
        rows = f"{n_bad:,} of {'' if whole else 'the first '}{n_rows:,} rows"
        told = f"to leave such rows out ({rows}), use {options} ({keywords})"
    place = dict(file=error.file, row_group=error.row_group, row=error.row, line=error.line, column=error.column)
    return DataError(f"{UNLABELLED}; {told}", **place)  # type: ignore[arg-type]


def _likely_separator(raw: Raw) -> str:
    label = raw.spec.label
    assert label is not None
    batch = first_batch(raw.reader._replace(wanted=label.columns), raw.sources)
    if batch is None or label.several or not values.is_texts(batch.columns[label.column]):
        return ""
    rows = collections.Counter(values.trimmed(batch.columns[label.column]).drop_null().to_pylist())
    rows.pop("", None)
    return "".join(label_cells.likely_separators(label, rows)[:1])


def _bad_rows(raw: Raw) -> tuple[int, int, bool]:
    """How many rows are bad, of how many at the beginning, and whether these are all."""
    n_bad = n_rows = 0
    tasks = (task for source in raw.sources for task in reading.tasks_of(raw.reader, source, 1))
    try:
        for _, batch in (found for task in tasks for found in reading.batches(raw.reader, task)):
            if n_rows >= COUNTED:
                return n_bad, n_rows, False
            n_bad += len(batch.bad) + len(usable(raw.spec, batch, 0, None)[2])
            n_rows += len(batch.bad) + batch.n_rows
    except DataError:  # what comes then cannot be read at all
        return n_bad, n_rows, False
    return n_bad, n_rows, True


def _kind_of_several(columns: list[pa.Array], spec: Spec, label: Label) -> str:
    """What the cells are that say several labels a row.

    Raises
    ------
    SchemaError : some columns hold 0 and 1 and others do not, or all do beside a separator.
    """
    if not label.beside:
        return "labels"
    told = dict(zip(label.columns, label_cells.are_indicators(columns, spec.missing_values), strict=True))
    if True in told.values():  # a column of 0, 1 and some 2 is one with bad cells
        nearly = label_cells.are_indicators(columns, spec.missing_values, nearly=True)
        told = dict(zip(label.columns, nearly, strict=True))
    yes, no = ([name for name, kind in told.items() if kind is wanted] for wanted in (True, False))
    if yes and no and label.separator is None:
        message = (
            f"either all columns of labels hold 0 and 1, or all hold labels: {yes[0]!r} holds 0 and 1, and {no[0]!r} "
            "does not (if 0 and 1 are labels, set type: labels for the label in the spec)"
        )
        raise SchemaError(message, column=no[0])
    if yes and not no and label.separator is not None:
        message = (
            "the columns of labels hold 0 and 1, and a separator would make these the labels; leave it out, or set "
            "type: labels for the label in the spec"
        )
        raise SchemaError(message, column=yes[0])
    return "indicators" if yes and label.separator is None else "labels"


# Both passes


def convert_columns(
    data: files.Paths,
    out: files.PathLike,
    spec: Spec,
    *,
    known: list[object] | None = None,
    append: bool = False,
    **options: object,
) -> Dataset:
    """Raw files, or a part of their rows, to shards (parameters: ``convert``); with ``learned`` they become what
    another read has learned.

    known : the labels that these are held against (``known_labels``); of ``append`` those that are there.
    """
    before = appending.there(out) if append else None
    known = known if before is None else known_labels(before)
    how = functools.partial(_converted, data, out, spec, before, known=known or [], append=append, **options)  # type: ignore[arg-type]
    try:
        return how(words=known is None or coded(known))
    except _WordsAmongNumbers:  # which no piece of the files could tell by itself
        return how(words=False)


def _converted(
    data: files.Paths,
    out: files.PathLike,
    spec: Spec,
    before: Dataset | None,
    *,
    known: list[object],
    append: bool,
    words: bool,
    learned: encode.Learned | None = None,
    chunk_nnz: int,
    shuffle: bool,
    seed: int,
    memory: float | str,
    workers: int | None,
    on_bad_rows: str,
    max_bad_fraction: float,
    overwrite: bool,
    shard_nnz: int,
    progress: Watcher | None,
    part: HeldOut | None = None,
) -> Dataset:
    """``convert_columns``; ``words`` : whether labels that are numbers may be true and false, for 1 and 0.

    Raises
    ------
    _WordsAmongNumbers : some are, and other labels are neither 1 nor 0.
    """
    total = parse_bytes(memory)
    asked = [spec.as_json(), None if learned is None else learned.digest()]
    if before is not None:
        spec, learned = _as_before(spec, before, out)
    raw = prepare(data, spec, total)
    workers = processes(workers, total, raw.sources)
    options = [chunk_nnz, shuffle, seed, on_bad_rows, max_bad_fraction, shard_nnz]
    identity = {
        "append": [*appending.identity(before), *([learned.digest()] if before and learned else [])],
        "sources": [(masked(files.absolute(place.path)), place.part, reading.state_of(place.path))
                    for place in raw.reader.places],
        "options": [*asked, part, *options, *([] if words else ["no words"])],
    }  # fmt: skip
    if (there := destination.finished(out, identity, append)) is not None:
        return there
    with (
        destination.continuing(
            out, overwrite, identity, before, (Done, Noted, Bad, merging.Run, Tallies), append=append
        ) as work,
        _Columns(work.directory, workers, total, progress, work) as converter,
    ):
        directory = work.directory
        job = ColumnsJob(
            raw.reader, raw.spec, seed if shuffle else None, converter.scratch, converter.room // 4,
            on_bad_rows == "error", work.kept, part, words=words,
        )  # fmt: skip
        try:
            converter.read(raw.sources, job._replace(keep_bad=on_bad_rows == "quarantine"))
        except DataError as error:
            raise _told_of_labels(error, raw, max_bad_fraction) from None
        converter.check([source for source in raw.sources if not files.is_directory(source.path)], max_bad_fraction)
        if learned is None:
            _require_one_of(raw, converter.totals.labels)
        new = [] if learned is None else encode.unknown_warnings(raw.spec, learned, converter.tally)
        learned = encode.learn(raw.spec, converter.tally) if learned is None else learned
        features = encode.described(raw.spec, learned)
        encode.save(learned, directory)
        files.publish_text(files.join(directory, encode.SPEC), json.dumps(features))
        if workers == 1:  # this process writes the shards: nothing to read again
            encode.keep_finisher(directory, features["learned"]["digest"], encode.Finisher(raw.spec, learned))
        plan = converter.plan_columns(job, features, learned, chunk_nnz, shard_nnz, known)
        plan = appending.alike(plan, before)
        made = {**encode.report(raw.spec, learned), "unlabelled": converter.tally.unlabelled}
        warnings = [*raw.notes, *converter.warnings(1), *collision_warnings(made), *spelt_alike(raw.spec), *new]
        if converter.tally.labels:
            rows = {text: converter.totals.labels[code] for code, text in converter.tally.labels.items()}
            several = raw.spec.label is not None and raw.spec.label.several
            whole = not any(label_cells.BETWEEN in text for text in rows)
            warnings += label_cells.likely_separators(raw.spec.label, label_cells.rows_of_labels(rows, several), whole)
        if plan.classes is not None and raw.spec.label is not None and raw.spec.label.type == "text":
            warnings += spelt_apart(raw.spec.label, plan.classes.tolist())
        told = converter.told(raw.sources, warnings, part)
        told["report"] |= made
        converter.write(plan, told)
        encode.forget_finishers()
    dataset = Dataset(out)
    dataset.report = {**converter.report(dataset), **made}
    dataset.warnings += [*warnings, *appending.new_labels(before, dataset)]
    return dataset


def _as_before(spec: Spec, before: Dataset, out: files.PathLike) -> tuple[Spec, encode.Learned]:
    """The spec of the shards that are there and what was learned for them; another spec is refused.

    Raises
    ------
    SchemaError : the spec that was given says something else.
    """
    if not encode.is_columns(before.features):
        raise SchemaError("the shards there were not made of raw columns", file=before.files[0])
    kept = parse(before.features)
    if spec.terms and spec.terms != kept.terms:
        raise SchemaError("the shards there were made with another spec of features; leave it out, or convert to "
                          "another directory", file=before.files[0])  # fmt: skip
    kept = dataclasses.replace(kept, reader={**kept.reader, **spec.reader})
    return kept, encode.load(before.features, str(out))


def _require_one_of(raw: Raw, labels: Collection[float]) -> None:
    """DataError where no row has any of the labels that the spec puts together as one class."""
    label = raw.spec.label
    if label is None or not label.one_of or any(labels) or not labels:
        return
    batch = first_batch(raw.reader, raw.sources)
    there = [] if batch is None else values.as_text(batch.columns[label.column], label.column).unique().to_pylist()
    held = ", ".join(map(repr, there[:5])) + ", ..." * (len(there) > 5)
    wanted = ", ".join(map(repr, label.one_of))
    raise DataError(f"no row has one_of {wanted}, which are to be one class; there is {held}", column=label.column)


def spelt_alike(spec: Spec) -> list[str]:
    """A warning of two columns whose hashed values can have the same name: a, with a value "b=c", and "a=b"."""
    hashed = [t for t in spec.terms if isinstance(t, Text) or (isinstance(t, Categorical) and t.encode != "exact")]
    names = sorted({t.name for t in hashed})
    pairs = [(a, b) for a in names for b in names if b.startswith(f"{a}=")]
    return [f"columns {a!r} and {b!r}: hashed values of both can have the same name; rename one" for a, b in pairs]


def spelt_apart(label: Label, classes: Sequence[str]) -> list[str]:
    """A warning of classes that are the same truth in several spellings, beside others."""
    pairs = [" and ".join(map(repr, texts)) for texts in apart(classes)]
    return [f"column {label.column}: {pair} are classes of their own, as there are labels that are neither true nor "
            "false; where they mean the same, write them in one way" for pair in pairs]  # fmt: skip


def collision_warnings(report: Mapping[str, Any]) -> list[str]:
    """What to say before training of hashed names that share their index: nothing of few."""
    if (share := report.get("colliding", 0)) <= COLLIDING:
        return []
    return [collisions_text(share, report["distinct_hashed"], report["hash_bits"])]


class _Columns(Converter):
    """The two passes over raw columns."""

    def __init__(self, directory: str, workers: int, total: int, progress: Watcher | None, work: Workplace) -> None:
        super().__init__(directory, workers, total, progress, work)
        self.tally: Any = None

    def read(self, sources: list[Source], job: ColumnsJob) -> None:
        """First pass: extract every piece, spill its rows, add up the tallies."""
        if self.progress is not None:
            self.progress.start({"task": "parse", "bytes": sum(s.size for s in sources), "workers": self.workers})
        self.tally = Tally(job.spec)
        lines: collections.Counter[int] = collections.Counter()
        cut = functools.partial(reading.tasks_of, job.reader)
        for task, done in self._results(functools.partial(run_task, job), sources, cut, job.stop_at_bad):
            self._note(task.source, done.bad, lines[task.source.number], job)
            for part in done.tallies.load(job.spec):
                self.tally.add(part)
            lines[task.source.number] += done.n_lines
            self.n_elsewhere += done.n_elsewhere
            self._count(done)
            self._check_words()

    def _check_words(self) -> None:
        if self.tally.words and (self.totals.real or not coded(self.totals.labels)):
            raise _WordsAmongNumbers

    def _note(self, source: Source, noted: Noted, before: int, job: ColumnsJob) -> None:
        if noted.n and job.stop_at_bad:
            raise with_way_out(located(source.path, noted.first[0], before))
        self.n_bad += noted.n
        for rows, bad in noted.kinds:
            self.reasons.add(bad.reason, str(located(source.path, bad, before)), rows)
        self.examples += [
            str(located(source.path, bad, before)) for bad in noted.first[: EXAMPLES - len(self.examples)]
        ]
        if noted.every:
            with files.open_binary(files.join(self.directory, destination.QUARANTINE), "ab") as file:
                for bad in noted.every:
                    error = located(source.path, bad, before)
                    file.write(f"# {error}\n".encode("utf-8", "replace") + bad.text + b"\n")

    def plan_columns(
        self,
        job: ColumnsJob,
        features: dict[str, object],
        learned: encode.Learned,
        chunk_nnz: int,
        shard_nnz: int,
        known: list[object],
    ) -> merging.Plan:
        """What the second pass is to do."""
        self.totals.max_index = min(self.totals.max_index, 0)  # of raw features it says nothing
        bounds = self._bounds(shuffled=job.seed is not None, shard_nnz=shard_nnz)
        label = job.spec.label
        codes, classes, ranks = self._classes(label, known)
        plan = plan_of(self, bounds, codes, classes, learned.n_features, features, chunk_nnz)
        sets = TEXT if label is not None and label.several else ""
        return plan._replace(binary=learned.binary, ranks=ranks, raw=True, sets=sets)

    def _classes(
        self, label: Label | None, known: list[object]
    ) -> tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]:
        """codes, classes and ranks of the plan."""
        if self.totals.real:
            return None, None, None
        codes = np.array(sorted(self.totals.labels), np.float64)
        if label is not None and (label.type == "text" or label.several):
            names = [self.tally.labels[code] for code in codes.tolist()]
            names = names if label.several else as_one(names, known)
            classes = sorted(set(names))
            rank = {name: float(k) for k, name in enumerate(classes)}
            return codes, np.array(classes), np.array([rank[name] for name in names])
        if label is not None and label.type == "bool":
            return codes, codes.astype(bool), None
        return codes, codes.astype(np.int64) if integral(self.totals.labels) else codes, None


def located(path: str, bad: Bad, lines_before: int = 0) -> DataError:
    """The error that a bad row is."""
    place: dict[str, Any] = {**bad.place}
    if "line" in place:
        place["line"] += lines_before
    member = place.pop("member", None)
    return DataError(bad.reason, file=f"{path}#{member}" if member else path, **place)
