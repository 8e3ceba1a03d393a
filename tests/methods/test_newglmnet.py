"""newGLMNET: L1 and elastic net, on columns that reads collect."""

import contextlib
import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from making import block_of, random_rows, shards_of

import bigclf
from bigclf.api.fit import fit
from bigclf.maths.losses import LOGISTIC
from bigclf.methods import METHODS, resolve
from bigclf.methods.method import in_turn
from bigclf.methods.steps import columns, newglmnet, orthant_faces
from bigclf.methods.steps.active_columns import Gathering, piece_of
from bigclf.methods.steps.columns import Penalty, gradient, look
from bigclf.methods.steps.newglmnet import PARTIAL
from bigclf.methods.steps.orthant_faces import climb
from bigclf.methods.steps.primal_coordinate_descent import cdn_round
from bigclf.methods.steps.proximal_newton import newton_round, solve
from bigclf.request.auto import Asked, choose, predicted
from bigclf.training import core_team
from bigclf.training.roles import steps

D = 30
BASE = dict(algo="newglmnet", progress=False)


def naive(x, y, weights, w, b, loss, l1, C, penalised=True):
    """(objective, largest violation of the optimality conditions) by dense sums."""
    x, s = np.asarray(x.todense(), np.float64), np.where(y > 0, 1.0, -1.0)
    m = s * (x @ w + b)
    if loss == "logistic":
        value, slope = np.logaddexp(0, -m), -1 / (1 + np.exp(m))
    else:
        value, slope = np.maximum(0, 1 - m) ** 2, -2 * np.maximum(0, 1 - m)
    x, w = np.hstack([x, np.ones((len(m), 1))]), np.append(w, b)
    held = np.full(w.size, l1)
    rest = np.full(w.size, 1 - l1)
    if not penalised:
        held[-1] = rest[-1] = 0
    g = x.T @ (C * weights * slope * s) + rest * w
    far = np.where(w == 0, np.maximum(0, np.abs(g) - held), np.abs(g + held * np.sign(w)))
    return held @ np.abs(w) + 0.5 * rest @ (w * w) + C * weights @ value, far.max()


@pytest.mark.parametrize(
    ("algo", "loss", "bias", "l1"),
    [("newglmnet", "logistic", "feature", 1.0), ("newglmnet", "squared_hinge", "free", 1.0),
     ("newglmnet", "logistic", "free", 0.3), ("newglmnet", "squared_hinge", "feature", 0.6),
     ("cdn", "logistic", "free", 1.0), ("cdn", "logistic", "feature", 0.3), ("cdn", "squared_hinge", "feature", 1.0),
     ("cdn", "squared_hinge", "free", 0.6)],
)  # fmt: skip
def test_the_answer_meets_the_optimality_conditions_and_its_certificate_is_true(algo, loss, bias, l1):
    x, y = random_rows(150, D, seed=3)
    weights = np.random.default_rng(0).choice([0.0, 0.5, 2.0], 150)
    shape = {"penalty": "l1"} if l1 == 1 else {"penalty": "elastic_net", "l1_ratio": l1}
    options = BASE | shape | dict(algo=algo, loss=loss, bias=bias, C=0.7, sample_weight=weights)
    # a gap of e leaves violations of the root of e; Newton's last step goes well beyond what is asked for
    model = fit(x, y, tol=1e-13 if algo == "newglmnet" else 2e-14, **options)
    found, rough = model.result_.certificate, fit(x, y, tol=1e-2, **options).result_.certificate
    primal, far = naive(x, y, weights, model.coef_[0], model.intercept_[0], loss, l1, 0.7, bias == "feature")
    assert found["primal"] == pytest.approx(primal, rel=1e-13) and far < 1e-6 and found["violation"] < 1e-6
    assert rough["dual"] <= primal * (1 + 1e-12) and primal <= rough["primal"]  # what it is sure of is so
    assert 0 < np.count_nonzero(model.coef_) < D


def test_elastic_net_is_that_of_scikit_learn():
    """scikit-learn's saga minimises the same sum."""
    from sklearn.linear_model import LogisticRegression

    x, y = random_rows(100, D, seed=4)
    peer = LogisticRegression(
        C=0.5, penalty="elasticnet", l1_ratio=0.4, solver="saga", tol=1e-10, max_iter=20_000, fit_intercept=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of penalty=, which older ones need
        peer.fit(x.astype(np.float64), y)
    model = fit(x, y, penalty="elastic_net", l1_ratio=0.4, C=0.5, bias=None, tol=1e-12, **BASE)
    np.testing.assert_allclose(model.coef_, peer.coef_, atol=1e-6)


def test_rows_of_one_value_and_rows_written_out_come_to_the_same_columns():
    x, y = random_rows(60, D, constant=True)
    some = random_rows(60, D, seed=1)[0]
    places = np.where(np.arange(D + 1) % 3 == 0, np.cumsum(np.arange(D + 1) % 3 == 0) - 1, -1)
    places[-1] = -1
    for first, second in ((x, x), (x, some), (some, x)):
        both = sp.vstack([first, second]).tocsr()
        taken = both[:, :D][:, np.flatnonzero(places >= 0)].tocsc()
        gathering = Gathering(np.diff(taken.indptr), 120)
        for part in (first, second):
            gathering.append(piece_of(block_of(part, y), np.arange(60), np.zeros(D + 1), places, 2.0, 0.0))
        made = gathering.columns()
        values = made.values if made.values.size else np.ones(made.rows.size)
        np.testing.assert_array_equal(made.rows, taken.indices)
        signs = np.concatenate([np.where(y > 0, 1.0, -1.0)] * 2)
        np.testing.assert_allclose(values * made.signs[made.rows], taken.data * signs[taken.indices], rtol=1e-7)
        np.testing.assert_allclose(made.largest, np.abs(taken).max(axis=0).toarray()[0], rtol=1e-7)


def a_few_columns_at_a_time(monkeypatch, entries):
    """Collections hold no more entries than that; the list grows by whether each was a part of what was wanted."""
    whole, seen = newglmnet.choose, []

    def a_few(shared, weights, params, _):
        whole(shared, weights, params, entries)
        seen.append(shared.scalars[PARTIAL])

    monkeypatch.setattr(newglmnet, "choose", a_few)
    return seen


def test_groups_and_a_few_columns_at_a_time_come_to_the_same_answer(tmp_path, monkeypatch):
    x, y = random_rows(200, D, seed=5)
    data = shards_of(tmp_path / "shards", x, y, chunk_nnz=200)
    options = BASE | dict(penalty="l1", tol=1e-11)
    alone = fit(data, **options)
    apart = fit(data, groups=4, **options)
    np.testing.assert_allclose(apart.coef_, alone.coef_, atol=1e-9)
    np.testing.assert_array_equal(apart.coef_ != 0, alone.coef_ != 0)
    seen = a_few_columns_at_a_time(monkeypatch, x.nnz // 4)
    pieces = fit(data, **options)
    assert sum(seen) > 3
    np.testing.assert_allclose(pieces.coef_, alone.coef_, atol=1e-7)


def test_a_run_taken_up_again_equals_one_that_never_stopped(tmp_path, quiet):
    x, y = random_rows(200, D, seed=6)
    data = shards_of(tmp_path / "shards", x, y, chunk_nnz=200)
    options = BASE | dict(penalty="l1", tol=1e-10, groups=2)
    straight = fit(data, **options)
    for epochs in (1, 2):
        fit(data, run_dir=tmp_path / str(epochs), epochs=epochs, **options)
        resumed = fit(data, run_dir=tmp_path / str(epochs), resume=True, **options)
        np.testing.assert_array_equal(resumed.coef_, straight.coef_)
        assert resumed.result_.certificate == straight.result_.certificate


def test_rows_and_columns_that_say_nothing():
    x, y = random_rows(80, D, seed=7)
    x = sp.hstack([x, sp.csr_matrix((80, 2)), np.ones((80, 1))]).tocsr().astype(np.float32)
    tiny = fit(x, y, penalty="l1", C=1e-9, **BASE)
    assert np.all(tiny.coef_ == 0) and tiny.result_.certificate["gap"] <= 1e-3 and tiny.result_.epochs == 1
    model = fit(x, y, penalty="l1", C=3.0, bias=None, tol=1e-9, **BASE)
    assert np.all(model.coef_[0, D : D + 2] == 0) and model.result_.converged
    alone = fit(x[:, D + 2 :], y, penalty="l1", bias=None, tol=1e-9, **BASE)  # one feature, in every row
    assert alone.result_.converged


def test_what_has_no_effect_is_refused():
    with pytest.raises(TypeError, match="l1_ratio has no effect with penalty='l1'"):
        resolve("newglmnet", None, "l1", None, {"l1_ratio": 0.5})


def test_a_path_is_as_many_fits_and_each_value_has_its_certificate(tmp_path):
    x, y = random_rows(150, D, seed=8)
    y = np.where(np.arange(150) % 3 == 0, 3, y)  # three classes
    values = [2.0, 0.02, 0.1, 0.5]
    found = bigclf.path(x, y, C=values, penalty="l1", tol=1e-10, progress=False)
    assert found.converged and found.coefs_.shape == (4, 3, D) and found.intercepts_.shape == (4, 3)
    np.testing.assert_array_equal(found.C, sorted(values))
    for row, model in zip(found.table, found.models, strict=True):
        alone = fit(x, y, C=row["C"], penalty="l1", tol=1e-10, **BASE)
        np.testing.assert_allclose(model.coef_, alone.coef_, atol=1e-6)
        assert row["nonzero"] == np.count_nonzero(alone.coef_) and row["gap"] <= 1e-10
    with pytest.raises(TypeError, match="it is with newton.*newglmnet"):
        bigclf.path(x, y, C=values, algo="dcd")


ASKED = dict(loss=None, penalty=None, bias="feature", C=1.0, given=(), epochs=None, n_rows=50_000, n_features=5000,
             nnz=100_000, memory=10**9, groups=1)  # fmt: skip

TABLE = {"n_features": 100, "nnz": 10**6}
STREAMED = dict(n_rows=2 * 10**6, n_features=10**6, nnz=152 * 10**6, square=1.0, memory=512 * 10**6)  # unit rows
APART = {"loss": "squared_hinge", "C": 1e4, "n_rows": 20_000, "n_features": 20_000, "nnz": 10**6, "square": 1.0}
HINGE = {"loss": "hinge", "n_features": 300, "nnz": 10**6, "square": 20.0}


@pytest.mark.parametrize(
    ("changes", "name", "reason"),
    [
        ({"loss": "hinge"}, "dcd", "settle at their bounds"),
        ({"loss": "hinge", "memory": 10**6}, "dcd", "do not fit in 1.00 MB"),
        ({"epochs": 1}, "arow", "once"),
        ({"epochs": 1, "loss": "logistic"}, "adagrad", "once"),
        ({"loss": "logistic"}, "dcd", "predicted to be the cheapest"),
        ({"loss": "logistic", "nnz": 5 * 10**6}, "newton", "predicted to be the cheapest"),
        ({"loss": "logistic", "nnz": 5 * 10**6, "square": 1.0}, "dcd", "predicted to be the cheapest"),
        ({"loss": "logistic", "nnz": 5 * 10**6, "square": 1.0, "C": 1e4}, "newton", "predicted to be the cheapest"),
        ({"loss": "logistic", "memory": 10**6}, "dcd", "predicted to be the cheapest"),
        ({"loss": "logistic", "memory": 10**6, "n_features": 0}, "newton", "do not fit"),
        ({"loss": "squared_hinge", "groups": 4}, "newton", "4 groups"),
        ({"loss": "hinge", "groups": 4}, "dcd", "settle at their bounds"),
        ({"bias": "free"}, "newton", "couples all dual variables"),
        *(
            (
                TABLE | {"loss": loss},
                "newton_dense",
                "predicted to be the cheapest for 50,000 rows with 100 features: ",
            )
            for loss in (None, "logistic", "squared_hinge", "squared", "epsilon_insensitive")
        ),
        (TABLE | {"bias": "free"}, "newton_dense", "predicted to be the cheapest"),
        (TABLE | {"groups": 8, "memory": 3 * 10**6}, "newton_dense", "predicted to be the cheapest"),
        (TABLE | {"loss": "hinge", "nnz": 0, "n_rows": 0}, "dcd", "settle at their bounds"),
        (TABLE | {"loss": "hinge", "native": True}, "dcd", "predicted to be the cheapest"),
        (TABLE | {"native": True}, "newton", "predicted to be the cheapest"),
        ({"begins": True}, "newton", "begins with the weights that are given (init); without them it is dcd"),
        ({"mixing": "safe"}, "dcd", "fit in"),
        ({"epochs": 1, "tol": 0.1}, "dcd", "predicted to be the cheapest"),
        (HINGE, "newton_dense", "predicted to be the cheapest"),
        (APART, "dcd", "predicted to be the cheapest"),
        (APART | {"loss": "logistic", "C": 1e6}, "dcd", "predicted to be the cheapest"),
        (APART | {"n_features": 19_000}, "dcd", "predicted to be the cheapest"),
        (APART | {"n_features": 19_000, "loss": "logistic"}, "newton", "predicted to be the cheapest"),
        (HINGE | {"ones": True}, "dcd", "may be the cheapest"),
        (HINGE | {"ones": True, "share": 0.02}, "dcd", "predicted to be the cheapest"),
        (HINGE | {"ones": True, "C": 100.0}, "newton_dense", "predicted to be the cheapest"),
        (HINGE | {"ones": True, "loss": "logistic"}, "newton_dense", "predicted to be the cheapest"),
        (TABLE | {"loss": "hinge", "problems": 10_000}, "dcd", "settle at their bounds"),
        (TABLE | {"square": 1.0}, "dcd", "predicted to be the cheapest"),
        (TABLE | {"loss": "hinge", "n_features": 2000, "memory": 200 * 10**6}, "dcd", "settle at their bounds"),
        ({"n_features": 3500}, "dcd", "predicted to be the cheapest for 50,000 rows with 3,500 features"),
        ({"n_features": 780, "n_rows": 6000, "nnz": 2_400_000}, "newton", "predicted to be the cheapest"),
        ({"n_features": 780, "n_rows": 900, "nnz": 360_000, "square": 1.0}, "dcd", "predicted to be the cheapest"),
        *((STREAMED | {"loss": loss}, "dcd", "predicted to be the cheapest") for loss in (None, "squared_hinge")),
        (STREAMED | {"loss": "hinge"}, "dcd", "the few other rows stay in memory"),
        (STREAMED | {"groups": 4}, "newton", "does not depend on the 4 groups"),
        (STREAMED | {"loss": "squared_hinge", "C": 1000.0}, "newton", "predicted to be the cheapest"),
        ({"penalty": "l1"}, "newglmnet", "exact zeros"),
        ({"penalty": "elastic_net", "given": ("l1_ratio",), "bias": "free"}, "newglmnet", "exact zeros"),
        ({"penalty": "l1", "loss": "hinge"}, "adagrad", "no certified method"),
        ({"loss": "squared"}, "newton", "it has this loss"),
        ({"loss": "squared", "penalty": "l1", "bias": "free"}, "newglmnet", "exact zeros"),
        ({"loss": "epsilon_insensitive", "penalty": "l1"}, "adagrad", "no certified method"),
        ({"given": ("eta0", "lam")}, "sgd", "no certified method"),
    ],
)
def test_a_method_is_chosen_by_counts_and_says_why(changes, name, reason):
    chosen, said = choose(Asked(**ASKED | changes))
    assert chosen == name and said.startswith(f"algo=auto: {name}, because ") and reason in said


def test_costs_grow_with_the_tolerance_the_price_and_the_problems():
    for loss in ("hinge", "logistic", "squared_hinge"):
        asked = Asked(**ASKED | TABLE)
        once = predicted(asked, loss)
        for changes in ({"tol": 1e-6}, {"problems": 10}, {"nnz": 10 * asked.nnz}, {"memory": 10**6}):
            more = predicted(asked._replace(**changes), loss)
            assert all(more[name] > once[name] for name in once), changes
        more = predicted(asked._replace(C=1e4), loss)
        assert more["dcd"] / once["dcd"] > more["newton"] / once["newton"] > more["newton_dense"] / once["newton_dense"]


def test_the_choice_is_told(tmp_path):
    x, y = random_rows(60, D)
    model = fit(x, y, algo="auto", penalty="l1", run_dir=tmp_path / "run", progress=False)
    assert model.method["name"] == "newglmnet" and "algo=auto: newglmnet" in model.result_.chosen
    assert model.result_.chosen in (tmp_path / "run" / "run.json").read_text()
    with pytest.raises(ValueError, match="finds no method for loss=hinge, penalty=elastic_net"):
        fit(x, y, algo="auto", penalty="elastic_net", loss="hinge")
    with pytest.raises(TypeError, match=r"unknown parameter 'alpah': no method has it; did you mean alpha\?"):
        fit(x, y, algo="auto", alpah=0.1)
    for algo in ("auto", "newglmnet"):
        with pytest.raises(ValueError, match=r"penalty.*'elasticnet'.* choose from .*; did you mean elastic_net\?"):
            fit(x, y, algo=algo, penalty="elasticnet")
    with pytest.raises(TypeError, match=r"unknown parameter 'algoo': no method has it; did you mean algo\?"):
        fit(x, y, algoo="dcd")
    with pytest.raises(TypeError, match=r"ephocs has no effect with algo='dcd': .*; did you mean epochs\? "):
        fit(x, y, algo="dcd", ephocs=3)
    with pytest.raises(ValueError, match="finds no method for .*r=.*; r is a parameter of arow, arow_var, arow_full"):
        fit(x, y, algo="auto", r=0.1)


def test_a_path_is_of_one_of_two_methods_and_has_no_place_for_what_is_of_fit(caplog):
    x, y = random_rows(60, D)
    for penalty, name in ((None, "newglmnet"), ("l2", "newton")):
        found = bigclf.path(x, y, C=[0.1, 1.0], algo="auto", penalty=penalty, progress=False)
        assert [model.method["name"] for model in found.models] == [name, name]
    for name in ("max_seconds", "multiclass", "validate"):
        with pytest.raises(TypeError, match=f"{name} has no place in path: it is a parameter of bigclf.fit"):
            bigclf.path(x, y, C=[1.0], **{name: 1})


def test_a_form_for_all_classes_at_once_is_named_as_it_was_asked_for():
    x, _ = random_rows(60, D)
    y = np.arange(60) % 3
    named = "algo='pa1', multiclass='native'"
    with pytest.raises(TypeError, match=f"r has no effect with {named}: .*arow.*; pa1 takes C, constraints"):
        fit(x, y, algo="pa1", multiclass="native", r=1.0)
    with pytest.raises(TypeError, match=f"tol has no effect with {named}"):
        fit(x, y, algo="pa1", multiclass="native", tol=0.1)
    with pytest.raises(ValueError, match=r"'mira', multiclass='native' takes class weights of 0 and 1 only") as told:
        fit(x, y, algo="mira", multiclass="native", class_weight={0: 2})
    assert "_mc" not in str(told.value)


def test_a_bias_that_is_not_penalised_ends_with_its_certificate_on_separable_rows_too():
    random = np.random.default_rng(0)
    x = random.choice([0, 1.0], size=(60, 12))
    y = np.where(x[:, :5].sum(axis=1) >= 3, 1, -1)
    for loss in ("logistic", "squared_hinge"):
        told = bigclf.fit(x, y, algo="newglmnet", loss=loss, bias="free", tol=1e-6, epochs=200, progress=False).result_
        assert told.converged and told.certificate["gap"] <= 1e-6


def test_the_time_may_end_inside_a_solution_and_what_was_found_is_proved(monkeypatch):
    from bigclf.training.run import Run

    x, y = random_rows(400, 80, density=0.3, noise=1.0)
    options = BASE | dict(C=10, tol=1e-9, max_seconds=1e9)
    whole, asked = fit(x, y, **options), []
    monkeypatch.setattr(Run, "_late", lambda run: asked.append(run) or len(asked) > 4)
    with pytest.warns(bigclf.errors.ConvergenceWarning, match="max_seconds"):
        model = fit(x, y, **options)
    cycles = [sum(record.get("cycles", 0) for record in m.result_.history) for m in (model, whole)]
    assert model.result_.stopped == "seconds" and 0 < cycles[0] < cycles[1]
    found = model.result_.certificate
    assert np.any(model.coef_ != 0) and whole.result_.certificate["primal"] <= found["primal"] < 400 * 10 * np.log(2)
    assert found["dual"] <= whole.result_.certificate["primal"]


def columns_of(x, y, margins):
    gathering = Gathering(np.diff(x.tocsc().indptr), x.shape[0])
    places = np.append(np.arange(x.shape[1]), -1)
    gathering.append(piece_of(block_of(x, y), np.arange(x.shape[0]), np.zeros(x.shape[1] + 1), places, 1.0, 0.0))
    found = gathering.columns()
    found.margins[:] = margins
    return found


@pytest.mark.parametrize("round_of", [newton_round, cdn_round])
def test_a_problem_on_columns_ends_where_its_own_gap_says_so(round_of):
    """The gap that ends it lies above the distance to the optimum, and no more than the goal above 0."""
    random = np.random.default_rng(2)
    x, y = random.normal(size=(40, 6)).astype(np.float32), np.where(random.random(40) < 0.5, 1.0, -1.0)
    penalty = Penalty(0.1, 0.05, 0.0, False)

    def solved(goal):
        return solve(round_of, LOGISTIC, columns_of(sp.csr_matrix(x), y, np.zeros(40)), penalty, np.zeros(7), goal, 0)

    rough, fine = solved(1e-2), solved(1e-9)
    assert 0 < rough.gap <= 1e-2 * rough.primal and rough.primal - fine.primal <= rough.gap
    assert 0 <= fine.gap <= 1e-9 * fine.primal and rough.cycles < fine.cycles < 200


@pytest.mark.parametrize("signs_hold", [True, False])
def test_conjugate_gradients_go_to_the_lowest_point_of_a_face(signs_hold):
    """Beside numpy's solution of the same linear system, on a model with nearly dependent columns."""
    random = np.random.default_rng(1)
    x = random.normal(size=(40, 6)).astype(np.float32)
    x[:, 5] = x[:, 4] + 0.01 * random.normal(size=40)
    y = np.where(random.random(40) < 0.5, 1.0, -1.0)
    made, penalty = columns_of(sp.csr_matrix(x), y, np.zeros(40)), Penalty(0.1, 0.05, 0.0, False)
    pairs, n = np.empty((40, 2)), 7
    look(LOGISTIC)(made, pairs)
    slopes, diagonal, losses, w = np.empty(n), np.empty(n), np.empty(n), np.zeros(n)
    gradient(made, penalty, pairs, w, slopes, diagonal, losses)
    pairs[:, 1] = 0.0
    hessian = x.T.astype(float) @ (pairs[:, :1] * x) + 0.05 * np.eye(6)
    face = [1, 2, 4, 5]
    at = hessian[np.ix_(face, face)]
    free = np.linalg.solve(at, -slopes[face])
    best = free - np.linalg.solve(at, 0.1 * np.sign(free))
    sought = np.zeros(n)
    sought[face] = np.where(np.arange(4) < (4 if signs_hold else 2), 1, -1) * np.sign(free) * 1e-3
    pairs[:, 1] = x @ sought[:6]

    def model():
        d = sought[:6]
        return slopes[:6] @ d + 0.5 * d @ hessian @ d + 0.1 * np.abs(d).sum()

    before = model()
    taken = climb(made, penalty, pairs, w, sought, slopes, diagonal, np.arange(6), 1e-10, lambda: False)
    assert 1 <= taken <= 12 and model() < before and sought[0] == sought[3] == 0
    np.testing.assert_allclose(pairs[:, 1], x @ sought[:6], atol=1e-6)
    if signs_hold:
        np.testing.assert_allclose(sought[face], best, atol=1e-7)
    else:
        assert np.count_nonzero(sought[face] == 0) > 0  # what would change its sign stays at 0


def test_a_second_core_changes_no_bit(monkeypatch):
    monkeypatch.setattr(columns, "LARGE", 1)
    monkeypatch.setattr(orthant_faces, "LARGE", 1)
    used, plain = [], core_team.beside

    @contextlib.contextmanager
    def told(threads):
        with plain(threads) as both:
            used.append(both is not in_turn)
            yield both

    monkeypatch.setattr(steps, "beside", told)
    x, y = random_rows(300, D, seed=11)
    one, two = (
        fit(x, y, penalty="l1", C=10.0, bias="free", tol=1e-10, workers=bigclf.Workers(threads=n), **BASE)
        for n in (1, 2)
    )
    assert sum(record.get("face_steps", 0) for record in two.result_.history) > 3
    assert True in used and False in used
    np.testing.assert_array_equal(one.coef_, two.coef_)
    assert one.intercept_ == two.intercept_ and one.result_.certificate == two.result_.certificate


@pytest.mark.parametrize("algo", ["newglmnet", "cdn"])
@pytest.mark.parametrize(("n_rows", "n_features", "each"), [(100, 40_000, 400), (20_000, 100, 4)])
def test_a_solution_takes_no_more_memory_than_is_planned(algo, n_rows, n_features, each):
    """With a free bias, whose dual point is balanced."""
    random, method = np.random.default_rng(0), METHODS[algo]
    indices = random.integers(0, n_features, n_rows * each).astype(np.int32)
    x = sp.csr_matrix((np.ones(indices.size, np.float32), indices, np.arange(n_rows + 1) * each), (n_rows, n_features))
    x.sum_duplicates()
    block, counts = block_of(x, np.where(random.random(n_rows) < 0.5, 1.0, -1.0)), np.diff(x.tocsc().indptr)
    places, n = np.append(np.where(counts > 0, np.cumsum(counts > 0) - 1, -1), -1), np.count_nonzero(counts)
    penalty, rounds = Penalty(1.0, 0.0, 1.0, True), newton_round if algo == "newglmnet" else cdn_round

    def solution():
        gathering = Gathering(counts[counts > 0], n_rows)
        for first in range(0, n_rows, 1000):
            order = np.arange(first, min(n_rows, first + 1000))
            gathering.append(piece_of(block, order, np.zeros(n_features + 1), places, 10.0, 1.0))
        return solve(rounds, LOGISTIC, gathering.columns(), penalty, np.zeros(n + 1), 1e-3, 0)

    assert solution().steps > 1  # its kernels are compiled now
    tracemalloc.start()
    solution()
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    pieces = 100_000
    kept = method.collected
    planned = x.nnz * kept.entry + n_rows * kept.row + n * kept.column
    assert 0.5 * planned < taken <= planned + pieces


def test_columns_that_nearly_depend_on_each_other_take_few_cycles():
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 40)) @ (np.eye(40) + 3 * np.ones((40, 40)))
    y = np.where(x @ random.normal(size=40) + random.normal(size=300) > 0, 1, -1)
    told = fit(sp.csr_matrix(x, dtype=np.float32), y, penalty="l1", C=10.0, bias=None, tol=1e-11, **BASE).result_
    assert told.converged and sum(record.get("face_steps", 0) for record in told.history) > 20
    assert sum(record.get("cycles", 0) for record in told.history) < 200


@pytest.mark.parametrize("free", [False, True])
def test_the_constant_column_is_one_of_the_face_and_free_where_it_is_not_penalised(free):
    """Beside numpy's solution of the same linear system, the constant feature of 2 the last of its columns."""
    random = np.random.default_rng(2)
    x = random.normal(size=(40, 3)).astype(np.float32)
    y = np.where(random.random(40) < 0.4, 1.0, -1.0)
    made, penalty, n = columns_of(sp.csr_matrix(x), y, np.zeros(40)), Penalty(0.1, 0.05, 2.0, free), 4
    pairs, slopes, diagonal, losses, w = np.empty((40, 2)), np.empty(n), np.empty(n), np.empty(n), np.zeros(n)
    look(LOGISTIC)(made, pairs)
    gradient(made, penalty, pairs, w, slopes, diagonal, losses)
    pairs[:, 1] = 0.0
    wide = np.hstack([x.astype(float) * y[:, None], 2 * y[:, None]]) * y[:, None]
    curved = wide.T @ (pairs[:, :1] * wide) + np.diag([0.05, 0.05, 0.05, 0.0 if free else 0.05])
    l1 = np.array([0.1, 0.1, 0.1, 0.0 if free else 0.1])
    np.testing.assert_allclose(diagonal, np.diag(curved), rtol=1e-6)
    signs = np.sign(np.linalg.solve(curved, -slopes))
    best = np.linalg.solve(curved, -slopes - l1 * signs)
    assert (np.sign(best) == signs).all()
    sought = 1e-3 * signs
    pairs[:, 1] = wide @ sought
    climb(made, penalty, pairs, w, sought, slopes, diagonal, np.arange(n), 1e-10, lambda: False)
    np.testing.assert_allclose(sought, best, rtol=1e-5)
    np.testing.assert_allclose(pairs[:, 1], wide @ best, rtol=1e-4, atol=1e-6)


def test_a_step_that_leaves_its_face_and_raises_the_model_is_cut_to_a_part_that_lowers_it():
    """Weight 0 would change its sign and becomes 0; weight 1 would go three times as far as is best."""
    x = sp.csr_matrix(np.array([[1, 1], [0, 1], [0, 1], [0, 1]], np.float32))
    made, penalty = columns_of(x, np.ones(4), np.zeros(4)), Penalty(0.1, 0.0, 0.0, False)
    face = orthant_faces.face_of(np.array([0, 1]), 4)
    pairs, sought = np.column_stack([np.ones(4), np.zeros(4)]), np.array([1e-3, 0.5, 0.0])
    face.gradient[:], face.step[:] = [0.0, 4.0], [-1.0, 3.0]
    face.way[:] = x @ face.step
    assert orthant_faces.project(made, penalty, pairs, sought, face) == 1
    np.testing.assert_allclose(sought, [0.0, 0.5 + 0.25 * 3, 0.0], rtol=1e-9)
    np.testing.assert_allclose(pairs[:, 1], x @ np.array([-1e-3, 0.75]), rtol=1e-6)


@pytest.mark.parametrize(("crossing", "over"), [(3, False), (4, True)])
def test_a_face_is_the_wrong_one_where_more_weights_leave_it_than_may(crossing, over):
    made = columns_of(sp.csr_matrix(np.ones((3, 6), np.float32)), np.ones(3), np.zeros(3))
    face = orthant_faces.face_of(np.arange(6), 3)
    sought, diagonal = np.ones(7), np.full(7, 2.0)
    face.direction[:] = np.where(np.arange(6) < crossing, -1.0, 1.0)
    face.residual[:], face.image[:], face.product[:] = 4.0, [1.0, 2.0, 3.0, -1.0, 0.0, 5.0], [1.0, 2.0, 3.0]
    following, told = orthant_faces.advance(made, Penalty(0.1, 0.0, 0.0, False), sought, diagonal, face, 6.0, 3.0,
                                            1e-9, 3)  # fmt: skip
    residual = 4.0 - 2.0 * np.array([1.0, 2.0, 3.0, -1.0, 0.0, 5.0])
    np.testing.assert_allclose(face.residual, residual)
    assert following == pytest.approx((residual**2 / 2).sum()) and told == over
    direction = np.where(np.arange(6) < crossing, -1.0, 1.0)
    np.testing.assert_allclose(face.step, 2.0 * direction)
    np.testing.assert_allclose(face.way, [2.0, 4.0, 6.0])
    np.testing.assert_allclose(face.direction, residual / 2 + following / 6.0 * direction)


@pytest.mark.parametrize("free", [0.0, 1.0])
@pytest.mark.parametrize("l1", [1.0, 0.6])
def test_the_bound_and_the_violation_are_those_of_their_formulas(free, l1):
    shared = newglmnet.begin(3, "float64", {})
    params = newglmnet.Params(1.0, 1.0, free, l1, 1.0 - l1)
    weights = np.array([0.0, 0.5, -2.0, 0.25])
    shared.total[:], shared.figures[:], shared.scalars[newglmnet.SCALE] = [-2.5, 1.7, 0.4, 1e-12], [0, 7.0, 3.0], 0.5
    parts = l1 * np.sign(weights) + (1 - l1) * weights - shared.total
    parts[0] = 2.5 - l1  # at 0: as far as the slope is beyond l1
    parts[3] = 1e-12 if free else parts[3]
    assert newglmnet.worst(shared, weights, params) == pytest.approx(np.abs(parts).max())
    shared.total[3] = 90.0
    assert newglmnet.worst(shared, weights, params) == pytest.approx(90.0 if free else 90.0 - 0.25 * (1 - l1) - l1)
    far = 7.0 / 45 if l1 == 1 and not free else 0.0  # for a free bias more than rounding, for the elastic net too steep
    assert newglmnet.bound(LOGISTIC, shared, weights, params) == pytest.approx(far)
    shared.total[3] = 1e-12
    u = shared.total[:3]
    if l1 < 1:
        bound = 7.0 - 1e-12 * free - (np.maximum(0, np.abs(u) - l1) ** 2).sum() / (2 * (1 - l1))
    else:
        bound = (7.0 - 1e-12 * free) * 1.0 / (2.5 * 0.5)
    assert newglmnet.bound(LOGISTIC, shared, weights, params) == pytest.approx(max(0.0, bound))


@pytest.mark.parametrize("sides", [(1.0, 1.0), (0.5, 0.25)])
def test_the_dual_of_columns_is_that_of_its_rows_and_of_the_penalty_s_conjugate(sides):
    rng = np.random.default_rng(0)
    x, y = random_rows(30, 4, 0.5)
    made, u = columns_of(x, y, rng.standard_normal(30)), np.array([2.0, -0.3, 0.1, -1.5, 9.0])
    a = np.where(y > 0, *sides) * 0.7 / (1 + np.exp(made.margins))
    rows = -(a * np.log(a) + (1 - a) * np.log1p(-a)).sum()
    add, penalty = columns.dual_sum(LOGISTIC), Penalty(0.6, 0.4, 0.0, False)
    beyond = np.maximum(0, np.abs(u[:4]) - 0.6)
    assert columns.dual_of(add, made, u, penalty, 0.7, sides) == pytest.approx(rows - (beyond**2).sum() / 0.8)
    assert columns.dual_of(add, made, u, Penalty(1.0, 0.0, 0.0, False), 0.7, sides) == pytest.approx(rows)


def test_slopes_of_either_side_add_up_apart():
    rng = np.random.default_rng(0)
    x, y = random_rows(30, 4, 0.5)
    made, pairs = columns_of(x, y, rng.standard_normal(30)), np.empty((30, 2))
    total, plus, minus = look(LOGISTIC)(made, pairs)
    p = 1 / (1 + np.exp(made.margins))
    assert (total, plus, minus) == pytest.approx((-np.log1p(-p).sum(), p[y > 0].sum(), p[y < 0].sum()))
    assert columns.sides_of(Penalty(1, 0, 1, True), 2.0, 8.0) == (1.0, 0.25)
    assert columns.sides_of(Penalty(1, 0, 1, False), 2.0, 8.0) == (1.0, 1.0)
    assert columns.sides_of(Penalty(1, 0, 1, True), 0.0, 8.0) == (1.0, 0.0)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_a_run_ends_where_its_reads_see_a_gap_that_its_columns_do_not(loss, monkeypatch):
    """As roundings make one, of columns far from 0 beside a free bias."""
    bound, (x, y) = newglmnet.bound, random_rows(150, D, seed=3)
    monkeypatch.setattr(newglmnet, "bound", lambda *given: bound(*given) * (1 - 1e-6))
    options = BASE | dict(loss=loss, penalty="l1", tol=1e-9, epochs=200)
    with pytest.warns(bigclf.errors.ConvergenceWarning, match="a gap that falls no further"):
        assert len(fit(x, y, **options).result_.history) < 20
    with pytest.warns(bigclf.errors.ConvergenceWarning, match="a gap that falls no further"):
        assert len(bigclf.path(x, y, C=[0.1, 0.3, 1.0], **options).history) < 30


def test_a_gap_that_only_roundings_make_ends_the_run():
    """As those of float32 weights of columns far from 0: the columns were solved, twice, and no other violates."""
    params = newglmnet.Params(1.0, 0.0, 0.0, 1.0, 0.0)
    shared = newglmnet.begin(2, "float32", {})
    found = columns.Found(2.0, 1e-6, 0.0, 1.0, (1.0, 1.0), 2, 2, 0, False)
    shared.places[0] = 0
    for rounds, ends in ((1, False), (2, True)):
        newglmnet.taken(shared, found, np.array([0]), np.array([rounds, 0.0]), 1, 1e-3)
        assert newglmnet.is_rounded(shared, params) == ends
    shared.total[1] = 1.5  # a column that was not at hand
    assert not newglmnet.is_rounded(shared, params)
    shared.total[1] = 0.0
    newglmnet.taken(shared, found._replace(gap=0.1), np.array([0]), np.array([3.0, 0.0]), 1, 1e-3)
    assert not newglmnet.is_rounded(shared, params)
