"""Every error bigclf raises on purpose: what is wrong, where, and what to do about it.

``exit_code`` is what the command line returns for the error (`bigclf help commands` lists them).
"""

from __future__ import annotations

from bigclf.texts import mask_chain as mask_chain
from bigclf.texts import masked as masked
from bigclf.texts import safe

CONVERT_FIRST = (
    "; make shards of a raw table or text first: bigclf.convert(FILE, OUT, format=..., features=...), as in "
    "`bigclf help data`"
)  # the command line says its own way out


class BigclfError(Exception):
    """Base of all errors that bigclf raises on purpose; what they say holds no secrets of URLs, and no escape
    sequences."""

    exit_code = 1

    def __init__(self, *args: object) -> None:
        super().__init__(*(safe(arg) if isinstance(arg, str) else arg for arg in args))


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
