"""Runs on machines that fail: directories that go, file systems that are full or read-only, clocks that jump."""

import errno
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest
from making import control_group, environment, random_rows, run_python, shards_of

import bigclf
from bigclf import files
from bigclf.errors import BigclfError

STREAMED = dict(algo="dcd", loss="logistic", tol=0, epochs=4, memory="17MB", progress=False)
FIT = ["--algo", "dcd", "--loss", "logistic", "--tol", "0", "--epochs", "4", "--memory", "17MB"]
FAKETIME = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")

pytestmark = pytest.mark.filterwarnings("ignore::bigclf.errors.ConvergenceWarning")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return shards_of(tmp_path_factory.mktemp("machines") / "s", *random_rows(3000, 30, binary=True), chunk_nnz=5000)


def command(*words, **more):
    return subprocess.run([sys.executable, "-m", "bigclf", *map(str, words)], env=environment(**more), text=True,
                          capture_output=True, check=False)  # fmt: skip


def rows():
    x, y = random_rows(3000, 30, binary=True)
    return ((x[first : first + 500], y[first : first + 500]) for first in range(0, 3000, 500))


@pytest.mark.parametrize("form", ["shards", "iterator"])
def test_the_temporary_directory_is_removed_during_a_run(form, shards, tmp_path, monkeypatch):
    """Rows without a file of their own were kept there: the same bits, or an error that says so."""
    scratch = tmp_path / "scratch"
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setattr(files, "_in_memory", lambda path: False)
    removed, found = [], []

    def remove(record):
        removed.append(os.listdir(scratch) if scratch.exists() else None)
        shutil.rmtree(scratch, ignore_errors=True)

    for callbacks in ([], [remove]):
        scratch.mkdir(exist_ok=True)
        try:
            given, memory = (shards, "17MB") if form == "shards" else (rows(), "200MB")  # to write shards takes more
            found.append(bigclf.fit(given, callbacks=callbacks, **STREAMED | dict(memory=memory)).digest())
        except BigclfError as error:
            assert str(scratch) in str(error)
    assert len(removed) == 4 or len(found) == 1
    assert len({*found}) == 1


@pytest.mark.long
def test_more_files_than_a_process_may_open(tmp_path):
    """A hundred shards, 40 descriptors."""
    import resource

    x, y = random_rows(400, 30, binary=True)
    shards = shards_of(tmp_path / "s", x, y, chunk_nnz=20, shard_nnz=20)
    assert len(shards.files) > 100
    program = [sys.executable, "-m", "bigclf"]
    for words in (["fit", tmp_path / "s", "-o", tmp_path / "m", "--algo", "dcd", "--epochs", "2", "--threads", "2"],
                  ["predict", tmp_path / "m", tmp_path / "s", "-o", tmp_path / "p"],
                  ["convert", "--workers", "2", *texts(tmp_path, 100), tmp_path / "t"]):  # fmt: skip
        done = subprocess.run([*program, *map(str, words)], env=environment(), capture_output=True, text=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40)))  # fmt: skip
        assert done.returncode in (0, 4), (words[0], done.stderr)
    assert len(os.listdir(tmp_path / "p")) == len(shards.files)


@pytest.mark.root
@pytest.mark.parametrize(
    "line",
    [
        "fit S -o OUT --epochs 2 --algo pa1",
        "fit S -o OUT --epochs 2 --algo dcd --loss hinge --threads 2",
        "fit S -o OUT --epochs 2 --algo pa1 --groups 2 --workers 2",
        "convert --workers 2 0.svm 1.svm 2.svm 3.svm OUT",
    ],
)
@pytest.mark.parametrize("most", [4, 8, 12, 64])
def test_more_threads_than_a_command_may_start(shards, tmp_path, most, line):
    """It ends as ever, or soon says which limit to raise, and leaves nothing, no process either."""
    texts(tmp_path, 4)
    words = [{"S": shards.files[0], "OUT": "m"}.get(word, word) for word in line.split()]
    with control_group("pids", most) as members:  # which cannot be removed while processes are left
        done = subprocess.run(
            [sys.executable, "-m", "bigclf", *words], env=environment(OPENBLAS_NUM_THREADS="1"), capture_output=True,
            text=True, cwd=tmp_path, timeout=100, check=False,
            preexec_fn=lambda: members.write_text(str(os.getpid())),
        )  # fmt: skip
    assert "Traceback" not in done.stderr and "unexpected" not in done.stderr
    if most == 64:
        assert done.returncode in (0, 4), done.stderr
    elif done.returncode not in (0, 4):
        assert done.returncode in (1, 5) and "threads" in done.stderr, done.stderr
        assert not (tmp_path / "m").exists()


@pytest.mark.root
@pytest.mark.parametrize(("size", "word"), [("64m", "ok"), ("1m", "warning")])
def test_little_shared_memory(shards, tmp_path, size, word):
    """That of a container: workers and parallel conversion work, and `doctor` says where there may be too little."""
    rows = texts(tmp_path, 6)
    lines = [f"mount -t tmpfs -o size={size} tmpfs /dev/shm", 'python=$1; shift; "$python" -m bigclf doctor > doctor',
             '"$python" -m bigclf convert --workers 2 "${@:2}" t && "$python" -m bigclf fit "$1" -o m --algo pa1 '
             '--epochs 2 --groups 2 --workers 2']  # fmt: skip
    program = ["unshare", "-m", "bash", "-c", "\n".join(lines), "bash", sys.executable, shards.files[0], *rows]
    done = subprocess.run(
        [*map(str, program)], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 4), done.stderr
    told = next(line for line in (tmp_path / "doctor").read_text().splitlines() if "shared memory" in line)
    assert told.split()[0] == word
    assert bigclf.load(tmp_path / "m").digest() == bigclf.fit(
        shards.files[0], algo="pa1", epochs=2, groups=2, progress=False
    ).digest()  # fmt: skip


def texts(directory, count):
    for number in range(count):
        (directory / f"{number}.svm").write_text(f"{number % 2} {number + 1}:1\n")
    return [directory / f"{number}.svm" for number in range(count)]


# File systems of their own


@pytest.fixture
def mounted(tmp_path):
    """options -> a directory on a tmpfs that is mounted with them, remounted when it is asked for again."""
    place = tmp_path / "mounted"

    def mount(options):
        again = place.exists()
        place.mkdir(exist_ok=True)
        option = f"remount,{options}" if again else options
        subprocess.run(["mount", "-t", "tmpfs", "-o", option, "tmpfs", place], check=True)
        return place

    yield mount
    subprocess.run(["umount", "-l", place], check=False)


@pytest.mark.root
@pytest.mark.parametrize(
    ("options", "said"), [("ro", "Read-only file system"), ("nr_inodes=1", "No space left on device")]
)
def test_a_run_directory_that_cannot_be_written_is_refused_at_the_start(shards, mounted, tmp_path, options, said):
    place = mounted(options)
    done = command("fit", shards.files[0], "-o", tmp_path / "m", *FIT, "--run-dir", place / "run")
    assert done.returncode == 1 and said in done.stderr and str(place) in done.stderr
    assert "Traceback" not in done.stderr and "epoch" not in done.stderr and not (tmp_path / "m").exists()


@pytest.mark.root
def test_a_disk_that_is_full_at_a_checkpoint_costs_that_one_alone(shards, mounted, tmp_path):
    """Room for the first checkpoint and no other: the run ends, warns, and a run that is resumed has its bits."""
    whole = bigclf.fit(shards, **STREAMED).digest()
    place = mounted("size=16m")
    first = command("fit", shards.files[0], "-o", tmp_path / "m", *FIT[:-3], "1", *FIT[-2:], "--run-dir", place / "run",
                    "--checkpoint-every", "0")  # fmt: skip
    assert first.returncode == 4, first.stderr
    told = os.statvfs(place)
    mounted(f"size={(told.f_blocks - told.f_bfree + 1) * told.f_frsize}")
    words = ["fit", shards.files[0], "-o", tmp_path / "m", *FIT, "--run-dir", place / "run", "--checkpoint-every", "0"]
    full = command(*words, "--resume")
    assert full.returncode == 4 and "No space left on device" in full.stderr, full.stderr
    assert "the last one stays" in full.stderr and bigclf.load(tmp_path / "m").digest() == whole
    mounted("size=16m")
    again = command(*words, "--resume")
    assert again.returncode == 4 and bigclf.load(tmp_path / "m").digest() == whole, again.stderr


@pytest.fixture
def quota(tmp_path):
    """bytes or "none" -> a directory on a file system of its own that takes no more, of root neither."""
    if shutil.which("mkfs.btrfs") is None:
        pytest.skip("needs a file system with quotas for root (Debian: btrfs-progs)")
    image, place = tmp_path / "image", tmp_path / "quota"
    with open(image, "wb") as file:
        file.truncate(200_000_000)
    place.mkdir()
    subprocess.run(["mkfs.btrfs", "-q", "--mixed", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, place], check=True)

    def btrfs(*words):
        subprocess.run(["btrfs", *map(str, words)], check=True, stdout=subprocess.DEVNULL)

    def limit(most):
        btrfs("qgroup", "limit", most, place / "ours")
        return place / "ours"

    try:
        btrfs("quota", "enable", place)
        btrfs("subvolume", "create", place / "ours")
        yield limit
    finally:
        subprocess.run(["umount", "-l", place], check=False)


FULL = """
import os, sys
import numpy as np
from bigclf import files
mapped = [files.filed_array(1_000_000, np.dtype("f8"), sys.argv[1]), files.filed_copy(np.ones(1_000_000), sys.argv[1])]
for array in mapped:
    array[:] = 1
os.sync()
with open(sys.argv[1] + "/rest", "wb") as file:
    taken = 0
    for size in (1 << 22, 1 << 16, 1 << 12):
        try:
            while True:
                os.posix_fallocate(file.fileno(), taken, size)
                taken += size
        except OSError as error:
            print(error.errno)
os.sync()
for k in range(3):
    for array in mapped:
        array[:] = k
    os.sync()
print(int(sum(array.sum() for array in mapped)))
"""


@pytest.mark.root
def test_what_is_kept_in_mapped_files_is_written_again_where_others_filled_a_disk_that_copies_on_write(quota):
    """It was reserved. Else the process ends by SIGBUS, without a word."""
    told = run_python(FULL, quota("none")).split()
    assert told == [str(errno.ENOSPC)] * 3 + ["4000000"]


@pytest.mark.root
def test_a_run_directory_over_quota_is_refused_at_the_start(shards, quota, tmp_path):
    place = quota("16K")  # which the directory itself takes
    done = command("fit", shards.files[0], "-o", tmp_path / "m", *FIT, "--run-dir", place / "run")
    assert done.returncode == 1 and "quota exceeded" in done.stderr and str(place) in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and "epoch" not in done.stderr and not (tmp_path / "m").exists()


@pytest.mark.root
def test_a_quota_that_is_reached_in_a_run_costs_no_model(shards, quota, tmp_path):
    """What could not be written down is warned of, or the run ends; with room it is resumed."""
    whole = bigclf.fit(shards, **STREAMED).digest()
    place = quota("120K")
    words = ["fit", shards.files[0], "-o", tmp_path / "m", *FIT, "--run-dir", place / "run", "--checkpoint-every", "0"]
    done = command(*words)
    assert "quota exceeded" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 4 and bigclf.load(tmp_path / "m").digest() == whole
    quota("none")
    again = command(*words, "--resume")
    assert again.returncode == 4 and bigclf.load(tmp_path / "m").digest() == whole, again.stderr


@pytest.mark.root
def test_a_quota_that_is_reached_in_a_conversion_leaves_nothing_half(quota, tmp_path):
    source, place = tmp_path / "rows.svm", quota("200K")
    source.write_text("".join(f"{k % 2} {k + 1}:{k / 7} {k + 50_000}:{k / 3}\n" for k in range(20_000)))
    done = command("convert", source, place / "s", "--workers", "1")
    assert done.returncode == 1 and "quota exceeded" in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not (place / "s").exists()
    quota("none")
    assert command("convert", source, place / "s", "--workers", "1").returncode == 0
    assert os.listdir(place) == ["s"] and bigclf.Dataset(place / "s").n_rows == 20_000


@pytest.mark.root
def test_decoded_rows_on_a_small_disk_are_fewer_and_the_bits_the_same(shards, mounted):
    whole = bigclf.fit(shards, **STREAMED)
    small = bigclf.fit(shards, workers=bigclf.Workers(local_dir=mounted("size=64k")), **STREAMED)
    assert small.digest() == whole.digest()
    assert small.result_.plan["memory"] == whole.result_.plan["memory"]


# Clocks


SHIFTED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static long shift(void) {
    long hours = 0;
    FILE *file = fopen(getenv("SHIFTED_CLOCK"), "r");
    if (file) {
        if (fscanf(file, "%ld", &hours) != 1) hours = 0;
        fclose(file);
    }
    return 3600 * hours;
}

int clock_gettime(clockid_t clock, struct timespec *found) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, found);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) found->tv_sec += shift();
    return code;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    struct timespec now;
    int code = clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return code;
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}
"""


class Clock:
    """The wall clock of a process and all that it starts, set from here: by a library compiled here, or by libfaketime
    where there is no compiler. Under that one, which changes timed waits, too, a cluster stood still."""

    def __init__(self, directory):
        self.path = directory / "clock"
        self.set(0)
        if shutil.which("cc") is None:
            self.environment = {"LD_PRELOAD": FAKETIME[0], "FAKETIME_TIMESTAMP_FILE": str(self.path),
                                "FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1"}  # fmt: skip
            return
        source, library = directory / "shifted.c", directory / "shifted.so"
        source.write_text(SHIFTED)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(self.path)}

    def set(self, hours):
        beside = self.path.with_suffix(".new")  # never seen half written
        beside.write_text(f"{hours:+d}h\n")
        beside.replace(self.path)


needs_clock = pytest.mark.skipif(
    not (FAKETIME or shutil.which("cc")), reason="needs libfaketime (Debian: faketime) or a C compiler"
)


@pytest.mark.long
@needs_clock
@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_jumps_under_a_run_lets_nobody_else_in_and_changes_no_bit(shards, tmp_path, hours):
    """The run begins an hour off, and jumps by two while it is held; the other process has the true time."""
    whole = bigclf.fit(shards, **STREAMED | dict(epochs=200)).digest()
    clock, lease = Clock(tmp_path), tmp_path / "run" / "lease"
    line = ["fit", shards.files[0], "-o", tmp_path / "m", *FIT[:-3], "200", *FIT[-2:], "--run-dir", tmp_path / "run"]
    clock.set(hours)
    run = subprocess.Popen([sys.executable, "-m", "bigclf", *map(str, line)], text=True, stderr=subprocess.PIPE,
                           env=environment(**clock.environment))  # fmt: skip
    try:
        while run.poll() is None and not is_off(lease, hours):
            time.sleep(0.01)
        run.send_signal(signal.SIGSTOP)
        clock.set(-hours)
        second = command(*line[:3], tmp_path / "other", *line[4:])
        assert second.returncode == 1 and "is in use by process" in second.stderr, second.stderr
        run.send_signal(signal.SIGCONT)
        said = run.communicate(timeout=250)[1]
    finally:
        run.kill()
        run.wait()
    assert run.returncode in (0, 4), said
    assert bigclf.load(tmp_path / "m").digest() == whole


def on_a_cluster(shards, directory, clock):
    """The command line of a run on processes of its own, and the run, five epochs after it began."""
    history = directory / "run" / "history.jsonl"
    line = ["fit", shards.files[0], "-o", directory / "m", "--algo", "pa1", "--epochs", "60", "--groups", "2",
            "--workers", "2", "--run-dir", directory / "run", "--checkpoint-every", "0"]  # fmt: skip
    run = subprocess.Popen([sys.executable, "-m", "bigclf", *map(str, line)], text=True, stderr=subprocess.PIPE,
                           env=environment(**clock.environment))  # fmt: skip
    while run.poll() is None and not (history.exists() and history.read_text().count("\n") > 5):
        time.sleep(0.01)
    assert run.poll() is None
    return line, run


def ended(run):
    run.kill()
    run.wait()


@pytest.mark.long
@needs_clock
def test_a_clock_that_jumps_ahead_under_a_whole_cluster_changes_no_bit(shards, tmp_path):
    """Of driver, scheduler and workers, in the middle of a run."""
    clock = Clock(tmp_path)
    _, run = on_a_cluster(shards, tmp_path, clock)
    try:
        clock.set(1)
        said = run.communicate(timeout=250)[1]
    finally:
        ended(run)
    assert run.returncode in (0, 4), said
    assert bigclf.load(tmp_path / "m").digest() == bits_on_a_cluster(shards)


@pytest.mark.long
@needs_clock
def test_a_clock_that_is_set_back_under_a_whole_cluster_is_warned_of_and_the_run_can_be_resumed(shards, tmp_path):
    """Dask holds its messages back until the clock is as late as it was: the run may end, or be ended."""
    clock = Clock(tmp_path)
    line, run = on_a_cluster(shards, tmp_path, clock)
    said = []
    reading = threading.Thread(target=lambda: said.extend(run.stderr), daemon=True)
    reading.start()
    try:
        clock.set(-1)
        end = time.monotonic() + 100
        while not any("of this machine was set back by 3600 s" in one for one in said):
            assert time.monotonic() < end and run.poll() is None, said
            time.sleep(0.05)
        for _ in range(2):
            run.send_signal(signal.SIGINT)
            time.sleep(1)
        code = run.wait(timeout=60)
    finally:
        ended(run)
    reading.join(10)
    assert code in (0, 4, 6) and (code != 6 or any("--resume" in one for one in said)), said
    done = command(*line, "--resume")
    assert done.returncode in (0, 4), done.stderr
    assert bigclf.load(tmp_path / "m").digest() == bits_on_a_cluster(shards)


def bits_on_a_cluster(shards):
    return bigclf.fit(shards, algo="pa1", epochs=60, groups=2, progress=False).digest()


def is_off(lease, hours):
    """Whether the lease was written under a clock that is so far off."""
    try:
        return abs(json.loads(lease.read_text())["heartbeat"] - time.time() - 3600 * hours) < 600
    except (OSError, ValueError):
        return False
