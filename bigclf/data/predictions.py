"""Files of predictions: one for each file that was read, written a row group at a time, seen complete or not at all.

A long one is written in parts, which lie in a hidden directory beside it until all are there: what is interrupted goes
on after its last whole part.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bigclf import files
from bigclf.data import shards
from bigclf.data.label_sets import as_csv, item_kind
from bigclf.errors import DataError, RunError
from bigclf.features.arrow import in_arrow, texts_in_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

KEY, UNSEEN = "bigclf", "unseen"
PASSING_ROWS = 1 << 14  # of columns that pass through, read at a time
PART_WORK = 2**28  # multiplications, bytes of text or whatever ``work`` counts: some seconds

Totals = dict[str, int]  # what came of a file so far: "rows", "work" done and whatever its reader needs to go on
ArrowColumns: TypeAlias = "Mapping[str, pa.Array | pa.ChunkedArray]"
Column: TypeAlias = "np.ndarray | pa.Array"
Columns: TypeAlias = "Mapping[str, np.ndarray | pa.Array | pa.ChunkedArray]"  # by name, [m]


class PredictionWriter:
    """Writes plain columns to ``path``; what ``mark`` says stands in the footer and tells the file again.

    Parameters
    ----------
    path : where the file appears when the ``with`` block ends well.
    mark : what it was made from, as JSON knows it; written when the file ends, as it is by then.
    within : the directory it grows in; None: beside ``path``.
    """

    def __init__(self, path: str, mark: Mapping[str, object], within: str | None = None) -> None:
        self._path, self._mark, self._publishing = path, mark, files.publishing(path, within=within)
        self._beside = ""
        self._file: pq.ParquetWriter | None = None
        self._sink: pa.NativeFile | None = None

    def __enter__(self) -> PredictionWriter:
        self._beside = self._publishing.__enter__()
        return self

    def write(self, columns: Columns) -> None:
        """A row group; the same names and types at every call."""
        import pyarrow as pa

        table = pa.table({name: _arrow(column) for name, column in columns.items()})
        try:
            if self._file is None:
                self._sink = files.open_arrow(self._beside, "wb")
                self._file = shards.parquet_writer(self._sink, table.schema)
            self._file.write_table(table, row_group_size=max(table.num_rows, 1))
        except OSError as error:
            raise RunError(f"{self._path}: cannot be written: {error}; make room, or choose another place") from error

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            with self._sink or contextlib.nullcontext():
                if self._file is not None:
                    if kind is None:
                        self._file.add_key_value_metadata({KEY: json.dumps(self._mark, sort_keys=True)})
                    self._file.close()
        except BaseException as failure:
            self._publishing.__exit__(type(failure), failure, failure.__traceback__)
            raise
        return self._publishing.__exit__(kind, error, trace)


def _arrow(column: np.ndarray | pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    import pyarrow as pa

    if isinstance(column, np.ndarray) and column.dtype.kind in "UO":
        return texts_in_arrow(column.tolist())
    if isinstance(column, np.ndarray):
        return in_arrow(column)
    return column if isinstance(column, pa.ChunkedArray) else pa.array(column)


def end_to_end(parts: Sequence[Column]) -> Column:
    """Columns one after the other, numpy's or Arrow's."""
    import pyarrow as pa

    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else pa.concat_arrays(parts)


# In parts


def write_in_parts(
    path: str, mark: Mapping[str, object], work: int, rows_from: Callable[[Totals], Iterator[Columns | None]],
    settle: Callable[[ArrowColumns, Totals], Columns] | None = None,
) -> Totals:  # fmt: skip
    """Write the file ``path``, in parts if there is much to do; the same bytes, interrupted or not.

    Parameters
    ----------
    mark : what the file depends on; the footer adds how many entries were ``UNSEEN``.
    work : that the whole file is likely to take.
    rows_from : row groups from where the given totals stand, which it counts on in place; None where it could be begun
        again with the totals as they are.
    settle : what the columns of a row group become by the totals of all, for types that show at the end alone; then
        there are always parts. None: they are as they shall be.

    Returns
    -------
    The totals of all.
    """
    parts, totals = parts_of(path, mark)
    if settle is None and work < PART_WORK and not parts:
        return _write_at_once(path, mark, rows_from)
    groups = rows_from(totals)
    for columns in groups:
        if columns is not None:
            parts.append(_part_path(path, len(parts)))
            _write_part(parts[-1], mark, totals, columns, groups)
    whole = settle or (lambda columns, totals: columns)
    put_together(path, {**mark, UNSEEN: totals.get(UNSEEN, 0)}, parts, lambda columns: whole(columns, totals))
    return totals


def _write_at_once(
    path: str, mark: Mapping[str, object], rows_from: Callable[[Totals], Iterator[Columns | None]]
) -> Totals:
    """The same without parts; it grows where parts would lie, so that the next call removes what a killed one left."""
    totals: Totals = {"rows": 0, "work": 0}
    told = dict(mark)
    files.make_directory(parts_directory(path))
    try:
        with PredictionWriter(path, told, parts_directory(path)) as whole:
            for columns in rows_from(totals):
                if columns is not None:
                    whole.write(columns)
            told[UNSEEN] = totals.get(UNSEEN, 0)
    finally:
        forget_parts(path)
    return totals


def parts_directory(path: str) -> str:
    """Where the parts of the file ``path`` lie until it is whole."""
    return files.join(files.parent_directory(path), f".{files.base_name(path)}.parts")


def _part_path(path: str, number: int) -> str:
    return files.join(parts_directory(path), f"{number:06d}.parquet")


def parts_of(path: str, mark: Mapping[str, object]) -> tuple[list[str], Totals]:
    """The parts of ``path`` that are there and were made for ``mark``, and the totals up to them."""
    parts, totals = list[str](), {"rows": 0, "work": 0}
    while files.exists(place := _part_path(path, len(parts))):
        told = read_mark(place)
        if told is None or told.get("of") != mark:
            break
        parts.append(place)
        totals = dict(told["totals"])
    return parts, totals


def _write_part(
    place: str, mark: Mapping[str, object], totals: Totals, columns: Columns, groups: Iterator[Columns | None]
) -> None:
    begun = totals["work"]
    files.make_directory(files.parent_directory(place))
    with PredictionWriter(place, {"of": mark, "totals": totals}) as part:
        part.write(columns)
        for more in groups:
            if more is not None:
                part.write(more)
            elif totals["work"] - begun >= PART_WORK:
                return


def put_together(
    path: str,
    mark: Mapping[str, object],
    parts: list[str],
    settle: Callable[[ArrowColumns], Columns] = lambda columns: columns,
) -> None:
    """The file ``path`` of all row groups of its parts, as they are settled; the parts go."""
    with PredictionWriter(path, mark, parts_directory(path)) as whole:
        for place in parts:
            for table in _row_groups(place):
                whole.write(settle({name: table.column(name) for name in table.column_names}))
    forget_parts(path)


def forget_parts(path: str) -> None:
    """Remove the parts of a file that is whole, if there are any."""
    hidden = parts_directory(path)
    if files.exists(hidden):
        files.remove_tree(hidden)


# As one file


def is_one_file(out: str) -> bool:
    """Whether predictions at ``out`` are one file, by its name; a directory that is there already stays one, but for
    CSV."""
    name = out.lower()
    return name.endswith(".csv") or (name.endswith(".parquet") and not files.is_directory(out))


def check_parquet(columns: Sequence[ArrowColumns], paths: Sequence[str]) -> None:
    """Refuse Arrow columns of the inputs ``paths`` that no one type holds, by a DataError."""
    _one_schema([_schema_of(each) for each in columns], paths)


def _schema_of(columns: ArrowColumns) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([(name, column.type) for name, column in columns.items()])


def _one_schema(schemas: Sequence[pa.Schema], paths: Sequence[str]) -> pa.Schema:
    """The names of the first, each of a type that holds those of all."""
    import pyarrow as pa

    one = schemas[0]
    for schema, path in zip(schemas, paths, strict=True):
        for name in schema.names:
            own = [each.field(name) for each in (one, schema)]
            try:
                joined = _joined(own)
            except pa.ArrowException:
                raise _differing(path, name, own[1].type, own[0].type) from None
            one = one.set(one.get_field_index(name), joined)
    return one


def _joined(fields: Sequence[pa.Field]) -> pa.Field:
    """A field that holds the values of all; of dictionaries and views beside plain values as plain ones."""
    import pyarrow as pa

    kinds = [kind.value_type if pa.types.is_dictionary(kind := field.type) else kind for field in fields]
    kinds = [pa.string() if pa.types.is_string_view(kind) else kind for kind in kinds]
    plain = [field.with_type(kind) for field, kind in zip(fields, kinds, strict=True)]
    with contextlib.suppress(pa.ArrowException):
        return _unified(fields)
    return _unified(plain)


def _unified(fields: Sequence[pa.Field]) -> pa.Field:
    import pyarrow as pa

    return pa.unify_schemas([pa.schema([field]) for field in fields], promote_options="permissive").field(0)


def _differing(path: str, name: str, kind: pa.DataType, other: pa.DataType) -> DataError:
    return DataError(f"is {kind} here and {other} in another file, which one column of Parquet cannot hold; write to a "
                     "directory or a file that ends in .csv, or name the other columns: --keep NAME,... (keep=[...])",
                     file=path, column=name)  # fmt: skip


def write_parquet(
    paths: Sequence[str], named: tuple[str, Sequence[str]] | None, out: str, within: str | None, note: str
) -> list[str]:
    """The files of predictions ``paths`` as one file of Parquet, as ``write_csv`` makes one of CSV; a column has the
    type that holds those of all files."""
    import pyarrow as pa

    schemas, inputs = [], paths if named is None else named[1]
    for path in paths:
        with shards.open_parquet(path) as file:
            schemas.append(file.schema_arrow.remove_metadata())
    schema = _one_schema(schemas, inputs)
    whole = schema if named is None else schema.insert(0, pa.field(named[0], pa.string()))
    with (
        files.publishing(out, within=within, note=note) as beside,
        files.open_arrow(beside, "wb") as sink,
        shards.parquet_writer(sink, whole) as writer,
    ):
        for k, path in enumerate(paths):
            for group in _row_groups(path):
                columns = [_cast(group.column(field.name), field, inputs[k]) for field in schema]
                if named is not None:
                    columns.insert(0, texts_in_arrow([named[1][k]] * group.num_rows))
                writer.write_table(pa.table(columns, schema=whole), row_group_size=max(group.num_rows, 1))
    return list(whole.names)


def _cast(column: pa.ChunkedArray, field: pa.Field, path: str) -> pa.ChunkedArray:
    import pyarrow as pa

    try:
        return column.cast(field.type)
    except pa.ArrowException:  # whole numbers beyond 2^53 beside fractions
        raise _differing(path, field.name, column.type, field.type) from None


def check_csv(columns: ArrowColumns, path: str) -> None:
    """Refuse Arrow columns of the input ``path`` that CSV cannot hold, by a DataError."""
    import pyarrow as pa

    kinds = pa.types
    others = (kinds.is_nested, kinds.is_binary, kinds.is_large_binary, kinds.is_binary_view, kinds.is_fixed_size_binary)
    for name, column in columns.items():
        kind = _plain_type(column.type)
        if any(holds(kind) for holds in others):
            raise DataError(f"holds {kind}, which CSV cannot; write to a file that ends in .parquet, or name the other "
                            "columns: --keep NAME,... (keep=[...])",
                            file=path, column=name)  # fmt: skip


def write_csv(
    paths: Sequence[str], named: tuple[str, Sequence[str]] | None, out: str, within: str | None, note: str
) -> list[str]:
    """The files of predictions ``paths``, one after another, as the file ``out`` of CSV, which appears whole.

    Parameters
    ----------
    paths : files of the same columns; a column may have another type in each, and is told as it is there.
    named : a column before the others, and of each file what stands in it; None: there is none.
    within, note : where it grows, and where is noted what appears at ``out``, as in ``files.publishing``.

    Returns
    -------
    Its columns.
    """
    with shards.open_parquet(paths[0]) as first:
        names = list(first.schema_arrow.names)
    with files.publishing(out, within=within, note=note) as beside, files.open_arrow(beside, "wb") as stream:
        for k, path in enumerate(paths):
            before = {} if named is None else {named[0]: named[1][k]}
            _append_csv(stream, path, names, before, header=k == 0)
    return names if named is None else [named[0], *names]


def _append_csv(stream: IO[bytes], path: str, names: list[str], before: Mapping[str, str], header: bool) -> None:
    """The columns ``names`` of a file of predictions, and ``before`` them some with one text each."""
    import pyarrow as pa
    import pyarrow.csv

    with shards.open_parquet(path) as file:
        types = {field.name: _plain_type(field.type) for field in file.schema_arrow}
    schema = pa.schema([*((name, pa.string()) for name in before), *((name, types[name]) for name in names)])
    options = pyarrow.csv.WriteOptions(include_header=header)
    with pyarrow.csv.CSVWriter(stream, schema, write_options=options) as writer:
        for table in _row_groups(path):
            texts = [texts_in_arrow([text] * table.num_rows) for text in before.values()]
            columns = [_as_plain(table.column(name), types[name]) for name in names]
            writer.write_table(pa.table([*texts, *columns], schema=schema))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that CSV is written from: of values themselves, and of the texts that its writer knows."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _plain_type(kind.storage_type)
    if item_kind(kind) is not None:  # joined by commas, as lists of labels that are predicted
        return pa.string()
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def _as_plain(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column as the ``_plain_type`` of its own."""
    return (as_csv(column) if item_kind(column.type) is not None else column).cast(kind)


def _row_groups(path: str) -> Iterator[pa.Table]:
    with shards.open_parquet(path) as file:
        for group in range(file.metadata.num_row_groups):
            yield file.read_row_group(group, use_threads=False)


# What is there


def made_from(path: str) -> tuple[dict[str, Any] | None, int | None]:
    """The mark of the finished file at ``path`` (None for any other file), and how many entries the model did not know
    (None of a file written before these were counted)."""
    mark = read_mark(path)
    unseen = None if mark is None else mark.pop(UNSEEN, None)
    return mark, unseen


def read_mark(path: str) -> dict[str, Any] | None:
    """What the finished file of predictions at ``path`` was made from; None for any other file."""
    try:
        mark = json.loads(shards.read_metadata(path).get(KEY, "null"))
    except (DataError, ValueError):
        return None
    return mark if isinstance(mark, dict) else None


def other_columns(path: str, layout: shards.Layout) -> list[str]:
    """Names of the columns of an input that are no part of its rows: neither label, features nor weight."""
    values = layout.values if isinstance(layout.values, tuple) else (layout.values,)
    parts = [name for name in (layout.indices, *values, layout.label, layout.weight) if name is not None]
    with shards.open_parquet(path) as file:
        names = list(file.schema_arrow.names)
    taken = {name if name in names else name.partition(".")[0] for name in parts}  # a dot leads into a struct
    return [name for name in names if name not in taken]


def passed_through(path: str, row_group: int, names: Mapping[str, str]) -> ArrowColumns:
    """Columns of the input that go to the output as they are, as Arrow arrays; ``names`` : theirs -> in the output.

    Raises
    ------
    DataError : a column that cannot be read.
    """
    if not names:
        return {}
    with shards.open_parquet(path) as file, shards.translated(path, row_group):
        table = file.read_row_group(row_group, columns=list(names), use_threads=False)
        return {said: table.column(name).combine_chunks() for name, said in names.items()}


def passed_in_parts(
    path: str, row_group: int, names: Mapping[str, str], sizes: Sequence[int]
) -> Iterator[ArrowColumns]:
    """The same in pieces of so many rows each, of which no more than the next is in memory."""
    import pyarrow as pa

    if len(sizes) == 1 or not names:
        yield from (passed_through(path, row_group, names) for _ in sizes)
        return
    with shards.open_parquet(path, buffer=shards.BUFFER_BYTES) as file, shards.translated(path, row_group):
        rest = file.schema_arrow.empty_table().select(list(names))  # KeyError where there is no such column
        for batch in file.iter_batches(PASSING_ROWS, [row_group], columns=list(names), use_threads=False):
            rest = pa.concat_tables([rest, pa.Table.from_batches([batch]).select(list(names))])
            while sizes and rest.num_rows >= sizes[0]:
                piece, rest, sizes = rest.slice(0, sizes[0]), rest.slice(sizes[0]), sizes[1:]
                piece = piece.unify_dictionaries()
                yield {said: piece.column(name).combine_chunks() for name, said in names.items()}


def no_rows(path: str, names: Mapping[str, str]) -> ArrowColumns:
    """The same without a row."""
    import pyarrow as pa

    with shards.open_parquet(path) as file:
        types = {field.name: field.type for field in file.schema_arrow}
    return {said: pa.array([], types[name]) for name, said in names.items()}
