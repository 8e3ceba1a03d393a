"""Killed between two of its files, a command that is given again finishes: nothing lost, and nothing to be overwritten.

Every case is carried out once undisturbed, and once for each point where it changes names of files, where it is killed
and given again (``kills.py``).
"""

import json
import os
import subprocess
import sys

import pytest
from making import random_rows, shards_of
from test_cli import bigclf as command

import bigclf
from bigclf import files
from bigclf.cli.jobs.record import Record
from bigclf.errors import RunError

KILLS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "kills.py")
SCORER = ["export", "{model}", "{out}/scorer", "--to", "numpy"]
CSV = ["--format", "csv", "--label", "y"]
QUARANTINE = ["--on-bad-rows", "quarantine", "--max-bad-fraction", "0.5"]
LINES = {
    "export": SCORER,
    "evaluate": ["evaluate", "{model}", "{data}", "-o", "{out}/e.json", "--report", "{out}/e.html"],
    "predict": ["predict", "{model}", "{data}", "-o", "{out}/p.csv"],
    "directory": ["predict", "{model}", "{data}", "-o", "{out}/p"],
    "calibrate": ["calibrate", "{model}", "{data}", "-o", "{out}/c.bigclf"],
    "report": ["report", "{model}", "-o", "{out}/r.html", "--data", "{data}"],
    "split": ["split", "{data}", "{out}/parts"],
    "convert": ["convert", "{text}", "{out}/s"],
}

AFTER = {  # lines that go before, the line that is killed, and where
    "append": (["convert", "{text}", "{out}/s"], ["convert", "{text}", "{out}/s", "--append"], [" s/"]),
    "bad_rows": (["convert", "{bad}", "{out}/s", *QUARANTINE], ["convert", "{bad}", "{out}/s", "--append", *QUARANTINE],
                 [" s/", "rmtree .s"]),
    "columns": (["convert", "{table}", "{out}/s", *CSV], ["convert", "{table}", "{out}/s", "--append"], [" s/"]),
    "overwrite": (["convert", "{text}", "{out}/s"], ["convert", "{bad}", "{out}/s", "--overwrite", *QUARANTINE],
                  ["rename ", "rmtree .s"]),
}  # fmt: skip


SOLVED = ["--algo", "dcd", "--loss", "logistic", "--tol", "0.5"]
BENCH = ["bench", "-o", "{out}/b", "--cache", "{out}/cache", "--jobs", "hinge", "--rows", "300", "--rounds", "1",
         "--against", "mine", "--peer", "mine={model}"]  # fmt: skip
DEMO = ["demo", "--dir", "{out}/d", "--rows", "1000", "--memory", "128MB"]
MEASURED = {  # a line whose results hold times, and where it is killed
    "bench": (BENCH, [" cache/", "results.", "ratios", "named.json"]),
    "demo": (DEMO, ["demo.json", "train.svm", "test.svm", "dcd.", "predictions", "job.yaml"]),
}
LONG = {  # a line, what is added when it is given again, and where it is killed
    "fit": (["fit", "{data}", "-o", "{out}/m.bigclf", *SOLVED, "--report", "{out}/r.html"], ["--resume"], [""]),
    "sweep": (["sweep", "{data}", "-o", "{out}/w", *SOLVED, "--grid", "C=0.1,1", "--folds", "2"], ["--resume"],
              ["w/results.", "w/model", "w/run ", "rmtree"]),
    "path": (["path", "{data}", "-o", "{out}/w", "--C", "0.1,1", "--tol", "0.5"], ["--resume"],
             ["/.path.", "w/.model", "rename w/run", "rmtree"]),
}  # fmt: skip


def but(names, *long):
    """These are long; the others are for the nightly, whose campaign disturbs most of the lines, too."""
    return [pytest.param(name, marks=() if name in long else pytest.mark.slow) for name in names]


PATIENT = pytest.mark.timeout(1800)  # dozens of processes one after another, on a machine that may have others


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Shards, text of the same rows, and a model of them."""
    there = tmp_path_factory.mktemp("kills")
    x, y = random_rows(60, 8, binary=True)
    shards = shards_of(there / "s", x, y)
    bigclf.fit(shards, algo="dcd", loss="logistic", epochs=2).save(there / "m.bigclf")
    lines = (f"{label} " + " ".join(f"{j + 1}:1" for j in row.indices) for row, label in zip(x, y, strict=True))
    text = "\n".join(lines) + "\n"
    (there / "rows.svm").write_text(text)
    (there / "bad.svm").write_text(text + "1 3:x\n1 0:1\n")
    table = "".join(f"{'pq'[n % 2]},w{n % 5},{0.5 * n}\n" for n in range(40))
    (there / "rows.csv").write_text("y,a,b\n" + table)
    names = {"text": "rows.svm", "bad": "bad.svm", "table": "rows.csv", "data": "s", "model": "m.bigclf"}
    return {name: there / file for name, file in names.items()}


def filled(line, place):
    words = [word.format(out="{out}", **place) for word in line]
    return [*words, "--workers", "1"] if line[0] == "convert" else words


def attempts(line, place, directory, begin=(), **more):
    """What came of the line undisturbed, and of each attempt in which it was killed."""
    case = {"line": filled(line, place), "begin": [filled(each, place) for each in begin], **more}
    done = subprocess.run([sys.executable, KILLS, directory], input=json.dumps(case), text=True,
                          stdout=subprocess.PIPE, check=True)  # fmt: skip
    whole, *killed = map(json.loads, done.stdout.splitlines())
    assert whole["code"] == 0 and not whole["hidden"], whole["text"]
    assert killed
    return whole, killed


def check(whole, killed):
    """Each is finished, as the one that nobody disturbed, and leaves nothing behind."""
    for told in killed:
        assert told["code"] == 137 and told["again"] == whole["code"], (told["where"], told["said"])
        assert told["content"] == whole["content"] and not told["hidden"], told["where"]


@PATIENT
@pytest.mark.long
def test_killed_between_its_two_files_an_export_is_finished_by_the_same_line(place, tmp_path):
    whole, killed = attempts(SCORER, place, tmp_path, only=["/scorer."])
    check(whole, killed)
    assert any(len(told["left"][0]) == 1 for told in killed)  # of two


@PATIENT
@pytest.mark.long
@pytest.mark.parametrize("name", but(LINES, "evaluate", "convert"))
def test_killed_anywhere_a_line_is_finished_by_the_same_line(name, place, tmp_path):
    whole, killed = attempts(LINES[name], place, tmp_path)
    check(whole, killed)
    assert len(killed) == len(whole["changes"])


@PATIENT
@pytest.mark.long
@pytest.mark.parametrize("name", but(AFTER, "bad_rows"))
def test_killed_after_others_a_line_is_finished_by_the_same_line(name, place, tmp_path):
    begin, line, only = AFTER[name]
    whole, killed = attempts(line, place, tmp_path, [begin], only=only, last=True)
    check(whole, killed)


@PATIENT
@pytest.mark.long
@pytest.mark.parametrize("name", but(LONG, "fit"))
def test_killed_anywhere_what_takes_long_is_finished_by_the_same_line(name, place, tmp_path):
    line, again, only = LONG[name]
    whole, killed = attempts(line, place, tmp_path, again=again, only=only, last=True)
    check(whole, killed)


@PATIENT
@pytest.mark.long
@pytest.mark.parametrize("name", but(MEASURED))
def test_killed_anywhere_what_measures_is_finished_by_the_same_line(name, place, tmp_path):
    line, only = MEASURED[name]
    # data that are made anew have times of their own, by which a run knows them again
    whole, killed = attempts(line, place, tmp_path, only=only, last=True, there=["b/results", ".run/run.json"])
    check(whole, killed)
    assert len(killed) >= 10


@pytest.fixture
def job(place, tmp_path):
    """A job of steps whose results go to ``tmp_path``/out."""
    model, data, out = place["model"], place["data"], tmp_path / "out"
    steps = [
        {"calibrate": {"model": f"{model}", "data": f"{data}", "output": f"{out}/c.bigclf"}},
        {"evaluate": {"model": f"{model}", "data": f"{data}", "output": f"{out}/e.json", "report": f"{out}/e.html"}},
        {"predict": {"model": f"{model}", "data": f"{data}", "output": f"{out}/p.csv"}},
        {"export": {"model": f"{model}", "out": f"{out}/scorer", "to": "numpy"}},
        {"export": {"model": f"{model}", "out": f"{out}/m.liblinear", "to": "liblinear"}},
        {"import": {"source": f"{out}/m.liblinear", "out": f"{out}/i.bigclf"}},
    ]
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps({"steps": steps}))
    return path


@PATIENT
@pytest.mark.long
def test_a_job_killed_within_any_step_is_finished_on_resume(job, tmp_path):
    named = ["c.bigclf", "/e.", "p.csv", "/scorer.", ".liblinear", "i.bigclf"]
    whole, killed = attempts(["run", str(job)], {}, tmp_path, only=named, last=True, again=["--resume"])
    check(whole, killed)
    assert len(killed) >= 8


@PATIENT
@pytest.mark.long
def test_resuming_replaces_what_the_job_began_to_write_and_nothing_else(job, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    foreign = out / "scorer.npz"
    foreign.write_text("mine")
    assert "exists" in command("run", job, code=1)[1] and not (out / "c.bigclf").exists()  # before the first step
    complaint = command("run", job, "--resume", code=1)[1]
    assert (
        "scorer.npz already exists, and is not known as this job's own" in complaint and foreign.read_text() == "mine"
    )
    foreign.unlink()
    for _ in range(2):  # once more when it is finished
        command("run", job, "--resume")
    assert foreign.exists() and (out / "i.bigclf").exists()
    (out / "e.json").write_text("mine")
    assert (
        "e.json already exists" in command("run", job, "--resume", code=1)[1] and (out / "e.json").read_text() == "mine"
    )
    command("run", job, "--resume", "--overwrite")
    assert json.loads((out / "e.json").read_text())["n"]


@pytest.mark.parametrize("steps", [True, False])
def test_a_job_whose_shards_are_there_removes_what_their_conversion_left(steps, place, tmp_path):
    job = {"data": {"source": f"{place['text']}", "train": f"{tmp_path}/s"}, "method": {"algo": "pa1"},
           "limits": {"epochs": 1}, "run": {"dir": f"{tmp_path}/run"},
           "outputs": {"model": f"{tmp_path}/m.bigclf"}}  # fmt: skip
    if steps:
        job = {"steps": [{"convert": {"sources": f"{place['text']}", "out": f"{tmp_path}/s"}}]}
    path, left = tmp_path / "job.yaml", tmp_path / ".s.converting"
    path.write_text(json.dumps(job))
    command("convert", place["text"], tmp_path / "s")
    left.mkdir()
    (left / "job.json").write_text("{}")
    command("run", path, "--resume")
    assert not left.exists()


STEP = {
    "import": ({"source": "{out}/later", "out": "{out}/result"}, "m.liblinear"),
    "evaluate": ({"model": "{out}/later", "data": "{data}", "output": "{out}/result"}, "m.bigclf"),
}


@pytest.mark.parametrize("name", STEP)
def test_a_file_that_came_after_a_step_was_begun_is_not_the_job_s_own(name, place, tmp_path):
    """The step was noted as begun, so that whatever lay in its place was replaced."""
    told, needed = STEP[name]
    told = {key: word.format(out=tmp_path, data=place["data"]) for key, word in told.items()}
    path, foreign = tmp_path / "job.yaml", tmp_path / "result"
    path.write_text(json.dumps({"steps": [{name: told}]}))
    command("run", path, code=3)  # it has begun, and what it needs is not there yet
    bigclf.load(place["model"]).export(tmp_path / "m.liblinear", "liblinear")
    source = tmp_path / needed if needed == "m.liblinear" else place["model"]
    (tmp_path / "later").write_bytes(source.read_bytes())
    foreign.write_text("mine")
    complaint = command("run", path, "--resume", code=1)[1]
    assert "result already exists, and is not known as this job's own" in complaint and foreign.read_text() == "mine"
    foreign.unlink()
    command("run", path, "--resume")
    assert foreign.stat().st_size > 4


class Killed(BaseException):
    pass


def test_what_a_job_put_there_or_may_replace_is_known_when_it_is_killed(tmp_path, monkeypatch):
    """... after the file was named and before that was noted, or before it was named; nothing else is."""
    record, path, replaced = Record(str(tmp_path / "r.json"), "job"), tmp_path / "a", tmp_path / "b"
    replaced.write_text("to go")
    with pytest.raises(Killed), record.writing([str(path), str(replaced)], overwrite=True):
        files.publish_text(path, "ours")
        raise Killed
    again = Record(str(tmp_path / "r.json"), "job")
    again.refuse_foreign([str(path), str(replaced)])
    for place in (path, replaced):
        place.write_text("mine")
        with pytest.raises(RunError, match=f"{place.name} already exists, and is not known as this job's own"):
            again.refuse_foreign([str(place)])
