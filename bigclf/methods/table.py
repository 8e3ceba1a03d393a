"""The table of methods: their modules, in the order in which a person sees them. Each has its own ``METHODS``."""

from __future__ import annotations

import copyreg
import dataclasses
import importlib

from bigclf.methods.method import Method

MODULES = (
    # certified solvers: of the dual, by sums over rows, by columns
    "dual_coordinate_descent",
    "multiclass_dual_coordinate_descent",
    "newton",
    "trust_region",
    "lbfgs",
    "multinomial",
    "newglmnet",
    "primal_coordinate_descent",
    # perceptrons and margins
    "perceptron",
    "voted_perceptron",
    "second_order_perceptron",
    "p_norm_perceptron",
    "mira",
    "romma",
    "dynamic_margin_perceptron",
    "passive_aggressive",
    # confidence in each weight
    "confidence_weighted",
    "narrow_adaptive_regularisation",
    "normal_herd",
    # all classes at once
    "multiclass_perceptron",
    "multiclass_passive_aggressive",
    "multiclass_mira",
    "multiclass_confidence_weighted",
    "support_class_confidence_weighted",
    # gradients
    "stochastic_gradient",
    "pegasos",
    "adagrad",
    "diagonal_newton",
    "follow_the_regularized_leader",
    # weights under another norm
    "winnow",
    "approximate_maximal_margin",
    "p_norm_margin",
    "maximum_entropy_margin",
    "maximum_entropy_blocks",
    "maximum_entropy_recursion",
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
