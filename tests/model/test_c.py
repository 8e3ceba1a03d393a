"""A model as a C file: it says of the text fields of a row what the model says of the CSV."""

import csv
import ctypes
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from making import random_rows

import bigclf
from bigclf.errors import RunError

QUIET = {"progress": False, "tol": 1e-2}
TERMS = [
    {"numeric": "a"}, {"numeric": "b", "scale": "none", "missing": "ignore"}, {"numeric": "c", "scale": "log"},
    {"numeric": "d", "scale": "bins", "bins": 5}, {"categorical": "it's"}, {"categorical": "b", "missing": "ignore"},
    {"categorical": "up", "lowercase": True}, {"cross": ["it's", "b"], "encode": "hashed"}, {"categorical": "g"},
    {"date": "day", "parts": ["time", "year", "month", "day", "weekday", "hour"]},
    {"date": "german", "format": "%d.%m.%Y"},
]  # fmt: skip


def rows(m=2000):
    rng = np.random.default_rng(5)
    days = pd.date_range("1965-12-28 21:30:15.5", periods=m, freq="137h")
    frame = pd.DataFrame(
        {
            "a": rng.normal(3, 1e4, m), "b": rng.integers(0, 3, m),
            "c": rng.exponential(100, m) * rng.choice([-1, 1], m), "d": np.round(rng.normal(size=m), 1),
            "it's": rng.choice(["u", " v ", "w'w", 'q"', "NA", "", "b\\s", "100%?"], m),
            "up": rng.choice(["Yes", "yes", "NO", "No"], m), "g": rng.random(m) > 0.5, "day": days,
            "german": days.strftime("%d.%m.%Y"),
        }
    )  # fmt: skip
    frame["y"] = np.where(frame.a + 1e4 * (frame["it's"] == "u") > 0, "yes", "it's no")
    frame.loc[::7, ["a", "c", "d"]] = np.nan
    frame.loc[3::11, ["it's", "german"]] = None
    frame.loc[5::13, "day"] = pd.NaT
    frame.loc[1500:, "it's"] = "new, ü"
    return frame


class Compiled:
    def __init__(self, path, k):
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("there is no C compiler")
        words = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"]
        subprocess.run([compiler, *words, str(path), "-lm", "-o", f"{path}.so"], check=True)
        self.library, self.k = ctypes.CDLL(f"{path}.so"), k

    def scores(self, fields):
        given = (ctypes.c_char_p * len(fields))(*(None if one is None else one.encode() for one in fields))
        scores = (ctypes.c_double * self.k)()
        return self.library.bigclf_scores(given, scores), list(scores), self.library.bigclf_class(scores)


def test_parquet_of_numbers_is_scored_by_the_names_that_the_model_remembers(tmp_path):
    frame = rows(200)[["a", "c", "d"]].fillna(0.1)
    frame["y"] = frame.a > 0
    frame.to_parquet(tmp_path / "t.parquet")
    model = bigclf.fit(tmp_path / "t.parquet", y="y", algo="dcd", **QUIET)
    told = model.export(tmp_path / "m.c", "c")
    assert "the columns a, c, d, as text" in told["notes"][0]
    compiled = Compiled(tmp_path / "m.c", 1)
    found = [compiled.scores([repr(x) for x in row])[1][0] for row in frame[["a", "c", "d"]].values.tolist()]
    np.testing.assert_allclose(found, model.decision_function(tmp_path / "t.parquet"), rtol=1e-12, atol=1e-12)


def test_a_number_that_is_needed_and_missing_is_an_error(tmp_path):
    frame = rows(200)[["a", "c"]].fillna(0.1)
    model = bigclf.fit(frame, frame.a > 0, algo="dcd", **QUIET)
    model.export(tmp_path / "m.c", "c")
    compiled = Compiled(tmp_path / "m.c", 1)
    for missing in (None, "", " ", "NaN", "NA", "inf"):
        assert compiled.scores(["0.5", missing])[0] == 2
        assert compiled.scores([missing, "0.5"])[0] == 1
    assert compiled.scores(["0.5", "0"])[0] == 0


@pytest.mark.parametrize("classes", [2, 3])
def test_every_kind_of_field_of_which_some_is_new(tmp_path, classes):
    frame = rows()
    if classes == 3:
        frame["y"] = np.where(frame.c > 50, "much", frame.y)
    spec = {"label": "y", "features": TERMS, "hash_bits": 6}
    frame.to_csv(tmp_path / "r.csv", index=False)
    frame[:1500].to_csv(tmp_path / "t.csv", index=False)
    model = bigclf.fit(tmp_path / "t.csv", features=spec, algo="dcd", **QUIET)
    told = model.export(tmp_path / "m.c", "c")
    columns = ["a", "b", "c", "d", "it's", "up", "g", "day", "german"]
    assert f"the columns {', '.join(columns)}" in told["notes"][0]
    compiled = Compiled(tmp_path / "m.c", 1 if classes == 2 else 3)
    expected = model.decision_function(tmp_path / "r.csv").reshape(len(frame), -1)
    predicted = model.predict(tmp_path / "r.csv")
    with open(tmp_path / "r.csv", newline="") as file:
        for row, record in enumerate(csv.DictReader(file)):
            code, scores, place = compiled.scores([record[name] for name in columns])
            assert code == 0
            np.testing.assert_allclose(scores, expected[row], rtol=1e-12, atol=1e-12)
            assert model.classes_[place] == predicted[row]
    fields = [record[name] for name in columns]
    for number, wrong in ((1, "12x"), (1, "1e99"), (1, "0x10"), (8, "2020-02-30"), (8, "soon"), (9, "1.13.2020")):
        assert compiled.scores([*fields[: number - 1], wrong, *fields[number:]])[0] == number
    assert compiled.scores([None] * len(fields))[0] == 0


def test_amounts_as_people_write_them(tmp_path):
    money = ["$1,234.50", "(80.00)", "12 500 kr", "-$3.25", "€1'000", "7", "1e3", "", "NA", "5 %", "USD 12,000.75"]
    frame = pd.DataFrame({"paid": money * 30, "y": [k % 7 < 3 for k in range(30 * len(money))]})
    spec = {"label": "y", "features": [{"numeric": "paid", "written": "grouped"}]}
    model = bigclf.fit(frame, features=spec, algo="dcd", **QUIET)
    model.export(tmp_path / "m.c", "c")
    compiled, expected = Compiled(tmp_path / "m.c", 1), model.decision_function(frame)
    for one, score in zip(money, expected, strict=False):
        assert compiled.scores([one])[:2] == (0, [pytest.approx(score, rel=1e-12)]), one
    assert compiled.scores(["twelve"])[0] == compiled.scores(["$"])[0] == compiled.scores(["1:2"])[0] == 1


def test_what_c_cannot_hold_is_refused_by_name(tmp_path):
    frame = rows(200)
    for term, what in (
        ({"text": "up"}, "column up: C cannot take text"),
        ({"date": "german", "format": "%d.%m.%Y"}, None),
        ({"date": "day", "format": "%c"}, "column day: C has no reader of dates like '%c'"),
    ):
        spec = {"label": "y", "features": [{"categorical": "up"}, term], "hash_bits": 10}
        model = bigclf.fit(frame[["up", "a", "german", "y"]].assign(day="Mon Jan  1 10:00:00 2024"), features=spec,
                           algo="dcd", **QUIET)  # fmt: skip
        if what is None:
            model.export(tmp_path / "m.c", "c")
            continue
        with pytest.raises(RunError, match=what):
            model.export(tmp_path / "n.c", "c")
    with pytest.raises(RunError, match="C takes columns by their names"):
        bigclf.fit(*random_rows(50, 5), algo="dcd", **QUIET).export(tmp_path / "n.c", "c")
    assert not (tmp_path / "n.c").exists()
