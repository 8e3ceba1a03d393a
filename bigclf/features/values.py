"""Raw columns as Arrow arrays of any type, as numbers, categories, texts, dates or labels; what is bad is named."""

from __future__ import annotations

import datetime
import functools
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf.errors import SchemaError
from bigclf.features.arrow import FLOAT32_MAX, as_numpy
from bigclf.features.truths import WORDS
from bigclf.units import near

if TYPE_CHECKING:
    import pyarrow as pa

Bad = dict[int, str]  # row -> what is wrong with it
DAY = 86_400_000_000  # microseconds


class Names(NamedTuple):
    """Texts one after another: uint8 and where each begins, int64 [n+1]."""

    text: np.ndarray
    bounds: np.ndarray

    def name(self, i: int) -> bytes:
        return self.text[self.bounds[i] : self.bounds[i + 1]].tobytes()

    def some(self, places: np.ndarray) -> list[bytes]:
        """The names at these places."""
        whole = self.text.tobytes()
        pairs = zip(self.bounds[places].tolist(), self.bounds[places + 1].tolist(), strict=True)
        return [whole[a:b] for a, b in pairs]


class Categories(NamedTuple):
    """A column of categories: each row's place among the distinct ones, -1 where it is missing; and their names."""

    codes: np.ndarray
    names: Names


# A table from memory


def as_columns(table: object) -> tuple[dict[str, pa.Array], int]:
    """Columns by name, and the number of rows, of a pandas or Polars frame, an Arrow table or a table of sequences.

    Raises
    ------
    SchemaError : a column that holds values of several kinds.
    """
    import pyarrow as pa

    data: Any = table
    if hasattr(data, "to_arrow"):
        data = data.to_arrow()
    if isinstance(data, pa.RecordBatch | pa.Table):
        pairs = [(str(name), data.column(name)) for name in data.column_names]
    elif hasattr(data, "iloc"):
        pairs = [(str(name), data.iloc[:, k]) for k, name in enumerate(data.columns)]
    else:
        pairs = [(str(name), column) for name, column in data.items()]
        if single := [name for name, value in pairs if not hasattr(value, "__len__") or isinstance(value, str)]:
            raise SchemaError("one value where a column of them is meant: [value]", column=single[0])
    if twice := next((name for name, count in Counter(name for name, _ in pairs).items() if count > 1), None):
        raise SchemaError("two columns have this name", column=twice)
    found = {name: _array(name, column) for name, column in pairs}
    lengths = {len(array) for array in found.values()}
    if len(lengths) > 1:
        raise SchemaError(f"the columns have different lengths: {sorted(lengths)}")
    return found, lengths.pop() if lengths else 0


def _array(name: str, column: object) -> pa.Array:
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        return joined(column)
    if isinstance(column, pa.Array):
        return column
    try:
        found = pa.array(column, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(f"values of several kinds: {' '.join(str(error).split())}", column=name) from None
    except OverflowError:
        raise SchemaError("an integer has more than 64 bits; write such as text, or as floats", column=name) from None
    return joined(found) if isinstance(found, pa.ChunkedArray) else found


def joined(column: pa.ChunkedArray) -> pa.Array:
    """One array of a column in chunks."""
    import pyarrow as pa

    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def is_table(data: object) -> bool:
    """Whether ``data`` has columns with names."""
    if isinstance(data, Mapping):
        return not hasattr(data, "tocsr")  # of scipy's matrices one is a mapping
    return hasattr(data, "to_arrow") or (hasattr(data, "column_names") and hasattr(data, "schema")) or (
        hasattr(data, "iloc") and hasattr(data, "columns")
    )  # fmt: skip


def apart(of: object, name: str) -> tuple[object, object]:
    """The table without a column, and that column.

    Raises
    ------
    SchemaError : it is not there.
    """
    table: Any = of
    names = list(table.column_names if hasattr(table, "column_names") else getattr(table, "columns", table))
    require(dict.fromkeys(names), name)
    if hasattr(table, "iloc"):
        return table.drop(columns=[name]), table[name]
    if hasattr(table, "drop_columns"):
        return table.drop_columns([name]), table.column(name)
    if isinstance(table, Mapping):
        return {other: column for other, column in table.items() if other != name}, table[name]
    return table.drop(name), table[name]


def n_rows_of(of: object) -> int:
    """How many rows a table has."""
    table: Any = of
    if isinstance(table, Mapping):
        return max((len(column) for column in table.values()), default=0)
    return int(
        table.shape[0] if hasattr(table, "iloc") else table.num_rows if hasattr(table, "num_rows") else len(table)
    )


def rows_at(of: object, rows: np.ndarray) -> object:
    """The rows of a table at these places: of pandas, Arrow or columns by name; Arrow of whatever gives that."""
    import pyarrow as pa

    table: Any = of
    if hasattr(table, "iloc"):
        return table.iloc[rows]
    if isinstance(table, Mapping):
        return {name: column.take(pa.array(rows)) for name, column in as_columns(table)[0].items()}
    return (table.to_arrow() if hasattr(table, "to_arrow") else table).take(pa.array(rows))


# Texts


def as_text(array: pa.Array, name: str) -> pa.LargeStringArray:
    """The column as text, nulls as they are: whole floats without a fraction, dates by ISO 8601.

    Raises
    ------
    SchemaError : a column of lists, structs or bytes.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_floating(kind):
        numbers = array.to_pylist()
        return pa.array([None if v is None or v != v else number_text(v) for v in numbers], pa.large_string())
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise SchemaError(f"a column of {kind} is neither text nor numbers", column=name)
    try:
        return pc.cast(array, pa.large_string())
    except pa.ArrowException as error:
        raise SchemaError(f"cannot be read as text: {error}", column=name) from None


def number_text(value: float) -> str:
    """A number as a category is named: a whole one without a fraction."""
    return str(int(value)) if math.isfinite(value) and value == int(value) and abs(value) < 2**53 else repr(value)


def is_texts(column: pa.Array) -> bool:
    """Whether a column is texts, as those of CSV are."""
    import pyarrow as pa

    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def trimmed(text: pa.Array) -> pa.Array:
    """Without white space at the ends."""
    import pyarrow.compute as pc

    return pc.ascii_trim_whitespace(text)


def missing(text: pa.Array, values: tuple[str, ...]) -> np.ndarray:
    """bool [m]: null, or one of the texts that mean it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.is_in(text, value_set=pa.array(values, pa.large_string()), skip_nulls=True)
    return as_numpy(found) | as_numpy(pc.is_null(text))


def names_of(text: pa.Array) -> Names:
    """The bytes of a text column without nulls."""
    _, offsets, data = text.buffers()
    if offsets is None or not len(text):
        return Names(np.empty(0, np.uint8), np.zeros(len(text) + 1, np.int64))
    bounds = np.frombuffer(offsets, np.int64, len(text) + 1, 8 * text.offset)
    raw = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return Names(raw[bounds[0] : bounds[-1]].copy(), bounds - bounds[0])


def categories(text: pa.Array, values: tuple[str, ...], lowercase: bool = False) -> Categories:
    """The distinct texts, trimmed (and in small letters), and each row's place among them."""
    import pyarrow.compute as pc

    encoded = pc.dictionary_encode(text)
    codes = as_numpy(pc.fill_null(encoded.indices, -1)).astype(np.int64)
    distinct = trimmed(encoded.dictionary)
    absent = missing(distinct, values)
    distinct = pc.fill_null(distinct, "")
    if absent.any():
        codes = np.where(np.append(absent, True)[codes], -1, codes)
    if lowercase:
        encoded = pc.dictionary_encode(pc.utf8_lower(distinct))
        codes = np.append(as_numpy(encoded.indices), -1)[codes]
        distinct = encoded.dictionary
    return Categories(codes, names_of(distinct))


def crossed(texts: list[pa.Array], values: tuple[str, ...]) -> pa.Array:
    """The texts of several columns with "&" between them; what is missing is empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = []
    for text in texts:
        text = trimmed(text)
        absent = missing(text, values)
        parts.append(pc.if_else(pa.array(absent), pa.scalar("", pa.large_string()), text))
    return pc.binary_join_element_wise(*parts, pa.scalar("&", pa.large_string()))


# Numbers

COMMA = r"^[+-]?[\d. ]*\d,\d+$"
HINTS = {
    ".": 'write it with a decimal point and no other separators, or say that decimals have a comma (decimal: "," in'
    " the reader of a spec, --decimal ,)",
    ",": 'decimals have a comma here; leave out what parts thousands, or say that they have a point (decimal: "." in'
    " the reader of a spec, --decimal .)",
}
MARKS = {".": "a point", ",": "a comma"}
HINTED = {".": re.compile(COMMA), ",": re.compile(r"^[+-]?[\d. ]*\d([.,]\d+)+$")}


def numbers(
    array: pa.Array,
    name: str,
    values: tuple[str, ...],
    bad: Bad,
    decimal: str = ".",
    written: str = "plain",
    truths: bool = False,
) -> np.ndarray:
    """float64 [m], NaN where missing; what is no number, or none that a shard could hold, is added to ``bad``.

    Parameters
    ----------
    decimal : what stands before the decimals of numbers that are text, "." or ",".
    written : "plain", or "grouped" as people write amounts (``ungrouped``).
    truths : a column of nothing but true and false is 1 and 0, as one of bools is.
    """
    import pyarrow as pa

    plain = _plain_type(array)
    if plain is not None:
        found = _floats(plain)
    else:
        text = trimmed(as_text(array, name))
        absent = missing(text, values)
        cells = _without(text, absent)
        cells = _with_points(ungrouped(cells, decimal) if written == "grouped" else cells, decimal)
        try:
            found = _floats(cells)
            strange = np.isnan(found) & ~absent
        except pa.ArrowInvalid:
            found, strange = _slow_numbers(cells)
        if truths and strange.any() and (strange | absent).all():
            found, strange = _as_truths(text, absent, found, strange)
        for row in np.flatnonzero(strange).tolist():
            value = text[row].as_py()
            bad.setdefault(row, f"column {name}: {_shown(value)} is not a number{_hint(value, decimal, written)}")
    for row in np.flatnonzero(np.abs(found) > FLOAT32_MAX).tolist():
        bad.setdefault(row, f"column {name}: {found[row]:g} is beyond the range of float32 ({FLOAT32_MAX:.3g})")
    return found


def words_of_truth(column: pa.Array, name: str, values: tuple[str, ...]) -> tuple[np.ndarray, pa.Array]:
    """bool [m], where a cell says true or false in words or is a bool; and the column with 1 and 0 in their place."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (is_texts(pa.nulls(0, kind)) or pa.types.is_boolean(kind)):
        return np.zeros(len(column), bool), column
    text = trimmed(as_text(column, name))
    yes, no = (as_numpy(pc.is_in(text, value_set=pa.array(words, text.type))) for words in WORDS)
    there = (yes | no) & ~missing(text, values)
    if not there.any():
        return there, column
    digits = pa.array(np.where(yes, "1", "0").tolist(), text.type)
    return there, pc.if_else(pa.array(there), digits, text)


def _as_truths(
    text: pa.Array, absent: np.ndarray, found: np.ndarray, strange: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """1 and 0 where all that is there is a truth in some spelling; otherwise what was ``found``, and is ``strange``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    yes, no = (as_numpy(pc.is_in(text, value_set=pa.array(words, text.type))) for words in WORDS)
    if not (yes | no | absent).all():
        return found, strange
    return np.where(absent, np.nan, yes.astype(np.float64)), np.zeros_like(strange)


AN_ISO_DATE = (
    "an ISO 8601 date (YYYY-MM-DD); `format:` of the date in the spec that a model is trained with reads others, as "
    "`bigclf inspect FILE --suggest` proposes it"
)


def _hint(value: str, decimal: str, written: str) -> str:
    """What to do about a number that is written in another way than its column is read."""
    other = "." if decimal == "," else ","
    if written == "plain" and re.match(grouped(decimal), value):
        return (
            "; if numbers are written like this, add `written: grouped` to the column in the spec (for one to begin "
            "with: `bigclf inspect FILE --suggest > spec.yaml`, then --spec spec.yaml)"
        )
    if HINTED[decimal].match(value):
        return f"; {HINTS[decimal]}"
    if not re.match(grouped(other), value):
        return ""
    beside = ", and written: grouped beside the column" if written == "plain" else ""
    return f'; its decimals have {MARKS[other]}: --decimal {other} (decimal: "{other}" in the reader of a spec{beside})'


def numbers_together(arrays: list[pa.Array], values: tuple[str, ...], decimal: str = ".") -> np.ndarray | None:
    """float64 [k, m] of k columns as ``numbers`` has each, with a few calls for all of a type; None where one of them
    has to be looked at by itself: something is bad, or written so that Arrow does not read it."""
    import pyarrow as pa

    found = np.empty((len(arrays), len(arrays[0])))
    places: dict[Any, list[int]] = {}
    for k, array in enumerate(arrays):
        places.setdefault(array.type, []).append(k)
    try:
        for some in places.values():
            cells = pa.concat_arrays([arrays[k] for k in some]) if len(some) > 1 else arrays[some[0]]
            found[some] = _all_numbers(cells, values, decimal).reshape(len(some), -1)
    except (pa.ArrowException, SchemaError, _Strange):
        return None
    return None if (np.abs(found) > FLOAT32_MAX).any() else found


class _Strange(Exception):
    """A cell is no number."""


def _all_numbers(array: pa.Array, values: tuple[str, ...], decimal: str) -> np.ndarray:
    plain = _plain_type(array)
    if plain is not None:
        return _floats(plain)
    text = trimmed(as_text(array, ""))
    absent = missing(text, values)
    found = _floats(_with_points(_without(text, absent), decimal))
    if (np.isnan(found) & ~absent).any():
        raise _Strange
    return found


def _plain_type(array: pa.Array) -> pa.Array | None:
    """The column where it is of numbers or bools, not of text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_boolean(array.type):
        array = pc.cast(array, pa.uint8())
    kind = array.type
    return array if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind) else None


def _floats(array: pa.Array) -> np.ndarray:
    """float64 [m], NaN where null; ArrowInvalid of a text that is no number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return as_numpy(pc.fill_null(pc.cast(array, pa.float64(), safe=False), np.nan)).copy()


def _without(text: pa.Array, absent: np.ndarray) -> pa.Array:
    """The text with nulls where it is missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(pa.array(absent), pa.scalar(None, pa.large_string()), text) if absent.any() else text


def _with_points(text: pa.Array, decimal: str) -> pa.Array:
    """Numbers with a point before their decimals; what held one where they have a comma is no number, "?" is none."""
    import pyarrow.compute as pc

    if decimal == ".":
        return text
    return pc.replace_substring(pc.replace_substring(text, ".", "?"), ",", ".")


OF_ONE = r"([$€£¥₹₩₽₺₪฿₫₴₦%]|[A-Z]{3}|kr|zł|Kč)"  # signs before or behind an amount
GAPS = " '\u00a0\u202f\u2019"  # between groups of three digits, beside point or comma


@functools.cache
def grouped(decimal: str) -> str:
    """The pattern of amounts, for Arrow and for Python: groups of three digits or none, a sign of what they are of
    before or behind, and in brackets where they are negative."""
    comma = "." if decimal == "," else ","
    groups = "|".join(rf"([{gap}]\d{{3}})+" for gap in (comma, *GAPS))
    amount = rf"(\d+|[1-9]\d{{0,2}}({groups}))([{decimal}]\d+)?"
    gap = "[\\s\u00a0\u202f]?"
    signed = rf"[+-]?{gap}({OF_ONE}{gap})?[+-]?{amount}({gap}{OF_ONE})?"
    return rf"^({signed}|\({signed}\))$"


def ungrouped(text: pa.Array, decimal: str) -> pa.Array:
    """Amounts as plain numbers, with the same mark before decimals; what is none stays as it is."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.match_substring_regex(text, grouped(decimal))
    bare = pc.replace_substring_regex(text, rf"[^0-9{decimal}-]", "")
    bare = pc.replace_substring_regex(bare, rf"[{decimal}]+$", "")
    signs = pc.if_else(pc.starts_with(text, "("), pa.scalar("-", text.type), pa.scalar("", text.type))
    return pc.if_else(found, pc.binary_join_element_wise(signs, bare, pa.scalar("", text.type)), text)


def _slow_numbers(text: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Numbers one by one as Python reads them, and which texts are none."""
    found, strange = np.full(len(text), np.nan), np.zeros(len(text), bool)
    for row, value in enumerate(text.to_pylist()):
        if value is None:
            continue
        try:
            found[row] = float(value.replace("_", "?"))
            strange[row] = found[row] != found[row]
        except ValueError:
            strange[row] = True
    return found, strange


def _shown(text: str) -> str:
    """Text from a file, safe and short enough for a message."""
    return repr(text[:40]) + ("..." if len(text) > 40 else "")


# Dates


def days(array: pa.Array, name: str, form: str | None, values: tuple[str, ...], bad: Bad) -> np.ndarray:
    """Microseconds since 1970 as int64 [m], the least where missing; what is no date is added to ``bad``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    least = np.iinfo(np.int64).min
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_temporal(array.type) and not pa.types.is_time(array.type):  # a time of day is no day
        stamps = pc.cast(array, pa.timestamp("us", array.type.tz if pa.types.is_timestamp(array.type) else None),
                         safe=False)  # fmt: skip
        return as_numpy(pc.fill_null(pc.cast(stamps, pa.int64()), least)).copy()
    text = trimmed(as_text(array, name))
    absent = missing(text, values)
    if form is None:
        try:
            empty = pa.scalar(None, pa.large_string())
            stamps = pc.cast(pc.cast(pc.if_else(pa.array(absent), empty, text), pa.string()), pa.timestamp("us"))
            return as_numpy(pc.fill_null(pc.cast(stamps, pa.int64()), least)).copy()
        except pa.ArrowInvalid:
            pass
    found = np.full(len(text), least, np.int64)
    read: Callable[[str], datetime.datetime] = datetime.datetime.fromisoformat
    if form is not None:

        def read(value: str) -> datetime.datetime:
            return datetime.datetime.strptime(value, form)

    for row, value in enumerate(text.to_pylist()):
        if absent[row]:
            continue
        try:
            found[row] = _micro(read(value))
        except (ValueError, OverflowError):
            bad.setdefault(row, f"column {name}: {_shown(value)} is not {form or AN_ISO_DATE}")
    return found


def _micro(when: datetime.datetime) -> int:
    when = when if when.tzinfo else when.replace(tzinfo=datetime.UTC)
    return (when - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1)


def date_part(stamps: np.ndarray, part: str) -> np.ndarray:
    """A part of dates, float64: days since 1970, the year, or from 0 the month, day, weekday (Monday 0) or hour."""
    whole = stamps // DAY
    if part == "time":
        return np.asarray(stamps / DAY, np.float64)
    if part == "weekday":
        return np.asarray((whole + 3) % 7, np.float64)
    if part == "hour":
        return np.asarray(stamps % DAY // (DAY // 24), np.float64)
    dates = whole.astype("datetime64[D]")
    months = dates.astype("datetime64[M]")
    if part == "day":
        return (dates - months).astype(np.float64)
    return (months.astype(np.int64) % 12 if part == "month" else months.astype(np.int64) // 12 + 1970).astype(
        np.float64
    )


# Labels

SHOWN_COLUMNS, MOST_LACKING = 20, 10


class LackingColumns(SchemaError):
    """Columns that are wanted are not there."""


def require_all(
    wanted: Iterable[str],
    known: Iterable[str],
    labels: Collection[str] = (),
    *,
    what: str = "table",
    path: str | None = None,
) -> None:
    """Refuse a table, or a file of the ``path``, that lacks columns.

    Raises
    ------
    SchemaError : naming them; ``labels`` : which of them hold the labels.
    """
    known = dict.fromkeys(known)
    lacking = [name for name in wanted if name not in known]
    if not lacking:
        return
    known = list(known)
    shown = (", ".join(known[:SHOWN_COLUMNS]) + ", ..." * (len(known) > SHOWN_COLUMNS)) or "none"
    if len(known) == 1 and path is not None:
        shown, hint = f"one, {known[0]!r}", _separated(lacking[0], known[0])
    else:
        hint = near(lacking[0], known) if len(lacking) == 1 else ""
    if path is not None and {"indices", "values"} <= set(known):
        hint = (
            "; these are shards already, whose features are made: leave out --spec and the like (in Python features=)"
        )
    if len(lacking) == 1:
        own = " (it should hold the labels)" if lacking[0] in labels else ""
        raise LackingColumns(
            f"there is no such column{own}; the {what} has {shown}{hint}", file=path, column=lacking[0]
        )
    names = [f"{name!r} (the labels)" if name in labels else repr(name) for name in lacking[:MOST_LACKING]]
    more = f" and {len(lacking) - MOST_LACKING:,} more" * (len(lacking) > MOST_LACKING)
    raise LackingColumns(f"the columns {', '.join(names)}{more} are missing; the {what} has {shown}{hint}", file=path)


def _separated(name: str, header: str) -> str:
    """What may be wrong where a header is one name: another separator, or lines before the table."""
    for separator in (";", "\t", "|", ","):
        if name in (part.strip(" \"'") for part in header.split(separator)):
            return f"; its names have {separator!r} between them: --separator {separator!r} reads them"
    return "; where lines stand before the table, say how many: --skip-lines"


def require(columns: Mapping[str, object], name: str) -> Any:
    """The column ``name``.

    Raises
    ------
    SchemaError : if there is none.
    """
    require_all([name], columns)
    return columns[name]
