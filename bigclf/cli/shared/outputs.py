"""What a command writes is none of what it reads, whatever --overwrite says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from bigclf.errors import DataError, RunError

WRITTEN = ("out", "output", "report", "reliability", "receipt")
READ = ("data", "sources", "source", "run", "spec", "names", "validate", "test", "rows", "like")
# "model" is written by ``fit`` and read by others. One that is read whole may be replaced by what comes of it: --init,
# --features-of, and that of ``calibrate``.
MODEL_IS_READ = ("export", "evaluate", "predict")


def refuse_inputs(command: str, given: Mapping[str, object]) -> None:
    """Refuse an output that is an input, or a file of one, before anything is done.

    Raises
    ------
    RunError : with its path.
    """
    from bigclf import files

    written = (*WRITTEN, "model") if command == "fit" else WRITTEN
    read = (*READ, "model") if command in MODEL_IS_READ else READ
    outputs = [path for name in written for path in paths_of(given.get(name)) if files.exists(path)]
    if not outputs:
        return
    inputs = {files.identity(path) for name in read for path in paths_of(given.get(name)) for path in all_of(path)}
    for path in outputs:
        if files.identity(path) in inputs:
            raise RunError(f"{path}: is an input; write to another place")


def paths_of(value: object) -> list[str]:
    return [value] if isinstance(value, str) else [*value] if isinstance(value, tuple) else []


def all_of(path: str) -> Iterator[str]:
    """What is named itself, and the files that it stands for."""
    from bigclf import files

    yield path
    if not files.is_remote(path):
        with contextlib.suppress(DataError):  # of what is missing the command tells
            yield from files.expand(path)
