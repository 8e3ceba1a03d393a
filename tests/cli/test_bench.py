"""The bench: what it measures on, how good is told from less good, who is measured and how that is told."""

import csv
import functools
import io
import json
import os
import re
import stat
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import psutil
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from making import random_rows, run_python, shards_of
from rich.console import Console
from sklearn.datasets import load_svmlight_file
from test_cli import bigclf

from bigclf.benchmarks import child, comparing, making, objective, peers, results, sets, shapes
from bigclf.benchmarks.cap import memory_group
from bigclf.benchmarks.comparing import JOBS, LADDER, Entry, Measurement, Outcome
from bigclf.cli import main
from bigclf.cli.bench import fitting
from bigclf.data.dataset import Dataset
from bigclf.errors import DataError, RunError

SMALL = making.Shape(n_train=600, n_test=200, n_features=300, mean_nnz=20)


def csr(rows, n_features):
    return sp.csr_matrix((rows.values, rows.indices, rows.indptr), (rows.indptr.size - 1, n_features))


def script(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return path


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="module")
def data(cache):
    return sets.made_set(SMALL, cache, lambda text: None, "small")


def error_of(*words, code):
    """The error line; absent peers have lines of their own before it."""
    out, err = bigclf(*words, code=code)
    assert out == "" and "Traceback" not in err
    (line,) = [line for line in err.splitlines() if line.startswith("error:")]
    return line


# What is measured on


def test_the_same_shape_is_the_same_rows_whoever_makes_them(monkeypatch):
    monkeypatch.setattr(making, "BLOCK_ROWS", 100)
    first = making.make(SMALL)
    monkeypatch.setattr(making, "in_order", functools.partial(making.in_order, threads=1))
    assert all(np.array_equal(a, b) for a, b in zip(first, making.make(SMALL), strict=True))
    other = making.make(SMALL._replace(seed=2))
    assert other.indices.size != first.indices.size or (other.indices != first.indices).any()


def test_made_up_rows_are_what_they_are_said_to_be():
    shape = making.Shape(20_000, 0, 5_000, 60)
    made = making.make(shape)
    x = csr(made, shape.n_features)
    assert x.has_sorted_indices and x.has_canonical_format and (np.diff(made.indptr) > 0).all()
    assert made.indices.min() >= 0 and made.indices.max() < shape.n_features
    assert 0.75 * 60 < x.nnz / 20_000 < 1.35 * 60
    lengths = np.diff(made.indptr)
    assert lengths.std() / lengths.mean() > 0.3  # long ones and short ones
    norms = np.sqrt(x.multiply(x).sum(axis=1))
    assert np.abs(norms - 1).max() < 1e-4
    assert set(np.unique(made.y)) == {-1, 1} and abs(made.y.mean()) < 0.05
    millionths = made.values * np.float64(1e6)
    assert np.abs(millionths - np.rint(millionths)).max() < 0.05
    popularity = np.sort(np.bincount(made.indices, minlength=shape.n_features))[::-1]
    assert popularity[0] > 100 * np.median(popularity)  # few words are everywhere, most are rare


def test_a_share_of_the_labels_is_flipped_and_nothing_else():
    shape = making.Shape(20_000, 0, 1_000, 20)
    made, clean = making.make(shape), making.make(shape._replace(flipped=0))
    assert np.array_equal(made.indices, clean.indices) and np.array_equal(made.values, clean.values)
    assert 0.045 < (made.y != clean.y).mean() < 0.055
    assert 0.49 < (clean.y > 0).mean() < 0.51


def test_ranks_follow_zipfs_law():
    d, n = 1_000, 200_000
    ranks = making.zipf((np.arange(n) + 0.5) / n, d)
    assert ranks.min() == 0 and ranks.max() == d - 1
    for k in (1, 10, 100, 500):  # the integral of r^-1.1 from 1
        expected = ((k + 1) ** -0.1 - 1) / ((d + 1) ** -0.1 - 1)
        assert (ranks < k).mean() == pytest.approx(expected, abs=2e-4)


def test_the_features_decide_the_labels():
    """A rule learned on the rows to train on holds on those to test on, but for the labels that were flipped."""
    from sklearn.svm import LinearSVC

    made = making.make(making.Shape(6_000, 2_000, 300, 40, flipped=0))
    x = csr(made, 300)
    model = LinearSVC(loss="hinge", fit_intercept=False).fit(x[:6000], made.y[:6000])
    assert model.score(x[6000:], made.y[6000:]) > 0.65


@pytest.mark.parametrize(("kind", "mark"), [("svm", ""), ("vw", "|")])
def test_text_holds_the_rows(data, cache, kind, mark):
    path = sets.text_of(data, cache, kind, lambda text: None)
    text = Path(path).read_text()
    assert text.count("|") == (data.n_rows if mark else 0)
    plain = text.replace("|", " ")
    Path(path + ".plain").write_text(plain)
    x, y = load_svmlight_file(path + ".plain", n_features=data.n_features, zero_based=False)
    rows = data.rows("train")
    assert np.array_equal(y, rows.labels) and np.array_equal(x.indices, rows.indices)
    assert np.array_equal(x.data.astype(np.float32), rows.values)


def test_a_persons_own_rows_from_shards_from_text_and_from_arrays(tmp_path, cache):
    x, y = random_rows(n_rows=80, n_features=12)  # values of both signs: no table of text fits them
    shards_of(tmp_path / "shards", x, y)
    own = sets.own_set([str(tmp_path / "shards")], cache, lambda text: None)
    rows = own.rows("train")
    assert (own.n_rows, own.n_features, own.nnz, own.n_test) == (80, 12, x.nnz, 0)
    assert np.array_equal(csr(rows, 12).toarray(), x.toarray()) and np.array_equal(rows.labels, y)
    assert sets.own_set([own.directory], cache, lambda text: None)[2:] == own[2:]

    text = sets.text_of(own, cache, "svm", lambda text: None)
    again, labels = load_svmlight_file(text, n_features=12, zero_based=False)
    assert np.array_equal(again.toarray().astype(np.float32), x.toarray()) and np.array_equal(labels, y)
    (tmp_path / "mine.svm").write_bytes(Path(text).read_bytes())
    held = sets.own_set([str(tmp_path / "mine.svm")], cache, lambda text: None).rows("train")  # conversion shuffles
    mine = sorted(map(tuple, np.c_[csr(held, 12).toarray(), held.labels]))
    assert mine == sorted(map(tuple, np.c_[x.toarray(), y].astype(np.float32)))


def test_rows_of_one_value_each_keep_it(tmp_path, cache):
    x, y = random_rows(n_rows=80, n_features=12)
    x.data = np.repeat(np.linspace(0.25, 2.0, 80, dtype=np.float32), np.diff(x.indptr))
    shards_of(tmp_path / "shards", x, y)
    assert Dataset(str(tmp_path / "shards")).row_constant
    held = sets.own_set([str(tmp_path / "shards")], cache, lambda text: None).rows("train")
    assert np.array_equal(csr(held, 12).toarray(), x.toarray())


def test_rows_that_cannot_be_compared_are_refused(tmp_path, cache):
    x, y = random_rows(n_rows=60, n_features=8)
    y = np.arange(60) % 3
    shards_of(tmp_path / "three", x, y)
    three = str(tmp_path / "three")
    with pytest.raises(DataError, match="3 classes; name the one .* --positive"):
        sets.own_set([three], cache, lambda text: None)
    with pytest.raises(DataError, match="no class '7'; the classes are 0, 1, 2"):
        sets.own_set([three], cache, lambda text: None, "7")
    found = sets.own_set([three], cache, lambda text: None, "1").rows("train")
    assert np.array_equal(found.labels, np.where(y == 1, 1, -1))
    shards_of(tmp_path / "weighted", x, y % 2, weights=np.arange(60.0))
    with pytest.raises(DataError, match="rows with weights"):
        sets.own_set([str(tmp_path / "weighted")], cache, lambda text: None)


# How good


def toy():
    """Three rows whose objective anyone can work out: margins 1/2, 0 and 2 for the weights (1/2, 1)."""
    x = np.array([[1, 0], [2, 1], [0, -2]], np.float32)
    y = np.array([1, -1, -1], np.int8)
    rows = sp.csr_matrix(x)
    return objective.Held(rows.indptr, rows.indices, rows.data, y), np.array([0.5, 1.0])


def test_the_objective_is_exact_on_a_toy():
    rows, w = toy()
    margins = [Fraction(1, 2), Fraction(-2), Fraction(2)]
    half = Fraction(1, 2) * (Fraction(1, 4) + 1)
    short = [max(Fraction(0), 1 - m) for m in margins]
    assert np.concatenate(list(objective.margins(w, rows))).tolist() == [float(m) for m in margins]
    assert objective.primal("hinge", w, rows, 3.0) == float(half + 3 * sum(short))
    assert objective.primal("squared_hinge", w, rows, 3.0) == float(half + 3 * sum(s * s for s in short))
    logistic = float(half) + 3 * sum(np.log1p(np.exp(-float(m))) for m in margins)
    assert objective.primal("logistic", w, rows, 3.0) == pytest.approx(logistic, rel=1e-15)
    assert objective.error(w, rows) == pytest.approx(1 / 3)
    assert objective.error(np.zeros(2), rows) == 1  # on no side is wrong
    assert objective.relative_gap(11.0, 10.0) == pytest.approx(0.1) and objective.relative_gap(1.0, 0.0) == np.inf


def test_the_objective_does_not_depend_on_how_rows_are_cut(data, monkeypatch):
    w = np.random.default_rng(0).normal(size=data.n_features)
    rows = data.rows("train")
    whole = objective.primal("logistic", w, rows, 1.0), objective.error(w, rows)
    monkeypatch.setattr(objective, "ROWS", 7)
    assert (objective.primal("logistic", w, rows, 1.0), objective.error(w, rows)) == pytest.approx(whole, rel=1e-14)


def test_the_tolerances_are_the_rounds_ones():
    assert LADDER[:6] == (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003) and list(LADDER) == sorted(LADDER, reverse=True)


# Who

TRAIN = """#!{python}
import sys
words = dict(zip(sys.argv[1:-2:2], sys.argv[2:-2:2]))
assert words["-B"] == "-1" and words["-s"] == "3" and float(words["-c"]) == 1, words
lines = open(sys.argv[-2]).read().split("\\n")
assert sum(line.strip() != "" for line in lines) == {rows}
best = [float(line) for line in open({weights!r})]
off = 1 + {share} * float(words["-e"])
with open(sys.argv[-1], "w") as model:
    model.write("solver_type X\\nnr_class 2\\nlabel -1 1\\nnr_feature %d\\nbias -1\\nw\\n" % len(best))
    model.writelines("%.17g \\n" % (-off * w) for w in best)  # towards the first label, which is -1
print("seconds 0.25")
"""


def bench(out, cache, *words, code=0):
    """``bigclf bench`` on 600 rows; (stdout, stderr)."""
    size = ("--rows", 600, "--features", 300, "--nnz", 20)
    return bigclf("bench", *size, "-o", out, "--cache", cache, *words, code=code)


@pytest.fixture(scope="module")
def solution(cache, tmp_path_factory):
    """The set the command makes, and weights next to its optimum, in a file a line each."""
    shape = making.SIZES["S"]._replace(n_train=600, n_test=100, n_features=300, mean_nnz=20.0)
    made = sets.made_set(shape, cache, lambda text: None, "made-up")
    from bigclf.api.fit import fit

    rows = made.rows("train")
    model = fit(csr(rows, 300), rows.labels, algo="dcd", C=1.0, bias=None, tol=1e-7, progress=False)
    path = tmp_path_factory.mktemp("best") / "weights.txt"
    np.savetxt(path, model.coef_[0], fmt="%.17g")
    return made, model, str(path)


@pytest.mark.long
def test_a_program_runs_at_the_loosest_tolerance_that_is_good_enough(tmp_path, cache, solution):
    made, model, weights = solution
    rows, w = made.rows("train"), model.coef_[0]
    bound = model.certificate["dual"]
    gaps = {tol: objective.primal("hinge", (1 + 3 * tol) * w, rows, 1.0) / bound - 1 for tol in LADDER}
    expected = next(tol for tol in LADDER if gaps[tol] <= 1e-3)
    assert LADDER.index(expected) >= 2  # there is something to try first
    text = TRAIN.format(python=sys.executable, rows=600, weights=weights, share=3)
    program = script(tmp_path / "train", text)
    out, err = bench(tmp_path / "out", cache, "--jobs", "hinge", "--against", "mine", "--peer", f"mine={program}",
                     "--rounds", 2, "--json")  # fmt: skip
    (job,) = json.loads(out)["jobs"]
    ours, mine = job["programs"]
    assert mine["tol"] == expected and [m["tol"] for m in mine["measurements"]] == [expected] * 2
    assert [m["tol"] for m in mine["tried"]] == list(LADDER[: LADDER.index(expected)])
    assert all(m["gap"] > 1e-3 for m in mine["tried"]) and mine["failure"] is None
    for m in mine["tried"] + mine["measurements"]:  # the bound of this run is not quite as tight as ours
        assert gaps[m["tol"]] - 1e-6 <= m["gap"] <= gaps[m["tol"]] + 6e-5
    assert mine["seconds"] == 0.25 and mine["ratio"] == ours["seconds"] / 0.25 and not mine["whole_program"]
    assert ours["gap"] <= 1e-3 and job["bound"] <= bound * (1 + 1e-7)
    order = re.findall(r"round (\d) +(bigclf|mine)", err)
    tried = [("1", "mine")] * (LADDER.index(expected) + 1)
    assert order == [("1", "bigclf"), *tried, ("2", "bigclf"), ("2", "mine")]


@pytest.mark.long
def test_a_program_that_is_never_good_enough_and_one_that_fails_are_said_to(tmp_path, cache, solution, monkeypatch):
    monkeypatch.setattr(comparing, "LADDER", (0.1, 0.03))
    far = script(tmp_path / "far", TRAIN.format(python=sys.executable, rows=600, weights=solution[2], share=10))
    bad = script(tmp_path / "bad", "#!/bin/sh\necho 'no licence today' >&2\nexit 3\n")
    names = [f"--peer=far={far}", f"--peer=bad={bad}"]
    out, _ = bench(tmp_path / "out", cache, "--jobs", "hinge", "--against", "far,bad", *names, "--rounds", 1, code=1)
    assert re.search(r"far failed at hinge: its best gap is [\d.e-]+, at tolerances down to 0.03", out)
    assert "bad failed at hinge: ended with code 3: no licence today" in out


def outcome_of(job):
    """Of two programs, measured once."""
    entries = [
        Entry(who, "1.0", 16, 0.001, [Measurement(who, job, 0.001, 0.0431, 1.0, 101.0, 210_000_000, gap=5.8e-4)], [])
        for who in ("bigclf", "liblinear-multicore")
    ]
    return Outcome(JOBS[job], 1.0, entries)


@pytest.mark.parametrize("width", [75, 80, 120])
def test_the_table_has_what_there_is_room_for_and_breaks_no_cell(width):
    console = Console(file=io.StringIO(), width=width)
    drawn, left_out = fitting([outcome_of("hinge"), outcome_of("squared_hinge")], console)
    console.print(drawn)
    lines = [line for line in console.file.getvalue().splitlines() if "bigclf" in line or "multicore" in line]
    assert len(lines) == 4 and all("  43.1 ms  " in line and "  5.8e-04" in line for line in lines)
    assert left_out == {75: ["process", "threads", "peak", "tol"], 80: ["process", "threads", "peak"], 120: []}[width]


def test_a_program_that_hangs_is_ended_with_all_that_it_started(tmp_path, data, cache):
    hung = script(tmp_path / "hung", f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/pid\nwait\n")
    place, told = peers.places("hung", {"hung": str(hung)}, []), tmp_path / "pid"
    for limit in (2.0, 20.0, 200.0):  # on a busy machine it takes long to come as far as it is to
        options = comparing.Options(1, 1.0, 1, 1, "float32", 10**9, None, limit, cache)
        runner = comparing.Comparison(data, options, {}, lambda text: None, lambda found, number: None)
        assert runner.theirs(place, JOBS["hinge"], 0.1).failure == f"not done after {limit:g} s"
        if told.exists() and told.read_text().strip():
            break
    end = time.monotonic() + 30  # a killed one may take a moment
    while not (over := is_over(int(told.read_text()))) and time.monotonic() < end:
        time.sleep(0.05)
    assert over


def is_over(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def bare(tmp_path):
    """A Python that has no packages at all."""
    return script(tmp_path / "python-bare", f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')


def test_no_peer_at_all_is_a_failure(tmp_path, bare):
    line = error_of("bench", "-o", tmp_path / "out", "--against", "snapml", "--peer", f"snapml={bare}", code=1)
    assert "no peer to measure against: pip install snapml" in line


def test_absent_peers_are_named_with_what_would_bring_them(bare):
    found, absent = peers.find(["snapml", "vw", "dask-ml"], {}, [str(bare)])
    assert not found and [peer.name for peer in absent] == ["snapml", "vw", "dask-ml"]
    assert [peer.advice for peer in absent] == ["pip install snapml", "pip install vowpalwabbit", "pip install dask-ml"]
    assert all("No module named" in peer.reason for peer in absent)
    (gone,) = peers.find(["sklearn"], {}, ["/nowhere/python"])[1]
    assert "/nowhere/python" in gone.reason
    found, absent = peers.find(["sklearn"], {}, [str(bare), sys.executable])  # the second one has it
    assert [place.python for place in found] == [sys.executable] and not absent


def test_two_editions_of_liblinear_are_told_apart(tmp_path):
    package = tmp_path / "here" / "liblinear"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "liblinearutil.py").write_text("")
    (package / "liblinear.py").write_text('class parameter:\n    _names = ["eps", "nr_thread"]\n')
    for name in ("liblinear_official", "liblinear_multicore"):
        info = tmp_path / "here" / f"{name}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.2\n")
    where = {name: str(tmp_path / "here") for name in ("liblinear", "liblinear-multicore")}
    found, absent = peers.find(list(where), where, [sys.executable])
    assert [(p.peer.name, p.version) for p in found] == [("liblinear-multicore", "1.2")]
    assert [p.name for p in absent] == ["liblinear"] and "that of liblinear-multicore" in absent[0].reason
    assert "--peer liblinear=DIR" in absent[0].advice


def test_what_a_killed_run_left_behind_is_removed_and_nothing_else(tmp_path):
    gone = run_python("import os; print(os.getpid())").strip()
    for name in (f"run-{gone}", f"run-{os.getpid()}", "made-1", "run-of-mine"):
        (tmp_path / name).mkdir()
    comparing.clear_scratch(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == sorted([f"run-{os.getpid()}", "made-1", "run-of-mine"])


# The command


@pytest.mark.long
def test_a_whole_run_against_scikit_learn(tmp_path, cache, bare):
    words = ("--jobs", "hinge,online,out_of_core", "--against", "sklearn,sklearn-sgd,snapml")
    out, err = bench(tmp_path / "out", cache, *words, "--peer", f"snapml={bare}", "--rounds", 1)
    assert "absent: snapml" in err and "pip install snapml" not in err + out.partition("snapml is absent")[0]
    assert "pip install snapml" in out and "out_of_core was left out: give --cap 512MB" in out
    for words in ("hinge", "online", "sklearn-sgd", "made-up", "results.json"):
        assert words in out
    told = json.loads((tmp_path / "out" / "results.json").read_text())
    assert told["data"]["n_rows"] == 600 and told["machine"]["peers"].keys() == {"sklearn", "sklearn-sgd"}
    by_name = {job["name"]: job for job in told["jobs"]}
    assert by_name["out_of_core"]["programs"] == [] and by_name["out_of_core"]["left_out"]
    job = by_name["hinge"]
    ours, theirs = job["programs"]
    (measured,) = ours["measurements"]
    target = JOBS["hinge"].target
    assert ours["gap"] <= measured["certified"] + 1.1 * comparing.REFERENCE_SHARE * target
    assert measured["certified"] <= target and theirs["gap"] <= target
    assert measured["objective"] >= job["bound"] and theirs["measurements"][0]["objective"] >= job["bound"]
    assert ours["ratio"] is None and theirs["ratio"] == ours["seconds"] / theirs["seconds"]
    assert 0 < measured["seconds"] < measured["wall_seconds"] and measured["peak_bytes"] > 20e6
    assert [p["who"] for p in by_name["online"]["programs"]] == ["bigclf", "sklearn", "sklearn-sgd"]
    assert all(0 < p["error"] < 0.5 and p["gap"] is None for p in by_name["online"]["programs"])
    with open(tmp_path / "out" / "results.csv") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 5 and float(lines[1]["seconds"]) == by_name["hinge"]["programs"][1]["seconds"]
    assert "| hinge | sklearn |" in (tmp_path / "out" / "results.md").read_text()
    assert "add --overwrite" in error_of("bench", "-o", tmp_path / "out", code=1)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--jobs", "knitting"], "'knitting' is none of hinge, squared_hinge"),
        (["--against", "shogun"], "'shogun' is none of liblinear"),
        (["--peer", "liblinear=/nowhere"], "/nowhere does not exist"),
        (["--peer", f"shogun={os.path.dirname(__file__)}"], "'shogun' is none of"),
        (["--target", "hinge=2"], "hinge must be a number between 0 and 1, not 2"),
        (["--target", "online=1e-3"], "'online' is none of"),
        (["--against", "sklearn", "--data", __file__, "--rows", "1000"], "--features and --nnz are for made-up"),
        (["--against", "sklearn", "--positive", "1"], "--positive is for --data"),
        (["--shape", "round"], "'round' is none of noisy_table, clicks"),
        (["--shape", "all", "--rows", "1000"], "--rows has no effect with --shape"),
        (["--solvers", "dcd"], "--solvers has no effect without --shape"),
        (["--shape", "all", "--solvers", "pa1"], "'pa1' is none of"),
        (["--shape", "all", "--jobs", "online"], "'online' is none of hinge, squared_hinge, logistic"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, monkeypatch, words, text):
    monkeypatch.setattr(peers, "probe", lambda names, *_: {name: {"version": "1"} for name in names})
    given = ["bench", "-o", str(tmp_path / "out"), "--cache", str(tmp_path / "cache"), *words]
    done = CliRunner().invoke(main, given, prog_name="bigclf", catch_exceptions=False)  # in no process of its own
    assert done.exit_code == 2 and text in " ".join(done.stderr.split())


def test_pictures_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    from bigclf.benchmarks import plots

    ours = [Measurement("bigclf", "hinge", 1e-3, 0.5, gap=5e-4, trace=[[0.1, 0.3], [0.5, 9e-4]])]
    theirs = [Measurement("sklearn", "hinge", 0.03, 1.5, gap=9e-4)]
    tried = [Measurement("sklearn", "hinge", 0.1, 1.0, gap=2e-3)]
    entries = [Entry("bigclf", "1", 1, 1e-3, ours, []), Entry("sklearn", "1", 1, 0.03, theirs, tried)]
    outcome = Outcome(JOBS["hinge"], 1.0, entries)
    assert plots.bars(outcome) == [("sklearn", 0.5 / 1.5)]
    place = {name: str(tmp_path / name) for name in plots.NAMES}
    names = plots.draw([outcome, Outcome(JOBS["logistic"], None, [], "left out")], place, "toy")
    assert names == ["gap-hinge.png", "ratios.png", "costs.png"]
    for name in names:
        assert (tmp_path / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_picture_that_is_there_is_not_replaced_unasked(tmp_path):
    from bigclf.cli.bench import prepare

    (tmp_path / "gap-hinge.png").write_text("mine")
    with pytest.raises(RunError, match="add --overwrite"):
        prepare(str(tmp_path), overwrite=False)
    prepare(str(tmp_path), overwrite=True)


def test_a_model_of_liblinears_is_read_towards_plus_one(tmp_path):
    path = tmp_path / "model"
    path.write_text("solver_type X\nnr_class 2\nlabel 1 -1\nnr_feature 2\nbias -1\nw\n0.5 \n-2 \n")
    assert child.read_model(str(path), 3).tolist() == [0.5, -2, 0]
    path.write_text(path.read_text().replace("1 -1", "-1 1"))
    assert child.read_model(str(path), 2).tolist() == [-0.5, 2]


@pytest.mark.root
def test_out_of_core_under_a_cap(tmp_path, cache, solution):
    try:
        with memory_group(512_000_000):
            pass
    except RunError as error:  # a kernel without memory control groups, whatever the user's rights
        pytest.skip(str(error))
    program = script(tmp_path / "train", TRAIN.format(python=sys.executable, rows=600, weights=solution[2], share=1e-3))
    out, _ = bench(tmp_path / "out", cache, "--jobs", "out_of_core,shards", "--against", "mine", "--rounds", 1,
                   "--peer", f"mine={program}", "--cap", "512MB", "--json")  # fmt: skip
    for job in json.loads(out)["jobs"]:
        assert not job["left_out"]
        (measured,) = job["programs"][0]["measurements"]
        assert measured["certified"] <= 1e-3 and 0 < measured["group_peak_bytes"] <= 512e6


# Other shapes


@pytest.mark.parametrize("name", shapes.KINDS)
def test_a_shape_is_the_same_rows_each_time_and_has_both_classes(name, tmp_path):
    kind = shapes.KINDS[name]
    n, d = 400, {"images": 64, "noisy_table": 28, "scales": 40}.get(name, 2000)
    first, again = (kind.make(n, d, np.random.default_rng(3)) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    x = csr(first, d)
    assert x.shape == (n, d) and x.has_canonical_format and np.isfinite(x.data).all()
    assert first.values.dtype == np.float32 and first.indices.dtype == np.int32 and first.y.dtype == np.int8
    assert set(first.y.tolist()) == {-1, 1} and min((first.y > 0).mean(), (first.y < 0).mean()) > 0.02
    if name == "clicks":
        assert (first.values == 1).all() and (np.diff(first.indptr) == 20).all()
    if name == "scales":
        means = np.abs(x.toarray()).mean(axis=0)
        assert means[-1] > 1e4 * means[0] > 0


@pytest.mark.slow
def test_one_table_of_shapes_losses_and_programs(tmp_path, cache):
    out = tmp_path / "out"
    words = "bench", "--shape", "clicks,noisy_table", "--size", "tiny", "--jobs", "squared_hinge", "--rounds", "1"
    said, _ = bigclf(*words, "--against", "sklearn", "--cache", cache, "--time-limit", "120", "-o", str(out), "--json")
    told = json.loads(said)
    assert [shape["data"]["name"] for shape in told["shapes"]] == ["noisy_table", "clicks"]  # in their own order
    for shape in told["shapes"]:
        for job in shape["jobs"]:
            ours, theirs = job["programs"]
            assert ours["who"] == "bigclf" and ours["gap"] <= job["target"] and job["algo"] == "auto"
            assert theirs["failure"] or (theirs["gap"] <= job["target"] and theirs["ratio"] > 0)
    rows = list(csv.DictReader((out / "results.csv").open()))
    assert [row["shape"] for row in rows] == ["noisy_table"] * 2 + ["clicks"] * 2
    table = (out / "results.md").read_text()
    assert (
        "| shape | rows x features | loss | gap | bigclf | sklearn |" in table
        and "| noisy_table | 5,000 x 28 |" in table
    )


def test_what_does_not_get_there_is_said_not_to():
    data = sets.Set("made", "", 100, 0, 5, 500)
    job = JOBS["hinge"]
    ours = Entry("bigclf", "1", 1, 1e-3, [Measurement("bigclf", "hinge", 1e-3, seconds=1.0)], [])
    slow = Entry("sklearn", "1", 1, None, [], [], "not done after 60 s")
    quick = Entry("liblinear", "1", 1, 0.1, [Measurement("liblinear", "hinge", 0.1, seconds=4.0)], [])
    headings, line = results.shapes_table([(data, None, [Outcome(job, 1.0, [ours, slow, quick])])])
    assert dict(zip(headings, line, strict=True)) | {"sklearn": "not reached", "liblinear": "0.25 (4 s)"} == dict(
        zip(headings, line, strict=True)
    )


def test_solvers_of_ours_run_once_a_round_at_the_target_where_they_have_the_loss(tmp_path, cache, monkeypatch):
    data = sets.made_set(making.Shape(200, 50, 30, 5.0), cache, lambda text: None, "small")
    options = comparing.Options(2, 1.0, 1, 1, "float64", 10**9, None, 60.0, str(tmp_path), ("dcd", "newton"))
    asked = []

    def own(self, job, tol, dtype=None, who="bigclf"):
        asked.append((who, job.algo, tol))
        slow = job.algo == "newton"
        return Measurement(who, job.name, tol, seconds=2.0, dual=1.0, gap=0.0, failure="slow" if slow else None)

    monkeypatch.setattr(comparing.Comparison, "own", own)
    jobs = [JOBS[name]._replace(algo="auto") for name in ("hinge", "logistic")]
    hinge, logistic = comparing.compare(data, jobs, [], options, lambda text: None, lambda found, number: None)
    assert [entry.who for entry in hinge.entries] == ["bigclf", "dcd"]  # newton has no hinge
    assert [entry.failure for entry in logistic.entries] == [None, None, "slow"]
    assert [entry.tol for entry in logistic.entries] == [1e-6] * 3 and hinge.ratio(hinge.entries[1]) == 1.0
    assert asked[-6:] == [("bigclf", "auto", 5e-8), ("bigclf", "auto", 1e-6), ("dcd", "dcd", 1e-6),
                          ("newton", "newton", 1e-6), ("bigclf", "auto", 1e-6), ("dcd", "dcd", 1e-6)]  # fmt: skip


def test_smaller_tolerances_that_bring_nothing_end_the_search():
    assert not comparing.is_stuck([1.0] * 6) and comparing.is_stuck([1.0] * 7)
    assert not comparing.is_stuck([1.0] * 6 + [0.5]) and comparing.is_stuck([1.0, 0.1, *[0.1] * 6])


def test_pictures_that_cannot_be_drawn_are_told_before_anything_is_measured(tmp_path, monkeypatch):
    import importlib.util

    assert "no effect with --shape" in error_of("bench", "--plots", "--shape", "clicks", "-o", tmp_path / "b", code=2)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name))
    assert "pip install 'bigclf[plots]'" in error_of("bench", "--plots", "-o", tmp_path / "b", code=1)
    assert not (tmp_path / "b").exists()
