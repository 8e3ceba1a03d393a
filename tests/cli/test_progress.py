"""The progress line: right figures, cheap, silent when nobody looks."""

import io
import threading
import time
import types

import click
import pytest
from rich.console import Console

from bigclf.cli.shared import terminal
from bigclf.errors import RunError
from bigclf.progress import Meter, TerminalProgress, cluster_text, fitting, status_parts


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def told(meter):
    return " · ".join(filter(None, status_parts(meter)))


def test_the_meter_counts_rates_and_time_left():
    clock = Clock()
    meter = Meter(clock)
    meter.begin({"n_rows": 1000})
    assert meter.seconds_left is None and told(meter) == "getting ready"
    clock.now += 2
    meter.advance(250, 10_000_000)
    assert meter.rates == (125.0, 5e6) and meter.fraction == 0.25 and meter.seconds_left == 6.0
    assert told(meter).startswith("125 rows/s · 5.00 MB/s · 6")
    assert told(meter).endswith("left in this epoch")
    clock.now += 2
    meter.advance(750, 0)
    meter.end_epoch({"epoch": 1, "gap": 0.0213})
    assert meter.fraction == 0.0 and meter.epochs == 1 and "gap 2.1e-02" in told(meter)


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


def test_where_the_end_is_known_the_time_left_is_that_of_the_run():
    from bigclf.progress import place_text

    clock = Clock()
    meter = Meter(clock)
    meter.begin({"n_rows": 1000, "epochs": 5})
    clock.now += 1
    meter.advance(250, 0)
    assert meter.run_seconds_left == 3 + 4 * 4 and place_text(meter) == "epoch 1 of 5"
    clock.now += 1
    meter.advance(750, 0)
    meter.end_epoch({"epoch": 1, "error": 0.5})
    clock.now += 0.5
    meter.advance(250, 0)
    assert meter.run_seconds_left == 1.5 + 3 * 2 and place_text(meter) == "epoch 2 of 5"
    assert told(meter) == "500 rows/s · error 50.00 % · 7.5 s left"
    meter.begin({"n_rows": 1000})
    assert meter.run_seconds_left is None and place_text(meter) == "epoch 1"


def test_a_run_that_goes_on_counts_on():
    from bigclf.progress import place_text

    meter = Meter(Clock())
    meter.begin({"n_rows": 1000, "epoch": 30})
    assert place_text(meter) == "epoch 30"
    meter.end_epoch({"epoch": 30})
    assert place_text(meter) == "epoch 31"
    meter.begin({"n_rows": 1000, "epoch": 3, "epochs": 5})
    assert place_text(meter) == "epoch 3 of 5" and meter.epochs_left == 2
    meter.end_epoch({"epoch": 3})
    assert place_text(meter) == "epoch 4 of 5" and meter.epochs_left == 1


def test_rounds_in_memory_say_how_long_they_take():
    clock = Clock()
    meter = Meter(clock)
    meter.begin({"n_rows": 1000})
    clock.now += 1
    meter.advance(1000, 10**6)
    meter.end_epoch({"epoch": 1, "error": 0.25, "estimated_gap": 0.0123})
    clock.now += 1
    assert told(meter) == "at work · gap about 1.2e-02"
    meter.advance(50, 0)
    clock.now += 7
    assert told(meter) == "at work for 7 s · gap about 1.2e-02"  # and no time left from 50 rows


def test_the_time_left_is_not_told_by_the_first_rows_which_wait_for_files_and_kernels():
    clock = Clock()
    meter = Meter(clock)
    meter.begin({"n_rows": 1000})
    clock.now += 3
    meter.advance(10, 0)
    assert meter.seconds_left is None  # not five minutes
    for _ in range(9):
        clock.now += 0.1
        meter.advance(10, 0)
    assert meter.seconds_left == pytest.approx(9.0) and "9 s left" in told(meter)
    meter.advance(900, 0)
    meter.end_epoch({"epoch": 1})
    clock.now += 1.4
    assert "0 rows/s" not in told(meter)


def test_what_is_said_meanwhile_stands_above_the_line(capfd):
    out = io.StringIO()
    progress = TerminalProgress(console=Console(file=out, force_terminal=True, width=60, legacy_windows=False))
    progress.start({"n_rows": 10})
    terminal.say("warning:", "something to know that is longer than the sixty columns of this line", "yellow")
    progress.stop()
    assert "something to know that is longer than the sixty columns of this line\n" in out.getvalue()
    assert capfd.readouterr().err == ""
    terminal.say("warning:", "behind it", "yellow")
    assert capfd.readouterr().err == "warning: behind it\n" and "behind" not in out.getvalue()


def test_who_waits_for_kernels_before_a_terminal_is_told_why(monkeypatch, capsys, tmp_path):
    import fcntl

    from bigclf.compiled import jit

    class Compiles:
        _cache = types.SimpleNamespace(_lock=object())
        stats = types.SimpleNamespace(cache_misses={}, cache_hits={})

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(jit, "_compiled", [])  # those that are there would take that directory for theirs
    monkeypatch.setattr(jit, "SAID_AFTER", 0.01)
    monkeypatch.setattr(jit, "LOOKS", 0.01)

    def waited():
        with terminal.warnings_as_lines(), jit.compiling():
            time.sleep(0.2)
        return capsys.readouterr().err

    assert waited() == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert waited() == ""  # they were found and loaded
    with open(tmp_path / "turn", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        release = threading.Timer(0.3, turn.close)
        release.start()
        assert "another process compiles" in waited()
        release.join()
    monkeypatch.setattr(jit, "_compiled", [Compiles()])
    assert "compiling kernels, once" in waited()
    monkeypatch.setattr(jit, "SAID_AFTER", 60.0)
    assert waited() == ""


def test_values_go_on_below_themselves_on_a_terminal():
    text = terminal.good("certified: within 2.2e-05 of the optimum") + ", relative (objective 52,290.4222)"
    lines = terminal.folded(text, 40)
    assert [click.unstyle(line) for line in lines] == [
        "certified: within 2.2e-05 of the",
        "optimum, relative (objective",
        "52,290.4222)",
    ]
    assert "\x1b" in lines[0] and terminal.folded(text, 200) == [text] == terminal.folded(text, 0)
    assert terminal.folded("x" * 50 + " y", 20) == ["x" * 50, "y"]


def test_notes_go_on_below_themselves_on_a_terminal(monkeypatch, capsys):
    terminal.note("one two three", "ok  ")
    assert capsys.readouterr().out == "ok  one two three\n"  # what reads lines gets one
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(terminal, "tables", lambda: Console(width=26))
    terminal.note("the words of a note are not broken", click.style("ok", fg="green") + "  ")
    assert click.unstyle(capsys.readouterr().out) == "ok  the words of a note\n    are not broken\n"


def test_a_block_is_told_of_as_its_problems_are_done():
    from bigclf.training.executor import Share

    class Rows:
        n_rows, n_bytes = 10, 101

    told = []
    share = Share(lambda *sizes: told.append(sizes), Rows, 3)
    for done in (0, 1, 1, 2, 3):
        share.told(done)
    assert told == [(3, 33), (3, 34), (4, 34)]


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


def test_a_log_that_asks_for_it_gets_lines(monkeypatch):
    monkeypatch.setenv("BIGCLF_PROGRESS", "0.01")
    out = io.StringIO()
    with TerminalProgress(console=Console(file=out, width=20)) as progress:
        progress.start({"n_rows": 10, "epochs": 5, "status": lambda: {"workers": 0, "groups": 2}})
        progress.epoch({"epoch": 1, "error": 0.25})
        deadline = time.monotonic() + 30
        while "25.00" not in out.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    line = "training  epoch 2 of 5  getting ready · error 25.00 % · waiting for workers · 0 of 2 groups"
    assert line in out.getvalue()
    assert not [thread for thread in threading.enumerate() if thread.name == "bigclf-lines"]


@pytest.mark.parametrize("text", ["often", "-1", "nan", "inf"])
def test_pauses_between_lines_are_seconds(monkeypatch, text):
    monkeypatch.setenv("BIGCLF_PROGRESS", text)
    with pytest.raises(RunError, match=f"BIGCLF_PROGRESS={text}: a number of seconds"):
        TerminalProgress(console=Console(file=io.StringIO())).start({})


def test_on_a_terminal_it_shows_reads_and_cleans_up_after_itself():
    out = io.StringIO()
    progress = TerminalProgress(console=Console(file=out, force_terminal=True, width=100, legacy_windows=False))
    progress.start({"n_rows": 10})
    progress.advance(10, 10)
    progress.epoch({"epoch": 1, "gap": 0.5, "seconds": 1.0})
    time.sleep(0.4)
    progress.stop()
    text = out.getvalue()
    assert "training" in text and "epoch" in text and "gap 5.0e-01" in text
    assert text.endswith("\x1b[2K") or "\x1b[2K" in text[-40:]  # the line is erased


def test_thousands_of_short_epochs_cost_nothing(monkeypatch):
    """Whoever trains only adds to counters: the line is drawn by the thread of its own, and keeps few reads."""
    out, drawn = io.StringIO(), []
    picture = TerminalProgress._picture
    monkeypatch.setattr(
        TerminalProgress, "_picture", lambda self: drawn.append(threading.current_thread()) or picture(self)
    )
    progress = TerminalProgress(console=Console(file=out, force_terminal=True, width=100))
    progress.start({"n_rows": 10})
    drawn.clear()
    for epoch in range(20_000):
        progress.advance(10, 10)
        progress.epoch({"epoch": epoch, "gap": 0.1})
    assert threading.current_thread() not in drawn and len(progress.meter.reads) <= 6
    progress.stop()
    assert threading.current_thread() in drawn and progress.meter.epochs == 19_999


# On a cluster


def cluster_meter(**status):
    clock, told = Clock(), {"workers": 2, "groups": 4, "groups_done": 1, "bytes_moved": 12_300_000, "events": []}
    told |= status
    meter = Meter(clock)
    meter.begin({"n_rows": 1000, "status": lambda: told})
    meter.look()
    return meter, clock, told


def test_a_cluster_is_told_of_in_a_line():
    meter, _, told = cluster_meter()
    assert cluster_text(meter) == "2 workers · 1 of 4 groups · 12.3 MB moved"
    meter.end_epoch({"epoch": 1, "mixes": 1})
    assert cluster_text(meter) == "2 workers · 1 of 4 groups · 1 mix · 12.3 MB moved"
    told["workers"] = 0
    assert cluster_text(meter).startswith("waiting for workers · ")
    parts, _, _ = cluster_meter()
    parts.status = {"workers": 1, "parts": 8, "parts_done": 3}
    assert cluster_text(parts) == "1 worker · 3 of 8 parts · 0 B moved"


def test_rates_and_times_are_steady_between_visits_told_of_as_a_whole():
    meter, clock, _ = cluster_meter()
    clock.now += 2
    meter.advance(250, 0)
    assert meter.rates[0] == 125.0 and meter.seconds_left == 6.0
    clock.now += 1
    assert meter.rates[0] == 125.0 and meter.seconds_left == 5.0
    clock.now += 5
    meter.advance(750, 0)
    meter.end_epoch({"epoch": 1})
    clock.now += 3
    assert meter.rates[0] == 125.0 and meter.seconds_left == 5.0  # nothing yet of this read: as the last one
    clock.now += 9
    assert meter.seconds_left == 0.0


def test_events_come_once_and_in_their_place():
    meter, _, told = cluster_meter()
    joined, left = ({"worker": "a", "what": what} for what in ("joined", "left"))
    told["events"] = [joined]
    meter.look()
    meter.end_epoch({"epoch": 1})
    told["events"] = [joined, left]
    meter.look()
    meter.look()
    assert [event for _, event in meter.events] == [joined, left]
    assert meter.events[0][0] < meter.read_numbers[0] < meter.events[1][0]
    for _ in range(30):
        told["events"] = [*told["events"][-5:], dict(left)]
        meter.look()
    assert len(meter.events) <= 8


def test_what_does_not_fit_is_left_out():
    parts = ["1.24 M rows/s", "310 MB/s", "gap 2.1e-03", "4.2 s left in this epoch"]
    whole = " · ".join(parts)
    assert fitting(parts, 24 + len(whole)) == (24, whole)
    assert fitting(parts, 24 + len(whole) - 1) == (24, whole.removesuffix(" in this epoch"))
    columns, text = fitting(parts, 60)
    assert columns == 12 and text == "1.24 M rows/s · gap 2.1e-03 · 4.2 s left"
    assert fitting(parts, 40) == (12, "1.24 M rows/s · gap 2.1e-03") and fitting(parts, 10) == (12, "1.24 M rows/s")
    assert fitting(parts, 70)[0] == 12  # the bar is as long as the terminal lets it be, not as the text does
    unknown = [*parts[:3], ""]
    for room in range(30, 120):  # what is left out is so whether there is a time to tell or not
        assert fitting(unknown, room)[1] == fitting([*parts[:3], "4.21 s left"], room)[1].removesuffix(" · 4.21 s left")
    for room in range(26, 120):
        columns, text = fitting(parts, room)
        assert columns + len(text) <= room


def test_no_line_is_broken_however_narrow_the_terminal():
    for width in (60, 80, 120):
        console = Console(file=io.StringIO(), force_terminal=True, width=width, legacy_windows=False)
        event = {"worker": "7 at tcp://127.0.0.1:40243", "what": "not used: " + "because " * 20}
        status = {"workers": 64, "groups": 1000, "groups_done": 999, "bytes_moved": 10**12, "events": [event]}
        progress = TerminalProgress(console=console)
        progress.start({"n_rows": 10**9, "status": lambda status=status: status})
        progress.advance(10**8, 10**9)
        progress.epoch({"epoch": 1, "gap": 0.5, "seconds": 1.0, "mixes": 12_345})
        picture = progress._picture()
        progress.stop()
        plain = Console(file=io.StringIO(), width=width)
        plain.print(picture)
        lines = plain.file.getvalue().splitlines()
        assert len(lines) == 4 and all(len(line.rstrip()) <= width for line in lines), lines


def test_on_a_terminal_a_message_breaks_between_words_and_a_command_stays_whole(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    text = "three words of optimistic length and others that have no room beside them"
    terminal.say("note:", text, "yellow")
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    terminal.say("note:", text, "yellow")
    lines = click.unstyle(capsys.readouterr().err).splitlines()
    assert len(lines) == 3 and max(map(len, lines)) <= 40 and " ".join(map(str.strip, lines)) == f"note: {text}"
    terminal.say("error:", f"{text}; continue with:  bigclf fit rows -o m", "red")
    assert capsys.readouterr().err.count("\n") == 1
