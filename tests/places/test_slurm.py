"""The recipe ``cluster/slurm`` under a real SLURM of two pretended nodes on loopback."""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from clusters import wait_for
from conftest import RECIPES, bigclf_command, bits, free_port, marked, program, run
from making import HERE, environment

pytestmark = [pytest.mark.root, pytest.mark.timeout(900)]


CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket,cred_expire=5
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool/%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd.%n.log
MpiDefault=none
SwitchType=switch/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=30
MinJobAge=600
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=4 RealMemory=16000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=4 RealMemory=16000
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""  # neither control groups nor accounts; a node may say that it has more cores than there are


class Slurm:
    def __init__(self, home):
        self.home, self.env = home, {"SLURM_CONF": str(home / "slurm.conf")}
        self._running = []
        programs = [program(name) for name in ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "scancel")]
        for name in ("state", "spool"):
            (home / name).mkdir()
        home.chmod(0o755)
        (home / "munge.key").write_bytes(os.urandom(128))
        (home / "munge.key").chmod(0o400)
        ports = dict(zip(("controller", "first", "second"), (free_port() for _ in range(3)), strict=True))
        text = CONFIGURATION.format(home=home, host=socket.gethostname().partition(".")[0], **ports)
        (home / "slurm.conf").write_text(text)
        munge = [f"--{name}={home}/munge.{end}" for name, end in (("socket", "socket"), ("key-file", "key"),
                 ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))]  # fmt: skip
        self._start(programs[0], "--foreground", "--force", *munge)
        wait_for((home / "munge.socket").exists, what="munged")
        self._start(programs[1], "-D", "-i")
        for node in ("n1", "n2"):
            self._start(programs[2], "-D", "-N", node)
        wait_for(lambda: self("sinfo", "--noheader", "--format=%t %D").strip() == "idle 2", what="two idle nodes")

    def _start(self, *words):
        with open(self.home / f"{Path(words[0]).name}.out", "ab") as log:
            process = subprocess.Popen(words, env={**os.environ, **self.env}, stdin=subprocess.DEVNULL, stdout=log,
                                       stderr=log)  # fmt: skip
        self._running.append(process)

    def __call__(self, *words, **options):
        try:
            return run(*words, **{"env": {**os.environ, **self.env}} | options)
        except AssertionError:
            if words[0] == "sinfo":  # the controller is not there yet
                return ""
            raise

    def state(self, number):
        """What SLURM has on a job: name -> text."""
        return dict(re.findall(r"(\w+)=(\S*)", self("scontrol", "show", "job", "-o", number)))

    def wait(self, number, seconds):
        """The last word on a job when it is over."""
        over = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        wait_for(lambda: self.state(number)["JobState"] in over, seconds, f"the end of job {number}")
        return self.state(number)

    def close(self):
        with contextlib.suppress(AssertionError):
            self("scancel", "--user=root")
            time.sleep(1)
        for process in reversed(self._running):
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with contextlib.closing(Slurm(tmp_path_factory.mktemp("slurm"))) as there:
        yield there


class Submitted:
    """The recipe submitted in a directory of its own."""

    def __init__(self, slurm, directory, job, *words, **env):
        self.slurm, self.directory = slurm, directory
        path = f"{directory / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        for name in ("orders", "workers", "bin"):
            (directory / name).mkdir(exist_ok=True)
        command = directory / "bin" / "bigclf"  # of what stands here, whatever is installed
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bigclf "$@"\n')
        command.chmod(0o755)
        given = {"WORKERS": "2", "LISTEN": "--host 127.0.0.1", "WORKER_OPTIONS": "--mem=1G", "PRELOAD": "json",
                 "BIGCLF_CHAOS": str(directory / "orders"), "MARK": str(directory), "PATH": path}  # fmt: skip
        env = environment(**slurm.env, **given | env)
        env["PYTHONPATH"] += f"{os.pathsep}{HERE / 'chaos'}"
        words = ["--parsable", "--mem=1G", *words, RECIPES / "slurm" / "train.sbatch", job]
        self.number = slurm("sbatch", *words, cwd=directory, env=env).strip()

    @property
    def log(self):
        path = self.directory / f"bigclf-{self.number}.log"
        return path.read_text() if path.exists() else ""

    def end(self, seconds=400):
        said = self.slurm.wait(self.number, seconds)
        print(self.log)
        for path in sorted((self.directory / f"bigclf-{self.number}").glob("worker-*.log")):
            print("---", path.name, path.read_text()[-2000:], sep="\n")
        return said


@pytest.fixture
def submit(slurm, tmp_path):
    submitted = []

    def begin(job, *words, **options):
        submitted.append(Submitted(slurm, tmp_path, job, *words, **options))
        return submitted[-1]

    yield begin
    for one in submitted:
        with contextlib.suppress(AssertionError):
            slurm("scancel", one.number)
    wait_for(lambda: not marked(str(tmp_path)), 90, "the end of all processes")


@pytest.mark.parametrize("name", ["perceptron", "dcd"])
def test_a_job_has_the_bits_of_this_machine(submit, experiments, name, tmp_path):
    job, model = experiments[name].written(tmp_path / "job")
    there = submit(job)
    said = there.end()
    assert said["JobState"] == "COMPLETED" and said["ExitCode"] == "0:0"
    assert bits(model) == experiments[name].bits


def test_a_walltime_is_a_checkpoint_and_the_bits_are_those_of_one_long_run(submit, slurm, experiments, tmp_path):
    """Workers have a minute and the driver three; visits take longer until it has been back in the queue."""
    job, model = experiments["perceptron"].written(tmp_path / "job", epochs=300)
    alone, reference = experiments["perceptron"].written(tmp_path / "alone", alone=True, epochs=300)
    bigclf_command("run", alone)
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "pace").write_text("0.5")
    there = submit(job, "--time=3", "--signal=B:TERM@30", PRELOAD="chaos_worker",
                   WORKER_OPTIONS="--mem=1G --time=1 --signal=B:TERM@5")  # fmt: skip
    wait_for(lambda: "== start 1 " in there.log, 420, "its second start")
    (tmp_path / "orders" / "pace").unlink()
    said = there.end()
    assert said["JobState"] == "COMPLETED" and int(said["Restarts"]) >= 1
    assert "== its time is over: back into the queue" in there.log and "interrupted" in there.log
    assert bits(model) == bits(reference)
    logs = "".join(path.read_text() for path in (tmp_path / f"bigclf-{there.number}").glob("worker-*.log"))
    assert "== its time is over: back into the queue" in logs


def test_scancel_ends_it_for_good_and_another_goes_on_from_there(submit, slurm, experiments, tmp_path):
    job, model = experiments["dcd"].written(tmp_path / "job")
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / "pace").write_text("0.5")
    there = submit(job, PRELOAD="chaos_worker")
    wait_for((tmp_path / "job" / "run" / "history.jsonl").exists, 120, "an epoch")
    slurm("scancel", there.number)
    said = there.end()
    assert said["JobState"] == "CANCELLED" and "back into the queue" not in there.log
    wait_for(lambda: not marked(str(tmp_path)), 90, "the end of all processes")
    assert not model.exists()
    (tmp_path / "orders" / "pace").unlink()
    assert submit(job).end()["JobState"] == "COMPLETED"
    assert bits(model) == experiments["dcd"].bits


def impatient(job, seconds):
    """The job, which gives up after so many seconds without a worker."""
    table = yaml.safe_load(job.read_text())
    table["cluster"]["patience"] = {"idle": seconds}
    job.write_text(yaml.safe_dump(table))
    return job


def test_while_slurm_has_no_room_for_workers_the_driver_waits(submit, experiments, tmp_path):
    job, model = experiments["perceptron"].written(tmp_path / "job")
    there = submit(impatient(job, 10), WORKER_OPTIONS="--mem=1G --begin=now+45")
    said = there.end()
    assert said["JobState"] == "COMPLETED" and "no usable worker for 1" in there.log
    assert "== the workers' jobs: 2 PENDING (BeginTime); the driver goes on when one has begun" in there.log
    assert bits(model) == experiments["perceptron"].bits
    beside = tmp_path / "mine"
    beside.touch()
    assert model.stat().st_mode & 0o777 == beside.stat().st_mode & 0o777  # no more private than other files
    assert (tmp_path / f"bigclf-{there.number}").stat().st_mode & 0o777 == 0o700


def test_workers_that_do_not_join_end_it_and_their_logs_are_named(submit, experiments, tmp_path):
    job, _ = experiments["perceptron"].written(tmp_path / "job")
    there = submit(impatient(job, 5), PRELOAD="no_such_module")
    said = there.end()
    assert said["JobState"] == "FAILED" and said["ExitCode"] == "5:0"
    assert "2 RUNNING; the driver tries once more" in there.log
    place = tmp_path / f"bigclf-{there.number}"
    assert f"what the workers said: {place}/worker-*.log" in there.log
    assert "no_such_module" in (place / "worker-1.log").read_text()
