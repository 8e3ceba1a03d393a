"""The door for rows: what ``data`` is, is asked once, and nobody behind the door asks again.

``open_rows`` finds out what was given, without reading a row of what is there already. What was found tells counts and
the width of indices at a glance, which is what is needed before there are rows; ``rows`` then opens them.

====================================  ===========  ==================================================================
data                                  found        rows
====================================  ===========  ==================================================================
paths, globs, a ``Dataset``           ``Shards``   the dataset, without rows of weight 0
numpy, scipy, tables of numbers, y    ``Matrix``   ``Arrays`` in memory
``Arrays``, a table with features     ``Ready``    as they are
an iterator of blocks                 ``Blocks``   shards that are written down and last as long as they are needed
of Dask, lazy frames, Arrow streams   ``Shards``   Parquet that is written down as long
raw files with format or features     ``Shards``   shards in the cache
====================================  ===========  ==================================================================
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from bigclf import files
from bigclf.conversion.foreign_rows import collected, is_blocked, is_collected, is_in_partitions, with_labels
from bigclf.conversion.iterators import is_iterator, write_down
from bigclf.data.arrays import Arrays, plain_names
from bigclf.data.chunk_table import have_sets, index_width_of
from bigclf.data.dataset import Dataset, require_classes
from bigclf.data.label_sets import are_sets, n_labels
from bigclf.data.numbering import MANY, AnyRows, numbered
from bigclf.features.spec import parse
from bigclf.model.model import Model, is_stored
from bigclf.model.raw_input import BadRows, have_several_labels, of_columns
from bigclf.request.bad_rows_of_tables import without_bad_rows
from bigclf.request.columns_by_name import by_name, refuse_label_among, refuse_no_rows
from bigclf.request.request import Request
from bigclf.training.records.run_directory import features_before

if TYPE_CHECKING:
    from bigclf.data.rows import Rows

FIRST = 10_000  # rows whose labels are looked at
LOOKED_AT = 100_000  # entries whose size is
GOLDEN = 0.5 * (5**0.5 - 1)


class Shape(NamedTuple):
    """Of rows that are not open yet: rows, features, entries, classes (of a matrix those of its first rows), the mean
    of ||x||^2 over some of them, whether all values are 1 and the share of the rarest class, as some rows tell; zeros
    where nothing is known before they are written down."""

    n_rows: int = 0
    n_features: int = 0
    nnz: int = 0
    classes: int = 0
    square: float = 0.0
    ones: bool = False
    rarest: float = 0.0


UNKNOWN = Shape()


class Found(Protocol):
    """Rows that were found and are not open yet."""

    @property
    def far(self) -> bool:
        """Whether workers of a cluster can read them, too."""

    def counts(self) -> Shape:
        """What is known at a glance."""

    def index_width(self) -> int:
        """Bytes of an index, as far as a glance tells."""

    def several_labels(self) -> bool:
        """Whether rows have several labels, as far as a glance tells."""

    def rows(self, groups: int, real_labels: bool) -> Dataset | Arrays:
        """The rows; at least ``groups`` chunks where they are cut now; ``real_labels`` : labels are numbers."""


class Numbering(NamedTuple):
    """How features are numbered: anew where there are very many and few occur (``data.numbering``).

    memory : budget in bytes. init : the model to go on from, whose features are kept. before : features of the run that
    is resumed, which older versions never numbered anew; None: there is none.
    """

    memory: int
    init: Model | None = None
    before: int | None = None

    def of(self, rows: AnyRows) -> AnyRows:
        """The rows with their features numbered so."""
        if rows.n_features <= MANY or self.before == rows.n_features:
            return rows
        return numbered(rows, self.memory, None if self.init is None else self.init.occurring())


class Shards(NamedTuple):
    """Files of rows."""

    data: Any
    columns: dict[str, str] | None
    numbering: Numbering
    far: bool = True

    def dataset(self) -> Dataset:
        if isinstance(self.data, Dataset) and not self.columns:
            return self.numbering.of(self.data)
        return self.numbering.of(self._opened())

    def _opened(self) -> Dataset:
        """The files; where a model goes on that knows its columns by name, with these first, in its order."""
        options: dict[str, Any] = {"memory": self.numbering.memory, "warn": False}
        dataset, init = Dataset(self.data, columns=self.columns, **options), self.numbering.init
        told: Any = (self.columns or {}).get("features")
        mine = None if init is None or isinstance(told, list | tuple) else init.plain_columns
        its = plain_names(dataset.features, dataset.layout.values)
        if not mine or not its or its[: len(mine)] == mine or not {*mine} <= {*its}:
            return dataset
        order = [*mine, *(name for name in its if name not in {*mine})]
        named: dict[str, Any] = {**(self.columns or {}), "features": order}
        return Dataset(self.data, columns=named, **options)

    def counts(self) -> Shape:
        return _counts(self.dataset())

    def index_width(self) -> int:
        if isinstance(self.data, Dataset):
            return self.data.index_width
        return index_width_of(files.expand(self.data)[0], self.columns or {})

    def several_labels(self) -> bool:
        if isinstance(self.data, Dataset):
            return self.data.sets is not None
        return have_sets(files.expand(self.data)[0], self.columns or {})

    def rows(self, groups: int, real_labels: bool) -> Dataset:
        dataset = self.dataset()
        if real_labels:
            return dataset.with_real_labels().taking_part()
        require_classes(dataset)
        return dataset.taking_part()


class Ready(NamedTuple):
    """Rows in memory as they are wanted."""

    data: Arrays
    numbering: Numbering
    far: bool = True

    def counts(self) -> Shape:
        return _counts(self.data)

    def index_width(self) -> int:
        return self.data.index_width

    def several_labels(self) -> bool:
        return self.data.sets is not None

    def rows(self, groups: int, real_labels: bool) -> Arrays:
        return self.numbering.of(self.data.with_real_labels() if real_labels else self.data)


class Matrix(NamedTuple):
    """A matrix with its labels beside it."""

    data: Any
    y: Any
    sample_weight: Any
    numbering: Numbering
    said: Sequence[str] = ()
    far: bool = True

    def counts(self) -> Shape:
        shape = getattr(self.data, "shape", None)
        if shape is None or len(shape) != 2:
            return UNKNOWN
        if are_sets(self.y):
            labels = n_labels(self.y)
        else:
            labels = len(set(np.asarray(self.y[:FIRST]).ravel().tolist())) if hasattr(self.y, "__getitem__") else 0
        n_rows, n_features = int(shape[0]), int(shape[1])
        nnz = int(getattr(self.data, "nnz", n_rows * n_features))
        n_features = n_features if n_features <= MANY else min(n_features, nnz)  # numbered anew, no more than occur
        some = self.data if isinstance(self.data, np.ndarray) else getattr(self.data, "data", None)
        if not nnz or not isinstance(some, np.ndarray) or some.dtype.kind not in "fiub":
            return Shape(n_rows, n_features, nnz, labels)
        some = spread(some, max(1, LOOKED_AT * len(some) // nnz))
        filled = int(np.count_nonzero(some))
        if isinstance(self.data, np.ndarray):
            nnz = filled * n_rows // len(some)
        with np.errstate(over="ignore"):  # what is beyond float32 is told of later, with its place
            square = float(np.square(some, dtype=np.float64).sum()) / max(1, filled) * nnz / n_rows
        ones = filled == int(np.count_nonzero(some == 1))
        return Shape(n_rows, n_features, nnz, labels, square, ones, self._rarest(n_rows))

    def _rarest(self, n_rows: int) -> float:
        """The share of the rarest class in rows from all over the matrix; 0 where labels cannot be looked at."""
        y = self.y
        if not isinstance(y, np.ndarray) or y.ndim != 1 or y.dtype.kind not in "biufU" or y.size != n_rows:
            return 0.0
        counts = np.unique(spread(y, FIRST), return_counts=True)[1]
        return float(counts.min() / counts.sum())

    def index_width(self) -> int:
        indices = getattr(self.data, "indices", None)
        return indices.dtype.itemsize if isinstance(indices, np.ndarray) and indices.dtype.kind == "i" else 4

    def several_labels(self) -> bool:
        return are_sets(self.y)

    def rows(self, groups: int, real_labels: bool) -> Arrays:
        found = Arrays(self.data, self.y, self.sample_weight, least_chunks=groups, real_labels=real_labels)
        found.warnings += self.said
        return self.numbering.of(found)


class Blocks(NamedTuple):
    """An iterator of blocks, which is gone through once."""

    data: Any
    place: str
    numbering: Numbering
    far: bool = False

    def counts(self) -> Shape:
        return UNKNOWN

    def index_width(self) -> int:
        return 4

    def several_labels(self) -> bool:
        return False

    def rows(self, groups: int, real_labels: bool) -> Dataset:
        made = write_down(self.data, self.place, real_labels=real_labels, memory=self.numbering.memory // 2)
        return Shards(made, None, self.numbering).rows(groups, real_labels)


def spread(array: np.ndarray, most: int) -> np.ndarray:
    """About so many elements from all over the array. Their distances repeat with no period: equal ones that share a
    divisor with the number of columns see some of these alone."""
    if len(array) <= most:
        return array
    return array[(np.arange(1, most + 1) * GOLDEN % 1.0 * len(array)).astype(np.int64)]


def _counts(rows: Dataset | Arrays) -> Shape:
    some = next(iter(rows.blocks()), None) if isinstance(rows, Dataset) else None
    return shape_of(rows)._replace(square=0.0 if some is None else float(np.mean(some.norms)))


def shape_of(rows: Rows) -> Shape:
    """All that rows which are open know of themselves; none is read for it, so their ||x||^2 is not told."""
    classes, counts = 0 if rows.classes is None else len(rows.classes), rows.class_counts
    rarest = 0.0 if counts is None or not counts.size else float(counts.min() / max(1, counts.sum()))
    return Shape(rows.n_rows, rows.n_features, rows.nnz, classes, 0.0, rows.binary, rarest)


def name_several_labels(features: object) -> bool:
    """Whether rows of these features have several labels, as far as a spec tells; not of a model or shards."""
    label = None if features is None or hasattr(features, "features") else parse(features).label
    return label is not None and label.several


def tell_several_labels(features: object, format: object, data: object) -> bool:
    """Whether raw rows have several labels, as their spec tells, or the beginning of their text."""
    if features is None and is_stored(data) and not isinstance(data, Dataset):
        return have_several_labels(data, format)
    return name_several_labels(features)


def refuse_several_labels(verb: str, several: bool) -> None:
    """TypeError where rows have ``several`` labels and ``verb`` takes one."""
    if several and verb in ("sweep", "path"):
        raise TypeError(f"{verb} does not take rows with several labels yet; fit them with one C after another")


@contextlib.contextmanager
def open_rows(request: Request) -> Iterator[tuple[Found, Request]]:
    """What the data of a request are, as long as they are needed; and the request with the rows to validate on in the
    same features.

    Raises
    ------
    TypeError : labels or weights for files that bring their own, none for a matrix, or names of columns for what has
        none. DataError, SchemaError : raw rows that cannot be made features.
    """
    with contextlib.ExitStack() as stack:
        refuse_no_rows(request.data, request.y)
        if is_collected(request.data):
            request = stack.enter_context(_written_down(request))
        refuse_label_among(request.data, request.y, request["features"])
        bad = _bad_rows(request)  # of files to validate on too, whatever is done with those of a table
        request, said = without_bad_rows(by_name(stack.enter_context(_validating(request))))
        if any(request[name] is not None for name in ("features", "format", "hash_bits")):
            several = tell_several_labels(request["features"], request["format"], request.data)
            refuse_several_labels(request.verb, several)
            request = _of_columns(request, bad)
        elif _bad_rows(request) != BadRows():
            what, way = (
                ("shards", "convert can skip or quarantine bad rows")
                if is_stored(request.data)
                else (
                    "arrays",
                    "leave the rows that are bad out of X and y, or give a table, whose bad rows can be skipped",
                )
            )
            raise ValueError(f'on_bad_rows must be "error" when training on {what}, and max_bad_fraction is not '
                             f"theirs; {way}")  # fmt: skip
        yield _found(request, stack, said), request


def _found(request: Request, stack: contextlib.ExitStack, said: list[str]) -> Found:
    """The one place that asks what data are. ``said`` : warnings of rows in memory that were left out."""
    data, columns, numbering = request.data, request["columns"], _numbering(request)
    beside = {"y": request.y, "sample_weight": request["sample_weight"]}
    if isinstance(data, Arrays):
        data.warnings += said
        return Ready(data, numbering)
    if is_stored(data):
        _refuse(beside, "files: they hold the columns label and weight themselves")
        return Shards(data, columns, numbering)
    if is_iterator(data):
        _refuse({**beside, "columns": columns}, "an iterator of blocks: they bring their own")
        place = files.join(files.scratch_directory(request["local_dir"]), f"bigclf-rows-{uuid.uuid4().hex}")
        stack.callback(files.remove_tree, place)
        return Blocks(data, place, numbering)
    if request.y is None:
        raise TypeError("a matrix needs its labels: fit(X, y)")
    _refuse({"columns": columns}, "a matrix: it names the columns of Parquet files")
    return Matrix(data, request.y, request["sample_weight"], numbering, said)


def _numbering(request: Request) -> Numbering:
    before = features_before(request["run_dir"]) if request["resume"] else None
    return Numbering(request["memory"], request["init"], before)


def _refuse(given: dict[str, object], what: str) -> None:
    """TypeError for what has no effect beside the data."""
    for name, value in given.items():
        if value is not None:
            raise TypeError(f"{name} has no effect with {what}")


@contextlib.contextmanager
def _written_down(request: Request) -> Iterator[Request]:
    """With the Parquet that others write of their rows, or that is written of a stream."""
    matrix = is_blocked(request.data)
    rows, y = with_labels(request.data, request.y)
    request = request.having(data=rows, y=y)
    if request.y is not None and isinstance(request.y, str) == matrix:
        if matrix:
            raise TypeError("y is a column name, but an array has no column names; pass the labels")
        raise TypeError("for a Dask DataFrame or a stream, y must be the name of the label column")
    place = request["run_dir"]
    place = files.join(files.scratch_directory(request["local_dir"]), "rows") if place is None else place
    with collected(request.data, files.absolute(place), request.y) as (folder, kind):
        request = request.having(y=None) if matrix else request
        aside = f"{folder}.rows"  # whoever wrote the rows can write what is kept of each, too
        if matrix or is_in_partitions(rows):
            request = request.having(rows_aside=aside)
        try:
            yield request.having(data=folder, format=None if request["features"] is None else kind)
        finally:
            files.remove_tree(aside)


@contextlib.contextmanager
def _validating(request: Request) -> Iterator[Request]:
    """With the Parquet that is written of rows to validate on which others hold."""
    rows = request["validate"]
    if not is_collected(rows) or is_blocked(rows):
        yield request
        return
    place = files.join(files.scratch_directory(request["local_dir"]), "rows-to-validate-on")
    with collected(rows, files.absolute(place)) as (folder, _):
        yield request.having(validate=folder)


def _bad_rows(request: Request) -> BadRows:
    return BadRows(request["on_bad_rows"], request["max_bad_fraction"])


def _of_columns(request: Request, bad: BadRows) -> Request:
    """With rows of features, where raw columns or text are given."""
    names = ("sample_weight", "validate", "features", "format")
    more = {name: request[name] for name in ("hash_bits", "memory", "seed", "progress")}
    more["bad"] = bad
    data, y, weights, validate = of_columns(request.data, request.y, *(request[name] for name in names), **more)
    return request.having(data=data, y=y, sample_weight=weights, validate=validate)
