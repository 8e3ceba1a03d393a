"""What `bigclf plan` says of one process and of workers beside what is measured, and whether its advice is right.

    python jobs/plan_table.py TRAIN OUT [--workers 1,2,4] [--rounds 3] [--only table,advice]

TRAIN are Parquet files (a glob) with two classes. One process is pinned to a core and has one thread; workers have
one thread each and share all cores. Plans and runs are processes of their own, and plans are made anew. The table has
a line for each family and number of workers: passes, megabytes moved in a later one, and seconds of the first pass,
of a later one and of all, as planned and as measured, medians over ``--rounds``. ``--only work`` counts the passes
over all rows that the visits of several problems come to, which no other program on the machine changes. The cases of
the advice are the first rows of TRAIN, few of them and many: single trainings, and what workers share without merging
anything: sweeps, with choosing and retraining the best point, and twenty classes one against the rest. Their seconds
are those of the whole call, with starting the workers, and the plan advises workers where it predicts that they take
fewer than one process. ``--cases`` names some of them by number. Exits 1 where bytes are off by more than 5 %, seconds
of all passes or work by more than 30 %, or an advice is wrong.
"""

import argparse
import contextlib
import glob
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from two_workers import classes_of

FAMILIES = {
    "averaged_pa2": dict(algo="averaged_pa2", C=0.1, epochs=6),
    "newton": dict(algo="newton", loss="logistic", C=1.0, tol=1e-4),
    "dcd": dict(algo="dcd", loss="hinge", C=1.0, tol=1e-3),
}
# Rows, and the method: little work in the first five, much in the others.
C_VALUES = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0]
CASES = [
    (2_000, dict(algo="averaged_pa2", C=0.1, epochs=6)),
    (20_000, dict(algo="averaged_pa2", C=0.1, epochs=2)),
    (5_000, dict(algo="newton", loss="logistic", C=1.0, tol=1e-4)),
    (50_000, dict(algo="dcd", loss="hinge", C=1.0, tol=1e-3)),
    (20_000, dict(algo="dcd", loss="hinge", tol=1e-2, folds=3, grid={"C": [0.1, 1.0, 10.0]})),
    (200_000, dict(algo="dcd", loss="hinge", tol=1e-3, folds=5, grid={"C": C_VALUES})),
    (100_000, dict(algo="dcd", loss="squared_hinge", tol=1e-3, folds=5, grid={"C": C_VALUES})),
    (200_000, dict(algo="dcd", loss="logistic", tol=1e-3, folds=4, grid={"C": [0.1, 1.0, 10.0]})),
    (100_000, dict(algo="newton", loss="logistic", tol=1e-3, folds=4, grid={"C": [0.1, 1.0, 10.0]})),
    (200_000, dict(algo="dcd", loss="hinge", C=1.0, tol=1e-3, classes=20)),
]
MEMORY = "3GB"
BYTES, SECONDS = 0.05, 0.30


def child(what: str, train: str, workers: int, words: dict) -> dict:
    """Plan or run in a process of its own."""
    core = {min(os.sched_getaffinity(0))}
    pinned = (lambda: os.sched_setaffinity(0, core)) if workers == 1 else None
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, train, "", "--child", what, str(workers), json.dumps(words)],
        preexec_fn=pinned, stdout=subprocess.PIPE, check=True, text=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def told(what: str, train: str, workers: int, words: dict) -> dict:
    """As both say it: passes, bytes moved in a later one, seconds of the first, of a later one, and of all."""
    import bigclf
    from bigclf.api.plan import forecast

    dealt, sweeps = "grid" in words or words.pop("classes", 0), "grid" in words
    groups = {} if workers == 1 or dealt else {"groups": workers}
    common = dict(memory=MEMORY, workers=bigclf.Workers(workers, threads=1), **groups, **words)
    if what == "work":
        return work(train, words)
    if what == "plan":
        plan = forecast(train, fresh=True, **common)
        passes, seconds, network = plan["passes"], plan["seconds"], plan["network"]
        moved = network["epoch"] + network["once"] / max(1, passes - 1)
        first, later = seconds["first"], seconds["later"]
        whole = first + (passes - 1) * later + seconds.get("after", 0.0)
        call = whole + seconds.get("start", 0.0)
        return dict(passes=passes, moved=moved, first=first, later=later, all=whole, call=call)
    if sweeps:
        began = time.perf_counter()
        bigclf.sweep(train, progress=False, **common)
        return dict(call=time.perf_counter() - began)
    began = time.perf_counter()
    model = bigclf.fit(train, progress=False, **common)
    call = time.perf_counter() - began
    result, history = model.result_, model.result_.history
    first, last = history[0]["seconds"], history[-1]["seconds"]
    times = max(1, len(history) - 1)
    moved = (history[-1].get("bytes_moved", 0) - history[0].get("bytes_moved", 0)) / times
    return dict(passes=len(history), moved=moved, first=first, later=(last - first) / times, all=result.seconds,
                call=call)  # fmt: skip


def work(train: str, words: dict) -> dict:
    """Passes over all rows that the visits of all problems come to in one process, planned and counted."""
    import bigclf
    from bigclf.api.plan import forecast
    from bigclf.training.roles.turn import Turn

    common = dict(memory=MEMORY, workers=bigclf.Workers(1, threads=1), **words)
    share = 1 - 1 / words["folds"] if "folds" in words else 1.0  # of all rows, that a pass visits
    planned, counted, teach = forecast(train, fresh=True, **common)["work"], [], Turn.teach

    def counting(turn, scratch, idle, block):
        teach(turn, scratch, idle, block)
        if turn.aim is not None:
            counted.append(share + turn.learner.inner.rows / block.n_rows)

    Turn.teach = counting
    if "grid" in words:
        bigclf.sweep(train, progress=False, refit=False, **common)
    else:
        bigclf.fit(train, progress=False, **common)
    return dict(planned=planned, counted=sum(counted))


def cut(train: str, rows: int, out: Path) -> str:
    """The first rows of TRAIN, in row groups that four groups can share."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = out / f"rows-{rows}"
    folder.mkdir(parents=True, exist_ok=True)
    path, taken, tables = folder / "part.parquet", 0, []
    if not path.exists():
        for name in sorted(glob.glob(train)):
            table = pq.read_table(name).slice(0, rows - taken)
            tables.append(table)
            taken += table.num_rows
            if taken >= rows:
                break
        pq.write_table(pa.concat_tables(tables), f"{path}.part", row_group_size=max(500, rows // 20))
        os.replace(f"{path}.part", path)
    return str(path)


def both(train: str, workers: int, words: dict, rounds: int) -> tuple[dict, dict]:
    """Planned, and measured: medians, plan and run in turn."""
    found: dict[str, list[dict]] = {"plan": [], "run": []}
    for _ in range(rounds):
        for what in found:
            found[what].append(child(what, train, workers, words))
    plan, run = ({key: statistics.median(each[key] for each in all_) for key in all_[0]} for all_ in found.values())
    return plan, run


def off(planned: float, measured: float) -> str:
    return f"{planned / measured - 1:+.0%}" if measured else "-"


def table(train: str, workers: list[int], rounds: int) -> bool:
    """Print a line for each family and number of workers; whether all hold."""
    print("| method | workers | passes | moved, MB | off | first pass, s | later, s | all, s | off |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    holds = True
    for name, words in FAMILIES.items():
        for n in workers:
            plan, run = both(train, n, words, rounds)
            holds &= abs(plan["moved"] - run["moved"]) <= BYTES * run["moved"]
            holds &= abs(plan["all"] - run["all"]) <= SECONDS * run["all"]
            print(f"| {name} | {n} | {plan['passes']:g} / {run['passes']:g} "
                  f"| {plan['moved'] / 1e6:.1f} / {run['moved'] / 1e6:.1f} | {off(plan['moved'], run['moved'])} "
                  f"| {plan['first']:.2f} / {run['first']:.2f} | {plan['later']:.3f} / {run['later']:.3f} "
                  f"| {plan['all']:.2f} / {run['all']:.2f} | {off(plan['all'], run['all'])} |", flush=True)  # fmt: skip
    return holds


def works(train: str, out: Path, cases: list[int]) -> bool:
    """Print planned and counted work of the cases of dual methods with several problems; whether all hold."""
    print("\n| rows | method | passes over all rows, planned / counted | off |\n| --- | --- | --- | --- |")
    holds = True
    for rows, words in (CASES[number - 1] for number in cases):
        if words["algo"] != "dcd" or not {"grid", "classes"} & words.keys():
            continue
        data = cut(train, rows, out)
        if "classes" in words:
            data = classes_of(data, out / f"classes-{rows}")
        found = child("work", data, 1, words)
        holds &= abs(found["planned"] - found["counted"]) <= SECONDS * found["counted"]
        of = ", ".join(str(value) for value in words.values())
        both_ = f"{found['planned']:.0f} / {found['counted']:.0f}"
        print(f"| {rows:,} | {of} | {both_} | {off(found['planned'], found['counted'])} |", flush=True)
    return holds


def advice(train: str, out: Path, rounds: int, cases: list[int]) -> bool:
    """Print a line for each case; whether the plan was right in all."""
    print("\n| rows | method | planned, one / two, s | measured, one / two, s | advice | right |")
    print("| --- | --- | --- | --- | --- | --- |")
    right = []
    for rows, words in (CASES[number - 1] for number in cases):
        data = cut(train, rows, out)
        if "classes" in words:
            data = classes_of(data, out / f"classes-{rows}")
        (plan_one, one), (plan_two, two) = (both(data, n, words, rounds) for n in (1, 2))
        pays = plan_two["call"] < plan_one["call"]
        right.append(pays == (two["call"] < one["call"]))
        of = ", ".join(str(value) for value in words.values())
        planned, measured = (f"{a['call']:.2f} / {b['call']:.2f}" for a, b in ((plan_one, plan_two), (one, two)))
        said = "two workers" if pays else "one process"
        print(f"| {rows:,} | {of} | {planned} | {measured} | {said} | {'yes' if right[-1] else 'NO'} |", flush=True)
    return all(right)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("train")
    parser.add_argument("out")
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="table,advice")
    parser.add_argument("--cases", default=",".join(str(k + 1) for k in range(len(CASES))))
    parser.add_argument("--child", nargs=3)
    given = parser.parse_args()
    if given.child:
        what, workers, words = given.child
        with contextlib.redirect_stdout(sys.stderr):
            answer = told(what, given.train, int(workers), json.loads(words))
        print(json.dumps(answer))
        return 0
    holds = True
    if "table" in given.only:
        holds &= table(given.train, [int(n) for n in given.workers.split(",")], given.rounds)
    if "advice" in given.only:
        holds &= advice(given.train, Path(given.out), given.rounds, [int(n) for n in given.cases.split(",")])
    if "work" in given.only:
        holds &= works(given.train, Path(given.out), [int(n) for n in given.cases.split(",")])
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
