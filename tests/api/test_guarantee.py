"""``path(..., within=)``: every C between two bounds is served by a model that is near its optimum."""

import json
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from making import shards_of

import bigclf
from bigclf.api import guarantee
from bigclf.cli import main
from bigclf.errors import ConvergenceWarning


def _rows(tmp_path, n_classes=2, n=400, d=40):
    random = np.random.default_rng(3)
    X = random.standard_normal((n, d)) * (random.random((n, d)) < 0.3)
    y = np.argmax(X @ random.standard_normal((d, n_classes)) + 1.5 * random.standard_normal((n, n_classes)), axis=1)
    return X, y


def _objectives(X, y, model, loss, C):
    """P of each of the model's problems, in numpy."""
    scores, classes = X @ model.coef_.T + model.intercept_, model.classes_
    targets = [np.where(y == classes[1], 1, -1)] if len(classes) == 2 else [np.where(y == c, 1, -1) for c in classes]
    found = []
    for k, target in enumerate(targets):
        margin = target * scores[:, k]
        each = {"hinge": np.maximum(0, 1 - margin), "squared_hinge": np.maximum(0, 1 - margin) ** 2,
                "logistic": np.logaddexp(0, -margin)}[loss]  # fmt: skip
        found.append(0.5 * (model.coef_[k] @ model.coef_[k] + model.intercept_[k] ** 2) + C * each.sum())
    return np.array(found)


@pytest.mark.parametrize(("loss", "n_classes", "where"), [
    ("hinge", 2, ""), ("hinge", 2, "groups"), ("logistic", 2, ""), ("squared_hinge", 3, ""),
    pytest.param("hinge", 3, "groups", marks=pytest.mark.slow),
])  # fmt: skip
def test_at_every_c_the_model_is_within_the_share_of_the_optimum(tmp_path, loss, n_classes, where):
    X, y = _rows(tmp_path, n_classes)
    data, more = (X, y), {}
    if where == "groups":
        data, more = (shards_of(tmp_path / "shards", sp.csr_matrix(X), y, chunk_nnz=200),), {"groups": 3}
    found = bigclf.path(*data, C=[0.01, 10], within=0.01, loss=loss, **more)
    assert found.converged and len(found.models) <= 20
    assert found.table[0]["low"] == 0.01 and found.table[-1]["high"] == 10
    assert [row["high"] for row in found.table[:-1]] == [row["low"] for row in found.table[1:]]
    assert all(row["within"] <= 0.01 for row in found.table)
    for C in np.exp(np.random.default_rng(5).uniform(np.log(0.01), np.log(10), 4)):
        best = _objectives(X, y, bigclf.fit(X, y, algo="dcd", loss=loss, C=C, tol=1e-7), loss, C)
        assert (_objectives(X, y, found.model_at(C), loss, C) <= 1.01 * best).all()


def test_a_streamed_run_ends_as_soon_as_every_c_is_served(tmp_path):
    X, y = _rows(tmp_path, n=2000)
    data = shards_of(tmp_path / "shards", sp.csr_matrix(X), y, chunk_nnz=1000)
    shape = dict(C=[0.01, 100], within=0.01, loss="logistic", memory="16MB", bias=None)
    found = bigclf.path(data, tol=1e-7, **shape)
    assert not found.plan["resident"] and found.converged and found.table[-1]["high"] == 100
    assert all(row["within"] <= 0.01 for row in found.table) and max(row["gap"] for row in found.table) > 1e-7
    for C in (0.01, 1.0, 30.0, 100.0):
        best = _objectives(X, y, bigclf.fit(X, y, algo="dcd", loss="logistic", C=C, tol=1e-7, bias=None), "logistic", C)
        assert (_objectives(X, y, found.model_at(C), "logistic", C) <= 1.01 * best).all()


@pytest.mark.parametrize("more", [{"memory": "16MB"}, {}])
def test_a_run_that_its_limit_ends_when_every_c_is_served_has_converged(tmp_path, more):
    X, y = _rows(tmp_path, n=2000)
    data = shards_of(tmp_path / "shards", sp.csr_matrix(X), y, chunk_nnz=1000)
    shape = dict(C=[0.01, 1], within=0.05, loss="logistic", tol=1e-9, bias=None, progress=False, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a limit
        found = bigclf.path(data, epochs=2, **shape)
    assert found.converged and found.table[-1]["high"] == 1 and max(row["gap"] for row in found.table) > 1e-9
    with pytest.warns(ConvergenceWarning, match="not converged"):
        assert not bigclf.path(data, epochs=1, **shape | {"within": 1e-3, "C": [0.1, 1]}).converged


def test_a_hole_is_filled_in_a_further_round(monkeypatch, tmp_path):
    X, y = _rows(tmp_path)
    monkeypatch.setattr(guarantee, "RATIO", 30.0)  # too far apart
    found = bigclf.path(X, y, C=[0.01, 10], within=0.01, run_dir=tmp_path / "run")
    assert found.converged and found.table[0]["low"] == 0.01 and found.table[-1]["high"] == 10
    assert (tmp_path / "run" / "round-2").exists()
    again = bigclf.path(X, y, C=[0.01, 10], within=0.01, run_dir=tmp_path / "run", resume=True)
    assert [row["C"] for row in again.table] == [row["C"] for row in found.table]
    assert (again.coefs_ == found.coefs_).all()


def test_where_a_model_is_not_reached_it_says_so(tmp_path):
    X, y = _rows(tmp_path)
    with pytest.warns(bigclf.errors.ConvergenceWarning, match=r"no model is certified within 0\.001 for C from"):
        found = bigclf.path(X, y, C=[0.1, 1000], within=0.001, loss="hinge", epochs=2)
    assert not found.converged and found.models and all(row["within"] > 0.001 for row in found.table)
    with pytest.raises(ValueError, match=r"no model serves C=1e\+06"):
        found.model_at(1e6)


def test_one_value_is_enough_where_both_bounds_are_near(tmp_path):
    X, y = _rows(tmp_path)
    assert len(bigclf.path(X, y, C=[1.0, 1.05], within=0.01).models) == 1


@pytest.mark.parametrize(("options", "what"), [
    ({"C": [1.0]}, "two bounds above 0"),
    ({"C": [0, 1]}, "two bounds above 0"),
    ({"C": [0.1, 1, 10]}, "two bounds above 0"),
    ({"C": [0.1, 1], "tol": 0.05}, "must be less than within"),
    ({"C": [0.1, 1], "within": 1.5}, "within must be more than 0 and less than 1"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(options, what):
    with pytest.raises(ValueError, match=what):
        bigclf.path(np.eye(4), [0, 1, 0, 1], **{"within": 0.01, **options})


def test_methods_without_dual_variables_are_refused_by_name():
    with pytest.raises(TypeError, match="within is not available with algo='newton': it is with dcd"):
        bigclf.path(np.eye(4), [0, 1, 0, 1], C=[0.1, 1], within=0.01, algo="newton")


def test_on_the_command_line(tmp_path):
    X, y = _rows(tmp_path)
    text = "".join(f"{label} " + " ".join(f"{j + 1}:{x:.6g}" for j, x in enumerate(row) if x) + "\n"
                   for row, label in zip(X, y, strict=True))  # fmt: skip
    (tmp_path / "rows.svm").write_text(text)
    line = ["path", str(tmp_path / "rows.svm"), "-o", str(tmp_path / "out"), "--C", "0.01,10", "--within", "0.01"]
    result = CliRunner().invoke(main, line, catch_exceptions=False)
    assert result.exit_code == 0 and "serves C" in result.output and "0.01 to " in result.output
    told = json.loads((tmp_path / "out" / "path.json").read_text())
    assert len(told["table"]) == len(list((tmp_path / "out").glob("model-*.bigclf"))) >= 3
    again = CliRunner().invoke(main, [*line, "--resume", "--json"], catch_exceptions=False)
    assert json.loads(again.output)["table"] == told["table"]
