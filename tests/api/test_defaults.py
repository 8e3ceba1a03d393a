"""What ``fit`` makes of a table where nobody says how: a logistic regression, as good as scikit-learn's."""

import gzip
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from click.testing import CliRunner
from making import random_rows, shards_of
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score

import bigclf
from bigclf.api.plan import forecast
from bigclf.cli import main
from bigclf.request.auto import Asked, choose

SPECS = os.path.join(os.path.dirname(__file__), "../../jobs/experiments/first_hour")
WITHIN = 0.002


def csr_of(dataset):
    """All rows of shards: CSR float64 [rows, features] and whether each is of the greater class."""
    blocks, n = list(dataset.blocks()), dataset.n_features
    rows = [scipy.sparse.csr_matrix((values_of(b), b.indices, b.indptr - b.indptr[0]), (b.n_rows, n)) for b in blocks]
    return scipy.sparse.vstack(rows).tocsr(), np.concatenate([b.labels for b in blocks]) > 0


def values_of(block):
    return np.asarray(block.values, np.float64) if block.values.size else np.ones(block.indices.size)


def beside_scikit_learn(train, test, features, place):
    """AUC and log loss on the test file by default, and of scikit-learn's regression on the same encoded rows."""
    model = bigclf.fit(str(train), features=features)
    assert model.result_.converged and model.method["loss"] == "logistic" and "algo=auto: " in model.result_.chosen
    ours = bigclf.evaluate(model, str(test))
    x, y = csr_of(bigclf.convert(str(train), place / "train", features=features))
    z, truth = csr_of(bigclf.convert(str(test), place / "test", features=model))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = LogisticRegression(C=1.0, solver="newton-cg", tol=1e-4, max_iter=200).fit(x, y)
    chances = peer.predict_proba(z)[:, 1]
    return (ours.auc, ours.log_loss), (roc_auc_score(truth, chances), log_loss(truth, chances))


def bank(n_rows, seed):
    """A table as banks have them: dates, money, missing values, categories."""
    rng = np.random.default_rng(seed)
    age, balance = rng.integers(18, 90, n_rows), rng.lognormal(7, 1.2, n_rows)
    job = rng.choice(["admin", "manager", "student", "retired", "unknown"], n_rows, p=[0.4, 0.2, 0.1, 0.2, 0.1])
    joined = pd.Timestamp("2015-01-01") + pd.to_timedelta(rng.integers(0, 3000, n_rows), "D")
    margin = 0.03 * (age - 50) + 0.6 * np.log(balance / 1100) + 1.2 * (job == "student") - 0.8
    bought = rng.random(n_rows) < 1 / (1 + np.exp(-margin))
    frame = pd.DataFrame({"age": age.astype(object), "job": job, "joined": joined.strftime("%Y-%m-%d"),
                          "balance": [f"${value:,.2f}" for value in balance],
                          "bought": np.where(bought, "yes", "no")})  # fmt: skip
    frame.loc[rng.random(n_rows) < 0.05, "age"] = None
    return frame


def test_the_default_on_a_banks_table_is_a_logistic_regression(tmp_path):
    for name, seed in (("train", 0), ("test", 1)):
        bank(2500, seed).to_csv(tmp_path / f"{name}.csv", index=False)
    spec = bigclf.suggest(tmp_path / "train.csv", "bought")
    ours, peers = beside_scikit_learn(tmp_path / "train.csv", tmp_path / "test.csv", spec, tmp_path)
    assert ours == pytest.approx(peers, abs=WITHIN) and ours[0] > 0.7


def test_the_command_says_which_method_it_took_and_why(tmp_path):
    bank(600, 0).to_csv(tmp_path / "bank.csv", index=False)
    words = ["fit", str(tmp_path / "bank.csv"), "--label", "bought", "-o", str(tmp_path / "m")]
    done = CliRunner().invoke(main, words, prog_name="bigclf")
    assert done.exit_code == 0, done.output
    assert "newton_dense" in done.output and "logistic" in done.output and "predicted to be the cheapest" in done.output
    assert bigclf.load(tmp_path / "m").method["loss"] == "logistic"


def test_a_method_by_name_keeps_its_own_first_loss():
    x, y = random_rows()
    assert bigclf.fit(x, y, algo="dcd").method["loss"] == "hinge"
    assert bigclf.LinearClassifier(algo="dcd").fit(x, y).model_.method["loss"] == "hinge"
    assert not hasattr(bigclf.LinearClassifier(algo="dcd").fit(x, y), "predict_proba")


def test_a_method_that_begins_with_weights_is_chosen_because_of_them():
    asked = Asked(loss=None, penalty=None, bias=None, C=1.0, given=(), epochs=None, n_rows=10**6, n_features=10**6,
                  nnz=10**8, memory=2**33, groups=1)  # fmt: skip
    assert choose(asked)[0] == "dcd"
    name, told = choose(asked._replace(begins=True))
    assert name == "newton" and told.endswith(
        "newton, because it begins with the weights that are given (init); without them it is dcd, which cannot"
    )
    assert "(init)" not in choose(asked._replace(begins=True, bias="free"))[1]  # newton, whatever there is


def test_sweep_and_plan_take_the_method_that_fit_takes(tmp_path):
    x, y = random_rows(400)
    fitted = bigclf.fit(x, y)
    found = bigclf.sweep(x, y, grid={"C": [0.1, 1.0]}, folds=2)
    assert found.best_model.method["loss"] == fitted.method["loss"] == "logistic"
    assert found.best_model.method["name"] == fitted.method["name"]
    both = bigclf.sweep(x, y, grid={"loss": ["hinge", "logistic"]}, folds=2, refit=False)
    assert [row["params"]["loss"] for row in both.table] == ["hinge", "logistic"]
    with pytest.raises(ValueError, match="twice"):
        bigclf.sweep(x, y, grid={"C": [1.0, 1.0]}, folds=2)
    shards_of(tmp_path / "rows", x, y)
    assert forecast(tmp_path / "rows")["algo"] == fitted.method["name"]


@pytest.mark.data
def test_the_default_on_census_incomes(tmp_path, data_set):
    for name, part in (("train", "data"), ("test", "test")):
        (tmp_path / f"{name}.csv").write_bytes(gzip.decompress(data_set(f"adult/adult.{part}.gz").read_bytes()))
    spec = Path(SPECS, "adult.yaml").read_text()
    ours, peers = beside_scikit_learn(tmp_path / "train.csv", tmp_path / "test.csv", spec, tmp_path)
    assert ours == pytest.approx(peers, abs=WITHIN) and ours[0] > 0.9


@pytest.mark.data
def test_the_default_on_flights(tmp_path, data_set):
    frame = pd.read_csv(data_set("hflights/hflights.csv.gz"), dtype=str, keep_default_na=False)
    held = np.random.default_rng(0).random(len(frame)) < 0.2
    for name, rows in (("train", frame[~held]), ("test", frame[held])):
        rows.to_csv(tmp_path / f"{name}.csv", index=False)
    spec = Path(SPECS, "hflights.yaml").read_text()
    ours, peers = beside_scikit_learn(tmp_path / "train.csv", tmp_path / "test.csv", spec, tmp_path)
    assert ours == pytest.approx(peers, abs=WITHIN) and ours[0] > 0.7
