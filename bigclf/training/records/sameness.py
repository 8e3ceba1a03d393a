"""Whether a run that is to go on is the one that was begun: what differs, and what to do about it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from bigclf.data.dataset import RawFiles

SAID_OF_PLAN = "plan.dtype", "plan.groups", "plan.seed"  # what a person may have said of it, as it was said


class FileTold(TypedDict, total=False):
    """What ``run.json`` says of a file."""

    path: str
    size: int
    footer: str


class Told(TypedDict, total=False):
    """What is compared of ``run.json``, and what names the rows."""

    identity: dict[str, Any]
    files: list[FileTold]
    columns: Mapping[str, object]
    raw: RawFiles | None


def told_apart(before: Told, asked: Told, may_loosen: bool, by_content: Callable[[], bool]) -> list[str]:
    """A line for each way in which what is ``asked`` for is not what was begun ``before``; the parameters are those of
    ``RunDirectory.begin``."""
    was, now = before.get("identity", {}), dict(asked["identity"])
    if may_loosen and _is_looser(now.get("tol"), was.get("tol")):
        now["tol"] = was["tol"]
    if was.get("data") != now.get("data") and is_copy(before, asked) and by_content():
        now["data"] = {**now["data"], "digest": was["data"].get("digest")}
    lines = differences(was, now)
    return [_of_data(before, asked) if line.startswith("data.digest:") else line for line in lines]


def refusal(lines: Sequence[str], may_loosen: bool) -> str:
    """What to say of these differences: those that a person can do something about, and what that is."""
    more = ", and tol may grow" if may_loosen else ""
    way = (f"continue with the same settings (limits may change{more}), or start over (--overwrite, or another"
           " run directory)")  # fmt: skip
    if all(line.startswith("plan.") for line in lines):
        way = ("data and method are the same, but the plan is for another memory, seed, dtype or groups,"
               " or by another version of bigclf: continue with those, or start over (--overwrite, or another"
               " run directory)")  # fmt: skip
    said = [line.removeprefix("plan.") for line in lines if line.startswith(SAID_OF_PLAN) or line[:5] != "plan."]
    return f"it differs in: {'; '.join(said or ['the plan'])}; {way}"


def differences(before: object, now: object, name: str = "") -> list[str]:
    """``path: before -> now`` for every leaf in which two JSON values differ."""
    if isinstance(before, dict) and isinstance(now, dict):
        found: list[str] = []
        for key in sorted({*before, *now}):
            found += differences(before.get(key), now.get(key), f"{name}.{key}" if name else key)
        return found
    return [] if before == now else [f"{name}: {_short(before)} -> {_short(now)}"]


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _is_looser(tol: float | None, before: float | None) -> bool:
    return tol is not None and before is not None and tol > before


def is_copy(before: Told, asked: Told) -> bool:
    """Whether the files have the sizes and footers of those that the run began with, and are read by the same
    columns."""
    was, now = ([(one.get("size"), one.get("footer")) for one in told.get("files", ())] for told in (before, asked))
    return bool(now) and was == now and before.get("columns", {}) == asked.get("columns", {})


def _of_data(before: Told, asked: Told) -> str:
    """How the rows differ, by the names that a person knows their files by."""
    was, now = (_named(told) for told in (before, asked))
    if not was or not now:
        return "data: other rows"
    if was != now:
        return f"data: {_listed(was)} -> {_listed(now)}"
    if (one_raw := before.get("raw")) and (other_raw := asked.get("raw")):
        one, other = one_raw.get("how"), other_raw.get("how")
        if one is None or other is None:
            return f"data: {_listed(now)}, changed since or read in another way"
        if ways := [line.split(":")[0].split(".")[0] for line in differences(one, other)]:
            return f"data: {_listed(now)}, read in another way ({', '.join(dict.fromkeys(ways))})"
    if bool(before.get("raw")) != bool(asked.get("raw")):
        return f"data: {_listed(now)}, read in another way"
    if not asked.get("raw"):
        pairs = zip(before.get("files", []), asked.get("files", []), strict=True)
        now = [other["path"] for one, other in pairs if one != other]
    return f"data: {_listed(now)} {'has' if len(now) == 1 else 'have'} changed since" if now else "data: other rows"


def _named(told: Told) -> list[str]:
    raw = told.get("raw")
    return raw["paths"] if raw else [one["path"] for one in told.get("files", ())]


def _listed(paths: Sequence[str]) -> str:
    return f"{paths[0]}{f' and {len(paths) - 1:,} more' * (len(paths) > 1)}"
