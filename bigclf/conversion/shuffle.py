"""Rows into shards by a global order, in bounded memory: sort what fits, spill it, merge the spilled runs by key.

Every row has an ordinal, its place in the source, and from it a 64-bit key, its place in the output. Keys do not
depend on who parses a row or when; so neither do the shards.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from bigclf import files
from bigclf.compiled.jit import kernel
from bigclf.data.chunk_table import MAX_FLOAT_CLASSES
from bigclf.data.shards import ShardWriter
from bigclf.errors import DataError
from bigclf.features.encode import finisher_beside
from bigclf.maths.block import Block, as_unsigned, written_out

ROW_COST = 8  # a row counts as so many entries more when shards are sized, so that short rows do not swell one
ENTRY_BYTES, ROW_BYTES = 8, 32
SORT_BYTES = 64  # bytes a row takes on top while rows are sorted


class Slab(NamedTuple):
    """Rows on their way: indptr int64 [m+1] from 0, indices uint32|uint64 [nnz], values float32 (raw ones of columns
    float64) [nnz] or [0] when all are 1, labels float64 [m], weights float64 [m] or [0] when all are 1."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    labels: np.ndarray
    weights: np.ndarray

    @property
    def n_rows(self) -> int:
        return self.indptr.size - 1

    @property
    def n_bytes(self) -> int:
        return sum(array.nbytes for array in self)


class Totals:
    """What is known of all rows so far."""

    def __init__(self) -> None:
        self.n_rows = self.nnz = 0
        self.max_index = self.min_index = -1
        self.binary, self.weighted = True, False
        self.labels: Counter[float] = Counter()
        self.fractions = False  # a label is no whole number
        self.real = False  # ... and there are too many to be classes: they are no longer counted
        self.queries = False  # the text has qid:, of which nothing is made
        self.rounding = 0.0  # largest relative difference between a value read and the float32 kept

    def count(self, slab: Slab) -> None:
        self._count_labels(slab.labels)
        self.n_rows += slab.n_rows
        self.nnz += slab.indices.size
        self.binary = self.binary and slab.values.size == 0
        self.weighted = self.weighted or slab.weights.size > 0
        if slab.indices.size:
            self._span(int(slab.indices.min()), int(slab.indices.max()))

    def _count_labels(self, labels: np.ndarray) -> None:
        if self.real:
            return
        found, counts = np.unique(labels, return_counts=True)
        self.fractions = self.fractions or bool((found != np.rint(found)).any())
        self.labels.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
        self._settle()

    def _settle(self) -> None:
        self.real = self.real or (self.fractions and len(self.labels) > MAX_FLOAT_CLASSES)
        if self.real:
            self.labels.clear()

    def _span(self, low: int, high: int) -> None:
        self.max_index = max(self.max_index, high)
        self.min_index = low if self.min_index < 0 else min(self.min_index, low)

    def add(self, other: Totals) -> None:
        self.n_rows += other.n_rows
        self.nnz += other.nnz
        self.binary, self.weighted = self.binary and other.binary, self.weighted or other.weighted
        self.labels.update(other.labels)
        self.fractions, self.real = self.fractions or other.fractions, self.real or other.real
        self._settle()
        self.queries = self.queries or other.queries
        self.rounding = max(self.rounding, other.rounding)
        if other.max_index >= 0:
            self._span(other.min_index, other.max_index)


# Keys


def keys_of(ordinals: np.ndarray, seed: int | None) -> np.ndarray:
    """Keys uint64 [m] of rows: a keyed bijection of their ordinals, so no two are equal; None keeps the order.

    Two rounds of the finaliser of SplitMix64 (Steele, Lea, Flood 2014), the seed added before each.
    """
    if seed is None:
        return ordinals
    tweak = np.uint64((seed * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) % 2**64)
    return _mixed(_mixed(ordinals + tweak) ^ tweak)


def _mixed(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def even_bounds(n_shards: int) -> list[int]:
    """Bounds [S+1] that cut the keys 0 .. 2^64 into equal ranges."""
    return [s * 2**64 // n_shards for s in range(n_shards + 1)]


# Runs: sorted rows in a scratch file


class Run(NamedTuple):
    """A scratch file of rows in key order: keys, row bounds, labels, weights, indices and values one after another,
    and the checksum of all its bytes."""

    path: str
    n_rows: int
    nnz: int
    wide: bool
    binary: bool
    weighted: bool
    double: bool = False  # values are float64
    checksum: str = ""

    def sections(self) -> dict[str, tuple[type, int]]:
        """Name -> (type, place of its first byte)."""
        kinds: dict[str, tuple[type, int]] = {
            "keys": (np.uint64, self.n_rows),
            "indptr": (np.int64, self.n_rows + 1),
            "labels": (np.float64, self.n_rows),
            "weights": (np.float64, self.n_rows if self.weighted else 0),
            "indices": (np.uint64 if self.wide else np.uint32, self.nnz),
            "values": (np.float64 if self.double else np.float32, 0 if self.binary else self.nnz),
        }
        sizes = [np.dtype(kind).itemsize * count for kind, count in kinds.values()]
        places = itertools.accumulate(sizes, initial=0)
        return {name: (kind, place) for (name, (kind, _)), place in zip(kinds.items(), places, strict=False)}


class Spiller:
    """Collects rows and writes them as sorted runs of at most about ``room`` bytes."""

    def __init__(self, prefix: str, seed: int | None, room: int) -> None:
        self.prefix, self.seed, self.room = prefix, seed, room
        self.totals, self.runs = Totals(), list[Run]()
        self._held: list[tuple[np.ndarray, Slab]] = []
        self._bytes = 0

    def add(self, ordinals: np.ndarray, slab: Slab) -> None:
        """Take rows in; ``ordinals`` uint64 [m] are their places in the source."""
        if slab.n_rows == 0:
            return
        self.totals.count(slab)
        self._held.append((keys_of(ordinals, self.seed), slab))
        self._bytes += slab.n_bytes + SORT_BYTES * slab.n_rows
        if self._bytes >= self.room:
            self.flush()

    def flush(self) -> None:
        """Write what is held as a run."""
        if not self._held:
            return
        keys = np.concatenate([k for k, _ in self._held])
        slabs = [slab for _, slab in self._held]
        path = f"{self.prefix}-{len(self.runs)}.run"
        self.runs.append(write_run(path, keys, slabs))
        self._held, self._bytes = [], 0


def write_run(path: str, keys: np.ndarray, slabs: list[Slab]) -> Run:
    """Write the rows of ``slabs``, whose keys are ``keys`` [m], in key order; a section at a time to spare memory."""
    lengths = np.concatenate([np.diff(slab.indptr) for slab in slabs])
    run = Run(
        path,
        keys.size,
        int(lengths.sum()),
        any(slab.indices.dtype.itemsize == 8 for slab in slabs),
        all(slab.values.size == 0 for slab in slabs),
        any(slab.weights.size for slab in slabs),
        any(slab.values.dtype == np.float64 for slab in slabs if slab.values.size),
    )
    order = np.argsort(keys, kind="stable")
    ends = np.cumsum(lengths)
    starts = ends - lengths
    with files.open_binary(path, "xb") as file:
        content = files.Summed(file)
        content.write(keys[order].data)
        content.write(_bounds(lengths[order]).data)
        content.write(np.concatenate([slab.labels for slab in slabs])[order].data)
        if run.weighted:
            content.write(np.concatenate([_or_ones(slab.weights, slab.n_rows) for slab in slabs])[order].data)
        for source in (_indices(slabs, run.wide), _values(slabs) if not run.binary else None):
            if source is not None:
                content.write(_taken(starts, ends, order, source).data)
    return run._replace(checksum=content.checksum())


def is_whole(run: Run) -> bool:
    """Whether a run that an earlier process wrote is as it was written."""
    return files.checksum(run.path) == run.checksum


def _bounds(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))


def _or_ones(array: np.ndarray, size: int) -> np.ndarray:
    return array if array.size == size else np.ones(size, array.dtype)


def _indices(slabs: list[Slab], wide: bool) -> np.ndarray:
    return np.concatenate([slab.indices for slab in slabs], dtype=np.uint64 if wide else np.uint32)


def _values(slabs: list[Slab]) -> np.ndarray:
    double = any(slab.values.dtype == np.float64 for slab in slabs if slab.values.size)
    kept = [_or_ones(slab.values, slab.indices.size) for slab in slabs]
    return np.concatenate(kept, dtype=np.float64 if double else np.float32)


@kernel
def take_rows(starts, ends, order, source, out):  # type: ignore[no-untyped-def]
    """out = source[starts[i]:ends[i]] for i in order, one after another."""
    p = 0
    for i in order:
        for q in range(starts[i], ends[i]):
            out[p] = source[q]
            p += 1


# Merging the runs into shards


class Plan(NamedTuple):
    """All that the writing of a shard depends on.

    Attributes
    ----------
    runs : every run.
    bounds : keys [S+1]; shard s holds the rows with bounds[s] <= key < bounds[s+1].
    directory : where shards appear, as part-00000.parquet and so on.
    codes : float64 [K] ascending; the labels in the runs, in the order of ``classes``; None: they stay as they are.
    classes : [K] what stands in the shard for them; None: numbers that are no classes.
    n_features, index_width, binary, weighted, features : as ``ShardWriter`` takes them.
    chunk_nnz : entries a chunk.
    room : bytes this may allocate, about.
    ranks : float64 [K], the places in ``classes`` of ``codes``; None: they have the same order.
    raw : the runs hold raw features of columns, to be finished as ``features`` says.
    sets : the kind of sets of labels that ``classes`` are, each as one text; "": they are none.
    """

    runs: list[Run]
    bounds: list[int]
    directory: str
    codes: np.ndarray | None
    classes: np.ndarray | None
    n_features: int
    index_width: int
    binary: bool
    weighted: bool
    features: Mapping[str, Any] | None
    chunk_nnz: int
    room: int
    ranks: np.ndarray | None = None
    raw: bool = False
    sets: str = ""


def shard_path(plan: Plan, number: int) -> str:
    return files.join(plan.directory, f"part-{number:05d}.parquet")


def is_written(plan: Plan, number: int) -> bool:
    """Whether the shard is there, whole."""
    try:
        files.fingerprint(shard_path(plan, number))
    except DataError:
        return False
    return True


def write_shard(plan: Plan, number: int) -> str:
    """Write one shard, the rows of its range of keys in their order; return its path."""
    path = shard_path(plan, number)
    with ShardWriter(
        path,
        n_features=plan.n_features,
        classes=plan.classes,
        index_width=plan.index_width,
        binary=plan.binary,
        weighted=plan.weighted,
        features=plan.features,
        sets=plan.sets,
    ) as writer:
        chunker = _Chunker(writer, plan)
        for slab in _in_key_order(plan, number):
            chunker.add(_finished(plan, slab) if plan.raw else slab)
        chunker.finish()
    return path


def _finished(plan: Plan, slab: Slab) -> Slab:
    """The rows with features in the place of raw ones."""
    assert plan.features is not None
    finish = finisher_beside(plan.directory, plan.features["learned"]["digest"])
    return slab._replace(**dict(zip(("indptr", "indices", "values"), finish(*slab[:3]), strict=True)))


def _in_key_order(plan: Plan, number: int) -> Iterator[Slab]:
    """The rows of a shard in key order, as many at a time as there is room for."""
    parts = [_Part(run, plan.bounds[number], plan.bounds[number + 1]) for run in plan.runs]
    parts = [part for part in parts if part.keys.size]
    if not parts:
        return
    cuts = _cuts(parts, plan.room // 8)
    for low, high in itertools.pairwise(cuts):
        slices = [(part, *part.span(low, high)) for part in parts]
        slices = [(part, a, b) for part, a, b in slices if b > a]
        yield _merged([part.keys[a:b] for part, a, b in slices], [part.read(a, b) for part, a, b in slices], plan)


class _Part:
    """The rows of a run whose keys lie in a range: keys and bounds in memory, the rest read on demand."""

    def __init__(self, run: Run, low: int, high: int) -> None:
        self.run, self.sections = run, run.sections()
        with files.open_binary(run.path) as file:
            keys = np.memmap(file, np.uint64, "r", self.sections["keys"][1], (run.n_rows,))
            self.first, last = _place(keys, low), _place(keys, high)
            self.keys = np.array(keys[self.first : last])
            del keys
            self.indptr = self._load(file, "indptr", self.first, last + 1)

    def span(self, low: int, high: int) -> tuple[int, int]:
        return _place(self.keys, low), _place(self.keys, high)

    def read(self, a: int, b: int) -> Slab:
        """Rows a to b of this part."""
        p, q = int(self.indptr[a]), int(self.indptr[b])
        empty = np.empty(0, np.float32)
        rows = self.first + a, self.first + b
        with files.open_binary(self.run.path) as file:
            return Slab(
                self.indptr[a : b + 1] - p,
                self._load(file, "indices", p, q),
                empty if self.run.binary else self._load(file, "values", p, q),
                self._load(file, "labels", *rows),
                self._load(file, "weights", *rows) if self.run.weighted else empty.astype(np.float64),
            )

    def _load(self, file: BinaryIO, section: str, first: int, last: int) -> np.ndarray:
        kind, place = self.sections[section]
        file.seek(place + first * np.dtype(kind).itemsize)
        array: np.ndarray = np.fromfile(file, kind, last - first)
        if array.size != last - first:
            raise OSError(f"the scratch file {self.run.path} is shorter than it was written")
        return array


def _place(keys: np.ndarray, key: int) -> int:
    """First place in ascending ``keys`` of one that is at least ``key`` (which may be 2^64)."""
    return keys.size if key >= 2**64 else int(np.searchsorted(keys, np.uint64(key)))


def _cuts(parts: list[_Part], room: int) -> list[int]:
    """Keys that cut the parts' rows into ranges of about ``room`` bytes (a row is never cut)."""
    keys = np.concatenate([part.keys for part in parts])
    cost = np.concatenate([np.diff(part.indptr) for part in parts]) * ENTRY_BYTES + ROW_BYTES
    order = np.argsort(keys)
    slab = (np.cumsum(cost[order]) - 1) // max(room, 1)
    starts = order[np.flatnonzero(np.diff(slab, prepend=-1))]
    return [*keys[starts].tolist(), 2**64]


def _merged(keys: list[np.ndarray], slabs: list[Slab], plan: Plan) -> Slab:
    """The rows of ``slabs`` in the order of their ``keys``; labels become codes."""
    order = np.argsort(np.concatenate(keys), kind="stable")
    lengths = np.concatenate([np.diff(slab.indptr) for slab in slabs])
    ends = np.cumsum(lengths)
    wide = any(slab.indices.dtype.itemsize == 8 for slab in slabs) if plan.raw else plan.index_width == 8
    indices = _taken(ends - lengths, ends, order, _indices(slabs, wide))
    values = np.empty(0, np.float32)
    if any(slab.values.size for slab in slabs) if plan.raw else not plan.binary:
        values = _taken(ends - lengths, ends, order, _values(slabs))
    codes = np.concatenate([slab.labels for slab in slabs])[order]
    if plan.codes is not None:
        places = np.searchsorted(plan.codes, codes)
        codes = places.astype(np.float64) if plan.ranks is None else plan.ranks[places]
    weights = np.empty(0)
    if plan.weighted:
        weights = np.concatenate([_or_ones(slab.weights, slab.n_rows) for slab in slabs])[order]
    return Slab(_bounds(lengths[order]), indices, values, codes, weights)


def _taken(starts: np.ndarray, ends: np.ndarray, order: np.ndarray, source: np.ndarray) -> np.ndarray:
    """The entries of ``source`` row by row in ``order``."""
    out = np.empty_like(source)
    take_rows(starts, ends, order, source, out)
    return out


class _Chunker:
    """Cuts a stream of slabs into chunks: as many rows as ``chunk_nnz`` entries hold (one more counted a row)."""

    def __init__(self, writer: ShardWriter, plan: Plan) -> None:
        self.writer, self.target = writer, plan.chunk_nnz
        self.held: Slab | None = None

    def add(self, slab: Slab) -> None:
        held = slab if self.held is None else _joined(self.held, slab)
        cost = held.indptr + np.arange(held.n_rows + 1)
        start = 0
        while cost[-1] - cost[start] > self.target:
            end = int(np.searchsorted(cost, cost[start] + self.target, side="right")) - 1
            end = max(end, start + 1)
            self.write(_rows(held, start, end))
            start = end
        self.held = _rows(held, start, held.n_rows)

    def finish(self) -> None:
        if self.held is not None and self.held.n_rows:
            self.write(self.held)

    def write(self, slab: Slab) -> None:
        self.writer.write(*slab)


def _joined(a: Slab, b: Slab) -> Slab:
    indptr = np.concatenate((a.indptr, b.indptr[1:] + a.indptr[-1]))
    return Slab(indptr, *(np.concatenate(pair) for pair in zip(a[1:], b[1:], strict=True)))


def _rows(slab: Slab, first: int, last: int) -> Slab:
    """Rows ``first`` to ``last``; copies of nothing."""
    p, q = slab.indptr[first], slab.indptr[last]
    values = slab.values[p:q]
    return Slab(
        slab.indptr[first : last + 1] - p, slab.indices[p:q], values, slab.labels[first:last], slab.weights[first:last]
    )


def as_slab(block: Block | Sequence[Any]) -> Slab:
    """Slab of a ``Block`` or of (indptr, indices, values or None, labels[, weights])."""
    indptr, indices, values, labels, *rest = written_out(block) if isinstance(block, Block) else block
    indptr = np.asarray(indptr, np.int64)
    p, q = int(indptr[0]), int(indptr[-1])
    indices = np.ascontiguousarray(indices[p:q])
    if indices.dtype.kind == "i":
        indices = as_unsigned(indices)
    values = np.empty(0) if values is None else np.asarray(values)
    values = values[p:q].astype(np.float32, copy=False) if values.size else np.empty(0, np.float32)
    weights = np.asarray(rest[0], np.float64) if rest and rest[0] is not None else np.empty(0)
    weights = weights if (weights != 1).any() else np.empty(0)
    values = values if (values != 1).any() else values[:0]
    return Slab(indptr - p, indices, values, np.asarray(labels, np.float64), weights)
