"""Whatever call fails or is the last: nothing is lost, nothing is half there, and nobody else's is touched.

``campaign.py`` carries it out; ``tests/README.md`` has the table.
"""

import os
import subprocess
import sys

import pytest
from cases import CASES, PLAIN

CAMPAIGN = os.path.join(os.path.dirname(__file__), "campaign.py")


def carried_out(*arguments):
    done = subprocess.run([sys.executable, CAMPAIGN, *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)  # fmt: skip
    print(done.stdout)
    return done.returncode, [line for line in done.stdout.splitlines() if line.startswith("| ")]


def test_two_points_of_each_command_are_disturbed_and_nothing_is_lost():
    code, lines = carried_out("--sample", "2", *PLAIN)
    assert code == 0 and len(lines) == len(PLAIN)


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", CASES)
def test_every_point_of_a_command_is_disturbed_and_nothing_is_lost(name):
    code, lines = carried_out(name)
    assert code == 0 and len(lines) == 1
