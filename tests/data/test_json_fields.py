"""Files written by a writer that was wrong, with right checksums: each field is checked, and named where it is not."""

import copy
import json
import re

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy

import bigclf
from bigclf.cli.inspect import _sweep
from bigclf.conversion.convert import convert, write_shards
from bigclf.conversion.tables.reading import reading
from bigclf.data import shards
from bigclf.data.dataset import MANIFEST, Dataset
from bigclf.errors import BigclfError, DataError, ModelFormatError, SchemaError
from bigclf.features.spec import parse
from bigclf.files import json_fields
from bigclf.files.json_fields import FieldError, check_fields, optional, or_none
from bigclf.methods import METHODS
from bigclf.model.model import load, read_tensors

WRONG = (None, True, -1, 1.5, "x", [], {}, 2**70, float("nan"))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


# The checker


def test_what_fields_take():
    whole, number, flag = json_fields.whole(1, 9), json_fields.number(0), json_fields.FLAG
    assert [whole.takes(v) for v in (1, 9, 0, 10, True, 1.0, "1", None)] == [True] * 2 + [False] * 6
    wrong = (-1, True, float("nan"), float("inf"), 2**2000)
    assert number.takes(0) and number.takes(1.5) and not any(map(number.takes, wrong))
    assert json_fields.number(infinite=True).takes(float("inf"))
    assert not json_fields.number(infinite=True).takes(float("nan"))
    assert flag.takes(False) and not flag.takes(0) and not flag.takes("x")
    assert json_fields.text("a", "b").takes("b") and not json_fields.text("a", "b").takes("c")
    pairs = json_fields.list_of(json_fields.tuple_of(whole, json_fields.text()))
    assert pairs.takes([[1, "a"], [2, "b"]]) and not pairs.takes([[1]]) and not pairs.takes([["a", 1]])
    labels = json_fields.LABELS
    assert or_none(whole).takes(None) and not labels.takes([1, "a"]) and labels.takes([0.5, 1.5])


def test_the_first_wrong_field_is_named():
    fields = {"a": json_fields.whole(), "b": optional(json_fields.text())}
    check_fields({"a": 1, "of a newer version": []}, fields)
    with pytest.raises(FieldError, match="field 'a' is missing; it must be a whole number from 0"):
        check_fields({"b": ""}, fields)
    with pytest.raises(FieldError, match="field 'm.b' must be a text, not None"):
        check_fields({"a": 1, "b": None}, fields, "m")
    with pytest.raises(FieldError, match="field 'm' must be a table, not 3"):
        check_fields(3, fields, "m")
    with pytest.raises(FieldError, match="field 'c' must be small"):
        json_fields.check_relations([(True, "b", "large"), (False, "c", "small")])


# Data sets


def weighted_shards(directory):
    """Two shards of rows with weights, some of them 0."""
    rng = np.random.default_rng(0)
    blocks = []
    for _ in range(2):
        indices = np.sort(rng.permuted(np.tile(np.arange(9, dtype=np.int32), (20, 1)), axis=1)[:, :3], axis=1)
        values, labels = rng.normal(size=60).astype(np.float32), rng.integers(0, 2, 20).astype(float)
        blocks.append((np.arange(21) * 3, indices.ravel(), values, labels, np.repeat([0.0, 1.5], 10)))
    return write_shards(blocks, directory, classes=[0, 1])


def plain_shards(directory):
    (directory.parent / "r.svm").write_text("".join(f"{i % 2} {i % 7 + 1}:1 {i % 5 + 9}:1\n" for i in range(40)))
    return convert(directory.parent / "r.svm", directory)


MADE = {"weighted": weighted_shards, "all values 1": plain_shards}


def meaning(rows):
    """All of a data set that training can take up."""
    known = rows._known
    arrays = [*known.chunks, known.zero_weight]
    return known.facts, known.layout, known.features, [array.tolist() for array in arrays]


@pytest.mark.parametrize("kind", MADE)
def test_every_field_of_a_manifest_is_checked(tmp_path, kind):
    """``binary: "x"`` changed the model in silence, others raised TypeErrors; the shards know better."""
    MADE[kind](tmp_path / "s")
    manifest = tmp_path / "s" / MANIFEST
    right, known = shards.unsealed(manifest.read_text()), meaning(Dataset(tmp_path / "s"))
    for name in right:
        for wrong in WRONG:
            if wrong == right[name] and type(wrong) is type(right[name]):
                continue
            manifest.write_bytes(shards.sealed({**right, name: wrong}))
            rows = Dataset(tmp_path / "s")
            assert meaning(rows) == known, (name, wrong)
            silent = (name, wrong) in [("files", []), ("conversion", {})]  # of other files, or none
            assert silent or f"'{name}" in "".join(rows.damaged), (name, wrong, rows.damaged)


def test_a_manifest_that_contradicts_few_shards_is_not_believed(tmp_path):
    """Values that could be right are compared with the footers."""
    weighted_shards(tmp_path / "s")
    manifest = tmp_path / "s" / MANIFEST
    right, known = shards.unsealed(manifest.read_text()), meaning(Dataset(tmp_path / "s"))
    counts = right["class_counts"]
    lies = {"n_features": 10, "max_norm": 2.0**70, "weight_sum": 7.0, "label_changes": 1, "row_constant": True,
            "class_counts": [counts[0] + 1, counts[1] - 1], "features": {"kind": "given", "version": 2},
            "layout": ["indices", None, "label", "weight", None], "index_width": 8, "label_dtype": "int32"}  # fmt: skip
    for name, lie in lies.items():
        manifest.write_bytes(shards.sealed({**right, name: lie}))
        rows = Dataset(tmp_path / "s")
        assert meaning(rows) == known and f"field '{name}' must be" in "".join(rows.damaged), name


@pytest.mark.parametrize("kind", MADE)
def test_every_field_of_a_footer_is_checked(tmp_path, kind, monkeypatch):
    made = MADE[kind](tmp_path / "s")
    path, known = made.files[0], meaning(Dataset(made.files[:1]))
    (tmp_path / "s" / MANIFEST).unlink()
    claims = shards.claims(path)
    right = shards.unsealed(claims.pairs[shards.KEY])
    for name in right:
        for wrong in WRONG:
            pairs = {**claims.pairs, shards.KEY: shards.sealed({**right, name: wrong})}
            monkeypatch.setattr(shards, "claims", lambda path, pairs=pairs: claims._replace(pairs=pairs))
            try:
                rows = Dataset(made.files[:1])
            except DataError as error:
                assert error.file == path and (f"'{name}" in str(error) or name == "version"), (name, wrong, error)
            else:
                could_be = name in ("max_norm", "weight_sum", "label_changes", "n_features", "row_constant")
                assert could_be or meaning(rows) == known, (name, wrong)


def test_a_footer_is_compared_with_its_file(tmp_path, monkeypatch):
    made = weighted_shards(tmp_path / "s")
    claims = shards.claims(made.files[0])
    right = shards.unsealed(claims.pairs[shards.KEY])
    chunk, *rest = right["chunks"]
    lies = {"n_rows": right["n_rows"] + 1, "chunks": [chunk + 100, *rest], "nnz": right["nnz"] - 1, "binary": True,
            "classes": ["a", "b"][: len(right["classes"])], "zero_weight": []}  # fmt: skip
    for name, lie in lies.items():
        changed = {**right, name: lie}
        if name == "chunks":
            changed["nnz"] = sum(lie)
            changed["max_row_nnz"] = changed["n_features"]
        pairs = {**claims.pairs, shards.KEY: shards.sealed(changed)}
        monkeypatch.setattr(shards, "claims", lambda path, pairs=pairs: claims._replace(pairs=pairs))
        with pytest.raises(DataError, match=f"field '({name}|class_counts)' must be"):
            Dataset(made.files[0])


# Models


def tables_in(told, before=()):
    """The way to each field of a table and of the tables in it."""
    for name, value in told.items():
        yield (*before, name)
        if isinstance(value, dict) and name not in ("checksums", "plan", "memory"):
            yield from tables_in(value, (*before, name))


def of_arrays(**options):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)).astype(np.float32)
    labels = rng.integers(0, 3, 40) if options.pop("many", False) else X[:, 0] > 0
    return bigclf.fit(X, labels, **options), X


def calibrated():
    model, X = of_arrays(algo="perceptron")
    return bigclf.calibrate(model, X, X[:, 0] > 0), X


def of_columns(directory):
    table = pd.DataFrame({"a": np.arange(40) % 7, "c": ["u", "v"] * 20, "y": ["n", "p"] * 20})
    table.to_csv(directory / "r.csv", index=False)
    spec = {"label": "y", "features": [{"numeric": ["a"]}, {"categorical": ["c"]}], "reader": {"format": "csv"}}
    return bigclf.fit(str(directory / "r.csv"), features=spec, algo="perceptron"), table[["a", "c"]]


MODELS = {
    "certified": lambda _: of_arrays(algo="dcd"),
    "votes": lambda _: of_arrays(algo="voted_perceptron"),
    "three classes": lambda _: of_arrays(algo="mira", many=True, epochs=2),
    "calibrated": lambda _: calibrated(),
    "columns": of_columns,
}


def answers(model, rows):
    said = [model.digest(), model.n_features, model.predict(rows).tolist(), model.decision_function(rows).tolist()]
    return said + ([model.predict_proba(rows).tolist()] if model.calibration else [])


SLOW = dict.fromkeys(("votes", "columns"), pytest.mark.long)  # their kernels are compiled here


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=SLOW.get(kind, ())) for kind in MODELS])
def test_every_field_of_a_model_is_checked(tmp_path, kind):
    """Whatever stands there, with its checksum: an error that names it, or a model that answers as before."""
    model, rows = MODELS[kind](tmp_path)
    model.save(tmp_path / "m")
    tensors, metadata = read_tensors((tmp_path / "m").read_bytes())
    tensors = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    right, before = shards.unsealed(metadata["bigclf"]), answers(load(tmp_path / "m"), rows)
    for way in tables_in(right):
        for wrong in WRONG if way[0] != "facts" else WRONG[:5]:
            changed = copy.deepcopy(right)
            table = changed
            for name in way[:-1]:
                table = table[name]
            table[way[-1]] = wrong
            data = safetensors.numpy.save(tensors, {"bigclf": shards.sealed(changed).decode()})
            (tmp_path / "w").write_bytes(data)
            try:
                found = load(tmp_path / "w")
                repr(found)
            except ModelFormatError as error:
                named = any(name.removesuffix("s") in str(error) for name in way)
                assert named or way[0] in ("version", "format"), (way, wrong, str(error))
            else:
                assert answers(found, rows) == before, (way, wrong)


def relabelled(directory, model, way, value):
    """Load the model with another value in a field (None of them: without it), resealed."""
    model.save(directory / "m")
    tensors, metadata = read_tensors((directory / "m").read_bytes())
    changed = shards.unsealed(metadata["bigclf"])
    table = changed
    for name in way[:-1]:
        table = table[name]
    table.pop(way[-1])
    if value is not MISSING:
        table[way[-1]] = value
    arrays = {name: tensor.copy() for name, tensor in tensors.items()}
    (directory / "w").write_bytes(safetensors.numpy.save(arrays, {"bigclf": shards.sealed(changed).decode()}))
    return load(directory / "w")


HELD = {"n": 3, "correct": 2, "accuracy": 2 / 3, "majority": 2 / 3, "macro_f1": 0.6, "auc": None, "auc_bound": 0.0,
        "log_loss": None, "calibration_error": None, "reliability": None, "missing": {"auc": "why"}, "notes": [],
        "f1": [{"rows": 1, "precision": 1.0, "recall": 1.0, "f1": 1.0}] * 2,
        "confusion": [[1, 0], [1, 1]]}  # fmt: skip


@pytest.mark.parametrize("name", [*HELD])
@pytest.mark.parametrize("value", [-1, "x", [], {}, True, [[1]], [[1, 2, 3]] * 2, None, [{"rows": 1}]])
def test_what_a_model_was_on_rows_held_out_is_checked(tmp_path, name, value):
    """What is read back can be shown, whatever stands there; the rest is refused by its name."""
    model = trained(held_out={"share": 0.5, "n": 3, "accuracy": 2 / 3}, held_out_figures=HELD)
    try:
        found = relabelled(tmp_path, model, ("facts", "held_out_figures", name), value)
    except ModelFormatError as error:
        assert name in str(error)
    else:
        bigclf.report(found, tmp_path / "r.html")
        assert "Held-out accuracy" in (tmp_path / "r.html").read_text()


MISSING = object()
LIES = [
    (("method",), {}, "method.name"), (("method",), {"a": 1}, "method.name"),
    *((("method", "name"), value, "method.name") for value in (None, "x", MISSING)),
    *((("method", "loss"), value, "method.loss") for value in ("x", None, MISSING)),
    *((("method", "C"), value, "method.C") for value in (True, -1, 0, "1", [], {}, float("inf"), None)),
    (("method", "working_set"), 2, "method.working_set"), (("method", "schedule"), "x", "method.schedule"),
    (("facts", "n_rows"), None, "facts.n_rows"),
]  # fmt: skip


def trained(**told):
    method = {"name": "dcd", "loss": "hinge", "C": 0.5, "working_set": None, "schedule": "auto", "bias": "feature"}
    facts = {"version": bigclf.__version__, "n_rows": 9} | told
    return bigclf.Model(np.ones((1, 2)), np.zeros(1), [0, 1], method=method, facts=facts)


@pytest.mark.parametrize(("way", "value", "named"), LIES)
def test_a_trained_model_says_its_method_as_the_table_has_it(tmp_path, way, value, named):
    with pytest.raises(ModelFormatError, match=f"field '{re.escape(named)}'"):
        relabelled(tmp_path, trained(), way, value)


def test_a_method_of_another_version_is_said_to_be_of_that(tmp_path):
    with pytest.raises(ModelFormatError, match=r"trained by bigclf 9\.1, and this is .*: upgrade bigclf"):
        relabelled(tmp_path, trained(version="9.1"), ("method", "name"), "newest")
    assert relabelled(tmp_path, trained(version="9.1"), ("method", "C"), 1).method["C"] == 1


@pytest.mark.parametrize("method", [None, {"loss": "logistic"}, {"name": "mine", "loss": "own", "C": "large"}])
def test_a_model_made_by_hand_has_words_of_its_own(tmp_path, method):
    bigclf.Model(np.ones((1, 2)), np.zeros(1), [0, 1], method=method).save(tmp_path / "m")
    assert load(tmp_path / "m").method == (method or {})


def test_every_bias_and_kind_of_several_classes_is_read_back(tmp_path):
    """Models of all methods that there are."""
    for method in METHODS.values():
        for said in [{"bias": bias} for bias in method.bias] + [{"multiclass": kind} for kind in method.multiclass]:
            told = {"name": method.name, "loss": None, **said}
            bigclf.Model(np.zeros((1, 2)), np.zeros(1), [0, 1], method=told).save(tmp_path / "m")
            assert load(tmp_path / "m").method == told


def test_classes_are_of_their_type(tmp_path):
    """1.5 became 1, and true a number."""
    model, _ = of_arrays(algo="perceptron", many=True)
    model.save(tmp_path / "m")
    tensors, metadata = read_tensors((tmp_path / "m").read_bytes())
    right = shards.unsealed(metadata["bigclf"])
    for values in ([0, 1.5, 2], [False, True, 2], ["0", 1, 2], [0, None, 2]):
        changed = {**right, "classes": {"type": "int64", "values": values}}
        arrays = {name: tensor.copy() for name, tensor in tensors.items()}
        (tmp_path / "w").write_bytes(safetensors.numpy.save(arrays, {"bigclf": shards.sealed(changed).decode()}))
        with pytest.raises(ModelFormatError, match=re.escape("field 'classes.values' must be of the type int64")):
            load(tmp_path / "w")


# Declarations


def nodes(told, before=()):
    for name, value in told.items() if isinstance(told, dict) else enumerate(told):
        yield (*before, name)
        if isinstance(value, dict | list):
            yield from nodes(value, (*before, name))


def test_every_field_of_a_spec_is_checked():
    right = parse({
        "label": {"column": "y", "strip": ".", "one_of": ["a"]}, "weight": "w", "hash_bits": 5,
        "missing_values": ["?"], "reader": {"format": "csv"},
        "features": [{"numeric": ["a"], "scale": "bins"}, {"categorical": ["c"]}, {"cross": ["c", "d"]},
                     {"text": "t", "ngrams": [1, 2]}, {"date": "e", "format": "%Y"}],
    }).as_json()  # fmt: skip
    refused = 0
    for way in nodes(right):
        for wrong in (*WRONG, [{}], {"a": 1}):
            changed = copy.deepcopy(right)
            table = changed
            for name in way[:-1]:
                table = table[name]
            table[way[-1]] = wrong
            try:
                again = parse(changed).as_json()
            except SchemaError:
                refused += 1
            else:
                assert parse(again).as_json() == again, (way, wrong)
    assert refused > 400


@pytest.mark.parametrize("form", ["csv", "jsonl", "text"])
def test_every_option_of_a_reader_is_checked(form):
    for name in ("format", "separator", "header", "names", "skip_lines", "quote", "decimal", "multiline", "encoding",
                 "label_from", "between"):  # fmt: skip
        for wrong in WRONG:
            try:
                reading({"format": form, name: wrong}).as_json()
            except BigclfError as error:
                assert isinstance(error, SchemaError) and name in str(error), (name, wrong)


@pytest.mark.parametrize("field", ["table", "reads", "measure", "best_params_"])
def test_a_wrong_field_of_the_results_of_a_sweep_is_named(field, tmp_path):
    told = {"table": [{}], "reads": 3, "measure": "error", "best_params_": {}}
    for wrong in WRONG[:-1]:
        if wrong == told[field] or (field, wrong) in (("table", []), ("measure", "x")):
            continue
        (tmp_path / "results.json").write_text(json.dumps(told | {field: wrong}))
        with pytest.raises(DataError, match=f"not the results of a sweep: field '{field}' must be"):
            _sweep(str(tmp_path))
