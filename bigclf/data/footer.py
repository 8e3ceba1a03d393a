"""A Parquet footer, read without trust: what it claims, before any library allocates for it.

pyarrow's own view of a column chunk ends the process on some damaged footers (an exception no one catches), so the few
numbers needed are read here. The footer is one struct in Thrift's compact protocol; its fields are those of
``parquet.thrift`` in the Parquet format's definition.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from bigclf.errors import DataError

MAX_CHILDREN = 2**31 - 1  # list entries Arrow can address in one array
MAX_VALUES_PER_BYTE = 2**20  # run lengths pack many equal values into a byte, but not more than these
MAX_DEPTH = 16


class ColumnChunk(NamedTuple):
    """A column of a row group: dotted name, values (list entries) claimed, place of its first byte, its bytes; these
    decompressed (with page headers), and the number of its codec."""

    name: str
    n_values: int
    first: int
    n_bytes: int
    n_plain: int = 0
    codec: int = -1


class Group(NamedTuple):
    """A row group: rows, bytes once decompressed, columns."""

    n_rows: int
    n_bytes: int
    columns: list[ColumnChunk]


class Footer(NamedTuple):
    """What a footer claims."""

    n_rows: int
    groups: list[Group]
    pairs: dict[bytes, bytes]


def parse(data: bytes, path: str) -> Footer:
    """Footer from its bytes.

    Raises
    ------
    DataError : if it is damaged.
    """
    try:
        fields, _ = _struct(data, 0, 0)
        pairs = {pair[1]: pair.get(2, b"") for pair in fields.get(5, ())}
        return Footer(fields[3], [_group(group) for group in fields[4]], pairs)
    except (IndexError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"the footer is damaged ({error!r}); copy the file again", file=path) from None


def _group(fields: dict[int, Any]) -> Group:
    return Group(int(fields[3]), int(fields[2]), [_column(column[3]) for column in fields[1]])


def _column(fields: dict[int, Any]) -> ColumnChunk:
    name = b".".join(fields[3]).decode("utf-8", "replace")
    first = int(fields.get(11) or fields[9])
    return ColumnChunk(name, int(fields[5]), first, int(fields[7]), int(fields[6]), int(fields[4]))


def check(footer: Footer, path: str, size: int) -> None:
    """Refuse claims that the file's ``size`` bytes cannot hold.

    Raises
    ------
    DataError : with row group and column.
    """
    if sum(group.n_rows for group in footer.groups) != footer.n_rows:
        raise DataError("the footer contradicts itself on the number of rows; copy the file again", file=path)
    for g, group in enumerate(footer.groups):
        for column in group.columns:
            check_column(column, group.n_rows, path, size, g)


def check_column(column: ColumnChunk, n_rows: int, path: str, size: int, g: int) -> None:
    """Refuse a column of row group ``g`` that cannot be."""
    claimed, n_bytes = column.n_values, column.n_bytes
    place: dict[str, Any] = {"file": path, "row_group": g, "column": column.name}
    flat = "." not in column.name
    if min(claimed, n_rows) < 0 or claimed < n_rows or (flat and claimed != n_rows):
        raise DataError(f"the footer claims {claimed:,} values in {n_rows:,} rows; copy the file again", **place)
    if column.first < 0 or n_bytes < 0 or column.first + n_bytes > size:
        raise DataError(f"the footer points outside the file ({size:,} bytes); copy the file again", **place)
    if claimed > MAX_CHILDREN:
        raise DataError(f"{claimed:,} values in one row group are too many (2^31); write smaller row groups", **place)
    if claimed > MAX_VALUES_PER_BYTE * (n_bytes + 1):
        message = f"the footer claims {claimed:,} values in {n_bytes:,} bytes; the file is damaged or hostile"
        raise DataError(message, **place)


# Thrift's compact protocol


def read_struct(data: bytes | memoryview, p: int) -> tuple[dict[int, Any], int]:
    """The struct that begins at ``p``: its fields by number, and where it ends.

    Raises
    ------
    IndexError, ValueError : there is none.
    """
    return _struct(data, p, 0)


def _struct(data: bytes | memoryview, p: int, depth: int) -> tuple[dict[int, Any], int]:
    """Fields by number, and where the struct ends."""
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    fields: dict[int, Any] = {}
    number = 0
    while kind := data[p]:
        p += 1
        if kind >> 4:
            number += kind >> 4
        else:
            number, p = _integer(data, p)
        fields[number], p = _value(data, p, kind & 15, depth)
    return fields, p + 1


def _value(data: bytes | memoryview, p: int, kind: int, depth: int) -> tuple[object, int]:
    if 4 <= kind <= 6:
        return _integer(data, p)
    if kind == 8:
        return _binary(data, p)
    if kind == 12:
        return _struct(data, p, depth + 1)
    if kind in (9, 10):
        return _list(data, p, depth)
    if kind in (1, 2):
        return kind == 1, p
    if kind == 3:
        return data[p], p + 1
    if kind == 7:
        return data[p : p + 8], p + 8
    raise ValueError(f"a field of unknown kind {kind}")


def _list(data: bytes | memoryview, p: int, depth: int) -> tuple[list[object], int]:
    kind, size = data[p] & 15, data[p] >> 4
    p += 1
    if size == 15:
        size, p = _varint(data, p)
    if size > len(data) - p:
        raise ValueError("a list longer than the footer")
    items = []
    for _ in range(size):
        item, p = (data[p] == 1, p + 1) if kind in (1, 2) else _value(data, p, kind, depth + 1)
        items.append(item)
    return items, p


def _binary(data: bytes | memoryview, p: int) -> tuple[bytes, int]:
    size, p = _varint(data, p)
    if size > len(data) - p:
        raise ValueError("a text longer than the footer")
    return bytes(data[p : p + size]), p + size


def _integer(data: bytes | memoryview, p: int) -> tuple[int, int]:
    """A signed number: zigzag, seven bits a byte."""
    number, p = _varint(data, p)
    return (number >> 1) ^ -(number & 1), p


def _varint(data: bytes | memoryview, p: int) -> tuple[int, int]:
    byte = data[p]
    if byte < 128:
        return byte, p + 1
    number, shift = byte & 127, 7
    while True:
        p += 1
        byte = data[p]
        number |= (byte & 127) << shift
        if byte < 128:
            return number, p + 1
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
