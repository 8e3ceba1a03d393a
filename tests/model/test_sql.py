"""A model as a SELECT: DuckDB, and PostgreSQL where it is installed, say of the rows of a table what the model says."""

import contextlib
import glob
import io
import os
import pathlib
import pwd
import subprocess
import tempfile

import duckdb
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
    {"categorical": "up", "lowercase": True}, {"cross": ["it's", "b"]}, {"categorical": "g"},
    {"date": 'da"y', "parts": ["time", "year", "month", "day", "weekday", "hour"]},
    {"date": "german", "format": "%d.%m.%Y"},
]  # fmt: skip


def rows(m=3000):
    rng = np.random.default_rng(5)
    days = pd.date_range("1969-12-28 21:30:15.5", periods=m, freq="37h")
    frame = pd.DataFrame(
        {
            "a": rng.normal(3, 1e4, m), "b": rng.integers(0, 3, m),
            "c": rng.exponential(100, m) * rng.choice([-1, 1], m), "d": np.round(rng.normal(size=m), 1),
            "it's": rng.choice(["u", " v ", "w'w", 'q"', "NA", "", "日本", "100%"], m),
            "up": rng.choice(["Yes", "yes", "NO", "No"], m), "g": rng.random(m) > 0.5, 'da"y': days,
            "german": days.strftime("%d.%m.%Y"),
        }
    )  # fmt: skip
    frame["y"] = np.where(frame.a + 1e4 * (frame["it's"] == "u") > 0, "yes", "it's no")
    frame.loc[::7, ["a", "c", "d"]] = np.nan
    frame.loc[3::11, ["it's", "german"]] = None
    frame.loc[5::13, 'da"y'] = pd.NaT
    return frame


def asked(model, frame, tmp_path, depth=1000, **options):
    """What DuckDB answers, which takes expressions of so many in one another."""
    told = model.export(tmp_path / "m.sql", "sql", overwrite=True, **options)
    database = duckdb.connect()
    database.execute(f"SET max_expression_depth TO {depth}")
    database.register(options.get("table", "rows"), frame)
    return database.sql((tmp_path / "m.sql").read_text()).df(), told


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_every_kind_of_column_of_which_some_is_new(tmp_path, loss):
    frame = rows()
    model = bigclf.fit(frame[:2000], features={"label": "y", "features": TERMS}, algo="dcd", loss=loss, **QUIET)
    frame.loc[2500:, "it's"] = "new"
    found, told = asked(model, frame, tmp_path)
    expected = model.decision_function(frame)
    np.testing.assert_allclose(found.score, expected, rtol=1e-12, atol=1e-12)
    assert found.prediction.tolist() == model.predict(frame).tolist()
    assert "a, b, c, d, it's" in told["notes"][0] and len(found) == len(frame)
    if loss == "logistic":
        np.testing.assert_allclose(found.probability, model.predict_proba(frame)[:, 1], rtol=1e-12, atol=1e-12)
    else:
        assert "probability" not in found
        calibrated = bigclf.calibrate(model, frame[2000:2500])
        found, _ = asked(calibrated, frame, tmp_path)
        np.testing.assert_allclose(found.probability, calibrated.predict_proba(frame)[:, 1], rtol=1e-12, atol=1e-12)


def test_dates_of_a_format_that_the_database_holds_as_dates(tmp_path):
    frame = rows(300)
    terms = [{"date": "german", "format": "%d.%m.%Y", "parts": ["time", "weekday"]}]
    model = bigclf.fit(frame, features={"label": "y", "features": terms}, algo="dcd", **QUIET)
    expected = model.decision_function(frame)
    assert np.unique(expected).size > 200
    held = frame.assign(german=pd.to_datetime(frame["german"], format="%d.%m.%Y"))
    for table in (frame, held, held.assign(german=held["german"].dt.date)):
        np.testing.assert_allclose(asked(model, table, tmp_path)[0].score, expected, rtol=1e-12)


BINARIES = sorted(glob.glob("/usr/lib/postgresql/*/bin"))


class Postgres:
    """A server of its own in a directory, by the user that PostgreSQL makes where root may not."""

    def __init__(self, directory):
        self.directory, self.binaries = directory, BINARIES[-1]
        self.who = {"user": "postgres"} if os.getuid() == 0 else {}
        if self.who:
            os.chown(directory, pwd.getpwnam("postgres").pw_uid, -1)

    def run(self, program, *words, **more):
        line = [os.path.join(self.binaries, program), *words]
        return subprocess.run(line, check=True, capture_output=True, text=True, cwd=self.directory, **self.who, **more)

    @contextlib.contextmanager
    def serving(self):
        self.run("initdb", "-D", "data", "-A", "trust", "-U", "me", "-E", "UTF8", "--locale=C.UTF-8")
        how = f"-c listen_addresses='' -c unix_socket_directories={self.directory} -c fsync=off"
        subprocess.run([f"{self.binaries}/pg_ctl", "-D", "data", "-w", "-o", how, "-l", "log", "start"], check=True,
                       cwd=self.directory, stdout=subprocess.DEVNULL, **self.who)  # fmt: skip
        try:
            yield self
        finally:
            self.run("pg_ctl", "-D", "data", "-m", "immediate", "stop")

    def ask(self, text):
        words = f"-h {self.directory} -U me -d postgres -q --csv -v ON_ERROR_STOP=1 -f -".split()
        return self.run("psql", *words, input=text).stdout

    def score(self, model, frame, types):
        """What the SELECT says of the rows, in their order."""
        table = frame.assign(nr=range(len(frame)))
        columns = ", ".join('"{}" {}'.format(name.replace('"', '""'), types.get(name, "text")) for name in table)
        held = table.to_csv(index=False, header=False, na_rep="\\N")
        self.ask(f"drop table if exists rows; create table rows ({columns});\n"
                 f"\\copy rows from stdin with (format csv, null '\\N')\n{held}\\.\n")  # fmt: skip
        place = pathlib.Path(self.directory) / "m.sql"
        model.export(place, "sql", dialect="postgres", overwrite=True)
        return pd.read_csv(io.StringIO(self.ask(place.read_text()))).sort_values("nr", ignore_index=True)


@pytest.mark.slow
@pytest.mark.skipif(not BINARIES, reason="PostgreSQL is not installed")
def test_postgres_says_what_the_model_says():
    frame = rows()
    model = bigclf.fit(frame[:2000], features={"label": "y", "features": TERMS}, algo="dcd", loss="logistic", **QUIET)
    frame.loc[2500:, "it's"] = "new"
    types = {"a": "float8", "b": "int", "c": "float8", "d": "float8", "g": "boolean", 'da"y': "timestamp"}
    money = pd.DataFrame({"paid": [*MONEY] * 30, "y": [k % 7 < 3 for k in range(30 * len(MONEY))]})
    spec = {"label": "y", "features": [{"numeric": "paid", "written": "grouped", "scale": "log"}]}
    amounts = bigclf.fit(money, features=spec, algo="dcd", **QUIET)
    with tempfile.TemporaryDirectory() as directory, Postgres(directory).serving() as database:  # pytest's are root's
        held = frame.assign(german=pd.to_datetime(frame["german"], format="%d.%m.%Y").dt.date)
        for table, more in ((frame, {}), (held, {"german": "date"})):
            found = database.score(model, table, types | more)
            np.testing.assert_allclose(found.score, model.decision_function(frame), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(found.probability, model.predict_proba(frame)[:, 1], rtol=1e-12, atol=1e-12)
            assert found.prediction.tolist() == model.predict(frame).tolist()
        found = database.score(amounts, money, {})
        np.testing.assert_allclose(found.score, amounts.decision_function(money), rtol=1e-12)


MONEY = ("$1,234.50", "(80.00)", "12 500 kr", "-$3.25", "€1'000", "7", "1e3", None, "NA", "5 %", "USD 12,000.75")


def test_amounts_as_people_write_them(tmp_path):
    frame = pd.DataFrame({"paid": [*MONEY] * 30, "y": [k % 7 < 3 for k in range(30 * len(MONEY))]})
    spec = {"label": "y", "features": [{"numeric": "paid", "written": "grouped", "scale": "log"}]}
    model = bigclf.fit(frame, features=spec, algo="dcd", **QUIET)
    found, _ = asked(model, frame, tmp_path)
    np.testing.assert_allclose(found.score, model.decision_function(frame), rtol=1e-12)
    held = pd.DataFrame({"paid": [1e-9, 1e18, -2.5, np.nan]})  # a column of numbers in the database
    found, _ = asked(model, held, tmp_path)
    np.testing.assert_allclose(found.score, model.decision_function(held), rtol=1e-12)


def test_a_csv_is_scored_where_it_is_read_as_the_text_that_it_is(tmp_path):
    lines = [f"{k % 4}.{k % 3}0,{k % 7}.5,{int(k % 4 > 1)}" for k in range(300)]
    (tmp_path / "t.csv").write_text("version,amount,y\n" + "\n".join(lines) + "\n")
    spec = {"label": "y", "features": [{"categorical": "version"}, {"numeric": "amount"}]}
    model = bigclf.fit(tmp_path / "t.csv", features=spec, algo="dcd", **QUIET)
    expected = model.decision_function(pd.read_csv(tmp_path / "t.csv", dtype=str))
    database = duckdb.connect()
    read = database.read_csv(str(tmp_path / "t.csv"), all_varchar=True).df()
    found, told = asked(model, read, tmp_path)
    np.testing.assert_allclose(found.score, expected, rtol=1e-12, atol=1e-12)
    assert any("all_varchar = true" in note for note in told["notes"])
    guessed, _ = asked(model, database.read_csv(str(tmp_path / "t.csv")).df(), tmp_path)
    assert abs(guessed.score - expected).max() > 0.1  # 1.50 has become 1.5


def test_many_classes_numbers_and_columns_as_they_are(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(500, 4)), columns=list("pqrs"))
    for y in (rng.integers(0, 5, 500), rng.choice(["a", "b'", 'c"'], 500), rng.random(500) > 0.5):
        model = bigclf.fit(frame, y, algo="dcd", loss="logistic", **QUIET)
        found, _ = asked(model, frame, tmp_path, table='my "rows"')
        assert found.prediction.tolist() == model.predict(frame).tolist()
        scores = found[[name for name in found if name.startswith("score")]].to_numpy()
        expected = model.decision_function(frame).reshape(len(frame), -1)
        np.testing.assert_allclose(scores, expected, rtol=1e-12, atol=1e-12)
    model = bigclf.fit(frame, frame.p * 2 - frame.q, algo="dcd", loss="epsilon_insensitive", **QUIET)
    found, _ = asked(model, frame, tmp_path)
    np.testing.assert_allclose(found.prediction, model.predict(frame), rtol=1e-12, atol=1e-12)


def test_parquet_of_numbers_is_scored_by_the_names_that_the_model_remembers(tmp_path):
    frame = rows(500)[["a", "c", "d"]].fillna(0.1)
    frame["y"] = frame.a > 0
    frame.to_parquet(tmp_path / "t.parquet")
    model = bigclf.fit(tmp_path / "t.parquet", y="y", loss="logistic", algo="dcd", **QUIET)
    found, told = asked(model, frame[["y", "d", "c", "a"]], tmp_path)
    expected = model.decision_function(tmp_path / "t.parquet")
    np.testing.assert_allclose(found.score, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.probability, model.predict_proba(tmp_path / "t.parquet")[:, 1], atol=1e-12)
    assert "the columns a, c, d;" in told["notes"][0]


def test_columns_of_a_table_that_are_called_as_ours_are(tmp_path):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(rng.normal(size=(200, 3)), columns=["p", "q", "bigclf_sum_0"])
    own = {"score": rng.normal(size=200), "Prediction": ["ours"] * 200, "score_b": rng.normal(size=200)}
    for y, first in ((frame.p > 0.3, "score"), (rng.choice(["a", "b", "B"], 200), "score_b")):
        model = bigclf.fit(frame, y, algo="dcd", loss="logistic", **QUIET)
        expected = model.decision_function(frame).reshape(len(frame), -1)
        for dialect in ("duckdb", "postgres"):  # DuckDB takes such a statement for PostgreSQL, too
            found, told = asked(model, pd.concat([frame, pd.DataFrame(own)], axis=1), tmp_path, dialect=dialect)
            assert found[first].tolist() == own[first].tolist()  # the table's, as it was
            answers = found.iloc[:, 6:]
            assert answers.iloc[:, expected.shape[1]].tolist() == model.predict(frame).tolist()
            np.testing.assert_allclose(answers.iloc[:, : expected.shape[1]].to_numpy(), expected, rtol=1e-12)
            assert [*found][:6] == [*frame, *own] and not any("is called" in note for note in told["notes"])


def test_a_model_with_columns_that_are_called_as_ours_are(tmp_path):
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(rng.normal(size=(200, 4)), columns=["Score", "probability", "bigclf_x", "q"])
    frame["y"] = frame.q + frame.Score > 0
    frame.to_parquet(tmp_path / "t.parquet")
    model = bigclf.fit(tmp_path / "t.parquet", y="y", loss="logistic", algo="dcd", **QUIET)
    found, told = asked(model, frame, tmp_path)
    assert [*found][5:] == ["bigclf__score", "prediction", "bigclf__probability"]
    assert "is called bigclf__score, bigclf__probability" in told["notes"][1]
    path = tmp_path / "t.parquet"
    np.testing.assert_allclose(found.bigclf__score, model.decision_function(path), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.bigclf__probability, model.predict_proba(path)[:, 1], atol=1e-12)
    assert found.prediction.tolist() == model.predict(path).tolist()


def test_columns_that_duckdb_does_not_tell_apart_are_refused(tmp_path):
    frame = rows(100)[["a", "c"]].fillna(0.5).rename(columns={"c": "A"})
    model = bigclf.fit(frame, frame.a > 0, algo="dcd", **QUIET)
    with pytest.raises(RunError, match="DuckDB does not tell the columns 'a' and 'A' apart"):
        model.export(tmp_path / "m.sql", "sql")
    assert not (tmp_path / "m.sql").exists()
    model.export(tmp_path / "m.sql", "sql", dialect="postgres")
    assert 'CAST("a" AS FLOAT8)' in (text := (tmp_path / "m.sql").read_text()) and 'CAST("A" AS FLOAT8)' in text


@pytest.mark.parametrize("classes", [2, 3])
def test_a_row_without_a_number_that_is_needed_has_no_answer(tmp_path, classes):
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.normal(size=(200, 2)), columns=["p", "q"])
    y = np.digitize(frame.p, [-0.4, 0.4][: classes - 1])
    model = bigclf.fit(frame, y, algo="dcd", loss="logistic", **QUIET)
    values = ", ".join(f"({p}, {q})" for p, q in [("NULL", 1), (1, "'nan'::FLOAT8"), ("'inf'::FLOAT8", 1), (1, 2)])
    database = duckdb.connect()
    database.sql(f"CREATE TABLE rows AS SELECT * FROM (VALUES {values}) AS given(p, q)")
    for dialect in ("duckdb", "postgres"):
        model.export(tmp_path / "m.sql", "sql", overwrite=True, dialect=dialect)
        found = database.sql((tmp_path / "m.sql").read_text()).fetchall()
        assert [set(row[2:]) for row in found[:3]] == [{None}] * 3
        assert model.predict(np.array([[1.0, 2.0]]))[0] == found[3][3 if classes == 2 else 5]


def test_more_classes_than_an_expression_may_be_deep(tmp_path):
    x, y = np.eye(150)[:, :3] + np.arange(450).reshape(150, 3) / 450, np.arange(150)
    model = bigclf.fit(pd.DataFrame(x, columns=["a", "b", "bigclf_sum_0"]), y, algo="pa1", epochs=1, progress=False)
    frame = pd.DataFrame(x, columns=["a", "b", "bigclf_sum_0"]).assign(bigclf_sum_1=99.0)[:5]
    found, _ = asked(model, frame, tmp_path, depth=100)
    assert found.prediction.tolist() == model.predict(frame[["a", "b", "bigclf_sum_0"]]).tolist()
    np.testing.assert_allclose(found.score_7, model.decision_function(frame[["a", "b", "bigclf_sum_0"]])[:, 7],
                               rtol=1e-12)  # fmt: skip


def test_a_sum_is_not_taken_for_a_column_of_the_table(tmp_path):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(50, 2)), columns=["a", "c"])
    model = bigclf.fit(frame, frame["a"] > 0, algo="pa1", epochs=1, progress=False)
    found, _ = asked(model, frame.assign(bigclf_sum_0=99.0, score=7.0), tmp_path)
    np.testing.assert_allclose(found.iloc[:, -2 - ("probability" in found)], model.decision_function(frame), rtol=1e-12)


def test_what_sql_cannot_say_is_refused_by_name(tmp_path):
    frame = rows(200)
    for term, what in (
        ({"text": "up"}, "column up: the SQL export cannot express text"),
        ({"categorical": "up", "encode": "hashed"}, "column up: the SQL export cannot express hashed categories"),
    ):
        spec = {"label": "y", "features": [term], "hash_bits": 10}
        model = bigclf.fit(frame, features=spec, algo="dcd", **QUIET)
        with pytest.raises(RunError, match=what):
            model.export(tmp_path / "m.sql", "sql")
    spec = {"label": "y", "features": [{"date": "german", "format": "%d.%m.%Y"}]}
    model = bigclf.fit(frame, features=spec, algo="dcd", **QUIET)
    model.export(tmp_path / "m.sql", "sql", dialect="postgres")
    assert "to_timestamp(CAST(\"german\" AS VARCHAR), 'DD.MM.YYYY')" in (tmp_path / "m.sql").read_text()
    with pytest.raises(ValueError, match="dialect must be duckdb or postgres, not 'oracle'"):
        model.export(tmp_path / "o.sql", "sql", dialect="oracle")
    with pytest.raises(RunError, match="SQL needs names of columns"):
        bigclf.fit(*random_rows(50, 5), algo="dcd", **QUIET).export(tmp_path / "n.sql", "sql")
    assert not (tmp_path / "o.sql").exists() and not (tmp_path / "n.sql").exists()
