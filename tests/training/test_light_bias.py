"""The bias is a feature of a small value: fewer passes, or visits in memory, and a certificate of the true problem."""

import numpy as np
import pytest
import scipy.sparse as sp
from making import fit, interrupted_after, of_older_version, shards_of

from bigclf.benchmarks import making
from bigclf.data.dataset import Dataset
from bigclf.maths.block import Block, Counts
from bigclf.methods import resolve
from bigclf.methods.dual.dual_coordinate_descent import Params, Rows, Shared
from bigclf.training import plan as planning
from bigclf.training.plan import make_plan
from bigclf.training.problems import make_problems
from bigclf.training.roles.dual import DualLearner
from bigclf.training.roles.learner import Learner
from bigclf.training.roles.light_bias import (
    FIRM,
    HEAVY,
    LEAST_FIRM,
    LIGHT,
    OF_SQUARE,
    ROUNDED,
    STEADY,
    LightBias,
    ResidentBias,
)

N, D = 60_000, 20_000
SHAPE = dict(memory="20MB", progress=False, bias="feature", tol=1e-3)


@pytest.fixture(scope="module")
def rows():
    made = making.make(making.Shape(N, 0, D, 60))
    return sp.csr_matrix((made.values, made.indices, made.indptr), shape=(N, D)), made.y


@pytest.fixture(scope="module")
def text(tmp_path_factory, rows):
    """Shards of rows like text, of which the budget has room for a twelfth."""
    path = tmp_path_factory.mktemp("text") / "rows"
    shards_of(path, *rows, chunk_nnz=60_000)
    return str(path)


@pytest.fixture(scope="module")
def light(text):
    return fit(text, **SHAPE)


@pytest.fixture(scope="module")
def few(rows):
    """Rows of length 1, which stay in memory."""
    return rows[0][:3000], rows[1][:3000]


def without(monkeypatch):
    """Plans of older versions."""
    made = planning.Sizes.__init__

    def heavy(self, *given):
        made(self, *given)
        self.light_bias = False

    monkeypatch.setattr(planning.Sizes, "__init__", heavy)


def objective(model, x, y, C=1.0, loss="hinge", number=0, weights=1.0):
    """1/2 ||w||^2 + 1/2 b^2 + C times the sum of losses, of the model's own weights."""
    w, b = model.coef_[number].astype(float), float(model.intercept_[number])
    s = np.where(y == (model.classes_[number] if model.classes_.size > 2 else model.classes_[1]), 1.0, -1.0)
    lacks = np.maximum(0, 1 - s * (x @ w + b))
    return 0.5 * w @ w + 0.5 * b * b + (C * weights * (lacks if loss == "hinge" else lacks**2)).sum()


def test_fewer_passes_are_made_and_the_certificate_is_true(text, rows, light, monkeypatch):
    without(monkeypatch)
    heavy = fit(text, **SHAPE)
    assert light.result_.plan["light_bias"] and not heavy.result_.plan["light_bias"]
    assert light.result_.reads <= heavy.result_.reads - 2
    assert light.result_.converged and light.certificate["gap"] <= 1e-3
    assert light.certificate["primal"] == pytest.approx(objective(light, *rows), rel=1e-9)
    exact = fit(*rows, **SHAPE | dict(memory="1GB", tol=1e-5))  # in memory, with the bias as it is
    assert light.certificate["dual"] <= exact.certificate["primal"]
    assert exact.certificate["dual"] <= light.certificate["primal"]


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize("stop_after", [1, 3])
def test_stopped_and_resumed_it_has_the_same_bits(text, light, stop_after, tmp_path):
    shape = SHAPE | dict(run_dir=tmp_path / "run", checkpoint_every=0)
    with interrupted_after(stop_after):
        fit(text, **shape)
    model = fit(text, resume=True, **shape)
    assert model.digest() == light.digest() and model.certificate == light.certificate


def test_a_run_that_older_versions_began_goes_on_as_it_was(text, tmp_path, monkeypatch):
    shape = SHAPE | dict(run_dir=tmp_path / "run", checkpoint_every=0)
    with monkeypatch.context() as older:
        without(older)
        whole = fit(text, **SHAPE)
        with interrupted_after(2):
            fit(text, **shape)
    of_older_version(tmp_path / "run", "light_bias")
    model = fit(text, resume=True, **shape)
    assert model.digest() == whole.digest() and not model.result_.plan["light_bias"]


def plan_of(data, memory="20MB", before=None, bias="feature", loss=None, groups=1, **given):
    problems = make_problems(np.arange(2), np.ones(2), resolve("dcd", loss, None, bias, given))
    return make_plan(data, problems, memory=int(memory.removesuffix("MB")) * 10**6, dtype="float64", seed=0,
                     groups=groups, threads=2, in_memory=False, reads=99, before=before)  # fmt: skip


def test_it_is_for_rows_in_memory_and_working_sets_of_one_group_with_rounds_after_each_pass(text):
    data = Dataset(text)
    for memory, loss in (("20MB", None), ("500MB", None), ("500MB", "squared_hinge"), ("500MB", "logistic")):
        light = plan_of(data, memory, loss=loss)
        assert light.resident == (memory == "500MB") and light.light_bias and light.same_bits()["light_bias"]
        assert plan_of(data, memory, light.as_json(), loss=loss) == light
    for memory, given in (
        ("500MB", {"bias": "none"}),
        ("500MB", {"loss": "epsilon_insensitive"}),
        ("500MB", {"inner_rounds": 0}),
        ("500MB", {"groups": 2}),
        ("500MB", {"before": {"groups": [[0, 1]]}}),
        ("20MB", {"bias": "none"}),
        ("20MB", {"loss": "logistic"}),
        ("20MB", {"schedule": "cached"}),
        ("20MB", {"inner_rounds": 0}),
        ("40MB", {"groups": 2}),
        ("20MB", {"before": {"groups": [[0, 1]]}}),
    ):
        plan = plan_of(data, memory, **given)
        assert not plan.light_bias and "light_bias" not in plan.same_bits(), given


# In memory


def test_fewer_visits_are_made_in_memory(few, monkeypatch):
    gone_over, teach = [], Learner.teach
    monkeypatch.setattr(Learner, "teach", lambda self, view, order, scores: (
        gone_over.append(order.size), teach(self, view, order, scores))[1])  # fmt: skip
    light = fit(*few, tol=1e-3, progress=False)
    visits = sum(gone_over)
    gone_over.clear()
    without(monkeypatch)
    heavy = fit(*few, tol=1e-3, progress=False)
    assert light.result_.plan["light_bias"] and not heavy.result_.plan["light_bias"]
    assert visits < 0.8 * sum(gone_over)
    assert max(m.certificate["dual"] for m in (light, heavy)) <= min(m.certificate["primal"] for m in (light, heavy))


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_certificates_in_memory_speak_of_the_weights_that_are_given(few, loss, dtype, monkeypatch):
    """However the run ends, P and D are those of numpy, D with r = sum a_i y_i."""
    x, y = few
    seen, told = {}, DualLearner._certify

    def certify(self, view):
        if self.certificate.start is not None:
            given = self.rows.alpha[view.ids]
            v, r = x.T.astype(float) @ (given * view.labels), float(given @ view.labels)
            bends = given @ given / (4 * self.params.C) if loss == "squared_hinge" else 0.0
            seen[given.sum() - bends - 0.5 * (v @ v + r * r)] = r - float(self.shared.weights[-1])
        told(self, view)

    monkeypatch.setattr(DualLearner, "_certify", certify)
    shape = dict(C=3.0, loss=loss, dtype=dtype, progress=False)
    for epochs in (1, 2, 3, 5, None):
        seen.clear()
        model = fit(x, y, **shape | (dict(tol=1e-3) if epochs is None else dict(tol=1e-9, epochs=epochs)))
        proof = model.certificate
        assert model.result_.plan["light_bias"] and max(map(abs, seen.values())) > 1e-4
        assert proof["primal"] == pytest.approx(objective(model, x, y, 3.0, loss), rel=1e-9)
        assert proof["dual"] == pytest.approx(max(0.0, *seen), rel=1e-9)
        assert proof["gap"] == pytest.approx(1 - proof["dual"] / proof["primal"], abs=1e-12)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_it_comes_as_near_to_the_optimum_as_is_asked(few, loss):
    model = fit(*few, tol=1e-10, C=3.0, loss=loss, epochs=30, progress=False)
    assert model.result_.converged and model.certificate["gap"] <= 1e-10


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize("stop_after", [1, 3])
def test_a_run_in_memory_is_resumed_to_the_bit(few, stop_after, tmp_path, monkeypatch):
    whole = fit(*few, tol=1e-4, progress=False)
    shape = dict(tol=1e-4, progress=False, run_dir=tmp_path / "run", checkpoint_every=0)
    with interrupted_after(stop_after):
        fit(*few, **shape)
    off, lag = [], ResidentBias.lag
    monkeypatch.setattr(ResidentBias, "lag", lambda self, *given: off.append(lag(self, *given)) or off[-1])
    model = fit(*few, resume=True, **shape)
    assert off[0] > 0, "at the checkpoint the bias was r"
    assert model.digest() == whole.digest() and model.certificate == whole.certificate


def test_a_run_in_memory_that_older_versions_began_goes_on_as_it_was(few, tmp_path, monkeypatch):
    shape = dict(tol=1e-4, progress=False, run_dir=tmp_path / "run", checkpoint_every=0)
    with monkeypatch.context() as older:
        without(older)
        whole = fit(*few, tol=1e-4, progress=False)
        with interrupted_after(2):
            fit(*few, **shape)
    of_older_version(tmp_path / "run", "light_bias")
    model = fit(*few, resume=True, **shape)
    assert model.digest() == whole.digest() and not model.result_.plan["light_bias"]


@pytest.mark.filterwarnings("ignore:not converged")
@pytest.mark.parametrize("epochs", [1, 2, 3, None])
def test_classes_against_the_rest_are_certified_each(few, epochs):
    x, y = few[0], (np.arange(3000) % 3) * (few[1] > 0)
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 3, y.size) / 2.0
    shape = dict(C=3.0, sample_weight=weights, progress=False)
    model = fit(x, y, **shape | (dict(tol=1e-3) if epochs is None else dict(tol=1e-9, epochs=epochs)))
    assert model.result_.plan["light_bias"]
    exact = fit(x, y, tol=1e-6, **shape).certificate["problems"]
    for number, proof in enumerate(model.certificate["problems"]):
        told = objective(model, x, y, 3.0, number=number, weights=weights)
        assert proof["primal"] == pytest.approx(told, rel=1e-9)
        assert proof["dual"] <= exact[number]["primal"] and exact[number]["dual"] <= told


@pytest.mark.filterwarnings("ignore:not converged")
def test_where_no_gap_is_aimed_at_the_bias_is_what_it_is(text, monkeypatch):
    taught = []
    made = LightBias.enter
    monkeypatch.setattr(LightBias, "enter", lambda self, *given: taught.append(self.on) or made(self, *given))
    fit(text, **SHAPE | dict(tol=0, epochs=2))
    assert taught and not any(taught)


def block_of(norms, weights):
    n = len(norms)
    none = np.zeros(0, np.float32)
    return Block(np.zeros(n + 1, np.int64), np.zeros(0, np.uint32), none, np.ones(n), np.array(weights, float),
                 np.array(norms, float), np.arange(n))  # fmt: skip


def bias_of(C=1.0, set_rows=10**9):
    return LightBias(C, set_rows)


def go(bias, kernel, weights, rows=None):
    """One go over rows, by a ``kernel`` of weights and parameters."""
    shared = Shared(weights)
    params = bias.enter(shared, rows, Params(1.0, 1.0, 0.0, 1.0))
    return bias.leave(shared, kernel(weights, params))


def seven(weights, params):
    """r grows by 7."""
    weights[-1] += params.bias * 7.0
    return Counts(1, 0, 1, 0.0, 3.0)


def test_the_penalty_is_one_over_what_rows_give_way():
    bias = bias_of(C=2.0)
    bias.weigh(block_of([1.0] * 50 + [0.1] * 50 + [0.0] * 10, [1.0] * 100 + [0.5] * 10))
    assert bias.penalty == LIGHT / (50 * 1 + 50 * 2 + 10 * 1)
    bias.weigh(block_of([1.0], [1.0]))
    assert bias.penalty == 1.0
    bias.weigh(block_of([1.0], [0.0]))
    assert bias.penalty == 1.0


def test_a_small_working_set_has_to_be_able_to_put_it_right():
    bias = bias_of(set_rows=500)
    bias.weigh(block_of([1.0] * 1000, [1.0] * 1000))
    assert bias.penalty == STEADY / 500 > LIGHT / 1000


def test_steps_move_the_bias_by_the_penalty_and_r_by_themselves():
    weights, bias = np.array([3.0, 0.5]), bias_of()
    bias.on, bias.penalty = True, 0.25
    assert go(bias, seven, weights) == Counts(1, 0, 1, 0.0, 3.0)
    assert weights[-1] == pytest.approx(0.5 + 0.25 * 7) and weights[0] == 3.0
    assert weights[-1] + bias.state[0] == pytest.approx(0.5 + 7)  # r
    bias.firm(block_of([1.0] * 100_000, [1.0] * 100_000), weights, gap=3.0)
    assert bias.penalty == LEAST_FIRM > FIRM / 100_000
    assert weights[-1] == pytest.approx(2.25 + LEAST_FIRM * 5.25)
    assert weights[-1] + bias.state[0] == pytest.approx(0.5 + 7)
    before, bias.on = weights[-1], False
    go(bias, seven, weights)
    assert weights[-1] == before + 7.0


def test_where_passes_gain_nothing_it_grows_as_heavy_as_the_bias_itself():
    bias, weights, rows = bias_of(), np.zeros(1), block_of([1.0] * 1000, [1.0] * 1000)
    found = []
    for gap in (5.0, 6.0, 4.0, 4.0, 4.0):
        bias.weigh(rows)
        found.append(bias.penalty)
        bias.firm(rows, weights, gap)
    assert found == pytest.approx([0.004, 0.004, 0.04, 0.04, 0.4])
    bias.weigh(rows)
    assert bias.penalty == 1.0


# With every row at hand


def every_row(norms, weights=None, alpha=None):
    n = len(norms)
    view = block_of(norms, np.ones(n) if weights is None else weights)
    rows = Rows(np.zeros(n) if alpha is None else np.array(alpha, float))
    return view, rows


def resident(C=1.0, diagonal=0.0):
    bias = ResidentBias(C, diagonal)
    bias.on = True
    return bias


def test_the_penalty_in_memory_is_a_part_of_the_curvature_of_a_step():
    none = np.zeros(1)
    for norms, weights, diagonal, of in (
        ([1.0, 4.0] * 1000, None, 0.0, 1.6),
        ([1.0, 4.0] * 1000 + [0.0, 9.0], [1.0] * 2001 + [0.0], 0.0, 1.6),  # empty, or of no weight
        ([1.0] * 1000, [0.5] * 1000, 0.5, 2.0),
    ):
        bias = resident(10.0 if diagonal == 0 else 1.0, diagonal)
        bias.lag(*every_row(norms, weights), none)
        assert bias.penalty == pytest.approx(
            max(OF_SQUARE * of, FIRM / (len(norms[:2000]) / of if diagonal == 0 else 500))
        )
    for norms in ([1.0] * 10, [0.0], [np.inf]):  # they give way too little, or not at all
        bias = resident()
        bias.lag(*every_row(norms), none)
        assert bias.penalty == 1.0


def test_in_memory_r_is_added_up_and_what_the_bias_lacks_is_part_of_the_gap():
    view, rows = every_row([1.0] * 4000, alpha=np.arange(4000) / 1000)
    view.labels[::2] = -1.0
    weights, bias = np.array([3.0, 0.5]), resident()
    r = float(rows.alpha @ view.labels)
    bias.weigh(view)
    counts = go(bias, seven, weights, rows)
    rho = bias.penalty
    assert rho == OF_SQUARE and weights[-1] == pytest.approx(0.5 + rho * (r - 0.5) + rho * 7)
    assert counts.gap == pytest.approx(3 + 0.5 * (r + 7 - weights[-1]) ** 2)
    before = weights[-1]
    go(bias, seven, weights, rows)  # of the same visit: r is known
    assert weights[-1] == pytest.approx(before + rho * (r + 7 - before) + rho * 7)
    bias.firm(view, weights, 1.0)
    bias.settle(weights)
    assert weights[-1] == pytest.approx(r + 14) and bias.lag(view, rows, np.array([0.0, r])) < 1e-15
    assert bias.lag(view, rows, np.array([0.0, r - 1])) == pytest.approx(0.5)
    off = 0.5 * ROUNDED * float(rows.alpha.sum())
    followed = bias.lag(view, rows, np.array([0.0, r + off]))
    assert followed == pytest.approx(0.5 * off * off), "the last digits are left out"
    bias.on = False  # what rounding has left alone would change bits
    assert bias.lag(view, rows, np.array([0.0, r + off])) == 0


@pytest.mark.parametrize("norms, on", [([1.0] * 4000, False), ([20.0] * 40_000, True)])
def test_where_it_is_not_light_in_memory_the_bias_becomes_r(norms, on):
    def learn(weights, params):
        assert params.bias == 1.0 and weights[-1] == pytest.approx(r)
        return Counts(1, 0, 1, 0.0, 3.0)

    view, rows = every_row(norms, alpha=np.ones(len(norms)) * 0.01)
    r, bias = float(rows.alpha.sum()), resident()
    bias.on = on
    bias.weigh(view)
    weights = np.array([3.0, 0.5])
    counts = go(bias, learn, weights, rows)
    assert counts.gap == 3.0 and weights[-1] == pytest.approx(r) and (not on or bias.penalty > HEAVY)
