"""What a job, or a training with a report, has itself begun to write: with ``--resume`` that alone is replaced."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from bigclf.errors import DataError, RunError

if TYPE_CHECKING:
    from bigclf.cli.jobs.steps import Job

NAME = "job_wrote.json"


class Record:
    """Files that ``whose`` wrote, by absolute path: a mark of each; while one is being written a list of the marks of
    all that may be replaced there: what was there before, if that may be, and what was to take its place.

    It lies at ``place``. Where it was lost, nothing is its own.
    """

    def __init__(self, place: str, whose: str) -> None:
        self._place, self._whose = place, whose
        self._known = _read(place)

    @contextlib.contextmanager
    def writing(self, paths: list[str], overwrite: bool) -> Iterator[None]:
        """Note what becomes of these while they are written inside; not of those that are there and may not be
        replaced."""
        from bigclf import files

        files.clear_left_of(self._place)
        self._begin([path for path in paths if overwrite or not files.exists(path)])
        with files.telling(paths, self._tell):
            yield
        self._end(paths)

    def _begin(self, paths: list[str]) -> None:
        self._note({path: _marks_of(path) for path in paths})

    def _tell(self, path: str, mark: str) -> None:
        """Note what is about to be put there."""
        from bigclf import files

        marks = self._known.get(files.absolute(path))
        if isinstance(marks, list):
            self._note({path: [*marks, mark]})

    def _end(self, paths: list[str]) -> None:
        """Note of those that were begun by what they are known again."""
        from bigclf import files

        begun = [path for path in paths if files.absolute(path) in self._known and files.exists(path)]
        self._note({path: mark for path in begun for mark in _marks_of(path)})

    def refuse_foreign(self, paths: list[str]) -> None:
        """RunError where one of the files is there and is not what the job wrote."""
        from bigclf import files

        for path in paths:
            if files.exists(path) and not self._is_ours(path):
                raise RunError(
                    f"{path} already exists, and is not known as this {self._whose}'s own; "
                    "add --overwrite to replace it"
                )

    def _is_ours(self, path: str) -> bool:
        from bigclf import files

        known = self._known.get(files.absolute(path))
        marks = known if isinstance(known, list) else [known] if isinstance(known, str) else []
        try:
            return files.is_marked(path, marks)
        except (OSError, DataError):
            return False

    def _note(self, marks: Mapping[str, object]) -> None:
        """Keep it. Where there is no room, going on needs --overwrite, and no more."""
        from bigclf import files

        self._known |= {files.absolute(path): mark for path, mark in marks.items()}
        if marks:
            with contextlib.suppress(OSError):
                files.publish_text(self._place, json.dumps(self._known))


def _marks_of(path: str) -> list[str]:
    """The mark of what is there, if there is something to be read."""
    from bigclf import files

    with contextlib.suppress(OSError, DataError):
        return [files.mark(path)] if files.exists(path) else []
    return []


def record_of(job: Job) -> Record:
    """That of a job: in its run directory; of a job of steps, which has none, in the user's cache."""
    return Record(_place_of(job), "job")


def _place_of(job: Job) -> str:
    from bigclf import files
    from bigclf.files.caches import cache_directory

    if job.run_dir:
        return files.join(job.run_dir, NAME)
    key = hashlib.blake2b(files.absolute(job.path).encode(), digest_size=16).hexdigest()
    return files.join(cache_directory("jobs"), f"{key}.json")


def _read(place: str) -> dict[str, Any]:
    from bigclf import files

    try:
        told = json.loads(files.read_text(place))
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}


def results_of(inner: click.Context) -> Iterator[str]:
    """The files that a parsed command writes, without directories of its own."""
    from bigclf.model.exports import targets_of

    for name in ("output", "out", "report", "reliability"):
        path = inner.params.get(name)
        if isinstance(path, str) and path != "-":
            yield from targets_of(path, inner.params["to"]) if inner.command.name == "export" else [path]
