"""``bigclf plan``: what follows from the plan is what a run then takes; what was measured is kept."""

import json
import logging
import math
from types import SimpleNamespace

import numpy as np
import pytest
from making import random_rows, shards_of
from test_cli import bigclf, error_of

import bigclf as package
from bigclf.api import plan as module
from bigclf.api import plan_of_scoring
from bigclf.api.evaluate import PARTS_A_WORKER
from bigclf.api.plan import Rates, forecast
from bigclf.api.plan_of_scoring import Rates as Speeds
from bigclf.api.plan_of_scoring import Scoring
from bigclf.api.plan_of_sweep import WARM, Points
from bigclf.api.scaling import Outlook, lines_of
from bigclf.cluster.measuring import cut
from bigclf.errors import MemoryBudgetError, RunError
from bigclf.request.spreading import DEALT, SHIPPED_SHARE

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
RATES = Rates(first=20e-9, later=5e-9, fixed=0.001, mix=0.002, disk=1e9, store_bytes=10**6, entries=1000,
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


@pytest.fixture
def footing(monkeypatch):
    """What a process takes that has loaded all is not measured; the trials are."""
    monkeypatch.setattr(module, "_footing", lambda asked: (RATES.base, RATES.start, RATES.kernels))


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
    [("pa1", {}), ("averaged_pa2", {}), pytest.param("newton", {"loss": "logistic"}, marks=pytest.mark.slow)],
)
def test_bytes_moved_are_those_of_a_cluster(shards, rates, algo, more, quiet):
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    words = dict(algo=algo, groups=3, memory="64MB", **more)
    told = forecast(shards, workers=2, **words)["network"]
    options = dict(threads_per_worker=1, processes=False, memory_limit=0, dashboard_address=":0", protocol="tcp")
    with distributed.LocalCluster(n_workers=2, **options) as cluster, distributed.Client(cluster) as client:
        run = package.fit(shards, workers=client, epochs=3, progress=False, **words).result_
    begins = told["down"] if algo == "pa1" else 0  # with nothing; sums are along a direction in the first pass too
    moved = run.epochs * told["epoch"] - begins
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
    assert one["plan"]["gathered"]
    up += module.CHOSEN_BYTES * min(rows, members)  # those that are chosen travel to where they are solved
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


def test_processes_of_this_machine_take_what_they_took_at_work_together(shards, rates, monkeypatch):
    words = dict(algo="pa1", groups=2, memory="64MB", workers=2)
    plain = forecast(shards, **words)
    each = max(package.Dataset(shards).chunks.nnz[a:b].sum() for a, b in plain["plan"]["groups"])
    crew = module.Crew(decode=3e-6, visit=7e-6, fixed=0.5, exchange=4.0, growth=0.5,
                       moved=plain["network"]["epoch"] / 2, entries=10)  # fmt: skip
    monkeypatch.setattr(module, "_rates", lambda intent, fresh: RATES._replace(crew=crew))
    told = forecast(shards, **words)["seconds"]
    assert told["later"] == pytest.approx(0.5 + 7e-6 * each + 2 * 4)  # twice as much moves as when it was measured
    assert told["first"] == pytest.approx(told["later"] + RATES.start + 3e-6 * each)
    elsewhere = forecast(shards, bandwidth="100GB/s", **words)["seconds"]
    assert elsewhere["later"] < 1  # of other machines it says nothing
    assert crew.beside(1000, 0, gathered=True) == 4 * 10 and crew.beside(5, 0, gathered=True) == 4


def test_a_line_through_two_sizes_and_through_noise():
    assert module._line((10, 3.0), (30, 7.0)) == (1.0, 0.2)
    assert module._line((10, 8.0), (30, 6.0)) == (0.0, 0.2) == module._line((30, 6.0))


@pytest.mark.parametrize(("seconds", "epochs"), [(0.01, module.ROUNDS), (4.0, 4), (100.0, 2)])
def test_a_trial_on_processes_ends_though_it_never_meets_its_tolerance(seconds, epochs, monkeypatch):
    """As of groups whose working set has no room."""
    made = []

    def trial(intent, chunks, groups, link, rounds, look):
        for n in range(1000):
            made.append(n)
            run = SimpleNamespace(clock=SimpleNamespace(seconds=n * seconds), counts=SimpleNamespace(visited=2.0 * n),
                                  engine=SimpleNamespace(bytes_moved=8 * n), todo=lambda: [0])  # fmt: skip
            if look(run):
                break
        return SimpleNamespace(entries=10, first=1.0, later=0.5)

    monkeypatch.setattr(module, "_trial", trial)
    told = module._rounds(None, 2, 2, None)
    assert len(made) == epochs and (told.visit, told.moved) == (1.0, 8.0)


@pytest.mark.long
@pytest.mark.parametrize("words", [dict(algo="pa1"), pytest.param(dict(algo="dcd", groups=2), marks=pytest.mark.slow)])
def test_processes_of_this_machine_are_tried(shards, words):
    told = forecast(shards, memory="64MB", workers=2, fresh=True, **words)
    crew = module.Crew(*told["rates"]["crew"])
    assert 0 < crew.visit < 1e-3 and 0 < crew.moved < 1e6 and 0 < crew.entries <= told["data"]["nnz"]
    assert 0 < told["seconds"]["later"] < told["seconds"]["first"]


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


def test_a_table_has_a_line_for_each_number_of_workers(shards, rates):
    told = forecast(shards, algo="newton", loss="logistic", memory="64MB", workers="1,3,2", bandwidth="100GB/s")
    lines = told["table"]
    assert [(line["workers"], line["groups"], line["design"]) for line in lines] == [
        (1, 1, "one group"), (2, 2, "sums"), (3, 3, "sums"),
    ]  # fmt: skip
    alone = forecast(shards, algo="newton", loss="logistic", memory="64MB")
    first, second, _ = lines
    assert first["pass_seconds"] == alone["seconds"]["later"] and first["pass_bytes"] == first["once_bytes"] == 0
    assert len({line["passes"] for line in lines}) == 1  # whatever the groups
    assert second["seconds"] == second["first_seconds"] + (second["passes"] - 1) * second["pass_seconds"]
    assert second["speed_up"] == first["seconds"] / second["seconds"]
    assert first["speed_up"] == 1 and first["advice"] == ""
    assert first["driver"] == first["memory"]
    assert forecast(shards, algo="pa1", epochs=4, memory="64MB", workers=[1, 2])["table"][1]["passes"] == 4


def test_a_table_says_where_one_process_is_enough_and_where_workers_pay(shards, monkeypatch):
    free = RATES._replace(mix=0.0, fixed=0.0, start=0.0, first=1.0, later=1.0)  # seconds an entry: nothing else counts
    monkeypatch.setattr(module, "_rates", lambda intent, fresh: free)
    monkeypatch.setattr(module, "_mixing_seconds", lambda intent: 0.0)

    def last(**words):
        return forecast(shards, memory="64MB", workers=[1, 3], bandwidth="100GB/s", **words)["table"][-1]

    assert last(algo="pa1", epochs=4)["speed_up"] > 2.7  # groups are of about equal numbers of entries
    assert "they pay, with 2.7 times" in last(algo="pa1", epochs=4)["advice"]
    line = last(algo="dcd")
    assert line["design"] == "gathered set" and line["passes"] == 5 and line["speed_up"] < 1.5
    assert "one process is enough" in line["advice"]
    line = last(algo="dcd", loss="squared_hinge")
    assert (line["groups"], line["design"]) == (1, "one group") and line["advice"].startswith("3 workers: one process")
    line = last(algo="dcd", groups=3, working_set=0)
    assert (line["design"], line["passes"], line["speed_up"]) == ("groups apart", None, None)
    assert "many more passes" in line["advice"]


@pytest.mark.parametrize("given", ["0", "1,x", [], [2, 1.5], True])
def test_numbers_of_workers_that_are_none(shards, rates, given):
    with pytest.raises(ValueError, match="workers"):
        forecast(shards, algo="pa1", workers=given)


def test_the_command_with_several_numbers(shards, rates):
    words = ["plan", shards, "--algo", "pa1", "--workers", "1,2,8", "--memory", "64MB"]
    told = json.loads(bigclf(*words, "--json")[0])
    assert [line["workers"] for line in told["table"]] == [1, 2, 8] and told["bandwidth"] == 10**9
    out = bigclf(*words)[0]
    assert "speed" in out and "-up" in out and "8 workers: " in out and "mixing" in out


def test_the_command(shards, rates):
    words = ["plan", shards, "--algo", "pa1", "--C", "0.1", "--groups", "3", "--workers", "2", "--bandwidth", "1GB/s"]
    told = json.loads(bigclf(*words, "--json")[0])
    assert told["workers"] == 2 and told["groups"] == 3 and told["network"]["epoch"] > 0
    assert "at 1GB/s" in bigclf(*words)[0]
    seconds = told["seconds"]
    assert seconds["total"] == pytest.approx(seconds["first"] + (told["passes"] - 1) * seconds["later"])
    assert f"in {told['passes']:.0f} epochs" in bigclf(*words)[0]


def test_raw_tables_and_texts_are_planned_as_they_are_trained(rates, tmp_path):
    table, text, model = (str(tmp_path / name) for name in ("t.csv", "t.svm", "m.bigclf"))
    (tmp_path / "t.csv").write_text("a,b,target\n" + "1,x,yes\n3,y,no\n" * 20)
    (tmp_path / "t.svm").write_text("1 1:1\n-1 2:1\n" * 20)
    for data, more, nnz in ((table, ["--label", "target"], 80), (text, [], 40)):
        told = json.loads(bigclf("plan", data, *more, "--algo", "pa1", "--json")[0])
        fitted = package.fit(data, "target" if more else None, algo="pa1", epochs=1, progress=False)
        assert told["data"] == {"rows": 40, "nnz": nnz, "features": fitted.n_features}
    assert forecast(table, "b", algo="pa1", workers=[1, 2], bandwidth=10**9)["data"]["rows"] == 40
    fitted.save(model)
    assert "run `bigclf convert DATA OUT` first" in error_of("plan", text, "--model", model, code=2)


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


@pytest.mark.parametrize(
    ("words", "groups"),
    [
        ({"algo": "newton", "loss": "squared_hinge"}, 1),
        ({"algo": "newton", "loss": "logistic"}, 3),
        ({"algo": "dcd"}, 3),
    ],
)
def test_passes_are_those_of_a_trial_on_part_of_the_rows(tmp_path, words, groups, quiet, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", math.inf)  # however slow the machine is, trials end by their tolerance
    shards_of(tmp_path / "s", *random_rows(6000, 40, noise=0.5), chunk_nnz=2000)
    shards = str(tmp_path / "s")
    words = words | dict(memory="64MB", tol=1e-3, groups=groups)
    told = forecast(shards, **words, workers=groups, bandwidth="1GB/s")
    run = package.fit(shards, **words, progress=False).result_
    assert 0 < told["rates"]["entries"] < 0.3 * told["data"]["nnz"]
    assert abs(told["passes"] - run.epochs) <= max(2, 0.4 * run.epochs)
    assert told["rates"]["passes"] > 0 and (told["rates"]["shipped"] != SHIPPED_SHARE) == run.plan["gathered"]


def test_passes_grow_with_the_rows_at_most_as_their_square_root():
    few, many = (module.Trial(n, 1.0, 1.0, 0, passes, 0.0) for n, passes in ((100, 10), (400, 30)))
    found = module._grown(RATES._replace(entries=400), [few, many])
    assert (found.longer, found.passes_of(1600), found.passes_of(400)) == (0.5, 60, 30)
    assert module._grown(RATES, [few, many._replace(passes=8)]).longer == 0.0
    assert module._grown(RATES, [few, many._replace(passes=0)]).passes_of(1600) is None


def test_a_trial_in_one_group_gathers_nothing(shards, monkeypatch):
    intents = []
    monkeypatch.setattr(module, "_rates", lambda intent, fresh: intents.append(intent) or RATES)
    forecast(shards, algo="dcd", groups=2, memory="64MB")
    assert intents[0].plan.gathered
    assert module._trial(intents[0], 1, 1).entries == intents[0].source.chunks.nnz[0]


def test_a_sweep_is_planned_as_it_is_run(shards, rates):
    words = dict(algo="dcd", grid={"C": [0.1, 1.0, 10.0]}, folds=3, memory="64MB")
    told = forecast(shards, **words)
    run = package.sweep(shards, epochs=2, tol=1e-1, refit=False, progress=False, **words)
    assert told["plan"] | {"memory": 0} == run.plan | {"memory": 0}
    assert told["memory"]["planned"] == run.plan["memory"]["planned"]
    nnz, n = told["data"]["nnz"], 3 * 3 * 2 / 3  # problems, each without a third of the rows
    turns = -(-3 // min(told["plan"]["learners"], module.cores())) / 3  # three folds, from one value of C to the next
    assert told["seconds"]["later"] == pytest.approx(n * turns * (RATES.fixed + RATES.later * nnz))
    assert told["seconds"]["after"] == pytest.approx(told["passes"] * (RATES.fixed + RATES.later * nnz))


def test_workers_share_what_a_sweep_learns_at_a_time(shards, monkeypatch):
    monkeypatch.setattr(module, "_rates", lambda intent, fresh: RATES._replace(later=1e-3, passes=4.0, start=0.0))
    monkeypatch.setattr(module, "_known", lambda intent, known: known)
    words = dict(algo="dcd", grid={"C": [0.1, 1.0, 10.0]}, memory="64MB", workers=[1, 2, 5, 8])
    told = forecast(shards, folds=5, **words)
    lines, nnz = told["table"], told["data"]["nnz"]
    passes = [line["pass_seconds"] for line in lines[1:]]
    assert passes == pytest.approx([2 * passes[1], passes[1], passes[1]], rel=1e-3)  # four of five folds at a time
    assert {line["design"] for line in lines[1:]} == {"problems dealt out"}
    assert lines[1]["seconds"] == pytest.approx(
        lines[1]["first_seconds"] + 3 * passes[0] + 4 * (RATES.fixed + 1e-3 * nnz), rel=1e-3
    )
    streamed = forecast(shards, folds=5, **words | {"algo": "pa1"})["table"]  # which has no chains: 15 problems
    assert streamed[1]["pass_seconds"] / streamed[3]["pass_seconds"] == pytest.approx(8 / 2, rel=1e-2)


def test_a_plan_of_a_sweep_is_of_one_method(shards, rates):
    with pytest.raises(ValueError, match="a plan is of one method"):
        forecast(shards, grid={"algo": ["pa1", "pa2"], "C": [0.1, 1.0]}, memory="64MB")
    words = dict(grid={"C": [0.1, 1.0]}, memory="64MB")
    chosen = package.sweep(shards, folds=0, validate=shards, progress=False, **words).best_model
    assert forecast(shards, folds=0, **words)["algo"] == chosen.method["name"]
    told = bigclf("plan", shards, "--algo", "dcd", "--grid", "C=0.1,1", "--memory", "64MB", "--json")
    assert json.loads(told[0])["seconds"]["after"] > 0


def test_points_of_a_sweep_weigh_what_trials_of_three_of_them_counted(shards, monkeypatch):
    words = dict(algo="dcd", grid={"C": [0.01, 0.1, 1.0, 10.0, 100.0]}, folds=5, memory="64MB")

    def later(works, **more):
        monkeypatch.setattr(module, "_rates", lambda intent, fresh: RATES._replace(works=works))
        return forecast(shards, **words, **more)["seconds"]["later"]

    even = later(())
    assert later((3.0, 3.0, 3.0)) == pytest.approx(even * (1 + 4 * WARM) / 5)
    # each takes twice as much as the one before it: a line in the logarithms, 1/4 to 4 times the middle one
    assert later((8.0, 2.0, 32.0)) == pytest.approx(even * (1 / 4 + WARM * (1 / 2 + 1 + 2 + 4)) / 5)
    assert later((8.0, 2.0, 0.0)) == even  # the last did not end
    monkeypatch.setattr(module, "_rates", lambda intent, fresh: RATES._replace(works=(8.0, 2.0, 32.0)))
    passes = [2.0, *(WARM * each for each in (4.0, 8.0, 16.0, 32.0))]
    assert forecast(shards, **words)["work"] == pytest.approx(4 * sum(passes))  # five folds, each without a fifth


@pytest.mark.parametrize("words", [dict(grid={"C": [0.1, 1.0, 30.0]}, folds=3), dict(multiclass="one-vs-rest")])
def test_one_of_many_problems_is_tried_and_the_work_of_others_is_counted(tmp_path, words, footing, quiet):
    x, y = random_rows(3000, 40, noise=0.5)
    labels = y if "grid" in words else np.arange(3000) % 3
    shards_of(tmp_path / "s", x, labels, chunk_nnz=2000)
    told = forecast(str(tmp_path / "s"), algo="dcd", memory="64MB", fresh=True, **words)
    middle, first, last = told["rates"]["works"]
    assert min(middle, first, last) > 1 and ("grid" not in words or first < middle < last)
    assert told["passes"] < 60 and told["rates"]["passes"] > 0
    assert ("after" in told["seconds"]) == ("grid" in words)


def test_row_state_that_cannot_be_made_anew_travels_with_each_read(shards, monkeypatch):
    words = dict(groups=3, workers=2, memory="64MB", bandwidth="1GB/s")

    def up(algo, kept, **more):
        monkeypatch.setattr(module, "_rates", lambda intent, fresh: RATES._replace(kept=kept))
        return forecast(shards, algo=algo, **words, **more)["network"]["up"]

    assert up("augmented_lagrangian", 1.0) - up("augmented_lagrangian", 0.0) == 2 * 8 * 900
    assert up("newton", 0.25, loss="logistic") - up("newton", 0.0, loss="logistic") == 8 * 900 / 4


def test_reads_after_which_row_state_goes_on_are_counted(shards, footing):
    def kept(algo, **more):
        return forecast(shards, algo=algo, memory="64MB", fresh=True, **more)["rates"]["kept"]

    assert kept("augmented_lagrangian") == 1.0 and kept("pa1") == 0.0
    assert kept("newton", loss="logistic") < 1.0


@pytest.mark.slow
def test_starting_processes_of_this_machine_is_timed(shards):
    here = forecast(shards, algo="dcd", grid={"C": [0.1, 1.0]}, folds=2, workers=2, memory="64MB", fresh=True)
    assert 0.1 < here["seconds"]["start"] == here["rates"]["begin"]
    assert "start" not in forecast(shards, algo="dcd", memory="64MB", workers=2, groups=2, bandwidth="1GB/s")["seconds"]


def test_less_is_asked_of_workers_that_share_problems(shards):
    def advice(design, seconds):
        told = [Outlook(n, n, design, 1.0, s, 0.0, 0, 0, 0, 0) for n, s in ((1, 13.0), (2, seconds))]
        return lines_of(told)[1]["advice"]

    assert "they pay, with 1.3 times" in advice(DEALT, 10.0) and "one process is enough" in advice("mixing", 10.0)
    assert "one process is enough" in advice(DEALT, 12.0)


# Evaluating and predicting


ONE, HERE = Speeds(1e-3, 2e-3), Speeds(1e-3, 2e-3, crew=1.5e-3, start=2.0, first=1.0)


@pytest.fixture
def scoring(shards, monkeypatch):
    model = package.fit(shards, algo="pa1", epochs=1, progress=False)
    monkeypatch.setattr(Scoring, "rates", lambda self, workers: (ONE, HERE)[workers > 1])
    monkeypatch.setattr(plan_of_scoring, "cores", lambda: 2)
    return lambda **words: forecast(shards, model=model, memory="64MB", **words)


def test_workers_share_the_rows_that_are_scored(shards, scoring):
    told = scoring(workers=[1, 2, 4])
    one, two, four = told["scoring"]
    nnz, data = told["data"]["nnz"], package.Dataset(shards)
    assert (one["evaluate_seconds"], one["predict_seconds"]) == pytest.approx((1e-3 * nnz, 2e-3 * nnz))
    assert one["evaluate_moved"] == one["predict_moved"] == one["start"] == 0 and one["advice"] == ""
    parts = cut(data, 2 * PARTS_A_WORKER)
    assert two["evaluate_seconds"] == pytest.approx(
        3 + 1.5e-3 * nnz / 2 + len(parts) / 2 * plan_of_scoring.PART_SECONDS
    )
    assert two["predict_seconds"] - two["evaluate_seconds"] == pytest.approx(1.5e-3 * nnz / 2)
    assert four["evaluate_seconds"] >= two["evaluate_seconds"]  # on two cores
    assert two["predict_moved"] == 2 * bytes_of_model(shards) and two["evaluate_moved"] > two["predict_moved"]
    assert two["evaluate_speed_up"] == one["evaluate_seconds"] / two["evaluate_seconds"]


def bytes_of_model(shards):
    return package.fit(shards, algo="pa1", epochs=1, progress=False).n_bytes


def test_what_follows_from_a_plan_of_scoring():
    def said(evaluate, predict):
        line = dict(workers=2, evaluate_speed_up=evaluate, predict_speed_up=predict)
        return plan_of_scoring._advice(line)

    assert "they pay (evaluate 1.5 times, predict 1.4 times" in said(1.5, 1.4)
    assert "they pay to predict" in said(1.0, 1.4) and "one process is enough" in said(0.9, 1.1)


def test_two_problems_weigh_what_they_take(recwarn):
    """Of two labels both are tried, and nothing is fitted through them."""
    points = Points([], None, None, 2, 2.0, 0, among=2)
    assert points.weighed([2.0, 1.0, 2.0]).load == pytest.approx(2.0 * 0.75)
    assert points._replace(load=3.0, among=3).weighed([2.0, 2.0, 2.0]).load == pytest.approx(3.0) and not recwarn.list


def test_no_more_processes_are_started_than_a_trial_needs(shards, monkeypatch):
    """Whatever --workers asks about."""
    model, asked = package.fit(shards, algo="pa1", epochs=1, progress=False), []

    def linked(workers, patience):
        asked.append(workers)
        raise RunError("none is started")

    monkeypatch.setattr(plan_of_scoring, "linked", linked)
    for workers in (2, 64):
        with pytest.raises(RunError, match="none is started"):
            forecast(shards, model=model, workers=workers, memory="64MB")
    assert asked == [2, plan_of_scoring.MOST_HERE]


def test_rows_are_scored_to_know_how_long_they_take(shards, tmp_path):
    model = package.fit(shards, algo="pa1", epochs=1, progress=False)
    model.save(tmp_path / "m.bigclf")
    told = json.loads(bigclf("plan", shards, "--model", str(tmp_path / "m.bigclf"), "--workers", "1,2,8",
                             "--bandwidth", "1GB/s", "--json")[0])  # fmt: skip
    assert [line["workers"] for line in told["scoring"]] == [1, 2, 8] and told["scoring"][0]["evaluate_seconds"] > 0
    out = bigclf("plan", shards, "--model", str(tmp_path / "m.bigclf"))[0]
    assert "a plan for evaluate and predict" in out and "1 worker" in out


@pytest.mark.long
def test_processes_of_this_machine_score_rows_too(shards):
    model = package.fit(shards, algo="pa1", epochs=1, progress=False)
    line = forecast(shards, model=model, workers=2, memory="64MB")["scoring"][0]
    assert line["workers"] == 2 and 0.1 < line["start"] < line["evaluate_seconds"]
