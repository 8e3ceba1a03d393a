"""The one place that knows numba: options, the cache directory, and the small inlined helpers of every kernel.

A kernel is decorated with ``@kernel``. With ``NUMBA_DISABLE_JIT=1`` everything here and above runs as plain Python.
Machine code is kept on disk (``bigclf/compiled/kernel_cache.py``), under a digest of the sources it is made of.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar

import numba
import numpy as np
from numba.core import cgutils, event, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from bigclf.compiled.inlining import Pipeline
from bigclf.compiled.kernel_cache import BeingCompiled, KernelCache, waiting
from bigclf.compiled.lanes import (
    BYTE,
    FIRST,
    LANES,
    SECOND,
    dot_lanes,
    dot_lanes_ahead,
    element,
    hint,
    step_lanes,
    step_lanes_alike,
    sum_lanes,
    sum_lanes_ahead,
)
from bigclf.files.caches import kernel_cache

if TYPE_CHECKING:
    from numba.core.dispatcher import Dispatcher

_F = TypeVar("_F", bound=Callable[..., object])
log = logging.getLogger("bigclf")
patient_log = logging.getLogger("bigclf.waiting")  # INFO: what somebody before a screen waits for
PACKAGE = Path(__file__).parent.parent


@functools.cache
def sources_digest() -> str:
    """Hex digest of the sources of this package (names and contents)."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


INTERPRETED = bool(numba.config.DISABLE_JIT)
if INTERPRETED:  # random numbers wrap around, which compiled code does without a word
    warnings.filterwarnings("ignore", "overflow encountered in scalar (add|multiply)", RuntimeWarning, "bigclf")
_compiled: list[Dispatcher] = []  # every kernel


def cpu_type() -> str:
    """Name of the processor that kernels are compiled for, as LLVM knows it: same type, same bits."""
    import llvmlite.binding

    return str(numba.config.CPU_NAME or llvmlite.binding.get_host_cpu_name())


# Of all compiled code; nobody calls it from C, for which numba compiles a wrapper
OPTIONS = {"error_model": "numpy", "pipeline_class": Pipeline, "no_cfunc_wrapper": True}


def kernel(function: _F) -> _F:
    """Compile without Python's lock, without fast-math (it changes bits), cached on disk.

    Reference counting is off: numba counts every array of a block for each row of a loop, which costs five times
    the work on rows of 14 entries (107 ns a row against 29). So a kernel creates no arrays.
    """
    return _kept(numba.njit(nogil=True, _nrt=False, **OPTIONS)(function))


def brief(function: _F) -> _F:
    """As ``kernel``, but it keeps Python's lock: for work that takes less than it may take to get the lock back from a
    thread that reads (some 0.1 ms, where the processor went to sleep over it)."""
    return _kept(numba.njit(_nrt=False, **OPTIONS)(function))


def _kept(dispatcher: _F) -> _F:
    """Keep the compiled code on disk, if there is a place for it."""
    if INTERPRETED:
        return dispatcher
    try:
        dispatcher._cache = cache = KernelCache(dispatcher.py_func)
        dispatcher._compiler.compile = cache.letting_go(dispatcher._compiler.compile)
    except RuntimeError as error:
        log.warning("compiled code is not kept: %s", error)
    _compiled.append(dispatcher)
    return dispatcher


def is_kept(kernel: Callable[..., object]) -> bool:
    """Whether there is compiled code on disk of the kernels that stand where this one does, or of all those that a
    function was made to choose among."""
    cache = getattr(kernel, "_cache", None)
    if isinstance(cache, KernelCache):
        return Path(cache.cache_path).is_dir()
    made_with = (cell.cell_contents for cell in getattr(kernel, "__closure__", None) or ())
    return all(is_kept(one) for one in made_with if hasattr(one, "_cache"))


def compilations() -> tuple[int, int]:
    """How many signatures this process has compiled so far, and how many it has found on disk."""
    stats = [dispatcher.stats for dispatcher in _compiled]
    return sum(sum(s.cache_misses.values()) for s in stats), sum(sum(s.cache_hits.values()) for s in stats)


def begin_compiling() -> None:
    """What numba does before it compiles its first function, a third of a second long."""
    for context in (cpu_target.typing_context, cpu_target.target_context):
        context.refresh()


def in_turns(calls: Iterable[Callable[[], object]]) -> None:
    """Make calls of kernels, which compile them, those last that need what another process is at meanwhile. A call that
    was put off is made again from its beginning."""
    todo = [*calls]
    while todo:
        put_off = [call for call in todo if not _made_at_once(call)]
        if len(put_off) == len(todo):
            put_off.pop(0)()  # there is nothing to do but to wait
        todo = put_off


def _made_at_once(call: Callable[[], object]) -> bool:
    try:
        with waiting(False):
            call()
    except BeingCompiled:
        return False
    return True


@contextlib.contextmanager
def clock() -> Iterator[Callable[[], float]]:
    """A function that says how many seconds went by since it was made, but for those in which kernels were compiled."""
    started = time.perf_counter()
    with event.install_listener("numba:compile", event.TimingListener()) as compiled:
        yield lambda: time.perf_counter() - started - (compiled.duration if compiled.done else 0.0)


def inlined(function: _F) -> _F:
    """For the small helpers inside a row's loop: pasted into the kernel before it is typed."""
    return numba.njit(nogil=True, error_model="numpy", inline="always")(function)


@contextlib.contextmanager
def compiling(patience: float = 300.0) -> Iterator[None]:
    """Let one process a host compile at a time, the others then find its work.

    The lock saves work and is needed for nothing else, so whoever cannot have it within ``patience`` seconds (its
    holder may be frozen) or at all (a file system without locks) compiles without, and does not wait again before it
    has had the lock. Who waits holds the turn, which must be had before the lock: a process that lets go of the lock
    and wants it again, kernel after kernel, comes behind those who waited meanwhile.
    """
    global _patient
    directory = kernel_cache()
    with contextlib.ExitStack() as held:
        waits = held.enter_context(_said_if_long())
        try:
            directory.mkdir(parents=True, exist_ok=True)
            file = held.enter_context(open(directory / "lock", "w"))
            with open(directory / "turn", "w") as turn:
                end = time.monotonic() + (patience if _patient else 0.0)
                had = _locked(turn, end) and _locked(file, end)
            if _patient and not had:
                log.warning("another process has been compiling for %.0f s: not waiting for it any longer", patience)
            _patient = had
        except OSError as error:
            log.warning("compiling without a lock: %s", error)
        waits.clear()
        yield


SAID_AFTER, LOOKS = 2.0, 0.2  # seconds until something is said, and between two looks whether there is cause to


@contextlib.contextmanager
def _said_if_long() -> Iterator[threading.Event]:
    """Tell ``patient_log``, where somebody listens, what takes longer than ``SAID_AFTER``: that kernels are compiled,
    or that another process does, while the event given is set. Loading them takes a while too, and is nothing to
    tell."""
    waits, over = threading.Event(), threading.Event()
    waits.set()
    if not patient_log.isEnabledFor(logging.INFO):
        yield waits
        return
    before = compilations()[0]

    def say() -> None:
        pause = SAID_AFTER
        while not over.wait(pause):
            if waits.is_set():
                patient_log.info("another process compiles kernels, which are needed here too: waiting for it")
                return
            if compilations()[0] > before or any(getattr(d._cache, "_lock", None) is not None for d in _compiled):
                patient_log.info("compiling kernels, once for each version of bigclf on a machine: up to a minute")
                return
            pause = LOOKS

    threading.Thread(target=say, name="bigclf-says", daemon=True).start()
    try:
        yield waits
    finally:
        over.set()


_patient = True  # whether to wait for who compiles; not after that was in vain


def _locked(file: TextIO, end: float) -> bool:
    """Lock the file for this process alone, until it is closed; False when that could not be done until ``end``."""
    import fcntl

    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
        time.sleep(0.05)


def _hint(along: bool, level: int):  # type: ignore[no-untyped-def]
    """An intrinsic (array, index): a hint for every cache level (FIRST) or all but the first (SECOND), of the number
    at the flat index, or of array[index] ``along`` the first axis."""

    @intrinsic
    def asking(typing, array, index):  # type: ignore[no-untyped-def]
        def build(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
            opened = cgutils.create_struct_proxy(signature.args[0])(context, builder, arguments[0])
            if along and not (array.ndim == 1 and array.layout == "C"):
                offset = builder.mul(arguments[1], builder.extract_value(opened.strides, 0))
                pointer = builder.gep(builder.bitcast(opened.data, BYTE.as_pointer()), [offset])
            else:
                pointer = builder.gep(opened.data, [arguments[1]])
            hint(builder, pointer, level)
            return context.get_dummy_value()

        return types.void(array, types.intp), build

    return asking


_prefetch, _ask = _hint(along=False, level=FIRST), _hint(along=True, level=SECOND)

if INTERPRETED:

    def prefetch(array: np.ndarray, index: int | np.integer) -> None:
        """Nothing: a hint to the processor has no meaning in the interpreter."""

    ask = prefetch

else:

    @inlined
    def prefetch(array, index):  # type: ignore[no-untyped-def]
        """Ask for the cache line of the number at the flat index, which need not exist."""
        _prefetch(array, index)

    @inlined
    def ask(array, index):  # type: ignore[no-untyped-def]
        """Ask for the cache line of array[index], needed rows later: in the first-level cache it would not last, and
        what is there neither."""
        _ask(array, index)


@intrinsic
def _load_word(typing, array, index):  # type: ignore[no-untyped-def]
    """Eight bytes from array[index] on as a number, the lowest first, aligned or not."""
    import llvmlite.ir as ir

    def build(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = cgutils.create_struct_proxy(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(64).as_pointer())
        return builder.load(pointer, align=1)

    return types.uint64(array, index), build


if INTERPRETED:

    def load_word(array: np.ndarray, index: int | np.integer) -> np.uint64:
        """Eight bytes from array[index] on as a number."""
        return np.uint64(int.from_bytes(array[index : index + 8].tobytes(), "little"))

else:

    @inlined
    def load_word(array, index):  # type: ignore[no-untyped-def]
        """Eight bytes from array[index] on, which must be there, as a number (on a little-endian machine)."""
        return _load_word(array, index)


@intrinsic
def _move(typing, into, first, source, start, count):  # type: ignore[no-untyped-def]
    """source[start : start + count] to into[first : first + count], which may overlap."""

    def build(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        def place(k):  # type: ignore[no-untyped-def]
            data = cgutils.create_struct_proxy(signature.args[k])(context, builder, arguments[k]).data
            return builder.gep(data, [arguments[k + 1]])

        size = context.get_abi_sizeof(context.get_data_type(signature.args[0].dtype))
        cgutils.raw_memmove(builder, place(0), place(2), arguments[4], size)
        return context.get_dummy_value()

    if into.dtype != source.dtype:
        raise TypeError(f"{source} cannot be moved to {into}")
    return types.void(into, types.intp, source, types.intp, types.intp), build


if INTERPRETED:

    def move(into: np.ndarray, first: int, source: np.ndarray, start: int, count: int) -> None:
        """source[start : start + count] to into[first : first + count]."""
        into[first : first + count] = source[start : start + count].copy()

else:

    @inlined
    def move(into, first, source, start, count):  # type: ignore[no-untyped-def]
        """source[start : start + count] to into[first : first + count], arrays of one dtype without gaps, perhaps the
        same one: as the system's library does it, in the widest pieces that the processor has."""
        _move(into, first, source, start, count)


LINE = 64  # bytes of a cache line


@intrinsic
def _store_line(typing, into, first, source, start):  # type: ignore[no-untyped-def]
    """source[start : start + 64] to into[first : first + 64], which begins at a cache line, past the caches."""
    import llvmlite.ir as ir

    def build(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        line = ir.VectorType(BYTE, LINE).as_pointer()

        def place(k):  # type: ignore[no-untyped-def]
            data = cgutils.create_struct_proxy(signature.args[k])(context, builder, arguments[k]).data
            return builder.bitcast(builder.gep(data, [arguments[k + 1]]), line)

        store = builder.store(builder.load(place(2), align=1), place(0), align=LINE)
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        return context.get_dummy_value()

    return types.void(into, types.intp, source, types.intp), build


@intrinsic
def _fence(typing):  # type: ignore[no-untyped-def]
    def build(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), build


if INTERPRETED:

    def copy_past_caches(source: np.ndarray, into: np.ndarray) -> None:
        """source to into."""
        into[:] = source

else:

    @kernel
    def copy_past_caches(source, into):  # type: ignore[no-untyped-def]
        """``source`` to ``into``, both uint8 [n] without gaps, for bytes that another core reads next.

        A plain store leaves its line in this core's cache, from where the other core fetches it more slowly than from
        memory; and it reads the line first, which is written whole.
        """
        n = source.size
        k = min(n, -into.ctypes.data % LINE)
        for j in range(k):
            into[j] = source[j]
        while k + LINE <= n:
            _store_line(into, k, source, k)
            k += LINE
        for j in range(k, n):
            into[j] = source[j]
        _fence()  # stores past the caches are seen in no order: all before whoever waits is told


AHEAD = 4  # rows between the prefetch and the use of a row


@inlined
def prefetch_known(block, order, k):  # type: ignore[no-untyped-def]
    """Ask for what is known of the row twice ``AHEAD`` on, and for the order behind it: eight bytes a row are too few
    for the processor to see where they lead."""
    prefetch(order, k + 4 * AHEAD)
    if k + 2 * AHEAD < order.size:
        i = at(order, k + 2 * AHEAD)
        prefetch(block.indptr, i)
        prefetch(block.labels, i)
        prefetch(block.weights, i)
        prefetch(block.norms, i)
        prefetch(block.ids, i)


@inlined
def prefetch_ahead(block, order, k):  # type: ignore[no-untyped-def]
    """Ask for the indices and values of the row ``AHEAD`` places on, a cache line (16 four-byte entries) at a time, and
    for what is known of the row twice as far."""
    prefetch_known(block, order, k)
    if k + AHEAD < order.size:
        i = order[k + AHEAD]
        p, end = block.indptr[i], block.indptr[i + 1]
        explicit = block.values.size > 0
        while p < end:
            prefetch(block.indices, p)
            if explicit:
                prefetch(block.values, p)
            p += 16


ASKED = 2  # rows between asking for weights and their use
LARGE = 1 << 20  # bytes: smaller arrays are in the processor's own cache, and asking for them costs more than it saves


@inlined
def at(array, p):  # type: ignore[no-untyped-def]
    """array[p] of a block's array or an order, p >= 0: numba would look at each whether p counts from the end."""
    return element(array, p)


@inlined
def prefetch_weights(block, order, k, weights):  # type: ignore[no-untyped-def]
    """Ask for what the row ``ASKED`` places on needs of an array whose first axis is the features."""
    if weights.nbytes > LARGE and k + ASKED < order.size:
        i = order[k + ASKED]
        p, end = block.indptr[i], block.indptr[i + 1]
        while p + 4 <= end:
            ask(weights, at(block.indices, p))
            ask(weights, at(block.indices, p + 1))
            ask(weights, at(block.indices, p + 2))
            ask(weights, at(block.indices, p + 3))
            p += 4
        for q in range(p, end):
            ask(weights, at(block.indices, q))


@inlined
def entry(block, i, p):  # type: ignore[no-untyped-def]
    """The value, float64, that row i stores at its entry p: for loops that need more of a row than dot and axpy."""
    if block.values.size > 0:
        return np.float64(at(block.values, p))
    if block.scales.size > 0:
        return np.float64(block.scales[i])
    return np.float64(1)


@inlined
def eights_of(block, i):  # type: ignore[no-untyped-def]
    """(first, last) of the whole eights of the row's entries."""
    first, end = at(block.indptr, i), at(block.indptr, i + 1)
    return first, end - (end - first) % LANES


@inlined
def completed(total, block, i, p, weights):  # type: ignore[no-untyped-def]
    """The sum over the eights, and over the entries from p on in their order, times the row's one value."""
    if block.values.size > 0:
        for q in range(p, at(block.indptr, i + 1)):
            total += np.float64(weights[at(block.indices, q)]) * at(block.values, q)  # of two float32 it is rounded
    else:
        for q in range(p, at(block.indptr, i + 1)):
            total += weights[at(block.indices, q)]
        if block.scales.size > 0:
            total *= block.scales[i]
    return total


@inlined
def dot(block, i, weights):  # type: ignore[no-untyped-def]
    """w . x_i, accumulated in float64: whole eights of entries in eight lanes (``lanes.py``), then the rest
    in their order; one value a row is multiplied with their sum."""
    first, last = eights_of(block, i)
    if block.values.size > 0:
        total = dot_lanes(weights, block.indices, block.values, first, last)
    else:
        total = sum_lanes(weights, block.indices, block.values, first, last)
    return completed(total, block, i, last, weights)


UNIT = 2.0**-53  # of a float64: the most that a rounded result is off, relative to it


@inlined
def dot_slack(block, i, length, bias):  # type: ignore[no-untyped-def]
    """The most that ``dot`` + ``bias`` times the last weight is off: so many roundings, each of a sum of at most
    ||w|| ||x_i||; length = ||w||, all of it (Higham, Accuracy and Stability of Numerical Algorithms, 2002, sect. 3.1).
    """
    roundings = (at(block.indptr, i + 1) - at(block.indptr, i)) // LANES + 16  # in lanes; their tree, the rest, a scale
    return UNIT * roundings * length * math.sqrt(block.norms[i] + bias * bias)


@inlined
def sharp_dot(block, i, weights):  # type: ignore[no-untyped-def]
    """w . x_i as if in twice the precision, and rounded: w in two parts, whose products with a float32 are exact, and
    sums whose rounding errors are summed too (Ogita, Rump, Oishi, SIAM J. Sci. Comput. 2005, Algorithm 5.3). Not
    finite where a weight is beyond float32."""
    total, rest = np.float64(0), np.float64(0)
    for p in range(at(block.indptr, i), at(block.indptr, i + 1)):
        w = np.float64(weights[at(block.indices, p)])
        x = np.float64(at(block.values, p)) if block.values.size > 0 else 1.0
        high = np.float64(np.float32(w))
        for part in (high * x, (w - high) * x):
            added = total + part
            before = added - total
            rest += (total - (added - before)) + (part - before)
            total = added
    total += rest
    if block.values.size == 0 and block.scales.size > 0:
        total *= block.scales[i]
    return total


@inlined
def sharp_slack(block, i, length, one, other, bias):  # type: ignore[no-untyped-def]
    """The most that the sum of ``one``, a ``sharp_dot``, and ``other``, the bias times its weight, is off."""
    entries = 2 * (at(block.indptr, i + 1) - at(block.indptr, i)) + 16
    square = (UNIT * entries) * (UNIT * entries)
    return 4 * UNIT * (abs(one) + abs(other)) + square * length * math.sqrt(block.norms[i] + bias * bias)


NEAR, FAR = 128, 512  # entries between asking for weights, or for indices and values, and their use
SHORT = 64  # entries: shorter rows are over before what was asked for two of them ago is there


@inlined
def distances(block, order, k, last):  # type: ignore[no-untyped-def]
    """(near, far): so many entries behind those of the row order[k], up to ``last``, lie the ones whose weights, and
    those whose indices and values, are to be asked for. Where rows come as they lie, always the same; else ``ASKED``
    and ``AHEAD`` rows, ``ASKED`` more where they are short. The near ones are there, the far ones need not be."""
    i, near, far = at(order, k), 0, 0
    more = ASKED if at(block.indptr, i + 1) - at(block.indptr, i) < SHORT else 0
    asked, ahead = ASKED + more, AHEAD + more
    if k + ahead < order.size:
        near, far = NEAR, FAR
        if at(order, k + ahead) != i + ahead:
            near = at(block.indptr, at(order, k + asked)) - at(block.indptr, i)
            far = at(block.indptr, at(order, k + ahead)) - at(block.indptr, i)
    return min(near, block.indices.size - last - LANES), far


@inlined
def asks(block, first, last, weights):  # type: ignore[no-untyped-def]
    """Whether to ask for weights: they are large, and there are entries to ask for instead of a row's own."""
    return weights.nbytes > LARGE and block.indices.size >= last - first + LANES


@inlined
def dot_ahead(block, order, k, weights):  # type: ignore[no-untyped-def]
    """dot of the row order[k]; what the rows to come need is asked for meanwhile, of large weights too."""
    prefetch_known(block, order, k)
    i = at(order, k)
    first, last = eights_of(block, i)
    near, far = distances(block, order, k, last)
    large = asks(block, first, last, weights)
    if block.values.size > 0:
        total = dot_lanes_ahead(weights, block.indices, block.values, first, last, near, far, large)
    else:
        total = sum_lanes_ahead(weights, block.indices, block.values, first, last, near, far, large)
    return completed(total, block, i, last, weights)


@inlined
def axpy(a, block, i, weights):  # type: ignore[no-untyped-def]
    """w += a x_i; eight entries at a time, which are eight features, then the rest."""
    first, last = eights_of(block, i)
    end = at(block.indptr, i + 1)
    if block.values.size > 0:
        step_lanes(weights, block.indices, block.values, first, last, a)
        for p in range(last, end):
            weights[at(block.indices, p)] += a * at(block.values, p)
    else:
        step = a * block.scales[i] if block.scales.size > 0 else a
        step_lanes_alike(weights, block.indices, block.values, first, last, step)
        for p in range(last, end):
            weights[at(block.indices, p)] += step


@kernel
def inner(a, b):  # type: ignore[no-untyped-def]
    """a . b in float64, in the order of the entries: no BLAS, whose bits depend on threads and processor."""
    total = np.float64(0)
    for j in range(a.size):
        total += np.float64(a[j]) * np.float64(b[j])
    return total


@inlined
def draw(state):  # type: ignore[no-untyped-def]
    """SplitMix64 (Steele, Lea, Flood 2014): the next 64 bits of the stream in ``state[0]``."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def next_random(state):  # type: ignore[no-untyped-def]
    """``draw``"""
    return draw(state)


@inlined
def permute(order, first, last, state):  # type: ignore[no-untyped-def]
    """Fisher-Yates over order[first:last]; 32 random bits a step, so for less than 2^32 entries."""
    for k in range(last - 1, first, -1):
        span = np.uint64(k - first + 1)
        j = first + np.int64(((draw(state) >> np.uint64(32)) * span) >> np.uint64(32))
        order[k], order[j] = order[j], order[k]


@kernel
def shuffle(order, first, last, state):  # type: ignore[no-untyped-def]
    """``permute``"""
    permute(order, first, last, state)


@inlined
def permute_runs(members, run, state, runs, order):  # type: ignore[no-untyped-def]
    """Fill ``order`` with ``members``, run by run in the order that is drawn for ``runs``; of no ``runs`` it is a full
    permutation."""
    n = members.size
    if runs.size == 0:
        for i in range(n):  # order[:n] = members would compile a message with both shapes in it, for two seconds
            order[i] = members[i]
        permute(order, 0, n, state)
    else:
        for r in range(runs.size):
            runs[r] = r
        permute(runs, 0, runs.size, state)
        first = 0
        for r in runs:
            k = first
            for i in range(r * run, r * run + run if r * run + run < n else n):
                order[k] = members[i]
                k += 1
            permute(order, first, k, state)
            first = k


@kernel
def _shuffle_runs(members, run, state, runs, order):  # type: ignore[no-untyped-def]
    permute_runs(members, run, state, runs, order)


@brief
def _shuffle_few_runs(members, run, state, runs, order):  # type: ignore[no-untyped-def]
    permute_runs(members, run, state, runs, order)


FEW = 1 << 15  # rows: work of some 10 ns on each takes about as long as it may take to get Python's lock back


def shuffle_runs(members: np.ndarray, run: int, state: np.ndarray, order: np.ndarray) -> None:
    """Fill ``order`` with ``members``: runs of ``run`` neighbours in random order, each shuffled inside.

    Neighbours in memory stay near each other in time, which is worth two to three times the speed of a full
    permutation on short rows; with ``run`` 1 or at least ``members.size`` it is a full permutation.
    """
    n = members.size
    runs = np.empty(-(-n // run) if 1 < run < n else 0, np.int64)
    (_shuffle_few_runs if n <= FEW else _shuffle_runs)(members, run, state, runs, order)


def random_state(*key: int) -> np.ndarray:
    """uint64[1], the stream of numbers that belongs to ``key`` (seed, epoch, group, ...)."""
    digest = hashlib.blake2b(repr(tuple(int(k) for k in key)).encode(), digest_size=8).digest()
    return np.frombuffer(digest, np.uint64).copy()
