"""Other formats into shards, once: parsed in parallel, shuffled by key, in bounded memory."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Any, Never

from bigclf import files
from bigclf.conversion import appending
from bigclf.conversion.converter import LEAST_MEMORY as LEAST_MEMORY
from bigclf.conversion.converter import QUERIES_IGNORED as QUERIES_IGNORED
from bigclf.conversion.converter import SHARD_NNZ, Converter, check_sizes, compile_parser, processes
from bigclf.conversion.converter import write_shards as write_shards
from bigclf.conversion.destination import continuing, finished
from bigclf.conversion.foreign_rows import collected, is_collected
from bigclf.conversion.tables.from_columns import convert_columns, known_labels
from bigclf.conversion.tables.reading import format_of
from bigclf.conversion.text import pieces, readers
from bigclf.conversion.text.label_lists import convert_lists
from bigclf.conversion.text.parsed import Options
from bigclf.data.bad_rows import MOST_BAD
from bigclf.data.dataset import TARGET_NNZ, Dataset
from bigclf.errors import DataError, masked
from bigclf.features.encode import given_features
from bigclf.features.spec import refuse_shell_names
from bigclf.files.apart import keep_apart
from bigclf.files.formats import COLUMNS, DEFAULT, FORMATS
from bigclf.progress import Watcher, watcher
from bigclf.units import near, parse_bytes

BAD_ROWS = ("error", "skip", "quarantine")


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
    progress: Watcher | None = None,
    features: object = None,
    append: bool = False,
    several_labels: bool = False,
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
    features : of raw columns, what becomes of them: a ``Spec``, a table or YAML (``features/spec.py``), or a
        model or dataset that was made of such columns, with what was learned for it; what is else
        learned of them in the same read (means, dictionaries, frequencies ...) goes with the shards.
    append : add to the shards that are at ``out``, which keep their bytes. Classes and, of sparse text, features may
        become more; raw columns become the features that they are there.
    several_labels : of "svmlight": rows have any number of labels, ``1,3 1:0.5``, which become lists in Parquet. The
        rows keep their order, and each has to be right.

    Returns
    -------
    Dataset : its ``report`` has rows, nnz, seconds, bytes_in, bytes_out, largest_relative_rounding, bad_rows (how
        many) and bad_examples.

    Raises
    ------
    DataError : with file and line. MemoryBudgetError : if ``memory`` is too small. RunError : if ``out`` exists,
        is or holds a source, or the disk is full.
    """
    refuse_shell_names(others)
    if others:
        known = inspect.signature(convert).parameters
        raise TypeError(f"convert has no {next(iter(others))!r}{near(next(iter(others)), known)}")
    sparse: dict[str, Any] = dict(index_base=index_base, n_features=n_features, hash_bits=hash_bits)
    options: dict[str, Any] = dict(
        chunk_nnz=chunk_nnz, shuffle=shuffle, seed=seed, memory=memory, workers=workers, on_bad_rows=on_bad_rows,
        max_bad_fraction=max_bad_fraction, overwrite=overwrite, shard_nnz=shard_nnz, append=append,
    )  # fmt: skip
    if is_collected(source):
        with collected(source, out) as (folder, kind):
            if kind is None:
                raise DataError("rows of indices and values need no conversion: write them by to_parquet and open that")
            return convert(folder, out, format=kind, features=features, progress=progress, **sparse, **options)
    keep_apart([source], replaced=[out])
    progress = watcher(progress)
    format = format or (appending.format_of(out) if append else DEFAULT)
    if features is not None or format in COLUMNS:
        _check_bad_rows(on_bad_rows, max_bad_fraction)
        check_sizes(chunk_nnz, shard_nnz)
        sparse["index_base"] = index_base is not None
        return _convert_columns(source, out, format, features, sparse, progress=progress, **options)
    reader = readers.find(format, COLUMNS)
    _check_choices(on_bad_rows, index_base, chunk_nnz, shard_nnz, max_bad_fraction)
    parsing = parsing_options(reader, format, index_base, n_features, hash_bits)
    if several_labels:
        return _convert_lists(source, out, format, parsing, overwrite, append, on_bad_rows)
    total = parse_bytes(memory)
    sources = [pieces.look_at(path, number) for number, path in enumerate(files.expand(source))]
    workers = processes(workers, total, sources)
    before = appending.there(out) if append else None
    identity = {
        "append": appending.identity(before),
        "sources": _as_known(sources),
        "options": [format, repr(parsing), chunk_nnz, shuffle, seed, on_bad_rows, max_bad_fraction, shard_nnz],
        "reader": readers.code_of(reader),
    }
    if (there := finished(out, identity, append)) is not None:
        return there
    with (
        continuing(out, overwrite, identity, before, append=append) as work,
        Converter(work.directory, workers, total, progress, work) as converter,
    ):
        compile_parser(reader, parsing)
        max_line = max(converter.room // 8, 2**24)
        if reader.prepare is not None:
            parsing = reader.prepare(pieces.first_text(sources[0], max_line, reader.record), parsing)
        job = pieces.Job(
            reader,
            parsing,
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
    dataset.warnings += [*converter.warnings(index_base), *appending.new_labels(before, dataset)]
    return dataset


def _convert_lists(
    source: files.Paths,
    out: files.PathLike,
    format: str,
    parsing: Options,
    overwrite: bool,
    append: bool,
    on_bad_rows: str,
) -> Dataset:
    """``convert`` of rows with several labels each."""
    if format != DEFAULT or append:
        raise TypeError("several_labels (--several-labels) is for svmlight text, with append=False")
    if on_bad_rows != "error":
        raise TypeError("of rows with several labels no bad one is left out: on_bad_rows='error' (--on-bad-rows error)")
    sources = [pieces.look_at(path, number) for number, path in enumerate(files.expand(source))]
    return convert_lists(sources, out, parsing, overwrite)


def _as_known(sources: list[pieces.Source]) -> list[tuple[str, int, int]]:
    """By what sources are known again: path, size and time of change."""
    return [(masked(files.absolute(source.path)), source.size, source.mtime_ns) for source in sources]


def _convert_columns(
    source: files.Paths,
    out: files.PathLike,
    format: str,
    features: object,
    sparse: Mapping[str, object],
    **options: Any,
) -> Dataset:
    """``convert`` of raw columns; ``sparse``: options that only sparse rows have, with a value that is not false."""
    if given := [name for name, value in sparse.items() if value]:
        raise TypeError(f"{given[0]} has no effect with raw columns: their features are numbered by the spec")
    spec, learned = given_features(features, format, functools.partial(format_of, source))
    return convert_columns(source, out, spec, learned=learned, known=known_labels(features), **options)


def parsing_options(
    reader: readers.Reader, format: str, index_base: int | None, n_features: int | None, hash_bits: int | None
) -> Options:
    """What the reader is told; TypeError for what has no effect on it."""
    if reader.index_base is None and index_base is not None:
        raise TypeError(f"index_base has no effect on format={format!r}, whose reader counts from 0")
    base = index_base if index_base is not None else reader.index_base or 0
    if hash_bits is None:
        return Options(base, n_features, tells_base=bool(base or reader.index_base))
    if format not in FORMATS or not FORMATS[format].hashes:
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
    check_sizes(chunk_nnz, shard_nnz)


def _check_bad_rows(on_bad_rows: str, max_bad_fraction: float) -> None:
    if on_bad_rows not in BAD_ROWS:
        raise ValueError(f"on_bad_rows must be one of {', '.join(BAD_ROWS)}, not {on_bad_rows!r}")
    if not 0 <= max_bad_fraction <= 1:
        raise ValueError(f"max_bad_fraction must be from 0 to 1, not {max_bad_fraction!r}")
