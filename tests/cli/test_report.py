"""Reports: one file with everything in it, where text from data stays text, and curves that are right."""

import json
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from making import random_rows, shards_of
from sklearn.metrics import average_precision_score, roc_curve
from test_cli import bigclf, error_of

from bigclf.api.fit import fit
from bigclf.errors import DataError, RunError
from bigclf.metrics.figures import BinnedRanking, Ranking, evaluate, score_bins
from bigclf.model.model import Model
from bigclf.reporting import curves, history_of, report, subject_of
from bigclf.reporting.content import Subject, _errors
from bigclf.reporting.pictures import Line, chart, number_text, scale, tick_step, ticks

D = 8
VOID = {"meta", "link", "br"}
EVIL = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


class Parsed(HTMLParser):
    """Elements, attributes and text of a page; AssertionError where an element is not closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.attributes, self.text, self.ids = [], set(), [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.add(tag)
        self.attributes += [(tag, *pair) for pair in attributes]
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def checked(path):
    """The page, seen to be whole, self-contained and without anything that runs."""
    page = Parsed(path.read_text())
    assert not page.elements & {"script", "img", "iframe", "object", "embed", "form", "base", "audio", "video"}
    assert not [name for _, name, _ in page.attributes if name.startswith("on") or name == "src"]
    links = {value for tag, name, value in page.attributes if name == "href"}
    assert links - {"data:,"} == {f"#{name}" for name in page.ids if not name.endswith("-title")}
    policy = [value for _, name, value in page.attributes if name == "content" and "default-src" in value]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    assert ("html", "lang", "en") in page.attributes and len(page.ids) == len(set(page.ids))
    assert "http:" not in path.read_text() and "https:" not in path.read_text() and "url(" not in path.read_text()
    return page


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Shards of two and of three classes, a finished run of the first and its model."""
    path = tmp_path_factory.mktemp("report")
    x, y = random_rows(300, D, 0.4)
    shards_of(str(path / "two"), x, y, chunk_nnz=200)
    shards_of(str(path / "three"), x, np.arange(300) % 3, chunk_nnz=200)
    bigclf("fit", path / "two", "-o", path / "m", "--loss", "logistic", "--run-dir", path / "run")
    return path


def test_a_run_a_model_and_an_evaluation(stored):
    told = json.loads(bigclf("report", stored / "run", "-o", stored / "r.html", "--data", stored / "two", "--json")[0])
    assert told["sections"] == ["evaluation", "training", "weights", "data", "settings", "memory"]
    page = checked(stored / "r.html")
    text = " ".join(page.text)
    for heading in ("ROC", "Precision and recall", "Calibration", "Distance from the optimum", "Confusion", "The plan"):
        assert heading in text
    figures = evaluate(subject_of(stored / "run").model, str(stored / "two"))
    assert f"{100 * figures.accuracy:.3f} %" in text and f"{figures.auc:.5f}" in text
    assert "exists" in error_of("report", stored / "run", "-o", stored / "r.html", code=1)
    bigclf("report", stored / "m", "-o", stored / "r.html", "--overwrite")
    assert "evaluation" not in checked(stored / "r.html").ids


def test_evaluate_and_fit_write_one_too(stored):
    plain = json.loads(bigclf("evaluate", stored / "m", stored / "two", "--json")[0])
    told = json.loads(bigclf("evaluate", stored / "m", stored / "two", "--report", stored / "e.html", "--json")[0])
    assert {**plain, "seconds": 0} == {**told, "seconds": 0}
    assert "evaluation" in checked(stored / "e.html").ids
    words = ("fit", stored / "two", "-o", stored / "n", "--loss", "logistic", "--validate", stored / "two",
             "--report", stored / "f.html")  # fmt: skip
    assert f"report: {stored / 'f.html'}" in bigclf(*words)[0]
    assert {"evaluation", "training"} <= set(checked(stored / "f.html").ids)
    (stored / "n").unlink()
    assert "f.html already exists" in error_of(*words, code=1) and not (stored / "n").exists()
    words = ("evaluate", stored / "m", "x", "--report", stored / "g", "--workers", 2)
    assert "leave out --workers" in error_of(*words, code=2)


@pytest.mark.parametrize("kind", ["frame", "named", "array", "stream"])
def test_rows_in_memory_are_measured_as_files_are(stored, tmp_path, kind):
    import pandas as pd
    import pyarrow as pa

    x, y = random_rows(300, D, 0.4)
    frame = pd.DataFrame(x.toarray(), columns=[f"c{j}" for j in range(D)])
    model = fit(frame, y, loss="logistic", memory="100MB", progress=False)
    rows = {
        "frame": (frame, y),
        "named": (frame.assign(won=y), "won"),
        "array": (x, y),
        "stream": (pa.RecordBatchReader.from_batches(*batches_of(frame.assign(won=y))), "won"),
    }[kind]
    told = report(model, tmp_path / "r.html", *rows)
    assert "evaluation" in told["sections"]
    figures, text = evaluate(model, x, y), " ".join(checked(tmp_path / "r.html").text)
    assert f"{figures.auc:.5f}" in text and "ROC" in text and f"rows in memory ({type(rows[0]).__name__})" in text


def batches_of(frame):
    import pyarrow as pa

    table = pa.Table.from_pandas(frame)
    return table.schema, table.to_batches(max_chunksize=100)


def test_rows_without_labels_and_labels_without_rows_are_refused(stored, tmp_path):
    x, y = random_rows(30, D, 0.4)
    with pytest.raises(TypeError, match=r"needs its labels: report\(model, out, X, y\)"):
        report(stored / "m", tmp_path / "r.html", x)
    with pytest.raises(TypeError, match="y has no effect without data"):
        report(stored / "m", tmp_path / "r.html", y=y)
    with pytest.raises(TypeError, match="files have their own labels"):
        report(stored / "m", tmp_path / "r.html", str(stored / "two"), y)
    assert not (tmp_path / "r.html").exists()


def test_a_job_writes_one(stored, monkeypatch):
    monkeypatch.chdir(stored)
    (stored / "job.yaml").write_text(
        "data: {train: two, test: two}\nmethod: {loss: logistic}\nrun: {dir: jobrun}\n"
        "outputs: {model: jm, report: j.html}\n"
    )
    bigclf("run", "job.yaml")
    assert {"evaluation", "training"} <= set(checked(stored / "j.html").ids)
    bigclf("run", "job.yaml", "--resume")  # a finished run gives its model, the report is made anew


def test_text_from_data_stays_text(tmp_path):
    """Markup in labels, names of features, titles, paths, settings, events and warnings."""
    model = Model(
        np.random.default_rng(0).normal(size=(3, D)), np.zeros(3), np.array([f"{EVIL}{k}" for k in range(3)]),
        method={"name": EVIL, "loss": EVIL, EVIL: EVIL},
        facts={"stopped": EVIL, "warnings": [EVIL], "chosen": EVIL, "plan": {"memory": {EVIL: 5}}},
    )  # fmt: skip
    x, _ = random_rows(60, D, 0.4)
    shards_of(str(tmp_path / "s"), x, np.array([f"{EVIL}{k % 3}" for k in range(60)]))
    model.save(tmp_path / "model.bigclf")
    events = [{"worker": EVIL, "what": EVIL}]
    (tmp_path / "run.json").write_text(json.dumps({"versions": {EVIL: EVIL}, "cpu": EVIL, "limits": {EVIL: 1}}))
    (tmp_path / "history.jsonl").write_text(json.dumps({"epoch": 1, "events": events}) + "\n{cut")
    names = [f"{EVIL}{j}" for j in range(D)]
    told = report(tmp_path, tmp_path / "r.html", str(tmp_path / "s"), names=names, title=EVIL)
    assert {"evaluation", "weights", "events"} <= set(told["sections"])
    page = checked(tmp_path / "r.html")
    assert sum(EVIL in text for text in page.text) > 20
    assert any(name == "aria-label" and EVIL in value for _, name, value in page.attributes)
    drawn = Parsed(str(chart(EVIL, [Line(EVIL, [1, 2], [1, 2]), Line("b", [1, 2], [2, 3])], EVIL, EVIL)))
    assert drawn.elements <= {"svg", "g", "path", "text", "circle", "p", "span"} and drawn.text.count(EVIL) == 3


def test_an_epoch_that_only_certifies_is_drawn_as_no_epoch_without_errors():
    judged = [{"epoch": k + 1, "rows": 10, "error": share} for k, share in enumerate((0.5, 0.25, 0.2))]
    certifying = {"epoch": 4, "rows": 0, "error": 0.0}

    def drawn(history):
        return str(_errors(Subject("t", None, {}, history, None, None)).drawing)

    assert drawn([*judged, certifying]) == drawn(judged) != drawn([*judged, {**certifying, "rows": 10}])


def test_a_run_under_way_and_what_is_none(tmp_path):
    identity = {"method": "arow", "settings": {"r": 1.0}, "tol": None}
    (tmp_path / "run.json").write_text(json.dumps({"identity": identity}))
    (tmp_path / "history.jsonl").write_text('{"epoch": 1, "error": 0.5}\n{"epoch": 2, "error": 0.25}\n{"epo')
    assert [record["epoch"] for record in history_of(str(tmp_path))] == [1, 2]
    report(tmp_path, tmp_path / "r.html")
    text = " ".join(checked(tmp_path / "r.html").text)
    assert "Errors by epoch" in text and "adaptive regularisation of weights" in text
    with pytest.raises(RunError, match="no model yet"):
        report(tmp_path, tmp_path / "s.html", "data")
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(DataError, match="run.json: not readable"):
        report(tmp_path, tmp_path / "s.html")
    with pytest.raises(DataError, match="no run directory"):
        report(tmp_path / "..", tmp_path / "s.html")
    assert not (tmp_path / "s.html").exists()


@pytest.mark.parametrize("kind", ["three", "numbers", "voted", "online"])
def test_every_kind_of_model_has_a_page(stored, tmp_path, kind):
    data = None
    if kind == "three":
        data = str(stored / "three")
        model = fit(data, algo="arow", memory="100MB", progress=False)
    elif kind == "online":
        model = fit(str(stored / "two"), algo="arow", memory="100MB", progress=False)
    elif kind == "numbers":
        x, y = random_rows(60, D, real=True)
        data = shards_of(str(tmp_path / "s"), x, y, real=True)
        model = Model(np.ones((1, D)), [0.0], None, method={"name": "dcd"})
    else:
        state = {"0.weights": np.ones(2)}
        model = Model(np.ones((1, D)), [0.0], [-1, 1], method={"name": "voted_perceptron"}, state=state)
    report(model, tmp_path / "r.html", data)
    text = " ".join(checked(tmp_path / "r.html").text)
    assert {"three": "std. error", "numbers": "mean squared error", "voted": "decides by the votes",
            "online": "mean of all so far"}[kind] in text  # fmt: skip
    assert ("make the number smaller" in text) == (kind == "numbers")


def test_confusions_of_many_classes_are_the_largest_pairs(tmp_path):
    k = 25
    x = np.eye(k, dtype=np.float32)
    model = Model(np.eye(k), np.zeros(k), np.arange(k))
    y = np.arange(k)
    y[3] = 4
    import scipy.sparse as sp

    report(model, tmp_path / "r.html", shards_of(str(tmp_path / "s"), sp.csr_matrix(x), y))
    page = checked(tmp_path / "r.html")
    assert "Confused most" in page.text
    at = page.text.index("Confused most")
    assert [text for text in page.text[at:] if text.strip()][4:7] == ["4", "3", "1"]


# Curves


def values(n=400, ties=False):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=n)
    positive = rng.random(n) < 1 / (1 + np.exp(-2 * scores))
    return (np.round(scores, 1) if ties else scores), positive


@pytest.mark.parametrize("ties", [False, True])
def test_curves_are_scikit_learns(ties):
    scores, positive = values(ties=ties)
    ranking = Ranking(scores.size)
    ranking.add(scores, positive)
    found = curves.levels(ranking)
    assert curves.average_precision(found) == pytest.approx(average_precision_score(positive, scores), rel=1e-12)
    false, true, _ = roc_curve(positive, scores, drop_intermediate=False)
    mine = np.column_stack(curves.roc(found))
    theirs = {(round(a, 12), round(b, 12)) for a, b in zip(false, true, strict=True)}
    assert {(round(a, 12), round(b, 12)) for a, b in mine} <= theirs
    assert mine[0].tolist() == [0, 0] and mine[-1].tolist() == [1, 1] and len(mine) <= curves.POINTS
    recall, precision = curves.precision_recall(found)
    assert recall[-1] == 1 and precision[-1] == positive.mean()


def test_bins_give_nearly_the_same_curves():
    scores, positive = values(5000)
    exact, binned = Ranking(scores.size), BinnedRanking()
    for ranking in (exact, binned):
        ranking.add(scores, positive)
    a, b = curves.levels(exact), curves.levels(binned)
    assert curves.average_precision(b) == pytest.approx(curves.average_precision(a), abs=1e-3)
    assert b.positive.sum() == positive.sum() and (np.diff(b.values) > 0).all()
    assert np.array_equal(score_bins(b.values), np.unique(score_bins(scores)))
    assert np.abs(b.values / np.interp(b.values, a.values, a.values) - 1).max() < 2**-10


def test_thinning_keeps_the_ends_and_the_shape():
    x = np.linspace(0, 1, 10_000)
    a, b = curves.thinned(x, x**2)
    assert a.size <= curves.POINTS and (a[0], a[-1], b[-1]) == (0, 1, 1)
    assert np.abs(np.interp(x, a, b) - x**2).max() < 1e-3
    assert curves.thinned(x[:5], x[:5])[0].size == 5


def test_axes_have_round_ticks():
    assert [tick_step(0, high) for high in (1, 6, 7, 12, 13, 0.03)] == [0.2, 1, 2, 2, 5, 0.005]
    texts = [text for _, text in ticks(scale([0.0003, 0.2], 0, 100, True, False))]
    assert texts == ["1e-4", "1e-3", "1e-2", "1e-1", "1"]
    assert [text for _, text in ticks(scale([1, 3], 0, 100, False, False, True))] == ["1", "2", "3"]
    assert [text for _, text in ticks(scale([5, 5], 0, 100, False, False))] == ["2", "3", "4", "5", "6", "7", "8"]
    assert len(ticks(scale([1e-300, 1e300], 0, 100, True, False))) < 9
    assert [number_text(v) for v in (0, 1e-17, 12_000, 2.5e6, 0.1 + 0.2)] == ["0", "0", "12k", "2.5M", "0.3"]
    empty = str(chart("nothing", [Line("a", [], []), Line("b", [0.0, np.nan], [0.0, 1.0])], "x", "y", log_x=True))
    assert "nan" not in empty and 'class="line' not in empty


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
@pytest.mark.parametrize("scheme", [0, 1])
def test_a_browser_has_nothing_to_complain_of_and_asks_for_nothing(stored, tmp_path, scheme):
    """Dark (0) and light; what it loads is in its net log, its console on stderr."""
    report(stored / "run", tmp_path / "r.html", str(stored / "two"))
    done = subprocess.run(
        ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
         "--disable-component-update", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}",
         f"--log-net-log={tmp_path / 'net.json'}", "--enable-logging=stderr", "--dump-dom",
         f"--blink-settings=preferredColorScheme={scheme}", f"file://{tmp_path / 'r.html'}"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert "Distance from the optimum" in done.stdout and "CONSOLE" not in done.stderr
    events = json.loads((tmp_path / "net.json").read_text())["events"]
    asked = {event.get("params", {}).get("url", "") for event in events}
    assert not [url for url in asked if "r.html" in url and url.startswith("http")]
