"""Other formats into shards, once: parsed in parallel, shuffled by key, in bounded memory."""

from __future__ import annotations

import collections
import contextlib
import errno
import functools
import inspect
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Never, Self, TypeVar

import numpy as np

from bigclf.data import files
from bigclf.data.bad_rows import MOST_BAD, Reasons, left_out, too_many, with_way_out
from bigclf.data.collected import collected, is_collection
from bigclf.data.convert import appending, pieces, readers
from bigclf.data.convert import shuffle as merging
from bigclf.data.convert.parsed import Options
from bigclf.data.convert.resuming import SPARSE, Workplace, tidy
from bigclf.data.dataset import CHUNK_TABLE, MANIFEST, MOST_MARKS, TARGET_NNZ, Dataset
from bigclf.data.features.spec import refuse_shell_names
from bigclf.errors import DataError, MemoryBudgetError, RunError, masked
from bigclf.progress import watcher
from bigclf.units import format_bytes, near, parse_bytes

SHARD_NNZ = 2**23
LEAST_MEMORY = 96_000_000  # bytes a process needs to parse a piece and to write a chunk
WORTH_A_PROCESS = 2**26  # bytes of text that take as long to parse as a process to start
PARSED_PIECE = 2**24  # bytes a piece becomes, about
MAX_CHUNK_NNZ = 2**27
QUARANTINE = "_bigclf_quarantine.txt"
OF_COLUMNS = ("_bigclf_features.json", "_bigclf_features.safetensors")  # how they became features
QUERIES_IGNORED = "qid: is ignored: bigclf learns classes and numbers, no ranking within queries"
RAW_FORMATS = ("csv", "tsv", "jsonl", "text", "parquet")
BAD_ROWS = ("error", "skip", "quarantine")
_A = TypeVar("_A")
_B = TypeVar("_B")


def convert(
    source: Any,
    out: files.PathLike,
    *,
    format: str | None = None,
    chunk_nnz: int = TARGET_NNZ,
    shuffle: bool = True,
    seed: int = 0,
    memory: float | str = "1GB",
    workers: int | None = None,
    on_bad_rows: str = "error",
    max_bad_fraction: float = MOST_BAD,
    overwrite: bool = False,
    index_base: int | None = None,
    n_features: int | None = None,
    hash_bits: int | None = None,
    shard_nnz: int = SHARD_NNZ,
    progress: Any = None,
    features: Any = None,
    append: bool = False,
    **others: Never,
) -> Dataset:
    """Convert sparse text, or raw tables and texts, to shards.

    Parameters
    ----------
    source : path, directory, glob or list of them; plain, gzip, bzip2, xz or zstd. Or a Dask DataFrame of raw columns,
        which its workers write down beside ``out`` first.
    out : directory to make; it appears when all is done, or not at all. A conversion that was killed, interrupted or
        found the disk full goes on from what it had finished when it is called again with the same sources and options.
    format : "svmlight", "vw" (Vowpal Wabbit's text) or a reader of your own (``bigclf.readers``); of raw columns "csv",
        "tsv", "jsonl", "text" or "parquet". None: what the shards that are appended to were made of, else "svmlight".
    chunk_nnz : entries a chunk.
    shuffle : put the rows in a random order that depends on ``seed``, the source's contents and nothing else.
    memory : bytes to allocate, over all processes and besides what interpreter and libraries take.
    workers : processes; None: one a core, as far as the memory goes.
    on_bad_rows : "error" stops at the first; "skip" leaves them out; "quarantine" also keeps them in
        ``_bigclf_quarantine.txt``, with file, line and reason.
    max_bad_fraction : of all rows; more is an error all the same.
    overwrite : replace shards that are there.
    index_base : the first feature's number in the text, 0 or 1; None: 1 in svmlight, 0 in others.
    n_features : columns; None takes the largest index.
    hash_bits : of "vw": names of features are hashed to 2^hash_bits features, 1 to 30; None: they are whole numbers.
    shard_nnz : entries a file, about.
    progress : object with start(plan), advance(rows, bytes) and stop().
    features : of raw columns, what becomes of them: a ``Spec``, a table or YAML (``data/features/spec.py``), or a
        model or dataset that was made of such columns, with what was learned for it; what is else
        learned of them in the same read (means, dictionaries, frequencies ...) goes with the shards.
    append : add to the shards that are at ``out``, which keep their bytes. Classes and, of sparse text, features may
        become more; raw columns become the features that they are there.

    Returns
    -------
    Dataset : its ``report`` has rows, nnz, seconds, bytes_in, bytes_out, largest_relative_rounding, bad_rows (how
        many) and bad_examples.

    Raises
    ------
    DataError : with file and line. MemoryBudgetError : if ``memory`` is too small. RunError : if ``out`` exists or
        the disk is full.
    """
    refuse_shell_names(others)
    if others:
        known = inspect.signature(convert).parameters
        raise TypeError(f"convert has no {next(iter(others))!r}{near(next(iter(others)), known)}")
    if is_collection(source):
        given = {name: value for name, value in locals().items() if name not in ("source", "format", "others", "known")}
        with collected(source, out) as (folder, kind):
            if kind is None:
                raise DataError("rows of indices and values need no conversion: write them by to_parquet and open that")
            return convert(folder, format=kind, **given)
    progress = watcher(progress)
    format = format or (appending.format_of(out) if append else "svmlight")
    if features is not None or format in RAW_FORMATS:
        _check_bad_rows(on_bad_rows, max_bad_fraction)
        _check_sizes(chunk_nnz, shard_nnz)
        sparse = dict(index_base=index_base is not None, n_features=n_features, hash_bits=hash_bits)
        return _convert_columns(
            source, out, format, features, sparse,
            chunk_nnz=chunk_nnz, shuffle=shuffle, seed=seed, memory=memory, workers=workers, on_bad_rows=on_bad_rows,
            max_bad_fraction=max_bad_fraction, overwrite=overwrite, shard_nnz=shard_nnz, progress=progress,
            append=append,
        )  # fmt: skip
    reader = readers.find(format, RAW_FORMATS)
    _check_choices(on_bad_rows, index_base, chunk_nnz, shard_nnz, max_bad_fraction)
    options = _options(reader, format, index_base, n_features, hash_bits)
    total = parse_bytes(memory)
    sources = [pieces.look_at(path, number) for number, path in enumerate(files.expand(source))]
    workers = _workers(workers, total, sources)
    before = appending.there(out) if append else None
    identity = {
        "append": appending.identity(before),
        "sources": _as_known(sources),
        "options": [format, repr(options), chunk_nnz, shuffle, seed, on_bad_rows, max_bad_fraction, shard_nnz],
        "reader": readers.code_of(reader),
    }
    with (
        _resuming(out, overwrite, identity, before) as work,
        _Converter(work.directory, workers, total, progress, work) as converter,
    ):
        _compile_parser(reader, options)
        max_line = max(converter.room // 8, 2**24)
        if reader.prepare is not None:
            options = reader.prepare(pieces.first_text(sources[0], max_line, reader.record), options)
        job = pieces.Job(
            reader,
            options,
            seed if shuffle else None,
            converter.scratch,
            converter.room // 4,
            on_bad_rows == "error",
            max_line,
        )
        converter.parse(sources, job, keep_bad=on_bad_rows == "quarantine")
        converter.check(sources, max_bad_fraction)
        told = converter.told(sources, converter.warnings(index_base))
        converter.write(appending.alike(converter.plan(job, chunk_nnz, shard_nnz), before), told)
    dataset = Dataset(out)
    dataset.report = converter.report(dataset)
    dataset.warnings += converter.warnings(index_base)
    return dataset


def _as_known(sources: list[pieces.Source]) -> list[tuple[str, int, int]]:
    """By what sources are known again: path, size and time of change."""
    return [(masked(files.absolute(source.path)), source.size, source.mtime_ns) for source in sources]


def _convert_columns(
    source: Any, out: files.PathLike, format: str, features: Any, sparse: Mapping[str, Any], **options: Any
) -> Dataset:
    """``convert`` of raw columns; ``sparse``: options that only sparse rows have, with a value that is not false."""
    from bigclf.data.convert.from_columns import convert_columns
    from bigclf.data.convert.tables import format_of
    from bigclf.data.features.finish import given_features

    if given := [name for name, value in sparse.items() if value]:
        raise TypeError(f"{given[0]} has no effect with raw columns: their features are numbered by the spec")
    spec, learned = given_features(features, format, functools.partial(format_of, source))
    return convert_columns(source, out, spec, learned=learned, **options)


def _options(
    reader: readers.Reader, format: str, index_base: int | None, n_features: int | None, hash_bits: int | None
) -> Options:
    """What the reader is told; TypeError for what has no effect on it."""
    if reader.index_base is None and index_base is not None:
        raise TypeError(f"index_base has no effect on format={format!r}, whose reader counts from 0")
    base = index_base if index_base is not None else reader.index_base or 0
    if hash_bits is None:
        return Options(base, n_features)
    if not reader.hashes:
        raise TypeError(f"hash_bits has no effect on format={format!r}, whose features are numbers")
    if not 1 <= hash_bits <= 30:
        raise ValueError(f"hash_bits must be from 1 to 30, not {hash_bits!r}")
    if n_features is not None:
        raise TypeError("n_features has no effect with hash_bits, which say how many features there are")
    return Options(base, 2**hash_bits, hash_bits)


def _check_choices(
    on_bad_rows: str, index_base: int | None, chunk_nnz: int, shard_nnz: int, max_bad_fraction: float
) -> None:
    if index_base not in (None, 0, 1):
        raise ValueError(f"index_base must be 0 or 1, not {index_base!r}")
    _check_bad_rows(on_bad_rows, max_bad_fraction)
    _check_sizes(chunk_nnz, shard_nnz)


def _check_bad_rows(on_bad_rows: str, max_bad_fraction: float) -> None:
    if on_bad_rows not in BAD_ROWS:
        raise ValueError(f"on_bad_rows must be one of {', '.join(BAD_ROWS)}, not {on_bad_rows!r}")
    if not 0 <= max_bad_fraction <= 1:
        raise ValueError(f"max_bad_fraction must be from 0 to 1, not {max_bad_fraction!r}")


def _check_sizes(chunk_nnz: int, shard_nnz: int) -> None:
    if not 1 <= chunk_nnz <= MAX_CHUNK_NNZ:
        raise ValueError(f"chunk_nnz must be from 1 to 2^27, not {chunk_nnz!r}")
    if shard_nnz < 1:
        raise ValueError(f"shard_nnz must be at least 1, not {shard_nnz!r}")


def _workers(asked: int | None, total: int, sources: list[pieces.Source]) -> int:
    """Processes to use: as asked or one a core, as far as memory and pieces go.

    Raises
    ------
    MemoryBudgetError : if there is not enough memory for them.
    """
    streamed = any(source.compressed for source in sources)
    each = 2 * LEAST_MEMORY if streamed and asked != 1 else LEAST_MEMORY  # decompressed text on its way
    if asked is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        text = sum(source.size * (4 if source.compressed else 1) for source in sources)
        asked = max(1, min(cores, text // WORTH_A_PROCESS, total // each))
        each = LEAST_MEMORY if asked == 1 else each
    if asked < 1:
        raise ValueError(f"workers must be at least 1, not {asked!r}")
    _require(total, asked * each, f"converting with {asked} process{'es' if asked > 1 else ''}")
    return asked


def _require(total: int, needed: int, what: str) -> None:
    if total < needed:
        raise MemoryBudgetError(
            f"memory={format_bytes(total)} is too little for {what}; memory={format_bytes(needed)} would do"
        )


class _Converter:
    """The two passes of a conversion and what they found."""

    def __init__(self, directory: str, workers: int, total: int, progress: Any, work: Workplace | None = None) -> None:
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

    def __exit__(self, *error: Any) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=True, kill_workers=error[0] is not None)
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
        run: Callable[[pieces.Task], Any],
        sources: list[pieces.Source],
        cut: Callable[[pieces.Source, int], Iterator[pieces.Task]],
        stop_at_bad: bool,
    ) -> Iterator[tuple[pieces.Task, Any]]:
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

    def _count(self, done: Any) -> None:
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
            return _plan(self, bounds, None, None, job.options.n_features, features, chunk_nnz)
        codes = np.array(sorted(self.totals.labels), np.float64)
        classes = codes.astype(np.int64) if _integral(self.totals.labels) else codes
        return _plan(self, bounds, codes, classes, job.options.n_features, features, chunk_nnz)

    def told(self, sources: list[pieces.Source], warnings: list[str], part: Any = None) -> dict[str, Any]:
        """What is kept beside the shards of how they came about, but for what another call would have otherwise."""
        marks = [] if len(sources) > MOST_MARKS else [files.mark(source.path) for source in sources]
        report = {"bad_rows": self.n_bad, "bad_examples": self.examples}
        return {"sources": marks, "part": None if part is None else list(part), "warnings": warnings, "report": report}

    def write(self, plan: merging.Plan, told: Mapping[str, Any]) -> None:
        """Second pass: each shard collects its range of keys from all runs; the manifest has what is ``told``."""
        shards = [n for n in range(len(plan.bounds) - 1) if self.work is None or not merging.is_written(plan, n)]
        for _ in _in_order(self.pool, functools.partial(merging.write_shard, plan), shards, 2 * self.workers):
            pass
        if self.work:
            self.work.note_written()
        for run in self.runs:
            files.remove(run.path)
        files.remove_tree(self.scratch)
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

    def report(self, dataset: Dataset) -> dict[str, Any]:
        return {
            "rows": self.totals.n_rows,
            "nnz": self.totals.nnz,
            "seconds": time.monotonic() - self.started,
            "bytes_in": self.n_bytes,
            "bytes_kept": self.work.kept_bytes if self.work else 0,
            "bytes_out": sum(f.size for f in dataset.fingerprints),
            "largest_relative_rounding": self.totals.rounding,
            "bad_rows": self.n_bad,
            "bad_examples": self.examples,
            **({"left_out": left_out(self.reasons)} if self.n_bad else {}),
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


def made_by(options: Options) -> dict[str, Any] | None:
    """What shards and models say of features that are hashed names; None of those that are given."""
    if options.hash_bits is None:
        return None
    return {"kind": "hashed names", "version": 1, "hash_bits": options.hash_bits}


def _integral(labels: Iterable[float]) -> bool:
    return all(label == round(label) and abs(label) < 2**53 for label in labels)


def _pool(workers: int) -> Any:
    """Processes, or None for this one alone.

    loky's (it comes with joblib) start afresh and import no ``__main__``, so scripts need no guard, and they notice
    the death of a worker; they end with this process.
    """
    _compile()
    if workers == 1:
        return None
    from joblib.externals.loky import ProcessPoolExecutor

    from bigclf.child import end_with

    return ProcessPoolExecutor(workers, initializer=end_with, initargs=(os.getpid(),))


def _compile() -> None:
    """Compile the kernels once, here, so that workers find them in the cache."""
    from bigclf.block import check_rows, one_value_a_row
    from bigclf.jit import compiling

    bounds, indices, values = np.array([0, 1]), np.zeros(1, np.uint32), np.ones(1, np.float32)
    with compiling():
        for source in (indices, values):
            merging.take_rows(bounds[:1], bounds[1:], np.zeros(1, np.int64), source, source.copy())
        check_rows(bounds, indices, values, np.uint32(1), np.empty(1))
        one_value_a_row(bounds, values)


def _compile_parser(reader: readers.Reader, options: Options) -> None:
    """Compile what parses, here, too."""
    from bigclf.data.convert.parsed import as_slab
    from bigclf.jit import compiling

    with compiling():
        as_slab(reader.parse(reader.example, options))


def _nothing(_item: Any) -> None:
    """Nothing is known."""


def _in_order(
    pool: Any,
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
    waiting: collections.deque[tuple[_A, Any]] = collections.deque()
    for item in items:
        told = known(item)
        waiting.append((item, pool.submit(function, item) if told is None else _Known(told)))
        if len(waiting) >= in_flight:
            yield _first_of(waiting)
    while waiting:
        yield _first_of(waiting)


class _Known:
    """A result that is there already."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def result(self) -> Any:
        return self._result


def _first_of(waiting: collections.deque[tuple[_A, Any]]) -> tuple[_A, Any]:
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
        raise RunError("a process of the conversion died, perhaps for want of memory; use fewer workers") from error


def write_shards(
    blocks: Iterable[Any],
    out: files.PathLike,
    *,
    classes: Any,
    n_features: int | Callable[[], int] | None = None,
    shuffle_rows: bool = False,
    seed: int = 0,
    chunk_nnz: int = TARGET_NNZ,
    shard_nnz: int = SHARD_NNZ,
    features: Mapping[str, Any] | None = None,
    memory: float | str = "256MB",
    overwrite: bool = False,
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

    Raises
    ------
    DataError : if a block is not what it should be. RunError : if ``out`` exists or the disk is full.
    """
    total = parse_bytes(memory)
    _check_sizes(chunk_nnz, shard_nnz)
    _require(total, LEAST_MEMORY, "writing shards")
    ranks = None
    if classes is not None and not callable(classes):
        classes = np.asarray(classes)
    with _building(out, overwrite) as directory, _Converter(directory, 1, total, None) as converter:
        prefix = files.join(converter.scratch, "rows")
        spiller = merging.Spiller(prefix, seed if shuffle_rows else None, total // 4)
        for slab in map(merging.as_slab, blocks):
            first = spiller.totals.n_rows
            spiller.add(np.arange(first, first + slab.n_rows, dtype=np.uint64), slab)
        spiller.flush()
        converter.totals, converter.runs = spiller.totals, spiller.runs
        if callable(classes):
            classes, ranks = classes()
        if classes is not None:
            _check_codes(spiller.totals.labels, classes)
        bounds = _row_bounds(spiller.totals, shard_nnz, shuffle_rows)
        codes = None if classes is None else np.arange(classes.size, dtype=np.float64)
        width = n_features() if callable(n_features) else n_features
        plan = _plan(converter, bounds, codes, classes, width, features, chunk_nnz)
        converter.write(plan._replace(ranks=ranks), {})
    return Dataset(out)


def _check_codes(codes: Iterable[float], classes: np.ndarray) -> None:
    wrong = [code for code in codes if not (0 <= code < classes.size and code == int(code))]
    if wrong:
        last = classes.size - 1
        raise DataError(f"labels must be codes of the {classes.size} classes, 0 to {last}, not {wrong[0]:g}")
    if classes.size and (classes[1:] <= classes[:-1]).any():
        raise DataError("classes must ascend and differ")


def _row_bounds(totals: merging.Totals, shard_nnz: int, shuffled: bool) -> list[int]:
    """Ranges of keys that become shards, of about equally many rows."""
    n_shards = _shard_count(totals.nnz + merging.ROW_COST * totals.n_rows, shard_nnz)
    if shuffled:
        return merging.even_bounds(n_shards)
    return [s * totals.n_rows // n_shards for s in range(n_shards)] + [2**64]


def _plan(
    converter: _Converter,
    bounds: list[int],
    codes: np.ndarray | None,
    classes: np.ndarray | None,
    n_features: int | None,
    features: Mapping[str, Any] | None,
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


@contextlib.contextmanager
def _resuming(
    out: files.PathLike,
    overwrite: bool,
    identity: Mapping[str, Any],
    before: Dataset | None = None,
    kinds: tuple[type, ...] = SPARSE,
) -> Iterator[Workplace]:
    """Yield a place whose shards take the name ``out`` when all went well. Where they did not, but might at another
    attempt, what was finished stays for that."""
    tidy(out)
    _check_free(out, overwrite, before)
    files.make_directory(files.parent_directory(out))
    work = Workplace(out, identity, kinds)
    try:
        yield work
        _take_place(work.directory, out, overwrite, before)
    except BaseException as error:
        free, size = files.free_bytes(work.path), work.size()
        again = work.leave(finished=not isinstance(error, OSError | RunError | KeyboardInterrupt))
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise _no_room(out, error, free, f"run the same again, and it goes on from what is finished "
                           f"({format_bytes(size)} in {work.path})" if again else "") from error  # fmt: skip
        raise
    work.leave(finished=True)


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _no_room(out: files.PathLike, error: OSError, free: int, next: str) -> RunError:
    reason = os.strerror(error.errno or 0).lower()
    advice = f"make room and {next}" if next else "make room or name another directory; nothing was left behind"
    return RunError(f"{os.fspath(out)}: {reason} ({format_bytes(free)} were free); {advice}")


@contextlib.contextmanager
def _building(out: files.PathLike, overwrite: bool, before: Dataset | None = None) -> Iterator[str]:
    """Yield a hidden directory beside ``out`` that takes its name when all went well and is removed otherwise."""
    _check_free(out, overwrite, before)
    files.make_directory(files.parent_directory(out))
    beside = files.temporary_name(files.beside(out))
    files.make_directory(beside)
    try:
        yield beside
        _take_place(beside, out, overwrite, before)
    except BaseException as error:
        free = files.free_bytes(beside)
        files.remove_tree(beside)
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise _no_room(out, error, free, "") from error
        raise


def _take_place(directory: str, out: files.PathLike, overwrite: bool, before: Dataset | None) -> None:
    """Make what was made appear at ``out``, or beside the shards that are there."""
    _check_free(out, overwrite, before)
    if before is None:
        files.publish_directory(directory, files.absolute(out))
    else:
        appending.adopt(directory, files.absolute(out), before)
        files.remove_tree(directory)


def _check_free(out: files.PathLike, overwrite: bool, before: Dataset | None = None) -> None:
    """Refuse an output that is there already; only directories of shards are ever replaced."""
    if before is not None:
        if overwrite:
            raise ValueError("append adds to what is there, overwrite replaces it: take one of them")
        before.check_unchanged()
        return
    require_free(out, overwrite)


def require_free(out: files.PathLike, overwrite: bool) -> None:
    """RunError where shards cannot go to ``out`` because of what is there."""
    name = os.fspath(out)
    if files.exists(name) and not files.is_directory(name):
        raise RunError(f"{name!r} is a file; name a directory for the shards")
    there = files.list_directory(name)
    if there and not overwrite:
        raise RunError(f"{name!r} exists and is not empty; name another directory or overwrite it with overwrite=True")
    ours = {MANIFEST, CHUNK_TABLE, QUARANTINE, files.UNFINISHED, *OF_COLUMNS}
    strange = [entry for entry in there if entry not in ours and not entry.startswith("part-")]
    if strange:
        raise RunError(f"{name!r} holds {strange[0]!r}, which bigclf did not write; it is not overwritten")
