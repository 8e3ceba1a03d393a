"""While rows stream by the bias is a feature of a small value: fewer passes, and a certificate of the true problem."""

import numpy as np
import pytest
import scipy.sparse as sp
from making import fit, interrupted_after, of_older_version, shards_of

from bigclf.benchmarks import making
from bigclf.data.dataset import Dataset
from bigclf.maths.block import Block, Counts
from bigclf.methods import resolve
from bigclf.methods.dual.dual_coordinate_descent import Params, Shared
from bigclf.training import plan as planning
from bigclf.training.plan import make_plan
from bigclf.training.problems import make_problems
from bigclf.training.roles.light_bias import FIRM, LEAST_FIRM, LIGHT, STEADY, LightBias

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


def without(monkeypatch):
    """Plans of older versions."""
    made = planning.Sizes.__init__

    def heavy(self, *given):
        made(self, *given)
        self.light_bias = False

    monkeypatch.setattr(planning.Sizes, "__init__", heavy)


def objective(model, x, y):
    """1/2 ||w||^2 + 1/2 b^2 + sum of hinges, of the model's own weights."""
    w, b = model.coef_[0].astype(float), float(model.intercept_[0])
    s = np.where(y == model.classes_[1], 1.0, -1.0)
    return 0.5 * w @ w + 0.5 * b * b + np.maximum(0, 1 - s * (x @ w + b)).sum()


def test_fewer_passes_are_made_and_the_certificate_is_true(text, rows, light, monkeypatch):
    without(monkeypatch)
    heavy = fit(text, **SHAPE)
    assert light.result_.plan["light_bias"] and not heavy.result_.plan["light_bias"]
    assert light.result_.reads <= heavy.result_.reads - 3
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


def test_it_is_for_working_sets_of_one_group_with_rounds_after_each_pass(text):
    data = Dataset(text)
    light = plan_of(data)
    assert light.light_bias and light.same_bits()["light_bias"] and plan_of(data, before=light.as_json()) == light
    for memory, given in (
        ("500MB", {}),
        ("20MB", {"bias": "none"}),
        ("20MB", {"loss": "logistic"}),
        ("20MB", {"schedule": "cached"}),
        ("20MB", {"inner_rounds": 0}),
        ("40MB", {"groups": 2}),
        ("20MB", {"before": {"groups": [[0, 1]]}}),
    ):
        plan = plan_of(data, memory, **given)
        assert not plan.light_bias and "light_bias" not in plan.same_bits(), given


@pytest.mark.filterwarnings("ignore:not converged")
def test_where_no_gap_is_aimed_at_the_bias_is_what_it_is(text, monkeypatch):
    taught = []
    made = LightBias.__call__
    monkeypatch.setattr(LightBias, "__call__", lambda self, *given: taught.append(self.on) or made(self, *given))
    fit(text, **SHAPE | dict(tol=0, epochs=2))
    assert taught and not any(taught)


def block_of(norms, weights):
    n = len(norms)
    none = np.zeros(0, np.float32)
    return Block(np.zeros(n + 1, np.int64), np.zeros(0, np.uint32), none, np.ones(n), np.array(weights, float),
                 np.array(norms, float), np.arange(n))  # fmt: skip


def bias_of(C=1.0, kernel=None, set_rows=10**9):
    return LightBias(kernel, C, set_rows)


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
    def learn(view, order, shared, rows, params, scores):
        shared.weights[-1] += params.bias * 7.0  # r grows by 7
        return Counts(1, 0, 1, 0.0, 0.0)

    weights, bias = np.array([3.0, 0.5]), bias_of(kernel=learn)
    given = None, np.arange(1), Shared(weights), None, Params(1.0, 1.0, 0.0, 1.0), None
    bias.on, bias.penalty = True, 0.25
    assert bias(*given).rows == 1
    assert weights[-1] == pytest.approx(0.5 + 0.25 * 7) and weights[0] == 3.0
    assert weights[-1] + bias.state[0] == pytest.approx(0.5 + 7)  # r
    bias.firm(block_of([1.0] * 100_000, [1.0] * 100_000), weights, gap=3.0)
    assert bias.penalty == LEAST_FIRM > FIRM / 100_000
    assert weights[-1] == pytest.approx(2.25 + LEAST_FIRM * 5.25)
    assert weights[-1] + bias.state[0] == pytest.approx(0.5 + 7)
    before, bias.on = weights[-1], False
    bias(*given)
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
