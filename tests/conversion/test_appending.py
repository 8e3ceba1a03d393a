"""Datasets that grow: old shards keep their bytes, readers see all of the new ones or none."""

import errno
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from making import environment

import bigclf
from bigclf import files
from bigclf.api.outcome import grown
from bigclf.cli.validate import validate
from bigclf.conversion import appending
from bigclf.conversion.resuming import Workplace
from bigclf.errors import DataError, RunError, SchemaError
from bigclf.model.model import Model


def text_of(n_rows, width=40, labels=(-1, 1), seed=0):
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(n_rows):
        columns = np.sort(rng.choice(width, 5, replace=False)) + 1
        lines.append(f"{rng.choice(labels)} " + " ".join(f"{c}:{rng.integers(1, 9)}" for c in columns))
    return "\n".join(lines) + "\n"


def content(directory):
    return {name: (directory / name).read_bytes() for name in sorted(os.listdir(directory)) if name[:4] == "part"}


@pytest.fixture
def text(tmp_path):
    def write(name, *args, **keywords):
        path = tmp_path / f"{name}.svm"
        path.write_text(text_of(*args, **keywords))
        return path

    return write


SMALL = dict(shard_nnz=800, chunk_nnz=300)


def test_appended_shards_stand_beside_the_old_ones(tmp_path, text):
    a, b = text("a", 400), text("b", 300, 60, (-1, 1, 2), 1)
    first = bigclf.convert(a, tmp_path / "s", append=True, **SMALL)  # nothing there yet
    before = content(tmp_path / "s")
    grown = bigclf.convert(b, tmp_path / "s", append=True, **SMALL)
    after = content(tmp_path / "s")
    assert {name: after[name] for name in before} == before and len(after) > len(before) + 1
    assert sorted(after) == [f"part-{n:05d}.parquet" for n in range(len(after))]
    assert (grown.n_rows, grown.n_features, grown.classes.tolist()) == (700, 60, [-1, 1, 2])
    assert grown.report["rows"] == 300 and first.n_rows == 400
    alone = bigclf.convert(b, tmp_path / "t", **SMALL)
    assert list(content(tmp_path / "t").values()) == [after[n] for n in sorted(set(after) - set(before))]
    assert grown.nnz == first.nnz + alone.nnz
    manifest = json.loads((tmp_path / "s" / "_bigclf_manifest.json").read_text())
    assert [f["name"] for f in manifest["files"]] == sorted(after)
    assert bigclf.Dataset(tmp_path / "s").digest == grown.digest
    assert not os.path.exists(tmp_path / "s" / files.UNFINISHED)


@pytest.mark.parametrize("moment", [
    "manifest", *(pytest.param(moment, marks=pytest.mark.long) for moment in ("before", "first", "mark"))
])  # fmt: skip
def test_an_appending_that_is_killed_is_invisible_and_goes_on(tmp_path, text, monkeypatch, moment):
    class Killed(BaseException):
        pass

    def fatal(*_, **__):
        raise Killed

    a, b = text("a", 300), text("b", 300, seed=1)
    for name in ("s", "whole"):
        bigclf.convert(a, tmp_path / name, **SMALL)
    bigclf.convert(b, tmp_path / "whole", append=True, **SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(Workplace, "leave", lambda self, finished: files.unlock(self._lock))
        if moment == "before":
            patch.setattr(appending, "adopt", fatal)
        elif moment == "mark":
            real = files.remove
            patch.setattr(files, "remove", lambda p: fatal() if str(p).endswith(files.UNFINISHED) else real(p))
        else:
            real, calls = files.put, []
            last = 1 if moment == "first" else 10**9
            patch.setattr(files, "put", lambda *p: (calls.append(p), real(*p), len(calls) < last or fatal()))
            if moment == "manifest":
                patch.setattr(bigclf.Dataset, "write_manifest", fatal)
                with pytest.raises(Killed):  # in the first pass already, where it counts for nothing
                    bigclf.convert(b, tmp_path / "s", append=True, **SMALL)
                patch.setattr(bigclf.Dataset, "write_manifest", lambda _, d, told: "converting" in d or fatal())
        with pytest.raises(Killed):
            bigclf.convert(b, tmp_path / "s", append=True, **SMALL)
    seen = bigclf.Dataset(tmp_path / "s")
    assert seen.n_rows == 300 and bigclf.Dataset(tmp_path / "s" / "*.parquet").n_rows == 300
    grown = bigclf.convert(b, tmp_path / "s", append=True, **SMALL)
    assert grown.report["bytes_kept"] == grown.report["bytes_in"]
    assert grown.n_rows == 600 and content(tmp_path / "s") == content(tmp_path / "whole")
    assert sorted(os.listdir(tmp_path / "s")) == sorted(os.listdir(tmp_path / "whole"))


def test_an_appending_that_failed_between_table_and_manifest_is_no_damage(tmp_path, text, monkeypatch):
    """``bigclf validate`` would advise to write the shards anew, of which half might have no source any more."""
    a, b, real = text("a", 400), text("b", 300, seed=1), os.replace
    bigclf.convert(a, tmp_path / "s", **SMALL)

    def failing(old, new):
        if os.fspath(new) == str(tmp_path / "s" / "_bigclf_manifest.json"):
            raise OSError(errno.EIO, "Input/output error")
        real(old, new)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output"):
        patch.setattr(os, "replace", failing)
        bigclf.convert(b, tmp_path / "s", append=True, **SMALL)
    found = bigclf.Dataset(tmp_path / "s")
    assert found.n_rows == 400 and not found.damaged
    assert any("was interrupted (the same command again ends it)" in text for text in found.warnings)
    report = validate([str(tmp_path / "s")])
    assert report["rows"] == 400 and not report["faults"]
    assert bigclf.convert(b, tmp_path / "s", append=True, **SMALL).n_rows == 700
    assert not bigclf.Dataset(tmp_path / "s").warnings


def interrupted(*_):
    raise KeyboardInterrupt


def test_bad_rows_of_an_appending_that_was_cut_short_leave_no_file(tmp_path, text, monkeypatch):
    a, b = text("a", 60), text("b", 50, seed=1)
    bad = tmp_path / "bad.svm"
    bad.write_bytes(pathlib.Path(b).read_bytes() + b"1 bad\n")
    for name in ("s", "whole"):
        bigclf.convert(a, tmp_path / name, **SMALL)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(bigclf.Dataset, "write_manifest", lambda _, d, told: "converting" in d or interrupted())
        bigclf.convert(bad, tmp_path / "s", append=True, on_bad_rows="quarantine", max_bad_fraction=0.1, **SMALL)
    assert (tmp_path / "s" / appending.QUARANTINE).exists()
    for name in ("s", "whole"):
        bigclf.convert(b, tmp_path / name, append=True, **SMALL)
    assert sorted(os.listdir(tmp_path / "s")) == sorted(os.listdir(tmp_path / "whole"))


@pytest.mark.parametrize("there", [True, pytest.param(False, marks=pytest.mark.long)])
def test_killed_when_all_was_there_the_same_appending_appends_nothing(tmp_path, text, monkeypatch, there):
    """It was known again by the shards it appended to, which by then had become more."""
    a, b = text("a", 60), text("b", 50, seed=1)
    if there:
        bigclf.convert(a, tmp_path / "s", **SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(Workplace, "leave", lambda self, finished: files.unlock(self._lock))
        bigclf.convert(b, tmp_path / "s", append=True, **SMALL)
    before = content(tmp_path / "s")
    again = bigclf.convert(b, tmp_path / "s", append=True, **SMALL)
    assert again.report["rows"] == 50 and again.n_rows == 50 + 60 * there and content(tmp_path / "s") == before
    assert not os.path.exists(tmp_path / ".s.converting")
    assert bigclf.convert(b, tmp_path / "s", append=True, **SMALL).n_rows == 100 + 60 * there  # now it is asked for


def test_a_relative_path_is_known_as_well(tmp_path, text, monkeypatch):
    a, b = text("a", 60), text("b", 50, seed=1)
    monkeypatch.chdir(tmp_path)
    sources = bigclf.convert(a, "s", **SMALL).conversion["sources"]
    with monkeypatch.context() as patch:
        patch.setattr(Workplace, "leave", lambda self, finished: files.unlock(self._lock))  # killed when all was there
        bigclf.convert(b, "s", append=True, **SMALL)
    for _ in range(2):
        found = bigclf.Dataset("s")
        assert (
            found.n_rows == 110 and found.conversion["sources"][:1] == sources and len(found.origin()["sources"]) == 2
        )
        if os.path.exists(".s.converting"):
            bigclf.convert(b, "s", append=True, **SMALL)


@pytest.mark.parametrize("first", [False, True])
def test_a_conversion_that_ended_is_not_taken_for_an_appending_nor_the_other_way_round(
    tmp_path, text, monkeypatch, first
):
    """Its working place could not be removed: what was asked first, ``append`` or not, has ended."""
    a = text("a", 60)
    with monkeypatch.context() as patch:
        patch.setattr(Workplace, "leave", lambda self, finished: files.unlock(self._lock))
        bigclf.convert(a, tmp_path / "s", append=first, **SMALL)
    if first:
        with pytest.raises(RunError, match="not empty"):
            bigclf.convert(a, tmp_path / "s", **SMALL)
    else:
        assert bigclf.convert(a, tmp_path / "s", append=True, **SMALL).n_rows == 120
    assert not os.path.exists(tmp_path / ".s.converting")


@pytest.mark.parametrize("noted", [True, False])
def test_replacing_after_a_killed_appending_replaces(tmp_path, text, monkeypatch, noted):
    """Older versions did not note what was asked: their appending is taken for what is asked now."""
    a, b = text("a", 60), text("b", 50, seed=1)
    bigclf.convert(a, tmp_path / "s", **SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(Workplace, "leave", lambda self, finished: files.unlock(self._lock))
        bigclf.convert(b, tmp_path / "s", append=True, **SMALL)
    job = tmp_path / ".s.converting" / "job.json"
    told = json.loads(job.read_text())
    assert told["facts"]["made"]["appends"] is True
    if not noted:
        del told["facts"]["made"]["appends"]
        job.write_text(json.dumps(told))
    assert bigclf.convert(b, tmp_path / "s", overwrite=True, **SMALL).n_rows == (50 if noted else 110)


def test_shards_beside_an_appending_cut_short_are_not_those_that_were_to_take_their_place(tmp_path, text, monkeypatch):
    """The same conversion as the first is killed before it replaces them: all is as the first had made it, but a mark
    is there that the appending left."""
    a, b = text("a", 60), text("b", 50, seed=1)
    bigclf.convert(a, tmp_path / "s", **SMALL)
    for fails, source, more in (("put", b, {"append": True}), ("publish_directory", a, {"overwrite": True})):
        with monkeypatch.context() as patch:
            patch.setattr(files, fails, interrupted)
            with pytest.raises(KeyboardInterrupt):
                bigclf.convert(source, tmp_path / "s", **more, **SMALL)
    assert (tmp_path / "s" / files.UNFINISHED).exists() and bigclf.Dataset(tmp_path / "s").n_rows == 60
    with pytest.raises(RunError, match="not empty"):
        bigclf.convert(a, tmp_path / "s", **SMALL)
    assert bigclf.convert(a, tmp_path / "s", overwrite=True, **SMALL).n_rows == 60
    assert not (tmp_path / "s" / files.UNFINISHED).exists() and not (tmp_path / ".s.converting").exists()


def test_labels_that_were_not_there_are_named_once_they_are(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "1,loyal\n2,gone\n" * 20)
    (tmp_path / "b.csv").write_text("x,y\n" + "1,LOYAL\n2,gone\n3,new\n" * 20)
    spec = {"label": "y", "features": [{"numeric": "x"}]}
    out = tmp_path / "s"
    assert not [w for w in bigclf.convert(tmp_path / "a.csv", out, features=spec).warnings if "before" in w]
    told = bigclf.convert(tmp_path / "b.csv", out, append=True).warnings
    (said,) = [w for w in told if "before" in w]
    assert said.startswith(
        "2 labels that the shards did not have before: 'LOYAL', 'new'; 'LOYAL' may be meant as 'loyal'"
    )
    again = bigclf.convert(tmp_path / "b.csv", out, append=True).warnings
    assert not [w for w in again if "before" in w]
    (twice,) = [w for w in again if "same content" in w]
    assert "by a second --append, remove one of each" in twice
    (out / "part-00002.parquet").unlink()
    assert bigclf.Dataset(out).n_rows == 100


def test_an_appending_removes_what_an_overwriting_had_not_when_it_was_killed(tmp_path, text, monkeypatch):
    a, b = text("a", 60), text("b", 50, seed=1)
    bigclf.convert(a, tmp_path / "s", **SMALL)
    remove = files.remove_tree

    def killed(path, **how):
        if str(path).endswith("replaced") and files.exists(path):
            raise KeyboardInterrupt
        remove(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(files, "remove_tree", killed)
        with pytest.raises(KeyboardInterrupt):
            bigclf.convert(b, tmp_path / "s", overwrite=True, **SMALL)
    assert (tmp_path / ".s.replaced").exists()
    assert bigclf.convert(a, tmp_path / "s", append=True, **SMALL).n_rows == 110
    assert not (tmp_path / ".s.replaced").exists()


@pytest.mark.parametrize("first", [False, True])
def test_one_killed_before_its_shards_were_seen_goes_on_whichever_is_asked(tmp_path, text, monkeypatch, first):
    a = text("a", 60)
    with monkeypatch.context() as patch:
        patch.setattr(files, "publish_directory", interrupted)
        with pytest.raises(KeyboardInterrupt):
            bigclf.convert(a, tmp_path / "s", append=first, **SMALL)
    done = bigclf.convert(a, tmp_path / "s", append=not first, **SMALL)
    assert done.n_rows == 60 and done.report["bytes_kept"] == done.report["bytes_in"]


@pytest.mark.parametrize("name", ["lock", "job.json"])
def test_a_place_whose_removal_failed_once_is_removed_and_the_next_appending_appends(tmp_path, text, monkeypatch, name):
    a, removed = text("a", 60), os.unlink

    def fails_once(path, **options):
        if os.path.basename(path) == name:
            monkeypatch.setattr(os, "unlink", removed)
            raise OSError(errno.EIO, "Input/output error")
        removed(path, **options)

    monkeypatch.setattr(os, "unlink", fails_once)
    bigclf.convert(a, tmp_path / "s", append=True, **SMALL)
    assert os.unlink is removed and sorted(os.listdir(tmp_path)) == ["a.svm", "s"]
    assert bigclf.convert(a, tmp_path / "s", append=True, **SMALL).n_rows == 120


@pytest.mark.parametrize("there", [True, False])
def test_who_came_second_for_the_lock_writes_over_nothing(tmp_path, text, monkeypatch, there):
    """It looked at what is there before the first one had appended."""
    a, b, c = text("a", 60), text("b", 50, seed=1), text("c", 40, seed=2)
    if there:
        bigclf.convert(a, tmp_path / "s", **SMALL)
    waits = Workplace.__init__

    def second(self, *given):
        monkeypatch.setattr(Workplace, "__init__", waits)
        bigclf.convert(b, tmp_path / "s", append=True, **SMALL)
        waits(self, *given)

    monkeypatch.setattr(Workplace, "__init__", second)
    with pytest.raises(RunError, match="another process appended to it meanwhile"):
        bigclf.convert(c, tmp_path / "s", append=True, **SMALL)
    assert bigclf.Dataset(tmp_path / "s").n_rows == 50 + 60 * there and not os.path.exists(tmp_path / ".s.converting")
    assert bigclf.convert(c, tmp_path / "s", append=True, **SMALL).n_rows == 90 + 60 * there


def test_who_came_second_for_the_lock_leaves_no_place_to_work_in(tmp_path, text, monkeypatch):
    """It converted all, was refused, and kept that for another attempt, which a job that is done does not make."""
    a, waits = text("a", 60), Workplace.__init__

    def second(self, *given):
        monkeypatch.setattr(Workplace, "__init__", waits)
        bigclf.convert(a, tmp_path / "s", **SMALL)
        waits(self, *given)

    monkeypatch.setattr(Workplace, "__init__", second)
    with pytest.raises(RunError, match="exists and is not empty"):
        bigclf.convert(a, tmp_path / "s", **SMALL)
    assert sorted(os.listdir(tmp_path)) == ["a.svm", "s"]


def test_an_appending_given_up_is_cleared_by_the_next(tmp_path, text, monkeypatch):
    a, b, c = text("a", 300), text("b", 500, seed=1), text("c", 60, seed=2)
    bigclf.convert(a, tmp_path / "s", **SMALL)
    with monkeypatch.context() as patch:
        patch.setattr(bigclf.Dataset, "write_manifest", lambda _, d, told: d.endswith("shards-1") or 1 / 0)
        with pytest.raises(ZeroDivisionError):
            bigclf.convert(b, tmp_path / "s", append=True, **SMALL)
    grown = bigclf.convert(c, tmp_path / "s", append=True, **SMALL)
    assert grown.n_rows == 360 and len(content(tmp_path / "s")) == len(grown.files)


def test_what_does_not_go_together_is_refused(tmp_path, text):
    a = text("a", 300)
    bigclf.convert(a, tmp_path / "s", **SMALL)
    before = content(tmp_path / "s")
    (tmp_path / "halves.svm").write_text("0.5 1:1\n1 2:1\n")
    with pytest.raises(SchemaError, match="labels are int64 there and float64 in the new rows"):
        bigclf.convert(tmp_path / "halves.svm", tmp_path / "s", append=True)
    (tmp_path / "w.vw").write_text("1 2.0 | a:1\n-1 | b:1\n")
    with pytest.raises(SchemaError, match="made with other features"):
        bigclf.convert(tmp_path / "w.vw", tmp_path / "s", append=True, format="vw", hash_bits=10)
    with pytest.raises(DataError):
        (tmp_path / "bad.svm").write_text("1 x\n")
        bigclf.convert(tmp_path / "bad.svm", tmp_path / "s", append=True)
    with pytest.raises(ValueError, match="take one of them"):
        bigclf.convert(a, tmp_path / "s", append=True, overwrite=True)
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "x.parquet").touch()
    with pytest.raises(RunError, match="no shards that bigclf wrote"):
        bigclf.convert(a, tmp_path / "strange", append=True)
    assert content(tmp_path / "s") == before and not os.path.exists(tmp_path / "s" / files.UNFINISHED)
    bigclf.convert(tmp_path / "halves.svm", tmp_path / "h")
    assert bigclf.convert(a, tmp_path / "h", append=True).classes.tolist() == [-1, 0.5, 1]  # as floats


def test_raw_columns_become_the_features_that_they_are_there(tmp_path):
    rng = np.random.default_rng(0)

    def rows(n, colours):
        return "y,size,colour\n" + "".join(
            f"{rng.choice(['no', 'yes'])},{rng.normal():.3f},{rng.choice(colours)}\n" for _ in range(n)
        )

    (tmp_path / "a.csv").write_text(rows(300, ["red", "green"]))
    (tmp_path / "b.csv").write_text(rows(200, ["red", "blue"]))
    spec = {"label": "y", "features": [{"numeric": "size", "scale": "standard"}, {"categorical": "colour"}]}
    first = bigclf.convert(tmp_path / "a.csv", tmp_path / "s", format="csv", features=spec)
    before = content(tmp_path / "s")
    grown = bigclf.convert(tmp_path / "b.csv", tmp_path / "s", append=True)
    assert grown.features == first.features and grown.n_rows == 500 and grown.n_features == first.n_features
    assert {name: content(tmp_path / "s")[name] for name in before} == before
    model = bigclf.fit(grown, algo="dcd")
    assert len(model.predict(str(tmp_path / "b.csv"))) == 200
    other = {**spec, "features": [{"numeric": "size"}]}
    with pytest.raises(SchemaError, match="another spec"):
        bigclf.convert(tmp_path / "b.csv", tmp_path / "s", format="csv", append=True, features=other)


def test_a_model_of_the_smaller_dataset_is_where_the_grown_one_begins(tmp_path, text):
    bigclf.convert(text("a", 400), tmp_path / "s", **SMALL)
    options = dict(algo="pa1", epochs=1, progress=False)
    first = bigclf.fit(tmp_path / "s", **options)
    grown = bigclf.convert(text("b", 300, 60, seed=1), tmp_path / "s", append=True, **SMALL)
    longer = Model(np.pad(first.coef_, ((0, 0), (0, 20))), first.intercept_, first.classes_, method=first.method)
    found, wanted = (bigclf.fit(grown, init=init, **options) for init in (first, longer))
    assert found.coef_.shape == (1, 60) and (found.coef_ == wanted.coef_).all()
    assert (found.coef_ != bigclf.fit(grown, **options).coef_).any()
    with pytest.raises(ValueError, match="init has weights"):
        bigclf.fit(np.ones((2, 3)), np.array([-1, 1]), init=first, **options)


def test_models_grow(tmp_path):
    two = Model(np.array([[1.0, 2.0]]), np.array([3.0]), np.array([-1, 1]))
    same = grown(two, 3, np.array([-1, 1]))
    assert same.coef_.tolist() == [[1, 2, 0]] and same.intercept_.tolist() == [3]
    more = grown(two, 3, np.array([-1, 0, 1]))
    assert more.coef_.tolist() == [[-1, -2, 0], [0, 0, 0], [1, 2, 0]] and more.intercept_.tolist() == [-3, 0, 3]
    thin = Model(sp.csr_matrix(more.coef_), more.intercept_, more.classes_)
    most = grown(thin, 4, np.array([-1, 0, 1, 2]))
    assert most.sparse and most.dense_weights().tolist() == [*np.pad(more.coef_, ((0, 0), (0, 1))).tolist(), [0] * 4]
    assert grown(two, 2, np.array([-1, 1])) is two
    for wrong in ((1, np.array([-1, 1])), (2, np.array([0, 1])), (2, None)):
        with pytest.raises(ValueError, match="init has weights"):
            grown(two, *wrong)


def test_files_that_come_during_a_run_are_reported_and_left_for_the_next(tmp_path, text, caplog):
    bigclf.convert(text("a", 400), tmp_path / "s", **SMALL)
    more = bigclf.convert(text("b", 300, seed=1), tmp_path / "t", **SMALL)
    alone = bigclf.fit(tmp_path / "s", algo="pa1", epochs=3, progress=False)

    def arrive(record):
        if record["epoch"] == 1:
            os.link(more.files[0], tmp_path / "s" / "part-00099.parquet")

    found = bigclf.fit(f"{tmp_path}/s/*.parquet", algo="pa1", epochs=3, callbacks=[arrive], progress=False)
    told = [warning for warning in found.result_.warnings if "part-00099.parquet) came since" in warning]
    assert (found.coef_ == alone.coef_).all() and len(told) == 1 and told[0] in caplog.text
    again = bigclf.Dataset(tmp_path / "s")
    assert again.n_rows > 400 and not again.new_files()


def test_shards_that_are_gone_are_not_forgotten_by_an_append(tmp_path, text):
    """Its manifest would list what is there, as if that were all."""
    first = bigclf.convert(text("a", 400), tmp_path / "s", **SMALL)
    kept = tmp_path / "kept.parquet"
    os.rename(first.files[1], kept)
    more = text("b", 300, 40, seed=1)
    gone = f"{tmp_path / 's'}: 1 of {len(first.files)} shards that the manifest lists is not there"
    with pytest.raises(DataError, match=re.escape(gone)) as told:
        bigclf.convert(more, tmp_path / "s", append=True, **SMALL)
    os.rename(kept, first.files[1])
    whole = bigclf.convert(more, tmp_path / "s", append=True, **SMALL)
    assert whole.n_rows == 700
    os.remove(first.files[1])
    line = shlex.split(str(told.value).partition("what is there: ")[2])
    subprocess.run([sys.executable, *line[1:]], env=environment(), check=True)
    again = bigclf.convert(text("c", 100, 40, seed=2), tmp_path / "s", append=True, **SMALL)
    assert 100 < again.n_rows < 800 and not again.lost
