"""Helpers are pasted into kernels without numba's copies: the same machine code, and nothing is left behind."""

import numpy as np
import pytest

from bigclf.compiled import inlining, jit
from bigclf.compiled.jit import inlined

pytestmark = pytest.mark.skipif(jit.INTERPRETED, reason="nothing is compiled")


@inlined
def larger(a, b):
    if a > b:
        return a
    return b


@inlined
def clipped(a, low, high):
    found = larger(a, low)
    if found > high:
        found = high
    return found


def total(numbers, low, high):
    """Two helpers, one of them inside the other, and names that all three have."""
    found = np.float64(0)
    for i in range(numbers.size):
        found += clipped(numbers[i], low, high) - larger(low, 0.5 * numbers[i])
    return found


def instructions(compiled):
    """What the machine is told to do, without labels and names."""
    lines = compiled.inspect_asm()[compiled.signatures[0]].splitlines()
    return [line.split()[0] for line in lines if line.startswith("\t") and not line.startswith("\t.")]


def test_the_machine_code_is_what_numba_makes_with_its_copies():
    numbers = np.random.default_rng(0).standard_normal(50)
    plain = jit.numba.njit(error_model="numpy")(total)
    ours = jit.numba.njit(error_model="numpy", pipeline_class=inlining.Pipeline)(total)
    expected = sum(np.clip(numbers, -0.5, 0.7) - np.maximum(-0.5, 0.5 * numbers))
    assert ours(numbers, -0.5, 0.7) == plain(numbers, -0.5, 0.7) == pytest.approx(expected, rel=1e-12)
    assert instructions(ours) == instructions(plain) and len(instructions(ours)) > 20


def test_every_paste_goes_without_copies_and_leaves_plain_blocks(monkeypatch):
    pasted, real = [], inlining.Paster.inline_ir

    def inline_ir(self, caller, block, i, callee, *given, **named):
        held = {id(instruction) for own in callee.blocks.values() for instruction in own.body}
        made = real(self, caller, block, i, callee, *given, **named)
        there = {id(instruction) for other in caller.blocks.values() for instruction in other.body}
        pasted.append((callee.func_id.func_name, len(held & there) > 0))
        assert {type(other) for other in caller.blocks.values()} == {inlining.ir.Block}
        return made

    monkeypatch.setattr(inlining.Paster, "inline_ir", inline_ir)
    made = jit.numba.njit(error_model="numpy", pipeline_class=inlining.Pipeline)(total)  # whatever is on disk
    assert made(np.arange(5.0), 1.0, 2.0) == pytest.approx(8.0 - 6.5)
    assert sorted(pasted) == [("clipped", True), ("larger", True), ("larger", True)]
