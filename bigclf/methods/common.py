"""What the declarations of several methods share: parameters, and what goes for a kind of method.

A module of a method names these below its line "# Methods" only: no kernel is made of them
(``bigclf.compiled.kernel_cache``).
"""

from __future__ import annotations

from typing import Any

from bigclf.maths.losses import TUBES, having, is_gradient
from bigclf.maths.mixing import SUM
from bigclf.methods.method import SCHEDULES, Method, Param, choice, online

COST = Param("C", 1.0, 0.0, 1e30, "cost parameter; a larger C fits the training rows more closely", open_low=True)
EPSILON = Param(
    "epsilon", 0.1, 0.0, 1e30, "half the width of the tube in which a prediction costs nothing", losses=TUBES
)
LAM = Param("lam", 1e-5, 0.0, 1e30, "weight of the penalty beside the mean loss per row; 1 / (C rows) for C")
SIGNS = choice("signs", ("both", "nonnegative"), "weights of either sign (each feature and its mirror image), or >= 0")

WORKING_SET = Param(
    "working_set", None, 0.0, 1.0, "share of the rows in the working set (none: what fits, for the hinge)"
)
SCHEDULE = choice(
    "schedule",
    SCHEDULES,
    "out of core: auto (a working set, solved after each read), fixed blocks (Yu et al. 2010), selective (and a cache "
    "of informative rows: Chang and Roth 2011), cached (dual cached loops: Matsushima et al. 2012)",
)
INNER_ROUNDS = Param(
    "inner_rounds",
    None,
    0,
    10_000,
    "most rounds over the rows that matter after a read (none: 60; of several groups 3, or 100 over gathered ones); of "
    "losses that keep no working set over each block (none: 4); "
    "fixed, selective: rounds over each block (none: 10); cached: visits to cached rows for each row read (none: 3)",
    integer=True,
)

NATIVE: dict[str, Any] = dict(multiclass=("native",))
BINARY: dict[str, Any] = dict(row_weights="binary", weight_meaning="0 or 1 only")
ONE_GROUP: dict[str, Any] = dict(mixings={}, mixing="one group only")
WITH_MOMENTUM = "mean by rows, uniform, by mistakes or with momentum"
MOMENTUM_FIRST = "mean by rows with momentum or without, uniform or by mistakes"
MEAN_OF_STEPS = ";  the answer is the mean of w over all steps"

# Solvers that ascend the dual over rows that they keep
DUAL: dict[str, Any] = dict(
    penalties=("l2",),
    mixings={"line_search": SUM, "safe": SUM},
    mixing="summed steps with an exact line search on the dual, or the safe scaling of CoCoA+",
    weight_meaning="multiplies C",
    epochs=10_000,
    tol=1e-3,
)


def gradient(name: str, title: str, paper: str, formula: str, **options: Any) -> Method:
    """A gradient method, whose rows' weights multiply their losses."""
    standard: dict[str, Any] = dict(
        weight_meaning="multiplies the loss",
        losses=having(is_gradient),
        penalties=("l2",),
        bias=("feature", "none", "free"),
        clocked=True,
    )
    own = dict(name=name, title=title, paper=paper, formula=formula)
    return online(**own, **(standard | options))
