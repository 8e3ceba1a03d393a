"""The driver of a detached job: a process of its own, what it leaves in the run directory, and how to read that.

``driver.json`` says who drives, since when, with which command, and in the end how it ended; ``driver.log`` has what
the command printed. Both lie in the run directory beside what the run itself writes.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from bigclf.cli.shared import terminal
from bigclf.errors import RunError, masked

NAME, LOG = "driver.json", "driver.log"
START_SECONDS = 30.0  # for the new process to say that it is there
WRITTEN, RESUMABLE = (0, 4), (5, 6)  # exit codes: there is a model; it goes on from its last checkpoint
ENDINGS = {
    0: "done",
    1: "failed",
    2: "failed: usage",
    3: "failed: bad data",
    4: "stopped at its limits before the tolerance; the model is written",
    5: "the cluster was lost; resumable",
    6: "interrupted; resumable",
}


def default_directory(job: str) -> str:
    """Where the driver of a job of steps without run.dir writes: beside the job file's name, in this directory."""
    from bigclf import files

    name = files.base_name(job)
    return (name.rpartition(".")[0] or name) + ".run"


def start(ctx: click.Context, directory: str) -> dict[str, Any]:
    """Start the command of ``ctx`` again, in the background and for good; what ``driver.json`` says of it.

    Raises
    ------
    RunError : a driver is at work there, or the new one did not come up.
    """
    from bigclf import files

    files.make_directory(directory)
    files.probe_writable(directory)
    told = read(directory)
    if told is not None and told["state"] == "running":
        raise RunError(f"{directory} is being driven by process {told['pid']} on {told['host']}; kill it, or wait")
    words = shlex.split(terminal.command_line(ctx, detach=False))[len(ctx.command_path.split()) - 1 :]
    log = files.join(directory, LOG)
    with files.open_binary(log, "ab") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "bigclf.cli.jobs.driver", directory, *words],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        told = read(directory)
        if told is not None and told["pid"] == child.pid:
            return {**told, "run": directory}
        if child.poll() is not None:
            break
        time.sleep(0.05)
    raise RunError(f"the driver did not start; see {log}")


def read(directory: str) -> dict[str, Any] | None:
    """What is known of the driver of a run: the content of ``driver.json`` and ``state``, one of "running", "finished",
    "failed", "stopped" (resumable), "died" (gone without a word) and "unknown" (on another host); None where the run
    had none."""
    from bigclf import files
    from bigclf.files.json_fields import check_fields, optional, or_none, text, whole
    from bigclf.training.records.lease import ALIVE, DEAD, Timing, state_of

    path = files.join(directory, NAME)
    if not files.exists(path):
        return None
    try:
        told: dict[str, Any] = json.loads(files.read_text(path))
        texts = {name: text() for name in ("host", "log", "begun")}
        ending = {"ended": optional(or_none(text())), "exit_code": optional(or_none(whole(-255, 255)))}
        check_fields(told, {"pid": whole(), **texts, **ending})
        told = {"ended": None, "exit_code": None} | told
        if (code := told.get("exit_code")) is not None:
            return told | {"state": "stopped" if code in RESUMABLE else "finished" if code in WRITTEN else "failed"}
        state = state_of(told, float("inf"), Timing())
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return told | {"state": {ALIVE: "running", DEAD: "died"}.get(state, "unknown")}


def last_line(path: str) -> str:
    """The last line of a log that is not empty."""
    return next(_from_the_end(path), "")


def what_failed(path: str) -> str:
    """Which step of the job it was, and its error, from the log of a driver that failed."""
    lines = list(_from_the_end(path))
    errors = [(number, line.removeprefix("error:").strip()) for number, line in enumerate(lines)
              if line.startswith("error:")]  # fmt: skip
    if not errors:
        return lines[0] if lines else ""
    number, error = errors[0]
    step = next((line.strip(f"{terminal.RULE} ") for line in lines[number:] if line.startswith(terminal.RULE)), "")
    return f"{step}: {error}" if step else error


def _from_the_end(path: str, most: int = 100_000) -> Iterator[str]:
    """Lines that are not empty, the last first."""
    from bigclf import files

    if not files.exists(path):
        return
    with files.open_binary(path) as file:
        file.seek(max(0, files.file_size(path) - most))
        lines = file.read().decode("utf-8", "replace").splitlines()
    yield from (line.strip() for line in reversed(lines) if line.strip())


def main(directory: str, words: list[str]) -> None:
    """Carry the command out, with its beginning and its end written down."""
    from bigclf import files
    from bigclf.cli import main as program
    from bigclf.training.records.lease import signature

    terminal.remember(words)
    path = files.join(directory, NAME)
    told = signature() | {
        "command": shlex.join(["bigclf", *map(masked, words)]), "log": files.join(directory, LOG), "begun": _now(),
        "ended": None, "exit_code": None,
    }  # fmt: skip
    files.publish_text(path, json.dumps(told, indent=1))
    code: Any = 1
    try:
        program(words, prog_name="bigclf")
    except SystemExit as end:
        code = end.code
        raise
    except KeyboardInterrupt:
        code = terminal.INTERRUPTED
    finally:
        files.publish_text(path, json.dumps(told | {"ended": _now(), "exit_code": int(code or 0)}, indent=1))


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


if __name__ == "__main__":
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    main(sys.argv[1], sys.argv[2:])
