"""What the terminal, logs and tracebacks are told: no passwords of URLs, and no escape sequences of names."""

import logging
import socket

import pytest

from bigclf.cli import terminal
from bigclf.errors import BigclfError, mask_chain, masked


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


def test_a_port_that_refuses_is_said_before_dask_is_asked(monkeypatch):
    distributed = pytest.importorskip("distributed")
    from bigclf.errors import ClusterError
    from bigclf.training import link

    with socket.socket() as held:  # bound, and nobody listens
        held.bind(("127.0.0.1", 0))
        monkeypatch.setattr(distributed, "Client", type("Never", (distributed.Client,), {"__init__": None}))
        monkeypatch.setattr(link, "REFUSAL_SECONDS", 0.3)
        with pytest.raises(ClusterError, match="refuses connections"):
            link.connect(f"tcp://127.0.0.1:{held.getsockname()[1]}")


def test_a_scheduler_that_is_starting_is_waited_for(monkeypatch):
    pytest.importorskip("distributed")
    from bigclf.training import link

    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    monkeypatch.setattr(link.time, "sleep", lambda seconds: held.listen())  # it begins while it is waited for
    with held:
        assert not link.refuses(f"tcp://127.0.0.1:{held.getsockname()[1]}")


@pytest.mark.parametrize(("address", "warned"), [("tcp://10.1.2.3:8786", 1), ("tls://10.1.2.3:8786", 0),
                                                  ("tcp://127.0.0.1:8786", 0), ("tcp://localhost:1", 0)])  # fmt: skip
def test_a_plain_scheduler_on_another_host_is_warned_of(caplog, address, warned):
    pytest.importorskip("distributed")
    from bigclf.training.link import warn_of_plain

    with caplog.at_level(logging.WARNING, "bigclf"):
        warn_of_plain(address)
    assert caplog.text.count("not encrypted") == warned and caplog.text.count("bigclf.tls") == warned


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
