"""Runs that older code was stopped in, in the middle of an epoch: whether today's code ends them with the same bits.

    python tests/golden/resume.py --check [NAME ...]
    python tests/golden/resume.py --make NAME ...      (with the code whose run directories are to be kept)

``runs/NAME.tar.xz`` holds a run directory, ``runs/shards.tar.xz`` the rows, ``runs.json`` what the run gave where
nothing stopped it: a hash of the coefficients, and the number of epochs. Only what the package shows is used.
Run directories know their rows by size, footer and time of change, so that is put back when they are unpacked.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tarfile
import tempfile
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import bigclf

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import bits  # noqa: E402

RUNS = HERE / "runs"
CHANGED = 1_700_000_000 * 10**9  # ns: when every file of the rows was changed


class Stopped(NamedTuple):
    """A run: its rows, the options of ``fit`` (of ``sweep`` where there is a grid), the epoch after which it is asked
    to stop, and how many blocks later."""

    rows: str
    options: dict[str, Any]
    epoch: int
    blocks: int = 1


RUN: dict[str, Stopped] = {
    "dcd": Stopped("two", dict(algo="dcd", tol=1e-3, epochs=200, segments=3, memory="14.2MB"), 2),
    "dcd-groups": Stopped("two", dict(algo="dcd", tol=1e-3, epochs=200, segments=3, memory="14.2MB", groups=4), 2),
    "dcd-gathered": Stopped(
        "two", dict(algo="dcd", tol=1e-5, epochs=200, segments=3, memory="14.2MB", groups=4), 2),
    "dcd-rows-on-disk": Stopped(
        "eight", dict(algo="dcd", C=0.001, tol=1e-4, epochs=200, segments=3, memory="17MB", working_set=0.05), 0),
    "newton": Stopped(
        "two", dict(algo="newton", loss="logistic", tol=1e-5, epochs=200, segments=3, memory="12.2MB", start=0), 5),
    "newglmnet": Stopped("two", dict(algo="newglmnet", loss="logistic", tol=1e-8, epochs=200, memory="12.2MB"), 1, 0),
    "memma_blocks": Stopped("two", dict(algo="memma_blocks", epochs=400, segments=3, memory="18.5MB", eps=0.03), 1),
    "sparse-state": Stopped(
        "many", dict(algo="pa1_mc", epochs=1, segments=4, memory="30MB", groups=2), 0),
    "halved-sweep": Stopped(
        "two", dict(algo="pa1", grid={"C": [0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]}, epochs=9,
                    halving="validation"), 2, 0),
}  # fmt: skip


class Watch:
    """A screen that asks the run to stop, as Ctrl-C does, some blocks after an epoch."""

    def __init__(self, epoch: int, blocks: int) -> None:
        self.epochs, self.blocks, self.rung = epoch, blocks, False

    def start(self, plan: Any) -> None: ...

    def stop(self) -> None: ...

    def advance(self, rows: int, nbytes: int) -> None:
        if self.epochs <= 0:
            self.blocks -= 1
        self._look()

    def epoch(self, record: dict[str, Any]) -> None:
        self.epochs -= 1
        self._look()

    def _look(self) -> None:
        if self.epochs <= 0 and self.blocks <= 0 and not self.rung:
            self.rung = True
            os.kill(os.getpid(), signal.SIGINT)


def train(name: str, run_dir: Path | None = None, watch: Watch | None = None, **more: Any) -> Any:
    """The model, or what the sweep found; the present directory has the rows in ``shards``."""
    rows, options, *_ = RUN[name]
    given = options | more | ({} if run_dir is None else dict(run_dir=bigclf.RunDir(run_dir, checkpoint_every=1000)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if "grid" not in options:
            return bits.fit(f"shards/{rows}", progress=watch or False, **given)
        calls = [] if watch is None else [watch.epoch]
        return bigclf.sweep(f"shards/{rows}", progress=False, callbacks=calls, **given)


def told(found: Any) -> str:
    """Hash and epochs; of a sweep of the best, with what was given up when."""
    if hasattr(found, "best_model"):
        dropped = ",".join(str(row["dropped"] or row["epochs"]) for row in found.table)
        return f"{bits.hash_of(found.best_model)} {dropped}"
    return f"{bits.hash_of(found)} {found.result_.epochs}"


def unpack(name: str, place: Path) -> None:
    with tarfile.open(RUNS / f"{name}.tar.xz") as archive:
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Python 3.11.4 has it
        archive.extractall(place, **safe)
    for file in (place / name).rglob("*"):
        os.utime(file, ns=(CHANGED, CHANGED))


def resumed(name: str, place: Path) -> str:
    """What today's code makes of the run directory, unpacked below ``place``; ``shards`` is there."""
    unpack(name, place)
    here = Path.cwd()
    os.chdir(place)
    try:
        return told(train(name, Path(name), resume=True))
    finally:
        os.chdir(here)


def expected() -> dict[str, dict[str, str]]:
    """Of each run what it gave, and where it was stopped."""
    return json.loads((HERE / "runs.json").read_text())  # type: ignore[no-any-return]


# Making them


def make_shards(place: Path) -> None:
    """The rows, as one shard each."""
    (place / "shards").mkdir()
    for kind, (x, y) in {"two": bits.made_rows("two"), "many": many(), "eight": eight()}.items():
        (place / f"{kind}.svm").write_text("".join(bits.lines(x, y)))
        chunk = {"two": bits.CHUNK, "many": 1000, "eight": 8000}[kind]
        shape: dict[str, Any] = dict(n_features=x.shape[1], chunk_nnz=chunk, shuffle=False, workers=1)
        bigclf.convert(place / f"{kind}.svm", place / "made", **shape)
        (place / "shards" / kind).mkdir()
        for file in (place / "made").glob("part-*.parquet"):
            file.rename(place / "shards" / kind / file.name)
        for file in (place / "made").iterdir():
            file.unlink()
        (place / "made").rmdir()
    for file in (place / "shards").rglob("*.parquet"):
        os.utime(file, ns=(CHANGED, CHANGED))


def many() -> tuple[Any, np.ndarray]:
    """1,000 classes: weights of every feature and class are 32 MB."""
    return periodic(2000, 4000, 1000, entries=3, period=2000)


def eight() -> tuple[Any, np.ndarray]:
    """Many short rows that repeat: their dual variables do not fit, and the shards are small."""
    return periodic(80_000, 60, 8, entries=2, period=800)


def periodic(rows: int, features: int, classes: int, entries: int, period: int) -> tuple[Any, np.ndarray]:
    """CSR float32 of as many ``entries`` a row, and labels, of which each class has one."""
    rng = np.random.RandomState(3)
    part = features // entries
    columns = rng.randint(0, part, (period, entries)) + part * np.arange(entries)
    labels = np.where(rng.randint(0, 4, period) > 0, columns.sum(axis=1) % classes, rng.randint(0, classes, period))
    labels[:classes] = np.arange(classes)
    turns = np.resize(np.arange(period), rows)
    shape = (rows, features)
    values = np.ones(rows * entries, np.float32)
    return bits.sp.csr_matrix((values, columns[turns].ravel(), np.arange(rows + 1) * entries), shape), labels[turns]


def make(name: str, place: Path) -> dict[str, str]:
    """Run it whole, then stopped; the run directory into its archive."""
    _, _, epoch, blocks = RUN[name]
    whole = train(name)
    said = "was not stopped"
    try:
        train(name, Path(name), Watch(epoch, blocks))
    except bigclf.errors.Interrupted as error:
        said = str(error).split(";")[0]
    for path in (place / name).rglob("run.json"):
        run = json.loads(path.read_text())
        for file in run.get("files", []):
            file["path"] = "shards/" + Path(file["path"]).name
        path.write_text(json.dumps(run))
    pack(place / name, RUNS / f"{name}.tar.xz")
    return {"whole": told(whole), "stopped": said}


def pack(folder: Path, archive: Path) -> None:
    """By name, without owners and times."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    with tarfile.open(archive, "w:xz", preset=9) as out:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                out.add(file, f"{folder.name}/{file.relative_to(folder)}", filter=plain)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--make", nargs="*", metavar="NAME", help="none: all, and the shards")
    parser.add_argument("--check", nargs="*", metavar="NAME", help="none: all")
    parser.add_argument("--code", metavar="DIR", help="where the package is to lie: another one is refused")
    given = parser.parse_args()
    bits.require_code(given.code)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        os.chdir(place)
        if given.make is not None:
            return _make(given.make, place)
        unpack("shards", place)
        wanted, failed = expected(), 0
        for name in given.check or wanted:
            found, was = resumed(name, place), wanted[name]["whole"]
            failed += found != was
            print(f"{name:18} {wanted[name]['stopped']}: {'same' if found == was else f'{was}  ->  {found}'}")
        return 1 if failed else 0


def _make(names: list[str], place: Path) -> int:
    RUNS.mkdir(exist_ok=True)
    if names:
        unpack("shards", place)
    else:
        make_shards(place)
        pack(place / "shards", RUNS / "shards.tar.xz")
    found = expected() if names else {}
    for name in names or RUN:
        found[name] = make(name, place)
        print(name, found[name], (RUNS / f"{name}.tar.xz").stat().st_size, flush=True)
        (HERE / "runs.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
