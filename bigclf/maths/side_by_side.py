"""Margins of several problems over the same rows: an entry of a row is read once for eight of them.

The weights of eight problems lie side by side in a tile, so that one line of memory has those of a feature. Where many
problems look at all rows and move few, this takes a tenth of the time that eight passes take.
"""

from __future__ import annotations

import numpy as np

from bigclf.compiled.jit import at, kernel
from bigclf.compiled.lanes import LANES, tile_lanes, tile_lanes_alike

MOST_TILE = 16_000_000  # bytes of a tile: a larger one does not stay near the core, and takes much memory


def tile_bytes(n_features: int, rows: int) -> int:
    """What a tile and the margins of so many rows take."""
    return 8 * LANES * (n_features + 1 + rows)


@kernel
def lay(weights, place, tile):  # type: ignore[no-untyped-def]
    """``weights`` [feature + 1], float32 or float64, to tile[:, place], float64 [feature + 1, 8]."""
    for j in range(weights.size):
        tile[j, place] = weights[j]


@kernel
def add_up(block, tile, margins):  # type: ignore[no-untyped-def]
    """margins[i, k] = w_k . x_i without the bias, float64 [row, 8], of the weights w_k in tile[:, k]; each is added up
    in the order of the row's entries, whatever lies beside it."""
    explicit = block.values.size > 0
    for i in range(block.indptr.size - 1):
        first, end = at(block.indptr, i), at(block.indptr, i + 1)
        if explicit:
            tile_lanes(tile, block.indices, block.values, first, end, margins, i)
        else:
            tile_lanes_alike(tile, block.indices, block.values, first, end, margins, i)
            if block.scales.size > 0:
                for k in range(LANES):
                    margins[i, k] *= block.scales[i]


def margins_of(block, weights, tile: np.ndarray, margins: np.ndarray) -> np.ndarray:  # type: ignore[no-untyped-def]
    """float64 [row, 8], of at most eight problems' ``weights`` [feature + 1] each; ``tile`` [feature + 1, 8] and
    ``margins`` are memory for it. Of the problems that are not there nothing is known."""
    for place, its in enumerate(weights):
        lay(its, place, tile)
    add_up(block, tile, margins)
    return margins
