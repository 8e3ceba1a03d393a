"""Rows with several labels each: the label of a row is then a set, and blocks hold the codes of the distinct sets.

In Parquet a set is a list of whole numbers or of texts. On its way through facts, caches and footers it is one text:
its labels in ascending order, each once, between them a comma (whole numbers) or the control character 0x1F (texts).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np

from bigclf.errors import DataError
from bigclf.features.arrow import as_numpy, in_arrow, texts_in_arrow
from bigclf.features.label_cells import BETWEEN as OF_TEXTS
from bigclf.features.truths import places

if TYPE_CHECKING:
    import pyarrow as pa


WHOLE, TEXT = "list<int>", "list<str>"  # kinds of such labels
BETWEEN = {WHOLE: ",", TEXT: OF_TEXTS}
MOST_NAMED = 5  # labels in a warning
Refused: TypeAlias = Callable[[str, int], DataError]


class LabelSets(NamedTuple):
    """The sets of labels that rows have.

    Attributes
    ----------
    labels : every label there is, ascending, int64 [L] or texts [L].
    indptr, members : int64 [S + 1] and int32: set s has the labels at members[indptr[s]:indptr[s + 1]], ascending.
    rows : int64 [S], rows that have each set.
    """

    labels: np.ndarray
    indptr: np.ndarray
    members: np.ndarray
    rows: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Labels in each set, int64 [S]."""
        return np.diff(self.indptr)

    def rows_of_labels(self, rows: np.ndarray | None = None) -> np.ndarray:
        """Rows that have each label, int64 [L]; ``rows`` : of each set, in place of all."""
        each = np.repeat(self.rows if rows is None else rows, self.lengths)
        return np.bincount(self.members, each, minlength=self.labels.size).astype(np.int64)

    def positions(self, labels: np.ndarray) -> LabelSets:
        """The same sets as positions in other ``labels`` [K], each once: -1 for a label that is not among them."""
        found = np.array(places(labels.tolist(), self.labels.tolist()), np.int32)
        if not found.size:
            return self._replace(labels=labels)
        members = found[self.members]
        known = found[found >= 0]
        if np.unique(known).size == known.size:
            return self._replace(labels=labels, members=members)
        rows, members = _each_once(np.repeat(np.arange(self.lengths.size), self.lengths), members)
        counts = np.bincount(rows, minlength=self.lengths.size)
        return self._replace(labels=labels, indptr=np.append(0, np.cumsum(counts)), members=members.astype(np.int32))

    def chosen(self, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """indptr int64 [m + 1] and members int32 of the sets ``codes`` int64 [m], one after the other."""
        return chosen(self.indptr, self.members, codes)

    def as_lists(self, codes: np.ndarray) -> pa.Array:
        """The sets ``codes`` int64 [m] as a column of lists."""
        return lists(self.labels, *self.chosen(codes))

    def texts(self) -> np.ndarray:
        """Each set as one text [S]."""
        between = BETWEEN[self.kind]
        names = [str(label) for label in self.labels.tolist()]
        ends = zip(self.indptr[:-1].tolist(), self.indptr[1:].tolist(), strict=True)
        return np.array([between.join(names[k] for k in self.members[a:b]) for a, b in ends], dtype=str)

    @property
    def kind(self) -> str:
        """``list<int>`` or ``list<str>``."""
        return TEXT if self.labels.dtype.kind == "U" else WHOLE


def chosen(indptr: np.ndarray, members: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """indptr int64 [m + 1] and members of the sets ``codes`` int64 [m]."""
    lengths = np.diff(indptr)[codes]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    places = np.repeat(indptr[codes] - ends[:-1], lengths) + np.arange(ends[-1])
    return ends, members[places]


def lists(labels: np.ndarray, indptr: np.ndarray, members: np.ndarray) -> pa.Array:
    """A column of lists of the ``labels`` at ``members``."""
    import pyarrow as pa

    texts = labels.dtype.kind == "U"
    items = texts_in_arrow(labels[members].tolist()) if texts else in_arrow(labels[members].astype(np.int64))
    return pa.ListArray.from_arrays(in_arrow(indptr.astype(np.int32)), items)


def as_csv(sets: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column of lists as text, joined by commas; a null in a list is an empty text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(sets, pa.ChunkedArray):
        return pa.chunked_array([as_csv(chunk) for chunk in sets.chunks], pa.string())
    texts, items = sets.cast(pa.list_(pa.string())), sets.flatten().cast(pa.string())
    if items.null_count:
        ends = np.cumsum([0, *pc.list_value_length(texts).fill_null(0).to_pylist()])
        mask = texts.is_null() if texts.null_count else None
        texts = pa.ListArray.from_arrays(in_arrow(ends.astype(np.int32)), items.fill_null(""), mask=mask)
    return pc.binary_join(texts, texts_in_arrow([","])[0])


# From texts


def of_texts(texts: Sequence[str], rows: Sequence[int], kind: str) -> LabelSets:
    """The sets that ``texts`` [S] are, which ``rows`` [S] rows have."""
    split = [text.split(BETWEEN[kind]) if text else [] for text in texts]
    indptr = np.concatenate([[0], np.cumsum([len(one) for one in split])]).astype(np.int64)
    flat = [label for one in split for label in one]
    labels, members = np.unique(np.array(flat, np.int64 if kind == WHOLE else str), return_inverse=True)
    return LabelSets(labels, indptr, members.astype(np.int32), np.array(rows, np.int64))


def as_lists(texts: np.ndarray, kind: str = TEXT) -> pa.Array:
    """Sets, each as one text [m], as a column of lists of texts; ``kind`` : of the sets."""
    import pyarrow as pa

    sets = [text.split(BETWEEN[kind]) if text else [] for text in texts.tolist()]
    indptr = np.cumsum([0, *map(len, sets)])
    return pa.ListArray.from_arrays(in_arrow(indptr.astype(np.int32)), texts_in_arrow(list(itertools.chain(*sets))))


def item_kind(type_: pa.DataType) -> str | None:
    """``list<int>`` or ``list<str>`` of a column of such lists, else None."""
    import pyarrow as pa

    if not (pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)):
        return None
    item = type_.value_type
    item = item.value_type if pa.types.is_dictionary(item) else item
    if pa.types.is_integer(item):
        return WHOLE
    return TEXT if pa.types.is_string(item) or pa.types.is_large_string(item) or pa.types.is_string_view(item) else None


def as_texts(column: pa.Array, refused: Refused) -> pa.Array:
    """A column of lists without null lists as texts of sets.

    Raises
    ------
    DataError : as ``refused`` makes it of a message and a row: of the first list with a null or an empty text in it, or
        one with the control character 0x1F.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = item_kind(column.type)
    items = column.flatten()
    items = items.dictionary_decode() if pa.types.is_dictionary(items.type) else items
    lengths = as_numpy(pc.list_value_length(column)).astype(np.int64)
    rows = np.repeat(np.arange(lengths.size), lengths)
    if items.null_count:
        raise refused("a null in the list of labels; leave it out", _first(rows, as_numpy(items.is_null())))
    if kind == TEXT:
        _check_texts(items, rows, refused)
        names, codes = np.unique(np.array(items.to_pylist(), dtype=str), return_inverse=True)
    else:
        names, codes = np.unique(as_numpy(items).astype(np.int64), return_inverse=True)
    rows, codes = _each_once(rows, codes)
    ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=lengths.size))]).astype(np.int64)
    flat = texts_in_arrow(names.astype(str).tolist()).take(in_arrow(codes))
    joined = pa.ListArray.from_arrays(in_arrow(ends.astype(np.int32)), flat)
    return pc.binary_join(joined, texts_in_arrow([BETWEEN[kind or WHOLE]])[0])


def _each_once(rows: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs in the order of rows and codes, each once."""
    order = np.lexsort((codes, rows))
    rows, codes = rows[order], codes[order]
    new = np.ones(rows.size, bool)
    new[1:] = (rows[1:] != rows[:-1]) | (codes[1:] != codes[:-1])
    return rows[new], codes[new]


def _check_texts(items: pa.Array, rows: np.ndarray, refused: Refused) -> None:
    import pyarrow.compute as pc

    empty = as_numpy(pc.binary_length(items)) == 0
    if empty.any():
        raise refused("an empty text in the list of labels; leave it out", _first(rows, empty))
    strange = as_numpy(pc.match_substring(items, BETWEEN[TEXT]))
    if strange.any():
        raise refused("a label with the control character 0x1F, which separates labels here", _first(rows, strange))


def _first(rows: np.ndarray, bad: np.ndarray) -> int:
    """The row of the first entry that is ``bad``."""
    return int(rows[np.flatnonzero(bad)[0]])


# From memory


def are_sets(y: object) -> bool:
    """Whether labels in memory are sets: an indicator matrix [n, L], dense (L > 1) or sparse; or lists, a row each."""
    if hasattr(y, "tocsr"):
        return True
    shape: tuple[int, ...] = getattr(y, "shape", ())
    if len(shape) == 2:
        return bool(shape[1] > 1)
    first = y[0] if isinstance(y, list | tuple) and len(y) else None
    if first is None and isinstance(y, np.ndarray) and y.dtype.kind == "O" and y.size:
        first = y.reshape(-1)[0]
    return isinstance(first, list | tuple | set | frozenset) or (isinstance(first, np.ndarray) and first.ndim == 1)


def n_labels(y: object) -> int:
    """Labels of an indicator matrix; of lists those of the first rows."""
    shape: tuple[int, ...] = getattr(y, "shape", ())
    if len(shape) == 2:
        return int(shape[1])
    return len({label for row in cast(Sequence[Sequence[object]], y)[:10_000] for label in row})


def of_memory(y: object, known: np.ndarray | None = None) -> LabelSets:
    """The sets of rows, one for each row, of what ``are_sets``. ``known`` : the labels [L] that the columns of a matrix
    are; None: they are numbered from 0, or named by the columns of a data frame.

    Raises
    ------
    DataError : naming the row of what is neither 0 nor 1, or of a label that is missing or of another type.
    """
    if getattr(y, "ndim", 0) == 2 or hasattr(y, "tocsr"):
        return _of_matrix(y, known)
    return _of_rows(cast(Sequence[Sequence[object]], y))


def _of_matrix(given: object, known: np.ndarray | None) -> LabelSets:
    import scipy.sparse

    y: Any = given

    names = list(y.columns) if hasattr(y, "columns") else []
    matrix = scipy.sparse.csr_matrix(y if hasattr(y, "tocsr") else np.asarray(y))
    matrix.sum_duplicates()
    bad = np.flatnonzero((matrix.data != 0) & (matrix.data != 1))
    if bad.size:
        row = int(np.searchsorted(matrix.indptr, bad[0], side="right")) - 1
        message = (
            f"y has several columns, so it is an indicator matrix of 0 and 1, and here it holds {matrix.data[bad[0]]}"
        )
        raise DataError(message, row=row, column="label")
    matrix.eliminate_zeros()
    labels = np.arange(matrix.shape[1]) if known is None else known
    if known is None and names and all(isinstance(name, str) for name in names):
        order = np.argsort(np.array(names, dtype=str), kind="stable")
        labels, matrix = np.array(names, dtype=str)[order], matrix[:, order]
    matrix.sort_indices()
    ones = np.ones(matrix.shape[0], np.int64)
    return LabelSets(labels, matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), ones)


def _of_rows(y: Sequence[Sequence[object]]) -> LabelSets:
    kinds = set()
    for row, given in enumerate(y):
        if isinstance(given, str) or not hasattr(given, "__iter__"):
            raise DataError(f"a list of labels in every row, or in none: here is {given!r}", row=row, column="label")
        mine = {
            str if isinstance(one, str) else int if isinstance(one, int | np.integer) else type(one) for one in given
        }
        kinds |= mine
        if not kinds <= {str} and not kinds <= {int}:
            told = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise DataError(f"labels in lists are all whole numbers or all texts, not {told}", row=row, column="label")
    flat = [one for given in y for one in given]
    rows = np.repeat(np.arange(len(y)), [len(given) for given in y])
    labels, codes = np.unique(np.array(flat, str if kinds == {str} else np.int64), return_inverse=True)
    rows, codes = _each_once(rows, codes)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(y)))]).astype(np.int64)
    return LabelSets(labels, indptr, codes.astype(np.int32), np.ones(len(y), np.int64))


# What to know before training


def warn_of_one_sided(labels: np.ndarray, counts: np.ndarray, n_rows: int) -> list[str]:
    """Warnings of labels [L] that no row has, that every row has, and that one row has: ``counts`` int64 [L]."""
    said = (
        (counts == 0, "no row has {}: {} model learns to say no to every row"),
        ((counts == n_rows) & (n_rows > 0), "every row has {}: {} model learns to say yes to every row"),
        ((counts == 1) & (n_rows > 1), "no more than one row has {}: {} model can be learned, but not tested"),
    )
    return [text.format(_listed(labels[there].tolist()), "its" if there.sum() == 1 else "each")
            for there, text in said if there.any()]  # fmt: skip


def _listed(labels: list[object]) -> str:
    named = ", ".join(map(repr, labels[:MOST_NAMED])) + ", ..." * (len(labels) > MOST_NAMED)
    return f"the label {named}" if len(labels) == 1 else f"{len(labels):,} labels ({named})"
