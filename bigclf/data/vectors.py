"""Where the features of other people's Parquet stand: a column of vectors of any kind, or a column for each feature."""

from __future__ import annotations

import fnmatch
import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bigclf.errors import SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

ROLES = ("label", "features", "indices", "values", "weight")  # of ``columns=``
PAIRS = (("indices", "values"), ("index", "value"))  # of lists in a struct
Found = tuple[str | None, str | tuple[str, ...] | None, str | None]  # indices, values, kind, as in Layout
NAMELESS_INDEX = re.compile(r"__index_level_\d+__|__null_dask_index__")  # pandas' and Dask's, where it has no name


def find(schema: pa.Schema, told: str | Sequence[str], others: Sequence[str | None], path: str) -> Found:
    """The columns that hold the features which ``told`` names; ``others`` are not among them.

    Raises
    ------
    SchemaError : if they are not there or hold no vectors.
    """
    import pyarrow as pa

    require_once(schema, told, path)
    if not isinstance(told, str):
        return None, _columns(schema, tuple(told), path), None
    if told not in schema.names and field(schema, told) is None:
        numbers = tuple(name for name in matching(schema, told, others) if is_number(schema.field(name).type))
        if not numbers:
            raise SchemaError(
                f"no column of numbers is called so; the file has {_listed(schema)}", file=path, column=told
            )
        return None, numbers, None
    found = field(schema, told)
    assert found is not None
    type_ = found.type
    if pa.types.is_struct(type_):
        return _of_struct(type_, told, path)
    item = item_type(type_)
    if item is not None and pa.types.is_struct(item):
        return _of_structs(item, told, path)
    if item is not None and pa.types.is_integer(item) and not pa.types.is_fixed_size_list(type_):
        return told, None, None
    if item is not None and is_number(item):
        return None, told, None
    if is_number(type_):
        return None, (told,), None
    raise SchemaError(f"must hold vectors or numbers, not {type_}", file=path, column=told)


def require_once(schema: pa.Schema, told: str | Sequence[str], path: str) -> None:
    """Refuse two columns of one name among those that ``told`` names, itself or as a glob: SchemaError."""
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    named = {told} if isinstance(told, str) else {*told}
    for name in twice:
        if name in named or (isinstance(told, str) and fnmatch.fnmatch(name, told)):
            raise SchemaError(
                "two columns have this name; which of them is meant nobody can say", file=path, column=name
            )


def all_numbers(schema: pa.Schema, others: Sequence[str | None]) -> Found | None:
    """All columns but ``others`` and the index of a data frame, where they are numbers; else None.

    A column of ``others`` that is None is none of them.
    """
    names = matching(schema, "*", others)
    return (None, tuple(names), None) if names and not not_numbers(schema, others) else None


def not_numbers(schema: pa.Schema, others: Sequence[str | None]) -> list[str]:
    """ "name (kind)" of the columns that are neither numbers nor among ``others``."""
    kinds = [(name, schema.field(name).type) for name in matching(schema, "*", others)]
    return [f"{name} ({kind})" for name, kind in kinds if not is_number(kind)]


def is_glob(told: object) -> bool:
    """Whether ``told``, of ``columns=``, may be a pattern of names."""
    return isinstance(told, str) and any(letter in told for letter in "*?[")


def matching(schema: pa.Schema, pattern: str, others: Sequence[str | None]) -> list[str]:
    """The columns that the glob names, without ``others`` and without the index of a data frame."""
    left_out = {*others, *index_columns(schema)}
    return [name for name in fnmatch.filter(schema.names, pattern) if name not in left_out]


def not_taken(schema: pa.Schema, told: object, others: Sequence[str | None]) -> tuple[str, ...]:
    """ "name (why)" of each column that the glob ``told`` names and that is no feature; a nameless index is not worth a
    word. Nothing where ``told`` is no glob."""
    if not isinstance(told, str) or field(schema, told) is not None:
        return ()
    named = {name for name in index_columns(schema) if not NAMELESS_INDEX.fullmatch(name)} - {*others}
    index = [f"{name} (the data frame's index)" for name in fnmatch.filter(schema.names, told) if name in named]
    kinds = [(name, schema.field(name).type) for name in matching(schema, told, others)]
    return *(f"{name} ({kind})" for name, kind in kinds if not is_number(kind)), *index


def index_columns(schema: pa.Schema) -> set[str]:
    """Columns that hold the index of a data frame: those that pandas' metadata name, and the usual names of others."""
    try:
        listed = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))["index_columns"]
    except (ValueError, KeyError, TypeError, RecursionError):  # none, or other people's mistake
        listed = []
    told = {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else set()
    return (told | {name for name in schema.names if NAMELESS_INDEX.fullmatch(name)}) & {*schema.names}


def _columns(schema: pa.Schema, names: tuple[str, ...], path: str) -> tuple[str, ...]:
    missing = [name for name in names if name not in schema.names]
    if missing or not names:
        raise SchemaError(f"there is no such column; the file has {_listed(schema)}", file=path,
                          column=missing[0] if missing else "features")  # fmt: skip
    return names


def _of_struct(type_: pa.DataType, name: str, path: str) -> Found:
    """Two lists in a struct; Spark's vectors have a field ``type`` beside them."""
    for indices, values in PAIRS:
        if type_.get_field_index(indices) >= 0:
            kind = f"{name}.type" if type_.get_field_index("type") >= 0 else None
            return f"{name}.{indices}", f"{name}.{values}" if type_.get_field_index(values) >= 0 else None, kind
    raise SchemaError(f"a struct of vectors has the fields indices and values, not {type_}", file=path, column=name)


def _of_structs(item: pa.DataType, name: str, path: str) -> Found:
    """A list of (index, value): its one field of integers, if there are two the first, and the next field."""
    import pyarrow as pa

    fields = [item.field(i) for i in range(item.num_fields)]
    indices = next((f.name for f in fields if pa.types.is_integer(f.type)), None)
    if indices is None:
        raise SchemaError(f"the structs of the list need a field of integers, not {item}", file=path, column=name)
    values = next((f.name for f in fields if f.name != indices and is_number(f.type)), None)
    if values is None and len(fields) > 1:
        raise SchemaError(f"the structs of the list need a field of numbers, not {item}", file=path, column=name)
    return f"{name}.{indices}", None if values is None else f"{name}.{values}", None


def kind_beside(schema: pa.Schema, indices: str | None) -> str | None:
    """The field that tells sparse vectors from dense ones, in the struct that ``indices`` leads into."""
    import pyarrow as pa

    outer, dot, _ = (indices or "").rpartition(".")
    if not dot or outer not in schema.names or not pa.types.is_struct(schema.field(outer).type):
        return None
    return f"{outer}.type" if schema.field(outer).type.get_field_index("type") >= 0 else None


def check_numbers(schema: pa.Schema, names: tuple[str, ...], path: str) -> None:
    """Refuse columns of features that hold no numbers: SchemaError."""
    for name in names:
        if name not in schema.names:
            raise SchemaError(f"there is no such column; the file has {_listed(schema)}", file=path, column=name)
        if not is_number(schema.field(name).type):
            raise SchemaError(f"must hold numbers, not {schema.field(name).type}", file=path, column=name)


def field(schema: pa.Schema, name: str) -> pa.Field | None:
    """The column ``name``, or the field that a dot leads to: of a struct, or (as a list) of the structs of a list."""
    import pyarrow as pa

    if name in schema.names:
        return schema.field(name)
    outer, _, inner = name.partition(".")
    if not inner or outer not in schema.names:
        return None
    type_ = schema.field(outer).type
    item = item_type(type_)
    struct = type_ if item is None else item
    if not pa.types.is_struct(struct) or struct.get_field_index(inner) < 0:
        return None
    found = struct.field(struct.get_field_index(inner))
    return found if item is None else pa.field(name, pa.list_(found.type))


def column_of(schema: pa.Schema, name: str) -> str:
    """What is to be read for ``name``: itself, or the whole column where a dot leads into a list's structs."""
    import pyarrow as pa

    outer = name.partition(".")[0]
    if name in schema.names or outer not in schema.names or pa.types.is_struct(schema.field(outer).type):
        return name
    return outer


def is_nested(type_: pa.DataType) -> bool:
    """Whether it is a list or a struct."""
    import pyarrow as pa

    return pa.types.is_struct(type_) or item_type(type_) is not None


def are_vectors(schema: pa.Schema, column: pa.Field) -> bool:
    """Whether the column holds vectors, of one of the forms that ``find`` knows."""
    if not is_nested(column.type):
        return False
    try:
        find(schema, column.name, (), "")
    except SchemaError:
        return False
    return True


def item_type(type_: pa.DataType) -> pa.DataType | None:
    """What a list holds; None of what is no list. A map is a list of structs."""
    import pyarrow as pa

    if pa.types.is_map(type_):
        return pa.struct([type_.key_field, type_.item_field])
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return type_.value_type if any(test(type_) for test in tests) else None


def is_number(type_: pa.DataType) -> bool:
    """Whether it is a number, a decimal one too, or a truth value."""
    import pyarrow as pa

    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(type_) for test in tests)


def _listed(schema: pa.Schema) -> str:
    return ", ".join(schema.names[:20]) + (", ..." if len(schema.names) > 20 else "")
