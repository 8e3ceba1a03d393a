"""Why a model says what it says: its largest weights, counts of rows, what moved a score; and rows scored singly."""

import gzip
import json

import numpy as np
import pytest
import scipy.sparse as sp
from making import random_rows, shards_of
from sklearn.datasets import dump_svmlight_file
from test_cli import bigclf, error_of

from bigclf.api.fit import fit
from bigclf.conversion.convert import convert
from bigclf.data.dataset import Dataset
from bigclf.errors import DataError, RunError, SchemaError
from bigclf.model.explanations import explain, explain_row, largest, names_of, stored_row, variances_of
from bigclf.model.model import Model

D = 6


def made(classes=(-1, 1), weights=None, **rest):
    k = 1 if classes is None or len(classes) == 2 else len(classes)
    weights = np.arange(-2.0, D * k - 2).reshape(k, D) if weights is None else np.array(weights, float)
    return Model(weights, np.full(k, 0.5), classes, method={"name": "dcd", "loss": "hinge"}, **rest)


def listed(entries):
    return [(entry["feature"], entry["weight"]) for entry in entries]


def test_the_largest_weights_of_each_class():
    no, yes = explain(made(("no", "yes")), top=2)["classes"]
    assert (no["class"], no["bias"], listed(no["for"])) == ("no", -0.5, [(0, 2.0), (1, 1.0)])
    assert (yes["class"], yes["bias"], listed(yes["for"])) == ("yes", 0.5, [(5, 3.0), (4, 2.0)])
    assert yes["nonzero"] == 5 and yes["against"] == no["against"] == []
    first = explain(made((1, 2, 3)), top=2, only="1")["classes"]
    assert len(first) == 1 and listed(first[0]["for"]) == [(5, 3.0), (4, 2.0)]
    assert listed(first[0]["against"]) == [(0, -2.0), (1, -1.0)]
    (numbers,) = explain(made(None), top=1)["classes"]
    assert numbers["class"] is None and listed(numbers["for"]) == [(5, 3.0)]
    sparse = Model(sp.csc_matrix(made((1, 2, 3)).coef_), np.zeros(3), (1, 2, 3))
    assert [listed(c["for"]) for c in explain(sparse)["classes"]] == [
        listed(c["for"]) for c in explain(made((1, 2, 3)))["classes"]
    ]


def test_the_largest_are_those_of_a_full_sort():
    values = np.random.default_rng(0).integers(-5, 5, 200).astype(float)
    order = sorted(np.flatnonzero(values > 0), key=lambda j: (-values[j], j))
    for top in (0, 1, 7, 60, 500):
        assert largest(values, top) == order[:top]


def test_a_class_that_is_not_there_and_too_many():
    with pytest.raises(ValueError, match="no class 'x'; the classes are '-1', '1'"):
        explain(made(), only="x")
    many = Model(np.zeros((1001, 2)), np.zeros(1001), np.arange(1001))
    with pytest.raises(RunError, match="1,001 classes are too many"):
        explain(many)
    assert explain(many, only=1000)["classes"][0]["nonzero"] == 0
    voted = made()
    voted.method["name"], voted.state = "voted_perceptron", {"0.weights": np.zeros(2)}
    for call in (lambda: explain(voted), lambda: explain_row(voted, {0: 1.0})):
        with pytest.raises(RunError, match="voted perceptron"):
            call()


def test_names_from_a_file_a_list_and_the_model(tmp_path):
    (tmp_path / "lines").write_text("a\nb\nüc\n")
    (tmp_path / "pairs").write_text("5\tyes\n0\tno\n5\tindeed\n")
    assert names_of(made(), tmp_path / "lines").texts([2, 0, 4]) == ["üc", "a", None]
    shared = names_of(made(), tmp_path / "pairs")
    assert shared.texts([5, 0]) == ["yes | indeed", "no"]
    told = explain(made(), top=1, names=tmp_path / "pairs")
    assert len(told["warnings"]) == 1 and "1 feature is shared by several names (collisions)" in told["warnings"][0]
    assert explain(made(), top=1, names=list("abcdef"))["classes"][1]["for"][0]["name"] == "f"
    own = made(features={"kind": "hashed", "names": {"5": ["f", "g"]}})
    assert explain(own, top=1)["classes"][1]["for"][0]["name"] == "f | g"
    nameless = made(features={"kind": "hashed"})
    assert "no dictionary was kept" in explain(nameless)["warnings"][0] and explain(made())["warnings"] == []
    (tmp_path / "bad").write_text("5\tyes\nno\n")
    with pytest.raises(DataError, match="line 2: expected a feature"):
        names_of(made(), tmp_path / "bad")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="UTF-8"):
        names_of(made(), tmp_path / "bytes")


@pytest.mark.parametrize("algo", ["arow", "arow_full", "cw_mc", "sccw", "sccw_full"])
def test_standard_errors_where_the_method_has_variances(algo):
    from bigclf.methods import METHODS

    native = METHODS[algo].all_classes
    n, k = D + 1, 3 if native else 1
    rng = np.random.default_rng(0)
    pairs, whole = rng.random((n, k, 2)) if native else rng.random((n, 2)), rng.random((n, n))
    state = {"0.weights": pairs}
    if algo.endswith("_full"):
        state = {"0.weights": pairs[..., 0], "0.covariance": whole}
        expected = np.tile(np.diagonal(whole)[:-1], (k, 1))
    elif algo == "sccw":
        state = {"0.weights": pairs[..., 0], "0.variances": whole[0]}
        expected = np.tile(whole[0][:-1], (k, 1))
    else:
        expected = pairs[:-1, ..., 1].reshape(D, k).T
    model = made((1, 2, 3)[: max(2, k)], state=state)
    model.method["name"] = algo
    np.testing.assert_array_equal(variances_of(model), expected)
    entry = explain(model, top=1)["classes"][-1]["for"][0]
    assert entry["standard_error"] == np.sqrt(expected[-1, entry["feature"]])
    assert variances_of(made()) is None


def test_variances_of_a_trained_model_fall_where_features_are_seen():
    x, y = random_rows(200, 8)
    x = sp.hstack([x, sp.csr_matrix((200, 1), dtype=np.float32)]).tocsr()  # a feature that no row has
    variances = variances_of(fit(x, y, algo="arow", memory="100MB", progress=False))
    assert variances.shape == (1, 9) and variances[0, 8] == 1 and (variances[0, :8] < 0.9).all()


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Rows, labels, their shards with small row groups, and a model trained on them."""
    x, y = random_rows(300, D, 0.4)
    x = x.tocsr()
    path = tmp_path_factory.mktemp("explaining")
    shards_of(str(path / "s"), x, y, chunk_nnz=100)
    model = fit(x, y, memory="100MB", progress=False, algo="dcd")
    model.save(path / "m")
    return x, y, path, model


def test_counts_are_those_of_the_rows(stored):
    x, y, path, model = stored
    for each in explain(model, data=str(path / "s"))["classes"]:
        for entry in each["for"]:
            has = x[:, [entry["feature"]]].toarray()[:, 0] != 0
            assert entry["rows"] == has.sum() and entry["rows_in_class"] == (has & (y == each["class"])).sum()


def test_what_moved_a_score_adds_up(stored):
    x, y, path, model = stored
    for row in (0, 137, 299):
        features, values, label = stored_row(str(path / "s"), row)
        assert label == y[row] and np.array_equal(features, np.sort(x[row].indices))
        score = model.decision_function(x[row])[0]
        entries = dict(zip(features.tolist(), values.tolist(), strict=True))
        for form in ((features, values), entries, x[row], x[row].toarray()[0]):
            told = explain_row(model, form, top=2)
            sign = 1 if told["prediction"] == 1 else -1
            parts = sum(entry["contribution"] for entry in told["entries"]) + told["others"] + told["bias"]
            assert told["class"] == told["prediction"] == model.predict(x[row])[0]
            assert told["score"] == pytest.approx(sign * score) == pytest.approx(parts)
        assert abs(told["entries"][0]["contribution"]) >= abs(told["entries"][-1]["contribution"])
    assert explain_row(model, {0: 1.0, D + 3: 5.0})["unknown"] == 1
    assert explain_row(model, x[0], only=-1)["score"] == pytest.approx(-model.decision_function(x[0])[0])
    with pytest.raises(ValueError, match="numbered 0 to 299"):
        stored_row(str(path / "s"), 300)


def test_the_command_explains(stored):
    _, _, path, model = stored
    out, _ = bigclf("explain", path / "m", "--top", 3, "--data", path / "s")
    assert "class -1" in out and "class 1" in out and "of the class" in out
    told = json.loads(bigclf("explain", path / "m", "--top", 3, "--class", "1", "--json")[0])
    assert told["classes"] == explain(model, top=3, only=1)["classes"]
    (path / "names").write_text("[red]a[/red]\nb\nc\nd\ne\nf\n")
    out, _ = bigclf("explain", path / "m", "--names", path / "names", "--row", 5, "--data", path / "s")
    assert "row 5: " in out and "score" in out
    assert "[red]a[/red]" in bigclf("explain", path / "m", "--names", path / "names")[0]  # as it is, no markup
    told = json.loads(bigclf("explain", path / "m", "--row", 5, "--data", path / "s", "--json")[0])
    assert told["row"] == 5 and told["label"] in (-1, 1)
    assert "--data DATA" in error_of("explain", path / "m", "--row", 5, code=2)
    assert "no class '7'" in error_of("explain", path / "m", "--class", 7, code=2)


def test_a_row_of_text_is_explained_as_that_of_shards(stored, tmp_path):
    x, y, path, model = stored
    text, packed = tmp_path / "rows.svm", tmp_path / "rows.svm.gz"
    dump_svmlight_file(x, y, str(text), zero_based=False)
    packed.write_bytes(gzip.compress(text.read_bytes()))
    (tmp_path / "rows.dat").write_bytes(text.read_bytes())
    for data, row in ((text, 0), (packed, 299), (tmp_path / "rows.dat", 137)):
        told = json.loads(bigclf("explain", path / "m", "--row", row, "--data", data, "--json")[0])
        there = json.loads(bigclf("explain", path / "m", "--row", row, "--data", path / "s", "--json")[0])
        assert told["label"] == y[row] and told["score"] == there["score"] and told["entries"] == there["entries"]
    told = json.loads(bigclf("explain", path / "m", "--row", 304, "--data", text, "--data", packed, "--json")[0])
    assert told["label"] == y[4]  # of the second file
    assert "numbered 0 to 299" in error_of("explain", path / "m", "--row", 300, "--data", text, code=2)
    (tmp_path / "own_rows.py").write_text(OWN_READER)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        told = bigclf("explain", path / "m", "--row", 2, "--data", text, "--format", "own_rows:read", "--json")[0]
    assert json.loads(told)["label"] == y[2]
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    told = error_of("explain", path / "m", "--row", 0, "--data", tmp_path / "t.csv", "--format", "csv", code=2)
    assert "trained on sparse rows" in told


def test_features_are_shown_with_the_numbers_that_the_text_has(tmp_path):
    """svmlight counts from 1, arrays and what Python gets from 0; of older shards nothing is known."""
    text, lists = tmp_path / "t.svm", tmp_path / "l.svm"
    text.write_text("1 3:2\n-1 6:1\n1 1:1\n")
    lists.write_text("1,2 3:2\n2 6:1\n")
    rows = convert(text, tmp_path / "s", workers=1)
    convert(lists, tmp_path / "l", several_labels=True)
    told = [Dataset(str(tmp_path / name)).features.get("counted_from") for name in ("s", "s/*.parquet", "l")]
    assert told == [1, 1, 1] and "from 1" in bigclf("inspect", tmp_path / "l")[0]
    assert convert(text, tmp_path / "zero", index_base=0, workers=1).features["counted_from"] == 0
    with pytest.raises(SchemaError, match="counts features from 0, and the new one is read as from 1"):
        convert(text, tmp_path / "zero", append=True, workers=1)
    made(features=rows.features).save(tmp_path / "m")
    (tmp_path / "names").write_text("6\tsix\n")
    (tmp_path / "none").write_text("0\tnone\n")
    told = json.loads(bigclf("explain", tmp_path / "m", "--names", tmp_path / "names", "--json")[0])
    best = told["classes"][1]["for"][0]
    assert (best["feature"], best["number"], best["name"]) == (5, 6, "six")
    (table,) = [line for line in bigclf("explain", tmp_path / "m", "--class", 1)[0].splitlines() if "+3" in line]
    row = bigclf("explain", tmp_path / "m", "--row", 0, "--data", text)[0]
    assert table.split() == ["+3", "6"] and ["+0", "+0", "2", "3"] in [line.split() for line in row.splitlines()]
    bigclf("report", tmp_path / "m", "-o", tmp_path / "r.html")
    assert ">6</td>" in (tmp_path / "r.html").read_text()
    assert "number from 1" in error_of("explain", tmp_path / "m", "--names", tmp_path / "none", code=3)
    before = shards_of(str(tmp_path / "old"), *random_rows(9, D))
    grown = convert(text, tmp_path / "old", append=True, workers=1)
    assert grown.features == before.features == {"kind": "given", "version": 1}


OWN_READER = """
def read(line):
    label, *entries = line.split()
    pairs = [entry.split(b":") for entry in entries]
    return float(label), [int(index) - 1 for index, _ in pairs], [float(value) for _, value in pairs]
"""


def test_the_commands_export_and_import(stored):
    x, _, path, model = stored
    told = json.loads(bigclf("export", path / "m", path / "t.txt", "--to", "liblinear", "--json")[0])
    assert told["files"] == [str(path / "t.txt")] and told["bytes"] == (path / "t.txt").stat().st_size
    assert "LIBLINEAR's L2R_L1LOSS_SVC_DUAL" in bigclf("import", path / "t.txt", path / "again")[0]
    from bigclf.model.model import load

    assert np.array_equal(load(path / "again").decision_function(x), model.decision_function(x))
    assert "exists" in error_of("import", path / "t.txt", path / "again", code=1)
    assert "exists" in error_of("export", path / "m", path / "t.txt", "--to", "liblinear", code=1)
    assert "scorer.py and" in bigclf("export", path / "m", path / "scorer.py", "--to", "numpy")[0]
    assert "liblinear only" in error_of("export", path / "m", path / "x", "--to", "onnx", "--codes", code=2)
    (path / "bad.txt").write_text("solver_type L2R_LR\nnr_class 2\nlabel 1 -1\nnr_feature -1\nbias -1\nw\n")
    assert "nr_feature" in error_of("import", path / "bad.txt", path / "y", code=3)


# One row at a time

KINDS = {
    "two": made(), "three": made((1, 2, 3)), "numbers": made(None),
    "sparse": Model(sp.csc_matrix(made((1, 2, 3)).coef_), np.ones(3), (1, 2, 3)),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_scorer_says_what_the_model_says(kind):
    model, x = KINDS[kind], random_rows(20, D, 0.4)[0]
    scorer = model.scorer()
    for i in range(x.shape[0]):
        row = x[i]
        entries = dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))
        for form in (entries, (row.indices, row.data), row, row.toarray()[0]):
            np.testing.assert_allclose(scorer(form), model.decision_function(row)[0], rtol=1e-12, atol=1e-12)
            said = model.predict(row)[0]
            assert scorer.predict(form) == (said if not model.regression else pytest.approx(said))
    assert isinstance(scorer({}), float) == (model.intercept_.size == 1)
    for strange in ({D: 1.0}, {-1: 1.0}, {2**40: 1.0}):
        with pytest.raises(ValueError, match="1 of the row's features are none"):
            scorer(strange)
        np.testing.assert_array_equal(model.scorer(unseen="ignore")(strange), scorer({}))
    with pytest.raises(ValueError, match="do not go together"):
        scorer(([0, 1], [1.0]))
    with pytest.raises(ValueError, match="one row"):
        scorer(x[:2])
    with pytest.raises(AttributeError, match="logistic|numbers"):
        scorer.probabilities({})


def test_a_scorer_of_probabilities_and_of_votes():
    model = made((1, 2, 3))
    model.method["loss"] = "logistic"
    row = {0: 0.25, 3: -0.1}
    x = np.array([[0.25, 0, 0, -0.1, 0, 0]])
    np.testing.assert_allclose(model.scorer().probabilities(row), model.predict_proba(x)[0])
    x, y = random_rows(40, D)
    voted = fit(x, y, algo="voted_perceptron", epochs=1, memory="100MB", progress=False)
    assert [voted.scorer()(x[i]) for i in range(5)] == voted.decision_function(x[:5]).tolist()


@pytest.mark.parametrize("hash_bits", [12, 3])
def test_what_is_listed_for_a_class_speaks_for_it(hash_bits):
    """Half of all hashed names stand in rows with the sign turned; what is said of a name must not be. A row of one
    name alone says on which side it is."""
    import bigclf

    good, bad = [f"good{k}" for k in range(10)], [f"bad{k}" for k in range(10)]
    table = {"town": [*good, *bad] * 20, "y": (["yes"] * 10 + ["no"] * 10) * 20}
    features = {"label": "y", "hash_bits": hash_bits, "features": [{"categorical": "town", "encode": "hashed"}]}
    model = bigclf.fit(table, features=features, memory="100MB", progress=False)
    signs = set()
    for each in explain(model)["classes"]:
        for entry in each["for"]:
            town = entry["name"].partition(" | ")[0].removeprefix("town=")
            ((_, block),) = model.raw_blocks({"town": [town]})
            told = explain_row(model, (block.indices, block.values), only=each["class"])["entries"][0]
            assert told["weight"] == entry["weight"] and told["value"] == 1
            assert told["contribution"] == entry["weight"] > 0
            if hash_bits == 12:
                assert (town in good) == (each["class"] == "yes")
            signs.add(float(block.values[0]))
    assert signs == {1.0, -1.0}


def test_columns_bring_their_names(tmp_path):
    """Of a model of raw columns every feature has a name; hashed ones say what shares their place."""
    import pandas as pd

    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(18, 90, 200), "job": rng.choice(["cook", "smith"], 200),
                          "town": [f"town {k}" for k in rng.integers(0, 400, 200)]})  # fmt: skip
    table["y"] = np.where(table.job == "cook", "yes", "no")
    table.to_csv(tmp_path / "t.csv", index=False)
    features = [{"numeric": "age"}, {"categorical": "job"}, {"categorical": "town", "encode": "hashed"}]
    spec = {"label": "y", "hash_bits": 10, "features": features}
    model = fit(table, features=spec, memory="100MB", progress=False, bias=None)
    yes = explain(model, only="yes", top=3)["classes"][0]
    assert yes["for"][0]["name"] == "job=cook" and yes["against"] == []
    found = names_of(model)
    assert found.texts([0]) == ["age"] and found.all_of(model.n_features - 1)
    shared = [j for j in range(model.n_features) if len(found.all_of(j)) > 1]
    assert shared and " | " in found.text(shared[0])
    assert "features are shared by several names" in found.warnings(shared)[0]
    told = found.warnings()[-1]
    assert "share their index" in told and "--hash-bits 12 (hash_bits: 12 in a spec)" in told
    model.save(tmp_path / "m")
    told = json.loads(bigclf("explain", tmp_path / "m", "--data", tmp_path / "t.csv", "--row", 7, "--json")[0])
    assert f"job={table.job[7]}" in [entry["name"] for entry in told["entries"]]
    told = json.loads(bigclf("explain", tmp_path / "m", "--data", tmp_path / "t.csv", "--class", "yes", "--json")[0])
    assert told["classes"][0]["for"][0]["rows"] == (table.job == "cook").sum()
    bigclf("report", tmp_path / "m", "-o", tmp_path / "r.html", "--data", tmp_path / "t.csv")
    assert "job=cook" in (tmp_path / "r.html").read_text()
    assert "numbered 0 to 199" in error_of(
        "explain", tmp_path / "m", "--data", tmp_path / "t.csv", "--row", 200, code=2
    )


def test_what_a_terminal_would_obey_is_written_out():
    from bigclf.cli.shared.terminal import printable

    assert printable("\x1b]0;x\x07\u202eab é 日本") == r"\x1b]0;x\x07\u202eab é 日本"
