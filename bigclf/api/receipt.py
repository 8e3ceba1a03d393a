"""What ``forget`` makes and leaves: where new shards wait, how far it is, what becomes of old files, the receipt."""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np

from bigclf import files
from bigclf.api.fit import known_again
from bigclf.api.old_run import OldRun, told_of
from bigclf.conversion import removing
from bigclf.conversion.appending import QUARANTINE
from bigclf.conversion.destination import OF_COLUMNS
from bigclf.data.dataset import CHUNK_TABLE, MANIFEST, NUMBERS, Dataset
from bigclf.errors import DataError, Interrupted, RunError
from bigclf.files.apart import keep_apart
from bigclf.files.caches import CONVERSIONS, MANIFESTS, cache_directory
from bigclf.maths.block import Block, written_out
from bigclf.model.model import Model, plain
from bigclf.training.records.run_directory import FORGETTING, clear
from bigclf.training.records.run_record import read_history
from bigclf.version import __version__

if TYPE_CHECKING:
    from bigclf.api.forget import Look


VERSION = 1
MOST_ROWS = 10  # of a shard, and shards, that are named beside raw files of which nothing else is known
LOCK = ".lock"
ASIDE = ".bigclf-forgetting"  # directory where shards wait that are to take the places of others beside it
WHOSE = ".journal"  # in such a directory, the file of the request whose shards wait there
BESIDE = ".forgetting"  # ends the name of the hidden directory beside an output
PROMISE = (
    "The model is within its tolerance of the optimum of the rows that are left. "
    "This does not say that no trace of the others is left in it."
)
KEPT, REPLACED, REMOVED, GONE = "stays", "replaced", "removed", "gone"
UNKNOWN = "(not known where)"
OLD_MODEL = "model that learned from the rows"
OLD_RUN = "run: dual variables of the rows, and the model that learned from them"
OLD_RUN_OF_STEPS = "run: what training keeps of the rows, and the model that learned from them"  # without such
OLD_RUNS = OLD_RUN, OLD_RUN_OF_STEPS
SAME_SOURCES = "cache: shards of the same raw files"


class LikeGiven(TypedDict):
    """Of rows named by what they hold: how many there were, how many are none of the data, numbers of the first."""

    rows: int
    not_found: int
    first_not_found: list[int]


class Forgotten(NamedTuple):
    """What came of it: the new model, and the receipt as its file has it."""

    model: Model
    receipt: dict[str, Any]


class Outputs(NamedTuple):
    """Where everything goes; paths are absolute. key : the file of the secret, or None."""

    model: str
    to: str | None
    run_dir: str
    receipt: str
    key: str | None
    local_dir: str | None

    @classmethod
    def named(
        cls,
        output: files.PathLike,
        to: files.PathLike | None,
        rewrite: bool,
        run_dir: files.PathLike | None,
        receipt: files.PathLike | None,
        key: files.PathLike | None,
        local_dir: files.PathLike | None,
    ) -> Outputs:
        """With names for what was given none; TypeError unless it is said what becomes of the shards."""
        if (to is None) != rewrite:
            raise TypeError(
                "say what becomes of the shards: to=DIR (--to) writes those that are left to a new directory and "
                "changes nothing else, rewrite=True (--rewrite) replaces them in their places"
            )
        model = files.absolute(output)
        absolute = [None if path is None else files.absolute(path) for path in (to, run_dir, receipt, key, local_dir)]
        return cls(model, absolute[0], absolute[1] or f"{model}.run", absolute[2] or f"{model}.receipt.json",
                   absolute[3], absolute[4])  # fmt: skip

    @property
    def rewrites(self) -> bool:
        """Whether shards are replaced where they are."""
        return self.to is None

    def keep_apart(self, rows: Iterable[object], others: Iterable[object] = ()) -> None:
        """RunError where a place is one of the inputs, or holds one (``files.apart``)."""
        to = [] if self.to is None else [self.to]
        keep_apart(rows, others, written=[self.model, self.receipt], replaced=to, filled=[self.run_dir])

    def require_usable(self, dataset: Dataset, of_cache: bool) -> None:
        """Refuse shards that cannot be replaced where they are, such as those ``of_cache``, and stores, which know no
        renaming.

        Raises
        ------
        DataError, RunError : with what to do instead.
        """
        if self.to is not None and files.is_remote(self.to):
            raise RunError(f"{self.to}: name a local directory, and copy it from there")
        if not self.rewrites:
            return
        if files.is_remote(dataset.files[0]):
            raise DataError("remote shards cannot be replaced in their places; use --to", file=dataset.files[0])
        if of_cache:
            raise DataError("these shards are a cache of raw files, which still hold the rows: use --to, and take the "
                            "rows out of the raw files", file=dataset.files[0])  # fmt: skip


class Journal:
    """How far it is, in the new run directory; ``told`` : what the file says."""

    def __init__(self, outputs: Outputs, told: Mapping[str, object]) -> None:
        self.path, self.outputs = files.join(outputs.run_dir, FORGETTING), outputs
        self.told: dict[str, Any] = dict(told)

    @classmethod
    def opened(cls, outputs: Outputs, asked: Sequence[str], overwrite: bool) -> Journal:
        """That of the same call which was broken off, or a new one.

        Raises
        ------
        RunError : an output is there, or another call was broken off where it must be ended first.
        """
        told = _read(files.join(outputs.run_dir, FORGETTING))
        salt = told.get("salt") or secrets.token_hex(16)
        mark = hashlib.blake2b(json.dumps([salt, *asked, *outputs]).encode(), digest_size=16).hexdigest()
        if told.get("asked") == mark:
            return cls(outputs, told)
        if told.get("receipt"):
            raise RunError(f"{outputs.run_dir}: another bigclf forget lets files take their places, or was broken off "
                           "there; wait for it, or give its command again first")  # fmt: skip
        _require_free(outputs, overwrite, begun=bool(told))
        return cls(outputs, {"version": VERSION, "salt": salt, "asked": mark})

    def begin(self) -> None:
        """Nothing of what is there goes on."""
        clear(self.outputs.run_dir)
        self._write({name: self.told[name] for name in ("version", "salt", "asked")})

    @property
    def finishing(self) -> bool:
        """Whether everything new is whole, and only takes its place."""
        return "receipt" in self.told

    def mark_of(self, numbers: np.ndarray) -> str:
        """By what rows are known again while it is under way."""
        return hashlib.blake2b(numbers.tobytes(), key=self.told["salt"].encode(), digest_size=16).hexdigest()

    def note_staged(self, rows: str, fingerprints: list[object]) -> None:
        """The new shards are whole."""
        self._write({**self.told, "rows": rows, "staged": fingerprints})

    def note_finishing(self, staged: Staged, receipt: Mapping[str, object]) -> None:
        """Everything new is whole."""
        marks = [[_mark_of(path), _mark_of(place)] for place, path in staged.moves]
        for room in staged.rooms if self.outputs.rewrites else ():
            files.publish_text(files.join(room, WHOSE), self.path)
        self._write(
            {**self.told, "moves": staged.moves, "marks": marks, "aside": staged.directories, "receipt": receipt}
        )

    def require_mine(self, rooms: Iterable[str]) -> None:
        """RunError where shards wait in one of the ``rooms`` for another request that only lets them take their places:
        it would say of rows that they are gone, which still are there."""
        for room in rooms:
            path = files.join(room, WHOSE)
            whose = files.read_text(path) if files.exists(path) else self.path
            if whose != self.path and any(files.is_below(place, room) for place, _ in _moves_in(whose)):
                raise RunError(f"{files.parent_directory(room)}: another bigclf forget lets shards take their places "
                               f"there, or was broken off, that of {files.parent_directory(whose)}; give its command "
                               "again first")  # fmt: skip

    def require_untouched(self) -> None:
        """RunError where shards that are to be replaced, or were, are others by now."""
        for (place, path), (old, new) in zip(self.told["moves"], self.told.get("marks", ()), strict=False):
            if _mark_of(path) != (old if files.exists(place) else new):
                raise RunError(f"{path}: has changed since this bigclf forget was broken off, and may hold the rows: "
                               "nothing more is changed. Take them out of what is there now with the model that was "
                               f"trained on it, and remove {self.outputs.run_dir}")  # fmt: skip

    def give_up(self) -> None:
        """Remove the new run, as far as it is this call's."""
        if _read(self.path).get("asked") == self.told["asked"]:
            clear(self.outputs.run_dir)

    def _write(self, told: dict[str, object]) -> None:
        files.make_directory(self.outputs.run_dir)
        files.publish_text(self.path, json.dumps(told, default=plain))
        self.told = told  # only what is in the file counts


def _read(path: str) -> dict[str, object]:
    try:
        told: dict[str, Any] = json.loads(files.read_text(path))
        return dict(told) if told["version"] == VERSION else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _moves_in(journal: str) -> list[tuple[str, str]]:
    """What is still to take its place by such a file."""
    told: Any = _read(journal)
    return [(place, path) for place, path in told.get("moves", ()) if files.exists(place)]


def _mark_of(path: str) -> list[object] | None:
    """By what a shard is known wherever it lies; None: it is a directory, or not there."""
    if files.is_directory(path) or not files.exists(path):
        return None
    found = files.fingerprint(path)
    return [found.size, found.footer]


def _require_free(outputs: Outputs, overwrite: bool, begun: bool) -> None:
    """RunError where something is there that is not to be replaced; ``begun`` : the run is of a call that was broken
    off before anything took its place."""
    there = [path for path in (outputs.model, outputs.receipt) if files.exists(path)]
    directories = [outputs.to] if begun else [outputs.to, outputs.run_dir]
    there += [path for path in directories if path and not all(map(files.is_left, files.list_directory(path)))]
    if there and not overwrite:
        raise RunError(f"{there[0]} already exists; add --overwrite to replace it")
    strange = [name for name in files.list_directory(outputs.to or "") if name[:5] != "part-" and name[:1] not in "_."
               and not name.endswith(".parquet")] if outputs.to else []  # fmt: skip
    if strange:
        raise RunError(f"{outputs.to} holds {strange[0]!r}, which bigclf did not write; it is not overwritten")


# The new shards


@contextlib.contextmanager
def alone(directories: Sequence[str], journal_now: Callable[[], Journal]) -> Iterator[Journal]:
    """Hold hidden directories (``Staged.directories``), to the last file that takes its place; the journal as it is
    then: another process may have ended since it was opened first, and what that made is not to be removed.

    Raises
    ------
    RunError : another process has one of them, or left outputs.
    """
    with contextlib.ExitStack() as stack:
        held = []
        try:
            for directory in sorted({*directories}):  # all in one order, or two could refuse each other
                stack.enter_context(files.made_for(directory))
                stack.callback(files.unlock, _lock(directory))
                held.append(directory)
            journal = journal_now()
        except BaseException:
            for directory in held:
                if files.list_directory(directory) == [LOCK]:  # made for the lock alone
                    files.remove_tree(directory)
            raise
        yield journal


def _lock(directory: str) -> int:
    while True:
        files.make_directory(directory)
        with contextlib.suppress(FileNotFoundError):  # who had it removed it
            if (lock := files.lock(files.join(directory, LOCK))) is None:
                raise RunError(_taken(directory))
            return lock


def _taken(directory: str) -> str:
    """What another process has, in words."""
    if files.base_name(directory) == ASIDE:
        return f"{directory}: another process takes rows out of these shards; wait for it"
    output = files.base_name(directory)[1 : -len(BESIDE)]
    return (
        f"{files.join(files.parent_directory(directory), output)}: another bigclf forget writes there; wait for it, or "
        "name another output"
    )


def _beside(output: str) -> str:
    """The hidden directory by which one process has an output."""
    place = files.beside(output)
    return files.join(files.parent_directory(place), f".{files.base_name(place)}{BESIDE}")


class Staged:
    """New shards where they wait.

    directories : hidden ones, beside the shards and beside each output; rooms : in them, where shards wait.
    moves : (from, to) of each file, or of the directory. waiting : of each shard, where it waits.
    """

    def __init__(self, outputs: Outputs, dataset: Dataset) -> None:
        self.outputs, paths = outputs, [files.absolute(path) for path in dataset.files]
        self.files = paths
        self.directories = [_beside(path) for path in (outputs.model, outputs.run_dir, outputs.receipt)]
        if outputs.to is not None:
            aside = _beside(outputs.to)
            self.directories.append(aside)
            self.rooms = [files.join(aside, "rows")]
            self.waiting = [files.join(aside, "rows", name) for name in _names(paths)]
            self.moves = [[*self.rooms, outputs.to]]
        else:
            beside = [files.join(files.parent_directory(path), ASIDE) for path in paths]
            self.rooms = sorted(set(beside))
            self.directories += self.rooms
            self.waiting = [files.join(place, files.base_name(path)) for place, path in zip(beside, paths, strict=True)]
            self.moves = []

    @classmethod
    @contextlib.contextmanager
    def held(
        cls, outputs: Outputs, dataset: Dataset, journal_now: Callable[[], Journal]
    ) -> Iterator[tuple[Staged, Journal]]:
        """As ``alone``; DataError where the shards are others by now."""
        staged = cls(outputs, dataset)

        def still() -> Journal:
            journal = journal_now()
            if not journal.finishing:
                dataset.check_unchanged()
                journal.require_mine(staged.rooms)
            return journal

        with alone(staged.directories, still) as journal:
            try:
                yield staged, journal
            except Exception as error:
                if not isinstance(error, Interrupted) and not journal.finishing:
                    staged.give_up(journal)
                raise

    def write(
        self, dataset: Dataset, stays: Mapping[int, Mapping[int, np.ndarray]], numbers: np.ndarray, journal: Journal
    ) -> list[Block]:
        """Write the shards that hold rows that go, unless a call that was broken off has; the rows that go."""
        rows = journal.mark_of(numbers)
        places = {file: self.waiting[file] for file in stays}
        if self.outputs.rewrites:
            self.moves = [[place, self.files[file]] for file, place in places.items()]
        if journal.told.get("rows") == rows and journal.told.get("staged") == self._marks(dataset, places):
            for room in self.rooms:
                files.clear_left(room)
            return removing.blocks_of(dataset, stays)
        for directory in self.directories:
            files.clear_directory(directory, keep=[LOCK])
        for room in self.rooms:
            files.make_directory(room)
        journal.begin()
        gone = removing.write_without(dataset, stays, places)
        if self.outputs.to is not None:
            for file in set(range(len(self.files))) - set(places):
                files.put(self.files[file], self.waiting[file])
        _bring_beside(dataset, self.rooms)
        journal.note_staged(rows, self._marks(dataset, places))
        return gone

    def give_up(self, journal: Journal) -> None:
        """Everything is as it was before."""
        with contextlib.suppress(OSError, RunError):
            journal.give_up()
        for directory in self.directories:
            files.remove_tree(directory)

    def _marks(self, dataset: Dataset, places: Mapping[int, str]) -> list[object]:
        """By what the old shards and those that wait are known."""
        old = [list(found) for found in dataset.fingerprints]
        return [old, [list(files.fingerprint(path)) if files.exists(path) else None for path in places.values()]]

    def dataset(self, old: Dataset) -> Dataset:
        """The rows that are left: shards that wait, and those that stay as they are."""
        there = [place if files.exists(place) else path for place, path in zip(self.waiting, self.files, strict=True)]
        left = Dataset(there, columns=old.columns or None, target_nnz=old.target_nnz, memory=old.memory, warn=False)
        if old.raw is not None:  # what is left is not made again of them
            left.raw = {"paths": old.raw["paths"], "in_order": old.raw["in_order"]}
        if self.outputs.to is not None and files.exists(_manifest_of(old)):
            left.write_manifest(self.rooms[0], old.conversion or None)
        return left


def _names(paths: Sequence[str]) -> list[str]:
    """Their own names where these keep their order in one directory, else numbers."""
    names = [files.base_name(path) for path in paths]
    if names == sorted(set(names)):
        return names
    return [f"part-{number:05d}.parquet" for number in range(len(paths))]


def _bring_beside(dataset: Dataset, directories: Sequence[str]) -> None:
    """What was learned of raw columns lies beside the shards."""
    source = files.parent_directory(dataset.files[0])
    for name in OF_COLUMNS:
        if files.exists(files.join(source, name)):
            for directory in directories:
                files.publish_bytes(files.join(directory, name), files.read_bytes(files.join(source, name)))


def _manifest_of(dataset: Dataset) -> str:
    return files.join(files.parent_directory(dataset.files[0]), MANIFEST)


# The receipt


def digests_of(gone: Sequence[Block], classes: np.ndarray | None, key: str | None) -> list[str] | None:
    """A digest of each row, keyed with the secret in the file ``key``, which is made if need be; None without one.

    A plain digest of a row would be a trace of it: who has the row, or can guess it, finds it in the receipt.
    """
    if key is None:
        return None
    files.clear_left_of(key)
    if not files.exists(key):
        files.publish_bytes(key, secrets.token_bytes(32), mode=0o600)
    secret = files.read_bytes(key)[:64]
    return [row_digest(secret, *row) for block in gone for row in _rows_of(block, classes)]


def _rows_of(block: Block, classes: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray, object]]:
    block = written_out(block)
    for i in range(block.n_rows):
        a, b = block.indptr[i], block.indptr[i + 1]
        values = block.values[a:b] if block.values.size else np.ones(b - a, np.float32)
        label = block.labels[i] if classes is None else classes[int(block.labels[i])]
        yield block.indices[a:b], values, label.item()


def row_digest(secret: bytes, indices: np.ndarray, values: np.ndarray, label: object) -> str:
    """Keyed BLAKE2b (32 hex digits) over indices as uint64, values as float32, both little-endian, and the label as
    JSON: by it who has the key and a row sees whether it is in a receipt."""
    found = hashlib.blake2b(key=secret, digest_size=16)
    found.update(np.ascontiguousarray(indices, "<u8").tobytes())
    found.update(np.ascontiguousarray(values, "<f4").tobytes())
    found.update(json.dumps(label).encode())
    return found.hexdigest()


def receipt_of(
    old: OldRun,
    model: Model,
    dataset: Dataset,
    numbers: np.ndarray,
    *,
    start: str,
    look: Look,
    seconds: float,
    digests: list[str] | None,
    names: Mapping[str, object] | None,
    alike: removing.Alike | None,
) -> dict[str, object]:
    """What the receipt says but for the places."""
    result = model.result_
    given = dict[str, object]()
    if alike is not None:
        first = list(alike.lacking[:MOST_ROWS])
        given["like"] = LikeGiven(rows=alike.n_others, not_found=alike.n_lacking, first_not_found=first)
    return {
        "version": VERSION,
        "writer": __version__,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "promise": PROMISE,
        "rows": {
            "forgotten": int(numbers.size), "before": dataset.n_rows, "left": dataset.n_rows - int(numbers.size),
            "columns": sorted(names or ()), "digests": digests, **given,
        },
        "before": dict(told_of(old)),
        "after": {
            "method": plain_of(model.method), "tol": model.facts["tol"], "certificate": plain_of(model.certificate),
            "converged": result.converged, "began_with": start, "reads": result.reads, "seconds": result.seconds,
        },
        "scanned": {"what": "every row of the new shards, decoded from the files", "rows": look.rows,
                    "equal_rows": look.equal},
        "seconds": seconds,
    }  # fmt: skip


def plain_of(value: object) -> object:
    """As JSON has it."""
    found: object = json.loads(json.dumps(value, default=plain))
    return found


def places_of(old: OldRun, dataset: Dataset, outputs: Outputs, stays: removing.Stays) -> list[dict[str, str]]:
    """Everything known that holds the rows or was made of them, and what becomes of it; ``stays`` : ``by_file``."""
    fate = REMOVED if outputs.rewrites else KEPT
    run = OLD_RUN if old.method.by_duals else OLD_RUN_OF_STEPS
    paths = [files.absolute(path) for path in dataset.files]
    found = [(paths[file], "shard with such rows", REPLACED if outputs.rewrites else KEPT) for file in sorted(stays)]
    if old.path is not None:
        found.append((old.path, run, fate))
    found += [(path, "raw store: decoded rows", fate) for path in _stores(old, dataset, outputs.local_dir)]
    found += [(path, "cache: counts of the shards", fate) for path in _manifests(dataset)]
    found += [(path, SAME_SOURCES, fate) for path in _conversions(dataset)]
    beside = files.parent_directory(dataset.files[0])
    for name, what in (
        (QUARANTINE, "rows that could not be converted"),
        (OF_COLUMNS[0], "what was learned of columns"),
    ):
        if files.exists(files.join(beside, name)):
            found.append((files.join(beside, name), f"{what}, of all rows", KEPT))
    raw = dataset.raw["paths"] if dataset.raw else ()
    for path in raw:
        there = files.is_remote(path) or files.exists(path)
        found.append((path, "raw file that the shards were made of", KEPT if there else GONE))
    if not raw and dataset.conversion.get("sources"):
        what = f"raw files that the shards were made of: {_in_shards(dataset, stays)}"
        found.append((UNKNOWN, what, KEPT))
    if old.path is None:
        found += [(old.at, OLD_MODEL, KEPT), (UNKNOWN, f"{run}, where one was kept", KEPT)]
    elif not old.at.startswith(f"{old.path}/"):
        found.append((old.at, OLD_MODEL, KEPT))
    else:  # the run itself was named, which does not know where its model was written besides
        beside = old.path.removesuffix(".run")
        there = beside != old.path and files.exists(beside)
        found.append((beside, OLD_MODEL, KEPT) if there else (UNKNOWN, f"{OLD_MODEL}, as `fit -o` wrote it", KEPT))
    return [{"path": path, "what": what, "done": done} for path, what, done in found]


def _in_shards(dataset: Dataset, stays: removing.Stays) -> str:
    """Which rows of which shards go, by which whoever has the raw files finds them there."""
    told = []
    for file, rows in removing.rows_that_go(dataset, stays).items():
        some = ", ".join(map(str, rows[:MOST_ROWS].tolist())) + f" and {rows.size - MOST_ROWS:,} more" * (
            rows.size > MOST_ROWS
        )
        told.append(f"row{'s' * (rows.size > 1)} {some} of {files.base_name(dataset.files[file])}")
    return "; ".join(told[:MOST_ROWS]) + f"; and {len(told) - MOST_ROWS:,} more shards" * (len(told) > MOST_ROWS)


def earlier_places(old: OldRun, places: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Places of the requests that the old model came of, as their receipts named them, but for those of this one: what
    stayed may hold the rows of this request, too. What is not there any more, or is removed now, is gone."""
    mine = {*map(_place_of, places)}
    removed = [one for one in places if one["done"] == REMOVED]
    whole = [f"{one['path']}/" for one in removed if one["what"] not in OLD_RUNS]  # of a run its own files alone go
    told = old.told.get("forgotten") or _of_receipt(old)
    found = [dict(one) for one in told if _place_of(one) not in mine]
    for one in found:
        path = one["path"]
        lost = path.startswith("/") and not files.exists(path)
        if one["done"] == KEPT and (lost or any(f"{path}/".startswith(place) for place in whole)):
            one["done"] = GONE
    return found


def _place_of(one: Mapping[str, str]) -> tuple[str, str]:
    """By what a place is known as the same; older receipts tell of dual variables in any run."""
    return one["path"], OLD_RUN if one["what"] in OLD_RUNS else one["what"]


def _of_receipt(old: OldRun) -> list[dict[str, str]]:
    """The same from the receipt beside a model whose run does not tell of them."""
    for model in {old.at, (old.path or old.at).removesuffix(".run")}:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            told = json.loads(files.read_text(f"{model}.receipt.json"))
            if told["after"]["certificate"] == plain_of(old.model.certificate):
                return [{name: str(one[name]) for name in ("path", "what", "done")}
                        for one in (*told["places"], *told.get("earlier", ()))]  # fmt: skip
    return []


def _variants(dataset: Dataset) -> set[str]:
    """Digests by which stores and caches know these shards."""
    each = [dataset]
    if dataset.real_labels or dataset._known.facts.label_dtype != "str":
        each.append(dataset.with_real_labels())
    return {one.digest for known in each for one in (known, known.taking_part())}


def _stores(old: OldRun, dataset: Dataset, local_dir: str | None) -> list[str]:
    """What runs on these shards kept in ``local_dir``."""
    if local_dir is None:
        return []
    known = tuple(f"raw-{digest}" for digest in {*_variants(dataset), old.model.facts["data"]})
    return [files.join(local_dir, name) for name in sorted(files.list_directory(local_dir)) if name.startswith(known)]


def _manifests(dataset: Dataset) -> list[str]:
    homes = [cache_directory(name) for name in (MANIFESTS, NUMBERS)]
    names = [(home, name) for home in homes for name in files.list_directory(home)]
    return [files.join(home, name) for home, name in names if name.startswith(dataset.digest)]


def _conversions(dataset: Dataset) -> list[str]:
    """Directories of the cache with shards that were made of the same raw files."""
    home, sources = cache_directory(CONVERSIONS), {*dataset.conversion.get("sources", ())}
    found = []
    for name in sorted(files.list_directory(home)) if sources else ():
        directory = files.join(home, name)
        with contextlib.suppress(DataError, RunError, OSError):
            if files.exists(files.join(directory, MANIFEST)) and sources & {*Dataset(directory).origin()["sources"]}:
                found.append(directory)
    return found


# Taking the places


def finished(outputs: Outputs, journal: Journal) -> Forgotten:
    """Let everything new take its place, and old things go; what a kill leaves undone, the same does later."""
    told = journal.told
    journal.require_untouched()
    for place, path in told["moves"]:
        if files.is_directory(place):
            files.publish_directory(place, path)
        elif files.exists(place):
            files.move(place, path)
    _name_files(outputs, dict(told["moves"]), [*told["receipt"]["places"], *told["receipt"].get("earlier", ())])
    if outputs.rewrites:
        _renew_manifests({files.parent_directory(path) for _, path in told["moves"]})
    kept = files.join(outputs.run_dir, "model.bigclf")
    history = read_history(files.join(outputs.run_dir, "history.jsonl"))
    model = known_again(kept, history)
    with files.together([outputs.model, outputs.receipt]) as place:
        model.save(place[outputs.model])
        files.publish_text(place[outputs.receipt], json.dumps(told["receipt"], indent=1))
    for one in told["receipt"]["places"]:
        if one["done"] == REMOVED:
            _remove(one)
    for directory in told["aside"]:
        files.remove_tree(directory)
    files.remove(journal.path)
    return Forgotten(model, told["receipt"])


def _remove(place: Mapping[str, str]) -> None:
    """Remove a run, a directory or a file, or what a kill left of it."""
    path = place["path"]
    if place["what"] in OLD_RUNS:
        for _ in range(2):  # once more, where a file would not go
            clear(path)
    elif place["what"] == SAME_SOURCES:
        files.remove_at_once(path)
    else:
        files.remove(path)


def _name_files(outputs: Outputs, moves: Mapping[str, str], places: Sequence[Mapping[str, str]]) -> None:
    """In the record of the new run, files have the names that they have now, and the next request finds the places of
    this one and of those before."""
    path = files.join(outputs.run_dir, "run.json")
    for name in (path, files.join(outputs.run_dir, FORGETTING)):
        files.clear_left_of(name)
    run = json.loads(files.read_text(path))
    for one in run["files"]:
        directory, name = files.parent_directory(one["path"]), files.base_name(one["path"])
        if directory in moves:
            one["path"] = files.join(moves[directory], name)
        one["path"] = moves.get(one["path"], one["path"])
    model = {"path": outputs.model, "what": OLD_MODEL, "done": KEPT}  # to whose rows go next
    run["forgotten"] = [model, *places]
    files.publish_text(path, json.dumps(run, indent=1))


def _renew_manifests(directories: set[str]) -> None:
    """Manifests beside shards say what is there now."""
    for directory in sorted(directories):
        if not files.exists(files.join(directory, MANIFEST)):
            continue
        for name in (MANIFEST, CHUNK_TABLE):
            files.clear_left_of(files.join(directory, name))
        told = json.loads(files.read_text(files.join(directory, MANIFEST)))
        Dataset(directory).write_manifest(directory, told.get("conversion"))
