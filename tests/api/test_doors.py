"""Rows as people hold them: the name of the label's column is enough, and predictions come back in the same kind."""

import decimal

import dask.array
import dask.dataframe as dd
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from click.testing import CliRunner

import bigclf
from bigclf.cli import main
from bigclf.conversion import foreign_rows
from bigclf.errors import DataError, SchemaError

QUIET = {"progress": False, "algo": "dcd", "loss": "logistic", "tol": 1e-6}
M = 400


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    made = pd.DataFrame({"a": rng.normal(size=M), "b": rng.integers(0, 9, M), "c": rng.choice(["x", "y", "z"], M)})
    made["y"] = (made.a + (made.c == "x") + rng.normal(0, 0.3, M) > 0.3).astype(int)
    return made


@pytest.fixture(scope="module")
def numbers(frame):
    return frame[["a", "b", "y"]]


@pytest.fixture(scope="module")
def wanted(numbers):
    return bigclf.fit(numbers[["a", "b"]], numbers.y, **QUIET)


@pytest.fixture
def path(numbers, tmp_path):
    numbers.to_parquet(tmp_path / "numbers.parquet", index=False)
    return str(tmp_path / "numbers.parquet")


FORMS = {
    "pandas": lambda frame: frame,
    "nullable": lambda frame: frame.convert_dtypes(),
    "polars": pl.from_pandas,
    "lazy": lambda frame: pl.from_pandas(frame).lazy(),
    "arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "reader": lambda frame: pa.Table.from_pandas(frame, preserve_index=False).to_reader(97),
    "duckdb": lambda frame: duckdb.from_df(frame),
    "dask": lambda frame: dd.from_pandas(frame, npartitions=1),
}


@pytest.mark.parametrize("form", FORMS)
def test_columns_of_numbers_are_features_as_they_are_where_the_label_is_named(numbers, wanted, form):
    model = bigclf.fit(FORMS[form](numbers), "y", **QUIET)
    np.testing.assert_array_equal(model.coef_, wanted.coef_)
    assert model.classes_.tolist() == [0, 1]


@pytest.mark.parametrize("form", FORMS)
def test_of_other_columns_features_are_proposed(frame, form):
    model = bigclf.fit(FORMS[form](frame), "y", **QUIET)
    assert model.n_features == 2 + 1 + 3 + 1 and (model.predict(frame) == frame.y).mean() > 0.85
    assert bigclf.evaluate(model, frame, "y").accuracy == bigclf.evaluate(model, frame).accuracy > 0.85
    beside = bigclf.fit(frame.drop(columns="y"), frame.y.to_numpy(), **QUIET)
    if form == "pandas":
        np.testing.assert_array_equal(model.coef_, beside.coef_)


def test_files_say_the_same_as_tables_where_the_label_is_named(frame, path, wanted, tmp_path):
    np.testing.assert_array_equal(bigclf.fit(path, "y", **QUIET).coef_, wanted.coef_)
    np.testing.assert_array_equal(bigclf.fit(path, **QUIET).coef_, wanted.coef_)  # it is called as labels are
    frame.to_csv(tmp_path / "t.csv", index=False)
    model = bigclf.fit(tmp_path / "t.csv", y="y", **QUIET)
    assert model.n_features == 7 and bigclf.evaluate(model, tmp_path / "t.csv").accuracy > 0.85
    spec = {"features": [{"numeric": "a"}]}
    assert bigclf.fit(tmp_path / "t.csv", "y", features=spec, **QUIET).n_features == 2  # with whether it is missing
    assert bigclf.fit(frame, "y", features={**spec, "label": "y"}, **QUIET).n_features == 2


def test_a_table_of_numbers_is_read_as_the_model_was_trained(numbers, path, wanted, tmp_path):
    model = bigclf.fit(path, **QUIET)
    assert bigclf.evaluate(model, path).accuracy == bigclf.evaluate(wanted, numbers, "y").accuracy
    numbers.drop(columns="y").to_parquet(tmp_path / "new.parquet", index=False)
    np.testing.assert_array_equal(model.predict(tmp_path / "new.parquet"), wanted.predict(numbers[["a", "b"]]))


def test_what_nobody_can_guess_is_asked_for(numbers, frame, tmp_path):
    frame.rename(columns={"y": "bought"}).to_parquet(tmp_path / "words.parquet", index=False)
    asked = r"say which column is to be predicted: did you mean y='(c|bought)' or y='"
    with pytest.raises(SchemaError, match=rf"words.parquet: {asked}"):
        bigclf.fit(tmp_path / "words.parquet", **QUIET)
    with pytest.raises(SchemaError, match=r'words.parquet: c \(.*string\) holds no numbers; say .*\(y="COLUMN"'):
        bigclf.Dataset(tmp_path / "words.parquet")
    numbers.assign(target=numbers.y).to_parquet(tmp_path / "two.parquet", index=False)
    with pytest.raises(SchemaError, match="y and target may each be the label"):
        bigclf.fit(tmp_path / "two.parquet", **QUIET)
    assert bigclf.fit(tmp_path / "two.parquet", "target", **QUIET).n_features == 3
    numbers.rename(columns={"y": "bought"}).to_parquet(tmp_path / "none.parquet", index=False)
    with pytest.raises(SchemaError, match="none.parquet: say which column is to be predicted: did you mean y='bought'"):
        bigclf.fit(tmp_path / "none.parquet", **QUIET)
    for command in (["fit"], ["sweep", "--grid", "C=1,2"]):
        ran = CliRunner().invoke(main, [*command, str(tmp_path / "none.parquet"), "-o", str(tmp_path / "m")])
        assert ran.exit_code == 3
        assert "none.parquet: say which column is to be predicted: did you mean --label bought" in ran.output
    with pytest.raises(SchemaError, match="no such column.*did you mean.*y"):
        bigclf.fit(numbers, "Y", **QUIET)
    for other in (numbers.rename(columns={"y": "bought"}), numbers.assign(target=numbers.y)):
        with pytest.raises(TypeError, match="a table needs its labels.* did you mean y='"):
            bigclf.fit(other, **QUIET)
    with pytest.raises(TypeError, match="an array has no column names"):
        bigclf.fit(numbers.to_numpy(), "y", **QUIET)
    with pytest.raises(TypeError, match="'y' as the label, and features 'b'"):
        bigclf.fit(numbers, "y", features={"label": "b", "features": [{"numeric": "a"}]}, **QUIET)
    made = bigclf.convert(frame_as_svmlight(numbers, tmp_path), tmp_path / "shards")
    for shards in (made, tmp_path / "shards"):
        with pytest.raises(TypeError, match="bring their own labels"):
            bigclf.fit(shards, "label", **QUIET)


def frame_as_svmlight(numbers, folder):
    from sklearn.datasets import dump_svmlight_file

    dump_svmlight_file(numbers[["a", "b"]], numbers.y, str(folder / "t.svm"), zero_based=False)
    return folder / "t.svm"


def test_what_is_missing_in_a_table_of_numbers_is_told_or_filled_in(numbers, tmp_path):
    gaps = numbers.astype({"a": "Float64"})
    gaps.loc[7, "a"] = pd.NA
    gaps.to_parquet(tmp_path / "gaps.parquet", index=False)
    with pytest.raises(DataError, match=r'row 7, column a: null.*the label is named \(y="COLUMN"\)'):
        bigclf.fit(tmp_path / "gaps.parquet", **QUIET)
    for data in (gaps, str(tmp_path / "gaps.parquet"), pl.from_pandas(gaps)):
        assert bigclf.fit(data, "y", **QUIET).n_features >= 3  # with whether it is missing


@pytest.mark.parametrize(("kind", "classes"), [(pa.decimal128(10, 0), "int64"), (pa.decimal128(9, 2), "float64")])
def test_decimal_numbers_are_labels_and_features(numbers, wanted, tmp_path, kind, classes):
    table = pa.table({
        "a": numbers.a.to_numpy(), "b": pa.array([decimal.Decimal(int(b)) for b in numbers.b], pa.decimal128(5, 1)),
        "y": pa.array([decimal.Decimal(int(y)) for y in numbers.y], kind),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "d.parquet")
    model = bigclf.fit(tmp_path / "d.parquet", **QUIET)
    np.testing.assert_array_equal(model.coef_, wanted.coef_)
    assert model.classes_.dtype == classes


def test_the_names_of_directories_are_columns(frame, tmp_path):
    table = pa.Table.from_pandas(frame.assign(day=frame.b % 2), preserve_index=False)
    pq.write_to_dataset(table, tmp_path / "hive", partition_cols=["c", "day"])
    model = bigclf.fit(str(tmp_path / "hive"), "y", **QUIET)
    names = {column["column"] for column in model.features["spec"]["features"]} if "spec" in model.features else None
    assert names is None or {"c", "day"} <= names
    assert bigclf.evaluate(model, str(tmp_path / "hive")).accuracy > 0.85
    assert (model.predict(frame.assign(day=frame.b % 2)) == frame.y).mean() > 0.85
    bigclf.predict(model, str(tmp_path / "hive"), str(tmp_path / "said"))
    assert sum(pq.read_metadata(p).num_rows for p in (tmp_path / "said").rglob("*.parquet")) == M
    frame.drop(columns="c").to_csv(tmp_path / "part.csv", index=False)
    for name in ("x", "z"):
        (tmp_path / "csv" / f"c={name}").mkdir(parents=True)
        frame[frame.c == name].drop(columns="c").to_csv(tmp_path / "csv" / f"c={name}" / "p.csv", index=False)
    assert bigclf.fit(str(tmp_path / "csv"), "y", **QUIET).n_features >= 5
    frame.to_csv(tmp_path / "csv" / "c=z" / "p.csv", index=False)
    with pytest.raises(SchemaError, match="both the file and its directory's name have this column"):
        bigclf.fit(str(tmp_path / "csv"), "y", **QUIET)


def test_files_of_a_partitioned_table_bring_its_columns_however_they_are_named(frame, tmp_path, caplog, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = frame[frame.c != "z"].assign(day=np.arange(len(frame[frame.c != "z"])) % 2)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_to_dataset(table, "hive", partition_cols=["c", "day"])
    whole = bigclf.fit("hive", "y", **QUIET)
    assert {"c", "day"} <= {*whole.finisher.spec.columns}
    for named in ("hive/*/*/*.parquet", ["hive/c=x", "hive/c=y"], [tmp_path / "hive/c=x", tmp_path / "hive/c=y"]):
        for label in ({"y": "y"}, {}):  # its name may be guessed
            model = bigclf.fit(named, **label, **QUIET)
            np.testing.assert_array_equal(model.coef_, whole.coef_)
        assert bigclf.evaluate(model, named).accuracy == bigclf.evaluate(whole, "hive").accuracy > 0.85
    assert "predicting column 'y', guessed" in caplog.text
    one = bigclf.evaluate(whole, "hive/c=x/day=0")  # its columns do not vary here, and the model knows them
    assert one.n == ((frame.c == "x") & (frame.day == 0)).sum()
    assert bigclf.fit("hive/c=x/day=0", "y", **QUIET).n_features == 2  # ... a constant tells nothing
    for k, data in enumerate((["hive"], ["hive/c=x", "hive/c=y"], ["hive/*/*/*.parquet"])):
        ran = CliRunner().invoke(main, ["fit", *data, "--label", "y", "--algo", "dcd", "-o", f"m{k}"])
        assert ran.exit_code == 0, ran.output
        assert bigclf.load(f"m{k}").n_features == whole.n_features


@pytest.mark.parametrize("sparse", [False, True])
def test_a_matrix_in_blocks_is_written_by_those_who_hold_it(numbers, wanted, sparse):
    blocks = dask.array.from_array(numbers[["a", "b"]].to_numpy(), chunks=(90, 1))
    blocks = blocks.rechunk((90, 2)).map_blocks(scipy.sparse.csr_matrix) if sparse else blocks
    labels = dask.array.from_array(numbers.y.to_numpy(), chunks=150)
    plain = dict(progress=False, algo="arow", epochs=2)
    model = bigclf.fit(blocks, labels, **plain)
    np.testing.assert_array_equal(model.coef_, bigclf.fit(blocks, numbers.y.to_numpy(), **plain).coef_)
    assert (model.predict(numbers[["a", "b"]].to_numpy()) == numbers.y).mean() > 0.7
    with pytest.raises(ValueError, match="as many labels"):
        bigclf.fit(blocks, labels[:-1], **plain)
    with pytest.raises(TypeError, match="array has no column names"):
        bigclf.fit(blocks, "y", **plain)


@pytest.mark.parametrize("form", FORMS)
def test_predictions_come_in_the_kind_that_rows_do(frame, form):
    model, rows = bigclf.fit(frame, "y", **QUIET), frame.drop(columns="y")
    given = FORMS[form](rows)
    found = bigclf.predict(model, given, scores=True, proba=True)
    whole = found.compute() if form == "dask" else found.read_all() if hasattr(found, "read_all") else found
    same = {"lazy": pl.DataFrame, "reader": pa.Table, "duckdb": pa.Table, "dask": pd.DataFrame}
    assert type(whole) is same.get(form, type(given))
    names = whole.column_names if isinstance(whole, pa.Table) else list(whole.columns)
    assert names == ["prediction", "score", "probability"]
    np.testing.assert_array_equal(np.asarray(whole["prediction"]), model.predict(rows))
    np.testing.assert_array_equal(np.asarray(whole["score"]), model.decision_function(rows))
    np.testing.assert_array_equal(np.asarray(whole["probability"]), model.predict_proba(rows)[:, 1])


def test_a_frame_of_predictions_has_the_index_and_needs_no_order_of_columns(numbers, wanted):
    model = bigclf.fit(numbers, "y", **QUIET)
    found = bigclf.predict(model, numbers[["y", "b", "a"]].set_index(np.arange(M) * 3))
    assert found.index[-1] == 3 * (M - 1) and (found.prediction.to_numpy() == wanted.predict(numbers[["a", "b"]])).all()
    assert list(bigclf.predict(model, numbers[:0]).columns) == ["prediction"]
    with pytest.raises(TypeError, match="predict\\(model, data, out\\)"):
        bigclf.predict(model, "rows.parquet")
    with pytest.raises(TypeError, match="for an array use model.predict"):
        bigclf.predict(model, numbers[["a", "b"]].to_numpy())


def test_a_stream_is_cut_by_its_rows_and_not_by_its_batches(frame, tmp_path, monkeypatch):
    """Row groups are part of a fit's bits: batches of other sizes, with or without masks, give the same."""
    monkeypatch.setattr(foreign_rows, "STEP", 16)
    monkeypatch.setattr(foreign_rows, "GROUP_ROWS", 64)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.append_column("long", pa.array(["w" * (i % 50) for i in range(M)]))
    masked = table.set_column(0, "a", pa.array(frame.a, mask=np.zeros(M, bool)))
    for most, whole in ((10**9, {64}), (1500, {32})):
        monkeypatch.setattr(foreign_rows, "GROUP_BYTES", most)
        cuts = set()
        for each, rows in ((1, table), (7, masked), (64, table), (M, masked)):
            with foreign_rows.collected(rows.to_reader(each), tmp_path / "x") as (folder, _):
                written = pq.ParquetFile(f"{folder}/part-00000000.parquet")
                assert written.read().equals(table)
                cuts.add(tuple(written.metadata.row_group(k).num_rows for k in range(written.num_row_groups)))
        assert len(cuts) == 1 and set(cuts.pop()[:-1]) == whole
    monkeypatch.undo()
    models = [bigclf.fit(table.to_reader(each), "y", **QUIET) for each in (3, M)]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_a_relation_and_the_parquet_that_duckdb_writes_of_it_give_the_same_bits(tmp_path):
    """... for columns of numbers, which are learned as they are, and with words, of which features are proposed."""
    con = duckdb.connect()
    made = "select sin(i) as a, cos(7 * i) as b, {} cast(sin(i) + cos(5 * i) > 0 as int) as y from range(150000) t(i)"
    for words in ("", "['x', 'y', 'z'][i % 3 + 1] as c,"):
        relation = con.sql(made.format(words))
        relation.write_parquet(str(tmp_path / "t.parquet"))
        wanted = bigclf.fit(tmp_path / "t.parquet", "y", algo="pa1", epochs=1, progress=False)
        model = bigclf.fit(relation, "y", algo="pa1", epochs=1, progress=False)
        np.testing.assert_array_equal(model.coef_, wanted.coef_)


class LikeHuggingFace:
    """The few names of ``datasets.Dataset`` that are used; the library itself is large."""

    def __init__(self, table):
        self.table, self.column_names = table, table.column_names

    def with_format(self, kind):
        assert kind == "arrow"
        return self

    def iter(self, batch_size):
        return iter([self.table.slice(first, batch_size) for first in range(0, len(self.table), batch_size)])


class LikeDelta:
    def __init__(self, table):
        self.table = table

    def to_pyarrow_dataset(self):
        return pads.dataset(self.table)


@pytest.mark.parametrize("form", [pads.dataset, LikeDelta, LikeHuggingFace, lambda table: table.to_reader(97)])
@pytest.mark.parametrize("columns", [["a", "b", "y"], ["a", "b", "c", "y"]])
def test_tables_on_disk_and_streams_are_learned_measured_and_predicted(frame, form, columns):
    table = pa.Table.from_pandas(frame[columns].rename(columns={"y": "bought"}), preserve_index=False)
    wanted = bigclf.fit(table.to_reader(), "bought", **QUIET)
    model = bigclf.fit(form(table), "bought", **QUIET)
    np.testing.assert_array_equal(model.coef_, wanted.coef_)
    assert bigclf.evaluate(model, form(table), "bought").accuracy == bigclf.evaluate(model, table, "bought").accuracy
    assert bigclf.predict(model, form(table)).read_all().equals(bigclf.predict(model, table))
    with pytest.raises(TypeError, match="the name of the label"):
        bigclf.evaluate(model, form(table), frame.y)
    if "c" in columns:
        with pytest.raises(TypeError, match="labels stand in the column 'bought', and y names 'a'"):
            bigclf.evaluate(model, form(table), "a")


# Files of which nothing is said


def test_text_of_sparse_rows_needs_no_format(tmp_path):
    text = "".join(f"{1 if k % 3 else -1} {1 + k % 5}:1 7:{k}\n" for k in range(60))
    (tmp_path / "rows.svm").write_text(text)
    told = bigclf.fit(str(tmp_path / "rows.svm"), format="svmlight", **QUIET)
    model = bigclf.fit(str(tmp_path / "rows.svm"), **QUIET)
    assert (model.coef_ == told.coef_).all() and model.n_features == 7
    sweep = bigclf.sweep(tmp_path / "rows.svm", grid={"C": [1.0]}, **QUIET)
    assert sweep.best_model.coef_ == pytest.approx(told.coef_, abs=1e-2)


def test_of_a_table_the_label_may_be_guessed_from_its_name(frame, tmp_path, caplog):
    frame.to_csv(tmp_path / "t.csv", index=False)
    model = bigclf.fit(tmp_path / "t.csv", **QUIET)
    assert "predicting column 'y', guessed from its name" in caplog.text
    assert (model.coef_ == bigclf.fit(tmp_path / "t.csv", "y", **QUIET).coef_).all()
    frame.rename(columns={"y": "bought"}).to_csv(tmp_path / "u.csv", index=False)
    with pytest.raises(
        TypeError, match=r"u.csv: say which column is to be predicted: did you mean y='bought' or y='c'"
    ):
        bigclf.fit(tmp_path / "u.csv", **QUIET)


def test_a_spec_may_be_a_file(frame, tmp_path):
    frame.to_csv(tmp_path / "t.csv", index=False)
    spec = bigclf.suggest(tmp_path / "t.csv", label="y")
    (tmp_path / "spec.yaml").write_text(str(spec))
    wanted = bigclf.fit(tmp_path / "t.csv", features=spec, **QUIET).coef_
    for path in (tmp_path / "spec.yaml", str(tmp_path / "spec.yaml")):
        assert (bigclf.fit(tmp_path / "t.csv", features=path, **QUIET).coef_ == wanted).all()
    with pytest.raises(SchemaError, match="none.yaml: the spec of features cannot be read: No such file"):
        bigclf.fit(tmp_path / "t.csv", features="none.yaml", **QUIET)


def test_the_command_takes_columns_of_numbers_as_python_does(path, tmp_path):
    wanted = bigclf.fit(path, "y", **QUIET)
    for said in ([], ["--label", "y"]):
        line = ["fit", path, *said, "-o", str(tmp_path / "m"), "--overwrite", "--algo", "dcd", "--loss", "logistic"]
        done = CliRunner().invoke(main, [*line, "--tol", "1e-6"])
        assert done.exit_code == 0, done.output
        assert (bigclf.load(tmp_path / "m").coef_ == wanted.coef_).all()


WRITTEN = {
    "t.csv": lambda frame, path: frame.to_csv(path, index=False),
    "t.tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "t.jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "t.parquet": lambda frame, path: frame.to_parquet(path, index=False),
    "parquet_without_an_ending": lambda frame, path: frame.to_parquet(path, index=False),
    "t.csv.gz": lambda frame, path: frame.to_csv(path, index=False),
}


@pytest.mark.parametrize("learned_from", ["t.csv", "t.tsv", "t.jsonl", "t.parquet"])
def test_a_table_model_takes_files_of_other_formats_by_their_names(frame, tmp_path, monkeypatch, learned_from):
    monkeypatch.chdir(tmp_path)
    frame = frame.assign(a=frame.a.round(3))
    for name, write in WRITTEN.items():
        write(frame, name)
    model = bigclf.fit(learned_from, "y", **QUIET)
    model.save("m")
    said, accuracy = model.predict(frame), bigclf.evaluate(model, learned_from).accuracy
    for name in WRITTEN:
        np.testing.assert_array_equal(model.predict(name), said)
        assert bigclf.evaluate(model, name).accuracy == accuracy
        ran = CliRunner().invoke(main, ["predict", "m", name, "-o", "said.csv", "--overwrite"])
        assert ran.exit_code == 0, ran.output
        assert pd.read_csv("said.csv").prediction.tolist() == said.tolist()
    other = next(name for name in WRITTEN if name != learned_from)
    assert bigclf.fit(learned_from, "y", validate=other, **QUIET).facts["validation"]["accuracy"] == accuracy
    with pytest.raises(SchemaError, match="not all files are of one format"):
        model.predict(["t.csv", "t.parquet"])


def test_a_reader_that_finds_its_columns_stays_whatever_the_name_tells(frame, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = frame.assign(a=frame.a.round(3))
    frame.to_csv("tabs.csv", index=False, sep="\t")
    frame.to_csv("commas.csv", index=False)
    model = bigclf.fit("tabs.csv", "y", **QUIET)
    said = model.predict(frame)
    assert model.features["reader"]["format"] == "tsv"
    for name in ("tabs.csv", "commas.csv"):
        np.testing.assert_array_equal(model.predict(name), said)
    frame.to_csv("semi.csv", index=False, sep=";", decimal=",")
    with pytest.raises(SchemaError, match="--separator ';' reads them"):
        model.predict("semi.csv")
    frame.to_parquet("t.parquet", index=False)
    for learned in (model, bigclf.fit("t.parquet", "y", **QUIET)):
        told = learned.reading({"separator": ";", "decimal": ","})
        np.testing.assert_array_equal(told.predict("semi.csv"), said)
        np.testing.assert_array_equal(learned.reading({"format": "csv"}).predict("commas.csv"), said)
    european = bigclf.fit("semi.csv", "y", **QUIET)
    assert european.features["reader"]["decimal"] == ","
    np.testing.assert_array_equal(european.predict("t.parquet"), said)
    frame.a.map(lambda a: str(a).replace(".", ",")).to_frame().assign(b=frame.b, c=frame.c).to_parquet("text.parquet")
    np.testing.assert_array_equal(european.predict("text.parquet"), said)  # the decimals stay


def test_a_first_partition_may_be_empty(frame):
    held = dd.from_pandas(frame.sort_values("b"), npartitions=3)
    some = frame[frame.b >= 4]
    model = bigclf.fit(held[held.b >= 4], "y", **QUIET)
    assert {"a", "b", "c"} == {*model.finisher.spec.columns}
    assert bigclf.evaluate(model, some).accuracy > 0.85
    with pytest.raises(DataError, match="there are no rows"):
        bigclf.fit(held[held.b > 100], "y", **QUIET)


@pytest.mark.parametrize("form", ["arrow", "pandas", "polars"])
def test_decimal_labels_in_memory(numbers, wanted, form):
    def table(kind, y):
        return pa.table({"a": numbers.a.to_numpy(), "b": numbers.b.to_numpy(), "y": pa.array(y, kind)})

    for kind, classes in ((pa.decimal128(10, 0), "int64"), (pa.decimal128(9, 2), "float64")):  # as files have them
        made = table(kind, [decimal.Decimal(int(y)) for y in numbers.y])
        data = {"arrow": made, "pandas": made.to_pandas(), "polars": pl.from_arrow(made)}[form]
        model = bigclf.fit(data, "y", **QUIET)
        np.testing.assert_array_equal(model.coef_, wanted.coef_)
        assert model.classes_.dtype == classes
        assert bigclf.evaluate(model, data, "y").accuracy == bigclf.evaluate(wanted, numbers, "y").accuracy
    halves = table(pa.decimal128(9, 1), [decimal.Decimal(f"{y}.5") for y in numbers.y])
    data = {"arrow": halves, "pandas": halves.to_pandas(), "polars": pl.from_arrow(halves)}[form]
    learn = dict(algo="tron", loss="squared_epsilon_insensitive", tol=1e-6, progress=False)
    said = bigclf.fit(data, "y", **learn)
    np.testing.assert_array_equal(said.coef_, bigclf.fit(numbers[["a", "b"]], numbers.y + 0.5, **learn).coef_)


def test_a_missing_value_beside_labels_is_named_with_the_way_out(numbers, wanted):
    gaps = numbers.convert_dtypes()
    gaps.loc[7, "b"] = pd.NA
    said = r'row 7, column b: a value is missing; .* where the label is named: fit\(frame, "COLUMN"\)'
    for rows in (gaps[["a", "b"]], pa.Table.from_pandas(gaps[["a", "b"]])):
        with pytest.raises(DataError, match=said):
            bigclf.fit(rows, numbers.y, **QUIET)
    with pytest.raises(ValueError, match=r"column b: a value is missing \(row 7\). Numbers are needed here"):
        wanted.predict(gaps[["a", "b"]])
    assert bigclf.fit(gaps, "y", **QUIET).n_features == 4
    words = np.array([[1, 2], [3, "four"]], object)
    with pytest.raises(DataError, match="row 1, column 1: 'four' is not a number$"):
        bigclf.fit(words, [0, 1], **QUIET)


def test_of_rows_in_memory_the_label_may_be_guessed_from_its_name(frame, numbers, wanted, tmp_path, caplog):
    np.testing.assert_array_equal(bigclf.fit(numbers, **QUIET).coef_, wanted.coef_)
    assert "predicting column 'y', guessed from its name" in caplog.text
    named = bigclf.fit(frame, "y", **QUIET)
    frame.to_parquet(tmp_path / "words.parquet", index=False)
    for data in (frame, dd.from_pandas(frame, npartitions=1), duckdb.from_df(frame), tmp_path / "words.parquet"):
        caplog.clear()
        np.testing.assert_allclose(bigclf.fit(data, **QUIET).coef_, named.coef_, rtol=0.01)  # files are shuffled
        assert "predicting column 'y', guessed from its name" in caplog.text
    ran = CliRunner().invoke(main, ["fit", str(tmp_path / "words.parquet"), "--algo", "dcd", "-o", str(tmp_path / "m")])
    assert "predicting column 'y', guessed from its name; pass --label COLUMN to choose another" in ran.output


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("words", [False, True])
def test_rows_to_validate_on_come_in_every_kind(frame, numbers, tmp_path, form, words):
    rows = (frame if words else numbers).rename(columns={"y": "bought"})
    rows.to_parquet(tmp_path / "t.parquet", index=False)
    for data in (rows, str(tmp_path / "t.parquet")):
        model = bigclf.fit(data, y="bought", validate=FORMS[form](rows[:200]), **QUIET)
        assert model.facts["validation"]["accuracy"] == bigclf.evaluate(model, rows[:200], "bought").accuracy
    beside = rows.drop(columns="bought")
    model = bigclf.fit(beside, rows.bought, validate=(beside[:200], rows.bought[:200]), **QUIET)
    assert model.facts["validation"]["accuracy"] == bigclf.evaluate(model, beside[:200], rows.bought[:200]).accuracy
    if form == "pandas":
        found = bigclf.sweep(rows, "bought", grid={"C": [0.1, 1]}, folds=0, validate=rows[:200], progress=False)
        assert len(found.table) == 2
        with pytest.raises(TypeError, match="validate is a table without labels"):
            bigclf.fit(beside, rows.bought, validate=beside, **QUIET)


@pytest.mark.parametrize("words", [False, True])
def test_weights_may_be_named_by_their_column(frame, numbers, tmp_path, words):
    rows = (frame if words else numbers).assign(w=np.arange(M) % 3)
    rows.to_parquet(tmp_path / "t.parquet", index=False)
    without = rows.drop(columns="w")
    wanted = bigclf.fit(without, "y", sample_weight=rows.w.to_numpy(), **QUIET)
    forms = rows, duckdb.from_df(rows), dd.from_pandas(rows, npartitions=1), pl.from_pandas(rows)
    for data in (*forms, tmp_path / "t.parquet"):
        model = bigclf.fit(data, "y", sample_weight="w", **QUIET)
        assert model.n_features == wanted.n_features
        np.testing.assert_allclose(model.coef_, wanted.coef_, rtol=1e-3, atol=1e-3)
    model = bigclf.fit(rows.drop(columns="y"), rows.y.to_numpy(), sample_weight="w", **QUIET)
    np.testing.assert_allclose(model.coef_, wanted.coef_, rtol=1e-3, atol=1e-3)
    spec = {"features": [{"numeric": "a"}]}
    assert bigclf.fit(rows, "y", features=spec, sample_weight="w", **QUIET).features["weight"] == "w"
    with pytest.raises(TypeError, match="sample_weight names the column 'w' as the weight, and features 'b'"):
        bigclf.fit(rows, "y", features={**spec, "weight": "b"}, sample_weight="w", **QUIET)
    with pytest.raises(SchemaError, match="no such column"):
        bigclf.fit(rows, "y", sample_weight="v", **QUIET)
    with pytest.raises(TypeError, match="sample_weight is a column name, but an array has no column names"):
        bigclf.fit(numbers[["a", "b"]].to_numpy(), numbers.y, sample_weight="w", **QUIET)


@pytest.mark.parametrize("words", [False, True])
def test_a_dask_frame_is_learned_measured_and_calibrated_as_a_table(frame, numbers, words):
    rows = frame if words else numbers
    held = dd.from_pandas(rows, npartitions=2)
    names = [name for name in rows.columns if name != "y"]
    model = bigclf.fit(held, "y", **QUIET)
    for labels in (held["y"], held["y"].values):
        np.testing.assert_array_equal(bigclf.fit(held[names], y=labels, **QUIET).coef_, model.coef_)
    np.testing.assert_array_equal(bigclf.fit(held, y=held["y"], **QUIET).coef_, model.coef_)
    with pytest.raises(TypeError, match=r'labels of a Dask DataFrame are a Dask Series .*fit\(frame, "label"\)'):
        bigclf.fit(held[names], y=rows.y.to_numpy(), **QUIET)
    measured = bigclf.evaluate(model, rows, "y").accuracy
    assert bigclf.evaluate(model, held, "y").accuracy == measured
    assert bigclf.evaluate(model, held[names], held["y"]).accuracy == measured
    assert not words or bigclf.evaluate(model, held).accuracy == measured
    known = bigclf.calibrate(model, rows, "y").calibration
    for others in (held, duckdb.from_df(rows), pl.from_pandas(rows).lazy()):
        found = bigclf.calibrate(model, others, "y").calibration
        np.testing.assert_allclose(found.values, known.values, rtol=1e-4)


@pytest.mark.parametrize("form", sorted({*FORMS} - {"reader"}))
def test_a_spec_is_proposed_for_rows_that_others_hold(frame, form):
    rows = frame.astype({"b": "float64"})
    assert bigclf.suggest(FORMS[form](rows), label="y").spec().columns == ("a", "b", "c")


def test_what_cannot_be_looked_at_or_predicted_says_what_to_do(frame, numbers, wanted):
    with pytest.raises(TypeError, match="a RecordBatchReader gives its rows once"):
        bigclf.suggest(FORMS["reader"](frame))
    X = dask.array.from_array(numbers[["a", "b"]].to_numpy(), chunks=(100, 1))
    with pytest.raises(TypeError, match="an array has no column names"):
        bigclf.suggest(X)
    with pytest.raises(TypeError) as said:
        bigclf.predict(wanted, X)
    line = str(said.value).split(": ", 1)[1]
    found = eval(line, {"X": X, "model": wanted}).compute()
    np.testing.assert_array_equal(found, wanted.predict(numbers[["a", "b"]]))
