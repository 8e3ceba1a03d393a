"""The recipe ``cluster/ssh`` against a real SSH server on loopback, which plays two machines."""

import os
import re
import signal
import subprocess
import sys
import uuid

import dask
import distributed
import psutil
import pytest
import yaml
from clusters import wait_for
from conftest import RECIPES, bigclf_command, bits, free_port, marked, program, run
from making import environment

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def ssh(tmp_path_factory):
    """The command that reaches ``one``, ``two`` (this machine both) and ``gone`` (nobody)."""
    home, server, port = tmp_path_factory.mktemp("ssh"), program("sshd"), free_port()
    program("ssh")
    for name in ("hostkey", "key"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / name)
    os.makedirs("/run/sshd", exist_ok=True)
    (home / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {home}/hostkey\nPidFile {home}/sshd.pid\n"
        f"AuthorizedKeysFile {home}/key.pub\nPasswordAuthentication no\nStrictModes no\nUsePAM no\n"
        "PermitRootLogin prohibit-password\n"
    )
    (home / "config").write_text(
        f"Host one two\n  Port {port}\n\nHost gone\n  Port {free_port()}\n\n"
        f"Host *\n  HostName 127.0.0.1\n  IdentityFile {home}/key\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {home}/known\n  StrictHostKeyChecking accept-new\n"
    )
    with open(home / "log", "w") as log:
        process = subprocess.Popen([server, "-D", "-e", "-f", str(home / "sshd_config")], stderr=log)
    wait_for(lambda: "Server listening" in (home / "log").read_text(), what="sshd")
    yield f"ssh -F {home}/config"
    process.terminate()
    process.wait()


class Cluster:
    """The recipe's program, and how to use what it started."""

    def __init__(self, started, ssh, directory, *hosts, **more):
        self.mark, self.directory, port = uuid.uuid4().hex, directory / "certificates", free_port()
        words = [sys.executable, RECIPES / "ssh" / "start.py", *hosts, "--ssh", ssh, "--port", port]
        words += ["--certificates", self.directory, "--directory", self.mark, "--preload", "json"]
        words += ["--memory-limit", "1GB", "--temporary", directory]
        env = environment(MARK=self.mark)
        for name in ("PYTHONPATH", "BIGCLF_CACHE_DIR", "MARK"):
            words += ["--env", f"{name}={env[name]}"]
        self.process = started(words, env=env)
        self.env = {"DASK_CONFIG": str(self.directory)}

    @property
    def address(self):
        wait_for(lambda: "tls://" in self.process.said() or self.process.poll() is not None, 60, "an address")
        return re.search(r"tls://[\d.:]+\d", self.process.said()).group()

    def client(self):
        tree = yaml.safe_load((self.directory / "tls.yaml").read_text())
        with dask.config.set(distributed=dask.config.merge(dask.config.get("distributed"), tree["distributed"])):
            return distributed.Client(self.address, timeout=60, set_as_default=False)

    def end(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(60) == 0
        wait_for(lambda: not marked(self.mark), what="the end of all processes")


@pytest.fixture
def cluster(started, ssh, tmp_path):
    yield lambda *hosts: Cluster(started, ssh, tmp_path, *hosts)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """What is sent to the machines is removed from this one's home."""
    import shutil
    from pathlib import Path

    before = set(Path.home().iterdir())
    yield
    for path in set(Path.home().iterdir()) - before:
        if re.fullmatch("[0-9a-f]{32}", path.name):
            shutil.rmtree(path)


@pytest.mark.parametrize("name", ["perceptron", "dcd"])
def test_a_job_has_the_bits_of_this_machine(cluster, experiments, name, tmp_path):
    there = cluster("one", "two")
    job, model = experiments[name].written(tmp_path / "job")
    directory = experiments[name].directory
    job.write_text(job.read_text().replace(f"{directory}/", ""))  # paths of the driver's directory, which is not theirs
    bigclf_command("submit", job, "--scheduler", there.address, cwd=directory, **there.env)
    assert bits(model) == experiments[name].bits
    with there.client() as client:
        wait_for(lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == 2, what="two workers")
        names = {worker["name"] for worker in client.scheduler_info(n_workers=-1)["workers"].values()}
    assert names == {"one", "two"}
    there.end()


def test_what_ends_is_started_again_and_the_run_goes_on(cluster, experiments, tmp_path, started):
    there = cluster("one", "two")
    job, model = experiments["perceptron"].written(tmp_path / "job", epochs=300)
    alone, reference = experiments["perceptron"].written(tmp_path / "alone", alone=True, epochs=300)
    words = [sys.executable, "-W", "ignore", "-m", "bigclf", "run", job]
    driver = started(words, env=environment(SCHEDULER=there.address, **there.env))
    history = tmp_path / "job" / "run" / "history.jsonl"
    wait_for(history.exists, 120, "an epoch")
    with there.client() as client:
        first = wait_for(lambda: client.run(os.getpid), what="workers")
    workers = [psutil.Process(pid) for pid in first.values()]
    workers[0].parent().kill()  # a nanny
    workers[0].kill()
    wait_for(lambda: "ended with code" in there.process.said(), what="a word of it")
    for process in marked(there.mark):
        if "distributed.cli.dask_scheduler" in process.cmdline():  # as a word: of those who started it, it is a part
            process.kill()
    bigclf_command("run", alone)
    assert driver.wait(200) == 0
    assert bits(model) == bits(reference)
    assert len(re.findall("worker on (one|two) is process", there.process.said())) >= 4
    there.end()


def test_a_machine_that_cannot_be_reached_is_named_before_anything_starts(cluster):
    there = cluster("one", "gone")
    assert there.process.wait(60) == 1
    assert "error: gone: " in there.process.said() and "scheduler" not in there.process.said()
    assert marked(there.mark) == []


def test_nobody_gets_in_without_a_certificate(cluster, experiments, tmp_path):
    there = cluster("one")
    job, _ = experiments["perceptron"].written(tmp_path / "job")
    plain = there.address.replace("tls://", "tcp://")
    for address, said in ((there.address, "wants certificates"), (plain, f"write {there.address}")):
        words = [sys.executable, "-m", "bigclf", "run", str(job)]
        done = subprocess.run(words, env=environment(SCHEDULER=address), capture_output=True, text=True, timeout=60)
        assert done.returncode == 5 and said in done.stderr, done.stderr
    there.end()
