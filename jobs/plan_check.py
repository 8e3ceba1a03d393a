"""What `bigclf plan` says beside what is then measured: four ways to train, and a table.

python jobs/plan_check.py OUT DATA [MORE_DATA]

DATA are shards of two classes (``generated.yaml`` makes some). Each line is a plan and then a run, in processes of
their own: memory is the most of a process that makes visits (interpreter and libraries included, shared files not),
bytes read are those of the rows of one epoch, bytes moved those between driver and workers in all epochs; seconds are
of the first epoch and of a later one in the mean. Exits 1 where memory or bytes are off by more than 10 %, or seconds
by more than 50 %.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil

import bigclf

CLASSES = 300
BYTES, SECONDS = 0.10, 0.50


def main(out: str, data: str, *more: str) -> int:
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    many = folder / "many"
    if not many.exists():
        make_many_classes(many)
    certified = ["--algo", "dcd", "--loss", "hinge", "--C", "1", "--bias", "none", "--tol", "1e-3"]
    runs = {
        "dcd, out of core": ([data], [*certified, "--memory", "64MB"], []),
        **{f"dcd, out of core, {Path(d).name}": ([d], [*certified, "--memory", "256MB"], []) for d in more},
        "pa1, 4 groups, 2 workers": (
            [data], ["--algo", "pa1", "--memory", "256MB", "--groups", "4", "--workers", "2"], ["--epochs", "6"],
        ),
        "newton, out of core": ([data], ["--algo", "newton", "--loss", "logistic", "--memory", "100MB"], []),
        f"pa1, {CLASSES} classes at once": (
            [str(many)], ["--algo", "pa1", "--multiclass", "native", "--memory", "1GB"], ["--epochs", "5"],
        ),
    }  # fmt: skip
    lines = [
        line for name, (shards, words, limits) in runs.items() for line in compare(name, shards, words, limits, folder)
    ]
    print(f"\n{'run':28} {'what':22} {'planned':>12} {'measured':>12} {'off by':>8}")
    for name, what, planned, measured, allowed in lines:
        off = planned / measured - 1
        print(
            f"{name:28} {what:22} {planned:12,.4g} {measured:12,.4g} {off:+8.1%}{'' if abs(off) <= allowed else '  !'}"
        )
    print(f"load at the end: {psutil.getloadavg()[0]:.1f} processes on {psutil.cpu_count()} cores")
    return int(any(abs(planned / measured - 1) > allowed for *_, planned, measured, allowed in lines))


def make_many_classes(place: Path, rows: int = 40_000, features: int = 50_000, words: int = 60) -> None:
    """Each class has words of its own among common ones."""
    rng = np.random.default_rng(0)
    labels = rng.integers(CLASSES, size=rows)
    common = (features * rng.random((rows, words)) ** 3).astype(np.int64)
    own = (labels[:, None] * 100 + rng.integers(100, size=(rows, words))) % features
    drawn = np.sort(np.where(rng.random((rows, words)) < 0.3, own, common), axis=1)
    new = np.hstack([np.ones((rows, 1), bool), drawn[:, 1:] != drawn[:, :-1]])
    lines = [
        f"{label} " + " ".join(f"{j + 1}:1" for j in row[mask]) + "\n"
        for label, row, mask in zip(labels, drawn, new, strict=True)
    ]
    text = place.parent / "many.svm"
    text.write_text("".join(lines))
    bigclf.convert(str(text), str(place), chunk_nnz=100_000, n_features=features)


def compare(
    name: str, shards: list[str], words: list[str], limits: list[str], folder: Path
) -> list[tuple[str, str, float, float, float]]:
    """(run, what, planned, measured, allowed) for all that both tell of."""
    plan, _ = told(["plan", *shards, *words, *limits, "--fresh"])
    model = ["-o", str(folder / "model.bigclf"), "--overwrite"]
    run, memory = told(["fit", *shards, *words, *limits, *model])
    last, n = run["history"][-1], run["epochs"]
    first = run["history"][0]["seconds"]
    several = plan["workers"] > 1
    found = [
        ("memory, MB", plan["memory"]["likely"] / 1e6, (memory if several else run["memory"]["peak"]) / 1e6, BYTES),
        ("read an epoch, MB", plan["bytes_read"]["epoch"] / 1e6, last["bytes_read"] / run["reads"] / 1e6, BYTES),
    ]
    if several:  # the first epoch begins with the state that every process makes itself
        network = plan["network"]
        moved = n * network["up"] + (n - 1) * network["down"]
        found.append(("moved, MB", moved / 1e6, last["bytes_moved"] / 1e6, BYTES))
    found.append(("first epoch, s", plan["seconds"]["first"], first, SECONDS))
    found.append(("later epoch, s", plan["seconds"]["later"], (run["seconds"] - first) / (n - 1), SECONDS))
    return [(name, *line) for line in found]


def told(words: list[str]) -> tuple[dict, int]:
    """What a command prints as JSON, and the most anonymous memory that one of its workers had."""
    child = subprocess.Popen([sys.executable, "-m", "bigclf", *words, "--json"], stdout=subprocess.PIPE, text=True)
    most = 0
    while child.poll() is None and "--workers" in words:
        most = max([most, *map(anonymous, psutil.Process(child.pid).children(recursive=True))])
        time.sleep(0.1)
    text, _ = child.communicate()
    if child.returncode not in (0, 4):
        raise SystemExit(child.returncode)
    return json.loads(text), most


def anonymous(process: psutil.Process) -> int:
    try:
        text = Path(f"/proc/{process.pid}/status").read_text()
        return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("RssAnon")), 0)
    except (OSError, psutil.Error):
        return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
