"""The model: weights, classes, how the features were made, how it was trained and how good it is.

Its file is a safetensors file: tensors ``weights`` and ``bias`` and, in the header, one JSON text with everything
else and a checksum for each tensor. Nothing in it is ever executed, and reading allocates no more than its size.
"""

from __future__ import annotations

import codecs
import copy
import dataclasses
import functools
import hashlib
import json
import math
import mmap
import os
import re
import struct
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, TypeGuard, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from bigclf import files
from bigclf.compiled.jit import dot, entry, kernel
from bigclf.conversion.tables.raw_rows import blocks_of, table_block
from bigclf.conversion.tables.reading import LINES, are_raw, as_named, in_format, reading
from bigclf.data.arrays import (
    FROM_0,
    are_counted,
    are_numbered,
    column_names,
    names_differ,
    names_in,
    no_numbers_text,
    not_finite,
    plain_names,
    refuse_mapping,
    require_named,
    require_same_names,
    sparse_of,
)
from bigclf.data.dataset import Dataset, Stored, as_trained
from bigclf.data.shards import sealed, unsealed
from bigclf.errors import DataError, MemoryBudgetError, ModelFormatError, RunError, SchemaError
from bigclf.features.encode import Finisher, checked, is_columns
from bigclf.features.spec import parse
from bigclf.features.values import is_table
from bigclf.files.formats import COLUMNS as RAW_FORMATS
from bigclf.files.json_fields import (
    FLAG,
    TABLE,
    TEXTS,
    Field,
    FieldError,
    check_features,
    check_fields,
    check_relations,
    figure,
    list_of,
    named,
    number,
    optional,
    or_none,
    table_of,
    text,
    whole,
)
from bigclf.files.tensors import checksum, write_tensors
from bigclf.limits import memory_limit
from bigclf.maths.block import Block, alike, as_unsigned, explicit_values, rows_of, writable
from bigclf.maths.feature_ids import FeatureIds
from bigclf.maths.losses import REGRESSION
from bigclf.methods import METHODS, Method, Param
from bigclf.methods.online import voted_perceptron
from bigclf.model.calibration import METHODS as CALIBRATIONS
from bigclf.model.calibration import Calibration
from bigclf.model.explanations import Explanation, NamesGiven, RowExplanation, explain, explain_row
from bigclf.model.exports import Export, export, liblinear, require_linear, scikit_learn
from bigclf.model.mapped_weights import MAPPED_BYTES, is_mapped, score_mapped
from bigclf.model.scorer import Scorer
from bigclf.texts import card
from bigclf.units import format_bytes
from bigclf.version import __version__

if TYPE_CHECKING:
    import scipy.sparse
    from sklearn.base import BaseEstimator


FORMAT, VERSION = "bigclf-model", 7
# 2 where numbers are predicted, 3 for sparse weights, 4 for raw columns, 5 where it was calibrated, 6 for several
# labels a row, 7 where features are known by their place, else 1
SEVERAL = "multi-label"  # ``multiclass`` of a model of rows with several labels each
PIECE = 1 << 20  # weights that are looked at at a time
PIECE_BYTES = 32_000_000  # of decision values that are made at a time where classes alone are wanted
MANY_CLASSES = 1000
DENSE_SHARE = 0.5  # of the machine's memory, for the weights of all of very many features as one array
PROBABILITY_LOSSES = ("logistic",)
MOST_SHOWN = 10  # classes that a notebook lists
MOST_NAMED = 3  # models in a directory
_DTYPES: dict[str, np.dtype] = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "I64": np.dtype("<i8"),
                                "I32": np.dtype("<i4"), "U8": np.dtype("u1"), "U16": np.dtype("<u2"),
                                "U32": np.dtype("<u4")}  # fmt: skip


class StoredClasses(TypedDict):
    type: str
    values: list[bool] | list[int] | list[float] | list[str]


class StoredCalibration(TypedDict):
    method: str
    facts: dict[str, int]


class Header(TypedDict):
    """The JSON text in a model's file."""

    format: str
    version: int
    classes: StoredClasses | None
    features: dict[str, object]
    method: dict[str, object]
    certificate: dict[str, float] | None
    facts: dict[str, object]
    checksums: dict[str, str]
    n_features: NotRequired[int]
    columns: NotRequired[dict[str, object]]
    calibration: NotRequired[StoredCalibration]


NUMBERS = "feature_ids"  # the tensor of the features whose weights are kept, where they are not all
STATE = "state."  # what the names of a state's tensors begin with
COLUMNS = "columns."  # ... and of those with what was learned of raw columns
CALIBRATION = "calibration."
_MAX_HEADER = 100_000_000  # bytes; the limit of the safetensors library itself


@kernel
def score_rows(block, weights, bias, scores):  # type: ignore[no-untyped-def]
    """scores[i, k] = w_k . x_i + b_k for weights [K, d], bias [K], scores float64 [m, K]."""
    for i in range(block.indptr.size - 1):
        for k in range(bias.size):
            scores[i, k] = dot(block, i, weights[k]) + bias[k]


@kernel
def score_sparse_rows(block, indptr, indices, data, bias, scores):  # type: ignore[no-untyped-def]
    """The same for weights in columns [K, d] (CSC)."""
    for i in range(block.indptr.size - 1):
        for k in range(bias.size):
            scores[i, k] = 0.0
        for p in range(block.indptr[i], block.indptr[i + 1]):
            j, value = np.int64(block.indices[p]), entry(block, i, p)
            for q in range(indptr[j], indptr[j + 1]):
                scores[i, indices[q]] += np.float64(data[q]) * value
        for k in range(bias.size):
            scores[i, k] += bias[k]


class Model:
    """A linear classifier, or a linear regression.

    Large because it is what a person holds: each verb is here, in a few lines, and its work in a module of its own.

    Parameters
    ----------
    weights : float64 or float32 [K, d]; one row for two classes (positive for the greater) and for a regression, else
        one a class. Of a state that holds touched places only (very many classes) a scipy CSC matrix [K, d]. With
        ``feature_ids`` of these features alone.
    bias : float64 [K].
    classes : [2] or [K], ascending, in the type of the labels (int, float, bool or str); None: it predicts numbers.
    features : how the features were made (the ``features`` of the shards).
    method : ``name`` of the method, its ``loss`` and every parameter it was trained with.
    certificate : ``primal``, ``dual``, ``gap`` (relative) and ``reads``, or None for a method without one.
    facts : whatever else is known of the training (rows, seconds, seed, versions, progressive error ...).
    state : what a method knows beyond the weights (variances, sums, counts of steps) as arrays ``problem.field``, so
        that ``fit(init=...)`` and ``partial_fit`` go on exactly; None: the weights are all there is.
    learned : what was learned of raw columns, as arrays (``Learned`` in ``features/encode.py``); with it the model
        takes raw rows. None: it takes features.
    columns : the names of columns by which Parquet files of other programs were read (``columns`` of ``fit``): files
        that the model is given are read by the same. None: the usual names.
    feature_ids : the features that have a weight, of very many (``FeatureIds``); None: all have.

    Attributes
    ----------
    coef_, intercept_, classes_ : the arrays above (``coef_`` sparse where ``weights`` are, and CSR where few of very
        many features have a weight); of a voted perceptron the last vector, by which nothing is decided.
    weights : what is kept: ``coef_``, or its columns of ``feature_ids`` alone.
    calibration : what makes its probabilities (``bigclf.calibrate``), or None.
    result_ : the ``Result`` of the training, or None for a model that was loaded.
    """

    def __init__(
        self,
        weights: np.ndarray | scipy.sparse.spmatrix,
        bias: np.ndarray,
        classes: np.ndarray | None,
        features: dict[str, object] | None = None,
        method: Mapping[str, object] | None = None,
        certificate: dict[str, float] | None = None,
        facts: Mapping[str, object] | None = None,
        state: dict[str, np.ndarray] | None = None,
        learned: Mapping[str, np.ndarray] | None = None,
        columns: Mapping[str, object] | None = None,
        feature_ids: FeatureIds | None = None,
    ) -> None:
        self.weights: Any = _floats(weights)
        self.feature_ids = feature_ids
        self.intercept_ = np.asarray(bias, np.float64)
        self.classes_: Any = None if classes is None else _class_array(classes)
        self.features: dict[str, Any] = features or {"kind": "given", "version": 1}
        self.method: dict[str, Any] = dict(method or {})
        self.certificate: dict[str, Any] | None = certificate
        self.facts: dict[str, Any] = dict(facts or {})
        self.state, self.learned = dict(state or {}), dict(learned or {})
        self.columns: dict[str, Any] = dict(columns or {})
        self.calibration: Calibration | None = None
        self.said_reader: dict[str, object] = {}  # of ``reading``
        self.result_: Any = None
        self._check()

    def __setstate__(self, state: dict[str, object]) -> None:
        if "coef_" in state:  # pickled before 0.2
            state = {**state, "weights": state["coef_"], "feature_ids": None}
            del state["coef_"]
        self.__dict__.update(state)

    def _check(self) -> None:
        n_classes = 0 if self.regression else self.classes_.size
        rows = 1 if self.regression or (n_classes == 2 and not self.multilabel) else n_classes
        if not self.regression and n_classes < 2 - self.multilabel:
            raise ValueError(f"a model needs two classes or more, not {n_classes}")
        if self.weights.ndim != 2 or self.weights.shape[0] != rows or self.intercept_.shape != (rows,):
            what = "numbers" if self.regression else f"{n_classes} classes"
            raise ValueError(
                f"{what} need weights [{rows}, features] and bias [{rows}], "
                f"not {list(self.weights.shape)} and {list(self.intercept_.shape)}"
            )
        if self.feature_ids is not None and self.feature_ids.size != self.weights.shape[1]:
            raise ValueError(f"{self.feature_ids.size:,} numbers of features for {self.weights.shape[1]:,} weights")
        if not self.regression and not (self.classes_[:-1] < self.classes_[1:]).all():
            raise ValueError("the classes must ascend and differ")
        if not all_finite(self.weights, self.intercept_):
            raise ValueError("a weight is NaN or infinite")

    def _check_state(self) -> None:
        """ValueError where what a file says of the method or of columns is not what its arrays are of."""
        votes = {f"{k}.{name}" for k in range(self.intercept_.size) for name in voted_perceptron.Shared._fields}
        name, state = self.method.get("name"), set(self.state)
        check_relations([
            (name != "voted_perceptron" or not state or votes <= state, "method.name", "that of the state beside it"),
            (name == "voted_perceptron" or not votes <= state, "method.name", "voted_perceptron, whose state it has"),
            (is_columns(self.features) or not self.learned, "features.kind", "columns, of which it has learned"),
        ])  # fmt: skip
        voted_bias = name == "voted_perceptron" and self.method.get("bias") is None
        names = self.features.get("names")
        check_relations([
            (not voted_bias or not self.intercept_.any(), "method.bias", "feature, where the bias is not 0"),
            (not isinstance(names, list) or len(names) == self.n_features, "features.names", "one for each feature"),
        ])  # fmt: skip
        if self.learned:
            self.finisher.check()

    @property
    def n_features(self) -> int:
        """Columns d of ``coef_``, int."""
        return int(self.weights.shape[1]) if self.feature_ids is None else self.feature_ids.n_features

    @property
    def coef_(self) -> np.ndarray | scipy.sparse.spmatrix:
        """float [K, d]: the weights as an array, or a scipy matrix where most features have none."""
        ids = self.feature_ids
        if ids is None:
            return self.weights
        import scipy.sparse

        rows, n = self.weights.shape
        if self.sparse:
            csr = self.weights.tocsr()
            data, places, ends = csr.data, ids.numbers[csr.indices], csr.indptr
        else:
            data, places, ends = self.weights.ravel(), np.tile(ids.numbers, rows), n * np.arange(rows + 1)
        return scipy.sparse.csr_matrix((data, places, ends), shape=(rows, ids.n_features), copy=False)

    @coef_.setter
    def coef_(self, weights: np.ndarray | scipy.sparse.spmatrix) -> None:
        self.weights, self.feature_ids = weights, None

    def occurring(self) -> np.ndarray:
        """Find the features that have a weight other than 0, or are known by their place: int64, ascending."""
        if self.feature_ids is not None:
            return self.feature_ids.numbers
        return np.unique(self.weights.nonzero()[1]).astype(np.int64)

    def features_at(self, places: np.ndarray) -> np.ndarray:
        """Return the numbers of the features whose weights stand in ``places`` of ``weights``."""
        return places if self.feature_ids is None else self.feature_ids.numbers[places]

    def weights_of(self, features: np.ndarray) -> np.ndarray:
        """Return what each class gives ``features`` (numbers below ``n_features``), float64 [K, m]."""
        places, known = features, np.ones(features.size, np.bool_)
        if self.feature_ids is not None:
            places, known = self.feature_ids.places(features)
        held = self.weights[:, places[known]]
        found = np.zeros((self.intercept_.size, features.size))
        found[:, known] = held if isinstance(held, np.ndarray) else held.toarray()
        return found

    def by_place(self, ids: FeatureIds | None) -> Model:
        """Return a model with the weights of the features ``ids`` alone, numbered by their place; None: of all.

        Raises
        ------
        MemoryBudgetError : weights of all features do not fit into this machine's memory.
        """
        if ids is None and self.feature_ids is None:
            return self
        if ids is None:
            weights = self.dense_weights()
        elif ids.same_as(self.feature_ids):
            weights = self.weights
        else:
            weights = np.zeros((self.weights.shape[0], ids.size), self.weights.dtype)
            places, known = ids.places(self.features_at(np.arange(self.weights.shape[1])))
            held = self.weights.toarray() if self.sparse else self.weights
            weights[:, places[known]] = held[:, known]
        found = copy.copy(self)
        found.weights, found.feature_ids = weights, None
        return found

    @property
    def regression(self) -> bool:
        """Whether it predicts numbers, not classes."""
        return self.classes_ is None

    @property
    def binary(self) -> bool:
        """Whether it tells two classes apart."""
        return not self.regression and self.classes_.size == 2 and not self.multilabel

    @property
    def multilabel(self) -> bool:
        """Whether a row has any number of its classes: those whose decision value is at least 0."""
        return self.method.get("multiclass") == SEVERAL

    # Raw rows

    @functools.cached_property
    def finisher(self) -> Finisher:
        """What makes features of raw columns.

        Raises
        ------
        ValueError : the model does not know how its features were made.
        """
        if not self.learned:
            what = "lacks what was learned of them" if is_columns(self.features) else "was trained on features"
            raise ValueError(f"raw columns cannot be predicted: this model {what}; convert the rows to shards")
        return Finisher(parse(self.features), checked(self.learned, self.features, ""))

    def reading(self, options: Mapping[str, object]) -> Model:
        """The same model for raw files that are read in another way: options of the reader of a spec, such as
        ``header=False, names=[...]``. Of a model of sparse rows ``format``: what its text is ("svmlight", "vw" or a
        reader of your own), where the files' names do not tell.

        Raises
        ------
        ValueError : the model does not take raw files. SchemaError : naming the option.
        """
        if not is_columns(self.features) and options.keys() == {"format"}:
            if options["format"] in RAW_FORMATS:
                raise ValueError(f"this model was trained on sparse rows, so format={options['format']!r}"
                                 " does not say which features columns are; fit a model on the raw table")  # fmt: skip
            found = copy.copy(self)
            found.features = {**self.features, "reader": dict(options)}
            return found
        own = self.finisher.spec.reader
        form = str(options.get("format") or own.get("format", "csv"))
        kept = {name: value for name, value in in_format(own, form).items()
                if name != "names" or not options.get("header")}  # fmt: skip
        if "format" not in options and form not in LINES and options:  # for files whose names tell csv or tsv
            reading({**options, "format": "csv"})
            how = dict(own)
        else:
            how = reading({**kept, **options}).as_json()
        found = copy.copy(self)
        found.__dict__.pop("finisher", None)
        found.features, found.said_reader = {**self.features, "reader": how}, {**self.said_reader, **options}
        return found

    def finisher_of(self, data: object) -> Finisher:
        """The same, with a reader for the raw files ``data``: that which the model learned by, or of the format that
        their names tell.

        Raises
        ------
        SchemaError : their names tell several.
        """
        spec = self.finisher.spec
        reader = as_named(spec.reader, data, spec.columns, self.said_reader)
        if reader == spec.reader:
            return self.finisher
        return Finisher(dataclasses.replace(spec, reader=dict(reader)), self.finisher.learned)

    def is_raw(self, data: object) -> bool:
        """Whether ``data`` is rows of raw columns (a table, or files that are no shards) for a model of such."""
        if not is_columns(self.features) or isinstance(data, np.ndarray):
            return False
        if is_stored(data):
            return not hasattr(data, "decode") and are_raw(data)
        return is_table(data)

    def raw_blocks(self, data: object, unseen: str | None = None) -> Iterator[tuple[str, Block]]:
        """(file, rows) of ``data``, raw files or one table, as features; labels NaN. ``unseen`` : what is done about
        categories that are not known, "error" or (None) "ignore"."""
        if is_stored(data):
            yield from blocks_of(self.finisher_of(data), data, unseen or "ignore")
        else:
            yield "", table_block(self.finisher, data, unseen=unseen or "ignore")

    def encode(self, data: object, *, unseen: str = "ignore") -> scipy.sparse.csr_matrix:
        """Raw rows as the features that the model was trained on: what exports to scikit-learn and ONNX take.

        Parameters
        ----------
        data : a table with the model's columns (pandas, Polars, Arrow, lists by name), or raw files.
        unseen : of categories that the model does not know, ``"ignore"`` or ``"error"``.

        Returns
        -------
        float32 [n, d], whose columns ``explain`` names.

        Raises
        ------
        ValueError : the model was not trained on raw columns, or ``data`` are none.
        """
        import scipy.sparse

        if not self.is_raw(data):
            raise ValueError("encode takes raw columns, such as the model was trained on: a table or raw files")
        blocks = [block for _, block in self.raw_blocks(data, unseen)]
        parts = [scipy.sparse.csr_matrix((explicit_values(block), block.indices.astype(np.int64), block.indptr),
                                         shape=(block.n_rows, self.n_features)) for block in blocks]  # fmt: skip
        return scipy.sparse.vstack(parts, "csr") if parts else scipy.sparse.csr_matrix((0, self.n_features), np.float32)

    @property
    def plain_columns(self) -> list[str] | None:
        """Names of the columns of numbers that are its features as they are, of a frame or of Parquet; None where they
        are not known."""
        return plain_names(self.features, self.columns.get("features"))

    def require_names(self, X: object, unseen: str | None = None) -> None:
        """ValueError where X is a frame whose columns have other names, or another order, than those trained on; where
        ``unseen`` is "ignore", more may follow."""
        mine = self.plain_columns
        if mine is None or is_stored(X):
            return
        its = column_names(X)
        if len(its) < len(mine) and not {*its} & {*mine}:  # a column of vectors, or too few of any name: told later
            return
        names = names_in(self.features)
        way = f"X.select({names})" if hasattr(X, "column_names") else f"X[{names}]"
        require_same_names(mine, its[: len(mine)] if unseen == "ignore" else its, way)

    def require_rows(self, dataset: Dataset) -> None:
        """DataError where ``dataset`` holds other features than the model's (``require_same_columns``)."""
        require_same_columns(self, dataset)

    def row_by_names(self, row: object) -> object:
        """One row as it is, a pandas Series or a dict with names in the order of the model's columns; ValueError: its
        names are others."""
        mine, held = self.plain_columns, cast("Any", row)
        by_name = isinstance(row, Mapping) and not hasattr(row, "tocsr")
        index = list(held if by_name else held.index) if by_name or hasattr(row, "iloc") else []
        if mine is None or hasattr(row, "columns") or not index or not all(isinstance(name, str) for name in index):
            self.require_names(row)
            return row
        if twice := [name for name in index if index.count(name) > 1]:
            raise ValueError(f"X has {twice[0]!r} {index.count(twice[0])} times")
        if sorted(index) != sorted(mine):
            require_same_names(mine, index, "row[model.plain_columns]")
        found = np.asarray([*held.values()] if by_name else row, np.float64)
        return found[[index.index(name) for name in mine]]

    def _score_raw(self, data: object, unseen: str | None) -> np.ndarray:
        nothing = np.empty((0, self.intercept_.size))
        blocks = self.raw_blocks(data, unseen)
        return np.concatenate([nothing, *(self.score_block(block)[0] for _, block in blocks)])

    # Predicting

    def decision_function(self, X: object, *, unseen: str | None = None) -> np.ndarray:
        """w . x + b for every row.

        Parameters
        ----------
        X : numpy, scipy sparse or pandas [n, d]; or shards: a path, directory, glob, list of them, or Dataset. Of a
            model of raw columns also these: a pandas or Polars frame, an Arrow table, a table of lists, or raw files.
        unseen : what to do with features the model does not know: ``"error"`` (default for arrays), or ``"ignore"``
            (default for shards) with a warning that counts them. Of raw columns these are categories of columns whose
            categories are known one by one, by default ignored.

        Returns
        -------
        float64 [n] for two classes (positive for the greater) and for a regression, else float64 [n, K]; always [n, K]
        where rows have several labels each.

        Raises
        ------
        ValueError : an array that has other features than the model, or NaN or infinite entries; a frame whose columns
            have other names, or another order, than that which the model was trained on.
        DataError : shards that cannot be read.
        """
        return self._decision(X, unseen)

    def _decision(self, X: object, unseen: str | None) -> np.ndarray:
        """The same for methods that people call: a warning names the line that called them."""
        self.require_names(X, unseen)
        if self.is_raw(X):
            return self.flat(self._score_raw(X, unseen))
        if is_stored(X):
            scores, skipped = self._score_shards(X, unseen or "ignore")
        else:
            scores, skipped = self._score_array(X, unseen or "error")
        if skipped:
            warnings.warn(unseen_text(skipped, self.n_features), stacklevel=3)
        return self.flat(scores)

    def flat(self, scores: np.ndarray) -> np.ndarray:
        """Decision values ``scores`` [m, K] as they are given to people: [m] where K is 1."""
        return scores[:, 0] if self.intercept_.size == 1 and not self.multilabel else scores

    def predict(self, X: object, *, unseen: str | None = None) -> np.ndarray:
        """The class of every row, [n] in the type of the training labels (``X``, ``unseen``: ``decision_function``).

        Of a regression it is the number, float64 [n].
        A decision value of zero is the positive class; of equal values the smallest class wins. Where rows have several
        labels each it is an indicator matrix, scipy CSR of int8 [n, K]: 1 for each label whose value is at least 0.
        """
        if self.multilabel:
            return self._indicators(X, unseen)
        if not self.many:
            return self.said(self._decision(X, unseen))
        self.require_names(X, unseen)
        if self.is_raw(X):
            codes = [self.codes_of_block(block)[0] for _, block in self.raw_blocks(X, unseen)]
            return np.asarray(self.classes_[np.concatenate([np.empty(0, np.intp), *codes])])
        if is_stored(X):
            return self._said_of_shards(X, unseen or "ignore")
        found = _matrix(X)
        step = max(1, PIECE_BYTES // (8 * self.intercept_.size))
        starts = range(0, max(1, found.shape[0]), step)
        return np.concatenate([self.said(self.decision_function(found[a : a + step], unseen=unseen)) for a in starts])

    def _indicators(self, X: object, unseen: str | None) -> scipy.sparse.csr_matrix:
        """The labels of every row; decision values are made of a bounded number of rows at a time."""
        import scipy.sparse

        self.require_names(X, unseen)
        if not self.is_raw(X) and not is_stored(X):
            found = _matrix(X)
            step = max(1, PIECE_BYTES // (8 * self.intercept_.size))
            starts = range(0, max(1, found.shape[0]), step)
            values = (self.decision_function(found[a : a + step], unseen=unseen) for a in starts)
            parts = [scipy.sparse.csr_matrix(value >= 0, dtype=np.int8) for value in values]
            return scipy.sparse.vstack(parts, "csr")
        if self.is_raw(X):
            blocks: Iterator[Block] = (block for _, block in self.raw_blocks(X, unseen))
        else:
            assert is_stored(X)
            rows = as_trained(X, self.columns, need_labels=False)
            require_same_columns(self, rows)
            blocks = rows.blocks()
        parts, skipped = [scipy.sparse.csr_matrix((0, self.intercept_.size), dtype=np.int8)], 0
        for block in blocks:
            (indptr, members), more = self.sets_of_block(block)
            skipped += more
            if skipped and unseen == "error":
                raise ValueError(unseen_text(skipped, self.n_features) + " (unseen='error')")
            ones = np.ones(members.size, np.int8)
            parts.append(scipy.sparse.csr_matrix((ones, members, indptr), (block.n_rows, self.intercept_.size)))
        if skipped:
            warnings.warn(unseen_text(skipped, self.n_features), stacklevel=3)
        return scipy.sparse.vstack(parts, "csr")

    def sets_of_block(self, block: Block) -> tuple[tuple[np.ndarray, np.ndarray], int]:
        """The labels of the rows of a checked block, as indptr [m + 1] and positions in ``classes_``, and how many
        entries had features not in the model; a bounded number of rows at a time."""
        rows, members, skipped = [np.empty(0, np.int64)], [np.empty(0, np.int32)], 0
        for first, scores, more in self.pieces(block):
            row, member = np.nonzero(scores >= 0)
            rows.append(first + row)
            members.append(member.astype(np.int32))
            skipped += more
        counts = np.bincount(np.concatenate(rows), minlength=block.n_rows)
        return (np.concatenate([[0], np.cumsum(counts)]), np.concatenate(members)), skipped

    def pieces(self, block: Block) -> Iterator[tuple[int, np.ndarray, int]]:
        """(first row, decision values [m, K], entries with features not in the model) of the rows of a ``block``, a
        bounded number at a time."""
        step = max(1, PIECE_BYTES // (8 * self.intercept_.size))
        for a in range(0, block.n_rows, step):
            yield a, *self.score_block(rows_of(block, a, min(block.n_rows, a + step)))

    def said(self, scores: np.ndarray) -> np.ndarray:
        """Classes or numbers [n] for decision values ``scores`` [n] or [n, K]."""
        labels: np.ndarray = scores if self.regression else self.classes_[self.codes(scores)]
        return labels

    @property
    def predict_proba(self) -> Callable[..., np.ndarray]:
        """Probabilities float64 [n, classes]; only of a model that was calibrated (``bigclf.calibrate``), or trained
        with a loss that models them. Of more than two classes they are the softmax where all were learned at once, else
        those of one against the rest, made to sum to 1. Of several labels a row each has its own.

        Raises
        ------
        AttributeError : the loss gives no probabilities, and the model was not calibrated.
        """
        if reason := self.no_probabilities():
            raise AttributeError(reason)
        return self._predict_proba

    def _predict_proba(self, X: object, *, unseen: str | None = None) -> np.ndarray:
        return self.probabilities(self._decision(X, unseen))

    def no_probabilities(self) -> str | None:
        """Why the model has no ``predict_proba``, or None when it has."""
        loss = self.method.get("loss")
        if self.regression:
            return "a model that predicts numbers has no classes, so no probabilities"
        if loss in PROBABILITY_LOSSES or self.calibration is not None:
            return None
        calibrated = "" if self.multilabel else " or calibrated (bigclf.calibrate, `bigclf calibrate`)"
        return f"probabilities come from models trained with loss='logistic'{calibrated}; this one has loss={loss!r}"

    def probabilities_text(self) -> str:
        """Of what the probabilities are that it gives, and how they come about."""
        if self.calibration is not None:
            how = "calibrated by " + {"platt": "Platt's sigmoid"}.get(self.calibration.method, "isotonic regression")
        else:
            how = "as trained with the logistic loss, not calibrated on other rows"
            how += "" if self.multilabel else " (`bigclf calibrate` does that)"
        of = f"of {str(self.classes_[1])!r}, the label that sorts last" if self.binary else "of each class"
        return f"{of}; {how}"

    def codes(self, scores: np.ndarray) -> np.ndarray:
        """Positions in ``classes_``, int [n], for decision values ``scores`` [n] or [n, K]."""
        return (scores >= 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)

    def probabilities(self, scores: np.ndarray) -> np.ndarray:
        """Probabilities float64 [n, classes] for decision values ``scores`` [n] or [n, K] of a model that has them; of
        several labels a row each label's own."""
        if self.calibration is not None:
            return self.calibration.shares(scores)
        logs = -np.logaddexp(0, -scores)  # of 1 / (1 + exp(-s)), without overflow
        if self.multilabel:
            return np.exp(logs)
        if scores.ndim == 1:
            return np.column_stack([np.exp(-np.logaddexp(0, scores)), np.exp(logs)])
        if self.method.get("multiclass") == "multinomial":
            logs = scores
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))  # the largest is 1: their sum is never 0
        return shares / shares.sum(axis=1, keepdims=True)

    def score_block(self, block: Block) -> tuple[np.ndarray, int]:
        """Decision values float64 [m, K] of a checked block, and how many entries had features not in the model."""
        block, skipped = self._placed(block)
        if self.voted:
            return self._vote(block), skipped
        scores = np.empty((block.n_rows, self.intercept_.size))
        self._score(block, scores)
        return scores, skipped

    def _placed(self, block: Block) -> tuple[Block, int]:
        """The block with features as ``weights`` has them, and how many entries had features not in the model."""
        return known_entries(block, self.n_features, self.feature_ids)

    def _score(self, block: Block, scores: np.ndarray) -> None:
        if self.mapped:
            score_mapped(block, self.weights, self.intercept_, scores)
        elif self.sparse:
            c = self.weights
            score_sparse_rows(block, writable(c.indptr), writable(c.indices), writable(c.data), self.intercept_, scores)
        else:
            score_rows(block, self.weights, self.intercept_, scores)

    def codes_of_block(self, block: Block) -> tuple[np.ndarray, int]:
        """Positions in ``classes_`` [m] for the rows of a checked block, and how many entries had features not in the
        model; decision values are made of a bounded number of rows at a time."""
        step = max(1, PIECE_BYTES // (8 * self.intercept_.size))
        codes, skipped = np.empty(block.n_rows, np.intp), 0
        for a in range(0, block.n_rows, step):
            scores, more = self.score_block(rows_of(block, a, min(block.n_rows, a + step)))
            codes[a : a + step], skipped = self.codes(self.flat(scores)), skipped + more
        return codes, skipped

    @property
    def voted(self) -> bool:
        """Whether it decides by the votes of many vectors: ``coef_`` is then the last one alone."""
        return self.method.get("name") == "voted_perceptron" and bool(self.state)

    def _vote(self, block: Block) -> np.ndarray:
        """Shares of the votes for less those against, float64 [m, K] in [-1, 1]."""
        scores = np.empty((block.n_rows, self.intercept_.size))
        room, bias = np.zeros(self.weights.shape[1]), float(self.method.get("bias") == "feature")
        for k in range(self.intercept_.size):
            kind = voted_perceptron.Shared
            votes = kind(*(np.array(self.state[f"{k}.{name}"]) for name in kind._fields))
            column = np.empty(block.n_rows)
            voted_perceptron.vote(alike(block), votes, bias, room, column)
            scores[:, k] = column
        return scores

    @property
    def sparse(self) -> bool:
        """Whether ``weights`` are a scipy matrix."""
        return not isinstance(self.weights, np.ndarray)

    @property
    def mapped(self) -> bool:
        """Whether the weights are sparse and stay in a file, whose pages take no memory that others need."""
        return self.sparse and is_mapped(self.weights.data)

    @property
    def many(self) -> bool:
        """Whether decision values of a row group can be too many for memory: classes are then said piece by piece."""
        return not (self.regression or self.multilabel) and (self.sparse or self.intercept_.size > MANY_CLASSES)

    @property
    def n_bytes(self) -> int:
        """Bytes that the weights take, int."""
        c = self.weights
        numbers = 0 if self.feature_ids is None else self.feature_ids.numbers.nbytes
        return int(c.data.nbytes + c.indices.nbytes + c.indptr.nbytes if self.sparse else c.nbytes) + numbers

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that the weights take, int: of mapped ones none but where columns begin."""
        return int(self.weights.indptr.nbytes) if self.mapped else self.n_bytes

    def dense_weights(self) -> np.ndarray:
        """``coef_`` as an array.

        Raises
        ------
        MemoryBudgetError : with zeros for the features that have no weight it does not fit into this machine's memory.
        """
        coef = self.coef_
        if self.feature_ids is not None:
            size, room = math.prod(coef.shape) * coef.dtype.itemsize, memory_limit()[0]
            if size > DENSE_SHARE * room:
                raise MemoryBudgetError(
                    f"the weights of all {self.n_features:,} features as one array take {format_bytes(size)}, and this "
                    f"machine has {format_bytes(room)}; coef_ is a sparse matrix, and feature_ids.numbers names the "
                    f"{self.feature_ids.size:,} that have a weight"
                )
        weights: np.ndarray = coef if isinstance(coef, np.ndarray) else coef.toarray()
        return weights

    def _said_of_shards(self, data: Stored, unseen: str) -> np.ndarray:
        rows = as_trained(data, self.columns, need_labels=False)
        require_same_columns(self, rows)
        codes, skipped, first = np.empty(rows.n_rows, np.intp), 0, 0
        for block in rows.blocks():
            codes[first : first + block.n_rows], more = self.codes_of_block(block)
            first, skipped = first + block.n_rows, skipped + more
            if skipped and unseen == "error":
                raise ValueError(unseen_text(skipped, self.n_features) + " (unseen='error')")
        if skipped:
            warnings.warn(unseen_text(skipped, self.n_features), stacklevel=3)
        return np.asarray(self.classes_[codes])

    def _score_shards(self, data: Stored, unseen: str) -> tuple[np.ndarray, int]:
        rows = as_trained(data, self.columns, need_labels=False)
        require_same_columns(self, rows)
        scores, skipped, first = np.empty((rows.n_rows, self.intercept_.size)), 0, 0
        for block in rows.blocks():
            m = block.n_rows
            scores[first : first + m], more = self.score_block(block)
            first, skipped = first + m, skipped + more
            if skipped and unseen == "error":
                raise ValueError(unseen_text(skipped, self.n_features) + " (unseen='error')")
        return scores, skipped

    def _columns_text(self, most: int = 5) -> str:
        """What a model of raw columns takes, for who gave it an array; "" of any other model."""
        if not is_columns(self.features) or not self.learned:
            return ""
        names = self.finisher.spec.columns
        shown = ", ".join(names[:most]) + (f", ... ({len(names):,} in all)" if len(names) > most else "")
        return (f"the model takes a table with the column{'s' * (len(names) > 1)} {shown}: give it a data frame or raw "
                "files, or model.encode(frame)")  # fmt: skip

    def _score_array(self, X: object, unseen: str) -> tuple[np.ndarray, int]:
        import scipy.sparse

        rows = _matrix(X)
        sparse, skipped, d = scipy.sparse.issparse(rows), 0, rows.shape[1]
        if (not sparse and d < self.n_features) or (d != self.n_features and unseen == "error"):
            told = self._columns_text() or f"the model is expecting {self.n_features} features as input"
            raise ValueError(f"X has {d} features, but {told}")
        if not np.isfinite(rows.data if sparse else rows).all():
            if isinstance(rows, np.ndarray):
                row, column = np.argwhere(~np.isfinite(rows))[0].tolist()
            else:
                row, column = not_finite(rows.indptr, rows.indices, rows.data)
            raise ValueError(f"Input X contains NaN or infinity in row {row}, column {column}{FROM_0}; the model needs "
                             "finite numbers")  # fmt: skip
        if d > self.n_features:
            if not isinstance(rows, np.ndarray):
                skipped = int(rows.indptr[-1] - np.count_nonzero(rows.indices < self.n_features))
            rows = rows[:, : self.n_features]
        rows = rows if self.feature_ids is None else _columns_by_place(rows, self.feature_ids)
        if self.voted:
            return self._vote(_block_of(rows)), skipped
        if self.sparse:
            scores = np.empty((rows.shape[0], self.intercept_.size))
            self._score(_block_of(rows, np.float64), scores)
            return scores, skipped
        if rows.dtype == self.weights.dtype == np.float32:
            rows = rows.astype(np.float64)  # two float32 would be summed as such; of shards they are not
        scores = rows @ self.weights[:, : rows.shape[1]].T
        return np.asarray(scores, np.float64) + self.intercept_, skipped

    def digest(self) -> str:
        """Hex over weights, bias, classes and calibration: the same only for models that predict the same."""
        classes = None if self.regression else self.classes_.tolist()
        shape = self.intercept_.size, self.n_features
        told = (shape, classes, SEVERAL) if self.multilabel else (shape, classes)
        digest, c = hashlib.blake2b(repr(told).encode(), digest_size=16), self.weights
        for array in (c.data, c.indices, c.indptr) if self.sparse else (c,):
            digest.update(np.ascontiguousarray(array).data)
        digest.update(self.intercept_.data)
        if self.feature_ids is not None:
            digest.update(np.ascontiguousarray(self.feature_ids.numbers).data)
        if self.voted:
            _add_state(digest, self.state)
        if self.calibration is not None:
            _add_state(digest, {self.calibration.method: self.calibration.values, "ends": self.calibration.ends})
        return digest.hexdigest()

    def state_digest(self) -> str:
        """Hex over what a run that goes on from this model takes up: weights, bias, classes and state."""
        digest = hashlib.blake2b(self.digest().encode(), digest_size=16)
        _add_state(digest, self.state)
        return digest.hexdigest()

    # What others make of it

    def scorer(self, unseen: str = "error") -> Scorer:
        """A ``Scorer`` of single rows (``model/scorer.py``): ``scorer(row)`` is the decision value, ``predict(row)``
        the class, in microseconds; ``unseen`` as in ``decision_function``."""
        return Scorer(self, unseen)

    def explain(
        self, data: Stored | None = None, *, top: int = 20, only: object = None, names: NamesGiven | None = None
    ) -> Explanation:
        """The ``top`` largest weights of each class (or of the class ``only``), with ``names``, counts of the rows of
        labelled shards ``data`` and standard errors where there are any (``bigclf.model.explanations.explain``)."""
        return explain(self, data=data, top=top, only=only, names=names)

    def explain_row(
        self, row: object, *, top: int = 20, only: object = None, names: NamesGiven | None = None
    ) -> RowExplanation:
        """What each entry of ``row`` adds to its score: the ``top`` largest, for the class ``only`` or the one that is
        predicted, with ``names`` of features (``bigclf.model.explanations.explain_row``)."""
        return explain_row(self, row, top=top, only=only, names=names)

    def export(self, path: str | os.PathLike[str], to: str, *, overwrite: bool = False, **options: object) -> Export:
        """Write the model in a format of others.

        Parameters
        ----------
        path : the file; for ``"numpy"`` the module, whose weights go beside it as ``.npz``.
        to : ``"liblinear"`` (text; option ``codes``: positions of the classes in place of their labels), ``"onnx"``
            (extra ``onnx``), ``"sklearn"`` (a joblib file), ``"parquet"`` (a table of the weights that are not 0;
            option ``names`` as in ``explain``), ``"sql"`` (a SELECT for DuckDB or PostgreSQL; options ``dialect`` and
            ``table``, its name), ``"c"`` (a C file that scores rows of text fields) or ``"numpy"`` (a module that
            scores, and needs only numpy; of a model of raw columns tables too). Of such a model scikit-learn's
            estimator and the graph take the rows of ``encode``; the notes say which columns those are made of.
        overwrite : replace what is there.
        options : the format's own, as above.

        Returns
        -------
        dict : to, files, bytes, and notes that whoever uses the files should know.

        Raises
        ------
        RunError : what the format cannot hold, named, or a file that exists.
        """
        return export(self, os.fspath(path), to, overwrite=overwrite, **options)

    def to_sklearn(self) -> BaseEstimator:
        """A fitted scikit-learn estimator with these weights: ``LinearSVC``, ``LogisticRegression`` (one a class where
        each was learned against the rest) or ``LinearSVR``. RunError for a voted perceptron."""
        require_linear(self, "sklearn")
        return scikit_learn.estimator(self)

    @classmethod
    def from_liblinear(cls, path: str | os.PathLike[str]) -> Model:
        """Read the model that LIBLINEAR wrote to ``path`` (its feature j is ours j - 1).

        Raises
        ------
        ModelFormatError : it is none, or damaged; the message names the line.
        """
        name = os.fspath(path)
        _require_file(name)
        try:
            read = liblinear.read(name)
            return cls(*read[:3], method=read.method, facts={"imported": files.base_name(name)})
        except (ModelFormatError, ValueError) as error:
            raise ModelFormatError(f"{name}: {error}") from None

    # The file

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to ``path``, which holds the old file or the whole new one, never a part; directories above
        it are made."""
        tensors = {"weights": np.ascontiguousarray(self.weights.data if self.sparse else self.weights)}
        if self.sparse:
            tensors |= {"indices": self.weights.indices, "indptr": self.weights.indptr}
        tensors["bias"] = self.intercept_
        if self.feature_ids is not None:
            tensors[NUMBERS] = self.feature_ids.numbers
        tensors |= {STATE + name: np.ascontiguousarray(array) for name, array in self.state.items()}
        tensors |= {COLUMNS + name: np.ascontiguousarray(array) for name, array in self.learned.items()}
        kept = self.calibration
        if kept is not None:
            tensors |= {CALIBRATION + "values": kept.values, CALIBRATION + "ends": kept.ends}
        header = {
            "format": FORMAT,
            "version": self._version(),
            **({} if kept is None else {"calibration": {"method": kept.method, "facts": kept.facts}}),
            "classes": None if self.regression else _as_stored(self.classes_),
            "features": self.features,
            "method": self.method,
            "certificate": self.certificate,
            "facts": self.facts,
            **({"columns": self.columns} if self.columns else {}),
            **({} if self.feature_ids is None else {"n_features": self.n_features}),
        }

        def metadata(sums: dict[str, str]) -> dict[str, str]:
            return {"bigclf": sealed(json.loads(json.dumps({**header, "checksums": sums}, default=plain))).decode()}

        if files.is_directory(path):
            raise RunError(f"{path}: is a directory; name a file for the model")
        files.make_directory(files.parent_directory(path))
        if self.mapped:  # the library would take all bytes into memory
            with files.publishing(path) as beside:
                largest_first = sorted(tensors.items(), key=lambda item: -item[1].itemsize)  # so that all are aligned
                write_tensors(beside, dict(largest_first), metadata)
            return
        files.publish_tensors(path, tensors, metadata({name: checksum(tensor) for name, tensor in tensors.items()}))

    def _version(self) -> int:
        """Of the format: the first that has what it holds."""
        if self.feature_ids is not None:
            return 7
        if self.multilabel:
            return 6
        if self.calibration is not None:
            return 5
        return 4 if self.learned else 3 if self.sparse else 2 if self.regression else 1

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Model:
        """Read a model from the file ``path``.

        Sparse weights of a local file of 64 MB or more stay in it, mapped: they are read where they are needed, and
        the file must not be changed in place meanwhile (``save`` puts a new one in its place).

        Raises
        ------
        ModelFormatError : not a bigclf model, damaged, or written by a newer bigclf.
        """
        name = os.fspath(path)
        _require_file(name)
        return cls._load(name, MAPPED_BYTES)

    @classmethod
    def map(cls, path: str | os.PathLike[str]) -> Model:
        """Read a model from the file ``path``, and leave its arrays in it, mapped, whatever their size.

        A file on remote storage is read whole. The file must not be changed in place meanwhile.

        Raises
        ------
        ModelFormatError : as of ``load``.
        """
        name = os.fspath(path)
        _require_file(name)
        return cls._load(name, 0)

    @classmethod
    def _load(cls, name: str, mapped_from: int) -> Model:
        size = math.inf if files.is_remote(name) else files.file_size(name)
        try:
            if max(1, mapped_from) <= size < math.inf:
                view = files.mapped(name)
                table, _ = tensor_table(view[: header_length(view[:8], len(view))], len(view))
                if mapped_from == 0 or "indptr" in table:
                    return cls._from_bytes(view)
            return cls._from_bytes(files.read_bytes(name))
        except ModelFormatError as error:
            raise ModelFormatError(f"{name}: {error}") from None

    @classmethod
    def _from_bytes(cls, data: bytes | mmap.mmap) -> Model:
        tensors, metadata = read_tensors(data)
        header = _header(metadata)
        own = ("weights", "bias")
        for name in (*own, *(name for name in header["checksums"] if name not in own)):
            if name not in tensors:
                raise ModelFormatError(f"not a complete model: tensor {name!r} is missing")
            if name in own and tensors[name].dtype.kind != "f":
                raise ModelFormatError(f"not a usable model: tensor {name!r} holds no floating-point numbers")
            if header["checksums"].get(name) != checksum(tensors[name]):
                raise ModelFormatError(f"damaged: the checksum of tensor {name!r} does not match; copy the file again")
        try:
            _check_header(header)
            classes = None if header["classes"] is None else _stored_classes(header["classes"])
            rest = (header["features"], header["method"], header["certificate"], header["facts"])
            state, learned = (
                {name[len(mark) :]: array for name, array in tensors.items() if name.startswith(mark)}
                for mark in (STATE, COLUMNS)
            )
            weights = tensors["weights"]
            if "indptr" in tensors:
                weights = _columns(weights, tensors["indices"], tensors["indptr"], tensors["bias"].size)
            columns = _stored_columns(header.get("columns", {}))
            ids = _feature_ids(tensors, header)
            model = cls(weights, tensors["bias"], classes, *rest, state, learned, columns, ids)
            if (kept := header.get("calibration")) is not None:
                values, ends = (tensors[CALIBRATION + name] for name in ("values", "ends"))
                model.calibration = Calibration(kept["method"], values, ends, kept["facts"])
                model.calibration.check(model.intercept_.size)
            model._check_state()
            return model
        except (KeyError, TypeError, ValueError, OverflowError, SchemaError) as error:
            raise ModelFormatError(f"not a usable model: {error}") from None

    def __repr__(self) -> str:
        name = self.method.get("name", "?")
        gap = f", certified gap {self.certificate['gap']:.1e}" if self.certificate else ""
        kind = "labels" if self.multilabel else "classes"
        what = "numbers" if self.regression else f"{self.classes_.size} {kind}"
        return f"<Model {name}: {what}, {self.n_features:,} features{gap}>"

    def _repr_html_(self) -> str:
        """For notebooks: how it was trained, how good it is, and how its training went."""
        told = {name: value for name, value in self.method.items() if name not in ("name", "bias", "free_bias")}
        facts = {
            "method": self.method.get("name", "?"),
            "parameters": ", ".join(f"{name}={value}" for name, value in told.items() if value is not None),
            "bias": self.method.get("bias"),
            "predicts": "numbers" if self.regression else ", ".join(map(str, self.classes_[:MOST_SHOWN])),
            "more classes": max(0, self.classes_.size - MOST_SHOWN) or "" if not self.regression else "",
            "features": f"{self.n_features:,}",
            "certified gap": f"{self.certificate['gap']:.1e}" if self.certificate else "",
        }
        training = "" if self.result_ is None else self.result_._repr_html_()
        return card("Model", facts, training)


def _require_file(name: str) -> None:
    if not files.exists(name):
        found = files.meant(name)
        instead = f"did you mean {found!r}?" if found else f"nearest directory is {files.nearest_directory(name)}"
        raise ModelFormatError(f"{name}: no such file; {instead}")
    if files.is_directory(name):
        inside = sorted((one for one in files.list_directory(name) if one.endswith(".bigclf")), key=_by_number)
        shown = ", ".join(files.join(name, one) for one in inside[:MOST_NAMED]) + ", ..." * (len(inside) > MOST_NAMED)
        raise ModelFormatError(f"{name}: a directory; a model is one file" + f": {shown}" * bool(inside))


def _by_number(name: str) -> tuple[int, str]:
    """Names that end in numbers by these: model-2 before model-10."""
    return len(name), name


def _add_state(digest: hashlib.blake2b, state: dict[str, np.ndarray]) -> None:
    for name, array in sorted(state.items()):
        digest.update(f"{name}{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)


load = Model.load


def as_model(thing: object) -> Model:
    """A model as it is, or the one in the file of this path.

    Raises
    ------
    TypeError : it is neither. ModelFormatError : as of ``load``.
    """
    if isinstance(thing, str | os.PathLike):
        return Model.load(thing)
    if not isinstance(thing, Model):
        raise TypeError(f"the first argument is a model, or the path of one, not a {type(thing).__name__}")
    return thing


def is_stored(X: object) -> TypeGuard[Stored]:
    """True for what names shards: a path, a list of paths or a Dataset."""
    if isinstance(X, (str, os.PathLike)):
        return True
    if isinstance(X, (list, tuple)):
        return bool(X) and all(isinstance(item, (str, os.PathLike)) for item in X)
    return hasattr(X, "decode") and hasattr(X, "fingerprints")


def require_same_columns(model: Model, dataset: Dataset) -> None:
    """Refuse rows of other columns than the model's, and shards whose raw columns were made features by other means,
    frequencies or dictionaries.

    Raises
    ------
    DataError : naming the columns, or saying how to convert them.
    """
    require_same_numbers(model.features, model.columns.get("features"), dataset)
    mine, its = model.features, dataset.features
    if is_columns(mine) and is_columns(its) and mine["learned"]["digest"] != its["learned"]["digest"]:
        raise DataError("these shards were made with what was learned of other rows than the model's; give the model "
                        "the raw files, or convert them with its features (convert --features-of MODEL)",
                        file=dataset.files[0])  # fmt: skip


def require_same_numbers(features: Mapping[str, object], told: object, dataset: Dataset) -> None:
    """The same of columns of numbers that are features as they are, where both sides know the names of theirs: of those
    trained on ``features`` or what files were read by (``told``) tell them."""
    require_named(told, dataset.features, dataset.files[0])
    mine = plain_names(features, told)
    its, path = plain_names(dataset.features, dataset.layout.values), dataset.files[0]
    if mine and is_columns(dataset.features):
        raise DataError(f"these shards hold features made of raw columns, and the model takes the columns {_some(mine)}"
                        " as they are: give it rows with these, or train a model on the table", file=path)  # fmt: skip
    if are_numbered(features) and is_columns(dataset.features):
        raise DataError("these shards hold features made of raw columns, and the model takes features by their numbers "
                        "in text: give it rows of such text, or train a model on the table", file=path)  # fmt: skip
    if its and is_columns(features):
        raise DataError(f"the columns {_some(its)} are features as they are here, and the model makes features of the "
                        "raw columns: give it the file itself", file=path)  # fmt: skip
    if are_numbered(features) and its and not are_counted(its):
        raise DataError(f"the file has the columns {_some(its)}, and the model takes features by their numbers in text:"
                        " give it rows of such text, or train a model on such columns", file=path)  # fmt: skip
    if mine and its and (told := names_differ(mine, its)):
        raise DataError(f"the file has {told}", file=path)


def _some(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + ", ..." * (len(names) > most)


def unseen_text(count: int, n_features: int) -> str:
    return f"{count:,} entries have features that the model does not know (it has {n_features:,}); they count as zero"


def unknown_text(count: int) -> str:
    """The same of categories of raw columns, which become no feature."""
    return (
        f"{count:,} cells hold categories that the model does not know; they count as zero (--unseen error names one)"
    )


def known_entries(block: Block, n_features: int, ids: FeatureIds | None) -> tuple[Block, int]:
    """The block without entries of features that have no weight, the others by their place where there are ``ids``; and
    how many had features >= n_features."""
    first, last = int(block.indptr[0]), int(block.indptr[-1])
    indices = block.indices[first:last]
    if ids is not None:
        unseen = int(np.count_nonzero(indices >= n_features))
        indices, keep = ids.places(indices)
    elif indices.size == 0 or indices.max() < n_features:
        return block, 0
    else:
        keep = indices < n_features
        unseen = int(keep.size - np.count_nonzero(keep))
    indptr = np.concatenate([[0], np.cumsum(keep)])[block.indptr - first].astype(np.int64)
    values = block.values[first:last][keep] if block.values.size else block.values
    return block._replace(indptr=indptr, indices=indices[keep], values=values), unseen


def _columns_by_place(X: np.ndarray | scipy.sparse.csr_matrix, ids: FeatureIds) -> scipy.sparse.csr_matrix:
    """The columns ``ids`` of a matrix [n, d], [n, len(ids)]."""
    import scipy.sparse

    rows = scipy.sparse.csr_matrix(X)
    places, known = ids.places(rows.indices)
    ends = np.concatenate([[0], np.cumsum(known)])[rows.indptr]
    return scipy.sparse.csr_matrix((rows.data[known], places[known], ends), shape=(rows.shape[0], ids.size))


def _block_of(X: np.ndarray | scipy.sparse.spmatrix, dtype: DTypeLike = np.float32) -> Block:
    """The rows of a numpy array or scipy matrix, of which nothing but the features is known."""
    import scipy.sparse

    rows = scipy.sparse.csr_matrix(X)
    if not rows.has_canonical_format:
        rows = rows.copy()  # the caller's stays as it is
        rows.sum_duplicates()
    nothing, values = np.zeros(rows.shape[0]), np.asarray(rows.data, dtype)
    ids = np.zeros(rows.shape[0], np.int64)
    return Block(rows.indptr.astype(np.int64), as_unsigned(rows.indices), values, nothing, nothing, nothing, ids)


def _matrix(X: object) -> np.ndarray | scipy.sparse.csr_matrix:
    """A numpy array or a scipy CSR matrix of numbers, [n, d]."""
    import scipy.sparse

    if scipy.sparse.issparse(X) and hasattr(X, "tocsr"):
        return X.tocsr()
    if (found := sparse_of(X)) is not None:
        return found
    refuse_mapping(X)
    given, X = X, np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead. Reshape your data: one row per example")
    try:
        return X if X.dtype.kind in "fiub" else X.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(no_numbers_text(given, error)) from None


def all_finite(weights: np.ndarray | scipy.sparse.spmatrix, bias: np.ndarray) -> bool:
    """Whether every weight [K, d] and bias [K] is a number."""
    data = [] if isinstance(weights, np.ndarray) else weights.data
    rows = weights if isinstance(weights, np.ndarray) else (data[a : a + PIECE] for a in range(0, len(data), PIECE))
    return bool(np.isfinite(bias).all() and all(np.isfinite(row).all() for row in rows))


def _columns(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, n_classes: int) -> scipy.sparse.csc_matrix:
    """Sparse weights [K, d] from a file; ValueError where they are none."""
    import scipy.sparse

    whole = indptr.ndim == indices.ndim == data.ndim == 1 and indptr.size >= 1 and indptr.dtype.kind == "i"
    whole = whole and indices.dtype == indptr.dtype and indices.size == data.size
    if not whole or indptr[0] != 0 or indptr[-1] != data.size or (np.diff(indptr) < 0).any():
        raise ValueError("sparse weights whose columns do not add up")
    if indices.size and not (indices.min() >= 0 and indices.max() < n_classes):
        raise ValueError("sparse weights of a class that is not there")
    return scipy.sparse.csc_matrix((data, indices, indptr), shape=(n_classes, indptr.size - 1), copy=False)


def _feature_ids(tensors: Mapping[str, np.ndarray], header: Header) -> FeatureIds | None:
    """The features that have a weight, from a file; ValueError where they are none."""
    if (NUMBERS in tensors) != ("n_features" in header):
        raise ValueError("numbers of features without how many there are, or the other way round")
    if NUMBERS not in tensors:
        return None
    found = FeatureIds(tensors[NUMBERS], header["n_features"])
    if fault := found.fault():
        raise ValueError(f"the numbers of features {fault}")
    return found


def _floats(array: ArrayLike | scipy.sparse.spmatrix) -> np.ndarray | scipy.sparse.csc_matrix:
    if hasattr(array, "tocsc"):
        return array.tocsc()
    array = np.asarray(array)
    return array if array.dtype in (np.float64, np.float32) else array.astype(np.float64)


# -- classes in JSON -----------------------------------------------------------------------------------------------

_TYPE_NAME = re.compile(r"bool|object|<U\d{1,6}|u?int(8|16|32|64)|float(16|32|64)")


def _class_array(classes: ArrayLike) -> np.ndarray:
    classes = np.asarray(classes)
    if classes.dtype.kind == "T":  # numpy's variable-width strings
        classes = classes.astype(object)
    if not _TYPE_NAME.fullmatch(_type_name(classes)) or classes.ndim != 1:
        raise ValueError(f"classes must be ints, floats, bools or strings, [K]; not {classes.dtype}")
    if classes.dtype == object and not all(isinstance(name, str) for name in classes):
        raise ValueError("classes of mixed types: labels must all be strings, or all numbers")
    return classes


def _type_name(classes: np.ndarray) -> str:
    return classes.dtype.str if classes.dtype.kind == "U" else classes.dtype.name


def _as_stored(classes: np.ndarray) -> StoredClasses:
    return {"type": _type_name(classes), "values": classes.tolist()}


def _stored_classes(stored: StoredClasses) -> np.ndarray:
    check_fields(stored, {"type": text(), "values": Field(lambda value: isinstance(value, list), "a list")}, "classes")
    kind, values = stored["type"], stored["values"]
    check_relations([(_TYPE_NAME.fullmatch(kind) is not None, "classes.type", "that of ints, floats, bools or texts")])
    expected = {str} if kind[0] in "<o" else {bool} if kind == "bool" else {int, float} if kind[0] == "f" else {int}
    check_relations([({type(value) for value in values} <= expected, "classes.values", f"of the type {kind}")])
    if kind[0] == "<":  # its width comes from the values: the header cannot ask for more memory than it holds
        return np.array(values, dtype=str)
    return np.array(values, dtype=kind)


def _stored_columns(told: object) -> dict[str, object]:
    """Names of columns by role; ValueError where they are none."""
    roles = ("label", "weight", "features", "indices", "values")
    if not isinstance(told, dict) or not all(role in roles and _are_names(name) for role, name in told.items()):
        raise ValueError(f"field 'columns' must be names of columns by {', '.join(roles)}")
    return told


def _are_names(told: object) -> bool:
    return isinstance(told, str) or (isinstance(told, list) and all(isinstance(name, str) for name in told))


# Safetensors, read with suspicion

_MAGIC = (
    (b"PK\x03\x04", "a zip archive (perhaps a PyTorch or numpy .npz file)"),
    (b"\x89HDF", "an HDF5 file"),
    (b"PAR1", "a Parquet file: data, not a model"),
    (b"\x93NUMPY", "a numpy .npy file"),
    (b"\x1f\x8b", "a gzip file"),
    (b"\x78", "zlib-compressed (perhaps a joblib file, which is a pickle)"),
    (b"solver_type", "a LIBLINEAR text model: `bigclf import` makes it one"),
)
_PICKLE = re.compile(  # by protocol number; protocol 0 has none, and begins with a global's two lines or a mark
    rb"\x80[\x01-\x05]|c[a-z_][\w.]*\n[A-Za-z_]|[(\]})][a-z(\]}0-9.]"
)
_TEXT = re.compile(r"[^\x00-\x08\x0e-\x1f\x7f]*")  # no control characters but white space


def read_tensors(data: bytes | mmap.mmap) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The float tensors (views of ``data``) and the metadata of a safetensors file, every number in it checked.

    Raises
    ------
    ModelFormatError : lengths, offsets, shapes, types or names that do not fit the file.
    """
    places, metadata = tensor_table(data[: header_length(data[:8], len(data))], len(data))
    tensors = {}
    for name, (first, dtype, shape) in places.items():
        tensors[name] = np.frombuffer(data, dtype, _product(shape), first).reshape(shape)
    return {name: np.require(tensor, requirements="A") for name, tensor in tensors.items()}, metadata


def tensor_table(head: bytes, size: int) -> tuple[dict[str, tuple[int, np.dtype, tuple[int, ...]]], dict[str, str]]:
    """Of each tensor of a safetensors file its place in the file, type and shape, and the metadata; errors as above.

    ``head`` : the beginning of the file, with the whole header (``header_length``); ``size`` : of the file, in bytes.
    """
    header = _safetensors_header(head, size)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ModelFormatError("damaged header: metadata must be text")
    start = 8 + struct.unpack("<Q", head[:8])[0]
    end, places = 0, {}
    for name, first, last, dtype, shape in sorted(_tensor_entries(header), key=lambda entry: entry[1:3]):
        if first != end or last > size - start:
            raise ModelFormatError(f"damaged: tensor {name!r} overlaps another or lies outside the file")
        places[name] = start + first, dtype, shape
        end = last
    if end != size - start:
        raise ModelFormatError("damaged: the file is shorter or longer than its header says; copy it again")
    return places, metadata


def header_length(first: bytes, size: int) -> int:
    """Bytes of the head of a safetensors file of ``size`` bytes that begins with ``first`` (8 bytes at least)."""
    length = struct.unpack("<Q", first[:8])[0] if len(first) >= 8 else 0
    return 8 + int(min(length, _MAX_HEADER, max(0, size - 8)))


def _safetensors_header(data: bytes, size: int) -> dict[str, object]:
    _refuse_other_formats(data)
    length = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else None
    if length is None or length > min(size - 8, _MAX_HEADER):
        if _is_text(data[:1000]):
            raise ModelFormatError(
                "this is text, not a bigclf model; the model comes first, then the data. To train one, run "
                "`bigclf fit` (`bigclf inspect FILE --suggest` proposes features for a table)"
            )
        raise ModelFormatError("not a bigclf model, or cut short: the header is longer than the file")
    try:
        header = json.loads(data[8 : 8 + length].decode(), object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(f"not a bigclf model, or damaged: unreadable header ({error})") from None
    if not isinstance(header, dict):
        raise ModelFormatError("not a bigclf model: its header is no table")
    return header


def _refuse_other_formats(data: bytes) -> None:
    for magic, what in _MAGIC:
        if data.startswith(magic) and data[8:9] != b"{":
            raise ModelFormatError(f"not a bigclf model but {what}")
    if _PICKLE.match(data[:200]) and data[8:9] != b"{":
        raise ModelFormatError(
            "not a bigclf model but a pickle, which could run any code and is never opened; "
            "save models with model.save(path)"
        )


def _is_text(start: bytes) -> bool:
    """Whether a file that begins so is text in UTF-8; the last character may be cut."""
    try:
        return len(start) >= 8 and _TEXT.fullmatch(codecs.getincrementaldecoder("utf-8")().decode(start)) is not None
    except UnicodeDecodeError:
        return False


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ModelFormatError("damaged header: a name appears twice")
    return table


def _tensor_entries(header: Mapping[str, object]) -> Iterator[tuple[str, int, int, np.dtype, tuple[int, ...]]]:
    for name, told in header.items():
        try:
            entry = told if isinstance(told, dict) else {}
            dtype, shape, (first, last) = _DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
        except (KeyError, TypeError, ValueError):
            raise ModelFormatError(f"damaged header: tensor {name!r} has no known type, shape and place") from None
        numbers = (*shape, first, last)
        if not all(type(number) is int and 0 <= number < 2**63 for number in numbers) or last < first:
            raise ModelFormatError(f"damaged header: tensor {name!r} has impossible numbers")
        if _product(shape) * dtype.itemsize != last - first:
            raise ModelFormatError(f"damaged header: tensor {name!r} has a shape that does not match its length")
        yield name, first, last, dtype, shape


def _product(shape: tuple[int, ...]) -> int:
    size = 1  # in Python's integers, which do not wrap round
    for n in shape:
        size *= n
    return size


def _header(metadata: dict[str, str]) -> Header:
    try:
        header: Header = json.loads(metadata["bigclf"])
        known = header["format"] == FORMAT and "checksums" in header
    except (KeyError, TypeError, ValueError, RecursionError):
        known = False
    if not known:
        raise ModelFormatError("a safetensors file, but not a bigclf model")
    if type(header.get("version")) is not int or not 1 <= header["version"] <= VERSION:
        raise ModelFormatError(
            f"written in model format {header.get('version')}, newer than this bigclf reads ({VERSION}); "
            "upgrade bigclf to use it"
        )
    try:
        header = unsealed(metadata["bigclf"])
    except ValueError as error:
        raise ModelFormatError(f"damaged: of the header, {error}; copy the file again") from None
    try:
        check_fields(header, {"checksums": TABLE})
    except FieldError as error:
        raise ModelFormatError(f"not a usable model: {error}") from None
    return header


CERTIFICATE = {"primal": number(infinite=True), "dual": number(infinite=True), "gap": number(infinite=True)}
HEADER = {
    "classes": or_none(TABLE),
    "features": TABLE,
    "method": TABLE,
    "certificate": or_none(TABLE),
    "facts": TABLE,
    "columns": optional(TABLE),
    "calibration": optional(TABLE),
    "n_features": optional(whole(1, 2**63 - 1)),
}
METHOD = {
    "name": optional(or_none(text())),
    "loss": optional(or_none(text())),
    "multiclass": optional(or_none(text("multinomial", "native", "one-vs-rest", "auto", "binary", SEVERAL))),
    "bias": optional(or_none(text("feature", "free", "none"))),
}
HELD_OUT = {  # ``held_out_figures`` of the facts: an evaluation, as ``metrics.figures`` keeps it
    "n": whole(1),
    **{name: optional(whole()) for name in ("unseen", "bad_rows")},
    "missing": optional(named(text())),
    "weighted": optional(or_none(named(or_none(figure())))),
    "notes": optional(TEXTS),
}
RATIOS = dict.fromkeys(("precision", "recall", "f1"), figure())
MEANS = dict.fromkeys(("probability", "share"), or_none(figure()))
CLASSES_HELD_OUT = HELD_OUT | {
    "correct": whole(),
    **dict.fromkeys(("accuracy", "macro_f1", "auc_bound"), figure()),
    **dict.fromkeys(("auc", "log_loss"), or_none(figure())),
    **dict.fromkeys(("calibration_error", "majority"), optional(or_none(figure()))),
    "f1": list_of(table_of({"rows": whole(), **RATIOS}, "the figures of a class")),
    "confusion": or_none(list_of(list_of(whole()))),
    "reliability": optional(or_none(list_of(
        table_of({"low": figure(), "high": figure(), "rows": whole(), **MEANS}, "a bin of probabilities")))),
}  # fmt: skip
NUMBERS_HELD_OUT = HELD_OUT | {
    **dict.fromkeys(("mean_squared_error", "mean_absolute_error", "label_mean"), figure()),
    "r2": or_none(figure()),
}
FACTS = {
    **{name: optional(whole()) for name in ("n_rows", "nnz")},
    **{name: optional(or_none(whole())) for name in ("epochs", "best_epoch", "seed", "bytes_read")},
    **{
        name: optional(or_none(TABLE))
        for name in ("plan", "memory", "progressive", "limits", "origin", "held_out", "held_out_figures")
    },
    **{name: optional(or_none(text())) for name in ("stopped", "run", "data", "version")},
    **{name: optional(or_none(FLAG)) for name in ("converged", "repeatable")},
    **{name: optional(or_none(number())) for name in ("tol", "seconds")},
    "reads": optional(or_none(number(0))),
    "warnings": optional(TEXTS),
}


def _check_header(header: Header) -> None:
    """Check the fields of a model's header; FieldError or SchemaError names the first that is wrong."""
    check_fields(header, HEADER)
    check_features(header["features"])
    if is_columns(header["features"]):
        parse(header["features"])
    check_fields(header["method"], METHOD, "method")
    check_fields(header["facts"], FACTS, "facts")
    _check_held_out(header["facts"], header["classes"])
    if header["facts"].get("version") is not None:
        _check_trained(header["method"], str(header["facts"]["version"]))
    elif header["method"].get("name") in METHODS:  # else made by hand, or by another program, in words of its own
        _check_named(header["method"])
    loss = header["method"].get("loss", "")
    number_loss = loss in REGRESSION or (loss == "" and header["version"] > 1)
    check_relations(
        [
            (header["classes"] is not None or number_loss, "classes", "a table, of a method for classes"),
            (header["classes"] is None or loss not in REGRESSION, "classes", f"null with the loss {loss}"),
        ]
    )
    if header["certificate"] is not None:
        check_fields(header["certificate"], CERTIFICATE, "certificate")
    if "calibration" in header:
        check_fields(header["calibration"], {"method": text(*CALIBRATIONS), "facts": TABLE}, "calibration")


def _check_held_out(facts: Mapping[str, object], classes: object) -> None:
    """Check what a model keeps of the evaluation on the rows held out of its training."""
    told: Any = facts.get("held_out_figures")
    if not told:
        return
    inside = "facts.held_out_figures"
    check_fields(told, NUMBERS_HELD_OUT if classes is None else CLASSES_HELD_OUT, inside)
    if isinstance(classes, Mapping):
        labels, counts = classes.get("values"), told["confusion"]
        known = len(labels) if isinstance(labels, list) else 0
        square = counts is None or [len(row) for row in counts] == [known] * known
        check_relations([
            (len(told["f1"]) in (0, known), f"{inside}.f1", "one for each of 'classes', or empty"),
            (square, f"{inside}.confusion", "a row and a column for each of 'classes'"),
        ])  # fmt: skip


def _check_trained(told: Mapping[str, object], version: str) -> None:
    """Check what a model that was trained by bigclf ``version`` says of its method against the table of methods."""
    try:
        check_fields(told, {"name": text(*METHODS)}, "method")
        check_fields(told, _fields_of(METHODS[str(told["name"])]), "method")
    except FieldError as error:
        if version == __version__:
            raise
        raise FieldError(f"{error}; it was trained by bigclf {version}, and this is {__version__}: "
                         "upgrade bigclf if that is the newer one") from None  # fmt: skip


def _check_named(told: Mapping[str, Any]) -> None:
    """Check a method of the table in a model that says no version: what it says is as the table has it."""
    fields = _fields_of(METHODS[told["name"]])
    loss = or_none(fields.pop("loss"))
    check_fields(told, {"loss": optional(loss), **fields}, "method")


def _fields_of(method: Method) -> dict[str, Field]:
    """What may stand under ``method`` in a model that it learned; parameters may be those of another version."""
    loss = text(*method.losses) if method.losses else Field(lambda value: value is None, "null")
    penalty = {"penalty": optional(text(*method.penalties))} if method.penalties else {}
    return {"loss": loss, **penalty, **{param.name: optional(_field_of(param)) for param in method.params}}


def _field_of(param: Param) -> Field:
    said = f"one of {', '.join(param.choices)}" if param.choices else f"a number {param.bounds}"
    return Field(param.takes, said + (" or null" if param.default is None else ""))


def plain(value: object) -> object:
    """numpy scalars and arrays as JSON knows them: kernels that are not compiled return such."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} has no place in a model's header")
