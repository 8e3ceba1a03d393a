"""Without numba's compiler every kernel is plain Python, for debugging: runs are written down all the same."""

from making import run_python

RUNS = """
import json, sys, warnings
import numba
import numpy as np
import bigclf

warnings.simplefilter("ignore")
assert numba.config.DISABLE_JIT
x = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
two, three = (x[:, 0] > 0).astype(int), np.digitize(x[:, 0], [-0.4, 0.4])
runs = [
    dict(algo="arow", y=two), dict(algo="dcd", y=two), dict(algo="dcd", y=two, groups=np.int64(3)),
    dict(algo="dcd_mc", y=three), dict(algo="pegasos", y=two, groups=3, validate=(x, two)), dict(algo="newton", y=two),
    dict(algo="memma_blocks", y=two), dict(algo="voted_perceptron", y=two), dict(algo="pa", y=three),
]
for number, options in enumerate(runs):
    place = f"{sys.argv[1]}/{number}"
    model = bigclf.fit(x, run_dir=bigclf.RunDir(place, 0), epochs=2, progress=False, **options)
    history = [json.loads(line) for line in open(f"{place}/history.jsonl")]
    assert history and json.load(open(f"{place}/run.json"))["version"] == 1
    assert np.array_equal(bigclf.load(f"{place}/model.bigclf").coef_, model.coef_)
bigclf.sweep(x, two, grid={"C": [0.1, 1.0]}, epochs=2, run_dir=bigclf.RunDir(f"{sys.argv[1]}/sweep", 0))
print(len(runs))
"""


def test_runs_of_plain_python_are_written_down(tmp_path):
    """``arow`` failed at its first checkpoint, of 100 rows; of 24 no method did."""
    told = run_python(RUNS, tmp_path, NUMBA_DISABLE_JIT="1")
    assert told.split() == ["9"]
