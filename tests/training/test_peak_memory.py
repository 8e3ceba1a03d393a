"""The memory that a training says it took."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from making import shards_of

from bigclf.api.fit import fit
from bigclf.data.dataset import Dataset
from bigclf.machine import anonymous_bytes

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
    some = take()
    before = anonymous_bytes()
    memory = fit(dataset, algo="dcd", epochs=1, progress=False).result_.memory
    assert some and memory["base"] < before - 50e6
    assert memory["peak"] - memory["base"] >= 8 * FEATURES  # of the weights alone
