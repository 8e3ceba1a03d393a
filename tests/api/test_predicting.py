"""Long files of predictions are written in parts and gone on with; columns of raw files pass through."""

import gzip
import itertools
import json
import math
import os
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from making import environment, random_rows, shards_of
from test_cli import bigclf as cli

import bigclf
from bigclf.api import predict as predicting
from bigclf.api.predict import LOCK, predict
from bigclf.conversion.text import pieces, svmlight, vowpal_wabbit
from bigclf.conversion.text.parsed import Options
from bigclf.data import dataset as dataset_module
from bigclf.data import predictions, shards
from bigclf.errors import DataError, RunError


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def sparse(tmp_path_factory):
    """A model, and one shard of many row groups for it."""
    directory = tmp_path_factory.mktemp("sparse")
    x, y = random_rows(600, 30)
    return bigclf.fit(x, y, epochs=1, tol=0.5, algo="dcd"), shards_of(
        directory, x, y, chunk_nnz=100, shard_nnz=10**7
    ).files


def people(n=400, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"id": [f"{i:05d}" for i in range(n)], "a": rng.normal(size=n).round(3)})
    table["t"] = rng.choice(["red", "blue"], n)
    table["row"] = rng.integers(0, 9, n)
    table["y"] = np.where(table.a > 0, "yes", "no")
    return table


FEATURES = {"label": "y", "features": [{"numeric": ["a"]}, {"categorical": ["t"]}]}


@pytest.fixture(scope="module")
def columns():
    return {form: bigclf.fit(people(), features={**FEATURES, "reader": {"format": form}}, tol=0.1, algo="dcd")
            for form in ("csv", "jsonl", "parquet")}  # fmt: skip


def written(table, directory, form):
    path = directory / f"rows.{form}"
    if form == "csv":
        table.to_csv(path, index=False)
    elif form == "csv.gz":
        path.write_bytes(gzip.compress(table.to_csv(index=False).encode(), mtime=0))
    elif form == "jsonl":
        table.to_json(path, orient="records", lines=True)
    else:
        pq.write_table(pa.Table.from_pandas(table, preserve_index=False), path, row_group_size=50)
    return str(path)


class Stop:
    """Interrupts after so many row groups."""

    def __init__(self, left):
        self.left, self.planned, self.rows = left, None, 0

    def start(self, plan):
        self.planned = plan["n_rows"]

    def advance(self, rows, n_bytes):
        self.left, self.rows = self.left - 1, self.rows + rows
        if not self.left:
            raise KeyboardInterrupt


def groups_in(path):
    return pq.ParquetFile(path).metadata.num_row_groups


def interrupted(model, data, out, groups):
    with pytest.raises(KeyboardInterrupt):
        predict(model, data, str(out), scores=True, progress=Stop(groups))


def test_one_long_shard_goes_on_after_its_last_whole_part(sparse, tmp_path, monkeypatch):
    model, (path,) = sparse
    predict(model, path, str(tmp_path / "at-once"), scores=True)
    monkeypatch.setattr(predictions, "PART_WORK", 700)  # some row groups
    interrupted(model, path, tmp_path / "out", groups_in(path) - 2)
    (hidden,) = (tmp_path / "out").iterdir()
    parts = sorted(hidden.iterdir())
    there = sum(pq.ParquetFile(part).metadata.num_rows for part in parts)
    assert hidden.name == ".part-00000.parquet.parts" and len(parts) >= 2 and 0 < there < 600
    watched = Stop(-1)
    result = predict(model, path, str(tmp_path / "out"), scores=True, progress=watched)
    assert watched.rows == watched.planned == 600 - there == 600 - result["rows_kept"] and result["written"] == 1
    (only,), (same,) = (tmp_path / "out").iterdir(), (tmp_path / "at-once").iterdir()
    assert only.read_bytes() == same.read_bytes()


def test_parts_of_another_model_or_damaged_ones_are_made_again(sparse, tmp_path, monkeypatch):
    model, (path,) = sparse
    predict(model, path, str(tmp_path / "at-once"), scores=True)
    monkeypatch.setattr(predictions, "PART_WORK", 700)
    x, y = random_rows(600, 30, seed=3)
    interrupted(bigclf.fit(x, y, epochs=1, tol=0.5, algo="dcd"), path, tmp_path / "out", groups_in(path) - 2)
    assert predict(model, path, str(tmp_path / "out"), scores=True)["rows_kept"] == 0
    interrupted(model, path, tmp_path / "cut", groups_in(path) - 2)
    second = tmp_path / "cut" / ".part-00000.parquet.parts" / "000001.parquet"
    second.write_bytes(second.read_bytes()[:-100])
    first = pq.ParquetFile(second.with_name("000000.parquet")).metadata.num_rows
    assert predict(model, path, str(tmp_path / "cut"), scores=True)["rows_kept"] == first
    for out in ("out", "cut"):
        (found,) = (tmp_path / out).iterdir()
        assert found.read_bytes() == (tmp_path / "at-once" / found.name).read_bytes()


def test_what_a_killed_one_left_of_a_short_file_goes(sparse, tmp_path):
    model, (path,) = sparse
    predict(model, path, str(tmp_path / "at-once"))
    seen = []

    class Looks(Stop):
        def advance(self, rows, n_bytes):
            seen.append(sorted(one.name for one in (tmp_path / "out").iterdir() if one.name != LOCK))
            super().advance(rows, n_bytes)

    with pytest.raises(KeyboardInterrupt):
        predict(model, path, str(tmp_path / "out"), progress=Looks(2))
    hidden = ".part-00000.parquet.parts"
    assert seen == [[hidden]] * 2 and not (tmp_path / "out").exists()
    (tmp_path / "out" / hidden).mkdir(parents=True)  # as one that was killed leaves it
    (tmp_path / "out" / hidden / ".part-00000.parquet.tmp-1-2").write_bytes(b"PAR1")
    predict(model, path, str(tmp_path / "out"))
    (only,), (same,) = (tmp_path / "out").iterdir(), (tmp_path / "at-once").iterdir()
    assert only.read_bytes() == same.read_bytes()


def test_parts_with_unknown_features_do_not_pass_where_these_are_an_error(sparse, tmp_path, monkeypatch):
    model, _ = sparse
    x, y = random_rows(600, 30)
    x = sp.hstack([x, sp.csr_matrix(([1.0], ([0], [0])), (600, 1))], "csr").astype(np.float32)  # of the first row alone
    (path,) = shards_of(tmp_path / "shards", x, y, chunk_nnz=100, shard_nnz=10**7).files
    monkeypatch.setattr(predictions, "PART_WORK", 700)
    interrupted(model, path, tmp_path / "out", groups_in(path) - 2)
    with pytest.raises(DataError, match="1 entries"):
        predict(model, path, str(tmp_path / "out"), scores=True, unseen="error")
    with pytest.warns(UserWarning, match="does not know"):
        assert predict(model, path, str(tmp_path / "out"), scores=True)["unseen"] == 1


def test_whole_files_with_unknown_features_do_not_pass_either(sparse, tmp_path):
    """Of two files the first has a feature that the model does not know."""
    model, (known,) = sparse
    x, y = random_rows(50, 30)
    x = sp.hstack([x, sp.csr_matrix(([1.0], ([0], [0])), (50, 1))], "csr").astype(np.float32)
    (path,) = shards_of(tmp_path / "shards", x, y).files
    both, out = [path, known], str(tmp_path / "out")
    for place in (out, str(tmp_path / "said.csv")):
        with pytest.warns(UserWarning, match="1 entries") as told:
            assert predict(model, both, place)["unseen"] == 1
        assert told[0].filename == __file__  # the line that asked
    with pytest.warns(UserWarning, match="1 entries"):  # of files that are kept, too
        assert predict(model, both, out)["kept"] == 2
    there = {one.name: one.read_bytes() for one in (tmp_path / "out").iterdir()}
    with pytest.raises(DataError, match="1 entries"):
        predict(model, both, out, unseen="error")
    assert there == {one.name: one.read_bytes() for one in (tmp_path / "out").iterdir()} and len(there) == 2
    predict(model, known, str(tmp_path / "good"))
    assert predict(model, known, str(tmp_path / "good"), unseen="error")["kept"] == 1


def test_categories_that_the_model_does_not_know_can_be_an_error(columns, tmp_path):
    model, table = columns["csv"], people(60)
    path = written(table, tmp_path, "csv")
    assert predict(model, path, str(tmp_path / "good"), unseen="error")["unseen"] == 0
    table.loc[7, "t"], table.loc[50, "t"] = "green", None
    path = written(table, tmp_path, "csv")
    with pytest.warns(UserWarning, match="2 cells hold categories that the model does not know"):
        assert predict(model, path, str(tmp_path / "out"), scores=True)["unseen"] == 2
    for out in ("out", "new"):  # made while they were ignored, and not yet made
        with pytest.raises(DataError, match="line 9: column t: 'green' is not a category the model knows"):
            predict(model, path, str(tmp_path / out), scores=True, unseen="error")
    scores = pq.read_table(tmp_path / "out" / "rows.csv.parquet")["score"].to_numpy()
    assert np.array_equal(model.decision_function(table), scores)
    with pytest.raises(DataError, match="'green'"):
        predict(model, path, str(tmp_path / "said.csv"), unseen="error")
    assert not [name for name in os.listdir(tmp_path) if "said" in name]
    with pytest.raises(DataError, match="row 7: column t: 'green'"):
        model.decision_function(table, unseen="error")
    with pytest.raises(DataError, match="row 50: column t: a missing value is not a category"):
        model.predict(table.assign(t=table.t.replace("green", "red")), unseen="error")


def test_predictions_as_csv(sparse, columns, tmp_path):
    table = people(50)
    path = written(table, tmp_path, "csv")
    result = predict(columns["csv"], path, str(tmp_path / "said.csv"), scores=True)
    predict(columns["csv"], path, str(tmp_path / "out"), scores=True)
    expected = pq.read_table(tmp_path / "out").to_pandas()
    texts = pa_csv.ConvertOptions(column_types={"id": pa.string(), "input_row": pa.string()})
    said = pa_csv.read_csv(tmp_path / "said.csv", convert_options=texts).to_pandas()
    pd.testing.assert_frame_equal(said, expected, check_dtype=False, check_exact=True)
    assert result["columns"] == list(said) and result["bytes"] == (tmp_path / "said.csv").stat().st_size
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
    with pytest.raises(RunError, match="said.csv already exists"):
        predict(columns["csv"], path, str(tmp_path / "said.csv"))
    model, files = sparse
    x, y = random_rows(20, 30)
    both = [*files, *shards_of(tmp_path / "more", x, y).files]
    predict(model, both, str(tmp_path / "said.csv"), overwrite=True)
    said = pd.read_csv(tmp_path / "said.csv")
    assert list(said) == ["file", "row", "label", "prediction"] and len(said) == 620
    assert said.file.unique().tolist() == both and said.prediction[600:].tolist() == model.predict(x).tolist()


def test_predictions_as_one_file_of_parquet(sparse, columns, tmp_path):
    path, one = written(people(50), tmp_path, "csv"), tmp_path / "said.parquet"
    result = predict(columns["csv"], path, str(one), scores=True)
    predict(columns["csv"], path, str(tmp_path / "out"), scores=True)
    assert pq.read_table(one).equals(pq.read_table(tmp_path / "out")) and result["written"] == 1
    assert result["bytes"] == one.stat().st_size and not [name for name in os.listdir(tmp_path) if name[0] == "."]
    with pytest.raises(RunError, match="said.parquet already exists"):
        predict(columns["csv"], path, str(one))
    model, files = sparse
    predict(model, [*files, files[0]], str(one), overwrite=True)
    said = pq.read_table(one).to_pandas()
    assert list(said) == ["file", "row", "label", "prediction"] and said.file.unique().tolist() == files
    assert len(said) == 1200 and said.row[600:].tolist() == list(range(600))
    (tmp_path / "old.parquet").mkdir()  # as it was made before
    predict(model, files, str(tmp_path / "old.parquet"))
    assert os.listdir(tmp_path / "old.parquet") == ["part-00000.parquet"]


def test_one_file_of_parquet_has_types_that_hold_those_of_all(columns, tmp_path):
    paths, out = [str(tmp_path / f"{k}.parquet") for k in range(3)], str(tmp_path / "said.parquet")
    for path, ids in zip(paths, ([1, 2**60], [0.5, 1.0], ["u", "v"]), strict=True):
        pq.write_table(pa.table({"a": [1.0, -1.0], "t": ["red"] * 2, "id": ids}), path)
    never = Stop(1)
    with pytest.raises(DataError, match="2.parquet, column id: is string here and .* in another .* ends in .csv"):
        predict(columns["parquet"], [paths[1], paths[2]], out, progress=never)
    assert never.planned is None
    with pytest.raises(DataError, match="column id: is int64 here and double in another file") as refused:
        predict(columns["parquet"], paths[:2], out)
    assert refused.value.file == paths[0] and not [name for name in os.listdir(tmp_path) if name[0] == "."]
    pq.write_table(pa.table({"a": [1.0, -1.0], "t": ["red"] * 2, "id": [1, 2]}), paths[0])
    predict(columns["parquet"], paths[:2], out)
    assert pq.read_table(out)["id"].to_pylist() == [1.0, 2.0, 0.5, 1.0]
    pq.write_table(pa.table({"a": [1.0], "t": ["red"], "id": pa.array(["w"]).dictionary_encode()}), paths[0])
    predict(columns["parquet"], [paths[0], paths[2]], out, overwrite=True)
    assert pq.read_table(out)["id"].to_pylist() == ["w", "u", "v"]


def test_csv_of_files_whose_columns_differ_in_type(columns, tmp_path):
    """Each is told as it stands in its file, the same one as often as it is named."""
    kinds = [pa.int64(), pa.float64(), pa.string(), pa.null(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
    told = [["7", "", "-1"], ["7.5", "", "-1"], ["seven", "", "-1"], [""] * 3, ["seven", "", "-1"], ["u", "", "v"]]
    paths = []
    for k, (kind, texts) in enumerate(zip(kinds, told, strict=True)):
        paths.append(str(tmp_path / f"{k}.parquet"))
        texts = pa.array([text or None for text in texts], pa.string())
        passing = pa.nulls(3) if kind == pa.null() else texts.cast(kind)
        pq.write_table(pa.table({"a": [1.0, -1.0, 2.0], "t": ["red"] * 3, "id": passing}), paths[-1])
    result = predict(columns["parquet"], [*paths, paths[0]], str(tmp_path / "said.csv"))
    said = pd.read_csv(tmp_path / "said.csv", dtype=str, keep_default_na=False)
    assert list(said) == result["columns"] == ["file", "row", "id", "prediction"] and result["rows"] == 21
    assert said.id.tolist() == [text for texts in [*told, told[0]] for text in texts]
    assert said.file.tolist() == np.repeat([*paths, paths[0]], 3).tolist() and said.row.tolist() == list("012") * 7
    assert said.prediction.tolist() == columns["parquet"].predict(pd.read_parquet(paths[0])).tolist() * 7


def test_what_csv_cannot_hold_is_refused_before_the_first_row(columns, tmp_path):
    model, table = columns["csv"], people(20)
    path = written(table, tmp_path, "csv")
    other = tmp_path / "other.csv"
    table.drop(columns="id").to_csv(other, index=False)
    nested = tmp_path / "n.parquet"
    pq.write_table(pa.table({"a": [1.0], "t": ["red"], "tags": [[0.5]], "raw": [b"u"], "labels": [["u", "v"]]}), nested)
    there, never = sorted(os.listdir(tmp_path)), Stop(1)
    with pytest.raises(RunError, match="rows.csv: is an input; write to another place"):
        predict(model, path, path, overwrite=True, progress=never)
    with pytest.raises(
        DataError, match="other.csv: column id is not in both this file and the first, .*rows.csv; name"
    ):
        predict(model, [path, str(other)], str(tmp_path / "said.csv"), progress=never)
    for keep, kind in (["tags", "list<.*>"], ["raw", "binary"]):
        with pytest.raises(DataError, match=f"n.parquet, column {keep}: holds {kind}, which CSV cannot"):
            predict(columns["parquet"], str(nested), str(tmp_path / "said.csv"), keep=[keep], progress=never)
    assert sorted(os.listdir(tmp_path)) == there and never.planned is None
    predict(columns["parquet"], str(nested), str(tmp_path / "lists.csv"), keep=["labels"])
    assert pd.read_csv(tmp_path / "lists.csv").labels.tolist() == ["u,v"]
    predict(model, [path, str(other)], str(tmp_path / "said.csv"), keep=["row"])
    assert pd.read_csv(tmp_path / "said.csv").columns.tolist() == ["file", "row", "input_row", "prediction"]


def test_a_column_called_file_keeps_its_name_in_csv(columns, tmp_path):
    paths = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    for path in paths:
        people(3).rename(columns={"id": "file"}).assign(input_file="x").to_csv(path, index=False)
    predict(columns["csv"], paths, str(tmp_path / "said.csv"), keep=["file"])
    said = pd.read_csv(tmp_path / "said.csv", dtype=str)
    assert list(said) == ["input_file", "row", "file", "prediction"] and said.input_file.unique().tolist() == paths
    assert said.file.tolist() == ["00000", "00001", "00002"] * 2
    told = predict(columns["csv"], paths, str(tmp_path / "more.csv"), keep=["file", "input_file"])
    assert told["columns"] == ["input_file_2", "row", "file", "input_file", "prediction"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_one_file_goes_on_where_it_stopped(sparse, tmp_path, monkeypatch, ending):
    (model, (path,)), out = sparse, tmp_path / f"x.{ending}"
    monkeypatch.setattr(predictions, "PART_WORK", 700)
    predict(model, path, str(tmp_path / f"whole.{ending}"), scores=True)
    interrupted(model, path, out, groups_in(path) - 2)
    assert not out.exists()
    assert predict(model, path, str(out), scores=True)["rows_kept"] > 0
    assert out.read_bytes() == (tmp_path / f"whole.{ending}").read_bytes()


def test_one_at_a_time_writes_into_a_directory(sparse, tmp_path):
    model, (path,) = sparse

    class Meanwhile(Stop):
        def advance(self, rows, n_bytes):
            with pytest.raises(RunError, match="out: other predictions are being written there now"):
                predict(model, path, str(tmp_path / "out"))
            self.rows += rows

    watched = Meanwhile(-1)
    predict(model, path, str(tmp_path / "out"), progress=watched)
    assert watched.rows == 600 and [one.name for one in (tmp_path / "out").iterdir()] == ["part-00000.parquet"]
    (tmp_path / "out" / LOCK).touch()  # as one that was killed leaves it
    assert predict(model, path, str(tmp_path / "out"))["kept"] == 1 and not (tmp_path / "out" / LOCK).exists()


def test_one_at_a_time_writes_a_csv_file_until_it_is_whole(sparse, tmp_path, monkeypatch):
    """Also while the parts are joined, and who began meanwhile does not replace what is there when it may write."""
    model, (path,) = sparse
    predict(model, path, str(tmp_path / "alone.csv"))
    said, refused = tmp_path / "said.csv", []
    join, inputs = predicting.write_csv, predicting._inputs

    def joining(*given):
        with pytest.raises(RunError, match="said.csv: other predictions are being written there now"):
            predict(model, path, str(said), scores=True)
        refused.append("while the parts are joined")
        return join(*given)

    def overtaken(*given):
        monkeypatch.setattr(predicting, "_inputs", inputs)
        said.write_text("another call's")
        return inputs(*given)

    monkeypatch.setattr(predicting, "write_csv", joining)
    predict(model, path, str(said))
    assert refused and said.read_bytes() == (tmp_path / "alone.csv").read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["alone.csv", "said.csv"]
    said.unlink()
    monkeypatch.setattr(predicting, "_inputs", overtaken)
    with pytest.raises(RunError, match="said.csv already exists"):
        predict(model, path, str(said))
    assert said.read_text() == "another call's" and sorted(os.listdir(tmp_path)) == ["alone.csv", "said.csv"]


@pytest.mark.parametrize("form", ["csv", "csv.gz", "jsonl", "parquet"])
def test_a_long_raw_file_goes_on_too(columns, tmp_path, monkeypatch, form):
    monkeypatch.setattr(pieces, "PIECE", 2000)
    monkeypatch.setattr(pieces, "BLOCK", 700)
    model = columns[form.removesuffix(".gz")]
    path = written(people(), tmp_path, form)
    predict(model, path, str(tmp_path / "at-once"), scores=True)
    monkeypatch.setattr(predictions, "PART_WORK", 3000)
    interrupted(model, path, tmp_path / "out", 5)
    result = predict(model, path, str(tmp_path / "out"), scores=True)
    (only,), (same,) = (tmp_path / "out").iterdir(), (tmp_path / "at-once").iterdir()
    assert 0 < result["rows_kept"] < 400 == result["rows"] and only.read_bytes() == same.read_bytes()
    assert predict(model, path, str(tmp_path / "out"), scores=True)["kept"] == 1


def test_a_bad_line_behind_the_parts_that_are_there_has_its_own_number(columns, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "PIECE", 2000)
    path = written(people(), tmp_path, "csv")
    lines = (tmp_path / "rows.csv").read_text().split("\n")
    lines[300] = "x,nothing,red,1,yes"
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    monkeypatch.setattr(predictions, "PART_WORK", 3000)
    for _ in range(2):
        with pytest.raises(DataError, match="line 301: column a: 'nothing' is not a number"):
            predict(columns["csv"], path, str(tmp_path / "out"))


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_columns_of_raw_files_pass_through(columns, tmp_path, form):
    table = people(50)
    path = written(table, tmp_path, form)
    result = predict(columns[form], path, str(tmp_path / "out"))
    assert result["columns"] == ["row", "id", "input_row", "y", "prediction"]
    found = pq.read_table(tmp_path / "out" / ("rows.parquet" if form == "parquet" else f"rows.{form}.parquet"))
    assert found["id"].to_pylist() == table.id.tolist() and found["y"].to_pylist() == table.y.tolist()
    passed = table.row.tolist() if form == "parquet" else list(map(str, table.row))
    assert found["input_row"].to_pylist() == passed and found["row"].to_pylist() == list(range(50))
    chosen = predict(columns[form], path, str(tmp_path / "chosen"), keep=["a", "id"])
    assert chosen["columns"] == ["row", "a", "id", "prediction"]
    assert predict(columns[form], path, str(tmp_path / "none"), keep=[])["columns"] == ["row", "prediction"]
    if form == "jsonl":  # whose columns nobody knows beforehand
        predict(columns[form], path, str(tmp_path / "x"), keep=["who"])
        assert pq.read_table(tmp_path / "x")["who"].null_count == 50
        return
    with pytest.raises(DataError, match="no column 'who' to keep; the file has id, a, t, row, y"):
        predict(columns[form], path, str(tmp_path / "x"), keep=["who"])


def test_whatever_json_holds_passes_through_as_text(columns, tmp_path):
    rows = [{"a": 1, "t": "red", "tags": ["u", 1], "in": {"x": None}, "n": 7}, {"a": 2.5, "t": "blue", "odd": "\ud800"}]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, rows)))
    predict(columns["jsonl"], str(tmp_path / "r.jsonl"), str(tmp_path / "out"), keep=["tags", "in", "n", "odd", "a"])
    (file,) = (tmp_path / "out").iterdir()
    found = pq.read_table(file).to_pydict()
    assert found["tags"] == ['["u", 1]', None] and found["in"] == ['{"x": null}', None] and found["n"] == ["7", None]
    assert found["odd"] == [None, '"\\ud800"'] and found["a"] == ["1", "2.5"]


def test_documents_pass_their_names_and_empty_files_their_columns(columns, tmp_path):
    for folder, word in (("cars", "wheel"), ("space", "orbit")):
        (tmp_path / "docs" / folder).mkdir(parents=True)
        for k in range(3):
            (tmp_path / "docs" / folder / f"{k}.txt").write_text(f"the {word} {k}")
    model = bigclf.fit(str(tmp_path / "docs"), features={"reader": {"format": "text"}}, tol=0.1)
    predict(model, str(tmp_path / "docs"), str(tmp_path / "out"))
    found = pq.read_table(tmp_path / "out" / "docs.parquet").to_pydict()
    assert found["member"] == [f"{folder}/{k}.txt" for folder in ("cars", "space") for k in range(3)]
    assert found["prediction"] == found["label"] == ["cars"] * 3 + ["space"] * 3
    (tmp_path / "none.csv").write_text("id,a,t\n")
    assert predict(columns["csv"], str(tmp_path / "none.csv"), str(tmp_path / "none"))["rows"] == 0
    assert pq.read_table(tmp_path / "none").schema.field("id").type == pa.large_string()


KILLED = """
import sys
from bigclf.data import predictions
import bigclf
predictions.PART_WORK = 20_000
model, data, out = sys.argv[1:]
print("begun", flush=True)
bigclf.predict(bigclf.load(model), data, out, scores=True)
"""


@pytest.mark.chaos
def test_a_killed_one_leaves_nothing_but_what_it_made(tmp_path):
    """Killed without warning at several moments of one shard: the same bytes, and no file that nobody removes."""
    x, y = random_rows(40_000, 50)
    model = bigclf.fit(x, y, epochs=1, tol=0.5)
    model.save(tmp_path / "m")
    (path,) = shards_of(tmp_path / "s", x, y, chunk_nnz=300, shard_nnz=10**8).files
    predict(model, path, str(tmp_path / "at-once"), scores=True)
    ask = [sys.executable, "-c", KILLED, str(tmp_path / "m"), path, str(tmp_path / "out")]
    hidden, kept = tmp_path / "out" / ".part-00000.parquet.parts", [0]

    def parts():
        return len(list(hidden.glob("*.parquet"))) if hidden.exists() else 0

    for more in (1, 2, 1, 3):  # killed as soon as there are so many more
        with subprocess.Popen(ask, env=environment(), stdout=subprocess.PIPE, text=True) as child:
            while child.poll() is None and parts() < kept[-1] + more:
                time.sleep(0.002)
            child.kill()
        kept.append(parts())
    subprocess.run(ask, env=environment(), check=True, stdout=subprocess.DEVNULL)
    assert kept == sorted(kept) and kept[-1] >= 3, kept
    (only,), (same,) = (tmp_path / "out").iterdir(), (tmp_path / "at-once").iterdir()
    assert only.read_bytes() == same.read_bytes()


def test_a_large_row_group_is_decoded_in_parts_by_whatever_reads_it(tmp_path, monkeypatch):
    x, y = random_rows(900, 30)
    indptr, there = x.indptr.astype(np.int32), np.arange(900) % 7 > 0
    table = pa.table({
        "label": y, "indices": pa.ListArray.from_arrays(indptr, x.indices), "weight": there.astype(np.float32),
        "values": pa.ListArray.from_arrays(indptr, x.data),
        "user": pa.array([f"u{k % 50}" for k in range(900)]).dictionary_encode(), "at": np.arange(900),
    })  # fmt: skip
    path = str(tmp_path / "f.parquet")
    pq.write_table(table, path, row_group_size=600)
    for module in (shards, dataset_module):
        monkeypatch.setattr(module, "PART_BYTES", 1 << 11)
    largest, in_parts = [], shards.read_parts

    def told(*given):
        for first, rows in in_parts(*given):
            largest.append(rows.n_rows)
            yield first, rows

    monkeypatch.setattr(shards, "read_parts", told)
    monkeypatch.setattr(shards, "read_rows", None)  # whole
    dataset = bigclf.Dataset(path, target_nnz=400)
    assert dataset.n_chunks > 10
    model = bigclf.fit(dataset, algo="pa1", epochs=1, memory="100MB")
    predict(model, dataset, str(tmp_path / "out"), scores=True)
    said = pq.read_table(tmp_path / "out" / "f.parquet")
    np.testing.assert_array_equal(said["label"].to_numpy(), y)
    np.testing.assert_array_equal(said["score"].to_numpy(), model.decision_function(dataset))
    assert said["user"].to_pylist() == table["user"].to_pylist() and said["at"].to_pylist() == list(range(900))
    np.testing.assert_array_equal(model.predict(dataset), model.predict(x))
    np.testing.assert_allclose(model.decision_function(dataset), model.decision_function(x), atol=1e-12)
    assert bigclf.evaluate(model, dataset).accuracy == np.mean(model.predict(x) == y)
    assert dataset.learnable_counts.tolist() == [int((there & (y == k)).sum()) for k in (-1, 1)]
    parts = bigclf.split(dataset, tmp_path / "split", {"a": 0.5, "b": 0.5}, order="at")
    assert [part.n_rows for part in parts.values()] == [450, 450]
    assert max(largest) < 60


@pytest.mark.parametrize("command", ["predict", pytest.param("evaluate", marks=pytest.mark.long)])
def test_an_open_quote_holds_no_more_than_memory_has_room_for(command, tmp_path):
    """``predict`` read on for a quarter of the reader's share of 1 GB, whatever there was room for."""
    features = {**FEATURES, "reader": {"format": "csv", "multiline": True}}
    bigclf.fit(people(), features=features, tol=0.1).save(tmp_path / "model")
    path = written(people(60), tmp_path, "csv")
    with open(path, "a") as file:
        file.write('00060,1.0,"red' + ",1,no\n" * 1_200_000)
    line = [command, tmp_path / "model", path, *(["-o", tmp_path / "out"] if command == "predict" else [])]
    for memory, most in (("160MB", 5_000_000), ("176MB", 5_500_000)):
        error = cli(*line, "--memory", memory, code=3)[1]
        assert f"line 62: a quote that opens here is not closed within {most:,} bytes" in error


def test_memory_bounds_what_is_read_of_raw_files_alone(sparse, tmp_path):
    """... so that no prediction depends on it."""
    model, shards = sparse
    for memory in ("100MB", "2GB"):
        predict(model, shards, str(tmp_path / memory), memory=memory)
    (a,), (b,) = ([path.read_bytes() for path in (tmp_path / memory).glob("*.parquet")] for memory in ("100MB", "2GB"))
    assert a == b
    with pytest.raises(ValueError, match="memory|much"):
        predict(model, shards, str(tmp_path / "x"), memory="much")


# Sparse text, scored as it is parsed


def svm(rows, labels=None):
    """Text of rows (index -> value), with labels by turns -1 and 1 unless there are others."""
    labels = labels or itertools.cycle(["-1", "1"])
    lines = zip(labels, rows, strict=False)
    return "".join(f"{label} {' '.join(f'{j}:{v}' for j, v in row.items())}\n" for label, row in lines)


def drawn(n, alike, seed=0):
    """Rows of 1 to 20 of 30 features; ``alike``: the value that all entries of a row share, by its number, or None."""
    rng = np.random.default_rng(seed)
    rows = []
    for k in range(n):
        features = np.sort(rng.permutation(30)[: rng.integers(2, 20)]) + 1
        value = alike(k)
        rows.append({int(j): value if value is not None else round(rng.normal(), 3) for j in features})
    return rows


def scored(model, data, out):
    predict(model, data, str(out), scores=True)
    return pa.concat_tables(pq.read_table(out / name) for name in sorted(os.listdir(out)) if name.endswith("parquet"))


ALIKE = {
    "values": lambda k: None,
    "ones": lambda k: 1,
    "one value a row": lambda k: round(0.1 + k % 7 / 10, 1),
    "ones, then one value a row": lambda k: 1 if k < 300 else 0.3,
    "ones, then values": lambda k: 1 if k < 300 else None,
    "one value a row, then values": lambda k: 0.3 if k < 500 else None,
}


@pytest.mark.parametrize("alike", ALIKE)
@pytest.mark.parametrize("packed", [False, True])
def test_text_has_the_scores_of_shards_to_the_bit(sparse, tmp_path, monkeypatch, alike, packed):
    monkeypatch.setattr(pieces, "BLOCK", 2**11)
    monkeypatch.setattr(pieces, "PIECE", 2**13)
    monkeypatch.setattr(predictions, "PART_WORK", 2**15)
    rows = drawn(600, ALIKE[alike])
    rows[7][99] = rows[7][max(rows[7])]  # which the model does not know
    text = "\ufeff" + svm(rows)
    path = tmp_path / ("rows.svm.gz" if packed else "rows.svm")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    bigclf.convert(path, tmp_path / "shards", shuffle=False)
    with pytest.warns(UserWarning, match="1 entries have features that the model does not know"):
        expected = scored(sparse[0], str(tmp_path / "shards"), tmp_path / "expected")
    with pytest.warns(UserWarning, match="1 entries have features that the model does not know"):
        found = scored(sparse[0], str(path), tmp_path / "found")
    assert found.equals(expected) and found.schema == expected.schema
    assert found["label"].type == pa.int64() and found["row"].to_pylist() == list(range(600))


def test_labels_of_text_are_whole_numbers_where_all_are(sparse, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "BLOCK", 2**9)
    for name, last in (("whole", "3"), ("not", "2.5")):
        (tmp_path / f"{name}.svm").write_text(svm(drawn(60, ALIKE["ones"]), ["1"] * 59 + [last]))
    whole, other = (scored(sparse[0], str(tmp_path / f"{name}.svm"), tmp_path / name) for name in ("whole", "not"))
    assert whole["label"].type == pa.int64() and whole["label"].to_pylist() == [1] * 59 + [3]
    assert other["label"].type == pa.float64() and other["label"].to_pylist() == [1.0] * 59 + [2.5]


def test_text_is_read_from_the_number_that_the_text_of_the_model_began_with(tmp_path):
    """Features were taken for their neighbours, without a word, where no row of the text had number 0."""
    text = tmp_path / "zero.svm"
    text.write_text("1 0:1 2:1\n-1 1:1 3:1\n1 2:1\n-1 1:1\n" * 5)
    model = bigclf.fit(bigclf.convert(str(text), tmp_path / "s", index_base=0), algo="dcd", progress=False)
    other = written_lines(tmp_path / "other.svm", ["1 2:1", "-1 1:1", "-1 1:1 3:1"])
    assert bigclf.evaluate(model, other).accuracy == 1 == bigclf.evaluate(model, str(text)).accuracy
    predict(model, other, str(tmp_path / "out"))
    found = [pq.read_table(file) for file in sorted((tmp_path / "out").glob("*.parquet"))]
    assert pa.concat_tables(found)["prediction"].to_pylist() == [1, -1, -1]
    lists = tmp_path / "lists.svm"
    lists.write_text("1,2 0:1 2:1\n3 1:1\n")
    several = bigclf.convert(str(lists), tmp_path / "l", index_base=0, several_labels=True)
    model = bigclf.fit(several, algo="dcd", progress=False)
    assert bigclf.evaluate(model, written_lines(tmp_path / "more.svm", ["1,2 2:1", "3 1:1"])).precision_at[1] == 1


def test_rows_of_text_need_no_label_to_be_predicted(sparse, tmp_path):
    rows = drawn(40, ALIKE["values"])
    labelled = svm(rows, ["1"] * 40).splitlines()
    expected = scored(sparse[0], written_lines(tmp_path / "all.svm", labelled), tmp_path / "all")
    some = [line if k % 3 else line.partition(" ")[2] for k, line in enumerate(labelled)]
    found = scored(sparse[0], written_lines(tmp_path / "some.svm", ["# none", *some]), tmp_path / "some")
    assert found["label"].to_pylist() == [1 if k % 3 else None for k in range(40)] and found["label"].type == pa.int64()
    assert found.drop(["label"]).equals(expected.drop(["label"]))
    with pytest.raises(DataError, match="some.svm, line 43: the value in '3:x' is not a number"):
        predict(sparse[0], written_lines(tmp_path / "some.svm", ["", "", *some, "3:x"]), str(tmp_path / "bad"))
    with pytest.raises(DataError, match="line 1: there is no label before .*; predict takes such rows"):
        bigclf.evaluate(sparse[0], written_lines(tmp_path / "some.svm", some))
    assert math.isnan(vowpal_wabbit.parse(b"| 3:1\n", Options(0, unlabelled=True)).labels[0])
    (made,) = [svmlight.parse(b"-0 1:1\n2:1 3:1\n3:1 2:1\n", Options(unlabelled=True))]
    assert np.isnan(made.labels).tolist() == [False, True] and [bad.offset for bad in made.bad] == [15]
    made = svmlight.parse(b"-0 1:1\n2:1\n -0.0e1 2:1\n0 1:1\n", Options(unlabelled=True))
    assert np.isnan(made.labels).tolist() == [False, True, False, False] and not made.bad
    for more in (b"", b"x 1:1\n"):  # by the kernel, and line by line
        made = svmlight.parse(b"qid:4 1:1\n2:1\n1 qid:4 1:1\n" + more, Options(unlabelled=True))
        assert np.isnan(made.labels).tolist() == [True, True, False] and made.indptr.tolist() == [0, 1, 2, 3]
        assert made.queries and len(made.bad) == bool(more)


def written_lines(path, lines):
    path.write_text("\n".join([*lines, ""]))
    return str(path)


def test_a_bad_line_of_text_has_its_number_and_text_goes_on_after_its_last_whole_part(sparse, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "BLOCK", 2**11)
    monkeypatch.setattr(pieces, "PIECE", 2**12)
    monkeypatch.setattr(predictions, "PART_WORK", 2**14)
    path, out = tmp_path / "rows.svm", tmp_path / "out"
    path.write_text(svm(drawn(300, ALIKE["values"])))
    expected = scored(sparse[0], str(path), tmp_path / "expected")
    whole, calls = predicting.Asked.of_block, []

    def of_block(self, block):
        calls.append(block.n_rows)
        if len(calls) == 12:
            raise KeyboardInterrupt
        return whole(self, block)

    monkeypatch.setattr(predicting.Asked, "of_block", of_block)
    with pytest.raises(KeyboardInterrupt):
        predict(sparse[0], str(path), str(out), scores=True)
    done = predict(sparse[0], str(path), str(out), scores=True)
    assert 0 < done["rows_kept"] < 300 and done["rows"] == 300
    assert pq.read_table(out / "rows.svm.parquet").equals(expected)

    lines = path.read_text().split("\n")
    lines[250] = "1 3:x"
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match="line 251"):
        predict(sparse[0], str(path), str(tmp_path / "bad"))
    (tmp_path / "empty.svm").write_text("\n")
    with pytest.raises(DataError, match="there are no rows"):
        predict(sparse[0], str(tmp_path / "empty.svm"), str(tmp_path / "none"))
