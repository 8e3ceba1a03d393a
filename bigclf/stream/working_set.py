"""The working set: rows that still matter, kept in memory across blocks (Chang and Roth, KDD 2011).

An arena holds copies of rows gathered from earlier blocks; it may grow once, when the first read has given back what
decoding took. A row's score is minus its distance to being
provably stuck at an end of its box (0: inside it), as the kernel left it on the last visit. A row enters when its
score is above a threshold; when the arena is full the lowest scores leave until nine tenths are used (in the first
read: until there is the room that rows yet to come will need), which sets the threshold anew. Their dual variables
stay where all rows' do, so nothing is lost but a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bigclf import files
from bigclf.compiled.jit import FEW, brief, inlined, kernel, move
from bigclf.errors import ModelFormatError
from bigclf.maths.block import Block

KEEP = 0.9  # of the arena, when it is full: every row that is let go at once leaves room idle at the end of a read
FORESIGHT, LEAST_KEPT = 2.0, 0.4  # ... the first time in the first read: no more than twice the share that is through,
FILLINGS, STEADY = 5.0, (0.8, 0.95)  # ... later in it: so that it will be full so many times more, between these
ROW_BYTES = 8 * 6  # a row of the arena: indptr, labels, weights, norms, ids, scores; a scale, where there are any, is 4
TIE = 1e-6  # spread of the pseudo-random part of a key, which decides among equal scores


@inlined
def key_of(score, row, salt):  # type: ignore[no-untyped-def]
    """The score less a small hash of row and salt: among equals chance decides, the same chance in every run, and with
    a new salt others have their turn."""
    z = (np.uint64(row) ^ (np.uint64(salt) * np.uint64(0xD1B54A32D192ED03))) * np.uint64(0x9E3779B97F4A7C15)
    return score - TIE * (np.float64(z >> np.uint64(40)) / 16777216.0)


@inlined
def holds(member, r):  # type: ignore[no-untyped-def]
    """Whether row r is in the set: a bit a row."""
    return (member[r >> 3] >> np.uint8(r & 7)) & np.uint8(1) != 0


@inlined
def put_in(member, r):  # type: ignore[no-untyped-def]
    member[r >> 3] |= np.uint8(1) << np.uint8(r & 7)


@inlined
def take_out(member, r):  # type: ignore[no-untyped-def]
    member[r >> 3] &= np.uint8(255) ^ (np.uint8(1) << np.uint8(r & 7))


@brief
def keep_outside(ids, rows, member, found):  # type: ignore[no-untyped-def]
    """Those i of ``rows`` whose ids[i] is not in the set, to the front of ``found``; how many they are."""
    n = 0
    for k in range(rows.size):
        if not holds(member, ids[rows[k]]):
            found[n] = rows[k]
            n += 1
    return n


@kernel
def put_all_in(ids, member):  # type: ignore[no-untyped-def]
    for i in range(ids.size):
        put_in(member, ids[i])


@inlined
def move_entries(arena, to, block, begin, end):  # type: ignore[no-untyped-def]
    """Entries begin:end of the block to the arena's from ``to`` on."""
    if begin < end:
        move(arena.indices, to, block.indices, begin, end - begin)
        if arena.values.size > 0:
            move(arena.values, to, block.values, begin, end - begin)


@kernel
def append_rows(block, rows, first, scores, threshold, salt, arena, kept_scores, used, member):  # type: ignore[no-untyped-def]
    """Copy rows[first:] whose key is above the threshold; return the place of the first that found no room.

    ``used`` [2] holds the arena's rows and entries; ``member`` has a bit a row, whether it is in it. Entries of rows
    that are neighbours are copied at once.
    """
    n, entries = used[0], used[1]
    constant, stopped = arena.scales.size > 0, rows.size
    begin, end = 0, 0  # entries of the block that are yet to be copied
    for k in range(first, rows.size):
        i = rows[k]
        r = block.ids[i]
        if holds(member, r) or key_of(scores[i], r, salt) <= threshold:
            continue
        a, length = block.indptr[i], block.indptr[i + 1] - block.indptr[i]
        if entries + length > arena.indices.size or n >= arena.labels.size:
            stopped = k
            break
        if a != end:
            move_entries(arena, entries - (end - begin), block, begin, end)
            begin = a
        end = a + length
        arena.labels[n], arena.weights[n], arena.norms[n], arena.ids[n] = (
            block.labels[i],
            block.weights[i],
            block.norms[i],
            r,
        )
        if constant:
            arena.scales[n] = block.scales[i] if block.scales.size > 0 else np.float32(1)
        kept_scores[n] = scores[i]
        put_in(member, r)
        n += 1
        entries += length
        arena.indptr[n] = entries
    move_entries(arena, entries - (end - begin), block, begin, end)
    used[0], used[1] = n, entries
    return stopped


@brief
def append_few_rows(block, rows, first, scores, threshold, salt, arena, kept_scores, used, member):  # type: ignore[no-untyped-def]
    """``append_rows`` of ``FEW`` rows at most."""
    return append_rows(block, rows, first, scores, threshold, salt, arena, kept_scores, used, member)


@kernel
def fill_keys(ids, scores, salt, keys):  # type: ignore[no-untyped-def]
    for i in range(keys.size):
        keys[i] = key_of(scores[i], ids[i], salt)


@kernel
def find_cut(keys, lengths, most_rows, most_entries):  # type: ignore[no-untyped-def]
    """Take rows from the highest key on, at most ``most_rows`` with at most ``most_entries`` entries in all: whether
    one has to stay, and its key. Reorders keys and lengths.

    A quickselect by weight (Hoare 1961, with Dijkstra's partition in three); the order of equal keys does not matter.
    """
    low, high = 0, keys.size
    rows, entries = np.int64(most_rows), np.float64(most_entries)
    while low < high:
        a, b, c = keys[low], keys[(low + high) // 2], keys[high - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        i, j, k = low, low, high  # above the pivot low:i, equal i:j, below k:high
        above, same = np.int64(0), np.int64(0)
        while j < k:
            key, length = keys[j], lengths[j]
            if key > pivot:
                above += length
                keys[j], lengths[j], keys[i], lengths[i] = keys[i], lengths[i], key, length
                i += 1
                j += 1
            elif key < pivot:
                k -= 1
                keys[j], lengths[j], keys[k], lengths[k] = keys[k], lengths[k], key, length
            else:
                same += length
                j += 1
        if i - low > rows or above > entries:
            high = i
        elif k - low > rows or above + same > entries:
            return True, pivot
        else:
            rows, entries, low = rows - (k - low), entries - (above + same), k
    return False, 0.0


@kernel
def keep_rows(arena, kept_scores, keys, threshold, used, member):  # type: ignore[no-untyped-def]
    """Move the rows whose key is above the threshold to the front, in place and in order, neighbours at once."""
    n, entries = 0, 0
    constant = arena.scales.size > 0
    begin, end = 0, 0  # entries that are yet to be moved
    for i in range(used[0]):
        if keys[i] <= threshold:
            take_out(member, arena.ids[i])
            continue
        a, length = arena.indptr[i], arena.indptr[i + 1] - arena.indptr[i]
        if a != end:
            move_entries(arena, entries - (end - begin), arena, begin, end)
            begin = a
        end = a + length
        arena.labels[n], arena.weights[n], arena.norms[n], arena.ids[n] = (
            arena.labels[i],
            arena.weights[i],
            arena.norms[i],
            arena.ids[i],
        )
        if constant:
            arena.scales[n] = arena.scales[i]
        kept_scores[n] = kept_scores[i]
        n += 1
        entries += length
        arena.indptr[n] = entries  # never above indptr[i + 1], which has been read
    move_entries(arena, entries - (end - begin), arena, begin, end)
    used[0], used[1] = n, entries


@kernel
def fill_rows(block, slots, arena):  # type: ignore[no-untyped-def]
    """Copy each row i with slots[i] >= 0 to that row of the arena, whose indptr is already laid out."""
    explicit, constant = arena.values.size > 0, arena.scales.size > 0
    for i in range(block.indptr.size - 1):
        n = slots[i]
        if n < 0:
            continue
        a, to = block.indptr[i], arena.indptr[n]
        for p in range(block.indptr[i + 1] - a):
            arena.indices[to + p] = block.indices[a + p]
            if explicit:
                arena.values[to + p] = block.values[a + p]
        if constant:
            arena.scales[n] = block.scales[i] if block.scales.size > 0 else np.float32(1)
        arena.labels[n], arena.weights[n], arena.norms[n] = block.labels[i], block.weights[i], block.norms[i]


class Members(NamedTuple):
    """What is written to a checkpoint: in the arena's order ids and lengths int64, scores float64; threshold [1];
    when the arena was full last, the share of the group's rows that was through and of the arena that was kept [2]."""

    ids: np.ndarray
    lengths: np.ndarray
    scores: np.ndarray
    threshold: np.ndarray
    compacted: np.ndarray

    @classmethod
    def none(cls) -> Members:
        """Those of a set that nothing has entered."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.array([-np.inf]), np.zeros(2))


class WorkingSet:
    """An arena for ``rows`` rows with ``nnz`` entries of a group with ``group_rows`` rows; ``grown`` : for how many
    once it has grown. Its memory is asked for at once, and taken by the rows that come.

    Where the per-row arrays are not in memory whole (``stream/row_files.py``), ``places`` has the places of the arena's
    rows in what is, ``came`` is told of rows that have come (first, last) and ``left``, before others move up, which
    of the arena's rows stay (bool [n_rows]).
    """

    def __init__(
        self,
        rows: int,
        nnz: int,
        index_width: int,
        binary: bool,
        group_rows: int,
        constant: bool = False,
        grown: tuple[int, int] | None = None,
    ) -> None:
        self.sizes = (rows, nnz), grown or (rows, nnz)
        self._dtypes = [np.dtype(np.uint64 if index_width == 8 else np.uint32), np.dtype(np.float32)]
        self._explicit, self._constant = not (binary or constant), constant
        self.grown = self.filed = False
        self._take_memory(_memory)
        self.used = np.zeros(2, np.int64)
        self.member = np.zeros(member_bytes(group_rows), np.uint8)
        self.places: np.ndarray | None = None
        self.came: Callable[[int, int], None] | None = None
        self.left: Callable[[np.ndarray], None] | None = None
        self.threshold = -np.inf
        self.passed = 1.0  # share of the group's rows that have been through; below 1 in the first read only
        self.compacted = np.zeros(2)  # that share, and how full the arena was left, the last time it was full
        self.salt = 0  # of the chance that decides among rows that matter as much
        self.generation = 0  # grows when rows move: orders drawn before are void

    def _take_memory(self, made: Callable[[int, np.dtype[Any]], np.ndarray]) -> None:
        """An arena that nothing is in, with room for all that it may ever hold."""
        rows, nnz = self.sizes[1]
        number, index, value = np.dtype(np.float64), *self._dtypes
        self._all = Block(
            np.zeros(rows + 1, np.int64),
            made(nnz, index),
            made(nnz if self._explicit else 0, value),
            made(rows, number),
            made(rows, number),
            made(rows, number),
            made(rows, np.dtype(np.int64)),
            made(rows if self._constant else 0, value),
        )
        self._all_scores = made(rows, number)
        self._use()

    def _use(self) -> None:
        """As much of the memory as the set has grown to."""
        rows, nnz = self.sizes[self.grown]
        whole = self._all
        self.arena = Block(
            whole.indptr[: rows + 1],
            whole.indices[:nnz],
            whole.values[:nnz],
            *(array[:rows] for array in (whole.labels, whole.weights, whole.norms, whole.ids, whole.scales)),
        )
        self.scores = self._all_scores[:rows]

    def grow(self) -> None:
        """There is more room from now on."""
        self.grown = True
        self._use()

    def open(self) -> None:
        """Rows that were turned away for want of room may come again."""
        self.threshold = -np.inf
        self.compacted[:] = 0

    def let_go(self) -> Members:
        """Give the memory back; ``expect`` and ``fill`` bring the rows again."""
        members = self.members()
        self._take_memory(_memory)
        return members

    def put_in_file(self, directory: str) -> None:
        """The rows stay where they are, in memory of the page cache from now on; OSError: there is no room on disk."""
        if self.filed:
            return
        n, entries, before, scores = self.n_rows, int(self.used[1]), self._all, self._all_scores
        self._take_memory(lambda size, dtype: files.filed_array(size, dtype, directory))
        for new, old in zip((*self._all, self._all_scores), (*before, scores), strict=True):
            kept = n + 1 if old is before.indptr else entries if old is before.indices or old is before.values else n
            new[:kept] = old[:kept]
        self.filed = True

    @property
    def n_rows(self) -> int:
        return int(self.used[0])

    def admit(self, block: Block, rows: np.ndarray, scores: np.ndarray) -> None:
        """Take in those of the block's ``rows`` whose score earns it; a row larger than the arena stays outside."""
        first = 0
        append = append_few_rows if rows.size <= FEW else append_rows
        while True:
            before = self.n_rows
            first = append(
                block, rows, first, scores, self.threshold, self.salt, self.arena, self.scores, self.used, self.member
            )
            if self.came is not None:
                self.came(before, self.n_rows)
            if first >= rows.size:
                return
            if not self.compact():
                first += 1

    def compact(self) -> bool:
        """Let the lowest keys go until ``_kept_share`` of the arena is used; False if that frees nothing."""
        n, before = self.n_rows, self.used.copy()
        keys = np.empty(n)
        fill_keys(self.arena.ids[:n], self.scores[:n], self.salt, keys)
        lengths = np.diff(self.arena.indptr[: n + 1])
        keep = self._kept_share()
        full, key = find_cut(keys.copy(), lengths, int(keep * self.scores.size), keep * self.arena.indices.size)
        self.threshold = float(key) if full else self.threshold
        self._keep(keys, self.threshold)
        self.compacted[:] = self.passed, self._fullness()
        return bool((self.used < before).any())

    def _fullness(self) -> float:
        """The share of the arena that is used, of its rows or of its entries."""
        return float(max(self.used[0] / self.scores.size, self.used[1] / max(1, self.arena.indices.size)))

    def _kept_share(self) -> float:
        """Of the arena, when it is full.

        While rows are yet to come that nobody has seen, those that have been by have no claim to the room of theirs:
        the first time most leave, for all came in unasked. Later, at the pace at which rows came in since the last
        time, the arena is to be full ``FILLINGS`` times more: the room is shared evenly between those at the middle of
        the read and those at its end, and nothing is moved more often than that takes.
        """
        if self.passed >= 1:
            return KEEP
        passed, kept = self.compacted.tolist()
        if passed == 0:
            return min(KEEP, max(LEAST_KEPT, FORESIGHT * self.passed))
        pace = (self._fullness() - kept) / max(self.passed - passed, 1e-3)
        return min(max(1 - pace * (1 - self.passed) / FILLINGS, STEADY[0]), STEADY[1])

    def _keep(self, keys: np.ndarray, threshold: float) -> None:
        """Only rows stay whose key is above the threshold."""
        if self.left is not None:
            self.left(keys[: self.n_rows] > threshold)
        keep_rows(self.arena, self.scores, keys, threshold, self.used, self.member)
        self.generation += 1

    def outside(self, ids: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Those i of ``rows`` whose ids[i] is not in the set, in their order."""
        found = np.empty_like(rows)
        return found[: keep_outside(ids, rows, self.member, found)]

    def drop(self, threshold: float) -> None:
        """Let every row go whose score is below the threshold."""
        n = self.n_rows
        if (self.scores[:n] < threshold).any():
            self._keep(self.scores, np.nextafter(threshold, -np.inf))

    def clear(self) -> None:
        """Let every row go."""
        self.member[:] = 0
        self.used[:] = 0
        self.compacted[:] = 0
        self.generation += 1

    def members(self) -> Members:
        """The set's rows, for a checkpoint; the bytes are gathered again from them."""
        n = self.n_rows
        lengths = np.diff(self.arena.indptr[: n + 1])
        threshold = np.array([self.threshold])
        return Members(self.arena.ids[:n].copy(), lengths, self.scores[:n].copy(), threshold, self.compacted.copy())

    def has_room(self, members: Members) -> bool:
        """Whether so many rows with as many entries fit in the arena as it is."""
        return members.ids.size <= self.scores.size and int(members.lengths.sum()) <= self.arena.indices.size

    def expect(self, members: Members) -> None:
        """Lay out the arena for the rows of a checkpoint, in the order they stood in; ``fill`` brings their bytes."""
        n = members.ids.size
        self.arena.ids[:n], self.scores[:n] = members.ids, members.scores
        np.cumsum(members.lengths, out=self.arena.indptr[1 : n + 1])
        self.used[:] = n, self.arena.indptr[n]
        put_all_in(self.arena.ids[:n], self.member)
        self.threshold, self.compacted = float(members.threshold[0]), members.compacted.copy()
        self._slots = np.argsort(members.ids, kind="stable")

    def fill(self, block: Block) -> None:
        """Copy the expected rows that stand in the block to their places."""
        ids = self.arena.ids[: self.n_rows]
        if ids.size:
            found = self._slots[np.minimum(np.searchsorted(ids, block.ids, sorter=self._slots), ids.size - 1)]
            slots = np.where(ids[found] == block.ids, found, -1)
            there = slots >= 0
            if (np.diff(block.indptr)[there] != np.diff(self.arena.indptr)[slots[there]]).any():
                raise ModelFormatError("the rows of a working set are not as long as its checkpoint says")
            fill_rows(block, slots, self.arena)

    def block(self) -> Block:
        """The rows of the arena as a block (views); ``ids`` are the places of their values in the per-row arrays."""
        n, entries = int(self.used[0]), int(self.used[1])
        a = self.arena
        return Block(
            a.indptr[: n + 1],
            a.indices[:entries],
            a.values[: entries if a.values.size else 0],
            a.labels[:n],
            a.weights[:n],
            a.norms[:n],
            a.ids[:n] if self.places is None else self.places[:n],
            a.scales[: n if a.scales.size else 0],
        )


def _memory(size: int, dtype: np.dtype[Any]) -> np.ndarray:
    return np.empty(size, dtype)


def member_bytes(rows: int) -> int:
    """What it takes to know of so many rows whether they are in the set."""
    return rows // 8 + 1


def bytes_of(rows: int, nnz: int, index_width: int, binary: bool, constant: bool = False) -> int:
    """What the arena of a ``WorkingSet`` allocates (a bit for each of the group's rows not counted)."""
    entry = index_width + (0 if binary or constant else 4)
    return nnz * entry + rows * (ROW_BYTES + (4 if constant else 0)) + 8
