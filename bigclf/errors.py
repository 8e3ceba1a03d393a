"""Every error bigclf raises on purpose: what is wrong, where, and what to do about it.

``exit_code`` is what the command line returns for the error (see the README's table of exit codes).
"""

from __future__ import annotations

import logging
import re

USER = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*://)([^/\s'\"@]+)@")
QUERY = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*://[^\s'\"?]*)\?[^\s'\"]*=[^\s'\"]*[^\s'\":;,.)]")


_seen: set[str] = set()  # what stood before the "@" of a URL: libraries repeat it without the URL, in other messages
LEAST = 6  # letters of a password that is masked by itself; a shorter one is part of other words


def masked(text: str) -> str:
    """``text`` without what URLs in it may hold of secrets: names and passwords before ``@``, queries (signatures);
    and without those that any text had before."""
    _seen.update(match[2] for match in USER.finditer(text) if match[2] != "***")
    text = QUERY.sub(r"\1?***", USER.sub(r"\1***@", text))
    for secret in sorted(_seen, key=len, reverse=True):
        password = secret.partition(":")[2]
        text = text.replace(f"{secret}@", "***@")
        text = text.replace(password, "***") if len(password) >= LEAST else text
    return text


def mask_chain(error: BaseException | None) -> None:
    """Mask the messages of an error and of all that it was raised from or while: a traceback prints them, too."""
    seen: set[int] = set()
    todo = [error]
    while todo:
        one = todo.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.args = tuple(masked(arg) if isinstance(arg, str) else arg for arg in one.args)
            todo += [one.__cause__, one.__context__]


def _mask(record: logging.LogRecord) -> bool:
    text = record.getMessage()
    if masked(text) != text:
        record.msg, record.args = masked(text), None
    return True


logging.getLogger("bigclf").addFilter(_mask)


class BigclfError(Exception):
    """Base of all errors that bigclf raises on purpose; what they say holds no secrets of URLs."""

    exit_code = 1

    def __init__(self, *args: object) -> None:
        super().__init__(*(masked(arg) if isinstance(arg, str) else arg for arg in args))


class DataError(BigclfError):
    """Data that cannot be used, with its place.

    Parameters
    ----------
    message : what is wrong and what to do.
    file : path of the file, if one is to blame.
    row_group : 0-based Parquet row group inside ``file``.
    row : 0-based row inside ``row_group`` (inside ``file`` for formats without row groups).
    line : 1-based line of a text file.
    column : name of the column.
    """

    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        file: object = None,
        row_group: int | None = None,
        row: int | None = None,
        line: int | None = None,
        column: str | None = None,
    ) -> None:
        message = masked(message)
        self.message, self.file, self.row_group = message, None if file is None else masked(str(file)), row_group
        self.row, self.line, self.column = row, line, column
        parts = (
            ("", self.file),
            ("row group ", row_group),
            ("row ", row),
            ("line ", line),
            ("column ", column),
        )
        place = ", ".join(f"{name}{value}" for name, value in parts if value is not None)
        super().__init__(f"{place}: {message}" if place else message)

    def saying_more(self, text: str) -> DataError:
        """The same error of the same place, with ``text`` behind its message."""
        kind, message, place = self.__reduce__()[1]
        return _rebuild(kind, f"{message}; {text}", place)

    def further_down(self, rows: int) -> DataError:
        """The same error of a row that stands so many ``rows`` further down than where it was met."""
        kind, message, place = self.__reduce__()[1]
        row = place["row"]
        return _rebuild(kind, message, {**place, "row": row if row is None else row + rows})

    def __reduce__(self):  # type: ignore[no-untyped-def]  # travels between processes with its place
        place = dict(file=self.file, row_group=self.row_group, row=self.row, line=self.line, column=self.column)
        return _rebuild, (type(self), self.message, place)


def _rebuild(kind: type[DataError], message: str, place: dict[str, object]) -> DataError:
    return kind(message, **place)  # type: ignore[arg-type]


class SchemaError(DataError):
    """Columns or types that are missing, unusable or differ between files."""


class MemoryBudgetError(BigclfError):
    """The work does not fit ``memory=``; the message holds the numbers and the budget that would do."""


class RunError(BigclfError):
    """A run that cannot start, go on or be resumed."""


class StoreError(RunError, OSError):
    """A remote store that refused, or failed again and again; nothing that came in part was used."""


class Interrupted(RunError):
    """A run stopped by a signal after its last checkpoint; it can be resumed."""

    exit_code = 6


class ClusterError(BigclfError):
    """The cluster was lost, or none came."""

    exit_code = 5


class ModelFormatError(BigclfError):
    """A file that is not a bigclf model, is damaged, or is newer than this program."""

    exit_code = 3


class ConvergenceWarning(UserWarning):
    """A run stopped at its limits before its tolerance; the gap it reached is in the message."""
