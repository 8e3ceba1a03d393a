"""Indices in one or two bytes instead of four or eight: the gaps between neighbours in a row, which are mostly small.

A unit (uint8 or uint16) holds how many indices lie between an index and the one before it in its row (for the first
of a row: below it). The largest unit is an escape: the index itself follows it, in units, the lowest first.
"""

from __future__ import annotations

import numpy as np

from bigclf.compiled.jit import kernel


@kernel
def count_far(indptr, indices):  # type: ignore[no-untyped-def]
    """How many indices need an escape among units of one byte, and of two."""
    far, farther = np.int64(0), np.int64(0)
    for i in range(indptr.size - 1):
        least = np.int64(0)
        for p in range(indptr[i], indptr[i + 1]):
            j = np.int64(indices[p])
            far += j - least >= 0xFF
            farther += j - least >= 0xFFFF
            least = j + 1
    return far, farther


@kernel
def pack_indices(indptr, indices, units):  # type: ignore[no-untyped-def]
    """Fill ``units``, which has room for an escape a row entry; return how many were needed.

    Rows are indptr[i]:indptr[i+1] of ``indices``, strictly increasing and below 2^63.
    """
    bits = 8 * units.itemsize
    escape = (1 << bits) - 1
    wide = indices.itemsize // units.itemsize
    n = 0
    for i in range(indptr.size - 1):
        least = np.int64(0)
        for p in range(indptr[i], indptr[i + 1]):
            j = np.int64(indices[p])
            if j - least < escape:
                units[n] = j - least
                n += 1
            else:
                units[n] = escape
                for u in range(wide):
                    units[n + 1 + u] = (j >> (bits * u)) & escape
                n += 1 + wide
            least = j + 1
    return n


@kernel
def unpack_indices(units, lengths, indices):  # type: ignore[no-untyped-def]
    """Fill ``indices`` with rows of ``lengths`` entries; True if the units were as many as these rows need."""
    bits = 8 * units.itemsize
    escape = (1 << bits) - 1
    wide = indices.itemsize // units.itemsize
    p, n = 0, 0
    for i in range(lengths.size):
        least = np.int64(0)
        end = p + np.int64(lengths[i])
        if end > indices.size:
            return False
        while p < end:
            if n >= units.size:
                return False
            j = least + np.int64(units[n])
            n += 1
            if j - least == escape:
                if n + wide > units.size:
                    return False
                j = np.int64(0)
                for u in range(wide):
                    j |= np.int64(units[n + u]) << (bits * u)
                n += wide
            indices[p] = j
            p += 1
            least = j + 1
    return p == indices.size and n == units.size
