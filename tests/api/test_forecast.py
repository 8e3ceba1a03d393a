"""``bigclf plan``: what follows from the plan is what a run then takes; what was measured is kept."""

import json
import logging

import pytest
from making import random_rows, shards_of
from test_cli import bigclf, error_of

import bigclf as package
from bigclf.api import plan as module
from bigclf.api.plan import Rates, forecast
from bigclf.errors import MemoryBudgetError

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
RATES = Rates(first=20e-9, later=5e-9, fixed=0.001, mix=0.002, exchange=0.0, disk=1e9, store_bytes=10**6, entries=1000,
              touched=100, growth=0.5, base=10**8, start=2.0, measured="", cpu="", load=0.0)  # fmt: skip


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "s"
    shards_of(path, *random_rows(900, 40, noise=0.5), chunk_nnz=300)
    return str(path)


@pytest.fixture
def rates(monkeypatch):
    """Nothing is measured."""
    monkeypatch.setattr(module, "_rates", lambda intent, fresh: RATES)


def test_memory_and_bytes_are_those_of_the_run(shards, rates):
    told = forecast(shards, algo="pa1", memory="64MB")
    run = package.fit(shards, algo="pa1", memory="64MB", epochs=2, progress=False).result_
    assert told["plan"] == run.plan
    assert told["memory"]["planned"] == run.plan["memory"]["planned"]
    assert told["memory"]["total"] == told["memory"]["planned"] + RATES.base
    assert RATES.base < told["memory"]["likely"] < told["memory"]["total"]
    read = run.history[-1]["bytes_read"] / run.reads
    assert abs(told["bytes_read"]["epoch"] / read - 1) < 0.1


@pytest.mark.parametrize(
    ("algo", "more"),
    [("pa1", {}), pytest.param("newton", {"loss": "logistic"}, marks=pytest.mark.slow)],
)
def test_bytes_moved_are_those_of_a_cluster(shards, rates, algo, more, quiet):
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    words = dict(algo=algo, groups=3, memory="64MB", **more)
    told = forecast(shards, workers=2, **words)["network"]
    options = dict(threads_per_worker=1, processes=False, memory_limit=0, dashboard_address=":0", protocol="tcp")
    with distributed.LocalCluster(n_workers=2, **options) as cluster, distributed.Client(cluster) as client:
        run = package.fit(shards, workers=client, epochs=3, progress=False, **words).result_
    moved = run.epochs * told["up"] + (run.epochs - 1) * told["down"]
    assert abs(moved / run.history[-1]["bytes_moved"] - 1) < 0.1
    assert told["epoch"] == told["up"] + told["down"] > 0


def test_a_worker_has_the_working_sets_of_its_own_groups(shards, rates):
    with pytest.raises(MemoryBudgetError) as refusal:
        forecast(shards, algo="dcd", groups=2, memory="1MB")
    least = str(refusal.value).split("memory=")[-1].removesuffix(" would do")
    one = forecast(shards, algo="dcd", groups=2, memory=least)
    two = forecast(shards, algo="dcd", groups=2, memory=least, workers=2)
    for name in ("row state", "working set", "membership"):
        assert two["memory"]["parts"][name] == one["plan"]["memory"][name] // 2 > 0
    assert RATES.base < two["memory"]["likely"] < two["memory"]["total"] < one["memory"]["total"]
    rows, members = 900, 2 * min(900, one["plan"]["set_rows"])
    up = 2 * (41 * 8 + module.FIGURES) + 2 * 41 * 8 + 8 * rows + module.MEMBER_BYTES * members
    assert two["network"]["up"] == up  # states of 40 features and a bias, v for the certificate, alpha, the set's rows


def test_a_small_share_of_the_features_travels_as_changes():
    assert module._travels(10, 1001, 8, 0) == 10 * 12
    assert module._travels(334, 1001, 8, 16) == 1001 * 8 + 16  # a third: whole


def test_features_grow_by_a_power_of_the_entries():
    class Source:
        n_features = 150

    assert module._features(4000, Source, RATES) == 150  # 100 * sqrt(4), and no more than there are
    assert module._features(250, Source, RATES) == 50


def test_seconds_of_groups_on_workers_elsewhere_and_here(shards, rates, monkeypatch):
    one = forecast(shards, algo="pa1", groups=4, memory="64MB")["seconds"]
    four = forecast(shards, algo="pa1", groups=4, memory="64MB", workers=4, bandwidth="1kB")
    assert four["seconds"]["later"] > four["network"]["epoch"] / 1000  # what is moved takes longer than all else
    fast = forecast(shards, algo="pa1", groups=4, memory="64MB", workers=4, bandwidth="100GB")["seconds"]
    entries = four["data"]["nnz"]
    monkeypatch.setattr(module, "cores", lambda: 2)
    here = forecast(shards, algo="pa1", groups=4, memory="64MB", workers=4)["seconds"]
    assert here["later"] == pytest.approx(one["later"] / 2, rel=0.1)  # two of them work at a time
    assert one["later"] == pytest.approx(4 * RATES.fixed + RATES.later * entries, rel=0.1)
    expected = RATES.fixed + RATES.later * entries / 4 + 4 * RATES.mix + module.VISIT_SECONDS
    assert fast["later"] == pytest.approx(expected, rel=0.1)


def test_a_store_beyond_the_page_cache_is_read_at_the_speed_of_the_disk(shards, monkeypatch):
    slow = RATES._replace(store_bytes=10**15)
    monkeypatch.setattr(module, "_rates", lambda intent, fresh: slow)
    monkeypatch.setattr(module, "settle", _streamed(module.settle))
    assert forecast(shards, algo="pa1", memory="64MB")["seconds"]["later"] > 10**15 / slow.disk


def _streamed(settle):
    def settled(*arguments, **words):
        import dataclasses

        problems, plan = settle(*arguments, **words)
        return problems, dataclasses.replace(plan, store_bytes=1)

    return settled


@pytest.mark.long
def test_rates_are_measured_once_and_again_on_demand(shards, monkeypatch):
    counted = []
    whole = module._measured
    monkeypatch.setattr(module, "_measured", lambda intent: counted.append(1) or whole(intent))
    first = forecast(shards, algo="pa1", memory="64MB")["rates"]
    assert forecast(shards, algo="pa1", memory="64MB")["rates"] == first and len(counted) == 1
    assert first["cpu"] and first["measured"].endswith("Z") and first["first"] > 0 and first["base"] > 5e7
    out, _ = bigclf("plan", shards, "--algo", "pa1", "--memory", "64MB", "--fresh")
    assert len(counted) == 2
    assert "a plan for pa1" in out and "stay in memory" in out and "measured" in out


def test_the_command(shards, rates):
    words = ["plan", shards, "--algo", "pa1", "--C", "0.1", "--groups", "3", "--workers", "2", "--bandwidth", "1GB/s"]
    told = json.loads(bigclf(*words, "--json")[0])
    assert told["workers"] == 2 and told["groups"] == 3 and told["network"]["epoch"] > 0
    assert "at 1GB/s" in bigclf(*words)[0]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--algo", "pa9"], 2, "pa9"),
        (["--bandwidth", "fast"], 2, "not a size"),
        (["--algo", "perceptron", "--C", "1"], 2, "C has no effect"),
        (["--algo", "pa1", "--memory", "1kB"], 1, "would do"),
    ],
)
def test_what_is_refused(shards, rates, words, code, message):
    assert message in error_of("plan", shards, *words, code=code)
