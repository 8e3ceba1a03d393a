"""The run directory: what a run writes down so that it can be looked at, resumed and trusted.

``run.json`` (what was asked, the plan, the data's fingerprint), ``history.jsonl`` (a record an epoch), ``lease`` (who
is at work, see ``lease.py``), and checkpoints: ``rows-<group>-<epoch>-<segment>.safetensors`` for
per-row state, then ``state-<epoch>-<segment>.safetensors`` with everything else, written last and naming the row files
with their checksums. Each is written beside, synced and renamed; a damaged one is passed over for the one before.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from bigclf import files
from bigclf.data.shards import sealed, unsealed
from bigclf.errors import ModelFormatError, RunError
from bigclf.files.json_fields import (
    TABLE,
    Field,
    FieldError,
    bits,
    check_fields,
    check_relations,
    list_of,
    optional,
    or_none,
    text,
    whole,
)
from bigclf.files.tensors import checksum, write_tensors
from bigclf.model.model import load, plain, read_tensors
from bigclf.progress import Record
from bigclf.texts import masked_in
from bigclf.training.records.lease import Lease, holding, require_free
from bigclf.training.records.run_record import check_epoch, check_run, lines_of
from bigclf.training.records.sameness import Told, refusal, told_apart
from bigclf.training.records.tensors import filed_array, read_head
from bigclf.training.visit import RowFile, settled_rows

if TYPE_CHECKING:
    from bigclf.model.model import Model
    from bigclf.stream.row_files import FiledArray


log = logging.getLogger("bigclf")
VERSION = 1
ROWS = re.compile(r"rows-\d{5,}-.*\.safetensors")
STATE = re.compile(r"state-(\d{8})-(\d{6})\.safetensors")
HISTORY_SECONDS = 0.1  # at most ten records a second
KEPT = 2
REPLACES = "replaces.json"  # which model a person allowed the run to replace
WROTE = "fit_wrote.json"  # what ``bigclf fit`` began to write elsewhere
FORGETTING = "forgetting.json"  # how far ``forget`` is
RUN_FILES = ("history.jsonl", "model.bigclf", REPLACES, WROTE, FORGETTING, "run.json")  # removed in this order
HEAD = {"version": whole(), "sums": TABLE, "facts": TABLE}
ROW_FILES = Field(lambda value: isinstance(value, dict) and all(ROWS.fullmatch(name) and isinstance(digest, str)
                  for name, digest in value.items()), "a table of files of rows and their digests")  # fmt: skip
STATE_FACTS = {"rows_files": ROW_FILES, "rows_steps": optional(list_of(bits())), "run": optional(or_none(text())),
               "epoch": whole(), "segment": whole()}  # fmt: skip


A = TypeVar("A", bound="np.ndarray | FiledArray")


class Checkpoint:
    """A committed state: ``arrays`` without a row axis, ``rows`` of each group or the file that has them, ``facts``
    (JSON)."""

    def __init__(self, arrays: dict[str, np.ndarray], rows: Sequence[Any], facts: dict[str, Any]) -> None:
        self.arrays, self.rows, self.facts = arrays, rows, facts


class RunDirectory:
    """A run's directory, held by one process at a time.

    Raises
    ------
    RunError : the directory cannot be written, another process holds it, or it belongs to another run.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = files.absolute(path)
        files.make_directory(self.path)
        files.probe_writable(self.path)
        self._lease = Lease(self.file("lease"))
        self._rows_of: dict[str, set[str]] = {}  # row files that each checkpoint names
        self._passed: set[str] = set()  # checkpoints that the run did not take up
        self._last_record = 0.0
        self._written: Mapping[str, object] | None = None
        self._waiting: Mapping[str, object] | None = None  # the last record, where it came too soon to be written
        self.failed_writes = 0
        self._run: str | None = None  # what tells this run's checkpoints; known once it begins

    def file(self, name: str) -> str:
        return files.join(self.path, name)

    # Who is at work

    def acquire(self) -> None:
        """Take the lease (``bigclf/training/records/lease.py``); RunError while another process holds it."""
        self._lease.acquire()
        files.clear_left(self.path)

    def release(self) -> None:
        """Give the lease back; safe to call twice."""
        self._try("history", lambda: files.flush_lines(self.file("history.jsonl")))
        self._lease.release()

    # What was asked

    @property
    def run(self) -> str | None:
        """What tells this run from runs of other data or parameters, once it has begun."""
        return self._run

    def begin(
        self,
        asked: Mapping[str, object],
        resume: bool,
        *,
        may_loosen: bool = False,
        by_content: Callable[[], bool] = lambda: False,
    ) -> dict[str, Any] | None:
        """Write ``run.json``, or on resume compare it; returns what an earlier start had written, if anything.

        Parameters
        ----------
        may_loosen : the run may go on under a larger tolerance.
        by_content : whether the files of ``asked`` tell what all their rows are; then copies of them, or what was made
            once more of the same raw files, are the data that the run began with, wherever they lie.

        Raises
        ------
        RunError : the directory holds a run and ``resume`` was not said, or another run (the differences are named).
        """
        if not files.exists(self.file("run.json")):
            self._write_first(asked)
            return None
        if not resume:
            raise RunError(f"{self.path} holds a run already; resume it (resume=True, --resume) or use another one")
        try:
            before: dict[str, Any] = json.loads(files.read_text(self.file("run.json")))
            check_run(before)
        except ValueError as error:
            raise RunError(f"{self.file('run.json')} is damaged: {error}; use another run directory") from None
        if before.get("version", 0) > VERSION:
            raise RunError(f"{self.path} was written by a newer bigclf (run format {before['version']})")
        was, now = before.get("identity", {}), json.loads(json.dumps(asked["identity"], default=plain))
        told = cast("Told", {**asked, "identity": now})
        lines = told_apart(cast("Told", before), told, may_loosen, by_content)
        if lines and self._came_to_nothing():
            for name in (*self._rows_there(), "history.jsonl"):
                files.remove(self.file(name))
            self._write_first(asked)
            return None
        if lines:
            raise RunError(f"{self.path} holds another run; {refusal(lines, may_loosen)}")
        self._run = _told(was)
        return before

    def _write_first(self, asked: Mapping[str, object]) -> None:
        files.publish_text(self.file("run.json"), json.dumps(asked, indent=1, default=plain))
        self._run = _told(json.loads(json.dumps(asked["identity"], default=plain)))

    def _came_to_nothing(self) -> bool:
        """Whether it was ended before its first checkpoint, with leave to replace nothing."""
        names = {name for name in files.list_directory(self.path) if not files.is_left(name)}
        return names - {*self._rows_there()} <= {"run.json", "history.jsonl", WROTE, "lease"}

    def _rows_there(self) -> list[str]:
        return [
            name
            for name in files.list_directory(self.path)
            if name.startswith("rows-") and not _is_rows(self.path, name)
        ]

    # History

    def record(self, record: Mapping[str, object], now: bool = False) -> None:
        """Add a record to ``history.jsonl``, at most ten a second (others are dropped, the last one, those with events
        or validation figures and the last before a checkpoint never).

        Raises
        ------
        RunError : another process has taken the directory over.
        """
        if self._lease.lost is not None:
            self._lease.check()
        moment = time.monotonic()
        if record is self._written:
            return
        wanted = now or record.get("events") or record.get("validation")
        if not wanted and moment - self._last_record < HISTORY_SECONDS:
            self._waiting = record
            return
        line = json.dumps(masked_in(record), default=plain)
        done = self._try("history", lambda: files.append_line(self.file("history.jsonl"), line))
        self._last_record = moment
        self._written, self._waiting = (record, None) if done else (self._written, record)

    def history(self, up_to: int | None = None) -> list[Record]:
        """The records, of epochs ``up_to`` (the file is cut there); a line with a wrong field is left out, with a
        warning: no answer depends on it."""
        self._try("history", lambda: files.flush_lines(self.file("history.jsonl"), forget=True))
        if not files.exists(self.file("history.jsonl")):
            return []
        records = []
        for line, record in lines_of(self.file("history.jsonl")):
            try:
                check_epoch(record)
                records.append(record)
            except FieldError as error:
                log.warning("%s, line %d passed over: %s", self.file("history.jsonl"), line, error)
        if up_to is not None:
            records = [record for record in records if record.get("epoch", 0) <= up_to]
            text = "".join(json.dumps(record) + "\n" for record in records)
            self._try("history", lambda: files.publish_text(self.file("history.jsonl"), text))
        return records

    def keep(self, model: Model) -> None:
        """Write the model the run came to; a full disk costs this copy only, never the answer.

        Raises
        ------
        RunError : another process has taken the directory over.
        """
        self._lease.check()
        self._try("model.bigclf", lambda: model.save(self.file("model.bigclf")))

    # Checkpoints

    def save(self, checkpoint: Checkpoint, epoch: int, segment: int) -> bool:
        """Write a checkpoint; a disk that is full costs the new one, never an old one, and is retried after pruning.

        Raises
        ------
        RunError : another process has taken the directory over.
        """
        self._lease.check()
        if self._waiting is not None:  # a run that goes on from here has no other
            self.record(self._waiting, now=True)
        self._try("history", lambda: files.flush_lines(self.file("history.jsonl")))
        needed = {rows.name for rows in checkpoint.rows if isinstance(rows, RowFile)}  # the run goes on from them
        for attempt in range(2):
            try:
                self._write(checkpoint, epoch, segment)
                self.prune(KEPT)
                return True
            except OSError as error:
                self.failed_writes += 1
                log.warning("checkpoint not written: %s; the last one stays", error)
                self._remove_orphans(needed)
                if attempt == 0:
                    self.prune(1, needed)
        return False

    def _write(self, checkpoint: Checkpoint, epoch: int, segment: int) -> None:
        named: dict[str, str] = {}
        steps: tuple[float, ...] = ()
        for group, rows in enumerate(checkpoint.rows):
            if isinstance(rows, RowFile):  # a worker wrote it
                named[rows.name], steps = rows.digest, rows.steps
            elif rows:
                name = f"rows-{group:05d}-{epoch:08d}-{segment:06d}.safetensors"
                named[name] = publish_arrays(self.file(name), rows, {})
        facts = checkpoint.facts | {"rows_files": named, "epoch": epoch, "segment": segment}
        facts["rows_steps"], facts["run"] = [float(t).hex() for t in steps], self._run
        name = f"state-{epoch:08d}-{segment:06d}.safetensors"
        publish_arrays(self.file(name), checkpoint.arrays, facts)
        self._rows_of[name] = set(named)
        self._passed.discard(name)

    def checkpoints(self) -> list[str]:
        """Names of the state files, newest first."""
        return checkpoints_in(self.path)

    def newest(
        self, groups: int, filed: bool = False, require: Callable[[Checkpoint], None] | None = None
    ) -> Checkpoint | None:
        """The newest checkpoint that is whole; damaged ones are passed over with a warning. ``filed`` : see
        ``load_rows``; ``require`` : raises ValueError for one that cannot be taken up.

        Raises
        ------
        RunError : it was written by another run.
        """
        for name in self.checkpoints():
            try:
                arrays, facts, _ = load_arrays(self.file(name))
                self._require_own(name, facts)
                _check_place(name, facts, groups)
                rows: list[Any] = [{} for _ in range(groups)]
                steps = tuple(float.fromhex(t) for t in facts.get("rows_steps", ()))
                for file, digest in facts["rows_files"].items():
                    rows[int(file.split("-")[1])] = load_rows(self.file(file), digest, steps, filed)
                saved = Checkpoint(arrays, rows, facts)
                if require is not None:
                    require(saved)
                self._rows_of[name] = set(facts["rows_files"])
                return saved
            except (OSError, ModelFormatError, KeyError, ValueError) as error:
                log.warning("checkpoint %s passed over: %s", name, error)
                self._passed.add(name)
        return None

    def _require_own(self, name: str, facts: Mapping[str, object]) -> None:
        if self._run is not None and facts.get("run") not in (None, self._run):  # None: written before they were told
            raise RunError(f"{self.file(name)} is a checkpoint of another run, of other data or parameters than "
                           "run.json says; remove it, or use another run directory")  # fmt: skip

    def prune(self, keep: int, needed: Set[str] = frozenset()) -> None:
        """Keep the newest ``keep`` checkpoints and their row files, and those ``needed``; none of those passed over,
        which may be of later epochs than the run's own."""
        own = [name for name in self.checkpoints() if name not in self._passed]
        for name in (*own[keep:], *self._passed):
            with contextlib.suppress(OSError):
                files.remove(self.file(name))
                self._rows_of = {other: rows for other, rows in self._rows_of.items() if other != name}
        self._remove_orphans(needed)

    def _remove_orphans(self, needed: Set[str]) -> None:
        """Row files that no state file goes with and nobody needs, and what a killed writer left beside."""
        kept = self._kept_rows() | needed
        for name in files.list_directory(self.path):
            orphan = name.startswith("rows-") and name not in kept
            if orphan or (name.startswith(".") and ".tmp" in name):
                with contextlib.suppress(OSError):
                    files.remove(self.file(name))

    def _kept_rows(self) -> set[str]:
        """Row files that a checkpoint names."""
        kept: set[str] = set()
        for name in self.checkpoints():
            if name not in self._rows_of:
                try:
                    facts = load_arrays(self.file(name))[1]
                    check_fields(facts, STATE_FACTS, "facts")
                    self._rows_of[name] = set(facts["rows_files"])
                except (OSError, ModelFormatError, KeyError, ValueError):  # damaged: it names nothing
                    self._rows_of[name] = set()
            kept |= self._rows_of[name]
        return kept

    def discard_rows(self, name: str) -> None:
        """A row file was superseded: it goes, unless a checkpoint names it."""
        if not any(name in named for named in self._rows_of.values()):
            with contextlib.suppress(OSError):
                files.remove(self.file(name))

    def _try(self, what: str, write: Callable[[], object]) -> bool:
        """Whether it was written; a warning where it was not."""
        try:
            write()
            return True
        except OSError as error:
            self.failed_writes += 1
            log.warning("%s not written in %s: %s", what, self.path, error.strerror or error)
            return False


def publish_arrays(path: str, arrays: dict[str, np.ndarray], facts: Mapping[str, object]) -> str:
    """Write arrays and facts to one file, each tensor with a checksum; returns the digest over all of them."""

    def metadata(sums: dict[str, str]) -> dict[str, str]:
        held = {"version": VERSION, "sums": sums, "facts": facts}
        return {"bigclf-run": sealed(json.loads(json.dumps(held, default=plain))).decode()}

    with files.publishing(path) as beside:
        return _digest(write_tensors(beside, arrays, metadata))


def load_arrays(path: str) -> tuple[dict[str, np.ndarray], dict[str, Any], str]:
    """What ``publish_arrays`` wrote: arrays, facts, digest.

    Raises
    ------
    ModelFormatError, KeyError, ValueError, OSError : it is damaged, or not there.
    RunError : it was written by a newer version.
    """
    return _checked(path, *read_tensors(files.read_bytes(path)))


def _checked(path: str, arrays: dict[str, A], metadata: dict[str, str]) -> tuple[dict[str, A], dict[str, Any], str]:
    """Arrays of a file, the facts in its head and the digest, all of it compared with the checksums."""
    header = unsealed(metadata["bigclf-run"])
    check_fields(header, HEAD)
    if header["version"] > VERSION:
        raise RunError(f"{path} was written by a newer bigclf (run format {header['version']})")
    sums = {key: checksum(array) for key, array in arrays.items()}
    if sums != header["sums"]:
        raise ModelFormatError(f"{path}: a checksum does not agree with the bytes")
    return arrays, header["facts"], _digest(sums)


def _filed(path: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The arrays of a file, per-row arrays as ``FiledArray``, and the texts of its head."""
    places, metadata = read_head(path)
    arrays: dict[str, Any] = {}
    for name, (first, dtype, shape) in places.items():
        if ".rows." in name and dtype == np.float64 and all(shape) and shape:
            arrays[name] = filed_array(path, first, shape)
            continue
        with files.open_binary(path) as file:
            file.seek(first)
            size = int(np.prod(shape)) * dtype.itemsize
            arrays[name] = np.frombuffer(file.read(size), dtype).reshape(shape)
    return arrays, metadata


def _check_place(name: str, facts: Mapping[str, Any], groups: int) -> None:
    """Check what the state file ``name`` says of its place in the run and of its row files; FieldError names the
    field."""
    check_fields(facts, STATE_FACTS, "facts")
    known = STATE.fullmatch(name)
    assert known is not None
    epoch, segment = map(int, known.groups())
    check_relations([
        (facts["epoch"] == epoch, "facts.epoch", f"{epoch}, as the file's name says"),
        (facts["segment"] == segment, "facts.segment", f"{segment}, as the file's name says"),
        (all(int(file.split("-")[1]) < groups for file in facts["rows_files"]), "facts.rows_files",
         f"files of {groups} groups"),
    ])  # fmt: skip


def load_rows(path: str, digest: str, steps: tuple[float, ...], filed: bool = False) -> dict[str, Any]:
    """The row state of a group from its file, gone as far along its step as ``steps`` says; errors as above.

    ``filed`` : per-row arrays stay in the file, as ``FiledArray``.
    """
    held, _, found = _checked(path, *_filed(path)) if filed else load_arrays(path)
    if found != digest:
        raise ModelFormatError(f"{path} is not the one that was written")
    return settled_rows(held, steps)


def take_back(path: str, model: str) -> None:
    """Let the run in a directory have the model that it came to, where its own is gone: killed while its directory was
    removed, or out of room, it knows by it that it had ended."""
    own = files.join(path, "model.bigclf")
    if not files.exists(own):
        require_free(path)
        with contextlib.suppress(OSError):  # no room: then it trains on
            load(model).save(own)


def clear(path: str | os.PathLike[str]) -> None:
    """Remove what a run wrote into its directory, and the directory when nothing else is in it: that at once, so that
    who is killed meanwhile finds the whole run again. Otherwise ``run.json`` goes last.

    Raises
    ------
    RunError : another process is at work there; nothing is removed.
    """
    files.put_back(path, if_holds="run.json")
    if not files.is_directory(path):
        return
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # a full disk has no room for a lease, and what is here is what fills it
            stack.enter_context(holding(path))
        files.clear_left(path)
        names = [name for name in files.list_directory(path) if _is_of_a_run(name) and not _is_rows(path, name)]
        if {*files.list_directory(path)} <= {*names, "lease"} and not files.link_target(path):
            with contextlib.suppress(OSError):  # a mount point, or one in a directory that cannot be written
                files.remove_at_once(path, to_the_last=("history.jsonl", REPLACES, WROTE, "run.json"))
                return
        for name in sorted(names, key=lambda name: RUN_FILES.index(name) if name in RUN_FILES else -1):
            files.remove(files.join(path, name))
    if not files.list_directory(path):
        files.remove_tree(path)


def require_no_others(path: str | os.PathLike[str]) -> None:
    """RunError where a directory to be removed holds, at any depth, what no run wrote."""
    for name, file in files.walk(path):
        if not _is_of_a_run(files.base_name(name)) and files.base_name(name) != "lease":
            raise RunError(f"{file}: was not written by a run; it is not removed: name another directory")


def _is_rows(path: str | os.PathLike[str], name: str) -> bool:
    """Whether it is a directory, as of rows: a run has none but those that a process was writing when it was killed."""
    return not files.is_left(name) and files.is_directory(files.join(path, name))


def _is_of_a_run(name: str) -> bool:
    return name in RUN_FILES or name.startswith(("state-", "rows-")) or files.is_left(name)


def checkpoints_in(path: str | os.PathLike[str]) -> list[str]:
    """Names of the state files in a directory, newest first."""
    return sorted((name for name in files.list_directory(path) if STATE.fullmatch(name)), reverse=True)


def last_checkpoint(path: str | os.PathLike[str]) -> int | None:
    """The epoch in which the newest checkpoint of a directory goes on; None where there is none."""
    newest = next(iter(checkpoints_in(path)), None)
    return None if newest is None else int(newest.split("-")[1])


def groups_before(path: str | os.PathLike[str]) -> int | None:
    """Groups of the run that a directory holds; None where there is none to read."""
    plan = plan_before(path)
    return len(plan["groups"]) if "groups" in plan else None


def plan_before(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The plan of the run that a directory holds; empty where there is none to read."""
    try:
        held = json.loads(files.read_text(files.join(files.absolute(path), "run.json")))
        check_run(held)
        return dict(held.get("plan", {}))
    except (OSError, ValueError):
        return {}


def features_before(path: str | os.PathLike[str] | None) -> int | None:
    """Features of the rows of the run that a directory holds, as it has them; None where there is none to read."""
    if path is None:
        return None
    try:
        held = json.loads(files.read_text(files.join(files.absolute(path), "run.json")))
        return int(held["identity"]["data"]["n_features"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def run_of(path: str | os.PathLike[str]) -> str | None:
    """What tells the run of a directory from others, as its model has it (``facts["run"]``); None where none lies
    there."""
    try:
        held = json.loads(files.read_text(files.join(files.absolute(path), "run.json")))
        return _told(held["identity"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _told(identity: object) -> str:
    """Hex over what makes a run another one."""
    return hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=16).hexdigest()


def _digest(sums: dict[str, str]) -> str:
    return hashlib.blake2b(json.dumps(sorted(sums.items())).encode(), digest_size=16).hexdigest()
