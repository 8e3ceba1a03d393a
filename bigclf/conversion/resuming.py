"""A conversion that was killed goes on from what it had finished: the place where it works, and the journal it keeps.

Beside the output ``x`` lies ``.x.converting`` (of a remote one, among scratch files). It holds a lock, so that one
process at a time is at work; ``job.json``, by which the conversion is known again: sources with sizes and times of
change, options, sources of this package; a journal with a line for each task that is done, which names its runs and
their checksums; and for each attempt a directory of runs, one of what raw columns told (their tallies) and one of
shards, the last of which becomes the output. (A process that outlives its killed parent for a moment writes where
nobody looks.) Who goes on redoes what has no line or whose files are not as they were written, and every shard that is
not there. So nothing depends on when it was killed.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from bigclf import files
from bigclf.compiled.jit import sources_digest
from bigclf.conversion import shuffle as merging
from bigclf.conversion.text.pieces import Bad, Done, Source, Task
from bigclf.errors import RunError

SPARSE = (Bad, Done, merging.Run)
ENDING = ".converting"  # of the name of the place
JOB = "job.json"  # what was asked for, and what the shards are known by; the last to go


def tidy(out: files.PathLike) -> None:
    """Remove what a conversion to ``out`` left that was killed after its shards had taken their name; one that is at
    work goes on."""
    path = _place_of(out)
    files.put_back(path, JOB)
    if not (files.exists(out) and files.exists(files.join(path, JOB))):
        return
    held = None
    with contextlib.suppress(OSError):  # a directory that cannot be written
        held = files.lock(files.join(path, "lock"))
    if held is not None and not any(name.startswith("shards") for name in files.list_directory(path)):
        files.remove_tree(path)
    files.unlock(held)


def made_before(
    out: files.PathLike, identity: Mapping[str, object], found: object, appends: bool
) -> dict[str, object] | None:
    """What a conversion of the same sources and options noted of its shards, if these are there (``found`` : what is,
    as it names them) and it was killed since, whatever stood there before it; its place goes then. One that was asked
    to append is never taken for one that was not, nor the other way round."""
    path = _place_of(out)
    files.put_back(path, JOB)
    if not files.exists(files.join(path, JOB)) or (held := files.lock(files.join(path, "lock"))) is None:
        return None
    try:
        told = json.loads(files.read_text(files.join(path, JOB)))
        made: dict[str, Any] = told["facts"].get("made", {})
        same = _asked(told["identity"]) == _asked(_plain(identity)) and made.get("shards") == _plain(found)
        same = same and made.get("appends", appends) == appends  # older versions did not note it
        if same:
            files.remove_replaced(out)
            files.remove_at_once(path, to_the_last=(JOB,))
        return made if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    finally:
        files.unlock(held)


def _plain(identity: object) -> Any:
    """As JSON knows it; of a conversion with the package's sources."""
    return json.loads(json.dumps({**identity, "package": sources_digest()} if isinstance(identity, dict) else identity))


def _asked(identity: Mapping[str, object]) -> dict[str, object]:
    """Without the shards that were there before."""
    return {name: value for name, value in identity.items() if name != "append"}


def left_in(directory: files.PathLike) -> list[str]:
    """The outputs of conversions that work in a local ``directory`` or were killed there, the oldest first."""
    names = [name for name in files.list_directory(directory) if name.endswith(ENDING)]
    places = files.by_age(files.join(directory, name) for name in names)
    return [files.join(directory, files.base_name(place)[1:].removesuffix(ENDING)) for place in places]


def forget(out: files.PathLike) -> None:
    """Remove what a conversion to ``out`` left that was killed; one that is at work goes on."""
    path = _place_of(out)
    with contextlib.suppress(FileNotFoundError):  # it ended meanwhile
        if (held := files.lock(files.join(path, "lock"))) is not None:
            files.remove_tree(path)
            files.unlock(held)


def _place_of(out: files.PathLike) -> str:
    place = files.beside(out)
    return files.join(files.parent_directory(place), f".{files.base_name(place)}{ENDING}")


def _key(task: Task) -> tuple[int, int, int]:
    return task.source.number, task.first, task.last


class Noted(Protocol):
    """What came of a task, as it is written down."""

    def as_written(self) -> object: ...


class Workplace:
    """Where a conversion works.

    Parameters
    ----------
    out : what its shards become.
    identity : all that they depend on, as JSON knows it.
    kinds : the tuples that stand in what comes of a task: that itself, bad rows, files that were written (which have a
        ``path``).

    Attributes
    ----------
    directory, scratch, kept : where the shards and the runs are made, and what is needed until all is done.
    resumed : whether there is something that an interrupted conversion of the same had finished.
    kept_bytes : of the sources, read before.

    Raises
    ------
    RunError : another process is at work there.
    """

    def __init__(self, out: files.PathLike, identity: Mapping[str, object], kinds: tuple[type, ...] = SPARSE) -> None:
        self.path = _place_of(out)
        self._kinds = {kind.__name__: kind for kind in kinds}
        files.make_directory(self.path)
        self._lock = files.lock(files.join(self.path, "lock"))
        if self._lock is None:
            raise RunError(f"another process is converting to {files.base_name(out)!r} (it works in {self.path}); wait "
                           "for it, or name another output")  # fmt: skip
        self._identity = _plain(dict(identity))
        self._facts: dict[str, Any] = {"pieces": {}}
        self._done: dict[tuple[int, int, int], object] = {}
        self._whole: set[tuple[int, int, int]] = set()  # of these, those whose runs are known to be as they were
        self._ended: set[int] = set()  # sources of which every task is done
        self.written = False  # every shard is there
        self.kept_bytes = 0
        if not self._take_up():
            files.clear_directory(self.path, keep=("lock",))
            self._save()
        self.resumed = bool(self._done)
        self.scratch = files.numbered(files.join(self.path, "runs"))
        self.kept = files.numbered(files.join(self.path, "kept"))
        self.directory = files.numbered(files.join(self.path, "shards"))
        self._collect_shards()

    # What was done before

    def _take_up(self) -> bool:
        """Read what an earlier attempt left; False where it was another conversion, or there was none."""
        try:
            told = json.loads(files.read_text(files.join(self.path, JOB)))
            if told["identity"] != self._identity:
                return False
            self._facts = told["facts"]
            for line in files.read_text(self._journal).splitlines():
                self._read_line(json.loads(line))
        except FileNotFoundError:
            return files.exists(files.join(self.path, JOB))
        except (OSError, ValueError, KeyError, TypeError):
            pass  # a line cut short by the end of the process, and what comes after it
        return True

    def _collect_shards(self) -> None:
        """Take over the shards of earlier attempts."""
        for name in files.list_directory(self.path):
            earlier = files.join(self.path, name)
            if name.startswith("shards-") and earlier != self.directory:
                for shard in files.list_directory(earlier):
                    if shard.startswith("part-"):
                        files.move(files.join(earlier, shard), files.join(self.directory, shard))
                files.remove_tree(earlier)

    def _read_line(self, told: dict[str, Any]) -> None:
        if "task" in told:
            self._done[tuple(told["task"])] = told["done"]  # type: ignore[index]
        elif "ended" in told:
            self._ended.add(told["ended"])
        else:
            self.written = self.written or bool(told.get("written"))

    @property
    def _journal(self) -> str:
        return files.join(self.path, "journal.jsonl")

    def _save(self) -> None:
        text = json.dumps({"identity": self._identity, "facts": self._facts})
        files.publish_text(files.join(self.path, JOB), text)

    def pieces_a_task(self, source: Source, wanted: int) -> int:
        """Pieces a task of ``source``, as at the first attempt; of compressed text, which is held, not more than
        ``wanted`` by now."""
        before = self._facts["pieces"].get(str(source.number))
        if before is None or (source.compressed and before > wanted):
            self._done = {key: done for key, done in self._done.items() if key[0] != source.number}
            self._ended.discard(source.number)
            self._facts["pieces"][str(source.number)] = before = wanted
            self._save()
        return int(before)

    def all_tasks(self, source: Source) -> Iterator[Task] | None:
        """The tasks of a source that needs no reading any more; None for another."""
        if source.number not in self._ended:
            return None
        tasks = [Task(source, *key[1:], None) for key in self._done if key[0] == source.number]
        if source.compressed and not all(self._is_whole(task) for task in tasks):
            return None  # it must be decompressed from its beginning
        return iter(tasks)

    def known(self, task: Task) -> Any:
        """What came of a task, if it is done and its runs are as they were written."""
        if not self._is_whole(task):
            return None
        done = self._decode(self._done[_key(task)])
        self.kept_bytes += done.n_bytes
        return done

    def _is_whole(self, task: Task) -> bool:
        key = _key(task)
        if key in self._done and key not in self._whole:
            if self._decode(self._done[key]).is_whole(self.written):
                self._whole.add(key)
            else:
                del self._done[key]
        return key in self._whole

    # What is done now

    def note(self, task: Task, done: Noted) -> None:
        """Write down that a task is done."""
        key = _key(task)
        if key in self._whole:
            return
        told = self._encode(done.as_written())
        self._line({"task": key, "done": told})
        self._done[key] = told
        self._whole.add(key)

    def note_end(self, source: Source) -> None:
        """Write down that every task of a source is done."""
        if source.number not in self._ended:
            self._ended.add(source.number)
            self._line({"ended": source.number})

    def note_written(self) -> None:
        """Write down that every shard is there: the runs may go."""
        if not self.written:
            self.written = True
            self._line({"written": True})

    def note_made(self, shards: object, rows: int, nnz: int, appends: bool) -> None:
        """Write down what the shards at the output will be known by, before they can be seen there, how many rows and
        entries came of this conversion, and whether it was asked to append (there may have been nothing yet)."""
        self._facts["made"] = {"shards": shards, "rows": rows, "nnz": nnz, "appends": appends}
        self._save()

    def _line(self, told: Mapping[str, object]) -> None:
        files.append_line(self._journal, json.dumps(told))

    # The end

    def leave(self, finished: bool) -> bool:
        """Let the place go: what is finished may stay for another attempt; returns whether anything did."""
        keep = not finished and bool(self._done)
        if not keep:
            files.remove_at_once(self.path, to_the_last=(JOB,))
            with contextlib.suppress(OSError):  # the shards are whole
                files.put_back(self.path, JOB)
                if files.exists(self.path):  # a device failed once: left, it would stand for another append of the same
                    files.remove_at_once(self.path, to_the_last=(JOB,))
        files.unlock(self._lock)
        return keep

    def size(self) -> int:
        """Bytes that lie here."""
        return files.tree_size(self.path)

    # As JSON

    def _encode(self, value: object) -> object:
        if isinstance(value, np.generic):
            return self._encode(value.item())
        for name, kind in self._kinds.items():
            if isinstance(value, kind):
                fields = value._asdict()  # type: ignore[attr-defined]
                if "path" in fields:
                    fields["path"] = files.relative(fields["path"], self.path)
                return {"kind": name, "fields": {n: self._encode(v) for n, v in fields.items()}}
        if isinstance(value, merging.Totals):
            return {"kind": "Totals", "fields": {n: self._encode(v) for n, v in vars(value).items()}}
        if isinstance(value, bytes):
            return {"kind": "bytes", "content": base64.b64encode(value).decode()}
        if isinstance(value, dict):
            name = "Counter" if isinstance(value, collections.Counter) else "dict"
            return {"kind": name, "pairs": [[self._encode(key), self._encode(v)] for key, v in value.items()]}
        if isinstance(value, list | tuple):
            items = [self._encode(item) for item in value]
            return {"kind": "tuple", "items": items} if isinstance(value, tuple) else items
        return value  # JSON's own, or an error when it is written

    def _decode(self, told: object) -> Any:
        if isinstance(told, list):
            return [self._decode(item) for item in told]
        if not isinstance(told, dict):
            return told
        kind = told["kind"]
        if kind == "bytes":
            return base64.b64decode(told["content"])
        if kind in ("Counter", "dict"):
            pairs = {self._decode(key): self._decode(v) for key, v in told["pairs"]}
            return collections.Counter(pairs) if kind == "Counter" else pairs
        if kind == "tuple":
            return tuple(self._decode(item) for item in told["items"])
        fields = {name: self._decode(value) for name, value in told["fields"].items()}
        if kind == "Totals":
            totals = merging.Totals()
            vars(totals).update(fields)
            return totals
        if "path" in fields:
            fields["path"] = files.join(self.path, fields["path"])
        return self._kinds[kind](**fields)
