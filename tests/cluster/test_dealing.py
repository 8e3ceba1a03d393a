"""Problems dealt out to workers: the bits, the history and the run directory of one process."""

import logging

import numpy as np
import pytest
from making import in_segments, interrupted_after, random_rows, shards_of

import bigclf
from bigclf.cluster import dealing
from bigclf.cluster.dealing import MOVES, shared_out
from bigclf.errors import ClusterError
from bigclf.methods import METHODS, resolve
from bigclf.request.spreading import deals_out
from bigclf.training.executor import Missing
from bigclf.training.shares import ShareBench, Standing

distributed = pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::bigclf.errors.ConvergenceWarning"),
]
NOT_OF_ONE = (
    "seconds",
    "waited",
    "events",
    "bytes_read",
    "workers",
    "bytes_moved",
    "groups",
    "mixes",
    "problems_dealt",
)
SMALL = "17MB"  # the rows do not stay


@pytest.fixture(scope="module")
def client():
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    options = dict(threads_per_worker=1, processes=False, memory_limit=0, dashboard_address=None)
    with distributed.LocalCluster(n_workers=3, **options) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Five classes, in several files of several row groups."""
    x, _ = random_rows(2400, 60, 0.2, seed=1)
    labels = np.argmax(x[:, :5].toarray() + 0.4 * x[:, 5:10].toarray(), axis=1)
    out = tmp_path_factory.mktemp("dealt") / "s"
    shards_of(out, x, labels, chunk_nnz=3000, shard_nnz=12_000)
    return str(out)


def fit(data, **options):
    return bigclf.fit(data, **{"algo": "dcd", "multiclass": "one-vs-rest", "groups": 1, "progress": False} | options)


def bits(model):
    history = [{k: v for k, v in record.items() if k not in NOT_OF_ONE} for record in model.result_.history]
    return model.digest(), model.coef_.tobytes(), model.certificate, history


@pytest.mark.parametrize(
    "options",
    [
        dict(C=0.1, tol=1e-4),
        dict(C=1.0, tol=1e-2, memory=SMALL),
        dict(C=10.0, tol=1e-8, memory=SMALL, epochs=3),  # which ends by a certificate of scaled weights
        dict(algo="pa2", epochs=2),
        dict(algo="pa2", epochs=2, memory=SMALL),
        dict(algo="newton", loss="logistic", tol=1e-3, memory=SMALL),
    ],
    ids=["in memory", "from disk", "cut short", "online", "online from disk", "by sums"],
)
def test_one_against_the_rest_has_the_bits_of_one_process(client, shards, options):
    with in_segments(2):
        assert bits(fit(shards, workers=client, **options)) == bits(fit(shards, **options))


@pytest.mark.parametrize("memory", ["1GB", SMALL], ids=["in memory", "from disk"])
@pytest.mark.parametrize("first", ["here", "there"])
def test_a_run_goes_on_elsewhere(client, shards, tmp_path, memory, first):
    """In the middle of an epoch, from one process to workers and back."""
    options = dict(tol=1e-4, C=0.5, memory=memory)
    ways = [{}, {"workers": client}] if first == "here" else [{"workers": client}, {}]
    with in_segments(2):
        whole = bits(fit(shards, **options))
        with interrupted_after(3):
            fit(shards, run_dir=bigclf.RunDir(tmp_path / "run", 0), **options, **ways[0])
        again = fit(shards, run_dir=tmp_path / "run", resume=True, **options, **ways[1])
    assert bits(again) == whole


def test_when_the_cluster_is_lost_the_last_epoch_is_written_down(client, shards, tmp_path):
    """However seldom checkpoints are asked for, and whatever others have learned since."""

    class Lost(dealing.ShareEngine):
        def work(self, sizes, wishes=()):
            for number, unit in enumerate(super().work(sizes, wishes)):
                if self._round.epoch == 3 and number == 1:
                    raise ClusterError("no usable worker")
                yield unit

    options = dict(tol=1e-5, C=0.5)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ClusterError, match="resume it with"):
        patch.setattr(dealing, "ShareEngine", Lost)
        fit(shards, workers=client, run_dir=bigclf.RunDir(tmp_path, 1000), **options)
    assert [path.name for path in tmp_path.glob("state-*")] == ["state-00000003-000000.safetensors"]
    assert bits(fit(shards, run_dir=tmp_path, resume=True, **options)) == bits(fit(shards, **options))


@pytest.mark.parametrize(
    ("folds", "more"), [(0, {}), (2, {}), (2, {"loss": "logistic", "memory": SMALL}), (3, {"loss": "logistic"})]
)
def test_a_sweep_is_dealt_out_by_its_chains(client, shards, caplog, folds, more):
    """Workers alone do not cut the rows of so many problems; they measure the answers, too."""
    options = dict(algo="dcd", grid={"C": [0.001, 0.01, 0.1, 0.5]}, folds=folds, progress=False, **more)
    options |= {"validate": shards} if not folds else {}
    with caplog.at_level(logging.INFO, "bigclf"):
        far = bigclf.sweep(shards, workers=client, **options)
    here = bigclf.sweep(shards, **options)
    n = 4 * 5 * max(1, folds)
    (line,) = [text for text in caplog.messages if "dealt out" in text]
    assert line.startswith(f"{n} problems are dealt out to 3 workers") and "groups=3" in line
    assert far.best_model.digest() == here.best_model.digest() and far.certificates == here.certificates
    plain = [{k: v for k, v in row.items() if k != "seconds"} for row in far.table]
    assert plain == [{k: v for k, v in row.items() if k != "seconds"} for row in here.table]


def test_who_watches_is_told_of_problems(client, shards):
    class Screen:
        rows, ask, seen = 0, None, ()

        def start(self, plan):
            self.ask = plan["status"]

        def advance(self, rows, n_bytes):
            self.rows += rows
            self.seen = self.ask()

        def epoch(self, record): ...

        def stop(self): ...

    screen = Screen()
    model = fit(shards, tol=1e-3, workers=client, progress=screen, groups=None)
    assert len(model.result_.plan["groups"]) == 1 and model.result_.history[-1]["problems_dealt"] == 5
    assert 0 < screen.seen["problems_done"] <= screen.seen["problems"] <= 5
    assert screen.rows == 2400 * model.result_.epochs


def test_shares_are_even_and_stay_where_they_are():
    def totals(shares):
        return [sum(lengths[n] for n in share) for share in shares]

    lengths = {n: 1.0 + n for n in range(9)}
    shares, wishes = shared_out(lengths, {}, ["a", "b"])
    assert sorted(n for share in shares for n in share) == list(range(9)) and wishes == ["a", "b"]
    assert max(totals(shares)) <= MOVES * min(totals(shares))
    where = {n: wish for share, wish in zip(shares, wishes, strict=True) for n in share}
    assert shared_out(lengths, where, ["b", "a"])[0] == shares[::-1]  # nothing moves
    left = {n: lengths[n] for n in shares[0]}  # one worker has none left
    assert len(shared_out(left, where, ["a", "b"])[0]) == 2
    assert shared_out(lengths, where, ["a"]) == ([tuple(range(9))], ["a"])  # the other has gone
    assert [len(share) for share in shared_out(lengths, {}, [], 3)[0]] != [9]
    assert shared_out({4: 1.0}, {}, ["a", "b"]) == ([(4,)], ["a"])
    assert shared_out({4: 1.0}, {}, []) == ([(4,)], [None])


def test_when_problems_are_dealt_out():
    dcd, pa1 = METHODS["dcd"], METHODS["pa1"]
    assert deals_out([dcd], False, 2, 8) and not deals_out([dcd], False, 1, 8) and not deals_out([dcd], False, 5, 1)
    assert not deals_out([pa1], False, 20, 8)  # rows are cut: that costs an online learner no pass
    assert deals_out([pa1], True, 8, 8) and not deals_out([pa1], True, 7, 8)


def test_a_bench_says_what_it_lacks():
    bench = ShareBench.__new__(ShareBench)
    bench._stand, bench.problems = (
        {0: "1-update-1-0"},
        [type("P", (), {"setting": resolve("dcd", None, None, None, {})})],
    )
    visit = type("V", (), {"segment": 0, "todo": (0,)})
    with pytest.raises(Missing, match="problem 0 at '2-update-2-0', here is '1-update-1-0'"):
        bench._bring_all(visit, {0: Standing("2-update-2-0")})
