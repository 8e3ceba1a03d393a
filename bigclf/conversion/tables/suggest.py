"""A spec of features proposed from the beginning of a raw file: what each column looks like, and why."""

from __future__ import annotations

import collections
import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Required, TypeAlias, TypedDict

import numpy as np

from bigclf import files
from bigclf.conversion.tables import reading
from bigclf.conversion.tables.from_columns import count_rows, first_batch, located, note_broken
from bigclf.conversion.tables.reading import Batch, Place, Reading, TableJob
from bigclf.conversion.text.pieces import Source
from bigclf.data import shards, vectors
from bigclf.data.bad_rows import Reasons, skipping
from bigclf.errors import DataError, SchemaError
from bigclf.features import values
from bigclf.features.arrow import FLOAT32_MAX, as_numpy
from bigclf.features.label_cells import is_list, likely_separators
from bigclf.features.spec import MISSING_VALUES, Label, Spec, label_entry, parse
from bigclf.features.values import Bad
from bigclf.units import plural

if TYPE_CHECKING:
    import pyarrow as pa


SEPARATORS = (",", "\t", ";", "|")
LABELS = ("label", "target", "class", "y", "outcome")  # names that say it
FIRST_ROWS = 2**14  # of a table in memory
FEW = 30  # distinct values that a label may well have
MANY, SENTENCES = 1000, 100  # ... from which on they may be texts of few words, of three and more words
SELDOM = 0.5  # the share of different values from which on categories say little of other rows
DAYS = ("%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d")
NAMED_DAYS = ("%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d/%b/%Y", "%b %d, %Y", "%b %d %Y", "%d %B %Y", "%B %d, %Y")
TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
DATES = tuple(day + time for day in (*DAYS, *NAMED_DAYS) for time in TIMES)  # beside ISO 8601
TRIED = 200  # dates that a form is tried on before all are
COUNTED = 20  # whole numbers, each one more than the last, in so many rows or more number the rows
IDS = ("id", "index", "row", "uid")  # names of columns that tell rows apart
NEARLY = 0.95  # the share of numbers from which on what else stands in a column of many values is a mistake
DASH, NO_DATE = "-", "0000-00-00"  # for what is missing in accounts, and in MySQL
ONE_NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?"  # and no date, which a time may follow
SPARSE_ROW = re.compile(rf"\s*{ONE_NUMBER}(,{ONE_NUMBER})*(\s+qid:\d+)?(\s+\d+:{ONE_NUMBER})+\s*(#.*)?")  # of svmlight
BY_KIND = "--numeric, --categorical, --text"
LISTS = "a column of list<"
RARE = 0.01  # the share of rows below which a class is named
SMALL = 10.0  # numbers up to here need no scale of their own where most are 0


def is_label(name: str) -> bool:
    """Whether a column's name says that it is the one to be predicted."""
    return name.lower() in LABELS


def which_label(found: Suggestion, option: str, at_most: int = 3) -> str:
    """The question which column is to be predicted, with those that may be meant: ``option`` is how one is named, such
    as ``--label {}``."""
    few = [column for column in found.columns if 1 < column.distinct <= FEW and column.name != found.label]
    names = [name for name in (found.label, *(column.name for column in reversed(few))) if name is not None]
    meant = " or ".join(option.format(name) for name in names[:at_most])
    return "say which column is to be predicted" + (f": did you mean {meant}?" if meant else ";")


class Column(NamedTuple):
    """What a column looks like: its kind in a spec ("" to leave it out), the options beside, and why."""

    name: str
    kind: str
    options: dict[str, Any]
    why: str
    distinct: int


class Suggestion(NamedTuple):
    """What a look at the beginning of the data says.

    how : to read the file. columns : in their order. label : its column's name, None: the reader's own. n_rows : that
    were looked at. guessed : the label. classes : (value, rows) of a label of few values, most first. lowercase : the
    label's case tells nothing. broken : why lines were left out. in_memory : it is a table. signs : what stands for
    missing values beside the usual ones. joined : what is to be said of labels that a separator seems to stand in.
    file, n_files : whose rows they are, and how many there are. differing : how columns of the others differ. absent :
    those that some lack.
    """

    how: Reading
    columns: list[Column]
    label: str | None
    n_rows: int
    guessed: bool = False  # the label
    classes: tuple[tuple[str, int], ...] = ()
    lowercase: bool = False  # the label's
    said: Label | None = None  # what was said of the label beside a name, in place of ``label``
    broken: Reasons | None = None
    in_memory: bool = False
    signs: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    file: str = ""
    n_files: int = 1
    differing: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def looked_at(self) -> str:
        return rows_seen(self.n_rows, self.file, self.n_files)

    def __str__(self) -> str:
        return as_yaml(self)

    @property
    def left_out(self) -> list[tuple[str, str]]:
        """Columns that nothing is to be learned from, each with the reason in a few words."""
        return [(c.name, in_short(c.why)) for c in self.columns if not c.kind and c.name != self.label]

    def _no_feature(self, most: int = 3) -> str:
        others = [c for c in self.columns if c.name != self.label]
        why = "; ".join(f"{c.name}: {c.why}" for c in others[:most]) + "; ..." * (len(others) > most)
        lists = any(c.why.startswith(LISTS) for c in others)
        way = f", or lists of indices and values: --columns label={self.label},indices=COLUMN,values=COLUMN" * lists
        return f"no column looks like a feature{f' ({why})' * bool(why)}; name them ({BY_KIND}){way}"

    def spec(self) -> Spec:
        """The proposal as it is used.

        Raises
        ------
        SchemaError : if there is no column to learn from.
        """
        entries = [{c.kind: [c.name], **c.options} for c in self.columns if c.kind and c.name != self.label]
        if not entries and self.how.format != "text":
            raise SchemaError(self._no_feature())
        label: object = {"column": self.label, "lowercase": True} if self.lowercase else self.label
        label = label if self.said is None else label_entry(self.said)
        absent = {"missing_values": [*MISSING_VALUES, *self.signs]} if self.signs else {}
        return parse({"label": label, "features": entries, "reader": self.how.as_json(), **absent})


def in_short(why: str) -> str:
    """``just numbers the rows`` of ``600 distinct, 1 to 600: just numbers the rows; 1 cell is ...``."""
    _, _, reason = why.partition(": ") if " distinct" in why else ("", "", why)
    return reason.partition("; ")[0]


def rows_seen(n_rows: int, file: str, n_files: int) -> str:
    """``the first 600 rows``; of several files ``the first 600 rows of a.csv, one of 3 files``."""
    of = f" of {file}, one of {n_files:,} files" if n_files > 1 else ""
    return f"the first {plural(n_rows, 'row')}{of}"


Where: TypeAlias = Callable[[int], tuple[Mapping[str, object], bytes]]  # row -> its place, and its text


def suggest(
    data: object, told: dict[str, Any] | None = None, label: object = None, besides: Sequence[str] = ()
) -> Suggestion:
    """Propose a spec for raw files, or for a table in memory.

    Parameters
    ----------
    data : paths, or what has columns with names; its first rows are looked at.
    told : what is known of the reader's options; the rest is guessed.
    label : the column to predict; None: guessed; or what a spec says of it, as of rows with several labels.
    besides : columns of the label that are not looked at; then there is no ``label``.

    Raises
    ------
    DataError : there are no rows, or none that can be read (with the first line).
    SchemaError : there is no column ``label``.
    """
    if not isinstance(label, str | None):
        own = parse({"label": label}).label
        assert own is not None
        return suggest(data, told, besides=own.columns)._replace(said=own, guessed=False)
    if values.is_table(data):
        return of_table(data, label, told=told, besides=besides)
    found = reading.places(data)
    if "format" not in (told or {}) and len(found) > 1:
        reading.refuse_several(data)
    place = _first_with_rows(found, told)
    how = guessed(place, dict(told or {}))
    batch = _beginning(place, how)
    if batch is not None and batch.bad and how.format in ("csv", "tsv") and "multiline" not in (told or {}):
        across = dataclasses.replace(how, multiline=True)
        again = _beginning(place, across)
        if again is not None and again.n_rows and len(again.bad) < len(batch.bad) / 2:
            how, batch = across, again
    if batch is None:
        raise _no_rows(place, how)
    if how.format == "text":
        return Suggestion(how, [], None, batch.n_rows, broken=_broken(place, batch), file=place.path,
                          n_files=len(found))  # fmt: skip
    batch = _beside(_with_all_keys(batch, found), besides, label)
    if how.format in ("csv", "tsv") and "decimal" not in (told or {}) and _has_decimal_commas(batch.columns):
        how = dataclasses.replace(how, decimal=",")
    proposed = _proposed(how, batch, label, _index(place, how), _broken(place, batch), bool(besides))
    return proposed._replace(file=place.path, n_files=len(found))


def compared(found: Suggestion, data: object, most: int = 1000, told: int = 5) -> Suggestion:
    """With the columns that not all files have, as far as the beginnings of so many files tell."""
    if found.n_files < 2 or found.how.format not in ("csv", "tsv", "parquet"):
        return found
    missing, more, lines = dict[str, list[str]](), dict[str, list[str]](), list[str]()
    own = {column.name for column in found.columns} | {*(found.said.columns if found.said else ())}
    for place in reading.places(data)[:most]:
        try:
            names = {*reading.header_names(place, found.how)}
        except DataError as error:
            lines.append(str(error))
            continue
        for name in sorted(own - names):
            missing.setdefault(name, []).append(place.path)
        for name in sorted(names - own):
            more.setdefault(name, []).append(place.path)
    lines += [f"column {name} is not in {_and_others(paths)}" for name, paths in missing.items()]
    lines += [f"column {name} is left out: it is only in {_and_others(paths)}" for name, paths in more.items()]
    rest = [f"{len(lines) - told:,} more columns are not in all files"] if len(lines) > told else []
    return found._replace(differing=(*lines[:told], *rest), absent=tuple(missing))


def _and_others(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{paths[0]} and {plural(len(paths) - 1, 'other file')}"


def of_table(
    table: object,
    label: str | None,
    apart: bool = False,
    told: Mapping[str, object] | None = None,
    besides: Sequence[str] = (),
) -> Suggestion:
    """The same for a table in memory; ``apart`` : its labels are not among its columns; ``told`` : the decimal mark of
    its texts, where that is known.

    Raises
    ------
    DataError : there are no rows. SchemaError : there is no column ``label``; one of several kinds; another option.
    """
    if others := sorted(set(told or {}) - {"decimal"}):
        raise SchemaError(f"{others[0]} has no effect with a table in memory, which is read already; decimal has one")
    columns, n_rows = values.as_columns(_first_rows(table))
    if not n_rows:
        raise DataError("there are no rows")

    def where(row: int) -> tuple[reading.At, bytes]:
        return {"row": row}, b""

    batch = _beside(
        Batch({name: _whole(column) for name, column in columns.items()}, n_rows, (), where, 0), besides, label
    )
    decimal = (told or {}).get("decimal") or ("," if _has_decimal_commas(batch.columns) else ".")
    how = reading.reading({"format": "parquet", "decimal": decimal})
    return _proposed(how, batch, label, set(), Reasons(), apart or bool(besides))._replace(in_memory=True)


def _beside(batch: Batch, names: Sequence[str], label: str | None) -> Batch:
    """The batch without columns that hold several labels a row, as that of the ``label`` may in lists."""
    values.require_all(names, batch.columns, names)
    if label is not None and is_list(values.require(batch.columns, label)):
        names = [label]
    return batch._replace(columns={name: column for name, column in batch.columns.items() if name not in names})


def _first_rows(of: object) -> object:
    table: Any = of
    if hasattr(table, "iloc"):
        return table.iloc[:FIRST_ROWS]
    if isinstance(table, Mapping):
        return {name: column[:FIRST_ROWS] for name, column in table.items()}
    return (table.slice if hasattr(table, "slice") else table.head)(0, FIRST_ROWS)


def _whole(column: pa.Array) -> pa.Array:
    """Decimal numbers as floats."""
    import pyarrow as pa

    return column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column


def _with_all_keys(batch: Batch, places: Sequence[Place]) -> Batch:
    """With the values that the names of all directories give a column, not those of the first alone."""
    import pyarrow as pa

    more = {}
    for name in dict.fromkeys(name for place in places for name, _ in place.keys):
        there = list(dict.fromkeys(dict(place.keys).get(name) for place in places))
        more[name] = pa.array((there * (batch.n_rows // len(there) + 1))[: batch.n_rows], pa.string())
    return batch._replace(columns=batch.columns | more) if more else batch


def _proposed(
    how: Reading, batch: Batch, label: str | None, index: set[str], broken: Reasons, apart: bool = False
) -> Suggestion:
    plain = plain_numbers(batch.columns, how.decimal)
    others = {name: column for name, column in batch.columns.items() if name not in plain}
    signs = _missing_beside(others, how.decimal)
    if signs:
        others = {name: _without(column, signs) for name, column in others.items()}
        batch, plain = batch._replace(columns=batch.columns | others), plain | plain_numbers(others, how.decimal)
    columns = [Column(name, "", {}, "the data frame's index", 0) if name in index else
               _plain_column(name, plain[name], broken.n) if name in plain else
               looked_at(name, column, how.decimal, batch.where, broken.n)
               for name, column in batch.columns.items()]  # fmt: skip
    chosen = None if apart else label or _label([c for c in columns if c.name not in index] or columns, how)
    few = next((c for c in columns if c.name == chosen and c.distinct <= FEW), None)
    lowercase = few is not None and "lowercase" in few.options
    classes = _classes(batch.columns[few.name], few.name, lowercase) if few is not None else ()
    guessed = label is None
    joined = _joined(chosen, batch.columns[chosen]) if chosen in others else ()
    return Suggestion(how, columns, chosen, batch.n_rows, guessed, classes, lowercase, broken=broken, signs=signs,
                      joined=joined)  # fmt: skip


def _joined(name: str, column: pa.Array) -> tuple[str, ...]:
    """What is to be said of a separator that the labels of a column seem to be joined by."""
    if not values.is_texts(column):
        return ()
    rows = collections.Counter(values.trimmed(column).drop_null().to_pylist())
    rows.pop("", None)
    return tuple(likely_separators(Label(name, type="text"), rows))


def _missing_beside(columns: Mapping[str, pa.Array], decimal: str) -> tuple[str, ...]:
    """What else stands where numbers, amounts or dates are missing: a dash, a date of zeros."""
    import pyarrow.compute as pc

    number, found = f"{WHOLE}|{WITH_POINT}|{values.grouped(decimal)}", dict[str, None]()
    for column in columns.values():
        text = values.trimmed(column) if values.is_texts(column) else None
        for sign, pattern in ((DASH, number), (NO_DATE, LIKE_ISO)):
            if text is None or sign in found or not pc.any(pc.equal(text, sign)).as_py():
                continue
            there = text.filter(pc.not_equal(text, sign))
            if _matches(there, r"\d").any() and _all_match(there, pattern):
                found[sign] = None
    return tuple(found)


def _without(column: pa.Array, signs: Sequence[str]) -> pa.Array:
    """Null in their place."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not values.is_texts(column):
        return column
    gone = pc.is_in(values.trimmed(column), pa.array(signs, column.type))
    return pc.if_else(gone, pa.scalar(None, column.type), column)


def _first_with_rows(found: Sequence[Place], told: Mapping[str, object] | None) -> Place:
    """The first place, or where that is Parquet without a row (Dask writes such), the first of the others that has
    some."""
    return next((place for place in found if not _is_empty_parquet(place, told)), found[0])


def _is_empty_parquet(place: Place, told: Mapping[str, object] | None) -> bool:
    if (told or {}).get("format", "parquet") != "parquet" or files.is_directory(place.path):
        return False
    if not reading.is_parquet(place.path):
        return False
    with shards.open_parquet(place.path) as file:
        return bool(file.metadata.num_rows == 0)


def _beginning(place: Place, how: Reading) -> Batch | None:
    """The first rows of a file."""
    return first_batch(*_look(place, how))


def _no_rows(place: Place, how: Reading) -> DataError:
    """What is to be said of a file without rows: of its first line that is none, if there is one."""
    job, sources = _look(place, how)
    for task in reading.tasks_of(job, sources[0], 1):
        for _, batch in reading.batches(job, task):
            if batch.bad:
                return located(place.path, batch.bad[0])
    return DataError("there are no rows", file=place.path)


def _look(place: Place, how: Reading) -> tuple[TableJob, list[Source]]:
    names = reading.header_names(place, how)
    return TableJob(how, None, [names], [place], 2**24), [reading.look_at(place, 0, how)]


def _index(place: Place, how: Reading) -> set[str]:
    """Columns of a Parquet file that hold the index of a data frame."""
    if how.format != "parquet":
        return set()
    with shards.open_parquet(place.path) as file:
        return vectors.index_columns(file.schema_arrow)


def _broken(place: Place, batch: Batch) -> Reasons:
    """Why lines of the batch could not be read."""
    found = Reasons()
    note_broken(place.path, batch, found)
    return found


def _classes(column: pa.Array, name: str, lowercase: bool) -> tuple[tuple[str, int], ...]:
    """(value, rows) of a column of few, most first."""
    import pyarrow.compute as pc

    text = values.trimmed(values.as_text(column, name))
    text = pc.utf8_lower(text) if lowercase else text
    there = np.flatnonzero(~values.missing(text, MISSING_VALUES))
    counts = collections.Counter(text.take(there).to_pylist())
    return tuple(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


# The file


def guessed(place: Place, told: dict[str, Any]) -> Reading:
    """How the file is read, as far as its name and its beginning tell."""
    if "format" not in told:
        told["format"] = _format(place, told)
    if told["format"] in ("csv", "tsv"):
        lines = _lines(place, told.get("skip_lines") or 0)
        if "separator" not in told and told["format"] == "csv":
            _refuse_sparse(lines, place)
            told["separator"] = _separator(lines)
        how = reading.reading(told)
        _refuse_title(lines, how, place)
        if "header" not in told and "names" not in told:
            how = dataclasses.replace(how, header=_has_header(lines, how))
        return how
    return reading.reading(told)


def _format(place: Place, told: Mapping[str, object]) -> str:
    if files.is_directory(place.path) or reading.is_archive(place.path) or "between" in told:
        return "text"
    with reading.opened(place.path) as file, reading.decompressing(place.path):
        start = file.read(4096)
    if start[:4] == b"PAR1":
        return "parquet"
    if start.removeprefix(reading.BOM).lstrip()[:1] in (b"{", b"["):
        return "jsonl"
    lines = _lines(place)
    tabs = [line.count("\t") for line in lines]
    if lines and all(count >= 1 for count in tabs) and _separator(lines) == "\t":
        labels = {line.partition("\t")[0] for line in lines}
        long = np.mean([len(line.partition("\t")[2].split()) for line in lines])
        if len(labels) <= max(2, len(lines) // 10) and long >= 3 and max(tabs) <= 2:
            return "text"
        return "tsv"
    return "csv"


def _refuse_sparse(lines: list[str], place: Place) -> None:
    """SchemaError where all lines are rows of svmlight."""
    if len(lines) > 1 and all(map(SPARSE_ROW.fullmatch, lines)):
        raise SchemaError("its lines are sparse rows (label index:value ...) and no table: --format svmlight "
                          "(format='svmlight')", file=place.path, line=1)  # fmt: skip


def _refuse_title(lines: list[str], how: Reading, place: Place) -> None:
    """SchemaError where some first lines have fewer fields than all that follow."""
    counts = [reading.n_fields(line, how) for line in lines[:100]]
    title = next((k for k, count in enumerate(counts) if count == counts[-1]), 0)
    if how.skip_lines or how.multiline or not 0 < title <= 20 or len(counts) < title + 2:
        return
    if all(count == counts[-1] for count in counts[title:]) and max(counts[:title]) < counts[-1]:
        raise SchemaError(f"the first line has {plural(counts[0], 'field')}, the table from line {title + 1} on"
                          f" {counts[-1]}; say --skip-lines {title} (in the reader of a spec, skip_lines) to leave out"
                          " what stands before it", file=place.path, line=1)  # fmt: skip


def _lines(place: Place, skip: int = 0) -> list[str]:
    """The first lines of a text behind those to skip, at most 200 of them."""
    with reading.opened(place.path) as file, reading.decompressing(place.path):
        read = file.read(2**18).removeprefix(reading.BOM)
    text = read[reading.line_start(read, skip) :].decode("utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[: 200 if len(text) >= 2**18 else -1] if len(lines) > 1 and not text.endswith("\n") else lines[:200]


def _separator(lines: list[str]) -> str:
    """The one that cuts most lines into equally many fields, more than one, above all the first, which has no decimal
    commas where it names columns. Those inside quotes cut nothing."""
    if not lines:
        return SEPARATORS[0]

    def agreement(separator: str) -> tuple[float, int]:
        how = Reading(separator=separator)
        counts = [max(0, reading.n_fields(line, how) - 1) for line in lines]
        usual = max(set(counts), key=counts.count)
        return (counts.count(usual) / len(counts) + 0.05 * (counts[0] == usual) if usual else 0.0, usual)

    return max([each for each in SEPARATORS if each in lines[0]] or SEPARATORS, key=agreement)


def _has_header(lines: list[str], how: Reading) -> bool:
    """Whether the first line names columns: no number in it, all different, and unlike what stands below."""
    rows = [[field.strip().strip(how.quote or " ") for field in line.split(how.separator)] for line in lines[:50]]
    if not rows or any(not name or _is_number(name) for name in rows[0]):
        return False
    below = [row for row in rows[1:] if len(row) == len(rows[0])]
    numeric = any(all(_is_number(row[k]) for row in below) for k in range(len(rows[0]))) if below else False
    if len(set(rows[0])) < len(rows[0]):
        return numeric  # a name that is there twice, which whoever reads it says
    return numeric or not any(rows[0][k] == row[k] for row in below for k in range(len(rows[0])))


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


# Columns of nothing but numbers, many at a time

AT_ONCE = 2**20  # cells that are looked at together
# as they are written where each number has one text: then there are as many different numbers as texts
PLAIN = r"^(0|-?[1-9]\d{0,14}|-?(0|[1-9]\d{0,6})\.\d{0,7}[1-9])$"


class Numbers(NamedTuple):
    """A column of numbers: float64 [row], NaN where missing; how many there are, how many different ones, the least,
    the greatest, the middle, what 99 % of them do not exceed, and how many are not 0."""

    rows: np.ndarray
    n: int
    distinct: int
    low: float
    high: float
    middle: float
    top: float
    nonzero: int


def plain_numbers(columns: Mapping[str, pa.Array], decimal: str) -> dict[str, Numbers]:
    """Those columns that hold numbers within float32, and nothing else but what is missing, floats or plainly written.

    A hundred calls of Arrow and numpy for each of 20,000 columns of two rows take seconds; here they are shared.
    """
    import pyarrow as pa

    found: dict[str, Numbers] = {}
    kinds = (pa.float64(), pa.large_string()) if decimal == "." else (pa.float64(),)
    for kind in kinds:
        names = [name for name, column in columns.items() if column.type == kind and len(column)]
        step = max(1, AT_ONCE // len(columns[names[0]])) if names else 1
        for start in range(0, len(names), step):
            some = names[start : start + step]
            rows, plain = _cells(pa.concat_arrays([columns[name] for name in some]), len(some))
            found |= {
                some[k]: numbers for k, numbers in zip(np.flatnonzero(plain), summaries(rows[plain]), strict=True)
            }
    return found


def _cells(column: pa.Array, k: int) -> tuple[np.ndarray, np.ndarray]:
    """float64 [k, row] of columns one after another, NaN where missing, and bool [k]: which are of numbers alone."""
    import pyarrow as pa
    import pyarrow.compute as pc

    strange = np.zeros(len(column), bool)
    if column.type == pa.large_string():
        absent = values.missing(column, MISSING_VALUES)
        strange = ~(_like(column, PLAIN) | absent)
        none = pa.scalar(None, pa.large_string())
        column = pc.cast(pc.if_else(pa.array(strange | absent), none, column), pa.float64())
    rows = as_numpy(pc.fill_null(column, np.nan)).reshape(k, -1)
    strange = strange.reshape(k, -1) | (np.abs(rows) > FLOAT32_MAX)
    return rows, ~strange.any(axis=1) & ~np.isnan(rows).all(axis=1)


def summaries(rows: np.ndarray) -> list[Numbers]:
    """What there is to know of each of float64 [k, row], none of which is all NaN."""
    if not len(rows):
        return []
    ascending, all_of = np.sort(rows, axis=1), np.arange(len(rows))  # NaN comes last
    n = np.count_nonzero(~np.isnan(rows), axis=1)
    distinct = 1 + np.count_nonzero(ascending[:, 1:] > ascending[:, :-1], axis=1)
    nonzero = n - np.count_nonzero(rows == 0, axis=1)

    def share(q: float) -> np.ndarray:
        place = q * (n - 1)
        below = np.floor(place).astype(np.int64)
        low, high = ascending[all_of, below], ascending[all_of, np.minimum(below + 1, n - 1)]
        return np.asarray(low + (high - low) * (place - below))

    of_each = (n, distinct, ascending[:, 0], ascending[all_of, n - 1], share(0.5), share(0.99), nonzero)
    told = zip(*(each.tolist() for each in of_each), strict=True)
    return [Numbers(row, *facts) for row, facts in zip(rows, told, strict=True)]


def _plain_column(name: str, numbers: Numbers, gaps: int) -> Column:
    return _number_column(name, numbers, numbers.distinct, _about(numbers.distinct, numbers.rows.size, numbers.n), gaps)


def _about(distinct: int, m: int, there: int) -> str:
    """How many values of ``m`` rows differ, and how many are missing."""
    return f"{distinct:,} distinct" + (f", {100 * (m - there) / m:.1f} % missing" if there < m else "")


# Columns

WHOLE = r"^[+-]?\d+$"
WITH_COMMA, WITH_POINT = r"^[+-]?\d*,\d+([eE][+-]?\d+)?$", r"^[+-]?\d*\.\d+([eE][+-]?\d+)?$"


def _has_decimal_commas(columns: Mapping[str, pa.Array]) -> bool:
    """Whether more columns are numbers, or amounts, with a comma before their decimals than with a point."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def has(text: pa.Array, decimal: str, pattern: str) -> bool:
        """Whether some have decimals behind this mark, and nearly all are such numbers, but not with the other mark."""
        there = bool(pc.any(pc.match_substring_regex(text, rf"\d[{decimal}]\d|{pattern}")).as_py())
        if not there or not _nearly_all_match(text, f"{WHOLE}|{pattern}|{values.grouped(decimal)}"):
            return False
        return not _nearly_all_match(text, f"{WHOLE}|{values.grouped('.' if decimal == ',' else ',')}")

    of_text = [(name, column) for name, column in columns.items() if not pa.types.is_floating(column.type)]
    texts = [values.trimmed(values.as_text(column, name)) for name, column in of_text]
    return sum(has(text, ",", WITH_COMMA) for text in texts) > sum(has(text, ".", WITH_POINT) for text in texts)


def looked_at(name: str, column: pa.Array, decimal: str, where: Where, gaps: int = 0) -> Column:
    """What a column is, by its values; ``decimal`` stands before the decimals of numbers that are text, ``where``
    tells the place of a row, and so many lines (``gaps``) between could not be read."""
    import pyarrow.compute as pc

    try:
        text = values.as_text(column, name)
    except SchemaError as error:
        return Column(name, "", {}, error.message, 0)
    found = values.categories(text, MISSING_VALUES)
    m, distinct = len(column), int(np.unique(found.codes[found.codes >= 0]).size)
    absent = int(np.count_nonzero(found.codes < 0))
    about = _about(distinct, m, m - absent)
    if distinct == 0:
        return Column(name, "", {}, "all missing", distinct)
    bad: Bad = {}
    numbers = values.numbers(column, name, MISSING_VALUES, bad, decimal)
    if not bad and _like_codes(text):
        if _tells_apart(distinct, m - absent, m):
            return Column(name, "", {}, f"{about}: {_a_different('code', distinct, m)}", distinct)
        if _seldom_twice(distinct, m - absent):
            return Column(name, "", {}, f"{about}: {SELDOM_TWICE}", distinct)
        return Column(name, "categorical", {}, f"{about}: codes with leading zeros", distinct)
    if not bad:
        return _number_column(name, summaries(numbers[None])[0], distinct, about, gaps)
    if (dates := _date_column(name, column, text, about, distinct, where)) is not None:
        return dates
    grouped: Bad = {}
    amounts = values.numbers(column, name, MISSING_VALUES, grouped, decimal, "grouped")
    as_amounts = not grouped or (len(grouped) < len(bad) and _mostly(m - absent - len(grouped), m - absent, distinct))
    if as_amounts:
        numbers, bad = amounts, grouped
    if not bad:
        return _amounts(_number_column(name, summaries(numbers[None])[0], distinct, about, gaps))
    mixed = f"{WHOLE}|{values.HINTED[decimal].pattern}"
    mistakes = distinct > FEW and len(bad) <= (1 - NEARLY) * (m - absent)
    with_marks = _all_match(text, mixed) or (not mistakes and _nearly_all_match(text, mixed))
    if not as_amounts and distinct > FEW and with_marks:
        return Column(name, "", {}, f"{about}: {MIXED[decimal]}", distinct)
    if mistakes:
        strange = _strange(bad, "number", where, text)
        there = summaries(np.delete(numbers, list(bad))[None])[0]
        made = _number_column(name, there, there.distinct, about, gaps + len(bad))
        made = _amounts(made) if as_amounts else made
        return made._replace(
            why=f"{made.why}; {strange}: to leave such rows out, use --on-bad-rows skip", distinct=distinct
        )
    words = float(np.mean([len(one.split()) for one in text.slice(0, 1000).to_pylist() if one is not None]))
    if words >= 4 and distinct > (m - absent) / 2 or words >= 2 and _repeats_words(text, distinct, words):
        return Column(name, "text", {"ngrams": [1, 2]}, f"{about}, {words:.0f} words each", distinct)
    if _tells_apart(distinct, m - absent, m):
        return Column(name, "", {}, f"{about}: {_a_different('value', distinct, m)}", distinct)
    if _seldom_twice(distinct, m - absent):
        return Column(name, "", {}, f"{about}: {SELDOM_TWICE}", distinct)
    if n_numbers := m - absent - len(bad):
        about += f"; numbers in {plural(n_numbers, 'cell')}, text in {len(bad):,}"
    trimmed = values.trimmed(text).unique()
    if len(pc.utf8_lower(trimmed).unique()) < len(trimmed):
        return Column(name, "categorical", {"lowercase": True}, f"{about}; some differ only in case", distinct)
    return Column(name, "categorical", {}, about, distinct)


def _repeats_words(text: pa.Array, distinct: int, mean: float) -> bool:
    """Whether many values are made of few words, which then say more than the values; of sentences fewer are many."""
    if distinct <= (SENTENCES if mean >= 3 else MANY):
        return False
    words = {word for one in text.unique().to_pylist() if one is not None for word in one.split()}
    return len(words) < distinct / 2


def _date_column(name: str, column: pa.Array, text: pa.Array, about: str, distinct: int, where: Where) -> Column | None:
    """The column where it is of dates, all or nearly all of one form."""
    import pyarrow as pa

    bad: Bad = {}
    stamps = values.days(column, name, None, MISSING_VALUES, bad)
    if (pa.types.is_temporal(column.type) and not pa.types.is_time(column.type)) or not bad:
        return Column(name, "date", _parts(stamps), about, distinct)
    if form := _date_form(text, name):
        stamps = values.days(column, name, form, MISSING_VALUES, {})
        return Column(name, "date", {"format": form, **_parts(stamps)}, about, distinct)
    if (nearly := _nearly_dates(text, name)) is None:
        return None
    form, none = nearly
    stamps = values.days(text, name, form, MISSING_VALUES, {})
    told = dict[str, object]() if form is None else {"format": form}
    said = f"{_strange(none, 'date', where, text)}: to leave such rows out, use --on-bad-rows skip"
    return Column(name, "date", {**told, **_parts(stamps)}, f"{about}; {said}", distinct)


def _tells_apart(distinct: int, there: int, m: int) -> bool:
    """Whether nearly every row has a value of its own."""
    return distinct > 0.95 * there and m >= 100


def _seldom_twice(distinct: int, there: int) -> bool:
    """Whether there are so many values that few rows tell anything of others."""
    return there >= MANY and distinct > SELDOM * there


def _mostly(n: int, m: int, distinct: int) -> bool:
    """Whether what fails for the others among many different values is a mistake."""
    return distinct > FEW and n >= NEARLY * m


def _amounts(column: Column) -> Column:
    """The same of numbers that are written as amounts."""
    if column.kind != "numeric":
        return column
    return column._replace(options={**column.options, "written": "grouped"}, why=f"{column.why}, written as amounts")


def _like_codes(text: pa.Array) -> bool:
    """Whether numbers are codes: one begins with a zero that says nothing of its size."""
    return bool(_matches(text, r"^0\d+$").any()) and _all_match(text, r"^\d+$")


def _parts(stamps: np.ndarray) -> dict[str, list[str]]:
    """The parts of dates without the hour where all have the same."""
    there = stamps[stamps != np.iinfo(np.int64).min]
    same = not there.size or bool((values.date_part(there, "hour") == values.date_part(there[:1], "hour")).all())
    return {"parts": ["time", "month", "weekday"]} if same else {}


def _strange(bad: Iterable[int], kind: str, where: Where, text: pa.Array) -> str:
    """How many cells are no ``kind``, and the first."""
    rows = sorted(bad)
    said = f"{len(rows):,} cells are not {kind}s" if len(rows) > 1 else f"1 cell is not a {kind}"
    return f"{said}, the first {_at(where, rows[0], text)}"


def _at(where: Where, row: int, text: pa.Array) -> str:
    """Where a cell stands and what it is."""
    place = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in where(row)[0].items())
    return f"in {place}: {json.dumps(text[row].as_py()[:40], ensure_ascii=False)}"


SELDOM_TWICE = "most values occur only once; to use the column, shorten them (e.g. a postcode to its first digits)"
MIXED = {
    ".": 'numbers with a comma; where it stands before decimals say decimal: "," in the reader, else leave it out',
    ",": "numbers with a point, where others have a comma before their decimals",
}


LIKE_DAY = r"\d{1,4}[./-]\d{1,2}[./-]\d{2,4}"
LIKE_NAMED_DAY = r"\d{1,2}[-/ ][A-Za-z]{3,9}[-/ ]\d{2,4}|[A-Za-z]{3,9} \d{1,2},? \d{4}"
LIKE_DATE = rf"^({LIKE_DAY}|{LIKE_NAMED_DAY})( [\d:]+( [AaPp][Mm])?)?$"
LIKE_ISO = r"^\d{4}-\d{2}-\d{2}"


def _nearly_dates(text: pa.Array, name: str) -> tuple[str | None, list[int]] | None:
    """(form, or None for ISO 8601; rows that hold no date) of a column of many dates, in which little else stands."""
    for pattern in (LIKE_DATE, LIKE_ISO):
        if not _nearly_all_match(text, pattern):
            continue
        trimmed = values.trimmed(text)
        like = _like(trimmed, pattern)
        rows = np.flatnonzero(like)
        bad: Bad = {}
        dates = text.take(rows)
        form = _date_form(dates, name) if pattern == LIKE_DATE else None
        values.days(dates, name, form, MISSING_VALUES, bad)
        if len(bad) <= (1 - NEARLY) * rows.size and (not bad or pattern == LIKE_ISO):  # as of 0000-00-00
            other = np.flatnonzero(~like & ~values.missing(trimmed, MISSING_VALUES))
            return form, sorted([*other.tolist(), *rows[list(bad)].tolist()])
    return None


def _date_form(text: pa.Array, name: str) -> str | None:
    """The one form of DATES that all values have; None where there is none, or day and month are not told apart."""
    if not _all_match(text, LIKE_DATE):
        return None

    def fits(some: pa.Array, form: str) -> bool:
        bad: Bad = {}
        values.days(some, name, form, MISSING_VALUES, bad)
        return not bad

    likely = [form for form in DATES if fits(text.slice(0, TRIED), form)]
    fitting = [form for form in likely if fits(text, form)]
    if {"%d %b %Y", "%d %B %Y"} >= {*fitting} or {"%b %d, %Y", "%B %d, %Y"} >= {*fitting}:
        fitting = fitting[:1]  # nothing but May
    return fitting[0] if len(fitting) == 1 else None


def _all_match(text: pa.Array, pattern: str) -> bool:
    """Whether all texts that are not missing look so."""
    return bool(_matches(text, pattern).all())


def _nearly_all_match(text: pa.Array, pattern: str) -> bool:
    """Whether all texts that are not missing look so, or of many different ones nearly all."""
    found = _matches(text, pattern)
    return bool(found.all()) or (found.size > FEW and float(found.mean()) >= NEARLY and len(text.unique()) > FEW)


def _matches(text: pa.Array, pattern: str) -> np.ndarray:
    """bool [n]: which of the texts that are not missing look so."""
    trimmed = values.trimmed(text)
    matched: np.ndarray = _like(trimmed, pattern)[~values.missing(trimmed, MISSING_VALUES)]
    return matched


def _like(trimmed: pa.Array, pattern: str) -> np.ndarray:
    """bool [m]: which of all texts look so."""
    import pyarrow.compute as pc

    return as_numpy(pc.fill_null(pc.match_substring_regex(trimmed, pattern), False))


def _number_column(name: str, numbers: Numbers, distinct: int, about: str, gaps: int) -> Column:
    n, low, high = numbers.n, numbers.low, numbers.high
    about = f"{about}, {low:g} to {high:g}"
    if why := _of_rows(name, numbers, distinct, gaps):
        return Column(name, "", {}, f"{about}: {why}", distinct)
    if distinct == 2 and low == 0:
        return Column(name, "numeric", {"scale": "none"}, about, distinct)
    if low >= 0 and high <= SMALL and numbers.nonzero <= n / (2 if high <= 1 else 100):
        # standardised, rows in which it is not 0 would be far from all others, and no row sparse
        return Column(name, "numeric", {"scale": "none"}, f"{about}, 0 in most rows", distinct)
    if low >= 0 and numbers.top > 10 * max(numbers.middle, 1.0):
        return Column(name, "numeric", {"scale": "log"}, f"{about}, most of them small", distinct)
    return Column(name, "numeric", {}, about, distinct)


def _of_rows(name: str, numbers: Numbers, distinct: int, gaps: int) -> str:
    """How a column tells rows apart, where it does nothing else."""
    if numbers.n < COUNTED or distinct < numbers.n:
        return ""
    there = numbers.rows[~np.isnan(numbers.rows)]
    if not (there == np.rint(there)).all():
        return ""
    if (np.diff(there) >= 1).all() and numbers.high - numbers.low + 1 - numbers.n <= gaps:
        return "just numbers the rows"
    if name.lower() in IDS or name.lower().endswith("_id"):
        return _a_different("value", distinct, len(numbers.rows))
    return ""


def _a_different(what: str, distinct: int, m: int) -> str:
    """... in every one of ``m`` rows, or in nearly every one."""
    return f"a different {what} in {'' if distinct == m else 'nearly '}every row"


def _label(columns: list[Column], how: Reading) -> str | None:
    """The column whose name says that it is the label, else the last with few values, else the first such."""
    named = [c.name for c in columns if c.name.lower() in LABELS]
    few = [c.name for c in columns if 2 <= c.distinct <= FEW]
    last = columns[-1].name
    return named[0] if named else last if last in few or not few else few[0]


# As YAML


def as_yaml(found: Suggestion) -> str:
    """The proposal as text that ``parse`` takes, with a comment on every column."""
    how = found.how.as_json()
    lines = [f"# proposed from {found.looked_at}; correct what is wrong"]
    lines += [f"#   {line}" for line in found.differing]
    if found.broken is not None and found.broken.n:
        held = plural(found.broken.n, "line")
        which = "them" if found.broken.n > 1 else "it"
        lines += [f"# {held} cannot be read (--on-bad-rows skip leaves {which} out):"]
        lines += [f"#   {line}" for line in found.broken.lines()]
    if found.in_memory:
        del how["format"]
    lines += ["reader:"] if how else []
    lines += [f"  {name}: {json.dumps(value)}" for name, value in how.items()]
    if found.how.format == "text":
        return "\n".join([*lines, "features:", "  - text: text", "    ngrams: [1, 2]", ""])
    if found.signs:
        shown = " and ".join(map(json.dumps, found.signs))
        lines += [f"missing_values: {json.dumps([*MISSING_VALUES, *found.signs])}  # the usual ones and {shown}"]
    label = next((c for c in found.columns if c.name == found.label), None)
    guessed = "; guessed; use --label to choose another" * found.guessed
    note = "" if label is None else f"  # {label.distinct:,} distinct{guessed}"
    name = _quoted(found.label or "")
    name = f"{{column: {name}, lowercase: true}}" if found.lowercase else name
    if found.said is not None:
        name, note = json.dumps(_told(found.said), ensure_ascii=False), ""
    lines += [f"label: {name}{note}", *(f"  # {text}" for text in found.joined), *_shares(found, label), "features:"]
    for column in found.columns:
        if column.name == found.label:
            continue
        if not column.kind:
            lines.append(f"  # left out: {_quoted(column.name)}, {column.why}")
            continue
        why, _, more = column.why.partition("; ")
        lines.append(f"  - {column.kind}: {_quoted(column.name)}  # {why}")
        lines += [f"    # {more}"] * bool(more)
        lines += [f"    {name}: {_option(value)}" for name, value in column.options.items()]
    return "\n".join([*lines, ""])


def _told(label: Label) -> object:
    """What a spec says of the label, without what goes without saying."""
    plain = label_entry(Label(label.column))
    told = {name: value for name, value in label_entry(label).items() if name == "column" or value != plain.get(name)}
    return told if len(told) > 1 else told["column"]


class LabelNotes(TypedDict, total=False):
    """What ``notes`` say of a label; ``classes`` (rows of each), ``rare`` and ``missing`` of one of few values."""

    column: Required[str]
    distinct: Required[int]
    guessed: Required[bool]
    classes: dict[str, int]
    rare: list[str]
    missing: int
    joined: list[str]


def _label_notes(found: Suggestion) -> LabelNotes | None:
    label = next((c for c in found.columns if c.name == found.label), None)
    if label is None:
        return None
    told: LabelNotes = {"column": label.name, "distinct": label.distinct, "guessed": found.guessed}
    if found.classes:
        told |= {"classes": dict(found.classes), "rare": _rare(found), "missing": _missing(found)}
    return {**told, "joined": list(found.joined)} if found.joined else told


def notes(found: Suggestion) -> dict[str, object]:
    """What the comments of ``as_yaml`` say, in types that JSON knows: rows that were looked at, of one of so many
    files, and how columns of the others are ``differing``; columns, whether they are used and why; the label's distinct
    values, whether it was guessed, the rows of each class of few, which of them are rare, and rows without; lines that
    cannot be read, and why."""
    told: dict[str, Any] = {"rows": found.n_rows, "files": found.n_files, "columns": [
        {"column": c.name, "used": bool(c.kind), "why": c.why} for c in found.columns if c.name != found.label
    ]}  # fmt: skip
    if (label := _label_notes(found)) is not None:
        told["label"] = label
    if found.differing:
        told["differing"] = list(found.differing)
    if found.broken is not None and found.broken.n:
        told["unreadable"] = {"lines": found.broken.n, "why": found.broken.lines()}
    return told


class LookedAt(TypedDict):
    column: str
    kind: str
    distinct: int
    why: str


class Described(TypedDict):
    """``described``."""

    format: str
    rows: int
    unreadable: int
    why: list[str]
    looked_at: int
    file: str
    files: int
    differing: list[str]
    label: LabelNotes | None
    columns: list[LookedAt]


def described(data: files.Paths, told: Mapping[str, object], label: object = None) -> Described:
    """What raw files are, in types that JSON knows: ``format``, ``rows`` and lines that are ``unreadable`` of all of
    them, and ``why``; ``columns`` with their ``kind`` and number of ``distinct`` values by the rows at the beginning
    that were ``looked_at``, of ``file``, one of so many ``files``, and how columns of the others are ``differing``; of
    a ``label`` that is named what ``notes`` say; errors as ``suggest``."""
    found = compared(suggest(data, dict(told), label), data)
    counted = [c.name for c in found.columns if c.name not in found.absent] or [c.name for c in found.columns]
    own = {} if found.how.format == "text" else {"features": [{"categorical": name} for name in counted[:1]]}
    n_rows, broken = count_rows(data, parse({"features": [], **own, "reader": found.how.as_json()}))
    columns: list[LookedAt] = [
        {"column": c.name, "kind": c.kind, "distinct": c.distinct, "why": c.why} for c in found.columns
    ]
    return {"format": found.how.format, "rows": n_rows, "unreadable": broken.n, "why": broken.lines(),
            "looked_at": found.n_rows, "file": found.file, "files": found.n_files, "differing": list(found.differing),
            "columns": columns, "label": None if label is None else _label_notes(found)}  # fmt: skip


def _rare(found: Suggestion) -> list[str]:
    total = sum(count for _, count in found.classes)
    return [name for name, count in found.classes if count < RARE * total]


def _missing(found: Suggestion) -> int:
    """Rows without a label, of one that has few values."""
    return found.n_rows - sum(count for _, count in found.classes)


def _shares(found: Suggestion, label: Column | None) -> list[str]:
    """Comments on the classes of the label: the share of each, those that are rare, and rows without."""
    total = sum(count for _, count in found.classes)
    said = [f"{_quoted(name)} {_percent(count / total)}" for name, count in found.classes]
    lines = ["  # " + ", ".join(said)] if said else []
    if rare := [_quoted(name) for name in _rare(found)]:
        lines += [f"  # in fewer than 1 % of the rows: {', '.join(rare)}"]
    if found.classes and (missing := _missing(found)):
        which = "them" if missing > 1 else "it"
        options, _ = skipping(missing, found.n_rows, whole=False)
        lines += [f"  # missing in {missing:,} of {plural(found.n_rows, 'row')}: {options} leaves {which} out"]
    return lines


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.001 else f"{100 * share:.2g} %"


def _option(value: object) -> str:
    return value if isinstance(value, str) and value.isidentifier() else json.dumps(value)


def _quoted(name: str) -> str:
    plain = name.isidentifier() and name.lower() not in ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
    return name if plain else json.dumps(name, ensure_ascii=not name.isprintable())
