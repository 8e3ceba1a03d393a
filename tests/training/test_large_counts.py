"""What a run counts goes on exactly beyond 32 bits: a checkpoint says that billions were seen before."""

import numpy as np
import pytest
from making import random_rows

import bigclf
from bigclf.training.records.run_directory import checkpoints_in, load_arrays, publish_arrays

HIGH = 2**33
COUNTED = ("bytes_read", "bytes_moved", "mixes")
CASES = {  # epochs before, and the options
    "pa1": (1, {}),
    "averaged_pa2": (1, {}),
    "pegasos": (1, {}),
    "adagrad_rda": (1, {}),
    "dcd": (2, {"loss": "hinge", "tol": 1e-9}),
    "newton": (2, {"tol": 1e-12}),
}


def last_checkpoint(directory):
    path = str(directory / checkpoints_in(directory)[0])
    return path, *load_arrays(path)[:2]


def counts_in(arrays, facts):
    """Rows, mistakes and updates so far, and of the first epoch; bytes; and what a method counts by itself."""
    (status,) = facts["status"]
    own = [array.item() for name, array in arrays.items() if name.endswith((".clock", ".steps"))]
    return [*status["total"][:3], *status["progressive"][:3], facts["bytes_read"], *own]


@pytest.mark.filterwarnings("ignore::bigclf.errors.ConvergenceWarning")
@pytest.mark.parametrize("algo", CASES)
def test_counters_go_on_exactly_beyond_32_bits(algo, tmp_path):
    before, options = CASES[algo]
    x, y = random_rows(200, 20, binary=True)
    told = []
    for high in (0, HIGH):
        place = tmp_path / str(high)
        more = {**options, "algo": algo, "groups": 1, "progress": False}
        more["run_dir"] = bigclf.RunDir(place, checkpoint_every=0)
        bigclf.fit(x, y, epochs=before, **more)
        path, arrays, facts = last_checkpoint(place)
        for name in arrays:
            if name.endswith((".clock", ".steps")):
                arrays[name] = arrays[name] + high
        for name in ("total", "progressive"):
            counts = facts["status"][0][name]
            counts[:3] = [count + high for count in counts[:3]]
        facts |= {name: facts[name] + high for name in COUNTED}
        publish_arrays(path, arrays, facts)
        model = bigclf.fit(x, y, epochs=4, resume=True, **more)
        assert np.isfinite(model.coef_).all() and model.result_.epochs == 4
        told.append([model.result_.bytes_read, *counts_in(*last_checkpoint(place)[1:])])
    plain, raised = map(np.array, told)
    exact = np.ones(plain.size, bool)
    if algo in ("pegasos", "adagrad_rda"):  # other steps, so other mistakes and updates
        exact[[2, 3]] = False
    assert (raised[exact] == plain[exact] + HIGH).all() and (raised > 2**32).all()
