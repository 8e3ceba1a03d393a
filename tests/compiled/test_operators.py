"""What operators give of numbers is found out once, and it is what numba says."""

import operator

import pytest
from numba import float32, float64, int64, types, uint32
from numba.core.errors import TypingError
from numba.core.registry import cpu_target

from bigclf.compiled import jit, operators
from bigclf.compiled.operators import Remembering

pytestmark = pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")
PAIRS = [(int64, int64), (uint32, int64), (float32, float64), (int64, types.boolean), (types.literal(3), float32)]


@pytest.fixture
def context(monkeypatch):
    monkeypatch.setattr(operators, "_known", {})
    own = cpu_target.typing_context
    own.refresh()
    return own


@pytest.mark.parametrize("asked", [operator.add, operator.mul, operator.lt, operator.truediv, operator.and_])
def test_it_is_asked_once_and_says_what_numba_says(context, monkeypatch, asked):
    function = context.resolve_value_type(asked)
    expected = [_or_none(context, function, pair) for pair in PAIRS]
    times, ask = [], context.resolve_function_type
    monkeypatch.setattr(context, "resolve_function_type", lambda *asked: times.append(asked) or ask(*asked))
    remembering = Remembering(context)
    fits = [(pair, what) for pair, what in zip(PAIRS, expected, strict=True) if what is not None]
    for _ in range(2):
        assert [remembering.resolve_function_type(function, pair, {}) for pair, _ in fits] == [what for _, what in fits]
    assert len(times) == len(fits) > 0


def _or_none(context, function, pair):
    try:
        return context.resolve_function_type(function, pair, {})
    except TypingError:  # "&" of floats
        return None


def test_anything_else_is_asked_each_time(context, monkeypatch):
    times, ask = [], context.resolve_function_type
    monkeypatch.setattr(context, "resolve_function_type", lambda *asked: times.append(asked) or ask(*asked))
    remembering, array = Remembering(context), types.Array(float64, 1, "C")
    getitem = context.resolve_value_type(operator.getitem)
    for _ in range(2):
        remembering.resolve_function_type(getitem, (array, int64), {})
    assert len(times) == 2 and not operators._known
