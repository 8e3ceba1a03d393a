"""The svmlight (LIBSVM) text format: ``label [qid:n] index:value ... [# comment]``, one row a line."""

from __future__ import annotations

import math
import re

import numpy as np

from bigclf.conversion.text.bytes_to_rows import parse_rows
from bigclf.conversion.text.parsed import BadRow, Options, Parsed, Reader
from bigclf.features.arrow import FLOAT32_MAX

QUERY = re.compile(rb"^[ \t]*[^\s#]+[ \t]+qid[^\s:]*:", re.MULTILINE)
MULTI_LABEL = re.compile(rb"[^,:]+(,[^,:]*)+")
FIRST_PAIR = re.compile(rb"[0-9]+:[^:]*")  # where a label should be
OTHER_LABELS = re.compile(rb"\d+([;|/]\d+)+|[^,:\s]*[A-Za-z_][^,:]*(,[^,:]*)+")  # with other separators, or of words
NO_LABEL = re.compile(rb"^[ \t]*(?=([0-9]+|qid[^\s:#]*):)", re.MULTILINE)
MINUS_ZERO = re.compile(rb"^[ \t]*-(?=[0.]+([eE][-+]?[0-9]+)?\s)", re.MULTILINE)
SEVERAL = "`bigclf convert FILE OUT --several-labels` takes them (convert(..., several_labels=True))"


def parse(text: bytes, options: Options) -> Parsed:
    """Rows of whole lines of text; lines that are no rows are listed with the reason."""
    if options.unlabelled and NO_LABEL.search(text):
        marked = NO_LABEL.sub(b"-0 ", MINUS_ZERO.sub(b"", text))  # a number that nobody else writes then
        made = parse(marked, options._replace(unlabelled=False))
        if not made.bad:  # whose places would be those of another text
            unlabelled = (made.labels == 0) & np.signbit(made.labels)
            return made._replace(labels=np.where(unlabelled, np.nan, made.labels))
    text = text if text.endswith(b"\n") else text + b"\n"
    most = len(text) // 4 + 1  # an entry is four bytes at least, a row two
    rows = np.zeros(len(text) // 2 + 1, np.int64), np.empty(most, np.int64), np.empty(most)
    labels, hard, bad = np.empty(len(text) // 2), np.empty((most, 3), np.int64), list[BadRow]()
    raw = np.frombuffer(text, np.uint8)
    place = m = n = h = 0
    while place < len(text):
        place, m, n, h = parse_rows(raw, place, m, n, h, options.index_base, options.limit, *rows, labels, hard)
        if place < len(text):
            end = text.index(b"\n", place) + 1
            try:
                m, n = _add(parse_line(text[place:end], options), m, n, *rows, labels)
            except ValueError as error:
                bad.append(BadRow(place, str(error)))
            place = end
    indptr, indices, values = rows
    for entry, first, end in hard[:h].tolist():
        values[entry] = float(text[first:end])
    return Parsed(indptr[: m + 1], indices[:n], values[:n], labels[:m].copy(), bad, queries=_has_queries(text))


def _add(
    row: tuple[float, list[int], list[float]] | None,
    m: int,
    n: int,
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    labels: np.ndarray,
) -> tuple[int, int]:
    """Put a row, if it is one, behind the ``m`` rows and ``n`` entries; return how many there are then."""
    if row is None:
        return m, n
    end = n + len(row[1])
    labels[m], indices[n:end], values[n:end], indptr[m + 1] = row[0], row[1], row[2], end
    return m + 1, end


def parse_line(line: bytes, options: Options) -> tuple[float, list[int], list[float]] | None:
    """Label, 0-based indices and values of a line; None for an empty one.

    Raises
    ------
    ValueError : saying what is wrong with the line.
    """
    line = line.split(b"#", 1)[0]
    fields = line.split()
    if not fields:
        return None
    if b"\0" in line:
        raise ValueError("there is a zero byte in the line: the file is damaged, or no text")
    if b"," in line and b":" not in line:
        raise ValueError(f"{shown(fields[0])} has commas and no index:value, as rows of a table: --format csv "
                         f"(format='csv'); if these are labels of a row without entries, {SEVERAL}")  # fmt: skip
    if options.unlabelled and (FIRST_PAIR.fullmatch(fields[0]) or _is_query(fields[0])):
        fields.insert(0, b"")
    label = _label(fields[0]) if fields[0] else math.nan
    pairs = fields[2:] if len(fields) > 1 and _is_query(fields[1]) else fields[1:]
    indices, values = list[int](), list[float]()
    for pair in pairs:
        index = _index(pair, options)
        if indices and index <= indices[-1]:
            raise ValueError(f"the index in {shown(pair)} is not greater than the one before (unsorted or repeated)")
        value = number(pair.split(b":", 1)[1], f"the value in {shown(pair)}")
        if abs(value) > FLOAT32_MAX:
            raise ValueError(f"the value in {shown(pair)} is beyond the range of float32 ({FLOAT32_MAX:.3g})")
        indices.append(index)
        values.append(value)
    return label, indices, values


def _label(text: bytes) -> float:
    if OTHER_LABELS.fullmatch(text):
        raise ValueError(f"{shown(text)} is no label; labels of this text are numbers, and several whole ones of a row "
                         "stand between commas: 1,2 1:0.5 (--several-labels)")  # fmt: skip
    if MULTI_LABEL.fullmatch(text):
        raise ValueError(f"rows with several labels are not taken: {shown(text)}; {SEVERAL}")
    if FIRST_PAIR.fullmatch(text):
        raise ValueError(f"there is no label before {shown(text)}; predict takes such rows; if rows to learn from may"
                         f" have none or several, {SEVERAL}")  # fmt: skip
    return number(text, "the label")


def _has_queries(text: bytes) -> bool:
    return b"q" in text and b"qid" in text and QUERY.search(text) is not None  # one letter is found fastest


def _is_query(field: bytes) -> bool:
    return field.startswith(b"qid") and b":" in field


def _index(pair: bytes, options: Options) -> int:
    """0-based index of ``index:value``."""
    text, colon, _ = pair.partition(b":")
    if not colon:
        raise ValueError(f"{shown(pair)} is not index:value")
    try:
        index = int(text.replace(b"_", b"?")) - options.index_base
    except ValueError:
        raise ValueError(f"the index in {shown(pair)} is not a whole number") from None
    if index == -1 and options.index_base == 1:
        raise ValueError("index 0, but indices start at 1; if they start at 0 pass index_base=0 (--index-base 0)")
    if not 0 <= index < options.limit:
        raise ValueError(f"the index in {shown(pair)} is negative or beyond the {options.limit:,} features")
    return index


def number(text: bytes, what: str) -> float:
    """A finite number; ValueError that says ``what`` it was to be."""
    try:
        number = float(text.replace(b"_", b"?"))
    except ValueError:
        raise ValueError(f"{what} is not a number: {shown(text)}") from None
    if not math.isfinite(number):
        raise ValueError(f"{what} is {number}")
    return number


def shown(text: bytes) -> str:
    """Text from a file, safe and short enough for a message."""
    return repr(text[:40].decode("utf-8", "replace")) + ("..." if len(text) > 40 else "")


READER = Reader(parse, index_base=1, example=b"1 1:1\n")
