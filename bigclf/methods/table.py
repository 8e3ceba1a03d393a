"""The table of methods: their modules, in the order in which a person sees them. Each has its own ``METHODS``."""

from __future__ import annotations

import copyreg
import dataclasses
import importlib

from bigclf.methods.method import Method

MODULES = (
    # certified solvers: of the dual, by sums over rows, by columns
    "dual.dual_coordinate_descent",
    "dual.multiclass_dual_coordinate_descent",
    "steps.newton",
    "steps.trust_region",
    "steps.lbfgs",
    "steps.newton_dense",
    "steps.augmented_lagrangian",
    "steps.multinomial",
    "steps.newglmnet",
    "steps.primal_coordinate_descent",
    # perceptrons and margins
    "online.perceptron",
    "online.voted_perceptron",
    "online.second_order_perceptron",
    "online.p_norm_perceptron",
    "online.mira",
    "online.romma",
    "online.dynamic_margin_perceptron",
    "online.passive_aggressive",
    # confidence in each weight
    "online.confidence_weighted",
    "online.narrow_adaptive_regularisation",
    "online.normal_herd",
    # all classes at once
    "many_classes.multiclass_perceptron",
    "many_classes.multiclass_passive_aggressive",
    "many_classes.multiclass_mira",
    "many_classes.multiclass_confidence_weighted",
    "many_classes.support_class_confidence_weighted",
    # gradients
    "online.stochastic_gradient",
    "online.pegasos",
    "online.adagrad",
    "online.diagonal_newton",
    "online.follow_the_regularized_leader",
    # weights under another norm
    "online.winnow",
    "online.approximate_maximal_margin",
    "online.p_norm_margin",
    "online.maximum_entropy_margin",
    "steps.maximum_entropy_blocks",
    "online.maximum_entropy_recursion",
)


def _declared() -> dict[str, Method]:
    """Every method by its name."""
    modules = [importlib.import_module(f"bigclf.methods.{name}") for name in MODULES]
    return {method.name: method for module in modules for method in module.METHODS}


def _with_native(method: Method, declared: dict[str, Method]) -> Method:
    """With the method that learns all classes at once in its place, where there is one."""
    twin = f"{method.name}_mc"
    if twin not in declared:
        return method
    return dataclasses.replace(method, native=twin, multiclass=(*method.multiclass, "native"))


METHODS = {name: _with_native(method, declared) for declared in [_declared()] for name, method in declared.items()}


def named(name: str) -> Method:
    """The method of the table."""
    return METHODS[name]


copyreg.pickle(Method, lambda method: (named, (method.name,)))  # travels by its name: kernels cannot be sent
