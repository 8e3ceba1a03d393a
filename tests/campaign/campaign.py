"""Disturb every call by which a command changes files, one at a time, and give the command again.

    python tests/campaign/campaign.py                    all points of all cases: a table, and what went wrong
    python tests/campaign/campaign.py sweep "run job"    of these cases alone
    python tests/campaign/campaign.py --sample 2         two points of each case, each in one way
    python tests/campaign/campaign.py --sample 2 --seed a    two others
    python tests/campaign/campaign.py --beside           at each point, another process beside the first
    python tests/campaign/campaign.py --part 2/5         the second of five parts (--seconds 60: what a minute allows)
    python tests/campaign/campaign.py --jobs 3           three lines at a time: they wait a lot
    python tests/campaign/campaign.py --small-disk       on a small disk that gets full (root)
    python tests/campaign/campaign.py --points append    name the points

A point is disturbed in three ways: the process is killed, the disk is full from there on, the device fails once
(``recorder.py``); or it stands still there while a second one is given the same line, with ``--resume`` or
``--overwrite``, or looks at what is there (``beside.py``). One process that has imported everything forks a child for
each line.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import pickle
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import beside  # noqa: E402
import kills  # noqa: E402
from cases import CASES, jobs  # noqa: E402
from ground import Ends, Ground, Ran, made, made_in_child, saved, warm  # noqa: E402
from recorder import called, keys, state_of  # noqa: E402

KINDS = ("kill", "ENOSPC", "EIO")


class Then(NamedTuple):
    """The line that is given after one that was disturbed, which promises were broken, how, and whether only
    ``--overwrite`` went on."""

    ran: Ran
    broken: list[tuple[str, str]]
    replaced: bool


class Trial(Ground):
    """A case in a directory of its own."""

    def __init__(self, name, directory, place):
        super().__init__(directory, place)
        self.name, self.case, self.directory = name, CASES[name], directory
        self.begun = os.path.join(directory, "begun")
        self.overwritten = 0  # how many times only --overwrite went on
        self._twice = None
        self.seen = {}  # how a line was left -> what came of the one after it
        self._prepare()
        self.before, self.untouched = self.content(), state_of(self.work)
        self.whole_run = self.learned(self.case.line)
        self.whole = self.content()
        assert self.whole_run.code in (0, 4), (name, self.whole_run.text)
        assert not self.left(), (name, self.left())

    def another(self, k):
        """What makes one more of the same."""
        return lambda: type(self)(self.name, made(f"{self.directory}-{k}"), self.place)

    def _prepare(self):
        self.furnish()
        jobs(self.out, self.place)
        for line in self.case.begin:
            done = self.learned(line)
            assert done.code == 0, (self.name, done.text)
        shutil.copytree(self.work, self.begun)
        self.mine = self.others()

    def restore(self):
        shutil.rmtree(self.work)
        shutil.copytree(self.begun, self.work)

    def content(self):
        """Digests of what is there and names of hidden files. Of a run the newest checkpoint counts: how many stay is
        no part of the promise."""
        found, hidden = kills.content(self.out, self.case.there)
        old = sorted(name for name in found if name.startswith(f"{self.case.run}/state-"))[:-1]
        rows = [name for name in found if name.startswith(f"{self.case.run}/rows-")]  # the checkpoint has their digests
        return {name: digest for name, digest in found.items() if name not in {*old, *rows}}, hidden

    def left(self):
        """Hidden files beside the results and temporary ones elsewhere that nobody had there before."""
        return sorted({*self.content()[1]} - {*self.before[1]} | self.elsewhere())

    # What is promised

    def disturb(self, fault):
        """The line with a fault, and once more: (which promise was broken, how) of all that were. Where the first left
        what is there as it was, to the byte and the time of change, the second is the undisturbed one; where it left
        it as another one did (``alike``), the one after that."""
        self.restore()
        first = self.run(self.case.line, fault)
        done = first.code == self.whole_run.code
        broken = [*self.foreign("at first"), *self.half(), *self.words(first)]
        if done and (differing := self.differing(results=True)):
            broken.append(("half output", f"ended well, and differs: {differing}"))
        entire = bool(self.case.files) and self.content()[0].items() >= self.results().items()
        if not done and state_of(self.work) == self.untouched:
            then = Then(self.whole_run, [], False)
        else:
            left = done, alike(self.work)
            if left not in self.seen:
                self.seen[left] = self.once_more() if done else self.given_again()
            elif self.seen[left].replaced:
                self.overwritten += 1
            then = self.seen[left]
        if not (done or (entire and then.replaced)):
            broken += self.lost(saved(first), saved(then.ran))
        broken += then.broken
        reached = not done or fault[1:] in {*keys(first.points)}
        return reached, [(what, f"[{'done' if done else first.code}] {how}") for what, how in broken]

    def results(self):
        """Digests of the results, whole."""
        return {name: self.whole[0][name] for name in self.case.files}

    def once_more(self):
        """The line after one that ended."""
        again, broken = self.run([*self.case.line, *self.case.anew]), []
        if not self.case.once and again.code != self.whole_run.code:
            broken.append(("not finished", f"once more: exit code {again.code}: {again.text[-600:]}"))
        return Then(again, [*broken, *self.in_the_end(again)], False)

    def given_again(self):
        """The line after one that did not."""
        before, again, broken = self.overwritten, self._again(), []
        if again.code != self.whole_run.code:
            broken.append(("not finished", f"given again: exit code {again.code}: {again.text[-600:]}"))
        elif differing := self.differing():
            broken.append(("other bytes", f"given again, it differs: {differing}"))
        return Then(again, [*broken, *self.in_the_end(again)], self.overwritten > before)

    def in_the_end(self, ran):
        left = self.left()
        return [*self.words(ran), *([("left behind", " ".join(left))] if left else []), *self.foreign("in the end")]

    def then(self, well):
        """After two at once, of which those in ``well`` ended: the line once more, as after a fault."""
        if well and not self.case.anew:  # each of them adds its rows
            whole = self.whole[0] if len(well) == 1 or self.case.once else self.twice()
            return [] if self.content()[0] == whole else [("other bytes", f"{len(well)} ended: {self.differing()}")]
        broken = []
        if well and (differing := self.differing(results=True)):
            broken.append(("half output", f"ended well, and differs: {differing}"))
        again = self.run([*self.case.line, *self.case.anew]) if well else self._again()
        if again.code != self.whole_run.code:
            broken.append(("not finished", f"once more: exit code {again.code}: {again.text[-600:]}"))
        elif differing := self.differing(results=bool(well)):  # --overwrite leaves a note in a run directory
            broken.append(("other bytes", f"once more, it differs: {differing}"))
        if left := self.left():
            broken.append(("left behind", " ".join(left)))
        return [*broken, *self.words(again), *self.foreign("in the end")]

    def twice(self):
        """What is there after the line was given twice."""
        if self._twice is None:
            aside = f"{self.work}.aside"
            os.rename(self.work, aside)
            shutil.copytree(self.begun, self.work)
            for _ in range(2):
                assert self.run(self.case.line).code == self.whole_run.code
            self._twice = self.content()[0]
            shutil.rmtree(self.work)
            os.rename(aside, self.work)
        return self._twice

    def _again(self):
        """The line once more, with --overwrite where it asks for that and all results that are there are whole."""
        there = {name: digest for name, digest in self.content()[0].items() if name in self.case.files}
        again = self.run([*self.case.line, *self.case.again])
        whole = there and all(digest == self.whole[0][name] for name, digest in there.items())
        if again.code and "--overwrite" in again.text and whole:
            self.overwritten += 1
            again = self.run([*self.case.line, *self.case.again, *self.case.anew])
            if again.code and self.case.again:  # they may exclude each other
                again = self.run([*self.case.line, *self.case.anew])
        return again

    def foreign(self, when):
        mine = self.others()
        return [("foreign deletion", f"{when}: {name}") for name in self.mine if mine.get(name) != self.mine[name]]

    def half(self):
        """Results that are neither as before nor whole."""
        found = self.content()[0]
        for name in self.case.files:
            if found.get(name) not in (None, self.before[0].get(name), self.whole[0][name]):
                yield "half output", name
        for name in self.case.sets:
            for part, held in ((part, held) for part, held in self._rows(name) if held):
                yield "half output", f"{part}: {held}"

    def _rows(self, name):
        """A set of shards is read as it was before, or as it is when it is whole, or not at all."""
        from bigclf.data.dataset import Dataset
        from bigclf.errors import BigclfError

        def of(found):
            return {part: digest for part, digest in found.items() if part.startswith(f"{name}/part-")}

        found = of(self.content()[0])
        if not found or found in (of(self.before[0]), of(self.whole[0])):
            return
        try:
            read = {os.path.relpath(file, self.out) for file in Dataset(os.path.join(self.out, name)).files}
        except BigclfError:
            return
        if {part: found[part] for part in read} not in (of(self.before[0]), of(self.whole[0])):
            yield name, f"read as {sorted(read)}"

    def words(self, ran):
        if ran.peeked:  # ``recorder.state_of`` relies on it
            yield "read before it had a name", " ".join(ran.peeked)
        if "Traceback" in ran.text:
            yield "traceback", ran.text[-1500:]
        if ran.code < 0:
            yield "hangs", f"signal {-ran.code}: {ran.text[-300:]}"

    def lost(self, before, after):
        """Epochs that had been written down, and were gone through once more."""
        for directory in before.keys() & after.keys():
            if after[directory][0] < before[directory][-1]:
                yield "lost epoch", f"{directory}: {after[directory][0]} after {before[directory][-1]}"

    def differing(self, results=False):
        found, whole = self.content()[0], self.whole[0]
        differing = sorted(name for name in found.keys() | whole.keys() if found.get(name) != whole.get(name))
        return " ".join(name for name in differing if not (results and name.startswith(f"{self.case.run}/")))


def alike(root):
    """A digest of names, modes and bytes below ``root``, the same for all that no line can tell apart: without what
    differs from run to run in names and in figures of time. A time of change that a file notes counts."""
    found = []
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            held = bytes_of(path) if stat.S_ISREG(mode) else os.readlink(path) if stat.S_ISLNK(mode) else ""
            found.append((called(os.path.relpath(path, root)), mode, held))
    return hashlib.blake2b(repr(sorted(found)).encode(), digest_size=16).hexdigest()


def bytes_of(path):
    """Their digest without figures of time; of a history, the last record of which is in that, its length too."""
    if not path.endswith(".jsonl"):
        return kills.digest(path)
    with open(path, "rb") as file:
        return f"{kills.digest(path)} {file.read().count(b'{')}"


class OnSmallDisk(Trial):
    """A case on a file system of its own (root), which has no room or no inode left at some moment."""

    def _prepare(self):
        os.makedirs(self.work)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", self.work], check=True)
        mounted.append(self.work)
        super()._prepare()

    def restore(self):
        for name in os.listdir(self.work):
            shutil.rmtree(os.path.join(self.work, name))
        shutil.copytree(self.begun, self.work, dirs_exist_ok=True)

    def run(self, words, fault=None, **more):
        """A fault is "room" or "inodes" and how many pages or inodes are left."""
        if fault is None:
            return super().run(words, **more)
        told = os.statvfs(self.work)
        room = (told.f_blocks - told.f_bfree + fault[1]) * told.f_frsize
        limit = f"size={room}" if fault[0] == "room" else f"nr_inodes={told.f_files - told.f_ffree + fault[1]}"
        self._remount(limit)
        try:
            return super().run(words, native=True, **more)
        finally:
            self._remount("size=64m,nr_inodes=100000")

    def _remount(self, options):
        subprocess.run(["mount", "-o", f"remount,{options}", self.work], check=True)

    def differing(self, results=True):
        """Of a run that came to its end without room for checkpoints there are none, and it needs none."""
        return super().differing(results=True)

    def least(self, kind):
        """With how much the line ends as an undisturbed one does."""
        low, high = 0, 4096
        while high - low > 1:
            middle = (low + high) // 2
            self.restore()
            well = self.run(self.case.line, (kind, middle)).code == self.whole_run.code
            low, high = (low, middle) if well else (middle, high)
        return high


mounted = []  # by ``OnSmallDisk``


def on_small_disk(name, directory, place, asked):
    """As ``carried_out``, where the disk is really full."""
    try:
        trial = OnSmallDisk(name, made(directory, name), place)
        draw, faults = random.Random(asked.seed + name), []
        for kind in ("room", "inodes"):
            least = trial.least(kind)
            print(f"{name}: ends with {least} {'pages' if kind == 'room' else kind}", flush=True)
            faults += [(kind, n) for n in sorted(draw.sample(range(least), min(least, asked.sample or least)))]
        return told_of(trial, faults, len(faults), each_alone, asked)
    finally:
        while mounted:
            subprocess.run(["umount", "-l", mounted.pop()], check=True)


def chosen(found, kinds, sample, seed):
    """(kind, point, which of its name), all of them or so many."""
    if not sample:
        return [(kind, *key) for key in found for kind in kinds]
    draw, n = random.Random(seed), len(kinds)
    first = draw.randrange(n)
    return [(kinds[(first + k) % n], *key) for k, key in enumerate(draw.sample(found, min(sample, len(found))))]


def part_of(text):
    """What takes the K-th of N parts of a list."""
    number, parts = map(int, text.split("/"))
    return lambda found: found[number - 1 :: parts]


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="CASE")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", default="")
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--small-disk", action="store_true")
    parser.add_argument("--points", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of each case, at most")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--part", default="1/1", type=part_of, metavar="K/N")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="campaign-") as directory:
        os.environ.setdefault("NUMBA_CACHE_DIR", os.path.join(directory, "kernels"))
        warm()
        place = made_in_child(made(directory, "place"))
        one = on_small_disk if asked.small_disk else carried_out
        failures = [one(name, directory, place, asked) for name in asked.names or CASES]
    return sum(failures)


HEAD = ("lost epoch", "half output", "foreign deletion")
LEAST = 8  # lines for which another process is worth its beginning
TOGETHER = 24  # lines that one process takes: those of points that follow each other leave the same


def carried_out(name, directory, place, asked):
    """A line of the table; how many promises were broken."""
    trial = Trial(name, made(directory, name), place)
    found = [*keys(trial.whole_run.points)]
    if asked.points:
        print("\n".join(f"{n:4d} {point} {which}" for n, (point, which) in enumerate(found, 1)))
        return 0
    if asked.beside:
        lines, apart = beside.drawn(trial, asked.sample, asked.seed + name)
        return told_of(trial, asked.part(lines), f"{len(found)}, {apart} apart", beside.disturbed, asked)
    faults = asked.part(chosen(found, KINDS, asked.sample, asked.seed + name))
    return told_of(trial, faults, len(found), each_alone, asked)


def each_alone(trial, faults):
    """(fault, whether it came, what of the promises was broken) of each."""
    return ((fault, *trial.disturb(fault)) for fault in faults)


class Tally(NamedTuple):
    """How many promises of each name were broken, how many lines that were asked for were disturbed, and how many went
    on with ``--overwrite`` only."""

    counts: Counter
    done: int
    overwritten: int

    def __add__(self, other):
        return Tally(self.counts + other.counts, self.done + other.done, self.overwritten + other.overwritten)


def told_of(trial, faults, points, disturbed, asked):
    """A line of the table; how many promises were broken."""
    begun = time.monotonic()
    n = 1 if isinstance(trial, OnSmallDisk) else max(1, min(asked.jobs, len(faults) // LEAST))
    found = in_children([
        functools.partial(tally, trial.another(k) if k else lambda: trial, share, disturbed, asked.seconds)
        for k, share in enumerate(dealt(faults, n))
    ])  # fmt: skip
    counts, done, overwritten = functools.reduce(Tally.__add__, found)
    rest = {what: n for what, n in counts.items() if what not in HEAD and n}
    cells = (trial.name, points, done, *(counts[what] for what in HEAD), overwritten, round(time.monotonic() - begun))
    print("| " + " | ".join(map(str, cells)) + f" | {rest or ''}", flush=True)
    return sum(n for what, n in counts.items() if what != "not reached")


def dealt(faults, n):
    """The share of each of n processes."""
    size = max(1, min(TOGETHER, len(faults) // (2 * n)))
    return [[fault for at, fault in enumerate(faults) if at // size % n == k] for k in range(n)]


def tally(made_trial, faults, disturbed, seconds):
    """What came of faults; each promise that was broken is printed at once."""
    trial, begun, counts, done = made_trial(), time.monotonic(), Counter(), 0
    for fault, reached, broken in disturbed(trial, faults):
        counts["not reached"] += not reached
        done += fault in faults
        counts.update(what for what, _ in broken)
        for what, how in broken:
            print(f"! {trial.name}: {fault[0]} at {fault[1:]}: {what}: {how}", flush=True)
        if time.monotonic() - begun > seconds:
            break
    return Tally(counts, done, trial.overwritten)


def in_children(tasks):
    """What each task returns, all at the same time, each in a child of this process; one alone is done here."""
    if len(tasks) == 1:
        return [tasks[0]()]
    children = []
    try:
        for task in tasks:
            here = Ends(*os.pipe())
            child = os.fork()
            if child == 0:
                os._exit(delivered(task, here))
            os.close(here.write)
            children.append((child, here.read))
        found = []
        while children:
            child, end = children[0]
            with os.fdopen(end, "rb") as file:
                told = file.read()
            status = os.waitpid(child, 0)[1]
            del children[0]
            assert status == 0, f"a part of the campaign ended with {status}"
            found.append(pickle.loads(told))
        return found
    finally:
        for child, _ in children:
            os.kill(child, signal.SIGTERM)


def delivered(task, here):
    """Write what the task returns into the pipe; an exit code."""
    os.close(here.read)
    try:
        with os.fdopen(here.write, "wb") as file:
            pickle.dump(task(), file)
        return 0
    except BaseException:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
