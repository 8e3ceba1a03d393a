"""Raw tables and texts, a bounded piece at a time as columns: CSV, JSON lines, labelled text, documents, Parquet.

Each reader yields ``Batch``es whose cut depends on the file alone. pyarrow and the standard library do the reading; a
block that pyarrow refuses is halved until it is short enough to be read line by line, which says what is wrong where.
"""

from __future__ import annotations

import array
import collections
import contextlib
import csv
import dataclasses
import fnmatch
import functools
import io
import itertools
import json
import re
import sys
import tarfile
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, TypeAlias, TypedDict, TypeGuard, overload

import numpy as np

from bigclf import files
from bigclf.conversion.text import pieces
from bigclf.conversion.text.pieces import BOM, Source, Task
from bigclf.data import shards
from bigclf.errors import DataError, SchemaError, StoreError
from bigclf.features.values import joined, number_text
from bigclf.files.formats import BY_ENDING, COLUMNS, DEFAULT
from bigclf.files.json_fields import FLAG, Field, FieldError, check_fields, optional, whole
from bigclf.files.json_fields import text as some_text
from bigclf.limits import memory_limit
from bigclf.units import format_bytes

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

QUOTED_PART = 4  # what a quote may enclose, as a part of the longest line: read slowly it takes ten times its bytes
SLOW_BYTES = 16_384  # text this short is read line by line when the fast reader refuses it
ROWS_AT_A_TIME = 2**14  # of a Parquet table
CELLS_AT_A_TIME = 2**16  # of JSON, through Arrow
CELLS = 2**24  # of JSON, that are held at a time
MOST_COLUMNS = 2**16 - 1  # as many as a spec has terms
TOO_WIDE = (
    f"the rows up to this one have more than {MOST_COLUMNS:,} different keys; raw columns as many as these are better "
    "given as sparse rows, such as svmlight"
)
ROW_GROUP_ROWS = 2**pieces.ROW_BITS
JSON_ROOM = 16  # Python's objects take so many times the bytes of their text
NEWLINE = b"\n"
LINE = re.compile(rb"[^\r\n]+")
WITH_END = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # in the name of a directory
MODEL = ".bigclf"  # behind the names of models
LOOKED_AT = 5  # directories of a class each
MEMBER: Final = "member"  # of a directory or an archive, that a document is
LINES = {"csv", "tsv"}  # a row a line, in fields
DECIMALS = {*LINES, "parquet"}  # whose numbers may be text
NAME_IT = "name the encoding: --encoding latin-1 (in a spec, `encoding: latin-1` under `reader`)"
NUL = "a NUL byte, which no text has; is the file binary, or in UTF-16?"


@dataclass(frozen=True)
class Reading:
    """How raw files are read (``reader`` in a spec).

    Attributes
    ----------
    format : csv, tsv, jsonl, text or parquet.
    separator : between fields of csv and tsv, and between label and text of text lines.
    header : whether the first line names the columns; without, they are named 0, 1, 2 ... or by ``names``.
    skip_lines : lines of a csv or tsv before the header (or the first row), such as a title.
    quote : what encloses fields that hold separators; "" for none.
    decimal : what stands before the decimals of numbers that are text: "." or ",".
    multiline : whether quoted fields may hold line breaks; such a file is cut by one process.
    encoding : of text that is not UTF-8, by Python's name.
    label_from : of documents, what says their class: the "directory" they lie in or the "file" they stand in.
    between : of documents, the marks before and after each text in a file; None: a file is a text.
    """

    format: str = "csv"
    separator: str = ","
    header: bool = True
    names: tuple[str, ...] | None = None
    skip_lines: int = 0
    quote: str = '"'
    decimal: str = "."
    multiline: bool = False
    encoding: str = "utf-8"
    label_from: str = "directory"
    between: tuple[str, str] | None = None

    def as_json(self) -> dict[str, object]:
        """What differs from the defaults, and the format."""
        told = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        default = reading({"format": self.format})
        kept = {n: v for n, v in told.items() if n == "format" or v != getattr(default, n)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()}


NAMED = Field(lambda value: isinstance(value, list | tuple) and all(isinstance(name, str | int) for name in value),
              "a list of names")  # fmt: skip
READER = {
    **{name: optional(some_text()) for name in ("format", "separator", "quote", "decimal", "encoding", "label_from")},
    "header": optional(FLAG),
    "multiline": optional(FLAG),
    "names": optional(NAMED),
    "between": optional(NAMED._replace(expected="a list of two texts")),
    "skip_lines": optional(whole(0, 2**31)),
}


def reading(told: Mapping[str, Any]) -> Reading:
    """Options of a reader, checked.

    Raises
    ------
    SchemaError : naming the option.
    """
    fields = {f.name for f in dataclasses.fields(Reading)}
    if unknown := sorted(set(told) - fields):
        raise SchemaError(f"unknown option {unknown[0]!r} of the reader; allowed options: {', '.join(sorted(fields))}")
    told = {name: value for name, value in told.items() if value is not None}
    try:
        check_fields(told, READER)
    except FieldError as error:
        raise SchemaError(f"of the reader, {error}") from None
    form = told.get("format", "csv")
    if form not in COLUMNS:
        raise SchemaError(f"format must be one of {', '.join(COLUMNS)}, not {form!r}")
    tabs = {"separator": "\t"} if form in ("tsv", "text") else {}
    made = Reading(**{**tabs, **told})  # type: ignore[arg-type]
    if made.names is not None:
        made = dataclasses.replace(made, names=tuple(map(str, made.names)))
    if made.between is not None:
        made = dataclasses.replace(made, between=tuple(map(str, made.between)))  # type: ignore[arg-type]
    if len(made.separator.encode()) != 1 or len(made.quote.encode()) > 1 or made.separator in "\r\n":
        raise SchemaError("separator and quote must be one byte each (quote may be empty)")
    if made.between is not None and len(made.between) != 2:
        raise SchemaError("between must be the mark before and the mark after a text")
    if made.label_from not in ("directory", "file"):
        raise SchemaError(f"label_from must be directory or file, not {made.label_from!r}")
    if made.skip_lines and form not in ("csv", "tsv"):
        raise SchemaError(f"skip_lines has no effect with format {form}, only with csv, tsv")
    if made.decimal not in (".", ","):
        raise SchemaError(f"decimal must be '.' or ',', not {made.decimal!r}")
    if made.decimal == "," and form not in DECIMALS:
        raise SchemaError(f"decimal has no effect with format {form}, only with csv, tsv, parquet")
    _check_encoding(made.encoding)
    return made


def _check_encoding(name: str) -> None:
    try:
        plain = "a\n".encode(name) == b"a\n"
    except LookupError:
        raise SchemaError(f"encoding {name!r} is not known") from None
    if not plain:
        raise SchemaError(f"in encoding {name!r} lines cannot be found; write the file as UTF-8")


class At(TypedDict, total=False):
    """Where a row stands, as ``DataError`` takes it."""

    line: int
    row_group: int
    row: int
    member: str  # of an archive


class Bad(NamedTuple):
    """A row that cannot be used: its place as ``DataError`` takes it (a line counts from 1 in its task), the reason,
    and what stands there."""

    place: At
    reason: str
    text: bytes


class BadLines:
    """Text that is no row: where each begins and what is wrong with it, few bytes each, however many they are."""

    def __init__(self) -> None:
        self.offsets, self._codes = array.array("q"), array.array("q")
        self._reasons: dict[str, int] = {}

    def add(self, offset: int, reason: str) -> None:
        self.offsets.append(offset)
        self._codes.append(self._reasons.setdefault(reason, len(self._reasons)))

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[tuple[int, str]]:
        reasons = list(self._reasons)
        return ((offset, reasons[code]) for offset, code in zip(self.offsets, self._codes, strict=True))


class LocatedLines(Sequence[Bad]):
    """The same as they are told, each made when it is asked for."""

    def __init__(self, lines: BadLines, told: Callable[[int, str], Bad]) -> None:
        self._lines, self._told = lines, told

    def __len__(self) -> int:
        return len(self._lines)

    def __iter__(self) -> Iterator[Bad]:
        return itertools.starmap(self._told, self._lines)

    @overload
    def __getitem__(self, k: int) -> Bad: ...

    @overload
    def __getitem__(self, k: slice) -> Sequence[Bad]: ...

    def __getitem__(self, k: int | slice) -> Bad | Sequence[Bad]:
        stop = k.stop if isinstance(k, slice) else k + 1
        return list(itertools.islice(self, stop if stop and stop > 0 else None))[k]


class Batch(NamedTuple):
    """Rows as Arrow columns by name, the rows left out as bad, and where a row stands and what it is."""

    columns: dict[str, Any]
    n_rows: int
    bad: Sequence[Bad]
    where: Callable[[int], tuple[At, bytes]]
    n_bytes: int
    n_lines: int = 0


class Table(NamedTuple):
    """Rows of some text; ``offsets``: where each begins in ``text``, None: a row a line that is not empty, or that
    begins inside no ``quote``."""

    text: bytes
    columns: dict[str, Any]
    n_rows: int
    bad: BadLines | tuple[()]
    offsets: np.ndarray | None = None
    quote: bytes = b""

    def placed(self) -> Table:
        """The same with the rows' offsets known."""
        if self.offsets is not None:
            return self
        starts = np.array([line.start() for line in LINE.finditer(self.text)], np.int64)
        if self.quote and starts.size > self.n_rows:
            quotes = np.flatnonzero(np.frombuffer(self.text, np.uint8) == ord(self.quote))
            starts = starts[np.searchsorted(quotes, starts) % 2 == 0]
        return self._replace(offsets=starts)

    def offset(self, row: int) -> int:
        return int(self.placed().offsets[row])  # type: ignore[index]

    def line_from(self, offset: int) -> bytes:
        """What stands from there to the end of the line."""
        end = self.text.find(b"\n", offset)
        return self.text[offset : end if end >= 0 else len(self.text)].rstrip(b"\r")


# Sources


Keys: TypeAlias = dict[str, str | None]  # columns and their values that directories name


class Place(NamedTuple):
    """A source as it was named: a path, what of it is meant (behind a #): members of an archive, a part of JSON; and
    the columns that the names of directories on the way to it give all its rows, (name, value or None)."""

    path: str
    part: str
    keys: tuple[tuple[str, str | None], ...] = ()


def places(data: object, wanted: Sequence[str] = ()) -> list[Place]:
    """The files that ``data`` names; DataError where there are none.

    Directories named ``column=value`` give columns: those below a directory that is named, and of files, globs and
    lists those whose values differ, or that are ``wanted``.
    """
    named = list(data) if isinstance(data, Iterable) and not isinstance(data, str | bytes) else [data]
    found, above = list[Place](), list[Keys]()
    for name in files.without_ours(map(str, named)):
        if name.endswith(MODEL):
            raise DataError("expected data, got a model file", file=name)
        path, mark, part = name.rpartition("#")
        if mark and not files.exists(name) and (files.exists(path) or "*" in path):
            more = [Place(one, part) for one in files.expand(path)]
        elif files.is_directory(name) and (not _has_files(name) or _has_classes(name)):
            more = _partitions(name) or [Place(name, "")]
        else:
            more = [Place(one, "") for one in files.expand(name)]
        found += more
        above += [_keys_of(name.split("/") if place.keys else place.path.split("/")[:-1]) for place in more]
    if not any(above):
        return found
    there = collections.Counter(key for keys in above for key in keys)
    values = {key: {keys.get(key) for keys in above} for key in there}
    kept = {key for key, count in there.items() if key in wanted or (count == len(found) and len(values[key]) > 1)}
    return [place._replace(keys=tuple({**{key: value for key, value in keys.items() if key in kept},
                                       **dict(place.keys)}.items()))
            for place, keys in zip(found, above, strict=True)]  # fmt: skip


def _keys_of(steps: Iterable[str]) -> Keys:
    """The columns that steps of a path named ``column=value`` give."""
    pairs = (urllib.parse.unquote(step).partition("=") for step in steps)
    return {key: None if value == NO_VALUE else value for key, mark, value in pairs if key and mark}


def _partitions(directory: str) -> list[Place]:
    """The files of a table in directories named ``column=value``, as Hive, Spark and Dask write it; else none."""
    names = [name for name in files.list_directory(directory) if name[:1] not in "_."]
    if not names or not all("=" in name for name in names):
        return []
    found = []
    for name, path in sorted(files.walk(directory)):
        *above, last = name.split("/")
        if last[:1] not in "_.":
            found.append(Place(path, "", tuple(_keys_of(above).items())))
    return found


def is_partitioned(data: object) -> bool:
    """Whether ``data`` is a table that is cut by the values of columns, which directories name."""
    return any(place.keys for place in places(data))


def _has_files(directory: str) -> bool:
    names = [name for name in files.list_directory(directory) if name[:1] not in "_."]
    return any(not files.is_directory(files.join(directory, name)) for name in names)


def format_by_name(path: str) -> str | None:
    """The format that a file's name tells, compressed or not; None where it tells none."""
    *_, last, compression = ("", "", *path.partition("#")[0].lower().split("."))
    return BY_ENDING.get(compression) or BY_ENDING.get(last)  # rows.csv, rows.csv.gz


def named_as_table(path: str) -> bool:
    """Whether a file's name tells that it is a raw table."""
    return format_by_name(path) in COLUMNS


def format_by_look(path: str) -> str | None:
    """The format that a file's name tells, else "svmlight" where it is text; "text" of a directory of classes; None of
    Parquet, of other directories, and of what is no text."""
    if files.is_directory(path):
        return "text" if _has_classes(path) else None
    if path.endswith(".parquet"):
        return None
    with opened(path) as file:
        start = file.read(512)
    if start.startswith(b"PAR1") or b"\0" in start:
        return None
    return format_by_name(path) or DEFAULT


def _has_classes(directory: str) -> bool:
    """Whether it holds directories, two or more, each named as a class and first of all with a text in it: no more
    files beside them than there are directories, and none of a format."""
    names = [name for name in files.list_directory(directory) if name[:1] not in "_."]
    below = [path for name in names if files.is_directory(path := files.join(directory, name))]
    beside = [name for name in names if files.join(directory, name) not in below]
    if any("=" in name for name in names) or len(beside) > len(below) or any(map(_has_format, beside)):
        return False
    n_classes = 0
    for one in below[: 2 * LOOKED_AT]:
        name, first = next(iter(files.walk(one)), ("", ""))
        if not name or n_classes == LOOKED_AT:
            continue  # a directory without files
        n_classes += 1
        if "/" in name or _has_format(first):
            return False
        with opened(first) as file:
            start = file.read(512)
        if start.startswith(b"PAR1") or b"\0" in start:
            return False
    return n_classes >= 2


def _has_format(path: str) -> bool:
    """Whether a file's name tells a format other than that of text."""
    return (_parquet_by_name(path) or format_by_name(path)) not in (None, "text")


def format_of(data: object) -> str | None:
    """The format of raw columns that the names of all files tell, a Parquet file's too; None where they tell none.

    Raises
    ------
    SchemaError : they tell several.
    """
    told = {_parquet_by_name(place.path) or format_by_name(place.path) for place in places(data)}
    if len(told) > 1:
        named = ", ".join(sorted(f"{form}" for form in told if form in COLUMNS))
        named += ", and others" * (not {*told} <= {*COLUMNS})
        raise SchemaError(f"not all files are of one format by their names ({named}): read those of each format "
                          "apart, or say what all are (--format)")  # fmt: skip
    (form,) = told
    return form if form in COLUMNS else None


def refuse_several(data: object) -> None:
    """SchemaError where the names of files tell several formats, one of them a table's."""
    told = {_parquet_by_name(place.path) or format_by_name(place.path) for place in places(data)}
    if len(told - {None}) > 1 and told & {*COLUMNS}:
        format_of(data)


def as_named(
    reader: Mapping[str, object], data: object, wanted: Sequence[str], said: Mapping[str, object]
) -> Mapping[str, object]:
    """The reader of the files ``data``, for a model that learned by ``reader``: by their names, where these tell
    another format and the first file does not have the columns ``wanted`` by ``reader``. What was ``said`` stays.

    Raises
    ------
    SchemaError : the names tell several formats.
    """
    found = places(data, wanted)
    own, first = str(reader.get("format", "csv")), found[0]
    told = {form for place in found if (form := format_by_name(place.path) or _parquet_by_name(place.path)) in COLUMNS}
    if "format" in said or files.is_directory(first.path) or told == {own}:
        return {**reader, **said}
    if len(told) > 1:
        format_of(data)
    form = min(told) if told else "parquet" if is_parquet(first.path) else own
    fits = form == own or _fits(first, reading({**reader, **said}), wanted)
    return {**reader, **said} if fits else {**in_format(reader, form), **said}


def in_format(reader: Mapping[str, object], form: str) -> dict[str, object]:
    """A reader for another format: what stands before decimals stays, and between csv and tsv all but the separator."""
    own = reader.get("format", "csv")
    if form == own:
        return dict(reader)
    lines = {form, own} <= LINES
    kept = {name: value for name, value in reader.items()
            if name != "separator" and (lines or (name == "decimal" and form in DECIMALS))}  # fmt: skip
    return {**kept, "format": form}


def _parquet_by_name(path: str) -> str | None:
    return "parquet" if path.endswith(".parquet") else None


def is_parquet(path: str) -> bool:
    """Whether a file begins as Parquet does."""
    with files.open_binary(path) as file:
        return bool(file.read(4) == b"PAR1")


def _fits(place: Place, how: Reading, wanted: Sequence[str]) -> bool:
    """Whether the file has the columns ``wanted`` when it is read so."""
    if is_parquet(place.path) or how.format == "parquet":
        return is_parquet(place.path) and how.format == "parquet"
    with opened(place.path) as file, decompressing(place.path):
        objects = file.read(4096).removeprefix(BOM).lstrip()[:1] in (b"{", b"[")
    if how.format == "jsonl" or objects:
        return objects and how.format == "jsonl"
    try:
        return {*wanted} <= {*header_names(place, how)}
    except (DataError, SchemaError):
        return False


def look_at(place: Place, number: int, how: Reading) -> Source:
    """The source at ``place``; ``compressed`` means that this process cuts it, for whatever reason."""
    if files.is_directory(place.path):
        return Source(place.path, number, True, *files.status(place.path))
    if how.format == "parquet":
        size, mtime_ns = files.status(place.path)
        return Source(place.path, number, False, size, mtime_ns)
    source = pieces.look_at(place.path, number)
    whole = how.multiline or bool(place.part) or is_documents(place.path, how)
    whole = whole or (how.format == "jsonl" and _is_json_list(place.path))
    return source._replace(compressed=source.compressed or whole)


def state_of(path: str) -> list[object]:
    """What tells whether a file, or any below a directory, has changed."""
    if not files.is_directory(path):
        return [*files.status(path)]
    return [(name, *files.status(inner)) for name, inner in files.walk(path)]


def opened(path: str) -> BinaryIO:
    """The bytes of a file, decompressed."""
    file = files.open_binary(path)
    start = file.read(6)
    file.seek(0)
    opener = next((opener for mark, opener in pieces.COMPRESSIONS.items() if start.startswith(mark)), None)
    return io.BufferedReader(opener(file, "rb"), 2**20) if opener else file


def are_raw(data: object, first: Place | None = None) -> TypeGuard[files.Paths]:
    """Whether the files that ``data`` names hold raw columns: they are no Parquet, or Parquet without lists of
    features. ``first`` : the first of them, where it is known."""
    place = first or places(data)[0]
    if files.is_directory(place.path):
        return True
    with files.open_binary(place.path) as file:
        if file.read(4) != b"PAR1":
            return True
    with shards.open_parquet(place.path) as parquet:
        schema = parquet.schema_arrow
    return not any(shards.has_column(schema, indices) for indices, _ in shards.LIST_NAMES)


# Tasks


class TableJob(NamedTuple):
    """What all tasks share: how to read, the columns wanted (None: all), and of each source its columns' names and the
    columns that are kept though nothing is made of them."""

    how: Reading
    wanted: tuple[str, ...] | None
    names: list[tuple[str, ...]]
    places: list[Place]
    max_line: int
    kept: Sequence[tuple[str, ...]] = ()

    def wanted_of(self, source: Source) -> tuple[str, ...] | None:
        """The columns to read of a source; None: all."""
        return self.wanted if self.wanted is None else (*self.wanted, *self.kept_of(source))

    def kept_of(self, source: Source) -> tuple[str, ...]:
        return self.kept[source.number] if self.kept else ()


def tasks_of(job: TableJob, source: Source, pieces_a_task: int) -> Iterator[Task]:
    """Tasks over all of a source, cut where its content says."""
    how, place = job.how, job.places[source.number]
    if how.format == "parquet":
        with shards.open_parquet(source.path) as file:
            groups = file.metadata.num_row_groups
        yield from (Task(source, g, g + 1, None) for g in range(groups))
    elif is_documents(source.path, how):
        yield from _grouped(source, _document_pieces(place, how), 1)
    elif how.format == "jsonl" and (place.part or _is_json_list(source.path)):
        yield from _grouped(source, _json_pieces(place), pieces_a_task)
    elif how.multiline:
        yield from _grouped(source, _record_pieces(source, how, job.max_line), pieces_a_task)
    else:
        yield from pieces.tasks_of(source, pieces_a_task, job.max_line)


def _grouped(source: Source, texts: Iterator[tuple[int, Any]], pieces_a_task: int) -> Iterator[Task]:
    while group := list(itertools.islice(texts, pieces_a_task)):
        yield Task(source, group[0][0], group[-1][0] + 1, group)


def _record_pieces(source: Source, how: Reading, max_line: int) -> Iterator[tuple[int, bytes]]:
    """(piece, whole records), about ``pieces.BLOCK`` bytes each."""
    n_lines, most = 0, max_line // QUOTED_PART
    with opened(source.path) as stream, decompressing(source.path):
        whole_lines = pieces.Records(stream, b"", max_line, source.path)
        for piece in itertools.count():
            text = whole_lines.read(pieces.BLOCK)
            if not text:
                return
            if how.quote and how.quote.encode() in text:
                text += _rest_of_record(whole_lines, text, how, most, n_lines)
            n_lines += text.count(NEWLINE)
            yield piece, text


def _rest_of_record(lines: pieces.Records, text: bytes, how: Reading, most: int, n_lines: int) -> bytes:
    """The lines after ``text`` that its last record goes on in, in one buffer: lines held one by one take many times
    their bytes where they are short. A quote inside a field opens nothing. ``n_lines`` : lines before ``text``.

    Raises
    ------
    DataError : ``most`` bytes after the quote it is not closed, with the line where it opens.
    """
    opened_at, more = _left_open(text, how), bytearray()
    if opened_at is None:
        return b""
    while len(text) - opened_at + len(more) < most:
        more += (line := lines.line())
        if not line or _left_open(line, how, inside=True) is None:
            return bytes(more)
    raise DataError(f"a quote that opens here is not closed within {most:,} bytes; close it, allow more memory, or say "
                    "that fields have no quotes (quote: \"\" in the reader of a spec)",
                    file=lines.path, line=n_lines + 1 + text.count(b"\n", 0, opened_at))  # fmt: skip


def _left_open(text: bytes, how: Reading, inside: bool = False) -> int | None:
    """Where the quote stands that is open at the end of a text which begins with a record, or ``inside`` quotes (then
    -1 is that quote); None: all are closed."""
    quote, opened_at, at = how.quote.encode(), -1, 0
    opens = re.compile(b"(?:^|[\r\n" + re.escape(how.separator.encode()) + b"])" + re.escape(quote))
    while True:
        while inside:
            at = text.find(quote, at)
            if at < 0:
                return opened_at
            inside = text.startswith(quote, at + 1)  # two stand for one
            at += 2 if inside else 1
        found = opens.search(text, at)
        if found is None:
            return None
        at, inside = found.end(), True
        opened_at = at - 1


@contextlib.contextmanager
def decompressing(path: str) -> Iterator[None]:
    """Turn what decompression raises into a DataError with the file."""
    import lzma
    import zlib

    try:
        yield
    except (EOFError, OSError, zlib.error, lzma.LZMAError, tarfile.TarError) as error:
        if isinstance(error, StoreError) or isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(f"cannot be decompressed ({error}); copy the file again", file=path) from error


def is_documents(path: str, how: Reading) -> bool:
    """Whether the source is a tree or an archive of documents."""
    return how.format == "text" and (how.between is not None or files.is_directory(path) or is_archive(path))


@functools.cache
def is_archive(path: str) -> bool:
    """Whether the file is a tar archive, compressed or not."""
    if files.is_directory(path):
        return False
    try:
        with opened(path) as file:
            return bool(file.read(512)[257:262] == b"ustar")
    except (OSError, EOFError, DataError):
        return False


def _document_pieces(place: Place, how: Reading) -> Iterator[tuple[int, list[tuple[str, str, bytes]]]]:
    """(piece, [(member, label, text)]), about ``pieces.BLOCK`` bytes at a time."""
    held, size, piece = list[tuple[str, str, bytes]](), 0, 0
    with decompressing(place.path):
        for member, label, text in _documents(place, how):
            held.append((member, label, text))
            size += len(text)
            if size >= pieces.BLOCK or len(held) >= ROWS_AT_A_TIME:
                yield piece, held
                held, size, piece = [], 0, piece + 1
    if held:
        yield piece, held


def _documents(place: Place, how: Reading) -> Iterator[tuple[str, str, bytes]]:
    for member, data in _members(place, how):
        folder, _, name = member.rpartition("/")
        stem = name.partition(".")[0]
        label = stem if how.label_from == "file" else folder.rpartition("/")[2]
        if how.between is None:
            yield member, label, data
        else:
            before, after = (mark.encode() for mark in how.between)
            for k, part in enumerate(data.split(before)[1:]):
                yield f"{member}, text {k + 1}", label, part.partition(after)[0]


def _members(place: Place, how: Reading) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the files of a tree or an archive that the pattern behind the # matches, or that one file;
    where directories are classes, files beside them, such as a README, are of none."""
    if files.is_directory(place.path):
        within = [files.join(place.path, name) for name in files.list_directory(place.path)]
        of_classes = how.label_from == "directory" and any(map(files.is_directory, within))
        for name, path in files.walk(place.path):
            if _matches(name, place.part) and not (of_classes and "/" not in name):
                yield name, files.read_bytes(path)
    elif is_archive(place.path):
        with opened(place.path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for entry in archive:
                if entry.isfile() and _matches(entry.name, place.part):
                    content = archive.extractfile(entry)
                    yield entry.name, content.read() if content else b""
    else:
        with opened(place.path) as stream:
            yield files.base_name(place.path), stream.read()


def _matches(name: str, pattern: str) -> bool:
    """Whether the name, or a directory on the way to it, matches; everything does where there is no pattern."""
    if not pattern:
        return True
    steps, wanted = name.strip("./").split("/"), pattern.strip("/").split("/")
    return len(steps) >= len(wanted) and all(map(fnmatch.fnmatchcase, steps, wanted))


def _is_json_list(path: str) -> bool:
    with opened(path) as file, decompressing(path):
        return bool(file.read(4096).removeprefix(BOM).lstrip()[:1] == b"[")


def _json_pieces(place: Place) -> Iterator[tuple[int, bytes]]:
    """(piece, lines of JSON) of a list in a file, read as a whole."""
    rows, held, size, piece = _json_part(place), list[bytes](), 0, 0
    for row in rows:
        held.append(json.dumps(row).encode() + b"\n")
        size += len(held[-1])
        if size >= pieces.BLOCK:
            yield piece, b"".join(held)
            held, size, piece = [], 0, piece + 1
    if held:
        yield piece, b"".join(held)


def _json_part(place: Place) -> list[object]:
    """The list that a JSON pointer (RFC 6901) leads to."""
    room, which = memory_limit()
    with opened(place.path) as file, decompressing(place.path):
        text = file.read(room // JSON_ROOM + 1)
        if len(text) > room // JSON_ROOM:
            raise DataError(f"JSON of more than {format_bytes(room // JSON_ROOM)} that is no JSON Lines is read as a"
                            f" whole, and takes more memory than {which} has ({format_bytes(room)}); write one row a"
                            " line", file=place.path)  # fmt: skip
        try:
            found = json.loads(text.removeprefix(BOM))
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"not readable as JSON: {error}", file=place.path, line=getattr(error, "lineno", None)
            ) from None
    for step in place.part.strip("/").split("/") if place.part.strip("/") else []:
        step = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or step not in found:
            there = ", ".join(list(found)[:20]) if isinstance(found, dict) else type(found).__name__
            raise DataError(f"there is no {step!r} behind the #; there is {there}", file=place.path)
        found = found[step]
    if not isinstance(found, list):
        keys = ", ".join(map(str, list(found)[:20])) if isinstance(found, dict) else ""
        hint = (
            f"; name the list behind a #, such as {place.path}#/{keys.split(', ')[0]}; there is {keys}" if keys else ""
        )
        raise DataError(f"JSON, but not a list of rows{hint}", file=place.path)
    return found


# Columns that are kept


def kept_columns(job: TableJob, source: Source, keep: Sequence[str] | None) -> tuple[str, ...]:
    """Columns of a source that are read though nothing is made of them: those of ``keep``, None: all there are.

    Raises
    ------
    DataError : a column of ``keep`` that a file whose columns are known does not have.
    """
    place, used = job.places[source.number], set(job.wanted or ())
    used |= {name.partition(".")[0] for name in used}  # a dot leads into an object
    if keep is not None and (not keep or job.how.format == "jsonl"):
        return tuple(keep)
    known = _json_names(job, source) if job.how.format == "jsonl" else job.names[source.number]
    if is_documents(place.path, job.how):
        known = *known, MEMBER
    if keep is None:
        return tuple(name for name in known if name not in used)
    if missing := [name for name in keep if name not in known]:
        raise DataError(f"there is no column {missing[0]!r} to keep; the file has {', '.join(known)}", file=place.path)
    return tuple(keep)


def _json_names(job: TableJob, source: Source) -> tuple[str, ...]:
    """The names in the first rows of a source, in their order."""
    found: dict[str, None] = {}
    for task in tasks_of(job, source, 1):
        for _, text in pieces.blocks_of(task, job.max_line):
            for line in LINE.finditer(text.removeprefix(BOM)):
                with contextlib.suppress(ValueError, RecursionError):
                    found.update(dict.fromkeys(_json_object(line[0])))
            if found:
                return tuple(found)
    return ()


def no_rows(job: TableJob, source: Source) -> dict[str, object]:
    """The columns of a source without a row."""
    import pyarrow as pa

    types: dict[str, Any] = {}
    if job.how.format == "parquet":
        with shards.open_parquet(source.path) as file:
            types = {field.name: field.type for field in file.schema_arrow}
    names = job.wanted_of(source) or job.names[source.number]
    return {name: pa.array([], types.get(name, pa.large_string())) for name in names}


def size_of(job: TableJob, source: Source) -> tuple[int, int]:
    """Rows, and bytes of text, of a source; 0 where nobody knows before it is read."""
    if files.is_directory(source.path):
        return 0, sum(files.file_size(path) for _, path in files.walk(source.path))
    if job.how.format == "parquet":
        with shards.open_parquet(source.path) as file:
            rows = file.metadata.num_rows
            return rows, sum(file.metadata.row_group(k).total_byte_size for k in range(file.metadata.num_row_groups))
    return 0, 0 if pieces.is_packed(source.path) else source.size


# Batches


def batches(job: TableJob, task: Task) -> Iterator[tuple[int, Batch]]:
    """(piece, rows) of a task, in order."""
    keys = job.places[task.source.number].keys
    wanted = job.wanted_of(task.source)
    for piece, batch in _batches(job, task):
        yield piece, _with_keys(batch, [(name, value) for name, value in keys if wanted is None or name in wanted])


def _with_keys(batch: Batch, keys: Sequence[tuple[str, str | None]]) -> Batch:
    """With columns of one value, where the rows have none of their own that are called so."""
    import pyarrow as pa

    more = {name: pa.repeat(pa.scalar(value, pa.string()), batch.n_rows) for name, value in keys}
    return batch._replace(columns={**more, **batch.columns}) if more else batch


def _batches(job: TableJob, task: Task) -> Iterator[tuple[int, Batch]]:
    if job.how.format == "parquet":
        yield from _parquet_batches(job, task)
    elif is_documents(task.source.path, job.how):
        for piece, documents in task.texts or ():
            yield piece, _documents_batch(documents, job, task)  # type: ignore[arg-type]
    else:
        n_lines, first = 0, task.first == 0
        whole = job.how.multiline and task.texts is not None
        for piece, block in task.texts or () if whole else pieces.blocks_of(task, job.max_line):
            for text in _narrow(block, job):
                yield piece, _text_batch(job, task, text, n_lines, first)
                n_lines, first = n_lines + text.count(NEWLINE), False


def _narrow(text: bytes, job: TableJob) -> Iterator[bytes]:
    """Lines of JSON in groups of so few that their columns, most of them empty in wide rows, take bounded memory."""
    most = CELLS // max(1, len(job.wanted or ()))
    if job.how.format != "jsonl" or text.count(NEWLINE) <= most:
        yield text
        return
    ends = [found.end() for found in itertools.islice(re.finditer(NEWLINE, text), most - 1, None, max(1, most))]
    for first, last in itertools.pairwise([0, *ends, len(text)]):
        if first < last:
            yield text[first:last]


def _text_batch(job: TableJob, task: Task, text: bytes, n_lines: int, first: bool) -> Batch:
    names, keys = job.names[task.source.number], job.places[task.source.number].keys
    names, whole = names[: len(names) - len(keys)], (len(text), text.count(b"\n"))
    if first:
        text = text.removeprefix(BOM)
        end = line_start(text, job.how.skip_lines)
        if job.how.format in ("csv", "tsv") and job.how.header:
            end += _header_end(text[end:], job.how)
        n_lines, text = n_lines + text.count(b"\n", 0, end), text[end:]
    if job.how.encoding.lower().replace("_", "-") not in ("utf-8", "utf8", "ascii"):
        text = text.decode(job.how.encoding, "replace").encode()
    if job.how.format == "jsonl":
        try:
            table = json_rows(text, job.wanted, job.kept_of(task.source))
        except DataError as error:  # of no row alone
            raise DataError(error.message, file=task.source.path, line=n_lines + (error.line or 1)) from None
    else:
        reader = labelled_lines if job.how.format == "text" else csv_rows
        table = reader(text, names, job.wanted_of(task.source), job.how)

    placed = functools.cache(table.placed)
    ends = functools.cache(lambda: np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n")))

    def at(offset: int) -> tuple[At, bytes]:
        return {"line": n_lines + 1 + int(np.searchsorted(ends(), offset))}, table.line_from(offset)

    def where(row: int) -> tuple[At, bytes]:
        return at(placed().offset(row))

    def located_bad(offset: int, reason: str) -> Bad:
        place, found = at(offset)
        return Bad(place, reason, found)

    bad = LocatedLines(table.bad, located_bad) if table.bad else ()
    return Batch(table.columns, table.n_rows, bad, where, *whole)


# CSV


def header_names(place: Place, how: Reading) -> tuple[str, ...]:
    """The names of a source's columns; for formats whose rows name them, none.

    Raises
    ------
    SchemaError : a header with a name twice, or none.
    """
    found, keys = _header_names(place, how), [name for name, _ in place.keys]
    if how.format != "parquet" and (both := [name for name in keys if name in found]):
        raise SchemaError("both the file and its directory's name have this column", file=place.path, column=both[0])
    return *found, *(name for name in keys if found and name not in found)


def _header_names(place: Place, how: Reading) -> tuple[str, ...]:
    if how.format == "parquet":
        with shards.open_parquet(place.path) as file:
            return tuple(file.schema_arrow.names)
    if how.format == "text":
        return "label", "text"
    if how.format == "jsonl":
        return ()
    with opened(place.path) as stream, decompressing(place.path):
        text = stream.read(2**20).removeprefix(BOM)
    if b"\r" in text and b"\n" not in text:
        raise DataError("its lines end in carriage returns alone, as on old Macintoshes; give them line feeds: "
                        "tr '\\r' '\\n' < OLD > NEW", file=place.path)  # fmt: skip
    text = text[line_start(text, how.skip_lines) :]
    try:
        fields = next(csv.reader(io.StringIO(text.decode(how.encoding, "replace"), newline=""), **_dialect(how)), [])
    except csv.Error as error:
        raise DataError(f"the first line cannot be read: {error}", file=place.path, line=how.skip_lines + 1) from None
    if how.names is not None:
        if how.header is False and fields and len(fields) != len(how.names):
            raise SchemaError(f"the first line has {len(fields)} fields for {len(how.names)} names", file=place.path)
        return how.names
    names = tuple(field.strip() for field in fields) if how.header else tuple(str(k) for k in range(len(fields)))
    if how.header and len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        hint = "say that there is no header (--no-header), or give names of your own (--names)"
        if text.lstrip()[:1] in (b"{", b"["):
            hint = "it looks like JSON: --format jsonl"
        raise SchemaError(f"the header has {twice!r} twice; {hint}", file=place.path, line=how.skip_lines + 1)
    return names


def n_fields(line: str, how: Reading) -> int:
    """Into how many fields a line is cut; 0 for one that cannot be read."""
    try:
        return len(next(csv.reader([line], **_dialect(how)), []))
    except csv.Error:
        return 0


def _dialect(how: Reading) -> dict[str, Any]:
    quoting: dict[str, Any] = {"quotechar": how.quote} if how.quote else {"quoting": csv.QUOTE_NONE}
    return {"delimiter": how.separator, **quoting}


def line_start(text: bytes, lines: int) -> int:
    """Where the text goes on after so many lines."""
    place = 0
    for _ in range(lines):
        place = text.find(b"\n", place) + 1 or len(text)
    return place


def _header_end(text: bytes, how: Reading) -> int:
    """Where the first line that is not empty ends (with ``multiline``, the first record)."""
    first = LINE.search(text)
    if first is None:
        return len(text)
    end = first.end()
    quote = how.quote.encode()
    is_open = how.multiline and quote and text.count(quote, first.start(), end) % 2
    while is_open and end < len(text):  # each byte is looked at once
        before, end = end, text.find(b"\n", end + 1)
        end = len(text) if end < 0 else end
        is_open = text.count(quote, before, end) % 2 == 0
    line = text.find(b"\n", end)
    return len(text) if line < 0 else line + 1 if text[end:line] in (b"", b"\r") else end + 1


def csv_rows(text: bytes, names: tuple[str, ...], wanted: tuple[str, ...] | None, how: Reading) -> Table:
    """Rows of whole lines of CSV, every field as text."""
    fast = _csv_fast(text, names, wanted, how)
    if fast is not None:
        return fast
    cut = text.find(b"\n", len(text) // 2) + 1
    if how.multiline or len(text) <= SLOW_BYTES or cut in (0, len(text)):
        return _csv_slowly(text, names, wanted, how)
    return _joined(
        text, [(0, csv_rows(text[:cut], names, wanted, how)), (cut, csv_rows(text[cut:], names, wanted, how))]
    )


def _csv_fast(text: bytes, names: tuple[str, ...], wanted: tuple[str, ...] | None, how: Reading) -> Table | None:
    import pyarrow as pa
    import pyarrow.csv

    kept = [name for name in names if wanted is None or name in wanted]
    quoted = bool(how.quote) and how.quote.encode() in text
    if (quoted and text.count(how.quote.encode()) % 2) or b"\0" in text:
        return None
    if not text.strip(b"\r\n"):
        return Table(text, {name: pa.array([], pa.large_string()) for name in kept}, 0, ())
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(text),
            pyarrow.csv.ReadOptions(use_threads=False, block_size=len(text) + 64, column_names=list(names)),
            pyarrow.csv.ParseOptions(
                delimiter=how.separator, quote_char=how.quote or False, newlines_in_values=how.multiline
            ),
            pyarrow.csv.ConvertOptions(
                column_types={name: pa.large_string() for name in kept}, include_columns=kept, strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid:
        return None
    if quoted and table.num_rows != sum(1 for _ in LINE.finditer(text)) and not (how.multiline and _is_well(text, how)):
        return None  # a quoted line break
    if quoted and _ends_open(text, how):
        return None  # pyarrow takes the end of the text for the quote's
    columns = {name: _one(table.column(k)) for k, name in enumerate(kept)}
    quote = how.quote.encode() if quoted and how.multiline else b""
    return Table(text, columns, table.num_rows, (), quote=quote)


def _ends_open(text: bytes, how: Reading) -> bool:
    """Whether a quote opens on the last line and is not closed: those inside a field are text, and do not count."""
    last = text.rstrip(b"\r\n").rpartition(b"\n")[2].decode(errors="surrogateescape")
    if how.quote not in last:
        return False
    reader = csv.reader(iter([last, ""]), **_dialect(how))
    try:
        next(reader)
    except csv.Error:
        return True
    return reader.line_num > 1


def _is_well(text: bytes, how: Reading) -> bool:
    """Whether each quote that encloses a field closes where the field ends."""
    lines = (line[0].decode(errors="surrogateescape") for line in WITH_END.finditer(text))
    limit = csv.field_size_limit(sys.maxsize)
    try:
        for _ in csv.reader(lines, strict=True, **_dialect(how)):
            pass
    except csv.Error:
        return False
    finally:
        csv.field_size_limit(limit)
    return True


def _one(column: object) -> object:
    return joined(column)


def _csv_slowly(text: bytes, names: tuple[str, ...], wanted: tuple[str, ...] | None, how: Reading) -> Table:
    rows, offsets, bad = list[list[str]](), list[int](), BadLines()
    limit = csv.field_size_limit(sys.maxsize)
    try:
        for offset, fields in _records(text, how):
            if isinstance(fields, str):
                bad.add(offset, fields)
            elif len(fields) != len(names):
                bad.add(offset, f"{len(fields)} fields, not {len(names)}")
            elif any("\0" in field for field in fields):
                bad.add(offset, NUL)
            else:
                rows.append(fields)
                offsets.append(offset)
    finally:
        csv.field_size_limit(limit)
    kept = [k for k, name in enumerate(names) if wanted is None or name in wanted]
    columns = {names[k]: _text_array([row[k] for row in rows]) for k in kept}
    return Table(text, columns, len(rows), bad, np.array(offsets, np.int64))


def _text_array(column: Sequence[str | None]) -> pa.Array:
    import pyarrow as pa

    return pa.array(column, pa.large_string())


def _records(text: bytes, how: Reading) -> Iterator[tuple[int, list[str] | str]]:
    """(where it begins, its fields, or what is wrong with it) for each record."""
    if how.multiline:
        yield from _long_records(text, how)
        return
    for found in LINE.finditer(text):
        try:
            line = found[0].decode()
        except UnicodeDecodeError as error:
            yield found.start(), _not_utf8(error)
            continue
        if not how.quote or how.quote not in line:
            yield found.start(), line.split(how.separator)
            continue
        reader = csv.reader(iter([line, ""]), **_dialect(how))
        try:
            fields = next(reader)
        except csv.Error as error:
            yield found.start(), f"not readable as CSV: {error}"
            continue
        if reader.line_num > 1:
            yield found.start(), "a quote is not closed on its line; if fields may contain line breaks, use --multiline"
        else:
            yield found.start(), fields


def _not_utf8(error: UnicodeDecodeError) -> str:
    return f"byte {error.start + 1} of the line is not UTF-8; {NAME_IT}"


def _long_records(text: bytes, how: Reading) -> Iterator[tuple[int, list[str] | str]]:
    end, at_end = 0, False  # of the lines that the reader has taken: it takes none ahead

    def lines() -> Iterator[str]:
        nonlocal end, at_end
        for line in WITH_END.finditer(text):
            end = line.end()
            yield line[0].decode(errors="surrogateescape")
        at_end = True
        yield ""  # only a record whose quote is open takes it

    reader = csv.reader(lines(), **_dialect(how))
    while True:
        start = end
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield start, f"not readable as CSV: {error}"
            continue
        record = text[start:end]
        if not fields:
            continue
        if record.find(NEWLINE, 0, -1) >= 0 and not _is_well(record, how):
            down = record.count(NEWLINE, 0, -1)
            where = "on the next line" if down == 1 else f"{down} lines further down"
            yield start, f"a quote opened here closes {where}, in the middle of a field"
            continue
        if at_end:
            yield start, "a quote is not closed"
            continue
        try:
            record.decode()
            yield start, fields
        except UnicodeDecodeError as error:
            yield start, _not_utf8(error)


def _joined(text: bytes, parts: list[tuple[int, Table]]) -> Table:
    """Rows of neighbouring pieces of a text, each with the place of its first byte."""
    import pyarrow as pa

    tables = [table for _, table in parts]
    columns = {name: pa.concat_arrays([table.columns[name] for table in tables]) for name in tables[0].columns}
    offsets = [start + _offsets(table) for start, table in parts]
    bad = BadLines()
    for start, table in parts:
        for offset, reason in table.bad:
            bad.add(start + offset, reason)
    return Table(text, columns, sum(table.n_rows for table in tables), bad, np.concatenate(offsets))


def _offsets(table: Table) -> np.ndarray:
    offsets = table.placed().offsets
    assert offsets is not None
    return offsets


# JSON lines


def json_rows(text: bytes, wanted: tuple[str, ...] | None, kept: tuple[str, ...] = ()) -> Table:
    """Rows of lines that are JSON objects (or lists: their columns are 0, 1, 2 ...); a dot leads into an object.

    ``kept`` : columns that become text, whatever they hold.
    """
    rows, offsets, bad, seen = list[dict[str, Any]](), list[int](), BadLines(), dict[str, None]()
    names = None if wanted is None else _Names(frozenset(wanted), [name for name in wanted if "." in name], kept)
    for found in LINE.finditer(text):
        if not found[0].strip():
            continue
        try:
            row = _json_row(found[0], names)
            if wanted is None:
                seen.update(dict.fromkeys(row))
                if len(seen) > MOST_COLUMNS:
                    raise DataError(TOO_WIDE, line=1 + text.count(NEWLINE, 0, found.start()))
                if len(seen) * len(rows) > CELLS:
                    continue  # who wants all columns wants their names, and to see what some rows are like
            rows.append(row)
            offsets.append(found.start())
        except UnicodeDecodeError as error:
            bad.add(found.start(), _not_utf8(error))
        except RecursionError:
            bad.add(found.start(), "its lists and objects lie too deep in one another")
        except ValueError as error:
            bad.add(found.start(), str(error))
    every = [*wanted, *kept] if wanted is not None else seen
    return Table(text, _json_columns(rows, list(dict.fromkeys(every))), len(rows), bad, np.array(offsets, np.int64))


class _Names(NamedTuple):
    """Columns to read, those of them with a dot, and columns that become text as they are."""

    wanted: frozenset[str]
    dotted: list[str]
    kept: tuple[str, ...]


SCALARS = frozenset((float, int, bool, type(None)))  # of JSON, without text


def _json_row(line: bytes, names: _Names | None) -> dict[str, object]:
    """Column -> text, number, bool or None, and what nobody asked for; ValueError saying what is wrong."""
    row = _json_object(line)
    for name in names.dotted if names else ():
        if name not in row:
            row[name] = _inside(row, name)
    if not SCALARS.issuperset(map(type, row.values())):
        for name, value in row.items():
            if type(value) not in SCALARS and (names is None or name in names.wanted):
                _check_cell(name, value)
    for name in names.kept if names else ():
        if names and name not in names.wanted:
            row[name] = _as_said(row.get(name))
    return row


def _check_cell(name: str, value: Any) -> None:
    """ValueError for what is no cell of a table."""
    if isinstance(value, list | dict):
        raise ValueError(f"column {name}: holds a {type(value).__name__}, neither text nor a number")
    if not value.isascii():
        _check_text(value, name)


def _json_object(line: bytes) -> dict[str, object]:
    try:
        row = json.loads(line)
    except UnicodeDecodeError:
        raise
    except ValueError as error:
        raise ValueError(f"not readable as JSON: {error}") from None
    if isinstance(row, list):
        row = {str(k): value for k, value in enumerate(row)}
    if not isinstance(row, dict):
        raise ValueError(f"a row must be a JSON object, not {type(row).__name__}")
    return row


def _as_said(value: object) -> str | None:
    """Text as it is, anything else as JSON."""
    if value is None or (isinstance(value, str) and _is_text(value)):
        return value
    return json.dumps(value)


def _is_text(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in value)


def _check_text(value: str, name: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"column {name}: half of a surrogate pair, which is no text") from None


def _inside(row: object, name: str) -> object:
    for step in name.split("."):
        if not isinstance(row, dict):
            return None
        row = row.get(step)
    return row


FLOAT, WHOLE, BOOL, TEXT = 1, 2, 4, 8  # what a cell is; 0: nothing


class _Kinds(dict[type, int]):
    def __missing__(self, kind: type) -> int:
        return TEXT


class _Places(dict[str, int]):
    """Names and their places; that of any other name is behind the last."""

    def __missing__(self, name: str) -> int:
        return len(self)


KINDS = _Kinds({type(None): 0, float: FLOAT, int: WHOLE, bool: BOOL})


def _json_columns(rows: list[dict[str, object]], names: list[str]) -> dict[str, pa.Array]:
    """The columns of these names: float where what is there are numbers and not all of them whole, bool where all is
    true or false, else text. A call of Arrow for each of 20,000 takes seconds: here those of a type share it."""
    at = _Places({name: k for k, name in enumerate(names)})
    kinds, cells = np.zeros(len(names) + 1, np.uint8), list[tuple[np.ndarray, np.ndarray]]()
    for row in rows:
        places = np.fromiter(map(at.__getitem__, row), np.int64, len(row))
        codes = np.fromiter(map(KINDS.__getitem__, map(type, row.values())), np.uint8, len(row))
        kinds[places] |= codes
        cells.append((places, codes))
    kinds = kinds[:-1]
    floats, bools = np.isin(kinds, (FLOAT, FLOAT | WHOLE)), kinds == BOOL
    found = _json_floats(rows, names, cells, floats)
    for chosen, kind in ((bools, BOOL), (~floats & ~bools, TEXT)):
        some = [names[k] for k in np.flatnonzero(chosen).tolist()]
        step = max(1, CELLS_AT_A_TIME // max(1, len(rows)))
        for first in range(0, len(some), step):
            found |= _json_others(rows, some[first : first + step], kind)
    return {name: found[name] for name in names}


def _json_floats(
    rows: list[dict[str, Any]], names: list[str], cells: list[tuple[np.ndarray, np.ndarray]], floats: np.ndarray
) -> dict[str, pa.Array]:
    """Those columns that are ``floats``; of each row ``cells`` has the places among the names, and what is there."""
    import pyarrow as pa

    floats = np.append(floats, False)
    line = np.cumsum(floats) - 1
    x = np.full((np.count_nonzero(floats), len(rows)), np.nan)
    for i, (row, (places, codes)) in enumerate(zip(rows, cells, strict=True)):
        mine = floats[places] & (codes > 0)
        numbers = list(itertools.compress(row.values(), mine.tolist()))
        try:
            x[line[places[mine]], i] = np.array(numbers, np.float64)
        except OverflowError:
            x[line[places[mine]], i] = [_as_float(value) for value in numbers]
    array = pa.array(x.reshape(-1), from_pandas=True)
    return _cut(array, [name for name, there in zip(names, floats.tolist(), strict=False) if there], len(rows))


def _json_others(rows: list[dict[str, object]], names: list[str], kind: int) -> dict[str, pa.Array]:
    """Columns of bools or texts."""
    import pyarrow as pa

    values = [row.get(name) for name in names for row in rows]
    if kind == BOOL:
        return _cut(pa.array(values, pa.bool_()), names, len(rows))
    return _cut(_text_array([None if value is None else _json_text(value) for value in values]), names, len(rows))


def _cut(array: pa.Array, names: list[str], m: int) -> dict[str, pa.Array]:
    """Columns of m rows that stand one after another."""
    return {name: array.slice(k * m, m) for k, name in enumerate(names)}


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def _json_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if type(value) is int:
        return int.__repr__(value)
    return number_text(value) if isinstance(value, float) else json.dumps(value)


# Text


def labelled_lines(text: bytes, names: tuple[str, ...], wanted: tuple[str, ...] | None, how: Reading) -> Table:
    """Rows of lines of a label, the separator, and text to the end of the line."""
    labels, texts, offsets, bad = list[str](), list[str](), list[int](), BadLines()
    for found in LINE.finditer(text):
        try:
            label, separator, said = found[0].decode().partition(how.separator)
        except UnicodeDecodeError as error:
            bad.add(found.start(), _not_utf8(error))
            continue
        if not separator:
            bad.add(found.start(), f"there is no {how.separator!r} between a label and a text")
            continue
        labels.append(label)
        texts.append(said)
        offsets.append(found.start())
    columns = {"label": _text_array(labels), "text": _text_array(texts)}
    return Table(text, columns, len(labels), bad, np.array(offsets, np.int64))


def _documents_batch(documents: list[tuple[str, str, bytes]], job: TableJob, task: Task) -> Batch:
    how = job.how
    good, bad = list[tuple[str, str, str]](), list[Bad]()
    for member, label, data in documents:
        try:
            good.append((member, label, data.decode(how.encoding)))
        except UnicodeDecodeError as error:
            reason = f"byte {error.start + 1} is not {how.encoding}; {NAME_IT}"
            bad.append(Bad({MEMBER: member}, reason, data[:200]))
    columns = {"label": _text_array([label for _, label, _ in good]), "text": _text_array([text for *_, text in good])}
    if MEMBER in job.kept_of(task.source):
        columns[MEMBER] = _text_array([member for member, *_ in good])

    def where(row: int) -> tuple[At, bytes]:
        return {MEMBER: good[row][0]}, good[row][2][:200].encode()

    return Batch(columns, len(good), bad, where, sum(len(data) for *_, data in documents))


# Parquet


def _parquet_batches(job: TableJob, task: Task) -> Iterator[tuple[int, Batch]]:
    path = task.source.path
    with shards.open_parquet(path) as file:
        names = file.schema_arrow.names
        asked = job.wanted_of(task.source)
        wanted = [name for name in names if asked is None or name in asked]
        for group in range(task.first, task.last):
            meta = file.metadata.row_group(group)
            if meta.num_rows >= ROW_GROUP_ROWS:
                raise DataError(
                    "more than 16 million rows in a row group; write smaller ones", file=path, row_group=group
                )
            first = 0
            with shards.translated(path, group):
                for batch in file.iter_batches(ROWS_AT_A_TIME, [group], columns=wanted, use_threads=False):
                    yield group, _parquet_batch(batch, group, first, meta)
                    first += batch.num_rows


def _parquet_batch(batch: pa.RecordBatch, group: int, first: int, meta: pq.RowGroupMetaData) -> Batch:
    columns = {name: batch.column(k) for k, name in enumerate(batch.schema.names)}

    def where(row: int) -> tuple[At, bytes]:
        told = json.dumps({name: str(column[row].as_py()) for name, column in columns.items()})
        return {"row_group": group, "row": first + row}, told.encode()

    share = meta.total_byte_size * batch.num_rows // max(1, meta.num_rows)
    return Batch(columns, batch.num_rows, [], where, share)
