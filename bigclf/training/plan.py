"""The plan: what is decided once, from data, parameters and budget, before the first read.

Every decision that touches the bits of the result is made here or from counts, never from clocks or from what a
machine happens to have; the plan is written to ``run.json``. What cannot fit is refused with the budget that would do.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypedDict, Unpack

import numpy as np

from bigclf.compiled.jit import random_state, shuffle
from bigclf.data.chunk_table import Chunks, warn_of_numbers
from bigclf.data.shards import PART_BYTES
from bigclf.errors import MemoryBudgetError
from bigclf.maths.losses import BOXED, REGRESSION
from bigclf.maths.side_by_side import MOST_TILE, tile_bytes
from bigclf.methods import METHODS, Setting, sparse_state
from bigclf.methods.dual.conjugate_gradients import BYTES_A_ROW
from bigclf.methods.dual.subspace_ascent import moves_bytes
from bigclf.methods.method import Dual, Steps
from bigclf.stream import raw_store as raw
from bigclf.stream import row_files, working_set
from bigclf.training.problems import PROBLEM_BYTES, Problem
from bigclf.training.sampling import ROOM
from bigclf.training.visit import FEW
from bigclf.units import format_bytes, plural

if TYPE_CHECKING:
    from bigclf.data.rows import Rows


log = logging.getLogger("bigclf")
VERSION = 1
MB = 1_000_000
RUN_BYTES = 64_000  # neighbours that are shuffled as a unit lie within about so many bytes
MOST_RUN, DUAL_RUN = 512, 8  # ... at most, and where each row has a dual variable
SMALL_BYTES = 32 * MB  # what a cache holds: there a full permutation costs nothing
UNITS = 1000  # at least so many units of shuffle
BLOCK_BYTES = 8 * MB
MIXED_BYTES = 64 * MB  # a block drawn afresh from random chunks, for a dual method without a working set
SEGMENT_SECONDS = 30.0
SECONDS_A_NONZERO = 10e-9
DECODE_BYTES = 8 * MB  # what Arrow's allocator holds at least
DECODE_FACTOR = 5  # pages, levels, Arrow's arrays and ours, times a row group's raw bytes, for each decoding thread
OWN_FACTOR = 4  # ... of our own shards, whose values go straight to where they are read (measured: 3.2)
LEFT_OUT_FACTOR = 2  # ... of our own shards, where rows are left out: their arrays and a page, before that
PARTS_FACTOR = 10  # ... times the bytes of a part, of a row group that is decoded in parts; they differ in length
CUT_FACTOR = 2  # ... and of its chunks: the parts of one, and all of it
DECODERS = 2  # threads that decode at a time, where there is memory for it
LEARNERS = 2  # problems that learn at a time, where there are several; room is made for them whatever the threads
LEAST_TOGETHER = 2  # of one epoch and its certificate every row is learned from, of more not all in the first
IN_TURN = 4  # chains of problems of which each round visits so many, or a multiple: 1, 2 and 4 cores then end together
BUFFERS = 3  # blocks in memory at a time, and
MOST_BUFFERS = 5  # ... where there is room for more: two readers that wait for the disk at a time hold nobody up then
BUFFERS_OF_SIZED = 2  # ... where the schedule has them as large as memory allows
# Larger blocks, more of them and a second thread that decodes share this part of what the budget has beyond the least.
# It is put aside even while it does not come to one more of them: so a working set never shrinks as the budget grows.
BLOCK_SHARE = 1 / 6
SPARED = 1 / 50  # of what blocks may have beyond the least
VIEW_BYTES = 8 * 5  # a row of a block: order, scores, and the problem's view of labels and weights
KEPT_VIEW_BYTES = 8 * 3  # a row that is kept: the problem's view of its label and weight, and its place
SET_ORDER_BYTES = 8 * 3  # a row of the working set: orders and keys
LEAST_LENGTH = 0.75  # of the mean of all rows that those of a working set have room for in the mean
ROW_SHARE = 1 / 4  # of the budget: per-row arrays that would take more go to disk
SLACK_BYTES = 4 * MB  # orders, indices of Parquet files, queues
ACTIVE_SLACK = 0.1  # rows that score above minus this are gone over again between reads
ROUNDS_A_READ = 1.0  # rows of the working set visited while streaming, for each row streamed
SEQUENTIAL_SHARE = 0.1  # a smaller set cannot hold the rows that move: then the order matters (470 reads against 20)
CYCLES_A_READ = 8.0  # most visits to a row of the working set while the data stream by
# A set of less than SEQUENTIAL_SHARE of the entries gets what there is: the least blocks, the room of the per-row
# arrays, which go to disk, after the first read that of decoding, and more visits. M under 140 MB (hinge, no bias): 7
# reads to 0.001 and not 10; with a bias 7 with that room, and 8 without.
SCANT_BLOCK_SHARE, SCANT_BUFFERS, SCANT_VISITS = 1 / 20, BUFFERS, 2.0
PACE = 10  # rounds after which a look is taken whether they stall
ROUNDS, ROUNDS_OF_GROUPS = 60, 3  # most rounds over the rows that matter after a read
LEAST_SET = MB // 4  # bytes of the working set of one of many problems, at least
LEAST_CLAIM = 1 / 16  # of the problem with the least C to the working set of that with the largest
BLOCK_ROUNDS = {"auto": 4, "fixed": 10, "selective": 10, "cached": 3}  # where the user says nothing
CACHE_SHARE = 0.5  # of the memory that blocks and the cache of selective block minimisation share
CLIMB_ROWS, CLIMB_SHARE = 200_000, 1 / 8  # free rows that conjugate gradients have room for: the larger of the two
PARTS = 2  # of the rows that sums are made of, where there is one problem: each on a core
SAMPLED, MOST_SAMPLED = 5, 50  # out of core, products with a Hessian are of every fifth row, or of fewer if those fit
CLIMB_OF_SET = 1.0  # ... of a working set, whose rows are mostly free; with a bias, which couples all, it makes room
PLACES_SHARE = 0.95  # of the memory that is left, for a state of touched places; the rest is for larger blocks
WASTE = 4  # slots for a touched place, at most: stretches that are half full, and free ones
LEAST_PLACES = 1 << 16
MODEL_COPIES = 2  # the answer, and its bytes while it is written
# Of several groups the rows that matter are solved in one place. The share of all rows that it has room for decides: on
# S in 64 groups 40 % need 6 passes, 30 % 7, 25 % 10, and 20 % never end.
GATHERED_SHARE, LEAST_GATHERED = 0.4, 0.25
SUMS_OF_BOXED = "augmented_lagrangian"  # of a loss with a box, the method that has no such set
MOVES_SHARE = 1 / 8  # of the budget, for moves of the rounds over them
GATHERED_ROUNDS = 100  # most rounds over them after a pass
GATHERED_ROW = 8 * 8  # of such a row, beside its copy: dual variable and score before and after, number, place, orders
SET_SHARE = 0.25  # a working set of more of the data adds nothing (measured: 16 % is enough on RCV1-like data)
RESIDENT: dict[str, Any] = dict(
    resident=True, sequential=True, block_bytes=0, buffers=2, set_rows=0, set_nnz=0, collected=0, threads=DECODERS
)


@dataclass(frozen=True)
class Plan:
    """How a run goes. Sizes in bytes, rows or entries; all of it JSON.

    Large because it lists every decision of a run, and is written down with it.

    Attributes
    ----------
    resident : whether every row stays in memory after one read; whole : which decodes even large row groups in one go
        (no bits change).
    groups : [group][first chunk, one past the last chunk].
    sequential : blocks in the order of the files (a working set makes the order irrelevant) or drawn afresh.
    by_row_group : some chunks share a row group: in a drawn order they stay together, to be decoded once; in_order :
        and follow each other as they lie there, since it is decoded in parts (not in runs begun before it was).
    redrawn : after the first epoch, which puts them all into the raw store, they stay together no more: neighbours in
        every epoch's blocks, dual variables take three times the reads (not in runs begun before that was known).
    block_bytes : a block is as many chunks as fit this, and at least one.
    segments : parts of an epoch between which a run commits, checkpoints and stops.
    run : neighbours shuffled as a unit.
    set_rows, set_nnz : arena of a problem's working set in a group (0: none) in the mean; shares : of each problem's to
        that mean (none: all 1); rounds : most rounds over it after a read.
    grown : rows and entries of that arena after the first epoch, where it then takes the memory that decoding took, of
        large row groups or for a ``scant`` set (none: it stays as it is). Whoever lacks decoded rows later decodes them
        before the set is filled.
    places : most slots of a state that holds touched places only (``sparse_state``); 0: it holds every
        feature of every class.
    collected : entries that a method's collection has room for, of each problem (0: it has none).
    climb_rows : most free rows that conjugate gradients go over where rounds stall (0: none, or no memory for it).
    light_bias : the bias is a feature of a small value (``roles.light_bias``; not in runs begun before that was).
    schedule : "auto", or which of the family of ``schedules.py``; block_rounds : of "fixed" and "selective" the rounds
        over each block, of "cached" the visits to cached rows for each row read, of "auto" 0.
    threads, buffers : readers beside the learning thread and blocks in memory; they never change bits.
    learners : problems that learn from a block at a time, each on a core; they never change bits.
    parts : of each block, that have sums of their own, joined in their order; every : of so many rows one, by a hash,
        is in the sums that can do without the others (1: all are).
    store_bytes : size of the raw store (0: none is made).
    scant : the working set is so small that it gets all the room there is, and each of its rows twice the visits (not
        in runs begun before that was).
    tiled : after the first epoch several problems look at all rows together, which stay in memory (not in runs begun
        before that was).
    gathered : the working sets of all groups are solved in one place (``roles.gathered``; not in runs begun before that
        was); moves : and there is memory for steps along the last rounds' moves.
    in_turn : of chains of problems (a sweep's values of C) each round visits a multiple of so many, first those that
        have come least far (0: all of them, as in runs begun before that was).
    rows_sides : of the file that has the per-row arrays (dual variables) where memory has no room for them (0: it has,
        2: they are kept as they were at a read's start, too); rows_bytes : its size. They never change bits.
    memory : what each part takes, their sum ``planned``, and the ``budget``; of a working set that grows what it comes
        to, and of decoding only what it takes beyond that.
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
    learners: int = 1
    rows_sides: int = 0
    rows_bytes: int = 0
    grown: tuple[int, ...] = ()
    shares: tuple[float, ...] = ()
    schedule: str = "auto"
    block_rounds: int = 0
    climb_rows: int = 0
    places: int = 0
    parts: int = 1
    every: int = 1
    collected: int = 0
    in_order: bool = False
    gathered: bool = False
    moves: bool = False
    scant: bool = False
    tiled: bool = False
    light_bias: bool = False
    whole: bool = False
    redrawn: bool = False
    in_turn: int = 0
    version: int = VERSION

    def as_json(self) -> dict[str, Any]:
        """Lists and dicts are copied, what is in them cannot change: ``dataclasses.asdict`` would copy every number."""
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value.copy() if isinstance(value, list | dict) else value for name, value in found.items()}

    def arena(self, number: int, grown: bool = False) -> tuple[int, int]:
        """Rows and entries of a problem's working set in the first epoch, or once it has ``grown``."""
        share = self.shares[number] if self.shares else 1.0
        rows, nnz = self.grown if grown and self.grown else (self.set_rows, self.set_nnz)
        return int(share * rows), int(share * nnz)

    def pruning(self, rows: int) -> Plan:
        """The plan with memory for so many bytes of ``rows`` that are trained on again at the end, as far as there is
        room."""
        free = max(0, self.memory["budget"] - self.memory["planned"])
        taken = min(max(0, rows - self._learning), free)
        memory = {**self.memory, "rows of what is left": taken, "planned": self.memory["planned"] + taken}
        return dataclasses.replace(self, memory=memory)

    @property
    def left_room(self) -> int:
        """Bytes for rows that are trained on again at the end, when nothing else learns any more."""
        return self.memory.get("rows of what is left", 0) + self._learning

    @property
    def _learning(self) -> int:
        """Bytes that are free once all has been learned, and rows that stay have been decoded."""
        decoded = ("decoding",) if self.resident else ()
        return sum(self.memory.get(name, 0) for name in ("row state", "working set", "membership", *decoded))

    def same_bits(self) -> dict[str, Any]:
        """The part of the plan that the result depends on: what a resumed run must share."""
        shared = self.as_json()
        for name in ("threads", "buffers", "learners", "store_bytes", "rows_sides", "rows_bytes", "whole", "memory"):
            del shared[name]
        if shared.pop("places"):
            shared["touched"] = True
        for name in (
            "in_order",
            "grown",
            "gathered",
            "moves",
            "redrawn",
            "scant",
            "tiled",
            "in_turn",
            "light_bias",
        ):  # older runs do not say
            if not shared[name]:
                del shared[name]
        return shared | {"opportunistic": False}  # which older runs could be, and say


class Shape(TypedDict):
    """What a plan is made for, beside rows, problems and memory: as ``_made`` says."""

    dtype: str
    seed: int
    groups: int
    threads: int
    in_memory: bool
    reads: int
    keeps_best: NotRequired[bool]
    before: NotRequired[Mapping[str, Any] | None]


class StoredShape(Shape):
    """... and what ``make_plan`` takes besides."""

    stored: NotRequired[bool]


def settle(
    source: Rows, problems: list[Problem], *, memory: int, **shape: Unpack[StoredShape]
) -> tuple[list[Problem], Plan]:
    """The plan, and the problems as it has them: where weights of every feature and class do not fit in memory, of
    states that hold touched places only, as many in each.

    Raises
    ------
    MemoryBudgetError : as ``make_plan``; where the method has no such state, naming those that have.
    """
    try:
        plan = make_plan(source, problems, memory=memory, **shape)
        if shape["reads"] > 1 and not shape.get("before") and (told := _stay_apart(source, problems, plan)):
            log.warning("%s", told)
        return problems, plan
    except MemoryBudgetError as error:
        setting = problems[0].setting
        for numbers in warn_of_numbers(source.classes):
            raise MemoryBudgetError(f"{error}; {numbers}") from None
        if setting.method.instead and setting.state_bytes(source.n_features, shape["dtype"]) > memory // 2:
            raise MemoryBudgetError(f"{error}; {setting.method.instead}") from None
        n_classes = 0 if source.classes is None else source.classes.size
        if problems[0].targets is None or n_classes <= 2 or problems[0].label is not None:
            raise
        size = setting.state_bytes(source.n_features, shape["dtype"])
        if why_not := next(filter(None, (_not_touched(problem.setting) for problem in problems)), ""):
            if len(problems) * size <= max(memory, SLACK_BYTES):  # weights are not what takes the room
                raise
            raise MemoryBudgetError(f"{error}; {why_not}") from None
        places = _places(source, problems, memory, shape)
        if places <= 0:
            raise
    problems = [problem._replace(setting=problem.setting._replace(places=places)) for problem in problems]
    told = f"{len(problems)} times {format_bytes(size)}" if len(problems) > 1 else format_bytes(size)
    log.info(
        "weights of %s features for %s classes would take %s: the state holds those that are touched, at most %s (%s)",
        f"{source.n_features:,}", f"{n_classes:,}", told, f"{places:,}",
        format_bytes(places * sparse_state.slot_bytes(shape["dtype"])),
    )  # fmt: skip
    return problems, make_plan(source, problems, memory=memory, **shape)


def _stay_apart(source: Rows, problems: list[Problem], plan: Plan) -> str:
    """That groups which could gather their working sets have no room for these, and what needs none; else empty."""
    sizes = Sizes(source, problems, plan.dtype, plan.groups, False, plan.segments)
    if plan.gathered or not sizes.gathers or (sizes.setting.settings.get("working_set") or 1.0) < LEAST_GATHERED:
        return ""
    share = GATHERED_SHARE if plan.resident else LEAST_GATHERED
    rows, nnz = _arena(sizes, sizes.data + GATHERED_ROW * source.n_rows, share, 0)
    needs = sizes.gathered(rows, nnz) + sizes.working_sets(rows, nnz)
    told = (
        f"the working set of {len(plan.groups)} groups needs some {format_bytes(needs)} beside all else, and memory="
        f"{format_bytes(plan.memory['budget'])} has no room for it: groups stay apart, which takes many more passes"
    )
    other = METHODS.get(SUMS_OF_BOXED)
    if other is None or sizes.setting.loss not in other.losses:
        return told
    return f"{told}; algo={SUMS_OF_BOXED!r} needs none, and its passes do not depend on the groups"


def _not_touched(setting: Setting) -> str:
    """Why a state of touched places is no help, and what is; empty where it is possible."""
    needs = setting.method.form.needs
    having = ", ".join(name for name, method in METHODS.items() if method.form.touched)
    if needs is None:
        return f"weights of touched features alone are held by {having} (multiclass='native')"
    for name, value in needs.items():
        if setting.settings[name] != value:
            return f"weights of touched features alone are held with {name}={value!r}"
    return ""


def _places(source: Rows, problems: list[Problem], memory: int, shape: StoredShape) -> int:
    """Slots of each problem that ``memory`` has room for beside everything else, and no more than there can be use
    for."""
    edges = group_edges(source.chunks.nnz, shape["groups"])
    segments = _segments(source, len(problems), len(edges))
    least = [problem._replace(setting=problem.setting._replace(places=1)) for problem in problems]
    sizes = Sizes(source, least, shape["dtype"], edges, shape["in_memory"], segments)
    sizes.state += sizes.one_state * shape.get("keeps_best", False)
    _, parts = _streamed(sizes, memory, again=shape["reads"] > 1)
    room = PLACES_SHARE * (memory - sum(parts.values()) - SLACK_BYTES)
    slot = sparse_state.slot_bytes(shape["dtype"])
    copies = sizes.k * (sizes.copies + bool(shape.get("keeps_best", False)) + model_copies(problems))
    # a step touches two classes at each entry, one of them the row's own
    useful = min(source.nnz * (1 + shape["reads"]), source.n_features * source.classes.size)
    return int(min(room / (slot * copies), sparse_state.MOST, WASTE * useful + LEAST_PLACES))


def model_copies(problems: list[Problem]) -> int:
    """Copies of the slots that the answer takes; what leaves a fold out is measured where it lies, and no model."""
    return MODEL_COPIES if problems[0].fold is None else 0


def make_plan(
    source: Rows, problems: list[Problem], *, memory: int, stored: bool = False, **shape: Unpack[Shape]
) -> Plan:
    """Decide how the run goes; arguments and errors as of ``_made``.

    stored : whether a raw store that was kept has every chunk already: then nothing is decoded. The bytes for it are
        not planned, but only a budget that were too small with them is shared out anew: the same run gives the same
        bits whether it finds a store or makes one.
    """
    try:
        plan = _made(source, problems, memory=memory, **shape)
    except MemoryBudgetError:
        if not stored:
            raise
        plan = _made(source, problems, memory=memory, decodes=False, **shape)
    if not stored or not plan.store_bytes:
        return plan
    told = {**plan.memory, "decoding": 0}
    return dataclasses.replace(plan, memory={**told, "planned": told["planned"] - plan.memory["decoding"]})


def _made(
    source: Rows,
    problems: list[Problem],
    *,
    memory: int,
    dtype: str,
    seed: int,
    groups: int,
    threads: int,
    in_memory: bool,
    reads: int,
    keeps_best: bool = False,
    decodes: bool = True,
    before: Mapping[str, Any] | None = None,
) -> Plan:
    """Decide how the run goes.

    Parameters
    ----------
    source : Dataset or Arrays.
    memory : budget in bytes for data, state and caches.
    in_memory : the rows are the caller's own arrays and cost nothing.
    threads : cores: 1 reads and learns in turn, more read ahead; room is made for ``DECODERS`` readers whatever is
        asked, so that they never change bits.
    reads : most reads the run can make; for one alone nothing is kept, in memory or on disk.
    keeps_best : whether the best state so far is kept beside the present one.
    decodes : False: where rows stream by, they come from a store that is finished.
    before : the plan of the run that is gone on with, as in its directory, if any: an older version's run stays
        without what it did not know, and keeps the neighbours it shuffles as a unit.

    Raises
    ------
    ValueError : a schedule that would have no effect.
    MemoryBudgetError : the budget is too small; the message has the parts and the smallest budget that would do.
    """
    before, edges = before or {}, group_edges(source.chunks.nnz, groups)
    collects = problems[0].setting.method.collects  # in one go
    parts_of_epoch = 1 if collects else _segments(source, len(problems), len(edges))

    def sizes_of_run() -> Sizes:
        sizes = Sizes(source, problems, dtype, edges, in_memory, parts_of_epoch)
        sizes.state += sizes.one_state * keeps_best
        if not decodes and reads > 1:
            sizes.streamed_decoding = 0
        sizes.grows = sizes.grows and (not before or "grown" in before)
        if before and "notes of problems" not in before.get("memory", {}):
            sizes.notes = 0
        sizes.tiled = sizes.tiled and before.get("tiled", not before and reads > LEAST_TOGETHER)
        sizes.repeats = sizes.repeats and reads > 1 and before.get("block_rounds", 1) > 0
        sizes.light_bias = sizes.light_bias and reads > 1 and before.get("light_bias", not before)
        return sizes

    sizes = sizes_of_run()
    settings = problems[0].setting.settings
    schedule = settings.get("schedule", "auto")
    resident = sizes.always() | sizes.resident()
    stays = sum(resident.values()) + SLACK_BYTES if reads > 1 or in_memory else None  # what it takes to keep all rows
    together = None
    if reads > 1 and sizes.gathers and before.get("gathered", not before):
        together = _gathered(sizes_of_run(), memory, stays, before.get("moves", not before))
    if together is not None:
        shape, parts = together
    elif stays is not None and stays <= memory:
        parts = resident
        shape = RESIDENT | {"collected": source.nnz if sizes.collects else 0}
    else:
        shape, parts = _streamed(sizes, memory, reads > 1, stays)
        if before.get("scant", not before) and not shape["sequential"]:
            most = _scant(sizes, shape["set_rows"], shape["set_nnz"], shape["grown"])
            if most is not None:
                usual, sides = (shape, parts), sizes.sides
                sizes.put_rows_on_disk(0)
                sizes.grows = not in_memory and (not before or "grown" in before)
                shape, parts = _streamed(sizes, memory, reads > 1, scant=most)
                if shape["set_rows"] > usual[0]["set_rows"] and shape["set_nnz"] > usual[0]["set_nnz"]:
                    shape["scant"] = True
                else:
                    shape, parts = usual
                    sizes.put_rows_on_disk(sides)
    shape["threads"] = min(threads, shape["threads"]) if threads > 1 else 0
    if schedule != "auto" and (shape["resident"] or reads == 1):
        reason = f"every row fits in memory={format_bytes(memory)}" if shape["resident"] else "there is one read only"
        raise ValueError(f"schedule={schedule!r} has no effect: {reason}")
    gathered = together is not None
    shape["climb_rows"] = len(edges) * shape["set_rows"] if gathered else _room_to_climb(sizes, parts, memory, shape)
    shape["every"] = _sampled(sizes, parts, shape.pop("room", 0), shape["resident"])
    parts["slack"] = SLACK_BYTES
    more = DECODERS * (decoding_bytes(source, whole=True) - sizes.decoding)
    if whole := shape["resident"] and not in_memory and 0 < more <= memory - sum(parts.values()):
        parts["decoding"] += more
    parts["planned"] = sum(parts.values())
    parts["budget"] = memory
    store_bytes = 0 if shape["resident"] or reads == 1 else sizes.data
    redraws = store_bytes > 0 and not shape["sequential"] and sizes.method.by_duals and schedule == "auto"
    if schedule != "auto":
        block_rounds = settings.get("inner_rounds") or BLOCK_ROUNDS[schedule]
    else:
        given = settings.get("inner_rounds") or BLOCK_ROUNDS["auto"]
        block_rounds = before.get("block_rounds", given) if sizes.repeats and not shape["resident"] else 0
    return Plan(
        seed=seed,
        by_row_group=(shares := _shares_row_groups(source.chunks)),
        in_order=shares,
        redrawn=shares and redraws and before.get("redrawn", not before),
        groups=edges,
        segments=1 if shape["resident"] else parts_of_epoch,
        run=before.get("run") or run_length(source, problems[0].setting),
        rounds=_rounds(settings, len(edges), gathered),
        dtype=dtype,
        learners=LEARNERS if threads > 1 and (len(problems) > 1 or sizes.steps_by_sums) else 1,
        parts=sizes.parts,
        store_bytes=store_bytes,
        rows_sides=sizes.sides,
        rows_bytes=sizes.rows_bytes(_most_rows(shape)),
        memory=parts,
        schedule=schedule,
        block_rounds=block_rounds,
        places=problems[0].setting.places,
        gathered=gathered,
        tiled=shape["resident"] and sizes.tiled,
        whole=whole,
        light_bias=_is_light(sizes, shape["resident"], shape["set_rows"]),
        **shape,
    )


def _is_light(sizes: Sizes, resident: bool, set_rows: int) -> bool:
    """Whether the bias is a feature of a small value: where rows stream by of one problem with a working set; in memory
    of all but regression, whose dual variables have either sign."""
    if resident:
        return sizes.light_bias and sizes.setting.loss not in REGRESSION
    return sizes.light_bias and sizes.k == 1 and set_rows > 0


def proves_alone(plan: Plan, problems: int) -> bool:
    """Whether a certificate is made in a read of its own: one problem with a working set takes few reads."""
    return bool(plan.set_rows) and problems == 1 and len(plan.groups) == 1 and plan.schedule == "auto"


def _room_to_climb(sizes: Sizes, parts: dict[str, int], memory: int, shape: dict[str, object]) -> int:
    """Free rows that conjugate gradients may have, in what the budget has left; fills ``parts``."""
    rows, grown = int(CLIMB_OF_SET * _most_rows(shape)), bool(shape.get("grown"))
    if shape["resident"]:
        everything = sizes.group_rows * sizes.fields  # of all classes at once, pairs of a row and a class
        rows = min(everything, max(CLIMB_ROWS, int(CLIMB_SHARE * everything)))
    size = sizes.at_once * rows * BYTES_A_ROW + sizes.climbing(bool(shape["set_rows"]))
    decoding = parts["decoding"] if grown else 0  # nothing is decoded between two reads
    if not (sizes.climbs and rows) or sum(parts.values()) - decoding + SLACK_BYTES + size > memory:
        return 0
    parts["conjugate gradients"] = size
    if grown:
        parts["decoding"] = max(0, decoding - size)
    return rows


def _most_rows(shape: dict[str, Any]) -> int:
    """Of a working set, grown where it grows."""
    return int((shape.get("grown") or [shape["set_rows"]])[0])


def _sampled(sizes: Sizes, parts: dict[str, int], room: int, resident: bool) -> int:
    """Of how many rows one is in products with a Hessian; out of core they are kept in ``room`` bytes: fills
    ``parts``."""
    every = _wanted_sample(sizes, resident)
    if resident or every == 1:
        return every
    most = MOST_SAMPLED if sizes.setting.settings["sample"] is None else every
    while sizes.kept(every) > room and every < most:
        every += 1
    if sizes.kept(every) > room:
        return 1
    parts["kept rows"] = sizes.kept(every)
    return every


def _wanted_sample(sizes: Sizes, resident: bool) -> int:
    """... as asked for, or where nothing was said as is best with memory enough."""
    share = sizes.setting.settings.get("sample", 1.0)
    if share is None:
        return 1 if resident else SAMPLED
    return max(1, round(1 / share))


def _gathered(
    sizes: Sizes, memory: int, stays: int | None, moves: bool
) -> tuple[dict[str, Any], dict[str, int]] | None:
    """The shape of a run whose working sets are solved in one place, and what its parts take; None: it has no room for
    so many rows that this is of use.

    stays : bytes that would do without them where every row stays in memory, or None: it is no way.
    moves : whether steps along the last rounds' moves are taken where there is room.
    """
    wanted, sizes.grows = sizes.setting.settings.get("working_set"), False
    share = GATHERED_SHARE if wanted is None else wanted
    if share < LEAST_GATHERED:
        return None
    share /= max(sizes.shares, default=1.0)
    rows, nnz = _arena(sizes, sizes.data + GATHERED_ROW * sizes.source.n_rows, share, 0)
    together, moving = sizes.gathered(rows, nnz), moves_bytes(sizes.source.n_features, sizes.groups * rows)
    moves = moves and moving <= MOVES_SHARE * memory
    together += moving if moves else 0
    if stays is not None and stays + sizes.working_sets(rows, nnz) + together <= memory:
        parts = sizes.always() | sizes.resident()
        parts["membership"] = sizes.sets * 2 * working_set.member_bytes(sizes.group_rows)
        parts |= {"working set": sizes.working_sets(rows, nnz), "gathered rows": together}
        return RESIDENT | dict(set_rows=rows, set_nnz=nnz, shares=sizes.shares, moves=moves), parts
    try:
        shape, parts = _streamed(sizes, memory - together, True, share=share)
    except MemoryBudgetError:
        return None
    if sizes.sides or shape["set_rows"] < working_set.KEEP * LEAST_GATHERED * sizes.group_rows:
        return None
    parts["gathered rows"] = together
    return shape | {"moves": moves}, parts


def _rounds(settings: dict[str, Any], groups: int, gathered: bool = False) -> int:
    """Most rounds after a read; what groups do more than a few apart from each other saves no epoch (measured)."""
    if "inner_rounds" not in settings or settings.get("working_set") == 0 or settings.get("schedule", "auto") != "auto":
        return 0
    given = settings["inner_rounds"]
    if given is not None:
        return int(given)
    return GATHERED_ROUNDS if gathered else ROUNDS if groups == 1 else ROUNDS_OF_GROUPS


def _looks_together(problems: list[Problem], source: Rows, edges: list[tuple[int, int]]) -> bool:
    """Whether problems look at all rows together: of labels, by a loss that leaves most rows where they are."""
    setting = problems[0].setting
    stuck = setting.loss in BOXED or (setting.loss or "").startswith("squared")
    rounds = _rounds(setting.settings, len(edges)) > 0 and setting.settings.get("schedule", "auto") == "auto"
    small = tile_bytes(source.n_features, 0) <= MOST_TILE
    return problems[0].label is not None and stuck and rounds and small


class Sizes:
    """Bytes of what a run may hold; everything that depends on data and problems and not on the budget.

    Large because every consumer of memory is one number here, and the plan adds them up.
    """

    def __init__(
        self,
        source: Rows,
        problems: list[Problem],
        dtype: str,
        edges: list[tuple[int, int]],
        in_memory: bool,
        segments: int,
    ) -> None:
        self.source, self.setting, self.k = source, problems[0].setting, len(problems)
        self.boxed = all(problem.setting.loss in BOXED for problem in problems)
        self.shares = _shares(problems)
        self.at_once = min(self.k, LEARNERS)
        self.method, self.in_memory = self.setting.method, in_memory
        self.steps_by_sums = self.method.by_steps
        self.collects, self.collected = self.method.collects, self.method.collected
        self.chains = sum(not problem.start for problem in problems)  # problems that are learned at a time
        self.collected_entry = self.collected.entry + (0 if len(edges) == 1 else self.collected.piece)
        self.proves_by_duals = self.method.by_duals
        self.parts = PARTS if self.method.by_sums and self.k == 1 and not self.method.all_classes else 1
        chunks, width, binary = source.chunks, source.index_width, source.binary
        constant = source.row_constant
        self.entry = raw.entry_bytes(source)
        self.data = raw.buffer_bytes(source.n_rows, source.nnz, width, binary, constant)
        self.chunk_rows = int(chunks.rows.max(initial=0))
        self.chunk = raw.buffer_bytes(self.chunk_rows, int(chunks.nnz.max(initial=0)), width, binary, constant)
        self.group_rows = max(int(chunks.rows[a:b].sum()) for a, b in edges)
        self.decoding = self.streamed_decoding = 0 if in_memory else decoding_bytes(source)
        self.grows = not in_memory and bool(source.in_parts.any())
        classes = self.setting.settings["n_classes"] if self.method.all_classes else 1
        self.weights = 8 * (source.n_features + 1) * classes
        self.narrow = np.dtype(dtype).itemsize * (source.n_features + 1) * classes
        self.groups, self.alone = len(edges), len(edges) == 1
        self.sets = self.k * self.groups  # working sets, where all groups are visited by one process
        self.schedule = self.setting.settings.get("schedule", "auto")
        climbs = self.setting.climbs
        enough = _rounds(self.setting.settings, len(edges)) >= PACE
        self.climbs = climbs and self.alone and enough and self.schedule == "auto"
        of_feature = self.setting.settings["bias"] > 0 and not self.method.all_classes
        boxed_rounds = self.method.by_duals and _rounds(self.setting.settings, len(edges)) > 0
        self.light_bias = of_feature and boxed_rounds and self.alone and self.schedule == "auto"
        wants_none = self.setting.settings.get("inner_rounds") == 0 or self.setting.settings.get("working_set")
        smooth = self.method.by_duals and not self.boxed and self.schedule == "auto"
        self.repeats = smooth and self.alone and not wants_none  # each block's rows are gone over several times
        self.notes = max(0, self.k * PROBLEM_BYTES - SLACK_BYTES)  # of few of them the slack has them
        self.tiled = self.alone and self.method.judges and _looks_together(problems, source, edges)
        self.copies = 1
        if not self.alone:  # the start of the epoch, a group's, what two levels of the tree join, and what comes of it
            self.copies = 5 + (len(edges) if segments > 1 else 0) + 2 * bool(self.setting.places)  # wider sums
        settings = {id(problem.setting): problem.setting for problem in problems}.values()
        self.one_state = max(setting.state_bytes(source.n_features, dtype) for setting in settings)
        self.sum_bytes = max(setting.sum_bytes(source.n_features, dtype) for setting in settings)
        self.state = self.one_state * self.copies
        if self.method.by_way and not self.alone:  # the other arrays of all copies are those of the start
            self.state = self.one_state + self.copies * self.sum_bytes
        if not self.alone and (rule := self.setting.rule) is not None and rule.momentum is not None:
            self.state += 2 * self.weights  # the momentum, and how much further it goes
        # of the answer and of what it is written from
        self.model = self.narrow + self.weights
        if self.setting.places:
            slots = self.setting.places * sparse_state.slot_bytes(dtype)
            self.model = model_copies(problems) * (slots + 4 * source.n_features)
        elif self.method.all_classes and source.classes.size > 2:
            plain = self.setting.is_answer(self.setting.shared(1, dtype))  # else the state is written beside it
            answer = self.narrow if plain else self.weights
            self.model = MODEL_COPIES * answer + (0 if plain else self.one_state)
        how = self.method.how
        self.room = 8 * how.room(source.n_features) if isinstance(how, Steps) else 0  # a kernel's own
        self.fields = self.setting.row_numbers  # of a row, in the per-row arrays
        self.sides = 0  # of per-row arrays on disk; 0: they are in memory

    def kept(self, every: int) -> int:
        """Bytes of one row of ``every``, more for chance, with their numbers, per-row values and the problems' views;
        of those of a block on their way; and, of all rows, whether they are kept."""
        n = self.source.n_rows
        row = self.data / max(1, n) + 8 + self.k * (KEPT_VIEW_BYTES + 8 * self.fields)
        return int(ROOM * row * n / every) + 2 * min(self.data, max(BLOCK_BYTES, self.chunk)) // every + n

    def put_rows_on_disk(self, sides: int) -> None:
        """``sides`` : 2 where certificates are made beside the learning, from the arrays as they were."""
        self.sides = sides

    def rows_bytes(self, set_rows: int) -> int:
        """Disk for per-row arrays; ``set_rows`` : of a working set in the mean."""
        if not self.sides:
            return 0
        largest = int(set_rows * max(self.shares, default=1.0))
        return row_files.bytes_of(self.source.n_rows, self.k, self.fields, self.sides, largest, self.groups)

    @property
    def gathers(self) -> bool:
        """Whether the working sets of all groups may be solved in one place: most rows are stuck."""
        settings = self.setting.settings
        by_search = settings.get("mixing") == "line_search" and settings.get("working_set") != 0
        return (
            not self.alone
            and self.method.by_duals
            and self.boxed
            and self.fields == 1
            and by_search
            and self.schedule == "auto"
            and settings.get("inner_rounds") != 0
        )

    def gathered(self, rows: int, nnz: int) -> int:
        """The rows of all of them in one place, with those of a group on their way there."""
        on_their_way = self.working_sets(rows, nnz) // self.groups
        bits = self.k * working_set.member_bytes(self.source.n_rows)
        climbing = self.sets * rows * BYTES_A_ROW + self.weights
        return self.working_sets(rows, nnz) + self.sets * rows * GATHERED_ROW + bits + on_their_way + climbing

    @property
    def set_row(self) -> int:
        """A row of the working set, beside its copy."""
        return SET_ORDER_BYTES + (row_files.waiting_bytes(self.fields, 1 if self.alone else 2) if self.sides else 0)

    def working_sets(self, rows: int, nnz: int) -> int:
        """Arenas of so many rows and entries in the mean, with their orders and keys."""
        source = self.source
        arena = working_set.bytes_of(rows, nnz, source.index_width, source.binary, source.row_constant)
        return self.sets * (arena + rows * self.set_row)

    def always(self) -> dict[str, int]:
        """What a run holds however it goes."""
        parts = {"state": self.k * self.state}
        if self.notes:
            parts["notes of problems"] = self.notes
        if self.source.feature_ids is not None:  # and on their way into the model's file
            parts["numbers of features"] = MODEL_COPIES * self.source.feature_ids.numbers.nbytes
        if self.sides:
            parts["row state"] = self.k * self.source.chunks.rows.size * row_files.chunk_bytes(self.sides)
        elif self.method.keeps_rows:
            row = 8 * self.fields * (1 if self.alone or self.steps_by_sums else 2)  # of several groups, the start's too
            parts["row state"] = self.k * self.source.n_rows * row
        if self.steps_by_sums:  # the best weights, what is at work between two reads, the sums of parts
            parts["certificate"] = self.k * self.narrow + 3 * self.weights
            if self.k > 1:  # the answer of all; of one, what is at work between two reads makes room
                parts["model"] = self.k * self.narrow
            parts["sums"] = (self.parts - 1) * self.sum_bytes + self.parts * self.room
        elif not (self.method.certificate and self.alone):  # there the best weights are it, v makes room to write it
            parts["model"] = self.k * self.model
        return parts

    def collection(self, entries: int) -> dict[str, int]:
        """Of a method that collects columns, so many entries for each problem; of a path one is learned at a time."""
        if not self.collects:
            return {}
        n_columns = min(entries, self.source.n_features)  # one without entries is not collected
        size = self.collected_entry * entries + self.collected.column * n_columns
        return {"columns": self.chains * (size + self.collected.row * self.source.n_rows)}

    def room_for(self, room: int) -> int:
        """Entries that a collection has in so many bytes, beside its rows; each may be a column's only one."""
        each, column, n = self.collected_entry, self.collected.column, self.source.n_features
        room = max(0, room // self.chains)
        return max(room // (each + column), (room - n * column) // each)

    def resident(self) -> dict[str, int]:
        """... with every row in memory, and as columns too where the method collects them."""
        scratch = self.group_rows * VIEW_BYTES
        if self.tiled:
            scratch += tile_bytes(self.source.n_features, self.group_rows) + self.data // FEW
        parts = {"data": 0 if self.in_memory else self.data, "scratch": self.at_once * scratch}
        if self.proves_by_duals:  # of each problem the best weights (w, a group's v)
            if self.alone:  # ... of many that of the answer's, each in place of its state; v of those at work
                parts["certificate"] = (self.k + (self.k == 1)) * self.narrow + self.at_once * self.weights
            else:
                parts["certificate"] = (3 * self.k + 4) * self.weights
        if not self.in_memory:
            parts["decoding"] = DECODERS * self.decoding
        return parts | self.collection(self.source.nnz)

    def streamed(self, has_set: bool, schedule: str) -> dict[str, int]:
        """... with blocks that stream by: all but blocks and working set."""
        parts = {}
        if self.proves_by_duals and not self.alone:  # weights at the start, v, the best weights, w
            parts["certificate"] = self.k * 6 * self.weights
        elif self.proves_by_duals:  # v; beside the learning, also the best weights and the weights at the start, and
            # alpha at the start where rows of a working set move before their block comes
            rows = 0 if self.sides or not has_set else self.source.n_rows * 8 * self.fields
            beside = 2 * self.narrow + rows
            parts["certificate"] = self.k * (self.weights + (0 if self.proves_apart(has_set, schedule) else beside))
        if has_set:
            parts["membership"] = self.sets * working_set.member_bytes(self.group_rows)
        return parts | self.collection(min(self.source.nnz, self.source.n_rows)) | {"decoding": self.streamed_decoding}

    def proves_apart(self, has_set: bool, schedule: str) -> bool:
        """Whether certificates are never made beside the learning (as ``proves_alone``)."""
        return has_set and self.k == 1 and self.alone and schedule == "auto"

    def looks_back(self, again: bool, has_set: bool, schedule: str) -> bool:
        """Whether per-row arrays are asked for as they were at the start of a read: by certificates made beside the
        learning, and by groups that are told afterwards how far they go."""
        if not self.alone:
            return not self.steps_by_sums
        return again and self.proves_by_duals and not self.proves_apart(has_set, schedule)

    @property
    def view(self) -> int:
        """What a row of a block takes beside the block: of problems that learn from it, and of every problem's values
        and their places, where those are on disk."""
        windows = self.k * (8 * self.fields * self.sides + 8) if self.sides else 0
        return self.at_once * VIEW_BYTES + windows

    def climbing(self, has_set: bool) -> int:
        """Sums over features of conjugate gradients: where v of a certificate made alone is idle, no more than that."""
        return 0 if has_set and self.k == 1 else self.at_once * self.weights

    def blocks(self, size: int, buffers: int | None = None) -> int:
        """So many blocks (None: the fewest) of ``size`` bytes, and what a problem needs beside the one it is at."""
        buffers = buffers or self.buffers
        rows = max(self.chunk_rows, int(size / max(1, raw_row_bytes(self.source))) + 1)
        return (buffers + self.joined) * max(size, self.chunk) + rows * self.view

    @property
    def of_its_size(self) -> bool:
        """Whether the schedule has blocks as large as memory allows."""
        return self.schedule in ("fixed", "selective") or self.repeats

    @property
    def buffers(self) -> int:
        """The fewest blocks in memory at a time."""
        return BUFFERS_OF_SIZED if self.of_its_size else BUFFERS

    @property
    def joined(self) -> int:
        """1 where a block is made beside those in memory, and not where one lay before: of the caller's arrays."""
        return int(self.in_memory)

    def largest_block(self, room: int) -> int:
        """The size of which ``blocks`` fit in ``room`` bytes, at least a chunk and at most all rows."""
        view, held = self.view, self.buffers + self.joined
        most = (room - view) / (held + view / max(1, raw_row_bytes(self.source)))
        most = min(most, (room - self.chunk_rows * view) / held)  # rows of a chunk may be shorter than others
        return max(self.chunk, min(self.data, int(most)))


class Streaming(NamedTuple):
    """How blocks go by: threads that decode, a block's bytes, blocks in memory at a time; and what is left, of the
    budget beyond the least, to a working set, to columns or to rows that are kept."""

    readers: int
    size: int
    buffers: int
    room: int


def _streaming(sizes: Sizes, left: int, least_set: int, useful: int, scant: bool = False) -> Streaming:
    """What becomes of the ``left`` bytes that the budget has beyond the least: ``room`` never falls as they grow.

    least_set : bytes of a working set in the least, 0 where there is none; useful : see ``_useful``; scant : as in
    ``Plan``.
    """
    share, most_buffers = (SCANT_BLOCK_SHARE, SCANT_BUFFERS) if scant else (BLOCK_SHARE, MOST_BUFFERS)
    least, second = sizes.blocks(sizes.chunk), sizes.streamed_decoding
    among_others = not sizes.of_its_size and (least_set > 0 or sizes.steps_by_sums)
    if among_others:
        largest = max(1, BLOCK_BYTES // sizes.chunk) * sizes.chunk
        aside = max(int(share * left), left - useful)
        aside = min(aside, second + sizes.blocks(largest, most_buffers) - least)
    elif least_set:  # selective block minimisation
        aside = max(0, min(left, int((1 - CACHE_SHARE) * (left + least + least_set)) - least))
    else:  # nothing else has a use for it
        aside = left
    part = aside if among_others else int(BLOCK_SHARE * aside)  # for the second thread
    readers = DECODERS if 0 < second <= part else 1
    spare = aside - (second if readers == DECODERS else 0 if among_others else part)
    if sizes.repeats:  # nothing else has memory to spare where one is a little larger than planned
        spare -= int(SPARED * spare)
    if sizes.of_its_size:
        return Streaming(readers, sizes.largest_block(least + spare), sizes.buffers, left - aside)
    size, buffers = sizes.chunk, sizes.buffers
    most = BLOCK_BYTES if among_others else MIXED_BYTES if sizes.method.certificate else 0
    while 2 * size <= most and sizes.blocks(2 * size) <= least + spare:
        size *= 2
    if not among_others:
        spare = min(spare, int(BLOCK_SHARE * left))
    while buffers < most_buffers and sizes.blocks(size, buffers + 1) <= least + spare:
        buffers += 1
    return Streaming(readers, size, buffers, left - aside)


def _useful(sizes: Sizes, least_set: int, share: float) -> int:
    """Most bytes beyond the least that a working set of such a ``share`` of the rows, columns or kept rows can use."""
    source, rows = sizes.source, share * sizes.group_rows
    if least_set:
        row = source.nnz / max(1, source.n_rows) * sizes.entry + working_set.ROW_BYTES + 4 + sizes.set_row
        climbing = sizes.at_once * rows * BYTES_A_ROW + sizes.climbing(True) if sizes.climbs else 0
        return max(0, int(sizes.sets * rows * row + climbing) - least_set)
    if sizes.collects:
        ends = source.nnz, min(source.nnz, source.n_rows)
        most, least = (sum(sizes.collection(entries).values()) for entries in ends)
        return most - least
    every = _wanted_sample(sizes, resident=False)
    return sizes.kept(every) if every > 1 else 0


class Scant(NamedTuple):
    """Most rows and entries of a working set that gets all the room there is, before it grows and after."""

    most: tuple[int, int]
    grown: tuple[int, int]


def _scant(sizes: Sizes, rows: int, nnz: int, grown: tuple[int, ...]) -> Scant | None:
    """The most that a working set may get which is usually of so many rows and entries, before and after it has
    ``grown``; None: it gets no more than usual."""
    one = sizes.k == 1 and sizes.alone and sizes.fields == 1 and sizes.boxed and sizes.schedule == "auto"
    if not (one and nnz) or sizes.setting.settings.get("working_set") is not None:
        return None
    most = int(SEQUENTIAL_SHARE * sizes.source.nnz)
    many_rows, many_nnz = _arena(sizes, 10**15, math.inf, _beside(sizes))
    # what a usual one has that is not small any more, which with more memory is not to shrink
    limit = int(most / many_nnz * many_rows) - 1, most
    more = [later - now for later, now in zip(grown or (rows, nnz), (rows, nnz), strict=True)]
    return Scant(limit, (limit[0] + more[0], limit[1] + more[1]))


def _streamed(
    sizes: Sizes,
    memory: int,
    again: bool,
    stays: int | None = None,
    share: float | None = None,
    scant: Scant | None = None,
) -> tuple[dict[str, Any], dict[str, int]]:
    """The shape of a run whose data do not fit, and what its parts take; refuses a budget that is too small.

    again : rows may be looked at more than once. stays : bytes that would do where every row stays in memory, which is
    less where each of many problems has weights at the start of a read and v beside its own (None: it is no way).
    share : most of the rows in a working set (None: as they are best for one process). scant : it gets all the room
    there is, up to this.
    """
    source, setting, k = sizes.source, sizes.setting, sizes.k
    wanted, schedule = setting.settings.get("working_set"), sizes.schedule
    has_set = again and sizes.method.by_duals and (sizes.boxed if wanted is None else wanted > 0)
    if schedule != "auto":
        has_set, wanted = schedule != "fixed", 1.0 if wanted is None else wanted
    least_set = int(max(2 * MB, k * LEAST_SET, sizes.sets * 4 * source.max_row_nnz * sizes.entry)) if has_set else 0
    if share is None:
        share = (SET_SHARE if wanted is None else wanted) / max(sizes.shares, default=1.0)
    parts, least, most = _least(sizes, memory, again, least_set, share, scant is not None)
    if least > memory:
        enough = least if stays is None or schedule != "auto" else min(least, stays)
        raise _too_small(memory, enough, parts | {"blocks": sizes.blocks(sizes.chunk), "working set": least_set})
    way = _streaming(sizes, memory - least, least_set, _useful(sizes, least_set, share), scant is not None)
    if most is not None:
        way = way._replace(size=min(way.size, most.size), room=min(way.room, most.room))
    room = way.room
    if "decoding" in parts:
        parts["decoding"] = way.readers * sizes.streamed_decoding
    parts["blocks"] = sizes.blocks(way.size, way.buffers)
    set_rows = set_nnz = collected = 0
    grown: tuple[int, ...] = ()
    if sizes.collects:
        beside = parts.pop("columns") - sum(sizes.collection(0).values())
        collected = min(source.nnz, sizes.room_for(room + beside))
        parts |= sizes.collection(collected)
    if has_set:
        room_of_sets, beside = least_set + room, _beside(sizes)
        if beside:
            room_of_sets -= sizes.climbing(True)
        set_rows, set_nnz = _arena(sizes, room_of_sets // sizes.sets, share, beside)
        if scant is not None:
            set_rows, set_nnz = map(min, (set_rows, set_nnz), scant.most)
        parts["working set"] = sizes.working_sets(set_rows, set_nnz)
        if sizes.grows and schedule == "auto":
            given_back = max(0, parts["decoding"] - DECODE_BYTES)
            grown = _arena(sizes, (room_of_sets + given_back) // sizes.sets, share, beside)
            if scant is not None:
                grown = tuple(map(min, grown, scant.grown))
            more = sizes.working_sets(*grown) - parts["working set"]
            if more > 0:
                parts["working set"] += more
                parts["decoding"] -= min(more, given_back)
            else:
                grown = ()
    least_share, in_sets = min(sizes.shares, default=1.0), sizes.groups * set_nnz
    shape: dict[str, Any] = dict(
        resident=False,
        sequential=schedule == "cached"
        or sizes.steps_by_sums
        or (
            schedule == "auto"
            and has_set
            and sizes.boxed
            and scant is None
            and least_share * in_sets >= SEQUENTIAL_SHARE * source.nnz
        ),
        block_bytes=way.size,
        buffers=way.buffers,
        set_rows=set_rows,
        set_nnz=set_nnz,
        collected=collected,
        grown=grown,
        shares=sizes.shares,
        threads=way.readers,
        room=room,
    )
    return shape, parts


def _least(
    sizes: Sizes, memory: int, again: bool, least_set: int, share: float, scant: bool = False
) -> tuple[dict[str, int], int, Streaming | None]:
    """What a run takes at least, in parts and in all; where the per-row arrays are on disk, also what comes of the
    smallest budget that has them in memory: as that is not to make a working set smaller, there is to be no more."""
    has_set = least_set > 0

    def needed() -> tuple[dict[str, int], int]:
        parts = sizes.always() | sizes.streamed(has_set, sizes.schedule)
        return parts, sum(parts.values()) + SLACK_BYTES + sizes.blocks(sizes.chunk) + least_set

    parts, least = needed()
    if not scant and (not sizes.fields or max(least, int(parts["row state"] / ROW_SHARE)) <= memory):
        return parts, least, None
    beyond = max(0, int(parts["row state"] / ROW_SHARE) - least)
    most = _streaming(sizes, beyond, least_set, _useful(sizes, least_set, share))
    sizes.put_rows_on_disk(2 if sizes.looks_back(again, has_set, sizes.schedule) else 1)
    if (filed := needed())[1] < least:
        return *filed, None if scant else most
    sizes.put_rows_on_disk(0)
    return parts, least, None


def _shares(problems: list[Problem]) -> tuple[float, ...]:
    """Of the working sets, where values of C differ: with a larger C more rows keep moving, and it takes longer."""
    values = [float(problem.setting.settings.get("C", 1.0)) for problem in problems]
    if len(set(values)) == 1:
        return ()
    claims = [max(value / max(values), LEAST_CLAIM) for value in values]
    return tuple(claim * len(claims) / sum(claims) for claim in claims)


def _beside(sizes: Sizes) -> int:
    """Bytes that are kept free for each row of a working set: with a bias that is not light, conjugate gradients are
    needed."""
    needed = sizes.climbs and sizes.setting.settings["bias"] and not (sizes.light_bias and sizes.k == 1)
    return int(CLIMB_OF_SET * BYTES_A_ROW) if needed else 0


def _arena(sizes: Sizes, room: int, share: float, beside: int) -> tuple[int, int]:
    """Rows and entries of a group's working set that takes at most ``room`` bytes and holds at most ``share`` of the
    rows.

    beside : bytes that are kept free for each of its rows.
    """
    source = sizes.source
    row_bytes = working_set.ROW_BYTES + (4 if source.row_constant else 0) + beside
    length = source.nnz / max(1, source.n_rows)
    mean_row = length * sizes.entry + row_bytes
    room = int(min(room - 8, share * sizes.group_rows * mean_row))
    for mean in (mean_row, mean_row + sizes.set_row):  # of short rows, orders and keys are a large part
        rows = 0.95 / mean  # a byte; rows shorter than the mean leave some of the entries unused
        nnz = (1 - rows * (row_bytes + sizes.set_row)) / sizes.entry
        if nnz >= LEAST_LENGTH * length * rows:
            break
    return max(16, int(rows * room)), max(1, int(nnz * room))  # 1: where rows have no entries


def _too_small(memory: int, least: int, parts: dict[str, int]) -> MemoryBudgetError:
    listed = ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items() if size)
    return MemoryBudgetError(
        f"memory={format_bytes(memory)} is too small: {listed}; memory={enough_text(least)} would do"
    )


def enough_text(least: int) -> str:
    """The least budget of three figures, in MB or more, that is not below ``least`` bytes."""
    step = MB
    while -(-least // step) >= 1000:
        step *= 10
    return format_bytes(-(-least // step) * step)


def decoding_bytes(source: Rows, whole: bool = False) -> int:
    """Most that a thread takes to decode a row group; of a large one what is at work, unless all are ``whole``."""
    chunks, width, binary, apart = source.chunks, source.index_width, source.binary, source.in_parts

    def largest(rows: np.ndarray, nnz: np.ndarray) -> int:  # values are decoded
        return int(raw.buffer_bytes(int(rows.max(initial=0)), int(nnz.max(initial=0)), width, binary))

    row_group = largest(chunks.rows[~apart], chunks.nnz[~apart])
    left_out = largest(*(np.array([n]) for n in source.whole_group))  # with rows left out once they are decoded
    in_place = source.written_here and not source.row_constant
    factor = OWN_FACTOR if in_place else DECODE_FACTOR
    needed = factor * row_group
    if left_out > row_group:
        needed = max(needed, (LEFT_OUT_FACTOR if source.written_here else factor) * left_out)
    if whole and apart.any():
        needed = max(needed, factor * largest(*(np.array([n]) for n in source.largest_group)))
    elif apart.any():
        needed = max(needed, PARTS_FACTOR * PART_BYTES + CUT_FACTOR * largest(chunks.rows[apart], chunks.nnz[apart]))
    return int(DECODE_BYTES + needed)


def _shares_row_groups(chunks: Chunks) -> bool:
    """Whether a row group was cut into several chunks."""
    places = {*zip(chunks.file.tolist(), chunks.row_group.tolist(), strict=True)}
    return len(places) < int(chunks.file.size)


def _segments(source: Rows, problems: int, groups: int) -> int:
    """As many parts of an epoch as keep each to about ``SEGMENT_SECONDS``, by a rate that is written down here."""
    predicted = source.nnz * problems * SECONDS_A_NONZERO
    units = max(1, source.n_chunks // groups)
    return min(units, max(1, round(predicted / SEGMENT_SECONDS)))


def raw_row_bytes(source: Rows) -> float:
    """Mean bytes in memory of a row that can be learned from."""
    rows, nnz = source.learnable
    return float(nnz / max(1, rows) * raw.entry_bytes(source) + raw.ROW_BYTES)


def run_length(source: Rows, setting: Setting) -> int:
    """Neighbours to shuffle as a unit: 1 (a full permutation) for long rows and for data a cache holds.

    Rows of a run are always near each other in time: on features that most rows have, such as the bias, their dual
    variables come to agree among themselves before other runs have their say. Rounds over all rows in memory to a gap
    of 0.001, 2,000,000 rows like text with a bias, hinge: 24 in runs of 1, 49 of 8, 262 of 98; without a bias 10 each,
    and a run of 8, which has one cache line of each per-row array, saves a quarter of the time of a full permutation.
    """
    row, rows = raw_row_bytes(source), source.learnable[0]
    if row * rows <= SMALL_BYTES:
        return 1
    most = MOST_RUN
    if isinstance(setting.method.how, Dual):
        most = 1 if setting.settings["bias"] else DUAL_RUN
    return max(1, min(most, int(RUN_BYTES / row), rows // UNITS))


def group_edges(nnz: np.ndarray, groups: int) -> list[tuple[int, int]]:
    """Cut the chunks into ``groups`` runs of about as many non-zeros; ValueError when there are fewer chunks."""
    if groups > nnz.size:
        raise ValueError(
            f"groups={groups} is too many: the data have {plural(nnz.size, 'chunk')}, and each group needs one; take "
            "fewer groups, or write smaller chunks (bigclf convert --chunk-nnz)"
        )
    total = np.concatenate([[0], np.cumsum(nnz)])
    edges = np.searchsorted(total, np.linspace(0, total[-1], groups + 1)[1:-1])
    marks = [0]
    for number, edge in enumerate(edges.tolist()):  # at least a chunk for each, before it and after it
        marks.append(min(max(edge, marks[-1] + 1), nnz.size - (groups - 1 - number)))
    marks.append(int(nnz.size))
    return list(zip(marks[:-1], marks[1:], strict=True))


def units_of(plan: Plan, chunks: Chunks, bytes_of_chunk: np.ndarray, group: int, epoch: int) -> list[np.ndarray]:
    """The blocks of a group's epoch, each an array of chunk numbers: a function of the plan and its arguments only."""
    first, last = plan.groups[group]
    order = np.arange(first, last)
    once = plan.schedule in ("fixed", "selective")
    if not plan.sequential:
        order = _drawn(plan, chunks, first, last, group, 0 if once else epoch)
    ends = np.cumsum(bytes_of_chunk[order])
    units, start = [], 0
    while start < order.size:
        taken = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, taken + plan.block_bytes, side="right")))
        units.append(order[start:stop])
        start = stop
    if not once:
        return units
    turns = np.arange(len(units))  # the blocks are always the same, only their order is drawn
    shuffle(turns, 0, turns.size, random_state(plan.seed, 1, epoch, group))
    return [units[turn] for turn in turns]


def _drawn(plan: Plan, chunks: Chunks, first: int, last: int, group: int, epoch: int) -> np.ndarray:
    """A random order of the chunks; those that share a row group stay together where it is to be decoded once."""
    state = random_state(plan.seed, 1, epoch, group)
    order = np.arange(first, last)
    shuffle(order, 0, order.size, state)
    if not plan.by_row_group or (plan.redrawn and epoch > 1):
        return order
    keys = (chunks.file[first:last].astype(np.int64) << 32) + chunks.row_group[first:last]
    ranks: dict[int, int] = {}
    for key in keys[order - first].tolist():
        ranks.setdefault(key, len(ranks))
    rank = np.array([ranks[key] for key in keys[order - first].tolist()])
    return order[np.lexsort((order, rank)) if plan.in_order else np.argsort(rank, kind="stable")]


def segment_units(plan: Plan, units: list[np.ndarray], segment: int) -> list[np.ndarray]:
    """The part of an epoch's blocks that belongs to a segment."""
    edges = np.linspace(0, len(units), plan.segments + 1).round().astype(int)
    return units[edges[segment] : edges[segment + 1]]
