"""Run directories and results in which one field is another one, with right checksums: an error of ours that names it,
or what came out before."""

import copy
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from making import random_rows, shards_of
from test_cli import bigclf as command

import bigclf
from bigclf.cli import inspect, path, sweep
from bigclf.cli import report as reports
from bigclf.errors import DataError, ModelFormatError, RunError
from bigclf.training.records import run_record
from bigclf.training.records.run_directory import RunDirectory, load_arrays, publish_arrays

sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))
import resume

MISSING = object()
WRONG = (MISSING, None, "x", -1, 1.5, [], {}, True, 2**70, float("nan"))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


def ways_in(told, before=()):
    """The way to every value in tables and lists; of a list of like ones to the first."""
    for name, value in told.items() if isinstance(told, dict) else enumerate(told[:1]):
        yield (*before, name)
        if isinstance(value, dict | list):
            yield from ways_in(value, (*before, name))


def with_value(told, way, value):
    changed = copy.deepcopy(told)
    table = changed
    for name in way[:-1]:
        table = table[name]
    if value is not MISSING:
        table[way[-1]] = value
    elif isinstance(table, dict):
        del table[way[-1]]
    else:
        table.pop(way[-1])
    return changed


def changes(told):
    """(way, value, what is told with that in its place), of every field and every wrong value."""
    for way in ways_in(told):
        for wrong in WRONG:
            yield way, wrong, with_value(told, way, wrong)


def names(way, error):
    """Whether the error names the field, or one that it stands in."""
    return any(f"{name}" in str(error) for name in way if isinstance(name, str))


# Run directories


STOPPED = ("dcd", "dcd-groups", "dcd-gathered", "dcd-rows-on-disk", "newton")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The place of a run that was stopped in the midst of an epoch, with its rows."""
    place = tmp_path_factory.mktemp("stopped")
    resume.unpack("shards", place)
    for name in STOPPED:
        resume.unpack(name, place)
    return place


HISTORY = {
    "epoch": 2, "seconds": 0.5, "reads": 2, "rows": 240, "nnz": 6900, "bytes_read": 64824, "waited": 0.1, "updates": 9,
    "mistakes": 7, "loss": 5.5, "error": 0.2, "rounds": 1, "estimated_gap": 0.3, "working_set_rows": 49,
    "gap": 0.2, "objective": 9.0, "dual": 8.0, "groups": 2, "workers": 2, "mixes": 3, "bytes_moved": 70,
    "validation": {"accuracy": 0.5}, "events": [{"worker": "w", "what": "left"}],
}  # fmt: skip


@pytest.fixture
def recorded(stopped, tmp_path):
    """A run directory with a history that has every figure."""
    shutil.copy(stopped / "dcd" / "run.json", tmp_path / "run.json")
    lines = [{"epoch": 1, "error": 0.3}, HISTORY]
    (tmp_path / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def shown(directory):
    """``inspect``, both ways, and ``report``."""
    _, facts, show = inspect.look([str(directory)])
    json.dumps(facts)
    show()
    reports.write(str(directory), str(directory / "r.html"), None, overwrite=True)


def write_run(directory, told):
    (directory / "run.json").write_text(json.dumps(told))


def write_history(directory, told):
    (directory / "history.jsonl").write_text(f"{json.dumps({'epoch': 1, 'error': 0.3})}\n{json.dumps(told)}\n")


FILES = {"run.json": write_run, "history.jsonl": write_history}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("shows", [False, pytest.param(True, marks=pytest.mark.long)])
def test_every_field_of_the_record_of_a_run_is_checked(recorded, capsys, name, shows):
    """What the check lets pass is shown: all of it in the long tier, here what is missing."""
    right = json.loads((recorded / "run.json").read_text()) if name == "run.json" else HISTORY
    check = run_record.check_run if name == "run.json" else run_record.check_epoch
    refused = 0
    for way, wrong, changed in changes(right):
        try:
            check(changed)
        except ValueError as error:
            assert names(way, error) or "gap" in str(error), (way, wrong, str(error))
            refused += 1
            if not shows:
                continue
        if not shows and (wrong is not MISSING or way[0] == "files" or len(way) > 2):
            continue
        FILES[name](recorded, changed)
        try:
            shown(recorded)
        except DataError as error:
            assert error.file == str(recorded / name), (way, wrong)
            assert name == "run.json" or error.line == 2
    assert refused > 100


@pytest.mark.parametrize(("name", "told"), [("run.json", []), ("history.jsonl", 3), ("history.jsonl", {"epoch": "x"})])
def test_what_is_no_record_is_named_with_its_line(recorded, name, told):
    FILES[name](recorded, told)
    for read in (inspect.read_run, lambda place: reports.write(place, f"{place}/r.html", None)):
        with pytest.raises(DataError, match=name):
            read(str(recorded))


def test_a_wrong_line_of_a_history_is_left_out_of_a_run_that_goes_on(recorded, caplog):
    write_history(recorded, {"epoch": "x"})
    assert [record["epoch"] for record in RunDirectory(recorded).history()] == [1]
    assert "line 2 passed over: field 'epoch' must be" in caplog.text


@pytest.mark.parametrize(("name", "wrong"), [("tol", "x"), ("tol", -1), ("settings", 3), ("class_weights", "x")])
def test_a_wrong_field_of_the_identity_is_named(recorded, name, wrong):
    """``tol: "x"`` was a TypeError, -1 went on."""
    told = json.loads((recorded / "run.json").read_text())
    write_run(recorded, with_value(told, ("identity", name), wrong))
    with pytest.raises(RunError, match=f"field 'identity.{name}' must be"):
        RunDirectory(recorded).begin(told, resume=True, may_loosen=True)


# Checkpoints

# What cannot be known to be wrong: figures that steer nothing or could be so, and what older checkpoints have not.
COULD_BE = {"busy", "seconds", "step", "scale", "violation", "curve", "progressive", "total", "done", "certify_next",
            "over", "settled", "stalled", "dropped", "learned", "run", "bytes_moved", "rows_steps", "tried", "epochs",
            "last_mistakes", "tol"}  # fmt: skip


@pytest.fixture
def fuzzed(stopped, tmp_path, monkeypatch):
    """Resume the run with ``look(require, directory, path, arrays, facts)`` where it looks for its checkpoint."""

    def resumed(look, run="dcd"):
        for name in (run, "shards"):
            shutil.copytree(stopped / name, tmp_path / name)
        monkeypatch.chdir(tmp_path)
        real = RunDirectory.newest

        def newest(directory, groups, filed=False, require=None):
            file = directory.file(directory.checkpoints()[0])
            arrays, facts, _ = load_arrays(file)
            arrays = {name: array.copy() for name, array in arrays.items()}
            look(lambda: real(directory, groups, filed, require), file, arrays, facts, require.__self__)
            publish_arrays(file, arrays, facts)
            return real(directory, groups, filed, require)

        monkeypatch.setattr(RunDirectory, "newest", newest)
        return resume.told(resume.train(run, Path(run), resume=True))

    return resumed


def test_every_fact_of_a_checkpoint_is_checked(fuzzed, caplog):
    """It is passed over, or taken up as it was."""
    found = []

    def look(newest, file, arrays, facts, run):
        for way, wrong, changed in changes(facts):
            publish_arrays(file, arrays, changed)
            caplog.clear()
            try:
                saved = newest()
            except RunError as error:
                assert way == ("run",) and "is a checkpoint of another run" in str(error)
                continue
            if saved is None:
                assert "passed over: " in caplog.text and names(way, caplog.text), (way, wrong, caplog.text)
                found.append(way)
            else:
                run.restore(saved)
                assert way[-1] in COULD_BE or way[-2] in COULD_BE or same(saved.facts, facts), (way, wrong)

    assert fuzzed(look) == resume.expected()["dcd"]["whole"]
    assert len(found) > 200


def same(a, b):
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


@pytest.mark.parametrize("lost", ["0.state.weights", "0.0.shared.weights", "0.0.figures"])
def test_an_array_that_is_not_there_is_named(fuzzed, lost, caplog):
    def look(newest, file, arrays, facts, run):
        publish_arrays(file, {name: array for name, array in arrays.items() if name != lost}, facts)
        saved = newest()
        if saved is None:
            assert lost in caplog.text
            return
        with pytest.raises(KeyError):
            run.restore(saved)

    fuzzed(look)


def others_of(array):
    """Like it, of other shapes and another type."""
    yield np.zeros((array.shape[0] + 1, *array.shape[1:]), array.dtype)
    yield np.zeros((*array.shape, 1), array.dtype)
    yield np.zeros((), array.dtype)
    yield array.astype(np.int32 if array.dtype == np.int64 else np.float32)


def reseal(file, arrays, facts, rows):
    """Write a state file, with the digests of row files that are written with it."""
    named = dict(facts["rows_files"])
    for name, held in rows.items():
        named[name] = publish_arrays(str(Path(file).with_name(name)), held, {})
    publish_arrays(file, arrays, facts | {"rows_files": named})


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * name.endswith("disk")) for name in STOPPED]
)
def test_an_array_of_another_shape_or_type_is_named(fuzzed, name, caplog):
    """It was an error of numpy's, a crash or the start of another model."""
    found = set()

    def look(newest, file, arrays, facts, run):
        rows = {name: load_arrays(str(Path(file).with_name(name)))[0] for name in facts["rows_files"]}
        for of_file, held in ((None, arrays), *rows.items()):
            for name, array in held.items():
                for wrong in others_of(array):
                    changed = held | {name: wrong}
                    if of_file is None:
                        reseal(file, changed, facts, rows)
                    else:
                        reseal(file, arrays, facts, rows | {of_file: changed})
                    caplog.clear()
                    assert newest() is None, (name, wrong.shape, wrong.dtype)
                    says = f"the array {name!r} is {wrong.dtype} {list(wrong.shape)}; this run has {array.dtype} ["
                    as_long = name.replace("set.ids", "set.lengths")  # of the rows of a set there may be any number
                    also = f"the array {as_long!r} is ", f"the array {name!r} names a row twice"
                    assert any(text in caplog.text for text in (says, *also)), (says, caplog.text)
                    found.add(name.split(".", 1 if "gathered" in name else 2)[-1])
        reseal(file, arrays, facts, rows)

    assert fuzzed(look, name) == resume.expected()[name]["whole"]
    assert found >= ARRAYS[name]


ARRAYS = {
    "dcd": {"weights", "shared.weights", "figures", "rows.alpha", "set.ids", "set.lengths", "set.scores"},
    "dcd-groups": {"weights", "best", "dual_weights", "shared.weights", "rows.alpha", "start.rows.alpha"},
    "dcd-gathered": {"gathered.sizes", "gathered.alpha", "gathered.scores", "set.sent", "set.ids", "start.rows.alpha"},
    "dcd-rows-on-disk": {"rows.alpha", "set.threshold", "set.compacted"},
    "newton": {"weights", "side", "scalars", "rows.curvature"},
}


OUTSIDE = [("ids", 85), ("ids", -1), ("lengths", -1), ("sent", 85), ("sent", 2**62)]  # group 0 has 85 rows


@pytest.mark.parametrize(("name", "number"), OUTSIDE)
def test_a_row_that_is_not_there_is_named(fuzzed, name, number, caplog):
    """It was written outside of the memory of the working set."""

    def look(newest, file, arrays, facts, run):
        rows = {name: load_arrays(str(Path(file).with_name(name)))[0] for name in facts["rows_files"]}
        first = min(rows)
        changed = rows[first][f"0.0.set.{name}"].copy()
        changed[-1] = number
        reseal(file, arrays, facts, rows | {first: rows[first] | {f"0.0.set.{name}": changed}})
        assert newest() is None and f"'0.0.set.{name}' must be of numbers from 0 on, less than" in caplog.text
        changed[-1] = changed[0]
        reseal(file, arrays, facts, rows | {first: rows[first] | {f"0.0.set.{name}": changed}})
        assert (newest() is None) == (name != "lengths")
        reseal(file, arrays, facts, rows)

    assert fuzzed(look, "dcd-gathered") == resume.expected()["dcd-gathered"]["whole"]


def test_rows_of_another_length_are_not_taken_up(fuzzed):
    def look(newest, file, arrays, facts, run):
        rows = {name: load_arrays(str(Path(file).with_name(name)))[0] for name in facts["rows_files"]}
        lengths = rows[min(rows)]["0.0.set.lengths"].copy()
        lengths[:2] += 1, -1
        reseal(file, arrays, facts, rows | {min(rows): rows[min(rows)] | {"0.0.set.lengths": lengths}})
        with pytest.raises(ModelFormatError, match="are not as long as its checkpoint says"):
            run.restore(newest())
        reseal(file, arrays, facts, rows)

    assert fuzzed(look, "dcd-gathered") == resume.expected()["dcd-gathered"]["whole"]


@pytest.mark.parametrize("lost", ["gathered.sizes", "gathered.alpha", "gathered.scores"])
def test_what_gathered_rows_came_to_is_asked_for(fuzzed, lost, caplog):
    """Without their sizes the run went on to another model."""

    def look(newest, file, arrays, facts, run):
        reseal(file, {name: array for name, array in arrays.items() if name != f"0.{lost}"}, facts, {})
        assert newest() is None and f"the array '0.{lost}' is missing" in caplog.text
        sizes = arrays["0.gathered.sizes"] + [1, -1, 0, 0]
        reseal(file, arrays | {"0.gathered.sizes": sizes - 2**40 * (sizes > 28)}, facts, {})
        assert newest() is None
        reseal(file, arrays, facts, {})

    assert fuzzed(look, "dcd-gathered") == resume.expected()["dcd-gathered"]["whole"]


# Results of sweep and path


GRIDS = {
    "sweep": (["--grid", "C=0.1,1", "--folds", 2], "results.json", sweep, "C"),
    "path": (["--C", "0.1,1"], "path.json", path, "C"),
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    x, y = random_rows(60, 5, 0.5)
    return shards_of(tmp_path_factory.mktemp("rows") / "s", x, y)


@pytest.fixture(scope="module", params=GRIDS)
def finished(request, rows, tmp_path_factory):
    """The command, its module, the file of its results and what stands there."""
    grid, name, module, _ = GRIDS[request.param]
    out = tmp_path_factory.mktemp(request.param)
    words = [request.param, str(Path(rows.files[0]).parent), *grid, "-o", str(out / "out")]
    command(*words)
    return words, module, out / "out" / name, json.loads((out / "out" / name).read_text())


def test_every_field_of_results_is_checked(finished, capsys):
    words, module, file, right = finished
    known, refused = json.loads(json.dumps(module.finished(str(file.parent), right).as_json())), 0
    for way, wrong, changed in changes(right):
        if way[0] in ("asked", "at_edge"):  # the latter is told from the table again
            continue
        try:
            again = module.finished(str(file.parent), changed)
        except DataError as error:
            assert error.file == str(file) and names(way, error), (way, wrong, str(error))
            refused += 1
        else:
            if wrong is None or wrong is MISSING:
                module.show(again, "out")
            said = again.as_json() | ({"at_edge": known["at_edge"]} if "at_edge" in known else {})  # told by the table
            told = way[0] in ("best", "penalty")  # what the models say, counts
            expected = known if told else known | {way[0]: changed[way[0]]}
            assert same(said, expected), (way, wrong)
    assert refused > 150


@pytest.mark.parametrize(
    ("name", "value"), [("unknown", 1), ("table", MISSING), ("table", "x"), ("asked", "x"), ("asked", MISSING)]
)
def test_resuming_wrong_results_is_an_error_in_words(finished, name, value):
    """``Sweep(**told)`` was a TypeError."""
    words, _, file, right = finished
    file.write_text(json.dumps(with_value(right, (name,), value)))
    try:
        if name == "unknown":  # of another version
            assert "gap" in command(*words, "--resume")[0]
        else:
            said = command(*words, "--resume", code=1 if name == "asked" else 3)[1]
            assert "error: " in said and ("has no " in said or "field 'table'" in said)
    finally:
        file.write_text(json.dumps(right))


@pytest.mark.parametrize("finished", ["sweep"], indirect=True)
def test_the_model_of_results_is_theirs(finished):
    _, module, file, right = finished
    for lie in (None, {"certificate": None, "facts": {}}):
        with pytest.raises(DataError, match="field 'best' must be that of"):
            module.finished(str(file.parent), right | {"best": lie})


@pytest.mark.parametrize("finished", ["sweep"], indirect=True)
def test_inspect_names_a_wrong_field_of_a_point(finished, tmp_path, capsys):
    right, refused = finished[3], 0
    for way, wrong, changed in changes({name: right[name] for name in ("table", "reads", "measure", "best_params_")}):
        (tmp_path / "results.json").write_text(json.dumps(changed))
        try:
            _, _, show = inspect.look([str(tmp_path)])
        except DataError as error:
            assert names(way, error), (way, wrong, str(error))
            refused += 1
        else:
            if wrong is MISSING:
                show()
    assert refused > 50


def test_a_model_without_the_facts_of_its_training_is_not_shown_again(finished, tmp_path):
    words, module, file, right = finished
    if words[0] == "path":
        return
    out = tmp_path / "out"
    shutil.copytree(file.parent, out)
    bigclf.Model(np.ones((1, 5)), np.zeros(1), [0, 1]).save(out / "model.bigclf")
    with pytest.raises(ModelFormatError, match="field 'facts.progressive' is missing"):
        module.finished(str(out), right)


# Models that say no version


LIES = [
    ("loss", "x"), ("loss", 3), ("C", "large"), ("C", -1), ("C", True), ("working_set", 2), ("schedule", "x"),
    ("bias", "x"), ("multiclass", 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), LIES)
def test_a_known_method_without_a_version_is_as_the_table_has_it(tmp_path, name, value):
    told = {"name": "dcd", "loss": "hinge", "C": 0.5, name: value}
    bigclf.Model(np.ones((1, 2)), np.zeros(1), [0, 1], method=told).save(tmp_path / "m")
    with pytest.raises(ModelFormatError, match=f"m: .*field 'method.{name}' must be"):
        bigclf.load(tmp_path / "m")


@pytest.mark.parametrize("kind", ["x", "", "hashed"])
def test_a_kind_of_features_that_is_none_is_named(tmp_path, kind):
    """It counted as numbered in the data."""
    bigclf.Model(np.ones((1, 2)), np.zeros(1), [0, 1], features={"kind": kind, "version": 1}).save(tmp_path / "m")
    with pytest.raises(ModelFormatError, match="field 'features.kind' must be one of given, hashed names, columns"):
        bigclf.load(tmp_path / "m")
