"""The engine of a Dask cluster on quiet days: the bits of one process, what moves and what is refused."""

import json
import time

import making
import numpy as np
import pytest
import scipy.sparse
from making import of_each_kind, random_rows, shards_of

import bigclf
from bigclf.cluster import engine
from bigclf.errors import ClusterError, MemoryBudgetError, RunError
from bigclf.maths.deltas import n_bytes
from bigclf.methods import METHODS

SMALL = "17MB"  # Arrow's allocator and the queues take 12 of them: the rows do not stay
distributed = pytest.importorskip("distributed")
D = 40


@pytest.fixture(scope="module")
def rows():
    return random_rows(1200, D, noise=0.5)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    x, y = random_rows(4000, D, 0.25, noise=0.5)
    return shards_of(tmp_path_factory.mktemp("shards") / "s", x, y, chunk_nnz=3000, shard_nnz=20_000)


def fit(*data, **options):
    return making.fit(*data, **({"progress": False} | options))


def same(a, b):
    np.testing.assert_array_equal(a.coef_.view(np.uint64), b.coef_.view(np.uint64))
    np.testing.assert_array_equal(a.intercept_, b.intercept_)
    mine, other = ({**(m.result_.certificate or {}), "read": 0} for m in (a, b))  # one that was resumed read once more
    assert mine == other
    assert a.result_.progressive == b.result_.progressive


MIXED = [name for name, method in METHODS.items() if method.form.mixings]
SLOW = {"newglmnet", "memma_blocks"}  # runs of many epochs
OUT_OF_CORE = [name for name in MIXED[::2] if name not in SLOW]  # of these runs out of core are compared, of the
# others those of rows in memory; of methods that the engine cannot tell apart the plain tests take one


def tier(name, plain, long=()):
    return () if name in plain else pytest.mark.long if name in long else pytest.mark.slow


every_method = pytest.mark.parametrize(
    "algo", [pytest.param(name, marks=tier(name, of_each_kind(OUT_OF_CORE))) for name in MIXED]
)
pytestmark = pytest.mark.filterwarnings("ignore::bigclf.errors.ConvergenceWarning", "ignore::DeprecationWarning")


FULL = {"sccw_full", "cw_full", "cw_var_full", "arow_full"}  # in one group; narow_full and sop_full stand for these
IN_MEMORY = [name for name in METHODS if name == "dcd" or name not in {*OUT_OF_CORE, *FULL}]
GROUPS = [
    pytest.param(m.name, 5 if m.form.mixings else 1, marks=tier(m.name, of_each_kind(IN_MEMORY), IN_MEMORY))
    for m in METHODS.values()
] + [("dcd", 1)]


@pytest.mark.parametrize(("algo", "groups"), GROUPS)
def test_workers_change_no_bit(algo, groups, client, rows):
    options = dict(algo=algo, groups=groups, epochs=4)
    same(fit(*rows, **options), fit(*rows, workers=client, **options))


@every_method
def test_nor_out_of_core_in_segments(algo, client, shards):
    segments = 1 if METHODS[algo].collects else 2
    options = dict(algo=algo, groups=3, epochs=2, memory=SMALL, segments=segments)
    options |= {"buffer": 10} if algo == "memma_blocks" else {}
    here, there = fit(shards, **options), fit(shards, workers=client, **options)
    assert here.result_.plan["segments"] == segments and not here.result_.plan["resident"]
    same(here, there)


@pytest.mark.long
@pytest.mark.parametrize("n", [5, 16])
def test_nor_do_five_or_sixteen(n, rows):
    options = dict(threads_per_worker=1, processes=False, memory_limit=0, dashboard_address=None)
    with distributed.LocalCluster(n_workers=n, **options) as cluster, distributed.Client(cluster) as many:
        for algo in ("pa2", "dcd"):
            words = dict(algo=algo, groups=16, epochs=4)
            there = fit(*rows, workers=many, **words)
            same(fit(*rows, **words), there)
            assert there.result_.history[-1]["workers"] == n


@pytest.mark.parametrize("mixing", ["uniform", "mistakes"])
def test_nor_with_other_shares_and_several_problems(mixing, client):
    x, y = random_rows(600, D, noise=0.5)
    y = (np.arange(600) % 3) * (y > 0)
    options = dict(algo="averaged_perceptron", groups=4, epochs=3, mixing=mixing)
    same(fit(x, y, **options), fit(x, y, workers=client, **options))


def test_nor_when_groups_are_done_in_bundles(client):
    x, y = random_rows(1600, D, noise=0.5)
    options = dict(algo="pa1", groups=200, epochs=3)
    model = fit(x, y, workers=client, **options)
    same(fit(x, y, **options), model)


@pytest.fixture
def joined_there(monkeypatch):
    """What groups come to is joined between workers, in parts, however small."""
    from bigclf.cluster import joining

    monkeypatch.setattr(joining, "SPREAD_BYTES", 0)
    monkeypatch.setattr(joining, "CUT_BYTES", 0)
    monkeypatch.setattr(joining, "LINE_BYTES", 0)  # and the common state is passed on


BY_RULES = {"averaged_pa2", "dcd", "newton", "arow", "romma"}  # a rule each


@pytest.mark.parametrize(
    ("algo", "groups"),
    [pytest.param(a, 5, marks=tier(a, BY_RULES, of_each_kind(MIXED))) for a in MIXED] + [("pa1", 18), ("dcd", 20)],
)
def test_nor_when_workers_join_between_themselves(algo, groups, client, rows, joined_there):
    options = dict(algo=algo, groups=groups, epochs=3)
    same(fit(*rows, **options), fit(*rows, workers=client, **options))


@pytest.mark.parametrize("options", [{}, {"segments": 2}, {"algo": "pa2", "segments": 2}], ids=str)
def test_nor_so_out_of_core(options, client, shards, joined_there):
    options = dict(groups=3, epochs=3, memory=SMALL) | options
    same(fit(shards, **options), fit(shards, workers=client, **options))


def test_nor_so_in_bundles_and_with_several_problems(client, joined_there):
    x, y = random_rows(600, D, noise=0.5)
    options = dict(algo="averaged_perceptron", groups=200, epochs=2)
    same(fit(x, y, **options), fit(x, y, workers=client, **options))
    y = (np.arange(600) % 3) * (y > 0)
    options["groups"] = 4
    same(fit(x, y, **options), fit(x, y, workers=client, **options))


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("between", [False, True], ids=["star", "tree"])
def test_nor_where_points_of_a_path_share_a_read(groups, between, client, request):
    """The states of points that share what one of them collects change at the driver alone."""
    if between:
        request.getfixturevalue("joined_there")
    x, y = random_rows(600, D, real=True)
    options = dict(C=np.geomspace(1e-3, 1.0, 8), groups=groups, loss="squared", tol=1e-9, progress=False)
    here, there = bigclf.path(x, y, **options), bigclf.path(x, y, workers=client, **options)
    assert sum(row["epochs"] for row in here.table) > len(here.history)  # they do
    np.testing.assert_array_equal(here.coefs_.view(np.uint64), there.coefs_.view(np.uint64))
    told = ("objective", "dual", "violation", "epochs")
    assert [[row[name] for name in told] for row in here.table] == [[row[name] for name in told] for row in there.table]


def test_nor_with_float32_and_a_start(client, rows):
    start = fit(*rows, algo="perceptron", epochs=1)
    options = dict(algo="pa2", groups=4, epochs=2, dtype="float32", init=start)
    same(fit(*rows, **options), fit(*rows, workers=client, **options))


@pytest.mark.parametrize("options", [{}, {"segments": 2}, {"working_set": 0}], ids=str)
def test_row_state_may_go_through_files(options, client, shards, tmp_path, monkeypatch):
    from bigclf.cluster import engine as cluster

    monkeypatch.setattr(cluster, "FILE_BYTES", 0)
    options = dict(groups=3, epochs=4, memory=SMALL, **options)
    here = fit(shards, **options)
    there = fit(shards, workers=client, run_dir=tmp_path / "a", checkpoint_every=0, **options)
    same(here, there)
    names = [path.name for path in (tmp_path / "a").iterdir()]
    states = [name for name in names if name.startswith("state-")]
    assert len([n for n in names if n.startswith("rows-")]) == 3 * len(states) <= 6  # no file is left that nobody names


@pytest.mark.parametrize("through_files", [False, True])
def test_a_run_goes_on_elsewhere(through_files, client, shards, tmp_path, monkeypatch):
    from bigclf.cluster import engine as cluster

    if through_files:
        monkeypatch.setattr(cluster, "FILE_BYTES", 0)
    options = dict(groups=3, memory=SMALL, bias=None)
    whole = fit(shards, epochs=5, **options)
    for number, (first, then) in enumerate([(client, None), (None, client)]):
        run = tmp_path / f"{through_files}{number}"
        fit(shards, epochs=2, run_dir=run, workers=first, **options)
        same(whole, fit(shards, epochs=5, run_dir=run, resume=True, workers=then, **options))


@pytest.mark.parametrize("epochs", [4, pytest.param(6, marks=pytest.mark.long)])
def test_a_run_by_sums_goes_on_elsewhere(epochs, client, shards, tmp_path):
    """Stopped between products, whose curvatures of rows no checkpoint of a cluster has: they are made anew."""
    options = dict(algo="newton", loss="logistic", tol=1e-9, groups=3, memory=SMALL)
    whole = fit(shards, epochs=9, **options)
    for number, (first, then) in enumerate([(client, None), (None, client), (client, client)]):
        run = tmp_path / str(number)
        fit(shards, epochs=epochs, run_dir=run, workers=first, **options)
        assert (first is client) != any(path.name.startswith("rows-") for path in run.iterdir())
        same(whole, fit(shards, epochs=9, run_dir=run, resume=True, workers=then, **options))


def test_a_resumed_run_keeps_its_groups(client, shards, tmp_path):
    first = fit(shards, algo="pa1", epochs=2, groups=2, run_dir=tmp_path)
    again = fit(shards, algo="pa1", epochs=3, run_dir=tmp_path, resume=True, workers=client)
    assert len(first.result_.plan["groups"]) == len(again.result_.plan["groups"]) == 2
    same(fit(shards, algo="pa1", epochs=3, groups=2), again)


def test_groups_are_the_workers_unless_said(client, shards):
    assert len(fit(shards, algo="pa1", epochs=1, workers=client).result_.plan["groups"]) == 3


def test_groups_are_spread_evenly_whoever_had_them_first():
    from bigclf.cluster.engine import balanced

    assert balanced(["a", "a"], 2) == ["a", None]
    assert balanced(["a", "a", "b", None, "a"], 2) == ["a", "a", "b", None, "a"]
    assert balanced(["a"] * 5, 3) == ["a", "a", None, None, None]
    assert balanced([None, "a"], 0) == [None, "a"]


def test_the_first_workers_begin_together(client, rows, monkeypatch):
    """One answers later than the other: both have a group in the first epoch, and none reads another's rows."""
    from distributed import get_task_stream

    said, late = engine.Crew._hear_greeted, []

    def hear(crew, address, greeting):
        if not late:  # who answers first is heard a second time, once the other had its chance to be given everything
            late.append(address)
        elif late[0] != address and len(late) == 1:
            late.append(address)
            for _ in range(20):
                for action in crew._book.actions(time.monotonic()):
                    crew._act(action)
        said(crew, address, greeting)

    monkeypatch.setattr(engine.Crew, "_hear_greeted", hear)
    monkeypatch.setattr(engine, "TOGETHER_SECONDS", 600.0)
    with get_task_stream(client) as stream:
        fit(*rows, algo="pa", groups=2, epochs=2, workers=client)
    done = {}
    for task in stream.data:
        if task["key"][0] == engine.PREFIX and "-update-" in task["key"][1]:
            done.setdefault(task["key"][1].split("-update-")[1].split("-")[0], []).append(task["worker"])
    assert [len(set(done[epoch])) for epoch in "12"] == [2, 2]


def test_messages_that_others_follow_at_once_keep_nobody_from_his_work(client, rows, monkeypatch):
    """As where each says that the scheduler does not answer, and to look for it takes until the next one."""
    heard, actions, in_a_row = engine.Crew._hear_there, engine.Book.actions, [0]

    def hear(crew, found):
        in_a_row[-1] += 1
        if sum(in_a_row) < 1000:
            crew._messages.put(("there", found))
        heard(crew, found)

    def act(book, now):
        in_a_row.append(0)
        return actions(book, now)

    monkeypatch.setattr(engine.Crew, "_hear_there", hear)
    monkeypatch.setattr(engine.Book, "actions", act)
    fit(*rows, algo="pa", groups=2, epochs=2, workers=client)
    assert 0 < max(in_a_row) < 100


def test_an_error_without_words_is_told_by_what_it_came_of_or_by_its_name(monkeypatch):
    from bigclf.cluster import link

    def fail(*_):
        raise errors.pop(0)

    errors = [OSError(), OSError("no route")]
    monkeypatch.setattr(link, "refuses", lambda address: False)
    monkeypatch.setattr(link, "shake_hands", fail)
    for told in ("OSError", "no route"):
        with pytest.raises(ClusterError, match=rf"no Dask scheduler answers at 'tcp://127.0.0.1:9': {told}$"):
            link.connect("tcp://127.0.0.1:9")


def test_two_fits_at_once(client, rows):
    from concurrent.futures import ThreadPoolExecutor

    options = [dict(algo="pa1", groups=5, epochs=10), dict(algo="dcd", groups=4, epochs=10)]
    with ThreadPoolExecutor(2) as pool:
        there = list(pool.map(lambda o: fit(*rows, workers=client, **o), options))
    for option, model in zip(options, there, strict=True):
        same(fit(*rows, **option), model)


def test_a_cluster_keeps_no_more_of_many_runs_than_of_one(client, rows):
    """Dask keeps a span for tasks that name none, one each time that none is under way; workers, times of each. It
    keeps a record of each group of tasks, which ends with the last of its name: three a run, not one an epoch."""

    def kept(dask_scheduler):
        spans = dask_scheduler.extensions["spans"].spans.values()
        return len(spans), sum(len(span.groups) for span in spans)

    def fitted():
        bigclf.fit(*rows, algo="pa1", groups=2, epochs=5, workers=client, progress=False)
        times = sum(client.run(lambda dask_worker: len(dask_worker.digests_total)).values())
        return times, *client.run_on_scheduler(kept)

    fitted()
    times, spans, groups = fitted()
    again = [fitted() for _ in range(3)][-1]
    assert again[0] <= times + 4  # of what had not happened before
    assert again[1] == spans
    assert again[2] <= groups + 3 * 6  # where one worker has begun before the other, two have done with it twice


def test_what_changed_little_moves_little(client):
    """1 % of the coordinates touched: an epoch moves less than a tenth of the dense bytes, to and fro."""
    n_features = 1_600_000
    rng = np.random.default_rng(3)
    columns = rng.integers(0, n_features // 100, (3000, 20))
    x = scipy.sparse.csr_matrix((np.ones(60_000, np.float32), columns.ravel(), np.arange(0, 60_001, 20)),
                                (3000, n_features))  # fmt: skip
    x.sum_duplicates()
    y = np.where(rng.normal(size=3000) > 0, 1, -1)
    history = fit(x, y, algo="pa1", groups=2, epochs=4, workers=client).result_.history
    moved = np.diff([record["bytes_moved"] for record in history])
    dense = 2 * 2 * 8 * n_features
    assert 0 < moved.max() < 0.1 * dense and history[0]["bytes_moved"] < 0.1 * dense


def test_a_dense_state_moves_once_to_each_worker_that_works_and_once_from_each_group(client):
    x, y = random_rows(900, 3000, noise=0.5, density=0.2)
    history = fit(x, y, algo="averaged_perceptron", groups=9, epochs=4, workers=client).result_.history
    moved = np.diff([record["bytes_moved"] for record in history])
    state = 2 * 8 * 3001
    assert moved.max() <= (3 + 9) * (state + 500)


def test_a_product_moves_a_vector_to_each_worker_and_one_from_each_group(client):
    x, y = random_rows(900, 3000, noise=0.5, density=0.2)
    history = fit(x, y, algo="newton", loss="logistic", groups=3, tol=1e-6, workers=client).result_.history
    moved = np.diff([0] + [record["bytes_moved"] for record in history])
    vectors = np.array([2 if "products" in record else 3 for record in history])  # a gradient may bring a diagonal
    few = moved <= vectors * 3 * (8 * 3001 + 800)  # more where a visit was given out twice
    assert few.mean() > 0.8 and sum("products" in record for record in history) > 5


def test_the_history_tells_of_the_cluster(client, rows):
    history = fit(*rows, algo="perceptron", groups=5, epochs=3, workers=client).result_.history
    last = history[-1]
    assert last["groups"] == 5 and 1 <= last["workers"] <= 3 and last["mixes"] == 3 and last["bytes_moved"] > 0
    assert {event["what"] for record in history for event in record.get("events", ())} == {"joined"}


def test_the_driver_gets_one_state_and_sends_one_however_many_groups_there_are(client, monkeypatch, joined_there):
    from bigclf.cluster import joining, peers

    came, asked, plain, ask = [], [], joining.Joining.heard, peers._asked_for

    def heard(self, task, answer):
        came.append(0 if answer is None else n_bytes(answer.parts))
        plain(self, task, answer)

    def asked_for(run, shipment, number):
        asked.append((shipment.version, number))
        return ask(run, shipment, number)

    monkeypatch.setattr(joining.Joining, "heard", heard)
    monkeypatch.setattr(peers, "_asked_for", asked_for)
    monkeypatch.setattr(engine, "TOGETHER_SECONDS", 600.0)  # however busy the machine, one worker does not do all
    x, y = random_rows(900, 3000, noise=0.5, density=0.2)
    for groups in (3, 60):
        came.clear(), asked.clear()
        fit(x, y, algo="pa2", groups=groups, epochs=2, workers=client)
        assert 2 * 8 * 3001 <= sum(came) <= 2 * (8 * 3001 + 500)
        assert sorted(set(asked)) == [(1, number) for number in range(16)]  # all workers that work but one ask others


# Refusals


def test_other_versions_are_refused_by_name(client, rows, monkeypatch):
    from bigclf.cluster import engine as cluster

    mine = cluster.facts()
    mine["versions"] = mine["versions"] | {"numba": "0.1.0"}
    monkeypatch.setattr(cluster, "facts", lambda: mine)
    with pytest.raises(ClusterError, match=r"numba .* there, 0\.1\.0 here"):
        fit(*rows, algo="pa1", groups=2, workers=bigclf.Workers(client, patience={"least": 0.5}))


def test_a_worker_too_small_for_the_plan_is_told_of_with_the_budget_that_would_do(client, rows, monkeypatch):
    from bigclf.cluster import engine as cluster

    monkeypatch.setattr(cluster, "ROOM_BESIDE", 10**15)
    with pytest.raises(MemoryBudgetError, match=r"the plan needs .* the limit there is .* would do"):
        fit(*rows, algo="pa1", groups=2, workers=bigclf.Workers(client, patience={"least": 0.5}))


def test_row_state_too_large_to_travel_needs_a_shared_directory(client, rows, monkeypatch):
    from bigclf.cluster import engine as cluster

    monkeypatch.setattr(cluster, "TRAVEL_BYTES", 100)
    with pytest.raises(RunError, match=r"run_dir that every worker can write, or groups=\d+"):
        fit(*rows, groups=2, workers=client)


def test_a_run_directory_that_no_worker_can_write(client, rows, tmp_path, monkeypatch):
    from bigclf.cluster import engine as cluster
    from bigclf.cluster import worker_tasks

    class Files:  # the workers of this module live in this process, whose user may write anywhere
        @staticmethod
        def probe_writable(path):
            raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(cluster, "FILE_BYTES", 0)
    monkeypatch.setattr(worker_tasks, "files", Files)
    with pytest.raises(ClusterError, match="cannot write the run directory"):
        fit(*rows, groups=2, run_dir=tmp_path / "run", workers=bigclf.Workers(client, patience={"least": 0.5}))


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"workers": 0}, ValueError, "workers"),
        ({"workers": 1.5}, ValueError, "workers"),
        ({"workers": True}, ValueError, "workers"),
        ({"workers": ["tcp://x"]}, ValueError, "Dask client"),
        ({"workers": "tcp://127.0.0.1:9"}, ClusterError, "127.0.0.1:9"),
        ({"workers": bigclf.Workers(patience={"idle": 3})}, TypeError, "patience"),
        ({"workers": bigclf.Workers(2, patience={"zeal": 3})}, ValueError, "zeal"),
        ({"workers": bigclf.Workers(2, patience={"idle": -1})}, ValueError, "idle"),
        ({"mixing": "uniform"}, TypeError, "one group"),
        ({"mixing": "rows", "groups": 2, "algo": "dcd"}, ValueError, "line_search"),
        ({"mixing": "safe", "groups": 2}, ValueError, "mistakes"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused_by_name(given, error, words, rows):
    with pytest.raises(error, match=words):
        fit(*rows, **({"algo": "pa1"} | given))


def test_data_that_cannot_be_used_is_told_of_as_in_one_process(client, tmp_path, rows):
    shards_of(tmp_path / "s", *rows, chunk_nnz=500)
    path = sorted((tmp_path / "s").glob("part-*.parquet"))[0]
    dataset = bigclf.Dataset(tmp_path / "s")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(bigclf.errors.DataError, match=path.name):
        fit(dataset, algo="pa1", groups=2, epochs=2, workers=bigclf.Workers(client, patience={"least": 5}))


@pytest.mark.parametrize("algo", ["pa1", "dcd"])
def test_when_the_cluster_is_lost_the_last_epoch_is_written_down(algo, client, shards, tmp_path):
    """However seldom checkpoints are asked for; dcd's row state included."""
    from bigclf.cluster import dealing as cluster

    class Lost(cluster.DaskEngine):
        def perform(self, round):
            for number, outcome in enumerate(super().perform(round)):
                if round.epoch == 3 and number == 1:
                    raise ClusterError("no usable worker")
                yield outcome

    options = dict(algo=algo, groups=3, epochs=5, memory=SMALL, run_dir=tmp_path)
    options |= {"tol": 0.0} if algo == "dcd" else {}
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ClusterError, match="resume it with"):
        patch.setattr(cluster, "DaskEngine", Lost)
        fit(shards, workers=client, checkpoint_every=1000, **options)
    assert [p.name for p in tmp_path.glob("state-*")] == ["state-00000003-000000.safetensors"]
    resumed = fit(shards, resume=True, **options)
    same(fit(shards, **{**options, "run_dir": None}), resumed)
    assert resumed.result_.history[-1]["epoch"] == 5


def test_the_record_of_a_run_is_json(client, rows, tmp_path):
    fit(*rows, algo="pa1", groups=2, epochs=2, workers=client, run_dir=tmp_path)
    assert [json.loads(line)["epoch"] for line in (tmp_path / "history.jsonl").read_text().splitlines()][-1] == 2


@pytest.mark.parametrize(
    ("worked", "there", "rounds", "said"),
    [
        (1.0, 10.0, 4, True),  # a tenth of the time
        (4.0, 10.0, 4, False),  # much of it
        (0.1, 1.0, 4, False),  # too short to tell
        (1.0, 40.0, 2, False),  # too few
    ],
)
def test_sending_that_takes_longer_than_learning_is_told_once(worked, there, rounds, said, caplog):
    from types import SimpleNamespace

    from bigclf.cluster.engine import DaskEngine

    told = []
    engine = SimpleNamespace(_weight=(0, 0.0, 0.0), _weighed=False, workers=2, _tell=told.append)
    for _ in range(rounds):
        DaskEngine._weigh(engine, worked, there)
    assert [event["what"].partition(":")[0] for event in told] == ["communication dominates"] * said
    assert ("fewer mixes" in caplog.text) == said


def test_counts_that_were_not_zero_are_sent_once_as_zeros():
    """A checkpoint of an older version may hold some: whoever has them is told that they are gone, nobody else."""
    from types import SimpleNamespace

    from bigclf.cluster.engine import DaskEngine
    from bigclf.maths.mixing import PULL
    from bigclf.methods.online.passive_aggressive import Pulled

    setting = SimpleNamespace(rule=PULL)
    engine = SimpleNamespace(job=SimpleNamespace(problems=[SimpleNamespace(setting=setting)],
                                                 plan=SimpleNamespace(places=False)))  # fmt: skip
    clean = Pulled(*(np.zeros((4, 2) if name == "ways" else 4) for name in Pulled._fields))
    counted = clean._replace(ways=np.ones((4, 2)))
    for before, state, sent in ((clean, clean, False), (counted, clean, True), (clean, counted, True)):
        assert ("ways" in DaskEngine._whole(engine, 0, before, state).arrays) is sent
