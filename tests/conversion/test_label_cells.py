"""Several labels a row in tables: with a separator in a cell, in several columns, as 0 and 1, as lists."""

import json

import numpy as np
import pandas as pd
import pytest
import yaml
from click.testing import CliRunner

import bigclf
from bigclf.cli import main
from bigclf.errors import DataError, SchemaError
from bigclf.features.spec import parse

# a separator, quotes, blanks, repetitions, empty and missing cells; the second column has labels beside
TAGS = ["sport; money", " ;money;;sport;money ", "", None, "law, civil", "sport", "NA", "law, civil;sport"]
MORE = [None, "", "travel", "?", "money", "sport", "", "travel"]
SETS = [["money", "sport"], ["money", "sport"], ["travel"], [], ["law, civil", "money"], ["sport"], [],
        ["law, civil", "sport", "travel"]]  # fmt: skip
NAMES = ["law, civil", "money", "sport", "travel"]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


def numbers(n=8):
    return {"age": np.arange(n) * 1.5, "work": ["a", "b"] * (n // 2)}


def indicators(yes=1, no=0):
    return {name: [yes if name in row else no for row in SETS] for name in NAMES}


def file_of(tmp_path, columns, form="csv"):
    path = tmp_path / f"rows.{form}"
    frame = pd.DataFrame(columns)
    frame.to_csv(path, index=False) if form == "csv" else frame.to_parquet(path, index=False)
    return str(path)


def spec(label):
    return {"label": label, "features": {"numeric": ["age"], "categorical": ["work"]}}


def sets_of(dataset):
    """The labels of each row in the order of ``age``."""
    (block,) = dataset.blocks()
    assert np.array_equal(np.argsort(block.values.reshape(-1, 2)[:, 0]), np.arange(block.n_rows))
    return dataset.sets.as_lists(block.labels.astype(int)).to_pylist()


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("columns, label", [
    ({"tags": TAGS, "more": MORE}, {"column": ["tags", "more"], "separator": ";"}),
    ({"tags": ["|".join(row) for row in SETS]}, {"column": "tags", "separator": "|"}),
    ({"tags": ["<>".join(row[::-1]) for row in SETS]}, {"column": "tags", "separator": "<>"}),
    ({f"tag {k}": [row[k] if len(row) > k else None for row in SETS] for k in range(3)},
     ["tag 0", "tag 1", "tag 2"]),
    (indicators(), NAMES), (indicators(True, False), NAMES), (indicators(1.0, None), NAMES),
    ({"tags": ["; ".join(row).upper() for row in SETS]}, {"column": "tags", "separator": ";", "lowercase": True}),
])  # fmt: skip
def test_every_way_to_write_labels_gives_the_same_rows(tmp_path, form, columns, label):
    path = file_of(tmp_path, numbers() | columns, form)
    dataset = bigclf.convert(path, tmp_path / "out", features=spec(label), shuffle=False, workers=1)
    assert dataset.classes.tolist() == NAMES and dataset.class_counts.tolist() == [2, 3, 4, 2]
    assert sets_of(dataset) == SETS
    dataset = bigclf.convert(path, tmp_path / "out", features=spec(label), append=True, shuffle=False, workers=1)
    assert dataset.n_rows == 16 and dataset.class_counts.tolist() == [4, 6, 8, 4]


def test_a_column_of_lists_in_a_raw_table_is_labels(tmp_path):
    columns = {"tags": [list(row) or None for row in SETS]}
    path = file_of(tmp_path, numbers() | columns, "parquet")
    assert sets_of(bigclf.convert(path, tmp_path / "out", features=spec("tags"), shuffle=False)) == SETS
    columns["tags"][5] = ["sport", None]
    path = file_of(tmp_path, numbers() | columns, "parquet")
    with pytest.raises(DataError, match=r"rows.parquet, row group 0, row 5: column tags: a null in the list of labels"):
        bigclf.convert(path, tmp_path / "other", features=spec("tags"))


def with_cell(columns, name, row, value):
    return columns | {name: [value if k == row else old for k, old in enumerate(columns[name])]}


@pytest.mark.parametrize("columns, label, said, error", [
    (with_cell(indicators(), "sport", 4, 2), {"column": NAMES, "type": "indicators"},
     r"rows.csv, line 6: column sport: '2' is neither 0 nor 1", DataError),
    ({"tags": with_cell({"a": TAGS}, "a", 3, "x\x1fy")["a"]}, {"column": "tags", "separator": ";"},
     r"rows.csv, line 5: column tags: a label with the control character 0x1F", DataError),
    (indicators() | {"kind": ["a"] * 8}, [*NAMES, "kind"],
     r"column kind: .* 'law, civil' holds 0 and 1, and 'kind' does not", SchemaError),
    (indicators(), [*NAMES, "musik"], r"rows.csv, column musik: there is no such column \(it should hold", SchemaError),
])  # fmt: skip
def test_cells_that_are_no_labels_are_named(tmp_path, columns, label, said, error):
    path = file_of(tmp_path, numbers() | columns)
    with pytest.raises(error, match=said):
        bigclf.convert(path, tmp_path / "out", features=spec(label))
    if error is DataError:
        left = bigclf.convert(path, tmp_path / "out", features=spec(label), on_bad_rows="skip", max_bad_fraction=1)
        assert left.n_rows == 7 and left.report["bad_rows"] == 1


def test_rows_without_labels_may_be_left_out(tmp_path):
    label = {"column": "tags", "separator": ";", "missing": "drop"}
    path = file_of(tmp_path, numbers() | {"tags": TAGS})
    dataset = bigclf.convert(path, tmp_path / "out", features=spec(label), shuffle=False)
    assert dataset.n_rows == 5 and dataset.report["unlabelled"] == 3


@pytest.mark.parametrize("label, said", [
    ({"column": "tags", "separator": ""}, "separator must be a character or more"),
    ({"column": "tags", "separator": ";", "type": "number"}, "type is then labels or indicators, not number"),
    ({"column": ["a", "b"], "above": 3}, "above has no effect where rows have several labels"),
    ({"column": ["a", "b"], "type": "indicators", "separator": ";"}, "separator has no effect on indicators"),
    ({"column": ["a", "b", "a"]}, "a column is named twice"),
    ({"column": ["a", "age"]}, "column age: the label cannot be a feature too"),
])  # fmt: skip
def test_a_spec_that_contradicts_itself_is_refused(label, said):
    with pytest.raises(SchemaError, match=said):
        parse(spec(label))


def test_a_spec_comes_back_from_what_is_stored():
    for label in ({"column": ["a", "b"], "separator": ";"}, ["a", "b"], {"column": "a", "type": "labels"}):
        made = parse(spec(label))
        assert parse(json.loads(json.dumps(made.as_json()))) == made
    assert {"separator", "beside"}.isdisjoint(parse(spec("a")).as_json()["label"])  # as older versions wrote it


def many(n=240, seed=0):
    """A frame whose labels its numbers tell, and the lists of labels."""
    x = np.random.default_rng(seed).standard_normal((n, 4))
    labels = [[f"l{j}" for j in range(3) if row[j] > 0.4] for row in x]
    frame = pd.DataFrame({f"x{j}": x[:, j] for j in range(4)})
    return frame.assign(tags=[";".join(row) for row in labels], kind=["u", "v", "w"] * (n // 3)), labels


def test_a_model_of_labels_takes_raw_files_and_tables(tmp_path):
    frame, labels = many()
    path = file_of(tmp_path, frame)
    options = dict(algo="dcd", C=1.0, tol=1e-3, progress=False)
    model = bigclf.fit(frame, {"column": "tags", "separator": ";"}, **options)
    assert model.multilabel and model.classes_.tolist() == ["l0", "l1", "l2"]
    of_file = bigclf.fit(path, {"column": "tags", "separator": ";"}, **options)
    np.testing.assert_allclose(of_file.coef_, model.coef_, atol=0.05)  # its rows are shuffled
    indicated = frame.drop(columns="tags").assign(**{f"l{j}": [f"l{j}" in row for row in labels] for j in range(3)})
    assert np.array_equal(bigclf.fit(indicated, {"column": ["l0", "l1", "l2"]}, **options).coef_, model.coef_)
    figures = [bigclf.evaluate(model, rows).to_dict() for rows in (frame, path)]
    beside = bigclf.evaluate(model, frame.drop(columns="tags"), labels).to_dict()
    for name in ("micro_f1", "macro_f1", "coverage_error", "n"):
        assert figures[0][name] == figures[1][name] == beside[name]
    assert figures[0]["micro_f1"] > 0.95
    predicted = [set(row) for row in bigclf.predict(model, frame)["prediction"]]
    assert np.mean([mine == set(theirs) for mine, theirs in zip(predicted, labels, strict=True)]) > 0.9
    with pytest.raises(TypeError, match="only tables and raw files have columns with names"):
        bigclf.fit(frame[["x0", "x1"]].to_numpy(), {"column": "tags"}, **options)


def test_the_command_line_names_columns_and_a_separator(tmp_path):
    frame, labels = many()
    columns = {f"l{j}": [int(f"l{j}" in row) for row in labels] for j in range(3)}
    path = file_of(tmp_path, frame.assign(**columns).drop(columns="kind"))

    def bigclf_(*words, code=0):
        found = CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)
        assert found.exit_code == code, found.output
        return found.output

    tags, named = ("--label", "tags", "--label-separator", ";"), [w for j in range(3) for w in ("--label", f"l{j}")]
    numeric = ("--numeric", "x0,x1,x2,x3")
    for name, label in (("one", tags), ("two", named)):
        bigclf_("convert", path, tmp_path / name, *label, *numeric)
    one, two = (bigclf.Dataset(tmp_path / name) for name in ("one", "two"))
    assert one.classes.tolist() == two.classes.tolist() and np.array_equal(one.class_counts, two.class_counts)
    model = tmp_path / "model.bigclf"
    told = json.loads(bigclf_("fit", path, "-o", model, "--algo", "dcd", *tags, "--holdout", 0.25, "--json"))
    assert told["evaluation"]["micro_f1"] > 0.9 and 0 < told["evaluation"]["n"] < len(frame)
    assert json.loads(bigclf_("evaluate", model, path, "--json"))["n"] == len(frame)
    (tmp_path / "spec.yaml").write_text("label: tags\nfeatures:\n- numeric: [x0, x1]\n")
    bigclf_("convert", path, tmp_path / "three", "--spec", tmp_path / "spec.yaml", "--label-separator", ";")
    assert bigclf.Dataset(tmp_path / "three").classes.tolist() == ["l0", "l1", "l2"]
    assert "needs the column: --label COL" in bigclf_(
        "convert", path, tmp_path / "four", *numeric, "--label-separator", ";", code=2
    )


def test_a_column_of_lists_is_the_label_where_its_name_alone_is_said(tmp_path):
    frame, labels = many()
    frame = frame.assign(tags=labels)
    path, options = file_of(tmp_path, frame, "parquet"), dict(algo="dcd", progress=False)
    wanted = bigclf.fit(frame, {"column": "tags"}, **options)
    assert np.array_equal(bigclf.fit(frame, "tags", **options).coef_, wanted.coef_)
    assert bigclf.fit(path, "tags", **options).classes_.tolist() == ["l0", "l1", "l2"]
    words = ["fit", path, "-o", str(tmp_path / "m"), "--label", "tags", "--algo", "dcd"]
    found = CliRunner().invoke(main, words, catch_exceptions=False)
    assert found.exit_code == 0 and bigclf.load(tmp_path / "m").multilabel, found.output
    found = CliRunner().invoke(main, ["inspect", path, "--suggest", "--label", "tags"], catch_exceptions=False)
    assert "label: tags\n" in found.output


@pytest.mark.parametrize("label", ["tags", {"column": "tags", "separator": ";"}, {"column": ["tags", "kind"]}])
def test_a_file_without_a_known_label_is_named_with_its_own_column(tmp_path, label):
    frame, _ = many()
    frame = frame.assign(tags=frame["kind"]) if label == "tags" else frame
    model = bigclf.fit(frame, label, algo="pa1", epochs=1, progress=False)
    path = file_of(tmp_path, frame.assign(tags="foo", kind="bar"))
    with pytest.raises(DataError, match="no row has a label that the model knows") as caught:
        bigclf.evaluate(model, path)
    assert caught.value.column == ("tags, kind" if "kind" in str(label) else "tags") and caught.value.file == path


@pytest.mark.parametrize(
    ("words", "label"),
    [
        (("--label", "sport", "--label", "money"), ["sport", "money"]),
        (("--label", "tags", "--label-separator", ";"), {"column": "tags", "separator": ";"}),
    ],
)
def test_a_proposal_has_several_labels_and_none_of_them_as_a_feature(words, label, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("pages,sport,money,tags\n" + "1,0,1,money\n2.5,1,1,money;sport\n3,0,0,\n" * 20)
    told = CliRunner().invoke(main, ["inspect", str(table), "--suggest", *words])
    spec = parse(yaml.safe_load(told.stdout))
    assert spec.label == parse({"label": label}).label == bigclf.suggest(table, label).spec().label
    assert not {*spec.columns} & {*spec.label.columns}
    frame = pd.read_csv(table)
    assert bigclf.suggest(frame, label).spec().label == spec.label


def test_an_empty_cell_of_several_labels_asks_for_their_separator(tmp_path):
    table = tmp_path / "t.csv"
    joined = ["a", "b", "c", "a|b", "b|c", "a|c", "a|b|c", "d", "a|d", ""]
    table.write_text("pages,tags\n" + "".join(f"{k},{joined[-1 - k % 10]}\n" for k in range(50)))
    with pytest.raises(DataError, match=r"line 2: the label is missing; column tags: 9 labels were found") as caught:
        bigclf.convert(table, tmp_path / "s", features={"label": "tags", "features": [{"numeric": "pages"}]})
    assert "in a spec separator: '|'); with it, an empty cell is a row without labels" in str(caught.value)


def test_a_cell_that_is_neither_0_nor_1_is_told_by_its_line(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("pages,sport,money\n" + "1,0,1\n2.5,1,0\n" * 20 + "3,0,2\n")
    told = CliRunner().invoke(
        main, ["convert", str(table), str(tmp_path / "s"), "--label", "sport", "--label", "money"]
    )
    assert told.exit_code == 3 and "line 42: column money: '2' is neither 0 nor 1" in told.stderr


def test_a_proposal_keeps_what_was_said_of_the_label(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("pages,age\n" + "1,2\n2.5,3\n" * 20)
    told = bigclf.suggest(table, {"column": "pages", "above": 2})
    assert told.spec().label.above == 2 and parse(yaml.safe_load(str(told))) == told.spec()
    assert told.spec().columns == ("age",)


def test_0_and_1_beside_a_separator_are_no_labels_in_silence(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("pages,sport,money\n" + "1,0,1\n2.5,1,0\n" * 20)
    label = {"column": ["sport", "money"], "separator": ";"}
    with pytest.raises(SchemaError, match="a separator would make these the labels"):
        bigclf.fit(table, label, epochs=1, algo="pa1", progress=False)
    assert bigclf.suggest(table, {**label, "type": "labels"}).spec().label.type == "labels"
    model = bigclf.fit(table, {**label, "type": "labels"}, epochs=1, algo="pa1", progress=False)
    assert model.classes_.tolist() == ["0", "1"]


def test_rows_without_any_label_cannot_be_measured_on(tmp_path):
    table, empty = tmp_path / "t.csv", tmp_path / "e.csv"
    table.write_text("pages,tags\n" + "1,a;b\n2.5,\n3,b\n" * 20)
    empty.write_text("pages,tags\n" + "1,\n2,;\n")
    model = bigclf.fit(table, {"column": "tags", "separator": ";"}, epochs=1, algo="pa1", progress=False)
    with pytest.raises(DataError, match="no row has a label") as error:
        bigclf.evaluate(model, empty)
    assert (error.value.file, error.value.column) == (str(empty), "tags")


COLOURS = ["red", "green", "blue", "black", "white"]
SEPARATED = [[c for i, c in enumerate(COLOURS) if n >> i & 1] for n in range(1, 32)] * 2


@pytest.mark.parametrize("right", [";", "|", ","])
@pytest.mark.parametrize("wrong", [None, "/"])
def test_a_separator_that_was_not_meant_is_named(tmp_path, right, wrong):
    path = file_of(tmp_path, {**numbers(62), "tags": [right.join(row) for row in SEPARATED]})
    words = ["convert", path, tmp_path / "shards", "--label", "tags", "--numeric", "age"]
    words += [] if wrong is None else ["--label-separator", wrong]
    said = " ".join(CliRunner().invoke(main, [str(word) for word in words]).output.split())
    share = round(100 * sum(len(row) > 1 for row in SEPARATED) / 62)
    assert f"column tags: 31 labels were found, and {share} % of them" in said
    assert f"split there, they are 5 (--label-separator {right!r}" in said
    data = pd.read_csv(path)
    spec = {"label": {"column": "tags", **({"separator": wrong} if wrong else {})}, "features": [{"numeric": "age"}]}
    told = bigclf.fit(data, features=spec, algo="pa1", epochs=1, progress=False).result_.warnings
    assert sum("split there, they are 5" in text for text in told) == 1


@pytest.mark.parametrize(("cells", "seen"), [(["a;b", "b;a", "a|b"], "; ';' stands in those of 40"), (["a", "b"], "")])
def test_a_separator_that_splits_no_cell_is_named_however_few_the_labels_are(tmp_path, cells, seen):
    table = {**numbers(60), "tags": cells * (60 // len(cells))}
    spec = {"label": {"column": "tags", "separator": ","}, "features": [{"numeric": "age"}]}
    text = f"column tags: the separator ',' splits no cell, so each row has one label at most{seen}"
    found = bigclf.convert(file_of(tmp_path, table), tmp_path / "s", format="csv", features=spec)
    assert text in found.warnings
    data = pd.read_csv(file_of(tmp_path, table))
    assert text in bigclf.fit(data, features=spec, algo="pa1", epochs=1, progress=False).result_.warnings
    data.loc[0, "tags"] = "a,b"
    whole = bigclf.fit(data, features=spec, algo="pa1", epochs=1, progress=False).result_.warnings
    assert not [text for text in whole if "splits no cell" in text]


@pytest.mark.parametrize(
    ("labels", "separator"),
    [
        ([";".join(row) for row in SEPARATED], ";"),
        ([f"Smith {n}, John {n}" for n in range(31)] * 2, None),  # as many parts as labels, and more
        ([f"Name{n % 8}, Part{n // 8}" for n in range(62)], None),  # a comma in each
        (["a;b", "a", "b", "c", "d", "e", "f", "g", "h", "i"] * 6 + ["a", "b"], None),  # few cells
        (["a;b", "b;a", "a", "b"] * 15 + ["a", "b"], None),  # few labels
    ],
)
def test_of_labels_that_are_whole_none_is_named(tmp_path, labels, separator):
    spec = {"label": {"column": "tags", "separator": separator}, "features": [{"numeric": "age"}]}
    found = bigclf.convert(
        file_of(tmp_path, {**numbers(62), "tags": labels}), tmp_path / "s", format="csv", features=spec
    )
    assert not [text for text in found.warnings if "split there" in text]
