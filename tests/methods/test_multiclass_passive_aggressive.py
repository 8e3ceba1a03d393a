"""Native multi-class perceptrons, passive-aggressive learners and MIRA (Crammer and Singer, JMLR 2003; Crammer et al.,
JMLR 2006; Matsushima et al., SDM 2010): each step solves its quadratic programme, and of two classes each is its binary
form."""

import functools
from typing import NamedTuple

import numpy as np
import pytest
from making import Case, block_of, dense, learn, random_rows
from scipy.optimize import minimize

from bigclf.methods.many_classes import (
    multiclass,
    multiclass_mira,
    multiclass_passive_aggressive,
    multiclass_perceptron,
)
from bigclf.methods.many_classes.multiclass import averaged_zeros, best_other, predicted, zeros
from bigclf.methods.online import mira
from bigclf.methods.online.passive_aggressive import HARD, LINEAR, SQUARED
from bigclf.methods.online.perceptron import average

PERCEPTRON = functools.cache(multiclass_perceptron.perceptron)
PASSIVE_AGGRESSIVE = functools.cache(multiclass_passive_aggressive.passive_aggressive)
SLACKS = {"pa": HARD, "pa1": LINEAR, "pa2": SQUARED}
KINDS = [(algo, constraints) for algo in SLACKS for constraints in ("one", "all")]


class Learner(NamedTuple):
    """A kernel with its settings; ``option`` is what the step is made of."""

    algo: str
    option: str = ""
    averaged: bool = False

    def state(self, n_features, n_classes, dtype="float64"):
        begin = multiclass_mira.begin if self.algo == "mira" else averaged_zeros if self.averaged else zeros
        return begin(n_features, dtype, {"n_classes": n_classes})

    def learn(self, state, block, order=None, bias=0.0, C=1.0):
        settings = {"n_classes": state.weights.shape[1], "bias": bias, "C": C}
        settings |= {"against": self.option, "constraints": self.option}
        if self.algo == "mira":
            kernel, params = multiclass_mira.mira, multiclass_mira.bind(settings)
        elif self.algo == "perceptron":
            kernel, params = PERCEPTRON(self.averaged), multiclass_perceptron.bind(settings)
        else:
            kernel = PASSIVE_AGGRESSIVE(self.averaged)
            params = multiclass_passive_aggressive.bind(SLACKS[self.algo], settings)
        order = np.arange(block.n_rows) if order is None else order
        return kernel(block, order, state, (), params, np.zeros(block.n_rows))


PERCEPTRONS = [Learner("perceptron", "max"), Learner("perceptron", "uniform")]
LEARNERS = [*PERCEPTRONS, *(Learner(*kind) for kind in KINDS), Learner("mira")]
each = pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: f"{learner.algo}-{learner.option}".strip("-"))


def step(learner, w, x, y, C=1.0, weight=1.0):
    """The weights [features, K] after one row, and the counts."""
    state = learner.state(x.size, w.shape[1])
    state.weights[:-1] = w
    if learner.algo == "mira":
        state.begun[0] = 1
    counts = learner.learn(state, block_of(x[None], [y], [weight]), C=C)
    return state.weights[:-1], counts


def instance(rng, n_classes, n_features):
    x = rng.standard_normal(n_features).astype(np.float32)
    return (
        rng.standard_normal((n_features, n_classes)),
        x,
        int(rng.integers(n_classes)),
        float(10 ** rng.uniform(-2, 1)),
    )


def against(learner, w, x, y):
    """The wrong classes whose constraints count, and the margin that is asked for."""
    others = [k for k in range(w.shape[1]) if k != y]
    return [
        max(others, key=(x @ w).item)
    ] if learner.option == "one" else others, 0.0 if learner.algo == "mira" else 1.0


def solved(learner, w, x, y, C):
    """min 1/2 ||V - W||^2 (+ C s, + C s^2)  with  (v_y - v_k).x >= margin - s, s >= 0 (PA: s = 0), by sequential least
    squares."""
    classes, margin = against(learner, w, x, y)
    price, power = (0.0 if learner.algo == "pa" else C), 2 if learner.algo == "pa2" else 1
    limits = np.zeros((len(classes), w.size + 1))  # times (V, s), at least the margin
    for row, k in zip(limits, classes, strict=True):
        difference = np.zeros_like(w)
        difference[:, y], difference[:, k] = x, -x
        row[:-1] = difference.ravel()
    limits[:, -1] = price > 0
    start = np.append(w.ravel(), max(0.0, (margin - limits[:, :-1] @ w.ravel()).max()) if price else 0.0)
    answer = minimize(
        lambda z: 0.5 * ((z[:-1] - w.ravel()) ** 2).sum() + price * z[-1] ** power,
        start,
        jac=lambda z: np.append(z[:-1] - w.ravel(), price * power * z[-1] ** (power - 1)),
        bounds=[(None, None)] * w.size + [(0.0, None if price else 0.0)],
        constraints={"type": "ineq", "fun": lambda z: limits @ z - margin, "jac": lambda z: limits},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return answer.x[:-1].reshape(w.shape)


def test_a_step_equals_the_solution_of_its_programme():
    rng = np.random.default_rng(7)
    exact = [Learner(algo, "all") for algo in SLACKS]
    others = [*(Learner(algo, "one") for algo in SLACKS), Learner("mira")]
    supports = set()
    for learner in 35 * exact + 10 * others:
        w, x, y, C = instance(rng, int(rng.integers(3, 7)), int(rng.integers(1, 5)))
        C = 1.0 if learner.algo == "mira" else C
        after, counts = step(learner, w, x, y, C)
        np.testing.assert_allclose(after, solved(learner, w, x.astype(float), y, C), rtol=0, atol=1e-5)
        moved = (after != w).any(axis=0)
        assert moved.any() == counts.updates
        supports.add((learner.option, int(moved.sum())))
    assert {("one", 0), ("one", 2), *(("all", n) for n in (0, 2, 3, 4, 5))} <= supports


@pytest.mark.parametrize("n_classes", [3, 5, 300])
@pytest.mark.parametrize("learner", LEARNERS[2:], ids=lambda learner: f"{learner.algo}-{learner.option}".strip("-"))
def test_a_step_fulfils_the_optimality_conditions(learner, n_classes):
    """With multipliers tau_k of the constraints: they and the slack are at least 0, the price is not exceeded, and each
    constraint holds with equality or costs nothing. For a convex programme that is enough."""
    rng = np.random.default_rng(n_classes)
    largest, steps = 0, 0
    for _ in range(60):
        w, x, y, C = instance(rng, n_classes, 4)
        if rng.random() < 0.3:
            w = np.round(w)  # ties
        w *= rng.choice([0.0, 0.01, 1.0], p=[0.1, 0.4, 0.5])
        weight = 1.0 if learner.algo in ("pa", "mira") else float(rng.choice([0.5, 3.0]))
        after, counts = step(learner, w, x, y, C, weight)
        x, price = x.astype(float), 1.0 if learner.algo == "mira" else C * weight
        classes, margin = against(learner, w, x, y)
        tau = -((after - w).T @ x) / (x @ x)
        np.testing.assert_allclose(after, w - np.outer(x, tau), rtol=0, atol=1e-12)
        total, tau = -tau[y], np.delete(tau, y)
        assert tau.min() >= -1e-10 and tau.sum() == pytest.approx(total, abs=1e-10)
        lack = margin - ((x @ after)[y] - x @ after)[classes]
        slack = {"pa": 0.0, "pa2": total / (2 * price)}.get(learner.algo, max(0.0, lack.max()))
        assert (slack - lack).min() >= -1e-10
        multipliers = tau if learner.option != "one" else np.array([total])
        assert np.abs(multipliers * (slack - lack)).max() <= 1e-9
        if learner.algo in ("pa1", "mira"):
            assert total <= price + 1e-10 and slack * (price - total) <= 1e-9
        largest, steps = max(largest, int((tau > 1e-12).sum())), steps + counts.updates
    assert steps > 10 and (largest == 1 if learner.option == "one" else largest > 1)


def test_of_two_classes_the_constraint_is_one():
    x, y = random_rows(60, 12)
    for algo in SLACKS:
        one, every = (Learner(algo, constraints) for constraints in ("one", "all"))
        states = one.state(12, 2), every.state(12, 2)
        for learner, state in zip((one, every), states, strict=True):
            learner.learn(state, block_of(x, y > 0), C=0.1)
        np.testing.assert_array_equal(states[0].weights, states[1].weights)


@pytest.mark.parametrize("algo", ["perceptron", "pa", "pa1", "pa2", "mira"])
def test_of_two_classes_each_is_its_binary_form(algo):
    """(w_1 - w_0) / 2 where a step is a row, w_1 - w_0 at twice the price where it ends at a margin of 1."""
    x, y = random_rows(80, 12, seed=2)
    weights = None if algo in ("pa", "mira") else np.random.default_rng(0).choice([0.5, 1.0, 3.0], 80)
    case = Case(algo, "hinge" if algo.startswith("pa") else None)
    given = {"C": 0.2} if algo in ("pa1", "pa2") else {}
    learner = Learner(algo, "all")
    binary, state = None, learner.state(12, 2)
    for _ in range(2):
        *binary, counts, _ = learn(case, block_of(x, y, weights), 12, state=binary, bias="feature", **given)
        assert learner.learn(state, block_of(x, y > 0, weights), bias=1.0, C=0.1).updates == counts.updates > 0
    w = state.weights if algo.startswith("pa") else state.weights / 2
    np.testing.assert_allclose(w[:, 1] - w[:, 0], binary[0].weights, rtol=0, atol=1e-10)
    np.testing.assert_allclose(w[:, 1] + w[:, 0], 0, rtol=0, atol=1e-10)


def separable(seed, n_rows=60, n_features=6, n_classes=4, least=0.05):
    """Rows, classes, and gamma with which some U, sum_k ||u_k||^2 = 1, separates them."""
    rng = np.random.default_rng(seed)
    u = rng.standard_normal((n_features, n_classes))
    u /= np.linalg.norm(u)
    x = rng.standard_normal((20 * n_rows, n_features)).astype(np.float32)
    scores = np.sort(x @ u, axis=1)
    x = x[scores[:, -1] - scores[:, -2] > least][:n_rows]
    scores = np.sort(x @ u, axis=1)
    return x, np.argmax(x @ u, axis=1), (scores[:, -1] - scores[:, -2]).min()


@pytest.mark.parametrize("learner", PERCEPTRONS, ids=lambda learner: learner.option)
def test_the_perceptron_s_steps_are_the_textbook_s(learner):
    """Whole numbers and halves, so that every sum is exact and classes tie: the row is added to its class and taken
    from those that score no less, one or all."""
    rng = np.random.default_rng(1)
    x, y, weights = rng.integers(-2, 3, (80, 4)).astype(np.float32), rng.integers(3, size=80), rng.integers(1, 3, 80)
    state, w, mistakes, updates, sizes = learner.state(4, 3), np.zeros((5, 3)), 0, 0, set()
    counts = learner.learn(state, block_of(x, y, weights), bias=1.0)
    for row, c, weight in zip(np.hstack([x, np.ones((80, 1))]).astype(float), y, weights, strict=True):
        scores = row @ w
        mistakes += np.argmax(scores) != c
        fault = [k for k in range(3) if k != c and scores[k] >= scores[c]]
        if fault:
            fault = fault if learner.option == "uniform" else [max(fault, key=lambda k: scores[k])]
            w[:, c] += weight * row
            w[:, fault] -= weight * row[:, None] / len(fault)
            updates += 1
            sizes.add(len(fault))
    np.testing.assert_array_equal(state.weights, w)
    assert (counts.rows, counts.mistakes, counts.updates) == (80, mistakes, updates)
    assert sizes == ({1, 2} if learner.option == "uniform" else {1})


@pytest.mark.parametrize("learner", PERCEPTRONS, ids=lambda learner: learner.option)
def test_updates_stay_below_the_bound_on_separable_sets(learner):
    for seed in range(20):
        x, y, gamma = separable(seed)
        state, block, updates, mistakes = learner.state(6, 4), block_of(x, y), 0, 0
        for epoch in range(300):
            counts = learner.learn(state, block, np.random.default_rng(epoch).permutation(len(y)))
            updates, mistakes = updates + counts.updates, mistakes + counts.mistakes
        limit = 2 * (x.astype(float) ** 2).sum(axis=1).max() / gamma**2
        assert 0 < mistakes <= updates <= limit
        assert counts.updates == 0  # nothing is left to come


@pytest.mark.parametrize("constraints", ["one", "all"])
def test_squared_losses_stay_below_their_bound(constraints):
    """Separable by U with margin 1, each step brings W closer to U by l^2 / (2 ||x||^2) or more."""
    for seed in range(5):
        x, y, gamma = separable(seed)
        learner = Learner("pa", constraints)
        state, block, total = learner.state(6, 4), block_of(x, y), 0.0
        for _ in range(20):
            for i in range(len(y)):
                total += learner.learn(state, block, np.array([i])).loss ** 2
        assert 1 < total <= 2 * (x.astype(float) ** 2).sum(axis=1).max() / gamma**2


@pytest.mark.parametrize("bias", [0.0, 1.0])
@pytest.mark.parametrize("learner", LEARNERS[:-1], ids=lambda learner: f"{learner.algo}-{learner.option}")
def test_the_averaged_answer_is_the_mean_over_all_steps(learner, bias):
    x, _ = random_rows(60, 12, seed=3)
    block = block_of(x, np.random.default_rng(3).integers(4, size=60))
    averaged, plain, total = learner._replace(averaged=True).state(12, 4), learner.state(12, 4), np.zeros((13, 4))
    order = np.random.default_rng(4).permutation(120) % 60
    counts = learner._replace(averaged=True).learn(averaged, block, order, bias)
    for i in order:  # the plain learner, row after row, and the sum of what it is after each
        learner.learn(plain, block, np.array([i]), bias)
        total += plain.weights
    assert counts.rows == averaged.steps[0] == 120
    np.testing.assert_array_equal(averaged.weights, plain.weights)
    np.testing.assert_allclose(average(averaged, None), total / 120, rtol=0, atol=1e-12)
    assert np.abs(total / 120 - plain.weights).max() > 0.01


@each
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.long)])
def test_rows_of_no_and_of_great_length_leave_finite_weights(learner, dtype):
    x = np.zeros((8, 3), np.float32)
    x[1] = x[4] = [1e30, -1e30, 1.0]
    x[2], x[5], x[6] = [1e-30, 0, 0], [0, 1e-30, 1e30], [1, 1, 1]
    state = learner.state(3, 3, dtype)
    for bias in (0.0, 1.0):
        with np.errstate(over="raise", invalid="raise"):
            counts = learner.learn(state, block_of(x, np.arange(8) % 3), bias=bias)
        assert np.isfinite(state.weights).all() and np.isfinite(counts.loss) and counts.updates > 0
    if learner.algo != "perceptron":  # a row without entries is no reason to move
        before = state.weights.copy()
        assert learner.learn(state, block_of(np.zeros((3, 3), np.float32), [0, 1, 2])).updates == 0
        np.testing.assert_array_equal(state.weights, before)


def test_mira_begins_with_the_first_mistake_whole():
    x, y = np.array([[2.0, 1.0]], np.float32), np.array([1])
    state = multiclass_mira.begin(2, "float64", {"n_classes": 3})
    Learner("mira").learn(state, block_of(x, y))
    np.testing.assert_array_equal(state.weights, [[-1, 2, -1], [-0.5, 1, -0.5], [0, 0, 0]])
    mira.begin_with(state, np.zeros((3, 3)), None)
    assert state.begun[0] == 0 and not state.weights.any()


def test_a_tie_goes_to_the_smallest_class_and_is_a_mistake_of_the_others():
    scores = np.array([1.0, 3.0, 3.0, 2.0])
    assert predicted(scores) == 1
    assert [best_other(scores, y) for y in range(4)] == [1, 2, 1, 1]
    assert best_other(np.zeros(3), 0) == 1 and best_other(np.zeros(3), 2) == 0
    learner = Learner("perceptron", "max")
    block = block_of(np.eye(3, dtype=np.float32), [0, 1, 2])
    counts = learner.learn(learner.state(3, 3), block)
    assert (counts.mistakes, counts.updates) == (2, 3)


@pytest.mark.parametrize("kind", [{}, {"binary": True}, {"constant": True}])
def test_scores_are_those_of_the_rows_written_out(kind):
    x, _ = random_rows(40, 12, seed=5, **kind)
    block, rows = block_of(x, np.zeros(40)), dense(block_of(x, np.zeros(40)), 12)
    assert (block.values.size == 0) == bool(kind)
    weights, out = np.random.default_rng(5).standard_normal((13, 5)), np.zeros(5)
    for i in range(40):
        multiclass.scores_of(block, i, weights, 0.5, out)
        np.testing.assert_allclose(out, np.append(rows[i], 0.5) @ weights, rtol=0, atol=1e-12)
    before = weights.copy()
    multiclass.axpy_classes(2.0, block, 3, weights, np.array([4]), np.ones(1), 1, 0.5)
    multiclass.axpy_classes(2.0, block, 3, weights, np.array([2, 0, 1]), np.array([3.0, -1.0, 9.0]), 2, 0.5)
    before += np.outer(np.append(rows[3], 0.5), [-2, 0, 6, 0, 2])
    np.testing.assert_allclose(weights, before, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["pa_mc", "pa1_mc", "pa2_mc", "averaged_pa1_mc"])
@pytest.mark.parametrize("bias", [None, "feature"])
def test_a_row_without_entries_moves_the_bias_alone_and_nothing_where_there_is_none(name, bias):
    x, y = random_rows(6, 5)
    x = x.tolil()
    x[3] = 0
    block = block_of(x.tocsr().astype(np.float32), np.array([0, 1, 2, 1, 2, 0]))
    shared, _, counts, _ = learn(Case(name, None), block, 5, np.array([3]), bias=bias)
    assert counts.updates == (bias is not None) and counts.mistakes == 1 and counts.loss == 1.0
    assert not shared.weights[:5].any() and np.isfinite(shared.weights).all()
    assert shared.weights[5].any() == (bias is not None)


@pytest.mark.parametrize("name", ["pa1_mc", "averaged_pa1_mc"])
def test_a_row_that_weighs_nothing_is_no_update(name):
    x, y = random_rows(6, 5, 0.9)
    block = block_of(x, np.array([0, 1, 2, 1, 2, 0]), np.array([0.0, 1.0, 0.0, 0.0, 1.0, 0.0]))
    shared, _, counts, _ = learn(Case(name, None), block, 5)
    assert counts.updates == 2 and counts.rows == 6 and shared.weights.any()
