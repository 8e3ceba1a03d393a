"""What a run that has ended tells ``forget``: how it was trained, and the dual variables of its rows."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from bigclf import files
from bigclf.errors import DataError, RunError
from bigclf.files.caches import is_cached
from bigclf.methods import METHODS, Method
from bigclf.model.model import Model, load
from bigclf.stream.row_files import FiledArray
from bigclf.training.records.run_directory import RunDirectory, run_of
from bigclf.training.records.run_record import read_run
from bigclf.training.records.sameness import FileTold, Told, is_copy

if TYPE_CHECKING:
    from bigclf.data.dataset import Dataset, RawFiles


log = logging.getLogger("bigclf")


class OldRun(NamedTuple):
    """A model and the run that it came of.

    path : of the run directory; None: there is none. model : what it came to; at : the model's file. told : run.json.
    """

    path: str | None
    model: Model
    at: str
    told: dict[str, Any]

    @property
    def method(self) -> Method:
        """What it was trained with."""
        return METHODS[self.model.method["name"]]

    @property
    def groups(self) -> int:
        """Groups of its plan."""
        return len(self.model.facts["plan"]["groups"])

    @property
    def files(self) -> list[str]:
        """The shards that it was trained on; none where that is not known."""
        return [one["path"] for one in self.told.get("files", ())]

    @property
    def raw(self) -> RawFiles | None:
        """What is known of the raw files that its shards were made of by ``fit``, see ``Dataset``; None: of none.
        Older runs tell by the place of their shards alone."""
        if "raw" in self.told:
            return cast("RawFiles | None", self.told["raw"])
        return {"paths": [], "in_order": False} if in_cache(self.files) else None

    @property
    def cached(self) -> bool:
        """Whether its shards are those of a cache. ``forget`` puts what is left of them elsewhere, and keeps of
        ``raw`` no way to make them again."""
        return self.raw is not None and ("how" in self.raw or in_cache(self.files))


def old_run(run: files.PathLike) -> OldRun:
    """The run in a directory, or of a model whose run lies beside it (``MODEL.run``).

    Raises
    ------
    RunError : it has not ended. TypeError : the model cannot forget, with what can.
    """
    path = files.absolute(run)
    if files.is_directory(path):
        at = files.join(path, "model.bigclf")
        if not files.exists(at):
            raise RunError(f"{path}: holds no run that has ended; end it first (bigclf fit ... --resume)")
        found = OldRun(path, load(at), at, read_run(files.join(path, "run.json")))
    else:
        model, beside = load(path), f"{path}.run"
        own = model.facts.get("run") is not None and run_of(beside) == model.facts["run"]
        found = OldRun(beside if own else None, model, path, read_run(files.join(beside, "run.json")) if own else {})
    require_forgetful(found)
    return found


def require_forgetful(old: OldRun) -> None:
    """TypeError where the rows of such a model cannot be taken out of it, with what to do instead."""
    name = old.model.method.get("name")
    if name not in METHODS or "plan" not in old.model.facts:
        raise TypeError(f"{old.at}: was not trained by bigclf; train again without the rows")
    method = METHODS[name]
    if not method.certificate:
        raise TypeError(
            f"{method.asked} learns from each row as it passes, which cannot be undone: train again without the rows "
            "(bigclf fit), or train with a method that has a certificate, such as algo='dcd', which can forget"
        )
    if old.model.feature_ids is not None:
        raise TypeError(f"{old.at}: forget does not yet take models that keep weights of the features that occur "
                        "alone: train again without the rows")  # fmt: skip
    if old.model.multilabel:
        raise TypeError(f"{old.at}: forget does not take rows of several labels yet: train again without the rows")
    if "sweep" in old.told.get("identity", {}):
        raise TypeError(f"{old.path}: is the run of a sweep or a path; forget takes the run of a single fit")
    if not method.by_duals and not method.form.begins_anywhere:
        raise TypeError(f"{method.asked} cannot begin with the weights of a model: train again without the rows")


def options_of(old: OldRun, dataset: Dataset) -> dict[str, object]:
    """Its options, as ``fit`` takes them."""
    method, facts = old.model.method, old.model.facts
    plan = facts["plan"]
    own = {param.name: method[param.name] for param in old.method.params if method.get(param.name) is not None}
    told = {name: method[name] for name in ("loss", "penalty", "mixing") if method.get(name) is not None}
    return {
        **own, **told, "algo": method["name"], "bias": method["bias"] or "none", "dtype": plan["dtype"],
        "seed": facts["seed"], "memory": plan["memory"]["budget"], "groups": len(plan["groups"]), "tol": facts["tol"],
        "class_weight": class_weight_of(old, dataset), "prune": facts.get("pruned", {}).get("tol"),
    }  # fmt: skip


def class_weight_of(old: OldRun, dataset: Dataset) -> object:
    """What was said of the weights of classes: None, "balanced", or a table."""
    if old.told.get("class_weight") == "balanced":
        return "balanced"
    weights = old.told.get("identity", {}).get("class_weights")
    if weights is None or all(weight == 1.0 for weight in weights) or dataset.classes is None:
        return None
    counts = dataset.learnable_counts
    balanced = counts.sum() / (np.count_nonzero(counts) * np.maximum(counts, 1))
    if np.allclose(weights, balanced, rtol=1e-12):  # older runs do not say
        return "balanced"
    return dict(zip(dataset.classes.tolist(), weights, strict=True))


def require_same_rows(old: OldRun, dataset: Dataset) -> None:
    """DataError where the data are not those that the model was trained on: numbers of rows would mean others."""
    if not is_of_run(old, dataset):
        raise DataError("these are not the files that the model was trained on, or they have changed since: name "
                        "those (--data), as they were", file=dataset.files[0])  # fmt: skip


def is_of_run(old: OldRun, dataset: Dataset) -> bool:
    """Whether they are the data that the model was trained on."""
    seen = dataset.with_real_labels() if old.model.regression else dataset
    return seen.taking_part().digest == old.model.facts["data"] or same_content(old, dataset)


def in_cache(paths: Sequence[str]) -> bool:
    """Whether these are shards that ``fit`` made of raw files, in bigclf's cache: this one, or one elsewhere."""
    return bool(paths) and all(map(is_cached, paths))


def same_content(old: OldRun, dataset: Dataset) -> bool:
    """Whether these are copies of the shards of the run, or such as were made once more of the same raw files."""
    now = Told(files=[FileTold(size=one.size, footer=one.footer) for one in dataset.fingerprints],
               columns=dataset.columns)  # fmt: skip
    return is_copy(cast("Told", old.told), now) and dataset.tell_content()


Pieces = Sequence[np.ndarray | FiledArray]


def dual_variables(old: OldRun) -> list[Pieces]:
    """[problem] of each group's rows, float64 [row] or [row, class]; none where the run has kept none."""
    how = old.method.how
    if old.path is None or not old.method.by_duals or getattr(how.rows, "_fields", ()) != ("alpha",):
        return []
    filed = old.model.facts["plan"].get("rows_sides", 0) > 0
    saved = RunDirectory(old.path).newest(old.groups, filed)
    if saved is None:
        return []
    held = [saved.arrays | rows for rows in saved.rows]
    names = [f"{number}.{{}}.rows.alpha" for number in range(len(saved.facts["status"]))]
    if any(name.format(group) not in rows for name in names for group, rows in enumerate(held)):
        return []
    return [[rows[name.format(group)] for group, rows in enumerate(held)] for name in names]


def carried(pieces: Pieces, stays: np.ndarray, into: np.ndarray) -> None:
    """Put what ``pieces`` have of the rows that stay, bool [row], one behind another."""
    read = written = 0
    for array in pieces:
        for piece in array.pieces() if isinstance(array, FiledArray) else [array]:
            mine = piece[stays[read : read + len(piece)]]
            into[written : written + len(mine)] = mine
            read, written = read + len(piece), written + len(mine)


def problem_names(old: OldRun) -> list[str]:
    """What its problems were called, in their order."""
    classes = old.model.classes_
    if classes is None or len(classes) <= 2 or old.method.all_classes:
        return [""]
    return [str(label) for label in classes]


def told_of(old: OldRun) -> Mapping[str, object]:
    """What a receipt says of the model before."""
    return {"model": old.at, "run": old.path, "certificate": json.loads(json.dumps(old.model.certificate))}
