"""Options that users know by name."""

from __future__ import annotations

from collections.abc import Iterable

GONE = {
    "on_change": "files that change while they are read end the run, as they always did",
    "opportunistic": "no time is made use of while the disk is waited for, so every run can be repeated to the bit",
    "segments": "how many parts an epoch has follows from the size of the data",
}


def refuse_gone(names: Iterable[str]) -> None:
    """TypeError for an option that older versions had, with what to do instead."""
    for name in names:
        if name in GONE:
            raise TypeError(f"there is no option {name} any more: {GONE[name]}; leave it out")
