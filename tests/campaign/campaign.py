"""Disturb every call by which a command changes files, one at a time, and give the command again.

    python tests/campaign/campaign.py                    all points of all cases: a table, and what went wrong
    python tests/campaign/campaign.py sweep "run job"    of these cases alone
    python tests/campaign/campaign.py --sample 2         two points of each case, each in one way
    python tests/campaign/campaign.py --sample 2 --seed a    two others
    python tests/campaign/campaign.py --points append    name the points

A point is disturbed in three ways: the process is killed, the disk is full from there on, the device fails once
(``recorder.py``). One process that has imported everything forks a child for each line.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import kills  # noqa: E402
from cases import CASES, PLACE, jobs, make  # noqa: E402
from recorder import Recorder, keys  # noqa: E402

kills.TIMES += ("bytes_read",)  # by a process, which may be the second
KINDS = ("kill", "ENOSPC", "EIO")
PATIENCE = 300  # seconds for a line that takes less than one, when nothing has to be compiled
MINE = {"mine.txt": "mine", ".mine": "mine too", "keep/rows.csv": "1,2\n"}  # what others have in the directory


class Ran(NamedTuple):
    """What came of a line: its exit code, what it printed, its points and the path of each."""

    code: int
    text: str
    points: list[str]
    paths: list[str]


class Trial:
    """A case in a directory of its own."""

    def __init__(self, name, directory, place):
        self.name, self.case, self.place = name, CASES[name], place
        self.work, self.begun = os.path.join(directory, "work"), os.path.join(directory, "begun")
        self.log, self.output = os.path.join(directory, "log"), os.path.join(directory, "output")
        self.out = os.path.join(self.work, "out")
        self.overwritten = 0  # how many times only --overwrite went on
        self._prepare()
        self.before = self.content()
        self.whole_run = self.run(self.case.line)
        self.whole = self.content()
        assert self.whole_run.code in (0, 4), (name, self.whole_run.text)
        assert not self.left(), (name, self.left())

    def _prepare(self):
        for name in ("out", "tmp", "cache"):
            os.makedirs(os.path.join(self.work, name))
        for name, text in (MINE | {f".m.bigclf.tmp-{os.getpid()}-0123abcd": "of one that lives"}).items():
            path = os.path.join(self.out, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)
        jobs(self.out, self.place)
        for line in self.case.begin:
            done = self.run(line)
            assert done.code == 0, (self.name, done.text)
        shutil.copytree(self.work, self.begun)
        self.mine = self._mine()

    def restore(self):
        shutil.rmtree(self.work)
        shutil.copytree(self.begun, self.work)

    def _mine(self):
        """What others have there, with its bytes."""
        found = {}
        for folder, _, names in os.walk(self.out):
            for name in names:
                path = os.path.join(folder, name)
                short = os.path.relpath(path, self.out)
                if short in MINE or short.endswith(("0123abcd", ".yaml")):
                    with open(path, "rb") as file:
                        found[short] = file.read()
        return found

    def content(self):
        """Digests of what is there and names of hidden files. Of a run the newest checkpoint counts: how many stay is
        no part of the promise."""
        found, hidden = kills.content(self.out, self.case.there)
        old = sorted(name for name in found if name.startswith(f"{self.case.run}/state-"))[:-1]
        rows = [name for name in found if name.startswith(f"{self.case.run}/rows-")]  # the checkpoint has their digests
        return {name: digest for name, digest in found.items() if name not in {*old, *rows}}, hidden

    def left(self):
        """Hidden files beside the results and temporary ones elsewhere that nobody had there before."""
        hidden = {*self.content()[1]} - {*self.before[1]}
        elsewhere = os.listdir(os.path.join(self.work, "tmp"))
        cached = [name for _, folders, names in os.walk(os.path.join(self.work, "cache"))
                  for name in (*folders, *names) if ".tmp-" in name]  # fmt: skip
        return sorted({*hidden, *elsewhere, *cached})

    def run(self, words, fault=None):
        """A line in a child of this process."""
        words = [word.format(out=self.out, **self.place) for word in words]
        child = os.fork()
        if child == 0:
            os._exit(self._child(words, fault))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with open(self.output, errors="replace") as file:
            text = file.read()
        points, paths = [], []
        with contextlib.suppress(OSError, ValueError), open(self.log) as file:
            points, paths = json.load(file)
        return Ran(code, text, points, paths)

    def _child(self, words, fault):
        signal.alarm(PATIENCE)
        to = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(to, 1)
        os.dup2(to, 2)
        sys.stdout = sys.stderr = io.TextIOWrapper(os.fdopen(to, "wb"), write_through=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.log)
        os.environ["BIGCLF_CACHE_DIR"] = os.path.join(self.work, "cache")
        tempfile.tempdir = os.environ["TMPDIR"] = os.path.join(self.work, "tmp")
        recorder = Recorder(self.work, fault, lambda: self._note(recorder))
        recorder.install()
        code = 1
        try:
            from bigclf.cli import main

            main(words, prog_name="bigclf")
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        self._note(recorder)
        return code

    def _note(self, recorder):
        with open(self.log, "w") as file:
            json.dump([recorder.points, recorder.paths], file)

    # What is promised

    def disturb(self, fault):
        """The line with a fault, and once more: (which promise was broken, how) of all that were."""
        self.restore()
        first = self.run(self.case.line, fault)
        done = first.code == self.whole_run.code
        broken = [*self._foreign("at first"), *self._half(), *self._words(first)]
        if done:
            if differing := self._differing(results=True):
                broken.append(("half output", f"ended well, and differs: {differing}"))
            again = self.run([*self.case.line, *self.case.anew])
            if again.code != first.code:
                broken.append(("not finished", f"once more: exit code {again.code}: {again.text[-600:]}"))
        else:
            again = self._again()
            broken += self._lost(first, again)
            if again.code != self.whole_run.code:
                broken.append(("not finished", f"given again: exit code {again.code}: {again.text[-600:]}"))
            elif self.content()[0] != self.whole[0]:
                broken.append(("other bytes", f"given again, it differs: {self._differing()}"))
        broken += self._words(again)
        if left := self.left():
            broken.append(("left behind", " ".join(left)))
        broken += self._foreign("in the end")
        reached = fault[1:] in {*keys(first.points)}
        return reached, [(what, f"[{'done' if done else first.code}] {how}") for what, how in broken]

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

    def _foreign(self, when):
        mine = self._mine()
        return [("foreign deletion", f"{when}: {name}") for name in self.mine if mine.get(name) != self.mine[name]]

    def _half(self):
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

    def _words(self, ran):
        if "Traceback" in ran.text:
            yield "traceback", ran.text[-1500:]
        if ran.code < 0:
            yield "hangs", f"signal {-ran.code}: {ran.text[-300:]}"

    def _lost(self, first, again):
        """Epochs that had been written down, and were gone through once more."""
        before, after = _saved(first), _saved(again)
        for directory in before.keys() & after.keys():
            if after[directory][0] < before[directory][-1]:
                yield "lost epoch", f"{directory}: {after[directory][0]} after {before[directory][-1]}"

    def _differing(self, results=False):
        found, whole = self.content()[0], self.whole[0]
        differing = sorted(name for name in found.keys() | whole.keys() if found.get(name) != whole.get(name))
        return " ".join(name for name in differing if not (results and name.startswith(f"{self.case.run}/")))


def _saved(ran):
    """The checkpoints that were written, (epoch, segment), by directory."""
    found = {}
    for point, path in zip(ran.points[:-1], ran.paths, strict=False):  # the last one may not have been done
        if point.startswith("replace") and (known := re.search(r"\.state-(\d+)-(\d+)", os.path.basename(path))):
            found.setdefault(os.path.dirname(path), []).append(tuple(map(int, known.groups())))
    return found


WARM = """jinja2 joblib matplotlib.backends.backend_agg matplotlib.figure PIL.PngImagePlugin psutil pyarrow.csv
pyarrow.parquet rich.live rich.progress rich.table safetensors.numpy sklearn.linear_model sklearn.pipeline
sklearn.preprocessing"""
ROOMS = ("api", "cli", "conversion", "data", "features", "files", "metrics", "model", "reporting", "stream", "training")


def warm():
    """What children would each do for themselves."""
    import bigclf

    rooms = [module.name for module in pkgutil.walk_packages(bigclf.__path__, "bigclf.")]
    for name in (*WARM.split(), *(name for name in rooms if name.split(".")[1] in ROOMS)):
        importlib.import_module(name)
    from bigclf import files
    from bigclf.compiled.jit import sources_digest
    from bigclf.conversion.converter import compile_kernels

    compile_kernels()
    sources_digest()
    files._in_memory = lambda directory: False  # the temporary directory is ours, wherever it lies
    gc.freeze()  # children would copy what is looked through


def chosen(found, sample, seed):
    """(kind, point, which of its name), all of them or so many."""
    if not sample:
        return [(kind, *key) for key in found for kind in KINDS]
    draw = random.Random(seed)
    first = draw.randrange(3)
    return [(KINDS[(first + k) % 3], *key) for k, key in enumerate(draw.sample(found, min(sample, len(found))))]


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="CASE")
    parser.add_argument("--sample", type=int, default=0)
    parser.add_argument("--seed", default="")
    parser.add_argument("--points", action="store_true")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="campaign-") as directory:
        os.environ.setdefault("NUMBA_CACHE_DIR", os.path.join(directory, "kernels"))
        warm()
        place = _made_in_child(_made(directory, "place"))
        failures = [carried_out(name, directory, place, asked) for name in asked.names or CASES]
    return sum(failures)


def _made_in_child(directory):
    """The rows and the model that lines are given; this process itself starts no thread."""
    child = os.fork()
    if child == 0:
        try:
            make(directory)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    return {name: os.path.join(directory, file) for name, file in PLACE.items()}


def _made(*names):
    os.mkdir(os.path.join(*names))
    return os.path.join(*names)


HEAD = ("lost epoch", "half output", "foreign deletion")


def carried_out(name, directory, place, asked):
    """A line of the table; how many promises were broken."""
    begun = time.monotonic()
    trial = Trial(name, _made(directory, name), place)
    found = [*keys(trial.whole_run.points)]
    if asked.points:
        print("\n".join(f"{n:4d} {point} {which}" for n, (point, which) in enumerate(found, 1)))
        return 0
    counts, faults = Counter(), chosen(found, asked.sample, asked.seed + name)
    for fault in faults:
        reached, broken = trial.disturb(fault)
        counts["not reached"] += not reached
        counts.update(what for what, _ in broken)
        for what, how in broken:
            print(f"! {name}: {fault[0]} at {fault[1]!r} {fault[2]}: {what}: {how}", flush=True)
    rest = {what: n for what, n in counts.items() if what not in HEAD and n}
    cells = (
        name,
        len(found),
        len(faults),
        *(counts[what] for what in HEAD),
        trial.overwritten,
        round(time.monotonic() - begun),
    )
    print("| " + " | ".join(map(str, cells)) + f" | {rest or ''}", flush=True)
    return sum(n for what, n in counts.items() if what != "not reached")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
