"""A second process beside the first, which stands still at a point meanwhile: the same line, with ``--resume`` or with
``--overwrite``, or one that looks at what is there.

A second one that waits for the first is waited for no longer than its processes do something.
"""

from __future__ import annotations

import os
import time

from ground import saved

KINDS = ("line", "--resume", "--overwrite", "inspect", "validate")
STILL = 1.0  # seconds in which none of its processes does anything


def second(case, kind):
    """The words of the second line; None where there is no such."""
    if kind == "inspect":
        return ["inspect", case.looked] if case.looked else None
    if kind == "validate":
        return ["validate", f"{{out}}/{case.sets[0]}" if case.sets else "{data}"]
    if kind == "--resume":
        return [*case.line, kind] if kind in case.again else None
    if kind == "--overwrite":
        return [*case.line, kind] if kind in case.anew and kind not in case.line else None
    return case.line


def beside(trial, kind, point, which):
    """Whether the point was reached, and what of the promises was broken, as of ``Trial.disturb``."""
    trial.restore()
    first = trial.start(trial.case.line, ("hold", point, which))
    if not trial.is_held(first):
        trial.end(first)
        return False, []
    before, known = trial.content()[0], saved(_Points(*trial.noted(first)))
    other = trial.start(second(trial.case, kind), name="-second")
    ended = ended_or_still(other.child)
    broken = [*trial.foreign("beside"), *trial.half()]
    looks = kind in ("inspect", "validate")
    changed = {name for name, _ in trial.content()[0].items() ^ before.items() if not name.endswith("lease")}
    if looks and changed:  # the first one gives signs of life meanwhile
        broken.append(("changed by a look", sorted(changed)))
    trial.release(first)
    one, two = trial.end(first), trial.end(other, ended)
    well = [ran for ran in ((one,) if looks else (one, two)) if ran.code == trial.whole_run.code]
    broken += [*trial.words(one), *trial.words(two), *trial.lost(known, saved(two))]
    if trial.case.anew or trial.case.once or len(well) < 2:  # else rows of both are there, as ``then`` finds
        broken += trial.half()
    if not well:
        broken.append(("not finished", f"neither ended: {one.code} {one.text[-400:]} / {two.code} {two.text[-400:]}"))
    broken += trial.then(well)
    told = f"[{one.code}, {two.code}{', waited' if ended is None else ''}]"
    return True, [(what, f"{told} {how}\n    first: {one.text[-300:]}\n    second: {two.text[-300:]}")
                  for what, how in broken]  # fmt: skip


class _Points:
    def __init__(self, points, paths):
        self.points, self.paths = points, paths


def ended_or_still(child):
    """Its status once it ended; None where it and its children do nothing any more but wait."""
    before, since = None, time.monotonic()
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        now = _ticks(child)
        if now is None or now != before:
            before, since = now, time.monotonic()
        if time.monotonic() - since > STILL:
            return None
        time.sleep(0.01)


def _ticks(root):
    """Processor time of a process and of all that it began; None where one of them is about to run."""
    told = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            told[int(name)] = int(fields[1]), fields[0], int(fields[11]) + int(fields[12])
    family, more = {root}, {root}
    while more:
        more = {pid for pid, (parent, *_) in told.items() if parent in more}
        family |= more
    mine = [told[pid] for pid in family if pid in told]
    return None if any(state in "RD" for _, state, _ in mine) else sum(ticks for *_, ticks in mine)
