"""Arrow's columns as numpy's arrays, and the range of the values that are taken."""

from __future__ import annotations

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
