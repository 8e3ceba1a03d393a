"""Every method against itself written out in numpy: the weights at five moments, mistakes, losses and updates."""

import itertools
import json
import os

import naive
import numpy as np
import pytest
from making import block_of, dense, random_rows, run_python
from naive import NAIVE, OBJECTIVES

from bigclf.api.fit import fit
from bigclf.methods import METHODS, resolve

D, ROWS = 12, 90
MOMENTS = (20, 45, 60, 90)  # multiples of the mini-batch
PARTS = 2

# What is not the default: penalties so strong that what is lazy matters, a rule's other choices, C that cuts some steps
GIVEN = {
    "pnorm_perceptron": [dict(p=2.0), dict(p=3.5)],
    "sop": [dict(a=0.3)],
    "sop_full": [dict(a=0.3)],
    "pdm": [dict(eps=0.3)],
    "pa1": [dict(C=0.1)],
    "pa2": [dict(C=0.1)],
    "averaged_pa1": [dict(C=0.1)],
    "averaged_pa2": [dict(C=0.1)],
    "cw_var": [dict(phi=0.6, a=0.7)],
    "cw_var_exact": [dict(phi=0.6, a=0.7)],
    "cw_var_full": [dict(phi=0.6, a=0.7)],
    "cw": [dict(eta=0.7, a=0.7)],
    "cw_exact": [dict(eta=0.7, a=0.7)],
    "cw_full": [dict(eta=0.7, a=0.7)],
    "scw1": [dict(C=0.2, eta=0.8)],
    "scw2": [dict(C=0.2, eta=0.8)],
    "arow": [dict(r=0.4)],
    "arow_var": [dict(r=0.4)],
    "arow_full": [dict(r=0.4)],
    "arow_mc": [dict(r=0.4)],
    "narow": [dict(b=0.5), dict(b=5.0)],
    "narow_full": [dict(b=0.5), dict(b=5.0)],
    "nherd": [dict(C=0.3)],
    "perceptron_mc": [dict(against="max"), dict(against="uniform")],
    "averaged_perceptron_mc": [dict(against="max"), dict(against="uniform")],
    **{f"{name}_mc": [dict(constraints=kind) for kind in ("one", "all")] for name in ("pa", "averaged_pa")},
    **{
        f"{name}_mc": [dict(constraints=kind, C=0.05) for kind in ("one", "all")]
        for name in ("pa1", "pa2", "averaged_pa1", "averaged_pa2")
    },
    "cw_mc": [dict(eta=0.7, a=0.7)] + [dict(eta=0.7, constraints=kind) for kind in ("all", "parallel")]
    + [dict(eta=0.7, constraints="all", k=2)],
    "cw_var_mc": [dict(phi=0.6, a=0.7)] + [dict(phi=0.6, constraints=kind) for kind in ("all", "parallel")],
    "sccw": [dict(eta=0.7, a=0.7), dict(eta=0.95)],
    "sccw_exact": [dict(eta=0.7, a=0.7), dict(eta=0.95)],
    "sccw_full": [dict(eta=0.7, a=0.7), dict(eta=0.95)],
    "sgd": [dict(lam=0.05, eta0=0.3)],
    "asgd": [dict(lam=0.05, eta0=0.3, start=20)],
    "pegasos": [
        dict(lam=0.05, batch=1, projection="on"),
        dict(lam=0.05, batch=5, projection="off"),
        dict(lam=0.5, batch=5, projection="on"),
    ],
    "adagrad": [dict(lam=0.02, eta=0.2, delta=0.1)],
    "adagrad_rda": [dict(lam=0.02, eta=0.2, delta=0.1)],
    "sgd_newton": [dict(lam=0.05, eta0=0.5)],
    "ftrl": [dict(alpha=0.3, beta=0.5, l1=0.1, l2=0.2)],
    "winnow": [dict(eta=0.3, signs="both"), dict(eta=0.3, signs="nonnegative")],
    "winnow2": [dict(alpha=1.37, threshold=3.3), {}],
    "alma": [dict(p=2.0), dict(p=3.5), {}],
    "pumma": [dict(p=2.0), dict(p=3.5, delta=0.3), {}],
    "memma": [dict(eps=0.05, c=2.01, signs="both"), dict(eps=0.05, c=2.01, signs="nonnegative")],
    "memma_p": [dict(eps=0.05, c=2.01, signs="both"), dict(eps=0.05, c=2.01, signs="nonnegative")],
}  # fmt: skip
# Each step ends where a slope is nearly 0; the recursion of memma_p does so on a dual that is flat near its top
SEARCHED = {"pumma": 1e-8, "memma": 1e-8, "memma_p": 1e-4}


def variants(name):
    """(loss, penalty, bias, settings) of all that a method declares."""
    method = METHODS[name]
    for loss, penalty, bias in itertools.product(method.losses or (None,), method.penalties or (None,), method.bias):
        for given in GIVEN.get(name, [{}]):
            tube = any(param.name == "epsilon" and loss in param.losses for param in method.params)
            yield loss, penalty, None if bias == "none" else bias, given | ({"epsilon": 0.3} if tube else {})


def some_rows(method, loss, n_classes=4, seed=0):
    """Each with an entry, of weights that have a meaning to the method."""
    real = loss in naive.REGRESSION
    x, y = random_rows(ROWS, D, 0.25, seed=seed, real=real, noise=0.5)
    x = x.tolil()
    x[np.arange(ROWS), np.arange(ROWS) % D] = 0.5
    rng = np.random.default_rng(seed)
    if method.all_classes:
        y = (x @ rng.standard_normal((D, n_classes)) + 0.5 * rng.standard_normal((ROWS, n_classes))).argmax(axis=1)
    x = x / np.abs(x).max() if method.form.threshold else x  # values up to 1: those beside a threshold
    weights = rng.choice([0.5, 1.0, 2.0], ROWS) if method.row_weights == "any" else None
    return block_of(x.tocsr().astype(np.float32), y, weights)


def difference(name, loss, penalty, bias, given):
    """The largest difference to the loop: of the weights at each moment, before and after ``finish``, of mistakes,
    losses and updates over all rows; and how many updates there were."""
    method = METHODS[name]
    setting = resolve(name, loss, penalty, bias, given).of_classes(4)
    block = some_rows(method, loss)
    x = np.hstack([dense(block, D), np.full((ROWS, 1), float(bias is not None))])
    labels = block.labels.astype(int) if method.all_classes else block.labels
    rows = list(zip(x, labels, block.weights, strict=True))
    told = [*NAIVE[name](rows, setting.settings | {"loss": loss})]
    state, kernel, params, scores = setting.shared(D, "float64"), setting.kernel(), setting.params(), np.zeros(ROWS)
    worst, first, counted = 0.0, 0, np.zeros(3)

    def away(expected):
        found = setting.weights(state)
        if method.form.threshold:  # the answer is one up to its length
            found = found / np.abs(found).max()
        return float(np.abs(found - expected).max())

    for last in MOMENTS:
        counts = kernel(block, np.arange(first, last), state, setting.rows(0), params, scores)
        counted += counts.mistakes, counts.updates, counts.loss
        worst = max(worst, away(told[last - 1].weights))
        if last != MOMENTS[0] and method.form.finish:
            method.form.finish(state, params)
            worst = max(worst, away(told[last - 1].weights))
        first = last
    recounted = [sum(one.wrong for one in told), sum(one.moved for one in told), sum(one.loss for one in told)]
    worst = max(worst, float(np.abs((counted - recounted) / [1, 1, max(1.0, recounted[2])]).max()))
    return {
        "difference": worst, "updates": int(counted[1]), "mistakes": int(counted[0]),
        "size": float(np.abs(told[-1].weights).max()),
    }  # fmt: skip


def differences(names):
    """{what: figures} for each loss, penalty, bias and choice of these methods."""
    return {
        " ".join(map(str, (name, *variant))): difference(name, *variant) | {"name": name}
        for name in names
        for variant in variants(name)
    }


def test_every_method_has_a_loop_or_an_objective():
    """Whoever adds a method adds one of these in ``naive.py``: a loop where it learns row by row."""
    assert set(NAIVE) | set(OBJECTIVES) == set(METHODS) and not set(NAIVE) & set(OBJECTIVES)
    assert set(NAIVE) == {name for name, method in METHODS.items() if not method.certificate}


INTERPRETED = """
import json, sys, test_naive
print(json.dumps(test_naive.differences([*test_naive.NAIVE][int(sys.argv[1]) :: test_naive.PARTS])))
"""


def require_same(found):
    """That the loops had something to do, and what they found."""
    for what, figures in found.items():
        assert figures["updates"] > 10 and figures["mistakes"] > 5 and figures["size"] > 0.01, what
    away = {what: f["difference"] for what, f in found.items()}
    assert {what: d for what, d in away.items() if not d <= SEARCHED.get(found[what]["name"], 1e-10)} == {}


@pytest.mark.parametrize("part", range(PARTS))
def test_every_method_equals_its_naive_loop_with_every_loss_penalty_bias_and_choice(part):
    """In the interpreter: that compiled code computes the same is a law of its own."""
    found = json.loads(run_python(INTERPRETED, part, NUMBA_DISABLE_JIT="1"))
    assert {figures["name"] for figures in found.values()} == set([*NAIVE][part::PARTS])
    require_same(found)


if os.environ.get("BIGCLF_TESTS_INTERPRETED"):  # tests/mutants.py sees only what this process itself executes

    @pytest.mark.parametrize("name", NAIVE)
    def test_one_method_equals_its_naive_loop(name):
        require_same(differences([name]))


# Those that solve a problem: their answer against the problem itself

GRAINS = {"dcd_mc": 1e-6, "memma_blocks": 1e-9}  # of what is left; of a gradient about the root of the gap


def answers(name, chosen):
    """(objective's settings, rows, the model's weights) of what a method declares."""
    method = METHODS[name]
    for loss, penalty, bias, _ in [*variants(name)][chosen]:
        real = loss in naive.REGRESSION
        x, y = random_rows(40, 5, 0.6, seed=1, real=real, noise=0.0 if name == "memma_blocks" else 1.0)
        rng = np.random.default_rng(0)
        if method.all_classes:
            y = rng.integers(0, 3, 40)
        weights = rng.choice([0.5, 1.0, 2.0], 40) if method.row_weights == "any" else None
        given = {"C": 0.7} if any(param.name == "C" for param in method.params) else {"eps": 0.01}
        given |= {"penalty": penalty} if len(method.penalties) > 1 else {}
        model = fit(x, y, algo=name, loss=loss, bias=bias, sample_weight=weights, tol=1e-12 if "C" in given else None,
                    epochs=2000, progress=False, **given)  # fmt: skip
        setting = resolve(name, loss, penalty, bias, {k: v for k, v in given.items() if k != "penalty"})
        wide = np.hstack([x.toarray().astype(float), np.full((40, 1), float(bias is not None))])
        rows = list(zip(wide, y, np.ones(40) if weights is None else weights, strict=True))
        w = np.column_stack([model.coef_, model.intercept_])
        w = w.T if method.all_classes else w[0]
        yield setting.of_classes(3).settings | {"loss": loss}, rows, w


@pytest.mark.parametrize("chosen", [slice(1), pytest.param(slice(1, None), marks=pytest.mark.long)], ids=["one", "all"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_answer_solves_its_problem(name, chosen, quiet):
    done = 0
    for s, rows, w in answers(name, chosen):
        kinked = name == "newton_dense" and s["loss"] in (
            "hinge",
            "epsilon_insensitive",
        )  # smoothed, not to the last bit
        far, grain = OBJECTIVES[name](rows, s, w), 5e-3 if kinked else GRAINS.get(name, 1e-5)
        assert far <= grain, (s, far)
        wrong = -w if name == "memma_blocks" else 1.1 * w
        assert OBJECTIVES[name](rows, s, wrong) > (2 * far if kinked else 10 * grain), (s, "anything would do")
        assert np.abs(w).max() > 0.01
        done += 1
    assert done == len([*variants(name)][chosen]) > 0
