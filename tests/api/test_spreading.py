"""Workers alone do not cut the rows of a dual method, unless that is predicted to be faster."""

import logging
import threading

import numpy as np
import pytest
from making import random_rows, shards_of

import bigclf
from bigclf.api.plan import forecast
from bigclf.request import prepare
from bigclf.request.auto import Asked, choose, has_room
from bigclf.request.spreading import (
    BANDWIDTH,
    GATHERED_PASSES,
    JOIN_SECONDS,
    PAYS,
    SET_SHARE,
    advice,
    speed_up,
)
from bigclf.training.memory import PeakMemory
from bigclf.units import in_worker

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def client():
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    options = dict(threads_per_worker=1, processes=False, memory_limit=0, dashboard_address=None)
    with distributed.LocalCluster(n_workers=2, **options) as cluster, distributed.Client(cluster) as client:
        yield client


def asked(nnz, memory):
    return Asked(loss="hinge", penalty=None, bias=None, C=1.0, given=(), epochs=None, n_rows=nnz // 76,
                 n_features=47_000, nnz=nnz, memory=memory, groups=2, tol=1e-3, square=1.0)  # fmt: skip


@pytest.mark.parametrize(
    ("loss", "why"), [("hinge", "groups are predicted to be "), ("squared_hinge", "algo='newton'")]
)
def test_rows_of_a_dual_method_stay_in_one_group(client, caplog, quiet, loss, why):
    rows = random_rows(300, 20, noise=0.5)
    options = dict(algo="dcd", loss=loss, memory="64MB", progress=False, epochs=3)
    with caplog.at_level(logging.WARNING, "bigclf"):
        far = bigclf.fit(*rows, workers=client, **options)
    (line,) = [
        said for said in map(logging.LogRecord.getMessage, caplog.records) if "one of the 2 workers trains" in said
    ]
    assert why in line and ("one process is faster" in line and "groups=2" in line) == (loss == "hinge")
    here = bigclf.fit(*rows, **options)
    assert len(far.result_.plan["groups"]) == 1
    assert far.coef_.tobytes() == here.coef_.tobytes()


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic", "squared_epsilon_insensitive"])
def test_groups_of_losses_whose_rows_all_move_are_refused(client, quiet, loss):
    rows = random_rows(300, 20, noise=0.5, real="epsilon" in loss)
    for verb, more in (("fit", {}), ("fit", {"workers": client}), ("sweep", {"grid": {"C": [0.1, 1.0]}})):
        with pytest.raises(ValueError, match=rf"loss='{loss}' takes one group, not 2: .*Write algo='newton'"):
            getattr(bigclf, verb)(*rows, algo="dcd", loss=loss, groups=2, memory="64MB", progress=False, **more)
    for workers in (None, client):
        model = bigclf.fit(*rows, loss=loss, groups=2, workers=workers, memory="64MB", progress=False)
        assert "algo=auto: newton" in model.result_.chosen and len(model.result_.plan["groups"]) == 2


def test_a_plan_refuses_them_too(tmp_path):
    shards = shards_of(tmp_path / "shards", *random_rows(300, 20), chunk_nnz=500)
    with pytest.raises(ValueError, match="takes one group, not 2"):
        forecast(shards, algo="dcd", loss="logistic", groups=2, workers=2, memory="64MB")


def test_a_run_that_an_older_version_began_goes_on(tmp_path, monkeypatch, quiet):
    rows, words = random_rows(300, 20, noise=0.5), dict(algo="dcd", loss="logistic", groups=2, tol=1e-9, progress=False)
    with monkeypatch.context() as older:
        older.setattr(prepare, "require_joining", lambda method, loss, groups: None)
        whole = bigclf.fit(*rows, epochs=6, **words)
        bigclf.fit(*rows, epochs=3, run_dir=tmp_path, **words)
    assert bigclf.fit(*rows, epochs=6, run_dir=tmp_path, resume=True, **words).digest() == whole.digest()


@pytest.mark.parametrize("more", [dict(algo="dcd", groups=2), dict(algo="pa1")])
def test_others_are_cut_and_nothing_is_said(client, caplog, quiet, more):
    with caplog.at_level(logging.WARNING, "bigclf"):
        model = bigclf.fit(*random_rows(300, 20, noise=0.5), workers=client, memory="64MB", progress=False, epochs=2,
                           **more)  # fmt: skip
    assert len(model.result_.plan["groups"]) == 2
    assert not [record for record in caplog.records if "one process" in record.getMessage()]


def test_what_is_done_to_a_set_in_one_place_bounds_the_speed_up():
    fits = asked(10**8, 10**12)
    assert speed_up(fits, "hinge", 1, True) == 1.0
    assert speed_up(fits, "hinge", 2, False) == 0.0
    assert speed_up(fits, "hinge", 2, True) < speed_up(fits, "hinge", 8, True) < 1 / SET_SHARE < PAYS
    streams = asked(10**9, 10**9)  # reading is shared out
    assert speed_up(streams, "hinge", 2, True) < PAYS < speed_up(streams, "hinge", 8, True)
    small = asked(10**5, 10**9)  # 1.6 milliseconds of work
    assert speed_up(small, "hinge", 2, True) == pytest.approx(
        0.0016 / (0.0016 * (SET_SHARE + (1 - SET_SHARE) / 2)
                 + GATHERED_PASSES * (JOIN_SECONDS + 2 * 8 * 47_001 * 2 / BANDWIDTH)), rel=0.01,
    )  # fmt: skip


def test_a_set_that_has_no_room_is_not_counted_on():
    assert has_room(asked(10**8, 10**9)) and not has_room(asked(10**9, 10**9))


def test_advice_is_empty_where_groups_pay():
    assert advice("dcd", 8, PAYS) == ""
    assert "8 groups are predicted to be 1.2 times as fast" in advice("dcd", 8, 1.2)
    assert "8 groups are predicted to be 31 times as slow" in advice("dcd", 8, 0.032)
    assert "many more passes" in advice("dcd_mc", 8, 0.0)


def warned(caplog):
    return [record.getMessage() for record in caplog.records if "will be idle" in record.getMessage()]


def test_workers_without_rows_are_named(client, caplog, quiet, tmp_path):
    """Rows that are one group, since there is one chunk or somebody said so."""
    rows = random_rows(300, 20, noise=0.5)
    words = dict(memory="64MB", progress=False, epochs=2)
    one, many = (shards_of(tmp_path / str(nnz), *rows, chunk_nnz=nnz) for nnz in (10**6, 500))
    for data, more, why in (
        (one, {}, "(the data have 1 chunk; `bigclf convert --chunk-nnz`"),
        (many, {"groups": 1}, "in training"),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "bigclf"):
            bigclf.fit(data, workers=client, **{"algo": "pa1"} | words | more)
        (line,) = warned(caplog)
        assert line.startswith("1 group of rows for 2 workers: 1 worker will be idle") and why in line


def test_nothing_is_said_where_no_worker_is_idle(client, caplog, quiet, tmp_path):
    x, y = random_rows(300, 20, noise=0.5)
    shards = shards_of(tmp_path / "many", x, y, chunk_nnz=500)
    words = dict(algo="pa1", memory="64MB", progress=False, epochs=2)
    classes = shards_of(tmp_path / "classes", x, np.arange(300) % 3, chunk_nnz=10**6)
    with caplog.at_level(logging.WARNING, "bigclf"):
        bigclf.fit(shards, workers=client, **words)
        bigclf.fit(classes, workers=client, groups=1, multiclass="one-vs-rest", **words)  # problems are dealt out
        bigclf.fit(shards, **words)
    assert not warned(caplog)


def test_a_run_on_workers_says_what_the_largest_of_them_took(client, quiet):
    x, y = random_rows(300, 2**20, 20 / 2**20, noise=0.5)
    words = dict(algo="pa1", memory="200MB", progress=False, epochs=1)
    far, here = (bigclf.fit(x, y, workers=workers, **words).result_.memory for workers in (client, None))
    assert 8 * 2**20 <= far["worker"] <= 200e6 and "worker" not in here  # the weights at least
    assert "less than 1.00 MB in the largest worker" in in_worker({"worker": 10}) and not in_worker(here)


def test_no_visit_begins_a_thread_to_look_at_memory(client, quiet, monkeypatch):
    """Where one ended while Dask's profiler went through all threads, CPython 3.11.7 stopped for ever."""
    begun, start = [], threading.Thread.start

    def noting(thread):
        begun.append(getattr(getattr(thread, "_target", None), "__self__", None))
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", noting)
    bigclf.fit(*random_rows(300, 20), algo="pa1", workers=client, groups=2, epochs=5, progress=False)
    assert sum(isinstance(whose, PeakMemory) for whose in begun) == 1  # the driver's


def test_the_hinge_is_learned_by_sums_where_a_set_fits_nowhere_and_groups_are_many():
    fits, none = asked(10**8, 10**10)._replace(loss="hinge"), asked(10**9, 10**9)._replace(loss="hinge")
    assert choose(none._replace(groups=64))[0] == "augmented_lagrangian"
    assert "need none of them in one place" in choose(none._replace(groups=64))[1]
    assert choose(none._replace(workers=64))[0] == "augmented_lagrangian"  # a group each
    few = [none, none._replace(groups=4), none._replace(workers=8), none._replace(groups=64, problems=5)]
    for other in (*few, fits._replace(groups=64), none._replace(groups=64, loss="epsilon_insensitive")):
        assert choose(other)[0] == "dcd"
    assert choose(none._replace(groups=64, loss="logistic"))[0] == "newton"


def test_a_set_without_room_names_what_needs_none(caplog, client, quiet):
    rows = random_rows(40_000, 40, noise=0.5)
    with caplog.at_level(logging.WARNING, "bigclf"):
        model = bigclf.fit(*rows, algo="dcd", groups=4, memory="8MB", epochs=2, progress=False)
    assert not model.result_.plan["gathered"]
    (line,) = [said for said in map(logging.LogRecord.getMessage, caplog.records) if "groups stay apart" in said]
    assert (
        "algo='augmented_lagrangian' needs none" in line
        and "needs some 5.65 MB beside" in line
        and "memory=8.00 MB has no room" in line
    )
    caplog.clear()
    with caplog.at_level(logging.WARNING, "bigclf"):
        bigclf.fit(*rows, algo="dcd", groups=4, memory="64MB", epochs=2, progress=False)
        bigclf.fit(
            *rows, algo="dcd", groups=4, memory="8MB", epochs=2, progress=False, working_set=0
        )  # as it was asked
    assert "augmented_lagrangian" not in caplog.text
    told = advice("dcd", 2, 0.0, lacks="300MB")
    assert "needs 300MB, which no worker has: algo='augmented_lagrangian' needs none)" in told
    assert "augmented" not in advice("dcd", 2, 0.0)


@pytest.mark.parametrize("algo", ["arow_full", "memma", "voted_perceptron"])
def test_methods_of_one_group_take_workers_without_being_told(client, caplog, quiet, algo):
    rows = random_rows(300, 20, noise=0.5)
    words = dict(algo=algo, memory="64MB", progress=False, epochs=2)
    with caplog.at_level(logging.WARNING, "bigclf"):
        far = bigclf.fit(*rows, workers=client, **words)
    (line,) = [said for said in map(logging.LogRecord.getMessage, caplog.records) if "runs with one group" in said]
    assert f"algo='{algo}'" in line and "one of the 2 workers trains on all rows" in line
    assert far.digest() == bigclf.fit(*rows, **words).digest()
    with pytest.raises(ValueError, match="groups=2 is not available"):
        bigclf.fit(*rows, workers=client, groups=2, **words)
