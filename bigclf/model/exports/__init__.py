"""A model in the formats of others: what is written says the same of a row as the model does.

Each format is one file with a function ``write(model, path) -> list of files``; what it cannot hold it refuses by name.
A model comes in as it is (``bigclf.model.model.Model``); LIBLINEAR's text alone also comes back (``liblinear.read``).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, TypedDict

from bigclf import files
from bigclf.errors import RunError

if TYPE_CHECKING:
    from bigclf.model.model import Model


class Export(TypedDict):
    """What ``Model.export`` says: the format, its files and their bytes, and what whoever uses them should know."""

    to: str
    files: list[str]
    bytes: int
    notes: list[str]


FORMATS = {
    "onnx": "onnx_graph",
    "liblinear": "liblinear",
    "sklearn": "scikit_learn",
    "parquet": "parquet",
    "numpy": "plain_numpy",
    "sql": "sql",
    "c": "c_source",
}


def export(model: Model, path: str, to: str, *, overwrite: bool = False, **options: object) -> Export:
    """Write ``model`` to ``path`` in the format ``to`` (see ``Model.export``)."""
    if to not in FORMATS:
        raise ValueError(f"there is no format {to!r}; the formats are {', '.join(FORMATS)}")
    form = importlib.import_module(f"bigclf.model.exports.{FORMATS[to]}")
    require_linear(model, to)
    targets = targets_of(path, to)
    refuse_existing([*targets], overwrite)
    files.make_directory(files.parent_directory(path))
    alone = targets if len(targets) == 1 else []  # several take their names together
    with files.together(alone) as place:
        notes = [*form.write(model, *(place.get(target, target) for target in targets), **options)]
    notes += [*uncalibrated(model, to), *of_columns(model, to)]
    return {
        "to": to,
        "files": targets,
        "bytes": sum(files.file_size(target) for target in targets),
        "notes": notes,
    }


def targets_of(path: str, to: str) -> list[str]:
    """The files that a model in the format ``to`` is written to."""
    form = importlib.import_module(f"bigclf.model.exports.{FORMATS[to]}")
    return [*form.targets(path)] if hasattr(form, "targets") else [path]


def require_linear(model: Model, to: str) -> None:
    """RunError for a model that is more than its weights."""
    if model.multilabel and to != "parquet":
        raise RunError(f"--to {to} has no form for several labels a row; --to parquet writes the weights as a table")
    if model.feature_ids is not None and to != "parquet":
        raise RunError(
            f"--to {to} has a weight for each of {model.n_features:,} features; --to parquet writes a table of the "
            f"{model.feature_ids.size:,} that have one"
        )
    if model.voted:
        raise RunError(
            "a voted perceptron decides by the votes of many vectors, which no linear format holds "
            f"(--to {to}); averaged_perceptron is nearly the same and has one vector"
        )


def uncalibrated(model: Model, to: str) -> list[str]:
    """A note where probabilities of a calibration stay behind; the others have their own."""
    if model.calibration is None or to not in ("liblinear", "sklearn", "parquet"):
        return []
    return ["the calibration stays behind: decision values and classes are the model's, probabilities it has none"]


def of_columns(model: Model, to: str, at_most: int = 8) -> list[str]:
    """A note on what a model of raw columns takes where its columns do not go along."""
    if to not in ("onnx", "sklearn", "liblinear") or not model.learned:
        return []
    columns = model.finisher.spec.columns
    shown = ", ".join([*columns[:at_most], *(["..."] if len(columns) > at_most else [])])
    return [
        f"it takes the {model.n_features:,} features made of the columns {shown}, and not the columns: "
        "model.encode(table) makes them; --to numpy takes tables"
    ]


def refuse_existing(targets: list[str], overwrite: bool) -> None:
    """RunError where one of the files is there and may not be replaced."""
    ours = files.half_done(targets)
    for target in targets:
        if files.is_directory(target):
            raise RunError(f"{target}: a directory; name the file")
        if files.exists(target) and not overwrite and target not in ours:
            raise RunError(f"{target} already exists; add overwrite=True to replace it")
