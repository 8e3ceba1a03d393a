"""Rows that are already in memory, behind the same facts and the same ``decode`` as a dataset of files."""

from __future__ import annotations

import copy
import decimal
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bigclf.data import label_sets
from bigclf.data.chunk_table import Chunks, warn_of_numbers, warn_of_rare
from bigclf.data.label_lists import with_whole_labels
from bigclf.data.shards import rows_of_table
from bigclf.errors import DataError
from bigclf.maths.block import FAULTS, OK, Block, Entries, as_unsigned, check_rows, one_value_a_row, rows_of, writable
from bigclf.maths.feature_ids import FeatureIds

if TYPE_CHECKING:
    import pandas
    import scipy.sparse


TARGET_NNZ = 500_000
FEW_NUMBERS = 2**16  # a range of labels that is counted, not sorted
MOST_COMPARED, LOOKED_AT = 10_000, 64  # columns; rows, before a whole column is compared with the labels
FROM_0 = " (both count from 0)"  # a row and a column
OF_COLUMNS = (
    '; text and missing values become features where the label is named: fit(frame, "COLUMN") (in a pipeline, '
    "bigclf.FeatureTransformer)"
)


class Arrays:
    """A matrix with its labels.

    Large because it has every attribute of ``Rows``.

    Parameters
    ----------
    X : numpy [rows, features], scipy sparse, pandas DataFrame (of sparse columns too), or pyarrow Table of numbers or
        with a column of vectors, as in Parquet. A CSR matrix of float32 with sorted indices is used where it lies,
        without a copy.
    y : [rows] labels: ints, floats, strings or bools, of one kind; numbers where they are to be predicted. Of rows with
        several labels each an indicator matrix [rows, labels], dense or sparse, or a list of labels for each row.
    sample_weight : [rows] at least 0, or None.
    least_chunks : rows are cut into at least so many chunks, where there are as many rows.
    real_labels : labels are numbers to predict; then there are no ``classes`` (None), and blocks hold the numbers.
    classes : every label there is, ascending, where ``y`` may lack some.

    Raises
    ------
    DataError : naming the row, for NaN or infinite values, labels or weights; ValueError for shapes that differ.
    """

    files: list[str] = []
    fingerprints: list[Any] = []
    layout = None
    feature_ids: FeatureIds | None = None  # which features are known by their place, as of ``Dataset``
    said: list[str] = []  # no warning is logged before training

    def __init__(
        self,
        X: object,
        y: object,
        sample_weight: object = None,
        least_chunks: int = 1,
        real_labels: bool = False,
        classes: np.ndarray | None = None,
    ) -> None:
        indptr, indices, values, self.n_features = csr_arrays(X)
        y = with_whole_labels(y)
        self.sets = label_sets.of_memory(y) if not real_labels and label_sets.are_sets(y) else None
        if self.sets is not None:
            labels = np.arange(self.sets.rows.size)
        else:
            labels = number_array(y) if real_labels else label_array(y)
        self.n_rows = indptr.size - 1
        if labels.size != self.n_rows:
            raise ValueError(f"X has {self.n_rows} rows and y has {labels.size} labels")
        self.real_labels = real_labels
        self.classes: Any = None
        self.class_counts: Any = None
        codes = labels
        if self.sets is not None:
            self.classes, self.class_counts = self.sets.labels, self.sets.rows_of_labels()
        elif classes is not None:
            self.classes, codes = classes, known_codes(labels, classes)
            self.class_counts = np.bincount(codes, minlength=classes.size)
        elif not real_labels:
            self.classes, codes, self.class_counts = distinct(labels)
        if self.sets is not None:
            self.warnings = label_sets.warn_of_one_sided(self.classes, self.class_counts, self.n_rows)
        else:
            self.warnings = warn_of_numbers(self.classes) or warn_of_rare(self.classes, self.class_counts)
        weights = np.ones(self.n_rows) if sample_weight is None else weight_array(sample_weight, self.n_rows)
        self.weighted = sample_weight is not None
        self.weight_sum = float(weights.sum())
        norms = np.empty(self.n_rows)
        indices = as_unsigned(indices)
        try:
            check(indptr, indices, values, self.n_features, norms)
        except DataError as error:
            raise _placed(error, X, indptr, indices, values) from None
        ids = np.arange(self.n_rows)
        values, scales = one_value_a_row(indptr, values)
        codes = codes.astype(np.float64, copy=not real_labels)
        self._block = Block(indptr, indices, values, codes, weights, norms, ids, scales)
        self.nnz = int(indptr[-1] - indptr[0])
        self.binary, self.row_constant = values.size == scales.size == 0, scales.size > 0
        self.index_width = indices.dtype.itemsize
        lengths, there = np.diff(indptr), weights > 0
        self.learnable = int(np.count_nonzero(there)), int(lengths[there].sum())  # rows of weight above 0; entries
        self.max_row_nnz = int(lengths.max(initial=0))
        self.max_norm = float(norms.max(initial=0.0))
        self.features: dict[str, Any] = {"kind": "given", "version": 1}
        if names := column_names(X, self.n_features):
            self.features["names"] = names
            self.warnings += [] if self.sets else warn_of_labels(names, self._block, self.n_features, labels)
        self.learned: dict[str, np.ndarray] = {}
        self.chunks = cut(indptr, least_chunks)
        self.max_group_rows = int(self.chunks.rows.max(initial=0))
        self.max_group_nnz = int(self.chunks.nnz.max(initial=0))
        self.largest_group = self.whole_group = self.max_group_rows, self.max_group_nnz
        self.written_here = True
        self.in_parts = np.zeros(self.chunks.file.size, bool)
        runs = int((np.diff(codes) != 0).sum()) + 1
        self.sorted_labels = not (real_labels or self.sets) and bool(runs == self.classes.size > 1)

    @property
    def n_chunks(self) -> int:
        return int(self.chunks.file.size)

    @property
    def learnable_counts(self) -> np.ndarray:
        """Rows of each class with a weight above 0, int64 [K]."""
        codes = self._block.labels[self._block.weights > 0].astype(np.int64)
        if self.sets is not None:
            return self.sets.rows_of_labels(np.bincount(codes, minlength=self.n_rows))
        return np.bincount(codes, minlength=self.classes.size)

    @functools.cached_property
    def digest(self) -> str:
        """Hex over every byte of the rows: what a resumed run compares."""
        import xxhash

        digest = xxhash.xxh3_128()
        names = np.empty(0) if self.classes is None else np.char.encode(self.classes.astype(str), "utf-8")
        sets = () if self.sets is None else (self.sets.indptr, self.sets.members)
        known = () if self.feature_ids is None else (self.feature_ids.numbers,)
        for array in (*self._block, names, *sets, *known):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).view(np.uint8))
        return str(digest.hexdigest())

    def tell_content(self) -> bool:
        """False: there are no files."""
        return False

    def learned_of_columns(self) -> dict[str, np.ndarray]:
        """What was learned of raw columns, if this was made of them."""
        return self.learned

    def with_real_labels(self) -> Arrays:
        """The same rows with labels that are numbers to predict; ValueError if they are text."""
        if self.real_labels:
            return self
        found = copy.copy(self)
        found.__dict__.pop("digest", None)
        if self.sets is not None:
            raise ValueError("every row has a list of labels; numbers are needed to learn to predict numbers")
        numbers = number_array(self.classes)[self._block.labels.astype(np.int64)]
        found._block = self._block._replace(labels=numbers)
        found.real_labels, found.classes, found.class_counts, found.sorted_labels = True, None, None, False
        found.warnings = []
        return found

    def with_feature_ids(self, ids: FeatureIds) -> Arrays:
        """The same rows with features numbered by their place in ``ids``, which must have all that occur."""
        found = copy.copy(self)
        found.__dict__.pop("digest", None)
        places, known = ids.places(self._block.indices)
        assert known.all()
        found._block = self._block._replace(indices=places)
        found.feature_ids, found.n_features, found.index_width = ids, ids.size, 4
        return found

    def whole(self) -> Block:
        """All rows as one block, without a copy."""
        return self._block

    def decode(self, file: int, row_group: int, into: Entries | None = None) -> Block:
        """The rows of one chunk (row group = chunk) as views."""
        first = int(self.chunks.row0[row_group])
        return rows_of(self._block, first, first + int(self.chunks.rows[row_group]))

    def parts(self, file: int, row_group: int) -> Iterator[Block]:
        """The same, as what is decoded in parts has it."""
        yield self.decode(file, row_group)

    def blocks(self) -> Iterator[Block]:
        """All rows, a chunk at a time, as views."""
        for chunk in range(self.n_chunks):
            yield self.decode(0, chunk)

    def check_unchanged(self, chunks: tuple[int, int] | None = None) -> None:
        """Arrays in memory are taken to stay as they are."""


def warn_of_labels(names: Sequence[str], block: Block, n_features: int, labels: np.ndarray) -> list[str]:
    """A warning of columns of a frame that hold the labels [row] themselves. None where all labels are the same, nor of
    more than ``MOST_COMPARED`` columns."""
    import scipy.sparse

    if labels.dtype.kind not in "biuf" or n_features > MOST_COMPARED or (labels == labels[:1]).all():
        return []
    wanted = labels.astype(np.float32)
    scales = block.scales if block.scales.size else np.ones(labels.size, np.float32)
    values = block.values if block.values.size else np.repeat(scales, np.diff(block.indptr))
    rows = scipy.sparse.csr_matrix((values, block.indices.astype(np.int64), block.indptr), (labels.size, n_features))
    some = np.unique(np.linspace(0, labels.size - 1, LOOKED_AT).astype(np.int64))
    alike = np.flatnonzero((rows[some].toarray() == wanted[some, None]).all(axis=0))
    same = [names[k] for k in alike.tolist() if np.array_equal(rows[:, [k]].toarray().ravel(), wanted)]
    if not same:
        return []
    told = ", ".join(map(repr, same))
    return [f"column {told} equals the labels in every row, and is a feature all the same: the model will read the "
            f"answer from it; leave it out, as in fit(df.drop(columns={same}), y)"]  # fmt: skip


def cut(indptr: np.ndarray, least: int) -> Chunks:
    """A chunk table of runs of rows with about ``TARGET_NNZ`` entries each, or ``least`` of them."""
    n_rows = indptr.size - 1
    n_chunks = max(1, min(n_rows, max(least, -(-int(indptr[-1] - indptr[0]) // TARGET_NNZ))))
    edges = np.searchsorted(indptr, np.linspace(indptr[0], indptr[-1], n_chunks + 1)[1:-1])
    row0 = np.unique(np.concatenate([[0], edges, [n_rows]])) if n_rows else np.zeros(1, np.int64)
    if row0.size <= min(least, n_rows):  # rows too uneven to be cut by entries
        row0 = np.linspace(0, n_rows, min(least, n_rows) + 1).astype(np.int64)
    first = row0[:-1].astype(np.int64)
    zero = np.zeros(first.size, np.int32)
    return Chunks(
        file=zero,
        row_group=np.arange(first.size, dtype=np.int32),
        first=np.zeros(first.size, np.int64),
        rows=np.diff(row0).astype(np.int64),
        nnz=np.diff(indptr[row0]).astype(np.int64),
        row0=first,
    )


def check(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, n_features: int, norms: np.ndarray) -> None:
    """Fill ``norms``; DataError naming the first bad row."""
    fault, row = check_rows(
        writable(indptr), writable(indices), writable(values), indices.dtype.type(n_features), norms
    )
    if fault != OK:
        column, text = FAULTS[fault]
        raise DataError(text.format(n_features=n_features), row=int(row), column=column)


def refuse_mapping(X: object) -> None:
    """TypeError for columns by name that are no frame."""
    if isinstance(X, Mapping) or getattr(getattr(X, "dtype", None), "names", None):
        raise TypeError("X is a mapping of columns; give a frame, pandas.DataFrame(X), or an array [row, feature]")


def csr_arrays(X: object) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """indptr int64, indices int32 or int64, values float32, number of features, of anything tabular."""
    import scipy.sparse

    if isinstance(X, scipy.sparse.spmatrix | scipy.sparse.sparray):
        if X.ndim != 2:
            raise ValueError(f"X must have two dimensions, not {X.ndim}")
        if X.dtype.kind == "c":
            raise ValueError("Complex data not supported")
        matrix = X.tocsr()
        ends = matrix.indptr
        if ends[0] != 0 or ends[-1] > matrix.indices.size or np.any(ends[1:] < ends[:-1]):
            raise DataError("the row lengths of the sparse matrix do not add up", column="indptr")
        if not matrix.has_canonical_format:
            matrix = matrix.copy()
            matrix.sum_duplicates()
    elif (sparse := sparse_of(X)) is not None:
        matrix = sparse
    else:
        if hasattr(X, "to_pandas"):  # a pyarrow Table
            X = X.to_pandas()
        refuse_mapping(X)
        dense = np.asarray(X)
        if dense.dtype.kind == "c":
            raise ValueError("Complex data not supported")
        if dense.dtype.kind not in "biuf" or dense.dtype.itemsize == 2 or not dense.dtype.isnative:
            dense = as_floats(dense, _pandas_columns(X))
        if dense.ndim != 2:
            raise ValueError(f"X must have two dimensions (rows, features), not {dense.ndim}")
        matrix = _csr_of(dense)
    values = matrix.data
    if values.dtype != np.float32:
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        if values.dtype.kind == "f" and np.isfinite(values[np.isinf(narrow)]).any():
            row, column = not_finite(matrix.indptr, matrix.indices, np.where(np.isfinite(values), narrow, 0))
            raise DataError("a value is beyond the range of float32" + FROM_0, row=row, column=str(column))
        values = narrow
    indices = matrix.indices
    if indices.dtype.kind != "i" or indices.dtype.itemsize not in (4, 8):
        indices = indices.astype(np.int64)
    return matrix.indptr.astype(np.int64), indices, values, int(matrix.shape[1])


def _csr_of(dense: np.ndarray) -> scipy.sparse.csr_matrix:
    """A numpy matrix by rows, without its zeros: scipy would take eight times as long, and 16 bytes an entry."""
    import scipy.sparse

    n_rows, width = dense.shape
    there = dense != 0
    full = bool(there.all())
    lengths = np.full(n_rows, width) if full else np.count_nonzero(there, axis=1)
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    kind = np.int32 if max(int(indptr[-1]), width) <= np.iinfo(np.int32).max else np.int64
    columns = np.arange(width, dtype=kind)
    indices = np.tile(columns, n_rows) if full else np.broadcast_to(columns, dense.shape)[there]
    values = dense.ravel() if full else dense[there]
    return scipy.sparse.csr_matrix((values, indices, indptr.astype(kind)), shape=dense.shape)


def as_floats(dense: np.ndarray, names: Sequence[str] = ()) -> np.ndarray:
    """float64 of an array of any type, of whose columns ``names`` are the names.

    Raises
    ------
    DataError : naming the first cell of the first column that holds what is not a number.
    """
    try:
        return dense.astype(np.float64)
    except (TypeError, ValueError) as error:
        if dense.ndim != 2:
            raise DataError(f"a value is missing or not a number: {error}", column="values") from None
        column, row, cell = next(_not_numbers(dense))
        named = names[column] if names else str(column)
        what = "a value is missing" if _is_missing(cell) else f"{cell!r} is not a number"
        raise DataError(what + (OF_COLUMNS if names else ""), row=row, column=named) from None


def _is_missing(cell: object) -> bool:
    return cell is None or type(cell).__name__ == "NAType"


def _not_numbers(dense: np.ndarray) -> Iterator[tuple[int, int, object]]:
    """(column, row, cell) of what numpy makes no number of."""
    for column in range(dense.shape[1]):
        for row, cell in enumerate(dense[:, column].tolist()):
            try:
                np.asarray(cell).astype(np.float64)
            except (TypeError, ValueError):
                yield column, row, cell


def no_numbers_text(X: object, error: Exception) -> str:
    """What to say of a frame in place of numpy's words (``error``) for a text in it."""
    X = X.to_pandas() if hasattr(X, "to_pandas") else X
    place = next(_not_numbers(np.asarray(X)), None) if (names := _pandas_columns(X)) else None
    if place is None:
        return str(error)
    column, row, cell = place
    what = f"a value is missing (row {row})" if _is_missing(cell) else str(error)
    return (f"column {names[column]}: {what}. Numbers are needed here; bigclf.fit(frame, y=\"COLUMN\") takes columns "
            "of text too, and bigclf.FeatureTransformer makes numbers of them in a pipeline")  # fmt: skip


def _placed(error: DataError, X: Any, indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> DataError:
    """The error of a row with the column that holds what is no finite number there: of a DataFrame its name, else its
    number."""
    X = X.to_pandas() if hasattr(X, "to_pandas") else X
    if names := _pandas_columns(X):
        bad = np.flatnonzero(~np.isfinite(np.asarray(X.iloc[error.row], np.float64)))
        return DataError(error.message + OF_COLUMNS, row=error.row, column=names[bad[0]]) if bad.size else error
    if error.row is None or not values.size:
        return error
    row, column = not_finite(indptr[error.row :], indices, values)
    return DataError(error.message + FROM_0, row=error.row, column=str(column)) if row == 0 else error


def not_finite(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray) -> tuple[int, int]:
    """Row and column of the first entry that is NaN or infinite; (-1, -1) where none is."""
    bad = np.flatnonzero(~np.isfinite(values[indptr[0] : indptr[-1]]))
    if not bad.size:
        return -1, -1
    place = int(indptr[0] + bad[0])
    return int(np.searchsorted(indptr, place, side="right")) - 1, int(indices[place])


def _pandas_columns(X: object) -> list[str]:
    """Of a pandas DataFrame; [] of anything else."""
    return [str(name) for name in X.columns] if hasattr(X, "iloc") and hasattr(X, "columns") else []


def column_names(X: object, n_features: int | None = None) -> list[str]:
    """Names of the columns of a frame or a table in memory, where all are text (and, where it is said how many features
    there are, each is one); else none."""
    names = getattr(X, "column_names", None)  # of a pyarrow Table
    names = getattr(X, "columns", None) if names is None else names
    if names is None or not all(isinstance(name, str) for name in names) or n_features not in (None, len(names)):
        return []
    return [str(name) for name in names]


def listed_names(features: Mapping[str, object]) -> list[str] | None:
    """Names of the columns of a frame or a table that rows or a model were made of, as ``features`` list them; None
    where they are not known one by one (of raw columns ``names`` is a number)."""
    names = features.get("names")
    return names if isinstance(names, list) else None


def names_in(features: Mapping[str, object]) -> str:
    """Where a model with these ``features`` has the names of its columns of numbers, in Python."""
    return "model.features['names']" if listed_names(features) else "model.columns['features']"


def plain_names(features: Mapping[str, object], told: object) -> list[str] | None:
    """Names of the columns of numbers that are the features as they are, ``told`` where files were read by them; None
    where they are not known."""
    return list(told) if isinstance(told, list | tuple) else listed_names(features)


def are_numbered(features: Mapping[str, object]) -> bool:
    """Whether features were made of text of sparse rows, which calls them by numbers or by hashes, not by columns."""
    return features.get("kind") != "columns" and not {"counted_from", "hash_bits"}.isdisjoint(features)


def are_counted(names: Sequence[str]) -> bool:
    """Whether names of columns count them, from 0 or 1, perhaps after one word: 0 1 2, f1 f2 f3, or f01 f02."""
    word = names[0].rstrip("0123456789") if names else ""
    told = [name.removeprefix(word) for name in names if name.startswith(word)]
    if len(told) < len(names) or not all(text.isascii() and text.isdigit() for text in told):
        return False
    counts = [*map(int, told)]
    return any(counts == [*range(first, first + len(names))] for first in (0, 1))


def require_named(columns: object, features: Mapping[str, object], path: str | None) -> None:
    """Refuse rows of text, whose ``features`` have no names, for a model that knows its ``columns`` by name.

    Raises
    ------
    DataError : naming the columns.
    """
    if isinstance(columns, list | tuple) and are_numbered(features):
        shown = ", ".join(map(str, columns[:5])) + ", ..." * (len(columns) > 5)
        raise DataError(f"rows of sparse text, which name no columns, and the model takes the columns {shown} by their "
                        "names: give it Parquet with these columns, or train a model on such text",
                        file=path)  # fmt: skip


def counted_from(features: Mapping[str, object]) -> int:
    """The number that feature 0 has in the text that rows or a model were made of, as ``features`` tell: 1 of svmlight;
    0 also of older ones, which do not tell."""
    return int(str(features.get("counted_from", 0)))


def made_alike(features: Mapping[str, object], others: Mapping[str, object]) -> bool:
    """Whether features were made in the same way, whatever number the text gives to the first."""
    return {**features, "counted_from": 0} == {**others, "counted_from": 0}


def require_same_names(
    trained_on: Sequence[str], given: Sequence[str], way: str = "X[model.features['names']]"
) -> None:
    """Refuse columns of other names, or in another order, than a model was trained on; ``way`` : to give its own.

    Raises
    ------
    ValueError : naming the first that differs.
    """
    if told := names_differ(trained_on, given):
        raise ValueError(f"X has {told}" + f"; give them as {way}" * ({*trained_on} <= {*given}))


def names_differ(trained_on: Sequence[str], given: Sequence[str]) -> str:
    """In what the columns that are given differ from those that a model was trained on; "" where they do not."""
    mine, its = list(trained_on), list(given)
    if mine == its:
        return ""
    new, gone = ([name for name in one if name not in other] for one, other in ((its, mine), (mine, its)))
    if new or gone:
        told = [f"{what} {', '.join(map(repr, names[:5]))}{', ...' * (len(names) > 5)}"
                for what, names in (("unknown to it", new), ("missing", gone)) if names]  # fmt: skip
        return f"other columns than the model was trained on: {'; '.join(told)}"
    at = next((k for k, pair in enumerate(zip(mine, its, strict=False)) if pair[0] != pair[1]), len(mine))
    there, wanted = its[at] if at < len(its) else None, mine[at] if at < len(mine) else None
    return f"its columns in another order than the model was trained on: column {at} is {there!r} and was {wanted!r}"


def sparse_of(X: object) -> scipy.sparse.csr_matrix | None:
    """As CSR, without making it dense: a table in memory with a column of vectors, or a pandas DataFrame of sparse
    columns; None of anything else."""
    import scipy.sparse

    if (rows := rows_of_table(X)) is not None:
        return rows
    dtypes: Any = getattr(X, "dtypes", None)
    if getattr(dtypes, "ndim", 0) != 1 or not len(dtypes) or not all(hasattr(kind, "fill_value") for kind in dtypes):
        return None
    if any(kind.fill_value != 0 for kind in dtypes):  # then what is not stored is no zero
        return None
    frame: pandas.DataFrame = X
    return scipy.sparse.csr_matrix(frame.sparse.to_coo())


def label_array(y: object) -> np.ndarray:
    """Labels as a numpy array of one kind; DataError naming the row of a missing one, SchemaError for mixed kinds."""
    labels = np.array(y, dtype=object) if isinstance(y, list | tuple) else np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels.ravel()
    if labels.ndim != 1:
        raise ValueError(f"y must have one dimension, not shape {labels.shape}")
    if labels.dtype.kind == "O":
        kinds = {type(label) for label in labels}
        for row, label in enumerate(labels):
            if label is None or type(label).__name__ == "NAType" or label != label:
                raise DataError("a label is missing (None or NaN)", row=row, column="label")
        if kinds and all(issubclass(kind, decimal.Decimal) for kind in kinds):
            whole = all(int(label.as_tuple().exponent) >= 0 for label in labels)  # decimals without a fraction
            return labels.astype(np.int64 if whole else np.float64)
        families = {str if issubclass(k, str) else bool if issubclass(k, bool | np.bool_) else float for k in kinds}
        if len(families) > 1:
            raise DataError(f"labels of mixed types: {', '.join(sorted(k.__name__ for k in kinds))}", column="label")
        labels = np.array(labels.tolist())
    if labels.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(labels))
        if bad.size:
            raise DataError("a label is NaN or infinite", row=int(bad[0]), column="label")
    return labels


def distinct(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The classes, increasing, the place of each label among them, int64 [row], and how many labels each has: as
    ``np.unique`` tells, without sorting where labels are whole numbers of a small range."""
    if labels.dtype.kind in "iub" and labels.size:
        least, most = int(labels.min()), int(labels.max())
        if most - least < FEW_NUMBERS and most < 2**63:
            there = labels.astype(np.int64) - least
            counts = np.bincount(there)
            numbers = np.flatnonzero(counts)
            place = np.zeros(counts.size, np.intp)
            place[numbers] = np.arange(numbers.size)
            return (numbers + least).astype(labels.dtype), place[there], counts[numbers]
    classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return classes, codes, counts


def known_codes(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The places of labels among the classes, int64 [row]; DataError naming the row of one that is none of them."""
    codes = np.minimum(np.searchsorted(classes, labels), classes.size - 1)
    strange = np.flatnonzero(classes[codes] != labels)
    if strange.size:
        text = f"the label {labels[strange[0]].item()!r} is none of the classes {classes[:10].tolist()}"
        raise DataError(text, row=int(strange[0]), column="label")
    return codes


def number_array(y: object) -> np.ndarray:
    """Labels that are numbers to predict, float64 [rows]; ValueError for text, DataError as ``label_array``."""
    labels = label_array(y)
    if labels.dtype.kind not in "biuf":
        raise ValueError("the labels are text; numbers are needed to learn to predict numbers")
    return labels.astype(np.float64)


def weight_array(sample_weight: object, n_rows: int) -> np.ndarray:
    """float64 [rows]; DataError naming the row of a weight that is negative, NaN or infinite."""
    weights = np.asarray(sample_weight, np.float64)
    if weights.shape != (n_rows,):
        raise ValueError(f"sample_weight.shape == {weights.shape}, expected ({n_rows},)!")
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if bad.size:
        message = f"a weight is negative, NaN or infinite ({weights[bad[0]]})"
        raise DataError(message, row=int(bad[0]), column="weight")
    if n_rows and not weights.any():
        raise DataError("every row weight is zero", column="weight")
    return weights
