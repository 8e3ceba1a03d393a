"""Run a command line, kill it at each of the points where it changes names of files, and run it again.

``python tests/kills.py DIR`` reads a case as JSON from standard input and prints a line of JSON for each point. The
process does nothing itself but fork: a child is killed as by SIGKILL, without any clearing up, before it renames, links
or removes for the n-th time, and within the removal of a directory.

A case is a table: ``line``, words in which ``{out}`` stands for a directory of its own; ``again``, words that are added
to it after a kill; ``begin``, lines that go before it; ``only``, parts of the names of changes that count; ``last``,
whether of those that differ in numbers alone the last one is enough; ``there``, parts of the names of files that hold
what was measured, which differs from run to run.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import sys
import traceback

NAMES = ("replace", "rename", "link", "unlink", "rmdir")
# what differs from run to run
TIMES = (
    "seconds",
    "epoch_seconds",
    "waited",
    "memory",
    "busy",
    "peak",
    "machine",
    "run",
    "mtime_ns",
    "checksum",
    "started",
)


class Count:
    """Ends the process at the n-th change below ``directory``; 0: never."""

    def __init__(self, directory, n):
        self.directory, self.n, self.done, self.within = os.path.realpath(directory), n, [], False
        for name in NAMES:
            setattr(os, name, self.counted(name, getattr(os, name)))
        self.remove_tree, shutil.rmtree = shutil.rmtree, self.rmtree

    def counted(self, name, function):
        def act(path, *rest, **options):
            self.step(name, path)
            return function(path, *rest, **options)

        return act

    def rmtree(self, path, *rest, **options):
        self.step("rmtree", path)
        self.within = True
        try:
            self.remove_some(path)
            return self.remove_tree(path, *rest, **options)
        finally:
            self.within = False

    def remove_some(self, path):
        """Half of the files, and all of them while the directories stay, are states to be killed in."""
        found = sorted(os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
        for part, name in ((found[len(found) // 2 :], "half rmtree"), (found, "empty rmtree")):
            for file in part:
                with contextlib.suppress(OSError):
                    os.unlink(file)
            self.within = False
            self.step(name, path)
            self.within = True

    def step(self, name, path):
        if self.within or not os.path.realpath(os.path.dirname(os.fspath(path)) or ".").startswith(self.directory):
            return
        if not os.path.lexists(path) or "lease.tmp-" in os.fspath(path):  # written anew as time goes by
            return
        self.done.append(f"{name} {os.path.relpath(os.fspath(path), self.directory)}")
        if len(self.done) == self.n:
            print(self.done[-1])
            sys.stdout.flush()
            os._exit(137)


def run(words, directory, kill_at=0):
    """Run a command line in a child that may be killed: its exit code, its output, and the changes."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.dup2(writer, 1)
        os.dup2(writer, 2)
        sys.stdout = sys.stderr = io.TextIOWrapper(os.fdopen(writer, "wb"), write_through=True)
        code, count = 1, Count(directory, kill_at)
        try:
            from bigclf.cli import main

            main(words, prog_name="bigclf")
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
        print("\n" + json.dumps(count.done), flush=True)
        os._exit(int(code))
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    *lines, last = text.strip().splitlines() or [""]
    return code, "\n".join(lines), last


def content(directory, there=()):
    """name -> digest of what is the same whenever it is made, of every file below a directory that is not hidden, and
    the names of hidden files and directories; of those named in ``there`` that they are."""
    found, hidden = {}, []
    for folder, folders, names in os.walk(directory):
        hidden += [os.path.relpath(os.path.join(folder, name), directory) for name in (*folders, *names)
                   if name.startswith(".")]  # fmt: skip
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if not name.startswith("."):
                path = os.path.join(folder, name)
                short = os.path.relpath(path, directory)
                found[short] = "there" if any(part in short for part in there) else digest(path)
    return found, sorted(hidden)


def digest(path):
    with open(path, "rb") as file:
        held = file.read()
    if path.endswith((".html", ".png")) and held.rstrip().endswith((b"</html>", b"IEND\xaeB`\x82")):
        return "there"
    if path.endswith((".json", ".jsonl")):
        with contextlib.suppress(ValueError):  # a line that was cut short
            lines = held.splitlines() if path.endswith("l") else ()
            told = {"history": [json.loads(line) for line in lines]} if lines else json.loads(held)
            held = json.dumps(timeless(told), sort_keys=True).encode()
    elif path.endswith(".safetensors"):
        from bigclf.training.records.run_directory import load_arrays

        with contextlib.suppress(KeyError):  # of a run; else they are what was learned of columns
            arrays, facts, of_arrays = load_arrays(path)
            held = json.dumps([of_arrays, sorted(arrays), timeless(facts)], sort_keys=True).encode()
    elif path.endswith((".bigclf", ".liblinear", ".joblib")):
        from bigclf.model.model import load

        with contextlib.suppress(Exception):
            held = load(path).digest().encode()
    elif path.endswith("results.csv") or path.endswith("path.csv"):
        held = b"\n".join(line.rpartition(b",")[0] for line in held.splitlines())  # the last column holds seconds
    return hashlib.blake2b(held, digest_size=8).hexdigest()


def timeless(told):
    if isinstance(told, dict):
        # of the history all but the last record may be dropped
        told = {name: value[-1:] if name == "history" else value for name, value in told.items()}
        return {name: timeless(value) for name, value in told.items() if name not in TIMES}
    return [timeless(value) for value in told] if isinstance(told, list) else told


def prepare(case, directory):
    """Run the lines that go before the one that is killed."""
    out = os.path.join(directory, "out")
    os.mkdir(out)
    for line in case.get("begin", ()):
        code, text, _ = run([word.format(out=out) for word in line], out)
        assert code == 0, text
    os.rename(out, os.path.join(directory, "begun"))


def attempt(case, directory, kill_at):
    """Kill the line at one point and run it again: what came of it."""
    out = os.path.join(directory, "out")
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(os.path.join(directory, "begun"), out)
    words = [word.format(out=out) for word in case["line"]]
    code, text, last = run(words, out, kill_at)
    told = {"point": kill_at, "code": code, "where": last if code == 137 else None, "text": text}
    if code == 137:
        told["left"] = content(out, case.get("there", ()))
        told["again"], told["said"], _ = run([*words, *case.get("again", ())], out)
    else:
        told["changes"] = json.loads(last)
    told["content"], told["hidden"] = content(out, case.get("there", ()))
    return told


def within(function, *arguments, progress=None):
    """In place of a process of the demo's own, whose changes would not be counted."""
    return function(*arguments, progress=progress)


def measured(comparison, words, task, threads):
    """In place of a measurement of the bench: weights of 0, which are the optimum."""
    import numpy as np

    from bigclf.benchmarks.objective import primal

    weights = np.zeros(task["n_features"])
    np.save(task["out"], weights)
    proof = {"gap": 0.0, "dual": primal(task["job"], weights, comparison.rows, task["C"])}
    return {"seconds": 1.0, "wall_seconds": 1.0, "converged": True, "trace": [[1.0, 0.0]], "certificate": proof}


def main(directory):
    import bigclf.api.evaluate
    import bigclf.api.fit  # what children would each import for themselves
    import bigclf.api.predict
    import bigclf.benchmarks.comparing
    import bigclf.cli
    import bigclf.cli.demo
    import bigclf.conversion.converter
    import bigclf.conversion.tables.from_columns
    import bigclf.reporting

    bigclf.conversion.converter.compile_kernels()
    bigclf.cli.demo.in_child, bigclf.benchmarks.comparing.Comparison.run = within, measured

    case = json.load(sys.stdin)
    prepare(case, directory)
    whole = attempt(case, directory, 0)
    print(json.dumps(whole), flush=True)
    for n in points(case, whole["changes"] if whole["code"] in (0, 4) else []):
        print(json.dumps(attempt(case, directory, n)), flush=True)


def points(case, changes):
    """The numbers, from 1, of the changes at which the line is killed."""
    found = {}
    for n, change in enumerate(changes, 1):
        if any(part in change for part in case.get("only", [""])):
            found[re.sub(r"\.tmp-[\w-]+|\d+", "", change) if case.get("last") else n] = n
    return sorted(found.values())


if __name__ == "__main__":
    main(sys.argv[1])
