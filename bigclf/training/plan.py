"""The plan: what is decided once, from data, parameters and budget, before the first read.

Every decision that touches the bits of the result is made here or from counts, never from clocks or from what a
machine happens to have; the plan is written to ``run.json``. What cannot fit is refused with the budget that would do.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigclf.block import ROW_BYTES
from bigclf.data import store as raw
from bigclf.data import working_set
from bigclf.errors import MemoryBudgetError
from bigclf.jit import random_state, shuffle
from bigclf.losses import BOXED
from bigclf.training.problems import Problem
from bigclf.units import format_bytes

VERSION = 1
MB = 1_000_000
RUN_BYTES = 64_000  # neighbours that are shuffled as a unit lie within about so many bytes
SMALL_BYTES = 32 * MB  # what a cache holds: there a full permutation costs nothing
UNITS = 1000  # at least so many units of shuffle
BLOCK_BYTES = 8 * MB
MIXED_BYTES = 64 * MB  # a block drawn afresh from random chunks, for a dual method without a working set
SEGMENT_SECONDS = 30.0
SECONDS_A_NONZERO = 10e-9
DECODE_BYTES = 8 * MB  # what Arrow's allocator holds at least
DECODE_FACTOR = 5  # pages, levels, Arrow's arrays and ours, times a row group's raw bytes, for each decoding thread
DECODERS = 2  # threads that decode at a time, where the memory for it is less than
ROOMY = 0.5  # this share of the budget
SLACK_BYTES = 4 * MB  # orders, indices of Parquet files, queues
ACTIVE_SLACK = 0.1  # rows that score above minus this are gone over again between reads
ROUNDS_A_READ = 1.0  # rows of the working set visited while streaming, for each row streamed
SEQUENTIAL_SHARE = 0.1  # a smaller set cannot hold the rows that move: then the order matters (470 reads against 20)
CYCLES_A_READ = 8.0  # most visits to a row of the working set while the data stream by
SET_SHARE = 0.25  # a working set of more of the data adds nothing (measured: 16 % is enough on RCV1-like data)


@dataclass(frozen=True)
class Plan:
    """How a run goes. Sizes in bytes, rows or entries; all of it JSON.

    Attributes
    ----------
    resident : whether every row stays in memory after one read.
    groups : [group][first chunk, one past the last chunk].
    sequential : blocks in the order of the files (a working set makes the order irrelevant) or drawn afresh.
    by_row_group : some chunks share a row group: in a drawn order they stay together, to be decoded once.
    block_bytes : a block is as many chunks as fit this, and at least one.
    segments : parts of an epoch between which a run commits, checkpoints and stops.
    run : neighbours shuffled as a unit.
    set_rows, set_nnz : arena of each problem's working set (0: none); rounds : most rounds over it after a read.
    threads, buffers : readers and blocks read ahead; they never change bits.
    store_bytes : size of the raw store (0: none is made).
    memory : what each part takes, their sum ``planned``, and the ``budget``.
    """

    seed: int
    resident: bool
    sequential: bool
    by_row_group: bool
    groups: list[tuple[int, int]]
    block_bytes: int
    segments: int
    run: int
    set_rows: int
    set_nnz: int
    rounds: int
    threads: int
    buffers: int
    dtype: str
    store_bytes: int
    memory: dict[str, int]
    version: int = VERSION

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def same_bits(self) -> dict[str, Any]:
        """The part of the plan that the result depends on: what a resumed run must share."""
        shared = self.as_json()
        for name in ("threads", "buffers", "store_bytes", "memory"):
            del shared[name]
        return shared


def make_plan(
    source: Any,
    problems: list[Problem],
    *,
    memory: int,
    dtype: str,
    seed: int,
    groups: int,
    threads: int,
    in_memory: bool,
    reads: int,
    segments: int | None = None,
) -> Plan:
    """Decide how the run goes.

    Parameters
    ----------
    source : Dataset or Arrays.
    memory : budget in bytes for data, state and caches.
    in_memory : the rows are the caller's own arrays and cost nothing.
    threads : readers; room is made for ``DECODERS`` of them whatever is asked, so that they never change bits.
    reads : most reads the run can make; for one alone nothing is kept, in memory or on disk.
    segments : parts of an epoch; None decides from the data's size.

    Raises
    ------
    MemoryBudgetError : the budget is too small; the message has the parts and the smallest budget that would do.
    """
    setting = problems[0].setting
    method, k = setting.method, len(problems)
    chunks, width, binary = source.chunks, source.index_width, source.binary
    edges = group_edges(chunks.nnz, groups)
    group_rows = max(int(chunks.rows[a:b].sum()) for a, b in edges)

    one = sum(array.nbytes for array in method.shared(0, dtype))
    per_feature = sum(array.nbytes for array in method.shared(1, dtype)) - one
    row_arrays = len(method.rows._fields) if method.rows is not None else 0
    parts = {"state": k * ((per_feature * source.n_features + one) * (1 + len(edges) * (len(edges) > 1)))}
    if row_arrays:
        parts["row state"] = k * source.n_rows * 8 * row_arrays
    certified = method.certificate
    data = raw.buffer_bytes(source.n_rows, source.nnz, width, binary)
    longest = int(chunks.rows.max(initial=0)), int(chunks.nnz.max(initial=0))
    chunk_bytes = raw.buffer_bytes(*longest, width, binary)
    group_bytes = raw.buffer_bytes(source.max_group_rows, source.max_group_nnz, width, binary)
    decoding = 0 if in_memory else DECODE_BYTES + DECODE_FACTOR * group_bytes

    def fits(extra: dict[str, int]) -> bool:
        return sum(parts.values()) + sum(extra.values()) + SLACK_BYTES <= memory

    # scratch: order, scores, and the problem's view of labels and weights, a block's rows each
    view = 8 * 5
    weights = (source.n_features + 1) * 8
    parts["model"] = 2 * k * weights
    resident = {"data": 0 if in_memory else data, "scratch": group_rows * view}
    if certified:
        resident["certificate"] = (k + 1) * weights
    if not in_memory:
        resident["decoding"] = decoding * DECODERS
    wanted = setting.settings.get("working_set")
    if fits(resident) and (reads > 1 or in_memory):
        parts |= resident
        shape: dict[str, Any] = dict(resident=True, sequential=True, block_bytes=0, buffers=2, set_rows=0, set_nnz=0)
        shape["run"] = run_length(source)
        shape["threads"] = min(threads, DECODERS)
    else:
        shape = _streamed(
            source, problems, parts, memory, wanted, group_rows, chunk_bytes, longest, decoding, view, weights
        )
        shape["threads"] = min(threads, shape["threads"])
    predicted = source.nnz * k * SECONDS_A_NONZERO
    parts["slack"] = SLACK_BYTES
    parts["planned"] = sum(parts.values())
    parts["budget"] = memory
    keys = np.stack([chunks.file, chunks.row_group])
    whole_groups = chunks.file.size == len({*zip(*keys.tolist(), strict=True)})
    units = max(1, chunks.file.size // max(1, len(edges)))
    return Plan(
        seed=seed,
        by_row_group=not whole_groups,
        groups=edges,
        segments=segments or (1 if shape["resident"] else min(units, max(1, round(predicted / SEGMENT_SECONDS)))),
        rounds=0 if wanted == 0 else int(setting.settings.get("inner_rounds", 0)),
        dtype=dtype,
        store_bytes=0 if shape["resident"] or reads == 1 else data,
        memory=parts,
        **shape,
    )


def _streamed(
    source: Any,
    problems: list[Problem],
    parts: dict[str, int],
    memory: int,
    wanted: float | None,
    group_rows: int,
    chunk_bytes: int,
    longest: tuple[int, int],
    decoding: int,
    view: int,
    weights: int,
) -> dict[str, Any]:
    """The shape of a run whose data do not fit: fills ``parts``; refuses a budget that is too small."""
    setting = problems[0].setting
    method, k = setting.method, len(problems)
    width, binary = source.index_width, source.binary
    buffers, readers = 3, 1
    has_set = method.working_set and (setting.loss in BOXED if wanted is None else wanted > 0)
    if method.certificate:  # start and best weights, v, alpha at the start of the read
        parts["certificate"] = k * (3 * weights + source.n_rows * 8)
    if has_set:
        parts["membership"] = k * group_rows
    parts["decoding"] = decoding

    def block_parts(size: int) -> int:
        rows = max(longest[0], int(size / max(1, raw_row_bytes(source))) + 1)
        return (buffers + 1) * max(size, chunk_bytes) + rows * view

    entry = width + (0 if binary else 4)
    mean_row = source.nnz / max(1, source.n_rows) * entry + 6 * 8
    least_set = int(max(2 * MB, 4 * source.max_row_nnz * entry)) * k if has_set else 0
    fixed = sum(parts.values()) + SLACK_BYTES
    least = fixed + block_parts(chunk_bytes) + least_set
    if least > memory:
        listed = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items())
        raise MemoryBudgetError(
            f"memory={format_bytes(memory)} is too small: {listed}, blocks {format_bytes(block_parts(chunk_bytes))}"
            + (f", working set at least {format_bytes(least_set)}" if has_set else "")
            + f"; memory={format_bytes(-(-least // MB) * MB)} would do"
        )
    if decoding and least + decoding <= memory * ROOMY:
        readers = DECODERS
        parts["decoding"] += decoding
        fixed += decoding
    size = chunk_bytes
    largest = BLOCK_BYTES if has_set else MIXED_BYTES if method.certificate else chunk_bytes
    while size * 2 <= largest and fixed + block_parts(size * 2) + least_set <= memory:
        size *= 2
    parts["blocks"] = block_parts(size)
    set_rows = set_nnz = 0
    if has_set:
        room = (memory - fixed - parts["blocks"]) // k
        share = SET_SHARE if wanted is None else wanted
        room = int(min(room, share * source.n_rows * mean_row))
        set_rows = max(16, int(room / mean_row * 0.95))
        set_nnz = int((room - set_rows * 48 - 8) / entry)
        parts["working set"] = k * working_set.bytes_of(set_rows, set_nnz, width, binary) + k * set_rows * 8 * 3
        set_nnz -= int(set_rows * 24 / entry)  # orders and keys of the set come out of the same room
        parts["working set"] = k * (working_set.bytes_of(set_rows, set_nnz, width, binary) + set_rows * 24)
    return dict(
        resident=False,
        sequential=has_set and setting.loss in BOXED and set_nnz >= SEQUENTIAL_SHARE * source.nnz,
        block_bytes=size,
        buffers=buffers,
        run=run_length(source),
        set_rows=set_rows,
        set_nnz=set_nnz,
        threads=readers,
    )


def raw_row_bytes(source: Any) -> float:
    """Mean bytes of a row in memory."""
    entry = source.index_width + (0 if source.binary else 4)
    return float(source.nnz / max(1, source.n_rows) * entry + ROW_BYTES)


def run_length(source: Any) -> int:
    """Neighbours to shuffle as a unit: 1 (a full permutation) for long rows and for data a cache holds."""
    row = raw_row_bytes(source)
    if row * source.n_rows <= SMALL_BYTES:
        return 1
    return max(1, min(512, int(RUN_BYTES / row), source.n_rows // UNITS))


def group_edges(nnz: np.ndarray, groups: int) -> list[tuple[int, int]]:
    """Cut the chunks into ``groups`` runs of about as many non-zeros; ValueError when there are fewer chunks."""
    if groups > nnz.size:
        raise ValueError(f"groups={groups} is more than the data have chunks ({nnz.size})")
    total = np.concatenate([[0], np.cumsum(nnz)])
    edges = np.searchsorted(total, np.linspace(0, total[-1], groups + 1)[1:-1])
    marks = [0]
    for number, edge in enumerate(edges.tolist()):  # at least a chunk for each, before it and after it
        marks.append(min(max(edge, marks[-1] + 1), nnz.size - (groups - 1 - number)))
    marks.append(int(nnz.size))
    return list(zip(marks[:-1], marks[1:], strict=True))


def units_of(plan: Plan, chunks: Any, bytes_of_chunk: np.ndarray, group: int, epoch: int) -> list[np.ndarray]:
    """The blocks of a group's epoch, each an array of chunk numbers: a function of the plan and its arguments only."""
    first, last = plan.groups[group]
    order = np.arange(first, last)
    if not plan.sequential:
        order = _drawn(plan, chunks, first, last, group, epoch)
    ends = np.cumsum(bytes_of_chunk[order])
    units, start = [], 0
    while start < order.size:
        taken = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, taken + plan.block_bytes, side="right")))
        units.append(order[start:stop])
        start = stop
    return units


def _drawn(plan: Plan, chunks: Any, first: int, last: int, group: int, epoch: int) -> np.ndarray:
    """A random order of the chunks; those that share a row group stay together, so that it is decoded once."""
    state = random_state(plan.seed, 1, epoch, group)
    order = np.arange(first, last)
    shuffle(order, 0, order.size, state)
    if not plan.by_row_group:
        return order
    keys = (chunks.file[first:last].astype(np.int64) << 32) + chunks.row_group[first:last]
    ranks: dict[int, int] = {}
    for key in keys[order - first].tolist():
        ranks.setdefault(key, len(ranks))
    rank = np.array([ranks[key] for key in keys[order - first].tolist()])
    return order[np.argsort(rank, kind="stable")]


def segment_units(plan: Plan, units: list[np.ndarray], segment: int) -> list[np.ndarray]:
    """The part of an epoch's blocks that belongs to a segment."""
    edges = np.linspace(0, len(units), plan.segments + 1).round().astype(int)
    return units[edges[segment] : edges[segment + 1]]
