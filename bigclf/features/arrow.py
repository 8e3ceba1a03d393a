"""Arrow's columns as numpy's arrays, and the range of the values that are taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

FLOAT32_MAX = float(np.finfo(np.float32).max)


def as_numpy(array: pa.Array) -> np.ndarray:
    """Values of an array of numbers or bools without nulls, a view where there can be one; of decimals the floats.

    ``Array.to_numpy`` would import pandas wherever that is installed: 30 MB and half a second.
    """
    import pyarrow as pa

    if pa.types.is_boolean(array.type):
        return as_numpy(array.cast(pa.uint8())).astype(np.bool_)
    if pa.types.is_decimal(array.type):
        return as_numpy(array.cast(pa.float64()))
    if array.null_count or not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        return array.to_numpy(zero_copy_only=False)
    name = str(array.type)
    dtype = np.dtype({"halffloat": "float16", "float": "float32", "double": "float64"}.get(name, name))
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def in_arrow(array: np.ndarray, type_: pa.DataType | None = None) -> pa.Array:
    """A column for Arrow over the array's own memory, where it holds numbers of that type [row]; masked ones are nulls.

    ``pyarrow.array`` says the same of them, but loads pandas first where that is installed, which takes 0.3 s.
    """
    import pyarrow as pa

    if isinstance(array, np.ma.MaskedArray) or array.ndim != 1 or array.dtype.kind not in "iuf":
        return pa.array(array, type=type_)
    array = np.asarray(array, array.dtype.newbyteorder("="))  # Arrow has this machine's order of bytes
    own = pa.from_numpy_dtype(array.dtype)
    if type_ is not None and type_ != own:
        return pa.array(array, type=type_)
    return pa.Array.from_buffers(own, array.size, [None, pa.py_buffer(np.ascontiguousarray(array))])


def texts_in_arrow(texts: Sequence[str | None], type_: pa.DataType | None = None) -> pa.Array:
    """Texts for Arrow; ``type_`` : of texts, "string" where nothing is said. As ``in_arrow``, without pandas where none
    is missing."""
    import pyarrow as pa

    if None in texts:
        return pa.array(texts, type_ or pa.string())
    data = [text.encode() for text in texts if text is not None]
    offsets = np.zeros(len(data) + 1, np.int64)
    np.cumsum([len(one) for one in data], out=offsets[1:])
    wide = bool(offsets[-1] > np.iinfo(np.int32).max)
    own = pa.large_string() if wide else pa.string()
    places = pa.py_buffer(offsets if wide else offsets.astype(np.int32))
    found = pa.Array.from_buffers(own, len(data), [None, places, pa.py_buffer(b"".join(data))])
    return found if type_ in (None, own) else found.cast(type_)


def null_where_nan(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of floats with null for what is no number."""
    import pyarrow.compute as pc

    return pc.if_else(pc.is_nan(column), None, column)
