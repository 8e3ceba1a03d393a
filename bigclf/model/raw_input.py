"""Raw files and tables where features are wanted to train on, or to measure a model on.

Raw files become shards once, in a directory of the cache.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf import files
from bigclf.conversion.convert import QUERIES_IGNORED, convert, parsing_options
from bigclf.conversion.destination import OF_COLUMNS
from bigclf.conversion.resuming import forget, left_in
from bigclf.conversion.tables.from_columns import HeldOut, convert_columns, kind_of_labels, known_labels, spelt_apart
from bigclf.conversion.tables.reading import (
    are_raw,
    as_named,
    format_by_look,
    format_by_name,
    format_of,
    places,
    state_of,
)
from bigclf.conversion.text import readers
from bigclf.conversion.text.in_order import DIFFER, TextRows
from bigclf.conversion.text.label_lists import are_lists
from bigclf.conversion.text.pieces import PIECE, look_at
from bigclf.data.arrays import Arrays, plain_names, require_named
from bigclf.data.bad_rows import MOST_BAD
from bigclf.data.dataset import MANIFEST, Dataset, Stored, as_trained
from bigclf.errors import BigclfError, DataError, RunError, SchemaError, masked
from bigclf.features import encode, values
from bigclf.features.extract import Extracted, extract
from bigclf.features.label_cells import likely_separators, split
from bigclf.features.spec import Label, Spec, parse
from bigclf.features.tally import Tally
from bigclf.features.truths import as_one, coded
from bigclf.files.caches import CONVERSIONS, cache_directory, is_conversion
from bigclf.files.formats import COLUMNS, DEFAULT, HASHED
from bigclf.maths.block import Block
from bigclf.model.explanations import NamesGiven, RowAnswer, explain_row, row_of_blocks, stored_row
from bigclf.model.model import Model, is_stored, require_same_columns
from bigclf.progress import Watcher
from bigclf.units import parse_bytes
from bigclf.version import __version__

if TYPE_CHECKING:
    import scipy.sparse

log = logging.getLogger("bigclf")
LOCK = ".lock"
KEPT = 8  # conversions that are kept in the cache, the last used


# Training


def of_columns(
    data: Any, y: object, sample_weight: object, validate: object, features: object, format: str | None, *,
    hash_bits: int | None,
    memory: float | str, seed: int, bad: BadRows, progress: Watcher | bool | None
) -> tuple[Dataset | Arrays, None, None, object]:  # fmt: skip
    """What ``fit`` is given of raw columns as it takes features: rows, labels, weights and rows to validate on.

    Raises
    ------
    TypeError : labels or weights beside files, which hold their own; ``hash_bits`` beside columns, whose spec has them.
    """
    sparse = features is None and format is not None and format not in COLUMNS
    if hash_bits is not None and not sparse:
        raise TypeError("hash_bits has no effect here: with raw columns they stand in the spec of the features")
    if values.is_table(data):
        source: Any = arrays_of(data, y, features, sample_weight)
    else:
        for name, value in (("y", y), ("sample_weight", sample_weight)):
            if value is not None:
                raise TypeError(f"{name} has no effect with files: the spec names the columns of label and weight")
        shown = None if isinstance(progress, bool) or not hasattr(progress, "start") else progress
        if sparse and format is not None:
            told: dict[str, Any] = dict(
                hash_bits=hash_bits, memory=_room(memory), seed=seed, progress=shown, **bad._asdict()
            )
            source = sparse_text(data, format, **told)
            if validate is not None and is_stored(validate) and not isinstance(validate, Dataset) and are_raw(validate):
                validate = sparse_text(validate, format, several_labels=source.sets is not None, **told)
            return source, None, None, validate
        source = converted(data, features, format, memory=_room(memory), seed=seed, progress=shown, **bad._asdict())
    if validate is not None and is_stored(validate) and not isinstance(validate, Dataset) and are_raw(validate):
        learned = encode.Learned(**source.learned_of_columns())
        told = dict(learned=learned, known=known_labels(source), **bad._asdict())
        validate = converted(validate, source.features, memory=_room(memory), **told)
    elif values.is_table(validate):
        if source.features.get("label") is None:
            raise TypeError("validate is a table without labels: give validate=(X, y)")
        validate = _as_learned(validate, None, source)
    elif isinstance(validate, tuple) and len(validate) == 2 and values.is_table(validate[0]):
        validate = _as_learned(*validate, source)
    return source, None, None, validate


def _room(memory: float | str) -> int:
    """What conversion may take: it needs more than the smallest of trainings."""
    return max(parse_bytes(memory), 2**28)


def converted(
    data: files.Paths,
    features: object,
    format: str | None = None,
    *,
    memory: float | str = "1GB",
    workers: int | None = None,
    seed: int = 0,
    on_bad_rows: str = "error",
    max_bad_fraction: float = MOST_BAD,
    learned: encode.Learned | None = None,
    directory: str | None = None,
    progress: Watcher | None = None,
    part: HeldOut | None = None,
    said: Mapping[str, object] | None = None,
    known: list[object] | None = None,
) -> Dataset:
    """Shards of raw files, made now or found in the cache: by the files, the spec and what was learned.

    Parameters
    ----------
    features, format : what becomes of them, and what they are, as ``convert`` takes them.
    learned : of other rows, to be used for these; None: these are learned from.
    part : take only the rows that are held out, or the rest; None: all.
    said : options of the reader that stand whatever the files' names tell, where ``learned`` is of other files.
    known : the labels that these are held against, as ``known_labels`` of ``features``; None: ask that.
    directory : where conversions are kept; None: in the user's cache.

    Raises
    ------
    DataError, SchemaError, MemoryBudgetError : as ``convert``.
    """
    by_name = functools.partial(format_of, data)
    spec, found = encode.given_features(features, format or DEFAULT, by_name)
    learned, known = learned or found, known_labels(features) if known is None else known
    if learned is not None:
        spec = dataclasses.replace(spec, reader=dict(as_named(spec.reader, data, spec.columns, said or {})))
    home = directory or _home()
    out = files.join(home, _key(data, spec, seed, (on_bad_rows, max_bad_fraction), learned, part, known))
    options = dict(chunk_nnz=500_000, shuffle=learned is None, overwrite=True, shard_nnz=2**23,
                   max_bad_fraction=max_bad_fraction)  # fmt: skip
    told = dict(seed=seed, memory=memory, workers=workers, on_bad_rows=on_bad_rows, progress=progress, part=part)
    made = _once(out, lambda: convert_columns(data, out, spec, known=known, learned=learned, **told, **options))  # type: ignore[arg-type]
    if directory is None:
        _forget(home)
    how = None
    if learned is None and part is None:
        how = dict(features=spec.as_json(), seed=seed, on_bad_rows=on_bad_rows, max_bad_fraction=max_bad_fraction)
    in_order = learned is not None and part is None and not made.report.get("bad_rows")
    return _made_of(made, data, how, in_order)


def _home() -> str:
    """Where conversions are kept; RunError where there is no making it."""
    try:
        return cache_directory(CONVERSIONS)
    except OSError as error:
        raise RunError(f"cannot make {error.filename}: {error.strerror}; name another {files.OTHER_CACHE}") from error


def _made_of(
    dataset: Dataset, data: files.Paths, how: Mapping[str, object] | None = None, in_order: bool = False
) -> Dataset:
    """Shards of the cache that errors name by the file they were made of, and ``forget`` by all of them."""
    named = places(data)
    dataset.made_of = named[0].path if len(named) == 1 else f"{named[0].path}, ..."
    paths = list(dict.fromkeys(masked(files.absolute(place.path)) for place in named))
    dataset.raw = {"paths": paths, "in_order": in_order}
    if how is not None:
        dataset.raw["how"] = how
    return dataset


def sparse_text(
    data: files.Paths, format: str, *, seed: int = 0, on_bad_rows: str = "error", max_bad_fraction: float = MOST_BAD,
    hash_bits: int | None = None, several_labels: bool = False, **options: Any,
) -> Dataset:  # fmt: skip
    """Shards of text whose rows are sparse already, made now or found in the cache; errors as ``convert``.
    ``several_labels`` : rows have such, whatever the first of them look like."""

    named = [(files.absolute(path), *files.status(path)) for path in files.expand(data)]
    code = readers.code_of(readers.find(format, COLUMNS))
    bad = dict(on_bad_rows=on_bad_rows, max_bad_fraction=max_bad_fraction)
    several = have_several_labels(data, format, several_labels)
    told: tuple[object, ...] = (__version__, named, format, code, seed, bad, hash_bits, several)
    if (base := options.get("index_base")) is not None:
        told += (base,)
    home = _home()
    out = files.join(home, hashlib.blake2b(json.dumps(told).encode(), digest_size=16).hexdigest())
    options = dict(options, hash_bits=hash_bits, overwrite=True, several_labels=several, **bad)
    made = _once(out, lambda: convert(data, out, format=format, seed=seed, **options))
    _forget(home)
    how = dict(format=format, seed=seed, hash_bits=hash_bits, several_labels=several, **bad)
    return _made_of(made, data, how if base is None else how | {"index_base": base})


def made_again(paths: list[str], how: Mapping[str, object]) -> Dataset:
    """The shards of the cache that ``Dataset.raw`` tells of; errors as ``converted`` and ``sparse_text``."""
    told: dict[str, Any] = dict(how)
    if "features" in told:
        return converted(paths, told.pop("features"), **told)
    return sparse_text(paths, told.pop("format"), **told)


def have_several_labels(data: files.Paths, format: object, wanted: bool = False) -> bool:
    """Whether text of such a ``format`` is of rows with several labels: they are ``wanted``, or the first rows tell."""
    return format == DEFAULT and (wanted or are_lists(data))


def _once(out: str, make: Callable[[], Dataset]) -> Dataset:
    """The shards at ``out`` of the cache, made if they are not there; who finds another process at it waits.

    Raises
    ------
    RunError : the cache has no room for them, or lets this user not in.
    """
    home = files.parent_directory(out)
    try:
        files.make_directory(home)
        with files.alone(_lock_of(out)):
            files.list_directory(out)  # empty where there is none
            used = files.InUse(out)  # before it is looked at: another process may be about to remove it
            if (found := _whole(out)) is None:
                found = make()
                found.used = files.InUse(out)
                return found
            files.touch(out)
            found.used = used
            found.warnings += found.conversion.get("warnings", [])
            found.report = dict(found.conversion.get("report", {}))
            return found
    except OSError as error:
        if isinstance(error, BigclfError) or not str(error.filename or "").startswith(home):
            raise
        raise RunError(f"{error.filename}: {error.strerror}; name another {files.OTHER_CACHE}") from error


def _whole(out: str) -> Dataset | None:
    """The shards at ``out`` of the cache, if they are all there as they were written: programs that clear disks take
    some of the files, and who was killed while it removed them left the rest."""
    if not files.exists(files.join(out, MANIFEST)):
        return None
    try:
        found = Dataset(out, warn=False)  # they will be made again, if some are gone
    except (DataError, OSError):
        return None
    besides = OF_COLUMNS if encode.is_columns(found.features) else ()
    there = all(files.exists(files.join(out, name)) for name in besides)
    return found if found.conversion and there else None  # it is told by a manifest that lists all of them


def _key(
    data: files.Paths,
    spec: Spec,
    seed: int,
    bad: tuple[str, float],
    learned: encode.Learned | None,
    part: HeldOut | None,
    labels: list[object] | None,
) -> str:

    named = [(files.absolute(place.path), place.part, *state_of(place.path)) for place in places(data)]
    known = __version__, named, spec.as_json(), seed, bad, None if learned is None else learned.digest(), part
    texts = [] if labels is None else [list(map(str, labels))]
    return hashlib.blake2b(json.dumps([*known, *texts]).encode(), digest_size=16).hexdigest()


def _lock_of(out: str) -> str:
    """The file by which one process makes, takes or removes the shards at ``out``."""
    return files.join(files.parent_directory(out), f".{files.base_name(out)}{LOCK}")


def _forget(home: str) -> None:
    """Remove all but the conversions that were used last, or are in use, and what killed ones left."""
    names = files.list_directory(home)  # others may have named their own data there
    made = files.by_age(files.join(home, name) for name in filter(is_conversion, names))
    left = [out for out in left_in(home) if is_conversion(files.base_name(out))]
    for outs, remove in ((made, files.remove_unused), (left, forget)):
        for out in outs[:-KEPT]:
            with contextlib.suppress(OSError), files.alone(_lock_of(out), wait=False) as free:  # another user's
                if free:
                    remove(out)
    for name in names:
        if name.endswith(LOCK) and is_conversion(name[1 : -len(LOCK)]):  # of those that were killed nobody has it
            with contextlib.suppress(OSError), files.alone(files.join(home, name), wait=False):
                pass


def arrays_of(table: object, y: object, features: object, sample_weight: object = None) -> Arrays:
    """The rows of a table in memory as ``features`` says; ``y`` [n], or None where the spec names the label's column.

    Raises
    ------
    DataError : naming the row. SchemaError : a column is missing, or there are no labels.
    """
    matrix, labels, weights, spec, learned = _made(table, y, features)
    made = Arrays(matrix, labels, weights if sample_weight is None else sample_weight)
    if y is None and made.classes is not None:
        rows = dict(zip(map(str, made.classes.tolist()), made.class_counts.tolist(), strict=True))
        whole = made.sets is None or bool((made.sets.lengths <= 1).all())
        made.warnings += likely_separators(spec.label, rows, whole)
        if spec.label is not None and spec.label.type == "text":
            made.warnings += spelt_apart(spec.label, list(rows))
    made.features, made.learned = encode.described(spec, learned), learned._asdict()
    return made


def _as_learned(table: object, y: object, source: Dataset | Arrays) -> tuple[scipy.sparse.csr_matrix, object]:
    """Rows and labels of a table in the features that were learned of ``source``; errors as ``arrays_of``."""
    matrix, labels, *_ = _made(table, y, source)
    return matrix, labels


def _made(
    table: object, y: object, features: object
) -> tuple[scipy.sparse.csr_matrix, object, np.ndarray | None, Spec, encode.Learned]:
    """Rows, labels and weights (None: there are none) of a table, by which spec, and what was learned for it."""
    import scipy.sparse

    spec, learned = encode.given_features(features, DEFAULT if _names_format(features) else "csv")
    spec = _settled(spec, table, y)
    columns, n_rows = values.as_columns(table)
    known = known_labels(features)
    tally, found = _extracted(spec, columns, n_rows, known, label=y is None)
    learned = learned or encode.learn(spec, tally)
    indptr, indices, stored = encode.Finisher(spec, learned).rows(found)
    stored = stored if stored.size else np.ones(indices.size, np.float32)
    matrix = scipy.sparse.csr_matrix((stored, indices.view(np.int32), indptr), shape=(n_rows, learned.n_features))
    labels = labels_as_said(spec, tally, found.labels, known) if y is None else y
    return matrix, labels, found.weights if found.weights.size else None, spec, learned


def _names_format(features: object) -> bool:
    """Whether the features say how files are read, which does not matter for a table."""
    known = getattr(features, "features", features)
    reader = known.reader if isinstance(known, Spec) else parse(known).reader
    return "format" in reader


def _settled(spec: Spec, table: object, y: object) -> Spec:
    """The spec with the kind of its labels, by the table's column."""
    if y is not None:
        return dataclasses.replace(spec, label=None)
    if spec.label is None:
        raise SchemaError("a table needs its labels: y, or the label's column in the spec of the features")
    if spec.label.type != "auto":
        return spec
    return dataclasses.replace(spec, label=dataclasses.replace(spec.label, type=_label_kind(spec, spec.label, table)))


def _label_kind(spec: Spec, label: Label, table: object) -> str:
    columns, _ = values.as_columns(table)
    values.require_all(label.columns, columns, label.columns)
    kind, notes = kind_of_labels(columns, spec)
    for note in notes:
        log.warning("%s", note)
    return kind


def labels_as_said(
    spec: Spec, tally: Tally, codes: np.ndarray, known: list[object] | None = None
) -> np.ndarray | list[list[str]]:
    """Labels in their own type for their codes; a list for each row where rows have several."""
    assert spec.label is not None
    if spec.label.several:
        return [split(tally.labels[code]) for code in codes.tolist()]
    if spec.label.type == "text":
        names = list(tally.labels.values())
        written = dict(zip(tally.labels, as_one(names, known or ()), strict=True))
        return np.array([written[code] for code in codes.tolist()])
    if spec.label.type == "bool":
        return codes.astype(bool)
    whole = bool((codes == np.rint(codes)).all() and (np.abs(codes) < 2**53).all())
    return codes.astype(np.int64) if whole else codes


# Measuring


class BadRows(NamedTuple):
    """What becomes of raw rows that cannot be used, ``"error"`` or ``"skip"``; more than this share is an error all
    the same."""

    on_bad_rows: str = "error"
    max_bad_fraction: float = MOST_BAD

    def check(self, model: Model, data: object) -> None:
        """Refuse what makes no sense, or would have no effect.

        Raises
        ------
        ValueError, TypeError : naming it.
        """
        if self.on_bad_rows not in ("error", "skip"):
            raise ValueError(f"on_bad_rows is 'error' or 'skip' here, not {self.on_bad_rows!r}; convert keeps bad rows")
        if self != BadRows() and not may_be_bad(model, data):
            said = "on_bad_rows (--on-bad-rows)" if self.on_bad_rows == "skip" else "max_bad_fraction"
            raise TypeError(f"{said} has no effect here: it is for raw files")


def may_be_bad(model: Model, data: object) -> bool:
    """Whether ``data`` is raw files, some rows of which the model may have no use for."""
    return is_stored(data) and bool(model.is_raw(data) or text_format(model, data))


def label_apart(model: Model, table: object, name: str) -> tuple[object, object]:
    """A table's rows, and the labels in its column ``name``: read as those that the model learned, where that is
    their column.

    Raises
    ------
    TypeError : the model's features are made of that column. SchemaError : it is not there. DataError : naming the row
    of a bad one.
    """
    spec = model.finisher.spec if model.is_raw(table) else None
    if name in ((model.plain_columns or ()) if spec is None else spec.columns):
        known = "" if spec is None or spec.label is None else f"; its label is {spec.label.column!r}"
        raise TypeError(f"y names {name!r}, of which the model's features are made{known}")
    if spec is not None and spec.label is not None and name == spec.label.column:
        return table, labels_of_table(model, table)
    return values.apart(table, name)


def refuse_labels(model: Model, data: Stored, y: object) -> None:
    """TypeError where labels are given beside files, which have their own; their column may be named."""
    spec = model.finisher.spec.label if model.is_raw(data) else None
    if y is None or (spec is not None and isinstance(y, str) and y == spec.column):
        return
    raise TypeError("files have their own labels" + ("" if spec is None else f", in the column {spec.column!r}")
                    + ": y has no effect")  # fmt: skip


@contextlib.contextmanager
def as_shards(model: Model, data: Any, memory: float | str = "1GB", bad: BadRows | None = None) -> Iterator[Stored]:
    """``data`` as it is, or raw files as shards that are there as long as they are needed."""
    bad = bad or BadRows()
    bad.check(model, data)
    paths: files.Paths = data  # of raw files
    if form := text_format(model, data):
        told: dict[str, Any] = {"memory": _room(memory), "several_labels": model.multilabel, **bad._asdict()}
        told |= _as_numbered(model, form)
        with naming_format(model, data, form):
            rows = sparse_text(data, form, **told)
        _tell_ignored([rows])
        yield _any(rows, data)
        return
    if not (is_stored(data) and model.is_raw(data)):
        yield data
        return
    spec = model.finisher.spec
    if spec.label is None:
        raise SchemaError("the model does not know the label's column; convert the rows with a spec that names it")
    with files.scratch() as scratch:
        learned = model.finisher.learned
        options = {"memory": memory, "workers": 1, "learned": learned, "directory": scratch, **bad._asdict()}
        made = converted(paths, spec, said=model.said_reader, known=known_labels(model), **options)
        for warning in made.warnings:
            if warning.endswith(encode.UNKNOWN):
                log.warning("%s", warning)
        yield _any(made, paths)


def _any(rows: Dataset, data: files.Paths) -> Dataset:
    """``rows``, of which there must be some where bad ones were left out."""
    n_bad, why = left_out(data, rows)
    if n_bad and not rows.n_rows:
        raise DataError(f"no row is left: {why}", file=first_file(data))
    return rows


def first_file(data: files.Paths) -> str:
    """The first of the raw files that ``data`` names: what is wrong with all rows is told of it."""
    return str(places(data)[0].path)


def text_format(model: Model, data: object) -> str | None:
    """What text of rows that are sparse already ``data`` is, for a model of such rows; None where it is none.

    Raises
    ------
    DataError : it is a table of text, and the model takes columns of Parquet as they are.
    """
    if encode.is_columns(model.features) or not is_stored(data) or isinstance(data, Dataset):
        return None
    try:
        path = places(data)[0].path
        form = format_by_look(path)
    except (DataError, OSError):  # whoever opens it tells what is wrong
        return None
    if form in COLUMNS and form != "text" and (names := plain_names(model.features, model.columns.get("features"))):
        shown = ", ".join(names[:5]) + ", ..." * (len(names) > 5)
        raise DataError(f"a table as {form}, and the model takes columns of Parquet as they are ({shown}): write them "
                        'as Parquet, or train on the table with --format parquet (format="parquet")',
                        file=path)  # fmt: skip
    said = model.features.get("reader", {}).get("format")
    if form is None or said:
        return None if form is None else said
    if form not in COLUMNS:
        require_named(model.columns.get("features"), {"counted_from": 0}, path)
    if "hash_bits" in model.features and format_by_name(path) is None:
        return HASHED
    return None if form in COLUMNS else form


def _as_numbered(model: Model, form: str) -> dict[str, int | None]:
    """How text of a format is read so that its features are those of the model: options of ``convert``. Models of an
    older version do not tell from which number theirs counted."""
    usual, base = readers.find(form, COLUMNS).index_base, model.features.get("counted_from")
    told: dict[str, int | None] = {"hash_bits": model.features.get("hash_bits")}
    return told if usual is None or base in (None, usual) else {**told, "index_base": base}


@contextlib.contextmanager
def naming_format(model: Model | None, data: files.Paths, form: str) -> Iterator[None]:
    """Bad rows of text whose format nobody said, and its name does not tell, may be rows of another one."""
    try:
        yield
    except DataError as error:
        said = model is not None and "reader" in model.features
        if said or format_by_name(places(data)[0].path) is not None:
            raise
        told = f"it was read as {form}, since its name tells no format: --format (format=) says another"
        raise error.saying_more(told) from None


class Texts(NamedTuple):
    """Files of sparse text, each with its rows in their order, how its text is read, and which format that is; of a
    reader of one's own, which threads would not make faster, and of several labels a row, the rows are in shards."""

    files: list[tuple[str, Dataset | TextRows]]
    told: dict[str, str | int | None]
    form: str

    def blocks(self) -> Iterator[Block]:
        """All rows in their order, with their labels as numbers; errors as of ``TextRows.pieces``."""
        for _, rows in self.files:
            if isinstance(rows, TextRows):
                rows.differ = True  # a value each, so that nothing is begun again
                yield from (made.block for made in rows.pieces(0, 0, DIFFER) if made is not None)
            else:
                for block in rows.blocks():
                    codes = block.labels
                    yield block if rows.classes is None else block._replace(labels=rows.classes[codes.astype(np.int64)])

    def lists(self) -> list[str]:
        """Files of shards of several labels a row, in the order of the rows; none where there is one label."""
        made = [rows for _, rows in self.files if isinstance(rows, Dataset) and rows.sets is not None]
        return [path for rows in made for path in rows.files]


@contextlib.contextmanager
def in_order(model: Model, data: Any, memory: float | str) -> Iterator[Stored | Texts]:
    """``data`` as it is, or files of sparse text as ``Texts``, of which shards are there as long as they are needed."""
    if not (form := text_format(model, data)):
        yield data
        return
    told: dict[str, Any] = {"format": form, **_as_numbered(model, form)}
    made: list[tuple[str, Dataset | TextRows]] = []
    room, reader = _room(memory), readers.find(form, COLUMNS)
    with files.scratch() as scratch:
        with naming_format(model, data, form):
            several = have_several_labels(data, form, model.multilabel)
            for number, path in enumerate(files.expand(data)):
                if reader.example and not several:
                    base, bits = told.get("index_base"), told["hash_bits"]
                    options = parsing_options(reader, form, base, None, bits)._replace(unlabelled=True)
                    made.append((path, TextRows(look_at(path, number), reader, options, max(room // 8, PIECE))))
                    continue
                out = files.join(scratch, f"{number:05d}")
                found = convert(path, out, shuffle=False, memory=room, several_labels=several, **told)
                made.append((path, _made_of(found, path)))
        yield Texts(made, told, form)


def explain_at(
    model: Model, data: Stored, number: int, *, top: int = 20, only: object = None, names: NamesGiven | None = None
) -> RowAnswer:
    """``explain_row`` of row ``number`` of shards or raw files, counted from 0 in their order, with its label (None:
    there is none); ValueError: there is no such row."""
    features, values, label = _row_at(model, data, number)
    told = explain_row(model, (features, values), top=top, only=only, names=names)
    return {"row": number, "label": label, **told}


def _row_at(model: Model, data: Stored, number: int) -> tuple[np.ndarray, np.ndarray, object]:
    with in_order(model, data, "1GB") as rows:
        if isinstance(rows, Texts) and (several := rows.lists()):
            return stored_row(several, number)
        if isinstance(rows, Texts):
            return row_of_blocks(rows.blocks(), number)
        if model.is_raw(data):
            return row_of_blocks((block for _, block in model.raw_blocks(data)), number)
        found = as_trained(data, model.columns, need_labels=False)
        require_same_columns(model, found)
        return stored_row(found, number)


def _tell_ignored(made: list[Dataset]) -> None:
    """Say once that the text has what nothing is made of."""
    if any(QUERIES_IGNORED in dataset.warnings for dataset in made):
        log.warning("%s", QUERIES_IGNORED)


def left_out(data: object, rows: Any) -> tuple[int, str]:
    """How many bad rows of ``data`` are not in ``rows``, which ``as_shards`` made of them, and why."""
    report = {} if rows is data else rows.report
    return report.get("bad_rows", 0), report.get("left_out", "")


def labels_of_table(model: Model, table: object) -> np.ndarray | list[list[str]]:
    """The labels that stand in a table of raw columns.

    Raises
    ------
    SchemaError : the model does not know their column, or it is missing. DataError : naming the row of a bad one.
    """
    spec = model.finisher.spec
    if spec.label is None:
        raise SchemaError("the model does not know the label's column: evaluate(model, table, y)")
    spec = dataclasses.replace(spec, terms=(), weight=None)
    columns, n_rows = values.as_columns(table)
    tally, found = _extracted(spec, columns, n_rows, known_labels(model))
    return labels_as_said(spec, tally, found.labels, known_labels(model))


def _extracted(
    spec: Spec, columns: Mapping[str, object], n_rows: int, known: list[object] | None, label: bool = True
) -> tuple[Tally, Extracted]:
    """The rows of a table, whose labels are held against those ``known``; DataError naming the first that is bad."""
    for words in (known is None or coded(known), False):
        tally = Tally(spec)
        found = extract(spec, columns, n_rows, tally, label=label, words=words)
        if not tally.words or coded(found.labels.tolist()):
            break
    if found.bad:
        row, reason = min(found.bad.items())
        raise DataError(reason, row=row)
    return tally, found
