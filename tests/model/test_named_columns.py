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
from bigclf.data.arrays import are_counted

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
                 "explain named.bigclf --data {} --row 1", "explain named.bigclf --data {}",
                 "fit {} --algo pegasos --init named.bigclf -o next.bigclf"):  # fmt: skip
        for rows in ("rows.svm", "of_text"):
            told = refuses(verb.format(rows), 3)
            assert "the model takes the columns a, b by their names: give it Parquet with these columns" in told
            assert f"{rows}: rows of sparse text" in told or f"{rows}/part-00000.parquet: rows of" in told
    does("evaluate named.bigclf numbers.parquet")
    pa.csv.write_csv(numbers, "numbers.csv")
    does("convert numbers.csv of_columns --label y --numeric a,b")
    does("fit rows.svm --algo pegasos --epochs 1 -o text.bigclf")
    for verb in ("predict text.bigclf of_columns -o out.csv", "evaluate text.bigclf of_columns",
                 "explain text.bigclf --data of_columns",
                 "fit of_columns --algo pegasos --init text.bigclf -o next.bigclf"):  # fmt: skip
        assert "takes features by their numbers in text" in refuses(verb, 3)
    does("evaluate text.bigclf of_text")
    does("fit of_text --algo pegasos --init text.bigclf -o next.bigclf")


def test_columns_with_names_of_their_own_are_refused_by_a_model_of_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [(k % 7 / 7, k % 5 / 5, int(k % 7 > 3)) for k in range(N)]
    pathlib.Path("rows.svm").write_text("".join(f"{y} 1:{a} 2:{b}\n" for a, b, y in rows))
    does("fit rows.svm --algo pegasos --epochs 1 -o text.bigclf")
    for names in (["b", "a"], ["f2", "f1"], ["1", "3"]):
        pq.write_table(pa.table([*zip(*rows, strict=True)], names=[*names, "label"]), "named.parquet")
        for verb in ("predict text.bigclf {} -o out.csv", "evaluate text.bigclf {}", "explain text.bigclf --data {}"):
            told = refuses(verb.format("named.parquet"), 3)
            assert f"named.parquet: the file has the columns {', '.join(names)}, and the model takes features" in told
    for names in (["0", "1"], ["1", "2"], ["f1", "f2"], ["x_0", "x_1"]):
        pq.write_table(pa.table([*zip(*rows, strict=True)], names=[*names, "label"]), "counted.parquet")
        does("evaluate text.bigclf counted.parquet")


def test_the_hint_for_init_names_the_columns_that_the_model_has(table):
    frame = table.to_pandas()
    numbers = frame.assign(y=frame["y"] == "yes")
    numbers.to_parquet("numbers.parquet")
    models = [bigclf.fit("numbers.parquet", y="y", algo="pegasos", epochs=1, progress=False),
              bigclf.fit(numbers[["a", "b"]], numbers.y, algo="pegasos", epochs=1, progress=False)]  # fmt: skip
    for model in models:
        with pytest.raises(ValueError, match="column 0 is 'b' and was 'a'; give them as X") as caught:
            bigclf.fit(numbers[["b", "a"]], numbers.y, init=model, algo="pegasos", progress=False)
        way = str(caught.value).partition("give them as ")[2]
        bigclf.fit(eval(way, {"X": numbers, "model": model}), numbers.y, init=model, algo="pegasos", progress=False)


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


def test_a_row_as_a_dict_is_read_by_its_names():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 2)), columns=["a", "b"])
    model = bigclf.fit(frame, frame["a"] > 0, algo="pa1", epochs=1, progress=False)
    expected = model.decision_function(frame)[7]
    given = frame.iloc[7].to_dict()
    for row in (given, {"b": given["b"], "a": given["a"]}):
        assert model.scorer()(row) == pytest.approx(expected) == model.explain_row(row, only=True)["score"]
    with pytest.raises(ValueError, match="missing 'b'"):
        model.scorer()({"a": 1.0})
    plain = bigclf.fit(frame.to_numpy(), frame["a"] > 0, algo="pa1", epochs=1, progress=False)
    for call in (plain.scorer(), plain.explain_row):
        with pytest.raises(ValueError, match="'a' is no number of a feature, and the model has no names of columns"):
            call(given)


def test_a_row_of_raw_columns_is_read_by_their_names():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=80), "w": rng.choice(["u", "v", "z"], 80), "n": rng.integers(0, 3, 80)})
    y = (frame["a"] > 0) ^ (frame["w"] == "u")
    model = bigclf.fit(frame, y, features={"features": [{"numeric": ["a"]}, {"categorical": ["w", "n"]}]},
                       algo="lbfgs", progress=False)  # fmt: skip
    score, expected = model.scorer(), model.decision_function(frame)
    for k in range(12):
        row = frame.iloc[k]
        for given in (row, row[::-1], row.to_dict(), frame.iloc[[k]], pa.table(frame.iloc[[k]])):
            assert score(given) == pytest.approx(expected[k]) == model.explain_row(given, only=True)["score"]
        assert score.predict(row) == model.predict(frame)[k]
    named = {entry["name"] for entry in model.explain_row(row)["entries"]}
    assert named <= {"a", *(f"w={c}" for c in "uvz"), *(f"n={c}" for c in range(3))} and len(named) == 3
    other = row.to_dict() | {"w": "new"}
    assert model.explain_row(other)["unknown"] == 1 and model.explain_row(row)["unknown"] == 0
    assert model.scorer("ignore")(other) == pytest.approx(model.decision_function(pd.DataFrame([other]))[0])
    with pytest.raises(ValueError, match="1 of the row's categories are none that the model knows"):
        score(other)
    with pytest.raises(ValueError, match="one row at a time, not 2"):
        score(frame.iloc[:2])
    with pytest.raises(bigclf.errors.SchemaError, match="column n: there is no such column"):
        score({"a": 1.0, "w": "u"})


def test_names_that_count_are_places_and_a_name_twice_is_told():
    assert are_counted(["f01", "f02", "f03"]) and are_counted(["0", "1"]) and are_counted(["x1"])
    assert not are_counted(["f1", "f3"]) and not are_counted(["f2", "f3"]) and not are_counted(["a", "b"])
    assert not are_counted(["f1", "g2"])
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 2)), columns=["a", "b"])
    model = bigclf.fit(frame, frame["a"] > 0, algo="pa1", epochs=1, progress=False)
    with pytest.raises(ValueError, match="X has 'a' 2 times"):
        model.scorer()(pd.Series([1.0, 2.0, 3.0], ["a", "b", "a"]))
