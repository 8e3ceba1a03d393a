"""The svmlight (LIBSVM) text format: ``label [qid:n] index:value ... [# comment]``, one row a line."""

from __future__ import annotations

import math
from io import BytesIO

import numpy as np

from bigclf.data.convert.parsed import BadRow, Options, Parsed, join
from bigclf.data.shards import FLOAT32_MAX

SLOW_BYTES = 16_384  # text this short is parsed line by line when the fast parser refuses it


def parse(text: bytes, options: Options) -> Parsed:
    """Rows of whole lines of text; lines that are no rows are listed with the reason.

    scikit-learn's parser does the work. It says that a line is bad but not which, and knows no index above 2^31, so
    text it refuses is halved until short enough to be parsed line by line.
    """
    rows = None if b"_" in text else _parse_fast(text, options)  # Python, and so that parser, reads 1_0 as 10
    if rows is not None:
        return rows
    cut = text.find(b"\n", len(text) // 2) + 1
    if len(text) <= SLOW_BYTES or cut in (0, len(text)):
        return _parse_slowly(text, options)
    return join([(0, parse(text[:cut], options)), (cut, parse(text[cut:], options))])


def _parse_fast(text: bytes, options: Options) -> Parsed | None:
    from sklearn.datasets import load_svmlight_file

    try:
        rows, labels = load_svmlight_file(BytesIO(text), dtype=np.float64, zero_based=options.index_base == 0)
    except (ValueError, OverflowError):
        return None
    parsed = Parsed(rows.indptr.astype(np.int64), rows.indices, rows.data, labels, [])
    return parsed if _usable(parsed, options) else None


def _usable(parsed: Parsed, options: Options) -> bool:
    """Whether labels and values are finite, values within float32 and indices below the number of features."""
    if not np.isfinite(parsed.labels).all():
        return False
    if parsed.values.size == 0:
        return True
    in_range = parsed.values.min() >= -FLOAT32_MAX and parsed.values.max() <= FLOAT32_MAX  # False for NaN
    return bool(in_range and (options.n_features is None or parsed.indices.max() < options.n_features))


def _parse_slowly(text: bytes, options: Options) -> Parsed:
    indptr, indices, values, labels, bad = [0], list[int](), list[float](), list[float](), list[BadRow]()
    offset = 0
    for line in text.replace(b"\r", b" ").splitlines(keepends=True):
        try:
            row = parse_line(line, options)
            if row is not None:
                labels.append(row[0])
                indices += row[1]
                values += row[2]
                indptr.append(len(indices))
        except ValueError as error:
            bad.append(BadRow(offset, str(error)))
        offset += len(line)
    return Parsed(
        np.array(indptr, np.int64), np.array(indices, np.int64), np.array(values, np.float64), np.array(labels), bad
    )


def parse_line(line: bytes, options: Options) -> tuple[float, list[int], list[float]] | None:
    """Label, 0-based indices and values of a line; None for an empty one.

    Raises
    ------
    ValueError : saying what is wrong with the line.
    """
    fields = line.split(b"#", 1)[0].split()
    if not fields:
        return None
    label = _number(fields[0], "the label")
    pairs = fields[2:] if len(fields) > 1 and fields[1].startswith(b"qid") else fields[1:]
    indices, values = list[int](), list[float]()
    for pair in pairs:
        index = _index(pair, options)
        if indices and index <= indices[-1]:
            raise ValueError(f"the index in {_shown(pair)} is not greater than the one before (unsorted or repeated)")
        value = _number(pair.split(b":", 1)[1], f"the value in {_shown(pair)}")
        if abs(value) > FLOAT32_MAX:
            raise ValueError(f"the value in {_shown(pair)} is beyond the range of float32 ({FLOAT32_MAX:.3g})")
        indices.append(index)
        values.append(value)
    return label, indices, values


def _index(pair: bytes, options: Options) -> int:
    """0-based index of ``index:value``."""
    text, colon, _ = pair.partition(b":")
    if not colon:
        raise ValueError(f"{_shown(pair)} is not index:value")
    try:
        index = int(text.replace(b"_", b"?")) - options.index_base
    except ValueError:
        raise ValueError(f"the index in {_shown(pair)} is not a whole number") from None
    if index == -1 and options.index_base == 1:
        raise ValueError("index 0, but indices start at 1; if they start at 0 pass index_base=0 (--index-base 0)")
    limit = 2**63 - 1 if options.n_features is None else options.n_features
    if not 0 <= index < limit:
        raise ValueError(f"the index in {_shown(pair)} is negative or beyond the {limit:,} features")
    return index


def _number(text: bytes, what: str) -> float:
    try:
        number = float(text.replace(b"_", b"?"))
    except ValueError:
        raise ValueError(f"{what} is not a number: {_shown(text)}") from None
    if not math.isfinite(number):
        raise ValueError(f"{what} is {number}")
    return number


def _shown(text: bytes) -> str:
    """Text from a file, safe and short enough for a message."""
    return repr(text[:40].decode("utf-8", "replace")) + ("..." if len(text) > 40 else "")
