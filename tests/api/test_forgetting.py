"""``forget``: the optimum of the rows that are left, no byte of the others in what is rewritten, and what is named."""

import errno
import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from making import random_rows, shards_of
from sklearn.datasets import dump_svmlight_file

import bigclf
from bigclf import files
from bigclf.api import forget as verb
from bigclf.api import receipt
from bigclf.cli import main
from bigclf.errors import DataError, RunError
from bigclf.training import plan as planning

N = 400
GONE = np.array([0, 7, 8, 150, 399])
LOSSES = {
    "hinge": lambda m: np.maximum(0, 1 - m),
    "squared_hinge": lambda m: np.maximum(0, 1 - m) ** 2,
    "logistic": lambda m: np.logaddexp(0, -m),
    "epsilon_insensitive": lambda m: np.maximum(0, np.abs(m) - 0.1),
}


def _without(*arrays):
    stays = np.ones(N, bool)
    stays[GONE] = False
    return [array[stays] for array in arrays]


def _objective(x, y, model, loss, weights=1.0):
    """P of all problems of a model, in numpy, at C = 1."""
    scores, total = x @ model.coef_.T + model.intercept_, 0.0
    targets = [y] if model.regression else [np.where(y == c, 1, -1) for c in model.classes_[-len(model.coef_) :]]
    for k, target in enumerate(targets):
        margin = scores[:, k] - target if model.regression else target * scores[:, k]
        square = model.coef_[k] @ model.coef_[k] + model.intercept_[k] ** 2
        total += 0.5 * square + (weights * LOSSES[loss](margin)).sum()
    return total


def _trained(place, x, y, weights=None, real=False, **options):
    data = shards_of(place / "rows", x, y, weights, real=real, shard_nnz=800)
    bigclf.fit(str(place / "rows"), run_dir=place / "run", progress=False, **{"algo": "dcd", "tol": 1e-3, **options})
    return data


CASES = {
    "hinge": dict(loss="hinge"),
    "squared hinge, balanced": dict(loss="squared_hinge", class_weight="balanced"),
    "logistic, no bias": dict(loss="logistic", bias=None),
    "three classes": dict(loss="logistic"),
    "groups": dict(loss="hinge", groups=3),
    "streamed": dict(loss="hinge", memory="17MB"),
    "numbers": dict(loss="epsilon_insensitive", epsilon=0.1),
    "newton": dict(algo="newton", loss="logistic"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_model_is_the_optimum_of_the_rows_that_are_left(name, tmp_path):
    options, real = CASES[name], name == "numbers"
    x, y = random_rows(N, 30, real=real)
    if name == "three classes":
        y = np.arange(N) % 2 * (y > 0) + (y > 0)
    _trained(tmp_path, x, y, real=real, **options)
    found = bigclf.forget(tmp_path / "run", tmp_path / "m.bigclf", rows=GONE, to=tmp_path / "left", progress=False)
    told = found.receipt
    assert told["after"]["converged"] and told["rows"]["left"] == N - GONE.size == told["scanned"]["rows"]
    assert told["after"]["began_with"] == ("weights" if name == "newton" else "dual variables")
    x, y = _without(x, y)
    weights = 1.0
    if "class_weight" in options:
        weights = np.where(y > 0, y.size / 2 / (y > 0).sum(), y.size / 2 / (y < 0).sum())
    again = bigclf.fit(str(tmp_path / "left"), **{"algo": "dcd", **options, "tol": 1e-6}, progress=False)
    mine, best = (_objective(x, y, model, options["loss"], weights) for model in (found.model, again))
    assert mine == pytest.approx(told["after"]["certificate"]["primal"], rel=1e-6)
    assert best * (1 - 1e-6) <= mine <= best * (1 + 1e-3)
    assert bigclf.load(tmp_path / "m.bigclf").facts["data"] == bigclf.Dataset(tmp_path / "left").digest or real


@pytest.fixture
def on_disk(monkeypatch):
    """Where rows are streamed, their dual variables are on disk."""
    makes = planning.make_plan

    def made(*given, **named):
        plan = makes(*given, **named)
        return plan if plan.resident else replace(plan, rows_sides=2)

    monkeypatch.setattr(planning, "make_plan", made)


def test_rows_of_weight_zero_have_numbers_too_and_dual_variables_on_disk_are_carried(tmp_path, on_disk):
    x, y = random_rows(N, 30)
    weights = np.arange(N) % 3 / 2.0
    _trained(tmp_path, x, y, weights, loss="squared_hinge", memory="17MB")
    found = bigclf.forget(tmp_path / "run", tmp_path / "m.bigclf", rows=GONE, to=tmp_path / "left", progress=False)
    assert found.receipt["after"]["began_with"] == "dual variables" and found.model.result_.plan["rows_sides"] == 2
    assert found.receipt["scanned"]["rows"] == N - GONE.size
    x, y, weights = _without(x, y, weights)
    again = bigclf.fit(x, y, sample_weight=weights, algo="dcd", loss="squared_hinge", tol=1e-6, progress=False)
    mine, best = (_objective(x, y, model, "squared_hinge", weights) for model in (found.model, again))
    assert best * (1 - 1e-6) <= mine <= best * (1 + 1e-3)


def test_a_row_that_hardly_mattered_leaves_nothing_to_learn(tmp_path):
    x, y = random_rows(N, 30)
    _trained(tmp_path, x, y, loss="logistic", tol=1e-2)
    found = bigclf.forget(tmp_path / "run", tmp_path / "m.bigclf", rows=[9], to=tmp_path / "left", progress=False)
    (record,) = found.model.result_.history
    assert record["epoch"] == 2 and record["updates"] == 0 and record["gap"] <= 1e-2


@pytest.mark.parametrize("groups", [1, 3])
def test_training_begins_with_sums_of_the_others_alone_and_with_the_constant_as_it_was(groups, tmp_path, monkeypatch):
    x, y = random_rows(N, 30)
    _trained(tmp_path, x, y, loss="hinge", groups=groups)
    before, begun = bigclf.load(tmp_path / "run" / "model.bigclf"), []
    does = verb.train_settled
    monkeypatch.setattr(verb, "train_settled", lambda *given: begun.append(given[6]) or does(*given))
    gone = np.flatnonzero(y > 0)[:20]  # of one class: the constant would move far
    bigclf.forget(tmp_path / "run", tmp_path / "m.bigclf", rows=gone, to=tmp_path / "left", progress=False)
    alpha = np.concatenate([rows[f"0.{group}.rows.alpha"] for group, rows in enumerate(begun[0].rows)])
    stays = np.ones(N, bool)
    stays[gone] = False
    signed = alpha * y[stays]
    weights = begun[0].arrays["0.state.weights"]
    assert alpha.shape == (N - 20,) and alpha.min() >= 0 and alpha.max() <= 1
    assert weights[:-1] == pytest.approx(x[stays].T @ signed, abs=1e-9)
    assert weights[-1] == pytest.approx(signed.sum(), abs=1e-9) == pytest.approx(before.intercept_[0], abs=1e-9)


# What is left of the rows


def _bytes_under(place):
    """Every file below, as it is, and of Parquet each column as its numbers lie in memory, texts and dictionaries."""
    for folder, _, names in os.walk(place):
        for path in (os.path.join(folder, name) for name in names):
            with open(path, "rb") as file:
                yield path, file.read()
            for column in pq.read_table(path).columns if path.endswith(".parquet") else ():
                yield f"{path}: {column.type}", _flat(column.combine_chunks())


def _flat(array):
    while pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        array = array.flatten()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary
    texts = pa.types.is_string(array.type)
    return str(array.to_pylist()).encode() if texts else array.to_numpy(zero_copy_only=False).tobytes()


def _holding(patterns, place):
    return [(path, n) for path, content in _bytes_under(place) for n, one in enumerate(patterns) if one in content]


def _rare(x, row):
    """Patterns of a row whose values no other has: its indices and values as stored."""
    entries = slice(x.indptr[row], x.indptr[row + 1])
    return [x.indices[entries].astype(np.int32).tobytes(), x.data[entries].astype(np.float32).tobytes()]


def test_no_byte_of_the_rows_is_in_shards_run_store_or_cache_once_they_are_replaced(tmp_path, monkeypatch):
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path / "cache"))
    x, y = random_rows(N, 60, density=0.3)
    data, store = tmp_path / "rows.parquet", tmp_path / "store"
    lists = (
        pa.LargeListArray.from_arrays(x.indptr.astype(np.int64), x.indices),
        pa.LargeListArray.from_arrays(x.indptr.astype(np.int64), x.data),
    )
    names = pa.array([f"person-{n}" for n in range(N)])
    table = pa.table({"label": y, "indices": lists[0], "values": lists[1], "who": names.dictionary_encode(), "n": y})
    pq.write_table(table, data, row_group_size=90, compression="snappy")
    options = dict(algo="dcd", loss="hinge", memory="17MB", progress=False)
    workers = bigclf.Workers(1, local_dir=str(store))
    bigclf.fit(str(data), run_dir=tmp_path / "run", workers=workers, **options).save(tmp_path / "old.bigclf")
    patterns = [one for row in GONE for one in _rare(x, row)]
    places = data, tmp_path / "run", store, tmp_path / "cache"
    there = {path.split(":")[0] for path, _ in _holding(patterns, tmp_path)}
    assert str(data) in there and any(path.startswith(str(store)) for path in there)  # else nothing is shown

    found = bigclf.forget(
        tmp_path / "run", tmp_path / "m.bigclf", where={"who": [f"person-{n}" for n in GONE]}, rewrite=True,
        local_dir=store, progress=False,
    )  # fmt: skip
    assert not (tmp_path / "run").exists()
    assert _holding([*patterns, b"person-150", b"person-399"], tmp_path) == []
    assert {one["done"] for one in found.receipt["places"] if one["path"].startswith(str(places))} <= {
        "replaced",
        "removed",
    }
    left = pq.ParquetFile(data)
    assert left.metadata.num_rows == N - GONE.size and left.schema_arrow.equals(table.schema)
    assert left.metadata.row_group(0).column(1).compression == "SNAPPY"
    assert left.read().column("who").to_pylist() == [name for name in table.column("who").to_pylist()
                                                     if int(name[7:]) not in GONE]  # fmt: skip
    told = json.loads((tmp_path / "m.bigclf.run" / "run.json").read_text())
    assert [one["path"] for one in told["files"]] == [str(data)]
    assert sorted(os.listdir(tmp_path)) == ["cache", "m.bigclf", "m.bigclf.receipt.json", "m.bigclf.run", "old.bigclf",
                                            "rows.parquet", "store"]  # fmt: skip

    further = bigclf.forget(tmp_path / "m.bigclf", tmp_path / "n.bigclf", rows=[1], rewrite=True, progress=False)
    assert further.receipt["after"]["began_with"] == "dual variables"
    assert further.receipt["rows"]["before"] == N - GONE.size and not (tmp_path / "m.bigclf.run").exists()


def test_with_a_new_directory_nothing_old_changes_and_all_of_it_is_named(tmp_path):
    x, y = random_rows(N, 30)
    data = _trained(tmp_path, x, y, loss="hinge")
    before = dict(_bytes_under(tmp_path))
    found = bigclf.forget(tmp_path / "run", tmp_path / "m.bigclf", rows=[0], to=tmp_path / "left", progress=False)
    after = dict(_bytes_under(tmp_path))
    assert before.items() <= after.items()
    places = {one["path"]: one["done"] for one in found.receipt["places"]}
    assert places[data.files[0]] == places[str(tmp_path / "run")] == "stays"
    assert data.files[1] not in places and len(data.files) > 1
    left = bigclf.Dataset(tmp_path / "left")
    assert left.n_rows == N - 1 and (tmp_path / "left" / "_bigclf_manifest.json").exists() and not left.damaged


@pytest.mark.parametrize("way", ["rewrite", "to"])
@pytest.mark.parametrize("begun", ["run", "model", "model alone"])
def test_a_later_receipt_names_what_earlier_requests_replaced_and_left(begun, way, tmp_path):
    x, y = random_rows(N, 30)
    data = _trained(tmp_path, x, y, loss="hinge")
    first, last = data.files[0], data.files[-1]
    bigclf.load(tmp_path / "run" / "model.bigclf").save(old := tmp_path / "run.bigclf")
    os.rename(tmp_path / "run", tmp_path / "run.bigclf.run")
    where = {"rewrite": True} if way == "rewrite" else {"to": tmp_path / "left"}
    bigclf.forget(old, tmp_path / "a.bigclf", rows=[0], progress=False, **where)
    from_, more = tmp_path / ("a.bigclf.run" if begun == "run" else "a.bigclf"), {}
    if begun == "model alone":
        os.rename(tmp_path / "a.bigclf.run", tmp_path / "elsewhere")
        more["data"] = str(tmp_path / ("rows" if way == "rewrite" else "left"))
    second = bigclf.forget(from_, tmp_path / "b.bigclf", rows=[N - 2], rewrite=True, progress=False, **more).receipt
    told = {one["path"]: one["done"] for one in (*second["earlier"], *second["places"])}
    assert len(told) == len(second["earlier"]) + len(second["places"])  # each once
    assert told[first] == ("replaced" if way == "rewrite" else "stays") and told[str(old)] == "stays"
    assert told[f"{old}.run"] == ("removed" if way == "rewrite" else "stays")
    assert told[str(tmp_path / "a.bigclf")] == "stays"
    assert told.get(last) == ("replaced" if way == "rewrite" else None)
    assert told.get(str(tmp_path / "a.bigclf.run")) == ("removed" if begun != "model alone" else None)
    unknown = [one["what"] for one in second["places"] if one["path"] == "(not known where)"]
    assert len(unknown) == (begun == "model alone") and all(what.startswith("run: dual variables") for what in unknown)
    old.unlink()
    third = bigclf.forget(
        tmp_path / "b.bigclf.run", tmp_path / "c.bigclf", rows=[5], rewrite=True, progress=False
    ).receipt
    later = {one["path"]: one["done"] for one in (*third["earlier"], *third["places"])}
    changed = {str(old): "gone", str(tmp_path / "b.bigclf"): "stays", str(tmp_path / "b.bigclf.run"): "removed"}
    if way == "to":
        changed[str(tmp_path / "left" / "part-00000.parquet")] = "replaced"
    assert later == told | changed


def test_of_raw_files_not_known_the_rows_are_named_by_their_shards(tmp_path):
    x, y = random_rows(N, 30)
    dump_svmlight_file(x, y, str(tmp_path / "rows.svm"), zero_based=False)
    data = bigclf.convert(str(tmp_path / "rows.svm"), tmp_path / "rows", shard_nnz=1500, chunk_nnz=300)
    assert len(data.files) > 1 and len(data.chunks.file) > 2 * len(data.files)
    bigclf.fit(data, algo="dcd", run_dir=tmp_path / "run", progress=False)
    first = pq.read_metadata(data.files[0]).num_rows
    rows = [3, first - 1, first, *range(first + 20, first + 31)]
    found = verb.forget(tmp_path / "run", tmp_path / "model", rows=rows, to=tmp_path / "left")
    what, copy = [one["what"] for one in found.receipt["places"] if one["path"] == "(not known where)"]
    assert copy == "model that learned from the rows, as `fit -o` wrote it"
    later = ", ".join(map(str, [0, *range(20, 29)]))
    told = f"rows 3, {first - 1} of part-00000.parquet; rows {later} and 2 more of part-00001.parquet"
    assert what == f"raw files that the shards were made of: {told}"


def test_rows_are_named_by_what_they_hold_and_equal_ones_are_counted(tmp_path):
    x, y = random_rows(N, 30)
    x, y[9] = sp.vstack([x[:9], x[8], x[10:]], "csr"), -y[8]  # the same features, another label
    _trained(tmp_path, x, y, loss="hinge")
    shards_of(tmp_path / "these", x[[7, 8]], y[[7, 8]])
    found = bigclf.forget(tmp_path / "run", tmp_path / "m.bigclf", like=str(tmp_path / "these"), to=tmp_path / "left",
                          progress=False)  # fmt: skip
    assert found.receipt["rows"]["forgotten"] == 2 and found.receipt["scanned"]["equal_rows"] == 1


def test_only_who_has_the_key_finds_a_row_in_the_receipt(tmp_path):
    x, y = random_rows(N, 30)
    _trained(tmp_path, x, y, loss="hinge")
    given = dict(rows=[7], progress=False)
    plain = bigclf.forget(tmp_path / "run", tmp_path / "a.bigclf", to=tmp_path / "a", **given)
    assert plain.receipt["rows"]["digests"] is None
    keyed = bigclf.forget(tmp_path / "run", tmp_path / "b.bigclf", to=tmp_path / "b", key=tmp_path / "key", **given)
    secret, row = (tmp_path / "key").read_bytes(), x[7]
    digest = receipt.row_digest(secret, row.indices, row.data, int(y[7]))
    assert keyed.receipt["rows"]["digests"] == [digest] != [receipt.row_digest(b"", row.indices, row.data, int(y[7]))]
    assert os.stat(tmp_path / "key").st_mode & 0o077 == 0


# What goes wrong


@pytest.mark.parametrize("last", ["write_without", "_trained", "note_finishing", "_name_files", "_remove"])
@pytest.mark.parametrize("way", ["to", "rewrite"])
def test_broken_off_anywhere_the_same_call_goes_on(last, way, tmp_path, monkeypatch):
    x, y = random_rows(N, 30)
    _trained(tmp_path, x, y, loss="hinge")
    where = {"rewrite": True} if way == "rewrite" else {"to": tmp_path / "left"}
    call = dict(rows=GONE, progress=False, **where)
    place = next(one for one in (verb, verb.removing, receipt, receipt.Journal) if hasattr(one, last))
    if last == "_remove" and way == "to":
        return
    does = getattr(place, last)

    def breaks(*given, **more):
        does(*given, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, last, breaks)
        with pytest.raises(KeyboardInterrupt):
            bigclf.forget(tmp_path / "run", tmp_path / "m.bigclf", **call)
    if last in ("write_without", "_trained"):
        assert bigclf.Dataset(tmp_path / "rows").n_rows == N and not (tmp_path / "m.bigclf").exists()
    found = bigclf.forget(tmp_path / "run", tmp_path / "m.bigclf", **call)
    assert bigclf.Dataset(tmp_path / ("rows" if way == "rewrite" else "left")).n_rows == N - GONE.size
    assert found.receipt["after"]["converged"] and (tmp_path / "run").exists() == (way == "to")
    names = [name for _, folders, there in os.walk(tmp_path) for name in (*folders, *there)]
    assert not [name for name in names if name.startswith(".") or name == "forgetting.json"]


@pytest.mark.parametrize("way", ["to", "rewrite"])
@pytest.mark.parametrize("rows", [[0, 7], [3]], ids=["the same", "other rows"])
def test_one_that_comes_second_to_the_lock_leaves_what_the_first_made(rows, way, tmp_path, monkeypatch):
    x, y = random_rows(N, 30)
    _trained(tmp_path, x, y, loss="hinge")
    where = {"rewrite": True} if way == "rewrite" else {"to": tmp_path / "left"}
    given = tmp_path / "run", tmp_path / "m.bigclf"
    lock, made = files.lock, {}

    def late(path, *more):
        monkeypatch.setattr(files, "lock", lock)
        bigclf.forget(*given, rows=[0, 7], progress=False, **where)
        made.update(_bytes_under(tmp_path))
        return lock(path, *more)

    monkeypatch.setattr(files, "lock", late)
    with pytest.raises((DataError, RunError), match=r"already exists|since it was first read"):
        bigclf.forget(*given, rows=rows, progress=False, **where)
    assert str(tmp_path / "m.bigclf.run" / "run.json") in made
    assert dict(_bytes_under(tmp_path)) == made and not list(tmp_path.rglob(".*"))


def test_nobody_else_takes_places_while_files_take_theirs(tmp_path, monkeypatch):
    x, y = random_rows(N, 30)
    _trained(tmp_path, x, y, loss="hinge")
    call = dict(rows=[0, 7], rewrite=True, progress=False)
    names, refused = receipt._name_files, []

    def beside(*given):
        with monkeypatch.context() as patch, pytest.raises(RunError, match="another bigclf forget writes") as error:
            patch.setattr(receipt, "_name_files", names)
            bigclf.forget(tmp_path / "run", tmp_path / "m.bigclf", **call)
        refused.append(error)
        names(*given)

    monkeypatch.setattr(receipt, "_name_files", beside)
    bigclf.forget(tmp_path / "run", tmp_path / "m.bigclf", **call)
    assert refused and bigclf.Dataset(tmp_path / "rows").n_rows == N - 2 and not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize("below", ["cache/mine", f"data/raw/{'0' * 32}"])
def test_shards_that_lie_in_the_cache_or_are_named_as_there_may_be_a_persons_own(below, tmp_path, monkeypatch):
    """Numbers of rows were refused, as those of a raw file whose rows ``fit`` had shuffled; there is none."""
    monkeypatch.setenv("BIGCLF_CACHE_DIR", str(tmp_path / "cache"))
    place = tmp_path / below
    place.parent.mkdir(parents=True)
    shards_of(place, *random_rows(N, 30), shard_nnz=800)
    bigclf.fit(place, run_dir=tmp_path / "run", algo="dcd", loss="hinge", tol=1e-3, progress=False)
    call = dict(rows=[3], progress=False)
    made = bigclf.forget(tmp_path / "run", tmp_path / "to.bigclf", to=tmp_path / "to", **call)
    assert made.receipt["rows"]["left"] == N - 1
    bigclf.forget(tmp_path / "run", tmp_path / "m.bigclf", rewrite=True, **call)
    assert bigclf.Dataset(place).n_rows == N - 1


def _broken_off_before_shards_take_their_places(tmp_path, monkeypatch):
    x, y = random_rows(N, 30)
    _trained(tmp_path, x, y, loss="hinge")
    call = dict(rows=[0, 7], rewrite=True, progress=False)

    def broken(*given):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(files, "move", broken)
        bigclf.forget(tmp_path / "run", tmp_path / "m.bigclf", **call)
    return call


def test_another_request_does_not_take_shards_away_that_wait_for_their_places(tmp_path, monkeypatch):
    """Its shards took the places, and the receipt of the first said that its rows, which were in them, were gone."""
    call = _broken_off_before_shards_take_their_places(tmp_path, monkeypatch)
    before = dict(_bytes_under(tmp_path))
    told = f"rows: another bigclf forget lets shards take their places.*{tmp_path}/m.bigclf.run; give its command again"
    with pytest.raises(RunError, match=told):
        bigclf.forget(tmp_path / "run", tmp_path / "other.bigclf", **call | {"rows": [3]})
    assert dict(_bytes_under(tmp_path)) == before
    bigclf.forget(tmp_path / "run", tmp_path / "m.bigclf", **call)
    assert bigclf.Dataset(tmp_path / "rows").n_rows == N - 2 and not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize("waits", [True, False])
def test_shards_that_changed_meanwhile_are_neither_replaced_nor_said_to_be(waits, tmp_path, monkeypatch):
    call = _broken_off_before_shards_take_their_places(tmp_path, monkeypatch)
    aside = tmp_path / "rows" / receipt.ASIDE
    kept = {path.name: path.read_bytes() for path in aside.iterdir()}
    shutil.rmtree(tmp_path / "rows")
    x, y = random_rows(N, 30)
    shards_of(tmp_path / "rows", x * 2 if waits else x, y, shard_nnz=800)  # others, or the old ones from a backup
    if waits:
        aside.mkdir()
        for name, content in kept.items():
            (aside / name).write_bytes(content)
    with pytest.raises(RunError, match=r"part-00000.parquet: has changed since this bigclf forget was broken off"):
        bigclf.forget(tmp_path / "run", tmp_path / "m.bigclf", **call)
    assert bigclf.Dataset(tmp_path / "rows").n_rows == N
    assert not [name for name in os.listdir(tmp_path) if name in ("m.bigclf", "m.bigclf.receipt.json")]


@pytest.mark.parametrize("shared", ["output", "run_dir", "receipt", "to", "rows"])
def test_two_at_once_share_neither_an_output_nor_shards_that_are_rewritten(shared, tmp_path, monkeypatch):
    """Two over different shards, with one output in common, were both let in."""
    x, y = random_rows(N, 30)
    names, rewrite = ["output", "receipt", "run_dir", "to"][: 3 if shared == "rows" else 4], shared == "rows"
    outputs = {name: tmp_path / "out" / name for name in names}
    others = {name: tmp_path / "new" / name for name in names}
    if not rewrite:
        others[shared] = outputs[shared]
    for name in ("one", "two"):
        _trained(tmp_path / name, x, y, loss="hinge")
    before, trains, refused = dict(_bytes_under(tmp_path / "two")), verb._trained, []
    told = "process takes rows out of these shards" if rewrite else f"out/{shared}: another bigclf forget writes there"

    def beside(*given):
        monkeypatch.setattr(verb, "_trained", trains)
        with pytest.raises(RunError, match=told) as error:
            run = tmp_path / ("one" if rewrite else "two") / "run"
            bigclf.forget(run, rows=[1], rewrite=rewrite, progress=False, **others)
        refused.append(error)
        return trains(*given)

    monkeypatch.setattr(verb, "_trained", beside)
    found = bigclf.forget(tmp_path / "one" / "run", rows=GONE, rewrite=rewrite, progress=False, **outputs)
    assert refused and found.receipt["rows"]["left"] == N - GONE.size
    assert dict(_bytes_under(tmp_path / "two")) == before
    assert sorted(os.listdir(tmp_path)) == ["one", "out", "two"] and sorted(os.listdir(tmp_path / "out")) == names


def test_a_failure_before_anything_is_written_leaves_the_run_that_was_to_be_replaced(tmp_path, monkeypatch):
    x, y = random_rows(N, 30)
    _trained(tmp_path, x, y, loss="hinge")
    call = dict(to=tmp_path / "left", progress=False)
    bigclf.forget(tmp_path / "run", tmp_path / "m.bigclf", rows=[1], **call)
    before = dict(_bytes_under(tmp_path))

    def fails(*given, **named):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files, "clear_directory", fails)
    with pytest.raises(OSError, match="Input/output"):
        bigclf.forget(tmp_path / "run", tmp_path / "m.bigclf", rows=[2], overwrite=True, **call)
    assert dict(_bytes_under(tmp_path)) == before


def test_a_disk_without_room_for_the_carried_dual_variables_is_named(tmp_path, on_disk, monkeypatch):
    reserve, size = files.reserve, 8 * (N - GONE.size)

    def full(descriptor, asked):  # the file that training has them in was there first
        if asked == size:
            raise OSError(errno.ENOSPC, "No space left on device")
        reserve(descriptor, asked)

    x, y = random_rows(N, 30)
    _trained(tmp_path, x, y, loss="squared_hinge", memory="17MB")
    monkeypatch.setattr(files, "reserve", full)
    with pytest.raises(RunError, match=r"local' has no room for 3,160 bytes .*No space left.*local_dir"):
        bigclf.forget(tmp_path / "run", tmp_path / "m.bigclf", rows=GONE, to=tmp_path / "left", progress=False,
                      local_dir=tmp_path / "local")  # fmt: skip
    assert bigclf.Dataset(tmp_path / "rows").n_rows == N and not (tmp_path / "m.bigclf.run").exists()


def test_what_cannot_be_done_is_refused_and_nothing_is_changed(tmp_path):
    x, y = random_rows(N, 30)
    data = _trained(tmp_path, x, y, loss="hinge")
    run, out = tmp_path / "run", tmp_path / "m.bigclf"
    left = {"to": tmp_path / "left", "progress": False}
    with pytest.raises(TypeError, match="say what becomes of the shards"):
        bigclf.forget(run, out, rows=[1])
    with pytest.raises(TypeError, match="exactly one of rows, where and like"):
        bigclf.forget(run, out, **left)
    with pytest.raises(ValueError, match="there is no row 400"):
        bigclf.forget(run, out, rows=[400], **left)
    with pytest.raises(DataError, match="every row is to be forgotten"):
        bigclf.forget(run, out, rows=range(N), **left)
    with pytest.raises(DataError, match="has the label"):
        bigclf.forget(run, out, rows=np.flatnonzero(y > 0), **left)
    with pytest.raises(DataError, match="not the files that the model was trained on"):
        bigclf.forget(run, out, rows=[1], data=data.files[:1], **left)
    (tmp_path / "these.svm").write_text("1 1:2\n1 x\n")
    with pytest.raises(DataError, match=r"line 2: [^;]*; correct this row, or take it out of the file$"):
        bigclf.forget(run, out, like=tmp_path / "these.svm", **left)
    bigclf.fit(data, algo="dcd", loss="hinge", progress=False).save(tmp_path / "alone.bigclf")
    with pytest.raises(TypeError, match=r"fit it again with --run-dir \(run_dir=\), which keeps the run"):
        bigclf.forget(tmp_path / "alone.bigclf", out, rows=[1], **left)
    online = bigclf.fit(data, algo="pa1", epochs=1, progress=False)
    online.save(tmp_path / "pa.bigclf")
    with pytest.raises(TypeError, match=r"algo='pa1' learns from each row as it passes.*algo='dcd'"):
        bigclf.forget(tmp_path / "pa.bigclf", out, rows=[1], **left)
    assert not out.exists() and not (tmp_path / "left").exists()
    bigclf.forget(run, out, rows=[1], **left)
    with pytest.raises(RunError, match="already exists"):
        bigclf.forget(run, out, rows=[2], **left)
    assert bigclf.forget(run, out, rows=[2], overwrite=True, **left).receipt["rows"]["left"] == N - 1


def test_a_model_without_its_run_is_trained_anew_and_says_so(tmp_path):
    x, y = random_rows(N, 30)
    data = _trained(tmp_path, x, y, loss="hinge")
    bigclf.load(tmp_path / "run" / "model.bigclf").save(tmp_path / "alone.bigclf")
    found = bigclf.forget(tmp_path / "alone.bigclf", tmp_path / "m.bigclf", rows=GONE, data=data,
                          to=tmp_path / "left", progress=False)  # fmt: skip
    assert found.receipt["after"]["began_with"] == "nothing" and found.receipt["after"]["converged"]


def test_the_command_prints_the_receipt_and_takes_rows_from_a_file(tmp_path):
    x, y = random_rows(N, 30)
    _trained(tmp_path, x, y, loss="hinge")
    (tmp_path / "numbers.txt").write_text("\n".join(map(str, GONE)))
    line = ["forget", str(tmp_path / "run"), "-o", str(tmp_path / "m.bigclf"), "--to", str(tmp_path / "left")]
    done = CliRunner().invoke(main, [*line, "--rows", str(tmp_path / "numbers.txt")])
    assert done.exit_code == 0, done.output
    assert "5 rows of 400 forgotten" in done.output and "no trace" in done.output
    further = ["forget", str(tmp_path / "m.bigclf"), "-o", str(tmp_path / "n.bigclf"), "--rewrite", "--rows", "1"]
    later = CliRunner().invoke(main, further)
    assert f"stays since an earlier request: {tmp_path / 'rows' / 'part-00000.parquet'}" in later.stdout
    assert f"replaced: {tmp_path / 'left' / 'part-00000.parquet'} (shard with such rows)" in later.stdout
    assert f"removed: {tmp_path / 'm.bigclf.run'} (run: dual variables" in later.stdout
    again = CliRunner().invoke(main, [*line, "--rows", "1,2", "--overwrite", "--json"])
    assert json.loads(again.stdout)["rows"]["forgotten"] == 2
    wrong = CliRunner().invoke(main, [*line, "--rows", "1,x", "--overwrite"])
    assert wrong.exit_code == 2 and "--rows" in wrong.output
