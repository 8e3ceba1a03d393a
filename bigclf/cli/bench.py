"""``bigclf bench``: side-by-side figures of bigclf and of other programs on this machine."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from bigclf.cli.shared import terminal
from bigclf.errors import RunError
from bigclf.units import format_count, format_seconds, parse_bytes, plural

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from bigclf.benchmarks.comparing import Job, Measurement, Options, Outcome
    from bigclf.benchmarks.peers import Absent, Place
    from bigclf.benchmarks.sets import Set


OF_OTHER_ROWS = ("rows", "features", "nnz", "data", "positive", "cap")  # have no effect with --shape
MEMORY_SHARE = 0.8  # of the machine's, for fits in memory
BUSY = 0.6  # running programs a core, before anything is measured
RESULTS = ("results.json", "results.csv", "results.md")
SPARE = ("process", "threads", "peak", "tol")  # columns that are left out, in this order, where there is no room


class Given(TypedDict):
    """The options of the command."""

    against: str | None
    jobs: str | None
    size: str
    rows: int | None
    features: int | None
    nnz: float | None
    data: tuple[str, ...]
    positive: str | None
    rounds: int
    C: float
    targets: tuple[str, ...]
    threads: int
    peer_threads: int
    dtype: str | None
    cap: str | None
    pythons: tuple[str, ...]
    paths: tuple[str, ...]
    time_limit: float | None
    shapes: str | None
    solvers: str | None
    seed: int
    cache: str | None


@click.command("bench", short_help="Measure bigclf against other programs on this machine.")
@click.option("--against", metavar="PEER,...", help="Programs to compare with  [default: all]")
@click.option("--jobs", "jobs", metavar="JOB,...", help="What to train: hinge, squared_hinge, logistic, online,"
              " perceptron, out_of_core, shards  [default: all]")  # fmt: skip
@click.option("--size", type=click.Choice(["tiny", "S", "M"]), default="S", show_default=True,
              help="Generated rows: 2,000 x 500, 200,000 x 47,000 or 2,000,000 x 1,000,000.")  # fmt: skip
@click.option("--shape", "shapes", metavar="SHAPE,...", help="Rows of other shapes instead, each with the method that"
              " auto chooses, in one table: noisy_table, clicks, long_text, images, scales, or all.")  # fmt: skip
@click.option("--solvers", "solvers", metavar="METHOD,...", help="With --shape: methods of ours beside what auto"
              " chooses, such as dcd,newton,newton_dense.")  # fmt: skip
@click.option("--rows", type=click.IntRange(100), help="Number of generated rows.")
@click.option("--features", type=click.IntRange(10, 9_999_999), help="Number of generated features.")
@click.option("--nnz", type=click.FloatRange(1, 2000), help="Mean number of non-zeros per generated row.")
@click.option("--data", multiple=True, metavar="DATA", help="Your own rows instead: shards or svmlight text"
              " (repeatable).")  # fmt: skip
@click.option("--positive", metavar="CLASS", help="With more than two classes, the one to separate from the rest.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Measurements per program.")
@click.option("--C", "C", type=click.FloatRange(0, min_open=True), default=1.0, show_default=True,
              help="Cost parameter C.")  # fmt: skip
@click.option("--target", "targets", multiple=True, metavar="JOB=GAP", help="Gap to reach  [default: hinge=1e-3,"
              " squared_hinge=1e-4, logistic=1e-6]")  # fmt: skip
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="Threads of bigclf, in memory.")
@click.option("--peer-threads", type=click.IntRange(1), default=2, show_default=True,
              help="Threads of peers that can use several.")  # fmt: skip
@click.option("--dtype", type=click.Choice(["float64", "float32"]), help="Type of bigclf's weights  [default:"
              " float32, with --shape float64]")  # fmt: skip
@click.option("--cap", type=terminal.SIZE, help="Limit of memory and page cache for out_of_core and shards; without"
              " it, they are left out (needs root).")  # fmt: skip
@click.option("--peer-python", "pythons", multiple=True, metavar="PYTHON", help="Look for peers in this Python first"
              " (repeatable).")  # fmt: skip
@click.option("--peer", "paths", multiple=True, metavar="NAME=PATH", help="Where a peer is: a Python, a directory of"
              " packages, or a program called like LIBLINEAR's train (repeatable).")  # fmt: skip
@click.option("--time-limit", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
              help="Time limit per measurement  [default: 900, with --shape 60]")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of the generated rows.")
@click.option("--cache", metavar="DIR", help="Directory that keeps the rows for later runs  [default: bigclf's cache]")
@click.option("--plots", is_flag=True, help="Stop at once if the pictures cannot be drawn (they are drawn wherever"
              " matplotlib is installed).")  # fmt: skip
@click.option("-o", "--output", default="bigclf-bench", show_default=True, metavar="DIR", help="Directory for results.")
@terminal.overwrite_option
@terminal.json_option
@click.pass_context
def command(
    ctx: click.Context, output: str, overwrite: bool, as_json: bool, plots: bool, **given: Unpack[Given]
) -> None:
    """Measure bigclf against other programs on this machine, in turns, each in its own process.

    Every peer runs at its loosest tolerance whose weights come within the target of the optimum; bigclf stops by its
    own certificate. The time is that of the fit, from rows in memory to weights, with everything compiled. Ratio:
    seconds of bigclf divided by those of the peer. Exit code 1 if there is no peer.
    """
    from bigclf.benchmarks import comparing, peers, results
    from bigclf.cli.shared import bench_shapes

    shapes = bench_shapes.chosen(split(given["shapes"]), {name: given[name] for name in OF_OTHER_ROWS})  # type: ignore[literal-required]
    if plots:
        require_plots(shapes)
    jobs = chosen_jobs(given["jobs"], given["targets"], shapes)
    paths = {name: str(path) for name, path in terminal.pairs_option(given["paths"], "--peer").items()}
    names = chosen_peers(given["against"], paths)
    prepare(output, overwrite)
    found, absent = peers.find(names, paths, [*given["pythons"], sys.executable])
    taking_part = [place for place in found if any(comparing.takes_part(place, job) for job in jobs)]
    if not taking_part and not given["solvers"]:
        for peer in absent:
            terminal.say("absent:", f"{peer.name} ({peer.reason}); {peer.advice}", "yellow")
        why = "none of those that are here can do these jobs" if found else absent[0].advice
        raise RunError(f"no peer to measure against: {why}")
    options = options_of(given)
    tell(f"{plural(len(taking_part), 'peer')}, {plural(options.rounds, 'round')}")
    if absent:
        tell(f"absent: {', '.join(peer.name for peer in absent)}")  # why is said behind the table
    machine = machine_facts(taking_part)
    if machine["load"] > BUSY * machine["cores"]:
        text = f"others are at work here (load {machine['load']:.1f}, {machine['cores']} cores): times are theirs too"
        terminal.say("warning:", text, "yellow")
    if shapes:
        made = ((name, given["size"], given["seed"]) for name in shapes)
        with working():
            measured = [bench_shapes.compare(*one, jobs, taking_part, options, tell, watch) for one in made]
        tables: dict[str, object] = {"shapes": [results.as_json(*one, absent, machine) for one in measured]}
        tables["saved"] = written = bench_shapes.save(results_in(output), pictures_in(output), tables, measured, absent)
        if as_json:
            terminal.emit_json(tables)
        else:
            bench_shapes.show(measured, absent, written)
        if failed([outcome for _, _, outcomes in measured for outcome in outcomes]):
            ctx.exit(1)
        return
    data = rows(given, options.cache)
    tell(f"{data.name}: {size_text(data)}")
    with working():
        outcomes = comparing.compare(data, jobs, taking_part, options, tell, watch)
    told = results.as_json(data, options, outcomes, absent, machine)
    told["saved"] = saved = save(output, told, data, outcomes, absent)
    if as_json:
        terminal.emit_json(told)
    else:
        show(data, outcomes, absent, saved)
    if failed(outcomes):
        ctx.exit(1)


# What was asked for


def require_plots(shapes: list[str]) -> None:
    """RunError where no picture can be drawn."""
    if shapes:
        raise click.UsageError("--plots has no effect with --shape, which gives one table")
    if importlib.util.find_spec("matplotlib") is None:
        raise RunError("--plots needs matplotlib: pip install 'bigclf[plots]'")


def chosen_jobs(text: str | None, targets: tuple[str, ...], shapes: list[str]) -> list[Job]:
    from bigclf.benchmarks.comparing import AUTO, CAPPED, JOBS

    known = [name for name, job in JOBS.items() if not shapes or (job.target and name not in CAPPED)]
    asked = split(text) or list(known)
    require_known(asked, known, "--jobs")
    told, aims = terminal.pairs_option(targets, "--target"), dict[str, float]()
    require_known(list(told), [name for name, job in JOBS.items() if job.target], "--target")
    for name, value in told.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
            raise click.BadParameter(f"{name} must be a number between 0 and 1, not {value!r}", param_hint="--target")
        aims[name] = value
    jobs = [JOBS[name]._replace(target=aims.get(name, JOBS[name].target)) for name in asked]
    return [job._replace(algo=AUTO) for job in jobs] if shapes else jobs


def chosen_peers(text: str | None, paths: dict[str, str]) -> list[str]:
    from bigclf import files
    from bigclf.benchmarks.peers import PEERS

    for name, path in paths.items():
        if not files.exists(path):
            raise click.BadParameter(f"{path} does not exist", param_hint="--peer")
        if name not in PEERS and (files.is_directory(path) or files.base_name(path).startswith("python")):
            raise click.BadParameter(f"{name!r} is none of {', '.join(PEERS)}", param_hint="--peer")
    asked = split(text) or list(dict.fromkeys([*PEERS, *paths]))
    require_known(asked, [*PEERS, *paths], "--against")
    return asked


def chosen_solvers(text: str | None, shaped: bool, known: Collection[str]) -> tuple[str, ...]:
    if text is not None and not shaped:
        raise click.UsageError("--solvers has no effect without --shape")
    require_known(split(text), known, "--solvers")
    return tuple(split(text))


def split(text: str | None) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))


def require_known(names: list[str], known: Collection[str], option: str) -> None:
    for name in names:
        if name not in known:
            raise click.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint=option)


def prepare(output: str, overwrite: bool) -> None:
    """Take the directory for results; nothing that is there is replaced unless that is wanted."""
    from bigclf import files

    every = [*pictures_in(output), *results_in(output)]
    there = {path for path in every if files.exists(path)}
    if not overwrite and there - files.half_done(every).keys():
        raise RunError(f"{output}: holds results; add --overwrite to replace them, or name another with -o")
    files.make_directory(output)
    files.probe_writable(output)


def options_of(given: Given) -> Options:
    from bigclf import files
    from bigclf.benchmarks.comparing import CERTIFIED, Options
    from bigclf.files.caches import cache_directory
    from bigclf.limits import memory_limit

    cache = given["cache"] or cache_directory("bench")
    files.make_directory(cache)
    limit = given["time_limit"] or (60.0 if given["shapes"] else 900.0)
    dtype = given["dtype"] or ("float64" if given["shapes"] else "float32")
    cap = None if given["cap"] is None else parse_bytes(given["cap"])
    return Options(
        rounds=given["rounds"], C=given["C"], threads=given["threads"], peer_threads=given["peer_threads"],
        dtype=dtype, time_limit=limit, cap=cap, memory=int(MEMORY_SHARE * memory_limit()[0]),
        cache=cache, solvers=chosen_solvers(given["solvers"], bool(given["shapes"]), CERTIFIED),
    )  # fmt: skip


def rows(given: Given, cache: str) -> Set:
    """The set to measure on."""
    from bigclf.benchmarks import making, sets

    asked = {"n_train": given["rows"], "n_features": given["features"], "mean_nnz": given["nnz"]}
    numbers: dict[str, Any] = {name: number for name, number in asked.items() if number is not None}
    if given["data"]:
        if numbers:
            raise click.UsageError("--rows, --features and --nnz are for made-up rows, not for --data")
        return sets.own_set(list(given["data"]), cache, tell, given["positive"])
    if given["positive"] is not None:
        raise click.UsageError("--positive is for --data: made-up rows have two classes")
    if "n_train" in numbers:
        numbers["n_test"] = max(100, numbers["n_train"] // 10)
    shape = making.SIZES[given["size"]]._replace(**numbers, seed=given["seed"])
    return sets.made_set(shape, cache, tell, "made-up" if numbers else given["size"])


# Telling


_consoles: list[Console] = []  # while something turns on it: what lines have to go through


@contextlib.contextmanager
def working() -> Iterator[None]:
    """Something that turns below the lines while others are waited for."""
    screen = terminal.console(stderr=True)
    if not screen.is_terminal:
        yield
        return
    _consoles.append(screen)
    try:
        with screen.status("measuring"):
            yield
    finally:
        _consoles.clear()


def say(text: str) -> None:
    """A line on stderr."""
    if not _consoles:
        click.echo(text, err=True)
        return
    from rich.text import Text

    _consoles[-1].print(Text.from_ansi(text))


def tell(text: str) -> None:
    say(click.style(f"  {text}", dim=True))


def watch(found: Measurement, number: int) -> None:
    """A line for each measurement, as it comes."""
    which = f"round {number}" if number else "bound"
    told = found.failure and click.style(found.failure, fg="yellow")
    if not told:
        good = gap_text(found)
        if found.objective is None:
            assert found.error is not None
            good = f"error {100 * found.error:.2f} %"
        told = f"{format_seconds(found.seconds):>9}  {good}"
    tol = f" {found.tol:g}" if found.tol else ""
    say(f"{found.job:>13}  {which:<8} {found.who + tol:<28} {told}")


def gap_text(found: Measurement) -> str:
    gap = found.gap if found.gap is not None else found.certified
    return "" if gap is None else f"gap {gap:.1e}"


def size_text(data: Set) -> str:
    return f"{data.n_rows:,} rows, {data.n_features:,} features, {format_count(data.nnz)} non-zeros"


def machine_facts(found: list[Place]) -> dict[str, Any]:
    import psutil

    from bigclf import machine

    names = ("versions", "cpu", "cores", "memory")
    facts: dict[str, Any] = {**machine.facts()}
    return {name: facts[name] for name in names} | {
        "load": psutil.getloadavg()[0],
        "peers": {place.peer.name: {"version": place.version, "python": place.python, "packages": place.packages,
                                    "program": place.program} for place in found}
    }  # fmt: skip


def save(
    output: str, told: Mapping[str, object], data: Set, outcomes: list[Outcome], absent: list[Absent]
) -> list[str]:
    """Write tables and pictures; their paths."""
    import json

    from bigclf import files
    from bigclf.benchmarks import results

    texts = (json.dumps(terminal.plain(told), indent=2), results.as_csv(outcomes),
             results.as_markdown(data, outcomes, absent))  # fmt: skip
    paths = results_in(output)
    with files.together([*pictures_in(output), *paths]) as place:  # tables last: with them everything is there
        drawn = pictures(output, data, outcomes, place)
        for path, text in zip(paths, texts, strict=True):
            files.publish_text(place[path], text)
    return paths + drawn


def results_in(output: str) -> list[str]:
    from bigclf import files

    return [files.join(output, name) for name in RESULTS]


def pictures_in(output: str) -> list[str]:
    """All that there may be."""
    from bigclf import files
    from bigclf.benchmarks import plots

    return [files.join(output, name) for name in plots.NAMES]


def pictures(output: str, data: Set, outcomes: list[Outcome], place: dict[str, str]) -> list[str]:
    """Draw each in its ``place`` of those of ``pictures_in``; their paths, none without matplotlib."""
    from bigclf import files
    from bigclf.benchmarks import plots

    try:
        drawn = plots.draw(outcomes, {files.base_name(path): where for path, where in place.items()}, data.title)
        return [files.join(output, name) for name in drawn]
    except ModuleNotFoundError as error:
        terminal.say("warning:", f"no plots ({error}): pip install matplotlib", "yellow")
        return []


def show(data: Set, outcomes: list[Outcome], absent: list[Absent], saved: list[str]) -> None:
    """The table, what is missing from it, and where it was saved."""
    from bigclf import files
    from bigclf.benchmarks import results

    terminal.heading(f"bigclf bench: {data.name}", size_text(data))
    console = terminal.tables()
    drawn, left_out = fitting(outcomes, console)
    console.print(drawn)
    narrow = [f"no room for {', '.join(left_out)}: see {RESULTS[-1]}"] if left_out else []
    for note in narrow + results.notes(outcomes, absent):
        terminal.note(note)
    terminal.note(f"saved in {files.parent_directory(saved[0])}: {', '.join(files.base_name(path) for path in saved)}")


def fitting(outcomes: list[Outcome], console: Console) -> tuple[Table, list[str]]:
    """The table with as many columns as there is room for, and the names of the others."""
    left_out: list[str] = []
    drawn = table(outcomes)
    for name in SPARE:
        if console.measure(drawn, options=console.options.update(width=10_000)).maximum <= console.width:
            break
        left_out.append(name)
        drawn = table(outcomes, left_out)
    return drawn, left_out


def table(outcomes: list[Outcome], left_out: Sequence[str] = ()) -> Table:
    from rich import box
    from rich.table import Table

    from bigclf.benchmarks import results

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown = [k for k, name in enumerate(results.HEADINGS) if name not in left_out]
    for k in shown:
        left = results.HEADINGS[k] in ("job", "program")
        drawn.add_column(results.HEADINGS[k], justify="left" if left else "right", no_wrap=True)
    for outcome in outcomes:
        for row in map(lambda entry, o=outcome: results.line(o, entry), outcome.entries):  # type: ignore[misc]
            first = row["who"] == "bigclf"
            job, *others = results.cells(row)
            cells = [job if first else "", *others]
            drawn.add_row(*(cells[k] for k in shown), style="bold" if first else None)
        if outcome.entries:
            drawn.add_section()
    return drawn


def failed(outcomes: list[Outcome]) -> bool:
    """Whether bigclf failed at a job, or nobody was measured against it."""
    ours = [outcome.entries[0] for outcome in outcomes if outcome.entries]
    compared = any(entry.rounds for outcome in outcomes for entry in outcome.entries[1:])
    return not compared or any(entry.failure for entry in ours)
