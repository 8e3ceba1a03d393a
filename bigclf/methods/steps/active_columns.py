"""Rows by columns: what a read collects of the columns that are active, and the columns made of it.

A read goes over rows; a method on columns needs them turned. ``Piece`` is what a block of rows has in the active
columns, and what each of its rows needs besides; ``Gathering`` makes ``Columns`` of the pieces of all groups, in group
order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigclf.compiled.jit import dot, entry, inlined, kernel, prefetch
from bigclf.maths.block import Block
from bigclf.methods.steps.columns import AHEAD, Columns

if TYPE_CHECKING:
    from bigclf.methods.steps.path_batch import Batch

PIECE_ENTRY, COLUMN_ENTRY = 8, 8  # bytes of an entry: its column or row, and its value
PIECE_ROW, COLUMN_ROW = 8 * 4 + 4, 8 * 5 + 16 + 32  # ... of a row, with what its solution and a face's keep
COLUMN = 8 * (3 + 7 + 10)  # ... and of a column: what it is, its solution and a face


class Piece(NamedTuple):
    """m rows in the active columns.

    starts : int64 [m + 1], the entries of each row; places : uint32 [entry], which of the active columns; values :
    float32 [entry], or none where each row has one value, scales : float32 [m], or none where that is 1; labels, prices
    and margins : float64 [m], y_i, C_i and y_i w.x_i, or for regression w.x_i.
    """

    starts: np.ndarray
    places: np.ndarray
    values: np.ndarray
    scales: np.ndarray
    labels: np.ndarray
    prices: np.ndarray
    margins: np.ndarray


def piece_of(
    block: Block, order: np.ndarray, weights: np.ndarray, places: np.ndarray, C: float, bias: float,
    regression: bool = False,
) -> Piece:  # fmt: skip
    """Of the block's rows ``order``; places : int64 [feature + 1], of each feature's column, -1 where not active."""
    m = order.size
    starts = np.zeros(m + 1, np.int64)
    count(block, order, places, starts)
    n = int(starts[-1])
    explicit, scaled = block.values.size > 0, block.scales.size > 0
    values = np.empty(n if explicit else 0, np.float32)
    scales = block.scales[order] if scaled and not explicit else np.empty(0, np.float32)
    piece = Piece(starts, np.empty(n, np.uint32), values, scales, block.labels[order], C * block.weights[order],
                  np.empty(m))  # fmt: skip
    found = np.empty(int(np.max(block.indptr[order + 1] - block.indptr[order], initial=0)) + 1, np.int64)
    take(block, order, weights, places, bias, regression, found, piece)
    return piece


@kernel
def count(block, order, places, starts):  # type: ignore[no-untyped-def]
    """starts[k + 1] : entries in active columns of the rows order[:k + 1]."""
    n = 0
    for k in range(order.size):
        i = order[k]
        for p in range(block.indptr[i], block.indptr[i + 1]):
            n += places[block.indices[p]] >= 0
        starts[k + 1] = n


@kernel
def take(block, order, weights, places, bias, regression, found, piece):  # type: ignore[no-untyped-def]
    """Fill places, values and margins; ``found`` : room for the entries of a row."""
    n, still = 0, rests(weights, block)
    for k in range(order.size):
        i = order[k]
        first, end, active = block.indptr[i], block.indptr[i + 1], piece.starts[k + 1] - piece.starts[k]
        some, here = active < end - first, 0
        if some:
            for p in range(first, end):
                found[here] = p  # without a branch: nobody could guess which entries are active
                here += places[block.indices[p]] >= 0
        for q in range(active):
            p = found[q] if some else first + q
            piece.places[n] = places[block.indices[p]]
            if piece.values.size > 0:
                piece.values[n] = entry(block, i, p)
            n += 1
        s = 1.0 if regression else block.labels[i]
        piece.margins[k] = 0.0 if still else s * (dot(block, i, weights) + bias * weights[weights.size - 1])


@inlined
def rests(weights, block):  # type: ignore[no-untyped-def]
    """Whether all weights are 0, so that no margin need be summed up; False where a look would take longer."""
    if weights.size > block.indices.size:
        return False
    moved = False
    for j in range(weights.size):
        moved |= weights[j] != 0
    return not moved


class Gathering:
    """Columns made of pieces, each as it comes, in the order of the rows.

    Parameters
    ----------
    counts : int64 [column], entries of each column in all rows.
    n_rows : at most so many rows will come.
    regression : labels are numbers to predict, and no signs.
    """

    def __init__(self, counts: np.ndarray, n_rows: int, regression: bool = False) -> None:
        n = counts.size
        starts = np.zeros(n + 1, np.int64)
        np.cumsum(counts, out=starts[1:])
        self._ends, self._n_rows = starts[:-1].copy(), 0
        held = [np.empty(n_rows) for _ in range(4)]
        self._columns = Columns(starts, np.empty(starts[-1], np.uint32), np.empty(0, np.float32), np.zeros(n),
                                held[0], held[1], np.empty(0), held[2], held[3])  # fmt: skip
        self._explicit, self._regression = False, regression
        self.batch: Batch | None = None  # of points of a path that are solved on these columns

    def append(self, piece: Piece) -> None:
        """The next rows."""
        if not self._explicit and (piece.values.size or not piece.scales.all()):
            self._write_out()
        elif piece.scales.size and not self._explicit and not self._columns.units.size:
            self._columns = self._columns._replace(units=np.ones(self._columns.labels.size))
        put(piece, self._n_rows, self._regression, self._ends, self._columns)
        self._n_rows += piece.labels.size

    def _write_out(self) -> None:
        """From here on every entry has its value."""
        values = np.empty(self._columns.rows.size, np.float32)
        signs = self._columns.signs[: self._n_rows]
        own = np.ones(self._n_rows) if self._regression else self._columns.labels[: self._n_rows]
        write_out(self._columns, self._ends, own, values)
        signs[:] = own
        self._columns, self._explicit = self._columns._replace(values=values, units=np.empty(0)), True

    def columns(self) -> Columns:
        """Of all rows that came."""
        n = self._n_rows
        made = self._columns
        measure(made, self._ends)
        per_row = {name: getattr(made, name)[:n] for name in ("labels", "signs", "units", "prices", "margins")}
        return made._replace(**per_row)

    @property
    def n_bytes(self) -> int:
        return sum(array.nbytes for array in (*self._columns, self._ends))


@kernel
def write_out(columns, ends, own, values):  # type: ignore[no-untyped-def]
    """The value of every entry so far, where each row has one; own : y_i of each row."""
    for j in range(ends.size):
        for p in range(columns.starts[j], ends[j]):
            i = columns.rows[p]
            values[p] = own[i] * columns.signs[i]


@kernel
def measure(columns, ends):  # type: ignore[no-untyped-def]
    """The largest |x_ij| of every column."""
    explicit = columns.values.size > 0
    for j in range(ends.size):
        most = 0.0
        for p in range(columns.starts[j], ends[j]):
            x = np.float64(columns.values[p]) if explicit else columns.signs[columns.rows[p]]
            most = max(most, abs(x))
        columns.largest[j] = most


@kernel
def put(piece, first, regression, ends, columns):  # type: ignore[no-untyped-def]
    """The rows of a piece, the first of which is row ``first``; ``ends`` : where each column goes on."""
    explicit, scaled = columns.values.size > 0, columns.units.size > 0
    for k in range(piece.labels.size):
        i, y = first + k, piece.labels[k]
        scale = np.float64(piece.scales[k]) if piece.scales.size > 0 else 1.0
        columns.labels[i], columns.prices[i], columns.margins[i] = y, piece.prices[k], piece.margins[k]
        own = 1.0 if regression else y
        columns.signs[i] = own if explicit else own * scale
        if scaled:
            columns.units[i] = 1.0 / scale
        for p in range(piece.starts[k], piece.starts[k + 1]):
            if p + AHEAD < piece.places.size:
                coming = ends[piece.places[p + AHEAD]]
                prefetch(columns.rows, coming)
                prefetch(columns.values, coming)
            j = piece.places[p]
            x = np.float64(piece.values[p]) if piece.values.size > 0 else scale
            if explicit:
                columns.values[ends[j]] = x
            columns.rows[ends[j]] = i
            ends[j] += 1
