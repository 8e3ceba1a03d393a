"""Groups that are mixed with momentum: by its formula, and the same bits however a run is cut."""

import os
import signal

import numpy as np
import pytest
from making import random_rows, separable_rows

from bigclf.api.fit import fit
from bigclf.errors import Interrupted
from bigclf.maths.mixing import BETA
from bigclf.methods import METHODS, resolve

QUIET = dict(progress=False)
WITH = [name for name, method in METHODS.items() if "momentum" in method.form.mixings]
SHOWN = ["pa1", "averaged_pa1", "arow", "arow_mc", "asgd", "pegasos", "averaged_perceptron_mc"]


def rows_of(algo):
    x, y = random_rows(120, 12, noise=1.0)
    return (x, (np.arange(120) % 3) * (y > 0)) if METHODS[algo].all_classes else (x, y)


def moving(algo, model):
    """What of a state, or of the weights that are all there is, momentum moves."""
    weights = model.state.get("0.weights", np.append(model.coef_[0], model.intercept_[0]))
    return weights[..., 0] if METHODS[algo].form.has_variances else weights


def test_states_of_every_kind_are_among_those_shown():
    assert set(SHOWN) <= set(WITH)
    assert {type(resolve(name, None, None, None, {}).shared(1, "float64")).__name__ for name in SHOWN} >= {
        "Shared", "Averaged",
    }  # fmt: skip


@pytest.mark.parametrize("algo", SHOWN)
def test_mixed_weights_go_further_the_way_they_came(algo):
    """Epoch by epoch beside a run of one epoch by rows, from the same state."""
    data, options = rows_of(algo), dict(algo=algo, groups=3, epochs=1, **QUIET)
    plain = fit(*data, mixing="rows", **options)
    model = fit(*data, mixing="momentum=0.5", **options)
    delta = moving(algo, plain)
    np.testing.assert_allclose(model.state["0.velocity"], delta, rtol=1e-12)
    np.testing.assert_allclose(moving(algo, model), 1.5 * delta, rtol=1e-12)
    state = {name: array for name, array in model.state.items() if name != "0.velocity"}
    start, velocity = moving(algo, model).copy(), model.state["0.velocity"].copy()
    again = fit(*data, init=model, mixing="momentum=0.5", **options)
    model.state = state
    joined = moving(algo, fit(*data, init=model, mixing="rows", **options))
    velocity = 0.5 * velocity + (joined - start)
    np.testing.assert_allclose(again.state["0.velocity"], velocity, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(moving(algo, again), joined + 0.5 * velocity, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("algo", ["averaged_perceptron", "averaged_pa1", "asgd"])
def test_the_answer_of_an_average_is_of_the_steps_that_were_taken(algo):
    """How far the weights go after an epoch is no step: the average of the first epoch is that of a run without."""
    data, options = rows_of(algo), dict(algo=algo, groups=3, epochs=1, **QUIET)
    plain, further = (fit(*data, mixing=mixing, **options) for mixing in ("rows", "momentum"))
    np.testing.assert_allclose(further.coef_, plain.coef_, rtol=1e-9, atol=1e-12)
    assert np.any(further.state["0.weights"] != plain.state["0.weights"])


def test_the_squared_length_is_that_of_the_weights_that_went_on():
    state = fit(*rows_of("pegasos"), algo="pegasos", groups=3, mixing="momentum", epochs=2, **QUIET).state
    np.testing.assert_allclose(state["0.square"][0], state["0.weights"] @ state["0.weights"], rtol=1e-12)


@pytest.mark.parametrize("algo", ["pa1", "averaged_pa1", "arow"])
def test_a_run_in_two_pieces_has_the_bits_of_one(algo, tmp_path):
    data, options = rows_of(algo), dict(algo=algo, groups=3, mixing="momentum", **QUIET)
    whole = fit(*data, epochs=5, **options)

    def stop(record):
        if record["epoch"] == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Interrupted):
        fit(*data, epochs=5, run_dir=tmp_path / "run", callbacks=[stop], **options)
    resumed = fit(*data, epochs=5, run_dir=tmp_path / "run", resume=True, **options)
    further = fit(*data, epochs=2, init=fit(*data, epochs=3, **options), **options)
    for found in (resumed, further):
        assert found.digest() == whole.digest() and found.state_digest() == whole.state_digest()


def test_where_nothing_is_learned_the_weights_stay():
    x, y, *_ = separable_rows(seed=1, least=0.2)
    options = dict(algo="pa1", groups=2, mixing="momentum", C=100.0, **QUIET)
    found = [fit(x, y, epochs=epochs, **options) for epochs in (100, 101)]
    assert [model.result_.history[-1]["updates"] for model in found] == [0, 0]
    assert found[0].digest() == found[1].digest()
    np.testing.assert_array_equal(found[0].predict(x), y)


def test_averaged_methods_go_on_by_momentum_where_nobody_says():
    usual = {name: resolve(name, None, None, None, {}, None, 3).settings for name in WITH}
    first = {name for name, settings in usual.items() if settings["mixing"] == "momentum"}
    averaged = {name for name in WITH if METHODS[name].name.startswith("averaged") or name == "asgd"}
    assert first == averaged - {"averaged_pa2"} | {"sgd_newton"}  # by the table of the guide of groups
    assert all(usual[name]["momentum"] == BETA for name in first) and "momentum" not in usual["pa1"]


@pytest.mark.parametrize(("mixing", "message"), [
    ("momentum=1", "outside its bounds: 0 <= momentum < 1"), ("momentum=much", "must be a number"),
    ("momentum=-0.1", "outside its bounds"), ("rows=0.5", "mixing='rows=0.5' is not available"),
])  # fmt: skip
def test_a_momentum_that_cannot_be_is_refused(mixing, message):
    with pytest.raises(ValueError, match=message):
        resolve("pa1", None, None, None, {}, mixing, 2)
