"""What an exported scorer does with rows of a table, in plain Python and numpy: its text goes into the scorer as it is.

The same features to the bit as ``bigclf.features`` makes of them, whose words these are. It imports nothing of
bigclf, and is written for few rows at a time.
"""

import datetime
import decimal
import functools
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np

BINS, HASHED = 1, 4  # what becomes of a term, where that is to be known
KINDS = ("numeric", "categorical", "text", "date")
PARTS = {"month": 12, "day": 31, "weekday": 7, "hour": 24}  # of dates that are places, and how many they have
BLANK = " \t\n\v\f\r"
MOST = float(np.finfo(np.float32).max)
WORD = 0xFFFFFFFF
TRUTHS: dict[str, tuple[str, ...]] = {
    text: words for words in (("true", "True", "TRUE"), ("false", "False", "FALSE")) for text in words
}
TRUTHS |= {"1": (*TRUTHS["true"], "1"), "0": (*TRUTHS["false"], "0")}


def is_table(X: object) -> bool:
    """Whether X has columns with names, or is rows of them."""
    rows = isinstance(X, list) and bool(X) and isinstance(X[0], Mapping)
    return rows or isinstance(X, (Mapping, Iterator)) or hasattr(X, "to_pydict") or hasattr(X, "iloc")


def records(X: Any) -> Iterator[Mapping[str, object]]:
    """The rows of a table, each a mapping of its columns."""
    if hasattr(X, "to_pydict"):
        X = {name: X.column(k) for k, name in enumerate(X.column_names)}
    elif hasattr(X, "iloc"):
        X = {str(name): X[name] for name in X.columns}
    if not isinstance(X, Mapping):
        yield from X
        return
    columns = [_listed(column) for column in X.values()]
    for values in zip(*columns, strict=True):
        yield dict(zip(X, values, strict=True))


class Term(TypedDict, total=False):
    """What is made of a column, or of several (``cross``)."""

    numeric: str
    categorical: str
    text: str
    date: str
    cross: list[str]
    scale: str
    missing: str
    format: str | None
    parts: list[str]
    lowercase: bool
    written: str
    analyzer: str
    ngrams: tuple[int, int]
    prefix: str | None
    sublinear: bool
    tfidf: bool
    norm: bool


class Told(NamedTuple):
    """A value, and the text that its column makes of it: of all its decimals, or seconds, as many."""

    value: Any
    text: str


def _listed(column: Any) -> list[object]:
    if hasattr(column, "to_pylist"):
        return _of_arrow(column)
    kind: Any = getattr(column, "dtype", None)
    if hasattr(kind, "categories") and kind.categories.dtype.kind == "M":
        kind = kind.categories.dtype
        column = column.astype(kind)
    if getattr(kind, "kind", "") == "M" and getattr(kind, "tz", None) is None:
        return list(np.asarray(column))  # which keep their unit
    values = list(column.tolist() if hasattr(column, "tolist") else column)
    if any(isinstance(value, decimal.Decimal) for value in values):
        return _decimals(values)
    zone = next((one.tzinfo for one in values if isinstance(one, datetime.datetime) and one == one), None)
    if zone is None:
        return values
    unit = getattr(kind, "unit", "us")
    return [value if is_missing(value) else Told(value, stamp_of(value.astimezone(zone), unit)) for value in values]


def _of_arrow(column: Any) -> list[object]:
    if str(column.type).startswith("dictionary"):
        column = column.cast(column.type.value_type)
    values = column.to_pylist()
    if not str(column.type).startswith(("date", "time", "decimal")):
        return values
    texts = column.cast("string").to_pylist()
    return [None if value is None else Told(value, text) for value, text in zip(values, texts, strict=True)]


def unsigned(x: decimal.Decimal) -> decimal.Decimal:
    """A number, 0 without a sign."""
    return x.copy_abs() if x == 0 else x


def _decimals(values: Sequence[Any]) -> list[object]:
    """Decimals of one column, all with the decimals of the one that has most."""
    there = {k: decimal.Decimal(value) for k, value in enumerate(values) if not is_missing(value)}
    last = min(0, *(int(value.as_tuple().exponent) for value in there.values()))
    unit, context = decimal.Decimal((0, (1,), last)), decimal.Context(prec=80)
    return [Told(value, str(unsigned(there[k].quantize(unit, context=context)))) if k in there else None
            for k, value in enumerate(values)]  # fmt: skip


@functools.lru_cache(maxsize=2**16)
def hash_of(name: bytes) -> int:
    """MurmurHash3 (x86, 32 bits, seed 0) of bytes."""
    h, size = 0, len(name)
    for p in range(0, size - size % 4, 4):
        h = _rotated(h ^ _scrambled(int.from_bytes(name[p : p + 4], "little")), 13) * 5 + 0xE6546B64 & WORD
    if size % 4:
        h ^= _scrambled(int.from_bytes(name[size - size % 4 :], "little"))
    h ^= size
    h = (h ^ h >> 16) * 0x85EBCA6B & WORD
    h = (h ^ h >> 13) * 0xC2B2AE35 & WORD
    return h ^ h >> 16


def _rotated(x: int, r: int) -> int:
    return (x << r | x >> 32 - r) & WORD


def _scrambled(k: int) -> int:
    return _rotated(k * 0xCC9E2D51 & WORD, 15) * 0x1B873593 & WORD


def grams_of(text: str, analyzer: str, shortest: int, longest: int) -> Iterator[str]:
    """Every run of words or characters of a text, as often as it occurs."""
    if analyzer == "char_wb":
        for word in text.split():
            word = f" {word} "
            for n in range(shortest, longest + 1):
                yield from (word[k : k + n] for k in range(max(1, len(word) - n + 1)))
                if len(word) <= n:
                    break
        return
    units = re.findall(r"\w\w+", text) if analyzer == "word" else list(re.sub(r"\s\s+", " ", text))
    between = " " if analyzer == "word" else ""
    for n in range(shortest, longest + 1):
        yield from (between.join(units[k : k + n]) for k in range(len(units) - n + 1))


def is_missing(value: object) -> bool:
    """None, NaN, NaT, or the NA of pandas, which is known by its name: nothing here needs pandas."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)


def number_of(value: Any, missing: set[str], point: str) -> float:
    """A number, NaN where it is missing; ValueError for what is none."""
    value = value.value if isinstance(value, Told) else value
    if isinstance(value, str):
        text = value.strip(BLANK)
        if text in missing:
            return math.nan
        if text not in ("1", "0") and (words := TRUTHS.get(text)):
            return float(words[0] == "true")
        if point == ",":
            text = text.replace(".", "?").replace(",", ".")
        try:
            x = float(text.replace("_", "?"))
        except ValueError:
            x = math.nan
        if x != x:
            raise ValueError(f"{value!r} is not a number")
    elif is_missing(value):
        return math.nan
    elif isinstance(value, (datetime.date, np.datetime64, bytes)):
        raise ValueError(f"{value!r} is not a number")
    else:
        try:
            x = float(value)
        except TypeError:
            raise ValueError(f"{value!r} is not a number") from None
    if abs(x) > MOST:
        raise ValueError(f"{x:g} is beyond the range of float32")
    return x


def ungrouped(text: str, point: str) -> str:
    """An amount as people write it ($1,234.50) as a plain number; what is none stays as it is."""
    comma, gap = "." if point == "," else ",", "[\\s\u00a0\u202f]?"
    groups = "|".join(rf"([{mark}]\d{{3}})+" for mark in comma + " '\u00a0\u202f\u2019")
    unit = r"([$€£¥₹₩₽₺₪฿₫₴₦%]|[A-Z]{3}|kr|zł|Kč)"
    amount = rf"[+-]?{gap}({unit}{gap})?[+-]?(\d+|[1-9]\d{{0,2}}({groups}))([{point}]\d+)?({gap}{unit})?"
    if not re.fullmatch(rf"{amount}|\({amount}\)", text, re.ASCII):
        return text
    return "-" * text.startswith("(") + re.sub(rf"[^0-9{point}-]", "", text)


def spellings(text: str) -> Iterator[str]:
    """A category (of a cross the texts with "&" between), and then what truths in it may be written as."""
    yield text
    parts = text.split("&")
    if any(part in TRUTHS for part in parts):
        yield from ("&".join(some) for some in itertools.product(*(TRUTHS.get(part, (part,)) for part in parts)))


def text_of(value: object) -> str | None:
    """A value as text, None where it is missing: whole floats without a fraction, dates by ISO 8601."""
    if isinstance(value, Told):
        return value.text
    if is_missing(value):
        return None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (float, np.floating)):
        x = float(value)
        return str(int(x)) if math.isfinite(x) and x == int(x) and abs(x) < 2**53 else repr(x)
    if isinstance(value, decimal.Decimal):
        return str(unsigned(value))
    if isinstance(value, np.datetime64):
        return str(value).replace("T", " ")
    if isinstance(value, datetime.date):
        return stamp_of(value, "us") if isinstance(value, datetime.datetime) else value.isoformat()
    raise ValueError(f"{value!r} is neither text nor a number")


UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


def stamp_of(value: datetime.datetime, unit: str) -> str:
    """A date with its time as text, with the decimals of ``unit`` and what its clock is before UTC."""
    text = value.isoformat(" ", UNITS[unit])
    if value.tzinfo is None:
        return text
    return text[:-6] + ("Z" if str(value.tzinfo) == "UTC" else text[-6:].replace(":", ""))


def micros_of(value: object, form: str | None, missing: set[str]) -> int | None:
    """Microseconds since 1970, None where the date is missing; ValueError for what is no date."""
    value = value.value if isinstance(value, Told) else value
    if is_missing(value):
        return None
    if isinstance(value, np.datetime64):
        return int(value.astype("datetime64[us]").astype(np.int64))
    if isinstance(value, str):
        text = value.strip(BLANK)
        if text in missing:
            return None
        value = datetime.datetime.fromisoformat(text) if form is None else datetime.datetime.strptime(text, form)
    elif not isinstance(value, datetime.date):
        raise ValueError(f"{value!r} is not a date")
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    value = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
    return int((value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)) // datetime.timedelta(microseconds=1))


def part_of(micros: int, part: str) -> float:
    """A part of a date: days since 1970, the year, or from 0 the month, day, weekday (Monday 0) or hour."""
    day = 86_400_000_000
    if part == "time":
        return float(micros) / float(day)
    if part == "hour":
        return micros % day // (day // 24)
    date = datetime.date(1970, 1, 1) + datetime.timedelta(days=micros // day)
    return {"year": date.year, "month": date.month - 1, "day": date.day - 1, "weekday": date.weekday()}[part]


def summed(found: Iterable[tuple[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    """Indices and values of a row: sorted by a heap, added up in that order, in float32, without zeros."""
    entries = list(found)
    if any(a[0] > b[0] for a, b in zip(entries, entries[1:], strict=False)):
        for start in range(len(entries) // 2 - 1, -1, -1):
            _sift(entries, start, len(entries))
        for end in range(len(entries) - 1, 0, -1):
            entries[0], entries[end] = entries[end], entries[0]
            _sift(entries, 0, end)
    sums: dict[int, float] = {}
    for index, x in entries:
        sums[index] = sums[index] + x if index in sums else x
    with np.errstate(over="ignore"):
        stored = np.array(list(sums.values()), np.float64).astype(np.float32)
    if not np.isfinite(stored).all():
        raise ValueError("a value is NaN or infinite once finished")
    there = stored != 0
    return np.array(list(sums), np.int64)[there], stored[there].astype(np.float64)


def _sift(entries: list[tuple[int, float]], root: int, end: int) -> None:
    while 2 * root + 1 < end:
        child = 2 * root + 1
        if child + 1 < end and entries[child][0] < entries[child + 1][0]:
            child += 1
        if entries[root][0] >= entries[child][0]:
            return
        entries[root], entries[child] = entries[child], entries[root]
        root = child


class Table:
    """Makes features of the columns of a row, by what was learned when the model was trained.

    Parameters
    ----------
    model : the arrays of the scorer, by name.
    """

    def __init__(self, model: Mapping[str, np.ndarray]) -> None:
        told = json.loads(str(model["table"]))
        self.missing, self.decimal, self.signed = set(told["missing_values"]), told["decimal"], told["signed"]
        self.places, self.terms = 2 ** told["bits"], told["terms"]
        self.columns = list(dict.fromkeys(name for term in self.terms for name in _columns(term)))
        self.kind, self.first = model["kind"].tolist(), model["first"].tolist()
        self.mean, self.scale = model["mean"].tolist(), model["scale"].tolist()
        self.edges = _cut(model["edges"], model["edges_at"])
        self.keys = _cut(model["keys"].astype(np.int64), model["keys_at"])
        self.seen = _cut(model["idf_places"].astype(np.int64), model["idf_at"])
        self.idf, self.idf_unseen = _cut(model["idf"], model["idf_at"]), told["idf_unseen"]
        self.meant = dict(zip(model["written"].tolist(), model["meant"].tolist(), strict=True))

    def rows(self, X: object) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Indices and float64 values of the rows of a table: a mapping of columns, a pandas or Arrow table, or rows,
        each a mapping of its columns; ValueError naming row and column."""
        for number, record in enumerate(records(X)):
            try:
                yield self.row(record)
            except ValueError as error:
                raise ValueError(f"row {number}: {error}") from None

    def row(self, record: Mapping[str, object]) -> tuple[np.ndarray, np.ndarray]:
        """The same of one row."""
        if lacking := [name for name in self.columns if name not in record]:
            raise ValueError(f"there is no column {lacking[0]!r}")
        return summed(entry for t, term in enumerate(self.terms) for entry in self._entries(t, term, record))

    def _entries(self, t: int, term: Term, record: Mapping[str, object]) -> list[tuple[int, float]]:
        makers = {"numeric": self._numeric, "date": self._date, "text": self._text}
        make: Any = next((makers[kind] for kind in makers if kind in term), self._category)
        names = _columns(term)
        try:
            return list(make(t, term, *(record[name] for name in names)))
        except (ValueError, OverflowError) as error:
            raise ValueError(f"column {names[0]}: {error}") from None

    def _numeric(self, t: int, term: Term, value: object) -> list[tuple[int, float]]:
        if term.get("written") == "grouped" and isinstance(value, str):
            value = ungrouped(value.strip(BLANK), self.decimal)
        x = number_of(value, self.missing, self.decimal)
        if term["scale"] == "log":
            x = float(np.copysign(np.log1p(np.abs(x)), x))
        return self._number(t, term, x, term["scale"] != "none")

    def _number(self, t: int, term: Term, x: float, zeros: bool) -> list[tuple[int, float]]:
        binned, edges = self.kind[t] == BINS, self.edges[t]
        if x != x:
            place = self.first[t] + (len(edges) + 1 if binned else 1)
            return [(place, 1.0)] if term["missing"] == "indicator" else []
        if not (zeros or x):
            return []
        if binned:
            return [(self.first[t] + int(np.searchsorted(edges, x, "right")), 1.0)]
        return [(self.first[t], (x - self.mean[t]) / self.scale[t])]

    def _date(self, t: int, term: Term, value: object) -> list[tuple[int, float]]:
        micros, (part,) = micros_of(value, term["format"], self.missing), term["parts"]
        if part not in PARTS:
            return self._number(t, term, math.nan if micros is None else float(part_of(micros, part)), True)
        if micros is None:
            return [(self.first[t] + PARTS[part], 1.0)] if term["missing"] == "indicator" else []
        return [(self.first[t] + int(part_of(micros, part)), 1.0)]

    def _category(self, t: int, term: Term, *values: object) -> list[tuple[int, float]]:
        texts = [None if text is None else text.strip(BLANK) for text in map(text_of, values)]
        absent = [text is None or text in self.missing for text in texts]
        if len(texts) == 1 and absent[0] and term["missing"] != "indicator":
            return []
        said = "&".join("" if gone else str(text) for text, gone in zip(texts, absent, strict=True))
        said = said.lower() if term.get("lowercase") else said
        lead = f"{'&'.join(_columns(term))}="
        if self.kind[t] == HASHED:
            code = (t << 32) + hash_of(f"{lead}{said}".encode())  # truths in another spelling, as the one learned
            return [self._hashed(t, self.meant.get(code, code) % 2**32)]
        found = (_place_in(self.keys[t], hash_of(f"{lead}{text}".encode())) for text in spellings(said))
        k = next((place for place in found if place is not None), None)
        return [] if k is None else [(self.first[t] + k, 1.0)]

    def _hashed(self, t: int, h: int) -> tuple[int, float]:
        """The place of a hash, and its sign."""
        h = h - 2**32 if h >= 2**31 else h
        return self.first[t] + abs(h) % self.places, -1.0 if self.signed and h < 0 else 1.0

    def _text(self, t: int, term: Term, value: object) -> list[tuple[int, float]]:
        said = text_of(value) or ""
        said = said.lower() if term["lowercase"] else said
        counts: dict[int, int] = {}
        for gram in grams_of(said, term["analyzer"], *term["ngrams"]):
            h = hash_of(((term["prefix"] or "") + gram).encode())
            counts[h] = counts.get(h, 0) + 1
        entries, total = list[tuple[int, float]](), 0.0
        for h in sorted(counts):
            place, sign = self._hashed(t, h)
            x = 1.0 + math.log(counts[h]) if term["sublinear"] else float(counts[h])
            if term["tfidf"]:
                k = _place_in(self.seen[t], place - self.first[t])
                x *= self.idf_unseen if k is None else float(self.idf[t][k])
            total += x * x
            entries.append((place, x * sign))
        length = math.sqrt(total) if term["norm"] and total > 0 else 1.0
        return [(place, x / length) for place, x in entries]


def _columns(term: Term) -> list[str]:
    """The columns that a term is made of."""
    return list(term["cross"]) if "cross" in term else [str(name) for kind, name in term.items() if kind in KINDS]


def _cut(table: np.ndarray, at: np.ndarray) -> list[np.ndarray]:
    return [table[a:b] for a, b in zip(at[:-1].tolist(), at[1:].tolist(), strict=True)]


def _place_in(table: np.ndarray, number: int) -> int | None:
    """Where a number stands in an ascending table; None where it does not."""
    k = int(np.searchsorted(table, number))
    return k if k < table.size and table[k] == number else None
