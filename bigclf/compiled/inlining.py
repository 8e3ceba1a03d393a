"""numba's pasting of helpers into kernels, without copies that nobody needs.

Before numba pastes the code of an ``inline="always"`` function it copies it twice, each block by itself and with it
every variable of the function: of the kernels here that took a fifth to two thirds of all compiling. The code to be
pasted was made for this one place a moment before, so here it is pasted as it is; what comes of it is the same.
"""

from __future__ import annotations

from typing import TypeAlias

from numba.core import ir
from numba.core.compiler import CompilerBase, DefaultPassBuilder, StateDict
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.inline_closurecall import InlineWorker, callee_ir_validator
from numba.core.untyped_passes import InlineInlinables

from bigclf.compiled.operators import Remembering

Blocks: TypeAlias = dict[int, ir.Block]
Pasted: TypeAlias = tuple[ir.FunctionIR, Blocks, dict[str, ir.Var], list[tuple[int, ir.Block]]]


class OwnBlock(ir.Block):
    """A block of code that is nobody else's: its copy is itself."""

    def __deepcopy__(self, memo: dict[int, object]) -> OwnBlock:
        return self


class Paster(InlineWorker):
    """Pastes a function's code as it was made, and what that calls in the same way."""

    def __init__(self, *given: object, **named: object) -> None:
        super().__init__(*given, **named)
        self._compiler_pipeline = _untyped  # type: ignore[assignment]

    def inline_ir(
        self,
        caller_ir: ir.FunctionIR,
        block: ir.Block,
        i: int,
        callee_ir: ir.FunctionIR,
        *given: object,
        **named: object,
    ) -> Pasted:
        for own in callee_ir.blocks.values():
            own.__class__ = OwnBlock
        pasted = super().inline_ir(caller_ir, block, i, callee_ir, *given, **named)
        for other in caller_ir.blocks.values():
            if isinstance(other, OwnBlock):
                other.__class__ = ir.Block  # type: ignore[assignment]
        return pasted


@register_pass(mutates_CFG=True, analysis_only=False)
class Pasting(InlineInlinables):
    """numba's pass, with ``Paster`` at work."""

    _name = "paste_inlinables"

    def _do_work(
        self,
        state: StateDict,
        work_list: list[tuple[int, ir.Block]],
        block: ir.Block,
        i: int,
        expr: ir.Expr,
        inline_worker: InlineWorker,
    ) -> bool:
        paster = Paster(
            state.typingctx, state.targetctx, state.locals, state.pipeline, state.flags, validator=callee_ir_validator
        )
        return super()._do_work(state, work_list, block, i, expr, paster)


class Pipeline(CompilerBase):
    """numba's way from Python to machine code, with ``Pasting`` in it; it remembers what operators give of numbers."""

    def define_pipelines(self) -> list[PassManager]:
        self.state.typingctx = Remembering(self.state.typingctx)
        return [_pasting(DefaultPassBuilder.define_nopython_pipeline(self.state))]


def _untyped(state: StateDict) -> PassManager:
    """The passes that a pasted function goes through."""
    return _pasting(DefaultPassBuilder.define_untyped_pipeline(state))


def _pasting(passes: PassManager) -> PassManager:
    passes.passes = [(Pasting, told) if kind is InlineInlinables else (kind, told) for kind, told in passes.passes]
    passes.finalize()
    return passes
