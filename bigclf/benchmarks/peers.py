"""Who bigclf is measured against, and where on this machine each of them is."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from bigclf import files
from bigclf.benchmarks import child

if TYPE_CHECKING:
    pass


PROBE_SECONDS = 120.0
SOLVING = ("hinge", "squared_hinge", "logistic")
STREAMING = ("online",)


class Peer(NamedTuple):
    """A program to measure against.

    Attributes
    ----------
    name : as on the command line.   jobs : what it can do.   threads : at most of use to it.
    pip : what brings it.   text : the kind of text it reads, where it takes no arrays.
    """

    name: str
    jobs: tuple[str, ...]
    threads: int
    pip: str
    text: str = ""


PEERS = {
    peer.name: peer
    for peer in (
        Peer("liblinear", SOLVING, 1, "pip install liblinear-official"),
        Peer("liblinear-multicore", SOLVING, 99, "pip install --target DIR liblinear-multicore"),
        Peer("sklearn", (*SOLVING, "online", "perceptron"), 1, "pip install scikit-learn"),
        Peer("sklearn-sgd", STREAMING, 1, "pip install scikit-learn"),
        Peer("snapml", SOLVING, 99, "pip install snapml"),
        Peer("vw", STREAMING, 1, "pip install vowpalwabbit", "vw"),
        Peer("dask-ml", STREAMING, 99, "pip install dask-ml"),
    )
}


class Place(NamedTuple):
    """Where a peer is: a Python that has it, perhaps by a directory of packages, or a program of its own."""

    peer: Peer
    version: str
    python: str = sys.executable
    packages: str = ""
    program: str = ""


class Absent(NamedTuple):
    """A peer that is not here, why, and what would bring it."""

    name: str
    reason: str
    advice: str


def find(names: list[str], given: dict[str, str], pythons: list[str]) -> tuple[list[Place], list[Absent]]:
    """Look for peers.

    Parameters
    ----------
    names : of ``PEERS`` or of programs in ``given``, in the order to run.
    given : {name: path} of a Python, a directory of packages (``pip install --target``) or a program like
        LIBLINEAR's ``train``.
    pythons : where to look for the others, in this order.
    """
    told: dict[tuple[str, str], dict[str, Any]] = {}
    found: list[Place] = []
    absent: list[Absent] = []
    for name in names:
        where = places(name, given, pythons)
        if isinstance(where, Place):
            found.append(where)
            continue
        reasons = []
        for python, packages in where:
            if (python, packages) not in told:
                told[python, packages] = probe([n for n in names if n in PEERS], python, packages)
            answer = told[python, packages].get(name, {"missing": "it gave no answer"})
            if "version" in answer:
                found.append(Place(PEERS[name], answer["version"], python, packages))
                break
            reasons.append(answer["missing"])
        else:
            absent.append(Absent(name, reasons[0], advice(name)))
    return found, absent


def places(name: str, given: dict[str, str], pythons: list[str]) -> Place | list[tuple[str, str]]:
    """A program as it is, else (python, packages) to ask."""
    path = given.get(name)
    if path is None:
        return [(python, "") for python in pythons]
    if files.is_directory(path):
        return [(python, files.absolute(path)) for python in pythons]
    if name in PEERS and files.base_name(path).startswith("python"):
        return [(path, "")]
    return Place(Peer(name, SOLVING, 1, "", "svm"), "program", sys.executable, program=files.absolute(path))


def probe(names: list[str], python: str, packages: str) -> dict[str, dict[str, str]]:
    """What a Python says of the peers it has."""
    task = json.dumps({"probe": names, "packages": packages})
    try:
        done = subprocess.run(
            [python, child.__file__, task], capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {name: {"missing": f"{python}: {error}"} for name in names}
    answer: dict[str, dict[str, str]] | None = last_answer(done.stdout)
    return answer or {name: {"missing": f"{python}: {last_line(done.stderr)}"} for name in names}


def last_answer(text: str) -> Any:
    """What a child said on its last marked line."""
    marked = [line for line in text.splitlines() if line.startswith(child.MARK)]
    return json.loads(marked[-1][len(child.MARK) :]) if marked else None


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-300:] if lines else "it ended without a word"


def advice(name: str) -> str:
    """How to bring a peer."""
    if name == "liblinear-multicore":
        return f"{PEERS[name].pip}, then --peer {name}=DIR (one Python holds one edition of LIBLINEAR)"
    if name == "liblinear":
        return f"{PEERS[name].pip}, beside liblinear-multicore with --target DIR and --peer {name}=DIR"
    return PEERS[name].pip
