"""A directory in which command lines are given, each in a child of this process, which has imported everything."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import json
import multiprocessing
import os
import pickle
import pkgutil
import re
import signal
import sys
import tempfile
import traceback
from typing import NamedTuple

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import kills  # noqa: E402
from cases import PLACE, make  # noqa: E402
from recorder import Recorder  # noqa: E402

kills.TIMES += ("bytes_read", "when")  # the first by a process, which may be the second
PATIENCE = 300  # seconds for a line that takes less than one, when nothing has to be compiled
MINE = {"mine.txt": "mine", ".mine": "mine too", "keep/rows.csv": "1,2\n"}  # what others have in the directory


class Noted(NamedTuple):
    """By the recorder: points, the path of each, and ``moments`` and ``peeked`` as there."""

    points: list[str] = []
    paths: list[str] = []
    moments: list[tuple[str, int]] = []
    peeked: list[str] = []


class Ran(NamedTuple):
    """What came of a line: its exit code, what it printed, and what was noted of it."""

    code: int
    text: str
    points: list[str]
    paths: list[str]
    moments: list[tuple[str, int]]
    peeked: list[str]


class Ends(NamedTuple):
    """Of a pipe."""

    read: int
    write: int


class Running(NamedTuple):
    """A line that was begun, and where its process writes; it says in ``held`` that it stands still, until ``go``."""

    child: int
    log: str
    output: str
    held: int
    go: int


class Ground:
    """``work`` below ``directory`` holds results (``out``), scratch files, caches; ``place`` : what lines may name."""

    def __init__(self, directory, place):
        self.place, self.work = place, os.path.join(directory, "work")
        self.log, self.output = os.path.join(directory, "log"), os.path.join(directory, "output")
        self.out = os.path.join(self.work, "out")

    def furnish(self):
        """Make the directories, with files of others in them."""
        for name in ("out", "tmp", "cache"):
            os.makedirs(os.path.join(self.work, name))
        for name, text in (MINE | {f".m.bigclf.tmp-{os.getpid()}-0123abcd": "of one that lives"}).items():
            path = os.path.join(self.out, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)

    def others(self):
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

    def elsewhere(self):
        """Temporary files that are not beside results."""
        cached = [name for _, folders, names in os.walk(os.path.join(self.work, "cache"))
                  for name in (*folders, *names) if ".tmp-" in name]  # fmt: skip
        return {*os.listdir(os.path.join(self.work, "tmp")), *cached}

    def run(self, words, fault=None, **more):
        """A line in a child of this process, to its end."""
        return self.end(self.start(words, fault, **more))

    def learned(self, words, fault=None):
        """As ``run``; what it had loaded of compiled code this process loads too, for those that come after it."""
        ran = self.run(words, fault, kernels=True)
        load_kernels(f"{self.log}-kernels")
        return ran

    def start(self, words, fault=None, name="", native=False, kernels=False):
        """Begin a line in a child; a fault "hold" stops it at its point until ``release``. ``native`` : libraries
        write by themselves. ``kernels`` : it tells which it had."""
        words = [word.format(out=self.out, **self.place) for word in words]
        here, there = Ends(*os.pipe()), Ends(*os.pipe())
        child = os.fork()
        if child == 0:
            os.close(here.read)  # or nobody hears when this process ends
            os.close(there.write)
            code = self._child(words, fault, name, functools.partial(stand, here.write, there.read), native)
            if kernels:
                note_kernels(f"{self.log}{name}-kernels")
            os._exit(code)
        os.close(here.write)
        os.close(there.read)
        return Running(child, f"{self.log}{name}", f"{self.output}{name}", here.read, there.write)

    def is_held(self, running):
        """Wait until the line stands still at its point; False where it ended instead."""
        return bool(os.read(running.held, 1))

    def release(self, running):
        with contextlib.suppress(BrokenPipeError):  # it died meanwhile, as ``end`` tells
            os.write(running.go, b"g")

    def end(self, running, ended=None):
        """What came of a line, waited for; ``ended`` : its status, where that was waited for already."""
        status = os.waitpid(running.child, 0)[1] if ended is None else ended
        os.close(running.held)
        os.close(running.go)
        with open(running.output, errors="replace") as file:
            text = file.read()
        return Ran(os.waitstatus_to_exitcode(status), text, *self.noted(running))

    def noted(self, running):
        """Of its points so far."""
        with contextlib.suppress(OSError, ValueError), open(running.log) as file:
            return Noted(*json.load(file))
        return Noted()

    def _child(self, words, fault, name, stand, native):
        signal.alarm(PATIENCE)
        log, output = f"{self.log}{name}", f"{self.output}{name}"
        to = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(to, 1)
        os.dup2(to, 2)
        sys.stdout = sys.stderr = io.TextIOWrapper(os.fdopen(to, "wb"), write_through=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(log)
        os.environ["BIGCLF_CACHE_DIR"] = os.path.join(self.work, "cache")
        tempfile.tempdir = os.environ["TMPDIR"] = os.path.join(self.work, "tmp")
        recorder = Recorder(self.work, fault, lambda: note(recorder, log), stand)
        recorder.install(native)
        code = 1
        try:
            from bigclf.cli import main

            main(words, prog_name="bigclf")
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        note(recorder, log)
        return code


def stand(held, go):
    """Stand still until that is over, for as long as others need; then patience begins anew."""
    signal.alarm(0)
    os.write(held, b"h")
    os.read(go, 1)
    signal.alarm(PATIENCE)


def note(recorder, log):
    with open(log, "w") as file:
        json.dump([recorder.points, recorder.paths, recorder.moments, recorder.peeked], file)


def kernels():
    """(What tells a kernel from others in every process, the kernel) of all that there are."""
    from bigclf.compiled import jit
    from bigclf.compiled.kernel_cache import _made_with

    for kernel in jit._compiled:
        function = kernel.py_func
        yield (function.__module__, function.__qualname__, repr(_made_with(function))), kernel


def note_kernels(path):
    """Write down which kernels were compiled or loaded in this process, for which types."""
    found = [(name, kernel.nopython_signatures) for name, kernel in kernels() if kernel.nopython_signatures]
    with open(path, "wb") as file:
        pickle.dump(found, file)


def load_kernels(path):
    """Load those that are noted, of all but those that are made only where they are called for."""
    with open(path, "rb") as file:
        noted = dict(pickle.load(file))
    for name, kernel in [*kernels()]:
        for signature in noted.get(name, ()):
            kernel.compile(signature.args)
    gc.freeze()


def saved(ran):
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
    """What children would each do for themselves. The process in which ``validate`` reads is forked: another Python
    would take ten times as long as all else."""
    import bigclf

    rooms = [module.name for module in pkgutil.walk_packages(bigclf.__path__, "bigclf.")]
    for name in (*WARM.split(), *(name for name in rooms if name.split(".")[1] in ROOMS)):
        importlib.import_module(name)
    from bigclf import files
    from bigclf.compiled.jit import sources_digest
    from bigclf.conversion.converter import compile_kernels

    compile_kernels()
    sources_digest()
    draw_one_picture()
    spawned = multiprocessing.get_context
    multiprocessing.get_context = lambda kind=None: spawned("fork" if kind == "spawn" else kind)
    files._in_memory = lambda directory: False  # the temporary directory is ours, wherever it lies
    gc.freeze()  # children would copy what is looked through


def draw_one_picture():
    """Once: it is what is saved of every figure, since drawing takes three times as long as the rest of a line."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure, drawn = Figure(figsize=(6, 4), layout="constrained"), io.BytesIO()
    axes = FigureCanvasAgg(figure).figure.add_subplot()
    axes.errorbar([0.1, 1.0], [0.5, 0.9], [0.1, 0.1], marker="o", label="one")
    axes.set_xscale("log")
    axes.legend()
    figure.savefig(drawn, format="png", dpi=150)

    def save(_, path, **__):
        with open(path, "wb") as file:
            file.write(drawn.getvalue())

    Figure.savefig = save


def made_in_child(directory):
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


def made(*names):
    os.mkdir(os.path.join(*names))
    return os.path.join(*names)
