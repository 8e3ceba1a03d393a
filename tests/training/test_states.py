"""The state of every method: what it begins with, and that the weights of a model come back from it."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from bigclf.methods import METHODS, resolve

D, K = 7, 3
ANY_WEIGHTS = [m.name for m in METHODS.values() if m.form.place is not None and m.linear]


def setting_of(method, bias="feature", **given):
    loss = method.losses[0] if method.losses else None
    setting = resolve(method.name, loss, None, bias if bias in method.bias else None, given)
    return setting.of_classes(K) if method.all_classes and hasattr(setting, "of_classes") else setting


@pytest.mark.parametrize("name", METHODS)
def test_a_fresh_state_has_a_weight_for_each_feature_and_for_the_bias_and_knows_nothing(name):
    setting = setting_of(METHODS[name])
    weights = setting.weights(setting.shared(D, "float64"))
    assert weights.shape[0] == D + 1 and np.isfinite(weights).all()
    assert not weights[:D].any() or name.startswith("winnow")


@pytest.mark.parametrize("name", ANY_WEIGHTS)
def test_the_weights_of_a_model_come_back_from_the_state_that_begins_with_them(name):
    method = METHODS[name]
    setting = setting_of(method)
    shared, params = setting.shared(D, "float64"), setting.params()
    shape = setting.weights(shared).shape
    weights = np.random.default_rng(0).standard_normal(shape)
    if method.form.threshold:
        weights = np.abs(weights)
    method.form.place(shared, weights.copy(), params)
    if method.form.finish is not None:
        method.form.finish(shared, params)
    found = setting.weights(shared)
    np.testing.assert_allclose(found, weights, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_declares_is_the_same_for_all_who_ask(name):
    method = METHODS[name]
    parts = (method, "form"), (method.form, "bind"), (method.how, "update"), (method.form.touched, "update")
    for declared, field in parts:
        if declared is not None:
            with pytest.raises(FrozenInstanceError):
                setattr(declared, field, None)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", METHODS)
def test_a_state_takes_the_bytes_that_the_plan_counts(name, dtype):
    setting = setting_of(METHODS[name])
    taken = sum(array.nbytes for array in setting.shared(1000, dtype))
    assert taken <= setting.state_bytes(1000, dtype) <= 1.01 * taken + 64


@pytest.mark.parametrize("name", ["cw_mc", "cw_var_mc", "arow_mc", "cw", "arow", "scw1"])
def test_a_mean_and_a_variance_stand_side_by_side(name):
    setting = setting_of(METHODS[name], a=0.25) if name.startswith("cw") else setting_of(METHODS[name])
    weights = setting.shared(D, "float64").weights
    assert weights.shape == ((D + 1, K, 2) if METHODS[name].all_classes else (D + 1, 2))
    assert not weights[..., 0].any() and (weights[..., 1] == (0.25 if name.startswith("cw") else 1.0)).all()
