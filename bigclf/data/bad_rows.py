"""Rows that cannot be used, counted by what is wrong with them, and what is said of them."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from bigclf.errors import DataError

if TYPE_CHECKING:
    from bigclf.data.dataset import Dataset


CELL = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[+-]?\d[\d.,]*(?:e[+-]?\d+)?""")  # what rows differ in
LENGTH = re.compile(r"\d+ fields, not \d+")  # few, and each says another thing
OF_COLUMN = re.compile(r"column .*?: ")
MOST_BAD = 0.01  # of all rows, where nothing is said: more are an error all the same
MOST_KINDS = 100  # told apart
SHOWN = 4
MARGIN = 1.5  # times the share of the first rows may be that of all


def kind_of(reason: str) -> str:
    """The reason without what differs from row to row."""
    head = OF_COLUMN.match(reason) or LENGTH.match(reason)
    start = head.end() if head else 0
    return reason[:start] + CELL.sub("_", reason[start:])


class Reasons:
    """How many rows are bad for each kind of reason, and the first of each; reasons that differ in what is quoted and
    in numbers alone are of one kind."""

    def __init__(self) -> None:
        self.n = 0
        self.kinds: dict[str, tuple[int, str]] = {}

    def add(self, reason: str, told: str, rows: int = 1) -> None:
        """So many more rows; ``told``: the place of the first and the reason as an error says them."""
        kind = kind_of(reason)
        if kind not in self.kinds and len(self.kinds) >= MOST_KINDS:
            kind = ""
        count, first = self.kinds.get(kind, (0, told))
        self.kinds[kind] = count + rows, first
        self.n += rows

    def lines(self) -> list[str]:
        """How many rows are as which first one, the commonest kind first."""
        kinds = sorted(self.kinds.values(), key=lambda one: -one[0])
        file = kinds[0][1].partition(", line ")[0] + ", " if kinds else ""  # is said once
        said = [f"{count:,} as in {first}" if count > 1 else f"1 in {first}" for count, first in kinds[:SHOWN]]
        said[1:] = [line.replace(f"in {file}", "in ", 1) for line in said[1:]]
        rest = sum(count for count, _ in kinds[SHOWN:])
        return said + [f"{rest:,} for other reasons"] * (rest > 0)

    def __str__(self) -> str:
        return "; ".join(self.lines())


def too_many(found: Reasons, n_rows: int, limit: float) -> str:
    """The error that more rows are bad than ``limit`` allows."""
    way = f"--max-bad-fraction {enough(found.n, n_rows):.2g} allows so many (in Python max_bad_fraction=)"
    if found.n > n_rows / 2:
        way = "where most rows are bad, see how the file is read and what each column is taken for"
    return (f"{found.n:,} of {n_rows:,} rows are bad, more than the {limit:.3g} that max_bad_fraction allows: {found}. "
            + way[0].upper() + way[1:])  # fmt: skip


def too_many_with_held(rest: Dataset, held: Dataset, limit: float) -> str:
    """The same of a dataset and the rows held out of it, which were converted apart; nothing where they are not."""
    both = [dataset.report for dataset in (rest, held)]
    n_bad = sum(report.get("bad_rows", 0) for report in both)
    n_rows = sum(dataset.n_rows for dataset in (rest, held)) + n_bad
    if n_bad <= limit * n_rows:
        return ""
    told = "; of those held out, ".join(report.get("left_out", "none is bad") for report in both)
    return (f"{n_bad:,} of {n_rows:,} rows are bad, more than the {limit:.3g} that max_bad_fraction allows: {told}. "
            f"--max-bad-fraction {enough(n_bad, n_rows):.2g} allows so many")  # fmt: skip


def enough(n_bad: int, n_rows: int) -> float:
    """The least share of two digits that is no smaller than that of the bad rows."""
    step = 10.0 ** (math.floor(math.log10(n_bad / n_rows)) - 1)
    count = math.floor(n_bad / n_rows / step)
    while n_bad > float(f"{count * step:.2g}") * n_rows:
        count += 1
    return float(f"{count * step:.2g}")


def left_out(found: Reasons) -> str:
    """The warning that bad rows were left out."""
    return f"{found.n:,} bad row{'s were' if found.n != 1 else ' was'} left out: {found}"


def skipping(n_bad: int, n_rows: int, limit: float = MOST_BAD, whole: bool = True) -> tuple[str, str]:
    """What leaves so many of the rows out, on the command line and in Python; ``whole`` : no more rows are to come,
    which may be bad in a greater share."""
    if n_bad <= limit * n_rows:
        return "--on-bad-rows skip", 'on_bad_rows="skip"'
    share = f"{enough(n_bad, n_rows) if whole else min(1.0, MARGIN * n_bad / n_rows):.2g}"
    return f"--on-bad-rows skip --max-bad-fraction {share}", f'on_bad_rows="skip", max_bad_fraction={share}'


def no_way_out(error: DataError) -> DataError:
    """The error of a row that ends a conversion, where none may be left out: it is to be corrected."""
    message, found, _ = error.message.partition("; to leave such rows out")
    place = dict(file=error.file, row_group=error.row_group, row=error.row, line=error.line, column=error.column)
    told = f"{message}; correct this row, or take it out of the file"
    return DataError(told, **place) if found else error  # type: ignore[arg-type]


def with_way_out(error: DataError) -> DataError:
    """The error of a row that ends a conversion, with the option that leaves such rows out unless it has advice."""
    if ";" in CELL.sub("_", error.message):
        return error
    place = dict(file=error.file, row_group=error.row_group, row=error.row, line=error.line, column=error.column)
    way = 'to leave such rows out, use --on-bad-rows skip (on_bad_rows="skip")'
    return DataError(f"{error.message}; {way}", **place)  # type: ignore[arg-type]
