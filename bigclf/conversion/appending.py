"""Further shards for a dataset that is there: its files keep their bytes, and readers see all of the new ones or none.

The new files get the numbers after the last. While they arrive a mark names them and readers leave them out; what
counts is the new manifest, then the mark goes. An appending that was killed is invisible, and goes on when it is run
again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bigclf import files
from bigclf.conversion.shuffle import Plan
from bigclf.data.arrays import made_alike
from bigclf.data.chunk_table import GIVEN
from bigclf.data.dataset import MANIFEST, Dataset, anew
from bigclf.data.label_sets import TEXT
from bigclf.errors import DataError, RunError, SchemaError
from bigclf.features.label_cells import BETWEEN, split
from bigclf.features.truths import DIGITS, MEANT, WRITTEN, places
from bigclf.files.formats import DEFAULT, HASHED
from bigclf.units import plural

QUARANTINE = "_bigclf_quarantine.txt"
SHOWN = 3  # labels
PART = re.compile(r"part-(\d+)\.parquet")


def there(out: files.PathLike) -> Dataset | None:
    """The dataset to append to; None where there is nothing yet.

    Raises
    ------
    RunError : if bigclf did not write what is there. DataError : shards are gone, of which a new manifest would tell
        nothing.
    """
    names = files.list_directory(out)
    if MANIFEST in names:
        found = Dataset(out, warn=False)
        for told, directory in found.lost.items():
            raise DataError(f"{told}; put back what is missing, or write a manifest of what is there: "
                            + anew(directory))  # fmt: skip
        return found
    if any(not name.startswith(".") and name != files.UNFINISHED for name in names):
        raise RunError(f"{files.base_name(out)!r} holds no shards that bigclf wrote; nothing can be appended to it")
    return None


def format_of(out: files.PathLike) -> str:
    """What the shards that are there were made of, as far as they tell; text like LIBLINEAR's otherwise."""
    before = there(out)
    told = {} if before is None else before.features
    if told.get("kind") == "hashed names":
        return HASHED
    return str(told.get("reader", {}).get("format", DEFAULT))


def identity(before: Dataset | None) -> list[Any]:
    """By what it is known again."""
    if before is None:
        return []
    return [
        (files.base_name(path), f.size, f.footer) for path, f in zip(before.files, before.fingerprints, strict=True)
    ]


def alike(plan: Plan, before: Dataset | None) -> Plan:
    """The plan of shards that go with those that are there; classes and features may be more.

    Raises
    ------
    SchemaError : if they cannot: other features, labels of another kind, weights in one of both only.
    """
    if before is None:
        return plan
    place = before.files[0]
    check_features(plan.features or GIVEN, before)
    plan = plan._replace(features=before.features)
    if plan.weighted and not before.weighted:
        raise SchemaError("the shards there have no row weights, the new rows do", file=place, column="weight")
    dtype = before._known.facts.label_dtype
    if before.real_labels:
        if plan.classes is not None and plan.classes.dtype.kind not in "if":
            raise SchemaError("the labels there are numbers, the new ones are not", file=place, column="label")
        return plan._replace(codes=None, classes=None, ranks=None, weighted=before.weighted)
    if plan.classes is None:
        raise SchemaError("the labels there are classes, the new ones too many numbers to be that", file=place,
                          column="label")  # fmt: skip
    mine = plan.sets or ("str" if plan.classes.dtype.kind == "U" else plan.classes.dtype.name)
    if mine != dtype:
        if (mine, dtype) != ("int64", "float64"):
            raise SchemaError(f"labels are {dtype} there and {mine} in the new rows", file=place, column="label")
        plan = plan._replace(classes=plan.classes.astype(np.float64))
    if mine == dtype and mine in ("str", TEXT):
        plan = _spelt(plan, before)
    return plan._replace(weighted=before.weighted)


def _spelt(plan: Plan, before: Dataset) -> Plan:
    """The plan with truths among its classes written as those that are there."""
    assert plan.classes is not None and before.classes is not None
    known, mine = before.classes.tolist(), plan.classes.tolist()
    if plan.sets:
        labels = sorted({label for text in mine for label in split(text)})
        told = {label: label if k < 0 else known[k] for label, k in zip(labels, places(known, labels), strict=True)}
        return _written(plan, [BETWEEN.join(sorted({told[label] for label in split(text)})) for text in mine])
    digits = {*DIGITS} & {*mine}
    if others := sorted({*mine} - {*known} - MEANT.keys()) if {*WRITTEN} & {*known} and digits - {*known} else []:
        shown = ", ".join(map(repr, others[:5])) + ", ..." * (len(others) > 5)
        raise SchemaError(f"the labels there are true and false, and the new ones {min(digits)!r} beside {shown}",
                          file=before.files[0], column="label")  # fmt: skip
    names = [name if k < 0 else known[k] for name, k in zip(mine, places(known, mine), strict=True)]
    return _written(plan, names)


def _written(plan: Plan, names: list[str]) -> Plan:
    """The plan with its classes by these names, of which several may be one."""
    if plan.classes is None or names == plan.classes.tolist():
        return plan
    classes = np.array(sorted(set(names)))
    ranks = np.searchsorted(classes, np.array(names)).astype(np.float64)
    return plan._replace(classes=classes, ranks=ranks if plan.ranks is None else ranks[plan.ranks.astype(np.int64)])


def new_labels(before: Dataset | None, after: Dataset) -> list[str]:
    """A warning of labels that the shards did not have ``before``: classes of their own, which may be misspelt."""
    if before is None or before.classes is None or after.classes is None:
        return []
    known = {*before.classes.tolist()}
    new = [label for label in after.classes.tolist() if label not in known]
    if not new:
        return []
    shown = ", ".join(map(repr, new[:SHOWN])) + ", ..." * (len(new) > SHOWN)
    text = f"{plural(len(new), 'label')} that the shards did not have before: {shown}"
    folded = {str(label).casefold(): label for label in known}
    meant = [(label, folded[low]) for label in new if (low := str(label).casefold()) in folded]
    if meant:
        text += (f"; {meant[0][0]!r} may be meant as {meant[0][1]!r} (a label with `lowercase: true` in the spec takes "
                 "both for one)")  # fmt: skip
    return [text]


def check_features(features: Mapping[str, object], before: Dataset) -> None:
    """Refuse rows whose features were made in another way: SchemaError."""
    if not made_alike(features, before.features):
        told = ", ".join(sorted(name for name in {*features, *before.features}
                                if features.get(name) != before.features.get(name)))  # fmt: skip
        raise SchemaError(f"the shards there were made with other features (they differ in: {told}); convert with the "
                          "same, or to another directory", file=before.files[0])  # fmt: skip
    there, here = (told.get("counted_from") for told in (before.features, features))
    if None not in (there, here) and there != here:
        raise SchemaError(f"the text of the shards there counts features from {there}, and the new one is read as from "
                          f"{here}; if it counts from {there}, too, pass index_base={there} (--index-base {there})",
                          file=before.files[0])  # fmt: skip


def together(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of shards of two conversions; nothing of their sources where a part of one was taken."""
    parted = one.get("part") or other.get("part")
    sources = [] if parted else [*one.get("sources", ()), *other.get("sources", ())]
    reports = [told.get("report", {}) for told in (one, other)]
    report = {
        "bad_rows": sum(each.get("bad_rows", 0) for each in reports),
        "bad_examples": [text for each in reports for text in each.get("bad_examples", ())],
    }
    warnings = [*one.get("warnings", ()), *other.get("warnings", ())]
    return {"sources": sources, "part": None, "warnings": warnings, "report": report}


def adopt(directory: str, out: files.PathLike, before: Dataset, note: Callable[[object], None]) -> None:
    """Put the shards of ``directory`` beside those at ``out``; ``note`` : called with what all of them are known by
    before readers see the new ones."""
    new = [name for name in files.list_directory(directory) if name.startswith("part-")]
    numbers = [int(match[1]) for path in before.files if (match := PART.fullmatch(files.base_name(path)))]
    first = max(numbers, default=-1) + 1
    names = [f"part-{first + number:05d}.parquet" for number in range(len(new))]
    was = _as_it_was(out, before)
    with files.finishing(out, names, was):
        for name, mine in zip(names, new, strict=True):
            files.put(files.join(directory, mine), files.join(out, name))
        _add_bad_rows(directory, out, was["bad_bytes"])
        every = sorted([*map(files.base_name, before.files), *names])  # ``before`` may be known by a relative path
        try:
            whole = Dataset([files.join(out, name) for name in every])
            told = together(was["conversion"], Dataset(directory).conversion)
            whole.write_manifest(str(out), told)
        except DataError:
            for name in names:
                files.remove(files.join(out, name))
            raise
        note(known_by(whole, told))


def known_by(dataset: Dataset, conversion: Mapping[str, object]) -> list[object]:
    """By what a dataset is known again, bad rows and sources too."""
    return [*identity(dataset), dict(conversion)]


def _as_it_was(out: files.PathLike, before: Dataset) -> dict[str, Any]:
    """What was known of the shards, and bytes of their bad rows, before an appending that was killed, else now: all
    that the next one needs which the files themselves do not tell."""
    told, shards = files.before_unfinished(out), [list(each) for each in identity(before)]
    if told.get("shards") == shards:
        return told
    place = files.join(out, QUARANTINE)
    bad_bytes = files.file_size(place) if files.exists(place) else 0
    return {"shards": shards, "conversion": before.conversion, "bad_bytes": bad_bytes}


def _add_bad_rows(directory: str, out: files.PathLike, kept: int) -> None:
    """Put the bad rows of ``directory`` behind the first ``kept`` bytes of those that are there."""
    mine, place = files.join(directory, QUARANTINE), files.join(out, QUARANTINE)
    there = files.read_bytes(place) if files.exists(place) else b""
    wanted = there[:kept] + (files.read_bytes(mine) if files.exists(mine) else b"")
    if there and not wanted:  # an appending that was cut short had bad rows, and nobody else
        files.remove(place)
    elif wanted != there:
        files.publish_bytes(place, wanted)
