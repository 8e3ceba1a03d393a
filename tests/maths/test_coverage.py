"""The range of C that a model is certified for, beside optima that are found by other means."""

import numpy as np
import pytest

from bigclf.maths.coverage import Answer, Bound, bounds, common, covered, fewest, holes, united


def _optimum(rows, labels, C):
    """(w, u = a / C, P) of the squared hinge, by Newton's method on the primal."""
    weights = np.zeros(rows.shape[1])
    for _ in range(200):
        left = np.maximum(0.0, 1.0 - labels * (rows @ weights))
        gradient = weights - 2 * C * rows.T @ (labels * left)
        active = rows[left > 0]
        step = np.linalg.solve(np.eye(weights.size) + 2 * C * active.T @ active, gradient)
        weights = weights - step
        if np.linalg.norm(gradient) < 1e-11:
            break
    left = np.maximum(0.0, 1.0 - labels * (rows @ weights))
    return weights, 2 * left, 0.5 * weights @ weights + C * (left**2).sum()


def _problem(seed, n=60, d=8):
    random = np.random.default_rng(seed)
    rows = random.standard_normal((n, d))
    labels = np.sign(rows @ random.standard_normal(d) + 0.8 * random.standard_normal(n))
    return rows, labels


def _answers(rows, labels, values, damage=0.0, seed=0):
    """Answers of which each has moved away from the optimum by a share; with v_j and w_j."""
    random = np.random.default_rng(seed)
    answers, all_v, all_w = [], [], []
    for C in values:
        w, u, _ = _optimum(rows, labels, C)
        w = w * (1 + damage * random.standard_normal(w.size))
        a = C * u * (1 + damage * random.uniform(-1, 1, u.size))
        v = rows.T @ (labels * a)
        left = np.maximum(0.0, 1.0 - labels * (rows @ w))
        primal, dual = 0.5 * w @ w + C * (left**2).sum(), a.sum() - (a**2).sum() / (4 * C) - 0.5 * v @ v
        answers.append(Answer(C, primal, 0.5 * w @ w, dual, v @ v))
        all_v.append(v)
        all_w.append(w)
    products = np.array(all_w) @ np.array(all_w).T
    apart = np.linalg.norm(np.array(all_v) - np.array(all_w), axis=1)
    return answers, products, apart, all_w


@pytest.mark.parametrize("damage", [0.0, 0.01, 0.1])
@pytest.mark.parametrize("seed", range(5))
def test_no_bound_is_above_the_optimum_and_no_model_is_worse_than_said(seed, damage):
    rows, labels = _problem(seed)
    answers, products, apart, weights = _answers(rows, labels, np.geomspace(1e-3, 10, 9), damage, seed)
    certain = bounds(answers, products, apart)
    parts = [covered(answer, certain, 0.05) for answer in answers]
    assert damage > 0.05 or None not in parts
    for C in np.geomspace(3e-4, 40, 101):
        optimum = _optimum(rows, labels, C)[2]
        assert max(bound.at(C) for bound in certain) <= optimum * (1 + 1e-12)
        for answer, part, w in zip(answers, parts, weights, strict=True):
            left = np.maximum(0.0, 1.0 - labels * (rows @ w))
            assert answer.objective(C) == pytest.approx(0.5 * w @ w + C * (left**2).sum(), rel=1e-9)
            if part is not None and part[0] <= C <= part[1]:
                assert answer.objective(C) <= 1.05 * optimum * (1 + 1e-9)


def test_neighbours_together_say_more_than_each():
    answers, products, apart, _ = _answers(*_problem(1), np.geomspace(0.01, 1, 5))
    certain = bounds(answers, products, apart)
    alone = [bound for k in range(5) for bound in bounds(answers[k : k + 1], products[k:, k:], apart[k:])]
    middle = 0.056
    assert len(certain) > len(alone) == 5
    assert max(bound.at(middle) for bound in certain) > max(bound.at(middle) for bound in alone) * (1 + 1e-4)


def test_beyond_its_best_scale_a_bound_stays_what_it_is():
    bound = Bound(2.0, 1.0)  # C 2 - C^2 / 2: largest at C = 2
    assert bound.at(1.0) == pytest.approx(1.5) and bound.at(2.0) == bound.at(50.0) == pytest.approx(2.0)
    hard_margin = Answer(C=2.0, primal=2.0, half=2.0, dual=2.0, dual_square=4.0)  # no loss is left
    low, high = covered(hard_margin, [bound], 0.01)
    assert 1.7 < low < 2.0 and high == np.inf


def test_an_answer_without_a_pair_gives_no_bound_and_is_served_by_others():
    answers, products, apart, _ = _answers(*_problem(2), [0.1, 0.11, 0.12])
    answers[1] = answers[1]._replace(dual=-np.inf, dual_square=np.inf)
    certain = bounds(answers, products, apart)
    assert len(certain) == 2
    assert covered(answers[1], certain, 0.05) is not None


def test_intervals():
    assert united([(3, 4), (1, 2), (2, 2.5)]) == [(1, 2.5), (3, 4)]
    assert common([(1, 4), (2, 5)]) == (2, 4) and common([(1, 2), None]) is None
    assert holes([(1, 2), None, (3, 4)], 0, 5) == [(0, 1), (2, 3), (4, 5)]
    assert holes([(0, 9)], 1, 5) == [] and holes([(7, 9)], 1, 5) == [(1, 5)]
    assert fewest([(0, 2), (1, 3), (1.5, 5), (4, 6)], 0, 6) == [0, 2, 3]
    assert fewest([(0, 9), (1, 3)], 1, 3) == [0]
    assert fewest([(0, 1), None, (2, 3)], 0, 3) == [0, 2]
    assert fewest([None], 0, 1) == []
