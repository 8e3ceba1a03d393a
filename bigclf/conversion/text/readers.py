"""Formats of rows that are sparse already, the ``READER`` of a module each, and readers of one's own.

A reader of one's own is a function from the bytes of one record (a line, or lines from one that begins with a mark up
to the next such) to ``(label, indices, values)`` or ``(label, indices, values, weight)``; ``values`` None are all 1.
Indices count from 0, may come in any order, and values of the same index are added up. None is no row at all; what the
function raises becomes the reason of a bad row. A function in an installed package is found by itself under the
entry-point group ``bigclf.readers``, any other by ``module:function`` in place of a format's name.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import math
import re
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, SupportsFloat, SupportsInt, TypeAlias

import numpy as np

from bigclf.conversion.text.parsed import BadRow, Gathering, Options, Parsed, Reader, one_row
from bigclf.files.formats import FORMATS

GROUP = "bigclf.readers"


READERS: dict[str, Reader] = {
    name: importlib.import_module(f"bigclf.conversion.text.{form.reader}").READER
    for name, form in FORMATS.items()
    if form.reader
}


Row: TypeAlias = Callable[[bytes], Sequence[Any] | None]  # label, indices, values or None, perhaps a weight


def register(name: str, row: Row, *, record: bytes = b"") -> None:
    """Make ``format=name`` read text by ``row``, a function as the module's docstring describes it.

    Parameters
    ----------
    record : what the first line of each record begins with, as b">" in FASTA; empty: every line that is not blank is
        a record.
    """
    READERS[name] = own(row, record)


def own(row: Row, record: bytes = b"") -> Reader:
    """The reader that calls ``row`` for each record; a function may say ``record`` itself, as an attribute."""
    record = record or getattr(row, "record", b"")
    return Reader(functools.partial(_parse_each, row, record), record)


def find(name: str, others: Sequence[str] = ()) -> Reader:
    """The reader of that name: of the table, of an installed package, or ``module:function``.

    Raises
    ------
    ValueError : if there is none; it names ``others`` too.
    """
    if name in READERS:
        return READERS[name]
    for point in importlib.metadata.entry_points(group=GROUP, name=name):
        return own(point.load())
    module, colon, function = name.partition(":")
    if not colon:
        raise ValueError(f"format must be one of {', '.join([*READERS, *others])}, or module:function, not {name!r}")
    if "" not in sys.path:
        sys.path.append("")  # a module may lie in the current directory, also for the processes that convert
    try:
        return own(getattr(importlib.import_module(module), function))
    except (ImportError, AttributeError) as error:
        raise ValueError(f"format {name!r} cannot be imported: {error}") from error


def code_of(reader: Reader) -> str:
    """Hex by which a reader is known again: its module's source; another each time where that is not to be had."""
    row = reader.parse.args[0] if isinstance(reader.parse, functools.partial) else reader.parse
    try:
        return hashlib.blake2b(inspect.getsource(sys.modules[row.__module__]).encode(), digest_size=16).hexdigest()
    except (OSError, TypeError, KeyError, AttributeError):
        return secrets.token_hex(16)


def _parse_each(row: Row, mark: bytes, text: bytes, options: Options) -> Parsed:
    found = Gathering()
    for start, record in _records(text, mark):
        try:
            if mark and not record.startswith(mark):
                raise ValueError(f"text before the first record, which begins with {mark.decode(errors='replace')!r}")
            made = row(record)
            if made is not None:
                found.add(*_as_row(made, options))
        except Exception as error:  # whatever a stranger's function raises
            reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            found.bad.append(BadRow(start, reason, start + len(record)))
    return found.parsed()


def _records(text: bytes, mark: bytes) -> Iterator[tuple[int, bytes]]:
    """(place, record) of all records that are not blank."""
    pattern = rb"^" + (re.escape(mark) if mark else b"")
    starts = [match.start() for match in re.finditer(pattern, text, re.MULTILINE)]
    starts = starts if starts[:1] == [0] else [0, *starts]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        if record := text[start:end].strip(b"\r\n"):
            yield start, record


def _as_row(made: Sequence[Any], options: Options) -> tuple[float, np.ndarray, np.ndarray, float]:
    """Label, ascending indices, values and weight of what a reader's function gave; ValueError where it is no row."""
    label, indices, values, *weight = made
    indices = np.asarray(indices if isinstance(indices, np.ndarray) else list(_whole(indices)))
    if indices.size and indices.dtype.kind not in "iu":
        raise ValueError("indices must be whole numbers")
    values = np.ones(indices.size) if values is None else np.asarray(values, np.float64)
    if indices.ndim != 1 or values.shape != indices.shape:
        raise ValueError(f"{indices.size} indices but {values.size} values")
    number = float(label)
    if not math.isfinite(number):
        raise ValueError(f"the label is {number}")
    return number, *one_row(indices.astype(np.int64), values, options), _weight(*weight)


def _whole(indices: Iterable[SupportsInt]) -> Iterator[int]:
    for index in indices:
        if int(index) != index:
            raise ValueError(f"the index {index!r} is not a whole number")
        yield int(index)


def _weight(weight: SupportsFloat = 1.0) -> float:
    number = float(weight)
    if not 0 <= number < math.inf:
        raise ValueError(f"the weight {number} is negative or not finite")
    return number
