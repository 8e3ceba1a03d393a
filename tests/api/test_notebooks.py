"""What Jupyter shows: of objects as HTML, and of a training while it goes."""

import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from making import random_rows, shards_of

import bigclf
from bigclf import progress

VOID = {"br", "img", "polyline"}


class Balanced(HTMLParser):
    """HTML whose elements are closed in order; its text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def shown(thing):
    return " ".join(Balanced(thing._repr_html_()).text)


@pytest.fixture(scope="module")
def rows():
    x, y = random_rows(300, noise=3.0)
    return x, np.where(y > 0, "<b>yes</b>", "no")


def test_one_online_epoch_shows_the_error_by_the_rows_seen(rows):
    result = bigclf.fit(*rows, algo="perceptron", epochs=1, progress=False).result_
    (first, wrong, _), *_, (last, _, _) = result.progressive["curve"]
    assert f"progressive validation error from {first} to {last} rows: {wrong / first:.3g} to " in shown(result)


def test_a_sweep_shows_its_points_and_marks_the_best(rows):
    sweep = bigclf.sweep(*rows, algo="dcd", grid={"C": [0.01, 1.0]}, folds=2, progress=False)
    text = shown(sweep)
    assert text.count("best") == 1 and sweep.measure in text
    best, other = sweep.table if sweep.table[0]["params"] == sweep.best_params_ else sweep.table[::-1]
    assert f"best {best['params']['C']:g} {best['mean']:.5f}" in text and f"{other['mean']:.5f}" in text


def test_a_path_shows_its_values(rows):
    path = bigclf.path(*rows, algo="newglmnet", loss="logistic", C=[0.01, 1.0], progress=False)
    for row in path.table:
        assert f"{row['C']:.4g} {row['nonzero']:,} {row['objective']:,.7g} {row['gap']:.1e}" in shown(path)


def test_a_training_shows_its_certificate_and_the_curve_of_its_gap(rows):
    model = bigclf.fit(*rows, algo="dcd", inner_rounds=0, tol=1e-6)
    assert len(model.result_.history) > 3
    text = shown(model.result_)
    assert f"{model.certificate['primal']:,.10g}" in text and f"{model.certificate['gap']:.1e}" in text
    assert "gap by epoch" in text and "<svg" in model.result_._repr_html_()
    points = re.search(r'points="([^"]*)"', model.result_._repr_html_()).group(1).split()
    heights = [float(point.split(",")[1]) for point in points]
    assert len(points) >= 3 and heights[-1] == max(heights), "the last gap is the least, and SVG counts from the top"


def test_names_from_data_are_text_and_no_markup(rows):
    x, y = rows
    model = bigclf.fit(x, y)
    for thing in (model, bigclf.evaluate(model, x, y)):
        assert "<b>yes</b>" not in thing._repr_html_() and "<b>yes</b>" in shown(thing)


def test_online_methods_show_their_progressive_error(rows):
    model = bigclf.fit(*rows, algo="pa1", epochs=3)
    assert "progressive validation" in shown(model) and "certified gap" not in shown(model)
    assert "error by epoch" in shown(model)


def test_numbers_learned_online_show_their_mean_loss_and_no_epoch_shows_no_curve():
    x, y = random_rows(real=True)
    model = bigclf.fit(x, y, algo="sgd", loss="squared", epochs=3)
    assert "mean_loss by epoch" in shown(model.result_)
    model.result_.history.clear()
    model.result_.progressive.pop("curve")
    assert "<svg" not in model.result_._repr_html_()


def test_what_was_loaded_or_predicts_numbers_is_shown_too(tmp_path):
    x, y = random_rows(real=True)
    model = bigclf.fit(x, y, algo="newton_dense", loss="squared")
    model.save(tmp_path / "m")
    assert "numbers" in shown(bigclf.load(tmp_path / "m"))
    found = bigclf.evaluate(model, x, y)
    assert f"{found.r2:.5f}" in shown(found)


def test_a_dataset_shows_what_it_prints(tmp_path):
    x, y = random_rows()
    dataset = shards_of(tmp_path / "rows", x, y)
    dataset = dataset if isinstance(dataset, bigclf.Dataset) else bigclf.Dataset(tmp_path / "rows")
    for line in repr(dataset).splitlines()[1:]:
        assert line.split(maxsplit=1)[1] in shown(dataset)


def test_the_line_in_a_notebook_is_drawn_again_and_cleared_at_the_end(monkeypatch):
    seen = []
    line = SimpleNamespace(update=lambda data, raw: seen.append(data["text/plain"]))
    monkeypatch.setattr(progress, "notebook_line", lambda: line)
    monkeypatch.setattr(progress, "REFRESHED_IN_NOTEBOOKS", 200)
    bar = progress.TerminalProgress(console=SimpleNamespace(is_jupyter=True))
    bar.start({"n_rows": 100, "epoch": 1, "epochs": 2})
    while len(seen) < 3:
        bar.advance(1, 8)
    bar.stop()
    assert seen[0].startswith("training  epoch 1 of 2") and seen[-1] == ""


@pytest.mark.long
def test_a_notebook_shows_progress_while_it_trains_and_the_model_after(tmp_path):
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    lines = [
        "import bigclf, numpy as np",
        "r = np.random.default_rng(0); X = r.normal(size=(20000, 30)); y = X[:, 0] + r.normal(size=20000) > 0",
        "model = bigclf.fit(X, y, algo='pa1', epochs=300)",
        "bigclf.evaluate(model, X, y)",
        "model",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(line) for line in lines])
    nbclient.NotebookClient(book, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [cell.outputs for cell in book.cells]
    assert all(out.output_type != "error" for each in outputs for out in each)
    assert "Evaluation" in outputs[3][0].data["text/html"] and "Model" in outputs[4][0].data["text/html"]
    (line,) = outputs[2]
    assert line.data == {"text/plain": ""}, "the line was there, and is gone at the end"
