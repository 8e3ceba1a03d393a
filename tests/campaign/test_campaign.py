"""Whatever call fails or is the last, and whoever comes meanwhile: nothing is lost, nothing is half there, and nobody
else's is touched.

``campaign.py`` and ``sequences.py`` carry it out; ``tests/README.md`` has the table.
"""

import os
import subprocess
import sys

import pytest
from cases import CASES, PLAIN

HERE = os.path.dirname(__file__)


def carried_out(*arguments, program="campaign.py"):
    done = subprocess.run([sys.executable, os.path.join(HERE, program), *arguments], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)  # fmt: skip
    print(done.stdout)
    return done.returncode, [line for line in done.stdout.splitlines() if line.startswith("| ")]


PROGRAM = """
import os, sys
from recorder import Recorder
kind, root = sys.argv[1:]
recorder = Recorder(root, (kind, "write a", 1), lambda: print("dies", flush=True))
recorder.install()
for name in ("a", "b"):
    try:
        with open(os.path.join(root, name), "wb") as file:
            file.write(b"1234")
    except OSError as error:
        print(error.strerror, flush=True)
print(recorder.points)
"""
TOLD = {  # exit code, what is printed first, what is in the two files
    "kill": (137, "dies", "12", None),
    "ENOSPC": (0, "No space left on device", "12", None),
    "EIO": (0, "Input/output error", "12", "1234"),
}


@pytest.mark.parametrize("kind", TOLD)
def test_a_fault_comes_at_its_point_and_a_full_disk_stays_full(kind, tmp_path):
    code, first, a, b = TOLD[kind]
    done = subprocess.run([sys.executable, "-c", PROGRAM, kind, tmp_path], cwd=HERE, text=True,
                          stdout=subprocess.PIPE, check=False)  # fmt: skip
    assert done.returncode == code and done.stdout.splitlines()[0] == first
    assert (tmp_path / "a").read_text() == a
    assert (tmp_path / "b").exists() == (b is not None) and (b is None or (tmp_path / "b").read_text() == b)
    if code == 0:
        assert done.stdout.splitlines()[-1].startswith("['open a', 'write a', 'open b'")


APART = """
import fcntl, os, sys
from recorder import Recorder
root = sys.argv[1]
recorder = Recorder(root, ("tell",))
recorder.install()
waiting, named = (os.path.join(root, name) for name in (f".a.tmp-{os.getpid()}-01234567", "a"))
with open(waiting, "wb", 0) as file:
    file.write(b"12")
    os.path.getsize(waiting)
    file.write(b"34")
    os.fsync(file.fileno())
os.replace(waiting, named)
with open(named, "ab", 0) as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    os.mkdir(os.path.join(root, "b"))
    os.path.exists(named)
    os.unlink(named)
moments = dict.fromkeys(recorder.moments)
print("".join("abcdefghi"[[*moments].index(moment)] for moment in recorder.moments), len({s for s, _ in moments}))
"""


def test_points_are_alike_where_nothing_was_learned_and_nobody_else_could_see_a_difference(tmp_path):
    """open | write, write, fsync, replace | open | lock | mkdir | unlink. One that looks cannot tell the second
    ``open`` from the lock after it; before ``mkdir`` the lock is held."""
    done = subprocess.run([sys.executable, "-c", APART, tmp_path], cwd=HERE, text=True, stdout=subprocess.PIPE,
                          check=False)  # fmt: skip
    assert done.stdout.split() == ["abbbbcdef", "5"]


def test_two_points_of_each_command_are_disturbed_and_nothing_is_lost():
    code, lines = carried_out("--sample", "2", *PLAIN)
    assert code == 0 and len(lines) == len(PLAIN)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_second_process_comes_at_two_points_of_each_command_and_nothing_is_lost():
    code, lines = carried_out("--beside", "--sample", "2", *PLAIN)
    assert code == 0 and len(lines) == len(PLAIN)


@pytest.mark.root
@pytest.mark.timeout(900)
def test_a_small_disk_gets_full_under_commands_and_nothing_is_lost():
    names = ["convert", "fit streamed", "sweep", "predict csv"]
    code, lines = carried_out("--small-disk", "--sample", "2", *names)
    assert code == 0 and len(lines) == len(names)


def test_a_few_random_sequences_of_five_commands_leave_what_the_model_says():
    assert carried_out("5", program="sequences.py")[0] == 0


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_two_hundred_random_sequences_of_five_commands_leave_what_the_model_says():
    assert carried_out("200", program="sequences.py")[0] == 0


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("name", CASES)
def test_a_second_process_comes_at_every_point_of_a_command_and_nothing_is_lost(name):
    code, lines = carried_out("--beside", name)
    assert code == 0 and len(lines) == 1


@pytest.mark.chaos
@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", CASES)
def test_every_point_of_a_command_is_disturbed_and_nothing_is_lost(name):
    code, lines = carried_out(name)
    assert code == 0 and len(lines) == 1
