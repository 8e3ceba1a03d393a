"""What a run would take: memory, disk, bytes over the network and seconds, said before anything of it is run.

Memory, disk and bytes follow from the very plan that a run writes down. Seconds follow from rates that are measured on
this machine: a trial learns from the first few chunks of the data, twice, from few and from more of them, which tells
what an entry costs, what an epoch costs besides, and how many passes the method takes. Workers share what one process
takes. Where they are to be processes of this machine, other trials have them, which tell what visits and joining them
cost while all are at work, on the cores that there are; elsewhere it is what moves. Rates are kept in the user's cache,
with the date and the type of processor, and used again for the same data, method and budget.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import psutil

from bigclf import files
from bigclf.api.fit import conducted
from bigclf.api.plan_of_scoring import Scored, Scoring
from bigclf.api.plan_of_sweep import Points, of_classes, of_grid, points_of, with_points
from bigclf.api.scaling import Outlook, as_gathered, lines_of, worker_counts
from bigclf.api.turns import turns_of
from bigclf.cluster.book import Patience
from bigclf.cluster.engine import FILE_BYTES
from bigclf.compiled.jit import cpu_type, sources_digest
from bigclf.conversion.tables.reading import are_raw
from bigclf.data.bad_rows import MOST_BAD
from bigclf.data.dataset import Dataset
from bigclf.errors import RunError
from bigclf.features.encode import is_columns
from bigclf.files.caches import cache_directory
from bigclf.limits import cores, memory_limit
from bigclf.maths.deltas import place_dtype
from bigclf.maths.mixing import FAN
from bigclf.model.model import as_model, is_stored
from bigclf.request.auto import BY_SUMS, SUMS_READS, Asked, decades_of, products
from bigclf.request.door import Shape, open_rows
from bigclf.request.options import documented
from bigclf.request.prepare import asked_of, default_epochs, prepare, with_method
from bigclf.request.request import Request, RunOptions, asked, of_one_method
from bigclf.request.spreading import BANDWIDTH, GATHERED_PASSES, ONE_PASSES, SHIPPED_SHARE, design
from bigclf.request.workers import linked
from bigclf.stream.raw_store import chunk_sizes, entry_bytes
from bigclf.training.blend import Blend
from bigclf.training.engines import LocalEngine
from bigclf.training.executor import CACHE_SHARE, is_frugal
from bigclf.training.plan import DECODERS, Plan, decoding_bytes, group_edges, settle
from bigclf.training.problems import Problem
from bigclf.training.roles.gathered import GatheredConductor
from bigclf.training.roles.steps import keeps_rows
from bigclf.training.sampling import ROOM
from bigclf.training.visit import Part

if TYPE_CHECKING:
    from bigclf.cluster.link import Link
    from bigclf.data.rows import Rows
    from bigclf.methods import Setting
    from bigclf.training.run import Run


SAMPLE_NNZ = 8_000_000  # entries that the larger trial learns from, at most
SAMPLE_SHARE = 1 / 4  # ... and of the data
SMALLER = 4  # times fewer chunks in the smaller one
TIMES = 3  # that a trial is made: what compiled a kernel, or what other programs held up, took longer ...
HELD_UP = 1.6  # ... or more than that times the least; new memory costs up to half as much again (measured)
EPOCHS, SECONDS = 10, 1.5  # most of a trial: epochs of an online method, seconds
BESIDE_ENTRIES = 1e9  # visited in one that tells how much more another problem takes: no other program changes it
# Most of one on a cluster: epochs, seconds after which no other one begins, groups, processes
ROUNDS, ROUNDS_SECONDS, MOST_GROUPS, MOST_HERE = 20, 10.0, 64, 16
DISK_BYTES = 64_000_000  # read from disk to see how fast it is
BUNDLES = 4  # as the engine of a cluster has it
SPREAD_BYTES = 256_000_000  # as its tree has it
VISIT_SECONDS = 0.02  # of a task's way to a worker and back
CHECKPOINTS = 2
DECODING_TAKEN = 0.5  # of one thread's room for it, which is for the worst case, whatever the threads: what runs took
WORKER_COPIES = 3  # of a state that a worker had: the epoch's start, its group's, and what travels (jobs/plan_check.py)
CHOSEN_BYTES, SOLVED_BYTES = 32, 16  # of a row of a gathered set, to where it is solved and back
DRIVER_COPIES = 4  # of a state: present, before, what comes together, and what travels
MEMBER_BYTES = 24  # of a row of the working set, as it travels
FIGURES = 8 * 16  # bytes of an answer's counts
MOST_GROWTH = 0.5  # exponent of passes by rows
TRIAL_GROUPS = 4  # of a trial of several groups, at most
DIAGONALS = 0.07  # of reads by sums that bring the Hessian's diagonal too


class Intent(NamedTuple):
    """What would be run: source, problems, plan, tolerance; ``footing`` : what ``fresh_process`` asks for; ``here`` :
    processes of this machine that are to be the workers of its groups, or 0; ``dealt`` : workers share the problems;
    ``points`` : a sweep's, or classes one against the rest; ``starts`` : processes of this machine to be started."""

    source: Dataset
    problems: list[Problem]
    plan: Plan
    tol: float | None
    footing: dict[str, object]
    here: int
    dealt: bool = False
    points: Points | None = None
    starts: int = 0


class Trial(NamedTuple):
    """Of learning from the first chunks: entries, seconds of the first epoch and of a later one in the mean, bytes of a
    raw store for all, epochs until the tolerance was met (0: it was not), share of the entries that came to a gathered
    set; passes over all rows that all visits come to, and the share of the reads after which row state goes on."""

    entries: int
    first: float
    later: float
    store: int
    passes: int
    shipped: float
    work: float = 0.0
    kept: float = 0.0


class Crew(NamedTuple):
    """What processes of this machine took, all at work at once.

    Attributes
    ----------
    decode, visit : seconds an entry of a group, of the first visit besides, and of a later one; fixed : of a visit
        besides. exchange : seconds of a round beside its visits; growth : exponent by which they grow with the entries.
    moved, entries : bytes of that round, and entries of all groups.
    """

    decode: float
    visit: float
    fixed: float
    exchange: float
    growth: float
    moved: float
    entries: float

    def beside(self, entries: int, moved: float, gathered: bool) -> float:
        """Seconds of a round of so many entries beside its visits: of a gathered set they grow with the rows, else with
        what moves."""
        ratio = (entries / self.entries) ** self.growth if gathered else moved / self.moved
        return self.exchange * max(1.0, ratio)


class Told(NamedTuple):
    """Of a trial on processes: entries, seconds of the first round and of a later one in the mean, of a visit likewise
    (``began``, ``visit``), bytes moved in a round."""

    entries: int
    first: float
    later: float
    began: float
    visit: float
    moved: float


class Rates(NamedTuple):
    """What was measured.

    Attributes
    ----------
    first, later : seconds an entry, in the read that decodes the shards and in later ones; fixed : seconds an epoch and
        group besides. mix : seconds to combine a group's answer. disk : bytes a second past the page cache.
    crew : what processes of this machine take, as ``Crew`` has it (None: there are none).
    store_bytes : what the raw store of all data takes. entries : that the larger trial learned from.
    touched, growth : distinct features among ``entries``, and the exponent by which they grow with more.
    base, start : bytes and seconds that a process takes before its first row; kernels : of these, seconds to load them;
        begin : seconds until processes of this machine are there to work.
    measured, cpu, load : when, on what, and how many processes wanted a core meanwhile.
    passes, longer : epochs until the larger trial met its tolerance (0: it did not), and the exponent by which they
        grow with the rows; groups : of that trial; shipped : of its entries, as often as they came to a gathered set;
        kept : of its reads, those after which row state goes on and cannot be made anew. works : of problems that were
        tried beside it, and of this one first, passes over all rows (0: they did not end).
    """

    first: float
    later: float
    fixed: float
    mix: float
    disk: float
    store_bytes: int
    entries: int
    touched: int
    growth: float
    base: int
    start: float
    measured: str
    cpu: str
    load: float
    passes: float = 0.0
    longer: float = 0.0
    groups: int = 1
    shipped: float = SHIPPED_SHARE
    crew: Sequence[float] | None = None
    kernels: float = 0.0
    kept: float = 0.0
    works: Sequence[float] = ()
    begin: float = 0.0

    def passes_of(self, nnz: int) -> float | None:
        """Epochs that so many entries take."""
        return round(self.passes * max(1.0, nnz / max(1, self.entries)) ** self.longer) if self.passes else None


@documented("plan")
def forecast(data: object, y: object = None, **given: object) -> dict[str, Any]:
    """Predict what ``fit`` with these arguments takes.

    Parameters
    ----------
    {options}

    Returns
    -------
    dict of plain values : for several numbers of workers {table: a row for each, rates, bandwidth}, else memory
        {base, planned, total: at most, likely, parts} of a process that makes visits, disk
        {raw_store, row_state, checkpoints}, bytes_read {shards, epoch} (all groups: on disk, in memory), network
        {up, down, epoch} (bytes of an epoch from and to workers), seconds {first, later} (an epoch; of a sweep one of
        all points, and ``after`` these the best on all rows; ``start`` : until processes of this machine are there,
        before all of them; ``total`` : of all epochs and after, None where nobody knows how many), rates, plan, and
        ``turns`` where labels are learned in several: all other figures are then of the first; ``work``, of several
        problems the passes over all rows that their visits come to. With a ``model``
        {model, data, bandwidth, scoring: a ``Line`` of ``plan_of_scoring`` for one process and each number of workers}.

    Raises
    ------
    TypeError, ValueError, MemoryBudgetError, DataError : as ``fit``.
    """
    request = asked("plan", data, y, given)
    if request["model"] is not None:
        return dict(_scored(request))
    request = _as_shards(of_grid(request) if request["grid"] else of_one_method(request.having(folds=0)))
    counts = worker_counts(request["workers"])
    several = len(counts) > 1
    if several:
        request = request.having(bandwidth=request["bandwidth"] or int(BANDWIDTH))
    one = _forecast(request.having(workers=1 if several else counts[0]))
    rates = Rates(**one["rates"])
    told = [one]
    for n in sorted({*counts} - {1}) if several else ():
        told.append(_forecast(request.having(workers=n), rates))
        rates = Rates(**told[-1]["rates"])
    learned = rates.later * one["data"]["nnz"]
    outlooks = [
        Outlook(each["workers"], each["groups"], each["design"], each["passes"], each["seconds"]["first"],
                each["seconds"]["later"], each["network"]["epoch"], each["network"]["once"], each["memory"]["total"],
                each["driver"], each["seconds"].get("after", 0.0))
        for each in told
    ]  # fmt: skip
    outlooks = [as_gathered(each, learned, outlooks[0].passes if several else None) for each in outlooks]
    if not several:
        return one | {"seconds": one["seconds"] | {"total": outlooks[0].seconds}}
    shared = {name: one[name] for name in ("algo", "data", "rates")}
    return shared | {"bandwidth": request["bandwidth"], "table": lines_of(outlooks)}


def _as_shards(request: Request) -> Request:
    """With raw files as shards of the cache, which ``fit`` takes too."""
    if not is_stored(request.data) or isinstance(request.data, Dataset):
        return request
    with open_rows(request) as (_, opened):
        return opened.having(
            y=None, features=None, format=None, hash_bits=None, on_bad_rows="error", max_bad_fraction=MOST_BAD
        )


def _scored(request: Request) -> Scored:
    """What scoring the rows with a model takes."""
    data, held = request.data, as_model(request["model"])
    if not is_stored(data):
        raise TypeError("a plan is for shards: convert the rows first")
    if not isinstance(data, Dataset) and are_raw(data):
        how = " --features-of MODEL" if is_columns(held.features) else ""
        raise TypeError(f"a plan of evaluating and predicting is for shards: run `bigclf convert DATA OUT{how}` first")
    scoring = Scoring(held, data, request["memory"], request["bandwidth"])
    return scoring.forecast(worker_counts(request["workers"]))


def _forecast(request: Request, known: Rates | None = None) -> dict[str, Any]:
    """Of one number of workers; ``known`` : what was measured in one process already."""
    workers = request["workers"] or 1
    threads = request["threads"] or (1 if workers > 1 else 2)
    local_dir = request["local_dir"] if workers == 1 else None  # workers of a cluster decode for themselves
    with open_rows(request.having(threads=threads, local_dir=local_dir)) as (found, request):
        choose = with_points if request.verb == "sweep" else with_method
        request = request if request.families else choose(request, found.counts())
        (options,), setting = request.check(), request.at_first()[0][0]
        prepared = prepare(request, found, groups=workers)
    source, groups, method = prepared.source, prepared.groups, setting.method
    if not isinstance(source, Dataset):
        raise TypeError("a plan is for shards: convert the rows first")
    source.tell(source.lost)
    tol = options["tol"]
    most = options["epochs"] or default_epochs(method, source.learnable[0])
    shape = prepared.shape | {"reads": most + (tol is not None)}
    turns, points = 1, None
    if request.verb == "sweep":
        shape["reads"] += 1
        points = points_of(request, prepared, options, lambda some: settle(source, some, **shape))
        problems, plan = points.problems, points.plan
    elif source.sets is None:
        everything = prepared.problems(request["memory"])
        problems, plan = settle(source, everything, **shape)
    else:
        everything = prepared.problems(request["memory"])
        parts = turns_of(everything, lambda some: settle(source, some, **shape))
        (problems, plan), turns = parts[0], len(parts)
    mixing = request["mixing"] if groups > 1 else None
    named = method.name, request["loss"], request["penalty"], request["bias"], dict(request.params), mixing, groups
    footing: dict[str, Any] = dict(
        named=[*named], width=source.index_width, dtype=request["dtype"], worker=workers > 1,
        classes=0 if source.classes is None else int(source.classes.size),
    )  # fmt: skip
    dealt = workers > 1 and len(plan.groups) == 1 and len(problems) > 1
    here = min(workers, groups, MOST_HERE) if min(workers, groups) > 1 and request["bandwidth"] is None else 0
    starts = min(workers, MOST_HERE) if workers > 1 and request["bandwidth"] is None else 0
    intent = Intent(source, problems, plan, tol, footing, here, dealt, points, starts)
    alone, tried = intent, setting
    if points is None and len(problems) > 1 and method.by_duals and plan.resident and len(plan.groups) == 1:
        intent = intent._replace(points=(points := of_classes(problems, plan)))
    if points is not None:  # one of its problems tells of all
        one, its = settle(source, [points.one], **shape)
        alone = intent._replace(problems=one, plan=its, here=0, dealt=False, points=points)
        tried = points.one.setting
    rates = _rates(alone, request["fresh"]) if known is None else _known(alone, known)
    if points is not None:
        intent = intent._replace(points=(points := points.weighed(rates.works)))
    shape_of = Shape(source.n_rows, source.n_features, source.nnz, square=_square(source))
    network = _network(intent, workers, rates, request["run_dir"])
    passes = _passes(alone, rates, asked_of(request, tried, shape_of, groups), most)
    return {
        "algo": method.name,
        **({"chosen": request.chosen} if request.chosen else {}),
        "data": {"rows": source.n_rows, "nnz": source.nnz, **_occurring(source)},
        "groups": groups,
        "workers": workers,
        "memory": _memory(intent, rates.base, workers),
        "disk": _disk(source, problems, plan, rates),
        "bytes_read": {"shards": sum(mark.size for mark in source.fingerprints), "epoch": _raw_bytes(source)},
        "network": network,
        "seconds": _seconds(intent, workers, rates, network, request["bandwidth"], passes),
        "driver": _driver(intent, rates.base, workers),
        "design": design(method, setting.loss, len(plan.groups), plan.gathered, dealt),
        "passes": passes,
        "rates": rates._asdict(),
        "plan": plan.as_json(),
        **({"turns": turns} if turns > 1 else {}),
        **({"work": points.load * rates.works[0]} if points is not None and rates.works else {}),
    }


# What follows from the plan


def _memory(intent: Intent, base: int, workers: int) -> dict[str, object]:
    """Of a process that makes visits; one of several holds the rows, row state and working sets of its own groups
    alone. What is planned for and seldom taken is not in what is likely."""
    source, problems, plan, *_ = intent
    parts = {name: size for name, size in plan.memory.items() if name not in ("planned", "budget") and size}
    share = math.ceil(len(plan.groups) / min(workers, len(plan.groups))) / len(plan.groups)
    for name in ("data", "row state", "working set", "membership"):
        if name in parts:
            parts[name] = int(share * parts[name])
    if plan.resident and "decoding" in parts:  # room is made for two that decode, whatever the threads
        parts["decoding"] = parts["decoding"] * max(1, plan.threads) // DECODERS
    method = problems[0].setting.method
    if "model" in parts and method.all_classes and not plan.places:  # the writer takes the answer's arrays as they are
        classes = problems[0].setting.settings["n_classes"]
        parts["model"] -= np.dtype(plan.dtype).itemsize * (source.n_features + 1) * classes
    planned = sum(parts.values())
    likely = base + planned - parts.get("decoding", 0) - parts.get("kept rows", 0)
    decoding, kept = int(DECODING_TAKEN * decoding_bytes(source)), int(parts.get("kept rows", 0) / ROOM)
    if plan.grown:  # rows of the working set come where rows were decoded before
        decoding = max(0, decoding - int(parts["working set"] * (1 - plan.set_nnz / plan.grown[1])))
    apart = problems[0].setting.settings.get("start", 0) > 0 and is_frugal(plan)  # rows are kept once all are decoded
    likely += max(decoding, kept) if apart else decoding + kept
    if workers > 1:
        state = len(problems) * problems[0].setting.state_bytes(source.n_features, plan.dtype)
        likely -= max(0, parts["state"] - WORKER_COPIES * state)
    return {"base": base, "planned": planned, "total": base + planned, "likely": likely, "parts": parts}


def _disk(source: Rows, problems: list[Problem], plan: Plan, rates: Rates) -> dict[str, int]:
    """Bytes: a store for all groups, though on a cluster each machine keeps that of the groups it visits."""
    rows = 8 * source.n_rows * problems[0].setting.row_numbers * len(problems)
    state = len(problems) * problems[0].setting.state_bytes(source.n_features, plan.dtype)
    kept = state if problems[0].setting.method.certificate else 0  # the weights that were certified
    return {
        "raw_store": rates.store_bytes if plan.store_bytes else 0,
        "row_state": plan.rows_bytes,
        "checkpoints": CHECKPOINTS * (state + kept + rows),
    }


def _raw_bytes(source: Rows) -> int:
    """Of all rows as blocks."""
    return int(chunk_sizes(source).sum())


def _network(intent: Intent, workers: int, rates: Rates, run_dir: bool) -> dict[str, int]:
    """Bytes of an epoch, from workers and to them, and once in a run."""
    source, problems, plan, tol, *_ = intent
    if workers == 1:
        return {"up": 0, "down": 0, "epoch": 0, "once": 0}
    setting, n_groups = problems[0].setting, len(plan.groups)
    keeps = setting.method.keeps_rows
    alone = plan.segments == 1 and not keeps and n_groups >= BUNDLES * FAN * workers
    units = -(-n_groups // FAN) if alone else n_groups
    length = source.n_features + 1
    if setting.method.by_way and not setting.method.all_classes:
        up, down = (_vector(_features(source.nnz / n, source, rates), length) for n in (units, 1))
        up, down = units * (FIGURES + (1 + DIAGONALS) * up), min(workers, units) * (FIGURES + down)
        if _rows_travel(intent, run_dir):  # what a row keeps, after each read that cannot make it anew
            up += rates.kept * 8 * source.n_rows * setting.row_numbers
        up, down = len(problems) * up, len(problems) * down
        return {"up": int(up), "down": int(down), "epoch": int(up + down), "once": 0}
    row = setting.state_bytes(length + 1, plan.dtype) - setting.state_bytes(length, plan.dtype)
    rest = setting.state_bytes(source.n_features, plan.dtype) - row * length
    pieces, came = _moved(n_groups, units, workers, len(problems) * (row * length + rest)), 0.0
    if pieces < units:  # workers join what groups came to, and the driver gets what that makes
        came = _travels(_features(source.nnz, source, rates), length, row, rest)
    up = units * FIGURES + pieces * _travels(_features(source.nnz / pieces, source, rates), length, row, rest) + came
    down = _travels(_features(source.nnz, source, rates), length, row, rest)
    down = min(workers, units) * min(down, (row - _counts_of(setting, plan)) * length + rest)
    if tol is not None and setting.method.by_duals:  # a certificate is summed up beside the learning
        up += pieces * _travels(_features(source.nnz / pieces, source, rates), length, 8, 0)
        up += _travels(_features(source.nnz, source, rates), length, 8, 0) * (pieces < units)
    if keeps and (intent.dealt or _rows_travel(intent, run_dir)):
        members = min(plan.grown[0] if plan.grown else plan.set_rows, source.n_rows)
        up += 8 * source.n_rows * setting.row_numbers + MEMBER_BYTES * n_groups * members
        up += CHOSEN_BYTES * min(n_groups * members, source.n_rows) * plan.gathered
        down += SOLVED_BYTES * min(n_groups * members, source.n_rows) * plan.gathered
    if intent.dealt:  # whoever learns a problem has its state
        down = down if setting.method.by_steps else 0
    once = rates.shipped * source.nnz * entry_bytes(source) * plan.gathered  # rows that enter the set
    up, down, once = len(problems) * up, len(problems) * down, len(problems) * once
    return {"up": int(up), "down": int(down), "epoch": int(up + down), "once": int(once)}


def _counts_of(setting: Setting, plan: Plan) -> int:
    """Bytes a feature of what a whole state travels without: arrays that count what an epoch adds to them."""
    small, large = (setting.shared(n, plan.dtype) for n in (1, 2))
    names = () if setting.rule is None else setting.rule.counts
    return sum(getattr(large, name).nbytes - getattr(small, name).nbytes for name in names)


def _rows_travel(intent: Intent, run_dir: bool) -> bool:
    """Whether the row state of groups travels between workers and driver, and not through files of a directory."""
    chunks, setting = intent.source.chunks, intent.problems[0].setting
    rows = max(int(chunks.rows[a:b].sum()) for a, b in intent.plan.groups)
    return not run_dir or rows * 8 * setting.row_numbers * len(intent.problems) <= FILE_BYTES


def _moved(groups: int, units: int, workers: int, state: int) -> float:
    """States that go from one process to another until all are joined, but for the last one (``cluster.tree``)."""
    if groups * state <= SPREAD_BYTES:
        return units
    joined = units if units < groups or groups < FAN * workers else -(-groups // FAN)
    return (joined if joined < 2 * workers else workers + joined / FAN) * (1 - 1 / workers)


def _driver(intent: Intent, base: int, workers: int) -> int:
    """Bytes of the process that drives the run, about: interpreter, states, and of rows what it keeps."""
    source, problems, plan, *_ = intent
    setting = problems[0].setting
    if workers == 1:
        return base + plan.memory["planned"]
    state = len(problems) * setting.state_bytes(source.n_features, plan.dtype)
    rows = 2 * 8 * source.n_rows * setting.row_numbers * len(problems) if setting.method.keeps_rows else 0
    return int(base + DRIVER_COPIES * state + rows + plan.memory.get("gathered rows", 0))


def _passes(intent: Intent, rates: Rates, asked: Asked, most: int) -> float | None:
    """Epochs that it takes: as the trials did; None where that is not known, as of groups that stay apart."""
    method, plan = intent.problems[0].setting.method, intent.plan
    if not method.certificate:
        return float(most)
    apart = method.by_duals and len(plan.groups) > 1 and not plan.gathered
    if not apart and (tried := rates.passes_of(intent.source.nnz)) is not None:
        return min(float(most), tried)
    if method.name == "newton":
        return round(products(asked) * max(1.0, asked.C) ** 0.25)
    if method.name == BY_SUMS:
        return round(SUMS_READS * decades_of(asked))
    if method.name != "dcd" or (len(plan.groups) > 1 and not plan.gathered):
        return None
    return round((ONE_PASSES if len(plan.groups) == 1 else GATHERED_PASSES) * decades_of(asked))


def _square(source: Dataset) -> float:
    """The mean of ||x||^2 in the first rows."""
    first = next(iter(source.blocks()), None)
    return 0.0 if first is None else float(np.mean(first.norms))


def _travels(features: float, length: int, row: int, rest: int) -> float:
    """Bytes of a state as it travels: changes alone where they are less than a third (``bigclf.maths.deltas``)."""
    if 3 * features >= length:
        return length * row + rest
    return features * ((4 if length <= 2**32 else 8) + row) + rest


def _vector(features: float, length: int) -> float:
    """Bytes of a vector for a sum as it travels: with its places where less than half of it is not 0."""
    return 8.0 * length if 2 * features >= length else features * (8 + np.dtype(place_dtype(length)).itemsize)


def _features(entries: float, source: Rows, rates: Rates) -> float:
    """Distinct features among so many entries: they grow by a power of them (Heaps' law)."""
    return float(min(source.n_features, entries, rates.touched * (entries / max(1, rates.entries)) ** rates.growth))


def _seconds(
    intent: Intent, workers: int, rates: Rates, network: dict[str, int], bandwidth: float | None,
    passes: float | None,
) -> dict[str, float]:  # fmt: skip
    """Seconds of the first epoch, which decodes, and of a later one; of a sweep also of what comes after the run."""
    source, plan, share = intent.source, intent.plan, 1.0
    if intent.points is not None:
        at_once = workers if intent.dealt else min(plan.learners, cores())
        share = intent.points.load * intent.points.share(at_once)
    elif intent.dealt:  # each decodes all rows, and learns from them its share of the problems
        share = math.ceil(len(intent.problems) / workers) / len(intent.problems)
    at_once = min(workers, len(plan.groups)) if bandwidth is not None else min(workers, len(plan.groups), cores())
    turns = math.ceil(len(plan.groups) / at_once)
    entries = max(int(source.chunks.nnz[a:b].sum()) for a, b in plan.groups) * turns
    fixed = share * rates.fixed * turns
    if bandwidth is not None and workers > 1:
        fixed += network["epoch"] / bandwidth + len(plan.groups) * rates.mix + turns * VISIT_SECONDS
    later, decode = share * rates.later * entries, max(0.0, rates.first - rates.later) * entries
    if rates.crew and intent.here:
        crew = Crew(*rates.crew)
        turns = math.ceil(len(plan.groups) / min(workers, len(plan.groups)))
        entries = max(int(source.chunks.nnz[a:b].sum()) for a, b in plan.groups) * turns
        fixed = turns * crew.fixed + crew.beside(source.nnz, network["epoch"], plan.gathered)
        later, decode = crew.visit * entries, crew.decode * entries
    size = rates.store_bytes if plan.store_bytes else 0
    if size > CACHE_SHARE * memory_limit()[0]:  # it is not in the page cache when it is read again
        later = max(later, size / rates.disk / at_once)
    beginning = rates.start if workers > 1 else rates.kernels  # a worker loads libraries, too, while the clock runs
    found = {"first": beginning + fixed + decode + later, "later": fixed + later}
    if intent.starts:
        found["start"] = rates.begin
    if intent.points is not None and intent.points.best:  # the best on all rows, by one worker a problem
        turns = math.ceil(intent.points.best / (workers if intent.dealt else 1))
        found["after"] = turns * (passes or 1.0) * (rates.fixed + rates.later * source.nnz)
    return found


# What is measured


def _rates(intent: Intent, fresh: bool) -> Rates:
    """From the cache, else measured now and kept there."""
    setting, plan = intent.problems[0].setting, intent.plan
    beside = [one.setting.settings for one in intent.points.beside] if intent.points is not None else []
    what = [intent.source.digest, setting.method.name, setting.loss, setting.settings, len(intent.problems), beside,
            plan.same_bits(), plan.threads, intent.tol, intent.footing, intent.here, intent.starts, cores(), cpu_type(),
            sources_digest()]  # fmt: skip
    name = hashlib.blake2b(json.dumps(what, default=str).encode(), digest_size=16).hexdigest()
    path = files.join(cache_directory("rates"), f"{name}.json")
    if not fresh and files.exists(path):
        try:
            return Rates(**json.loads(files.read_text(path)))
        except (ValueError, TypeError):
            pass  # damaged: measured again
    rates = _measured(intent)
    files.publish_text(path, json.dumps(rates._asdict(), indent=1))
    return rates


def _measured(intent: Intent) -> Rates:
    source = intent.source
    groups = min(TRIAL_GROUPS, len(intent.plan.groups), source.n_chunks)
    chunks = max(groups, _sample_chunks(source))
    trials = [_best_trial(intent, n, groups) for n in sorted({max(groups, chunks // SMALLER), chunks})]
    entries, first, later, store, *_ = trials[-1]
    fixed, slope = 0.0, later / entries
    if len(trials) > 1:
        less, _, sooner, *_ = trials[0]
        line = (later - sooner) / (entries - less)
        if 0 < line * less < sooner:  # else what was measured is noise
            fixed, slope = sooner - line * less, line
    touched, growth = _spread(source, chunks)
    base, start, kernels = _footing(intent.footing)
    crew: list[float] | None = None
    begin = 0.0
    if intent.starts:
        began = time.perf_counter()
        with linked(intent.starts, Patience()) as link:
            assert link is not None
            link.count(Patience().idle)
            begin = time.perf_counter() - began
            if intent.here:
                start, those = _cluster_trial(intent, link)
                crew = [*those]
    rates = Rates(
        first=max(0.0, first - fixed) / entries,
        later=slope,
        fixed=fixed / groups,
        mix=_mixing_seconds(intent),
        disk=_disk_speed(source),
        store_bytes=store,
        entries=entries,
        touched=touched,
        growth=growth,
        base=base,
        start=start,
        measured=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        cpu=cpu_type(),
        load=round(psutil.getloadavg()[0], 2),
        groups=groups,
        crew=crew,
        kernels=kernels,
        kept=trials[-1].kept,
        works=_works(intent, chunks, groups),
        begin=begin,
    )
    return _grown(rates, _growing(intent, chunks, groups, trials))


def _works(intent: Intent, chunks: int, groups: int) -> list[float]:
    """Passes over all rows that the visits of a problem come to, of the one that was tried and of those beside it: they
    grow from a smaller trial to a larger one, and on to all rows (0: a trial did not end)."""
    if intent.points is None or not intent.points.beside:
        return []
    found = []
    for one in (intent.points.one, *intent.points.beside):
        alone = intent._replace(problems=[one])
        counts = sorted({max(groups, chunks // SMALLER), chunks})
        less, *_, more = [_trial(alone, n, groups, entries=BESIDE_ENTRIES) for n in (counts[0], counts[-1])]
        growth = MOST_GROWTH  # where the larger one did not end
        if less.work and more.work and more.entries > less.entries:
            growth = math.log(more.work / less.work) / math.log(more.entries / less.entries)
        ended = more if more.work else less
        found.append(ended.work * (intent.source.nnz / ended.entries) ** min(MOST_GROWTH, max(0.0, growth)))
    return found


def _known(intent: Intent, known: Rates) -> Rates:
    """What was measured in one process, with what several groups change."""
    rates = known._replace(mix=_mixing_seconds(intent))
    groups = min(TRIAL_GROUPS, len(intent.plan.groups), intent.source.n_chunks)
    chunks = max(groups, _sample_chunks(intent.source))
    if groups == known.groups or not known.passes:
        return rates
    trials = [_trial(intent, n, groups) for n in sorted({max(groups, chunks // SMALLER), chunks})]
    return _grown(rates._replace(groups=groups), _growing(intent, chunks, groups, trials))


def _growing(intent: Intent, chunks: int, groups: int, trials: list[Trial]) -> list[Trial]:
    """The trials that tell how passes grow: products of methods by sums grow all the faster the more rows there are, up
    to the square root, so of these one from half the chunks is asked. Of few passes, as of others, that is noise."""
    half = max(groups, chunks // 2)
    if not intent.problems[0].setting.method.by_sums or not trials[-1].passes or half == chunks:
        return trials
    return [_trial(intent, half, groups), trials[-1]]


def _occurring(source: Rows) -> dict[str, int]:
    """How many features there are, and of very many how many occur: of these alone weights are kept."""
    if source.feature_ids is None:
        return {"features": source.n_features}
    return {"features": source.feature_ids.n_features, "occurring": source.n_features}


def _grown(rates: Rates, trials: list[Trial]) -> Rates:
    """The rates with the passes and shipped entries of the last of the trials, the larger one, and how passes grow.

    Of steps by conjugate gradients it is at most with the square root of the rows: the Hessian of the loss is a sum
    over them, and products grow with the square root of its largest eigenvalue beside that of the regulariser.
    """
    *before, last = trials
    longer = 0.0
    if before and last.passes and before[0].passes:
        longer = math.log(last.passes / before[0].passes) / math.log(last.entries / before[0].entries)
    longer = min(MOST_GROWTH, max(0.0, longer))
    return rates._replace(passes=last.passes, longer=longer, shipped=last.shipped or rates.shipped)


def _footing(asked: Mapping[str, object]) -> tuple[int, float, float]:
    """Bytes and seconds of a process that has loaded all kernels of the run (they were compiled here before), and of
    these the seconds for the kernels."""
    done = subprocess.run(
        [sys.executable, "-m", "bigclf.api.fresh_process"], input=json.dumps(asked), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise RunError(f"a process to measure what it takes did not start: {done.stderr[-300:]}")
    told = json.loads(done.stdout)
    return int(told["bytes"]), float(told["seconds"]), float(told["kernels"])


def _sample_chunks(source: Rows) -> int:
    """So many of the first chunks as the larger trial may learn from, at least one."""
    most = min(SAMPLE_NNZ, SAMPLE_SHARE * source.nnz)
    return max(1, int(np.searchsorted(np.cumsum(source.chunks.nnz), most, side="right")))


def _cluster_trial(intent: Intent, link: Link) -> tuple[float, Crew]:
    """Seconds until processes of this machine begin with their first visits, and what these take: from as few chunks as
    there are groups, and from more of them."""
    groups = min(len(intent.plan.groups), MOST_GROUPS, intent.source.n_chunks)
    chunks = min(intent.source.n_chunks, max(2 * groups, _sample_chunks(intent.source)))
    told = [_rounds(intent, n, groups, link) for n in sorted({groups, chunks})]
    less, most = told[0], told[-1]
    turns = math.ceil(groups / min(intent.here, groups))
    beside = [max(0.0, each.later - turns * each.visit) for each in told]
    fixed, visit = _line(*((each.entries / groups, each.visit) for each in told))
    growth = 1.0
    if most.entries > less.entries and 0 < beside[0] < beside[-1]:
        growth = min(1.0, math.log(beside[-1] / beside[0]) / math.log(most.entries / less.entries))
    decode = max(0.0, most.began - most.visit) / (most.entries / groups)  # its processes had begun before
    start = max(0.0, less.first - less.later - turns * decode * less.entries / groups)
    return start, Crew(decode, visit, fixed, beside[-1], growth, max(1.0, most.moved), most.entries)


def _line(*points: tuple[float, float]) -> tuple[float, float]:
    """Height at 0 and slope of the line through the first and the last; through 0 and the last, where that is noise."""
    (less, low), (most, high) = points[0], points[-1]
    slope = (high - low) / (most - less) if most > less else 0.0
    return (low - slope * less, slope) if 0 < slope * less < low else (0.0, high / most)


def _rounds(intent: Intent, chunks: int, groups: int, link: Link | None) -> Told:
    """Have the workers learn from the first chunks."""
    ends: list[tuple[float, float, float]] = []

    def look(run: Run) -> list[int]:
        ends.append((run.clock.seconds, run.counts.visited, run.engine.bytes_moved))
        return run.todo() if len(ends) >= ROUNDS or run.clock.seconds > ROUNDS_SECONDS else []

    tried = _trial(intent, chunks, groups, link, ROUNDS, look)
    times, began = len(ends) - 1, ends[0][1] / groups
    if not times:  # the first was the last: it is known by what it came to alone
        return Told(tried.entries, tried.first, tried.later, began, began, ends[0][2])
    later, visits, moved = ((last - first) / times for first, last in zip(ends[0], ends[-1], strict=True))
    return Told(tried.entries, tried.first, later, began, visits / groups, moved)


def _best_trial(intent: Intent, chunks: int, groups: int) -> Trial:
    """As ``_trial``, the least seconds of several; of the first epoch those of the first trial, whose rows go to memory
    that is new, as those of a run do, unless something else held it up."""
    tried = [_trial(intent, chunks, groups) for _ in range(TIMES)]
    first = min(tried[0].first, HELD_UP * min(each.first for each in tried))
    return tried[-1]._replace(first=first, later=min(each.later for each in tried))


def _trial(
    intent: Intent, chunks: int, groups: int, link: Link | None = None, rounds: int = EPOCHS,
    look: Callable[[Run], list[int]] | None = None, entries: float | None = None,
) -> Trial:  # fmt: skip
    """Learn from the first chunks as the plan has it, in so many groups, until so many ``entries`` are visited (None:
    for ``SECONDS``)."""
    source, problems, plan, tol, *_ = intent
    sample = source.leading(chunks)
    share, edges = sample.nnz / source.nnz, group_edges(sample.chunks.nnz, groups)
    small = dataclasses.replace(
        plan,
        groups=edges,
        gathered=plan.gathered and len(edges) > 1,  # as few chunks as one may make a single group
        segments=1,
        set_rows=math.ceil(share * plan.set_rows),
        set_nnz=math.ceil(share * plan.set_nnz),
        grown=tuple(math.ceil(share * size) for size in plan.grown),
        climb_rows=math.ceil(share * plan.climb_rows),
        collected=min(sample.nnz, plan.collected),
    )
    method = problems[0].setting.method
    works: list[float] = []
    kept: list[bool] = []

    def count(run: Run) -> list[int]:
        works.append(1.0 + run.counts.again)
        kept.append(method.by_way and keeps_rows(problems[0], run.states[0]))
        if entries is not None and sum(works) * sample.nnz > entries:
            return run.todo()
        return [] if look is None else look(run)

    seconds = SECONDS if link is None and entries is None else None
    options = RunOptions(
        progress=False, validate=None, callbacks=(), tol=tol, local_dir=None, init=None, resume=False,
        epochs=method.epochs if tol is not None else rounds, max_seconds=seconds,
        checkpoint_every=math.inf, patience=Patience(), early_stopping=None, give_up=count,
    )  # fmt: skip
    with conducted(sample, problems, small, options, link, None) as (run, history):
        size = plan.store_bytes
        if isinstance(run.engine, LocalEngine) and (store := run.engine.bench.stream.store) is not None:
            size = store.bytes_for(source)
        first, epochs = history[0]["seconds"], run.epoch - 1
        later = (history[-1]["seconds"] - first) / (epochs - 1) if epochs > 1 else first
        passes = epochs if all(conductor.status.done for conductor in run.conductors) else 0
        shipped = sum(each.gathered.shipped for each in run.conductors if isinstance(each, GatheredConductor))
    work = sum(works) if passes else 0.0
    return Trial(sample.nnz, first, later, size, passes, shipped / sample.nnz, work, float(np.mean(kept or [False])))


def _spread(source: Rows, chunks: int) -> tuple[int, float]:
    """Distinct features in the first chunks, and the exponent by which their number grows from half of them."""
    seen = np.zeros(source.n_features, np.bool_)
    counts: list[tuple[int, int]] = []
    entries = 0
    blocks = source.blocks()
    for _ in range(chunks):
        block = next(blocks)
        seen[block.indices] = True
        entries += block.nnz
        counts.append((entries, int(seen.sum())))
    half = counts[(len(counts) - 1) // 2]
    if len(counts) < 2 or not half[1]:
        return counts[-1][1], 1.0
    ratio = math.log(counts[-1][1] / half[1]) / math.log(counts[-1][0] / half[0])
    return counts[-1][1], min(1.0, ratio)


def _mixing_seconds(intent: Intent) -> float:
    """Seconds to take in one group's answer of all problems."""
    source, problems, plan, *_ = intent
    if len(plan.groups) == 1 or plan.places:
        return 0.0
    problem = problems[0]
    state = problem.setting.shared(source.n_features, plan.dtype)
    blend = Blend(problem, state)
    figures = np.ones(16)
    began = time.perf_counter()
    for _ in range(2):
        blend.add(Part(problem.setting.shared(source.n_features, plan.dtype), None, figures))
    return (time.perf_counter() - began) / 2 * len(problems)


def _disk_speed(source: Rows) -> float:
    """Bytes a second of the disk that has the data, past the page cache."""
    read, began = 0, time.perf_counter()
    for path in source.files:
        with files.open_binary(path) as file:
            files.drop_cache(file.fileno())
            while read < DISK_BYTES and (piece := file.read(4_000_000)):
                read += len(piece)
        if read >= DISK_BYTES:
            break
    return read / max(1e-9, time.perf_counter() - began)
