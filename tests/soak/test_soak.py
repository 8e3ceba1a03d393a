"""Minutes of mixed commands: memory, descriptors, threads and temporary files do not grow, and the bits stay."""

import os
import subprocess
import sys

import pytest
from making import environment

SOAK = os.path.join(os.path.dirname(__file__), "soak.py")

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(1800)]


def soaked(*arguments):
    done = subprocess.run([sys.executable, SOAK, *arguments], env=environment(), text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)  # fmt: skip
    print(done.stdout)
    return done.returncode


def test_nothing_grows_in_one_process():
    assert soaked("5") == 0


def test_nothing_grows_on_a_cluster_whose_workers_come_and_go():
    assert soaked("5", "--cluster") == 0
