"""The jobs that are run over SSH and under SLURM, on processes of this machine."""

import pytest
from conftest import JOBS, bigclf_command, bits

pytestmark = pytest.mark.root  # with the others: what it is for is the comparison


@pytest.mark.parametrize("name", JOBS)
def test_a_job_has_the_bits_of_one_process(experiments, name, tmp_path):
    job, model = experiments[name].written(tmp_path / "job")
    bigclf_command("run", job, SCHEDULER="2")
    assert bits(model) == experiments[name].bits
