"""What a worker of a cluster does: the functions that travel to it, and the benches it keeps from visit to visit.

No Dask here: a task is a plain function call. A worker keeps a ``Place`` for each run: the bench, and the common state
of the last version it was sent, so that later ones can come as changes. Everything in it is a cache.
"""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypedDict, TypeVar, cast

import numpy as np

from bigclf import files
from bigclf.cluster.holdings import Fetch, Given, Holdings, Joined, Name, Unreached, Wanted, join
from bigclf.data.arrays import Arrays
from bigclf.data.shards import release_freed
from bigclf.errors import DataError
from bigclf.machine import Facts, facts
from bigclf.maths.deltas import Cut, Delta, Picked, S, applied, apply, difference, fill, filled, picked
from bigclf.maths.mixing import FAN, Weights
from bigclf.methods.method import Way
from bigclf.stream.row_files import FiledArray
from bigclf.training.executor import Bench, Job, Missing
from bigclf.training.memory import PeakMemory
from bigclf.training.plan import Plan
from bigclf.training.records.run_directory import load_rows, publish_arrays
from bigclf.training.roles.steps import way_of
from bigclf.training.sources import warm
from bigclf.training.visit import Carry, DualSum, Outcome, Part, RowFile, Visit, named_rows

if TYPE_CHECKING:
    from distributed import Future

    from bigclf.data.dataset import Dataset


W = TypeVar("W", bound=Weights)
log = logging.getLogger("bigclf")
UNUSED_SECONDS = 600.0  # a place that no visit came to for so long is cleared when another run needs one


@dataclass
class Parcel:
    """Whatever is sent, as one opaque thing (Dask looks into tuples)."""

    content: Any


class Shipment(NamedTuple):
    """The common state of ``version``: for each problem in ``changes`` what differs from its state at ``base``
    (version 0 every process makes itself), or all of it; what is ``Picked`` needs no state before it (base None).
    ``source`` : the worker that has it or will soon, to be asked for it, in so many ``cuts`` of the feature axis, each
    for ``seconds``; "": here it is."""

    version: int
    base: int | None
    changes: dict[int, Any]
    source: str = ""
    seconds: float = 0.0
    cuts: int = 1


Changes = dict[int, Delta | Weights]  # of each problem: what changed, or its whole state, or a cut of that
Arriving = dict[int, Changes]  # by cut


def together(parts: Sequence[W], like: W) -> W:
    """A state from all its cuts; ``like`` : a state of its form."""
    if len(parts) == 1:
        return parts[0]
    length = like.weights.shape[0]
    own = zip(like, zip(*parts, strict=True), strict=True)
    return type(like)(*(np.concatenate(cut) if array.shape[:1] == (length,) else cut[0] for array, cut in own))


MakesBench: TypeAlias = Callable[[Job, Callable[[], None]], Bench]


class Place:
    """What a worker keeps of a run."""

    def __init__(self, job: Job, bench: MakesBench = Bench) -> None:
        release_freed()  # what the run before it left would hide what this one takes
        self._memory = PeakMemory()
        # No thread looks at memory in each visit: CPython 3.11 before 3.11.9 may stop for ever where one ends while
        # Dask's profiler goes through all of them (python/cpython#106883).
        self.job, self.bench = job, bench(job, self._memory.look_between)
        self.lock = threading.Lock()
        self.used = time.monotonic()
        self.version = -1
        self.states: list[Any] = []
        self.changes: dict[int, Delta | None] = {}  # that made them, None: they came whole
        self.base: int | None = 0  # version that these are changes to
        self._arriving: tuple[int, int, Arriving] = -1, -1, {}  # version, base and the cuts that have come of it
        self.holdings = Holdings()

    def weighed(self, outcome: Outcome) -> Outcome:
        """With the fact ``memory``: bytes that this process had at the peak, less what it had before the run."""
        self._memory.look()
        return outcome._replace(facts=outcome.facts | {"memory": self._memory.peak - self._memory.base})

    def fresh_states(self) -> list[object]:
        return [p.setting.shared(self.job.source.n_features, self.job.plan.dtype) for p in self.job.problems]

    def take(self, version: int, shipment: Shipment | None) -> None:
        """Bring the common state to ``version``; Missing if that needs more than is here and was sent."""
        if self.version == version:
            return
        anyhow = shipment is not None and shipment.base is None and self.version < 0
        if version == 0 or anyhow or shipment is not None and shipment.base == 0:
            self.states, self.version = self.fresh_states(), 0
        if version == 0:
            return
        if shipment is None or shipment.version != version or shipment.base not in (None, self.version):
            raise Missing(f"state of version {version}, here is {self.version}")
        for number, change in shipment.changes.items():
            if isinstance(change, Picked):
                fill(self.states[number], change)
            elif isinstance(change, Delta):
                apply(self.states[number], change)
            else:
                self.states[number] = _taken(self.states[number], change)
        self.changes = {n: change if isinstance(change, Delta) else None for n, change in shipment.changes.items()}
        self.version, self.base, self._arriving = version, shipment.base, (-1, -1, {})

    def arriving(self, version: int, base: int) -> Arriving:
        """The cuts that have come of a version, to which more are added."""
        if self._arriving[:2] != (version, base):
            self._arriving = version, base, {}
        return self._arriving[2]

    def passed_on(self, version: int, base: int, cut: Cut) -> Changes | None:
        """What brings a state of ``base`` to the version, a cut of it: changes alone come with the first; None: it is
        not here yet.

        Raises
        ------
        Missing : it will not be.
        """
        if self.version < version:
            return self._arriving[2].get(cut.number) if self._arriving[:2] == (version, base) else None
        if (self.version, self.base) != (version, base):
            raise Missing(f"changes to version {base}")
        given: Changes = {}
        for number, change in self.changes.items():
            if change is None:
                given[number] = cut.state(self.states[number], self.states[number].weights.shape[0])
            elif cut.number == 0:
                given[number] = change
        return given

    def assembled(self, version: int, base: int, cuts: int) -> Shipment:
        """A version of which all cuts have come."""
        parts = [self._arriving[2][number] for number in range(cuts)]
        like = cast(list[Weights], self.states or self.fresh_states())
        changes = {
            n: one if isinstance(one, Delta) else together(cast(list[Weights], [part[n] for part in parts]), like[n])
            for n, one in parts[0].items()
        }
        return Shipment(version, base, changes)


_places: dict[tuple[str, str], Place] = {}
_guard = threading.Lock()


def place_of(job: Job, slot: str, bench: MakesBench = Bench) -> Place:
    """The place of a run in this worker, with such a bench; ``slot`` tells workers in one process apart."""
    key = job.run, slot
    with _guard:
        place = _places.get(key)
        if place is None:
            now = time.monotonic()
            for other in [k for k, p in _places.items() if now - p.used > UNUSED_SECONDS and not p.lock.locked()]:
                _places.pop(other).bench.close()
            setting = job.problems[0].setting
            warm(setting, job.source.index_width, job.plan.dtype)
            place = _places[key] = Place(job, bench)
        place.used = time.monotonic()
    return place


def held_by(run: str, slot: str, wanted: Wanted) -> Given | None:
    """What a worker holds of a run, where another one asks for it."""
    place = _places.get((run, slot))
    return None if place is None else place.holdings.give(wanted)


def passed_on(run: str, slot: str, version: int, base: int, cut: Cut) -> Changes | None:
    """What brings a state to the version; see ``Place``."""
    place = _places.get((run, slot))
    return None if place is None else place.passed_on(version, base, cut)


def drop(run: str, slot: str, round: int, pieces: Sequence[Name], totals: Sequence[Name]) -> None:
    """Let go of what has been taken in elsewhere."""
    if (place := _places.get((run, slot))) is not None:
        place.holdings.drop(round, pieces, totals)


class Failure(NamedTuple):
    """What came of a visit instead of an outcome: kind "missing", "failed", or of an order "unreached"."""

    kind: str
    error: BaseException


def attempt_visit(
    visit: Parcel, job: Parcel, slot: str, token: str, shipment: Parcel | None, carries: Parcel | None, keeps: str,
    holds: int,
) -> Outcome | Failure:  # fmt: skip
    """``make_visit``, whatever comes of it."""
    try:
        return make_visit(visit, job, slot, token, shipment, carries, keeps, holds)
    except Missing as error:
        return Failure("missing", error)
    except Exception as error:
        return Failure("failed", error)


def make_visit(
    visit: Parcel, job: Parcel, slot: str, token: str, shipment: Parcel | None, carries: Parcel | None, keeps: str,
    holds: int,
) -> Outcome:  # fmt: skip
    """A visit on a worker: what came of it, with states as changes where that is less.

    ``keeps`` : what becomes of what the group carries: "" nothing, "travels" with the outcome, else the directory that
    its row state is written into. ``holds`` : number of the round for which the parts stay here until they are
    joined; 0: they travel with the outcome.

    Raises
    ------
    Missing : this process lacks what the driver thought it had; it is to be sent along.
    DataError : rows that cannot be used.
    """
    what: Visit = visit.content
    place = place_of(job.content, slot)
    with place.lock:
        place.used = time.monotonic()
        place.take(what.version, None if shipment is None else shipment.content)
        place.holdings.begin(holds)
        states = [place.states[number] for number in what.todo]
        alone = len(place.job.plan.groups) == 1
        given = [_copy(state) for state in states] if alone else states
        held = (
            [None] * (what.last - what.first)
            if carries is None
            else [_loaded(c, keeps, place) for c in carries.content]
        )
        outcome = place.bench.visit(what, given, held, token)
        ways = [_way_of(place.job, number, state) for number, state in zip(what.todo, states, strict=True)]
        parts = [packed(p, s, place.job.plan, w) for p, s, w in zip(outcome.parts, states, ways, strict=False)]
        carry = None
        midway = what.kind == "update" and what.segment < place.job.plan.segments - 1
        if keeps:
            carry = place.bench.carry(what.first, midway, what.todo)
            travels = keeps == "travels"
            carry = (
                _owned(carry, place, what, midway) if travels else _written(carry, place, what, keeps, token, midway)
            )
        if not midway:
            for group in range(what.first, what.last):
                place.bench.recycle(group)
        if holds:
            parts = _held(holds, what, parts, states, place)
        return place.weighed(outcome._replace(parts=parts, carry=carry))


def _held(round: int, visit: Visit, parts: list[Part], states: Sequence[Weights], place: Place) -> list[Part]:
    """Hold the parts here; what of them the driver takes in itself."""
    bundled = visit.last - visit.first > 1
    name = Name(1, visit.first // FAN) if bundled else Name(0, visit.first)
    place.holdings.hold(round, name, parts, [state.weights.shape[0] for state in states])
    return [Part(None, None, part.figures, found=part.found) for part in parts]


def attempt_join(order: Parcel, job: Parcel, slot: str, shipment: Parcel | None, fetch: Fetch) -> Joined | Failure:
    """Take pieces into the total of a node of the tree (``holdings.join``), whatever comes of it."""
    place, what = place_of(job.content, slot), order.content
    try:
        place.holdings.begin(what.round)
        if place.version != what.version:
            with place.lock:
                place.take(what.version, None if shipment is None else shipment.content)
        return join(what, place, slot, fetch, packed)
    except (Missing, Unreached) as error:
        return Failure("missing" if isinstance(error, Missing) else "unreached", error)
    except Exception as error:
        return Failure("failed", error)


def picks(job: Job) -> bool:
    """Whether what travels of a state is what the next read needs and makes, straight from the driver and back: of few
    groups, that is the least."""
    return job.problems[0].setting.method.by_way and len(job.plan.groups) <= FAN


def _way_of(job: Job, number: int, state: object) -> Way | None:
    return way_of(job.problems[number], state) if picks(job) else None


def changes_to(start: W, state: W, plan: Plan) -> Delta | None:
    """What makes ``state`` out of ``start``, where that is less than the state. A state of touched places travels
    whole: its arrays are as long as what it holds."""
    return None if plan.places else difference(start, state, state.weights.shape[0])


def _taken(state: S, other: S) -> S:
    """``other`` in the arrays of ``state``; in arrays of its own, which can grow, where it has another size."""
    if any(mine.shape != array.shape for mine, array in zip(state, other, strict=True)):
        return _copy(other)
    for mine, array in zip(state, other, strict=True):
        mine[...] = array
    return state


def packed(part: Part, start: Weights, plan: Plan, way: Way | None = None) -> Part:
    """A part as it travels: changes alone where they are few; the weights at the start the driver has."""
    if way is not None:
        return Part(picked(part.state, way.up, own=True), None, part.figures)
    length = start.weights.shape[0]
    changes = changes_to(start, part.state, plan)
    state = _copy(part.state) if changes is None else changes
    dual = part.dual
    if isinstance(dual, np.ndarray):
        whole = DualSum(dual)
        dual = difference(DualSum(np.zeros(dual.shape)), whole, length) or whole
    return Part(state, dual, part.figures, found=part.found)


def unpacked(part: Part, start: Weights) -> Part:
    """A part with its changes carried out."""
    if isinstance(part.state, Picked):
        return part._replace(state=filled(start, part.state))  # type: ignore[type-var]
    state = applied(start, part.state) if isinstance(part.state, Delta) else part.state
    dual = part.dual
    if isinstance(dual, Delta):
        dual = applied(DualSum(np.zeros(start.weights.shape)), dual)
    return part._replace(state=state, dual=dual.weights if isinstance(dual, DualSum) else dual)


def _copy(state: S) -> S:
    return type(state)(*(array.copy() for array in state))


def _owned(carry: Carry, place: Place, visit: Visit, midway: bool) -> Carry:
    """The carry in memory of its own: the bench goes on with the arrays. Where the pass began with values that others
    had found, also what they were before it."""
    assert not isinstance(carry.rows, RowFile)
    rows = carry.rows
    if place.job.plan.gathered and not midway:
        rows = [held | place.bench.rows_before(visit.first, number) for number, held in enumerate(rows)]
    return Carry(owned(rows), None if carry.shared is None else owned(carry.shared))


def owned(held: Sequence[Mapping[str, np.ndarray | FiledArray]]) -> list[dict[str, np.ndarray]]:
    return [{name: _own_array(array) for name, array in one.items()} for one in held]


def _own_array(array: np.ndarray | FiledArray) -> np.ndarray:
    return np.concatenate([*array.pieces()]) if isinstance(array, FiledArray) else array.copy()


def _written(carry: Carry, place: Place, visit: Visit, directory: str, token: str, midway: bool) -> Carry:
    """The carry with its row state in a new file: as it is proposed, and as it was before the epoch."""
    assert not isinstance(carry.rows, RowFile)
    arrays: dict[str, np.ndarray] = {}
    for number, held in enumerate(carry.rows):
        arrays |= named_rows(number, visit.first, held)
        before = {} if midway else place.bench.rows_before(visit.first, number)
        arrays |= named_rows(number, visit.first, before)
    name = f"rows-{visit.first:05d}-{visit.epoch:08d}-{visit.segment:06d}-{token}.safetensors"
    digest = publish_arrays(files.join(directory, name), arrays, {})
    return Carry(RowFile(name, digest), None if carry.shared is None else owned(carry.shared))


def _loaded(carry: Carry, directory: str, place: Place) -> Carry:
    """The carry with its row state in memory, or where the plan has it on disk as ``FiledArray``."""
    file = carry.rows
    if not isinstance(file, RowFile):
        return carry
    path, filed = files.join(directory, file.name), place.job.plan.rows_sides > 0
    held = load_rows(path, file.digest, file.steps, filed)
    rows: dict[int, dict[str, np.ndarray]] = {}
    for name, array in held.items():
        number, _, rest = name.split(".", 2)
        rows.setdefault(int(number), {})[rest] = array
    return carry._replace(rows=[rows[number] for number in sorted(rows)])


class Greeting(Facts, total=False):
    """What a worker says of itself, and what speaks against it; here with the content that is there (``anchor``)."""

    problems: list[str]
    again: bool
    anchor: Future


class Verdict(TypedDict):
    """What came of the child process that read what workers had died of: the signal that ended it (0: none), and the
    chunk it was at."""

    signal: int
    chunk: int | None


def greet(directory: str | None, sample: str | None) -> Greeting:
    """What a worker says of itself before it is given work: its machine, and whether it can write the run directory
    and read the data."""
    found: Greeting = {**facts(), "problems": []}
    if directory is not None:
        try:
            files.probe_writable(directory)
        except Exception as error:
            found["problems"].append(f"it cannot write the run directory: {error}")
    if sample is not None and not files.exists(sample):
        found["problems"].append(f"it does not see the data: there is no {sample}")
    return found


def farewell(run: str) -> None:
    """Clear the run's places."""
    with _guard:
        done = [_places.pop(key) for key in [key for key in _places if key[0] == run]]
    for place in done:
        with place.lock:
            place.bench.close()


def on_trial(visit: Parcel, job: Parcel) -> Verdict:
    """Read what a visit would read and run its kernels in a child process, after workers died of it.

    Returns
    -------
    dict : ``signal`` the child died of (0: it lived) and ``chunk``, the one it was at (None: none yet).
    """
    import pickle

    what: Visit = visit.content
    child = subprocess.Popen(
        [sys.executable, "-m", "bigclf.cluster.crash_trial"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        said, _ = child.communicate(pickle.dumps((job.content, what.first, what.last, what.epoch)))
    finally:
        child.kill()
        child.wait()
    chunks = [int(line) for line in said.split() if line.strip().isdigit()]
    return {"signal": max(0, -child.returncode), "chunk": chunks[-1] if chunks else None}


def shard_error(source: Dataset | Arrays, chunk: int | None, signal: int, deaths: int, where: str) -> DataError:
    """The error that names the shard workers die of."""
    message = (
        f"{deaths} workers died at {where}, and a process of its own died of signal {signal} on it; "
        "the file is likely damaged in a way no check sees: run bigclf validate on it, or leave it out"
    )
    if chunk is None or isinstance(source, Arrays):
        return DataError(message)
    chunks = source.chunks
    return DataError(message, file=source.files[int(chunks.file[chunk])], row_group=int(chunks.row_group[chunk]))
