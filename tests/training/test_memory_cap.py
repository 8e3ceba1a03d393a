"""The memory promise under a control group that counts the page cache: 256 MB of budget live under 512 MB."""

import contextlib
import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from making import control_group

from bigclf.conversion.convert import write_shards

LIMIT = 512 * 2**20
POSITIONS, CODES, ROWS = 500, 64, 80_000  # 40 M non-zeros: 320 MB in memory


def rows(block_rows=4000):
    """Blocks of one-hot rows of unit length, labels by planted weights."""
    rng = np.random.default_rng(0)
    planted = rng.normal(size=POSITIONS * CODES)
    starts = np.arange(POSITIONS, dtype=np.int32) * CODES
    for _ in range(ROWS // block_rows):
        indices = starts + rng.integers(0, CODES, (block_rows, POSITIONS), dtype=np.int32)
        labels = (planted[indices].sum(axis=1) > 0).astype(float)
        values = np.full(indices.size, POSITIONS**-0.5, np.float32)
        yield np.arange(block_rows + 1) * POSITIONS, indices.ravel(), values, labels


@pytest.mark.root
@pytest.mark.parametrize("working_set", [(), ("--param", "working_set=0")], ids=["working set", "none"])
def test_256_mb_live_under_512_mb_of_memory_and_page_cache(tmp_path, working_set):
    shards = write_shards(rows(), tmp_path / "shards", classes=[-1, 1], shuffle_rows=True)
    assert shards.nnz * 8 > 256e6
    words = [
        "fit",
        str(tmp_path / "shards"),
        "-o",
        str(tmp_path / "m"),
        "--algo",
        "dcd",
        "--bias",
        "none",
        "--memory",
        "256MB",
    ]
    words += ["--tol", "1e-2", "--epochs", "30", "--json", *working_set]
    with control_group("memory", LIMIT) as members:

        def join():
            members.write_text(str(os.getpid()))

        program = [sys.executable, "-m", "bigclf", *words]
        done = subprocess.run(program, preexec_fn=join, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    memory = told["memory"]
    assert told["certificate"]["gap"] <= 1e-2
    assert memory["planned"] - memory["base"] <= 256e6
    assert memory["peak"] <= max(1.1 * memory["planned"], memory["planned"] + 20e6)


@pytest.mark.root
def test_a_set_that_takes_over_the_memory_of_decoding_keeps_to_the_budget(tmp_path):
    """Undisturbed, and where a second process goes on, which decodes every row again before it fills the set."""
    path, schema, row_group = tmp_path / "f.parquet", None, 50_000 * 40
    with contextlib.ExitStack() as stack:
        for indptr, indices, values, labels in rows(row_group // POSITIONS):
            lists = [pa.ListArray.from_arrays(indptr.astype(np.int32), column) for column in (indices, values)]
            table = pa.table({"label": labels.astype(np.int8), "indices": lists[0], "values": lists[1]})
            if schema is None:
                schema = table.schema
                writer = stack.enter_context(pq.ParquetWriter(path, schema))
            writer.write_table(table, row_group_size=table.num_rows)
    words = [
        "fit",
        str(path),
        "-o",
        str(tmp_path / "m"),
        "--overwrite",
        "--algo",
        "dcd",
        "--bias",
        "none",
        "--memory",
        "64MB",
    ]
    program = [sys.executable, "-m", "bigclf", *words, "--tol", "1e-3", "--json", "--param", "working_set=0.9"]
    subprocess.run([*program, "--epochs", "2"], capture_output=True, timeout=280)  # compiling takes memory of its own
    found, resumed = [], ["--run-dir", str(tmp_path / "run"), "--resume"]
    for epochs in ("2", "5"):
        with control_group("memory", LIMIT // 2) as members:

            def join(members=members):
                members.write_text(str(os.getpid()))

            words = [*program, *resumed, "--epochs", epochs]
            done = subprocess.run(words, preexec_fn=join, capture_output=True, text=True, timeout=280)
        assert done.returncode in (0, 4), done.stderr
        found.append(json.loads(done.stdout))
        memory = found[-1]["memory"]
        assert memory["planned"] - memory["base"] <= 64e6
        assert memory["peak"] <= max(1.1 * memory["planned"], memory["planned"] + 20e6), memory
    history = [json.loads(line) for line in (tmp_path / "run/history.jsonl").read_text().splitlines()]
    sets = [record["working_set_rows"] for record in history]
    assert sets[1] > 1.5 * sets[0], sets


@pytest.mark.root
def test_rows_without_entries_are_read_under_256_mb_of_memory_and_page_cache(tmp_path):
    m = 8_000_000  # 70 kB in the file, 0.5 GB as arrays
    empty = pa.ListArray.from_arrays(np.zeros(m + 1, np.int32), pa.array([], pa.int32()))
    table = pa.table({"label": (np.arange(m) >= m // 2).astype(np.int8), "indices": empty})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=m)
    del empty, table
    lines = "import sys, bigclf; found = bigclf.Dataset(sys.argv[1]); print(sum(b.n_rows for b in found.blocks()))"
    program = [sys.executable, "-c", lines, str(tmp_path / "f.parquet")]
    home = {**os.environ, "BIGCLF_CACHE_DIR": str(tmp_path / "cache")}
    with control_group("memory", LIMIT // 2) as members:

        def join():
            members.write_text(str(os.getpid()))

        done = subprocess.run(program, preexec_fn=join, capture_output=True, text=True, timeout=280, env=home)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == m
