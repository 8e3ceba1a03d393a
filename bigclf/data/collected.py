"""Dask DataFrames as data: their workers write the rows down as Parquet, and that is read as any other.

Nothing of Dask is imported: a collection knows itself how its workers write it.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bigclf.data import files

if TYPE_CHECKING:
    from dask.dataframe import DataFrame


def is_collection(data: object) -> bool:
    """Whether ``data`` is a DataFrame in partitions that others hold."""
    return hasattr(data, "npartitions") and hasattr(data, "to_parquet") and hasattr(data, "columns")


@contextlib.contextmanager
def collected(data: DataFrame, beside: files.PathLike) -> Iterator[tuple[str, str | None]]:
    """A directory beside the path ``beside``, which every worker must see, with the rows as Parquet, a file a
    partition; and the format in which it is read: "parquet" for raw columns, None where rows are lists of indices and
    values. The directory is removed in the end."""
    name = f".{files.base_name(beside)}.collected-{secrets.token_hex(4)}"
    folder = files.join(files.parent_directory(beside), name)
    files.make_directory(folder)
    try:
        data.to_parquet(folder, write_index=False, name_function=lambda number: f"part-{number:08d}.parquet")
        yield folder, None if "indices" in list(data.columns) else "parquet"
    finally:
        files.remove_tree(folder)
