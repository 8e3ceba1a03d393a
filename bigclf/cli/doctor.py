"""``bigclf doctor``: is this machine, and is this cluster, fit for a run? Each line says what to do if not."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from bigclf.cli.shared import terminal
from bigclf.errors import ClusterError
from bigclf.processes import LIBRARIES
from bigclf.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from bigclf.cluster.cluster_survey import Survey, Worker
    from bigclf.machine import Facts, Kernels, SharedMemory, Temporary
    from bigclf.preload import Prepared


OK, WARNING, BAD = "ok", "warning", "bad"
COLOURS = {OK: "green", WARNING: "yellow", BAD: "red"}
LONG_TTL = 60.0  # seconds; a frozen worker is dropped after one to two times worker-ttl
CLOCK_SECONDS = 5.0  # a clock that is further off makes times hard to compare
KERNEL_SECONDS = 300.0  # without anything new; all of them take a busy machine as long as they take
COMPILER_SECONDS = 60.0  # for one small function
BUSY = "the machine is busy with other things, or frozen"
REINSTALL = "reinstall numba, llvmlite and numpy in an environment of their own"
KEEP = "every process compiles anew: let BIGCLF_CACHE_DIR name a directory that can be written"
SOME = 5  # steps that tell the pace of the others
PAUSE = 15.0  # seconds between two lines in a log while they are compiled
SO_FAR = re.compile(r"so far (\d+) of (\d+) steps: ")  # a line of ``bigclf.preload``


class Check(NamedTuple):
    """One thing that was looked at: ``state`` (ok, warning, bad), what it is about, what was found, what to do."""

    state: str
    about: str
    text: str
    advice: str = ""


@click.command("doctor", short_help="Check this machine, and a cluster.")
@click.option("--scheduler", metavar="ADDRESS", help="Also check the Dask cluster at this address.")
@click.option("--run-dir", metavar="DIR", help="Check that this directory (made if missing) can be written, by each"
              " worker too.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(1), default=20.0, show_default=True, metavar="SECONDS",
              help="How long the scheduler and each worker have for an answer.")  # fmt: skip
@click.option("--compile", "compiling", is_flag=True, help="Also compile the kernels of all methods now and check that"
              " another process finds them: minutes the first time, with the time left shown.")  # fmt: skip
@terminal.json_option
@click.pass_context
def command(ctx: click.Context, scheduler: str | None, run_dir: str | None, timeout: float, compiling: bool,
            as_json: bool) -> None:  # fmt: skip
    """Check this machine: versions, memory, cores, disk, limits, clock and the compiler; with --scheduler, also the
    cluster and each of its workers. It takes seconds.

    With --compile, compile all kernels too: minutes the first time, and no later run waits for them.

    Exit code 0 if all is well, 1 if something is bad, 5 if the cluster cannot be reached.
    """
    from bigclf import machine

    mine = machine.facts()
    checks = show([*machine_checks(mine), *directory_checks(run_dir)], as_json)
    told, lost = None, None
    if scheduler is not None:
        try:
            told = examined(scheduler, run_dir, timeout)
            checks += show(cluster_checks(mine, told), as_json)
        except ClusterError as error:
            lost = error
    if lost is None:  # last, as it may take minutes where nothing is compiled yet
        checks += show(kernel_checks() if compiling else compiler_checks(mine["kernels"]), as_json)
    bad = sum(check.state == BAD for check in checks)
    if as_json:
        verdict = "no cluster" if lost is not None else "bad" if bad else "good"
        terminal.emit_json({"verdict": verdict, "checks": [check._asdict() for check in checks], "machine": mine,
                            "cluster": told})  # fmt: skip
    if lost is not None:
        raise lost
    if bad:
        ctx.exit(1)


def show(checks: list[Check], as_json: bool) -> list[Check]:
    """Print a line for each check, and one for what to do."""
    for check in [] if as_json else checks:
        state = click.style(check.state.ljust(8), fg=COLOURS[check.state], bold=check.state != OK)
        terminal.note(check.text, f"{state}{check.about.ljust(13)} ")
        if check.advice:
            terminal.note(check.advice, f"{'':21} -> ")
    return checks


# This machine


def machine_checks(mine: Facts) -> list[Check]:
    """What ``machine.facts`` says, judged."""
    versions = ", ".join(f"{name} {version}" for name, version in mine["versions"].items())
    return [
        Check(OK, "versions", f"{versions}; sources {mine['sources']}"),
        Check(OK, "processor", f"{mine['cpu']}, {_plural(mine['cores'], 'core')} for this process"),
        _memory(mine["memory"], mine["memory_by"]),
        _open_files(mine["open_files"]),
        _shared_memory(mine["shared_memory"]),
        _disk("temporary", mine["temporary"]),
        _clock(mine["time"]),
    ]


def _memory(limit: int, by: str) -> Check:
    text = f"{format_bytes(limit)} at most, says {by}"
    if limit < 2 * LIBRARIES:
        advice = f"interpreter and libraries take some {format_bytes(LIBRARIES)}: give the process more"
        return Check(BAD, "memory", text, advice)
    if by == "ulimit -v":
        return Check(WARNING, "memory", text, "that counts address space, not memory: prefer a control group")
    return Check(OK, "memory", text)


def _open_files(limit: int | None) -> Check:
    if limit is not None and limit < 1024:
        return Check(WARNING, "open files", f"{limit:,} at most", "raise it: ulimit -n 4096")
    return Check(OK, "open files", "no limit" if limit is None else f"{limit:,} at most")


def _shared_memory(found: SharedMemory | None) -> Check:
    if found is None:
        return Check(OK, "shared memory", "this system has no /dev/shm")
    text = f"{found['path']} has {format_bytes(found['free'])} free of {format_bytes(found['size'])}"
    if found["free"] < 32_000_000:
        return Check(WARNING, "shared memory", text, "parallel conversion may need more: docker run --shm-size=256m")
    return Check(OK, "shared memory", text)


def _disk(about: str, found: Temporary) -> Check:
    text = f"{found['path']} has {format_bytes(found['free'])} free"
    if found["free"] < 100_000_000:
        return Check(BAD, about, text, "free some, or name another disk: TMPDIR=DIR, or --local-dir DIR for a run")
    if found["free"] < 2_000_000_000:
        return Check(WARNING, about, text, "data that do not fit into memory are kept there: see --local-dir")
    return Check(OK, about, text)


def _clock(now: float) -> Check:
    """The year alone: no clock is right that stands before the first release."""
    text = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if time.gmtime(now).tm_year < 2025:
        return Check(BAD, "clock", text, "set it: certificates and time stamps of files depend on it")
    return Check(OK, "clock", text)


def directory_checks(run_dir: str | None) -> list[Check]:
    """Whether the run directory can be written from here, and has room."""
    from bigclf import files, machine

    if run_dir is None:
        return []
    reason = machine.is_writable(run_dir)
    if reason is not None:
        return [Check(BAD, "run directory", reason, "name one that can be written")]
    return [_disk("run directory", {"path": run_dir, "free": files.free_bytes(run_dir)})]


# Kernels, in processes of their own, as a worker would find them


def compiler_checks(place: Kernels) -> list[Check]:
    """Whether a function can be compiled here, which takes a second, and kernels kept."""
    words = [sys.executable, "-c", "import numba; print(numba.njit(lambda x: x + 1)(1))"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=COMPILER_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return [Check(BAD, "kernels", f"nothing was compiled within {format_seconds(COMPILER_SECONDS)}", BUSY)]
    if done.stdout.strip() != "2":
        last = (done.stderr.strip().splitlines() or [f"no word, code {done.returncode}"])[-1]
        return [Check(BAD, "kernels", f"the compiler does not work: {last}", REINSTALL)]
    if not place["writable"]:
        return [Check(WARNING, "kernels", f"{place['path']} cannot be written", KEEP)]
    text = "can be compiled, each at its first use (all now, in minutes: bigclf doctor --compile); kept in "
    return [Check(OK, "kernels", f"{text}{place['path']}")]


def kernel_checks() -> list[Check]:
    """Whether kernels can be compiled here, and a second process finds them."""
    first = _prepared("compiling the kernels, once a machine")
    if isinstance(first, Check):
        return [first]
    text = f"{first['compiled'] + first['found']} kernels, {first['compiled']} of them compiled just now in "
    text += f"{format_seconds(first['seconds'])}; kept in {first['kernels']['path']}"
    if first["compiled"]:
        again = _prepared("finding them again, in another process")
        if isinstance(again, Check):
            return [again]
        if again["compiled"]:
            return [Check(WARNING, "kernels", f"{text}, but not found again", KEEP)]
    return [Check(OK, "kernels", text)]


def _prepared(note: str) -> Prepared | Check:
    """What ``python -m bigclf.preload`` says, or what is wrong with it; ``note`` : what is waited for meanwhile."""
    words = [sys.executable, "-m", "bigclf.preload", "--json"]
    try:
        with _steps_shown(note) as (every, show):
            done = _heard([*words, "--every", str(every)], show)
        told: Prepared = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return Check(
            BAD,
            "kernels",
            f"nothing more was compiled within {format_seconds(KERNEL_SECONDS)}",
            f"{BUSY}; what is compiled by now is kept",
        )
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        text = f"the process that compiles them ended with code {done.returncode}: {last}"
        return Check(BAD, "kernels", text, REINSTALL)
    if told["error"] is not None:
        return Check(BAD, "kernels", f"not compiled: {told['error']}", "reinstall numba, or mend what it says")
    return told


def _heard(words: list[str], show: Callable[[str], None]) -> subprocess.CompletedProcess[str]:
    """The process at its end; its lines on stderr that tell how far it is are shown as they come.

    Raises
    ------
    subprocess.TimeoutExpired : it told of nothing new for ``KERNEL_SECONDS``, and was ended.
    """
    late, over, news = threading.Event(), threading.Event(), threading.Event()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:

        def watch() -> None:
            while news.wait(KERNEL_SECONDS):
                news.clear()
                if over.is_set():
                    return
            late.set()
            child.kill()

        threading.Thread(target=watch, daemon=True).start()
        assert child.stdout is not None and child.stderr is not None
        others, last = list[str](), ""
        try:
            for line in child.stderr:  # what it says on stdout is one short line at its end
                if SO_FAR.match(line):
                    show(line.strip())
                    if line != last:
                        news.set()
                    last = line
                else:
                    others.append(line)
            out = child.stdout.read()
        except BaseException:
            child.kill()
            raise
        finally:
            over.set()
            news.set()
    if late.is_set():
        raise subprocess.TimeoutExpired(words, KERNEL_SECONDS)
    return subprocess.CompletedProcess(words, child.returncode, out, "".join(others))


@contextlib.contextmanager
def _steps_shown(note: str) -> Iterator[tuple[float, Callable[[str], None]]]:
    """Seconds between two lines ``so far N of M steps: ...``, and who shows them: as a bar on a terminal, else as they
    are."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console, started = terminal.console(stderr=True), time.monotonic()
    if not console.is_terminal:
        click.echo(f"{note} ...", err=True)
        yield PAUSE, lambda line: click.echo(f"  {line}{_time_left(line, time.monotonic() - started)}", err=True)
        return
    columns = TextColumn("{task.description}"), BarColumn(16), MofNCompleteColumn(), TextColumn("{task.fields[left]}")
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(note, total=None, left="")

        def show(line: str) -> None:
            if (found := SO_FAR.match(line)) and int(found[2]):
                left = _time_left(line, time.monotonic() - started).removeprefix("; ")
                progress.update(task, completed=int(found[1]), total=int(found[2]), left=left)

        yield 0.5, show


def _time_left(line: str, seconds: float) -> str:
    """``; about 3 min more`` at the pace of the steps done in so many seconds; nothing before some are done."""
    found = SO_FAR.match(line)
    done, every = (int(found[1]), int(found[2])) if found else (0, 0)
    if done < SOME or done >= every:
        return ""
    left = seconds / done * (every - done)
    return f"; about {math.ceil(left / 60)} min more" if left > 60 else "; less than a minute more"


# A cluster


def examined(address: str, run_dir: str | None, timeout: float) -> Survey:
    """The survey of the cluster at ``address``; ClusterError if there is none."""
    from bigclf import tls
    from bigclf.cluster.cluster_survey import survey
    from bigclf.cluster.link import certificates_named, connect

    with quiet("distributed"), contextlib.closing(connect(address, min(timeout, 10.0))) as link:
        told = survey(link.client, run_dir, timeout)
    path = certificates_named().certificate
    left = tls.days_left(path) if path is not None and tls.place_of(address).scheme == "tls" else None
    return told | {"certificate": {"path": path, "days_left": left} if left is not None else None}


@contextlib.contextmanager
def quiet(name: str) -> Iterator[None]:
    """Silence a logger: what it has to say comes as an error."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def cluster_checks(mine: Facts, told: Survey) -> list[Check]:
    """What ``survey`` says, judged against the facts of this machine."""
    scheduler, workers = told["scheduler"], told["workers"]
    versions = ", ".join(f"{name} {version}" for name, version in scheduler["versions"].items())
    checks = [Check(OK, "scheduler", f"{scheduler['address']} answers; {versions}"), *_settings(scheduler["settings"])]
    if certificate := told.get("certificate"):
        checks.append(_certificate(**certificate))
    if not workers:
        advice = f"start some: dask worker {scheduler['address']} --nthreads 1 --preload bigclf.preload; those started "
        advice += "a moment ago join within a minute, once their kernels are compiled or go on being compiled"
        return [*checks, Check(BAD, "workers", "there are none", advice)]
    faults = [check for worker in workers for check in _worker(mine, worker)]
    sound = [worker for worker in workers if worker["problem"] is None]
    return [*checks, _summary(workers, sound), *faults, *_hosts(sound)]


def _certificate(path: str | None, days_left: int) -> Check:
    from bigclf import tls

    text = f"{path} is valid for {days_left} days more"
    if days_left < tls.SOON:
        advice = "python -m bigclf.tls DIRECTORY --renew makes new ones; then start the cluster again"
        return Check(WARNING, "certificate", text, advice)
    return Check(OK, "certificate", text)


def _settings(settings: Mapping[str, object]) -> Iterator[Check]:
    said = ", ".join(f"{name.partition('.')[2]} {value}" for name, value in settings.items())
    yield Check(OK, "settings", said)
    ttl = _seconds(settings["scheduler.worker-ttl"])
    if ttl is None or ttl > LONG_TTL:
        after = "never" if ttl is None else f"after {format_seconds(ttl)} to {format_seconds(2 * ttl)}"
        advice = "bigclf goes on without it sooner; for other programs set worker-ttl: 30s for the scheduler"
        yield Check(WARNING, "settings", f"Dask drops a frozen worker {after}", advice)
    if settings["scheduler.allowed-failures"] == 0:
        text = "a task is given up when one worker dies under it"
        yield Check(WARNING, "settings", text, "set allowed-failures: 3 for the scheduler")
    tcp = _seconds(settings["comm.timeouts.tcp"])
    if tcp is not None and tcp > 2 * LONG_TTL:
        text = f"a connection that is cut is noticed after {format_seconds(tcp)}"
        yield Check(WARNING, "settings", text, "set comm.timeouts.tcp: 30s")


def _seconds(setting: object) -> float | None:
    """A time as Dask's configuration gives it; None where there is no limit."""
    if setting is None:
        return None
    units = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400}
    text = str(setting).replace(" ", "").lower()
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(number) :]
    try:
        return float(number or 1) * units.get(unit, units.get(unit.rstrip("s"), 1))
    except ValueError:
        return None


def _summary(workers: list[Worker], sound: list[Worker]) -> Check:
    n, hosts = len(workers), len({worker["host"] for worker in workers})
    text = f"{_plural(n, 'worker')} on {_plural(hosts, 'host')}"
    direct = [worker["direct"] for worker in sound if isinstance(worker["direct"], dict)]
    if direct:
        rates = sorted(one["bytes"] / one["seconds"] for one in direct)
        text += f"; data go straight to {len(direct)} of them, at {format_bytes(rates[0])}/s"
        text += f" to {format_bytes(rates[-1])}/s" if len(rates) > 1 else ""
    if len(sound) == n:
        return Check(OK, "workers", text)
    return Check(OK if sound else BAD, "workers", f"{text}; {len(sound)} of {n} answer")


def _worker(mine: Facts, worker: Worker) -> Iterator[Check]:
    """What is wrong with one worker."""
    from bigclf.machine import differences

    def check(state: str, text: str, advice: str) -> Check:
        return Check(state, "worker", f"{name}: {text}", advice)

    name = worker["name"] if worker["name"] == worker["address"] else f"{worker['name']} at {worker['address']}"
    if worker["problem"] is not None:
        yield check(BAD, *_problem(worker["problem"]))
        return
    facts = worker["facts"]
    assert facts is not None  # where there is no problem
    for text in differences(mine, facts):
        yield check(BAD, text, "its results may differ in their bits: it will be refused; install the same there")
    if worker["threads"] > 1:
        advice = "bigclf makes one visit at a time a process: start more workers, each with --nthreads 1"
        yield check(WARNING, _plural(worker["threads"], "thread"), advice)
    if not worker["memory_limit"]:
        yield check(WARNING, "no memory limit", "start it with --memory-limit, so that it cannot take down its host")
    elif worker["memory_limit"] < 2 * LIBRARIES:
        advice = f"interpreter and libraries take some {format_bytes(LIBRARIES)}: raise --memory-limit"
        yield check(BAD, f"a memory limit of {format_bytes(worker['memory_limit'])}", advice)
    if not worker["nanny"]:
        yield check(WARNING, "no nanny", "nobody starts it anew when it dies: leave --no-nanny out, or supervise it")
    if not isinstance(worker["direct"], dict):
        advice = "they go through the scheduler, which is slower: open the worker's port to this machine"
        yield check(WARNING, f"data do not go straight to it ({worker['direct']})", advice)
    if worker["run_dir"] is not None:
        yield check(BAD, worker["run_dir"], "name a directory that every worker shares and can write")
    yield from _worker_machine(facts, worker["ahead"] or 0.0, check)


def _problem(problem: str) -> tuple[str, str]:
    if "No module named" in problem or "AttributeError" in problem:
        return f"bigclf is not there, or another version ({problem})", "install the same bigclf there"
    return problem, "it is frozen, very busy or cut off: end it, and start another"


def _worker_machine(found: Facts, ahead: float, check: Callable[[str, str, str], Check]) -> Iterator[Check]:
    """What is wrong with the machine it runs on."""
    if abs(ahead) > CLOCK_SECONDS:
        way = "ahead of" if ahead > 0 else "behind"
        text = f"its clock is {format_seconds(abs(ahead))} {way} this one"
        yield check(WARNING, text, "set it by NTP; runs are safe, times in logs are not to be compared")
    if not found["kernels"]["writable"]:
        advice = "it compiles in every process: let BIGCLF_CACHE_DIR name a directory that can be written"
        yield check(WARNING, f"{found['kernels']['path']} cannot be written", advice)
    for one in (_disk("worker", found["temporary"]), _open_files(found["open_files"])):
        if one.state != OK:
            yield check(one.state, one.text, one.advice)


def _hosts(sound: list[Worker]) -> Iterator[Check]:
    """Memory limits that together are more than their host has."""
    limits: Counter[str] = Counter()
    has: dict[str, int] = {}
    for worker in sound:
        if (found := worker["facts"]) is not None:
            limits[found["host"]] += worker["memory_limit"]
            has[found["host"]] = found["memory"]
    for host, total in sorted(limits.items()):
        if total > has[host]:
            text = f"{host}: its workers may take {format_bytes(total)} together and it has {format_bytes(has[host])}"
            yield Check(WARNING, "memory", text, "start fewer workers there, or with a smaller --memory-limit")


def _plural(n: int, word: str) -> str:
    return f"{n:,} {word}{'' if n == 1 else 's'}"
