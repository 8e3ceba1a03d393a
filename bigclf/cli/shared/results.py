"""Directories of results (``sweep``, ``path``): one process at a time, and what is finished is told from what is not.

The last file that is written names the command line it came from; after it the run directory goes. So where there is a
run directory there is something to go on with, and where there is none the results are whole.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import click

from bigclf.cli.shared import terminal
from bigclf.errors import BigclfError, RunError
from bigclf.request.options import OPTIONS

LEASE = ".lease"
HOW_NOT_WHAT = {"out", "overwrite", "as_json", *(option.name for option in OPTIONS if not option.bits)}


def require_free(directory: str, below: bool = True) -> None:
    """RunError where a run lives in the directory or, ``below``, in a directory of it."""
    from bigclf.training.records import lease

    lease.require_free(directory, below)


def take(ctx: click.Context, out: str) -> None:
    """Make the directory ``out`` and hold it until the command ends.

    Raises
    ------
    RunError : it cannot be written, or another process is at work there.
    """
    from bigclf import files
    from bigclf.training.records.lease import holding

    require_free(out, below=False)  # a run of fit
    ctx.with_resource(files.made_for(files.join(out, LEASE)))
    files.make_directory(out)
    files.probe_writable(out)
    ctx.with_resource(holding(out, LEASE))
    files.clear_left(out)


def asked_of(ctx: click.Context) -> dict[str, object]:
    """What the results of a command depend on: its options, and the files of its data by name, size and time."""
    told = {name: value for name, value in ctx.params.items() if name not in HOW_NOT_WHAT and value is not None}
    return {**terminal.plain(told), "files": _mark(ctx.params["data"])}  # type: ignore[dict-item]


def _mark(data: tuple[str, ...]) -> str | None:
    """None for what is no file of its own, such as a part of an archive."""
    from bigclf import files

    try:
        known = [(files.base_name(path), *files.status(path)) for path in files.expand(data)]
    except (OSError, BigclfError):
        return None
    return hashlib.blake2b(json.dumps(known).encode(), digest_size=16).hexdigest()


def clear_the_way(
    ctx: click.Context, out: str, names: tuple[str, ...], what: str, *, overwrite: bool, resume: bool
) -> dict[str, object] | None:
    """Take the directory; what the first of the files ``names`` holds where ``resume`` finds it finished, else None.

    Raises
    ------
    RunError : results are there, or an earlier run that was not finished; another process is at work there;
        the directory for the run, which goes in the end, holds what no run wrote.
    """
    from bigclf import files
    from bigclf.training.records.run_directory import require_no_others

    take(ctx, out)
    run_dir = files.join(out, "run")
    there = [name for name in names if files.exists(files.join(out, name))]
    begun = files.is_directory(run_dir)
    if begun:
        require_no_others(run_dir)
    if begun and not resume:
        require_free(run_dir)
        if not overwrite:
            raise RunError(f"{run_dir}: an earlier {what}; add --overwrite to replace it, or --resume to continue it")
        files.remove_at_once(run_dir)
    if not files.exists(run_dir):
        files.remove_at_once(run_dir)  # what a killed process left of that
    if there and not overwrite and not begun:
        return finished(ctx, out, names[0], there[0], what, resume)
    return None


def finished(ctx: click.Context, out: str, last: str, first: str, what: str, resume: bool) -> dict[str, Any]:
    """What the file ``last`` says of results that are whole; RunError where they are not those of this command."""
    from bigclf import files
    from bigclf.files.json_fields import TABLE, check_fields
    from bigclf.training.records.sameness import differences

    if not resume:
        raise RunError(f"{files.join(out, first)} already exists; add --overwrite to replace it")
    try:
        told: dict[str, Any] = json.loads(files.read_text(files.join(out, last)))
        check_fields(told, {"asked": TABLE})
    except (OSError, ValueError):
        raise RunError(f"{out}: has no {what} to resume; add --overwrite to replace what is there") from None
    if lines := differences(told["asked"], asked_of(ctx)):
        raise RunError(f"{out}: holds another {what}; it differs in: {'; '.join(lines)}; name another output, or add "
                       "--overwrite to replace it")  # fmt: skip
    return told
