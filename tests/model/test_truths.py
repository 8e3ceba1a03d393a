"""A column of truths is the same column, whichever way a format writes true and false."""

import csv
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from model.test_c import Compiled

import bigclf
from bigclf.features.truths import apart, as_one, meant, others, places
from bigclf.model.exports.table_rows import number_of

QUIET = {"progress": False, "algo": "dcd", "tol": 1e-2}


def frame(n=120):
    rng = np.random.default_rng(3)
    a, b = rng.random((2, n)) < 0.5
    kind = rng.choice(["u", "v"], n)
    return pd.DataFrame({"a": a, "b": b, "kind": kind, "y": np.where(a ^ (kind == "u") & b, "yes", "no")})


def written(table, folder, words):
    """The same rows in each format: CSV with these words, JSON lines, Parquet."""
    texts = table.copy()
    for name in ("a", "b"):
        texts[name] = np.where(table[name], *words)
    texts.to_csv(folder / "r.csv", index=False)
    table.to_json(folder / "r.jsonl", orient="records", lines=True)
    table.to_parquet(folder / "r.parquet")
    return folder / "r.csv", folder / "r.jsonl", folder / "r.parquet"


@pytest.mark.parametrize("encode", ["exact", "hashed"])
@pytest.mark.parametrize("learned, words", [(0, ("True", "False")), (2, ("TRUE", "FALSE")), (2, ("1", "0"))])
def test_a_model_of_one_format_scores_the_others(tmp_path, caplog, learned, words, encode):
    files = written(frame(), tmp_path, words)
    how = {"encode": encode}
    spec = {"label": "y", "features": [{"categorical": ["a", "kind"], **how}, {"cross": ["a", "b", "kind"], **how}]}
    model = bigclf.fit(files[learned], features=spec, **QUIET)
    expected = model.decision_function(files[learned])
    assert np.unique(expected).size == 8
    for rows in (*files, frame()):
        np.testing.assert_array_equal(model.decision_function(rows), expected)
    accuracy = {bigclf.evaluate(model, rows).accuracy for rows in files}
    assert len(accuracy) == 1 and min(accuracy) > 0.9 and not caplog.messages
    model.export(tmp_path / "m.c", "c")
    model.export(tmp_path / "m.py", "numpy")
    compiled = Compiled(tmp_path / "m.c", 1)
    with open(files[0], newline="") as file:
        records = list(csv.DictReader(file))
    scores = [compiled.scores([one[name] for name in ("a", "kind", "b")])[1][0] for one in records]
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    code = "import csv, m; print(*m.decision_function(list(csv.DictReader(open('r.csv')))).tolist())"
    said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    np.testing.assert_allclose(list(map(float, said.stdout.split())), expected, rtol=1e-12)


def test_hashed_truths_are_known_by_the_names_that_were_kept(tmp_path):
    """Where not all names were kept, 1 and 0 may be categories whose names were not."""
    table = frame()
    files = written(table, tmp_path, ("True", "False"))
    kept = {"label": "y", "features": [{"categorical": ["a", "kind"], "encode": "hashed"}], "names": 2, "hash_bits": 12}
    model = bigclf.fit(files[0], features=kept, **QUIET)
    expected = model.decision_function(files[0])
    for rows in files[1:]:
        np.testing.assert_array_equal(model.decision_function(rows), expected)
    digits = written(table, tmp_path, ("1", "0"))[0]
    assert (model.decision_function(digits) != expected).any()
    known = bigclf.fit(files[1], features=kept | {"names": 3}, **QUIET)
    np.testing.assert_array_equal(known.decision_function(digits), known.decision_function(files[1]))


def test_a_column_of_numbers_takes_truths_where_it_holds_nothing_else(tmp_path):
    files = written(frame(), tmp_path, ("True", "False"))
    model = bigclf.fit(files[2], features={"label": "y", "features": [{"numeric": ["a", "b"]}]}, **QUIET)
    expected = model.decision_function(files[2])
    for rows in files:
        np.testing.assert_array_equal(model.decision_function(rows), expected)
    text = files[0].read_text().splitlines()
    text[5] = text[5].replace("True", "7").replace("False", "7")
    files[0].write_text("\n".join(text))
    with pytest.raises(bigclf.errors.DataError, match="column a: 'True' is not a number|column a: 'False' is not"):
        model.decision_function(files[0])


def test_evaluate_names_categories_that_are_not_known(tmp_path, caplog):
    files = written(frame(), tmp_path, ("yes", "no"))
    spec = {"label": "y", "features": [{"categorical": ["a", "kind"]}]}
    model = bigclf.fit(files[2], features=spec, **QUIET)
    bigclf.evaluate(model, files[0])
    assert [one for one in caplog.messages if "column a: 120 cells (" in one and "'yes'" in one]


def test_what_a_text_may_stand_for():
    assert list(meant("TRUE")) == ["true", "True"] and list(meant("0")) == ["false", "False", "FALSE"]
    assert list(meant("x")) == [] and "u&true" in meant("u&1")
    assert others(["True", "1", "x"]) == {"true": "True", "TRUE": "True"}  # what is known stays what it is
    assert others(["1", "0"]) == {}  # codes
    assert others(["True", "true"]) == {"TRUE": "true", "1": "true"}
    assert others(["True&1"]) == {"1&1": "True&1", "TRUE&1": "True&1", "true&1": "True&1"}
    assert others(["1&0"]) == {}


@pytest.mark.parametrize("encode", ["exact", "hashed"])
def test_truths_cross_codes_of_1_and_0(tmp_path, encode):
    table = frame().drop(columns="kind").assign(b=lambda rows: rows["b"].astype(int))
    texts = table.assign(a=np.where(table["a"], "True", "False"))
    spec = {"label": "y", "features": [{"cross": ["a", "b"], "encode": encode}]}
    model = bigclf.fit(texts, features=spec, **QUIET)
    expected = model.decision_function(texts)
    assert np.unique(expected).size == 4
    for rows in (table, table.assign(a=np.where(table["a"], "TRUE", "FALSE")), table.assign(a=table["a"].astype(int))):
        np.testing.assert_array_equal(model.decision_function(rows), expected)
    model.export(tmp_path / "m.py", "numpy")
    code = ("import m; rows = [{'a': a, 'b': b} for a in ('True', 'true', '1', 'FALSE') for b in '10'];"
            "print(*m.decision_function(rows).tolist())")  # fmt: skip
    said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    told = np.array(list(map(float, said.stdout.split()))).reshape(4, 2)
    np.testing.assert_array_equal(told[0], told[1])
    np.testing.assert_array_equal(told[0], told[2])
    np.testing.assert_allclose(np.unique(told), np.unique(expected), rtol=1e-12)


def test_a_scorer_of_single_rows_takes_truths_as_numbers():
    assert [number_of(text, set(), ".") for text in ("True", "FALSE", "1", "0")] == [1, 0, 1, 0]


def labelled(folder):
    """The same rows whose label is a truth, as CSV of each spelling, of digits, as JSON lines and as Parquet."""
    table = frame().assign(y=lambda rows: rows["y"] == "yes")
    made = {}
    for name, (yes, no) in {"Py": ("True", "False"), "UP": ("TRUE", "FALSE"), "digits": ("1", "0")}.items():
        made[name] = folder / f"{name}.csv"
        table.assign(y=np.where(table["y"], yes, no)).to_csv(made[name], index=False)
    table.to_json(folder / "r.jsonl", orient="records", lines=True)
    table.to_parquet(folder / "r.parquet")
    return [*made.values(), folder / "r.jsonl", folder / "r.parquet"]


LABEL_SPEC = {"label": "y", "features": [{"cross": ["a", "b", "kind"]}]}


def test_labels_that_are_truths_are_the_same_in_every_format(tmp_path):
    files = labelled(tmp_path)
    for learned in files:
        model = bigclf.fit(learned, features=LABEL_SPEC, **QUIET)
        right = bigclf.evaluate(model, learned)
        assert right.accuracy > 0.9
        for rows in files:
            found = bigclf.evaluate(model, rows)
            assert (found.correct, found.confusion, found.unknown) == (right.correct, right.confusion, {})
            probabilities = [bigclf.calibrate(model, one).predict_proba(learned) for one in (rows, learned)]
            np.testing.assert_array_equal(*probabilities)
            if rows.suffix != learned.suffix:
                continue
            counted = model.explain(data=bigclf.convert(rows, tmp_path / "c", features=model, overwrite=True))
            assert all(entry["rows_in_class"] for one in counted["classes"] for entry in one["for"])


@pytest.mark.filterwarnings("ignore::bigclf.errors.ConvergenceWarning")
@pytest.mark.parametrize("learned, other", [(0, 4), (4, 0), (1, 3), (0, 1), (2, 4), (2, 0)])
def test_runs_take_truths_of_another_format(tmp_path, learned, other):
    files = labelled(tmp_path)
    mine, theirs = files[learned], files[other]
    told = [bigclf.fit(mine, features=LABEL_SPEC, validate=one, **QUIET).facts["validation"] for one in (mine, theirs)]
    assert told[0] == told[1] and told[0]["accuracy"] > 0.9
    grid = {"grid": {"C": [0.1, 1.0]}, "folds": 0, "progress": False, "algo": "dcd", "epochs": 3}
    tables = [bigclf.sweep(mine, features=LABEL_SPEC, validate=one, **grid).table for one in (mine, theirs)]
    assert [row["mean"] for row in tables[0]] == [row["mean"] for row in tables[1]]
    numbers = {"label": "y", "features": [{"numeric": ["a", "b"]}, {"categorical": ["kind"]}]}
    further = []
    for one in (mine, theirs):
        init = bigclf.fit(one, features=numbers, algo="newton", epochs=1, progress=False)
        further.append(bigclf.fit(theirs, features=numbers, init=init, algo="newton", epochs=2, progress=False))
    assert further[0].classes_.tolist() == further[1].classes_.tolist()
    np.testing.assert_array_equal(further[0].coef_, further[1].coef_)
    assert further[0].facts["epochs"] == further[1].facts["epochs"]


def test_a_label_is_named_by_any_spelling_of_a_truth():
    assert places(["False", "True"], [True, False, "TRUE", "0", 1, "maybe", 2]) == [1, 0, 1, 0, 1, -1, -1]
    assert places([False, True], ["true", "False", 0, "yes"]) == [1, 0, 0, -1]
    assert places([0, 1], ["true", "1", True]) == [1, -1, 1]
    assert places([0, 1, 2], ["true"]) == [-1]  # codes
    assert places(["True", "true"], ["true", "TRUE"]) == [1, 1]
    rows = frame().assign(y=lambda table: table["y"] == "yes")
    model = bigclf.fit(rows, features=LABEL_SPEC, class_weight={"true": 2.0}, **QUIET)
    assert [one["class"] for one in model.explain(only="true")["classes"]] == [True]
    with pytest.raises(ValueError, match="no class 'maybe'"):
        model.explain(only="maybe")
    for one, other in (("True", "true"), (True, "TRUE"), ("False", "false")):
        with pytest.raises(ValueError, match=f"class_weight names {one!r} and {other!r}, which are one class"):
            bigclf.fit(rows, features=LABEL_SPEC, class_weight={one: 2.0, other: 2.0}, **QUIET)


def test_rows_that_are_appended_have_the_truths_that_are_there(tmp_path):
    files = labelled(tmp_path)
    for number, rows in enumerate(files[1:3]):
        made = bigclf.convert(files[0], tmp_path / str(number), features={**LABEL_SPEC, "label": TEXT})
        more = bigclf.convert(rows, tmp_path / str(number), features=made, append=True)
        assert more.classes.tolist() == ["False", "True"]
        assert more.class_counts.tolist() == [2 * count for count in made.class_counts.tolist()]


TEXT = {"column": "y", "type": "text"}


def of_labels(folder, name, labels, n=24):
    """A CSV whose rows have these labels in turn, spread so that a model can tell them apart."""
    rows = [f"{k % len(labels)}.{k:02d},{labels[k % len(labels)]}" for k in range(n)]
    (folder / name).write_text("\n".join(["x,y", *rows, ""]))
    return folder / name


NUMBERED = {"label": "y", "features": [{"numeric": ["x"]}]}
NO_NUMBER = "column y: 'true' is not a number"


@pytest.mark.parametrize("labels", [("1", "-1"), ("1", "2", "3"), ("1.5", "0"), ("0", "1", "2")])
def test_words_are_no_labels_beside_other_numbers_than_1_and_0(tmp_path, labels):
    numbers, words = of_labels(tmp_path, "n.csv", labels), of_labels(tmp_path, "w.csv", ("true", "false"))
    table = pd.DataFrame({"x": [0.5, 1.5], "y": [True, False]})
    table.to_parquet(tmp_path / "w.parquet")
    made = bigclf.convert(numbers, tmp_path / "d", features=NUMBERED)
    model = bigclf.fit(made, algo="newton", progress=False)
    found = made.classes.tolist()
    refused = pytest.raises(bigclf.errors.DataError, match=NO_NUMBER)
    with refused as caught:
        bigclf.convert([numbers, words], tmp_path / "e", features=NUMBERED)
    assert (caught.value.file, caught.value.line) == (str(words), 2) and not (tmp_path / "e").exists()
    with refused:
        bigclf.convert(words, tmp_path / "d", features=made, append=True)
    assert bigclf.Dataset(tmp_path / "d").classes.tolist() == found
    with refused:
        bigclf.evaluate(model, words)
    with pytest.raises(bigclf.errors.DataError, match="column y: 'True' is not a number"):
        bigclf.evaluate(model, tmp_path / "w.parquet")
    with pytest.raises(bigclf.errors.DataError, match="column y: 'True' is not a number"):
        bigclf.evaluate(model, table)
    with refused:
        bigclf.fit(numbers, features=NUMBERED, validate=words, **QUIET)
    with pytest.raises(bigclf.errors.DataError, match="column y: 'True' is not a number"):
        bigclf.fit(table.assign(y=["True", "7"]),
                   features={**NUMBERED, "label": {"column": "y", "type": "number"}}, **QUIET)  # fmt: skip


def test_words_beside_a_number_that_comes_later_are_left_out_where_that_was_asked_for(tmp_path):
    each = [("1", "0"), ("true", "false"), ("1", "2")]
    files = [of_labels(tmp_path, f"{k}.csv", labels) for k, labels in enumerate(each)]
    made = bigclf.convert(files, tmp_path / "d", features=NUMBERED, on_bad_rows="quarantine", max_bad_fraction=0.5)
    assert made.classes.tolist() == [0, 1, 2] and made.n_rows == 48 and made.report["bad_rows"] == 24
    assert (tmp_path / "d" / "_bigclf_quarantine.txt").read_text().count("true' is not a number") == 12
    mixed = of_labels(tmp_path, "m.csv", ("1", "false", "0", "True"))  # a word is a label in whatever piece it stands
    found = bigclf.convert([files[0], mixed, files[1]], tmp_path / "m", features=NUMBERED)
    assert found.classes.tolist() == [0, 1] and found.class_counts.tolist() == [36, 36]


@pytest.mark.parametrize("order", [1, -1])
def test_spellings_of_truths_in_one_conversion_are_one_class(tmp_path, order):
    each = [("true", "false"), ("TRUE", "FALSE"), ("1", "0")]
    files = [of_labels(tmp_path, f"{k}.csv", labels) for k, labels in enumerate(each)]
    made = bigclf.convert(files[:2][::order], tmp_path / "two", features=NUMBERED)
    assert made.classes.tolist() == ["false", "true"] and made.class_counts.tolist() == [24, 24]
    made = bigclf.convert(files[::order], tmp_path / "all", features=NUMBERED)
    assert made.classes.tolist() == ([0, 1] if order < 0 else ["false", "true"])
    assert made.class_counts.tolist() == [36, 36]
    model = bigclf.fit(files[::order], features=NUMBERED, algo="newton", progress=False)
    assert {bigclf.evaluate(model, rows).accuracy for rows in [files, *files]} == {1.0}
    table = pd.concat([pd.read_csv(path, dtype={"y": str}) for path in files])
    assert bigclf.fit(table, features=NUMBERED, **QUIET).classes_.tolist() == ["false", "true"]


def test_spellings_of_truths_beside_other_labels_are_told_of(tmp_path):
    files = [of_labels(tmp_path, f"{yes}.csv", (yes, "no")) for yes in ("true", "True")]
    made = bigclf.convert(files, tmp_path / "d", features=NUMBERED)
    assert made.classes.tolist() == ["True", "no", "true"]
    assert [text for text in made.warnings if text.startswith("column y: 'true' and 'True' are classes of their own")]
    first = bigclf.convert(files[0], tmp_path / "e", features=NUMBERED)
    more = bigclf.convert(files[1], tmp_path / "e", features=first, append=True)
    assert more.classes.tolist() == ["no", "true"] and not [text for text in more.warnings if "own" in text]
    words = bigclf.convert(of_labels(tmp_path, "w.csv", ("true", "false")), tmp_path / "w", features=NUMBERED)
    with pytest.raises(bigclf.errors.SchemaError, match="labels there are true and false, and the new ones '1' beside"):
        bigclf.convert(of_labels(tmp_path, "n.csv", ("1", "-1")), tmp_path / "w", features=words, append=True)


def test_how_labels_are_written_as_one():
    assert as_one(["TRUE", "True", "0", "false"]) == ["True", "True", "false", "false"]
    assert as_one(["1", "0"]) == ["1", "0"] and as_one(["true", "True", "maybe"]) == ["true", "True", "maybe"]
    assert as_one(["true", "True", "0"], ["True", "FALSE"]) == ["True", "True", "FALSE"]
    assert as_one(["true", "True"], ["true", "True"]) == ["true", "True"]  # as a model knows them
    assert apart(["True", "1", "no", "false", "0"]) == [["True", "1"], ["false", "0"]]


SETS = {"label": {"column": "tags", "separator": ";"}, "features": [{"numeric": ["x"]}]}


def of_sets(folder, name, cells, n=24):
    """A CSV whose rows have these cells of several labels in turn."""
    rows = [f"{k % len(cells)}.{k:02d},{cells[k % len(cells)]}" for k in range(n)]
    (folder / name).write_text("\n".join(["x,tags", *rows, ""]))
    return folder / name


def test_a_row_with_a_truth_in_two_spellings_has_that_label_once(tmp_path, caplog):
    plain = of_sets(tmp_path, "a.csv", ("true", "", "sport;true", "sport"))
    twice = of_sets(tmp_path, "b.csv", ("true;True", "", "TRUE;sport", "sport"))
    model = bigclf.fit(plain, features=SETS, algo="lbfgs", progress=False)
    expected, found = (bigclf.evaluate(model, rows) for rows in (plain, twice))
    assert found.precision_at == expected.precision_at and found.f1 == expected.f1 and found.unknown == {}
    assert found.coverage_error == expected.coverage_error and found.notes == []
    assert found.subset_accuracy == expected.subset_accuracy and found.mean_labels == expected.mean_labels == 1.0
    lists = [["true", "True", "other"], [], ["TRUE", "sport"], ["sport"]] * 6
    table = pd.read_csv(plain)[["x"]]
    told = bigclf.evaluate(model, table, lists)
    assert (told.precision_at, told.f1, told.unknown) == (expected.precision_at, expected.f1, {"other": 6})


def test_sets_of_labels_that_are_appended_have_the_truths_that_are_there(tmp_path):
    first, other = ("true", "", "sport;true", "false"), ("True;TRUE", "", "True;sport", "FALSE;new")
    made = bigclf.convert(of_sets(tmp_path, "a.csv", first), tmp_path / "d", features=SETS)
    more = bigclf.convert(of_sets(tmp_path, "b.csv", other), tmp_path / "d", features=made, append=True)
    assert more.classes.tolist() == ["false", "new", "sport", "true"]
    assert more.class_counts.tolist() == [12, 6, 12, 24]


@pytest.mark.parametrize("cells", [("true", "maybe", "false"), ("true", "maybe")])
@pytest.mark.parametrize("several", [False, True])
def test_init_with_truths_that_sort_elsewhere_begins_with_the_weights_of_each_class(tmp_path, cells, several):
    other = [{"true": "True", "false": "False"}.get(cell, cell) for cell in cells]  # they come before maybe
    write, spec = (of_sets, SETS) if several else (of_labels, NUMBERED)
    how = {"features": spec, "algo": "newton", "progress": False}
    mine, theirs = write(tmp_path, "a.csv", cells), write(tmp_path, "b.csv", other)
    models = [bigclf.fit(rows, epochs=40, tol=1e-9, **how) for rows in (mine, theirs)]
    assert models[0].classes_.tolist() == sorted(cells) and models[1].classes_.tolist() == sorted(other)
    further = [bigclf.fit(theirs, init=init, tol=1e-6, **how) for init in models]
    assert further[0].classes_.tolist() == sorted(other)
    epochs = [model.facts["epochs"] for model in (*further, bigclf.fit(theirs, tol=1e-6, **how))]
    assert epochs[0] == epochs[1] < epochs[2]
    np.testing.assert_allclose(further[0].coef_, further[1].coef_, atol=1e-4)
