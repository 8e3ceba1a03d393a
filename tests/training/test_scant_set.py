"""A working set of few of the rows gets all the room there is, and needs fewer reads for it."""

import numpy as np
import pytest
import scipy.sparse as sp
from making import fit, interrupted_after, of_older_version, shards_of

from bigclf.benchmarks import making
from bigclf.data.dataset import Dataset
from bigclf.methods import resolve
from bigclf.training import plan as planning
from bigclf.training.plan import make_plan
from bigclf.training.problems import make_problems
from bigclf.training.roles import dual

N, D = 60_000, 20_000
SHAPE = dict(memory="20MB", progress=False, bias="none", tol=1e-3)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Shards of rows like text, of which the budget has room for a twelfth."""
    made = making.make(making.Shape(N, 0, D, 60))
    x = sp.csr_matrix((made.values, made.indices, made.indptr), shape=(N, D))
    path = tmp_path_factory.mktemp("text") / "rows"
    shards_of(path, x, made.y, chunk_nnz=60_000)
    return str(path)


@pytest.fixture(scope="module")
def scant(text):
    return fit(text, **SHAPE)


@pytest.fixture
def as_before(monkeypatch):
    """The plans of older versions."""
    monkeypatch.setattr(planning, "_scant", lambda *_: None)


def plan_of(data, memory, before=None, groups=1, classes=2, loss=None, **given):
    problems = make_problems(np.arange(classes), np.ones(classes), resolve("dcd", loss, None, None, given))
    return make_plan(data, problems, memory=memory, dtype="float64", seed=0, groups=groups, threads=2, in_memory=False,
                     reads=99, before=before)  # fmt: skip


def test_fewer_reads_are_made_and_the_answer_is_as_good(text, scant, as_before):
    other = fit(text, **SHAPE)
    assert scant.result_.plan["scant"] and not other.result_.plan["scant"]
    assert scant.result_.reads <= other.result_.reads - 2
    a, b = scant.certificate, other.certificate
    assert scant.result_.converged and a["gap"] <= 1e-3 and a["dual"] <= b["primal"] and b["dual"] <= a["primal"]
    size = scant.result_.history[-2]["bytes_read"] / scant.result_.history[-2]["reads"]
    assert scant.result_.bytes_read == pytest.approx(size * scant.result_.reads, rel=0.01)


def test_the_set_has_more_of_the_budget_and_per_row_arrays_lie_on_disk(text):
    data = Dataset(text)
    plan, before = plan_of(data, 20_000_000), plan_of(data, 20_000_000, {"groups": [[0, 1]]})
    assert plan.scant and not plan.sequential and plan.rows_sides == 1 and plan.buffers == planning.SCANT_BUFFERS
    assert not before.scant and not before.rows_sides and before.set_rows < plan.set_rows
    assert plan.set_nnz <= planning.SEQUENTIAL_SHARE * data.nnz
    parts = {name: size for name, size in plan.memory.items() if name not in ("planned", "budget")}
    assert sum(parts.values()) == plan.memory["planned"] <= 20_000_000
    assert "scant" not in before.same_bits() and plan.same_bits()["scant"]
    assert plan_of(data, 20_000_000, plan.as_json()) == plan


def test_after_the_first_read_the_set_has_the_room_of_decoding(text):
    data = Dataset(text)
    plan = plan_of(data, 19_000_000)
    told = plan.as_json()
    assert plan.set_rows < plan.grown[0] and plan.set_nnz < plan.grown[1] <= planning.SEQUENTIAL_SHARE * data.nnz
    del told["grown"]  # a run that an older version began
    older = plan_of(data, 19_000_000, told)
    assert older.scant and not older.grown and (older.set_rows, older.set_nnz) == (plan.set_rows, plan.set_nnz)
    assert older.memory["decoding"] > plan.memory["decoding"] and plan.memory["planned"] <= 19_000_000


def test_larger_sets_other_methods_and_what_was_asked_for_are_as_they_were(text):
    data = Dataset(text)
    large = plan_of(data, 26_000_000)
    assert not large.resident and large.sequential
    for memory, given in (
        (26_000_000, {}),
        (20_000_000, {"working_set": 0.05}),
        (20_000_000, {"loss": "squared_hinge"}),
        (20_000_000, {"schedule": "cached"}),
        (23_000_000, {"classes": 3}),
        (40_000_000, {"groups": 2}),
    ):
        plan = plan_of(data, memory, **given)
        assert not plan.scant and plan == plan_of(data, memory, {"groups": [[0, 1]]}, **given), given


@pytest.mark.parametrize("stop_after", [1, pytest.param(3, marks=pytest.mark.long)])
def test_a_run_that_older_versions_began_goes_on_as_it_was(text, stop_after, tmp_path, monkeypatch):
    shape = SHAPE | dict(run_dir=tmp_path / "run", checkpoint_every=0)
    with monkeypatch.context() as older:
        older.setattr(planning, "_scant", lambda *_: None)
        whole = fit(text, **SHAPE)
        with interrupted_after(stop_after):
            fit(text, **shape)
    of_older_version(tmp_path / "run", "scant")
    model = fit(text, resume=True, **shape)
    assert model.digest() == whole.digest() and not model.result_.plan["scant"]


@pytest.mark.parametrize("stop_after", [1, pytest.param(3, marks=pytest.mark.long)])
def test_stopped_and_resumed_it_has_the_same_bits(text, scant, stop_after, tmp_path):
    shape = SHAPE | dict(run_dir=tmp_path / "run", checkpoint_every=0)
    with interrupted_after(stop_after):
        fit(text, **shape)
    model = fit(text, resume=True, **shape)
    assert model.digest() == scant.digest() and model.certificate == scant.certificate


@pytest.mark.filterwarnings("ignore:not converged")
def test_a_set_is_visited_twice_as_often_as_a_usual_one(text, monkeypatch):
    found = []
    for times in (1.0, planning.SCANT_VISITS):
        earned = []
        monkeypatch.setattr(dual, "SCANT_VISITS", times)
        monkeypatch.setattr(dual.SetVisits, "earn", lambda self, visits, earned=earned: earned.append(visits))
        fit(text, **SHAPE | dict(epochs=2))
        found.append(np.array(earned))
    assert found[0].any()
    np.testing.assert_allclose(found[1], 2 * found[0])
