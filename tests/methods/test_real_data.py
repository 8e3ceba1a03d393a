"""Real data: known optima, rows that were never shuffled, and twenty classes at once.

Optimal values (C = 1, no bias) by LIBLINEAR 2.4x for the squared hinge and scikit-learn's LinearSVC
(max_iter=10**6, tol=1e-10) for the hinge, which LIBLINEAR stops at 300 iterations short of.
"""

import bz2
import gzip
import sys
from pathlib import Path

import numpy as np
import pytest
from making import shards_of
from sklearn.datasets import load_svmlight_file
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from bigclf.api.fit import fit
from bigclf.conversion.convert import convert
from bigclf.maths.losses import BOXED, REGRESSION

pytestmark = pytest.mark.data

OPTIMA = {
    ("a9a", "hinge"): 11433.8077,
    ("w8a", "hinge"): 6604.8866,
    ("a9a", "squared_hinge"): 13742.3973,
    ("w8a", "squared_hinge"): 7816.1697,
}
# Objectives (C = 1, no bias) of the weights that liblinear-official 2.50 found with -e 1e-10 and -s 1, -s 7 and -s 12
# -p 0.1, computed in float64: upper bounds of the optimum. "labels": the classes, by themselves or the positive ones
# three times as dear (-w1 3), or the same numbers -1/+1 to predict; "target": ``made_target``. Of news20 the positive
# class is 1, against the rest.
PEERS = {
    ("a9a", "squared_hinge", "labels", 1): 13742.397304375,
    ("a9a", "squared_hinge", "labels", 3): 24298.397737066,
    ("a9a", "logistic", "labels", 1): 10529.562584638,
    ("a9a", "logistic", "labels", 3): 18545.546875433,
    ("a9a", "squared_epsilon_insensitive", "labels", 1): 11528.586961829,
    ("a9a", "squared_epsilon_insensitive", "target", 1): 5705.025799213,
    ("w8a", "squared_hinge", "labels", 1): 7816.169719068,
    ("w8a", "squared_hinge", "labels", 3): 10181.648285271,
    ("w8a", "logistic", "labels", 1): 6277.362973212,
    ("w8a", "logistic", "labels", 3): 8138.245940719,
    ("w8a", "squared_epsilon_insensitive", "labels", 1): 13192.910246633,
    ("w8a", "squared_epsilon_insensitive", "target", 1): 8798.284643873,
    ("news20", "squared_hinge", "labels", 1): 111.861504196,
    ("news20", "squared_hinge", "labels", 3): 132.381228164,
    ("news20", "logistic", "labels", 1): 523.802315612,
    ("news20", "logistic", "labels", 3): 622.529848440,
    ("news20", "squared_epsilon_insensitive", "labels", 1): 259.275190698,
}
# The same of -s 6 with L1: ||w||_1 + sum of losses, and how many weights are not 0. Of -s 5 upper bounds alone: on a9a
# it ends 3e-4 above the optimum.
SPARSE = {
    ("a9a", "logistic"): (10558.723370627, 96),
    ("a9a", "squared_hinge"): (13762.556526331, None),
    ("w8a", "logistic"): (6072.436285895, 237),
    ("w8a", "squared_hinge"): (7852.122043574, None),
    ("news20-unit", "logistic"): (2642.138718686, 433),
}
# How many products with the Hessian liblinear-official 2.50's -s 0 and -s 2 tell that they make, by -e 0.01 and by
# -e 1e-10, and the duality gap 1/2 ||g||^2 of the weights that they end with.
PRODUCTS = {
    ("a9a", "logistic"): ((22, 626.2132), (422, 2.3680e-8)),
    ("a9a", "squared_hinge"): ((18, 17742.5160), (888, 1.4215e-10)),
    ("w8a", "logistic"): ((36, 3.1151), (100, 5.3380e-11)),
    ("w8a", "squared_hinge"): ((41, 53.8374), (185, 1.1482e-9)),
}
# Where liblinear stops at 300 iterations: primal and dual objective of a long run of our own to a certified 1e-8 (of
# w8a's tubes 7e-8 and 1.2e-7, after 90,000 rounds; of news20's 7e-8, with conjugate gradients); they enclose the
# optimum, and so must the two of any other run.
ENCLOSED = {
    ("a9a", "hinge", "labels", 1): (11433.8077914144, 11433.8076970343),
    ("a9a", "hinge", "labels", 3): (20140.5881285953, 20140.5879272170),
    ("a9a", "epsilon_insensitive", "labels", 1): (12367.9135408526, 12367.9135355405),
    ("a9a", "epsilon_insensitive", "target", 1): (9849.2238892690, 9849.2237931438),
    ("w8a", "hinge", "labels", 1): (6604.8866863404, 6604.8866210025),
    ("w8a", "hinge", "labels", 3): (8506.9258394937, 8506.9257653417),
    ("w8a", "epsilon_insensitive", "labels", 1): (19923.1279493944, 19923.1265699544),
    ("w8a", "epsilon_insensitive", "target", 1): (15098.6692021992, 15098.6673410850),
    ("news20", "hinge", "labels", 1): (121.8463729724, 121.8463722934),
    ("news20", "hinge", "labels", 3): (123.2935223617, 123.2935214766),
    ("news20", "epsilon_insensitive", "labels", 1): (337.2196985080, 337.2196745088),
}
# Of news20's counts liblinear-official 2.50's -s 6 -e 1e-10 stops at its limit of iterations 1.1 % above the optimum:
# primal and dual objective of a run of our own to a certified 8e-11, and how many weights are not 0.
COUNTS = 1160.7894464507, 1160.7894463580, 1176
SHAPES = {"a9a": (32561, 123), "w8a": (49749, 300), "news20": (15935, 62061)}


@pytest.fixture(scope="module")
def problem(data_set):
    """name -> (CSR float32, labels), read once."""
    known = {}

    def load(name):
        if name not in known:
            base = name.removesuffix("-unit")
            path = data_set(f"{base}/{base}.{'bz2' if base == 'news20' else 'gz'}")  # the reader knows both
            x, y = load_svmlight_file(str(path), dtype=np.float32)
            assert x.shape == SHAPES[base]
            x = x if base == name else normalize(x)
            x.indices, x.indptr = x.indices.astype(np.int32), x.indptr.astype(np.int32)  # all that liblinear takes
            known[name] = x, y if base != "news20" else np.where(y == 1, 1.0, -1.0)
        return known[name]

    return load


def objective(x, y, w, loss, c=1.0):
    """1/2 ||w||^2 + sum_i c_i loss_i, with an epsilon of 0.1."""
    if loss == "logistic":
        return 0.5 * w @ w + (c * np.logaddexp(0.0, -y * (x @ w))).sum()
    slack = np.maximum(0.0, np.abs(y - x @ w) - 0.1 if loss in REGRESSION else 1 - y * (x @ w))
    return 0.5 * w @ w + (c * (slack if loss in BOXED else slack**2)).sum()


@pytest.mark.parametrize(("name", "loss"), OPTIMA, ids=map("-".join, OPTIMA))
def test_the_certified_optimum_is_the_known_one(problem, name, loss):
    x, y = problem(name)
    model = fit(x, y, algo="dcd", loss=loss, C=1, bias=None, tol=1e-6, progress=False)
    told, best = model.result_.certificate, OPTIMA[name, loss]
    assert model.result_.converged and told["gap"] <= 1e-6
    assert abs(told["primal"] - best) <= 1e-6 * best
    assert told["primal"] == pytest.approx(objective(x.astype(float), y, model.coef_[0], loss), rel=1e-11)
    assert told["dual"] <= best + 1e-4  # the optimum is known to four digits after the point


def made_target(x):
    """A made-up number for every row: a random linear rule, scaled to rows of mean length, and half as much noise."""
    x = x.astype(np.float64)
    rule = np.random.default_rng(0).standard_normal(x.shape[1])
    scale = np.sqrt(x.multiply(x).sum(axis=1).mean())
    return np.round(x @ rule / scale + 0.5 * np.random.default_rng(1).standard_normal(x.shape[0]), 6)


def trained(problem, name, loss, labels, positive, **more):
    """The certificate of a run to 1e-6, its primal compared with numpy's of the model."""
    x, y = problem(name)
    y = made_target(x) if labels == "target" else y
    options = {"epsilon": 0.1} if loss in REGRESSION else {"class_weight": {1: positive}}
    given = {"algo": "dcd", "tol": 1e-6, "epochs": 50_000, **more}
    model = fit(x, y, loss=loss, C=1, bias=None, progress=False, **given, **options)
    told, w = model.result_.certificate, model.coef_[0]
    assert model.result_.converged and 0 <= told["gap"] <= 1e-6
    c = np.where(y > 0, positive, 1.0) if loss not in REGRESSION else 1.0
    assert told["primal"] == pytest.approx(objective(x.astype(float), y, w, loss, c), rel=1e-11)
    return told


def cases(table):
    """The lines of a table; those that take minutes are slow."""
    marks = {True: pytest.mark.slow, False: ()}
    return [pytest.param(*case, id="-".join(map(str, case)), marks=marks[case in SLOW]) for case in table]


SLOW = [
    ("a9a", "epsilon_insensitive", "target", 1),
    ("w8a", "epsilon_insensitive", "labels", 1),
    ("w8a", "epsilon_insensitive", "target", 1),
]


@pytest.mark.parametrize(("name", "loss", "labels", "positive"), cases(PEERS))
def test_the_certified_optimum_is_that_of_liblinear(problem, name, loss, labels, positive):
    told, best = trained(problem, name, loss, labels, positive), PEERS[name, loss, labels, positive]
    assert abs(told["primal"] - best) <= 1e-6 * best and told["dual"] <= best * (1 + 1e-11)


@pytest.mark.parametrize("algo", ["newton", "tron"])
@pytest.mark.parametrize("positive", [1, 3])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
@pytest.mark.parametrize("name", ["a9a", "w8a"])
def test_newtons_methods_find_it_too(problem, name, loss, positive, algo):
    """To 1e-10: as near as the digits of the other program's objective go, and no farther from it than those."""
    told = trained(problem, name, loss, "labels", positive, algo=algo, tol=1e-10, epochs=1000)
    assert told["primal"] == pytest.approx(PEERS[name, loss, "labels", positive], rel=2e-10)


@pytest.mark.parametrize("algo", ["newton", "tron"])
@pytest.mark.parametrize(("name", "loss"), PRODUCTS, ids=map("-".join, PRODUCTS))
def test_newtons_methods_make_at_most_half_as_many_more_products_as_liblinear(problem, name, loss, algo):
    (rough, far), (fine, near) = PRODUCTS[name, loss]
    made, at = 0, []
    model = fit(*problem(name), algo=algo, loss=loss, bias=None, tol=1e-14, epochs=5000, progress=False)
    for record in model.result_.history:
        made += record.get("products", 0)
        at.append((made, record.get("gap", np.inf) * record.get("objective", 1.0)))
    near = max(near, 1e-13 * model.result_.certificate["primal"])  # smaller gaps are rounding
    for limit, gap in ((rough, far), (fine, near)):
        assert next(count for count, found in at if found <= gap) <= 1.5 * limit


@pytest.mark.parametrize(("name", "loss"), SPARSE, ids=map("-".join, SPARSE))
def test_sparse_weights_are_those_of_liblinear(problem, name, loss):
    x, y = problem(name)
    best, many = SPARSE[name, loss]
    model = fit(x, y, algo="newglmnet", loss=loss, bias=None, tol=1e-10, progress=False)
    told, w = model.result_.certificate, model.coef_[0]
    found = objective(x.astype(float), y, w, loss) - 0.5 * w @ w + np.abs(w).sum()
    assert told["primal"] == pytest.approx(found, rel=1e-11) and told["violation"] <= 1e-6
    assert model.result_.converged and told["primal"] <= best * (1 + 2e-9) and told["dual"] <= best * (1 + 1e-11)
    if many is not None:
        assert told["primal"] >= best * (1 - 2e-9)
    if many is not None:
        touching = np.count_nonzero(may_have_weights(x, y, w))
        if name == "a9a":  # groups of its columns add up to one: optima of other supports exist
            assert many <= touching and np.count_nonzero(w) <= touching
        else:
            assert np.count_nonzero(w) == many == touching


def may_have_weights(x, y, w):
    """Of the logistic loss at its optimum w with L1: the columns whose slope is l1. X w, and so the slopes, are unique,
    and no optimum has weights elsewhere; nor has this one."""
    slopes = np.abs(x.T.astype(float) @ (y / (1 + np.exp(y * (x.astype(float) @ w)))))
    touching = slopes >= 1 - 1e-6
    assert not np.any(w[~touching])
    return touching


def test_counts_that_were_never_scaled_are_solved_with_exact_zeros(problem):
    """Columns from 1 to 10,000 entries that nearly depend on each other: cycles of coordinate steps alone stall."""
    x, y = problem("news20")
    model = fit(x, y, algo="newglmnet", loss="logistic", bias=None, tol=1e-9, progress=False)
    told, w, (above, below, many) = model.result_.certificate, model.coef_[0], COUNTS
    assert model.result_.converged and told["violation"] <= 1e-6
    assert below * (1 - 1e-11) <= told["primal"] <= above * (1 + 1e-9) and told["dual"] <= above * (1 + 1e-11)
    assert np.count_nonzero(w) == many == np.count_nonzero(may_have_weights(x, y, w))


@pytest.mark.parametrize(("name", "loss", "labels", "positive"), cases(ENCLOSED))
def test_the_certified_optimum_is_the_one_enclosed_by_a_long_run(problem, name, loss, labels, positive):
    told = trained(problem, name, loss, labels, positive)
    above, below = ENCLOSED[name, loss, labels, positive]
    assert below * (1 - 1e-11) <= told["primal"] <= above * (1 + 1e-6)
    assert below * (1 - 1e-6) <= told["dual"] <= above * (1 + 1e-11)


def test_empty_rows_of_w8a_have_the_price_as_their_dual_variable(problem, tmp_path):
    from bigclf.training.records.run_directory import RunDirectory

    x, y = problem("w8a")
    empty = np.diff(x.indptr) == 0
    assert empty.sum() == 4203
    fit(x, y, algo="dcd", C=1, bias=None, tol=0.1, run_dir=tmp_path, progress=False)
    alpha = RunDirectory(tmp_path).newest(1).rows[0]["0.0.rows.alpha"]
    np.testing.assert_array_equal(alpha[empty], 1.0)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_rows_that_are_clear_at_the_optimum_get_its_class(problem, data_set, loss):
    x, y = problem("a9a")
    test, _ = load_svmlight_file(str(data_set("a9a/a9a.t.gz")), n_features=123, dtype=np.float32)
    model = fit(x, y, algo="dcd", loss=loss, C=1, bias=None, tol=1e-6, progress=False)
    if loss == "hinge":  # scikit-learn needs minutes for what a tighter certificate of our own proves
        best = fit(x, y, algo="dcd", loss=loss, C=1, bias=None, tol=1e-9, progress=False).decision_function(test)
    else:
        newton = LinearSVC(C=1, dual=False, fit_intercept=False, tol=1e-12, max_iter=10**5)
        best = newton.fit(x, y).decision_function(test)
    clear = np.abs(best) > 0.05
    assert 14_000 < clear.sum() < 16_281
    np.testing.assert_array_equal(model.predict(test)[clear], np.where(best > 0, 1, -1)[clear])


def test_sorted_rows_converted_by_default_need_no_more_reads_than_shuffled_ones(data_set, tmp_path):
    """w8a stands in no random order: all its positive rows are where the file's maker left them."""
    lines = gzip.decompress(data_set("w8a/w8a.gz").read_bytes()).splitlines(keepends=True)
    shuffled = [lines[i] for i in np.random.default_rng(0).permutation(len(lines))]
    reads = {}
    for name, content in (("sorted", lines), ("shuffled", shuffled)):
        (tmp_path / f"{name}.svm").write_bytes(b"".join(content))
        made = convert(tmp_path / f"{name}.svm", tmp_path / name, chunk_nnz=10_000, workers=1)
        assert made.n_rows == 49_749 and made.n_chunks > 50
        model = fit(made, algo="dcd", C=1, bias=None, tol=1e-3, memory="18MB", progress=False)
        assert model.result_.converged and not model.result_.plan["resident"]
        reads[name] = model.result_.reads
    assert 2 <= reads["sorted"] <= 1.2 * reads["shuffled"], reads


def test_twenty_newsgroups_at_once(data_set, tmp_path):
    """Twenty problems, one read of each block; a third of the rows held out."""
    with bz2.open(data_set("news20/news20.bz2")) as file:
        x, y = load_svmlight_file(file, dtype=np.float32)
    assert x.shape == (15_935, 62_061) and np.unique(y).size == 20
    held = np.random.default_rng(0).permutation(y.size) < y.size // 3
    made = shards_of(tmp_path / "shards", x[~held], y[~held], chunk_nnz=50_000)
    model = fit(made, algo="dcd", loss="squared_hinge", C=1, bias=None, tol=1e-3, progress=False)
    told = model.result_.certificate
    assert model.result_.converged and len(told["problems"]) == 20
    assert all(problem["gap"] <= 1e-3 for problem in told["problems"])
    other = LinearSVC(C=1, fit_intercept=False, random_state=0).fit(x[~held], y[~held])
    ours, theirs = ((machine.predict(x[held]) == y[held]).mean() for machine in (model, other))
    assert theirs > 0.7 and abs(ours - theirs) <= 0.003


@pytest.mark.parametrize(
    ("file", "C", "peer"),
    [
        ("usps/usps.gz", 1, 120.944834183),
        ("dna/dna.scale.gz", 1, 50.671130802),
        ("news20/news20.bz2", 0.01, 51.079835135),
    ],
)
def test_all_classes_at_once_reach_the_objective_of_liblinear(data_set, file, C, peer):
    """``peer`` : P in float64 of what liblinear-official 2.50 finds with -s 4 -e 1e-4: no less than the optimum."""
    x, y = load_svmlight_file(str(data_set(file)), dtype=np.float32)
    told = fit(x, y, algo="dcd_mc", C=C, bias=None, tol=1e-3, progress=False).result_
    assert told.converged and told.certificate["dual"] <= peer * (1 + 1e-9)
    assert told.certificate["primal"] <= peer * (1 + 1e-3)


def test_a_hundred_and_fifty_intents_all_at_once(data_set):
    """Confidence weighting is no worse than one-vs-rest LinearSVC at the best of four C (parameters of both chosen on
    the validation part: ``jobs/experiments/intents.py``)."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "jobs" / "experiments"))
    import intents

    folder = data_set("clinc150/data_full.json.gz").parents[1]
    train, test = intents.rows(str(folder), "train", "test")
    assert train[0].shape[0] == 15_000 and test[0].shape[0] == 4_500 and np.unique(train[1]).size == 150
    ours, theirs = (intents.accuracy(train, test, intents.CHOSEN[n]) for n in (0, 2))
    assert theirs > 0.9 and ours >= theirs


@pytest.mark.parametrize("name", ["a9a", "news20"])
def test_exports_say_the_same_in_the_programs_they_are_for(data_set, tmp_path, name):
    """liblinear, scikit-learn and plain numpy to 1e-9, onnxruntime to 1e-5, relative."""
    import importlib.util

    import joblib

    path = data_set(f"{name}/{name}.{'bz2' if name == 'news20' else 'gz'}")
    x, y = load_svmlight_file(str(path), dtype=np.float32)
    model = fit(x, y, algo="pa1", C=0.1, epochs=1, progress=False)
    x = x[:3000].astype(np.float64)
    scores = model.decision_function(x)

    def agrees(found, rtol):
        np.testing.assert_allclose(found, scores, rtol=rtol, atol=rtol * np.abs(scores).mean())

    model.export(tmp_path / "m.joblib", "sklearn")
    agrees(joblib.load(tmp_path / "m.joblib").decision_function(x), 1e-9)
    model.export(tmp_path / "scorer.py", "numpy")
    spec = importlib.util.spec_from_file_location("scorer", tmp_path / "scorer.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    agrees(module.decision_function(x), 1e-9)
    assert np.array_equal(module.predict(x), model.predict(x))
    peers = 0
    model.export(tmp_path / "m.txt", "liblinear")
    if importlib.util.find_spec("liblinear"):
        from liblinear.liblinearutil import load_model, predict

        peer = load_model(str(tmp_path / "m.txt"))
        labels, _, values = predict([], x, peer, "-q")
        values = np.array(values)
        agrees(values[:, 0] if model.binary else values[:, np.argsort(peer.get_labels())], 1e-9)
        assert np.array_equal(labels, model.predict(x))
        peers += 1
    if importlib.util.find_spec("onnxruntime"):
        import onnxruntime

        model.export(tmp_path / "m.onnx", "onnx")
        session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
        labels, values = session.run(None, {"X": x[:200].toarray().astype(np.float32)})
        np.testing.assert_allclose(values, scores[:200], rtol=1e-5)
        assert np.array_equal(labels, model.predict(x[:200]))
        peers += 1
    if not peers:
        pytest.skip("neither liblinear-official nor onnxruntime is installed: only scikit-learn and numpy were asked")
