"""Arrays that a kernel goes through in no order, on large pages of memory.

A processor keeps the addresses of some thousand pages. Means and variances of a million features in float64 take 4,000
pages of 4 KiB but eight of 2 MiB: AROW on rows of 76 entries takes 0.63 times as long on the large ones. numpy asks for
them too, but begins an array anywhere between two, and in memory that was used before, which mostly has small ones.
"""

from __future__ import annotations

import contextlib
import math
import mmap

import numpy as np
from numpy.typing import DTypeLike

PAGE = 1 << 21  # bytes of a large page on x86-64, and on 64-bit ARM with pages of 4 KiB
LEAST = PAGE * 3 // 2  # bytes of an array; the addresses of fewer small pages are kept


def zeros(shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> np.ndarray:
    """``numpy.zeros``, on large pages where the array fills one and a half and the system has them; what fills no whole
    one is on small ones, so that no memory is taken in vain."""
    dtype = np.dtype(dtype)
    count = math.prod(shape) if isinstance(shape, tuple) else int(shape)
    size = count * dtype.itemsize
    if size < LEAST or not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.zeros(shape, dtype)
    try:
        memory = mmap.mmap(-1, size + PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError):  # there is not so much memory: the error is numpy's
        return np.zeros(shape, dtype)
    first = -np.frombuffer(memory, np.uint8).ctypes.data % PAGE
    with contextlib.suppress(OSError):  # a kernel without large pages
        memory.madvise(mmap.MADV_HUGEPAGE, first, size // PAGE * PAGE)
    return np.frombuffer(memory, dtype, count, first).reshape(shape)


def copied(array: np.ndarray) -> np.ndarray:
    """``array.copy()``, in C order, on pages as ``zeros`` has them."""
    copy = zeros(array.shape, array.dtype)
    copy[...] = array
    return copy
