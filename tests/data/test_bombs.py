"""Parquet files that claim or hold far more than their bytes: real files, whose footers or pages lie."""

import os
import resource
import subprocess
import sys
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from making import environment

from bigclf import files
from bigclf.data import shards
from bigclf.data.chunk_table import Lengths
from bigclf.data.dataset import Dataset
from bigclf.errors import DataError, MemoryBudgetError

ROWS = 70_001  # whose bytes stand in a footer for nothing else


def varint(number):
    """As a footer has it."""
    number, found = number << 1, bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    path = tmp_path_factory.mktemp("bombs") / "rows.parquet"
    ones = pa.array([[1.0]] * ROWS, pa.list_(pa.float32()))
    indices = pa.array([[1]] * ROWS, pa.list_(pa.int32()))
    table = pa.table({"label": np.arange(ROWS) % 2, "indices": indices, "values": ones})
    pq.write_table(table, path, row_group_size=ROWS)
    return path.read_bytes()


@pytest.mark.parametrize("claim", [2**40, 10**9])
def test_a_footer_that_claims_more_rows_than_its_bytes_can_hold(honest, tmp_path, claim):
    """Each count of rows or values in the bytes of the footer, and all of them: refused at once, or never asked for."""
    size = int.from_bytes(honest[-8:-4], "little")
    body, footer, true = honest[: -8 - size], honest[-8 - size : -8], varint(ROWS)
    places = [place for place in range(len(footer)) if footer.startswith(true, place)]
    assert len(places) > 6
    path, before, refused = tmp_path / "bomb.parquet", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0
    for lies in ([place] for place in places):
        refused += is_refused(path, body, changed(footer, lies, true, varint(claim)))
    assert is_refused(path, body, changed(footer, places, true, varint(claim)))
    assert refused >= 5 and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def changed(footer, places, true, false):
    for place in reversed(places):
        footer = footer[:place] + false + footer[place + len(true) :]
    return footer


def is_refused(path, body, footer):
    files.publish_bytes(path, body + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    try:
        dataset = Dataset(path)
        assert dataset.decode(0, 0).n_rows == dataset.n_rows == ROWS
    except DataError as error:
        assert str(path) in str(error)
        return True
    return False


@pytest.mark.long
def test_a_page_of_kilobytes_that_is_tens_of_megabytes_is_refused_with_what_it_takes(tmp_path):
    """Two rows, of which one has 8 million entries: 64 MB in 3 kB. It is decoded once, to describe the file; then the
    budget counts."""
    many, path = 8_000_000, tmp_path / "bomb.parquet"
    table = pa.table({
        "label": [0, 1],
        "indices": pa.array([np.arange(many, dtype=np.int32), np.arange(3, dtype=np.int32)], pa.list_(pa.int32())),
        "values": pa.array([np.ones(many, np.float32), np.ones(3, np.float32)], pa.list_(pa.float32())),
    })  # fmt: skip
    delta = {"indices.list.element": "DELTA_BINARY_PACKED", "values.list.element": "PLAIN", "label": "PLAIN"}
    pq.write_table(table, path, compression="zstd", use_dictionary=False, data_page_size=2**30, column_encoding=delta)
    assert os.path.getsize(path) < 10_000
    words = ["fit", str(path), "-o", str(tmp_path / "m"), "--memory", "30MB", "--epochs", "1"]
    done = subprocess.run([sys.executable, "-c", PEAK, *words], env=environment(), capture_output=True, text=True)
    assert done.returncode == 1 and "memory=30.0 MB is too small" in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "m").exists()
    # five times what is decoded (``GATHER_FACTOR``), with interpreter and libraries
    assert int(done.stdout.split()[-1]) < 250_000 + 5 * 64_000, done.stdout


@pytest.mark.parametrize("length", [0, 3])
def test_rows_of_one_length_are_taken_down_without_a_byte_each(length):
    """And counted as others are: ten parts of 100,000 rows."""
    lengths, bounds = Lengths(), length * np.arange(100_001)
    tracemalloc.start()
    for _ in range(10):
        lengths.add(bounds, None)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 20_000
    assert lengths.total().tolist() == [1_000_000, 1_000_000 * length, 0, 0]
    assert lengths.reaching(np.array([5, 250_000]), 0)[:, :2].tolist() == [[5, 5 * length], [250_000, 250_000 * length]]


def test_memory_that_arrow_does_not_get_is_told_of_with_the_place():
    """In our words, and not in those of the library alone."""
    told = r"^f.parquet, row group 3: there is not enough memory .*\(realloc of"
    with pytest.raises(MemoryBudgetError, match=told), shards.translated("f.parquet", 3):
        raise pa.ArrowMemoryError("realloc of size 536870912 failed")


PEAK = """
import sys
from bigclf.cli import main
try:
    main(sys.argv[1:], prog_name="bigclf")
finally:  # getrusage would count what the process was forked from
    print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
