"""Methods that step from sums over all rows: Newton's, trust region, L-BFGS; of two classes and of all at once."""

import numpy as np
import pytest
import scipy.sparse as sp
from making import block_of, dense, random_rows, shards_of

import bigclf
from bigclf.api.fit import fit
from bigclf.methods import METHODS, resolve

D = 30
SMOOTH = ("logistic", "squared_hinge", "squared_epsilon_insensitive")
# ... that end at any tolerance: augmented_lagrangian has a file of its own
METHODS_BY_SUMS = [m.name for m in METHODS.values() if m.by_sums and m.name != "augmented_lagrangian"]
by_loss = pytest.mark.parametrize("loss", SMOOTH)
EPSILON = 0.1


def objective(x, y, w, loss, bias=None, weights=1.0):
    """1/2 ||w||^2 + sum of losses, C = 1, in plain numpy; the last of w is the bias."""
    m = x @ w[:-1] + (w[-1] if bias else 0.0)
    each = {
        "logistic": lambda: np.logaddexp(0, -y * m),
        "squared_hinge": lambda: np.maximum(0, 1 - y * m) ** 2,
        "squared_epsilon_insensitive": lambda: np.maximum(0, abs(y - m) - EPSILON) ** 2,
    }[loss]()
    kept = w[:-1] if bias in (None, "free") else w
    return 0.5 * kept @ kept + np.sum(weights * each)


def answer(model):
    return np.append(model.coef_[0], model.intercept_)


def state_at(loss, w, kind, block, bias="feature", **more):
    """Setting, state and row arrays of Newton's method about to make a sum at w."""
    from bigclf.methods.steps import newton

    setting = resolve("newton", loss, None, bias, {"start": 0, **more})
    shared, rows = setting.shared(w.size - 1, "float64"), newton.Rows(np.zeros(block.n_rows))
    shared.weights[:] = w
    shared.scalars[newton.KIND] = kind
    return setting, shared, rows


@by_loss
def test_gradient_and_products_equal_finite_differences(loss):
    from bigclf.methods.steps import newton

    x, y = random_rows(90, D, real=loss not in ("logistic", "squared_hinge"))
    block, rng = block_of(x, y, np.linspace(0.5, 2, 90)), np.random.default_rng(0)
    w, d, h = 0.3 * rng.standard_normal(D + 1), rng.standard_normal(D + 1), 1e-6

    def slope(w):
        setting, shared, rows = state_at(loss, w, newton.GRADIENT, block)
        setting.kernel()(block, np.arange(90), shared, rows, setting.params(), np.empty(0))
        return shared, rows, newton.gradient(shared, setting.params())

    shared, rows, (g, value) = slope(w)
    full = dense(block, D)
    assert value == pytest.approx(objective(full, y, w, loss, "feature", block.weights), rel=1e-12)
    sides = [[objective(full, y, w + t * e, loss, "feature", block.weights) for t in (h, -h)] for e in np.eye(D + 1)]
    found = [(up - down) / (2 * h) for up, down in sides]
    np.testing.assert_allclose(g, found, rtol=1e-6, atol=1e-6)

    setting, asked, _ = state_at(loss, w, newton.PRODUCT, block)
    asked.probe[:] = d
    asked.scalars[newton.SEEN] = 90
    setting.kernel()(block, np.arange(90), asked, rows, setting.params(), np.empty(0))
    image = newton.product(asked, setting.params())[1]
    there = (slope(w + 1e-7 * d)[2][0] - slope(w - 1e-7 * d)[2][0]) / 2e-7
    np.testing.assert_allclose(image, there, rtol=1e-5, atol=1e-5)
    curved = x.multiply(x).T @ rows.curvature
    np.testing.assert_allclose(shared.diagonal[:-1], np.asarray(curved).ravel(), rtol=1e-6)


@by_loss
@pytest.mark.parametrize("bias", [None, "feature", "free"])
@pytest.mark.parametrize("algo", ("newton", "tron", "lbfgs"))
def test_the_optimum_of_another_program_and_a_certificate_that_holds(algo, loss, bias):
    from scipy.optimize import minimize

    x, y = random_rows(100, 12, real=loss == SMOOTH[2])
    weights = np.random.default_rng(1).choice([0.0, 0.5, 2.0], 100)
    options = {"epsilon": EPSILON} if loss == SMOOTH[2] else {}
    model = fit(x, y, algo=algo, loss=loss, bias=bias, sample_weight=weights, tol=1e-10, progress=False, **options)
    found = model.result_.certificate
    assert model.result_.converged and found["gap"] <= 1e-10
    full = x.toarray().astype(float)

    def value(w):
        return objective(full, y, w, loss, bias, weights)

    assert found["primal"] == pytest.approx(value(answer(model)), rel=1e-12)
    best = minimize(value, np.zeros(13), method="BFGS", options={"gtol": 1e-7, "maxiter": 5000})
    assert best.fun >= found["dual"] * (1 - 1e-12) and found["primal"] <= best.fun * (1 + 1e-9)
    history = [r for r in model.result_.history if "dual" in r]
    assert all(r["dual"] <= best.fun * (1 + 1e-12) for r in history) and len(history) > 2


@pytest.mark.parametrize("algo", METHODS_BY_SUMS)
def test_groups_and_threads_and_where_rows_lie_change_rounding_only(algo, tmp_path):
    x, y = random_rows(3000, 200, density=0.1)
    shards_of(tmp_path / "s", x, y, chunk_nnz=4000)
    many = METHODS[algo].all_classes
    options = dict(algo=algo, tol=1e-10, progress=False)
    data, expected = str(tmp_path / "s"), fit(x, y, **options)
    assert expected.result_.converged
    threads = [fit(x, y, workers=bigclf.Workers(threads=n), **options).digest() for n in (1, 2)]
    assert threads[0] == threads[1] == expected.digest()
    tight = "16MB" if algo == "newton_dense" else "14MB"  # a number for each pair of features
    for more in ({"groups": 3}, {"memory": tight}, {"memory": tight, "groups": 2}):
        model = fit(data, **more, **options)
        assert model.result_.certificate["primal"] == pytest.approx(expected.result_.certificate["primal"], rel=1e-9)
        np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-3, atol=1e-4)
        assert model.result_.plan["resident"] == ("memory" not in more) and many in (True, False)


def test_products_of_sampled_rows_end_at_the_same_optimum(tmp_path):
    x, y = random_rows(6000, 40, density=0.2)
    shards_of(tmp_path / "s", x, y, chunk_nnz=4000)
    options = dict(algo="newton", tol=1e-9, progress=False)
    every = fit(x, y, **options)
    for where in ((x, y), (str(tmp_path / "s"),)):
        model = fit(*where, sample=0.25, memory="14MB" if len(where) == 1 else "1GB", **options)
        assert model.result_.plan["every"] == 4
        sampled = [r["rows"] for r in model.result_.history if r.get("products")]
        assert 1300 < min(sampled) < 1700
        assert model.result_.certificate["primal"] == pytest.approx(every.result_.certificate["primal"], rel=1e-8)
        assert model.result_.reads < model.result_.epochs


@pytest.mark.parametrize("algo", ["newton", "tron"])
def test_rows_that_misjudge_a_step_are_sampled_no_longer(algo):
    """A tenth of 600 rows said little of the squared hinge's curvature, and tron kept to it: 123 epochs, not 33."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(600, 30))
    y = np.where(x @ rng.normal(size=30) + 2 * rng.normal(size=600) > 0, 1, -1)
    options = dict(algo=algo, loss="squared_hinge", tol=1e-4, progress=False)
    every, some = fit(x, y, **options).result_, fit(x, y, sample=0.1, **options).result_
    assert some.plan["every"] == 10 and some.stopped == "tolerance"
    assert some.epochs < 3 * every.epochs


def test_row_state_on_disk_gives_the_same_bits(tmp_path):
    x, y = random_rows(150_000, 20, density=0.05)
    shards_of(tmp_path / "s", x, y, chunk_nnz=20_000)
    options = dict(algo="newton", tol=1e-6, progress=False, sample=1.0, start=1)
    found = {m: fit(str(tmp_path / "s"), memory=m, **options) for m in ("17.75MB", "17MB")}
    plans = [model.result_.plan["rows_sides"] for model in found.values()]
    assert plans == [0, 1]
    assert len({model.digest() for model in found.values()}) == 1


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.long)])
def test_a_run_stopped_anywhere_goes_on_with_the_same_bits(dtype, tmp_path, quiet):
    x, y = random_rows(3000, 40, density=0.2)
    shards_of(tmp_path / "s", x, y, chunk_nnz=2000)
    options = dict(algo="newton", tol=1e-8, progress=False, start=1, sample=0.5, memory="14MB", dtype=dtype, groups=2)
    data = str(tmp_path / "s")
    straight = fit(data, **options)
    fit(data, epochs=4, run_dir=tmp_path / "r", **options)
    for epochs in (5, 6, None):
        model = fit(data, epochs=epochs, run_dir=tmp_path / "r", resume=True, **options)
    assert model.digest() == straight.digest() and straight.result_.epochs > 6


def test_a_model_is_a_start(tmp_path):
    x, y = random_rows(300, D)
    model = fit(x, y, algo="newton", tol=1e-10, progress=False)
    model.save(tmp_path / "m")
    import bigclf

    again = fit(x, y, algo="newton", tol=1e-9, init=bigclf.load(tmp_path / "m"), progress=False)
    assert again.result_.epochs == 1 and again.result_.converged
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_problems_of_one_run_are_those_of_runs_of_their_own(tmp_path):
    x, y = random_rows(400, D)
    y = y + (np.arange(400) % 3 == 0) * 5  # four classes
    model = fit(x, y, algo="newton", tol=1e-10, progress=False)
    assert model.coef_.shape == (4, D) and len(model.result_.certificate["problems"]) == 4
    for k, label in enumerate(model.classes_):
        alone = fit(x, np.where(y == label, 1, -1), algo="newton", tol=1e-10, progress=False)
        np.testing.assert_allclose(model.coef_[k], alone.coef_[0], rtol=1e-4, atol=1e-5)


def odd_data(name):
    rng = np.random.default_rng(0)
    x, y = random_rows(200, D, noise=0.0)
    x = x.toarray()
    if name == "constant and empty columns":
        x[:, 3], x[:, 7], x[:, 8] = 1.0, 0.0, 0.0
    elif name == "one feature in every row":
        x = np.zeros((200, D))
        x[:, 4] = rng.standard_normal(200)
    elif name == "rows of zeros":
        x[::3] = 0
    elif name == "nothing but zeros":
        x[:] = 0
    return sp.csr_matrix(x.astype(np.float32)), y


@pytest.mark.parametrize(("C", "bias"), [(1.0, "free"), (1.0, None), (1e12, "free"),
                                         pytest.param(1e12, None, marks=pytest.mark.long)])  # fmt: skip
@pytest.mark.parametrize("name", ["separable", "constant and empty columns", "one feature in every row",
                                  "rows of zeros", "nothing but zeros"])  # fmt: skip
@pytest.mark.filterwarnings("ignore:not converged")
def test_odd_data_end_with_a_certificate_or_a_stated_stop(name, C, bias):
    for algo in ("newton", "tron", "lbfgs", "newglmnet", "cdn"):
        if bias and bias not in METHODS[algo].bias:
            continue
        epochs = 4 if METHODS[algo].collects else 2000  # each collection is up to 2,000 cycles
        model = fit(*odd_data(name), algo=algo, C=C, bias=bias, tol=1e-6, epochs=epochs, progress=False)
        assert np.isfinite(model.coef_).all() and model.result_.stopped in ("tolerance", "stalled", "epochs")
        assert C > 1 or model.result_.stopped == "tolerance"
        if model.result_.stopped == "tolerance":
            assert model.result_.certificate["gap"] <= 1e-6


@pytest.mark.parametrize("algo", ["newton", "tron", "lbfgs", "newglmnet", "cdn"])
@pytest.mark.parametrize(
    ("n_rows", "n_features"), [(2000, 200_000), pytest.param(10**5, 10**7, marks=pytest.mark.slow)]
)
def test_many_more_features_than_rows_end_with_a_certificate(algo, n_rows, n_features):
    """Thirty features a row, of which a third are among a hundred common ones that tell the class."""
    rng = np.random.default_rng(0)
    common, rare = rng.integers(0, 100, (n_rows, 10)), rng.integers(100, n_features, (n_rows, 20))
    indices = np.hstack([common, rare]).astype(np.int32).reshape(-1)
    x = sp.csr_matrix((np.ones(indices.size, np.float32), indices, np.arange(n_rows + 1) * 30), (n_rows, n_features))
    x.sum_duplicates()
    y = np.where((common < 50).sum(axis=1) + rng.standard_normal(n_rows) > 5, 1.0, -1.0)
    model = fit(x, y, algo=algo, loss="logistic", bias=None, tol=1e-4, epochs=2000, memory="8GB", progress=False)
    w, told = model.coef_[0], model.result_.certificate
    assert model.result_.converged and told["gap"] <= 1e-4 and told["dual"] <= told["primal"]
    own = np.abs(w).sum() if METHODS[algo].collects else 0.5 * w @ w
    assert told["primal"] == pytest.approx(own + np.logaddexp(0, -y * (x.astype(np.float64) @ w)).sum(), rel=1e-10)
    assert not w[np.bincount(x.indices, minlength=n_features) == 0].any()


def test_an_overflow_is_an_error_with_a_cure():
    from bigclf.errors import DataError

    x, y = random_rows(50, D, real=True)
    with pytest.raises(DataError, match="scale down"):
        fit(x, y * 1e200, algo="newton", loss="squared_epsilon_insensitive", progress=False)


def softmax_objective(x, codes, w, weights=1.0):
    """1/2 ||W||^2 + sum of the losses, with a bias of the constant feature; w is [feature + 1, class]."""
    scores = x @ w[:-1] + w[-1]
    lost = np.logaddexp.reduce(scores, axis=1) - scores[np.arange(codes.size), codes]
    return 0.5 * np.sum(w * w) + np.sum(weights * lost)


def test_multinomial_gradient_and_products_equal_finite_differences():
    from bigclf.methods.steps import newton

    x, _ = random_rows(40, 8)
    rng = np.random.default_rng(0)
    codes, weights, h = rng.integers(0, 3, 40), np.linspace(0.5, 2, 40), 1e-6
    setting = resolve("newton_mc", None, None, "feature", {}).of_classes(3)
    block = block_of(x, np.where(codes > 0, 1, -1), weights)._replace(labels=codes.astype(float))

    def at(w, kind, probe=None):
        shared = setting.shared(8, "float64")
        shared.weights[:] = shared.point[:] = w
        shared.scalars[[newton.KIND, newton.SEEN]] = kind, 40
        if probe is not None:
            shared.probe[:] = probe
        setting.kernel()(block, np.arange(40), shared, (), setting.params(), np.empty(0))
        return shared

    w, d = rng.standard_normal((9, 3)), rng.standard_normal((9, 3))
    g, value = newton.gradient(at(w, newton.GRADIENT), setting.params())
    full = dense(block, 8)
    assert value == pytest.approx(softmax_objective(full, codes, w, weights), rel=1e-12)
    for place in np.ndindex(9, 3):
        e = np.zeros((9, 3))
        e[place] = h
        there = softmax_objective(full, codes, w + e, weights) - softmax_objective(full, codes, w - e, weights)
        assert g[place] == pytest.approx(there / (2 * h), rel=1e-5, abs=1e-5)
    image = newton.product(at(w, newton.PRODUCT, d), setting.params())[1]
    sides = [newton.gradient(at(w + t * d, newton.GRADIENT), setting.params())[0] for t in (1e-6, -1e-6)]
    np.testing.assert_allclose(image, (sides[0] - sides[1]) / 2e-6, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_multinomial_regression_is_scikit_learns(n_classes):
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 6)).astype(np.float32)
    scores = x @ rng.standard_normal((6, n_classes)) + rng.standard_normal((200, n_classes))
    y = np.array(list("abcd"))[np.argmax(scores, 1)]
    model = fit(x, y, algo="newton", loss="logistic", multiclass="native", bias=None, C=2.0, tol=1e-10, progress=False)
    assert model.result_.converged and model.classes_.size == n_classes
    if n_classes == 2:  # two columns, of opposite sign at the optimum: the penalty of their difference is half
        model2 = fit(x, y, algo="newton", bias=None, C=4.0, tol=1e-10, progress=False)
        np.testing.assert_allclose(model.coef_, model2.coef_, atol=1e-4)
        np.testing.assert_allclose(model.predict_proba(x), model2.predict_proba(x), atol=1e-4)
        return
    other = LogisticRegression(C=2.0, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(x.astype(float), y)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(x), other.predict_proba(x.astype(float)), atol=1e-4)
    zeros = np.zeros((1, n_classes))
    primal = 2.0 * softmax_objective(x, np.unique(y, return_inverse=True)[1], np.vstack([other.coef_.T, zeros]))
    primal -= 0.5 * np.sum(other.coef_**2)
    assert model.result_.certificate["primal"] == pytest.approx(primal, rel=1e-9)


def test_a_trust_region_is_measured_in_the_norm_that_the_step_was_made_in():
    """The read at the end of a large step makes the Hessian's diagonal anew, which is another norm."""
    from bigclf.methods.steps import newton, trust_region

    setting = resolve("tron", "squared_hinge", None, None, {"start": 0})
    shared = setting.shared(2, "float64")
    shared.diagonal[:], shared.step[:] = [4.0, 1.0, 1.0], [1.0, 2.0, 0.0]
    shared.scalars[[newton.VALUE, newton.MODEL, trust_region.FIRST]] = 1.0, -0.5, 0.0
    shared.scalars[trust_region.RADIUS] = 10.0
    trust_region.tried(shared, {})
    assert shared.scalars[newton.FRESH] and not shared.diagonal.any()  # it is summed up anew
    shared.diagonal[:] = 1e6
    trust_region.resize(shared, -1.0, 0.5)  # the objective rose
    length = np.sqrt(4.0 * 1 + 1.0 * 4)
    assert 0.25 * length <= shared.scalars[trust_region.RADIUS] <= 0.5 * 10.0
    assert shared.scalars[trust_region.RADIUS] <= length


def nearly_separable(seed, correlated):
    """[120, 8]; a class on each side of a plane, but for a few rows next to it."""
    rng = np.random.default_rng(seed)
    x, w = rng.normal(size=(120, 8)), rng.normal(size=8)
    x += correlated * rng.normal(size=(120, 1))
    return x, np.where(x @ w + 0.1 * rng.normal(size=120) > 0, 1.0, -1.0)


@pytest.mark.parametrize("correlated", [0.0, 5.0])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("C", [1e4, 1e6])
def test_a_trust_region_takes_few_reads_where_c_is_large(C, seed, correlated):
    """It shrank to the distance of the next row that begins to cost, and thousands of reads followed."""
    x, y = nearly_separable(seed, correlated)
    model = fit(x, y, algo="tron", loss="squared_hinge", C=C, tol=1e-6, epochs=600, progress=False)
    assert model.result_.stopped == "tolerance"  # 600 gradients and products; LIBLINEAR takes 19 to 1,044 Newton steps
    best = fit(x, y, algo="dcd", loss="squared_hinge", C=C, tol=1e-8, progress=False).result_.certificate
    assert model.result_.certificate["primal"] == pytest.approx(best["primal"], rel=2e-6)


@pytest.mark.parametrize("kink, bend, c", [(0.3, 0.0, 50.0), (0.3, 2.0, 50.0), (0.0, 3.0, 1.0), (0.9, 0.1, 1e6)])
def test_a_step_that_goes_too_far_is_cut_where_its_lowest_point_is(kink, bend, c):
    from bigclf.methods.steps.trust_region import lowest

    def rise(u):
        return -1.0 * u + 0.5 * bend * u * u + 0.5 * c * max(0.0, u - kink) ** 2

    found = lowest(1.0, -1.0, bend, rise(1.0), -1.0 + bend + c * (1.0 - kink))
    assert rise(found) <= min(rise(u) for u in np.linspace(0, 1, 1001)) + 1e-12


def test_a_step_without_a_finite_objective_is_cut_most():
    from bigclf.methods.steps.trust_region import lowest

    assert lowest(1.0, -1.0, 1.0, np.inf, np.inf) == 0.0 == lowest(1.0, -1.0, 1.0, np.nan, 1.0)


# What lies between two reads


def between_reads(algo, n_features=2):
    """Module, state at 0 and parameters, with a preconditioner of ones and no start by coordinate descent."""
    from bigclf.methods.steps import lbfgs, newton, trust_region

    setting = resolve(algo, "squared_hinge", None, None, {"start": 0})
    shared = setting.shared(n_features, "float64")
    shared.diagonal[:], shared.scalars[newton.FRESH] = 1.0, 0.0
    return {"newton": newton, "tron": trust_region, "lbfgs": lbfgs}[algo], shared, setting.params()


@pytest.mark.parametrize("algo", ["newton", "tron", "lbfgs"])
def test_points_whose_gradient_is_no_shorter_than_any_before_are_counted(algo):
    from bigclf.methods.steps import newton

    module, shared, params = between_reads(algo)
    counted = []
    for length in (2.0, 3.0, 3.0, 1.0, 2.0, 0.5):
        shared.weights[:], shared.total[:] = 0.0, [length, 0.0, 0.0]
        shared.figures[newton.LOSS] = 5.0  # P, which has fallen
        shared.scalars[[newton.VALUE, newton.LENGTH, newton.MODEL, newton.FRESH]] = 10.0, 1.0, 0.0, 0.0
        told = module.looked(1, shared, params)
        assert told.primal == 5.0 and told.over == ""
        counted.append(shared.scalars[newton.IDLE])
    assert counted == [0, 1, 2, 0, 1, 0] and shared.scalars[newton.LEAST] == 0.25


@pytest.mark.parametrize("algo", ["newton", "tron", "lbfgs"])
def test_a_gradient_of_nothing_is_the_end(algo):
    module, shared, params = between_reads(algo)
    shared.weights[:] = [1.0, -2.0, 0.0]
    shared.total[:] = -shared.weights
    told = module.looked(1, shared, params)
    assert told.over == "done" and told.primal == told.dual == 2.5 and told.weights.tolist() == [1.0, -2.0, 0.0]


def test_the_next_read_is_where_the_step_ends_that_meets_a_direction_without_curvature():
    from bigclf.methods.steps import newton

    for products, bend in ((1, -3.0), (1, np.inf), (0, -3.0)):
        module, shared, params = between_reads("newton")
        shared.point[:], shared.step[:], shared.probe[:] = [1.0, 1.0, 0.0], [3.0, -2.0, 0.0], [1.0, 0.0, 0.0]
        shared.total[:] = [bend, 0.0, 0.0]  # of the losses; that of the penalty is 1
        shared.scalars[[newton.KIND, newton.SQUARE, newton.PRODUCTS]] = newton.PRODUCT, 1.0, products
        told = module.multiplied(shared, params)
        assert told.facts == {"products": 1.0}
        if products:
            assert told.over == "" and shared.weights.tolist() == [4.0, -1.0, 0.0]
            assert shared.scalars[newton.KIND] == newton.GRADIENT and shared.scalars[newton.LENGTH] == 1.0
        else:
            assert told.over == "stalled" and not shared.weights.any()


@pytest.mark.parametrize(
    ("fell", "first", "radius"),
    [
        (-1.0, 0.0, 2 / 3),  # promised were 1, by a step of length 2 in a region of 3: the parabola is lowest at 1/3
        (0.2, 0.0, 2 / 1.8),
        (0.5, 0.0, 2 / 1.5),
        (0.9, 0.0, 3.0),
        (1.5, 0.0, 4.0),
        (1.9, 0.0, 12.0),  # no more than four times as large
        (2.5, 0.0, 8.0),  # it fell faster than its tangent
        (0.9, 1.0, 2.0),  # the first region is no larger than its step
        (-200.0, 0.0, 0.5),  # a quarter of the step at least
    ],
)
def test_the_region_follows_the_parabola_through_what_a_step_brought(fell, first, radius):
    from bigclf.methods.steps import newton, trust_region

    _, shared, _ = between_reads("tron")
    shared.step[:] = [2.0, 0.0, 0.0]
    shared.scalars[newton.MODEL] = -1.0  # g.s = -2
    shared.scalars[[trust_region.RADIUS, trust_region.FIRST, trust_region.REACH]] = 3.0, first, 2.0
    trust_region.resize(shared, fell, 1.0)
    assert shared.scalars[trust_region.RADIUS] == pytest.approx(radius) and shared.scalars[trust_region.FIRST] == 0


@pytest.mark.parametrize(("region", "length", "ends"), [(0.5, 0.5, True), (1.0, 1.0, True), (1.5, 1.0, False)])
def test_a_step_of_conjugate_gradients_ends_at_the_border_of_the_region(region, length, ends):
    from bigclf.methods.steps import newton, trust_region

    module, shared, params = between_reads("tron")
    shared.probe[:] = shared.residual[:] = [1.0, 0.0, 0.0]
    shared.total[:] = [0.0, 0.5, 0.0]  # of the losses: H d = (1, 0.5), lowest at 1
    shared.scalars[[newton.KIND, newton.SQUARE, trust_region.RADIUS]] = newton.PRODUCT, 1.0, region
    module.multiplied(shared, params)
    assert shared.step.tolist() == [length, 0.0, 0.0]
    assert shared.scalars[newton.KIND] == (newton.GRADIENT if ends else newton.PRODUCT)
    assert -shared.scalars[newton.MODEL] == pytest.approx(length - 0.5 * length**2)
    np.testing.assert_allclose(shared.residual, [1 - length, -0.5 * length, 0.0])


@pytest.mark.parametrize("pairs", [0, 3, 12])
def test_l_bfgs_goes_along_the_inverse_that_its_newest_ten_pairs_make(pairs):
    """H <- (I - s y'/s.y) H (I - y s'/s.y) + s s'/s.y from a multiple of the preconditioner's inverse, as matrices."""
    from bigclf.methods.steps import lbfgs, newton

    module, shared, _ = between_reads("lbfgs", 6)
    rng = np.random.default_rng(0)
    shared.diagonal[:] = rng.uniform(0.5, 2.0, 7)
    half = rng.standard_normal((7, 7))
    hessian, kept = half @ half.T + np.eye(7), []
    for _ in range(pairs):
        shared.point[:], shared.weights[:] = rng.standard_normal(7), rng.standard_normal(7)
        shared.slope[:] = rng.standard_normal(7)
        s = shared.weights - shared.point
        module.remember(shared, shared.slope + hessian @ s)
        kept.append((s, hessian @ s))
    inverse = np.diag(1 / shared.diagonal)
    for s, y in kept[-1:]:
        inverse *= (s @ y) / (y @ (y / shared.diagonal))
    for s, y in kept[-lbfgs.MEMORY :]:
        away = np.eye(7) - np.outer(y, s) / (s @ y)
        inverse = away.T @ inverse @ away + np.outer(s, s) / (s @ y)
    g = rng.standard_normal(7)
    np.testing.assert_allclose(module.inverse_times(shared, g), inverse @ g, rtol=1e-9)
    shared.weights[:] = 1.0
    module.turn(shared, g, 3.0)
    np.testing.assert_allclose(shared.step, -inverse @ g, rtol=1e-9)
    np.testing.assert_allclose(shared.weights, 1.0 - inverse @ g, rtol=1e-9)
    assert shared.scalars[newton.PRODUCTS] == pairs and shared.scalars[newton.MODEL] == pytest.approx(-g @ inverse @ g)


def test_l_bfgs_forgets_pairs_that_lead_uphill_and_those_of_no_curvature():
    from bigclf.methods.steps import newton

    module, shared, _ = between_reads("lbfgs")
    shared.weights[:] = [1.0, 0.0, 0.0]
    module.remember(shared, np.array([-1.0, 0.0, 0.0]))  # s.y < 0
    assert shared.scalars[newton.PRODUCTS] == 0
    shared.moves[0], shared.turns[0], shared.scalars[newton.PRODUCTS] = [1.0, 0, 0], [-1.0, 0, 0], 1
    shared.diagonal[:] = [2.0, 4.0, 1.0]
    module.turn(shared, np.array([1.0, 1.0, 0.0]), 3.0)
    assert shared.step.tolist() == [-0.5, -0.25, 0.0] and shared.scalars[newton.PRODUCTS] == 0
