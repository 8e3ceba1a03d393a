"""What a run writes is its own while it lives: no other command writes into its directory, whatever it is asked to."""

import os

import numpy as np
import pytest
import scipy.sparse
from click.testing import CliRunner
from making import shards_of

from bigclf.cli import main
from bigclf.training.records.lease import holding

LINES = {
    "fit": ("fit", "{data}", "-o", "{run}/model.bigclf", "--overwrite"),
    "fit, a run of its own": ("fit", "{data}", "-o", "{run}/other", "--run-dir", "{run}-2", "--overwrite"),
    "sweep": ("sweep", "{data}", "-o", "{run}", "--grid", "C=0.1,1", "--folds", "2", "--overwrite"),
    "path": ("path", "{data}", "-o", "{run}", "--C", "0.1,1", "--overwrite"),
    "split": ("split", "{data}", "{run}", "--parts", "a=0.5,b=0.5", "--overwrite"),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rng = np.random.default_rng(0)
    x = (rng.random((60, 5)) < 0.5) * 1.0
    return shards_of(
        tmp_path_factory.mktemp("living") / "shards", scipy.sparse.csr_matrix(x), np.arange(60) % 2 * 2 - 1
    )


@pytest.mark.parametrize("name", LINES)
def test_no_command_writes_where_a_run_lives(name, data, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    with holding(run):
        before = sorted(os.listdir(run))
        words = [word.format(data=os.path.dirname(data.files[0]), run=run) for word in LINES[name]]
        done = CliRunner().invoke(main, words)
        assert done.exit_code != 0 and "is in use by process" in done.stderr, done.output
        assert sorted(os.listdir(run)) == before
