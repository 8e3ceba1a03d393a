"""Workers alone do not cut the rows of a dual method, unless that is predicted to be faster."""

import logging

import pytest
from making import random_rows

import bigclf
from bigclf.request.auto import Asked
from bigclf.request.spreading import (
    BANDWIDTH,
    GATHERED_PASSES,
    JOIN_SECONDS,
    PAYS,
    SET_SHARE,
    advice,
    has_room,
    speed_up,
)

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


@pytest.mark.parametrize(("loss", "why"), [("hinge", "times its speed"), ("squared_hinge", "many more passes")])
def test_rows_of_a_dual_method_stay_in_one_group(client, caplog, quiet, loss, why):
    rows = random_rows(300, 20, noise=0.5)
    options = dict(algo="dcd", loss=loss, memory="64MB", progress=False, epochs=3)
    with caplog.at_level(logging.WARNING, "bigclf"):
        far = bigclf.fit(*rows, workers=client, **options)
    (line,) = [record.getMessage() for record in caplog.records if "one process is faster" in record.getMessage()]
    assert why in line and "one of the 2 workers trains" in line and "groups=2" in line
    here = bigclf.fit(*rows, **options)
    assert len(far.result_.plan["groups"]) == 1
    assert far.coef_.tobytes() == here.coef_.tobytes()


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
    small = asked(10**5, 10**9)  # four milliseconds of work
    assert speed_up(small, "hinge", 2, True) == pytest.approx(
        0.004 / (0.004 * (SET_SHARE + (1 - SET_SHARE) / 2)
                 + GATHERED_PASSES * (JOIN_SECONDS + 2 * 8 * 47_001 * 2 / BANDWIDTH)), rel=0.01,
    )  # fmt: skip


def test_a_set_that_has_no_room_is_not_counted_on():
    assert has_room(asked(10**8, 10**9)) and not has_room(asked(10**9, 10**9))


def test_advice_is_empty_where_groups_pay():
    assert advice("dcd", 8, PAYS) == ""
    assert "8 groups are predicted to have 1.2 times its speed" in advice("dcd", 8, 1.2)
    assert "many more passes" in advice("dcd_mc", 8, 0.0)
