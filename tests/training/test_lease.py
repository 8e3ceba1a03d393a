"""The lease of a run directory: one process at a time, whatever the clocks say."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from making import environment
from test_cli import TEXT
from test_cli import bigclf as command

from bigclf import files
from bigclf.errors import RunError
from bigclf.training.records import lease as module
from bigclf.training.records.lease import ALIVE, DEAD, UNKNOWN, Clock, Lease, Timing, birth_of, state_of
from bigclf.training.records.run_directory import Checkpoint, RunDirectory

HOUR = 3600.0
NEVER = Timing(heartbeat=1000.0)  # the thread writes nothing while a test lasts


class World:
    """A wall clock that can be set, and waiting that takes no time; ``during`` is done at each wait."""

    def __init__(self, now=1.8e9, during=lambda waits: None):
        self.now, self.waited, self.waits, self.during = now, 0.0, 0, during
        self.clock = Clock(lambda: self.now, self.pause)

    def pause(self, seconds):
        self.now, self.waited, self.waits = self.now + seconds, self.waited + seconds, self.waits + 1
        self.during(self.waits)


def lease_at(path, world, timing=NEVER):
    return Lease(str(path / "lease"), timing, world.clock)


def foreign(path, heartbeat, host="elsewhere", pid=77, **more):
    """Write the lease of a process of another host."""
    owner = {"host": host, "pid": pid, "started": 1.0, "heartbeat": heartbeat, "token": "t", "beat": 1, **more}
    (path / "lease").write_text(json.dumps(owner))
    return owner


@pytest.fixture
def child():
    """A process that does nothing; killed in the end."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process
    process.kill()
    process.wait()


def of_process(pid, **more):
    """What the lease of a process of this host says."""
    birth = birth_of(pid)
    return {"host": socket.gethostname(), "pid": pid, "started": module._created(pid), "heartbeat": 0.0,
            "birth": birth and birth._asdict(), **more}  # fmt: skip


# Alone


def test_take_hold_and_give_back(tmp_path):
    world = World()
    lease = lease_at(tmp_path, world)
    lease.acquire()
    told = json.loads((tmp_path / "lease").read_text())
    assert told["host"] == socket.gethostname() and told["pid"] == os.getpid() and told["heartbeat"] == world.now
    lease.acquire()  # it is held already
    assert json.loads((tmp_path / "lease").read_text()) == told
    lease.beat()
    assert json.loads((tmp_path / "lease").read_text())["beat"] == told["beat"] + 1
    lease.release()
    lease.release()
    lease.beat()  # one that was under way
    assert not (tmp_path / "lease").exists() and world.waits == 0


def test_the_thread_gives_signs_of_life_and_survives_a_full_disk(tmp_path, monkeypatch):
    beats, full = threading.Semaphore(0), [True]
    write = Lease._write

    def failing(self):
        beats.release()
        if threading.current_thread() is not threading.main_thread() and full[0]:
            full[0] = False
            raise OSError(28, "No space left on device")
        write(self)

    monkeypatch.setattr(Lease, "_write", failing)
    lease = Lease(str(tmp_path / "lease"), Timing(heartbeat=0.01))
    lease.acquire()
    for _ in range(4):
        assert beats.acquire(timeout=60)
    lease.release()
    assert not (tmp_path / "lease").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"host": 1, "pid": 2, "started": 0, "heartbeat": 3}',
                                  '{"host": "a", "pid": "b", "started": 0, "heartbeat": 3}'])  # fmt: skip
def test_a_file_that_says_nothing_is_nobody_s(tmp_path, text):
    (tmp_path / "lease").write_text(text)
    lease = lease_at(tmp_path, World())
    lease.acquire()
    lease.release()


# This host: the process itself is looked at, and no clock


@pytest.mark.parametrize("jump", [-HOUR, 0.0, HOUR])
def test_a_living_process_of_this_host_is_alive_whatever_the_clock(tmp_path, child, jump, monkeypatch):
    (tmp_path / "lease").write_text(json.dumps(of_process(child.pid, heartbeat=1.8e9)))
    # the start as psutil tells it moves with the clock
    monkeypatch.setattr(module, "_created", lambda pid: pytest.fail("asked for a time"))
    with pytest.raises(RunError, match=f"in use by process {child.pid} on {socket.gethostname()} .last sign of life"):
        lease_at(tmp_path, world := World(1.8e9 + jump)).acquire()
    assert world.waits == 0


@pytest.mark.skipif(birth_of(os.getpid()) is None, reason="there is no /proc")
@pytest.mark.parametrize("jump", [-HOUR, 0.0, HOUR])
def test_a_number_given_to_another_process_is_dead_at_once(tmp_path, child, jump):
    owner = of_process(child.pid, heartbeat=1.8e9)
    owner["birth"]["tick"] -= 1
    (tmp_path / "lease").write_text(json.dumps(owner))
    lease = lease_at(tmp_path, world := World(1.8e9 + jump))
    lease.acquire()
    lease.release()
    assert world.waits == 0


def test_a_dead_process_and_a_zombie_are_dead_at_once(tmp_path, child):
    owner = of_process(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead and not yet collected
    assert state_of(owner, 1.0, Timing()) == DEAD
    child.wait()
    assert state_of(owner, 1.0, Timing()) == DEAD
    assert state_of({**owner, "birth": None}, 1.0, Timing()) == DEAD  # an older file, or a system without /proc


def test_a_stopped_process_is_alive(child):
    os.kill(child.pid, signal.SIGSTOP)
    assert state_of(of_process(child.pid), 10 * HOUR, Timing()) == ALIVE


def test_older_files_are_read(child):
    old = {**of_process(child.pid), "birth": None}
    assert state_of(old, HOUR, Timing()) == ALIVE
    assert state_of({**old, "started": old["started"] - HOUR}, 1.0, Timing()) == UNKNOWN  # or the clock jumped


@pytest.mark.skipif(birth_of(os.getpid()) is None, reason="there is no /proc")
@pytest.mark.parametrize("part", ["boot", "space"])
def test_the_name_of_a_host_alone_proves_nothing(tmp_path, child, part):
    """Two containers of one name, or this machine before it started anew: watched like another host."""
    owner = of_process(child.pid, heartbeat=1.8e9)
    owner["birth"][part] = "other"
    (tmp_path / "lease").write_text(json.dumps(owner))
    lease = lease_at(tmp_path, world := World(1.8e9))
    lease.acquire()
    lease.release()
    assert world.waited >= 3 * NEVER.heartbeat


# Another host: what it writes is watched


@pytest.mark.parametrize("age", [0.0, 59.0, -9.0])
def test_a_fresh_lease_is_believed_at_once(tmp_path, age):
    foreign(tmp_path, 1.8e9 - age)
    lease = lease_at(tmp_path, world := World(), Timing())
    with pytest.raises(RunError, match=rf"process 77 on elsewhere .last sign of life {max(age, 0):.0f} s ago"):
        lease.acquire()
    assert world.waits == 0


@pytest.mark.parametrize("age", [61.0, HOUR, -11.0, -HOUR])
def test_a_lease_that_looks_old_or_early_and_does_not_change_is_taken_over(tmp_path, caplog, age):
    foreign(tmp_path, 1.8e9 - age)
    lease = lease_at(tmp_path, world := World(), Timing())
    lease.acquire()
    assert 30 <= world.waited <= 40 and json.loads((tmp_path / "lease").read_text())["pid"] == os.getpid()
    lease.release()
    text = [record.getMessage() for record in caplog.records]
    assert len(text) == 2 and "process 77 on elsewhere" in text[0] and "watching it for 30 s" in text[0]
    assert "did not change for 30 s: taken over" in text[1]
    assert ("in the future" in text[0]) == (age < 0)


@pytest.mark.parametrize("age", [61.0, HOUR, -11.0, -HOUR])
@pytest.mark.parametrize("wait", [1, 6])
def test_one_that_changes_meanwhile_is_refused(tmp_path, age, wait):
    """Its clock, or ours, has jumped: it lives all the same."""

    def beat(waits):
        if waits == wait:
            foreign(tmp_path, 1.8e9 - age, beat=2)

    foreign(tmp_path, 1.8e9 - age)
    with pytest.raises(RunError, match="in use by process 77 on elsewhere .last sign of life 0 s ago"):
        lease_at(tmp_path, world := World(during=beat), Timing()).acquire()
    assert world.waits == wait and json.loads((tmp_path / "lease").read_text())["pid"] == 77


def test_one_given_back_meanwhile_is_taken(tmp_path):
    foreign(tmp_path, 1.8e9 - HOUR)
    lease = lease_at(tmp_path, world := World(during=lambda waits: os.unlink(tmp_path / "lease")), Timing())
    lease.acquire()
    lease.release()
    assert world.waits == 1


def test_a_clock_that_jumps_while_watching_changes_nothing(tmp_path):
    foreign(tmp_path, 1.8e9 - HOUR)
    world = World()
    world.during = lambda waits: setattr(world, "now", world.now + (-1) ** waits * HOUR)
    lease = lease_at(tmp_path, world, Timing())
    lease.acquire()
    lease.release()
    assert 30 <= world.waited <= 40


# Who was taken for dead and is not


def test_who_lost_the_lease_writes_nothing_more(tmp_path, caplog):
    directory = RunDirectory(tmp_path)
    directory.acquire()
    directory.record({"epoch": 1}, now=True)
    foreign(tmp_path, time.time())
    with pytest.raises(RunError, match="taken over by process 77 on elsewhere"):
        directory.save(Checkpoint({"w": np.zeros(3)}, [], {}), 1, 0)
    with pytest.raises(RunError, match="taken over by process 77 on elsewhere"):
        directory.record({"epoch": 2}, now=True)
    assert directory.checkpoints() == [] and [r["epoch"] for r in directory.history()] == [1]
    directory.release()
    assert json.loads((tmp_path / "lease").read_text())["pid"] == 77  # the other's stays


def test_a_heartbeat_notices_and_the_thread_ends(tmp_path, caplog):
    lease = Lease(str(tmp_path / "lease"), Timing(heartbeat=0.01))
    lease.acquire()
    thread = next(t for t in threading.enumerate() if getattr(t, "_target", None) == lease._beat_on)
    written = lease.owner()
    while (there := lease.owner()) == written:  # the thread is at work
        time.sleep(0.005)
    with lease._writing:
        foreign(tmp_path, time.time())
    thread.join(60)
    assert not thread.is_alive() and lease.lost["pid"] == 77 and there["beat"] > written["beat"]
    assert "taken over by process 77" in caplog.text
    lease.release()


def test_two_that_begin_at_the_same_moment(tmp_path, monkeypatch):
    """Neither sees the other first; the one that wrote first learns of the second."""
    first, second = (lease_at(tmp_path, World()) for _ in range(2))
    write = Lease._write

    def both(self):
        write(self)
        if self is first:
            monkeypatch.setattr(Lease, "_write", write)
            second._token = "second"
            write(second)

    monkeypatch.setattr(Lease, "_write", both)
    with pytest.raises(RunError, match="taken over"):
        first.acquire()
    assert not first.held


DRIVER = """
import sys
from bigclf.errors import RunError
from bigclf.training.records.run_directory import RunDirectory
directory = RunDirectory(sys.argv[1])
try:
    directory.acquire()
    print("held", flush=True)
except RunError as error:
    print(error, flush=True)
sys.stdin.read()
"""


def test_a_second_driver_is_refused_and_told_who_holds_it(tmp_path):
    drivers = []
    try:
        said = []
        for _ in range(2):
            drivers.append(
                subprocess.Popen([sys.executable, "-c", DRIVER, str(tmp_path)], env=environment(), text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            )  # fmt: skip
            said.append(drivers[-1].stdout.readline())
        assert said[0] == "held\n" and f"in use by process {drivers[0].pid} on {socket.gethostname()}" in said[1]
    finally:
        for driver in drivers:
            driver.kill()
            driver.wait()
            driver.stdin.close()
            driver.stdout.close()
    third = Lease(str(tmp_path / "lease"))
    third.acquire()  # its owner is dead
    third.release()


# The command line beside a run that lives


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Shards."""
    path = tmp_path_factory.mktemp("lease")
    (path / "a.svm").write_text(TEXT)
    command("convert", path / "a.svm", path / "shards", "--workers", 1)
    return path


def content(directory):
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


def alive_in(directory, child):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "lease").write_text(json.dumps(of_process(child.pid, token="t", beat=1)))


def test_of_two_that_begin_at_the_same_moment_one_goes_on(tmp_path, monkeypatch):
    """Each found no lease, and both ended: the one that wrote last because of the run that the other had begun, the
    other because its lease was taken over."""
    first, second = (Lease(str(tmp_path / "lease")) for _ in range(2))
    write, inside = first._write, threading.Event()
    monkeypatch.setattr(first, "_write", lambda: (inside.set(), time.sleep(0.3), write()))
    beginning = threading.Thread(target=first.acquire)
    beginning.start()
    assert inside.wait(10)
    with pytest.raises(RunError, match="is in use by process"):
        second.acquire()
    beginning.join()
    first.check()
    assert first.held and not second.held
    first.release()
    second.acquire()
    second.release()


def test_one_that_stands_still_as_it_begins_keeps_no_other_waiting_for_ever(tmp_path):
    with files.in_turn(tmp_path), files.in_turn(tmp_path, patience=0.1):
        pass


def unfinished_fit(place, path):
    """A run that another process has begun: its words, and the content of its directory."""
    words = ("fit", place / "shards", "-o", path / "m", "--tol", "1e-9")
    command(*words, "--epochs", 1, code=4)
    (path / "m").unlink()
    return words


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("more", [[], ["--resume"], ["--overwrite"], ["--resume", "--overwrite"]], ids=" ".join)
def test_a_run_under_way_is_not_touched_by_the_same_line(place, tmp_path, child, checkpoint, more):
    words = unfinished_fit(place, tmp_path)
    for state in [] if checkpoint else (tmp_path / "m.run").glob("state-*"):
        state.unlink()
    (tmp_path / "m.run" / "model.bigclf").unlink()
    alive_in(tmp_path / "m.run", child)
    before = content(tmp_path)
    _, complaint = command(*words, *more, code=1)
    assert f"m.run is in use by process {child.pid} on " in complaint and "--overwrite" not in complaint
    assert content(tmp_path) == before


def test_a_run_under_way_that_replaces_a_model_is_told_nothing(place, tmp_path, child):
    """A note of what it may replace was put into its directory."""
    words = unfinished_fit(place, tmp_path)
    (tmp_path / "m").write_bytes((tmp_path / "m.run" / "model.bigclf").read_bytes())
    alive_in(tmp_path / "m.run", child)
    before = content(tmp_path)
    _, complaint = command(*words, "--resume", "--overwrite", code=1)
    assert f"m.run is in use by process {child.pid} on " in complaint and content(tmp_path) == before


def test_a_dead_run_is_replaced_and_its_lease_goes(place, tmp_path, child):
    words = unfinished_fit(place, tmp_path)
    alive_in(tmp_path / "m.run", child)
    child.kill()
    child.wait()
    command(*words[:-1], "0.1", "--overwrite")
    assert not (tmp_path / "m.run").exists()


def test_an_error_removes_no_run_that_was_there_before(place, tmp_path):
    words = unfinished_fit(place, tmp_path)
    for state in (tmp_path / "m.run").glob("state-*"):
        state.unlink()
    before = content(tmp_path)
    _, complaint = command(*words, "--C", 3, "--resume", code=1)
    assert "holds another run" in complaint and content(tmp_path) == before


@pytest.mark.parametrize("left", ["", "replaces.json", "notes.txt"])
def test_what_a_run_left_that_came_to_no_checkpoint_keeps_no_other_from_beginning(place, tmp_path, left):
    """The same line without --resume advises it; where it had leave to replace a model, that was not given to this."""
    words = unfinished_fit(place, tmp_path)
    for file in [*(tmp_path / "m.run").glob("state-*"), tmp_path / "m.run" / "model.bigclf"]:
        file.unlink()
    (tmp_path / "m.run" / "rows-00000-00000001-000000.safetensors").write_bytes(b"of a state that was never written")
    assert "--resume to continue it" in command(*words, "--C", 3, code=1)[1]
    if left:
        (tmp_path / "m.run" / left).write_text("{}")
        assert "holds another run; it differs in: " in command(*words, "--C", 3, "--resume", code=1)[1]
        return
    command(*words, "--C", 3, "--epochs", 2, "--resume", code=4)
    asked = json.loads((tmp_path / "m.run" / "run.json").read_text())
    assert "3.0" in json.dumps(asked["identity"])
    history = (tmp_path / "m.run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in history] == [*range(1, len(history) + 1)]
    assert not (tmp_path / "m.run" / "rows-00000-00000001-000000.safetensors").exists()


@pytest.mark.parametrize("name", ["sweep", "path"])
@pytest.mark.parametrize("held", ["run", "run/grid", "run/best", "the output"])
@pytest.mark.parametrize("more", [[], ["--overwrite"]], ids=" ".join)
def test_a_grid_under_way_is_not_removed(place, tmp_path, child, name, held, more):
    out = tmp_path / "out"
    grid = ["--grid", "C=0.1,1", "--folds", 2] if name == "sweep" else ["--C", "0.1,1"]
    (out / "run").mkdir(parents=True)
    (out / "run" / "history.jsonl").write_text("")
    alive_in(out if held == "the output" else out / held, child)
    if held == "the output":
        (out / "lease").rename(out / ".lease")
    before = content(out)
    _, complaint = command(name, place / "shards", "-o", out, *grid, *more, code=1)
    assert f"in use by process {child.pid} on " in complaint
    assert content(out) == before


def test_the_demo_and_jobs_leave_what_is_under_way(place, tmp_path, child):
    alive_in(tmp_path / "demo", child)
    (tmp_path / "demo" / "lease").rename(tmp_path / "demo" / ".lease")
    (tmp_path / "demo" / "demo.json").write_text("{}")
    alive_in(tmp_path / "job.run", child)
    (tmp_path / "job.run" / "job.yaml").write_text("before")
    (tmp_path / "job.yaml").write_text(
        f"data: {{train: {place / 'shards'}}}\nrun: {{dir: {tmp_path / 'job.run'}}}\n"
        f"outputs: {{model: {tmp_path / 'm'}}}\n"
    )
    before = content(tmp_path)
    for words in (["demo", "--dir", tmp_path / "demo", "--rows", 1000], ["run", tmp_path / "job.yaml", "--overwrite"]):
        _, complaint = command(*words, code=1)
        assert f"in use by process {child.pid} on " in complaint
    assert content(tmp_path) == before


def test_what_kernels_count_in_plain_python_is_written_down(tmp_path):
    """Without compilation kernels return numpy's numbers, which JSON does not know."""
    directory = RunDirectory(tmp_path)
    directory.acquire()
    directory.begin({"identity": {"rows": np.int64(3)}}, resume=False)
    directory.record({"epoch": np.int64(1), "done": np.bool_(True)}, now=True)
    assert directory.save(Checkpoint({}, [], {"reads": np.int64(2)}), 1, 0)
    assert directory.history() == [{"epoch": 1, "done": True}]
    assert directory.newest(0).facts["reads"] == 2
    directory.begin({"identity": {"rows": np.int64(3)}}, resume=True)
    directory.release()
