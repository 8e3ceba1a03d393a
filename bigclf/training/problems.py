"""Problems: the things being learned over one stream of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from bigclf.block import Block
from bigclf.methods import Setting


class Problem(NamedTuple):
    """One thing being learned.

    Attributes
    ----------
    name : what it is called in the history ("" for the only one).
    targets : float64 [class], what a row of each class is to the kernel: -1 or +1; None for regression, where labels
        are the numbers to predict.
    class_weights : float64 [class], multiplied into the rows' weights (0: the class takes no part); None for
        regression.
    setting : the method and its parameters.
    """

    name: str
    targets: np.ndarray | None
    class_weights: np.ndarray | None
    setting: Setting

    def view(self, block: Block) -> Block:
        """The block as this problem sees it: targets for class codes, weights times class weights."""
        if self.targets is None or self.class_weights is None:
            return block
        codes = block.labels.astype(np.int64)
        return block._replace(labels=self.targets[codes], weights=block.weights * self.class_weights[codes])


def taking_part(view: Block) -> np.ndarray:
    """int64, the rows of a problem's view that it learns from; the others cost nothing more."""
    return np.flatnonzero(view.weights > 0)


def class_weight_array(class_weight: Any, classes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """float64 [class] from None, "balanced" (rows / (classes * rows of the class)) or {label: weight}.

    A label may be given as text too: a command line knows no types.

    Raises
    ------
    ValueError : a label that is no class, or a weight that is negative or not finite.
    """
    if class_weight is None:
        return np.ones(classes.size)
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ValueError(f'class_weight must be "balanced" or a dict, not {class_weight!r}')
        return counts.sum() / (classes.size * counts)
    if not isinstance(class_weight, Mapping):
        raise ValueError(f'class_weight must be "balanced" or a dict, not {class_weight!r}')
    weights = np.ones(classes.size)
    for label, weight in class_weight.items():
        place = np.array([i for i, c in enumerate(classes.tolist()) if c == label or str(c) == label])
        if place.size != 1:
            raise ValueError(f"class_weight names {label!r}, which is not one of the classes {classes[:10].tolist()}")
        if not np.isfinite(weight) or weight < 0:
            raise ValueError(f"class_weight of {label!r} must be finite and at least 0, not {weight!r}")
        weights[place[0]] = weight
    return weights


def regression_problem(setting: Setting) -> Problem:
    """The one thing that is learned where labels are numbers to predict."""
    return Problem("", None, None, setting)


def progress_of(problem: Problem, rows: int, mistakes: int, loss: float) -> dict[str, float]:
    """What rows judged before they were learned from say of the answer: the share of mistakes, or for regression the
    mean of their terms of the objective without C: the loss, times the row's weight."""
    if problem.targets is None:
        return {"mean_loss": loss / (max(1, rows) * problem.setting.settings["C"])}
    return {"error": mistakes / max(1, rows)}


def make_problems(classes: np.ndarray, class_weights: np.ndarray, setting: Setting) -> list[Problem]:
    """One problem for two classes (the greater positive), one against the rest for each of more."""
    k = classes.size
    if k == 2:
        return [Problem("", np.array([-1.0, 1.0]), class_weights, setting)]
    return [
        Problem(str(label), np.where(np.arange(k) == i, 1.0, -1.0), class_weights, setting)
        for i, label in enumerate(classes)
    ]
