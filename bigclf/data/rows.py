"""What training asks of rows, wherever they lie: ``Dataset`` has them on disk, ``Arrays`` in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from bigclf.data.chunk_table import Chunks
    from bigclf.data.label_sets import LabelSets
    from bigclf.maths.block import Block, Entries
    from bigclf.maths.feature_ids import FeatureIds


class Rows(Protocol):
    """Rows in chunks that can be read in any order; each attribute is as ``Dataset`` says."""

    files: list[str]  # none of those in memory
    fingerprints: list[Any]
    n_rows: int
    n_features: int
    nnz: int
    binary: bool
    row_constant: bool
    index_width: int
    weighted: bool
    weight_sum: float
    max_row_nnz: int
    max_norm: float
    max_group_rows: int
    max_group_nnz: int
    real_labels: bool
    sorted_labels: bool
    warnings: list[str]
    classes: Any  # [K], or None where labels are numbers
    class_counts: Any
    sets: LabelSets | None  # of rows with several labels each, whose ``classes`` are the labels
    features: dict[str, Any]
    feature_ids: FeatureIds | None
    chunks: Chunks

    @property
    def n_chunks(self) -> int: ...

    @property
    def digest(self) -> str: ...

    @property
    def learnable(self) -> tuple[int, int]: ...

    @property
    def learnable_counts(self) -> np.ndarray: ...

    @property
    def in_parts(self) -> np.ndarray: ...

    @property
    def whole_group(self) -> tuple[int, int]: ...

    @property
    def largest_group(self) -> tuple[int, int]: ...

    @property
    def written_here(self) -> bool: ...

    def decode(self, file: int, row_group: int, into: Entries | None = None) -> Block: ...

    def parts(self, file: int, row_group: int) -> Iterator[Block]: ...

    def blocks(self) -> Iterator[Block]: ...

    def tell_content(self) -> bool: ...

    def check_unchanged(self, chunks: tuple[int, int] | None = None) -> None: ...

    def learned_of_columns(self) -> dict[str, np.ndarray]: ...
