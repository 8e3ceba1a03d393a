"""The memory that a training says it took."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from making import shards_of

from bigclf.api.fit import fit
from bigclf.data.dataset import Dataset
from bigclf.machine import anonymous_bytes
from bigclf.training.plan import DECODE_BYTES, DECODE_FACTOR

FEATURES = 2**21


def from_libc():
    kept = [np.ones(8_000) for _ in range(2_000)]  # of 64 kB each: the C library keeps such for later
    return kept[::100]


def from_arrow():
    kept = [pa.array(np.ones(8_000)).cast(pa.float32()) for _ in range(4_000)]
    return kept[::100]


@pytest.mark.parametrize("take", [from_libc, from_arrow])
def test_memory_freed_before_does_not_hide_what_training_takes(tmp_path, take):
    """As that of a conversion in the same process: its pages were taken for those of interpreter and libraries."""
    rng = np.random.default_rng(0)
    x = sp.random(3_000, FEATURES, 10 / FEATURES, format="csr", random_state=rng, dtype=np.float32)
    shards_of(str(tmp_path / "s"), x, np.arange(3_000) % 2)
    dataset = Dataset(str(tmp_path / "s"))
    fit(dataset, algo="dcd", epochs=1, progress=False)  # compiles
    before = anonymous_bytes()
    some = take()  # what it frees is kept for later, by Arrow's allocator for some 0.2 s
    memory = fit(dataset, algo="dcd", epochs=1, progress=False).result_.memory
    assert some and memory["base"] < before + 50e6
    assert memory["peak"] - memory["base"] >= 8 * FEATURES  # of the weights alone


@pytest.mark.filterwarnings("ignore::bigclf.errors.ConvergenceWarning")
def test_views_of_many_problems_do_not_lie_together():
    """Labels, weights and places of all rows, of 100 problems at a time, took four times what was planned."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40_000, 3)), rng.permutation(40_000) % 100
    for algo in ("newton_dense", "newton"):
        how = {"algo": algo, "loss": "logistic", "progress": False}
        fit(x[:1_000], y[:1_000], epochs=1, **how)  # compiles
        memory = fit(x, y, epochs=2, tol=1e-9, **how).result_.memory
        assert memory["peak"] - memory["planned"] < 20e6  # 96 MB would be those views


def test_arrow_takes_no_more_than_decoding_is_planned_with(tmp_path):
    """Its own choice of an allocator held 33 MB for rows of 1 MB: small runs took up to 11 MB too much."""
    rows, each, rng = 3_000, 60, np.random.default_rng(0)
    offsets, numbers = np.arange(rows + 1, dtype=np.int32) * each, rng.random(rows * each, np.float32)
    columns = {"indices": rng.permutation(numbers.size).astype(np.int32), "values": numbers}
    table = pa.table({name: pa.ListArray.from_arrays(offsets, pa.array(column)) for name, column in columns.items()})
    pq.write_table(table, tmp_path / "f.parquet")
    lines = """
import sys, bigclf, pyarrow.parquet as pq
from bigclf.machine import anonymous_bytes
before = anonymous_bytes()
for _ in range(3):
    pq.ParquetFile(sys.argv[1], pre_buffer=False).read_row_group(0, use_threads=False)
print(anonymous_bytes() - before)
"""
    program = [sys.executable, "-c", lines, str(tmp_path / "f.parquet")]
    env = {name: value for name, value in os.environ.items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=env)
    assert int(done.stdout) <= DECODE_BYTES + DECODE_FACTOR * 8 * numbers.size
