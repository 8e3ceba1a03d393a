"""Golden command lines: what they print, what they leave, and the exit codes that scripts trust."""

import errno
import functools
import json
import multiprocessing
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import click
import numpy as np
import pytest
from click.testing import CliRunner
from making import environment

from bigclf.cli import COMMANDS, inspect, main
from bigclf.data.dataset import Dataset
from bigclf.errors import RunError

TEXT = "".join(
    f"{'+1' if k % 3 else '-1'} {k % 5 + 1}:{0.5 + k % 7 / 8} {k % 3 + 6}:1{' 9:0.25' if k % 2 else ''}\n"
    for k in range(300)
)


def bigclf(*words, code=0, env=None):
    """Run in this process; (stdout, stderr)."""
    result = CliRunner(env=env).invoke(main, [str(word) for word in words], prog_name="bigclf", catch_exceptions=False)
    assert result.exit_code == code, (words, result.exit_code, result.stdout, result.stderr)
    return result.stdout, result.stderr


def error_of(*words, code):
    """The one error line."""
    out, err = bigclf(*words, code=code)
    lines = [line for line in err.splitlines() if line.startswith("error:")]
    assert len(lines) == 1 and out == "" and "Traceback" not in err
    return lines[0]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Text, its shards and a model."""
    path = tmp_path_factory.mktemp("cli")
    (path / "a.svm").write_text(TEXT)
    bigclf("convert", path / "a.svm", path / "shards", "--workers", 1)
    bigclf("fit", path / "shards", "-o", path / "model", "--tol", "1e-4")
    return path


def test_help_loads_nothing_heavy_and_names_every_command():
    """What makes it answer at once, counted and not timed: none of the large libraries, few of our modules."""
    command = [sys.executable, "-X", "importtime", "-m", "bigclf", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and all(f"  {name} " in done.stdout for name in COMMANDS)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "click" in loaded and "bigclf.cli" in loaded
    heavy = {"numpy", "scipy", "numba", "pyarrow", "pandas", "dask", "distributed", "rich", "sklearn"}
    assert not heavy & {name.partition(".")[0] for name in loaded}
    assert len([name for name in loaded if name.startswith("bigclf")]) <= 40  # of some 200


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name):
    out, _ = bigclf(name, "--help")
    assert out.startswith(f"Usage: bigclf {name}") and len(out.splitlines()) > 5


def test_no_arguments_show_the_help():
    _, err = bigclf(code=2)
    assert err.startswith("Usage: bigclf") and "Start with: bigclf demo" in err and len(err.splitlines()) > 15


def test_the_package_answers_at_once_and_has_what_it_promises():
    import bigclf as package

    code = "import sys, bigclf; dir(bigclf); print([m for m in ('numpy', 'numba', 'pyarrow') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
    assert all(getattr(package, name) is not None for name in package.__all__)
    assert package.errors.BigclfError and callable(package.fit) and {"fit", "load"} <= set(dir(package))
    with pytest.raises(AttributeError, match="it has Dataset"):
        _ = package.nothing


ENDING = """
import atexit, ctypes, sys, threading, time
from bigclf.__main__ import run
ctypes.CDLL(None).printf(b" printed")
atexit.register(lambda: sys.stdout.write("end"))
threading.Thread(target=lambda: (time.sleep(0.2), sys.stdout.write("thread "))).start()
class Late:
    def __del__(self):
        sys.stdout.write("taken apart")
kept = Late()
run()
"""


@pytest.mark.parametrize(("words", "code", "said"), [(["--version"], 0, "bigclf, version"), (["nothing"], 2, "")])
def test_the_process_ends_as_any_other_but_is_not_taken_apart(words, code, said):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # of C's streams, too
    done = subprocess.run([sys.executable, "-c", ENDING, *words], capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == code and done.stdout.startswith(said) and done.stdout.endswith("thread end printed")


INTERRUPTED = """
import os, signal, threading, time
from bigclf.__main__ import run
def late():
    while threading.main_thread().is_alive() and not ending.is_set():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
ending, wait = threading.Event(), threading._shutdown
threading._shutdown = lambda: (ending.set(), wait())
threading.Thread(target=late).start()
threading.Thread(target=time.sleep, args=(0.5,)).start()
run()
"""


def test_impatience_at_the_end_changes_no_exit_code():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, "nothing"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "Traceback" not in done.stderr


CALLED = """
import runpy, sys
{}
def call():
    sys.argv[0] = "bigclf"
    {}
try: call()
finally: print('seen')
"""
CALLS = {
    "profiler": ("sys.setprofile(lambda *_: None)", "runpy.run_module('bigclf', run_name='__main__')"),
    "function": ("", "from bigclf.__main__ import run; run()"),
    "module": ("", "runpy.run_module('bigclf', run_name='__main__')"),  # as profilers that no hook tells of
}


@pytest.mark.parametrize("how", CALLS)
def test_who_calls_sees_the_end(how):
    code = CALLED.format(*CALLS[how])
    done = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.endswith("seen\n")


def test_nobody_who_reads_is_no_crash():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as nobody:
        done = subprocess.run([sys.executable, "-m", "bigclf", "help", "methods"], stdout=nobody,
                              stderr=subprocess.PIPE, text=True, timeout=120)  # fmt: skip
    assert "Traceback" not in done.stderr


def test_version():
    import bigclf as package

    assert package.__version__ in bigclf("--version")[0]


# Each command does its work


def test_convert_tells_what_it_made(place, tmp_path):
    out, err = bigclf("convert", place / "a.svm", tmp_path / "s", "--workers", 1, "--no-shuffle")
    assert "300 rows, 9 features" in out and "-1: 100 rows · 1: 200 rows" in out and err == ""
    assert f"next: bigclf evaluate MODEL {tmp_path / 's'}\n" in out  # who keeps the order has rows for a test
    told = json.loads(bigclf("convert", place / "a.svm", tmp_path / "s", "--overwrite", "--json", "--workers", 1)[0])
    assert told["rows"] == 300 and told["features"] == 9 and told["report"]["bad_rows"] == 0
    assert "next: bigclf fit" in bigclf("convert", place / "a.svm", tmp_path / "t", "--workers", 1)[0]
    assert told["classes"] == [{"label": -1, "rows": 100}, {"label": 1, "rows": 200}]


def test_figures_on_validation_rows_and_the_results_of_a_sweep_are_shown(place, tmp_path):
    words = ("--algo", "pa1", "--validate", place / "shards", "--early-stopping", 2, "--run-dir", tmp_path / "run")
    fitted = bigclf("fit", place / "shards", "-o", tmp_path / "model", *words)[0]
    model = json.loads(bigclf("inspect", tmp_path / "model", "--json")[0])["facts"]
    shown = f"accuracy {100 * model['validation']['accuracy']:.2f} %"
    assert f"{shown} after epoch {model['best_epoch']}, the best" in fitted
    assert all(shown in bigclf("inspect", tmp_path / name)[0] for name in ("model", "run"))
    swept = bigclf("sweep", place / "shards", "-o", tmp_path / "sweep", "--grid", "C=0.1,1", "--folds", 2)[0]
    inspected = bigclf("inspect", tmp_path / "sweep")[0]
    assert "a sweep, 2 points, 1 read" in inspected and swept.splitlines()[1:-1] == inspected.splitlines()[1:-1]
    told = json.loads(bigclf("inspect", tmp_path / "sweep", "--json")[0])
    assert told["kind"] == "sweep" and len(told["table"]) == 2
    (tmp_path / "sweep" / "results.json").write_text("{}")
    assert "not the results of a sweep" in error_of("inspect", tmp_path / "sweep", code=3)


def test_errors_about_a_methods_parameters_say_where_those_are(place, tmp_path):
    words = ("fit", place / "shards", "-o", tmp_path / "model", "--algo", "pa1")
    assert "algorithms: eta is a parameter of methods, --param eta=VALUE" in error_of(*words, "--eta=1", code=2)
    assert "(see bigclf algorithms pa1)" in error_of(*words, "--param", "eta=1", code=2)
    assert "(see bigclf fit --help)" in error_of(*words, "--epoch=1", code=2)
    assert "smaller chunks (bigclf convert --chunk-nnz)" in error_of(*words, "--groups=9", code=2)
    out = bigclf("algorithms")[0]
    assert "squared_epsilon_insensitive" in out and "voted perceptron: not one vector but the majority of all" in out


def test_one_row_is_one_row(tmp_path):
    (tmp_path / "one.svm").write_text("1 1:0.5\n")
    out = bigclf("convert", tmp_path / "one.svm", tmp_path / "one", "--workers", 1)[0]
    out += bigclf("inspect", tmp_path / "one")[0]
    assert out.count("1 row, 1 feature") == 2 and "1 rows" not in out and "(1 file, 1 chunk)" in out


def test_inspect_data_model_and_run(place, tmp_path):
    assert "300" in bigclf("inspect", place / "shards")[0]
    data = json.loads(bigclf("inspect", place / "shards", "--json")[0])
    assert data["kind"] == "data" and data["nnz"] == 750 and data["warnings"] == []
    out = bigclf("inspect", place / "model")[0]
    assert "a model trained with dcd" in out and "certified: within" in out
    model = json.loads(bigclf("inspect", place / "model", "--json")[0])
    assert model["kind"] == "model" and model["classes"] == [-1, 1] and model["certificate"]["gap"] <= 1e-4
    bigclf("fit", place / "shards", "-o", tmp_path / "m", "--run-dir", tmp_path / "run", "--algo", "pa1", "--epochs", 5)
    told = bigclf("inspect", tmp_path / "run")[0]
    assert "a run of pa1, 5 epochs" in told and "bias=feature" in told and "free_bias" not in told
    assert re.search(r"\n  plan +all rows in memory, [\d.]+ MB planned, float64 weights, seed 0\n", told), told
    run = json.loads(bigclf("inspect", tmp_path / "run", "--json")[0])
    assert run["kind"] == "run" and run["history"][-1]["epoch"] == 5
    with open(tmp_path / "run" / "history.jsonl", "a") as file:  # an epoch that learned from no row
        file.write(json.dumps({**run["history"][-1], "epoch": 6, "rows": 0, "error": 0.0, "mistakes": 0}) + "\n")
    (last,) = [line for line in bigclf("inspect", tmp_path / "run")[0].splitlines() if line.split()[:1] == ["6"]]
    assert "0.00 %" not in last, last
    shown = dict(inspect._training_facts({"pruned": {"tol": 0.1, "kept": 3, "of": 2900}}, "dcd"))
    assert shown["pruned"] == "within 0.1: 3 of 2,900 weights are left"


def test_validate_says_good(place, request):
    out, err = bigclf("validate", *(place / "shards").glob("*"))  # as a shell has it
    assert out.startswith("good") and err == ""
    request.getfixturevalue("checked_here")
    told = json.loads(bigclf("validate", place / "shards", "--json")[0])
    assert told["rows"] == 300 and told["faults"] == []


def test_fit_tells_how_good_and_leaves_only_the_model(place, tmp_path):
    out, err = bigclf("fit", place / "shards", "-o", tmp_path / "deep" / "m", "--C", "0.5", "--bias", "none")
    assert "certified: within" in out and "next: bigclf evaluate" in out and err == ""
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["m"]
    told = json.loads(bigclf("fit", place / "shards", "-o", tmp_path / "m", "--json", "--seed", 3)[0])
    assert told["converged"] and told["certificate"]["gap"] <= 1e-3 and told["history"]


def test_fit_online(place, tmp_path):
    out, _ = bigclf("fit", place / "shards", "-o", tmp_path / "m", "--algo", "pa1", "--param", "C=0.5", code=2)
    out, _ = bigclf("fit", place / "shards", "-o", tmp_path / "m", "--algo", "pa1", "--C", "0.5", "--epochs", 2)
    assert "progressive validation error" in out and "each judged before training on it" in out


def test_fit_that_stops_at_its_limits_writes_the_model_and_says_4(place, tmp_path):
    out, err = bigclf("fit", place / "shards", "-o", tmp_path / "m", "--tol", "1e-9", "--epochs", 1, code=4)
    assert "not converged" in out and err.startswith("warning: not converged") and (tmp_path / "m").exists()


def test_evaluate(place, tmp_path):
    out, _ = bigclf("evaluate", place / "model", place / "shards", "-o", tmp_path / "e.json")
    assert out.startswith("accuracy ") and "AUC" in out and "precision" in out
    told = json.loads(bigclf("evaluate", place / "model", place / "shards", "--json")[0])
    kept = json.loads((tmp_path / "e.json").read_text())
    assert told["n"] == 300 and {**told, "seconds": 0} == {**kept, "seconds": 0}


def test_what_cannot_be_learned_or_validated_is_told_of_the_table_itself(tmp_path):
    """And before anything is trained."""
    for name, labels, value in (("ok", "uv", "0.5"), ("other", "pq", "0.5"), ("bad", "uv", "x")):
        rows = "".join(f"{labels[i % 2]},{value}{i}\n" for i in range(40))
        (tmp_path / f"{name}.csv").write_text("y,a\n" + rows)
    named, other = ("--label", "y", "--numeric", "a"), tmp_path / "other.csv"
    words = ("--validate", other, "-o", tmp_path / "out")
    ways = (("fit", "--epochs", 1, *words), ("sweep", "--grid", "C=0.1,1", "--folds", 0, *words))
    for verb, *more in ways:
        said = error_of(verb, tmp_path / "ok.csv", *named, *more, code=3)
        assert f"{other}, column y: no row has a label that the model knows: the model knows 'u', 'v'" in said
    for name, labels in (("many", "uvw"), ("others", "pqr")):
        rows = "".join(f"{labels[i % 2]},{labels[i % 3]},{i}\n" for i in range(40))
        (tmp_path / f"{name}.csv").write_text("y,z,a\n" + rows)
    several = ("--label", "y", "--label", "z", "--numeric", "a", "--epochs", 1, "--validate", tmp_path / "others.csv")
    said = error_of("fit", tmp_path / "many.csv", *several, "-o", tmp_path / "out", code=3)
    assert f"{tmp_path / 'others.csv'}, column y, z: no row has a label that the model knows" in said
    bad = ("--on-bad-rows", "skip", "--max-bad-fraction", 1, "-o", tmp_path / "out")
    for verb, *more in (("fit", "--epochs", 1), ("sweep", "--grid", "C=0.1,1", "--folds", 0)):
        words = ("--validate", tmp_path / "bad.csv", *bad)
        out, said = bigclf(verb, tmp_path / "ok.csv", *named, *more, *words, code=3)
        assert "warning: of the rows to validate on, 40 bad rows were left out: 40 as in" in said
        assert f"{tmp_path / 'bad.csv'}: no row is left: 40 bad rows" in said
    said = error_of("fit", tmp_path / "bad.csv", *named, *bad, code=3)
    assert f"{tmp_path / 'bad.csv'}: no row is left: 40 bad rows were left out: 40 as in" in said
    assert "line 2: column a: 'x0' is not a number" in said
    assert not list(tmp_path.glob("out*"))


def test_rows_of_which_no_label_is_known_are_an_error_of_their_file(place, tmp_path):
    """A model that was learned meanwhile is kept, and told of first."""
    other = tmp_path / "other.svm"
    other.write_text("5 1:1\n6 2:1\n")
    said = error_of("evaluate", place / "model", other, "-o", tmp_path / "e.json", code=3)
    assert f"{other}: no row has a label that the model knows" in said  # such text has no columns
    assert not (tmp_path / "e.json").exists()
    words = ("fit", place / "shards", "--evaluate", other, "-o", tmp_path / "m", "--algo", "pa1", "--epochs", "1")
    out, err = bigclf(*words, code=3)
    assert "pa1 in " in out and "no row has a label" in err and (tmp_path / "m").exists()
    assert not list(tmp_path.glob("m.run"))


def test_predict_and_predict_again(place, tmp_path):
    out, _ = bigclf("predict", place / "model", place / "shards", "-o", tmp_path / "p", "--scores")
    assert "row, label, prediction, score" in out
    out, _ = bigclf("predict", place / "model", place / "shards", "-o", tmp_path / "p", "--scores", "--json")
    told = json.loads(out)
    assert told["written"] == 0 and told["kept"] == 1 and told["columns"] == ["row", "label", "prediction", "score"]
    again = ("predict", place / "model", place / "shards", "-o", tmp_path / "q", "--keep")
    assert "no column 'id' to keep" in error_of(*again, "id,fold", code=3)
    bigclf(*again, "none")


def test_algorithms():
    out, _ = bigclf("algorithms")
    assert "dcd" in out and "certified gap" in out and "progressive error" in out
    told = json.loads(bigclf("algorithms", "--json")[0])
    assert {"dcd", "perceptron", "pa", "pa1", "pa2"} <= {method["name"] for method in told}
    out, _ = bigclf("algorithms", "dcd")
    assert "Hsieh" in out and "C=1" in out


def test_warnings_of_the_data_are_lines(tmp_path):
    (tmp_path / "a.svm").write_text("-1 1:1 2:2\n" * 200 + "1 2:1 3:1\n" * 200)
    bigclf("convert", tmp_path / "a.svm", tmp_path / "s", "--workers", 1, "--no-shuffle")
    _, err = bigclf("fit", tmp_path / "s", "-o", tmp_path / "m")
    assert err.startswith("warning: the labels are sorted") and len(err.splitlines()) == 1


def test_labels_come_back_as_they_were(tmp_path):
    from bigclf.conversion.convert import write_shards
    from bigclf.data.shards import read_table

    block = (np.arange(41), np.arange(40) % 4, np.full(40, 0.5, np.float32), np.arange(40) % 4 % 2)
    for number, classes in enumerate((["ham", "spam"], [False, True], [0.5, 1.5])):
        write_shards([block], tmp_path / f"s{number}", classes=classes)
        bigclf("fit", tmp_path / f"s{number}", "-o", tmp_path / f"m{number}")
        assert json.loads(bigclf("inspect", tmp_path / f"m{number}", "--json")[0])["classes"] == classes
        bigclf("predict", tmp_path / f"m{number}", tmp_path / f"s{number}", "-o", tmp_path / f"p{number}")
        table = read_table(str(tmp_path / f"p{number}" / "part-00000.parquet"))
        assert table["prediction"].tolist() == table["label"].tolist() == [classes[k % 4 % 2] for k in range(40)]


# Errors are one line and a code


@pytest.mark.parametrize("command", ["fit", "sweep", "path"])
def test_an_option_with_too_few_dashes_is_recognised(tmp_path, command):
    said = error_of(command, "rows", "-o", tmp_path / "m", "-C", 1, code=2)
    assert f"'-C'; did you mean --C? (see bigclf {command} --help)" in said


@pytest.mark.parametrize(("command", "flag"), [("path", "--C"), ("sweep", "--grid")])
def test_an_option_that_must_be_said_is_asked_for(tmp_path, command, flag):
    assert f"Missing option '{flag}'" in error_of(command, "rows", "-o", tmp_path / "m", code=2)


def test_a_column_that_differs_in_capitals_is_suggested(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n" + "1,p\n2,n\n" * 20)
    for words in (("fit", tmp_path / "t.csv", "-o", tmp_path / "m"), ("convert", tmp_path / "t.csv", tmp_path / "o")):
        said = error_of(*words, "--label", "Y", code=3)
        assert "column Y: there is no such column; the table has " in said and "; did you mean y?" in said


def test_a_role_of_a_column_that_is_nearly_one_is_suggested(place, tmp_path):
    line = error_of("fit", place / "shards", "-o", tmp_path / "m", "--columns", "labl=y", code=2)
    assert "unknown role 'labl'; a role is one of label, features" in line and "did you mean label?" in line


def test_inspect_says_where_a_run_that_was_broken_off_goes_on(place, tmp_path):
    run = tmp_path / "run"
    bigclf("fit", place / "shards", "-o", tmp_path / "m", "--algo", "pa1", "--epochs", 2, "--run-dir", run)
    (run / "model.bigclf").unlink()
    last = max(int(file.name.split("-")[1]) for file in run.glob("state-*"))
    assert f"stopped; --resume continues in epoch {last}" in bigclf("inspect", run)[0]
    for file in run.glob("state-*"):
        file.unlink()
    assert "stopped; --resume begins anew: no checkpoint had been written" in bigclf("inspect", run)[0]
    assert json.loads(bigclf("inspect", run, "--json")[0])["status"]["checkpoint"] is None


def test_advice_on_columns_is_in_flags_and_inspect_has_them(tmp_path):
    import pandas as pd

    path = tmp_path / "frame.parquet"
    pd.DataFrame({"a": [1.0, 2.0], "b": [0.0, 3.0], "bought": [0, 1]}, index=[5, 6]).to_parquet(path)
    worded = tmp_path / "worded.parquet"
    pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"], "bought": [0, 1]}).to_parquet(worded, index=False)
    assert "2 rows, 3 columns, parquet" in bigclf("inspect", worded)[0]
    line = error_of("inspect", worded, "--shards", code=3)
    assert "b (string) holds no numbers" in line or "b (large_string) holds no numbers" in line
    assert "(--label COLUMN, or --columns label=...);" in line and "{" not in line and "columns=" not in line
    assert "--columns label=...);" in error_of("inspect", path, "--shards", code=3)
    assert "--columns label=...);" in error_of("inspect", path, "--columns", "features=a", code=3)
    lists = tmp_path / "lists.parquet"
    pd.DataFrame({"bought": [0, 1], "i": [[1], [2, 3]], "v": [[0.5], [1.0, 2.0]]}).to_parquet(lists, index=False)
    line = error_of("inspect", lists, code=3)
    assert "--columns label=bought,indices=i,values=v names them" in line and "{" not in line
    assert "2 rows, 4 features" in bigclf("inspect", lists, "--columns", "label=bought,indices=i,values=v")[0]
    out, err = bigclf("inspect", path, "--columns", "label=bought,features=*")
    assert "2 rows, 2 features" in out and err.count("warning:") == 0


def test_a_command_advises_only_options_that_it_has(tmp_path, place):
    import pandas as pd

    path = tmp_path / "none.parquet"
    pd.DataFrame({"a": [1.0, 2.0], "b": [0.0, 3.0]}).to_parquet(path, index=False)
    for words in (("evaluate", place / "model", path), ("split", path, tmp_path / "s", "--parts", "a=0.5,b=0.5")):
        line = error_of(*words, code=3)
        assert "--columns" not in line and "--label" not in line and "{" not in line
        assert f"{path}: there is no label column; the file has a, b" in line
    assert "did you mean --label b or --label a?" in error_of("fit", path, "-o", tmp_path / "m", code=3)


def test_the_line_to_go_on_holds_nothing_that_begins_anew():
    from bigclf.cli import fit
    from bigclf.cli.shared import terminal

    with fit.command.make_context("fit", ["s", "-o", "m", "--overwrite"]) as ctx:
        assert terminal.command_line(ctx, resume=True) == "fit s --output m --resume"
        assert terminal.command_line(ctx) == "fit s --output m --overwrite"


def test_a_run_that_may_replace_a_model_goes_on_without_being_told_again(tmp_path):
    from bigclf.cli import fit

    allow_to_replace, prepare = fit.allow_to_replace, functools.partial(fit.prepare, click.Context(fit.command))
    model, run_dir = str(tmp_path / "m"), str(tmp_path / "m.run")
    (tmp_path / "m").write_text("an older model")
    allow_to_replace(model, run_dir)
    (tmp_path / "m.run" / "run.json").write_text("{}")
    prepare(model, run_dir, overwrite=False, resume=True)
    (tmp_path / "m").write_text("a model that came later")
    with pytest.raises(RunError, match="is not from the run"):
        prepare(model, run_dir, overwrite=False, resume=True)
    with pytest.raises(RunError, match="is not from the run"):
        prepare(str(tmp_path / "m.run" / "replaces.json"), run_dir, overwrite=False, resume=True)
    prepare(model, run_dir, overwrite=True, resume=False)
    assert not (tmp_path / "m.run").exists()  # the note goes with the run


def test_a_table_of_points_without_a_certificate_has_no_column_of_gaps(capsys):
    from bigclf.cli.shared.texts import print_table

    point = {"params": {"C": 1}, "mean": 0.25, "spread": 0.5, "gap": None, "epochs": 2, "seconds": 1.0}
    print_table([point], "error", {})
    without = capsys.readouterr().out
    print_table([point, {**point, "gap": 1e-3}], "error", {})
    assert "gap" not in without and "1.00" in without and "0.25000" in without
    shown = capsys.readouterr().out
    assert "gap" in shown and "1.0e-03" in shown


def test_usage_errors_are_2(place, tmp_path):
    m = tmp_path / "m"
    assert "no such command 'fitt'; did you mean fit?" in error_of("fitt", code=2)
    assert "--bogus" in error_of("fit", "x", "-o", m, "--bogus", code=2)
    assert "no effect" in error_of("fit", place / "shards", "-o", m, "--algo", "pa", "--C", 2, code=2)
    assert "tol has no effect" in error_of("fit", place / "shards", "-o", m, "--algo", "pa1", "--tol", "0.1", code=2)
    assert "unknown algo" in error_of("fit", place / "shards", "-o", m, "--algo", "nope", code=2)
    assert "outside its bounds" in error_of("fit", place / "shards", "-o", m, "--C", "-1", code=2)
    assert "no effect" in error_of("fit", place / "shards", "-o", m, "--algo", "dcd", "--param", "r=1", code=2)
    assert "r is a parameter of" in error_of("fit", place / "shards", "-o", m, "--param", "r=1", code=2)
    assert "not a size" in error_of("fit", place / "shards", "-o", m, "--memory", "lots", code=2)
    assert "option of its own" in error_of("fit", place / "shards", "-o", m, "--param", "C=1", code=2)
    assert "no method" in error_of("algorithms", "nope", code=2)
    assert "format must be" in error_of("convert", place / "a.svm", m, "--format", "xml", code=2)
    assert not m.exists() and list(tmp_path.iterdir()) == []


def test_bad_data_is_3(place, tmp_path):
    assert "nearest directory" in error_of("fit", tmp_path / "no" / "*.parquet", "-o", tmp_path / "m", code=3)
    (tmp_path / "bad.svm").write_text("1 1:0.5\nx y z\n")
    line = error_of("convert", tmp_path / "bad.svm", tmp_path / "out", "--workers", 1, code=3)
    assert "bad.svm" in line and "line 2" in line and not (tmp_path / "out").exists()
    (tmp_path / "empty.parquet").write_bytes(b"")
    assert "empty" in error_of("inspect", tmp_path / "empty.parquet", code=3)
    (tmp_path / "binary").write_bytes(bytes(100))
    assert "PAR1" in error_of("evaluate", place / "model", tmp_path / "binary", code=3)
    (tmp_path / "pickle").write_bytes(b"\x80\x04\x95")
    assert "pickle" in error_of("evaluate", tmp_path / "pickle", place / "shards", code=3)
    assert "no such file" in error_of("predict", tmp_path / "none", place / "shards", "-o", tmp_path / "p", code=3)


class Here:
    """A context of multiprocessing whose children are done at once, and here."""

    Pipe = staticmethod(multiprocessing.Pipe)

    def __init__(self, kind):
        assert kind == "spawn"

    class Process:
        def __init__(self, target, args, daemon):
            self.start = functools.partial(target, *args)

        def kill(self):
            pass

        join = kill


@pytest.fixture
def checked_here(monkeypatch):
    """``bigclf validate`` looks at rows in this process: others show that it needs none of its own to survive."""
    monkeypatch.setattr(multiprocessing, "get_context", Here)
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the child's own


@pytest.mark.usefixtures("checked_here")
def test_validate_names_every_damaged_row_group(place, tmp_path):
    shutil.copytree(place / "shards", tmp_path / "s")
    (shard,) = (tmp_path / "s").glob("part-*")
    data = bytearray(shard.read_bytes())
    data[60] ^= 255
    shard.write_bytes(data)
    out, err = bigclf("validate", tmp_path / "s", code=3)
    assert out.startswith("damaged") and err.startswith("error: ") and shard.name in err and "row group 0" in err


@pytest.mark.usefixtures("checked_here")
@pytest.mark.parametrize("name", ["_bigclf_manifest.json", "_bigclf_chunks.parquet"])
def test_validate_counts_a_damaged_manifest_and_says_how_to_write_it_anew(place, name, tmp_path):
    directory = tmp_path / "it's s"
    shutil.copytree(place / "shards", directory)
    (directory / name).write_bytes((directory / name).read_bytes()[:-9])
    out, err = bigclf("validate", directory, code=3)
    assert out.startswith("damaged") and err.startswith("error: ") and err.count("\n") == 1 and "work without it" in err
    told = json.loads(bigclf("validate", directory, "--json", code=3)[0])
    assert len(told["faults"]) == 1 and told["warnings"] == []
    assert "damaged" in bigclf("inspect", directory)[1]  # where nothing is checked it is a warning
    line = shlex.split(err[err.index("python -c") :].removesuffix(" does\n"))
    exec(line[2])
    assert bigclf("validate", directory)[1] == ""


@pytest.mark.usefixtures("checked_here")
def test_validate_says_of_which_of_several_directories_to_write_a_manifest(place, tmp_path):
    for name in ("a", "b"):
        shutil.copytree(place / "shards", tmp_path / name)
        shutil.copy(next((tmp_path / name).glob("part-*")), tmp_path / name / "part-x.parquet")
        Dataset(tmp_path / name).write_manifest(tmp_path / name)
    (tmp_path / "b" / "part-x.parquet").unlink()
    err = bigclf("validate", tmp_path / "a", tmp_path / "b", code=3)[1]
    assert f'd = "{tmp_path}/b"' in err and f'd = "{tmp_path}/a"' not in err


def test_a_crash_of_the_reader_is_survived(monkeypatch, place):
    from bigclf.cli import validate

    monkeypatch.setattr(validate, "_check_all", _crash)
    assert "crashed the reader" in error_of("validate", place / "shards", code=3)


def _crash(pipe, data, columns):
    pipe.send(("at", "x.parquet, row group 3"))
    os.kill(os.getpid(), signal.SIGSEGV)


def test_other_failures_are_1(place, tmp_path):
    assert "exists" in error_of("fit", place / "shards", "-o", place / "model", code=1)
    assert error_of("convert", place / "a.svm", place / "shards", code=1).endswith(" add --overwrite to replace it")
    assert "memory" in error_of("fit", place / "shards", "-o", tmp_path / "m", "--memory", "1kB", code=1)
    assert "directory" in error_of("fit", place / "shards", "-o", tmp_path, code=1)
    (tmp_path / "keep").write_text("")
    assert "not empty" in error_of("demo", "--dir", tmp_path, code=1)
    assert "memory=96.0 MB would do" in error_of("demo", "--dir", tmp_path / "d", "--memory", "1MB", code=1)
    assert not (tmp_path / "d").exists()
    text = error_of("fit", "nothing", "-o", tmp_path / "m", "--class-weight", "balancd", code=2)
    assert "balanced, or LABEL=WEIGHT" in text and "did you mean balanced?" in text
    assert "winnow" not in error_of("fit", "nothing", "-o", tmp_path / "m", "--algo", "arrow", code=2)
    assert [path.name for path in tmp_path.iterdir()] == ["keep"]


def test_an_unfinished_run_is_not_trampled_on(place, tmp_path):
    words = ("fit", place / "shards", "-o", tmp_path / "m", "--algo", "pa1")
    bigclf(*words, "--run-dir", tmp_path / "m.run")
    (tmp_path / "m").unlink()
    assert "--resume to continue it" in error_of(*words, code=1)
    bigclf(*words, "--overwrite")
    assert not (tmp_path / "m.run").exists()


def test_text_that_fit_takes_is_taken_by_evaluate_and_predict(place, tmp_path):
    """Whatever its name: the format is guessed by one rule, and --format says another."""
    import pyarrow.parquet as pq

    labels = [int(line.split()[0]) for line in TEXT.splitlines()]
    (tmp_path / "rows").write_text(TEXT)
    vw = "".join(f"{line.split()[0]} | " + " ".join("x" + word for word in line.split()[1:]) + "\n"
                 for line in TEXT.splitlines())  # fmt: skip
    for name in ("rows.vw", "rows.told"):
        (tmp_path / name).write_text(vw)
    hashed = bigclf("fit", tmp_path / "rows.vw", "-o", tmp_path / "v", "--hash-bits", 8, "--json")[0]
    given = bigclf("fit", tmp_path / "rows", "-o", tmp_path / "m", "--json")[0]
    assert json.loads(hashed)["converged"] and json.loads(given)["facts"]["n_rows"] == 300
    shards = json.loads(bigclf("evaluate", tmp_path / "m", place / "shards", "--json")[0])
    for model, rows, more in (("m", "rows", ()), ("v", "rows.vw", ()), ("v", "rows.told", ()),
                              ("v", "rows.told", ("--format", "vw"))):  # fmt: skip
        found = json.loads(bigclf("evaluate", tmp_path / model, tmp_path / rows, "--json", *more)[0])
        assert found["n"] == 300 and found["accuracy"] == shards["accuracy"]
        assert found["trained_on"] == 1  # the bytes are those that it learned from, whatever the name
        out = tmp_path / f"{model}-{len(more)}-{rows.replace('.', '-')}"
        bigclf("predict", tmp_path / model, tmp_path / rows, "-o", out, *more)
        table = pq.read_table(out / f"{rows}.parquet").to_pydict()
        assert table["label"] == labels and table["row"] == [*range(300)]  # in the order of the text
        assert sum(a == b for a, b in zip(labels, table["prediction"], strict=True)) == round(300 * found["accuracy"])
    bigclf("predict", tmp_path / "m", tmp_path / "rows", "-o", tmp_path / "said.csv")
    assert len((tmp_path / "said.csv").read_text().splitlines()) == 301
    hint = "it was read as svmlight, since its name tells no format: --format (format=) says another"
    for words in (("evaluate", tmp_path / "m", tmp_path / "rows.told"),
                  ("predict", tmp_path / "m", tmp_path / "rows.told", "-o", tmp_path / "no"),
                  ("fit", tmp_path / "rows.told", "-o", tmp_path / "no"),
                  ("convert", tmp_path / "rows.told", tmp_path / "no")):  # fmt: skip
        assert hint in error_of(*words, code=3)
    assert hint not in error_of("convert", tmp_path / "rows.told", tmp_path / "no", "--format", "svmlight", code=3)
    assert "no column 'id' to keep" in error_of(
        "predict", tmp_path / "m", tmp_path / "rows", "-o", tmp_path / "no", "--keep", "id", code=3
    )
    skipped = json.loads(bigclf("evaluate", tmp_path / "m", _with_a_bad_row(tmp_path), "--json", "--on-bad-rows",
                                "skip")[0])  # fmt: skip
    assert skipped["n"] == 300 and skipped["bad_rows"] == 1
    (tmp_path / "all.svm").write_text("1 3:x\n" * 9)
    words = ("evaluate", tmp_path / "m", tmp_path / "all.svm", "--on-bad-rows", "skip", "--max-bad-fraction", 1)
    for _ in range(2):  # as they are converted, and from the cache
        assert f"{tmp_path / 'all.svm'}: no row is left: 9 bad rows were left out: 9 as in" in error_of(*words, code=3)


def test_predictions_go_to_stdout(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bigclf("predict", place / "model", place / "shards", "-o", "said.csv", "--scores")
    out, _ = bigclf("predict", place / "model", place / "shards", "-o", "-", "--scores")
    assert out == (tmp_path / "said.csv").read_text() and [p.name for p in tmp_path.iterdir()] == ["said.csv"]
    assert "standard output" in error_of("predict", place / "model", place / "shards", "-o", "-", "--json", code=2)


def test_bad_rows_that_were_held_out_count_too(tmp_path):
    rows = [f"{k % 2},{k % 7}" if k % 30 else f"{k % 2},?!" for k in range(600)]  # 20 are bad
    (tmp_path / "r.csv").write_text("\n".join(["y,a", *rows]))
    words = ("fit", tmp_path / "r.csv", "--label", "y", "--numeric", "a", "--holdout", "0.3", "-o", tmp_path / "m",
             "--algo", "pa1", "--on-bad-rows", "skip", "--overwrite", "--json")  # fmt: skip
    told = json.loads(bigclf(*words, "--max-bad-fraction", "0.034")[0])
    measured, trained = told["evaluation"], told["facts"]["n_rows"]
    (note,) = [text for text in measured["notes"] if "held out" in text]
    assert measured["bad_rows"] > 0 and note.startswith(f"of the rows held out, {measured['bad_rows']} bad row")
    (warning,) = [text for text in told["facts"]["warnings"] if "left out" in text]
    n_bad = int(warning.split()[0])
    assert n_bad + measured["bad_rows"] == 20 and trained + measured["n"] == 580
    line = error_of(*words, "--max-bad-fraction", f"{19 / 600:.6f}", code=3)  # neither part alone has more
    assert "20 of 600 rows are bad" in line and "--max-bad-fraction 0.034 allows so many" in line


@pytest.mark.parametrize("kind", ["table", "sparse"])
def test_what_becomes_of_bad_rows_is_said_of_every_read_of_labelled_rows(tmp_path, kind):
    row, named = {
        "table": ("{y},{x}", ("--label", "y", "--numeric", "a")),
        "sparse": ("{y} 1:{x}", ()),
    }[kind]
    good = [row.format(y=k % 2, x=k % 7) for k in range(60)]
    bad = [*good, *[row.format(y=1, x="?!")] * 20]
    head, ending = (["y,a"], "csv") if kind == "table" else ([], "svm")
    for name, rows in (("good", good), ("bad", bad)):
        (tmp_path / f"{name}.{ending}").write_text("\n".join([*head, *rows]) + "\n")
    train, test, model = tmp_path / f"good.{ending}", tmp_path / f"bad.{ending}", tmp_path / "m"
    leave = ("--on-bad-rows", "skip", "--max-bad-fraction", 0.5)
    words = ("fit", train, *named, "-o", model, "--algo", "pa1", "--epochs", 1, "--validate", test)
    out, err = bigclf(*words, "--report", tmp_path / "of-fit.html", *leave)
    assert "of-fit.html" in out and "20 bad rows were left out" in err
    for verb, *to in (("evaluate",), ("report", "-o", tmp_path / "of-model.html"), ("explain",)):
        rows = (test,) if verb == "evaluate" else ("--data", test)
        assert f"{test}, line " in error_of(verb, model, *rows, *to, code=3)
        assert "20 bad rows were left out" in bigclf(verb, model, *rows, *to, *leave)[1]
    for words in (("report", model, "-o", tmp_path / "r"), ("explain", model), ("explain", model, "--row", 3)):
        more = ("--data", test) if "--row" in words else ()
        assert "--on-bad-rows" in error_of(*words, *more, *leave, code=2)
    for words in (("explain", model, "--row", 79, "--data", test), ("predict", model, test, "-o", tmp_path / "p")):
        assert "--on-bad-rows" not in error_of(*words, code=3)  # every row has its number there
    (tmp_path / "job.yaml").write_text(f"""
data: {{train: {train}, test: "{tmp_path}/ba*.{ending}"}}
method: {{{"label: y, numeric: a, " if named else ""}algo: pa1, on_bad_rows: skip, max_bad_fraction: 0.5}}
limits: {{epochs: 1}}
outputs: {{model: {tmp_path}/of-job, evaluation: {tmp_path}/e.json, report: {tmp_path}/of-job.html}}
""")
    bigclf("run", tmp_path / "job.yaml")
    assert json.loads((tmp_path / "e.json").read_text())["bad_rows"] == 20


def test_options_that_are_given_twice_mean_both_or_are_refused(place, tmp_path):
    (tmp_path / "t.csv").write_text("y,a,b,c,id\n" + "".join(f"{k % 2},{k},{-k},{k % 3},n{k}\n" for k in range(60)))
    words = (
        "--label",
        "y",
        "--numeric",
        "a",
        "--numeric",
        "b,c",
        "-o",
        tmp_path / "m",
        "--run-dir",
        tmp_path / "m.run",
    )
    out, _ = bigclf("fit", tmp_path / "t.csv", *words)
    assert "3 numbers" in out
    bigclf("predict", tmp_path / "m", tmp_path / "t.csv", "-o", tmp_path / "p.csv", "--keep", "id", "--keep", "b")
    assert (tmp_path / "p.csv").read_text().startswith('"row","id","b",')
    for k in (1, 2):
        (tmp_path / f"{k}.csv").write_text(f"y,a,b,c\n{k % 2},{k},{-k},{k % 3}\n")
    (tmp_path / "rows").write_text("5\n6\n")
    shards = ("fit", place / "shards", "-o", tmp_path / "s", "--run-dir", tmp_path / "s.run")
    bigclf(*shards)
    for run, *which in (("m", "--like", tmp_path / "1.csv", "--like", tmp_path / "2.csv"),
                        ("s", "--rows", tmp_path / "rows", "--rows", 3, "--rows", "7,8")):  # fmt: skip
        out, _ = bigclf("forget", tmp_path / run, "-o", tmp_path / f"{run}f", *which, "--to", tmp_path / f"{run}left")
        assert f"{2 if run == 'm' else 5} rows of" in out
    said = error_of(*shards, "--validate", "one", "--validate", "two", "--overwrite", code=2)
    assert "--validate is given twice: one, two; name a directory" in said
    said = error_of("report", tmp_path / "s", "-o", tmp_path / "r", "--data", "one", "two", code=2)
    assert "unexpected extra argument (two); of --data write a glob in quotes" in said


def _with_a_bad_row(path):
    (path / "bad.svm").write_text(TEXT + "1 3:x\n")
    return path / "bad.svm"


def test_a_training_that_stopped_at_its_limits_goes_on(place, tmp_path):
    words = ("fit", place / "shards", "-o", tmp_path / "m", "--tol", "1e-9")
    _, err = bigclf(*words, "--epochs", 1, "--resume", code=4)
    assert f"note: {tmp_path / 'm.run'}: no run to resume; starting from the beginning" in err
    out, err = bigclf(*words, "--epochs", 2, "--resume", code=4)
    told = f"to continue from {tmp_path / 'm.run'}, use --resume and a larger --epochs or --tol"
    assert told in out and "2 epochs" in out and "from the beginning" not in err
    line = error_of(*words, "--epochs", 9, code=1)
    assert (
        f"m already exists; add --overwrite to replace it, or --resume to continue its run in {tmp_path / 'm.run'}"
        in line
    )
    whole = bigclf("fit", place / "shards", "-o", tmp_path / "whole", "--tol", "1e-3", "--json")[0]
    out, _ = bigclf(*words[:-1], "1e-3", "--epochs", 100, "--resume", "--json")
    assert json.loads(out)["converged"] and json.loads(out)["run_dir"] is None and json.loads(whole)["converged"]
    assert not (tmp_path / "m.run").exists()  # it is done
    line = error_of(*words, "--resume", code=1)
    assert "m already exists; there is no run to resume in" in line and "add --overwrite to replace it" in line
    out, _ = bigclf(*words, "--epochs", 1, "--run-dir", tmp_path / "other", "--overwrite", code=4)
    assert "use --resume instead of --overwrite and a larger --epochs" in out
    bigclf("fit", place / "shards", "-o", tmp_path / "m", "--algo", "pa1", "--overwrite")
    line = error_of(*words, "--run-dir", tmp_path / "other", "--resume", code=1)
    assert "it is not from the run in" in line


def test_fit_and_inspect_do_not_praise_what_was_seen_before(place, tmp_path):
    words = ("fit", place / "shards", "--algo", "pa1", "-o")
    assert "each judged before" in bigclf(*words, tmp_path / "m")[0]
    seen = "the model it began with was trained on these rows: no estimate for others"
    out, _ = bigclf(*words, tmp_path / "n", "--init", tmp_path / "m", "--report", tmp_path / "n.html")
    assert seen in out and "each judged before" not in out
    assert seen in " ".join(bigclf("inspect", tmp_path / "n")[0].split())
    assert seen in (tmp_path / "n.html").read_text()


def test_nothing_but_the_run_is_removed_from_its_directory(place, tmp_path):
    (tmp_path / "m.run").mkdir()
    (tmp_path / "m.run" / "mine").write_text("")
    bigclf("fit", place / "shards", "-o", tmp_path / "m", "--algo", "pa1")
    assert [path.name for path in (tmp_path / "m.run").iterdir()] == ["mine"]


@pytest.mark.parametrize("last", [".m.run.removed.json", ".m.run.removed"])
def test_killed_while_its_directory_goes_a_run_knows_that_it_had_ended(last, place, tmp_path, monkeypatch):
    """It was trained anew, with the model in its place."""
    from bigclf import files
    from bigclf.api import fit

    words = ("fit", place / "shards", "-o", tmp_path / "m", "--tol", "1e-4", "--report", tmp_path / "r.html", "--json")

    def dies(remove):
        def killed(path):
            if os.path.basename(path) == last and os.path.exists(path):
                for name in os.listdir(path) if os.path.isdir(path) else ():
                    os.unlink(os.path.join(path, name))
                raise KeyboardInterrupt
            remove(path)

        return killed

    with monkeypatch.context() as patch:
        for name in ("remove", "remove_tree"):
            patch.setattr(files, name, dies(getattr(files, name)))
        CliRunner().invoke(main, [str(word) for word in words])
    assert not (tmp_path / "m.run").exists() and (tmp_path / ".m.run.removed.json").exists()
    model, report = (tmp_path / "m").read_bytes(), (tmp_path / "r.html").read_text()
    monkeypatch.setattr(fit, "conducted", None)  # nothing trains
    out, _ = bigclf(*words, "--resume")
    assert json.loads(out)["history"] and (tmp_path / "m").read_bytes() == model
    assert len((tmp_path / "r.html").read_text()) >= 0.9 * len(report)
    assert sorted(os.listdir(tmp_path)) == ["m", "r.html"]


def test_fit_with_resume_replaces_no_report_but_its_own(place, tmp_path):
    report = tmp_path / "r.html"
    report.write_text("mine")
    words = ("fit", place / "shards", "-o", tmp_path / "m", "--algo", "pa1", "--report", report)
    assert "r.html already exists; add" in error_of(*words, code=1)
    assert "r.html already exists, and is not known as this run's own" in error_of(*words, "--resume", code=1)
    assert report.read_text() == "mine" and list(tmp_path.iterdir()) == [report]


def test_a_demo_that_was_killed_at_its_start_begins_anew(tmp_path):
    from bigclf.cli.demo import taken

    (tmp_path / ".demo.json.tmp-2999999999-0123abcd").write_text("")
    with taken(str(tmp_path)):
        assert os.listdir(tmp_path) == [".lease"]


def test_a_run_that_cannot_begin_leaves_nothing(place, tmp_path):
    error_of("fit", place / "shards", "-o", tmp_path / "m", "--init", place / "a.svm", "--algo", "pa1", code=3)
    error_of("fit", place / "shards", "-o", tmp_path / "m", "--init", place / "model", "--algo", "dcd", code=2)
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_traceback(place, tmp_path):
    from bigclf.errors import DataError

    with pytest.raises(DataError):
        bigclf("inspect", tmp_path / "none", env={"BIGCLF_DEBUG": "1"})


def test_interrupted_is_6_and_the_line_it_prints_goes_on(tmp_path):
    rng = np.random.default_rng(0)
    rows = [" ".join(f"{j + 1}:{x:.3f}" for j, x in enumerate(row)) for row in rng.random((3000, 20))]
    (tmp_path / "a.svm").write_text("\n".join(f"{rng.choice((-1, 1))} {row}" for row in rows))
    bigclf("convert", tmp_path / "a.svm", tmp_path / "s", "--workers", 1)
    words = ["fit", "s", "-o", "m", "--algo", "pa1", "--epochs", "2000000", "--checkpoint-every", "0.2"]
    for number in (signal.SIGTERM, signal.SIGINT):
        before = set(tmp_path.glob("m.run/state-*"))
        child = subprocess.Popen(
            [sys.executable, "-m", "bigclf", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.getcwd()},
        )  # fmt: skip
        deadline = time.time() + 60
        while set(tmp_path.glob("m.run/state-*")) <= before and time.time() < deadline and child.poll() is None:
            time.sleep(0.1)
        child.send_signal(number)
        _, err = child.communicate(timeout=60)
        assert child.returncode == 6, err
        assert err.splitlines()[-1].endswith(
            "; continue with:  bigclf fit s --output m --algo pa1 --epochs 2000000 --checkpoint-every 0.2 --resume"
        )
        words = err.splitlines()[-1].split("bigclf ", 1)[1].split()
    assert not (tmp_path / "m").exists()


# Jobs


def test_run_does_all_of_a_job(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHERE", str(place))
    (tmp_path / "job.yaml").write_text(
        "data: {source: '${WHERE}/a.svm', train: train, test: '${WHERE}/shards', convert: {workers: 1}}\n"
        "method: {algo: dcd, C: 1, bias: none}\nlimits: {tol: 1e-3}\nrun: {dir: run}\n"
        "outputs: {model: m, evaluation: e.json, predictions: p}\n"
    )
    out, _ = bigclf("run", "job.yaml", "--dry-run", "--set", "model.C=3")
    assert "$ bigclf convert" in out and "--C=3" in out.replace("--C 3", "--C=3") and not (tmp_path / "train").exists()
    out, _ = bigclf("run", "job.yaml")
    steps = [line.split()[1] for line in out.splitlines() if line.startswith("──")]
    assert steps == ["convert", "fit", "evaluate", "predict"]
    assert json.loads((tmp_path / "e.json").read_text())["n"] == 300
    assert str(place) in (tmp_path / "run" / "job.yaml").read_text()
    assert "exists" in error_line(bigclf("run", "job.yaml", code=1)[1])
    bigclf("run", "job.yaml", "--resume")
    told = json.loads(bigclf("run", "job.yaml", "--overwrite", "--json", "--set", "method.C=2")[0])
    assert [step["command"] for step in told["steps"]] == ["fit", "evaluate", "predict"]
    assert told["steps"][0]["result"]["method"]["C"] == 2.0


def error_line(err):
    return next(line for line in err.splitlines() if line.startswith("error:"))


def test_a_job_that_stops_early_goes_on_and_says_4(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(
        f"data: {{train: '{place}/shards', test: '{place}/shards'}}\nlimits: {{tol: 1e-9, epochs: 1}}\n"
    )
    out, _ = bigclf("run", "job.yaml", code=4)
    assert "accuracy" in out


def test_a_bad_job_runs_nothing(place, tmp_path):
    (tmp_path / "job.yaml").write_text(
        f"steps:\n- convert: {{sources: '{place}/a.svm', out: '{tmp_path}/s'}}\n"
        "- fit: {data: s, output: m, tool: 1}\n"
    )
    assert "line 3: unknown key 'tool' of fit" in error_of("run", tmp_path / "job.yaml", code=2)
    assert not (tmp_path / "s").exists()


# The demo


def test_demo_small(tmp_path):
    out, _ = bigclf("demo", "--dir", tmp_path / "d", "--rows", 3000, "--memory", "256MB")
    for words in ("Make train", "Convert train", "Train dcd", "Test dcd", "Predict", "gap by read", "try next"):
        assert words in out
    told = json.loads(bigclf("demo", "--dir", tmp_path / "d", "--rows", 3000, "--memory", "256MB", "--json")[0])
    assert told["dcd"]["certificate"]["gap"] <= 1e-3 and 0.5 < told["dcd"]["test"]["auc"] <= 1
    bigclf("run", tmp_path / "d" / "job.yaml")


def test_the_demos_text_is_its_rows(tmp_path):
    from sklearn.datasets import load_svmlight_file

    from bigclf.cli.shared import demo_data

    rng = np.random.default_rng([0, 1, 0])
    rows = demo_data.make_rows(500, demo_data.separator(2000, 0), rng)
    nnz = demo_data.write_text(str(tmp_path / "a.svm"), 500, 2000, 0, 1)
    X, y = load_svmlight_file(str(tmp_path / "a.svm"), n_features=2000, zero_based=False)
    assert nnz == X.nnz == rows.indices.size and (y == rows.y).all() and 0.3 < (y > 0).mean() < 0.7
    assert (X.indptr == rows.indptr).all() and (X.indices == rows.indices).all()
    np.testing.assert_allclose(X.data, rows.levels / 1000)


def fills_up(monkeypatch, directory):
    """From now on a file that is written below ``directory`` finds the disk full."""
    from bigclf import files

    real = files.temporary_name

    def temporary_name(path):
        if str(path).startswith(str(directory)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return real(path)

    monkeypatch.setattr(files, "temporary_name", temporary_name)


@pytest.mark.parametrize("algo", ["dcd", "pa1"])
def test_a_full_disk_of_the_run_costs_no_model(place, tmp_path, monkeypatch, algo):
    """The answer is written to where it was asked for; what could not be kept is a warning."""
    words = ("fit", place / "shards", "-o", tmp_path / "m", "--algo", algo, "--run-dir", tmp_path / "small" / "run")
    fills_up(monkeypatch, tmp_path / "small" / "run" / "model")
    _, told = bigclf(*words)
    assert "warning: model.bigclf not written in" in told and "No space left on device" in told
    bigclf("evaluate", tmp_path / "m", place / "shards")
    assert not (tmp_path / "small" / "run" / "model.bigclf").exists()


@pytest.mark.long
def test_a_path_leaves_no_models_of_another_grid(place, tmp_path):
    words = ("path", place / "shards", "-o", tmp_path / "p", "--tol", "0.1", "--C")
    bigclf(*words, "0.01,0.1")
    bigclf(*words, "0.1", "--overwrite")
    assert sorted(name for name in os.listdir(tmp_path / "p") if name.startswith("model")) == ["model-1.bigclf"]
    assert "1 value, 1 read" in bigclf("inspect", tmp_path / "p")[0]
    (tmp_path / "p" / "path.json").rename(tmp_path / "p" / "elsewhere")
    for name in ("path.csv", "path.png"):
        (tmp_path / "p" / name).unlink(missing_ok=True)
    assert "model-1.bigclf already exists; add --overwrite" in error_of(*words, "0.1", code=1)


@pytest.mark.parametrize(("more", "penalty"), [((), "l1"), (("--penalty", "l2"), "l2"), (("--within", "0.9"), "l2")])
def test_a_path_says_its_penalty_and_what_to_do_with_its_models(place, tmp_path, more, penalty):
    out = tmp_path / "p"
    said, _ = bigclf("path", place / "shards", "-o", out, "--C", "0.01,0.1", "--tol", "0.5", *more)
    last = max(name for name in os.listdir(out) if name.startswith("model"))
    assert f", penalty {penalty}\n" in said and f"next: bigclf evaluate {out}/model-1.bigclf TEST_DATA" in said
    assert (f"(the smallest C; {last}: the largest)" in said) == (last != "model-1.bigclf")
    assert json.loads((out / "path.json").read_text())["penalty"] == penalty
    assert said.splitlines()[-1] == bigclf("inspect", out)[0].splitlines()[-1]
    told = error_of("evaluate", out, place / "shards", code=3)
    assert f"a directory; a model is one file: {out}/model-1.bigclf" in told


def test_the_help_of_path_says_the_penalty_that_it_has():
    assert "[default: l1; with --within l2; of a named method its first]" in " ".join(
        bigclf("path", "--help")[0].split()
    )


def test_a_run_without_checkpoints_is_not_said_to_go_on(place, tmp_path, monkeypatch):
    fills_up(monkeypatch, tmp_path / "m.run" / "state-")
    out, _ = bigclf("fit", place / "shards", "-o", tmp_path / "m", "--tol", "1e-9", "--epochs", 1, code=4)
    assert f"{tmp_path / 'm.run'} has no checkpoint to resume from: free some disk space" in " ".join(out.split())
    assert "goes on" not in out


def test_a_full_disk_is_told_in_our_words(place, tmp_path):
    """The library that writes tensors has errors of its own for it."""
    script = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "import bigclf; model = bigclf.load(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: model.save(sys.argv[2])\n"
        "except OSError as error: print(error.errno, error.filename)\n"
    )
    asked = [sys.executable, "-c", script, str(place / "model"), str(tmp_path / "m")]
    said = subprocess.run(asked, capture_output=True, text=True, env=environment())
    assert said.stdout.split() == [str(errno.EFBIG), str(tmp_path / "m")], said.stderr
    assert list(tmp_path.iterdir()) == []
