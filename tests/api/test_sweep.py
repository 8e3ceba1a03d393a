"""Sweeps: what a fold keeps from whom, that a point is what ``fit`` gives, bits, resuming, and what comes out."""

import csv
import importlib.util
import json
import os
import signal
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from making import Case, block_of, random_rows, shards_of
from test_cli import bigclf as command

import bigclf
from bigclf.api.fit import fit
from bigclf.errors import ConvergenceWarning, DataError, Interrupted, RunError
from bigclf.methods import METHODS, resolve
from bigclf.training.executor import Bench
from bigclf.training.plan import make_plan
from bigclf.training.problems import Fold, Problem, make_problems, taking_part
from bigclf.training.roles.dual import best_share

D, FOLDS = 60, 3
SMALL = "17MB"  # Arrow's allocator and the queues take 12 of them: the rows do not stay
GRID = {"C": [0.01, 1.0, 0.1]}


def sweep(*data, **options):
    return bigclf.sweep(
        *data, **({"algo": "dcd"} | {"algo": "dcd"} | {"grid": GRID, "folds": FOLDS, "progress": False, **options})
    )


@pytest.fixture(scope="module")
def rows():
    return random_rows(2000, D, 0.25, noise=1.0)


@pytest.fixture(scope="module")
def shards(rows, tmp_path_factory):
    return shards_of(tmp_path_factory.mktemp("sweep") / "shards", *rows, chunk_nnz=3000, shard_nnz=20_000)


@pytest.fixture(scope="module")
def three():
    x, _ = random_rows(900, D, 0.25)
    return x, np.array(["ant", "bee", "cow"])[np.argmax(x[:, :3].toarray() + 0.3 * x[:, 3:6].toarray(), axis=1)]


def held(n, fold, seed=0):
    return Fold(fold, FOLDS, seed).holds(np.arange(n), 0)


def same(a, b):
    assert a.best_model.digest() == b.best_model.digest() and a.best_params_ == b.best_params_
    assert a.certificates == b.certificates
    assert [row["folds"] for row in a.table] == [row["folds"] for row in b.table]


where = pytest.mark.parametrize("memory", ["1GB", SMALL], ids=["in memory", "from disk"])


# Folds


def test_every_row_is_in_one_fold_by_its_number_and_the_seed():
    marks = np.array([held(3000, fold) for fold in range(FOLDS)])
    assert (marks.sum(0) == 1).all()
    assert (abs(marks.sum(1) - 1000) < 5 * np.sqrt(3000 * 2 / 9)).all()
    late = Fold(1, FOLDS, 0).holds(np.arange(500), 700)  # a group that begins at row 700
    np.testing.assert_array_equal(late, marks[1, 700:1200])
    assert (held(3000, 1, seed=1) != marks[1]).any()


def test_what_a_problem_sees_of_a_block_does_not_depend_on_whose_memory_it_takes():
    rng, n = np.random.default_rng(0), 50
    block = block_of(sp.random_array((n, D), density=0.3, rng=rng, format="csr", dtype=np.float32), np.zeros(n))
    codes, weights = rng.integers(0, 3, n), rng.integers(0, 3, n).astype(float)
    block = block._replace(labels=codes.astype(float), weights=weights)
    worth, late = np.array([2.0, 0.0, 0.5]), Fold(1, FOLDS, 0)
    problem = Problem("", np.array([-1.0, 1.0, -1.0]), worth, Case("dcd", "hinge").setting(), late)
    views = [problem.view(block, 7), problem.view(block, 7, (np.full(n, np.nan), np.full(n, np.nan)))]
    for view in views:
        np.testing.assert_array_equal(view.labels, np.where(codes == 1, 1.0, -1.0))
        np.testing.assert_array_equal(view.weights, np.where(late.holds(block.ids, 7), 0.0, weights * worth[codes]))
    there = np.array([i for i in range(n) if views[0].weights[i] > 0])
    assert 0 < there.size < n
    for into in (None, np.empty(n, np.int64)):
        np.testing.assert_array_equal(taking_part(views[0], into), there)


@where
def test_no_row_of_a_fold_touches_what_is_learned_without_it(rows, shards, memory, tmp_path):
    """Rows of fold 1 get other labels and other values: its models stay as they are to the bit, the others do not."""
    x, y = rows[0].copy(), rows[1].copy()
    poisoned = held(x.shape[0], 1)
    y[poisoned] *= -1
    x.data[np.repeat(poisoned, np.diff(x.indptr))] *= -3
    clean, bad = shards, shards_of(tmp_path / "bad", x, y, chunk_nnz=3000, shard_nnz=20_000)
    a, b = (sweep(data, memory=memory) for data in (clean, bad))
    assert a.plan["resident"] is b.plan["resident"] is (memory != SMALL)
    for mine, other in zip(a.certificates, b.certificates, strict=True):
        for p, q in zip(mine, other, strict=True):
            alike = (p["primal"], p["dual"]) == (q["primal"], q["dual"])
            assert alike == (p["fold"] == 1), p["name"]


def test_folds_hold_across_groups_too(rows):
    """Of each fold's problem the objective is that of the rows without it, however they are grouped."""
    one, two = (sweep(*rows, groups=groups, tol=1e-5, grid={"C": [0.1]}) for groups in (1, 3))
    for p, q in zip(one.certificates[0], two.certificates[0], strict=True):
        assert abs(p["primal"] - q["primal"]) <= 1e-5 * (p["primal"] + q["primal"])


def test_other_seeds_draw_other_folds_and_the_same_seed_the_same(rows):
    a, b, c = (sweep(*rows, seed=seed) for seed in (0, 0, 1))
    same(a, b)
    assert a.table[0]["folds"] != c.table[0]["folds"]


# A point is what fit gives


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
@where
def test_each_problem_is_the_fit_of_its_rows(rows, shards, loss, memory):
    found = sweep(shards, memory=memory, loss=loss, tol=1e-4)
    x, y = rows
    for point, certificates in zip(found.table, found.certificates, strict=True):
        assert point["gap"] <= 1e-4 and len(certificates) == FOLDS
        for certificate in certificates:
            mine = ~held(y.size, certificate["fold"])
            alone = fit(x[mine], y[mine], loss=loss, tol=1e-6, progress=False, **point["params"])
            optimum = alone.certificate["primal"]
            assert optimum * (1 - 2e-6) <= certificate["primal"] <= optimum * (1 + 1.1e-4)
    whole = fit(x, y, loss=loss, tol=1e-6, progress=False, **found.best_params_).certificate["primal"]
    assert whole * (1 - 2e-6) <= found.best_model.certificate["primal"] <= whole * (1 + 1.1e-4)
    assert found.best_model.certificate["gap"] <= 1e-4


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize("classes", [2, 3])
def test_figures_are_those_of_evaluate(rows, three, loss, classes):
    x, y = rows if classes == 2 else three
    first = np.arange(y.size) < 600
    found = sweep(x[first], y[first], loss=loss, folds=0, validate=(x[~first], y[~first]))
    assert found.measure == ("log_loss" if loss == "logistic" else "error")
    for row, model, certificates in zip(found.table, found.models, found.certificates, strict=True):
        told = bigclf.evaluate(model, x[~first], y[~first])
        figure = told.log_loss if loss == "logistic" else 1 - told.accuracy
        assert row["mean"] == pytest.approx(figure, rel=1e-12)
        assert len(certificates) == (1 if classes == 2 else 3)
        assert model.certificate["gap"] == row["gap"] <= 1e-3
    best = min(found.table, key=lambda row: (row["mean"], row["params"]["C"]))
    assert found.best_params_ == best["params"]
    assert found.best_model is found.models[found.table.index(best)]


def test_the_figure_of_a_fold_is_that_of_a_model_learned_without_it(rows):
    x, y = rows
    found = sweep(x, y, tol=1e-7, grid={"C": [0.1]}, algo="dcd")
    for fold, figure in enumerate(found.table[0]["folds"]):
        apart = held(y.size, fold)
        model = fit(x[~apart], y[~apart], C=0.1, tol=1e-7, progress=False, algo="dcd")
        told = bigclf.evaluate(model, x[apart], y[apart])
        assert abs(figure - (1 - told.accuracy)) <= 2.1 / apart.sum()  # a row or two on the boundary
    assert found.table[0]["mean"] == pytest.approx(np.mean(found.table[0]["folds"]))
    assert found.table[0]["spread"] == pytest.approx(np.std(found.table[0]["folds"]))


def test_rows_without_weight_are_in_no_figure(rows):
    x, y = rows
    weights = (np.arange(y.size) % 2).astype(float)
    plain = sweep(x, y, sample_weight=weights)
    y = np.where(weights > 0, y, -y)
    other = sweep(x, y, sample_weight=weights)
    assert [row["folds"] for row in plain.table] == [row["folds"] for row in other.table]


def test_a_label_nobody_learned_counts_as_wrong(rows):
    x, y = rows
    other = np.where(np.arange(100) % 2, y[:100], 7)
    found = sweep(x, y, folds=0, validate=(x[:100], other), algo="dcd")
    wrong = np.count_nonzero(found.best_model.predict(x[:100]) != other)
    assert wrong >= 50 and min(row["mean"] for row in found.table) == wrong / 100
    with pytest.raises(DataError, match="the model knows -1, 1, and the rows have 7, 8"):
        sweep(x, y, folds=0, validate=(x[:100], np.full(100, 7) + np.arange(100) % 2), algo="dcd")


def test_online_methods_are_swept_too(shards):
    found = sweep(shards, algo="pa1", epochs=3)
    assert found.certificates == [[], [], []] and found.converged
    assert found.best_model.digest() == fit(shards, algo="pa1", epochs=3, progress=False, **found.best_params_).digest()


def test_losses_in_the_grid(rows):
    found = sweep(*rows, grid={"loss": ["hinge", "logistic"], "C": [0.1, 1]})
    assert [row["params"]["loss"] for row in found.table] == ["hinge", "hinge", "logistic", "logistic"]
    assert found.measure == "error" and all(row["gap"] <= 1e-3 for row in found.table)
    assert found.best_model.method["loss"] == found.best_params_["loss"]


# Reads, warm starts, cores


def test_all_problems_share_each_read(shards):
    found = sweep(shards, memory=SMALL)
    reads = [c["read"] for certificates in found.certificates for c in certificates]
    assert len(reads) == 9 and max(reads) <= found.reads < sum(reads)


def test_a_best_value_at_the_edge_of_the_grid_is_told(rows):
    found = sweep(*rows, refit=False)
    for best, edges in ((0.01, {"C": 0.01}), (0.1, {}), (1.0, {"C": 1.0})):
        found.best_params_ = {"C": best}
        assert found.at_edge() == found.as_json()["at_edge"] == edges
        note = "".join(f"C={value:g} is at the edge of the grid" for value in edges.values())
        assert note in repr(found) and note in found._repr_html_()
        assert edges or "edge" not in repr(found) + found._repr_html_()
    found.table = found.table[1:]
    assert found.at_edge() == {"C": 1.0}  # of two values, too
    found.table = found.table[1:]
    assert not found.at_edge()


def test_the_last_model_begins_where_the_folds_have_come_to(shards):
    for memory in ("1GB", SMALL):
        found = sweep(shards, memory=memory, grid={"C": [1.0]}, algo="dcd")
        cold = fit(shards, memory=memory, C=1.0, progress=False).result_
        assert found.best_model.result_.epochs < cold.epochs


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
def test_a_warm_start_lies_in_its_box_and_gains_on_nothing(rows, loss):
    """``within`` and ``value`` against plain numpy on the dual objective (Hsieh et al. 2008; Yu et al. 2011)."""
    x, y = rows
    case, method = Case("dcd", loss), METHODS["dcd"]
    block, params, rng = block_of(x, y, np.linspace(0, 1, y.size)), case.params(C=0.5), np.random.default_rng(0)
    _, alphas = case.state(D, y.size)
    alphas.alpha[:] = rng.uniform(-1, 1, y.size)
    before, c = alphas.alpha.copy(), 0.5 * block.weights
    record = method.loss_of(loss)
    method.how.within(record)(block, alphas, params)
    upper = np.where(c > 0, np.inf, 0.0) if loss == "squared_hinge" else c
    np.testing.assert_array_equal(alphas.alpha, np.clip(before, 0, upper))
    a, p = 0.7 * alphas.alpha[c > 0], 0.7 * alphas.alpha[c > 0] / c[c > 0]
    inside = (p > 0) & (p < 1)
    entropy = -(p[inside] * np.log(p[inside]) + (1 - p[inside]) * np.log1p(-p[inside]))
    expected = {
        "hinge": lambda: a.sum(),
        "squared_hinge": lambda: (a - a * a / (4 * c[c > 0])).sum(),
        "logistic": lambda: (c[c > 0][inside] * entropy).sum(),
    }[loss]()
    assert method.how.value(record)(block, alphas, params, 0.7) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("top", [-0.5, 0.0, 0.2, 0.77, 1.0, 3.0])
def test_the_best_share_of_the_way_is_found(top):
    assert abs(best_share(lambda t: -((t - top) ** 2)) - min(max(top, 0.0), 1.0)) < 0.01


def test_values_of_c_are_learned_in_their_order_whatever_the_grid_s(rows):
    a, b = (sweep(*rows, grid={"C": values}) for values in ([0.01, 0.1, 1.0], [1.0, 0.01, 0.1]))
    assert a.best_params_ == b.best_params_
    for row in a.table:
        (other,) = [r for r in b.table if r["params"] == row["params"]]
        assert row["gap"] <= 1e-3 >= other["gap"]


@where
def test_cores_change_no_bit_of_a_sweep(shards, memory):
    a, b = (sweep(shards, memory=memory, workers=bigclf.Workers(threads=threads)) for threads in (1, 2))
    assert (a.plan["learners"], b.plan["learners"]) == (1, 2)
    same(a, b)


@where
def test_cores_change_no_bit_of_several_classes(three, memory, tmp_path):
    data = shards_of(tmp_path / "three", *three, chunk_nnz=3000)
    a, b = (fit(data, memory=memory, workers=bigclf.Workers(threads=threads), progress=False) for threads in (1, 2))
    assert a.digest() == b.digest() and a.certificate == b.certificate
    assert [r["gap"] for r in a.result_.history if "gap" in r] == [r["gap"] for r in b.result_.history if "gap" in r]


def test_room_is_made_for_both_cores(shards):
    problems = make_problems(np.arange(3), np.ones(3), resolve("dcd", None, None, None, {}))
    plans = [
        make_plan(shards, problems[:k], memory=10**9, dtype="float64", seed=0, groups=1, threads=2, in_memory=False,
                  reads=9).memory["scratch"]
        for k in (1, 3)
    ]  # fmt: skip
    assert plans[1] == 2 * plans[0]


def test_working_sets_are_shared_out_by_c_within_the_budget(shards):
    problems = [
        problem
        for c in (0.01, 1.0, 4.0)
        for problem in make_problems(np.arange(2), np.ones(2), resolve("dcd", None, None, None, {"C": c}))
    ]
    plan = make_plan(shards, problems, memory=17 * 10**6, dtype="float64", seed=0, groups=1, threads=2,
                     in_memory=False, reads=9)  # fmt: skip
    sizes = [plan.arena(number) for number in range(3)]
    assert sizes == sorted(sizes) and sizes[0][0] > 0 and sizes[2][0] > 3 * sizes[1][0]
    assert sum(rows for rows, _ in sizes) <= 3 * plan.set_rows and sum(n for _, n in sizes) <= 3 * plan.set_nnz
    assert plan.memory["planned"] <= 17 * 10**6


# Interrupted, resumed, far away


@where
@pytest.mark.parametrize("after", [2, 3, "best"])
def test_an_interrupted_sweep_goes_on_to_the_same_bits(shards, memory, after, tmp_path):
    whole = sweep(shards, memory=memory, algo="dcd")
    seen = []

    def ask(record):
        seen.append(record["epoch"])
        new_run = len(seen) > 1 and record["epoch"] == 1
        if new_run if after == "best" else record["epoch"] == after and len(seen) == after:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        sweep(shards, memory=memory, run_dir=tmp_path / "run", callbacks=(ask,), algo="dcd")
    with pytest.raises(RunError, match="resume"):
        sweep(shards, memory=memory, run_dir=tmp_path / "run", algo="dcd")
    same(whole, sweep(shards, memory=memory, run_dir=tmp_path / "run", resume=True, algo="dcd"))
    same(
        whole, sweep(shards, memory=memory, run_dir=tmp_path / "run", resume=True, algo="dcd")
    )  # and once it has ended
    with pytest.raises(RunError, match="another run"):
        sweep(shards, memory=memory, run_dir=tmp_path / "run", resume=True, grid={"C": [1.0, 2.0]}, algo="dcd")


@where
def test_workers_change_no_bit(shards, memory, tmp_path):
    distributed = pytest.importorskip("distributed")
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, memory_limit=0, dashboard_address=None
    )
    with cluster, distributed.Client(cluster) as client:
        far = sweep(shards, memory=memory, workers=client, groups=1, run_dir=tmp_path / "run", algo="dcd")
    same(far, sweep(shards, memory=memory, groups=1, algo="dcd"))


def test_limits_end_each_value_and_are_said(rows):
    with pytest.warns(ConvergenceWarning):
        found = sweep(*rows, epochs=1, tol=1e-9)
    assert not found.converged and [row["epochs"] for row in found.table] == [1, 1, 1]
    assert all(row["gap"] > 1e-9 and row["mean"] is not None for row in found.table)  # the chain goes on behind a value


# What comes out, and what is refused


def test_the_result_shows_itself(rows, monkeypatch):
    found = sweep(*rows, algo="dcd")
    text = repr(found)
    assert text.count("\n* ") == 1 and all(f"{c:g}" in text for c in GRID["C"]) and "error" in text
    frame = found.to_pandas()
    assert list(frame["C"]) == GRID["C"] and (frame["gap"] <= 1e-3).all()
    json.dumps(found.as_json()["table"])
    assert found.best_model.n_features == D and found.models == []
    monkeypatch.setitem(sys.modules, "pandas", None)  # as where it is not installed
    with pytest.raises(RunError, match=r"pip install pandas; \.table has the same rows"):
        found.to_pandas()


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"grid": {}}, ValueError, "grid"),
        ({"grid": {"C": []}}, ValueError, "'C' must be a list"),
        ({"grid": {"C": "1,2"}}, ValueError, "'C' must be a list"),
        ({"grid": {"C": [1.0, 1.0]}}, ValueError, "C=1 twice"),
        ({"grid": {"C": [1.0, -1.0]}}, ValueError, "outside its bounds"),
        ({"grid": {"r": [1.0]}}, TypeError, "r has no effect"),
        ({"grid": {"working_set": [0.1]}}, ValueError, "the model does not depend on it"),
        ({"C": 1.0}, TypeError, "C is both in the grid"),
        ({"grid": {"loss": ["hinge"]}, "loss": "hinge"}, TypeError, "loss is both in the grid"),
        ({"folds": 1}, ValueError, "folds must be 0 or at least 2"),
        ({"folds": 0}, ValueError, "needs validate="),
        ({"validate": "x"}, TypeError, "validate has no effect with folds"),
        ({"folds": 0, "validate": np.zeros(3)}, TypeError, "validate must be shards"),
    ],
)
def test_what_makes_no_sense_is_refused(rows, given, error, words):
    with pytest.raises(error, match=words):
        sweep(*rows, **({"algo": "dcd"} | given))


def test_the_command_writes_table_and_model(shards, tmp_path):
    out = tmp_path / "out"
    words = ["sweep", os.path.dirname(shards.files[0]), "-o", out, "--grid", "C=0.1,1", "--folds", 2]
    said, _ = command(*words, "--json")
    told = json.loads(said)
    assert told["table"] == json.loads((out / "results.json").read_text())["table"] and told["folds"] == 2
    with open(out / "results.csv") as file:
        lines = list(csv.DictReader(file))
    assert [float(line["C"]) for line in lines] == [0.1, 1.0]
    assert [float(line["mean"]) for line in lines] == [row["mean"] for row in told["table"]]
    assert bigclf.load(out / "model.bigclf").method["C"] == told["best_params_"]["C"]
    assert not (out / "run").exists()
    assert (out / "results.png").exists() == (importlib.util.find_spec("matplotlib") is not None)
    _, complaint = command(*words, code=1)
    assert "--overwrite" in complaint
    said, _ = command(*words, "--overwrite", "--epochs", 1, "--tol", 1e-9, code=4)
    assert "not converged" in said and "→" in said


def test_a_plot_is_drawn(rows, tmp_path):
    pytest.importorskip("matplotlib")
    from bigclf.cli.sweep import draw

    found = sweep(*rows, grid={"loss": ["hinge", "logistic"], "C": [0.1, 1]})
    assert draw(found, str(tmp_path / "a.png")) and (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert draw(sweep(*rows, grid={"loss": ["hinge"]}), str(tmp_path / "b.png"))  # points, one below the other


def test_a_job_may_sweep():
    from bigclf.cli.jobs.steps import Job
    from bigclf.cli.sweep import values_of

    (step,) = Job("steps: [{sweep: {data: d, output: o, grid: {C: [0.1, 1], loss: [hinge, logistic]}}}]").steps(bool)
    assert step.words == ["d", "--output=o", "--grid=C=[0.1, 1]", "--grid=loss=[hinge, logistic]"]
    assert values_of("[0.1, 1]") == [0.1, 1] and values_of("[hinge, logistic]") == ["hinge", "logistic"]


def test_numbers_are_swept_by_their_squared_error(rows):
    x = rows[0]
    y = x @ np.random.default_rng(1).standard_normal(D) + 0.1 * np.random.default_rng(2).standard_normal(x.shape[0])
    grid = {"C": [0.01, 1.0], "epsilon": [0.01, 0.5]}
    given = dict(grid=grid, folds=0, validate=(x[1500:], y[1500:]), loss="epsilon_insensitive")
    found = sweep(x[:1500], y[:1500], **given)
    assert found.measure == "mean_squared_error" and len(found.table) == 4
    for row, model in zip(found.table, found.models, strict=True):
        told = bigclf.evaluate(model, x[1500:], y[1500:])
        assert row["mean"] == pytest.approx(told.mean_squared_error, rel=1e-9) and row["gap"] <= 1e-3
    assert sweep(x, y, **{**given, "folds": 2, "validate": None}).best_model.certificate["gap"] <= 1e-3
    with pytest.raises(ValueError, match="losses for classes and for numbers"):
        sweep(x, y, grid={"loss": ["hinge", "epsilon_insensitive"]})


# Several methods, and points given up on the way


def test_methods_of_one_grid_are_what_each_is_alone(rows, quiet):
    grid = [{"algo": ["dcd"], "C": [0.1, 1.0]}, {"algo": ["arow", "cw"]}, {"algo": ["pa1"], "C": [0.01]}]
    found = sweep(*rows, grid=grid, epochs=4)
    points = [("dcd", {"C": 0.1}), ("dcd", {"C": 1.0}), ("arow", {}), ("cw", {}), ("pa1", {"C": 0.01})]
    assert [row["params"] for row in found.table] == [{"algo": name, **own} for name, own in points]
    alone = sweep(*rows, algo="pa1", grid={"C": [0.01]}, epochs=4)
    assert found.table[-1]["folds"] == alone.table[0]["folds"] and found.table[-1]["gap"] is None
    best = min(found.table, key=lambda row: row["mean"])
    assert found.best_params_ == best["params"] and found.best_model.method["name"] == best["params"]["algo"]
    assert found.best_model.digest() == fit(*rows, epochs=4, progress=False, **best["params"]).digest()
    assert found.flat()[2]["C"] is None and "arow" in repr(found) and len(found.to_pandas()) == 5
    assert sweep(*rows, grid={"algo": ["pa1", "pa2"], "C": [0.1]}, epochs=2, refit=False).best_model is None


@pytest.mark.parametrize(("algo", "halving"), [("pa1", "progressive"), ("pa1", "validation"), ("dcd", "validation")])
def test_two_thirds_are_given_up_and_the_best_stays(rows, algo, halving, quiet):
    grid = {"C": [0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]}
    options = {"algo": algo, "grid": grid, "epochs": 9} | ({"tol": 1e-5} if algo == "dcd" else {})
    found, whole = sweep(*rows, halving=halving, **options), sweep(*rows, **options)
    dropped = [row["dropped"] for row in found.table]
    assert sorted(d for d in dropped if d) == [1] * 4 + [3] * 2 * (halving == "validation")
    assert all(row["epochs"] == (row["dropped"] or row["epochs"]) for row in found.table)
    if algo == "pa1":
        assert sum(row["epochs"] for row in found.table) < 0.6 * sum(row["epochs"] for row in whole.table)
        stays = [k for k, row in enumerate(found.table) if not row["dropped"]]
        assert all(found.table[k]["folds"] == whole.table[k]["folds"] for k in stays)  # others have no part in it
    kept = [row for row in found.table if not row["dropped"]]
    assert found.best_params_ == min(kept, key=lambda row: (row["mean"], row["params"]["C"]))["params"]
    least, most = min(row["mean"] for row in whole.table), max(row["mean"] for row in whole.table)
    assert min(row["mean"] for row in kept) <= least + 0.2 * (most - least)


def test_a_halved_sweep_resumes_where_it_was(rows, tmp_path):
    grid = {"C": [0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]}
    options = dict(algo="pa1", grid=grid, epochs=9, halving="validation")
    whole = sweep(*rows, **options)

    def stop(record):
        if record["epoch"] == 2:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        sweep(*rows, run_dir=bigclf.RunDir(tmp_path / "run", 0), callbacks=[stop], **options)
    again = sweep(*rows, run_dir=tmp_path / "run", resume=True, **options)
    same(whole, again)
    assert [row["dropped"] for row in whole.table] == [row["dropped"] for row in again.table]


def test_the_line_says_what_is_being_learned(rows, monkeypatch):
    titles = []
    monkeypatch.setattr(bigclf.progress.TerminalProgress, "start", lambda self, plan: titles.append(self.title))
    sweep(*rows, grid={"C": [0.1, 1]}, algo="pa1", epochs=1, progress=None)
    assert titles == ["sweeping", "the best, from all rows"]


def test_what_makes_no_sense_of_methods_and_halving_is_refused(rows):
    for options, error, match in [
        ({"halving": "progressive"}, TypeError, "no effect with algo='dcd': use halving='validation'"),
        ({"halving": "half"}, ValueError, 'halving must be "validation" or "progressive"'),
        ({"refit": "yes"}, ValueError, "refit must be True or False"),
        ({"grid": {"algo": ["pa1", "arow"], "C": [1]}}, TypeError, "C has no effect with algo='arow'"),
        ({"grid": {"algo": ["pa1", "voted_perceptron"]}}, TypeError, "algo='voted_perceptron': its answer"),
        ({"grid": {"algo": ["pa1", "arow"]}, "tol": 0.1}, TypeError, "none of the methods has a certificate"),
        ({"grid": {"algo": "pa1"}}, ValueError, "list of names of methods"),
        ({"grid": [{"algo": ["pa1"]}, {"algo": ["pa1"]}]}, ValueError, "twice"),
        ({"grid": {"C": [1], "epochs": [1, 2]}}, TypeError, "epochs has no place in the grid"),
        ({"max_seconds": 1}, TypeError, "max_seconds has no place in sweep"),
        ({"grid": []}, ValueError, "grid must name parameters"),
    ]:
        with pytest.raises(error, match=match):
            sweep(*rows, **({"algo": "dcd"} | options))


def test_methods_on_the_command_line(shards, tmp_path):
    pytest.importorskip("matplotlib")
    where = [os.path.dirname(shards.files[0]), "-o", tmp_path / "out", "--folds", 2, "--epochs", 3]
    out, _ = command("sweep", *where, "--grid", "pa1:C=0.01,1,100", "--grid", "arow:r=0.1,10,1000", "--grid", "algo=cw",
                     "--halving", "progressive", "--no-refit")  # fmt: skip
    assert "7 points" in out and "→" in out and "next:" not in out and not (tmp_path / "out" / "model.bigclf").exists()
    told = json.loads((tmp_path / "out" / "results.json").read_text())
    assert told["best"] is None and [bool(row["dropped"]) for row in told["table"]].count(True) == 4
    assert (tmp_path / "out" / "results.png").exists() and not (tmp_path / "out" / "run").exists()
    with open(tmp_path / "out" / "results.csv") as file:
        assert {row["r"] for row in csv.DictReader(file)} == {"", "0.1", "10.0", "1000.0"}
    assert "arow" in command("inspect", tmp_path / "out")[0]
    command("sweep", *where, "--overwrite", "--grid", "algo=pa1,pa2", "--grid", "C=0.1,1")
    assert (tmp_path / "out" / "model.bigclf").exists()


# Killed while the results are written, and finished


class Killed(BaseException):
    """Stands for a SIGKILL: nothing that cleans up may be needed."""


GRIDS = {
    "sweep": (["--grid", "C=0.1,1", "--folds", 2], ["model.bigclf", "results.csv", "results.json"]),
    "path": (["--C", "0.1,1"], ["model-1.bigclf", "model-2.bigclf", "path.csv", "path.json"]),
}


def killed_after(monkeypatch, files, names, count):
    """Raise ``Killed`` once ``count`` of the files ``names`` have been published."""
    real, seen = files.os.replace, []

    def replace(beside, path):
        real(beside, path)
        seen.extend([path] if os.path.basename(path) in names and "/run/" not in path else [])
        if len(seen) == count and os.path.basename(path) in names:
            raise Killed

    monkeypatch.setattr(files.os, "replace", replace)


@pytest.mark.parametrize(("name", "count"), [("sweep", 1), ("sweep", 2), ("sweep", 3), ("path", 1), ("path", 4)])
def test_killed_between_the_files_of_its_results_it_is_finished(shards, tmp_path, monkeypatch, name, count):
    from bigclf import files

    grid, names = GRIDS[name]
    words = [name, os.path.dirname(shards.files[0]), *grid, "-o"]
    command(*words, tmp_path / "whole")
    with monkeypatch.context() as patch:
        killed_after(patch, files, names, count)
        with pytest.raises(Killed):
            command(*words, tmp_path / "out")
    _, complaint = command(*words, tmp_path / "out", code=1)
    assert "--resume to continue it" in complaint
    command(*words, tmp_path / "out", "--resume")
    assert sorted(os.listdir(tmp_path / "out")) == sorted(os.listdir(tmp_path / "whole"))
    for model in (n for n in names if n.endswith(".bigclf")):
        assert bigclf.load(tmp_path / "out" / model).digest() == bigclf.load(tmp_path / "whole" / model).digest()


@pytest.mark.parametrize("name", GRIDS)
def test_resuming_what_is_finished_returns_it(shards, tmp_path, monkeypatch, name):
    grid, names = GRIDS[name]
    words = [name, os.path.dirname(shards.files[0]), *grid, "-o", tmp_path / "out"]
    told = json.loads(command(*words, "--json")[0])
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr("bigclf.request.door._found", None)  # nothing is read again
        again = json.loads(command(*words, "--resume", "--json")[0])
        assert again == told
        assert "gap" in command(*words, "--resume", "--threads", 1)[0]
    _, complaint = command(*words, "--resume", "--tol", "0.5", code=1)
    assert "it differs in: tol: null -> 0.5" in complaint and "--overwrite" in complaint
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before
    (tmp_path / "out" / names[-1]).unlink()
    assert "has no " in command(*words, "--resume", code=1)[1]


def path(data, **options):
    return bigclf.path(data, C=[0.1, 1.0], algo="lbfgs", **options)


@pytest.mark.parametrize("learn", [sweep, path])
def test_no_decoding_is_planned_where_local_dir_has_every_row(shards, tmp_path, learn, quiet):
    given = {"memory": SMALL, "epochs": 2, "tol": 0.5, "progress": False, "workers": bigclf.Workers(local_dir=tmp_path)}
    made, found = (learn(shards, **given).plan["memory"] for _ in range(2))
    assert made["decoding"] > 0 == found["decoding"]


# Chains of values of C


VALUES = [0.3, 0.01, 0.1, 1.0, 0.03]


def started(place):
    """Of each problem of the sweep in ``place``, which it begins with, as its name says it."""
    problems = json.loads((place / "grid" / "run.json").read_text())["identity"]["sweep"]["problems"]
    return {name: [problems[other][0] for other, _ in start] for name, _, _, start in problems}


def test_a_few_chains_are_cut_in_two_and_many_are_not(rows, three, tmp_path, quiet):
    sweep(*rows, grid={"C": VALUES}, folds=2, refit=False, run_dir=tmp_path / "few")
    few = started(tmp_path / "few")
    for fold in (1, 2):
        begins = {name.split(",")[0]: start for name, start in few.items() if f"fold {fold}" in name}
        ascending = ["C=0.01", "C=0.03", "C=0.1", "C=0.3", "C=1"]
        after = [[], "C=0.01", "C=0.03", [], "C=0.3"]
        assert begins == {
            name: [f"{before}, fold {fold}"] if before else [] for name, before in zip(ascending, after, strict=True)
        }
    sweep(*three, grid={"C": VALUES}, folds=3, refit=False, run_dir=tmp_path / "many")  # nine chains: a fold and class
    assert sum(not start for start in started(tmp_path / "many").values()) == 9
    sweep(*rows, grid={"C": VALUES[:3]}, folds=2, refit=False, run_dir=tmp_path / "short")
    assert sum(not start for start in started(tmp_path / "short").values()) == 2


def visited(monkeypatch, *data, **given):
    """The problems of each round of a sweep, and what it found."""
    rounds, go = [], Bench.visit
    monkeypatch.setattr(Bench, "visit", lambda self, visit, *rest: [rounds.append(visit), go(self, visit, *rest)][1])
    found = sweep(*data, refit=False, **given)
    return [visit.todo for visit in rounds if visit.kind == "update"], found


def test_rounds_visit_fours_of_chains_and_none_falls_behind(rows, monkeypatch, quiet):
    rounds, found = visited(monkeypatch, *rows, grid={"C": VALUES[:3]}, folds=5)
    assert found.converged and {len(todo) for todo in rounds} <= {1, 2, 3, 4} and len(rounds[0]) == 4
    first, second = ([number % 5 for number in todo] for todo in rounds[:2])
    assert sorted({*first, *second}) == [0, 1, 2, 3, 4]  # who waited in the first round goes first in the second
    alone, _ = visited(monkeypatch, *rows, grid={"C": VALUES[:1], "loss": ["hinge", "squared_hinge"]}, folds=3)
    assert len(alone[0]) == 6  # nothing waits for anything: all at once, as before there were turns


@pytest.mark.parametrize("n_workers", [2, 4])
def test_workers_change_no_bit_of_chains_in_turn(rows, n_workers, quiet):
    distributed = pytest.importorskip("distributed")
    options = dict(threads_per_worker=1, processes=False, memory_limit=0, dashboard_address=None)
    with distributed.LocalCluster(n_workers=n_workers, **options) as cluster, distributed.Client(cluster) as client:
        far = sweep(*rows, grid={"C": VALUES}, folds=5, workers=client)
    same(far, sweep(*rows, grid={"C": VALUES}, folds=5))


@pytest.mark.parametrize("after", [1, 4])
def test_chains_in_turn_go_on_to_the_same_bits(rows, after, tmp_path):
    """Whose turn it is follows from what a checkpoint has."""
    given = dict(grid={"C": VALUES}, folds=5)

    def stop(record):
        if record["epoch"] == after:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        sweep(*rows, run_dir=tmp_path, callbacks=[stop], **given)
    same(sweep(*rows, run_dir=tmp_path, resume=True, **given), sweep(*rows, **given))
