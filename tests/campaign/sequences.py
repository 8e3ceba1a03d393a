"""Random sequences of commands on one directory, disturbed at random, beside a model of what must be there.

    python tests/campaign/sequences.py 200              so many sequences of five commands
    python tests/campaign/sequences.py 200 --seed 3     others

The model knows of each result by which line it was made, of which inputs. What such a line makes is found out once, in
a directory where nothing else ever was. After a fault a result may be the one before, the new one, or not there; what
is really there decides how the sequence goes on. In the end each line that was disturbed is given again.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import hypothesis  # noqa: E402
import kills  # noqa: E402
from ground import MINE, Ground, made, made_in_child, saved, warm  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test  # noqa: E402
from recorder import KILLED  # noqa: E402

STEPS = 6  # after the first, which furnishes the directory: five commands, and once what no command does
FILES = {  # a result and what its files begin with
    "s": ("s/",), "m": ("m.bigclf",), "w": ("w/model", "w/results"), "csv": ("p.csv",), "p": ("p/",), "e": ("e.json",),
    "c": ("c.bigclf",), "x": ("x.py", "x.npz"), "liblinear": ("m.liblinear",), "parts": ("parts/",),
    "q": ("q/model", "q/path"), "r": ("r.html",),
}  # fmt: skip
READ = {"s": "{out}/s", "m": "{out}/m.bigclf", "c": "{out}/c.bigclf", "data": "{data}", "model": "{model}",
        "text": "{text}"}  # fmt: skip
SOURCES = {"text": ["{text}"], "bad": ["{bad}", "--on-bad-rows", "quarantine", "--max-bad-fraction", "0.5"]}
SOLVED = ["--algo", "dcd", "--loss", "logistic", "--tol", "0.3"]
ROLES = {"online": ["--algo", "pa1", "--epochs", "2"], "dual": SOLVED, "steps": ["--algo", "newton", "--tol", "0.1"]}
RUNS = {"run": ["--run-dir", "{out}/run"], "m.bigclf.run": []}
TIMELY = ("files", "fingerprint", "identity")  # of data that were made anew: with times of change


class Line(NamedTuple):
    """A command line without ``--overwrite`` and ``--resume``.

    makes : a result, or None; of : inputs, each a result or a given one; run : the run directory that it has.
    """

    words: tuple[str, ...]
    makes: str | None
    of: tuple[str, ...]
    run: str | None = None
    resumes: bool = False
    appends: bool = False


def line(words, makes, *of, **more):
    return Line(tuple(words), makes, of, **more)


def convert(source, append=False):
    words = ["convert", *SOURCES[source], "{out}/s", "--workers", "1", *(["--append"] if append else [])]
    return line(words, "s", *(["s"] if append else []), appends=append)


def fit(role, data, run):
    words = ["fit", READ[data], "-o", "{out}/m.bigclf", *ROLES[role], "--checkpoint-every", "0", *RUNS[run]]
    return line(words, "m", data, run=run, resumes=True)


def sweep():
    words = ["sweep", "{data}", "-o", "{out}/w", *SOLVED, "--grid", "C=0.1,1", "--folds", "2"]
    return line([*words, "--checkpoint-every", "0"], "w", run="w/run", resumes=True)


def path():
    words = ["path", "{data}", "-o", "{out}/q", "--C", "0.1,1", "--tol", "0.3"]
    return line(words, "q", run="q/run", resumes=True)


def predict(model, data, to):
    path = {"csv": "{out}/p.csv", "p": "{out}/p"}[to]
    return line(["predict", READ[model], READ[data], "-o", path], to, model, data)


def evaluate(model):
    return line(["evaluate", READ[model], "{data}", "-o", "{out}/e.json"], "e", model)


def calibrate(model):
    return line(["calibrate", READ[model], "{data}", "-o", "{out}/c.bigclf"], "c", model)


def export(model, to):
    path = {"x": "{out}/x", "liblinear": "{out}/m.liblinear"}[to]
    return line(["export", READ[model], path, "--to", {"x": "numpy"}.get(to, to)], to, model)


def report(model):
    return line(["report", READ[model], "-o", "{out}/r.html", "--data", "{data}"], "r", model)


def split(data):
    return line(["split", READ[data], "{out}/parts"], "parts", data)


def look(command, what):
    return line([command, READ[what]], None, what)


class Recipe(NamedTuple):
    """By which line a result was made, and of what."""

    line: Line
    of: tuple


class Whole(NamedTuple):
    """What a line makes where nothing is in its way: digests of its files, and at how many points it changes files."""

    files: dict[str, str]
    points: int
    code: int


class Book:
    """What each recipe makes, found out once each in a directory of its own name, from which all else is put aside."""

    def __init__(self, directory, place):
        self.ground, self.kept = Ground(made(directory, "ground"), place), made(directory, "kept")
        self._found, self._stored = {}, {}

    def whole(self, recipe):
        if recipe not in self._found:
            self._make(recipe)
        return self._found[recipe]

    def put(self, recipe):
        """The files of a recipe into ``out``."""
        self.whole(recipe)
        shutil.copytree(self._stored[recipe], self.ground.out, dirs_exist_ok=True)

    def _make(self, recipe):
        ground, aside = self.ground, f"{self.ground.work}.aside-{len(self._found)}"
        for part in recipe.of:
            if part is not None:
                self.whole(part)
        there = os.path.exists(ground.work)
        if there:
            os.rename(ground.work, aside)
        ground.furnish()
        for part in recipe.of:
            if part is not None:
                self.put(part)
        ran = ground.learned(recipe.line.words)
        assert ran.code in (0, 4), (recipe, ran.text)
        store = made(self.kept, str(len(self._found)))
        found = contents(ground, recipe.line.makes)
        for name in found:
            os.makedirs(os.path.dirname(os.path.join(store, name)), exist_ok=True)
            shutil.copy2(os.path.join(ground.out, name), os.path.join(store, name))
        self._stored[recipe], self._found[recipe] = store, Whole(found, len(ran.points), ran.code)
        shutil.rmtree(ground.work)
        if there:
            os.rename(aside, ground.work)


def contents(ground, makes=None):
    """Digests of the files of a result, or of all files that are no run's, no hidden one and no other's."""
    found = kills.content(ground.out)[0]
    if makes is None:
        return {name: digest for name, digest in found.items() if name not in MINE and ".run/" not in name
                and not name.startswith(("run/", "w/run/", "q/run/"))}  # fmt: skip
    return {name: digest for name, digest in found.items() if name.startswith(FILES[makes]) and ".run/" not in name}


class Sequence(RuleBasedStateMachine):
    """The rules are commands.

    Attributes
    ----------
    kept : of each result the recipes it may be of; None: it is not there.
    open : the lines that were disturbed and not ended since, by what they make and their run directory.
    unclean : those that were disturbed and ended all the same.
    """

    book: Book
    counts: Counter

    def __init__(self):
        super().__init__()
        if self.counts["sequences"] % 20 == 0:
            print(dict(self.counts), flush=True)
        self.ground, self.counts["sequences"] = self.book.ground, self.counts["sequences"] + 1
        shutil.rmtree(self.ground.work, ignore_errors=True)
        self.ground.furnish()
        self.mine, self.hidden = self.ground.others(), {*kills.content(self.ground.out)[1]}
        self.kept = {name: {None} for name in FILES}
        self.open, self.unclean, self.saved, self.told, self.lost = {}, {}, {}, [], False

    # The commands

    how = st.sampled_from(["plain", "again", "overwrite", "overwrite"])
    kind, share = st.sampled_from(["none", "kill", "kill", "kill", "ENOSPC", "EIO"]), st.integers(0, 99)
    fault = st.tuples(kind, share)
    data, model = st.sampled_from(["data", "s"]), st.sampled_from(["model", "m", "c"])

    @initialize(furnished=st.sampled_from(["not at all", "shards", "model", "model", "all"]))
    def begin(self, furnished):
        begun = [convert("text"), fit("dual", "s", "m.bigclf.run"), calibrate("m"), predict("m", "data", "csv")]
        for one in begun[: {"not at all": 0, "shards": 1, "model": 2, "all": 4}[furnished]]:
            recipe = Recipe(one, tuple(part for name in one.of for part in self._kept_of(name) if part != name))
            self.book.put(recipe)
            self.kept[one.makes] = {recipe}

    @rule(source=st.sampled_from(sorted(SOURCES)), append=st.booleans(), how=how, fault=fault)
    def convert(self, source, append, how, fault):
        self.give(convert(source, append), "plain" if append else how, fault)

    @precondition(lambda self: not self.lost)
    @rule(what=st.sampled_from(["cache", "times"]))
    def lose(self, what):
        """What lies in bigclf's cache, of which raw text is one; or the times of shards, as where they are copied."""
        self.lost = True
        if what == "cache":
            shutil.rmtree(os.path.join(self.ground.work, "cache"))
            os.mkdir(os.path.join(self.ground.work, "cache"))
        for name in contents(self.ground, "s") if what == "times" else ():
            os.utime(os.path.join(self.ground.out, name), (1e9, 1e9))
        self.told.append(f"lost: {what}")
        self.counts[f"lost {what}"] += 1

    @rule(
        role=st.sampled_from(sorted(ROLES)),
        data=st.sampled_from(["data", "s", "text"]),
        run=st.sampled_from(sorted(RUNS)),
        how=how,
        fault=fault,
    )
    def fit(self, role, data, run, how, fault):
        self.give(fit(role, data, run), how, fault)

    @rule(how=how, fault=fault)
    def sweep(self, how, fault):
        self.give(sweep(), how, fault)

    @rule(how=how, fault=fault)
    def path(self, how, fault):
        self.give(path(), how, fault)

    @rule(model=model, how=how, fault=fault)
    def report(self, model, how, fault):
        self.give(report(model), how, fault)

    @rule(model=model, data=data, to=st.sampled_from(["csv", "p"]), how=how, fault=fault)
    def predict(self, model, data, to, how, fault):
        self.give(predict(model, data, to), how, fault)

    @rule(model=model, how=how, fault=fault)
    def evaluate(self, model, how, fault):
        self.give(evaluate(model), how, fault)

    @rule(model=st.sampled_from(["model", "m"]), how=how, fault=fault)
    def calibrate(self, model, how, fault):
        self.give(calibrate(model), how, fault)

    @rule(model=model, to=st.sampled_from(["x", "liblinear"]), how=how, fault=fault)
    def export(self, model, to, how, fault):
        self.give(export(model, to), how, fault)

    @rule(data=data, how=how, fault=fault)
    def split(self, data, how, fault):
        self.give(split(data), how, fault)

    @rule(command=st.sampled_from(["inspect", "inspect", "validate"]), what=st.sampled_from(["s", "m", "c"]))
    def look(self, command, what):
        self.give(look(command, "s" if command == "validate" else what), "plain", None)

    @precondition(lambda self: self.open)
    @rule(fault=fault)
    def once_more(self, fault):
        """The line that was disturbed last."""
        self.give([*self.open.values()][-1][0], "again", fault)

    def teardown(self):
        for one, how, _ in [*self.open.values()]:
            if self._key(one) in self.open and all(None not in self._kept_of(name) for name in one.of):
                self._end(one, how)
        for key, one in [*self.unclean.items()]:
            if key not in self.open and all(None not in self._kept_of(name) for name in one.of):
                self.give(one, "overwrite", None)
        hidden = {*kills.content(self.ground.out)[1]} - self.hidden
        left = sorted(name for name in hidden | self.ground.elsewhere())
        if not (self.open or self.unclean):
            self.check(not left, "left behind", left)

    def _end(self, one, how):
        """A line that was disturbed ends when it is given again, with what it asks for."""
        other = self._is_other(one)
        for once in ("again", "both", "overwrite"):
            ran = self.give(one, once, None)
            refused = "--overwrite" in ran.text or (other and "holds another run" in ran.text)
            if ran.code in (0, 4) or not refused:
                break
        self.check(self._key(one) not in self.open or how == "append", "not finished", ran.text[-600:])

    def _is_other(self, one):
        """Whether its run is of rows that are no more."""
        return self.open[self._key(one)][2] != self._recipes(one)

    # What must come of a line

    def give(self, one, how, fault):
        words = [*one.words, *(["--overwrite"] if how in ("overwrite", "both") and not one.appends else []),
                 *(["--resume"] if how in ("again", "both") and one.resumes else [])]  # fmt: skip
        recipes = self._recipes(one)
        must = self._must_end(one, how, recipes)
        if fault is not None:
            points = self.book.whole(min(recipes, key=repr)).points if recipes else 9
            fault = None if fault[0] == "none" else (fault[0], 1 + fault[1] * points // 100)
        before = contents(self.ground)
        ran = self.ground.run(words, fault)
        self.told.append(f"{' '.join(words)}  {fault or ''} -> {ran.code}")
        self.counts["lines"] += 1
        reached = fault is not None and len(ran.points) >= fault[1]
        self.counts[f"at {fault[0]}" if reached else "undisturbed"] += 1
        self._check_others(one, ran, before)
        if ran.code in (0, 4):
            self._ended(one, recipes, ran)
            self.unclean.pop(self._key(one), None)
            if reached:  # what was in its way may have kept it from removing something
                self.unclean[self._key(one)] = one
        elif reached:
            self._disturbed(one, how, recipes, ran)
        else:
            self.counts["refused"] += 1
            self.check(not must, "refused", ran.text[-600:])
            self.check(ran.code in (1, 2, 3), "exit code", ran.code)
            self._settle(before)
        return ran

    def _kept_of(self, name):
        return self.kept.get(name, {name})

    def _key(self, one):
        return one.makes, one.run

    def _recipes(self, one):
        """What may come of it, as the inputs may be."""
        combined = [()]
        for name in one.of:
            parts = self._kept_of(name) - ({None} if not one.appends else set())
            combined = [(*before, part) for before in combined for part in parts]
        fresh = one._replace(words=tuple(word for word in one.words if word != "--append"), of=())
        found = {Recipe(fresh if one.appends and of == (None,) else one,
                        tuple(part for part in of if isinstance(part, Recipe))) for of in combined}  # fmt: skip
        done = self.open.get(self._key(one))
        cut = done[0] if done else self.unclean.get(self._key(one))
        if one.appends and cut and cut.words == one.words:  # it may have been done when it was cut short
            found |= {recipe for recipe in self.kept["s"] if recipe and recipe.line.words in (one.words, fresh.words)}
        return found

    def _must_end(self, one, how, recipes):
        """Whether nothing may keep the line from its end."""
        if any(None in self._kept_of(name) for name in one.of if not one.appends) or not recipes:
            return False
        if one.makes is None or how == "overwrite" or one.appends:
            return True
        held, done = self.kept[one.makes], self.open.get(self._key(one))
        fresh = held == {None} and not any(key[0] == one.makes for key in self.open)
        if one.run:
            begun = os.path.exists(os.path.join(self.ground.out, one.run))
            if how != "again":
                return fresh and not begun
            mine = done and done[0] == one and done[1] != "overwrite" and not self._is_other(one)
            return (fresh and not begun) or bool(mine and not contents(self.ground, one.makes))
        return fresh or bool(done and done[0] == one and done[1] == "plain" and not contents(self.ground, one.makes))

    def _ended(self, one, recipes, ran):
        self.counts["ended"] += 1
        if one.makes is None:
            self._settle(None)
            return
        self._check_epochs(one, ran)
        self._forget_epochs(one)  # its run directory is gone
        self.open = {key: held for key, held in self.open.items() if key != self._key(one) and (key[0] != one.makes
                     or one.makes == "m")}  # fmt: skip
        self.kept[one.makes] = recipes
        self._settle(None)
        self.check(self.kept[one.makes], "other bytes", contents(self.ground, one.makes))

    def _disturbed(self, one, how, recipes, ran):
        self.counts["cut short"] += 1
        if one.makes is None:
            return
        done = self.open.pop(self._key(one), None)
        how = "append" if one.appends else "overwrite" if done and done[1] == "overwrite" else how
        if None not in self.kept[one.makes]:
            how = "append" if one.appends else "overwrite"
        if "--overwrite" in self.told[-1]:  # it begins anew
            self._forget_epochs(one)
        self.open[self._key(one)] = one, how, recipes
        for directory, found in saved(ran).items():
            self.saved[directory] = recipes, found[-1]
        self.kept[one.makes] = self.kept[one.makes] | recipes | {None}
        self._settle(None)

    def _forget_epochs(self, one):
        """What was written down of its runs counts no more."""
        if one.run:
            place = os.path.join(self.ground.out, one.run)
            self.saved = {d: held for d, held in self.saved.items() if d != place and not d.startswith(place + os.sep)}

    def _check_epochs(self, one, ran):
        """What was written down is not gone through again."""
        for directory, found in saved(ran).items():
            recipes, last = self.saved.pop(directory, (None, None))
            if recipes == self._recipes(one) and "--resume" in self.told[-1] and "--overwrite" not in self.told[-1]:
                self.check(found[0] >= last, "lost epoch", (directory, found[0], last))

    def _check_others(self, one, ran, before):
        self.check(ran.code >= 0 and "Traceback" not in ran.text, "traceback", ran.text[-1500:])
        self.check(self.ground.others() == self.mine, "foreign deletion", sorted(self.mine))
        after = contents(self.ground)
        mine = FILES.get(one.makes, ("/",))
        changed = [name for name in {*before, *after} if before.get(name) != after.get(name)
                   and not name.startswith((*mine, *self._unsettled()))]  # fmt: skip
        self.check(not changed, "others changed", changed)

    def _unsettled(self):
        return [start for name in FILES if len(self.kept[name]) > 1 for start in FILES[name]]

    def _settle(self, before):
        """What is there must be what may be there, and says what it is."""
        for name, held in self.kept.items():
            there = contents(self.ground, name)
            whole = {recipe for recipe in held if self._is_whole(name, there, recipe)}
            if whole - {None}:
                self.kept[name] = whole - {None}
            elif len(held) == 1:
                self.check(whole, "half output", (name, sorted(there)))
            elif name != "s":  # each file by itself; of shards what is read counts
                may = [self.book.whole(recipe).files for recipe in held if recipe]
                half = [file for file in there if there[file] not in [files.get(file) for files in may]]
                self.check(not half, "half output", half)
            else:
                self.check(read(self.ground) is None, "half output", read(self.ground))

    def _is_whole(self, name, there, recipe):
        if recipe is None:
            return not there
        whole = self.book.whole(recipe).files
        if name != "s" or not any(key[0] == "s" for key in self.open):
            return there == whole
        return read(self.ground) == {file: digest for file, digest in whole.items() if file.startswith("s/part-")}

    def check(self, good, what, how):
        if not good:
            self.counts[what] += 1
            held = {name: len(recipes) for name, recipes in self.kept.items() if recipes != {None}}
            told = "\n".join([f"{what}: {how}", f"there: {sorted(contents(self.ground))}, kept: {held}", *self.told])
            print(f"! {told}\n", flush=True)
            raise AssertionError(told)


def read(ground):
    """Digests of the shards that whoever opens the directory reads; None where it cannot be opened."""
    from bigclf.data.dataset import Dataset
    from bigclf.errors import BigclfError

    try:
        files = Dataset(os.path.join(ground.out, "s")).files
    except BigclfError:
        return None
    there = contents(ground, "s")
    return {name: there[name] for name in (os.path.relpath(file, ground.out) for file in files)}


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args(arguments)
    kills.TIMES += TIMELY
    settings = hypothesis.settings(
        max_examples=asked.count,
        stateful_step_count=STEPS + 1,
        deadline=None,
        database=None,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
    )
    with tempfile.TemporaryDirectory(prefix="sequences-") as directory:
        os.environ.setdefault("NUMBA_CACHE_DIR", os.path.join(directory, "kernels"))
        begun = time.monotonic()
        warm()
        Sequence.book, Sequence.counts = Book(directory, made_in_child(made(directory, "place"))), Counter()
        try:
            run_state_machine_as_test(hypothesis.seed(asked.seed)(Sequence), settings=settings)
        finally:
            print("| " + " | ".join(f"{n} {what}" for what, n in Sequence.counts.items())
                  + f" | {time.monotonic() - begun:.0f} s |", flush=True)  # fmt: skip


if __name__ == "__main__":
    assert KILLED
    main(sys.argv[1:])
