"""All classes learned at once, from labels to a model that goes on, on one group and on several."""

import numpy as np
import pytest
import scipy.sparse as sp
from making import block_of, shards_of

import bigclf
from bigclf.api.fit import fit
from bigclf.conversion.convert import write_shards
from bigclf.errors import ConvergenceWarning, DataError
from bigclf.methods import METHODS
from bigclf.methods.many_classes import multiclass
from bigclf.training.problems import Fold

NATIVE = [name for name, method in METHODS.items() if method.all_classes]
FEW = ("averaged_pa1_mc", "cw_mc", "sccw")  # one of each kind of state
D, K = 12, 4

pytestmark = pytest.mark.filterwarnings("ignore", category=ConvergenceWarning)


def rows_of_classes(n=400, seed=0):
    """Dense float32 rows [n, D], and codes [n] that the largest of K outputs gives, those near a tie left out."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((4 * n, D)).astype(np.float32)
    outputs = np.sort(x[:, :K], axis=1)
    x = x[outputs[:, -1] - outputs[:, -2] > 0.5][:n]
    return x, x[:, :K].argmax(axis=1)


def train(x, y, algo, **options):
    return fit(x, y, algo=algo, **{"bias": None, "epochs": 5, "progress": False, **options})


@pytest.mark.parametrize("algo", NATIVE)
def test_it_learns_what_is_separable_and_says_so_the_same_from_a_file(algo, tmp_path):
    x, y = rows_of_classes()
    model = train(x, y, algo)
    assert model.coef_.shape == (K, D) and model.intercept_.shape == (K,)
    other, truth = rows_of_classes(seed=1)
    assert np.mean(model.predict(other) == truth) > 0.85
    assert model.result_.history[-1]["error"] < 0.2
    model.save(tmp_path / "model.bigclf")
    again = bigclf.load(tmp_path / "model.bigclf")
    assert again.digest() == model.digest() and again.classes_.size == K
    np.testing.assert_array_equal(again.decision_function(other), model.decision_function(other))


@pytest.mark.parametrize("algo", FEW)
def test_going_on_is_going_through(algo):
    x, y = rows_of_classes()
    begun = train(x, y, algo, epochs=2)
    found, wanted = train(x, y, algo, epochs=3, init=begun), train(x, y, algo, epochs=5)
    np.testing.assert_array_equal(found.coef_, wanted.coef_)


@pytest.mark.parametrize("algo", FEW)
def test_a_class_in_one_group_alone_and_one_of_a_single_row(algo, tmp_path):
    x, y = rows_of_classes()
    order = np.argsort(y == K - 1, kind="stable")  # the last class comes last: into the last of three groups
    x, y = x[order], y[order]
    x, y = np.concatenate([x[:1], x]), np.concatenate([[K], y])  # a fifth class has one row
    data = shards_of(tmp_path / "shards", sp.csr_matrix(x), y)
    model = fit(data, algo=algo, bias=None, epochs=4, groups=3, progress=False)
    assert model.coef_.shape == (K + 1, D) and np.isfinite(model.coef_).all()
    known = y < K
    assert np.mean(model.predict(x)[known] == y[known]) > 0.8


def test_balanced_weights_are_those_of_all_shards_where_each_has_one_class(tmp_path):
    """The weights by hand give the same bits."""
    x, y = rows_of_classes()
    for label in range(K):
        one = sp.csr_matrix(x[y == label])
        rows = one.indptr, one.indices, one.data, np.full(one.shape[0], float(label))
        write_shards([rows], tmp_path / str(label), classes=list(range(K)), n_features=D)
    files = [path for label in range(K) for path in sorted(tmp_path.glob(f"{label}/part-*.parquet"))]
    counts = np.bincount(y)
    by_hand = {label: y.size / (K * counts[label]) for label in range(K)}
    models = [fit(files, algo="pa1", epochs=3, groups=2, class_weight=weights, progress=False)
              for weights in ("balanced", by_hand)]  # fmt: skip
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


@pytest.mark.parametrize("algo", FEW)
def test_a_class_that_a_fold_keeps_to_itself_is_measured_all_the_same(algo):
    """The one row of a fifth class is wrong in the fold that has it: nobody learned from it."""
    x, y = rows_of_classes()
    x, y = np.concatenate([x[:1], x]), np.concatenate([[K], y])
    found = bigclf.sweep(x, y, grid={"algo": [algo]}, folds=5, bias=None, epochs=5, progress=False)
    errors, rows = found.table[0]["folds"], np.arange(y.size)
    held = [Fold(part, 5, 0).holds(rows, 0) for part in range(5)]
    assert sum(held).tolist() == [1] * y.size and found.best_model.classes_.size == K + 1
    part = [bool(fold[0]) for fold in held].index(True)
    assert errors[part] >= 1 / held[part].sum()
    assert all(error < 0.3 for error in errors)


@pytest.mark.parametrize(
    "names", [np.array(["a", "b", "c", "d"]), np.array([-3, 7, 8, 100]), np.array([0.5, 1.5, 2.5, 9.0])], ids=str
)
def test_labels_come_back_as_they_were(names):
    x, y = rows_of_classes()
    model = bigclf.fit(x, names[y], algo="pa1", multiclass="native", epochs=5, progress=False)
    np.testing.assert_array_equal(model.classes_, names)
    assert model.method["name"] == "pa1_mc" and np.mean(model.predict(x) == names[y]) > 0.9


@pytest.mark.parametrize("algo", FEW)
def test_of_two_classes_the_difference_decides(algo):
    x, y = rows_of_classes()
    model = train(x, y > 1, algo)
    assert model.coef_.shape == (1, D) and model.decision_function(x).shape == (x.shape[0],)
    assert model.classes_.tolist() == [False, True] and model.predict(x).dtype == bool
    assert np.mean(model.predict(x) == (y > 1)) > 0.7


@pytest.mark.parametrize("algo", ["averaged_perceptron", "averaged_pa", "averaged_pa1", "averaged_pa2"])
def test_of_two_classes_the_average_is_that_of_the_binary_form(algo):
    """w_1 - w_0 moves by twice the row where the binary perceptron moves by it, and as far as a passive-aggressive one
    does at twice the price: in every step, so in their mean."""
    x, y = rows_of_classes()
    price = {"C": 0.2} if algo in ("averaged_pa1", "averaged_pa2") else {}
    both = train(x, y > 1, algo, multiclass="native", **{name: C / 2 for name, C in price.items()})
    one, scale = train(x, y > 1, algo, **price), 2 if algo == "averaged_perceptron" else 1
    assert both.method["name"] == algo + "_mc" and np.abs(one.coef_).max() > 0.01
    np.testing.assert_allclose(both.coef_, scale * one.coef_, rtol=0, atol=1e-10)


def test_a_model_of_two_classes_or_of_more_is_begun_with_as_it_is():
    x, y = rows_of_classes()
    for labels in (y > 1, y):
        model = train(x, labels, "dcd", epochs=50)
        right = x[model.predict(x) == labels], labels[model.predict(x) == labels]
        begun = train(*right, "perceptron_mc", init=model, epochs=1)  # it has nothing to learn from these rows
        assert begun.result_.mistakes == 0
        np.testing.assert_allclose(begun.coef_, model.coef_, rtol=1e-12)


def test_classes_weigh_what_they_are_given():
    x, y = rows_of_classes()
    heavy = train(x, y, "pa1_mc", C=0.001, epochs=1, class_weight={1: 50.0})
    light = train(x, y, "pa1_mc", C=0.001, epochs=1)
    assert np.mean(heavy.predict(x) == 1) > np.mean(light.predict(x) == 1)


def test_what_cannot_be_is_refused_by_name():
    x, y = rows_of_classes(60)
    with pytest.raises(ValueError, match="native.*not available with algo='pegasos'.*dcd.*sccw"):
        fit(x, y, algo="pegasos", multiclass="native", progress=False)
    with pytest.raises(ValueError, match="one-vs-rest.*all classes at once"):
        fit(x, y, algo="sccw", multiclass="one-vs-rest", progress=False)
    with pytest.raises(ValueError, match='multiclass must be "auto"'):
        fit(x, y, algo="pa", multiclass="both", progress=False)
    mixed = np.array(["a", 1, 2.5, True], object)[y]
    for options in ({"algo": "pa1", "multiclass": "native"}, {"algo": "pa1"}):
        with pytest.raises(DataError, match="mixed"):
            fit(x, mixed, progress=False, **options)
    with pytest.raises(ValueError, match="k has no effect"):
        fit(x, y, algo="cw", multiclass="native", k=2, progress=False)


def test_a_sweep_measures_it():
    x, y = rows_of_classes()
    found = bigclf.sweep(x, y, algo="pa1", multiclass="native", grid={"C": [1e-6, 1.0]}, folds=3, progress=False)
    assert found.measure == "error" and found.best_params_ == {"C": 1.0}
    assert found.best_model.coef_.shape == (K, D) and found.table[-1]["mean"] < 0.2


# What kernels of all classes are made of, as plain Python


def plain(function):
    return getattr(function, "py_func", function)


def test_the_scores_of_classes_are_the_products_whatever_the_length_of_the_row():
    rng = np.random.default_rng(0)
    x = sp.csr_array(np.tril(rng.standard_normal((10, 9)).astype(np.float32)))  # rows of 1 to 9 entries
    block, weights = block_of(x, np.ones(10)), rng.standard_normal((10, K))
    some, columns = np.zeros(2), np.array([3, 1])
    for bias in (0.0, 0.5):
        wanted = x.toarray() @ weights[:9] + bias * weights[9]
        for i in range(10):
            scores = np.full(K, 7.0)
            plain(multiclass.scores_of_columns)(block, i, weights, bias, columns, some)
            np.testing.assert_allclose(some, wanted[i, columns], rtol=1e-6)
            plain(multiclass._scores_of_all)(block, i, weights, bias, scores, scores)
            np.testing.assert_allclose(scores, wanted[i], rtol=1e-6)


def test_a_step_adds_the_row_to_the_classes_it_names_the_bias_as_a_constant_feature():
    x = np.array([[1.0, 0.0, 2.0]], np.float32)
    for bias in (0.0, 0.5):
        row, block = np.append(x[0], bias), block_of(sp.csr_array(x), np.ones(1))
        weights = np.ones((4, K))
        plain(multiclass.axpy_classes)(3.0, block, 0, weights, np.array([2]), np.ones(1), 1, bias)
        wanted = np.ones((4, K))
        wanted[:, 2] += 3 * row
        np.testing.assert_allclose(weights, wanted)
        classes, steps = np.array([3, 0, 1]), np.array([0.25, -4.0, 9.0])  # of which the first two count
        plain(multiclass.axpy_classes)(2.0, block, 0, weights, classes, steps, 2, bias)
        wanted[:, 3] += 2 * 0.25 * row
        wanted[:, 0] -= 2 * 4 * row
        np.testing.assert_allclose(weights, wanted)


@pytest.mark.parametrize("seed", range(20))
def test_classes_come_in_the_order_of_their_scores_of_several_the_smallest_first(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 12))
    scores, y = rng.integers(0, 4, n).astype(float), int(rng.integers(n))
    order = sorted((c for c in range(n) if c != y), key=lambda c: (-scores[c], c))
    heap, found = np.zeros(n, np.int64), []
    size = plain(multiclass.others)(scores, y, heap)
    assert size == n - 1
    for left in range(int(size), 0, -1):
        found.append(int(plain(multiclass.next_other)(scores, heap, np.int64(left))))
        assert heap[left - 1] == found[-1]
    assert found == order
    assert plain(multiclass.best_other)(scores, y) == order[0]
    assert plain(multiclass.predicted)(scores) == scores.argmax()
    classes = np.zeros(n, np.int64)
    assert plain(multiclass.at_fault)(scores, y, order[0], False, classes) == 1 and classes[0] == order[0]
    wrong = [c for c in range(n) if c != y and scores[c] >= scores[y]]
    assert plain(multiclass.at_fault)(scores, y, order[0], True, classes) == len(wrong)
    assert classes[: len(wrong)].tolist() == wrong


def test_a_state_of_classes_has_a_column_for_each_and_has_taken_no_step():
    state = multiclass.averaged_zeros(5, "float32", {"n_classes": 3})
    assert state.weights.shape == state.drift.shape == (6, 3) and state.weights.dtype == np.float32
    assert not state.weights.any() and not state.drift.any() and state.steps.tolist() == [0]
    assert multiclass.zeros(5, "float64", {"n_classes": 3}).weights.shape == (6, 3)
