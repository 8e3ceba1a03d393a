"""Whatever call fails or is the last, and whoever comes meanwhile: nothing is lost, nothing is half there, and nobody
else's is touched.

``campaign.py`` and ``sequences.py`` carry it out; ``tests/README.md`` has the table.
"""

import os
import signal
import subprocess
import sys
import time
import types

import beside
import campaign
import ground
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


def test_a_line_on_a_small_disk_is_begun_as_any_other(monkeypatch, tmp_path):
    trial, limits = object.__new__(campaign.OnSmallDisk), []
    trial.work, trial._remount = str(tmp_path), limits.append
    monkeypatch.setattr(ground.Ground, "run", lambda self, words, fault=None, **more: more)
    assert trial.run(["fit"], kernels=True) == {"kernels": True} and not limits
    assert trial.run(["fit"], ("room", 3), kernels=True) == {"kernels": True, "native": True} and len(limits) == 2


def test_shares_of_a_case_hold_every_line_once_and_those_beside_each_other_together():
    shares = campaign.dealt(list(range(100)), 2)
    assert sorted([*shares[0], *shares[1]]) == list(range(100)) and shares[0][:26] == [*range(24), 48, 49]
    assert campaign.dealt([1, 2, 3], 2) == [[1, 3], [2]]


def test_parts_of_a_case_are_added_up_and_one_that_dies_is_told_of(capfd):
    assert campaign.in_children([lambda k=k: k for k in range(3)]) == [0, 1, 2]
    with pytest.raises(AssertionError, match="ended with 256"):
        campaign.in_children([lambda: 1, lambda: 1 / 0])
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_line_that_stands_still_is_not_ended_by_its_patience():
    held, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(1)
        ground.stand(held[1], go[0])
        os._exit(0 if signal.alarm(0) > 1 else 1)
    assert os.read(held[0], 1) == b"h"
    time.sleep(1.1)
    os.write(go[1], b"g")
    assert os.waitpid(child, 0)[1] == 0


class HeldOnce:
    """A trial whose first line stands still once, and whose second ones all end well."""

    case = types.SimpleNamespace(line=["fit"], again=("--resume",), anew=("--overwrite",))
    whole_run, work = types.SimpleNamespace(code=0), ""

    def __init__(self):
        self.begun, self.holds = [], iter([True, False])

    def start(self, words, fault=None, name=""):
        self.begun.append(words)
        return types.SimpleNamespace(child=0)

    def is_held(self, first):
        return next(self.holds)

    def noted(self, first):
        return ground.Noted()

    def content(self):
        return [set()]

    def nothing(self, *of):
        return []

    restore = release = end = foreign = half = nothing


def test_whoever_leaves_a_trace_is_the_last_beside_its_first_line(monkeypatch):
    trial, lines = HeldOnce(), [(kind, "open a", 1) for kind in ("line", "--resume", "--overwrite")]
    for name, gives in {"keys": [("open a", 1)], "state_of": None, "ended_or_still": 0, "both": []}.items():
        monkeypatch.setattr(beside, name, lambda *of, gives=gives: gives)
    assert [*beside.one_after_the_other(trial, lines)] == [(("--overwrite", "open a", 1), True, [])]
    assert trial.begun == [["fit"], ["fit", "--overwrite"]]


SHARED = """
import os, sys
import beside, campaign, ground
ground.warm()
directory = sys.argv[1]
trial = campaign.Trial("convert", directory, ground.made_in_child(ground.made(directory, "place")))
lines = [line for line in beside.drawn(trial, 0, "")[0] if line[0] == "line"]
begun, seconds = [], []
restore, still = trial.restore, beside.ended_or_still
def traced(child):
    ended = still(child)
    seconds.append(ended)
    if len(sys.argv) > 2 and len(seconds) == len(lines) // 2:
        open(os.path.join(trial.out, "trace"), "w").close()
    return ended
trial.restore, beside.ended_or_still = lambda: (begun.append(1), restore()), traced
told = [*beside.disturbed(trial, lines)]
print(len(lines) == len({line for line, *_ in told} - {("beside", "in the end", 1)}), len(begun) < len(lines) // 2,
      sorted({what for *_, broken in told for what, _ in broken}))
"""


def files_in(directory, **texts):
    directory.mkdir()
    for name, text in texts.items():
        (directory / name.replace("__", ".")).write_text(text)
    return directory


def test_what_no_line_can_tell_apart_is_alike_and_nothing_else_is(tmp_path):
    """Numbers of processes and seconds may differ; bytes, modes and how long a history is may not."""
    base = {"m": "4", "run__json": '{"seconds": 1.5, "tol": 1}', "h__jsonl": '{"epoch": 1}\n{"epoch": 2, "busy": 3}'}
    first = files_in(tmp_path / "a", **base, **{"__x__tmp-12-0123abcd": "half"})
    timely = {"run__json": '{"seconds": 2.5, "tol": 1}', "h__jsonl": '{"epoch": 7}\n{"epoch": 2, "busy": 4}'}
    second = files_in(tmp_path / "b", **{**base, **timely}, **{"__x__tmp-13-4567abcd": "half"})
    others = [
        {"m": "5"},
        {"run__json": '{"seconds": 1.5, "tol": 2}'},
        {"h__jsonl": '{"epoch": 2, "busy": 3}'},
        {"n": ""},
    ]
    others = [files_in(tmp_path / str(k), **{**base, **each}, **{"__x__tmp-12-0123abcd": "half"})
              for k, each in enumerate(others)]  # fmt: skip
    assert campaign.alike(first) == campaign.alike(second)
    (second / "m").chmod(0o600)
    assert len({campaign.alike(place) for place in (first, second, *others)}) == 6


class LeavesText(campaign.Trial):
    """A trial whose lines leave the text of a fault in a file, which says what of it is so."""

    def __init__(self, place):
        self.work, self.seen, self.overwritten, self.untouched, self.given = str(place), {}, 0, "", []
        self.case = types.SimpleNamespace(line=["fit"], once=False, anew=(), files=("m",))
        self.whole = ({"m": "whole"}, [])
        self.whole_run = ground.Ran(0, "", [], [], [], [])

    def run(self, words, fault=None):
        with open(os.path.join(self.work, "left"), "w") as file:
            file.write(fault[1])
        return self.whole_run._replace(code=1)

    def _again(self):
        with open(os.path.join(self.work, "left")) as file:
            self.given.append(file.read())
        self.overwritten += "replaced" in self.given[-1]
        return self.whole_run

    def content(self):
        with open(os.path.join(self.work, "left")) as file:
            return {"m": "whole" if "whole" in file.read() else "half"}, []

    def lost(self, before, after):
        return [("lost epoch", "2 after 7")] if "anew" in self.given[-1] else []

    def differing(self, results=False):
        return self.given[-1] if self.given[-1] == "other" else ""

    def nothing(self, *of):
        return []

    restore = foreign = half = words = left = nothing


def test_of_faults_that_leave_the_same_one_is_gone_on_from_and_told_of_for_all(tmp_path):
    trial = LeavesText(tmp_path)
    told = [trial.disturb(("EIO", left)) for left in ("kept", "other", "kept", "other", "other")]
    bad = [("other bytes", "[1] given again, it differs: other")]
    assert trial.given == ["kept", "other"] and told == [(True, how) for how in ([], bad, [], bad, bad)]


@pytest.mark.parametrize("left", ["whole, replaced anew", "whole, anew", "half, replaced anew"])
def test_epochs_of_results_that_are_whole_are_not_lost_where_only_overwrite_goes_on(left, tmp_path):
    """Killed after its run directory went, a line may only be begun anew; what it had made is there."""
    broken = [] if left == "whole, replaced anew" else [("lost epoch", "[1] 2 after 7")]
    assert LeavesText(tmp_path).disturb(("kill", left)) == (True, broken)


@pytest.mark.long
@pytest.mark.parametrize(("trace", "broken"), [
    pytest.param((), [], marks=pytest.mark.slow), (("trace",), ["half output", "other bytes"])
])  # fmt: skip
def test_lines_that_are_refused_share_a_first_one_and_one_that_leaves_a_trace_is_told_of(trace, broken, tmp_path):
    done = subprocess.run([sys.executable, "-c", SHARED, tmp_path, *trace], cwd=HERE, text=True,
                          stdout=subprocess.PIPE, check=False)  # fmt: skip
    assert done.stdout.splitlines()[-1] == f"True True {broken}"


@pytest.mark.parametrize("names", [PLAIN[::2], pytest.param(PLAIN[1::2], marks=pytest.mark.long)], ids=len)
def test_two_points_of_each_command_are_disturbed_and_nothing_is_lost(names):
    code, lines = carried_out("--sample", "2", *names)
    assert code == 0 and len(lines) == len(names)


SOME = PLAIN[::3]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "names", [SOME, pytest.param([name for name in PLAIN if name not in SOME], marks=pytest.mark.slow)], ids=len
)
def test_a_second_process_comes_at_two_points_of_each_command_and_nothing_is_lost(names):
    code, lines = carried_out("--beside", "--sample", "2", *names)
    assert code == 0 and len(lines) == len(names)


@pytest.mark.root
@pytest.mark.timeout(900)
def test_a_small_disk_gets_full_under_commands_and_nothing_is_lost():
    names = ["convert", "fit streamed", "sweep", "predict csv"]
    code, lines = carried_out("--small-disk", "--sample", "2", *names)
    assert code == 0 and len(lines) == len(names)


def test_a_few_random_sequences_of_five_commands_leave_what_the_model_says():
    assert carried_out("3", program="sequences.py")[0] == 0


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
