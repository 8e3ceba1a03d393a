"""What is written is none of what is read, and takes nothing of it away, whatever overwrite says.

Whoever writes asks here before anything is done, functions of Python and commands alike.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
from collections.abc import Iterable, Iterator

from bigclf import files
from bigclf.errors import DataError, RunError

ANOTHER = "write to another place"
MAGIC = set("*?[")
OF_A_RUN = ("run.json", "history.jsonl", "model.bigclf")  # what is read of a run's directory


def keep_apart(
    rows: Iterable[object],
    others: Iterable[object] = (),
    *,
    written: Iterable[files.PathLike] = (),
    entered: Iterable[files.PathLike] = (),
    replaced: Iterable[files.PathLike] = (),
    filled: Iterable[files.PathLike] = (),
) -> None:
    """Refuse places that are inputs, or that would take one away or change what a directory of rows holds.

    Parameters
    ----------
    rows : rows that are read: a path, directory or glob, a list of them, or what was opened as ``named`` (a
        ``Dataset``); what is in memory is passed over.
    others : what is read besides, models and directories of runs: results may stand beside it.
    written : files that are made or replaced. entered : directories in which results are made.
    replaced : directories that are replaced, or removed, as a whole.
    filled : directories that get files of a run, and lose those of one before.

    Raises
    ------
    RunError : with the path.
    """
    named, besides = [*_paths(rows)], [*_paths(others)]
    written, entered, replaced, filled = map(_as_texts, (written, entered, replaced, filled))
    if there := [path for path in (*written, *entered, *replaced, *filled) if files.exists(path)]:
        _refuse_inputs(named, besides, there, replaced, filled)
    for path in written:
        if (place := next((name for name in named if _is_within(path, name)), None)) is not None:
            raise RunError(f"{path}: would be read with the rows of {place}; {ANOTHER}")
    for path in entered:
        if (place := next((name for name in named if _is_entered(path, name)), None)) is not None:
            raise RunError(f"{path}: would be read with the rows of {place}; {ANOTHER}")


def _refuse_inputs(
    rows: list[str], others: list[str], there: list[str], replaced: list[str], filled: list[str]
) -> None:
    """RunError where one of the places that are ``there`` is an input or holds one."""
    runs = [files.join(name, own) for name in others for own in OF_A_RUN if files.is_directory(name)]
    read = [*others, *runs, *(path for name in rows for path in _all_of(name))]
    known = {files.identity(path) for path in read}
    for path in there:
        if files.identity(path) in known:
            raise RunError(f"{path}: is an input; {ANOTHER}")
    for paths, holds in ((replaced, files.is_below), (filled, _is_in)):
        for path in (path for path in there if path in paths):
            if held := next((file for file in read if holds(file, path)), None):
                raise RunError(f"{path}: holds the input {held}; {ANOTHER}")


def _as_texts(paths: Iterable[files.PathLike]) -> list[str]:
    return [os.fspath(path) for path in paths]


def _paths(given: Iterable[object]) -> Iterator[str]:
    for one in given:
        one = getattr(one, "named", one)
        for path in one if isinstance(one, list | tuple) else (one,):
            if isinstance(path, str | os.PathLike):
                yield str(path).removeprefix("file://")


def _all_of(name: str) -> Iterator[str]:
    """What is named itself, and the files that it stands for."""
    yield name
    if not files.is_remote(name):
        with contextlib.suppress(DataError):  # of what is missing the reader tells
            yield from files.expand(name)


def _is_within(path: str, name: str) -> bool:
    """Whether a file at ``path`` would be one of the rows that ``name`` names, a directory or a glob."""
    inside, own = files.parent_directory(path), files.base_name(path)
    if own[:1] in "_.":
        return False
    if files.is_remote(path) or files.is_remote(name):
        return inside == name.rstrip("/")
    if files.is_directory(name):
        same = files.identity(inside) == files.identity(name)
        return same or (files.is_below(path, name) and _is_deep(name))
    above, _, pattern = name.rpartition("/")
    if not MAGIC & {*pattern} or MAGIC & {*above} or files.exists(name):
        return False
    return fnmatch.fnmatchcase(own, pattern) and files.identity(inside) == files.identity(files.parent_directory(name))


def _is_entered(path: str, name: str) -> bool:
    """Whether files in a directory at ``path`` would be among the rows that the directory ``name`` names."""
    if files.base_name(path.rstrip("/"))[:1] in "_." or files.is_remote(name) or not files.is_directory(name):
        return False
    return files.is_below(path, name) and _is_deep(name)


def _is_deep(directory: str) -> bool:
    """Whether rows stand in the directories below it, all of which are read."""
    names = [name for name in files.list_directory(directory) if name[:1] not in "_."]
    return all(files.is_directory(files.join(directory, name)) for name in names)


def _is_in(file: str, directory: str) -> bool:
    """Whether a run in the directory would stand among the rows that the file is one of; beside a directory it may."""
    return not files.is_directory(file) and files.identity(files.parent_directory(file)) == files.identity(directory)
