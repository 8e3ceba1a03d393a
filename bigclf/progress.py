"""What a person sees while a run is under way: one quiet line on stderr, nothing when nobody looks.

Where stderr is a file that somebody follows, a batch job's log, ``BIGCLF_PROGRESS=SECONDS`` asks for lines instead: one
after ten seconds, and on after pauses that double up to so many seconds.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Protocol, Self, TypeAlias, TypedDict

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

from bigclf.errors import RunError
from bigclf.units import format_bytes, format_count, format_seconds

REFRESH_PER_SECOND = 6
REFRESHED_IN_NOTEBOOKS = 2  # times a second: each is a message to a browser
REMEMBERED = 6  # finished reads shown above the bar
EVENTS = 4  # ... and what happened to workers
SILENT = 1.5  # seconds without a row counted after which the line says how long
FIRST_LINE = 10.0  # seconds before the first line in a log
BARS = 24, 12  # its columns, and those where there is little room
WIDE = 80  # columns beside the title that are no little room
SOON = "59.9 s left"  # as long as what may come to stand there
FIRST = 0.1  # of a read: from fewer rows than these, learned from at once, no time is foretold
_drawing: list[Live] = []  # the live displays of this process


Event: TypeAlias = Mapping[str, object]  # what happened to a worker: ``worker`` and ``what``, at least


class Record(TypedDict, total=False):
    """An epoch in the history.

    Large because it lists the fields of a line of ``history.jsonl``.
    """

    epoch: int
    seconds: float
    waited: float
    gap: float | None
    estimated_gap: float | None
    objective: float | None
    dual: float | None
    error: float | None
    loss: float
    mean_loss: float | None
    reads: int
    turn: int
    rows: int
    nnz: int
    bytes_read: int
    updates: int
    mistakes: int
    mixed_mistakes: float
    rounds: int
    conjugate_steps: int
    working_set_rows: int
    waiting_visits: int
    problems_done: int
    problems_dealt: int
    records_rebuilt: int
    groups: int
    workers: int
    mixes: int
    bytes_moved: int
    steps: list[float]
    penalties: list[float]
    validation: dict[str, float] | None
    events: list[Event] | None


class Status(TypedDict, total=False):
    """How a cluster is: its workers, the groups (problems, parts) of this read, what went over the wire, and what
    happened."""

    workers: int
    groups: int
    groups_done: int
    problems: int
    problems_done: int
    parts: int
    parts_done: int
    bytes_moved: int
    events: Sequence[Event]


class Plan(TypedDict, total=False):
    """What is to be read: ``TerminalProgress.start``."""

    task: str
    n_rows: int | None
    bytes: int | None
    epoch: int
    epochs: int | None
    workers: int
    status: Callable[[], Status]


class Watcher(Protocol):
    """Who is told of a read."""

    def start(self, plan: Plan, /) -> None: ...

    def advance(self, rows: int, n_bytes: int, /) -> None: ...

    def stop(self) -> None: ...


class Screen(Watcher, Protocol):
    """... and of the end of each epoch."""

    def epoch(self, record: Record, /) -> None: ...


def gap_text(gap: float | None) -> str:
    """A relative gap as people compare them: ``gap 1.3e-03``."""
    return "" if gap is None else f"gap {gap:.1e}"


def quality_text(record: Record | Mapping[str, float | None]) -> str:
    """The one figure that says how good the model is at this epoch: its gap, else an estimate of it, else its error (of
    a regression its mean loss) before learning."""
    if record.get("gap") is not None:
        return gap_text(record["gap"])
    if record.get("estimated_gap") is not None:
        return f"gap about {record['estimated_gap']:.1e}"
    if (error := record.get("error")) is not None:
        return f"error {100 * error:.2f} %"
    if record.get("mean_loss") is not None:
        return f"loss {record['mean_loss']:.4g}"
    return ""


class Meter:
    """Counts of a run, cheap to advance (thousands of one-millisecond epochs), read by whoever draws them.

    Attributes
    ----------
    rows, n_bytes : since the start.   read_rows, read_bytes : since the start of this read.
    epochs : the number of the one finished last, those before the run was taken up counted.
    total_epochs : the number of the last one that the run is to make, or 0 where it ends by its gap.
    reads : the last records.   events : what last happened to workers, as (number, event); ``read_numbers`` go with
        ``reads``, and both together tell what came first.
    status : of a cluster "workers", "groups", "groups_done" (or "problems ...", "parts ..."), "bytes_moved", else
        empty.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.begin({})

    def begin(self, plan: Plan) -> None:
        self.task = str(plan.get("task", ""))
        self.total_rows, self.total_bytes = int(plan.get("n_rows") or 0), int(plan.get("bytes") or 0)
        self.total_epochs = int(plan.get("epochs") or 0)
        self.rows = self.n_bytes = self.read_rows = self.read_bytes = 0
        self.epochs = int(plan.get("epoch") or 1) - 1
        self._first: tuple[float, float] | None = None  # when the first rows of this read were done, and their share
        self.reads: list[Record] = []
        self.read_numbers: list[int] = []
        self.events: list[tuple[int, Event]] = []
        self.status: Status = {}
        self._ask: Callable[[], Status] | None = plan.get("status")
        self._numbers = itertools.count()
        self.read_started = self._advanced = self._clock()
        self._last_read = 0.0  # seconds
        self._mark = self._mark_before = (self.read_started, 0, 0)

    def look(self) -> None:
        """Ask the engine how it is; for whoever draws, and from one thread only."""
        if self._ask is None:
            return
        self.status = self._ask()
        for event in self.status.get("events", ()):
            if not any(event is known for _, known in self.events):
                self.events = [*self.events[1 - 2 * EVENTS :], (next(self._numbers), event)]

    @property
    def far(self) -> bool:
        """Whether rows are learned from elsewhere, and told of a visit at a time."""
        return bool(self.status)

    def advance(self, rows: int, n_bytes: int) -> None:
        self._advanced = self._clock()
        self.rows += rows
        self.read_rows += rows
        self.n_bytes += n_bytes
        self.read_bytes += n_bytes
        if self._first is None:
            self._first = self._advanced, self.fraction or 0.0

    def end_epoch(self, record: Record) -> None:
        self.epochs = int(record.get("epoch", self.epochs + 1))
        self.read_rows = self.read_bytes = 0
        self._first = None
        started, self.read_started = self.read_started, self._clock()
        self._last_read = self.read_started - started
        if self.read_started - self._mark[0] >= 1:
            self._mark_before, self._mark = self._mark, (self.read_started, self.rows, self.n_bytes)
        self.reads = [*self.reads[1 - REMEMBERED :], record]
        self.read_numbers = [*self.read_numbers[1 - REMEMBERED :], next(self._numbers)]

    @property
    def rates(self) -> tuple[float, float]:
        """Rows and bytes a second in this read; over several where they are short, or this one has just begun."""
        now = self._advanced if self.far else self._clock()
        since, rows, n_bytes = self._mark if now - self._mark[0] >= 0.5 else self._mark_before
        seconds = max(now - since, 1e-9)
        return (self.rows - rows) / seconds, (self.n_bytes - n_bytes) / seconds

    @property
    def fraction(self) -> float | None:
        """How much of this read is done, 0 to 1, or None when neither its rows nor its bytes are known."""
        if self.total_rows:
            return min(self.read_rows / self.total_rows, 1.0)
        return min(self.read_bytes / self.total_bytes, 1.0) if self.total_bytes else None

    @property
    def seconds_left(self) -> float | None:
        """Of this read, at its own pace since its first rows, which wait for files and kernels (on a cluster so far,
        before the first visit at the pace of the last read); None as long as that says little."""
        now, fraction = self._clock(), self.fraction
        elapsed = (self._advanced if self.far else now) - self.read_started
        if self.far and not fraction:
            return max(0.0, self._last_read - (now - self.read_started)) if self._last_read else None
        if not fraction or elapsed < 0.1 or self._first is None:
            return None
        since, share = self._first
        if not self.far and fraction > share:
            return (1 - fraction) * (now - since) / (fraction - share) if now - since >= 0.1 else None
        if not self.far and fraction < FIRST:
            return None
        return max(0.0, elapsed / fraction - (now - self.read_started))

    @property
    def epochs_left(self) -> int | None:
        """After this one; None where nobody knows."""
        return max(0, self.total_epochs - self.epochs - 1) if self.total_epochs else None

    @property
    def run_seconds_left(self) -> float | None:
        """Of all epochs, each as long as the last one (the first at its own pace); None where nobody knows."""
        left, more = self.seconds_left, self.epochs_left
        if left is None or more is None:
            return None
        return left + more * (self._last_read or self._clock() - self.read_started + left)

    @property
    def silent_seconds(self) -> float:
        """Since rows were last counted: rounds over rows in memory, that the rate does not show."""
        return self._clock() - max(self._advanced, self.read_started)


def longest_pause() -> float:
    """Seconds between two lines in a log at most (``BIGCLF_PROGRESS``); 0: no lines.

    Raises
    ------
    RunError : no number of seconds.
    """
    text = os.environ.get("BIGCLF_PROGRESS", "").strip() or "0"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise RunError(f"BIGCLF_PROGRESS={text}: a number of seconds between two lines, such as 60, or 0 for none")
    return seconds


def watcher(progress: Watcher | bool | None) -> Watcher | None:
    """Who is told of a read: an object with ``start, advance, stop``, or nobody, for which None or False is said.

    Raises
    ------
    TypeError : anything else.
    """
    if progress is None or progress is False:
        return None
    if progress is not True and hasattr(progress, "start") and hasattr(progress, "advance"):
        return progress
    raise TypeError("progress must be an object with start, advance and stop, such as"
                    f" bigclf.progress.TerminalProgress(), or None, not {progress!r}")  # fmt: skip


def console(stderr: bool = False, width: int | None = None, file: IO[str] | None = None) -> Console:
    """A ``rich`` console to which texts are texts, whatever brackets and colons they hold."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=width, file=file)


def console_in_use() -> Console | None:
    """The ``rich`` console on which a live line is drawn now, or None. What it prints comes to stand above the line,
    which anything else would break."""
    return _drawing[-1].console if _drawing else None


class NotebookLine(Protocol):
    """An output of a notebook's cell that may be replaced (``IPython.display.DisplayHandle``)."""

    def update(self, data: dict[str, str], raw: bool) -> None:
        """Show ``data``, a text by its type, in place of what stood there."""


def notebook_line() -> NotebookLine:
    """An empty line below the cell that runs."""
    from IPython.display import display

    line: NotebookLine = display({"text/plain": ""}, raw=True, display_id=True)
    return line


class TerminalProgress:
    """A live line on a terminal: read, bar, rate, gap or progressive error, time left of the read.

    Drawn by a thread a few times a second from counters; ``advance`` and ``epoch`` only add. In a notebook the line
    stands below the cell. When stderr is no terminal silent, or a line now and then (``BIGCLF_PROGRESS``). A ``with``
    stops it at the end; what reads starts it.

    Parameters
    ----------
    title : word before the bar.
    console : a ``rich`` console; stderr by default.
    """

    def __init__(self, title: str = "training", console: Console | None = None) -> None:
        self.title, self.meter = title, Meter()
        self._console = console
        self._used: Console
        self._live: Live | None = None
        self._lines: threading.Thread | None = None
        self._over = threading.Event()

    def __enter__(self) -> Self:
        """On a terminal something is seen at once: libraries and kernels may take seconds before the first row."""
        screen = self._console or console(stderr=True)
        if screen.is_terminal and not screen.is_jupyter:
            self.start({"task": "..."})
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def start(self, plan: Plan) -> None:
        """Begin to draw; ``plan`` may say ``n_rows`` or ``bytes`` (of a read), ``epoch`` and ``epochs`` (the numbers of
        the next and of the last one), and ``task``, a word for work that is no reading in epochs."""
        from rich.live import Live

        self.stop()
        self.meter.begin(plan)
        screen = self._used = self._console or console(stderr=True)
        if screen.is_jupyter:
            self._draw_by(self._show, notebook_line())
            return
        if not screen.is_terminal:
            if pause := longest_pause():
                self._draw_by(self._write, pause)
            return
        self._live = Live(
            get_renderable=self._picture, console=screen, refresh_per_second=REFRESH_PER_SECOND, transient=True
        )
        self._live.start()
        _drawing.append(self._live)

    def advance(self, rows: int, nbytes: int) -> None:
        """``rows`` more rows and ``nbytes`` more bytes have been through the kernel."""
        self.meter.advance(rows, nbytes)

    def epoch(self, record: Record) -> None:
        """An epoch ended with this record of the history."""
        self.meter.end_epoch(record)

    def stop(self) -> None:
        """Clear the line; safe to call at any time and twice."""
        if self._live is not None:
            _drawing.remove(self._live)
            self._live.stop()
            self._live = None
        if self._lines is not None:
            self._over.set()
            self._lines.join()
            self._lines = None

    def _draw_by(self, draw: Callable[..., None], given: object) -> None:
        self._over.clear()
        self._lines = threading.Thread(target=draw, args=(given,), name="bigclf-lines", daemon=True)
        self._lines.start()

    def _show(self, line: NotebookLine) -> None:
        while not self._over.wait(1 / REFRESHED_IN_NOTEBOOKS):
            self.meter.look()
            line.update({"text/plain": f"{self.title}  {log_text(self.meter)}"}, raw=True)
        line.update({"text/plain": ""}, raw=True)

    def _write(self, longest: float) -> None:
        pause = FIRST_LINE
        while not self._over.wait(min(pause, longest)):
            self.meter.look()
            self._used.print(f"{self.title}  {log_text(self.meter)}", markup=False, soft_wrap=True)
            pause *= 2

    def _picture(self) -> Group:
        from rich.console import Group
        from rich.text import Text

        meter = self.meter
        meter.look()
        reads = list(zip(meter.read_numbers, map(read_line, meter.reads), strict=False))
        events = [(number, event_line(event)) for number, event in meter.events[-EVENTS:]]
        lines = [line for _, line in sorted([*reads[-1 if meter.epochs > 50 else 0 :], *events], key=lambda x: x[0])]
        if meter.far:
            below = Text(f"  {cluster_text(meter)}", style="dim", no_wrap=True, overflow="ellipsis")
            return Group(*lines, self._line(), below)
        return Group(*lines, self._line())

    def _line(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        meter, room = self.meter, self._used.width - 3
        title = f"{self.title}  {meter.task or place_text(meter)}"
        columns, text = fitting(status_parts(meter), room - len(title))
        grid = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=1.0, completed=meter.fraction or 0.0, width=columns, pulse=meter.fraction is None)
        grid.add_row(Text(title, style="bold", no_wrap=True), bar, Text(text, style="dim", no_wrap=True))
        return grid


def place_text(meter: Meter) -> str:
    """``epoch 3``, or where the end is known ``epoch 3 of 5``."""
    left = meter.epochs_left
    return f"epoch {meter.epochs + 1}" if left is None else f"epoch {meter.total_epochs - left} of {meter.total_epochs}"


def log_text(meter: Meter) -> str:
    """``epoch 3 of 5  1.24 M rows/s · error 2.10 % · 4.2 s left · 2 workers · 3 of 8 groups · 12.3 MB moved``"""
    parts = [*status_parts(meter), cluster_text(meter) if meter.far else ""]
    return f"{meter.task or place_text(meter)}  {_joined(parts)}"


def _joined(parts: Sequence[str]) -> str:
    return " · ".join(part for part in parts if part)


def status_parts(meter: Meter) -> list[str]:
    """Rate, bytes a second, quality and time left, empty where unknown."""
    rows, n_bytes = meter.rates
    whole = meter.run_seconds_left
    left = meter.seconds_left if whole is None else whole
    where = "" if meter.task or whole is not None else " in this epoch"
    if meter.rows and meter.silent_seconds > SILENT and not meter.far:
        now, left = f"at work for {format_seconds(meter.silent_seconds)}", None  # rounds have no pace of their own
    else:
        now = f"{format_count(rows)} rows/s" if rows >= 1 else "at work" if meter.rows else "getting ready"
    return [
        now,
        f"{format_bytes(n_bytes)}/s" if n_bytes >= 1 and now.endswith("rows/s") else "",
        quality_text(meter.reads[-1]) if meter.reads else "",
        f"{format_seconds(left)} left{where}" if left is not None and left >= 1 else "",
    ]


def fitting(parts: list[str], room: int) -> tuple[int, str]:
    """Columns for the bar and a text of the parts, both in ``room`` columns: words are left out, then bytes, then
    time. What is left out does not depend on whether there is a time to tell just now, so that nothing jumps."""
    columns = BARS[0] if room >= WIDE else BARS[-1]
    short = [*parts[:3], parts[3].removesuffix(" in this epoch")]
    for choice in (parts, short, [short[0], "", *short[2:]]):
        if columns + len(_joined([*choice[:3], choice[3] or SOON])) <= room:
            return columns, _joined(choice)
    text = _joined([short[0], short[2]])
    return columns, text if columns + len(text) <= room else short[0]


def cluster_text(meter: Meter) -> str:
    """``2 workers · 3 of 8 groups · 5 mixes · 12.3 MB moved``."""
    status, last = meter.status, meter.reads[-1] if meter.reads else {}
    n, mixes = status.get("workers", 0), last.get("mixes", 0)
    what = next((name for name in ("groups", "problems") if name in status), "parts")
    parts = (
        f"{n} worker{'s' * (n != 1)}" if n else "waiting for workers",
        f"{status.get(f'{what}_done', 0):,} of {status.get(what, 0):,} {what}",
        f"{mixes:,} mix{'es' * (mixes != 1)}" if mixes else "",
        f"{format_bytes(status.get('bytes_moved', 0))} moved",
    )
    return _joined(parts)


def event_text(event: Event) -> str:
    """``1 at tcp://127.0.0.1:40243: left``."""
    return f"{event.get('worker', '?')}: {event.get('what', '?')}"


def event_line(event: Event) -> Text:
    from rich.text import Text

    return Text(f"  {event_text(event)}", style="dim", no_wrap=True, overflow="ellipsis")


def read_line(record: Record) -> Text:
    """A finished epoch in a line: its number, what it reached, and when."""
    from rich.text import Text

    line = Text("  epoch ", style="dim")
    line.append(f"{record.get('epoch', '?'):>3}", style="dim")
    line.append(f"  {quality_text(record) or 'done':<16}", style="green")
    if record.get("seconds") is not None:
        line.append(f"  after {format_seconds(record['seconds'])}", style="dim")
    return line
