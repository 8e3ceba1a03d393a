"""What a kind of method asks of training, each in a file: ``online``, ``dual`` and ``steps``.

A ``Conductor`` has a problem at the driver: what its next visits are told, and what becomes of what came together.
Read ``conductor`` first, which says what every kind does.
"""

from __future__ import annotations

from bigclf.training.plan import Plan
from bigclf.training.problems import Problem
from bigclf.training.roles.conductor import Conductor, Limits
from bigclf.training.roles.dual import DualConductor
from bigclf.training.roles.online import OnlineConductor
from bigclf.training.roles.steps import StepsConductor

__all__ = ["Conductor", "DualConductor", "Limits", "OnlineConductor", "StepsConductor", "conductor_of"]


def conductor_of(number: int, problem: Problem, plan: Plan, limits: Limits) -> Conductor:
    """Whoever has a problem at the driver, by what its method does."""
    method = problem.setting.method
    if method.absorb is not None:
        return StepsConductor(number, problem, plan, limits)
    return (DualConductor if method.certify is not None else OnlineConductor)(number, problem, plan, limits)
