"""Models that know features by name, and rows that do not, or the other way round: refused, not scored by place."""

import pathlib

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from making import does, refuses, rows_in_csv

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
