"""Models that know features by name, and rows that do not, or the other way round: refused, not scored by place."""

import pathlib

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from making import does, refuses, rows_in_csv

import bigclf

N = 300


@pytest.fixture
def table(tmp_path, monkeypatch):
    return rows_in_csv(tmp_path, monkeypatch, N)


def test_rows_of_text_are_refused_by_a_model_of_named_columns_and_shards_of_columns_by_one_of_text(table):
    numbers = table.set_column(2, "y", pa.array([int(one == "yes") for one in table["y"].to_pylist()]))
    pq.write_table(numbers, "numbers.parquet")
    lines = [f"{row['y']} 1:{row['a']} 2:{row['b']}\n" for row in numbers.to_pylist()]
    pathlib.Path("rows.svm").write_text("".join(lines))
    does("convert rows.svm of_text")
    does("fit numbers.parquet --label y --algo pegasos --epochs 1 -o named.bigclf")
    for verb in ("predict named.bigclf {} -o out.csv", "evaluate named.bigclf {}",
                 "explain named.bigclf --data {} --row 1",
                 "fit {} --algo pegasos --init named.bigclf -o next.bigclf"):  # fmt: skip
        for rows in ("rows.svm", "of_text"):
            told = refuses(verb.format(rows), 3)
            assert "the model takes the columns a, b by their names: give it Parquet with these columns" in told
            assert rows in told or verb.startswith("fit")
    does("evaluate named.bigclf numbers.parquet")
    pa.csv.write_csv(numbers, "numbers.csv")
    does("convert numbers.csv of_columns --label y --numeric a,b")
    does("fit rows.svm --algo pegasos --epochs 1 -o text.bigclf")
    for verb in ("predict text.bigclf of_columns -o out.csv", "evaluate text.bigclf of_columns",
                 "fit of_columns --algo pegasos --init text.bigclf -o next.bigclf"):  # fmt: skip
        assert "takes features by their numbers in text" in refuses(verb, 3)
    does("evaluate text.bigclf of_text")
    does("fit of_text --algo pegasos --init text.bigclf -o next.bigclf")


def test_a_row_that_is_a_series_is_read_by_its_names(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "c"])
    y = (frame["a"] - 2 * frame["c"] > 0).astype(int)
    frame.assign(y=y).to_parquet(tmp_path / "rows.parquet")
    how = {"algo": "lbfgs", "progress": False}
    for model in (bigclf.fit(frame, y, **how), bigclf.fit(tmp_path / "rows.parquet", columns={"label": "y"}, **how)):
        row, expected = frame.iloc[3], model.decision_function(frame)[3]
        scorer = model.scorer()
        for given in (row, row[::-1], row[::-1].astype(object), pd.Series(row.to_numpy())):  # the last has no names
            assert scorer(given) == pytest.approx(expected) == model.explain_row(given, only=1)["score"]
        assert scorer.predict(row[::-1]) == model.predict(frame)[3]
        for strange, told in ((row.rename({"a": "q"}), "unknown to it 'q'; missing 'a'"),
                              (frame.assign(y=y).iloc[3], "unknown to it 'y'; give them as row.model.plain_columns"),
                              (row[["a", "b"]], "missing 'c'")):  # fmt: skip
            for call in (scorer, model.explain_row):
                with pytest.raises(ValueError, match=told):
                    call(strange)
