"""What a person sees while a run is under way: one quiet line on stderr, nothing when nobody looks."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bigclf.units import format_bytes, format_count, format_seconds

REFRESH_PER_SECOND = 6
REMEMBERED = 6  # finished reads shown above the bar


def gap_text(gap: float | None) -> str:
    """A relative gap as people compare them: ``gap 1.3e-03``."""
    return "" if gap is None else f"gap {gap:.1e}"


def quality_text(record: dict[str, Any]) -> str:
    """The one figure that says how good the model is at this epoch: its gap, else its error before learning."""
    if record.get("gap") is not None:
        return gap_text(record["gap"])
    if record.get("error") is not None:
        return f"error {100 * record['error']:.2f} %"
    return ""


class Meter:
    """Counts of a run, cheap to advance (thousands of one-millisecond epochs), read by whoever draws them.

    Attributes
    ----------
    rows, n_bytes : since the start.   read_rows, read_bytes : since the start of this read.   epochs : finished.
    reads : the last records.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.begin({})

    def begin(self, plan: dict[str, Any]) -> None:
        self.task = str(plan.get("task", ""))
        self.total_rows, self.total_bytes = int(plan.get("n_rows") or 0), int(plan.get("bytes") or 0)
        self.rows = self.n_bytes = self.read_rows = self.read_bytes = self.epochs = 0
        self.reads: list[dict[str, Any]] = []
        self.read_started = self._clock()
        self._mark = self._mark_before = (self.read_started, 0, 0)

    def advance(self, rows: int, n_bytes: int) -> None:
        self.rows += rows
        self.read_rows += rows
        self.n_bytes += n_bytes
        self.read_bytes += n_bytes

    def end_epoch(self, record: dict[str, Any]) -> None:
        self.epochs += 1
        self.read_rows = self.read_bytes = 0
        self.read_started = self._clock()
        if self.read_started - self._mark[0] >= 1:
            self._mark_before, self._mark = self._mark, (self.read_started, self.rows, self.n_bytes)
        self.reads = [*self.reads[1 - REMEMBERED :], record]

    @property
    def rates(self) -> tuple[float, float]:
        """Rows and bytes a second in this read; over several where they are short, or this one has just begun."""
        now = self._clock()
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
        """Of this read, at its own pace so far; None before a tenth of a second."""
        elapsed, fraction = self._clock() - self.read_started, self.fraction
        if not fraction or elapsed < 0.1:
            return None
        return elapsed * (1 - fraction) / fraction


class TerminalProgress:
    """A live line on a terminal: read, bar, rate, gap or progressive error, time left of the read.

    Drawn by a thread a few times a second from counters; ``advance`` and ``epoch`` only add. Silent when stderr is
    no terminal.

    Parameters
    ----------
    title : word before the bar.
    console : a ``rich`` console; stderr by default.
    """

    def __init__(self, title: str = "training", console: Any = None) -> None:
        self.title, self.meter = title, Meter()
        self._console = console
        self._live: Any = None

    def start(self, plan: dict[str, Any]) -> None:
        """Begin to draw; ``plan`` may say ``n_rows`` or ``bytes`` (of a read), and ``task``, a word for work that is
        no reading in epochs."""
        from rich.console import Console
        from rich.live import Live

        self.stop()
        self.meter.begin(plan)
        console = self._console or Console(stderr=True, highlight=False)
        if not console.is_terminal:
            return
        self._live = Live(
            get_renderable=self._picture, console=console, refresh_per_second=REFRESH_PER_SECOND, transient=True
        )
        self._live.start()

    def advance(self, rows: int, nbytes: int) -> None:
        """``rows`` more rows and ``nbytes`` more bytes have been through the kernel."""
        self.meter.advance(rows, nbytes)

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch ended with this record of the history."""
        self.meter.end_epoch(record)

    def stop(self) -> None:
        """Clear the line; safe to call at any time and twice."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _picture(self) -> Any:
        from rich.console import Group

        meter = self.meter
        lines = [read_line(record) for record in meter.reads if meter.epochs <= 50 or record is meter.reads[-1]]
        return Group(*lines, self._line())

    def _line(self) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        meter = self.meter
        grid = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=1.0, completed=meter.fraction or 0.0, width=24, pulse=meter.fraction is None)
        grid.add_row(
            Text(f"{self.title}  {meter.task or f'read {meter.epochs + 1}'}", style="bold"),
            bar,
            Text(status_text(meter), style="dim"),
        )
        return grid


def status_text(meter: Meter) -> str:
    """``1.24 M rows/s · 310 MB/s · gap 2.1e-03 · 4.2 s left in this read``, without what is unknown."""
    rows, n_bytes = meter.rates
    left = meter.seconds_left
    whole = "" if meter.task else " in this read"
    parts = (
        f"{format_count(rows)} rows/s" if meter.rows else "getting ready",
        f"{format_bytes(n_bytes)}/s" if meter.n_bytes else "",
        quality_text(meter.reads[-1]) if meter.reads else "",
        f"{format_seconds(left)} left{whole}" if left is not None and left >= 1 else "",
    )
    return " · ".join(part for part in parts if part)


def read_line(record: dict[str, Any]) -> Any:
    """A finished read in a line: its number, what it reached, and when."""
    from rich.text import Text

    line = Text("  read ", style="dim")
    line.append(f"{record.get('epoch', '?'):>3}", style="dim")
    line.append(f"  {quality_text(record) or 'done':<16}", style="green")
    if record.get("seconds") is not None:
        line.append(f"  after {format_seconds(record['seconds'])}", style="dim")
    return line
