"""What a job, or a training with a report, has itself begun to write: with ``--resume`` that alone is replaced."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from bigclf.errors import DataError, RunError

if TYPE_CHECKING:
    from bigclf.cli.jobs import Job

NAME = "job_wrote.json"


class Record:
    """Files that ``whose`` wrote, by absolute path: a mark of each, or None while it is being written.

    It lies at ``place``. Where it was lost, nothing is its own.
    """

    def __init__(self, place: str, whose: str) -> None:
        self._place, self._whose = place, whose
        self._known = _read(place)

    def begin(self, paths: list[str], overwrite: bool) -> None:
        """Note that these are being written, but those that are there and may not be replaced."""
        from bigclf.data import files

        self._note({path: None for path in paths if overwrite or not files.exists(path)})

    def end(self, paths: list[str]) -> None:
        """Note of those that were begun by what they are known again."""
        from bigclf.data import files

        begun = [path for path in paths if files.absolute(path) in self._known and files.exists(path)]
        self._note({path: files.mark(path) for path in begun})

    def refuse_foreign(self, paths: list[str]) -> None:
        """RunError where one of the files is there and is not what the job wrote."""
        from bigclf.data import files

        for path in paths:
            if files.exists(path) and not self._is_ours(path):
                raise RunError(f"{path}: exists, and is not known as this {self._whose}'s own; add --overwrite to "
                               "replace it")  # fmt: skip

    def _is_ours(self, path: str) -> bool:
        from bigclf.data import files

        key = files.absolute(path)
        try:
            return key in self._known and self._known[key] in (None, files.mark(path))
        except (OSError, DataError):
            return False

    def _note(self, marks: dict[str, str | None]) -> None:
        from bigclf.data import files

        self._known |= {files.absolute(path): mark for path, mark in marks.items()}
        if marks:
            files.publish_text(self._place, json.dumps(self._known))


def record_of(job: Job) -> Record:
    """That of a job: in its run directory; of a job of steps, which has none, in the user's cache."""
    return Record(_place_of(job), "job")


def _place_of(job: Job) -> str:
    from bigclf.caches import cache_directory
    from bigclf.data import files

    if job.run_dir:
        return files.join(job.run_dir, NAME)
    key = hashlib.blake2b(files.absolute(job.path).encode(), digest_size=16).hexdigest()
    return files.join(cache_directory("jobs"), f"{key}.json")


def _read(place: str) -> dict[str, Any]:
    from bigclf.data import files

    try:
        told = json.loads(files.read_text(place))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def results_of(inner: click.Context) -> Iterator[str]:
    """The files that a parsed command writes, without directories of its own."""
    from bigclf.exports import targets_of

    for name in ("output", "out", "report", "reliability"):
        path = inner.params.get(name)
        if isinstance(path, str) and path != "-":
            yield from targets_of(path, inner.params["to"]) if inner.command.name == "export" else [path]
