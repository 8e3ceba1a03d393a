"""``bigclf demo``: the whole road in one command, on data several times larger than the memory it may use."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bigclf.cli.convert import bytes_in_memory
from bigclf.cli.shared import terminal
from bigclf.errors import MemoryBudgetError, RunError
from bigclf.progress import Watcher
from bigclf.units import format_bytes, format_count, format_seconds, parse_bytes, plural

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from multiprocessing.connection import Connection

    from rich.table import Table

    from bigclf.api.outcome import Result
    from bigclf.data.dataset import Dataset
    from bigclf.model.model import Model

T = TypeVar("T")

TIMES_THE_BUDGET = 3.0  # how much larger than its budget the training data is, decoded
BYTES_PER_ENTRY, ENTRIES_PER_ROW, TEXT_PER_ENTRY = 8, 79, 12.2
N_FEATURES, SEED, TEST_SHARE = 100_000, 0, 0.05
TOL, C, ONLINE_C = 1e-3, 1.0, 0.1
MARK, LEASE = "demo.json", ".lease"
TICK = 29  # columns before the text of a step
COMPILED_BEFORE = 4.0  # seconds; compiling takes longer, finding the machine code does not


@click.command("demo", short_help="See the whole workflow, on data larger than memory.")
@click.option("--dir", "directory", default="bigclf-demo", show_default=True, help="Directory for all files.")
@click.option("--rows", type=click.IntRange(1000), help="Rows to train on  [default: enough for data of"
              f" {TIMES_THE_BUDGET:g} times the memory]")  # fmt: skip
@click.option("--memory", type=terminal.SIZE, default="256MB", show_default=True, help="Memory budget of every step.")
@click.option("--keep-text", is_flag=True, help="Keep the raw text after the conversion.")
@terminal.json_option
def command(directory: str, rows: int | None, memory: str, keep_text: bool, as_json: bool) -> None:
    """Generate data larger than memory, convert it, train to a certificate, evaluate and predict.

    Takes under two minutes on two cores, including compilation, which happens once per machine.
    """
    asked = f"--memory {memory}" + (f" --rows {rows}" if rows else "") + (" --keep-text" if keep_text else "")
    rows = rows or int(TIMES_THE_BUDGET * parse_bytes(memory) / (BYTES_PER_ENTRY * ENTRIES_PER_ROW))
    require_memory(memory)
    with terminal.resumable(f"bigclf demo --dir {directory} {asked}"), taken(directory):
        demo = Demo(directory, rows, memory, quiet=as_json)
        demo.run(keep_text)
    if as_json:
        terminal.emit_json(demo.told)
    else:
        show(demo)


def require_memory(memory: str) -> None:
    """Refuse a budget that converting does not fit into, before anything is made.

    Raises
    ------
    MemoryBudgetError : with the least budget that fits.
    """
    from bigclf.conversion.convert import LEAST_MEMORY

    if parse_bytes(memory) < LEAST_MEMORY:
        least = format_bytes(LEAST_MEMORY)
        raise MemoryBudgetError(f"memory={memory} is too little for the demo; memory={least} would do")


@contextlib.contextmanager
def taken(directory: str) -> Iterator[None]:
    """Hold the directory while inside.

    Raises
    ------
    RunError : it is not of a demo, or another demo is under way there.
    """
    from bigclf import files
    from bigclf.training.records.lease import holding

    content = content_of(directory)
    if content and MARK not in content:
        raise RunError(f"{directory}: not empty, and not of an earlier demo; name another with --dir")
    files.make_directory(directory)
    with holding(directory, LEASE):
        files.clear_left(directory)
        yield


def content_of(directory: str) -> set[str]:
    """Names in it, but for the lease and what a killed demo was writing."""
    from bigclf import files

    return {name for name in files.list_directory(directory) if name != LEASE and not files.is_left(name)}


class Demo:
    """The steps and what they found.

    Attributes
    ----------
    told : plain figures of every step, as ``--json`` prints them.
    """

    def __init__(self, directory: str, rows: int, memory: str, quiet: bool) -> None:
        self.directory, self.rows, self.memory, self.quiet = directory, rows, memory, quiet
        self.told: dict[str, Any] = {"directory": directory, "memory": parse_bytes(memory)}
        self.started = time.perf_counter()
        self._number = 0
        self._begin()

    def path(self, name: str) -> str:
        from bigclf import files

        return files.join(self.directory, name)

    def _begin(self) -> None:
        """Take the directory: a new one, an empty one, or that of an earlier demo."""
        from bigclf import files

        content = content_of(self.directory)
        mark = {"rows": self.rows, "features": N_FEATURES, "seed": SEED, "version": 1}
        if content and json.loads(files.read_text(self.path(MARK))) != mark:
            for name in ("train", "test"):
                files.remove_at_once(self.path(name))
        files.publish_text(self.path(MARK), json.dumps(mark))
        need = int(self.rows * ENTRIES_PER_ROW * (TEXT_PER_ENTRY + 2 * BYTES_PER_ENTRY))
        free = files.free_bytes(self.directory)
        if free < need and not files.exists(self.path("train")):
            raise RunError(
                f"{self.directory}: the demo needs {format_bytes(need)} of disk and {format_bytes(free)} are free; "
                "give a smaller --memory or --rows, or another --dir"
            )

    # The steps

    def run(self, keep_text: bool) -> None:
        if not self.quiet:
            budget = format_bytes(self.told["memory"])
            terminal.heading("bigclf demo", f"memory budget {budget}, {os.cpu_count()} cores, in {self.directory}/")
            click.echo()
        self._compile()
        train = self._data("train", self.rows, 1, keep_text)
        test = self._data("test", max(int(TEST_SHARE * self.rows), 100), 2, keep_text)
        dcd = self._fit("dcd", train, C=C, loss="hinge", bias="none", tol=TOL)
        online = self._fit("pa1", train, C=ONLINE_C, bias="none", epochs=1)
        for name, model in (("dcd", dcd), ("pa1", online)):
            self._evaluate(name, model, test)
        self._predict(dcd, test)
        self.told["seconds"] = time.perf_counter() - self.started
        self._write_job()

    def _data(self, name: str, rows: int, part: int, keep_text: bool) -> Dataset:
        """Shards of made-up rows: text first, converted as anyone's text would be."""
        from bigclf import files
        from bigclf.cli.convert import convert_showing
        from bigclf.data.dataset import Dataset

        shards, aside = self.path(name), self.path(f".{name}.svm")  # hidden: of who was killed it goes the next time
        text = self.path(f"{name}.svm") if keep_text else aside
        if files.exists(shards):
            dataset = Dataset(shards)
            self._say(f"Found {name}", f"{_size_text(dataset)}, from an earlier demo", 0.0)
        else:
            made = self._make_text(name, text, rows, part)
            started = time.perf_counter()
            dataset = convert_showing([text], shards, memory=self.memory, n_features=N_FEATURES)
            seconds = time.perf_counter() - started
            on_disk = sum(mark.size for mark in dataset.fingerprints)
            self.told[f"{name}_convert"] = {"seconds": seconds, "text_bytes": made, "shard_bytes": on_disk}
            self._say(f"Convert {name}", f"{format_bytes(made)} of text → {format_bytes(on_disk)} of shuffled, "
                      f"checksummed Parquet, {plural(dataset.n_chunks, 'chunk')}", seconds)  # fmt: skip
        files.remove(aside)
        self.told[name] = {"rows": dataset.n_rows, "features": dataset.n_features, "nnz": dataset.nnz,
                           "bytes_in_memory": bytes_in_memory(dataset)}  # fmt: skip
        return dataset

    def _make_text(self, name: str, text: str, rows: int, part: int) -> int:
        from bigclf import files
        from bigclf.cli.shared.demo_data import write_text
        from bigclf.progress import TerminalProgress

        started = time.perf_counter()
        with TerminalProgress("making rows") as progress:
            progress.start({"n_rows": rows, "task": name})
            nnz = in_child(write_text, text, rows, N_FEATURES, SEED, part, progress=progress)
        size = files.file_size(text)
        what = f"{format_count(rows)} sparse rows of {format_count(N_FEATURES)} features, {format_count(nnz)} non-zeros"
        self._say(f"Make {name}", f"{what}: {format_bytes(size)} of text", time.perf_counter() - started)
        return size

    def _compile(self) -> None:
        """The whole road on a toy, so that compiling is told apart from the work to come."""
        started = time.perf_counter()
        with self._working("compiling the kernels"):
            in_child(warm_up, self.path(".toy"))
        seconds = time.perf_counter() - started
        self.told["compile_seconds"] = seconds
        self._say("Compile", "kernels found ready, from an earlier run" if seconds < COMPILED_BEFORE
                  else "kernels made for this processor, once: later runs find them ready", seconds)  # fmt: skip

    def _fit(self, algo: str, dataset: Dataset, **options: Any) -> Model:
        from bigclf.api.fit import fit
        from bigclf.training.records.run_directory import clear

        started, run_dir = time.perf_counter(), self.path(f"{algo}.run")
        clear(run_dir)
        options["bias"] = None if options.get("bias") == "none" else options.get("bias")
        progress = False if self.quiet else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if algo == "pa1" else "default")  # its one epoch is all that it is asked for
            model = fit(dataset, algo=algo, memory=self.memory, run_dir=run_dir, progress=progress, **options)
        model.save(self.path(f"{algo}.bigclf"))
        result = model.result_
        names = ("seconds", "reads", "epochs", "converged", "certificate", "progressive", "memory")
        self.told[algo] = {
            "model": self.path(f"{algo}.bigclf"),
            **{name: getattr(result, name) for name in names},
            "gaps": [record["gap"] for record in result.history if record.get("gap") is not None],
        }
        self._say(f"Train {algo}", _outcome(result), time.perf_counter() - started)
        return model

    def _evaluate(self, name: str, model: Model, test: Dataset) -> None:
        from bigclf.metrics.figures import evaluate

        figures: Any = evaluate(model, test, memory=self.memory)
        self.told[name]["test"] = {"accuracy": figures.accuracy, "auc": figures.auc, "rows": figures.n}
        self._say(f"Test {name}", f"AUC {figures.auc:.4f}, accuracy {100 * figures.accuracy:.2f} % of "
                  f"{format_count(figures.n)} rows never seen", figures.seconds)  # fmt: skip

    def _predict(self, model: Model, test: Dataset) -> None:
        from bigclf.api.predict import predict

        result = predict(model, test, self.path("predictions"), scores=True, memory=self.memory, overwrite=True)
        self.told["predictions"] = {"out": result["out"], "rows": result["rows"], "seconds": result["seconds"]}
        self._say("Predict", f"{format_count(result['rows'])} rows to {result['out']}/", result["seconds"])

    def _write_job(self) -> None:
        """The same training as a job file, to change and run again."""
        import yaml

        from bigclf import files

        job = {
            "data": {"train": self.path("train"), "test": self.path("test")},
            "method": {"algo": "dcd", "loss": "hinge", "C": C, "bias": "none"},
            "limits": {"memory": self.memory, "tol": TOL},
            "run": {"dir": self.path("job.run"), "seed": 0, "groups": 1},
            "outputs": {"model": self.path("job.bigclf"), "evaluation": self.path("job.json")},
        }
        files.publish_text(self.path("job.yaml"), yaml.safe_dump(job, sort_keys=False))

    # Telling

    def _say(self, step: str, text: str, seconds: float) -> None:
        if self.quiet:
            return
        self._number += 1
        took = format_seconds(seconds) if seconds else ""
        first, *more = terminal.folded(text, terminal.tables().width - TICK if sys.stdout.isatty() else 0)
        click.echo(f" {click.style('✓', fg='green')} {click.style(step.ljust(14), bold=True)}"
                   f"{took:>9}   {first}")  # fmt: skip
        for line in more:
            click.echo(" " * TICK + line)

    def _working(self, text: str) -> AbstractContextManager[object]:
        screen = terminal.console(stderr=True)
        return screen.status(text, spinner="dots") if screen.is_terminal else contextlib.nullcontext()


class _Told:
    """A progress that speaks through a pipe."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def advance(self, rows: int, nbytes: int) -> None:
        self._pipe.send(("advance", (rows, nbytes)))


def _child(pipe: Connection, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    try:
        pipe.send(("result", function(*arguments, progress=_Told(pipe))))
    except BaseException as error:
        pipe.send(("error", error))


def in_child(function: Callable[..., T], *arguments: object, progress: Watcher | None = None) -> T:
    """Call ``function(*arguments, progress=...)`` in a process of its own: what it leaves in memory (a compiler, work
    arrays) would count as the trainer's else."""
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(theirs, function, arguments), daemon=True)
    child.start()
    theirs.close()
    try:
        while True:
            kind, content = ours.recv()
            if kind == "result":
                result: T = content
                return result
            if kind == "error":
                raise content
            if progress is not None:
                progress.advance(*content)
    except EOFError:
        raise RunError(f"a process of the demo ended with code {child.exitcode}; is there enough memory?") from None
    finally:
        child.terminate()
        child.join()


def warm_up(directory: str, progress: Watcher | None = None) -> None:
    """Make, train, evaluate on a hundred rows."""
    import numpy as np

    from bigclf import files
    from bigclf.api.fit import fit
    from bigclf.conversion.convert import write_shards
    from bigclf.metrics.figures import evaluate

    m = 100
    rows = (np.arange(m + 1), np.arange(m, dtype=np.int32) % 7, np.full(m, 0.5, np.float32), np.arange(m) % 7 % 2)
    try:
        toy = write_shards([rows], directory, classes=np.array([-1, 1]), shuffle_rows=True, overwrite=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for algo in ("dcd", "pa1"):
                model = fit(toy, algo=algo, epochs=1, bias=None, progress=False)
        evaluate(model, toy)
    finally:
        files.remove_tree(directory)


def _size_text(dataset: Dataset) -> str:
    return f"{format_count(dataset.n_rows)} rows, {format_count(dataset.nnz)} non-zeros"


def _outcome(result: Result) -> str:
    reads = f"{result.reads} read{'s' * (result.reads != 1)} of the data"
    if result.certificate:
        return f"{reads}; certified within {100 * result.certificate['gap']:.2f} % of the optimum"
    if result.progressive:
        return f"{reads}; progressive validation error {100 * result.progressive['error']:.2f} %"
    return reads


# The screen at the end


def show(demo: Demo) -> None:
    """What happened, in one panel: sizes against the budget, the gap read by read, test figures, where things lie."""
    from rich import box
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    told = demo.told
    parts: list[Any] = [_sizes(told), Text(), _gaps(told), Text(), _scores(told), Text(), _places(told, demo)]
    panel = Panel(
        Group(*parts),
        title=Text(f"done in {format_seconds(told['seconds'])}", style="bold"),
        title_align="left",
        box=box.ROUNDED,
        border_style="green",
        padding=(1, 2),
    )
    console = terminal.tables()
    click.echo()
    console.print(panel, width=min(console.width, 100))


def _grid() -> Table:
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", width=12, no_wrap=True)
    grid.add_column(justify="right", width=9, no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def _sizes(told: dict[str, Any]) -> Table:
    from rich.text import Text

    data, budget = told["train"]["bytes_in_memory"], told["memory"]
    memory = told["dcd"]["memory"] or {}
    lines: list[tuple[str, int, str, str]] = [
        ("data", data, "cyan", f"decoded: {data / budget:.1f} times the budget"),
        ("budget", budget, "white", ""),
    ]
    text = told.get("train_convert", {}).get("text_bytes")
    if text:
        lines.insert(0, ("text", text, "cyan", f"{text / budget:.1f} times the budget"))
    if memory.get("peak"):
        base = memory.get("base", 0)
        beside = f"in training, plus {format_bytes(base)} for interpreter and libraries"
        lines.append(("peak", max(memory["peak"] - base, 0), "green", beside))
    grid = _grid()
    for name, size, colour, note in lines:
        line = Text(_bar(size / max(size for _, size, _, _ in lines)), style=colour)
        line.append(f"  {note}" if note else "", style="dim")
        grid.add_row(name, format_bytes(size), line)
    return grid


def _gaps(told: dict[str, Any], most: int = 8) -> Table:
    """A bar a read, as long as the gap has orders of magnitude above the tolerance."""
    import math

    from rich.text import Text

    gaps = told["dcd"]["gaps"]
    grid = _grid()
    shown = list(enumerate(gaps, 1))
    if len(shown) > most:
        shown = shown[: most // 2] + shown[-most // 2 :]
    top, bottom = math.log10(max([*gaps, 1.0])), math.log10(TOL) - 1
    for k, gap in shown:
        share = (math.log10(max(gap, 10**bottom)) - bottom) / max(top - bottom, 1e-9)
        within = k == len(gaps) and gap <= TOL
        line = Text(_bar(max(share, 0.02)), style="green" if within else "yellow")
        line.append(f"  certified: within {100 * gap:.2g} % of the optimum" if within else "", style="bold green")
        grid.add_row("gap by read" if k == 1 else "", f"{gap:.1e}", line)
    return grid


def _scores(told: dict[str, Any]) -> Table:
    from rich.text import Text

    grid = _grid()
    for name, what in (("dcd", "certified"), ("pa1", "online, one read")):
        figures = told[name]["test"]
        line = Text(f"accuracy {100 * figures['accuracy']:.2f} %")
        line.append(f"   {what}, trained in {format_seconds(told[name]['seconds'])}", style="dim")
        grid.add_row(f"{name} AUC", Text(f"{figures['auc']:.4f}", style="bold"), line)
    return grid


def _places(told: dict[str, Any], demo: Demo) -> Table:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", width=12, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("model", told["dcd"]["model"])
    grid.add_row("predictions", told["predictions"]["out"] + "/")
    grid.add_row("try next", Text(f"bigclf inspect {told['dcd']['model']}", style="bold"))
    grid.add_row("", Text(f"bigclf run {demo.path('job.yaml')} --set limits.tol=1e-4", style="bold"))
    return grid


def _bar(share: float, width: int = 32) -> str:
    """A bar in eighths of a cell."""
    eighths = max(round(share * width * 8), 1)
    full, rest = divmod(eighths, 8)
    return "█" * full + ("▏▎▍▌▋▊▉"[rest - 1] if rest else "")
