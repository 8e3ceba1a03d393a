"""Reads for certificates alone: nothing is learned in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigclf.training.visit import Figures

if TYPE_CHECKING:
    from bigclf.training.run import Run


def certify_all(run: Run, todo: list[int], keep: str, kind: str = "certify") -> None:
    """One more read of these problems, for their certificates alone."""
    parts = run.visit_all(kind, todo)
    assert parts is not None
    for number, part in zip(todo, parts, strict=True):
        if part.dual is not None:
            figures = Figures.of(part.figures)
            run.conductors[number].accept(run.states[number], part, figures, run.reads, keep)
    if kind == "last":
        assert run.tol is not None
        scaled = [Figures.of(part.figures).scaled for part in parts]
        del parts, part  # room for the scaled weights: that of the sums of the dual variables
        for number, losses in zip(todo, scaled, strict=True):
            conductor = run.conductors[number]
            conductor.take_scaled(run.states[number], np.array(losses), run.reads, run.tol)


def certify_last(run: Run, todo: list[int]) -> None:
    """Certify the last weights, which may be better than those kept, where a run ends before it is done. When the
    next certificates are due stays as it is: the run may go on with more time."""
    due = [(s.truth, s.optimism, s.since_certificate) for s in run.status]
    certify_all(run, todo, "as they are", "last")
    for status, (truth, optimistic, since) in zip(run.status, due, strict=True):
        status.truth, status.optimism, status.since_certificate = truth, optimistic, since


def certify_starts(run: Run) -> None:
    """Likewise the weights at the start of an epoch that was cut short, which may be better than its end."""
    todo = [number for number in run.todo() if run.status[number].began is not None]
    ends = {number: run.states[number] for number in todo}
    if not todo:
        return
    try:
        for number, state in ends.items():
            run.states[number] = state._replace(weights=run.status[number].began)
        run.version += 1
        certify_last(run, todo)
    finally:
        run.version += 1
        for number, state in ends.items():
            run.states[number], run.status[number].began = state, None
