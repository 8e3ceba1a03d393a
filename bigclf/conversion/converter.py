"""The two passes from rows to shards: parsed in parallel and spilled by key, then merged into shards."""

from __future__ import annotations

import collections
import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np

from bigclf import files
from bigclf.compiled.jit import compiling
from bigclf.conversion import shuffle as merging
from bigclf.conversion.destination import QUARANTINE, building
from bigclf.conversion.resuming import Workplace
from bigclf.conversion.text import pieces, readers
from bigclf.conversion.text.parsed import Options, as_slab
from bigclf.data.bad_rows import Reasons, left_out, too_many, with_way_out
from bigclf.data.chunk_table import GIVEN
from bigclf.data.dataset import MOST_MARKS, TARGET_NNZ, Dataset
from bigclf.errors import DataError, MemoryBudgetError, RunError
from bigclf.limits import memory_limit
from bigclf.machine import anonymous_bytes
from bigclf.maths.block import Block, check_rows, one_value_a_row
from bigclf.processes import LIBRARIES, end_with
from bigclf.progress import Watcher
from bigclf.units import format_bytes, parse_bytes

if TYPE_CHECKING:
    from concurrent.futures import Future

    from joblib.externals.loky import ProcessPoolExecutor
    from numpy.typing import ArrayLike

    from bigclf.conversion.tables.from_columns import HeldOut


SHARD_NNZ = 2**23
LEAST_MEMORY = 96_000_000  # bytes a process needs to parse a piece and to write a chunk
WORTH_A_PROCESS = 2**26  # bytes of text that take as long to parse as a process to start
PARSED_PIECE = 2**24  # bytes a piece becomes, about
MAX_CHUNK_NNZ = 2**27
QUERIES_IGNORED = "qid: is ignored: bigclf learns classes and numbers, no ranking within queries"
D = TypeVar("D", bound="Done")
_A = TypeVar("_A")
_B = TypeVar("_B")


def check_sizes(chunk_nnz: int, shard_nnz: int) -> None:
    if not 1 <= chunk_nnz <= MAX_CHUNK_NNZ:
        raise ValueError(f"chunk_nnz must be from 1 to 2^27, not {chunk_nnz!r}")
    if shard_nnz < 1:
        raise ValueError(f"shard_nnz must be at least 1, not {shard_nnz!r}")


def processes(asked: int | None, total: int, sources: list[pieces.Source]) -> int:
    """Processes to use: as asked or one a core, as far as the budget, the machine's memory and the pieces go.

    Raises
    ------
    MemoryBudgetError : if there is not enough memory for them.
    """
    streamed = any(source.compressed for source in sources)
    each = 2 * LEAST_MEMORY if streamed and asked != 1 else LEAST_MEMORY  # decompressed text on its way
    if asked is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        text = sum(source.size * (4 if source.compressed else 1) for source in sources)
        beside = memory_limit()[0] - anonymous_bytes() - total  # what there is for libraries of other processes
        asked = max(1, min(cores, text // WORTH_A_PROCESS, total // each, beside // LIBRARIES))
        each = LEAST_MEMORY if asked == 1 else each
    if asked < 1:
        raise ValueError(f"workers must be at least 1, not {asked!r}")
    require_memory(total, asked * each, f"converting with {asked} process{'es' if asked > 1 else ''}")
    return asked


def require_memory(total: int, needed: int, what: str) -> None:
    if total < needed:
        raise MemoryBudgetError(
            f"memory={format_bytes(total)} is too little for {what}; memory={format_bytes(needed)} would do"
        )


class Done(Protocol):
    """What came of a task, whichever rows it was for."""

    @property
    def totals(self) -> merging.Totals: ...

    @property
    def runs(self) -> list[merging.Run]: ...

    @property
    def pieces(self) -> list[tuple[int, int, int, int]]: ...

    @property
    def n_bytes(self) -> int: ...

    @property
    def bad(self) -> Sequence[object]: ...


class Converter:
    """The two passes of a conversion and what they found."""

    def __init__(
        self, directory: str, workers: int, total: int, progress: Watcher | None, work: Workplace | None = None
    ) -> None:
        self.directory, self.workers, self.progress, self.work = directory, workers, progress, work
        self.room = total // workers
        self.scratch = work.scratch if work else files.join(directory, "runs")
        files.make_directory(self.scratch)
        self.totals, self.runs = merging.Totals(), list[merging.Run]()
        self.pieces = list[tuple[int, int, int, int]]()
        self.n_bad, self.examples, self.n_bytes = 0, list[str](), 0
        self.reasons, self.n_elsewhere = Reasons(), 0  # rows that were read and belong to another part
        self.started = time.monotonic()
        self.pool = _pool(workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=True, kill_workers=kind is not None)
        if self.progress is not None:
            self.progress.stop()

    def parse(self, sources: list[pieces.Source], job: pieces.Job, keep_bad: bool) -> None:
        """First pass: parse every piece, spill its rows in order of their keys."""
        if self.progress is not None:
            self.progress.start({"task": "parse", "bytes": sum(s.size for s in sources), "workers": self.workers})
        files.remove(files.join(self.directory, QUARANTINE))  # of an earlier attempt
        lines: collections.Counter[int] = collections.Counter()

        def cut(source: pieces.Source, pieces_a_task: int) -> Iterator[pieces.Task]:
            return pieces.tasks_of(source, pieces_a_task, job.max_line, job.reader.record)

        for task, done in self._results(functools.partial(pieces.run_task, job), sources, cut, job.stop_at_bad):
            for bad in done.bad:
                self._note_bad(task.source, bad._replace(line=bad.line + lines[task.source.number]), job, keep_bad)
            lines[task.source.number] += done.n_lines
            self._count(done)

    def _results(
        self,
        run: Callable[[pieces.Task], D],
        sources: list[pieces.Source],
        cut: Callable[[pieces.Source, int], Iterator[pieces.Task]],
        stop_at_bad: bool,
    ) -> Iterator[tuple[pieces.Task, D]]:
        """(task, what came of it) of all tasks in order, written down for another attempt; ``cut`` makes the tasks of a
        source of so many pieces."""
        tasks = (task for source in sources for task in self._tasks(source, cut))
        before: pieces.Source | None = None
        known = self.work.known if self.work else _nothing
        for task, done in _in_order(self.pool, run, tasks, self.workers + 1, known):
            if self.work and not (done.bad and stop_at_bad):
                self.work.note(task, done)
                if before not in (None, task.source):
                    self.work.note_end(before)
            before = task.source
            yield task, done
        if self.work and before is not None:
            self.work.note_end(before)

    def _count(self, done: Done) -> None:
        """Add up what came of a task."""
        self.totals.add(done.totals)
        self.runs += done.runs
        self.pieces += done.pieces
        self.n_bytes += done.n_bytes
        if self.progress is not None:
            self.progress.advance(done.totals.n_rows, done.n_bytes)

    def _tasks(
        self, source: pieces.Source, cut: Callable[[pieces.Source, int], Iterator[pieces.Task]]
    ) -> Iterator[pieces.Task]:
        n_pieces = self._pieces_a_task(source)
        if self.work:
            n_pieces = self.work.pieces_a_task(source, n_pieces)
            if (known := self.work.all_tasks(source)) is not None:
                return known
        return cut(source, n_pieces)

    def _pieces_a_task(self, source: pieces.Source) -> int:
        """Enough to fill a run, few enough to keep all workers busy to the end."""
        room = max(1, self.room // (4 * PARSED_PIECE))
        if source.compressed:
            return max(1, room // 2)
        return min(room, max(1, source.n_pieces // (4 * self.workers)))

    def _note_bad(self, source: pieces.Source, bad: pieces.Bad, job: pieces.Job, keep: bool) -> None:
        if job.stop_at_bad:
            raise with_way_out(DataError(bad.reason, file=source.path, line=bad.line))
        self.n_bad += 1
        told = f"{source.path}, line {bad.line}: {bad.reason}"
        self.reasons.add(bad.reason, told)
        if len(self.examples) < 10:
            self.examples.append(told)
        if keep:
            with files.open_binary(files.join(self.directory, QUARANTINE), "ab") as file:
                name = files.base_name(source.path).encode("utf-8", "replace")
                file.write(b"# %s, line %d: %s\n%s\n" % (name, bad.line, bad.reason.encode(), bad.text))

    def check(self, sources: list[pieces.Source], max_bad_fraction: float) -> None:
        """Refuse what cannot become a dataset, and sources that changed while they were read."""
        for source in sources:
            if files.status(source.path) != (source.size, source.mtime_ns):
                raise DataError("the file changed while it was converted; convert it again", file=source.path)
        n_rows = self.totals.n_rows + self.n_bad
        if self.n_bad > max_bad_fraction * (n_rows + self.n_elsewhere):
            raise DataError(too_many(self.reasons, n_rows + self.n_elsewhere, max_bad_fraction))
        if n_rows == 0:
            raise DataError("there are no rows", file=sources[0].path if len(sources) == 1 else None)
        if not self.totals.fractions and any(abs(label) >= 2**53 for label in self.totals.labels):
            raise DataError("a label is beyond 2^53, where whole numbers can no longer be told apart; give the classes "
                            "smaller numbers", column="label")  # fmt: skip

    def plan(self, job: pieces.Job, chunk_nnz: int, shard_nnz: int) -> merging.Plan:
        """What the second pass is to do."""
        bounds = self._bounds(shuffled=job.seed is not None, shard_nnz=shard_nnz)
        features = made_by(job.options)
        if self.totals.real:
            return plan_of(self, bounds, None, None, job.options.n_features, features, chunk_nnz)
        codes = np.array(sorted(self.totals.labels), np.float64)
        classes = codes.astype(np.int64) if integral(self.totals.labels) else codes
        return plan_of(self, bounds, codes, classes, job.options.n_features, features, chunk_nnz)

    def told(self, sources: list[pieces.Source], warnings: list[str], part: HeldOut | None = None) -> dict[str, Any]:
        """What is kept beside the shards of how they came about, but for what another call would have otherwise."""
        marks = [] if len(sources) > MOST_MARKS else [files.mark(source.path) for source in sources]
        parted = None if part is None else list(part)
        return {"sources": marks, "part": parted, "warnings": warnings, "report": self._told_of_bad_rows()}

    def _told_of_bad_rows(self) -> dict[str, object]:
        why = {"left_out": left_out(self.reasons)} if self.n_bad else {}
        return {"bad_rows": self.n_bad, "bad_examples": self.examples, **why}

    def write(self, plan: merging.Plan, told: Mapping[str, object]) -> None:
        """Second pass: each shard collects its range of keys from all runs; the manifest has what is ``told``."""
        shards = [n for n in range(len(plan.bounds) - 1) if self.work is None or not merging.is_written(plan, n)]
        for _ in _in_order(self.pool, functools.partial(merging.write_shard, plan), shards, 2 * self.workers):
            pass
        if self.work:
            self.work.note_written()
        for run in self.runs:
            files.remove(run.path)
        files.remove_tree(self.scratch, surely=self.work is None)  # then it lies among the shards
        Dataset(self.directory).write_manifest(self.directory, told)

    def _bounds(self, shuffled: bool, shard_nnz: int) -> list[int]:
        """Ranges of keys that become shards: even ones, or groups of consecutive pieces of about equal size."""
        cost = [nnz + merging.ROW_COST * rows for _, _, rows, nnz in self.pieces]
        if shuffled:
            return merging.even_bounds(_shard_count(sum(cost), shard_nnz))
        bounds, held = [0], 0
        for (source, piece, _, _), size in zip(self.pieces, cost, strict=True):
            if held and held + size > shard_nnz:
                bounds.append((source << (pieces.PIECE_BITS + pieces.ROW_BITS)) + (piece << pieces.ROW_BITS))
                held = 0
            held += size
        return [*bounds, 2**64]

    def report(self, dataset: Dataset) -> dict[str, object]:
        return {
            "rows": self.totals.n_rows,
            "nnz": self.totals.nnz,
            "seconds": time.monotonic() - self.started,
            "bytes_in": self.n_bytes,
            "bytes_kept": self.work.kept_bytes if self.work else 0,
            "bytes_out": sum(f.size for f in dataset.fingerprints),
            "largest_relative_rounding": self.totals.rounding,
            **self._told_of_bad_rows(),
        }

    def warnings(self, index_base: int | None) -> list[str]:
        found = []
        if index_base == 0 and self.totals.min_index > 0:
            found.append("no row has index 0: if the text counts features from 1, convert it with index_base=1")
        if self.totals.queries:
            found.append(QUERIES_IGNORED)
        if self.n_bad:
            found.append(left_out(self.reasons))
        return found


def made_by(options: Options) -> dict[str, object] | None:
    """What shards and models say of features of text: that they are hashed names, or from which number on the text
    counts them; None where there is nothing to say."""
    if options.hash_bits is not None:
        return {"kind": "hashed names", "version": 1, "hash_bits": options.hash_bits}
    return {**GIVEN, "counted_from": options.index_base} if options.tells_base else None


def integral(labels: Iterable[float]) -> bool:
    return all(label == round(label) and abs(label) < 2**53 for label in labels)


def _pool(workers: int) -> ProcessPoolExecutor | None:
    """Processes, or None for this one alone.

    loky's (it comes with joblib) start afresh and import no ``__main__``, so scripts need no guard, and they notice
    the death of a worker; they end with this process.
    """
    compile_kernels()
    if workers == 1:
        return None
    from joblib.externals.loky import ProcessPoolExecutor

    return ProcessPoolExecutor(workers, initializer=end_with, initargs=(os.getpid(),))


def compile_kernels() -> None:
    """Compile the kernels once, here, so that workers find them in the cache."""
    bounds, indices, values = np.array([0, 1]), np.zeros(1, np.uint32), np.ones(1, np.float32)
    with compiling():
        for source in (indices, values):
            merging.take_rows(bounds[:1], bounds[1:], np.zeros(1, np.int64), source, source.copy())
        check_rows(bounds, indices, values, np.uint32(1), np.empty(1))
        one_value_a_row(bounds, values)


def compile_parser(reader: readers.Reader, options: Options) -> None:
    """Compile what parses, here, too."""
    with compiling():
        as_slab(reader.parse(reader.example, options))


def _nothing(_item: object) -> None:
    """Nothing is known."""


def _in_order(
    pool: ProcessPoolExecutor | None,
    function: Callable[[_A], _B],
    items: Iterable[_A],
    in_flight: int,
    known: Callable[[_A], _B | None] = _nothing,
) -> Iterator[tuple[_A, _B]]:
    """(item, function(item)) in the order of the items, ``in_flight`` of them under way in the pool's processes; what
    is ``known`` of an item is not asked for."""
    if pool is None:
        for item in items:
            told = known(item)
            yield item, function(item) if told is None else told
        return
    waiting: collections.deque[tuple[_A, _Known[_B] | Future[_B]]] = collections.deque()
    for item in items:
        told = known(item)
        waiting.append((item, pool.submit(function, item) if told is None else _Known(told)))
        if len(waiting) >= in_flight:
            yield _first_of(waiting)
    while waiting:
        yield _first_of(waiting)


class _Known(Generic[_B]):
    """A result that is there already."""

    def __init__(self, result: _B) -> None:
        self._result = result

    def result(self) -> _B:
        return self._result


def _first_of(waiting: collections.deque[tuple[_A, _Known[_B] | Future[_B]]]) -> tuple[_A, _B]:
    """Wait for the item that was submitted first.

    Raises
    ------
    RunError : if a process died.
    """
    from concurrent.futures.process import BrokenProcessPool

    item, future = waiting.popleft()
    try:
        return item, future.result()
    except BrokenProcessPool as error:
        raise RunError(
            "a process of the conversion died, perhaps for want of memory or threads; use fewer workers"
        ) from error


def write_shards(
    blocks: Iterable[Block | Sequence[object]],
    out: files.PathLike,
    *,
    classes: ArrayLike | Callable[[], tuple[np.ndarray, np.ndarray]] | None,
    n_features: int | Callable[[], int] | None = None,
    shuffle_rows: bool = False,
    seed: int = 0,
    chunk_nnz: int = TARGET_NNZ,
    shard_nnz: int = SHARD_NNZ,
    features: Mapping[str, object] | None = None,
    memory: float | str = "256MB",
    overwrite: bool = False,
    sets: str = "",
) -> Dataset:
    """Write rows from memory as shards, in their order or shuffled.

    Parameters
    ----------
    blocks : blocks, or tuples (indptr, indices, values or None, labels[, weights]); labels are class codes, or
        numbers.
    out : directory to make.
    classes : [K] ascending; bools, ints, floats or strings. None: the labels are numbers to predict. A function
        is asked once every block has been seen for the classes and the place of each code among them, float64 [K].
    n_features : columns; None takes the largest index plus one; a function is asked once every block has been seen.
    memory : bytes to allocate besides the blocks, about.
    sets : the kind of sets of labels that ``classes`` are (``label_sets``), each as one text; "": they are none.

    Raises
    ------
    DataError : if a block is not what it should be. RunError : if ``out`` exists or the disk is full.
    """
    total = parse_bytes(memory)
    check_sizes(chunk_nnz, shard_nnz)
    require_memory(total, LEAST_MEMORY, "writing shards")
    known: np.ndarray | None = None
    ranks = None
    if classes is not None and not callable(classes):
        known = np.asarray(classes)
    with building(out, overwrite) as directory, Converter(directory, 1, total, None) as converter:
        prefix = files.join(converter.scratch, "rows")
        spiller = merging.Spiller(prefix, seed if shuffle_rows else None, total // 4)
        for slab in map(merging.as_slab, blocks):
            first = spiller.totals.n_rows
            spiller.add(np.arange(first, first + slab.n_rows, dtype=np.uint64), slab)
        spiller.flush()
        converter.totals, converter.runs = spiller.totals, spiller.runs
        if callable(classes):
            known, ranks = classes()
        if known is not None:
            _check_codes(spiller.totals.labels, known)
        bounds = row_bounds(spiller.totals, shard_nnz, shuffle_rows)
        codes = None if known is None else np.arange(known.size, dtype=np.float64)
        width = n_features() if callable(n_features) else n_features
        plan = plan_of(converter, bounds, codes, known, width, features, chunk_nnz)
        converter.write(plan._replace(ranks=ranks, sets=sets), {})
    return Dataset(out)


def _check_codes(codes: Iterable[float], classes: np.ndarray) -> None:
    wrong = [code for code in codes if not (0 <= code < classes.size and code == int(code))]
    if wrong:
        last = classes.size - 1
        raise DataError(f"labels must be codes of the {classes.size} classes, 0 to {last}, not {wrong[0]:g}")
    if classes.size and (classes[1:] <= classes[:-1]).any():
        raise DataError("classes must ascend and differ")


def row_bounds(totals: merging.Totals, shard_nnz: int, shuffled: bool) -> list[int]:
    """Ranges of keys that become shards, of about equally many rows."""
    n_shards = _shard_count(totals.nnz + merging.ROW_COST * totals.n_rows, shard_nnz)
    if shuffled:
        return merging.even_bounds(n_shards)
    return [s * totals.n_rows // n_shards for s in range(n_shards)] + [2**64]


def plan_of(
    converter: Converter,
    bounds: list[int],
    codes: np.ndarray | None,
    classes: np.ndarray | None,
    n_features: int | None,
    features: Mapping[str, object] | None,
    chunk_nnz: int,
) -> merging.Plan:
    """The plan of the second pass."""
    totals = converter.totals
    return merging.Plan(
        converter.runs,
        bounds,
        converter.directory,
        codes,
        classes,
        totals.max_index + 1 if n_features is None else n_features,
        8 if totals.max_index >= 2**31 else 4,
        totals.binary,
        totals.weighted,
        features,
        chunk_nnz,
        converter.room,
    )


def _shard_count(cost: int, shard_nnz: int) -> int:
    return max(1, round(cost / shard_nnz))
