"""What the terminal, logs and tracebacks are told: no passwords of URLs, and no escape sequences of names."""

import csv
import io
import json
import logging
import random
import re
import socket
import sys

import pytest
from click.testing import CliRunner
from rich.table import Table

from bigclf import texts
from bigclf.cli import COMMANDS, main
from bigclf.cli.shared import terminal
from bigclf.errors import BigclfError
from bigclf.progress import console
from bigclf.texts import ON_STDERR, ON_STDOUT, Guarded, guard_logs, in_json, mask_chain, masked, remember, safe


def test_a_password_is_masked_where_a_library_repeats_it_without_its_url():
    text = masked("no answer at 'tcp://me:hunter2secret@host:1': in <me:hunter2secret@host:1>, hunter2secret")
    assert "hunter2secret" not in text and text.startswith("no answer at 'tcp://***@host:1'")


def test_the_whole_chain_of_an_error_is_masked():
    try:
        try:
            raise OSError("cannot reach ftp://me:chained-secret@host/x, as chained-secret is wrong")
        except OSError as inner:
            raise BigclfError("no data") from inner
    except BigclfError as error:
        mask_chain(error)
        assert "chained-secret" not in str(error.__cause__) and "***@host" in str(error.__cause__)


def test_escape_sequences_of_names_do_not_reach_the_terminal(capsys):
    terminal.say("error:", "column \x1b[2J\x1b]0;owned\x07 is missing", "red")
    shown = capsys.readouterr().err
    assert "\\x1b[2J" in shown and "\x07" not in shown and "\x1b[2J" not in shown


@pytest.mark.parametrize("scheme", ["tcp://", "TCP://", ""])
def test_a_port_that_refuses_is_said_before_dask_is_asked(scheme, monkeypatch):
    distributed = pytest.importorskip("distributed")
    from bigclf.cluster import link
    from bigclf.errors import ClusterError

    with socket.socket() as held:  # bound, and nobody listens
        held.bind(("127.0.0.1", 0))
        monkeypatch.setattr(distributed, "Client", type("Never", (distributed.Client,), {"__init__": None}))
        monkeypatch.setattr(link, "REFUSAL_SECONDS", 0.3)
        with pytest.raises(ClusterError, match="refuses connections"):
            link.connect(f"{scheme}127.0.0.1:{held.getsockname()[1]}")


def test_a_scheduler_that_is_starting_is_waited_for(monkeypatch):
    pytest.importorskip("distributed")
    from bigclf.cluster import link

    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    monkeypatch.setattr(link.time, "sleep", lambda seconds: held.listen())  # it begins while it is waited for
    with held:
        assert not link.refuses(f"tcp://127.0.0.1:{held.getsockname()[1]}")


def test_another_server_in_place_of_the_scheduler_is_no_lack_of_memory(monkeypatch):
    pytest.importorskip("distributed")
    from bigclf.cluster import link
    from bigclf.errors import ClusterError

    def answer(*_, **__):  # what Dask does with "HTTP/1.1" in the place of a length
        raise MemoryError("Unable to allocate 3.07 EiB")

    monkeypatch.setattr(link, "shake_hands", answer)
    monkeypatch.setattr(link, "refuses", lambda _: False)
    with pytest.raises(ClusterError, match="no Dask scheduler.*the dashboard"):
        link._reach("tcp://127.0.0.1:8787", 1)


@pytest.mark.parametrize(("address", "warned"), [("tcp://10.1.2.3:8786", 1), ("tls://10.1.2.3:8786", 0),
                                                  ("tcp://127.0.0.1:8786", 0), ("tcp://localhost:1", 0),
                                                  ("10.0.0.1:8786", 1), ("ws://10.0.0.1:8786", 1), ("[::1]:1", 0),
                                                  ("TCP://10.0.0.1:1", 1), ("tcp://127.0.0.1.evil.com:1", 1),
                                                  ("localhost:1", 0), ("tcp://127.8.0.1:1", 0)])  # fmt: skip
def test_a_plain_scheduler_on_another_host_is_warned_of(caplog, address, warned):
    pytest.importorskip("distributed")
    from bigclf.cluster.link import warn_of_plain

    with caplog.at_level(logging.WARNING, "bigclf"):
        warn_of_plain(address)
    assert caplog.text.count("not encrypted") == warned and caplog.text.count("bigclf.tls") == warned


def test_a_client_of_a_plain_scheduler_elsewhere_is_warned_of(caplog):
    distributed = pytest.importorskip("distributed")
    from bigclf.cluster import link

    class Elsewhere(distributed.Client):
        asynchronous = False
        scheduler = type("Scheduler", (), {"address": "tcp://10.0.0.1:8786"})
        security = None
        __init__ = __del__ = close = lambda self: None

    with caplog.at_level(logging.WARNING, "bigclf"):
        link.connect(Elsewhere())
    assert caplog.text.count("not encrypted") == 1


def test_a_full_disk_under_predictions_is_told_with_the_path(tmp_path, monkeypatch):
    import numpy as np

    from bigclf.data import predictions
    from bigclf.errors import RunError

    class Full:
        def write_table(self, *_, **__):
            raise OSError(28, "No space left on device")

        def close(self):
            pass

    monkeypatch.setattr(predictions.shards, "parquet_writer", lambda *_: Full())
    path = str(tmp_path / "out.parquet")
    with (
        pytest.raises(RunError, match="out.parquet: cannot be written.*No space left"),
        predictions.PredictionWriter(path, {}) as writer,
    ):
        writer.write({"row": np.arange(2)})


# Every command, on data of somebody who means ill

OSC, CSI, BIDI = "\x1b]0;x\x07", "\x9b31m", "\u202e"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
LABEL, NUMBER, CATEGORY = f"y{OSC}[red]", f"n{CSI}{BIDI}[/]", f"c{BIDI}{OSC}:boom:[x"
YES, NO = f"yes{OSC}[bold]", f"no{CSI}{BIDI}[/]"
RAW, SHARDS, MODEL, RUN = f"raw{CSI}[x.csv", f"shards{OSC}[red]", f"model{CSI}{BIDI}[red]", f"run{OSC}[red]"
ABSENT, JOB = f"none{OSC}{CSI}[red]", f"job{CSI}[red].yaml"
ATTACKS = [
    ("inspect", RAW, "--suggest"), ("convert", RAW, SHARDS, "--label", LABEL, "--workers", 1),
    ("convert", RAW, SHARDS, "--label", LABEL, "--overwrite", "--json", "--workers", 1), ("inspect", SHARDS),
    ("inspect", SHARDS, "--json"), ("inspect", SHARDS, "--shards"),
    ("fit", RAW, "--label", LABEL, "-o", MODEL, "--run-dir", RUN, "--evaluate", RAW, "--report", f"a{CSI}.html"),
    ("inspect", MODEL), ("inspect", MODEL, "--json"), ("inspect", RUN), ("evaluate", MODEL, SHARDS),
    ("evaluate", MODEL, SHARDS, "--json"), ("predict", MODEL, SHARDS, "-o", f"p{OSC}[red]"),
    ("explain", MODEL), ("explain", MODEL, "--json"), ("explain", MODEL, "--data", SHARDS, "--row", 3),
    ("export", MODEL, f"e{OSC}[red].parquet", "--to", "parquet"),
    ("run", JOB, "--dry-run"), ("algorithms", OSC), ("help", OSC), (OSC,),
    *((command, ABSENT, f"x{BIDI}") for command in COMMANDS),
]  # fmt: skip
LONG_ATTACKS = [
    ("validate", SHARDS), ("split", SHARDS, f"parts{CSI}", "--parts", f"train{OSC}=0.5,te{BIDI}=0.5"), ("plan", SHARDS),
    ("fit", RAW, "--label", LABEL, "-o", f"b{MODEL}", "--json", "--class-weight", "balanced"), ("run", JOB),
    ("calibrate", MODEL, SHARDS, "-o", f"calibrated{CSI}"), ("predict", MODEL, RAW, "-o", f"q{OSC}", "--json"),
    ("report", MODEL, "-o", f"r{CSI}.html"), ("sweep", SHARDS, "-o", f"s{CSI}[red]", "--grid", "C=0.1,1"),
    ("inspect", f"s{CSI}[red]"), ("path", SHARDS, "-o", f"w{CSI}[red]", "--C", "0.1,1", "--algo", "newton"),
    ("submit", JOB, "--scheduler", f"tcp://{OSC}:1", "--dry-run", "--set", "run.groups=1"),
    ("generate", f"g{OSC}[red].svm", "--rows", 20, "--features", 1000),
]  # fmt: skip


@pytest.fixture
def hostile_place(tmp_path, monkeypatch):
    place = tmp_path / f"d{OSC}{BIDI}[red]"
    place.mkdir()
    monkeypatch.chdir(place)
    rng = random.Random(0)
    numbers = [(rng.random(), k % 3) for k in range(60)]
    rows = [(YES if a + b / 3 > 0.8 else NO, a, f"v{b}{OSC}{CSI}") for a, b in numbers]
    with open(place / RAW, "w", newline="") as file:
        csv.writer(file).writerows([(LABEL, NUMBER, CATEGORY), *rows])
    (place / JOB).write_text(json.dumps({"data": {"train": SHARDS}, "outputs": {"model": f"j{MODEL}"}}))
    return place


def told_by(*words, **options):
    result = CliRunner(**options).invoke(main, [str(word) for word in words], prog_name="bigclf")
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result, (result.stdout_bytes + result.stderr_bytes).decode("utf-8", "surrogateescape")


@pytest.mark.parametrize("attacks", [ATTACKS, pytest.param(ATTACKS + LONG_ATTACKS, marks=pytest.mark.long)],
                         ids=["most", "all"])  # fmt: skip
def test_no_command_prints_what_a_terminal_obeys_of_names(hostile_place, attacks):
    failed = []
    for words in attacks:
        result, text = told_by(*words)
        assert not OBEYED.findall(text) and "(unexpected:" not in text, (words, text)
        failed += [(*words, text)] * (result.exit_code not in (0, 4) and words[1:2] != (ABSENT,))
        if "--json" in words and words[0] not in ("fit", "predict"):  # it says the names themselves
            assert repr(NO)[1:-1] in repr(json.loads(result.stdout))
    assert {words[0] for words in failed} <= {"algorithms", "help", OSC}, failed
    assert r"no\x9b31m\u202e[/]" in told_by("inspect", SHARDS)[1]


def test_the_attacks_know_every_command():
    assert {words[0] for words in ATTACKS} >= set(COMMANDS)


def guarded_text(text, tty, own=ON_STDERR):
    stream = io.StringIO()
    stream.isatty = lambda: tty
    Guarded(stream, own).write(text)
    return stream.getvalue()


def test_a_terminal_gets_colours_and_the_live_line_and_nothing_else_that_it_obeys():
    own = "\x1b[1;31mred\x1b[0m \x1b[2K\x1b[1A\x1b[?25l\t\n"
    assert guarded_text(own, True) == own
    assert guarded_text(own, True, ON_STDOUT) == "\x1b[1;31mred\x1b[0m \\x1b[2K\\x1b[1A\\x1b[?25l\t\n"
    assert not OBEYED.search(guarded_text(own, False))
    hostile = "\x1b]0;x\x07\x9b31m\u202e\x1bP+q\x1b\\\x1b[6n\x1b[?1049h\x1bc\udc9b\x08"
    for tty in (True, False):
        shown = guarded_text(hostile, tty)
        assert shown == "".join(c if c.isprintable() else ascii(c)[1:-1] for c in hostile)


def test_predictions_into_a_pipe_are_data_and_on_a_terminal_text(capfdbinary, monkeypatch):
    data = [f"{YES}\n".encode()[:5], f"{YES}\n".encode()[5:]]
    terminal.emit_bytes(data)
    assert capfdbinary.readouterr().out == f"{YES}\n".encode()
    shown = io.StringIO()
    shown.isatty = lambda: True
    monkeypatch.setattr(sys, "stdout", Guarded(shown, ON_STDOUT))
    terminal.emit_bytes(data)
    assert shown.getvalue() == "yes\\x1b]0;x\\x07[bold]\n"


def test_json_with_such_characters_says_the_same():
    value = {"a\x9b": ["\x1b\u202e\x7f", "\U000e0041 é 日本 \udc9b"]}
    text = in_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value and not OBEYED.search(text) and "日本" in text


def test_brackets_and_colons_of_names_are_no_markup():
    screen = console(file=io.StringIO(), width=60)
    table = Table("[red]x[/]")
    table.add_row("[/] :boom: [bold")
    screen.print(table)
    assert "[red]x[/]" in screen.file.getvalue() and "[/] :boom: [bold" in screen.file.getvalue()


# Secrets in every place that takes an address


PASSWORD, TOKEN = "hunter2S3CRET", "T0KENT0KEN"


def closed_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


LONG_URLS = ["http://me:{0}@127.0.0.1:{2}/x?sig={1}", "ftp://u:p@{0}@127.0.0.1:{2}/x", "s3://key:with/{0}@b/x"]


@pytest.mark.parametrize("url", ["ftp://me:{0}@127.0.0.1:{2}/x",
                                 *(pytest.param(url, marks=pytest.mark.long) for url in LONG_URLS)])  # fmt: skip
def test_no_place_repeats_the_password_of_an_address(url, tmp_path, monkeypatch, caplog):
    pytest.importorskip("aiohttp", reason="the extra remote")
    from bigclf.files import remote

    monkeypatch.setattr(remote, "TRIES", 1)
    remote._store_of.cache_clear()
    monkeypatch.chdir(tmp_path)
    given = url.format(PASSWORD, TOKEN, closed_port())
    (tmp_path / "a.svm").write_text("+1 1:1\n-1 2:1\n" * 9)
    lines = [("inspect", given), ("fit", given, "-o", "m"), ("fit", "a.svm", "-o", given), ("validate", given),
             ("fit", "a.svm", "-o", "m", "--run-dir", given), ("convert", "a.svm", given, "--workers", 1),
             ("predict", given, "a.svm", "-o", "p"), ("evaluate", given, "a.svm"), ("report", given, "-o", "r.html"),
             ("fit", "a.svm", "-o", "m", "--workers", given, "--groups", 1)]  # fmt: skip
    for words in [*lines, *((*words, "--json") for words in (lines if url in LONG_URLS else lines[:2]))]:
        result, text = told_by(*words)
        assert result.exit_code not in (0, 2) and "***" in text, text
        assert PASSWORD not in text and TOKEN not in text, text
    held = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(PASSWORD.encode() in content or TOKEN.encode() in content for content in held)
    assert PASSWORD not in caplog.text and TOKEN not in caplog.text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:sec/ret@bucket/x", "s3://***@bucket/x"), ("ftp://u:p@ss@h/x y@z", "ftp://***@h/x y@z"),
        ("http://host:8080/data@v1", "http://host:8080/data@v1"), ("tcp://h:1 and a@b:2", "tcp://h:1 and a@b:2"),
        ("tcp://bob:12/secret@10.0.0.9:8786", "tcp://***@10.0.0.9:8786"), ("https://u:1/pw@h.org/x", "https://***@h.org/x"),
        ("s3://key:12/secret@bucket/x", "s3://***@bucket/x"), ("https://user:pa ss@host is", "https://***@host is"),
        ("data@2024/x.csv, me@h.org", "data@2024/x.csv, me@h.org"), ("https://h/data@v1/x", "https://h/data@v1/x"),
        ("http://[::1]:80/data@v1", "http://[::1]:80/data@v1"), ("tcp://h:1: ask a@b", "tcp://h:1: ask a@b"),
    ],
)  # fmt: skip
def test_where_a_password_ends(text, shown):
    assert masked(text) == shown == masked(shown)


@pytest.fixture
def nothing_remembered(monkeypatch):
    monkeypatch.setattr(texts, "_users", set())
    monkeypatch.setattr(texts, "_words", set())


@pytest.mark.parametrize("password", ["12/secretpw", "pa'ssword", "pa ssword", "p@/ss\"w'ord", "12/34 'x@y:z"])
@pytest.mark.parametrize("begin", ["", "--workers=", "data.train="])
@pytest.mark.usefixtures("nothing_remembered")
def test_a_given_address_is_known_as_a_whole(password, begin):
    remember([f"{begin}tcp://bob:{password}@10.0.0.9:8786"])
    for text in (f"{begin}tcp://bob:{password}@10.0.0.9:8786", f"wrong: {password}.", f"<bob:{password}@h>"):
        assert password not in masked(text) and repr(text)[1:-1] != masked(repr(text))[1:-1]


@pytest.mark.usefixtures("nothing_remembered")
def test_the_error_about_passwords_repeats_none():
    shown = told_by("fit", "none.svm", "-o", "m", "--workers", "tcp://bob:123/secret99@10.0.0.9:8786")[1]
    assert "secret99" not in shown


@pytest.mark.usefixtures("nothing_remembered")
def test_a_password_that_is_a_word_masks_no_field(tmp_path, capsys):
    remember(["https://bob:accuracy@host/x"])
    told = {"accuracy": 0.9, "balanced_accuracy": 0.8, "why": "refused: accuracy"}
    wanted = told | {"why": "refused: ***"}
    assert terminal.plain(told) == texts.masked_in(told) == wanted
    with terminal.guarded():
        terminal.emit_json(told)
        print("accuracy  0.9")
    shown = capsys.readouterr().out
    assert json.loads(shown[: shown.rindex("}") + 1]) == wanted and shown.endswith("accuracy  0.9\n")
    assert masked("balanced_accuracy: accuracy") == "balanced_accuracy: ***"


@pytest.mark.parametrize(
    "name",
    ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "co\xadop"],
)
def test_joiners_and_soft_hyphens_of_names_stay(name):
    assert safe(name) == name == in_json(name)
    assert safe("\u200b\u200f\u202e\u2028\ufeff\x85\x1b").isascii()


def test_what_a_library_repeats_of_a_query_or_decoded_is_masked():
    masked("https://me:p%40ssw0rd@h/x?a=b&sig=0123abcd%3D")
    text = masked("url: /x?a=b&sig=0123abcd%3D for p@ssw0rd, a=b")
    assert "0123abcd" not in text and "p@ssw0rd" not in text and text.startswith("url: /x?")


def test_other_libraries_log_no_passwords(caplog):
    guard_logs("somebody")
    masked("tcp://me:log-password@h:1")
    logging.getLogger("somebody").warning("cannot reach %s\x1b[2J", "me:log-password@h:1")
    assert "log-password" not in caplog.text and "***@h:1\\x1b[2J" in caplog.text


def test_a_driver_s_record_holds_no_password(tmp_path, monkeypatch):
    from bigclf.cli.jobs import driver

    with pytest.raises(SystemExit):
        driver.main(str(tmp_path), ["algorithms", "ftp://me:driver-password@h/x"])
    assert "driver-password" not in (tmp_path / driver.NAME).read_text()
