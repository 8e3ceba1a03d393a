"""Shards: the Parquet files that bigclf writes, and how rows are read from these and from other people's.

A shard has one row per example: ``label``, ``indices: list<int32|int64>`` (0-based, strictly increasing in a row),
``values: list<float32>`` (left out when every value is 1), optionally ``weight: float32``. A row group is a chunk.
Pages are zstd-compressed and carry checksums. What is known of the file stands in its footer under ``bigclf``.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fnmatch
import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigclf import files
from bigclf.data import label_sets, pages, vectors
from bigclf.data.bad_rows import skipping
from bigclf.data.footer import Footer, check, parse
from bigclf.errors import CONVERT_FIRST, BigclfError, DataError, MemoryBudgetError, SchemaError
from bigclf.features.arrow import FLOAT32_MAX, as_numpy, in_arrow
from bigclf.files.json_fields import (
    FLAG,
    TABLE,
    check_facts,
    check_features,
    check_fields,
    check_relations,
    list_of,
    optional,
    text,
    tuple_of,
    whole,
)
from bigclf.maths.block import FAULTS, OK, as_unsigned, check_rows, one_value_a_row, writable
from bigclf.units import near, plural
from bigclf.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import scipy.sparse

FORMAT_VERSION, CLASSES_FORMAT_VERSION = 2, 1  # the first is written only where labels are numbers, no classes
KEY = b"bigclf"
PART_BYTES = 1 << 20  # of rows as arrays: so much of a large row group is decoded at a time
BUFFER_BYTES = 1 << 16  # of each column, compressed, that are read for it
PART_ROW_BYTES = 64  # a row beside its entries while it is decoded: bounds of lists, label, weight, norm, number
PART_ENTRY_BYTES = 8


class Rows(NamedTuple):
    """One row group, its structure checked, its numbers not yet.

    Attributes
    ----------
    indptr : int64 [m+1], from 0.
    indices : uint32 or uint64 [nnz].
    values : float32 [nnz], or float32 [0] when the file has none (all are 1).
    labels : Arrow array [m] without nulls, or None.
    weights : float64 [m], or None.
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    labels: Any
    weights: np.ndarray | None

    @property
    def n_rows(self) -> int:
        return self.indptr.size - 1


class Layout(NamedTuple):
    """Where the rows stand in a file: names of columns; a dot leads into a struct or into the structs of a list; None
    where there is none.

    Without ``indices`` the rows are dense: ``values`` is a column of lists, or a column for each feature.
    """

    indices: str | None
    values: str | tuple[str, ...] | None
    label: str | None
    weight: str | None
    kind: str | None = None  # of a Spark vector: the field that tells sparse (0) from dense (1)
    not_taken: tuple[str, ...] = ()  # "name (why)" of columns that a glob of features names and that are none

    def as_json(self) -> list[object]:
        return list(self if self.not_taken else self[:-1])

    @staticmethod
    def from_json(told: Sequence[object]) -> Layout:
        names: list[Any] = [tuple(name) if isinstance(name, list) else name for name in told]
        return Layout(*names)

    @property
    def values_name(self) -> str | None:
        """The column of the values, for messages."""
        return f"{self.values[0]} ... {self.values[-1]}" if isinstance(self.values, tuple) else self.values

    def columns(self, schema: pa.Schema) -> list[str]:
        """What of a file is to be read."""
        wide = self.values if isinstance(self.values, tuple) else (self.values,)
        names = (self.indices, *wide, self.label, self.weight, self.kind)
        return list(dict.fromkeys(vectors.column_of(schema, name) for name in names if name is not None))


# Opening


def claims(path: str) -> Footer:
    """What the footer of the Parquet file at ``path`` claims; refused if the file cannot hold it.

    Raises
    ------
    DataError : if it is not a complete Parquet file.
    """
    size, data = files.read_footer(path)
    footer = parse(data, path)
    check(footer, path, size)
    return footer


def open_parquet(path: str, metadata: pq.FileMetaData | None = None, buffer: int = 0) -> pq.ParquetFile:
    """Parquet file at ``path`` with page checksums verified; its claims are to have been checked. ``metadata`` : what
    it has been found to say of itself; ``buffer`` : bytes of a column that are read at a time (0: all of a row group).

    Raises
    ------
    DataError : if it is damaged.
    """
    import pyarrow.parquet as pq

    with translated(path):
        return pq.ParquetFile(
            files.open_arrow(path),
            metadata=metadata,
            buffer_size=buffer,
            page_checksum_verification=True,
            pre_buffer=False,
            arrow_extensions_enabled=False,
            thrift_string_size_limit=100_000_000,
            thrift_container_size_limit=10_000_000,
        )


def _no_parquet(path: str) -> str:
    """What to say of a file that does not begin as Parquet does; "" of one that is cut off."""
    with files.open_binary(path) as file:
        return "" if file.read(4) == b"PAR1" else f"not a Parquet file (no PAR1 in front){CONVERT_FIRST}"


@contextlib.contextmanager
def translated(path: str, row_group: int | None = None) -> Iterator[None]:
    """Turn what pyarrow raises while reading into a DataError, or a MemoryBudgetError, with the place."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowMemoryError as error:
        place = path if row_group is None else f"{path}, row group {row_group}"
        raise MemoryBudgetError(
            f"{place}: there is not enough memory to read it ({error}); write smaller row groups, or let this process "
            "have more"
        ) from error
    except (BigclfError, MemoryError):
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EIO):
            raise
        reason = " ".join(str(error).split())
        if "magic bytes not found" in reason and (other := _no_parquet(path)):
            raise DataError(other, file=path) from error
        hint = "not supported by this reader" if isinstance(error, NotImplementedError) else "damaged; copy it again"
        raise DataError(f"{hint}: {reason}", file=path, row_group=row_group) from error


# Layout: which columns hold the rows

LIST_NAMES = (("indices", "values"), ("features.indices", "features.values"), ("index", "value"))
LABEL_NAMES = ("label", "target", "y", "class")
NO_LIST = " (a null list is not an empty row)"
NAMED = '; features that are proposed, where the label is named (y="COLUMN"), have a rule for what is missing'
LIKE_LABELS = (*LABEL_NAMES, "outcome")  # in any case of letters; of tables of numbers
WHICH = 'say which column is to be predicted (y="COLUMN", or columns={"label": ...})'
WEIGHT_NAMES = ("weight", "sample_weight")


def find_layout(schema: pa.Schema, columns: Mapping[str, Any] | None, path: str, need_label: bool = True) -> Layout:
    """The columns that hold the rows: those named in ``columns``, else the first usual names that are there.

    Raises
    ------
    SchemaError : if a column is missing.
    """
    given = dict(columns or {})
    if unknown := sorted(set(given) - {*vectors.ROLES}):
        known = ", ".join(vectors.ROLES)
        raise SchemaError(f"columns= knows {known}, not {', '.join(unknown)}{near(unknown[0], vectors.ROLES)}")
    if "features" in given and {"indices", "values"} & set(given):
        raise SchemaError("columns= takes features, or indices and values, not both")
    for role, name in given.items():
        if role != "features" and vectors.field(schema, name) is None:
            raise SchemaError(f"there is no such column; the file has {_listed(schema)}", file=path, column=name)
    label = given.get("label") or _first(schema, LABEL_NAMES)
    weight = given.get("weight") or _first(schema, WEIGHT_NAMES)
    indices, values, kind = _feature_columns(schema, given, (label, weight), path)
    if label is None and isinstance(values, tuple) and "features" not in given:
        label = next((name for name in schema.names if name.lower() in LIKE_LABELS), None)
    if label is None and need_label and isinstance(values, tuple):
        raise SchemaError(f"there is no label column; {WHICH}; the file has {_listed(schema)}", file=path)
    if label is None and need_label:
        advice = f'name it with columns={{"label": ...}}; the file has {_listed(schema)}'
        raise SchemaError(f"there is no label column; {advice}", file=path, column="label")
    if isinstance(values, tuple) and (both := [name for name in (label, weight) if name in values]):
        raise SchemaError(f"the {'label' if both[0] == label else 'weight'} cannot be a feature too", file=path,
                          column=both[0])  # fmt: skip
    left_out = vectors.not_taken(schema, given.get("features"), (label, weight))
    return Layout(indices, values, label, weight, kind, left_out)


def those_there(schema: pa.Schema, columns: Mapping[str, Any], path: str) -> dict[str, object]:
    """Of the ``columns`` that a model was trained on those by which this file is read: a label or a weight that it does
    not have is not looked for, nor are features where it has rows under the usual names in their place."""
    kept = {role: name for role, name in columns.items()
            if role not in ("label", "weight") or vectors.field(schema, name) is not None}  # fmt: skip
    if any(vectors.field(schema, name) or fnmatch.filter(schema.names, name) for name in _feature_names(kept)):
        return kept
    usual = {role: name for role, name in kept.items() if role in ("label", "weight")}
    if not any(vectors.is_nested(column.type) for column in schema):
        return kept
    try:
        find_layout(schema, usual, path, need_label=False)
    except SchemaError:  # neither: the error names what the model needs
        return kept
    return usual


def _feature_names(columns: Mapping[str, Any]) -> list[str]:
    told = [columns[role] for role in ("features", "indices", "values") if role in columns]
    return [name for one in told for name in ([one] if isinstance(one, str) else one)]


def _feature_columns(
    schema: pa.Schema, given: Mapping[str, Any], others: tuple[str | None, ...], path: str
) -> tuple[str | None, str | tuple[str, ...] | None, str | None]:
    """Columns of indices and of values, and the field that tells Spark's sparse vectors from dense ones."""
    if "features" in given:
        return vectors.find(schema, given["features"], others, path)
    if "indices" in given or "values" in given:
        indices, values = given.get("indices"), given.get("values")
        return indices, values, vectors.kind_beside(schema, indices)
    for indices, values in LIST_NAMES:
        if vectors.field(schema, indices) is not None:
            return indices, _first(schema, (values,)), vectors.kind_beside(schema, indices)
    if "features" in schema.names and vectors.is_nested(schema.field("features").type):
        return vectors.find(schema, "features", others, path)
    return _of_numbers(schema, given.get("label"), others[1], path)


def _of_numbers(schema: pa.Schema, label: str | None, weight: str | None, path: str) -> vectors.Found:
    """All columns but label and weight, where each is one of numbers; of a label that is not named at most one column
    may be called as labels are."""
    vectors.require_once(schema, "*", path)
    labels = [label] if label else [name for name in schema.names if name.lower() in LIKE_LABELS]
    strange = vectors.not_numbers(schema, (weight, *labels))
    if len(labels) <= 1 and (found := vectors.all_numbers(schema, (weight, *labels))) is not None:
        return found
    why = f"{', '.join(strange[:3])}{', ...' * (len(strange) > 3)} holds no numbers" if strange else (
        f"{' and '.join(labels)} may each be the label" if labels[1:] else "there is no other column")  # fmt: skip
    if not any(vectors.is_nested(column.type) for column in schema):
        raise SchemaError(f"{why}; {WHICH}; the file has {_listed(schema)}", file=path)
    advice = _lists_named(schema, labels, weight) or (
        'name the label (y="COLUMN"), or the features with columns={"features": ...}, or '
        '{"indices": ..., "values": ...}'
    )
    why = why.replace("holds no numbers", "holds lists") if advice.startswith("columns") else why
    message = f"there is no list column of feature indices, and {why}; {advice}; the file has {_listed(schema)}"
    raise SchemaError(message, file=path, column="indices")


def _lists_named(schema: pa.Schema, labels: list[str], weight: str | None) -> str | None:
    """What names the columns where one list of whole numbers and one of numbers can be indices and values: ``columns={
    "label": "y", "indices": "i", "values": "v"}``; None where there are none, or several."""
    import pyarrow as pa

    kinds = pa.types
    others = [field for field in schema if field.name not in (weight, *labels)]
    lists = {field.name: field.type.value_type for field in others
             if kinds.is_list(field.type) or kinds.is_large_list(field.type)}  # fmt: skip
    indices = [name for name, kind in lists.items() if kinds.is_integer(kind)]
    values = [name for name, kind in lists.items() if kinds.is_floating(kind)]
    if len(indices) != 1 or len(values) > 1:
        return None
    rest = labels or [field.name for field in others if field.name not in (*indices, *values)]
    roles = {"label": rest[0] if len(rest) == 1 else "COLUMN", "indices": indices[0]}
    if values:
        roles["values"] = values[0]
    return "columns={" + ", ".join(f'"{role}": "{name}"' for role, name in roles.items()) + "} names them"


def _first(schema: pa.Schema, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if vectors.field(schema, name) is not None), None)


def _listed(schema: pa.Schema) -> str:
    return ", ".join(schema.names[:20]) + (", ..." if len(schema.names) > 20 else "")


def check_types(schema: pa.Schema, layout: Layout, path: str) -> dict[str, str]:
    """What the columns hold: {"label": kind, "indices": "int32"|"int64"}; kind is bool, int, float or str.

    Raises
    ------
    SchemaError : if a type cannot be used.
    """
    import pyarrow as pa

    found = {}
    for role in ("indices", "values"):
        name = getattr(layout, role)
        if name is None:
            continue
        if isinstance(name, tuple):
            vectors.check_numbers(schema, name, path)
            continue
        item = vectors.item_type(_type(schema, name, path))
        wanted, test = ("integers", pa.types.is_integer) if role == "indices" else ("numbers", _is_number)
        if item is None or not test(item):
            message = f"must hold a list of {wanted} in each row, not {_type(schema, name, path)}"
            raise SchemaError(message, file=path, column=name)
        found[role] = str(item)
    found["indices"] = "int64" if found.get("indices") in ("int64", "uint64", "uint32") else "int32"
    if layout.label is not None:
        found["label"] = _label_kind(_type(schema, layout.label, path), layout.label, path)
    if layout.weight is not None and not _is_number(_type(schema, layout.weight, path)):
        raise SchemaError("row weights must be numbers", file=path, column=layout.weight)
    return found


def _type(schema: pa.Schema, name: str, path: str) -> pa.DataType:
    field = vectors.field(schema, name)
    if field is None:
        raise SchemaError(f"there is no such column; the file has {_listed(schema)}", file=path, column=name)
    return field.type


def _is_number(type_: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)


def _label_kind(type_: pa.DataType, name: str, path: str) -> str:
    import pyarrow as pa

    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    tests = {
        "bool": pa.types.is_boolean,
        "int": lambda t: pa.types.is_integer(t) or (pa.types.is_decimal(t) and t.scale <= 0),
        "float": lambda t: pa.types.is_floating(t) or pa.types.is_decimal(t),
        "str": lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t),
    }
    for kind, test in tests.items():
        if test(type_):
            return kind
    if (sets := label_sets.item_kind(type_)) is not None:
        return sets
    message = f"labels must be booleans, integers, numbers or strings, or lists of integers or strings, not {type_}"
    raise SchemaError(message, file=path, column=name)


def has_column(schema: pa.Schema, name: str) -> bool:
    """Whether ``name``, which may lead into a struct, is there."""
    return vectors.field(schema, name) is not None


NUMPY_NAMES = {"halffloat": "float16", "float": "float32", "double": "float64"}  # of Arrow's types, where they differ


def label_dtype(schema: pa.Schema, layout: Layout) -> str:
    """numpy's name of the labels' type, "str" for text, "" where there are none."""
    import pyarrow as pa

    if layout.label is None:
        return ""
    type_ = _type(schema, layout.label, "")
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    kind = _label_kind(type_, layout.label, "")
    if pa.types.is_decimal(type_):
        return f"{kind}64"
    if kind in ("str", label_sets.WHOLE, label_sets.TEXT):
        return kind
    return NUMPY_NAMES.get(str(type_), str(type_))  # to_pandas_dtype may want pandas


# Reading rows


def part_rows(n_rows: int, nnz: int) -> int:
    """How many rows of a row group of so many rows and entries to decode at a time: ``PART_BYTES`` in the mean."""
    each = PART_ROW_BYTES + PART_ENTRY_BYTES * nnz / max(1, n_rows)
    return max(1, int(PART_BYTES / each))


class Said(NamedTuple):
    """What a file says of itself, read and checked once for all threads that open it: what our own reader of its lists
    needs (None: Arrow reads them), pyarrow's metadata, and the schema, which pyarrow would make anew at each look."""

    footer: Footer | None
    metadata: pq.FileMetaData
    schema: pa.Schema


def said_by(path: str) -> Said:
    """What the file says of itself; errors as ``claims`` and ``open_parquet``, if it is not one of ours too."""
    footer = None if files.is_remote(path) else claims(path)
    with open_parquet(path) as file:
        return Said(footer, file.metadata, file.schema_arrow)


def open_pages(path: str, said: Said, scratch: pages.Scratch | None = None) -> pages.Pages | None:
    """A way to the pages of the file's lists past Arrow; None where there is none."""
    if said.footer is None:
        return None
    return pages.pages_of(files.open_arrow(path), said.footer, said.metadata.schema, scratch)


def read_rows(
    file: pq.ParquetFile,
    schema: pa.Schema,
    row_group: int,
    layout: Layout,
    path: str,
    lists: pages.Pages | None = None,
    into: Mapping[str, np.ndarray] | None = None,
) -> Rows:
    """One row group as arrays: no nulls, indices and values of equal lengths, values in float32's range.

    What ``lists`` can read does not go through Arrow, and comes to lie in ``into``: column -> array [nnz].

    Raises
    ------
    DataError : with the place of the first fault.
    """
    with translated(path, row_group):
        names = [name for name in (layout.indices, layout.values) if isinstance(name, str)]
        known = None
        if lists is not None and names and layout.kind is None:
            known = pages.read_lists(lists, row_group, names, [(into or {}).get(name) for name in names])
        columns = [name for name in layout.columns(schema) if known is None or name not in names]
        table = file.read_row_group(row_group, columns=columns, use_threads=False)
        table.validate()
        group = _Group(table, layout, path, row_group, dict(zip(names, known or (), strict=False)))
        del table
        return group.rows()


def rows_of_group(table: pa.Table, layout: Layout, path: str, row_group: int) -> Rows:
    """Rows of a row group that were read as a table, as ``read_rows`` has them; errors likewise."""
    with translated(path, row_group):
        return _Group(table, layout, path, row_group, {}).rows()


def read_parts(
    file: pq.ParquetFile, schema: pa.Schema, row_group: int, layout: Layout, path: str, rows: int
) -> Iterator[tuple[int, Rows]]:
    """One row group as ``read_rows`` has it, in parts of at most so many ``rows``: (first row, its rows) each.

    No more than a part is decoded at a time: of 20 million empty rows, which take 190 kB in a file and 1.2 GB as
    arrays, as of 50,000 long ones.

    Raises
    ------
    DataError : with the place of the first fault.
    """
    import pyarrow as pa

    first = 0
    with translated(path, row_group):
        for batch in file.iter_batches(rows, [row_group], columns=layout.columns(schema), use_threads=False):
            with counted_from(first):
                table = pa.Table.from_batches([batch])
                table.validate()
                part = _Group(table, layout, path, row_group, {}).rows()
            del table, batch
            yield first, part
            first += part.n_rows


@contextlib.contextmanager
def counted_from(first: int) -> Iterator[None]:
    """Errors of rows in a part of a row group name the rows as they are counted in all of it; ``first`` : its first."""
    try:
        yield
    except DataError as error:
        raise error.further_down(first) from error.__cause__


def read_labels(
    file: pq.ParquetFile, row_group: int, layout: Layout, path: str
) -> Iterator[tuple[pa.Array, np.ndarray]]:
    """Labels (Arrow array [m]) and weights (float64 [m]) of a row group that has both, part by part.

    Raises
    ------
    DataError : with the place of the first fault.
    """
    import pyarrow as pa

    assert layout.label is not None and layout.weight is not None
    with translated(path, row_group):
        columns = [vectors.column_of(file.schema_arrow, name) for name in (layout.label, layout.weight)]
        for batch in file.iter_batches(part_rows(1, 0), [row_group], columns=columns, use_threads=False):
            group = _Group(pa.Table.from_batches([batch]), layout, path, row_group, {})
            labels, weights = group.decoded(group.column(layout.label)), group.weights()
            assert weights is not None
            yield labels, weights


def rows_of_table(X: object) -> scipy.sparse.csr_matrix | None:
    """Rows of a table in memory (pyarrow's, polars') with a column of vectors, as CSR; None of anything else.

    Raises
    ------
    DataError, SchemaError : as for a row group of such columns.
    """
    if not hasattr(X, "schema") or not (hasattr(X, "to_arrow") or hasattr(X, "to_batches") or hasattr(X, "to_pylist")):
        return None
    import pyarrow as pa
    import scipy.sparse

    table = X.to_arrow() if hasattr(X, "to_arrow") else X
    table = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    if not isinstance(table, pa.Table) or not any(vectors.is_nested(column.type) for column in table.schema):
        return None
    layout = find_layout(table.schema, None, "the table in memory", need_label=False)
    rows = _Group(table, layout._replace(label=None, weight=None), "the table in memory", 0, {}).rows()
    checked_norms(rows, 2**63, layout, "the table in memory", 0)
    values = rows.values if rows.values.size else np.ones(rows.indices.size, np.float32)
    indices = rows.indices.astype(np.int64)
    width = int(indices.max()) + 1 if indices.size else 0
    found = scipy.sparse.csr_matrix((values, indices, rows.indptr), shape=(rows.n_rows, width))
    if layout.indices is None:
        found = found.copy()  # the numbers are the table's own
        found.eliminate_zeros()
    return found


class _Group:
    """The columns of one row group on their way to ``Rows``."""

    def __init__(
        self,
        table: pa.Table,
        layout: Layout,
        path: str,
        row_group: int,
        known: Mapping[str, tuple[np.ndarray, np.ndarray]],
    ) -> None:
        self.table, self.layout, self.known = table, layout, known
        self.place: dict[str, Any] = {"file": path, "row_group": row_group}

    def rows(self) -> Rows:
        layout = self.layout
        if layout.kind is not None:
            indptr, indices, values = self.vectors()
        elif layout.indices is None:
            indptr, indices, values = self.dense()
        else:
            indptr, indices = self.lists(layout.indices)
            values = np.empty(0, np.float32)
            if layout.values is not None:
                assert isinstance(layout.values, str)
                ends, values = self.lists(layout.values)
                self.check_lengths(indptr, ends)
        values = self.as_float32(indptr, values)
        labels = None if layout.label is None else self.column(layout.label)
        weights = self.weights()
        self.check_counts(indptr.size - 1, labels, weights)
        return Rows(indptr, self.as_index(indptr, indices), values, self.decoded(labels), weights)

    def check_counts(self, n_rows: int, labels: pa.Array | None, weights: np.ndarray | None) -> None:
        """A label and a weight for each row: where the lists are not of the table, nobody else has compared them."""
        for name, column in ((self.layout.label, labels), (self.layout.weight, weights)):
            if column is not None and len(column) != n_rows:
                raise DataError(f"damaged; copy it again: {plural(len(column), 'value')} for {plural(n_rows, 'row')}",
                                **self.place, column=name)  # fmt: skip

    def column(self, name: str, nulls: bool = False) -> pa.Array:
        """The column as one array; a null is an error unless allowed."""
        import pyarrow as pa

        outer, _, inner = (name, "", "") if name in self.table.column_names else name.partition(".")
        column = self.table.column(outer)
        if inner:
            self.check_nulls(column, outer)
            column = pa.chunked_array([chunk.field(inner) for chunk in column.chunks], column.type.field(inner).type)
        array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
        if not nulls:
            self.check_nulls(array, name)
        return array

    def check_nulls(self, array: pa.Array, name: str) -> None:
        if array.null_count:
            row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
            self.check_labels(name, array.is_null().to_numpy(zero_copy_only=False))
            more = NAMED if isinstance(self.layout.values, tuple) and name in self.layout.values else NO_LIST
            raise DataError(f"null; every row needs a value here{more}", **self.place, row=row, column=name)

    def check_labels(self, name: str | None, missing: np.ndarray) -> None:
        """Of a table of numbers, say how to leave out rows whose label is ``missing``, if ``name`` is the label."""
        if name != self.layout.label or not isinstance(self.layout.values, tuple) or not missing.any():
            return
        count, n_rows = int(np.count_nonzero(missing)), missing.size
        options, keywords = skipping(count, n_rows, whole=False)
        raise DataError(f"the label is missing; to leave such rows out ({count:,} of {n_rows:,} rows here), use "
                        f'--format parquet {options} (features=bigclf.suggest(FILE, label="{name}"), {keywords})',
                        **self.place, row=int(np.argmax(missing)), column=name)  # fmt: skip

    def lists(self, name: str, nulls: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Row bounds int64 [m+1], from 0, and the elements of a list column."""
        import pyarrow as pa

        if name in self.known:
            return self.known[name]
        column = vectors.column_of(self.table.schema, name)
        array, inner = self.column(column, nulls), name[len(column) + 1 :]
        if pa.types.is_fixed_size_list(array.type):
            indptr = np.arange(len(array) + 1, dtype=np.int64) * array.type.list_size
            items = array.flatten()
        else:
            offsets = as_numpy(array.offsets)
            items = array.values.slice(offsets[0], offsets[-1] - offsets[0])
            indptr = offsets.astype(np.int64) - offsets[0]
            if array.null_count:  # Arrow lets a null list span elements; Parquet readers leave it empty
                items = array.flatten()
                lengths = as_numpy(array.value_lengths().fill_null(0))
                indptr = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        if items.null_count:
            entry = int(np.flatnonzero(items.is_null().to_numpy(zero_copy_only=False))[0])
            raise DataError("a null inside the list", **self.place, row=_row_of(indptr, entry), column=name)
        if inner:
            return indptr, self.member(indptr, items, name, inner)
        return indptr, as_numpy(items)

    def member(self, indptr: np.ndarray, items: pa.Array, name: str, inner: str) -> np.ndarray:
        """One field of the structs that are a list's elements."""
        found = items.field(items.type.get_field_index(inner))
        if found.null_count:
            entry = int(np.flatnonzero(found.is_null().to_numpy(zero_copy_only=False))[0])
            raise DataError("a null inside the list", **self.place, row=_row_of(indptr, entry), column=name)
        return as_numpy(found)

    def dense(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows of a value for every feature: lists, or a column each."""
        names = self.layout.values
        if isinstance(names, tuple):
            columns = [as_numpy(self.column(name)) for name in names]
            kind = np.result_type(*columns)  # of bools too
            values = np.stack(columns, axis=1, dtype=np.float32 if kind == np.bool_ else kind).ravel()
            indptr = np.arange(columns[0].size + 1, dtype=np.int64) * len(names)
        else:
            assert names is not None
            indptr, values = self.lists(names)
        indices = np.arange(values.size, dtype=np.int64) - np.repeat(indptr[:-1], np.diff(indptr))
        return indptr, indices.astype(np.int32), values

    def check_lengths(self, indptr: np.ndarray, ends: np.ndarray) -> None:
        if not np.array_equal(indptr, ends):
            row = int(np.flatnonzero(np.diff(indptr) != np.diff(ends))[0])
            counts = f"{indptr[row + 1] - indptr[row]} indices but {ends[row + 1] - ends[row]} values"
            raise DataError(counts, **self.place, row=row, column=self.layout.values_name)

    def vectors(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Spark's vectors: type 0 sparse (indices, values), type 1 dense (values only)."""
        assert self.layout.kind is not None and self.layout.indices is not None and isinstance(self.layout.values, str)
        dense = as_numpy(self.column(self.layout.kind)) == 1
        ends, sparse = self.lists(self.layout.indices, nulls=True)
        indptr, values = self.lists(self.layout.values)
        lengths = np.diff(indptr)
        given = np.where(dense, lengths, np.diff(ends))
        self.check_lengths(np.concatenate(([0], np.cumsum(given))), indptr)
        if not dense.any():
            return indptr, sparse, values
        indices = np.arange(values.size, dtype=np.int64) - np.repeat(indptr[:-1], lengths)
        indices[np.repeat(~dense, lengths)] = sparse[np.repeat(~dense, np.diff(ends))]
        return indptr, indices.astype(np.int32), values

    def as_index(self, indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """Unsigned 32 or 64 bits; what was negative becomes huge and is found by the check of the range."""
        if indices.dtype == np.uint64 and indices.size and int(indices.max()) >= 2**63:
            row = _row_of(indptr, int(np.argmax(indices >= 2**63)))
            raise DataError("an index is not less than 2^63", **self.place, row=row, column=self.layout.indices)
        wide = indices.dtype.itemsize == 8 or indices.dtype == np.uint32
        return as_unsigned(np.ascontiguousarray(indices, dtype=np.int64 if wide else np.int32))

    def as_float32(self, indptr: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The values as float32; a finite one beyond its range is an error."""
        if values.dtype == np.float32:
            return np.ascontiguousarray(values)
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float32)
        over = np.isinf(narrow) & np.isfinite(values)
        if over.any():
            entry = int(np.argmax(over))
            message = f"the value {values[entry]:g} is beyond the range of float32 ({FLOAT32_MAX:.3g}); rescale it"
            raise DataError(message, **self.place, row=_row_of(indptr, entry), column=self.layout.values_name)
        return narrow

    def decoded(self, labels: pa.Array | None) -> pa.Array | None:
        """Plain values of a dictionary-encoded column; NaN is an error."""
        import pyarrow as pa

        if labels is None:
            return None
        if label_sets.item_kind(labels.type) is not None:

            def refused(message: str, row: int) -> DataError:
                return DataError(message, **self.place, row=row, column=self.layout.label)

            return label_sets.as_texts(labels, refused)
        if pa.types.is_dictionary(labels.type):
            labels = labels.dictionary_decode()
            self.check_nulls(labels, self.layout.label or "")
        if pa.types.is_decimal(labels.type):
            labels = labels.cast(pa.int64() if labels.type.scale <= 0 else pa.float64())
        if pa.types.is_floating(labels.type):
            self.check_finite(as_numpy(labels), self.layout.label, "label")
        return labels

    def weights(self) -> np.ndarray | None:
        """Row weights as float64: finite and not negative."""
        if self.layout.weight is None:
            return None
        weights = as_numpy(self.column(self.layout.weight)).astype(np.float64)
        self.check_finite(weights, self.layout.weight, "weight")
        if weights.size and weights.min() < 0:
            row = int(np.argmax(weights < 0))
            message = f"the weight {weights[row]:g} is negative"
            raise DataError(message, **self.place, row=row, column=self.layout.weight)
        return weights

    def check_finite(self, numbers: np.ndarray, column: str | None, what: str) -> None:
        bad = ~np.isfinite(numbers)
        if bad.any():
            self.check_labels(column, np.isnan(numbers))
            row = int(np.argmax(bad))
            raise DataError(f"the {what} is {numbers[row]}", **self.place, row=row, column=column)


def _row_of(indptr: np.ndarray, entry: int) -> int:
    """The row that holds ``entry``."""
    return int(np.searchsorted(indptr, entry, side="right")) - 1


def checked_norms(rows: Rows, n_features: int, layout: Layout, path: str, row_group: int) -> np.ndarray:
    """Squared norms float64 [m] of rows whose indices and values have been checked.

    Raises
    ------
    DataError : naming the first row with an index that is negative, not below ``n_features``, unsorted or repeated,
        or with a value that is not finite.
    """
    norms = np.empty(rows.n_rows, np.float64)
    limit = rows.indices.dtype.type(min(n_features, 2 ** (8 * rows.indices.dtype.itemsize - 1)))
    fault, row = check_rows(writable(rows.indptr), writable(rows.indices), writable(rows.values), limit, norms)
    if fault != OK:
        column, message = FAULTS[fault]
        name = layout.indices if column == "indices" else layout.values_name
        message = message.format(n_features=f"{int(limit):,}")
        raise DataError(message, file=path, row_group=row_group, row=int(row), column=name)
    return norms


# What a footer says


def read_facts(footer: Footer, path: str) -> dict[str, Any] | None:
    """What bigclf wrote into the footer of one of its own shards; None for other people's files.

    Raises
    ------
    DataError : if it is damaged, contradicts the file or is of a newer format.
    """
    said = footer.pairs.get(KEY)
    if said is None:
        return None
    try:
        facts = unsealed(said)
        check_fields(facts, {"version": whole(1)})
        if facts["version"] > FORMAT_VERSION:
            raise DataError(f"written in shard format {facts['version']}, this program reads up to {FORMAT_VERSION}; "
                            "install a newer bigclf", file=path)  # fmt: skip
        check_facts(facts, FOOTER)
        check_features(facts["features"])
        check_relations(_agreeing(facts, footer))
    except ValueError as error:
        raise DataError(f"the facts in the footer are damaged ({error}); copy the file again", file=path) from None
    return facts


FOOTER = {
    "writer": text(),
    "sorted": FLAG,
    "features": TABLE,
    "chunks": list_of(whole()),
    "zero_weight": optional(list_of(tuple_of(whole(), whole()))),
    "content": text(),
}


def _agreeing(facts: Mapping[str, Any], footer: Footer) -> Iterator[tuple[bool, str, str]]:
    """What the facts in a footer say that the file itself says too."""
    yield facts["n_rows"] == footer.n_rows, "n_rows", f"{footer.n_rows:,}, as the file has"
    yield len(facts["chunks"]) == len(footer.groups), "chunks", f"of length {len(footer.groups):,}, as the row groups"
    yield sum(facts["chunks"]) == facts["nnz"], "nnz", "the sum of chunks"
    columns = {column.name.partition(".")[0] for group in footer.groups for column in group.columns}
    if columns:
        yield facts["binary"] == ("values" not in columns), "binary", "true where there is no column of values"
        weighted = "weight" in columns
        yield weighted or facts["weight_sum"] == facts["n_rows"], "weight_sum", "n_rows where rows have no weights"
        yield weighted or "zero_weight" not in facts, "zero_weight", "left out where rows have no weights"
    for group, nnz in zip(footer.groups, facts["chunks"], strict=True):
        held = next((column.n_values for column in group.columns if column.name.startswith("indices.")), nnz)
        yield nnz <= held <= nnz + group.n_rows, "chunks", "the entries of each row group"  # an empty row counts there
    zeros = facts.get("zero_weight", [(0, 0)] * len(footer.groups))
    yield len(zeros) == len(footer.groups), "zero_weight", f"of length {len(footer.groups):,}, as the row groups"
    for group, nnz, (rows, entries) in zip(footer.groups, facts["chunks"], zeros, strict=True):
        yield rows <= group.n_rows and entries <= nnz, "zero_weight", "at most rows and entries of each row group"


def sealed(facts: Mapping[str, object], lines: bool = False) -> bytes:
    """``facts`` as JSON with a checksum of themselves; ``lines`` : each fact on one of its own."""
    told: dict[str, object] = {**facts, "checksum": _checksum(facts)}
    if not lines:
        return json.dumps(told, sort_keys=True).encode()
    each = (f" {json.dumps(name)}: {json.dumps(told[name], sort_keys=True)}" for name in sorted(told))
    return ("{\n" + ",\n".join(each) + "\n}").encode()


def unsealed(text: bytes | str) -> Any:
    """What ``sealed`` was given.

    Raises
    ------
    ValueError : if a byte is not what it was.
    """
    facts = json.loads(text)
    if not isinstance(facts, dict) or facts.pop("checksum", None) != _checksum(facts):
        raise ValueError("the checksum does not match")
    return facts


def _checksum(facts: Mapping[str, object]) -> str:
    return hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16).hexdigest()


# Writing


class ShardWriter:
    """Writes one shard, a row group a call, seen complete or not at all.

    Parameters
    ----------
    path : where the shard appears when the ``with`` block ends well.
    n_features : number of columns of the data the shard belongs to.
    classes : [K] ascending, in the label's own type (bool, int64, float64 or str); labels are given as codes. None:
        labels are numbers, float64.
    index_width : 4 or 8, bytes of an index.
    binary : leave the values out: each is 1.
    weighted : write the column ``weight``.
    features : how the features were made.
    sets : the classes are sets of labels of this kind, each as one text (``label_sets``); what is written are lists.
    """

    def __init__(
        self,
        path: str,
        *,
        n_features: int,
        classes: np.ndarray | None,
        index_width: int = 4,
        binary: bool = False,
        weighted: bool = False,
        features: Mapping[str, object] | None = None,
        sets: str = "",
    ) -> None:
        self.sets = sets
        self.real = classes is None
        self.classes = np.empty(0) if classes is None else np.asarray(classes)
        self.n_features, self.index_width = int(n_features), index_width
        self.binary, self.weighted = binary, weighted
        self.features = dict(features or {"kind": "given", "version": 1})
        self.schema = shard_schema(self.classes, index_width, binary, weighted, sets)
        self.chunks: list[int] = []
        self.zero_weight: list[tuple[int, int]] = []  # of each chunk, rows of weight 0 and their entries
        self.counts = np.zeros(self.classes.size, np.int64)
        self.n_rows = self.max_row_nnz = self.label_changes = 0
        self.max_norm = self.weight_sum = 0.0
        self.row_constant = True
        self.label_range = [np.inf, -np.inf, 0.0]  # least, greatest, sum
        self._content = hashlib.blake2b(digest_size=16)
        self._path = path
        self._file: Any = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> ShardWriter:
        with contextlib.ExitStack() as stack:
            sink = stack.enter_context(files.open_arrow(stack.enter_context(files.publishing(self._path)), "wb"))
            self._file = parquet_writer(sink, self.schema)
            self._open = stack.pop_all()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._open:
            if error is not None:
                with contextlib.suppress(Exception):
                    self._file.close()
                raise error
            self._file.add_key_value_metadata({KEY.decode(): sealed(self.footer()).decode()})
            self._file.close()

    def write(
        self,
        indptr: np.ndarray,
        indices: np.ndarray,
        values: np.ndarray,
        codes: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> None:
        """Write a chunk: rows as in ``Block`` (indptr from 0), ``codes`` of classes or numbers [m], ``weights`` [m]."""
        arrays = self._as_stored(indptr, indices, values, codes, weights)
        self._note(indptr, arrays)
        for array in (indptr, codes, *(arrays[name] for name in arrays if name != "label")):
            self._content.update(np.ascontiguousarray(array).data)
        self._file.write_table(self._table(indptr, arrays), row_group_size=max(indptr.size - 1, 1))

    def _as_stored(self, indptr, indices, values, codes, weights) -> dict[str, np.ndarray]:  # type: ignore[no-untyped-def]
        arrays = {
            "label": codes.astype(np.float64) if self.real else self.classes[codes.astype(np.int64)],
            "indices": np.ascontiguousarray(indices, np.uint64 if self.index_width == 8 else np.uint32),
        }
        arrays["indices"] = arrays["indices"].view(np.int64 if self.index_width == 8 else np.int32)
        if not self.binary:
            arrays["values"] = values if values.size else np.ones(indices.size, np.float32)
        if self.weighted:
            arrays["weight"] = np.ones(indptr.size - 1, np.float32) if weights is None else weights.astype(np.float32)
        if self.real:
            self._note_numbers(arrays["label"])
        else:
            self.counts += np.bincount(codes.astype(np.int64), minlength=self.classes.size)
        self.label_changes += int(np.count_nonzero(np.diff(codes)))
        return arrays

    def _note_numbers(self, labels: np.ndarray) -> None:
        """The range of labels that are numbers; one that is none is an error."""
        if not np.isfinite(labels).all():
            raise DataError("a label is NaN or infinite", row=int(np.argmin(np.isfinite(labels))), column="label")
        if labels.size:
            low, high, total = self.label_range
            self.label_range = [min(low, float(labels.min())), max(high, float(labels.max())),
                                total + float(labels.sum())]  # fmt: skip

    def _note(self, indptr: np.ndarray, arrays: dict[str, np.ndarray]) -> None:
        """Take down what the footer will say; a row that no reader would accept is an error here already."""
        values = arrays.get("values", np.empty(0, np.float32))
        rows = Rows(indptr, as_unsigned(arrays["indices"]), values, None, None)
        layout = Layout("indices", "values", None, None)
        norms = checked_norms(rows, self.n_features, layout, "to be written", len(self.chunks))
        self.chunks.append(int(indptr[-1]))
        if self.weighted:
            zeros = arrays["weight"] == 0
            self.zero_weight.append((int(np.count_nonzero(zeros)), int(np.diff(indptr)[zeros].sum())))
        self.row_constant = self.row_constant and one_value_a_row(indptr, values)[0].size == 0
        self.n_rows += rows.n_rows
        if rows.n_rows:
            self.max_row_nnz = max(self.max_row_nnz, int(np.diff(indptr).max()))
            self.max_norm = max(self.max_norm, float(norms.max()))
        self.weight_sum += float(arrays["weight"].sum(dtype=np.float64)) if self.weighted else rows.n_rows

    def _table(self, indptr: np.ndarray, arrays: dict[str, np.ndarray]) -> pa.Table:
        import pyarrow as pa

        offsets = in_arrow(indptr.astype(np.int32))
        columns = []
        for field in self.schema:
            array = arrays[field.name]
            if field.name in ("indices", "values"):
                columns.append(pa.ListArray.from_arrays(offsets, in_arrow(array), type=field.type))
            elif self.sets and field.name == "label":
                columns.append(label_sets.as_lists(array, self.sets).cast(field.type))
            else:
                columns.append(in_arrow(array, field.type))
        return pa.Table.from_arrays(columns, schema=self.schema)

    def footer(self) -> dict[str, object]:
        """What the file's own metadata says of it."""

        present = np.flatnonzero(self.counts)
        numbers = {"label_range": self.label_range if self.n_rows else [0.0, 0.0, 0.0]} if self.real else {}
        zero_weight = {"zero_weight": self.zero_weight} if self.weighted else {}
        return {
            **numbers,
            **zero_weight,
            "version": FORMAT_VERSION if self.real else CLASSES_FORMAT_VERSION,
            "writer": __version__,
            "n_features": self.n_features,
            "n_rows": self.n_rows,
            "nnz": sum(self.chunks),
            "sorted": True,
            "binary": self.binary,
            "row_constant": self.row_constant,
            "features": self.features,
            "classes": self.classes[present].tolist(),
            "class_counts": self.counts[present].tolist(),
            "label_changes": self.label_changes,
            "max_row_nnz": self.max_row_nnz,
            "max_norm": self.max_norm,
            "weight_sum": self.weight_sum,
            "chunks": self.chunks,
            "content": self._content.hexdigest(),
        }


def shard_schema(classes: np.ndarray, index_width: int, binary: bool, weighted: bool, sets: str = "") -> pa.Schema:
    """Arrow schema of a shard; nothing in it may be null."""
    import pyarrow as pa

    def listed(item: pa.DataType) -> pa.DataType:
        return pa.list_(pa.field("element", item, nullable=False))

    label = pa.string() if classes.dtype.kind == "U" else pa.from_numpy_dtype(classes.dtype)
    if sets:
        label = listed(pa.int64() if sets == label_sets.WHOLE else pa.string())
    fields = [("label", label)]
    fields += [("indices", listed(pa.int64() if index_width == 8 else pa.int32()))]
    fields += [] if binary else [("values", listed(pa.float32()))]
    fields += [("weight", pa.float32())] if weighted else []
    return pa.schema([pa.field(name, type_, nullable=False) for name, type_ in fields])


ENCODINGS = {"indices.list.element": "DELTA_BINARY_PACKED", "values.list.element": "BYTE_STREAM_SPLIT"}


def parquet_writer(file: pa.NativeFile, schema: pa.Schema) -> pq.ParquetWriter:
    """Writer to an Arrow file, of zstd pages with checksums.

    Delta-coded indices and byte-split values are both smaller and faster to write and to read than plain ones
    (5.1 against 5.9 bytes and 14 against 16 ns a non-zero on skewed text-like rows; 0.9 against 2.3 bytes and
    8 against 11 ns on positional k-mers).
    """
    import pyarrow.parquet as pq

    lists = {f"{name}.list.element" for name in schema.names}
    return pq.ParquetWriter(
        file,
        schema,
        compression="zstd",
        write_page_checksum=True,
        use_dictionary=[name for name in schema.names if name == "label"],
        write_statistics=[name for name in schema.names if name not in ("indices", "values")],
        column_encoding={name: encoding for name, encoding in ENCODINGS.items() if name in lists},
    )


# Plain tables: chunk tables, scores


def write_table(path: str, columns: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> None:
    """Publish a Parquet file of plain columns: name -> array [n]."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = {name: in_arrow(column) for name, column in columns.items()}
    table = pa.table(found).replace_schema_metadata(dict(metadata) if metadata else None)
    with files.publishing(path) as beside, files.open_arrow(beside, "wb") as sink:
        pq.write_table(table, sink, compression="zstd", write_page_checksum=True)


def read_table(path: str, columns: list[str] | None = None) -> dict[str, np.ndarray]:
    """The columns of a Parquet file: name -> array [n].

    Raises
    ------
    DataError : if the file is missing or damaged.
    """
    claims(path)
    with open_parquet(path) as file, translated(path):
        table = file.read(columns=columns, use_threads=False)
        return {name: as_numpy(table.column(name).combine_chunks()) for name in table.column_names}


def read_metadata(path: str) -> dict[str, str]:
    """The key-value metadata of a Parquet file."""
    return {k.decode(): v.decode() for k, v in claims(path).pairs.items() if k != b"ARROW:schema"}


def load_libraries() -> None:
    """Load what rows of shards are read by, which takes 4 MB: before memory is measured, as of all libraries."""
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401


def release_unused() -> None:
    """Let Arrow's allocator give memory that it no longer needs back to the system."""
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


def release_freed() -> None:
    """Give back to the system what Arrow's allocator and the C library keep of freed memory; it may take some 0.1 s
    where there are gigabytes of it in small pieces."""
    if "pyarrow" in sys.modules:
        release_unused()
    with contextlib.suppress(AttributeError, OSError, TypeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


MUCH = 32_000_000  # bytes that Arrow gave out since the last time: less is not waited for
DECAY = 0.3  # seconds, within which jemalloc gives back what was freed (``bigclf/__init__.py``)
_given_out = 0


def await_freed() -> None:
    """Wait until what Arrow freed is the system's again: jemalloc gives it back a moment later, in a thread of its own.
    Where Arrow gave out little since the last time there is nothing to wait for."""
    global _given_out
    if "pyarrow" not in sys.modules:
        return
    import pyarrow as pa

    pool = pa.default_memory_pool()
    given_out = getattr(pool, "total_bytes_allocated", pool.max_memory)  # older ones say only the most at a time
    before, _given_out = _given_out, given_out()
    if pool.backend_name == "jemalloc" and _given_out - before >= MUCH:
        time.sleep(DECAY)
