"""The command lines that the campaign disturbs, and the rows and the model that they are given."""

from __future__ import annotations

import json
import os
from typing import NamedTuple


class Case(NamedTuple):
    """A line and what may come of it.

    line : words, ``{out}`` a directory of its own; begin : lines before it.
    again : what is added when the line is given once more after it failed; anew : to replace results that are there.
    files : results that are whole or not there at any moment; sets : directories of shards of which the same holds.
    run : the run directory, if one stays, or may; there : parts of names of files that hold times of data made anew.
    looked : what ``bigclf inspect`` may be given meanwhile. once : what ended well takes away what it began with.
    """

    line: list[str]
    again: tuple[str, ...] = ()
    begin: tuple[list[str], ...] = ()
    files: tuple[str, ...] = ()
    sets: tuple[str, ...] = ()
    anew: tuple[str, ...] = ("--overwrite",)
    there: tuple[str, ...] = ()
    run: str = "run"
    looked: str = ""
    once: bool = False


PLAIN = ("convert", "append", "split", "fit streamed", "fit online", "sweep", "path", "forget", "forget in place",
         "predict csv", "evaluate", "calibrate", "export numpy", "report", "run job")  # fmt: skip
RESUMED = ("--resume",)
QUARANTINE = ["--on-bad-rows", "quarantine", "--max-bad-fraction", "0.5"]
CONVERT = ["convert", "{text}", "{out}/s", "--workers", "1"]
TABLE = ["convert", "{table}", "{out}/s", "--format", "csv", "--label", "y", "--workers", "1"]
SOLVED = ["--algo", "dcd", "--loss", "logistic", "--tol", "0.3"]
BY_HINGE = ["--algo", "dcd", "--loss", "hinge", "--tol", "0.3"]  # in groups
STREAMED = ["--memory", "17MB", "--groups", "2", "--checkpoint-every", "0"]
RUN = ["-o", "{out}/old.bigclf", *SOLVED, "--checkpoint-every", "0", "--run-dir", "{out}/old"]
FORGET = ["forget", "{out}/old", "-o", "{out}/m.bigclf", "--run-dir", "{out}/run", "--rows", "1,5"]
CASES = {
    "convert": Case(CONVERT, sets=("s",)),
    "convert columns": Case(TABLE, sets=("s",)),
    "convert over another": Case(["convert", "{bad}", "{out}/s", "--workers", "1", "--overwrite", *QUARANTINE],
                                 begin=(CONVERT,), sets=("s",)),
    "append": Case([*CONVERT, "--append"], begin=(CONVERT,), sets=("s",), anew=()),
    "append columns": Case(["convert", "{table}", "{out}/s", "--workers", "1", "--append"], begin=(TABLE,), sets=("s",),
                           anew=()),
    "split": Case(["split", "{data}", "{out}/parts"], sets=("parts/train", "parts/test")),
    "fit streamed": Case(["fit", "{rows}", "-o", "{out}/m.bigclf", *BY_HINGE, *STREAMED, "--run-dir", "{out}/run"],
                         RESUMED, files=("m.bigclf",)),
    "fit online": Case(["fit", "{data}", "-o", "{out}/m.bigclf", "--algo", "pa1", "--epochs", "2", "--checkpoint-every",
                        "0", "--run-dir", "{out}/run"], RESUMED, files=("m.bigclf",)),
    "fit in steps": Case(["fit", "{data}", "-o", "{out}/m.bigclf", "--algo", "newton", "--tol", "0.1",
                          "--checkpoint-every", "0", "--report", "{out}/r.html"], RESUMED,
                         files=("m.bigclf", "r.html"), run="m.bigclf.run"),
    "fit columns": Case(["fit", "{table}", "--label", "y", "-o", "{out}/m.bigclf", "--algo", "pa1", "--epochs", "1",
                         "--holdout", "0.2"], RESUMED, files=("m.bigclf",), run="m.bigclf.run"),
    "sweep": Case(["sweep", "{data}", "-o", "{out}/w", *SOLVED, "--grid", "C=0.1,1", "--folds", "2",
                   "--checkpoint-every", "0"], RESUMED, files=("w/model.bigclf", "w/results.csv", "w/results.json")),
    "path": Case(["path", "{data}", "-o", "{out}/w", "--C", "0.1,1", "--tol", "0.3"], RESUMED),
    "forget": Case([*FORGET, "--to", "{out}/left"], begin=(["fit", "{data}", *RUN],), sets=("left",),
                   files=("m.bigclf", "m.bigclf.receipt.json"), there=("run/run.json",)),
    "forget in place": Case([*FORGET, "--rewrite"], begin=(CONVERT, ["fit", "{out}/s", *RUN]), sets=("s",),
                            anew=(), once=True,
                            files=("m.bigclf", "m.bigclf.receipt.json"), there=("run/run.json",)),
    "predict csv": Case(["predict", "{model}", "{data}", "-o", "{out}/p.csv"], files=("p.csv",)),
    "predict directory": Case(["predict", "{model}", "{data}", "-o", "{out}/p"]),
    "evaluate": Case(["evaluate", "{model}", "{data}", "-o", "{out}/e.json", "--report", "{out}/e.html"],
                     files=("e.json", "e.html")),
    "calibrate": Case(["calibrate", "{model}", "{data}", "-o", "{out}/c.bigclf"], files=("c.bigclf",)),
    "export numpy": Case(["export", "{model}", "{out}/scorer", "--to", "numpy"], files=("scorer.py", "scorer.npz")),
    "export liblinear": Case(["export", "{model}", "{out}/m.liblinear", "--to", "liblinear"], files=("m.liblinear",)),
    "export parquet": Case(["export", "{model}", "{out}/m.parquet", "--to", "parquet"], files=("m.parquet",)),
    "export sklearn": Case(["export", "{model}", "{out}/m.joblib", "--to", "sklearn"], files=("m.joblib",)),
    "report": Case(["report", "{model}", "-o", "{out}/r.html", "--data", "{data}"], files=("r.html",)),
    "run steps": Case(["run", "{out}/steps.yaml"], RESUMED, files=("c.bigclf", "e.json", "p.csv", "scorer.py",
                                                                  "scorer.npz")),
    "run job": Case(["run", "{out}/job.yaml"], RESUMED, files=("m.bigclf", "e.json"), sets=("s",),
                    there=("run/run.json", "job_wrote.json")),
}  # fmt: skip
LOOKED = {"convert": "s", "convert columns": "s", "convert over another": "s", "append": "s", "append columns": "s",
          "split": "parts/train", "fit streamed": "run", "fit online": "run", "fit in steps": "m.bigclf.run",
          "fit columns": "m.bigclf", "sweep": "w", "path": "w", "calibrate": "c.bigclf", "run job": "run"}  # fmt: skip
CASES = {name: case._replace(looked=LOOKED.get(name) and f"{{out}}/{LOOKED[name]}") for name, case in CASES.items()}


PLACE = {"text": "rows.svm", "bad": "bad.svm", "table": "rows.csv", "data": "s", "rows": "rows", "model": "m.bigclf"}


def make(place):
    """Rows of several forms and a model in the directory ``place``."""
    from making import random_rows, shards_of

    import bigclf

    x, y = random_rows(60, 8, binary=True)
    shards = shards_of(os.path.join(place, "s"), x, y)
    bigclf.fit(shards, algo="dcd", loss="logistic", epochs=2, progress=False).save(os.path.join(place, "m.bigclf"))
    shards_of(os.path.join(place, "rows"), *random_rows(3000, 30), chunk_nnz=5000)
    lines = (f"{label} " + " ".join(f"{j + 1}:1" for j in row.indices) for row, label in zip(x, y, strict=True))
    text = "\n".join(lines) + "\n"
    table = "y,a,b\n" + "".join(f"{'pq'[n % 2]},w{n % 5},{0.5 * n}\n" for n in range(40))
    for name, content in {"text": text, "bad": text + "1 3:x\n1 0:1\n", "table": table}.items():
        with open(os.path.join(place, PLACE[name]), "w") as file:
            file.write(content)


def jobs(out, place):
    """The job files that lines run, in the directory ``out``."""
    model, data = place["model"], place["data"]
    steps = [
        {"calibrate": {"model": model, "data": data, "output": f"{out}/c.bigclf"}},
        {"evaluate": {"model": model, "data": data, "output": f"{out}/e.json"}},
        {"predict": {"model": model, "data": data, "output": f"{out}/p.csv"}},
        {"export": {"model": model, "out": f"{out}/scorer", "to": "numpy"}},
    ]
    job = {
        "data": {"source": place["text"], "train": f"{out}/s", "test": data},
        "method": {"algo": "dcd", "loss": "logistic"},
        "limits": {"tol": 0.3},
        "run": {"dir": f"{out}/run"},
        "outputs": {"model": f"{out}/m.bigclf", "evaluation": f"{out}/e.json"},
    }
    for name, told in (("steps", {"steps": steps}), ("job", job)):
        with open(os.path.join(out, f"{name}.yaml"), "w") as file:
            json.dump(told, file)
