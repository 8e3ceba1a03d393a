"""Groups whose working sets are solved in one place: few passes whatever their number, right certificates, and the same
bits whoever has the rows."""

import numpy as np
import pytest
from making import fit, random_rows, shards_of
from test_dual_coordinate_descent import extended, primal
from test_groups import QUIET, SMALL, exact_dual, noisy, watched
from test_plan import LARGE, least_of, plan_of, problems_of

from bigclf.errors import ModelFormatError
from bigclf.training.roles.gathered import GatheredSet, next_penalty

LINE = {"mixing": "line_search"}
stuck_losses = pytest.mark.parametrize("loss", ["hinge", "epsilon_insensitive"])
pytestmark = pytest.mark.filterwarnings("ignore::bigclf.errors.ConvergenceWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    x, y = random_rows(4000, 60, 0.25, noise=1.0)
    return shards_of(tmp_path_factory.mktemp("gathered") / "s", x, y, chunk_nnz=3000, shard_nnz=40_000)


@stuck_losses
@pytest.mark.parametrize("groups", [2, 9])
def test_passes_hardly_grow_with_the_groups(loss, groups):
    x, y = noisy(600, loss=loss)
    together = fit(x, y, loss=loss, groups=groups, **QUIET).result_
    apart = fit(x, y, loss=loss, groups=groups, working_set=0, **QUIET).result_
    assert together.plan["gathered"] and not apart.plan["gathered"]
    assert together.converged and together.epochs <= 9 and 4 * together.epochs < apart.epochs


def test_an_epoch_without_rounds_counts_none():
    """It had those of the epoch before, but none where the run was resumed in between."""
    found = fit(*noisy(600), groups=2, **QUIET).result_
    *before, last = [record["rounds"] for record in found.history]
    assert found.converged and found.plan["gathered"] and min(before) > 0 and last == 0


@stuck_losses
def test_the_certificate_is_that_of_the_dual_variables_that_are_kept(loss, tmp_path):
    x, y = noisy(loss=loss, seed=3)
    model, watch = watched(x, y, tmp_path, 4, loss=loss, C=2.0, tol=1e-4)
    told, w = model.result_.certificate, np.append(model.coef_[0], model.intercept_[0])
    rows, c = extended(x, True), np.full(len(y), 2.0)
    assert told["primal"] == pytest.approx(primal(rows, y, w, loss, c), rel=1e-11)
    assert told["dual"] == pytest.approx(max(exact_dual(rows, y, a, loss, c) for a in watch.alphas), rel=1e-10)
    assert 0 <= told["gap"] <= 1e-4


@pytest.mark.parametrize("options", [{}, {"memory": SMALL, "segments": 2}], ids=["resident", "streamed"])
def test_whoever_visits_a_group_finds_what_it_goes_on_from(options, client, shards):
    """Workers that forget everything after an epoch are as good as dead ones."""
    from bigclf.cluster import worker_tasks

    def forget(record):
        for run in {run for run, _ in worker_tasks._places if record["epoch"] != 2}:
            worker_tasks.farewell(run)

    given = dict(groups=5, tol=0.0, epochs=5, **options)
    alone = fit(shards, **given, **QUIET)
    there = fit(shards, workers=client, callbacks=[forget], **given, **QUIET)
    assert alone.result_.plan["gathered"] and alone.result_.plan["resident"] == (not options)
    np.testing.assert_array_equal(alone.coef_.view(np.uint64), there.coef_.view(np.uint64))
    assert alone.result_.certificate["dual"] == there.result_.certificate["dual"]


@pytest.mark.parametrize("loss", ["hinge"])
def test_rows_that_nobody_chose_may_stay_or_go(loss, monkeypatch):
    """Where the rows lie at the driver, and which others lie there, has no part in what they come to."""
    x, y = noisy(2000, noise=0.5, loss=loss)
    given = dict(loss=loss, groups=3, tol=0.0, epochs=7, **QUIET)
    kept, append, stale = fit(x, y, **given), GatheredSet.append, []

    def append_and_let_go(self, chosen):
        append(self, chosen)
        before = self.held.n_rows
        self._let_go()
        stale.append(before - self.held.n_rows)

    monkeypatch.setattr(GatheredSet, "append", append_and_let_go)
    np.testing.assert_array_equal(kept.coef_, fit(x, y, **given).coef_)
    assert sum(stale) > 0


def test_a_set_of_another_size_is_refused(shards, monkeypatch):
    solve = GatheredSet.solve

    def shorter(self, *given):
        return [solved._replace(alpha=solved.alpha[1:]) for solved in solve(self, *given)]

    monkeypatch.setattr(GatheredSet, "solve", shorter)
    with pytest.raises(ModelFormatError, match="rows in its working set"):
        fit(shards, groups=2, epochs=3, tol=0.0, **QUIET)


@pytest.mark.parametrize("options", [{"mixing": "safe"}, {"working_set": 0.1}, {"loss": "squared_hinge"}], ids=str)
def test_where_it_is_of_no_use_groups_stay_apart(options, as_begun_before):
    x, y = noisy()
    assert not fit(x, y, groups=3, epochs=2, **options, **QUIET).result_.plan["gathered"]


def test_a_set_too_large_for_the_budget_is_not_gathered():
    """Two copies of a quarter of the rows and more are to fit; rows that stay in memory are a further question."""
    (problem,) = problems_of()
    problem = problem._replace(setting=problem.setting._replace(settings=problem.setting.settings | LINE))
    least = least_of(LARGE, [problem], groups=4)
    plans = [plan_of(LARGE, [problem], int(scale * least), groups=4) for scale in np.geomspace(1, 200, 60)]
    gathered = [plan.gathered for plan in plans]
    assert gathered == sorted(gathered) and not gathered[0] and gathered[-1]
    assert sum(gathered) > sum(plan.gathered and plan.resident for plan in plans) > 0
    assert all(plan.memory["planned"] <= plan.memory["budget"] for plan in plans)
    rows = [sum(plan.set_rows for _ in plan.groups) / LARGE.n_rows for plan in plans if plan.gathered]
    assert all(0.2 < share < 0.5 for share in rows)
    assert "gathered" not in plans[0].same_bits() and plans[-1].same_bits()["gathered"]
    assert not plan_of(LARGE, [problem], 200 * least, groups=4, before={"groups": []}).gathered


def test_a_run_that_was_begun_by_older_code_goes_on_as_it_was_begun():
    (problem,) = problems_of()
    problems = [problem._replace(setting=problem.setting._replace(settings=problem.setting.settings | LINE))]
    new = plan_of(LARGE, problems, 10**9, groups=4)
    assert new.gathered and new.moves and plan_of(LARGE, problems, 10**9, groups=4, before=new.as_json()) == new
    told = {name: value for name, value in new.as_json().items() if name != "moves"}
    old = plan_of(LARGE, problems, 10**9, groups=4, before=told | {"run": new.run + 6})
    assert old.gathered and not old.moves and old.run == new.run + 6


def test_steps_count_as_often_as_the_last_ones_were_too_long():
    assert next_penalty(0.25, 1.0, 8) == 0.25
    assert next_penalty(0.25, 0.49, 8) == pytest.approx(0.175)
    assert next_penalty(0.25, -1.0, 8) == next_penalty(0.25, 0.01, 8) == 0.125
    assert next_penalty(0.25, 100.0, 8) == 0.5 and next_penalty(1.0, 4.0, 8) == 1.0
