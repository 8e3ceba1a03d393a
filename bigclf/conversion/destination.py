"""Where shards go: made beside what is there, they take its place whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping

from bigclf import files
from bigclf.conversion import appending
from bigclf.conversion.appending import QUARANTINE, known_by
from bigclf.conversion.resuming import SPARSE, Workplace, made_before, tidy
from bigclf.data.dataset import CHUNK_TABLE, MANIFEST, Dataset
from bigclf.errors import DataError, RunError
from bigclf.units import format_bytes

OF_COLUMNS = ("_bigclf_features.json", "_bigclf_features.safetensors")  # how they became features


@contextlib.contextmanager
def continuing(
    out: files.PathLike,
    overwrite: bool,
    identity: Mapping[str, object],
    before: Dataset | None = None,
    kinds: tuple[type, ...] = SPARSE,
    *,
    append: bool,
) -> Iterator[Workplace]:
    """Yield a place whose shards take the name ``out`` when all went well, or stand beside those of ``before``.
    ``append`` : whether that was asked for. Where they did not, but might at another attempt, what was finished stays
    for that."""
    tidy(out)
    check_free(out, overwrite, before)
    files.make_directory(files.parent_directory(out))
    work = Workplace(out, identity, kinds)
    try:  # as another process may have left it while this one came for the lock
        if append:
            _require_last(out, before)
        check_free(out, overwrite, before)
        yield work
        _take_place(work.directory, out, overwrite, before, work, append)
    except BaseException as error:
        free, size = files.free_bytes(work.path), work.size()
        again = work.leave(finished=not isinstance(error, OSError | RunError | KeyboardInterrupt))
        if isinstance(error, OSError) and error.errno in NO_ROOM:
            raise _no_room(out, error, free, f"run the same again, and it goes on from what is finished "
                           f"({format_bytes(size)} in {work.path})" if again else "") from error  # fmt: skip
        raise
    work.leave(finished=True)


def finished(out: files.PathLike, identity: Mapping[str, object], append: bool) -> Dataset | None:
    """The shards at ``out``, if a conversion of the same was killed when they were there already."""
    try:
        dataset = Dataset(out, warn=False) if files.exists(files.join(out, MANIFEST)) else None
    except DataError:
        return None
    if dataset is None or files.exists(files.join(out, files.UNFINISHED)):  # what took its place has none
        return None
    if (made := made_before(out, dict(identity), known_by(dataset, dataset.conversion), append)) is None:
        return None
    counts = {name: made[name] for name in ("rows", "nnz")}
    size = sum(found.size for found in dataset.fingerprints)
    dataset.report = {**counts, "bytes_out": size, **dataset.conversion.get("report", {})}
    return dataset


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _no_room(out: files.PathLike, error: OSError, free: int, next: str) -> RunError:
    reason = os.strerror(error.errno or 0).lower()
    another = f"make room or name another {files.named_by(out)}; nothing was left behind"
    advice = f"make room and {next}" if next else another
    return RunError(f"{os.fspath(out)}: {reason} ({format_bytes(free)} were free); {advice}")


@contextlib.contextmanager
def building(out: files.PathLike, overwrite: bool, before: Dataset | None = None) -> Iterator[str]:
    """Yield a hidden directory beside ``out`` that takes its name when all went well and is removed otherwise."""
    check_free(out, overwrite, before)
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


def _take_place(
    directory: str,
    out: files.PathLike,
    overwrite: bool,
    before: Dataset | None,
    work: Workplace | None = None,
    append: bool = False,
) -> None:
    """Make what was made appear at ``out``, or beside the shards that are there; ``work`` notes it first."""
    check_free(out, overwrite, before)

    mine = Dataset(directory)

    def note(known: object) -> None:
        if work is not None:
            work.note_made(known, mine.n_rows, mine.nnz, append)

    if before is None:
        note(known_by(mine, mine.conversion))
        files.publish_directory(directory, files.absolute(out))
    else:
        appending.adopt(directory, files.absolute(out), before, note)
        files.remove_replaced(out)  # of an overwriting that was killed before it had
        files.remove_tree(directory)


def _require_last(out: files.PathLike, before: Dataset | None) -> None:
    """RunError where there are more shards by now than those to append to: they would be written over."""
    more = files.list_directory(out) if before is None else before.new_files()
    if MANIFEST in more or (before is not None and more):
        raise RunError(f"{os.fspath(out)}: another process appended to it meanwhile; run the same again")


def check_free(out: files.PathLike, overwrite: bool, before: Dataset | None = None) -> None:
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
        raise RunError(f"{name!r} exists and is not empty; name another directory, or add overwrite=True to replace it")
    ours = {MANIFEST, CHUNK_TABLE, QUARANTINE, files.UNFINISHED, *OF_COLUMNS}
    strange = [
        entry for entry in there if entry not in ours and not entry.startswith("part-") and not files.is_left(entry)
    ]
    if strange:
        raise RunError(f"{name!r} holds {strange[0]!r}, which bigclf did not write; it is not overwritten")
