"""Whatever --overwrite says, no command writes over what it reads."""

import json
import os
import shutil

import pytest
from click.testing import CliRunner
from making import random_rows, shards_of

import bigclf
from bigclf.cli import main

LINES = [
    "fit a.csv --label label -o a.csv",
    "fit a.csv --label label -o link.csv",
    "fit a.csv --spec a.yaml -o a.yaml",
    "fit shards -o shards/part-00000.parquet",
    "fit shards -o n.bigclf --report a.csv --evaluate a.csv",
    "fit shards -o a.csv --evaluate a.csv",
    "fit shards -o a.csv --validate a.csv",
    "sweep shards -o shards --grid C=1,2",
    "path shards -o shards --C 1,2",
    "split shards shards",
    "convert a.csv a.csv --label label",
    "calibrate m.bigclf a.csv -o a.csv",
    "evaluate m.bigclf shards -o m.bigclf",
    "evaluate m.bigclf a.csv --report a.csv",
    "predict m.bigclf a.csv -o a.csv",
    "predict m.bigclf shards -o m.bigclf",
    "report m.bigclf -o m.bigclf",
    "report m.bigclf --data a.csv -o a.csv",
    "report m.bigclf --names a.yaml -o a.yaml",
    "export m.bigclf m.bigclf --to numpy",
    "fit shards -o n.bigclf --run-dir shards",
    "fit shards -o shards",
    "forget old -o n.bigclf --run-dir old --rows 1 --to left",
    "forget old -o n.bigclf --run-dir shards --rows 1 --to left",
    "forget old -o n.bigclf --rows 1 --to shards",
    "forget old -o old/model.bigclf --rows 1 --to left",
    "report old -o old/run.json",
]
HOLDING = [
    "fit shards --init old/model.bigclf -o n.bigclf --run-dir old",
    "fit a.csv --spec in/specs/a.yaml -o n.bigclf --run-dir in/specs",
    "fit shards/part-00000.parquet -o n.bigclf --run-dir shards",
    "convert text/part-1.svm text",
    "convert in/raw/part-1.csv in/raw --label label",
    "sweep w/run/s -o w --grid C=1,2",
    "path w/run/s/part-00000.parquet -o w --C 1,2",
    "split parts/train/s parts",
    "forget old -o n.bigclf --rows 1 --to shards --like shards/part-00000.parquet",
]
WITHIN = [
    "fit shards -o shards/m.bigclf",
    "fit shards/*.parquet -o shards/new.parquet",
    "fit shards -o n.bigclf --report shards/r.html",
    "fit in -o in/raw/m.bigclf",
    "fit a.csv --label label -o in/raw/m.bigclf --evaluate in/raw",
    "evaluate m.bigclf shards -o shards/e.json",
    "evaluate m.bigclf shards --reliability shards/r.png",
    "predict m.bigclf shards -o shards/p.csv",
    "sweep parts -o parts/out --algo pa1 --grid C=1,2",
    "calibrate m.bigclf shards -o link/c.bigclf",
    "report m.bigclf -o shards/r.html --data shards",
]
REFUSED = {": is an input; write to another place": LINES, " holds the input ": HOLDING,
           ": would be read with the rows of ": WITHIN}  # fmt: skip


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    place = tmp_path_factory.mktemp("inputs")
    shards = shards_of(place / "shards", *random_rows(40, 4, binary=True))
    bigclf.fit(shards, algo="pa1", epochs=1, progress=False).save(place / "m.bigclf")
    (place / "a.csv").write_text("label,x\n" + "p,1\nq,2\n" * 20)
    (place / "a.yaml").write_text("label: label\nfeatures:\n- numeric: x\n")
    (place / "link.csv").symlink_to("a.csv")
    (place / "link").symlink_to("shards")
    solved = {"algo": "dcd", "loss": "logistic", "tol": 0.5, "progress": False}
    bigclf.fit(shards, **solved, run_dir=place / "old")
    for name in ("w/run/s", "parts/train/s"):
        shutil.copytree(place / "shards", place / name)
    for name in ("text", "in/raw", "in/specs"):
        (place / name).mkdir(parents=True)
    (place / "text" / "part-1.svm").write_text("1 1:1\n-1 2:1\n" * 20)
    (place / "in" / "raw" / "part-1.csv").write_text((place / "a.csv").read_text())
    (place / "in" / "specs" / "a.yaml").write_text((place / "a.yaml").read_text())
    return place


def content(place):
    return {path: path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(("told", "line"), [(told, line) for told, lines in REFUSED.items() for line in lines])
def test_no_command_takes_away_or_changes_what_it_reads(told, line, there, monkeypatch):
    monkeypatch.chdir(there)
    before = content(there)
    words = [*line.split(), "--overwrite"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 1 and told in done.output, done.output
    assert content(there) == before


def test_a_model_may_be_replaced_by_what_comes_of_it(there, monkeypatch):
    monkeypatch.chdir(there)
    os.link("m.bigclf", "n.bigclf")
    words = ["fit", "shards", "--init", "n.bigclf", "--algo", "pa1", "--epochs", "1", "-o", "n.bigclf", "--overwrite"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output


BESIDE = [
    "fit shards --algo pa1 --epochs 1 -o shards/run/m.bigclf --run-dir shards/run/r",
    "fit shards/part-0*.parquet --algo pa1 --epochs 1 -o shards/model",
    "fit a.csv --label label --algo pa1 --epochs 1 -o _m.bigclf --report r.html",
    "fit in/raw --label label --algo pa1 --epochs 1 -o in/raw/.m.bigclf",
    "predict m.bigclf shards -o shards/predicted",
    "evaluate m.bigclf a.parquet -o e.json",
    "report old -o old/r.html",
    "sweep a.parquet -o . --algo pa1 --epochs 1 --grid C=1,2 --folds 2",
    "split a.parquet .",
]


@pytest.fixture
def here(there, tmp_path, monkeypatch):
    """A copy of it to work in."""
    shutil.copytree(there, tmp_path / "there", symlinks=True)
    monkeypatch.chdir(tmp_path / "there")
    return tmp_path / "there"


@pytest.mark.parametrize("line", BESIDE)
def test_what_changes_no_input_is_written(line, here):
    """Beside files that are named, below directories of files, and under names that are not read; twice."""
    shutil.copy("shards/part-00000.parquet", "a.parquet")
    inputs = {name: digest for name, digest in content(here).items() if name.name.startswith("part-")}
    for _ in range(2):
        done = CliRunner().invoke(main, [*line.split(), "--overwrite"])
        assert done.exit_code == 0, done.output
    after = content(here)
    assert all(after[name] == digest for name, digest in inputs.items())


@pytest.mark.parametrize("words", ["", "--overwrite", "--resume"])
@pytest.mark.parametrize("line", ["sweep shards -o w --grid C=1,2", "path shards -o w --C 1,2"])
def test_what_no_run_wrote_is_not_removed_with_one(line, words, here):
    """DIR/run, which goes at the end, may be somebody's own directory of that name."""
    shutil.rmtree("w")
    os.makedirs("w/run/mine")
    (here / "w" / "run" / "mine" / "thesis.tex").write_text("all of it")
    before = content(here)
    done = CliRunner().invoke(main, [*line.split(), *words.split(), "--tol", "0.5"])
    assert done.exit_code == 1 and "thesis.tex: was not written by a run; it is not removed" in done.output
    after = content(here)
    assert before == {name: text for name, text in after.items() if name.name != ".lease"}


STEPS = {
    "over the job": [{"evaluate": {"model": "m.bigclf", "data": "shards", "output": "job.yaml"}}],
    "over what an earlier step reads": [
        {"convert": {"sources": "a.csv", "out": "s", "label": "label"}},
        {"evaluate": {"model": "m.bigclf", "data": "shards", "output": "a.csv"}},
    ],
    "over what a later step reads": [
        {"evaluate": {"model": "m.bigclf", "data": "shards", "output": "a.csv"}},
        {"convert": {"sources": "link.csv", "out": "s", "label": "label"}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("steps", STEPS)
def test_no_step_of_a_job_writes_over_what_others_read(steps, here):
    (here / "job.yaml").write_text(json.dumps({"steps": STEPS[steps]}))
    before = content(here)
    done = CliRunner().invoke(main, ["run", "job.yaml", "--overwrite"])
    assert done.exit_code == 1 and ": is an input; write to another place" in done.output, done.output
    assert content(here) == before


def test_a_step_may_write_what_the_next_one_reads(here):
    """And a run may stand in the directory of its job, as where the job is kept with it."""
    steps = [
        {"fit": {"data": "shards", "output": "n.bigclf", "run_dir": "of", "algo": "pa1", "epochs": 1}},
        {"evaluate": {"model": "n.bigclf", "data": "shards", "output": "e.json"}},
    ]
    (here / "of").mkdir()
    (here / "of" / "job.yaml").write_text(json.dumps({"steps": steps}))
    for _ in range(2):
        done = CliRunner().invoke(main, ["run", "of/job.yaml", "--overwrite"])
        assert done.exit_code == 0, done.output


FIT = {"fit": {"data": "shards", "output": "n.bigclf", "algo": "pa1", "epochs": 1}}
ON = {"fit": {**FIT["fit"], "init": "n.bigclf"}}
AGAIN = {
    "a model calibrated in its place": [
        FIT, {"calibrate": {"model": "n.bigclf", "data": "shards", "output": "n.bigclf"}}
    ],
    "a model that learns on": [FIT, ON],
    "a model that is measured before it learns on": [
        {"evaluate": {"model": "m.bigclf", "data": "shards", "output": "before.json"}},
        {"fit": {**FIT["fit"], "init": "m.bigclf", "output": "m.bigclf"}},
        {"evaluate": {"model": "m.bigclf", "data": "shards", "output": "e.json"}},
    ],
    "shards of which some are learned from": [
        {"convert": {"sources": "a.csv", "out": "s", "label": "label"}},
        {"fit": {**FIT["fit"], "data": "s/*.parquet"}},
        {"evaluate": {"model": "n.bigclf", "data": "s/part-00000.parquet", "output": "e.json"}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("steps", AGAIN)
def test_a_job_that_replaces_its_own_results_can_be_given_again(steps, here):
    (here / "job.yaml").write_text(json.dumps({"steps": AGAIN[steps]}))
    for _ in range(2):
        done = CliRunner().invoke(main, ["run", "job.yaml", "--overwrite"])
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("kept", ["job.yaml", "of/job.yaml"])
def test_a_job_in_its_own_run_directory_stays_as_it_was_written(kept, here):
    (here / "of").mkdir()
    text = (
        "# mine\ndata: {train: shards}\nmethod: {algo: pa1}\nlimits: {epochs: 1}\nrun: {dir: of}\noutputs: {model: n}\n"
    )
    (here / kept).write_text(text)
    done = CliRunner().invoke(main, ["run", kept])
    assert done.exit_code == 0, done.output
    assert (here / kept).read_text() == text
    assert "algo: pa1" in (here / "of" / "job.yaml").read_text()
