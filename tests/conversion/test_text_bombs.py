"""Text of kilobytes that is gigabytes once decompressed: refused, or read a piece at a time, in little memory."""

import bz2
import gzip
import lzma
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from making import control_group, environment

import bigclf
from bigclf.conversion.tables import reading
from bigclf.errors import DataError

PIECE = 2**22


def zstd(text):
    return pa.compress(text, "zstd", asbytes=True)


BOMBS = [  # name, what is written again and again, how often, how, what is said
    ("rows.svm.gz", b"0", 2000, gzip.compress, "a line of more than"),
    ("rows.svm.zst", b"0", 2000, zstd, "a line of more than"),
    ("rows.svm.bz2", b"0", 2000, bz2.compress, "a line of more than"),
    ("rows.svm.xz", b"0", 2000, lzma.compress, "a line of more than"),
    ("rows.csv.zst", b"a", 2000, zstd, "the first line cannot be read"),
    ("rows.vw.zst", b"1 |a ", 400, zstd, "a line of more than"),
    ("rows.jsonl.zst", b"[", 2000, zstd, "JSON of more than"),
    ("rows.json.zst", b"[", 2000, zstd, "JSON of more than"),
    ("rows.jsonl.gz", b"{", 2000, gzip.compress, "a line of more than"),
    ("blank.svm.zst", b"\n", 500, zstd, "no rows"),
]


@pytest.mark.root
@pytest.mark.parametrize(("name", "text", "times", "pack", "said"), BOMBS, ids=[bomb[0] for bomb in BOMBS])
def test_gigabytes_in_kilobytes_are_refused_where_there_is_half_a_gigabyte(tmp_path, name, text, times, pack, said):
    """The system ends what takes more."""
    path = tmp_path / name
    path.write_bytes(pack(text * (PIECE // len(text))) * times)
    assert path.stat().st_size < 40e6 < 8e9 / 5
    words = ["convert", path, tmp_path / "out", "--memory", "100MB"]
    words += ["--label", "y"] if any(form in name for form in ("csv", "json")) else []
    with control_group("memory", 500_000_000) as members:
        done = subprocess.run([sys.executable, "-m", "bigclf", *map(str, words)], env=environment(), text=True,
                              capture_output=True, preexec_fn=lambda: members.write_text(str(os.getpid())))  # fmt: skip
    assert done.returncode == 3 and said in done.stderr and str(path) in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and os.listdir(tmp_path) == [name]


def test_a_list_of_json_that_memory_does_not_hold_is_refused(tmp_path, monkeypatch):
    """It is read as a whole."""
    path = tmp_path / "rows.json"
    path.write_text("[" + ",".join('{"a": 1, "y": 0}, {"a": 2, "y": 1}' for _ in range(20)) + "]")
    assert bigclf.convert(path, tmp_path / "s", features=bigclf.suggest(path, "y")).n_rows == 40
    monkeypatch.setattr(reading, "memory_limit", lambda: (8000, "a control group"))
    with pytest.raises(DataError, match=r"rows.json: JSON of more than 500 B .* a control group has \(8.00 kB\)"):
        bigclf.suggest(path, "y")
