"""A Dask cluster on machines reached over SSH, encrypted: a scheduler on one, workers on all.

    python cluster/ssh/start.py node1 node2 --workers 4 --memory-limit 4GB

Each name is one that `ssh NAME` reaches without a password. The scheduler runs on the first. What ends (a worker, the
scheduler, a machine that restarts, a line that breaks) is started again as soon as it can be. Ctrl-C or SIGTERM ends
all of it; a second one at once.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

from bigclf import tls
from bigclf.errors import BigclfError

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from keeping import Child, keep, listening, say, stop

CONFIGURATION = Path(__file__).resolve().parent.parent / "dask.yaml"
SENT = ("ca.pem", "node.pem", "node-key.pem")  # the authority's key and the client's stay here
ANSWER = 60  # seconds a machine has to take these and to import bigclf
LINE = "-o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=10 -o ServerAliveCountMax=3"  # notice a dead one


class Host(NamedTuple):
    """A machine: its name for SSH, and the address at which the others reach it."""

    name: str
    address: str


# What runs there


def children(given: argparse.Namespace, hosts: list[Host]) -> list[Child]:
    """The scheduler, then the workers of each machine."""
    dashboard = ["--dashboard-address", f"127.0.0.1:{given.dashboard or 0}"]  # reached through ssh -L only
    scheduler = ["--host", hosts[0].address, "--port", str(given.port), *dashboard]
    scheduler += [] if given.dashboard else ["--no-dashboard"]
    kept = [_child(given, hosts[0], "scheduler", scheduler)]
    for host in hosts:
        first, last = given.ports
        middle = (first + last) // 2
        words = [
            address(given, hosts), "--host", host.address, "--name", host.name, "--nworkers", str(given.workers),
            "--nthreads", "1", "--memory-limit", given.memory_limit, "--preload", given.preload,
            "--worker-port", f"{first}:{middle}", "--nanny-port", f"{middle + 1}:{last}", "--death-timeout", "60",
            "--no-dashboard", "--dashboard-address", "127.0.0.1:0",
        ]  # fmt: skip
        words += ["--local-directory", given.temporary] if given.temporary else []
        kept.append(_child(given, host, "worker", words))
    return kept


def _child(given: argparse.Namespace, host: Host, role: str, words: list[str]) -> Child:
    there = f'"$HOME"/{shlex.quote(given.directory)}'
    env = ["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=true", *given.env]
    files = f"--tls-ca-file {there}/ca.pem --tls-cert {there}/node.pem --tls-key {there}/node-key.pem"
    command = f"exec env DASK_CONFIG={there}/dask.yaml {shlex.join(env)} {shlex.quote(given.python)} " \
              f"-m distributed.cli.dask_{role} {files} {shlex.join(words)}"  # fmt: skip
    name = f"{role} on {host.name}"
    # With a terminal (-tt) what runs there ends with the line; without one it would live on
    ssh = [*given.ssh, *LINE.split(), "-tt", host.name, command]
    log = given.logs / f"{role}-{re.sub(r'[^A-Za-z0-9.-]', '-', host.name)}.log"
    return Child(name, ssh, log, dict(os.environ))


def address(given: argparse.Namespace, hosts: list[Host]) -> str:
    return f"tls://{hosts[0].address}:{given.port}"


# What has to be there first


def certificates(directory: Path) -> list[str]:
    """Make them where there are none; what is wrong with those that are there."""
    if not (directory / "ca.pem").exists():
        tls.make(str(directory))
        say(f"made an authority and certificates in {directory}")
    (directory / "logs").mkdir(exist_ok=True)
    return [text for role in ("node", "client") for text in tls.wrong_with(tls.of_directory(str(directory), role))]


def prepare(given: argparse.Namespace, host: Host) -> str | None:
    """Send a machine what it needs, and look whether bigclf is there; what is wrong."""
    there = f'"$HOME"/{shlex.quote(given.directory)}'
    command = f"umask 077 && mkdir -p {there} && tar -xf - -C {there} && " \
              f"{shlex.join(['env', *given.env, given.python])} -m bigclf.tls {there} --check"  # fmt: skip
    try:
        done = subprocess.run([*given.ssh, *LINE.split(), host.name, command], input=_packed(given.certificates),
                              capture_output=True, timeout=ANSWER)  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{host.name}: no answer within {ANSWER} s"
    said = (done.stderr.decode(errors="replace") + done.stdout.decode(errors="replace")).strip().splitlines()
    return f"{host.name}: {said[-1] if said else f'ssh ended with code {done.returncode}'}" if done.returncode else None


def _packed(directory: Path) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for name in SENT:
            archive.add(directory / name, arcname=name)
        archive.add(CONFIGURATION, arcname=CONFIGURATION.name)
    return held.getvalue()


def host(given: argparse.Namespace, text: str) -> Host:
    """``NAME=ADDRESS``, or ``NAME`` at the address that SSH's configuration has for it."""
    name, _, where = text.partition("=")
    if not where:
        told = subprocess.run([*given.ssh, "-G", name], capture_output=True, text=True, check=True).stdout
        where = dict(line.partition(" ")[::2] for line in told.splitlines()).get("hostname", name)
    return Host(name, where)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("hosts", nargs="+", metavar="NAME[=ADDRESS]", help="for ssh, and where the others reach it")
    parser.add_argument("--workers", type=int, default=1, help="processes on each; each makes one visit at a time")
    parser.add_argument("--memory-limit", metavar="SIZE", default="2GB", help="of each worker  [default: 2GB]")
    parser.add_argument("--python", default=sys.executable, help="with bigclf, on every machine  [default: this one]")
    parser.add_argument("--port", type=int, default=8786, help="of the scheduler")
    parser.add_argument("--ports", default="8800:8999", help="of the workers, half of them  [default: 8800:8999]")
    parser.add_argument("--dashboard", type=int, metavar="8787", help="Dask's, on the first machine's loopback")
    parser.add_argument("--certificates", type=Path, default=Path("cluster-certificates"),
                        help="directory; made where it is missing  [default: cluster-certificates]")  # fmt: skip
    parser.add_argument("--directory", default=".bigclf-cluster",
                        help="for them on each machine, below its home  [default: %(default)s]")  # fmt: skip
    parser.add_argument("--temporary", metavar="DIR", help="caches, on a disk of each machine")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="for what is started there")
    parser.add_argument("--ssh", type=shlex.split, default=["ssh"], help="the command  [default: ssh]")
    parser.add_argument("--preload", default="bigclf.preload", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.workers < 1:
        parser.error("--workers must be at least 1")
    if not (found := re.fullmatch(r"(\d+):(\d+)", given.ports)) or int(found[2]) - int(found[1]) < 2 * given.workers:
        parser.error("--ports must be FIRST:LAST, two for each worker of a machine")
    given.ports = int(found[1]), int(found[2])
    given.certificates = given.certificates.resolve()
    given.logs = given.certificates / "logs"
    return given


def main() -> int:
    given = arguments()
    try:
        wrong = certificates(given.certificates)
        hosts = [host(given, text) for text in given.hosts]
    except (BigclfError, OSError, subprocess.CalledProcessError) as error:
        wrong, hosts = [str(error)], []
    wrong = wrong or [text for there in hosts if (text := prepare(given, there)) is not None]
    if wrong:
        sys.stderr.write("".join(f"error: {text}\n" for text in wrong))
        return 1
    signals = listening()
    kept = children(given, hosts)
    try:
        say(f"scheduler at {address(given, hosts)}; train on it, anywhere that has {given.certificates}, with")
        say(f"  export DASK_CONFIG={given.certificates}")
        say(f"  bigclf submit JOB.yaml --scheduler {address(given, hosts)}")
        keep(kept, signals)
        say("ending")
    finally:
        stop(kept, signals)
    return 0


if __name__ == "__main__":
    sys.exit(main())
