"""A second process beside the first, which stands still at a point meanwhile: the same line, with ``--resume`` or with
``--overwrite``, or one that looks at what is there.

Of points that a second one cannot tell apart one is taken (``moments``). Those that look come at one point after the
other of one first line, which goes on as if they had not been there; so do those that write, as long as each is refused
and leaves what is there as it was, to the byte and the time of change. A second one that waits for the first is not
waited for.
"""

from __future__ import annotations

import contextlib
import os
import random
import time

from ground import saved
from recorder import keys, state_of

KINDS = ("line", "--resume", "--overwrite", "inspect", "validate")
LOOKS = ("inspect", "validate")
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


def moments(trial):
    """Of each point of the first line: what tells it from others for one that looks, and for one that writes.

    The first finds the state of the directory, locks too. To the second the first answers later on, by what it has seen
    and done before: points are alike where between them it did nothing but sync, and write what has no name yet.
    """
    trial.restore()
    ran = trial.run(trial.case.line, ("tell",))
    return {key: (state, (state, learned)) for key, (state, learned) in zip(keys(ran.points), ran.moments, strict=True)}


def drawn(trial, sample, seed):
    """Lines (kind, point, which): one of each moment, drawn, or so many of them; and how many moments there are."""
    draw, found, told = random.Random(seed), [], moments(trial)
    for kind in KINDS:
        apart = {}
        for key, each in told.items():
            apart.setdefault(each[kind not in LOOKS], []).append(key)
        if second(trial.case, kind):
            found += [(kind, *draw.choice(alike)) for alike in apart.values()]
    return draw.sample(found, min(sample or len(found), len(found))), len({*told.values()})


def disturbed(trial, lines):
    """Yield (line, whether its point was reached, what of the promises was broken, as of ``Trial.disturb``)."""
    for kinds in ([kind for kind in KINDS if kind in LOOKS], [kind for kind in KINDS if kind not in LOOKS]):
        left = [line for line in lines if line[0] in kinds]
        while left:
            seen = list(one_after_the_other(trial, left))
            yield from seen
            left = [line for line in left if line not in {line for line, *_ in seen}]


def one_after_the_other(trial, lines):
    """As ``disturbed`` of lines beside one first line, which goes on after each as if it had not been there; up to one
    that waits for the first, or left a trace."""
    trial.restore()
    first, left, last = trial.start(trial.case.line, ("steps", *{line[1:] for line in lines})), {*lines}, None
    while trial.is_held(first):
        noted = trial.noted(first)
        *_, here = keys(noted.points)
        for line in sorted(line for line in left if line[1:] == here):
            if last:
                break
            left.remove(line)
            before, state = trial.content()[0], state_of(trial.work)
            other = trial.start(second(trial.case, line[0]), name="-second")
            ended = ended_or_still(other.child)
            broken = [*trial.foreign("beside"), *trial.half()]
            if line[0] in LOOKS:
                broken += changed(trial, before)
            if ended is None or (line[0] not in LOOKS and not (failed(trial, ended) and state_of(trial.work) == state)):
                last = line, saved(noted), broken, other, ended
            else:
                yield line, True, told(trial, broken, trial.end(other, ended))
        trial.release(first)
    one = trial.end(first)
    if last and last[0][0] not in LOOKS:
        yield last[0], True, both(trial, one, *last)
        return
    if last:
        line, _, broken, other, ended = last
        yield line, True, told(trial, broken, trial.end(other, ended))
    else:
        yield from ((line, False, []) for line in left)
    well = one.code == trial.whole_run.code
    broken = [] if well else [("not finished", f"beside those that left no trace: {one.code} {one.text[-400:]}")]
    yield ("beside", "in the end", 1), True, [*broken, *trial.words(one), *trial.then([one] if well else [])]


def failed(trial, ended):
    return os.waitstatus_to_exitcode(ended) != trial.whole_run.code


def changed(trial, before):
    """What one that looks changed; the first one gives signs of life meanwhile."""
    names = {name for name, _ in trial.content()[0].items() ^ before.items() if not name.endswith("lease")}
    return [("changed by a look", sorted(names))] if names else []


def told(trial, broken, two):
    found = [*broken, *trial.words(two)]
    return [(what, f"[{two.code}] {how}\n    second: {two.text[-300:]}") for what, how in found]


def both(trial, one, line, known, broken, other, ended):
    """What of the promises was broken by one that writes, or by the first, which went on meanwhile and ended.
    ``known`` : the checkpoints that the first had written when the other came; ``broken`` : what was seen while it
    stood still."""
    kind, two = line[0], trial.end(other, ended)
    well = [ran for ran in (one, two) if ran.code == trial.whole_run.code]
    broken = [*broken, *trial.words(one), *trial.words(two)]
    if kind != "--overwrite":  # which asks for it
        broken += trial.lost(known, saved(two))
    if trial.case.anew or trial.case.once or len(well) < 2:  # else rows of both are there, as ``then`` finds
        broken += trial.half()
    if not well:
        broken.append(("not finished", f"neither ended: {one.code} {one.text[-400:]} / {two.code} {two.text[-400:]}"))
    broken += trial.then(well)
    said = f"[{one.code}, {two.code}{', waited' if ended is None else ''}]"
    return [
        (what, f"{said} {how}\n    first: {one.text[-300:]}\n    second: {two.text[-300:]}") for what, how in broken
    ]


def ended_or_still(child):
    """Its status once it ended; None where it and its children do nothing any more but wait, or wait for a lock that
    another one has."""
    before, since = None, time.monotonic()
    while True:
        for _ in range(10):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return status
            time.sleep(0.005)
        family = family_of(child)
        now = ticks(family)
        if now is None or now != before:
            before, since = now, time.monotonic()
        if time.monotonic() - since > STILL or waits_for_others(family):
            return None


def family_of(root):
    """A process and all that it began."""
    found = [root]
    for pid in found:
        with contextlib.suppress(OSError):  # it ended
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as file:
                    found += map(int, file.read().split())
    return found


def ticks(family):
    """Processor time of processes; None where one of them is about to run."""
    found = 0
    for pid in family:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
            if fields[0] in "RD":
                return None
            found += int(fields[11]) + int(fields[12])
    return found


def waits_for_others(family):
    """Whether one of these processes waits for a lock that none of them has."""
    with open("/proc/locks") as file:
        lines = [line.replace("->", "").split() for line in file]
    holders = {}
    for number, _, _, _, pid, *_ in lines:
        holder = holders.setdefault(number, int(pid))
        if holder != int(pid) and int(pid) in family and holder not in family:
            return True
    return False
