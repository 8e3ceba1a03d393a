"""The progress line: right figures, cheap, silent when nobody looks."""

import io
import time

from rich.console import Console

from bigclf.progress import Meter, TerminalProgress, status_text


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_the_meter_counts_rates_and_time_left():
    clock = Clock()
    meter = Meter(clock)
    meter.begin({"n_rows": 1000})
    assert meter.seconds_left is None and status_text(meter) == "getting ready"
    clock.now += 2
    meter.advance(250, 10_000_000)
    assert meter.rates == (125.0, 5e6) and meter.fraction == 0.25 and meter.seconds_left == 6.0
    assert status_text(meter).startswith("125 rows/s · 5.00 MB/s · 6")
    assert status_text(meter).endswith("left in this read")
    clock.now += 2
    meter.advance(750, 0)
    meter.end_epoch({"epoch": 1, "gap": 0.0213})
    assert meter.fraction == 0.0 and meter.epochs == 1 and "gap 2.1e-02" in status_text(meter)


def test_rates_are_those_of_this_read():
    clock = Clock()
    meter = Meter(clock)
    meter.begin({"n_rows": 1000})
    clock.now += 10
    meter.advance(1000, 0)
    meter.end_epoch({"epoch": 1})
    assert meter.rates[0] == 100.0  # this read has just begun: the one before counts too
    clock.now += 1
    meter.advance(500, 0)
    assert meter.rates[0] == 500.0


def test_bytes_do_when_rows_are_unknown():
    meter = Meter(Clock())
    meter.begin({"bytes": 200, "task": "parse"})
    meter.advance(0, 50)
    assert meter.fraction == 0.25 and meter.task == "parse"


def test_nothing_is_written_when_there_is_no_terminal():
    out = io.StringIO()
    progress = TerminalProgress(console=Console(file=out))
    progress.start({"n_rows": 10})
    progress.advance(10, 10)
    progress.epoch({"epoch": 1})
    progress.stop()
    progress.stop()
    assert out.getvalue() == ""


def test_on_a_terminal_it_shows_reads_and_cleans_up_after_itself():
    out = io.StringIO()
    progress = TerminalProgress(console=Console(file=out, force_terminal=True, width=100, legacy_windows=False))
    progress.start({"n_rows": 10})
    progress.advance(10, 10)
    progress.epoch({"epoch": 1, "gap": 0.5, "seconds": 1.0})
    time.sleep(0.4)
    progress.stop()
    text = out.getvalue()
    assert "training" in text and "read" in text and "gap 5.0e-01" in text
    assert text.endswith("\x1b[2K") or "\x1b[2K" in text[-40:]  # the line is erased


def test_thousands_of_short_epochs_cost_nothing():
    out = io.StringIO()
    progress = TerminalProgress(console=Console(file=out, force_terminal=True, width=100))
    progress.start({"n_rows": 10})
    started = time.perf_counter()
    for epoch in range(20_000):
        progress.advance(10, 10)
        progress.epoch({"epoch": epoch, "gap": 0.1})
    seconds = time.perf_counter() - started
    progress.stop()
    assert seconds < 2 and len(out.getvalue()) < 200_000 and len(progress.meter.reads) <= 6
