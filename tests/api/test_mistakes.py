"""Mistakes of the first hour in Python: what the message says to do about each."""

import numpy as np
import pytest

import bigclf
from bigclf import LinearClassifier, LinearRegressor
from bigclf.errors import DataError

RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(60, 4)), np.arange(60) % 2


def message(kind, call, *args, **more):
    with pytest.raises(kind) as caught:
        call(*args, **more)
    return str(caught.value)


@pytest.mark.parametrize("given", [{}, {"algo": "dcd"}, {"algo": "newton"}])
def test_a_parameter_in_the_wrong_case_is_guessed(given):
    assert "; did you mean C?" in message((ValueError, TypeError), bigclf.fit, X, Y, c=1, progress=False, **given)


def test_the_right_case_is_never_asked_for():
    assert "did you mean" not in message(TypeError, bigclf.fit, X, Y, C=1, algo="arow", progress=False)
    assert "did you mean c?" in message(TypeError, bigclf.fit, X, Y, C=1, algo="memma_p", progress=False)
    told = message(ValueError, bigclf.fit, X, Y, C=1, r=2.0, bias="free", progress=False)
    assert "did you mean" not in told and "r is a parameter of" in told


@pytest.mark.parametrize(("loss", "meant"), [
    ("log_loss", "'logistic'"), ("log", "'logistic'"), ("modified_huber", "'squared_hinge'"),
    ("squared_error", "'squared'"), ("absolute_error", "'epsilon_insensitive'"), ("l1", "penalty='l1'"),
    ("hinges", "hinge"),
])  # fmt: skip
def test_losses_of_other_libraries_are_guessed(loss, meant):
    assert message(ValueError, bigclf.fit, X, Y, loss=loss, progress=False).endswith(f"; did you mean {meant}?")
    assert message(ValueError, LinearClassifier(loss=loss).fit, X, Y).endswith(f"; did you mean {meant}?")
    told = message(ValueError, bigclf.fit, X, Y, loss=loss, algo="dcd", progress=False)
    assert told.endswith("; bigclf calls it 'squared'" if loss == "squared_error" else f"; did you mean {meant}?")


def test_probabilities_that_are_not_there_come_with_who_has_them():
    for name in ("predict_proba", "predict_log_proba"):
        for estimator, own in ((LinearClassifier(loss="hinge"), "loss='hinge'"),
                               (LinearClassifier("arow"), "algo='arow'")):  # fmt: skip
            for made in (estimator, estimator.fit(X, Y)):
                assert not hasattr(made, name)
                told = message(AttributeError, getattr, made, name)
                assert (
                    told.startswith(f"{name} needs a model trained with loss='logistic', or calibrated") and own in told
                )
        assert hasattr(LinearClassifier().fit(X, Y), name)
        assert "has no attribute" in message(AttributeError, getattr, LinearRegressor(), name)


@pytest.mark.parametrize(("value", "decimal", "written", "told"), [
    ("160,87", ".", "plain", '(decimal: "," in the reader of a spec, --decimal ,)'),
    ("160,87 €", ".", "plain", '--decimal , (decimal: "," in the reader of a spec, and written: grouped'),
    ("$1.160,87", ".", "grouped", '--decimal , (decimal: "," in the reader of a spec)'),
    ("$1,160.87", ",", "plain", '--decimal . (decimal: "." in the reader of a spec, and written: grouped'),
    ("1,160", ".", "plain", "say written: grouped"),
])  # fmt: skip
def test_decimals_of_the_other_kind_come_with_the_option(tmp_path, value, decimal, written, told):
    (tmp_path / "t.tsv").write_text(f"amount\ty\n{value}\t1\n1\t0\n")
    spec = {"label": "y", "features": [{"numeric": "amount", "written": written}], "reader": {"decimal": decimal}}
    said = message(DataError, bigclf.convert, tmp_path / "t.tsv", tmp_path / "s", features=spec)
    assert f"column amount: {value!r} is not a number; " in said and told in said and "skip" not in said


def test_rows_that_are_bad_for_another_reason_come_with_what_leaves_them_out(tmp_path):
    (tmp_path / "t.tsv").write_text("amount\ty\nmuch\t1\n1\t0\n")
    spec = {"label": "y", "features": [{"numeric": "amount"}]}
    said = message(DataError, bigclf.convert, tmp_path / "t.tsv", tmp_path / "s", features=spec)
    assert said.endswith("'much' is not a number; --on-bad-rows skip leaves such rows out (on_bad_rows=\"skip\")")
